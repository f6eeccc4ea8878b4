"""Recorders for any training loop: independent noise with Poisson sampling, or correlated noise."""

import numpy as np

from canaria._core import checks
from canaria._core.arrays import Floats, Integers
from canaria._core.errors import InputError
from canaria._core.seeds import Seed
from canaria.mechanisms.correlated import Correlated
from canaria.training.canaries.designs import TIES, derived
from canaria.training.canaries.sampling import Sampling
from canaria.training.canaries.witnesses import Seen
from canaria.training.conformance.coincidences import usable
from canaria.training.conformance.residuals import beside_the_noise, residual_of
from canaria.training.likelihood.accumulator import HELD, Accumulator, table_of
from canaria.training.likelihood.correlated import Correlation
from canaria.training.loop import Loop
from canaria.training.recording import NO_STEP, Recording


class Recorder(Loop):
    """An audit of a training loop that you drive yourself.

    `step` does all that an audit needs in a step: it adds the canaries to the clipped sum, calls your
    function to add the noise, and reads the result. If your loop adds noise in another way, use two calls:
    `draw` returns the canaries' contribution to the clipped sum, and `see` reads the sum with noise.

    Canaries are rows with a gradient of norm `clip_norm` on one weight each. A hidden coin decides whether a
    canary is included. Its size and frequency are those of `clip_norm` and `sample_rate`: if these exceed
    what training does, the bound is too high. Conformance detects a wrong clip norm and wrong noise, but not
    a wrong rate, because the recorder draws the canaries itself.

    For claims about users, a canary is a user: all of its rows are included or none. If users are clipped and
    drawn as a whole, a user is one contribution, and `unit="user"` is enough. If rows are clipped and drawn,
    a user of k `rows` moves the sum by up to k clip norms, and the bound is about such users. A claim about
    rows implies one about users by group privacy, with a larger ε and δ.

    Args:
        parameters: The parameters: an array, or a list, tuple or dict of arrays. Only shapes are used.
        canaries: The number of canaries, at most one for each weight.
        sample_rate: The probability that a row takes part in a step, independently of other rows.
        noise_multiplier: The stated noise, in clip norms.
        clip_norm: The largest norm that one row adds to the sum.
        steps: The number of steps stated to the accountant. If fewer or more are seen, the report says so.
            None leaves that untested.
        unit: The unit of privacy that a canary represents: "row", "user" or "client".
        rows: The number of rows of a user, each clipped and drawn separately.
        rng: A seed for the hidden bits, the places and the draws.

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
        super().__init__(
            parameters, canaries=canaries, clip_norm=clip_norm, steps=steps, unit=unit, rows=rows, rng=rng
        )
        self._rate = checks.sample_rate(sample_rate)
        self._noise = checks.nonnegative("noise_multiplier", noise_multiplier)
        self._specified = Accumulator.of(
            self._design,
            self._laid.layers,
            self._laid.roles,
            sample_rate=self._rate,
            sampling=Sampling(accumulated=self._rows),
        )
        self._residuals: list[Floats] = []
        self._factors: list[float] | None = None
        self._sums, self._table = np.zeros(canaries), np.zeros((1, canaries))

    def _often(self) -> Integers:
        coins = self._coins.random((self._rows, len(self._bits))) < self._rate
        return np.asarray(coins.sum(axis=0), dtype=np.int64)

    def recording(self, *, unfinished: bool = False) -> Recording:
        """The record of the steps so far; for `unfinished`, see `report`."""
        sums, table = self._with_held()
        # Observations are in units of the stated noise. Without noise they must be huge, and not undefined.
        noise = max(self._noise, 1e-30)
        witnessed = None
        if self.steps:
            values = np.array(self._witnessed) / noise
            witnessed = Seen.of(values, np.array(self._totals) / noise, self._laid.roles)
            first = np.array(self._sums_of_first) / noise
            rng = np.random.default_rng(derived(self.seed, TIES))
            relative, absolute = self._spacing
            rounding = max(self._rounding, relative), absolute / (self._clip * noise)
            fine = usable(values[: len(first)], first, rounding, self._laid.roles, rng)
            witnessed = witnessed._replace(fine=fine)
        return self._recorded(
            unfinished,
            sums=sums,
            table=table_of(table),
            witnessed=witnessed,
            sample_rate=self._rate,
            noise_multiplier=self._noise,
            beside=self._beside_the_noise(),
        )

    def _note_noise(self, noise: list[Floats], clipped: list[Floats], coarse: float) -> None:
        # Not for correlated noise: the sum of a step depends on earlier noise, and so does its noise.
        unit = max(self._noise, 1e-30)
        self._residuals.append(residual_of([one / unit for one in noise], clipped, coarse / unit))

    def _beside_the_noise(self) -> tuple[str, ...]:
        sizes = np.array(self._leaves.sizes, dtype=np.float64)
        return (
            beside_the_noise(np.array(self._residuals), sizes, self._leaves.in_messages) if self.steps else ()
        )

    def _add_held(self) -> None:
        if len(self._held) < HELD:
            return
        # From the first buffer alone, and kept: how a step is scored must not depend on later ones.
        self._factors = self._believed()
        self._sums, self._table = self._with_held()
        self._held.clear()

    def _believed(self) -> list[float]:
        """The noise of each parameter over the stated noise, from the first steps."""
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


class CorrelatedRecorder(Loop):
    """A recorder for a loop whose noise is correlated between steps, by matrix factorisation.

    Canaries take part by the law of the mechanism, drawn afresh. With `InOrder`, they are placed in the steps
    that leak the most. The noisy sums are whitened and scored by their exact likelihood (Theorem 35).

    Args:
        parameters: The trained parameters, as for `Recorder`.
        mechanism: The strategy, the law of participation, and the noise multiplier of the whole training: the
            standard deviation of the noise before correlation, over the sensitivity.
        canaries: The number of canaries.
        clip_norm: The largest norm that one row adds to the sum.
        rng: A seed for the hidden bits, the places and the draws.

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
            clip_norm=clip_norm,
            steps=self._correlation.steps,
            unit="row",
            rows=1,
            rng=rng,
        )
        law = self._correlation.mechanism.participation
        self._taking = law.draw(self._correlation.steps, canaries, self._coins)

    def _often(self) -> Integers:
        if self.steps == self._correlation.steps:
            raise InputError(f"the strategy is for {self.steps} steps, and all were seen")
        return np.asarray(self._taking[self.steps], dtype=np.int64)

    def recording(self, *, unfinished: bool = False) -> Recording:
        """The record of the steps so far. Scores need all steps together, so no step is processed earlier."""
        if not self.steps:
            raise InputError(NO_STEP)
        so_far = self._correlation.first(self.steps)
        mechanism, seen = so_far.mechanism, np.array(self._held)
        noise, totals = np.array(self._witnessed), np.array(self._totals)
        witnessed = so_far.witnessed(noise, totals, self._laid.roles)
        return self._recorded(
            unfinished,
            sums=seen.sum(axis=0),
            table=so_far.table(seen, witnessed),
            witnessed=witnessed,
            sample_rate=self._correlation.sample_rate,
            noise_multiplier=mechanism.noise_multiplier,
            sampling=so_far,
        )
