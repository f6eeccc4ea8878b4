"""Numbers formatted for people. A bound is never rounded up."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal


def rounded_down(value: float, digits: int = 3) -> str:
    """A number as text, rounded down to a fixed number of decimals.

    Example:
        >>> rounded_down(2.01), rounded_down(0.9999999), rounded_down(float("inf")), rounded_down(3e20)
        ('2.010', '0.999', 'inf', '3.0000e+20')
    """
    if not math.isfinite(value):
        return "inf"
    exact = Decimal(repr(float(value)))
    if exact >= 10**9:
        return f"{value:.4e}"
    return str(exact.quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR))


def rounded_up(value: float, digits: int = 3) -> str:
    """A number as text, rounded up, for the upper end of an interval.

    Example:
        >>> rounded_up(2.0101), rounded_up(float("inf"))
        ('2.011', 'inf')
    """
    if not math.isfinite(value) or value >= 10**9:
        return rounded_down(value, digits)
    return str(Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-digits), ROUND_CEILING))


def significant(value: float, digits: int = 5) -> float:
    """Round a positive number down to this many significant digits, so that it prints exactly.

    Example:
        >>> significant(0.61234999), significant(123456.0)
        (0.61234, 123450.0)
    """
    exact = Decimal(repr(float(value)))
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() + 1 - digits), ROUND_FLOOR))


def percent(share: float, digits: int = 8) -> str:
    """A share in percent, rounded down, without trailing zeros.

    Example:
        >>> percent(0.95), percent(1 - 2**-53)
        ('95', '99.99999999')
    """
    exact = (Decimal(repr(float(share))) * 100).quantize(Decimal(1).scaleb(-digits), ROUND_FLOOR)
    return f"{exact.normalize():f}"
