"""What an overlay may say: the fields of each table, their types, and which a new row needs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from vertexrig.catalog import tables
from vertexrig.catalog.yaml_nodes import Document, kind_of, scalar
from vertexrig.errors import did_you_mean

_DATE = re.compile(r"\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")


class Bad(Exception):
    """A value breaks its type; the caller adds the place."""

    def __init__(self, node: yaml.Node, message: str) -> None:
        self.node = node
        super().__init__(message)


@dataclass(frozen=True)
class Known:
    """The names a row may refer to, shipped or laid over."""

    accelerators: frozenset[str]
    quotas: frozenset[str]


Reader = Callable[[Document, yaml.Node, Known], Any]


@dataclass(frozen=True)
class Field:
    """A field of a table.

    Args:
        read: Turns a node into the raw value or raises Bad.
        required: A new row must have it.
        default: What a new row gets without it.
    """

    read: Reader
    required: bool = False
    default: Any = None


def _one(check: Callable[[Any], bool], what: str) -> Reader:
    def read(document: Document, node: yaml.Node, known: Known) -> Any:
        value = scalar(node)
        if not check(value):
            raise Bad(node, f"must be {what}, not {kind_of(node)}")
        return value

    return read


def _optional(reader: Reader) -> Reader:
    def read(document: Document, node: yaml.Node, known: Known) -> Any:
        return None if scalar(node) is None else reader(document, node, known)

    return read


def _choice(*choices: str) -> Reader:
    def read(document: Document, node: yaml.Node, known: Known) -> str:
        return _named(node, choices)

    return read


def _named(node: yaml.Node, choices: tuple[str, ...] | frozenset[str]) -> str:
    value = scalar(node)
    if not isinstance(value, str):
        raise Bad(node, f"must be a name, not {kind_of(node)}")
    if value not in choices:
        raise Bad(node, f"{value[:80]!r} is not known. {did_you_mean(value, choices)}")
    return value


def _list(reader: Reader) -> Reader:
    def read(document: Document, node: yaml.Node, known: Known) -> list[Any]:
        if not isinstance(node, yaml.SequenceNode):
            raise Bad(node, f"must be a list, not {kind_of(node)}")
        return [reader(document, item, known) for item in node.value]

    return read


def _accelerator(document: Document, node: yaml.Node, known: Known) -> str:
    return _named(node, known.accelerators)


def _counts(document: Document, node: yaml.Node, known: Known) -> dict[str, list[int]]:
    found = {}
    for name, (key, value) in document.mapping(node, "accelerators").items():
        _named(key, known.accelerators)
        found[name] = _list(_one(_whole(1), "a whole number of at least 1"))(document, value, known)
    return found


def _topologies(document: Document, node: yaml.Node, known: Known) -> dict[str, list[int]]:
    found = {}
    for name, (_, value) in document.mapping(node, "tpu_topologies").items():
        size = _list(_one(_whole(1), "a whole number of at least 1"))(document, value, known)
        if len(size) != 2:
            raise Bad(value, f"topology {name[:80]!r} must be [chips, vms]")
        found[name] = size
    return found


def _quotas(document: Document, node: yaml.Node, known: Known) -> dict[str, int | None]:
    found = {}
    for name, (key, value) in document.mapping(node, "quotas").items():
        _named(key, known.quotas)
        found[name] = _optional(COUNT)(document, value, known)
    return found


def _any(document: Document, node: yaml.Node, known: Known) -> Any:
    """The value of a limit: a scalar, a list of strings or a mapping of strings."""
    if isinstance(node, yaml.SequenceNode):
        return _list(TEXT)(document, node, known)
    if isinstance(node, yaml.MappingNode):
        return {k: TEXT(document, value, known) for k, (_, value) in document.mapping(node, "value").items()}
    return _one(lambda value: isinstance(value, (str, int, float)), "a number, a string, a list or a mapping")(
        document, node, known
    )


def _whole(least: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


TEXT = _one(lambda value: isinstance(value, str) and value.strip() != "", "a string (numbers in quotes)")
FREE = _one(lambda value: isinstance(value, str), "a string")
FLAG = _one(lambda value: isinstance(value, bool), "true or false")
COUNT = _one(_whole(0), "a whole number of at least 0")
NUMBER = _one(_is_number, "a number of at least 0")
DATE = _one(lambda value: isinstance(value, str) and bool(_DATE.fullmatch(value)), "a date such as 2026-11-20")

ALWAYS: Mapping[str, Field] = {"source": Field(TEXT), "date": Field(DATE), "note": Field(FREE, default="")}

SCHEMA: Mapping[str, Mapping[str, Field]] = {
    "machines": {
        "family": Field(TEXT, required=True),
        "vcpus": Field(_optional(COUNT), required=True),
        "memory_gb": Field(_optional(NUMBER), required=True),
        "accelerators": Field(_counts, default={}),
        "accelerator_required": Field(FLAG, default=False),
        "tpu": Field(_accelerator, default=""),
        "tpu_topologies": Field(_topologies, default={}),
    },
    "accelerators": {
        "kind": Field(_choice("gpu", "tpu"), required=True),
        "max_per_vm": Field(_optional(COUNT)),
        "retired": Field(_optional(TEXT)),
        "api_enum": Field(FLAG, default=True),
        "gcloud_enum": Field(FLAG, default=False),
        "flex_start": Field(FLAG, default=False),
        "pod_step": Field(_optional(_one(_whole(1), "a whole number of at least 1"))),
        "pod_name": Field(_accelerator, default=""),
    },
    "regions": {
        "location": Field(FREE, default=""),
        "gcloud": Field(FLAG, required=True),
        "training": Field(_list(_accelerator), default=[]),
        "not_for_training": Field(_list(_accelerator), default=[]),
        "quotas": Field(_quotas, default={}),
    },
    "images": {
        "framework": Field(_choice("tf", "pytorch", "sklearn", "xgboost", "ray"), required=True),
        "version": Field(TEXT, required=True),
        "python": Field(TEXT, required=True),
        "kind": Field(_choice("cpu", "gpu", "tpu", "cpu_or_gpu"), required=True),
        "cuda": Field(_optional(TEXT)),
        "repository_path": Field(TEXT, required=True),
        "end_of_support": Field(DATE, required=True),
        "end_of_availability": Field(DATE, required=True),
        "hypertune": Field(FLAG, required=True),
    },
    "prices": {
        "kind": Field(_choice("machine", "accelerator", "disk_gb", "vcpu", "memory_gb", "example"), required=True),
        "usd_per_hour": Field(NUMBER),
        "compute_engine_usd": Field(NUMBER),
        "includes_accelerators": Field(FLAG, default=False),
    },
    "quotas": {
        "unit": Field(TEXT, required=True),
        "applies_to": Field(_list(TEXT), required=True),
        "metric": Field(_optional(TEXT)),
        "preemptible_metric": Field(_optional(TEXT)),
    },
    "limits": {"value": Field(_any, required=True)},
}
"""The tables an overlay may name. The order of the fields is that of the messages."""

FIXED: Mapping[str, Callable[[], list[str]]] = {"limits": lambda: list(tables.by_name("limits"))}
"""Tables that can be corrected but not added to, since code reads them by key."""
