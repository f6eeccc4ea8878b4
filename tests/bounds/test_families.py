"""Results of audits against a family of claims: made everywhere, written, read back, verified, shown."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from canaria import (
    Counts,
    InputError,
    Result,
    assert_private,
    audit_scores,
    claims,
    combine,
    lower_bound,
    play,
)
from canaria._core.files import checksum
from canaria.claims import (
    ApproximateDP,
    Composed,
    Curve,
    DpSgd,
    GaussianDP,
    LaplaceDP,
    _loss,
    families,
    to_dict,
)
from canaria.claims.families import Gaussian
from canaria.evidence import MatchedCounts, _looks
from canaria.files import read_checked
from canaria.game import result_of_scores
from canaria.report import page_of
from canaria.rules import Matched, Ranked
from canaria.testing import assert_private_training
from canaria.training import Dirac
from canaria.training.plan import expected_bound, plan, refutation_power
from tests.cli.command import canaria
from tests.training.simulated import RATE, SIGMA, STEPS, simulated

RNG = np.random.default_rng(0)
BITS = RNG.integers(0, 2, 400)
SCORES = RNG.normal(1.5 * BITS)


def scored(claim: Any = None, **how: Any) -> Result:
    return result_of_scores(SCORES, BITS, claim, delta=1e-5, family="gaussian", rng=0, **how)


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
        ({"family": {"kind": "laplace"}}, "refutes only claims of that family"),
        ({"family": None}, "family is stored as None"),
        ({"evidence__family": {"kind": "laplace"}}, "claim must be of the family of Laplace noise"),
        ({"evidence__independent": True}, "epsilon is stored as"),
        ({"evidence__confidence": 0.9}, ""),
        ({"last_refuted": {"kind": "GaussianDP", "mu": 2.0, "adjacency": "unspecified"}}, "last_refuted"),
        ({"last_refuted": None}, "last_refuted"),
        ({"epsilon": 9.0}, "epsilon is stored as 9"),
        ({"claimed": 1.0}, "claimed is stored as 1.0"),
        ({"claim": {"kind": "GaussianDP", "mu": 5.0, "adjacency": "unspecified"}}, "claimed is stored as"),
        ({"claim": None}, "refutes only claims of that family"),
        (
            {"claim": {"kind": "LaplaceDP", "epsilon": 5.0, "adjacency": "unspecified"}},
            "refutes only claims of that family",
        ),
        ({"refuted": False}, "refuted is stored as False"),
    ],
)
def test_a_file_that_contradicts_itself_does_not_hold(
    changes: dict[str, Any], fault: str, tmp_path: Path
) -> None:
    path = rewritten(scored(GaussianDP(0.3)).save(tmp_path / "result.json"), **changes)
    assert fault in complaint_about(path)


def nested(depth: int) -> dict[str, Any]:
    claim = to_dict(LaplaceDP(0.2))
    for _ in range(depth):
        claim = {"kind": "Composed", "parts": [claim, to_dict(LaplaceDP(0.1))]}
    return claim


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
        {"claim": to_dict(Composed(tuple(ApproximateDP(20 + k / 1000, 1e-6) for k in range(180))))},
        {"claim": to_dict(Composed(tuple(LaplaceDP(20 + k / 1000) for k in range(200))))},
        {"claim": nested(60)},
        {
            "claim": to_dict(
                Composed(
                    tuple(
                        DpSgd(noise_multiplier=1 + k / 100, sample_rate=0.01 + k / 10**4, steps=100 + k)
                        for k in range(100)
                    )
                )
            )
        },
    ],
    ids=["elements", "steps", "noise", "both", "nothing", "spread", "many", "nested", "trainings"],
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
    assert result.claim == DpSgd(noise_multiplier=SIGMA, sample_rate=RATE, steps=STEPS)
    assert result.refuted is (noise < 1)
    assert result.bound.family == families.DpSgdFamily(STEPS, RATE)
    assert f"{STEPS} steps, rate {RATE}" in result.verdict
    assert read_checked(result.save(tmp_path / "result.json")).result.refuted is result.refuted
    promised = run.report(2.0, 1e-5, family="dpsgd")
    assert promised.claimed == pytest.approx(2.0, rel=1e-3)
    gaussian = run.report(delta=1e-5, family="gaussian")
    assert gaussian.claim is None
    assert gaussian.bound.epsilon > 0
    plain = run.report(claimed=DpSgd(noise_multiplier=SIGMA, sample_rate=RATE, steps=STEPS), delta=1e-5)
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
        DpSgd(noise_multiplier=2.0, sample_rate=1.0, steps=1),
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
        assert_private_training(
            run, claim=DpSgd(noise_multiplier=SIGMA, sample_rate=RATE, steps=STEPS), conformance=False
        )


def test_a_curve_is_held_against_a_plain_bound() -> None:
    """By its epsilon at the delta of the bound; a bound against a family takes claims of it alone."""
    bound = lower_bound(Counts(495, 500, 500), 1e-5)
    assert bound.refutes(GaussianDP(0.5))
    assert not bound.refutes(GaussianDP(5.0))
    assert Result(bound, GaussianDP(0.5)).refuted
    with pytest.raises(InputError, match="refutes only claims of that family"):
        Result(lower_bound(MatchedCounts(families.Gaussian(), [1] * 99), 1e-5), ApproximateDP(1.0, 1e-5))


@pytest.mark.full
def test_plans_of_matched_looks() -> None:
    """The expected bound is that of simulated runs, up to 8%; half the noise is mostly refuted."""
    rule = Matched(families.DpSgdFamily(STEPS, RATE))
    training = DpSgd(steps=STEPS, sample_rate=RATE, noise_multiplier=SIGMA)
    expected = expected_bound(training, 1000, 1, 1e-5, rule=rule)
    seen = [simulated(Dirac(1000), seed).bound(1e-5, family="dpsgd").epsilon for seed in range(10)]
    assert np.mean(seen) == pytest.approx(expected.mean, rel=0.08, abs=3 * expected.deviation / 10**0.5)
    assert refutation_power(training, 2.0, 2.0, 1000, 1, 1e-5, rule=rule) > 0.7
    with pytest.raises(InputError, match="rule must be for DP-SGD with 100 steps"):
        expected_bound(training, 1000, 1, 1e-5, rule=Matched("gaussian"))
    with pytest.raises(InputError, match=r"rule must be Ranked\(\), Around\(k\), Soft\(\) or Matched"):
        plan(2.0, 1e-5, STEPS, RATE, rule=Matched(families.DpSgdFamily(STEPS, RATE), independent=True))


def test_nothing_is_refuted_where_nothing_is_refuted() -> None:
    """A claim of no leak at all was once refuted by every run."""
    bits = np.random.default_rng(1).integers(0, 2, 200)
    scores = np.random.default_rng(2).normal(size=200)
    for family, nothing in (
        ("gaussian", GaussianDP(0.0)),
        ("laplace", LaplaceDP(0.0)),
        ("approximate:delta=1e-05", ApproximateDP(0.0, 1e-5)),
    ):
        bound = audit_scores(scores, bits, 1e-5, family=family, rng=0)
        assert bound.claim is None
        assert not bound.refutes(nothing)


def test_the_command_line_refutes_no_claim_above_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    rows = "\n".join(f"{score!r},{bit}" for score, bit in zip(SCORES.tolist(), BITS.tolist(), strict=True))
    path.write_text(f"score,included\n{rows}\n")
    seen = set()
    for claimed in (4.1, 4.2, 4.3, 4.4, 4.45, 4.5, 4.7):
        family = ("--delta", "1e-5", "--family", "dpsgd:steps=20,sample_rate=0.1")
        ran = canaria("scores", str(path), *family, "--claimed", f"{claimed}", "--json")
        found = json.loads(ran.out)
        assert found["refuted"] is (found["claimed"] <= found["epsilon"])
        seen.add(found["refuted"])
    assert seen == {True, False}


def test_a_claim_for_replaced_records_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    rows = "\n".join(f"{score!r},{bit}" for score, bit in zip(SCORES.tolist(), BITS.tolist(), strict=True))
    path.write_text(f"score,included\n{rows}\n")
    for family in ([], ["--family", "gaussian"]):
        out = tmp_path / "result.json"
        words = [
            "scores",
            str(path),
            "--delta",
            "1e-5",
            *family,
            "--claimed",
            "0.5",
            "--adjacency",
            "replace",
        ]
        assert canaria(*words, "--out", str(out)).code == 1
        result = read_checked(out).result
        assert result.claim is not None
        assert (result.claim.adjacency, result.refuted) == ("replace", True)
    silent = claims.to_dict(GaussianDP(0.1))
    assert "adjacency of the claim is not stated" in complaint_about(rewritten(out, claim=silent))


def test_a_training_run_with_a_curve_asks_for_delta() -> None:
    recording = simulated(Dirac(100), 0)
    for claim in (GaussianDP(1.0), DpSgd(noise_multiplier=SIGMA, sample_rate=RATE, steps=STEPS)):
        with pytest.raises(InputError, match="no bound at delta = 0 can refute"):
            recording.report(claim)
        with pytest.raises(InputError, match="no bound at delta = 0 can refute"):
            recording.report(claim, 0.0)


def test_a_file_must_not_compare_with_an_infinite_epsilon(tmp_path: Path) -> None:
    path = lower_bound(Counts(90, 100, 100)).result(LaplaceDP(3.0)).save(tmp_path / "result.json")
    changed = rewritten(path, claim=claims.to_dict(GaussianDP(1.0)), claimed="inf")
    assert "no bound at delta = 0 can refute" in complaint_about(changed)
    assert canaria("compare", str(changed)).code == 2


def test_a_bound_at_one_delta_says_nothing_of_another() -> None:
    with pytest.raises(InputError, match="delta must be that of the family of ε at δ = 1e-05"):
        audit_scores(SCORES, BITS, 0.1, family="approximate:delta=1e-5", rng=0)
    with pytest.raises(InputError, match="delta must be that of the family"):
        families.Approximate(1e-5).at(1.0, 1e-6)


def test_a_family_of_another_adjacency_is_refused() -> None:
    with pytest.raises(InputError, match="adjacency of the bound"):
        audit_scores(SCORES, BITS, 1e-5, family="dpsgd:steps=1,sample_rate=1", adjacency="replace", rng=0)


@pytest.mark.parametrize(
    ("epsilon", "steps", "rate"), [(0.3, 2500, 0.01), (1.0, 2500, 0.01), (2.0, 100, 0.1)]
)
def test_a_promise_is_never_read_as_more_than_it_is(epsilon: float, steps: int, rate: float) -> None:
    """By an interval eight times as fine, the claim that stands for it has at least that epsilon."""
    claim = families.DpSgdFamily(steps, rate).at(epsilon, 1e-5)
    assert isinstance(claim, DpSgd)
    interval = _loss.interval_for(steps) / 8
    fine = _loss.of_dpsgd(claim.noise_multiplier, rate, steps, interval).get_epsilon_for_delta(1e-5)
    assert epsilon <= fine <= 1.1 * epsilon


def test_assumptions_survive_being_joined() -> None:
    """Several audits together say what each of them assumes, or why none says anything."""
    rule = Matched("gaussian", independent=True)
    made = [
        audit_scores(np.random.default_rng(seed).normal(1.0 * BITS), BITS, 1e-5, rule=rule, rng=0)
        for seed in range(5)
    ]
    kept = next(bound for bound in made if not bound.evidence.withdrawn)
    joint = combine({"a": kept})
    assert "if elements do not influence each other" in str(joint)
    assert json.dumps(joint.to_dict())
    assert joint.bound.result().to_json()
    flat = np.where(np.random.default_rng(0).random(400) < 0.9, 1, -1) * (2 * BITS - 1)
    jitter = 1e-3 * np.random.default_rng(1).random(400)
    withdrawn = audit_scores(flat + jitter, BITS, 1e-5, rule=rule, rng=0)
    assert "Nothing is said about the family" in str(combine({"a": withdrawn}))


@pytest.mark.parametrize(
    "options",
    [
        "--claimed 0.01 --delta 0.1 --family gaussian",
        "--claimed 0.0001 --delta 0.01 --family gaussian",
        "--claimed 0 --delta 1e-5 --family gaussian",
        "--claimed 0.0004 --delta 1e-5 --family approximate:delta=1e-5",
        "--claimed 20 --delta 1e-5 --family gaussian",
        "--claimed 3 --delta 1e-5 --family dpsgd:steps=2,sample_rate=0.5",
    ],
)
def test_what_the_command_line_writes_it_verifies(options: str, tmp_path: Path) -> None:
    ran = canaria(
        "bound", "--correct", "90", "--guesses", "100", "--elements", "100", *options.split(), "--json"
    )
    assert ran.code in (0, 1), ran.err
    path = tmp_path / "result.json"
    path.write_text(ran.out)
    ran = canaria("verify", str(path))
    assert ran.code == 0, ran.out
    assert ("for the family of" in ran.out) is ("approximate" not in options)


def test_a_large_audit_is_verified_without_what_was_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bits = np.random.default_rng(5).integers(0, 2, 300_000)
    scores = np.random.default_rng(6).normal(1.0 * bits)
    path = result_of_scores(scores, bits, delta=1e-5, family="gaussian", rng=0).save(tmp_path / "result.json")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _looks.planned.cache_clear()
    assert read_checked(path).result.bound.epsilon > 2.5


@pytest.mark.parametrize("family", ["gaussian", "laplace", "approximate:delta=1e-5"])
def test_rankings_held_against_a_family_are_verified(family: str, tmp_path: Path) -> None:
    rule = Ranked()
    result = result_of_scores(SCORES, BITS, delta=1e-5, family=family, rule=rule, rng=0)
    assert result.bound.epsilon > 0
    assert read_checked(result.save(tmp_path / "result.json"))


def test_independence_is_said_even_where_the_family_asks_for_nothing() -> None:
    """(epsilon, delta)-DP with luck that all elements share looks like randomized response."""
    rule = Matched("approximate:delta=0.1", independent=True)
    right = np.where(np.random.default_rng(0).random(400) < 0.9, 1, -1) * (2 * BITS - 1)
    bound = audit_scores(right + 1e-3 * SCORES, BITS, 0.1, rule=rule, rng=0)
    assert bound.claim is not None
    result = bound.result(ApproximateDP(0.5, 0.1))
    for text in (bound.sentence, str(bound), bound._repr_html_(), result.verdict, page_of([result])):
        assert "if elements do not influence each other" in text


def test_assertions_with_independent_elements_can_fail() -> None:
    rule = Matched("gaussian", 0.999, independent=True)
    assert_private(noisy, claim=GaussianDP(0.5), score=score, rule=rule)
    with pytest.raises(AssertionError, match="if elements do not influence each other"):
        assert_private(
            lambda included, rng: noisy(included, rng, 0.5), claim=GaussianDP(0.5), score=score, rule=rule
        )


def test_all_audits_against_one_family_can_be_joined() -> None:
    """Also one that shows nothing, and counts that know no family; the joint bound is the largest."""
    shown = audit_scores(SCORES, BITS, 1e-5, family="gaussian", rng=0)
    silent = audit_scores(np.zeros(400), BITS, 1e-5, family="gaussian", rng=0)
    counted = lower_bound(Counts(80, 90, 400), 1e-5, family=families.Gaussian())
    joint = combine({"shown": shown, "silent": silent, "counted": counted, "again": shown})
    assert joint.bound.epsilon == max(one.epsilon for one in joint.bounds.values()) > 1
    assert joint.bound.claim is not None
    assert joint.refutes(joint.bound.claim)
    assert joint.bound.result().to_json()
    with pytest.raises(InputError, match="all for one family"):
        combine({"one": shown, "other": lower_bound(Counts(80, 90, 400), 1e-5)})


def test_a_family_of_ones_own_needs_no_more_than_its_class(tmp_path: Path) -> None:
    bounds = [audit_scores(SCORES, BITS, 1e-5, family=Plain(), rng=0) for _ in range(2)]
    assert combine({"one": bounds[0], "other": bounds[1]}).bound.epsilon > 0
    result = result_of_scores(SCORES, BITS, delta=1e-5, family=Plain(), rng=0)
    assert read_checked(result.save(tmp_path / "result.json"))
    with pytest.raises(InputError, match="make Changing a frozen dataclass"):
        audit_scores(SCORES, BITS, 1e-5, family=Changing(), rng=0)


def test_an_infinite_epsilon_is_no_claim_of_a_family() -> None:
    with pytest.raises(InputError, match="epsilon must be finite"):
        families.Gaussian().at(np.inf, 1e-5)


def test_more_elements_are_the_remedy_against_a_curve() -> None:
    """Against epsilon at delta nothing is refuted at a level below delta; a curve has no such delta."""
    with pytest.raises(InputError, match="elements would be enough for perfect guesses"):
        assert_private(noisy, claim=GaussianDP(1.0), n=800, score=score, confidence=0.999999)


def test_noise_that_changes_promises_no_claim_of_the_family() -> None:
    run = replace(simulated(Dirac(500), 0), noise_changes=True)
    with pytest.raises(InputError, match="noise changes from step to step"):
        run.report(delta=1e-5, family="dpsgd")
    assert "root mean square" in run.report(2.0, 1e-5).facts["training"]


@pytest.mark.parametrize("rate", [1e-300, 5e-324])
def test_a_tiny_rate_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match="sample_rate must be at least 1e-09"):
        families.DpSgdFamily(1, rate)


def test_a_family_of_ones_own_is_checked_with_any_evidence() -> None:
    for ends in ([2.0, 1.0], [], None, [1.0, 2.0]):
        with pytest.raises(InputError):
            lower_bound(Counts(95, 100, 100), 1e-5, family=Falling(tuple(ends) if ends is not None else None))


class Plain(families.Family):
    """A family with the methods that it must have, and no more."""

    name: ClassVar[str] = "plain-for-a-test"
    condition = "it is one"

    def claim(self, parameter: float) -> GaussianDP:
        return GaussianDP(parameter)

    def parameter(self, claim: Any) -> float:
        return float(claim.mu)

    def stretches(self, elements: int) -> Any:
        return np.array([0.1, 0.2, 0.5, 1.0, 2.0])

    def to_dict(self) -> dict[str, Any]:
        return {}

    def consequence(self, claim: Any) -> str:
        return "so it is"


@dataclass
class Changing(Plain):
    """A family that can be changed."""

    name: ClassVar[str] = "changing-for-a-test"


@dataclass(frozen=True)
class Falling(Gaussian):
    """A family that becomes stronger."""

    ends: tuple[float, ...] | None = None
    name: ClassVar[str] = "falling-for-a-test"

    def claim(self, parameter: float) -> GaussianDP:
        return GaussianDP(1 / parameter)

    def stretches(self, elements: int) -> Any:
        return self.ends
