"""stdout and stderr of a command: closed streams, encodings that lack characters, colour, and the terminal's width.

Colour follows NO_COLOR, FORCE_COLOR, CLICOLOR_FORCE and TERM=dumb (https://no-color.org, https://force-color.org,
https://bixense.com/clicolors, all read 2026-11-21).
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import shutil
import sys
from collections.abc import Mapping
from typing import TextIO

from vertexrig import variables
from vertexrig.text import safe

_PLAIN = str.maketrans(
    {
        "…": "...", "×": "x", "→": "->", "–": "-", "—": "-", "·": "*", "≤": "<=", "≥": ">=", "’": "'",
        "─": "-", "│": "|", "\N{NO-BREAK SPACE}": " ", **dict.fromkeys("┌┐└┘├┤┬┴┼", "+"),
    }
)  # fmt: skip
_REPLACER = "vertexrig.plain"


def prepare() -> None:
    """Make stdin, stdout and stderr safe to use: open closed ones, and replace characters that they cannot encode.

    A closed stream is opened on the null device under its own number, or the next file opened would take its place.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            _occupy(number)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    codecs.register_error(_REPLACER, _replaced)
    encoding = "ascii" if _wants_ascii(os.environ) else None
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=encoding or stream.encoding, errors=_REPLACER)


def note(*words: object, for_paste: bool = False) -> None:
    """Write a message for a person to stderr: the words, with blanks between them. `for_paste` as for `tell`."""
    tell(" ".join(map(str, words)), for_paste=for_paste)


def tell(text: str, *, nl: bool = True, for_paste: bool = False) -> None:
    """Write text to stderr, with its colours if they are wanted, and without any other control codes.

    Args:
        text: Lines; they may have colours.
        nl: End it with a line break.
        for_paste: The text is commands to paste: no value in it is shown by its variable's name.

    Raises:
        BrokenPipeError: The reader has closed the pipe.
    """
    print(
        safe(text if for_paste else variables.shown(text), painted=wants_color(sys.stderr, os.environ)),
        end="\n" if nl else "",
        file=sys.stderr,
    )


def _occupy(number: int) -> None:
    # open() takes the lowest free number, which is the closed stream's only if those below it are open.
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != number:
        os.dup2(opened, number)  # inheritable
        os.close(opened)
    else:
        os.set_inheritable(number, True)  # programs that this one starts have the stream, too


def _wants_ascii(environment: Mapping[str, str]) -> bool:
    """Whether LC_ALL=C asks for ASCII; by default Python writes UTF-8 then (PEP 540)."""
    # PYTHONIOENCODING and PYTHONUTF8 were set explicitly, and come first
    return environment.get("LC_ALL") in ("C", "POSIX") and not (
        environment.get("PYTHONIOENCODING") or environment.get("PYTHONUTF8")
    )


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    # every encoding has ASCII, and `\u4e2d` says more than `?`
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end


def drop_broken() -> None:
    """Redirect streams whose reader has closed the pipe to the null device, so that later writes do not fail."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError):  # a stream without a file number
                _occupy(stream.fileno())


def wants_color(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether to colour the output on `stream`: on a terminal, or if it is asked for; NO_COLOR comes first."""
    if environment.get("NO_COLOR"):
        return False
    # CLICOLOR_FORCE=0 is off by its convention, and FORCE_COLOR=0 is read in the same way.
    if any(environment.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return environment.get("TERM") != "dumb" and stream.isatty()


def columns(stream: TextIO) -> int | None:
    """Return the columns of the terminal behind `stream`; None for a file or a pipe."""
    return shutil.get_terminal_size().columns if stream.isatty() else None
