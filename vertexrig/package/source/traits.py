"""What a trainer does beside reading flags: metrics, strategies, Keras, environment variables."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from vertexrig.package.source.model import DEFAULT_METRIC, DYNAMIC, ReportedMetric, SourcePlace, Strategy
from vertexrig.package.source.names import Code, Module, dotted, last_name, plain_text
from vertexrig.package.source.runs import Runs

STRATEGIES = {
    "MirroredStrategy": "MirroredStrategy",
    "MultiWorkerMirroredStrategy": "MultiWorkerMirroredStrategy",
    "CollectiveAllReduceStrategy": "MultiWorkerMirroredStrategy",
    "ParameterServerStrategy": "ParameterServerStrategy",
    "ParameterServerStrategyV2": "ParameterServerStrategy",
    "TPUStrategy": "TPUStrategy",
    "TPUStrategyV2": "TPUStrategy",
    "CentralStorageStrategy": "CentralStorageStrategy",
    "OneDeviceStrategy": "OneDeviceStrategy",
}
"""Names of tf.distribute's strategies, old ones included, by the name used today."""
_VARIABLE = re.compile(r"(AIP|CLOUD_ML|TF|KERAS|KERASTUNER|CLUSTER|TPU)_[A-Z0-9_]+")
_METRIC_FILE = re.compile(r"hypertune/output\.metrics|CLOUD_ML_HP_METRIC_FILE")


def metrics(code: Code, runs: Runs, unused: Mapping[int, str]) -> list[ReportedMetric]:
    found: list[ReportedMetric] = []
    functions = {id(call.node.func) for call in code.calls}
    for call in code.callers("report_hyperparameter_tuning_metric"):
        # The only method of cloudml-hypertune; its first parameter is the tag.
        argument = call.keywords.get("hyperparameter_metric_tag") or (call.node.args[0] if call.node.args else None)
        unpacked = isinstance(argument, ast.Starred) or (argument is None and call.unpacks)
        tags = None if unpacked else code.values(argument, call.scope, call.module)
        for tag in tags if tags is not None else (None,):
            text = tag if isinstance(tag, str) else None
            tag = DEFAULT_METRIC if text == "" else text
            place = call.module.file, call.node.lineno
            found.append(ReportedMetric(tag, *place, runs.repeats(call), unused.get(id(call.node), "")))
    # Without a call, a trainer that hands the method on or writes the metric file itself may report anything. Beside calls
    # the file's name only prepares its folder.
    reported = bool(found)
    for node, module in code.nodes:
        handed_on = (
            isinstance(node, ast.Attribute)
            and node.attr == "report_hyperparameter_tuning_metric"
            and id(node) not in functions
        )
        if handed_on or (not reported and _names_metric_file(node)):
            found.append(ReportedMetric(None, module.file, getattr(node, "lineno", 1)))
    return sorted(found, key=lambda metric: (metric.file, metric.line, metric.tag or ""))


def _names_metric_file(node: ast.AST) -> bool:
    text = plain_text(node)
    # a longer text is a docstring that explains the file
    return text is not None and len(text) < 200 and _METRIC_FILE.search(text) is not None


def strategies(code: Code) -> list[Strategy]:
    found: dict[Strategy, None] = {}
    for node, module in code.nodes:
        name = node.attr if isinstance(node, ast.Attribute) else ""
        if isinstance(node, ast.Name) and "tensorflow" in module.aliases.get(node.id, ""):
            name = module.aliases[node.id].rpartition(".")[2]
        # getattr(tf.distribute, "MirroredStrategy")
        elif isinstance(node, ast.Call) and last_name(node.func) == "getattr" and len(node.args) > 1:
            name = plain_text(node.args[1]) or ""
        if name in STRATEGIES:
            found[Strategy(STRATEGIES[name], module.file, getattr(node, "lineno", 1))] = None
    return list(found)


def keras_uses(code: Code) -> tuple[dict[str, SourcePlace], str | None]:
    uses: dict[str, SourcePlace] = {}
    legacy: str | None = None
    for module in code.modules:
        for item in module.imports:
            full = f"{item.module}.{item.name}".rstrip(".")
            kind = "tf.keras" if full.startswith("tensorflow.keras") else full.split(".")[0]
            if kind in {"keras", "tf_keras", "tf.keras"}:
                uses.setdefault(kind, SourcePlace(module.file, item.line, full))
        for node, _ in module.nodes:
            if isinstance(node, ast.Attribute) and node.attr == "keras" and _comes_from_tensorflow(node.value, module):
                uses.setdefault("tf.keras", SourcePlace(module.file, node.lineno, dotted(node)))
            # the last one in the source, as if it ran from top to bottom
            legacy = _legacy_value(node) or legacy
    return uses, legacy


def _comes_from_tensorflow(node: ast.expr, module: Module) -> bool:
    return isinstance(node, ast.Name) and module.aliases.get(node.id, "").split(".")[0] == "tensorflow"


def _legacy_value(node: ast.AST) -> str | None:
    """The value given to TF_USE_LEGACY_KERAS by an assignment to os.environ, setdefault, putenv or update."""

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
    for node, module in code.nodes:
        text = plain_text(node)
        if text is not None and len(text) < 100:
            if _VARIABLE.fullmatch(text):
                names.setdefault(text, SourcePlace(module.file, getattr(node, "lineno", 1), text))
            # a piece that is put together with others: which variable is read is only known while running
            elif text.startswith("AIP_"):
                complete = False
    return dict(sorted(names.items())), complete
