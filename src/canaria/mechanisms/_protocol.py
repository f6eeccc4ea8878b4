"""The three interfaces of mechanisms: they can be sampled, scored, or analysed.

Arrays have a leading axis of trials: bits are (trials, n) in {-1, +1}, losses (trials, n). In `known` a
revealed bit is -1 or +1 and a hidden one 0.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from canaria._core.arrays import Bits, Floats, Integers
from canaria._core.errors import InputError, shown

Output = npt.NDArray[Any]


class Outcomes(NamedTuple):
    """Outputs under uniform bits with their probabilities, up to symmetries that keep every |loss|.

    Attributes:
        outputs: The outputs.
        chances: The probability of each output.

    Example:
        >>> from canaria.mechanisms import Count
        >>> found = Count().outcomes(2)
        >>> found.outputs.ravel().tolist(), found.chances.round(3).tolist()
        ([0, 1, 2], [0.25, 0.5, 0.25])
    """

    outputs: Output
    chances: Floats


class Mechanism(Protocol):
    """The least that can be audited: an object that takes hidden bits and releases an output.

    Attributes:
        adjacency: "add-remove" or "replace".

    Example:
        >>> import numpy as np
        >>> from canaria.mechanisms import Count
        >>> mechanism = Count()
        >>> mechanism.adjacency
        'add-remove'
        >>> bits = np.array([[1, -1, 1]], dtype=np.int8)
        >>> mechanism.sample(bits, np.random.default_rng(0)).tolist()
        [2]
    """

    @property
    def adjacency(self) -> str: ...
    def sample(self, bits: Bits, rng: np.random.Generator) -> Output: ...


class ScoredMechanism(Mechanism, Protocol):
    """A mechanism that knows its distributional privacy loss, so that it can be guessed optimally.

    `loss(output, known)` is, for every element i that is not revealed, ln Pr[output | S_i = +1, revealed
    bits] / Pr[output | S_i = -1, revealed bits], the hidden others averaged out; it is 0 for revealed
    elements. `rounds(n)` is a sensible adaptive order: sets of elements; the bits of each set are revealed
    before the next set is guessed.

    Example:
        >>> import numpy as np
        >>> from canaria.mechanisms import Count
        >>> Count().loss(np.array([3]), np.zeros((1, 4), dtype=np.int8)).round(3).tolist()
        [[1.099, 1.099, 1.099, 1.099]]
    """

    def loss(self, output: Output, known: Bits) -> Floats: ...
    def rounds(self, n: int) -> tuple[Integers, ...]: ...


class AnalysedMechanism(ScoredMechanism, Protocol):
    """A mechanism whose theory is known: the most that one run can show of it can be computed.

    `ddp(n)` is the largest |loss| that any output can show when nothing is revealed. `outcomes(n)` lists all
    outputs with their probabilities, or is None if they cannot be enumerated.

    Attributes:
        epsilon: The (pure) privacy level.

    Example:
        >>> from canaria.mechanisms import CountInSets
        >>> mechanism = CountInSets(4)
        >>> mechanism.epsilon, mechanism.ddp(8)
        (inf, inf)
    """

    @property
    def epsilon(self) -> float: ...
    def ddp(self, n: int) -> float: ...
    def outcomes(self, n: int) -> Outcomes | None: ...


class OneRound:
    """The defaults of mechanisms: revealed bits do not help, and outputs cannot be listed."""

    def rounds(self, n: int) -> tuple[Integers, ...]:
        """All elements in one round: revealed bits say nothing about the others."""
        return (np.arange(n),)

    def ddp(self, n: int) -> float:
        """The privacy level: some output shows as much, as no other element blurs the loss."""
        return float(self.epsilon)  # type: ignore[attr-defined]

    def outcomes(self, n: int) -> Outcomes | None:
        """None: outputs are continuous, or not known."""
        return None


def called(name: str, function: Callable[..., Any], *arguments: object) -> Any:
    """Call a user's function; any exception becomes an InputError of one line that names the function."""
    try:
        return function(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise InputError(f"{name} raised {type(error).__name__}: {shown(str(error))}") from error


def certain(signs: npt.NDArray[Any]) -> Floats:
    """The loss of an element whose bit is released as it is (0 stays 0)."""
    return np.where(signs > 0, math.inf, np.where(signs < 0, -math.inf, 0.0))
