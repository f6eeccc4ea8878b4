"""An experiment: points, blocks of repetitions at each point, and a chart of the means."""

import math
import zlib
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from canaria.lab.charts import line_chart

Row = dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """One figure.

    Attributes:
        name: The name on the command line.
        about: A short description of the figure.
        points: The points at which the experiment is run.
        quick_points: The points of a quick run.
        block: A function `(point, trials, rng)` that plays the repetitions at a point. It returns a row per
            repetition and series, with `value` and the keys that say where it belongs (x, series, panel).
        title: The title of the chart.
        subtitle: The setting.
        x: The title of the axis of the points.
        y: The title of the axis of the values.
        log_x: Whether the axis of the points is logarithmic.
        theory: A function from the summarised rows to further rows for the chart, such as a limit.
        trials: The number of repetitions at each point.
        quick_trials: The number of repetitions in a quick run.
        block_size: The number of repetitions in a block.

    Example:
        >>> from canaria.lab.figures import EXPERIMENTS
        >>> experiment = EXPERIMENTS["laplace"]
        >>> experiment.trials, experiment.quick_trials
        (20, 10)
    """

    name: str
    about: str
    _: KW_ONLY
    points: tuple[Any, ...]
    quick_points: tuple[Any, ...]
    block: Callable[[Any, int, np.random.Generator], list[Row]]
    title: str
    subtitle: str
    x: str
    y: str = "bound on ε"
    log_x: bool = True
    theory: Callable[[list[Row]], list[Row]] = lambda rows: []
    trials: int = 200
    quick_trials: int = 10
    block_size: int = 20

    def chart(self, rows: list[Row]) -> Any:
        """Draw the means of summarised rows."""
        shown = [*rows, *self.theory(rows)]
        return line_chart(shown, self.title, self.subtitle, self.x, self.y, log_x=self.log_x)


def generator(seed: int, name: str, point: int, block: int) -> np.random.Generator:
    """The generator of one block: the same on every engine and for any number of workers."""
    return np.random.default_rng(
        np.random.SeedSequence(seed, spawn_key=(zlib.crc32(name.encode()), point, block))
    )


def summary(rows: list[Row]) -> list[Row]:
    """Mean, standard error and number of repetitions of every group of rows, in order of appearance.

    Args:
        rows: Rows with `value`; rows that agree in all other keys form a group.

    Example:
        >>> from canaria.lab.figures import summary
        >>> summary([{"x": 1, "value": 2.0}, {"x": 1, "value": 4.0}])
        [{'x': 1, 'mean': 3.0, 'error': 1.0, 'trials': 2}]
    """
    groups: dict[tuple[tuple[str, Any], ...], list[float]] = {}
    for row in rows:
        key = tuple((name, value) for name, value in row.items() if name != "value")
        groups.setdefault(key, []).append(row["value"])
    found = []
    for key, values in groups.items():
        error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
        found.append({**dict(key), "mean": float(np.mean(values)), "error": error, "trials": len(values)})
    return found
