"""The alarm: correct training is stopped rarely however often it is looked at, faulty training soon."""

import logging
import math
from typing import Any

import numpy as np
import pytest

from canaria import InputError
from canaria.claims.accounting import dpsgd_epsilon
from canaria.evidence import AuditWarning
from canaria.training import NoiseAlarmError, Reading, TrainingDivergedError, Watch
from canaria.training.conformance.measured import Squares

WITNESSES, ALPHA = 1000, 1e-3


def first_alarms(noise: float, runs: int, steps: int, seed: int) -> np.ndarray:
    """The step of the alarm in each run, by what `Watch` computes in every step; infinite if there is none."""
    totals = np.cumsum(np.random.default_rng(seed).chisquare(WITNESSES, (runs, steps)) * noise**2, axis=1)
    found = np.full(runs, math.inf)
    for step in range(steps, 0, -1):
        e_values = np.array(
            [Squares(t, WITNESSES * step).log_e_value() for t in totals[:, step - 1].tolist()]
        )
        found[e_values >= -math.log(ALPHA)] = step
    return found


def test_correct_training_is_stopped_rarely() -> None:
    """At most in alpha of 20,000 runs; 40 alarms would be chance once in 10,000 times."""
    assert np.isfinite(first_alarms(1.0, 20_000, 20, seed=0)).sum() <= 35


@pytest.mark.parametrize(("noise", "within"), [(0.5, 3), (0.9, 10)])
def test_faulty_training_is_stopped_soon(noise: float, within: int) -> None:
    assert np.median(first_alarms(noise, 100, 12, seed=1)) <= within


def watched(watch: Watch, noise: float, steps: int, stated: float = 1.2) -> None:
    rng = np.random.default_rng(3)
    watch.begin(0.1)
    for _ in range(steps):
        watch.add(Squares(float(noise**2 * rng.chisquare(WITNESSES)), WITNESSES), stated)


def test_an_alarm_stops_training_and_says_why() -> None:
    watch = Watch()
    with pytest.raises(
        NoiseAlarmError, match=r"after 1 steps the noise multiplier is between 0\.5\d* and"
    ) as told:
        watched(watch, 0.5, 10)
    assert "1.2 is stated" in str(told.value)
    assert watch.alarm is not None
    assert watch.alarm.alarming
    assert watch.alarm.noise[0] < 0.6 < watch.alarm.noise[1]


def test_an_alarm_warns_once() -> None:
    with pytest.warns(AuditWarning, match="the noise is not what was stated") as warned:
        watched(Watch(on_alarm="warn"), 0.5, 10)
    assert len(warned) == 1


def test_an_alarm_calls_a_function() -> None:
    told: list[Reading] = []
    watched(Watch(on_alarm=told.append), 0.5, 10)
    assert [reading.steps for reading in told] == [1]


def test_it_looks_every_so_many_steps() -> None:
    told: list[Reading] = []
    watched(Watch(on_alarm=told.append, every=4), 0.5, 10)
    assert [reading.steps for reading in told] == [4]


def test_more_noise_than_stated_is_an_alarm_too() -> None:
    with pytest.raises(NoiseAlarmError):
        watched(Watch(), 1.3, 10)


def test_it_goes_on_from_its_state() -> None:
    """The error probability of an alarm is spent once, not anew after every interruption."""
    first, whole, second = Watch(), Watch(), Watch()
    watched(first, 1.0, 5)
    watched(whole, 1.0, 5)
    second.begin(0.1, first.state_dict())
    for watch in (whole, second):
        watch.add(Squares(990.0, WITNESSES), 1.2)
    assert second.reading() == whole.reading()
    with pytest.raises(InputError, match="has watched another training"):
        second.begin(0.1)


def test_epsilon_is_implied_when_steps_have_doubled() -> None:
    lines: list[tuple[dict[str, float], int]] = []
    watch = Watch(log=lambda metrics, step: lines.append((metrics, step)), log_every=1, delta=1e-5)
    watched(watch, 1.0, 9)
    told = [step for metrics, step in lines if "canaria/epsilon_low" in metrics]
    assert told == [1, 2, 4, 8]
    low, high = lines[7][0]["canaria/epsilon_low"], lines[7][0]["canaria/epsilon_high"]
    assert low < dpsgd_epsilon(1.2, 1e-5, steps=8, sample_rate=0.1, accountant="pld") < high
    assert all(metrics["canaria/log10_e_value"] < 3 for metrics, _ in lines)


def test_loggers_get_readings_by_their_own_call(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []

    class WithMetrics:
        def log_metrics(self, metrics: dict[str, float], step: int) -> None:
            seen.append(("metrics", step, sorted(metrics)))

    class WithScalars:
        def add_scalar(self, name: str, value: float, step: int) -> None:
            seen.append(("scalar", step, name))

    class Run:
        def log(self, metrics: dict[str, float], commit: bool) -> None:
            seen.append(("run", metrics["canaria/step"], commit))

    for log in (WithMetrics(), WithScalars(), Run()):
        watched(Watch(log=log), 1.0, 1)
    names = ["canaria/log10_e_value", "canaria/noise_high", "canaria/noise_low"]
    assert seen[0] == ("metrics", 1, names)
    assert {one[2] for one in seen[1:4]} == set(names)
    assert seen[4] == ("run", 1, False)
    watched(Watch(log="terminal", delta=1e-5), 1.0, 1)
    assert "step 1: noise multiplier 1.1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"alpha": 0.0}, "alpha must be strictly between 0 and 1"),
        ({"every": 0}, "every must be"),
        ({"on_alarm": "shout"}, "on_alarm must be 'stop', 'warn' or a function"),
        ({"log": 3}, "log must be 'terminal'"),
        ({"delta": 2.0}, "delta must be"),
    ],
)
def test_what_is_not_usable_is_an_error(how: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Watch(**how)


def test_a_logger_that_fails_harms_nothing() -> None:
    calls = []

    def fails(metrics: dict[str, float], step: int) -> None:
        calls.append(step)
        raise OSError("disk full")

    with pytest.warns(AuditWarning, match="logging of readings stopped: OSError"):
        watched(Watch(log=fails, log_every=1), 1.0, 10)
    assert calls == [1]


def test_loggers_of_python_get_readings(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        watched(Watch(log=logging.getLogger("train"), log_every=2), 1.0, 4)
    assert [record.message.partition(":")[0] for record in caplog.records] == ["step 1", "step 2", "step 4"]


def test_noise_that_is_not_finite_is_said() -> None:
    watch = Watch()
    watch.begin(0.1)
    with pytest.raises(TrainingDivergedError, match="noisy sum of step 1 is not finite"):
        watch.add(Squares(math.nan, WITNESSES), 1.2)


def test_epsilon_stays_until_the_next_step() -> None:
    watch = Watch(delta=1e-5)
    watched(watch, 1.0, 4)
    assert watch.reading().epsilon == watch.reading().epsilon is not None
