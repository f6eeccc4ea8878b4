"""The benchmark against peers: what it asks, and what it concludes."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from canaria import audit_scores

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
TRUTH_ZERO = {"case": "rr-0", "about": "nothing", "epsilon": 0.0, "delta": 0.0, "n": 100, "audits": 100}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from peers import worker
    from side_by_side import field, findings, page, validity

    yield SimpleNamespace(worker=worker, field=field, findings=findings, page=page, validity=validity)
    for name in [name for name in sys.modules if name.split(".")[0] in ("peers", "side_by_side")]:
        del sys.modules[name]


@pytest.fixture
def games(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    bits = 2 * rng.integers(0, 2, (5, 200), dtype=np.int8) - np.int8(1)
    np.savez(tmp_path / "games.npz", scores=rng.normal(2.0 * (bits > 0)), bits=bits)
    return str(tmp_path / "games.npz")


def task(file: str, **changes: Any) -> dict[str, Any]:
    return {
        "auditor": "x",
        "file": file,
        "delta": 1e-5,
        "confidence": 0.95,
        "limit": 5.0,
        "seconds": 60.0,
    } | changes


def test_ours_is_asked_in_a_process_of_its_own(bench: SimpleNamespace, games: str) -> None:
    asked = {key: value for key, value in task(games).items() if key != "auditor"}
    (answer,) = bench.field.Field({}, {}).asked(bench.field.RANKED, [asked])
    held = np.load(games)
    pairs = zip(held["scores"], held["bits"], strict=True)
    assert answer["bounds"] == [audit_scores(*pair, 1e-5, 0.95, rng=0).epsilon for pair in pairs]
    assert (len(answer["seconds"]), answer["error"]) == (5, "")


def test_an_auditor_that_fails_or_takes_too_long(bench: SimpleNamespace, games: str) -> None:
    answers = iter([0.5, 0.6])
    failing = bench.worker.answered(lambda *_: next(answers), task(games), {})
    assert (failing["bounds"], failing["error"]) == ([0.5, 0.6], "StopIteration: ")
    stopped = bench.worker.answered(lambda *_: 1.0, task(games, seconds=0.0), {})
    assert stopped["bounds"] == [1.0]
    never = bench.worker.answered(lambda *_: 1.0, task(games), {"x": 200})
    assert (never["bounds"], never["error"]) == ([], "over 5 s")


def test_a_false_claim_is_one_above_the_truth(bench: SimpleNamespace) -> None:
    case = bench.validity.PLAYED[1]
    assert case.epsilon == 1
    cell = bench.validity._cell(bench.field.RANKED, case, {"bounds": [0.9, 1.0, 1.1], "error": ""})
    assert (cell["false"], cell["audits"], cell["flagged"]) == (1, 3, False)


def cell(bounds: list[float]) -> dict[str, Any]:
    return {"bounds": bounds, "seconds": [0.1] * len(bounds), "error": ""}


def rate(flagged: bool, low: float = 0.0) -> dict[str, Any]:
    return {**TRUTH_ZERO, "rate": low, "low": low, "flagged": flagged}


def known() -> dict[str, Any]:
    rows = {
        ("canaria", "ranked", False): [1.0, 1.2, 1.1, 1.1],
        ("canaria", "best_k", False): [1.4, 1.4, 1.4, 1.4],
        ("jaxprivacy", "honest", False): [0.5, 0.9, 0.6, 0.8],
        ("jaxprivacy", "bold", False): [2.0, 2.0, 2.0, 2.0],
        ("other", "gdp", True): [3.0, 3.0, 3.0, 3.0],
        ("other", "slow", False): [],
    }
    settings = [{"name": f"n = {n}", "truth": 2.0, "n": n, "audits": 4, "shift": 1.0} for n in (1000, 5000)]
    times = {"1000": 0.001, "10000": 0.002, "100000": 0.02}
    speed = {"what": "canaria: ranked", "seconds": times, "why": "", "growth": 1.0}
    slower = {**speed, "what": "jaxprivacy: honest", "seconds": {"100000": 0.05}}
    counts = [{**speed, "what": name, "seconds": {"100000": taken}} for name, taken in COUNTED.items()]
    return {
        "tightness": {
            "settings": settings,
            "answers": [
                {"peer": peer, "name": name, "gaussian": gaussian, "cells": [cell(bounds)] * 2}
                for (peer, name, gaussian), bounds in rows.items()
            ],
        },
        "validity": {
            f"{peer}: {name}": [rate(name == "bold", 0.2)] for peer, name, _ in rows if name != "best_k"
        },
        "second look": {},
        "rest": [
            {
                "n": 1000,
                "shift": 1.0,
                "ours": 1.0,
                "one order": 1.1,
                "best number": 1.2,
                "planned": 1.3,
                "hindsight": 1.4,
            }
        ],
        "speed": {
            "counts": counts,
            "scores": {"1": [speed, slower]},
            "dpsgd": [{"what": "sums", "n": 10, "theirs": 1.0, "ours": 0.1}],
            "memory": 0.5,
        },
    }


COUNTED = {"canaria: `Counts`": 0.001, "published loop": 20.0, "jax-privacy: `epsilon_one_run`": 0.05}


def test_only_methods_that_hold_are_rivals(bench: SimpleNamespace) -> None:
    found = bench.findings.Findings(known())
    best = found.best_peer(0)
    assert str(best[0]) == "jaxprivacy: honest"
    assert found.ratio(0) == pytest.approx(1.1 / 0.7)
    assert found.of_hindsight(0) == pytest.approx(1.1 / 1.4)
    assert [str(one) for one in found.rivals()] == ["jaxprivacy: honest"]
    data = known()
    data["validity"]["jaxprivacy: bold"] = [rate(False)]
    assert [str(one) for one in bench.findings.Findings(data).rivals()] == ["jaxprivacy: bold"]
    data["second look"] = {"jaxprivacy: bold": [rate(True, 0.1)]}
    assert [str(one) for one in bench.findings.Findings(data).rivals()] == ["jaxprivacy: honest"]


def test_missed_targets_come_first_and_training_stays(
    bench: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "RESULTS.md"
    page.write_text("old\n<!-- training -->\nkept\n<!-- training -->\n\nLoRA\n")
    monkeypatch.setattr(bench.page, "PAGE", page)
    data = json.loads(json.dumps(known()))
    data["tightness"]["settings"] += [
        {**data["tightness"]["settings"][0], "shift": shift} for shift in (2.0, 3.0)
    ]
    for row in data["tightness"]["answers"]:
        row["cells"] = row["cells"][:1] * 4
    bench.page.write(bench.findings.Findings(data), ["today"], {"peer": "cannot be installed: no"})
    text = page.read_text()
    assert text.startswith("# Measured\n\nTargets that are **missed**:\n\n- ")
    missed = text[: text.index("Targets that are met")]
    assert "100 times as fast as jax-privacy: **50 times**" in missed
    assert "published" not in missed
    assert "20,000 times" in text
    assert "**peer is missing**: cannot be installed: no" in text
    assert text.endswith("<!-- training -->\nkept\n<!-- training -->\n\nLoRA\n")
    assert "~~jaxprivacy: bold~~" in text
