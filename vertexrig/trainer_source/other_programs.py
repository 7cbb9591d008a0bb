"""Whether a trainer starts another Python program, which is not read: that program may report metrics and save the model."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vertexrig.trainer_source.code import Code
from vertexrig.trainer_source.modules import Scope, SourceCall, dotted, full_name

_STARTERS = frozenset(
    """
    subprocess.run subprocess.call subprocess.check_call subprocess.check_output subprocess.Popen os.system os.popen
    os.execl os.execlp os.execv os.execve os.execvp os.execvpe os.spawnl os.spawnlp os.spawnv os.spawnvp
    """.split()
)
_PROGRAM = re.compile(
    r"[\w/-]\.py\b|\b(?:torchrun|deepspeed|horovodrun|accelerate launch)\b|python[\d.]* (?:-\w+ )*-m (?!pip\b|venv\b)\w"
)
"""A script, a launcher of processes, or a module: what a command line that starts a Python program has."""


def starts_programs(code: Code) -> bool:
    """Whether the source plainly starts another Python program."""
    starters = (call for call in code.calls if full_name(call.node.func, call.module) in _STARTERS)
    return any(_PROGRAM.search(" ".join(_words(call))) for call in starters)


def _words(call: SourceCall) -> Iterator[str]:
    """Yield the texts of a call's arguments, also those of the variables in them."""
    for argument in call.node.args:
        yield from _texts(argument)
        for part in ast.walk(argument):
            for value in _bound_to(part.id, call.scope) if isinstance(part, ast.Name) else ():
                yield from _texts(value)


def _bound_to(name: str, scope: Scope) -> list[ast.expr]:
    found = next((level.names[name] for level in scope.levels() if name in level.names), [])
    return [value for value in found if value is not None]


def _texts(node: ast.expr) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
        elif isinstance(part, ast.Attribute) and dotted(part) == "sys.executable":
            yield "python"
