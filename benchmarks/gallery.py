"""Run every entry of docs/gallery.md, and write what it prints and its picture. Run by `make gallery`.

Blocks of Python share their names, as on every page. A picture shows what the block above it left behind: a
`result`, its `bounds` by name, or what is `planned`. Those of examples are drawn by the functions of
`OF_EXAMPLES`.
"""

import contextlib
import importlib.util
import io
import math
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from canaria import Bound, Result
from canaria._core.rounding import rounded_down
from canaria.report.chart import Chart
from canaria.report.charts import charts as charts_of
from canaria.report.section import explain
from canaria.report.svg import BLUE, ORANGE, PURPLE, Key, Scale, across, escape, fitted, grid, line, tag, text
from canaria.training.plan import Plan

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "gallery.md"
PICTURES = ROOT / "docs" / "pictures" / "gallery"
PARTS = re.compile(r"^```(\w+)\n(.*?)^```$|^!\[[^\]]*\]\(pictures/gallery/([\w-]+)\.svg\)$", re.M | re.S)

WIDTH, EDGE, SIDE, ROW = 440, 20, 52, 40
"""Pixels: of a picture, narrow enough for a phone; around it; left of an axis with numbers; of a bar."""
INK = "#1c2128"
STYLE = (
    f"text {{ fill: {INK}; paint-order: stroke; stroke: #fff; stroke-width: 3px; stroke-linejoin: round; }} "
    ".grid { opacity: 0.12; } g rect { shape-rendering: crispEdges; }"
)


def on_paper(charts: Iterable[Chart], about: str) -> str:
    """Charts below each other on white, in a file of SVG that keeps its shape on a phone."""
    drawn, down = [], float(EDGE)
    for chart in charts:
        place = float(EDGE)
        for key in chart.keys:
            drawn.append(key.sample(x=f"{place:g}", y=f"{down:g}"))
            drawn.append(text(key.name, f"{place + 28:g}", down + 9))
            place += 52 + 6 * len(key.name)
        curve = chart.kind == "curve"
        down += 22 * bool(chart.keys) + 22 * curve
        left = SIDE if curve else EDGE
        size = {"x": left, "y": f"{down:g}", "width": WIDTH - left - EDGE, "height": f"{chart.height:g}"}
        drawn.append(tag("svg", *chart.body, overflow="visible", color=INK, **size))
        down += chart.height + EDGE
    font = {"font_family": "system-ui, -apple-system, 'Segoe UI', sans-serif", "font_size": 12}
    size = {"viewBox": f"0 0 {WIDTH} {down:g}", "width": WIDTH, "height": f"{down:g}"}
    paper = tag("rect", width="100%", height="100%", fill="#fff")
    named = {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria_label": about}
    return tag("svg", tag("style", STYLE), paper, *drawn, **named, **size, **font) + "\n"


def picture(result: Result) -> str:
    """The bound against the claim, and below it the most telling chart."""
    found = charts_of(explain(result))
    telling = next(name for name in ("rungs", "scores", "guesses", "confidence") if name in found)
    return on_paper([found["claim"], found[telling]], result.verdict)


class Bar(NamedTuple):
    """A lower bound on epsilon, and the claim if there is one."""

    name: str
    epsilon: float
    claimed: float | None = None


def bars(rows: list[Bar]) -> str:
    """Bars below each other, orange where they are above the claim; claims are marks."""
    ends = [
        end for row in rows for end in (row.epsilon, row.claimed) if end is not None and math.isfinite(end)
    ]
    scale, height = Scale(0.0, 1.05 * max(ends) or 1.0), ROW * len(rows) + 4
    body = grid(scale, height, "ε")
    for place, row in enumerate(rows):
        down, label = place * ROW, rounded_down(row.epsilon)
        number = tag("tspan", label, dx="8", font_weight="600")
        body.append(tag("text", escape(fitted(row.name, 32.0)), number, x="0", y=down + 15))
        colour = BLUE if row.claimed is None or row.epsilon <= row.claimed else ORANGE
        size = {"x": 0, "y": down + 21, "width": across(scale.at(row.epsilon)), "height": 15}
        body.append(tag("rect", rx=2, fill=colour, **size))
        if row.claimed is not None:
            at = scale.at(row.claimed)
            body.append(line((at, down + 17), (at, down + 40), stroke=PURPLE, stroke_width=2.5))
    colours = {"bound above the claim": ORANGE, "bound": BLUE, "claim": PURPLE}
    claims = any(row.claimed is not None for row in rows)
    keys = tuple(Key(name, colour, dashed=False) for name, colour in colours.items() if claims)
    about = "; ".join(f"{row.name}: ε ≥ {rounded_down(row.epsilon)}" for row in rows)
    return on_paper([Chart(about=about, body=tuple(body), height=height + ROW, keys=keys)], about)


def of_bounds(bounds: dict[str, Bound]) -> str:
    return bars([Bar(name, bound.epsilon) for name, bound in bounds.items()])


def of_plan(plan: Plan) -> str:
    """The bound to expect, by the number of canaries."""
    return bars([Bar(f"{choice.canaries:,} canaries", choice.expected.mean) for choice in plan.growth])


KINDS: dict[str, Callable[[Any], str]] = {"result": picture, "bounds": of_bounds, "planned": of_plan}


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def of_audits(name: str) -> str:
    """The claim and the bound of each mechanism that an example audits, at 99.9% confidence."""
    found = example(name).audits(0.999, np.random.default_rng(0))
    return bars([Bar(what, bound.epsilon, claimed) for what, claimed, bound in found])


def of_training(fault: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return picture(example("broken_training").train(fault, seed=0))


OF_EXAMPLES: dict[str, Callable[[], str]] = {
    "sparse-vector": lambda: of_audits("sparse_vector"),
    "last-digits": lambda: of_audits("diffprivlib_mechanisms"),
    "training": lambda: of_training("none"),
    "half-the-noise": lambda: of_training("halved"),
}


def run_python(code: str, names: dict[str, Any]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, str(PAGE), "exec"), names)
    return printed.getvalue()


def run_example(block: str) -> str:
    """A block of a command and what it prints; as many lines as are shown, where the rest is left out."""
    command, *shown = block.splitlines()
    python = [sys.executable, "-W", "ignore", *command.split()[2:]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    printed = subprocess.run(python, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    lines = printed.stdout.splitlines()
    if shown and shown[-1] == "...":
        lines = [*lines[: len(shown) - 1], "..."]
    return "\n".join([command, *lines]) + "\n"


def made(page: str) -> tuple[str, dict[str, str]]:
    """The page with outputs as they are now, and its pictures by name."""
    names: dict[str, Any] = {"__name__": "__main__"}
    pictures: dict[str, str] = {}
    printed = ""

    def replaced(part: re.Match[str]) -> str:
        nonlocal printed
        kind, block, name = part.groups()
        if kind == "python":
            for left in KINDS:
                names.pop(left, None)
            printed = run_python(block, names)
        elif kind == "text":
            return f"```text\n{printed}```"
        elif kind == "console" and block.startswith("$ python examples/"):
            return f"```console\n{run_example(block)}```"
        elif name is not None:
            pictures[name] = OF_EXAMPLES[name]() if name in OF_EXAMPLES else drawn(names)
        return part[0]

    return PARTS.sub(replaced, page), pictures


def drawn(names: dict[str, Any]) -> str:
    (kind,) = [kind for kind in KINDS if kind in names]
    return KINDS[kind](names[kind])


def main() -> None:
    page, pictures = made(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page, encoding="utf-8")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, svg in pictures.items():
        (PICTURES / f"{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
