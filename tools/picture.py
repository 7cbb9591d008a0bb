"""Draws the pictures of the pages; `python -m tools.picture` writes all of them again.

A block of a page with a `picture:` comment becomes a terminal with what the page shows, as SVG. `tests/repository/test_pages.py` types
those commands and holds the shown output equal to what they print, so a picture shows a session that happened. The
console is photographed in Chromium, over a server that has just run a sweep (`tools/console_run.py`); the report is the one that
the commands of `docs/studies.md` write.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from tests.support import pages
from tests.support.browser import chromium
from tests.support.page_runs import run
from tests.support.tools import REPOSITORY
from tools import console_run

CONSOLE = REPOSITORY / "docs/images/console.png"
REPORT = REPOSITORY / "docs/images/report.png"
REPORT_SIZE = {"width": 1080, "height": 1770}
WIDTH = 104
"""Columns of the drawn terminal; longer lines are folded."""


def draw(block: pages.Block, name: str) -> str:
    """Return the SVG of a console block.

    Args:
        block: A block with commands.
        name: The page's name, for errors.
    """
    console = Console(record=True, width=WIDTH, file=io.StringIO(), color_system="truecolor")
    for command in pages.commands(block, name):
        console.print(Text("$ ", "bold green") + Text(command.text, "bold"), overflow="fold", highlight=False)
        for line in command.shown:
            console.print(Text("…" if line in pages.ANY_LINES else line), overflow="fold", highlight=False)
    return console.export_svg(title="a terminal", theme=DIMMED_MONOKAI, unique_id="session") + "\n"


def pictures() -> dict[Path, str]:
    """Return every picture of every page: its file and its SVG."""
    drawn = {}
    for page in pages.all_pages():
        name = page.relative_to(REPOSITORY).as_posix()
        for block in pages.blocks(page.read_text(encoding="utf-8"), name):
            if "picture" in block.notes:
                drawn[REPOSITORY / block.notes["picture"]] = draw(block, name)
    return drawn


def photograph_report(target: Path) -> None:
    """Type the commands of `docs/studies.md`, and write the first screen of its report as PNG."""
    page = REPOSITORY / "docs/studies.md"
    with tempfile.TemporaryDirectory(prefix="vertexrig-report-") as folder:
        for ran in run(page, page.read_text(encoding="utf-8"), Path(folder)):
            if not ran.as_expected:
                raise SystemExit(f"{page.name}:{ran.command.line}: `{ran.command.text}` ended with {ran.code}")
        report = next(Path(folder).rglob("report.html"))
        with chromium() as browser:
            opened = browser.new_page(viewport=REPORT_SIZE, color_scheme="light")
            opened.goto(report.as_uri())
            for chart in ("history", "parallel"):
                opened.locator(f"[id^=chart-{chart}] svg").first.wait_for()
            opened.screenshot(path=str(target))


def main() -> None:
    for file, svg in pictures().items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(svg, encoding="utf-8")
        print(file.relative_to(REPOSITORY))
    console_run.photograph(CONSOLE)
    photograph_report(REPORT)
    for file in (CONSOLE, REPORT):
        print(file.relative_to(REPOSITORY))


if __name__ == "__main__":
    main()
