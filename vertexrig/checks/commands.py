"""The trainer's command line as a whole: its sub-commands, and whether it could be read."""

from __future__ import annotations

from collections.abc import Iterator

from vertexrig.checks.model import Problem, Rule
from vertexrig.checks.sources import ARGPARSE
from vertexrig.checks.trainer import of_trainer
from vertexrig.errors import nearest
from vertexrig.finding import Severity
from vertexrig.package.source.model import TrainerSource
from vertexrig.spec.document import Document, Pool


@of_trainer
def command_known(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    if trainer.problems:
        return
    path = f"{pools[0].program_path}.args"
    shown = ", ".join(dict.fromkeys(command.split()[-1] for command in trainer.commands))
    if trainer.command_unknown:
        best = nearest(trainer.command_unknown, trainer.commands)
        message = f"the trainer has no sub-command {trainer.command_unknown!r}; it has {shown}"
        yield Problem(path, message, f"write {best}" if best else "use one of those")
    # the argument that names the command may be one of those that could not be read
    elif trainer.commands and trainer.command_required and not trainer.command and trainer.flags_complete:
        yield Problem(path, f"the trainer needs a sub-command: {shown}", "write it first in args")


@of_trainer
def flags_read(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    if not trainer.flags_unread or trainer.problems or trainer.command_unknown:
        return
    first = trainer.flags_unread[0]
    more = f", and {len(trainer.flags_unread) - 1} more like it" if len(trainer.flags_unread) > 1 else ""
    place = f"{first.file}:{first.line}: " if first.line else ""
    message = f"the trainer's flags are not all known ({place}{first.message}{more}): arguments that it may not take are not found"
    yield Problem(pools[0].program_path, message, "rehearse the job: the trainer itself says what it takes")


RULES: tuple[Rule, ...] = (
    Rule("sub-command", Severity.ERROR, "The sub-command in args is one of the trainer's.", ARGPARSE, command_known),
    Rule("flags-unread", Severity.INFO, "The trainer's flags can be read from its source.", ARGPARSE, flags_read),
)
