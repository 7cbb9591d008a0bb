"""The command line a trainer declares, over all parsers that are read: the join of `flags` and `clicks`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace

from vertexrig.package.source.clicks import read_click, read_typer
from vertexrig.package.source.flags import (
    Collector,
    full_name,
    read_absl,
    read_absl_required,
    read_argument,
    read_handed_parser,
    read_parse,
    read_parse_known,
    read_parser,
    read_set_defaults,
    read_subparsers,
)
from vertexrig.package.source.model import Flag, Problem
from vertexrig.package.source.names import Call, Code, Module, last_name

# Command lines that derive their flags from signatures or data classes: what they accept is not declared call by call.
_UNREAD_PARSERS = {
    "fire": "Fire",
    "tyro": "cli",
    "simple_parsing": "ArgumentParser",
    "jsonargparse": "ArgumentParser",
    "transformers": "HfArgumentParser",
    "hydra": "main",
    "docopt": "docopt",
    "plac": "call",
    "defopt": "run",
    "tap": "Tap",
}
_UNREAD = {f"{package}.{name}" for package, name in _UNREAD_PARSERS.items()}
_READERS: dict[str, Callable[[Collector, Call], None]] = {
    "add_argument": read_argument,
    "parse_known_args": read_parse_known,
    "parse_known_intermixed_args": read_parse_known,
    "parse_args": read_parse,
    "ArgumentParser": read_parser,
    "set_defaults": read_set_defaults,
    "add_subparsers": read_subparsers,
    "mark_flag_as_required": read_absl_required,
    "mark_flags_as_required": read_absl_required,
    "option": read_click,
    "argument": read_click,
}


@dataclass(frozen=True)
class FlagSet:
    """What the command line of a trainer accepts, as far as its source says.

    Args:
        flags: Every declared flag, in the order of declaration.
        parsers: Which parsers are used: `argparse`, `absl`, `click`, `typer`, or the name of one not read here.
        tolerates_unknown: Whether unknown flags are ignored (`parse_known_args` and its like).
        abbreviations: Whether argparse takes unambiguous beginnings of long flags.
        unread: Declarations that could not be read: other flags may exist.
    """

    flags: tuple[Flag, ...]
    parsers: frozenset[str]
    tolerates_unknown: bool
    abbreviations: bool
    unread: tuple[Problem, ...]


def collect(code: Code) -> FlagSet:
    """The flags declared anywhere in the modules of `code`."""
    found = Collector(code)
    for call in code.calls:
        name = last_name(call.node.func)
        reader = _READERS.get(name)
        if reader is not None:
            reader(found, call)
        else:
            read_handed_parser(found, call)
        if name.startswith("DEFINE_"):
            read_absl(found, call, name.removeprefix("DEFINE_"))
        elif full_name(call.node.func, call.module) in _UNREAD:
            parser = full_name(call.node.func, call.module).split(".")[0]
            found.parsers.add(parser)
            found.skip(call, f"flags made by {parser} are not read")
    for module in code.modules:
        read_typer(found, module)
        _argv(found, module)
    flags = tuple(_finished(flag, found) for flag in found.flags)
    return FlagSet(flags, frozenset(found.parsers), found.tolerates_unknown, found.abbreviations, tuple(found.unread))


def _finished(flag: Flag, found: Collector) -> Flag:
    if flag.parser == "absl" and flag.dest in found.required:
        return replace(flag, required=True)
    if flag.parser == "argparse" and flag.dest in found.defaulted:
        return replace(flag, has_default=True)
    return flag


def _argv(found: Collector, module: Module) -> None:
    """A trainer that reads `sys.argv` itself may take anything, unless it only hands it to a parser."""
    handed = {
        id(argument)
        for call in module.calls
        if last_name(call.node.func) in {"parse_args", "parse_known_args", "run", "main", "FLAGS", "Path", "basename"}
        for outer in call.node.args
        for argument in ast.walk(outer)
    }
    for node, _ in module.nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == 0:
            handed.add(id(node.value))  # sys.argv[0] is the program's name
        is_argv = isinstance(node, ast.Attribute) and full_name(node, module) == "sys.argv"
        if is_argv and id(node) not in handed:
            found.unread.append(Problem("sys.argv is read by hand", module.file, getattr(node, "lineno", 1)))
            found.parsers.add("sys.argv")
