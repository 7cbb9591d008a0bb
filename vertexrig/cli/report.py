"""`vertexrig report`: a job as a Markdown page."""

from __future__ import annotations

from pathlib import Path

import click

from vertexrig.cli import options, remote
from vertexrig.cli.output import result


@click.command("report")
@click.argument("job")
@options.file_option
@options.local_option
@click.option("--output", "-o", type=click.Path(path_type=Path), help="File; stdout by default.")
@options.format_option("markdown", "json")
def command(job: str, file: Path | None, local: bool, output: Path | None, format_: str) -> None:
    """Write JOB (number, resource name, display name, or a rehearsal's run) as a Markdown page: how it went, and a sweep's
    trials.
    """
    from vertexrig.cloud.vertex import TUNING
    from vertexrig.files import write_text
    from vertexrig.studies import report, trials

    found = remote.find(file, job, local=local)
    text = report.page(found.job, found.console, found.record)
    rows = trials.table(found.job.data) if found.job.collection == TUNING else []
    data = {"job": dict(found.job.data), "console": found.console or None, "trials": rows}
    if output is not None:
        write_text(output, text)
        options.note(f"wrote {output}")
    result(format_, {**data, "path": output and str(output)}, "" if output else text.rstrip("\n"))
