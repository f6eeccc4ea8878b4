"""Evidence of every kind: made, held against a claim, bounded, written and read back."""

import json
from typing import Any, Final

import numpy as np

from canaria._core.errors import InputError
from canaria.bounds.bound import lower_bound
from canaria.claims import ApproximateDP
from canaria.evidence import (
    Bets,
    Budget,
    Counts,
    Evidence,
    PublishedCounts,
    Ranking,
    Split,
    UncommittedCounts,
    Weighted,
    to_dict,
)
from fuzz import draw, harness

_SIZES: Final = draw.Sizes()
_MAKERS: Final[dict[Any, int]] = {
    Counts: 3,
    PublishedCounts: 3,
    UncommittedCounts: 3,
    Budget: 4,
    Ranking: 3,
    Bets: 3,
    Split: 2,
}
"""What makes evidence, and of how many arguments."""
_FIELDS: Final = {
    "Ranking": ("grid", "counts", "elements"),
    "Weighted": ("hits", "weights", "losses", "elements"),
    "Bets": ("confidences", "hits", "elements"),
}
"""Kinds that read other values than their constructor takes."""


def one(data: bytes) -> None:
    """Most inputs make sense; some are any values at all, which must be refused in one line."""
    source = draw.Source(data)
    confidence, delta, claim = draw.confidence(source), draw.delta(source), draw.epsilon(source)
    try:
        made = _anything(source) if source.ConsumeIntInRange(0, 5) == 0 else draw.evidence(source, _SIZES)
        if source.ConsumeIntInRange(0, 19) == 0:
            confidence, delta, claim = (source.PickValueInList(list(draw.ODD)) for _ in range(3))
        p_value = made.p_value(ApproximateDP(claim, delta))
        if not 0 <= p_value <= 1:
            raise AssertionError(f"{p_value=} {claim=} {delta=} {made}")
        harness.check(lower_bound(made, delta, draw.patient(made, confidence)))
        written = to_dict(made)
        assert to_dict(Evidence.from_dict(json.loads(json.dumps(written, allow_nan=False)))) == written
    except InputError as error:
        harness.check_refusal(error)


def _anything(source: draw.Source) -> Evidence:
    """A constructor given what it may not expect."""
    way = source.ConsumeIntInRange(0, 9)
    if way == 0:
        kind = source.PickValueInList(list(_FIELDS))
        return Evidence.from_dict({"kind": kind, **{field: _value(source) for field in _FIELDS[kind]}})
    if way == 1:
        hits, weights, losses, elements = (_value(source) for _ in range(4))
        return Weighted(hits, weights=weights, losses=losses, elements=elements)
    make = source.PickValueInList(list(_MAKERS))
    return make(*(_value(source) for _ in range(_MAKERS[make])))


def _value(source: draw.Source) -> Any:
    way = source.ConsumeIntInRange(0, 5)
    if way == 0:
        return source.PickValueInList(list(draw.ODD))
    if way == 1:
        return source.ConsumeIntInRange(0, 60)
    if way == 2:
        return np.array(source.ConsumeIntListInRange(source.ConsumeIntInRange(0, 8), -1, 2))
    if way == 3:
        return [source.PickValueInList(list(draw.ODD)) for _ in range(source.ConsumeIntInRange(0, 4))]
    if way == 4:
        return "".join(
            source.PickValueInList(["0", "1", "1"]) for _ in range(source.ConsumeIntInRange(0, 20))
        )
    return source.ConsumeFloatList(source.ConsumeIntInRange(0, 6))


if __name__ == "__main__":
    seeds = (np.random.default_rng(seed).bytes(200) for seed in range(100))
    harness.run("evidence", one, seeds)
