"""Parts of a result beside its bound: the histogram of scores, and the ladder of gaps down from a claim."""

import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from canaria._core import checks
from canaria._core.arrays import Floats
from canaria._core.errors import InputError
from canaria.bounds import limits

MOST_BINS: Final = 400
CLAIM: Final = "the claim"
"""The top of a ladder that starts at the claimed epsilon."""
CHANCE: Final = "chance"
"""The last step of a ladder, down or up to the bound."""


@dataclass(frozen=True)
class Histogram:
    """Scores of included and of excluded elements, counted in bins.

    Attributes:
        edges: The edges of the bins, rising; at most 401.
        included: The number of included elements in each bin.
        excluded: The number of excluded elements in each bin.

    Example:
        >>> from canaria.bounds import Histogram
        >>> histogram = Histogram(edges=(0.0, 1.0, 2.0), included=(10, 40), excluded=(35, 15))
        >>> sum(histogram.included), sum(histogram.excluded)
        (50, 50)
    """

    edges: tuple[float, ...]
    included: tuple[int, ...]
    excluded: tuple[int, ...]

    def __post_init__(self) -> None:
        edges = checks.vector("edges", list(self.edges))
        if not 2 <= len(edges) <= MOST_BINS + 1 or not _rising(edges):
            raise InputError(f"edges must be 2 to {MOST_BINS + 1} rising numbers, got {len(edges)}")
        for name, counts in (("included", self.included), ("excluded", self.excluded)):
            checks.same_length(name, len(counts) + 1, "edges", len(edges))
            for count in counts:
                checks.integer(name, count, 0)

    @classmethod
    def of(cls, scores: npt.ArrayLike, bits: npt.ArrayLike, bins: int = 50) -> "Histogram | None":
        """Count scores in bins of equal width; None if all scores are equal, or bins would be too narrow.

        With more than 2,000 scores the bins span the 0.1% to 99.9% quantiles, and scores beyond are counted
        in the outermost bins.

        Args:
            scores: One number per element; infinite scores are allowed.
            bits: Which elements were included (booleans, 0/1 or -1/+1).
            bins: The number of bins.

        Example:
            >>> Histogram.of([0.0, 1.0, 2.0, 3.0], [0, 0, 1, 1], bins=2)
            Histogram(edges=(0.0, 1.5, 3.0), included=(0, 2), excluded=(2, 0))
        """
        values, included = (checks.vector("scores", scores, infinite=True), checks.two_valued("bits", bits))
        finite = values[np.isfinite(values)]
        if len(finite) == 0 or finite.max() == finite.min():
            return None
        low, high = (
            np.quantile(finite, [0.001, 0.999]) if len(finite) > 2000 else (finite.min(), finite.max())
        )
        # The quantiles may be equal, if almost all scores are.
        if not low < high:
            low, high = finite.min(), finite.max()
        with np.errstate(over="ignore", invalid="ignore"):
            edges = np.linspace(low, high, bins + 1)
        if not _rising(edges):
            return None
        # Scores beyond the ends, infinite ones too, count in the outermost bins.
        clipped = np.clip(values, low, high)
        counts = [np.histogram(clipped[side], edges)[0] for side in (included, ~included)]
        return cls(tuple(edges.tolist()), *(tuple(side.tolist()) for side in counts))


def _rising(edges: Floats) -> bool:
    """Whether the edges are finite and rise, and their differences do not overflow."""
    return bool(np.isfinite(edges).all() and np.abs(edges).max() < 1e300 and (np.diff(edges) > 0).all())


class LadderStep(NamedTuple):
    """One step of a ladder of gaps: a gap, and what is left of epsilon below it.

    Attributes:
        gap: The name of the gap.
        epsilon: The epsilon that is left below it.

    Example:
        >>> from canaria.bounds import LadderStep
        >>> LadderStep("chance", 1.2)
        LadderStep(gap='chance', epsilon=1.2)
    """

    gap: str
    epsilon: float


@dataclass(frozen=True)
class Ladder:
    """The ladder of gaps: steps from an epsilon down to the bound, which show how much each gap takes.

    It is no ladder of assumptions, whose rungs are `Rung`s: those are bounds, and these are what bounds miss.

    Attributes:
        top: The name of the first epsilon, such as "the claim".
        epsilon: The epsilon at the top.
        steps: The steps, from the top down; at most 20, all finite.
        how: Where the numbers come from.

    Example:
        >>> from canaria.bounds import Ladder, LadderStep
        >>> steps = (LadderStep("outputs", 1.5), LadderStep("chance", 1.2))
        >>> ladder = Ladder("the claim", 2.0, steps, how="simulated")
        >>> [step.epsilon for step in ladder.steps]
        [1.5, 1.2]
    """

    top: str
    epsilon: float
    steps: tuple[LadderStep, ...]
    how: str

    def __post_init__(self) -> None:
        if len(self.steps) > limits.MOST_STEPS:
            raise InputError(f"a ladder must have at most {limits.MOST_STEPS} steps, got {len(self.steps)}")
        for value in (self.epsilon, *(step.epsilon for step in self.steps)):
            if not math.isfinite(checks.nonnegative("epsilon of the ladder", value)):
                raise InputError(f"epsilon of the ladder must be finite, got {value}")

    @classmethod
    def falling(
        cls, top: str, epsilon: float, levels: dict[str, float], bound: float, how: str
    ) -> Self | None:
        """Steps that never go up, and a last one to the bound; None if the bound is infinite."""
        if math.isinf(bound):
            return None
        steps, left = [], epsilon
        for gap, level in levels.items():
            left = min(left, level)
            steps.append(LadderStep(gap, float(left)))
        return cls(top, float(epsilon), (*steps, LadderStep(CHANCE, float(bound))), how)

    @classmethod
    def of_scores(cls, claimed: float, estimate: float, bound: float) -> Self | None:
        """The ladder if only scores are known, so that the three gaps cannot be told apart.

        None if the bound lies above the claim, or the claim is infinite.

        Example:
            >>> from canaria.bounds import Ladder
            >>> [step.gap for step in Ladder.of_scores(3.0, estimate=2.2, bound=1.6).steps]
            ['elements, outputs, interference', 'chance']
        """
        if not bound <= claimed < math.inf:
            return None
        levels = {"elements, outputs, interference": estimate}
        how = "the distribution of the scores is not known, so the three gaps cannot be separated"
        return cls.falling(CLAIM, claimed, levels, bound, how)

    def to_dict(self) -> dict[str, Any]:
        """The ladder as plain data for JSON."""
        return {
            "top": self.top,
            "epsilon": self.epsilon,
            "steps": [step._asdict() for step in self.steps],
            "how": self.how,
        }
