"""A real browser: opens pages from disk and says what they drew, logged and asked for."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
UNFOLD = "document.querySelectorAll('details').forEach(folded => { folded.open = true; })"
MISFITS = """
() => {
  const wide = document.documentElement.clientWidth, faults = [];
  if (document.documentElement.scrollWidth > wide) faults.push(`page is ${document.documentElement.scrollWidth} wide`);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.textContent.trim() || node.parentElement.closest('title')) continue;
    range.selectNodeContents(node);
    for (const box of range.getClientRects())
      if (box.left < 0 || box.right > wide + 0.5) faults.push(`cut off: ${node.textContent.slice(0, 60)}`);
  }
  const shown = [...document.querySelectorAll('svg.chart')].filter(drawn => !drawn.closest('details:not([open])'));
  for (const chart of shown) {
    const box = chart.getBoundingClientRect(), name = chart.getAttribute('aria-label');
    if (box.width < 100 || box.height < 40 || box.left < 0 || box.right > wide) faults.push(`chart: ${name}`);
    if (!chart.checkVisibility()) faults.push(`not visible: ${name}`);
  }
  return {faults: [...new Set(faults)], charts: shown.length};
}
"""


@dataclass
class Opened:
    """A page, and what came out of it."""

    page: "Page"
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def ask(self, script: str) -> Any:
        return self.page.evaluate(script)


def watched(browser: "Browser", *, script: bool = True) -> Opened:
    """A page that keeps what is logged and asked for; with `script` off, its own scripts do not run."""
    page = browser.new_context(java_script_enabled=script).new_page()
    seen = Opened(page)
    page.on("console", lambda message: seen.messages.append(message.text))
    page.on("pageerror", lambda error: seen.messages.append(str(error)))
    page.on("dialog", lambda dialog: (seen.messages.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: seen.requests.append(request.url))
    return seen


@contextmanager
def launched() -> Iterator["Browser"]:
    """A browser for several pages. Tests that use one are marked `slow`: only `make test-all` installs it."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "reports are tested in a real browser: install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def opened(path: Path, width: int = 1100, scheme: str = "light") -> Iterator[Opened]:
    """Open one file."""
    with launched() as browser:
        seen = watched(browser)
        seen.page.set_viewport_size({"width": width, "height": 900})
        seen.page.emulate_media(color_scheme=scheme)
        seen.page.goto(path.as_uri())
        yield seen
