"""`vertexrig rehearse`: a job's YAML, run on this machine."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vertexrig.cli import options
from vertexrig.errors import JobFailedError

if TYPE_CHECKING:
    from vertexrig.local.runner.lines import Line
    from vertexrig.rehearse import Rehearsal


@click.command("rehearse")
@click.argument("name")
@options.file_option
@options.set_option
@options.templates_option
@options.format_option("text", "json")
@click.option("--quiet", "-q", is_flag=True, help="Do not show what the replicas print.")
def command(
    name: str,
    file: Path | None,
    overrides: tuple[str, ...],
    templates: Path | None,
    format_: str,
    quiet: bool,
) -> None:
    """Run job NAME on this machine from its rendered YAML, as Vertex AI would: the package installed into its own
    environment, `python -m module args`, the service's environment variables, gs:// mapped to .vertexrig/gs/.

    The replicas' output goes to stderr, a summary to stdout; the exit code is 0 only if the job succeeded.
    """
    from vertexrig.local.runner.options import Control
    from vertexrig.rehearse import rehearse

    workspace = options.workspace(file, overrides, name, templates)
    control = Control()
    interrupted = []

    def stop(number: int, _: object) -> None:
        interrupted.append(number)
        control.cancel()

    def line(one: Line) -> None:
        options.note(f"{one.task} | {one.text}")

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        done = rehearse(
            workspace,
            name,
            on_line=None if quiet else line,
            on_state=lambda state: options.note(f"{name}: {state.removeprefix('JOB_STATE_')}"),
            control=control,
        )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        control.close()
    if interrupted:
        raise KeyboardInterrupt
    click.echo(json.dumps(_plain(done), indent=2) if format_ == "json" else _text(done))
    if not done.result.succeeded:
        if done.result.traceback:
            options.note(f"\n{done.result.failed_replica} ended with:\n{done.result.traceback}")
        message = done.result.error.message if done.result.error else done.result.state
        raise JobFailedError(f"{name} failed: {message}")


def _plain(done: Rehearsal) -> dict[str, object]:
    result = done.result
    return {
        "name": done.name,
        "state": result.state,
        "error": result.error.message if result.error else None,
        "summary": done.summary,
        "model": str(done.model) if done.model else None,
        "output": str(done.output) if done.output else None,
        "seconds": round(result.wall_seconds, 1),
        "stand_ins": list(result.stand_ins),
        "job_id": result.job_id,
    }


def _text(done: Rehearsal) -> str:
    result = done.result
    rows = [("state", result.state.removeprefix("JOB_STATE_")), ("seconds", f"{result.wall_seconds:.1f}")]
    metric = done.summary.get("metric")
    if metric is not None:
        rows.append((str(done.summary.get("metric_name", "metric")), str(metric)))
    if done.model:
        rows.append(("model", str(done.model)))
    rows += [("stand-in", sentence) for sentence in result.stand_ins]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)
