"""Claims about Gaussian mechanisms, ours and JAX Privacy's, on the same scores. Run by `make bench-curves`.

How much each shows in every setting of `make bench`, and how often each accuses a mechanism that keeps its
claim, where luck is shared in several ways. `--write` puts both tables into RESULTS.md.
"""

import argparse
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from peers.environments import make, peers
from scipy import stats
from sections import write
from side_by_side.field import OURS, Auditor, Field
from side_by_side.settings import DELTA, Setting, opacus_runs, simulated

from canaria.lab.validity import CASES
from canaria.lab.validity.curves import CURVES

MARK = "<!-- curves -->"
CONFIDENCE, LIMIT, SECONDS = 0.95, 12.0, 5.0
MOST, FOR_VALIDITY = 4000, 6.0
"""Audits of a case, and seconds for them."""
JAX = "jaxprivacy"
ASKED = (
    Auditor(OURS, "ranked"),
    Auditor(OURS, "matched"),
    Auditor(OURS, "independent"),
    *(Auditor(JAX, f"one_run_fdp_{name}") for name in ("bonferroni", "median", "split", "multi_split")),
)
TITLES = {
    "ranked": "`Ranked()`, for every mechanism",
    "matched": '**`Matched("gaussian")`**',
    "independent": '`Matched("gaussian", independent=True)`',
}
SHOWN_CASES = [case for case in CURVES if case.name.split("-")[-2] in ("0.6", "1.3")]
Answers = dict[Auditor, list[dict[str, Any]]]


def asked(field: Field, games: Iterator[tuple[Any, Any, float]], seconds: float) -> Answers:
    """What everybody says to the same audits."""
    with tempfile.TemporaryDirectory() as folder:
        tasks = []
        for place, (scores, bits, delta) in enumerate(games):
            file = Path(folder) / f"{place}.npz"
            np.savez(file, scores=scores, bits=bits)
            limits = {"limit": LIMIT, "seconds": seconds}
            tasks.append({"file": str(file), "delta": delta, "confidence": CONFIDENCE, **limits})
        return field.all_asked("curves", ASKED, tasks)


def drawn(settings: list[Setting]) -> Iterator[tuple[Any, Any, float]]:
    for place, setting in enumerate(settings):
        yield *setting.draw(setting.audits, np.random.default_rng([7, place])), DELTA


def played() -> Iterator[tuple[Any, Any, float]]:
    for place, case in enumerate(SHOWN_CASES):
        assert CASES[case.name] is case
        games = case.draw((MOST, case.n), np.random.default_rng([12, place]), 1 - CONFIDENCE)
        yield games.scores, games.bits, case.delta


def tightness(settings: list[Setting], answers: Answers) -> list[str]:
    titles = [title(auditor) for auditor in ASKED]
    rows = [f"| setting | true ε | {' | '.join(titles)} |", "| --- " * (2 + len(ASKED)) + "|"]
    for place, setting in enumerate(settings):
        cells = [answers[auditor][place]["bounds"] for auditor in ASKED]
        means = [f"{np.mean(bounds):.2f}" if bounds else "" for bounds in cells]
        rows.append(f"| {setting.name} | {setting.truth:.2f} | {' | '.join(means)} |")
    return rows


def validity(answers: Answers) -> list[str]:
    chosen = ASKED[1:]
    titles = [title(auditor) for auditor in chosen]
    rows = [f"| case | {' | '.join(titles)} |", "| --- " * (1 + len(chosen)) + "|"]
    for place, case in enumerate(SHOWN_CASES):
        cells = []
        for auditor in chosen:
            bounds = np.array(answers[auditor][place]["bounds"])
            false = int((bounds > case.epsilon * (1 + 1e-9) + 1e-9).sum())
            told = f"{100 * false / len(bounds):.1f}% of {len(bounds):,}" if len(bounds) else ""
            flagged = len(bounds) > 0 and stats.binom.sf(false - 1, len(bounds), 1 - CONFIDENCE) < 1e-4
            cells.append(f"**{told}**" if flagged else told)
        rows.append(f"| {case.about} | {' | '.join(cells)} |")
    return rows


def title(auditor: Auditor) -> str:
    return TITLES.get(auditor.name, f"JAX: `{auditor.name}`")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    peer = peers()[JAX]
    if error := make(peer):
        raise SystemExit(error)
    field = Field({JAX: peer}, {})
    settings = sorted([*simulated(), opacus_runs()], key=lambda setting: setting.n)
    lines = [
        "",
        "## Claims about Gaussian mechanisms (`make bench-curves`)",
        "",
        f"ε at δ = {DELTA:g} of the weakest refuted Gaussian claim, {CONFIDENCE:.0%} confidence, means of "
        "the same audits. It is a lower bound on ε where the mechanism is Gaussian; in other settings it may "
        "exceed the true ε, and more is not better. Empty: a call took too long.",
        "",
        *tightness(settings, asked(field, drawn(settings), SECONDS)),
        "",
        f"How often a claim is refuted that the mechanism keeps, where {1 - CONFIDENCE:.0%} may be; bold: "
        "chance explains it once in 10,000 times at most.",
        "",
        *validity(asked(field, played(), FOR_VALIDITY)),
        "",
    ]
    print("\n".join(lines))
    if options.write:
        write(MARK, lines)


if __name__ == "__main__":
    main()
