"""Reading scores from files. The first bytes of a file decide its format, not its name."""

import codecs
import io
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, get_args

from canaria._core.errors import InputError, shown
from canaria.game._tables import arrays, json_text, parquet, text
from canaria.game._tables.cells import Scores
from canaria.game._tables.columns import ColumnError, HigherMeans, Wanted
from canaria.game._tables.streams import opened

__all__ = ["ColumnError", "HigherMeans", "Scores", "read_scores"]

Reader = Callable[[BinaryIO, Wanted], Scores]
_READERS: Final[dict[bytes, Reader]] = {
    b"PAR1": parquet.read,
    b"\x93NUMPY": arrays.read,
    b"PK\x03\x04": arrays.read,
    b"PK\x05\x06": arrays.read,
}
_LONGEST_HEAD: Final = 4096
"""Bytes of white space that are skipped to see whether a text is JSON."""


def read_scores(
    source: str | Path,
    *,
    score_column: str | None = None,
    included_column: str | None = None,
    higher_means: HigherMeans | None = None,
) -> Scores:
    r"""Read a file of scores.

    The file is UTF-8 text with a header (separated by commas, semicolons or tabs), JSON (a row per line, a
    list of rows, or an object of lists), `.npz`, `.npy` (named fields, or the two columns score and
    included), or with pyarrow Parquet. It may be compressed with gzip. The first bytes of the file decide
    what it is, not its name.

    Scores are finite numbers with a decimal point. Membership is written as 0/1, -1/+1, true/false, yes/no or
    in/out, in any case, and in one of these ways throughout. No cell may be missing.

    Args:
        source: The path of the file; `-` is standard input.
        score_column: The column with the scores; by default `score`, or the only column with a name that is
            usual for scores, such as `loss` or `logit`, in any case.
        included_column: The column that says who was included; by default `included`, or the only one with a
            usual name, such as `member` or `label`.
        higher_means: Whether a higher score means "more likely included" (the default) or "excluded", as for
            losses; those scores are negated. A column `loss` that was not named is not read without it.

    Returns:
        The scores, higher meaning "more likely included", and which elements were included.

    Raises:
        InputError: If the file cannot be read, has no rows, or holds anything that is not allowed.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "scores.csv"
        >>> _ = path.write_text("Loss;Member\n1.5;no\n-0.5;yes\n")
        >>> read_scores(path, higher_means="excluded")
        Scores(scores=array([-1.5,  0.5]), included=array([False,  True]))
    """
    if higher_means not in (None, *get_args(HigherMeans)):
        raise InputError(f"higher_means must be 'included' or 'excluded', got {shown(higher_means)}")
    name = "standard input" if str(source) == "-" else str(source)
    wanted = Wanted(file=name, score=score_column, included=included_column, higher_means=higher_means)
    with opened(source, name) as stream:
        scores, included = _read(stream, wanted)
    if not len(scores):
        raise InputError(f"{name} must hold at least one row of scores, got none")
    return Scores(0.0 - scores if higher_means == "excluded" else scores, included)


def _read(stream: io.BufferedReader, wanted: Wanted) -> Scores:
    head = stream.peek(_LONGEST_HEAD).removeprefix(codecs.BOM_UTF8)
    for magic, reader in _READERS.items():
        if head.startswith(magic):
            return reader(stream, wanted)
    is_json = head.lstrip()[:1] in (b"{", b"[")
    return json_text.read(stream, wanted) if is_json else text.read(stream, wanted)
