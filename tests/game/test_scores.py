"""Scores to bound: coverage through the whole pipeline, tightness, blindness, bad input."""

import math
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from canaria import InputError, audit_scores
from canaria.evidence import AuditWarning
from canaria.game import CoinWarning
from canaria.rules import Online, Ranked, Rule, Soft, Surest, Tails, Threshold, Top
from tests import oracles

RULES: list[Rule] = [Ranked(), Tails(50), Top(50), Threshold(0.5), Soft(), Online()]
by_rule = pytest.mark.parametrize("rule", RULES, ids=repr)


def over_claims(rule: Rule, epsilon: float, audits: int, elements: int, seed: int = 6) -> float:
    """How often the bound from randomized response exceeds its true epsilon.

    The scores are the noisy bits themselves, full of ties; for `Soft` they claim too large a loss.
    """
    rng = np.random.default_rng(seed)
    size = epsilon + 1 if isinstance(rule, Soft) else 1.0
    bad = 0
    for _ in range(audits):
        bits = rng.choice([-1, 1], elements)
        kept = rng.random(elements) < oracles.success(epsilon)
        scores = size * np.where(kept, bits, -bits)
        bad += audit_scores(scores, bits, rule=rule, rng=rng, adjacency="replace").epsilon > epsilon
    return bad / audits


@by_rule
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0])
def test_bounds_exceed_the_truth_in_at_most_five_percent(rule: Rule, epsilon: float) -> None:
    """60 audits of 200 elements; fails by chance with probability below 1e-3 (exact binomial)."""
    assert over_claims(rule, epsilon, 60, 200) <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 60)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::canaria.game.CoinWarning")
@by_rule
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0, 2.0, 4.0])
def test_bounds_exceed_the_truth_in_at_most_five_percent_at_full_size(rule: Rule, epsilon: float) -> None:
    """5,000 audits of 1,000 elements. Some have so few heads, by chance, that there is a warning."""
    assert over_claims(rule, epsilon, 5000, 1000) <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 5000)


@pytest.mark.parametrize(
    ("rule", "shift", "target"), [(Ranked(), 1.0, 1.5), (Ranked(), 2.0, 3.0), (Online(), 2.0, 3.0)], ids=repr
)
def test_tight_on_gaussian_scores(rule: Rule, shift: float, target: float) -> None:
    """N(shift, 1) against N(0, 1), n = 1000, mean of 20 seeds."""
    bounds = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        bits = rng.integers(0, 2, 1000)
        bounds.append(audit_scores(rng.normal(shift * bits), bits, rule=rule, rng=rng).epsilon)
    assert np.mean(bounds) >= target


@by_rule
def test_order_of_the_input_does_not_matter(rule: Rule) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, 400)
    scores = rng.normal(2.0 * bits) - 1
    shuffled = rng.permutation(400)
    straight = audit_scores(scores, bits, 1e-5, rule=rule, rng=1).epsilon
    assert audit_scores(scores[shuffled], bits[shuffled], 1e-5, rule=rule, rng=1).epsilon == straight


@by_rule
def test_members_listed_first_among_ties_gain_nothing(rule: Rule) -> None:
    """Two score values, no signal, members first: over 100 tie-breaks at most 5% claim anything.

    The chance of more than 14 of 100 at a rate of 5% is below 2e-4.
    """
    claimed = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        bits = np.sort(rng.choice([-1, 1], 300))[::-1]
        scores = rng.choice([-1.0, 1.0], 300)
        claimed += audit_scores(scores, bits, rule=rule, rng=seed).epsilon > 0
    assert claimed <= 14


@pytest.mark.parametrize("rule", [*RULES, Surest(50)], ids=repr)
@pytest.mark.parametrize("value", [0.0, 3.0])
def test_constant_scores_prove_nothing(rule: Rule, value: float) -> None:
    """Whatever the tie-break and the order."""
    bits = np.r_[np.ones(130), np.zeros(100)]
    for seed in range(30):
        assert audit_scores(np.full(230, value), bits, rule=rule, rng=seed).epsilon == 0


def test_result_records_what_was_fixed_beforehand() -> None:
    bits = np.random.default_rng(0).integers(0, 2, 100)
    bound = audit_scores(np.arange(100.0), bits, delta=1e-5, confidence=0.9, rng=0)
    data = bound.to_dict()
    assert (data["rule"], data["confidence"], data["adjacency"]) == ("Ranked()", 0.9, "add-remove")
    assert data["grid"] == "0 to 20 in steps of 0.01, to 50 in 0.1, to 700 in 1"


def test_bits_in_every_form() -> None:
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 2, 200)
    scores = rng.normal(3.0 * bits)
    forms: list[Any] = [bits, bits.tolist(), bits.astype(bool), 2 * bits - 1, bits.astype(float)]
    assert len({audit_scores(scores, form, rng=0).epsilon for form in forms}) == 1


def test_certain_losses_are_legal_for_soft_and_threshold() -> None:
    bits = np.where(np.random.default_rng(1).random(100) < 0.5, 1, -1)
    losses = np.where(np.arange(100) < 60, np.inf, 0.1) * bits
    assert audit_scores(losses, bits, rule=Threshold(math.inf)).tally == (60, 60)
    assert audit_scores(losses, bits, rule=Soft()).epsilon > 2.5


@pytest.mark.parametrize(
    ("scores", "bits", "message"),
    [
        ([1.0, np.nan], [0, 1], "scores must hold finite numbers, got nan at position 1"),
        ([1.0, np.inf], [0, 1], "scores must hold finite numbers, got inf at position 1"),
        ([1.0, 2.0, 3.0], [0, 1], "scores must be as long as bits, got 3 and 2"),
        ([[1.0, 2.0]], [0, 1], r"scores must be one-dimensional, got shape \(1, 2\)"),
        (["a", "b"], [0, 1], "scores must be a sequence of plain numbers"),
        (["1.0", "2.0"], [0, 1], "scores must be a sequence of plain numbers"),
        (
            np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[D]"),
            [0, 1],
            "a sequence of plain numbers",
        ),
        (torch.ones(2, requires_grad=True), [0, 1], "scores must be a sequence of plain numbers"),
        ([1.0, 2.0], [0, 2], r"bits must hold 0/1, -1/\+1 or booleans, got 2 at position 1"),
        ([1.0, 2.0, 3.0], [-1, 0, 1], r"bits must hold 0/1, -1/\+1 or booleans, got 0 at position 1"),
        ([], [], "bits must hold at least one element, got none"),
        (
            np.arange(1000.0),
            np.arange(1000) < 900,
            "bits must be independent fair coins, got 900 included and 100",
        ),
    ],
)
def test_bad_input_is_one_line(scores: Any, bits: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        audit_scores(scores, bits)
    assert "\n" not in str(error.value)


def test_a_rule_is_made_before_it_is_given() -> None:
    with pytest.raises(
        InputError, match=r"rule must turn scores into guesses, such as Ranked\(\), got <class"
    ):
        audit_scores([1.0, 2.0], [0, 1], rule=Ranked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "message"),
    [(Tails(5), "k must be an integer between 1 and elements = 4, got 5"), (Top(9), "got 9")],
)
def test_more_guesses_than_elements(rule: Rule, message: str) -> None:
    with pytest.raises(InputError, match=message):
        audit_scores([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1], rule=rule)


@pytest.mark.parametrize(
    "make", [lambda: Top(0), lambda: Tails(-2), lambda: Threshold(-1.0), lambda: Online(1)]
)
def test_rules_check_their_parameters(make: Any) -> None:
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize("n", [21, 25, 30, 100])
def test_everything_included_is_no_coin(n: int) -> None:
    """Random scores would 'prove' 1.73 from 30 elements that were all included."""
    for bits in (np.ones(n), np.zeros(n)):
        with pytest.raises(InputError, match=r"fair coins, got .* with probability .*; toss one fair coin"):
            audit_scores(np.random.default_rng(0).normal(size=n), bits)


@pytest.mark.parametrize("bits", [np.ones(15), np.arange(100) < 70], ids=["15 of 15", "70 of 100"])
def test_what_coins_hardly_show_is_a_warning(bits: np.ndarray) -> None:
    with pytest.warns(CoinWarning, match="unless that was chance, nothing is proved"):
        audit_scores(np.random.default_rng(0).normal(size=len(bits)), bits)


def test_thresholds_of_unfair_coins() -> None:
    """Refused below one in a million, a warning below one in a thousand, both sides together."""
    for ones in range(101):
        chance = 2 * sum(math.comb(100, k) for k in range(max(ones, 100 - ones), 101)) / 2**100
        if chance < 1e-6:
            with pytest.raises(InputError):
                audit_scores(np.zeros(100), np.arange(100) < ones)
        elif chance < 1e-3:
            with pytest.warns(CoinWarning):
                audit_scores(np.zeros(100), np.arange(100) < ones)
        else:
            audit_scores(np.zeros(100), np.arange(100) < ones)


def test_a_sorted_file_is_no_evidence_against_coins_but_a_strict_alternation_is() -> None:
    scores = np.random.default_rng(0).normal(size=40)
    for listed in (np.arange(40) < 20, np.arange(40) >= 20):
        audit_scores(scores, listed)
    audit_scores(scores[:39], np.arange(39) % 2)
    pairs = np.random.default_rng(0).integers(0, 2, 20)
    for matched in (np.arange(40) % 2, np.column_stack([pairs, 1 - pairs]).ravel()):
        with pytest.warns(CoinWarning, match="differ within every pair of neighbours over 40 elements"):
            audit_scores(scores, matched)


@pytest.mark.filterwarnings("ignore::canaria.game.CoinWarning")
@pytest.mark.parametrize("rows", [2, 3, 5, 10])
def test_several_rows_for_one_canary_are_refused(rows: int) -> None:
    """Rows that share a coin count as often as there are rows: 39% of false claims at 10 rows a canary."""
    rng = np.random.default_rng(rows)
    for _ in range(50):
        coins = rng.integers(0, 2, 200)
        scores = rng.normal(size=200 * rows)
        for bits in (np.repeat(coins, rows), np.tile(coins, rows)):
            with pytest.raises(InputError, match=r"rows shared a coin|which fair coins show"):
                audit_scores(scores, bits)


@pytest.mark.parametrize(
    ("classes", "each"), [(2, 30), (2, 500), (4, 25), (8, 6), (10, 50), (10, 100), (20, 20)]
)
def test_lists_by_class_with_members_first_are_accepted(classes: int, each: int) -> None:
    """Groups of even size give even runs, and equal groups repeat: no evidence against coins."""
    rng, label = np.random.default_rng(0), np.repeat(np.arange(classes), each)
    for _ in range(300):
        bits = rng.integers(0, 2, classes * each)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CoinWarning)
            audit_scores(np.zeros(len(bits)), bits[np.lexsort((-bits, label))])


def test_honest_lists_are_hardly_ever_refused() -> None:
    """500 honest lists of each size, as tossed or members first: none is refused, few are warned about."""
    rng = np.random.default_rng(0)
    warned = 0
    for n in (3, 10, 40, 60, 300):
        for _ in range(500):
            bits = rng.integers(0, 2, n)
            for listed in (bits, np.sort(bits)):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    audit_scores(np.zeros(n), listed)
                warned += len(caught)
    assert warned <= 15


def test_scores_that_are_upside_down_are_told() -> None:
    """A loss given as a score; scores that say nothing are not accused of it (chance 3e-7 each)."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, 1000)
    with pytest.warns(AuditWarning, match="included elements have lower scores than excluded ones"):
        assert audit_scores(rng.normal(-2.0 * bits), bits, rng=0).epsilon == 0
    for seed in range(50):
        bits = rng.integers(0, 2, 100)
        audit_scores(np.round(rng.normal(size=100)), bits, rng=seed)


def test_series_with_other_labels_are_refused() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"score": rng.normal(size=50), "included": rng.integers(0, 2, 50)})
    moved = table.sort_values("score")
    with pytest.raises(InputError, match="same row labels in the same order"):
        audit_scores(moved["score"], table["included"])
    assert audit_scores(moved["score"], moved["included"], rng=0) == audit_scores(
        moved["score"].to_numpy(), moved["included"].to_list(), rng=0
    )


def test_a_percentage_is_not_a_confidence() -> None:
    with pytest.raises(InputError, match=r"strictly between 0 and 1, got 95; did you mean 0\.95\?"):
        audit_scores([1.0, 2.0], [0, 1], confidence=95)
