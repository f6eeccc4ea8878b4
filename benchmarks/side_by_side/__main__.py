"""Side by side: how fast, how tight, how valid, against what people use now. Run by `make bench`.

Writes RESULTS.md. `--only tightness` and the like measure one part anew; all are kept in canaria-bench.
"""

import argparse
import json
import os
import platform
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import scipy

from side_by_side import rest, speed, tightness, validity
from side_by_side.field import Field, assembled
from side_by_side.findings import Findings
from side_by_side.page import write

KEPT = Path(__file__).resolve().parent.parent.parent / "canaria-bench"
PARTS = ("validity", "tightness", "second look", "rest", "speed")


def measure(part: str, field: Field, known: dict[str, Any]) -> Any:
    """One part; the later ones look at what the earlier ones found."""
    if part == "validity":
        return validity.measured(field)
    if part == "tightness":
        return tightness.measured(field)
    if part == "rest":
        return rest.measured()
    if part == "second look":
        looked: dict[str, Any] = {}
        while rivals := [one for one in Findings({**known, part: looked}).rivals() if str(one) not in looked]:
            looked |= validity.second_look(field, known["validity"], rivals)
        return looked
    found = Findings(known)
    return {
        "counts": speed.from_counts(field),
        "scores": speed.from_scores(field, [one for one in field.auditors() if found.holds(one)]),
        "dpsgd": speed.dpsgd(),
        "memory": speed.peak_memory(),
    }


def main() -> None:
    """Measure what is asked for or missing, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=PARTS, action="append", help="measure only this part anew")
    parser.add_argument("--page", action="store_true", help="measure only what is missing")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    KEPT.mkdir(exist_ok=True)
    field = assembled()
    known: dict[str, Any] = {}
    measured = 0.0
    for part in PARTS:
        file = KEPT / f"{part.replace(' ', '-')}.json"
        wanted = [] if options.page else options.only or PARTS
        if part in wanted or not file.exists():
            file.write_text(json.dumps(measure(part, field, known)))
        known[part] = json.loads(file.read_text())
        measured = max(measured, file.stat().st_mtime)
    run_on = [
        f"{datetime.fromtimestamp(measured, UTC):%Y-%m-%d}",
        f"{platform.machine()} with {os.cpu_count()} cores",
        f"Python {platform.python_version()}",
        f"NumPy {numpy.__version__}",
        f"SciPy {scipy.__version__}",
        *field.versions(),
    ]
    write(Findings(known), run_on, field.missing)


if __name__ == "__main__":
    main()
