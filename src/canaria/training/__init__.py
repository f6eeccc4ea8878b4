"""Audits of DP training in any framework: canaries, recording, conformance, watching, planning.

The adapter of a framework (`canaria.integrations`) injects the canaries and leaves a `Recording`; everything
after that happens here. No framework is imported.
"""

from canaria._core.errors import NoiseAlarmError, TrainingDivergedError
from canaria.training.canaries.designs import Dense, Dirac
from canaria.training.canaries.sampling import Sampling
from canaria.training.findings import Findings
from canaria.training.recorder import CorrelatedRecorder, Recorder
from canaria.training.recording import Recording
from canaria.training.watch import Reading, Watch

__all__ = [
    "CorrelatedRecorder",
    "Dense",
    "Dirac",
    "Findings",
    "NoiseAlarmError",
    "Reading",
    "Recorder",
    "Recording",
    "Sampling",
    "TrainingDivergedError",
    "Watch",
]
