"""The inverter and the result object."""

import json
import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from canaria import Bound, Counts, InputError, Result, combine, lower_bound
from canaria.claims import ApproximateDP, Claim, Composed, Curve, DpSgd, GaussianDP, LaplaceDP
from canaria.claims.families import Gaussian
from canaria.evidence import Bets, Evidence, Ranking, Split, Tally, Weighted
from canaria.evidence.inversion import EPSILON_GRID
from canaria.game import replay, result_of_scores


@dataclass(frozen=True)
class _Jagged(Evidence):
    """Evidence of a user: refuted at the listed claims only; nothing but what must be is defined."""

    listed: tuple[float, ...]
    elements: int = 1000

    method: ClassVar[str] = "jagged"
    assumptions: ClassVar[tuple[str, ...]] = ("nothing",)

    def p_value(self, claim: ApproximateDP) -> float:
        return 0.01 if any(math.isclose(claim.epsilon, listed) for listed in self.listed) else 0.5

    def tally(self, claim: Any) -> Tally:
        return Tally(3, 4)

    def to_dict(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("refuted", "expected"),
    [((), 0.0), ((0.0, 0.01, 0.02), 0.02), ((0.0, 0.01, 0.03), 0.01), ((0.01, 0.02), 0.0)],
)
def test_only_the_initial_run_of_refuted_claims_counts(refuted: tuple[float, ...], expected: float) -> None:
    """Never "the largest refuted epsilon"."""
    assert lower_bound(_Jagged(refuted)).epsilon == expected


def test_grid_is_as_documented() -> None:
    steps = np.diff(EPSILON_GRID)
    assert EPSILON_GRID[[0, 2000, 2300, -1]].tolist() == [0, 20, 50, 700]
    assert np.allclose(steps[:2000], 0.01)
    assert np.allclose(steps[2000:2300], 0.1)
    assert np.allclose(steps[2300:], 1)


def test_split_is_the_largest_bound_of_its_parts() -> None:
    first, second = Counts(73, 100, 1000), Counts(45, 50, 1000)
    bound = lower_bound(Split((first, second), (0.25, 0.75)), 1e-5).epsilon
    parts = [lower_bound(first, 1e-5, 1 - 0.0125), lower_bound(second, 1e-5, 1 - 0.0375)]
    assert bound == pytest.approx(max(part.epsilon for part in parts), rel=1e-9)


def test_the_number_comes_first_and_assumptions_on_request() -> None:
    bound = lower_bound(Counts(73, 100, 1000), 1e-5, adjacency="replace", about="the model")
    assert str(bound) == (
        "ε ≥ 0.606 at δ = 1e-05 for the model, with 95% confidence: 73 of 100 guesses right, 1000 elements"
    )
    assert bound.explanation.startswith("With 95% confidence ε is at least 0.606 at δ = 1e-05. Seen: 73 of")
    assert "replace adjacency" in bound.explanation
    assert "assuming the hidden bits are independent fair coins" in bound.explanation
    assert str(lower_bound(Counts(50, 100, 100))).startswith("ε ≥ 0.000 at δ = 0")


def test_a_bound_of_a_family_names_its_condition_in_the_first_line() -> None:
    bound = lower_bound(Counts(900, 1000, 1000), 1e-5, family=Gaussian())
    assert ", if its privacy profile is that of Gaussian noise, with 95%" in str(bound)


def test_dictionary_holds_what_readers_need() -> None:
    data = lower_bound(Counts(100, 100, 1000), 1e-5).to_dict()
    assert data["estimate"] == "inf"
    wanted = {"epsilon", "estimate", "correct", "taken", "elements", "delta", "confidence", "method"}
    assert wanted | {"adjacency", "assumptions"} <= set(data)
    json.dumps(data, allow_nan=False)


def test_frame_and_html() -> None:
    bound = lower_bound(Ranking([1] * 50))
    frame = bound.to_frame()
    assert frame.loc[0, "epsilon"] == bound.epsilon
    assert bound.epsilon_text in bound._repr_html_()


def test_html_escapes_what_users_wrote() -> None:
    class _Scripted(_Jagged):
        method: ClassVar[str] = "<script>"

    bound = Bound(1.0, 0.0, 0.95, _Scripted(()))
    assert "<script>" not in bound._repr_html_()


def test_adjacencies_are_not_compared_across() -> None:
    bound = lower_bound(Counts(90, 100, 100), adjacency="replace")
    assert bound.refutes(ApproximateDP(1.0, 0, "replace"))
    with pytest.raises(InputError, match="must be the same"):
        bound.refutes(ApproximateDP(1.0, 0, "add-remove"))


@pytest.mark.parametrize("claim", [ApproximateDP(1.0, 0), LaplaceDP(1.0), Composed((LaplaceDP(1.0),))])
def test_replace_one_must_be_stated_on_both_sides(claim: Claim) -> None:
    """A correct release with an add-remove epsilon of 1 was refuted at 1.93 by pairs."""
    bound = lower_bound(Counts(900, 1000, 1000), 1e-5, adjacency="replace")
    with pytest.raises(
        InputError, match="adjacency of the claim is not stated; give the claim adj"
    ) as caught:
        bound.refutes(claim)
    assert "\n" not in str(caught.value)
    for door in (bound.result, combine({"only": bound}).refutes, partial(Result, bound)):
        with pytest.raises(InputError, match="adjacency of the claim is not stated"):
            door(claim)
    silent = lower_bound(Counts(900, 1000, 1000), 1e-5)
    assert silent.refutes(claim)
    with pytest.raises(InputError, match="adjacency of the bound is not stated"):
        silent.refutes(LaplaceDP(1.0, "replace"))
    for bound in (silent, lower_bound(Counts(900, 1000, 1000), 1e-5, adjacency="add-remove")):
        assert bound.refutes(claim)
        assert bound.refutes(ApproximateDP(1.0, 0, "add-remove"))


def test_a_profile_is_for_any_neighbours() -> None:
    bound = lower_bound(Counts(900, 1000, 1000), 1e-5, adjacency="replace", family=Gaussian())
    assert bound.refutes(GaussianDP(0.5, "replace"))
    with pytest.raises(InputError, match="adjacency of the claim is not stated"):
        bound.refutes(GaussianDP(0.5))


CURVES = [
    GaussianDP(1.0),
    DpSgd(noise_multiplier=1.0, sample_rate=0.1, steps=20),
    Composed((LaplaceDP(0.5), GaussianDP(0.5))),
    Curve([0.0, 1.0], [0.3, 1e-4]),
]


@pytest.mark.parametrize("claim", CURVES, ids=["gaussian", "dpsgd", "composed", "curve"])
def test_a_claim_without_an_epsilon_at_delta_is_an_error(claim: Claim) -> None:
    """884 right guesses of 884 once gave "epsilon = inf at delta = 0, not refuted"."""
    bits = np.random.default_rng(0).integers(0, 2, 884)
    scores, adjacency = 1.0 * bits + 1e-3 * np.random.default_rng(1).random(884), "add-remove"
    bound = lower_bound(Counts(884, 884, 884), adjacency=adjacency)
    game = replay(bits, scores, lambda output, known: output, rng=0, adjacency=adjacency)
    for door in (
        bound.refutes,
        bound.result,
        partial(Result, bound),
        combine({"only": bound}).result,
        partial(result_of_scores, scores, bits, rng=0),
        game.result,
    ):
        with pytest.raises(InputError, match=r"at delta = 0 can refute .* such as delta=1e-5") as caught:
            door(claim)
        assert "\n" not in str(caught.value)
    refuted = result_of_scores(scores, bits, claim, delta=1e-4, rng=0)
    assert refuted.refuted is True
    assert math.isfinite(refuted.claimed or 0.0)
    assert bound.refutes(LaplaceDP(1.0))  # it has an epsilon at delta = 0


def test_deltas_are_not_compared_across() -> None:
    """A bound at a smaller delta says nothing about a claim; at a larger one it says more than is needed."""
    bound = lower_bound(Counts(90, 100, 100), 1e-5)
    with pytest.raises(InputError, match=r"the bound is at delta = 1e-05, but the claim is at delta = 0\.02"):
        bound.refutes(ApproximateDP(1.0, 0.02))
    assert bound.refutes(ApproximateDP(1.0, 0))
    with pytest.raises(InputError, match="the delta of its claim, 0, got one at 1e-05"):
        Result(bound, ApproximateDP(1.0, 0))
    with pytest.raises(
        InputError, match=r"claim must be a claim, such as ApproximateDP\(2.0, delta=1e-5\), got 1.0"
    ):
        bound.refutes(1.0)  # type: ignore[arg-type]


def test_refuted_means_strictly_above() -> None:
    bound = lower_bound(Counts(90, 100, 100))
    assert not bound.refutes(ApproximateDP(bound.epsilon, 0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"delta": 1.5}, "delta must be between 0 and 1, got 1.5"),
        ({"delta": "x"}, "delta must be a number, got 'x'"),
        ({"confidence": 1.0}, "confidence must be strictly between 0 and 1, got 1.0"),
        ({"confidence": float("nan")}, "confidence must be a number, got nan"),
        (
            {"adjacency": "both"},
            "adjacency must be one of 'add-remove', 'replace', 'unspecified', got 'both'",
        ),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        lower_bound(Counts(3, 4, 5), **arguments)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 1 - 1e-6, 1 - 1e-12])
@pytest.mark.parametrize("size", [1, 5, 300, 20_000])
def test_perfect_guesses_at_every_size_and_confidence(size: int, confidence: float) -> None:
    """No kind claims more than the exact bound from counts, which all-right hits attain."""
    best = lower_bound(Counts(size, size, size), 0.0, confidence).epsilon
    ones = np.ones(size)
    for evidence in (
        Ranking(ones),
        Weighted(ones, losses=np.full(size, np.inf)),
        Bets(np.full(size, 0.999), ones),
    ):
        assert lower_bound(evidence, 0.0, confidence).epsilon <= best
