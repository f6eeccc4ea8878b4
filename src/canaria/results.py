"""Results on disk: reading one back and checking it against its own evidence."""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from canaria import _validate
from canaria._validate import InputError, shown
from canaria.bound import Bound, lower_bound
from canaria.evidence import from_dict


class Check(NamedTuple):
    """A stored epsilon, the one its evidence gives, and whether the stored one is no higher."""

    stored: float
    recomputed: float
    holds: bool


def read_result(source: str | Path) -> Bound:
    """Read a result that was written as JSON (`-` is standard input); its bound is not yet checked."""
    name = "standard input" if str(source) == "-" else str(source)
    try:
        text = sys.stdin.read() if str(source) == "-" else Path(source).read_text(encoding="utf-8")
        record = json.loads(text)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} must be the JSON of one result: {shown(str(error))}") from None
    return _bound(record, name)


def check(bound: Bound) -> Check:
    """Recompute a bound from its evidence."""
    again = lower_bound(bound.evidence, bound.delta, bound.confidence)
    slack = 1e-9 * max(1.0, again.epsilon)
    return Check(bound.epsilon, again.epsilon, bound.epsilon <= again.epsilon + slack)


def _bound(record: Any, source: str) -> Bound:
    if not isinstance(record, dict):
        raise InputError(f"{source} must hold a JSON object, got {shown(record)}")
    missing = {"epsilon", "delta", "confidence", "adjacency", "evidence"} - set(record)
    if missing:
        raise InputError(f"{source} must be a result with {', '.join(sorted(missing))}")
    epsilon = record["epsilon"]
    return Bound(
        _validate.nonnegative("epsilon", float("inf") if epsilon == "inf" else epsilon),
        _validate.delta(record["delta"]),
        _validate.confidence(record["confidence"]),
        from_dict(record["evidence"]),
        _validate.adjacency(record["adjacency"]),
    )
