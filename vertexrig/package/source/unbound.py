"""Names that a module uses while it is imported and never binds: a misspelt name, a forgotten import."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from vertexrig.package.source.names import Code, Module, dotted, last_name

_KNOWN = frozenset(dir(builtins)) | {
    # Set by the import system, inside classes, by IPython and on Windows: dir(builtins) of this Python has none of
    # them.
    "__file__", "__path__", "__builtins__", "__annotations__", "__class__", "get_ipython", "display", "WindowsError",
}  # fmt: skip
_BINDERS = frozenset({"globals", "vars", "exec", "setattr", "inject", "_convert_"})
"""Functions that bind names of a module; the last is the one of Enum, as in Python's own ssl."""
_RUN_AT_ONCE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Assert, ast.Raise)
_TYPE_PARAMETERS = frozenset({"TypeVar", "ParamSpec", "TypeVarTuple"})  # from Python 3.12 on
_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def undefined(code: Code) -> Iterator[tuple[Module, ast.Name]]:
    """The first use of each such name, with its module. Only statements at the top of a module are looked at, outside of any branch,
    and a name that is bound anywhere in the module counts as bound: what is found here ends every run."""
    for module in code.modules:
        if open_ended(module):
            continue
        bound = bound_names(module)
        seen: set[str] = set()
        for statement in module.tree.body:
            if isinstance(statement, _RUN_AT_ONCE):
                for name in _used(statement):
                    if name.id not in bound and name.id not in seen:
                        seen.add(name.id)
                        yield module, name


def open_ended(module: Module) -> bool:
    """Whether names may come from where they are not written: a star import, exec, globals(), sys.modules[__name__]."""
    if any(item.name == "*" for item in module.imports):
        return True
    if any(last_name(call.node.func) in _BINDERS for call in module.calls):
        return True
    return any(isinstance(node, ast.Subscript) and dotted(node.value) == "sys.modules" for node, _ in module.nodes)


def bound_names(module: Module) -> set[str]:
    """Every name that is bound anywhere in a module, and Python's own."""
    bound = set(_KNOWN) | set(module.aliases)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            bound.update(node.names)
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            bound.add(node.rest)
        elif type(node).__name__ in _TYPE_PARAMETERS:
            bound.add(str(getattr(node, "name", "")))
    return bound


def _used(statement: ast.stmt) -> Iterator[ast.Name]:
    """Names read while the statement runs: not those inside a lambda, or an annotation that may stay text."""
    stack: list[ast.AST] = [statement]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node
        elif isinstance(node, ast.AnnAssign):
            stack += [part for part in (node.target, node.value) if part is not None]
        # the parts of `a if b else c` and `a or b` run in some cases only
        elif not isinstance(node, (*_LATER, ast.IfExp, ast.BoolOp)):
            stack.extend(ast.iter_child_nodes(node))
