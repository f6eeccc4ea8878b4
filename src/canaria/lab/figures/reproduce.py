"""Runs experiments: blocks as tasks on any engine, finished ones on disk, figures at the end."""

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


class Selection(NamedTuple):
    """The experiments to run."""

    names: tuple[str, ...]
    quick: bool = False
    trials: int | None = None
    seed: int = 0

    def settings(self) -> dict[str, Any]:
        """All settings that affect results, including the code, so that only the same code resumes a run."""
        return {**self._asdict(), "canaria": __version__, "code": source_digest()}


class Block(NamedTuple):
    """Some repetitions at one point, which is given by its index."""

    name: str
    quick: bool
    point: int
    block: int
    trials: int
    seed: int

    @property
    def key(self) -> str:
        """The name of the block in the store."""
        return f"{self.name}/{self.point}-{self.block}"


def select(names: list[str], quick: bool, trials: int | None, seed: int) -> Selection:
    """Check the requested experiments.

    Args:
        names: The names of the experiments; an empty list means all.
        quick: Whether to use fewer points and repetitions.
        trials: The number of repetitions, at least 2; None uses that of each experiment.
        seed: The seed.

    Example:
        >>> from canaria.lab.figures.reproduce import select
        >>> select(["laplace"], quick=True, trials=None, seed=0)
        Selection(names=('laplace',), quick=True, trials=None, seed=0)
    """
    for name in names:
        if name not in EXPERIMENTS:
            meant = nearest(name, EXPERIMENTS)
            raise InputError(f"experiment must be one of {', '.join(EXPERIMENTS)}, got {name!r}{meant}")
    if trials is not None:
        integer("trials", trials, 2)
    return Selection(tuple(dict.fromkeys(names)) or tuple(EXPERIMENTS), quick, trials, seed)


def run_block(name: str, quick: bool, point: int, block: int, trials: int, seed: int) -> list[Row]:
    """Play one block. The rows are the same on every engine."""
    experiment = EXPERIMENTS[name]
    points = experiment.quick_points if quick else experiment.points
    return experiment.block(points[point], trials, generator(seed, name, point, block))


def blocks(selected: Selection) -> Iterator[Block]:
    """All blocks of the selected experiments."""
    for name in selected.names:
        experiment = EXPERIMENTS[name]
        total = selected.trials or (experiment.quick_trials if selected.quick else experiment.trials)
        for point in range(len(experiment.quick_points if selected.quick else experiment.points)):
            for block, start in enumerate(range(0, total, experiment.block_size)):
                size = min(experiment.block_size, total - start)
                yield Block(name, selected.quick, point, block, size, selected.seed)


def reproduce(
    selected: Selection, store: Store, executor: Executor | None, on_block: Callable[[int, int], None]
) -> list[Path]:
    """Play the blocks that are missing, write data and pictures of every experiment, and return the paths.

    Args:
        selected: The experiments, as `select` returns them.
        store: The store for finished blocks and for the files.
        executor: The executor to run on; None runs everything in this process.
        on_block: Called with the numbers of finished and of all blocks, at the start and after each block.

    Example:
        ```python
        store = Store.open("figures", selected.settings(), resume=True)
        reproduce(selected, store, None, on_block=lambda done, total: print(done, "of", total))
        ```
    """
    wanted = {block.key: block for block in blocks(selected)}
    played = run_blocks(run_block, wanted, store, executor, on_block)
    # Keep the order of the selection, whichever block finished first: sums of floats depend on it.
    found: dict[str, list[Row]] = {name: [] for name in selected.names}
    for key, block in wanted.items():
        found[block.name] += played[key]
    figures = [(name, summary(rows)) for name, rows in found.items()]
    written = [
        store.write(f"{name}.{ending}", content)
        for (name, _), files in run_tasks(draw, figures, executor)
        for ending, content in files.items()
    ]
    return sorted(written)


def draw(name: str, rows: list[Row]) -> dict[str, bytes]:
    """The files of a figure by their ending: data, specification and pictures of summarised rows."""
    lines = "".join(json.dumps(row, allow_nan=False, ensure_ascii=False) + "\n" for row in rows)
    chart = EXPERIMENTS[name].chart(rows)
    return {"jsonl": lines.encode(), "vl.json": chart.to_json().encode(), **pictures(chart)}
