"""The firing engine against a real HTTP target, with a clock that the test moves."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from localvertex.jobs.resources import SCHEDULES
from localvertex.jobs.store import ResourceStore
from localvertex.services import scheduler_delivery as delivery
from localvertex.services import scheduler_engine as engines
from localvertex.services import scheduler_log
from localvertex.services.scheduler_delivery import DeliveryOutcome
from localvertex.services.scheduler_engine import SchedulerEngine
from localvertex.services.scheduler_jobs import DEFAULT_RETRY

PARENT = "projects/p/locations/l"
NAME = f"{PARENT}/jobs/tick"
START = datetime(2026, 11, 20, 12, 0, 30, tzinfo=timezone.utc)


class FakeClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = START
        self.waiters: set[asyncio.Event] = set()

    def now(self) -> datetime:
        return self.time

    async def wait(self, event: asyncio.Event, until: datetime | None) -> None:
        moved = asyncio.Event()
        self.waiters.add(moved)
        tasks = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(moved.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.waiters.discard(moved)
            for task in tasks:
                task.cancel()

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
        for waiter in self.waiters:
            waiter.set()


@dataclass
class Target:
    """An HTTP server that records what it is sent and answers as told."""

    url: str = ""
    seen: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    open: int = 0
    most_open: int = 0
    hold: bool = False

    async def handle(self, request: Request) -> Response:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            self.seen.append((request.method, dict(request.headers), await request.body()))
            while self.hold:
                await asyncio.sleep(0.01)
        finally:
            self.open -= 1
        return Response(status_code=self.answers.pop(0) if self.answers else 200)


@pytest.fixture
def target(serving: Any) -> Iterator[Target]:
    target = Target()

    async def away(request: Request) -> Response:
        return RedirectResponse("http://example.com/")

    methods = ["GET", "POST", "PUT", "DELETE", "PATCH"]
    app = Starlette(routes=[Route("/away", away, methods=methods), Route("/", target.handle, methods=methods)])
    with serving(app) as url:
        target.url = url
        yield target
        target.hold = False


async def until(condition: Callable[[], object]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to pass")


async def calm() -> None:
    """Give the engine time to do what it should not do."""
    await asyncio.sleep(0.15)


def job(target: Target, **more: Any) -> dict[str, Any]:
    http = {"uri": target.url + "/", "httpMethod": "POST", **more.pop("http", {})}
    retry = {**DEFAULT_RETRY, **more.pop("retry", {})}
    fields = {"schedule": "* * * * *", "timeZone": "Etc/UTC", "attemptDeadline": "20s", **more}
    return {"name": NAME, "httpTarget": http, "retryConfig": retry, **fields, "state": "ENABLED"}


@pytest.fixture(autouse=True)
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[DeliveryOutcome]:
    """What came of each request that the engine made, in their order."""
    ended: list[DeliveryOutcome] = []

    async def deliver(*args: Any) -> DeliveryOutcome:
        ended.append(await delivery.deliver(*args))
        return ended[-1]

    monkeypatch.setattr(engines, "deliver", deliver)
    return ended


def drive(root: Path, scenario: Callable[[SchedulerEngine, FakeClock], Any], **options: Any) -> ResourceStore:
    """Run a scenario inside a running engine with a fake clock."""
    store = ResourceStore(root)

    async def main() -> None:
        clock = FakeClock()
        engine = SchedulerEngine(store, clock=clock, **options)
        async with engine.running():
            await scenario(engine, clock)

    asyncio.run(asyncio.wait_for(main(), timeout=60))
    return store


def add(engine: SchedulerEngine, stored: dict[str, Any]) -> None:
    engine.store.add(SCHEDULES, PARENT, NAME, stored)
    engine.plan(stored)


def test_it_fires_with_the_documented_headers(tmp_path: Path, target: Target, attempts: list[DeliveryOutcome]) -> None:
    """At its time a job sends its body and headers, Cloud Scheduler's own headers and no others, and a marked stand-in token.

    The schedule time is on the clock of Los Angeles, whatever the job's time zone.
    """
    http = {
        "body": base64.b64encode(b'{"run": "sweep"}').decode(),
        "headers": {
            "Content-Type": "application/json",
            "User-Agent": "mine",
            "X-Mine": "1",
            "accept": "text/plain",
            "X-CloudScheduler": "no",
        },
        "oidcToken": {"serviceAccountEmail": "invoker@p.iam.gserviceaccount.com", "audience": "https://aud"},
    }

    async def scenario(engine: SchedulerEngine, clock: FakeClock) -> None:
        add(engine, job(target, http=http, timeZone="Asia/Tokyo"))
        await calm()
        assert not target.seen and engine.store.get(NAME).body["scheduleTime"] == "2026-11-20T12:01:00Z"  # type: ignore[union-attr]
        clock.advance(30)
        await until(lambda: attempts)

    store = drive(tmp_path, scenario)
    (method, headers, body), *rest = target.seen
    assert not rest and method == "POST" and body == b'{"run": "sweep"}'
    assert headers["x-cloudscheduler"] == "true" and headers["x-cloudscheduler-jobname"] == "tick"
    assert headers["x-cloudscheduler-scheduletime"] == "2026-11-20T04:01:00-08:00"
    assert headers["user-agent"] == "Google-Cloud-Scheduler" and headers["content-type"] == "application/json"
    assert headers["x-mine"] == "1" and headers["accept"] == "text/plain"
    assert headers["accept-encoding"] == "gzip, deflate, br"
    own = {f"x-cloudscheduler{part}" for part in ("", "-jobname", "-scheduletime")}
    usual = {"host", "accept-encoding", "content-length", "content-type", "user-agent", "authorization"}
    assert headers.keys() == {*usual, *own, "x-mine", "accept"}
    token = headers["authorization"].removeprefix("Bearer ")
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "==="))
    assert claims["email"] == "invoker@p.iam.gserviceaccount.com" and claims["aud"] == "https://aud"
    assert token.endswith("local-vertex-stand-in") and claims["iss"].endswith(".invalid")
    runtime = store.get(NAME).body  # type: ignore[union-attr]
    assert runtime["status"] == {} and runtime["lastAttemptTime"] == "2026-11-20T12:01:00Z"
    assert runtime["scheduleTime"] == "2026-11-20T12:02:00.000001Z"


def test_each_attempt_has_its_entries_in_the_log(
    tmp_path: Path, target: Target, attempts: list[DeliveryOutcome]
) -> None:
    """An attempt that begins, one that failed and one that went well are logged as Cloud Scheduler logs them."""
    target.answers = [503]
    entries: list[dict[str, Any]] = []

    async def scenario(engine: SchedulerEngine, clock: FakeClock) -> None:
        add(engine, job(target, schedule="0 * * * *", retry={"retryCount": 1, "minBackoffDuration": "10s"}))
        clock.advance(3570)
        await until(lambda: len(attempts) == 1)
        clock.advance(15)
        await until(lambda: len(entries) == 4)

    drive(tmp_path, scenario, log=entries.append)
    project, _, location = PARENT.split("/")[1:4]
    labels = {"job_id": "tick", "location": location, "project_id": project}
    assert all(one["resource"] == {"type": "cloud_scheduler_job", "labels": labels} for one in entries)
    assert {one["logName"] for one in entries} == {
        f"projects/{project}/logs/cloudscheduler.googleapis.com%2Fexecutions"
    }
    started, failed, _, done = (one["jsonPayload"] for one in entries)
    about = {"jobName": NAME, "targetType": "HTTP", "url": f"{target.url}/"}
    kind = "type.googleapis.com/google.cloud.scheduler.logging."
    assert started == {"@type": f"{kind}AttemptStarted", "scheduledTime": "2026-11-20T13:00:00Z", **about}
    reached = "Original HTTP response code number ="
    assert failed == {
        "@type": f"{kind}AttemptFinished",
        "debugInfo": f"URL_UNREACHABLE-UNREACHABLE_5xx. {reached} 503",
        "status": "UNAVAILABLE",
        **about,
    }
    assert done == {"@type": f"{kind}AttemptFinished", "debugInfo": f"URL_CRAWLED. {reached} 200", **about}
    assert [one["severity"] for one in entries] == ["INFO", "ERROR", "INFO", "INFO"]
    assert [one.get("httpRequest", {}).get("status") for one in entries] == [None, 503, None, 200]


@pytest.mark.parametrize(
    ("http", "code", "begins", "status"),
    [
        (400, 3, "URL_ERROR-ERROR_OTHER", "INVALID_ARGUMENT"),
        (401, 16, "URL_ERROR-ERROR_AUTHENTICATION", "UNAUTHENTICATED"),
        (403, 7, "URL_ERROR-ERROR_OTHER", "PERMISSION_DENIED"),
        (404, 5, "URL_ERROR-ERROR_NOT_FOUND", "NOT_FOUND"),
        (429, 8, "URL_UNREACHABLE-UNREACHABLE_5xx", "RESOURCE_EXHAUSTED"),
        (500, 13, "URL_UNREACHABLE-UNREACHABLE_5xx", "INTERNAL"),
        (504, 4, "URL_TIMEOUT-TIMEOUT_WEB", "DEADLINE_EXCEEDED"),
    ],
)
def test_a_failed_attempt_says_how_it_failed(http: int, code: int, begins: str, status: str) -> None:
    """The log names the kind of failure of each HTTP status; the job's status has the code alone."""
    outcome = DeliveryOutcome(code, f"The target answered HTTP {http}.", http=http)
    payload = scheduler_log.attempt_finished(job(Target()), outcome)["jsonPayload"]
    assert payload["debugInfo"] == f"{begins}. Original HTTP response code number = {http}"
    assert payload["status"] == status and outcome.status() == {"code": code}


def test_a_job_shows_the_microsecond_that_its_log_says(
    tmp_path: Path, target: Target, attempts: list[DeliveryOutcome]
) -> None:
    """The log's scheduledTime has microseconds without trailing zeros, and is the job's lastAttemptTime."""
    entries: list[dict[str, Any]] = []

    async def scenario(engine: SchedulerEngine, clock: FakeClock) -> None:
        add(engine, job(target))
        clock.advance(30.01752)
        await until(lambda: len(entries) == 2)

    store = drive(tmp_path, scenario, log=entries.append)
    assert entries[0]["jsonPayload"]["scheduledTime"] == "2026-11-20T12:01:00.01752Z"
    shown = store.get(NAME).body  # type: ignore[union-attr]
    assert shown["lastAttemptTime"] == "2026-11-20T12:01:00.017520Z"
    assert shown["scheduleTime"] == "2026-11-20T12:02:00.017521Z"


def test_retries_back_off_and_keep_their_schedule_time(
    tmp_path: Path, target: Target, attempts: list[DeliveryOutcome]
) -> None:
    """A failing target is tried again after growing waits, with the same schedule time, until it succeeds."""
    target.answers = [503, 500]

    async def scenario(engine: SchedulerEngine, clock: FakeClock) -> None:
        add(engine, job(target, schedule="0 * * * *", retry={"retryCount": 3, "minBackoffDuration": "10s"}))
        clock.advance(3570)
        await until(lambda: len(attempts) == 1)
        assert engine.store.get(NAME).body["status"]["code"] == 14  # type: ignore[union-attr]
        clock.advance(9)
        await calm()
        assert len(target.seen) == 1
        clock.advance(1)
        await until(lambda: len(attempts) == 2)
        clock.advance(19)
        await calm()
        assert len(target.seen) == 2
        clock.advance(1)
        await until(lambda: len(attempts) == 3)

    drive(tmp_path, scenario)
    assert [one.code for one in attempts] == [14, 13, 0]
    assert {headers["x-cloudscheduler-scheduletime"] for _, headers, _ in target.seen} == {"2026-11-20T05:00:00-08:00"}


def test_retries_end_at_their_count(tmp_path: Path, target: Target, attempts: list[DeliveryOutcome]) -> None:
    """After retryCount retries the execution is over, and the job waits for its next time."""
    target.answers = [500] * 9

    async def scenario(engine: SchedulerEngine, clock: FakeClock) -> None:
        add(engine, job(target, schedule="0 * * * *", retry={"retryCount": 2}))
        clock.advance(3570)
        for count in (1, 2, 3):
            await until(lambda count=count: len(attempts) == count)
            await calm()
            clock.advance(60)
        await calm()

    drive(tmp_path, scenario)
    assert len(attempts) == 3


def test_executions_never_overlap(tmp_path: Path, target: Target, attempts: list[DeliveryOutcome]) -> None:
    """Ticks and forced runs during an execution wait for its end; several missed ticks make one."""
    target.hold = True

    async def scenario(engine: SchedulerEngine, clock: FakeClock) -> None:
        stored = job(target)
        add(engine, stored)
        clock.advance(30)
        await until(lambda: target.open == 1)
        clock.advance(180)
        engine.run_now(NAME)
        engine.run_now(NAME)
        await calm()
        assert len(target.seen) == 1
        target.hold = False
        await until(lambda: len(attempts) == 3)
        await calm()

    drive(tmp_path, scenario)
    assert target.most_open == 1 and len(attempts) == 3


def test_a_paused_job_and_a_deleted_job_do_not_fire(
    tmp_path: Path, target: Target, attempts: list[DeliveryOutcome]
) -> None:
    """Pausing and deleting stop the next time, and the retries of an execution under way."""
    target.answers = [500] * 5

    async def scenario(engine: SchedulerEngine, clock: FakeClock) -> None:
        stored = job(target, retry={"retryCount": 5, "minBackoffDuration": "1s"})
        add(engine, stored)
        clock.advance(30)
        await until(lambda: len(attempts) == 1)
        engine.plan(engine.store.change(NAME, lambda body, _: body.update(state="PAUSED")) or {})
        clock.advance(600)
        await calm()
        assert len(target.seen) == 1
        engine.plan(engine.store.change(NAME, lambda body, _: body.update(state="ENABLED")) or {})
        clock.advance(60)
        await until(lambda: len(target.seen) == 2)
        engine.store.remove(NAME)
        engine.forget(NAME)
        clock.advance(600)
        await calm()
        assert len(target.seen) == 2

    drive(tmp_path, scenario)


def test_missed_times_are_not_made_up_for(tmp_path: Path, target: Target, attempts: list[DeliveryOutcome]) -> None:
    """A job that was due while the server was down fires at its next time only."""
    ResourceStore(tmp_path).add(SCHEDULES, PARENT, NAME, job(target))

    async def scenario(engine: SchedulerEngine, clock: FakeClock) -> None:
        await calm()
        assert not target.seen
        clock.advance(30)
        await until(lambda: attempts)

    drive(tmp_path, scenario)
    assert len(target.seen) == 1


def test_at_least_twice(tmp_path: Path, target: Target, attempts: list[DeliveryOutcome]) -> None:
    """With at_least_twice every success is delivered again, the same in every header that a handler can tell it by."""

    async def scenario(engine: SchedulerEngine, clock: FakeClock) -> None:
        add(engine, job(target))
        clock.advance(30)
        await until(lambda: len(attempts) == 2)

    drive(tmp_path, scenario, at_least_twice=True)
    (_, first, _), (_, second, _) = target.seen
    assert first == second


@pytest.mark.parametrize("path", ["/away", ""])
def test_other_machines_are_not_fired_at(
    tmp_path: Path, target: Target, attempts: list[DeliveryOutcome], path: str
) -> None:
    """A target elsewhere, also behind a redirect, is a failed attempt that says why, and is not retried."""
    uri = target.url + path if path else "http://example.com/"

    async def scenario(engine: SchedulerEngine, clock: FakeClock) -> None:
        add(engine, job(target, http={"uri": uri}, retry={"retryCount": 5}))
        clock.advance(30)
        await until(lambda: attempts)
        clock.advance(29)
        await calm()

    drive(tmp_path, scenario)
    (attempt,) = attempts
    assert attempt.code == 7 and "example.com" in attempt.message


def test_the_attempt_deadline(tmp_path: Path, target: Target, attempts: list[DeliveryOutcome]) -> None:
    """An answer that does not come within the attempt deadline is DEADLINE_EXCEEDED."""
    target.hold = True

    async def scenario(engine: SchedulerEngine, clock: FakeClock) -> None:
        add(engine, job(target, attemptDeadline="0.2s"))
        clock.advance(30)
        await until(lambda: attempts)

    drive(tmp_path, scenario)
    assert [one.code for one in attempts] == [4]


def test_a_target_that_is_not_there(tmp_path: Path, target: Target, attempts: list[DeliveryOutcome]) -> None:
    """A refused connection is UNAVAILABLE, and the engine goes on."""

    async def scenario(engine: SchedulerEngine, clock: FakeClock) -> None:
        add(engine, job(target, http={"uri": "http://127.0.0.1:1/"}))
        for count in (1, 2):
            clock.advance(60)
            await until(lambda count=count: len(attempts) == count)
            await calm()

    drive(tmp_path, scenario)
    assert [one.code for one in attempts] == [14, 14]


def test_a_database_that_takes_nothing_ends_no_schedule(
    tmp_path: Path, target: Target, attempts: list[DeliveryOutcome]
) -> None:
    """A job that is due while nothing can be written, as on a full disk, fires once that is over."""

    async def scenario(engine: SchedulerEngine, clock: FakeClock) -> None:
        add(engine, job(target))
        engine.store.database.connection.execute("PRAGMA query_only = 1")
        clock.advance(30)
        await calm()
        assert not target.seen
        engine.store.database.connection.execute("PRAGMA query_only = 0")
        clock.advance(30)
        await until(lambda: attempts)

    drive(tmp_path, scenario)
