"""Command lines made of a class or a function: Tap, HfArgumentParser, simple_parsing, tyro, jsonargparse, pydantic, fire.

One row of `STYLES` per library says how a field becomes a flag. What a row cannot tell is left open, and a check that needs
it stays silent.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from vertexrig.package.source.declared import Collector, constant, truth
from vertexrig.package.source.fields import Kind, SourceField, base_names, class_fields, parameters
from vertexrig.package.source.model import DYNAMIC, Flag
from vertexrig.package.source.names import FUNCTIONS, Definition, Module, Scope, SourceCall, full_name, last_name, owned

# a class may have a field of its own type
_DEPTH = 5


@dataclass(frozen=True)
class Style:
    """How a library makes a flag of a field.

    Args:
        parser: What `Flag.parser` holds.
        names: The options of a field, by its name (with the names it is nested in, joined by `join`).
        off: What a bool field's name follows in the options that turn it off.
        switch: The action of a bool field, by the field; DYNAMIC where a value is allowed and not needed.
        required: Whether a field without default has to be on the command line (not in a file or the environment).
        positional: Whether a field without default is positional.
        join: The text between the names of nested classes; None if their fields are taken as they are.
        float_text: Whether an int field takes the text 128.0; None if that is not known.
        optional_required: Whether a field that may be None is required like the others.
        bool_required: Whether a bool field without a default is required like the others.
    """

    parser: str
    names: Callable[[str], tuple[str, ...]]
    switch: Callable[[SourceField], str]
    required: bool = True
    positional: bool = False
    join: str | None = None
    float_text: bool | None = False
    optional_required: bool = True
    bool_required: bool = False
    off: tuple[str, ...] = ()


def _plain(name: str) -> tuple[str, ...]:
    return (f"--{name}",)


def _dashed(name: str) -> tuple[str, ...]:
    return (f"--{name.replace('_', '-')}",)


def _both(name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}", f"--{name.replace('-', '_')}")))


def _any_dash(name: str) -> tuple[str, ...]:
    return (*_both(name), *(option[1:] for option in _both(name)))


def _single(name: str) -> tuple[str, ...]:
    return (f"-{name}", f"--{name}") if len(name) == 1 else (f"--{name}",)


def _open(field: SourceField) -> str:
    return DYNAMIC


def _tap_switch(field: SourceField) -> str:
    on = isinstance(field.default, ast.Constant) and field.default.value is True
    return "store_false" if on else "store_true"


STYLES = {
    "tap": Style("tap", _plain, _tap_switch, bool_required=True),
    "transformers": Style("transformers", _both, _open, off=("--no_", "--no-")),
    "simple_parsing": Style("simple_parsing", _single, _open, off=("--no",), optional_required=False),
    "tyro": Style("tyro", _both, _open, join=".", off=("--no-", "--no_")),
    "jsonargparse": Style("jsonargparse", _plain, _open, required=False, join="."),
    "pydantic_settings": Style(
        "pydantic_settings", _plain, _open, required=False, join=".", off=("--no-",), float_text=None
    ),
    "fire": Style("fire", _any_dash, _open, float_text=None, off=("--no",)),
}
"""How each library names its flags, by the source of a release (PyPI, read 2026-11-21): typed-argument-parser 1.12.0 tap/tap.py,
transformers 5.23.0 hf_argparser.py, simple_parsing 0.1.9 wrappers/field_wrapper.py, tyro 1.0.17 _arguments.py and _strings.py,
pydantic_settings 2.16.3 sources/providers/cli.py, fire 0.7.1 core.py. Of jsonargparse 4.53.0 the tests have tried the names."""

# A call that makes a command line of the class or function it is given: full name -> row of STYLES.
_CALLS = {
    "tap.tapify": "tap",
    "tyro.cli": "tyro",
    "fire.Fire": "fire",
    "jsonargparse.CLI": "jsonargparse",
    "jsonargparse.auto_cli": "jsonargparse",
    "simple_parsing.parse": "simple_parsing",
    "simple_parsing.parse_known_args": "simple_parsing",
    "transformers.HfArgumentParser": "transformers",
    "transformers.hf_argparser.HfArgumentParser": "transformers",
    "trl.TrlParser": "transformers",
    "pydantic_settings.CliApp.run": "pydantic_settings",
}
# Calls that make positionals of what has no default, unless as_positional=False says otherwise (jsonargparse 4.53.0, run).
_POSITIONAL = frozenset({"jsonargparse.CLI", "jsonargparse.auto_cli"})
_KNOWN_ONLY = frozenset({"simple_parsing.parse_known_args"})


def read(found: Collector) -> None:
    """Calls of `_CALLS`, and classes that are a command line themselves."""
    for call in found.code.calls:
        if id(call) not in found.left:
            _read_call(found, call)
    for module in found.code.modules:
        _read_classes(found, module)


def _read_call(found: Collector, call: SourceCall) -> None:
    """A call of `_CALLS`, or `parser.add_arguments(Config, …)`; any other is left alone."""
    full = full_name(call.node.func, call.module)
    library = _CALLS.get(full)
    # a method: the parser it belongs to has no full name, so the import decides
    if library is None and last_name(call.node.func) == "add_arguments" and _uses(call.module, "simple_parsing"):
        library = "simple_parsing"
    if library is None:
        return
    found.parsers.add(STYLES[library].parser)
    found.tolerates_unknown |= full in _KNOWN_ONLY
    targets = call.node.args[:1] or [
        value for name, value in call.keywords.items() if name in {"component", "components", "f", "dataclass_types"}
    ]
    if not targets:
        found.skip(call, f"{last_name(call.node.func)} takes all that the module defines")
        return
    first = targets[0]
    several = first.elts if isinstance(first, (ast.Tuple, ast.List)) else [first]
    if len(several) > 1 and library != "transformers":
        found.skip(
            call, f"{last_name(call.node.func)} takes several functions: which flags are valid depends on the command"
        )
        return
    if library == "jsonargparse":
        # jsonargparse.CLI adds --config and --print_config by itself
        for name in ("config", "print_config"):
            plain = SourceField(name, Kind("str"), False, None, (), call.module, call.node.lineno)
            found.flags.append(replace(_flag(found, STYLES[library], plain, name), action=DYNAMIC))
    for target in several:
        own = owned(target, call.module, found.code)
        style = STYLES[library]
        if own is not None and isinstance(own[0], ast.ClassDef) and library == "pydantic_settings":
            style = _settings_style(found, own[0])
        elif full in _POSITIONAL and constant(found, call.keywords.get("as_positional"), call) is not False:
            style = replace(style, positional=True)
        elif library == "simple_parsing" and any(
            "add_option_string_dash_variants" in one.keywords for one in found.code.calls
        ):
            style = replace(style, names=_both)
        if own is None or not _read_definition(found, style, *own):
            found.skip(call, f"what {last_name(call.node.func)} makes flags of is not written here plainly")


def _uses(module: Module, package: str) -> bool:
    return any(target.split(".")[0] == package for target in module.aliases.values())


def _read_definition(found: Collector, style: Style, node: Definition, module: Module) -> bool:
    """Adds the flags of a class or function; False if they are not all written here."""
    if isinstance(node, ast.ClassDef):
        if style.parser == "fire":
            return False  # its methods are commands
        return _class_flags(found, style, node, module)
    items = parameters(node, module, found.code)
    if node.args.kwarg is not None:
        if style.parser != "fire":
            return False
        found.tolerates_unknown = True
    complete = True
    for item in items:
        complete &= _add(found, style, item, "", 0)
    return complete


def _class_flags(
    found: Collector, style: Style, cls: ast.ClassDef, module: Module, prefix: str = "", depth: int = 0
) -> bool:
    foreign = base_names(cls, module, found.code) - _HARMLESS
    complete = not foreign
    items = class_fields(cls, module, found.code)
    if not items:
        init = next((one for one in cls.body if isinstance(one, FUNCTIONS) and one.name == "__init__"), None)
        items = parameters(init, module, found.code, method=True) if init is not None else []
    for item in items:
        complete &= _add(found, style, item, prefix, depth)
    return complete


_HARMLESS = frozenset(
    {
        "object", "abc.ABC", "ABC", "typing.Generic", "Generic", "Protocol", "typing.NamedTuple", "NamedTuple", "tap.Tap",
        "pydantic.BaseModel", "pydantic_settings.BaseSettings", "simple_parsing.Serializable",
        "simple_parsing.helpers.Serializable", "simple_parsing.helpers.serialization.Serializable",
        "typing_extensions.TypedDict", "typing.TypedDict",
    }
)  # fmt: skip


def _add(found: Collector, style: Style, field: SourceField, prefix: str, depth: int) -> bool:
    """Adds a field's flag, or the flags of the class it is of; False if some are not known."""
    name = f"{prefix}{field.name}"
    nested = field.kind.nested
    if nested is not None:
        bases = base_names(*nested, found.code)
        # a field of an enum is one flag with a choice, not a group of flags
        if any(base.rpartition(".")[2] in {"Enum", "IntEnum", "StrEnum", "Flag"} for base in bases):
            nested = None
    if nested is not None:
        # these three do not nest
        if depth >= _DEPTH or style.parser in {"tap", "fire", "transformers"}:
            return False
        inner = f"{name}{style.join}" if style.join else ""
        # A value for the whole (`--model '{"lr": 1}'`) is taken by those that nest.
        if style.join:
            found.flags.append(_flag(found, style, replace(field, required=False), name))
        return _class_flags(found, style, *nested, prefix=inner, depth=depth + 1)
    found.flags.append(_flag(found, style, field, name))
    return True


def _flag(found: Collector, style: Style, field: SourceField, name: str) -> Flag:
    kind = field.kind
    names = [*style.names(name)]
    for alias in field.aliases:
        names += [alias] if alias.startswith("-") else style.names(alias)
    boolean = kind.type == "bool" and not kind.many
    if boolean or style.parser == "fire":
        head, dot, last = name.rpartition(".")
        endings = (one[2:] for one in style.names(last) if one.startswith("--"))
        names += [f"--{head}{dot}{off.lstrip('-')}{one}" for one in endings for off in style.off]
    required = (
        field.required
        and style.required
        and (style.bool_required or not boolean)
        and not (kind.optional and not style.optional_required)
    )
    # `constant` asks for the call an expression is in; a field is in none, so it gets one in its module's scope
    call = SourceCall(ast.Call(ast.Name("x"), [], []), field.module.scope, field.module, False)
    if style.positional and field.required:
        names = [name]
    return Flag(
        names=tuple(dict.fromkeys(names)),
        dest=name,
        type=kind.type,
        required=required,
        has_default=not field.required,
        default=constant(found, field.default, call),
        choices=kind.choices,
        action=style.switch(field) if boolean or style.parser == "fire" else "store",
        nargs="*" if kind.many else None,
        takes_float_text=style.float_text if kind.type == "int" else kind.takes_float_text,
        parser=style.parser,
        file=field.module.file,
        line=field.line,
    )


# Classes that are a command line themselves: Tap and pydantic's settings


def _read_classes(found: Collector, module: Module) -> None:
    """Tap classes that are made, and settings classes that parse the command line."""
    for cls in [node for node, _ in module.nodes if isinstance(node, ast.ClassDef)]:
        bases = base_names(cls, module, found.code)
        if bases & {"tap.Tap", "tap.tap.Tap"}:
            _read_tap(found, cls, module)
        elif any(base.rpartition(".")[2] == "BaseSettings" for base in bases):
            _read_settings(found, cls, module)


def _read_tap(found: Collector, cls: ast.ClassDef, module: Module) -> None:
    calls = found.code.callers(cls.name)
    if not calls:
        return  # a base of the class that is used
    found.parsers.add("tap")
    before = len(found.flags)
    dashes = any(truth(found, call.keywords.get("underscores_to_dashes"), call) for call in calls)
    style = replace(STYLES["tap"], names=_dashed) if dashes else STYLES["tap"]
    if not _class_flags(found, style, cls, module):
        found.skip(calls[0], f"{cls.name} has fields that are not plain")
    explicit = any(truth(found, call.keywords.get("explicit_bool"), call) for call in calls)
    for index in range(before, len(found.flags)):
        flag = found.flags[index]
        if explicit and flag.type == "bool":
            found.flags[index] = replace(flag, action="store", takes_float_text=False)
    for call in found.code.callers("parse_args"):
        found.tolerates_unknown |= truth(found, call.keywords.get("known_only"), call)
    for call in found.code.callers("add_subparser"):
        found.skip(call, "sub-commands of Tap are not read")


def merged(flags: list[Flag]) -> list[Flag]:
    """Flags with those that a Tap class's `configure` declares once more put into the field's own."""
    fields = {flag.dest: index for index, flag in enumerate(flags) if flag.parser == "tap"}
    kept: dict[int, Flag] = dict(enumerate(flags))
    for index, flag in enumerate(flags):
        place = fields.get(flag.dest)
        if flag.parser != "argparse" or place is None:
            continue
        field = kept[place]
        names = flag.names if flag.positional else (*field.names, *flag.names)
        kept[place] = replace(
            field,
            names=tuple(dict.fromkeys(names)),
            choices=flag.choices or field.choices,
            nargs=flag.nargs or field.nargs,
            action=flag.action if flag.action != "store" else field.action,
            type=flag.type if flag.type != "str" else field.type,
            takes_float_text=flag.takes_float_text if flag.type != "str" else field.takes_float_text,
            required=field.required and not flag.has_default,
        )
        del kept[index]
    return list(kept.values())


def _read_settings(found: Collector, cls: ast.ClassDef, module: Module) -> None:
    settings = {item.arg: item.value for item in _settings(cls) if item.arg}
    if any(full_name(call.node.func, call.module).endswith("CliApp.run") for call in found.code.callers("run")):
        return  # read at that call
    calls = found.code.callers(cls.name)
    made = any("_cli_parse_args" in call.keywords for call in calls)
    parse = settings.get("cli_parse_args")
    off = isinstance(parse, ast.Constant) and parse.value is False
    if (parse is None or off) and not made:
        return  # the environment only
    scope = Scope(cls, module.scope)
    here = SourceCall(ast.Call(ast.Name(cls.name), [], [], lineno=cls.lineno), scope, module, False)
    found.parsers.add("pydantic_settings")
    if truth(found, settings.get("cli_ignore_unknown_args"), here):
        found.tolerates_unknown = True
    complete = _class_flags(found, _settings_style(found, cls), cls, module)
    if not complete or "CliSubCommand" in {last_name(node) for node in ast.walk(cls)} or "cli_shortcuts" in settings:
        found.skip(here, f"not all flags of {cls.name} are plain")


def _settings_style(found: Collector, cls: ast.ClassDef) -> Style:
    """How a settings class names its options: with dashes if it says `cli_kebab_case`."""
    given = [item.value for item in _settings(cls) if item.arg == "cli_kebab_case"]
    given += [
        call.keywords["_cli_kebab_case"] for call in found.code.callers(cls.name) if "_cli_kebab_case" in call.keywords
    ]
    off = all(isinstance(one, ast.Constant) and not one.value for one in given)
    style = STYLES["pydantic_settings"]
    return style if off else replace(style, names=_dashed)


def _settings(cls: ast.ClassDef) -> Iterator[ast.keyword]:
    """What configures a settings class: keywords of the class line, SettingsConfigDict(...), `class Config`."""
    yield from cls.keywords
    for node in cls.body:
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if isinstance(value, ast.Call) and last_name(value.func) in {"SettingsConfigDict", "ConfigDict", "dict"}:
            yield from value.keywords
        elif isinstance(value, ast.Dict):
            for key, item in zip(value.keys, value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield ast.keyword(key.value, item)
