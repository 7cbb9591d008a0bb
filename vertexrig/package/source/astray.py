"""Where a trainer opens a `gs://` path as if it were a local one: what it writes there is lost with the machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vertexrig.package.source.model import SourcePlace
from vertexrig.package.source.names import Code, Scope, SourceCall, dotted, full_name, last_name, single_binding

_VARIABLES = frozenset({"AIP_MODEL_DIR", "AIP_CHECKPOINT_DIR", "AIP_TENSORBOARD_LOG_DIR"})
_LOCAL = {
    "open": 0, "io.open": 0, "os.makedirs": 0, "os.mkdir": 0, "pathlib.Path": 0, "joblib.dump": 1, "torch.save": 1,
    "numpy.save": 0, "numpy.savez": 0, "numpy.savetxt": 0, "shutil.copy": 1, "shutil.copyfile": 1, "shutil.copytree": 1,
    "shutil.move": 1,
}  # fmt: skip
"""Functions that know local paths only, and which of their arguments is the path."""
_KEYWORDS = ("file", "name", "path", "filename", "f", "dst")
_MAX_DEPTH = 8


def astray(code: Code) -> Iterator[SourcePlace]:
    """Calls of such functions with the value of an `AIP_…` variable, which is a gs:// path."""
    for call in code.calls:
        name = full_name(call.node.func, call.module)
        if name not in _LOCAL or _shadowed(call):
            continue
        position = _LOCAL[name]
        given = [word.value for word in call.node.keywords if word.arg in _KEYWORDS]
        paths = [call.node.args[position]] if len(call.node.args) > position else given
        if any(_remote(path, call.scope, call, 0) for path in paths):
            yield SourcePlace(call.module.file, call.node.lineno, f"{name}()")


def _shadowed(call: SourceCall) -> bool:
    """Whether the trainer has bound the first part of the function's name to something of its own."""
    head = dotted(call.node.func).partition(".")[0]
    scope: Scope | None = call.scope
    while scope is not None:
        if head in scope.names and head not in call.module.aliases:
            return True
        scope = scope.parent
    return False


def _remote(node: ast.expr, scope: Scope, call: SourceCall, depth: int) -> bool:
    """Whether an expression is plainly such a variable's value, or a path below it; False where it may be changed."""
    if depth > _MAX_DEPTH:
        return False
    if isinstance(node, ast.Subscript):
        return _variable(node.slice) and dotted(node.value).endswith("environ")
    if isinstance(node, ast.JoinedStr):
        first = node.values[0] if node.values else None
        return isinstance(first, ast.FormattedValue) and _remote(first.value, scope, call, depth + 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Div)):
        return _remote(node.left, scope, call, depth + 1)
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        if name in {"getenv", "get"} and node.args and _variable(node.args[0]):
            return True
        return name in {"join", "Path", "str"} and bool(node.args) and _remote(node.args[0], scope, call, depth + 1)
    if isinstance(node, ast.Name):
        bound = single_binding(node.id, scope)
        return bound is not None and _remote(bound, scope, call, depth + 1)
    return False


def _variable(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in _VARIABLES
