"""The outcome of a conformance test: whether training shows what was stated about it."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Final

LEVEL: Final = 1e-3
"""The false-alarm rate of the test, unless another one is asked for."""
_LEAST_PRINTED: Final = 1e-100
LEAST_LEVEL: Final = 1e-12
"""The least false-alarm rate at which a test is judged; below it nothing would ever fail."""


@dataclass(frozen=True, kw_only=True)
class Conformance:
    """The outcome of a conformance test.

    Attributes:
        p_value: The joint p-value of the test.
        noise: The noise multiplier that the sums show.
        stated_noise: The stated noise multiplier.
        weight: The mean contribution of an included canary, relative to the expected one (expected 1).
        parts: The independent p-values that `p_value` combines, by name.
        clearest: Where training differs most from what was stated.
        level: The false-alarm rate of the test.

    Example:
        >>> from canaria.results import Conformance
        >>> parts = {"noise": 1e-9}
        >>> found = Conformance(p_value=1e-9, noise=0.5, stated_noise=1.0, weight=0.99, parts=parts)
        >>> found.conforms
        False

    """

    p_value: float
    noise: float
    stated_noise: float
    weight: float
    parts: dict[str, float]
    clearest: str = ""
    level: float = LEVEL

    @property
    def conforms(self) -> bool:
        """Whether the p-value is at least `level`, which is 0.001 by default."""
        return self.p_value >= self.level

    @property
    def in_words(self) -> str:
        """The p-value as it is printed."""
        return in_words(self.p_value)

    @property
    def answer(self) -> str:
        """Whether training was as stated, for the first lines of a report."""
        if self.conforms:
            return f"training matches what was stated, as far as it was tested ({self.in_words})"
        return (
            f"training does NOT match what was stated: noise multiplier {self.noise:.3g}, stated "
            f"{self.stated_noise:.3g} ({self.in_words}{self._where})"
        )

    @property
    def _where(self) -> str:
        return "" if self.conforms or not self.clearest else f"; clearest in {self.clearest}"

    def to_dict(self) -> dict[str, Any]:
        """The outcome as plain data for JSON."""
        return {**asdict(self), "conforms": self.conforms}

    def __str__(self) -> str:
        """The noise, the canary weight and the p-value in one sentence."""
        verdict = (
            "consistent with a correct implementation" if self.conforms else "does NOT match what was stated"
        )
        level = "" if self.level == LEVEL else f" (held at {self.level:.2g})"
        return (
            f"noise multiplier {self.noise:.3g} (stated {self.stated_noise:.3g}), canary weight "
            f"{self.weight:.2f} (expected 1); {self.in_words}{level}: {verdict}{self._where}"
        )


def in_words(p_value: float) -> str:
    """A p-value as it is printed; how far below a hundred zeros it lies says nothing."""
    return f"p = {p_value:.2g}" if p_value >= _LEAST_PRINTED else f"p < {_LEAST_PRINTED:g}"


def needed(parts: int, level: float) -> float:
    """The p-value that one of so many parts must have for the joint one to be at most the level."""
    return -math.expm1(math.log1p(-level) / parts)


def joined(parts: dict[str, float]) -> float:
    """One p-value from independent ones: the smallest, corrected for their number (Sidak)."""
    return sidak(min(parts.values()), len(parts))


def sidak(smallest: float, tests: int) -> float:
    """The smallest p-value of so many independent tests, corrected for their number."""
    return -math.expm1(tests * math.log1p(-min(smallest, 1 - 1e-16)))
