"""Complete names and keys in a shell; explain a missing NAME, and options that are gcloud's or unknown."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from vertexrig.errors import UsageError, VertexrigError

RUNNABLE = ("jobs", "sweeps")
_MOST = 30


def complete_names(ctx: click.Context, incomplete: str, among: tuple[str, ...] = RUNNABLE) -> list[str]:
    """Return the names of the project file that a shell proposes; none if the file cannot be read."""
    from vertexrig.project import config

    try:
        project = config.load(ctx.params.get("file")).project
    except VertexrigError:
        return []
    return [name for group in among for name in getattr(project, group) if name.startswith(incomplete)]


def complete_keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the keys of jobs and sweeps that a shell proposes for --set, or after `machine_type=` the machine types."""
    from vertexrig import catalog
    from vertexrig.project import keys

    key, given, _ = incomplete.partition("=")
    if given:
        values = {"machine_type": catalog.load().machines, "accelerator_type": catalog.load().accelerators}
        found = [f"{key}={value}" for value in values.get(key.rpartition(".")[2], ())]
    else:
        found = [
            f"{name}=" for row in keys.rows() for group, _, name in [row[0].partition(".")] if group in ("Job", "Sweep")
        ]
    return [one for one in dict.fromkeys(found) if one.startswith(incomplete)]


class NameArgument(click.Argument):
    """An argument that names something in the project file; if it is missing, the error lists the names.

    Args:
        decls: As for `click.Argument`.
        among: Sections of the project file.
        settings: As for `click.Argument`.
    """

    def __init__(self, decls: Iterable[str], *, among: tuple[str, ...] = RUNNABLE, **settings: Any) -> None:
        settings["shell_complete"] = lambda ctx, param, text: complete_names(ctx, text, among)
        super().__init__(list(decls), **settings)
        self.among = among

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            names = super().process_value(ctx, value)
        except click.MissingParameter as error:
            raise click.UsageError(f"{error.format_message()} {_choices(ctx, self.among)}".rstrip(), ctx) from None
        # A name that is given twice counts once.
        return tuple(dict.fromkeys(names)) if isinstance(names, tuple) else names


def _choices(ctx: click.Context, among: tuple[str, ...]) -> str:
    """Return a sentence with the names in the project file, or why there are none; "" if the file is wrong."""
    from vertexrig.project import config  # 80 ms

    try:
        project = config.load(ctx.params.get("file")).project
    except UsageError as error:
        return f"And {error}"
    except VertexrigError:
        return ""
    names = [name for section in among for name in getattr(project, section)]
    if not names:
        return f"The project file has no {' or '.join(among)}."
    more = f", … ({len(names)} in all)" if len(names) > _MOST else ""
    return f"Choices: {', '.join(names[:_MOST])}{more}."


_USUAL = {
    "config": "name a job of the project file. `vertexrig check FILE` checks a file for gcloud, `vertexrig convert FILE` turns it into entries",
    "f": "write --file for the project file",
}
_OF_VERBS = ("--file", "--set", "--format", "--info", "--local")
# options of gcloud that have another name in the project file
_GCLOUD = {
    "kms_key": "kms_key_name",
    "command": "container",
    "python_package_uris": "package_uris",
}
_SHORT = {"md": "markdown", "txt": "text", "plain": "text"}
_POOL_SPEC = (
    "Its parts are keys of a job of the project file: machine_type, replica_count, accelerator_type, accelerator_count"
)


def _format(command: click.Command | None, name: str) -> str:
    """Return the value of `--format` that an option was meant as, "" if the verb has no such format."""
    for param in command.params if command is not None else ():
        if "--format" in param.opts and isinstance(param.type, click.Choice):
            return next((one for one in (name, _SHORT.get(name, "")) if one in param.type.choices), "")
    return ""


def misspelt(error: click.NoSuchOption) -> str:
    """Return the message for an option that a verb does not have; for an option of gcloud it names the key of the project file."""
    from vertexrig.project.model import Job, Project, Sweep
    from vertexrig.schema import typed

    option, command = error.option_name, error.ctx.command if error.ctx is not None else None
    if isinstance(command, click.Group) and option in _OF_VERBS:
        return f"No such option {option!r} before the COMMAND: write it after the COMMAND"
    name = option.lstrip("-").replace("-", "_")
    known = {*typed.keys(Project), *typed.keys(Sweep), *typed.keys(Job)}
    if name == "worker_pool_spec":
        return f"No such option {option!r}. {_POOL_SPEC}"
    found = _format(command, name)
    if found:
        return f"No such option {option!r}: write --format {found}"
    if name in _USUAL:
        return f"No such option {option!r}: {_USUAL[name]}"
    key = _GCLOUD.get(name, name)
    sets = command is not None and any("--set" in param.opts for param in command.params)
    if key not in known and sets and option.startswith("--") and not error.possibilities:
        return f"No such option {option!r}. For an argument of the trainer, write --set args.{option.lstrip('-')}=VALUE"
    if key not in known or not option.startswith("--"):
        return error.format_message()
    mapped = {"args": "args.NAME", "labels": "labels.NAME"}.get(key, key)
    here = f", or write --set {mapped}=VALUE for this call" if sets else ""
    return f"No such option {option!r}. Set the key {key} in the project file{here}"
