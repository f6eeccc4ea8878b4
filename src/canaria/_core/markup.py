"""Small HTML tables for notebooks."""

from collections.abc import Iterable, Sequence
from html import escape


def described(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and descriptions. Both are escaped.

    >>> described([("ε", "<b>")])
    '<table><tr><th style="text-align:left">ε</th><td style="text-align:left">&lt;b&gt;</td></tr></table>'
    """
    return f"<table>{''.join(_row(('th', 'td'), row) for row in rows)}</table>"


def tabulated(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a header line. All cells are escaped.

    >>> tabulated(["a"], [["1"]]).count("<tr>")
    2
    """
    body = "".join(_row(["td"] * len(head), row) for row in rows)
    return f"<table>{_row(['th'] * len(head), head)}{body}</table>"


def paragraph(text: str) -> str:
    """A paragraph."""
    return f"<p>{escape(text)}</p>"


def _row(kinds: Sequence[str], cells: Sequence[str]) -> str:
    written = (
        f'<{kind} style="text-align:left">{escape(cell)}</{kind}>'
        for kind, cell in zip(kinds, cells, strict=True)
    )
    return f"<tr>{''.join(written)}</tr>"
