"""The irises of scikit-learn, learned by mostlyai-engine with differential privacy."""

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

from mostlyai import engine
from mostlyai.engine.domain import DifferentialPrivacyConfig
from opacus.optimizers import DPOptimizer
from sklearn.datasets import load_iris

BATCH = 16


def half_of_the_noise() -> Any:
    """Opacus as a fork has it that forgot a factor."""
    added = DPOptimizer.add_noise

    def less(optimizer: Any) -> None:
        optimizer.noise_multiplier /= 2
        added(optimizer)
        optimizer.noise_multiplier *= 2

    return mock.patch.object(DPOptimizer, "add_noise", less)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", choices=["none", "half", "reseeded"], default="none")
    options = parser.parse_args()

    def reproducible(**_: Any) -> None:
        """Called after every step: the same seed, and so the same noise, for each."""
        engine.set_random_state(options.seed)

    table = load_iris(as_frame=True).frame
    engine.set_random_state(options.seed)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as faults:
        if options.fault == "half":
            faults.enter_context(half_of_the_noise())
        place = Path(folder)
        engine.split(tgt_data=table, workspace_dir=place, model_type="TABULAR")
        engine.analyze(workspace_dir=place)
        engine.encode(workspace_dir=place)
        engine.train(
            workspace_dir=place,
            model="MOSTLY_AI/Small",
            max_epochs=options.steps * BATCH / len(table),
            batch_size=BATCH,
            device="cpu",
            differential_privacy=DifferentialPrivacyConfig(
                max_epsilon=20.0, noise_multiplier=1.0, max_grad_norm=1.0
            ),
            update_progress=reproducible if options.fault == "reseeded" else None,
        )


if __name__ == "__main__":
    main()
