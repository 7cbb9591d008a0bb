"""Print a verb's result on stdout: as text, or as one JSON document that also has the error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from textwrap import indent
from typing import Any

import click

from vertexrig import variables
from vertexrig.cli import streams
from vertexrig.cli.problems import Failure
from vertexrig.errors import UsageError
from vertexrig.text import safe


@dataclass
class CommandOutput:
    """The one JSON document of a command, printed at its end.

    Args:
        wanted: Whether the command asked for JSON.
        data: The result so far.
        sent: Whether the document was printed already.
        streamed: The key of a list whose items are printed one by one, "" if there is none.
    """

    wanted: bool
    data: dict[str, Any] = field(default_factory=dict)
    sent: bool = False
    streamed: str = ""

    def stream(self, key: str, items: Sequence[Any]) -> None:
        """Print more items of the list that is the document's first key."""
        if items:
            text = ",\n".join(indent(json.dumps(item, indent=2), "    ") for item in variables.shown_result(items))
            say((",\n" if self.streamed else f'{{\n  "{key}": [\n') + text, nl=False)
            self.streamed = key

    def send(self, failure: Failure | None = None) -> None:
        """Print the document once, with the error if there is one."""
        # A verb without a result, such as the help of a group, prints no empty document.
        if self.sent or not (self.data or failure or self.streamed):
            return
        self.sent = True
        data = variables.shown_result(self.data)
        data = data if failure is None else {**data, "error": variables.shown_data(failure.data())}
        text = json.dumps(data, indent=2)
        if self.streamed:  # what is left of the document follows the list
            text = "\n  ]" + (f",{text.removeprefix('{')}" if data else "\n}")
        say(text)


MASKED_VERBS = frozenset({"check", "diff", "doctor", "explain", "report"})
"""Verbs whose results people read, so they show variable names. The results of other verbs are input for the next command and keep the
values."""


def wants_json(words: Sequence[str]) -> bool:
    """Whether a command line asks for JSON. Its words are searched, since it may not parse."""
    # words after `--` belong to another program, as in `local run -- prog --format json`
    own = list(words[: words.index("--")] if "--" in words else words)
    return "--format=json" in own or ("--format", "json") in pairwise(own)


def result(format_: str, data: Mapping[str, Any], text: str | Callable[[], str]) -> None:
    """Print the result of a verb as text, or add it to the JSON document."""
    if format_ == "json":
        document().data.update(data)
    else:
        shown = text() if callable(text) else text
        if shown:
            say(shown)


def progress(format_: str, line: str) -> bool:
    """Print a line about progress: on stdout, or on stderr if the result is JSON. Return False once the reader has closed the pipe."""
    if format_ == "json":
        streams.note(line)
        return True
    return say(line)


def document() -> CommandOutput:
    """Return the document of the command that runs."""
    context = click.get_current_context()
    found = context.find_object(CommandOutput)
    if found is None:  # a group that was not run through vertexrig.cli.run
        found = context.find_root().obj = CommandOutput(wanted=True)
        context.find_root().call_on_close(found.send)
    return found


def say(text: str | bytes, *, nl: bool = True, for_paste: bool = False) -> bool:
    """Print a result on stdout; return False if the reader has closed the pipe, which is not an error.

    Args:
        text: Text for a person; bytes are a document, which is written unchanged.
        nl: End it with a line break.
        for_paste: The text is used as it is, such as a patch: no value in it is shown by its variable's name.
    """
    color = streams.wants_color(sys.stdout, os.environ)
    if isinstance(text, str):
        text = safe(text if for_paste else variables.shown_result(text), painted=color)
    try:
        # the stream is named: by itself click writes UTF-8 where the locale asks for ASCII
        click.echo(text, file=sys.stdout, nl=nl, color=color)
    except BrokenPipeError:
        streams.drop_broken()
        return False
    except OSError as error:
        streams.drop_broken()  # or what is left in its buffer fails once more when Python exits
        raise UsageError(f"the result cannot be written to stdout: {error.strerror or error}") from None
    return True
