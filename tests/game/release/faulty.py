"""Releases that leak more than epsilon = 1, and releases that do not."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd

FRAME: Final = pd.DataFrame(
    {
        "town": np.random.default_rng(0).choice(list("abc"), 200),
        "income": np.random.default_rng(1).normal(50, 10, 200).clip(0, 100),
        "age": np.random.default_rng(2).integers(18, 90, 200),
    }
)
Release = Callable[[pd.DataFrame, np.random.Generator], Any]


@dataclass
class Model:
    """A noisy mean, and what the fit left behind."""

    mean: float
    _sums: list[float] = field(default_factory=list)


def unclipped(data: pd.DataFrame, rng: np.random.Generator) -> float:
    return data["income"].mean() + rng.laplace(scale=100 / max(len(data), 1))


def largest(data: pd.DataFrame, rng: np.random.Generator) -> dict[str, float]:
    return {"rows": len(data) + rng.laplace(), "largest": data["income"].max()}


def counted(data: pd.DataFrame, _: np.random.Generator) -> int:
    return len(data)


def by_town(data: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    counts = data["town"].value_counts()
    return pd.DataFrame({"town": counts.index, "people": counts.to_numpy() + rng.laplace(size=len(counts))})


def stored(data: pd.DataFrame, rng: np.random.Generator) -> Model:
    total = float(data["income"].clip(0, 100).sum())
    return Model(total + rng.laplace(scale=100), [total])


def refusing(data: pd.DataFrame, rng: np.random.Generator) -> float:
    if (data["income"] >= 70).sum() > (FRAME["income"] >= 70).sum():
        raise ValueError("too rich")
    return len(data) + rng.laplace()


def warning(data: pd.DataFrame, rng: np.random.Generator) -> float:
    if (data["income"] >= 70).sum() > (FRAME["income"] >= 70).sum():
        np.log(-1.0)
    return len(data) + rng.laplace()


def same_noise(data: pd.DataFrame, _: np.random.Generator) -> float:
    return len(data) + np.random.default_rng(0).laplace()


def regression(data: pd.DataFrame, rng: np.random.Generator) -> Any:
    """The second moments get noise for the lower ends of the ranges, which are 0 (diffprivlib issue 105)."""
    import diffprivlib
    from diffprivlib.models import LinearRegression

    made = LinearRegression(
        epsilon=1,
        bounds_X=(0, 100),
        bounds_y=(0, 100),
        fit_intercept=False,
        random_state=int(rng.integers(2**31)),
        accountant=diffprivlib.BudgetAccountant(),
    )
    return made.fit(data[["income"]].to_numpy(), data["age"].to_numpy())


FAULTS: Final[dict[str, tuple[Release, str]]] = {
    "unclipped": (unclipped, "the output is above"),
    "largest": (largest, "['largest'] is above"),
    "exact count": (counted, "the output is above 200.5"),
    "categories from the data": (by_town, "'canaria'"),
    "private attribute": (stored, "_sums[0] is above"),
    "warning": (warning, "it warns RuntimeWarning"),
    "one seed": (same_noise, "the output is above"),
}


def noisy_count(data: pd.DataFrame, rng: np.random.Generator) -> float:
    return len(data) + rng.laplace()


def clipped_sum(data: pd.DataFrame, rng: np.random.Generator) -> Model:
    return Model(float(data["income"].clip(0, 100).fillna(0).sum()) + rng.laplace(scale=100))


def histogram(data: pd.DataFrame, rng: np.random.Generator) -> dict[str, float]:
    counts = data["town"].value_counts()
    return {town: counts.get(town, 0) + rng.laplace() for town in "abc"}


def above_fifty(data: pd.DataFrame, rng: np.random.Generator) -> str:
    return "many" if (data["income"] > 50).sum() + rng.laplace() > 100 else "few"


def with_a_memory() -> Release:
    """Correct by itself, and everything but the data changes from call to call: order, type, global state."""
    earlier: list[pd.DataFrame] = []

    def release(data: pd.DataFrame, rng: np.random.Generator) -> Any:
        earlier.append(data.copy())
        data["income"] = 0.0  # a copy, so no other run sees this
        np.random.seed(len(earlier))  # noqa: NPY002
        noisy = len(data) + rng.laplace()
        return [noisy, len(earlier), len(earlier[-2]) if len(earlier) > 1 else 0, np.float32(noisy)]

    return release


CORRECT: Final[dict[str, Release]] = {
    "count": noisy_count,
    "clipped sum": clipped_sum,
    "histogram": histogram,
    "threshold": above_fifty,
    "with a memory": with_a_memory(),
    "constant": lambda _, __: {"version": 3},
    "noise": lambda _, rng: rng.normal(size=50),
    "refuses missing values": lambda data, rng: (
        noisy_count(data, rng) if data.notna().all(axis=None) else 1 / 0
    ),
}
