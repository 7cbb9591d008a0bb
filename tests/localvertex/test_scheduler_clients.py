"""The real gcloud and google-cloud-scheduler against the local Cloud Scheduler, and nonsense against its endpoints."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from localvertex.http import mount
from localvertex.jobs.store import ResourceStore
from localvertex.services.scheduler_api import SchedulerApi
from localvertex.services.scheduler_engine import SchedulerEngine
from tests.support.junk import JSON
from tests.support.tools import examples
from tests.support.web import http
from vertexrig.guard import LoopbackGuard

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, serving: Any
) -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """A scheduler, and a target at /hook that records its requests."""
    seen: list[tuple[dict[str, str], bytes]] = []
    engine = SchedulerEngine(ResourceStore(tmp_path_factory.mktemp("root")))

    async def hook(request: Request) -> Response:
        seen.append((dict(request.headers), await request.body()))
        return Response()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> Any:
        async with engine.running():
            yield

    app = Starlette(
        routes=[mount("/scheduler", SchedulerApi(engine).table()), Route("/hook", hook, methods=["POST"])],
        lifespan=lifespan,
    )
    with serving(LoopbackGuard(app)) as url:
        yield url, seen


def wait_for(seen: list[tuple[dict[str, str], bytes]], name: str) -> tuple[dict[str, str], bytes]:
    for _ in range(1000):
        for headers, body in list(seen):
            if headers.get("x-cloudscheduler-jobname") == name:
                return headers, body
        time.sleep(0.02)
    raise AssertionError("the job did not fire")


@pytest.mark.whole
def test_gcloud_scheduler(gcloud: Command, server: tuple[str, list[tuple[dict[str, str], bytes]]]) -> None:
    """Gcloud scheduler creates, runs, updates, pauses, describes, resumes, lists and deletes a job, and it fires."""
    url, seen = server
    where = "--location=us-central1"
    gcloud(
        *("scheduler", "jobs", "create", "http", "weekly", where, "--schedule=0 3 * * 1", "--time-zone=Europe/Berlin"),
        *(f"--uri={url}/hook", "--http-method=post", "--headers=Content-Type=application/json"),
        *('--message-body={"run": "sweep"}', "--oidc-service-account-email=a@my-project.iam.gserviceaccount.com"),
        *("--attempt-deadline=540s", "--max-retry-attempts=3", "--min-backoff=30s"),
        url=url,
    )
    gcloud("scheduler", "jobs", "run", "weekly", where, url=url)
    headers, body = wait_for(seen, "weekly")
    assert body == b'{"run": "sweep"}' and headers["content-type"] == "application/json"
    changes = ("--schedule=*/5 * * * *", "--update-headers=X-A=b")
    gcloud("scheduler", "jobs", "update", "http", "weekly", where, *changes, url=url)
    gcloud("scheduler", "jobs", "pause", "weekly", where, url=url)
    job = json.loads(gcloud("scheduler", "jobs", "describe", "weekly", where, "--format=json", url=url).stdout)
    assert job["retryConfig"]["retryCount"] == 3 and job["timeZone"] == "Europe/Berlin"
    assert job["schedule"] == "*/5 * * * *" and job["httpTarget"]["headers"]["X-A"] == "b" and job["state"] == "PAUSED"
    gcloud("scheduler", "jobs", "resume", "weekly", where, url=url)
    assert "ENABLED" in gcloud("scheduler", "jobs", "list", where, url=url).stdout
    gcloud("scheduler", "jobs", "delete", "weekly", where, url=url)
    assert "weekly" not in gcloud("scheduler", "jobs", "list", where, url=url).stdout
    assert "us-central1" in gcloud("scheduler", "locations", "list", url=url).stdout


def test_google_cloud_scheduler(server: tuple[str, list[tuple[dict[str, str], bytes]]]) -> None:
    """google-cloud-scheduler over REST creates, gets, lists by name, updates, pauses, resumes, runs and deletes a job."""
    from google.api_core.client_options import ClientOptions
    from google.api_core.exceptions import BadRequest, NotFound
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import scheduler_v1
    from google.protobuf import field_mask_pb2

    url, seen = server
    client = scheduler_v1.CloudSchedulerClient(
        transport="rest",
        credentials=AnonymousCredentials(),
        client_options=ClientOptions(api_endpoint=f"{url}/scheduler"),
    )
    parent = "projects/my-project/locations/europe-west4"
    name = f"{parent}/jobs/sdk"
    http = scheduler_v1.HttpTarget(uri=f"{url}/hook", http_method=scheduler_v1.HttpMethod.POST, body=b"\x00\xffraw")
    job = scheduler_v1.Job(name=name, schedule="0 0 1 1 *", time_zone="UTC", http_target=http)
    made: Any = client.create_job(parent=parent, job=job)
    assert made.state == scheduler_v1.Job.State.ENABLED and made.http_target.body == b"\x00\xffraw"
    kept: Any = client.get_job(name=name)
    assert kept.user_update_time == made.user_update_time and made.user_update_time.microsecond
    assert kept.schedule_time == made.schedule_time and made.schedule_time.microsecond == 0 and made.status.code == -1
    assert made.http_target.headers["Content-Type"] == "application/octet-stream"
    with pytest.raises(BadRequest, match="The provided schedule or timezone are invalid."):
        client.create_job(
            parent=parent, job=scheduler_v1.Job(name=f"{parent}/jobs/x", schedule="nope", http_target=http)
        )
    other = scheduler_v1.Job(name=f"{parent}/jobs/that", schedule="0 0 1 1 *", http_target=http)
    client.create_job(parent=parent, job=other)
    assert [found.name for found in client.list_jobs(parent=parent)] == [name, other.name]
    changed = scheduler_v1.Job(name=name, description="new")
    client.update_job(job=changed, update_mask=field_mask_pb2.FieldMask(paths=["description"]))
    assert client.get_job(name=name).description == "new" and client.get_job(name=name).schedule == "0 0 1 1 *"
    paused = client.pause_job(name=name)
    assert paused.state == scheduler_v1.Job.State.PAUSED and paused.user_update_time > made.user_update_time
    client.resume_job(name=name)
    client.run_job(name=name)
    assert wait_for(seen, "sdk")[1] == b"\x00\xffraw"
    client.delete_job(name=name)
    with pytest.raises(NotFound):
        client.get_job(name=name)


FIELDS = [
    "name",
    "schedule",
    "timeZone",
    "httpTarget",
    "retryConfig",
    "attemptDeadline",
    "description",
    "http_target",
    "x",
]
TARGET = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("uri", "httpMethod", "headers", "body", "oidcToken", "oauthToken"), JSON)
)


@settings(max_examples=examples(40, 500))
@given(
    method=st.sampled_from(["GET", "POST", "PATCH", "DELETE", "PUT"]),
    path=st.sampled_from(["jobs", "jobs/x", "jobs/x:run", "jobs/x:pause", "jobs/%2F", "", "jobs/x:nope", "jobs/%ff"]),
    body=st.binary(max_size=30)
    | JSON
    | st.dictionaries(st.sampled_from(FIELDS), JSON | TARGET, max_size=5)
    | TARGET.map(lambda target: {"schedule": "0 0 1 1 *", "httpTarget": {"uri": "http://127.0.0.1:1/", **target}}),
    query=st.dictionaries(st.sampled_from(["updateMask", "pageSize", "pageToken"]), st.text(max_size=10), max_size=2),
)
def test_nonsense_is_never_a_500(
    server: tuple[str, Any], method: str, path: str, body: Any, query: dict[str, str]
) -> None:
    """Any method, path, body and query get an answer below 500; errors are in Google's format, a path of no method is a page."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    url = f"{server[0]}/scheduler/v1/projects/p/locations/fuzz/{path}"
    answer = http.request(method, url, content=content, params=query, timeout=20)
    assert answer.status_code < 500, answer.text
    if answer.status_code == 404 and answer.headers["content-type"].startswith("text/html"):
        assert "<title>Error 404 (Not Found)!!1</title>" in answer.text
    elif answer.status_code >= 400:
        assert answer.json()["error"].keys() >= {"code", "message", "status"}
