"""A recorder for any training loop: it says what canaries add to a step, and reads what comes out of it.

No framework is needed. Arrays may be NumPy's, torch's or JAX's; parameters are one array, or a list, tuple or
dict of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from canaria._core import checks, seeds
from canaria._core.arrays import Floats, Integers
from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed
from canaria.mechanisms.correlated import Correlated
from canaria.training.accumulator import HELD, Accumulator, table_of
from canaria.training.canaries import DRAWS, PLACES, Dirac, derived, hidden_bits
from canaria.training.correlated import Correlation
from canaria.training.recorded import Recorded
from canaria.training.recording import UNITS, Recording
from canaria.training.sampling import Sampling
from canaria.training.witnesses import Seen, layout

_ATTACH: Final = 0x72656364


class Contribution(NamedTuple):
    """What a canary that takes part brings to a step: `clip_norm` on one weight, or nothing.

    Attributes:
        parameter: The number of the array that holds the weight.
        place: The weight, in the flattened array.
        included: Whether the canary is included; an excluded one takes part, and adds nothing.

    """

    parameter: int
    place: int
    included: bool


class Recorder(Recorded):
    """An audit of a training loop that you drive yourself.

    In every step, `draw` says what the canaries add to the clipped sum, and `see` reads the sum with noise.
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
        unit: What a canary stands for: "row", "user" or "client".
        rows: The number of rows of a user, each clipped and drawn by itself.
        rng: A seed for the hidden bits, the places and the draws.

    Raises:
        InputError: If an argument is not usable, or if there are more canaries than weights.

    Example:
        >>> import numpy as np
        >>> noise = np.random.default_rng(0)
        >>> weights = np.zeros(500)
        >>> recorder = Recorder(weights, canaries=300, sample_rate=0.5, noise_multiplier=0.5, rng=0)
        >>> for _ in range(20):
        ...     real = np.ones(500)  # the sum of the clipped gradients of your rows
        ...     noisy = real + recorder.draw() + noise.normal(0, 0.5, 500)
        ...     recorder.see(noisy, real=real)
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
        unit: str = "row",
        rows: int = 1,
        rng: Seed = None,
    ) -> None:
        self._names, leaves = _leaves("parameters", parameters)
        self._shapes = [tuple(np.shape(leaf)) for leaf in leaves]
        self._design = Dirac(canaries)
        self._rate = checks.real("sample_rate", sample_rate)
        if not 0 < self._rate <= 1:
            raise InputError(f"sample_rate must be above 0 and at most 1, got {shown(sample_rate)}")
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
        self._factors: list[float] | None = None
        self._sums, self._table = np.zeros(canaries), np.zeros((1, canaries))
        self._held: list[Floats] = []
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

    def draw_each(self) -> list[Contribution]:
        """The canaries that take part in the next step, one by one, in the place of `draw`.

        For a loop that clips and adds canaries as it does rows. How many take part says nothing of the bits.
        """
        often = self._draw()
        places = [(number, index) for number, some in enumerate(self._laid.canaries) for index in some]
        return [
            Contribution(number, int(index), bool(bit > 0))
            for (number, index), bit, times in zip(places, self._bits, often, strict=True)
            for _ in range(times)
        ]

    def _draw(self) -> Integers:
        """How often each canary takes part, included or not; what included ones add is kept."""
        if self._added is not None:
            raise InputError("draw was called twice: see the step that the first draw was for, and then draw")
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

    def see(self, noisy_sum: object, *, real: object) -> None:
        """Read a step.

        Args:
            noisy_sum: The sum of what rows and canaries contribute, with noise, before it is averaged.
            real: The clipped sum of your own rows alone. Whoever audits knows them.

        Raises:
            InputError: If nothing was drawn for this step, or if an argument has another shape.

        """
        if self._added is None:
            raise InputError("draw what canaries add before every step that is seen")
        noisy, own = self._read("noisy_sum", noisy_sum), self._read("real", real)
        left = [(one - other) / self._clip for one, other in zip(noisy, own, strict=True)]
        added, self._added = self._added, None
        self._held.append(_at(left, self._laid.canaries))
        self._witnessed.append(_at(left, self._laid.witnesses))
        noise = [float((one - more / self._clip).sum()) for one, more in zip(left, added, strict=True)]
        self._totals.append(np.array(noise)[self._laid.roles.whole])
        if len(self._held) == HELD:
            self._flush()

    def recording(self) -> Recording:
        """What was seen so far."""
        sums, table = self._with_held()
        noise = max(self._noise, 1e-30)
        witnessed = None
        if self.steps:
            values = np.array(self._witnessed) / noise
            witnessed = Seen.of(values, np.array(self._totals) / noise, self._laid.roles)
        return self._recorded(
            sums=sums, table=table_of(table), witnessed=witnessed, noise_multiplier=self._noise
        )

    def _recorded(self, **seen: Any) -> Recording:
        return Recording(
            design=self._design,
            bits=self._bits.copy(),
            steps=self.steps,
            sample_rate=self._rate,
            injection="sum",
            seed=self.seed,
            layers=self._laid.layers,
            parameters=len(self._shapes),
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

    def recording(self) -> Recording:
        """What was seen so far."""
        if not self.steps:
            return super().recording()
        so_far = self._correlation.first(self.steps)
        mechanism, seen = so_far.mechanism, np.array(self._held)
        noise, totals = np.array(self._witnessed), np.array(self._totals)
        witnessed = so_far.witnessed(noise, totals, self._laid.roles)
        return self._recorded(
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


def _numbers(leaf: Any) -> Floats:
    """An array of NumPy, JAX or torch, which may be on another device, or have a gradient."""
    if hasattr(leaf, "detach"):
        leaf = leaf.detach().cpu().double()
    return np.asarray(leaf, dtype=np.float64)


def _at(arrays: list[Floats], places: tuple[Integers, ...]) -> Floats:
    parts = [array.reshape(-1)[some] for array, some in zip(arrays, places, strict=True)]
    return np.concatenate(parts)
