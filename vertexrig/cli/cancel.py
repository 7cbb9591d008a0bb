"""`vertexrig cancel`: stop a job, and wait until it has stopped."""

from __future__ import annotations

from pathlib import Path

import click

from vertexrig.cli import climbing, options, remote, streams
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.output import progress, result
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.errors import UsageError
from vertexrig.project import config
from vertexrig.spec.states import short
from vertexrig.studies import report


@click.command("cancel")
@click.argument("job", cls=NameArgument)
@options.file_option
@options.poll_option
@options.format_option("text", "json")
def command(job: str, file: Path | None, poll: float, format_: str) -> None:
    """Cancel JOB (name, number, resource name, or display name) and wait until it has ended: it costs money until then.

    Of a job with candidates that has been given up it cancels the one that is tried by now, and no further one is tried.
    """
    loaded = config.load(file)
    vertex = remote.service(loaded)
    found = remote.lookup(vertex, loaded, job)
    climbed = climbing.of_job(options.workspace_of(file), found) if found.ended else None
    if climbed is not None:
        if climbed.stop("cancelled", "cancelled before another candidate was tried"):
            result(format_, {"job": dict(found.data)}, "")
            streams.note(f"no further candidate of {found.display_name} is tried")
            return
        found = vertex.get(climbed.tries()[-1].job) or found
    if found.ended:
        raise UsageError(f"{found.display_name} has ended already: {short(found.state)}")

    def wait(one: RemoteJob) -> None:
        progress(format_, f"{one.id}  {report.line(one)}")

    # The service answers a cancel at once, and the machines run on until the state is CANCELLED.
    ended = report.cancel(vertex, found.name, wait=wait, poll_s=poll)
    result(format_, {"job": dict(ended.data)}, "")
    streams.note("it no longer costs anything")
