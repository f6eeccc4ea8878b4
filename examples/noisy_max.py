"""Report noisy max: which query is the largest? By hand, by OpenDP and by diffprivlib; right and wrong.

    python examples/noisy_max.py

Queries change by at most 1 between neighbours. Noise of scale 2 / epsilon is then enough, Laplace or
exponential (which is permute-and-flip); 1 / epsilon is enough only if all move the same way, as counts do
("monotonic"). Only the place of the largest may be shown, not its noisy value. The audit is the classic one:
many runs, before each a fair coin chooses one of two neighbours, and the score is the likelihood ratio.
OpenDP cannot be seeded; at 99.999% confidence no run of this script is likely to see a false alarm.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import opendp.prelude as dp
from diffprivlib.mechanisms import PermuteAndFlip
from scipy import stats

from canaria import Bound, many_runs
from canaria.claims import ApproximateDP
from canaria.rules import Surest

dp.enable_features("contrib")

Queries = tuple[int, ...]
Shown = int | tuple[int, float]
Mechanism = Callable[[Queries, np.random.Generator], Shown]
LAWS: dict[str, Any] = {"laplace": stats.laplace, "exponential": stats.expon}


@dataclass(frozen=True)
class NoisyMax:
    """Noise on every query; the place of the largest is shown, and its noisy value too if `numeric`."""

    scale: float
    noise: str = "laplace"
    numeric: bool = False

    def run(self, queries: Queries, rng: np.random.Generator) -> Shown:
        noisy = queries + getattr(rng, self.noise)(scale=self.scale, size=len(queries))
        place = int(np.argmax(noisy))
        return (place, float(noisy[place])) if self.numeric else place

    def density(self, queries: Queries, values: Any) -> Any:
        """Of place (row) and noisy value (column): drawn there, and all others are below."""
        law, centres = LAWS[self.noise], np.array(queries)[:, None]
        below = law.cdf(values, centres, self.scale)
        others = [np.delete(below, place, axis=0).prod(axis=0) for place in range(len(queries))]
        return law.pdf(values, centres, self.scale) * others

    def score(self, one: Queries, other: Queries) -> Callable[[Any], float]:
        """The log likelihood ratio of what is shown; a value that is not shown is integrated out."""
        values = np.linspace(-30 * self.scale, 30 * self.scale, 20_001)
        first, second = self.density(one, values), self.density(other, values)
        if self.numeric:
            ratios = np.log(np.maximum(second, 1e-300)) - np.log(np.maximum(first, 1e-300))
            return lambda shown: float(np.interp(shown[1], values, ratios[shown[0]]))
        losses = np.log(second.sum(axis=1) / first.sum(axis=1))
        return lambda place: float(losses[place])


def opendp(monotonic: bool, scale: float) -> tuple[Mechanism, float]:
    """The mechanism, and the epsilon that OpenDP says it has."""
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.linf_distance(T=int, monotonic=monotonic)
    measurement: Any = dp.m.make_noisy_max(*space, dp.max_divergence(), scale=scale)
    return lambda queries, rng: measurement(list(queries)), measurement.map(d_in=1)


def diffprivlib(monotonic: bool, epsilon: float) -> Mechanism:
    """One mechanism for each data set, seeded when it is first needed."""
    made: dict[Queries, Any] = {}

    def run(queries: Queries, rng: np.random.Generator) -> Any:
        if queries not in made:
            options = {"epsilon": epsilon, "sensitivity": 1, "monotonic": monotonic}
            seed = int(rng.integers(2**31))
            made[queries] = PermuteAndFlip(**options, utility=list(queries), random_state=seed)
        return made[queries].randomise()

    return run


OPPOSITE = ((0, 2, 2, 2, 2), (1, 1, 1, 1, 1))
SAME_WAY = ((0, 1, 1, 1, 1), (1, 1, 1, 1, 1))
ALL_UP = ((0,) * 10, (1,) * 10)


def audits(confidence: float, rng: np.random.Generator) -> Iterator[tuple[str, float, Bound]]:
    def audit(mechanism: Mechanism, law: NoisyMax, pair: tuple[Queries, Queries], guesses: int) -> Bound:
        game = many_runs(
            lambda data, stream: mechanism(data[0], stream),
            *(pair[:1], 0, pair, 10_000, law.score(*pair), Surest(guesses), rng),
        )
        return game.bound(confidence=confidence)

    wide, narrow = NoisyMax(2.0), NoisyMax(1.0)
    yield "Laplace, 2 / epsilon", 1.0, audit(wide.run, wide, OPPOSITE, 1200)
    yield "Laplace, 1 / epsilon, monotonic", 1.0, audit(narrow.run, narrow, SAME_WAY, 1200)
    yield "Laplace, 1 / epsilon, not monotonic", 1.0, audit(narrow.run, narrow, OPPOSITE, 1000)
    shown = NoisyMax(2.0, numeric=True)
    yield "Laplace, 2 / epsilon, with the value", 1.0, audit(shown.run, shown, ALL_UP, 200)

    wide, narrow = NoisyMax(2.0, "exponential"), NoisyMax(1.0, "exponential")
    yield "exponential, 2 / epsilon", 1.0, audit(wide.run, wide, OPPOSITE, 1200)
    told = ((False, wide, 1200, ""), (True, narrow, 1000, ", told that queries are monotonic"))
    for monotonic, law, guesses, words in told:
        mechanism, claimed = opendp(monotonic, law.scale)
        yield f"OpenDP{words}", claimed, audit(mechanism, law, OPPOSITE, guesses)
        yield f"diffprivlib{words}", 1.0, audit(diffprivlib(monotonic, 1.0), law, OPPOSITE, guesses)


def main(confidence: float = 0.99999, seed: int = 0) -> None:
    for name, claimed, bound in audits(confidence, np.random.default_rng(seed)):
        claim = ApproximateDP(claimed, bound.delta, bound.adjacency)  # each is claimed for what is played
        verdict = "REFUTED" if bound.refutes(claim) else "not refuted"
        print(f"{name:<45} claims ({claimed:.3f}, {bound.delta:g}), bound {bound.epsilon:.3f}: {verdict}")


if __name__ == "__main__":
    main()
