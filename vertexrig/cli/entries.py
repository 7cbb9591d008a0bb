"""Add entries, made from a job from elsewhere, to a project file, and show them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vertexrig.cli import next_commands, streams
from vertexrig.cli.output import result
from vertexrig.files import typed

if TYPE_CHECKING:
    from vertexrig.bring.pull import Pulled

into_option = click.option(
    "--into",
    type=click.Path(path_type=Path),
    help="Project file to add the entries to, which is created if needed; by default a new one is printed.",
)
as_option = click.option(
    "--as", "name", metavar="NAME", help="Name of the entry; by default made from the display name."
)


def project_text(into: Path | None) -> str:
    """Return the project file to add to; empty for a new one."""
    from vertexrig.bring import edit  # 90 ms

    return edit.read(into) if into is not None and into.exists() else ""


def show(made: Pulled, into: Path | None, format_: str) -> None:
    """Write or print the project file, and print what to type next.

    Args:
        made: The entries.
        into: The project file to write.
        format_: `text` or `json`.
    """
    from vertexrig.bring import edit

    if into is not None:
        edit.write(into, made.before, made.text, made.entries)
    data = {
        "name": made.name,
        "into": str(into) if into is not None else None,
        "entries": [{"group": one.group, "name": one.name, "keys": dict(one.data)} for one in made.entries],
        "notes": list(made.notes),
        "text": made.text,
    }
    result(format_, data, "" if into is not None else made.text.rstrip("\n"))
    for line in made.notes:
        streams.note(f"note: {line}")
    if into is not None:
        streams.note(f"added {' and '.join(one.name for one in made.entries)} to {into}; next:")
        streams.note(next_commands.line("check", made.name, "--file", typed(into)))
