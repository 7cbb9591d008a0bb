"""The same call over gRPC and over REST has the same answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localvertex import bindings, server
from localvertex.front import rpc_convert as convert
from tests.support.jobkit import job, pool
from tests.support.rpckit import PARENT, STUDY, client, serving
from tests.support.tools import examples
from tests.support.web import http
from vertexrig.spec import messages


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    """A server with gRPC that the tests of this module share."""
    with serving(tmp_path_factory.mktemp("rpc")) as running:
        yield running


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
    binding = bindings.of_service(full)[method][0]
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


@pytest.mark.whole
def test_both_ways_give_the_same(here: server.RunningServer, channel: grpc.Channel, ids: dict[str, str]) -> None:
    """A request over gRPC and the same over REST have the same answer, or the same error with the same message.

    Many methods are answered and not only refused.
    """
    answered: set[str] = set()

    @settings(max_examples=examples(100, 200), suppress_health_check=list(HealthCheck))
    @given(requests())
    def compared(asked: tuple[str, str, Any]) -> None:
        if compare(here, channel, ids, *asked):
            answered.add(asked[1])

    compared()
    assert len(answered) >= 8, answered


def compare(
    here: server.RunningServer, channel: grpc.Channel, ids: dict[str, str], service: str, method: str, request: Any
) -> bool:
    """Whether a request is answered and not refused, after its answers or errors over both ways are compared."""
    text = re.sub(r"<(\w+)>", lambda found: ids.get(found[1], "1"), json.dumps(messages.from_message(request)))
    request = messages.to_message(request.DESCRIPTOR.full_name, json.loads(text))
    binding = bindings.of_service(service)[method][0]
    answer = messages.pool().FindServiceByName(service).methods_by_name[method].output_type.full_name
    call = channel.unary_unary(f"/{service}/{method}", request_serializer=lambda one: one.SerializeToString())
    try:
        path, body = binding.rest(messages.from_message(request))
    except ValueError as error:
        with pytest.raises(grpc.RpcError) as refused:
            call(request, timeout=60)
        assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return False
    rest = http.request(binding.http, f"{here.url}/vertex{path}", json=body, timeout=60)
    # A lookup of a study that is not there answers 500, as the service does.
    assert rest.status_code < 500 or "LookupStudyRequest" in rest.text, (path, body, rest.text)
    try:
        over = messages.from_message(messages.message_class(answer).FromString(call(request, timeout=60)))
    except grpc.RpcError as error:
        assert rest.status_code >= 400, (path, body, error.details())
        problem = rest.json()["error"]
        assert (error.code().name, new(error.details())) == (problem["status"], new(problem["message"]))
        return False
    assert rest.status_code == 200, (path, body, rest.text, over)
    assert new(json.dumps(over, sort_keys=True)) == new(json.dumps(messages.from_message(
        convert.to_answer(answer, rest.json())), sort_keys=True))  # fmt: skip
    return True


def new(text: str) -> str:
    """A text without the ids, times and etags that differ between two calls."""
    text = re.sub(r'AMEw9y[\w-]+=|(?<="etag": ")\d{13}', "ETAG", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    return re.sub(r"(?<=/)(\d{10,}(__\d+)?|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})", "ID", text)


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
