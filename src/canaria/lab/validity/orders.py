"""Attacks by the order of the list: scores without information, in lists that are sorted by the bits.

The bits are fair coins and nothing is released (epsilon = 0). But an auditor that breaks ties, bets or stops
by the position in the list reads the bits from it.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from canaria._core.arrays import Bits, Floats
from canaria.lab.validity._games import Case, Games, Shape, coins, drawing

DrawScores = Callable[[Shape, np.random.Generator], Floats]

_SCORES: Final[dict[str, DrawScores]] = {
    "constant": lambda shape, rng: np.ones(shape),
    "positive": lambda shape, rng: 1 + rng.random(shape),
    "rounded": lambda shape, rng: np.round(rng.normal(size=shape)),
}
_KEYS: Final[dict[str, Callable[[Floats, Bits], list[Floats | Bits]]]] = {
    "first": lambda scores, bits: [-bits],
    "last": lambda scores, bits: [bits],
    "sorted": lambda scores, bits: [-bits, -scores],
}
"""The sort keys of a list, with the last key first."""
_WORDS: Final = {
    "constant": "equal scores",
    "positive": "scores above 1, all different",
    "rounded": "rounded scores",
    "first": "members first",
    "last": "members last",
    "sorted": "by score, ties members first",
}


@drawing
def listed(shape: Shape, rng: np.random.Generator, level: float, order: str, scores: str) -> Games:
    """Uninformative scores in a list with this order."""
    bits, values = coins(shape, rng), _SCORES[scores](shape, rng)
    places = np.lexsort(_KEYS[order](values, bits), axis=1)
    return Games(np.take_along_axis(values, places, 1), np.take_along_axis(bits, places, 1))


ORDERS: Final = tuple(
    Case(
        f"{order}-{scores}",
        f"{_WORDS[scores]}, {_WORDS[order]}",
        listed(order, scores),
        0.0,
        n=200,
        listed=True,
    )
    for order in _KEYS
    for scores in _SCORES
)
