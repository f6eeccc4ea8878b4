"""A thousand mechanisms whose claims are exactly true, as cases for a suite; and some with too little noise."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from canaria import many_runs
from canaria.claims.noise import gaussian_epsilon
from canaria.game import play_many
from canaria.mechanisms import AllOrNothing, LocalGaussian, RandomizedResponse
from canaria.rules import All, Surest, Tails, UpTo

N = 200
DELTA = 1e-6
PAIRS = [(-1.0, 1.0)] * N
FIRSTS_THEN_SECONDS = (np.arange(0, N, 2), np.arange(1, N, 2))
EPSILONS = np.linspace(0.1, 2.0, 100).round(4).tolist()


@dataclass(frozen=True)
class Case:
    """A mechanism, what is claimed about it, and the game; or an audit that is made from a seed."""

    name: str
    epsilon: float
    mechanism: Any = None
    delta: float = 0.0
    game: dict[str, Any] = field(default_factory=dict)
    audit: Callable[[int], Any] | None = None

    def __str__(self) -> str:
        return f"{self.name}-{self.epsilon:g}"

    def hold(self, assert_private: Any) -> None:
        """As a test of a suite."""
        if self.audit is not None:
            assert_private(self.audit(assert_private.seed), self.epsilon, self.delta)
        else:
            assert_private(self.mechanism, self.epsilon, self.delta, **self.game)

    def transcripts(self, trials: int, seed: int) -> list[Any]:
        """Many games at once."""
        if self.audit is not None:
            return [self.audit(1_000_003 * seed + trial) for trial in range(trials)]
        size = len(self.game.get("pairs", PAIRS))
        return play_many(self.mechanism, trials=trials, rng=seed, **{"n": size, **self.game})


def laplace(scale: float) -> Callable[[Any, np.random.Generator], Any]:
    """Noise on every element: epsilon is 2 / scale with pairs of -1 and 1, 1 / scale for in or out."""
    return lambda data, rng: np.asarray(data, dtype=np.float64) + rng.laplace(scale=scale, size=len(data))


def leaky_response(epsilon: float, delta: float) -> Callable[[Any, np.random.Generator], Any]:
    """Randomized response that lays everything open with probability delta: (epsilon, delta)-DP."""

    def run(data: Any, rng: np.random.Generator) -> Any:
        keep = rng.random(len(data)) < 1 / (1 + np.exp(-epsilon))
        return np.asarray(data) * np.where(keep | (rng.random() < delta), 1, -1)

    return run


def noisy_products(epsilon: float) -> Callable[[Any, np.random.Generator], Any]:
    """The product of each pair of neighbours, flipped by randomized response: every element is epsilon-DP."""

    def run(data: Any, rng: np.random.Generator) -> Any:
        products = np.asarray(data)[0::2] * np.asarray(data)[1::2]
        return products * np.where(rng.random(len(products)) < 1 / (1 + np.exp(-epsilon)), 1, -1)

    return run


def product_losses(epsilon: float) -> Callable[[Any, Any], Any]:
    """Nothing about the first of a pair, epsilon about the second once the first is revealed."""

    def losses(products: Any, known: Any) -> Any:
        found = np.zeros(len(known))
        found[1::2] = epsilon * products * known[0::2]
        return np.where(known == 0, found, 0.0)

    return losses


def own(output: Any, known: Any) -> Any:
    return output


def noisy_count(epsilon: float) -> Callable[[Any, np.random.Generator], Any]:
    return lambda included, rng: np.full(len(included), included.sum() + rng.laplace(scale=1 / epsilon))


def family(epsilon: float, delta: float = DELTA) -> list[Case]:
    """One case of every kind; the claims are attained by all but the count, which hides each element well."""
    sigma = 12 / epsilon
    response = RandomizedResponse(epsilon)
    paired: dict[str, Any] = {"pairs": PAIRS, "score": own}
    return [
        Case("response-ranked", epsilon, response, game={"n": N}),
        Case("response-surest", epsilon, response, game={"n": N, "rule": Surest(150)}),
        Case("response-all", epsilon, response, game={"n": N, "rule": All()}),
        Case("laplace-replaced", epsilon, laplace(2 / epsilon), game=paired),
        Case(
            "laplace-included", epsilon, laplace(1 / epsilon), game={"n": N, "score": own, "rule": Tails(150)}
        ),
        Case("leaky", epsilon, leaky_response(epsilon, delta), delta, {**paired, "rule": Surest(150)}),
        Case(
            "products",
            epsilon,
            noisy_products(epsilon),
            game={
                "pairs": PAIRS,
                "score": product_losses(epsilon),
                "rounds": FIRSTS_THEN_SECONDS,
                "rule": UpTo(N // 2, epsilon / 2),
            },
        ),
        Case(
            "gaussian",
            gaussian_epsilon(2 / sigma, delta),
            LocalGaussian(sigma),
            delta,
            {"n": N, "rule": Surest(100)},
        ),
        Case("count", epsilon, noisy_count(epsilon), game={"n": N, "score": own, "rule": Surest(150)}),
        Case(
            "classic",
            epsilon,
            audit=lambda seed: many_runs(
                response, base=[1, -1], index=0, repetitions=N, rule=Surest(150), rng=seed
            ),
        ),
    ]


def everything_or_nothing(delta: float) -> Case:
    """(0, delta)-DP, and no test at a level of delta or more can be right about it more often."""
    return Case("everything-or-nothing", 0.0, AllOrNothing(delta), delta, {"n": N, "rule": Surest(N)})


CORRECT = [case for epsilon in EPSILONS for case in family(epsilon)]
BROKEN = [
    Case("broken-laplace", epsilon, laplace(2 / epsilon / 4), game={"pairs": PAIRS * 2, "score": own})
    for epsilon in (0.8, 0.9, 1.0, 1.1, 1.2)
] + [
    Case("broken-included", epsilon, laplace(1 / epsilon / 4), game={"n": 2 * N, "score": own})
    for epsilon in (0.8, 0.9, 1.0, 1.1, 1.2)
]
