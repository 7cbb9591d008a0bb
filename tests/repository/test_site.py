"""The documentation as a site: what it is built from, its links, and its pages in a browser."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.repository.test_make import copied, environment, make
from tests.support.browser import chromium
from tools import site
from vertexrig import __version__
from vertexrig.checks import rules
from vertexrig.spec.strict import READING_RULES

PAGES = ("index", "tutorial", "checks", "rules/accelerator-count", "local-coverage", "project-file")


@pytest.mark.whole
def test_a_rules_page_shows_a_mistake_and_what_is_said() -> None:
    """Every rule has a page; it shows the change, the finding, the kind of the fix and each source."""
    pages = dict(site.rule_pages())
    assert set(pages) == {rule.id for rule in rules()} | {rule.id for rule in READING_RULES}
    text = pages["accelerator-count"]
    assert "\n-    acceleratorCount: 4\n+    acceleratorCount: 3\n" in text
    assert re.search(r"error\[accelerator-count\]: \S+ cannot have 3 ", text)
    assert "--unsafe-fixes" in text and "ignore[accelerator-count]" in text
    shown = {name for name, text in pages.items() if f"[{name}]: " in text}
    assert shown == set(site.examples()) and len(shown) > 180


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """The site as `make docs` builds it."""
    if sys.version_info < (3, 11):
        pytest.skip("zensical needs Python 3.11")
    copy = copied(tmp_path / "docs")
    env = environment(copy, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    env.pop("PYTHONPATH")
    done = make(copy, "docs", env)
    if "install.log" in done.stdout and "CI" not in os.environ:
        pytest.skip("zensical cannot be installed here")
    assert done.returncode == 0, done.stdout[-3000:]
    return copy / "build/site"


@contextmanager
def served(built: Path) -> Iterator[str]:
    """Its address, on a server of this process."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(built)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def lost_none(built: Path) -> None:
    """Each link of each page that stays in the site leads to a file of it, and to a heading of that."""
    pages = {path: path.read_text(encoding="utf-8") for path in built.rglob("*.html") if path.name != "404.html"}
    anchors = {path: set(re.findall(r'\sid="?([^"\s>]+)', text)) for path, text in pages.items()}
    lost, seen = [], 0
    for path, text in pages.items():
        for link in map("".join, re.findall(r'\s(?:href|src)=(?:"([^"]*)"|([^\s">]+))', text)):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            seen += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in anchors.get(target, ())):
                lost.append(f"{path.relative_to(built)}: {link}")
    assert not lost and seen > 5000
    assert len(pages) > 200


def open_on_a_phone_and_on_a_desk(browser: Any, served: str) -> None:
    """At 390 and 1,400 pixels no page is wider than its window, fetches from another host or reports an error."""
    wrong: list[str] = []
    for width in (390, 1400):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("request", lambda made: wrong.append(made.url) if not made.url.startswith((served, "data:")) else None)
        for name in PAGES:
            page.goto(f"{served}/{name}.html")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            assert page.locator("h1").first.is_visible() and f"vertexrig {__version__}" in page.content()
        page.close()
    assert not wrong


def search_tabs_and_dark_mode(browser: Any, served: str) -> None:
    """A rule's id finds its page, the other tab shows the other commands, and the switch makes the page dark."""
    page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme="light")
    page.goto(f"{served}/index.html")
    assert page.get_by_text("vertexrig rehearse cpu").is_visible()
    page.locator(".tabbed-labels label").nth(1).click()
    page.get_by_text("make cpu-job RUN").wait_for(state="visible")
    assert not page.get_by_text("vertexrig rehearse cpu").is_visible()
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("label[title='Go dark']").click()
    page.wait_for_function("was => getComputedStyle(document.body).backgroundColor != was", arg=before)
    page.keyboard.press("Control+k")
    page.keyboard.type("accelerator-count")
    page.locator("a[href*='rules/accelerator-count.html']").first.wait_for()


@pytest.mark.whole
def test_the_site_is_built_linked_and_opens(built: Path) -> None:
    """No link or heading is lost; pages fit their windows and fetch nothing elsewhere; search, tabs and dark mode work."""
    lost_none(built)
    with chromium() as browser, served(built) as address:
        open_on_a_phone_and_on_a_desk(browser, address)
        search_tabs_and_dark_mode(browser, address)
