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
"""Changes of this share of the clip norm are taken for rounding..."""
_MOST_TOLERANCE: Final = 0.1
"""... and larger ones never, however rough the arithmetic is."""
_ROUNDING: Final = 20.0
"""How many times the rounding of one sum may add up to in a difference of four."""
_CANDIDATES: Final = 4
"""How many times as many rows are tried, to find those that matter most."""
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
                f"{self.influence.max():.2f} clip norms."
            )
        elif self.hidden is not None and self.hidden.max() > self.tolerance:
            one, other = self._most(self.hidden)
            found.append(
                f"Rows are not isolated: dropping row {one} changes the gradient of row {other} before "
                f"clipping, by {self.hidden.max():.0%} of the largest. In this batch clipping hides it; "
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


@dataclass(frozen=True)
class Drops:
    """The sums of a batch without each of some rows, and without each two of them."""

    whole: Floats
    without: dict[int, Floats]
    influence: Floats
    rounding: float

    @classmethod
    def of(cls, sums: Sums, count: int, rows: Sequence[int]) -> "Drops":
        """Drop these rows of a batch of `count`, one by one and two by two."""

        def less(*dropped: int) -> Floats:
            return sums(_others(count, *dropped))

        whole = less()
        without = {row: less(row) for row in rows}
        influence = np.zeros((len(rows), len(rows)))
        for (i, one), (k, other) in combinations(enumerate(rows), 2):
            changed = whole - without[one] - without[other] + less(one, other)
            influence[i, k] = influence[k, i] = np.linalg.norm(changed)
        return cls(whole, without, influence, _rounding(sums, whole, count))

    @property
    def moved(self) -> Floats:
        """How far each row moves the sum."""
        return np.array([np.linalg.norm(self.whole - rest) for rest in self.without.values()])


def isolation_of(
    clipped: Sums,
    raw: Sums | None,
    *,
    count: int,
    rows: int,
    rng: np.random.Generator,
    clip_norm: float,
    cause_in_model: Callable[[int], str],
) -> Isolation:
    """Drop so many rows of a batch of `count`; `cause_in_model` says what dropping one changes there."""
    dropped = _chosen(raw or clipped, count, rows, rng)
    drops = Drops.of(clipped, count, dropped)
    unclipped = None if raw is None else Drops.of(raw, count, dropped)
    scale = 1.0 if unclipped is None else max(float(unclipped.moved.max()), np.finfo(float).tiny)
    rounding = max(drops.rounding / clip_norm, 0.0 if unclipped is None else unclipped.rounding / scale)
    if not np.isfinite(drops.moved).all():
        raise InputError("the clipped sum of this batch is not finite; take rows with finite gradients")
    found = Isolation(
        rows=tuple(dropped),
        moved=drops.moved / clip_norm,
        influence=drops.influence / clip_norm,
        hidden=None if unclipped is None else unclipped.influence / scale,
        tolerance=float(np.clip(_ROUNDING * rounding, _LEAST_TOLERANCE, _MOST_TOLERANCE)),
        cause="",
    )
    if found.holds:
        return found
    cause = _cause(found, unclipped or drops, raw or clipped, count, cause_in_model)
    return replace(found, cause=cause)


def _cause(
    found: Isolation,
    drops: Drops,
    sums: Sums,
    count: int,
    cause_in_model: Callable[[int], str],
) -> str:
    shares = found.influence if found.hidden is None else found.hidden
    if shares.max() <= found.tolerance:
        return (
            "Likely cause: rows are not clipped one by one, or not to this norm; look at whatever replaces "
            "the clipping of the library."
        )
    i, k = np.unravel_index(int(shares.argmax()), shares.shape)
    one, other = found.rows[i], found.rows[k]
    in_model = cause_in_model(one)
    if in_model:
        return in_model
    both = sums(_others(count, one, other))
    factors = _common_factor(drops.whole, drops.without[one], drops.without[other], both)
    if factors is None:
        return (
            "Likely cause: the loss of a row looks at other rows, as a contrastive loss or a normalisation "
            "over the batch does; give every row a loss of its own."
        )
    if abs(factors[0] / factors[1] - 1.0) < _DEPENDENT:
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
    change = np.linalg.norm(whole - rest[0] - rest[1] + rest[2]) / 2.0
    coefficients = left[:, -1]
    if len(values) < 4 or values[-1] > _DEPENDENT * change or np.abs(coefficients).min() < _DEPENDENT:
        return None
    return float(-coefficients[0] / coefficients[1]), float(-coefficients[0] / coefficients[2])


def _rounding(sums: Sums, whole: Floats, count: int) -> float:
    """How much a sum changes if its rows come in another order, at the least of three.

    The smallest: a loss may depend on the order, then most orders change more than rounding does.
    """
    orders = [list(range(count))[::-1], [*range(1, count), 0], [*range(0, count, 2), *range(1, count, 2)]]
    return float(min(np.linalg.norm(sums(order) - whole) for order in orders))


def _others(count: int, *dropped: int) -> list[int]:
    return [row for row in range(count) if row not in dropped]


def _chosen(sums: Sums, count: int, rows: int, rng: np.random.Generator) -> list[int]:
    """The rows that move the sum farthest, of some at random."""
    if count < 3:
        raise InputError(f"batch must have at least 3 rows, so that two can be dropped, got {count}")
    candidates = rng.choice(count, min(_CANDIDATES * rows, count), replace=False).tolist()
    if len(candidates) <= rows:
        return sorted(candidates)
    whole = sums(_others(count))
    far = {row: np.linalg.norm(whole - sums(_others(count, row))) for row in candidates}
    return sorted(sorted(candidates, key=lambda row: -far[row])[:rows])
