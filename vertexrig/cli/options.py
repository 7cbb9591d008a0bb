"""Options that several verbs share, groups of them that a verb gets as one value, and the workspace they name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from vertexrig import files
from vertexrig.cli import steps, streams
from vertexrig.cli.arguments import complete_keys
from vertexrig.errors import UsageError
from vertexrig.project import config
from vertexrig.project.model import NAME
from vertexrig.text import quoted
from vertexrig.workspace import Workspace

F = TypeVar("F", bound=Callable[..., Any])


def option(*flags: str, **settings: Any) -> Any:
    """Return the field of a group that an option fills; flags and settings are those of `click.option`.

    `group` calls what is kept here with the field's name, by which click names the parameter.
    """
    return field(metadata={"option": partial(click.option, *flags, **settings)})


def shared(decorator: Callable[[F], F]) -> Any:
    """Return the field of a group that an option of its name fills, which is declared elsewhere."""
    return field(metadata={"option": lambda _: decorator})


def group(name: str, kind: type[Any]) -> Callable[[F], F]:
    """Return a decorator that gives a verb all options of a dataclass; its function gets them as one value, `name`."""

    def decorate(command: F) -> F:
        @wraps(command)
        def gathering(*args: Any, **values: Any) -> Any:
            own = kind(**{one.name: values.pop(one.name) for one in fields(kind)})
            return command(*args, **values, **{name: own})

        decorated: Callable[..., Any] = gathering
        for one in reversed(fields(kind)):
            decorated = one.metadata["option"](one.name)(decorated)
        return cast(F, decorated)

    return decorate


class Integer(click.IntRange):
    """A whole number; messages call it an integer."""

    name = "integer"


class Seconds(click.FloatRange):
    """A number of seconds, as `30` or `30s`; NaN and infinity, which float() accepts, are refused."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        # The service and gcloud write durations as 30s; a default of the option comes as a number.
        value = value.removesuffix("s") if isinstance(value, str) else value
        number = float(super().convert(value, param, ctx))
        # The range does not refuse NaN: every comparison with it is false.
        if not math.isfinite(number):
            self.fail(f"{value} is not a number of seconds.", param, ctx)
        return number


def _raise_limit(context: click.Context, _: click.Parameter, mib: float | None) -> None:
    """Let larger files be read until the command ends."""
    if mib is not None:
        token = files.largest.set(int(mib * files.MIB))
        context.call_on_close(lambda: files.largest.reset(token))


def file_option(command: F) -> F:
    """`--file`, and the size that it and other files may have."""
    size = click.option(
        "--max-file-size",
        type=click.FloatRange(min=0, min_open=True, max=1024),
        metavar="MIB",
        expose_value=False,
        # click runs eager options first: the limit holds before any other option reads a file, wherever it is typed.
        is_eager=True,
        callback=_raise_limit,
        show_default="2",
        help="Largest file to read, in MiB.",
    )
    named = click.option(
        "--file",
        "file",
        type=click.Path(path_type=Path),
        help="Project file; by default vertexrig.yaml here or in a folder above.",
    )
    return named(size(command))


poll_option = click.option(
    "--poll", type=Seconds(0.05, 3600), default=5.0, show_default=True, help="Seconds between requests for its state."
)
resume_option = click.option(
    "--resume",
    default="",
    metavar="RUN",
    help="Go on with an earlier run of NAME, such as 20261121-171500-ab12: write into its output folder.",
)
info_option = click.option("--info", is_flag=True, help="Show findings of severity info, too.")


def format_option(*names: str) -> Callable[[F], F]:
    """`--format`, with the given names; the first is the default."""
    text = "How to print the result; json is one document, also for an error."
    return click.option("--format", "format_", type=click.Choice(names), default=names[0], show_default=True, help=text)


@dataclass(frozen=True)
class ProjectOptions:
    """A project as a command line has it: its file, what is set in it, and its templates."""

    file: Path | None = shared(file_option)
    overrides: tuple[str, ...] = option(
        "--set",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override a key of the job or sweep, or, with its whole path, any key of the project file. KEY- removes it; "
        "args.NAME alone is a flag without a value.",
        shell_complete=complete_keys,
    )
    templates: Path | None = option(
        "--templates",
        type=click.Path(path_type=Path),
        help="Folder of templates; each replaces the built-in one of the same name.",
    )

    def workspace(self, target: str | None = None) -> Workspace:
        """Return the project; `target` is the job or sweep that the overrides are for."""
        loaded = config.load(self.file, overrides=self.overrides, target=target)
        return Workspace(loaded, templates=self.templates, program=steps.program())


@dataclass(frozen=True)
class WhereOptions:
    """Where to look for a job that was started: of which project, and whether on this machine only."""

    file: Path | None = shared(file_option)
    local: bool = option(
        "--local", is_flag=True, help="Look at the rehearsals of this machine only, without asking Vertex AI."
    )


def project_if_any(file: Path | None) -> config.Loaded | None:
    """Return the project of a file, or of the one here or in a folder above; None where there is none."""
    return config.load(file) if file is not None or has_project(note=True) else None


def has_project(*, note: bool = False) -> bool:
    """Whether a project file is here or in a folder above.

    Args:
        note: Say so on stderr where one is there that is not read, since it is somebody else's.
    """
    try:
        config.find(Path.cwd())
    except UsageError as error:
        if note and isinstance(error, config.ForeignProjectError):
            streams.note(error)
        return False
    return True


def workspace_of(file: Path | None) -> Workspace:
    """Return the project of a file as it stands, for a verb without `--set`."""
    return Workspace(config.load(file), program=steps.program())


def is_file(target: str) -> bool:
    """Return True for `-`, a path, a name with a dot, which no job has, and the name of a file that exists."""
    return target == "-" or any(char in target for char in "/\\.") or Path(target).is_file()


def entry_name(name: str | None) -> str | None:
    """Return the name of a new job or sweep, as it was given; UsageError if it is not one."""
    if name is not None and not re.fullmatch(NAME[0], name):
        raise UsageError(f"--as {name}: {quoted(name)} is not {NAME[1]}")
    return name


project_options = group("project", ProjectOptions)
where_options = group("where", WhereOptions)
