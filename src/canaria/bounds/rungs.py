"""The ladder of assumptions: the bounds that a training run proves under more and more assumptions.

Every rung makes the assumptions of those below it, and one more. The first rung is the bound, which holds for
any mechanism. The others stand beside it, never instead of it. A rung is withdrawn if the observations
contradict its assumption.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

from canaria._core import checks
from canaria._core.errors import InputError
from canaria._core.rounding import rounded_down, rounded_up
from canaria.bounds import limits

MOST_RUNGS: Final = 10
WITHDRAWN: Final = "withdrawn"


@dataclass(frozen=True, kw_only=True)
class Rung:
    """The bound on epsilon that holds under an assumption.

    Attributes:
        name: The rung in two words, for pictures.
        assumes: When it holds, in words: "for any mechanism", "if it is ...", or "also assuming ...".
        least: The lower bound on epsilon; None if the rung is withdrawn.
        most: The upper end of an interval; None if there is only a lower bound.
        measured: What was measured for it, in words.
        withdrawn: Why nothing is shown; empty if something is.

    Example:
        >>> from canaria.bounds import Rung
        >>> Rung(name="any mechanism", assumes="for any mechanism", least=1.37).epsilon
        'ε ≥ 1.370'
    """

    name: str
    assumes: str
    least: float | None = None
    most: float | None = None
    measured: str = ""
    withdrawn: str = ""

    def __post_init__(self) -> None:
        for name in ("name", "assumes", "measured", "withdrawn"):
            limits.text(name, getattr(self, name))
        if (self.least is None) == (not self.withdrawn):
            raise InputError("a rung must show a bound, or say why it is withdrawn")
        if self.most is not None and (self.least is None or not self.least <= self.most):
            raise InputError(f"most of a rung must be at least {self.least}, got {self.most}")
        if self.least is not None:
            checks.nonnegative("least", self.least)

    @property
    def epsilon(self) -> str:
        """The bound as text: the lower end rounded down, the upper one up."""
        if self.least is None:
            return WITHDRAWN
        if self.most is None:
            return f"ε ≥ {rounded_down(self.least)}"
        return f"{rounded_down(self.least)} ≤ ε ≤ {rounded_up(self.most)}"

    @property
    def reason(self) -> str:
        """When it holds, and what was measured, or why it is withdrawn."""
        more = self.withdrawn or self.measured
        return f"{self.assumes}: {more}" if more else self.assumes

    def to_dict(self) -> dict[str, Any]:
        """The rung as plain data for JSON; infinity becomes a word."""
        return {name: "inf" if value == math.inf else value for name, value in asdict(self).items()}
