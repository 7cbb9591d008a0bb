"""Flags declared with argparse, and calls that pass its parsers to other code."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from dataclasses import replace

from vertexrig.trainer_source.annotations import Kind
from vertexrig.trainer_source.argparse_commands import Parsers, makes_parser
from vertexrig.trainer_source.code import Code, owned
from vertexrig.trainer_source.flag_collector import Collector, commands_of, constant, default_variable, texts_of, truth
from vertexrig.trainer_source.looped_flags import LoopedFlag, looped_flags
from vertexrig.trainer_source.modules import (
    FunctionNode,
    Module,
    Scope,
    SourceCall,
    bound,
    dotted,
    last_name,
    single_binding,
)
from vertexrig.trainer_source.trainer_model import DYNAMIC, WITHOUT_VALUE, Flag

_TAKE_PARSERS = frozenset({"add_parser", "print", "help", "append", "autocomplete"})
"""Calls that are given a parser and add no flag to it."""


def read(collector: Collector) -> None:
    """Collect from each call that makes a parser, adds to one, or passes one to other code."""
    parsers = Parsers(collector.code)
    for call in collector.code.calls:
        name = last_name(call.node.func)
        # the parser of a library that is only named (`_UNREAD` of reader): noted as unread already
        if id(call) in collector.handled_calls:
            continue
        if name in _READERS:
            _READERS[name](collector, call)
        elif name == "add_argument":
            _argument(collector, call, parsers)
        elif name == "add_parser":
            _add_parser(collector, call, parsers)
        elif name != "set_defaults":  # which takes values, not a parser that is handed on
            _handed_parser(collector, call, parsers)
    # add_subparsers without a plain add_parser: the commands come from a loop or another package.
    if parsers.used and not collector.commands:
        collector.skip(collector.code.callers("add_subparsers")[0], "the sub-commands are not written here")
    if {"jsonargparse", "configargparse"} & collector.parsers:
        # A file may give what is required, and values are read by the type, `false` of a bool too.
        collector.flags = [
            replace(flag, required=False, parser="jsonargparse") if flag.parser == "argparse" else flag
            for flag in collector.flags
        ]


def _argument(collector: Collector, call: SourceCall, parsers: Parsers) -> None:
    collector.parsers.add("argparse")
    keywords = call.keywords
    if call.unpacks:
        collector.skip(call, "add_argument with unpacked arguments cannot be read")
        return
    groups = [collector.code.texts(argument, call.scope, call.module) for argument in call.node.args]
    if not groups:
        dest = constant(collector, keywords.get("dest"), call)
        groups = [(dest,)] if isinstance(dest, str) else [None]
    names: list[str] = []
    if looped := looped_flags(call, collector.code) if None in groups else []:
        declared = {name for flag in collector.flags for name in flag.names}
        for one in looped:
            if one.always or one.option not in declared:  # each branch of a loop declares the same names
                collector.flags.append(_looped_flag(collector, call, one, parsers))
        return
    for group in groups:
        if group is None:
            collector.skip(call, "the name of this argument is not a plain text")
            return
        names += group
    if not names or any(not name for name in names):
        collector.skip(call, "this argument has no name")
        return
    # Several values of one expression are a loop over names: each is a separate flag.
    several = len(groups) == 1 and len(names) > 1
    for options in [[name] for name in names] if several else [names]:
        collector.flags.append(_argparse_flag(collector, call, tuple(options), keywords, parsers))


def _looped_flag(collector: Collector, call: SourceCall, one: LoopedFlag, parsers: Parsers) -> Flag:
    """Return a flag of a loop; what the loop makes of each field is known only where it is plain."""
    keywords = {name: value for name, value in call.keywords.items() if name in {"required", "type", "action", "nargs"}}
    flag = _argparse_flag(collector, call, (one.option,), keywords, parsers)
    if not one.always:  # another branch may declare it otherwise
        return replace(flag, type=DYNAMIC, takes_float_text=None, action=DYNAMIC, nargs=DYNAMIC, required=False)
    kind = keywords.get("type")
    if isinstance(kind, ast.Attribute) and kind.attr == "type":
        written = one.field.kind if one.field is not None else Kind()
        plain = written if written.choices is None and not written.many else Kind()
        return replace(flag, type=plain.type, takes_float_text=plain.takes_float_text)
    return flag


def _argparse_flag(
    collector: Collector, call: SourceCall, names: tuple[str, ...], keywords: dict[str, ast.expr], parsers: Parsers
) -> Flag:
    positional = not names[0].startswith("-")
    # argparse names the attribute after the first long option, else after the first short one.
    first_long = next((name for name in names if name.startswith("--")), names[0])
    dest = constant(collector, keywords.get("dest"), call)
    kind, float_text = _type_of(collector, keywords.get("type"), call)
    nargs = keywords.get("nargs")
    nargs_value = constant(collector, nargs, call)
    nargs_text = None if nargs is None else DYNAMIC if nargs_value is None else str(nargs_value)
    commands = commands_of(parsers.owners(call)) if parsers.used else ()
    if positional:
        required = nargs_text not in {"?", "*", DYNAMIC}  # whatever its default
    else:
        required = truth(collector, keywords.get("required"), call)
    action = _action(collector, keywords.get("action"), call)
    if action in WITHOUT_VALUE:
        # count, help and version take no value either, and their type says nothing of what is stored.
        kind, float_text = "bool" if "store_" in action or action == "BooleanOptionalAction" else kind, None
    if action == "BooleanOptionalAction":
        names += tuple(f"--no-{name[2:]}" for name in names if name.startswith("--"))
    return Flag(
        names=names,
        dest=dest if isinstance(dest, str) else names[0] if positional else first_long.lstrip("-").replace("-", "_"),
        type=kind,
        # A flag of an unknown command may never be asked for: calling it missing would be a guess.
        required=required and commands is not None,
        default=constant(collector, keywords.get("default"), call),
        empty=_is_empty(keywords.get("default")),
        default_variable=default_variable(keywords.get("default"), call),
        choices=texts_of(collector, keywords.get("choices"), call),
        action=action,
        nargs=nargs_text,
        takes_float_text=float_text,
        parser="argparse",
        file=call.module.file,
        line=call.node.lineno,
        commands=commands,
    )


def _action(collector: Collector, node: ast.expr | None, call: SourceCall) -> str:
    if node is None:
        return "store"
    if last_name(node) == "BooleanOptionalAction":
        return "BooleanOptionalAction"
    value = constant(collector, node, call)
    return value if isinstance(value, str) else DYNAMIC


def _type_of(collector: Collector, node: ast.expr | None, call: SourceCall) -> tuple[str, bool | None]:
    """Return a type's name, and whether it accepts the text `128.0`."""
    if node is None:
        return "str", True
    if isinstance(node, ast.Lambda):
        return "lambda", _reads_floats(node, call.module, collector.code)
    name = dotted(node)
    if "?" in name or isinstance(node, ast.Call):
        return DYNAMIC, None
    definition = owned(node, call.module, collector.code)
    if definition is not None:
        return name, _reads_floats(definition[0], definition[1], collector.code)
    value = single_binding(name, call.scope)
    if isinstance(value, ast.Lambda):
        return name, _reads_floats(value, call.module, collector.code)
    # a parameter, or a variable with several values, may be any converter
    if isinstance(node, ast.Name) and value is None and _is_local(node.id, call.scope):
        return DYNAMIC, None
    return name, {"int": False, "float": True, "str": True, "bool": True}.get(name)


def _is_local(name: str, scope: Scope) -> bool:
    """Whether a name is the trainer's own variable or parameter."""
    # a parameter is not bound in the scope's names, so it is looked up in the signature
    for level in scope.levels():
        args = getattr(level.node, "args", None)
        if name in level.names or (isinstance(args, ast.arguments) and name in {arg.arg for arg in args.args}):
            return True
    return False


_TO_FLOAT = frozenset({"float", "Decimal", "Fraction", "literal_eval", "loads", "float32", "float64"})


def _reads_floats(
    node: FunctionNode | ast.ClassDef, module: Module, code: Code, seen: set[int] | None = None
) -> bool | None:
    """Whether a converter takes `128.0`: True if it, or an own function it calls, goes through a float; False if int() gets
    the text itself; None if neither is plain.
    """
    parameter = node.args.args[0].arg if not isinstance(node, ast.ClassDef) and node.args.args else ""
    seen = {id(node)} if seen is None else seen
    straight = False
    inner: list[bool | None] = []
    for part in ast.walk(node):
        if not isinstance(part, ast.Call):
            continue
        name = last_name(part.func)
        own = owned(part.func, module, code) if isinstance(part.func, ast.Name) else None
        if own is not None:
            if id(own[0]) not in seen:
                seen.add(id(own[0]))
                inner.append(_reads_floats(*own, code, seen))
        # int(float(text)) accepts 128.0; one such call anywhere in the converter is enough
        elif name in _TO_FLOAT:
            return True
        # int(text) of the very parameter refuses 128.0; int() of something computed says nothing
        elif name == "int" and part.args and isinstance(part.args[0], ast.Name):
            straight |= part.args[0].id == parameter
    if True in inner:
        return True
    return False if straight or False in inner else None


def _parse_known(collector: Collector, call: SourceCall) -> None:
    collector.parsers.add("argparse")
    collector.tolerates_unknown |= not _refuses_rest(call)


def _refuses_rest(call: SourceCall) -> bool:
    """Whether the trainer itself ends on what parse_known_args leaves over (`if rest: parser.error(...)`)."""
    rest = next(
        (
            node.targets[0].elts[1]
            for node, _ in call.module.each(ast.Assign)
            if node.value is call.node and isinstance(node.targets[0], ast.Tuple) and len(node.targets[0].elts) == 2
        ),
        None,
    )
    return isinstance(rest, ast.Name) and any(
        any(isinstance(part, ast.Name) and part.id == rest.id for part in ast.walk(node.test))
        and any(_ends(part) for statement in node.body for part in ast.walk(statement))
        for node, _ in call.module.each(ast.If)
    )


def _ends(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and last_name(node.func) in {"error", "exit"})


def _parse(collector: Collector, call: SourceCall) -> None:
    """Note `parse_args` of a parser that another package made: its flags are not in this source."""
    if not isinstance(call.node.func, ast.Attribute):
        return
    collector.parsers.add("argparse")
    maker = bound(call.node.func.value, call.scope)
    if isinstance(maker, ast.Call) and not (makes_parser(maker) or last_name(maker.func) in collector.definitions):
        collector.skip(call, f"the parser comes from {dotted(maker.func)}, whose flags are not written here")


def _parser(collector: Collector, call: SourceCall) -> None:
    """Collect the settings of `ArgumentParser(...)`."""
    collector.parsers.add("argparse")
    keywords = call.keywords
    if constant(collector, keywords.get("allow_abbrev"), call) is False:
        collector.abbreviations = False
    parents = keywords.get("parents")
    for parent in parents.elts if isinstance(parents, (ast.List, ast.Tuple)) else []:
        made = bound(parent, call.scope)
        if not (isinstance(made, ast.Call) and (makes_parser(made) or last_name(made.func) in collector.definitions)):
            collector.skip(call, "a parent parser is not written here")


def _handed_parser(collector: Collector, call: SourceCall, parsers: Parsers) -> None:
    """Note a parser handed to a function of another package, which may add flags to it."""
    if isinstance(call.node.func, ast.Name) and hasattr(builtins, call.node.func.id):
        return
    if last_name(call.node.func) in _TAKE_PARSERS or _is_own(collector, call):
        return
    given = [*call.node.args, *call.keywords.values()]
    if any(parsers.may_be(one, call) for one in given if not isinstance(one, ast.Call)):
        collector.skip(call, f"{dotted(call.node.func)} may add flags")


def _is_own(collector: Collector, call: SourceCall) -> bool:
    """Whether a call is of the trainer's own function, or of a method that has the name of one."""
    head = dotted(call.node.func).partition(".")[0]
    if head in call.module.aliases:
        top = call.module.aliases[head].partition(".")[0]
        return any(module.name.partition(".")[0] == top for module in collector.code.modules)
    return last_name(call.node.func) in collector.definitions


def _subparsers(collector: Collector, call: SourceCall) -> None:
    """Collect from `add_subparsers(...)` whether a command is required: only with required=True."""
    collector.parsers.add("argparse")
    collector.command_required |= truth(collector, call.keywords.get("required"), call)


def _add_parser(collector: Collector, call: SourceCall, parsers: Parsers) -> None:
    """Collect the sub-command of an `add_parser` call."""
    paths = parsers.paths(call) if parsers.used else None
    if paths is None:
        collector.skip(call, "the name of this sub-command is not a plain text")
    for path in sorted(paths or ()):
        collector.commands[path] = None


_READERS: dict[str, Callable[[Collector, SourceCall], None]] = {
    "parse_known_args": _parse_known,
    "parse_known_intermixed_args": _parse_known,
    "parse_args": _parse,
    "ArgumentParser": _parser,
    "add_subparsers": _subparsers,
}


def _is_empty(default: ast.expr | None) -> bool:
    return default is None or (isinstance(default, ast.Constant) and not default.value)
