"""A claim as limits on the probabilities of single events: lines P <= delta + kappa Q."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from canaria._core import checks
from canaria._core.arrays import Floats
from canaria._core.errors import InputError, shown


@dataclass(frozen=True, eq=False, init=False)
class Lines:
    """The lower envelope of lines P <= delta + kappa Q, kappa rising and delta falling.

    P and Q are the probabilities of one event under two neighbouring inputs. Some of the lines of a claim, or
    lines with larger deltas, are a weaker claim, so refuting them refutes the claim too.

    Attributes:
        kappas: The slopes, rising.
        deltas: The largest P that each line allows at Q = 0, falling.
        corners_q: The Q at which each line meets the next steeper one.
        corners_p: The P at which it does.
    """

    kappas: Floats
    deltas: Floats
    corners_q: Floats
    corners_p: Floats

    def __init__(self, kappas: npt.ArrayLike, deltas: npt.ArrayLike) -> None:
        slopes, allowed = checks.vector("kappas", kappas), checks.vector("deltas", deltas)
        checks.same_length("deltas", len(allowed), "kappas", len(slopes))
        if len(slopes) == 0 or not (slopes > 0).all() or not np.isfinite(slopes).all():
            raise InputError(f"kappas must be positive and finite, got {shown(kappas)}")
        if not ((allowed >= 0) & (allowed <= 1)).all():
            raise InputError(f"deltas must be between 0 and 1, got {shown(deltas)}")
        kept = _envelope(slopes, allowed)
        slopes, allowed = slopes[kept], allowed[kept]
        meet = -np.diff(allowed) / np.diff(slopes)
        checks.assign(
            self, kappas=slopes, deltas=allowed, corners_q=meet, corners_p=allowed[:-1] + slopes[:-1] * meet
        )

    def largest(self, q: npt.ArrayLike) -> Floats:
        """The largest P that the lines allow at each Q."""
        allowed = (self.deltas + self.kappas * np.asarray(q)[..., None]).min(axis=-1)
        return np.asarray(np.minimum(allowed, 1.0))

    def mean_accuracy(self, share: npt.ArrayLike) -> Floats:
        """The largest mean accuracy of guesses about a share of the elements: P / share, P + Q = share."""
        of_all = np.asarray(share)
        # On a line P = delta + kappa Q, so Q = (share - delta) / (1 + kappa). The largest Q of a line holds.
        wrong = ((of_all[..., None] - self.deltas) / (1 + self.kappas)).max(axis=-1)
        return np.asarray((of_all - np.maximum(wrong, 0.0)) / of_all)


def _envelope(slopes: Floats, allowed: Floats) -> npt.NDArray[np.int64]:
    """The lines that are below all others somewhere on Q >= 0, by rising slope."""
    # A line is useless if one with a smaller slope has a delta that is no larger.
    order = np.lexsort((allowed, slopes))
    lower = np.minimum.accumulate(np.append(np.inf, allowed[order]))[:-1]
    order = order[allowed[order] < lower]
    # If corners follow each other in the right order, as on every smooth curve, all lines are needed.
    falls = -np.diff(allowed[order]) / np.diff(slopes[order])
    if (falls[1:] < falls[:-1] * (1 - 1e-12)).all():
        return order
    kept: list[int] = []
    for line in order.tolist():
        while len(kept) > 1:
            first, last = kept[-2:]
            # The last line is nowhere lowest if this one meets the line before it no later than it does.
            left = (allowed[last] - allowed[first]) * (slopes[line] - slopes[first])
            if left < (allowed[line] - allowed[first]) * (slopes[last] - slopes[first]):
                break
            kept.pop()
        kept.append(line)
    return np.array(kept, dtype=np.int64)
