"""The delta rules at scale: what must not come from the output, and how much it would cost."""

from collections.abc import Callable

import numpy as np
import pytest

from canaria import Counts, InputError
from canaria.claims import ApproximateDP
from canaria.evidence import Evidence, Ranking, UncommittedCounts, _sway
from tests import oracles
from tests.evidence.programs import (
    SOLVER,
    Output,
    State,
    at_most,
    below,
    budget,
    by_count,
    p_values,
    row,
    worst,
    worst_of_blocks,
)


def test_tail_and_sway_cannot_be_added_where_the_output_chooses_them() -> None:
    """A + B D is no p-value: many guesses with A at the level, or a few on which all of delta is spent."""
    elements, spent, level = 500, 0.5, 0.2
    claim, flips = ApproximateDP(0.0, spent / elements), budget(0.0, spent)
    naive: list[Output] = []
    ours: list[Output] = []
    for taken in (3, 4, 5, 6, 7, 8, elements):
        counts = range(taken + 1)
        tails = [float(oracles.precise_tail(v, taken, 0.0)) for v in counts]
        added = [a + flips * _sway.of_count(v, taken, 0.0) for v, a in zip(counts, tails, strict=True)]
        known = [UncommittedCounts(v, taken, elements).p_value(claim) for v in counts]
        naive.append(((taken,), below(by_count(added), level)))
        ours.append(((taken,), below(by_count(known), level)))
    assert worst_of_blocks(naive, 0.0, spent) > 1.3 * level
    assert worst_of_blocks(ours, 0.0, spent) <= level + SOLVER


def test_two_types_of_output_double_the_level_of_tail_plus_sway() -> None:
    """95 % of outputs have A = 0.05 and no sway, on the others delta spends all that it has: 0.0975.

    The shares of `combined` are lost at one of the two.
    """
    level, rare, flips = 0.05, 0.05, 1.0
    types = [(level, 0.0), (0.0, level / flips)]
    assert all(upper + flips * sway <= level for upper, sway in types)
    reached = (1 - rare) * types[0][0] + rare * min(1.0, types[1][0] + types[1][1] * flips / rare)
    assert reached == pytest.approx(0.0975)
    assert all(_sway.combined(upper, sway, flips) > level for upper, sway in types)


@pytest.mark.parametrize(("level", "pinned"), [(0.05, 0.0631), (0.1, 0.1274)])
def test_length_of_a_ranking_must_not_come_from_the_output(level: float, pinned: float) -> None:
    """Forty elements, one look at the end of a ranking whose length the output chooses."""
    elements, spent = 40, 0.3
    claim = ApproximateDP(0.0, spent / elements)
    outputs: list[Output] = []
    for length in range(1, elements + 1):
        found = [
            Ranking.of_counts([length], [right], elements, length).p_value(claim)
            for right in range(length + 1)
        ]
        outputs.append(((length,), below(by_count(found), level)))
    assert worst_of_blocks(outputs, 0.0, spent) == pytest.approx(pinned, abs=1e-4)
    assert all(worst_of_blocks([output], 0.0, spent) <= level + SOLVER for output in outputs[::8])


def test_ranking_of_some_elements_asks_for_the_committed_length() -> None:
    with pytest.raises(InputError, match="give committed"):
        Ranking([1, 0, 1], 4)
    assert Ranking([1, 0, 1], 4, committed=3).committed == 3
    for committed in (2, 5):
        with pytest.raises(InputError, match="committed"):
            Ranking([1, 0, 1], 4, committed=committed)


@pytest.mark.parametrize("kind", ["counts", "ranking"])
def test_sign_of_one_sided_guesses_must_not_come_from_the_output(kind: str) -> None:
    """A mechanism that may choose the sign beats the p-value for one sign; not that for both."""
    epsilon, spent, elements = 0.0, 0.4, 2
    claim = ApproximateDP(epsilon, spent / elements)

    def form(one_sided: bool) -> Callable[[State], Evidence]:
        if kind == "counts":
            return lambda hits: Counts(sum(hits), elements, elements, one_sided)
        return lambda hits: Ranking(hits, grid=[1, 2], one_sided=one_sided)

    one, both = (min(p_values(form(side), elements, claim).values()) for side in (True, False))
    rejects = at_most(p_values(form(True), elements, claim), one)
    rewards = np.array([row(rejects, elements, elements, sign) for sign in (1, -1)])
    fixed = worst(rewards[:1], elements, epsilon, spent, "orders")
    chosen = worst(rewards, elements, epsilon, spent, "orders")
    assert fixed <= one + SOLVER
    assert one + 0.01 < chosen <= both + SOLVER
