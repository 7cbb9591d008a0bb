"""`vertexrig keys`: every key of the project file."""

from __future__ import annotations

import json

import click

from vertexrig.cli import options


@click.command("keys")
@options.format_option("text", "json")
def command(format_: str) -> None:
    """List every key of vertexrig.yaml: type, default and meaning. `Job.worker` is the key `worker` of a job."""
    from vertexrig import reference

    names = ("key", "type", "default", "meaning")
    if format_ == "json":
        click.echo(json.dumps({"keys": [dict(zip(names, row, strict=True)) for row in reference.rows()]}, indent=2))
    else:
        click.echo(options.table(names, reference.rows()))
