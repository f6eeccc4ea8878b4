"""Arrays of evidence as JSON: hits as a string of 0 and 1, numbers as lists, infinities as words."""

import numpy as np

from canaria._core.arrays import Floats, Hits
from canaria._core.errors import InputError, shown


def hits_to_text(hits: Hits) -> str:
    """Write hits as a string of 0 and 1."""
    return (hits.astype(np.uint8) + ord("0")).tobytes().decode("ascii")


def hits_from_text(text: object) -> Hits:
    """Read hits from a string of 0 and 1."""
    if not isinstance(text, str) or set(text) - {"0", "1"}:
        raise InputError(f"hits must be a string of 0 and 1, got {shown(text)}")
    return np.asarray(np.frombuffer(text.encode("ascii"), dtype=np.uint8) == ord("1"))


def numbers_to_json(values: Floats | None) -> list[float | str] | None:
    """Write numbers as a list, infinite ones as the words "inf" and "-inf"."""
    if values is None:
        return None
    return [value if np.isfinite(value) else str(value) for value in values.tolist()]


def numbers_from_json(name: str, values: object) -> Floats | None:
    """Read what `numbers_to_json` wrote."""
    if values is None:
        return None
    if not isinstance(values, list):
        raise InputError(f"{name} must be a list of numbers, got {shown(values)}")
    words = {"inf": np.inf, "-inf": -np.inf}
    try:
        return np.array([words[v] if isinstance(v, str) else float(v) for v in values])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be a list of numbers, got {shown(values)}") from None
