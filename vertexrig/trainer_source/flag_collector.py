"""What the readers of the flag libraries share: the place for what they find, and the arguments of a declaring call."""

from __future__ import annotations

import ast

from vertexrig.trainer_source.bucket_paths import variable
from vertexrig.trainer_source.code import Code
from vertexrig.trainer_source.modules import SourceCall, bound, full_name, last_name, plain_text
from vertexrig.trainer_source.trainer_model import Flag, SourceProblem

ROOT = ""
"""The path of the program's own parser; a sub-command's is its name, one within another `data prepare`."""
Owners = frozenset[str] | None
"""The commands that a flag belongs to; None where that is not known."""
_SUFFIXES = ("-command", "-cmd", "-group", "-grp")  # click leaves these off a function's name since 8.2


class Collector:
    """What the readers of one trainer's calls have found so far.

    Args:
        flags: Flags that could be read.
        parsers: Names of the libraries that declare them.
        unread: Declarations that cannot be read.
        handled_calls: Ids of the calls that one reader has taken, so that others skip them.
        tolerates_unknown: Whether the program ignores unknown flags.
        abbreviations: Whether a flag may be shortened.
        definitions: Names of the trainer's own functions and classes.
        commands: Paths of the sub-commands, in order.
        command_required: Whether the program needs a sub-command.
    """

    def __init__(self, code: Code) -> None:
        self.code = code
        self.flags: list[Flag] = []
        self.parsers: set[str] = set()
        self.unread: list[SourceProblem] = []
        self.handled_calls: set[int] = set()
        self.tolerates_unknown = False
        self.abbreviations = True
        self.definitions = {name for module in code.modules for name in module.definitions}
        self.commands: dict[str, None] = {}
        self.command_required = False

    def skip(self, call: SourceCall, why: str) -> None:
        """Note a declaration that cannot be read."""
        self.unread.append(SourceProblem(why, call.module.file, call.node.lineno))


def constant(collector: Collector, node: ast.expr | None, call: SourceCall) -> str | int | float | bool | None:
    """Return the one plain constant an expression has, else None."""
    values = collector.code.values(node, call.scope, call.module)
    value = values[0] if values is not None and len(values) == 1 else None
    return value if isinstance(value, (str, int, float, bool)) else None


def default_variable(node: ast.expr | None, call: SourceCall) -> str:
    """Return the `AIP_…` variable that an expression, or the one that its name is bound to, looks up; "" for anything else."""
    return variable(bound(node, call.scope)) if node is not None else ""


def truth(collector: Collector, node: ast.expr | None, call: SourceCall) -> bool:
    """Whether an expression is plainly True."""
    return node is not None and constant(collector, node, call) is True


def texts_of(collector: Collector, node: ast.expr | None, call: SourceCall) -> tuple[str, ...] | None:
    """Return the members of a literal list, tuple, set or mapping (or a name for one), as text."""
    node = (bound(node, call.scope) or node) if node is not None else None
    if isinstance(node, (ast.Name, ast.Attribute)):  # CHOICES, or config.CHOICES, of another module of the trainer
        owner, _, name = full_name(node, call.module).rpartition(".")
        source = collector.code.by_name.get(owner)
        # Bound once only: a list that is changed later on may hold other members.
        values = source.scope.names.get(name, []) if source is not None else []
        if source is not None and len(values) == 1 and values[0] is not None:
            return texts_of(collector, values[0], SourceCall(call.node, source.scope, source, call.at_import))
    if (
        isinstance(node, ast.Call)
        and last_name(node.func) in {"list", "sorted", "tuple", "set"}
        and len(node.args) == 1
    ):
        return texts_of(collector, node.args[0], call)
    if isinstance(node, ast.Dict):
        members: list[ast.expr | None] = list(node.keys)
    elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        members = list(node.elts)
    else:
        return None
    each = [collector.code.values(member, call.scope, call.module) for member in members]
    return tuple(str(one[0]) for one in each if one) if all(one and len(one) == 1 for one in each) else None


def commands_of(owners: Owners) -> tuple[str, ...] | None:
    """Return what `Flag.commands` holds for the parsers that a flag is declared with."""
    return None if owners is None else () if ROOT in owners else tuple(sorted(owners))


def command_names(decorator: ast.expr, node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str] | None:
    """Return the names a command goes by: the one given, or what click and typer make of the function's name."""
    if isinstance(decorator, ast.Call):
        given = [*decorator.args, *(word.value for word in decorator.keywords if word.arg == "name")]
        if given:
            text = plain_text(given[0])
            return None if text is None else [text]
    plain = node.name.lower().replace("_", "-")
    short = next((plain.removesuffix(end) for end in _SUFFIXES if plain.endswith(end) and plain != end), plain)
    # Which of them is right depends on the installed release, so all are known.
    return list(dict.fromkeys((plain, short, node.name)))
