"""The validity laboratory: it measures how often an auditor claims more than the truth."""

from canaria.lab.validity._cell import Cell
from canaria.lab.validity._games import KNOWN, Auditor, Case, Games, Known
from canaria.lab.validity._laboratory import AUDITORS, CASES, Laboratory, laboratory
from canaria.lab.validity.auditors import INVALID, OURS, AuditFunction, Foreign, Ours
from canaria.lab.validity.matrix import Matrix

__all__ = [
    "AUDITORS",
    "CASES",
    "INVALID",
    "KNOWN",
    "OURS",
    "AuditFunction",
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
