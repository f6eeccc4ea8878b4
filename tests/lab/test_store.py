"""A run's folder: whose it is, what is refused, what a full disk leaves."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from canaria import Counts, InputError, Result, lower_bound
from canaria._core.files import write_atomically
from canaria.claims import ApproximateDP
from canaria.lab.engines import run_blocks
from canaria.lab.store import Store
from tests.lab.folders import contents

RESULT = Result(lower_bound(Counts(90, 100, 100)), claim=ApproximateDP(1.0, 0))
ROWS = [{"epsilon": 0.1 + 0.2, "rule": "ε ≥ 1"}]


def test_foreign_folders_are_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match=r"must be empty or a canaria run, got .*thesis\.tex"):
        Store.open(tmp_path, {"seed": 0}, resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_other_runs_are_refused(tmp_path: Path) -> None:
    settings = {"seed": 0, "names": ("one", "two")}
    Store.open(tmp_path / "run", settings, resume=False)
    before = contents(tmp_path)
    with pytest.raises(InputError, match=r"holds another run: seed is 0 there, 1 here$"):
        Store.open(tmp_path / "run", {**settings, "seed": 1}, resume=True)
    with pytest.raises(InputError, match=r"names is \['one', 'two'\] there, None here"):
        Store.open(tmp_path / "run", {"seed": 1}, resume=True)
    with pytest.raises(InputError, match="add --resume"):
        Store.open(tmp_path / "run", settings, resume=False)
    assert contents(tmp_path) == before
    Store.open(tmp_path / "run", settings, resume=True)


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used: Not a directory"):
        Store.open(tmp_path / "file" / "run", {}, resume=False)
    store = Store.open(tmp_path / "run", {}, resume=False)
    (tmp_path / "run" / "blocks").write_text("")
    with pytest.raises(InputError, match=r"blocks/laplace cannot be used: Not a directory"):
        store.save("laplace/0-0", ROWS)


def test_killed_before_it_began(tmp_path: Path) -> None:
    """Only a draft of the settings is there: a new run, with or without --resume."""
    (tmp_path / ".canaria-run.json.17.draft").write_text('{"set')
    Store.open(tmp_path, {}, resume=False)
    assert (tmp_path / "canaria-run.json").exists()


def test_rows_come_back_exactly(tmp_path: Path) -> None:
    store = Store.open(tmp_path, {}, resume=False)
    store.save("a/b", ROWS)
    assert store.load("a/b") == ROWS


def test_only_missing_blocks_are_run(tmp_path: Path) -> None:
    played: list[int] = []

    def play(number: int) -> list[dict[str, Any]]:
        played.append(number)
        return [{"number": number}]

    blocks = {f"{number}": (number,) for number in range(3)}
    store = Store.open(tmp_path, {}, resume=False)
    store.save("1", [{"number": 1}])
    first = run_blocks(play, blocks, store, None)
    assert played == [0, 2]
    assert first == run_blocks(play, blocks, store, None) == run_blocks(play, blocks, None, None)
    assert played == [0, 2, 0, 1, 2]


def test_damage_is_one_line(tmp_path: Path) -> None:
    """A cut file is neither read as another one nor replaced without a word."""
    store = Store.open(tmp_path, {"seed": 0}, resume=False)
    store.save("a", ROWS)
    for path in (store.path("a"), tmp_path / "canaria-run.json"):
        path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"a\.json is damaged; delete it, or choose another folder"):
        store.load("a")
    with pytest.raises(InputError, match=r"canaria-run\.json is damaged"):
        Store.open(tmp_path, {"seed": 0}, resume=True)


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
    store = Store.open(tmp_path / "run", {}, resume=False)
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
    assert not list(tmp_path.rglob(".*"))
    store.save("a", ROWS * 1000)
    assert store.load("a") == ROWS * 1000


def test_a_full_disk_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        write_atomically(tmp_path / "block.json", b"x" * 10)
    assert list(tmp_path.iterdir()) == []
