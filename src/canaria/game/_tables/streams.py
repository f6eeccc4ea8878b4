"""Opening files: their bytes, counted for a progress bar, with gzip taken off."""

import gzip
import io
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, Final, cast

from canaria._core.errors import InputError, shown

Progress = Callable[[int, int], None]
"""Called with the bytes read so far and those of the whole file."""
GZIP: Final = b"\x1f\x8b"
MOST_BYTES: Final = 1 << 32
"""Bytes, after decompression, of a file that is read at once. 10⁸ rows of .npz have 1.6 GB; a few megabytes
of gzip can hold more than any memory."""


class _Counted(io.RawIOBase):
    """A file that reports how much of it has been read."""

    def __init__(self, file: IO[bytes], size: int, progress: Progress) -> None:
        self._file, self._size, self._progress, self._done = file, size, progress, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        count: int = self._file.readinto(buffer)  # type: ignore[attr-defined]
        self._done += count
        self._progress(self._done, self._size)
        return count


@contextmanager
def opened(source: str | Path, name: str, progress: Progress | None) -> Iterator[io.BufferedReader]:
    """The bytes of a file, or of standard input if the source is `-`, without gzip around them."""
    try:
        if str(source) == "-":
            if sys.stdin is None:
                raise InputError("standard input is closed")
            yield _without_gzip(_in_memory(sys.stdin.buffer))
        else:
            with Path(source).open("rb") as file:
                yield _without_gzip(_counted(file, Path(source), progress))
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(
            f"{name} is damaged or cut off: its gzip data end too soon or make no sense"
        ) from None
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{name} must be UTF-8 text, got bytes that are not; save it as CSV UTF-8") from None
    except InputError:
        raise
    except ValueError as error:  # a path with a null character
        raise InputError(f"{shown(name)} cannot be opened: {error}") from None


def _counted(file: io.BufferedReader, path: Path, progress: Progress | None) -> io.BufferedReader:
    status = path.stat()
    # The first bytes decide the format, and a pipe may deliver fewer of them than that takes.
    if not stat.S_ISREG(status.st_mode):
        return _in_memory(file)
    return io.BufferedReader(_Counted(file, status.st_size, progress)) if progress else file


def _in_memory(file: IO[bytes]) -> io.BufferedReader:
    return io.BufferedReader(cast("io.RawIOBase", io.BytesIO(file.read())))


def _without_gzip(stream: io.BufferedReader) -> io.BufferedReader:
    if not stream.peek(len(GZIP)).startswith(GZIP):
        return stream
    return io.BufferedReader(cast("io.RawIOBase", gzip.GzipFile(fileobj=stream)))


def whole(stream: BinaryIO, name: str) -> bytes:
    """All bytes of a file that cannot be read piece by piece."""
    data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise InputError(f"{name} must hold at most {MOST_BYTES:,} bytes, got more; save scores as CSV")
    return data
