"""`vertexrig cancel`: cancel a job, and wait until it has ended."""

from __future__ import annotations

from pathlib import Path

import click

from vertexrig.cli import candidates, options, remote, streams
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
    """Cancel JOB (name, id, resource name, or display name) and wait until it has ended; it costs money until then.

    If JOB has candidates, the current attempt is cancelled, even if JOB names an earlier one, and no other candidate is started.
    """
    loaded = config.load(file)
    vertex = remote.service(loaded)
    found = remote.lookup(vertex, loaded, job)
    request = candidates.of_job(options.workspace_of(file), found) if found.ended else None
    if request is not None:
        current = request.stop()
        if not current:
            result(format_, {"job": dict(found.data)}, "")
            streams.note(f"no other candidate of {found.display_name} is started")
            return
        found = vertex.get(current) or found
    if found.ended:
        raise UsageError(f"{found.display_name} has ended already: {short(found.state)}")

    def wait(one: RemoteJob) -> None:
        progress(format_, f"{one.id}  {report.line(one)}")

    # The service answers a cancel at once, and the machines run on until the state is CANCELLED.
    ended = report.cancel(vertex, found.name, wait=wait, poll_s=poll)
    result(format_, {"job": dict(ended.data)}, "")
    streams.note("it no longer costs anything")
