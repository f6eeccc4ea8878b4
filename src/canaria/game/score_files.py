"""Reading scores from files of the kinds that people have; what a file is, is decided by its first bytes."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, get_args

from canaria._core.errors import InputError, shown
from canaria.game._tables import arrays, arrow, json_text, text
from canaria.game._tables.cells import Scores
from canaria.game._tables.columns import ColumnError, HigherMeans, Wanted
from canaria.game._tables.streams import Progress, opened

__all__ = ["ColumnError", "HigherMeans", "Scores", "read_scores"]

Reader = Callable[[BinaryIO, Wanted], Scores]
_READERS: Final[dict[bytes, Reader]] = {
    b"PAR1": arrow.read_parquet,
    b"ARROW1": arrow.read_feather,
    b"FEA1": arrow.read_feather,
    b"\xff\xff\xff\xff": arrow.read_stream,
    b"\x93NUMPY": arrays.read_npy,
    b"PK\x03\x04": arrays.read_npz,
    b"PK\x05\x06": arrays.read_npz,
}
_REFUSED: Final = {
    b"\x80\x02": "a pickle",
    b"\x80\x03": "a pickle",
    b"\x80\x04": "a pickle",
    b"\x80\x05": "a pickle",
    b"\x89HDF": "an HDF5 file",
    b"MATLAB": "a MATLAB file",
    b"SQLite format 3": "an SQLite database",
    b"%PDF": "a PDF",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
}
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_LONGEST_HEAD: Final = 4096
"""How far white space is skipped to see whether a text is JSON."""


def read_scores(
    source: str | Path,
    *,
    score_column: str | None = None,
    included_column: str | None = None,
    higher_means: HigherMeans | None = None,
    progress: Progress | None = None,
) -> Scores:
    r"""Read a file of scores.

    The file is text with a header (separated by commas, semicolons, tabs, bars or spaces), JSON (a row per
    line, an array of rows, or an object of lists), `.npz`, `.npy` (named fields, or the two columns score and
    included), and with pyarrow Parquet, Feather or Arrow. It may be compressed with gzip, bzip2, xz, or with
    pyarrow zstd. Its name does not matter.

    Scores are finite numbers. Who was included is written as 0/1, -1/+1, true/false, yes/no, in/out,
    included/excluded or member/non-member, in any case, and in one of these ways throughout. Nothing may be
    missing.

    Args:
        source: The path of the file; `-` is standard input.
        score_column: The column with the scores; by default `score`, or the only column with a name that is
            usual for scores, such as `loss` or `logit`, in any case.
        included_column: The column that says who was included; by default `included`, or the only one with a
            usual name, such as `member` or `label`.
        higher_means: Whether a higher score means "more likely included" (the default) or "excluded", as for
            losses; those scores are negated. A column `loss` that was not named is not read without it.
        progress: Called with the bytes read so far and those of the file, while text is read.

    Returns:
        The scores, higher meaning "more likely included", and which elements were included.

    Raises:
        InputError: If the file cannot be read, has no rows, or holds anything that is not allowed.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "scores.csv"
        >>> _ = path.write_text("Loss;Member\n1,5;no\n-0,5;yes\n")
        >>> read_scores(path, higher_means="excluded")
        Scores(scores=array([-1.5,  0.5]), included=array([False,  True]))

    """
    if higher_means not in (None, *get_args(HigherMeans)):
        raise InputError(f"higher_means must be 'included' or 'excluded', got {shown(higher_means)}")
    name = "standard input" if str(source) == "-" else str(source)
    wanted = Wanted(file=name, score=score_column, included=included_column, higher_means=higher_means)
    with opened(source, name, progress) as stream:
        scores, included = _read(stream, wanted)
    if not len(scores):
        raise InputError(f"{name} must hold at least one row of scores, got none")
    return Scores(0.0 - scores if higher_means == "excluded" else scores, included)


def _read(stream: io.BufferedReader, wanted: Wanted) -> Scores:
    head = stream.peek(_LONGEST_HEAD)
    for magic, reader in _READERS.items():
        if head.startswith(magic):
            return reader(stream, wanted)
    for magic, kind in _REFUSED.items():
        if head.startswith(magic):
            raise InputError(f"{wanted.file} is {kind}, which is not read; save scores as CSV, JSON or .npz")
    source: BinaryIO = stream
    if head.startswith(_UTF_16):
        source = io.BytesIO(stream.read().decode("utf-16").encode())
        head = source.getvalue()[:_LONGEST_HEAD]
    is_json = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")
    return json_text.read(source, wanted) if is_json else text.read(source, wanted)
