"""Auditing by many runs on neighbouring data sets, the classic way, as one game."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from canaria._core import checks
from canaria._core.arrays import Bits, Floats, Integers
from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed
from canaria.game.play import play
from canaria.game.transcript import Transcript
from canaria.mechanisms import AnalysedMechanism
from canaria.mechanisms._protocol import Output
from canaria.rules import AdaptiveRule, Rule


@dataclass(frozen=True, eq=False)
class Repeated:
    """Classic auditing as a game: element i is the i-th run of the mechanism.

    In every run the data are `base`, except for the element at `index`, which a fresh fair bit chooses. All
    other bits are known, as in the definition of DP, so there is no interference.
    """

    mechanism: AnalysedMechanism
    base: Bits
    index: int

    @property
    def epsilon(self) -> float:
        return self.mechanism.epsilon

    @property
    def adjacency(self) -> str:
        return self.mechanism.adjacency

    def sample(self, bits: Bits, rng: np.random.Generator) -> Any:
        """One output per run, (trials, runs, ...)."""
        data = np.broadcast_to(self.base, (bits.size, len(self.base))).copy()
        data[:, self.index] = bits.ravel()
        output = self.mechanism.sample(data, rng)
        return output.reshape(*bits.shape, *output.shape[1:])

    def loss(self, output: Output, known: Bits) -> Floats:
        """The privacy loss of the element, all others known; 0 for runs whose bit is revealed."""
        others = np.broadcast_to(self.base, (known.size, len(self.base))).copy()
        others[:, self.index] = 0
        flat = output.reshape(known.size, *output.shape[2:])
        losses = self.mechanism.loss(flat, others)[:, self.index]
        return np.where(known == 0, losses.reshape(known.shape), 0.0)

    def rounds(self, n: int) -> tuple[Integers, ...]:
        """One round: runs are independent."""
        return (np.arange(n),)


def many_runs(
    mechanism: Any,
    base: Any,
    index: int,
    pair: tuple[Any, Any] | None = None,
    repetitions: int = 1000,
    score: Callable[[Any], float] | None = None,
    rule: Rule | AdaptiveRule | None = None,
    rng: Seed = None,
) -> Transcript:
    """Classic auditing: run the mechanism many times on neighbouring data sets, each run an element.

    Args:
        mechanism: A mechanism of `canaria.mechanisms`, whose privacy loss is the score, or a function
            `(data, rng) -> output`.
        base: The data set: bits (-1/+1, 0/1 or booleans) for a mechanism, a list of elements for a function.
        index: The place of the element that differs between the data sets.
        pair: The two candidates for that place; only for a function.
        repetitions: The number of runs.
        score: A function `score(output)`, higher meaning "the second candidate more likely"; only for a
            function as mechanism.
        rule: How scores become guesses; by default `Ranked()`.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Raises:
        InputError: If `pair` and `score` are missing for a function or given for a mechanism.

    Example:
        >>> from canaria import many_runs
        >>> from canaria.mechanisms import Xor
        >>> many_runs(Xor(), base=[1, -1, 1], index=0, repetitions=100, rng=0).bound().epsilon > 2
        True
    """
    checks.integer("repetitions", repetitions, 1)
    if not isinstance(base, Sequence | np.ndarray):
        raise InputError(f"base must be a sequence of elements, got {shown(base)}")
    place = checks.integer("index", index, 0, len(base) - 1, "len(base) - 1")
    if hasattr(mechanism, "sample"):
        if pair is not None or score is not None:
            raise InputError("pair and score go with a function as mechanism; this mechanism has its own")
        bits = np.where(checks.two_valued("base", base), 1, -1).astype(np.int8)
        return play(Repeated(mechanism, bits, place), None, rule, repetitions, rng=rng)
    if pair is None or score is None:
        raise InputError("pair and score must be given for a function: pair=(x, y), score(output) -> number")
    rows = list(base)

    def run_all(elements: list[Any], stream: np.random.Generator) -> list[Any]:
        return [mechanism([*rows[:place], element, *rows[place + 1 :]], stream) for element in elements]

    def score_all(outputs: list[Any], known: Bits) -> list[float]:
        return [score(output) for output in outputs]

    return play(run_all, score_all, rule, rng=rng, pairs=[pair] * repetitions)
