"""Reads result files. Nothing in a file is trusted; any fault in it is an InputError."""

import json
import math
import sys
from collections.abc import Callable
from datetime import date
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

from canaria._core import checks
from canaria._core.errors import InputError, printable, shown
from canaria.bounds import Bound, limits
from canaria.bounds.conformance import EFFECTS, LEAST_LEVEL, Cause, Conformance
from canaria.bounds.limits import LARGEST_FILE, MOST_LINES, MOST_STEPS
from canaria.bounds.parts import Histogram, Ladder, LadderStep
from canaria.bounds.result import FORMAT, Result
from canaria.bounds.rungs import MOST_RUNGS, Rung
from canaria.claims import ApproximateDP, Claim, families
from canaria.evidence import Evidence

_LONGEST_LIST: Final = 20_000


class Stored(NamedTuple):
    """A result as stored in a file, not yet checked.

    Attributes:
        result: The result.
        record: The whole content of the file.

    Example:
        ```python
        stored = read_result("result.json")
        stored.result.bound, stored.record["checksum"]
        ```
    """

    result: Result
    record: dict[str, Any]


def read_result(source: str | Path) -> Stored:
    """Read a result file without checking its bound; `check` does that.

    Args:
        source: The path of the file; `-` is standard input.

    Raises:
        InputError: If the file cannot be read, is not a result, or would take too long to check.

    Example:
        >>> import tempfile, pathlib
        >>> from canaria import Counts, Result, lower_bound
        >>> from canaria.files import read_result
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "result.json"
        >>> saved = Result(lower_bound(Counts(90, 100, 100)), name="survey").save(path)
        >>> print(read_result(saved).result.bound)
        ε ≥ 1.630 at δ = 0, with 95% confidence: 90 of 100 guesses right, 100 elements
    """
    name = "standard input" if str(source) == "-" else str(source)
    try:
        record = json.loads(_text(source, name), object_pairs_hook=_unique)
        return Stored(_result(record, name), record)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}") from None
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} must be the JSON of one result: {shown(str(error))}") from None


def _text(source: str | Path, name: str) -> str:
    if str(source) == "-":
        if sys.stdin is None:
            raise InputError("standard input is closed")
        data = sys.stdin.buffer.read(LARGEST_FILE + 1)
    else:
        with Path(source).open("rb") as stream:
            data = stream.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise InputError(f"{name} must be at most {LARGEST_FILE} bytes")
    return data.decode("utf-8")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise InputError(f"a result must name everything once, got {shown(sorted(names))}")
    return dict(pairs)


def _result(record: object, source: str) -> Result:
    if not isinstance(record, dict):
        raise InputError(f"{source} must hold a JSON object, got {shown(record)}")
    if type(record.get("format")) is not int or record["format"] != FORMAT:
        written = f" (written by canaria {shown(record['canaria'])})" if "canaria" in record else ""
        raise InputError(
            f"{source} must be a result of format {FORMAT}, got {shown(record.get('format'))}{written}"
        )
    missing, more = _fields() - set(record), set(record) - _fields()
    if missing:
        raise InputError(f"{source} must be a result with {', '.join(sorted(missing))}")
    if more:
        raise InputError(f"{source} must be a result and nothing more, got {shown(sorted(more))}")
    for part in ("evidence", "claim"):
        limits.require_moderate(part, record[part])
    bound = _bound(record)
    limits.require_quick(bound.evidence, bound.family, bound.delta, limits.allowed(record), source)
    with limits.quick(record, bound.evidence, source):  # the ε of a composed claim takes long to compute
        return _made(record, bound)


def _made(record: dict[str, Any], bound: Bound) -> Result:
    return Result(
        bound,
        _claim(record),
        name=_words("name", record["name"]),
        histogram=_histogram(record["histogram"]),
        ladder=_ladder(record["ladder"]),
        conformance=_conformance(record["conformance"]),
        rungs=tuple(map(_rung, _list("rungs", record["rungs"], MOST_RUNGS))),
        contradictions=tuple(
            _words("contradictions", line)
            for line in limits.texts("contradictions", record["contradictions"])
        ),
        remarks=tuple(_words("remarks", line) for line in limits.texts("remarks", record["remarks"])),
        tested=_lines("tested", record["tested"]),
        facts=_lines("facts", record["facts"]),
        seed=limits.seed(record["seed"]),
        command=_maybe_words("command", record["command"]),
        versions=_lines("versions", record["versions"]),
        date=_date(record["date"]),
    )


@lru_cache
def _fields() -> frozenset[str]:
    schema = files("canaria.files").joinpath("result.schema.json").read_text(encoding="utf-8")
    return frozenset(json.loads(schema)["properties"])


def _bound(record: dict[str, Any]) -> Bound:
    return Bound(
        limits.epsilon("epsilon", record["epsilon"]),
        checks.delta(record["delta"]),
        checks.confidence(record["confidence"]),
        Evidence.from_dict(record["evidence"]),
        adjacency=checks.adjacency(record["adjacency"]),
        rule=_maybe_words("rule", record["rule"]),
        about=_maybe_words("about", record["about"]),
        family=None if record["family"] is None else families.Family.from_dict(record["family"]),
    )


def _claim(record: dict[str, Any]) -> Claim | None:
    if record["claim"] is not None:
        return Claim.from_dict(record["claim"])
    if record["claimed"] is None:
        return None
    # A result compares bound and claim for the same neighbours only, so one adjacency is stored for both.
    return ApproximateDP(
        limits.epsilon("claimed", record["claimed"]),
        checks.delta(record["delta"]),
        checks.adjacency(record["adjacency"]),
    )


def _histogram(data: object) -> Histogram | None:
    if data is None:
        return None
    return Histogram(**_fields_of("histogram", data, edges=_tuple, included=_tuple, excluded=_tuple))


def _ladder(data: object) -> Ladder | None:
    if data is None:
        return None
    return Ladder(**_fields_of("ladder", data, top=_words, epsilon=limits.epsilon, steps=_steps, how=_words))


def _steps(name: str, value: object) -> tuple[LadderStep, ...]:
    steps = _list(name, value, MOST_STEPS)
    return tuple(LadderStep(**_fields_of("step", step, gap=_words, epsilon=limits.epsilon)) for step in steps)


def _rung(data: object) -> Rung:
    texts = dict.fromkeys(("name", "assumes", "measured", "withdrawn"), _words)
    return Rung(**_fields_of("a rung", data, **texts, least=_maybe_epsilon, most=_maybe_epsilon))


def _conformance(data: object) -> Conformance | None:
    if data is None:
        return None
    numbers = dict.fromkeys(("p_value", "noise", "stated_noise", "weight", "level"), checks.real)
    named = {"parts": _p_values, "causes": _causes, "explained_by": _words}
    fields = _fields_of("conformance", data, **numbers, **named, conforms=lambda _, value: value)
    del fields["conforms"]  # it follows from the rest
    found = Conformance(**fields)
    if not all(map(math.isfinite, (found.noise, found.stated_noise, found.weight))) or (
        found.noise < 0 or found.stated_noise <= 0
    ):
        raise InputError("noise, stated_noise and weight of conformance must be finite, noise not negative")
    if not LEAST_LEVEL <= found.level < 1:
        raise InputError(
            f"level of conformance must be at least {LEAST_LEVEL:g} and below 1, got {shown(found.level)}"
        )
    for value in (found.p_value, *found.parts.values()):
        if not 0 <= value <= 1:
            raise InputError(f"p-values of conformance must be between 0 and 1, got {shown(value)}")
    if (explained := found.explained_by) and explained not in found.parts:
        raise InputError(f"explained_by of conformance must be one of its parts, got {shown(explained)}")
    return found


def _p_values(name: str, value: object) -> dict[str, float]:
    if not isinstance(value, dict) or len(value) > MOST_LINES:
        raise InputError(f"{name} of conformance must be p-values by name, got {shown(value)}")
    return {_words(name, part): checks.real(name, number) for part, number in value.items()}


def _causes(name: str, value: object) -> dict[str, Cause]:
    if not isinstance(value, dict) or len(value) > MOST_LINES:
        raise InputError(f"{name} of conformance must be objects by name, got {shown(value)}")
    return {_words(name, part): _cause(cause) for part, cause in value.items()}


def _cause(data: object) -> Cause:
    found = Cause(**_fields_of("a cause", data, text=_words, effect=_words, unbounded=lambda _, value: value))
    if found.effect not in EFFECTS or not isinstance(found.unbounded, bool):
        raise InputError(f"effect of a cause must be one of {', '.join(EFFECTS)}, got {shown(found.effect)}")
    return found


def _fields_of(what: str, data: object, **readers: Callable[[str, Any], Any]) -> dict[str, Any]:
    """The fields of a record, each by its reader; none may be missing, and there may be no others."""
    record = data if isinstance(data, dict) else {}
    for name in readers:
        if name not in record:
            raise InputError(f"{what} must be an object with {name}, got {shown(data)}")
    if more := sorted(set(record) - set(readers)):
        raise InputError(f"{what} must hold nothing more than {', '.join(readers)}, got {shown(more)}")
    return {name: read(name, record[name]) for name, read in readers.items()}


def _tuple(name: str, value: object) -> tuple[Any, ...]:
    return tuple(_list(name, value))


def _maybe_epsilon(name: str, value: object) -> float | None:
    return None if value is None else limits.epsilon(name, value)


def _list(name: str, value: object, most: int = _LONGEST_LIST) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise InputError(f"{name} must be a list of at most {most}, got {shown(value)}")
    return value


def _lines(name: str, value: object) -> dict[str, str]:
    return {_words(name, key): _words(name, line) for key, line in limits.lines(name, value).items()}


def _date(value: object) -> str:
    try:
        return date.fromisoformat(_words("date", value)).isoformat()
    except ValueError:
        raise InputError(f"date must be a day such as 2026-01-31, got {shown(value)}") from None


def _maybe_words(name: str, value: object) -> str | None:
    return None if value is None else _words(name, value)


def _words(name: str, value: object) -> str:
    return printable(limits.text(name, value))
