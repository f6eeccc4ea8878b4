"""How much each auditor shows, on the same scores at the same confidence."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from side_by_side.field import HINDSIGHT, RANKED, Field
from side_by_side.settings import DELTA, opacus_runs, simulated

CONFIDENCE = 0.95
LIMIT, SECONDS = 12.0, 4.0
"""What one call may take, and after how long in a setting no further audit is begun."""


def measured(field: Field) -> dict[str, Any]:
    """Every auditor in every setting; the audits of a setting are the same for all."""
    settings = sorted([*simulated(), opacus_runs()], key=lambda setting: setting.n)
    with tempfile.TemporaryDirectory() as folder:
        tasks = []
        for place, setting in enumerate(settings):
            scores, bits = setting.draw(setting.audits, np.random.default_rng([7, place]))
            file = Path(folder) / f"{place}.npz"
            np.savez(file, scores=scores, bits=bits)
            limits = {"limit": LIMIT, "seconds": SECONDS}
            tasks.append({"file": str(file), "delta": DELTA, "confidence": CONFIDENCE, **limits})
        patient = [{**task, "seconds": 10 * SECONDS} for task in tasks]
        ours = field.all_asked("tightness", [RANKED, HINDSIGHT], patient)
        peers = field.all_asked("tightness", field.auditors(), tasks)
    return {
        "settings": [setting.plain() for setting in settings],
        "answers": [
            {"peer": auditor.peer, "name": auditor.name, "gaussian": auditor.gaussian, "cells": cells}
            for auditor, cells in {**ours, **peers}.items()
        ],
    }
