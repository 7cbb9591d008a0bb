"""The trainer's command line: its sub-commands and form, whether it could be read, and whether the image passes it on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from vertexrig.checks._arguments import passed
from vertexrig.checks.model import ARGPARSE, CONTAINER_SETTINGS, TUNING_DOC, Context, Problem, Rule, join
from vertexrig.checks.trainer import of_trainer
from vertexrig.errors import nearest
from vertexrig.finding import Severity
from vertexrig.spec.document import Document, Pool
from vertexrig.text import is_shell, quoted
from vertexrig.trainer_source import started_program
from vertexrig.trainer_source.trainer_model import TrainerSource

_HYDRA = ("--cfg", "--package", "--config-path", "--config-name", "--config-dir", "--experimental-rerun", "--info")
"""Options of Hydra itself that take a value; argparse takes them shortened."""
_POSITIONAL = r"\$\{?[!#]?([@*#\d])"
"""A use of the words after a shell's script: `$@`, `"${*}"`, `$1`, `$#`."""
_MAY_USE = re.compile(
    r"\b(?:getopts|eval|source)\b|(?:^|[;&|(]|\b(?:then|do|else))\s*\.\s|\bfor\s+\w+\s*(?:;|$|do\b)"
    r"|BASH_ARGV|/proc/|\{[{%]|\A\s*[\"']?\$",
    re.MULTILINE,
)
"""Another way to use them, or a text that is still to be filled in."""
_POSIX = "bash 5.2.15 and dash 0.5.12, run 2026-11-29"
_DOCKER = "Dockerfile reference, ENTRYPOINT (moby/buildkit, frontend/dockerfile/docs/reference.md, read 2026-11-21)"


def _given(document: Document, pool: Pool) -> str:
    """Return what the job passes to a pool's program, in words, "" if it passes nothing."""
    if pool.args:
        return f"args ({pool.args[0][:60]}{', …' if len(pool.args) > 1 else ''})"
    return "the study's parameters" if (document.study or {}).get("parameters") else ""


def _given_args(document: Document, pools: list[Pool]) -> tuple[Pool, str] | None:
    """Return the first pool whose image chooses the program, and what the job passes to it; None if a part is missing."""
    # with a command in the spec the image's ENTRYPOINT and CMD do not count
    pool = next((pool for pool in pools if pool.container is not None and not pool.command), None)
    given = _given(document, pool) if pool is not None else ""
    return (pool, given) if pool is not None and given else None


def trainer_unused(document: Document, context: Context) -> Iterator[Problem]:
    if context.trainer_unused:
        pool = next((pool for pool in document.pools if not pool.empty), None)
        path = pool.program_path if pool is not None else f"{document.job_path}workerPoolSpecs"
        fix = "name the image's Dockerfile or its folder with --trainer, write command: [python, -m, MODULE], or leave --trainer out"
        message, severity = "the job does not run the trainer that --trainer names", None
        # a script, a program that is not Python's or an image made elsewhere may start it
        if not context.trainer_recognised:
            message, severity = "it is not known whether the job runs the trainer that --trainer names", Severity.INFO
        # the image's name may still be filled in: it says nothing about the program
        keys = {path, *(f"{path}.{key}" for key in ("command", "args", "pythonModule"))}
        sure = pool is not None and keys.isdisjoint(document.placeholders)
        yield Problem(path, f"{message}: {context.trainer_unused}", fix, severity, sure=sure)


@of_trainer
def shell_form_entrypoint(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    location, found = trainer.drops_args, _given_args(document, pools)
    if location is None or found is None:
        return
    pool, given = found
    message = f"{location.where}: ENTRYPOINT is in shell form, which starts the program without {given}"
    yield Problem(f"{pool.program_path}.args", message, 'write it as ENTRYPOINT ["python", "-m", "trainer.task"]')


@dataclass(frozen=True)
class _Script:
    """A shell's script in a container's command line, as in `bash -c`.

    Args:
        after: The words after it.
        options: The shell's options before it, such as `-ec`.
    """

    path: str
    text: str
    after: list[str]
    options: list[str]


def entrypoint_shell(document: Document, context: Context) -> Iterator[Problem]:
    yield from shell_form_entrypoint(document, context)
    seen = set()
    for pool in document.pools:
        found = _script(pool)
        if found is None or f"{pool.program_path}.args" in document.placeholders or _MAY_USE.search(found.text):
            continue
        script, after = found.text, found.after
        # the other pools may do without the values of a trial
        tuned = [f"--{parameter.id}=VALUE" for parameter in document.parameters if pool.index == 0 and parameter.id]
        lost = _lost(script, [*after, *tuned])
        if not lost or (script, *lost) in seen:
            continue
        seen.add((script, *lost))
        # a flag's value may be a secret
        words = [
            word if word in tuned else word.partition("=")[0] if word.startswith("-") else quoted(word) for word in lost
        ]
        shown = f"{', '.join(words[:3])}{', …' if len(lost) > 3 else ''}"
        name = "write a word such as bash after the script, which becomes $0"
        pass_on = 'write "$@" after the program in the script'
        if re.search(_POSITIONAL, script):
            text, fix = f'{shown} is the first word after the script: it becomes $0, which "$@" leaves out', name
        else:
            what = "the values of a trial come" if tuned else "these words come"
            text = (
                f"the program never gets {shown}: {what} after the script, as $0, $1, …, which the script does not use"
            )
            fix = pass_on if after and _is_name(after[0]) else f"{pass_on}, and {name}"
        yield Problem(found.path, text, fix, Severity.WARNING)


def _is_name(word: str) -> bool:
    """Whether the first word after a script is a name such as `bash`, which belongs there: the script has it as $0."""
    return not word.startswith("-") or word in {"-", "--"}


def _lost(script: str, given: list[str]) -> list[str]:
    """Return those of the words after a script that its program does not get; none if the script uses single ones, such as $2."""
    uses = set(re.findall(_POSITIONAL, script))
    if uses - {"@", "*"} or not given:
        return []
    if uses:
        return [] if _is_name(given[0]) else given[:1]
    return given[1:] if _is_name(given[0]) else given


def _script(pool: Pool) -> _Script | None:
    command = pool.command
    words = pool.words if pool.container is not None else []
    is_value = False
    for index, word in enumerate(words[1:-1], 1):
        if is_value or not is_shell(words[0]):
            is_value = False
        elif re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word):
            found = index + 1
            key = f"command[{found}]" if found < len(command) else f"args[{found - len(command)}]"
            # more options may follow, or be missing their value
            if words[found].startswith(("-", "+")) or "o" in word:
                break
            return _Script(f"{pool.program_path}.{key}", words[found], words[found + 1 :], words[1:found])
        elif not word.startswith(("-", "+")) or word == "--":
            break  # a script's file
        else:
            is_value = word.endswith(("o", "O")) or word in {"--rcfile", "--init-file"}
    return None


# Texts, compiled at their first use: few jobs have a script.
_PROGRAM = (
    r"(?:\w+=\S*\s+|(?:exec|time|nohup|env)\s+)*(?:\S*/)?"
    r"((?:python[\d.]*|torchrun|deepspeed|horovodrun|mpirun)\s|accelerate\s+launch\s)(?!\s*-m\s+(?:pip|venv)\b|\s*(?:-c|-V|--version|setup\.py)\b)"
)
_OWN_STATUS = r"\btrap\b|\bexit\b|\$\?|PIPESTATUS|\|\||\bwait\b|<<"
"""A script that looks after its status itself, or has a text in it."""
_ERREXIT = r"\bset\s+(?:-\S+\s+)*-\w*e|\berrexit\b"
_OPENS, _CLOSES = {"if", "for", "while", "until", "case", "{"}, {"fi", "done", "esac", "}"}
_BEFORE_COMMAND = {";", "\n", "&", "&&", "|", "(", "{", "if", "elif", "while", "until", "then", "do", "else", "!"}


def shell_status(document: Document, context: Context) -> Iterator[Problem]:
    seen = set()
    for pool in document.pools:
        found = _script(pool)
        if (
            found is None
            or found.text in seen
            or found.path in document.placeholders
            or re.search(_OWN_STATUS, found.text)
        ):
            continue
        seen.add(found.text)
        stops = any(re.fullmatch(r"-[a-zA-Z]*e[a-zA-Z]*", option) for option in found.options)
        program, piped = _unheeded(found.text, stops or re.search(_ERREXIT, found.text) is not None)
        if program:
            why = (
                "a pipe's status is that of its last program"
                if piped
                else "a script's status is that of its last command"
            )
            fix = (
                "write set -o pipefail as the first line of the script, for bash"
                if piped
                else "write set -e as the first line of the script, or && between its commands"
            )
            yield Problem(found.path, f"the job succeeds even if {program!r} fails: {why}", fix)


def _parts(word: str) -> list[str]:
    """Return the operators of a run of them, such as `);`; any other word as it is."""
    return re.findall(r"&&|\|\||[;\n&|()]", word) if re.fullmatch(r"[;\n&|()]+", word) else [word]


def _first_words(command: str) -> str:
    """Return the beginning of a command to its first word that is no option, as in `python -m trainer.task`."""
    words = command.split()
    found = next((number for number, word in enumerate(words[1:], 1) if not word.startswith("-")), len(words) - 1)
    return " ".join(words[: found + 1])[:60]


def _unheeded(script: str, stops: bool) -> tuple[str, bool]:
    """Return the first program of a script, by its first words, whose failure is not the script's, and whether a pipe hides it.

    Args:
        stops: Whether the first command that fails ends the script.
    """
    script = re.sub(r"(?m)(^|\s)#[^\n'\"]*$", r"\1", script.replace("\\\n", " "))
    lexer = shlex.shlex(script, posix=True, punctuation_chars=";\n&|()")
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    try:
        words = list(lexer)
    except ValueError:  # quotes that are never closed
        return "", False
    depth, lists, first = 0, [""], True
    for token in (part for word in words for part in _parts(word)):
        depth += (token == "(" or (first and token in _OPENS)) - (token == ")" or (first and token in _CLOSES))
        if depth == 0 and token in {";", "\n", "&"}:
            lists.append("")
        elif token != "\n":
            lists[-1] += "".join(token.split()) + " "
        first = token in _BEFORE_COMMAND
    lists = [one for one in lists if one]
    for number, one in enumerate(lists, 1):
        program, piped = re.match(_PROGRAM, one), " | " in one and "pipefail" not in script
        if program is not None and (piped or (number < len(lists) and not stops)):
            return _first_words(one[program.start(1) :]), piped
    return "", False


@of_trainer
def args_replace_cmd(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    location, found = trainer.args_replace, _given_args(document, pools)
    if location is None or found is None:
        return
    pool, given = found
    if not pool.args or pool.args[0].startswith("-"):  # a program named first in args is meant to replace the CMD
        message = (
            f"{location.where}: the image has a CMD and no ENTRYPOINT (nor has {location.text}), so {given} "
            "would replace the program"
        )
        yield Problem(f"{pool.program_path}.args", message, "make the CMD an ENTRYPOINT, or give the job a command")


@of_trainer
def args_repeat_entrypoint(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    location, found = trainer.entrypoint, _given_args(document, pools)
    again = started_program.find(found[0].args) if found is not None else None
    if location is None or found is None or again is None or not again.end:
        return
    pool = found[0]
    words = " ".join(pool.args[: again.end])
    message = (
        f"{location.where}: the ENTRYPOINT is {location.text}, and args begin with a program, too: the container would "
        f"run {location.text} {words}"
    )
    rest = pool.args[again.end :]
    fix = f"write args: [{', '.join(rest[:3])}{', …' if len(rest) > 3 else ''}], or give the job a command in place of the ENTRYPOINT"
    yield Problem(f"{pool.program_path}.args[0]", message, fix)


def command_words(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        words = pool.command[0].split() if pool.command else []
        if len(words) > 1 and (started_program.find(words) is not None or is_shell(words[0])):
            message = f"{quoted(pool.command[0])} is one word for the container: there is no program of that name"
            fix = f"write command: [{', '.join(words)}]"
            yield Problem(f"{pool.program_path}.command", message, fix)


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
        message = (
            f"{defect.where}: Hydra reads the folder {defect.text!r}, which is left out of the trainer package because "
            "the module is not in a Python package"
        )
        fix = "put the module and the folder into a Python package (a folder with an __init__.py), and name that as trainer.path"
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
    location = f"{first.where}: " if first.line else ""
    message = f"not every flag of the trainer can be read ({location}{first.message}{more}): unknown arguments are not reported"
    yield Problem(pools[0].program_path, message, "rehearse the job to see whether the trainer accepts its arguments")


RULES: tuple[Rule, ...] = (
    Rule("sub-command", Severity.ERROR, "The sub-command in args is one of the trainer's.", ARGPARSE, command_known),
    Rule("hydra-override", Severity.ERROR, "Hydra is given NAME=VALUE, without dashes, and finds its folder.",
         "hydra-core 1.3.8, run 2026-11-22", hydra_override),
    Rule("flags-unread", Severity.INFO, "The trainer's flags can be read from its source.", ARGPARSE, flags_read),
    Rule("command-words", Severity.ERROR, "A command is a list of words.", join(_DOCKER, CONTAINER_SETTINGS), command_words),
    Rule("trainer-unused", Severity.ERROR, "The trainer named with --trainer is what the job runs.",
         CONTAINER_SETTINGS, trainer_unused),
    Rule("entrypoint-shell", Severity.ERROR, "An ENTRYPOINT that gets args is in exec form, and a shell's script passes them on.",
         join(_DOCKER, TUNING_DOC, _POSIX), entrypoint_shell),
    Rule("shell-status", Severity.WARNING, "A shell's script fails if a program in it fails.", _POSIX, shell_status),
    Rule("args-repeat-entrypoint", Severity.ERROR, "Args do not begin with the program that the ENTRYPOINT starts.",
         join(_DOCKER, CONTAINER_SETTINGS), args_repeat_entrypoint),
    Rule("args-replace-cmd", Severity.ERROR, "Args go to an image with an ENTRYPOINT.",
         join(_DOCKER, CONTAINER_SETTINGS), args_replace_cmd),
)  # fmt: skip
