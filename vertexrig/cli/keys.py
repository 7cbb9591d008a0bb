"""`vertexrig keys`: list the keys of the project file, and print JSON Schemas for editors."""

from __future__ import annotations

import json
from typing import Any

import click

from vertexrig.catalog import load
from vertexrig.cli import options, output, targets
from vertexrig.cli.output import result
from vertexrig.cli.tables import table
from vertexrig.project import keys
from vertexrig.project.model import Project
from vertexrig.schema.json_schema import json_schema
from vertexrig.spec.job_schema import job_schema


@click.command("keys")
@click.option(
    "--schema",
    type=click.Choice(["project", *targets.KINDS]),
    help="Print the JSON Schema of the project file, or of a file for gcloud of this kind.",
)
@options.format_option("text", "json")
def command(schema: str | None, format_: str) -> None:
    """List every key of vertexrig.yaml with its type, default and meaning. `Job.worker` is the key `worker` of a job."""
    if schema is not None:
        output.say(json.dumps(schema_of(schema), indent=1))
        return
    names, rows = ("key", "type", "default", "meaning"), keys.rows()
    data = {"keys": [dict(zip(names, row, strict=True)) for row in rows]}
    result(format_, data, lambda: table(names, rows))


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a file: `project`, `custom-job` or `hp-tuning-job`."""
    catalog = load()
    examples = {
        "machine_type": sorted(catalog.machines),
        "accelerator_type": sorted(catalog.accelerators),
        "region": sorted(name for name, row in catalog.regions.items() if row.gcloud),
    }
    kind = targets.kind(name)
    return json_schema(Project, examples) if kind is None else job_schema(kind, examples)
