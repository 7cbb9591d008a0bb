"""Names and options as they are typed: what to write where a NAME is missing, or an option of gcloud's is given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from vertexrig.errors import UsageError, VertexrigError

RUNNABLE = ("jobs", "sweeps")
_MOST = 30


class NameArgument(click.Argument):
    """An argument that names something in the project file; where it is missing, the error lists what there is.

    Args:
        decls: As for `click.Argument`.
        among: Sections of the project file.
        settings: As for `click.Argument`.
    """

    def __init__(self, decls: Iterable[str], *, among: tuple[str, ...] = RUNNABLE, **settings: Any) -> None:
        super().__init__(list(decls), **settings)
        self.among = among

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().process_value(ctx, value)
        except click.MissingParameter as error:
            raise click.UsageError(f"{error.format_message()} {_choices(ctx, self.among)}".rstrip(), ctx) from None


def _choices(ctx: click.Context, among: tuple[str, ...]) -> str:
    """The names in the project file; why there are none if there is no such file, nothing if it is wrong."""
    from vertexrig.project import config

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
    "json": "write --format json",
    "config": "jobs are given by NAME; `vertexrig check FILE` checks a file for gcloud, `vertexrig convert FILE` makes entries of it",
    "f": "write --file for the project file",
}
_OF_VERBS = ("--file", "--set", "--format", "--templates", "--info", "--max-file-size", "--local")
# gcloud's options that have another name in the project file, or another place
_GCLOUD = {
    "kms_key": "kms_key_name",
    "command": "container",
    "python_package_uris": "package_uris",
}
_POOL_SPEC = (
    "Its parts are keys of a job of the project file: machine_type, replica_count, accelerator_type, accelerator_count"
)


def misspelt(error: click.NoSuchOption) -> str:
    """The message about an option that a verb does not have; one of gcloud's is a key of the project file here."""
    from vertexrig.catalog import typed
    from vertexrig.project.model import Job, Project, Sweep

    option, command = error.option_name, error.ctx.command if error.ctx is not None else None
    if isinstance(command, click.Group) and option in _OF_VERBS:
        return f"No such option {option!r} here: write it after the COMMAND"
    name = option.lstrip("-").replace("-", "_")
    known = {**typed.hints(Project), **typed.hints(Sweep), **typed.hints(Job)}
    if name == "worker_pool_spec":
        return f"No such option {option!r}. {_POOL_SPEC}"
    if name in _USUAL:
        return f"No such option {option!r}: {_USUAL[name]}"
    key = _GCLOUD.get(name, name)
    sets = command is not None and any("--set" in param.opts for param in command.params)
    if key not in known and sets and option.startswith("--") and not error.possibilities:
        return f"No such option {option!r}. If it is an argument of the trainer: --set args.{option.lstrip('-')}=VALUE"
    if key not in known or not option.startswith("--"):
        return error.format_message()
    mapped = {"args": "args.NAME", "labels": "labels.NAME"}.get(key, key)
    here = f"; for this call: --set {mapped}=VALUE" if sets else ""
    return f"No such option {option!r}. It is the key {key} of the project file{here}"
