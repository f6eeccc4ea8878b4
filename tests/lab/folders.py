"""The files that a run leaves in its folder."""

from pathlib import Path


def contents(folder: Path) -> dict[str, bytes]:
    """All files, without the draft that a killed process leaves behind."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if path.suffix != ".draft"}
