"""Files that are written completely or not at all, with a checksum over their content."""

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
    """A folder to write to, made if it does not exist."""
    place = Path(path)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"output folder {place} cannot be used: {error.strerror}") from None
    return place


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it always holds either the new content or the old one.

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
    """Write a draft beside the file, and rename it.

    Mode "x" opens only a file that did not exist: a link that somebody put there is not followed, and no two
    threads write one draft. Unlike `tempfile.mkstemp`, it gives the permissions of any new file. A file that
    is replaced passes its permissions on, before there is anything to read.
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
    """A number as every program reads it that knows doubles alone."""
    value = float(number)
    return int(value) if value.is_integer() else value


def checksum(record: dict[str, Any]) -> str:
    """SHA-256 of a record without its own checksum, however its file is formatted.

    Numbers are those of JSON (RFC 8785): double precision, and 2.0 is 2. Other programs write them so.
    """
    rest = {name: value for name, value in record.items() if name != "checksum"}
    plain = json.loads(json.dumps(rest), parse_int=_canonical, parse_float=_canonical)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"sha256:{sha256(text.encode()).hexdigest()}"
