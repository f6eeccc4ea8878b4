"""A result: one bound, the claim it is compared with, and all that a reader needs to judge it.

It prints as text, and `save` keeps it as JSON. It imports nothing that makes results. It opens `report` only
to show itself: as text, as a chart, in a notebook, as a report.
"""

import json
from dataclasses import KW_ONLY, asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from canaria._core import checks
from canaria._core.errors import InputError
from canaria._core.files import checksum, write_atomically
from canaria._core.kinds import plain, to_dict
from canaria._version import __version__
from canaria.bounds import limits
from canaria.bounds.comparable import require_comparable
from canaria.bounds.conformance import Conformance
from canaria.bounds.parts import Histogram, Ladder
from canaria.bounds.provenance import running, today
from canaria.bounds.rungs import MOST_RUNGS, Rung
from canaria.claims import ApproximateDP, Claim, Composed

if TYPE_CHECKING:
    # A bound makes results, and its type is all that a result needs of it.
    from canaria.bounds.bound import Bound
    from canaria.report.chart import Chart

FORMAT: Final = 1
"""The format of result files; a reader refuses any other."""


@dataclass(frozen=True, repr=False)
class Result:
    """The findings of an audit, with the claim that they are compared with.

    Attributes:
        bound: The bound.
        claim: The promise, at the delta of the bound; None if there is none.
        name: What was audited.
        histogram: The scores; None if they are not known.
        ladder: The ladder of gaps between claim and bound; None if it is not known.
        conformance: Whether training follows its stated law; None if it was not tested.
        rungs: Bounds that follow from more assumptions than those of the bound.
        contradictions: The ways in which training certainly differs from what was stated.
        remarks: Further facts that a reader must know before the verdict, such as safe differences.
        tested: For each topic, such as "clipping", why the audit did not test it; empty if it did.
        facts: Further lines for the reader, by name.
        seed: The seed that repeats the audit.
        command: The command that repeats the audit.
        versions: The version of each package that made the result.
        date: The date, in UTC.

    Example:
        >>> from canaria import Counts, lower_bound, Result
        >>> from canaria.claims import ApproximateDP
        >>> Result(lower_bound(Counts(90, 100, 100)), ApproximateDP(1.0, delta=0), name="survey").verdict
        'The claim ε = 1 is refuted: with 95% confidence ε is at least 1.630 at δ = 0.'
    """

    bound: "Bound"
    claim: Claim | None = None
    _: KW_ONLY
    name: str = "audit"
    histogram: Histogram | None = None
    ladder: Ladder | None = None
    conformance: Conformance | None = None
    rungs: tuple[Rung, ...] = ()
    contradictions: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    tested: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    seed: int | None = None
    command: str | None = None
    versions: dict[str, str] = field(default_factory=running)
    date: str = field(default_factory=today)

    def __post_init__(self) -> None:
        checks.assign(self, seed=limits.seed(self.seed))
        limits.text("name", self.name)
        limits.text("date", self.date)
        limits.texts("contradictions", self.contradictions)
        limits.texts("remarks", self.remarks)
        if len(self.rungs) > MOST_RUNGS:
            raise InputError(f"a result must have at most {MOST_RUNGS} rungs, got {len(self.rungs)}")
        named = (("facts", self.facts), ("versions", self.versions), ("tested", self.tested))
        for name, lines in named:
            limits.lines(name, lines)
        for name, text in (("rule", self.bound.rule), ("about", self.bound.about), ("command", self.command)):
            if text is not None:
                limits.text(name, text)
        if self.claim is None:
            return
        require_comparable(self.bound, self.claim)
        if not isinstance(self.claim, ApproximateDP):
            return
        limits.epsilon("claimed", plain(self.claim.epsilon))
        if self.claim.delta != self.bound.delta:
            raise InputError(
                f"the bound of a result must be at the delta of its claim, {self.claim.delta:g}, got one at "
                f"{self.bound.delta:g}"
            )

    @property
    def claimed(self) -> float | None:
        """The epsilon that is claimed, at the delta of the bound."""
        if self.claim is None:
            return None
        return self.claim.epsilon if isinstance(self.claim, ApproximateDP) else self._promised_epsilon

    @cached_property
    def _promised_epsilon(self) -> float:
        assert self.claim is not None
        return self.claim.least_epsilon_at(self.bound.delta)

    @property
    def _is_curve(self) -> bool:
        return self.claim is not None and not isinstance(self.claim, ApproximateDP)

    @property
    def refuted(self) -> bool | None:
        """Whether the claim is refuted; None without a claim."""
        return None if self.claim is None else self.bound.refutes(self.claim)

    @property
    def verdict(self) -> str:
        """The answer: contradictions first, then what is refuted, and what was not tested."""
        first = [f"Training was NOT what was stated: {'; '.join(self.contradictions)}."] * bool(
            self.contradictions
        )
        if self.misstated is not None:
            first.append(f"T{self.misstated.answer[1:]}.")
        shown = self.bound.sentence
        if self.claim is not None:
            apart = ". " if self.bound.family is not None else ": "
            follows = shown if apart == ". " else shown[0].lower() + shown[1:]
            shown = f"{self.promise} is {self.answer}{self.reserved}{apart}{follows}"
        if (rung := self.refuting_rung) is not None:
            shown += f" It is refuted {rung.assumes}: {rung.epsilon}."
        return " ".join([*first, shown[0].upper() + shown[1:]])

    @property
    def reserved(self) -> str:
        """Words that keep "not refuted" from reassuring if there is a fault; empty if there is none."""
        if self.refuting_rung is not None:
            return " without assumptions"
        return " by the guesses alone" if self.alarming and self.refuted is False else ""

    @property
    def coverage(self) -> str:
        """The topics that were tested and those that were not, in one line; empty for a bound alone."""
        done = [topic for topic, reason in self.tested.items() if not reason]
        left = [f"{topic} ({reason})" for topic, reason in self.tested.items() if reason]
        parts = [f"tested: {', '.join(done)}"] * bool(done) + [f"not tested: {', '.join(left)}"] * bool(left)
        return "; ".join(parts)

    @property
    def promise(self) -> str:
        """The claim in words."""
        if not self._is_curve:
            # Said, because the ε that accountants print is add-remove, and may be half of this one.
            neighbours = " for replace-one neighbours" if self.bound.adjacency == "replace" else ""
            return f"the claim ε = {self.claimed:.6g}{neighbours}"
        return f"the claim of {self.claim} (ε = {self.claimed:.4g} at δ = {self.bound.delta:g})"

    @property
    def answer(self) -> str:
        """The answer in two words."""
        return {True: "refuted", False: "not refuted", None: "no claim"}[self.refuted]

    @property
    def diagnosis(self) -> str:
        """Why the bound is 0 or low, as `Bound.diagnosis` says; empty if the claim is refuted."""
        return "" if self.refuted else self.bound.diagnosis

    @property
    def alarming(self) -> bool:
        """Whether the claim is refuted, or training is not what was stated, on the unsafe side."""
        unsafe = self.misstated is not None and not self.misstated.is_safe
        return bool(self.refuted or self.contradictions) or unsafe

    @property
    def refuting_rung(self) -> Rung | None:
        """The second rung, if it refutes a claim that the bound does not; it needs what the rung assumes.

        Only that one: it is one more statement at the confidence of the bound. To take whichever rung shows
        most would be wrong more often.
        """
        if self.claimed is None or self.refuted or len(self.rungs) < 2:
            return None
        second = self.rungs[1]
        return second if second.least is not None and second.least > self.claimed else None

    @property
    def misstated(self) -> Conformance | None:
        """The conformance test, if it failed."""
        found = self.conformance
        return None if found is None or found.conforms else found

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data for JSON; `checksum` is over all the rest."""
        record = {
            "format": FORMAT,
            "canaria": __version__,
            "name": self.name,
            **self.bound.to_dict(),
            "claimed": None if self.claimed is None else plain(self.claimed),
            "claim": None if self.claim is None or not self._is_curve else to_dict(self.claim),
            "refuted": self.refuted,
            "histogram": None if self.histogram is None else asdict(self.histogram),
            "ladder": None if self.ladder is None else self.ladder.to_dict(),
            "conformance": None if self.conformance is None else self.conformance.to_dict(),
            "rungs": [rung.to_dict() for rung in self.rungs],
            "contradictions": list(self.contradictions),
            "remarks": list(self.remarks),
            "tested": dict(self.tested),
            "facts": dict(self.facts),
            "seed": self.seed,
            "command": self.command,
            "versions": dict(self.versions),
            "date": self.date,
        }
        return {**record, "checksum": checksum(record)}

    def to_json(self) -> str:
        """The result as JSON on one line: what a result file holds, and `canaria verify` takes."""
        record, bound = self.to_dict(), self.bound
        for part in ("evidence", "claim"):
            limits.require_moderate(part, record[part])
        limits.require_quick(bound.evidence, bound.family, bound.delta, limits.allowed(record), "this result")
        if isinstance(self.claim, Composed):
            with limits.quick(record, bound.evidence, "this result"):  # as its reader will have to
                Composed(self.claim.parts).epsilon_at(bound.delta)
        text = json.dumps(record, allow_nan=False)
        if len(text) >= limits.LARGEST_FILE:
            raise InputError(f"a result must have at most {limits.LARGEST_FILE} bytes, got {len(text)}")
        return text

    def report(self, path: str | Path, title: str | None = None) -> Path:
        """Write the report as one HTML page, or as Markdown or text; the same result gives the same report.

        Args:
            path: Where to write it; the ending says how: `.html`, `.md` or `.txt`.
            title: The title of the report; the name of the result by default.
        """
        from canaria.report import write_report_of

        write_report_of([self], Path(path), title)
        return Path(path)

    def __repr__(self) -> str:
        return f"<Result {self.name}: {self.bound.short}; {self.answer}>"

    def plot(self, what: str | None = None) -> "Chart":
        """A chart of the result: a notebook shows it, and `plot().save("bound.svg")` writes it.

        Args:
            what: "claim" (bound, estimate and claim), "rungs" (what is shown under which assumption),
                "confidence", "guesses", "scores" or "gaps". By default "rungs" for a training audit, and
                "claim" for any other.

        Raises:
            InputError: If the result has no such chart.
        """
        from canaria.report import chart_of

        return chart_of(self, what)

    def _repr_html_(self) -> str:
        from canaria.report import notebook_of

        return notebook_of(self)

    def save(self, path: str | Path) -> Path:
        """Write a result file, at once or not at all; `canaria verify` and `canaria report` read it."""
        write_atomically(Path(path), (self.to_json() + "\n").encode())
        return Path(path)

    def __str__(self) -> str:
        """For people."""
        from canaria.report import text_of

        return text_of(self)
