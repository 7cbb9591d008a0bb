"""Managed tabular datasets: what a training pipeline reads of them; and jobs that are given under names of their own."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as with_
from hypothesis import strategies as st

from localvertex import server
from localvertex.front import control
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from localvertex.services.datasets import split_rows
from tests.support.jobkit import Api, job, pool, with_trainer
from vertexrig.errors import ServiceError

SCHEMA = "gs://google-cloud-aiplatform/schema/dataset/metadata/tabular_1.0.0.yaml"
ANNOTATIONS = "gs://google-cloud-aiplatform/schema/dataset/annotation/image_classification_1.0.0.yaml"
TASK = "gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_1.0.0.yaml"
ROWS = 40
TELL = """
import csv, glob, json, os
parts = {}
for part in ("TRAINING", "VALIDATION", "TEST"):
    (file,) = glob.glob(os.environ[f"AIP_{part}_DATA_URI"])
    parts[part.lower()] = list(csv.DictReader(open(file)))
with open(args[0], "w") as out:
    json.dump({"format": os.environ["AIP_DATA_FORMAT"], "parts": parts}, out)
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    root = tmp_path_factory.mktemp("datasets")
    with_trainer(root)
    (root / "gs/data").mkdir()
    lines = "".join(f"{number},{'validation' if number % 4 else 'training'}\n" for number in range(ROWS))
    (root / "gs/data/all.csv").write_text(f"number,part\n{lines}\n")  # the last line is blank
    (root / "gs/data/short.csv").write_text("number,part\n1,training\n2\n")
    (root / "gs/data/latin.csv").write_bytes("gr\xf6\xdfe\n1\n".encode("latin-1"))
    with server.running(Settings(root, slots=8, run=RunOptions(grace=0.5))) as running:
        yield running


@pytest.fixture
def api(here: server.RunningServer) -> Api:
    return Api(here.url)


def made(api: Api, uri: Any = ("gs://data/all.csv",), schema: str = SCHEMA) -> str:
    """The id of a new dataset."""
    body = {
        "displayName": "numbers",
        "metadataSchemaUri": schema,
        "metadata": {"inputConfig": {"gcsSource": {"uri": uri}}},
    }
    answer = api.call("POST", "datasets", json=body)
    assert answer.status_code == 200, answer.text
    begun = answer.json()
    assert "done" not in begun
    return str(api.get(begun["name"])["response"]["name"]).rpartition("/")[2]


def train(
    api: Api, config: dict[str, Any], seen: str = "gs://data/seen.json", package: str = "gs://packages/trainer.tar.gz"
) -> Any:
    """The answer to a pipeline that trains on a dataset; what it read is in a file."""
    destination = {"gcsDestination": {"outputUriPrefix": "gs://data/exported"}}
    body = {
        "displayName": "trained",
        "trainingTaskDefinition": TASK,
        "trainingTaskInputs": job(pool(TELL, seen, package=package)),
        "inputDataConfig": {**destination, **config},
    }
    return api.call("POST", "trainingPipelines", json=body)


def test_a_pipeline_reads_its_dataset(api: Api, here: server.RunningServer) -> None:
    """Every row is in one of three CSV files, by the fractions asked for, and four variables lead to them."""
    fractions = {"trainingFraction": 0.5, "validationFraction": 0.3, "testFraction": 0.2}
    answer = train(api, {"datasetId": made(api), "fractionSplit": fractions})
    assert answer.status_code == 200, answer.text
    assert api.wait(answer.json()["name"])["state"] == "PIPELINE_STATE_SUCCEEDED"
    seen = json.loads((here.root / "gs/data/seen.json").read_text())
    assert seen["format"] == "csv"
    assert {part: len(rows) for part, rows in seen["parts"].items()} == {"training": 20, "validation": 12, "test": 8}
    assert sorted(int(row["number"]) for rows in seen["parts"].values() for row in rows) == list(range(ROWS))
    folders = [path.name for path in (here.root / "gs/data/exported").iterdir()]
    assert folders[0].startswith("dataset-") and "-tables-" in folders[0]


def test_a_model_below_two_slashes_is_found(api: Api, here: server.RunningServer) -> None:
    """A trainer that appends `/model.joblib` to AIP_MODEL_DIR, which ends with a slash, has written into the folder of the model."""
    url = f"{here.url}/upload/storage/v1/b/data/o?uploadType=media&name=twice%2Fmodel%2F%2Fmodel.joblib"
    api.http.post(url, content=b"x").raise_for_status()
    body = {
        "displayName": "p",
        "trainingTaskDefinition": TASK,
        "trainingTaskInputs": {
            **job(pool("print('trained')")),
            "baseOutputDirectory": {"outputUriPrefix": "gs://data/twice"},
        },
        "modelToUpload": {"displayName": "m", "containerSpec": {"imageUri": "x"}},
    }
    answer = api.call("POST", "trainingPipelines", json=body)
    ended = api.wait(answer.json()["name"])
    assert ended["state"] == "PIPELINE_STATE_SUCCEEDED", ended
    assert api.get(ended["modelToUpload"]["name"])["artifactUri"] == "gs://data/twice/model"


@pytest.mark.parametrize("waits", ["PENDING", "RUNNING"])
def test_a_pipeline_names_its_job_once_that_has_begun(tmp_path: Path, waits: str) -> None:
    """While it waits for machines it has no trainingTaskMetadata, and with a data set it runs; then that has the custom job."""
    with_trainer(tmp_path)
    (tmp_path / "gs/data").mkdir()
    (tmp_path / "gs/data/all.csv").write_text("number\n1\n2\n3\n")
    settings = Settings(tmp_path, run=RunOptions(grace=0.5, slow_start=1.5))
    body = {"displayName": "p", "trainingTaskDefinition": TASK, "trainingTaskInputs": job(pool("print('trained')"))}
    with server.running(settings) as waiting:
        api = Api(waiting.url)
        if waits == "RUNNING":
            to = {"gcsDestination": {"outputUriPrefix": "gs://data/exported"}}
            body["inputDataConfig"] = {**to, "datasetId": made(api)}
        now = api.call("POST", "trainingPipelines", json=body).json()
        seen = set()
        while "endTime" not in now:
            now = api.get(now["name"])
            seen.add((now["state"].removeprefix("PIPELINE_STATE_"), "trainingTaskMetadata" in now))
            time.sleep(0.05)
        assert api.get(now["trainingTaskMetadata"]["backingCustomJob"])["state"] == "JOB_STATE_SUCCEEDED"
    assert (waits, False) in seen and ("SUCCEEDED", True) in seen and ("PENDING", True) not in seen


def test_the_inputs_of_a_pipeline_come_in_the_apis_names(api: Api) -> None:
    """Inputs in snake_case and with nulls, as the SDK sends them, are shown as the service writes them."""
    pool = {"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1, "container_spec": {"image_uri": "x"}}
    scheduling = {"timeout": "1234s", "restart_job_on_worker_restart": True, "strategy": None, "disable_retries": True}
    inputs = {"worker_pool_specs": [pool], "scheduling": scheduling}
    body = {"displayName": "p", "trainingTaskDefinition": TASK, "trainingTaskInputs": inputs}
    made = api.call("POST", "trainingPipelines", json=body).json()
    assert made["trainingTaskInputs"] == api.get(made["name"])["trainingTaskInputs"] == {
        "workerPoolSpecs": [
            {
                "machineSpec": {"machineType": "n1-standard-4"},
                "replicaCount": "1",
                "containerSpec": {"imageUri": "x"},
            }
        ],
        "scheduling": {"timeout": "1234s", "restartJobOnWorkerRestart": True, "disableRetries": True},
    }  # fmt: skip


def test_a_source_and_a_package_with_two_slashes_are_found(api: Api, here: server.RunningServer) -> None:
    """Objects whose names cannot be paths, as `gs://bucket/` + `/name` makes them, are read like others."""
    for bucket, file in (("data", "all.csv"), ("packages", "trainer.tar.gz")):
        content = (here.root / "gs" / bucket / file).read_bytes()
        upload = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=twice%2F%2F{file}"
        assert api.call("POST", upload, content=content).status_code == 200
    answer = train(
        api,
        {"datasetId": made(api, "gs://data/twice//all.csv")},
        "gs://data/twice.json",
        "gs://packages/twice//trainer.tar.gz",
    )
    assert answer.status_code == 200, answer.text
    assert api.wait(answer.json()["name"])["state"] == "PIPELINE_STATE_SUCCEEDED"
    assert len(json.loads((here.root / "gs/data/twice.json").read_text())["parts"]["training"]) == ROWS * 0.8


def test_a_blank_line_is_not_a_row(api: Api) -> None:
    """A source that ends in a blank line is split by a column like any other."""
    answer = train(api, {"datasetId": made(api), "predefinedSplit": {"key": "part"}}, "gs://data/by_part.json")
    assert answer.status_code == 200, answer.text
    assert api.wait(answer.json()["name"])["state"] == "PIPELINE_STATE_SUCCEEDED"


@with_(st.integers(0, 300), st.lists(st.integers(0, 10), min_size=3, max_size=3).filter(any))
def test_a_split_loses_no_row(count: int, weights: list[int]) -> None:
    """Whatever the fractions, no row is in two parts, and all are in one where the fractions add up to 1."""
    names = ("trainingFraction", "validationFraction", "testFraction")
    fractions = {name: weight / sum(weights) for name, weight in zip(names, weights, strict=True)}
    rows = [[str(number)] for number in range(count)]
    parts = split_rows(["number"], rows, {"fractionSplit": fractions})
    assert sorted(row for part in parts.values() for row in part) == sorted(rows)


def test_a_column_may_say_the_part() -> None:
    """A predefined split takes each row's part from its column, in the API's words or those of published programs."""
    rows = [["1", "test"], ["2", "training"], ["3", "VALIDATION"], ["4", "other"], ["5", "TRAIN"], ["6", "VALIDATE"]]
    parts = split_rows(["x", "use"], rows, {"predefinedSplit": {"key": "use"}})
    assert {part: [row[0] for row in own] for part, own in parts.items()} == {
        "training": ["2", "5"],
        "validation": ["3", "6"],
        "test": ["1"],
    }


@pytest.mark.parametrize(
    ("config", "uri", "schema", "expected"),
    [
        ({}, ["gs://data/none.csv"], SCHEMA, "gs://data/none.csv is not in the local storage"),
        ({}, ["/etc/passwd"], SCHEMA, "'/etc/passwd' is not a gs:// URI"),
        ({}, ["gs://data/../../x"], SCHEMA, "a path in a bucket has none"),
        ({}, [], SCHEMA, "has no source in Cloud Storage"),
        ({}, ["gs://data/all.csv"], SCHEMA.replace("tabular", "image"), "'annotation_schema_uri' should be set in"),
        ({"annotationSchemaUri": ANNOTATIONS}, ["gs://data/all.csv"], SCHEMA.replace("tabular", "image"), "It does not serve gs://google-cloud-aiplatform"),
        ({"annotationSchemaUri": ANNOTATIONS[:-1]}, ["gs://data/all.csv"], SCHEMA.replace("tabular", "image"), "\t1.Field: training_pipeline.input_data_config.annotation_schema_uri; Message: Invalid annotation schema uri.\t"),
        ({"timestampSplit": {"key": "x"}}, ["gs://data/all.csv"], SCHEMA, "It does not serve input_data_config.timestamp"),
        ({"predefinedSplit": {"key": "x"}}, ["gs://data/all.csv"], SCHEMA, "no column 'x'"),
        ({"predefinedSplit": {"key": "part"}}, ["gs://data/short.csv"], SCHEMA, "the row ['2'] has no 'part'"),
        ({}, ["gs://data/latin.csv"], SCHEMA, "gs://data/latin.csv is not CSV in UTF-8"),
        ({"gcsDestination": {}}, ["gs://data/all.csv"], SCHEMA, "is exported to gcs_destination"),
        ({"gcsDestination": {"outputUriPrefix": "gs://nowhere/x"}}, ["gs://data/all.csv"], SCHEMA, "does not exist"),
    ],
)  # fmt: skip
def test_what_is_not_served_is_refused(api: Api, config: Any, uri: Any, schema: str, expected: str) -> None:
    """The pipeline is refused with the field and the reason, and no job is made."""
    answer = train(api, {"datasetId": made(api, uri, schema), **config})
    assert answer.status_code == 400, answer.text
    assert expected in answer.json()["error"]["message"]


def test_the_response_of_a_creation_has_no_bucket(api: Api) -> None:
    """A finished creation shows the metadata without the dataset's bucket, which the dataset has."""
    schema = SCHEMA.replace("tabular", "image")
    begun = api.call("POST", "datasets", json={"displayName": "images", "metadataSchemaUri": schema}).json()
    response = api.get(begun["name"])["response"]
    kept = api.get(response["name"])["metadata"]
    assert response["metadata"] == {"dataItemSchemaUri": kept["dataItemSchemaUri"]} and "gcsBucket" in kept


def test_a_dataset_of_videos(api: Api) -> None:
    """It has the label of its kind and the schema of its items, like those of images and texts."""
    id_ = made(api, schema=SCHEMA.replace("tabular", "video"))
    dataset = api.call("GET", f"datasets/{id_}").json()
    assert dataset["labels"] == {"aiplatform.googleapis.com/dataset_metadata_schema": "VIDEO"}
    assert dataset["metadata"]["dataItemSchemaUri"].endswith("/schema/dataset/dataitem/video_1.0.0.yaml")


def test_an_import_is_an_operation_below_its_dataset(api: Api) -> None:
    """It is not done in its first answer, and has an empty response afterwards; an import without its parts is refused."""
    id_ = made(api, schema=SCHEMA.replace("tabular", "image"))
    config = {"gcsSource": {"uris": ["gs://data/images.csv"]}, "importSchemaUri": "gs://schemas/image.yaml"}
    begun = api.call("POST", f"datasets/{id_}:import", json={"importConfigs": [config]}).json()
    assert f"/datasets/{id_}/operations/" in begun["name"] and "done" not in begun
    times = begun["metadata"]["genericMetadata"]
    assert begun["metadata"]["@type"].endswith(".v1.ImportDataOperationMetadata")
    assert times["createTime"] == times["updateTime"]
    ended = api.get(begun["name"])
    assert ended["done"] is True and list(ended["response"]) == ["@type"]
    lacks: list[dict[str, Any]] = [{"importSchemaUri": ""}, {"gcsSource": {}}, {"gcsSource": {"uris": ["images.csv"]}}]
    for lacking in lacks:
        sent = {"importConfigs": [{**config, **lacking}]}
        assert api.call("POST", f"datasets/{id_}:import", json=sent).status_code == 400
    assert api.call("POST", f"datasets/{id_}:import", json={}).status_code == 400
    assert api.call("POST", "datasets/1:import", json={"importConfigs": [config]}).status_code == 404


def test_a_dataset_that_is_not_there(api: Api) -> None:
    """A pipeline that names no dataset of its project and region is a 404."""
    assert train(api, {"datasetId": "1"}).status_code == 404


def test_datasets_are_listed_changed_and_deleted(api: Api) -> None:
    """A dataset has its fields, is found by its name, changes by a mask, and goes."""
    id_ = made(api)
    listed = api.call("GET", "datasets", params={"filter": 'display_name="numbers"'}).json()["datasets"]
    assert id_ in [one["name"].rpartition("/")[2] for one in listed]
    changed = api.call("PATCH", f"datasets/{id_}", params={"updateMask": "displayName"}, json={"displayName": "other"})
    assert changed.json()["displayName"] == "other"
    assert api.call("DELETE", f"datasets/{id_}").json()["done"] is True
    assert api.call("GET", f"datasets/{id_}").status_code == 404


GIVEN = "projects/my-project/locations/us-central1/{}/{}"


@pytest.mark.parametrize("kind", ["customJobs", "hyperparameterTuningJobs", "trainingPipelines"])
def test_a_job_is_given_under_its_name(api: Api, here: server.RunningServer, kind: str) -> None:
    """It is found and listed like any other that has ended, and one of that name is refused."""
    name = control.seed(here, {"name": GIVEN.format(kind, 42), "displayName": "known"})
    found = api.get(name)
    assert (found["displayName"], found["state"].rpartition("_")[2]) == ("known", "SUCCEEDED")
    assert found["endTime"]
    assert [one["name"] for one in api.call("GET", kind, params={"filter": 'display_name="known"'}).json()[kind]] == [
        name
    ]
    with pytest.raises(ServiceError, match="already exists"):
        control.seed(here, {"name": GIVEN.format(kind, 42)})
    assert api.call("DELETE", f"/vertex/v1/{name}").status_code == 200


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "Invalid name ''"),
        ({"name": "projects/p/locations/l/models/1"}, "one of customJobs, hyperparameterTuningJobs, trainingPipelines"),
        ({"name": GIVEN.format("customJobs", "x")}, "numeric id"),
        ({"name": GIVEN.format("customJobs", 7), "state": "JOB_STATE_RUNNING"}, "Invalid state JOB_STATE_RUNNING"),
        ({"name": GIVEN.format("customJobs", 7), "nme": "x"}, "Invalid CustomJob"),
        ({"name": GIVEN.format("hyperparameterTuningJobs", 7), "trials": [{}]}, "each trial needs an id"),
    ],
)
def test_what_cannot_be_given_is_refused(here: server.RunningServer, given: Any, expected: str) -> None:
    """The refusal names the value and the rule."""
    with pytest.raises(ServiceError, match=expected):
        control.seed(here, given)


def test_the_trials_of_a_given_study(api: Api, here: server.RunningServer) -> None:
    """A tuning job that is given with trials shows them."""
    trials = [{"id": "1", "state": "SUCCEEDED"}, {"id": "2", "state": "ACTIVE"}]
    name = control.seed(here, {"name": GIVEN.format("hyperparameterTuningJobs", 8), "trials": trials})
    assert [(one["id"], one["state"]) for one in api.get(name)["trials"]] == [("1", "SUCCEEDED"), ("2", "ACTIVE")]


def test_a_list_of_studies_has_their_trials(api: Api, here: server.RunningServer) -> None:
    """A tuning job of a list is the one of get, with its trials: notebooks read them there."""
    kind = "hyperparameterTuningJobs"
    name = control.seed(here, {"name": GIVEN.format(kind, 9), "displayName": "listed", "trials": [{"id": "1"}]})
    (listed,) = api.call("GET", kind, params={"filter": 'display_name="listed"'}).json()[kind]
    assert listed == api.get(name) and [one["id"] for one in listed["trials"]] == ["1"]
