"""A check of the noise while training runs, with an alarm that is valid in every step.

Witnesses never carry a canary, so their noise does not depend on the hidden bits. Training may be stopped
because of it, and the bound still holds. The alarm is an e-value (Theorem 32), not a p-value: the probability
that it stops correct training is at most `alpha`, however often it is checked.
"""

import logging
import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from canaria._core import checks
from canaria._core.errors import AuditWarning, InputError, NoiseAlarmError, TrainingDivergedError, shown
from canaria._core.rounding import rounded_down, rounded_up
from canaria.claims import DpSgd
from canaria.training.conformance.measured import Squares

ON_ALARM: Final = ("stop", "warn")
_LEAST_NOISE: Final = 0.2
"""With less noise than this, epsilon is not computed: it is larger than at this noise."""
Metrics = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The state of a watched training run so far.

    Attributes:
        steps: The number of steps that were watched.
        stated: The stated noise multiplier, its root mean square over the steps.
        noise: An interval for the noise multiplier that is valid in all steps at once, at 95% confidence.
        log_e_value: The natural logarithm of the e-value against the stated noise.
        alpha: If the noise is as stated, the e-value ever exceeds 1 / alpha with probability at most alpha.
        epsilon: The accountant's epsilon for that noise and these steps; None if it was not requested.

    Example:
        >>> from canaria.training import Reading
        >>> print(Reading(steps=20, stated=1.0, noise=(0.48, 0.53), log_e_value=80.0, alpha=1e-3))
        step 20: noise multiplier 0.480 to 0.530 (stated 1), e-value 5.5e+34 (alarm at 1000)
    """

    steps: int
    stated: float
    noise: tuple[float, float]
    log_e_value: float
    alpha: float
    epsilon: tuple[float, float] | None = None

    @property
    def alarming(self) -> bool:
        """Whether the e-value shows that the noise is not as stated."""
        return self.log_e_value >= -math.log(self.alpha)

    @property
    def metrics(self) -> Metrics:
        """The values to log, by name."""
        found = {
            "canaria/noise_low": self.noise[0],
            "canaria/noise_high": self.noise[1],
            "canaria/log10_e_value": self.log_e_value / math.log(10),
        }
        if self.epsilon is not None:
            found |= {"canaria/epsilon_low": self.epsilon[0], "canaria/epsilon_high": self.epsilon[1]}
        return found

    def __str__(self) -> str:
        """One line for a terminal."""
        low, high = self.noise
        told = (
            f"step {self.steps}: noise multiplier {rounded_down(low)} to {rounded_up(high)} "
            f"(stated {self.stated:.4g}), e-value {_power(self.log_e_value)} (alarm at {1 / self.alpha:g})"
        )
        if self.epsilon is not None:
            told += f", ε so far {rounded_down(self.epsilon[0], 2)} to {rounded_up(self.epsilon[1], 2)}"
        return told


class Watch:
    """An alarm that watches the noise of training. `Audit.watch` makes one; `CanaryAudit` takes one.

    Args:
        alpha: The largest probability that correct training raises the alarm, over all steps together.
        every: The number of steps between checks of the e-value.
        on_alarm: The action at the first alarm. "stop" ends training: with a `NoiseAlarmError`, or under
            Lightning by stopping the trainer. "warn" issues a warning. A function is called with the
            `Reading`, and an exception that it raises ends training.
        log: The destination of readings: "terminal", a `logging.Logger`, a TensorBoard writer, MLflow, a run
            of Weights & Biases, a logger of Lightning, or a function of the metrics and the step. If it
            raises an exception, a warning is issued and logging stops.
        log_every: The number of steps between logged readings. An alarm is always logged.
        delta: The delta of the implied epsilon, which is computed each time the number of steps doubles.

    Example:
        ```python
        watch = Watch(alpha=1e-3, on_alarm="warn", log="terminal", delta=1e-5)
        callback = CanaryAudit(injection="sum", canaries=1000, watch=watch)  # with Lightning
        ```
    """

    def __init__(
        self,
        *,
        alpha: float = 1e-3,
        every: int = 1,
        on_alarm: str | Callable[[Reading], None] = "stop",
        log: Any = None,
        log_every: int = 50,
        delta: float | None = None,
    ) -> None:
        if not 0 < checks.real("alpha", alpha) < 1:
            raise InputError(f"alpha must be strictly between 0 and 1, got {shown(alpha)}")
        if not callable(on_alarm) and on_alarm not in ON_ALARM:
            raise InputError(f"on_alarm must be 'stop', 'warn' or a function, got {shown(on_alarm)}")
        self.alpha, self.every = float(alpha), checks.integer("every", every, 1)
        self.on_alarm, self.log_every = on_alarm, checks.integer("log_every", log_every, 1)
        self.delta = None if delta is None else checks.delta(delta)
        self.log = log
        self.alarm: Reading | None = None
        self.raised: Exception | None = None
        self._write = _writer(log)
        self._rate: float | None = None
        self._seen, self._steps, self._noise_square = Squares(0.0, 0), 0, 0.0
        self._next_epsilon, self._epsilon_at = 1, 0
        self._epsilon: tuple[float, float] | None = None
        self._stop: Callable[[], None] | None = None

    def under(self, stop: Callable[[], None], logger: object) -> None:
        """Stop training by this call instead of an error, and log to `logger` if no other one was given."""
        self._stop = stop
        if self.log is None:
            self._write = _writer(logger)

    def begin(self, sample_rate: float, state: dict[str, Any] | None = None) -> None:
        """Begin to watch a run with this sampling rate, or continue from the state of an interrupted run."""
        if self._rate is not None:
            raise InputError("this watch has watched another training; make a new one for this")
        self._rate = sample_rate
        if state:
            self._seen = Squares(float(state["total"]), int(state["count"]))
            self._steps, self._noise_square = int(state["steps"]), float(state["noise_square"])

    def add(self, squares: Squares, stated: float) -> None:
        """Add a step: the squares of its witnesses, in units of the stated noise.

        Raises:
            NoiseAlarmError: If this raises the alarm, and the alarm stops training.
            TrainingDivergedError: If the noise is not finite.
        """
        if not math.isfinite(squares.total):
            raise TrainingDivergedError(
                f"the noisy sum of step {self._steps + 1} is not finite, so the noise cannot be watched"
            )
        self._seen, self._steps = self._seen.plus(squares), self._steps + 1
        self._noise_square += stated**2
        alarming = self._steps % self.every == 0 and self._alarming()
        if alarming or self._steps % self.log_every == 0 or self._steps == 1:
            self._log()
        if alarming:
            self._raise_alarm()

    def _log(self) -> None:
        """Log a reading. If the logger fails, stop logging, so that neither audit nor training is harmed."""
        try:
            self._write(self.reading())
        except Exception as error:
            self._write = _writer(None)
            warnings.warn(f"logging of readings stopped: {error!r}", AuditWarning, stacklevel=3)

    def _alarming(self) -> bool:
        return self.alarm is None and self._seen.log_e_value() >= -math.log(self.alpha)

    def _raise_alarm(self) -> None:
        self.alarm = self.reading()
        if callable(self.on_alarm):
            try:
                self.on_alarm(self.alarm)
            except Exception as error:
                self.raised = error
                raise
            return
        low, high = self.alarm.noise
        told = (
            f"the noise is not what was stated: after {self._steps} steps the noise multiplier is between "
            f"{rounded_down(low)} and {rounded_up(high)}, and {self.alarm.stated:.4g} is stated (e-value "
            f"{_power(self.alarm.log_e_value)}, where correct training exceeds {1 / self.alpha:g} with a "
            f"probability of at most {self.alpha:g})"
        )
        if self.on_alarm == "stop" and self._stop is None:
            raise NoiseAlarmError(told)
        if self.on_alarm == "stop" and self._stop is not None:
            self._stop()
        warnings.warn(told, AuditWarning, stacklevel=2)

    def reading(self) -> Reading:
        """The state so far, with the implied epsilon each time the number of steps has doubled."""
        stated = math.sqrt(self._noise_square / max(self._steps, 1))
        low, high = (stated * ratio for ratio in self._seen.running_interval(0.05))
        return Reading(
            steps=self._steps,
            stated=stated,
            noise=(low, high),
            log_e_value=self._seen.log_e_value(),
            alpha=self.alpha,
            epsilon=self._implied(low, high),
        )

    def _implied(self, low: float, high: float) -> tuple[float, float] | None:
        if self.delta is None or self._rate is None or high == math.inf:
            return None
        if self._steps < self._next_epsilon:
            return self._epsilon if self._epsilon_at == self._steps else None
        # The accountant takes seconds, so it is asked a number of times that grows with the logarithm of
        # steps.
        self._next_epsilon, self._epsilon_at = 2 * self._steps, self._steps
        self._epsilon = self._accounted(low, high, self._rate, self.delta)
        return self._epsilon

    def _accounted(self, low: float, high: float, rate: float, delta: float) -> tuple[float, float]:
        least = DpSgd(
            noise_multiplier=max(high, _LEAST_NOISE), sample_rate=rate, steps=self._steps
        ).least_epsilon_at(delta)
        if low < _LEAST_NOISE:
            return least, math.inf
        return least, DpSgd(noise_multiplier=low, sample_rate=rate, steps=self._steps).epsilon_at(delta)

    def state_dict(self) -> dict[str, Any]:
        """The state to save in a checkpoint."""
        return {
            "total": self._seen.total,
            "count": self._seen.count,
            "steps": self._steps,
            "noise_square": self._noise_square,
        }


def _writer(log: Any) -> Callable[[Reading], None]:
    """A function that sends readings to a logger, by the method that loggers of its kind share."""
    if log is None:
        return lambda reading: None
    if log == "terminal" or isinstance(log, logging.Logger):
        tell = partial(print, file=sys.stderr) if log == "terminal" else log.info
        return lambda reading: tell(str(reading))
    if hasattr(log, "log_metrics"):
        return lambda reading: log.log_metrics(reading.metrics, step=reading.steps)
    if hasattr(log, "add_scalar"):
        return partial(_write_scalars, log)
    if hasattr(log, "log"):
        return lambda reading: log.log({**reading.metrics, "canaria/step": reading.steps}, commit=False)
    if callable(log):
        return lambda reading: log(reading.metrics, reading.steps)
    raise InputError(
        "log must be 'terminal', a logging.Logger, a TensorBoard writer, MLflow, a run of Weights & Biases, "
        f"a logger of Lightning, or a function of metrics and step, got {shown(log)}"
    )


def _write_scalars(log: Any, reading: Reading) -> None:
    for name, value in reading.metrics.items():
        log.add_scalar(name, value, reading.steps)


def _power(log_e_value: float) -> str:
    """An e-value as text; also if it is too large for a float."""
    return f"{math.exp(log_e_value):.2g}" if abs(log_e_value) < 200 else f"1e{log_e_value / math.log(10):.0f}"
