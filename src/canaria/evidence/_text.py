"""Fields of evidence as JSON: hits as a string of 0 and 1, numbers as lists, infinities as words."""

from typing import Any

import numpy as np

from canaria._core.arrays import Floats, Hits
from canaria._core.errors import InputError, shown
from canaria._core.kinds import Kind, to_dict


def plain(value: object) -> Any:
    """A field of evidence as plain data."""
    if isinstance(value, np.ndarray) and value.dtype == np.bool_:
        return (value.astype(np.uint8) + ord("0")).tobytes().decode("ascii")
    if isinstance(value, np.ndarray):
        return [number if np.isfinite(number) else str(number) for number in value.tolist()]
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    return to_dict(value) if isinstance(value, Kind) else value


def hits_from_text(text: object) -> Hits:
    """Read hits from a string of 0 and 1."""
    if not isinstance(text, str) or set(text) - {"0", "1"}:
        raise InputError(f"hits must be a string of 0 and 1, got {shown(text)}")
    return np.asarray(np.frombuffer(text.encode("ascii"), dtype=np.uint8) == ord("1"))


def numbers_from_json(name: str, values: object) -> Floats | None:
    """Read a list of numbers, infinite ones as the words "inf" and "-inf"; None stays None."""
    if values is None:
        return None
    if not isinstance(values, list):
        raise InputError(f"{name} must be a list of numbers, got {shown(values)}")
    words = {"inf": np.inf, "-inf": -np.inf}
    try:
        return np.array([words[v] if isinstance(v, str) else float(v) for v in values])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be a list of numbers, got {shown(values)}") from None
