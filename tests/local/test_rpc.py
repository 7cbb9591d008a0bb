"""gRPC beside REST: Google's own clients over an insecure channel, and the same answers over both."""

from __future__ import annotations

import asyncio
import json
import re
import select
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.api_core import exceptions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jobkit import job, pool, sdist

from vertexrig.local import methods, server
from vertexrig.local.jobs.settings import Settings
from vertexrig.local.rpc import convert
from vertexrig.local.runner import RunOptions
from vertexrig.spec import messages

PARENT = "projects/my-project/locations/us-central1"
STUDY = {
    "metrics": [{"metric_id": "loss", "goal": "MINIMIZE"}],
    "parameters": [
        {
            "parameter_id": "rate",
            "double_value_spec": {"min_value": 0.001, "max_value": 1.0},
            "scale_type": "UNIT_LOG_SCALE",
        },
        {"parameter_id": "units", "discrete_value_spec": {"values": [16, 32]}},
    ],
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    """A server with gRPC that the tests of this module share."""
    root = tmp_path_factory.mktemp("rpc")
    sdist(root / "gs/packages/trainer.tar.gz")
    with server.running(Settings(root, slots=8, run=RunOptions(grace=0.5)), grpc=True) as running:
        yield running


@pytest.fixture(scope="module")
def channel(here: server.RunningServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{here.grpc_port}") as made:
        yield made


@pytest.fixture(scope="module")
def rest(here: server.RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{here.url}/vertex/v1", timeout=60) as made:
        yield made


def client(channel: grpc.Channel, service: str, library: str = "aiplatform_v1") -> Any:
    """The gapic client of a service over the channel: `client(channel, "job_service")`."""
    base = f"google.cloud.{library}.services.{service}"
    name = "".join(part.title() for part in service.split("_"))
    transport = getattr(import_module(f"{base}.transports.grpc"), f"{name}GrpcTransport")
    return getattr(import_module(base), f"{name}Client")(transport=transport(channel=channel))


@pytest.mark.parametrize("library", ["aiplatform_v1", "aiplatform_v1beta1"])
def test_a_job_over_grpc(channel: grpc.Channel, library: str) -> None:
    """A job is made, listed, cancelled and deleted by an operation, by the clients of v1 and of v1beta1."""
    jobs = client(channel, "job_service", library)
    types = import_module(f"google.cloud.{library}")
    sent = {"displayName": f"over-{library.replace('_', '-')}", "jobSpec": job(pool("import time; time.sleep(600)"))}
    made = jobs.create_custom_job(parent=PARENT, custom_job=types.CustomJob.from_json(json.dumps(sent)))
    assert made.job_spec.worker_pool_specs[0].replica_count == 1
    listed = jobs.list_custom_jobs(request={"parent": PARENT, "filter": f'display_name="{sent["displayName"]}"'})
    assert [one.name for one in listed] == [made.name]
    jobs.cancel_custom_job(name=made.name)
    while made.state != types.JobState.JOB_STATE_CANCELLED:
        made = jobs.get_custom_job(name=made.name)
    assert made.error.code == 1 and made.end_time >= made.create_time
    operation = jobs.delete_custom_job(name=made.name)
    assert operation.result(timeout=10) is not None and operation.metadata.generic_metadata.create_time
    kept = jobs.transport.operations_client.get_operation(operation.operation.name)
    assert kept.done and kept.metadata.type_url.endswith(
        f"{library.removeprefix('aiplatform_')}.DeleteOperationMetadata"
    )
    with pytest.raises(exceptions.NotFound, match="does not exist"):
        jobs.get_custom_job(name=made.name)


def test_errors_are_the_services(channel: grpc.Channel) -> None:
    """A refusal has the status, the message and, in grpc-status-details-bin, the details that REST gives."""
    jobs = client(channel, "job_service")
    with pytest.raises(exceptions.InvalidArgument, match="display_name; Message: Display name is required") as empty:
        jobs.create_custom_job(parent=PARENT, custom_job={"display_name": ""})
    assert empty.value.grpc_status_code is grpc.StatusCode.INVALID_ARGUMENT
    unknown = {"display_name": "x", "job_spec": {"worker_pool_specs": [{"machine_spec": {"accelerator_type": 77}}]}}
    with pytest.raises(exceptions.InvalidArgument) as wrong:
        jobs.create_custom_job(parent=PARENT, custom_job=unknown)
    assert wrong.value.details[0].field_violations[0].field.endswith("[0].machine_spec.accelerator_type")
    with pytest.raises(exceptions.InvalidArgument, match="name is 'x/y', not projects"):
        jobs.get_custom_job(name="x/y")
    with pytest.raises(exceptions.InvalidArgument, match="is not a project id"):
        jobs.list_custom_jobs(parent="projects/UPPER/locations/us-central1")


@pytest.mark.parametrize("ask", [
    ("job_service", "get_nas_job", {"name": f"{PARENT}/nasJobs/1"}, "JobService/GetNasJob"),
    ("endpoint_service", "get_endpoint", {"name": f"{PARENT}/endpoints/1"}, "EndpointService/GetEndpoint"),
])  # fmt: skip
def test_what_is_not_served_is_named(channel: grpc.Channel, rest: httpx.Client, ask: Any, caplog: Any) -> None:
    """A method that is not served is UNIMPLEMENTED and 501 with its name, and one line of the log has it."""
    service, method, request, name = ask
    with pytest.raises(exceptions.MethodNotImplemented, match=name):
        getattr(client(channel, service), method)(request=request)
    assert [record.getMessage() for record in caplog.records if name in record.getMessage()] != []
    (path,) = request.values()
    answer = rest.get(f"/{path}")
    assert answer.status_code == 501 and answer.json()["error"]["status"] == "UNIMPLEMENTED"
    assert name in answer.json()["error"]["message"]


def test_a_service_nobody_knows(channel: grpc.Channel) -> None:
    """A service that is not in any table is UNIMPLEMENTED too, whatever the bytes are."""
    for path in ("/no.such.Service/Do", "/google.storage.v2.Storage/GetObject", "/x"):
        call = channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
        with pytest.raises(grpc.RpcError) as refused:
            call(b"\xff\xff\xff", timeout=10)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_deadline_ends_a_call(channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call whose deadline is over is ended, at the server too, and the next one is answered."""
    from vertexrig.local.rpc import inside

    ended = threading.Event()

    async def never(*_: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    path = "/google.cloud.aiplatform.v1.JobService/ListCustomJobs"
    call = channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
    request = b"\x0a" + bytes([len(PARENT)]) + PARENT.encode()
    with monkeypatch.context() as patch:
        patch.setattr(inside, "call", never)
        with pytest.raises(grpc.RpcError) as late:
            call(request, timeout=0.2)
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED and ended.wait(20)
    call(request, timeout=30)


def test_garbage_and_messages_too_large(here: server.RunningServer, channel: grpc.Channel) -> None:
    """Bytes that are no message, a message beyond the limit and a connection that is not HTTP/2 are refused; others go on."""
    path = "/google.cloud.aiplatform.v1.JobService/CreateCustomJob"
    call = channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
    for sent, code in (
        (b"\xff" * 9, grpc.StatusCode.INVALID_ARGUMENT),
        (b"\x0a" * (5 << 20), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            call(sent, timeout=20)
        assert refused.value.code() is code
    with socket.create_connection(("127.0.0.1", here.grpc_port or 0), timeout=20) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while raw.recv(4096):
            pass  # it closes the connection
    assert list(client(channel, "vizier_service").list_studies(parent="projects/none/locations/us-central1")) == []


def test_connections_beyond_the_limit_are_closed(here: server.RunningServer, channel: grpc.Channel) -> None:
    """350 connections that never say anything do not stop a client that is there; those beyond the limit are closed."""
    jobs = client(channel, "job_service")
    list(jobs.list_custom_jobs(parent=PARENT))
    with ExitStack() as stack:
        address = ("127.0.0.1", here.grpc_port or 0)
        idle = [stack.enter_context(socket.create_connection(address, timeout=20)) for _ in range(350)]
        while not select.select(idle, [], [], 0.1)[0]:
            pass  # the closing of one of them is something to read
        list(jobs.list_custom_jobs(parent=PARENT))


def test_two_hundred_calls_at_once(channel: grpc.Channel) -> None:
    """200 concurrent unary calls end without an error."""
    jobs = client(channel, "job_service")
    with ThreadPoolExecutor(200) as threads:
        found = list(threads.map(lambda _: len(list(jobs.list_custom_jobs(parent=PARENT))), range(200)))
    assert len(found) == 200


def test_another_users_connection_is_refused(channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard is asked for each call with the client's end of its connection."""
    from vertexrig.local.rpc import server as rpc

    asked: list[Any] = []

    def refuse(client: Any, server: Any) -> str:
        asked.append((client, server))
        return "not you"

    monkeypatch.setattr(rpc, "user_refusal", refuse)
    with pytest.raises(exceptions.PermissionDenied, match="not you"):
        client(channel, "job_service").list_custom_jobs(parent=PARENT)
    assert asked[0][0][0] == "127.0.0.1" and asked[0][0][1] > 1024


def test_without_grpcio_rest_is_answered_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where grpcio is not installed the server runs, has no gRPC port, and says so in one line."""
    monkeypatch.setitem(sys.modules, "grpc", None)
    with server.running(Settings(tmp_path), grpc=True) as alone:
        assert alone.grpc_port is None and "VERTEXRIG_GRPC" not in server.env(alone)
        assert httpx.get(f"{alone.url}/vertex/v1/{PARENT}/customJobs").json() == {}
    assert [record.getMessage() for record in caplog.records if "grpcio" in record.getMessage()] == [
        "grpcio is not installed: the local Vertex answers REST alone (pip install grpcio)"
    ]


def test_the_port_is_shown(here: server.RunningServer) -> None:
    """Whoever finds the server by its folder, its status and its variables learn the port."""
    found = server.find(here.root)
    assert found is not None and found.grpc_port == here.grpc_port
    status = server.status(here.root)
    assert status is not None and status["grpc_port"] == here.grpc_port
    assert server.env(here)["VERTEXRIG_GRPC"] == f"127.0.0.1:{here.grpc_port}"


# Vizier


def test_a_study_is_searched(channel: grpc.Channel) -> None:
    """A client makes a study, asks for trials, measures, completes them, and finds the best one."""
    vizier = client(channel, "vizier_service")
    study = vizier.create_study(parent=PARENT, study={"display_name": "own-loop", "study_spec": STUDY})
    assert vizier.lookup_study(request={"parent": PARENT, "display_name": "own-loop"}).name == study.name
    with pytest.raises(exceptions.AlreadyExists):
        vizier.create_study(parent=PARENT, study={"display_name": "own-loop", "study_spec": STUDY})
    asked = {"parent": study.name, "suggestion_count": 2, "client_id": "a"}
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
    mine = {"parameters": [{"parameter_id": "rate", "value": 0.5}, {"parameter_id": "units", "value": 16}]}
    wanted = vizier.create_trial(parent=study.name, trial=mine)
    assert wanted.state.name == "REQUESTED"
    with pytest.raises(exceptions.InvalidArgument, match="search space"):
        vizier.create_trial(parent=study.name, trial={"parameters": [{"parameter_id": "rate", "value": 5}]})
    given = vizier.suggest_trials(request={**asked, "client_id": "c", "suggestion_count": 1}).result(timeout=60).trials
    assert [one.name for one in given] == [wanted.name]
    assert vizier.stop_trial(request={"name": wanted.name}).state.name == "STOPPING"
    vizier.delete_trial(name=wanted.name)
    assert [one.id for one in vizier.list_trials(parent=study.name)] == ["1", "2", "3"]
    with pytest.raises(exceptions.InvalidArgument, match="study_spec"):
        vizier.create_study(parent=PARENT, study={"display_name": "empty", "study_spec": {"metrics": STUDY["metrics"]}})
    vizier.delete_study(name=study.name)
    with pytest.raises(exceptions.NotFound):
        vizier.get_study(name=study.name)


# models


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
    assert [(model.version_id, list(model.version_aliases)) for model in listed] == [("2", ["default"]), ("1", [])]
    changed = {"name": one.model, "display_name": "roses", "labels": {"a": "b"}}
    updated = models.update_model(model=changed, update_mask={"paths": ["display_name", "labels"]})
    assert updated.display_name == "roses" and models.get_model(name=f"{one.model}@1").display_name == "roses"
    assert [model.name for model in models.list_models(request={"parent": PARENT, "filter": "labels.a=b"})] == [
        one.model
    ]
    for wrong in ([f"{one.model}@2", exceptions.FailedPrecondition], [f"{one.model}@9", exceptions.NotFound]):
        with pytest.raises(wrong[1]):
            models.delete_model_version(name=wrong[0])
    models.delete_model_version(name=f"{one.model}@1").result(timeout=60)
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
        vizier.create_trial(parent=study.name, trial={"parameters": [{}]})
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


# machines, projects


def test_persistent_resources(channel: grpc.Channel) -> None:
    """One is made, listed, rebooted, changed and deleted; a job that names a missing one is refused, in a study too."""
    machines, jobs = client(channel, "persistent_resource_service"), client(channel, "job_service")
    pools = [{"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1}]
    made = machines.create_persistent_resource(
        parent=PARENT, persistent_resource={"resource_pools": pools}, persistent_resource_id="warm"
    ).result(timeout=60)
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


# other APIs


def test_scheduler_and_logging_over_grpc(channel: grpc.Channel) -> None:
    """google-cloud-scheduler's and google-cloud-logging's own clients work over gRPC."""
    from google.cloud.scheduler_v1.services import cloud_scheduler
    from google.cloud.scheduler_v1.services.cloud_scheduler.transports import CloudSchedulerGrpcTransport

    scheduler = cloud_scheduler.CloudSchedulerClient(transport=CloudSchedulerGrpcTransport(channel=channel))
    sent = {
        "name": f"{PARENT}/jobs/nightly",
        "schedule": "0 3 * * *",
        "http_target": {"uri": "http://127.0.0.1:9/", "body": b"{}"},
    }
    made = scheduler.create_job(parent=PARENT, job=sent)
    assert made.http_target.body == b"{}" and made.state.name == "ENABLED"
    assert scheduler.pause_job(name=made.name).state.name == "PAUSED"
    changed = scheduler.update_job(
        job={"name": made.name, "schedule": "0 4 * * *"}, update_mask={"paths": ["schedule"]}
    )
    assert changed.schedule == "0 4 * * *"
    assert [one.name for one in scheduler.list_jobs(parent=PARENT)] == [made.name]
    scheduler.delete_job(name=made.name)
    with pytest.raises(exceptions.NotFound):
        scheduler.get_job(name=made.name)

    from google.cloud.logging_v2.services.logging_service_v2 import LoggingServiceV2Client
    from google.cloud.logging_v2.services.logging_service_v2.transports import LoggingServiceV2GrpcTransport

    logging = LoggingServiceV2Client(transport=LoggingServiceV2GrpcTransport(channel=channel))
    entry = {
        "text_payload": "over gRPC",
        "severity": "WARNING",
        "resource": {"type": "ml_job", "labels": {"job_id": "77"}},
    }
    logging.write_log_entries(log_name="projects/local-project/logs/app", entries=[entry])
    found = list(logging.list_log_entries(request={
        "resource_names": ["projects/local-project"], "filter": 'resource.labels.job_id="77"',
    }))  # fmt: skip
    assert [(one.text_payload, one.severity) for one in found] == [("over gRPC", 400)]


# the same over both


CONTRACT = [
    "JobService.GetCustomJob", "JobService.ListCustomJobs", "JobService.CancelCustomJob",
    "JobService.GetHyperparameterTuningJob", "JobService.ListHyperparameterTuningJobs", "PipelineService.GetTrainingPipeline",
    "PipelineService.ListTrainingPipelines", "PipelineService.CreateTrainingPipeline", "JobService.CreateCustomJob",
    "JobService.CreateHyperparameterTuningJob", "VizierService.GetStudy",
    "VizierService.ListStudies", "VizierService.LookupStudy", "VizierService.SuggestTrials", "VizierService.ListTrials",
    "VizierService.AddTrialMeasurement", "VizierService.ListOptimalTrials",
    "ModelService.GetModel", "ModelService.ListModels", "ModelService.ListModelVersions",
    "ModelService.UpdateModel", "ModelService.MergeVersionAliases", "ModelService.ExportModel",
    "PersistentResourceService.GetPersistentResource", "PersistentResourceService.ListPersistentResources",
    "TensorboardService.GetTensorboard", "TensorboardService.ListTensorboards", "TensorboardService.UpdateTensorboard",
    "TensorboardService.ListTensorboardExperiments", "TensorboardService.WriteTensorboardRunData",
    "TensorboardService.ReadTensorboardTimeSeriesData", "MetadataService.GetContext", "MetadataService.ListContexts",
    "MetadataService.ListArtifacts", "MetadataService.ListExecutions", "MetadataService.QueryContextLineageSubgraph",
    "MetadataService.AddExecutionEvents", "MetadataService.UpdateContext",
]  # fmt: skip
WORDS = st.sampled_from(
    ["", "x", "my-project", "gs://b/1", 'display_name="x"', "state=1", "createTime desc", "é☃", "1", "@", "-1"]
)
NAMES = st.sampled_from([
    "", "projects/my-project/locations/us-central1", f"{PARENT}/customJobs/1", f"{PARENT}/studies/seen", "x/y",
    f"{PARENT}/models/seen", f"{PARENT}/models/seen@1", f"{PARENT}/studies/seen/trials/1", f"{PARENT}/tensorboards/1",
    f"{PARENT}/metadataStores/default", f"{PARENT}/metadataStores/default/contexts/c", "projects/UP/locations/us-central1",
])  # fmt: skip


def filled(draw: st.DrawFn, message: Any, depth: int = 0) -> None:
    """Set some fields of a message to something."""
    for field in message.DESCRIPTOR.fields:
        if not draw(st.booleans()) or depth > 3:
            continue
        kind = field.cpp_type
        if field.is_repeated:
            if kind == field.CPPTYPE_MESSAGE and field.message_type.GetOptions().map_entry:
                continue
            if kind == field.CPPTYPE_MESSAGE and field.message_type.full_name.startswith("google.cloud."):
                filled(draw, getattr(message, field.name).add(), depth + 1)
            elif kind == field.CPPTYPE_STRING and field.type == field.TYPE_STRING:
                getattr(message, field.name).extend(draw(st.lists(st.one_of(NAMES, WORDS), max_size=3)))
            continue
        if kind == field.CPPTYPE_MESSAGE:
            if field.message_type.full_name == "google.protobuf.FieldMask":
                getattr(message, field.name).paths.append(
                    draw(st.sampled_from(["display_name", "labels", "name", "x"]))
                )
            elif not field.message_type.full_name.startswith("google.protobuf."):
                getattr(message, field.name).SetInParent()
                filled(draw, getattr(message, field.name), depth + 1)
        elif kind == field.CPPTYPE_STRING:
            if field.type == field.TYPE_STRING:
                setattr(message, field.name, draw(NAMES if field.name in RESOURCES or depth == 1 else WORDS))
        elif kind == field.CPPTYPE_ENUM:
            setattr(message, field.name, draw(st.sampled_from([0, 1, 2, 77])))
        elif kind == field.CPPTYPE_BOOL:
            setattr(message, field.name, True)
        elif kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
            setattr(message, field.name, draw(st.sampled_from([0.5, -1.0, 1e300])))
        else:
            setattr(message, field.name, draw(st.sampled_from([1, 2, 100])))


RESOURCES = {
    "name",
    "parent",
    "trial_name",
    "context",
    "execution",
    "tensorboard",
    "tensorboard_run",
    "tensorboard_time_series",
}


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, Any]:
    """A method and a request of it, often with names that fit its path."""
    service, _, method = draw(st.sampled_from(CONTRACT)).partition(".")
    full = f"google.cloud.aiplatform.v1.{service}"
    kind = messages.pool().FindServiceByName(full).methods_by_name[method].input_type.full_name
    request = messages.message_class(kind)()
    filled(draw, request)
    binding = methods.of_service(full)[method][0]
    for field, pattern in binding.variables:
        if draw(st.integers(0, 9)):
            holder, *rest = field.split(".")
            target = getattr(request, holder) if rest else request
            parts = pattern.split("/")
            value = "/".join(f"<{parts[i - 1]}>" if part == "*" else part for i, part in enumerate(parts))
            setattr(target, rest[0] if rest else holder, value)
    return full, method, request


@pytest.fixture(scope="module")
def ids(channel: grpc.Channel) -> dict[str, str]:
    """The ids of one resource of each kind, by the placeholder that `requests` has for it."""
    jobs, models = client(channel, "job_service"), client(channel, "model_service")
    boards, metadata = client(channel, "tensorboard_service"), client(channel, "metadata_service")
    from google.cloud.aiplatform_v1 import CustomJob

    sent = CustomJob.from_json(json.dumps({"displayName": "x", "jobSpec": job(pool("pass"))}))
    made = {"customJobs": jobs.create_custom_job(parent=PARENT, custom_job=sent).name}
    while not jobs.get_custom_job(name=made["customJobs"]).end_time:
        pass
    vizier = client(channel, "vizier_service")
    made["studies"] = vizier.create_study(parent=PARENT, study={"display_name": "x", "study_spec": STUDY}).name
    vizier.suggest_trials(request={"parent": made["studies"], "suggestion_count": 1, "client_id": "x"}).result(
        timeout=60
    )
    made["models"] = models.upload_model(parent=PARENT, model={"display_name": "x"}).result(timeout=60).model
    board = boards.create_tensorboard(parent=PARENT, tensorboard={"display_name": "x"}).result(timeout=60).name
    boards.create_tensorboard_experiment(parent=board, tensorboard_experiment_id="e", tensorboard_experiment={})
    boards.create_tensorboard_run(
        parent=f"{board}/experiments/e", tensorboard_run_id="r", tensorboard_run={"display_name": "x"}
    )
    series = {"display_name": "x", "value_type": "SCALAR"}
    run = f"{board}/experiments/e/runs/r"
    made["timeSeries"] = boards.create_tensorboard_time_series(parent=run, tensorboard_time_series=series).name
    store = metadata.create_metadata_store(parent=PARENT, metadata_store_id="default").result(timeout=60).name
    metadata.create_context(parent=store, context_id="c", context={"display_name": "x"})
    metadata.create_execution(parent=store, execution_id="e", execution={"display_name": "x"})
    known = {kind: name.rpartition("/")[2] for kind, name in {**made, "tensorboards": board}.items()}
    named = {"projects": "my-project", "locations": "us-central1", "metadataStores": "default", "contexts": "c"}
    return {**known, **named, "experiments": "e", "runs": "r", "executions": "e", "trials": "1"}


SEEN: set[str] = set()


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests())
def test_both_ways_give_the_same(
    here: server.RunningServer, channel: grpc.Channel, ids: dict[str, str], asked: tuple[str, str, Any]
) -> None:
    """A request over gRPC and the same over REST have the same answer, or the same error with the same message."""
    service, method, request = asked
    text = re.sub(r"<(\w+)>", lambda found: ids.get(found[1], "1"), json.dumps(messages.from_message(request)))
    request = messages.to_message(request.DESCRIPTOR.full_name, json.loads(text))
    binding = methods.of_service(service)[method][0]
    answer = messages.pool().FindServiceByName(service).methods_by_name[method].output_type.full_name
    call = channel.unary_unary(f"/{service}/{method}", request_serializer=lambda one: one.SerializeToString())
    try:
        path, body = binding.rest(messages.from_message(request))
    except ValueError as error:
        with pytest.raises(grpc.RpcError) as refused:
            call(request, timeout=60)
        assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return
    rest = httpx.request(binding.http, f"{here.url}/vertex{path}", json=body, timeout=60)
    assert rest.status_code < 500 or rest.status_code == 501, (path, body, rest.text)
    try:
        over = messages.from_message(messages.message_class(answer).FromString(call(request, timeout=60)))
    except grpc.RpcError as error:
        assert rest.status_code >= 400, (path, body, error.details())
        problem = rest.json()["error"]
        assert (error.code().name, new(error.details())) == (problem["status"], new(problem["message"]))
    else:
        SEEN.add(method)
        assert rest.status_code == 200, (path, body, rest.text, over)
        assert new(json.dumps(over, sort_keys=True)) == new(json.dumps(messages.from_message(
            convert.to_answer(answer, rest.json())), sort_keys=True))  # fmt: skip


def test_the_contract_reached_answers() -> None:
    """Of the methods of the property above, many were answered and not only refused."""
    assert len(SEEN) >= 8, SEEN


def new(text: str) -> str:
    """A text without the ids and times that differ between two calls."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    return re.sub(r"(?<=/)\d{10,}", "ID", text)


def test_v1beta1_messages_fit_v1s_classes() -> None:
    """In every message of the services served, v1beta1 has v1's field numbers with the same names and types.

    What one of the two lacks is a known short list: those fields are not read from the clients of v1beta1.
    """
    from google.cloud import aiplatform_v1, aiplatform_v1beta1  # noqa: F401 - put their messages into the default pool
    from google.protobuf import descriptor_pool

    default = descriptor_pool.Default()
    seen: set[str] = set()
    lacking: set[str] = set()

    def form(field: Any) -> tuple[Any, ...]:
        kind = field.message_type or field.enum_type
        return field.name, field.type, field.is_repeated, kind.full_name.replace("v1beta1", "v1") if kind else ""

    def compare(stable: Any) -> None:
        if stable.full_name in seen or not stable.full_name.startswith("google.cloud.aiplatform.v1."):
            return
        seen.add(stable.full_name)
        try:
            beta = default.FindMessageTypeByName(stable.full_name.replace(".v1.", ".v1beta1."))
        except KeyError:
            lacking.add(stable.name)
            return
        for number in {*stable.fields_by_number, *beta.fields_by_number}:
            ours, theirs = stable.fields_by_number.get(number), beta.fields_by_number.get(number)
            if ours is None or theirs is None:
                lacking.add(f"{stable.name}.{(ours or theirs).name}")
            else:
                assert form(ours) == form(theirs), stable.full_name
            if ours is not None and ours.message_type is not None:
                compare(ours.message_type)

    for service in {name.partition(".")[0] for name in CONTRACT}:
        for method in messages.pool().FindServiceByName(f"google.cloud.aiplatform.v1.{service}").methods:
            if f"{service}.{method.name}" in CONTRACT:
                compare(default.FindMessageTypeByName(method.input_type.full_name))
    assert len(seen) > 100
    assert lacking <= {
        "MachineSpec.multihost_gpu_node_count", "MachineSpec.min_gpu_driver_version", "StudySpec.convex_stop_config",
        "StudySpec.transfer_learning_config", "Examples.gcs_source", "Model.pipeline_job", "Model.data_stats", "DataStats",
        "ListModelsRequest.order_by", "RaySpec.nfs_mounts", "PersistentResource.satisfies_pzs",
        "PersistentResource.satisfies_pzi", "ResourceRuntime.notebook_runtime_template",
    }  # fmt: skip
