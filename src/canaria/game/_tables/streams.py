"""Opening files: bytes, counted for a progress bar, with whatever compression is around them taken off."""

import io
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, cast

from canaria._core.errors import InputError, shown
from canaria._core.extras import needed_for

Progress = Callable[[int, int], None]
"""Called with the bytes read so far and those of the whole file."""
_LONGEST_MAGIC: Final = 8


class _Counted(io.RawIOBase):
    """A file that tells how much of it has been read."""

    def __init__(self, file: IO[bytes], size: int, progress: Progress) -> None:
        self._file, self._size, self._progress, self._done = file, size, progress, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        data = self._file.read(len(view))
        view[: len(data)] = data
        self._done += len(data)
        self._progress(self._done, self._size)
        return len(data)


@contextmanager
def opened(source: str | Path, name: str, progress: Progress | None) -> Iterator[io.BufferedReader]:
    """The bytes of a file, or of standard input if the source is `-`, uncompressed."""
    try:
        if str(source) == "-":
            if sys.stdin is None:
                raise InputError("standard input is closed")
            yield uncompressed(_in_memory(sys.stdin.buffer), name)
        else:
            with Path(source).open("rb") as file:
                yield uncompressed(_counted(file, Path(source), progress), name)
    except OSError as error:
        if error.strerror is None:  # from a decompressor, not from the file system
            raise _damaged(name) from None
        raise InputError(f"{name} cannot be read: {error.strerror}") from None
    except (EOFError, zlib.error):
        raise _damaged(name) from None
    except UnicodeDecodeError:
        raise InputError(f"{name} must be UTF-8 text, got bytes that are not; save it as CSV UTF-8") from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{shown(name)} cannot be opened: {error}") from None


def _counted(file: io.BufferedReader, path: Path, progress: Progress | None) -> io.BufferedReader:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # a pipe gives its first bytes in pieces of any size
        return _in_memory(file)
    return io.BufferedReader(_Counted(file, status.st_size, progress)) if progress else file


def _in_memory(file: IO[bytes]) -> io.BufferedReader:
    return io.BufferedReader(cast("io.RawIOBase", io.BytesIO(file.read())))


def uncompressed(stream: io.BufferedReader, name: str) -> io.BufferedReader:
    """Take off gzip, bzip2, xz and zstd, however many are wrapped around each other."""
    while True:
        magic = stream.peek(_LONGEST_MAGIC)[:_LONGEST_MAGIC]
        for start, opener in _COMPRESSIONS.items():
            if magic.startswith(start):
                stream = io.BufferedReader(cast("io.RawIOBase", opener(stream, name)))
                break
        else:
            return stream


def _gzip(stream: IO[bytes], _: str) -> object:
    import gzip

    return gzip.GzipFile(fileobj=stream)


def _bzip2(stream: IO[bytes], _: str) -> object:
    import bz2

    return bz2.BZ2File(stream)


def _xz(stream: IO[bytes], _: str) -> object:
    return _Xz(stream)


class _Xz(io.RawIOBase):
    """An xz file whose damage is an OSError, as that of the others."""

    def __init__(self, stream: IO[bytes]) -> None:
        import lzma

        self._file, self._error = lzma.LZMAFile(stream), lzma.LZMAError  # noqa: SIM115

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        try:
            return self._file.readinto(buffer)  # type: ignore[arg-type]
        except self._error as error:
            raise EOFError from error


def _zstd(stream: IO[bytes], name: str) -> object:
    with needed_for(f"{name} is compressed with zstd, which", "arrow"):
        import pyarrow
    return pyarrow.CompressedInputStream(pyarrow.PythonFile(stream, "r"), "zstd")


_COMPRESSIONS: Final[dict[bytes, Callable[[IO[bytes], str], object]]] = {
    b"\x1f\x8b": _gzip,
    b"BZh": _bzip2,
    b"\xfd7zXZ\x00": _xz,
    b"\x28\xb5\x2f\xfd": _zstd,
}


def _damaged(name: str) -> InputError:
    return InputError(f"{name} is damaged or cut off: its compressed data end too soon or make no sense")
