"""Tools for the tests of the rules: whole job specs with one place changed, and what given rules find in them."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.checks.model import Context, Rule
from vertexrig.package.source.model import TrainerSource
from vertexrig.package.source.reader import read

GONE = object()
"""As a change: the key is removed."""
TODAY = date(2026, 11, 20)
IMAGE = "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest"

POOL: dict[str, Any] = {
    "machineSpec": {"machineType": "n1-standard-8"},
    "replicaCount": 1,
    "pythonPackageSpec": {
        "executorImageUri": IMAGE,
        "packageUris": ["gs://bucket/trainer-0.1.0.tar.gz"],
        "pythonModule": "trainer.task",
        "args": [],
    },
}
JOB: dict[str, Any] = {
    "workerPoolSpecs": [POOL],
    "scheduling": {"timeout": "3600s"},
    "baseOutputDirectory": {"outputUriPrefix": "gs://bucket/out"},
}
STUDY: dict[str, Any] = {
    "displayName": "study",
    "maxTrialCount": 40,
    "parallelTrialCount": 4,
    "maxFailedTrialCount": 4,
    "studySpec": {
        "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
        "parameters": [
            {
                "parameterId": "learning_rate",
                "doubleValueSpec": {"minValue": 0.001, "maxValue": 1},
                "scaleType": "UNIT_LOG_SCALE",
            },
            {"parameterId": "num_units", "discreteValueSpec": {"values": [64, 128, 512]}},
        ],
    },
    "trialJobSpec": JOB,
}


@dataclass(frozen=True)
class Case:
    """One rule with a spec it finds something in and one it accepts.

    Args:
        rule: The rule's id.
        bad: Changes to the base spec that make the rule speak, by path.
        good: Changes that do not, close to the bad ones.
        at: Where the finding must be.
        trainer: Source of `trainer/task.py`, for rules that read it; for the bad spec.
        better: The same for the good spec, if it differs.
    """

    rule: str
    bad: Mapping[str, Any]
    good: Mapping[str, Any]
    at: str = ""
    trainer: str = ""
    better: str = field(default="")


def changed(base: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `base` with the value at each path (`a.b[0].c`) set, added or removed."""
    data = copy.deepcopy(base)
    for path, value in changes.items():
        keys = [int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", path)]
        place: Any = data
        for key in keys[:-1]:
            place = place.setdefault(key, {}) if isinstance(place, dict) else place[key]
        if value is GONE:
            del place[keys[-1]]
        elif isinstance(place, list) and keys[-1] == len(place):
            place.append(copy.deepcopy(value))
        else:
            place[keys[-1]] = copy.deepcopy(value)
    return data


def document(base: dict[str, Any], changes: Mapping[str, Any] | None = None) -> spec.Document:
    """`base` with changes, as the strict reading gives it."""
    return spec.from_data(changed(base, changes or {}))


def trainer_of(folder: Path, source: str, **others: str) -> TrainerSource:
    """A trainer folder written out and read: `source` as trainer/task.py, others as trainer/NAME.py."""
    package = folder / "trainer"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("")
    for name, text in {"task": source, **others}.items():
        (package / f"{name}.py").write_text(text)
    return read(folder, "trainer.task")


def context(trainer: TrainerSource | None = None) -> Context:
    """A context on a fixed day, with the shipped catalog."""
    return Context(catalog=load(), region="us-central1", today=TODAY, trainer=trainer)


def found(
    rules: Iterable[Rule], checked: spec.Document, around: Context | None = None
) -> dict[str, list[tuple[str, str, str]]]:
    """Severity, path and message of what each rule finds, by rule id; rules that find nothing are left out."""
    result: dict[str, list[tuple[str, str, str]]] = {}
    for rule in rules:
        for problem in rule.run(checked, around or context()):
            severity = (problem.severity or rule.severity).value
            result.setdefault(rule.id, []).append((severity, problem.path, problem.message))
    return result
