"""The trainer's command line as a whole: its sub-commands, its form, and whether it could be read."""

from __future__ import annotations

from collections.abc import Iterator

from vertexrig.checks._arguments import passed
from vertexrig.checks.model import ARGPARSE, Problem, Rule
from vertexrig.checks.trainer import of_trainer
from vertexrig.errors import nearest
from vertexrig.finding import Severity
from vertexrig.spec.document import Document, Pool
from vertexrig.trainer_source.trainer_model import TrainerSource

_HYDRA = ("--cfg", "--package", "--config-path", "--config-name", "--config-dir", "--experimental-rerun", "--info")
"""Options of Hydra itself that take a value; argparse takes them shortened."""


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
def hydra_override(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    for defect in (one for one in trainer.defects if one.kind == "left-out" and pools[0].container is None):
        message = f"{defect.file}:{defect.line}: Hydra reads the folder {defect.text!r}, which is not packed with a module of no package"
        fix = (
            "put the module and the folder into a package, a folder with an __init__.py, and name that as trainer.path"
        )
        yield Problem(pools[0].program_path, message, fix, Severity.WARNING)
    if trainer.parsers != {"hydra"}:
        return
    for item in (item for pool in pools for item in passed(pool, trainer)):
        if item.joined and not any(option.startswith(item.name) for option in _HYDRA):
            override = f"{item.name.lstrip('-')}={item.value}"
            message = f"Hydra refuses {item.name}={item.value}: its overrides have no dashes"
            yield Problem(item.path, message, f"write {override}", key_fix=f"make args a list with {override} in it")
    for parameter in document.parameters:
        message = f"a trial is given --{parameter.id}=VALUE, which Hydra refuses: its overrides have no dashes"
        fix = 'begin the trainer with sys.argv[1:] = [word.removeprefix("--") for word in sys.argv[1:]]'
        yield Problem(f"{parameter.path}.parameterId", message, fix)


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
    Rule("hydra-override", Severity.ERROR, "Hydra is given NAME=VALUE, without dashes, and finds its folder.",
         "hydra-core 1.3.8, run 2026-11-22", hydra_override),
    Rule("flags-unread", Severity.INFO, "The trainer's flags can be read from its source.", ARGPARSE, flags_read),
)  # fmt: skip
