"""`vertexrig rehearse`: a job's or sweep's YAML, run on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from localvertex.cli import servers, signals
from vertexrig.cli import creation, extras, next_commands, options, streams
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.output import result
from vertexrig.cli.tables import table
from vertexrig.errors import JobFailedError, VertexrigError
from vertexrig.files import must_stay, typed, write_text
from vertexrig.project.config import STATE_FOLDER
from vertexrig.results import attempts
from vertexrig.results.rehearsal import Rehearsal, all_failed
from vertexrig.results.trials import columns
from vertexrig.spec.states import short
from vertexrig.text import shown

if TYPE_CHECKING:
    from pathlib import Path

    from localvertex.jobs.manager import Watcher
    from localvertex.runner import Line
    from vertexrig.workspace import Prepared

MOST_ASTRAY = 3  # files that the message names
DIGITS = 4  # of a parameter or metric


@click.command("rehearse")
@click.argument("name", cls=NameArgument)
@options.project_options
@click.option("--trials", type=options.Integer(min=1), help="For a sweep: this many trials instead of max_trial_count.")
@click.option("--seed", type=int, default=0, show_default=True, help="For a sweep: seed of its search.")
@options.resume_option
@servers.engine_option
@servers.pace_options
@servers.fault_options
@options.format_option("text", "json")
@click.option("--quiet", "-q", is_flag=True, help="Show states, trials and the summary, but no log lines.")
def command(
    name: str,
    project: options.ProjectOptions,
    trials: int | None,
    seed: int,
    resume: str,
    engine: str | None,
    pace: servers.PaceOptions,
    faults: servers.FaultOptions,
    format_: str,
    quiet: bool,
) -> None:
    """Run job or sweep NAME on this machine from its rendered YAML, as Vertex AI would.

    The package is installed into its own environment. Each replica is a process, or a container if a container engine has the
    image. It gets the environment variables that Vertex AI sets. Buckets are folders below .vertexrig/gs/. Each run has its own
    output folder, and `vertexrig jobs --local` lists the runs.

    The output of the replicas goes to stderr, and a summary to stdout. The exit code is 0 only if the job succeeded.

    With `--fault`, the job runs on a local Vertex with that fault, and vertexrig starts the job's candidates as `submit --watch`
    does. Waiting times and the length of a fault are divided by 300, or with `--pace recorded` by `--speed`.
    """
    extras.need("optuna", "requests")  # the extra `local` brings both
    from localvertex.rehearsal import prepare, rehearse  # 140 ms, and an extra

    workspace = project.workspace(name)
    servers.bind_or_ask(workspace.loaded.output(STATE_FOLDER))
    watcher = _watcher(name, quiet)
    interrupted: list[int] = []
    if faults.texts:
        # `with_faults.rehearse` prepares every candidate, and starts a server, which handles signals.
        from localvertex.cli import faults as with_faults

        done = with_faults.rehearse(
            project,
            name,
            faults,
            pace,
            trials=trials,
            seed=seed,
            resume=resume,
            engine=engine,
            watcher=watcher,
        )
    else:
        with _interrupts() as interrupted:
            prepared = prepare(workspace, name)
            must_stay(prepared.yaml_file, workspace.loaded.folder)  # refused now: `_next_steps` writes it after the run
            done = rehearse(
                prepared,
                watcher=watcher,
                cancelled=lambda: bool(interrupted),
                trials=trials,
                seed=seed,
                resume=resume,
                engine=engine,
                pace=pace.pace,
                speed=pace.speed,
            )
    result(format_, _plain(done), lambda: _text(done))
    if done.trials:
        streams.note(
            f"to show these trials again:\n{next_commands.in_project(project.file, 'trials', name, '--local')}"
        )
    # A signal that came when the job had succeeded changes nothing any more.
    if interrupted and not done.succeeded:
        raise KeyboardInterrupt
    no_result = all_failed(done.trials)
    if not done.succeeded or no_result:
        # Without --quiet, the output and the hint were shown as they came.
        if done.quoted_output and quiet:
            streams.note(f"\n{done.failed_replica or name} ended with:\n{done.quoted_output}\n")
        if done.hint and quiet:
            streams.note(f"hint: {done.hint}")
    if not done.succeeded:
        raise JobFailedError(f"{name} failed: {_first_line(done.error) or done.state}")
    if no_result:
        # by max_failed_trial_count the sweep has succeeded, but it is not worth running on Vertex AI
        count = len(done.trials)
        streams.note(f"{name} has no result: {f'all {count} trials' if count > 1 else 'its only trial'} failed")
        return
    if faults.texts:
        streams.note("to run it on Vertex AI, with its candidates:")
        streams.note(workspace.command_line("submit", name, "--watch", for_paste=True), for_paste=True)
    else:
        _next_steps(prepared, project.file, done)


def _watcher(name: str, quiet: bool) -> Watcher:
    """Return what prints the states, trials and lines of a rehearsal as they come; `quiet` leaves out the lines."""
    from localvertex.jobs.manager import Watcher

    trial_of: dict[str, str] = {}

    def on_line(job_name: str, line: Line) -> None:
        who = f"trial {trial_of[job_name]} {line.task}" if job_name in trial_of else line.task
        streams.note(f"{who} | {line.text}")

    def on_trial(trial: Mapping[str, Any]) -> None:
        trial_of[str(trial.get("customJob", ""))] = str(trial.get("id", ""))
        if trial.get("state") in ("SUCCEEDED", "INFEASIBLE"):
            streams.note(f"{name}: {_trial(trial)}")

    def on_state(_: str, state: str) -> None:
        streams.note(f"{name}: {short(state)}")

    return Watcher(line=(lambda job_name, line: None) if quiet else on_line, state=on_state, trial=on_trial)


def _next_steps(prepared: Prepared, project_file: Path | None, done: Rehearsal) -> None:
    """Write the job's YAML, without this run's output folder, and print the commands to type next."""
    name, path = prepared.view.name, prepared.yaml_file
    write_text(path, prepared.text, below=prepared.workspace.loaded.folder)
    if any(trial["note"] == "best" for trial in done.trials):
        streams.note(f"to show its best trial:\n{next_commands.in_project(project_file, 'best', name, '--local')}")
        streams.note(
            f"to add a job with the best trial's parameters:\n{next_commands.in_project(project_file, 'promote', name, '--local')}"
        )
    words = _words_to_register(prepared, done)
    if words:
        lines = next_commands.on_local_vertex(project_file, *words)
        streams.note(f"to add its model to the Model Registry of the local Vertex:\n{lines}")
    else:
        streams.note(
            f"to use gcloud or the SDK on this machine:\n{next_commands.in_project(project_file, 'local', 'up', '--detach')}"
        )
    streams.note(f"wrote {path}; to run it on Vertex AI:")
    for line in creation.commands([(prepared, path)]):
        streams.note(line, for_paste=True)


def _words_to_register(prepared: Prepared, done: Rehearsal) -> list[str]:
    """Return the words of the command that registers the model.

    Empty for a sweep, and if there is no model that can be served or no metric to compare it by.
    """
    from vertexrig import catalog  # not at the top, because `rehearse --help` loads this module
    from vertexrig.studies import register, trained

    loaded, name = prepared.workspace.loaded, prepared.view.name
    if prepared.document.study is not None or done.model is None or done.models_empty:
        return []
    made = register.made_with(loaded, catalog.load(), prepared.document.pools[0].image)
    files = [path.relative_to(done.model).as_posix() for path in done.model.rglob("*") if path.is_file()]
    if register.servable(files, made) is None:
        return []
    given = dict[str, str]()
    try:
        metric, _ = trained.compared_by(loaded, prepared.view.labels, name, known=lambda: done.metrics)
    except register.LackingError as lacking:  # no sweep names the metric: the error proposes the options to give
        given = dict(lacking.options)
        metric = given.get("metric", "")
    if metric not in done.metrics:
        return []
    return ["register", name, *(f"--{key}={value}" for key, value in given.items())]


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Collect SIGINT, SIGTERM and SIGHUP instead of ending the process; yield the list of signals received so far.

    Raises:
        KeyboardInterrupt: After a signal, in place of a VertexrigError: a terminal's Ctrl-C also ends a package's build, which then fails.
    """
    came: list[int] = []
    # KeyboardInterrupt would break `rehearse` off; with a handler, the job is cancelled, and its record shows how it ended.
    with signals.handled(signals.not_ignored(), lambda number, _: came.append(number)):
        try:
            yield came
        except VertexrigError:
            if came:
                raise KeyboardInterrupt from None
            raise


def _plain(done: Rehearsal) -> dict[str, object]:
    return {
        "name": done.name,
        "state": done.state,
        "run": done.run or None,
        "traceback": done.quoted_output or None,
        "metrics": dict(done.metrics),
        "model": typed(done.model) if done.model else None,
        "model_empty": bool(done.models_empty),
        "astray": [typed(path) for path in done.astray],
        "output": typed(done.output) if done.output else None,
        "seconds": round(done.seconds, 1),
        "differences": list(done.differences),
        "warnings": list(done.warnings),
        "hint": done.hint or None,
        "trials": list(done.trials),
        "attempts": list(done.attempts),
    }


def _text(done: Rehearsal) -> str:
    rows = [("state", short(done.state)), ("seconds", f"{done.seconds:.1f}")]
    rows += [("run", done.run)] if done.run else []
    rows += [(name, shown(value, DIGITS)) for name, value in done.metrics.items()]
    if done.models_empty:
        red, off = ("\x1b[1;31m", "\x1b[0m") if streams.wants_color(sys.stdout, os.environ) else ("", "")
        first, *others = done.models_empty
        more = f" and {len(others)} more" if others else ""
        rows.append(("model", f"{red}empty{off}: {typed(first)}{more}{_astray(done)}"))
    elif done.model:
        rows.append(("model", typed(done.model)))
    elif done.output:
        rows.append(("output", typed(done.output)))
    rows += [("difference", sentence) for sentence in done.differences]
    rows += [("warning", sentence) for sentence in done.warnings]
    width = max(len(name) for name, _ in rows)
    text = "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)
    if done.attempts:
        headings, cells = columns(attempts.table(done.attempts))
        text += "\n\n" + table(headings, cells)
    if done.trials:
        headings, cells = columns(done.trials)
        text += "\n\n" + table(headings, [[_first_line(shown(cell, DIGITS)) for cell in row] for row in cells])
    return text


def _astray(done: Rehearsal) -> str:
    """Return the end of the sentence about an empty model: the files that the trainer wrote elsewhere."""
    if not done.astray:
        return "; the trainer left no file in its working directory either"
    more = f" and {len(done.astray) - MOST_ASTRAY} more" if len(done.astray) > MOST_ASTRAY else ""
    files = ", ".join(map(typed, done.astray[:MOST_ASTRAY]))
    return f"; the trainer wrote {files}{more}, which Vertex AI does not keep: save to AIP_MODEL_DIR"


def _trial(trial: Mapping[str, Any]) -> str:
    values = ", ".join(f"{one['parameterId']}={shown(one.get('value'), DIGITS)}" for one in trial.get("parameters", ()))
    metrics = (trial.get("finalMeasurement") or {}).get("metrics", ())
    result = ", ".join(f"{one['metricId']} {shown(one.get('value'), DIGITS)}" for one in metrics)
    return f"trial {trial.get('id')} {trial.get('state')}: {result or _first_line(str(trial.get('infeasibleReason', '')))} ({values})"


def _first_line(text: str) -> str:
    """Return the first line of an error; what follows is the replica's own output, which is shown elsewhere."""
    return text.partition("\n")[0].rstrip()
