"""Makes the manual page, `vertexrig.1`, from the help of every verb: `python -m tools.man FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from vertexrig import __version__
from vertexrig.cli import vertexrig


def page(root: click.Group, name: str) -> str:
    """Return the page in roff's man macros."""
    ctx = click.Context(root, info_name=name, **root.context_settings)
    parts = [
        f'.TH {name.upper()} 1 "" "{name} {__version__}"',
        f".SH NAME\n{name} \\- {_text(root.help)}",
        f".SH SYNOPSIS\n.B {name}\n{_text(' '.join(root.collect_usage_pieces(ctx)))}",
        ".SH OPTIONS",
        *_options(root, ctx),
        ".SH COMMANDS",
        *_commands(root, ctx),
        f".SH EXIT STATUS\n.nf\n{_text(root.epilog)}\n.fi",
    ]
    return "\n".join(parts) + "\n"


def _commands(group: click.Group, ctx: click.Context) -> Iterator[str]:
    """Give a section for each verb, those of groups after the group's own."""
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None and ctx.command_path  # the group has just named it
        inner = click.Context(command, info_name=name, parent=ctx, **command.context_settings)
        yield f".SS {_text(inner.command_path)} {_text(' '.join(command.collect_usage_pieces(inner)))}"
        yield _text(command.help)
        yield from _options(command, inner)
        if isinstance(command, click.Group):
            yield from _commands(command, inner)


def _options(command: click.Command, ctx: click.Context) -> Iterator[str]:
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if isinstance(param, click.Option) and record is not None and "--help" not in param.opts:
            yield f".TP\n.B {_text(record[0])}\n{_text(record[1])}"


def _text(text: str | None) -> str:
    r"""Return a text as one that roff prints: `\` and what begins a request are escaped, `\b` marks of click go."""
    lines = (text or "").partition("\f")[0].replace("\b\n", "").replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in map(str.strip, lines))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vertexrig.1").write_text(page(vertexrig, "vertexrig"), encoding="utf-8")
