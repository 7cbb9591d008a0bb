"""Command lines that HfArgumentParser makes of dataclasses.

What the class does not tell plainly is left open, and a check that needs it stays silent. By the source of transformers
5.23.0, hf_argparser.py (PyPI, read 2026-11-21).
"""

from __future__ import annotations

import ast

from vertexrig.trainer_source.annotations import SourceField, base_names, class_fields, is_whole
from vertexrig.trainer_source.code import owned
from vertexrig.trainer_source.flag_collector import Collector, constant, default_variable, truth
from vertexrig.trainer_source.modules import Module, SourceCall, full_name, last_name
from vertexrig.trainer_source.trainer_model import DYNAMIC, Flag

_PARSERS = frozenset({"transformers.HfArgumentParser", "transformers.hf_argparser.HfArgumentParser", "trl.TrlParser"})
# Methods of these that give back what they do not know, if they are told to.
_PARSE = frozenset({"parse_args_into_dataclasses", "parse_args_and_config"})
_ENUMS = frozenset({"Enum", "IntEnum", "StrEnum", "Flag"})


def read(collector: Collector) -> None:
    """Add the flags of the classes that a parser is given."""
    for call in collector.code.calls:
        if full_name(call.node.func, call.module) in _PARSERS:
            collector.parsers.add("transformers")
            _read_call(collector, call)
        elif last_name(call.node.func) in _PARSE:
            collector.tolerates_unknown |= truth(collector, call.keywords.get("return_remaining_strings"), call)


def _read_call(collector: Collector, call: SourceCall) -> None:
    first = call.argument(0, "dataclass_types")
    for target in first.elts if isinstance(first, (ast.Tuple, ast.List)) else [first]:
        own = owned(target, call.module, collector.code)
        if own is None or not isinstance(own[0], ast.ClassDef) or not _class_flags(collector, own[0], own[1]):
            shown = ast.unparse(target)[:60] if target is not None else "classes"
            collector.skip(
                call,
                f"{last_name(call.node.func)} also makes flags of {shown}, which the trainer's files do not hold whole",
            )


def _class_flags(collector: Collector, cls: ast.ClassDef, module: Module) -> bool:
    """Add the flags of a class; whether they are all written here."""
    complete = is_whole(cls, module, collector.code)
    for field in class_fields(cls, module, collector.code):
        nested = field.kind.nested
        # a field of an enum is one flag with a choice
        if nested is None or any(base.rpartition(".")[2] in _ENUMS for base in base_names(*nested, collector.code)):
            collector.flags.append(_flag(collector, field))
        else:
            complete = False
    return complete


def _options(name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}", f"--{name.replace('-', '_')}")))


def _flag(collector: Collector, field: SourceField) -> Flag:
    kind = field.kind
    names = [*_options(field.name)]
    for alias in field.aliases:
        names += [alias] if alias.startswith("-") else _options(alias)
    boolean = kind.type == "bool" and not kind.many
    if boolean:  # the options that turn it off
        names += [f"--{off}{option[2:]}" for option in _options(field.name) for off in ("no_", "no-")]
    # `constant` asks for the call an expression is in; a field is in none, so it gets one in its module's scope
    call = SourceCall(ast.Call(ast.Name("x"), [], []), field.module.scope, field.module, False)
    return Flag(
        names=tuple(dict.fromkeys(names)),
        dest=field.name,
        type=kind.type,
        required=field.required and not boolean,
        default=constant(collector, field.default, call),
        default_variable=default_variable(field.default, call),
        choices=kind.choices,
        # a bool takes a value and needs none
        action=DYNAMIC if boolean else "store",
        nargs="*" if kind.many else None,
        takes_float_text=kind.takes_float_text,
        parser="transformers",
        file=field.module.file,
        line=field.line,
    )
