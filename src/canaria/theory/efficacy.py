"""The best expected accuracy of one-run auditing, and the relaxations of DP that bound it.

With loss_i the distributional privacy loss given the output alone, a guess is right with probability
p(|loss_i|), so the best guesser that takes k guesses has the expected accuracy

    E*_k = E[mean of the k largest p(|loss_i(O)|)] <= AC = E[max_i p(|loss_i(O)|)]
         <= p(DDP), DDP = sup |loss_i(o)|          <= p(epsilon).

They are exact if the outputs can be enumerated or a closed form is known. Otherwise they are simulated, with
a standard error. All of these are probabilities; `Accuracy.epsilon` is the other scale.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from scipy import special

from canaria._core import checks, seeds
from canaria._core.arrays import Bits, Floats
from canaria._core.seeds import Seed
from canaria.mechanisms import AnalysedMechanism, ScoredMechanism

_BLOCK: Final = 4_000_000
"""Losses that are held at once: a bound on memory."""
TRIALS: Final = 10_000
THEORY: Final = 0x74686579
"""Separates the random numbers of simulations from those of other uses of a seed."""


@dataclass(frozen=True)
class Accuracy:
    """A probability of guessing right.

    Attributes:
        value: The probability.
        error: Its standard error; 0 if it is exact.
        how: How it was found: "exact", "closed form" or simulated.

    Example:
        >>> from canaria.theory import Accuracy
        >>> round(Accuracy(0.88).epsilon, 3)
        1.992
    """

    value: float
    error: float = 0.0
    how: str = "exact"

    @property
    def epsilon(self) -> float:
        """The epsilon at which this accuracy is the best possible, p^{-1}(value)."""
        return float(special.logit(min(max(self.value, 0.5), 1.0)))


def efficacy(
    mechanism: AnalysedMechanism, n: int, k: int | None = None, trials: int = TRIALS, rng: Seed = None
) -> Accuracy:
    """The best expected accuracy E*_k over all guessers that take k of n guesses.

    Args:
        mechanism: The mechanism.
        n: The number of elements.
        k: The number of guesses, at most n; by default all n.
        trials: The number of simulated games, at least 2, if no exact formula is known.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Example:
        >>> from canaria.mechanisms import NameAndShame
        >>> efficacy(NameAndShame(), n=100, k=10).value
        0.55
    """
    count = n if k is None else k
    checks.integer("k", count, 1, checks.integer("n", n, 1), "n")
    closed = getattr(mechanism, "closed_efficacy", None)
    value = closed(n, count) if closed else None
    if value is not None:
        return Accuracy(float(value), how="closed form")
    return _mean(mechanism, n, lambda sizes: top_mean(special.expit(sizes), count), trials, rng)


def ae_ac_ddp(
    mechanism: AnalysedMechanism, n: int, k: int | None = None, trials: int = TRIALS, rng: Seed = None
) -> Accuracy:
    """Average-element average-case distributional DP over the k most exposed elements.

    By the paper's theorems on optimal efficacy this is E*_k itself.

    Args:
        mechanism: As in `efficacy`.
        n: As in `efficacy`.
        k: As in `efficacy`.
        trials: As in `efficacy`.
        rng: As in `efficacy`.

    Example:
        >>> from canaria.mechanisms import NameAndShame
        >>> from canaria.theory import ac_ddp, ae_ac_ddp
        >>> ac_ddp(NameAndShame(), n=10).value, ae_ac_ddp(NameAndShame(), n=10).value
        (1.0, 0.55)
    """
    return efficacy(mechanism, n, k, trials, rng)


def ac_ddp(mechanism: AnalysedMechanism, n: int, trials: int = TRIALS, rng: Seed = None) -> Accuracy:
    """Average-case distributional DP (AC): the expected accuracy on the most exposed element.

    Args:
        mechanism: The mechanism.
        n: The number of elements.
        trials: The number of simulated games, at least 2, if outputs cannot be enumerated.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Example:
        >>> from canaria.mechanisms import AllOrNothing
        >>> from canaria.theory import ac_ddp
        >>> round(ac_ddp(AllOrNothing(0.2), n=10).value, 3)
        0.6
    """
    checks.integer("n", n, 1)
    return _mean(mechanism, n, lambda sizes: special.expit(sizes.max(axis=1)), trials, rng)


def ddp(mechanism: AnalysedMechanism, n: int) -> float:
    """Distributional DP: the largest |loss| over outputs and elements, in units of epsilon, or infinite.

    Args:
        mechanism: The mechanism.
        n: The number of elements.

    Example:
        >>> from canaria.mechanisms import RandomizedResponse, Xor
        >>> from canaria.theory import ddp
        >>> ddp(RandomizedResponse(1.0), n=10), ddp(Xor(), n=10)
        (1.0, 0.0)
    """
    return mechanism.ddp(checks.integer("n", n, 1))


def total_variation(mechanism: AnalysedMechanism, n: int, trials: int = TRIALS, rng: Seed = None) -> Accuracy:
    """Mean over elements of TV(law of O given S_i = -1, law of O given S_i = +1).

    TV = E[tanh(|loss_i| / 2)]; E*_n = 1/2 + TV / 2.

    Args:
        mechanism: The mechanism.
        n: The number of elements.
        trials: The number of simulated games, at least 2, if outputs cannot be enumerated.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Example:
        >>> from canaria.mechanisms import AllOrNothing
        >>> from canaria.theory import total_variation
        >>> round(total_variation(AllOrNothing(0.2), n=10).value, 3)
        0.2
    """
    checks.integer("n", n, 1)
    return _mean(mechanism, n, lambda sizes: np.tanh(sizes / 2).mean(axis=1), trials, rng)


def simulated_sizes(mechanism: ScoredMechanism, n: int, trials: int, rng: np.random.Generator) -> Floats:
    """|loss_i(O)| for every element of simulated one-run games, (trials, n)."""
    bits = rng.choice(np.array([-1, 1], dtype=np.int8), (trials, n))
    return np.abs(mechanism.loss(mechanism.sample(bits, rng), np.zeros_like(bits)))


def _mean(
    mechanism: AnalysedMechanism, n: int, statistic: Callable[[Floats], Any], trials: int, rng: Seed
) -> Accuracy:
    """The mean of a statistic of |loss|: over all outcomes, or over simulated games."""
    return means(mechanism, n, (statistic,), trials, rng)[0][0]


def means(
    mechanism: AnalysedMechanism,
    n: int,
    statistics: tuple[Callable[[Floats], Any], ...],
    trials: int,
    rng: Seed,
) -> tuple[list[Accuracy], Floats]:
    """Means of several statistics of |loss| over the same outcomes or games, in blocks.

    The second value is the covariance matrix of these means (zero if they are exact). Statistics of the same
    games are correlated, so the error of a difference does not follow from the errors of its parts.
    """
    block = max(1, _BLOCK // n)
    outcomes = mechanism.outcomes(n)
    if outcomes is not None:
        # Every statistic is a function of |loss|, so outputs that differ by a symmetry count as one.
        totals = np.zeros(len(statistics))
        for start in range(0, len(outcomes.chances), block):
            chances = outcomes.chances[start : start + block]
            nothing: Bits = np.zeros((len(chances), n), dtype=np.int8)
            sizes = np.abs(mechanism.loss(outcomes.outputs[start : start + block], nothing))
            totals += [float(chances @ statistic(sizes)) for statistic in statistics]
        return [Accuracy(float(total)) for total in totals], np.zeros((len(totals), len(totals)))
    checks.integer("trials", trials, 2)
    generator = seeds.generator(rng, THEORY)
    values: list[list[Floats]] = [[] for _ in statistics]
    for start in range(0, trials, block):
        sizes = simulated_sizes(mechanism, n, min(block, trials - start), generator)
        for column, statistic in zip(values, statistics, strict=True):
            column.append(np.asarray(statistic(sizes)))
    table = np.stack([np.concatenate(column) for column in values])
    # Of the means, hence over the number of trials.
    covariance = np.atleast_2d(np.cov(table)) / trials
    how = f"{trials} simulated games"
    errors = np.sqrt(np.diag(covariance))
    found = [Accuracy(float(m), float(e), how) for m, e in zip(table.mean(axis=1), errors, strict=True)]
    return found, covariance


def top_mean(accuracies: Floats, k: int) -> Floats:
    """The mean of the k largest of each row."""
    n = accuracies.shape[1]
    # A partition finds the k largest in linear time; their order does not matter.
    top = accuracies if k == n else np.partition(accuracies, n - k, axis=1)[:, n - k :]
    return np.asarray(top.mean(axis=1))
