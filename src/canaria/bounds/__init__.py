"""Bounds: what evidence proves about epsilon, and the result that a reader gets.

These are records and what follows from them: bounds, conformance, rungs, ladders. They import nothing that
makes them. A result imports `report` only when a report is asked for.
"""

from canaria.bounds.bound import Bound, lower_bound
from canaria.bounds.combine import Combined, combine
from canaria.bounds.conformance import Cause, Conformance
from canaria.bounds.parts import Histogram, Ladder, LadderStep
from canaria.bounds.result import Result
from canaria.bounds.rungs import Rung

__all__ = [
    "Bound",
    "Cause",
    "Combined",
    "Conformance",
    "Histogram",
    "Ladder",
    "LadderStep",
    "Result",
    "Rung",
    "combine",
    "lower_bound",
]
