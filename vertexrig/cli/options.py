"""Options that several verbs share, groups of options that a verb gets as one value, and the project that they name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from vertexrig import variables
from vertexrig.cli import next_commands, streams
from vertexrig.cli.arguments import complete_keys
from vertexrig.errors import UsageError
from vertexrig.project import config, environments
from vertexrig.spec.api_names import NAME
from vertexrig.text import quoted
from vertexrig.workspace import Workspace

F = TypeVar("F", bound=Callable[..., Any])


def option(*flags: str, **settings: Any) -> Any:
    """Return a dataclass field whose value comes from an option; flags and settings are those of `click.option`."""
    # `group` calls it with the field's name, which click.option takes as the parameter's name
    return field(metadata={"option": partial(click.option, *flags, **settings)})


def shared(decorator: Callable[[F], F]) -> Any:
    """Return a dataclass field whose value comes from an option that is declared elsewhere; `decorator` must add an option with the
    field's name.
    """
    return field(metadata={"option": lambda _: decorator})


def group(name: str, kind: type[Any]) -> Callable[[F], F]:
    """Return a decorator that adds all options of a dataclass to a verb, which gets them as one value, `name`.

    Under "option", each field's metadata has a function from the field's name to the decorator that adds its option (see `option`, `shared`).
    """

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


def _choose_environment(context: click.Context, _: click.Parameter, name: str | None) -> None:
    """Choose the environment of every project file that the command loads."""
    token = environments.chosen_env.set(name or "")
    context.call_on_close(lambda: environments.chosen_env.reset(token))


def _not_stdin(context: click.Context, _: click.Parameter, file: Path | None) -> Path | None:
    if str(file) == "-":
        raise click.UsageError(
            "--file - is not possible, because printed commands name the project file: write it to a file, and name that",
            context,
        )
    return file


def file_option(command: F) -> F:
    """Add `--file` and `--env` to a verb."""
    named = click.option(
        "--file",
        "file",
        type=click.Path(path_type=Path),
        callback=_not_stdin,
        help="Project file; by default vertexrig.yaml in this folder or above.",
    )
    env = click.option(
        "--env",
        metavar="NAME",
        expose_value=False,
        is_eager=True,
        callback=_choose_environment,
        # click reads no variable: `environments.selected` does, which also serves callers without a command line
        help=f"Environment of the project file.  [env var: {environments.VARIABLE}]",
    )
    return named(env(command))


def _allow_variables(context: click.Context, _: click.Parameter, names: str | None) -> None:
    """Limit the environment variables that project files may use until the command ends."""
    if names is not None:
        token = variables.allowed.set(frozenset(names.replace(",", " ").split()))
        context.call_on_close(lambda: variables.allowed.reset(token))


variables_option = click.option(
    "--variables",
    metavar="NAMES",
    expose_value=False,
    is_eager=True,
    callback=_allow_variables,
    show_default="all",
    help="Environment variables that ${NAME} in a project file may use, with commas between them; '' for none.",
)
poll_option = click.option(
    "--poll",
    type=Seconds(0.05, 3600),
    default=5.0,
    show_default=True,
    help="Seconds between requests for the job's state.",
)
resume_option = click.option(
    "--resume",
    default="",
    metavar="RUN_ID",
    help="Resume an earlier run of NAME, such as 20261121-171500-ab12, in its output folder.",
)
info_option = click.option("--info", is_flag=True, help="Show findings of severity info, too.")


def format_option(*names: str) -> Callable[[F], F]:
    """Return the option `--format` with the given names, the first of which is the default."""
    text = "Format of the result. With json, stdout is one JSON document, even if there is an error."
    return click.option("--format", "format_", type=click.Choice(names), default=names[0], show_default=True, help=text)


@dataclass(frozen=True)
class ProjectOptions:
    """The project that a command line names: its file, and the overrides of its keys."""

    # adds `--env`, too, whose value `config.load` takes from `environments.selected`
    file: Path | None = shared(file_option)
    overrides: tuple[str, ...] = option(
        "--set",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override a key of the job or sweep, such as machine_type, or with its full path any key of the project file. "
        "KEY- removes a key. args.NAME without =VALUE sets a flag without a value.",
        shell_complete=complete_keys,
    )

    def workspace(self, target: str | None = None) -> Workspace:
        """Return the workspace of the project.

        Args:
            target: The one job or sweep that the command names: `--set KEY=VALUE` may leave its path out. None if it names several.
        """
        loaded = config.load(self.file, overrides=self.overrides, target=target)
        return Workspace(loaded, program=next_commands.program())


@dataclass(frozen=True)
class WhereOptions:
    """Where to look for a started job: in which project, and whether only on this machine."""

    file: Path | None = shared(file_option)
    local: bool = option(
        "--local", is_flag=True, help="Use only the rehearsals on this machine, and do not ask Vertex AI."
    )


def project_if_any(file: Path | None) -> config.Loaded | None:
    """Return the project of a file, or of the project file in this folder or above; None if there is none."""
    found = find_project(file, note=True)
    return None if found is None else config.load(found)


def find_project(file: Path | None, *, note: bool = False) -> Path | None:
    """Return the given file, or the project file in this folder or above; None if there is none.

    Args:
        file: The file that was given, which need not exist.
        note: Print a note on stderr if a project file is there and is ignored: a link to elsewhere, or another user's.
    """
    if file is not None:
        return file
    try:
        return config.find(Path.cwd())
    except UsageError as error:
        if note and isinstance(error, config.ForeignProjectError):
            streams.note(error)
        return None


def workspace_of(file: Path | None) -> Workspace:
    """Return the workspace of a project file, for a verb without `--set`."""
    return Workspace(config.load(file), program=next_commands.program())


def is_file(target: str) -> bool:
    """Whether an argument is a file: `-`, a path, a name with a dot (which no job has), or a file that exists."""
    return target == "-" or any(char in target for char in "/\\.") or Path(target).is_file()


def entry_name(name: str | None) -> str | None:
    """Return the name given for a new job or sweep; UsageError if it is not a valid name."""
    if name is not None and not re.fullmatch(NAME.pattern, name):
        raise UsageError(f"--as {name}: {quoted(name)} is not {NAME.words}")
    return name


project_options = group("project", ProjectOptions)
where_options = group("where", WhereOptions)
