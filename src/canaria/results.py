"""Results on disk: reading one back and checking it against its own evidence."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from canaria import _validate
from canaria._validate import InputError, shown
from canaria.bound import Bound, lower_bound, plain
from canaria.evidence import Counts, Evidence, Ranking, Split, from_dict
from canaria.evidence.ranking import looks
from canaria.rules import Ranked
from canaria.rules.ranked import SHARES


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
    """A result as it was stored: the bound, not yet checked, and the whole record."""

    bound: Bound
    record: dict[str, Any]


def read_result(source: str | Path) -> Stored:
    """Read a result that was written as JSON (`-` is standard input); nothing in it is believed yet."""
    name = "standard input" if str(source) == "-" else str(source)
    try:
        text = sys.stdin.read() if str(source) == "-" else Path(source).read_text(encoding="utf-8")
        record = json.loads(text, object_pairs_hook=_unique)
        return Stored(_bound(record, name), record)
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}") from None
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} must be the JSON of one result: {shown(str(error))}") from None


def check(stored: Stored) -> Check:
    """Recompute a bound from its evidence, and all that the record says about it."""
    kept = stored.bound
    again = lower_bound(kept.evidence, kept.delta, kept.confidence, adjacency=kept.adjacency, rule=kept.rule)
    faults = []
    if kept.epsilon > again.epsilon + 1e-8 * max(1.0, again.epsilon):
        faults.append(f"epsilon is stored as {kept.epsilon:g}, but its evidence gives {again.epsilon:g}")
    fresh = replace(again, epsilon=kept.epsilon).to_dict()
    claimed = stored.record.get("claimed")
    fresh["refuted"] = None if claimed is None else bool(kept.epsilon > float(claimed))
    for name in ("correct", "taken", "elements", "estimate", "method", "assumptions", "grid", "refuted"):
        if stored.record.get(name, fresh[name]) != fresh[name]:
            told, true = shown(stored.record[name]), shown(fresh[name])
            faults.append(f"{name} is stored as {told}, but its evidence says {true}")
    if kept.rule == repr(Ranked()) and not _is_ranked(kept.evidence):
        faults.append(f"rule is stored as {kept.rule}, but the evidence looks at other numbers of guesses")
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


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise InputError(f"a result must name everything once, got {shown(sorted(names))}")
    return dict(pairs)


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
        record["rule"] if isinstance(record.get("rule"), str) else None,
        record["about"] if isinstance(record.get("about"), str) else None,
    )
