"""How often each auditor claims more than the truth: the laboratory's cases, asked in its own environment."""

import os
import tempfile
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from canaria.lab.validity import CASES, Case, Cell
from canaria.lab.validity.cases import randomised_response
from side_by_side.field import RANKED, Answer, Auditor, Field, Task

CONFIDENCE = 0.95
PLAYED = (
    CASES["rr-0-1000"],
    Case("rr-1-1000", "randomized response, 1,000", randomised_response(1.0), 1.0, n=1000),
    Case("rr-3-2000", "randomized response, 2,000", randomised_response(3.0), 3.0, n=2000),
    *(CASES[name] for name in ("rr-0", "ties-0", "laplace-2", "one-sided-1")),
    *(CASES[name] for name in ("extremal-half", "all-or-nothing-0", "leaky-1")),
)
"""Truths 0 and 1 first, as the table shows; then what else tells a valid auditor from another."""
MOST, LIMIT, SECONDS = 4000, 20.0, 4.0
LONGER, SUSPECTED = 15, 3
"""How much more time a rival, on whom the comparison rests, gets, and in how many cases."""


def measured(field: Field) -> dict[str, Any]:
    """Rates of false claims, from as many audits as the time allows, by auditor and case."""
    with tempfile.TemporaryDirectory() as folder:
        tasks = [_task(case, Path(folder), SECONDS) for case in PLAYED]
        found = field.all_asked("validity", [RANKED, *field.auditors()], tasks)
    return {
        str(auditor): [_cell(auditor, *pair) for pair in zip(PLAYED, answers, strict=True)]
        for auditor, answers in found.items()
    }


def second_look(field: Field, first: dict[str, Any], rivals: Iterable[Auditor]) -> dict[str, Any]:
    """The same with more audits in the most suspicious cases, up to the first that tells."""
    chosen = list(rivals)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        tasks = [_task(case, Path(folder), LONGER * SECONDS) for case in PLAYED]

        def look(rival: Auditor) -> list[dict[str, Any]]:
            cells = list(first[str(rival)])
            for place in sorted(range(len(PLAYED)), key=lambda place: cells[place]["chance"])[:SUSPECTED]:
                cells[place] = _cell(rival, PLAYED[place], field.asked(rival, [tasks[place]])[0])
                print(f"second look: {rival}, {PLAYED[place].name}", flush=True)
                if cells[place]["flagged"]:
                    break
            return cells

        return {str(rival): cells for rival, cells in zip(chosen, pool.map(look, chosen), strict=True)}


def _task(case: Case, folder: Path, seconds: float) -> Task:
    file = folder / f"{case.name}.npz"
    if not file.exists():
        rng = np.random.default_rng([11, zlib.crc32(case.name.encode())])
        games = case.draw((MOST, case.n), rng, 1 - CONFIDENCE)
        np.savez(file, scores=games.scores, bits=games.bits)
    limits = {"limit": LIMIT, "seconds": seconds}
    return {"file": str(file), "delta": case.delta, "confidence": CONFIDENCE, **limits}


def _cell(auditor: Auditor, case: Case, answer: Answer) -> dict[str, Any]:
    bounds = np.array(answer["bounds"])
    false = int((bounds > case.epsilon * (1 + 1e-9) + 1e-9).sum())
    mean = float(bounds.mean()) if len(bounds) else 0.0
    found = Cell(
        auditor=str(auditor),
        control=False,
        case=case,
        confidence=CONFIDENCE,
        audits=len(bounds),
        false=false,
        errors=0,
        mean=mean,
        claims=0,
        refuted=0,
        error=answer["error"] or None,
    )
    return {**found.to_dict(), "n": case.n}
