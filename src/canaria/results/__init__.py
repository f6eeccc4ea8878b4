"""Results: a bound, the claim it is compared with, and what a reader needs to judge both.

Results are made in one place, saved as JSON, read back and verified; nothing in a file is trusted. A result
does not depend on training frameworks, and imports `report` only when a report is asked for.
"""

from canaria.results.conformance import Cause, Conformance
from canaria.results.parts import Histogram, Ladder, Step
from canaria.results.read import Stored, read_result
from canaria.results.result import Result
from canaria.results.rungs import Rung
from canaria.results.verify import Check, check, read_checked

__all__ = [
    "Cause",
    "Check",
    "Conformance",
    "Histogram",
    "Ladder",
    "Result",
    "Rung",
    "Step",
    "Stored",
    "check",
    "read_checked",
    "read_result",
]
