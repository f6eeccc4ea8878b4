"""Write docs/reference/validity.md from a finished `canaria validate`: tables and heat maps.

Run by `make validity`. What it shows of auditors that assume a family of claims is also a page of its own,
docs/reference/validity-curves.md.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from scipy import stats

from canaria.lab.validity import CASES

DOCS = Path(__file__).parent.parent / "docs"

OPENING = """# The laboratory, run in full

This page shows how often each auditor of canaria claims more than the truth: in {audits:,} whole audits
and {claims:,} tests of the true claim.

Made by `make validity` (`canaria validate --audits {per_audit} --claims {per_claim}`, then this page; seed
{seed}, confidence {confidence:g}, canaria {canaria}, source {code}). How to read it, and how to check your
own auditor: [check an auditor](../how-to/validate.md).

{verdict}

{kinds}

![False claims of every auditor in every case](../pictures/validity.svg)

![Mean bound over the true epsilon](../pictures/tightness.svg)

Blank: an auditor whose scores know no bit need not withstand one whose scores do, and an audit of a
training run or of planted canaries needs such a case. The highest rates of ours are those of tests that are
exact; what is lower than 5% is lost to discrete counts, or to a δ that is charged more than this mechanism
spends. The last columns are the controls, which are wrong on purpose; each is flagged where its fault
shows. Large cases get fewer audits (10,000 elements: 2 to 10%, 2,000: 10%, 1,000: 20%), and so do costly
auditors (online: 2%; by rank, surest first, together: 20%).

"""

VERDICT = """**{flagged} of {cells} cells of ours are flagged**, and none is more than {errors:.1f} standard
errors above 5%. The highest rate beyond doubt is that of {auditor} in {case}: {rate:.2f}%
({low:.2f} to {high:.2f}). Flagged, as they must be: {caught}.{missed}"""


FAMILIES = """# The laboratory, for claims that are curves

This page shows how often auditors that test Gaussian claims refute one that the mechanism keeps: in
{audits:,} whole audits and {claims:,} tests of the true claim.

A part of [the laboratory](validity.md), made with it by `make validity` (`canaria validate --audits
{per_audit} --claims {per_claim}`; seed {seed}, confidence {confidence:g}, canaria {canaria}, source {code}).

In cases whose name begins with curve- every element is exactly μ-Gaussian DP, whatever the others do; they
differ in how luck is shared. The worst mechanism of a count attains what [Theorem
14](../proofs.md#theorem-14) allows at the main look of the claim. `matched by size` guesses by the size of
scores, as that mechanism expects. The product test assumes independent elements ([Theorem
30](../proofs.md#theorem-30)), without what withdraws it: it is flagged, as it must be.

"""

OF_FAMILIES = ("matched", "matched by size", "product test")

KINDS = {
    "Counts": ("tails:50", "top:20", "surest:50", "all"),
    "PublishedCounts": ("published",),
    "UncommittedCounts": ("threshold:2",),
    "Ranking": ("ranked", "around:50", "ranking", "ranking of half"),
    "MatchedCounts": ("matched", "matched by size"),
    "Split": ("ranked", "together"),
    "Weighted": ("soft", "by rank"),
    "Budget": ("budget:50",),
    "Bets": ("bets", "mixture", "online", "surest first"),
}


def kinds(cells: list[dict[str, Any]]) -> str:
    """How many audits each kind of evidence stood, bits that are not fair left out."""
    rows = ["| kind of evidence | auditors | whole audits | tests of the true claim |", "|---|---|---|---|"]
    for kind, names in KINDS.items():
        own = [cell for cell in cells if cell["auditor"] in names]
        audits, claims = (sum(cell[counted] for cell in own) for counted in ("audits", "claims"))
        assert audits >= 10**4, (kind, audits)
        assert claims >= 10**6, (kind, claims)
        rows.append(f"| `{kind}` | {', '.join(names)} | {audits:,} | {claims:,} |")
    return "\n".join(rows)


def standard_errors(cell: dict[str, Any]) -> float:
    """How far a cell is above the nominal rate, by its exact tail, in standard errors of a normal law."""
    return float(stats.norm.isf(cell["chance"]))


def of_families(table: str, settings: dict[str, Any], cells: list[dict[str, Any]]) -> str:
    """The page of auditors that assume a family; the product test is the one that must be flagged."""
    own = [cell for cell in cells if cell["auditor"] in OF_FAMILIES]
    flagged = {cell["auditor"] for cell in own if cell["flagged"]}
    assert flagged == {"product test"}, flagged
    page = FAMILIES.format(
        audits=sum(cell["audits"] for cell in own),
        claims=sum(cell["claims"] for cell in own),
        per_audit=settings["audits"],
        per_claim=settings["claims"],
        **{key: settings[key] for key in ("seed", "confidence", "canaria", "code")},
    )
    summary, *sections = table.split("\n## ")
    kept = [
        line
        for line in summary.splitlines()
        if not line.startswith("| ")
        or line.startswith(("| auditor ", "| --- "))
        or line.split("|")[1].strip().removesuffix(" (control)") in OF_FAMILIES
    ]
    shown = [part for part in sections if part.split("\n")[0].removesuffix(" (control)") in OF_FAMILIES]
    assert len(shown) == len(OF_FAMILIES), shown
    return page + "\n## ".join(["\n".join(kept) + "\n", *shown]).rstrip() + "\n"


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "canaria-validity")
    settings = json.loads((folder / "canaria-run.json").read_text())["settings"]
    cells = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    ours = [cell for cell in cells if not cell["control"] and cell["fair bits"]]
    worst = max(ours, key=lambda cell: cell["low"])
    controls = [cell["auditor"] for cell in cells if cell["control"] and cell["flagged"]]
    assert not any(cell["flagged"] or cell["errors"] for cell in ours), "an auditor of ours fails"
    missed = {cell["auditor"]: None for cell in cells if cell["control"] and cell["auditor"] not in controls}
    verdict = VERDICT.format(
        flagged=sum(cell["flagged"] for cell in ours),
        cells=len(ours),
        errors=max(map(standard_errors, ours)),
        caught=", ".join(dict.fromkeys(controls)),
        missed=f" Too few audits to flag another control: {', '.join(missed)}." if missed else "",
        **{key: worst[key] for key in ("auditor", "case")},
        **{key: 100 * worst[key] for key in ("rate", "low", "high")},
    )
    page = OPENING.format(
        audits=sum(cell["audits"] for cell in ours),
        claims=sum(cell["claims"] for cell in ours),
        per_audit=settings["audits"],
        per_claim=settings["claims"],
        verdict=verdict,
        kinds=kinds(ours),
        **{key: settings[key] for key in ("seed", "confidence", "canaria", "code")},
    )
    for name, picture in (("false-claims", "validity"), ("tightness", "tightness")):
        shutil.copy(folder / f"{name}.svg", DOCS / "pictures" / f"{picture}.svg")
    table = (folder / "table.md").read_text().replace("\n**", "\n## ").replace("**\n", "\n")
    assert set(CASES) == {cell["case"] for cell in cells}, "a page is made from a run of all cases"
    (DOCS / "reference" / "validity.md").write_text(page + table)
    (DOCS / "reference" / "validity-curves.md").write_text(of_families(table, settings, cells))


if __name__ == "__main__":
    main()
