"""Result files: reading one back, and checking it against its own evidence. Nothing in a file is believed."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from canaria import _validate
from canaria._validate import InputError, shown
from canaria.bound import Bound, lower_bound, plain
from canaria.conforming import Conformance
from canaria.evidence import Counts, Evidence, Ranking, Split, from_dict
from canaria.evidence.ranking import looks
from canaria.results import FORMAT, Histogram, Ladder, Result, Step, checksum
from canaria.rules import Ranked
from canaria.rules.ranked import SHARES

_LARGEST_FILE: Final = 256 * 2**20
_LONGEST_TEXT: Final = 20_000
_MOST_LINES: Final = 200
_DERIVED: Final = ("correct", "taken", "elements", "estimate", "method", "assumptions", "grid", "refuted")


class Check(NamedTuple):
    """A stored epsilon, the one its evidence gives, and what does not fit (nothing, if it holds)."""

    stored: float
    recomputed: float
    faults: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether the stored bound is no higher than its evidence allows, and says what it is."""
        return not self.faults

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return {
            "stored": plain(self.stored),
            "recomputed": plain(self.recomputed),
            "holds": self.holds,
            "faults": list(self.faults),
        }


class Stored(NamedTuple):
    """A result as it was stored, not yet checked, and the whole record."""

    result: Result
    record: dict[str, Any]


def read_result(source: str | Path) -> Stored:
    """Read a result file (`-` is standard input); what is wrong with it is an InputError."""
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


def read_checked(source: str | Path) -> Result:
    """Read a result that is to be shown to people: one that does not hold is an InputError."""
    stored = read_result(source)
    faults = check(stored).faults
    if faults:
        raise InputError(f"{source} does not hold: {'; '.join(faults)}")
    return stored.result


def check(stored: Stored) -> Check:
    """Recompute a bound from its evidence, and all that the record says about it."""
    kept = stored.result.bound
    again = lower_bound(kept.evidence, kept.delta, kept.confidence, adjacency=kept.adjacency, rule=kept.rule)
    faults = []
    if kept.epsilon > again.epsilon + 1e-8 * max(1.0, again.epsilon):
        faults.append(f"epsilon is stored as {kept.epsilon:g}, but its evidence gives {again.epsilon:g}")
    fresh = replace(again, epsilon=kept.epsilon).to_dict()
    fresh["refuted"] = stored.result.refuted
    for name in _DERIVED:
        if stored.record.get(name, fresh[name]) != fresh[name]:
            told, true = shown(stored.record[name]), shown(fresh[name])
            faults.append(f"{name} is stored as {told}, but its evidence says {true}")
    if kept.rule == repr(Ranked()) and not _is_ranked(kept.evidence):
        faults.append(f"rule is stored as {kept.rule}, but the evidence looks at other numbers of guesses")
    if stored.record["checksum"] != checksum(stored.record):
        faults.append("checksum does not fit: the file was changed after it was written")
    return Check(kept.epsilon, again.epsilon, tuple(faults))


def _is_ranked(evidence: Evidence) -> bool:
    """Whether evidence has the shares and the looks that the default rule commits to, or no guess."""
    return evidence == Counts(0, 0, evidence.elements) or (
        isinstance(evidence, Split)
        and evidence.shares == SHARES
        and all(
            isinstance(part, Ranking) and np.array_equal(part.grid, looks(part.elements))
            for part in evidence.parts
        )
    )


def _text(source: str | Path, name: str) -> str:
    if str(source) == "-":
        return sys.stdin.read()
    size = Path(source).stat().st_size
    if size > _LARGEST_FILE:
        raise InputError(f"{name} must be at most {_LARGEST_FILE} bytes, got {size}")
    return Path(source).read_text(encoding="utf-8")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise InputError(f"a result must name everything once, got {shown(sorted(names))}")
    return dict(pairs)


def _result(record: Any, source: str) -> Result:
    if not isinstance(record, dict):
        raise InputError(f"{source} must hold a JSON object, got {shown(record)}")
    if record.get("format") != FORMAT:
        written = f" (written by canaria {shown(record['canaria'])})" if "canaria" in record else ""
        raise InputError(
            f"{source} must be a result of format {FORMAT}, got {shown(record.get('format'))}{written}"
        )
    wanted = {"epsilon", "delta", "confidence", "adjacency", "evidence", "name", "checksum"}
    missing = wanted - set(record)
    if missing:
        raise InputError(f"{source} must be a result with {', '.join(sorted(missing))}")
    seed = record.get("seed")
    return Result(
        _bound(record),
        None if record.get("claimed") is None else _epsilon("claimed", record["claimed"]),
        _words("name", record["name"]),
        _histogram(record.get("histogram")),
        _ladder(record.get("ladder")),
        _conformance(record.get("conformance")),
        _lines("facts", record.get("facts", {})),
        None if seed is None else _validate.integer("seed", seed, 0, 2**63),
        _maybe_words("command", record.get("command")),
        _lines("versions", record.get("versions", {})),
    )


def _bound(record: dict[str, Any]) -> Bound:
    return Bound(
        _epsilon("epsilon", record["epsilon"]),
        _validate.delta(record["delta"]),
        _validate.confidence(record["confidence"]),
        from_dict(record["evidence"]),
        _validate.adjacency(record["adjacency"]),
        _maybe_words("rule", record.get("rule")),
        _maybe_words("about", record.get("about")),
    )


def _epsilon(name: str, value: Any) -> float:
    return _validate.nonnegative(name, float("inf") if value == "inf" else value)


def _histogram(data: Any) -> Histogram | None:
    if data is None:
        return None
    names = ("edges", "included", "excluded")
    return Histogram(*(tuple(_list(name, _field("histogram", data, name))) for name in names))


def _ladder(data: Any) -> Ladder | None:
    if data is None:
        return None
    steps = tuple(
        Step(_words("gap", _field("step", step, "gap")), _epsilon("epsilon", _field("step", step, "epsilon")))
        for step in _list("steps", _field("ladder", data, "steps"))
    )
    top, how = (_words(name, _field("ladder", data, name)) for name in ("top", "how"))
    return Ladder(top, _epsilon("epsilon", _field("ladder", data, "epsilon")), steps, how)


def _conformance(data: Any) -> Conformance | None:
    if data is None:
        return None
    p_value, noise, stated, weight = (
        _validate.real(name, _field("conformance", data, name))
        for name in ("p_value", "noise", "stated_noise", "weight")
    )
    parts = _field("conformance", data, "parts")
    if not isinstance(parts, dict) or len(parts) > _MOST_LINES:
        raise InputError(f"parts of conformance must be p-values by name, got {shown(parts)}")
    named = {_words("parts", name): _validate.real(name, value) for name, value in parts.items()}
    for value in (p_value, *named.values()):
        if not 0 <= value <= 1:
            raise InputError(f"p-values of conformance must be between 0 and 1, got {shown(value)}")
    clearest = _words("clearest", _field("conformance", data, "clearest"))
    return Conformance(p_value, noise, stated, weight, named, clearest)


def _field(what: str, data: Any, name: str) -> Any:
    if not isinstance(data, dict) or name not in data:
        raise InputError(f"{what} must be an object with {name}, got {shown(data)}")
    return data[name]


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > _LONGEST_TEXT:
        raise InputError(f"{name} must be a list, got {shown(value)}")
    return value


def _lines(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > _MOST_LINES:
        raise InputError(f"{name} must be at most {_MOST_LINES} texts by name, got {shown(value)}")
    return {_words(name, key): _words(name, text) for key, text in value.items()}


def _maybe_words(name: str, value: Any) -> str | None:
    return None if value is None else _words(name, value)


def _words(name: str, value: Any) -> str:
    """Text without control characters, which could move a terminal's cursor."""
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise InputError(f"{name} must be a text of at most {_LONGEST_TEXT} characters, got {shown(value)}")
    return "".join(letter if letter.isprintable() else " " for letter in value)
