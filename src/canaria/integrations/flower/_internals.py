"""Undocumented parts of Flower: the attributes that hold the arguments of its strategies."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from flwr.app import Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Strategy,
)

CHECKED: Final = {"flwr": ("1.41.0", "1.42.0")}
"""The Flower versions that this file was checked with."""
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
def joined_by(canaries: int, strategy: FixedClipping, clients: float) -> Iterator[None]:
    """Adjust a strategy while canary clients are the first of the replies.

    The noise is divided by the number of all clients, metrics are computed from real clients only, and
    Flower's log line per reply is suppressed.
    """
    averaging, log = inner_of(strategy), logging.getLogger("flwr")
    assert isinstance(averaging, FedAvg)
    before, metrics, level = strategy.num_sampled_clients, averaging.train_metrics_aggr_fn, log.level
    strategy.num_sampled_clients = clients  # type: ignore[assignment]  # a whole number if weights are equal
    averaging.train_metrics_aggr_fn = _without_first(canaries, metrics)
    log.setLevel(max(level, logging.WARNING))
    try:
        yield
    finally:
        strategy.num_sampled_clients, averaging.train_metrics_aggr_fn = before, metrics
        log.setLevel(level)


def _without_first(
    canaries: int, metrics: Callable[[list[RecordDict], str], MetricRecord]
) -> Callable[[list[RecordDict], str], MetricRecord]:
    return lambda contents, name: metrics(contents[canaries:], name)
