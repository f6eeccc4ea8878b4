"""Why a bound is 0 or low, in one line: every cause, and whether the advice is any good."""

import re
import warnings

import numpy as np
import pytest

from canaria import Bound, Counts, audit_scores, lower_bound
from canaria.claims import ApproximateDP
from canaria.evidence import Ranking, UncommittedCounts, Weighted
from canaria.game import result_of_scores
from canaria.rules import Tails


def _audited(n: int, shift: float, seed: int, delta: float = 1e-5, **how: object) -> Bound:
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return audit_scores(rng.normal(shift * bits), bits, delta, rng=0, **how)


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        (_audited(1000, -1.0, seed=0), "wrong more often than by chance"),
        (lower_bound(Counts(300, 1000, 1000)), "wrong more often than by chance, 700 of the surest 1000"),
        (_audited(1000, 0.0, seed=1), "no signal"),
        (_audited(1000, 0.0, seed=1, family="gaussian"), "no signal"),
        (
            _audited(1000, 1.0, seed=0, delta=0.02),
            "δ = 0.02 is large: of 1000 elements it lets 20 be given away",
        ),
        (lower_bound(Counts(560, 1000, 1000), 0.05), "δ = 0.05 is large"),
        (lower_bound(Counts(58, 100, 100)), "too few elements: with as good guesses as 58 of 100, about"),
        (lower_bound(Counts(9, 10, 10)), "would show half of the estimate"),
        (lower_bound(Counts(10_000, 10_000, 10_000), 0.05), "it lets 500 be given away"),
        (lower_bound(Counts(50_250, 100_000, 100_000), 0.01), "alone lets 50.5% of guesses be right"),
        (
            lower_bound(Weighted([1] * 50 + [0], weights=[0.1] * 50 + [9.0])),
            "the losses overstate how sure the guesses are",
        ),
        (lower_bound(Counts(8, 8, 8)), "all of the 8 surest guesses are right"),
        (lower_bound(Counts(0, 0, 100)), "no guess was made: the scores are all equal"),
        (_audited(60, 0.6, seed=3, family="gaussian"), "too few elements"),
        (lower_bound(Counts(2, 2, 800), 1e-5), "all of the 2 surest guesses are right"),
        (lower_bound(Counts(65, 100, 100), 1e-5, 1 - 1e-7), "65 of 100 right refute no claim"),
        (lower_bound(Counts(85, 100, 100), 1e-5, 1 - 1e-7), "for 100 elements at 99.99999% confidence"),
    ],
)
def test_every_cause_is_named(bound: Bound, said: str) -> None:
    assert said in bound.diagnosis
    assert str(bound).splitlines() == [str(bound).splitlines()[0], bound.diagnosis]
    assert f"why no more: {bound.diagnosis}" in str(bound.result())


@pytest.mark.parametrize(
    "bound",
    [
        lower_bound(Counts(730, 1000, 1000), 1e-5),
        _audited(600, 1.8, seed=0, family="gaussian"),
        lower_bound(Ranking([1, 1, 1, 0] * 250), 0.0),
        _audited(3000, 0.5, seed=0),
    ],
)
def test_a_bound_near_its_estimate_needs_no_word(bound: Bound) -> None:
    assert bound.epsilon > bound.estimate / 2 or bound.family is not None
    assert bound.diagnosis == ""
    assert "\n" not in str(bound)


def test_a_refuted_claim_needs_no_excuse() -> None:
    bound = lower_bound(Counts(9, 10, 10))
    assert bound.diagnosis
    assert bound.result(ApproximateDP(0.1, delta=0)).diagnosis == ""
    assert bound.result(ApproximateDP(5.0, delta=0)).diagnosis == bound.diagnosis


def test_elements_that_are_said_to_do_mostly_do() -> None:
    """Of audits as large as proposed, more than half show a bound; the proposal is a guess from few."""
    proposed = []
    for seed in range(12):
        bound = _audited(300, 0.3, seed)
        if (found := re.search(r"about ([\d,]+) elements", bound.diagnosis)) and bound.epsilon == 0:
            proposed.append(int(found[1].replace(",", "")))
    assert proposed
    shown = [_audited(size, 0.3, 100 + place).epsilon > 0 for place, size in enumerate(proposed * 4)]
    assert np.mean(shown) > 0.5
    assert np.median(proposed) < 1500


def test_long_work_is_not_done_for_a_word() -> None:
    bound = lower_bound(UncommittedCounts(501_000, 1_000_000, 1_000_000), 1e-9)
    assert "elements" in bound.diagnosis


def test_a_poor_rule_is_told_what_the_default_would_show() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, 1000)
    scores = rng.normal(2.0 * bits)
    poor = result_of_scores(scores, bits, delta=1e-5, rule=Tails(4), rng=0)
    assert poor.bound.epsilon == 0
    assert "the default rule would show 3." in poor.facts["next time"]
    assert "too late" in poor.facts["next time"]
    assert "next time" not in result_of_scores(scores, bits, delta=1e-5, rule=Tails(200), rng=0).facts
    assert "next time" not in result_of_scores(scores, bits, delta=1e-5, rng=0).facts
