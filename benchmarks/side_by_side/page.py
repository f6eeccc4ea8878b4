"""RESULTS.md: the targets that are missed first, then tables."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from side_by_side.field import HINDSIGHT, RANKED, Auditor
from side_by_side.findings import Findings

PAGE = Path(__file__).resolve().parent.parent / "RESULTS.md"
TRAINING = "<!-- training -->"
REST = ("ours", "one order", "best number", "planned", "hindsight")


def write(found: Findings, run_on: Sequence[str], missing: dict[str, str]) -> None:
    """Write all but the parts about training at the end, which other benchmarks write."""
    _, mark, training = PAGE.read_text().partition(TRAINING)
    parts = [
        "# Measured",
        *_targets(found),
        f"By `make bench` ({', '.join(run_on)}). Every table is of one run, so read the ratios.",
        *(f"**{name} is missing**: {why}" for name, why in missing.items()),
        *_tightness(found),
        *_rest(found),
        *_everybody(found),
        *_validity(found),
        *_speed(found),
        mark + training,
    ]
    PAGE.write_text("\n\n".join(parts))


def _targets(found: Findings) -> Iterable[str]:
    missed = [target for target in found.targets() if not target.met]
    met = [target for target in found.targets() if target.met]
    if missed:
        yield "Targets that are **missed**:"
        yield "\n".join(f"- {target.text}: **{target.measured}**" for target in missed)
    yield "Targets that are met:" if missed else "Every target is met:"
    yield "\n".join(f"- {target.text}: {target.measured}" for target in met)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: float | None) -> str:
    return "" if value is None else "∞" if math.isinf(value) else f"{value:.2f}"


def _tightness(found: Findings) -> Iterable[str]:
    yield "## How tight"
    yield (
        "Mean bounds at 95% confidence and δ = 1e-5, everybody on the same scores. *Best peer*: the method "
        "that shows the most of those that claim something for every mechanism and were not caught "
        "over-claiming ([below](#how-valid)); a slow one got to fewer audits, and the *ratio* is on those. "
        "*Hindsight*: the best number of guesses, chosen afterwards, δ not charged. It is **not valid**; "
        "docs/hindsight.md says what would close the rest."
    )
    rows = []
    for place, setting in enumerate(found.settings):
        ours, best, most = (found.shown(RANKED, place), found.best_peer(place), found.shown(HINDSIGHT, place))
        share = found.of_hindsight(place)
        rows.append(
            [
                setting["name"],
                f"{setting['truth']:.2f}",
                f"**{_number(ours and ours.mean)}** ± {_number(ours and ours.error)}",
                f"{_number(best[1].mean)} ({best[0]})" if best else "",
                _number(found.ratio(place)),
                _number(most and most.mean),
                "" if share is None else f"{share:.0%}",
            ]
        )
    head = ["scores", "true ε", "ours", "best peer", "ratio", "hindsight (not valid)", "ours of hindsight"]
    yield _table(head, rows)


def _rest(found: Findings) -> Iterable[str]:
    yield "### What is left to hindsight"
    yield (
        "Mean bounds on normal scores. *One order*: `Ranked` without the orders of one tail; valid. *Best "
        "number*: of guesses, fixed in advance, the one that is best on average; valid. *Planned*: `Around` "
        "the number that suits Gaussian noise of this size (`planned_rule`); valid."
    )
    rows = [
        [f"shift {row['shift']:g}, n = {row['n']:,}"]
        + [f"{row[name]:.2f} ({row[name] / row['hindsight']:.0%})" for name in REST]
        for row in found.known["rest"]
    ]
    table = _table(["scores", "ours", "one order", "best number", "planned", "hindsight (not valid)"], rows)
    yield f"<!-- --8<-- [start:rest] -->\n{table}\n<!-- --8<-- [end:rest] -->"


def _everybody(found: Findings) -> Iterable[str]:
    yield "### Every method"
    yield (
        "Empty: no answer, mostly because a call took too long. Struck out: over-claims. *Gaussian*: claims "
        "something about Gaussian mechanisms only. Slow methods got to fewer audits."
    )
    groups: dict[str, list[int]] = {}
    for place, setting in enumerate(found.settings):
        group = "Gaussian" if setting["shift"] is not None else "others"
        groups.setdefault(group, []).append(place)
    for places in groups.values():
        head = ["method", *(found.settings[place]["name"] for place in places)]
        rows = []
        for auditor in found.auditors:
            shown = [found.shown(auditor, place) for place in places]
            rows.append([_name(found, auditor), *(_number(one and one.mean) for one in shown)])
        yield _table(
            head, [*rows, ["*true ε*", *(f"{found.settings[place]['truth']:.2f}" for place in places)]]
        )


def _name(found: Findings, auditor: Auditor) -> str:
    if auditor == RANKED:
        return "**canaria**"
    if auditor == HINDSIGHT:
        return "~~hindsight~~"
    words = f"~~{auditor}~~" if found.caught(auditor) else str(auditor)
    return f"{words} (Gaussian)" if auditor.gaussian else words


def _rate(case: dict[str, Any]) -> str:
    if not case["audits"]:
        return ""
    words = f"{case['rate']:.1%} of {case['audits']:,}"
    return f"**{words}**" if case["flagged"] else words


def _validity(found: Findings) -> Iterable[str]:
    yield "## How valid"
    yield (
        "How often a bound at 95% confidence is above the truth; up to 5% is allowed. Bold: above beyond "
        "chance (one in 30,000). As many audits as some seconds allow; who was the best peer or ahead of "
        "ours somewhere, and not caught, got more. A method that is not caught is not thereby valid."
    )
    columns = [case["case"] for case in found.cases(RANKED)]
    rows = [
        [_name(found, auditor), *(_rate(case) for case in found.cases(auditor))]
        for auditor in found.auditors
        if auditor != HINDSIGHT
    ]
    yield _table(["method", *columns], rows)
    told = {case["case"]: case for case in found.cases(RANKED)}
    yield "; ".join(
        f"*{name}*: {case['about']}, ε = {case['epsilon']:g}, δ = {case['delta']:g}, n = {case['n']:,}"
        for name, case in told.items()
    )


def _times(rows: list[dict[str, Any]], what: str) -> str:
    sizes = sorted({int(size) for row in rows for size in row["seconds"]})
    head = [what, *(f"{size:,}" for size in sizes), "growth", ""]
    return _table(
        head,
        (
            [
                row["what"],
                *(_seconds(row["seconds"].get(str(size))) for size in sizes),
                "" if row["growth"] is None else f"n^{row['growth']:.2f}",
                row["why"],
            ]
            for row in rows
        ),
    )


def _seconds(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"


def _speed(found: Findings) -> Iterable[str]:
    speed = found.known["speed"]
    yield "## How fast"
    yield "From counts, 73% of the guesses right, δ = 1e-5 (growth: the fitted exponent from 10⁴ on):"
    yield _times(speed["counts"], "guesses")
    for shift, rows in speed["scores"].items():
        yield f"From normal scores, shift {shift}, δ = 1e-5, of methods that were not caught over-claiming:"
        yield _times(rows, "scores")
    yield f"Peak memory of a process that audits 10⁷ scores: {speed['memory']:.2f} GiB."
    yield "Simulated DP-SGD, one canary per coordinate, T = 100, q = 0.1: the paper's Algorithm 3 and ours:"
    rows = []
    for row in speed["dpsgd"]:
        theirs, ours = row["theirs"], row["ours"]
        rows.append([row["what"], f"{row['n']:,}", _seconds(theirs), _seconds(ours), f"{theirs / ours:.1f}"])
    yield _table(["what", "n", "straightforward", "ours", "ratio"], rows)
