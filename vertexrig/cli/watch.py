"""`vertexrig watch`: follow a job until it has ended."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vertexrig import times
from vertexrig.cli import candidates, next_commands, options, remote, streams
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.output import progress, result
from vertexrig.cloud.logs import LOGGING_VARIABLE, JobLogs
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import TUNING, RemoteJob, Vertex, is_reachable
from vertexrig.errors import ServiceError, VertexrigError
from vertexrig.results.study import read, why_no_best
from vertexrig.studies import report
from vertexrig.studies.cost import Spent, spent
from vertexrig.studies.outcome import PROMOTED_FROM
from vertexrig.studies.watching import Watched, tails, watched
from vertexrig.text import clean
from vertexrig.times import length
from vertexrig.waiting import waiting
from vertexrig.workspace import Workspace

if TYPE_CHECKING:
    from rich.console import RenderableType

LOG_EVERY_S = 5.0
"""Seconds between two requests for log lines; the API of the logs has a quota of its own."""


@click.command("watch")
@click.argument("job", cls=NameArgument)
@options.file_option
@options.poll_option
@click.option(
    "--log-lines",
    type=options.Integer(0, 50),
    default=3,
    show_default=True,
    help="Log lines to show of each replica; 0 shows none.",
)
@click.option("--plain", is_flag=True, help="Print lines instead of a live table.")
@options.format_option("text", "json")
def command(job: str, file: Path | None, poll: float, log_lines: int, plain: bool, format_: str) -> None:
    """Follow JOB (name, id, resource name, or display name) until it has ended. The exit code is 0 only if the job succeeded.

    On a terminal, a live table shows the job's state, its best trial so far, the running trials with their last metric, the
    time and money used so far and expected at the end (an estimate), and the last log lines of each replica. Elsewhere, a line is
    printed for each change.

    If the job has candidates and ends for lack of machines, the next candidate is started. Ctrl-C ends `watch`, and the job continues;
    `vertexrig cancel` stops the job.
    """
    workspace = options.workspace_of(file)
    vertex = remote.service(workspace.loaded)
    last = remote.lookup(vertex, workspace.loaded, job)
    streams.note(vertex.console(last.name))
    request = candidates.of_job(workspace, last)
    named = [vertex.handle(last.name), *next_commands.named(file)]
    with continuing(last.display_name, *named):
        if request is not None:
            at = candidates.follow(request, poll, format_)
            if not at.ended:
                return
            last = at.remote or last
        # A table that is redrawn is control codes in a file.
        elif format_ == "text" and not plain and sys.stdout.isatty():
            last = _live(vertex, last, _cost(workspace), poll, log_lines)
        else:
            last = lines(vertex, last, poll, format_)
    if not last.ended:  # the reader of the lines has gone
        return
    attempts = {"attempts": request.attempts()} if request is not None else {}
    result(format_, {"job": dict(last.data), **attempts}, "")
    if request is not None:
        candidates.must_have_succeeded(at, request)
    remote.must_have_succeeded(last)
    named[0] = vertex.handle(last.name)
    if last.collection == TUNING:
        _after_study(last, named)
    elif PROMOTED_FROM in last.labels and _registers(file, workspace, last, str(named[0])):
        streams.note(f"to add its model to the Model Registry:\n{next_commands.line('register', *named)}")


@contextmanager
def continuing(name: str, *words: object) -> Iterator[None]:
    """Say, after Ctrl-C, that a job continues, and the `watch` command, with these words, that follows it again."""
    try:
        yield
    except KeyboardInterrupt:
        place = remote.place_of_jobs()
        streams.note(f"\n{name} continues on {place}; to follow it again:\n{next_commands.line('watch', *words)}")
        raise


def _after_study(last: RemoteJob, named: list[object]) -> None:
    """Print the command that takes the best trial of a study; if there is none, why, and the command that shows the trials."""
    study = read(last)
    if study.best:
        streams.note(f"to add a job with the best trial's parameters:\n{next_commands.line('promote', *named)}")
        return
    streams.note(why_no_best(last.display_name, study))
    if reason := next((f"trial {one.id}: {clean(one.reason)}" for one in study.trials if one.reason), ""):
        streams.note(reason)
    streams.note(f"to show its trials:\n{next_commands.line('trials', *named)}")


def _registers(file: Path | None, workspace: Workspace, job: RemoteJob, name: str) -> bool:
    """Whether `register` works for a job that has ended."""
    from vertexrig.cli import register  # only here: it loads the clients of the storage and of the registry

    found = remote.FoundJob(job)
    return register.works(options.WhereOptions(file, local=False), workspace.loaded, found, name)


def lines(vertex: Vertex, last: RemoteJob, poll: float, format_: str) -> RemoteJob:
    """Print a line for each change until the job has ended or the reader has closed the pipe; return the job as it was last."""
    failing = False

    def lost(error: RestError | None) -> None:
        nonlocal failing
        if (error is not None) != failing:
            failing = error is not None
            streams.note(f"lost the connection, retrying: {error}" if error else "connected again")

    with waiting(f"the end of {last.display_name}"):
        for now in report.follow(vertex, last.name, poll_s=poll, lost=lost):
            last = now
            if not progress(format_, f"{last.id}  {report.line(last)}"):
                break
    return last


def _live(
    vertex: Vertex, last: RemoteJob, cost: Callable[[RemoteJob], Spent | None], poll: float, log_lines: int
) -> RemoteJob:
    """Show a table that changes in place until the job has ended; return the job as it was last."""
    # here and not at the top: 38 ms, which a pipe saves
    from rich.console import Console
    from rich.live import Live

    # markup off: a replica's line with [brackets] would be read as rich's own styles.
    console = Console(no_color=not streams.wants_color(sys.stdout, os.environ), highlight=False, markup=False)
    trouble = ""
    tail = _Tail(vertex.project, log_lines)
    # Drawn only when something is new: rich would otherwise redraw four times a second in a thread.
    with Live(console=console, auto_refresh=False) as live:

        def lost(error: RestError | None) -> None:
            nonlocal trouble
            trouble = clean(f"lost the connection, retrying: {error}") if error else ""
            show(last)

        def show(job: RemoteJob) -> None:
            seen = watched(job, cost(job), time.time())
            live.update(_drawn(seen, tail.lines(seen, ended=job.ended), trouble), refresh=True)

        for now in report.follow(vertex, last.name, poll_s=poll, every=True, lost=lost):
            last = now
            show(last)
    return last


class _Tail:
    """The last log lines of each replica, read every few seconds; if they cannot be read, a line that says why."""

    def __init__(self, project: str, each: int) -> None:
        self.each, self._logs = each, JobLogs(project) if each and is_reachable(LOGGING_VARIABLE) else None
        self._read_at, self._lines = float("-inf"), list[tuple[str, str]]()

    def lines(self, seen: Watched, *, ended: bool) -> list[tuple[str, str]]:
        # Once more when the job has ended: its last lines are why it failed.
        if self._logs is None or (time.monotonic() - self._read_at < LOG_EVERY_S and not ended):
            return self._lines
        self._read_at = time.monotonic()
        try:
            # an hour back: older lines say nothing about the replicas that run now
            found = self._logs.tail(seen.jobs, times.rfc3339(time.time() - 3600))
            self._lines = tails(found, seen, self.each)
        except ServiceError as error:
            self._lines = [("logs", clean(f"cannot be read: {error}"))]
        return self._lines


def _cost(workspace: Workspace) -> Callable[[RemoteJob], Spent | None]:
    """Return a function that estimates what a job has cost; None where its spec cannot be read."""
    factor = workspace.loaded.project.trigger.budget.price_factor

    def cost(job: RemoteJob) -> Spent | None:
        try:
            return spent(job, workspace.catalog, factor=factor)
        except VertexrigError:
            return None

    return cost


def _drawn(seen: Watched, lines: list[tuple[str, str]], trouble: str) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    facts = Table.grid(padding=(0, 2))
    for name, value in (("state", seen.state), *seen.facts):
        facts.add_row(Text(name, style="dim"), Text(value, overflow="fold"))
    parts: list[RenderableType] = [Text(seen.title, style="bold"), facts]
    if seen.trials:
        trials = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
        for heading in ("trial", "runs for", "last metric"):
            trials.add_column(heading, no_wrap=True)
        trials.add_column("parameters")  # without no_wrap: it is cut when the terminal is narrow
        for trial in seen.trials:
            row = map(Text, (trial.id, length(round(trial.seconds)), trial.last or "–"))
            trials.add_row(*row, Text(trial.parameters, no_wrap=True, overflow="ellipsis"))
        parts += [Text(""), trials]
    if lines:
        tail = Table.grid(padding=(0, 2))
        tail.add_column(no_wrap=True)
        tail.add_column()
        for who, text in lines:
            tail.add_row(Text(who, style="dim"), Text(text, no_wrap=True, overflow="ellipsis"))
        parts += [Text(""), tail]
    if trouble:
        parts += [Text(""), Text(trouble, style="yellow")]
    return Group(*parts)
