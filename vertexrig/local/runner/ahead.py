"""What a trainer imports before it does anything else, read from its source: what can be imported ahead of it.

The trainer's own modules are walked in the order in which Python would run them. Imports of anything else become steps, and
so does a variable that the source sets to a plain text first (`os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"`). The walk ends
at the first statement that could change what a later import does.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vertexrig.local.runner.runtime import read_at_run_time

_HARMLESS = frozenset({
    "bool", "dict", "enumerate", "float", "frozenset", "getattr", "hasattr", "int", "isinstance", "iter", "len", "list", "max",
    "min", "next", "property", "range", "repr", "reversed", "round", "set", "sorted", "str", "sum", "super", "tuple", "type", "zip",
    "capitalize", "count", "decode", "encode", "endswith", "format", "items", "join", "keys", "lower", "lstrip", "replace",
    "rpartition", "partition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "title", "upper", "values",
    "get", "getenv", "cpu_count", "dirname", "basename", "abspath", "realpath", "exists", "isdir", "isfile",
    "getLogger", "compile", "namedtuple", "dataclass", "field", "cast", "wraps", "lru_cache", "cache", "partial", "time",
    "perf_counter", "monotonic", "now", "dedent", "getcwd", "auto", "overload", "staticmethod", "classmethod", "contextmanager",
})  # fmt: skip
"""Last parts of the names of functions that change nothing a later import reads."""
_WRITES = frozenset({"setdefault", "update", "pop", "popitem", "clear", "putenv", "unsetenv"})
_LAZY = ("keras",)
"""Parts of TensorFlow that it imports when they are first used."""


@dataclass(frozen=True)
class Ahead:
    """What can be done before the trainer starts.

    Args:
        steps: In their order: `("import", STATEMENT)`, `("set", NAME, TEXT)` and `("default", NAME, TEXT)` for variables.
        stopped: Where the walk ended early, as `FILE:LINE`, "" if it did not.
    """

    steps: tuple[tuple[str, ...], ...] = ()
    stopped: str = ""

    @property
    def modules(self) -> tuple[str, ...]:
        """Top-level names of what is imported, each once."""
        found: dict[str, None] = {}
        for kind, *rest in self.steps:
            if kind == "import":
                found[rest[0].split()[1].partition(".")[0]] = None
        return tuple(found)


def read_ahead(file: Path, package: str, find: Callable[[str], Path | None]) -> Ahead:
    """Walk a trainer from the file that is run.

    Args:
        file: The module or script that is run.
        package: The package it is in, "" for a script.
        find: The file of one of the trainer's own modules, by its dotted name; None for anything else.
    """
    walk = _Look(find)
    tree = walk.parse(file)
    if tree is None:
        return Ahead()
    reached = list(walk.reachable(tree, package))
    # A function may set a variable before it imports; what it imports can then not be imported without it.
    steady = not any(_other_writes(own) for own in reached)
    try:
        walk.body(tree.body, file, package)
        if steady:
            for node in ast.walk(tree):  # the trainer's own modules that a function imports, once the flags are right
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    walk.own_imports(node, package)
    except _Stop as stop:
        walk.stopped = str(stop)
    lazy = [name for name in _LAZY if steady and any(_uses_lazily(own, name) for own in reached)]
    has = any("tensorflow" in step[1].split()[1] for step in walk.steps if step[0] == "import")
    more = [("import", f"import tensorflow; tensorflow.{name}.Model") for name in lazy if has]
    return Ahead(tuple(dict.fromkeys([*walk.steps, *more])), walk.stopped)


class _Stop(Exception):
    """The next statement could change what a later import does."""


class _Look:
    def __init__(self, find: Callable[[str], Path | None]) -> None:
        self.find = find
        self.steps: list[tuple[str, ...]] = []
        self.stopped = ""
        self._seen: set[Path] = set()

    def parse(self, file: Path) -> ast.Module | None:
        try:
            return ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError):
            return None

    def reachable(self, tree: ast.Module, package: str) -> Iterator[ast.Module]:
        """This tree and those of all of the trainer's own modules that it imports, wherever it does."""
        seen: set[Path] = set()
        waiting = [(tree, package)]
        while waiting:
            tree, package = waiting.pop()
            yield tree
            for node in ast.walk(tree):
                for name in _named(node, package) if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
                    file = self.find(name)
                    if file is not None and file not in seen:
                        seen.add(file)
                        found = self.parse(file)
                        if found is not None:
                            waiting.append((found, _package_of(name, file)))

    def body(self, nodes: Sequence[ast.stmt], file: Path, package: str) -> None:
        for node in nodes:
            if not self.statement(node, file, package):
                raise _Stop(f"{file.name}:{node.lineno}")

    def statement(self, node: ast.stmt, file: Path, package: str) -> bool:
        """Take one statement; False if it could change what a later import does."""
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self.imports(node, package)
            return True
        if isinstance(node, ast.Try):
            # Handlers are left out: an import that fails here fails in the trainer, which then takes its other
            # branch.
            self.body([*node.body, *node.orelse, *node.finalbody], file, package)
            return True
        if isinstance(node, ast.If):
            return self.condition(node, file, package)
        written = _plain_write(node)
        if written is not None:
            self.steps.append(written)
            return True
        return _harmless(node)

    def condition(self, node: ast.If, file: Path, package: str) -> bool:
        text = ast.unparse(node.test)
        if text.endswith("TYPE_CHECKING"):
            self.body(node.orelse, file, package)
            return True
        if text.startswith("__name__ =="):
            return True  # where the trainer begins; what its functions import is looked at by itself
        inner = [*node.body, *node.orelse]
        if "version" in text.casefold():  # what is not there is left out when it is imported
            for one in [part for own in inner for part in (own.body if isinstance(own, ast.Try) else [own])]:
                if isinstance(one, (ast.Import, ast.ImportFrom)):
                    self.imports(one, package)
        # Which branch runs is only known to the trainer.
        elif any(isinstance(one, (ast.Import, ast.ImportFrom)) for own in inner for one in ast.walk(own)):
            return False
        return all(isinstance(own, (ast.Import, ast.ImportFrom, ast.Try)) or _harmless(own) for own in inner)

    def imports(self, node: ast.Import | ast.ImportFrom, package: str) -> None:
        """Walk what is the trainer's own; the rest is a step."""
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            return
        own = [name for name in _named(node, package) if self.find(name) is not None]
        for name in own:
            self.module(name)
        if isinstance(node, ast.Import):
            for alias in node.names:
                # `find` alone decides what is the trainer's own; an import of it that leads nowhere is its own error.
                if self.find(alias.name.partition(".")[0]) is None:
                    self.steps.append(("import", f"import {alias.name}"))
        elif not own and not node.level and node.module and self.find(node.module.partition(".")[0]) is None:
            self.steps.append(("import", ast.unparse(node)))

    def module(self, name: str) -> None:
        """Walk a module of the trainer and the packages it is in."""
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            whole = ".".join(parts[:end])
            file = self.find(whole)
            if file is None or file in self._seen:
                continue
            self._seen.add(file)
            tree = self.parse(file)
            if tree is not None:
                self.body(tree.body, file, _package_of(whole, file))

    def own_imports(self, node: ast.AST, package: str) -> None:
        for inner in ast.walk(node):
            for name in _named(inner, package) if isinstance(inner, (ast.Import, ast.ImportFrom)) else ():
                if self.find(name) is not None:
                    self.module(name)


def _package_of(name: str, file: Path) -> str:
    return name if file.name == "__init__.py" else name.rpartition(".")[0]


def _named(node: ast.Import | ast.ImportFrom, package: str) -> list[str]:
    """The dotted names of every module that a statement may import."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        parts = package.split(".") if package else []
        # One dot is the package itself, each further one the package above.
        parts = parts[: len(parts) - node.level + 1]
        base = ".".join([*parts, *([node.module] if node.module else [])])
    return [base, *(f"{base}.{alias.name}" for alias in node.names)] if base else [alias.name for alias in node.names]


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """A node and what is below it, without the bodies of functions, which do not run where they are defined."""
    yield node
    inside: Iterator[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        inside = iter([*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)])
    elif isinstance(node, ast.Lambda):
        inside = iter(())
    for child in inside:
        yield from _executed(child)


def _harmless(node: ast.stmt) -> bool:
    for one in _executed(node):
        if isinstance(one, (ast.Import, ast.ImportFrom, ast.Await, ast.Global)):
            return False
        if isinstance(one, ast.Call):
            name = _last(one.func)
            # A name with a capital is a class: an instance is made, which rarely changes what an import does.
            if name not in _HARMLESS and not name[:1].isupper():
                return False
        if isinstance(one, (ast.Assign, ast.AugAssign, ast.Delete)):
            targets = [one.target] if isinstance(one, ast.AugAssign) else one.targets
            if any(isinstance(target, (ast.Subscript, ast.Attribute)) for target in targets) and not _of_run_time(one):
                return False  # os.environ[...], sys.path[:0], a setting of a library
    return True


def _environ(node: ast.expr) -> bool:
    return _last(node) == "environ"


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _plain_write(node: ast.stmt) -> tuple[str, str, str] | None:
    """A variable that is set to a plain text, as a step."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
        target = node.targets[0]
        name, value = _text(target.slice), _text(node.value)
        if _environ(target.value) and name is not None and value is not None:
            return "set", name, value
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        call, function = node.value, node.value.func
        if function.attr == "setdefault" and _environ(function.value) and len(call.args) == 2:
            name, value = _text(call.args[0]), _text(call.args[1])
            if name is not None and value is not None:
                return "default", name, value
    return None


def _of_run_time(node: ast.AST) -> bool:
    """Whether a write to the environment is of variables alone that nothing reads when it is imported."""
    targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [getattr(node, "target", None)]
    for target in targets:
        if not (isinstance(target, ast.Subscript) and _environ(target.value)):
            return False
        name = _text(target.slice)
        if name is None or not read_at_run_time(name):
            return False
    return True


def _other_writes(tree: ast.Module) -> bool:
    """Whether a source changes, in a function or in a way that is not plain, variables that an import may read."""
    plain = {id(inner) for node in tree.body if _plain_write(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in plain:
            continue
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.Delete)):
            targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
            written = any(isinstance(target, ast.Subscript) and _environ(target.value) for target in targets)
            if written and not _of_run_time(node):
                return True
        if isinstance(node, ast.Call) and _last(node.func) in _WRITES:
            owner = node.func.value if isinstance(node.func, ast.Attribute) else None
            if _last(node.func) in {"putenv", "unsetenv"} or (owner is not None and _environ(owner)):
                name = _text(node.args[0]) if node.args else None
                # an import has read the variable before it is removed: this undoes the default that the source has set
                removed = _last(node.func) == "pop"
                if name is None or not (removed or read_at_run_time(name)):
                    return True
    return False


def _uses_lazily(tree: ast.Module, name: str) -> bool:
    """Whether a source uses a part of TensorFlow that is imported when it is first used."""
    aliases = {
        alias.asname or alias.name
        for node in ast.walk(tree) if isinstance(node, ast.Import)
        for alias in node.names if alias.name == "tensorflow"
    }  # fmt: skip
    return any(
        (isinstance(node, ast.Attribute) and node.attr == name and _last(node.value) in aliases)
        or (isinstance(node, ast.ImportFrom) and node.module == "tensorflow" and name in {a.name for a in node.names})
        for node in ast.walk(tree)
    )
