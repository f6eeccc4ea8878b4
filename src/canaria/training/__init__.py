"""Audits of DP training in any framework: canaries, recording, conformance, planning.

The adapter of a framework (`canaria.integrations`) injects the canaries and leaves a `Recording`; everything
after that happens here. No framework is imported.
"""

from canaria._core.errors import TrainingDivergedError
from canaria.training.canaries import Dense, Dirac
from canaria.training.conformance import conformance
from canaria.training.recording import Recording

__all__ = ["Dense", "Dirac", "Recording", "TrainingDivergedError", "conformance"]
