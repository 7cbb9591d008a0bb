"""Names of TensorFlow that a trainer uses and that newer releases do not have."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vertexrig.trainer_source.code import Code
from vertexrig.trainer_source.modules import Module, full_name
from vertexrig.trainer_source.reachability import Runs
from vertexrig.trainer_source.trainer_model import OldName

_ENDED = dict.fromkeys(
    """
    contrib placeholder sparse_placeholder Session InteractiveSession app flags logging gfile python_io ConfigProto GPUOptions
    GraphKeys get_collection get_default_graph reset_default_graph global_variables_initializer local_variables_initializer
    get_variable variable_scope trainable_variables parse_single_example parse_example decode_csv decode_raw read_file
    FixedLenFeature VarLenFeature TextLineReader TFRecordReader set_random_seed random_uniform random_normal truncated_normal
    layers to_float to_int32 train.AdamOptimizer train.AdagradOptimizer train.FtrlOptimizer train.GradientDescentOptimizer
    train.MomentumOptimizer train.RMSPropOptimizer train.Saver train.exponential_decay train.piecewise_constant
    train.get_global_step train.get_or_create_global_step train.match_filenames_once train.string_input_producer
    summary.FileWriter summary.merge_all
    """.split(),
    (2, 0),
) | {"estimator": (2, 16)}
"""The first release without a name of `tensorflow`."""
_MOST_ASKED = 20
_ERRORS = frozenset({"AttributeError", "ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def old_names(code: Code, runs: Runs) -> Iterator[OldName]:
    """Yield uses of names that TensorFlow 2.0, or 2.16, no longer has; none of a module that looks at the version, or has tf.compat."""
    asked = 0
    for module in code.modules:
        if _knows_both(module):
            continue
        for item in module.imports:
            if item.module.split(".")[0] == "tensorflow" and not item.caught:
                # `from tensorflow.contrib.layers import x` needs tensorflow.contrib first
                parts = f"{item.module}.{item.name}".rstrip(".").split(".")
                prefixes = (".".join(parts[:end]) for end in range(2, len(parts) + 1))
                if name := next(filter(None, map(_removed, prefixes)), ""):
                    yield OldName(module.file, item.line, f"tf.{name}", _ENDED[name], item.at_import)
        for node, _ in module.each(ast.Attribute):
            # whether a node is reached takes long to say: it is asked of old names only, and of a few of them
            name = _removed(full_name(node, module))
            if name and len(module.scope.names.get(_head(node), ())) == 1 and not runs.caught(node, module, _ERRORS):
                asked += 1
                certain = asked <= _MOST_ASKED and runs.reached(node, module)
                yield OldName(module.file, node.lineno, f"tf.{name}", _ENDED[name], certain)


def _knows_both(module: Module) -> bool:
    words = {name for name, _ in module.names} | {part for item in module.imports for part in (item.module, item.name)}
    return any(word in {"compat", "__version__", "VERSION"} or "compat.v1" in word for word in words)


def _head(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _removed(full: str) -> str:
    """Return the name below tensorflow of a full name, such as `tensorflow.placeholder`; "" if no release has removed it."""
    name = full.removeprefix("tensorflow.")
    return name if name != full and name in _ENDED else ""
