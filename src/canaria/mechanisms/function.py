"""A user's function as a mechanism: one data set in, one output out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from canaria._core.arrays import Bits, Integers
from canaria._core.copies import copied
from canaria._core.errors import InputError, shown
from canaria.mechanisms._protocol import Output, called


@dataclass(frozen=True)
class Function:
    """A user's function as a mechanism; its loss is not known, so a game needs a score.

    Attributes:
        run: A function `(data, rng)`, called once per trial.
        pairs: None, or a sequence of (x_i, y_i) of any type. Without pairs, data is an array of booleans,
            True where the element is included: add-remove adjacency if an excluded element contributes
            nothing. With pairs, data is the list of x_i where the bit is -1 and y_i where it is +1:
            replace-one adjacency. They are copies, so that changes that a run makes to its data do not show
            in another run which data it had.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import Function
        >>> histogram = Function(lambda included, rng: included + rng.laplace(size=len(included)))
        >>> play(histogram, score=lambda output, known: output, n=500, rng=0).bound().epsilon < 1
        True
    """

    run: Callable[[Any, np.random.Generator], Any]
    pairs: Sequence[tuple[Any, Any]] | None = None

    def __post_init__(self) -> None:
        if not callable(self.run):
            raise InputError(f"mechanism must be callable, got {shown(self.run)}")
        for index, pair in enumerate(self.pairs or ()):
            if not isinstance(pair, Sequence) or len(pair) != 2:
                raise InputError(f"pairs must hold pairs (x, y), got {shown(pair)} at position {index}")
            if _same(*pair):
                raise InputError(f"pairs must differ, got {shown(pair)} at position {index}")

    @property
    def adjacency(self) -> str:
        """The adjacency: "replace" with pairs, "add-remove" without."""
        return "add-remove" if self.pairs is None else "replace"

    def sample(self, bits: Bits, rng: np.random.Generator) -> Output:
        """Run the function once per trial, each with its own generator."""
        outputs = np.empty(len(bits), dtype=object)
        for trial, stream in enumerate(rng.spawn(len(bits))):
            outputs[trial] = self._run(bits[trial], stream)
        return outputs

    def rounds(self, n: int) -> tuple[Integers, ...]:
        """One round; pass your own rounds to `play` for adaptive auditing."""
        return (np.arange(n),)

    def _run(self, bits: Bits, rng: np.random.Generator) -> Any:
        data: Any = bits > 0
        if self.pairs is not None:
            if len(self.pairs) != len(bits):
                raise InputError(f"pairs must be as many as n, got {len(self.pairs)} and {len(bits)}")
            chosen = (pair[int(bit > 0)] for pair, bit in zip(self.pairs, bits, strict=True))
            data = [copied("pairs", element) for element in chosen]
        return called("mechanism", self.run, data, rng)


def _same(one: Any, other: Any) -> bool:
    """Whether two elements are surely equal; those that cannot be compared are taken to differ."""
    if one is other:
        return True
    try:
        equal = np.asarray(one == other)
        return bool(equal.all()) and np.shape(one) == np.shape(other)
    except Exception:  # an element may be of any type, and its comparison may raise anything
        return False
