"""Where a trainer saves its model, and whether it tells the chief from the other workers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vertexrig.package.source.model import Save
from vertexrig.package.source.names import Code, Scope, SourceCall, dotted, last_name

_MODEL = frozenset({"Sequential", "Model", "clone_model", "load_model"})
_CHIEF = frozenset(
    {"chief", "is_chief", "task_type", "task_id", "cluster_resolver", "should_save_checkpoint", "_is_chief"}
)
_VARIABLES = frozenset({"AIP_MODEL_DIR", "AIP_CHECKPOINT_DIR", "AIP_TENSORBOARD_LOG_DIR"})
_INPUT = re.compile(r"data|input|train|valid|eval|test|pattern|csv|images", re.IGNORECASE)
_MAX_DEPTH = 8


def saves(code: Code) -> Iterator[Save]:
    """Every plain call of a Keras model's `save` and of `ModelCheckpoint`."""
    for call in code.calls:
        name = last_name(call.node.func)
        if name == "save" and isinstance(call.node.func, ast.Attribute) and _is_model(call.node.func.value, call):
            yield _save(call, "save", code)
        elif name == "ModelCheckpoint":
            yield _save(call, "ModelCheckpoint", code)


def tells_chief(code: Code) -> bool:
    """Whether the source names the chief, a task or its index anywhere: it may then let one worker save."""
    for module in code.modules:
        for node, _ in module.nodes:
            text = node.value if isinstance(node, ast.Constant) else last_name(node)
            if isinstance(text, str) and (text in _CHIEF or text.casefold() in {"chief", "master", "is_chief", "task"}):
                return True
    return False


def remote(code: Code) -> bool:
    """Whether the source names a place in Cloud Storage, other than as the default of a flag for what it reads."""
    read_from = {
        id(part)
        for call in code.callers("add_argument")
        if call.node.args
        and isinstance(call.node.args[0], ast.Constant)
        and _INPUT.search(str(call.node.args[0].value))
        for part in ast.walk(call.node)
    }
    return any(
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith(("gs://", "/gcs/"))
        and id(node) not in read_from
        for module in code.modules
        for node, _ in module.nodes
    )


def _save(call: SourceCall, kind: str, code: Code) -> Save:
    words = {word.arg: word.value for word in call.node.keywords if word.arg}
    path = call.node.args[0] if call.node.args else words.get("filepath")
    weights = words.get("save_weights_only")
    plain = not any(word.arg is None for word in call.node.keywords)
    known = weights is None or isinstance(weights, ast.Constant)
    return Save(
        kind,
        _ending(path, call.scope, call, code, 0) if plain and known else None,
        isinstance(weights, ast.Constant) and weights.value is True,
        "save_format" in words,
        call.module.file,
        call.node.lineno,
    )


def _is_model(node: ast.expr, call: SourceCall) -> bool:
    """Whether an expression is plainly a Keras model: made by Sequential or Model, or named so."""
    if isinstance(node, ast.Name):
        level: Scope | None = call.scope
        while level is not None:
            if node.id in level.names:
                bound = [value for value in level.names[node.id] if isinstance(value, ast.Call)]
                if any(last_name(value.func) in _MODEL for value in bound):
                    return True
                if any(
                    last_name(value.func) in {"Checkpoint", "CheckpointManager", "Saver", "open"} for value in bound
                ):
                    return False
                break
            level = level.parent
        if node.id in call.module.aliases:
            return False
    name = last_name(node).casefold()
    return name == "model" or name.endswith("_model")


def _ending(node: ast.expr | None, scope: Scope, call: SourceCall, code: Code, depth: int) -> str | None:
    """The text a path ends with; "" for a folder from the environment; None where that is not plain."""
    if node is None or depth > _MAX_DEPTH:
        return None
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr) and node.values:
        last = node.values[-1]
        return last.value if isinstance(last, ast.Constant) and isinstance(last.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Div)):
        return _ending(node.right, scope, call, code, depth + 1)
    if isinstance(node, ast.Subscript):
        return "" if _variable(node.slice) and dotted(node.value).endswith("environ") else None
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        if name in {"join", "Path", "joinpath", "str"} and node.args:
            return _ending(node.args[-1], scope, call, code, depth + 1)
        if name in {"getenv", "get"} and node.args and _variable(node.args[0]):
            return ""
        return None
    values = code.texts(node, scope, call.module) if isinstance(node, (ast.Name, ast.Attribute)) else None
    if values is not None:
        return values[0] if len(values) == 1 else None
    level: Scope | None = scope
    while isinstance(node, ast.Name) and level is not None:
        if node.id in level.names:
            bound = level.names[node.id]
            return _ending(bound[0], level, call, code, depth + 1) if len(bound) == 1 else None
        level = level.parent
    return None


def _variable(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in _VARIABLES
