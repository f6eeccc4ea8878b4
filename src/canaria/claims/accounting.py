"""The promise of DP-SGD: epsilon from noise and back, by the accountants of dp-accounting.

Sampling is Poisson and adjacency is add-remove. dp-accounting is imported when a function is called.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from scipy import optimize

from canaria._core import checks
from canaria._core.errors import InputError, shown

# Renyi orders of the first search; integer orders have a closed form.
_QUICK_ORDERS: Final = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 26, 32, 44, 64, 128, 256, 512)
_LARGEST_NOISE: Final = 1e5


def dpsgd_epsilon(
    noise_multiplier: float, delta: float, steps: int, sample_rate: float, accountant: str = "rdp"
) -> float:
    """The epsilon that an accountant gives for this noise multiplier.

    Args:
        noise_multiplier: The noise multiplier, positive.
        delta: Strictly between 0 and 1.
        steps: The number of steps.
        sample_rate: The sampling rate, above 0 and at most 1.
        accountant: "rdp" or "pld".

    Example:
        >>> round(dpsgd_epsilon(2.4224, 1e-5, steps=100, sample_rate=0.1), 3)
        2.0
    """
    _check(delta, steps, sample_rate, accountant)
    if not checks.real("noise_multiplier", noise_multiplier) > 0:
        raise InputError(f"noise_multiplier must be positive, got {shown(noise_multiplier)}")
    return _epsilon(noise_multiplier, delta, steps, sample_rate, accountant, None)[0]


@lru_cache(maxsize=128)
def dpsgd_noise_multiplier(
    epsilon: float, delta: float, steps: int, sample_rate: float, accountant: str = "rdp"
) -> float:
    """The noise multiplier at which an accountant gives this epsilon, rounded up by at most 1e-6 of itself.

    For "rdp", a first search with few integer orders finds the best order. The second one uses the orders of
    dp-accounting near it, where its minimum lies: all orders would take many times as long.

    Args:
        epsilon: Positive and finite.
        delta: Strictly between 0 and 1.
        steps: The number of steps.
        sample_rate: The sampling rate, above 0 and at most 1.
        accountant: "rdp" or "pld".

    Raises:
        InputError: If no noise multiplier between 1e-5 and 1e5 gives this epsilon.

    Example:
        >>> round(dpsgd_noise_multiplier(2.0, 1e-5, steps=100, sample_rate=0.1), 2)
        2.42
    """
    _check(delta, steps, sample_rate, accountant)
    checks.positive("epsilon", epsilon)

    def excess(noise: float, orders: Sequence[float] | None) -> float:
        return _epsilon(noise, delta, steps, sample_rate, accountant, orders)[0] - epsilon

    if accountant == "pld":
        # The root is off by at most the tolerance, so the factor makes it an upper limit.
        return _root(lambda noise: excess(noise, None), 0.5, 2.0, epsilon, 1e-6) * (1 + 1e-6)
    near = _root(lambda noise: excess(noise, _QUICK_ORDERS), 0.5, 2.0, epsilon, 1e-3)
    best = _epsilon(near, delta, steps, sample_rate, accountant, _QUICK_ORDERS)[1]
    orders = _own_orders(best)
    return _root(lambda noise: excess(noise, orders), near * 0.98, near * 1.005, epsilon, 1e-7) * (1 + 5e-7)


def _own_orders(best: float) -> list[float]:
    """dp-accounting's default orders within a factor of two of the best integer one."""
    from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS

    return [order for order in DEFAULT_RDP_ORDERS if best / 2 <= order <= 2 * best]


def _root(
    excess: Callable[[float], float], low: float, high: float, epsilon: float, tolerance: float
) -> float:
    """The place where a falling function crosses 0; the bracket is widened until it holds the crossing."""
    while excess(high) > 0:
        low, high = high, 2 * high
        if high > _LARGEST_NOISE:
            raise InputError(f"epsilon {epsilon:g} cannot be reached by any noise; claim a larger one")
    while excess(low) < 0:
        low, high = low / 2, low
        if low < 1 / _LARGEST_NOISE:
            raise InputError(f"epsilon {epsilon:g} is kept without noise; claim a smaller one")
    return float(optimize.brentq(excess, low, high, rtol=tolerance))


def _check(delta: float, steps: int, sample_rate: float, accountant: str) -> None:
    if not 0 < checks.delta(delta) < 1:
        raise InputError(f"delta must be strictly between 0 and 1, got {shown(delta)}")
    checks.integer("steps", steps, 1)
    checks.sample_rate(sample_rate)
    if accountant not in ("rdp", "pld"):
        raise InputError(f"accountant must be 'rdp' or 'pld', got {shown(accountant)}")


def _epsilon(
    noise_multiplier: float,
    delta: float,
    steps: int,
    sample_rate: float,
    accountant: str,
    orders: Sequence[float] | None,
) -> tuple[float, float]:
    """Epsilon and, for RDP, the order that gives it."""
    import dp_accounting

    step: Any = dp_accounting.GaussianDpEvent(noise_multiplier)
    if sample_rate < 1:
        step = dp_accounting.PoissonSampledDpEvent(sample_rate, step)
    event = dp_accounting.SelfComposedDpEvent(step, steps)
    with _quiet():
        if accountant == "pld":
            from dp_accounting.pld import PLDAccountant

            return float(PLDAccountant().compose(event).get_epsilon(delta)), math.nan
        from dp_accounting.rdp import RdpAccountant

        counter = (RdpAccountant(orders) if orders else RdpAccountant()).compose(event)
        epsilon, order = counter.get_epsilon_and_optimal_order(delta)
        return float(epsilon), float(order)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep dp-accounting from logging which orders it leaves out."""
    from absl import logging

    level = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(level)
