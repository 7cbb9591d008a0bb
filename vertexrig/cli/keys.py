"""`vertexrig keys`: every key of the project file."""

from __future__ import annotations

import click

from vertexrig.cli import options
from vertexrig.cli.output import result
from vertexrig.cli.tables import table


@click.command("keys")
@options.format_option("text", "json")
def command(format_: str) -> None:
    """List every key of vertexrig.yaml: type, default and meaning. `Job.worker` is the key `worker` of a job."""
    from vertexrig.project import keys

    names, rows = ("key", "type", "default", "meaning"), keys.rows()
    data = {"keys": [dict(zip(names, row, strict=True)) for row in rows]}
    result(format_, data, lambda: table(names, rows))
