"""Which Python program a command line starts: `python -m trainer.task`, `torchrun train.py`, `sh -c "…"`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from vertexrig.text import is_shell

# python, python3, python3.11, /usr/bin/python
_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)(?:\d(?:\.\d+)?)?")
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})
# Programs that start another and pass on what follows: their words are skipped up to a module or a script.
_LAUNCHERS = frozenset(
    """
    torchrun accelerate deepspeed horovodrun mpirun uv poetry pipenv conda tini dumb-init xvfb-run nice exec env
    time numactl
    """.split()
)
_LAUNCHER_MODULES = frozenset(
    """
    torch.distributed.launch torch.distributed.run torch_xla.distributed.xla_dist accelerate.commands.launch
    debugpy coverage
    """.split()
)


@dataclass(frozen=True)
class SourceProgram:
    """A Python program in a command line.

    Args:
        name: The module, or the script's path.
        is_module: Whether it is a module (`-m`).
        end: How many words there are up to and including its name; what follows is the program's.
        drops: Whether a shell starts it without passing its own arguments on.
    """

    name: str
    is_module: bool
    end: int
    drops: bool = False


def launched(words: Sequence[str]) -> bool:
    """Whether a command line names a program that starts others, also in a shell's text."""
    parts = [part for word in words for part in re.split(r"[\s;&|]+", word)]
    return any(part.rpartition("/")[2] in _LAUNCHERS or part in _LAUNCHER_MODULES for part in parts)


def find(words: Sequence[str]) -> SourceProgram | None:
    """Return the program that a command line starts; None if it is not a Python program, or not known."""
    if not words:
        return None
    first = words[0]
    if is_shell(first):
        return _in_shell(words)
    if _PYTHON.fullmatch(first):
        return _behind_python(words, 1)
    if first.endswith(".py"):
        return SourceProgram(first, False, 1)
    if first.rpartition("/")[2] in _LAUNCHERS:
        return _behind_launcher(words, 1)
    return None


def _behind_python(words: Sequence[str], index: int) -> SourceProgram | None:
    while index < len(words):
        word = words[index]
        if word == "-m" or word.startswith("-m"):
            name = word[2:] or (words[index + 1] if index + 1 < len(words) else "")
            index += 1 if word[2:] else 2
            if name in _LAUNCHER_MODULES:
                return _behind_launcher(words, index)
            return SourceProgram(name, True, index) if name else None
        # the program is text on the command line or on standard input: there is no module to read
        if word in {"-c", "-"}:
            return None
        if not word.startswith("-"):
            return SourceProgram(word, False, index + 1)
        index += 2 if word in _WITH_VALUE else 1
    return None


def _behind_launcher(words: Sequence[str], index: int) -> SourceProgram | None:
    while index < len(words):
        word = words[index]
        # `accelerate launch python train.py`, `uv run python -m x`: Python's own rules hold from there on
        if _PYTHON.fullmatch(word):
            return _behind_python(words, index + 1)
        if word in {"-m", "--module"} and index + 1 < len(words):
            return SourceProgram(words[index + 1], True, index + 2)
        if word.endswith(".py") and not word.startswith("-"):
            return SourceProgram(word, False, index + 1)
        index += 1
    return None


def _in_shell(words: Sequence[str]) -> SourceProgram | None:
    """Return the last command of a shell's line, if that is a Python program."""
    line = next(
        # -c, -lc, -exc
        (words[index + 1] for index in range(1, len(words) - 1) if re.fullmatch(r"-[a-z]*c", words[index])),
        None,
    )
    return of_shell_line(line) if line is not None else None


def of_shell_line(text: str) -> SourceProgram | None:
    """Return the Python program that a shell's line or script ends with. `end` is 0: its arguments are the shell's to make."""
    # joined before the split below, or the second half of a continued line would be a command of its own
    text = text.replace("\\\n", " ")
    commands = [
        part.strip() for part in re.split(r"&&|\|\||;|\n", text) if part.strip() and not part.strip().startswith("#")
    ]
    # the last command is what the container's life hangs on: what comes before it prepares
    for command in reversed(commands):
        try:
            # NAME=value before a command sets a variable for it
            words = [word for word in shlex.split(command, comments=True) if not re.fullmatch(r"\w+=\S*", word)]
        except ValueError:
            return None
        found = find(words) if words and not is_shell(words[0]) else None
        if found is not None:
            # a shell line hands its own arguments on only by "$@" or $*
            passes = bool(re.search(r"\$[@*]|\$\{[@*]", command))
            return SourceProgram(found.name, found.is_module, 0, drops=not passes)
    return None
