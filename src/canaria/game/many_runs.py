"""Auditing by many runs on neighbouring data sets, the classic way, as one game."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from canaria._core import checks
from canaria._core.arrays import Bits, Floats, Integers
from canaria._core.copies import copied
from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed
from canaria.game.play import play
from canaria.game.transcript import Transcript
from canaria.mechanisms import AnalysedMechanism
from canaria.mechanisms._protocol import Output
from canaria.rules import AdaptiveRule, Rule

_NEEDED: Final = "pair and score must be given for a function: pair=(x, y), score(output) -> number"


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
    base: Any = None,
    index: int | None = None,
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
            None if `pair` are whole data sets.
        index: The place of the element that differs between the data sets.
        pair: The two candidates for that place; or, without `base`, two whole data sets of any kind (frames,
            arrays, lists), of which each run gets a copy. If one has more rows than the other, the bound is
            about added and removed rows. Only for a function.
        repetitions: The number of runs.
        score: A function `score(output)`, higher meaning "the second candidate more likely"; only for a
            function as mechanism.
        rule: How scores become guesses; by default `Ranked()`.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Raises:
        InputError: If `pair` and `score` are missing for a function or given for a mechanism, or if only one
            of `base` and `index` is given.

    Example:
        >>> from canaria import many_runs
        >>> from canaria.mechanisms import Xor
        >>> many_runs(Xor(), base=[1, -1, 1], index=0, repetitions=100, rng=0).bound().epsilon > 2
        True
        >>> import numpy as np
        >>> ages = np.array([30.0, 40.0, 900.0])  # the mean of ages is not clipped
        >>> def noisy_mean(rows, rng):
        ...     return rows.mean() + rng.laplace(scale=50)
        >>> many_runs(noisy_mean, pair=(ages[:2], ages), score=float, rng=0).bound().adjacency
        'add-remove'
    """
    checks.integer("repetitions", repetitions, 1)
    if base is None and index is None and not hasattr(mechanism, "sample"):
        return _on_two_data_sets(mechanism, pair, repetitions, score, rule, rng)
    if not isinstance(base, Sequence | np.ndarray):
        raise InputError(f"base must be a sequence of elements, got {shown(base)}")
    place = checks.integer("index", index, 0, len(base) - 1, "len(base) - 1")
    if hasattr(mechanism, "sample"):
        if pair is not None or score is not None:
            raise InputError("pair and score go with a function as mechanism; this mechanism has its own")
        bits = np.where(checks.two_valued("base", base), 1, -1).astype(np.int8)
        return play(Repeated(mechanism, bits, place), None, rule, repetitions, rng=rng)
    if pair is None or score is None:
        raise InputError(_NEEDED)
    rows = list(base)

    def run_all(elements: list[Any], stream: np.random.Generator) -> list[Any]:
        return [mechanism([*rows[:place], element, *rows[place + 1 :]], stream) for element in elements]

    return play(run_all, _each(score), rule, rng=rng, pairs=[pair] * repetitions)


def _on_two_data_sets(
    function: Callable[[Any, np.random.Generator], Any],
    pair: tuple[Any, Any] | None,
    repetitions: int,
    score: Callable[[Any], float] | None,
    rule: Rule | AdaptiveRule | None,
    rng: Seed,
) -> Transcript:
    """Each run gets a copy of one of two data sets, so that no run can change what another sees."""
    if pair is None or score is None:
        raise InputError(_NEEDED)
    rows = [_rows(data) for data in pair]

    def run_all(chosen: list[int], stream: np.random.Generator) -> list[Any]:
        # Copied one at a time: all at once, large data sets would not fit into memory.
        return [function(copied("pair", pair[which]), stream) for which in chosen]

    found = play(run_all, _each(score), rule, rng=rng, pairs=[(0, 1)] * repetitions)
    return found if rows[0] == rows[1] else replace(found, adjacency="add-remove")


def _rows(data: Any) -> int:
    """The number of rows: of a tuple or a dict of arrays, such as features and labels, those of the first."""
    if isinstance(data, tuple | dict) and len(data):
        return _rows(next(iter(data.values() if isinstance(data, dict) else data)))
    if not hasattr(data, "__len__"):
        raise InputError(f"pair must be two data sets that have a length, got {shown(data)}")
    return len(data)


def _each(score: Callable[[Any], float]) -> Callable[[list[Any], Bits], list[float]]:
    return lambda outputs, known: [score(output) for output in outputs]
