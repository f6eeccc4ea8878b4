"""Writes files completely or not at all, with a checksum of their content."""

import json
import os
import secrets
import shutil
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from canaria._core.errors import InputError


def folder(path: str | Path) -> Path:
    """Return a folder to write to; it is created if it does not exist."""
    place = Path(path)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"output folder {place} cannot be used: {error.strerror}") from None
    return place


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it always has either the old or the new content.

    Pipes and devices, which cannot be replaced, are written directly.
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
    """Write a draft beside the file, and rename it.

    Mode "x" only opens a file that did not exist: it does not follow a link that someone has put there, and
    no two threads write to the same draft. Unlike `tempfile.mkstemp`, it sets the usual permissions of new
    files. If a file is replaced, its permissions are copied before the content is written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.draft")
    try:
        with draft.open("xb") as stream:
            with suppress(FileNotFoundError):
                shutil.copymode(path, draft)
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _canonical(number: str) -> float | int:
    """A number as all programs read it, including those that only have doubles."""
    value = float(number)
    return int(value) if value.is_integer() else value


def checksum(record: dict[str, Any]) -> str:
    """SHA-256 of a record without its own checksum, independent of the formatting of its file.

    Numbers follow JSON (RFC 8785): double precision, and 2.0 equals 2, as other programs write them.
    """
    rest = {name: value for name, value in record.items() if name != "checksum"}
    plain = json.loads(json.dumps(rest), parse_int=_canonical, parse_float=_canonical)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{sha256(text.encode()).hexdigest()}"
