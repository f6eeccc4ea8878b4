"""What a manager needs to know of a result: the claim, the training, and what to do next."""

from typing import NamedTuple

from canaria.report import words
from canaria.results.result import Result


class Point(NamedTuple):
    """One short statement.

    Attributes:
        about: What it is about, in a word.
        text: The statement.

    """

    about: str
    text: str


def points(result: Result) -> tuple[Point, ...]:
    """The statements of the box on top, in the order in which they are read."""
    why = (Point("Why no more", f"{result.diagnosis}."),) if result.diagnosis else ()
    return (Point("Claim", _claim(result)), *_training(result), *why, Point("Next", _next(result)))


def answer(result: Result) -> str:
    """The verdict in a few words, for a table."""
    if result.alarming and not result.refuted:
        return f"{result.answer}; not as stated"
    return f"{result.answer}; {words.WITH_AN_ASSUMPTION}" if result.refuting_rung else result.answer


def _claim(result: Result) -> str:
    if (rung := result.refuting_rung) is not None:
        return words.CLAIM_WITH_AN_ASSUMPTION.format(assumes=rung.assumes)
    if result.claim is None and result.bound.condition:
        return words.NO_CLAIM_OF_FAMILY
    wrong = f"{100 * (1 - result.bound.confidence):.3g}"
    return words.CLAIM[result.refuted].format(wrong=wrong)


def _training(result: Result) -> tuple[Point, ...]:
    """Whether training does what was stated; nothing if there is nothing to say."""
    if (found := result.conformance) is not None:
        measured = f"measured noise {found.noise:.3g}, stated {found.stated_noise:.3g}"
        where = f" (clearest in {found.clearest})" if found.clearest and not found.conforms else ""
        ends = words.AS_STATED if found.conforms else words.NOT_AS_STATED
        if found.conforms and result.contradictions:
            ends = words.CONTRADICTED
        return (Point("Training", f"{measured}: {ends}{where}."),)
    if result.contradictions:
        return (Point("Training", f"{words.NOT_AS_STATED}; the verdict says where."),)
    return ()


def _next(result: Result) -> str:
    if result.alarming:
        return words.NEXT["refuted" if result.refuted else "not as stated"]
    if result.refuting_rung is not None:
        return words.NEXT["assumption"]
    if result.bound.epsilon == 0:
        return words.NEXT["nothing shown"]
    if result.claimed is not None and result.bound.estimate > result.claimed:
        return words.NEXT["open"]
    return words.NEXT["no claim" if result.claim is None else "not refuted"]
