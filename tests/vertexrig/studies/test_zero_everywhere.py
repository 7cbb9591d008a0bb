"""Zero, the empty text and false are values: nothing that hands a job on drops them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localvertex.jobs.resources import rest_form
from tests.support.tools import examples
from vertexrig import spec
from vertexrig.bring import convert, edit, pull
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.project import config
from vertexrig.results.study import read
from vertexrig.studies import follow_up, promote
from vertexrig.studies.outcome import outcome
from vertexrig.studies.reproduce import reproduction
from vertexrig.workspace import Workspace

FILE = Path("vertexrig.yaml")
NAME = "projects/my-project/locations/us-central1/hyperparameterTuningJobs/7"
NOTHINGS = st.sampled_from(["0", "0.0", '""', "false", '"0"', '"false"', "1"])


def project(args: dict[str, str], env: str, double: tuple[float, float], integer: tuple[int, int]) -> str:
    given = ", ".join(f"{name}: {value}" for name, value in args.items())
    return f"""\
project: my-project
region: us-central1
bucket: gs://my-bucket
trainer: {{custom_image: i/i:1}}
jobs:
  base: {{topology: cpu, machine_type: n1-standard-4, image: i/i:1, args: {{{given}}}, env: {{E: {env}}}, timeout: 3600s}}
sweeps:
  tune:
    job: base
    max_trial_count: 4
    parallel_trial_count: 1
    max_failed_trial_count: 0
    study:
      metrics: {{loss: MINIMIZE}}
      parameters:
        x: {{double_value_spec: {{min_value: {double[0]}, max_value: {double[1]}}}}}
        k: {{integer_value_spec: {{min_value: {integer[0]}, max_value: {integer[1]}}}}}
        d: {{discrete_value_spec: {{values: [0, 1]}}}}
"""


def rendered(text: str, name: str) -> spec.Document:
    made = Workspace(config.loads(text, file=FILE)).renderer.render(name)
    return spec.parse(made.text, kind=made.view.kind, for_gcloud=False)


def meant(document: spec.Document) -> tuple[Any, Any]:
    """What the service reads, and the bounds as they are written, which a project file must have."""
    return rest_form("HyperparameterTuningJob", document.data), [one.bounds for one in document.parameters]


def described(document: spec.Document) -> dict[str, Any]:
    """The ended job as the service describes it: JSON without what is zero, trials whose best one has zeros."""
    values = [{"x": 0, "k": 0, "d": 0}, {"x": 0, "k": 0, "d": 1}]
    rows = [
        {
            "id": str(number),
            "state": "SUCCEEDED",
            "parameters": [{"parameterId": name, "value": value} for name, value in own.items()],
            "finalMeasurement": {"metrics": [{"metricId": "loss", **({"value": number} if number else {})}]},
        }
        for number, own in enumerate(values)
    ]
    return {**meant(document)[0], "name": NAME, "displayName": "tune", "state": "JOB_STATE_SUCCEEDED", "trials": rows}


@pytest.mark.whole
@settings(max_examples=examples(6, 100), deadline=None, derandomize=True)
@given(
    args=st.dictionaries(st.sampled_from(["a", "b", "c"]), NOTHINGS, max_size=3),
    env=NOTHINGS,
    double=st.sampled_from([(0, 1), (-1, 0), (0.0, 0.5), (-1.5, 1.5)]),
    integer=st.sampled_from([(0, 3), (-3, 0), (-1, 1)]),
)
def test_what_is_zero_empty_or_false_goes_through(
    args: dict[str, str], env: str, double: tuple[float, float], integer: tuple[int, int]
) -> None:
    """Render, the service's JSON, report, pull, convert, follow-up and promote keep each argument, variable, bound and value."""
    text = project(args, env, double, integer)
    before = rendered(text, "tune")
    assert {f"--{name}={value.strip(chr(34))}" for name, value in args.items()} == set(before.pools[0].args)
    job = described(before)
    assert read(RemoteJob(job)).spec == before.study
    again = reproduction(RemoteJob(job), project="my-project", again="").yaml
    assert meant(spec.parse(again, kind="HyperparameterTuningJob", for_gcloud=False)) == meant(before)
    pulled = pull.pulled(pull.wanted(pull.resource(json.dumps(job), "j"), "j"), "pulled", "", FILE)
    assert meant(rendered(pulled.text, "pulled")) == meant(before)
    brought = convert.convert(again, "j.yaml")
    assert meant(rendered(pull.pulled(brought, "x", "", FILE).text, "x")) == meant(before)
    ended = outcome("tune", job, least=1)
    assert (ended.best.id, ended.best.metrics) == ("0", {"loss": 0.0})
    found = follow_up.follow_up(ended, edit.data_of(text, "f"), "tune", "next")
    following = rendered(edit.added(text, found.entry, "f"), "next")
    kept = {item.partition("=")[0] for item in following.pools[0].args}
    assert kept | {f"--{one.id}" for one in following.parameters} == {
        "--x",
        "--k",
        "--d",
        *(f"--{one}" for one in args),
    }
    entry = promote.promoted(ended, ended.best, edit.data_of(text, "f"), "tune", "best")
    best = rendered(edit.added(text, entry, "f"), "best")
    assert set(best.pools[0].args) == {"--x=0", "--k=0", "--d=0", *before.pools[0].args}
