"""The validity laboratory: how often an auditor claims more than the truth."""

from canaria.validation._cell import Cell
from canaria.validation._games import KNOWN, Case, Games, Known
from canaria.validation._laboratory import AUDITORS, CASES, Laboratory, laboratory
from canaria.validation.auditors import INVALID, OURS, Audit, Auditor, Foreign, Ours
from canaria.validation.matrix import Matrix

__all__ = [
    "AUDITORS",
    "CASES",
    "INVALID",
    "KNOWN",
    "OURS",
    "Audit",
    "Auditor",
    "Case",
    "Cell",
    "Foreign",
    "Games",
    "Known",
    "Laboratory",
    "Matrix",
    "Ours",
    "laboratory",
]
