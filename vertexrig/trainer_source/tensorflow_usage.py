"""What a trainer uses of TensorFlow: strategies, Keras, and the variables of its environment."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from vertexrig.trainer_source.code import Code
from vertexrig.trainer_source.modules import Module, dotted, last_name, plain_text
from vertexrig.trainer_source.strategy_names import STRATEGIES
from vertexrig.trainer_source.trainer_model import DYNAMIC, SourcePlace

_VARIABLE = re.compile(r"(AIP|CLOUD_ML|TF|KERAS|KERASTUNER|CLUSTER|TPU)_[A-Z0-9_]+")


def strategies(code: Code) -> frozenset[str]:
    found: set[str] = set()
    for node, module in code.nodes:
        name = node.attr if isinstance(node, ast.Attribute) else ""
        if isinstance(node, ast.Name) and "tensorflow" in module.aliases.get(node.id, ""):
            name = module.aliases[node.id].rpartition(".")[2]
        # getattr(tf.distribute, "MirroredStrategy")
        elif isinstance(node, ast.Call) and last_name(node.func) == "getattr" and len(node.args) > 1:
            name = plain_text(node.args[1]) or ""
        if name in STRATEGIES:
            found.add(STRATEGIES[name])
    return frozenset(found)


def keras_uses(code: Code) -> tuple[dict[str, SourcePlace], str | None]:
    uses: dict[str, SourcePlace] = {}
    legacy: str | None = None
    for module in code.modules:
        for item in module.imports:
            full = f"{item.module}.{item.name}".rstrip(".")
            kind = "tf.keras" if full.startswith("tensorflow.keras") else full.split(".")[0]
            if kind in {"keras", "tf_keras", "tf.keras"}:
                uses.setdefault(kind, SourcePlace(module.file, item.line, full))
        for attribute, _ in module.each(ast.Attribute):
            if attribute.attr == "keras" and _comes_from_tensorflow(attribute.value, module):
                uses.setdefault("tf.keras", SourcePlace(module.file, attribute.lineno, dotted(attribute)))
        for node, _ in module.nodes:
            # the last one in the source, as if it ran from top to bottom
            legacy = _legacy_value(node) or legacy
    return uses, legacy


def _comes_from_tensorflow(node: ast.expr, module: Module) -> bool:
    return isinstance(node, ast.Name) and module.aliases.get(node.id, "").split(".")[0] == "tensorflow"


def _legacy_value(node: ast.AST) -> str | None:
    """Return the value given to TF_USE_LEGACY_KERAS by an assignment to os.environ, setdefault, putenv or update."""

    def named(part: ast.AST | None) -> bool:
        return isinstance(part, ast.Constant) and part.value == "TF_USE_LEGACY_KERAS"

    value: ast.expr | None = None
    if isinstance(node, ast.Assign) and any(isinstance(t, ast.Subscript) and named(t.slice) for t in node.targets):
        value = node.value
    elif isinstance(node, ast.Call) and last_name(node.func) in {"setdefault", "putenv"} and len(node.args) == 2:
        value = node.args[1] if named(node.args[0]) else None
    elif isinstance(node, ast.Dict):
        value = next((item for key, item in zip(node.keys, node.values, strict=True) if named(key)), None)
    elif isinstance(node, ast.keyword) and node.arg == "TF_USE_LEGACY_KERAS":
        value = node.value
    if value is None:
        return None
    return str(value.value) if isinstance(value, ast.Constant) else DYNAMIC


def environment(code: Code) -> tuple[dict[str, SourcePlace], bool]:
    names: dict[str, SourcePlace] = {}
    complete = True
    for text, node, module in code.texts_written:
        if len(text) < 100 and _VARIABLE.fullmatch(text):
            names.setdefault(text, SourcePlace(module.file, node.lineno, text))
        # a piece that is put together with others: which variable is read is only known while running
        elif len(text) < 100 and text.startswith("AIP_"):
            complete = False
    return dict(sorted(names.items())), complete


@dataclass(frozen=True)
class VariableSet:
    """One change that a trainer makes to its own environment.

    Args:
        name: Of the variable, None if only the running program knows.
        text: What it is set to, if that is plain and happens whenever the module is imported; else None.
        default: Only where it has no value yet.
        place: Where.
    """

    name: str | None
    text: str | None
    default: bool
    place: SourcePlace


def variables_set(code: Code) -> Iterator[VariableSet]:
    """Yield the changes to `os.environ`, those by `pop` left out: they undo one of the trainer's own."""
    for node, module in code.nodes:
        place = SourcePlace(module.file, getattr(node, "lineno", 1))
        statement = module.parents[id(node)] if isinstance(node, ast.Call) else node
        always = isinstance(module.parents.get(id(statement)), ast.Module)
        default = isinstance(node, ast.Call) and last_name(node.func) == "setdefault"
        for name, value in _written(node):
            text = plain_text(value) if always and name is not None else None
            yield VariableSet(plain_text(name), text, default, place)


def _written(node: ast.AST) -> Iterator[tuple[ast.expr | None, ast.expr | None]]:
    """Yield the names and values that a statement or call writes to the environment."""
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.Delete)):
        for target in [node.target] if isinstance(node, ast.AugAssign) else node.targets:
            if isinstance(target, ast.Subscript) and last_name(target.value) == "environ":
                yield target.slice, node.value if isinstance(node, ast.Assign) else None
            elif isinstance(node, ast.AugAssign) and last_name(target) == "environ":
                yield None, None
    elif isinstance(node, ast.Call) and isinstance(node.func, (ast.Attribute, ast.Name)):
        function = last_name(node.func)
        owned = isinstance(node.func, ast.Attribute) and last_name(node.func.value) == "environ"
        if function in {"putenv", "unsetenv"} or (owned and function == "setdefault"):
            yield (*node.args, None, None)[0], (*node.args, None, None)[1]
        elif owned and function == "update":
            for given in node.args:
                yield from zip(given.keys, given.values, strict=True) if isinstance(given, ast.Dict) else [(None, None)]
            yield from ((ast.Constant(keyword.arg), keyword.value) for keyword in node.keywords)
        elif owned and function in {"popitem", "clear"}:
            yield None, None
