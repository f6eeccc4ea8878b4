"""Rules: what they guess, and that they never see a bit before they guess it."""

import numpy as np
import pytest

from canaria import Counts, InputError
from canaria.claims.base import PERFECT_PRIVACY
from canaria.evidence import Bets, Ranking, Split
from canaria.rules import Around, Online, Ranked, Soft, Tails, Threshold, Top, parse_rule
from canaria.rules._guesses import falling

SCORES = np.array([0.3, -2.0, 1.5, 0.1, -0.4, 2.5])
BITS = np.array([1, -1, 1, -1, 1, 1], dtype=np.int8)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_top_guesses_the_highest() -> None:
    commitment = Top(2)(SCORES, rng())
    assert sorted(commitment.guesses.order.tolist()) == [2, 5]
    assert commitment.reveal(BITS) == Counts(2, 2, 6, one_sided=True)


def test_tails_alternate() -> None:
    guesses = Tails(5)(SCORES, rng()).guesses
    assert guesses.order.tolist() == [5, 1, 2, 4, 0]
    assert guesses.signs.tolist() == [1, -1, 1, -1, 1]


def test_around_looks_at_numbers_near_its_own() -> None:
    commitment = Around(3)(SCORES, rng())
    assert commitment.guesses.order.tolist() == [5, 1, 2, 4]
    assert commitment.guesses.signs.tolist() == [1, -1, 1, -1]
    evidence = commitment.reveal(BITS)
    assert isinstance(evidence, Ranking)
    assert (evidence.grid.tolist(), evidence.counts.tolist()) == ([2, 3, 4], [2, 3, 3])
    assert (evidence.elements, evidence.committed, evidence.one_sided) == (6, 4, False)


@pytest.mark.parametrize("elements", [1, 2, 6, 100, 600, 10**6])
def test_around_looks_at_few_numbers_of_those_there_are(elements: int) -> None:
    for k in {1, 2, elements // 5, elements // 2, elements} - {0}:
        grid = Around(min(k, elements)).looks(elements)
        assert 1 <= len(grid) <= 21
        assert (
            max(k / 1.5 - 0.5, 1) <= grid[0] <= min(k, elements) <= grid[-1] <= min(1.5 * k + 0.5, elements)
        )
        assert (np.diff(grid) > 0).all()


def test_around_needs_so_many_elements() -> None:
    with pytest.raises(InputError, match="k must be an integer between 1 and elements = 6, got 7"):
        Around(7)(SCORES, rng())
    with pytest.raises(InputError, match="k must be"):
        Around(0)


def test_threshold_guesses_large_scores_only() -> None:
    guesses = Threshold(1.5)(SCORES, rng()).guesses
    assert guesses.order.tolist() == [1, 2, 5]
    assert guesses.signs.tolist() == [-1, 1, 1]


def test_soft_weighs_by_size() -> None:
    evidence = Soft()(SCORES, rng()).reveal(BITS)
    assert evidence.to_dict()["hits"] == "111001"


def test_ranked_commits_to_three_orders() -> None:
    evidence = Ranked()(SCORES, rng()).reveal(BITS)
    assert isinstance(evidence, Split)
    assert evidence.shares == (0.7, 0.15, 0.15)
    assert [part.tally(PERFECT_PRIVACY).taken for part in evidence.parts] == [6, 6, 6]


def test_ties_are_broken_by_the_generator_alone() -> None:
    """Every order of three equal scores turns up equally often (chi-square, false alarm 1e-4)."""
    seen: dict[tuple[int, ...], int] = {}
    generator = rng()
    for _ in range(6000):
        order = tuple(falling(np.zeros(3), generator).tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 6
    assert sum((count - 1000) ** 2 / 1000 for count in seen.values()) < 25.7


@pytest.mark.parametrize("seed", range(5))
def test_online_confidences_do_not_see_their_own_block(seed: int) -> None:
    """Flipping the bits of a block leaves its confidences, and all earlier ones, unchanged."""
    generator = np.random.default_rng(seed)
    bits = generator.choice([-1, 1], 300).astype(np.int8)
    scores = generator.normal(1.5 * bits)
    rounds = Online(blocks=10)(scores, generator)
    before = rounds.reveal(bits)
    for index in (0, 3, 9):
        flipped = bits.copy()
        flipped[rounds.rounds[index]] *= -1
        after = rounds.reveal(flipped)
        end = 30 * (index + 1)
        assert isinstance(before, Bets)
        assert before.confidences is not None
        assert after.confidences is not None
        assert (before.confidences[:end] == after.confidences[:end]).all()
        assert (before.hits[end - 30 : end] != after.hits[end - 30 : end]).all()
        if index < 9:
            assert (before.confidences[end:] != after.confidences[end:]).any()


def test_online_learns_from_the_middle_outward() -> None:
    scores = np.arange(10.0)
    rounds = Online(blocks=5)(scores, rng()).rounds
    assert [sorted(block.tolist()) for block in rounds] == [[4, 5], [3, 6], [2, 7], [1, 8], [0, 9]]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("ranked", Ranked()),
        ("soft", Soft()),
        ("online", Online()),
        ("around:100", Around(100)),
        ("tails:100", Tails(100)),
        ("top:5", Top(5)),
        ("threshold:1.5", Threshold(1.5)),
        ("threshold:inf", Threshold(float("inf"))),
    ],
)
def test_rules_by_name(text: str, rule: object) -> None:
    assert parse_rule(text) == rule


PLAIN = [
    "",
    "best",
    "tails",
    "tails:",
    "tails:x",
    "around",
    "around:0",
    "top:0",
    "top:1.5",
    "ranked:3",
    "threshold:nan",
]
STRANGE = [
    "tails:١٠",
    "tails:1_0",
    "tails: 10",
    "top:+5",
    "threshold:1_0",
    "threshold:１",
    "budget:1_0",
    "budget:5:٢",
]


@pytest.mark.parametrize("text", [*PLAIN, *STRANGE])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_rule(text)
