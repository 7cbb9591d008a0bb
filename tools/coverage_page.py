"""The coverage page of the local Vertex, `docs/local-coverage.md`, made from the tables of its APIs.

`python -m tools.coverage_page > docs/local-coverage.md` writes it; a test holds the committed page against it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from vertexrig.local import logs, scheduler, storage, vertex
from vertexrig.local.front.identity import COVERAGE as IDENTITY
from vertexrig.local.http import Coverage
from vertexrig.local.jobs import coverage as fields

STATES = ("served", "approximated", "not served")

SECTIONS: tuple[tuple[str, tuple[Coverage, ...]], ...] = (
    ("Vertex AI v1, v1beta1", vertex.COVERAGE),
    ("Fields of jobs and studies", fields.COVERAGE),
    ("Cloud Logging v2", logs.COVERAGE),
    ("Cloud Storage, JSON API", storage.COVERAGE),
    ("Cloud Scheduler v1", scheduler.COVERAGE),
    ("Beside them, for programs of `local run`", IDENTITY),
)

_HEAD = """\
# What the local Vertex serves

<!-- Made by `python -m tools.coverage_page`; change the tables, not this page. -->

**served**: as the service does it, as far as its clients can tell. **approximated**: it answers, and the note says what
differs. **not served**: a method answers 404 (501 by the real name, see [local run](local.md)), a field has no effect or is refused. What is not listed is not served. Nothing here checks
who asks: there are no users, no IAM, no quotas but those asked for with `--fault`.
"""


def page(sections: Iterable[tuple[str, Iterable[Coverage]]] = SECTIONS) -> str:
    """The whole page as Markdown.

    Args:
        sections: Title and rows of each API.
    """
    parts = [_HEAD]
    for title, rows in sections:
        kept = list(rows)
        counts = ", ".join(f"{sum(row.state == state for row in kept)} {state}" for state in STATES)
        cells = [f"| `{row.method}` | {row.state} | {row.note.replace('|', chr(92) + '|')} |" for row in kept]
        head = "| field | state | note |" if title.startswith("Fields") else "| method | state | note |"
        parts.append("\n".join([f"## {title}", "", f"{counts}.", "", head, "| --- | --- | --- |", *cells, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
