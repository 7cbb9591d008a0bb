"""One walk over each module of a trainer: its names, calls, imports, and its nodes by their kind."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TypeVar, cast

N = TypeVar("N", bound=ast.AST)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Definition = FunctionNode | ast.ClassDef
TRY: tuple[type[ast.Try], ...] = (ast.Try, getattr(ast, "TryStar", ast.Try))
"""`try`, also with `except*` of Python 3.11."""
_BINDERS = frozenset({"globals", "vars", "exec", "setattr", "inject", "_convert_"})
"""Functions that bind names of a module; the last is the one of Enum, as in Python's own ssl."""
MAX_VALUES = 64
"""Of a loop or an expression: a trainer may be made to exhaust the machine that reads it."""
_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


@dataclass(eq=False)
class Scope:
    """A module's, class's or function's names: each bound to the expressions it may hold (None: not knowable)."""

    node: ast.Module | ast.ClassDef | FunctionNode
    parent: Scope | None
    names: dict[str, list[ast.expr | None]] = field(default_factory=dict)

    def bind(self, name: str, value: ast.expr | None) -> None:
        """Add one expression that `name` may hold."""
        self.names.setdefault(name, []).append(value)

    def levels(self) -> Iterator[Scope]:
        """Yield this scope and those around it, from the inside out."""
        level: Scope | None = self
        while level is not None:
            yield level
            level = level.parent


@dataclass(eq=False)
class SourceCall:
    """A call with its place."""

    node: ast.Call
    scope: Scope
    module: Module
    at_import: bool

    @property
    def keywords(self) -> dict[str, ast.expr]:
        """The arguments that are given by name."""
        return {keyword.arg: keyword.value for keyword in self.node.keywords if keyword.arg is not None}

    def argument(self, position: int, name: str) -> ast.expr | None:
        """Return what is given to a parameter, by its position or by its name; None if nothing is."""
        return self.node.args[position] if position < len(self.node.args) else self.keywords.get(name)

    @property
    def unpacks(self) -> bool:
        """Whether it has `*args` or `**kwargs`, so that its arguments are not all written down."""
        starred = any(isinstance(argument, ast.Starred) for argument in self.node.args)
        return starred or any(keyword.arg is None for keyword in self.node.keywords)


@dataclass(frozen=True)
class Imported:
    """One imported name: `module` (absolute), `name` from it or empty, whether a failure to import it is caught."""

    module: str
    name: str
    line: int
    caught: bool
    at_import: bool


@dataclass(eq=False)
class Module:
    """A parsed module of the trainer, after its walk."""

    name: str
    file: str
    tree: ast.Module
    is_package: bool
    scope: Scope
    is_entry: bool = True
    nodes: list[tuple[ast.AST, Scope]] = field(default_factory=list)
    by_kind: dict[type[ast.AST], list[tuple[ast.AST, Scope]]] = field(default_factory=dict)
    parents: dict[int, ast.AST] = field(default_factory=dict)
    calls: list[SourceCall] = field(default_factory=list)
    imports: list[Imported] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = field(default_factory=dict)

    def each(self, kind: type[N]) -> list[tuple[N, Scope]]:
        """Return the nodes of one kind with their scopes, in the order of the source."""
        return cast("list[tuple[N, Scope]]", self.by_kind.get(kind, []))

    @property
    def names(self) -> Iterator[tuple[str, ast.Name | ast.Attribute]]:
        """Every name and the last part of every dotted one."""
        yield from ((node.id, node) for node, _ in self.each(ast.Name))
        yield from ((node.attr, node) for node, _ in self.each(ast.Attribute))

    @property
    def open_ended(self) -> bool:
        """Whether names may come from where they are not written: a star import, exec, globals(), sys.modules[__name__]."""
        return (
            any(item.name == "*" for item in self.imports)
            or any(last_name(call.node.func) in _BINDERS for call in self.calls)
            or any(dotted(node.value) == "sys.modules" for node, _ in self.each(ast.Subscript))
        )


def dotted(node: ast.AST) -> str:
    """Return `tf.distribute.MirroredStrategy` as text; a part that is not a plain name becomes `?`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "?")
    return ".".join(reversed(parts))


def last_name(node: ast.AST) -> str:
    """Return the last part of a dotted expression; empty for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def plain_text(node: ast.AST | None) -> str | None:
    """Return the text of a plain string in the source; None for any other node."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def catches(handler: ast.ExceptHandler, errors: Collection[str]) -> bool:
    """Whether an `except` takes one of these errors, by their names."""
    if handler.type is None:
        return True
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(last_name(kind) in errors for kind in types)


def full_name(node: ast.expr, module: Module) -> str:
    """Return a dotted expression with its first part as it was imported: `np.int64` is `numpy.int64`."""
    head, _, rest = dotted(node).partition(".")
    return ".".join(part for part in (module.aliases.get(head, head), rest) if part)


def single_binding(name: str, scope: Scope) -> ast.expr | None:
    """Return what a name is bound to, if to one expression only."""
    for level in scope.levels():
        if name in level.names:
            return level.names[name][0] if len(level.names[name]) == 1 else None
    return None


def bound(node: ast.expr, scope: Scope) -> ast.expr | None:
    """Return an expression itself; of a name the one expression that it is bound to."""
    return single_binding(node.id, scope) if isinstance(node, ast.Name) else node


def walk(name: str, file: str, tree: ast.Module, *, is_entry: bool = True) -> Module:
    """Collect names, calls and imports of one module. An explicit stack: depth of the source costs no recursion.

    What is behind `if __name__ == "__main__"` is left out unless the module is the entry: it does not run then.
    """
    module = Module(name, file, tree, file.endswith("__init__.py"), Scope(tree, None), is_entry)
    # (node, its scope, runs when the module is imported, an ImportError here is caught)
    stack: list[tuple[ast.AST, Scope, bool, bool]] = [
        (child, module.scope, True, False) for child in reversed(tree.body)
    ]
    module.parents.update((id(child), tree) for child in tree.body)
    while stack:
        node, scope, live, caught = stack.pop()
        module.nodes.append((node, scope))
        module.by_kind.setdefault(type(node), []).append((node, scope))
        if isinstance(node, (ast.Name, ast.Constant)):
            continue  # most of any source: nothing below them
        _bind(node, scope)
        if isinstance(node, ast.Call):
            module.calls.append(SourceCall(node, scope, module, live))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            _import(module, node, scope, caught, live)
        children = list(_children(module, node, scope, live, caught))
        module.parents.update((id(child[0]), node) for child in children)
        stack.extend(reversed(children))
    return module


def _children(
    module: Module, node: ast.AST, scope: Scope, live: bool, caught: bool
) -> Iterator[tuple[ast.AST, Scope, bool, bool]]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        # Decorators and defaults run where the function is defined; only its body has the new scope, and runs when it
        # is called.
        inner = Scope(node, scope)
        if not isinstance(node, ast.Lambda):
            scope.bind(node.name, None)
            module.definitions.setdefault(node.name, node)
            yield from ((decorator, scope, live, caught) for decorator in node.decorator_list)
        yield node.args, scope, live, caught
        body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
        yield from ((child, inner, False, caught) for child in body)
    elif isinstance(node, ast.ClassDef):
        inner = Scope(node, scope)
        scope.bind(node.name, None)
        module.definitions.setdefault(node.name, node)
        # A class's body, unlike a function's, runs where it is defined.
        outside: list[ast.AST] = [*node.decorator_list, *node.bases, *node.keywords]
        yield from ((child, scope, live, caught) for child in outside)
        yield from ((child, inner, live, caught) for child in node.body)
    elif isinstance(node, TRY):
        survives = caught or any(catches(handler, _IMPORT_ERRORS) for handler in node.handlers)
        # A fallback in the handler of a caught import is itself an alternative: one of the two has to be there.
        parts: list[ast.AST] = [*node.body, *node.handlers, *node.orelse, *node.finalbody]
        yield from ((child, scope, live, survives) for child in parts)
    elif isinstance(node, ast.If):
        main, checking = _is_main_guard(node.test), "TYPE_CHECKING" in dotted(node.test)
        yield node.test, scope, live, caught
        # `if __name__ != "__main__": return` and its like run in imported modules too
        if not main or module.is_entry or isinstance(getattr(node.test, "ops", [None])[0], ast.NotEq):
            yield from ((child, scope, live and not (main or checking), caught or checking) for child in node.body)
        yield from ((child, scope, live, caught) for child in node.orelse)
    else:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.expr_context, ast.operator)):
                yield child, scope, live, caught


def _is_main_guard(test: ast.expr) -> bool:
    if not isinstance(test, ast.Compare):
        return False
    sides = [test.left, *test.comparators]
    return any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)


def _bind(node: ast.AST, scope: Scope) -> None:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            _bind_target(target, node.value, scope)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
        _bind_target(node.target, node.value, scope)
    elif isinstance(node, ast.AugAssign):
        _bind_target(node.target, None, scope)
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        _bind_loop(node.target, node.iter, scope)
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            if item.optional_vars is not None:
                _bind_target(item.optional_vars, None, scope)
    elif isinstance(node, ast.ExceptHandler) and node.name:
        scope.bind(node.name, None)


def _bind_target(target: ast.expr, value: ast.expr | None, scope: Scope) -> None:
    if isinstance(target, ast.Name):
        scope.bind(target.id, value)
    elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
        owner = enclosing_class(scope)
        if owner is not None:
            # Kept with the scope it was written in, because its names are that function's parameters.
            owner.bind(f"self.{target.attr}", value)
            if value is not None:
                value.__dict__["_scope"] = scope
    elif isinstance(target, (ast.Tuple, ast.List)):
        pairs = value.elts if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) else None
        for index, element in enumerate(target.elts):
            _bind_target(element, pairs[index] if pairs else None, scope)
    elif isinstance(target, ast.Starred):
        _bind_target(target.value, None, scope)


def _bind_loop(target: ast.expr, items: ast.expr, scope: Scope) -> None:
    # A loop over plain names declares one flag for each: the target is bound to every member.
    if isinstance(items, (ast.Tuple, ast.List, ast.Set)) and items.elts and len(items.elts) <= MAX_VALUES:
        for element in items.elts:
            _bind_target(target, element, scope)
    else:
        _bind_target(target, None, scope)


def enclosing_class(scope: Scope) -> Scope | None:
    return next((level for level in scope.levels() if isinstance(level.node, ast.ClassDef)), None)


def _import(module: Module, node: ast.Import | ast.ImportFrom, scope: Scope, caught: bool, live: bool) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            module.imports.append(Imported(alias.name, "", node.lineno, caught, live))
            # `import a.b` binds a; `import a.b as c` binds c to a.b
            name = alias.asname or alias.name.split(".")[0]
            module.aliases[name] = alias.name if alias.asname else name
            scope.bind(name, None)
        return
    base = node.module or ""
    if node.level:
        parts = module.name.split(".") if module.name else []
        # One dot means the package a module is in: for an __init__.py that is the module itself.
        keep = len(parts) - node.level + (1 if module.is_package else 0)
        base = ".".join([*parts[: max(keep, 0)], *([node.module] if node.module else [])])
    for alias in node.names:
        module.imports.append(Imported(base, alias.name, node.lineno, caught, live))
        module.aliases[alias.asname or alias.name] = f"{base}.{alias.name}"
        scope.bind(alias.asname or alias.name, None)


def parameter_names(node: ast.AST) -> set[str]:
    """Return the names of a function's parameters, `*args` and `**kwargs` among them."""
    args = getattr(node, "args", None)
    if not isinstance(args, ast.arguments):
        return set()
    extra = [one for one in (args.vararg, args.kwarg) if one is not None]
    return {arg.arg for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs, *extra]}
