"""Methods of the services beside jobs, called with requests as their REST routes make them."""

from __future__ import annotations

import itertools
import re
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from localvertex.http import ApiError
from localvertex.jobs import resources
from localvertex.jobs.settings import Settings
from localvertex.jobs.store import ResourceStore
from localvertex.services import Registry
from localvertex.storage import ObjectStore
from vertexrig import times

PARENT = "projects/1/locations/us-central1"
STORE = f"{PARENT}/metadataStores/default"
TABULAR = "gs://google-cloud-aiplatform/schema/dataset/metadata/tabular_1.0.0.yaml"


class Services:
    """Every method of the registry by its name."""

    def __init__(self, root: Path) -> None:
        self.registry = Registry(ResourceStore(root), Settings(root=root), ObjectStore(root))
        self.methods = {name: method for one in self.registry.services for name, method in one.methods.items()}

    def __call__(self, method: str, /, **request: Any) -> Any:
        return self.methods[method](request)


@pytest.fixture
def services(tmp_path: Path) -> Services:
    return Services(tmp_path)


def test_a_metadata_store_is_made_named_and_deleted_as_recorded(services: Services) -> None:
    """Its operations are below it, the response of its creation is the name alone, and errors name its id."""
    made = services("CreateMetadataStore", parent=PARENT, metadataStoreId="s", metadataStore={"description": "d"})
    assert made.above == f"{PARENT}/metadataStores/s" and made.response == {"name": made.above}
    with pytest.raises(ApiError, match="^Requested entity already exists$"):
        services("CreateMetadataStore", parent=PARENT, metadataStoreId="s", metadataStore={})
    gone = services("DeleteMetadataStore", name=made.above)
    assert (gone.metadata, gone.above) == ("DeleteOperationMetadata", made.above)
    with pytest.raises(ApiError, match="^Requested Metadata Store default not found$"):
        services("ListContexts", parent=STORE)
    services("CreateMetadataStore", parent=PARENT, metadataStoreId="default", metadataStore={})
    services("CreateContext", parent=STORE, contextId="c", context={"schemaTitle": "system.Experiment"})
    named = 'in_context("projects/1/locations/us-central1/metadataStores/default/contexts/c")'
    assert services("ListExecutions", parent=STORE, filter=named) == {}


def test_what_a_metadata_store_holds(services: Services) -> None:
    """Metadata that an update empties are shown as empty, and a display name has 128 characters at most."""
    services("CreateMetadataStore", parent=PARENT, metadataStoreId="default")
    name = services("CreateArtifact", parent=STORE, artifact={"displayName": "a" * 128, "metadata": {"a": 1}})["name"]
    changed = services("UpdateArtifact", artifact={"name": name}, updateMask="metadata")
    assert changed["metadata"] == {} and len(changed["displayName"]) == 128
    with pytest.raises(ApiError, match=r"1\.Field: artifact\.display_name; Message: Display name must be at most 128"):
        services("CreateArtifact", parent=STORE, artifact={"displayName": "a" * 129})


@pytest.mark.parametrize(
    "text, fits",
    [
        ('create_time > "{before}"', True),
        ('create_time < "{before}"', False),
        ('create_time <= "{after}" AND updateTime >= "{before}"', True),
        ('create_time = "{same}"', True),
        ('create_time != "{same}"', False),
        ('create_time > "yesterday"', None),
        ('create_time : "{same}"', None),
        ('made_at > "{before}"', None),
    ],
)
def test_times_in_filters_are_compared_as_times(services: Services, text: str, fits: bool | None) -> None:
    """A time may be of any zone and without a fraction, in the filter of any collection; text that is no time is refused, as is a field that is none."""
    services("CreateMetadataStore", parent=PARENT, metadataStoreId="default")
    made = services("CreateArtifact", parent=STORE, artifact={"displayName": "a"})
    services("CreateTensorboard", parent=PARENT, tensorboard={"displayName": "a"})
    created, west = times.parse(made["createTime"]), timezone(timedelta(hours=-4))
    near = {"before": -timedelta(seconds=5), "same": timedelta(), "after": timedelta(minutes=1)}
    written = {name: (created + apart).astimezone(west).isoformat() for name, apart in near.items()}
    for method, parent in (("ListArtifacts", STORE), ("ListTensorboards", PARENT)):
        if fits is None:
            with pytest.raises(ApiError, match="^Invalid filter: "):
                services(method, parent=parent, filter=text.format(**written))
        elif "same" not in text or method == "ListArtifacts":
            assert bool(services(method, parent=parent, filter=text.format(**written))) is fits


def test_artifacts_are_found_by_nested_metadata_and_ordered_by_the_names_of_ml_metadata(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A value of a Struct in a Struct has `struct_value` in its path; a list may be ordered by LAST_UPDATE_TIME."""
    ticks = itertools.count()
    monkeypatch.setattr(times, "now", lambda: times.parse("2026-11-30T00:00:00Z") + timedelta(seconds=next(ticks)))
    services("CreateMetadataStore", parent=PARENT, metadataStoreId="default")
    for rate in (0.1, 0.2):
        fields = {"displayName": str(rate), "metadata": {"search": {"rate": rate}, "struct_value": {"own": rate}}}
        services("CreateArtifact", parent=STORE, artifact=fields)

    def named(**request: str) -> list[str]:
        return [one["displayName"] for one in services("ListArtifacts", parent=STORE, **request).get("artifacts", [])]

    assert named(filter="metadata.search.struct_value.rate.number_value > 0.15") == ["0.2"]
    assert named(filter="metadata.search.rate.number_value < 0.15") == ["0.1"]
    assert named(filter="metadata.struct_value.own.number_value < 0.15") == ["0.1"]
    assert named(orderBy="LAST_UPDATE_TIME desc") == ["0.2", "0.1"] == named(orderBy="CREATE_TIME desc, display_name")
    assert named(orderBy="LAST_UPDATE_TIME") == ["0.1", "0.2"]


def test_contexts_are_found_by_their_children(services: Services) -> None:
    """The filter `child_contexts:` has the contexts above another one, and `parent_contexts:` those below."""
    services("CreateMetadataStore", parent=PARENT, metadataStoreId="default")
    above, other, below = (
        services("CreateContext", parent=STORE, contextId=id_, context={"displayName": id_})["name"]
        for id_ in ("above", "other", "below")
    )
    services("AddContextChildren", context=above, childContexts=[below])
    for text, found in (
        (f'child_contexts:"{below}"', [above]),
        (f'display_name="other" AND child_contexts:"{below}"', []),
        (f'NOT child_contexts:"{below}" AND NOT parent_contexts:"{above}"', [other]),
        (f'parent_contexts:"{above}"', [below]),
    ):
        answer = services("ListContexts", parent=STORE, filter=text)
        assert [one["name"] for one in answer.get("contexts", [])] == found


def test_an_update_with_an_outdated_etag_is_aborted(services: Services) -> None:
    """The refusal has both etags; an update with the current one, or without one, is made."""
    services("CreateMetadataStore", parent=PARENT, metadataStoreId="default")
    made = services("CreateContext", parent=STORE, context={"displayName": "d"})
    with pytest.raises(ApiError) as refused:
        services("UpdateContext", context={**made, "etag": "1", "displayName": "e"}, updateMask="displayName")
    assert (refused.value.code, refused.value.status) == (409, "ABORTED")
    assert str(refused.value) == f"Specified Context `etag`: `1` does not match server `etag`: `{made['etag']}`"
    assert services("GetContext", name=made["name"])["displayName"] == "d"
    changed = services("UpdateContext", context={**made, "displayName": "e"})
    assert services("UpdateContext", context={"name": made["name"], "displayName": "f"})["displayName"] == "f"
    assert changed["displayName"] == "e"


def test_what_of_a_model_can_be_exported(services: Services) -> None:
    """A model with files has them to export, and its image if that is not Google's; with a container it has schemata, if only empty ones."""
    parts: dict[str, dict[str, Any]] = {
        "files": {"artifactUri": "gs://b/m"},
        "image": {"containerSpec": {"imageUri": "x"}},
        "both": {"artifactUri": "gs://b/m", "containerSpec": {"imageUri": "x"}},
        "Google's": {
            "artifactUri": "gs://b/m",
            "containerSpec": {"imageUri": "us-docker.pkg.dev/vertex-ai/prediction/xgboost-cpu.1-4:latest"},
        },
        "none": {},
    }
    for name, fields in parts.items():
        services.registry.models.add(PARENT, {"displayName": name, **fields})
    found = {one["displayName"]: one for one in services("ListModels", parent=PARENT)["models"]}
    assert {name: one["supportedExportFormats"] for name, one in found.items()} == {
        "files": [{"id": "custom-trained", "exportableContents": ["ARTIFACT"]}],
        "image": [{"id": "custom-trained"}],
        "both": [{"id": "custom-trained", "exportableContents": ["ARTIFACT", "IMAGE"]}],
        "Google's": [{"id": "custom-trained", "exportableContents": ["ARTIFACT"]}],
        "none": [{"id": "custom-trained"}],
    }
    assert {name for name, one in found.items() if one.get("predictSchemata") == {}} == {"image", "both", "Google's"}


def test_one_tensorboard_is_the_default(services: Services) -> None:
    """A TensorBoard that is made or updated as the default takes that from the one that was it."""
    boards = [{"displayName": name, "isDefault": True} for name in "ab"]
    first, second = (services("CreateTensorboard", parent=PARENT, tensorboard=one).response["name"] for one in boards)
    assert [bool(services("GetTensorboard", name=one).get("isDefault")) for one in (first, second)] == [False, True]
    services("UpdateTensorboard", tensorboard={"name": first, "isDefault": True}, updateMask="isDefault")
    assert [bool(services("GetTensorboard", name=one).get("isDefault")) for one in (first, second)] == [True, False]


def test_what_is_below_a_tensorboard_that_does_not_exist(services: Services) -> None:
    """Without their TensorBoard an experiment, a run and a time series are refused in its words, and with it in their own."""
    board = services("CreateTensorboard", parent=PARENT, tensorboard={"displayName": "b"}).response["name"]
    for kind, path in (("Experiment", ""), ("Run", "/runs/r"), ("TimeSeries", "/runs/r/timeSeries/s")):
        method, rest = f"GetTensorboard{kind}", f"experiments/e{path}"
        with pytest.raises(ApiError, match="^The Tensorboard does not exist.$"):
            services.methods[method]({"name": f"{PARENT}/tensorboards/7/{rest}"})
        with pytest.raises(ApiError, match=f"^Tensorboard{kind} {board}/{rest} is not found.$"):
            services.methods[method]({"name": f"{board}/{rest}"})
    with pytest.raises(ApiError, match="^The Tensorboard does not exist.$"):
        services("CreateTensorboardRun", parent=f"{PARENT}/tensorboards/7/experiments/e", tensorboardRunId="r")


def test_a_job_makes_the_experiment_of_its_id(services: Services) -> None:
    """A job that runs with a TensorBoard has an experiment there, trials that of their tuning job; others make none."""
    board = services("CreateTensorboard", parent=PARENT, tensorboard={"displayName": "b"}).response["name"]
    boards = services.registry.boards
    study = f"{PARENT}/hyperparameterTuningJobs/90"
    boards.store.add("hyperparameterTuningJobs", PARENT, study, {})
    for id_, named, hidden in (("5", board, {}), ("6", board, {"study": study}), ("7", f"{board}0", {}), ("8", "", {})):
        body = {"jobSpec": {"tensorboard": named} if named else {}}
        boards.store.add("customJobs", PARENT, f"{PARENT}/customJobs/{id_}", body, hidden)
        for state in ("JOB_STATE_PENDING", "JOB_STATE_RUNNING", "JOB_STATE_RUNNING"):
            boards.note(f"{PARENT}/customJobs/{id_}", state)
    found = services("ListTensorboardExperiments", parent=board)["tensorboardExperiments"]
    ids = {one["name"].removeprefix(f"{board}/experiments/"): one["source"] for one in found}
    assert ids == {"5": f"{PARENT}/customJobs/5", "90": study}


def test_names_that_are_no_study_or_trial(services: Services) -> None:
    """The id of a study is a number; deleting a trial that is not there is a wrong argument."""
    with pytest.raises(ApiError, match="The study ID must be a number") as wrong:
        services("GetStudy", name=f"{PARENT}/studies/mine")
    assert wrong.value.code == 400
    metric = {"metricId": "loss", "goal": "MINIMIZE"}
    rate = {"parameterId": "rate", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}
    spec = {"metrics": [metric], "parameters": [rate]}
    study = services("CreateStudy", parent=PARENT, study={"displayName": "s", "studySpec": spec})["name"]
    for method, code in (("GetTrial", 404), ("DeleteTrial", 400)):
        with pytest.raises(ApiError, match="The Trial does not exist") as missing:
            services(method, name=f"{study}/trials/7")
        assert missing.value.code == code


def test_values_of_a_time_series_are_thinned(services: Services) -> None:
    """At most `maxDataPoints` values come, the first and the last among them; -1 asks for all, and pages give each once."""
    board = services("CreateTensorboard", parent=PARENT, tensorboard={"displayName": "b"}).response["name"]
    experiment = services("CreateTensorboardExperiment", parent=board, tensorboardExperimentId="e")["name"]
    run = services("CreateTensorboardRun", parent=experiment, tensorboardRunId="r")["name"]
    made = services("CreateTensorboardTimeSeries", parent=run, tensorboardTimeSeries={"displayName": "loss"})
    wall = {1198: "2026-11-20T12:00:00.500Z", 1199: "2026-11-20T12:00:00Z"}
    points = [
        {"step": str(step), "wallTime": wall.get(step, "2026-11-20T11:00:00Z"), "scalar": {"value": 1.0}}
        for step in range(1200)
    ]
    data = [{"tensorboardTimeSeriesId": made["name"].rpartition("/")[2], "values": points}]
    services("WriteTensorboardRunData", tensorboardRun=run, timeSeriesData=data)
    newest = services.methods["GetTensorboardTimeSeries"]({"name": made["name"]})["metadata"]
    assert newest == {"maxStep": "1199", "maxWallTime": "2026-11-20T12:00:00.500Z"}

    def read(most: int) -> list[int]:
        found = services("ReadTensorboardTimeSeriesData", tensorboardTimeSeries=made["name"], maxDataPoints=most)
        return [int(point["step"]) for point in found["timeSeriesData"]["values"]]

    assert read(3) == [0, 600, 1199] and read(1) == [1199] and len(read(0)) == 1000
    assert read(-1) == list(range(1200))
    token, exported = "", []
    while True:
        page = services("ExportTensorboardTimeSeriesData", tensorboardTimeSeries=made["name"], pageToken=token)
        exported += [int(point["step"]) for point in page["timeSeriesDataPoints"]]
        token = page.get("nextPageToken", "")
        if not token:
            break
    assert exported == list(range(1200))


def test_trials_stay_in_their_order_when_some_are_deleted(services: Services) -> None:
    """ListTrials gives the newest trial first, also those made after others were deleted."""
    space = [{"parameterId": "x", "doubleValueSpec": {"minValue": 0.0, "maxValue": 1.0}}]
    spec = {"metrics": [{"metricId": "loss", "goal": "MINIMIZE"}], "parameters": space}
    study = services("CreateStudy", parent=PARENT, study={"displayName": "s", "studySpec": spec})["name"]
    services("SuggestTrials", parent=study, suggestionCount=3, clientId="c")
    for number in "12":
        services.methods["DeleteTrial"]({"name": f"{study}/trials/{number}"})
    services("SuggestTrials", parent=study, suggestionCount=2, clientId="d")
    assert [trial["name"][-1] for trial in services("ListTrials", parent=study)["trials"]] == ["5", "4", "3"]


def test_a_context_has_values_of_the_space(services: Services) -> None:
    """A suggestion whose context has a value outside of the study's space is refused."""
    study = services("CreateStudy", parent=PARENT, study={"displayName": "s", "studySpec": GRID})["name"]
    context = {"parameters": [{"parameterId": "x", "value": 10}]}
    with pytest.raises(ApiError, match="'x' is not in this study's space"):
        services("SuggestTrials", parent=study, suggestionCount=1, clientId="c", contexts=[context])


def test_a_table_of_bigquery_is_read_back_as_text(services: Services) -> None:
    """A list of one table, as the SDK sends it, is shown as that table."""
    table = {"inputConfig": {"bigquerySource": {"uri": ["bq://p.d.t"]}}}
    sent = {"displayName": "d", "metadataSchemaUri": TABULAR.replace("tabular", "time_series"), "metadata": table}
    services("CreateDataset", parent=PARENT, dataset=sent)
    (made,) = services("ListDatasets", parent=PARENT)["datasets"]
    assert made["metadata"]["inputConfig"]["bigquerySource"]["uri"] == "bq://p.d.t"


def test_a_pool_is_called_by_its_machine_and_its_accelerators(services: Services) -> None:
    """A pool without an id has one of its machine type, its accelerators and their number; a second one of that kind has a number more."""
    machine = {"machineType": "n1-highmem-2", "acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 1}
    pools = [{"machineSpec": machine, "replicaCount": 1}] * 2
    plain = {"machineSpec": {"machineType": "n1-highmem-2"}, "replicaCount": 4}
    asked = {"resourcePools": [*pools, plain]}
    services("CreatePersistentResource", parent=PARENT, persistentResourceId="gpus", persistentResource=asked)
    made = services("GetPersistentResource", name=f"{PARENT}/persistentResources/gpus")["resourcePools"]
    with_gpu = "n1-highmem-2-nvidia-tesla-t4-1"
    assert [pool["id"] for pool in made] == [with_gpu, f"{with_gpu}-1", "n1-highmem-2"]


def test_the_pools_of_a_persistent_resource_are_resized(services: Services) -> None:
    """The mask of the replicas changes the pools that the request names by their ids; another id is refused."""
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": "1"}
    asked = {"resourcePools": [{**pool, "id": "head-node"}, {**pool, "id": "worker-pool1"}]}
    made = services("CreatePersistentResource", parent=PARENT, persistentResourceId="ray", persistentResource=asked)
    name, mask = made.response["name"], "resource_pools.replica_count"
    workers = {"name": name, "resourcePools": [{"id": "worker-pool1", "replicaCount": "3"}]}
    changed = services("UpdatePersistentResource", persistentResource=workers, updateMask=mask).response
    assert [(one["id"], one["replicaCount"]) for one in changed["resourcePools"]] == [
        ("head-node", "1"),
        ("worker-pool1", "3"),
    ]
    assert all(one["machineSpec"] == pool["machineSpec"] for one in changed["resourcePools"])
    wrong = {"name": name, "resourcePools": [{"id": "none", "replicaCount": "3"}]}
    with pytest.raises(ApiError, match="no resource pool with the id 'none'"):
        services("UpdatePersistentResource", persistentResource=wrong, updateMask=mask)


def test_the_lineage_of_an_artifact(services: Services) -> None:
    """It goes as many steps as asked for, to the end without a number, and is refused for a negative one."""
    services("CreateMetadataStore", parent=PARENT, metadataStoreId="default")
    for kind, ids in (("Artifact", "abc"), ("Execution", "xy")):
        for id_ in ids:
            services(f"Create{kind}", parent=STORE, **{f"{kind.lower()}Id": id_})
    for execution, artifacts in (("x", "ab"), ("y", "bc")):
        events = [{"artifact": f"{STORE}/artifacts/{one}"} for one in artifacts]
        services("AddExecutionEvents", execution=f"{STORE}/executions/{execution}", events=events)

    def seen(**hops: int) -> str:
        found = services("QueryArtifactLineageSubgraph", artifact=f"{STORE}/artifacts/a", **hops)
        return "".join(one["name"][-1] for one in found["artifacts"] + found["executions"])

    assert seen() == "abcxy" and seen(maxHops=2) == "abx"
    with pytest.raises(ApiError, match="max_hops"):
        seen(maxHops=-1)
    found = services("QueryExecutionInputsAndOutputs", execution=f"{STORE}/executions/x")
    assert (
        all(re.search(r":\d\d\.\d{3}Z$", event["eventTime"]) for event in found["events"]) and len(found["events"]) == 2
    )


def test_datasets_are_listed_by_their_last_update(services: Services) -> None:
    """A list without an order begins with the dataset that was made or updated last; with one it is in that order."""
    for name in ("a", "b", "c"):
        services("CreateDataset", parent=PARENT, dataset={"displayName": name, "metadataSchemaUri": TABULAR})
    (oldest,) = (one for one in services("ListDatasets", parent=PARENT)["datasets"] if one["displayName"] == "a")
    services("UpdateDataset", dataset={"name": oldest["name"], "labels": {"k": "v"}}, updateMask="labels")
    for order, expected in (("", "acb"), ("create_time", "abc")):
        found = services("ListDatasets", parent=PARENT, orderBy=order)["datasets"]
        assert "".join(one["displayName"] for one in found) == expected


@pytest.mark.parametrize(
    ("id_", "taken"), [("_a-1", True), ("a" * 63, True), ("1a", False), ("-a", False), ("A", False)]
)
def test_the_id_of_a_model(services: Services, id_: str, taken: bool) -> None:
    """An id begins with a small letter or an underscore, and has up to 63 of `[a-z0-9_-]`."""
    if taken:
        assert services("UploadModel", parent=PARENT, modelId=id_, model={"displayName": "m"}).above.endswith(f"/{id_}")
    else:
        with pytest.raises(ApiError, match="model_id"):
            services("UploadModel", parent=PARENT, modelId=id_, model={"displayName": "m"})


@pytest.mark.parametrize("name", ["ListTrials", "ExportTensorboardTimeSeriesData", "ListModels"])
def test_a_negative_page_size_is_refused(services: Services, name: str) -> None:
    """A page of less than no resources is a 400, whatever is listed."""
    with pytest.raises(ApiError) as refused:
        services(name, parent=PARENT, tensorboardTimeSeries=PARENT, pageSize=-1)
    assert refused.value.code == 400 and "page_size" in refused.value.message


GRID = {
    "metrics": [{"metricId": "a", "goal": "MAXIMIZE"}],
    "parameters": [{"parameterId": "x", "integerValueSpec": {"minValue": "1", "maxValue": "9"}}],
    "algorithm": "GRID_SEARCH",
}


def test_trials_of_a_study_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls read the trials of a study from the disk at the first one, and again only after a change that was not kept."""
    services, reads, read = Services(tmp_path), list[str](), ResourceStore.trials
    monkeypatch.setattr(ResourceStore, "trials", lambda store, study: reads.append(study) or read(store, study))
    study = services("CreateStudy", parent=PARENT, study={"displayName": "s", "studySpec": GRID})["name"]

    def suggested(client: str) -> list[tuple[str, Any]]:
        given = services("SuggestTrials", parent=study, suggestionCount=2, clientId=client).response["trials"]
        return [(one["name"].rpartition("/")[2], one["parameters"][0]["value"]) for one in given]

    assert suggested("a") == suggested("a") == [("1", 1), ("2", 2)]
    metric = {"metrics": [{"metricId": "a", "value": 0.5}]}
    services("AddTrialMeasurement", trialName=f"{study}/trials/1", measurement=metric)
    services.methods["CompleteTrial"]({"name": f"{study}/trials/1"})
    assert services.methods["GetTrial"]({"name": f"{study}/trials/1"})["state"] == "SUCCEEDED"
    assert suggested("a") == [("2", 2), ("3", 3)] and len(services("ListTrials", parent=study)["trials"]) == 3
    assert reads == [study]

    save = ResourceStore.save_trial

    def full(store: ResourceStore, name: str, record: dict[str, Any]) -> None:
        save(store, name, record)
        if record["id"] == "5":
            raise OSError("no space left on device")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="no space"):
        patched.setattr(ResourceStore, "save_trial", full)
        suggested("b")
    assert suggested("b") == [("4", 4), ("5", 5)] and reads == [study, study]


def upload(services: Services, **fields: Any) -> str:
    """Upload a model and return its name."""
    made = services("UploadModel", parent=PARENT, model={"displayName": "m", **fields})
    return str(made.response["model"])


def test_labels_are_those_of_a_version(services: Services) -> None:
    """A change of labels is that of one version, where a display name is that of all."""
    name = upload(services, labels={"a": "1"})
    services("UploadModel", parent=PARENT, parentModel=name, model={"displayName": "m", "labels": {"a": "2"}})
    services("UpdateModel", model={"name": name, "displayName": "n", "labels": {"b": "3"}})
    first, second = (services("GetModel", name=f"{name}@{number}") for number in (1, 2))
    assert (first["labels"], second["labels"]) == ({"b": "3"}, {"a": "2"})
    assert first["displayName"] == second["displayName"] == "n"


def test_a_model_was_updated_when_one_of_its_versions_was(services: Services) -> None:
    """All versions show the last update of any of them, also after that version is gone; each keeps its own time beside it."""
    name = upload(services)
    before = services("GetModel", name=name)["updateTime"]
    services("UploadModel", parent=PARENT, parentModel=name, model={"displayName": "m"})
    first, second = (services("GetModel", name=f"{name}@{number}") for number in (1, 2))
    assert first["updateTime"] == second["updateTime"] == second["versionUpdateTime"] > before
    assert first["versionUpdateTime"] == before
    services("DeleteModelVersion", name=f"{name}@2")
    assert services("GetModel", name=name)["updateTime"] == second["updateTime"]


def test_evaluations_are_those_of_a_version(services: Services) -> None:
    """An evaluation is named below the version that it is of, is listed there alone, and goes with the version."""
    name = upload(services)
    services("UploadModel", parent=PARENT, parentModel=name, model={"displayName": "m"})
    sent = {"metricsSchemaUri": "gs://schemas/forecasting.yaml", "metrics": {"rSquared": 0.5}}
    first = services("ImportModelEvaluation", parent=name, modelEvaluation=sent)
    second = services("ImportModelEvaluation", parent=f"{name}@2", modelEvaluation={**sent, "displayName": "two"})
    assert re.fullmatch(rf"{name}/evaluations/[0-9]+", first["name"]) and second["name"].startswith(f"{name}@2/")
    assert first == {**sent, "name": first["name"]}  # the answer to an import has no version of its own, and no time
    for one, version in ((first, "@1"), (second, "@2")):
        (kept,) = services("ListModelEvaluations", parent=f"{name}{version}")["modelEvaluations"]
        assert kept == {
            **one,
            "name": f"{name}{version}/evaluations/{one['name'].split('/')[-1]}",
            "createTime": kept["createTime"],
        }
        for known in (kept["name"], kept["name"].replace(version, "")):  # the SDK asks without a version
            assert services("GetModelEvaluation", name=known) == kept
    services("DeleteModelVersion", name=f"{name}@2")
    with pytest.raises(ApiError, match="does not exist"):
        services("GetModelEvaluation", name=second["name"])
    services("DeleteModel", name=name)
    with pytest.raises(ApiError, match="does not exist"):
        services("GetModelEvaluation", name=first["name"])


def test_a_confusion_matrix_of_bare_rows_is_refused(services: Services) -> None:
    """Its rows are messages; lists of numbers, as AutoML's evaluations are printed, are refused in the service's words."""
    name = upload(services)

    def add(*rows: Any) -> None:
        metrics = {"logLoss": 1.4, "confusionMatrix": {"rows": [*rows]}}
        sent = {"metricsSchemaUri": "gs://schemas/classification.yaml", "metrics": metrics}
        services("ImportModelEvaluation", parent=name, modelEvaluation=sent)

    add({"row": [1, 2]}, {"row": [0, 3]})
    with pytest.raises(ApiError, match="^Invalid Metrics Format$"):
        add([1, 2], [0, 3])
    for odd in ([], "text", {"confusionMatrix": []}, {"confusionMatrix": {"rows": 3}}):  # any JSON value may be sent
        assert services("ImportModelEvaluation", parent=name, modelEvaluation={"metrics": odd})["metrics"] == odd


def test_a_models_files_are_exported(services: Services, tmp_path: Path) -> None:
    """They are copied to a folder named by the model, the format and the time, which the operation names."""
    files, out = tmp_path / "gs" / "files" / "m" / "variables", tmp_path / "gs" / "out"
    files.mkdir(parents=True)
    out.mkdir()
    (files.parent / "saved_model.pb").write_text("model")
    (files / "index").write_text("index")
    name = upload(services, artifactUri="gs://files/m")
    to = {"artifactDestination": {"outputUriPrefix": "gs://out/exported/"}}
    done = services("ExportModel", name=name, outputConfig={**to, "exportFormatId": "custom-trained"})
    assert done.begins
    folder = done.details["outputInfo"]["artifactOutputUri"]
    assert re.fullmatch(rf"gs://out/exported/model-{resources.last_part(name)}/custom-trained/[0-9T:.-]+Z", folder)
    exported = tmp_path / "gs" / folder.removeprefix("gs://")
    assert (exported / "saved_model.pb").read_text() + (exported / "variables" / "index").read_text() == "modelindex"
    for wrong in ({}, {"exportFormatId": "tflite"}):
        with pytest.raises(
            ApiError, match="^Exporting artifact for model `projects/1/.* is not supported[.]$"
        ) as error:
            services("ExportModel", name=name, outputConfig={**to, **wrong})
        assert error.value.status == "FAILED_PRECONDITION"
    with pytest.raises(ApiError, match="output_uri_prefix"):
        services("ExportModel", name=name, outputConfig={"exportFormatId": "custom-trained"})


@pytest.mark.parametrize(
    ("schema", "fine"),
    [
        ("title: ModelCard\ntype: object\n", False),
        ("type: object\n", False),
        ("type: object\ntitle: 'lab.ModelCard'\n", True),
        ('{"title": "lab.ModelCard", "type": "object"}', True),
    ],
)
def test_a_schema_has_a_title(services: Services, schema: str, fine: bool) -> None:
    """A metadata schema is kept if its title is of the form namespace.Name."""
    services("CreateMetadataStore", parent=PARENT, metadataStoreId="default", metadataStore={})
    sent = {"schema": schema, "schemaType": "ARTIFACT_TYPE", "schemaVersion": "0.0.1"}
    if fine:
        assert services("CreateMetadataSchema", parent=STORE, metadataSchema=sent)["schema"] == schema
        return
    with pytest.raises(ApiError, match="must include a schema title"):
        services("CreateMetadataSchema", parent=STORE, metadataSchema=sent)


def test_aliases_stay_in_their_order(services: Services) -> None:
    """A version has its aliases in the order in which they were given, and default after them."""
    name = upload(services, versionAliases=["two", "one", "two"])
    assert services("GetModel", name=name)["versionAliases"] == ["two", "one", "default"]
    services("MergeVersionAliases", name=f"{name}@1", versionAliases=["zero", "a-b", "-one"])
    assert services("GetModel", name=name)["versionAliases"] == ["two", "default", "zero", "a-b"]
