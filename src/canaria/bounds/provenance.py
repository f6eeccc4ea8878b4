"""The origin of a result: the versions that ran, and the date."""

import platform
import sys
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import version
from typing import Final

from canaria._version import __version__

_TRAINERS: Final = ("torch", "opacus", "jax", "jax_privacy", "lightning", "transformers", "peft", "flwr")


@lru_cache
def _installed(name: str) -> str:
    return version(name)


def running() -> dict[str, str]:
    """The versions of canaria and of what it needs, and of the training frameworks that are loaded."""
    loaded = [name.replace("_", "-") for name in _TRAINERS if name in sys.modules]
    names = ("numpy", "scipy", *loaded)
    return {
        "canaria": __version__,
        "python": platform.python_version(),
        **{name: _installed(name) for name in names},
    }


def today() -> str:
    """The date, in UTC."""
    return datetime.now(UTC).date().isoformat()
