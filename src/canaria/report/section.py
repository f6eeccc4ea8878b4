"""A result with its explanation as plain data: the content of all report formats."""

import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Final

from canaria._core import checks, effort
from canaria._core.errors import shown
from canaria._core.kinds import plain
from canaria._core.rounding import percent
from canaria.bounds.bound import Bound, lower_bound
from canaria.bounds.parts import Ladder, LadderStep
from canaria.bounds.result import Result
from canaria.claims import ApproximateDP
from canaria.evidence.base import count_alone
from canaria.report import words

_CONFIDENCES: Final = (0.99, 0.5, 0.9999, 0.9, 0.999, 0.8, 0.95, 0.98, 0.7, 0.995)
"""Other confidences to show, the most informative first."""
_PATIENCE: Final = 0.5
"""Seconds of processor time for each curve, so that a report of three results takes at most 1.5 in all."""
_POINTS: Final = 12
"""Approximate number of points in the curve over numbers of guesses; more would look the same."""
_PROJECTED: Final = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class Drop:
    """One step of the ladder, from the epsilon above it to the one below, with advice for a smaller loss."""

    gap: str
    start: float
    end: float
    advice: str

    @property
    def lost(self) -> str:
        """The epsilon that is lost, as text."""
        return f"{self.start - self.end:.3f}"


@dataclass(frozen=True)
class Section:
    """One result, with values computed from it for the reader.

    The curves explain the bound. They must not be used to choose a setting afterwards.

    Attributes:
        by_confidence: Confidences, and the bound from the same evidence at each.
        by_guesses: Numbers of guesses, right guesses, and the bound if only this number had been fixed in
            advance.
        projected: Whether `by_guesses` extrapolates a single number of guesses to other sizes.
        derivation: The steps from the guesses to the bound, each with its epsilon.
        fixed: The settings that were fixed before the bits were revealed.
        name: The name of the result in this report.
    """

    result: Result
    _: KW_ONLY
    by_confidence: tuple[tuple[float, float], ...]
    by_guesses: tuple[tuple[int, int, float], ...]
    projected: bool
    derivation: tuple[tuple[str, float], ...]
    drops: tuple[Drop, ...]
    fixed: str
    checksum: str
    name: str

    @property
    def meaning(self) -> str:
        """The meaning of the verdict."""
        wrong = f"{100 * (1 - self.result.bound.confidence):.3g}"
        meanings = words.MEANING if self.condition is None else words.MEANING_OF_FAMILY
        meaning = meanings[self.result.refuted].format(wrong=wrong)
        conformance = self.result.conformance
        fails = conformance is not None and not conformance.is_safe
        return meaning + words.NOT_CONFORMING if fails else meaning

    @property
    def condition(self) -> str | None:
        """The condition on the mechanism under which its ε is bounded; None for bounds of any mechanism."""
        return self.result.bound.condition or None

    @property
    def rule(self) -> str | None:
        """The rule; default rules with an explanation."""
        rule = self.result.bound.rule
        return rule if rule is None else f"{rule}{words.RULES.get(rule.partition('(')[0], '')}"

    @property
    def confidence_note(self) -> str:
        """An explanation of the curve over confidences."""
        charged = self.result.bound.delta > 0 and self.result.bound.family is None
        return words.BY_CONFIDENCE + (words.CHARGED if charged else "")

    @property
    def guesses_note(self) -> str:
        """An explanation of the curve over numbers of guesses."""
        return words.PROJECTED if self.projected else words.BY_GUESSES

    @property
    def ladder_note(self) -> str | None:
        """The source of the ladder, or the reason why there is none; None if no ladder is expected."""
        if self.result.ladder is not None:
            return f"Computed from: {self.result.ladder.how}."
        return words.NO_LADDER if self.result.refuted else None

    @property
    def rungs_note(self) -> str:
        """How to read the ladder of assumptions."""
        return words.RUNGS.format(sure=f"{percent(self.result.bound.confidence)}%")

    @property
    def adjacency(self) -> str:
        """The meaning of the adjacency."""
        return words.ADJACENCY[self.result.bound.adjacency]

    def to_dict(self) -> dict[str, Any]:
        """The section as plain data for JSON."""
        return {
            "name": self.name,
            "result": self.result.to_dict(),
            "verdict": self.result.verdict,
            "meaning": self.meaning,
            "diagnosis": self.result.diagnosis,
            "adjacency": self.adjacency,
            "fixed": self.fixed,
            "by_confidence": [{"confidence": c, "epsilon": plain(e)} for c, e in self.by_confidence],
            "by_guesses": [{"guesses": k, "right": v, "epsilon": plain(e)} for k, v, e in self.by_guesses],
            "projected": self.projected,
            "derivation": [{"step": step, "epsilon": plain(e)} for step, e in self.derivation],
            "drops": [vars(drop) for drop in self.drops],
        }


def explain(result: Result, checksum: str | None = None, name: str | None = None) -> Section:
    """Compute everything that the report shows.

    The checksum is that of the result's file; by default, that of the result itself.
    """
    bound = result.bound
    with warnings.catch_warnings():
        # The bound itself gave its warnings when it was made.
        warnings.simplefilter("ignore")
        by_confidence = _by_confidence(bound)
        by_guesses, projected = _by_guesses(bound)
        derivation = _derivation(bound)
    fixed = [f"the confidence, {percent(bound.confidence)}%, and δ = {bound.delta:g}"]
    fixed.insert(0, bound.evidence.fixed())
    return Section(
        result,
        by_confidence=by_confidence,
        by_guesses=by_guesses,
        projected=projected,
        derivation=derivation,
        drops=_drops(result.ladder),
        fixed="; ".join(fixed),
        checksum=checksum or result.to_dict()["checksum"],
        name=result.name if name is None else name,
    )


def title_of(sections: Sequence[Section]) -> str:
    """The default title of a report."""
    return sections[0].name if len(sections) == 1 else f"{len(sections)} audits"


def _by_confidence(bound: Bound) -> tuple[tuple[float, float], ...]:
    """The bound at other confidences; at fewer of them if they take long."""
    found = {bound.confidence: bound.epsilon}
    with suppress(effort.TooLongError), effort.at_most(_PATIENCE):
        for confidence in _CONFIDENCES:
            if confidence not in found:
                again = lower_bound(bound.evidence, bound.delta, confidence, family=bound.family)
                found[confidence] = again.epsilon
    return tuple(sorted(found.items()))


def _by_guesses(bound: Bound) -> tuple[tuple[tuple[int, int, float], ...], bool]:
    """Guesses, right ones, and the bound from that count alone; one count is projected to other sizes."""
    evidence = bound.clearest
    progress = evidence.progress(ApproximateDP(bound.epsilon, delta=0))
    counts = list(zip(progress.taken.tolist(), progress.correct.tolist(), strict=True))
    projected = len(counts) == 1
    if projected:
        ((taken, right),) = counts
        sizes = sorted({round(taken * factor) for factor in _PROJECTED} - {0})
        counts = [(size, right * size // taken) for size in sizes if size <= checks.LARGEST]
    every, last = -(-len(counts) // _POINTS), len(counts) - 1
    kept = [
        count
        for place, count in enumerate(counts)
        if place % every == 0 or place == last or count[0] == bound.tally.taken
    ]
    curve = []
    with suppress(effort.TooLongError), effort.at_most(_PATIENCE):
        for size, hits in kept:
            alone = count_alone(evidence, hits, size)
            if alone is None:
                continue
            found = lower_bound(alone, bound.delta, bound.confidence, family=bound.family)
            curve.append((size, hits, found.epsilon))
    return tuple(curve), projected


def _derivation(bound: Bound) -> tuple[tuple[str, float], ...]:
    """The steps from the guesses to the bound: the costs of confidence, delta and the kind of evidence."""
    evidence = bound.clearest
    right, taken = bound.tally
    alone, sure = count_alone(evidence, right, taken), f"{percent(bound.confidence)}%"
    if taken == 0 or alone is None:
        return ()
    steps = [(f"{right} of {taken} right: point estimate of ε", bound.estimate)]
    step = f"this count alone, at {sure} confidence"
    if bound.family is not None:
        fixed = lower_bound(alone, bound.delta, bound.confidence, family=bound.family)
        steps.append((step, fixed.epsilon))
    else:
        steps.append((step, lower_bound(alone, 0.0, bound.confidence).epsilon))
    if bound.delta > 0 and bound.family is None:
        charged = lower_bound(alone, bound.delta, bound.confidence).epsilon
        steps.append((f"after accounting for δ = {bound.delta:g}", charged))
    kind = words.KINDS.get(type(evidence).__name__, f"as {bound.method} evidence proves it")
    return (*steps, (f"the bound: {kind}", bound.epsilon))


def _drops(ladder: Ladder | None) -> tuple[Drop, ...]:
    if ladder is None:
        return ()
    starts = [ladder.epsilon, *(step.epsilon for step in ladder.steps)]
    return tuple(
        Drop(step.gap, start, step.epsilon, _advice(step, start))
        for start, step in zip(starts, ladder.steps, strict=False)
    )


def _advice(step: LadderStep, start: float) -> str:
    if abs(start - step.epsilon) < 5e-4:
        return words.NOTHING
    return words.ABOVE if step.epsilon > start else words.GAPS.get(step.gap, "")


def told_apart(names: Sequence[str], files: Sequence[str] | None = None) -> list[str]:
    """A distinct name for each result. Shared names are replaced by file names, or numbered.

    Example:
        >>> told_apart(["training run", "training run", "scores"], ["a.json", "b.json", "c.json"])
        ['a', 'b', 'scores']
        >>> told_apart(["training run", "training run"])
        ['training run (1)', 'training run (2)']
    """
    told = list(names)
    if files is not None:
        told = _replaced(
            told, ["standard input" if file == "-" else _plain(Path(file).stem) for file in files]
        )
        told = _replaced(told, [_plain(file) for file in files])
    # More than once, as a name with a number may be the name of another result.
    while len(set(told)) < len(told):
        told = _replaced(told, [f"{name} ({place})" for place, name in enumerate(told, start=1)])
    return told


def _replaced(names: list[str], others: list[str]) -> list[str]:
    """Replace each name that occurs more than once by the other one."""
    times = Counter(names)
    return [name if times[name] == 1 else other for name, other in zip(names, others, strict=True)]


def _plain(file: str) -> str:
    """A file's name on one line, without terminal control characters."""
    return shown(file)[1:-1]
