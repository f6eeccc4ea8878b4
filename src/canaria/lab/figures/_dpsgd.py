"""The paper's DP-SGD setting, shared by several figures."""

from typing import Final

import numpy as np

from canaria import Bound, lower_bound
from canaria.claims.accounting import dpsgd_noise_multiplier
from canaria.lab.figures._experiment import Row
from canaria.mechanisms import SubsampledGaussian
from canaria.rules import Tails
from canaria.rules.door import guess_once

DIMENSION: Final = 1000
STEPS: Final = 100
SAMPLE_RATE: Final = 0.1
DELTA: Final = 1e-5


def paper_mechanism(epsilon: float, score: str = "likelihood") -> SubsampledGaussian:
    """D = 1000, T = 100, q = 0.1, noise by the RDP accountant at delta = 1e-5."""
    return SubsampledGaussian(
        dimension=DIMENSION,
        steps=STEPS,
        sample_rate=SAMPLE_RATE,
        noise_multiplier=dpsgd_noise_multiplier(epsilon, DELTA, STEPS, SAMPLE_RATE),
        score=score,
    )


def sums(
    mechanism: SubsampledGaussian, n: int, trials: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Hidden bits and the sum seen at each element's coordinate, (trials, n): the paper's score."""
    bits = 2 * rng.integers(0, 2, (trials, n), dtype=np.int8) - np.int8(1)
    seen = mechanism.sample(bits, rng)
    return bits, np.tile(seen, -(-n // seen.shape[1]))[:, :n]


def tails_bound(scores: np.ndarray, bits: np.ndarray, guesses: int, rng: np.random.Generator) -> Bound:
    """The paper's audit: k / 2 highest sums +1, k / 2 lowest -1, bound at delta = 1e-5."""
    return lower_bound(guess_once(Tails(guesses), scores, bits, rng)[1], DELTA)


def bound_rows(bound: Bound, **where: object) -> list[Row]:
    """Bound, estimate and accuracy of one audit, as rows of two panels."""
    correct, taken = bound.tally
    # Every guess right has no finite estimate; half a miss, as is usual, keeps the mean finite.
    accuracy = min(correct, taken - 0.5) / taken
    estimate = max(0.0, float(np.log(accuracy / (1 - accuracy))))
    return [
        {**where, "panel": "in ε", "series": "bound", "value": bound.epsilon},
        {**where, "panel": "in ε", "series": "estimate", "value": estimate},
        {**where, "panel": "accuracy", "series": "efficacy", "value": correct / taken},
    ]
