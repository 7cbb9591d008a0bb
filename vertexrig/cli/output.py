"""What a verb prints on stdout: its result as text, or one JSON document that also has the error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import click

from vertexrig.cli import streams
from vertexrig.cli.problems import Failure
from vertexrig.errors import UsageError


@dataclass
class CommandOutput:
    """The one JSON document of a command, printed at its end.

    Args:
        wanted: Whether the command asked for JSON.
        data: The result, as far as it is known.
        sent: Whether it has been printed already, by a verb that goes on afterwards.
    """

    wanted: bool
    data: dict[str, Any] = field(default_factory=dict)
    sent: bool = False

    def send(self, problem: Failure | None = None) -> None:
        """Print it, with the error if there is one; only once."""
        # A verb without a result, such as the help of a group, prints no empty document.
        if self.sent or not (self.data or problem):
            return
        self.sent = True
        data = self.data if problem is None else {**self.data, "error": problem.data()}
        say(json.dumps(data, indent=2))


def wants_json(words: Sequence[str]) -> bool:
    """Whether a command line asks for JSON: read from its words, since it may not parse."""
    # What follows `--` is the words of another program, as in `local run -- prog --format json`.
    own = list(words[: words.index("--")] if "--" in words else words)
    return "--format=json" in own or ("--format", "json") in pairwise(own)


def result(format_: str, data: Mapping[str, Any], text: str | Callable[[], str]) -> None:
    """The result of a verb, in the format asked for."""
    if format_ == "json":
        document().data.update(data)
    else:
        shown = text() if callable(text) else text
        if shown:
            say(shown)


def progress(format_: str, line: str) -> bool:
    """A line about progress: on stdout with text, on stderr beside a JSON document.

    False once nobody reads it any more.
    """
    if format_ == "json":
        print(line, file=sys.stderr)
        return True
    return say(line)


def document() -> CommandOutput:
    """The document of the command that runs."""
    context = click.get_current_context()
    found = context.find_object(CommandOutput)
    if found is None:  # a group that was not run through vertexrig.cli.run
        found = context.find_root().obj = CommandOutput(wanted=True)
        context.find_root().call_on_close(found.send)
    return found


def say(text: str | bytes, *, nl: bool = True) -> bool:
    """Print a result on stdout; False if its reader has gone. That is not an error: the verb ends with its usual code."""
    try:
        # the stream is named: by itself click writes UTF-8 where the locale asks for ASCII
        click.echo(text, file=sys.stdout, nl=nl, color=streams.wants_color(sys.stdout, os.environ))
    except BrokenPipeError:
        streams.drop_broken()
        return False
    except OSError as error:
        raise UsageError(f"the result cannot be written to stdout: {error.strerror or error}") from None
    return True
