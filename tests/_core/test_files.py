"""Files that are written completely or not at all, whoever else writes beside them."""

import os
import secrets
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from canaria import InputError
from canaria._core.files import write_atomically


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("name", [str(os.getpid()), "abad1dea"], ids=["process", "guessed"])
def test_a_link_in_the_place_of_the_draft_is_not_followed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by the name of the process, which anybody can read; nor if the name is guessed."""
    monkeypatch.setattr(secrets, "token_hex", lambda _: "abad1dea")
    victim, target = tmp_path / "victim", tmp_path / "result.json"
    victim.write_bytes(b"precious")
    (tmp_path / f".result.json.{name}.draft").symlink_to(victim)
    if name == "abad1dea":
        with pytest.raises(InputError, match="cannot be written: File exists"):
            write_atomically(target, b"new")
    else:
        write_atomically(target, b"new")
        assert target.read_bytes() == b"new"
        assert not target.is_symlink()
    assert victim.read_bytes() == b"precious"


def test_threads_that_write_one_path_leave_one_of_their_contents(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    contents = [bytes([letter]) * 300_000 for letter in b"abc"]

    def write(content: bytes) -> set[bytes]:
        seen = set()
        for _ in range(30):
            write_atomically(target, content)
            seen.add(target.read_bytes())
        return seen

    with ThreadPoolExecutor(3) as threads:
        seen = set().union(*threads.map(write, contents))
    assert seen <= set(contents)
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]


def test_permissions_are_those_of_an_ordinary_open(tmp_path: Path) -> None:
    ordinary, written = tmp_path / "ordinary", tmp_path / "written"
    ordinary.write_bytes(b"")
    write_atomically(written, b"")
    assert mode(written) == mode(ordinary)
    written.chmod(0o600)
    write_atomically(written, b"again")
    assert mode(written) == 0o600
