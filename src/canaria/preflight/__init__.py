"""Checks before training that need no canary: isolation of rows, and replays on neighbouring data sets.

Canaries cannot detect these faults, and the checks give no bound. The framework-specific half is in
`canaria.integrations`.
"""

from canaria.preflight.isolation import Isolation
from canaria.preflight.neighbours import Neighbours
from canaria.preflight.sensitivity import Sensitivity, check_sensitivity

__all__ = ["Isolation", "Neighbours", "Sensitivity", "check_sensitivity"]
