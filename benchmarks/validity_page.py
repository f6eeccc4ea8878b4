"""Write docs/reference/validity.tsv and validity.md from a finished `canaria validate`.

Run by `make validity`. The table has a row for each auditor in each case; the page sums it up. Without a
folder the page alone is written, from the table.
"""

import csv
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from scipy import stats

from canaria.lab.validity import AUDITORS, CASES
from canaria.lab.validity.attacks import ADAPTIVE
from canaria.lab.validity.cases import ONE_RUN
from canaria.lab.validity.correlated import CORRELATED
from canaria.lab.validity.curves import CURVES
from canaria.lab.validity.orders import ORDERS
from canaria.lab.validity.runs import RUNS

DOCS = Path(__file__).parent.parent / "docs"
TABLE, PAGE = DOCS / "reference" / "validity.tsv", DOCS / "reference" / "validity.md"
NOMINAL = 0.05

Row = dict[str, str]

TEXT = """# The laboratory

In the laboratory the true ε is known exactly. It plays every auditor of canaria against mechanisms that
are as hard as the theory allows, and counts the bounds above the true ε. At 95% confidence up to 5% of the
bounds may be above it.

**{flagged} of {cells:,} pairs of auditor and case are flagged.** A pair is flagged if an auditor at 5% would
do as badly in fewer than one of 30,000 pairs. The numbers are from {audits:,} whole audits and {claims:,}
tests of the true claim. No rate is more than {errors:.1f} standard errors above 5%. All {controls} controls,
which are wrong on purpose, are flagged.
{missing}

- [Every pair](validity.tsv) is in a table with tabs between its columns.
- `make validity` repeats the run (`canaria validate --audits 600 --claims 40000`, hours) and writes this
  page.
- To test your own auditor, see [check an auditor](../how-to/validate.md).

## By kind of case

The highest rate is the one that chance explains least, with its exact 95% interval. Large cases get fewer
audits (10,000 elements: 1 to 10%; 2,000: 10%; 1,000: 10 to 50%), so their rates vary more.

{groups}

## By auditor

The tightness is the mean bound divided by the true ε. Some pairs are not played: an auditor whose scores know
no bit is not shown scores that do, and an audit of a training run needs such a case. Slow auditors get fewer
tests of the claim (online: 2%; by rank, surest first, together: 20%). Rates are below 5% because counts are
discrete, or because the test allows for a δ that the mechanism does not spend.

{auditors}

## Controls

Each control has one known fault. It is flagged in cases that show this fault.

{faulty}

## Claims that are curves

The Gaussian claims above are of mechanisms that are exactly μ-Gaussian DP for every element. They differ in
how luck is shared between elements. The worst mechanism of a count attains what
[Theorem 14](../proofs.md#theorem-14) allows at the main count of the claim. The control `product test`
assumes independent elements ([Theorem 30](../proofs.md#theorem-30)) and ignores every sign that they are not.

## Pictures

Pairs that were not played are blank. The controls are on the right.

![False claims of every auditor in every case](../pictures/validity.svg)

![Mean bound over the true epsilon](../pictures/tightness.svg)
"""

GROUPS = {
    "one run, δ = 0": [case for case in ONE_RUN if case.delta == 0],
    "one run, δ > 0": [case for case in ONE_RUN if case.delta > 0],
    "Gaussian claims": CURVES,
    "lists sorted by the bits": ORDERS,
    "training runs, planted canaries": RUNS,
    "correlated noise": CORRELATED,
    "scores that know bits": ADAPTIVE,
}

FAULTS = {
    "best k": "the best number of guesses, chosen in hindsight",
    "list order": "ties in the order of the list",
    "bets in list order": "bets in the order of the list",
    "best of five": "the largest of five bounds, each at full confidence",
    "no delta": "a bound at δ = 0, compared with a claim at any δ",
    "product test": "elements assumed independent",
    "length by output": "the output chose the number of guesses",
    "naive adaptive": "Clopper–Pearson at a number of guesses that revealed bits decided",
    "full knowledge": "guesses that know all other bits",
}


def rows_of(folder: Path) -> list[Row]:
    """The table of a run, with the numbers that a reader needs."""
    with (folder / "cells.tsv").open(newline="") as file:
        cells = list(csv.DictReader(file, delimiter="\t"))
    assert set(CASES) == {cell["case"] for cell in cells}, "the page is made from a run of all cases"
    assert not any(int(cell["errors"]) for cell in cells), "an audit gave no bound"
    return [
        {
            **{name: cell[name] for name in ("auditor", "control", "case", "about")},
            "epsilon": f"{float(cell['epsilon']):.4g}",
            "delta": f"{float(cell['delta']):g}",
            **{name: cell[name] for name in ("audits", "claims")},
            "false": f"{100 * float(cell['rate']):.3g}",
            "of": cell["claims"] if int(cell["claims"]) else cell["audits"],
            "low": f"{100 * float(cell['low']):.2f}",
            "high": f"{100 * float(cell['high']):.2f}",
            "tightness": f"{float(cell['tightness']):.2f}" if cell["tightness"] else "",
            "verdict": cell["verdict"],
        }
        for cell in cells
    ]


def standard_errors(row: Row) -> float:
    """How far a rate is above the nominal one, by its exact tail, in standard errors of a normal law."""
    total = int(row["of"])
    false = round(float(row["false"]) * total / 100)
    return float(stats.norm.isf(stats.binom.sf(false - 1, total, NOMINAL)))


def over_claims(row: Row) -> bool:
    return row["verdict"] == "over-claims"


def worst(rows: Sequence[Row]) -> str:
    """The cell of the highest rate, in words."""
    row = max(rows, key=standard_errors)
    return f"{row['false']}% ({row['low']} to {row['high']}) of {int(row['of']):,}"


def sums(rows: Sequence[Row]) -> tuple[str, str]:
    return f"{sum(int(row['audits']) for row in rows):,}", f"{sum(int(row['claims']) for row in rows):,}"


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))


def by(names: Sequence[str], rows: Sequence[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    return {name: [row for row in rows if key(row) == name] for name in names}


def not_played(rows: Sequence[Row]) -> str:
    """The cases and auditors that are newer than the table."""
    played = {row["case"] for row in rows} | {row["auditor"] for row in rows}
    newer = [name for name in (*CASES, *AUDITORS) if name not in played]
    return f"Added since this run: {', '.join(newer)}.\n" if newer else ""


def page(rows: Sequence[Row]) -> str:
    """The page; an auditor that over-claims is no page but an error."""
    fair = [row for row in rows if CASES[row["case"]].fair]
    ours = [row for row in fair if not AUDITORS[row["auditor"]].control]
    assert not any(map(over_claims, ours)), "an auditor that is no control over-claims"
    group_of = {case.name: group for group, cases in GROUPS.items() for case in cases}
    groups = [
        (name, str(len(GROUPS[name])), str(len(own)), *sums(own), worst(own))
        for name, own in by(list(GROUPS), ours, lambda row: group_of[row["case"]]).items()
        if own
    ]
    auditors = []
    for name, own in by(list(dict.fromkeys(row["auditor"] for row in ours)), ours, _auditor).items():
        tight = [float(row["tightness"]) for row in own if row["tightness"]]
        most = max(own, key=standard_errors)
        auditors.append((name, str(len(own)), *sums(own), worst(own), most["case"], f"{_mean(tight):.2f}"))
    faulty = []
    for name, own in by(list(FAULTS), fair, _auditor).items():
        caught = [row for row in own if over_claims(row)]
        assert caught, f"the control {name} is not flagged"
        most = max(caught, key=lambda row: float(row["false"]))
        faulty.append((name, FAULTS[name], f"{len(caught)} of {len(own)}", f"{most['false']}%", most["case"]))
    audits, claims = (sum(int(row[name]) for row in ours) for name in ("audits", "claims"))
    return TEXT.format(
        flagged=sum(map(over_claims, ours)),
        cells=len(ours),
        audits=audits,
        claims=claims,
        errors=max(map(standard_errors, ours)),
        controls=len(FAULTS),
        missing=not_played(rows),
        groups=table(("cases", "how many", "pairs", "audits", "claims", "highest rate"), groups),
        auditors=table(("auditor", "cases", "audits", "claims", "highest rate", "in", "tightness"), auditors),
        faulty=table(("control", "its fault", "flagged in", "worst rate", "in"), faulty),
    )


def _auditor(row: Row) -> str:
    return row["auditor"]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def main() -> None:
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        rows = rows_of(folder)
        with TABLE.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        for name, picture in (("false-claims", "validity"), ("tightness", "tightness")):
            shutil.copy(folder / f"{name}.svg", DOCS / "pictures" / f"{picture}.svg")
    with TABLE.open(newline="") as file:
        PAGE.write_text(page(list(csv.DictReader(file, delimiter="\t"))))


if __name__ == "__main__":
    main()
