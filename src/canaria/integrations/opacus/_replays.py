"""Runs of a training program with given batches, noise and releases."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor

from canaria._core import seeds
from canaria._core.errors import InputError
from canaria.integrations.opacus import _internals
from canaria.integrations.opacus._accountants import accountant_of, history_of
from canaria.integrations.opacus._programs import replaying
from canaria.integrations.opacus._samplers import PoissonSampler, rows_of
from canaria.integrations.opacus._variants import Sized, View
from canaria.preflight.differences import DRIFT
from canaria.preflight.replays import Replay, ReplayedStep

_OTHERS: Final = 8
"""The number of other rows in a batch: enough for them to interact, few enough to be quick."""
_HURRY: Final = 10
"""In the second half of short passes, each change of the parameters is continued this many times, so that
models that learn slowly reach a low loss too."""
_LONGEST: Final = 200
"""The number of characters of an exception's message that are repeated."""


class Ended(BaseException):
    """Ends a replayed program: enough was seen, or there is a `reason` why it cannot be followed.

    This is not an `Exception`, so that the program's error handling does not swallow it.
    """

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "the replay is over")
        self.reason = reason


@dataclass(frozen=True)
class Course:
    """The course that runs follow: the rows of each batch, and the seed of everything else."""

    row: int
    batches: tuple[tuple[int, ...], ...]
    seed: int

    @classmethod
    def drawn(cls, generator: np.random.Generator, row: int, count: int, steps: int) -> "Course":
        """Draw batches in turn: first-half rows, some with the row, the row alone, some with it.

        The first is never empty: Opacus learns from it the shape of an empty batch. All runs share it.
        """
        others = [one for one in range(count) if one != row]
        early = [one for one in others if one < count // 2]
        batches = []
        for step in range(steps):
            first = generator.choice(early, min(_OTHERS, len(early)), replace=False).tolist()
            chosen = generator.choice(others, min(_OTHERS, len(others)), replace=False).tolist()
            batches.append({0: first, 1: [row, *chosen], 2: [row], 3: [row, *chosen]}[step % 4])
        return cls(row, tuple(tuple(sorted(batch)) for batch in batches), int(generator.integers(2**31)))

    def shortened(self, count: int, passes: int) -> "Course":
        """A course with one batch of random rows for each of this many passes."""
        generator = np.random.default_rng(self.seed)
        size = min(_OTHERS, count)
        batches = [generator.choice(count, size, replace=False).tolist() for _ in range(passes)]
        return Course(self.row, tuple(tuple(sorted(batch)) for batch in batches), self.seed)

    def without(self) -> tuple[tuple[int, ...], ...]:
        """The same batches for a data set without the row, where later rows have moved up."""
        return tuple(
            tuple(one - (one > self.row) for one in batch if one != self.row) for batch in self.batches
        )

    def shared(self) -> tuple[tuple[int, ...], ...]:
        """Batches for the first half of the data set: the batch that all runs share, twice."""
        return (self.batches[0],) * 2

    def alone(self, batches: Sequence[int]) -> bool:
        return all(self.batches[one] == (self.row,) for one in batches)

    def held(self, batches: Sequence[int]) -> int:
        return sum(self.row in self.batches[one] for one in batches)


class Run:
    """One run of the program, with given batches and, after the first run, the first run's releases.

    If a step was skipped, or parameters already differ, later steps cannot be compared: the run then
    continues with its own sums.
    """

    def __init__(
        self,
        name: str,
        course: Course,
        batches: tuple[tuple[int, ...], ...],
        rows: int,
        *,
        first: "Run | None" = None,
        salt: int = 0,
        replaced: bool = False,
        short: bool = False,
    ) -> None:
        self.name, self._course, self._batches, self._rows = name, course, batches, rows
        self._first, self._salt, self._replaced, self.short = first, salt, replaced, short
        self.steps: list[ReplayedStep] = []
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
        """Run the program until it ends or has shown enough."""
        seeds.set_global(self._course.seed)
        try:
            with replaying(self):
                train(data)
        except Ended as ended:
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
        if isinstance(error, AttributeError) and isinstance(data, View) and data.missing:
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
        """Draw the batches of the course, as many in a pass as the sampler would."""
        self._meet(sampler)
        self._waiting = []
        for _ in range(len(sampler)):
            if self._drawn == len(self._batches):
                raise Ended
            seeds.set_global(self._course.seed + 2 * self._drawn + 1 + self._salt)
            self._waiting.append(self._drawn)
            self._drawn += 1
            yield list(self._batches[self._drawn - 1])

    def _meet(self, sampler: PoissonSampler) -> None:
        rows = rows_of(sampler)
        if self._replaced and rows == self._rows - 1:
            self._rows, self._batches = rows, self._course.without()  # the program dropped the broken row
        if rows != self._rows and self._first is None:
            raise Ended(
                f"train samples from {rows} rows where the data set has {self._rows}; rows are followed by "
                "their number, so hand over the data set that the loader is made of, and split or filter it "
                "before"
            )
        if rows != self._rows:
            self._unexpected = rows
            raise Ended
        if self._rate is None:
            self._rate, self._length = float(sampler.sample_rate), len(sampler)

    def before_noise(self, optimizer: DPOptimizer) -> None:
        """Compare the clipped sum with that of the first run."""
        _require_followed(optimizer, self._drawn)
        self._accountant = self._accountant or accountant_of(optimizer)
        self._used, self._waiting = self._waiting or self._used, []
        self._noised = True
        parameters = [parameter.detach().clone() for parameter in optimizer.params]
        sums, clip_norm = _internals.waiting_sums(optimizer), float(optimizer.max_grad_norm)
        apart, drift = self._distances(sums, parameters, clip_norm)
        if self.short:
            self.sums.clear()  # short runs have many steps, and only the last sum is needed
            self._hurry(optimizer, parameters)
        self.sums.append(sums)
        self.parameters.append(parameters)
        self.steps.append(
            ReplayedStep(
                batches=tuple(self._used),
                held=self._course.held(self._used),
                alone=self._course.alone(self._used),
                noise_multiplier=_internals.noise_added(optimizer),
                clip_norm=clip_norm,
                expected_batch_size=_internals.divisor(optimizer),
                rounding=_internals.rounding(optimizer),
                apart=apart,
                drift=drift,
            )
        )
        self._alike = self._alike and apart is not None and drift <= DRIFT

    def _distances(
        self, sums: list[Tensor], parameters: list[Tensor], clip_norm: float
    ) -> tuple[float | None, float]:
        if self._first is None:
            # 0, or not a number if the sum is not finite.
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
        """Continue the parameters' change, in the second half of short passes; the same in all equal runs."""
        if len(self.steps) >= len(self._batches) // 2:
            for parameter, now, before in zip(optimizer.params, parameters, self._left_at, strict=True):
                parameter.add_(now - before, alpha=_HURRY)
        self._left_at = [parameter.detach().clone() for parameter in optimizer.params]

    def after_noise(self, optimizer: DPOptimizer) -> None:
        """Replace fresh noise by fixed noise; in short passes by none, so that the model learns quickly.

        Releases must not matter in short passes, so there the mean of the clipped gradients is used too.
        """
        if self.short:
            rows = sum(len(self._batches[one]) for one in self._used)
            for parameter, total in zip(optimizer.params, self.sums[-1], strict=True):
                parameter.grad = (total * (_internals.divisor(optimizer) / rows)).view_as(parameter)
            return
        frozen = torch.Generator().manual_seed(self._course.seed + len(self.steps))
        scale = _internals.noise_added(optimizer) * float(optimizer.max_grad_norm)
        for parameter, total in zip(optimizer.params, self.sums[-1], strict=True):
            noise = scale * torch.randn(total.shape, generator=frozen)
            parameter.grad = (total + noise.to(total)).view_as(parameter)

    def after_scaling(self, optimizer: DPOptimizer) -> None:
        """Release what the first run released: given the same past, the next steps can be compared."""
        if not self._noised:
            raise Ended(
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
        """The numbers that describe this run."""
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
    """Refuse programs that cannot be compared."""
    if _internals.is_distributed(optimizer) or _internals.is_sharded(optimizer):
        raise Ended("train runs in several processes; let it train in one to compare neighbours")
    if _internals.clips_adaptively(optimizer):
        raise Ended(
            "train clips adaptively, to a norm that depends on earlier batches, which is not followed here"
        )
    if drawn == 0:
        raise Ended(
            "train made a step of a batch that no Poisson sampler of Opacus drew; use make_private with "
            "poisson_sampling=True, or DPDataLoader"
        )


def _distance(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    return _norm(
        [mine.to(torch.float64) - its.to(torch.float64) for mine, its in zip(one, other, strict=True)]
    )


def _norm(tensors: Sequence[Tensor]) -> float:
    return math.hypot(*(float(torch.linalg.vector_norm(tensor.to(torch.float64))) for tensor in tensors))
