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


def read(found: Collector) -> None:
    """Collect the flags of `DEFINE_integer` and similar calls, and which are marked as required afterwards."""
    required: set[str] = set()
    for call in found.code.calls:
        name = last_name(call.node.func)
        # DEFINE_config_file and its like are in `left`: their flags are made while running, and are noted as unread
        # already.
        if name.startswith("DEFINE_") and id(call) not in found.handled_calls:
            _define(found, call, name.removeprefix("DEFINE_"))
        elif name in {"mark_flag_as_required", "mark_flags_as_required"}:
            required |= _required(found, call)
    found.flags = [
        replace(one, required=True) if one.parser == "absl" and one.dest in required else one for one in found.flags
    ]


def _define(found: Collector, call: SourceCall, kind: str) -> None:
    found.parsers.add("absl")
    keywords = call.keywords
    names = found.code.texts(call.argument(0, "name"), call.scope, call.module)
    if names is None or kind not in _TYPES:
        found.skip(call, f"DEFINE_{kind} cannot be read")
        return
    default, choices = call.argument(1, "default"), call.argument(2, "enum_values")
    for name in names:
        typed = _TYPES[kind]
        found.flags.append(
            Flag(
                # absl takes one dash as well as two, and `--noname` for a switch.
                names=(f"--{name}", f"-{name}", *((f"--no{name}",) if typed == "bool" else ())),
                dest=name,
                type=typed,
                required=truth(found, keywords.get("required"), call),
                default=constant(found, default, call),
                default_variable=default_variable(default, call),
                choices=texts_of(found, choices, call) if "enum" in kind and "case_sensitive" not in keywords else None,
                # a switch takes a value and needs none
                action=DYNAMIC if typed == "bool" else "append" if kind.startswith("multi") else "store",
                # absl's integer flags call int() on the text, which refuses 128.0.
                takes_float_text={"int": False, "bool": False}.get(typed, True),
                parser="absl",
                file=call.module.file,
                line=call.node.lineno,
            )
        )


def _required(found: Collector, call: SourceCall) -> set[str]:
    argument = call.node.args[0] if call.node.args else None
    # mark_flags_as_required takes a list, mark_flag_as_required one name.
    return set(texts_of(found, argument, call) or found.code.texts(argument, call.scope, call.module) or ())
