"""What is carried from a job to the next without a loss, and what is left out: whole numbers, goals, secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.checks import secrets
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.explain import explanation, picture
from vertexrig.project import config
from vertexrig.studies.reproduce import reproduction
from vertexrig.studies.trained import goals_of

UNITS = {"parameterId": "units", "integerValueSpec": {"minValue": 32, "maxValue": 256}}
BITS = {"parameterId": "bits", "categoricalValueSpec": {"values": ["16", "32"]}}
LR = {"parameterId": "lr", "doubleValueSpec": {"minValue": 0.001, "maxValue": 1.0}}


def test_a_model_is_not_compared_by_a_safety_metric(tmp_path: Path) -> None:
    """The metric by default is the first one that the sweep optimises."""
    file = tmp_path / "vertexrig.yaml"
    file.write_text("""project: my-project
jobs: {base: {machine_type: n1-standard-4}}
sweeps:
  tune:
    job: base
    study:
      metrics:
        memory: {goal: MINIMIZE, safety_config: {safety_threshold: 8}}
        accuracy: MAXIMIZE
      parameters: {lr: {double_value_spec: {min_value: 0.001, max_value: 1}}}
""")
    assert goals_of(config.load(file), {"promoted_from": "tune"}) == {"accuracy": "MAXIMIZE"}


SECRET, PLAIN = "hf" + "_" + "Zx9" * 12, "correct-horse-battery"
JOB: dict[str, Any] = {
    "workerPoolSpecs": [
        {
            "machineSpec": {"machineType": "n1-standard-4"},
            "replicaCount": count,
            "containerSpec": {
                "imageUri": "i",
                "command": ["sh", "-c", f"export HF_TOKEN={SECRET} && train"],
                "args": [f"--api_key={PLAIN}", "--data=gs://b/d"],
                "env": [{"name": "HF_TOKEN", "value": SECRET}, {"name": "MODE", "value": "fast"}],
            },
        }
        for count in (1, 2)
    ]
}


def test_an_explanation_shows_no_secret() -> None:
    """Neither as a picture nor as JSON, also where TF_CONFIG repeats the whole job; everything else stays."""
    found = explanation.explain(spec.from_data(JOB, kind="CustomJobSpec"), load(), region="us-central1")
    replica = found.replicas[-1]
    shown = [
        picture.text(found),
        picture.replica_text(found, replica),
        json.dumps(explanation.data(found)),
        json.dumps(explanation.replica_data(found, replica)),
    ]
    for one in shown:
        assert SECRET not in one and PLAIN not in one and "gs://b/d" in one and "HF_TOKEN" in one


def test_the_commands_of_a_report_show_no_secret() -> None:
    """The YAML says that a value is cut; without a secret it is what the job was created from."""
    name = "projects/1/locations/us-central1/customJobs/5"
    again = reproduction(RemoteJob({"name": name, "displayName": "j", "jobSpec": JOB}), project="my-project", again="")
    assert SECRET not in again.script and PLAIN not in again.script and "--data=gs://b/d" in again.script
    assert again.yaml.startswith("# a value with … in it holds a secret")
    plain = {"workerPoolSpecs": [{"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1}]}
    again = reproduction(
        RemoteJob({"name": name, "displayName": "j", "jobSpec": plain}), project="my-project", again=""
    )
    assert "#" not in again.yaml


def test_a_short_password_is_cut_at_its_place_alone() -> None:
    """A bucket whose name holds the password's text is written as it is: the commands make the same job."""
    args = ["--data=gs://test-bucket/x", "--db-password=test", "--password", "test", "--stage=test"]
    program = {"imageUri": "i", "args": args, "env": [{"name": "DB_PASSWORD", "value": "test"}]}
    job = {"workerPoolSpecs": [{"replicaCount": 1, "containerSpec": program}]}
    found = spec.from_data(job, kind="CustomJobSpec")
    cut = secrets.without(found).data["workerPoolSpecs"][0]["containerSpec"]
    assert cut["args"] == [args[0], "--db-password=t…", "--password", "t…", "--stage=test"]
    assert cut["env"] == [{"name": "DB_PASSWORD", "value": "t…"}]


def test_a_long_password_is_cut_wherever_it_stands() -> None:
    """One in an address that names no secret is cut there, too."""
    args = ["--db=postgres://me:correct-horse@db/x"]
    program = {"imageUri": "i", "args": args, "env": [{"name": "DB_PASSWORD", "value": "correct-horse"}]}
    job = {"workerPoolSpecs": [{"replicaCount": 1, "containerSpec": program}]}
    cut = secrets.without(spec.from_data(job, kind="CustomJobSpec")).data["workerPoolSpecs"][0]["containerSpec"]
    assert cut["args"] == ["--db=postgres://me:corr…@db/x"]
