"""How a value is shown to people, and how foreign text is escaped: one function for each form of output.

`clean` and `safe` are for a terminal, `markdown`, `code` and `fenced` for Markdown, `markup` for HTML and XML, `command` for GitHub's workflow
commands, `sarif` for messages of SARIF.
"""

from __future__ import annotations

import html
import io
import re
import shlex
from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Any

from vertexrig import variables

if TYPE_CHECKING:
    from rich.console import RenderableType


_PAINT = re.compile(r"(\x1b\[[0-79;]*m)")
"""Colours that this program writes; code 8 would hide the text after it."""


def clean(text: str) -> str:
    """Return foreign text as one safe line: spaces for line breaks, replacements for characters that control a terminal or reverse text."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char.isspace() else "\ufffd" for char in text)


def safe(text: str, *, painted: bool = False) -> str:
    """Return lines that are safe on a terminal: each as `clean` returns it, but with tabs, and with colours if `painted`."""
    parts = _PAINT.split(text) if painted else [text]
    for place in range(0, len(parts), 2):  # between them are the colours
        lines = re.split(r"\r?\n", parts[place])
        parts[place] = "\n".join("\t".join(map(clean, line.split("\t"))) for line in lines)
    return "".join(parts)


_ACTIVE = re.compile(
    r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])|(?<=\s)#|^>|^[#+=-](?=[\s#+=-]|$)|(?P<number>^[0-9]{1,9})(?=[.)](?:\s|$))"
    r"|(?P<html><|&(?=#?\w+;))|(?<!\w)(?P<user>@)"
)
"""Characters that Markdown gives a meaning to; one `_`, a `#` or an `@` inside a word has none."""


def markdown(text: str) -> str:
    """Return foreign text for a line or a cell of Markdown, where it is plain text and notifies nobody."""

    def plain(match: re.Match[str]) -> str:
        if match["number"]:
            return f"&#{ord(match[0][0])};{match[0][1:]}"  # no list
        if match["html"]:
            return html.escape(match["html"])
        return "@&#8203;" if match["user"] else f"\\{match[0]}"

    return _ACTIVE.sub(plain, clean(text).strip())


def code(text: str) -> str:
    """Return foreign text for a line of Markdown, as code."""
    text = clean(text).strip()
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{fence} {text} {fence}" if len(fence) > 1 else f"`{text}`" if text else ""


def fenced(text: str, language: str = "") -> str:
    """Return lines of foreign text as a block of code in Markdown."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)
    return f"{fence}{language}\n{safe(text)}\n{fence}"


def markup(text: str) -> str:
    """Return foreign text for an element or a quoted attribute of HTML and XML, on one line."""
    return html.escape(clean(text))


def command(text: str, *, inside: bool = False) -> str:
    """Return foreign text for a workflow command of GitHub; in its properties (`inside`) colons and commas are escaped, too."""
    for char in "%\r\n" + (":," if inside else ""):
        text = text.replace(char, f"%{ord(char):02X}")
    return clean(text)


def sarif(text: str) -> str:
    """Return foreign text for a message of SARIF, where `[text](address)` would be a link."""
    return re.sub(r"\[(?=[^\]]*\]\()", r"\\[", clean(text))


def shown(value: object, digits: int = 6) -> str:
    """Return a value as a table's cell: "" for None, a fraction with this many digits, anything else as text."""
    return "" if value is None else f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def draw(renderable: RenderableType, *, width: int, color: bool = False) -> str:
    """Return a table or a text as rich draws it, in lines without trailing spaces; rich is loaded here only."""
    from rich.console import Console  # 33 ms, which a command without a table saves

    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        legacy_windows=False,
    )
    with console.capture() as captured:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def command_line(*words: object, program: str = "vertexrig", environ: Mapping[str, str] | None = None) -> str:
    """Return a command of this program, typed as `program`, as a line for a POSIX shell; it sets the variables of `environ`."""
    sets = "".join(f"{name}={shlex.quote(value)} " for name, value in (environ or {}).items())
    return f"{sets}{program} {shlex.join(str(word) for word in words)}"


def is_flag(word: str) -> bool:
    """Whether argparse takes a word of a command line for a flag: a number is a value, and so is a word with a blank in its name."""
    named = word.startswith("-") and len(word) > 1 and " " not in word.partition("=")[0]
    return named and not re.fullmatch(r"-([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?", word)


def is_shell(word: str) -> bool:
    """Whether a command's first word starts a shell: `bash`, `/bin/sh`."""
    return re.fullmatch(r"(?:.*/)?(?:ba|da|z|a|k)?sh", word) is not None


def kind_of(value: Any) -> str:
    """Return the type of a plain value in words."""
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
    """Return a value as an error message shows it, cut to a line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date):
        return str(value)  # as YAML has it, not as Python does
    text = repr(variables.shown(str(value)) if isinstance(value, str) else variables.shown_data(value))
    return text if len(text) <= 80 else text[:77] + "…"
