"""Flags declared with click's decorators or typer's signatures."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from vertexrig.package.source.flags import (
    Collector,
    commands_of,
    constant,
    full_name,
    keywords_of,
    texts_of,
    truth,
    unpacks,
)
from vertexrig.package.source.groups import app_commands, click_commands, click_owners, required_group
from vertexrig.package.source.model import DYNAMIC, Flag
from vertexrig.package.source.names import Module, SourceCall, dotted, last_name

_CLICK_TYPES = {
    "INT": "int",
    "FLOAT": "float",
    "STRING": "str",
    "BOOL": "bool",
    "IntRange": "int",
    "FloatRange": "float",
}


def read_click(found: Collector, call: SourceCall) -> None:
    """`@click.option` / `@option`, when click is what it comes from."""
    full = full_name(call.node.func, call.module)
    if not full.startswith(("click.", "rich_click.", "asyncclick.")):
        return
    found.parsers.add("click")
    keywords = keywords_of(call)
    texts = [found.code.texts(argument, call.scope, call.module) for argument in call.node.args]
    if unpacks(call) or not texts or any(text is None for text in texts):
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
    value = constant(found, default, call)
    switch = truth(found, keywords.get("is_flag"), call) or any("/" in name for name in declared)
    found.flags.append(
        Flag(
            names=names,
            dest=plain[0] if plain else max(names, key=len).lstrip("-").replace("-", "_"),
            type="bool" if switch else kind,
            required=click_owners(found, call) is not None
            and (
                truth(found, keywords.get("required"), call)
                or (is_argument and default is None and "required" not in keywords)
            ),
            has_default=default is not None,
            default=value,
            choices=_click_choices(found, call, keywords.get("type")),
            action="count" if truth(found, keywords.get("count"), call) else "store_true" if switch else "store",
            nargs="dynamic" if "nargs" in keywords else None,
            takes_float_text={"int": False, "bool": False, DYNAMIC: None}.get(kind, True),
            parser="click",
            file=call.module.file,
            line=call.node.lineno,
            commands=commands_of(click_owners(found, call)),
        )
    )


def read_click_groups(found: Collector) -> None:
    """The commands of click's groups."""
    for path in click_commands(found.code):
        found.commands[path] = None
    found.command_required |= required_group(found.code)


def _click_type(found: Collector, call: SourceCall, keywords: dict[str, ast.expr]) -> str:
    node = keywords.get("type")
    if node is None:
        value = constant(found, keywords.get("default"), call)
        return type(value).__name__ if value is not None else "str"
    name = last_name(node.func if isinstance(node, ast.Call) else node)
    if name == "Choice":
        return "str"
    return _CLICK_TYPES.get(name, name if name in {"int", "float", "str", "bool"} else DYNAMIC)


def _click_choices(found: Collector, call: SourceCall, node: ast.expr | None) -> tuple[str, ...] | None:
    if isinstance(node, ast.Call) and last_name(node.func) == "Choice" and node.args:
        return texts_of(found, node.args[0], call)
    return None


def _click_settings(found: Collector, node: ast.AST) -> None:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if (
                isinstance(key, ast.Constant)
                and key.value == "ignore_unknown_options"
                and isinstance(value, ast.Constant)
            ):
                found.tolerates_unknown |= value.value is True


def read_typer(found: Collector, module: Module) -> None:
    """Functions handed to `typer.run` or decorated as a command of a `typer.Typer`: each parameter is a flag."""
    for node, _ in module.nodes:
        _click_settings(found, node)
    if not any(target.split(".")[0] == "typer" for target in module.aliases.values()):
        return
    found.parsers.add("typer")
    commands = app_commands(module)
    for paths in commands.values():
        for path in paths or ():
            found.commands[path] = None
            found.command_required = True
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
            if full_name(call.node.func, module) == "typer.run"
        )
        if decorated or run:
            own = commands.get(name, ())
            found.flags += (
                replace(flag, commands=own, required=flag.required and own is not None)
                for flag in _typer_flags(node, module)
            )


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
