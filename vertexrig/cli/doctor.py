"""`vertexrig doctor`: check that everything a submitted job needs exists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vertexrig.cli import options, output, remote
from vertexrig.cli.output import say
from vertexrig.errors import FindingsError
from vertexrig.project import config
from vertexrig.workspace import emulator

if TYPE_CHECKING:
    from vertexrig.trigger.doctor import Result

_SIGNS = {"ok": "ok  ", "warning": "warn", "error": "FAIL", "unknown": "?   "}


@click.command("doctor")
@options.file_option
@options.format_option("text", "json")
def command(file: Path | None, format_: str) -> None:
    """Check the project, its APIs, bucket and roles, the container engine on this machine, the function's runtime, the clock
    and gcloud. Most problems are shown with the command that solves them.

    Nothing is changed, with one exception: if one request has two jobs, the job that is not recorded is cancelled. The exit
    code is 1 if a result is FAIL; `warn` and `?` do not change it.
    """
    from vertexrig.trigger import doctor  # 40 ms

    results = []
    loaded = remote.load(file)
    for result in chain(_images(loaded), doctor.examine(loaded)):
        results.append(result)
        # printed at once: some checks wait for the service for seconds
        if format_ == "text":
            say(f"{_SIGNS[result.outcome]}  {result.name}: {result.message}")
            if result.fix:
                say(f"      {result.fix}")
    output.result(format_, {"results": [asdict(result) for result in results]}, "")
    wrong = [result.name for result in results if result.outcome == "error"]
    if wrong:
        raise FindingsError(f"wrong: {', '.join(wrong)}")


def _images(loaded: config.Loaded) -> Iterator[Result]:
    """Yield what runs images on this machine, where the local Vertex is installed."""
    from vertexrig.trigger.doctor import Result

    try:
        said = emulator.load("doctor").engine(loaded.project.local.engine)
    except (emulator.MissingEmulatorError, ImportError):  # of the extra local
        return
    yield Result("images", "ok", said)
