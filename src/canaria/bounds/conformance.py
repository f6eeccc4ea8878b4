"""The outcome of a conformance test: whether training shows what was stated about it.

The test has parts, each with a p-value and a cause: what is wrong with training if this part fails. A cause
has a direction: too little noise leaks more than was stated, too low a sampling rate costs accuracy alone.
"""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

LEVEL: Final = 1e-3
"""The false-alarm rate of the test, unless another one is asked for."""
_LEAST_PRINTED: Final = 1e-100
LEAST_LEVEL: Final = 1e-12
"""The least false-alarm rate at which a test is judged; below it nothing would ever fail."""
LEAKS: Final = "leaks more than stated"
SAFE: Final = "costs accuracy, not privacy"
OPEN: Final = "may leak more than stated"
EXTRA: Final = "costs accuracy if this is noise, and leaks if it is data"
EFFECTS: Final = (LEAKS, OPEN, EXTRA, SAFE)
"""The effects that a difference may have on privacy."""
_SHOWN_FIRST: Final = (
    *("sampling", "copies", "repeats", "ties", "size", "steps", "places", "shape", "weight", "timing"),
    *("totals", "layers", "noise", "offset"),
)
"""Parts in the order in which failures are shown: the most specific faults first."""
_FOLLOW: Final = {
    "noise": {"copies", "repeats", "size", "steps", "places", "totals"},
    "totals": {"copies", "repeats", "size", "steps", "places", "weight"},
    "offset": {"weight", "layers", "size", "noise"},
    "steps": {"repeats"},
    "places": {"repeats", "copies"},
    "weight": {"sampling"},
    "shape": {"size", "ties"},
    "ties": {"copies", "repeats", "steps", "places"},
}
"""Parts that fail as a consequence when one of these others fails."""
_OF_SILENCE: Final = {"copies", "repeats", "size", "shape", "totals", "noise", "layers"}
"""Parts that fail if noise is missing: zeros are all alike, and not normal."""
ADVICE: Final = {
    "sampling": "check how the data loader draws its batches",
    "copies": "draw fresh noise for every weight",
    "repeats": "draw fresh noise in every step: check seeds and generators that are reset",
    "ties": "draw noise in single precision or finer, from a generator with a full seed",
    "size": "check the noise multiplier, the clip norm that it is multiplied by, and later scaling",
    "shape": "draw noise from a normal distribution",
    "steps": "add the same noise in every step",
    "places": "add noise to every parameter",
    "weight": "check the clip norm, the sampling rate, and the scaling of the sum",
    "timing": "check in which steps rows take part",
    "totals": "draw fresh noise for every weight",
    "layers": "check whether all parameters are clipped together and scaled alike",
    "noise": "check the noise multiplier and the scaling of each parameter",
    "offset": "check what is added to the sum besides rows and noise",
}
"""The advice for a part that fails."""


class Part(NamedTuple):
    """One test of conformance.

    Attributes:
        p_value: Its p-value.
        cause: What is wrong if it fails, as a clause.
        effect: What that does to privacy: `LEAKS`, `SAFE` or `OPEN`.
        missing: Whether noise is missing altogether, so that ε is unbounded.
    """

    p_value: float
    cause: str
    effect: str = OPEN
    missing: bool = False


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A fault of training: the reason why a part of the test fails.

    Attributes:
        text: The cause, as a clause.
        effect: What it does to privacy, one of `EFFECTS`.
        unbounded: Whether noise is missing altogether, so that no ε holds.

    Example:
        >>> from canaria.bounds import Cause
        >>> Cause(text="batches are too small", effect="costs accuracy, not privacy").unbounded
        False
    """

    text: str
    effect: str = OPEN
    unbounded: bool = False


@dataclass(frozen=True, kw_only=True)
class Conformance:
    """The outcome of a conformance test.

    Attributes:
        p_value: The joint p-value of the test.
        noise: The noise multiplier that the sums show.
        stated_noise: The stated noise multiplier.
        weight: The mean contribution of an included canary, relative to the expected one (expected 1).
        parts: The independent p-values that `p_value` combines, by name.
        causes: What is wrong if a part fails, by its name.
        explained_by: The part that explains all failures: "size" if everything conforms to another size of
            the noise. Empty if none does.
        level: The false-alarm rate of the test.

    Example:
        >>> from canaria.bounds import Conformance
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
    causes: dict[str, Cause] = field(default_factory=dict)
    explained_by: str = ""
    level: float = LEVEL

    @property
    def conforms(self) -> bool:
        """Whether the p-value is at least `level`, which is 0.001 by default."""
        return self.p_value >= self.level

    @property
    def failures(self) -> dict[str, Cause]:
        """The causes of all parts that fail, by the name of the part, the most telling first."""
        if self.conforms:
            return {}
        if self.explained_by:
            return {self.explained_by: self._cause(self.explained_by)}
        # A part fails if its p-value alone makes the joint one fail. By rounding there may be none; then the
        # part with the smallest p-value fails.
        limit = max(needed(len(self.parts), self.level), min(self.parts.values()))
        failing = {name for name, p_value in self.parts.items() if p_value <= limit}
        causes = failing - {part for part, others in _FOLLOW.items() if others & failing}
        # That noise is missing is certain and says most, so no other failure may hide it.
        if silent := {name for name in failing if self._cause(name).unbounded}:
            causes = causes - _OF_SILENCE | silent
        found = {name: self._cause(name) for name in (*_SHOWN_FIRST, *self.parts) if name in causes}
        return dict(sorted(found.items(), key=lambda one: not one[1].unbounded))

    def _cause(self, part: str) -> Cause:
        return self.causes.get(part, Cause(text=f"the part {part!r} fails"))

    @property
    def is_safe(self) -> bool:
        """Whether all that differs from what was stated costs accuracy, and none of it privacy."""
        return all(cause.effect == SAFE for cause in self.failures.values())

    @property
    def in_words(self) -> str:
        """The p-value as it is printed."""
        return in_words(self.p_value)

    @property
    def answer(self) -> str:
        """Whether training was as stated, for the first lines of a report."""
        if self.conforms:
            return f"training matches what was stated, as far as it was tested ({self.in_words})"
        return f"training does NOT match what was stated: {self._why}"

    @property
    def _why(self) -> str:
        """The causes with their effects; causes of one effect together."""
        found = []
        for effect in EFFECTS:
            texts = [cause.text for cause in self.failures.values() if cause.effect == effect]
            if texts:
                found.append(f"{'; '.join(texts)} ({effect})")
        return f"{'; '.join(found)} ({self.in_words})"

    @property
    def advice(self) -> tuple[str, ...]:
        """The advice for each failure."""
        return tuple(dict.fromkeys(ADVICE[name] for name in self.failures if name in ADVICE))

    def to_dict(self) -> dict[str, Any]:
        """The outcome as plain data for JSON."""
        return {**asdict(self), "conforms": self.conforms}

    def __str__(self) -> str:
        """The noise, the canary weight and the p-value in one sentence."""
        verdict = (
            "consistent with a correct implementation"
            if self.conforms
            else f"does NOT match what was stated: {'; '.join(c.text for c in self.failures.values())}"
        )
        level = "" if self.level == LEVEL else f" (level {self.level:.2g})"
        return (
            f"noise multiplier {self.noise:.3g} (stated {self.stated_noise:.3g}), canary weight "
            f"{self.weight:.2f} (expected 1); {self.in_words}{level}: {verdict}"
        )


def in_words(p_value: float) -> str:
    """A p-value as it is printed; how far below a hundred zeros it lies says nothing."""
    return f"p = {p_value:.2g}" if p_value >= _LEAST_PRINTED else f"p < {_LEAST_PRINTED:g}"


def needed(parts: int, level: float) -> float:
    """The p-value of one part at which the joint p-value is the level: 1 - (1 - level)^(1 / parts)."""
    return -math.expm1(math.log1p(-level) / parts)


def joined(parts: dict[str, float]) -> float:
    """One p-value from independent ones: the smallest, corrected for their number (Sidak)."""
    return sidak(min(parts.values()), len(parts))


def sidak(smallest: float, tests: int) -> float:
    """The smallest p-value of independent tests, corrected for their number: 1 - (1 - p)^tests."""
    # By log1p and expm1, as p may be far below the rounding of 1.
    return -math.expm1(tests * math.log1p(-min(smallest, 1 - 1e-16)))
