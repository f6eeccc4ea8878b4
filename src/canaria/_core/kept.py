"""A disk cache for numbers that take seconds to compute.

It is the folder `canaria` in the user's cache folder ($XDG_CACHE_HOME, or ~/.cache). If that is not writable,
or a file is broken, the numbers are computed again.
"""

import io
import os
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from canaria._core.arrays import Floats
from canaria._core.errors import InputError
from canaria._core.files import write_atomically
from canaria._version import __version__


def kept(
    what: str, key: tuple[object, ...], make: Callable[[], Floats], good: Callable[[Floats], bool]
) -> Floats:
    """The two-dimensional array from the cache file of this key, or else computed by `make`.

    A cached array is used if it is `good`. The versions of canaria and dp-accounting are part of each key.
    """
    path = folder() / f"{what}-{sha256(repr((_versions(), key)).encode()).hexdigest()[:32]}.npy"
    with suppress(OSError, ValueError, EOFError, MemoryError):
        found = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(found, np.ndarray) and found.dtype == np.float64 and found.ndim == 2 and found.size:
            found = np.array(found)
            if np.isfinite(found).all() and good(found):
                return found
    made, buffer = np.asarray(make(), dtype=np.float64), io.BytesIO()
    np.save(buffer, made, allow_pickle=False)
    with suppress(OSError, InputError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, buffer.getvalue())
    return made


def folder() -> Path:
    """The cache folder."""
    with suppress(RuntimeError):
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "canaria"
    return Path(os.devnull)


@lru_cache
def _versions() -> tuple[str, ...]:
    with suppress(PackageNotFoundError):
        return __version__, version("dp-accounting")
    return (__version__,)
