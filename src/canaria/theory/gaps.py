"""The three gaps between what one run can show and the true epsilon."""

import math
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import special

from canaria._core import checks
from canaria._core.arrays import Floats
from canaria._core.kinds import plain
from canaria._core.seeds import Seed
from canaria.mechanisms import AnalysedMechanism
from canaria.theory.efficacy import TRIALS, Accuracy, means, top_mean


@dataclass(frozen=True)
class Gaps:
    """Efficacy, and the three gaps between it and p(epsilon): elements, outputs, interference.

    *Elements*: some guesses are about elements that are less exposed than the worst. *Outputs*: the one
    output need not be the worst. *Interference*: the hidden bits of other elements blur each element.

    Attributes:
        n: The number of elements.
        k: The number of guesses.
        efficacy: The best expected accuracy E*_k.
        average_case: The expected accuracy on the most exposed element (AC).
        elements_error: The standard error of the elements gap.
        ddp: Distributional DP, in units of epsilon.
        epsilon: The epsilon of the mechanism.

    Example:
        >>> from canaria.mechanisms import NameAndShame
        >>> from canaria.theory import gaps
        >>> found = gaps(NameAndShame(), n=10)
        >>> found.efficacy.value, found.average_case.value
        (0.55, 1.0)
    """

    n: int
    k: int
    _: KW_ONLY
    efficacy: Accuracy
    average_case: Accuracy
    elements_error: float
    ddp: float
    epsilon: float

    @property
    def ladder(self) -> tuple[float, float, float, float]:
        """Efficacy, AC, p(DDP) and p(epsilon): each is at most the next."""
        levels = special.expit([self.ddp, self.epsilon])
        return self.efficacy.value, self.average_case.value, float(levels[0]), float(levels[1])

    @property
    def ladder_epsilon(self) -> tuple[float, float, float, float]:
        """The same four levels in units of epsilon."""
        return self.efficacy.epsilon, self.average_case.epsilon, self.ddp, self.epsilon

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data for JSON; names that end in `_epsilon` are in units of epsilon."""
        names = ("elements", "outputs", "interference")
        return {
            "n": self.n,
            "k": self.k,
            "efficacy": self.efficacy.value,
            **dict(zip(names, _steps(self.ladder), strict=True)),
            "epsilon": self.ladder[3],
            "efficacy_epsilon": plain(self.efficacy.epsilon),
            **{
                f"{name}_epsilon": plain(gap)
                for name, gap in zip(names, _steps(self.ladder_epsilon), strict=True)
            },
            "epsilon_epsilon": plain(self.epsilon),
            "average_case": self.average_case.value,
            "average_case_epsilon": plain(self.average_case.epsilon),
            "ddp": self.ladder[2],
            "ddp_epsilon": plain(self.ddp),
            "efficacy_error": self.efficacy.error,
            "elements_error": self.elements_error,
            "outputs_error": self.average_case.error,
            "average_case_error": self.average_case.error,
            "efficacy_epsilon_error": plain(_in_epsilon(self.efficacy)),
            "average_case_epsilon_error": plain(_in_epsilon(self.average_case)),
            "efficacy_how": self.efficacy.how,
            "average_case_how": self.average_case.how,
        }


def gaps(
    mechanism: AnalysedMechanism, n: int, k: int | None = None, trials: int = TRIALS, rng: Seed = None
) -> Gaps:
    """Decompose the loss of one-run auditing with k of n guesses into its three causes.

    Efficacy and average case come from the same outcomes or games, so that no gap is negative. If DDP is only
    known as an upper limit (`Symmetric`), interference is a lower limit and outputs an upper limit.

    Args:
        mechanism: The mechanism.
        n: The number of elements.
        k: The number of guesses, at most n; by default all n.
        trials: The number of simulated games, at least 2, if outputs cannot be enumerated.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Example:
        >>> from canaria.mechanisms import Xor
        >>> gaps(Xor(), n=10).to_dict()["interference"]
        0.5
    """
    count = n if k is None else k
    checks.integer("k", count, 1, checks.integer("n", n, 1), "n")
    statistics = (partial(_efficacy, count), _average_case)
    (best, average), covariance = means(mechanism, n, statistics, trials, rng)
    # Both means are of the same games: Var(X - Y) = Var X + Var Y - 2 Cov(X, Y).
    difference = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    error = math.sqrt(max(0.0, float(difference)))
    return Gaps(
        n,
        count,
        efficacy=best,
        average_case=average,
        elements_error=error,
        ddp=mechanism.ddp(n),
        epsilon=mechanism.epsilon,
    )


def _efficacy(k: int, sizes: Floats) -> Floats:
    return top_mean(np.asarray(special.expit(sizes)), k)


def _average_case(sizes: Floats) -> Floats:
    return np.asarray(special.expit(sizes.max(axis=1)))


def _in_epsilon(accuracy: Accuracy) -> float:
    """A standard error in units of epsilon, to first order."""
    # Epsilon = logit(value) has the derivative 1 / (value (1 - value)).
    slope = accuracy.value * (1 - accuracy.value)
    return accuracy.error / slope if slope > 0 else (0.0 if accuracy.error == 0 else math.inf)


def _steps(ladder: tuple[float, ...]) -> list[float]:
    """Differences of neighbours; two infinities, or a difference below the rounding error, give 0."""
    steps = [0.0 if low == high else high - low for low, high in pairwise(ladder)]
    return [0.0 if abs(step) < 1e-12 else step for step in steps]
