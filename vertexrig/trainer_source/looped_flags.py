"""Names of flags that argparse is given in a loop over the fields of a class, or over a mapping that is written out:
`for field in fields(Config): parser.add_argument(f"--{field.name}", …)`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from vertexrig.trainer_source.annotations import SourceField, annotated_names, class_fields, is_whole
from vertexrig.trainer_source.code import Code, owned
from vertexrig.trainer_source.modules import (
    FUNCTIONS,
    MAX_VALUES,
    SourceCall,
    bound,
    enclosing_class,
    full_name,
    last_name,
    plain_text,
)

_FIELDS = frozenset({"dataclasses.fields", "fields"})


@dataclass(frozen=True)
class LoopedFlag:
    """One flag of such a loop.

    Args:
        option: As it is declared, such as `--learning_rate`.
        field: The field that it is for; None if the loop is over a mapping.
        always: Whether the call is behind no branch of the loop, so that it declares each flag as it is written there.
    """

    option: str
    field: SourceField | None
    always: bool


def looped_flags(call: SourceCall, code: Code) -> list[LoopedFlag]:
    """Return the flags that a call of `add_argument` in a loop declares; empty if they are not plain."""
    spelled = _spelled(call.node.args[0]) if len(call.node.args) == 1 else None
    loop, always = _loop(call)
    if spelled is None or loop is None:
        return []
    part, option_of = spelled
    members: Iterable[tuple[str, SourceField | None]] = ()
    if isinstance(part, ast.Attribute) and part.attr == "name" and _is(part.value, loop.target):
        members = _fields(loop.iter, call, code)
    elif isinstance(part, ast.Name) and _is(part, _first(loop.target)):
        members = _keys(loop.iter, call, code)
    return [LoopedFlag(option_of(name), field, always) for name, field in members]


def _spelled(node: ast.expr) -> tuple[ast.expr, Callable[[str], str]] | None:
    """Return the variable part of `f"--{part}"`, and how an option is made of it."""
    if isinstance(node, ast.JoinedStr) and len(node.values) == 2 and isinstance(node.values[1], ast.FormattedValue):
        prefix, part = plain_text(node.values[0]), node.values[1].value
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        prefix, part = plain_text(node.left), node.right
    else:
        return None
    if prefix is None or not prefix.startswith("-"):
        return None
    replaced = [plain_text(one) for one in part.args] if isinstance(part, ast.Call) else []
    if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr == "replace":
        old, new = replaced if len(replaced) == 2 else (None, None)
        if old is not None and new is not None:
            return part.func.value, lambda name: prefix + name.replace(old, new)
    return part, lambda name: prefix + name


def _loop(call: SourceCall) -> tuple[ast.For | None, bool]:
    """Return the loop around a call, and whether no branch of it stands between them."""
    always, here = True, call.module.parents.get(id(call.node))
    while here is not None and not isinstance(here, (ast.For, *FUNCTIONS)):
        always = always and not isinstance(here, (ast.If, ast.Try, ast.IfExp))
        here = call.module.parents.get(id(here))
    return (here, always) if isinstance(here, ast.For) else (None, False)


def _first(target: ast.expr) -> ast.expr:
    return target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target


def _is(node: ast.expr, target: ast.expr) -> bool:
    return isinstance(node, ast.Name) and isinstance(target, ast.Name) and node.id == target.id


def _fields(node: ast.expr, call: SourceCall, code: Code) -> list[tuple[str, SourceField | None]]:
    """Return the fields of `fields(Config)` and `Config.__dataclass_fields__.values()`."""
    if not isinstance(node, ast.Call):
        return []
    if full_name(node.func, call.module) in _FIELDS and len(node.args) == 1:
        return _of_class(node.args[0], call, code)
    mapping = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "values" else None
    if isinstance(mapping, ast.Attribute) and mapping.attr == "__dataclass_fields__":
        return _of_class(mapping.value, call, code)
    return []


def _keys(node: ast.expr, call: SourceCall, code: Code) -> list[tuple[str, SourceField | None]]:
    """Return the keys of a mapping that is written out, or of a class's `__annotations__`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"items", "keys"}:
        node = node.func.value
    if isinstance(node, ast.Attribute) and node.attr in {"__annotations__", "__dataclass_fields__"}:
        return _of_class(node.value, call, code)
    if isinstance(node, ast.Name) and _is_changed(node.id, call):
        return []
    made = bound(node, call.scope)
    keys = [plain_text(key) for key in made.keys] if isinstance(made, ast.Dict) else []
    return [(key, None) for key in keys if key is not None] if None not in keys and len(keys) <= MAX_VALUES else []


def _is_changed(name: str, call: SourceCall) -> bool:
    """Whether a module gives a mapping more keys than it is written with."""
    stored = [one.value for one, _ in call.module.each(ast.Subscript) if isinstance(one.ctx, ast.Store)]
    stored += [one.value for one, _ in call.module.each(ast.Attribute) if one.attr in {"update", "setdefault"}]
    return any(isinstance(one, ast.Name) and one.id == name for one in stored)


def _of_class(node: ast.expr, call: SourceCall, code: Code) -> list[tuple[str, SourceField | None]]:
    """Return the fields of a class, of an instance of one, or of `cls`; empty if they are not all written in the trainer."""
    made = bound(node, call.scope)
    target = made.func if isinstance(made, ast.Call) else node
    owner = enclosing_class(call.scope) if isinstance(target, ast.Name) and target.id in {"cls", "self"} else None
    found = (owner.node, call.module) if owner is not None else owned(target, call.module, code)
    cls, module = found if found is not None else (None, call.module)
    if not isinstance(cls, ast.ClassDef) or not is_whole(cls, module, code):
        return []
    if owner is not None and any(
        last_name(base) == cls.name for one, _, _ in code.each(ast.ClassDef) for base in one.bases
    ):
        return []  # `cls` may be a class that has more
    known = {item.name: item for item in class_fields(cls, module, code)}
    return [(name, known.get(name)) for name in annotated_names(cls, module, code)]
