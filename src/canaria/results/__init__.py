"""Results: a bound, the claim it is held against, and what a reader needs to judge both.

Made in one place, saved as JSON, read back and verified; nothing in a file is believed. A result knows
nothing of training frameworks, and opens `report` only when it is asked to show itself.
"""

from canaria.results.conformance import Conformance
from canaria.results.parts import Histogram, Ladder, Step
from canaria.results.read import Stored, read_result
from canaria.results.result import Result
from canaria.results.verify import Check, check, read_checked

__all__ = [
    "Check",
    "Conformance",
    "Histogram",
    "Ladder",
    "Result",
    "Step",
    "Stored",
    "check",
    "read_checked",
    "read_result",
]
