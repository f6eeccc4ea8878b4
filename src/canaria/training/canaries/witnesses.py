"""Witnesses: weights that never carry a canary, on which every step shows its noise and nothing else.

At a witness, the noisy sum less the clipped sum is the noise of that weight. In correct training it is
N(0, sigma_t^2), independent of everything else. Witnesses do not depend on the hidden bits. They lie where
faults show:

    aligned    the same few indices in every parameter, their neighbours along each axis, and the same
               half a parameter further: noise that is generated once and reused for several parameters,
               rows or halves agrees there;
    scattered  random places: they show missing noise and the distribution of single values.

The audit keeps, in units of the stated noise: the sum of squares of each step and of each witness, the number
of values of some witnesses in each of a few cells, and the signs of the first steps. In addition, it adds up
the noise of all weights of a parameter in each step. If noise is used twice, in any order, these totals are
larger, smaller or more alike than chance allows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from canaria._core.arrays import Floats, Hits, Integers

EDGES: Final = (0.5, 1.0, 2.0, 3.0, 4.0)
"""Boundaries of the cells by which absolute values are counted."""
MOST_STEPS: Final = 4096
"""Signs are kept for this many steps, the first ones. After that, squares of several steps are added up."""
_ALIGNED: Final = (0, 1, 2, 3, 17, 29, 40, 51)
"""Indices at which every large enough parameter has witnesses."""
_FOLLOWED: Final = (0, 1)
"""For these indices, the neighbour along each axis and the index half a parameter further are used too."""
_MOST_PARAMETERS: Final = 48
"""With more parameters than this, a random subset of them has aligned witnesses."""
_SCATTERED: Final = 1024
_AT_LEAST: Final = 4
"""Each parameter gets at least this many coordinates with canaries, if there are enough."""
_MOST_SPANNED: Final = 8
"""A coordinate that spans several parameters spans this many, if there are enough."""


class Layout(NamedTuple):
    """The positions of canaries and witnesses in each parameter, as flat indices.

    A coordinate is one weight, or a direction with equal weights in several parameters, one in each.

    Attributes:
        canaries: For each parameter, the weights that carry canaries.
        coordinates: For each parameter, the coordinates that these weights belong to.
        witnesses: For each parameter, its witnesses.
        layers: The number of coordinates in each parameter that has some, then of those that span several.
        roles: The tests that each witness is used for, in the order of `witnesses`.
    """

    canaries: tuple[Integers, ...]
    coordinates: tuple[Integers, ...]
    witnesses: tuple[Integers, ...]
    layers: tuple[int, ...]
    roles: "Roles"

    @property
    def spans(self) -> Integers:
        """The number of weights of each coordinate."""
        return np.bincount(np.concatenate(self.coordinates), minlength=sum(self.layers))


@dataclass(frozen=True, eq=False, kw_only=True)
class Roles:
    """The tests that each witness is used for.

    Attributes:
        parameter: The parameter of each witness.
        index: The flat index of an aligned witness; -1 for a scattered one.
        shaped: Whether the values of a witness are counted by size. If not, their squares are summed.
        whole: The parameters whose noise is summed over all weights.
        sizes: The numbers of weights of the parameters in `whole`.
    """

    parameter: Integers
    index: Integers
    shaped: Hits
    whole: Integers
    sizes: Integers

    @cached_property
    def firsts(self) -> Integers:
        """The first three aligned witnesses of each parameter that has at least three, (parameters, 3)."""
        aligned = np.flatnonzero(self.index >= 0)
        each = [aligned[self.parameter[aligned] == place][:3] for place in np.unique(self.parameter[aligned])]
        return np.array([three for three in each if len(three) == 3], dtype=np.int64).reshape(-1, 3)


def layout(
    shapes: Sequence[tuple[int, ...]],
    coordinates: int,
    rng: np.random.Generator,
    *,
    home: Sequence[int] = (),
    across: Sequence[int] = (),
    coarse: Sequence[int] = (),
    spanning: int = 0,
    totalled: bool = True,
) -> Layout:
    """Random places for canaries and witnesses in parameters of these shapes.

    Canaries follow one of three designs: they fill parameters of their own (`home`), have a weight in each of
    some parameters (`across`), or lie anywhere, where some coordinates may span several parameters
    (`spanning`). The design decides how many weights each parameter gives. The rest is the same for all:
    aligned witnesses first, then canaries and scattered witnesses by one draw among the other weights.

    The order of the draws from `rng` must not change, because every process that trains derives the places
    from the seed of the audit alone (Theorem 34).

    Args:
        shapes: The shapes of the parameters.
        coordinates: The number of coordinates with canaries. They take precedence: if weights are scarce,
            there are fewer witnesses.
        rng: The random generator for the places.
        home: The parameters that belong to the canaries, if any. Each canary spans all of them.
        across: The parameters that each coordinate spans, with one weight in each. Each must have at least as
            many weights as there are coordinates.
        coarse: The parameters without witnesses because their sums are rounded too coarsely (half precision).
        spanning: The number of coordinates, counted from the last, that span several parameters.
        totalled: Whether the noise of whole parameters can be summed.
    """
    sizes = np.array([math.prod(shape) for shape in shapes])
    blind = {*coarse, *home}
    watched = np.array([0 if place in blind else size for place, size in enumerate(sizes.tolist())])
    room = int(watched.sum()) - (0 if home else coordinates * max(len(across), 1))
    # A blind parameter gets the shape of a number, which has no aligned indices. Aligned witnesses may take
    # half of the weights that canaries leave, so that scattered ones find room too.
    open_shapes = [() if place in blind else shape for place, shape in enumerate(shapes)]
    aligned = _aligned(open_shapes, room // 2, rng)
    for place in across:
        aligned[place] = aligned[place][: sizes[place] - coordinates]
    known = np.array([len(some) for some in aligned])
    if across:
        carried = _in_each(across, coordinates, len(sizes))
    elif home:
        carried = _at_home(len(sizes))
    else:
        carried = _anywhere(np.maximum(sizes - known, 0), coordinates, spanning, rng)
    left = np.maximum(watched - known - carried.single - carried.shared, 0)
    scattered = shares(left.tolist(), min(_SCATTERED, int(left.sum())))
    carrying, others = _placed(sizes, aligned, carried, scattered, rng)
    for place in home:
        carrying[place] = np.arange(coordinates)
    whole = np.array([place for place in range(len(sizes)) if place not in coarse and totalled], np.int64)
    whole = whole[sizes[whole] > 0]
    parameter, index, shaped = _roles(aligned, others, rng)
    return Layout(
        tuple(carrying),
        tuple(_coordinates(carrying, carried, together=bool(home or across))),
        tuple(np.concatenate(both) for both in zip(aligned, others, strict=True)),
        (coordinates,) if home else carried.layers,
        Roles(parameter=parameter, index=index, shaped=shaped, whole=whole, sizes=sizes[whole]),
    )


class _Carried(NamedTuple):
    """The number of weights in each parameter that carry canaries. The weights themselves are drawn later.

    Attributes:
        single: For each parameter, the number of weights that are coordinates of their own.
        shared: For each parameter, the number of weights that belong to coordinates spanning several.
        several: The number of coordinates that span several parameters.
        spanned: The parameters that each of these coordinates spans, if they are drawn at random.
    """

    single: Integers
    shared: Integers
    several: int
    spanned: list[Integers]

    @property
    def layers(self) -> tuple[int, ...]:
        """The numbers of coordinates in each parameter that has its own, and of those that span several."""
        return tuple(count for count in (*self.single.tolist(), self.several) if count)


def _in_each(across: Sequence[int], coordinates: int, parameters: int) -> _Carried:
    """For layers that are clipped separately: each coordinate has one weight in each of these parameters."""
    shared = np.zeros(parameters, dtype=np.int64)
    shared[list(across)] = coordinates
    return _Carried(np.zeros(parameters, dtype=np.int64), shared, coordinates, [])


def _at_home(parameters: int) -> _Carried:
    """For canaries that fill parameters of their own: they use no weight of other parameters."""
    none = np.zeros(parameters, dtype=np.int64)
    return _Carried(none, none, 0, [])


def _anywhere(free: Integers, coordinates: int, spanning: int, rng: np.random.Generator) -> _Carried:
    """For canaries among the weights of the model: single weights first, then `spanning` that span several.

    Coordinates that span several parameters show whether gradients are clipped as a whole: if each parameter
    is clipped separately, such a canary weighs too much (Theorem 26).
    """
    single = np.array(shares(free.tolist(), coordinates - spanning))
    spanned = _spanned(np.maximum(free - single, 0), spanning, rng)
    shared = np.bincount(np.concatenate([np.zeros(0, np.int64), *spanned]), minlength=len(free))
    return _Carried(single, shared, spanning, spanned)


def _placed(
    sizes: Integers,
    aligned: list[Integers],
    carried: _Carried,
    scattered: list[int],
    rng: np.random.Generator,
) -> tuple[list[Integers], list[Integers]]:
    """The weights of each parameter that carry canaries, and its scattered witnesses, from one draw.

    One draw without replacement keeps them apart. It is in random order, so any part of it is a random
    subset. Single weights are sorted, as are witnesses. The others stay in random order, so which weights
    make up one coordinate is random too.
    """
    carrying, others = [], []
    for place, (size, some) in enumerate(zip(sizes.tolist(), aligned, strict=True)):
        own, alone = int(carried.single[place] + carried.shared[place]), carried.single[place]
        chosen = _without(size, some, own + scattered[place], rng)
        carrying.append(np.concatenate([np.sort(chosen[:alone]), chosen[alone:own]]))
        others.append(np.sort(chosen[own:]))
    return carrying, others


def _spanned(rooms: Integers, count: int, rng: np.random.Generator) -> list[Integers]:
    """The parameters that each of `count` coordinates spans. At most half of a small parameter is used."""
    found, half = [], rooms // 2
    for left in range(count, 0, -1):
        # Each of the `left` - 1 coordinates after this one must still find a weight.
        spare = max(int(rooms.sum()) - left + 1, 1)
        most = rng.permutation(np.flatnonzero(half > 0))[: min(_MOST_SPANNED, spare)]
        if len(most) == 0:
            most = np.flatnonzero(rooms > 0)[:1]
        rooms, half = rooms - np.isin(np.arange(len(rooms)), most), half - np.isin(np.arange(len(half)), most)
        found.append(np.sort(most))
    return found


def _coordinates(carrying: list[Integers], carried: _Carried, *, together: bool) -> list[Integers]:
    """The coordinate of each weight that carries canaries. If `together`, each spans all parameters."""
    if together:
        return [np.arange(len(some)) for some in carrying]
    return _numbered(carried.single, carried.spanned)


def _numbered(single: Integers, spanned: list[Integers]) -> list[Integers]:
    """The coordinates in each parameter: first its own, then those that span several."""
    ends = np.cumsum(single)
    return [
        np.concatenate(
            [np.arange(end - own, end), ends[-1] + np.flatnonzero([place in some for some in spanned])]
        ).astype(np.int64)
        for place, (own, end) in enumerate(zip(single.tolist(), ends.tolist(), strict=True))
    ]


def shares(sizes: Sequence[int], count: int) -> list[int]:
    """The number of coordinates for each size: a minimum for small sizes, the rest in proportion.

    >>> shares([900, 90, 10], 100)
    [78, 14, 8]
    >>> shares([3, 5], 8)
    [3, 5]
    >>> shares([900, 90, 10, 1], 10)
    [5, 2, 2, 1]
    """
    wholes = np.array(sizes, dtype=np.int64)
    # A quarter of the coordinates is divided evenly, so that small parameters are tested too.
    floor = max(count // (4 * len(wholes)), min(_AT_LEAST, count // len(wholes)))
    given = np.minimum(wholes, floor)
    while given.sum() < count:
        room = wholes - given
        more = np.minimum(room, np.floor(room * ((count - given.sum()) / room.sum())).astype(np.int64))
        # Rounding down leaves a few coordinates. They go one by one to the parameters with the most room.
        if more.sum() == 0:
            largest = np.argsort(-room, kind="stable")[: count - int(given.sum())]
            more[largest[room[largest] > 0]] = 1
        given = given + more
    return [int(share) for share in given]


def _aligned(shapes: Sequence[tuple[int, ...]], room: int, rng: np.random.Generator) -> list[Integers]:
    """Aligned indices of each parameter, up to a common number that there is room for."""
    some = np.arange(len(shapes))
    if len(shapes) > _MOST_PARAMETERS:
        some = np.sort(rng.choice(some, _MOST_PARAMETERS, replace=False))
    wanted = [_indices(shape) if place in set(some.tolist()) else [] for place, shape in enumerate(shapes)]
    most = max(map(len, wanted), default=0)
    while most > 0 and sum(min(len(one), most) for one in wanted) > room:
        most -= 1
    return [np.sort(np.array(one[:most], dtype=np.int64)) for one in wanted]


def _indices(shape: tuple[int, ...]) -> list[int]:
    """Aligned indices of a parameter of this shape, the most useful first. At most half of it is used."""
    size = math.prod(shape)
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    halves = [size // 2, steps[0] * (shape[0] // 2)] if shape else []
    followed = [start + step for step in (*halves, *steps) for start in _FOLLOWED]
    found = dict.fromkeys([*_ALIGNED[:4], *followed, *_ALIGNED[4:]])
    return [index for index in found if index < size][: size // 2]


def _without(size: int, taken: Integers, count: int, rng: np.random.Generator) -> Integers:
    """Draw `count` indices below `size` that are not taken, in random order.

    The draw is over ranks among the free indices. Going through the taken indices in rising order, each one
    at or below a rank moves it up by one. This avoids a list of all free indices, which may be millions.
    """
    free = rng.choice(size - len(taken), count, replace=False)
    for index in np.sort(taken):
        free = free + (free >= index)
    return free.astype(np.int64)


def _roles(
    aligned: list[Integers], scattered: list[Integers], rng: np.random.Generator
) -> tuple[Integers, Integers, Hits]:
    """The parameter and the index of each witness, and whether it is shaped."""
    parameter, index = [], []
    for place, (some, others) in enumerate(zip(aligned, scattered, strict=True)):
        parameter.append(np.full(len(some) + len(others), place))
        index.append(np.concatenate([some, np.full(len(others), -1)]))
    indices = np.concatenate(index).astype(np.int64)
    shaped = np.zeros(len(indices), dtype=np.bool_)
    single = rng.permutation(np.flatnonzero(indices < 0))
    shaped[single[: len(single) // 2]] = True
    return np.concatenate(parameter), indices, shaped


class Seen(NamedTuple):
    """The observations at witnesses, in units of the stated noise.

    Attributes:
        steps: The number of steps.
        by_step: The sum of squares of each step over the witnesses that are not shaped. Step t is added to
            entry t modulo `MOST_STEPS`.
        by_place: The sum of squares of each such witness over all steps.
        cells: The number of values of shaped witnesses in each cell: up to the first edge, to the second, ...
        signs: The signs of the first steps as bits, (steps, bytes), 1 for a positive value.
        totals: The sums over the parameters in `Roles.whole`, divided by the root of their sizes, for all or
            some of the first steps.
        released: For noise that is correlated between steps, the sum of squares of each step as released,
            divided by its expectation for one witness. `by_step` then holds whitened noise. Empty if the
            noise is independent.
        firsts: The values at the first three aligned witnesses, by first step and parameter.
        fine: Single values of the first steps, and the spacing of the sums there, as returned by
            `canaria.training.conformance.coincidences.usable`.
    """

    steps: int
    by_step: Floats
    by_place: Floats
    cells: Integers
    signs: Any
    totals: Floats
    released: Floats = np.zeros(0)
    firsts: Floats = np.zeros((0, 3))
    fine: Floats = np.zeros((0, 2))

    @classmethod
    def of(cls, values: Floats, totals: Floats, roles: Roles) -> "Seen":
        """Summarise all values, (steps, witnesses), and the sums over whole parameters."""
        squares = values[:, ~roles.shaped] ** 2
        number = np.arange(len(values)) % MOST_STEPS
        sizes = np.abs(values[:, roles.shaped])
        at_most = [np.count_nonzero(sizes <= edge) for edge in EDGES]
        return cls(
            len(values),
            np.bincount(number, squares.sum(axis=1), min(len(values), MOST_STEPS)).astype(np.float64),
            squares.sum(axis=0),
            np.diff(at_most, prepend=0, append=sizes.size),
            np.packbits(values[:MOST_STEPS] > 0, axis=1, bitorder="little"),
            totals[:MOST_STEPS] / np.sqrt(roles.sizes),
            firsts=values[:MOST_STEPS][:, roles.firsts].reshape(-1, 3),
        )
