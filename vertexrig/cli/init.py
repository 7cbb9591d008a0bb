"""`vertexrig init`: write a first project file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vertexrig import catalog
from vertexrig.cli import next_commands, options, streams
from vertexrig.cli.output import result
from vertexrig.errors import UsageError, VertexrigError
from vertexrig.files import read_text, write_text
from vertexrig.finding import Severity
from vertexrig.package.discover import script_of, trainers
from vertexrig.package.discover import trainer as at
from vertexrig.project import config
from vertexrig.project.config import DEFAULT_NAME
from vertexrig.render import starter
from vertexrig.workspace import Workspace

if TYPE_CHECKING:
    from vertexrig.render.starter import Starter

TRIALS = 4  # of the sweep that is suggested: enough to see that it works


@click.command("init")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    default=Path(DEFAULT_NAME),
    show_default=True,
    help="File to write.",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option(
    "--trainer",
    type=click.Path(path_type=Path),
    help="The trainer: a script, a package folder or a project; by default it is searched for in the folder.",
)
@options.format_option("text", "json")
def command(output: Path, force: bool, trainer: Path | None, format_: str) -> None:
    """Write a small project file for the trainer in this folder: a job, and a sweep if the trainer reports a metric.

    A trainer is a folder with a setup.py or pyproject.toml, the folder of a Python package, or a script such as train.py.
    Its flags become args of the jobs. The trainer is neither changed nor run.
    """
    if output.exists() and not force:
        raise UsageError(f"{output} exists already; to replace it, use --force")
    folder = output.absolute().parent
    found = [at(folder, trainer)] if trainer is not None else trainers(folder)
    made = starter.starter(found[0], catalog.load()) if found else starter.empty(catalog.load())
    if not found and output.exists() and read_text(output).strip() not in ("", made.text.strip()):
        raise UsageError(f"there is no trainer in {folder}{_scripts(folder)}: {output} was not changed")
    typed = click.get_current_context().get_parameter_source("output") is not click.core.ParameterSource.DEFAULT
    write_text(output, made.text, below=None if typed else folder)
    errors, warnings = _findings(output) if found else ([], [])
    notes = [*made.notes, *errors, *warnings]
    result(format_, {"path": str(output), "trainer": str(found[0].path) if found else None, "notes": notes}, "")
    if not found:
        streams.note(
            f"wrote {output}, but there is no trainer in {folder} yet{_scripts(folder)}. Put one there, or name it with --trainer, and then:"
        )
        named = [] if output == Path(DEFAULT_NAME) else ["--output", output]
        streams.note(next_commands.line("init", "--force", *named))
        return
    streams.note(f"found {found[0].path}: a {found[0].kind}; python -m {found[0].module} starts it")
    others = list(dict.fromkeys(one.path for one in found[1:] if one.path != found[0].path))
    if others:
        streams.note(f"also found {', '.join(others[:5])}; to use another one, name it with --trainer")
    for note in notes:
        streams.note(f"note: {note}")
    streams.note(f"wrote {output}")
    _next(output, made, after_errors=bool(errors))


def _scripts(folder: Path) -> str:
    """Return the notebook of a folder, or its scripts that are not taken for trainers: they import no framework and read no flags."""
    notebooks = sorted(folder.glob("*.ipynb"))
    if notebooks:
        return f" (found the notebook {notebooks[0].name}: {script_of(Path(notebooks[0].name))})"
    names = sorted(path.name for path in folder.glob("*.py") if path.name != "setup.py")[:3]
    return f" (found {', '.join(names)}; to use it: --trainer {names[0]})" if names else ""


def _findings(output: Path) -> tuple[list[str], list[str]]:
    """Return the errors and the warnings that `check` finds in the file that was written, each with its jobs and sweeps."""
    found: dict[tuple[Severity, str], list[str]] = {}
    try:
        workspace = Workspace(config.load(output, env=""))
        for name in workspace.loaded.project.entries:
            for one in workspace.prepare(name).yaml_findings:
                # of flags that are missing, `init` says more
                if not one.id.startswith("argument-"):
                    text = f"{one.message}. To solve it: {one.fix}" if one.fix else one.message
                    found.setdefault((one.severity, text), []).append(name)
    except VertexrigError:
        return [], []  # `_next` says it
    errors, warnings = (
        [f"{', '.join(names)}: {text}" for (severity, text), names in found.items() if severity is wanted]
        for wanted in (Severity.ERROR, Severity.WARNING)
    )
    return errors, warnings


def _next(output: Path, made: Starter, *, after_errors: bool) -> None:
    """Print the next commands, if they work without a change, or after errors that were printed are solved."""
    if made.missing:
        flags = " and ".join(f"--{name}" for name in made.missing)
        streams.note(
            f"the trainer requires {flags}: write {'them' if len(made.missing) > 1 else 'it'} under args, then"
        )
    try:
        Workspace(config.load(output, env="")).renderer.render(starter.JOB)
    except VertexrigError as error:
        streams.note(f"the trainer cannot be packaged as it is: {error}")
        return
    file = [] if output == Path(DEFAULT_NAME) else ["--file", str(output)]
    streams.note("next, when these errors are solved:" if after_errors else "next:")
    streams.note(next_commands.line("render", starter.JOB, *file))
    streams.note(next_commands.line("check", *file))
    streams.note(next_commands.line("rehearse", starter.JOB, *file))
    if made.sweep:
        streams.note(next_commands.line("rehearse", starter.SWEEP, "--trials", TRIALS, *file))
