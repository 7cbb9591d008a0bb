"""`vertexrig doctor`: is everything there that a submitted job needs?"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from vertexrig.cli import options, output
from vertexrig.cli.output import say
from vertexrig.errors import FindingsError
from vertexrig.project import config

_SIGNS = {"ok": "ok  ", "warning": "warn", "error": "FAIL", "unknown": "?   "}


@click.command("doctor")
@options.file_option
@options.format_option("text", "json")
def command(file: Path | None, format_: str) -> None:
    """Look at project, APIs, bucket, roles, runtime, clock and gcloud, and print what to type. Nothing is
    changed, but of two jobs of one request the one that is not recorded is cancelled.

    The exit code is 1 if something is wrong; what could not be found out is not an error.
    """
    from vertexrig.trigger import doctor  # 40 ms

    results = []
    for result in doctor.examine(config.load(file)):
        results.append(result)
        # As each is known: some checks wait for the service for seconds.
        if format_ == "text":
            say(f"{_SIGNS[result.outcome]}  {result.name}: {result.message}")
            if result.fix:
                say(f"      {result.fix}")
    output.result(format_, {"results": [asdict(result) for result in results]}, "")
    wrong = [result.name for result in results if result.outcome == "error"]
    if wrong:
        raise FindingsError(f"wrong: {', '.join(wrong)}")
