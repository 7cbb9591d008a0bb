"""All modules of one trainer, and the questions asked across them: calls by name, texts, and what a name in them can mean.

`Code.values` follows constants through assignments, imports between the trainer's own modules, `self.x` attributes and
function parameters, as far as that is certain. What is not certain is None ("dynamic"): a check must then stay silent.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import cast

from vertexrig.trainer_source.modules import (
    FUNCTIONS,
    MAX_VALUES,
    Definition,
    FunctionNode,
    Module,
    N,
    Scope,
    SourceCall,
    dotted,
    enclosing_class,
    full_name,
    last_name,
    parameter_names,
)

# A trainer may be made to exhaust the machine that reads it: names that refer to each other, loops that multiply their values.
_MAX_DEPTH = 12
_MAX_STEPS = 4_000


def _unused(modules: list[Module]) -> set[int]:
    """Return the ids of top-level functions of imported modules that are named nowhere but in their module's main guard, which is not read."""
    named = {name for module in modules for name, _ in module.names}
    named |= {item.name for module in modules for item in module.imports}
    return {
        id(node)
        for module in modules
        for node in module.tree.body
        if not module.is_entry and isinstance(node, FUNCTIONS) and not node.decorator_list and node.name not in named
    }


class Code:
    """All modules read of one trainer, and the questions asked across them."""

    def __init__(self, modules: list[Module]) -> None:
        self.modules = modules
        self.by_name = {module.name: module for module in modules}
        self._unused = _unused(modules)
        self.calls = [call for module in modules for call in module.calls if not self.idle(call.scope)]
        self._steps = 0
        self._by_callee: dict[str, list[SourceCall]] = {}
        for call in self.calls:
            self._by_callee.setdefault(last_name(call.node.func), []).append(call)

    def idle(self, scope: Scope) -> bool:
        """Whether a scope is in a function that this trainer does not use, such as `main` of a helper that is a program, too."""
        return bool(self._unused) and not self._unused.isdisjoint(id(level.node) for level in scope.levels())

    def callers(self, name: str) -> list[SourceCall]:
        """Return every call whose function's last name is `name`."""
        return self._by_callee.get(name, [])

    @property
    def nodes(self) -> Iterator[tuple[ast.AST, Module]]:
        """Every node of every module."""
        return ((node, module) for module in self.modules for node, _ in module.nodes)

    def each(self, kind: type[N]) -> Iterator[tuple[N, Scope, Module]]:
        """Return every node of one kind."""
        return ((node, scope, module) for module in self.modules for node, scope in module.each(kind))

    @property
    def names(self) -> Iterator[tuple[str, ast.Name | ast.Attribute]]:
        """Every name of every module."""
        return (pair for module in self.modules for pair in module.names)

    @property
    def texts_written(self) -> Iterator[tuple[str, ast.Constant, Module]]:
        """Every plain text in the source."""
        return ((n.value, n, module) for n, _, module in self.each(ast.Constant) if isinstance(n.value, str))

    @cached_property
    def looked_up(self) -> dict[int, ast.Subscript]:
        """Every `os.environ["NAME"]` that is read, by the id of the node of its name."""
        return {
            id(node.slice): node
            for node, _, _ in self.each(ast.Subscript)
            if isinstance(node.ctx, ast.Load) and dotted(node.value).endswith("environ")
        }

    def values(self, node: ast.expr | None, scope: Scope, module: Module, depth: int = 0) -> tuple[object, ...] | None:
        """Return the constants an expression can have: all of them, or None when that is not certain."""
        # Counted per question, so that one hard expression does not close the answers to the others.
        self._steps = 0 if depth == 0 else self._steps + 1
        if node is None or depth > _MAX_DEPTH or self._steps > _MAX_STEPS:
            return None
        if isinstance(node, ast.Constant):
            return (node.value,)
        if isinstance(node, ast.Name):
            return self._name(node.id, scope, module, depth + 1)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope, module, depth + 1)
        if isinstance(node, (ast.IfExp, ast.BoolOp)):
            options = [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values
            return self._union([self.values(option, scope, module, depth + 1) for option in options])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.values(node.operand, scope, module, depth + 1)
            if inner is not None and all(isinstance(value, (int, float)) for value in inner):
                return tuple(-value for value in inner if isinstance(value, (int, float)))
            return None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._joined([node.left, node.right], scope, module, depth + 1)
        if isinstance(node, ast.JoinedStr):
            return self._joined(list(node.values), scope, module, depth + 1)
        if isinstance(node, ast.FormattedValue) and node.format_spec is None and node.conversion == -1:
            return self.values(node.value, scope, module, depth + 1)
        return None

    def texts(self, node: ast.expr | None, scope: Scope, module: Module) -> tuple[str, ...] | None:
        """Like `values`, for expressions that must be text."""
        values = self.values(node, scope, module)
        plain = values is not None and all(isinstance(value, str) for value in values)
        return cast("tuple[str, ...]", values) if plain else None

    @staticmethod
    def _union(parts: list[tuple[object, ...] | None]) -> tuple[object, ...] | None:
        found: dict[tuple[type, object], object] = {}
        for part in parts:
            if part is None:
                return None
            # by type too: 1, 1.0 and True are equal and are different defaults
            found.update({(type(value), value): value for value in part})
        return tuple(found.values()) if 0 < len(found) <= MAX_VALUES else None

    def _joined(self, parts: list[ast.expr], scope: Scope, module: Module, depth: int) -> tuple[object, ...] | None:
        texts = [""]
        for part in parts:
            values = self.values(part, scope, module, depth)
            if values is None or not all(isinstance(value, str) for value in values):
                return None
            texts = [text + str(value) for text in texts for value in values]
            # every part multiplies the texts, and `x = x + x` in a circle of names their length
            if len(texts) > MAX_VALUES or len(texts[0]) > 10_000:
                return None
        return tuple(texts)

    def _name(self, name: str, scope: Scope, module: Module, depth: int) -> tuple[object, ...] | None:
        for level in scope.levels():
            node = level.node
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and name in parameter_names(node):
                # a parameter that is assigned anew may hold anything by then
                return None if name in level.names else self._parameter(node, name, level, module, depth)
            # A class body's names are not seen from its methods.
            if name in level.names and (level is scope or not isinstance(node, ast.ClassDef)):
                # an import binds to None; a second binding of the name would make the list longer
                if name in module.aliases and level.names[name] == [None]:
                    return self._imported(module.aliases[name], depth)
                return self._union([self.values(value, level, module, depth) for value in level.names[name]])
        return None

    def _imported(self, target: str, depth: int) -> tuple[object, ...] | None:
        owner, _, name = target.rpartition(".")
        source = self.by_name.get(owner)
        return self._name(name, source.scope, source, depth) if source is not None else None

    def _attribute(self, node: ast.Attribute, scope: Scope, module: Module, depth: int) -> tuple[object, ...] | None:
        if isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}:
            owner = enclosing_class(scope)
            bound = owner.names.get(f"self.{node.attr}", []) + owner.names.get(node.attr, []) if owner else []
            return self._union([self.values(v, written_in(v, owner), module, depth) for v in bound]) if owner else None
        head, _, rest = dotted(node).partition(".")
        if head in module.aliases:
            return self._imported(f"{module.aliases[head]}.{rest}", depth)
        return None

    def _parameter(
        self, node: FunctionNode, name: str, level: Scope, module: Module, depth: int
    ) -> tuple[object, ...] | None:
        handed = self.handed(node, name, level, module)
        return self._union([self.values(*one, depth) for one in handed]) if handed is not None else None

    def handed(
        self, node: FunctionNode, name: str, level: Scope, module: Module
    ) -> list[tuple[ast.expr | None, Scope, Module]] | None:
        """Return what every call of a function gives as its parameter `name`, or its default; None where that is not plain.

        Args:
            node: The function.
            name: The parameter.
            level: The function's own scope.
            module: Its module.
        """
        if isinstance(node, ast.Lambda):
            return None
        owner = level.parent.node if level.parent else None
        # __init__ is called by the name of its class
        called_as = owner.name if isinstance(owner, ast.ClassDef) and node.name == "__init__" else node.name
        is_method = isinstance(owner, ast.ClassDef) and "staticmethod" not in map(last_name, node.decorator_list)
        positional = [arg.arg for arg in [*node.args.posonlyargs, *node.args.args]][is_method:]
        defaults = dict(zip(reversed(positional), reversed(node.args.defaults), strict=False))
        keywords = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        defaults |= {arg.arg: default for arg, default in keywords if default is not None}
        calls = self.callers(called_as)
        # Without a call in sight the function may be called from elsewhere, with anything.
        if not calls or any(call.unpacks for call in calls) or (node.args.vararg and node.args.vararg.arg == name):
            return None
        found: list[tuple[ast.expr | None, Scope, Module]] = []
        for call in calls:
            index = positional.index(name) if name in positional else len(call.node.args)
            given = call.argument(index, name)
            here = (call.scope, call.module) if given is not None else (level.parent or level, module)
            found.append((given if given is not None else defaults.get(name), *here))
        return found


def written_in(value: ast.expr | None, default: Scope) -> Scope:
    """Return the scope of an expression: that of the method that sets `self.x`, which `modules` keeps in the expression; else the one given."""
    scope = value.__dict__.get("_scope") if value is not None else None
    return scope if isinstance(scope, Scope) else default


def owned(node: ast.expr | None, module: Module, code: Code) -> tuple[Definition, Module] | None:
    """Return the trainer's own function or class that an expression names, and its module."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return None
    owner, _, last = full_name(node, module).rpartition(".")
    source = code.by_name.get(owner) if owner else module
    found = source.definitions.get(last) if source is not None else None
    return (found, source) if found is not None and source is not None else None
