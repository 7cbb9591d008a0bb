"""What would end a trainer after its machine has started, or let it do nothing, though each file of it parses."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from vertexrig.errors import nearest
from vertexrig.trainer_source.code import Code
from vertexrig.trainer_source.flag_collector import Collector
from vertexrig.trainer_source.modules import (
    FUNCTIONS,
    TRY,
    Module,
    Scope,
    SourceCall,
    dotted,
    full_name,
    last_name,
    parameter_names,
    plain_text,
    single_binding,
)
from vertexrig.trainer_source.reachability import Runs
from vertexrig.trainer_source.trainer_model import DYNAMIC, Defect
from vertexrig.trainer_source.undefined_names import undefined_names

# What a relative import without a package raises: ImportError; SystemError up to Python 3.5 and ValueError in Python 2,
# which old code still catches.
_IMPORT_ERRORS = frozenset({"ImportError", "SystemError", "ValueError", "Exception", "BaseException"})
_PARSES = frozenset({"parse_args", "parse_known_args", "parse_intermixed_args", "parse_known_intermixed_args"})
_SETS_UP = frozenset(
    """
    getLogger basicConfig setLevel set_verbosity filterwarnings simplefilter setdefault insert append TypeVar
    namedtuple Path join get getenv dirname abspath compile seed set_seed set_random_seed manual_seed float int str
    tuple list dict set frozenset range
    """.split()
)
"""Calls at the top of a module that prepare something and train nothing."""
_INERT = (ast.Import, ast.ImportFrom, ast.Pass)
_DEFINITIONS = (*FUNCTIONS, ast.ClassDef)


def defects(code: Code, runs: Runs, collector: Collector) -> Iterator[Defect]:
    """Yield all that was found, kind by kind."""
    yield from undefined_names(code, runs)
    yield from _attributes(code, runs, collector)
    yield from _relative(code, runs)
    yield from _idle(code)
    yield from _fixed(code, collector)
    yield from _left_out(code)
    for module in code.modules:
        for node in notebook_lines(module.tree):
            yield Defect("notebook", module.file, node.lineno, ast.unparse(node)[:80], "", runs.reached(node, module))


def notebook_lines(tree: ast.Module) -> list[ast.stmt]:
    """Return the statements at a module's own level, outside of try, if and functions, that call get_ipython()."""
    return [
        node
        for node in tree.body
        if isinstance(node, (ast.Expr, ast.Assign))
        and any(
            isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "get_ipython"
            for one in ast.walk(node)
        )
    ]


def _left_out(code: Code) -> Iterator[Defect]:
    """Yield Hydra config folders next to a module outside any package: only the module would be packaged."""
    for call in code.calls:
        given, module = call.keywords.get("config_path"), call.module
        if full_name(call.node.func, module) != "hydra.main" or "." in module.name or module.is_package:
            continue
        folder = plain_text(given)
        if folder is not None and not folder.startswith(("/", "pkg:")):
            yield Defect("left-out", module.file, call.node.lineno, folder)


def _attributes(code: Code, runs: Runs, collector: Collector) -> Iterator[Defect]:
    """Yield attributes that are read from the result of argparse and that no flag of the trainer sets."""
    # an action of the trainer's own, or a second library, may set attributes that no flag declares
    if collector.parsers != {"argparse"} or collector.unread or any(flag.action == DYNAMIC for flag in collector.flags):
        return
    if _changes_namespaces(code):
        return
    known = _destinations(code, {flag.dest for flag in collector.flags})
    spaces = _Namespaces(code, collector.definitions)
    asked = set(known)
    for module in code.modules:
        for node, scope in module.each(ast.Attribute):
            if node.attr in asked or node.attr.startswith("_"):
                continue
            if (
                isinstance(node.ctx, ast.Load)
                and isinstance(node.value, ast.Name)
                and not code.idle(scope)
                and spaces.holds(node.value.id, scope)
            ):
                if runs.caught(node, module, {"AttributeError", "Exception", "BaseException"}):
                    continue
                asked.add(node.attr)
                best = nearest(node.attr, known) or ""
                yield Defect("attribute", module.file, node.lineno, dotted(node), best, runs.reached(node, module))


def _changes_namespaces(code: Code) -> bool:
    """Whether attributes may be made by other means than flags and assignments."""
    if code.callers("setattr") or code.callers("Namespace") or any("namespace" in call.keywords for call in code.calls):
        return True
    attributes = [node for node, _, _ in code.each(ast.Attribute)]
    owners = [node.value for node in attributes] + [node.value for node, _, _ in code.each(ast.Subscript)]
    # vars(args).update(...), vars(args)["x"] = ...
    varied = any(isinstance(owner, ast.Call) and last_name(owner.func) == "vars" for owner in owners)
    return varied or any(node.attr == "__dict__" for node in attributes)


def _destinations(code: Code, found: set[str]) -> set[str]:
    """Return the attributes that a namespace of the trainer may have."""
    for call in code.calls:
        name, words = last_name(call.node.func), call.keywords
        if name == "set_defaults":
            found |= words.keys()
        elif name == "add_subparsers":
            dest = words.get("dest")
            found |= {str(dest.value)} if isinstance(dest, ast.Constant) else set()
        elif name in {"hasattr", "getattr"} and len(call.node.args) > 1 and isinstance(call.node.args[1], ast.Constant):
            found.add(str(call.node.args[1].value))
    # args.x = ... makes an attribute; whose it is does not matter, one too many only costs a finding
    return found | {node.attr for node, _, _ in code.each(ast.Attribute) if not isinstance(node.ctx, ast.Load)}


class _Namespaces:
    """Which names hold what `parse_args` returned: bound to nothing else, or parameters that are given nothing else."""

    def __init__(self, code: Code, own: Collection[str]) -> None:
        self._code, self._makers = code, {"ArgumentParser", *own}
        self._pairs = {
            (id(scope), node.targets[0].elts[0].id)
            for node, scope, _ in code.each(ast.Assign)
            if isinstance(node.targets[0], ast.Tuple)
            and isinstance(node.targets[0].elts[0], ast.Name)
            and _parses(node.value)
            and "known" in last_name(node.value.func)  # type: ignore[attr-defined]
            and self._of_own_parser(node.value, scope)
        }
        """`args, rest = parser.parse_known_args()`: scope and first name."""

    def holds(self, name: str, scope: Scope | None, depth: int = 0) -> bool:
        inner = scope
        # a namespace that is handed on through more than four functions is left alone
        while scope is not None and depth < 4:
            if isinstance(scope.node, (*FUNCTIONS, ast.Lambda)) and name in parameter_names(scope.node):
                return name not in scope.names and self._given(scope, name, depth)
            if name in scope.names and (scope is inner or not isinstance(scope.node, ast.ClassDef)):
                values = scope.names[name]
                # rebound: it may hold a dict or a config made of the flags by then
                if len(values) != 1:
                    return False
                return (id(scope), name) in self._pairs or self._made(values[0], scope, depth)
            scope = scope.parent
        return False

    def _made(self, value: ast.expr | None, scope: Scope, depth: int) -> bool:
        """Whether an expression is such a namespace."""
        if isinstance(value, ast.Name):
            return self.holds(value.id, scope, depth + 1)
        if isinstance(value, ast.Subscript):  # parse_known_args()[0]
            known = isinstance(value.value, ast.Call) and last_name(value.value.func) == "parse_known_args"
            own = known and self._of_own_parser(value.value, scope)
            return own and isinstance(value.slice, ast.Constant) and value.slice.value == 0
        if not isinstance(value, ast.Call):
            return False
        if _parses(value):
            # parse_known_args returns a pair, not a namespace
            return "known" not in last_name(value.func) and self._of_own_parser(value, scope)
        return isinstance(value.func, ast.Name) and self._returned(value.func.id, depth)

    def _of_own_parser(self, call: ast.expr, scope: Scope) -> bool:
        """Whether what parses is a parser that the trainer makes, not one of many or another class's."""
        receiver = call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
        made = single_binding(receiver.id, scope) if isinstance(receiver, ast.Name) else receiver
        return isinstance(made, ast.Call) and last_name(made.func) in self._makers

    def _returned(self, name: str, depth: int) -> bool:
        """Whether a function of the trainer returns one, and nothing else."""
        found = [
            self._made(node.value, scope, depth + 1)
            for node, scope, _ in self._code.each(ast.Return)
            if isinstance(scope.node, _DEFINITIONS) and scope.node.name == name
        ]
        return bool(found) and all(found)

    def _given(self, scope: Scope, name: str, depth: int) -> bool:
        """Whether every call of a function gives its parameter one."""
        node = scope.node
        if not isinstance(node, FUNCTIONS) or not isinstance(scope.parent.node if scope.parent else None, ast.Module):
            return False
        position = [arg.arg for arg in [*node.args.posonlyargs, *node.args.args]]
        calls = [call for call in self._code.callers(node.name) if isinstance(call.node.func, ast.Name)]
        return bool(calls) and all(self._passes(call, name, position, depth) for call in calls)

    def _passes(self, call: SourceCall, name: str, position: list[str], depth: int) -> bool:
        index = position.index(name) if name in position else len(call.node.args)
        return self._made(call.argument(index, name), call.scope, depth + 1)


def _parses(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PARSES


def _relative(code: Code, runs: Runs) -> Iterator[Defect]:
    """Relative imports of a module that is in no package: Python ends there."""
    for module in code.modules:
        # an __init__.py, and a module with a dot in its name, are in a package
        if module.is_package or "." in module.name or not module.name:
            continue
        for node, scope in module.each(ast.ImportFrom):
            if not node.level or not isinstance(scope.node, ast.Module):
                continue
            if runs.reached(node, module) and not runs.caught(node, module, _IMPORT_ERRORS):
                text = f"from {'.' * node.level}{node.module or ''} import"
                yield Defect("relative", module.file, node.lineno, text, module.name)


def _idle(code: Code) -> Iterator[Defect]:
    """Yield the module that is run, if neither it nor what it imports does more than define things."""
    entry = code.modules[0]
    defined = [node for node in entry.tree.body if isinstance(node, _DEFINITIONS)]
    if not defined or not all(_only_defines(module, code) for module in code.modules):
        return
    functions = [node.name for node in defined if not isinstance(node, ast.ClassDef)]
    best = next((name for name in ("main", "run", "train") if name in functions), "")
    yield Defect("idle", entry.file, defined[-1].lineno, entry.name, best)


def _only_defines(module: Module, code: Code) -> bool:
    return all(_defines(statement, code, module.is_entry) for statement in module.tree.body)


def _defines(node: ast.stmt, code: Code, is_entry: bool) -> bool:
    """Whether a statement at the top of a module trains nothing."""
    if isinstance(node, _DEFINITIONS):
        # a decorator of the trainer's own may run the function at once
        own = {name for module in code.modules for name in module.definitions}
        return not any(last_name(getattr(one, "func", one)) in own for one in node.decorator_list)
    if isinstance(node, _INERT):
        return True
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Expr)):
        calls = [part for part in ast.walk(node) if isinstance(part, (ast.Call, ast.Await, ast.Yield))]
        return all(isinstance(call, ast.Call) and last_name(call.func) in _SETS_UP for call in calls)
    if isinstance(node, TRY):
        parts = [*node.body, *node.orelse, *node.finalbody, *(line for one in node.handlers for line in one.body)]
        return all(_defines(part, code, is_entry) for part in parts)
    if isinstance(node, ast.If):
        guard = isinstance(node.test, ast.Compare) and "__name__" in ast.unparse(node.test)
        return (guard and not is_entry) or "TYPE_CHECKING" in dotted(node.test)
    return False


def _fixed(code: Code, collector: Collector) -> Iterator[Defect]:
    """Yield `parse_args([])`, as in a notebook, where no other call reads the command line."""
    calls = [call for name in _PARSES for call in code.callers(name)]
    if calls and collector.parsers == {"argparse"} and all(map(_is_fixed, calls)):
        yield Defect("fixed", calls[0].module.file, calls[0].node.lineno, ast.unparse(calls[0].node)[:80])


def _is_fixed(call: SourceCall) -> bool:
    given = call.argument(0, "args")
    if isinstance(given, (ast.List, ast.Tuple)):
        return all(isinstance(item, ast.Constant) for item in given.elts)
    text = isinstance(given, ast.Call) and last_name(given.func) == "split" and isinstance(given.func, ast.Attribute)
    return text and isinstance(given.func.value, ast.Constant)  # type: ignore[union-attr]
