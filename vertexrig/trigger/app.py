"""The trigger: starts jobs and sweeps of the project file over HTTP and for events, and answers in problem+json.

IAM decides who may call. A caller chooses a job or sweep by name, `{"run": "cpu"}`, and may set the keys that `trigger.allow` and
`trigger.allow_args` open (`vertexrig.trigger.request`); the rest is the project file's.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vertexrig import spec, times
from vertexrig.cloud import rest
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import Vertex
from vertexrig.errors import ConfigError, UsageError, VertexrigError
from vertexrig.project import caller_overrides, config
from vertexrig.project.config import TICK_PATH
from vertexrig.project.runs import new_run_id
from vertexrig.spec import descriptors
from vertexrig.spec.labels import CALLER_LABEL, label_value
from vertexrig.submit.budget import Terms
from vertexrig.submit.claims import Claim, Claims, EndedError, Key
from vertexrig.submit.submission import Submitted, Submitter, body_of
from vertexrig.submit.uploaded import NoPackageError, UploadedArtifacts
from vertexrig.trigger import answers, request
from vertexrig.trigger.answers import Reply
from vertexrig.trigger.deliveries import Delivery, NotStartedError
from vertexrig.trigger.request import LIMIT, Asked, RequestProblem
from vertexrig.workspace import Prepared, Workspace

if TYPE_CHECKING:
    from vertexrig.submit.chains import Chains
    from vertexrig.trigger.callers import CheckedTokens
    from vertexrig.trigger.history import Deliveries
    from vertexrig.trigger.jobs import JobPages
    from vertexrig.trigger.policy import Due
    from vertexrig.trigger.ticks import Ticker

FILE_VARIABLE = "VERTEXRIG_FILE"


@dataclass(frozen=True)
class Call:
    """An HTTP request.

    Args:
        headers: By lower-case name.
        read: Reads at most so many bytes of the body.
        query: Of the URL, by name.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[int], bytes] = lambda _: b""
    query: Mapping[str, str] = field(default_factory=dict)


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
        vertex: Where jobs are made; by default the project's own.
        storage: By default the project's bucket.
        claims: By default those of `storage`.

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
        caller_overrides.check_rules(loaded)
        project = loaded.project
        if not project.bucket:
            raise loaded.error("bucket is needed: claims and packages are kept there")
        self.loaded, self.log = loaded, log
        self._unwritten: deque[Delivery] = deque(maxlen=100)
        vertex = vertex or Vertex(project.project, project.region)
        storage = storage or Storage(project.bucket, location=project.region)
        workspace = Workspace(loaded, uploaded=UploadedArtifacts(loaded, storage))
        self.submitter = Submitter(workspace, vertex, storage, claims=claims, fence=True)

    def warm_up(self) -> None:
        """Load what the first request would otherwise wait for: the HTTP client, descriptors, templates, catalog."""
        rest.load_client()
        for kind in spec.KINDS:
            descriptors.message(kind)
        self.submitter.workspace.renderer.compile()

    def http(self, flask_request: Any) -> tuple[bytes, int, dict[str, str]]:
        """Answer a Flask request."""
        headers = {name.lower(): value for name, value in flask_request.headers.items()}

        def read(most: int) -> bytes:
            try:
                data: bytes = flask_request.stream.read(most)
            except Exception:  # the client went away, or sent less than it said
                raise RequestProblem(400, "malformed", "the body ended early") from None
            return data

        query = flask_request.args.to_dict()
        return self.handle(Call(flask_request.method, flask_request.path, headers, read, query)).flask

    def handle(self, call: Call) -> Reply:
        """Answer an HTTP request. Of what goes wrong the answer tells what the caller can do about it (`answers.explained`)."""
        row: dict[str, Any] = {"path": call.path[:200], "method": call.method[:10]}
        delivery = self._delivery(call.headers) if (call.method, call.path) == ("POST", "/") else None
        # `_route` and what it calls add to `row` and `delivery` what they learn, for the log entry that `_answer` leaves
        reply = self._answer(lambda: self._route(call, delivery, row), row, delivery, request.trace(call.headers))
        if call.method in ("GET", "HEAD") and reply.status == 200:
            return reply.unless(call.headers.get("if-none-match", ""))
        return reply

    def event(self, type: str, source: str, id: str, data: Any) -> None:
        """Take a CloudEvent: a Pub/Sub message that holds a request, or a finished object; RetryEventError if a repeat may go well."""
        row: dict[str, Any] = {"event": type[:200], "event_id": id[:200]}
        delivery = self._delivery({})
        delivery.caller = "event" if self.loaded.project.trigger.callers else ""

        def act() -> Reply:
            body = request.event_body(type, data, self.submitter.storage)
            if body is None:
                row["ignored"] = True
                return Reply(204, {})
            asked = self.asked(body, delivery, row)
            # CloudEvents promise that source and id together name one event
            key = Key("request", asked.request_id) if asked.request_id else Key("event", f"{source} {id}")
            return self._start(asked, key, delivery)

        status = self._answer(act, row, delivery).status
        # only these can go well later; raising for a 4xx would have Eventarc deliver a hopeless event again and again
        if status >= 500 or status == 429:
            raise RetryEventError(f"status {status}")

    def _delivery(self, headers: Mapping[str, str]) -> Delivery:
        job, time = request.fired(headers)
        return Delivery(
            schedule=job.removeprefix(f"{self.loaded.project.trigger.function}-"),
            schedule_time=time,
            digest=self.loaded.digest,
            trace=request.trace(headers),
        )

    def _caller(self, headers: Mapping[str, str]) -> str:
        """Return the e-mail of whoever calls, "" if it is not known."""
        return self._checked.email(headers) if self.loaded.project.trigger.callers else request.caller(headers)

    def _answer(
        self, act: Callable[[], Reply], row: dict[str, Any], delivery: Delivery | None, trace: str = ""
    ) -> Reply:
        """Return the answer to a request, and leave its one log entry; of a delivery also its object in the history."""
        started, more = time.monotonic(), {}
        self._catch_up()
        try:
            reply = act()
        except NotStartedError as end:
            body = {"decision": end.decision, "reason": end.reason, "detail": end.text}
            at = {"state": "waiting", "candidate": end.detail["candidate"]} if "candidate" in end.detail else {}
            reply = Reply(end.status, body | at)
            if delivery is not None:
                delivery.decision, delivery.reason, delivery.text = end.decision, end.reason, end.text
                delivery.detail |= end.detail
        except Exception as error:
            problem = answers.explained(error)
            reply, more = answers.problem(problem), dict(problem.kept)
            row["problem"] = reply.body["type"]
            if delivery is not None:
                found = {"findings": reply.body["findings"]} if problem.findings else {}
                delivery.refuse(problem.type, problem.detail, {**more, **found})
        if delivery is None or row.get("dry_run") or row.get("ignored"):
            message = " ".join(str(row[name]) for name in ("method", "path", "event") if name in row)
            severity = "WARNING" if reply.status >= 400 else "INFO"
            entry = {"severity": severity, "message": f"{message} {reply.status}", **row, **more}
        else:
            entry = {**row, **delivery.entry, **self.keep(delivery, reply)}
        if reply.status >= 500:
            entry["severity"] = "ERROR"
        if trace:
            entry["logging.googleapis.com/trace"] = f"projects/{self.loaded.project.project}/traces/{trace}"
        self.log({**entry, "status": reply.status, "ms": round((time.monotonic() - started) * 1000, 1)})
        return reply

    def keep(self, delivery: Delivery, reply: Reply) -> dict[str, Any]:
        """Write a delivery into the history; the entry in the log says if that failed, and the answer is the same."""
        try:
            # a service that cannot be reached may be this one: once is enough then
            delivery.write(self.submitter.storage, repeat=reply.status != 503)
        except VertexrigError as error:
            self._unwritten.append(delivery)
            return {"history": f"not written: {error}"[:300]}
        return {}

    def _catch_up(self) -> None:
        """Write what could not be written, with the next request that comes to this instance."""
        while self._unwritten:
            with suppress(IndexError):  # another thread may be at it
                delivery = self._unwritten.popleft()
                try:
                    delivery.write(self.submitter.storage, repeat=False)
                except VertexrigError:
                    self._unwritten.append(delivery)
                    return

    def _route(self, call: Call, delivery: Delivery | None, row: dict[str, Any]) -> Reply:
        jobs = re.fullmatch(r"/jobs/([^/]{1,64})", call.path)
        routes: dict[str, Callable[[], Reply]] = {}
        if call.path == "/":  # `handle` makes a delivery of every POST here
            routes = {"GET": lambda: self._listing(call), "POST": lambda: self._post(call, delivery or Delivery(), row)}
        elif call.path == "/openapi.json":
            routes = {"GET": self._description}
        elif call.path == "/jobs":
            routes = {"GET": lambda: self._jobs(call).listing(call.query)}
        elif jobs:
            routes = {
                "GET": lambda: self._jobs(call).one(jobs[1]),
                "DELETE": lambda: self._jobs(call).cancel(jobs[1]),
            }
        elif call.path == TICK_PATH:
            routes = {"POST": lambda: self._tick(row)}
        else:
            raise RequestProblem(404, "no-such-page", "there is /, /openapi.json, /jobs, /jobs/ID and /tick")
        handler = routes.get("GET" if call.method == "HEAD" else call.method)
        if handler is None:
            allowed = ", ".join([*routes, *(["HEAD"] if "GET" in routes else [])])
            problem = answers.problem(RequestProblem(405, "method", f"this page takes {allowed}"))
            row["problem"] = problem.body["type"]
            return Reply(405, problem.body, {"Allow": allowed})
        return handler()

    def _description(self) -> Reply:
        from vertexrig.trigger import openapi

        return Reply(200, openapi.document(self.loaded))

    def _listing(self, call: Call) -> Reply:
        from vertexrig.trigger import openapi

        project = self.loaded.project
        if project.trigger.callers:
            from vertexrig.trigger import callers

            project = callers.narrowed(self.loaded, self._caller(call.headers)).project
        runs = [
            *({"name": name, "kind": "job", "topology": job.topology} for name, job in project.jobs.items()),
            *({"name": name, "kind": "sweep", "topology": one.topology} for name, one in project.sweeps.items()),
        ]
        runs = [one for one in runs if project.trigger.may_start(one["name"])]
        opened = {
            name: {key: openapi.bound_data(bound) for key, bound in rules.items()}
            for name, rules in (("set", project.trigger.allow), ("args", project.trigger.allow_args))
        }
        about = {"project": project.project, "region": project.region, "runs": runs}
        return Reply(200, {**about, **opened, "digest": self.loaded.digest})

    def _jobs(self, call: Call) -> JobPages:
        """Return the pages about jobs, of the runs that are open to the caller."""
        from vertexrig.trigger.jobs import JobPages

        project = self.loaded.project
        if project.trigger.callers and (caller := self._caller(call.headers)) != project.invoker:
            from vertexrig.trigger import callers

            project = callers.narrowed(self.loaded, caller).project
        return JobPages(self.submitter, project.trigger.may_start, self._stop)

    def _stop(self, id: str) -> str | None:
        """Stop a run with candidates: the name of the job that it is at, "" if it has none now; None if there is nothing to stop."""
        from vertexrig.trigger import ladders, ticking

        one = ladders.Ladders(self.submitter.storage).one(id) if id else None
        if one is None:
            return None
        ladder = ticking.climbing(self, one)
        return (
            "" if ladder.stop("cancelled", "cancelled before another candidate was tried") else ladder.tries()[-1].job
        )

    def _post(self, call: Call, delivery: Delivery, row: dict[str, Any]) -> Reply:
        length = call.headers.get("content-length", "")
        # refused unread; a length that is missing or wrong is held to by read(LIMIT + 1)
        if length.isascii() and length.isdigit() and (len(length) > 9 or int(length) > LIMIT):
            raise RequestProblem(413, "too-large", f"the body has more than {LIMIT} bytes")
        delivery.caller = self._caller(call.headers)
        asked = self.asked(request.parse(call.read(LIMIT + 1)), delivery, row)
        return self._start(asked, request.key(asked, call.headers), delivery)

    def asked(self, body: Any, delivery: Delivery, row: dict[str, Any]) -> Asked:
        """Read a body; note its run in `delivery`, and a dry run in `row`: such a delivery gets no place in the history."""
        if isinstance(body, Mapping):
            row |= {"dry_run": True} if body.get("dry_run") is True else {}
            delivery.run = str(body.get("run", ""))[:63]
        if self.loaded.project.trigger.callers:
            from vertexrig.trigger import callers

            return callers.read(body, self.loaded, delivery.caller)
        return request.read(body, self.loaded)

    def _start(self, asked: Asked, key: Key, delivery: Delivery) -> Reply:
        # the key's kind, and the key's digest, which is the name of the claim; what is asked for has a digest of its own
        delivery.key, delivery.request, delivery.request_id = key.kind, key.digest, asked.request_id
        due = self.due(delivery.schedule, delivery.schedule_time) if key.kind == "schedule" else None
        if due is not None:
            due.check_times()
        prepared = self.prepared(asked)
        if asked.dry_run:
            return self._dry_run(prepared, asked, delivery.caller)
        steps = request.steps(self.loaded, asked.request.then)
        delivery.detail |= {"then": steps} if steps else {}
        terms = self.terms(asked, delivery.caller)

        def make(held_to: Terms) -> Submitted:  # on the terms of a schedule's policy, where it has one (`Due.terms`)
            return self.make_job(self.submitter, prepared, key, asked, held_to, delivery)

        try:
            if due is None:
                made = make(terms)
            else:
                from vertexrig.trigger import deferred

                made = deferred.start(make, key, asked.request, terms, due)
        except EndedError as error:
            raise NotStartedError("skipped", error.claim.ended.get("reason", ""), str(error)) from None
        delivery.decision = "joined" if made.duplicate else "created"
        body = answers.answer(answers.SUBMITTED, made, then=steps or None, candidate=delivery.detail.get("candidate"))
        delivery.job, delivery.claim, delivery.estimate = made.name, body["claim"], made.estimate
        return Reply(200 if made.duplicate else 201, body, {"Location": f"/jobs/{made.name.rsplit('/', 1)[-1]}"})

    def _dry_run(self, every: list[Prepared], asked: Asked, caller: str) -> Reply:
        terms = self.terms(asked, caller)
        prepared = self.submitter.first_allowed(every, terms).in_run(new_run_id())
        would = self.submitter.dry_run(prepared, terms)
        sent = body_of(prepared, would.labels)
        return Reply(
            200,
            answers.answer(
                answers.SUBMITTED,
                would,
                dry_run=True,
                candidate=f"candidate {prepared.candidate} of {len(every)}" if len(every) > 1 else None,
                then=request.steps(self.loaded, asked.request.then) or None,
                request=sent,
            ),
        )

    @staticmethod
    def make_job(
        submitter: Submitter, prepared: list[Prepared], key: Key, asked: Asked, terms: Terms, delivery: Delivery
    ) -> Submitted:
        """Make the job of a request, or find it; of a run with candidates the delivery says which one, such as `candidate 2 of 4`."""
        if len(prepared) == 1:
            return submitter.submit(prepared[0], key, asked.request.digest, terms=terms)
        from vertexrig.trigger import ladders

        about = ladders.about(key, asked.request, delivery)
        made, delivery.detail["candidate"] = ladders.start(submitter, prepared, key, asked.request, terms, about)
        return made

    def prepared(self, asked: Asked) -> list[Prepared]:
        """Return a request's job and its candidates, rendered and checked; RequestProblem if one cannot be rendered, or would fail."""
        try:
            prepared = self.submitter.prepare_all(asked.request)
        except NoPackageError as error:
            raise RequestProblem(409, "no-package", str(error)) from None
        except ConfigError as error:
            raise RequestProblem(400, "value", error.message) from None
        except UsageError as error:
            raise RequestProblem(400, "value", str(error)) from None
        wrong = [row for one in prepared if not one.ok for row in answers.findings(one)]
        if wrong:
            raise RequestProblem(400, "findings", f"{asked.request.run} would fail with these values", tuple(wrong))
        return prepared

    def due(self, schedule: str, time: str) -> Due | None:
        """Return what a schedule of the project file has to say about its run, None if it is none of those."""
        found = self.loaded.project.schedules.get(schedule)
        if found is None or not time:
            return None
        from vertexrig.trigger.policy import Due

        return Due(schedule, found, time, self.submitter)

    def terms(self, asked: Asked, caller: str) -> Terms:
        """Return on what terms a request is started: whose labels and budget, and the chain that begins before its job is made."""
        terms = Terms(labels={CALLER_LABEL: label_value(caller)} if caller else {})
        if self.loaded.project.trigger.callers:
            from vertexrig.trigger import callers

            terms = callers.terms(self.loaded, caller)
        return replace(terms, before_create=lambda claim: self._begin_chain(asked, claim, caller))

    def _begin_chain(self, asked: Asked, claim: Claim, caller: str) -> None:
        """Keep the chain of a run with steps, before its job is made."""
        want, steps = asked.request, request.steps(self.loaded, asked.request.then)
        if steps and claim.kind != "step":  # once, with the first of a run's candidates
            from vertexrig.submit.chains import Chain

            begun = times.rfc3339(times.now(), 0)
            self.chains.begin(
                Chain(claim.id, want.then, want.run, tuple(steps), begun, dict(want.set), dict(want.args), caller)
            )

    def _tick(self, row: dict[str, Any]) -> Reply:
        from vertexrig.trigger import ticking

        return ticking.tick(self, row)

    # Made, and their modules imported, when they are asked for: a request that starts a job needs none of them.
    @cached_property
    def _checked(self) -> CheckedTokens:
        from vertexrig.trigger.callers import CheckedTokens

        return CheckedTokens(self.loaded)

    @cached_property
    def deliveries(self) -> Deliveries:
        from vertexrig.trigger.history import Deliveries

        return Deliveries(self.submitter.storage)

    @cached_property
    def chains(self) -> Chains:
        from vertexrig.submit.chains import Chains

        return Chains(self.submitter.storage)

    @cached_property
    def ticker(self) -> Ticker:
        from vertexrig.cloud.models import ModelsClient
        from vertexrig.trigger.ticks import Ticker

        own, url = self.submitter, self.submitter.storage.rest.url
        claims = Claims(
            own.storage, lease_s=own.claims.lease_s, wait_s=0, clock=own.claims.clock, sleep=own.claims.sleep
        )
        submitter = Submitter(own.workspace, own.vertex, own.storage, claims=claims, limits=own.limits, fence=True)
        return Ticker(submitter, ModelsClient(own.vertex), folder=lambda uri: Storage(uri, url=url))


def application(folder: Path) -> Trigger:
    """Return the trigger of a staged folder: its project file, or the one that VERTEXRIG_FILE names."""
    file = os.environ.get(FILE_VARIABLE)
    trigger = Trigger(config.load(Path(file) if file else folder / config.DEFAULT_NAME))
    trigger.warm_up()
    return trigger
