"""Write docs/reference/validity.md from a finished `canaria validate`: tables and heat maps.

Run by `make validity`.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from canaria.validation import CASES

DOCS = Path(__file__).parent.parent / "docs"

OPENING = """# The laboratory, run in full

This page shows how often each auditor of canaria claims more than the truth: in {audits:,} whole audits
and {claims:,} tests of the true claim.

Made by `make validity` (`canaria validate --audits {per_audit} --claims {per_claim}`, then this page; seed
{seed}, confidence {confidence:g}, canaria {canaria}, source {code}). How to read it, and how to check your
own auditor: [check an auditor](../how-to/validate.md).

{verdict}

![False claims of every auditor in every case](../pictures/validity.svg)

![Mean bound over the true epsilon](../pictures/tightness.svg)

Blank: who lets no score know a bit need not withstand one that does. The highest rates of ours are those of
tests that are exact; what is lower than 5 % is lost to discrete counts, or to a δ that is charged more than
this mechanism spends. The last three columns are the controls, which are wrong on purpose. Large cases get
fewer audits (rr-8: 2 %, 1,000 elements: 20 %), and so do costly auditors (online: 2 %, by rank: 20 %).

"""

VERDICT = """**{flagged} of {cells} cells of ours are flagged**, and none is more than {errors:.1f} standard
errors above 5 %. The highest rate beyond doubt is that of {auditor} in {case}: {rate:.2f} %
({low:.2f} to {high:.2f}). Flagged, as they must be: {caught}."""


def standard_errors(cell: dict[str, Any]) -> float:
    """How far the rates of a cell are above the nominal one."""
    counts = ((cell["false"], cell["audits"]), (cell["refuted"], cell["claims"]))
    nominal = cell["nominal"]
    return max(
        (false / total - nominal) / (nominal * (1 - nominal) / total) ** 0.5
        for false, total in counts
        if total
    )


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "canaria-validity")
    settings = json.loads((folder / "canaria-run.json").read_text())["settings"]
    cells = [json.loads(line) for line in (folder / "cells.jsonl").read_text().splitlines()]
    ours = [cell for cell in cells if not cell["control"] and cell["fair bits"]]
    worst = max(ours, key=lambda cell: cell["low"])
    controls = [cell["auditor"] for cell in cells if cell["control"] and cell["flagged"]]
    verdict = VERDICT.format(
        flagged=sum(cell["flagged"] for cell in ours),
        cells=len(ours),
        errors=max(map(standard_errors, ours)),
        caught=", ".join(dict.fromkeys(controls)),
        **{key: worst[key] for key in ("auditor", "case")},
        **{key: 100 * worst[key] for key in ("rate", "low", "high")},
    )
    page = OPENING.format(
        audits=sum(cell["audits"] for cell in ours),
        claims=sum(cell["claims"] for cell in ours),
        per_audit=settings["audits"],
        per_claim=settings["claims"],
        verdict=verdict,
        **{key: settings[key] for key in ("seed", "confidence", "canaria", "code")},
    )
    for name, picture in (("false-claims", "validity"), ("tightness", "tightness")):
        shutil.copy(folder / f"{name}.svg", DOCS / "pictures" / f"{picture}.svg")
    table = (folder / "table.md").read_text().replace("\n**", "\n## ").replace("**\n", "\n")
    assert set(CASES) == {cell["case"] for cell in cells}, "a page is made from a run of all cases"
    (DOCS / "reference" / "validity.md").write_text(page + table)


if __name__ == "__main__":
    main()
