"""What a conformance test found: whether training shows what was stated about it."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

from scipy import stats

LEAST_LEVEL: Final = 1e-12
"""The least false-alarm rate at which a test is judged; below it nothing would ever fail."""
_ALARM: Final = 1e-3


@dataclass(frozen=True, kw_only=True)
class Conformance:
    """What a correct implementation would show, what was seen, and how surprising that is.

    `noise` is the noise multiplier that the sums show, `weight` the mean contribution of an included
    canary relative to what it should be; `parts` are the p-values that `p_value` joins, and `clearest` says
    where the noise is most unlike what was stated. `level` is the false-alarm rate at which it is judged.
    """

    p_value: float
    noise: float
    stated_noise: float
    weight: float
    parts: dict[str, float]
    clearest: str = ""
    level: float = _ALARM

    @property
    def conforms(self) -> bool:
        """Whether nothing is wrong at that false-alarm rate: 1 in 1,000, unless a test has another."""
        return self.p_value >= self.level

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return {**asdict(self), "conforms": self.conforms}

    def __str__(self) -> str:
        """One sentence."""
        verdict = "as a correct implementation would show" if self.conforms else "NOT what was stated"
        where = "" if self.conforms or not self.clearest else f"; clearest in {self.clearest}"
        return (
            f"noise {self.noise:.3g} where {self.stated_noise:.3g} was stated, canaries weigh "
            f"{self.weight:.2f} of what they should; p = {self.p_value:.2g}: {verdict}{where}"
        )


def joined(parts: dict[str, float]) -> float:
    """Fisher's method: one p-value of independent ones."""
    logs = -2 * sum(math.log(max(p, 1e-300)) for p in parts.values())
    return float(stats.chi2.sf(logs, 2 * len(parts)))
