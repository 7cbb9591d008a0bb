"""The modules of a trainer, found by following its imports from the one that is run, and what they import."""

from __future__ import annotations

import ast
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from vertexrig.errors import PackageError, did_you_mean, nearest
from vertexrig.trainer_source.code import Code
from vertexrig.trainer_source.modules import Imported, Module, dotted, last_name, walk
from vertexrig.trainer_source.source_tree import Tree, open_tree
from vertexrig.trainer_source.trainer_model import Import, SourceProblem

# Bounds the time: a trainer in a monorepo may reach every module of it.
MAX_MODULES = 500


@dataclass(frozen=True)
class Followed:
    """What packaging asks of a trainer; `vertexrig.trainer_source.reader` also reads its flags, metrics and the like.

    Args:
        files: The files of its modules, the entry first.
        imports: What they import.
        problems: What could not be read.
        code: The modules themselves, None if none could be read.
    """

    files: tuple[str, ...] = ()
    imports: tuple[Import, ...] = ()
    problems: tuple[SourceProblem, ...] = ()
    code: Code | None = None

    def must_be_read(self, hint: str = "") -> None:
        """Raise PackageError, with a hint at its end, for the first thing that could not be read."""
        for problem in self.problems:
            place = f"{problem.where}: " if problem.where else ""
            raise PackageError(f"{place}{problem.message}{hint}")


def follow(source: Path | Tree, module: str) -> Followed:
    """Follow a trainer's imports from its entry module without running any of it. Never raises for what it reads.

    `source` is as for `vertexrig.trainer_source.reader.read`, or a tree, if several modules are looked at one after the other.
    """
    tree, entry_file, problems = (source, None, []) if isinstance(source, Tree) else open_tree(source)
    return follow_tree(tree, entry_file, module, problems)


def follow_tree(tree: Tree, entry_file: str | None, name: str | None, problems: list[SourceProblem]) -> Followed:
    """Parse the entry module, then every module of the trainer that is imported from there on.

    Args:
        tree: Where modules are looked up.
        entry_file: The file that is run, None if a module is.
        name: The entry module, None if a file is run.
        problems: What went wrong so far; what cannot be read is added.
    """
    try:
        modules = _load(tree, entry_file, name, problems)
    except OSError as error:
        place = os.path.basename(error.filename or "")
        problems.append(SourceProblem(f"cannot be read: {error.strerror or error}", place))
        modules = []
    if not modules:
        return Followed(problems=tuple(problems))
    code = Code(modules)
    return Followed(tuple(item.file for item in modules), tuple(_imports(code, tree)), tuple(problems), code)


def _load(tree: Tree, entry_file: str | None, name: str | None, problems: list[SourceProblem]) -> list[Module]:
    queue = _entry(tree, entry_file, name, problems)
    seen: set[str] = set()
    modules: list[Module] = []
    while queue:
        dotted_name, file = queue.pop(0)
        if file in seen:
            continue
        seen.add(file)
        if len(seen) > MAX_MODULES:
            problems.append(SourceProblem(f"more than {MAX_MODULES} modules: the rest is unread"))
            break
        parsed = tree.parse(file)
        if isinstance(parsed, SourceProblem):
            problems.append(parsed)
            continue
        found = walk(dotted_name, file, parsed, is_entry=not modules)
        modules.append(found)
        queue += [(target, path) for target in _targets(found) if (path := tree.find(target)) is not None]
    return modules


def _entry(
    tree: Tree, entry_file: str | None, name: str | None, problems: list[SourceProblem]
) -> list[tuple[str, str]]:
    """Return the modules that `python -m NAME` runs or imports first, with their files."""
    if entry_file is not None:
        return [(Path(entry_file).stem, entry_file)]
    if problems:
        return []
    if not name:
        message = "no module was named: give the one Vertex AI runs, such as 'trainer.task'"
        problems.append(SourceProblem(message, code="unnamed"))
        return []
    file = tree.find(name)
    # `python -m package` runs package/__main__.py, __init__.py or not
    if file is None or file.endswith("/__init__.py"):
        main = tree.find(f"{name}.__main__")
        queue = [(f"{name}.__main__", main)] if main else []
    else:
        queue = []
    # Python imports a package's __init__.py before the __main__ in it, so both are read.
    queue += [(name, file)] if file is not None else []
    if not queue:
        known = tree.modules()
        message = f"there is no module {name!r} in the trainer. {did_you_mean(name, known)}"
        problems.append(SourceProblem(message, code="module", nearest=nearest(name, known) or ""))
        return []
    # `python -m a.b.c` imports a and a.b first: their __init__.py may declare flags, or fail.
    parents = [name.rsplit(".", depth)[0] for depth in range(1, name.count(".") + 1)]
    return queue + [(parent, path) for parent in parents if (path := tree.find(parent)) is not None]


def _targets(module: Module) -> list[str]:
    """Modules an imported module may bring with it, parents first."""
    targets: list[str] = []
    for item in module.imports:
        full = [item.module, *([f"{item.module}.{item.name}"] if item.name and item.name != "*" else [])]
        for name in full:
            parts = name.split(".")
            targets += [".".join(parts[: index + 1]) for index in range(len(parts))]
    for call in module.calls:
        if last_name(call.node.func) in {"import_module", "run_module"} and call.node.args:
            argument = call.node.args[0]
            # a module that is imported by a plain name is followed like an import statement
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                targets.append(argument.value)
    return list(dict.fromkeys(targets))


def _imports(code: Code, tree: Tree) -> list[Import]:
    found: dict[Import, None] = {}
    owned: dict[str, bool] = {}
    # sys.path changed while running: a module that is absent here may be found there.
    moved = any(dotted(call.node.func).endswith((".path.insert", ".path.append", ".addsitedir")) for call in code.calls)
    for module in code.modules:
        for item in module.imports:
            top = item.module.split(".")[0]
            if not top or item.module == "__future__":
                continue
            if top not in owned:
                owned[top] = tree.owns(top)
            kind = "own" if owned[top] else "stdlib" if top in sys.stdlib_module_names else "other"
            name = item.module
            if kind == "own" and (absent := _absent(code, tree, item)):
                # A folder without __init__.py, such as examples/tensorflow, gives way to an installed package of its name.
                kind, name = ("missing", absent) if tree.find(top) else ("other", name)
            caught = item.caught or (moved and kind == "missing")  # it may be on a path that the trainer adds
            beside = _beside(module, top, tree) if kind == "other" and not moved else ""
            found[Import(name, module.file, item.line, kind, caught, item.at_import, beside)] = None
    return list(found)


def _beside(module: Module, top: str, tree: Tree) -> str:
    """Return the dotted name of the module that stands beside the importing one in its package; empty if there is none."""
    package = module.name if module.is_package else module.name.rpartition(".")[0]
    name = f"{package}.{top}"
    return name if package and tree.find(name) is not None else ""


def _absent(code: Code, tree: Tree, item: Imported) -> str:
    """Return the dotted name an import of an own module asks for and does not find; empty if it is there."""
    owner = code.by_name.get(item.module)
    if owner is None and tree.find(item.module) is not None:
        return ""  # there, but unreadable or not followed
    if item.name in {"", "*"}:
        return "" if owner is not None or tree.holds(item.module) else item.module
    full = f"{item.module}.{item.name}"
    if tree.find(full) or tree.holds(full):
        return ""
    if owner is None:
        return full if tree.holds(item.module) else item.module
    # A star import, __getattr__ or globals() may bring names that are not written here.
    open_ended = any(other.name == "*" for other in owner.imports) or "__getattr__" in owner.definitions
    open_ended = open_ended or any(last_name(call.node.func) in {"globals", "vars", "exec"} for call in owner.calls)
    # `__version__` and the like may be set by the import system or a build
    known = item.name in owner.scope.names or item.name.startswith("__")
    return "" if known or open_ended else full
