"""Canary rows in a data set, and the record of the sampler's draws."""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from torch.utils.data import Dataset

from canaria._core import checks
from canaria._core.arrays import Integers
from canaria._core.errors import InputError
from canaria.integrations.opacus import _samplers
from canaria.training.canaries.sampling import Sampling
from canaria.training.conformance.draws import Batches, Drawn, Pass, contradictions
from canaria.training.conformance.processes import Stretches

_ORDER: Final = 0x6F726472
"""The seed for the places of canary rows, which need not be secret."""
_ANY_NUMBER: Final = 2**62
"""The rows of a batch that was not seen."""
_LEFT_OUT: Final = 0.01
"""The expected number of empty batches above which the others no longer follow Poisson sampling's law."""


class WithCanaries(Dataset[Any], ABC):
    """A data set with `count` canary rows, whatever the hidden bits are. Each repeats a real row.

    Canaries are at random places among the rows. Opacus' sampler returns a batch in order, so canaries at the
    end of the data set would never be in the first part of a batch, and would miss a fault there.
    """

    def __init__(self, dataset: Any, count: int) -> None:
        self.dataset = dataset
        self.count = checks.integer("canaries", count, 1)
        if not hasattr(dataset, "__len__"):
            raise InputError(
                f"a data set must have a length to be sampled from, got {type(dataset).__name__}"
            )
        self.real = len(dataset)
        if self.real == 0:
            raise InputError("a data set must hold at least one row, got none")
        self.rows: Integers = np.random.default_rng(_ORDER).permutation(len(self))
        """The row at each place: a row of the data set if below `real`, else `real` plus the canary."""

    def __len__(self) -> int:
        return self.real + self.count

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        row = int(self.rows[index])
        canary = row - self.real
        return self.marked(self.dataset[canary % self.real if canary >= 0 else row], canary, index)

    @abstractmethod
    def marked(self, item: Any, canary: int, index: int) -> Any:
        """The item at this index, which repeats a real row; `canary` is negative if it is a real row."""


class CanaryRows(WithCanaries):
    """A data set with canary rows that look like real ones; the audit replaces their gradients.

    Args:
        dataset: The data set.
        count: The number of canary rows.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> from canaria.integrations.opacus import CanaryRows
        >>> len(CanaryRows(TensorDataset(torch.zeros(100, 3)), count=20))
        120
    """

    def marked(self, item: Any, canary: int, index: int) -> Any:
        """The item unchanged."""
        return item


def with_canary_rows(dataset: Any, canaries: int) -> CanaryRows:
    """Add canary rows to a data set, for `attach(..., injection="rows")`.

    Make the data loader from the result. Sampling rate and batch size then include the canaries.

    Args:
        dataset: The data set.
        canaries: The number of canaries.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> from canaria.integrations.opacus import with_canary_rows
        >>> rows = with_canary_rows(TensorDataset(torch.zeros(100, 3), torch.zeros(100)), canaries=20)
        >>> len(rows)
        120
    """
    return CanaryRows(dataset, canaries)


@dataclass
class _Pass:
    """One pass over a loader: batches drawn, steps made of them, and whether the sampler finished.

    `late` is the number of steps after the sampler finished.
    """

    batches: int = 0
    steps: int = 0
    ended: bool = False
    late: int = 0


class Draws:
    """The draws of a sampler: the batches, and their rows in the order in which the optimizer sees them.

    Loaders prefetch and may split a batch, but they keep the order. A new pass starts afresh. `release`
    restores the sampler. A pass that had `begun` before is not seen. Rows are stored if `followed`. If
    several processes train together, each tests its own sampler, by the positions drawn among the rows of its
    process; these are added to `stretches`, for comparison with other processes.
    """

    def __init__(
        self,
        loader: Any,
        sampling: Sampling,
        *,
        begun: bool = False,
        followed: bool = True,
        stretches: Stretches | None = None,
        public_rows: int = 0,
    ) -> None:
        self.loader, self._sampling, self._followed = loader, sampling, followed
        self._public = public_rows
        self._ahead = 1 + loader.num_workers * (loader.prefetch_factor or 0)
        self._begun = begun
        self._passes: list[_Pass] = []
        self._training: _Pass | None = None
        self._undecided: list[tuple[_Pass, _Pass]] = []
        self._stray = 0
        self._rows: list[tuple[bool, Any]] = []
        self._closed = False
        self._batches: Batches | None = Batches(_samplers.rows_of_process(loader))
        self._stretches = stretches
        self._drawn: deque[list[int]] = deque()
        self._left: list[int] = []
        self._undo = _samplers.record_draws(_samplers.sampler_of(loader), self.begin)

    def release(self) -> None:
        """Stop recording, and restore the sampler."""
        self._closed = True
        self._undo()

    def begin(self) -> _samplers.OnBatch:
        """Begin a pass; the returned function is called with each of its batches."""
        this = _Pass()
        self._drawn.clear()
        self._left.clear()
        if not self._closed:
            self._passes.append(this)
        drawn = None if self._batches is None else self._batches.begin()
        places = self._places()

        def record(rows: list[int] | None) -> None:
            if self._closed:
                return
            self._decide(this)
            if rows is None:
                this.ended = True
                if self._batches is not None and drawn is not None:
                    self._batches.end(drawn)
            else:
                this.batches += 1
                self._rows.append((False, len(rows)))
                self._test(rows if places is None else places[rows], drawn)
                if self._followed:
                    self._drawn.append(rows)

        return record

    def _places(self) -> Integers | None:
        """The place of each row among those of this process in the next pass; -1 for rows of others.

        None if the process has all rows. It takes half the memory of the sampler's own shuffle.
        """
        sampler = self.loader.batch_sampler
        if self._batches is None or not _samplers.shares_rows(self.loader):
            return None
        own = _samplers.rows_here(sampler, sampler.epoch)
        places = np.full(sampler.total_size, -1, dtype=np.int32)
        places[own] = np.arange(len(own))
        return places

    def _test(self, positions: Any, this: Pass | None) -> None:
        """Record a batch for the tests, unless the sampler divides rows differently from its class."""
        if self._batches is None or this is None:
            return
        if isinstance(positions, np.ndarray) and (positions < 0).any():
            self._batches = self._stretches = None
            return
        self._batches.add(positions, this)
        if self._stretches is not None:
            self._stretches.add(positions)

    def count_step(self, rows: Any) -> None:
        """Count a step of this number of rows (0 if unknown), from the newest pass that has a batch left.

        If the previous training pass has a batch left too, either training left it, or the loader was only
        inspected; the next draw decides. (With workers, remaining batches were prefetched.)
        """
        self._rows.append((True, rows))
        newest = next((one for one in reversed(self._passes) if self._could_feed(one)), None)
        now = self._training
        if newest is None:
            self._stray += bool(self._passes) or not self._begun
        elif now is None or now is newest or now.batches == now.steps or self.loader.num_workers:
            self._count(newest)
        else:
            self._undecided.append((now, newest))

    def _could_feed(self, one: _Pass) -> bool:
        """Whether a pass has a batch left; if its sampler has finished, one that was prefetched.

        A pass that fed steps may have more left: batches that were accumulated have no step of their own.
        """
        left = one.batches - one.steps
        fetched = left <= self._ahead or (one is self._training and one.late < self._ahead)
        return left > 0 and (fetched or not one.ended)

    def _count(self, one: _Pass) -> None:
        one.steps += self._sampling.accumulated
        one.late += one.ended
        self._training = one

    def _decide(self, drawing: _Pass | None = None) -> None:
        """Assign undecided steps to the pass that draws now, or else to the newest."""
        for now, newest in self._undecided:
            self._count(now if drawing is now else newest)
        self._undecided.clear()

    def contradictions(self) -> tuple[str, ...]:
        """Contradictions to the rule that each step uses one batch that this sampler drew by coins.

        A pass without a step is an evaluation. The last pass, and one that did not finish, may have a batch
        left, and prefetched ones.
        """
        self._decide()
        if self._batches is not None and self._batches.twice:
            return (f"a row was drawn twice for one batch, which cannot happen with {self._sampling.words}",)
        if self._stray:
            return (f"{self._stray} steps were made of batches that the attached data loader did not draw",)
        trained = [one for one in self._passes if one.steps]
        left = sum(max(0, one.batches - one.steps - self._unused(one, trained[-1])) for one in trained)
        if left:
            return (
                f"{left} batches were drawn without a step of their own, but the accountant assumes one for "
                "each: batches were accumulated without BatchMemoryManager, or left out",
            )
        if more := self._more_rows():
            return (more,)
        return () if self._batches is None else contradictions(self._batches.drawn(), self._sampling)

    def _more_rows(self) -> str:
        """The contradiction if a step was made of more rows than a batch that was left for it; else empty.

        Which batch a step was made of is not always known: loaders fetch ahead, and programs look at batches.
        So each step takes the smallest batch, of those drawn and not taken before, that has at least its
        rows. If there is an assignment at all, this one works. Steps of fewer rows, as if a program leaves
        rows out by what is in them, are no fault.
        """
        if self._sampling.accumulated > 1:
            return ""
        seen, left = self._rows, []
        if self._begun:
            # The batches of a pass that had begun were not seen. Some may be left when the next pass begins.
            first = next((place for place, (is_step, _) in enumerate(seen) if not is_step), len(seen))
            seen, left = seen[first:], [_ANY_NUMBER] * self._ahead
        for is_step, count in seen:
            if not is_step:
                insort(left, count)
                continue
            reached = max(int(count) - self._public, 0)
            place = bisect_left(left, reached)
            if place < len(left):
                del left[place]
            elif reached:
                return (
                    f"a step had {int(count)} rows where the sampler drew {max(left, default=0)}: rows are "
                    "repeated, or come from elsewhere, and each adds up to a clip norm that the accountant "
                    "does not count; if they are generated or public, say public_rows= when you attach"
                )
        return ""

    def _unused(self, one: _Pass, last: _Pass) -> int:
        """The number of batches of a pass that may be without a step because training left the pass early.

        A finished sampler has handed out all of its batches, unless workers prefetched some.
        """
        return 0 if one.ended and (one is not last or not self.loader.num_workers) else self._ahead

    @property
    def strayed(self) -> bool:
        """Whether steps were made of batches that this sampler did not draw."""
        return self._stray > 0

    def left_early(self) -> bool:
        """Whether training left a pass before its end, and then began another."""
        self._decide()
        trained = [one for one in self._passes if one.steps]
        return any(one.steps < len(self.loader.batch_sampler) for one in trained[:-1])

    def drawn(self) -> Drawn | None:
        """A summary of the draws for the conformance test; None if there is an excuse."""
        return None if self._batches is None or self.excuse() else self._batches.drawn()

    def excuse(self) -> str:
        """The reason why the draws cannot be tested; empty if they can.

        Opacus' distributed sampler skips empty batches, so the remaining ones do not follow Poisson sampling.
        """
        if self._batches is None:
            return "the sampler divides the rows between processes in a way of its own"
        batches = sum(one.batches for one in self._passes)
        empty = (1 - _samplers.rate_of(self.loader)) ** _samplers.rows_of_process(self.loader)
        if _samplers.shares_rows(self.loader) and batches * empty > _LEFT_OUT:
            return "the sampler leaves out empty batches, and batches are so small that some were left out"
        return ""

    def take(self, count: int) -> list[int]:
        """The next `count` rows."""
        if not self._left and self._drawn:
            self._left.extend(self._drawn.popleft())
        if count > len(self._left):
            raise InputError(
                f"{count} rows reached the optimizer where the sampler drew {len(self._left)}; with "
                "injection='rows' every batch must go through forward, backward and step as it was drawn"
            )
        taken = self._left[:count]
        del self._left[:count]
        return taken

    def finish(self) -> None:
        """End a step: no row of its batch may be left."""
        left = len(self._left)
        self._left.clear()
        if left:
            raise InputError(
                f"{left} rows that the sampler drew did not reach the optimizer; with injection='rows' every "
                "batch must go through forward, backward and step as it was drawn"
            )
