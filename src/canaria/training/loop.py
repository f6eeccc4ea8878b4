"""An audited training loop: in each step, canaries join the clipped sum, and the noisy sum is read.

No framework is needed. Arrays may be NumPy's, torch's or JAX's; parameters are one array, or a list, tuple or
dict of them.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from canaria._core import checks, seeds
from canaria._core.arrays import Floats, Integers
from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed
from canaria.bounds.result import Result
from canaria.claims import Claim
from canaria.training.canaries.designs import DRAWS, PLACES, Dirac, derived, hidden_bits, raw_norm
from canaria.training.canaries.witnesses import layout
from canaria.training.clipper import Clipper, Row
from canaria.training.conformance.accounts import counted
from canaria.training.conformance.clipping import clipped_apart, too_heavy_in
from canaria.training.conformance.coincidences import FIRST
from canaria.training.conformance.halves import Halves, contradictions, steps_of
from canaria.training.findings import Findings
from canaria.training.leaves import Leaves, at, spacing
from canaria.training.recorded import Recorded
from canaria.training.recording import UNITS, Recording

_ATTACH: Final = 0x72656364
_HALF: Final = 1e-4
"""Numbers with a wider relative spacing are in half precision themselves."""
_MISSING: Final = "the recorder did not see the others, so nothing is known about them"


class Contribution(NamedTuple):
    """The contribution of a participating canary to a step: a gradient with at most one nonzero weight.

    Attributes:
        parameter: The number of the array that holds the weight.
        place: The weight, in the flattened array.
        included: Whether the canary is included. An excluded canary takes part, but adds nothing.
        gradient: The gradient of that weight before clipping: 10 clip norms, to exercise clipping, or 0 for
            an excluded canary. Clipped, it must weigh one clip norm.
    """

    parameter: int
    place: int
    included: bool
    gradient: float


class Loop(Recorded):
    """A loop that the user drives. Subclasses decide when canaries take part and how sums are scored."""

    def __init__(
        self,
        parameters: object,
        *,
        canaries: int,
        clip_norm: float,
        steps: int | None,
        unit: str,
        rows: int,
        rng: Seed,
    ) -> None:
        self._planned = None if steps is None else checks.integer("steps", steps, 1)
        self._leaves = Leaves(parameters)
        self._design = Dirac(canaries)
        self._clip = checks.nonnegative("clip_norm", clip_norm)
        if self._clip == 0:
            raise InputError("clip_norm must be positive, got 0")
        self._rows = checks.integer("rows", rows, 1)
        if unit not in UNITS:
            raise InputError(f"unit must be {', '.join(UNITS[:-1])} or {UNITS[-1]}, got {shown(unit)}")
        if self._rows > 1 and unit != "user":
            raise InputError(f"several rows make a user: give unit='user', got {shown(unit)}")
        self._unit = unit
        weights = sum(self._leaves.sizes)
        if canaries > weights:
            raise InputError(f"canaries must be at most the number of weights, {weights}, got {canaries}")
        self.seed = int(seeds.generator(rng, _ATTACH).integers(2**62))
        self._bits = hidden_bits(canaries, self.seed)
        self._laid = layout(self._leaves.shapes, canaries, np.random.default_rng(derived(self.seed, PLACES)))
        self._coins = np.random.default_rng(derived(self.seed, DRAWS))
        self._added: list[Floats] | None = None
        # The largest weight of a canary in each parameter, and of a gradient over all of them, in clip norms.
        self._weighed, self._whole = np.zeros(len(self._leaves.shapes)), 0.0
        self._clipper: Clipper | None = None
        self._faults: tuple[str, ...] | None = None
        self._clipped = 0
        self._held: list[Floats] = []
        self._sums_of_first: list[Floats] = []
        self._rounding, self._spacing = 0.0, [1.0, math.inf]
        self._witnessed: list[Floats] = []
        self._totals: list[Floats] = []
        self._halves = [Halves() for _ in self._leaves.shapes]

    @property
    def steps(self) -> int:
        """The number of steps seen so far."""
        return len(self._witnessed)

    @abstractmethod
    def recording(self, *, unfinished: bool = False) -> Recording:
        """The record of the steps so far; for `unfinished`, see `report`."""

    @abstractmethod
    def _often(self) -> Integers:
        """The number of times each canary takes part in the next step, by the auditor's own coins."""

    def _add_held(self) -> None:
        """Process buffered steps if there are enough of them. Does nothing by default."""

    def _note_noise(self, noise: list[Floats], clipped: list[Floats], coarse: float) -> None:
        """Keep what the noise of a step shows beside the sum, in clip norms. Does nothing by default."""

    def draw(self) -> Any:
        """Contributions of the canaries that take part in the next step, shaped like the parameters."""
        self._draw()
        assert self._added is not None
        return self._leaves.shaped(self._added)

    def step(
        self, clipped_sum: Any, add_noise: Callable[[Any], Any], *, clip: Callable[[Any], Any] | None = None
    ) -> Any:
        """Do a whole step: `noisy = recorder.step(clipped_sum, add_noise)`, not `add_noise(clipped_sum)`.

        Args:
            clipped_sum: The sum of the clipped gradients of your rows, shaped like the parameters.
            add_noise: Your function that adds the noise to a sum.
            clip: Your function that clips the gradients of rows, given along the first axis, and returns
                their sum. With it, canaries are rows of 10 clip norms that it must clip, so the audit covers
                the clipper too. Without it, canaries join the sum as if they had been clipped.

        Raises:
            InputError: If a function returns arrays of other shapes, if `clip` does not return a sum of
                gradients clipped to the clip norm, or if the sum is in half precision.
        """
        clipper = None if clip is None else Clipper(clip, self._leaves, self._clip, clipped_sum)
        if clipper is not None and self._whole == 0:
            self._weighed, self._whole = clipper.tried()
            self._clipper = clipper
        often = self._draw()
        assert self._added is not None
        if clipper is not None:
            taking = [one for one in self._contributions(often) if one.included]
            self._added = clipper.sum_of([Row(one.parameter, one.place, one.gradient) for one in taking])
        joined = self._joined(clipped_sum, self._added)
        noisy = add_noise(
            self._leaves.like(clipped_sum, joined)
        )  # a copy, because the function may work in place
        self._see(noisy, clipped_sum, None if clip is None else joined)
        return noisy

    def draw_each(self) -> list[Contribution]:
        """The canaries that take part in the next step, one by one. Use it instead of `draw`.

        It is for loops that clip and add canaries like rows. Their number does not depend on the bits.
        """
        return self._contributions(self._draw())

    def _contributions(self, often: Integers) -> list[Contribution]:
        places = [(number, index) for number, some in enumerate(self._laid.canaries) for index in some]
        return [
            Contribution(number, int(index), bool(bit > 0), raw_norm(self._clip) * bool(bit > 0))
            for (number, index), bit, times in zip(places, self._bits, often, strict=True)
            for _ in range(times)
        ]

    def _joined(self, clipped_sum: object, added: list[Floats]) -> list[Floats]:
        """The clipped sum plus the canaries, rounded so that no canary contributes more than its norm."""
        both = []
        real = self._leaves.read("clipped_sum", clipped_sum)
        for one, more, kind in zip(real, added, self._leaves.precisions(clipped_sum), strict=True):
            near = (one + more).astype(kind)
            over = abs(near - one) > abs(more)
            both.append(np.where(over, np.nextafter(near, one.astype(kind)), near))
        return both

    def _draw(self) -> Integers:
        """The number of times each canary takes part, included or not; stores what the included ones add."""
        if self._added is not None:
            raise InputError("call see() for the previous step before calling draw() again")
        often = self._often()
        values = self._clip * often * (self._bits > 0)
        # Excluded canaries are drawn too, and add nothing: how many take part must not depend on the bits.
        self._added = [np.zeros(shape) for shape in self._leaves.shapes]
        numbers = np.cumsum([0, *map(len, self._laid.canaries)])
        for array, places, first in zip(self._added, self._laid.canaries, numbers, strict=False):
            array.reshape(-1)[places] = values[first : first + len(places)]
        return often

    def see(self, noisy_sum: object, *, real: object, clipped: object = None) -> None:
        """Read a step.

        Args:
            noisy_sum: The sum of rows and canaries with noise, before it is averaged.
            real: The clipped sum of your own rows alone, which the auditor knows.
            clipped: After `draw_each`, the clipped sum of rows and canaries before the noise. With it, the
                report says if your loop clipped a canary to more than the clip norm.
        """
        self._see(noisy_sum, real, None if clipped is None else self._leaves.read("clipped", clipped))

    def _see(self, noisy_sum: object, real: object, clipped: list[Floats] | None) -> None:
        if self._added is None:
            raise InputError("call draw() before every see()")
        noisy, own = self._leaves.read("noisy_sum", noisy_sum), self._leaves.read("real", real)
        left = [(one - other) / self._clip for one, other in zip(noisy, own, strict=True)]
        added, self._added = self._added, None
        if clipped is not None:
            self._weigh(clipped, own)
            added = [one - other for one, other in zip(clipped, own, strict=True)]
        self._held.append(at(left, self._laid.canaries))
        self._witnessed.append(at(left, self._laid.witnesses))
        if len(self._sums_of_first) < FIRST:
            self._sums_of_first.append(at(own, self._laid.witnesses) / self._clip)
            self._rounding = max(self._rounding, spacing(noisy_sum))
            # Numbers may be in a precision that their type does not tell, such as after rounding.
            steps = zip(*map(steps_of, noisy), strict=True)
            self._spacing = [min(before, *some) for before, some in zip(self._spacing, steps, strict=True)]
        # Less the canaries, which `left` still holds, what is left is the noise alone.
        noise = [one - more / self._clip for one, more in zip(left, added, strict=True)]
        self._totals.append(np.array([float(one.sum()) for one in noise])[self._laid.roles.whole])
        largest = max((float(np.abs(one).max(initial=0.0)) for one in own), default=0.0)
        fine = spacing(noisy_sum)
        self._note_noise(noise, own, fine * largest / self._clip)
        if fine < _HALF and len(self._witnessed) <= FIRST:
            clean = [one + more for one, more in zip(own, added, strict=True)]
            for place, halves in enumerate(self._halves):
                halves.add(noisy[place], clean[place], self._clip * _rms(noise[place]))
        self._add_held()

    def _weigh(self, clipped: list[Floats], real: list[Floats]) -> None:
        """Record the largest weight of a canary in each parameter, less the possible rounding error."""
        self._clipped += 1
        for number, (one, other, some) in enumerate(zip(clipped, real, self._laid.canaries, strict=True)):
            with_canaries, without = one.reshape(-1)[some], other.reshape(-1)[some]
            rounded = np.finfo(np.float32).eps * (abs(with_canaries) + abs(without))
            weights = (abs(with_canaries - without) - rounded) / (self._clip * self._rows)
            self._weighed[number] = max(self._weighed[number], weights.max(initial=0.0))

    def report(
        self,
        claimed: float | Claim | None = None,
        delta: float | None = None,
        confidence: float = 0.95,
        *,
        unfinished: bool = False,
        **how: Any,
    ) -> Result:
        """Report bound, claim and conformance; a claim needs its `delta`. See `Recording.report`.

        Set `unfinished` if training was stopped early or continues, so that steps are missing on purpose.
        """
        return self.recording(unfinished=unfinished).report(claimed, delta, confidence, **how)

    def _recorded(self, unfinished: bool, *, beside: tuple[str, ...] = (), **seen: Any) -> Recording:
        if self._clipper is not None and self._faults is None:
            # Not before training: a clipper may keep a state, such as a mean of norms, that probes change.
            self._faults = self._clipper.faults()
        weighed = dict(zip(self._leaves.in_messages, self._weighed.tolist(), strict=True))
        # Each of these would show the same fault of the clipper, the first most clearly.
        clipped = too_heavy_in(weighed) or clipped_apart(self._whole) or self._faults or ()
        in_halves = contradictions(self._halves)
        return Recording(
            findings=counted(self.steps, self._planned, _MISSING, unfinished=unfinished)
            + Findings(contradictions=(*clipped, *beside, *in_halves)),
            design=self._design,
            bits=self._bits.copy(),
            steps=self.steps,
            injection="gradients" if self._clipped == self.steps else "sum",
            seed=self.seed,
            layers=self._laid.layers,
            parameters=self._leaves.in_reports,
            roles=self._laid.roles,
            by_the_optimizer=False,
            unit=self._unit,
            rows=self._rows,
            **seen,
        )


def _rms(values: Floats) -> float:
    return float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0
