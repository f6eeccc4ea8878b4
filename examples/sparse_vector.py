"""Six sparse vector algorithms: two are right, one costs more than it says, three promise nothing at all.

    python examples/sparse_vector.py

Their numbers are those of figure 1 of Lyu, Su and Li (2017), "Understanding the sparse vector technique for
differential privacy". Queries, which change by at most 1 between neighbours, are held against the threshold 0
one after the other; the answers say which are above. The audit is the classic one: many runs, before each a
fair coin chooses one of two neighbouring data sets, and the score is the likelihood ratio of the answers.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy import stats

from canaria import Bound, many_runs
from canaria.claims import ApproximateDP
from canaria.rules import Surest

Answers = tuple[bool | float, ...]
Queries = tuple[int, ...]


@dataclass(frozen=True)
class SparseVector:
    """Laplace noise on threshold and queries; stops after `cutoff` queries that are above.

    `refreshed`: then the threshold gets new noise. `numeric`: then the noisy query itself is shown.
    """

    threshold_scale: float
    query_scale: float
    cutoff: float = math.inf
    refreshed: bool = False
    numeric: bool = False

    def run(self, queries: Queries, rng: np.random.Generator) -> Answers:
        answers: list[bool | float] = []
        count, threshold = 0, rng.laplace(scale=self.threshold_scale)
        for query in queries:
            noisy = query + rng.laplace(scale=self.query_scale)
            above = noisy >= threshold
            answers.append(noisy if above and self.numeric else above)
            count += above
            if count >= self.cutoff:
                break
            if above and self.refreshed:
                threshold = rng.laplace(scale=self.threshold_scale)
        return tuple(answers)

    def likelihood(self, answers: Answers, queries: Queries) -> float:
        """Of these answers, up to a constant: an integral over each noise that the threshold gets."""
        thresholds, weights = threshold_law(self.threshold_scale)
        finished, joint = 1.0, weights
        for answer, query in zip(answers, queries, strict=False):
            below = chance_below(query, self.query_scale, self.threshold_scale)
            if isinstance(answer, bool):
                joint = joint * (1 - below if answer else below)
            else:
                joint = joint * (thresholds <= answer) * math.exp(-abs(answer - query) / self.query_scale)
            if self.refreshed and answer is not False:
                finished, joint = finished * joint.sum(), weights
        return float(finished * joint.sum())


@cache
def threshold_law(scale: float) -> tuple[Any, Any]:
    """The noisy threshold, in small steps: their midpoints and probabilities."""
    edges = np.linspace(-25 * scale, 25 * scale, 2001)
    return (edges[1:] + edges[:-1]) / 2, np.diff(stats.laplace.cdf(edges, scale=scale))


@cache
def chance_below(query: int, scale: float, threshold_scale: float) -> Any:
    """The probability that a noisy query stays below, for every threshold."""
    thresholds, _ = threshold_law(threshold_scale)
    return stats.laplace.cdf(thresholds, query, scale) if scale > 0 else 1.0 * (query < thresholds)


ONE_ABOVE = ((0,) * 8 + (1,), (1,) * 8 + (0,))
TWO_ABOVE = (((-1,) * 4 + (1,)) * 2, (0,) * 10)
HALF_ABOVE = ((0,) * 8, (1,) * 4 + (-1,) * 4)


def audits(confidence: float, rng: np.random.Generator) -> Iterator[tuple[str, float, Bound]]:
    def audit(algorithm: SparseVector, pair: tuple[Queries, Queries], runs: int, guesses: int) -> Bound:
        @cache
        def score(answers: Answers) -> float:
            one, other = (algorithm.likelihood(answers, queries) for queries in pair)
            return math.log(other / one) if min(one, other) > 0 else math.copysign(math.inf, other - one)

        game = many_runs(
            lambda data, stream: algorithm.run(data[0], stream),
            *(pair[:1], 0, pair, runs, score, Surest(guesses), rng),
        )
        return game.bound(confidence=confidence)

    e = 2.0
    yield "1 (Lyu, Su and Li), c = 1", e, audit(SparseVector(2 / e, 4 / e, 1), ONE_ABOVE, 50_000, 350)
    yield "1 (Lyu, Su and Li), c = 2", e, audit(SparseVector(2 / e, 8 / e, 2), TWO_ABOVE, 50_000, 200)
    book, notes = SparseVector(4 / e, 8 / e, 2, refreshed=True), SparseVector(2 / e, 2 / e, 1, numeric=True)
    yield "2 (Dwork and Roth's book), c = 2", e, audit(book, TWO_ABOVE, 50_000, 150)
    yield "3 (Roth's lecture notes), c = 1", e, audit(notes, ONE_ABOVE, 20_000, 400)
    lee = audit(SparseVector(4 / e, 4 / (3 * e), 1), ONE_ABOVE, 50_000, 900)
    yield "4 (Lee and Clifton), c = 1", e, lee
    yield "4, with its true (1 + 6c) / 4 epsilon", 7 / 4 * e, lee
    yield "5 (Stoddard and others)", e, audit(SparseVector(2 / e, 0), ONE_ABOVE, 10_000, 2000)
    yield "6 (Chen and others)", e, audit(SparseVector(2 / e, 2 / e), HALF_ABOVE, 10_000, 200)


def main(confidence: float = 0.999, seed: int = 0) -> None:
    for name, claimed, bound in audits(confidence, np.random.default_rng(seed)):
        claim = ApproximateDP(claimed, bound.delta, bound.adjacency)  # each is claimed for what is played
        verdict = "REFUTED" if bound.refutes(claim) else "not refuted"
        print(f"{name:<45} claims ({claimed:.3f}, {bound.delta:g}), bound {bound.epsilon:.3f}: {verdict}")


if __name__ == "__main__":
    main()
