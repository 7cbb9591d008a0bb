"""What a Dockerfile says of the program against the job: whether args reach it, and whether --trainer applies."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vertexrig.checks.model import CONTAINER_SETTINGS, Context, Problem, Rule, join
from vertexrig.checks.trainer import of_trainer
from vertexrig.finding import Severity
from vertexrig.spec.document import Document, Pool
from vertexrig.trainer_source import started_program
from vertexrig.trainer_source.trainer_model import TrainerSource

_SHELL = r"(?:.*/)?(?:ba|da|z|a)?sh"
_DOCKER = "Dockerfile reference, ENTRYPOINT (moby/buildkit, frontend/dockerfile/docs/reference.md, read 2026-11-21)"


def _given(document: Document, pool: Pool) -> str:
    """Return what the job passes to a pool's program, in words; empty if it passes nothing."""
    if pool.args:
        return f"args ({pool.args[0][:60]}{', …' if len(pool.args) > 1 else ''})"
    return "the study's parameters" if (document.study or {}).get("parameters") else ""


def _given_args(document: Document, pools: list[Pool]) -> tuple[Pool, str] | None:
    """Return the first pool whose image chooses the program, and what the job passes to it; None if there is neither."""
    # with a command in the spec the image's ENTRYPOINT and CMD do not count
    pool = next((pool for pool in pools if pool.container is not None and not pool.container.get("command")), None)
    given = _given(document, pool) if pool is not None else ""
    return (pool, given) if pool is not None and given else None


def trainer_unused(document: Document, context: Context) -> Iterator[Problem]:
    if context.trainer_unused:
        pool = next((pool for pool in document.pools if not pool.empty), None)
        path = pool.program_path if pool is not None else f"{document.job_path}workerPoolSpecs"
        fix = "name the folder with the image's Dockerfile, write command: [python, -m, MODULE], or leave --trainer out"
        yield Problem(path, f"--trainer cannot be held against this: {context.trainer_unused}", fix)


@of_trainer
def entrypoint_shell(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    place, found = trainer.drops_args, _given_args(document, pools)
    if place is None or found is None:
        return
    pool, given = found
    message = f"{place.file}:{place.line}: ENTRYPOINT is in shell form, which starts the program without {given}"
    yield Problem(f"{pool.program_path}.args", message, 'write it as ENTRYPOINT ["python", "-m", "trainer.task"]')


@of_trainer
def args_replace_cmd(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    place, found = trainer.args_replace, _given_args(document, pools)
    if place is None or found is None:
        return
    pool, given = found
    if not pool.args or pool.args[0].startswith("-"):  # a program named first in args is meant to replace the CMD
        message = (
            f"{place.file}:{place.line}: the image has a CMD and no ENTRYPOINT (nor has {place.text}), so {given} "
            "would take the place of the program"
        )
        yield Problem(f"{pool.program_path}.args", message, "make the CMD an ENTRYPOINT, or give the job a command")


def command_words(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        command = [str(word) for word in (pool.container or {}).get("command", ())]
        words = command[0].split() if command else []
        if len(words) > 1 and (started_program.find(words) is not None or re.fullmatch(_SHELL, words[0])):
            message = f"{command[0][:80]!r} is one word for the container: there is no program of that name"
            fix = f"write command: [{', '.join(words)}]"
            yield Problem(f"{pool.program_path}.command", message, fix)


RULES: tuple[Rule, ...] = (
    Rule("command-words", Severity.ERROR, "A command is a list of words.", join(_DOCKER, CONTAINER_SETTINGS), command_words),
    Rule("trainer-unused", Severity.ERROR, "The trainer named with --trainer is what the job runs.",
         CONTAINER_SETTINGS, trainer_unused),
    Rule("entrypoint-shell", Severity.ERROR, "An ENTRYPOINT that gets args is in exec form.", _DOCKER, entrypoint_shell),
    Rule("args-replace-cmd", Severity.ERROR, "Args go to an image with an ENTRYPOINT.",
         join(_DOCKER, CONTAINER_SETTINGS), args_replace_cmd),
)  # fmt: skip
