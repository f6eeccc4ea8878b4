"""Bounds do not move unless they are meant to: 1,844 inputs and 20 trainings, with the numbers they gave."""

import json
import math
from typing import Any

import pytest

from tests.golden.numbers import FOLDER, FOUND

SAME = 1e-9
"""Machines differ in their last digits; a bound on the grid moves by 0.01 or not at all."""


def cases(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]


def differences(kept: Any, found: Any, where: str = "") -> list[str]:
    """Where two records differ by more than rounding."""
    if isinstance(kept, dict) and isinstance(found, dict) and set(kept) == set(found):
        return [line for key in kept for line in differences(kept[key], found[key], f"{where}.{key}")]
    if isinstance(kept, list) and isinstance(found, list) and len(kept) == len(found):
        pairs = enumerate(zip(kept, found, strict=True))
        return [line for place, pair in pairs for line in differences(*pair, f"{where}[{place}]")]
    if isinstance(kept, float) and isinstance(found, float):
        return [] if math.isclose(kept, found, rel_tol=SAME, abs_tol=SAME) else [f"{where}: {kept} {found}"]
    return [] if kept == found else [f"{where}: {kept} {found}"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "part", [*range(2), *(pytest.param(part, marks=pytest.mark.full) for part in range(2, 10))]
)
@pytest.mark.parametrize("name", FOUND)
def test_numbers_are_those_kept(name: str, part: int) -> None:
    moved = [
        f"case {number}{line}"
        for number, case in enumerate(cases(name))
        if number % 10 == part
        for line in differences(case["numbers"], FOUND[name](case))
    ]
    assert not moved


def test_every_kind_every_rule_and_every_delta_is_there() -> None:
    kinds = {case["evidence"]["kind"] for case in cases("evidence")}
    rules = {case["rule"].partition(":")[0] for case in cases("rules")}
    assert len(kinds) == 8
    assert rules == {
        *("ranked", "soft", "online", "top", "tails", "surest", "threshold", "bet", "all", "budget")
    }
    assert len({case["delta"] for case in cases("evidence") + cases("rules")}) >= 8
    assert (len(cases("evidence")) + len(cases("rules")), len(cases("trainings"))) == (1844, 20)


def test_a_moved_number_is_seen() -> None:
    kept = {"bound": 1.0, "p_values": [0.5, 1e-3], "evidence": {"kind": "Counts", "correct": 3}}
    assert not differences(kept, {**kept, "bound": 1.0 + 1e-12})
    assert differences(kept, {**kept, "bound": 1.0 + 1e-6}) == [".bound: 1.0 1.000001"]
    assert differences(kept, {**kept, "p_values": [0.5]})
    assert differences(kept, {**kept, "evidence": {"kind": "Counts", "correct": 4}})
