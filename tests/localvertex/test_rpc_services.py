"""Services over gRPC: studies, models, machines, projects, schedules, logs, by Google's own clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
from google.api_core import exceptions
from google.protobuf import json_format

from localvertex import server
from tests.support.jobkit import job, pool
from tests.support.rpckit import PARENT, STUDY, client, serving
from vertexrig.spec import messages


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    """A server with gRPC that the tests of this module share."""
    with serving(tmp_path_factory.mktemp("rpc")) as running:
        yield running


def test_a_study_is_searched(channel: grpc.Channel) -> None:
    """A client, by default "" in the SDK, makes a study, asks for trials, measures, completes them, and finds the best one."""
    vizier = client(channel, "vizier_service")
    study = vizier.create_study(parent=PARENT, study={"display_name": "own-loop", "study_spec": STUDY})
    assert vizier.lookup_study(request={"parent": PARENT, "display_name": "own-loop"}).name == study.name
    with pytest.raises(exceptions.AlreadyExists):
        vizier.create_study(parent=PARENT, study={"display_name": "own-loop", "study_spec": STUDY})
    asked = {"parent": study.name, "suggestion_count": 2, "client_id": ""}
    first = vizier.suggest_trials(request=asked).result(timeout=60).trials
    again = vizier.suggest_trials(request=asked).result(timeout=60).trials
    assert [one.name for one in first] == [one.name for one in again], "a client gets back what it has not finished"
    other = vizier.suggest_trials(request={**asked, "client_id": "b", "suggestion_count": 1}).result(timeout=60).trials
    assert other[0].name not in [one.name for one in first] and other[0].client_id == "b"
    assert {row.parameter_id for row in first[0].parameters} == {"rate", "units"}
    for trial, loss in zip([*first, *other], (0.5, 0.25, 0.75), strict=True):
        vizier.add_trial_measurement(request={
            "trial_name": trial.name, "measurement": {"step_count": 1, "metrics": [{"metric_id": "loss", "value": loss}]},
        })  # fmt: skip
    assert (
        not vizier.check_trial_early_stopping_state(request={"trial_name": first[0].name})
        .result(timeout=60)
        .should_stop
    )
    assert vizier.complete_trial(request={"name": first[0].name}).final_measurement.metrics[0].value == 0.5
    final = {"metrics": [{"metric_id": "loss", "value": 0.125}]}
    vizier.complete_trial(request={"name": first[1].name, "final_measurement": final})
    bad = vizier.complete_trial(request={"name": other[0].name, "trial_infeasible": True, "infeasible_reason": "NaN"})
    assert bad.state.name == "INFEASIBLE" and bad.infeasible_reason == "NaN"
    best = vizier.list_optimal_trials(request={"parent": study.name}).optimal_trials
    assert [one.name for one in best] == [first[1].name]
    with pytest.raises(exceptions.FailedPrecondition, match="SUCCEEDED, not ACTIVE"):
        vizier.complete_trial(request={"name": first[1].name})
    mine = {
        "state": "REQUESTED",
        "parameters": [{"parameter_id": "rate", "value": 0.5}, {"parameter_id": "units", "value": 16}],
    }
    wanted = vizier.create_trial(parent=study.name, trial=mine)
    assert wanted.state.name == "REQUESTED"
    with pytest.raises(exceptions.InvalidArgument, match="search space"):
        vizier.create_trial(parent=study.name, trial={**mine, "parameters": [{"parameter_id": "rate", "value": 5}]})
    given = vizier.suggest_trials(request={**asked, "client_id": "c", "suggestion_count": 1}).result(timeout=60).trials
    assert [one.name for one in given] == [wanted.name]
    assert vizier.stop_trial(request={"name": wanted.name}).state.name == "STOPPING"
    vizier.delete_trial(name=wanted.name)
    assert [one.name[-1] for one in vizier.list_trials(parent=study.name)] == ["3", "2", "1"]
    with pytest.raises(exceptions.InvalidArgument, match="study_spec"):
        vizier.create_study(parent=PARENT, study={"display_name": "empty", "study_spec": {"metrics": STUDY["metrics"]}})
    vizier.delete_study(name=study.name)
    with pytest.raises(exceptions.NotFound):
        vizier.get_study(name=study.name)


def test_models_and_their_versions(channel: grpc.Channel) -> None:
    """Upload makes a model and then versions of it; aliases move; update, list and delete do what they say."""
    models = client(channel, "model_service")
    one = models.upload_model(parent=PARENT, model={"display_name": "flowers", "artifact_uri": "gs://b/1"}).result(
        timeout=60
    )
    assert (one.model_version_id, one.model.split("/")[-2]) == ("1", "models")
    request = {
        "parent": PARENT, "parent_model": one.model,
        "model": {"display_name": "flowers", "artifact_uri": "gs://b/2", "version_aliases": ["best"]},
    }  # fmt: skip
    two = models.upload_model(request=request).result(timeout=60)
    assert (two.model, two.model_version_id) == (one.model, "2")
    assert models.get_model(name=one.model).version_id == "1"
    assert models.get_model(name=f"{one.model}@best").artifact_uri == "gs://b/2"
    models.merge_version_aliases(name=f"{one.model}@2", version_aliases=["default", "-best"])
    assert list(models.get_model(name=one.model).version_aliases) == ["default"]
    assert models.get_model(name=one.model).version_id == "2"
    listed = models.list_model_versions(name=one.model)
    assert [(model.version_id, list(model.version_aliases)) for model in listed] == [("1", []), ("2", ["default"])]
    newest = models.list_model_versions(request={"name": one.model, "page_size": 1, "order_by": "create_time desc"})
    assert [model.version_id for model in newest] == ["2", "1"] and len(newest.models) == 1
    changed = {"name": one.model, "display_name": "roses", "labels": {"a": "b"}}
    updated = models.update_model(model=changed, update_mask={"paths": ["display_name", "labels"]})
    assert updated.display_name == "roses" and models.get_model(name=f"{one.model}@1").display_name == "roses"
    assert [model.name for model in models.list_models(request={"parent": PARENT, "filter": "labels.a=b"})] == [
        one.model
    ]
    with pytest.raises(exceptions.NotFound):
        models.delete_model_version(name=f"{one.model}@9")
    models.delete_model_version(name=f"{one.model}@1").result(timeout=60)
    with pytest.raises(exceptions.FailedPrecondition, match="the only version"):
        models.delete_model_version(name=f"{one.model}@2")
    assert [model.version_id for model in models.list_model_versions(name=one.model)] == ["2"]
    with pytest.raises(exceptions.InvalidArgument, match="cannot be updated"):
        models.update_model(model={"name": one.model}, update_mask={"paths": ["create_time"]})
    named = {"parent": PARENT, "model_id": "named", "model": {"display_name": "n"}}
    assert models.upload_model(request=named).result(timeout=60).model.endswith("/models/named")
    with pytest.raises(exceptions.AlreadyExists):
        models.upload_model(request=named)
    models.delete_model(name=one.model).result(timeout=60)
    with pytest.raises(exceptions.NotFound):
        models.get_model(name=one.model)


def test_what_no_message_holds_is_refused(channel: grpc.Channel) -> None:
    """A trial's parameter without an id, a mask inside of a number, a run without a parent, an Any of no type: all are 400 or 404."""
    vizier, models = client(channel, "vizier_service"), client(channel, "model_service")
    study = vizier.create_study(parent=PARENT, study={"display_name": "refusals", "study_spec": STUDY})
    with pytest.raises(exceptions.InvalidArgument, match="search space"):
        vizier.create_trial(parent=study.name, trial={"state": "ACTIVE", "parameters": [{}]})
    model = models.upload_model(parent=PARENT, model={"display_name": "x", "metadata": 0.5}).result(timeout=60).model
    with pytest.raises(exceptions.InvalidArgument, match="metadata.a"):
        models.update_model(model={"name": model, "metadata": 1.5}, update_mask={"paths": ["metadata.a"]})
    boards = client(channel, "tensorboard_service")
    experiment = f"{PARENT}/tensorboards/1/experiments/e"
    with pytest.raises(exceptions.NotFound):
        boards.batch_create_tensorboard_runs(parent=experiment, requests=[{"tensorboard_run_id": "r"}])
    request = messages.message_class("CreateTrainingPipelineRequest")(parent=PARENT)
    request.training_pipeline.error.details.add(type_url="none", value=b"x")
    call = channel.unary_unary("/google.cloud.aiplatform.v1.PipelineService/CreateTrainingPipeline")
    with pytest.raises(grpc.RpcError) as refused:
        call(request.SerializeToString(), timeout=30)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_one_request_writes_and_makes_so_much(channel: grpc.Channel) -> None:
    """A request with more than 1,000 runs or time series, or more than 5,000 data points, is refused, and nothing of it is kept."""
    boards = client(channel, "tensorboard_service")
    board = boards.create_tensorboard(parent=PARENT, tensorboard={"display_name": "b"}).result(timeout=60).name
    experiment = boards.create_tensorboard_experiment(parent=board, tensorboard_experiment_id="e").name
    runs = [
        {"parent": experiment, "tensorboard_run_id": f"r{n}", "tensorboard_run": {"display_name": f"r{n}"}}
        for n in range(1001)
    ]
    with pytest.raises(exceptions.InvalidArgument, match="Maximum of 1000 TensorboardRuns"):
        boards.batch_create_tensorboard_runs(parent=experiment, requests=runs)
    boards.batch_create_tensorboard_runs(parent=experiment, requests=runs[:1000])
    run = f"{experiment}/runs/r0"
    one = {"display_name": "s", "value_type": "SCALAR"}
    many = [{"parent": run, "tensorboard_time_series": one}] * 1001
    with pytest.raises(exceptions.InvalidArgument, match="Maximum of 1000 TensorboardTimeSeries"):
        boards.batch_create_tensorboard_time_series(parent=experiment, requests=many)
    series = boards.create_tensorboard_time_series(parent=run, tensorboard_time_series=one).name
    points = [{"step": step, "scalar": {"value": 0.5}} for step in range(5001)]

    def write(values: list[Any]) -> None:
        data = {"tensorboard_time_series_id": series.rpartition("/")[2], "value_type": "SCALAR", "values": values}
        boards.write_tensorboard_run_data(tensorboard_run=run, time_series_data=[data])

    with pytest.raises(exceptions.InvalidArgument, match="Maximum of 5000 data points"):
        write(points)
    assert not boards.read_tensorboard_time_series_data(tensorboard_time_series=series).time_series_data.values
    write(points[:5000])


def test_blobs_of_a_tensorboard_are_read(channel: grpc.Channel, here: server.RunningServer) -> None:
    """Images and graphs that lie where the SDK puts them stream over gRPC, v1 and v1beta1, and over REST; others are named."""
    from google.cloud import aiplatform_v1

    boards = client(channel, "tensorboard_service")
    board = boards.create_tensorboard(parent=PARENT, tensorboard={"display_name": "b"}).result(timeout=60)
    board = boards.get_tensorboard(name=board.name)
    tree = {"tensorboard_experiment": "exp", "tensorboard_run": "run", "tensorboard_time_series": "pictures"}
    name = board.name
    for level, id_ in tree.items():
        made = {"display_name": id_} | ({"value_type": "BLOB_SEQUENCE"} if id_ == "pictures" else {})
        request = {"parent": name, level: made, f"{level}_id": id_}
        name = getattr(boards, f"create_{level}")(request=request).name
    folder = (
        here.root
        / "gs"
        / board.blob_storage_path_prefix
        / f"tensorboard-{board.name.rpartition('/')[2]}/exp/run/pictures"
    )
    folder.mkdir(parents=True)
    written = {"11-a": b"\x89PNG\x00", "22-b": b"x" * 3000}
    for id_, data in written.items():
        (folder / id_).write_bytes(data)
    asked = {"time_series": name, "blob_ids": list(written)}
    for answers in (
        boards.read_tensorboard_blob_data(request=asked),
        client(channel, "tensorboard_service", "aiplatform_v1beta1").read_tensorboard_blob_data(request=asked),
        aiplatform_v1.TensorboardServiceClient(transport=_over_rest(here)).read_tensorboard_blob_data(request=asked),
    ):
        assert {blob.id: blob.data for answer in answers for blob in answer.blobs} == written
    for wrong, error in (("33", exceptions.NotFound), ("../../x", exceptions.InvalidArgument)):
        with pytest.raises(error):
            list(boards.read_tensorboard_blob_data(request={"time_series": name, "blob_ids": [wrong]}))


def _over_rest(here: server.RunningServer) -> Any:
    """The REST transport of TensorBoards, for a server without TLS."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud.aiplatform_v1.services.tensorboard_service.transports.rest import TensorboardServiceRestTransport

    host = f"{here.url}{server.AIPLATFORM}"
    return TensorboardServiceRestTransport(host=host, credentials=AnonymousCredentials(), url_scheme="http")


def test_persistent_resources(channel: grpc.Channel) -> None:
    """One is made, listed, rebooted, changed and deleted; a job that names a missing one is refused, in a study too."""
    machines, jobs = client(channel, "persistent_resource_service"), client(channel, "job_service")
    pools = [{"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1}]
    made = machines.create_persistent_resource(
        parent=PARENT, persistent_resource={"resource_pools": pools}, persistent_resource_id="warm"
    ).result(timeout=60)
    made = machines.get_persistent_resource(name=made.name)
    assert made.state.name == "RUNNING" and made.resource_pools[0].replica_count == 1
    assert [one.name for one in machines.list_persistent_resources(parent=PARENT)] == [made.name]
    assert machines.reboot_persistent_resource(name=made.name).result(timeout=60).start_time >= made.start_time
    changed = {"name": made.name, "display_name": "warmer"}
    update = machines.update_persistent_resource(persistent_resource=changed, update_mask={"paths": ["display_name"]})
    assert update.result(timeout=60).display_name == "warmer"
    from google.cloud.aiplatform_v1 import CustomJob, HyperparameterTuningJob

    def send(id_: str) -> Any:
        spec = job(pool("print('on it')"), persistentResourceId=id_)
        return jobs.create_custom_job(
            parent=PARENT, custom_job=CustomJob.from_json(json.dumps({"displayName": "x", "jobSpec": spec}))
        )

    assert send("warm").job_spec.persistent_resource_id == "warm"
    with pytest.raises(exceptions.NotFound, match="PersistentResource does not exist"):
        send("cold")
    tuning = HyperparameterTuningJob.from_json(json.dumps({
        "displayName": "x", "maxTrialCount": 1, "parallelTrialCount": 1,
        "studySpec": {"metrics": [{"metricId": "m", "goal": "MAXIMIZE"}],
                      "parameters": [{"parameterId": "p", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}]},
        "trialJobSpec": job(pool("pass"), persistentResourceId="cold"),
    }))  # fmt: skip
    with pytest.raises(exceptions.NotFound, match="PersistentResource does not exist"):
        jobs.create_hyperparameter_tuning_job(parent=PARENT, hyperparameter_tuning_job=tuning)
    machines.delete_persistent_resource(name=made.name).result(timeout=60)
    assert list(machines.list_persistent_resources(parent=PARENT)) == []


def test_a_projects_id_and_number(channel: grpc.Channel, here: server.RunningServer) -> None:
    """GetProject leads from id to number and back, over gRPC and over both versions of REST."""
    from google.cloud.resourcemanager_v3.services.projects import ProjectsClient
    from google.cloud.resourcemanager_v3.services.projects.transports import ProjectsGrpcTransport

    projects = ProjectsClient(transport=ProjectsGrpcTransport(channel=channel))
    by_id = projects.get_project(name="projects/my-project")
    assert by_id.project_id == "my-project" and by_id.state.name == "ACTIVE"
    assert projects.get_project(name=by_id.name).project_id == "my-project"
    old = httpx.get(f"{here.url}/resourcemanager/v1/{by_id.name}").json()
    assert (old["projectId"], f"projects/{old['projectNumber']}") == ("my-project", by_id.name)
    with pytest.raises(exceptions.InvalidArgument):
        projects.get_project(name="projects/NO")


@pytest.mark.parametrize(
    ("path", "service", "method"),
    [
        (f"/vertex/v1/{PARENT}/studies", "aiplatform", "google.cloud.aiplatform.v1.VizierService.ListStudies"),
        (
            f"/vertex/v1beta1/{PARENT}/models",
            "aiplatform",
            "google.cloud.aiplatform.v1beta1.ModelService.ListModels",
        ),
        ("/logging/v2/projects/p/logs", "logging", "google.logging.v2.LoggingServiceV2.ListLogs"),
        (f"/scheduler/v1/{PARENT}/jobs", "cloudscheduler", "google.cloud.scheduler.v1.CloudScheduler.ListJobs"),
    ],
)
def test_an_api_key_without_a_token_is_refused(
    here: server.RunningServer, path: str, service: str, method: str
) -> None:
    """A key alone is a 401 that names the method; beside a token it is ignored, and a request without either is let through."""
    url = f"{here.url}{path}"
    key: list[tuple[dict[str, str], dict[str, str]]] = [({"key": "AIza"}, {}), ({}, {"X-Goog-Api-Key": "AIza"})]
    for query, header in key:
        refused = httpx.get(url, params=query, headers=header)
        error = refused.json()["error"]
        assert (refused.status_code, error["status"]) == (401, "UNAUTHENTICATED")
        assert error["message"].startswith(
            "API keys are not supported by this API. Expected OAuth2 access token or other"
        )
        detail = {"reason": "CREDENTIALS_MISSING", "domain": "googleapis.com"}
        about = {"service": f"{service}.googleapis.com", "method": method}
        assert error["details"] == [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", **detail, "metadata": about}]
        assert httpx.get(url, params=query, headers={**header, "Authorization": "Bearer t"}).status_code == 200
    assert httpx.get(url).status_code == 200


def test_an_api_key_over_grpc_is_refused(channel: grpc.Channel) -> None:
    """A key in the metadata of a call without a token is UNAUTHENTICATED."""
    vizier = client(channel, "vizier_service")
    key = ("x-goog-api-key", "AIza")
    with pytest.raises(exceptions.Unauthenticated, match="API keys are not supported by this API") as refused:
        vizier.list_studies(parent=PARENT, metadata=[key])
    assert refused.value.reason == "CREDENTIALS_MISSING"
    vizier.list_studies(parent=PARENT, metadata=[key, ("authorization", "Bearer t")])


def test_payloads_that_are_messages(here: server.RunningServer, channel: grpc.Channel) -> None:
    """An audit log, a request log and audit data are written over REST and gRPC, found by their type, and read as written."""
    from google.cloud.appengine_logging_v1 import RequestLog
    from google.cloud.audit import audit_log_pb2
    from google.iam.v1.logging import audit_data_pb2
    from google.protobuf.any_pb2 import Any as AnyMessage

    logs = client(channel, "logging_service_v2", "logging_v2")
    payloads: list[tuple[str, dict[str, Any]]] = [
        ("google.cloud.audit.AuditLog", {"methodName": "test", "requestMetadata": {"callerIp": "127.0.0.1"}}),
        ("google.appengine.logging.v1.RequestLog", {"appId": "test", "latency": "500s", "status": 500}),
        ("google.iam.v1.logging.AuditData", {"policyDelta": {}}),
    ]
    kinds = (audit_log_pb2.AuditLog, RequestLog.pb(), audit_data_pb2.AuditData)
    for (name, fields), kind in zip(payloads, kinds, strict=True):
        written = {"@type": f"type.googleapis.com/{name}", **fields}
        log = {"logName": "projects/my-project/logs/messages", "resource": {"type": "global"}}
        body = {**log, "entries": [{"protoPayload": written}]}
        assert httpx.post(f"{here.url}/logging/v2/entries:write", json=body).status_code == 200
        packed = AnyMessage()
        packed.Pack(json_format.ParseDict(fields, kind()))
        entry = {"log_name": log["logName"], "resource": {"type": "global"}, "proto_payload": packed}
        logs.write_log_entries(request={"entries": [entry]})
        wanted = f'protoPayload.@type = "{written["@type"]}"'
        asked = {"resourceNames": ["projects/my-project"], "filter": wanted}
        found = httpx.post(f"{here.url}/logging/v2/entries:list", json=asked).json()["entries"]
        assert [one["protoPayload"] for one in found] == [written, written]
        read = list(logs.list_log_entries(request={"resource_names": ["projects/my-project"], "filter": wanted}))
        assert [one.proto_payload for one in read] == [packed, packed]
