"""Watching real training with Opacus, plain and under Lightning."""

import json
from pathlib import Path
from typing import Any

import jax
import lightning.pytorch as pl
import pytest
from jax import numpy as jnp
from jax_privacy.noise_addition import gaussian_privatizer
from lightning.pytorch.loggers import CSVLogger

from canaria import InputError
from canaria.evidence import AuditWarning
from canaria.integrations.jax_privacy import attach as attach_to_jax
from canaria.integrations.lightning import CanaryAudit
from canaria.integrations.opacus import Audit, attach
from canaria.training import NoiseAlarmError, Reading, Watch
from tests.integrations.digits import DELTA, SIGMA, Private, private
from tests.integrations.lit import ADVICE, Digits

pytestmark = [*ADVICE, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
NAMES = {"canaria/noise_low", "canaria/noise_high", "canaria/log10_e_value"}


def attached(noise: float = 1.0, injection: str = "sum", **options: Any) -> tuple[Audit, Private]:
    """Training that adds so many times the noise that is stated."""
    made = private(injection, sigma=noise * SIGMA, hidden=64, **options)
    audit = attach(
        made.optimizer, made.loader, injection=injection, canaries=1000, rng=0, noise_multiplier=SIGMA
    )
    return audit, made


@pytest.mark.parametrize("injection", ["sum", "rows", "head"])
def test_half_the_noise_stops_training_within_three_steps(injection: str) -> None:
    audit, made = attached(0.5, injection)
    watch = audit.watch()
    with pytest.raises(NoiseAlarmError, match="the noise is not what was stated"):
        made.one_pass()
    assert audit.steps <= 3
    assert watch.alarm is not None
    assert audit.bound(DELTA).epsilon >= 0
    assert not audit.conformance().conforms


def test_what_a_function_raises_at_the_alarm_ends_training() -> None:
    class Stop(Exception):  # noqa: N818, as users name them
        pass

    def stop(reading: Reading) -> None:
        raise Stop

    audit, made = attached(0.5)
    audit.watch(on_alarm=stop)
    with pytest.raises(Stop):
        made.one_pass()
    assert audit.steps <= 3
    assert audit.bound(DELTA).epsilon >= 0


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
def test_correct_training_goes_on(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    audit, made = attached(mode=mode)
    watch = audit.watch(log="terminal", log_every=10, delta=DELTA)
    made.one_pass()
    made.one_pass()
    assert watch.alarm is None
    reading = watch.reading()
    assert reading.steps == audit.steps == 20
    assert reading.noise[0] < SIGMA < reading.noise[1] < 1.1 * SIGMA
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["step 1", "step 10", "step 20"]
    assert "ε so far" in lines[-1]


def test_clip_norms_and_noise_may_change() -> None:
    """What is watched is in units of the noise that is stated for each step."""
    made = private("sum", hidden=64)
    audit = attach(made.optimizer, made.loader, injection="sum", canaries=1000, rng=0)
    watch = audit.watch()
    for step in range(3):
        made.optimizer.noise_multiplier = SIGMA * (1 + step)
        made.optimizer.max_grad_norm = 1 / (1 + step)
        made.one_pass()
    assert watch.alarm is None
    assert watch.reading().stated == pytest.approx(SIGMA * (14 / 3) ** 0.5)


def test_watching_changes_no_bound() -> None:
    bounds = []
    for watching in (False, True):
        audit, made = attached()
        if watching:
            audit.watch(on_alarm="warn")
        made.one_pass()
        bounds.append(audit.recording().sums)
    assert (bounds[0] == bounds[1]).all()


def test_looking_rarely_sees_the_same() -> None:
    """Also where steps wait over the end of a block of sixteen."""
    readings = []
    for every in (1, 3, 8):
        audit, made = attached()
        watch = audit.watch(every=every)
        for _ in range(3):
            made.one_pass()
        readings.append(watch)
    totals = [watch._seen.total / watch._seen.count for watch in readings]
    assert [watch.reading().steps for watch in readings] == [30, 30, 24]
    assert totals[0] == pytest.approx(totals[1], rel=1e-6)
    assert totals[0] == pytest.approx(totals[2], rel=0.05)
    with pytest.raises(InputError, match="every must be at most 16 steps, got 17"):
        attached()[0].watch(every=17)


def test_a_resumed_audit_goes_on_watching() -> None:
    audit, made = attached()
    audit.watch()
    made.one_pass()
    state, before = audit.state_dict(), audit._steps.watched.watch.reading()  # type: ignore[union-attr]
    audit.detach()
    again = attach(
        made.optimizer,
        made.loader,
        injection="sum",
        canaries=1000,
        rng=1,
        noise_multiplier=SIGMA,
        state=state,
    )
    watch = again.watch()
    assert watch.reading() == before
    made.one_pass()
    assert watch.reading().steps == 20


def test_a_watch_is_for_one_training() -> None:
    audit, _ = attached()
    watch = audit.watch()
    with pytest.raises(InputError, match="has watched another training"):
        audit.watch(watch)


def test_without_a_free_weight_nothing_can_be_watched() -> None:
    made = private("sum")
    audit = attach(made.optimizer, made.loader, injection="sum", canaries=1210, rng=0)
    with pytest.raises(InputError, match="no weight without canaries is left to show the noise"):
        audit.watch()


@pytest.mark.slow
def test_tensorboard_gets_readings(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    audit, made = attached()
    with SummaryWriter(tmp_path) as writer:
        audit.watch(log=writer, log_every=5)
        made.one_pass()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert set(events.Tags()["scalars"]) == NAMES
    assert [event.step for event in events.Scalars("canaria/noise_low")] == [1, 5, 10]


@pytest.mark.slow
def test_mlflow_gets_readings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    audit, made = attached()
    with mlflow.start_run() as run:
        audit.watch(log=mlflow, log_every=5)
        made.one_pass()
    assert set(mlflow.get_run(run.info.run_id).data.metrics) == NAMES


@pytest.mark.slow
def test_weights_and_biases_gets_readings(tmp_path: Path) -> None:
    import wandb

    with wandb.init(mode="offline", dir=tmp_path, project="canaria") as run:
        audit, made = attached()
        audit.watch(log=run, log_every=5)
        made.one_pass()
        run.log({"loss": 1.0})
        kept = dict(run.summary)
    assert NAMES | {"canaria/step", "loss"} <= set(kept)


class TestJax:
    def train(self, noise: float, **how: Any) -> tuple[Any, Any, int]:
        """Forty updates of an audited privatizer, of which every second state is looked at."""
        params = jnp.zeros(3000)
        stated = {"clip_norm": 1.0, "noise_multiplier": 1.0, "sample_rate": 0.1}
        audit = attach_to_jax(
            gaussian_privatizer(stddev=noise, prng_key=0), params, canaries=1000, rng=0, **stated
        )
        watch, state, seen = audit.watch(**how), audit.privatizer.init(params), 0
        update = jax.jit(audit.privatizer.update)
        for step in range(1, 41):
            _, state = update(jnp.ones(3000), state)
            if step % 2 == 0:
                seen = step
                audit.look(state)
        return audit, watch, seen

    def test_half_the_noise_stops_training(self) -> None:
        with pytest.raises(NoiseAlarmError, match="after 1 steps"):
            self.train(0.5)

    def test_correct_training_goes_on(self) -> None:
        _, watch, seen = self.train(1.0)
        assert watch.reading().steps == seen == 40
        low, high = watch.reading().noise
        assert low < 1 < high < 1.05

    def test_steps_made_again_are_seen_once(self) -> None:
        """Going back to an earlier state repeats its noise, which must not be counted twice."""
        params = jnp.zeros(3000)
        stated = {"clip_norm": 1.0, "noise_multiplier": 1.0, "sample_rate": 0.1}
        audit = attach_to_jax(gaussian_privatizer(stddev=1.0, prng_key=0), params, canaries=1000, **stated)
        watch, states = audit.watch(), [audit.privatizer.init(params)]
        for _ in range(4):
            states.append(audit.privatizer.update(jnp.ones(3000), states[-1])[1])
        for state in (*states, *states):
            audit.look(state)
        assert watch.reading().steps == 4

    def test_without_noise_there_is_nothing_to_watch(self) -> None:
        stated = {"clip_norm": 1.0, "noise_multiplier": 0.0, "sample_rate": 0.1}
        privatizer = gaussian_privatizer(stddev=0.0, prng_key=0)
        with pytest.raises(InputError, match="no noise is stated"):
            attach_to_jax(privatizer, jnp.zeros(500), canaries=100, **stated).watch()

    def test_looking_needs_a_watch(self) -> None:
        params = jnp.zeros(500)
        stated = {"clip_norm": 1.0, "noise_multiplier": 1.0, "sample_rate": 0.1}
        audit = attach_to_jax(gaussian_privatizer(stddev=1.0, prng_key=0), params, canaries=100, **stated)
        with pytest.raises(InputError, match=r"call audit\.watch\(\) first"):
            audit.look(audit.privatizer.init(params))


class TestLightning:
    def fit(self, noise: float, folder: Path, watch: Watch) -> tuple[pl.Trainer, CanaryAudit]:
        made = private("sum", sigma=noise * SIGMA, hidden=64)
        callback = CanaryAudit(injection="sum", canaries=1000, rng=0, noise_multiplier=SIGMA, watch=watch)
        runs = pl.Trainer(
            max_epochs=2,
            accelerator="cpu",
            logger=CSVLogger(folder),
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            callbacks=[callback],
        )
        runs.fit(Digits(made.model, made.optimizer), made.loader)
        return runs, callback

    def test_an_alarm_ends_training_as_a_trainer_ends(self, tmp_path: Path) -> None:
        with pytest.warns(AuditWarning, match="the noise is not what was stated"):
            runs, callback = self.fit(0.5, tmp_path, Watch())
        assert runs.should_stop
        assert callback.audit.steps < 20
        assert callback.audit.bound(DELTA).epsilon >= 0

    def test_readings_go_to_the_trainers_logger(self, tmp_path: Path) -> None:
        runs, callback = self.fit(1.0, tmp_path, Watch(log_every=5))
        assert callback.audit.steps == 20
        assert runs.logger is not None
        table = (Path(str(runs.logger.log_dir)) / "metrics.csv").read_text().splitlines()
        assert set(table[0].split(",")) >= NAMES
        assert json.loads(table[1].split(",")[-1]) >= 1
