"""Checks that no row changes another row's contribution to the clipped sum. Canaries cannot detect that.

Clipping bounds the contribution of a row. If a row also changes the contributions of *others*, for example
through a loss divided by the number of tokens in the batch, BatchNorm, or a contrastive loss, then adding or
removing it moves the sum by more than the clip norm, and the noise hides less than the accountant assumes.

Write S(b) for the clipped sum of a batch b. The contribution of row k to b is S(b) - S(b without k). If rows
are isolated, it is the same with and without another row i, so for every two rows

    S(b) - S(b without k) - S(b without i) + S(b without both) = 0.

Only sums are needed, so this works for every way of clipping. The check is repeated without clipping: if
every row is clipped, clipping hides an influence that it may not hide for other rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np

from canaria._core.arrays import Floats
from canaria._core.errors import InputError

Sums = Callable[[Sequence[int]], Floats]
"""The clipped sum of a batch that consists of these rows, as one vector."""

_LEAST_TOLERANCE: Final = 1e-3
"""Changes up to this share of the clip norm are attributed to rounding in single precision."""
_ROUNDING: Final = 12.0
"""A difference of four sums may have this many times the relative rounding error of the arithmetic."""
_CANDIDATES: Final = 4
"""This many times as many rows are tried, to find those with the largest effect."""
_FEWEST: Final = 4
"""The smallest batch in which rows are dropped in pairs."""
_DEPENDENT: Final = 1e-2
"""Four sums count as linearly dependent if their smallest singular value is at most this share of its value
without a common factor. Rounding leaves about 1e-6."""


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """The result of dropping rows of one batch, one at a time and in pairs.

    Attributes:
        rows: The rows that were dropped.
        moved: For each of them, the distance by which dropping it moves the clipped sum, in clip norms.
        influence: For each pair of them, the change of one's contribution if the other is dropped, in clip
            norms; symmetric.
        hidden: The same without clipping, as shares of the largest contribution; None if clipping could not
            be switched off.
        tolerance: Changes up to this are rounding.
        cause: The likely cause, and advice; empty if rows are isolated.

    Example:
        >>> import numpy as np
        >>> from canaria.preflight import Isolation
        >>> zero = np.zeros((2, 2))
        >>> found = Isolation(
        ...     rows=(0, 1), moved=np.ones(2), influence=zero, hidden=None, tolerance=1e-3, cause=""
        ... )
        >>> found.holds, found.sensitivity
        (True, 1.0)
    """

    rows: tuple[int, ...]
    moved: Floats
    influence: Floats
    hidden: Floats | None
    tolerance: float
    cause: str

    @property
    def sensitivity(self) -> float:
        """The farthest that dropping one row moved the clipped sum, in clip norms. It must be at most 1."""
        return float(self.moved.max())

    @property
    def holds(self) -> bool:
        """Whether each row contributes at most the clip norm, independently of the other rows."""
        parts = [self.moved.max() - 1.0, self.influence.max()]
        parts += [] if self.hidden is None else [self.hidden.max()]
        return bool(max(parts) <= self.tolerance)

    def __str__(self) -> str:
        if self.holds:
            return (
                f"Rows are isolated: {len(self.rows)} rows were dropped one at a time and in pairs, and none "
                f"changed another's contribution by more than {self.tolerance:.2g} clip norms. "
                f"The clipped sum moved by at most {self.sensitivity:.2f} clip norms."
            )
        return " ".join([*self._findings(), self.cause])

    def _findings(self) -> list[str]:
        found = []
        if self.influence.max() > self.tolerance:
            one, other = self._most(self.influence)
            found.append(
                f"Rows are not isolated: dropping row {one} changes the contribution of row {other} by "
                f"{self.influence.max():.2g} clip norms."
            )
        elif self.hidden is not None and self.hidden.max() > self.tolerance:
            one, other = self._most(self.hidden)
            found.append(
                f"Rows are not isolated: dropping row {one} changes the gradient of row {other} before "
                f"clipping, by {self.hidden.max():.2g} of the largest. In this batch clipping hides it, but "
                "not if a gradient is shorter than the clip norm."
            )
        row, far = self.rows[int(self.moved.argmax())], self.sensitivity
        if far > 1.0 + self.tolerance:
            found.append(
                f"Dropping row {row} moves the clipped sum by {far:.3f} clip norms, not by at most 1: the "
                f"sensitivity is at least {far:.3f} times what noise and accountant assume."
            )
        return found

    def _most(self, influence: Floats) -> tuple[int, int]:
        one, other = np.unravel_index(int(influence.argmax()), influence.shape)
        return self.rows[one], self.rows[other]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The choice of rows of a batch to drop.

    Attributes:
        count: The number of rows in the batch.
        rows: The rows to drop.
        few: The rows of a small batch, in which rows are dropped in pairs. The effect of one of n rows on
            another often shrinks as 1 / n, though its effect on all of them together does not.
    """

    count: int
    rows: list[int]
    few: list[int]

    @classmethod
    def drawn(cls, sums: Sums, count: int, rows: int, rng: np.random.Generator) -> "Asked":
        """Choose rows: of a random sample, half are those that move the sum farthest, the others arbitrary.

        Those that move it farthest may be similar, and then have no effect on each other.
        """
        if count < 3:
            raise InputError(f"batch must have at least 3 rows, so that two can be dropped, got {count}")
        order = rng.permutation(count).tolist()
        candidates = order[: max(_CANDIDATES * rows, _FEWEST)]
        if len(candidates) > rows:
            whole = sums(range(count))
            far = {row: _far(whole - sums(_without(range(count), row))) for row in candidates}
            farthest = sorted(candidates, key=lambda row: -far[row])[: rows // 2]
            candidates = [*farthest, *(row for row in candidates if row not in farthest)]
        few = candidates[: max(rows, _FEWEST)]
        return cls(count=count, rows=sorted(few[:rows]), few=sorted(few))

    def moved(self, sums: Sums) -> Floats:
        """The distance by which each row moves the sum of the whole batch."""
        whole = sums(range(self.count))
        return np.array([_far(whole - sums(_without(range(self.count), row))) for row in self.rows])


class Pairs:
    """The sums of a small batch without each of some rows, and without each pair of them."""

    def __init__(self, sums: Sums, asked: Asked) -> None:
        self._sums, self._few = sums, asked.few
        self._whole = sums(asked.few)
        self._rest = {row: sums(_without(asked.few, row)) for row in asked.rows}
        self.influence = np.zeros((len(asked.rows), len(asked.rows)))
        for (i, one), (k, other) in combinations(enumerate(asked.rows), 2):
            whole, first, second, both = self.of(one, other)
            # 0 if rows are isolated, by the equation above.
            self.influence[i, k] = self.influence[k, i] = _far(whole - first - second + both)

    @property
    def moved(self) -> Floats:
        """The distance by which each row moves the sum of the small batch."""
        return np.array([_far(self._whole - rest) for rest in self._rest.values()])

    def of(self, one: int, other: int) -> tuple[Floats, Floats, Floats, Floats]:
        """The sums of the batch, without one row, without the other, and without both."""
        both = self._sums(_without(self._few, one, other))
        return self._whole, self._rest[one], self._rest[other], both


def isolation_of(
    clipped: Sums,
    raw: Sums | None,
    *,
    count: int,
    rows: int,
    rng: np.random.Generator,
    clip_norm: float,
    rounding: float,
    cause_in_model: Callable[[Sequence[int], int], str],
) -> Isolation:
    """Drop `rows` rows of a batch of `count`, and compare the sums.

    `clipped` gives the clipped sum of a batch of these rows, and `raw` the same without clipping, if that is
    possible. `rounding` is the relative error of the coarsest arithmetic in use. `cause_in_model` describes
    what dropping a row changes in the model; it returns an empty text if that is not known.
    """
    asked = Asked.drawn(raw or clipped, count, rows, rng)
    pairs = Pairs(clipped, asked)
    moved = np.maximum(asked.moved(clipped), pairs.moved)
    if not np.isfinite(moved).all():
        raise InputError("the clipped sum of this batch is not finite; take rows with finite gradients")
    if moved.max() == 0:
        raise InputError("no row of this batch has a gradient; check a batch that trains the model")
    before = None if raw is None else Pairs(raw, asked)
    found = Isolation(
        rows=tuple(asked.rows),
        moved=moved / clip_norm,
        influence=pairs.influence / clip_norm,
        hidden=None if before is None else before.influence / before.moved.max(),
        tolerance=max(_LEAST_TOLERANCE, _ROUNDING * rounding),
        cause="",
    )
    if found.holds:
        return found
    return replace(found, cause=_cause(found, before or pairs, asked, cause_in_model))


def _cause(
    found: Isolation, pairs: Pairs, asked: Asked, cause_in_model: Callable[[Sequence[int], int], str]
) -> str:
    shares = found.influence if found.hidden is None else found.hidden
    if shares.max() <= found.tolerance:
        return (
            "Likely cause: rows are not clipped one by one, or not to this norm; look at whatever replaces "
            "the clipping of the library."
        )
    i, k = np.unravel_index(int(shares.argmax()), shares.shape)
    one, other = found.rows[i], found.rows[k]
    in_model = cause_in_model(asked.few, one)
    if in_model:
        return in_model
    factors = _common_factor(*pairs.of(one, other))
    if factors is None:
        return (
            "Likely cause: the loss of a row looks at other rows, as a contrastive loss or a normalisation "
            "over the batch does; give every row a loss of its own."
        )
    # A mean over n rows that is scaled as if it were over another number grows by n / (n - 1), or falls.
    if np.allclose(np.abs(np.log(factors)), np.log(len(asked.few) / (len(asked.few) - 1)), atol=_DEPENDENT):
        return (
            "Likely cause: the loss is scaled by the number of rows (without a row all gradients are "
            f"{factors[0]:.2f} times as long); reduce the losses of rows as the optimizer was told, by their "
            "mean or by their sum."
        )
    return (
        "Likely cause: the loss of the batch is divided by a number that depends on its rows, like the "
        f"number of tokens (without row {one} all gradients are {factors[0]:.2f} times as long, without row "
        f"{other} {factors[1]:.2f}); average over the tokens of each row first, then over rows."
    )


def _common_factor(whole: Floats, *rest: Floats) -> tuple[float, float] | None:
    """The factors by which all gradients grow without one row and without the other; None if unequal.

    S(b) = f(b) * (sum of fixed gradients) makes the four sums linearly dependent, with coefficients 1 / f(b),
    -1 / f(b without one), ...; sums of gradients that change in other ways are independent.
    """
    matrix = np.stack([whole, *rest]).astype(np.float64)
    left, values, _ = np.linalg.svd(matrix, full_matrices=False)
    change = _far(whole - rest[0] - rest[1] + rest[2]) / 2.0
    coefficients = left[:, -1]
    if len(values) < 4 or values[-1] > _DEPENDENT * change or np.abs(coefficients).min() < _DEPENDENT:
        return None
    return float(-coefficients[0] / coefficients[1]), float(-coefficients[0] / coefficients[2])


def _without(batch: Sequence[int], *dropped: int) -> list[int]:
    return [row for row in batch if row not in dropped]


def _far(vector: Floats) -> float:
    return float(np.linalg.norm(vector))
