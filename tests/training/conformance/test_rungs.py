"""The ladder of assumptions: what each rung shows, and when it is withdrawn."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from canaria import InputError, Result
from canaria.bounds import Rung
from canaria.claims.accounting import dpsgd_epsilon
from canaria.files import check, read_result
from canaria.training import Dense, Dirac, Findings, Recording
from canaria.training.conformance.measured import squares_of
from canaria.training.conformance.rungs import objection_to, weight_of
from tests.training.faults import FAULTS, NAMES, SHAPES
from tests.training.simulated import RATE, SIGMA, STEPS, Fault, simulated, watched

DELTA = 1e-5
TRUTH = dpsgd_epsilon(SIGMA, DELTA, STEPS, RATE, "pld")
"""The epsilon of the simulated trainings: 1.81 by the exact accountant, 2 by RDP."""


def run(seed: int, fault: Fault | None = None, design: Dirac | Dense | None = None) -> Recording:
    return watched(design or Dirac(1000), seed, np.full(STEPS, SIGMA), SHAPES, fault)


def halved(noise: list[np.ndarray], _: np.random.Generator) -> list[np.ndarray]:
    return [one / 2 for one in noise]


@pytest.fixture(scope="module")
def correct() -> Result:
    return run(0).report(2.0, DELTA)


def measured(recording: Recording) -> Rung:
    return recording.report(2.0, DELTA).rungs[3]


def resampled(recording: Recording, rng: np.random.Generator) -> Recording:
    """The same run with other noise: sums and the squares of witnesses by their laws."""
    assert recording.witnessed is not None
    places = len(recording.witnessed.by_place)
    participations = rng.binomial(STEPS, RATE, len(recording.bits)) * (recording.bits > 0)
    return replace(
        recording,
        sums=participations + rng.normal(scale=SIGMA * math.sqrt(STEPS), size=len(recording.bits)),
        witnessed=recording.witnessed._replace(by_step=rng.chisquare(places, STEPS)),
    )


def test_four_rungs_stand_in_four_lines(correct: Result) -> None:
    assert [rung.name for rung in correct.rungs] == [
        "any mechanism",
        "DP-SGD",
        "independent canaries",
        "measured noise",
    ]
    assert correct.rungs[0].least == correct.bound.epsilon
    text = str(correct)
    assert "\n  ε ≥ 1.060          for any mechanism\n" in text
    assert "  if it is DP-SGD with 100 steps and sample rate 0.1\n" in text
    assert (
        "also assuming Gaussian, independent noise and Poisson sampling at that rate: noise multiplier"
        in text
    )


def test_the_last_rung_is_near_the_truth(correct: Result) -> None:
    last = correct.rungs[3]
    assert last.least is not None
    assert last.most is not None
    assert 0.97 * TRUTH < last.least < TRUTH < last.most < 1.03 * TRUTH


def test_half_the_noise_shows_its_epsilon() -> None:
    """The truth is 5.0; the bound for any mechanism shows 1.4."""
    last = measured(run(1, halved))
    assert last.least is not None
    assert last.most is not None
    assert 4.85 < last.least < dpsgd_epsilon(SIGMA / 2, DELTA, STEPS, RATE, "pld") < last.most < 5.15


def test_no_noise_at_all_has_no_upper_end() -> None:
    last = measured(run(1, lambda noise, _: [0 * one for one in noise]))
    assert last.least is not None
    assert last.least > 100
    assert last.most == math.inf


def test_intervals_cover_the_noise_at_their_rate() -> None:
    """10,000 runs: 95% cover, within 1%, which is 4.6 standard errors; canary weights at least as often."""
    base, rng = run(0), np.random.default_rng(5)
    noise = weight = 0
    for _ in range(10_000):
        again = resampled(base, rng)
        low, high = squares_of(again).interval(0.95)
        noise += low <= 1 <= high
        low, high = weight_of(again, SIGMA, 0.95) or (0.0, 0.0)
        weight += low <= 1 <= high
    assert 9400 <= noise <= 9600
    assert 9400 <= weight <= 9600


@pytest.mark.parametrize(
    ("fault", "name"), [(fault, name) for (fault, _), name in zip(FAULTS, NAMES, strict=True)]
)
def test_noise_that_is_not_as_assumed_withdraws_it(fault: Fault, name: str) -> None:
    """All faults but that of size alone, which is what the rung measures."""
    objection = objection_to(run(3, fault))
    assert bool(objection) == (name != "98%")


def test_correct_training_keeps_it() -> None:
    """At a false-alarm rate below 0.001, 10 runs are all kept but once in 100 times; the seeds are fixed."""
    assert not any(objection_to(run(seed)) for seed in range(100, 110))


def test_what_was_not_as_stated_withdraws_it() -> None:
    base = simulated(Dirac(1000), 0)
    left_out = Findings(contradictions=("batches were left out",))
    assert "batches were left out" in objection_to(replace(base, findings=left_out))
    assert objection_to(replace(base, excuse="not tested (why)")) != ""
    assert objection_to(replace(base, noise_multiplier=0.0)) == "no noise is stated"
    assert objection_to(simulated(Dense(20, 400), 0)) == "no weight shows its noise alone"


def test_changing_noise_leaves_the_first_rung_alone() -> None:
    rungs = replace(run(0), noise_changes=True).report(2.0, DELTA).rungs
    assert [rung.least is None for rung in rungs] == [False, True, True, True]
    assert rungs[1].withdrawn == "the stated noise changes from step to step"


def test_dense_canaries_have_rungs_too() -> None:
    last = measured(run(2, design=Dense(60, 300)))
    assert last.least is not None
    assert "canary weight" not in last.measured


def test_without_a_delta_there_are_none() -> None:
    assert run(0).report().rungs == ()
    assert run(0).report(2.0, DELTA, rungs=False).rungs == ()


def test_a_family_that_was_asked_for_is_not_the_first_rung() -> None:
    report = run(0).report(delta=DELTA, family="dpsgd")
    assert report.bound.epsilon == report.rungs[1].least
    assert report.rungs[0].least == run(0).bound(DELTA).epsilon


def test_they_are_written_and_read_back(tmp_path: Path, correct: Result) -> None:
    silent = run(1, lambda noise, _: [0 * one for one in noise]).report(2.0, DELTA)
    for result in (correct, silent):
        stored = read_result(result.save(tmp_path / "result.json"))
        assert stored.result.rungs == result.rungs
        assert check(stored).holds


def test_a_first_rung_that_is_not_the_bound_is_found(tmp_path: Path, correct: Result) -> None:
    path = correct.save(tmp_path / "result.json")
    record = json.loads(path.read_text())
    record["rungs"][0]["least"] += 1
    path.write_text(json.dumps(record))
    assert any("the first rung is stored as" in fault for fault in check(read_result(path)).faults)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "must show a bound, or say why"),
        ({"least": 1.0, "withdrawn": "why"}, "must show a bound, or say why"),
        ({"least": 2.0, "most": 1.0}, "most of a rung must be at least 2.0"),
        ({"least": -1.0}, "least must be"),
    ],
)
def test_rungs_that_make_no_sense_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Rung(name="name", assumes="if", **fields)  # type: ignore[arg-type]


def test_a_claim_that_only_the_second_rung_refutes_is_said_to_be_refuted_so(correct: Result) -> None:
    """With half of the noise: not by the bound for any mechanism, which shows 1.4."""
    broken = run(1, halved).report(2.0, DELTA)
    assert broken.refuted is False
    assert broken.refuting_rung == broken.rungs[1]
    under = "if it is DP-SGD with 100 steps and sample rate 0.1"
    assert f"the claim ε = 2 is not refuted without assumptions; it is refuted {under}\n" in str(broken)
    assert f"It is refuted {under}: ε ≥ 2" in broken.verdict
    assert "Training does NOT match what was stated: noise multiplier 1.2" in broken.verdict
    assert correct.refuting_rung is None
    assert "\nthe claim ε = 2 is not refuted\ntraining matches what was stated" in str(correct)
    assert str(correct).splitlines()[1].startswith("tested: noise, accounting; not tested: clipping")


def test_an_audit_that_ended_early_has_no_upper_end() -> None:
    """Steps that were not seen make epsilon larger."""
    last = measured(replace(run(0), ended="nothing was seen after step 100: why"))
    assert last.least is not None
    assert last.most is None
    assert "of the steps that were seen" in last.measured


def test_few_witnesses_of_few_steps_keep_it() -> None:
    """The interval of the noise is wide here, and the true size lies somewhere in it."""
    few = [(5, 5), (5,), (5, 5)]
    assert not any(
        objection_to(watched(Dirac(200, 10), seed, np.full(3, SIGMA), few, None)) for seed in range(40)
    )
