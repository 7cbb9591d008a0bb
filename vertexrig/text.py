"""How a value is shown to people."""

from __future__ import annotations

import io
import shlex
from datetime import date
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType


def clean(text: str) -> str:
    """Text that is safe to print: control characters, escape sequences and half surrogates become a replacement."""
    return "".join(char if char.isprintable() else " " if char in "\t\n\r" else "\ufffd" for char in text)


def shown(value: object, digits: int = 6) -> str:
    """A value as a table's cell: nothing for None, a fraction with so many digits, all else as it is."""
    return "" if value is None else f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def draw(renderable: RenderableType, *, width: int, color: bool = False) -> str:
    """What rich draws of a table or a text, as lines without trailing spaces; rich is loaded here only.

    Args:
        renderable: What to draw.
        width: Columns of the terminal.
        color: Use terminal colours.
    """
    from rich.console import Console

    console = Console(
        file=io.StringIO(), width=width, force_terminal=color, color_system="standard" if color else None,
        highlight=False, markup=False, legacy_windows=False,
    )  # fmt: skip
    with console.capture() as captured:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def command_line(*words: object, program: str = "vertexrig") -> str:
    """A command of this program as a line for a POSIX shell.

    Args:
        words: The verb and what follows it.
        program: How to type the program, as the shell takes it.
    """
    return f"{program} {shlex.join(str(word) for word in words)}"


def kind_of(value: Any) -> str:
    """What a plain value is, in words."""
    if value is None:
        return "nothing"
    names = {
        bool: "a boolean",
        int: "a whole number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a mapping",
    }
    return names.get(type(value), "text" if isinstance(value, str) else f"a {type(value).__name__}")


def quoted(value: Any) -> str:
    """A value as an error message shows it, cut to a line."""
    text = (
        "null"
        if value is None
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
        if isinstance(value, date)  # as YAML has it, not as Python does
        else repr(str(value) if isinstance(value, str) else value)
    )
    return text if len(text) <= 80 else text[:77] + "…"
