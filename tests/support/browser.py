"""The Chromium of the system, without a network of its own, for tests and for the pictures of the pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from localvertex.state import RunningServer

QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")  # fmt: skip


@contextmanager
def chromium() -> Iterator[Any]:
    """Playwright's browser object; a test that needs it skips where Playwright or Chromium is not installed."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=list(QUIET))
        yield opened
        opened.close()


@contextmanager
def shown(browser: Any, here: RunningServer, where: str = "", **options: Any) -> Iterator[Any]:
    """The page at a place; no request leaves for another host, nothing is logged, and no dialog opens."""
    page = browser.new_page(**{"viewport": {"width": 1600, "height": 900}, **options})
    page.set_default_timeout(120_000)  # ms; the drawing library is bundled meanwhile, and the machine may be busy
    troubles: list[str] = []

    def dismissed(dialog: Any) -> None:
        troubles.append("a dialog")
        dialog.dismiss()

    page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", dismissed)
    page.on(
        "request", lambda one: troubles.append(one.url) if not one.url.startswith((f"{here.url}/", "data:")) else None
    )
    page.goto(f"{here.url}/{where}")
    page.locator("#list > *").first.wait_for()
    yield page
    page.close()
    assert troubles == []


def go(page: Any, here: RunningServer, place: str) -> None:
    """Open a place of the page that is shown, and wait for what is particular to it."""
    section, _, rest = place.partition("/")
    page.goto(f"{here.url}/#/{place}")
    part = {"jobs": "head", "buckets": "objects"}[section] + f" {rest}" if rest else section
    page.locator(f'main [data-part="{part}"]').wait_for()


@contextmanager
def chromium_page(browser: Any) -> Iterator[Any]:
    """A page of which nothing is asked."""
    page = browser.new_page()
    yield page
    page.close()
