"""The limits of a result, so that anyone can check it within seconds; used for writing and for reading."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from canaria._core import checks, effort
from canaria._core.errors import InputError, shown
from canaria.claims.families import Family
from canaria.evidence import Evidence

LARGEST_FILE: Final = 64 * 2**20
MOST_STEPS: Final = 20
"""The most steps of a ladder: each is a bar of the report."""
MOST_LINES: Final = 200
_LONGEST_TEXT: Final = 20_000
_LARGEST_EPSILON: Final = 1e6
_DEEPEST: Final = 10
_MOST_PARTS: Final = 10_000
ALLOWED: Final = 6.0
"""Seconds of an ordinary core that a file may ask for; with starting up and reading, less than ten."""
PLANNING: Final = 30.0
"""Seconds more for the curves of a family, which are kept on disk, and for choosing its looks."""
_PER_BYTE: Final = 1e-6
"""Seconds more for each byte of evidence beyond a million."""


def epsilon(name: str, value: object) -> float:
    """An epsilon from a file; the word inf stands for infinity."""
    if value == "inf":
        return math.inf
    number = checks.nonnegative(name, value)
    if number > _LARGEST_EPSILON:
        raise InputError(f"{name} must be at most {_LARGEST_EPSILON:g} or the word inf, got {shown(value)}")
    return number


def seed(value: object) -> int | None:
    """A seed that every JSON reader reads as an integer."""
    return None if value is None else checks.integer("seed", value, 0, 2**63)


def text(name: str, value: object) -> str:
    """A text that is not too long to be shown."""
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise InputError(f"{name} must be a text of at most {_LONGEST_TEXT} characters, got {shown(value)}")
    return value


def texts(name: str, value: object) -> tuple[str, ...]:
    """Texts, at most a fixed number of them."""
    if not isinstance(value, list | tuple) or len(value) > MOST_LINES:
        raise InputError(f"{name} must be at most {MOST_LINES} texts, got {shown(value)}")
    return tuple(text(name, line) for line in value)


def lines(name: str, value: object) -> dict[str, str]:
    """Texts by name, at most a fixed number of them."""
    if not isinstance(value, dict) or len(value) > MOST_LINES:
        raise InputError(f"{name} must be at most {MOST_LINES} texts by name, got {shown(value)}")
    return {text(name, key): text(name, line) for key, line in value.items()}


def require_moderate(name: str, record: object) -> None:
    """Refuse recorded evidence, or a claim, that is too large or too deeply nested to be read quickly."""
    # Level by level: with a recursion, a file could exceed the stack.
    level, depth, parts = [record], 0, 0
    while level:
        if depth > _DEEPEST or (parts := parts + len(level)) > _MOST_PARTS:
            raise InputError(f"{name} must have at most {_MOST_PARTS} parts, nested {_DEEPEST} deep")
        depth += 1
        level = [inner for part in level if isinstance(part, dict) for inner in _listed(part.get("parts"))]


def allowed(record: Mapping[str, Any]) -> float:
    """The seconds that a recorded bound may take; more if its evidence is large, or is about a family."""
    planning = PLANNING if _of_family(record) or _of_family(record["evidence"]) else 0.0
    return ALLOWED + planning + _PER_BYTE * max(0, len(json.dumps(record["evidence"])) - 10**6)


def require_quick(
    evidence: Evidence, family: Family | None, delta: float, seconds: float, source: str
) -> None:
    """Refuse a bound that is likely to take longer than is allowed, before anything is computed."""
    likely = evidence.effort(delta).bound
    if family is not None and evidence.family is None:
        tested = len(family.stretches(evidence.elements))
        likely = family.effort(evidence.elements) + tested * evidence.effort(delta).claim
    if likely > seconds:
        raise too_long(source, f"about {likely:.0f}", seconds, evidence)


@contextmanager
def quick(record: dict[str, Any], evidence: Evidence, source: str) -> Iterator[None]:
    """Stop what takes longer than the record may, counted while it is done."""
    seconds = allowed(record)
    try:
        with effort.at_most(seconds):
            yield
    except effort.TooLongError:
        raise too_long(source, f"more than {seconds:.0f}", seconds, evidence) from None


def too_long(source: str, seconds: str, most: float, evidence: Evidence) -> InputError:
    """The error for evidence that takes too long."""
    return InputError(
        f"{source} would take {seconds} s to recompute ({_named(evidence)}); at most {most:.0f} s are allowed"
    )


def _named(evidence: Evidence) -> str:
    guesses = f" of {evidence.most_guesses} guesses" if evidence.most_guesses else ""
    return f"a {type(evidence).__name__}{guesses}, {evidence.elements} elements"


def _of_family(record: object) -> bool:
    """Whether a record, or a part of it, is about a family."""
    if not isinstance(record, dict):
        return False
    return record.get("family") is not None or any(map(_of_family, _listed(record.get("parts"))))


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
