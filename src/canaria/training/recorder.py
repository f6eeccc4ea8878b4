"""A recorder for any training loop: it says what canaries add to a step, and reads what comes out of it.

No framework is needed. Arrays may be NumPy's, torch's or JAX's; parameters are one array, or a list, tuple or
dict of them.
"""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from canaria._core import checks, seeds
from canaria._core.arrays import Floats, Integers
from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed
from canaria.bounds.result import Result
from canaria.claims import Claim
from canaria.mechanisms.correlated import Correlated
from canaria.training.canaries.designs import (
    DRAWS,
    PLACES,
    TIES,
    Dirac,
    clipped_apart,
    derived,
    hidden_bits,
    raw_norm,
    too_heavy_in,
)
from canaria.training.canaries.sampling import Sampling
from canaria.training.canaries.witnesses import Seen, layout
from canaria.training.conformance.accounts import counted
from canaria.training.conformance.coincidences import FIRST, usable
from canaria.training.conformance.noise import numbered
from canaria.training.likelihood.accumulator import HELD, Accumulator, table_of
from canaria.training.likelihood.correlated import Correlation
from canaria.training.recorded import Recorded
from canaria.training.recording import UNITS, Recording

_ATTACH: Final = 0x72656364
_LARGER: Final = (1e2, 1e4)
"""Times 10 clip norms: sizes of gradients that may pass a clipper whose author did not expect them."""
_MISSING: Final = "the recorder was not shown the others, so it says nothing about them"
_MOST_NUMBERS: Final = 2**24
"""Canaries are clipped in parts of so many numbers, 128 MB; each is as large as a gradient of the model."""
_LIGHT: Final = 0.95
"""A gradient far above the clip norm weighs this share of it or more, once it is clipped."""
_PRECISE: Final = 4
"""Sums in fewer bytes than this to a number would round canaries away."""


class Contribution(NamedTuple):
    """What a canary that takes part brings to a step: a gradient with one weight that is not 0, or nothing.

    Attributes:
        parameter: The number of the array that holds the weight.
        place: The weight, in the flattened array.
        included: Whether the canary is included; an excluded one takes part, and adds nothing.
        gradient: The gradient of that weight before clipping: 10 clip norms, so that clipping is exercised,
            or 0 for an excluded canary. Clipped, it must weigh one clip norm.

    """

    parameter: int
    place: int
    included: bool
    gradient: float


class _Row(NamedTuple):
    """A row whose gradient is the same in some weights of one parameter, and 0 elsewhere."""

    parameter: int
    place: int | slice
    gradient: float


class Recorder(Recorded):
    """An audit of a training loop that you drive yourself.

    `step` does what an audit does in a step: canaries join the clipped sum, a function of yours adds the
    noise, and the result is read. Loops that do not add noise by a function take it apart: `draw` says what
    the canaries add to the clipped sum, and `see` reads the sum with noise.

    Canaries are rows with a gradient of norm `clip_norm` on one weight each; a hidden coin decides whether a
    canary is included. They are as large as `clip_norm` and as frequent as `sample_rate` say: if these are
    above what training does, so is the bound. Conformance shows a wrong clip norm and wrong noise, not a
    wrong rate, since canaries are drawn by coins of our own.

    For claims about users, a canary is a user: all of its rows are included or none. If users are clipped and
    drawn as a whole, a user is one contribution, and `unit="user"` is all there is to say. If rows are, a
    user of k `rows` moves the sum by up to k clip norms, and the bound is about such users; what is claimed
    for rows holds for them by group privacy, with a larger ε and δ.

    Args:
        parameters: What is trained: an array, or a list, tuple or dict of arrays. Only shapes are looked at.
        canaries: The number of canaries.
        sample_rate: The probability with which a row takes part in a step, each by a coin of its own.
        noise_multiplier: The stated noise, in clip norms.
        clip_norm: The most that one row adds to the sum.
        steps: The number of steps that training makes, which its accountant was told. If fewer or more are
            seen, the report says so. None leaves that untested.
        unit: What a canary stands for: "row", "user" or "client".
        rows: The number of rows of a user, each clipped and drawn by itself.
        rng: A seed for the hidden bits, the places and the draws.

    Raises:
        InputError: If an argument is not usable, or if there are more canaries than weights.

    Example:
        >>> import numpy as np
        >>> noise = np.random.default_rng(0)
        >>> def add_noise(clipped):
        ...     return clipped + noise.normal(0, 0.5, clipped.shape)
        >>> stated = {"sample_rate": 0.5, "noise_multiplier": 0.5, "steps": 20}
        >>> recorder = Recorder(np.zeros(500), canaries=300, rng=0, **stated)
        >>> for _ in range(20):
        ...     clipped = np.ones(500)  # the sum of the clipped gradients of your rows
        ...     noisy = recorder.step(clipped, add_noise)
        >>> recorder.bound(delta=1e-5).epsilon > 2
        True
        >>> recorder.conformance().conforms
        True

    """

    def __init__(
        self,
        parameters: object,
        *,
        canaries: int,
        sample_rate: float,
        noise_multiplier: float,
        clip_norm: float = 1.0,
        steps: int | None = None,
        unit: str = "row",
        rows: int = 1,
        rng: Seed = None,
    ) -> None:
        self._planned = None if steps is None else checks.integer("steps", steps, 1)
        self._names, leaves = _leaves("parameters", parameters)
        self._shapes = [tuple(np.shape(leaf)) for leaf in leaves]
        self._design = Dirac(canaries)
        self._rate = checks.sample_rate(sample_rate)
        self._noise = checks.nonnegative("noise_multiplier", noise_multiplier)
        self._clip = checks.nonnegative("clip_norm", clip_norm)
        if self._clip == 0:
            raise InputError("clip_norm must be positive, got 0")
        self._rows = checks.integer("rows", rows, 1)
        if unit not in UNITS:
            raise InputError(f"unit must be {', '.join(UNITS[:-1])} or {UNITS[-1]}, got {shown(unit)}")
        if self._rows > 1 and unit != "user":
            raise InputError(f"several rows are a user: give unit='user', got {shown(unit)}")
        self._unit = unit
        weights = sum(int(np.prod(shape)) for shape in self._shapes)
        if canaries > weights:
            raise InputError(f"canaries must be at most the number of weights, {weights}, got {canaries}")
        self.seed = int(seeds.generator(rng, _ATTACH).integers(2**62))
        self._bits = hidden_bits(canaries, self.seed)
        self._laid = layout(self._shapes, canaries, np.random.default_rng(derived(self.seed, PLACES)))
        self._coins = np.random.default_rng(derived(self.seed, DRAWS))
        self._specified = Accumulator.of(
            self._design,
            self._laid.layers,
            self._laid.roles,
            sample_rate=self._rate,
            sampling=Sampling(accumulated=self._rows),
        )
        self._added: list[Floats] | None = None
        self._weighed, self._whole = np.zeros(len(self._shapes)), 0.0
        self._clipped = 0
        self._factors: list[float] | None = None
        self._sums, self._table = np.zeros(canaries), np.zeros((1, canaries))
        self._held: list[Floats] = []
        self._sums_of_first: list[Floats] = []
        self._rounding = 0.0
        self._witnessed: list[Floats] = []
        self._totals: list[Floats] = []

    @property
    def steps(self) -> int:
        """How many steps were seen."""
        return len(self._witnessed)

    def draw(self) -> Any:
        """What canaries that take part in the next step add to the clipped sum, shaped as parameters are."""
        self._draw()
        assert self._added is not None
        return self._shaped(self._added)

    def step(
        self,
        clipped_sum: Any,
        add_noise: Callable[[Any], Any],
        *,
        clip: Callable[[Any], Any] | None = None,
    ) -> Any:
        """A whole step: `noisy = recorder.step(clipped_sum, add_noise)` for `noisy = add_noise(clipped_sum)`.

        Args:
            clipped_sum: The sum of the clipped gradients of your rows, shaped as parameters are.
            add_noise: Your function that adds the noise to a sum.
            clip: Your function that clips the gradients of rows, one to each entry of the first axis, and
                returns their sum. With it, canaries are rows of 10 clip norms that it must clip, and an audit
                is about the clipper too. Without it, they join the sum as if they had been clipped.

        Returns:
            The noisy sum, canaries in it; train with that.

        Raises:
            InputError: If a function returns other arrays, if `clip` does not return a sum of gradients that
                are clipped to the clip norm, or if the sum is in half precision.

        """
        if clip is not None and self._whole == 0:
            self._try(clip, clipped_sum)
        often = self._draw()
        assert self._added is not None
        if clip is not None:
            taking = [one for one in self._contributions(often) if one.included]
            rows = [_Row(one.parameter, one.place, one.gradient) for one in taking]
            self._added = self._clipped_by(clip, clipped_sum, rows)
        joined = self._joined(clipped_sum, self._added)
        noisy = add_noise(self._like(clipped_sum, joined))  # a copy: the function may work in place
        self._see(noisy, clipped_sum, None if clip is None else joined)
        return noisy

    def draw_each(self) -> list[Contribution]:
        """The canaries that take part in the next step, one by one, in the place of `draw`.

        For a loop that clips and adds canaries as it does rows. How many take part says nothing of the bits.
        """
        return self._contributions(self._draw())

    def _contributions(self, often: Integers) -> list[Contribution]:
        places = [(number, index) for number, some in enumerate(self._laid.canaries) for index in some]
        return [
            Contribution(number, int(index), bool(bit > 0), raw_norm(self._clip) * bool(bit > 0))
            for (number, index), bit, times in zip(places, self._bits, often, strict=True)
            for _ in range(times)
        ]

    def _try(self, clip: Callable[[Any], Any], like: Any) -> None:
        """Note what the clipper makes of large gradients, in each parameter and in all at once.

        Canaries alone would not do: one sits in one parameter, so it does not show that parameters are
        clipped apart, and that of a small parameter may be excluded. Nor does one size: a clipper may let
        gradients pass that are larger than any that its author expected.
        """
        sizes = np.array([math.prod(shape) for shape in self._shapes])
        each = [raw_norm(self._clip) / math.sqrt(max(size, 1)) for size in sizes.tolist()]
        rows = [_Row(number, slice(None), each[number]) for number in np.flatnonzero(sizes).tolist()]
        self._weighed = _norms(self._clipped_by(clip, like, rows)) / self._clip
        self._whole = self._weight_at(clip, like, each)
        if not (least := min(self._whole, *self._weighed[sizes > 0])) >= _LIGHT:
            raise InputError(
                "clip must return the sum of gradients, each clipped to clip_norm as a whole; one weighed "
                f"only {least:.3g} of it. Return no mean and check clip_norm, or leave clip out"
            )

        for times in _LARGER:
            # Such gradients only show whether they pass: a clipper may drop them, or refuse them.
            with contextlib.suppress(Exception):
                weight = self._weight_at(clip, like, each, times)
                self._whole = max(self._whole, weight if math.isfinite(weight) else 0.0)

    def _weight_at(
        self, clip: Callable[[Any], Any], like: Any, each: Sequence[float], times: float = 1.0
    ) -> float:
        """What two gradients over all parameters weigh, one of them this many times the other.

        There are two, since the mean of one would be its sum.
        """
        rows = [
            np.multiply.outer((1.0, times), np.full(shape, one))
            for shape, one in zip(self._shapes, each, strict=True)
        ]
        found = self._read("what clip returns", clip(self._like(like, rows)))
        return float(np.linalg.norm(_norms(found))) / (2 * self._clip)

    def _clipped_by(self, clip: Callable[[Any], Any], like: Any, rows: "Sequence[_Row]") -> list[Floats]:
        """The sum of these rows, clipped."""
        total = [np.zeros(shape) for shape in self._shapes]
        at_once = max(1, _MOST_NUMBERS // sum(map(math.prod, self._shapes)))
        for start in range(0, len(rows), at_once):
            some = rows[start : start + at_once]
            gradients = [np.zeros((len(some), *shape)) for shape in self._shapes]
            for number, row in enumerate(some):
                gradients[row.parameter][number].reshape(-1)[row.place] = row.gradient
            found = self._read("what clip returns", clip(self._like(like, gradients)))
            total = [one + more for one, more in zip(total, found, strict=True)]
        return total

    def _joined(self, like: Any, added: list[Floats]) -> list[Floats]:
        """The sum with what canaries add, which rounding never makes more than it is."""
        real, kinds = (
            self._read("clipped_sum", like),
            [_kind(leaf) for leaf in _leaves("clipped_sum", like)[1]],
        )
        both = []
        for one, more, kind in zip(real, added, kinds, strict=True):
            near = (one + more).astype(kind)
            over = abs(near - one) > abs(more)
            both.append(np.where(over, np.nextafter(near, one.astype(kind)), near))
        return both

    def _like(self, like: Any, arrays: list[Floats]) -> Any:
        """Arrays in the form, of the framework and in the precision of others."""
        names, leaves = _leaves("clipped_sum", like)
        made = [_made(leaf, array) for leaf, array in zip(leaves, arrays, strict=True)]
        if names is None:
            return made[0]
        return dict(zip(names, made, strict=True)) if isinstance(like, Mapping) else type(like)(made)

    def _draw(self) -> Integers:
        """How often each canary takes part, included or not; what included ones add is kept."""
        if self._added is not None:
            raise InputError("call see() for the previous step before calling draw() again")
        often = self._often()
        values = self._clip * often * (self._bits > 0)
        self._added = [np.zeros(shape) for shape in self._shapes]
        numbers = np.cumsum([0, *map(len, self._laid.canaries)])
        for array, places, first in zip(self._added, self._laid.canaries, numbers, strict=False):
            array.reshape(-1)[places] = values[first : first + len(places)]
        return often

    def _often(self) -> Integers:
        """How often each canary takes part in the next step, by coins of our own."""
        coins = self._coins.random((self._rows, len(self._bits))) < self._rate
        return np.asarray(coins.sum(axis=0), dtype=np.int64)

    def see(self, noisy_sum: object, *, real: object, clipped: object = None) -> None:
        """Read a step.

        Args:
            noisy_sum: The sum of what rows and canaries contribute, with noise, before it is averaged.
            real: The clipped sum of your own rows alone. Whoever audits knows them.
            clipped: After `draw_each`, the clipped sum of rows and canaries before the noise. With it, the
                report says if your loop clipped a canary to more than the clip norm.

        Raises:
            InputError: If nothing was drawn for this step, or if an argument has another shape.

        """
        self._see(noisy_sum, real, None if clipped is None else self._read("clipped", clipped))

    def _see(self, noisy_sum: object, real: object, clipped: list[Floats] | None) -> None:
        if self._added is None:
            raise InputError("draw what canaries add before every step that is seen")
        noisy, own = self._read("noisy_sum", noisy_sum), self._read("real", real)
        left = [(one - other) / self._clip for one, other in zip(noisy, own, strict=True)]
        added, self._added = self._added, None
        if clipped is not None:
            self._weigh(clipped, own)
            added = [one - other for one, other in zip(clipped, own, strict=True)]
        self._held.append(_at(left, self._laid.canaries))
        self._witnessed.append(_at(left, self._laid.witnesses))
        if len(self._sums_of_first) < FIRST:
            self._sums_of_first.append(_at(own, self._laid.witnesses) / self._clip)
            self._rounding = max(self._rounding, *map(_rounding, _leaves("noisy_sum", noisy_sum)[1]))
        noise = [float((one - more / self._clip).sum()) for one, more in zip(left, added, strict=True)]
        self._totals.append(np.array(noise)[self._laid.roles.whole])
        if len(self._held) == HELD:
            self._flush()

    def _weigh(self, clipped: list[Floats], real: list[Floats]) -> None:
        """Note what canaries weigh in each parameter at most, less what rounding may have added."""
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
        """Bound, claim and conformance in one text; a claim needs its `delta`. See `Recording.report`.

        `unfinished` says that training was stopped early or goes on, so that it made fewer steps than stated.
        """
        return self.recording(unfinished=unfinished).report(claimed, delta, confidence, **how)

    def recording(self, *, unfinished: bool = False) -> Recording:
        """What was seen so far; see `report` for what is `unfinished`."""
        sums, table = self._with_held()
        noise = max(self._noise, 1e-30)
        witnessed = None
        if self.steps:
            values = np.array(self._witnessed) / noise
            witnessed = Seen.of(values, np.array(self._totals) / noise, self._laid.roles)
            first = np.array(self._sums_of_first) / noise
            rng = np.random.default_rng(derived(self.seed, TIES))
            fine = usable(values[: len(first)], first, self._rounding, self._laid.roles, rng)
            witnessed = witnessed._replace(fine=fine)
        return self._recorded(
            unfinished,
            sums=sums,
            table=table_of(table),
            witnessed=witnessed,
            noise_multiplier=self._noise,
        )

    def _recorded(self, unfinished: bool, **seen: Any) -> Recording:
        count = counted(self.steps, self._planned, _MISSING, unfinished=unfinished)
        weighed = dict(zip(self._called(), self._weighed.tolist(), strict=True))
        return Recording(
            contradictions=(
                *count.contradictions,
                *(too_heavy_in(weighed) or clipped_apart(self._whole)),
            ),
            remarks=count.remarks,
            untested={"steps": count.untested},
            design=self._design,
            bits=self._bits.copy(),
            steps=self.steps,
            sample_rate=self._rate,
            injection="gradients" if self._clipped == self.steps else "sum",
            seed=self.seed,
            layers=self._laid.layers,
            parameters=self._named(),
            roles=self._laid.roles,
            by_the_optimizer=False,
            unit=self._unit,
            rows=self._rows,
            **seen,
        )

    def _flush(self) -> None:
        self._factors = self._believed()
        self._sums, self._table = self._with_held()
        self._held.clear()

    def _believed(self) -> list[float]:
        """How many times the stated noise each parameter has, by the first steps."""
        if self._factors is not None:
            return self._factors
        return self._specified.believed_factors(np.array(self._held), self._stated)

    @property
    def _stated(self) -> Floats:
        return np.full(len(self._held), self._noise)

    def _with_held(self) -> tuple[Floats, Floats]:
        if not self._held:
            return self._sums, self._table
        seen = np.array(self._held)
        added = self._specified.likelihoods(seen, self._stated, self._believed())
        return self._sums + seen.sum(axis=0), self._table + added

    def _read(self, name: str, values: object) -> list[Floats]:
        """The arrays, in double precision, in the order of the parameters."""
        names, leaves = _leaves(name, values)
        shapes = [tuple(np.shape(leaf)) for leaf in leaves]
        if names != self._names or shapes != self._shapes:
            raise InputError(f"{name} must be shaped as parameters are, {self._shapes}, got {shown(shapes)}")
        return [_numbers(leaf) for leaf in leaves]

    def _named(self) -> tuple[str, ...]:
        """The parameters by name, for reports; those of a list have none."""
        names = tuple(one for one in self._names or () if isinstance(one, str))
        return names or numbered(self._shapes)

    def _called(self) -> list[str]:
        """The parameters by name, for messages."""
        if self._names is None:
            return ["the parameter"]
        return [f"parameter {one + 1 if isinstance(one, int) else repr(one)}" for one in self._names]

    def _shaped(self, arrays: list[Floats]) -> Any:
        if self._names is None:
            return arrays[0]
        if all(isinstance(name, int) for name in self._names):
            return arrays
        return dict(zip(self._names, arrays, strict=True))


class CorrelatedRecorder(Recorder):
    """The same for a loop whose noise is correlated between steps, by matrix factorisation.

    Canaries take part by the law of the mechanism, drawn anew by us; with `InOrder`, in the steps in which a
    row leaks most. What is read is whitened, and scored by its exact likelihood (Theorem 35).

    Args:
        parameters: What is trained, as for `Recorder`.
        mechanism: The strategy, the law of participation, and the noise multiplier: that of all steps, the
            deviation of the noise before it is correlated over the sensitivity.
        canaries: The number of canaries.
        clip_norm: The most that one row adds to the sum.
        rng: A seed for the hidden bits, the places and the draws.

    Raises:
        InputError: If an argument is not usable, or if there are more canaries than weights.

    Example:
        >>> import numpy as np
        >>> from canaria.mechanisms import Correlated, InOrder, Strategy
        >>> bands = Strategy.toeplitz([1.0, 0.5, 0.375], steps=12)
        >>> training = Correlated(bands, InOrder(period=4), noise_multiplier=0.5)
        >>> noise = bands.correlate(training.deviation * np.random.default_rng(0).normal(size=(12, 500)))
        >>> recorder = CorrelatedRecorder(np.zeros(500), training, canaries=300, rng=0)
        >>> for step in range(12):
        ...     real = np.ones(500)  # the sum of the clipped gradients of your rows
        ...     recorder.see(real + recorder.draw() + noise[step], real=real)
        >>> recorder.bound(delta=1e-5).epsilon > 2
        True
        >>> recorder.conformance().conforms
        True

    """

    def __init__(
        self,
        parameters: object,
        mechanism: Correlated,
        *,
        canaries: int,
        clip_norm: float = 1.0,
        rng: Seed = None,
    ) -> None:
        self._correlation = Correlation(mechanism=mechanism).at_worst()
        super().__init__(
            parameters,
            canaries=canaries,
            steps=self._correlation.steps,
            sample_rate=self._correlation.sample_rate,
            noise_multiplier=mechanism.noise_multiplier,
            clip_norm=clip_norm,
            rng=rng,
        )
        law = self._correlation.mechanism.participation
        self._taking = law.draw(self._correlation.steps, canaries, self._coins)

    def _often(self) -> Integers:
        if self.steps == self._correlation.steps:
            raise InputError(f"the strategy is for {self.steps} steps, and all were seen")
        return np.asarray(self._taking[self.steps], dtype=np.int64)

    def _flush(self) -> None:
        """All steps are needed together: nothing is let go."""

    def recording(self, *, unfinished: bool = False) -> Recording:
        """What was seen so far."""
        if not self.steps:
            return super().recording()
        so_far = self._correlation.first(self.steps)
        mechanism, seen = so_far.mechanism, np.array(self._held)
        noise, totals = np.array(self._witnessed), np.array(self._totals)
        witnessed = so_far.witnessed(noise, totals, self._laid.roles)
        return self._recorded(
            unfinished,
            sums=seen.sum(axis=0),
            table=so_far.table(seen, witnessed),
            witnessed=witnessed,
            noise_multiplier=mechanism.noise_multiplier,
            sampling=so_far,
        )


def _leaves(name: str, values: object) -> tuple[list[Any] | None, list[Any]]:
    """The names and the arrays of a dict or a list; no names for a single array."""
    if isinstance(values, Mapping):
        names, leaves = list(values), list(values.values())
    elif isinstance(values, Sequence) and not hasattr(values, "shape"):
        names, leaves = list(range(len(values))), list(values)
    else:
        return None, [values]
    if not leaves or not all(hasattr(leaf, "shape") for leaf in leaves):
        raise InputError(f"{name} must be an array, or a list or dict of arrays, got {shown(values)}")
    return names, leaves


def _norms(arrays: list[Floats]) -> Floats:
    return np.array([float(np.linalg.norm(one)) for one in arrays])


def _kind(leaf: Any) -> type[np.floating[Any]]:
    """The precision of an array, as a type of NumPy."""
    size = leaf.dtype.itemsize
    if "float" not in str(leaf.dtype) or size < _PRECISE:
        raise InputError(
            f"clipped_sum must be in single or double precision, got {leaf.dtype}: cast it first"
        )
    return np.float32 if size == _PRECISE else np.float64


def _made(leaf: Any, array: Floats) -> Any:
    """An array of the framework, on the device and in the precision of another one."""
    values = array.astype(_kind(leaf))
    if hasattr(leaf, "new_tensor"):  # torch
        return leaf.new_tensor(values)
    if hasattr(leaf, "__array_namespace__"):  # JAX, and NumPy from version 2 on
        return leaf.__array_namespace__().asarray(values)
    return values


def _numbers(leaf: Any) -> Floats:
    """An array of NumPy, JAX or torch, which may be on another device, or have a gradient."""
    if hasattr(leaf, "detach"):
        leaf = leaf.detach().cpu().double()
    return np.asarray(leaf, dtype=np.float64)


def _rounding(leaf: Floats) -> float:
    """The relative spacing of numbers in the precision of an array."""
    name = str(leaf.dtype).removeprefix("torch.")
    return 2.0**-7 if name == "bfloat16" else float(np.finfo(name).eps)


def _at(arrays: list[Floats], places: tuple[Integers, ...]) -> Floats:
    parts = [array.reshape(-1)[some] for array, some in zip(arrays, places, strict=True)]
    return np.concatenate(parts)
