"""What is carried from a job to the next without a loss, and what is left out: whole numbers, goals, secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.vertexrig.studies.test_follow_up import study, trial
from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.checks import secrets
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.explain import explanation, picture
from vertexrig.project import config
from vertexrig.results import trials
from vertexrig.spec.parameters import top
from vertexrig.studies.chain import joined
from vertexrig.studies.reproduce import flags, reproduction
from vertexrig.studies.trained import goals_of

UNITS = {"parameterId": "units", "integerValueSpec": {"minValue": 32, "maxValue": 256}}
BITS = {"parameterId": "bits", "categoricalValueSpec": {"values": ["16", "32"]}}
LR = {"parameterId": "lr", "doubleValueSpec": {"minValue": 0.001, "maxValue": 1.0}}


def test_whole_numbers_and_texts_of_a_chain_stay_what_they_are() -> None:
    """An INTEGER that a later study froze is a whole number in its trials, and a text of digits a text."""
    first = study([LR, UNITS, BITS], [trial(1, 0.5, lr=0.1, units=80, bits="16")], displayName="tune")
    second = study([LR], [trial(1, 0.9, lr=0.2)], displayName="tune-2")
    args = ["--units=45", "--bits=32"]
    second["trialJobSpec"] = {"workerPoolSpecs": [{"containerSpec": {"imageUri": "i", "args": args}}]}
    grid = study([{"parameterId": "units", "discreteValueSpec": {"values": [40.0, 45.0]}}], [trial(1, 0.1, units=40.0)])
    for jobs in ([first, second], [first, grid, second]):
        whole = joined(jobs, [f"tune-{n}" for n in range(len(jobs))])
        kinds = {one.id: one.kind for one in top(whole["studySpec"]["parameters"])}
        assert kinds == {"lr": "DOUBLE", "units": "INTEGER", "bits": "CATEGORICAL"}
        assert flags(trials.best(whole)[0]) == "--lr=0.2 --units=45 --bits=32"


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
