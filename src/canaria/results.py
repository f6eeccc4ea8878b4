"""A result: one bound, the claim it is held against, and all that a reader needs to judge it.

It prints as text, is kept as JSON (`save`), and is what `canaria report` turns into a page.
"""

import json
import math
import platform
import sys
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from canaria import _limits, _validate
from canaria._numbers import percent, rounded_down
from canaria._validate import Floats, InputError
from canaria._version import __version__
from canaria.bound import Bound, plain
from canaria.claims import ApproximateDP
from canaria.conforming import Conformance
from canaria.store import checksum, write_atomically

FORMAT: Final = 1
"""The format of result files; a reader refuses any other."""
MOST_BINS: Final = 400
CLAIM: Final = "the claim"
"""The top of a ladder that starts at the claimed epsilon."""
_TRAINERS: Final = ("torch", "opacus", "jax", "jax_privacy", "lightning")


@dataclass(frozen=True)
class Histogram:
    """Scores of included and of excluded elements, counted in bins between `edges`."""

    edges: tuple[float, ...]
    included: tuple[int, ...]
    excluded: tuple[int, ...]

    def __post_init__(self) -> None:
        edges = _validate.vector("edges", list(self.edges))
        if not 2 <= len(edges) <= MOST_BINS + 1 or not _rising(edges):
            raise InputError(f"edges must be 2 to {MOST_BINS + 1} rising numbers, got {len(edges)}")
        for name, counts in (("included", self.included), ("excluded", self.excluded)):
            _validate.same_length(name, len(counts) + 1, "edges", len(edges))
            for count in counts:
                _validate.integer(name, count, 0)

    @classmethod
    def of(cls, scores: Any, bits: Any, bins: int = 50) -> "Histogram | None":
        """Count scores, those beyond the 0.1 % and 99.9 % quantiles in the outermost bins; None if all equal.

        >>> Histogram.of([0.0, 1.0, 2.0, 3.0], [0, 0, 1, 1], bins=2)
        Histogram(edges=(0.0, 1.5, 3.0), included=(0, 2), excluded=(2, 0))
        """
        values, included = (
            _validate.vector("scores", scores, infinite=True),
            _validate.two_valued("bits", bits),
        )
        finite = values[np.isfinite(values)]
        if len(finite) == 0 or finite.max() == finite.min():
            return None
        low, high = (
            np.quantile(finite, [0.001, 0.999]) if len(finite) > 2000 else (finite.min(), finite.max())
        )
        if not low < high:
            low, high = finite.min(), finite.max()
        with np.errstate(over="ignore", invalid="ignore"):
            edges = np.linspace(low, high, bins + 1)
        if not _rising(edges):
            return None
        clipped = np.clip(values, low, high)
        counts = [np.histogram(clipped[side], edges)[0] for side in (included, ~included)]
        return cls(tuple(edges.tolist()), *(tuple(side.tolist()) for side in counts))


def _rising(edges: Floats) -> bool:
    """Whether edges rise, and by so little that their differences are numbers."""
    return bool(np.isfinite(edges).all() and np.abs(edges).max() < 1e300 and (np.diff(edges) > 0).all())


class Step(NamedTuple):
    """One step down from the claim: what is lost, and the epsilon that is left."""

    gap: str
    epsilon: float


@dataclass(frozen=True)
class Ladder:
    """From an epsilon (`top` says which) down to the bound: where the rest is lost, step by step.

    `how` says where the numbers come from.
    """

    top: str
    epsilon: float
    steps: tuple[Step, ...]
    how: str

    def __post_init__(self) -> None:
        if len(self.steps) > _limits.MOST_STEPS:
            raise InputError(f"a ladder must have at most {_limits.MOST_STEPS} steps, got {len(self.steps)}")
        for value in (self.epsilon, *(step.epsilon for step in self.steps)):
            if not math.isfinite(_validate.nonnegative("epsilon of the ladder", value)):
                raise InputError(f"epsilon of the ladder must be finite, got {value}")

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return {
            "top": self.top,
            "epsilon": self.epsilon,
            "steps": [step._asdict() for step in self.steps],
            "how": self.how,
        }


@lru_cache
def _installed(name: str) -> str:
    return version(name)


def running() -> dict[str, str]:
    """What this Python runs: ours, and of the trainers those that are loaded."""
    loaded = [name.replace("_", "-") for name in _TRAINERS if name in sys.modules]
    names = ("numpy", "scipy", *loaded)
    return {
        "canaria": __version__,
        "python": platform.python_version(),
        **{name: _installed(name) for name in names},
    }


@dataclass(frozen=True)
class Result:
    """What an audit found.

    `name` says what was audited; `claim` is what was promised, at the delta of the bound. `facts` are further
    lines for the reader; `command` and `seed` repeat the audit.

    >>> from canaria import Counts, Result, lower_bound
    >>> from canaria.claims import ApproximateDP
    >>> Result(lower_bound(Counts(90, 100, 100)), ApproximateDP(1.0, delta=0), name="survey").verdict
    'The claim ε = 1 is refuted: with 95 % confidence ε is at least 1.630 at δ = 0.'
    """

    bound: Bound
    claim: ApproximateDP | None = None
    name: str = "audit"
    histogram: Histogram | None = None
    ladder: Ladder | None = None
    conformance: Conformance | None = None
    facts: dict[str, str] = field(default_factory=dict)
    seed: int | None = None
    command: str | None = None
    versions: dict[str, str] = field(default_factory=running)

    def __post_init__(self) -> None:
        _validate.assign(self, seed=_limits.seed(self.seed))
        _limits.text("name", self.name)
        for name, lines in (("facts", self.facts), ("versions", self.versions)):
            _limits.lines(name, lines)
        for name, text in (("rule", self.bound.rule), ("about", self.bound.about), ("command", self.command)):
            if text is not None:
                _limits.text(name, text)
        if self.claim is None:
            return
        _limits.epsilon("claimed", plain(self.claim.epsilon))
        self.bound.refutes(self.claim)
        if self.claim.delta != self.bound.delta:
            raise InputError(
                f"the bound of a result must be at the delta of its claim, {self.claim.delta:g}, got one at "
                f"{self.bound.delta:g}"
            )

    @property
    def claimed(self) -> float | None:
        """The epsilon that is claimed, at the delta of the bound."""
        return None if self.claim is None else self.claim.epsilon

    @property
    def refuted(self) -> bool | None:
        """Whether the claim is refuted; None without a claim."""
        return None if self.claim is None else self.bound.refutes(self.claim)

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        bound = self.bound
        shown = f"ε is at least {bound.epsilon_text}" if bound.epsilon > 0 else "no ε above 0 is shown"
        shown = f"with {percent(bound.confidence)} % confidence {shown} at δ = {bound.delta:g}."
        if self.claimed is not None:
            shown = f"the claim ε = {self.claimed:.6g} is {self.answer}: {shown}"
        if self._misstated is not None:
            shown += f" What was released is NOT what was stated (conformance p = {self._misstated:.2g})."
        return shown[0].upper() + shown[1:]

    @property
    def answer(self) -> str:
        """The answer in two words."""
        return {True: "refuted", False: "not refuted", None: "no claim"}[self.refuted]

    @property
    def alarming(self) -> bool:
        """Whether the claim is refuted, or training is not what was stated."""
        return bool(self.refuted) or self._misstated is not None

    @property
    def _misstated(self) -> float | None:
        """The p-value of a conformance test that failed."""
        found = self.conformance
        return None if found is None or found.conforms else found.p_value

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data for JSON; `checksum` is over all the rest."""
        record = {
            "format": FORMAT,
            "canaria": __version__,
            "name": self.name,
            **self.bound.to_dict(),
            "claimed": None if self.claimed is None else plain(self.claimed),
            "refuted": self.refuted,
            "histogram": None if self.histogram is None else asdict(self.histogram),
            "ladder": None if self.ladder is None else self.ladder.to_dict(),
            "conformance": None if self.conformance is None else self.conformance.to_dict(),
            "facts": dict(self.facts),
            "seed": self.seed,
            "command": self.command,
            "versions": dict(self.versions),
        }
        return {**record, "checksum": checksum(record)}

    def to_json(self) -> str:
        """The result as JSON on one line."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def save(self, path: str | Path) -> Path:
        """Write a result file, at once or not at all; `canaria verify` and `canaria report` read it."""
        record, bound = self.to_dict(), self.bound
        _limits.require_moderate(record["evidence"])
        _limits.require_quick(bound.evidence, bound.delta, _limits.allowed(record["evidence"]), str(path))
        text = (json.dumps(record, allow_nan=False) + "\n").encode()
        if len(text) > _limits.LARGEST_FILE:
            raise InputError(f"{path} would have {len(text)} bytes; at most {_limits.LARGEST_FILE} are read")
        write_atomically(Path(path), text)
        return Path(path)

    def __str__(self) -> str:
        """For people."""
        bound = self.bound
        right, taken = bound.tally
        rows = [
            ("guesses", f"{right} of {taken} right, {bound.evidence.elements} elements"),
            ("estimate", f"{rounded_down(bound.estimate)} (no confidence)"),
            ("method", bound.method),
            ("rule", bound.rule),
            ("ε grid", bound.grid),
            ("conformance", None if self.conformance is None else str(self.conformance)),
            ("adjacency", bound.adjacency),
            ("about", bound.about),
            *self.facts.items(),
            *(("assumes", line) for line in bound.assumptions),
        ]
        sure = f"{percent(bound.confidence)} % confidence"
        lines, shown = [f"ε ≥ {bound.epsilon_text} at δ = {bound.delta:g}, with {sure}"], ""
        if self.claimed is not None:
            lines.append(f"the claim ε = {self.claimed:.6g} is {self.answer}")
        if self._misstated is not None:
            lines.append(f"what was released is NOT what was stated: p = {self._misstated:.2g}")
        for name, value in rows:
            if value is not None:
                lines.append(f"  {name if name != shown else '':<11} {value}")
                shown = name
        return "\n".join(lines)
