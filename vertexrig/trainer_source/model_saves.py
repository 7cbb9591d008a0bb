"""Where a trainer saves its model, and whether it tells the chief from the other workers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vertexrig.trainer_source.bucket_paths import KERAS_SAVE, ending
from vertexrig.trainer_source.code import Code
from vertexrig.trainer_source.modules import SourceCall, full_name, last_name
from vertexrig.trainer_source.trainer_model import Save

_MODEL = frozenset({"Sequential", "Model", "clone_model", "load_model"})
_OTHER_SAVERS = frozenset({"Checkpoint", "CheckpointManager", "Saver", "open"})
"""What has a method `save`, too, but is not a model."""
_CHIEF = frozenset(
    {"chief", "is_chief", "task_type", "task_id", "cluster_resolver", "should_save_checkpoint", "_is_chief"}
)
_UPLOADS = frozenset(
    """
    upload_from_filename upload_from_file upload_from_string upload_many_from_filenames push_to_hub upload_folder
    log_artifact log_artifacts log_model
    """.split()
)
"""Methods of google-cloud-storage, Hugging Face's Hub, Weights & Biases and MLflow that store a file elsewhere."""
_INPUT = re.compile(r"data|input|train|valid|eval|test|pattern|csv|images", re.IGNORECASE)


def saves(code: Code) -> Iterator[Save]:
    """Yield every plain call of a Keras model's `save`, of `save_model` and of `ModelCheckpoint`."""
    for call in code.calls:
        name = last_name(call.node.func)
        if name == "save" and isinstance(call.node.func, ast.Attribute) and _is_model(call.node.func.value, call):
            yield _save(call, "save", code)
        elif KERAS_SAVE.fullmatch(full_name(call.node.func, call.module)):
            yield _save(call, "save_model", code, position=1)
        elif name == "ModelCheckpoint":
            yield _save(call, "ModelCheckpoint", code)


def tells_chief(code: Code) -> bool:
    """Whether the source names the chief, a task or its index anywhere: it may then let one worker save."""
    words = {text for text, _, _ in code.texts_written} | {name for name, _ in code.names}
    return any(word in _CHIEF or word.casefold() in {"chief", "master", "is_chief", "task"} for word in words)


def saves_elsewhere(code: Code) -> bool:
    """Whether the source uploads something, or names a place in Cloud Storage other than as the default of a flag for what it reads."""
    if any(last_name(call.node.func) in _UPLOADS for call in code.calls):
        return True
    read_from = {
        id(part)
        for call in code.callers("add_argument")
        if call.node.args
        and isinstance(call.node.args[0], ast.Constant)
        and _INPUT.search(str(call.node.args[0].value))
        for part in ast.walk(call.node)
    }
    return any(text.startswith(("gs://", "/gcs/")) for text, n, _ in code.texts_written if id(n) not in read_from)


def _save(call: SourceCall, kind: str, code: Code, position: int = 0) -> Save:
    words = call.keywords
    weights = words.get("save_weights_only")
    plain = not any(word.arg is None for word in call.node.keywords)
    known = weights is None or isinstance(weights, ast.Constant)
    return Save(
        kind,
        ending(call.argument(position, "filepath"), call, code) if plain and known else None,
        isinstance(weights, ast.Constant) and weights.value is True,
        "save_format" in words,
        call.module.file,
        call.node.lineno,
    )


def _is_model(node: ast.expr, call: SourceCall) -> bool:
    """Whether an expression is plainly a Keras model: made by Sequential or Model, or named so."""
    if isinstance(node, ast.Name):
        # what the name was made by decides; its own name only where that is not written
        values = next((level.names[node.id] for level in call.scope.levels() if node.id in level.names), [])
        makers = {last_name(value.func) for value in values if isinstance(value, ast.Call)}
        if makers & _MODEL:
            return True
        if makers & _OTHER_SAVERS:
            return False
        # an imported module named model has a function save of its own
        if node.id in call.module.aliases:
            return False
    name = last_name(node).casefold()
    return name == "model" or name.endswith("_model")
