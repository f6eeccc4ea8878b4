"""NumPy's own files. Arrays of Python objects are refused: reading them would run whatever is inside."""

import io
import struct
import zipfile
import zlib
from tokenize import TokenError
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from canaria._core.errors import InputError, shown
from canaria.game._tables import cells
from canaria.game._tables.cells import Scores
from canaria.game._tables.columns import ColumnError, Wanted

Array = npt.NDArray[Any]
_PARTS_OF: Final = {
    "xl/workbook.xml": "an Excel workbook; save the sheet as CSV UTF-8",
    "data.pkl": "a file of PyTorch, which runs code when it is read; save scores as CSV or .npz",
}


def read_npy(stream: BinaryIO, wanted: Wanted) -> Scores:
    """Read one array: with named fields, or with the columns score and included in this order."""
    array = _loaded(stream, wanted.file)
    if array.dtype.names:
        names = list(array.dtype.names)
        columns = wanted.among(names)
        return _table(array[names[columns.score]], array[names[columns.included]], wanted, names)
    if array.ndim != 2 or array.shape[1] != 2:
        raise InputError(
            f"{wanted.file} must be an array with two columns, score and included, got shape {array.shape}; "
            "or save both by name with np.savez"
        )
    return _table(array[:, 0], array[:, 1], wanted, ["score", "included"])


def read_npz(stream: BinaryIO, wanted: Wanted) -> Scores:
    """Read two arrays of an archive, by their names."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(stream.read()))
        members = archive.namelist()
        names = [name.removesuffix(".npy") for name in members if name.endswith(".npy")]
        _require_arrays(members, names, wanted.file)
        columns = wanted.among(names)
        chosen = []
        for place in (columns.score, columns.included):
            with archive.open(f"{names[place]}.npy") as member:
                chosen.append(_loaded(io.BytesIO(member.read()), f"{wanted.file}: {names[place]}"))
    except InputError:
        raise
    except (zipfile.BadZipFile, RuntimeError, ValueError, EOFError, KeyError, struct.error, zlib.error):
        raise InputError(f"{wanted.file} is damaged or cut off: it starts like an .npz file") from None
    return _table(chosen[0], chosen[1], wanted, names)


def _require_arrays(members: list[str], names: list[str], file: str) -> None:
    if names:
        return
    for part, kind in _PARTS_OF.items():
        if any(member.endswith(part) for member in members):
            raise InputError(f"{file} is {kind}")
    raise InputError(f"{file} is a zip archive without arrays, of {shown(members)}; unpack it first")


def _loaded(stream: BinaryIO, file: str) -> Array:
    try:
        array: Array = np.lib.format.read_array(stream, allow_pickle=False)
    except ValueError as error:
        if "Object arrays" in str(error):
            raise InputError(
                f"{file} holds Python objects, which are never read; save plain numbers, such as "
                "included.astype(int)"
            ) from None
        raise InputError(f"{file} is damaged or cut off: it starts like an .npy file") from None
    except (EOFError, SyntaxError, TokenError, TypeError, MemoryError, OverflowError):
        raise InputError(f"{file} is damaged or cut off: it starts like an .npy file") from None
    return array


def _table(scores: Array, included: Array, wanted: Wanted, names: list[str]) -> Scores:
    columns = wanted.among(names)
    flat = []
    for array, name in ((scores, columns.score_name), (included, columns.included_name)):
        if array.size != max(array.shape, default=0):
            raise ColumnError(
                f"{wanted.file}: {name} must be one-dimensional, got shape {array.shape}",
                "name other arrays with score_column and included_column, or save one number per element",
            )
        flat.append(array.reshape(-1) if array.dtype.kind in "biuf" else array.reshape(-1).tolist())
    return cells.table(flat[0], flat[1], columns, lambda place: f"{wanted.file} row {place + 1}")
