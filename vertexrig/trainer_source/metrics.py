"""Reports of a metric through cloudml-hypertune."""

from __future__ import annotations

import ast
import re

from vertexrig.trainer_source.code import Code
from vertexrig.trainer_source.modules import FUNCTIONS
from vertexrig.trainer_source.reachability import Runs
from vertexrig.trainer_source.trainer_model import DEFAULT_METRIC, ReportedMetric

_METRIC_FILE = re.compile(r"hypertune/output\.metrics|CLOUD_ML_HP_METRIC_FILE")


def metrics(code: Code, runs: Runs) -> list[ReportedMetric]:
    """Return every report, in the order of the source."""
    found: list[ReportedMetric] = []
    unused = _unused(code)
    functions = {id(call.node.func) for call in code.calls}
    for call in code.callers("report_hyperparameter_tuning_metric"):
        # The only method of cloudml-hypertune; its first parameter is the tag.
        argument = call.argument(0, "hyperparameter_metric_tag")
        unpacked = isinstance(argument, ast.Starred) or (argument is None and call.unpacks)
        tags = None if unpacked else code.values(argument, call.scope, call.module)
        for tag in tags if tags is not None else (None,):
            text = tag if isinstance(tag, str) else None
            tag = DEFAULT_METRIC if text == "" else text
            place = call.module.file, call.node.lineno
            found.append(ReportedMetric(tag, *place, runs.repeats(call), unused.get(id(call.node), "")))
    # Without a call, a trainer that hands the method on or writes the metric file itself may report anything. If there are
    # calls, naming the metric file only prepares its folder, so it is ignored.
    reported = bool(found)
    for node, _, module in code.each(ast.Attribute):
        if node.attr == "report_hyperparameter_tuning_metric" and id(node) not in functions:
            found.append(ReportedMetric(None, module.file, node.lineno))
    for text, place_of, module in () if reported else code.texts_written:
        # a longer text is a docstring that explains the file
        if len(text) < 200 and _METRIC_FILE.search(text):
            found.append(ReportedMetric(None, module.file, place_of.lineno))
    return sorted(found, key=lambda metric: (metric.file, metric.line, metric.tag or ""))


def _unused(code: Code) -> dict[int, str]:
    """Find reports inside a function or class at the top of a module that nothing names: id of the call, its name."""
    calls = code.callers("report_hyperparameter_tuning_metric")
    # exec, globals() and getattr can call a function that nothing names
    if not calls or code.callers("getattr") or any(module.open_ended for module in code.modules):
        return {}
    named = {item.name for module in code.modules for item in module.imports}
    named |= {name for name, node in code.names if isinstance(node.ctx, ast.Load)}
    found = {}
    for call in calls:
        levels = list(call.scope.levels())
        owner = levels[-2].node if len(levels) > 1 else None
        if isinstance(owner, (*FUNCTIONS, ast.ClassDef)) and not owner.decorator_list and owner.name not in named:
            found[id(call.node)] = owner.name
    return found
