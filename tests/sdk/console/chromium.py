"""Debian's chromium, driven by playwright: nothing is downloaded."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage"]
PHONE = {"width": 375, "height": 740}
DESK = {"width": 1280, "height": 800}


@dataclass
class Tab:
    """A page of chromium, and everything that it complains of: script errors, refusals by CSP, dialogs."""

    page: Any
    origin: str
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", self._dialog)
        self.page.on("request", self._request)

    def go(self, path: str) -> None:
        self.page.goto(self.origin + path)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _dialog(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Any) -> None:
        if not request.url.startswith(self.origin):
            self.complaints.append(f"request to {request.url}")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser. Skips the test where there is none."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_tab(browser: Any, link: str, **options: Any) -> Iterator[Tab]:
    """A tab of its own context, which came by the link."""
    context = browser.new_context(**{"viewport": DESK, **options})
    try:
        tab = Tab(context.new_page(), link.partition("/enter")[0])
        tab.page.goto(link)
        yield tab
    finally:
        context.close()
