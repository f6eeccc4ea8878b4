"""A folder with one file per finished block, so that interrupted work can be resumed.

There is no lock. The random numbers of a block depend only on its seed, so two processes with the same
settings write the same bytes, and a folder refuses other settings. Files are written completely or not at
all, so a file that exists is a finished block.
"""

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from canaria._core.errors import InputError, shown
from canaria._core.files import folder as made_folder
from canaria._core.files import write_atomically

_SETTINGS: Final = "canaria-run.json"


@dataclass(frozen=True)
class Store:
    """Blocks of rows by name, in a folder that belongs to one run.

    Attributes:
        folder: The folder.

    Example:
        >>> import tempfile
        >>> from canaria.lab.store import Store
        >>> store = Store.open(tempfile.mkdtemp(), {"seed": 0}, resume=False)
        >>> store.save("first", [{"x": 1}])
        >>> store.has("first"), store.has("second")
        (True, False)
    """

    folder: Path

    @classmethod
    def open(cls, folder: str | Path, settings: dict[str, Any], resume: bool) -> "Store":
        """Start a run in a new or empty folder, or resume one with the same settings.

        Args:
            folder: The folder.
            settings: All settings that affect the results, as plain data for JSON.
            resume: Whether an earlier run with the same settings may be resumed.

        Raises:
            InputError: If the folder cannot be used, contains other files or another run, or contains this
                run and `resume` is False. The folder is then not changed.
        """
        store = cls(made_folder(folder))
        if (store.folder / _SETTINGS).exists():
            store._require_same(settings)
            if not resume:
                raise InputError(f"{store} holds this run; add --resume, or choose another folder")
            return store
        # Hidden files are ignored: a process that was killed leaves the draft of a file behind.
        found = sorted(entry.name for entry in store.folder.iterdir() if not entry.name.startswith("."))
        if found:
            raise InputError(f"{store} must be empty or a canaria run, got {shown(found)}")
        store.write(_SETTINGS, json.dumps({"settings": settings}).encode())
        return store

    def __str__(self) -> str:
        return f"output folder {self.folder}"

    def has(self, name: str) -> bool:
        """Whether the block with this name is finished."""
        return self.path(name).exists()

    def load(self, name: str) -> list[dict[str, Any]]:
        """Load the rows of a finished block."""
        rows: list[dict[str, Any]] = _read(self.path(name))
        return rows

    def save(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Write a finished block, either completely or not at all."""
        made_folder(self.path(name).parent)
        write_atomically(self.path(name), json.dumps(rows, allow_nan=False).encode())

    def write(self, name: str, content: bytes) -> Path:
        """Write a file of the result, either completely or not at all."""
        write_atomically(self.folder / name, content)
        return self.folder / name

    def path(self, name: str) -> Path:
        """The path of a block's file, which need not exist."""
        return self.folder / "blocks" / f"{name}.json"

    def _require_same(self, settings: dict[str, Any]) -> None:
        earlier = _read(self.folder / _SETTINGS).get("settings", {})
        wanted = json.loads(json.dumps(settings))  # tuples become lists, as in the file
        differing = [
            f"{name} is {shown(earlier.get(name))} there, {shown(wanted.get(name))} here"
            for name in {**earlier, **wanted}
            if earlier.get(name) != wanted.get(name)
        ]
        if differing:
            raise InputError(f"{self} holds another run: {'; '.join(differing)}")


def source_digest() -> str:
    """A digest of this package's source, so that a run is not resumed by different code."""
    sources = sorted(Path(__file__).parents[1].rglob("*.py"))
    return sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise InputError(f"{path} is damaged; delete it, or choose another folder") from None
