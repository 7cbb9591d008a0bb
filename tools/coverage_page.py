"""The coverage page of the local Vertex, `docs/local-coverage.md`, made from the tables of its APIs.

`python -m tools.coverage_page > docs/local-coverage.md` writes it; a test holds the committed page against it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from localvertex.jobs.settings import Settings
from localvertex.jobs.store import ResourceStore
from localvertex.services import Registry, logging_api, projects, scheduler_api
from localvertex.services.jobs import EMPTY_LISTS, JobMethods
from localvertex.services.log_store import LogStore
from localvertex.services.router import PACKAGE, Service
from localvertex.services.scheduler_engine import SchedulerEngine
from localvertex.storage import ObjectStore
from tools.coverage import FIELDS, IDENTITY, LOGGING, SCHEDULER, STORAGE, Coverage, coverage

STATES = ("served", "approximated", "not served")
_MORE = {logging_api.SERVICE: LOGGING, scheduler_api.SERVICE: SCHEDULER}
"""Further rows of a service, which are not methods."""


def services() -> tuple[Service, ...]:
    """Return every service, as the server makes them."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store, logs, objects = ResourceStore(root), LogStore(root), ObjectStore(root)
        found = (
            *JobMethods(store, {}).services(),
            *Registry(store, Settings(root=root), objects).services,
            Service(projects.SERVICE, {"GetProject": lambda request: request}),
            logging_api.LoggingApi(logs).service,
            scheduler_api.SchedulerApi(SchedulerEngine(store)).service,
        )
        for one in (store, logs, objects):
            one.close()
    return found


def _title(service: str) -> str:
    package, _, name = service.rpartition(".")
    api = {
        "google.cloud.resourcemanager.v3": "Resource Manager v3; v1 over REST",
        "google.logging.v2": "Cloud Logging v2",
        "google.cloud.scheduler.v1": "Cloud Scheduler v1",
    }
    return f"{name}, {api.get(package, 'Vertex AI v1, v1beta1')}"


def _rows(service: Service) -> tuple[Coverage, ...]:
    # A tail of a log streams in both directions, which no REST route does; gRPC has it apart.
    streamed = ("TailLogEntries",) if service.name == logging_api.SERVICE else ()
    return (*coverage(service.name, (*service.methods, *streamed)), *_MORE.get(service.name, ()))


def _of_services() -> tuple[tuple[str, tuple[Coverage, ...]], ...]:
    """Return a section for each service, and one for all of which only empty lists are served; endpoints have their own."""
    sections, lists = [], []
    for one in services():
        if one.methods.keys() <= set(EMPTY_LISTS.get(one.name, ())) and one.name != f"{PACKAGE}.EndpointService":
            lists += [row for row in _rows(one) if row.state != "not served"]
        else:
            sections.append((_title(one.name), _rows(one)))
    return (*sections, ("Other services, Vertex AI v1, v1beta1", tuple(lists)))


SECTIONS: tuple[tuple[str, tuple[Coverage, ...]], ...] = (
    *_of_services(),
    ("Fields of jobs and studies", FIELDS),
    ("Cloud Storage, JSON API", STORAGE),
    ("For programs of `local run`", IDENTITY),
)

_HEAD = """\
# What the local Vertex serves

<!-- Made by `python -m tools.coverage_page`; change the tables, not this page. -->

The local Vertex serves what training needs. It does not serve endpoints, batch prediction, AutoML, pipelines of components, Featurestore
or BigQuery. A request for one of these fails at once, with a status that no client retries and a message that names what is served. Lists of
them in a location are empty, so that a program that lists or deletes everything in a project can continue. The training part of such a program
still runs: `vertexrig local run` ends with the program's exit code, and lists the jobs that the program made and the folder that each job wrote.

The tables use these words:

- **served**: works as on Vertex AI, as far as clients can tell.
- **approximated**: answers; the note says what differs.
- **not served**: a method of Vertex AI answers 405 with its name (over gRPC UNIMPLEMENTED). A method of another API answers 404, or 405
  if the program called Google's own host name ([local run](local.md)). A field has no effect or is refused.

A method that is not listed is not served. The local Vertex has no users, no IAM and no quotas, except for the quotas that you set with `--fault`.

Methods of Vertex AI, Cloud Scheduler, Cloud Logging and Resource Manager that are served or approximated also answer over gRPC: unary
calls, with the service names of v1 and v1beta1 and Google's error details. Fields that exist only in v1beta1 are ignored.
"""


def page(sections: Iterable[tuple[str, Iterable[Coverage]]] = SECTIONS) -> str:
    """Return the whole page as Markdown.

    Args:
        sections: Title and rows of each API.
    """
    parts = [_HEAD]
    for title, rows in sections:
        kept = list(rows)
        counts = ", ".join(f"{sum(row.state == state for row in kept)} {state}" for state in STATES)
        cells = [
            f"| `{row.method}` | {row.state} | {row.note.replace('|', chr(92) + '|')} |" for row in kept if row.note
        ]
        head = "| field | state | note |" if title.startswith("Fields") else "| method | state | note |"
        table = [head, "| --- | --- | --- |", *cells, ""] if cells else []
        plain = [
            (state, [f"`{row.method}`" for row in kept if row.state == state and not row.note]) for state in STATES
        ]
        rest = [f"{state.capitalize()}: {', '.join(methods)}.\n" for state, methods in plain if methods]
        parts.append("\n".join([f"## {title}", "", f"{counts}.", "", *table, *rest]))
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
