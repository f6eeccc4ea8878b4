"""Opening files: their bytes, without gzip around them."""

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, Final, cast

from canaria._core.errors import InputError, shown

_GZIP: Final = b"\x1f\x8b"
SUPPORTED: Final = (
    "CSV (UTF-8; commas, semicolons or tabs), JSON, .npz, .npy or Parquet, as it is or compressed once with "
    "gzip"
)
MOST_BYTES: Final = 1 << 32
"""Bytes, after decompression, of a file that is read at once. 10⁸ rows of .npz have 1.6 GB; a few megabytes
of gzip can hold more than any memory."""


@contextmanager
def opened(source: str | Path, name: str) -> Iterator[io.BufferedReader]:
    """The bytes of a file, or of standard input if the source is `-`, without gzip around them."""
    try:
        if str(source) == "-":
            if sys.stdin is None:
                raise InputError("standard input is closed")
            yield _without_gzip(_in_memory(sys.stdin.buffer))
        else:
            with Path(source).open("rb") as file:
                # The first bytes decide the format, and a pipe may deliver fewer of them than that takes.
                yield _without_gzip(file if Path(source).is_file() else _in_memory(file))
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(
            f"{name} is damaged or cut off: its gzip data end too soon or make no sense"
        ) from None
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{name} must be {SUPPORTED}; this is something else") from None
    except InputError:
        raise
    except ValueError as error:  # a path with a null character
        raise InputError(f"{shown(name)} cannot be opened: {error}") from None


def _in_memory(file: IO[bytes]) -> io.BufferedReader:
    return io.BufferedReader(cast("io.RawIOBase", io.BytesIO(file.read())))


def _without_gzip(stream: io.BufferedReader) -> io.BufferedReader:
    if not stream.peek(len(_GZIP)).startswith(_GZIP):
        return stream
    return io.BufferedReader(cast("io.RawIOBase", gzip.GzipFile(fileobj=stream)))


def whole(stream: BinaryIO, name: str) -> bytes:
    """All bytes of a file that cannot be read piece by piece."""
    data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise InputError(f"{name} must hold at most {MOST_BYTES:,} bytes, got more; save scores as CSV")
    return data
