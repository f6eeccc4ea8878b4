"""What differences between steps show of the noise: their squares in pairs of steps, their signs in twins.

On coordinates without an included canary the difference of two steps is noise alone. A recording keeps these
summaries of the differences, and conformance tests them.
"""

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

_MISSED: Final = 1e-3
"""A fault that counts as shown is missed with this probability at most."""
_AS_GOOD_AS_NONE: Final = 1e-2
"""What rounding may leave of the squares of noise that is missing, where real rows are summed again."""


class Twins(NamedTuple):
    """Signs of differences of pairs of steps at the same index of two parameters, for every two parameters.

    Attributes:
        p_value: The smallest two-sided p-value of a sign test, times the number of such tests.
        where: Which two parameters it is of, counted from 0.
        compared: For every two parameters, how many signs were compared.

    """

    p_value: float
    where: tuple[int, int]
    compared: tuple[int, ...]

    @classmethod
    def of(cls, signs: npt.ArrayLike) -> "Twins | None":
        """From how often there was a sign, and how much more often it was the same; None if never."""
        seen = np.asarray(signs, dtype=np.float64)
        one, other = np.triu_indices(seen.shape[-1], 1)
        compared, apart = seen[:, one, other]
        if not compared.any():
            return None
        rarer = (compared - np.abs(apart)) / 2
        tails = special.betainc(np.maximum(compared - rarer, 1.0), rarer + 1, 0.5)
        p_values = np.where(compared > 0, np.minimum(2 * tails * len(one), 1.0), 1.0)
        least = int(np.argmin(p_values))
        where = (int(one[least]), int(other[least]))
        return cls(float(p_values[least]), where, tuple(compared.astype(np.int64).tolist()))

    def shown(self, needed: float) -> int:
        """For how many two parameters the p-value would be at most that if they had the same noise."""
        return int(np.sum(len(self.compared) * 2.0 ** (1 - np.array(self.compared)) <= needed))


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Squared differences of the steps 1 and 2, 3 and 4, and so on: the smallest and the largest.

    They are summed over the coordinates without an included canary, in units of their variance.

    Attributes:
        extremes: The smallest and the largest sum.
        pairs: Which pairs of steps they are of, counted from 0.
        count: The number of pairs.
        places: The number of these coordinates.
        by_parameter: For each parameter the sum over all pairs, and the number of its coordinates; empty if
            not known.
        odd: Whether the last is no pair, but the last step against the mean of all others.
        twins: The signs of differences at the same index of two parameters; None if not known.
        left: The share of its usual sum that a pair keeps if one of its steps gets no noise; the largest of
            all steps and pairs.

    """

    extremes: tuple[float, float]
    pairs: tuple[int, int]
    count: int
    places: int
    by_parameter: tuple[tuple[float, int], ...] = ()
    odd: bool = False
    twins: Twins | None = None
    left: float = 0.5

    @classmethod
    def of(
        cls,
        squares: npt.ArrayLike,
        places: int,
        by_parameter: tuple[tuple[float, int], ...] = (),
        *,
        odd: bool = False,
        twins: Twins | None = None,
        left: float = 0.5,
    ) -> "Pairs | None":
        """From the sum of every pair; None if there is nothing to compare."""
        values = np.asarray(squares, dtype=np.float64)
        if len(values) == 0 or places == 0:
            return None
        least, most = int(np.argmin(values)), int(np.argmax(values))
        return cls(
            extremes=(float(values[least]), float(values[most])),
            pairs=(least, most),
            count=len(values),
            places=places,
            by_parameter=by_parameter,
            odd=odd,
            twins=twins,
            left=left,
        )

    def show_a_silent_step(self, needed: float) -> bool:
        """Whether any step without noise, which lowers the sum of its pair, makes the p-value that small."""
        return surely_smaller(self.left, self.places, 2 * self.count, needed)

    def show_a_silent_parameter(self, needed: float) -> list[bool]:
        """For each parameter, whether it would make the p-value that small if it got no noise."""
        tried = 2 * len(self.by_parameter)
        return [
            surely_smaller(_AS_GOOD_AS_NONE, places * self.count, tried, needed)
            for _, places in self.by_parameter
        ]

    def scaled(self, factor: float) -> "Pairs":
        """The same with every sum multiplied by a factor."""
        least, most = self.extremes
        by_parameter = tuple((total * factor, places) for total, places in self.by_parameter)
        return replace(self, extremes=(least * factor, most * factor), by_parameter=by_parameter)


def surely_smaller(ratio: float, freedom: float, tried: int, needed: float, *, tailed: float = 0.0) -> bool:
    """Whether squares at this ratio of their usual size have a p-value of at most `needed`, of so many tried.

    "Surely" is with probability 0.999. The squares are chi-squared, or more spread out: `tailed` is the
    excess kurtosis of what is squared.
    """
    if freedom <= 0:
        return False
    likely = freedom / (1 + tailed / 2)
    most = ratio * freedom / likely * float(special.chdtri(likely, _MISSED))
    return bool(2 * tried * special.chdtr(freedom, most) <= needed)
