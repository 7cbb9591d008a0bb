"""The command-line flags a trainer declares: argparse, absl, click and typer, read from its syntax trees."""

from __future__ import annotations

import ast
import builtins

from vertexrig.package.source.model import DYNAMIC, WITHOUT_VALUE, Flag, SourceProblem
from vertexrig.package.source.names import Code, FunctionNode, Module, Scope, SourceCall, dotted, last_name
from vertexrig.package.source.subcommands import ROOT, Owners, Parsers

_ABSL_TYPES = {
    "string": "str",
    "integer": "int",
    "float": "float",
    "bool": "bool",
    "boolean": "bool",
    "enum": "str",
    "enum_class": "str",
    "list": "str",
    "spaceseplist": "str",
    "multi_string": "str",
    "multi_integer": "int",
    "multi_float": "float",
    "multi_enum": "str",
}


_TAKE_PARSERS = frozenset({"add_parser", "print", "help", "append"})
"""Calls that are given a parser and add no flag to it."""


class Collector:
    """What the readers of one trainer's calls have found so far."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.flags: list[Flag] = []
        self.parsers: set[str] = set()
        self.unread: list[SourceProblem] = []
        self.tolerates_unknown = False
        self.abbreviations = True
        self.own = {name for module in code.modules for name in module.definitions}
        self.required: set[str] = set()
        self.defaulted: set[str] = set()
        self.commands: dict[str, None] = {}
        self.command_required = False
        self.subparsers = Parsers(code)

    def skip(self, call: SourceCall, why: str) -> None:
        """Notes a declaration that cannot be read."""
        self.unread.append(SourceProblem(why, call.module.file, call.node.lineno))


def full_name(node: ast.expr, module: Module) -> str:
    """A dotted expression with its first part as it was imported: `np.int64` is `numpy.int64`."""
    head, _, rest = dotted(node).partition(".")
    return ".".join(part for part in (module.aliases.get(head, head), rest) if part)


def keywords_of(call: SourceCall) -> dict[str, ast.expr]:
    """The keyword arguments of a call."""
    return {keyword.arg: keyword.value for keyword in call.node.keywords if keyword.arg is not None}


def unpacks(call: SourceCall) -> bool:
    """Whether a call has `*args` or `**kwargs`, so that its arguments are not all written down."""
    starred = any(isinstance(argument, ast.Starred) for argument in call.node.args)
    return starred or any(keyword.arg is None for keyword in call.node.keywords)


def constant(found: Collector, node: ast.expr | None, call: SourceCall) -> str | int | float | bool | None:
    """The one plain constant an expression has, else None."""
    values = found.code.values(node, call.scope, call.module)
    value = values[0] if values is not None and len(values) == 1 else None
    return value if isinstance(value, (str, int, float, bool)) else None


def truth(found: Collector, node: ast.expr | None, call: SourceCall) -> bool:
    """Whether an expression is plainly True."""
    return node is not None and constant(found, node, call) is True


def texts_of(found: Collector, node: ast.expr | None, call: SourceCall) -> tuple[str, ...] | None:
    """The members of a literal list, tuple, set or mapping (or a name for one), as text."""
    if isinstance(node, ast.Name):
        node = _single_binding(node.id, call.scope) or node
    if isinstance(node, (ast.Name, ast.Attribute)):  # CHOICES, or config.CHOICES, of another module of the trainer
        owner, _, name = full_name(node, call.module).rpartition(".")
        source = found.code.by_name.get(owner)
        bound = source.scope.names.get(name, []) if source is not None else []
        if source is not None and len(bound) == 1 and bound[0] is not None:
            return texts_of(found, bound[0], SourceCall(call.node, source.scope, source, call.at_import))
    if (
        isinstance(node, ast.Call)
        and last_name(node.func) in {"list", "sorted", "tuple", "set"}
        and len(node.args) == 1
    ):
        return texts_of(found, node.args[0], call)
    if isinstance(node, ast.Dict):
        members: list[ast.expr | None] = list(node.keys)
    elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        members = list(node.elts)
    else:
        return None
    texts: list[str] = []
    for member in members:
        values = found.code.values(member, call.scope, call.module)
        if values is None or len(values) != 1:
            return None
        texts.append(str(values[0]))
    return tuple(texts)


def _single_binding(name: str, scope: Scope | None) -> ast.expr | None:
    while scope is not None:
        if name in scope.names:
            return scope.names[name][0] if len(scope.names[name]) == 1 else None
        scope = scope.parent
    return None


# argparse


def read_argument(found: Collector, call: SourceCall) -> None:
    found.parsers.add("argparse")
    keywords = keywords_of(call)
    if unpacks(call):
        found.skip(call, "add_argument with unpacked arguments cannot be read")
        return
    groups = [found.code.texts(argument, call.scope, call.module) for argument in call.node.args]
    if not groups:
        dest = constant(found, keywords.get("dest"), call)
        groups = [(dest,)] if isinstance(dest, str) else [None]
    names: list[str] = []
    for group in groups:
        if group is None:
            found.skip(call, "the name of this argument is not a plain text")
            return
        names += group
    if not names or any(not name for name in names):
        found.skip(call, "this argument has no name")
        return
    # Several values of one expression are a loop over names: each is a flag of its own.
    several = len(groups) == 1 and len(names) > 1
    for options in [[name] for name in names] if several else [names]:
        found.flags.append(_argparse_flag(found, call, tuple(options), keywords))


def _argparse_flag(found: Collector, call: SourceCall, names: tuple[str, ...], keywords: dict[str, ast.expr]) -> Flag:
    positional = not names[0].startswith("-")
    longest = next((name for name in names if name.startswith("--")), names[0])
    dest = constant(found, keywords.get("dest"), call)
    kind, float_text = _type_of(found, keywords.get("type"), call)
    nargs = keywords.get("nargs")
    nargs_value = constant(found, nargs, call)
    nargs_text = None if nargs is None else DYNAMIC if nargs_value is None else str(nargs_value)
    required = (
        positional and nargs_text not in {"?", "*", DYNAMIC}
        if positional
        else truth(found, keywords.get("required"), call)
    )
    commands = commands_of(found.subparsers.owners(call)) if found.subparsers.used else ()
    required = required and commands is not None
    action = _action(found, keywords.get("action"), call)
    if action in WITHOUT_VALUE:
        kind, float_text = "bool" if "store_" in action or action == "BooleanOptionalAction" else kind, None
    return Flag(
        names=names,
        dest=dest if isinstance(dest, str) else names[0] if positional else longest.lstrip("-").replace("-", "_"),
        type=kind,
        required=required and "default" not in keywords if positional else required,
        has_default="default" in keywords,
        default=constant(found, keywords.get("default"), call),
        choices=texts_of(found, keywords.get("choices"), call),
        action=action,
        nargs=nargs_text,
        takes_float_text=float_text,
        parser="argparse",
        file=call.module.file,
        line=call.node.lineno,
        commands=commands,
    )


def commands_of(owners: Owners) -> tuple[str, ...] | None:
    """What `Flag.commands` holds for the parsers that a flag is declared with."""
    return None if owners is None else () if ROOT in owners else tuple(sorted(owners))


def _action(found: Collector, node: ast.expr | None, call: SourceCall) -> str:
    if node is None:
        return "store"
    if last_name(node) == "BooleanOptionalAction":
        return "BooleanOptionalAction"
    value = constant(found, node, call)
    return value if isinstance(value, str) else DYNAMIC


def _type_of(found: Collector, node: ast.expr | None, call: SourceCall) -> tuple[str, bool | None]:
    """A type's name, and whether it accepts the text `128.0`."""
    if node is None:
        return "str", True
    if isinstance(node, ast.Lambda):
        return "lambda", _reads_floats(node, call.module, found.code)
    name = dotted(node)
    if "?" in name or isinstance(node, ast.Call):
        return DYNAMIC, None
    definition = _owned(node, call.module, found.code)
    if definition is not None:
        return name, _reads_floats(definition[0], definition[1], found.code)
    bound = _single_binding(name, call.scope)
    if isinstance(bound, ast.Lambda):
        return name, _reads_floats(bound, call.module, found.code)
    if isinstance(node, ast.Name) and bound is None and _is_local(node.id, call.scope):
        return DYNAMIC, None
    return name, {"int": False, "float": True, "str": True, "bool": True}.get(name)


def _is_local(name: str, scope: Scope | None) -> bool:
    while scope is not None:
        args = getattr(scope.node, "args", None)
        if name in scope.names or (isinstance(args, ast.arguments) and name in {arg.arg for arg in args.args}):
            return True
        scope = scope.parent
    return False


def _owned(node: ast.expr, module: Module, code: Code) -> tuple[FunctionNode | ast.ClassDef, Module] | None:
    """The trainer's own function or class that a dotted name stands for, and its module."""
    owner, _, last = full_name(node, module).rpartition(".")
    source = code.by_name.get(owner) if owner else module
    found = source.definitions.get(last) if source is not None else None
    return (found, source) if found is not None and source is not None else None


_TO_FLOAT = frozenset({"float", "Decimal", "Fraction", "literal_eval", "loads", "float32", "float64"})


def _reads_floats(
    node: FunctionNode | ast.ClassDef, module: Module, code: Code, seen: set[int] | None = None
) -> bool | None:
    """Whether a converter takes `128.0`: True if it, or an own function it calls, goes through a float; False if int() gets
    the text itself; None if neither is plain."""
    parameter = node.args.args[0].arg if not isinstance(node, ast.ClassDef) and node.args.args else ""
    seen = {id(node)} if seen is None else seen
    straight = False
    inner: list[bool | None] = []
    for part in ast.walk(node):
        if not isinstance(part, ast.Call):
            continue
        name = last_name(part.func)
        own = _owned(part.func, module, code) if isinstance(part.func, ast.Name) else None
        if own is not None:
            if id(own[0]) not in seen:
                seen.add(id(own[0]))
                inner.append(_reads_floats(*own, code, seen))
        elif name in _TO_FLOAT:
            return True
        elif name == "int" and part.args and isinstance(part.args[0], ast.Name):
            straight |= part.args[0].id == parameter
    if True in inner:
        return True
    return False if straight or False in inner else None


def read_parse_known(found: Collector, call: SourceCall) -> None:
    found.parsers.add("argparse")
    found.tolerates_unknown |= not _refuses_rest(call)


def _refuses_rest(call: SourceCall) -> bool:
    """Whether the trainer itself ends on what parse_known_args leaves over (`if rest: parser.error(...)`)."""
    rest = next(
        (
            node.targets[0].elts[1]
            for node, _ in call.module.nodes
            if isinstance(node, ast.Assign)
            and node.value is call.node
            and isinstance(node.targets[0], ast.Tuple)
            and len(node.targets[0].elts) == 2
        ),
        None,
    )
    return isinstance(rest, ast.Name) and any(
        isinstance(node, ast.If)
        and any(isinstance(part, ast.Name) and part.id == rest.id for part in ast.walk(node.test))
        and any(_ends(part) for statement in node.body for part in ast.walk(statement))
        for node, _ in call.module.nodes
    )


def _ends(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and last_name(node.func) in {"error", "exit"})


def read_parse(found: Collector, call: SourceCall) -> None:
    """`parse_args` of a parser that some other package made: its flags are not written here."""
    if not isinstance(call.node.func, ast.Attribute):
        return
    found.parsers.add("argparse")
    receiver = call.node.func.value
    maker = _single_binding(receiver.id, call.scope) if isinstance(receiver, ast.Name) else receiver
    if isinstance(maker, ast.Call) and not (_makes_parser(maker) or last_name(maker.func) in found.own):
        found.skip(call, f"the parser comes from {dotted(maker.func)}, whose flags are not written here")


def read_parser(found: Collector, call: SourceCall) -> None:
    """`ArgumentParser(...)` itself."""
    found.parsers.add("argparse")
    keywords = keywords_of(call)
    abbreviations = keywords.get("allow_abbrev")
    if isinstance(abbreviations, ast.Constant) and abbreviations.value is False:
        found.abbreviations = False
    parents = keywords.get("parents")
    for parent in parents.elts if isinstance(parents, (ast.List, ast.Tuple)) else []:
        made = _single_binding(parent.id, call.scope) if isinstance(parent, ast.Name) else parent
        if not (isinstance(made, ast.Call) and (_makes_parser(made) or last_name(made.func) in found.own)):
            found.skip(call, "a parent parser is not written here")


def read_handed_parser(found: Collector, call: SourceCall) -> None:
    """A parser handed to a function of another package, which may add flags to it."""
    if isinstance(call.node.func, ast.Name) and hasattr(builtins, call.node.func.id):
        return
    if last_name(call.node.func) in _TAKE_PARSERS:
        return
    for argument in call.node.args:
        made = _single_binding(argument.id, call.scope) if isinstance(argument, ast.Name) else None
        if isinstance(made, ast.Call) and _makes_parser(made) and last_name(call.node.func) not in found.own:
            found.skip(call, f"{dotted(call.node.func)} may add flags")


def _makes_parser(call: ast.Call) -> bool:
    return last_name(call.func) in {"ArgumentParser", "add_argument_group", "add_mutually_exclusive_group"}


def read_set_defaults(found: Collector, call: SourceCall) -> None:
    found.defaulted |= set(keywords_of(call))


def read_subparsers(found: Collector, call: SourceCall) -> None:
    """`add_subparsers(...)`: argparse asks for a command only with required=True."""
    found.parsers.add("argparse")
    found.command_required |= truth(found, keywords_of(call).get("required"), call)


def read_add_parser(found: Collector, call: SourceCall) -> None:
    """One sub-command of argparse."""
    paths = found.subparsers.paths(call) if found.subparsers.used else None
    if paths is None:
        found.skip(call, "the name of this sub-command is not a plain text")
    for path in sorted(paths or ()):
        found.commands[path] = None


# absl


def read_absl(found: Collector, call: SourceCall, kind: str) -> None:
    found.parsers.add("absl")
    keywords, args = keywords_of(call), call.node.args
    names = found.code.texts(args[0] if args else keywords.get("name"), call.scope, call.module)
    if names is None or kind not in _ABSL_TYPES:
        found.skip(call, f"DEFINE_{kind} cannot be read")
        return
    default = keywords.get("default") or (args[1] if len(args) > 1 else None)
    is_none = isinstance(default, ast.Constant) and default.value is None
    choices = keywords.get("enum_values") or (args[2] if len(args) > 2 else None)
    for name in names:
        typed = _ABSL_TYPES[kind]
        found.flags.append(
            Flag(
                names=(f"--{name}", f"-{name}", *((f"--no{name}",) if typed == "bool" else ())),
                dest=name,
                type=typed,
                required=truth(found, keywords.get("required"), call),
                has_default=default is not None and not is_none,
                default=constant(found, default, call),
                choices=texts_of(found, choices, call) if "enum" in kind else None,
                action="append" if kind.startswith("multi") else "store",
                takes_float_text={"int": False, "bool": False}.get(typed, True),
                parser="absl",
                file=call.module.file,
                line=call.node.lineno,
            )
        )


def read_absl_required(found: Collector, call: SourceCall) -> None:
    for argument in call.node.args[:1]:
        found.required |= set(
            texts_of(found, argument, call) or found.code.texts(argument, call.scope, call.module) or ()
        )
