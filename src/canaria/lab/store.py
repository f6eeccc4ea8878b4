"""A folder of finished blocks, written atomically, so that interrupted work can be resumed."""

import json
import os
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from canaria._core.errors import InputError, shown
from canaria._core.files import checksum, drafted, write_atomically

FORMAT: Final = 1
"""The format of a run's files; a reader refuses any other."""
_SETTINGS: Final = "canaria-run.json"
_LOCK: Final = "canaria-run.lock"


class DamagedError(InputError):
    """Raised if a file of a run is not as it was written."""


@dataclass(frozen=True)
class Store:
    """Blocks of rows by name, in a folder that belongs to one run.

    Attributes:
        folder: The folder.

    Example:
        >>> import tempfile
        >>> from canaria.lab.store import Store
        >>> with Store.open(tempfile.mkdtemp(), {"seed": 0}, resume=False) as store:
        ...     store.save("first", [{"x": 1}])
        ...     store.has("first"), store.has("second")
        (True, False)

    """

    folder: Path

    @classmethod
    @contextmanager
    def open(cls, folder: str | Path, settings: dict[str, Any], resume: bool) -> Iterator["Store"]:
        """Start a run in a new or empty folder, or resume one with the same settings.

        The folder is locked until the end of the `with` block, or until this process dies.

        Args:
            folder: The folder.
            settings: Everything that decides the results, as plain data for JSON.
            resume: Whether an earlier run with the same settings may be resumed.

        Yields:
            The store.

        Raises:
            InputError: If the folder cannot be used, is in use by another process, holds anything else or
                another run, or holds this run and `resume` is False. The folder is then left alone.

        """
        path = Path(folder)
        try:
            path.mkdir(parents=True, exist_ok=True)
            _refuse_foreign(path)
        except OSError as error:
            raise InputError(f"output folder {path} cannot be used: {error.strerror}") from None
        with _locked(path):
            store = cls(path)
            if (path / _SETTINGS).exists():
                store._check_resumed(settings, resume)
            else:
                _write(path / _SETTINGS, {"settings": settings})
            store._sweep()
            yield store

    def has(self, name: str) -> bool:
        """Whether a block is finished; a damaged block is not, and gives a warning.

        Args:
            name: The name of the block.

        Returns:
            Whether its rows can be loaded.

        Raises:
            InputError: If the file cannot be read.

        """
        if not self.path(name).exists():
            return False
        try:
            self.load(name)
        except DamagedError as error:
            warnings.warn(f"{error}; it is computed again", stacklevel=2)
            return False
        return True

    def load(self, name: str) -> list[dict[str, Any]]:
        """Load the rows of a finished block.

        Args:
            name: The name of the block.

        Returns:
            The rows.

        Raises:
            InputError: If the file cannot be read or is damaged.

        """
        record = _read(self.path(name))
        if record.get("block") != name:
            raise DamagedError(f"{self.path(name)} is damaged: it is block {shown(record.get('block'))}")
        rows: list[dict[str, Any]] = record["rows"]
        return rows

    def save(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Write a finished block, either completely or not at all.

        Args:
            name: The name of the block.
            rows: Its rows, as plain data for JSON.

        Raises:
            InputError: If the file cannot be written.

        """
        path = self.path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror}") from None
        _write(path, {"block": name, "rows": rows})

    def write(self, name: str, content: bytes) -> Path:
        """Write a file of the result, either completely or not at all.

        Args:
            name: The name of the file.
            content: Its content.

        Returns:
            The path of the file.

        Raises:
            InputError: If the file cannot be written.

        """
        target = self.folder / name
        write_atomically(target, content)
        return target

    def path(self, name: str) -> Path:
        """The path of the file of a block.

        Args:
            name: The name of the block.

        Returns:
            The path; the file need not exist.

        """
        return self.folder / "blocks" / f"{name}.json"

    def _check_resumed(self, settings: dict[str, Any], resume: bool) -> None:
        try:
            earlier = _read(self.folder / _SETTINGS).get("settings")
        except DamagedError as error:
            raise InputError(f"{error}; choose another folder") from None
        wanted = json.loads(json.dumps(settings))
        if earlier != wanted:
            raise InputError(f"output folder {self.folder} holds another run: {_difference(earlier, wanted)}")
        if not resume:
            raise InputError(
                f"output folder {self.folder} holds this run; add --resume, or choose another folder"
            )

    def _sweep(self) -> None:
        """Remove the unfinished files of a killed process."""
        for entry in self.folder.rglob(".*"):
            if drafted(entry.name) is not None:
                with suppress(OSError):
                    entry.unlink()


def _difference(earlier: object, wanted: dict[str, Any]) -> str:
    if not isinstance(earlier, dict):
        return shown(earlier)
    differing = [name for name in {**earlier, **wanted} if _setting(earlier, name) != _setting(wanted, name)]
    texts = {name: (shown(earlier.get(name)), shown(wanted.get(name))) for name in differing}
    return "; ".join(
        f"{name} is {there} there, {here} here" if there != here else f"{name} differs"
        for name, (there, here) in texts.items()
    )


def _setting(settings: dict[str, Any], name: str) -> list[Any]:
    return [settings[name]] if name in settings else []


def _refuse_foreign(path: Path) -> None:
    """Refuse a folder that is not empty, not a run, and not a run that was killed before it began.

    The list is read first, then the settings: the settings of a run that begins at this moment exist before
    its blocks.
    """
    found = sorted(entry.name for entry in path.iterdir())
    begun = [name for name in found if name == _LOCK or drafted(name) == _SETTINGS]
    if found != begun and not (path / _SETTINGS).exists():
        raise InputError(f"output folder {path} must be empty or a canaria run, got {shown(found)}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the operating system's lock on a run; it ends with the process, however that ends."""
    from filelock import FileLock, Timeout

    lock, before = FileLock(path / _LOCK), _holder(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:  # older versions of filelock have emptied the file
        holder = _holder(path) or before or "another process"
        raise InputError(
            f"output folder {path} is in use by {holder}; wait for it, or choose another folder"
        ) from None
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"output folder {path} cannot be locked: {reason}") from None
    try:
        with suppress(OSError):
            (path / _LOCK).write_text(f"process {os.getpid()} on {platform.node()}\n", encoding="utf-8")
        yield
    finally:
        lock.release()


def _holder(path: Path) -> str:
    try:
        return (path / _LOCK).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def source_digest() -> str:
    """A digest of this package's source, so that a run is not resumed by different code."""
    sources = sorted(Path(__file__).parents[1].rglob("*.py"))
    return sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]


def _write(path: Path, content: dict[str, Any]) -> None:
    record = json.loads(json.dumps({"format": FORMAT, **content}, allow_nan=False))
    write_atomically(path, json.dumps({**record, "checksum": checksum(record)}).encode())


def _read(path: Path) -> dict[str, Any]:
    """The record in a file of a run, which must be just as it was written."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise DamagedError(f"{path} is damaged") from None
    if not isinstance(record, dict):
        raise DamagedError(f"{path} is damaged")
    if record.get("format") != FORMAT:
        raise DamagedError(f"{path} must be of format {FORMAT}, got {shown(record.get('format'))}")
    if record.get("checksum") != checksum(record):
        raise DamagedError(f"{path} is damaged")
    return record
