"""Flags declared with absl."""

from __future__ import annotations

from dataclasses import replace

from vertexrig.trainer_source.flag_collector import Collector, constant, default_variable, texts_of, truth
from vertexrig.trainer_source.modules import SourceCall, last_name
from vertexrig.trainer_source.trainer_model import DYNAMIC, Flag

_TYPES = {
    **dict.fromkeys(("string", "enum", "enum_class", "list", "spaceseplist", "multi_string", "multi_enum"), "str"),
    **{"integer": "int", "multi_integer": "int", "float": "float", "multi_float": "float"},
    **{"bool": "bool", "boolean": "bool"},
}


def read(collector: Collector) -> None:
    """Collect the flags of `DEFINE_integer` and similar calls, and which are marked as required afterwards."""
    required: set[str] = set()
    for call in collector.code.calls:
        name = last_name(call.node.func)
        # DEFINE_config_file and its like are among the handled calls: their flags are made while running, and are noted as unread.
        if name.startswith("DEFINE_") and id(call) not in collector.handled_calls:
            _define(collector, call, name.removeprefix("DEFINE_"))
        elif name in {"mark_flag_as_required", "mark_flags_as_required"}:
            required |= _required(collector, call)
    collector.flags = [
        replace(one, required=True) if one.parser == "absl" and one.dest in required else one for one in collector.flags
    ]


def _define(collector: Collector, call: SourceCall, kind: str) -> None:
    collector.parsers.add("absl")
    keywords = call.keywords
    names = collector.code.texts(call.argument(0, "name"), call.scope, call.module)
    if names is None or kind not in _TYPES:
        collector.skip(call, f"DEFINE_{kind} cannot be read")
        return
    default, choices = call.argument(1, "default"), call.argument(2, "enum_values")
    for name in names:
        typed = _TYPES[kind]
        collector.flags.append(
            Flag(
                # absl takes one dash as well as two, and `--noname` for a switch.
                names=(f"--{name}", f"-{name}", *((f"--no{name}",) if typed == "bool" else ())),
                dest=name,
                type=typed,
                required=truth(collector, keywords.get("required"), call),
                default=constant(collector, default, call),
                default_variable=default_variable(default, call),
                choices=texts_of(collector, choices, call)
                if "enum" in kind and "case_sensitive" not in keywords
                else None,
                # a switch takes a value and needs none
                action=DYNAMIC if typed == "bool" else "append" if kind.startswith("multi") else "store",
                # absl's integer flags call int() on the text, which refuses 128.0.
                takes_float_text={"int": False, "bool": False}.get(typed, True),
                parser="absl",
                file=call.module.file,
                line=call.node.lineno,
            )
        )


def _required(collector: Collector, call: SourceCall) -> set[str]:
    argument = call.node.args[0] if call.node.args else None
    # mark_flags_as_required takes a list, mark_flag_as_required one name.
    return set(texts_of(collector, argument, call) or collector.code.texts(argument, call.scope, call.module) or ())
