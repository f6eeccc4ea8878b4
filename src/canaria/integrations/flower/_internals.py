"""Undocumented parts of Flower: the attributes that hold the arguments of its strategies."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Strategy,
)

CHECKED: Final = {"flwr": ("1.41.0", "1.42.0")}
"""The Flower versions that this file was checked with."""
_Base: Any = DifferentialPrivacyServerSideFixedClipping.__base__
FixedClipping = DifferentialPrivacyServerSideFixedClipping | DifferentialPrivacyClientSideFixedClipping


class Stated(NamedTuple):
    """The noise settings of a strategy.

    Attributes:
        noise_multiplier: The noise, in clip norms.
        clip_norm: The norm to which an update is clipped.
        clients: The number of clients by which the noise of the mean is divided.

    """

    noise_multiplier: float
    clip_norm: float
    clients: int


def stated_by(strategy: FixedClipping) -> Stated:
    """Read the noise settings of a strategy."""
    return Stated(strategy.noise_multiplier, strategy.clipping_norm, strategy.num_sampled_clients)


def inner_of(strategy: FixedClipping) -> Strategy:
    """The inner strategy, which averages the updates before noise is added."""
    return strategy.strategy


def averages(strategy: Strategy) -> bool:
    """Whether a strategy takes the mean of updates and does nothing else."""
    return isinstance(strategy, FedAvg) and type(strategy).aggregate_train is FedAvg.aggregate_train


def weights_of(strategy: FixedClipping, replies: list[Message]) -> tuple[str, list[float]] | None:
    """The name and the values of the clients' weights; None if Flower will refuse the replies."""
    averaging = inner_of(strategy)
    assert isinstance(averaging, FedAvg)
    name, weights = averaging.weighted_by_key, []
    for reply in replies:
        if (
            reply.has_error()
            or not len(reply.content.metric_records) == len(reply.content.array_records) == 1
        ):
            return None
        weight = next(iter(reply.content.metric_records.values())).get(name)
        if not isinstance(weight, int | float):
            return None
        weights.append(weight)
    return (name, weights) if weights and sum(weights) > 0 else None


@contextmanager
def joined_by(canaries: int, strategy: FixedClipping, clients: float) -> Iterator[list[float]]:
    """Adjust a strategy while canary clients are the first of the replies.

    The noise is divided by the number of all clients, metrics are computed from real clients only, and
    Flower's log line per reply is suppressed.

    Yields:
        The clip norm for which noise was added, once it was: subclasses may set a new one for a round.

    """
    averaging, log = inner_of(strategy), logging.getLogger("flwr")
    assert isinstance(averaging, FedAvg)
    before, metrics, level = strategy.num_sampled_clients, averaging.train_metrics_aggr_fn, log.level
    add_noise, clip_norm = _Base._add_noise_to_aggregated_arrays, list[float]()

    def noisy(own: FixedClipping, arrays: ArrayRecord) -> Any:
        if own is strategy:
            clip_norm.append(own.clipping_norm)
        return add_noise(own, arrays)

    def of_real_clients(contents: list[RecordDict], name: str) -> MetricRecord:
        return metrics(contents[canaries:], name)

    strategy.num_sampled_clients = clients  # type: ignore[assignment]  # a whole number if weights are equal
    averaging.train_metrics_aggr_fn = of_real_clients
    # In the class, because the method of a subclass may set a clip norm, too, and then calls this one.
    _Base._add_noise_to_aggregated_arrays = noisy
    log.setLevel(max(level, logging.WARNING))
    try:
        yield clip_norm
    finally:
        strategy.num_sampled_clients, averaging.train_metrics_aggr_fn = before, metrics
        _Base._add_noise_to_aggregated_arrays = add_noise
        log.setLevel(level)
