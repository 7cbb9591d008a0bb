"""The coverage page of the local Vertex, `docs/local-coverage.md`, made from the tables of its APIs.

`python -m tools.coverage_page > docs/local-coverage.md` writes it; a test holds the committed page against it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from vertexrig.local import storage, vertex
from vertexrig.local.front.identity import COVERAGE as IDENTITY
from vertexrig.local.http import Coverage
from vertexrig.local.jobs import coverage as fields
from vertexrig.local.jobs.store import ResourceStore
from vertexrig.local.services import Registry
from vertexrig.local.services.coverage import LOGGING, SCHEDULER, coverage
from vertexrig.local.services.empty import COVERAGE as EMPTY
from vertexrig.local.services.projects import SERVICE as PROJECTS

STATES = ("served", "approximated", "not served")


def services() -> tuple[tuple[str, tuple[Coverage, ...]], ...]:
    """Title and rows of each service beside jobs, from its table of methods."""
    with tempfile.TemporaryDirectory() as folder:
        registry = Registry(ResourceStore(Path(folder)), seed=0, project="any")
        tables: dict[str, Iterable[str]] = {**registry.tables, PROJECTS: ("GetProject",)}
        registry.store.close()
    return tuple((_title(name), coverage(name, table)) for name, table in tables.items())


def _title(service: str) -> str:
    package, _, name = service.rpartition(".")
    return f"{name}, {'Vertex AI v1, v1beta1' if 'aiplatform' in package else 'Resource Manager v3; v1 over REST'}"


SECTIONS: tuple[tuple[str, tuple[Coverage, ...]], ...] = (
    ("Jobs, pipelines and operations, Vertex AI v1, v1beta1", vertex.COVERAGE),
    *services(),
    ("Lists of what is not kept here, Vertex AI v1, v1beta1", EMPTY),
    ("Fields of jobs and studies", fields.COVERAGE),
    ("Cloud Logging v2", LOGGING),
    ("Cloud Storage, JSON API", storage.COVERAGE),
    ("Cloud Scheduler v1", SCHEDULER),
    ("Beside them, for programs of `local run`", IDENTITY),
)

_HEAD = """\
# What the local Vertex serves

<!-- Made by `python -m tools.coverage_page`; change the tables, not this page. -->

**served**: as the service does it, as far as its clients can tell. **approximated**: it answers, and the note says what
differs. **not served**: a method of Vertex AI answers 501 with its name (over gRPC UNIMPLEMENTED), of another API 404 (501 by its real name, see [local run](local.md)); a field has no
effect or is refused. What is not listed is not served. Nothing here checks who asks: there are no users, no IAM, no quotas but those asked
for with `--fault`.

Every method of Vertex AI, Cloud Scheduler, Cloud Logging and Resource Manager that is listed as served or approximated answers over gRPC
too, by the same code: unary calls, service names of v1 and v1beta1, errors with the service's details. A field that only v1beta1 has is
not read.
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
