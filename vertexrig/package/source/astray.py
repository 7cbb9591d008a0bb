"""Where a trainer opens a `gs://` path as if it were a local one: what it writes there is lost with the machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vertexrig.package.source.model import SourcePlace
from vertexrig.package.source.names import Code, Scope, SourceCall, dotted, full_name, last_name, single_binding

_VARIABLES = frozenset({"AIP_MODEL_DIR", "AIP_CHECKPOINT_DIR", "AIP_TENSORBOARD_LOG_DIR"})
LOCAL = {
    "open": 0, "io.open": 0, "os.makedirs": 0, "os.mkdir": 0, "pathlib.Path": 0, "joblib.dump": 1, "torch.save": 1,
    "numpy.save": 0, "numpy.savez": 0, "numpy.savetxt": 0, "shutil.copy": 1, "shutil.copyfile": 1, "shutil.copytree": 1,
    "shutil.move": 1,
}  # fmt: skip
"""Functions that know local paths only, and which of their arguments is the path."""
_KEYWORDS = ("file", "name", "path", "filename", "fname", "f", "dst", "filepath_or_buffer", "io", "path_or_buf", "fp")
_MAX_DEPTH = 8


def astray(code: Code) -> Iterator[SourcePlace]:
    """Calls of such functions with the value of an `AIP_…` variable, which is a gs:// path."""
    for call in code.calls:
        name = full_name(call.node.func, call.module)
        if name in LOCAL and not shadowed(call):
            paths = given_paths(call.node, LOCAL[name])
            if any(variable(beginning(path, call.scope)) for path in paths):
                yield SourcePlace(call.module.file, call.node.lineno, f"{name}()")


def given_paths(node: ast.Call, position: int) -> list[ast.expr]:
    """The argument of a call that is its path, by position or name."""
    named = [word.value for word in node.keywords if word.arg in _KEYWORDS]
    return [node.args[position]] if len(node.args) > position else named


def shadowed(call: SourceCall) -> bool:
    """Whether the trainer has bound the first part of the function's name to something of its own."""
    # Only a name that is not imported can be the trainer's own: `open` of its own is a function that may know gs://.
    head = dotted(call.node.func).partition(".")[0]
    return head not in call.module.aliases and any(head in level.names for level in call.scope.levels())


def beginning(node: ast.expr, scope: Scope, depth: int = 0) -> ast.expr:
    """What a path expression begins with: `root` of `os.path.join(root, "x")`, `f"{root}/x"` and `root + "/x"`.

    A name that is bound to one expression is that expression.
    """
    inner: ast.expr | None = None
    if isinstance(node, ast.JoinedStr) and node.values:
        first = node.values[0]
        inner = first.value if isinstance(first, ast.FormattedValue) else first
    elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Div)):
        inner = node.left
    elif isinstance(node, ast.Call) and last_name(node.func) in {"join", "Path", "str"} and node.args:
        inner = node.args[0]
    elif isinstance(node, ast.Name):
        inner = single_binding(node.id, scope)
    return node if inner is None or depth > _MAX_DEPTH else beginning(inner, scope, depth + 1)


def variable(node: ast.expr) -> str:
    """The `AIP_…` variable that an expression looks up in the environment, "" for anything else."""
    name: ast.expr | None = None
    if isinstance(node, ast.Subscript) and dotted(node.value).endswith("environ"):
        name = node.slice
    elif isinstance(node, ast.Call) and last_name(node.func) in {"getenv", "get"} and node.args:
        name = node.args[0]
    return str(name.value) if isinstance(name, ast.Constant) and name.value in _VARIABLES else ""
