"""Figures 1, 2 and 5 to 8: DP-SGD audited as in the paper, over the number of guesses and of elements."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from canaria import Bound, lower_bound
from canaria.claims.accounting import dpsgd_noise_multiplier
from canaria.lab.figures._experiment import Experiment, Row
from canaria.mechanisms import SubsampledGaussian
from canaria.rules import Tails
from canaria.rules.door import guess_once

DIMENSION, STEPS, SAMPLE_RATE, DELTA = 1000, 100, 0.1, 1e-5
_ELEMENTS: Final = 5000
_GUESSES: Final = (10, 20, 50, 100, 200, 400, 800, 1600, 3200, 5000)
_RATIOS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_EPSILONS: Final = (1.0, 2.0, 4.0, 8.0)


def paper_mechanism(epsilon: float, score: str = "likelihood") -> SubsampledGaussian:
    """DP-SGD in the paper's setting, with noise by the RDP accountant at delta = 1e-5."""
    noise = dpsgd_noise_multiplier(epsilon, DELTA, STEPS, SAMPLE_RATE)
    return SubsampledGaussian(
        dimension=DIMENSION, steps=STEPS, sample_rate=SAMPLE_RATE, noise_multiplier=noise, score=score
    )


def audits(
    epsilon: float, n: int, guesses: tuple[int, ...], trials: int, rng: np.random.Generator
) -> Iterator[tuple[int, Bound]]:
    """The paper's audit of each run for each number of guesses k: the k / 2 highest and k / 2 lowest sums."""
    bits = 2 * rng.integers(0, 2, (trials, n), dtype=np.int8) - np.int8(1)
    seen = paper_mechanism(epsilon, "sum").sample(bits, rng)
    # The score of an element is the sum at its coordinate, which several elements share if n > d.
    scores = np.tile(seen, -(-n // seen.shape[1]))[:, :n]
    for trial in range(trials):
        for k in guesses:
            yield k, lower_bound(guess_once(Tails(k), scores[trial], bits[trial], rng)[1], DELTA)


def _rows(bound: Bound, x: float) -> list[Row]:
    """Bound, estimate and accuracy of one audit, as rows of two panels."""
    correct, taken = bound.tally
    # If all guesses are right, the estimate is infinite. Half a miss, as usual, keeps the mean finite.
    accuracy = min(correct, taken - 0.5) / taken
    estimate = max(0.0, float(np.log(accuracy / (1 - accuracy))))
    return [
        {"x": x, "panel": "in ε", "series": "bound", "value": bound.epsilon},
        {"x": x, "panel": "in ε", "series": "estimate", "value": estimate},
        {"x": x, "panel": "accuracy", "series": "efficacy", "value": correct / taken},
    ]


def _over_guesses(epsilon: float, trials: int, rng: np.random.Generator) -> list[Row]:
    found = audits(epsilon, _ELEMENTS, _GUESSES, trials, rng)
    return [row for k, bound in found for row in _rows(bound, k / _ELEMENTS)]


def over_elements(ratio: float, trials: int, rng: np.random.Generator) -> list[Row]:
    """One point of Figures 2 and 6."""
    found = audits(2.0, round(ratio * DIMENSION), (100,), trials, rng)
    return [row for _, bound in found for row in _rows(bound, ratio)]


def _over_guesses_at(epsilon: float, trials: int, rng: np.random.Generator) -> list[Row]:
    found = audits(epsilon, _ELEMENTS, _GUESSES, trials, rng)
    return [{"x": k, "series": f"ε = {epsilon:g}", "value": bound.epsilon} for k, bound in found]


def _over_elements_at(point: tuple[float, float], trials: int, rng: np.random.Generator) -> list[Row]:
    epsilon, n = point[0], round(point[1] * DIMENSION)
    found = audits(epsilon, n, (100,), trials, rng)
    return [{"x": n, "series": f"ε = {epsilon:g}", "value": bound.epsilon} for _, bound in found]


GUESSES: Final = Experiment(
    "guesses",
    "effect of k / n (Fig. 1, 5)",
    points=(2.0,),
    quick_points=(2.0,),
    block=_over_guesses,
    title="Fewer guesses are more accurate, more guesses are stronger evidence",
    subtitle="DP-SGD, n = 5000, d = 1000, T = 100, q = 0.1, ε = 2 (RDP), δ = 1e-5; 95% confidence",
    x="fraction of guesses k / n",
    y="",
)
ELEMENTS: Final = Experiment(
    "elements",
    "effect of n / d (Fig. 2, 6)",
    points=_RATIOS,
    quick_points=(0.5, 1.0, 8.0, 64.0),
    block=over_elements,
    title="Several elements per coordinate help, until they interfere",
    subtitle="DP-SGD, k = 100, d = 1000, T = 100, q = 0.1, ε = 2 (RDP), δ = 1e-5; 95% confidence",
    x="elements per coordinate n / d",
    y="",
)
GUESSES_EPSILONS: Final = Experiment(
    "guesses-epsilons",
    "effect of k for several ε (Fig. 7)",
    points=_EPSILONS,
    quick_points=(2.0,),
    block=_over_guesses_at,
    title="For every ε the bound peaks at a small share of the elements",
    subtitle="DP-SGD, n = 5000, d = 1000, T = 100, q = 0.1, δ = 1e-5; 95% confidence",
    x="guesses k",
    trials=20,
)
ELEMENTS_EPSILONS: Final = Experiment(
    "elements-epsilons",
    "effect of n for several ε (Fig. 8)",
    points=tuple((epsilon, ratio) for epsilon in _EPSILONS for ratio in _RATIOS),
    quick_points=((2.0, 1.0), (2.0, 8.0)),
    block=_over_elements_at,
    title="More elements help at every ε, up to a point",
    subtitle="DP-SGD, k = 100, d = 1000, T = 100, q = 0.1, δ = 1e-5; 95% confidence",
    x="elements n",
    trials=20,
)
