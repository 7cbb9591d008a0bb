"""Sub-commands of argparse: which parser an expression means, and so which commands a flag belongs to."""

from __future__ import annotations

import ast

from vertexrig.trainer_source.code import Code, owned, written_in
from vertexrig.trainer_source.flag_collector import ROOT, Owners
from vertexrig.trainer_source.modules import (
    FUNCTIONS,
    FunctionNode,
    Module,
    Scope,
    SourceCall,
    last_name,
    parameter_names,
)

# Parsers that are made by functions of each other: the source decides how far a search would go.
_MAX_DEPTH = 12
_MAX_STEPS = 2_000
_GROUPS = frozenset({"add_argument_group", "add_mutually_exclusive_group"})


class Parsers:
    """Answers for the parsers of one trainer; None where an expression cannot be followed."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self.used = any(True for _ in code.callers("add_subparsers"))
        self._parents: dict[int, set[str] | None] | None = None
        self._steps = 0

    def owners(self, call: SourceCall) -> Owners:
        """Return the commands whose parser `call` is a method of: `parser.add_argument(...)`."""
        if not isinstance(call.node.func, ast.Attribute):
            return None
        # per call, as in Code.values: a hard one leaves the others their answers
        self._steps = 0
        return self._of(call.node.func.value, call.scope, call.module, 0)

    def paths(self, call: SourceCall) -> Owners:
        """Return the paths of the commands that an `add_parser` call makes."""
        self._steps = 0
        return self._made(call.node, call.scope, call.module, 0)

    def may_be(self, node: ast.expr, call: SourceCall) -> bool:
        """Whether an argument of a call may be a parser, or a group of one."""
        self._steps = 0
        return self._may_be(node, call.scope, call.module, 0)

    def _may_be(self, node: ast.expr | None, scope: Scope, module: Module, depth: int) -> bool:
        self._steps += 1
        if node is None or depth > _MAX_DEPTH or self._steps > _MAX_STEPS:
            return False
        if isinstance(node, ast.Call):
            own = owned(node.func, module, self._code)
            returned = [(*one, own[1]) for one in _returns(*own)] if own is not None else []
            return makes_parser(node) or any(self._may_be(*one, depth + 1) for one in returned)
        key = _key(node)
        for level in scope.levels() if key else ():
            values = [(value, written_in(value, level), module) for value in level.names.get(key, ())]
            if isinstance(level.node, FUNCTIONS) and key in parameter_names(level.node):
                values += self._code.handed(level.node, key, level, module) or []
            if values:
                return any(self._may_be(*one, depth + 1) for one in values)
        return False

    def _extra(self) -> dict[int, set[str] | None]:
        """Return, for each parent parser, the commands of the parsers made from it."""
        if self._parents is None:
            self._parents = {}
            # parents=[common]: a flag of `common` belongs to every command whose parser was made of it
            for name in ("add_parser", "ArgumentParser"):
                for call in self._code.callers(name):
                    given = call.keywords.get("parents")
                    for parent in given.elts if isinstance(given, (ast.List, ast.Tuple)) else ():
                        for maker in self._makers(parent, call.scope, call.module):
                            made = self._made(call.node, call.scope, call.module, 1)
                            before = self._parents.setdefault(id(maker), set())
                            # one unknown child leaves the parent's commands unknown for good
                            if made is None or before is None:
                                self._parents[id(maker)] = None
                            else:
                                before.update(made)
        return self._parents

    def _makers(self, node: ast.expr, scope: Scope, module: Module, depth: int = 0) -> list[ast.Call]:
        self._steps += 1
        if depth > _MAX_DEPTH or self._steps > _MAX_STEPS:
            return []
        if isinstance(node, ast.Call):
            own = owned(node.func, module, self._code)
            if own is not None:
                returned = _returns(*own)
                return [call for value, inner in returned for call in self._makers(value, inner, own[1], depth + 1)]
            return [node]
        found: list[ast.Call] = []
        for value, level in _bindings(node, scope):
            if value is not None and value is not node and isinstance(value, ast.Call):
                found += self._makers(value, level, module, depth + 1)
        return found

    def _made(self, call: ast.Call, scope: Scope, module: Module, depth: int) -> Owners:
        """Return the paths of the parser that a call makes."""
        name = last_name(call.func)
        if depth > _MAX_DEPTH:
            return None
        if name == "add_parser" and isinstance(call.func, ast.Attribute):
            base = self._of(call.func.value, scope, module, depth + 1)
            names = self._names(call, scope, module)
            if base is None or names is None:
                return None
            return frozenset(f"{path} {name}".strip() for path in base for name in names)
        if name in _GROUPS | {"add_subparsers"} and isinstance(call.func, ast.Attribute):
            return self._of(call.func.value, scope, module, depth + 1)
        own = owned(call.func, module, self._code)
        if own is not None:
            # a subclass of ArgumentParser
            if isinstance(own[0], ast.ClassDef):
                return frozenset({ROOT})
            found = [self._of(value, inner, own[1], depth + 1) for value, inner in _returns(*own)]
            return _joined(found)
        if name.endswith("ArgumentParser"):
            extra = self._extra()
            if id(call) in extra:
                owners = extra[id(call)]
                return None if owners is None else frozenset(owners)
            return frozenset({ROOT})
        return None

    def _names(self, call: ast.Call, scope: Scope, module: Module) -> list[str] | None:
        first = call.args[0] if call.args else next((w.value for w in call.keywords if w.arg == "name"), None)
        names = self._code.texts(first, scope, module)
        if names is None:
            return None
        aliases = next((word.value for word in call.keywords if word.arg == "aliases"), None)
        # argparse accepts an alias wherever the name is
        more = [item.value for item in getattr(aliases, "elts", ()) if isinstance(item, ast.Constant)]
        return [*names, *(name for name in more if isinstance(name, str))]

    def _of(self, node: ast.expr, scope: Scope, module: Module, depth: int) -> Owners:
        self._steps += 1
        if depth > _MAX_DEPTH or self._steps > _MAX_STEPS:
            return None
        if isinstance(node, ast.Call):
            return self._made(node, scope, module, depth + 1)
        bound = _bindings(node, scope)
        if not bound and isinstance(node, ast.Name):
            return self._parameter(node.id, scope, module, depth + 1)
        return _joined([None if value is None else self._of(value, level, module, depth + 1) for value, level in bound])

    def _parameter(self, name: str, scope: Scope, module: Module, depth: int) -> Owners:
        """Return what the callers of a function hand over as its parameter `name`."""
        for level in scope.levels():
            if isinstance(level.node, FUNCTIONS) and name in parameter_names(level.node):
                handed = self._code.handed(level.node, name, level, module)
                return _joined([None if one[0] is None else self._of(*one, depth + 1) for one in handed or ()])  # type: ignore[arg-type]
        return None


def makes_parser(call: ast.Call) -> bool:
    return last_name(call.func) in _GROUPS | {"ArgumentParser", "add_parser"}


def _joined(found: list[Owners]) -> Owners:
    if not found or any(one is None for one in found):
        return None
    return frozenset().union(*(one for one in found if one is not None))


def _key(node: ast.expr) -> str:
    """Return what an expression goes by in the names of a scope; empty if it is neither a name nor an attribute of self."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _bindings(node: ast.expr, scope: Scope) -> list[tuple[ast.expr | None, Scope]]:
    """Return what a name may hold where it is used: of several calls bound one after the other, the last before it."""
    key = _key(node)
    for level in scope.levels() if key else ():
        if key in level.names:
            values = level.names[key]
            calls = [value for value in values if isinstance(value, ast.Call)]
            # `p = sub.add_parser("a"); ...; p = sub.add_parser("b"); ...` reuses one name: the last binding above the
            # use counts.
            if len(calls) == len(values) and level is scope:
                before = [value for value in calls if value.lineno <= node.lineno]
                values = [max(before, key=lambda value: (value.lineno, value.col_offset))] if before else list(calls)
            return [(value, written_in(value, level)) for value in values]
    return []


def _returns(node: FunctionNode | ast.ClassDef, module: Module) -> list[tuple[ast.expr, Scope]]:
    """Return what a function returns, with its scope."""
    return [
        (part.value, scope) for part, scope in module.each(ast.Return) if part.value is not None and scope.node is node
    ]
