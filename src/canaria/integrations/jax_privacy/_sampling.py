"""The participation of rows for correlated noise, from this package's laws or JAX Privacy's samplers."""

import numpy.typing as npt
from jax_privacy.batch_selection import (
    BallsInBinsSampling,
    BMinSepSampling,
    CyclicPoissonSampling,
    PartitionType,
)

from canaria._core.errors import InputError, shown
from canaria.mechanisms import BallsInBins, Correlated, CyclicPoisson, MinSeparation, Strategy
from canaria.mechanisms.participation import Participation
from canaria.training.likelihood.correlated import Correlation


def correlation_of(
    strategy: Strategy | npt.ArrayLike, sampling: object, noise_multiplier: float
) -> Correlation:
    """Combine the stated noise, its correlation and the steps of a row."""
    matrix, steps = strategy if isinstance(strategy, Strategy) else Strategy(strategy), steps_of(sampling)
    if steps not in (None, matrix.steps):
        raise InputError(
            f"sampling makes {steps} steps, and strategy is of {matrix.steps}: they must be the same"
        )
    return Correlation(mechanism=Correlated(matrix, participation_of(sampling), noise_multiplier))


def participation_of(sampling: object) -> Participation:
    """The law of a JAX Privacy sampler; laws are returned unchanged."""
    if isinstance(sampling, Participation):
        return sampling
    if isinstance(sampling, CyclicPoissonSampling | BMinSepSampling):
        if sampling.truncated_batch_size is not None:
            raise InputError(
                "batches must not be truncated: whether a row takes part would depend on the others"
            )
        if isinstance(sampling, CyclicPoissonSampling):
            return CyclicPoisson(sampling.cycle_length, sampling.sampling_prob)
        return MinSeparation(sampling.min_sep, sampling.sampling_prob, sampling.warm_start)
    if isinstance(sampling, BallsInBinsSampling):
        return BallsInBins(sampling.cycle_length)
    raise InputError(
        "sampling must be InOrder, BallsInBins, CyclicPoisson or MinSeparation of canaria.mechanisms, or "
        f"such a sampler of jax_privacy.batch_selection, got {shown(sampling)}"
    )


def groups_of_one_size(sampling: object) -> int:
    """The number of equal groups of rows if rows that do not fit into them never take part; else 1."""
    if not isinstance(sampling, CyclicPoissonSampling):
        return 1
    return int(sampling.cycle_length) if sampling.partition_type == PartitionType.EQUAL_SPLIT else 1


def steps_of(sampling: object) -> int | None:
    """The number of steps of a JAX Privacy sampler; None for a law."""
    if isinstance(sampling, CyclicPoissonSampling | BMinSepSampling | BallsInBinsSampling):
        return int(sampling.iterations)
    return None
