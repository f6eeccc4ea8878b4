"""What mkdocs does here beyond Markdown: help texts and schema filled in, nothing loaded from elsewhere."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

_WIDTH = 80
_LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "link": "href"}
_ELSEWHERE = re.compile(r"(?:https?:)?//", re.I)
_IN_STYLES = re.compile(r"""(?:url\(\s*|@import\s+)["']?((?:https?:)?//[^"')\s]+)""", re.I)
_FROM_THE_ROOT = re.compile(r'^--8<-- "([A-Z]+\.md)"$', re.M)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in what is asked for by a comment of its own line."""
    for name, make in (("commands", _commands), ("schema", _schema)):
        marker = f"<!-- {name} -->"
        if marker in markdown:
            markdown = markdown.replace(marker, make())
    return _FROM_THE_ROOT.sub(_included, markdown)


def _included(line: re.Match[str]) -> str:
    """A page of the repository's root, with its links as they are from the reference."""
    page = Path(__file__).parent.parent / line[1]
    return page.read_text(encoding="utf-8").replace("](docs/", "](../")


def _commands() -> str:
    """Every verb with what `--help` prints."""
    from typer.main import get_command

    from canaria.cli import app

    return "\n".join(_helped(get_command(app), ["canaria"]))


def _helped(command: Any, words: list[str]) -> Iterator[str]:
    from typer.testing import CliRunner

    from canaria.cli import app

    environment = {"COLUMNS": str(_WIDTH), "TERMINAL_WIDTH": str(_WIDTH), "NO_COLOR": "1", "TERM": "dumb"}
    shown = CliRunner().invoke(app, [*words[1:], "--help"], env=environment, terminal_width=_WIDTH)
    if shown.exit_code:
        raise PluginError(f"{' '.join(words)} --help failed: {shown.output}")
    text = "\n".join(line.rstrip() for line in shown.output.strip("\n").splitlines())
    yield f"## {' '.join(words)}\n\n```text\n{text}\n```\n"
    for name, verb in getattr(command, "commands", {}).items():
        yield from _helped(verb, [*words, name])


def _schema() -> str:
    """The JSON schema of a result file."""
    from typer.testing import CliRunner

    from canaria.cli import app

    shown = CliRunner().invoke(app, ["schema"])
    if shown.exit_code:
        raise PluginError(f"canaria schema failed: {shown.output}")
    return f"```json\n{json.dumps(json.loads(shown.output), indent=2, ensure_ascii=False)}\n```"


class _Loads(HTMLParser):
    """Everything that a page makes the browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the tag loads."""
        if tag in _LOADS:
            self.found += [value for name, value in attrs if name == _LOADS[tag] and value]


def loads(path: Path) -> list[str]:
    """What a built page or style sheet loads from elsewhere."""
    text = path.read_text(encoding="utf-8")
    styled: list[str] = _IN_STYLES.findall(text)
    parser = _Loads()
    if path.suffix == ".html":
        parser.feed(text)
    return [*styled, *(address for address in parser.found if _ELSEWHERE.match(address))]


def on_post_build(config: Any, **_: Any) -> None:
    """Refuse a site that needs the network: it must be readable from a disk."""
    site = Path(config.site_dir)
    for path in sorted((*site.rglob("*.html"), *site.rglob("*.css"))):
        found = loads(path)
        if found:
            raise PluginError(f"{path.relative_to(site)} loads from elsewhere: {', '.join(found)}")
