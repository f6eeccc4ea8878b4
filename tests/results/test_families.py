"""Results of audits against a family of claims: made everywhere, written, read back, verified, shown."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from canaria import Counts, InputError, Result, assert_private, assert_private_training, lower_bound, play
from canaria._core.files import checksum
from canaria.claims import ApproximateDP, Composed, Curve, DpSgd, GaussianDP, LaplaceDP, families
from canaria.evidence import MatchedCounts
from canaria.report import page_of
from canaria.results import read_checked
from canaria.rules import Matched, Ranked
from canaria.training import Dirac
from canaria.training.plan import expected_bound, plan, refutation_power
from tests.cli.command import canaria
from tests.training.simulated import RATE, SIGMA, STEPS, simulated

RNG = np.random.default_rng(0)
BITS = RNG.integers(0, 2, 400)
SCORES = RNG.normal(1.5 * BITS)


def scored(claim: Any = None, **how: Any) -> Result:
    return Result.of_scores(SCORES, BITS, claim, delta=1e-5, family="gaussian", rng=0, **how)


def rewritten(path: Path, **changes: Any) -> Path:
    """A file with other values and a checksum that fits."""
    record = json.loads(path.read_text())
    for name, value in changes.items():
        inner, _, field = name.partition("__")
        if field:
            record[inner][field] = value
        else:
            record[inner] = value
    record["checksum"] = checksum(record)
    path.write_text(json.dumps(record))
    return path


def complaint_about(path: Path) -> str:
    """Why a file is refused, or does not hold."""
    with pytest.raises(InputError) as complaint:
        read_checked(path)
    return str(complaint.value)


@pytest.mark.parametrize("claim", [None, GaussianDP(0.3), GaussianDP(3.0)])
def test_a_result_is_read_back_as_it_was(claim: GaussianDP | None, tmp_path: Path) -> None:
    result = scored(claim)
    stored = read_checked(result.save(tmp_path / "result.json"))
    assert stored.result.bound.claim == result.bound.claim
    assert stored.result.claim == claim
    assert stored.result.refuted is (None if claim is None else claim.mu < 1)
    assert stored.result.verdict == result.verdict
    assert "that this mechanism is as private as" in result.verdict
    assert "If its privacy profile is that of Gaussian noise" in str(result)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"family": {"kind": "laplace"}}, "refutes claims of it alone"),
        ({"family": None}, "family is stored as None"),
        ({"evidence__family": {"kind": "laplace"}}, "claim must be of the family of Laplace noise"),
        ({"evidence__independent": True}, "cannot have made this evidence"),
        ({"evidence__confidence": 0.9}, ""),
        ({"last_refuted": {"kind": "GaussianDP", "mu": 2.0, "adjacency": "unspecified"}}, "last_refuted"),
        ({"last_refuted": None}, "last_refuted"),
        ({"epsilon": 9.0}, "epsilon is stored as 9"),
        ({"claimed": 1.0}, "claimed is stored as 1.0"),
        ({"claim": {"kind": "GaussianDP", "mu": 5.0, "adjacency": "unspecified"}}, "claimed is stored as"),
        ({"claim": None}, "refutes claims of it alone"),
        (
            {"claim": {"kind": "LaplaceDP", "epsilon": 5.0, "adjacency": "unspecified"}},
            "refutes claims of it",
        ),
        ({"refuted": False}, "refuted is stored as False"),
        ({"rule": "Ranked()"}, "cannot have made this evidence"),
        ({"rule": "Matched('gaussian', confidence=0.99)"}, "cannot have made this evidence"),
        ({"command": "canaria scores s.csv --delta 1e-5 --family laplace"}, "says --family laplace"),
        ({"command": "canaria scores s.csv --delta 1e-5"}, "does not say --family"),
    ],
)
def test_a_file_that_contradicts_itself_does_not_hold(
    changes: dict[str, Any], fault: str, tmp_path: Path
) -> None:
    path = rewritten(scored(GaussianDP(0.3)).save(tmp_path / "result.json"), **changes)
    assert fault in complaint_about(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"evidence__elements": 10**15},
        {"family": {"kind": "dpsgd", "steps": 10**9, "sample_rate": 0.01}},
        {"claim": {"kind": "DpSgd", "noise_multiplier": 0.001, "sample_rate": 0.5, "steps": 1}},
        {
            "evidence__family": {"kind": "dpsgd", "steps": 10**9, "sample_rate": 0.01},
            "family": {"kind": "dpsgd", "steps": 10**9, "sample_rate": 0.01},
            "claim": None,
            "claimed": None,
        },
        {"claim": {"kind": "Composed", "parts": []}},
    ],
    ids=["elements", "steps", "noise", "both", "nothing"],
)
def test_hostile_files_are_refused_at_once(changes: dict[str, Any], tmp_path: Path) -> None:
    path = rewritten(scored(GaussianDP(0.3)).save(tmp_path / "result.json"), **changes)
    ran = canaria("verify", str(path))
    assert ran.code in (1, 2)
    assert "Traceback" not in ran.err


def test_the_command_line_knows_families(tmp_path: Path) -> None:
    file = tmp_path / "scores.csv"
    file.write_text("score,included\n" + "".join(f"{s},{b}\n" for s, b in zip(SCORES, BITS, strict=True)))
    asked = ["scores", str(file), "--delta", "1e-5", "--family", "gaussian"]
    ran = canaria(*asked)
    assert ran.code == 0
    assert ran.out.startswith("Refuted, at 95% confidence: that this mechanism is as private as")
    ran = canaria(*asked, "--claimed", "1", "--json")
    assert ran.code == 1
    (tmp_path / "result.json").write_text(ran.out)
    assert canaria("verify", str(tmp_path / "result.json")).code == 0
    shown = canaria("report", str(tmp_path / "result.json"))
    assert shown.code == 0
    assert "ε is bounded if its privacy profile is that of Gaussian noise" in " ".join(shown.out.split())
    counted = ["bound", "--correct", "95", "--guesses", "100", "--elements", "1000", "--delta", "1e-5"]
    ran = canaria(*counted, "--family", "gaussian", "--json")
    assert json.loads(ran.out)["last_refuted"]["mu"] == pytest.approx(0.8026, abs=2e-3)
    for family, message in (("gausian", "did you mean 'gaussian'?"), ("dpsgd:steps=3", "family must be")):
        assert message in canaria(*asked[:-1], family).err
    assert "no finite epsilon at delta = 0" in canaria("scores", str(file), "--family", "gaussian").err


def test_the_page_shows_the_family() -> None:
    page = page_of([scored(GaussianDP(0.3))])
    assert "Refuted, at 95% confidence" in page
    assert "is bounded if its privacy profile is that of Gaussian noise" in page
    assert "it is another one, with less noise or with other settings" in page


@pytest.mark.parametrize("noise", [1.0, 0.35])
def test_a_training_run_takes_its_family_and_numbers_from_the_run(noise: float, tmp_path: Path) -> None:
    run = simulated(Dirac(1000), 3, noise=noise)
    result = run.report(delta=1e-5, family="dpsgd")
    assert result.claim == DpSgd(SIGMA, RATE, STEPS)
    assert result.refuted is (noise < 1)
    assert result.bound.family == families.dpsgd(STEPS, RATE)
    assert f"{STEPS} steps, rate {RATE}" in result.verdict
    assert read_checked(result.save(tmp_path / "result.json")).result.refuted is result.refuted
    promised = run.report(2.0, 1e-5, family="dpsgd")
    assert promised.claimed == pytest.approx(2.0, rel=1e-3)
    gaussian = run.report(delta=1e-5, family="gaussian")
    assert gaussian.claim is None
    assert gaussian.bound.epsilon > 0
    plain = run.report(claimed=DpSgd(SIGMA, RATE, STEPS), delta=1e-5)
    assert plain.bound.family is None
    assert plain.claimed == pytest.approx(1.81, abs=0.02)


def noisy(included: Any, rng: np.random.Generator, scale: float = 2.0) -> Any:
    return included + rng.normal(scale=scale, size=len(included))


def score(output: Any, known: Any) -> Any:
    return output


@pytest.mark.parametrize(
    "claim",
    [
        GaussianDP(0.5),
        LaplaceDP(1.5),
        DpSgd(2.0, 1.0, 1),
        Curve([0.0, 1.0, 2.0, 3.0], [0.2, 0.02, 1e-4, 1e-8]),
        Composed((GaussianDP(0.5), LaplaceDP(0.1))),
    ],
    ids=str,
)
def test_claims_as_assertions(claim: Any) -> None:
    """Correct code passes; an eighth of the noise fails (included are 0 and 1, so that mu is 0.5)."""
    assert_private(noisy, claim=claim, score=score)
    with pytest.raises(AssertionError, match="is REFUTED"):
        assert_private(lambda included, rng: noisy(included, rng, 0.25), claim=claim, score=score)
    game = play(noisy, score, Ranked(), n=500, rng=0)
    assert_private(game, claim=claim)


def test_claims_of_assertions_are_checked() -> None:
    for how in (
        {},
        {"epsilon": 1.0},
        {"epsilon": 1.0, "delta": 0.0, "claim": GaussianDP(1.0)},
        {"claim": 1.0},
    ):
        with pytest.raises(InputError):
            assert_private(noisy, score=score, **how)
    with pytest.raises(InputError, match="adjacency"):
        assert_private(noisy, claim=GaussianDP(1.0, "replace"), adjacency="add-remove", score=score)
    with pytest.raises(InputError, match="this test cannot fail"):
        assert_private(noisy, claim=GaussianDP(6.0), n=20, score=score)
    run = simulated(Dirac(1000), 3, noise=0.3)
    with pytest.raises(AssertionError, match="the claim of DP-SGD"):
        assert_private_training(run, claim=DpSgd(SIGMA, RATE, STEPS), conformance=False)


def test_a_curve_is_held_against_a_plain_bound() -> None:
    """By its epsilon at the delta of the bound; a bound against a family takes claims of it alone."""
    bound = lower_bound(Counts(495, 500, 500), 1e-5)
    assert bound.refutes(GaussianDP(0.5))
    assert not bound.refutes(GaussianDP(5.0))
    assert Result(bound, GaussianDP(0.5)).refuted
    with pytest.raises(InputError, match="refutes claims of it alone"):
        Result(lower_bound(MatchedCounts(families.gaussian(), [1] * 99), 1e-5), ApproximateDP(1.0, 1e-5))


def test_plans_of_matched_looks() -> None:
    """The expected bound is that of simulated runs, up to 8%; half the noise is mostly refuted."""
    rule = Matched(families.dpsgd(STEPS, RATE))
    expected = expected_bound((STEPS, RATE, SIGMA), 1000, 1, 1e-5, rule=rule)
    seen = [simulated(Dirac(1000), seed).bound(1e-5, family="dpsgd").epsilon for seed in range(30)]
    assert np.mean(seen) == pytest.approx(expected.mean, rel=0.08, abs=3 * expected.deviation / 30**0.5)
    assert refutation_power((STEPS, RATE, SIGMA), 2.0, 2.0, 1000, 1, 1e-5, rule=rule) > 0.7
    with pytest.raises(InputError, match="rule must be for DP-SGD with 100 steps"):
        expected_bound((STEPS, RATE, SIGMA), 1000, 1, 1e-5, rule=Matched("gaussian"))
    with pytest.raises(InputError, match=r"rule must be Ranked\(\), Soft\(\) or Matched"):
        plan(2.0, 1e-5, STEPS, RATE, rule=Matched(families.dpsgd(STEPS, RATE), independent=True))
