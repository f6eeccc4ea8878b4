"""A result: one bound, the claim it is held against, and all that a reader needs to judge it.

It prints as text, is kept as JSON (`save`), and is what `canaria report` turns into a page.
"""

import json
import platform
import sys
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from canaria._core import checks
from canaria._core.errors import InputError
from canaria._core.files import checksum, write_atomically
from canaria._core.rounding import percent, rounded_down
from canaria._version import __version__
from canaria.claims import ApproximateDP
from canaria.evidence.bound import Bound, plain
from canaria.results import limits
from canaria.results.conformance import Conformance
from canaria.results.parts import Histogram, Ladder

FORMAT: Final = 1
"""The format of result files; a reader refuses any other."""
_TRAINERS: Final = ("torch", "opacus", "jax", "jax_privacy", "lightning")


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

    >>> from canaria import Counts, lower_bound, Result
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
        checks.assign(self, seed=limits.seed(self.seed))
        limits.text("name", self.name)
        for name, lines in (("facts", self.facts), ("versions", self.versions)):
            limits.lines(name, lines)
        for name, text in (("rule", self.bound.rule), ("about", self.bound.about), ("command", self.command)):
            if text is not None:
                limits.text(name, text)
        if self.claim is None:
            return
        limits.epsilon("claimed", plain(self.claim.epsilon))
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
        limits.require_moderate(record["evidence"])
        limits.require_quick(bound.evidence, bound.delta, limits.allowed(record["evidence"]), str(path))
        text = (json.dumps(record, allow_nan=False) + "\n").encode()
        if len(text) > limits.LARGEST_FILE:
            raise InputError(f"{path} would have {len(text)} bytes; at most {limits.LARGEST_FILE} are read")
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
