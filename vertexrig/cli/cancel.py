"""`vertexrig cancel`: stop a job, and see that it stops."""

from __future__ import annotations

from pathlib import Path

import click

from vertexrig.cli import options, remote
from vertexrig.errors import UsageError
from vertexrig.spec.states import short


@click.command("cancel")
@click.argument("job")
@options.file_option
@options.poll_option
def command(job: str, file: Path | None, poll: float) -> None:
    """Cancel JOB (number, resource name, or display name) and wait until it has ended: it costs money until then."""
    from vertexrig.submit import report

    vertex = remote.vertex(file)
    found = vertex.lookup(job)
    if found.ended:
        raise UsageError(f"{found.display_name} has ended already: {short(found.state)}")
    report.cancel(vertex, found.name, wait=lambda one: click.echo(f"{one.id}  {report.line(one)}"), poll_s=poll)
    options.note("it costs nothing any more")
