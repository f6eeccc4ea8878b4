"""Replays of a training program on neighbouring data sets, with batches, noise and releases held fixed."""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from canaria._core import checks, seeds
from canaria._core.errors import InputError, shown
from canaria.integrations.opacus._internals import (
    accountant_of,
    clips_adaptively,
    divisor,
    history_of,
    is_distributed,
    is_sharded,
    noise_added,
    rounding,
    waiting_sums,
)
from canaria.integrations.opacus._programs import replaying
from canaria.integrations.opacus._samplers import PoissonSampler, rows_of
from canaria.training.neighbours import (
    DRIFT,
    Neighbours,
    Replay,
    Step,
    Stopping,
    compared,
    sums_differ,
)

_NEIGHBOURS: Final = 41
"""The purpose of our random stream."""
_FEWEST: Final = 4
"""Of so many rows one can be left out, and half of the others taken."""
_OTHERS: Final = 8
"""How many other rows a batch holds: enough to act on each other, few enough to be quick."""
_PASSES: Final = 32
"""The number of passes, cut to one batch, in which runs must stop alike: enough for a patience of ten."""
_MOST_BYTES: Final = 2**32
"""The memory for what short passes release, and for the parameters before each."""
_HURRY: Final = 10
"""In the second half of short passes, parameters move on by this many more of their last changes, so that
models that learn slowly reach a low loss, too."""
_LONGEST: Final = 200
"""How much of the message of an exception is repeated."""


class Sized(Protocol):
    """A data set: rows by their number."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def check_neighbours(
    train: Callable[[Any], object],
    data: Sized,
    *,
    row: int | None = None,
    steps: int = 4,
    passes: int = _PASSES,
    rng: seeds.Seed = None,
) -> Neighbours:
    """Run a training program on neighbouring data sets, and see what tells them apart.

    An audit shows what the noise hides. It does not see what depends on the data besides: a batch size
    derived from their number, steps left out for empty batches, a NaN that no clipping bounds. Here `train`
    is run five times for a few steps: on the data as given, twice; without one row; with this row NaN where
    it holds floating-point numbers; and on the first half of the rows. All runs draw the same batches and
    release the same, so that they may only differ in the clipped sums of batches that hold the row, by one
    clip norm. One of these batches holds the row alone, and so is empty without it. Dropout is switched off.
    Two more runs, on the data as given and with every row like this one, must make equally many steps with
    the same learning rates: a program that stops by its training loss does not. Their passes are cut to one
    batch of eight rows, so that what is decided after a pass is decided soon.
    Meanwhile classes of Opacus and torch are patched; afterwards they are as before, as are the states of
    random generators.

    Args:
        train: The program: makes model, optimizer and loader from the data set that it is given, and trains.
            It is ended after a few steps, by an exception that `except Exception` does not catch. What it
            returns is not used. It must start afresh in every call, and sample from all rows that it is
            given, in their order.
        data: The data set: a `TensorDataset`, a sequence, or anything with a length and items.
        row: The row to remove: by default the last, or one that `rng` draws.
        steps: After how many batches a run is ended, at least 3.
        passes: After how many passes of one batch the two last runs are ended; 0 leaves them out. If `train`
            evaluates after each pass, so do these.
        rng: A seed for the batches and for all randomness of the program; by default always the same.

    Returns:
        What was found; print it.

    Raises:
        InputError: If an argument is not usable; if `train` made no private step, draws its batches otherwise
            than by Poisson sampling, clips adaptively, or trains in several processes; or if two runs on
            the same data differ.
        Exception: What `train` raises on the data as given.

    Example:
        ```python
        print(check_neighbours(train, dataset, row=7))
        ```

    """
    _require_rows(data)
    count = len(data)
    generator = seeds.generator(0 if rng is None else rng, _NEIGHBOURS)
    drawn = int(generator.integers(count))
    if row is None:
        row = count - 1 if rng is None else drawn
    row = checks.integer("row", row, 0, count - 1)
    plan = _Plan.drawn(generator, row, count, checks.integer("steps", steps, 3, 1000))
    rows = list(range(count))
    left, half = [one for one in rows if one != row], rows[: count // 2]

    with seeds.global_state_kept(), torch.random.fork_rng():
        first = _Run("as given", plan, plan.batches, count)
        first.follow(train, _fresh(data))
        reseeded = _Run("again", plan, plan.batches, count, first=first, salt=1)
        reseeded.follow(train, _fresh(data))
        repeated = reseeded
        if sums_differ(reseeded.replay()):
            repeated = _Run("again", plan, plan.batches, count, first=first)
            repeated.follow(train, _fresh(data))
        without = _Run(f"without row {row}", plan, plan.without(), count - 1, first=first)
        without.follow(train, _only(data, left))
        neighbours = [without.replay()]
        if _has_floats(data[row]):
            broken = _Run(f"with row {row} NaN", plan, plan.batches, count, first=first, replaced=True)
            broken.follow(train, _only(data, rows, nan=row))
            neighbours.append(broken.replay())
        smaller = _Run("with half of the rows", plan, plan.shared(), len(half), first=first)
        smaller.follow(train, _only(data, half))
        stopping = _stopping(train, data, first, plan, checks.integer("passes", passes, 0, 1000))
    return compared(
        row,
        stopping=stopping,
        given=first.replay(),
        repeated=repeated.replay(),
        reseeded=reseeded.replay(),
        neighbours=tuple(neighbours),
        smaller=smaller.replay(),
    )


def _stopping(
    train: Callable[[Any], object], data: Sized, first: "_Run", plan: "_Plan", passes: int
) -> Stopping:
    """Run the program in short passes on two data sets that differ in every row.

    With every row like one, the loss soon falls to nothing; as the data are given, the same parameters make
    it rise. One replaced row after the other leads from one data set to the other, so if the program goes on
    otherwise, a single row decides somewhere on the way.
    """
    held = 2 * sum(parameter.nbytes for parameter in first.parameters[0])
    allowed = min(passes, _MOST_BYTES // max(held, 1))
    if not allowed:
        return Stopping(excuse="passes is 0" if not passes else "the model is too large to keep its steps")
    count, short = len(data), plan.shortened(len(data), allowed)

    def run(name: str, rows: Sequence[int], lead: "_Run | None" = None) -> _Run:
        made = _Run(name, short, short.batches, count, first=lead, short=True)
        made.follow(train, _only(data, rows))
        return made

    try:
        alike = run(f"with every row like row {plan.row}", [plan.row] * count)
        given = run("as given", range(count), alike)
        again = run("again", [plan.row] * count, alike)
    except InputError as error:
        return Stopping(excuse=str(error))
    return Stopping(alike=alike.replay(), given=given.replay(), again=again.replay())


class _Ended(BaseException):
    """Ends a program that is replayed: it has shown enough, or there is a reason why it cannot be followed.

    No `Exception`: the program's own handling of errors must not swallow it.
    """

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "the replay is over")
        self.reason = reason


@dataclass(frozen=True)
class _Plan:
    """Which rows are in which batch, and the seed of everything else."""

    row: int
    batches: tuple[tuple[int, ...], ...]
    seed: int

    @classmethod
    def drawn(cls, generator: np.random.Generator, row: int, count: int, steps: int) -> "_Plan":
        """In turn a batch of rows of the first half, one with the row, one that holds it alone, one with it.

        The first is never empty: Opacus learns from it what an empty batch looks like. All runs have it.
        """
        others = [one for one in range(count) if one != row]
        early = [one for one in others if one < count // 2]
        batches = []
        for step in range(steps):
            first = generator.choice(early, min(_OTHERS, len(early)), replace=False).tolist()
            chosen = generator.choice(others, min(_OTHERS, len(others)), replace=False).tolist()
            batches.append({0: first, 1: [row, *chosen], 2: [row], 3: [row, *chosen]}[step % 4])
        return cls(row, tuple(tuple(sorted(batch)) for batch in batches), int(generator.integers(2**31)))

    def shortened(self, count: int, passes: int) -> "_Plan":
        """A batch of rows, whichever they are, for each of this many passes."""
        generator = np.random.default_rng(self.seed)
        size = min(_OTHERS, count)
        batches = [generator.choice(count, size, replace=False).tolist() for _ in range(passes)]
        return _Plan(self.row, tuple(tuple(sorted(batch)) for batch in batches), self.seed)

    def without(self) -> tuple[tuple[int, ...], ...]:
        """The same batches of a data set without the row, in which later rows have moved up."""
        return tuple(
            tuple(one - (one > self.row) for one in batch if one != self.row) for batch in self.batches
        )

    def shared(self) -> tuple[tuple[int, ...], ...]:
        """For a data set of the first half: the batch that all runs have, twice."""
        return (self.batches[0],) * 2

    def alone(self, batches: Sequence[int]) -> bool:
        return all(self.batches[one] == (self.row,) for one in batches)

    def held(self, batches: Sequence[int]) -> int:
        return sum(self.row in self.batches[one] for one in batches)


class _Run:
    """One run of the program, which is given its batches and, after the first run, what its steps release.

    If a step was left out, or parameters differ already, what follows cannot be compared any more: the run
    goes on with its own sums.
    """

    def __init__(
        self,
        name: str,
        plan: _Plan,
        batches: tuple[tuple[int, ...], ...],
        rows: int,
        *,
        first: "_Run | None" = None,
        salt: int = 0,
        replaced: bool = False,
        short: bool = False,
    ) -> None:
        self.name, self._plan, self._batches, self._rows = name, plan, batches, rows
        self._first, self._salt, self._replaced, self.short = first, salt, replaced, short
        self.steps: list[Step] = []
        self.sums: list[list[Tensor]] = []
        self.parameters: list[list[Tensor]] = []
        self.released: list[list[Tensor]] = []
        self._left_at: list[Tensor] = []
        self._drawn = 0
        self._waiting: list[int] = []
        self._used: list[int] = []
        self._alike = True
        self._noised = False
        self._rate: float | None = None
        self._length: int | None = None
        self._unexpected: int | None = None
        self._accountant: Any = None
        self._exception: str | None = None

    def follow(self, train: Callable[[Any], object], data: Sized) -> None:
        """Run the program to its end, or to ours."""
        _seed(self._plan.seed)
        try:
            with replaying(self):
                train(data)
        except _Ended as ended:
            if ended.reason is not None:
                raise InputError(ended.reason) from None
        except Exception as error:
            if self._first is None and not self.short:
                sizes = ", ".join(str(len(batch)) for batch in self._batches)
                error.add_note(f"raised on the data as given, with batches of {sizes} rows")
                raise
            self._require_view(data, error)
            self._exception = f"{type(error).__name__}: {' '.join(str(error).split())}"[:_LONGEST]
        if self._first is None and self._exception is None:
            self._require_steps()

    def _require_view(self, data: Sized, error: Exception) -> None:
        if isinstance(error, AttributeError) and isinstance(data, _View) and data.missing:
            raise InputError(
                f"train reads {data.missing[-1]!r} of its data set, which a {type(data.whole).__name__} with "
                "other rows cannot be given; read it outside train, or hand over a TensorDataset or a list"
            ) from error

    def _require_steps(self) -> None:
        if not self.steps and self._drawn:
            raise InputError(
                f"train drew {self._drawn} batches before it made a step with an optimizer of Opacus; if it "
                "looks at its loader before it trains, let runs go on for more steps"
            )
        if not self.steps:
            raise InputError(
                "train made no step with an optimizer of Opacus; it must make its own from the data that it "
                "is given (make_private, or DPOptimizer), and train with it"
            )
        drawn = [len(step.batches) for step in self.steps]
        if drawn[0] > max(drawn[1:], default=drawn[0]):
            raise InputError(
                "train draws batches before it has made a step of the last one, so a step cannot be traced "
                "to its batch; let it fetch nothing ahead"
            )

    def batches(self, sampler: PoissonSampler) -> Iterator[list[int]]:
        """Draw the batches of the plan, as many in a pass as the sampler would."""
        self._meet(sampler)
        self._waiting = []
        for _ in range(len(sampler)):
            if self._drawn == len(self._batches):
                raise _Ended
            _seed(self._plan.seed + 2 * self._drawn + 1 + self._salt)
            self._waiting.append(self._drawn)
            self._drawn += 1
            yield list(self._batches[self._drawn - 1])

    def _meet(self, sampler: PoissonSampler) -> None:
        rows = rows_of(sampler)
        if self._replaced and rows == self._rows - 1:
            self._rows, self._batches = rows, self._plan.without()  # the program left the broken row out
        if rows != self._rows and self._first is None:
            raise _Ended(
                f"train samples from {rows} rows where the data set has {self._rows}; rows are followed by "
                "their number, so hand over the data set that the loader is made of, and split or filter it "
                "before"
            )
        if rows != self._rows:
            self._unexpected = rows
            raise _Ended
        if self._rate is None:
            self._rate, self._length = float(sampler.sample_rate), len(sampler)

    def before_noise(self, optimizer: DPOptimizer) -> None:
        """Compare the clipped sum with that of the first run."""
        _require_followed(optimizer, self._drawn)
        self._accountant = self._accountant or accountant_of(optimizer)
        self._used, self._waiting = self._waiting or self._used, []
        self._noised = True
        parameters = [parameter.detach().clone() for parameter in optimizer.params]
        sums, clip_norm = waiting_sums(optimizer), float(optimizer.max_grad_norm)
        apart, drift = self._distances(sums, parameters, clip_norm)
        if self.short:
            self.sums.clear()  # there are many steps, and only the last sum is needed
            self._hurry(optimizer, parameters)
        self.sums.append(sums)
        self.parameters.append(parameters)
        self.steps.append(
            Step(
                batches=tuple(self._used),
                held=self._plan.held(self._used),
                alone=self._plan.alone(self._used),
                noise_multiplier=noise_added(optimizer),
                clip_norm=clip_norm,
                expected_batch_size=divisor(optimizer),
                rounding=rounding(optimizer),
                apart=apart,
                drift=drift,
            )
        )
        self._alike = self._alike and apart is not None and drift <= DRIFT

    def _distances(
        self, sums: list[Tensor], parameters: list[Tensor], clip_norm: float
    ) -> tuple[float | None, float]:
        if self._first is None:
            return 0.0 * _norm(sums), 0.0
        number, first = len(self.steps), self._first
        if not self._alike or number >= len(first.steps) or first.steps[number].batches[-1] != self._used[-1]:
            return None, 0.0
        if [one.shape for one in parameters] != [one.shape for one in first.parameters[number]]:
            return 0.0, math.inf
        size = _norm(first.parameters[number]) or 1.0
        drift = _distance(parameters, first.parameters[number]) / size
        if self.short:  # other rows have other sums
            return 0.0, drift
        return _distance(sums, first.sums[number]) / clip_norm, drift

    @torch.no_grad()
    def _hurry(self, optimizer: DPOptimizer, parameters: list[Tensor]) -> None:
        """Move parameters on, in the second half of short passes; in all runs alike, if they are alike."""
        if len(self.steps) >= len(self._batches) // 2:
            for parameter, now, before in zip(optimizer.params, parameters, self._left_at, strict=True):
                parameter.add_(now - before, alpha=_HURRY)
        self._left_at = [parameter.detach().clone() for parameter in optimizer.params]

    def after_noise(self, optimizer: DPOptimizer) -> None:
        """Add frozen noise in place of fresh one; in short passes none, so that the model learns quickly.

        What is released must not matter there, so it may be the mean of the clipped gradients, too.
        """
        if self.short:
            rows = sum(len(self._batches[one]) for one in self._used)
            for parameter, total in zip(optimizer.params, self.sums[-1], strict=True):
                parameter.grad = (total * (divisor(optimizer) / rows)).view_as(parameter)
            return
        frozen = torch.Generator().manual_seed(self._plan.seed + len(self.steps))
        scale = noise_added(optimizer) * float(optimizer.max_grad_norm)
        for parameter, total in zip(optimizer.params, self.sums[-1], strict=True):
            noise = scale * torch.randn(total.shape, generator=frozen)
            parameter.grad = (total + noise.to(total)).view_as(parameter)

    def after_scaling(self, optimizer: DPOptimizer) -> None:
        """Release what the first run released: given the same past, the next step may be compared."""
        if not self._noised:
            raise _Ended(
                f"{type(optimizer).__name__} adds noise without calling that of Opacus, so its steps cannot "
                "be followed"
            )
        self._noised = False
        number = len(self.steps) - 1
        if self._first is not None and self._alike and number < len(self._first.released):
            for parameter, gradient in zip(optimizer.params, self._first.released[number], strict=True):
                parameter.grad = gradient.clone()
        self.released.append([parameter.grad.clone() for parameter in optimizer.params])

    def replay(self) -> Replay:
        """What the run showed, in numbers."""
        return Replay(
            name=self.name,
            may_move=2 if self._replaced else 1,
            sample_rate=self._rate,
            batches=self._length,
            unexpected_rows=self._unexpected,
            steps=tuple(self.steps),
            accountant=None if self._accountant is None else tuple(history_of(self._accountant)),
            exception=self._exception,
        )


def _require_followed(optimizer: DPOptimizer, drawn: int) -> None:
    """Only what is understood is compared."""
    if is_distributed(optimizer) or is_sharded(optimizer):
        raise _Ended("train runs in several processes; let it train in one to compare neighbours")
    if clips_adaptively(optimizer):
        raise _Ended(
            "train clips adaptively, to a norm that depends on earlier batches, which is not followed here"
        )
    if drawn == 0:
        raise _Ended(
            "train made a step of a batch that no Poisson sampler of Opacus drew; use make_private with "
            "poisson_sampling=True, or DPDataLoader"
        )


def _distance(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    return _norm(
        [mine.to(torch.float64) - its.to(torch.float64) for mine, its in zip(one, other, strict=True)]
    )


def _norm(tensors: Sequence[Tensor]) -> float:
    return math.hypot(*(float(torch.linalg.vector_norm(tensor.to(torch.float64))) for tensor in tensors))


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002, the program may use it
    torch.manual_seed(seed)


def _require_rows(data: object) -> None:
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")) or isinstance(
        data, Mapping | str | bytes
    ):
        raise InputError(f"data must be a data set with a length and rows, got {type(data).__name__}")
    if isinstance(data, tuple) and all(isinstance(part, Tensor | np.ndarray) for part in data):
        lengths = {len(part) if part.ndim else -1 for part in data}
        if len(lengths) == 1 and lengths != {-1}:
            raise InputError(
                f"data must be a sequence of rows, got {shown(type(data).__name__)} of {len(data)} columns "
                "of equal length; hand over TensorDataset(...) of them"
            )
    if len(data) < _FEWEST:
        raise InputError(f"data must hold at least {_FEWEST} rows, got {len(data)}")


def _fresh(data: Sized) -> Sized:
    """The data set, copied where that is easy: the program may change what it is given."""
    copied = type(data) is TensorDataset or isinstance(data, Tensor | np.ndarray)
    return _only(data, range(len(data))) if copied else data


def _only(data: Sized, rows: Sequence[int], nan: int | None = None) -> Sized:
    """These rows of a data set, one of them NaN; a data set of the same kind where that can be made."""
    if type(data) is TensorDataset:
        tensors: Any = [_only(tensor, rows, nan) for tensor in data.tensors]
        return TensorDataset(*tensors)
    if isinstance(data, Tensor | np.ndarray):
        chosen: Tensor | npt.NDArray[Any] = data[list(rows)]
        if nan is not None and _has_floats(chosen):
            chosen[nan] = math.nan
        return chosen
    if isinstance(data, list | tuple):
        return [_with_nan(data[one]) if one == nan else data[one] for one in rows]
    return _View(data, rows, nan)


class _View(Dataset[Any]):
    """Some rows of a data set, one of them NaN; remembers which of its attributes were asked for in vain."""

    def __init__(self, whole: Sized, rows: Sequence[int], nan: int | None) -> None:
        self.whole, self._rows, self._nan = whole, rows, nan
        self.missing: list[str] = []

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        row = self._rows[index]
        return _with_nan(self.whole[row]) if row == self._nan else self.whole[row]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and hasattr(vars(self).get("whole"), name):
            self.missing.append(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _has_floats(item: object) -> bool:
    if isinstance(item, Tensor):
        return item.is_floating_point()
    if isinstance(item, np.ndarray | np.generic):
        return bool(np.issubdtype(item.dtype, np.floating))
    if isinstance(item, Mapping):
        return any(map(_has_floats, item.values()))
    if isinstance(item, list | tuple):
        return any(map(_has_floats, item))
    return isinstance(item, float)


def _with_nan(item: object) -> Any:
    """An item of the same form, with NaN for every floating-point number."""
    if isinstance(item, Mapping):
        return {key: _with_nan(value) for key, value in item.items()}
    if isinstance(item, list | tuple):
        parts = [_with_nan(part) for part in item]
        return type(item)(*parts) if hasattr(item, "_fields") else type(item)(parts)
    if not _has_floats(item):
        return item
    if isinstance(item, Tensor):
        return torch.full_like(item, math.nan)
    return np.full_like(item, math.nan)[()] if isinstance(item, np.ndarray | np.generic) else math.nan
