"""What every kind of evidence must do: the one contract, over all kinds."""

import json

import numpy as np
import pytest

from canaria import Counts, InputError, lower_bound
from canaria.claims import ApproximateDP, Curve, GaussianDP
from canaria.evidence import (
    Bets,
    Budget,
    Evidence,
    Ranking,
    Split,
    Weighted,
    to_dict,
)
from tests.evidence.kinds import ALL, HITS

OURS = {name for name, kind in Evidence.kinds().items() if kind.__module__.startswith("canaria.")}


each = pytest.mark.parametrize(
    "evidence", ALL, ids=lambda evidence: f"{type(evidence).__name__}-{evidence.method}"
)


def test_every_kind_is_here() -> None:
    """But for evidence against a family, which takes claims of that family alone (test_matched)."""
    assert {type(evidence).__name__ for evidence in ALL} == OURS - {"MatchedCounts"}


@each
def test_p_values_are_probabilities_and_bounds_round_down(evidence: Evidence) -> None:
    for delta in (0.0, 1e-6, 1e-3):
        bound = lower_bound(evidence, delta)
        assert bound.epsilon >= 0
        if bound.epsilon > 0:
            assert evidence.p_value(ApproximateDP(bound.epsilon, delta)) <= 1 - 0.95
        for epsilon in (0.0, 0.1, 1.0, 5.0, 50.0, 700.0, np.inf):
            assert 0 <= evidence.p_value(ApproximateDP(epsilon, delta)) <= 1
    assert evidence.p_value(ApproximateDP(700.0, 1.0)) == pytest.approx(1.0)


@each
def test_more_delta_and_more_confidence_never_raise_a_bound(evidence: Evidence) -> None:
    by_delta = [lower_bound(evidence, delta).epsilon for delta in (0.0, 1e-6, 1e-4, 1e-2, 1.0)]
    assert (np.diff(by_delta) <= 1e-9).all()
    by_confidence = [lower_bound(evidence, 1e-6, c).epsilon for c in (0.5, 0.9, 0.99, 1 - 1e-12)]
    assert (np.diff(by_confidence) <= 1e-9).all()


@each
def test_written_and_read_back(evidence: Evidence) -> None:
    """Through JSON, without loss."""
    again = Evidence.from_dict(json.loads(json.dumps(to_dict(evidence), allow_nan=False)))
    assert to_dict(again) == to_dict(evidence)
    for epsilon in (0.0, 0.8):
        assert again.p_value(ApproximateDP(epsilon, 1e-5)) == evidence.p_value(ApproximateDP(epsilon, 1e-5))
    claim = ApproximateDP(0.5, delta=0)
    assert again.tally(claim) == evidence.tally(claim)


@each
def test_every_kind_takes_a_curve(evidence: Evidence) -> None:
    """At one point, not below (epsilon, delta); or all of it, where one sign and many guesses gain a little."""
    strong, weak = (evidence.p_value(GaussianDP(mu)) for mu in (0.01, 8.0))
    assert 0 < strong <= 1
    assert weak > 0.05
    assert evidence.p_value(Curve([0.3], [1e-4])) >= evidence.p_value(ApproximateDP(0.3, 1e-4)) * 0.99
    assert evidence.refutes(GaussianDP(0.01), 0.05) == (strong <= 0.05)


@each
def test_states_its_assumptions(evidence: Evidence) -> None:
    assert "the hidden bits are independent fair coins" in evidence.assumptions


@each
def test_claims_out_of_range_are_errors(evidence: Evidence) -> None:
    for epsilon, delta in ((-0.1, 0.0), (np.nan, 0.0), (1.0, -1e-9), (1.0, 1.1), (1.0, np.nan)):
        with pytest.raises(InputError):
            evidence.p_value(ApproximateDP(epsilon, delta))


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"kind": "Nonsense"},
        {"kind": ["Counts"]},
        {"kind": "Counts", "correct": 3},
        {"kind": "Counts", "correct": 3, "taken": 2, "elements": 5},
        {"kind": "Counts", "correct": 3, "taken": 5.5, "elements": 5},
        {"kind": "Ranking", "grid": [3, 2], "counts": [1, 1], "elements": 5},
        {"kind": "Ranking", "grid": [2, 3], "counts": [1, 3], "elements": 5},
        {"kind": "Ranking", "grid": [2, 3], "counts": [1, 2, 3], "elements": 5},
        {"kind": "Bets", "confidences": [0.5], "hits": "2", "elements": 1},
        {"kind": "Bets", "confidences": ["x"], "hits": "1", "elements": 1},
        {"kind": "Bets", "confidences": 0.5, "hits": "1", "elements": 1},
        {"kind": "Weighted", "hits": "1", "weights": None, "losses": None, "elements": 1},
        {"kind": "Split", "parts": 3, "shares": [1.0]},
        {
            "kind": "Split",
            "parts": [{"kind": "Counts", "correct": 1, "taken": 1, "elements": 1}],
            "shares": [2.0],
        },
    ],
)
def test_other_data_is_refused_in_one_line(data: object) -> None:
    with pytest.raises(InputError) as error:
        Evidence.from_dict(data)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Counts(5, 4, 10), "correct must be an integer between 0 and taken = 4, got 5"),
        (lambda: Counts(1, 11, 10), "taken must be an integer between 0 and elements = 10, got 11"),
        (lambda: Counts(1.5, 4, 10), "correct must be an integer between 0 and taken = 4, got 1.5"),
        (lambda: Counts(True, 4, 10), "correct must be an integer between 0 and taken = 4, got True"),
        (lambda: Ranking([]), "hits must hold at least one guess, got none"),
        (lambda: Ranking([0, 1, 2]), r"hits must hold 0/1, -1/\+1 or booleans, got 2 at position 2"),
        (lambda: Ranking([0, 1], elements=1), "elements must be an integer of at least 2, got 1"),
        (
            lambda: Ranking([0, 1], grid=[3]),
            r"grid must hold rising positive integers up to 2, the number of guesses, got \[3\]",
        ),
        (lambda: Ranking([0, 1], grid=[0, 1]), r"grid must hold rising positive integers up to 2"),
        (lambda: Ranking([0, 1], grid=[2, 1]), r"grid must hold rising positive integers up to 2"),
        (lambda: Ranking([0, 1], grid=[]), r"grid must hold rising positive integers up to 2"),
        (lambda: Weighted([1]), "exactly one of weights and losses"),
        (lambda: Weighted([1], weights=[-1]), "weights must be at least 0, got -1"),
        (lambda: Weighted([1], weights=[np.inf]), "weights must hold finite numbers, got inf"),
        (lambda: Weighted([1, 0], losses=[1.0]), "losses must be as long as hits, got 1 and 2"),
        (lambda: Weighted([1], losses=[np.nan]), "losses must hold numbers, got nan at position 0"),
        (lambda: Bets([0.5], [1, 1]), "confidences must be as long as hits, got 1 and 2"),
        (lambda: Budget(1, 5, 4, 10), "taken must be an integer between 0 and budget = 4, got 5"),
        (lambda: Split((), ()), "shares must be positive and add up to at most 1"),
        (lambda: Split((ALL[0],), (0.5, 0.5)), "shares must be as long as parts, got 2 and 1"),
    ],
)
def test_bad_arguments_are_named(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]


def test_evidence_is_frozen_all_the_way_down() -> None:
    stated = np.full(120, 0.7)
    evidence = Bets(stated, HITS)
    stated[0] = 0.1
    assert evidence.confidences is not None
    assert evidence.confidences[0] == 0.7
    with pytest.raises(ValueError, match="read-only"):
        evidence.hits[0] = False
