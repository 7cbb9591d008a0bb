"""The state and results of jobs, as text and as a Markdown page."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from vertexrig.cloud.rest import RestError, is_loopback
from vertexrig.cloud.vertex import TUNING, RemoteJob, Vertex
from vertexrig.results import attempts, trials
from vertexrig.results.history import Record
from vertexrig.results.study import read
from vertexrig.spec.states import short
from vertexrig.text import code, fenced, markdown, shown

POLL_S = 5.0
_PATIENCE_S = 600.0
_TIMES = {"created": "createTime", "started": "startTime", "ended": "endTime"}


def follow(
    vertex: Vertex,
    name: str,
    *,
    poll_s: float = POLL_S,
    every: bool = False,
    lost: Callable[[RestError | None], None] | None = None,
) -> Iterator[RemoteJob]:
    """Yield a job each time its state or its trials change, until it has ended.

    A failing service is asked again for ten minutes: the job keeps running (tfx issue 5870).

    Args:
        every: Give the job after each question, also when nothing changed.
        lost: Called with the error when a question fails, and with None when one succeeds again.

    Raises:
        RestError: The service failed for too long.
    """
    before: Any = None
    failing_since: float | None = None
    while True:
        try:
            job = vertex.get(name)
            if failing_since is not None and lost is not None:
                lost(None)
            failing_since = None
        except RestError as error:
            failing_since = failing_since or time.monotonic()
            if not error.retryable or time.monotonic() - failing_since > _PATIENCE_S:
                raise
            if lost is not None:
                lost(error)
            job = None
        if job is not None:
            now = (job.state, progress(job))
            if every or now != before:
                before = now
                yield job
            if job.ended:
                return
        time.sleep(poll_s)


def cancel(
    vertex: Vertex, name: str, *, wait: Callable[[RemoteJob], None] | None = None, poll_s: float = POLL_S
) -> RemoteJob:
    """Cancel a job and wait until it has ended.

    Args:
        wait: Called with the job each time its state changes.
    """
    vertex.cancel(name)
    last = RemoteJob({"name": name})
    for last in follow(vertex, name, poll_s=poll_s):
        if wait is not None:
            wait(last)
    return last


def progress(job: RemoteJob) -> str:
    """Return trials by state, "" for a custom job."""
    if job.collection != TUNING:
        return ""
    states = [str(trial.get("state", "")) for trial in job.data.get("trials") or []]
    counts = ", ".join(f"{states.count(state)} {state.lower()}" for state in dict.fromkeys(states))
    return f"{counts or 'no trial yet'} of {job.data.get('maxTrialCount', '?')}"


def line(job: RemoteJob) -> str:
    """Return a job in one line."""
    more = progress(job)
    return f"{short(job.state)}{f'  ({more})' if more else ''}"


def page(
    job: RemoteJob, console: str, record: Record | None = None, attempted: Sequence[Mapping[str, Any]] = ()
) -> str:
    """Return a job as a Markdown page: how it went, and for a sweep its best trials and a table of all.

    Args:
        console: Its page in the console, "" for a rehearsal.
        record: The rehearsal, if it is one.
        attempted: The attempts of a job with candidates.
    """
    server = local_server(console)
    rows = [("name", code(job.name)), ("state", markdown(short(job.state)))]
    rows += [("console", markdown(server or console))] if console else []
    rows += [("output", code(job.output))] if job.output else []
    rows += [(key, markdown(str(job.data[field]))) for key, field in _TIMES.items() if job.data.get(field)]
    rows += (
        [("labels", ", ".join(code(f"{key}={value}") for key, value in sorted(job.labels.items())))]
        if job.labels
        else []
    )
    lines = [f"# {markdown(job.display_name)}", "", *(f"- {name}: {value}" for name, value in rows)]
    if server:
        lines.insert(1, "\nRun on the local Vertex of a machine, not on Vertex AI.")
    if record is not None:
        lines.insert(1, f"\nA rehearsal on this machine{f', run {markdown(record.run)}' if record.run else ''}.")
        lines += [f"- {markdown(name)}: {markdown(shown(value))}" for name, value in record.metrics.items()]
        lines += [f"- difference: {markdown(sentence)}" for sentence in record.differences]
    if job.error:
        lines += ["", fenced(job.error.strip())]
    if attempted:
        lines += ["", "## Candidates", "", *markdown_table(attempts.table(attempted))]
    if job.collection == TUNING:
        lines += ["", "## Trials", "", *markdown_table(read(job).table())]
    return "\n".join(lines) + "\n"


def local_server(console: str) -> str:
    """Return the address of the local Vertex that a job's page in the console is on; "" if it is on Google's, or there is none."""
    return console.partition("/#/")[0] if console and is_loopback(console) else ""


def markdown_table(rows: list[dict[str, Any]]) -> list[str]:
    """Return rows of trials, or of studies, as a Markdown table."""
    if not rows:
        return ["none"]
    names, cells = trials.columns(rows)
    body = ["| " + " | ".join(markdown(shown(cell)) for cell in row) + " |" for row in cells]
    return ["| " + " | ".join(map(markdown, names)) + " |", "|" + " --- |" * len(names), *body]
