"""A run's folder: whose it is, what is refused, what is damaged, what a full disk leaves."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from canaria import Counts, InputError, Result, lower_bound
from canaria._core.files import checksum, write_atomically
from canaria.claims import ApproximateDP
from canaria.lab.engines import run_blocks
from canaria.lab.store import FORMAT, Store
from tests.lab.folders import contents

RESULT = Result(lower_bound(Counts(90, 100, 100)), claim=ApproximateDP(1.0, 0))
ROWS = [{"epsilon": 0.1 + 0.2, "rule": "ε ≥ 1"}]
HOLD = """
import sys
from canaria.lab.store import Store

with Store.open(sys.argv[1], {"seed": 0}, resume=True):
    print("held", flush=True)
    sys.stdin.read()
"""


def enter(folder: Path, settings: dict[str, Any], resume: bool) -> None:
    with Store.open(folder, settings, resume):
        pass


@contextmanager
def holder(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the run open."""
    words = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_foreign_folders_are_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match=r"must be empty or a canaria run, got .*thesis\.tex"):
        enter(tmp_path, {"seed": 0}, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_other_runs_are_refused(tmp_path: Path) -> None:
    enter(tmp_path / "run", {"seed": 0, "names": ("one", "two")}, resume=False)
    before = contents(tmp_path)
    with pytest.raises(InputError, match=r"holds another run: seed is 0 there, 1 here$"):
        enter(tmp_path / "run", {"seed": 1, "names": ("one", "two")}, resume=True)
    with pytest.raises(InputError, match=r"names is \['one', 'two'\] there, None here"):
        enter(tmp_path / "run", {"seed": 1}, resume=True)
    with pytest.raises(InputError, match=r"holds another run: more differs$"):
        enter(tmp_path / "run", {"seed": 0, "names": ("one", "two"), "more": None}, resume=True)
    with pytest.raises(InputError, match="add --resume"):
        enter(tmp_path / "run", {"seed": 0, "names": ("one", "two")}, resume=False)
    assert contents(tmp_path) == before
    enter(tmp_path / "run", {"seed": 0, "names": ("one", "two")}, resume=True)


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used: Not a directory"):
        enter(tmp_path / "file" / "run", {}, resume=False)
    with Store.open(tmp_path / "run", {}, resume=False) as store:
        (tmp_path / "run" / "blocks").write_text("")
        with pytest.raises(InputError, match=r"0-0\.json cannot be written: Not a directory"):
            store.save("laplace/0-0", ROWS)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    """The second is told who is there; when that one is killed, the folder is free at once."""
    with holder(tmp_path / "run") as process:
        before = contents(tmp_path)
        told = rf"run is in use by process {process.pid} on \S+; wait for it, or choose another folder"
        with pytest.raises(InputError, match=told):
            enter(tmp_path / "run", {"seed": 0}, True)
        assert contents(tmp_path) == before
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        enter(tmp_path / "run", {"seed": 0}, resume=True)


def test_also_within_one_process(tmp_path: Path) -> None:
    with (
        Store.open(tmp_path, {}, resume=False),
        pytest.raises(InputError, match=f"in use by process {os.getpid()}"),
    ):
        enter(tmp_path, {}, resume=True)
    enter(tmp_path, {}, resume=True)


def test_killed_before_it_began(tmp_path: Path) -> None:
    """A lock and a draft of the settings are all that is there: a new run, with or without --resume."""
    (tmp_path / "canaria-run.lock").write_text("1\n")
    (tmp_path / ".canaria-run.json.17.draft").write_text('{"form')
    enter(tmp_path, {}, resume=False)
    assert list(contents(tmp_path)) == ["canaria-run.json"]


def test_drafts_are_swept_and_nothing_else(tmp_path: Path) -> None:
    with Store.open(tmp_path, {}, resume=False) as store:
        store.save("laplace/0-0", ROWS)
        store.write("laplace.jsonl", b"{}")
    (tmp_path / ".notes.2026").write_text("mine")
    (tmp_path / "blocks" / "notes.17.draft").write_text("mine")
    kept = set(contents(tmp_path))
    (tmp_path / ".laplace.jsonl.17.draft").write_text("{")
    (tmp_path / "blocks" / "laplace" / ".0-1.json.17.draft").write_text("{")
    with Store.open(tmp_path, {}, resume=True) as store:
        assert not store.has("laplace/0-1")
    assert set(contents(tmp_path)) == kept


def test_rows_come_back_exactly(tmp_path: Path) -> None:
    with Store.open(tmp_path, {}, resume=False) as store:
        store.save("a/b", ROWS)
        assert store.load("a/b") == ROWS
        record = json.loads(store.path("a/b").read_text())
        assert record["format"] == FORMAT
        assert record["checksum"].startswith("sha256:")


def broken(content: bytes) -> Iterator[bytes]:
    """Cut anywhere, and every bit of some bytes flipped."""
    for cut in range(0, len(content), 7):
        yield content[:cut]
    for place in range(0, len(content), 3):
        for bit in range(8):
            yield content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


def test_damage_is_noticed(tmp_path: Path) -> None:
    """A changed block is never read as another one: it is found damaged, or its rows are the same."""
    with Store.open(tmp_path, {"seed": 0}, resume=False) as store:
        store.save("a", ROWS)
        content = store.path("a").read_bytes()
        noticed = 0
        for damaged in broken(content):
            store.path("a").write_bytes(damaged)
            try:
                assert store.load("a") == ROWS
            except InputError:
                noticed += 1
        assert noticed > 500


def test_blocks_of_other_names_and_formats_are_damage(tmp_path: Path) -> None:
    with Store.open(tmp_path, {}, resume=False) as store:
        store.save("a", ROWS)
        store.path("b").write_bytes(store.path("a").read_bytes())
        with pytest.raises(InputError, match=r"b\.json is damaged: it is block 'a'"):
            store.load("b")
        store.path("b").write_text('[{"epsilon": 1.0}]')
        with pytest.raises(InputError, match=r"b\.json is damaged$"):
            store.load("b")
        record = {"format": 2, "block": "b", "rows": ROWS}
        store.path("b").write_text(json.dumps({**record, "checksum": checksum(record)}))
        with pytest.raises(InputError, match=r"b\.json must be of format 1, got 2"):
            store.load("b")


def test_damaged_blocks_are_computed_again(tmp_path: Path) -> None:
    """And no other: the note says which."""
    played: list[int] = []

    def play(number: int) -> list[dict[str, Any]]:
        played.append(number)
        return [{"number": number}]

    blocks = {f"{number}": (number,) for number in range(3)}
    with Store.open(tmp_path, {}, resume=False) as store:
        run_blocks(play, blocks, store, None)
        intact = contents(tmp_path)
        store.path("1").write_bytes(store.path("1").read_bytes()[:-5])
        with pytest.warns(UserWarning, match="1.json is damaged; it is computed again"):
            run_blocks(play, blocks, store, None)
        assert played == [0, 1, 2, 1]
        assert contents(tmp_path) == intact
        with warnings.catch_warnings():
            run_blocks(play, blocks, store, None)
        assert played == [0, 1, 2, 1]


def test_damaged_settings_are_refused(tmp_path: Path) -> None:
    """Whose blocks these are is not known any more."""
    enter(tmp_path, {"seed": 0}, resume=False)
    settings = tmp_path / "canaria-run.json"
    settings.write_text(settings.read_text().replace('"seed": 0', '"seed": 1'))
    for seed in (0, 1):
        with pytest.raises(InputError, match=r"canaria-run\.json is damaged; choose another folder"):
            enter(tmp_path, {"seed": seed}, resume=True)


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """Files cannot grow beyond a size, as on a disk that gets full (but the error is "File too large")."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_no_room_leaves_what_was_there(tmp_path: Path) -> None:
    """Blocks, files of the result, result files: the error is one line, and no draft stays."""
    saved = RESULT.save(tmp_path / "result.json").read_bytes()
    with Store.open(tmp_path / "run", {}, resume=False) as store:
        store.save("a", ROWS)
        store.write("a.jsonl", b"earlier")
        before = contents(tmp_path)
        with no_file_above(len(saved) // 2):
            with pytest.raises(InputError, match=r"blocks/a\.json cannot be written: File too large"):
                store.save("a", ROWS * 1000)
            with pytest.raises(InputError, match=r"a\.jsonl cannot be written: File too large"):
                store.write("a.jsonl", saved)
            with pytest.raises(InputError, match=r"result\.json cannot be written: File too large"):
                RESULT.save(tmp_path / "result.json")
        assert contents(tmp_path) == before
        store.save("a", ROWS * 1000)
        assert store.load("a") == ROWS * 1000


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        write_atomically(tmp_path / "block.json", b"x" * 10)
    assert list(tmp_path.iterdir()) == []
