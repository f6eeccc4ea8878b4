"""Result files: reading one back, and checking it against its own evidence. Nothing in a file is believed."""

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from canaria import _limits, _validate
from canaria._limits import LARGEST_FILE, MOST_LINES, MOST_STEPS
from canaria._validate import InputError, shown
from canaria.bound import Bound, lower_bound, plain
from canaria.claims import ApproximateDP
from canaria.conforming import Conformance, joined
from canaria.evidence import _effort, from_dict
from canaria.results import CLAIM, FORMAT, Histogram, Ladder, Result, Step
from canaria.rules import Telling, rule_of
from canaria.store import checksum

_SAME: Final = 1e-8
_SAME_P_VALUE: Final = 1e-6
_LONGEST_LIST: Final = 20_000
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


def read_checked(source: str | Path) -> Stored:
    """Read a result to show it, with its bound recomputed; one that does not hold is an InputError."""
    stored = read_result(source)
    again, faults = _recomputed(stored)
    if faults:
        raise InputError(f"{source} does not hold: {'; '.join(faults)}")
    return Stored(replace(stored.result, bound=again), stored.record)


def check(stored: Stored) -> Check:
    """Recompute a bound from its evidence, and all that the record says about it.

    A stored bound that is lower than its evidence gives does not hold either: it could hide a refutation.
    """
    again, faults = _recomputed(stored)
    return Check(stored.result.bound.epsilon, again.epsilon, tuple(faults))


def _recomputed(stored: Stored) -> tuple[Bound, list[str]]:
    allowed = _limits.allowed(stored.record["evidence"])
    try:
        with _effort.at_most(allowed):
            return _compared(stored)
    except _effort.TooLongError:
        taken = f"more than {allowed:.0f}"
        raise _limits.too_long("a result", taken, allowed, stored.result.bound.evidence) from None


def _compared(stored: Stored) -> tuple[Bound, list[str]]:
    kept = stored.result.bound
    again = lower_bound(
        kept.evidence,
        kept.delta,
        kept.confidence,
        adjacency=kept.adjacency,
        rule=kept.rule,
        about=kept.about,
    )
    faults = []
    if not _same(kept.epsilon, again.epsilon):
        faults.append(f"epsilon is stored as {kept.epsilon:g}, but its evidence gives {again.epsilon:g}")
    fresh = replace(again, epsilon=kept.epsilon).to_dict()
    fresh["refuted"] = replace(stored.result, bound=again).refuted
    for name in _DERIVED:
        told, true = stored.record[name], fresh[name]
        if told != true or type(told) is not type(true):
            faults.append(f"{name} is stored as {shown(told)}, but its evidence says {shown(true)}")
    faults += _misfits(stored.result)
    faults += _other_rule(stored.result) + _mislabelled(stored)
    if stored.record["checksum"] != checksum(stored.record):
        faults.append("checksum does not fit: the file was changed after it was written")
    return again, faults


def _other_rule(result: Result) -> list[str]:
    """A rule of ours that cannot have made the evidence: counts relabelled to a kind that proves more."""
    bound = result.bound
    try:
        rule = None if bound.rule is None else rule_of(bound.rule)
    except InputError as error:
        return [str(error)]
    if rule is not None and not rule.could_have_made(bound.evidence):
        return [f"rule is stored as {bound.rule}, which cannot have made this evidence ({bound.method})"]
    included = None if result.histogram is None else sum(result.histogram.included)
    if isinstance(rule, Telling) and included is not None:
        fewest, most = rule.included(bound.evidence)
        if not fewest <= included <= most:
            return [
                f"histogram shows {included} included elements, but the evidence has "
                + (f"{fewest}" if fewest == most else f"{fewest} to {most}")
            ]
    return []


def _mislabelled(stored: Stored) -> list[str]:
    """What a record says about itself and its training, beside the bound."""
    faults, record = [], stored.record
    if (found := stored.result.conformance) is not None:
        told = record["conformance"]["conforms"]
        if told is not found.conforms:
            faults.append(f"conforms is stored as {shown(told)}, but its p-value says {found.conforms}")
    if record["canaria"] != record["versions"].get("canaria", record["canaria"]):
        faults.append(f"canaria is stored as {shown(record['canaria'])}, but versions name another")
    return faults


def _same(one: float, other: float) -> bool:
    return one == other or abs(one - other) <= _SAME * max(1.0, other)


def _misfits(result: Result) -> list[str]:
    """What is told beside the bound and does not fit it."""
    faults, bound = [], result.bound
    if (histogram := result.histogram) is not None:
        counted = sum(histogram.included) + sum(histogram.excluded)
        if counted != bound.evidence.elements:
            faults.append(f"histogram counts {counted} scores of {bound.evidence.elements} elements")
    if (ladder := result.ladder) is not None:
        if ladder.steps and not _same(ladder.steps[-1].epsilon, bound.epsilon):
            faults.append(f"ladder ends at {ladder.steps[-1].epsilon:g}, not at the bound {bound.epsilon:g}")
        if ladder.top == CLAIM and (result.claimed is None or not _same(ladder.epsilon, result.claimed)):
            faults.append(f"ladder starts at {ladder.epsilon:g}, not at the claim {result.claimed}")
        falls = [ladder.epsilon, *(step.epsilon for step in ladder.steps[:-1])]
        if any(lower > upper + _SAME for upper, lower in pairwise(falls)):
            faults.append("ladder does not fall from step to step, before chance")
    if (found := result.conformance) is not None and not math.isclose(
        joined(found.parts), found.p_value, rel_tol=_SAME_P_VALUE, abs_tol=1e-300
    ):
        faults.append(f"conformance is stored as p = {found.p_value:g}, but its parts give another")
    return faults


def _text(source: str | Path, name: str) -> str:
    if str(source) == "-":
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


def _result(record: Any, source: str) -> Result:
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
    _limits.require_moderate(record["evidence"])
    bound = _bound(record)
    _limits.require_quick(bound.evidence, bound.delta, _limits.allowed(record["evidence"]), source)
    return Result(
        bound,
        _claim(record),
        _words("name", record["name"]),
        _histogram(record["histogram"]),
        _ladder(record["ladder"]),
        _conformance(record["conformance"]),
        _lines("facts", record["facts"]),
        _limits.seed(record["seed"]),
        _maybe_words("command", record["command"]),
        _lines("versions", record["versions"]),
    )


@lru_cache
def _fields() -> frozenset[str]:
    schema = files("canaria").joinpath("result.schema.json").read_text(encoding="utf-8")
    return frozenset(json.loads(schema)["properties"])


def _bound(record: dict[str, Any]) -> Bound:
    return Bound(
        _limits.epsilon("epsilon", record["epsilon"]),
        _validate.delta(record["delta"]),
        _validate.confidence(record["confidence"]),
        from_dict(record["evidence"]),
        _validate.adjacency(record["adjacency"]),
        _maybe_words("rule", record["rule"]),
        _maybe_words("about", record["about"]),
    )


def _claim(record: dict[str, Any]) -> ApproximateDP | None:
    if record["claimed"] is None:
        return None
    return ApproximateDP(_limits.epsilon("claimed", record["claimed"]), _validate.delta(record["delta"]))


def _histogram(data: Any) -> Histogram | None:
    if data is None:
        return None
    names = ("edges", "included", "excluded")
    _require_only("histogram", data, names)
    return Histogram(*(tuple(_list(name, _field("histogram", data, name))) for name in names))


def _ladder(data: Any) -> Ladder | None:
    if data is None:
        return None
    steps = tuple(
        Step(
            _words("gap", _field("step", step, "gap")),
            _limits.epsilon("epsilon", _field("step", step, "epsilon")),
        )
        for step in _list("steps", _field("ladder", data, "steps"), MOST_STEPS)
    )
    _require_only("ladder", data, ("top", "epsilon", "steps", "how"))
    top, how = (_words(name, _field("ladder", data, name)) for name in ("top", "how"))
    return Ladder(top, _limits.epsilon("epsilon", _field("ladder", data, "epsilon")), steps, how)


def _conformance(data: Any) -> Conformance | None:
    if data is None:
        return None
    p_value, noise, stated, weight, level = (
        _validate.real(name, _field("conformance", data, name))
        for name in ("p_value", "noise", "stated_noise", "weight", "level")
    )
    parts = _field("conformance", data, "parts")
    if not isinstance(parts, dict) or len(parts) > MOST_LINES:
        raise InputError(f"parts of conformance must be p-values by name, got {shown(parts)}")
    named = {_words("parts", name): _validate.real("parts", value) for name, value in parts.items()}
    if not all(map(math.isfinite, (noise, stated, weight))):
        raise InputError("noise, stated_noise and weight of conformance must be finite numbers")
    if not 0 < level < 1:
        raise InputError(f"level of conformance must be strictly between 0 and 1, got {shown(level)}")
    for value in (p_value, *named.values()):
        if not 0 <= value <= 1:
            raise InputError(f"p-values of conformance must be between 0 and 1, got {shown(value)}")
    clearest = _words("clearest", _field("conformance", data, "clearest"))
    _field("conformance", data, "conforms")
    _require_only("conformance", data, (*Conformance.__dataclass_fields__, "conforms"))
    return Conformance(p_value, noise, stated, weight, named, clearest, level)


def _require_only(what: str, data: Any, names: Sequence[str]) -> None:
    if more := sorted(set(data if isinstance(data, dict) else ()) - set(names)):
        raise InputError(f"{what} must hold nothing more than {', '.join(names)}, got {shown(more)}")


def _field(what: str, data: Any, name: str) -> Any:
    if not isinstance(data, dict) or name not in data:
        raise InputError(f"{what} must be an object with {name}, got {shown(data)}")
    return data[name]


def _list(name: str, value: Any, most: int = _LONGEST_LIST) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise InputError(f"{name} must be a list of at most {most}, got {shown(value)}")
    return value


def _lines(name: str, value: Any) -> dict[str, str]:
    return {_words(name, key): _words(name, line) for key, line in _limits.lines(name, value).items()}


def _maybe_words(name: str, value: Any) -> str | None:
    return None if value is None else _words(name, value)


def _words(name: str, value: Any) -> str:
    """Text without control characters, which could move a terminal's cursor."""
    return "".join(letter if letter.isprintable() else " " for letter in _limits.text(name, value))
