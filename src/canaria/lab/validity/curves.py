"""Cases with a curve: each element is exactly mu-Gaussian-DP, independently of the others.

The elements depend on each other in different ways. Tests that assume independence refute some of them.
"""

import bisect
import math
from functools import lru_cache
from typing import Final

import numpy as np
from scipy import special

from canaria._core.arrays import Floats
from canaria.claims import GaussianDP, families
from canaria.evidence import Counts
from canaria.evidence._looks import planned
from canaria.lab.validity._games import Case, Draw, Games, Shape, coins, drawing, guessed, tosses

_DELTA: Final = 1e-5
_SURE: Final = 30.0
_MUS: Final = (0.2, 0.6, 1.3)
_SIZES: Final = (200, 1000)
_RESPONSE: Final = 4.0
"""The epsilon of the occasional randomized response, as a multiple of mu."""


@drawing
def gaussian(shape: Shape, rng: np.random.Generator, level: float, mu: float) -> Games:
    """Independent Gaussian noise on each bit."""
    bits = coins(shape, rng)
    # Normal laws whose means are mu apart: the definition of mu-Gaussian DP.
    return Games(rng.normal(mu * bits / 2), bits)


@drawing
def shared_luck(shape: Shape, rng: np.random.Generator, level: float, mu: float, groups: int) -> Games:
    """Gaussian noise in which all elements of a group have the same |loss|."""
    sent = coins((shape[0], groups), rng)
    losses = np.abs(mu * rng.normal(mu * sent / 2))
    of_element = np.repeat(losses, -(-shape[1] // groups), axis=1)[:, : shape[1]]
    hits = rng.random(shape) < special.expit(of_element)
    return guessed(hits, of_element + 1e-6 * rng.random(shape), rng)


def responses(mu: float) -> Draw:
    """Randomized response on all elements with probability w, and nothing otherwise.

    w is the largest probability that keeps the curve.
    """
    epsilon = _RESPONSE * mu
    below = np.linspace(0.0, epsilon, 2000, endpoint=False)
    allowed = GaussianDP(mu).profile(below).included
    # With probability w, delta at epsilon' is w (p - e^epsilon' (1 - p)) for p = 1 / (1 + e^-epsilon). It
    # must nowhere exceed that of the curve.
    chance = float((allowed / (-np.expm1(below - epsilon) / (1 + math.exp(-epsilon)))).min())

    def draw(shape: Shape, rng: np.random.Generator, level: float) -> Games:
        playing = rng.random((shape[0], 1)) < chance
        hits = np.where(playing, tosses(shape, epsilon, rng), tosses(shape, 0.0, rng))
        return guessed(hits, rng.random(shape), rng)

    return draw


@drawing
def worst_count(shape: Shape, rng: np.random.Generator, level: float, mu: float) -> Games:
    """The worst mechanism for the main look of its claim (Theorem 14), aimed at the refuting count."""
    taken, aim = _main_look(mu, shape[1], level)
    law = worst_law(mu, shape[1], taken, aim)
    right = rng.choice(taken + 1, size=shape[0], p=law)
    places = rng.random(shape).argsort(axis=1)
    chosen = places < taken
    hits = np.where(chosen, places < right[:, None], tosses(shape, 0.0, rng))
    return guessed(hits, rng.random(shape) + _SURE * chosen, rng)


@lru_cache
def _main_look(mu: float, n: int, level: float) -> tuple[int, int]:
    """The number of guesses at which the claim is tested, and the smallest count that refutes it there."""
    plan = planned(families.Gaussian(), n, 1 - level)
    looks = next(stretch.looks for stretch in plan if mu <= stretch.last)
    main = max(looks, key=lambda look: look.share)
    aim = bisect.bisect_left(
        range(main.taken + 1),
        True,
        key=lambda right: Counts(right, main.taken, n).refutes(GaussianDP(mu), level * main.share),
    )
    return main.taken, min(aim, main.taken)


def worst_law(mu: float, n: int, taken: int, aim: int) -> Floats:
    """The law of the number of right guesses on the curve of mu that makes at least `aim` most likely.

    It is found by a walk along the curve: down from `aim`, then up, then down. Masses must add up to 1.
    """
    # In logarithms, as the mass at the aim may be very small.
    low, high = -40.0, 0.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (
            (low, middle) if _walked(mu, n, taken, aim, math.exp(middle)).sum() > 1 else (middle, high)
        )
    law = _walked(mu, n, taken, aim, math.exp(low))
    return np.asarray(law / law.sum())


def _walked(mu: float, n: int, r: int, v: int, start: float) -> Floats:
    # Edge j has the probabilities (j a_j / n, (r - j + 1) a_{j-1} / n), one after the other along the curve,
    # as in `canaria.evidence._curve_walk`.
    law, p, q = np.zeros(r + 1), 0.0, 0.0
    law[v] = start

    def down(edge: int) -> None:
        nonlocal p, q
        p += law[edge] * edge / n
        further = float(special.ndtr(special.ndtri(min(p, 1.0)) - mu))
        law[edge - 1], q = (further - q) * n / (r - edge + 1), further

    down(v)
    for edge in range(v + 1, r + 1):
        q += law[edge - 1] * (r - edge + 1) / n
        further = float(special.ndtr(special.ndtri(min(q, 1.0)) + mu))
        law[edge], p = max(0.0, further - p) * n / edge, further
    for edge in range(v - 1, 0, -1):
        if p + q > 1.5 * r / n or law.sum() > 2:
            # Too much mass already. Any sum above 1 makes the search start lower.
            return law + 1.0
        down(edge)
    return law


_KINDS: Final = {
    "worst": ("the worst mechanism of a count", worst_count),
    "luck": ("one size of the loss for all", lambda mu: shared_luck(mu, 1)),
    "lucky-tenths": ("one size of the loss for each tenth", lambda mu: shared_luck(mu, 10)),
    "now-and-then": ("randomized response now and then", responses),
    "apart": ("independent Gaussian noise", gaussian),
}
CURVES: Final = tuple(
    Case(
        f"curve-{name}-{mu:g}-{n}",
        f"{mu:g}-Gaussian DP, {n:,}: {about}",
        make(mu),
        GaussianDP(mu).epsilon_at(_DELTA),
        delta=_DELTA,
        n=n,
        pace=0.5,
        family="gaussian",
    )
    for name, (about, make) in _KINDS.items()
    for mu in _MUS
    for n in _SIZES
)
