"""What a check of a release costs beyond the runs of the function itself, for outputs of 1,000 numbers."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from canaria import check_release

RUNS = 300
ROWS = np.random.default_rng(0).uniform(0, 1, (200, 5))
NUMBERS = 1000


class Model:
    """What a fit leaves behind: numbers in attributes, a list and a dict."""

    def __init__(self, numbers: np.ndarray) -> None:
        self.weights, self._bias = numbers[:500].reshape(20, 25), numbers[500:600]
        self.steps = list(numbers[600:800])
        self.groups = {f"group {place}": number for place, number in enumerate(numbers[800:])}


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda numbers: numbers,
    "list": list,
    "dict": lambda numbers: {f"n{place}": number for place, number in enumerate(numbers.tolist())},
    "frame": lambda numbers: pd.DataFrame(numbers.reshape(100, 10), columns=list("abcdefghij")),
    "object": Model,
}


def main() -> None:
    """Print milliseconds for each run."""
    print(f"{'output':8} {'the function':>14} {'the check':>11}   milliseconds for each run")
    for name, form in FORMS.items():
        spent = 0.0

        def fit(data: np.ndarray, rng: np.random.Generator, form: Any = form) -> Any:
            nonlocal spent
            began = time.perf_counter()
            found = form(data.clip(0, 1).sum() + rng.laplace(scale=5000.0, size=NUMBERS))
            spent += time.perf_counter() - began
            return found

        began = time.perf_counter()
        result = check_release(fit, ROWS, epsilon=1.0, runs=RUNS, rng=0)
        whole = time.perf_counter() - began
        runs = int(result.facts["runs"].split()[0])
        print(f"{name:8} {1e3 * spent / runs:14.2f} {1e3 * (whole - spent) / runs:11.2f}   {result.answer}")


if __name__ == "__main__":
    main()
