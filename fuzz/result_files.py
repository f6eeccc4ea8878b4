"""Result files: any bytes, and results with fields changed; what holds is explained."""

import copy
import io
import json
import math
import sys
from typing import Any, Final

import numpy as np
from rich.console import Console

from canaria._core.errors import InputError
from canaria._core.files import checksum
from canaria.bounds.bound import lower_bound
from canaria.bounds.conformance import Conformance
from canaria.bounds.parts import Histogram, Ladder
from canaria.bounds.result import Result
from canaria.claims import ApproximateDP, GaussianDP, families
from canaria.evidence import Evidence, MatchedCounts
from canaria.files.read import read_result
from canaria.files.verify import check, read_checked
from canaria.report.page import page
from canaria.report.section import explain
from canaria.report.terminal import show
from fuzz import draw, harness

_SIZES: Final = draw.Sizes(hits=30, counts=10**9, hedged=30)
_EXPLAINED_UP_TO: Final = 10**4
_EXPLAINED: Final = 3
_PAGES: Final = 15
_LARGEST: Final = 1e300
_VALUES: Final[list[Any]] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    0.5,
    1e-300,
    1e308,
    -0.0,
    10**15,
    2**31,
    10**400,
    "",
    "inf",
    "nan",
    "\x1b[2J",
    "<script>",
    "\u202e",
    "x" * 300,
    [],
    {},
    [1],
    [[]],
    {"kind": "Counts"},
    {"kind": "gaussian"},
    {"kind": "dpsgd", "steps": 10**9, "sample_rate": 0.01},
    {"kind": "GaussianDP", "mu": 1.0, "adjacency": "unspecified"},
    {
        "kind": "Composed",
        "parts": [{"kind": "DpSgd", "noise_multiplier": 0.01, "sample_rate": 0.5, "steps": 9}],
    },
    [0.5, "inf"],
    "1101",
]
_KINDS: Final = [
    "Counts",
    "Budget",
    "Ranking",
    "Weighted",
    "Bets",
    "Split",
    "PublishedCounts",
    "MatchedCounts",
    "Nothing",
]


def one(data: bytes) -> None:
    """Read, recompute, and explain what holds."""
    source = draw.Source(data)
    with harness.not_counted():
        text = _file(source)
    ways = [source.ConsumeIntInRange(0, most) for most in (1, _EXPLAINED, _PAGES)]
    before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(text))
    try:
        if ways[0] == 0:
            stored = read_result("-")
            json.dumps(check(stored).to_dict(), allow_nan=False)
            harness.check(lower_bound(stored.result.bound.evidence, 1e-5))
        else:
            result, record = read_checked("-")
            harness.check(result.bound)
            if ways[1] == 0 and result.bound.evidence.elements <= _EXPLAINED_UP_TO:
                _explain(result, record["checksum"], drawn=ways[2] == 0)
    except InputError as error:
        harness.check_refusal(error)
    finally:
        sys.stdin = before


def _explain(result: Result, digest: str, drawn: bool) -> None:
    section = explain(result, digest)
    written = io.StringIO()
    show([section], Console(file=written, width=100))
    json.dumps(section.to_dict(), allow_nan=False)
    text = written.getvalue() + (page([section]) if drawn else "") + str(result)
    if "\x1b[2J" in text or ("<script>" in result.name and drawn and "<script></" in text):
        raise AssertionError("text of a file got through")


def _file(source: draw.Source) -> bytes:
    """Any bytes; evidence of any form; or a sound result, changed in a few places."""
    way = source.ConsumeIntInRange(0, 7)
    if way == 0:
        return source.ConsumeBytes(harness.MOST_BYTES)
    record = _record(source)
    if way == 1:
        record["evidence"] = {"kind": source.PickValueInList(_KINDS), **_fields(source)}
    for _ in range(source.ConsumeIntInRange(0, 3)):
        _change(source, record)
    if source.ConsumeIntInRange(0, 7) > 0:
        record["checksum"] = checksum(record)
    return json.dumps(record).encode()


def _of_family(source: draw.Source) -> dict[str, Any]:
    """A sound result of an audit against Gaussian claims."""
    hits = [source.ConsumeBool() for _ in range(source.ConsumeIntInRange(1, 60))]
    evidence = MatchedCounts(families.Gaussian(), hits, independent=source.ConsumeBool())
    bound = lower_bound(
        evidence, 1e-5, rule=source.PickValueInList([None, "Matched('gaussian', confidence=0.95)"])
    )
    mu = source.PickValueInList([None, 0.0, 0.1, 2.0, 1e6])
    return copy.deepcopy(bound.result(None if mu is None else GaussianDP(mu)).to_dict())


def _record(source: draw.Source) -> dict[str, Any]:
    if source.ConsumeIntInRange(0, 5) == 0:
        return _of_family(source)
    evidence, delta = draw.evidence(source, _SIZES), draw.delta(source)
    bound = lower_bound(
        evidence, delta, max(draw.confidence(source), 0.05), adjacency="replace", rule="Ranked()"
    )
    claimed = source.PickValueInList([None, 0.0, 1.0, 50.0, math.inf])
    plain = source.ConsumeBool()
    ladder = None if plain or claimed is None else Ladder.of_scores(claimed, bound.estimate, bound.epsilon)
    claim = None if claimed is None else ApproximateDP(claimed, delta)
    told = {} if plain else {"note": "told", "histogram": "of scores"}
    part = (
        Conformance(p_value=0.5, noise=1.0, stated_noise=1.0, weight=1.0, parts={"noise": 0.5})
        if source.ConsumeBool()
        else None
    )
    return copy.deepcopy(
        Result(
            bound,
            claim,
            name="audit",
            histogram=_histogram(evidence),
            ladder=ladder,
            conformance=part,
            contradictions=tuple(told),
            facts=told,
            seed=3,
        ).to_dict()
    )


def _histogram(evidence: Evidence) -> Histogram | None:
    if evidence.elements > 1000:
        return None
    return Histogram.of(np.arange(evidence.elements), np.arange(evidence.elements) % 2, bins=4)


def _fields(source: draw.Source) -> dict[str, Any]:
    names = [
        "correct",
        "taken",
        "elements",
        "budget",
        "hits",
        "grid",
        "counts",
        "weights",
        "losses",
        "confidences",
    ]
    names += ["parts", "shares", "family", "confidence", "independent"]
    chosen = {source.PickValueInList(names) for _ in range(source.ConsumeIntInRange(0, 5))}
    return {name: copy.deepcopy(source.PickValueInList(_VALUES)) for name in sorted(chosen)}


def _change(source: draw.Source, record: dict[str, Any]) -> None:
    """Change one place: replace, take away, or add."""
    place: Any = record
    for _ in range(source.ConsumeIntInRange(0, 4)):
        inner = [
            one
            for one in (place.values() if isinstance(place, dict) else place)
            if one and isinstance(one, dict | list)
        ]
        if not inner:
            break
        place = source.PickValueInList(inner)
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    value, way = copy.deepcopy(source.PickValueInList(_VALUES)), source.ConsumeIntInRange(0, 5)
    if not keys:
        return
    key = source.PickValueInList(keys)
    if way == 0:
        del place[key]
    elif way == 1 and isinstance(place, dict):
        place["more"] = value
    elif way == 2 and isinstance(place[key], int | float) and abs(place[key]) < _LARGEST:
        place[key] = place[key] * source.PickValueInList([2, 0.5, -1, 1 + 1e-9]) + source.PickValueInList(
            [0, 1, -1]
        )
    else:
        place[key] = value


if __name__ == "__main__":
    seeds = [np.random.default_rng(seed).bytes(300) for seed in range(80)]
    kept = Result(
        lower_bound(Evidence.from_dict({"kind": "Counts", "correct": 7, "taken": 9, "elements": 9}))
    ).to_json()
    harness.run("result_files", one, [*seeds, bytes(1) + kept.encode()])
