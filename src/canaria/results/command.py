"""The stored command: what it says about the result must be what the result says."""

import math
import shlex
from collections.abc import Mapping
from itertools import pairwise
from pathlib import PurePath
from typing import Any, Final

from canaria._core.errors import InputError, shown
from canaria.claims import base as claims
from canaria.claims import families
from canaria.rules import Matched, parse_rule, rule_of, written

_FIELDS: Final = {
    "--delta": "delta",
    "--claimed": "claimed",
    "--confidence": "confidence",
    "--adjacency": "adjacency",
    "--seed": "seed",
    "--correct": "correct",
    "--guesses": "taken",
    "--elements": "elements",
    "--n": "elements",
    "--method": "method",
    "--rule": "rule",
    "--family": "family",
}
"""Where the record says what an option of the command line says."""
_CLOSE: Final = 1e-5
"""The parameter of the claim that an epsilon stands for may differ so much between machines."""
_ONE_SIDED: Final = "--one-sided"
_NO_MORE_OPTIONS: Final = "--"
_ALWAYS: Final = {"--delta": 0.0, "--claimed": None, "--confidence": 0.95, "--family": None}
_DEFAULTS: Final[dict[str, dict[str, object]]] = {
    "bound": {
        **_ALWAYS,
        "--correct": None,
        "--guesses": None,
        "--elements": None,
        "--method": "exact",
        "--adjacency": "unspecified",
        "--rule": None,
        "--seed": None,
    },
    "scores": {**_ALWAYS, "--rule": "ranked", "--seed": 0, "--adjacency": "add-remove"},
    "run": {**_ALWAYS, "--n": None, "--seed": 0},
    "demo": {},
}
"""The verbs that make a result, and what the record says if an option is left out."""


def differences(record: Mapping[str, Any]) -> list[str]:
    """What a command of canaria says otherwise than the record; the last of several options counts.

    Args:
        record: A result with its command; nothing is known of another program's, or without one.

    Returns:
        A sentence for each difference.

    """
    stored = record["command"]
    try:
        words = shlex.split(stored or "")
    except ValueError:
        return []
    if not words or PurePath(words[0]).name != "canaria":
        return []
    if words[1:2] == [_NO_MORE_OPTIONS]:
        del words[1]
    if _NO_MORE_OPTIONS in words:
        del words[words.index(_NO_MORE_OPTIONS) :]
    defaults = _DEFAULTS.get(" ".join(words[1:2]))
    if defaults is None:
        return [f"command is stored as {shown(stored)}, which makes no result"]
    apart = [part for word in words for part in _split_option(word)]
    given = {word: value for word, value in pairwise(apart) if word in _FIELDS}
    faults: list[str] = []
    if "--family" in given:
        defaults, faults = _of_family(given, defaults, record)
        given = {option: value for option, value in given.items() if option != "--claimed"}
    faults += [
        f"{_FIELDS[option]} is stored as {shown(recorded)}, but the command "
        + (f"says {option} {given[option]}" if option in given else f"does not say {option}")
        for option, value in {**defaults, **given}.items()
        if not _says(value, recorded := record[_FIELDS[option]])
    ]
    one_sided = record["evidence"].get("one_sided", False)
    if words[1] == "bound" and one_sided != (_ONE_SIDED in words):
        said = "does not say" if one_sided else "says"
        faults.append(f"one_sided is stored as {one_sided}, but the command {said} {_ONE_SIDED}")
    return faults


def _split_option(word: str) -> tuple[str, ...]:
    """An option and its value, where they are one word."""
    option, equals, value = word.partition("=")
    return (option, value) if equals and option in _FIELDS else (word,)


def _says(value: object, recorded: object) -> bool:
    """Whether an option, as typed or by default, is what the record holds."""
    if value == recorded:
        return True
    if not isinstance(value, str):
        return False
    try:
        return float(value) == float(str(recorded))
    except ValueError:
        pass
    if isinstance(recorded, dict):
        return _is_family(value, recorded)
    try:
        typed: object = parse_rule(value)
        return isinstance(recorded, str) and typed == rule_of(recorded)
    except InputError:
        return False


def _of_family(
    given: Mapping[str, str], defaults: Mapping[str, object], record: Mapping[str, Any]
) -> tuple[dict[str, object], list[str]]:
    """What the other options are by default beside a family; and a claimed epsilon that is another claim."""
    left = {option: value for option, value in defaults.items() if option != "--claimed"}
    try:
        family, confidence = families.parse_family(given["--family"]), float(record["confidence"])
        if left.get("--rule") is not None:
            left["--rule"] = written(Matched(family, confidence))
        promised = None
        if "--claimed" in given:
            promised = family.at(float(given["--claimed"]), float(record["delta"]))
        recorded = None if record["claim"] is None else claims.from_dict(record["claim"])
        if recorded is None and record["claimed"] is not None:
            recorded = family.at(float(record["claimed"]), float(record["delta"]))
        same = promised == recorded or (
            promised is not None
            and recorded is not None
            and math.isclose(family.parameter(promised), family.parameter(recorded), rel_tol=_CLOSE)
        )
    except (InputError, ValueError, TypeError):
        same = False
    if same:
        return left, []
    said = f"says --claimed {given['--claimed']}" if "--claimed" in given else "does not say --claimed"
    return left, [f"claim is stored as {shown(record['claim'])}, but the command {said}"]


def _is_family(value: str, recorded: dict[str, Any]) -> bool:
    try:
        return families.to_dict(families.parse_family(value)) == recorded
    except InputError:
        return False
