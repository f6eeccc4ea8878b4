"""A result in a few sentences: the claim, the training, and what to do next."""

from typing import NamedTuple

from canaria.bounds.result import Result
from canaria.report import words


class Point(NamedTuple):
    """One short statement, with a one-word topic."""

    about: str
    text: str


def points(result: Result) -> tuple[Point, ...]:
    """The statements of the box at the top, in reading order."""
    why = (Point("Why no more", f"{result.diagnosis}."),) if result.diagnosis else ()
    tested = (Point("Coverage", f"{result.coverage}."),) if result.coverage else ()
    notes = tuple(Point("Note", f"{remark}.") for remark in result.remarks)
    last = (*why, Point("Next", _next(result)))
    return (*notes, *tested, Point("Claim", _claim(result)), *_training(result), *last)


def answer(result: Result) -> str:
    """The verdict in a few words, for a table."""
    if (result.alarming or result.misstated) and not result.refuted:
        return f"{result.answer}; not as stated" + ("" if result.alarming else ", on the safe side")
    return f"{result.answer}; {words.WITH_AN_ASSUMPTION}" if result.refuting_rung else result.answer


def _claim(result: Result) -> str:
    if (rung := result.refuting_rung) is not None:
        return words.CLAIM_WITH_AN_ASSUMPTION.format(assumes=rung.assumes)
    if result.alarming and result.refuted is False:
        return words.CLAIM_NOT_RELIED_ON
    if result.claim is None and result.bound.condition:
        return words.NO_CLAIM_OF_FAMILY
    wrong = f"{100 * (1 - result.bound.confidence):.3g}"
    return words.CLAIM[result.refuted].format(wrong=wrong)


def _training(result: Result) -> tuple[Point, ...]:
    """Whether training matches what was stated; empty if that was not tested."""
    if (found := result.conformance) is not None:
        if not found.conforms:
            todo = "".join(f" To do: {advice}." for advice in found.advice)
            return (Point("Training", f"{words.NOT_AS_STATED}; the verdict says how.{todo}"),)
        measured = f"measured noise {found.noise:.3g}, stated {found.stated_noise:.3g}"
        ends = words.AS_STATED
        if result.contradictions or result.remarks:
            ends = words.CONTRADICTED if result.contradictions else words.NOTED
        return (Point("Training", f"{measured}: {ends}."),)
    if result.contradictions:
        return (Point("Training", f"{words.NOT_AS_STATED}; the verdict says where."),)
    return ()


def _next(result: Result) -> str:
    if result.alarming:
        return words.NEXT["refuted" if result.refuted else "not as stated"]
    if result.misstated is not None:
        return words.NEXT["safe"]
    if result.refuting_rung is not None:
        return words.NEXT["assumption"]
    if result.bound.epsilon == 0:
        return words.NEXT["nothing shown"]
    if result.claimed is not None and result.bound.estimate > result.claimed:
        return words.NEXT["open"]
    return words.NEXT["no claim" if result.claim is None else "not refuted"]
