"""Running experiments: blocks as tasks on any engine, finished ones on disk, figures at the end."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

from canaria._core.checks import integer
from canaria._core.errors import InputError, nearest
from canaria._version import __version__
from canaria.lab.charts import pictures
from canaria.lab.engines import run_blocks, run_tasks
from canaria.lab.figures import EXPERIMENTS, summary
from canaria.lab.figures._experiment import Row, generator
from canaria.lab.store import Store, source_digest


class Plan(NamedTuple):
    """Which experiments, how many repetitions of each (None: their own), which seed."""

    names: tuple[str, ...]
    quick: bool = False
    trials: int | None = None
    seed: int = 0

    def settings(self) -> dict[str, Any]:
        """What decides the results: also the code, so that no run is resumed by another."""
        chosen = {"names": list(self.names), "quick": self.quick, "trials": self.trials, "seed": self.seed}
        return {**chosen, "canaria": __version__, "code": source_digest()}


class Block(NamedTuple):
    """A block of repetitions at a point."""

    name: str
    quick: bool
    point: int
    block: int
    trials: int
    seed: int

    @property
    def key(self) -> str:
        """The name of its file."""
        return f"{self.name}/{self.point}-{self.block}"


def plan(names: list[str], quick: bool, trials: int | None, seed: int) -> Plan:
    """Check what is asked for."""
    for name in names:
        if name not in EXPERIMENTS:
            meant = nearest(name, EXPERIMENTS)
            raise InputError(f"experiment must be one of {', '.join(EXPERIMENTS)}, got {name!r}{meant}")
    if trials is not None:
        integer("trials", trials, 2)
    return Plan(tuple(dict.fromkeys(names)) or tuple(EXPERIMENTS), quick, trials, seed)


def run_block(name: str, quick: bool, point: int, block: int, trials: int, seed: int) -> list[Row]:
    """Play one block; the same wherever it runs."""
    experiment = EXPERIMENTS[name]
    points = experiment.quick_points if quick else experiment.points
    return experiment.block(points[point], trials, generator(seed, name, point, block))


def blocks(planned: Plan) -> Iterator[Block]:
    """All blocks of a plan."""
    for name in planned.names:
        experiment = EXPERIMENTS[name]
        total = planned.trials or (experiment.quick_trials if planned.quick else experiment.trials)
        for point in range(len(experiment.quick_points if planned.quick else experiment.points)):
            for block, start in enumerate(range(0, total, experiment.block_size)):
                size = min(experiment.block_size, total - start)
                yield Block(name, planned.quick, point, block, size, planned.seed)


def reproduce(
    planned: Plan, store: Store, executor: Executor | None, on_block: Callable[[int, int], None]
) -> list[Path]:
    """Play what is missing, then write data and pictures of every experiment.

    `on_block(done, total)` is told after every block.
    """
    wanted = list(blocks(planned))
    run_blocks(run_block, {block.key: block for block in wanted}, store, executor, on_block)
    found: dict[str, list[Row]] = {name: [] for name in planned.names}
    for block in wanted:
        found[block.name] += store.load(block.key)
    figures = [(name, summary(rows)) for name, rows in found.items()]
    written = [
        store.write(f"{name}.{ending}", content)
        for (name, _), files in run_tasks(draw, figures, executor)
        for ending, content in files.items()
    ]
    return sorted(written)


def draw(name: str, rows: list[Row]) -> dict[str, bytes]:
    """The files of a figure by their endings: data, specification, pictures."""
    lines = "".join(json.dumps(row, allow_nan=False, ensure_ascii=False) + "\n" for row in rows)
    chart = EXPERIMENTS[name].chart(rows)
    return {"jsonl": lines.encode(), "vl.json": chart.to_json().encode(), **pictures(chart)}
