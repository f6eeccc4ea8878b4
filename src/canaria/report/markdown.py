"""The report as Markdown, for pull requests: verdicts, their meaning, and commands to repeat them.

Text of results is data: it is put on one line, and every special character of Markdown, HTML or a code host
is escaped, so that a name cannot make a table, link, mention or element.
"""

import re
import unicodedata
from collections.abc import Sequence

from canaria._version import __version__
from canaria.report import brief
from canaria.report.comparison import Comparison, side_by_side
from canaria.report.section import Section, title_of


def markdown(sections: Sequence[Section], title: str | None = None) -> str:
    """Render the Markdown report on one or several results, for a comment or a file."""
    parts = _summary(side_by_side(sections), title or title_of(sections))
    for section in sections:
        parts += [f"### {escaped(section.name)}"] * (len(sections) > 1)
        parts += _parts(section)
    parts.append(f"Written by canaria {__version__}; every bound was recomputed from its evidence.")
    return "\n\n".join(parts) + "\n"


def markdown_of_comparison(comparison: Comparison, title: str | None = None) -> str:
    """Render a comparison of results as Markdown."""
    return "\n\n".join(_summary(comparison, title or comparison.title)) + "\n"


def _summary(comparison: Comparison, title: str) -> list[str]:
    rows = [(row.name, row.claim, row.bound, row.answer) for row in comparison.rows]
    parts = [f"## {escaped(title)}", _table(("audit", "claim", "bound", "verdict"), rows)]
    return [*parts, comparison.note] if len(rows) > 1 else parts


def _parts(section: Section) -> list[str]:
    result = section.result
    parts = [f"**Verdict.** {escaped(result.verdict)}"]
    parts.append("\n".join(f"- **{about}:** {escaped(text)}" for about, text in brief.points(result)))
    if result.rungs:
        parts.append(
            _table(("shown", "under which assumption"), [(r.epsilon, r.reason) for r in result.rungs])
        )
        parts.append(section.rungs_note)
    if result.conformance is not None:
        parts.append(f"**Conformance.** {escaped(str(result.conformance))}")
    assumed = "".join(f"\n- {escaped(line.replace('`', ''))}" for line in result.bound.assumptions)
    parts.append(f"**What must be true**\n{assumed}")
    repeat = code(result.command) if result.command else "no command: made in Python"
    parts.append(f"- **Repeat it:** {repeat}\n- **Checksum:** {code(section.checksum)}")
    return parts


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escaped(text: str) -> str:
    r"""Escape text so that Markdown shows it unchanged.

    Example:
        >>> print(escaped("a|b <script> `c` [d](e)"))
        a\|b &lt;script&gt; \`c\` \[d\](e)
    """
    marked = re.sub(r"([\\`*_{}\[\]#+!|~$^])", r"\\\1", _line(text))
    safe = marked.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"(://|@|#|www(?=\.))", "\\1\u2060", safe)


def code(text: str) -> str:
    """Format text as code, with a fence of more backticks than it contains in a row."""
    line = _line(text)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def _line(text: str) -> str:
    """Text on one line, without control characters for terminals or writing direction."""
    kept = "".join(c for c in text if c.isspace() or not unicodedata.category(c).startswith("C"))
    return " ".join(kept.split())
