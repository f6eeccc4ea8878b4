"""Sections of RESULTS.md that a benchmark writes between two marks, and others leave as they are."""

from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")


def write(mark: str, lines: list[str]) -> None:
    """Put lines between the marks, at the end of the page if there are none yet."""
    text = RESULTS.read_text()
    before, _, after = text.split(mark) if mark in text else (text.rstrip() + "\n\n", "", "\n")
    RESULTS.write_text(before + mark + "\n".join(lines) + mark + after)
