"""Does one row change what another contributes to the clipped sum? No canary can see that.

Clipping bounds what a row contributes. If a row also changes what *others* contribute, through a loss that is
divided by the number of tokens of the batch, through BatchNorm, through a contrastive loss, then adding or
removing it moves the sum by more than the clip norm, and the noise hides less than the accountant believes.

Write S(b) for the clipped sum of a batch b. What row k contributes to b is S(b) - S(b without k). If rows are
isolated, that is the same with and without another row i, so that for every two rows

    S(b) - S(b without k) - S(b without i) + S(b without both) = 0.

Only sums are needed, so this works for every way of clipping. The same is asked of the sums without clipping:
where every row is clipped, clipping hides an influence that it would not hide for other rows.
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
"""Changes of this share of the clip norm are taken for rounding, in single precision."""
_ROUNDING: Final = 12.0
"""How many times the relative rounding error of the arithmetic may show in a difference of four sums."""
_CANDIDATES: Final = 4
"""How many times as many rows are tried, to find those that matter most."""
_FEWEST: Final = 4
"""The smallest batch in which rows are dropped two by two."""
_DEPENDENT: Final = 1e-2
"""Four sums are taken as linearly dependent if their smallest singular value is at most this much of what it
would be without a common factor; rounding leaves some 1e-6."""


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """What dropping rows of one batch, one by one and two by two, has shown.

    Attributes:
        rows: The rows that were dropped.
        moved: For each of them, how far the clipped sum moves if it is dropped, in clip norms.
        influence: For each two of them, by how much the contribution of one changes if the other is dropped,
            in clip norms; symmetric.
        hidden: The same without clipping, as shares of the largest contribution; None if there was no way to
            switch clipping off.
        tolerance: Changes up to this are rounding.
        cause: What the likely cause is, and what to do; empty if rows are isolated.

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
        """The farthest that dropping one row moved the clipped sum, in clip norms; at most 1 is promised."""
        return float(self.moved.max())

    @property
    def holds(self) -> bool:
        """Whether each row contributes at most the clip norm, whatever the other rows are."""
        parts = [self.moved.max() - 1.0, self.influence.max()]
        parts += [] if self.hidden is None else [self.hidden.max()]
        return bool(max(parts) <= self.tolerance)

    def __str__(self) -> str:
        if self.holds:
            return (
                f"Rows are isolated: {len(self.rows)} rows were dropped one by one and two by two, and none "
                f"changed what another contributes by more than {self.tolerance:.2g} clip norms. "
                f"The clipped sum moved by at most {self.sensitivity:.2f} clip norms."
            )
        return " ".join([*self._findings(), self.cause])

    def _findings(self) -> list[str]:
        found = []
        if self.influence.max() > self.tolerance:
            one, other = self._most(self.influence)
            found.append(
                f"Rows are not isolated: dropping row {one} changes what row {other} contributes by "
                f"{self.influence.max():.2g} clip norms."
            )
        elif self.hidden is not None and self.hidden.max() > self.tolerance:
            one, other = self._most(self.hidden)
            found.append(
                f"Rows are not isolated: dropping row {one} changes the gradient of row {other} before "
                f"clipping, by {self.hidden.max():.2g} of the largest. In this batch clipping hides it; "
                "where a gradient is shorter than the clip norm it does not."
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
    """Which rows of a batch are dropped.

    Attributes:
        count: How many rows the batch has.
        rows: The rows to drop.
        few: The rows of a small batch, in which they are dropped two by two. What one of n rows does to
            another often shrinks as 1 / n, though what it does to all of them together does not.

    """

    count: int
    rows: list[int]
    few: list[int]

    @classmethod
    def drawn(cls, sums: Sums, count: int, rows: int, rng: np.random.Generator) -> "Asked":
        """Half of them the rows that move the sum farthest, of some at random; the others as they come.

        Those that move it farthest may be alike, and then do nothing to each other.
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
        """How far each row moves the sum of the whole batch."""
        whole = sums(range(self.count))
        return np.array([_far(whole - sums(_without(range(self.count), row))) for row in self.rows])


class Pairs:
    """The sums of a small batch, without each of some rows, and without each two of them."""

    def __init__(self, sums: Sums, asked: Asked) -> None:
        self._sums, self._few = sums, asked.few
        self._whole = sums(asked.few)
        self._rest = {row: sums(_without(asked.few, row)) for row in asked.rows}
        self.influence = np.zeros((len(asked.rows), len(asked.rows)))
        for (i, one), (k, other) in combinations(enumerate(asked.rows), 2):
            whole, first, second, both = self.of(one, other)
            self.influence[i, k] = self.influence[k, i] = _far(whole - first - second + both)

    @property
    def moved(self) -> Floats:
        """How far each row moves the sum of the small batch."""
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
    """Drop so many rows of a batch of `count`.

    Args:
        clipped: The clipped sum of a batch of these rows.
        raw: The same without clipping, if there is a way.
        count: The number of rows of the batch.
        rows: How many to drop.
        rng: Which rows to try.
        clip_norm: The clip norm.
        rounding: The relative rounding error of the roughest arithmetic in use.
        cause_in_model: What dropping one row of a batch changes in the model, in words; empty for nothing.

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
    """By how much all gradients grow without one row and without the other, if that is all that happens.

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
