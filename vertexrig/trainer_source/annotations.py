"""The annotated fields of a class and parameters of a function, as a command line made of them would see them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import cast

from vertexrig.trainer_source.code import Code, owned
from vertexrig.trainer_source.modules import FunctionNode, Module, full_name, last_name, plain_text
from vertexrig.trainer_source.source_tree import parse
from vertexrig.trainer_source.trainer_model import DYNAMIC

_MANY = frozenset(
    {"List", "list", "Sequence", "Iterable", "Set", "set", "Tuple", "tuple", "FrozenSet", "MutableSequence"}
)
_WRAPPERS = frozenset({"Annotated", "Final", "Required", "InitVar"})
_FLOAT_TEXT = {"int": False, "bool": False, "float": True, "str": True, "Path": True, "PathLike": True}
_MAX_BASES = 8
_MAKERS = frozenset({"field", "HfArg"})
_HARMLESS = frozenset({"object", "abc.ABC", "ABC", "typing.Generic", "Generic", "Protocol"})
"""Bases that declare no field."""


@dataclass(frozen=True)
class Kind:
    """A type annotation as far as it is plain.

    Args:
        type: `int`, `float`, `str`, `bool`, `Path`, or `dynamic`.
        choices: The members of a Literal, as text.
        many: Whether it is a list.
        nested: The trainer's own class it names, with its module.
    """

    type: str = DYNAMIC
    choices: tuple[str, ...] | None = None
    many: bool = False
    nested: tuple[ast.ClassDef, Module] | None = None

    @property
    def takes_float_text(self) -> bool | None:
        return _FLOAT_TEXT.get(self.type)


@dataclass(frozen=True)
class SourceField:
    """One field or parameter.

    Args:
        name: As written.
        kind: What its annotation says.
        required: Whether nothing is declared in its place when it is not given.
        default: The expression declared for that case, None if there is none or it is made by a factory.
        aliases: Other names that `HfArg(aliases=…)` gives it.
        module: Where it is.
        line: Its line, counted from 1.
    """

    name: str
    kind: Kind
    required: bool
    default: ast.expr | None
    aliases: tuple[str, ...]
    module: Module
    line: int


def base_names(cls: ast.ClassDef, module: Module, code: Code, depth: int = 0) -> set[str]:
    """Full names of a class's bases that are not written in the trainer, through those that are."""
    found: set[str] = set()
    for base in cls.bases:
        node = base.value if isinstance(base, ast.Subscript) else base
        own = owned(node, module, code)
        # a class may name itself as its base, directly or in a circle: source that no Python would run is read all the
        # same
        if own is not None and isinstance(own[0], ast.ClassDef) and own[0] is not cls and depth < _MAX_BASES:
            found |= base_names(own[0], own[1], code, depth + 1)
        else:
            found.add(full_name(node, module))
    return found


def is_whole(cls: ast.ClassDef, module: Module, code: Code) -> bool:
    """Whether all fields of a class are written in the trainer."""
    return not base_names(cls, module, code) - _HARMLESS


def annotated_names(cls: ast.ClassDef, module: Module, code: Code, depth: int = 0) -> list[str]:
    """Return every annotated name of a class, those of the bases written in the trainer first."""
    names: list[str] = []
    for base in cls.bases if depth < _MAX_BASES else ():
        own = owned(base, module, code)
        if own is not None and isinstance(own[0], ast.ClassDef) and own[0] is not cls:
            names += annotated_names(own[0], own[1], code, depth + 1)
    here = [node.target for node in cls.body if isinstance(node, ast.AnnAssign)]
    return list(dict.fromkeys([*names, *(target.id for target in here if isinstance(target, ast.Name))]))


def class_fields(cls: ast.ClassDef, module: Module, code: Code, depth: int = 0) -> list[SourceField]:
    """Return a class's annotated fields, those of the bases written in the trainer first."""
    found: dict[str, SourceField] = {}
    for base in cls.bases if depth < _MAX_BASES else ():
        own = owned(base, module, code)
        if own is not None and isinstance(own[0], ast.ClassDef) and own[0] is not cls:
            found |= {item.name: item for item in class_fields(own[0], own[1], code, depth + 1)}
    for node in cls.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        written = node.annotation.value if isinstance(node.annotation, ast.Subscript) else node.annotation
        if node.target.id.startswith("_") or last_name(written) == "ClassVar":
            continue
        item = _field(node.target.id, node.annotation, node.value, module, code, node.lineno)
        if item is not None:
            found[item.name] = item
    return list(found.values())


def parameters(function: FunctionNode, module: Module, code: Code) -> list[SourceField]:
    """Return a function's parameters, without `*args` and `**kwargs`."""
    args = [*function.args.posonlyargs, *function.args.args]
    defaults = dict(zip([arg.arg for arg in reversed(args)], reversed(function.args.defaults), strict=False))
    keywords = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    given: dict[str, ast.expr | None] = {**defaults, **{arg.arg: default for arg, default in keywords}}
    items = [
        _field(arg.arg, arg.annotation, given.get(arg.arg), module, code, arg.lineno)
        for arg in [*args, *function.args.kwonlyargs]
    ]
    return [item for item in items if item is not None]


def _field(
    name: str, annotation: ast.expr | None, value: ast.expr | None, module: Module, code: Code, line: int
) -> SourceField | None:
    kind = kind_of(annotation, module, code)
    if not (isinstance(value, ast.Call) and last_name(value.func) in _MAKERS):
        return SourceField(name, kind, value is None, value, (), module, line)
    keywords = {item.arg: item.value for item in value.keywords if item.arg}
    init = keywords.get("init")
    # field(init=False) is not a parameter of __init__, so no library makes a flag of it
    if isinstance(init, ast.Constant) and init.value is False:
        return None
    default = keywords.get("default")
    required = default is None and "default_factory" not in keywords
    written = map(plain_text, ast.walk(keywords["aliases"])) if "aliases" in keywords else ()
    return SourceField(name, kind, required, default, tuple(text for text in written if text), module, line)


def kind_of(node: ast.expr | None, module: Module, code: Code, depth: int = 0) -> Kind:
    """Return what an annotation says: `Optional[int]`, `list[str]`, `Literal["a", "b"]`, `float | None`, a text of these."""
    if node is None or depth > 10:
        return Kind()
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return kind_of(cast(ast.Expression, parse(node.value, mode="eval")).body, module, code, depth + 1)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return Kind()
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _either([node.left, node.right], module, code, depth)
    if isinstance(node, ast.Subscript):
        return _subscript(node, module, code, depth)
    name = last_name(node)
    own = owned(node, module, code)
    if own is not None:
        return Kind(nested=(own[0], own[1])) if isinstance(own[0], ast.ClassDef) else Kind()
    if name in _MANY:
        return Kind(many=True)
    return Kind(name if name in _FLOAT_TEXT else DYNAMIC)


def _subscript(node: ast.Subscript, module: Module, code: Code, depth: int) -> Kind:
    name = last_name(node.value)
    inner = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name == "Optional":
        return kind_of(inner[0], module, code, depth + 1)
    if name == "Union":
        return _either(inner, module, code, depth)
    if name == "Literal":
        texts = tuple(str(item.value) for item in inner if isinstance(item, ast.Constant))
        kinds = {type(item.value).__name__ for item in inner if isinstance(item, ast.Constant)}
        return Kind(kinds.pop() if len(kinds) == 1 else "str", texts if len(texts) == len(inner) else None)
    if name in _WRAPPERS and inner:
        return kind_of(inner[0], module, code, depth + 1)
    if name in _MANY and inner:
        item = kind_of(inner[0], module, code, depth + 1)
        return Kind(item.type, item.choices, many=True)
    return Kind()


def _either(options: list[ast.expr], module: Module, code: Code, depth: int) -> Kind:
    rest = [one for one in options if not (isinstance(one, ast.Constant) and one.value is None)]
    return kind_of(rest[0], module, code, depth + 1) if len(rest) == 1 else Kind()
