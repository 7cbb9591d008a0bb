"""Flags declared by the signatures of typer's commands."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from vertexrig.package.source.declared import Collector, command_names
from vertexrig.package.source.model import DYNAMIC, Flag
from vertexrig.package.source.names import Module, dotted, full_name, last_name


def _click_settings(found: Collector, node: ast.AST) -> None:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if (
                isinstance(key, ast.Constant)
                and key.value == "ignore_unknown_options"
                and isinstance(value, ast.Constant)
            ):
                found.tolerates_unknown |= value.value is True


def read(found: Collector) -> None:
    for module in found.code.modules:
        _module(found, module)


def _module(found: Collector, module: Module) -> None:
    """Functions handed to `typer.run` or decorated as a command of a `typer.Typer`: each parameter is a flag."""
    for node, _ in module.nodes:
        _click_settings(found, node)
    if not any(target.split(".")[0] == "typer" for target in module.aliases.values()):
        return
    found.parsers.add("typer")
    commands = _app_commands(module)
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


def _app_commands(module: Module) -> dict[str, tuple[str, ...] | None]:
    """For each function that is a command of several: its paths; empty for one that is the whole program, or a callback."""
    made: dict[str, list[tuple[str, ast.expr, str]]] = {}
    for name, node in module.definitions.items():
        for decorator in getattr(node, "decorator_list", ()):
            func = decorator.func if isinstance(decorator, ast.Call) else None
            if (
                isinstance(func, ast.Attribute)
                and func.attr in {"command", "callback"}
                and isinstance(func.value, ast.Name)
            ):
                made.setdefault(func.value.id, []).append((name, decorator, func.attr))
    prefixes = _prefixes(module)
    alone = len(made) == 1 and not prefixes
    found: dict[str, tuple[str, ...] | None] = {}
    for app, commands in made.items():
        prefix = prefixes.get(app, "")
        single = alone and len(commands) == 1
        for name, decorator, kind in commands:
            node = module.definitions[name]
            if kind == "callback" or single or isinstance(node, ast.ClassDef):
                found[name] = (prefix,) if prefix else ()
                continue
            names = command_names(decorator, node)
            unknown = names is None or prefix is None
            found[name] = None if unknown else tuple(sorted(f"{prefix} {one}".strip() for one in names or ()))
    return found


def _prefixes(module: Module) -> dict[str, str | None]:
    """The names under which apps are added to another; None where that is not plain."""
    found: dict[str, str | None] = {}
    for call in module.calls:
        if (
            last_name(call.node.func) != "add_typer"
            or not call.node.args
            or not isinstance(call.node.args[0], ast.Name)
        ):
            continue
        app = call.node.args[0].id
        words = list(call.node.keywords)
        for value in module.scope.names.get(app, ()):
            words += value.keywords if isinstance(value, ast.Call) else []
        name = next((word.value for word in words if word.arg == "name"), None)
        found[app] = name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None
    return found
