"""Results: kept, read back, checked; and files that somebody has changed, broken or made up."""

import io
import json
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from canaria import Counts, InputError, Result, audit_scores, combine, lower_bound
from canaria._core.files import checksum
from canaria.bounds import limits
from canaria.bounds.bound import Bound
from canaria.bounds.parts import Histogram
from canaria.claims import ApproximateDP, Claim
from canaria.evidence import (
    Bets,
    Budget,
    PublishedCounts,
    Ranking,
    Split,
    UncommittedCounts,
    to_dict,
)
from canaria.evidence.ranking import looks
from canaria.files.read import read_result
from canaria.files.verify import check, read_checked
from canaria.report.section import explain
from canaria.report.terminal import show
from canaria.rules.ranked import SHARES
from canaria.training.canaries.designs import Dirac
from tests.evidence.kinds import ALL
from tests.report.samples import of_every_kind, scored
from tests.training.simulated import simulated

HOSTILE: list[Any] = [
    *(None, True, -1, 0, 1e308, -1e308, 10**400, "inf", "-inf", "NaN", "", "x" * 30_000),
    *([], {}, [[]], [1e308] * 3, {"kind": "Counts"}, "<script>alert(1)</script>", "\x1b[2J", "\ud800"),
]


@pytest.mark.parametrize("result", of_every_kind(), ids=lambda result: result.name)
def test_results_come_back_as_they_were(result: Result, tmp_path: Path) -> None:
    again = read_checked(result.save(tmp_path / "result.json")).result
    assert again.to_dict() == result.to_dict()
    assert str(again) == str(result)


def test_checksum_covers_everything() -> None:
    record = scored().to_dict()
    for name in record:
        changed = {**record, name: "other"}
        assert (checksum(changed) == record["checksum"]) == (name == "checksum")


def written(evidence: dict[str, Any], path: Path, **fields: Any) -> Path:
    """A result file with this evidence and a fitting checksum."""
    record = {**scored().to_dict(), "histogram": None, "ladder": None, "evidence": evidence, **fields}
    path.write_text(json.dumps({**record, "checksum": checksum(record)}))
    return path


def test_a_field_nested_deeper_than_python_reads_is_no_traceback(tmp_path: Path) -> None:
    """Versions of Python differ in how deep they go: it is refused, or does not hold."""
    path = tmp_path / "result.json"
    record = Result(lower_bound(Counts(90, 100, 100))).to_dict()
    path.write_text(json.dumps({**record, "estimate": "@"}).replace('"@"', "[" * 980 + "]" * 980))
    with suppress(InputError):
        assert not check(read_result(path)).holds


@pytest.mark.parametrize("field", [{"level": 1e-300}, {"noise": -0.1}, {"stated_noise": 0.0}])
def test_conformance_that_nothing_could_fail_is_refused(field: dict[str, float], tmp_path: Path) -> None:
    made = simulated(Dirac(200), 0).report(2.0, 1e-5)
    assert made.conformance is not None
    path = replace(made, conformance=replace(made.conformance, **field)).save(tmp_path / "result.json")
    with pytest.raises(InputError, match="of conformance must be"):
        read_result(path)


def test_what_is_clearest_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report of parts that are all alike would walk each of them, again and again."""
    found: list[Claim] = []
    once = Split.clearest

    def counted(self: Split, claim: Claim) -> Any:
        found.append(claim)
        return once(self, claim)

    monkeypatch.setattr(Split, "clearest", counted)
    explain(scored())
    assert len(found) == len(set(found)) == 1


@pytest.mark.parametrize("name", ["conformance", "histogram", "ladder"])
def test_parts_hold_nothing_more(name: str, tmp_path: Path) -> None:
    record = simulated(Dirac(1000), 0).report(claimed=2.0, delta=1e-5).to_dict()
    record[name] = {**record[name], "more": 1}
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**record, "checksum": checksum(record)}))
    with pytest.raises(InputError, match=f"{name} must hold nothing more"):
        read_result(path)


def split(depth: int, width: int = 1) -> dict[str, Any]:
    part: dict[str, Any] = {"kind": "Counts", "correct": 1, "taken": 1, "elements": 1}
    for _ in range(depth):
        part = {"kind": "Split", "parts": [part] * width, "shares": [1 / width / 2] * width}
    return part


def parts(inner: list[dict[str, Any]]) -> dict[str, Any]:
    return {"kind": "Split", "parts": inner, "shares": [0.999 / len(inner)] * len(inner)}


def many_looks(number: int, most: int) -> dict[str, Any]:
    grid = np.unique(np.geomspace(8, most, number).astype(np.int64))
    return {"grid": grid.tolist(), "counts": (grid // 2).tolist(), "elements": most, "committed": most}


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        (split(12), "nested 10 deep"),
        (split(400), "nested 10 deep"),
        (split(2, 120), "at most 10000 parts"),
        (
            {
                "kind": "Ranking",
                "grid": [10**15],
                "counts": [6 * 10**14],
                "elements": 10**15,
                "committed": 10**15,
            },
            r"json would take about \d+ s to recompute \(a Ranking of 1000000000000000 guesses",
        ),
        (
            {"kind": "Ranking", **many_looks(400, 10**8)},
            r"a Ranking of 100000000 guesses, 100000000 elements\); at most 6 s are allowed",
        ),
        (
            parts([to_dict(Budget(1200 + k % 700, 2000, 2000, 10**6)) for k in range(999)]),
            r"about \d\d s to recompute \(a Split of",
        ),
    ],
    ids=["deep", "very deep", "wide", "ranking", "looks", "budgets"],
)
def test_small_files_cannot_ask_for_hours_or_gigabytes(evidence: Any, message: str, tmp_path: Path) -> None:
    for read in (read_result, read_checked):
        with pytest.raises(InputError, match=message):
            read(written(evidence, tmp_path / "result.json", delta=1e-9))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seed": -1}, "seed must be"),
        ({"seed": 2**63 + 1}, "seed must be"),
        ({"name": "x" * 20_001}, "name must be a text of at most 20000 characters"),
        ({"command": "x" * 20_001}, "command must be a text"),
        ({"facts": {f"fact {k}": "" for k in range(201)}}, "facts must be at most 200 texts"),
        ({"facts": {"steps": 3}}, "facts must be a text"),
        ({"versions": {"torch": "x" * 20_001}}, "versions must be a text"),
        ({"claim": ApproximateDP(2e6, delta=0)}, "claimed must be at most 1e"),
    ],
)
def test_a_result_holds_nothing_that_its_reader_refuses(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Result(lower_bound(Counts(9, 10, 10)), **wrong)


def test_rule_and_about_of_a_bound_are_held_to_the_same(tmp_path: Path) -> None:
    for long in ({"rule": "x" * 20_001}, {"about": "x" * 20_001}):
        with pytest.raises(InputError, match="must be a text of at most 20000"):
            Result(lower_bound(Counts(9, 10, 10), **long))
    infinite = Result(lower_bound(Counts(9, 10, 10)), ApproximateDP(np.inf, delta=0), seed=2**63)
    assert check(read_result(infinite.save(tmp_path / "result.json"))).holds


def test_many_audits_together_are_written_and_read(tmp_path: Path) -> None:
    """More than a thousand parts, and bounds of bounds."""
    rng = np.random.default_rng(5)
    many = {f"audit {k}": Counts(int(rng.integers(40, 60)), 100, 1000) for k in range(1200)}
    nested = combine(many).bound
    for _ in range(6):
        nested = combine({"all of them": nested, "one more": Counts(70, 100, 1000)}).bound
    assert check(read_result(Result(nested).save(tmp_path / "result.json"))).holds


def test_what_its_reader_would_refuse_is_not_written(tmp_path: Path) -> None:
    path, rng = tmp_path / "result.json", np.random.default_rng(3)
    one = audit_scores(rng.normal(size=4000), rng.integers(0, 2, 4000), rng=1)
    many = Bound(0.0, 0.0, 0.95, Split((one.evidence,) * 300, (1 / 301,) * 300))
    with pytest.raises(InputError, match=r"would take about \d+ s to recompute \(a Split of"):
        Result(many).save(path)
    deep = one.evidence
    for _ in range(11):
        deep = Split((deep,), (1.0,))
    with pytest.raises(InputError, match="nested 10 deep"):
        Result(replace(one, evidence=deep)).save(path)
    assert not path.exists()


def test_what_takes_longer_than_is_likely_is_refused_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ever better counts, so that each part has to be inverted."""
    rising = parts([to_dict(PublishedCounts(6000 + 10 * k, 10**4, 10**5)) for k in range(99)])
    path = written(rising, tmp_path / "result.json", delta=1e-9)
    assert check(read_result(path)).recomputed > 0
    monkeypatch.setattr(limits, "ALLOWED", 0.3)
    for read in (lambda path: check(read_result(path)), read_checked):
        with pytest.raises(InputError, match=r"a result would take more than 0 s to recompute \(a Split of"):
            read(path)


@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_what_canaria_writes_is_accepted(delta: float, tmp_path: Path) -> None:
    """Twenty rankings of 10^8 canaries together, every budget, and 10^5 bets."""
    rng, grid = np.random.default_rng(0), looks(10**8)
    steps = np.diff(grid, prepend=0)
    ranked = [
        Ranking.of_counts(grid.tolist(), np.cumsum(rng.binomial(steps, 0.501)).tolist(), 10**8, 10**8)
        for _ in range(60)
    ]
    audits = {f"ranked {k}": Split(tuple(ranked[3 * k : 3 * k + 3]), SHARES) for k in range(20)}
    budgets = {f"up to {k}": Budget(round(0.6 * k), k, k, 10**6) for k in (1, 100, 2000, 2001, 10**6)}
    stated = rng.uniform(0.5, 0.9, 10**5)
    for many in (audits, budgets, {"bets": Bets(stated, rng.random(10**5) < stated)}):
        path = Result(combine(many, delta).bound).save(tmp_path / "result.json")
        assert check(read_result(path)).holds


def test_nothing_of_a_file_may_be_missing_or_more(tmp_path: Path) -> None:
    path, record = tmp_path / "result.json", scored().to_dict()
    for name in record:
        path.write_text(json.dumps({key: value for key, value in record.items() if key != name}))
        with pytest.raises(InputError, match=name):
            read_result(path)
    path.write_text(json.dumps({**record, "more": 1}))
    with pytest.raises(InputError, match="and nothing more, got \\['more'\\]"):
        read_result(path)


def test_endless_files_are_not_read_to_the_end() -> None:
    with pytest.raises(InputError, match="must be at most 67108864 bytes"):
        read_result("/dev/zero")


def test_projections_stay_within_what_can_be_counted() -> None:
    section = explain(Result(lower_bound(Counts(6 * 10**14, 10**15, 10**15))))
    assert max(size for size, _, _ in section.by_guesses) <= 10**15


def test_counts_alone_are_held_to_their_own_kind() -> None:
    """At the number of guesses that was taken, the curve shows the bound itself."""
    for evidence in (Counts(80, 100, 1000), PublishedCounts(80, 100, 1000), UncommittedCounts(80, 100, 1000)):
        bound = lower_bound(evidence, 1e-5)
        points = {size: epsilon for size, _, epsilon in explain(Result(bound)).by_guesses}
        assert points[100] == bound.epsilon
    adaptive = lower_bound(Budget(80, 100, 100, 64_000), 1e-5)
    points = {size: epsilon for size, _, epsilon in explain(Result(adaptive)).by_guesses}
    assert points[100] <= adaptive.epsilon


def test_truncated_results_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    text = scored().to_json()
    for length in range(0, len(text), 97):
        path.write_text(text[:length])
        with pytest.raises(InputError, match="must be the JSON of one result"):
            read_result(path)


@pytest.mark.parametrize("version", [0, 2, "1", None, [1]], ids=str)
def test_other_formats_are_refused(version: object, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**scored().to_dict(), "format": version, "canaria": "9.0"}))
    with pytest.raises(
        InputError, match=r"must be a result of format 1, got .* \(written by canaria '9.0'\)"
    ):
        read_result(path)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a record, of lists only the first two."""
    yield path
    inside = (
        value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    )
    for key, part in inside:
        yield from places(part, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


@pytest.mark.parametrize("share", [0.03, pytest.param(1.0, marks=pytest.mark.full)], ids=["some", "all"])
def test_made_up_results_are_refused_or_harmless(share: float, tmp_path: Path) -> None:
    """Every value replaced by every hostile one, the checksum made to fit: an InputError, or it can be shown."""
    path, rng = tmp_path / "result.json", np.random.default_rng(0)
    outcomes = {"shown": 0, "refused": 0}
    for result in (of_every_kind()[4], of_every_kind()[9]):
        record = json.loads(result.to_json())
        for place, value in product(places(record), HOSTILE):
            if rng.random() > share:
                continue
            made = changed(record, place, value)
            if isinstance(made, dict):
                made["checksum"] = checksum(made)
            path.write_text(json.dumps(made))
            outcomes[read_and_show(path)] += 1
    assert outcomes["refused"] > 1000 * share
    assert outcomes["shown"] > 100 * share


def read_and_show(path: Path) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            found = read_checked(path).result
        except InputError as error:
            return "crashed" if "\n" in str(error) else "refused"
    assert str(found).replace("\n", "").isprintable()
    show([explain(found)], Console(file=io.StringIO()))
    return "shown"


@pytest.mark.parametrize("evidence", ALL, ids=lambda evidence: f"{type(evidence).__name__}-{evidence.method}")
def test_every_kind_explains_itself(evidence: Any) -> None:
    assert evidence.fixed()
    progress = evidence.progress(ApproximateDP(0.1, delta=0))
    assert (np.diff(progress.taken) > 0).all()
    assert (progress.correct <= progress.taken).all()
    section = explain(Result(lower_bound(evidence, 1e-6)))
    assert dict(section.by_confidence)[0.95] == section.result.bound.epsilon
    assert len(section.by_guesses) > 1


def test_histogram_counts_every_score_once() -> None:
    rng = np.random.default_rng(0)
    scores, bits = rng.standard_cauchy(5000), rng.integers(0, 2, 5000)
    histogram = Histogram.of(scores, bits)
    assert histogram is not None
    assert sum(histogram.included) == bits.sum()
    assert sum(histogram.excluded) == 5000 - bits.sum()
    assert Histogram.of([1.0, 1.0], [0, 1]) is None
    assert Histogram.of([1e308, -1e308], [0, 1]) is None
    infinite = Histogram.of([-np.inf, 0.0, 1.0, np.inf], [0, 0, 1, 1], bins=2)
    assert infinite == Histogram((0.0, 0.5, 1.0), (0, 2), (2, 0))


@pytest.mark.parametrize("name", ["absent/result.json", ".", "", "file/result.json", "x" * 300], ids=len)
def test_saving_where_nothing_can_be_written(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(InputError, match="cannot be written"):
        scored().save(tmp_path / name)
    assert (tmp_path / "file").read_text() == "kept"


def test_saving_through_a_link_and_into_a_device(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    scored().save(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    read_checked(tmp_path / "real.json")
    scored().save("/dev/null")
    assert Path("/dev/null").is_char_device()


def test_claims_are_checked() -> None:
    with pytest.raises(InputError, match="epsilon must be at least 0"):
        replace(scored(), claim=ApproximateDP(-1.0, 1e-5))
    with pytest.raises(InputError, match=r"the bound is at delta = 1e-05, but the claim is at delta = 0\.02"):
        replace(scored(), claim=ApproximateDP(1.0, 0.02))


def test_a_run_that_is_not_as_stated_is_told_first() -> None:
    halved = simulated(Dirac(1000), 0, noise=0.5).report(claimed=2.0, delta=1e-5)
    assert not halved.refuted
    assert halved.alarming
    assert "is not refuted" in halved.verdict
    assert halved.verdict.startswith("Training was NOT what was stated: the claim is ε = 2 at δ = 1e-05")
    assert "NOT match what was stated: noise multiplier 1.2" in str(halved).splitlines()[1]
    assert not simulated(Dirac(1000), 0).report(claimed=2.0, delta=1e-5).alarming


def test_a_split_of_splits_is_explained_by_its_clearest_part() -> None:
    """As `combine` makes of two rankings: the curve is that of the ranking, and adaptive guesses stay adaptive."""
    ranked = scored().bound
    both = combine({"one": ranked, "other": Counts(55, 100, 500)}, 1e-5)
    assert len(explain(Result(both.bound)).by_guesses) == len(explain(Result(ranked)).by_guesses)
    inner = Split((Bets(None, [True] * 80 + [False] * 20, 500),), (1.0,))
    section = explain(Result(lower_bound(Split((inner,), (1.0,)), 1e-5)))
    alone = lower_bound(UncommittedCounts(80, 100, 500), 1e-5).epsilon
    assert section.by_guesses[-1] == (100, 80, alone)
