"""Draw the pictures of the documentation from real runs into docs/pictures. Run by `make pictures`."""

import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy import stats

from canaria.claims import ApproximateDP
from canaria.evidence import Bets, Ranking
from canaria.lab.charts import pictures
from canaria.mechanisms import (
    AllOrNothing,
    CountInSets,
    LocalLaplace,
    Mechanism,
    NameAndShame,
    RandomizedResponse,
    Xor,
)
from canaria.theory import gaps

DOCS = Path(__file__).parent.parent / "docs"
AUDITS, ELEMENTS, LEVEL = 4000, 1000, 0.05

alt: Any = import_module("altair")


def tutorial() -> Any:
    """The scores of the tutorial, by running its own code, and how many of the surest guesses are right."""
    text = (DOCS / "tutorial.md").read_text()
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.S)[:3]:
        exec(block, names)
    scores, included, bound = names["scores"], names["included"], names["bound"]
    rows = [
        {"score": float(score), "canary": "included" if bit else "not included"}
        for score, bit in zip(scores, included, strict=True)
    ]
    bins = alt.Bin(step=0.25, extent=[-2, 2.25])
    histogram = (
        alt.Chart(alt.Data(values=rows), title="Scores")
        .mark_bar(opacity=0.6)
        .encode(
            x=alt.X("score:Q", bin=bins, title="score"),
            y=alt.Y("count()", stack=None, title="canaries"),
            color=alt.Color("canary:N", title=None, legend=alt.Legend(orient="bottom")),
        )
        .properties(width=300, height=220)
    )
    claim = ApproximateDP(bound.epsilon, delta=0)
    (part,) = (part for part in bound.evidence.parts if part.tally(claim) == bound.tally)
    right = np.cumsum(part.hits)
    places = np.unique(np.geomspace(8, len(right), 80).astype(int))
    accuracy = [{"k": int(k), "right": float(right[k - 1] / k)} for k in places]
    wide = alt.X("k:Q", scale=alt.Scale(type="log", nice=False), title="guesses k")
    high = alt.Y("right:Q", scale=alt.Scale(domain=[0.5, 1]), title="right")
    line = alt.Chart(alt.Data(values=accuracy), title="Share of right guesses among the k surest")
    line = line.mark_line(color="black").encode(x=wide, y=high)
    best = [{"k": bound.tally.taken, "right": bound.tally.correct / bound.tally.taken}]
    point = alt.Chart(alt.Data(values=best)).mark_point(color="black", filled=True, size=70)
    levels = [{"at": float(1 / (1 + np.exp(-e))), "claim": f"at most, if ε = {e}"} for e in (1, 2)]
    claims = alt.Chart(alt.Data(values=levels)).mark_rule(strokeDash=[6, 4])
    claims = claims.encode(
        y="at:Q", color=alt.Color("claim:N", title=None, legend=alt.Legend(orient="bottom"))
    )
    layers = alt.layer(line, point.encode(x=wide, y=high), claims).properties(width=300, height=220)
    return (histogram | layers).resolve_scale(color="independent")


def gap_bars() -> Any:
    """Six mechanisms, each from one half up to p(epsilon)."""
    mechanisms: dict[str, Mechanism] = {
        "Randomized response, ε = 1": RandomizedResponse(1.0),
        "Local Laplace, ε = 2": LocalLaplace(2.0),
        "Count-in-Sets of 4": CountInSets(4),
        "Name-and-Shame": NameAndShame(),
        "All-or-Nothing, p = 0.2": AllOrNothing(0.2),
        "XOR": Xor(),
    }
    order = ("efficacy", "elements", "outputs", "interference")
    rows = []
    for name, mechanism in mechanisms.items():
        found, start = gaps(mechanism, n=100, rng=0).to_dict(), 0.5
        for place, part in enumerate(order):
            end = found[part] if place == 0 else start + found[part]
            rows.append({"mechanism": name, "part": part, "start": start, "end": end, "place": place})
            start = end
    colours = alt.Scale(domain=list(order), range=["#00897b", "#ffca28", "#fb8c00", "#8e24aa"])
    return (
        alt.Chart(
            alt.Data(values=rows), title="From the best expected accuracy to the privacy level (n = k = 100)"
        )
        .mark_bar()
        .encode(
            x=alt.X("start:Q", scale=alt.Scale(domain=[0.5, 1]), title="probability of guessing right"),
            x2="end:Q",
            y=alt.Y("mechanism:N", sort=list(mechanisms), title=None, axis=alt.Axis(labelLimit=220)),
            color=alt.Color("part:N", scale=colours, title=None, legend=alt.Legend(orient="bottom")),
        )
        .properties(width=480, height=200)
    )


def false_claims() -> Any:
    """How often a mechanism that says nothing is accused, by ways that are valid and ways that are not."""
    rng = np.random.default_rng(1)
    taken = np.arange(1, ELEMENTS + 1)
    enough = stats.binom.isf(LEVEL, taken, 0.5) + 1
    hits = rng.random((AUDITS, ELEMENTS)) < 0.5
    right = hits.cumsum(axis=1)
    half = rng.permuted(np.tile([0, 1], (AUDITS, ELEMENTS // 2)), axis=1)
    behind = 2 * (half.cumsum(axis=1) - half) <= np.arange(ELEMENTS)
    stated = np.full(ELEMENTS, 0.55)
    rates = {
        "number of guesses fixed": (right[:, 99] >= enough[99], "valid"),
        "Ranking: every number at once": (
            [Ranking(row).p_value(ApproximateDP(0.0, delta=0)) <= LEVEL for row in hits],
            "valid",
        ),
        "Bets: stop when you like": (
            [Bets(stated, row).p_value(ApproximateDP(0.0, delta=0)) <= LEVEL for row in hits],
            "valid",
        ),
        "exactly half included, counted": ((behind == half).sum(axis=1) >= enough[-1], "not valid"),
        "best number in hindsight": ((right >= enough).any(axis=1), "not valid"),
    }
    rows = [
        {"injection": injection, "rate": float(np.mean(seen)), "kind": kind}
        for injection, (seen, kind) in rates.items()
    ]
    colours = alt.Scale(domain=["valid", "not valid"], range=["#00897b", "#e53935"])
    bars = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar()
        .encode(
            x=alt.X("rate:Q", axis=alt.Axis(format="%"), title="false claims (nominally at most 5%)"),
            y=alt.Y("way:N", sort=list(rates), title=None, axis=alt.Axis(labelLimit=260)),
            color=alt.Color("kind:N", scale=colours, title=None, legend=alt.Legend(orient="bottom")),
        )
    )
    nominal = alt.Chart(alt.Data(values=[{"rate": LEVEL}])).mark_rule(strokeDash=[6, 4]).encode(x="rate:Q")
    title = f"Audits of a mechanism that says nothing: {AUDITS} of each, {ELEMENTS} elements"
    return alt.layer(bars, nominal, title=title).properties(width=480, height=170)


def report(picture: Path) -> None:
    """The top of the demo's report, as a browser shows it."""
    from playwright.sync_api import sync_playwright

    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        subprocess.run([Path(sys.executable).with_name("canaria"), "demo", "--out", folder], check=True)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        page = browser.new_page(viewport={"width": 1000, "height": 1180}, color_scheme="light")
        page.goto((Path(folder) / "report.html").as_uri())
        page.screenshot(path=picture)


def main() -> None:
    folder = DOCS / "pictures"
    folder.mkdir(exist_ok=True)
    for name, chart in {"tutorial": tutorial(), "gaps": gap_bars(), "false-claims": false_claims()}.items():
        (folder / f"{name}.svg").write_bytes(pictures(chart)["svg"])
    report(folder / "report.png")


if __name__ == "__main__":
    main()
