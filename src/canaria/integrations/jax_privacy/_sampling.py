"""How rows take part where noise is correlated, by laws of ours and by samplers of JAX Privacy."""

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
    """What is stated about the noise and about the steps of a row, in one."""
    matrix, steps = strategy if isinstance(strategy, Strategy) else Strategy(strategy), steps_of(sampling)
    if steps not in (None, matrix.steps):
        raise InputError(
            f"sampling makes {steps} steps, and strategy is of {matrix.steps}: they must be the same"
        )
    return Correlation(mechanism=Correlated(matrix, participation_of(sampling), noise_multiplier))


def participation_of(sampling: object) -> Participation:
    """The law of a sampler of JAX Privacy; a law as it is."""
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
    """Into how many groups of one size rows are split: those that are left over never take part; else 1."""
    if not isinstance(sampling, CyclicPoissonSampling):
        return 1
    return int(sampling.cycle_length) if sampling.partition_type == PartitionType.EQUAL_SPLIT else 1


def steps_of(sampling: object) -> int | None:
    """How many steps a sampler of JAX Privacy makes; None of a law."""
    if isinstance(sampling, CyclicPoissonSampling | BMinSepSampling | BallsInBinsSampling):
        return int(sampling.iterations)
    return None
