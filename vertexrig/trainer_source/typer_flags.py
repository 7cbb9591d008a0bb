"""Flags declared by the signatures of typer's commands."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from vertexrig.trainer_source.annotations import parameters
from vertexrig.trainer_source.flag_collector import Collector, command_names
from vertexrig.trainer_source.modules import Module, full_name, last_name, plain_text
from vertexrig.trainer_source.trainer_model import Flag


def _click_settings(collector: Collector, settings: Iterable[tuple[str | None, ast.expr]]) -> None:
    for key, value in settings:
        if key == "ignore_unknown_options" and isinstance(value, ast.Constant):
            collector.tolerates_unknown |= value.value is True


def read(collector: Collector) -> None:
    for module in collector.code.modules:
        _module(collector, module)


def _module(collector: Collector, module: Module) -> None:
    """Collect the parameters of functions that `typer.run` gets or that are commands of a `typer.Typer`: each is a flag."""
    for settings, _ in module.each(ast.Dict):
        _click_settings(collector, zip(map(plain_text, settings.keys), settings.values, strict=True))
    for call in module.calls:
        if last_name(call.node.func) == "dict":
            _click_settings(collector, call.keywords.items())
    if not any(target.split(".")[0] == "typer" for target in module.aliases.values()):
        return
    collector.parsers.add("typer")
    commands = _app_commands(module)
    # typer stops without a command unless the app or its callback says otherwise
    stops = all(word.arg != "invoke_without_command" for call in module.calls for word in call.node.keywords)
    for paths in commands.values():
        for path in paths or ():
            collector.commands[path] = None
            collector.command_required |= stops
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
            collector.flags += (
                replace(flag, commands=own, required=flag.required and own is not None)
                for flag in _flags(collector, node, module)
            )


def _flags(collector: Collector, node: ast.FunctionDef | ast.AsyncFunctionDef, module: Module) -> Iterator[Flag]:
    annotations = {arg.arg: arg.annotation for arg in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]}
    for item in parameters(node, module, collector.code):
        if _is_context(annotations[item.name]):
            continue
        marker, value = _marker(annotations[item.name], item.default)
        missing = value is None or (isinstance(value, ast.Constant) and value.value is ...)
        # without a marker typer makes an option of what has a default, and an argument of what has none
        is_argument = last_name(marker.func) == "Argument" if marker else item.default is None
        texts = map(plain_text, marker.args) if marker else ()
        # "--accept/--reject" declares a switch with both of its spellings
        parts = (part.strip() for text in texts if text is not None for part in text.split("/"))
        written = tuple(part for part in parts if part.startswith("-"))
        dashed, switch = item.name.replace("_", "-"), item.kind.type == "bool" and not is_argument
        names = written or ((f"--{dashed}", f"--no-{dashed}") if switch else (f"--{dashed}",))
        plain = value.value if isinstance(value, ast.Constant) else None
        words = {word.arg for word in marker.keywords} if marker is not None else set()
        from_variable = "envvar" in words
        yield Flag(
            names=(item.name,) if is_argument else names,
            dest=item.name,
            type=item.kind.type,
            required=missing and not from_variable,
            default=plain if isinstance(plain, (str, int, float, bool)) else None,
            choices=None if "case_sensitive" in words else item.kind.choices,
            action="store_true" if switch else "store",
            nargs="*" if item.kind.many else None,
            takes_float_text=item.kind.takes_float_text,
            parser="typer",
            from_variable=from_variable,
            file=module.file,
            line=item.line,
        )


def _is_context(annotation: ast.expr | None) -> bool:
    """Whether typer hands over a context in a parameter's place: `typer.Context`, or its name as a text."""
    name = plain_text(annotation) or (last_name(annotation) if annotation is not None else "")
    return name.rpartition(".")[2] in {"Context", "CallbackParam"}


def _marker(annotation: ast.expr | None, default: ast.expr | None) -> tuple[ast.Call | None, ast.expr | None]:
    """Return the Option(...) or Argument(...) of a parameter, and its default: `= Option(3)`, or `Annotated[int, Option()] = 3`."""
    if isinstance(default, ast.Call) and last_name(default.func) in {"Option", "Argument"}:
        words = {word.arg: word.value for word in default.keywords}
        return default, default.args[0] if default.args else words.get("default", words.get("default_factory"))
    inner = annotation.slice if isinstance(annotation, ast.Subscript) else None
    is_annotated = isinstance(annotation, ast.Subscript) and last_name(annotation.value) == "Annotated"
    parts = inner.elts[1:] if is_annotated and isinstance(inner, ast.Tuple) else []
    return next((part for part in parts if isinstance(part, ast.Call)), None), default


def _app_commands(module: Module) -> dict[str, tuple[str, ...] | None]:
    """Return the command paths of each function: () for the whole program or a callback, None if a name is not plain."""
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
    alone = len(made) == 1 and not prefixes  # typer makes no sub-command of an app's only command
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
    """Return the names under which apps are added to another; None where that is not plain."""
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
        found[app] = plain_text(next((word.value for word in words if word.arg == "name"), None))
    return found
