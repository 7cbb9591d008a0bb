"""No document of any shape makes a rule fail: random mappings, and mutations of valid specs."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.vertexrig.checks.job_bases import BASES, VALID
from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.checks import Context, check, rules, rules_for
from vertexrig.finding import Finding, Severity
from vertexrig.spec.quota import quota_needs

CATALOG = load()
REGIONS = ["", "us-central1", "europe-west6", "me-west1", "nowhere", "us-"]

ODD_MACHINES = ["cloud-tpu", "ct6e-standard-4t", "n2d-standard-4", "m2-x", "n1-standard-9", "", "-"]
MACHINES = [*list(CATALOG.machines)[::6], *ODD_MACHINES]
ACCELERATORS = [name for name, row in CATALOG.accelerators.items() if row.api_enum]
NUMBERS = st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 8, 16, 32, 40, 256, 2**31 - 1])
ODD_TEXTS = [
    "gs://",
    "gs://b",
    "gs://{B}/x",
    "a@b",
    "projects/1/global/networks/n",
    "a/b/c/d/e/f",
    '"x"',
    "$(A)",
    "AIP_X",
    "TF_CONFIG",
    "a:b@c",
    "1.2.3",
    "é",
    "::",
    "us-docker.pkg.dev/vertex-ai/training/",
    "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310",
    ".",
    "/",
]
TEXTS = st.one_of(st.text(max_size=12), st.sampled_from([*ODD_TEXTS, "--a b", " "]))
POOL = st.fixed_dictionaries(
    {},
    optional={
        "machineSpec": st.fixed_dictionaries(
            {},
            optional={
                "machineType": st.sampled_from(MACHINES),
                "acceleratorType": st.sampled_from(ACCELERATORS),
                "acceleratorCount": NUMBERS,
                "tpuTopology": st.sampled_from(["2x2", "2x4", "4x4", "x", ""]),
                "gpuPartitionSize": TEXTS,
                "reservationAffinity": st.fixed_dictionaries(
                    {},
                    optional={
                        "reservationAffinityType": st.sampled_from(["ANY_RESERVATION", "SPECIFIC_RESERVATION"]),
                        "key": TEXTS,
                        "values": st.lists(TEXTS, max_size=2),
                    },
                ),
            },
        ),
        "replicaCount": NUMBERS,
        "containerSpec": st.fixed_dictionaries(
            {},
            optional={
                "imageUri": TEXTS | st.sampled_from([image.uri() for image in CATALOG.images[::9]]),
                "command": st.lists(TEXTS, max_size=2),
                "args": st.lists(TEXTS, max_size=3),
                "env": st.lists(st.dictionaries(st.sampled_from(["name", "value"]), TEXTS, max_size=2), max_size=3),
            },
        ),
        "pythonPackageSpec": st.fixed_dictionaries(
            {},
            optional={
                "executorImageUri": TEXTS | st.sampled_from([image.uri() for image in CATALOG.images[::9]]),
                "packageUris": st.lists(TEXTS, max_size=2),
                "pythonModule": TEXTS,
                "args": st.lists(TEXTS, max_size=3),
            },
        ),
        "diskSpec": st.fixed_dictionaries({}, optional={"bootDiskType": TEXTS, "bootDiskSizeGb": NUMBERS}),
        "nfsMounts": st.lists(
            st.dictionaries(st.sampled_from(["server", "path", "mountPoint"]), TEXTS, max_size=3), max_size=2
        ),
        "lustreMounts": st.lists(st.dictionaries(st.sampled_from(["instanceIp", "mountPoint"]), TEXTS), max_size=2),
    },
)
NAMES = [
    "serviceAccount",
    "network",
    "tensorboard",
    "experiment",
    "persistentResourceId",
    "protectedArtifactLocationId",
]
JOB = st.fixed_dictionaries(
    {},
    optional={
        "workerPoolSpecs": st.lists(POOL, max_size=5),
        "scheduling": st.fixed_dictionaries(
            {},
            optional={
                "timeout": st.sampled_from(["-1s", "0s", "1s", "999999999s"]),
                "maxWaitDuration": st.sampled_from(["-1s", "0s", "1s"]),
                "strategy": st.sampled_from(["SPOT", "FLEX_START", "LOW_COST", "STANDARD", "STRATEGY_UNSPECIFIED"]),
                "disableRetries": st.booleans(),
                "restartJobOnWorkerRestart": st.booleans(),
            },
        ),
        **dict.fromkeys(NAMES, TEXTS),
        "reservedIpRanges": st.lists(TEXTS, max_size=2),
        "baseOutputDirectory": st.dictionaries(st.just("outputUriPrefix"), TEXTS, max_size=1),
        "pscInterfaceConfig": st.fixed_dictionaries(
            {},
            optional={
                "networkAttachment": TEXTS,
                "dnsPeeringConfigs": st.lists(st.dictionaries(st.just("domain"), TEXTS), max_size=2),
            },
        ),
    },
)  # fmt: skip
SWEEP = st.fixed_dictionaries(
    {"studySpec": st.just(BASES["sweep"]["studySpec"])},
    optional={
        "trialJobSpec": JOB,
        "maxTrialCount": NUMBERS,
        "parallelTrialCount": NUMBERS,
        "displayName": TEXTS,
        "labels": st.dictionaries(TEXTS, TEXTS, max_size=3),
        "encryptionSpec": st.dictionaries(st.just("kmsKeyName"), TEXTS, max_size=1),
    },
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def _errors(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.severity is Severity.ERROR]


def _hold(document: spec.Document, region: str) -> None:
    context = Context(CATALOG, region=region, today=date(2026, 11, 20))
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


@pytest.mark.whole
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(JOB | SWEEP, st.sampled_from(REGIONS))
def test_no_near_valid_job_makes_a_rule_fail(data: dict[str, Any], region: str) -> None:
    """Jobs of the right shape with odd values everywhere give findings, never an exception."""
    _hold(spec.from_data(data), region)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [path, *(found for key, inner in items for found in _paths(inner, (*path, key)))]


@pytest.mark.whole
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(VALID)), st.data())
def test_no_mutation_of_a_valid_job_makes_a_rule_fail(base: str, data: st.DataObject) -> None:
    """A valid job with any of its values replaced by anything gives findings, never an exception."""
    job = copy.deepcopy(BASES[base])
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(_paths(job)[1:] or [()]))
        if not path:
            break
        place: Any = job
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = data.draw(PLAIN | TEXTS | NUMBERS)
    region = data.draw(st.sampled_from(REGIONS))
    _hold(spec.parse(yaml.safe_dump(job, sort_keys=False)), region)


@settings(max_examples=200, deadline=None)
@given(PLAIN)
def test_no_yaml_of_any_shape_makes_a_rule_fail(data: Any) -> None:
    """Any YAML, taken for either resource, gives findings, never an exception."""
    text = yaml.safe_dump(data)
    for kind in spec.KINDS:
        _hold(spec.parse(text, kind=kind), "us-central1")
