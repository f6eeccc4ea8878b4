"""The stage that long work has reached: the work reports it, and the command line shows it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_LISTENER: Final[ContextVar[Callable[[str], None] | None]] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Callable[[str], None]) -> Iterator[None]:
    """Tell a listener what the work inside is at."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def tell(stage: str) -> None:
    """Say what comes next, in a few words."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(stage)
