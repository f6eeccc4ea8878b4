"""A folder of finished blocks: written atomically, so that interrupted work goes on where it stopped."""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from canaria._validate import InputError, shown

_SETTINGS: Final = "canaria-run.json"


@dataclass(frozen=True)
class Store:
    """Blocks of rows by name, below a folder that belongs to one run."""

    folder: Path

    @classmethod
    def open(cls, folder: str | Path, settings: dict[str, Any], resume: bool) -> "Store":
        """Start a run in a new or empty folder, or go on with one of the same settings.

        A folder with anything else in it, or with another run, is refused and left alone.
        """
        path = Path(folder)
        try:
            path.mkdir(parents=True, exist_ok=True)
            found = sorted(entry.name for entry in path.iterdir())
        except OSError as error:
            raise InputError(f"output folder {path} cannot be used: {error.strerror}") from None
        if not found:
            store = cls(path)
            store._write(path / _SETTINGS, settings)
            return store
        if _SETTINGS not in found:
            raise InputError(f"output folder {path} must be empty or a canaria run, got {shown(found)}")
        earlier = _read(path / _SETTINGS)
        if earlier != settings:
            raise InputError(f"output folder {path} holds another run: {shown(earlier)}")
        if not resume:
            raise InputError(f"output folder {path} holds this run; add --resume, or choose another folder")
        return cls(path)

    def has(self, name: str) -> bool:
        """Whether the block is finished."""
        return self._block(name).exists()

    def load(self, name: str) -> list[dict[str, Any]]:
        """The rows of a finished block."""
        rows: list[dict[str, Any]] = _read(self._block(name))
        return rows

    def save(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Finish a block: all of it is there after this, or none."""
        self._block(name).parent.mkdir(parents=True, exist_ok=True)
        self._write(self._block(name), rows)

    def write(self, name: str, content: bytes) -> Path:
        """Write a file of the result, all or nothing."""
        target = self.folder / name
        write_atomically(target, content)
        return target

    def _block(self, name: str) -> Path:
        return self.folder / "blocks" / f"{name}.json"

    def _write(self, path: Path, data: Any) -> None:
        write_atomically(path, json.dumps(data, allow_nan=False).encode())


def folder(path: str | Path) -> Path:
    """A folder to write to, made if it is not there."""
    place = Path(path)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"output folder {place} cannot be used: {error.strerror}") from None
    return place


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that, whatever happens, it holds all of the content or what it held before.

    A pipe or a device, which cannot be replaced, is written into.
    """
    try:
        if path.is_dir() or not path.name:
            raise InputError(f"{path} cannot be written: it must name a file")
        if path.exists() and not path.is_file():
            path.write_bytes(content)
        else:
            _replace(path.resolve(), content)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{path} is damaged; remove it and resume") from None
