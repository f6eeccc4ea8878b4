"""Attacks that once worked, kept so that they never work again."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from canaria import Counts, InputError, Result, audit_scores, combine, lower_bound
from canaria._core.files import checksum
from canaria.claims import ApproximateDP
from canaria.evidence import Bets, Budget, Evidence, PublishedCounts, Ranking, Split, Weighted
from canaria.evidence.inversion import EPSILON_GRID
from canaria.game.score_files import read_scores
from canaria.rules import Online, Ranked, Rule, Tails
from tests import oracles
from tests.cli.command import canaria


def leaking_scores(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A third of the members stand out by 50 standard deviations."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, n)
    scores = rng.normal(size=n)
    scores[(bits == 1) & (rng.random(n) < 0.3)] += 50
    return scores, bits


@pytest.mark.parametrize("seed", range(6))
def test_strong_leaks_in_large_audits_are_answered(seed: int) -> None:
    """A walk that has all but died out is no crash."""
    bound = audit_scores(*leaking_scores(20_000, seed), rng=0)
    assert bound.epsilon > 5


@pytest.mark.parametrize("rule", [Ranked(), Tails(200), Online()], ids=repr)
def test_the_seed_of_the_bits_may_break_ties(rule: Rule) -> None:
    """Bits that a permutation of the same seed laid out, scores that say nothing: nothing is shown."""
    n = 1000
    generator = np.random.default_rng(0)
    order = generator.permutation(n)
    bits = np.zeros(n, dtype=int)
    bits[order[: generator.binomial(n, 0.5)]] = 1
    scores = np.zeros(n)
    scores[0] = 1
    for rng in (0, np.random.default_rng(0), np.random.SeedSequence(0)):
        assert audit_scores(scores, bits, rule=rule, rng=rng).epsilon < 0.3


def test_elements_left_out_must_be_counted() -> None:
    """8 of 10,000 bits published: (0, 8e-4)-DP. The assumption is stated, and counting them gives 0."""
    for evidence in (
        Ranking([1] * 8, 10_000, committed=8),
        Weighted([1] * 8, losses=[math.inf] * 8, elements=10_000),
        Bets([0.99] * 8, [1] * 8, 10_000),
    ):
        assert any("counts every hidden bit" in line for line in evidence.assumptions)
        assert lower_bound(evidence, 8e-4).epsilon == 0


def test_an_open_quote_does_not_swallow_the_file(tmp_path: Path) -> None:
    rows = [f'{i},{int(i < 100)},"fine"' for i in range(200)]
    rows[130] = '130,0,"5 inch'
    path = tmp_path / "scores.csv"
    path.write_text("score,included,note\n" + "\n".join(rows) + "\n")
    with pytest.raises(InputError, match="not readable as CSV"):
        read_scores(path)


@pytest.mark.parametrize("text", ["1_000", "\uff11\uff15", '"1"5', "0x10", "1e999", "infinity", "1,5"])
def test_numbers_are_plain_numbers(tmp_path: Path, text: str) -> None:
    path = tmp_path / "scores.csv"
    path.write_text(f"score,included\n{text},1\n")
    with pytest.raises(InputError):
        read_scores(path)


@pytest.mark.parametrize("again", ['"score": 2', '"included": 0'])
def test_a_line_of_json_names_everything_once(tmp_path: Path, again: str) -> None:
    """As a CSV file whose header names a column twice is refused."""
    path = tmp_path / "scores.jsonl"
    path.write_text(f'{{"score": 1, "included": 1}}\n{{"score": 1, "included": 1, {again}}}\n')
    with pytest.raises(InputError, match=r"line 2 must name everything once, got '(score|included)' twice"):
        read_scores(path)


@pytest.mark.parametrize("count", [3, 7, 49, 98, 103])
def test_equal_shares_are_shares(count: int) -> None:
    """49 times 1/49 is more than 1 in floating point; a bound must still be refuted by its own p-value."""
    evidence = Split((Counts(80, 100, 1000),) * count, (1 / count,) * count)
    bound = lower_bound(evidence, 1e-5)
    assert 0.5 < bound.epsilon < 1.2
    assert evidence.p_value(ApproximateDP(bound.epsilon, 1e-5)) <= 1 - bound.confidence
    audits = {str(k): Counts(80, 100, 1000) for k in range(count)}
    shared = combine(audits, 1e-5, shares=dict.fromkeys(audits, 1 / count))
    assert shared.bound.epsilon == pytest.approx(bound.epsilon, rel=1e-12)


@pytest.mark.parametrize("value", [5e-324, 1e-310])
def test_denormal_weights_weigh_nothing(value: float) -> None:
    for _ in range(20):
        assert lower_bound(Weighted([1] * 20, weights=[value] * 20)).epsilon == 0
        assert lower_bound(Weighted([1] * 20, losses=[value] * 20)).epsilon == 0


def test_confidence_that_rounds_away() -> None:
    with pytest.raises(InputError, match="confidence must be strictly between 0 and 1, got 1e-17"):
        lower_bound(Counts(1, 100, 100), 0.0, 1e-17)


@pytest.mark.parametrize(
    "data",
    [
        {"kind": "Counts", "correct": 1, "taken": 1, "elements": 10**400},
        {"kind": "Bets", "confidences": None, "hits": "1", "elements": 10**400},
        {"kind": "Ranking", "grid": [10**16], "counts": [1], "elements": 10**17, "committed": 10**16},
        {"kind": "Ranking", "grid": [10], "counts": [1.5], "elements": 10, "committed": 10},
    ],
)
def test_huge_and_broken_numbers_are_refused(data: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Evidence.from_dict(data)


def test_huge_rankings_take_no_memory() -> None:
    sizes = {"elements": 10**10, "committed": 10**10, "one_sided": False}
    evidence = Evidence.from_dict({"kind": "Ranking", "grid": [10**10], "counts": [6 * 10**9], **sizes})
    assert 0.3 < lower_bound(evidence).epsilon < 0.41


def nested(depth: int) -> dict[str, Any]:
    part: dict[str, Any] = {"kind": "Counts", "correct": 1, "taken": 1, "elements": 1}
    for _ in range(depth):
        part = {"kind": "Split", "parts": [part], "shares": [1.0]}
    return part


RESULT = Result(lower_bound(Counts(73, 100, 1000), adjacency="replace")).to_dict()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"evidence": nested(450)}, 2),
        ({"evidence": {"kind": "Counts", "correct": 1, "taken": 1, "elements": 10**400}}, 2),
        ({"epsilon": "inf"}, 1),
        ({"correct": 100}, 1),
        ({"assumptions": []}, 1),
        ({"claimed": 0.1, "refuted": False}, 1),
        ({"estimate": 9.9}, 1),
        (
            {
                "rule": "Ranked()",
                "evidence": {
                    "kind": "Ranking",
                    "grid": [20],
                    "counts": [18],
                    "elements": 1000,
                    "committed": 20,
                },
            },
            1,
        ),
    ],
    ids=[
        "fine",
        "deep",
        "huge",
        "infinite",
        "edited",
        "unassuming",
        "misjudged",
        "boasting",
        "cherry-picked grid",
    ],
)
def test_verify_is_not_fooled(changes: dict[str, Any], code: int) -> None:
    record = {**RESULT, **changes}
    ran = canaria("verify", "-", "--json", stdin=json.dumps({**record, "checksum": checksum(record)}))
    assert ran.code == code
    assert "Traceback" not in ran.err


def test_names_stand_once() -> None:
    text = json.dumps(RESULT).replace('"epsilon":', '"epsilon": 9.0, "epsilon":')
    ran = canaria("verify", "-", stdin=text)
    assert ran.code == 2
    assert "must name everything once" in ran.err


def test_masks_and_imaginary_parts_are_refused() -> None:
    with pytest.raises(InputError, match="hits must be a sequence of plain numbers"):
        Ranking(np.ma.array([1] * 20, mask=[0] * 6 + [1] * 14))
    with pytest.raises(InputError, match="scores must be a sequence of plain numbers"):
        audit_scores([1 + 2j, 3.0], [0, 1])


def test_long_sums_of_bets_round_down() -> None:
    """183,538 misses before the hits: the true p-value at 50 digits is 0.00375688699."""
    stated = 0.9742846
    misses, n = 183_538, 10**6
    hits = np.arange(n) >= misses
    with np.errstate(all="raise"):
        found = Bets(np.full(n, stated), hits).p_value(ApproximateDP(0.0, delta=0))
    gains = (n - misses) * math.log(2 * stated) + misses * math.log(2 * (1 - stated))
    assert found >= min(1.0, math.exp(-max(gains, 0.0))) * (1 - 1e-9)


def test_p_values_are_never_zero() -> None:
    assert Bets([0.9] * 2000, [1] * 2000).p_value(ApproximateDP(0.0, delta=0)) > 0
    assert Counts(10**6, 10**6, 10**6).p_value(ApproximateDP(0.0, delta=0)) > 0


def test_extreme_scores_are_scores() -> None:
    bits = np.random.default_rng(0).choice([-1, 1], 200)
    for size in (1.7e308, 1e-320):
        for rule in (Ranked(), Online()):
            assert audit_scores(size * bits, bits, rule=rule, rng=0).epsilon > 2


@pytest.mark.parametrize("rng", ["abc", -1, 1.5, [1, 2]])
def test_seeds_are_checked(rng: Any) -> None:
    with pytest.raises(InputError, match="rng must be"):
        audit_scores([1.0, 2.0], [0, 1], rng=rng)


def test_the_grid_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        EPSILON_GRID[0] = 5.0


def test_large_budgets_with_delta_are_answered() -> None:
    with pytest.raises(InputError, match="elements must be an integer between 1 and 1000000000000000"):
        Budget(5 * 10**19, 10**20, 10**20, 10**20)


def test_rankings_keep_their_level_by_enumeration() -> None:
    """Pr[p-value <= t] <= t for every t, over all 2^9 hit sequences and every kind of look."""
    for epsilon in (0.0, 0.9):
        p = oracles.success(epsilon)
        for grid in ([3, 5, 9], [1, 2, 4, 8], [9]):
            found = []
            for code in range(2**9):
                hits = [(code >> k) & 1 for k in range(9)]
                chance = p ** sum(hits) * (1 - p) ** (9 - sum(hits))
                found.append((Ranking(hits, grid=grid).p_value(ApproximateDP(epsilon, delta=0)), chance))
            found.sort()
            levels, chances = (np.array(column) for column in zip(*found, strict=True))
            reached = np.array([chances[levels <= level].sum() for level in levels])
            assert (reached <= levels * (1 + 1e-9)).all()


def test_shares_add_up_to_one_as_they_should() -> None:
    """Equal shares do, whatever their number; huge ones are refused, and not by an overflow."""
    for parts in (9, 11, 18, 20, 49):
        Split((Counts(1, 1, 1),) * parts, (1 / parts,) * parts)
    for shares in ((1e308,) * 3, (0.6, 0.6), (float("inf"), 0.1)):
        with pytest.raises(InputError, match="shares must be positive and add up to at most 1"):
            Split((Counts(1, 1, 1),) * len(shares), shares)


@pytest.mark.parametrize(
    ("correct", "taken", "epsilon"),
    [
        (135_820_369_465_442, 135_820_369_465_444, 32.8),
        (266_564_689_520_651, 266_564_689_520_653, 33.3),
        (10**15 - 3, 10**15, 34.0),
    ],
)
def test_p_values_of_more_than_a_thousand_million_guesses_round_up(
    correct: int, taken: int, epsilon: float
) -> None:
    """1 - p(epsilon) is not rounded: the correction for that fell short by up to one part in a thousand."""
    truth = oracles.precise_tail(correct, taken, epsilon)
    for evidence in (Counts(correct, taken, taken), Budget(correct, taken, taken, taken)):
        assert truth <= evidence.p_value(ApproximateDP(epsilon, delta=0)) <= truth * (1 + 2e-6)


@pytest.mark.parametrize(
    ("correct", "taken", "share"),
    [(2_654_309, 2_654_310, 0.342312541078584), (8_690_580, 8_690_580, 0.7469653891501328)],
)
def test_bounds_of_splits_are_refuted_by_their_own_p_value(correct: int, taken: int, share: float) -> None:
    """A part's p-value divided by its share was above the level by a rounding error."""
    parts = (PublishedCounts(correct, taken, taken), Counts(1, 2, 2))
    evidence = Split(parts, (share, 1 - share - 1e-12))
    bound = lower_bound(evidence, 1e-5).epsilon
    assert bound > 6
    assert evidence.p_value(ApproximateDP(bound, 1e-5)) <= 1 - 0.95


@pytest.mark.parametrize(
    ("parts", "shares"), [(3, (1.0,)), (np.array(3), (1.0,)), ((Counts(1, 1, 1),), 1.0), ((None,), (1.0,))]
)
def test_what_is_not_evidence_cannot_be_split(parts: Any, shares: Any) -> None:
    with pytest.raises(InputError, match="must be"):
        Split(parts, shares)


def test_names_that_no_file_can_have() -> None:
    """In another process they cannot be typed; a program may still hand them on."""
    ran = canaria("report", "a\0b", "--out", "page.html")
    assert (ran.code, ran.err.count("\n")) == (2, 1)


@pytest.mark.parametrize("noise", ["1e-9", "0.001"])
def test_plans_with_next_to_no_noise_are_refused(noise: str) -> None:
    """The tighter accountant asked for more memory than there is, or for more than can be counted."""
    ran = canaria(
        *("plan", "--epsilon", "2", "--delta", "1e-5", "--steps", "1", "--sample-rate", "0.1"),
        *("--noise-multiplier", noise),
    )
    assert ran.code == 2
    assert "noise_multiplier must " in ran.err


def test_games_of_more_elements_than_can_be_are_refused() -> None:
    """The rounds of an adaptive game were laid out before anybody looked at how many."""
    ran = canaria("run", "xor", "--n", "99999999999999999999", "--adaptive")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "n must be an integer between 1 and" in ran.err


def test_a_mechanism_without_privacy_has_gaps_without_a_warning() -> None:
    """Infinity was multiplied by 0 for the elements of which nothing is known."""
    ran = canaria("gaps", "xor-randomized-response", "--epsilon", "inf", "--n", "10", "--k", "1")
    assert (ran.code, ran.err) == (0, "")
