"""Flags and commands declared with click's decorators."""

from __future__ import annotations

import ast

from vertexrig.trainer_source.code import Code, owned
from vertexrig.trainer_source.flag_collector import (
    ROOT,
    Collector,
    Owners,
    command_names,
    commands_of,
    constant,
    texts_of,
    truth,
)
from vertexrig.trainer_source.modules import FUNCTIONS, Module, SourceCall, dotted, full_name, last_name, plain_text
from vertexrig.trainer_source.trainer_model import DYNAMIC, Flag

_CLICK_TYPES = {
    "INT": "int",
    "IntRange": "int",
    "FLOAT": "float",
    "FloatRange": "float",
    "STRING": "str",
    "BOOL": "bool",
}


def _option(collector: Collector, call: SourceCall) -> None:
    """Collect the flag of `@click.option`, or of `@option` if it is imported from click."""
    full = full_name(call.node.func, call.module)
    if not full.startswith((*_CLICK, _GROUPED)):
        imported = dotted(call.node.func).partition(".")[0] in call.module.aliases and "." in full
        if imported and _decorated(call) is not None:
            _foreign(collector, call, full)
        return
    collector.parsers.add("click")
    keywords = call.keywords
    texts = [collector.code.texts(argument, call.scope, call.module) for argument in call.node.args]
    if call.unpacks or not texts or any(text is None for text in texts):
        collector.skip(call, "the name of this option is not a plain text")
        return
    declared = [name for text in texts for name in text or ()]
    # "--shout/--no-shout" declares a switch with both of its spellings
    names = tuple(part.strip() for name in declared if name.startswith("-") for part in name.split("/"))
    is_argument = full.endswith(".argument")
    if not names and not is_argument:
        collector.skip(call, "this option has no name")
        return
    names = names or (declared[0],)
    plain = [name for name in declared if not name.startswith("-")]
    default, kind = keywords.get("default"), _click_type(collector, call, keywords)
    value = constant(collector, default, call)
    switch = truth(collector, keywords.get("is_flag"), call) or any("/" in name for name in declared)
    collector.flags.append(
        Flag(
            names=names,
            # click stores under the bare name if one is given, else under the longest option.
            dest=plain[0] if plain else max(names, key=len).lstrip("-").replace("-", "_"),
            type="bool" if switch else kind,
            required=_click_owners(collector, call) is not None
            and "envvar" not in keywords
            and (
                truth(collector, keywords.get("required"), call)
                # click asks for an argument without a default unless it says required=False
                or (is_argument and default is None and "required" not in keywords)
            ),
            default=value,
            choices=_click_choices(collector, call, keywords.get("type")),
            action="count" if truth(collector, keywords.get("count"), call) else "store_true" if switch else "store",
            # nargs=-1 and nargs=2 count words in click's own way; how many is left open
            nargs="dynamic" if "nargs" in keywords else None,
            takes_float_text={"int": False, "bool": False, DYNAMIC: None}.get(kind, True),
            parser="click",
            from_variable="envvar" in keywords,
            file=call.module.file,
            line=call.node.lineno,
            commands=commands_of(_click_owners(collector, call)),
        )
    )


def _decorated(call: SourceCall) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the function that a call is a decorator of."""
    functions = (node for node, _ in call.module.nodes if isinstance(node, FUNCTIONS))
    return next((node for node in functions if call.node in node.decorator_list), None)


def _foreign(collector: Collector, call: SourceCall, full: str) -> None:
    """Note an option declared by another package's decorator; not by one of the trainer's own modules."""
    if all(module.name.partition(".")[0] != full.partition(".")[0] for module in collector.code.modules):
        collector.skip(call, f"flags made by {full} are not read")


def read(collector: Collector) -> None:
    """Collect every option and argument, and the commands of click's groups."""
    for call in collector.code.calls:
        if last_name(call.node.func) in {"option", "argument"}:
            _option(collector, call)
    for path in _click_commands(collector.code):
        collector.commands[path] = None
    collector.command_required |= _required_group(collector.code)


def _click_type(collector: Collector, call: SourceCall, keywords: dict[str, ast.expr]) -> str:
    node = keywords.get("type")
    if node is None:
        value = constant(collector, keywords.get("default"), call)
        return type(value).__name__ if value is not None else "str"
    name = last_name(node.func if isinstance(node, ast.Call) else node)
    if name == "Choice":
        return "str"
    return _CLICK_TYPES.get(name, name if name in {"int", "float", "str", "bool"} else DYNAMIC)


def _click_choices(collector: Collector, call: SourceCall, node: ast.expr | None) -> tuple[str, ...] | None:
    folds = isinstance(node, ast.Call) and any(word.arg == "case_sensitive" for word in node.keywords)
    if isinstance(node, ast.Call) and last_name(node.func) == "Choice" and node.args and not folds:
        return texts_of(collector, node.args[0], call)
    return None


_Function = ast.FunctionDef | ast.AsyncFunctionDef
_MAX_DEPTH = 8
_CLICK = ("click.", "rich_click.", "asyncclick.")
_GROUPED = "click_option_group."
"""Library whose `optgroup.option` is an option of click under a heading; `optgroup.group` is the heading."""


def _click_owners(collector: Collector, call: SourceCall) -> Owners:
    """Return the commands that an option's decorator belongs to; None if it is in a function that adds options to others."""
    # a decorator that is made elsewhere and put on several functions is not found here
    node = _decorated(call)
    if node is not None:
        return _paths(collector.code, node, call.module, 0)
    return None if _groups(collector.code) else frozenset({ROOT})


def _click_commands(code: Code) -> list[str]:
    """Return the paths of all commands in a group."""
    found: dict[str, None] = {}
    if _groups(code):
        for node, module in code.nodes:
            if isinstance(node, FUNCTIONS) and _made(node, module) is not None:
                found |= dict.fromkeys(path for path in _paths(code, node, module, 0) or () if path)
    return list(found)


def _required_group(code: Code) -> bool:
    """Whether a group stops without a command: click's own way, unless the decorator says otherwise."""
    return any(
        all(word.arg != "invoke_without_command" for word in getattr(decorator, "keywords", ()))
        for _, _, decorator in _groups(code)
    )


def _groups(code: Code) -> list[tuple[_Function, Module, ast.expr]]:
    """Return the functions that are groups of click, each with its decorator."""
    found = []
    for module in code.modules:
        for node in module.definitions.values():
            if not isinstance(node, ast.ClassDef):
                made = _made(node, module)
                if made is not None and made[0] == "group":
                    found.append((node, module, made[1]))
    return found


def _made(node: _Function, module: Module) -> tuple[str, ast.expr] | None:
    """Return `group` or `command`, and the decorator, of a function that click makes one of."""
    for decorator in node.decorator_list:
        func = decorator.func if isinstance(decorator, ast.Call) else decorator
        kind = last_name(func)
        if full_name(func, module).startswith(_GROUPED):
            continue
        if kind in {"group", "command"} and (
            isinstance(func, ast.Attribute) or full_name(func, module).startswith(_CLICK)
        ):
            return kind, decorator
    return None


def _paths(code: Code, node: _Function, module: Module, depth: int) -> Owners:
    made = _made(node, module)
    if made is None or depth > _MAX_DEPTH:
        # without groups there is one program, so even a helper's options are its own
        return frozenset({ROOT}) if not _groups(code) else None
    func = made[1].func if isinstance(made[1], ast.Call) else made[1]
    names = command_names(made[1], node)
    if full_name(func, module).startswith(_CLICK):  # the program itself until a group takes it
        taken = [_under(code, call, node, names, depth) for call in code.callers("add_command")]
        found = [paths for paths in taken if paths is not None]
        if found:
            return frozenset().union(*found)
        return frozenset({ROOT}) if made[0] == "group" or not _groups(code) else None
    parent = owned(func.value, module, code) if isinstance(func, ast.Attribute) else None
    if parent is None or isinstance(parent[0], (ast.ClassDef, ast.Lambda)):
        return None
    return _within(_paths(code, parent[0], parent[1], depth + 1), names)


def _within(above: Owners, names: list[str] | None) -> Owners:
    """Return the paths of a command with these names in a group with those paths."""
    if above is None or names is None:
        return None
    return frozenset(f"{path} {name}".strip() for path in above for name in names)


def _under(code: Code, call: SourceCall, node: _Function, names: list[str] | None, depth: int) -> Owners:
    """Return the paths that `group.add_command(node, name)` gives a command; None if the call is about another."""
    target = owned(call.node.args[0], call.module, code) if call.node.args else None
    func = call.node.func
    parent = owned(func.value, call.module, code) if isinstance(func, ast.Attribute) else None
    if target is None or target[0] is not node or parent is None or isinstance(parent[0], (ast.ClassDef, ast.Lambda)):
        return None
    given = [*call.node.args[1:], *(word.value for word in call.node.keywords if word.arg == "name")]
    if given:
        text = plain_text(given[0])
        names = None if text is None else [text]
    return _within(_paths(code, parent[0], parent[1], depth + 1), names)
