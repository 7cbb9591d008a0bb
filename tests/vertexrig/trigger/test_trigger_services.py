"""The trigger with services that fail or are slow: the right answer, a retry that is safe, and in the end one job."""

from __future__ import annotations

import json
import time
import uuid
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localvertex import server
from tests.support import clouds, services
from tests.support.services import Fault
from tests.vertexrig.trigger.test_trigger import make, post
from vertexrig.cloud import rest
from vertexrig.cloud.storage import Storage, StoredObject
from vertexrig.cloud.vertex import Vertex
from vertexrig.submit.claims import Claims
from vertexrig.trigger import answers
from vertexrig.trigger.answers import Reply
from vertexrig.trigger.app import Trigger

READ_S, LEASE_S = 0.5, 3.0


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of half a second in place of half a minute."""
    for name, value in (
        ("CONNECT_S", READ_S),
        ("READ_S", READ_S),
        ("ANSWER_S", READ_S),
        ("REPEAT_WITHIN_S", 1.5 * READ_S),
    ):
        monkeypatch.setattr(rest, name, value)


def through(here: server.RunningServer, folder: Path, vertex: str, storage: str) -> Trigger:
    """A trigger that reaches the two services at these URLs."""
    bucket = Storage(clouds.BUCKET, url=storage)
    api = Vertex("my-project", "us-central1", url=f"{vertex}{server.AIPLATFORM}")
    return make(here, folder, vertex=api, storage=bucket, claims=Claims(bucket, lease_s=LEASE_S, wait_s=1))


class LaterStorage(Storage):
    """The bucket as whoever comes some seconds later sees it: leases and windows are over without a wait.

    Args:
        uri: As of Storage.
        later_s: So many seconds later.
        url: As of Storage.
    """

    def __init__(self, uri: str, later_s: float, *, url: str) -> None:
        super().__init__(uri, url=url)
        self.later_s = later_s

    def read_aged(self, name: str) -> StoredObject | None:
        found = super().read_aged(name)
        return found and replace(found, age_s=found.age_s + self.later_s)


def creates(method: str, path: str) -> bool:
    return method == "POST" and "customJobs" in path


def claims(method: str, path: str) -> bool:
    return method == "POST" and "claims" in path and "ifGenerationMatch=0" in path


def records(method: str, path: str) -> bool:
    return method == "POST" and "claims" in path and not claims(method, path)


def reads(method: str, path: str) -> bool:
    return method == "GET" and "packages" in path


def once(when: services.When) -> services.When:
    """The first of the calls that `when` means."""
    calls: list[str] = []

    def first(method: str, path: str) -> bool:
        return when(method, path) and not calls and not calls.append(path)  # type: ignore[func-returns-value]

    return first


LATE, LOST, DRIPS = Fault(wait=2 * READ_S), Fault(hold=2 * READ_S), Fault(drip=READ_S / 10)
REFUSAL = b'{"error": {"message": "secret-internals"}}'

# what is wrong, the service, where, and the status of the first answer; after it all is well again
TABLE: list[tuple[str, str, Any, Fault, int]] = [
    ("the create is taken after we gave up on it", "vertex", creates, LATE, 503),
    ("the create is taken and never answered", "vertex", creates, LOST, 201),
    ("the create's answer drips", "vertex", creates, DRIPS, 201),
    ("everything at Vertex AI hangs", "vertex", lambda *_: True, LATE, 503),
    ("a claim is taken after we gave up on it", "storage", once(claims), LATE, 201),
    ("a claim is taken and not answered", "storage", once(claims), LOST, 201),
    ("no claim is ever answered", "storage", claims, LOST, 503),
    ("the record is taken and never answered", "storage", records, LOST, 201),
    ("the package cannot be read in time", "storage", reads, LATE, 503),
    ("the package's record drips", "storage", reads, DRIPS, 503),
    ("everything at Cloud Storage hangs", "storage", lambda *_: True, LATE, 503),
    *((f"{one} answers {status}", one, lambda *_: True, Fault(status, REFUSAL), ours)
      for one in ("vertex", "storage")
      for status, ours in ((429, 429), (503, 503), (403, 502))),
    ("vertex answers 400", "vertex", creates, Fault(400, REFUSAL), 400),
    ("storage answers with nothing", "storage", lambda *_: True, Fault(0), 503),
    ("storage answers with HTML", "storage", lambda *_: True, Fault(502, b"<html>"), 503),
    ("vertex answers with garbage", "vertex", creates, Fault(200, b"garbage"), 503),
]  # fmt: skip


@pytest.mark.parametrize(("what", "where", "when", "fault", "status"), TABLE, ids=[row[0] for row in TABLE])
def test_one_job_in_the_end(here: server.RunningServer, tmp_path: Path, what: str, where: str, when: Any, fault: Fault, status: int) -> None:  # fmt: skip
    """The first answer has its status, with Retry-After where trying again helps, and nothing of the service's own words
    unless they are about the job; once the service is well, the same request gets its job, and there is one.
    """
    request = uuid.uuid4().hex  # the server keeps what an earlier try of this test began
    note = f"{what} {request}"
    body = {"run": "cpu", "args": {"note": note}, "request_id": request}
    with ExitStack() as stack:
        url = stack.enter_context(services.faulty(fault, target=here.url, when=when, settled=True))
        sick = through(here, tmp_path, *((url, here.url) if where == "vertex" else (here.url, url)))
        first = post(sick, body)
    assert first.status == status, first.body
    assert ("Retry-After" in first.headers) == (status in (429, 503))
    assert ("secret-internals" in json.dumps(first.body)) == (status == 400)
    well = make(here, tmp_path, storage=LaterStorage(clouds.BUCKET, 2 * LEASE_S, url=here.url))
    last = until_done(well, body)
    assert post(well, body).body["name"] == last.body["name"]
    assert sum(f"--note={note}" in json.dumps(job.data) for job in clouds.jobs(here)) == 1


def test_a_status_of_a_service_is_one_of_ours() -> None:
    """Where trying again may help ours says so; what is wrong with the trigger itself is no fault of the caller's."""
    ours = {None: 503, 400: 400, 401: 502, 403: 502, 404: 502, 429: 429, 500: 503, 502: 503, 503: 503, 504: 503}
    assert {status: answers.explained(rest.RestError("no", status=status)).status for status in ours} == ours


def until_done(trigger: Trigger, body: Any) -> Reply:
    """Deliver again and again, as Cloud Scheduler does, until the answer is below 300."""
    until = time.monotonic() + 20
    while (reply := post(trigger, body)).status >= 300:
        assert reply.status == 503 and time.monotonic() < until, reply.body
        time.sleep(0.3)
    return reply


def test_an_answer_that_drips_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is given up when it is not whole in time, however steadily its bytes come, and when it is too long."""
    with services.faulty(Fault(200, b"x" * 200, drip=READ_S / 10)) as url, pytest.raises(rest.RestError) as slow:
        rest.Rest(url, "a service").call("POST", "/")
    assert "not whole" in str(slow.value) and slow.value.outcome_unknown
    monkeypatch.setattr(rest, "LONGEST_ANSWER", 99)
    with services.faulty(Fault(200, b"x" * 200)) as url, pytest.raises(rest.RestError, match="longer than"):
        rest.Rest(url, "a service").call("POST", "/")
