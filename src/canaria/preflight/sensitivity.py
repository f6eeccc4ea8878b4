"""Whether one row moves a clipped sum by at most the clip norm: for any step, of any framework.

Each row of a batch is removed, as it is and in extreme forms, and the step runs with and without it. The
sensitivity that is seen is a lower bound on the true one, so a step that moves too far has a fault for
certain, and one that does not may still have one.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from canaria._core import checks, seeds
from canaria._core.arrays import Floats
from canaria._core.copies import copied
from canaria._core.errors import InputError, shown

_SLACK: Final = 1e-3
"""Rounding may clip a row to a norm that is larger by this share."""
_ROUNDING: Final = {"float16": 2.0**-8, "bfloat16": 2.0**-5}
_ROUNDING_ELSE: Final = 2.0**-20
"""Sums over a batch are rounded: by up to this share of their length, by the type of their numbers."""
_LARGE: Final = 1e4
"""The factor of a large row: it must be clipped."""
_HIDDEN: Final = 0.5
"""The largest rounding, in norms, at which a fault still shows."""
_MISSING: Final = " with missing numbers"
_PURPOSE: Final = 0x73656E73


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """How far one row moved the result of a step.

    Attributes:
        norm: The most that one row may move it.
        moved: The farthest that one moved it.
        how: Which row moved it that far, and in which form.
        rows: The number of rows that were removed.
        failed: A row, and what the step does instead of a finite result if it is large or has missing
            numbers; empty if it always gives one.

    Example:
        >>> from canaria.preflight import Sensitivity
        >>> found = Sensitivity(norm=1.0, moved=2.5, how="row 3", rows=8)
        >>> found.holds
        False
    """

    norm: float
    moved: float
    how: str
    rows: int
    failed: str = ""

    @property
    def holds(self) -> bool:
        """Whether no row moved the result by more than the norm."""
        return self.moved <= self.norm * (1 + _SLACK)

    def __str__(self) -> str:
        """The verdict in a sentence."""
        if self.holds:
            said = (
                f"One row moves the result by at most {self.moved / self.norm:.2f} norms: {self.rows} rows "
                f"were removed, as they are and {_LARGE:g} times as large."
            )
        else:
            said = (
                f"{self.how} moves the result by {self.moved / self.norm:.4g} norms, where 1 is the most: "
                "the noise hides that much less than stated."
            )
        return f"{said} {self.failed}: check rows before the step." if self.failed else said


def check_sensitivity(
    step: Callable[[Any], Any], batch: Any, norm: float, *, rows: int = 32, rng: seeds.Seed = None
) -> Sensitivity:
    """Check that one row moves what a step computes by at most the clip norm.

    Rows are removed one at a time, as they are and 10,000 times as large, since these must be clipped.

    Args:
        step: `step(batch)` returns the sum of clipped gradients, before noise: arrays or tensors, in lists
            or dicts. If it returns a mean, multiply it by the batch size that the noise is made for.
        batch: An array, a tensor or a list with one entry for each row, or a tuple or dict of those.
        norm: The clip norm.
        rows: The most rows to remove.
        rng: A seed for the choice of rows, and for the random numbers of the step.

    Returns:
        The farthest that a row moved the result; print it.

    Raises:
        InputError: If two runs of the step on the same batch differ.

    Example:
        >>> import numpy as np
        >>> from canaria.preflight import check_sensitivity
        >>> def step(batch):  # clips the mean instead of each row
        ...     mean = batch.mean(axis=0)
        ...     return len(batch) * mean / max(1.0, np.linalg.norm(mean))
        >>> print(check_sensitivity(step, np.eye(4) * 3, norm=1.0, rng=0))
        Row 0, 10000 times as large, moves the result by 5 norms, ...
    """
    checks.positive("norm", norm)
    count = _length(batch)
    drawn = seeds.generator(rng, _PURPOSE)
    chosen = sorted(drawn.permutation(count)[: checks.integer("rows", rows, 1)].tolist())
    sums = _Sums(step, int(drawn.integers(2**32)))
    farthest, how, failed = -1.0, "", ""
    with seeds.global_state_kept():
        given = sums.of(batch)
        apart = sums.apart(given, sums.of(batch, other=True))
        if not math.isfinite(apart):
            raise InputError("the result of step is not finite on the given batch")
        if sums.hidden(given) > _HIDDEN * norm:
            raise InputError(
                "the result is so long that rounding hides what a row does; return the sum alone"
            )
        if apart > 0:
            raise InputError("two runs of step on one batch differ; turn off noise, dropout and the like")
        for row in chosen:
            without = sums.of(_taken(batch, [place for place in range(count) if place != row]))
            for form, changed in _forms(batch, row):
                try:
                    moved = sums.apart(given if changed is batch else sums.of(changed), without)
                except Exception as error:
                    if not form:
                        raise
                    failed = failed or f"Row {row}{form} makes the step raise {error!r}"
                    continue
                if not math.isfinite(moved):
                    failed = failed or f"Row {row}{form} makes the result infinite or nan"
                    continue
                if moved > farthest:
                    farthest, how = moved, f"Row {row}{form}"
    return Sensitivity(norm=norm, moved=farthest, how=how, rows=len(chosen), failed=failed)


class _Sums:
    """Runs a step with the same random numbers each time, and measures how far results are apart."""

    def __init__(self, step: Callable[[Any], Any], seed: int) -> None:
        self._step, self._seed = step, seed
        self._rounding = _ROUNDING_ELSE

    def of(self, batch: Any, *, other: bool = False) -> dict[str, Floats]:
        """The arrays of a result, by their place in it; with `other`, from other random numbers."""
        seeds.set_global((self._seed + other) % 2**32)
        # A copy, since a step may change its batch in place.
        arrays = list(_arrays("", self._step(copied("batch", batch))))
        if not arrays:
            raise InputError("step must return the clipped sum: arrays or tensors, in lists or dicts")
        self._rounding = max([self._rounding, *(rounding for _, _, rounding in arrays)])
        return {name: held for name, held, _ in arrays}

    def hidden(self, one: dict[str, Floats]) -> float:
        """How far rounding may move this result."""
        length = math.sqrt(sum(float(np.square(held).sum()) for held in one.values()))
        return self._rounding * length

    def apart(self, one: dict[str, Floats], other: dict[str, Floats]) -> float:
        """The distance of two results, less what rounding may be; an array that is absent counts as 0.

        It is nan or infinite if a result is.
        """
        names = one.keys() | other.keys()
        pairs = [(one.get(name, np.zeros(1)), other.get(name, np.zeros(1))) for name in names]
        with np.errstate(all="ignore"):  # what is not finite is reported
            distance = math.sqrt(sum(float(np.square(first - second).sum()) for first, second in pairs))
            distance -= self.hidden(one)
        return distance if not distance <= 0 else 0.0


def _arrays(name: str, value: Any) -> Iterator[tuple[str, Floats, float]]:
    """The arrays in nested lists and dicts, with their rounding; None stands for a gradient that is 0."""
    if isinstance(value, Mapping | list | tuple):
        for key, part in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _arrays(f"{name}[{key!r}]", part)
    elif value is not None:
        rounding = _ROUNDING.get(str(getattr(value, "dtype", "")).removeprefix("torch."), _ROUNDING_ELSE)
        if hasattr(value, "detach"):  # a tensor of torch; NumPy has no bfloat16
            value = value.detach().cpu()
            value = (value if value.is_complex() else value.double()).numpy()
        held = np.asarray(value)
        if held.dtype.kind == "c":
            held = np.stack([held.real, held.imag])
        yield name, held.astype(np.float64), rounding


def _length(batch: Any) -> int:
    """The number of rows."""
    if hasattr(batch, "iloc"):
        _unusable(batch)
    parts = list(batch.values()) if isinstance(batch, Mapping) else batch
    parts = parts if isinstance(batch, Mapping | tuple) else [batch]
    lengths = {len(part) if hasattr(part, "__len__") else _unusable(part) for part in parts}
    if len(lengths) != 1 or min(lengths) < 2:
        raise InputError(
            f"batch must have at least 2 rows, as many in each of its parts, got {sorted(lengths)}"
        )
    return lengths.pop()


def _taken(batch: Any, places: Sequence[int]) -> Any:
    """A batch of the rows at these places."""
    if isinstance(batch, Mapping):
        return {name: _taken(part, places) for name, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_taken(part, places) for part in batch)
    if isinstance(batch, list):
        return [batch[place] for place in places]
    return batch[np.asarray(places)] if hasattr(batch, "shape") else _unusable(batch)


def _unusable(batch: Any) -> Any:
    raise InputError(f"batch must hold arrays, tensors or lists of rows, got {shown(batch)}")


def _forms(batch: Any, row: int) -> Iterator[tuple[str, Any]]:
    """The batch with one row in each form, with words for it. Only decimal numbers are changed."""
    yield "", batch
    large = [(f", {factor:g} times as large,", factor) for factor in (_LARGE, -_LARGE)]
    for form, factor in (*large, (_MISSING, math.nan)):
        changed = _changed(batch, row, factor)
        if changed is not None:
            yield form, changed


def _changed(batch: Any, row: int, factor: float) -> Any:
    """A copy of the batch with the decimal numbers of a row times a factor; None if it has none."""
    if isinstance(batch, Mapping | tuple):
        return _each(batch, lambda part: _changed(part, row, factor))
    value = _times(batch[row], factor)
    if value is None:
        return None
    if isinstance(batch, list):
        return [*batch[:row], value, *batch[row + 1 :]]
    if hasattr(batch, "at"):  # of JAX, which changes nothing in place
        return batch.at[row].set(value)
    copy = batch.clone() if hasattr(batch, "clone") else batch.copy()
    copy[row] = value
    return copy


def _times(value: Any, factor: float) -> Any:
    """A row with its decimal numbers times a factor; None if it has none."""
    if isinstance(value, Mapping | tuple | list):
        return _each(value, lambda part: _times(part, factor))
    decimal = isinstance(value, float) or "float" in str(getattr(value, "dtype", ""))
    return value * factor if decimal else None


def _each(parts: Any, change: Callable[[Any], Any]) -> Any:
    """A dict, a tuple or a list with those parts changed that can be; None if none can."""
    items = dict(parts) if isinstance(parts, Mapping) else dict(enumerate(parts))
    changed = {name: change(part) for name, part in items.items()}
    if all(part is None for part in changed.values()):
        return None
    changed = {name: items[name] if part is None else part for name, part in changed.items()}
    return changed if isinstance(parts, Mapping) else type(parts)(changed.values())
