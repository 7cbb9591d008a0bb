"""One walk over each module of a trainer, and what a name in it can mean.

`Code.values` follows constants through assignments, imports between the trainer's own modules, `self.x` attributes and
function parameters, as far as that is certain. What is not certain is None ("dynamic"): a check must then stay silent.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Definition = FunctionNode | ast.ClassDef
ROOT = ""
"""The path of the program's own parser; a sub-command's is its name, one within another `data prepare`."""
Owners = frozenset[str] | None
"""The commands that a flag belongs to; None where that is not known."""
TRY: tuple[type[ast.Try], ...] = (ast.Try, getattr(ast, "TryStar", ast.Try))
"""`try`, also with `except*` of Python 3.11."""
_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
# A trainer may be made to exhaust the machine that reads it: names that refer to each other, loops that multiply their values.
_MAX_DEPTH = 12
_MAX_VALUES = 64
_MAX_STEPS = 4_000


@dataclass(eq=False)
class Scope:
    """A module's, class's or function's names: each bound to the expressions it may hold (None: not knowable)."""

    node: ast.Module | ast.ClassDef | FunctionNode
    parent: Scope | None
    names: dict[str, list[ast.expr | None]] = field(default_factory=dict)

    def bind(self, name: str, value: ast.expr | None) -> None:
        """Adds one expression that `name` may hold."""
        self.names.setdefault(name, []).append(value)

    def levels(self) -> Iterator[Scope]:
        """This scope and those around it, from the inside out."""
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
    calls: list[SourceCall] = field(default_factory=list)
    imports: list[Imported] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    definitions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = field(default_factory=dict)


def dotted(node: ast.AST) -> str:
    """`tf.distribute.MirroredStrategy` as text; a part that is not a plain name becomes `?`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "?")
    return ".".join(reversed(parts))


def last_name(node: ast.AST) -> str:
    """The last part of a dotted expression; empty for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def plain_text(node: ast.AST | None) -> str | None:
    """The text of a plain string in the source; None for any other node."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def catches(handler: ast.ExceptHandler, errors: Collection[str]) -> bool:
    """Whether an `except` takes one of these errors, by their names."""
    if handler.type is None:
        return True
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(last_name(kind) in errors for kind in types)


def full_name(node: ast.expr, module: Module) -> str:
    """A dotted expression with its first part as it was imported: `np.int64` is `numpy.int64`."""
    head, _, rest = dotted(node).partition(".")
    return ".".join(part for part in (module.aliases.get(head, head), rest) if part)


def single_binding(name: str, scope: Scope) -> ast.expr | None:
    """What a name is bound to, if to one expression only."""
    for level in scope.levels():
        if name in level.names:
            return level.names[name][0] if len(level.names[name]) == 1 else None
    return None


def bound(node: ast.expr, scope: Scope) -> ast.expr | None:
    """An expression itself; of a name the one expression that it is bound to."""
    return single_binding(node.id, scope) if isinstance(node, ast.Name) else node


def walk(name: str, file: str, tree: ast.Module, *, is_package: bool, is_entry: bool = True) -> Module:
    """Collects names, calls and imports of one module. An explicit stack: depth of the source costs no recursion.

    What is behind `if __name__ == "__main__"` is left out unless the module is the entry: it does not run then.
    """
    module = Module(name, file, tree, is_package, Scope(tree, None), is_entry)
    # (node, its scope, runs when the module is imported, an ImportError here is caught)
    stack: list[tuple[ast.AST, Scope, bool, bool]] = [
        (child, module.scope, True, False) for child in reversed(tree.body)
    ]
    while stack:
        node, scope, live, caught = stack.pop()
        module.nodes.append((node, scope))
        if isinstance(node, (ast.Name, ast.Constant)):
            continue  # most of any source: nothing below them
        _bind(node, scope)
        if isinstance(node, ast.Call):
            module.calls.append(SourceCall(node, scope, module, live))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            _import(module, node, scope, caught, live)
        stack.extend(reversed(list(_children(module, node, scope, live, caught))))
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
        owner = _enclosing_class(scope)
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
    if isinstance(items, (ast.Tuple, ast.List, ast.Set)) and items.elts and len(items.elts) <= _MAX_VALUES:
        for element in items.elts:
            _bind_target(target, element, scope)
    else:
        _bind_target(target, None, scope)


def _enclosing_class(scope: Scope) -> Scope | None:
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


def _unused(modules: list[Module]) -> set[int]:
    """Functions at the top of imported modules that nothing names: they ran behind a main guard, which is left out."""
    named = {
        last_name(node) for module in modules for node, _ in module.nodes if isinstance(node, (ast.Name, ast.Attribute))
    }
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
        """Every call whose function's last name is `name`."""
        return self._by_callee.get(name, [])

    @property
    def nodes(self) -> Iterator[tuple[ast.AST, Module]]:
        """Every node of every module."""
        return ((node, module) for module in self.modules for node, _ in module.nodes)

    @property
    def constants(self) -> Iterator[str]:
        """Every plain text in the source."""
        return (text for node, _ in self.nodes if (text := plain_text(node)) is not None)

    def values(self, node: ast.expr | None, scope: Scope, module: Module, depth: int = 0) -> tuple[object, ...] | None:
        """The constants an expression can have: all of them, or None when that is not certain."""
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
        if values is None or not all(isinstance(value, str) for value in values):
            return None
        return tuple(value for value in values if isinstance(value, str))

    @staticmethod
    def _union(parts: list[tuple[object, ...] | None]) -> tuple[object, ...] | None:
        found: dict[tuple[type, object], object] = {}
        for part in parts:
            if part is None:
                return None
            # by type too: 1, 1.0 and True are equal and are different defaults
            found.update({(type(value), value): value for value in part})
        return tuple(found.values()) if 0 < len(found) <= _MAX_VALUES else None

    def _joined(self, parts: list[ast.expr], scope: Scope, module: Module, depth: int) -> tuple[object, ...] | None:
        texts = [""]
        for part in parts:
            values = self.values(part, scope, module, depth)
            if values is None or not all(isinstance(value, str) for value in values):
                return None
            texts = [text + str(value) for text in texts for value in values]
            # every part multiplies the texts, and `x = x + x` in a circle of names their length
            if len(texts) > _MAX_VALUES or len(texts[0]) > 10_000:
                return None
        return tuple(texts)

    def _name(self, name: str, scope: Scope, module: Module, depth: int) -> tuple[object, ...] | None:
        for level in scope.levels():
            node = level.node
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) and _has_parameter(node, name):
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
            owner = _enclosing_class(scope)
            bound = owner.names.get(f"self.{node.attr}", []) + owner.names.get(node.attr, []) if owner else []
            return self._union([self.values(v, written_in(v, owner), module, depth) for v in bound]) if owner else None
        head, _, rest = dotted(node).partition(".")
        if head in module.aliases:
            return self._imported(f"{module.aliases[head]}.{rest}", depth)
        return None

    def _parameter(
        self, node: FunctionNode, name: str, level: Scope, module: Module, depth: int
    ) -> tuple[object, ...] | None:
        if isinstance(node, ast.Lambda):
            return None
        owner = level.parent.node if level.parent else None
        method = isinstance(owner, ast.ClassDef)
        # __init__ is called by the name of its class
        called_as = owner.name if isinstance(owner, ast.ClassDef) and node.name == "__init__" else node.name
        positional = [arg.arg for arg in [*node.args.posonlyargs, *node.args.args]][1 if method else 0 :]
        defaults = dict(zip(reversed(positional), reversed(node.args.defaults), strict=False))
        defaults |= {
            a.arg: d for a, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d is not None
        }
        calls = self.callers(called_as)
        # Without a call in sight the function may be called from elsewhere, with anything.
        if not calls or (node.args.vararg and node.args.vararg.arg == name):
            return None
        found: list[tuple[object, ...] | None] = []
        for call in calls:
            if call.unpacks:
                return None
            given = call.keywords
            index = positional.index(name) if name in positional else len(call.node.args)
            if name in given:
                found.append(self.values(given[name], call.scope, call.module, depth))
            elif index < len(call.node.args):
                found.append(self.values(call.node.args[index], call.scope, call.module, depth))
            else:
                found.append(self.values(defaults.get(name), level.parent or level, module, depth))
        return self._union(found)


def written_in(value: ast.expr | None, default: Scope) -> Scope:
    """The scope of an expression: that of the method in which `self.x` is set, else the one given."""
    scope = value.__dict__.get("_scope") if value is not None else None
    return scope if isinstance(scope, Scope) else default


def _has_parameter(node: FunctionNode, name: str) -> bool:
    args = node.args
    names = [arg.arg for arg in [*args.posonlyargs, *args.args, *args.kwonlyargs]]
    names += [extra.arg for extra in (args.vararg, args.kwarg) if extra is not None]
    return name in names


def owned(node: ast.expr | None, module: Module, code: Code) -> tuple[Definition, Module] | None:
    """The trainer's own function or class that an expression names, and its module."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return None
    owner, _, last = full_name(node, module).rpartition(".")
    source = code.by_name.get(owner) if owner else module
    found = source.definitions.get(last) if source is not None else None
    return (found, source) if found is not None and source is not None else None
