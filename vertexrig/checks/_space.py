"""A study's search space as the checks read it: parameters, nested ones included, their values and their conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vertexrig.checks.places import already_reported
from vertexrig.finding import Severity
from vertexrig.spec.document import Document

REST_STUDY = "REST reference v1 of StudySpec and its types (copy of 2026-08-22)"
REST_JOB = "REST reference v1 of HyperparameterTuningJob (copy of 2026-08-22)"
OVERVIEW_DOC = "hyperparameter-tuning-overview page (copy of 2026-08-22)"

EPSILON = 1e-10
"""Discrete values nearer to each other than this are one value to the service (REST DiscreteValueSpec)."""

_KINDS = {
    "doubleValueSpec": "DOUBLE",
    "integerValueSpec": "INTEGER",
    "categoricalValueSpec": "CATEGORICAL",
    "discreteValueSpec": "DISCRETE",
}
_CONDITIONS = {
    "parentDiscreteValues": "DISCRETE",
    "parentIntValues": "INTEGER",
    "parentCategoricalValues": "CATEGORICAL",
}
CONDITION_OF = {kind: name for name, kind in _CONDITIONS.items()}


@dataclass(frozen=True)
class Condition:
    """What makes a conditional parameter active.

    Args:
        path: The item of `conditionalParameterSpecs`.
        field: `parentDiscreteValues`, `parentIntValues` or `parentCategoricalValues`; "" if none is given.
        values: The parent values it names.
    """

    path: str
    field: str
    values: tuple[Any, ...]

    @property
    def kind(self) -> str:
        """The kind of parent it is written for: DISCRETE, INTEGER or CATEGORICAL; "" without a condition."""
        return _CONDITIONS.get(self.field, "")


@dataclass(frozen=True)
class Parameter:
    """One ParameterSpec of a study.

    Args:
        path: Where it stands: `studySpec.parameters[0]`, or deeper for a conditional one.
        data: Its canonical data.
        parent: The parameter whose value makes it active, None at the top.
        condition: Which of the parent's values do so, None at the top.
    """

    path: str
    data: Mapping[str, Any]
    parent: Parameter | None = None
    condition: Condition | None = None

    @property
    def id(self) -> str:
        return str(self.data.get("parameterId", ""))

    @property
    def name(self) -> str:
        """What messages call it."""
        return repr(self.id) if self.id else "the parameter"

    @property
    def spec_field(self) -> str:
        """`doubleValueSpec` and so on; "" when none of the four is there."""
        return next((name for name in _KINDS if name in self.data), "")

    @property
    def kind(self) -> str:
        """DOUBLE, INTEGER, CATEGORICAL, DISCRETE, or "" when no value spec is there."""
        return _KINDS.get(self.spec_field, "")

    @property
    def spec(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.data.get(self.spec_field, {})
        return found

    @property
    def spec_path(self) -> str:
        return f"{self.path}.{self.spec_field}"

    @property
    def values(self) -> tuple[Any, ...]:
        """The listed values of a DISCRETE or CATEGORICAL parameter; empty for the other two."""
        return tuple(self.spec.get("values", ()))

    @property
    def bounds(self) -> tuple[Any, Any]:
        """Smallest and largest value of a numeric parameter; None for what is not written."""
        if self.kind == "DISCRETE":
            return (min(self.values), max(self.values)) if self.values else (None, None)
        return self.spec.get("minValue"), self.spec.get("maxValue")

    @property
    def scale(self) -> str:
        """The scale type's name, "" if unset."""
        name = str(self.data.get("scaleType", ""))
        return "" if name == "SCALE_TYPE_UNSPECIFIED" else name

    @cached_property
    def children(self) -> tuple[Parameter, ...]:
        """The conditional parameters directly under this one; one without a spec has empty data."""
        found = []
        for index, item in enumerate(self.data.get("conditionalParameterSpecs", ())):
            path = f"{self.path}.conditionalParameterSpecs[{index}]"
            field = next((name for name in _CONDITIONS if name in item), "")
            condition = Condition(path, field, tuple(item.get(field, {}).get("values", ())))
            found.append(Parameter(f"{path}.parameterSpec", item.get("parameterSpec", {}), self, condition))
        return tuple(found)

    def has(self, value: Any) -> bool:
        """Whether `value` is one this parameter can take."""
        if self.kind == "CATEGORICAL" or isinstance(value, str):
            return value in self.values
        if self.kind == "DISCRETE":
            return any(abs(value - own) <= EPSILON for own in self.values)
        low, high = self.bounds
        return low is not None and high is not None and bool(low <= value <= high)

    def size(self) -> int | None:
        """How many values it can take: None for a DOUBLE, or when its spec is not complete."""
        if self.kind in {"DISCRETE", "CATEGORICAL"}:
            return len(set(self.values)) or None
        low, high = self.bounds
        if self.kind != "INTEGER" or low is None or high is None or low > high:
            return None
        return int(high) - int(low) + 1

    def combinations(self) -> int | None:
        """Grid points of this parameter with those it makes active: None if they cannot be counted."""
        total = self.size()
        if total is None:
            return None
        conditions = [child.condition.values if child.condition else () for child in self.children]
        sizes = [child.combinations() for child in self.children]
        for value in {value for values in conditions for value in values if self.has(value)}:
            product = 1
            for values, size in zip(conditions, sizes, strict=True):
                if value in values:
                    if size is None:
                        return None
                    product *= size
            total += product - 1
        return total

    def lineage(self) -> dict[str, frozenset[Any]]:
        """For this parameter to be active: each ancestor's path with the values that ancestor must have."""
        found: dict[str, frozenset[Any]] = {}
        here: Parameter = self
        while here.parent is not None and here.condition is not None:
            found[here.parent.path] = frozenset(here.condition.values)
            here = here.parent
        return found

    def excludes(self, other: Parameter) -> bool:
        """Whether this parameter and `other` can never be active in the same trial."""
        mine, theirs = self.lineage(), other.lineage()
        return any(not values & theirs[path] for path, values in mine.items() if path in theirs)


def parameters(document: Document) -> Iterator[Parameter]:
    """Every parameter of the study, in the order of the file, conditional ones after the one they hang on."""
    stack = list(reversed(top_parameters(document)))
    while stack:
        parameter = stack.pop()
        yield parameter
        stack.extend(reversed(parameter.children))


def top_parameters(document: Document) -> list[Parameter]:
    """The parameters that are active in every trial."""
    found = (document.study or {}).get("parameters", ())
    return [Parameter(f"studySpec.parameters[{index}]", data) for index, data in enumerate(found)]


def refused(document: Document, path: str) -> bool:
    """Whether the strict reading refused `path`, what is around it, or something in it: no rule says it again then."""
    if already_reported(document, path):
        return True
    inside = (f"{path}.", f"{path}[")
    errors = (found.path for found in document.findings if found.severity is Severity.ERROR)
    return any(found.startswith(inside) for found in errors)
