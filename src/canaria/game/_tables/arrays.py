"""NumPy's own files. Arrays of Python objects are refused: reading them would run code from the file."""

import io
import struct
import zipfile
import zlib
from tokenize import TokenError
from typing import Any, BinaryIO, Final, cast

import numpy as np
import numpy.typing as npt
from numpy.lib.npyio import NpzFile

from canaria._core.errors import InputError, shown
from canaria.game._tables import cells
from canaria.game._tables.cells import Scores
from canaria.game._tables.columns import ColumnError, Wanted
from canaria.game._tables.streams import MOST_BYTES, whole

Array = npt.NDArray[Any]
_DAMAGE: Final = (
    *(ValueError, TypeError, KeyError, EOFError, MemoryError, OverflowError, RuntimeError),
    *(SyntaxError, TokenError, struct.error, zlib.error, zipfile.BadZipFile),
)
"""What NumPy's reader raises for bytes that are not as they should be. The header of an array is an
expression in Python, hence the errors of its parser."""


def read(stream: BinaryIO, wanted: Wanted) -> Scores:
    """Read two columns of an `.npz` or `.npy` file."""
    data = io.BytesIO(whole(stream, wanted.file))
    try:
        loaded = np.load(data, allow_pickle=False)
        columns = wanted.among(_names(loaded, wanted.file))
        scores = _column(loaded, columns.score, columns.score_name, wanted.file)
        included = _column(loaded, columns.included, columns.included_name, wanted.file)
    except InputError:
        raise
    except _DAMAGE as error:
        if "Object arrays" in str(error):
            raise InputError(
                f"{wanted.file} holds Python objects, which are never read; save plain numbers, such as "
                "included.astype(int)"
            ) from None
        raise InputError(f"{wanted.file} is damaged or cut off: it starts like a file of NumPy") from None
    return cells.table(scores, included, columns, wanted.file)


def _names(loaded: Any, file: str) -> list[str]:
    """The arrays of an archive, the fields of an array, or the two columns of an array without fields."""
    if isinstance(loaded, NpzFile):
        if not any(member.endswith(".npy") for member in _archive(loaded).namelist()):
            raise InputError(
                f"{file} is a zip archive without arrays, of {shown(loaded.files)}; Excel and PyTorch write "
                "such files: save scores as CSV or .npz"
            )
        return loaded.files
    if loaded.dtype.names:
        return list(loaded.dtype.names)
    if loaded.ndim == 2 and loaded.shape[1] == 2:
        return ["score", "included"]
    raise InputError(
        f"{file} must be an array with two columns, score and included, got shape {loaded.shape}; or save "
        "both by name with np.savez"
    )


def _column(loaded: Any, place: int, name: str, file: str) -> Array:
    """One column; only the two that are wanted are read from an archive."""
    if isinstance(loaded, NpzFile):
        member = loaded.files[place]
        if _archive(loaded).getinfo(f"{member}.npy").file_size > MOST_BYTES:
            raise InputError(f"{file}: {name} must hold at most {MOST_BYTES:,} bytes, got more")
        return _flat(loaded[member], name, file)
    return _flat(loaded[loaded.dtype.names[place]] if loaded.dtype.names else loaded[:, place], name, file)


def _archive(loaded: NpzFile) -> zipfile.ZipFile:
    return cast("zipfile.ZipFile", loaded.zip)  # None only after the archive is closed


def _flat(array: Array, name: str, file: str) -> Array:
    if array.size != max(array.shape, default=0):
        raise ColumnError(
            f"{file}: {name} must be one-dimensional, got shape {array.shape}",
            "name other arrays with score_column and included_column, or save one number per element",
        )
    return array.reshape(-1)
