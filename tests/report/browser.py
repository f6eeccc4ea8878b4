"""A real browser: opens a page from disk and says what it drew, logged and asked for."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Opened:
    """A page, and what came out of it."""

    page: Page
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def ask(self, script: str) -> Any:
        return self.page.evaluate(script)


@contextmanager
def opened(path: Path, width: int = 1100, scheme: str = "light") -> Iterator[Opened]:
    """Open a file and wait until its charts are drawn."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    assert program, "reports are tested in a real browser: install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        seen = Opened(page)
        page.on("console", lambda message: seen.messages.append(message.text))
        page.on("pageerror", lambda error: seen.messages.append(str(error)))
        page.on("dialog", lambda dialog: (seen.messages.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: seen.requests.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("body[data-charts]", timeout=60_000)
        yield seen
        browser.close()
