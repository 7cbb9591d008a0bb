"""The command line a trainer declares, over all parsers that are read: the join of `flags`, `clicks` and `records`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace

from vertexrig.package.source.clicks import read_click, read_click_groups, read_typer
from vertexrig.package.source.flags import (
    Collector,
    full_name,
    read_absl,
    read_absl_required,
    read_add_parser,
    read_argument,
    read_handed_parser,
    read_parse,
    read_parse_known,
    read_parser,
    read_set_defaults,
    read_subparsers,
)
from vertexrig.package.source.model import Flag, SourceProblem
from vertexrig.package.source.names import Code, Module, SourceCall, last_name
from vertexrig.package.source.records import merged, read_record_call, read_record_classes

# Command lines that are not declared call by call, nor by fields in the source: what they accept is not read.
_UNREAD = {
    "hydra.main": "hydra",
    "docopt.docopt": "docopt",
    "plac.call": "plac",
    "defopt.run": "defopt",
    "jsonargparse.ArgumentParser": "jsonargparse",
    "lightning.pytorch.cli.LightningCLI": "jsonargparse",
    "pytorch_lightning.cli.LightningCLI": "jsonargparse",
    "pytorch_lightning.utilities.cli.LightningCLI": "jsonargparse",
    "cyclopts.App": "cyclopts",
    "cyclopts.run": "cyclopts",
    "ml_collections.config_flags.DEFINE_config_file": "config_flags",
    "ml_collections.config_flags.config_flags.DEFINE_config_file": "config_flags",
    "pyrallis.wrap": "pyrallis",
    "draccus.wrap": "draccus",
    "configargparse.ArgParser": "configargparse",
    "configargparse.ArgumentParser": "configargparse",
    "configargparse.get_argument_parser": "configargparse",
}
"""A call's full name, and the library it belongs to."""
_READERS: dict[str, Callable[[Collector, SourceCall], None]] = {
    "add_argument": read_argument,
    "parse_known_args": read_parse_known,
    "parse_known_intermixed_args": read_parse_known,
    "parse_args": read_parse,
    "ArgumentParser": read_parser,
    "set_defaults": read_set_defaults,
    "add_subparsers": read_subparsers,
    "add_parser": read_add_parser,
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
        commands: Paths of the sub-commands.
        command_required: Whether one has to be given.
    """

    flags: tuple[Flag, ...]
    parsers: frozenset[str]
    tolerates_unknown: bool
    abbreviations: bool
    unread: tuple[SourceProblem, ...]
    commands: tuple[str, ...] = ()
    command_required: bool = False


def collect(code: Code) -> FlagSet:
    """The flags declared anywhere in the modules of `code`."""
    found = Collector(code)
    for call in code.calls:
        name = last_name(call.node.func)
        reader = _READERS.get(name)
        unread = _UNREAD.get(full_name(call.node.func, call.module))
        if unread is not None:
            found.parsers.add(unread)
            found.skip(call, f"flags made by {unread} are not read")
        elif reader is not None:
            reader(found, call)
        elif not read_record_call(found, call):
            read_handed_parser(found, call)
        if name.startswith("DEFINE_") and unread is None:
            read_absl(found, call, name.removeprefix("DEFINE_"))
    read_click_groups(found)
    for module in code.modules:
        read_typer(found, module)
        read_record_classes(found, module)
        _argv(found, module)
    if found.subparsers.used and not found.commands:
        found.skip(found.code.callers("add_subparsers")[0], "the sub-commands are not written here")
    flags = tuple(_finished(flag, found) for flag in merged(found.flags))
    return FlagSet(
        flags, frozenset(found.parsers), found.tolerates_unknown, found.abbreviations, tuple(found.unread),
        tuple(found.commands), found.command_required,
    )  # fmt: skip


def _finished(flag: Flag, found: Collector) -> Flag:
    if flag.parser == "absl" and flag.dest in found.required:
        return replace(flag, required=True)
    if flag.parser == "argparse" and {"jsonargparse", "configargparse"} & found.parsers:
        # A file may give what is required, and values are read by the type, `false` of a bool too.
        return replace(flag, required=False, parser="jsonargparse")
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
            found.unread.append(SourceProblem("sys.argv is read by hand", module.file, getattr(node, "lineno", 1)))
            found.parsers.add("sys.argv")
