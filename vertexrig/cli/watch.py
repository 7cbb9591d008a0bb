"""`vertexrig watch`: follow a job to its end."""

from __future__ import annotations

from pathlib import Path

import click

from vertexrig.cli import options, remote
from vertexrig.cli.output import progress, result


@click.command("watch")
@click.argument("job")
@options.file_option
@options.poll_option
@options.format_option("text", "json")
def command(job: str, file: Path | None, poll: float, format_: str) -> None:
    """Follow JOB (number, resource name, or display name) until it has ended; the exit code is 0 only if it succeeded.

    A service that fails for a while is asked again. Interrupting this does not touch the job; `vertexrig cancel` does.
    """
    from vertexrig.studies import report

    vertex = remote.vertex(file)
    last = vertex.lookup(job)
    options.note(vertex.console(last.name))
    for now in report.follow(vertex, last.name, poll_s=poll):
        last = now
        if not progress(format_, f"{last.id}  {report.line(last)}"):
            return
    result(format_, {"job": dict(last.data)}, "")
    remote.must_have_succeeded(last)
