"""Audits of DP training, whatever framework trains: canaries, recording, conformance, planning.

A framework's adapter (`canaria.integrations`) puts the canaries in and leaves a `Recording` behind; all that
follows happens here. No framework is imported.
"""

from canaria._core.errors import TrainingDivergedError
from canaria.training.canaries import Dense, Dirac
from canaria.training.conformance import conformance
from canaria.training.recording import Recording

__all__ = ["Dense", "Dirac", "Recording", "TrainingDivergedError", "conformance"]
