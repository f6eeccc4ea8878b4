"""Score files of every kind people have: read as meant, or one line that says what to do."""

import bz2
import csv
import gzip
import io
import json
import lzma
import math
import pickle
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet

from canaria import InputError, audit_scores
from canaria._core.membership import Membership
from canaria.game._tables import arrays, cells, streams, text
from canaria.game.score_files import read_scores

SCORES = [1.5, -0.5, 0.25, 30.0]
INCLUDED = [1, 0, 0, 1]
CSV = b"score,included\n1.5,1\n-0.5,0\n0.25,0\n30,1\n"


def spelled(yes: str, no: str, header: str = "score,included", separator: str = ",") -> bytes:
    words = [yes if bit else no for bit in INCLUDED]
    rows = [f"{score}{separator}{word}" for score, word in zip(SCORES, words, strict=True)]
    return "\n".join([header, *rows, ""]).encode()


def made(write: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def arrow(**columns: Any) -> pa.Table:
    return pa.table(columns or {"score": SCORES, "included": INCLUDED})


def zipped(name: str, data: bytes) -> bytes:
    def write(file: io.BytesIO) -> None:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(name, data)

    return made(write)


STRUCTURED = np.array(
    list(zip(SCORES, map(bool, INCLUDED), strict=True)), dtype=[("Score", "f4"), ("Member", "?")]
)
PAIRS = np.column_stack([SCORES, INCLUDED])
OBJECTS = [{"score": score, "included": bit} for score, bit in zip(SCORES, INCLUDED, strict=True)]
LISTS = {"score": SCORES, "included": INCLUDED}
WORDS_AND_A_HOLE = pa.array(["in", None, "out"]).dictionary_encode()
PARQUET = made(lambda file: parquet.write_table(arrow(), file))
NPZ = made(lambda file: np.savez(file, score=SCORES, included=INCLUDED))
SAVETXT = made(lambda file: np.savetxt(file, PAIRS, header="score,included", delimiter=","))

READ: dict[str, bytes | tuple[bytes, dict[str, Any]]] = {
    "0 and 1": CSV,
    "0.0 and 1.0": spelled("1.0", "0.0"),
    "-1 and 1": spelled("1", "-1"),
    "-1 and +1": spelled("+1", "-1"),
    "-1.0 and 1.0": spelled("1.0", "-1.0"),
    "true and false": spelled("true", "false"),
    "True and False": spelled("True", "False"),
    "TRUE and FALSE": spelled("TRUE", "FALSE"),
    "yes and no": spelled("yes", "no"),
    "Yes and No": spelled("Yes", "No"),
    "in and out": spelled("in", "out"),
    "IN and OUT": spelled("IN", "OUT"),
    "words in quotes": spelled('"yes"', '"no"'),
    "names in quotes": spelled("1", "0", header='"score","included"'),
    "spaces after commas": CSV.replace(b",", b", "),
    "names in capitals": spelled("1", "0", header="SCORE,INCLUDED"),
    "Logit and Is_Member": spelled("1", "0", header="Logit,Is_Member"),
    "confidence and label": spelled("1", "0", header=" confidence , label "),
    "score and membership": spelled("yes", "no", header="score,membership"),
    "score and In": spelled("1", "0", header="score,In"),
    "loss": (spelled("1", "0", header="loss,member"), {"higher_means": "included"}),
    "named columns": (
        spelled("1", "0", header="my nll,who"),
        {"score_column": "my nll", "included_column": "who", "higher_means": "included"},
    ),
    "named columns in another case": (
        spelled("1", "0", header="NLL,Who"),
        {"score_column": "nll", "included_column": "who", "higher_means": "included"},
    ),
    "more columns": b"id,score,included,note\na,1.5,1,x\nb,-0.5,0,\nc,0.25,0,y\nd,30,1,z\n",
    "a label beside included": b"score,included,label\n1.5,1,7\n-.5,0,3\n.25,0,7\n3e1,1,9\n",
    "notes with commas and lines": b'score,included,note\n1.5,1,"a, b"\n-0.5,0,"c\nd"\n0.25,0,"say ""e"""\n30,1,\n',
    "semicolons": CSV.replace(b",", b";"),
    "np.savetxt": SAVETXT,
    "tabs": CSV.replace(b",", b"\t"),
    "a byte order mark": b"\xef\xbb\xbf" + CSV,
    "Windows lines": CSV.replace(b"\n", b"\r\n"),
    "old Mac lines": CSV.replace(b"\n", b"\r"),
    "blank lines": b"\n\n" + CSV.replace(b"\n", b"\n\n"),
    "no last line feed": CSV.rstrip(),
    "gzip": gzip.compress(CSV),
    "gzip, tabs": gzip.compress(CSV.replace(b",", b"\t")),
    "gzip, semicolons": gzip.compress(CSV.replace(b",", b";")),
    "JSON lines": "".join(json.dumps(row) + "\n" for row in OBJECTS).encode(),
    "JSON lines, booleans": "\r\n".join(json.dumps(row | {"included": row["included"] == 1}) for row in OBJECTS).encode(),
    "JSON lines, gzip": gzip.compress("".join(json.dumps(row) + "\n" for row in OBJECTS).encode()),
    "a JSON array": json.dumps(OBJECTS).encode(),
    "a JSON array with indents": json.dumps(OBJECTS, indent=2).encode(),
    "a JSON object of lists": json.dumps(LISTS).encode(),
    "a JSON object of lists with indents": json.dumps(LISTS, indent=1).encode(),
    "npz": NPZ,
    "npz, compressed": made(lambda file: np.savez_compressed(file, Scores=SCORES, member=np.array(INCLUDED) > 0)),
    "npz, columns and words": made(
        lambda file: np.savez(file, score=np.c_[SCORES], included=np.where(np.array(INCLUDED) > 0, "in", "out"))
    ),
    "npz, gzip": gzip.compress(NPZ),
    "npy, two columns": made(lambda file: np.save(file, PAIRS)),
    "npy, ±1": made(lambda file: np.save(file, np.column_stack([SCORES, 2 * np.array(INCLUDED) - 1]))),
    "npy, fields": made(lambda file: np.save(file, STRUCTURED)),
    "Parquet": PARQUET,
    "Parquet, booleans": made(
        lambda file: parquet.write_table(arrow(logit=SCORES, member=[bit == 1 for bit in INCLUDED]), file)
    ),
    "Parquet, words": made(
        lambda file: parquet.write_table(arrow(score=SCORES, y=pa.array(["in", "out", "out", "in"]).dictionary_encode()), file)
    ),
    "Parquet, gzip": gzip.compress(PARQUET),
}  # fmt: skip

BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "{} must hold at least one row of scores, got none"),
    "only a header": (b"score,included\n", "{} must hold at least one row of scores, got none"),
    "no header": (b"1.5,1\n-0.5,0\n", "{} must start with the names of its columns, got ['1.5', '1']; add a first"),
    "no column for scores": (b"a,included\n1,1\n", "got ['a', 'included']; name it with score_column"),
    "no column for included": (b"score,b\n1,1\n", "got ['score', 'b']; name it with included_column"),
    "two columns for scores": (b"logit,confidence,included\n1,1,1\n", "; name it with score_column"),
    "two columns for included": (b"score,label,member\n1,1,1\n", "; name it with included_column"),
    "a loss of unknown direction": (b"loss,included\n1,1\n", "; say which with higher_means"),
    "a result file": (
        b'{"format": 1, "evidence": {}, "checksum": ""}',
        "is a result file, not scores: use canaria verify, report or compare",
    ),
    "mixed ways of writing": (CSV + b"1,yes\n", "row 5: included must keep to one of 0/1, -1/+1, "),
    "0, 1 and -1": (CSV + b"1,-1\n", "got '-1' after '0'"),
    "classes": (CSV + b"1,7\n", "row 5: included must be 0/1, -1/+1, true/false, yes/no or in/out, got '7'"),
    "a missing bit": (CSV + b"1,\n", "yes/no or in/out, got nothing"),
    "a missing score": (CSV + b",1\n", "{} row 5: score must be a finite number, got nothing"),
    "not a number": (CSV + b"nan,1\n", "{} row 5: score must be a finite number, got 'nan'"),
    "words for scores": (CSV + b"high,1\n", "{} row 5: score must be a finite number, got 'high'"),
    "decimal commas between commas": (b"score,included\n1,5,1\n", "row 1 has more cells than the header, 3 instead of 2; write decimal points"),
    "thousands": (b"score;included\n1,234.5;1\n", "got '1,234.5'; write numbers with a decimal point"),
    "decimal commas": (b"score;included\n0.5;1\n1,5;0\n", "row 2: score must be a finite number, got '1,5'; write"),
    "words that are not taken": (CSV.replace(b"30,1", b"30,member"), "yes/no or in/out, got 'member'"),
    "bars": (CSV.replace(b",", b"|"), "columns separated by commas, semicolons or tabs, got the first line 'score|"),
    "spaces": (CSV.replace(b",", b" "), "columns separated by commas, semicolons or tabs, got the first line 'score "),
    "an open quote in the header": (b'"score,included\n1,1\n', "is not readable as CSV: unexpected end of data"),
    "an open quote": (b'score,included\n1,"1\n', "is not readable as CSV: unexpected end of data"),
    "gzip, cut off": (gzip.compress(CSV)[:-10], "{} is damaged or cut off"),
    "gzip, damaged": (b"\x1f\x8b" + bytes(30), "{} is damaged or cut off"),
    "npz, cut off": (NPZ[:-50], "{} is damaged or cut off: it starts like a file of NumPy"),
    "npy, cut off": (made(lambda file: np.save(file, PAIRS))[:-8], "damaged or cut off: it starts like a file of NumPy"),
    "npy, one column": (made(lambda file: np.save(file, SCORES)), "two columns, score and included, got shape (4,)"),
    "npy of objects": (
        made(lambda file: np.save(file, np.array([{}, []], dtype=object), allow_pickle=True)),
        "holds Python objects, which are never read",
    ),
    "npz of objects": (
        made(lambda file: np.savez(file, score=SCORES, included=np.array([1, "0", None, 1], dtype=object))),
        "{} holds Python objects, which are never read",
    ),
    "npz of other lengths": (
        made(lambda file: np.savez(file, score=SCORES, included=[1, 0])),
        "{}: score and included must be equally long, got 4 and 2",
    ),
    "npz of tables": (made(lambda file: np.savez(file, logits=np.eye(3), y=[1, 0, 1])), "got shape (3, 3)"),
    "a zipped CSV": (zipped("scores.csv", CSV), "without arrays, of ['scores.csv']; Excel and PyTorch"),
    "Excel": (zipped("xl/workbook.xml", b""), "Excel and PyTorch write such files: save scores as CSV or .npz"),
    "pandas' JSON": (b'{"score": {"0": 1.5}, "included": {"0": 1}}', "must hold a list for each column; write rows"),
    "JSON in JSON": (b"[" * 100_000, "{} is nested too deeply or has too long numbers; write"),
    "JSON with an endless number": (b'[{"score": ' + b"9" * 5000 + b"}]", "{} is nested too deeply or has too long"),
    "JSON lines, cut off": (b'{"score": 1, "included": 1}\n{"score": 1, "inc', "line 2 must be a JSON object"),
    "a JSON array, cut off": (json.dumps(OBJECTS).encode()[:-5], "{} is not readable as JSON; write rows such as"),
    "a JSON array of numbers": (b"[1, 2, 3]", "{} row 1 must be a JSON object, got 1"),
    "JSON lists of other lengths": (b'{"score": [1, 2], "included": [1]}', "equally long, got 2 and 1"),
    "JSON null": (b'[{"score": 1, "included": 1}, {"score": null, "included": 0}]', "row 2: score must be"),
    "Parquet, cut off": (PARQUET[:-9], "{} is damaged or cut off: it starts like a Parquet file"),
    "Parquet with a hole": (
        made(lambda file: parquet.write_table(arrow(score=[1.0, None], included=[1, 0]), file)),
        "{} row 2: score must be a finite number, got nothing",
    ),
    "Parquet with a missing word": (
        made(lambda file: parquet.write_table(arrow(score=SCORES[:3], y=WORDS_AND_A_HOLE), file)),
        "{} row 2: y must be 0/1, -1/+1, true/false, yes/no or in/out, got nothing",
    ),
    "Parquet with times for scores": (
        made(lambda file: parquet.write_table(arrow(score=pa.array([1, 2], "timestamp[us]"), included=[1, 0]), file)),
        "row 1: score must be a finite number, got datetime",
    ),
    "npz with times for scores": (
        made(lambda file: np.savez(file, score=np.array([1, 2], "M8[ns]"), included=[1, 0])),
        "row 1: score must be a finite number, got",
    ),
}  # fmt: skip

DROPPED: dict[str, bytes] = {
    "bzip2": bz2.compress(CSV),
    "xz": lzma.compress(CSV),
    "gzip twice": gzip.compress(gzip.compress(CSV)),
    "Feather": made(lambda file: feather.write_feather(arrow(), file)),
    "UTF-16": CSV.decode().encode("utf-16"),
    "a pickle": pickle.dumps(LISTS),
    "HDF5": b"\x89HDF\r\n\x1a\n" + bytes(50),
    "Latin-1": "score,included,größe\n1,1,ü\n".encode("latin-1"),
}


def test_the_table_is_as_large_as_it_was_asked_to_be() -> None:
    assert len(READ) + len(BROKEN) >= 60
    assert len(READ) >= 40
    assert len(BROKEN) >= 20


@pytest.mark.parametrize("kind", READ)
def test_read_as_meant(tmp_path: Path, kind: str) -> None:
    entry = READ[kind]
    data, options = entry if isinstance(entry, tuple) else (entry, {})
    path = tmp_path / "scores.dat"
    path.write_bytes(data)
    scores, included = read_scores(path, **options)
    assert scores.dtype == np.float64
    assert included.dtype == np.bool_
    np.testing.assert_array_equal(scores, SCORES)
    np.testing.assert_array_equal(included, np.array(INCLUDED, dtype=bool))


@pytest.mark.parametrize("kind", BROKEN)
def test_or_one_line_that_says_what_to_do(tmp_path: Path, kind: str) -> None:
    data, message = BROKEN[kind]
    path = tmp_path / "scores.dat"
    path.write_bytes(data)
    with pytest.raises(InputError) as raised:
        read_scores(path)
    assert message.format(path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", DROPPED)
def test_other_formats_are_told_those_that_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "scores.csv"
    path.write_bytes(DROPPED[kind])
    with pytest.raises(
        InputError, match=r"must be CSV \(UTF-8; .*\), JSON, \.npz, \.npy or Parquet, .* gzip"
    ):
        read_scores(path)


@pytest.mark.parametrize("kind", ["0 and 1", "gzip", "npz", "npy, fields", "Parquet", "a JSON array"])
def test_standard_input_may_be_any_of_them(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(READ[kind])))  # type: ignore[arg-type]
    np.testing.assert_array_equal(read_scores("-").scores, SCORES)


def test_what_needs_pyarrow_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "scores.dat"
    path.write_bytes(PARQUET)
    with pytest.raises(InputError, match=r'which needs pyarrow: pip install "canaria\[arrow\]"$'):
        read_scores(path)
    path.write_bytes(gzip.compress(CSV))
    np.testing.assert_array_equal(read_scores(path).scores, SCORES)


def test_losses_are_turned_around_when_told(tmp_path: Path) -> None:
    path = tmp_path / "losses.csv"
    path.write_bytes(spelled("1", "0", header="loss,member"))
    assert read_scores(path, higher_means="excluded").scores.tolist() == [-score for score in SCORES]
    with pytest.raises(InputError, match="higher_means must be 'included' or 'excluded', got 'lower'"):
        read_scores(path, higher_means="lower")  # type: ignore[arg-type]


def test_one_column_is_never_both(tmp_path: Path) -> None:
    """A bound from bits that are their own scores would be enormous, and about nothing."""
    path = tmp_path / "scores.csv"
    path.write_bytes(b"included,x\n1,1\n0,0\n")
    with pytest.raises(InputError, match="must be two columns, got 'included' twice"):
        read_scores(path, score_column="included", included_column="included")
    with pytest.raises(InputError, match=r"name it with included_column"):
        read_scores(path, score_column="included")
    with pytest.raises(InputError, match=r"has no column named 'inclded', .*did you mean 'included'\?"):
        read_scores(path, included_column="inclded")


finite = st.floats(allow_nan=False, allow_infinity=False)
rows = st.lists(st.tuples(finite, st.booleans()), min_size=1, max_size=60)
WAYS = [("1", "0"), ("1.0", "0.0"), ("1", "-1"), ("TRUE", "FALSE"), ("yes", "no"), ("in", "out")]  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=rows,
    way=st.sampled_from(WAYS),
    separator=st.sampled_from(",;\t"),
    quoted=st.booleans(),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    block=st.integers(1, 7),
)
def test_what_was_written_is_read(
    tmp_path: Path,
    rows: list[tuple[float, bool]],
    way: tuple[str, str],
    separator: str,
    quoted: bool,
    end: str,
    block: int,
) -> None:
    """To the last bit, wherever blocks end."""
    around = '"' if quoted else ""
    lines = [f"score{separator}included"]
    lines += [f"{score!r}{separator}{around}{way[0] if bit else way[1]}{around}" for score, bit in rows]
    path = tmp_path / "scores.csv"
    path.write_text(end.join(lines) + end, newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_ROWS_AT_ONCE", block)
        scores, included = read_scores(path)
    np.testing.assert_array_equal(scores, [score for score, _ in rows])
    np.testing.assert_array_equal(included, [bit for _, bit in rows])


def test_rows_are_counted_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_ROWS_AT_ONCE", 8)
    path = tmp_path / "scores.csv"
    path.write_text("score,included\n" + "0.5,1\n" * 70 + "x,1\n" + "0.5,0\n" * 70)
    with pytest.raises(InputError, match="row 71: score must be a finite number, got 'x'"):
        read_scores(path)
    path.write_text("score,included\n" + "0.5,1\n" * 70 + "1,no\n" + "0.5,0\n" * 70)
    with pytest.raises(InputError, match=r"row 71: included must keep to one of .*, got 'no' after '1'"):
        read_scores(path)
    path.write_text('score,included,note\n0.5,1,"a\n' + "b\n" * 100 + '"\n' + "0.5,0,\n" * 70)
    assert len(read_scores(path).scores) == 71


@pytest.mark.parametrize("way", [(True, False), (1, 0), (1.0, 0.0), (1, -1), *WAYS[3:]])
def test_python_takes_the_same_words(way: tuple[Any, Any]) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, 200)
    scores = rng.normal(3.0 * bits)
    words = [way[0] if bit else way[1] for bit in bits]
    expected = audit_scores(scores, bits, rng=1).epsilon
    assert expected > 1
    for given_as in (words, np.array(words), np.array(words, dtype=object), tuple(words)):
        assert audit_scores(scores, given_as, rng=1).epsilon == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["yes", "maybe"], "bits must be 0/1, -1/.*, got 'maybe' at position 1"),
        (["yes", "false"], "bits must keep to one of .*, got 'false' after 'yes' at position 1"),
        (["yes", None], "got nothing at position 1"),
    ],
)
def test_and_refuses_the_same(words: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        audit_scores([1.0, 2.0], words)


CELLS = [
    *("1", "0", "-1", "+1", "1.0", "0.5", "-.5", "1.", ".", "1e3", "1e", "1e999", "1e-400", "0,5", "1,234", "1,5,0"),
    *("true", "FALSE", "yes", "No", "in", "out", "member", "non member", " 1 ", "\t1", "nan", "inf", "-inf"),
    *("0x1", "1_0", "", " ", "null", "NA", "#", "# 1", "\x00", "1\x00", '"1"', '"1', '1"', '""', '"a\nb"', '"1"5'),
    *("\u0661", "\uff11", "\u00a01", "1\u00a0", "\x0b", "1\x0b", "\u2028", "1d5", "1f", "1 2", "9" * 400, "yes" + 40 * " "),
    *("0.1" + 40 * "0", "1.000000000000000000e+00", "infinity", "True ", "1j", "(1)", "'1'", "\\N"),
]  # fmt: skip


def outcome(path: Path) -> object:
    """What is read from a file, a few rows at a time, or the message."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text, "_ROWS_AT_ONCE", 3)
        try:
            scores, included = read_scores(path)
        except InputError as error:
            return str(error)
        assert np.isfinite(scores).all()
        return scores.tolist(), included.tolist()


NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def expected(content: str, separator: str) -> object:
    """The rules, applied to one cell after the other; None if a cell breaks one."""
    way, scores, included = Membership(), [], []
    try:
        _, *rows = filter(None, csv.reader(io.StringIO(content, newline=""), delimiter=separator, skipinitialspace=True, strict=True))  # fmt: skip
        for row in rows:
            score, word, _ = row + [""] * (3 - len(row))
            assert NUMBER.fullmatch(score.strip(" \t\v\f"))  # a no-break space is not a blank
            assert math.isfinite(float(score))
            scores.append(float(score))
            included.append(way.read(word))
    except (csv.Error, AssertionError, ValueError):
        return None
    return scores, included


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    scores=st.lists(st.one_of(st.sampled_from(CELLS), finite.map(repr)), min_size=1, max_size=3),
    words=st.lists(st.sampled_from(CELLS), min_size=1, max_size=3),
    notes=st.lists(st.sampled_from(CELLS), min_size=1, max_size=2),
    places=st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=12),
    separator=st.sampled_from(",;\t"),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_cells_that_are_nearly_right_are_read_by_the_rules(
    tmp_path: Path,
    scores: list[str],
    words: list[str],
    notes: list[str],
    places: list[tuple[int, int, int]],
    separator: str,
    end: str,
) -> None:
    lines = [separator.join(["score", "included", "note"])]
    lines += [
        separator.join([scores[a % len(scores)], words[b % len(words)], notes[c % len(notes)]])
        for a, b, c in places
    ]
    path = tmp_path / "scores.csv"
    path.write_bytes(end.join([*lines, ""]).encode())
    found = outcome(path)
    assert (None if isinstance(found, str) else found) == expected(end.join([*lines, ""]), separator)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(sorted(READ)), data=st.data())
def test_damage_is_told_in_one_line(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    """A few bytes changed, or the end missing: scores that can be used, or an error of one line."""
    entry = READ[kind]
    damaged = bytearray(entry[0] if isinstance(entry, tuple) else entry)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "scores.dat"
    path.write_bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    found = outcome(path)
    assert isinstance(found, tuple) or "\n" not in str(found)


def test_a_broken_header_of_an_array_is_damage(tmp_path: Path) -> None:
    """NumPy's reader then ends in the tokenizer of Python."""
    path = tmp_path / "scores.npy"
    path.write_bytes(made(lambda file: np.save(file, PAIRS)).replace(b"}", b" "))
    with pytest.raises(InputError, match="is damaged or cut off"):
        read_scores(path)


def test_a_column_of_numbers_and_booleans_is_ambiguous() -> None:
    """True equals 1 in Python, so a cache of cells must not mistake one for the other."""
    with pytest.raises(InputError, match=r"row 1: x must keep to one of .*, got True after 1"):
        cells.bits([1, True, 0], "x", "row {}".format, Membership())


@pytest.mark.parametrize("kind", ["a JSON array", "npz", "npy, fields", "Parquet"])
def test_files_that_expand_without_end_are_refused(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MOST_BYTES", 50)
    path = tmp_path / "scores.dat"
    path.write_bytes(gzip.compress(READ[kind]))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"must hold at most 50 bytes, got more; save scores as CSV$"):
        read_scores(path)


def test_an_array_in_an_archive_that_expands_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "MOST_BYTES", 50)
    path = tmp_path / "scores.npz"
    path.write_bytes(NPZ)
    with pytest.raises(InputError, match=r"score must hold at most 50 bytes, got more$"):
        read_scores(path)


@pytest.mark.parametrize("end", ["", "\n"])
def test_endless_lines_and_cells_are_refused(tmp_path: Path, end: str) -> None:
    """Neither is read into memory to see where it ends."""
    path = tmp_path / "scores.csv.gz"
    path.write_bytes(gzip.compress(CSV + b"1" * (10 << 20) + end.encode()))
    with pytest.raises(
        InputError, match="must have lines of less than 1,048,576 characters, got a longer one"
    ):
        read_scores(path)
    path.write_bytes(gzip.compress(CSV + b'"' + b"1\n" * (1 << 20) + b'",1\n'))
    with pytest.raises(InputError, match="is not readable as CSV: field larger than field limit"):
        read_scores(path)
