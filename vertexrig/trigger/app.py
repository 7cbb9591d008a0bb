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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vertexrig import __version__, spec, times
from vertexrig.cloud import rest
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import Vertex
from vertexrig.errors import ConfigError, UsageError, VertexrigError
from vertexrig.project import caller_overrides, config, environments
from vertexrig.project.config import TICK_PATH
from vertexrig.project.run_ids import new_run_id
from vertexrig.runs.candidates import CandidateRun, candidates_of
from vertexrig.runs.deliveries import NO_MACHINES, Delivery, NotStartedError
from vertexrig.runs.engine import ChangedError, Engine, NoMachinesError
from vertexrig.runs.policy import Due
from vertexrig.runs.run import Run
from vertexrig.runs.store import RunStore
from vertexrig.spec import descriptors
from vertexrig.spec.labels import CALLER_LABEL, label_value
from vertexrig.submit.budget import Terms, estimate_data
from vertexrig.submit.claims import Claims, EndedError, Key
from vertexrig.submit.submission import Submitted, Submitter, body_of, price_of
from vertexrig.submit.uploaded import NoPackageError, UploadedArtifacts
from vertexrig.trigger import answers, request
from vertexrig.trigger.answers import Reply
from vertexrig.trigger.request import LIMIT, Asked, RequestProblem
from vertexrig.workspace import Prepared, Workspace

if TYPE_CHECKING:
    from vertexrig.cloud.models import ModelsClient
    from vertexrig.trigger.callers import CheckedTokens
    from vertexrig.trigger.history import Deliveries
    from vertexrig.trigger.jobs import JobPages
    from vertexrig.trigger.tick import Ticker

FILE_VARIABLE = "VERTEXRIG_FILE"
REVISION = "revision"
"""File of the staged folder with the git revision of the project file."""


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
        revision: The git revision of the project file, "" if it is not known.

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
        revision: str = "",
        log: Callable[[Mapping[str, Any]], None] = print_log,
    ) -> None:
        caller_overrides.check_rules(loaded)
        project = loaded.project
        if not project.bucket:
            raise loaded.error_at(
                "the project file names no bucket, and the trigger keeps its claims and packages there: write bucket: gs://BUCKET"
            )
        self.loaded, self.log = loaded, log
        self._unwritten: deque[Delivery] = deque(maxlen=100)
        vertex = vertex or Vertex(project.project, project.region)
        storage = storage or Storage(project.bucket, location=project.region)
        workspace = Workspace(loaded, uploaded=UploadedArtifacts(loaded, storage))
        self.submitter = Submitter(workspace, vertex, storage, claims=claims, revision=revision, fence=True)
        self.storage = self.submitter.claims.storage  # the trigger's folder of the bucket
        self.engine = self._engine(self.submitter)

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
        delivery, delivered = self._delivery(call.headers), (call.method, call.path) == ("POST", "/")
        # `_route` and what it calls add to `row` and `delivery` what they learn, for the log entry that `_answer` leaves
        reply = self._answer(
            lambda: self._route(call, delivery, row), row, delivery if delivered else None, delivery.trace
        )
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
            return self._start_run(asked, key, delivery)

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
        """Return the e-mail of the caller, "" if it is not known."""
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
            entry = {**row, **delivery.entry, **self.write_history(delivery, reply)}
        if reply.status >= 500:
            entry["severity"] = "ERROR"
        if trace:
            entry["logging.googleapis.com/trace"] = f"projects/{self.loaded.project.project}/traces/{trace}"
        self.log({**entry, "status": reply.status, "ms": round((time.monotonic() - started) * 1000, 1)})
        return reply

    def write_history(self, delivery: Delivery, reply: Reply) -> dict[str, Any]:
        """Write the row of a delivery that is not a run's own, and the notice of one without a job; return what failed, for the log."""
        try:
            # `created` and `deferred` have a stored `Run`, whose row is written when it ends (`Ticker.finish`)
            if delivery.decision not in ("created", "deferred"):
                # a service that cannot be reached may be this one: once is enough then
                delivery.write(self.storage, repeat=reply.status != 503)
        except VertexrigError as error:
            self._unwritten.append(delivery)
            return {"history": f"not written: {error}"[:300]}
        if self.loaded.project.trigger.notify and delivery.schedule and delivery.decision != "created":
            from vertexrig.trigger import notify

            try:
                notify.Notices(self.storage, self.loaded.project.trigger.notify).keep(notify.notice_of(delivery.data))
            except VertexrigError as error:
                return {"notice": f"not written: {error}"[:300]}
        return {}

    def _catch_up(self) -> None:
        """Write what could not be written, with the next request that comes to this instance."""
        while self._unwritten:
            with suppress(IndexError):  # another thread may be at it
                delivery = self._unwritten.popleft()
                try:
                    delivery.write(self.storage, repeat=False)
                except VertexrigError:
                    self._unwritten.append(delivery)
                    return

    def _route(self, call: Call, delivery: Delivery, row: dict[str, Any]) -> Reply:
        jobs = re.fullmatch(r"/jobs/([^/]{1,64})", call.path)
        decided = re.fullmatch(r"/runs/([^/]{1,64})/(approve|reject)", call.path)
        routes: dict[str, Callable[[], Reply]] = {}
        if call.path == "/":
            routes = {"GET": lambda: self._listing(call), "POST": lambda: self._post(call, delivery, row)}
        elif call.path == "/openapi.json":
            routes = {"GET": self._description}
        elif call.path == "/jobs":
            routes = {"GET": lambda: self._jobs(call).listing(call.query)}
        elif jobs:
            routes = {
                "GET": lambda: self._jobs(call).one(jobs[1]),
                "DELETE": lambda: self._jobs(call).cancel(jobs[1]),
            }
        elif decided:
            routes = {"POST": lambda: self._decide(call, decided[1], decided[2], row)}
        elif call.path == TICK_PATH:
            routes = {"POST": lambda: self._tick(row)}
        else:
            pages = "/, /openapi.json, /jobs, /jobs/ID, /runs/ID/approve, /runs/ID/reject and /tick"
            raise RequestProblem(404, "no-such-page", f"there is no page {call.path[:200]}; the pages are {pages}")
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
        return Reply(200, {**about, **opened, "digest": self.loaded.digest, "version": __version__})

    def _jobs(self, call: Call) -> JobPages:
        """Return the pages about jobs, of the runs that are open to the caller."""
        from vertexrig.trigger.jobs import JobPages

        project = self.loaded.project
        if project.trigger.callers and (caller := self._caller(call.headers)) != project.invoker:
            from vertexrig.trigger import callers

            project = callers.narrowed(self.loaded, caller).project
        return JobPages(self.submitter, project.trigger.may_start, self._stop)

    def _stop(self, id: str) -> str | None:
        """Stop a run: the name of the job that it is at, "" if it has none now; None if there is nothing to stop."""
        run = self.engine.runs.read(id)
        return None if run is None else self.ticker.engine.stop(run)

    def _post(self, call: Call, delivery: Delivery, row: dict[str, Any]) -> Reply:
        length = call.headers.get("content-length", "")
        # refused unread; a length that is missing or wrong is held to by read(LIMIT + 1)
        if length.isascii() and length.isdigit() and (len(length) > 9 or int(length) > LIMIT):
            raise RequestProblem(413, "too-large", f"the body has more than {LIMIT} bytes")
        delivery.caller = self._caller(call.headers)
        asked = self.asked(request.parse(call.read(LIMIT + 1)), delivery, row)
        return self._start_run(asked, request.key(asked, call.headers), delivery)

    def asked(self, body: Any, delivery: Delivery, row: dict[str, Any]) -> Asked:
        """Read a body; note its run in `delivery`, and a dry run in `row`: such a delivery gets no place in the history."""
        if isinstance(body, Mapping):
            row |= {"dry_run": True} if body.get("dry_run") is True else {}
            delivery.run = str(body.get("run", ""))[:63]
        return self._read(body, delivery.caller)

    def _read(self, body: Any, caller: str) -> Asked:
        """Read a body as far as its caller may ask for it."""
        if self.loaded.project.trigger.callers:
            from vertexrig.trigger import callers

            return callers.read(body, self.loaded, caller)
        return request.read(body, self.loaded)

    def _start_run(self, asked: Asked, key: Key, delivery: Delivery) -> Reply:
        # the key's kind, and the key's digest, which is the name of the claim; what is asked for has a digest of its own
        delivery.key, delivery.request, delivery.request_id = key.kind, key.digest, asked.request_id
        due = self._due(asked, key, delivery)
        if due is not None:
            due.check_times()
        prepared = self.prepared(asked)
        if asked.dry_run:
            return self._dry_run(prepared, asked, delivery.caller)
        steps = request.steps(self.loaded, asked.request.then)
        delivery.detail |= {"then": steps} if steps else {}
        candidates = candidates_of(prepared, self.submitter)
        terms, run = self.terms(delivery.caller), self._run(asked, key, delivery, due, steps)
        if len(prepared) == 1:  # otherwise it depends on the candidate
            estimate = estimate_data(price_of(prepared[0], self.submitter.limits))
            run = replace(run, delivery={**run.delivery, "estimate": estimate})
        run, made = self._begin(run, candidates, terms, due)
        delivery.decision = "joined" if made.duplicate else "created"
        delivery.detail |= made.used
        if candidate := self.engine.which_candidate(run):
            delivery.detail["candidate"] = candidate
        body = answers.answer(answers.SUBMITTED, made, then=steps or None, candidate=candidate or None)
        delivery.job, delivery.claim, delivery.estimate = made.name, body["claim"], made.estimate
        return Reply(200 if made.duplicate else 201, body, {"Location": f"/jobs/{made.name.rsplit('/', 1)[-1]}"})

    def _begin(
        self, run: Run, candidates: Sequence[CandidateRun], terms: Terms, due: Due | None
    ) -> tuple[Run, Submitted]:
        """Make the first job of a run, or find it.

        Raises:
            NotStartedError: By the policy of its schedule, or by what an earlier delivery decided, it waits or gets none.
            RequestProblem: No candidate got machines.
        """
        try:
            return self.engine.begin(run, candidates, due.terms(terms) if due is not None else terms)
        except EndedError as error:
            raise NotStartedError("skipped", error.claim.ended.get("reason", ""), str(error)) from None
        except NoMachinesError as error:
            rows = tuple(
                {"id": one.reason, "path": f"candidate {one.candidate}", "message": one.text} for one in error.attempts
            )
            raise RequestProblem(409, NO_MACHINES, str(error), rows) from None
        except Exception as error:
            why = due.not_started(error) if due is not None else None
            # where no candidate got machines, the engine has stored the run already
            if why is None or (isinstance(error, NotStartedError) and error.reason == NO_MACHINES):
                raise
            if why.decision == "deferred":  # written before the delivery is answered, so that it is not lost
                why = self.engine.keep_waiting(run, why)
                if why is None:
                    raise  # without a claim nothing is kept: Cloud Scheduler repeats it
            raise why from None

    @staticmethod
    def _run(asked: Asked, key: Key, delivery: Delivery, due: Due | None, steps: list[str]) -> Run:
        """Return what is kept of a request. Of a schedule it is only where the schedule's policy applies."""
        about = {name: getattr(delivery, name) for name in ("id", "time", "request_id", "digest", "trace")}
        schedule, due_at = (due.name, due.time) if due is not None else ("", "")
        return Run(
            "",
            key,
            asked.request.body,
            about,
            caller=delivery.caller,
            schedule=schedule,
            time=due_at,
            steps=tuple(steps),
        )

    def _dry_run(self, every: list[Prepared], asked: Asked, caller: str) -> Reply:
        terms = self.terms(caller)
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

    def prepared(self, asked: Asked) -> list[Prepared]:
        """Return a request's job and its candidates, rendered and checked; RequestProblem if one cannot be rendered, or would fail."""
        try:
            prepared = self.submitter.prepare_candidates(asked.request)
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

    def _due(self, asked: Asked, key: Key, delivery: Delivery) -> Due | None:
        """Return what a schedule says about a request, None if the request is not the schedule's own."""
        from vertexrig.trigger.callers import of_schedule

        project = self.loaded.project
        found = project.schedules.get(delivery.schedule)
        if key.kind != "schedule" or found is None or not delivery.schedule_time:
            return None
        if asked.request.digest != of_schedule(delivery.schedule, found).digest:
            return None
        if project.trigger.callers and delivery.caller != project.invoker:
            return None
        return Due(delivery.schedule, found, delivery.schedule_time, self.submitter)

    def terms(self, caller: str) -> Terms:
        """Return the labels and the budget of a caller's runs."""
        if self.loaded.project.trigger.callers:
            from vertexrig.trigger import callers

            return callers.terms(self.loaded, caller)
        return Terms(labels={CALLER_LABEL: label_value(caller)} if caller else {})

    def _engine(self, submitter: Submitter) -> Engine:
        """Return what moves runs, as the project file is now."""

        def due(run: Run) -> Due | None:
            found = self.loaded.project.schedules.get(run.schedule)
            if found is not None and run.backfill:  # asked for by a person: it waits for its turn, and is not left out
                overlap: Literal["allow", "wait"] = "allow" if found.overlap == "allow" else "wait"
                found = replace(found, overlap=overlap, only_if_changed=None, catch_up=True)
            return None if found is None else Due(run.schedule, found, run.time, submitter)

        def candidates(run: Run) -> list[CandidateRun]:
            # what the bucket says of a run is allowed as far as its caller may ask for it
            try:
                return candidates_of(self.prepared(self._read(dict(run.body), run.caller)), submitter)
            except RequestProblem as error:
                if error.type == "no-package":
                    raise NoPackageError(error.detail) from None
                raise ChangedError(f"the project file does not allow this run any more: {_detail(error)}") from None

        def problem(run: Run) -> str:
            from vertexrig.runs import steps

            if run.schedule and run.schedule not in self.loaded.project.schedules:
                return f"the project file has no schedule {run.schedule} any more"
            if other := steps.problem(self.loaded, run):
                return other
            try:
                self._read(dict(run.body), run.caller)
            except RequestProblem as error:
                return f"the project file does not allow this run any more: {_detail(error)}"
            return ""

        return Engine(
            submitter,
            RunStore(submitter.claims.storage),
            candidates,
            lambda run: self.terms(run.caller),
            due,
            problem=problem,
        )

    def _decide(self, call: Call, name: str, verb: str, row: dict[str, Any]) -> Reply:
        """Approve or reject the version of a run, and take its step at once."""
        from vertexrig.runs import approval
        from vertexrig.runs.policy import Holds

        by = self._approver(call.headers)
        runs, registrar = self.ticker.engine.runs, self.ticker.registrar
        try:
            run = approval.find(runs, name)
        except UsageError as error:
            raise RequestProblem(404, "no-such-run", str(error)) from None
        try:
            run = approval.decide(runs, registrar.models, run, approval.VERBS[verb], by, self.engine.now())
        except UsageError as error:
            raise RequestProblem(409, "changed", str(error)) from None
        row |= {"run": run.name, "claim": run.id, "decision": approval.VERBS[verb], "by": by}
        hold = Holds(runs.storage).of(run.of_schedule) if run.of_schedule else None
        # what fails now is done by the next tick
        moved = self.ticker.engine.move(run, hold="" if hold is None else hold.text)
        body = {"id": run.id, "run": run.name, "decision": approval.VERBS[verb], "by": by, "state": moved.state}
        body |= {"outcome": moved.run.reason, "model": moved.run.model} if moved.ended else {}
        return Reply(200 if moved.ended else 202, {**body, "text": moved.text or moved.run.text})

    def _approver(self, headers: Mapping[str, str]) -> str:
        """Return who decides; RequestProblem 403 if `trigger.approvers` does not name the caller."""
        patterns = self.loaded.project.trigger.approvers
        if patterns == ("*",):  # whoever may call the function, as its token says
            return request.caller(headers) or "a caller of the function"
        email = self._checked.email(headers) if patterns else ""
        if email and any(fnmatchcase(email.lower(), one.lower()) for one in patterns):
            return email
        why = "the caller is not known: no token was checked"
        if email or not patterns:
            why = f"{email or 'the caller'} matches no pattern in trigger.approvers; add a pattern there"
        raise RequestProblem(403, "not-allowed", why)

    def _tick(self, row: dict[str, Any]) -> Reply:
        from vertexrig.runs.store import OtherTriggerError

        try:
            return self.ticker.tick(row)
        except OtherTriggerError as error:
            raise RequestProblem(409, "other-trigger", str(error)) from None

    # Made, and their modules imported, at first use: most requests that start a job need none of them.
    @cached_property
    def _checked(self) -> CheckedTokens:
        from vertexrig.trigger.callers import CheckedTokens

        return CheckedTokens(self.loaded)

    @cached_property
    def deliveries(self) -> Deliveries:
        from vertexrig.trigger.history import Deliveries

        return Deliveries(self.storage)

    @cached_property
    def ticker(self) -> Ticker:
        from vertexrig.cloud.models import ModelsClient

        own, url = self.submitter, self.submitter.storage.rest.url
        claims = Claims(
            self.storage, lease_s=own.claims.lease_s, wait_s=0, clock=own.claims.clock, sleep=own.claims.sleep
        )
        submitter = Submitter(own.workspace, own.vertex, own.storage, claims=claims, limits=own.limits, fence=True)
        submitter.lineage = own.lineage
        return self.make_ticker(submitter, ModelsClient(own.vertex), lambda uri: Storage(uri, url=url))

    def make_ticker(self, submitter: Submitter, models: ModelsClient, folder: Callable[[str], Storage]) -> Ticker:
        """Return what ticks, with the services that it is given."""
        from vertexrig.runs.registration import Registrar
        from vertexrig.runs.steps import Steps
        from vertexrig.trigger.tick import Ticker

        # an engine of its own: a tick's claims do not wait, and it keeps what it has rendered until the next tick
        trigger, engine = self.loaded.project.trigger, self._engine(submitter)
        registrar = Registrar(self.loaded, submitter.workspace.catalog, models, submitter.claims, engine.runs, folder)
        engine.step = Steps(engine, registrar, folder).take  # `finish` is set by the ticker
        seconds = (times.duration_seconds(trigger.timeout) or 120.0) / 2
        return Ticker(
            engine, registrar, self.log, (trigger.uri or "").split("?")[0].rstrip("/"), seconds, trigger.notify
        )


def _detail(error: RequestProblem) -> str:
    return "; ".join(str(one.get("message", "")) for one in error.findings) or error.detail


def application(folder: Path) -> Trigger:
    """Return the trigger of a staged folder: its project file and environment, or the file that VERTEXRIG_FILE names."""
    file = os.environ.get(FILE_VARIABLE)
    env, revision = (
        one.read_text(encoding="utf-8") if one.is_file() and not file else None
        for one in (folder / environments.STAGED, folder / REVISION)
    )
    loaded = config.load(Path(file) if file else folder / config.DEFAULT_NAME, env=env)
    trigger = Trigger(loaded, revision=revision or "")
    trigger.warm_up()
    return trigger
