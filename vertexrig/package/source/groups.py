"""Sub-commands of click and typer: which command a decorated function is, and so which commands an option belongs to."""

from __future__ import annotations

import ast

from vertexrig.package.source.fields import owned
from vertexrig.package.source.flags import Collector, full_name
from vertexrig.package.source.names import Code, Module, SourceCall, last_name
from vertexrig.package.source.subcommands import ROOT, Owners

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_SUFFIXES = ("-command", "-cmd", "-group", "-grp")  # click leaves these off a function's name since 8.2
_MAX_DEPTH = 8
_CLICK = ("click.", "rich_click.", "asyncclick.")


def click_owners(found: Collector, call: SourceCall) -> Owners:
    """The commands that an option's decorator belongs to; None if it stands in a function that adds options to others."""
    for node, _ in call.module.nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and call.node in node.decorator_list:
            return _paths(found.code, node, call.module, 0)
    return None if _groups(found.code) else frozenset({ROOT})


def click_commands(code: Code) -> list[str]:
    """The paths of all commands that stand in a group."""
    found: dict[str, None] = {}
    if _groups(code):
        for module in code.modules:
            for node, _ in module.nodes:
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _made(node, module) is not None:
                    found |= dict.fromkeys(path for path in _paths(code, node, module, 0) or () if path)
    return list(found)


def required_group(code: Code) -> bool:
    """Whether a group stops without a command: click's own way, unless it is told otherwise."""
    return any(
        not any(word.arg == "invoke_without_command" for word in decorator.keywords if isinstance(decorator, ast.Call))
        if isinstance(decorator, ast.Call)
        else True
        for _, _, decorator in _groups(code)
    )


def _groups(code: Code) -> list[tuple[_Function, Module, ast.expr]]:
    """Functions that are groups of click, with the decorator that says so."""
    found = []
    for module in code.modules:
        for node in module.definitions.values():
            if not isinstance(node, ast.ClassDef):
                made = _made(node, module)
                if made is not None and made[0] == "group":
                    found.append((node, module, made[1]))
    return found


def _made(node: _Function, module: Module) -> tuple[str, ast.expr] | None:
    """`group` or `command`, and the decorator, of a function that click makes one of."""
    for decorator in node.decorator_list:
        func = decorator.func if isinstance(decorator, ast.Call) else decorator
        kind = last_name(func)
        if kind in {"group", "command"} and (
            isinstance(func, ast.Attribute) or full_name(func, module).startswith(_CLICK)
        ):
            return kind, decorator
    return None


def _paths(code: Code, node: _Function, module: Module, depth: int) -> Owners:
    made = _made(node, module)
    if made is None or depth > _MAX_DEPTH:
        return frozenset({ROOT}) if not _groups(code) else None
    func = made[1].func if isinstance(made[1], ast.Call) else made[1]
    names = _names(made[1], node)
    if full_name(func, module).startswith(_CLICK):  # stands for itself until a group takes it
        taken = [_under(code, call, node, names, depth) for call in code.callers("add_command")]
        found = [paths for paths in taken if paths is not None]
        if found:
            return frozenset().union(*found)
        return frozenset({ROOT}) if made[0] == "group" or not _groups(code) else None
    parent = owned(func.value, module, code) if isinstance(func, ast.Attribute) else None
    if parent is None or isinstance(parent[0], (ast.ClassDef, ast.Lambda)):
        return None
    above = _paths(code, parent[0], parent[1], depth + 1)
    return (
        None
        if above is None or names is None
        else frozenset(f"{path} {name}".strip() for path in above for name in names)
    )


def _under(code: Code, call: SourceCall, node: _Function, names: list[str] | None, depth: int) -> Owners:
    """The paths that `group.add_command(node, name)` gives a command; None if the call is about another."""
    target = owned(call.node.args[0], call.module, code) if call.node.args else None
    func = call.node.func
    parent = owned(func.value, call.module, code) if isinstance(func, ast.Attribute) else None
    if target is None or target[0] is not node or parent is None or isinstance(parent[0], (ast.ClassDef, ast.Lambda)):
        return None
    given = [*call.node.args[1:], *(word.value for word in call.node.keywords if word.arg == "name")]
    if given:
        names = [given[0].value] if isinstance(given[0], ast.Constant) and isinstance(given[0].value, str) else None
    above = _paths(code, parent[0], parent[1], depth + 1)
    return (
        None
        if above is None or names is None
        else frozenset(f"{path} {name}".strip() for path in above for name in names)
    )


def _names(decorator: ast.expr, node: _Function) -> list[str] | None:
    """The names a command goes by: the one given, or what click and typer make of the function's name."""
    if isinstance(decorator, ast.Call):
        given = [*decorator.args, *(word.value for word in decorator.keywords if word.arg == "name")]
        if given:
            first = given[0]
            return [first.value] if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
    plain = node.name.lower().replace("_", "-")
    short = next((plain.removesuffix(end) for end in _SUFFIXES if plain.endswith(end) and plain != end), plain)
    return list(dict.fromkeys((plain, short, node.name)))


# typer


def app_commands(module: Module) -> dict[str, tuple[str, ...] | None]:
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
            names = _names(decorator, node)
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
