"""The callback under a real Lightning trainer."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from canaria import InputError
from canaria.integrations.lightning import CanaryAudit
from tests.integrations.digits import DELTA, private
from tests.integrations.lit import ADVICE, Digits

pytestmark = ADVICE


def trainer(passes: int, *callbacks: Any) -> pl.Trainer:
    return pl.Trainer(
        max_epochs=passes,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        callbacks=list(callbacks),
    )


def fit(seed: int, passes: int, audit: CanaryAudit, checkpoint: Path | None = None) -> tuple[pl.Trainer, Any]:
    made = private("sum", seed=seed)
    runs = trainer(passes, audit)
    runs.fit(Digits(made.model, made.optimizer), made.loader, ckpt_path=checkpoint)
    return runs, made


def test_callback_audits_training() -> None:
    audit = CanaryAudit(injection="sum", canaries=1000, rng=0)
    _, made = fit(0, 5, audit)
    assert audit.audit.steps == 50
    assert len(made.engine.accountant.history) == 1
    assert audit.audit.conformance().p_value >= 1e-4
    assert "not refuted" in str(audit.audit.report(claimed=made.engine.get_epsilon(DELTA), delta=DELTA))


def test_checkpoint_of_lightning_holds_the_audit(tmp_path: Path) -> None:
    begun = CanaryAudit(injection="sum", canaries=1000, rng=3)
    runs, _ = fit(3, 2, begun)
    runs.save_checkpoint(tmp_path / "half.ckpt")
    half = begun.audit.recording()
    torch.manual_seed(7)
    resumed = CanaryAudit(injection="sum", canaries=1000, rng=11)
    fit(4, 4, resumed, tmp_path / "half.ckpt")
    whole = resumed.audit.recording()
    assert (whole.bits == half.bits).all()
    assert whole.steps == 40
    assert np.corrcoef(whole.sums, half.sums)[0, 1] > 0.5
    assert resumed.audit.conformance().p_value >= 1e-4


def test_asking_before_training() -> None:
    with pytest.raises(InputError, match="no audit is attached yet"):
        _ = CanaryAudit(injection="sum", canaries=10).audit


def test_rows_are_refused_because_batches_are_drawn_too_early() -> None:
    with pytest.raises(InputError, match="use injection='sum' or 'head'"):
        CanaryAudit(injection="rows", canaries=10)
