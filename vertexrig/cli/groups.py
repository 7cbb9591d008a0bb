"""Groups of verbs, which are listed in the order written; a misspelt verb is answered with the nearest one."""

from __future__ import annotations

from collections.abc import Mapping

import click

from vertexrig.errors import did_you_mean


class Group(click.Group):
    """A group of commands.

    `others` maps names of commands in other tools (gcloud, docker, make) to the commands here that do the same.
    """

    others: Mapping[str, tuple[str, ...]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # click (8.5.1) suggests from `self.commands`, which is empty if commands are imported when they are used. It
        # explains an unknown option, which begins with a dash, itself.
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            names = self.list_commands(ctx)
            meant = " or ".join(repr(name) for name in self.others.get(args[0], ()))
            if meant:
                raise click.UsageError(f"there is no command {args[0]!r}. Did you mean {meant}?", ctx)
            raise click.UsageError(f"there is no command {args[0]!r}. {did_you_mean(args[0], names, most=30)}", ctx)
        return super().resolve_command(ctx, args)
