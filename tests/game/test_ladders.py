"""The way from the claim down to the bound, and from the guesses up to it."""

import json
from pathlib import Path

import numpy as np
import pytest

from canaria import Counts, InputError, Result, lower_bound
from canaria._core.files import checksum
from canaria.bounds.parts import Ladder, LadderStep
from canaria.files.read import read_result
from canaria.files.verify import check
from canaria.game.ladders import ladder_of_dpsgd
from canaria.mechanisms import SubsampledGaussian
from canaria.report.section import explain
from canaria.theory import efficacy
from canaria.training.canaries.designs import Dirac
from tests.report.samples import scored
from tests.training.simulated import simulated


class TestLadder:
    def test_of_dpsgd_meets_the_exact_efficacy(self) -> None:
        """One step, everyone in it: N(bit, sigma^2), whose efficacy `LocalGaussian` knows; 4 standard errors."""
        from canaria.mechanisms import LocalGaussian

        mechanism = SubsampledGaussian(dimension=200, steps=1, sample_rate=1.0, noise_multiplier=1.0)
        bound = lower_bound(Counts(130, 200, 200))
        ladder = ladder_of_dpsgd(mechanism, 200, 5.0, bound)
        assert ladder is not None
        exact = efficacy(LocalGaussian(2.0), 200, 200, trials=4000, rng=1)
        levels = {step.gap: step.epsilon for step in ladder.steps}
        assert levels["elements"] == pytest.approx(exact.epsilon, abs=0.1)
        assert levels["outputs"] == pytest.approx(levels["interference"])

    def test_knowing_others_helps_where_canaries_share_a_coordinate(self) -> None:
        mechanism = SubsampledGaussian(dimension=100, steps=1, sample_rate=1.0, noise_multiplier=0.7)
        ladder = ladder_of_dpsgd(mechanism, 400, 20.0, lower_bound(Counts(300, 400, 400)))
        assert ladder is not None
        levels = [ladder.epsilon, *(step.epsilon for step in ladder.steps)]
        assert (np.diff(levels)[:-1] <= 0).all()
        assert levels[1] - levels[2] > 0.5

    def test_large_audits_are_sampled(self) -> None:
        mechanism = SubsampledGaussian(dimension=10**6, steps=1000, sample_rate=0.01, noise_multiplier=1.0)
        ladder = ladder_of_dpsgd(mechanism, 10**6, 8.0, lower_bound(Counts(700, 1000, 10**6)))
        assert ladder is not None
        assert ladder.how.startswith("1 simulated run with the stated noise, 10000 canaries each of 1000000")

    def test_is_not_drawn_from_a_refuted_claim_or_to_infinity(self) -> None:
        mechanism = SubsampledGaussian(dimension=10, steps=1, sample_rate=1.0, noise_multiplier=1.0)
        bound = lower_bound(Counts(95, 100, 100))
        assert ladder_of_dpsgd(mechanism, 100, 1.0, bound) is None
        assert ladder_of_dpsgd(mechanism, 100, float("inf"), bound) is None
        with pytest.raises(InputError, match="must be finite"):
            Ladder("top", 1.0, (LadderStep("gap", float("inf")),), "")


def test_the_way_from_the_guesses_to_the_bound() -> None:
    """Each step is what the evidence itself says: the estimate, the count alone, with delta, the bound."""
    section = explain(scored())
    bound, (right, taken) = section.result.bound, section.result.bound.tally
    alone = Counts(right, taken, 500)
    assert [epsilon for _, epsilon in section.derivation] == [
        bound.estimate,
        lower_bound(alone).epsilon,
        lower_bound(alone, 1e-5).epsilon,
        bound.epsilon,
    ]
    assert explain(Result(lower_bound(Counts(0, 0, 10)))).derivation == ()


@pytest.mark.full
def test_a_bound_above_its_last_gap_is_luck_and_holds(tmp_path: Path) -> None:
    """The step before the last may lie below the bound; verify once rejected such files of our own."""
    rising = 0
    for seed in range(12):
        result = simulated(Dirac(300), seed, noise=0.5).report(claimed=8.0, delta=1e-5)
        assert check(read_result(result.save(tmp_path / "result.json"))).holds
        steps = [step.epsilon for step in result.ladder.steps] if result.ladder else []
        rising += len(steps) > 1 and steps[-1] > steps[-2]
    assert rising > 0


def test_a_ladder_is_short(tmp_path: Path) -> None:
    """Each step is a bar of the report: 20,000 of them took minutes and gigabytes."""
    record = scored().to_dict()
    record["ladder"] = {**record["ladder"], "steps": record["ladder"]["steps"] * 50}
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**record, "checksum": checksum(record)}))
    with pytest.raises(InputError, match="steps must be a list of at most 20"):
        read_result(path)
