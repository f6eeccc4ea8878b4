"""Results: kept, read back, checked; and files that somebody has changed, broken or made up."""

import io
import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from canaria import Counts, InputError, Result, Split, lower_bound
from canaria.evidence import Explained
from canaria.mechanisms import DpSgd
from canaria.report.section import explain
from canaria.report.terminal import show
from canaria.result_files import check, read_checked, read_result
from canaria.results import Histogram, Ladder, Step, checksum
from canaria.theory import efficacy, ladder_of_dpsgd
from tests.evidence.test_contract import ALL
from tests.report.test_page import of_every_kind, scored

HOSTILE: list[Any] = [
    *(None, True, -1, 0, 1e308, -1e308, 10**400, "inf", "-inf", "NaN", "", "x" * 30_000),
    *([], {}, [[]], [1e308] * 3, {"kind": "Counts"}, "<script>alert(1)</script>", "\x1b[2J", "\ud800"),
]


@pytest.mark.parametrize("result", of_every_kind(), ids=lambda result: result.name)
def test_results_come_back_as_they_were(result: Result, tmp_path: Path) -> None:
    again = read_checked(result.save(tmp_path / "result.json"))
    assert again.to_dict() == result.to_dict()
    assert str(again) == str(result)


def test_checksum_covers_everything() -> None:
    record = scored().to_dict()
    for name in record:
        changed = {**record, name: "other"}
        assert (checksum(changed) == record["checksum"]) == (name == "checksum")


def test_edited_results_do_not_hold(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    record = scored().to_dict()
    for name, value, words in (
        ("epsilon", 9.0, "epsilon is stored as 9, but its evidence gives"),
        ("correct", 3, "correct is stored as 3"),
        ("refuted", True, "refuted is stored as True"),
        ("assumptions", [], "assumptions is stored as"),
        ("name", "other", "checksum does not fit"),
    ):
        path.write_text(json.dumps({**record, name: value}))
        assert any(words in fault for fault in check(read_result(path)).faults)
        with pytest.raises(InputError, match="does not hold"):
            read_checked(path)


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


@pytest.mark.parametrize("share", [0.05, pytest.param(1.0, marks=pytest.mark.full)], ids=["some", "all"])
def test_made_up_results_are_refused_or_harmless(share: float, tmp_path: Path) -> None:
    """Every value replaced by every hostile one, the checksum made to fit: an InputError, or it can be shown."""
    path, rng = tmp_path / "result.json", np.random.default_rng(0)
    outcomes = {"shown": 0, "refused": 0}
    for result in (of_every_kind()[3], of_every_kind()[8]):
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
    assert outcomes["shown"] > 200 * share


def read_and_show(path: Path) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            found = read_checked(path)
        except InputError as error:
            return "crashed" if "\n" in str(error) else "refused"
    assert str(found).replace("\n", "").isprintable()
    show(explain(found), Console(file=io.StringIO()))
    return "shown"


@pytest.mark.parametrize("evidence", ALL, ids=lambda evidence: f"{type(evidence).__name__}-{evidence.method}")
def test_every_kind_explains_itself(evidence: Any) -> None:
    assert isinstance(evidence, Explained)
    assert evidence.fixed
    progress = evidence.progress(0.1)
    assert (np.diff(progress.taken) > 0).all()
    assert (progress.correct <= progress.taken).all()
    section = explain(Result(lower_bound(evidence, 1e-6)))
    assert dict(section.by_confidence)[0.95] == section.result.bound.epsilon
    assert len(section.by_guesses) > 1


def test_explaining_foreign_evidence_in_a_split() -> None:
    class Foreign:
        method, inversion, assumptions, elements = "foreign", "bisection", (), 100

        def p_value(self, epsilon: float, delta: float = 0.0) -> float:
            return Counts(80, 100, 100).p_value(epsilon, delta)

        def tally(self, epsilon: float) -> Any:
            return Counts(80, 100, 100).tally(epsilon)

        def to_dict(self) -> dict[str, Any]:
            return {}

    section = explain(Result(lower_bound(Foreign())))  # type: ignore[arg-type]
    assert section.fixed is None
    assert section.projected
    assert explain(Result(lower_bound(Split((Foreign(),), (1.0,))))).projected  # type: ignore[arg-type]


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


class TestLadder:
    def test_of_dpsgd_meets_the_exact_efficacy(self) -> None:
        """One step, everyone in it: N(bit, sigma^2), whose efficacy `LocalGaussian` knows; 4 standard errors."""
        from canaria.mechanisms import LocalGaussian

        mechanism = DpSgd(dimension=200, steps=1, sample_rate=1.0, sigma=1.0)
        bound = lower_bound(Counts(130, 200, 200))
        ladder = ladder_of_dpsgd(mechanism, 200, 5.0, bound)
        assert ladder is not None
        exact = efficacy(LocalGaussian(2.0), 200, 200, trials=4000, rng=1)
        levels = {step.gap: step.epsilon for step in ladder.steps}
        assert levels["elements"] == pytest.approx(exact.epsilon, abs=0.1)
        assert levels["outputs"] == pytest.approx(levels["interference"])

    def test_knowing_others_helps_where_canaries_share_a_coordinate(self) -> None:
        mechanism = DpSgd(dimension=100, steps=1, sample_rate=1.0, sigma=0.7)
        ladder = ladder_of_dpsgd(mechanism, 400, 20.0, lower_bound(Counts(300, 400, 400)))
        assert ladder is not None
        levels = [ladder.epsilon, *(step.epsilon for step in ladder.steps)]
        assert (np.diff(levels)[:-1] <= 0).all()
        assert levels[1] - levels[2] > 0.5

    def test_large_audits_are_sampled(self) -> None:
        mechanism = DpSgd(dimension=10**6, steps=1000, sample_rate=0.01, sigma=1.0)
        ladder = ladder_of_dpsgd(mechanism, 10**6, 8.0, lower_bound(Counts(700, 1000, 10**6)))
        assert ladder is not None
        assert "1 simulated runs with the stated noise, 10000 canaries each" in ladder.how

    def test_is_not_drawn_from_a_refuted_claim_or_to_infinity(self) -> None:
        mechanism = DpSgd(dimension=10, steps=1, sample_rate=1.0, sigma=1.0)
        bound = lower_bound(Counts(95, 100, 100))
        assert ladder_of_dpsgd(mechanism, 100, 1.0, bound) is None
        assert ladder_of_dpsgd(mechanism, 100, float("inf"), bound) is None
        with pytest.raises(InputError, match="must be finite"):
            Ladder("top", 1.0, (Step("gap", float("inf")),), "")


def test_saving_where_nothing_can_be_written() -> None:
    with pytest.raises(InputError, match="cannot be written"):
        scored().save("/nowhere/result.json")


def test_claims_are_checked() -> None:
    with pytest.raises(InputError, match="claimed must be at least 0"):
        replace(scored(), claimed=-1.0)
