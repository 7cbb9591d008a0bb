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
from localvertex.jobs.store import ResourceStore
from localvertex.runner import RunOptions
from localvertex.services import Registry
from localvertex.services.artifacts import has_files
from localvertex.services.datasets import split_rows
from localvertex.storage import ObjectStore
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
    (root / "gs/data/all.csv").write_text(f"number,part\n{lines}")
    (root / "gs/data/short.csv").write_text("number,part\n1,training\n2\n")
    (root / "gs/data/latin.csv").write_bytes("gr\xf6\xdfe\n1\n".encode("latin-1"))
    with server.running(Settings(root, slots=8, options=RunOptions(grace=0.5))) as running:
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


def test_a_pipeline_names_its_job_once_that_has_begun(tmp_path: Path) -> None:
    """While it waits for machines a pipeline with a data set runs, without trainingTaskMetadata; then that has the custom job."""
    with_trainer(tmp_path)
    (tmp_path / "gs/data").mkdir()
    (tmp_path / "gs/data/all.csv").write_text("number\n1\n2\n3\n")
    settings = Settings(tmp_path, options=RunOptions(grace=0.5, slow_start=0.5))
    body = {"displayName": "p", "trainingTaskDefinition": TASK, "trainingTaskInputs": job(pool("print('trained')"))}
    with server.running(settings) as waiting:
        api = Api(waiting.url)
        to = {"gcsDestination": {"outputUriPrefix": "gs://data/exported"}}
        body["inputDataConfig"] = {**to, "datasetId": made(api)}
        now = api.call("POST", "trainingPipelines", json=body).json()
        seen = set()
        while "endTime" not in now:
            now = api.get(now["name"])
            seen.add((now["state"].removeprefix("PIPELINE_STATE_"), "trainingTaskMetadata" in now))
            time.sleep(0.05)
        assert api.get(now["trainingTaskMetadata"]["backingCustomJob"])["state"] == "JOB_STATE_SUCCEEDED"
    assert ("RUNNING", False) in seen and ("SUCCEEDED", True) in seen and ("PENDING", True) not in seen


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


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(ResourceStore(tmp_path), Settings(tmp_path), ObjectStore(tmp_path))


def test_a_blank_line_is_not_a_row(registry: Registry, tmp_path: Path) -> None:
    """A source that ends in a blank line is split by a column like any other."""
    (tmp_path / "gs/data").mkdir()
    (tmp_path / "gs/data/blank.csv").write_text("number,part\n1,training\n\n")
    metadata = {"inputConfig": {"gcsSource": {"uri": ["gs://data/blank.csv"]}}}
    dataset = {"displayName": "blank", "metadataSchemaUri": SCHEMA, "metadata": metadata}
    parent = "projects/1/locations/us-central1"
    id_ = registry.datasets.create({"parent": parent, "dataset": dataset}).above.rpartition("/")[2]
    to = {"gcsDestination": {"outputUriPrefix": "gs://data/out"}, "predefinedSplit": {"key": "part"}}
    uri = registry.datasets.export(parent, {"datasetId": id_, **to})["AIP_TRAINING_DATA_URI"]
    (file,) = tmp_path.glob(f"gs/{uri.removeprefix('gs://')}")
    assert file.read_text() == "number,part\n1,training\n"


def test_a_model_below_two_slashes_is_found(registry: Registry) -> None:
    """A trainer that appends `/model.joblib` to AIP_MODEL_DIR, which ends with a slash, has written into the folder of the model."""
    source = registry.objects.files.temp()
    source.write_bytes(b"x")
    registry.objects.create_bucket("data")
    registry.objects.put("data", "twice/model//model.joblib", source)
    assert has_files(registry.objects, "gs://data/twice/model")
    assert not has_files(registry.objects, "gs://data/twice/mod")


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


def test_an_import_has_all_its_parts(api: Api) -> None:
    """An import without a schema or files is refused, and so is one into a dataset that is not there."""
    id_ = made(api, schema=SCHEMA.replace("tabular", "image"))
    config = {"gcsSource": {"uris": ["gs://data/images.csv"]}, "importSchemaUri": "gs://schemas/image.yaml"}
    lacks: list[dict[str, Any]] = [{"importSchemaUri": ""}, {"gcsSource": {}}, {"gcsSource": {"uris": ["images.csv"]}}]
    for lacking in lacks:
        sent = {"importConfigs": [{**config, **lacking}]}
        assert api.call("POST", f"datasets/{id_}:import", json=sent).status_code == 400
    assert api.call("POST", f"datasets/{id_}:import", json={}).status_code == 400
    assert api.call("POST", "datasets/1:import", json={"importConfigs": [config]}).status_code == 404


def test_a_dataset_that_is_not_there(api: Api) -> None:
    """A pipeline that names no dataset of its project and region is a 404."""
    assert train(api, {"datasetId": "1"}).status_code == 404


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
        ({"name": GIVEN.format("customJobs", 7), "nme": "x"}, 'Unknown name "nme"'),
        ({"name": GIVEN.format("hyperparameterTuningJobs", 7), "trials": [{}]}, "each trial needs an id"),
    ],
)
def test_what_cannot_be_given_is_refused(here: server.RunningServer, given: Any, expected: str) -> None:
    """The refusal names the value and the rule."""
    with pytest.raises(ServiceError, match=expected):
        control.seed(here, given)


def test_a_list_of_studies_has_their_trials(api: Api, here: server.RunningServer) -> None:
    """A tuning job of a list is the one of get, with its trials: notebooks read them there."""
    kind = "hyperparameterTuningJobs"
    name = control.seed(here, {"name": GIVEN.format(kind, 9), "displayName": "listed", "trials": [{"id": "1"}]})
    (listed,) = api.call("GET", kind, params={"filter": 'display_name="listed"'}).json()[kind]
    assert listed == api.get(name) and [one["id"] for one in listed["trials"]] == ["1"]
