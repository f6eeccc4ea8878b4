"""What moves when only the data change: a hint where two data sets may be told apart, and by what.

A look compares one run on a data set with runs on its neighbour, of which one has the same seed. No coin is
tossed for these runs, so they are no evidence, and nothing that is seen here can make a bound wrong.
"""

import math
import re
from functools import partial
from typing import Final

import numpy as np

from canaria.game.release.outputs import any_place, table

Numbers = dict[str, float]

_ALIKE: Final = 1e-9
"""Numbers within this relative distance are equal: the order of a sum changes it by less."""
_SINGLE: Final = 3e-7
"""The same for sums of numbers in single precision."""
_BY_CHANCE: Final = 4.0
"""With other randomness, the number that moves most moves by about this many times its own spread."""
_SHRUNK: Final = 0.4
"""The largest of many ratios, with spreads from four runs, promises too much.

At 1, pairs were left again and again for others that were no better: noise 3 to 6 times too small was found
in 42 of 60 checks, and at 0.4 in 50.
"""
_AN_ATTRIBUTE: Final = re.compile(r"\.\w+(\[[^]]*\])*$")
"""An attribute, or what is stored in one, such as the first number of a stored shape."""
_FORM: Final = re.compile(r"\.(rows|size|finite|different|shape\[\d+\])$| is |\.index")
"""Names of sizes, types and labels."""


def moved(base: list[Numbers], other: Numbers) -> tuple[float, dict[str, int]]:
    """How far the number that moved most moved, in deviations, and the rank of every number by that.

    `base` are runs on the first data set with several seeds; `other` is one on the second, with the first of
    these seeds.
    """
    names = list(dict.fromkeys(name for one in (*base, other) for name in one))
    values, new = table(base, names), table([other], names)[0]
    with np.errstate(invalid="ignore", over="ignore"):
        spread = np.nan_to_num(values.std(axis=0), nan=0.0)
        shift = np.abs(new - values[0])
        size = np.maximum(np.abs(values[0]), np.abs(new))
    shift[(new == values[0]) | (shift <= _ALIKE * size)] = 0.0
    absent = np.isnan(values)
    appears = np.where(np.isnan(new), ~absent.any(axis=0), absent.all(axis=0))
    ratio = np.divide(shift, spread, out=np.where(shift > 0, np.inf, 0.0), where=spread > 0)
    ratio = np.where(appears, np.inf, np.nan_to_num(ratio, nan=0.0, posinf=np.inf))
    # Of numbers that move alike, a value says more to a reader than a size or a type.
    form = np.array([bool(_FORM.search(name)) for name in names])
    order = np.lexsort(np.stack([form, -ratio]))
    return float(ratio.max(initial=0.0)), {names[column]: rank for rank, column in enumerate(order)}


def promised(ratio: float, *, same_randomness: bool) -> float:
    """The nats that a guess may show if a number moves by so many deviations; at most ln 2.

    Two normal laws whose means are r deviations apart show about r^2 / 8. If a seed does not fix the
    randomness, a number moves by chance alone.
    """
    real = _SHRUNK * ratio if same_randomness else ratio / _BY_CHANCE
    return math.log(2) * -math.expm1(-(real**2) / (8 * math.log(2)))


def row_counts(base: list[Numbers], other: Numbers, first: int, second: int) -> set[str]:
    """The attributes and shapes that are the number of rows, which libraries take as public.

    So is the place of a last element, but not what is there: the ends of all elements have names of their
    own. A number that is returned as such, or in a dict or a list, is a release like any other.
    """
    if first == second:
        return set()
    found = {name for name, value in other.items() if value == second and _AN_ATTRIBUTE.search(name)}
    found = {name for name in found if all(one.get(name) == first for one in base)}
    means = {
        name
        for name in other
        if name.startswith("mean of ")
        and _follows(name, [one.get(name, math.nan) for one in base], other, found, first, second)
    }
    last = re.compile(rf"\[{first}[],]") if found else re.compile(r"$.")
    return (
        found | means | {name for name in other if last.search(name) and not any(name in one for one in base)}
    )


def _follows(
    name: str, before: list[float], other: Numbers, found: set[str], first: int, second: int
) -> bool:
    """Whether a mean moves as the number of rows does: of counts that add up to it, or beside constants."""
    close = partial(math.isclose, rel_tol=_SINGLE)
    where, after = name.removeprefix("mean of "), other[name]
    share = sum(any_place(one) == where for one in found) / sum(any_place(one) == where for one in other)
    return all(
        close(after * first, mean * second) or close(after - share * second, mean - share * first)
        for mean in before
    )
