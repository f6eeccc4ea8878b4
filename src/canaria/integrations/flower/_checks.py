"""Checks which strategies can be audited. Others are refused with a one-line error."""

from flwr.serverapp import strategy as flower

from canaria._core.errors import InputError
from canaria.integrations.flower._internals import FixedClipping, averages, inner_of


def require_private(strategy: object) -> FixedClipping:
    """Check that a strategy clips to a fixed norm and adds its noise to a plain mean."""
    name = type(strategy).__name__
    if isinstance(
        strategy,
        flower.DifferentialPrivacyServerSideAdaptiveClipping
        | flower.DifferentialPrivacyClientSideAdaptiveClipping,
    ):
        raise InputError(
            f"{name} clips to a norm that depends on what all clients send, including canaries; audit fixed "
            "clipping"
        )
    if not isinstance(
        strategy,
        flower.DifferentialPrivacyServerSideFixedClipping | flower.DifferentialPrivacyClientSideFixedClipping,
    ):
        raise InputError(
            "strategy must be DifferentialPrivacyServerSideFixedClipping or "
            f"DifferentialPrivacyClientSideFixedClipping of flwr.serverapp.strategy, "
            f"got {name} of {type(strategy).__module__}"
        )
    inner = inner_of(strategy)
    if not averages(inner):
        raise InputError(
            f"{type(inner).__name__} has a method of its own in place of FedAvg's, which takes the mean of "
            "updates before noise is added: with any other, one client may move the model by more than the "
            "noise is made for, and the audit cannot tell; audit FedAvg"
        )
    if type(strategy).start is not flower.Strategy.start:
        raise InputError(f"{name} has its own start method, which an audit would bypass")
    return strategy
