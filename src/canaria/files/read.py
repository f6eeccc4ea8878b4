"""Reads result files. Nothing in a file is trusted; any fault in it is an InputError."""

import json
import math
import sys
from collections.abc import Sequence
from datetime import date
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

from canaria._core import checks
from canaria._core.errors import InputError, shown
from canaria.bounds import Bound, limits
from canaria.bounds.conformance import EFFECTS, LEAST_LEVEL, Cause, Conformance
from canaria.bounds.limits import LARGEST_FILE, MOST_LINES, MOST_STEPS
from canaria.bounds.parts import Histogram, Ladder, Step
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
        >>> import tempfile, pathlib
        >>> from canaria import Counts, Result, lower_bound
        >>> from canaria.files import read_result
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "result.json"
        >>> saved = Result(lower_bound(Counts(90, 100, 100)), name="survey").save(path)
        >>> stored = read_result(saved)
        >>> stored.result.name, stored.record["name"]
        ('survey', 'survey')
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
    names = ("edges", "included", "excluded")
    _require_only("histogram", data, names)
    return Histogram(*(tuple(_list(name, _field("histogram", data, name))) for name in names))


def _ladder(data: object) -> Ladder | None:
    if data is None:
        return None
    steps = tuple(
        Step(
            _words("gap", _field("step", step, "gap")),
            limits.epsilon("epsilon", _field("step", step, "epsilon")),
        )
        for step in _list("steps", _field("ladder", data, "steps"), MOST_STEPS)
    )
    _require_only("ladder", data, ("top", "epsilon", "steps", "how"))
    top, how = (_words(name, _field("ladder", data, name)) for name in ("top", "how"))
    return Ladder(top, limits.epsilon("epsilon", _field("ladder", data, "epsilon")), steps, how)


def _rung(data: object) -> Rung:
    _require_only("a rung", data, tuple(Rung.__dataclass_fields__))
    name, assumes, measured, withdrawn = (
        _words(field, _field("a rung", data, field)) for field in ("name", "assumes", "measured", "withdrawn")
    )
    least, most = (
        None if (value := _field("a rung", data, field)) is None else limits.epsilon(field, value)
        for field in ("least", "most")
    )
    return Rung(name=name, assumes=assumes, least=least, most=most, measured=measured, withdrawn=withdrawn)


def _conformance(data: object) -> Conformance | None:
    if data is None:
        return None
    p_value, noise, stated, weight, level = (
        checks.real(name, _field("conformance", data, name))
        for name in ("p_value", "noise", "stated_noise", "weight", "level")
    )
    parts = _field("conformance", data, "parts")
    if not isinstance(parts, dict) or len(parts) > MOST_LINES:
        raise InputError(f"parts of conformance must be p-values by name, got {shown(parts)}")
    named = {_words("parts", name): checks.real("parts", value) for name, value in parts.items()}
    if not all(map(math.isfinite, (noise, stated, weight))) or noise < 0 or stated <= 0:
        raise InputError("noise, stated_noise and weight of conformance must be finite, noise not negative")
    if not LEAST_LEVEL <= level < 1:
        raise InputError(
            f"level of conformance must be at least {LEAST_LEVEL:g} and below 1, got {shown(level)}"
        )
    for value in (p_value, *named.values()):
        if not 0 <= value <= 1:
            raise InputError(f"p-values of conformance must be between 0 and 1, got {shown(value)}")
    explained = _words("explained_by", _field("conformance", data, "explained_by"))
    if explained and explained not in named:
        raise InputError(f"explained_by of conformance must be one of its parts, got {shown(explained)}")
    causes = _field("conformance", data, "causes")
    if not isinstance(causes, dict) or len(causes) > MOST_LINES:
        raise InputError(f"causes of conformance must be objects by name, got {shown(causes)}")
    _field("conformance", data, "conforms")
    _require_only("conformance", data, (*Conformance.__dataclass_fields__, "conforms"))
    return Conformance(
        p_value=p_value,
        noise=noise,
        stated_noise=stated,
        weight=weight,
        parts=named,
        causes={_words("causes", name): _cause(cause) for name, cause in causes.items()},
        explained_by=explained,
        level=level,
    )


def _cause(data: object) -> Cause:
    _require_only("a cause", data, tuple(Cause.__dataclass_fields__))
    text, effect = (_words(name, _field("a cause", data, name)) for name in ("text", "effect"))
    unbounded = _field("a cause", data, "unbounded")
    if effect not in EFFECTS or not isinstance(unbounded, bool):
        raise InputError(f"effect of a cause must be one of {', '.join(EFFECTS)}, got {shown(effect)}")
    return Cause(text=text, effect=effect, unbounded=unbounded)


def _require_only(what: str, data: object, names: Sequence[str]) -> None:
    if more := sorted(set(data if isinstance(data, dict) else ()) - set(names)):
        raise InputError(f"{what} must hold nothing more than {', '.join(names)}, got {shown(more)}")


def _field(what: str, data: object, name: str) -> Any:
    if not isinstance(data, dict) or name not in data:
        raise InputError(f"{what} must be an object with {name}, got {shown(data)}")
    return data[name]


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
    """Text without control characters, which could move the cursor of a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in limits.text(name, value))
