"""Cases of one run, in which scores depend on the output alone."""

import bisect
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np

from canaria._core import binomial
from canaria._core.arrays import Bits, Floats
from canaria.claims import ApproximateDP
from canaria.claims.noise import gaussian_epsilon
from canaria.evidence import Counts, Ranking
from canaria.evidence.ranking import looks
from canaria.lab.validity._games import Case, Draw, Games, Shape, coins, drawing, guessed, sizes, tosses
from canaria.mechanisms import LocalGaussian, LocalLaplace

_SURE: Final = 30.0
_SHOWN_BY_CHANCE: Final = 0.1
_GAUSSIAN: Final = LocalGaussian(sigma=2.0)


def randomised_response(epsilon: float) -> Draw:
    """Each guess is right with probability p(epsilon), the largest that epsilon-DP allows."""
    return lambda shape, rng, level: guessed(tosses(shape, epsilon, rng), sizes(shape, epsilon, rng), rng)


Aim = Callable[[int, int, ApproximateDP, float], int]
"""`(taken, n, claim, level)`: the number of right guesses among `taken` that a mechanism aims at."""


def at_counts(taken: int, n: int, claim: ApproximateDP, level: float) -> int:
    """The smallest count that the exact test at this level refutes."""
    refused = (Counts(v, taken, n).refutes(claim, level) for v in range(1, taken + 1))
    return 1 + next((place for place, yes in enumerate(refused) if yes), taken - 1)


def at_rankings(taken: int, n: int, claim: ApproximateDP, level: float) -> int:
    """The smallest count at which a ranking is refuted, if all other looks are as usual."""
    grid = looks(n)

    def refuses(count: int) -> bool:
        within = np.minimum(grid, taken)
        usual = binomial.success(claim.epsilon) * (grid - within)
        counts = np.minimum(np.floor(count * within / taken + usual), grid).astype(np.int64)
        return Ranking.of_counts(grid, counts, n, n).refutes(claim, level)

    return bisect.bisect_left(range(1, taken + 1), True, key=refuses) + 1


@drawing
def extremal(
    shape: Shape,
    rng: np.random.Generator,
    level: float,
    epsilon: float,
    delta: float,
    taken: int,
    aim: Aim = at_counts,
    share: float = 1.0,
) -> Games:
    """The mechanism that attains the exact bound of `Counts` (Theorem 4), `taken` of n guessed.

    It is randomized response. On a random set of `taken` elements, marked by large scores, the probability of
    all outputs with at least v right guesses is raised by one factor. An element is in the set with
    probability taken / n, so the set may spend delta n / taken on each of its elements. v is the count that a
    test at this level refutes. All of delta may be spent in a share of the audits, which a public coin
    decides.
    """
    count = min(aim(taken, shape[1], ApproximateDP(epsilon, delta), level), taken)
    plain, raised = (_raised_law(epsilon, spent, taken, shape[1], count) for spent in (0.0, delta / share))
    spending = rng.random(shape[0]) < share
    right = np.where(
        spending,
        rng.choice(taken + 1, size=shape[0], p=raised),
        rng.choice(taken + 1, size=shape[0], p=plain),
    )
    places = rng.random(shape).argsort(axis=1)
    chosen = places < taken
    hits = np.where(chosen, places < right[:, None], tosses(shape, epsilon, rng))
    return guessed(hits, sizes(shape, epsilon, rng) + _SURE * chosen, rng)


def _raised_law(epsilon: float, delta: float, taken: int, n: int, aim: int) -> Floats:
    """The law of the number of right guesses, with that of at least `aim` raised as far as delta allows."""
    right = np.arange(taken + 1)
    law = np.exp(binomial.log_pmf(right, taken, epsilon))
    upper = float(law[aim:].sum())
    # The largest probability of at least `aim` right guesses that Theorem 4 allows.
    raised = min(1.0, upper + n * delta * upper * (1 - upper) / (aim * float(law[aim])))
    law = np.where(right >= aim, law * raised / upper, law * (1 - raised) / (1 - upper))
    return np.asarray(law / law.sum())


@drawing
def lengths(shape: Shape, rng: np.random.Generator, level: float, delta: float) -> Games:
    """The output decides how many elements have scores: a number that is often refuted, or a rare one.

    All of delta is spent on the rare number, whose test leaves most of its level to delta.
    """
    numbers, claim = np.arange(1, shape[1] + 1), ApproximateDP(0.0, delta)
    aims = np.array([_one_look(taken, shape[1], claim, level) for taken in numbers.tolist()])
    upper = np.where(aims <= numbers, binomial.tail(aims, numbers, 0.0), 0.0)
    chances = np.exp(binomial.log_pmf(np.minimum(aims, numbers), numbers, 0.0))
    # How often a number of guesses can be shown so that delta is just spent when it is.
    shares = shape[1] * delta * upper / (aims * chances)
    usual, rare = int(np.argmax(upper)), int(np.argmax(shares))
    share = min(1.0, float(shares[rare]))
    spending = rng.random((shape[0], 1)) < share
    taken = np.where(spending, rare + 1, usual + 1)
    places = rng.random(shape).argsort(axis=1)
    law = _raised_law(0.0, delta / share, rare + 1, shape[1], int(aims[rare]))
    right = np.where(
        spending[:, 0],
        rng.choice(rare + 2, size=shape[0], p=law),
        rng.binomial(usual + 1, 0.5, size=shape[0]),
    )
    shown = guessed(places < right[:, None], sizes(shape, 0.0, rng), rng)
    return Games(np.where(places < taken, shown.scores, 0.0), shown.bits)


@lru_cache(maxsize=1024)
def _one_look(taken: int, n: int, claim: ApproximateDP, level: float) -> int:
    """The smallest count that a ranking with one look refutes; above all guesses if there is none."""
    return bisect.bisect_left(
        range(taken + 1),
        True,
        key=lambda count: Ranking.of_counts([taken], [count], n, taken).refutes(claim, level),
    )


@drawing
def leaky(shape: Shape, rng: np.random.Generator, level: float, epsilon: float, delta: float) -> Games:
    """Randomized response in which each element is revealed with probability delta."""
    open_ = rng.random(shape) < delta
    hits = open_ | tosses(shape, epsilon, rng)
    return guessed(hits, sizes(shape, epsilon, rng) + _SURE * open_, rng)


@drawing
def all_or_nothing(
    shape: Shape, rng: np.random.Generator, level: float, epsilon: float, delta: float
) -> Games:
    """Everything is revealed together with probability delta; randomized response otherwise."""
    revealed = rng.random((shape[0], 1)) < delta
    hits = revealed | tosses(shape, epsilon, rng)
    return guessed(hits, sizes(shape, epsilon, rng) + _SURE * revealed, rng)


def burst(shape: Shape, rng: np.random.Generator, level: float) -> Games:
    """With probability 1/5, a random fifth of the elements is revealed together: (0, 1/25)-DP."""
    open_ = (rng.random(shape).argsort(axis=1) < shape[1] // 5) & (rng.random((shape[0], 1)) < 0.2)
    return guessed(open_ | tosses(shape, 0.0, rng), sizes(shape, 0.0, rng) + _SURE * open_, rng)


def name_and_shame(shape: Shape, rng: np.random.Generator, level: float) -> Games:
    """One element, chosen at random, is revealed: (0, 1 / n)-DP."""
    shamed = np.arange(shape[1]) == rng.integers(0, shape[1], (shape[0], 1))
    return guessed(shamed | tosses(shape, 0.0, rng), sizes(shape, 0.0, rng) + _SURE * shamed, rng)


@drawing
def tied(shape: Shape, rng: np.random.Generator, level: float, epsilon: float) -> Games:
    """Randomized response with scores -1 and +1 only, and members listed first.

    If epsilon is 0, all scores are 0 except for five that are chosen by a coin.
    """
    bits = -np.sort(-coins(shape, rng), axis=1)
    signs = np.where(tosses(shape, epsilon, rng), bits, -bits).astype(np.float64)
    if epsilon == 0:
        signs *= rng.random(shape).argsort(axis=1) < 5
    return Games(signs, bits)


@drawing
def one_sided(shape: Shape, rng: np.random.Generator, level: float, epsilon: float) -> Games:
    """High scores are e^epsilon times as frequent for members; low scores are almost uninformative."""
    bits = coins(shape, rng)
    chance = _SHOWN_BY_CHANCE * np.where(bits > 0, math.exp(epsilon), 1.0)
    out = rng.random(shape) < chance
    return Games(np.where(out, 1 + sizes(shape, epsilon, rng), rng.random(shape)), bits)


def laplace(epsilon: float) -> Draw:
    """Laplace noise on each bit, scored by its loss."""
    mechanism = LocalLaplace(epsilon)

    def draw(shape: Shape, rng: np.random.Generator, level: float) -> Games:
        bits = coins(shape, rng)
        return Games(mechanism.loss(mechanism.sample(bits, rng), np.zeros_like(bits)), bits)

    return draw


def gaussian(shape: Shape, rng: np.random.Generator, level: float) -> Games:
    """Gaussian noise on each bit, scored by its loss."""
    bits = coins(shape, rng)
    return Games(_GAUSSIAN.loss(_GAUSSIAN.sample(bits, rng), np.zeros_like(bits)), bits)


def halves(shape: Shape, rng: np.random.Generator) -> Bits:
    """Bits, exactly half of which are +1."""
    signs = np.tile(np.array([-1, 1], dtype=np.int8), (shape[0], shape[1] // 2))
    return rng.permuted(signs, axis=1)


def half_and_half(shape: Shape, rng: np.random.Generator, level: float) -> Games:
    """Exactly half of the bits are +1, and nothing is released."""
    return Games(rng.normal(size=shape), halves(shape, rng))


def _gaussian_epsilon(delta: float) -> float:
    return gaussian_epsilon(2 / _GAUSSIAN.sigma, delta)


def _large(name: str, about: str, delta: float, draw: Draw, epsilon: float = 1.0) -> Case:
    """A case with 1,000 elements."""
    return Case(name, about, draw, epsilon, delta=delta, n=1000, pace=0.2)


def _extremal(spent: float) -> Case:
    about = f"the worst mechanism for 200 guesses of 2,000, {spent:g} flips"
    return Case(
        f"extremal-{spent:g}",
        about,
        extremal(1.0, spent / 2000, 200),
        1.0,
        delta=spent / 2000,
        n=2000,
        pace=0.1,
    )


def _raised(spent: float, n: int, epsilon: float, taken: int) -> Case:
    about = f"aimed at a look of a ranking of {n:,}, {spent:g} flips"
    draw = extremal(epsilon, spent / n, taken, at_rankings)
    return Case(f"raised-{spent:g}-{n}", about, draw, epsilon, delta=spent / n, n=n, pace=100 / n)


def _sometimes(spent: float) -> Case:
    about = f"all {spent:g} flips of 1,000 spent in a tenth of the audits"
    draw = extremal(0.5, spent / 1000, 200, at_counts, share=0.1)
    return Case(f"sometimes-{spent:g}", about, draw, 0.5, delta=spent / 1000, n=1000, pace=0.1)


ONE_RUN: Final = (
    Case("rr-0", "nothing is released", randomised_response(0.0), 0.0),
    Case("rr-0.1", "randomized response", randomised_response(0.1), 0.1),
    Case("rr-0.5", "randomized response", randomised_response(0.5), 0.5),
    Case("rr-1", "randomized response", randomised_response(1.0), 1.0),
    Case("rr-2", "randomized response", randomised_response(2.0), 2.0),
    Case("rr-4", "randomized response, 400 elements", randomised_response(4.0), 4.0, n=400),
    Case("rr-8", "randomized response, 10,000", randomised_response(8.0), 8.0, n=10_000, pace=0.1),
    Case("rr-0-1000", "nothing is released, 1,000", randomised_response(0.0), 0.0, n=1000, pace=0.2),
    Case("laplace-2", "Laplace noise, scored by the loss", laplace(2.0), 2.0),
    Case("gaussian", "Gaussian noise, scored by the loss", gaussian, _gaussian_epsilon(1e-3), delta=1e-3),
    Case("extremal-all", "the worst mechanism for 100 guesses", extremal(0.6, 0.01, 100), 0.6, delta=0.01),
    Case("extremal-half", "the worst mechanism for 50 guesses", extremal(0.8, 0.005, 50), 0.8, delta=0.005),
    Case("leaky-0", "each element revealed with probability delta", leaky(0.0, 1e-3), 0.0, delta=1e-3),
    Case("leaky-1", "the same, else randomized response", leaky(1.0, 1e-3), 1.0, delta=1e-3),
    Case("all-or-nothing-0", "all revealed with probability delta", all_or_nothing(0.0, 0.2), 0.0, delta=0.2),
    Case(
        "all-or-nothing-1", "the same, else randomized response", all_or_nothing(1.0, 0.01), 1.0, delta=0.01
    ),
    Case("burst-0", "a fifth revealed with probability 0.2", burst, 0.0, delta=0.04),
    Case("name-and-shame", "one of the elements revealed", name_and_shame, 0.0, delta=1 / 100),
    Case("ties-0", "scores 0, members listed first", tied(0.0), 0.0, listed=True),
    Case("ties-1", "scores -1 and +1, members listed first", tied(1.0), 1.0, listed=True),
    Case("one-sided-1", "only high scores tell", one_sided(1.0), 1.0),
    Case("rr-3-2000", "randomized response, 2,000", randomised_response(3.0), 3.0, n=2000, pace=0.1),
    Case("rr-1-10000", "randomized response, 10,000", randomised_response(1.0), 1.0, n=10_000, pace=0.02),
    Case("laplace-2-2000", "Laplace noise, 2,000", laplace(2.0), 2.0, n=2000, pace=0.1),
    _large("gaussian-1000", "Gaussian noise, 1,000", 1e-5, gaussian, _gaussian_epsilon(1e-5)),
    _large("extremal-1000", "the worst mechanism for 50 guesses of 1,000", 2e-4, extremal(1.0, 2e-4, 50)),
    _large("leaky-1-1000", "each revealed with probability delta, 1,000", 0.02, leaky(1.0, 0.02)),
    _large(
        "all-or-nothing-1000", "all revealed with probability delta, 1,000", 0.2, all_or_nothing(1.0, 0.2)
    ),
    *(_extremal(spent) for spent in (0.1, 1.0, 10.0)),
    _raised(0.01, 1000, 0.5, 114),
    _raised(0.3, 1000, 1.0, 114),
    _raised(1.0, 1000, 0.5, 440),
    _raised(1.0, 10_000, 1.0, 695),
    _raised(10.0, 10_000, 0.5, 5783),
    *(_sometimes(spent) for spent in (0.1, 1.0)),
    Case(
        "lengths",
        "the output decides how many elements tell",
        lengths(1e-3),
        0.0,
        delta=1e-3,
        n=200,
        pace=0.5,
    ),
    Case(
        "leaky-0.5-10000",
        "each revealed with probability delta, 10,000",
        leaky(0.5, 1e-3),
        0.5,
        delta=1e-3,
        n=10_000,
        pace=0.01,
    ),
    Case(
        "name-and-shame-2000", "one of 2,000 revealed", name_and_shame, 0.0, delta=1 / 2000, n=2000, pace=0.1
    ),
    Case("half", "exactly half of the bits are +1", half_and_half, 0.0, fair=False),
)
