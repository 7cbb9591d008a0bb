"""Command lines made of a class's fields: dataclasses by HfArgumentParser, and pydantic's settings.

What the class does not tell plainly is left open, and a check that needs it stays silent. By the source of a release (PyPI,
read 2026-11-21): transformers 5.23.0 hf_argparser.py, pydantic_settings 2.16.3 sources/providers/cli.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from vertexrig.trainer_source.annotations import SourceField, base_names, class_fields
from vertexrig.trainer_source.code import owned
from vertexrig.trainer_source.flag_collector import Collector, constant, truth
from vertexrig.trainer_source.modules import Module, Scope, SourceCall, full_name, last_name
from vertexrig.trainer_source.trainer_model import DYNAMIC, Flag

_TRANSFORMERS, _SETTINGS = "transformers", "pydantic_settings"
# A call that makes a command line of the classes it is given: full name -> what `Flag.parser` holds.
_CALLS = {
    "transformers.HfArgumentParser": _TRANSFORMERS,
    "transformers.hf_argparser.HfArgumentParser": _TRANSFORMERS,
    "trl.TrlParser": _TRANSFORMERS,
    "pydantic_settings.CliApp.run": _SETTINGS,
}
# Methods of HfArgumentParser and TrlParser that give back what they do not know, if they are told to.
_PARSE = frozenset({"parse_args_into_dataclasses", "parse_args_and_config"})
# Bases that declare no field.
_OWN = ("pydantic.BaseModel", "pydantic_settings.BaseSettings")
_HARMLESS = frozenset({"object", "abc.ABC", "ABC", "typing.Generic", "Generic", "Protocol", *_OWN})
_ENUMS = frozenset({"Enum", "IntEnum", "StrEnum", "Flag"})
# a class may have a field of its own type
_DEPTH = 5


def read(found: Collector) -> None:
    """Find calls of `_CALLS`, and settings classes, which are a command line themselves."""
    for call in found.code.calls:
        library = _CALLS.get(full_name(call.node.func, call.module))
        if library is not None:
            found.parsers.add(library)
            _read_call(found, call, library)
        elif last_name(call.node.func) in _PARSE:
            found.tolerates_unknown |= truth(found, call.keywords.get("return_remaining_strings"), call)
    for module in found.code.modules:
        for cls, _ in module.each(ast.ClassDef):
            if any(base.rpartition(".")[2] == "BaseSettings" for base in base_names(cls, module, found.code)):
                _read_settings(found, cls, module)


def _read_call(found: Collector, call: SourceCall, library: str) -> None:
    targets = call.node.args[:1] or [
        value for name, value in call.keywords.items() if name in {"dataclass_types", "model_cls"}
    ]
    first = targets[0] if targets else None
    for target in first.elts if isinstance(first, (ast.Tuple, ast.List)) else [first]:
        own = owned(target, call.module, found.code)
        if own is None or not isinstance(own[0], ast.ClassDef) or not _class_flags(found, library, own[0], own[1]):
            shown = ast.unparse(target)[:60] if target is not None else "classes"
            found.skip(
                call,
                f"{last_name(call.node.func)} also makes flags of {shown}, which the trainer's files do not hold whole",
            )


def _class_flags(
    found: Collector, library: str, cls: ast.ClassDef, module: Module, prefix: str = "", kebab: bool | None = None
) -> bool:
    """Add the flags of a class; False if they are not all written here."""
    kebab = library == _SETTINGS and _says_kebab(found, cls) if kebab is None else kebab
    complete = not base_names(cls, module, found.code) - _HARMLESS
    for field in class_fields(cls, module, found.code):
        name, nested = f"{prefix}{field.name}", field.kind.nested
        # a field of an enum is one flag with a choice, not a group of flags
        if nested is not None and not any(
            base.rpartition(".")[2] in _ENUMS for base in base_names(*nested, found.code)
        ):
            if library == _TRANSFORMERS or name.count(".") >= _DEPTH:
                complete = False
                continue
            # A value for the whole (`--model '{"lr": 1}'`) is taken, too.
            found.flags.append(_flag(found, library, replace(field, required=False), name, kebab))
            complete &= _class_flags(found, library, *nested, prefix=f"{name}.", kebab=kebab)
        else:
            found.flags.append(_flag(found, library, field, name, kebab))
    return complete


def _options(library: str, name: str, kebab: bool) -> tuple[str, ...]:
    dashed = f"--{name.replace('_', '-')}"
    if library == _SETTINGS:
        return (dashed if kebab else f"--{name}",)
    return tuple(dict.fromkeys((f"--{name}", dashed, f"--{name.replace('-', '_')}")))


def _flag(found: Collector, library: str, field: SourceField, name: str, kebab: bool) -> Flag:
    kind = field.kind
    names = [*_options(library, name, kebab)]
    for alias in field.aliases:
        names += [alias] if alias.startswith("-") else _options(library, alias, kebab)
    boolean = kind.type == "bool" and not kind.many
    if boolean:  # the options that turn it off
        head, dot, last = name.rpartition(".")
        endings = [option[2:] for option in _options(library, last, kebab)]
        offs = ("no-",) if library == _SETTINGS else ("no_", "no-")
        names += [f"--{head}{dot}{off}{ending}" for ending in endings for off in offs]
    # `constant` asks for the call an expression is in; a field is in none, so it gets one in its module's scope
    call = SourceCall(ast.Call(ast.Name("x"), [], []), field.module.scope, field.module, False)
    int_text = None if library == _SETTINGS else False
    return Flag(
        names=tuple(dict.fromkeys(names)),
        dest=name,
        type=kind.type,
        # settings may come from the environment or a file
        required=field.required and library == _TRANSFORMERS and not boolean,
        has_default=not field.required,
        default=constant(found, field.default, call),
        choices=kind.choices,
        # a bool takes a value and needs none
        action=DYNAMIC if boolean else "store",
        nargs="*" if kind.many else None,
        takes_float_text=int_text if kind.type == "int" else kind.takes_float_text,
        parser=library,
        file=field.module.file,
        line=field.line,
    )


def _read_settings(found: Collector, cls: ast.ClassDef, module: Module) -> None:
    settings = {item.arg: item.value for item in _settings(cls) if item.arg}
    if any(full_name(call.node.func, call.module).endswith("CliApp.run") for call in found.code.callers("run")):
        return  # read at that call
    made = any("_cli_parse_args" in call.keywords for call in found.code.callers(cls.name))
    parse = settings.get("cli_parse_args")
    off = isinstance(parse, ast.Constant) and parse.value is False
    if (parse is None or off) and not made:
        return  # the environment only
    scope = Scope(cls, module.scope)
    here = SourceCall(ast.Call(ast.Name(cls.name), [], [], lineno=cls.lineno), scope, module, False)
    found.parsers.add(_SETTINGS)
    found.tolerates_unknown |= truth(found, settings.get("cli_ignore_unknown_args"), here)
    complete = _class_flags(found, _SETTINGS, cls, module)
    if not complete or "CliSubCommand" in {last_name(node) for node in ast.walk(cls)} or "cli_shortcuts" in settings:
        found.skip(here, f"not all flags of {cls.name} are plain")


def _says_kebab(found: Collector, cls: ast.ClassDef) -> bool:
    """Tell whether a settings class names its options with dashes: `cli_kebab_case`."""
    given = [item.value for item in _settings(cls) if item.arg == "cli_kebab_case"]
    given += [
        call.keywords["_cli_kebab_case"] for call in found.code.callers(cls.name) if "_cli_kebab_case" in call.keywords
    ]
    return not all(isinstance(one, ast.Constant) and not one.value for one in given)


def _settings(cls: ast.ClassDef) -> Iterator[ast.keyword]:
    """Yield what configures a settings class: keywords of the class line, SettingsConfigDict(...), `class Config`."""
    yield from cls.keywords
    for node in cls.body:
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if isinstance(value, ast.Call) and last_name(value.func) in {"SettingsConfigDict", "ConfigDict", "dict"}:
            yield from value.keywords
        elif isinstance(value, ast.Dict):
            for key, item in zip(value.keys, value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield ast.keyword(key.value, item)
