"""Anything may be sent to the server: it answers, never with a 5xx, and errors have Google's form."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from tests.support.jobkit import PARENT, job, pool
from tests.support.tools import examples

SPEC = job(
    pool("pass", acceleratorType="NVIDIA_TESLA_T4", acceleratorCount=1), pool("pass"),
    scheduling={"timeout": "60s", "strategy": "SPOT"}, baseOutputDirectory={"outputUriPrefix": "gs://fuzz/x"},
)  # fmt: skip
STUDY = {
    "metrics": [{"metricId": "a", "goal": "MAXIMIZE"}],
    "algorithm": "GRID_SEARCH",
    "parameters": [
        {"parameterId": "d", "doubleValueSpec": {"minValue": 0.1, "maxValue": 0.9}, "scaleType": "UNIT_LOG_SCALE"},
        {"parameterId": "i", "integerValueSpec": {"minValue": "1", "maxValue": "9"}},
        {"parameterId": "c", "categoricalValueSpec": {"values": ["a", "b"]},
         "conditionalParameterSpecs": [{"parentCategoricalValues": {"values": ["a"]}, "parameterSpec": {"parameterId": "x", "discreteValueSpec": {"values": [1, 2]}}}]},
    ],
    "decayCurveStoppingSpec": {"useElapsedDuration": True},
    "studyStoppingConfig": {"maxNumTrials": 3, "minimumRuntimeConstraint": {"maxDuration": "10s"}},
}  # fmt: skip
BODIES: dict[str, dict[str, Any]] = {
    "customJobs": {"displayName": "x", "labels": {"a": "b"}, "jobSpec": SPEC},
    "hyperparameterTuningJobs": {"displayName": "x", "studySpec": STUDY, "trialJobSpec": SPEC, "maxTrialCount": 1, "parallelTrialCount": "1"},
    "trainingPipelines": {"displayName": "x", "trainingTaskDefinition": "gs://x/custom_task_1.0.0.yaml", "trainingTaskInputs": SPEC, "modelToUpload": {"displayName": "m"}},
}  # fmt: skip

junk = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=20),
    st.sampled_from(["", "1e400", "-1", "9" * 30, "60s", "-5s", "gs://", "\x00", "$(", "STANDARD", "DOUBLE"]),
    st.lists(st.integers(), max_size=3), st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
    st.just([[]]), st.just({"": {}}), st.just([None]),
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place inside a value."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(value[key], (*path, key))


@st.composite
def broken(draw: st.DrawFn) -> tuple[str, Any]:
    """A good body with one to three places replaced by junk or taken away."""
    kind = draw(st.sampled_from(sorted(BODIES)))
    body = copy.deepcopy(BODIES[kind])
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(list(places(body)) or [("x",)]))
        holder: Any = body
        for step in way:
            holder = holder[step]
        if draw(st.booleans()) or not isinstance(holder, dict):
            holder[last] = copy.deepcopy(draw(junk))
        else:
            holder.pop(last, None)
            holder[draw(st.text(max_size=8))] = copy.deepcopy(draw(junk))
    return kind, body


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    root = tmp_path_factory.mktemp("fuzz")
    settings = Settings(root, slots=2, options=RunOptions(grace=0.1))
    with server.running(settings) as here, httpx.Client(base_url=here.url, timeout=60, verify=False) as client:
        yield client


def good(answer: httpx.Response) -> None:
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert error["code"] == answer.status_code and error["message"] and (error.get("status") or error["errors"])


LOOSE = settings(max_examples=examples(60, 300), suppress_health_check=list(HealthCheck))


@pytest.mark.whole
@LOOSE
@given(broken())
def test_broken_requests(client: httpx.Client, damaged: tuple[str, Any]) -> None:
    """Creating anything from a damaged body is accepted or refused; what was accepted can be read, cancelled and listed."""
    kind, body = damaged
    answer = client.post(f"{PARENT}/{kind}", json=body)
    good(answer)
    if answer.status_code == 200:
        name = answer.json()["name"]
        good(client.get(f"/vertex/v1/{name}"))
        good(client.post(f"/vertex/v1/{name}:cancel", json={}))
    good(client.get(f"{PARENT}/{kind}"))
