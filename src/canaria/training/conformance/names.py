"""Names of parameters in messages."""

from collections.abc import Sequence


def numbered(shapes: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
    """Names for parameters that have none, made of their number and shape."""
    return tuple(
        f"parameter {number} of {len(shapes)} ({' x '.join(map(str, shape)) or 'a number'})"
        for number, shape in enumerate(shapes, start=1)
    )


def named(parameter: int, names: Sequence[str]) -> str:
    """The name of a parameter, or its number if names are not known."""
    return names[parameter] if parameter < len(names) else f"parameter {parameter + 1}"
