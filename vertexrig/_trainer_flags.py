"""The command-line flags a trainer declares: argparse, absl, click and typer, read from its syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from vertexrig._trainer_files import Problem
from vertexrig._trainer_names import Call, Code, FunctionNode, Module, Scope, dotted, last_name

DYNAMIC = "dynamic"
"""Stands for a type, action or nargs that the source does not say plainly."""


@dataclass(frozen=True)
class Flag:
    """One declared command-line flag or positional argument.

    Args:
        names: As written: `("--learning_rate", "-l")`; a positional has one name without a dash.
        dest: The attribute the value is stored under.
        type: `str`, `int`, `float`, `bool`, a callable's dotted name, `lambda`, or `dynamic`.
        required: Whether the trainer stops when it is not given.
        has_default: Whether a default is declared (argparse's implied None does not count).
        default: That default if it is one plain constant, else None.
        choices: The values allowed, as text, or None if any value is, or if the source does not list them plainly.
        action: `store`, `store_true`, `store_false`, `BooleanOptionalAction`, `append`, ..., or `dynamic`.
        nargs: As declared (`"?"`, `"*"`, `"+"`, `"2"`), `dynamic`, or None.
        takes_float_text: Whether the text `128.0` is accepted; None if that cannot be told.
        parser: `argparse`, `absl`, `click` or `typer`.
        file: File of the declaration, relative to the trainer's folder.
        line: Its line, counted from 1.
    """

    names: tuple[str, ...]
    dest: str
    type: str = "str"
    required: bool = False
    has_default: bool = False
    default: str | int | float | bool | None = None
    choices: tuple[str, ...] | None = None
    action: str = "store"
    nargs: str | None = None
    takes_float_text: bool | None = True
    parser: str = "argparse"
    file: str = ""
    line: int = 0

    @property
    def positional(self) -> bool:
        """Whether this is a positional argument, which Vertex AI never fills for a hyperparameter."""
        return not self.names[0].startswith("-")

    @property
    def takes_value(self) -> bool | None:
        """Whether `--flag=value` is accepted; None if the action is not known."""
        if self.action == DYNAMIC:
            return None
        return self.action not in _WITHOUT_VALUE and self.nargs != "0"

    @property
    def bool_trap(self) -> bool:
        """`type=bool` of argparse turns every non-empty text into True, `"False"` as well."""
        return self.parser == "argparse" and self.type == "bool" and self.action in {"store", "append"}


_WITHOUT_VALUE = frozenset(
    {"store_true", "store_false", "store_const", "append_const", "count", "help", "version", "BooleanOptionalAction"}
)
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
_CLICK_TYPES = {
    "INT": "int",
    "FLOAT": "float",
    "STRING": "str",
    "BOOL": "bool",
    "IntRange": "int",
    "FloatRange": "float",
}


@dataclass(frozen=True)
class FlagSet:
    """What the command line of a trainer accepts, as far as its source says.

    Args:
        flags: Every declared flag, in the order of declaration.
        parsers: Which parsers are used: `argparse`, `absl`, `click`, `typer`, or the name of one not read here.
        tolerates_unknown: Whether unknown flags are ignored (`parse_known_args` and its like).
        unread: Declarations that could not be read: other flags may exist.
    """

    flags: tuple[Flag, ...]
    parsers: frozenset[str]
    tolerates_unknown: bool
    unread: tuple[Problem, ...]


class _Collector:
    def __init__(self, code: Code) -> None:
        self.code = code
        self.flags: list[Flag] = []
        self.parsers: set[str] = set()
        self.unread: list[Problem] = []
        self.tolerates_unknown = False
        self.required: set[str] = set()
        self.defaulted: set[str] = set()

    def skip(self, call: Call, why: str) -> None:
        self.unread.append(Problem(why, call.module.file, call.node.lineno))


def collect(code: Code) -> FlagSet:
    """The flags declared anywhere in the modules of `code`."""
    found = _Collector(code)
    for call in code.calls:
        name = last_name(call.node.func)
        reader = _READERS.get(name)
        if reader is not None:
            reader(found, call)
        elif name.startswith("DEFINE_"):
            _absl(found, call, name.removeprefix("DEFINE_"))
        elif _full_name(call.node.func, call.module) in _UNREAD:
            parser = _full_name(call.node.func, call.module).split(".")[0]
            found.parsers.add(parser)
            found.skip(call, f"flags made by {parser} are not read")
    for module in code.modules:
        _typer_commands(found, module)
        _argv(found, module)
    flags = tuple(_finished(flag, found) for flag in found.flags)
    return FlagSet(flags, frozenset(found.parsers), found.tolerates_unknown, tuple(found.unread))


def _finished(flag: Flag, found: _Collector) -> Flag:
    if flag.parser == "absl" and flag.dest in found.required:
        return replace(flag, required=True)
    if flag.parser == "argparse" and flag.dest in found.defaulted:
        return replace(flag, has_default=True)
    return flag


def _full_name(node: ast.expr, module: Module) -> str:
    head, _, rest = dotted(node).partition(".")
    return ".".join(part for part in (module.aliases.get(head, head), rest) if part)


def _keywords(call: Call) -> dict[str, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.node.keywords if keyword.arg is not None}


def _unpacks(call: Call) -> bool:
    starred = any(isinstance(argument, ast.Starred) for argument in call.node.args)
    return starred or any(keyword.arg is None for keyword in call.node.keywords)


def _constant(found: _Collector, node: ast.expr | None, call: Call) -> str | int | float | bool | None:
    values = found.code.values(node, call.scope, call.module)
    value = values[0] if values is not None and len(values) == 1 else None
    return value if isinstance(value, (str, int, float, bool)) else None


def _truth(found: _Collector, node: ast.expr | None, call: Call) -> bool:
    return node is not None and _constant(found, node, call) is True


def _texts_of(found: _Collector, node: ast.expr | None, call: Call) -> tuple[str, ...] | None:
    """The members of a literal list, tuple, set or mapping (or a name for one), as text."""
    if isinstance(node, ast.Name):
        node = _single_binding(node.id, call.scope) or node
    if (
        isinstance(node, ast.Call)
        and last_name(node.func) in {"list", "sorted", "tuple", "set"}
        and len(node.args) == 1
    ):
        return _texts_of(found, node.args[0], call)
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


def _argparse(found: _Collector, call: Call) -> None:
    found.parsers.add("argparse")
    keywords = _keywords(call)
    if _unpacks(call):
        found.skip(call, "add_argument with unpacked arguments cannot be read")
        return
    groups = [found.code.texts(argument, call.scope, call.module) for argument in call.node.args]
    if not groups:
        dest = _constant(found, keywords.get("dest"), call)
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


def _argparse_flag(found: _Collector, call: Call, names: tuple[str, ...], keywords: dict[str, ast.expr]) -> Flag:
    positional = not names[0].startswith("-")
    longest = next((name for name in names if name.startswith("--")), names[0])
    dest = _constant(found, keywords.get("dest"), call)
    kind, float_text = _type_of(found, keywords.get("type"), call)
    nargs = keywords.get("nargs")
    nargs_value = _constant(found, nargs, call)
    nargs_text = None if nargs is None else DYNAMIC if nargs_value is None else str(nargs_value)
    required = (
        positional and nargs_text not in {"?", "*", DYNAMIC}
        if positional
        else _truth(found, keywords.get("required"), call)
    )
    action = _action(found, keywords.get("action"), call)
    if action in _WITHOUT_VALUE:
        kind, float_text = "bool" if "store_" in action or action == "BooleanOptionalAction" else kind, None
    return Flag(
        names=names,
        dest=dest if isinstance(dest, str) else names[0] if positional else longest.lstrip("-").replace("-", "_"),
        type=kind,
        required=required and "default" not in keywords if positional else required,
        has_default="default" in keywords,
        default=_constant(found, keywords.get("default"), call),
        choices=_texts_of(found, keywords.get("choices"), call),
        action=action,
        nargs=nargs_text,
        takes_float_text=float_text,
        parser="argparse",
        file=call.module.file,
        line=call.node.lineno,
    )


def _action(found: _Collector, node: ast.expr | None, call: Call) -> str:
    if node is None:
        return "store"
    if last_name(node) == "BooleanOptionalAction":
        return "BooleanOptionalAction"
    value = _constant(found, node, call)
    return value if isinstance(value, str) else DYNAMIC


def _type_of(found: _Collector, node: ast.expr | None, call: Call) -> tuple[str, bool | None]:
    """A type's name, and whether it accepts the text `128.0`."""
    if node is None:
        return "str", True
    if isinstance(node, ast.Lambda):
        return "lambda", _reads_floats(node, call.module, found.code)
    name = dotted(node)
    if "?" in name or isinstance(node, ast.Call):
        return DYNAMIC, None
    definition = _definition(name, call, found.code)
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


def _definition(name: str, call: Call, code: Code) -> tuple[FunctionNode | ast.ClassDef, Module] | None:
    full = _full_name(ast.parse(name, mode="eval").body, call.module)
    owner, _, last = full.rpartition(".")
    module = code.by_name.get(owner) if owner else call.module
    node = module.definitions.get(last) if module is not None else None
    return (node, module) if node is not None and module is not None else None


def _reads_floats(node: FunctionNode | ast.ClassDef, module: Module, code: Code) -> bool | None:
    """True if the body goes through a float, False if it goes to int() straight, None if it does neither."""
    called = {last_name(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)}
    if called & {"float", "Decimal", "Fraction", "literal_eval", "loads", "float32", "float64"}:
        return True
    if "int" not in called:
        return None
    # int() of text that was split or stripped of its ".0" first is the author's own way; trust it.
    return None if called & {"split", "rstrip", "removesuffix", "partition", "replace", "sub", "match"} else False


def _parse_known(found: _Collector, call: Call) -> None:
    found.parsers.add("argparse")
    found.tolerates_unknown = True


def _parse(found: _Collector, call: Call) -> None:
    if isinstance(call.node.func, ast.Attribute):
        found.parsers.add("argparse")


def _set_defaults(found: _Collector, call: Call) -> None:
    found.defaulted |= set(_keywords(call))


def _subparsers(found: _Collector, call: Call) -> None:
    found.skip(call, "sub-commands: which flags are valid depends on the command")


# absl


def _absl(found: _Collector, call: Call, kind: str) -> None:
    found.parsers.add("absl")
    keywords, args = _keywords(call), call.node.args
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
                required=_truth(found, keywords.get("required"), call),
                has_default=default is not None and not is_none,
                default=_constant(found, default, call),
                choices=_texts_of(found, choices, call) if "enum" in kind else None,
                action="append" if kind.startswith("multi") else "store",
                takes_float_text={"int": False, "bool": False}.get(typed, True),
                parser="absl",
                file=call.module.file,
                line=call.node.lineno,
            )
        )


def _absl_required(found: _Collector, call: Call) -> None:
    for argument in call.node.args[:1]:
        found.required |= set(
            _texts_of(found, argument, call) or found.code.texts(argument, call.scope, call.module) or ()
        )


# click and typer


def _click(found: _Collector, call: Call) -> None:
    """`@click.option` / `@option`, when click is what it comes from."""
    full = _full_name(call.node.func, call.module)
    if not full.startswith(("click.", "rich_click.", "asyncclick.")):
        return
    found.parsers.add("click")
    keywords = _keywords(call)
    texts = [found.code.texts(argument, call.scope, call.module) for argument in call.node.args]
    if _unpacks(call) or not texts or any(text is None for text in texts):
        found.skip(call, "the name of this option is not a plain text")
        return
    declared = [name for text in texts for name in text or ()]
    names = tuple(part.strip() for name in declared if name.startswith("-") for part in name.split("/"))
    is_argument = full.endswith(".argument")
    if not names and not is_argument:
        found.skip(call, "this option has no name")
        return
    names = names or (declared[0],)
    plain = [name for name in declared if not name.startswith("-")]
    default, kind = keywords.get("default"), _click_type(found, call, keywords)
    value = _constant(found, default, call)
    switch = _truth(found, keywords.get("is_flag"), call) or any("/" in name for name in declared)
    found.flags.append(
        Flag(
            names=names,
            dest=plain[0] if plain else max(names, key=len).lstrip("-").replace("-", "_"),
            type="bool" if switch else kind,
            required=_truth(found, keywords.get("required"), call)
            or (is_argument and default is None and "required" not in keywords),
            has_default=default is not None,
            default=value,
            choices=_click_choices(found, call, keywords.get("type")),
            action="store_true" if switch else "store",
            nargs="dynamic" if "nargs" in keywords else None,
            takes_float_text={"int": False, "bool": False, DYNAMIC: None}.get(kind, True),
            parser="click",
            file=call.module.file,
            line=call.node.lineno,
        )
    )


def _click_type(found: _Collector, call: Call, keywords: dict[str, ast.expr]) -> str:
    node = keywords.get("type")
    if node is None:
        value = _constant(found, keywords.get("default"), call)
        return type(value).__name__ if value is not None else "str"
    name = last_name(node.func if isinstance(node, ast.Call) else node)
    if name == "Choice":
        return "str"
    return _CLICK_TYPES.get(name, name if name in {"int", "float", "str", "bool"} else DYNAMIC)


def _click_choices(found: _Collector, call: Call, node: ast.expr | None) -> tuple[str, ...] | None:
    if isinstance(node, ast.Call) and last_name(node.func) == "Choice" and node.args:
        return _texts_of(found, node.args[0], call)
    return None


def _click_settings(found: _Collector, node: ast.AST) -> None:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if (
                isinstance(key, ast.Constant)
                and key.value == "ignore_unknown_options"
                and isinstance(value, ast.Constant)
            ):
                found.tolerates_unknown |= value.value is True


def _typer_commands(found: _Collector, module: Module) -> None:
    """Functions handed to `typer.run` or decorated as a command of a `typer.Typer`: each parameter is a flag."""
    for node, _ in module.nodes:
        _click_settings(found, node)
    if not any(target.split(".")[0] == "typer" for target in module.aliases.values()):
        return
    found.parsers.add("typer")
    for name, node in module.definitions.items():
        if isinstance(node, ast.ClassDef):
            continue
        decorated = any(
            isinstance(decorator, ast.Call) and last_name(decorator.func) in {"command", "callback"}
            for decorator in node.decorator_list
        )
        run = any(
            any(isinstance(argument, ast.Name) and argument.id == name for argument in call.node.args)
            for call in module.calls
            if _full_name(call.node.func, module) == "typer.run"
        )
        if decorated or run:
            found.flags += _typer_flags(node, module)


def _typer_flags(node: ast.FunctionDef | ast.AsyncFunctionDef, module: Module) -> Iterator[Flag]:
    args = [*node.args.posonlyargs, *node.args.args]
    defaults: dict[str, ast.expr] = dict(
        zip([arg.arg for arg in reversed(args)], reversed(node.args.defaults), strict=False)
    )
    defaults |= {a.arg: d for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d is not None}
    for arg in [*args, *node.args.kwonlyargs]:
        annotation, default = arg.annotation, defaults.get(arg.arg)
        marker = default if isinstance(default, ast.Call) else None
        if isinstance(annotation, ast.Subscript) and last_name(annotation.value) == "Annotated":
            parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
            annotation = parts[0]
            marker = next((part for part in parts[1:] if isinstance(part, ast.Call)), marker)
        names = tuple(
            argument.value
            for argument in (marker.args if marker else [])
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str) and argument.value.startswith("-")
        )
        value = marker.args[0] if marker is not None and marker is default and marker.args else default
        missing = value is None or (isinstance(value, ast.Constant) and value.value is ...)
        is_argument = last_name(marker.func) == "Argument" if marker else default is None
        kind = (
            dotted(annotation)
            if isinstance(annotation, (ast.Name, ast.Attribute))
            else "str"
            if annotation is None
            else DYNAMIC
        )
        dashed = f"--{arg.arg.replace('_', '-')}"
        constant = value.value if isinstance(value, ast.Constant) else None
        yield Flag(
            names=(arg.arg,)
            if is_argument
            else names or ((dashed, f"--no-{dashed[2:]}") if kind == "bool" else (dashed,)),
            dest=arg.arg,
            type=kind,
            required=missing,
            has_default=not missing,
            default=constant if isinstance(constant, (str, int, float, bool)) else None,
            action="store_true" if kind == "bool" and not is_argument else "store",
            takes_float_text={"int": False, "bool": False, "float": True, "str": True}.get(kind),
            parser="typer",
            file=module.file,
            line=arg.lineno,
        )


def _argv(found: _Collector, module: Module) -> None:
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
        is_argv = isinstance(node, ast.Attribute) and _full_name(node, module) == "sys.argv"
        if is_argv and id(node) not in handed:
            found.unread.append(Problem("sys.argv is read by hand", module.file, getattr(node, "lineno", 1)))
            found.parsers.add("sys.argv")


_UNREAD = {f"{package}.{name}" for package, name in _UNREAD_PARSERS.items()}
_READERS: dict[str, Callable[[_Collector, Call], None]] = {
    "add_argument": _argparse,
    "parse_known_args": _parse_known,
    "parse_known_intermixed_args": _parse_known,
    "parse_args": _parse,
    "set_defaults": _set_defaults,
    "add_subparsers": _subparsers,
    "mark_flag_as_required": _absl_required,
    "mark_flags_as_required": _absl_required,
    "option": _click,
    "argument": _click,
}
