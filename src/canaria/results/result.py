"""A result: one bound, the claim it is held against, and all that a reader needs to judge it.

It prints as text, is kept as JSON (`save`), and is what `canaria report` turns into a page.
"""

import json
import warnings
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from canaria._core import checks
from canaria._core.arrays import Floats
from canaria._core.errors import InputError
from canaria._core.files import checksum, write_atomically
from canaria._core.kinds import to_dict
from canaria._core.seeds import Seed
from canaria._version import __version__
from canaria.claims import ApproximateDP, Claim, Composed
from canaria.claims.families import Family
from canaria.evidence import Evidence
from canaria.evidence.bound import Bound, lower_bound, plain
from canaria.game.play import Transcript
from canaria.game.scores import audit_scores
from canaria.results import limits
from canaria.results.conformance import Conformance
from canaria.results.ladders import ladder_of_scores
from canaria.results.parts import Histogram, Ladder
from canaria.results.provenance import running, today
from canaria.results.rungs import MOST_RUNGS, Rung
from canaria.rules import Rule

if TYPE_CHECKING:
    from canaria.report.chart import Chart

LARGEST_EXPLAINED: Final = 5000
"""Losses of more elements are not shown: they take long, and a histogram of fewer looks the same."""
_FAR_BELOW: Final = 2.0
"""A rule is worth a word if the default one shows this many times as much."""
FORMAT: Final = 1
"""The format of result files; a reader refuses any other."""


class Trained(Protocol):
    """An audited training run, whatever trained: all that a result needs of it."""

    def report(self, *, confidence: float, adjacency: str, **how: Any) -> "Result": ...


@dataclass(frozen=True, repr=False)
class Result:
    """What an audit found.

    Attributes:
        bound: The bound.
        claim: What was promised, at the delta of the bound; None if nothing was.
        name: What was audited.
        histogram: The scores; None if they are not known.
        ladder: How much each gap takes between the claim and the bound; None if that is not known.
        conformance: Whether training follows its stated law; None if it was not tested.
        rungs: What follows if more is assumed than the bound does.
        contradictions: What training did otherwise than was stated, for certain.
        remarks: What else a reader must know before the verdict, such as differences on the safe side.
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

    bound: Bound
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

    @classmethod
    def of_counts(
        cls,
        evidence: Evidence,
        claim: Claim | None = None,
        *,
        delta: float | None = None,
        confidence: float = 0.95,
        adjacency: str = "unspecified",
        family: Family | None = None,
        name: str = "counts",
        command: str | None = None,
    ) -> "Result":
        """The result of counts, or of any other evidence.

        Args:
            evidence: What was seen.
            claim: What was promised; the bound is at its delta.
            delta: The delta of the bound where there is no claim; 0 by default.
            confidence: With which probability the bound holds.
            adjacency: What the audit was about: "add-remove", "replace" or "unspecified".
            family: The family of claims to test, instead of epsilon at delta.
            name: What was audited.
            command: The command that repeats it.

        Returns:
            The bound with its claim, ready to be printed, saved and reported.

        Example:
            >>> from canaria import Counts, Result
            >>> Result.of_counts(Counts(73, 100, 1000), ApproximateDP(1.0, delta=1e-5)).answer
            'not refuted'

        """
        bound = lower_bound(evidence, _delta(claim, delta), confidence, adjacency=adjacency, family=family)
        return cls.of_bound(bound, claim, name=name, command=command)

    @classmethod
    def of_bound(
        cls,
        bound: Bound,
        claim: Claim | None = None,
        *,
        name: str = "audit",
        command: str | None = None,
    ) -> "Result":
        """The result of a bound; where a claim is not refuted, with the ladder from it down to the bound."""
        made = cls(bound, claim, name=name, command=command)
        return made if made.claimed is None else replace(made, ladder=ladder_of_scores(made.claimed, bound))

    @classmethod
    def of_scores(
        cls,
        scores: npt.ArrayLike,
        bits: npt.ArrayLike,
        claim: Claim | None = None,
        *,
        delta: float | None = None,
        confidence: float = 0.95,
        rule: Rule | None = None,
        rng: Seed = None,
        adjacency: str = "add-remove",
        family: Family | str | None = None,
        name: str = "scores",
        command: str | None = None,
    ) -> "Result":
        """The result of membership scores: the bound of `audit_scores`, and what the scores look like.

        Args:
            scores: One number per canary, higher meaning "more likely included".
            bits: Which canaries were included, by independent fair coins.
            claim: What was promised; the bound is at its delta. With a family, a claim of it.
            delta: The delta of the bound where there is no claim, or a curve; 0 by default.
            confidence: With which probability the bound holds.
            rule: How scores become guesses, as in `audit_scores`.
            rng: A seed for the order in which a rule sees the scores.
            adjacency: What the audit was about: "add-remove" or "replace".
            family: The family of claims to test, as in `audit_scores`.
            name: What was audited.
            command: The command that repeats it.

        Returns:
            The bound with its claim, the histogram of the scores and their digest.

        Example:
            >>> import numpy as np
            >>> bits = np.random.default_rng(0).integers(0, 2, 1000)
            >>> scores = np.random.default_rng(1).normal(2.0 * bits)
            >>> Result.of_scores(scores, bits, ApproximateDP(1.0, delta=0), rng=0).refuted
            True

        """
        values, included = checks.vector("scores", scores, infinite=True), checks.two_valued("bits", bits)
        bound = audit_scores(
            scores,
            bits,
            _delta(claim, delta),
            confidence,
            rule,
            rng=rng,
            adjacency=adjacency,
            family=family,
        )
        digest = sha256(values.tobytes() + included.tobytes()).hexdigest()
        return replace(
            cls.of_bound(bound, claim, name=name, command=command),
            histogram=Histogram.of(values, included),
            facts={
                "scores": f"{len(values)}, sha256 of the numbers {digest}",
                **_advice(bound, values, included, rule),
            },
            seed=rng if isinstance(rng, int) else None,
        )

    @classmethod
    def of_game(
        cls,
        game: Transcript,
        claim: Claim | None = None,
        *,
        delta: float | None = None,
        confidence: float = 0.95,
        mechanism: Any = None,
        name: str = "game",
        seed: int | None = None,
        command: str | None = None,
    ) -> "Result":
        """The result of a game that was played.

        Args:
            game: What `play`, `replay` or `classic` gave.
            claim: What was promised; the bound is at its delta.
            delta: The delta of the bound where there is no claim; 0 by default.
            confidence: With which probability the bound holds.
            mechanism: The mechanism, if its privacy loss is known: then the histogram of the losses is shown.
            name: What was audited.
            seed: The seed of the game.
            command: The command that repeats it.

        Returns:
            The bound with its claim; of a known mechanism of moderate size also how far apart the losses are.

        """
        bound = game.bound(_delta(claim, delta), confidence)
        made = cls.of_bound(bound, claim, name=name, command=command)
        shown = None
        if hasattr(mechanism, "loss") and len(game.bits) <= LARGEST_EXPLAINED:
            losses = mechanism.loss(game.output[None], np.zeros_like(game.bits)[None])[0]
            shown = Histogram.of(losses, game.bits)
        return replace(made, histogram=shown, seed=seed)

    @classmethod
    def of_training(
        cls, audit: Trained, claim: Claim | None = None, *, confidence: float = 0.95, **how: Any
    ) -> "Result":
        """The result of an audited training run: a `Recording`, or an attached audit.

        Args:
            audit: What training left behind.
            claim: What was promised; the bound is at its delta.
            confidence: With which probability the bound holds.
            **how: How to guess: `rule`, `score`, `adaptive`; and `name`.

        Returns:
            The bound, the claim, the conformance test and what was exercised.

        """
        if not isinstance(claim, ApproximateDP):
            return audit.report(claimed=claim, confidence=confidence, adjacency="unspecified", **how)
        told = {"claimed": claim.epsilon, "delta": claim.delta, **how}
        return audit.report(confidence=confidence, adjacency=claim.adjacency, **told)

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
        self.bound.require_comparable(self.claim)
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

    @property
    def plain_claimed(self) -> float | str | None:
        """The same for JSON."""
        return None if self.claimed is None else plain(self.claimed)

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
        """What to add to "not refuted" so that it does not reassure above a fault; empty if there is none."""
        if self.refuting_rung is not None:
            return " without assumptions"
        return " by the guesses alone" if self.alarming and self.refuted is False else ""

    @property
    def coverage(self) -> str:
        """What was tested and what was not, in one line; empty if the audit tested nothing but the claim."""
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
            "claimed": self.plain_claimed,
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
        limits.require_quick(bound, limits.allowed(record), "this result")
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

        Returns:
            The path.

        Raises:
            InputError: If the ending is another one, or if the file cannot be written.

        """
        from canaria.report import write_report_of

        write_report_of([self], Path(path), title)
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> "Result":
        """Read a result file, and compute its bound again from the evidence.

        Args:
            path: The file that `save` or the command line wrote.

        Returns:
            The result.

        Raises:
            InputError: If the file cannot be read, is not a result, was changed, or does not hold.

        Example:
            >>> from tempfile import TemporaryDirectory
            >>> from canaria import Counts, lower_bound
            >>> with TemporaryDirectory() as folder:
            ...     made = lower_bound(Counts(90, 100, 100)).result(name="survey")
            ...     Result.load(made.save(f"{folder}/survey.json"))
            <Result survey: ε ≥ 1.630 at δ = 0, with 95% confidence; no claim>

        """
        from canaria.results.verify import read_checked

        return read_checked(path).result

    def __repr__(self) -> str:
        return f"<Result {self.name}: {self.bound.short}; {self.answer}>"

    def plot(self, what: str | None = None) -> "Chart":
        """A chart of the result: a notebook shows it, and `plot().save("bound.svg")` writes it.

        Args:
            what: "claim" (bound, estimate and claim), "rungs" (what is shown under which assumption),
                "confidence", "guesses", "scores" or "gaps". By default "rungs" for a training audit, and
                "claim" for any other.

        Returns:
            The chart.

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
        from canaria.results.text import text_of

        return text_of(self)


def _advice(bound: Bound, scores: Floats, bits: npt.ArrayLike, rule: Rule | None) -> dict[str, str]:
    """What to choose next time, if the default rule would have shown far more of the same scores."""
    if rule is None or bound.family is not None or not np.isfinite(scores).all():
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ranked = audit_scores(scores, bits, bound.delta, bound.confidence, rng=0)
    if ranked.epsilon <= _FAR_BELOW * bound.epsilon:
        return {}
    return {
        "next time": f"the default rule would show {ranked.epsilon_text} of such scores; a rule must be "
        "chosen before the scores are seen, so for these it is too late"
    }


def _delta(claim: Claim | None, delta: float | None) -> float:
    """The delta of the bound: that of the claim; another one beside it is an error."""
    if not isinstance(claim, ApproximateDP):
        return 0.0 if delta is None else delta
    if delta is not None and delta != claim.delta:
        raise InputError(f"delta must be that of the claim, {claim.delta:g}, or left out, got {delta}")
    return claim.delta
