"""The trigger: starts jobs and sweeps of the project file over HTTP and for events, and answers in problem+json.

IAM decides who may call. A caller chooses a job or sweep by name and may set the keys that `trigger.allow` and
`trigger.allow_args` open; the rest is the project file's.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vertexrig import spec, times
from vertexrig.checks.workspace import Prepared, Workspace
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import RemoteJob, Vertex, job_body
from vertexrig.errors import ConfigError, TemplateError, UsageError, VertexrigError
from vertexrig.finding import Severity
from vertexrig.project import config, overrides
from vertexrig.project.config import TICK_PATH
from vertexrig.project.runs import new_run
from vertexrig.project.then import name_of
from vertexrig.spec import descriptors
from vertexrig.submit.budget import OverBudgetError
from vertexrig.submit.chains import Chain, Chains
from vertexrig.submit.claims import LABEL, Claim, Claims, InProgressError, Key, OtherBodyError
from vertexrig.submit.reconcile import RUN_LABEL
from vertexrig.submit.submission import NoPackageError, Submitter, UploadedArtifacts
from vertexrig.trigger import openapi, request
from vertexrig.trigger.request import LIMIT, Asked, RequestProblem

if TYPE_CHECKING:
    from vertexrig.trigger.ticks import Ticker

FILE_VARIABLE = "VERTEXRIG_FILE"
EVENT_RUN, EVENT_OBJECTS, EVENT_ARG = "VERTEXRIG_EVENT_RUN", "VERTEXRIG_EVENT_OBJECTS", "VERTEXRIG_EVENT_ARG"
"""For events of a bucket: what runs, which objects count (a regular expression on gs:// URIs), and the argument, if any,
that the URI is given in."""
PUBSUB, FINALIZED = "google.cloud.pubsub.topic.v1.messagePublished", "google.cloud.storage.object.v1.finalized"
# X-Cloud-Trace-Context has TRACE/SPAN, the W3C traceparent 00-TRACE-SPAN-FLAGS
_TRACE = re.compile(r"([0-9a-fA-F]{32})(?:/|$)|00-([0-9a-f]{32})-")
_OWN_FOLDERS = ("vertexrig/", "packages/", "runs/")
_RETRY_S = 30.0


@dataclass(frozen=True)
class Call:
    """An HTTP request.

    Args:
        method: Such as POST.
        path: Such as /jobs/123.
        headers: By lower-case name.
        read: Reads at most so many bytes of the body.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[int], bytes] = lambda _: b""


@dataclass(frozen=True)
class Reply:
    """An answer: a status, a JSON object, headers."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return json.dumps(self.body, ensure_ascii=False, indent=1).encode()

    @property
    def flask(self) -> tuple[bytes, int, dict[str, str]]:
        """As Flask takes it."""
        kind = "application/problem+json" if self.status >= 400 else "application/json"
        safe = {"Content-Type": kind, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        return self.content, self.status, {**safe, **self.headers}


class RetryEventError(Exception):
    """An event whose job could not be made now; Eventarc delivers it again if the trigger retries."""


def print_log(row: Mapping[str, Any]) -> None:
    """Write a log entry as Cloud Logging reads it from stdout: one JSON object a line."""
    # one write, so that entries of several threads do not mix; flushed, since an instance may be frozen after its answer
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


class Trigger:
    """The trigger of one project.

    Args:
        loaded: The project.
        vertex: Where jobs are made; by default the project's own.
        storage: By default the project's bucket.
        claims: By default those of `storage`.
        log: Takes log entries.

    Raises:
        ConfigError: The project file has no bucket, or opens what must stay closed.
    """

    def __init__(
        self,
        loaded: config.Loaded,
        *,
        vertex: Vertex | None = None,
        storage: Storage | None = None,
        claims: Claims | None = None,
        log: Callable[[Mapping[str, Any]], None] = print_log,
    ) -> None:
        overrides.check_rules(loaded)
        project = loaded.project
        if not project.bucket:
            raise loaded.error("bucket is needed: claims and packages are kept there")
        self.loaded, self.log = loaded, log
        self.vertex = vertex or Vertex(project.project, project.region)
        storage = storage or Storage(project.bucket, location=project.region)
        workspace = Workspace(loaded, uploaded=UploadedArtifacts(loaded, storage))
        self.submitter = Submitter(workspace, self.vertex, storage, claims=claims, fence=True)
        self.chains = Chains(storage)

    def warm_up(self) -> None:
        """Load what the first request would otherwise wait for: descriptors, templates, catalog."""
        for kind in spec.KINDS:
            descriptors.message(kind)
        renderer = self.submitter.workspace.renderer
        for name in renderer.topologies():
            renderer.environment.get_template(f"{name}.yaml.j2")

    def handle(self, call: Call) -> Reply:
        """Answer an HTTP request; whatever goes wrong, the answer holds no exception's text."""
        started = time.monotonic()
        row: dict[str, Any] = {"path": call.path[:200], "method": call.method[:10]}
        try:
            reply = self._route(call, row)
        except RequestProblem as problem:
            reply = _problem(problem)
        # an exception's text may hold names, paths or tokens: the caller gets a problem of ours, the log the rest
        except Exception as error:
            reply = _problem(self._explained(error, row))
        row |= {"status": reply.status, "ms": round((time.monotonic() - started) * 1000, 1)}
        if reply.status >= 400:
            row["problem"] = reply.body.get("type")
        self._log(call.headers, row, reply.status)
        return reply

    def event(self, type: str, source: str, id: str, data: Any) -> None:
        """Take a CloudEvent: a Pub/Sub message that holds a request, or a finished object of a bucket.

        Raises:
            RetryEventError: It may go well if it is delivered again.
        """
        row: dict[str, Any] = {"event": type[:200], "event_id": id[:200]}
        status = 204
        try:
            asked = self._event_request(type, data, row)
            if asked is not None:
                # CloudEvents promise that source and id together name one event
                key = Key("request", asked.request_id) if asked.request_id else Key("event", f"{source} {id}")
                status = self._start(asked, key, row).status
        except RequestProblem as problem:
            status, row["problem"] = problem.status, problem.type
        except Exception as error:
            found = self._explained(error, row)
            status, row["problem"] = found.status, found.type
        self._log({}, {**row, "status": status}, status)
        # only these can go well later; raising for a 4xx would have Eventarc deliver a hopeless event again and again
        if status >= 500 or status == 429:
            raise RetryEventError(f"status {status}")

    def _route(self, call: Call, row: dict[str, Any]) -> Reply:
        jobs = re.fullmatch(r"/jobs/([^/]{1,64})", call.path)
        routes: dict[str, Callable[[], Reply]] = {}
        if call.path == "/":
            routes = {"GET": self._listing, "POST": lambda: self._post(call, row)}
        elif call.path == "/openapi.json":
            routes = {"GET": lambda: Reply(200, openapi.document(self.loaded))}
        elif jobs:
            routes = {"GET": lambda: self._job(jobs[1])}
        elif call.path == TICK_PATH:
            routes = {"POST": lambda: self._tick(row)}
        else:
            raise RequestProblem(404, "no-such-page", "there is /, /openapi.json, /jobs/ID and /tick")
        handler = routes.get("GET" if call.method == "HEAD" else call.method)
        if handler is None:
            allowed = ", ".join([*routes, *(["HEAD"] if "GET" in routes else [])])
            problem = _problem(RequestProblem(405, "method", f"this page takes {allowed}"))
            return Reply(405, problem.body, {"Allow": allowed})
        return handler()

    def _listing(self) -> Reply:
        project = self.loaded.project
        runs = [
            *({"name": name, "kind": "job", "topology": job.topology} for name, job in project.jobs.items()),
            *({"name": name, "kind": "sweep", "topology": one.topology} for name, one in project.sweeps.items()),
        ]
        opened = {
            name: {key: openapi.bound_data(bound) for key, bound in rules.items()}
            for name, rules in (("set", project.trigger.allow), ("args", project.trigger.allow_args))
        }
        return Reply(200, {"project": project.project, "region": project.region, "runs": runs, **opened})

    def _post(self, call: Call, row: dict[str, Any]) -> Reply:
        length = call.headers.get("content-length", "")
        # refused unread; a length that is missing or wrong is held to by read(LIMIT + 1)
        if length.isascii() and length.isdigit() and (len(length) > 9 or int(length) > LIMIT):
            raise RequestProblem(413, "too-large", f"the body has more than {LIMIT} bytes")
        asked = request.read(request.parse(call.read(LIMIT + 1)), self.loaded)
        return self._start(asked, request.key(asked, call.headers), row)

    def _start(self, asked: Asked, key: Key, row: dict[str, Any]) -> Reply:
        row |= {"run": asked.request.run, "key": key.kind, "request_id": asked.request_id}
        try:
            prepared = self.submitter.prepare(asked.request)
        except NoPackageError as error:
            raise RequestProblem(409, "no-package", str(error)) from None
        except ConfigError as error:
            raise RequestProblem(400, "value", error.message) from None
        except UsageError as error:
            raise RequestProblem(400, "value", str(error)) from None
        if not prepared.ok:
            raise RequestProblem(
                400, "findings", f"{asked.request.run} would fail with these values", _findings(prepared)
            )
        if asked.dry_run:
            return self._dry_run(prepared, asked)
        made = self.submitter.submit(
            prepared, key, asked.request.digest, before=lambda claim: self._begin(asked, claim)
        )
        row |= {"job": made.name, "claim": made.claim, "duplicate": made.duplicate}
        body = {**asdict(made), **self._steps(asked)}
        return Reply(200 if made.duplicate else 201, body, {"Location": f"/jobs/{made.name.rsplit('/', 1)[-1]}"})

    def _steps(self, asked: Asked) -> dict[str, Any]:
        """What the answer says about the steps that follow; nothing if none do."""
        if not asked.request.then:
            return {}
        return {"then": [name_of(step) for step in self.loaded.project.schedules[asked.request.then].steps]}

    def _begin(self, asked: Asked, claim: Claim) -> None:
        """Keep the chain of a run with steps, before its job is made."""
        want = asked.request
        if want.then:
            begun, steps = times.rfc3339(times.now(), 0), tuple(self._steps(asked)["then"])
            self.chains.begin(Chain(claim.id, want.then, want.run, steps, begun, dict(want.set), dict(want.args)))

    def _tick(self, row: dict[str, Any]) -> Reply:
        """Take the next step of every chain whose job has ended; each that moved or waits for help has a log entry."""
        looked = self._ticker.tick(
            lambda error: self.log({"severity": "ERROR", "message": "a chain failed", **self._failure(error)})
        )
        for one in (one for one in looked if one.severity):
            message = f"chain {one.schedule} {one.step} {one.state}: {one.detail}"
            self.log({"severity": one.severity, "message": message, **one.data})
        states = [one.state for one in looked]
        row |= {state: states.count(state) for state in sorted(set(states))}
        return Reply(200, {"chains": [one.answer for one in looked]})

    @cached_property
    def _ticker(self) -> Ticker:
        # imported by the first tick: a request that starts a job needs none of it
        from vertexrig.cloud.models import ModelsClient
        from vertexrig.trigger.ticks import Ticker

        own, url = self.submitter, self.submitter.storage.rest.url
        claims = Claims(
            own.storage, lease_s=own.claims.lease_s, wait_s=0, clock=own.claims.clock, sleep=own.claims.sleep
        )
        submitter = Submitter(own.workspace, self.vertex, own.storage, claims=claims, limits=own.limits, fence=True)
        return Ticker(submitter, ModelsClient(self.vertex), folder=lambda uri: Storage(uri, url=url))

    def _dry_run(self, prepared: Prepared, asked: Asked) -> Reply:
        prepared = prepared.in_run(new_run())
        view, document = prepared.rendered.view, prepared.document
        would = self.submitter.dry_run(prepared)
        body = job_body(
            document.kind, document.data,
            display_name=view.display_name, labels=view.labels, kms_key_name=view.kms_key_name,
        )  # fmt: skip
        return Reply(200, {"dry_run": True, **asdict(would), **self._steps(asked), "request": body})

    def _job(self, number: str) -> Reply:
        missing = RequestProblem(404, "no-such-job", "the trigger started no job with this number")
        if not re.fullmatch(r"[0-9]{1,30}", number):
            raise missing
        job = self.vertex.by_id(number)
        if job is None or LABEL not in job.labels:  # other jobs of the project are not the callers' business
            raise missing
        try:
            surplus = self.submitter.reconciler.look(job.labels[LABEL], job.collection)
        except VertexrigError:
            surplus = []  # the next look tries again
        if job.name in surplus:
            job = self.vertex.get(job.name) or job
        return Reply(200, {**job_data(job), "console": self.vertex.console(job.name)})

    def _event_request(self, type: str, data: Any, row: dict[str, Any]) -> Asked | None:
        if type == PUBSUB:
            try:
                text = data["message"].get("data", "")
                body = base64.b64decode(text, validate=True)
            except (TypeError, KeyError, AttributeError, binascii.Error, ValueError):
                raise RequestProblem(400, "malformed", "the event is not a Pub/Sub message") from None
            return request.read(request.parse(body), self.loaded)
        if type == FINALIZED:
            return self._object_request(data, row)
        raise RequestProblem(400, "malformed", "the trigger takes Pub/Sub messages and finished objects")

    def _object_request(self, data: Any, row: dict[str, Any]) -> Asked | None:
        """What a finished object starts, None if it is not one that counts."""
        run, pattern = os.environ.get(EVENT_RUN, ""), os.environ.get(EVENT_OBJECTS, "")
        bucket, name = (data.get("bucket"), data.get("name")) if isinstance(data, Mapping) else (None, None)
        if not isinstance(bucket, str) or not isinstance(name, str):
            raise RequestProblem(400, "malformed", "the event names no object")
        storage = self.submitter.storage
        own = bucket == storage.bucket and name.removeprefix(storage.prefix).startswith(_OWN_FOLDERS)
        uri = f"gs://{bucket}/{name}"
        if own or not run or not pattern or not re.fullmatch(pattern, uri):
            row["ignored"] = True  # among others, what our own runs write: else one run would start the next
            return None
        arg = os.environ.get(EVENT_ARG, "")
        # the object's generation tells a second upload from a second delivery
        body = {"run": run, "args": {arg: uri} if arg else {}}
        return request.read(body, self.loaded)

    def _explained(self, error: Exception, row: dict[str, Any]) -> RequestProblem:
        """The answer to an error; what the answer must not hold goes to the log."""
        if isinstance(error, OverBudgetError):
            return RequestProblem(422, "over-budget", str(error))
        if isinstance(error, OtherBodyError):
            return RequestProblem(409, "other-body", "the same request id came with another body before")
        if isinstance(error, InProgressError):
            return RequestProblem(503, "in-progress", str(error), retry_after=error.retry_after)
        if isinstance(error, RestError):
            row |= {"service": str(error)[:500], "service_status": error.status}
            return _service_problem(error)
        if isinstance(error, TemplateError):
            row["error"] = str(error)[:500]
            return RequestProblem(400, "value", "the job cannot be rendered with these values")
        row |= self._failure(error)
        return RequestProblem(500, "internal", "something went wrong here; the log says what")

    @staticmethod
    def _failure(error: Exception) -> dict[str, Any]:
        """What the log says about an error that nobody foresaw."""
        frames = traceback.extract_tb(error.__traceback__)[-6:]
        at = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        row: dict[str, Any] = {"error": type(error).__name__, "at": at}
        return row | ({"message_of_error": str(error)[:500]} if isinstance(error, VertexrigError) else {})

    def _log(self, headers: Mapping[str, str], row: Mapping[str, Any], status: int) -> None:
        severity = "ERROR" if status >= 500 else "WARNING" if status >= 400 else "INFO"
        shown = " ".join(str(row[key]) for key in ("method", "path", "run", "status") if key in row)
        entry: dict[str, Any] = {"severity": severity, "message": shown, **row}
        match = _TRACE.match(headers.get("x-cloud-trace-context", "") or headers.get("traceparent", ""))
        if match:
            trace = (match[1] or match[2]).lower()
            entry["logging.googleapis.com/trace"] = f"projects/{self.loaded.project.project}/traces/{trace}"
        self.log(entry)


def job_data(job: RemoteJob) -> dict[str, Any]:
    """A job's state and times; of an error only the service's own first line, not what the trainer printed."""
    data = job.data
    shown: dict[str, Any] = {
        "name": job.name, "kind": job.kind, "run": job.labels.get(RUN_LABEL, ""), "state": job.state,
        "ended": job.ended, "display_name": job.display_name, "labels": dict(job.labels),
    }  # fmt: skip
    shown |= {key: data[name] for key, name in _TIMES.items() if data.get(name)}
    if job.error:
        shown["error"] = job.error.splitlines()[0][:300]
    trials = data.get("trials")
    if isinstance(trials, list):
        states = [str(trial.get("state", "")) for trial in trials if isinstance(trial, Mapping)]
        shown["trials"] = {state: states.count(state) for state in sorted(set(states))}
    return shown


_TIMES = {"created": "createTime", "started": "startTime", "ended_at": "endTime"}


def _findings(prepared: Prepared) -> tuple[Mapping[str, str], ...]:
    return tuple(
        {"id": one.id, "path": one.path, "message": one.message, "fix": one.fix}
        for one in prepared.findings
        if one.severity is Severity.ERROR
    )


def _service_problem(error: RestError) -> RequestProblem:
    """The answer for a service that failed."""
    who = "Vertex AI or Cloud Storage"
    wait = error.retry_after or _RETRY_S
    if error.status == 429:
        return RequestProblem(429, "quota", f"{who} has no quota left for this; try later", retry_after=wait)
    if error.retryable:
        detail = f"{who} cannot be reached; nothing is lost or doubled by trying again"
        return RequestProblem(503, "unavailable", detail, retry_after=wait)
    if error.status == 400:
        # the service's own words about the job that was sent: they tell the caller what to change
        said = {"id": "service", "path": "", "message": str(error)[:1000]}
        return RequestProblem(400, "refused", "Vertex AI refused the job", (said,))
    return RequestProblem(502, "misconfigured", f"{who} refused the trigger itself; its log says why")


def _problem(problem: RequestProblem) -> Reply:
    body: dict[str, Any] = {
        "type": f"urn:vertexrig:problem:{problem.type}",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
    }
    if problem.findings:
        body["findings"] = [dict(finding) for finding in problem.findings]
    headers = {} if problem.retry_after is None else {"Retry-After": str(math.ceil(problem.retry_after))}
    return Reply(problem.status, body, headers)


def application(folder: Path) -> Trigger:
    """The trigger of a staged folder: its project file, or the one that VERTEXRIG_FILE names."""
    file = os.environ.get(FILE_VARIABLE)
    trigger = Trigger(config.load(Path(file) if file else folder / config.DEFAULT_NAME))
    trigger.warm_up()
    _without_control_socket()
    return trigger


def _without_control_socket() -> None:
    """Turns off gunicorn's `--control-socket`, on by default since 25.1 and out of reach of functions-framework's options.

    It would start asyncio in a thread of the process that starts the workers, while the first request is answered, and
    nobody can reach it in a function.
    """
    try:
        from gunicorn.config import ControlSocketDisable
    except ImportError:  # an older gunicorn, or another server
        return
    ControlSocketDisable.default = True


def http(trigger: Trigger, flask_request: Any) -> tuple[bytes, int, dict[str, str]]:
    """Answer a Flask request."""
    headers = {name.lower(): value for name, value in flask_request.headers.items()}

    def read(most: int) -> bytes:
        try:
            data: bytes = flask_request.stream.read(most)
        except Exception:  # the client went away, or sent less than it said
            raise RequestProblem(400, "malformed", "the body ended early") from None
        return data

    return trigger.handle(Call(flask_request.method, flask_request.path, headers, read)).flask
