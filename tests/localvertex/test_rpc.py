"""gRPC beside REST: jobs, errors, limits, and who is answered."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from google.api_core import exceptions
from google.protobuf.wrappers_pb2 import StringValue

from localvertex import bindings, server
from localvertex.jobs.settings import Settings
from localvertex.services.jobs import EMPTY_LISTS
from tests.support.jobkit import job, pool
from tests.support.rpckit import PARENT, client, serving
from vertexrig import guard
from vertexrig.spec.api_names import snake


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    """A server with gRPC that the tests of this module share."""
    with serving(tmp_path_factory.mktemp("rpc")) as running:
        yield running


def test_a_job_over_grpc(channel: grpc.Channel) -> None:
    """A job is made, listed, cancelled and deleted by an operation that is listed, by the client of v1beta1."""
    from google.cloud import aiplatform_v1beta1 as types

    jobs = client(channel, "job_service", "aiplatform_v1beta1")
    sent = {"displayName": "over-grpc", "jobSpec": job(pool("import time; time.sleep(600)"))}
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
    assert kept.done and kept.metadata.type_url.endswith(".v1beta1.DeleteOperationMetadata")
    assert kept in list(jobs.transport.operations_client.list_operations(PARENT, ""))
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
    many = {"display_name": "x", "job_spec": {"worker_pool_specs": [{}] * 250_000}}
    with pytest.raises(exceptions.InvalidArgument, match="more than 200,000 values"):
        jobs.create_custom_job(parent=PARENT, custom_job=many)
    with pytest.raises(exceptions.InvalidArgument, match="name is 'x/y', not projects"):
        jobs.get_custom_job(name="x/y")
    with pytest.raises(exceptions.PermissionDenied, match="resource project My First Project") as named:
        jobs.list_custom_jobs(parent="projects/My First Project/locations/us-central1")
    assert named.value.reason == "CONSUMER_INVALID"


@pytest.mark.parametrize("ask", [
    ("job_service", "get_nas_job", {"name": f"{PARENT}/nasJobs/1"}, "JobService/GetNasJob"),
    ("endpoint_service", "get_endpoint", {"name": f"{PARENT}/endpoints/1"}, "EndpointService/GetEndpoint"),
    ("model_service", "get_model_evaluation_slice", {"name": f"{PARENT}/models/1/evaluations/2/slices/3"}, "ModelService/GetModelEvaluationSlice"),
])  # fmt: skip
def test_what_is_not_served_is_named(
    here: server.RunningServer, channel: grpc.Channel, rest: httpx.Client, ask: Any, caplog: Any
) -> None:
    """A method that is not served is UNIMPLEMENTED and 405 with its name, one line of the log has it, and it is noted once."""
    service, method, request, name = ask
    with pytest.raises(exceptions.MethodNotImplemented, match=name):
        getattr(client(channel, service), method)(request=request)
    assert [record.getMessage() for record in caplog.records if name in record.getMessage()] != []
    assert server.call(here, "GET", "/v1/made")["noted"][f"not served: google.cloud.aiplatform.v1.{name}"] == 1
    (path,) = request.values()
    answer = rest.get(f"/{path}")
    assert answer.status_code == 405 and answer.json()["error"]["status"] == "UNIMPLEMENTED"
    assert name in answer.json()["error"]["message"]


def test_the_layout_of_a_bucket(here: server.RunningServer, channel: grpc.Channel) -> None:
    """A bucket has a storage layout, which gcsfs asks for before it reads; a bucket that is not here has none."""
    path = "/google.storage.control.v2.StorageControl/GetStorageLayout"
    ask = channel.unary_unary(path, request_serializer=StringValue.SerializeToString, response_deserializer=bytes)
    httpx.post(f"{here.url}/storage/v1/b?project=p", json={"name": "laid-out"}).raise_for_status()
    name = "projects/_/buckets/laid-out/storageLayout"
    assert StringValue.FromString(ask(StringValue(value=name))).value == name
    for wrong in ("projects/_/buckets/not-here/storageLayout", "projects/_/buckets/", "x"):
        with pytest.raises(grpc.RpcError) as refused:
            ask(StringValue(value=wrong), timeout=10)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_mask_with_capitals(channel: grpc.Channel) -> None:
    """A mask that JSON's form of masks cannot have gets the service's own answer; so does one in the fields' own names."""
    scheduler = client(channel, "cloud_scheduler", "scheduler_v1")
    job = {"schedule": "* * * * *", "time_zone": "UTC", "http_target": {"uri": "https://example.com/"}}
    made = scheduler.create_job(parent=PARENT, job={**job, "name": f"{PARENT}/jobs/masked"})
    for paths, words in (
        (["Schedule", "TimeZone"], "Invalid mask for Job: Schedule,TimeZone"),
        (["foo"], "Invalid mask for Job: foo"),
    ):
        with pytest.raises(exceptions.InvalidArgument, match=words):
            scheduler.update_job(job=made, update_mask={"paths": paths})
    made.description = "d"
    assert scheduler.update_job(job=made, update_mask={"paths": ["description"]}).description == "d"


def test_a_service_nobody_knows(channel: grpc.Channel) -> None:
    """A service that is not in any table is UNIMPLEMENTED too, whatever the bytes are."""
    for path in ("/no.such.Service/Do", "/google.storage.v2.Storage/GetObject", "/x"):
        call = channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
        with pytest.raises(grpc.RpcError) as refused:
            call(b"\xff\xff\xff", timeout=10)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_deadline_ends_a_call(channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call whose deadline is over is ended, at the server too, and the next one is answered."""
    from localvertex.front import rpc

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
        patch.setattr(rpc, "call_rest", never)
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
        (b"\x0a" * (11 << 20), grpc.StatusCode.INVALID_ARGUMENT),
        (b"\x0a" * (21 << 20), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ):
        with pytest.raises(grpc.RpcError) as refused:
            call(sent, timeout=20)
        assert refused.value.code() is code
        limit = "Request payload size exceeds the limit: 10485760 bytes."
        assert (refused.value.details() == limit) == (len(sent) == 11 << 20)
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


def test_another_users_connection_is_refused(channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard is asked for each call with the client's end of its connection."""
    asked: list[Any] = []

    def refuse(client: Any, server: Any) -> str:
        asked.append((client, server))
        return "not you"

    monkeypatch.setattr(guard, "user_refusal", refuse)
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


def test_of_a_list_that_is_always_empty_the_parent_is_read() -> None:
    """Where such a list has no messages here, its parent is the first field of its request, as it is of the one that is read in its place."""
    from google.cloud import aiplatform_v1

    for name in ("ListOptimalTrials", *(one for names in EMPTY_LISTS.values() for one in names)):
        fields = getattr(aiplatform_v1, f"{name}Request").pb().DESCRIPTOR.fields_by_number
        assert (fields[1].name, fields[1].type) == ("parent", fields[1].TYPE_STRING)


@pytest.mark.parametrize("service", sorted(EMPTY_LISTS))
def test_lists_of_what_is_never_made_are_empty(channel: grpc.Channel, here: server.RunningServer, service: str) -> None:
    """Every such list is empty over gRPC and REST, with whatever filter, order and mask, so that a program that cleans up can go on."""
    from google.cloud import aiplatform_v1

    name = snake(service.rpartition(".")[2]).lower()
    for method in EMPTY_LISTS[service]:
        kind = getattr(aiplatform_v1, f"{method}Request")
        request = kind(parent=PARENT, page_size=3)
        for field, value in (
            ("filter", 'display_name="a"'),
            ("order_by", "create_time desc"),
            ("read_mask", {"paths": ["name"]}),
        ):
            if field in kind.pb().DESCRIPTOR.fields_by_name:
                setattr(request, field, value)
        assert list(getattr(client(channel, name), snake(method).lower())(request=request)) == []
        (binding,) = bindings.of_service(service)[method]
        path, _ = binding.rest({"parent": PARENT, "pageSize": 3})
        answer = httpx.get(f"{here.url}/vertex{path}")
        assert (answer.status_code, answer.json()) == (200, {})
