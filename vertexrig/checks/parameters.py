"""Parameters of a study: ids, value specs, scales, grids, conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from vertexrig.checks.model import BOUNDS, OVERVIEW_DOC, REST_STUDY, WALKTHROUGH, Context, Problem, Rule, join
from vertexrig.errors import ConfigError
from vertexrig.finding import REMOVE, Edit, Severity, write
from vertexrig.spec.document import Document
from vertexrig.spec.parameters import CONDITION_OF, EPSILON, LOG, REVERSE_LOG, Parameter, clashes
from vertexrig.spec.space import Space

_WIDE = 1000  # a range over three powers of ten is nearly always meant logarithmically
_SPECS = "doubleValueSpec, integerValueSpec, discreteValueSpec or categoricalValueSpec"


def present(document: Document, context: Context) -> Iterator[Problem]:
    study = document.study
    if study is not None and not study.get("parameters") and not document.refused_in("studySpec.parameters"):
        yield Problem("studySpec.parameters", "the study has no parameters to tune", "list at least one parameter")


def ids(document: Document, context: Context) -> Iterator[Problem]:
    for parameter in document.parameters:
        path = f"{parameter.path}.parameterId"
        if not parameter.id:
            if parameter.data and not document.refused_in(path):
                yield Problem(path, "the parameter has no parameterId", "name it as the trainer's argument is named")
        elif any(char.isspace() for char in parameter.id):
            fix = "write " + "_".join(parameter.id.split()) if parameter.id.strip() else ""
            yield Problem(path, f"{parameter.id!r} has white space in it; a parameterId has none", fix)


def unique(document: Document, context: Context) -> Iterator[Problem]:
    for parameter, other in _clashes(document):
        if parameter.parent is None or parameter.parent is not other.parent:  # siblings are condition-overlap's
            yield Problem(
                f"{parameter.path}.parameterId",
                f"{parameter.id!r} is already the id of {other.path}; ids are unique",
                "rename one of them, or merge them",
            )


def _clashes(document: Document) -> Iterator[tuple[Parameter, Parameter]]:
    found = clashes(document.parameters)
    return ((parameter, found[parameter.path]) for parameter in document.parameters if parameter.path in found)


def value_spec(document: Document, context: Context) -> Iterator[Problem]:
    for parameter in document.parameters:
        if not parameter.kind and parameter.data and not document.refused_in(parameter.path):
            message = f"{parameter.name} has no value spec: one of {_SPECS} belongs here"
            yield Problem(parameter.path, message, "add the one that fits")


def bounds(document: Document, context: Context) -> Iterator[Problem]:
    for parameter in document.parameters:
        if parameter.kind not in {"DOUBLE", "INTEGER"} or document.refused_in(parameter.spec_path):
            continue
        low, high = parameter.bounds
        missing = [name for name, value in (("minValue", low), ("maxValue", high)) if value is None]
        if missing:
            message = (
                f"{parameter.name} has no {' and no '.join(missing)}; both bounds are required (absent is read as 0)"
            )
            # clients that speak proto3 JSON, such as the SDK, leave out a bound that is 0
            severity = Severity.WARNING if len(missing) == 1 and (low or 0) < (high or 0) else None
            yield Problem(parameter.spec_path, message, f"write {' and '.join(missing)}", severity)
        elif low > high:
            message = f"{parameter.name} has minValue {low} above maxValue {high}"
            edits = (*write(high), *write(low, f"{parameter.spec_path}.maxValue"))
            yield Problem(f"{parameter.spec_path}.minValue", message, "swap them", edits=edits)
        elif low == high:
            message = f"{parameter.name} has {low} as both minValue and maxValue; minValue is to be less than maxValue"
            # A discrete whole number may reach the trainer as 64.0.
            other = "discreteValueSpec" if parameter.kind == "DOUBLE" else "categoricalValueSpec"
            fix = f"pass it in args, or write {other}: {{values: [{low if parameter.kind == 'DOUBLE' else repr(str(low))}]}}"
            yield Problem(f"{parameter.spec_path}.minValue", message, fix)


def several_values(document: Document, context: Context) -> Iterator[Problem]:
    grid = (document.study or {}).get("algorithm") == "GRID_SEARCH"
    for parameter in document.parameters:
        # A range of one value is an error of its bounds.
        single = parameter.kind in {"DISCRETE", "CATEGORICAL"} and parameter.domain and parameter.domain.count == 1
        if single and not document.refused_in(parameter.spec_path):
            # In a grid, one value is how a parameter is kept constant.
            severity = Severity.INFO if grid else None
            message = f"{parameter.name} can take one value only: there is nothing to tune"
            yield Problem(parameter.spec_path, message, "pass it in args, or widen it", severity)


def discrete(document: Document, context: Context) -> Iterator[Problem]:
    for parameter in document.parameters:
        path = f"{parameter.spec_path}.values"
        if parameter.kind != "DISCRETE" or document.refused_in(parameter.spec_path):
            continue
        values = parameter.values
        if not values:
            yield Problem(path, f"{parameter.name} lists no values", "list the values to try", Severity.ERROR)
        most = context.catalog.limits.integer("study.max_discrete_values")
        if len(values) > most:
            message = f"{parameter.name} lists {len(values):,} values; more than {most:,} are not supported"
            yield Problem(path, message, "use integerValueSpec or doubleValueSpec, or list fewer")
        for index, (left, right) in enumerate(pairwise(values), start=1):
            if right - left < EPSILON:
                wrong = (
                    "equal" if left == right else "not in increasing order" if right < left else "less than 1e-10 apart"
                )
                message = f"{parameter.name} lists {left}, then {right}: they are {wrong}"
                ordered = sorted(set(values))
                apart = all(two - one >= EPSILON for one, two in pairwise(ordered))
                yield Problem(
                    f"{path}[{index}]",
                    message,
                    f"write {_listed(ordered)}",
                    edits=write(ordered if apart else None, path),
                )
                # one finding for the list: what follows the first wrong pair follows from it
                break


def discrete_boolean(document: Document, context: Context) -> Iterator[Problem]:
    seen = set()
    for found in document.findings:
        path, marker, _ = found.path.partition(".discreteValueSpec.values[")
        if found.id == "wrong-type" and marker and found.value_type is bool and path not in seen:
            seen.add(path)
            fix = 'write categoricalValueSpec: {values: ["false", "true"]} and parse the string in the trainer'
            yield Problem(f"{path}.discreteValueSpec", "discrete values are numbers: true and false do not fit", fix)


def categorical(document: Document, context: Context) -> Iterator[Problem]:
    for parameter in document.parameters:
        path = f"{parameter.spec_path}.values"
        if parameter.kind != "CATEGORICAL" or document.refused_in(parameter.spec_path):
            continue
        if not parameter.values:
            yield Problem(path, f"{parameter.name} lists no values", "list the values to try", Severity.ERROR)
        seen: set[Any] = set()
        for index, value in enumerate(parameter.values):
            if value in seen:
                yield Problem(
                    f"{path}[{index}]", f"{parameter.name} lists {value!r} twice", "remove one of them", edits=REMOVE
                )
            seen.add(value)


def default_value(document: Document, context: Context) -> Iterator[Problem]:
    for parameter in document.parameters:
        if "defaultValue" in parameter.spec:
            path = f"{parameter.spec_path}.defaultValue"
            message = f"{parameter.name} has a defaultValue, which hyperparameter tuning jobs do not support"
            fix = "remove it; the trainer's argparse default serves runs outside a study"
            yield Problem(path, message, fix, edits=REMOVE)


def scale_categorical(document: Document, context: Context) -> Iterator[Problem]:
    for parameter in document.parameters:
        if parameter.kind == "CATEGORICAL" and parameter.scale:
            message = f"{parameter.name} is CATEGORICAL: strings have no scale such as {parameter.scale}"
            yield Problem(f"{parameter.path}.scaleType", message, edits=REMOVE)


def scale_positive(document: Document, context: Context) -> Iterator[Problem]:
    for parameter in document.parameters:
        if parameter.scale not in {LOG, REVERSE_LOG} or parameter.kind == "CATEGORICAL":
            continue
        low, _ = parameter.bounds
        if low is not None and low <= 0:
            message = f"{parameter.name} starts at {low}: {parameter.scale} needs every value above 0"
            fix = "start above 0 (such as 0.0001), or use UNIT_LINEAR_SCALE"
            yield Problem(f"{parameter.path}.scaleType", message, fix)


def scale_set(document: Document, context: Context) -> Iterator[Problem]:
    for parameter in document.parameters:
        if parameter.kind not in {"DOUBLE", "INTEGER"} or parameter.scale:
            continue
        if document.refused_in(f"{parameter.path}.scaleType"):
            continue
        low, high = parameter.bounds
        wide = low is not None and high is not None and low > 0 and high / low >= _WIDE
        fix = "" if wide else "write scaleType: UNIT_LINEAR_SCALE or UNIT_LOG_SCALE"
        message = (
            f"{parameter.name} has no scaleType, so its values are not scaled; Google's documentation recommends one"
        )
        edits = write("UNIT_LOG_SCALE" if wide else None, f"{parameter.path}.scaleType")
        yield Problem(parameter.path, message, fix, edits=edits)


def grid_double(document: Document, context: Context) -> Iterator[Problem]:
    if (document.study or {}).get("algorithm") != "GRID_SEARCH":
        return
    for parameter in document.parameters:
        if parameter.kind == "DOUBLE":
            message = f"{parameter.name} is DOUBLE: GRID_SEARCH takes INTEGER, CATEGORICAL and DISCRETE parameters only"
            fix = "list its values in a discreteValueSpec, or leave algorithm out"
            yield Problem(parameter.spec_path, message, fix)


def grid_size(document: Document, context: Context) -> Iterator[Problem]:
    study, most = document.study or {}, document.data.get("maxTrialCount")
    if study.get("algorithm") != "GRID_SEARCH" or not most or most < 0:
        return
    try:
        points = Space(study.get("parameters", ())).size
    except ConfigError:
        points = None
    # what makes a grid uncountable is another rule's finding
    if points is None or points == most or document.refused_in("studySpec.parameters"):
        return
    # a longer number is not readable
    shown = f"{points:,}" if points < 10**15 else "more than 10^15"
    if points > most:
        message = f"the grid has {shown} combinations and maxTrialCount is {most:,}: the others never run"
    else:
        message = f"the grid has only {shown} combinations and maxTrialCount is {most:,}"
    few = points < 10**15
    yield Problem("maxTrialCount", message, "" if few else "list fewer values", edits=write(points if few else None))


def condition_parent(document: Document, context: Context) -> Iterator[Problem]:
    for child in document.parameters:
        condition, parent = child.condition, child.parent
        if condition is None or parent is None or not parent.kind:
            continue
        if parent.kind == "DOUBLE":
            message = f"{parent.name} is DOUBLE and cannot be a parent: parents are DISCRETE, INTEGER or CATEGORICAL"
            yield Problem(condition.path, message, "make the parent discrete, or the child unconditional")
        elif condition.kind and condition.kind != parent.kind:
            message = f"{condition.field} is for {condition.kind} parents, and {parent.name} is {parent.kind}"
            edits = (Edit(key=CONDITION_OF[parent.kind]),)
            yield Problem(f"{condition.path}.{condition.field}", message, edits=edits)


def condition_values(document: Document, context: Context) -> Iterator[Problem]:
    for child in document.parameters:
        condition, parent = child.condition, child.parent
        if condition is None or parent is None or parent.kind == "DOUBLE" or document.refused_in(condition.path):
            continue
        if not condition.values:
            what = f"{condition.field} lists no values" if condition.field else "there is no condition"
            fix = f"write {CONDITION_OF.get(parent.kind or 'CATEGORICAL')}: {{values: [...]}}"
            yield Problem(condition.path, f"{what}: {child.name} would never be active", fix)
        elif condition.kind == parent.kind and not document.refused_in(parent.spec_path):
            for index, value in enumerate(condition.values):
                if parent.domain is not None and not parent.domain.holds(value):
                    path = f"{condition.path}.{condition.field}.values[{index}]"
                    yield Problem(path, f"{parent.name} never is {value!r}; it is {_space(parent)}", "use one of those")


def condition_overlap(document: Document, context: Context) -> Iterator[Problem]:
    for child, other in _clashes(document):
        parent = child.parent
        if parent is not None and parent is other.parent and child.condition and other.condition:
            both = set(child.condition.values) & set(other.condition.values)
            shown = f": {_listed(sorted(both, key=str))}" if both else ""
            message = f"{child.name} is conditional twice for the same value of {parent.name}{shown}"
            yield Problem(child.path, message, "give each value of the parent to one of the two")


def condition_spec(document: Document, context: Context) -> Iterator[Problem]:
    for child in document.parameters:
        if child.condition is not None and not child.data and not document.refused_in(child.condition.path):
            text = "the condition has no parameterSpec"
            yield Problem(child.condition.path, text, "add the parameter it makes active")


def _listed(values: Sequence[Any]) -> str:
    """Return the first eight values in brackets."""
    return f"[{', '.join(map(repr, values[:8]))}{', …' if len(values) > 8 else ''}]"


def _space(parameter: Parameter) -> str:
    if parameter.kind == "INTEGER":
        return f"between {parameter.bounds[0]} and {parameter.bounds[1]}"
    return f"one of {_listed(parameter.values)}"


_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO

RULES: tuple[Rule, ...] = (
    Rule("parameter-missing", _E, "A study has at least one parameter.", REST_STUDY, present),
    Rule("parameter-id", _E, "Every parameter has an id without white space.", REST_STUDY, ids),
    Rule("parameter-duplicate", _E, "Parameters that can be active together have different ids.", REST_STUDY, unique),
    Rule("parameter-type", _E, "Every parameter has a value spec.", REST_STUDY, value_spec),
    Rule("parameter-bounds", _E, "DOUBLE and INTEGER parameters have both bounds, the smaller first, and they are not equal.",
         join(REST_STUDY, BOUNDS), bounds, "unsafe"),
    Rule("parameter-one-value", _W, "DISCRETE and CATEGORICAL parameters have more than one value to try.",
         REST_STUDY, several_values),
    Rule("discrete-values", _W, "Discrete values increase by 1e-10 or more, and there are at most 1,000 of them.",
         REST_STUDY, discrete, "safe"),
    Rule("discrete-boolean", _E, "True and false are categorical strings, not discrete numbers.",
         join(REST_STUDY, WALKTHROUGH), discrete_boolean),
    Rule("categorical-values", _W, "A CATEGORICAL parameter lists its values, each once.", REST_STUDY, categorical, "safe"),
    Rule("parameter-default", _E, "No parameter has a defaultValue: tuning jobs do not support it.",
         REST_STUDY, default_value, "unsafe"),
    Rule("scale-categorical", _E, "CATEGORICAL parameters have no scaleType.", REST_STUDY, scale_categorical, "safe"),
    Rule("scale-positive", _E, "Logarithmic scales have strictly positive ranges.", OVERVIEW_DOC, scale_positive),
    Rule("scale-missing", _I, "DOUBLE and INTEGER parameters have a scaleType.", OVERVIEW_DOC, scale_set, "unsafe"),
    Rule("grid-double", _E, "A grid search has no DOUBLE parameter.", OVERVIEW_DOC, grid_double),
    Rule("grid-size", _W, "A grid search has as many trials as its grid has points.", OVERVIEW_DOC, grid_size, "unsafe"),
    Rule("condition-parent", _E, "Conditions are written for the parent's kind, which is not DOUBLE.",
         REST_STUDY, condition_parent, "safe"),
    Rule("condition-values", _E, "Conditions name values that the parent can take.", REST_STUDY, condition_values),
    Rule("condition-overlap", _E, "Conditional parameters of one name have disjoint conditions.",
         REST_STUDY, condition_overlap),
    Rule("condition-spec", _E, "Every condition has a parameter to make active.", REST_STUDY, condition_spec),
)  # fmt: skip
