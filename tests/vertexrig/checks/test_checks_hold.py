"""No document of any shape makes a rule fail: mutations of the cases of the rules, and any YAML."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.packages import trainer_with
from tests.support.tools import examples
from tests.vertexrig.checks.job_bases import BASES, changed
from tests.vertexrig.checks.test_rules import ALL
from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.checks import Context, check, rules, rules_for
from vertexrig.finding import Finding, Severity
from vertexrig.spec.quota import quota_needs
from vertexrig.trainer_source.trainer_model import TrainerSource

CATALOG = load()
CASES = [case for case, _ in ALL]
OF_TRAINERS = [case for case in CASES if case.trainer]
REGIONS = ["", "us-central1", "europe-west6", "me-west1", "nowhere", "us-"]

NUMBERS = st.sampled_from([-(2**63), -(2**31), -1, 0, 1, 2, 3, 8, 16, 32, 40, 256, 2**31 - 1, 0.5, 1e300])
ODD_TEXTS = [
    "gs://", "gs://b", "gs://{B}/x", "a@b", "projects/1/global/networks/n", "a/b/c/d/e/f", '"x"', "$(A)", "AIP_X", "TF_CONFIG",
    "a:b@c", "1.2.3", "é", "::", "us-docker.pkg.dev/vertex-ai/training/", "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310",
    ".", "/", "--a b", " ", "learning_rate", "UNIT_LOG_SCALE", "GRID_SEARCH",
]  # fmt: skip
TEXTS = st.text(max_size=12) | st.sampled_from(ODD_TEXTS)
WORDS = '--epochs --epochs= --epochs=1 - -- --=1 = --cache 1 -1 -m trainer.task --x="a"'.split()
LINES = st.lists(st.text(max_size=6) | st.sampled_from([*WORDS, *ODD_TEXTS]), max_size=5)
ODD_MACHINES = ["cloud-tpu", "ct6e-standard-4t", "n2d-standard-4", "m2-x", "n1-standard-9", "", "-"]
MACHINES = [*list(CATALOG.machines)[::6], *ODD_MACHINES]
# What a value of that key may well be.
LIKELY = {
    "machineType": st.sampled_from(MACHINES),
    "acceleratorType": st.sampled_from([name for name, row in CATALOG.accelerators.items() if row.api_enum]),
    "tpuTopology": st.sampled_from(["2x2", "2x4", "4x4", "x", ""]),
    "imageUri": st.sampled_from([image.uri() for image in CATALOG.images[::9]]),
    "executorImageUri": st.sampled_from([image.uri() for image in CATALOG.images[::9]]),
    "strategy": st.sampled_from(["SPOT", "FLEX_START", "LOW_COST", "STANDARD", "STRATEGY_UNSPECIFIED"]),
    "timeout": st.sampled_from(["-1s", "0s", "1s", "999999999s"]),
    "maxWaitDuration": st.sampled_from(["-1s", "0s", "1s"]),
    "command": LINES,
    "args": LINES,
}
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def _errors(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.severity is Severity.ERROR]


def _hold(document: spec.Document, region: str, trainer: TrainerSource | None = None) -> None:
    context = Context(CATALOG, region=region, today=date(2026, 11, 20), trainer=trainer)
    found = check(document, context)
    for finding in found:
        assert finding.message and finding.source and finding.id
    # what is not loaded for a document would find nothing in it, and without advice no error is missed
    loaded = {rule.id for rule in rules_for(document, context)}
    assert [rule.id for rule in rules() if rule.id not in loaded and list(rule.run(document, context))] == []
    errors = check(document, replace(context, advice=False))
    assert _errors(errors) == _errors(found)
    for need in quota_needs(document, CATALOG, region):
        assert need.amount >= 1 and need.unit and need.path


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every value in plain data: what it is in, and its key or index there."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from _places(inner)


@pytest.mark.whole
@settings(max_examples=examples(120, 4000), suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(OF_TRAINERS) | st.sampled_from(CASES), st.data())
def test_no_mutation_of_a_case_makes_a_rule_fail(case: Any, data: st.DataObject) -> None:
    """Jobs with the edits of up to three cases, and any values left out or replaced, give findings, never an exception."""
    alike = [other for other in CASES if other.base == case.base]
    job = changed(BASES[case.base], case.bad)
    for other in data.draw(st.lists(st.sampled_from(alike), max_size=2)):
        try:
            job = changed(job, other.bad)
        except (KeyError, IndexError, TypeError):  # what it edits is not there
            continue
    programs = [around for around, key in _places(job) if key in {"imageUri", "pythonModule"}]
    for program in programs[:1] if case.trainer else ():
        program["args"] = [*program.get("args", ()), *data.draw(LINES)]
    for _ in range(data.draw(st.integers(0, 4))):
        around, key = data.draw(st.sampled_from([*_places(job)]))
        if data.draw(st.booleans()):
            around[key] = data.draw(LIKELY.get(str(key), NUMBERS) | PLAIN | TEXTS | NUMBERS)
        else:
            del around[key]
        if not job:
            break
    trainer = trainer_with(case.trainer) if case.trainer else None
    _hold(spec.parse(yaml.safe_dump(job, sort_keys=False)), data.draw(st.sampled_from(REGIONS)), trainer)


@settings(max_examples=examples(40, 2000))
@given(PLAIN)
def test_no_yaml_of_any_shape_makes_a_rule_fail(data: Any) -> None:
    """Any YAML, taken for either resource, gives findings, never an exception."""
    text = yaml.safe_dump(data)
    for kind in spec.KINDS:
        _hold(spec.parse(text, kind=kind), "us-central1")
