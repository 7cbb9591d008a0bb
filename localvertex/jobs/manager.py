"""Custom jobs from their creation to their end: stored, queued, run, taken up again after a kill of the server."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from localvertex.http import ApiError, Json, invalid, precondition
from localvertex.jobs import lifecycle, resources, validation
from localvertex.jobs.queue import Queue
from localvertex.jobs.resources import CUSTOM_JOBS
from localvertex.jobs.settings import Settings
from localvertex.jobs.store import ResourceStore, StoredResource
from localvertex.runner import containers, policy
from localvertex.runner.job_files import job_folder
from localvertex.runner.lines import SERVICE, Line
from localvertex.runner.options import Control
from localvertex.runner.result import SUSPENDED, JobError, JobResult
from localvertex.runner.run import JobRun
from localvertex.runner.warm import Warmth
from vertexrig.catalog import load
from vertexrig.errors import VertexrigError
from vertexrig.spec import cluster
from vertexrig.spec.document import Document
from vertexrig.spec.quota import QuotaNeed, quota_needs
from vertexrig.spec.states import CANCELLED, CANCELLING, ENDED, FAILED, PENDING, QUEUED, RUNNING

Keep = Callable[[str, Sequence[Line]], None]
"""Store log lines of the job with this resource name; they are stored when it returns."""


@dataclass(frozen=True)
class Watcher:
    """What is called as jobs and studies run, in their threads.

    Args:
        line: Called with the resource name of a job or study and each line of its log.
        state: Called with the resource name of a custom job and its new state, after each change except those to QUEUED, and those by
            which a restarted server queues the job again.
        trial: Called with a trial, as a tuning job shows it (`Trial.record`), at each change.
        result: Called with the resource name of a custom job and how it ended, before its last state. Not called if it got no machines, was
            cancelled in the queue or broke off by an error that its run does not handle, nor when the server closes.
    """

    line: Callable[[str, Line], None] = lambda name, line: None
    state: Callable[[str, str], None] = lambda name, state: None
    trial: Callable[[Json], None] = lambda trial: None
    result: Callable[[str, JobResult], None] = lambda name, result: None


class Jobs:
    """The custom jobs of a local Vertex.

    Args:
        settings: See `Settings`.
        store: Where jobs are kept.
        keep: Stores their log lines.
        admit: Raises `ApiError` for a spec that names something that does not exist under its parent, or does not fit it.
        begin_experiment_run: Makes a run of an experiment and returns its name, "" where there is no such experiment.
        watcher: Called as they run.

    Attributes:
        held: Names of jobs that wait because of a stockout fault.
    """

    def __init__(
        self,
        settings: Settings,
        store: ResourceStore,
        keep: Keep,
        admit: Callable[[str, Mapping[str, Any]], None] = lambda parent, spec: None,
        begin_experiment_run: Callable[[str], str] = lambda experiment: "",
        watcher: Watcher | None = None,
    ) -> None:
        self.admit, self.begin_experiment_run = admit, begin_experiment_run
        self.settings, self.store, self._keep, self.watcher = settings, store, keep, watcher or Watcher()
        self.queue = Queue(settings.slots, self._run)
        containers.clean(settings.root)
        self._warmth = Warmth() if settings.options.warm else None
        self._controls: dict[str, Control] = {}
        self._preemptions: dict[str, threading.Timer] = {}
        self._lock = threading.Lock()
        self._listeners = [self.watcher.state]
        self._closing = False
        self.held: set[str] = set()
        # The last line shown of what is done for a job that does not run yet, such as an installation. The keys are the job's name and that
        # of its tuning job or pipeline.
        self.progress: dict[str, str] = {}

    def listen(self, listener: Callable[[str, str], None]) -> None:
        """Have `listener(name, state)` called after each change of a job, as `Watcher.state` is; in the thread that changes it."""
        self._listeners.append(listener)

    # what clients ask for

    def create(self, parent: str, body: Mapping[str, Any]) -> Json:
        """Accept a CustomJob, or raise the service's 400 (or 403 and 429, by a fault on demand)."""
        region = parent.rpartition("/")[2]
        beside_spec, spec = validation.custom_job(body, region, checks=self.settings.checks)
        self.refuse_denied(parent, CUSTOM_JOBS, spec)
        self.admit(parent, spec)
        self.refuse_for_quota(spec, region)
        if spec.get("experiment") and not spec.get("experimentRun"):
            run = self.begin_experiment_run(str(spec["experiment"]))
            spec = {**spec, "experimentRun": run} if run else spec
        return self.add(parent, beside_spec, spec)

    def refuse_denied(self, parent: str, collection: str, spec: Mapping[str, Any]) -> None:
        """Raise the service's 403 if a fault on demand denies the creation of what runs a job (t5x-on-vertex-ai issue 5)."""
        _, project, _, region = parent.split("/")
        if self.settings.fault_for("denied", spec, region):
            permission = f"aiplatform.{collection}.create"
            place = f"projects/{resources.project_id(project)}/locations/{region}"
            message = f"Permission '{permission}' denied on resource '//aiplatform.googleapis.com/{place}' (or it may not exist)."
            of = {"domain": "aiplatform.googleapis.com", "metadata": {"permission": permission, "resource": place}}
            info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "IAM_PERMISSION_DENIED", **of}
            raise ApiError(403, message, details=[info])

    def refuse_for_quota(self, spec: Mapping[str, Any], region: str) -> None:
        """Raise the service's 429 if a fault on demand leaves no quota for a job."""
        if message := self.missing_quota(spec, region):
            detail = (
                "[ORIGINAL ERROR] generic::resource_exhausted: com.google.cloud.ai.platform.common.errors."
                f"AiPlatformException: code=RESOURCE_EXHAUSTED, message={message}, cause=null "
                f'[google.rpc.error_details_ext] {{ code: 8 message: "{message}" }}'
            )
            details = [{"@type": "type.googleapis.com/google.rpc.DebugInfo", "detail": detail}]
            raise ApiError(429, message, status="RESOURCE_EXHAUSTED", reason="rateLimitExceeded", details=details)

    def missing_quota(self, spec: Mapping[str, Any], region: str) -> str:
        """Return the service's message if a fault on demand leaves no quota for a job, else ""."""
        found = self.settings.fault_for("quota", spec, region)
        if found is None:
            return ""
        fits = found[1]
        catalog = load()
        items = {catalog.machines[name].family if name in catalog.machines else name for name in fits}
        needed = quota_needs(Document("CustomJobSpec", dict(spec)), catalog)
        # A fault that names a region takes every quota. One that names a machine takes the quota of its CPUs or, where they have
        # none of their own, that of its accelerators.
        named = [need for need in needed if region in fits or items & set(need.item.split(" and "))]
        exceeded = named or [need for need in needed if need.unit != "GB"]
        prefix = catalog.limits.text("quota.prefix")
        metrics = {need.metric or f"{prefix}{_unnamed(need)}" for need in exceeded} or {f"{prefix}cpus"}
        return f"The following quota metrics exceed quota limits: {','.join(sorted(metrics))}"

    def add(
        self,
        parent: str,
        beside_spec: Mapping[str, Any],
        spec: Mapping[str, Any],
        hidden: Mapping[str, Any] | None = None,
    ) -> Json:
        """Store a job and queue it.

        Args:
            parent: Its project and location.
            beside_spec: Its fields beside the spec: displayName, labels and the like.
            spec: Its canonical spec.
            hidden: What clients do not see: `trial` and `study` of a study's job, `pipeline` of a pipeline's, `quota` with the message of
                what it lacks. The job's spec is added here, and later how far it is (`counts`) and what its result says.
        """
        hidden = {**(hidden or {}), "spec": dict(spec)}
        name = resources.new_name(parent, CUSTOM_JOBS)
        fields = {**beside_spec, "jobSpec": resources.filled(resources.rest_form("CustomJobSpec", spec))}
        body = resources.new_body(name, PENDING, fields)
        # Both or none: a trial whose job is not recorded would be started twice after a crash.
        with self.store.database.transaction():
            self.store.add(CUSTOM_JOBS, parent, name, body, hidden)
            if "study" in hidden:
                self.store.adopt(hidden["study"], hidden["trial"], name)
        self._enqueue(name, spec)
        return body

    def get(self, name: str) -> Json:
        """Return a job's body, or 404."""
        return self._stored(name).body

    def cancel(self, name: str) -> None:
        """Begin to cancel a job; one that has ended stays as it is."""
        # Not an error: the REST reference calls cancelling a best effort.
        if self._stored(name).body["state"] in ENDED:
            return
        # the state comes first: a thread that starts the job at this moment reads it, and cancels the run itself
        self._change(name, CANCELLING)
        if self.queue.withdraw(name):
            self._change(name, CANCELLED, policy.ON_CANCEL)
            return
        # None where the thread has not registered it yet; `_run_with` then reads CANCELLING.
        control = self._controls.get(name)
        if control is not None:
            control.cancel()

    def delete(self, name: str) -> None:
        """Forget a job that has ended; 400 for one that has not."""
        lifecycle.remove_ended(self.store, name, CUSTOM_JOBS)
        # Outputs stay: they are in buckets, as on the service.
        shutil.rmtree(job_folder(self.settings.root, resources.last_part(name)), ignore_errors=True)

    def inject_fault(self, name: str, *, kill: str = "", preempt: float | None = None) -> None:
        """Kill a replica of a running job, or take its machines away with a window of `preempt` seconds."""
        stored = self._stored(name)
        control, state = self._controls.get(name), stored.body["state"]
        if control is None or state != RUNNING:
            raise precondition(f"{name} is not running: its state is {state}.")
        if kill:
            known = _replicas(stored.hidden["spec"])
            if kill not in known:
                raise invalid(f"{name} has no replica {kill!r}. Its replicas: {', '.join(known)}.")
            control.kill(kill)
        if preempt is not None:
            control.preempt(preempt)

    # life of the server

    def recover(self) -> None:
        """Continue the jobs of a server that was stopped or killed: they start again as after the loss of a worker."""
        for stored in self.store.unfinished(CUSTOM_JOBS):
            state, spec = stored.body["state"], stored.hidden["spec"]
            if state == CANCELLING:
                self._change(stored.name, CANCELLED, policy.ON_CANCEL)
            elif state == RUNNING and (spec.get("scheduling") or {}).get("disableRetries"):
                message = (
                    "Internal error occurred for the current attempt: the server stopped, and disableRetries is set"
                )
                self._change(stored.name, FAILED, JobError(policy.INTERNAL, message))
            else:
                if state == RUNNING:
                    self.log(
                        stored.name,
                        "The local Vertex was stopped while the job ran; its replicas restart.",
                        "WARNING",
                    )
                    self.store.change(stored.name, lambda own, _: resources.move(own, PENDING))
                    self.store.change(stored.name, lambda own, _: resources.move(own, QUEUED))
                self._enqueue(stored.name, spec)

    def close(self) -> None:
        """Stop every process; jobs that ran go on with the next server."""
        with self._lock:
            # Under the lock, so that a job that starts now is either suspended below or does not begin.
            self._closing = True
            controls = list(self._controls.values())
        for control in controls:
            control.suspend()
        # Forkers after the queue: a replica that is being started may still ask one.
        self.queue.close()
        if self._warmth is not None:
            self._warmth.close()

    # the life of one job

    def _stored(self, name: str) -> StoredResource:
        return lifecycle.stored(self.store, name, CUSTOM_JOBS)

    def _enqueue(self, name: str, spec: Mapping[str, Any]) -> None:
        """Put a job into the queue. If it has to wait for slots, it becomes QUEUED now, otherwise in `_run_with`."""
        if not self.queue.submit(name, len(_replicas(spec))):
            self._set_queued(name)

    def _set_queued(self, name: str) -> None:
        """Set a job that is PENDING since its creation to QUEUED."""
        with suppress(sqlite3.Error, OSError):  # a full disk: the job is in the queue, and runs all the same
            self.store.change(name, lifecycle.set_queued)

    def _run(self, name: str) -> None:
        """Run a job to its end, or until the server closes. After an error that its run does not handle, the job fails."""
        with self._lock:
            if self._closing:
                return
            # Registered before `_run_with` reads the state: a cancellation either finds this control, or has already written
            # CANCELLING, which `_run_with` reads.
            control = self._controls[name] = Control()
        try:
            self._run_with(name, control)
        except Exception as error:  # a defect here must not leave a job running
            message = f"Internal error occurred for the current attempt: {error}"
            self._fail_when_possible(name, JobError(policy.INTERNAL, message))
            # Any error but these is a defect of this program: its traceback belongs into the server's log.
            if not isinstance(error, (VertexrigError, OSError, sqlite3.Error)):
                raise
        finally:
            with self._lock:
                self._controls.pop(name, None)
            if timer := self._preemptions.pop(name, None):
                timer.cancel()
            control.close()

    def _run_with(self, name: str, control: Control) -> None:
        """Take a job from the queue to its end. Its states: PENDING; QUEUED; PENDING until it has machines and packages; RUNNING; its last one."""
        stored = self.store.get(name)
        if stored is None or stored.body["state"] in ENDED:
            return
        if stored.body["state"] == CANCELLING:
            control.cancel()
        # The hidden spec is canonical; the body has the form of REST, with int64 as text.
        region, spec = resources.location_of(name), stored.hidden["spec"]
        of_its_own = "trial" not in stored.hidden and "pipeline" not in stored.hidden
        if of_its_own and stored.body["state"] == PENDING:
            control.wait(self.settings.pending_for)
        self._set_queued(name)
        if of_its_own:
            control.wait(self.settings.queued_for)
        self._change(name, PENDING)
        if message := self._lacking_machines(stored, region, control):
            self.log(name, message, "ERROR")
            self._change(name, FAILED, JobError(policy.RESOURCE_EXHAUSTED, message))
            return
        options = replace(
            self.settings.options,
            job_id=resources.last_part(name),
            project_number=name.split("/")[1],
            region=region,
            trial=str(stored.hidden.get("trial", "")),
            study_id=resources.last_part(str(stored.hidden.get("study", ""))),
            earlier=stored.hidden.get("counts", {}),
        )
        if spec.get("persistentResourceId"):
            # Its machines run already; it spares what creating them takes (page persistent-resource-train, 2025-08-28).
            options = replace(options, provision=0.0, slow_start=0.0)
        shown_for = [name, *(str(stored.hidden[key]) for key in ("study", "pipeline") if key in stored.hidden)]
        with _JobLog(self._write, name, self.progress, shown_for) as log:

            def on_state(state: str) -> None:
                log.enter(state)
                self._reach(name, state, spec, region, control)

            result = JobRun(
                spec,
                root=self.settings.root,
                on_line=log.add,
                on_state=on_state,
                on_pause=log.flush,
                control=control,
                options=options,
                warmth=self._warmth,
            ).run()
        if result.state == SUSPENDED:
            with suppress(sqlite3.Error, OSError):  # a full disk: the next server then counts anew
                self.store.change(name, lambda _, hidden: hidden.update(counts=dict(result.counts)))
        else:
            # Before the last state: a caller that waits for it finds the result.
            self.watcher.result(name, result)
            told = {
                "warnings": result.warnings,
                "hint": result.hint,
                "differences": result.differences,
                "printed": result.printed,
            }
            if any(told.values()):
                self.store.change(name, lambda _, hidden: hidden.update(told))
            self._change(name, result.state, result.error)

    def _lacking_machines(self, stored: StoredResource, region: str, control: Control) -> str:
        """Return the service's message if a job gets no machines, else "". Waits while a stockout fault with `wait` lasts."""
        if missing_quota := str(stored.hidden.get("quota", "")):  # which only a pipeline's job can have
            self._change(stored.name, RUNNING)  # as a pipeline's job was seen to do
            return missing_quota
        found = self.settings.fault_for("stockout", stored.hidden["spec"], region)
        if found is None:
            return ""
        fault, message = found[0], policy.stockout_message(region)
        if not fault.waits:
            return message
        logged_at = 0.0
        self.held.add(stored.name)
        try:
            while fault.on and fault in self.settings.faults and not control.ends:
                # The log of a job that waits was seen to repeat the line; how often is not on record.
                if time.monotonic() >= logged_at + 60:
                    logged_at = time.monotonic()
                    self.log(stored.name, message, "ERROR")
                control.wait(0.1)
        finally:  # the log raises where the disk is full
            self.held.discard(stored.name)
        return ""

    def _reach(self, name: str, state: str, spec: Mapping[str, Any], region: str, control: Control) -> None:
        """Change the job to the state that its run has reached, and start the timer of a preemption on demand when it is running."""
        self._change(name, state)
        if earlier := self._preemptions.pop(name, None):
            earlier.cancel()
        found = self.settings.fault_for("preempt", spec, region) if state == RUNNING else None
        if found is not None:
            timer = self._preemptions[name] = threading.Timer(found[0].after, control.preempt)
            timer.daemon = True
            timer.start()

    def _change(self, name: str, state: str, error: JobError | None = None) -> None:
        """Change a job's state, and report a change to the listeners."""
        if lifecycle.advance(self.store, name, state, asdict(error) if error else None, lifecycle.require):
            self._report(name, state)

    def _report(self, name: str, state: str) -> None:
        """Tell the watcher of this process and whoever called `listen` a job's new state."""
        # Outside the transaction of the change: a listener may change other resources.
        for listener in self._listeners:
            listener(name, state)

    def _fail_when_possible(self, name: str, error: JobError) -> None:
        """Let a job fail, also when the disk is full: then as soon as there is room. One that has ended is reported again: a listener may
        have raised the error.
        """
        while True:
            try:
                lifecycle.advance(self.store, name, FAILED, asdict(error))
                if stored := self.store.get(name):
                    self._report(name, stored.body["state"])
                return
            except (sqlite3.Error, OSError):
                if self._closing:
                    return  # the next server takes the job up
                time.sleep(1.0)

    def log(self, name: str, text: str, severity: str) -> None:
        """Write a line of the service into the log of a job or a study."""
        self._write(name, [Line(time.time(), SERVICE, severity, text)])

    def _write(self, name: str, lines: Sequence[Line]) -> None:
        self._keep(name, lines)
        for line in lines:
            self.watcher.line(name, line)


class _JobLog:
    """The log of a job that runs: collects its lines, and writes them when `flush` is called or 1,000 have gathered.

    Until the job runs, the last line shown is the progress of the job, and of the tuning job or pipeline that it is part of.
    """

    # Lines per transaction: enough that the disk's pace does not matter, few enough that readers see output at once.
    _MOST = 1000

    def __init__(self, write: Keep, name: str, progress: dict[str, str], shown_for: Sequence[str]) -> None:
        self.write, self.name, self.progress, self.shown_for = write, name, progress, shown_for
        self.lines: list[Line] = []
        self.state = PENDING

    def enter(self, state: str) -> None:
        self.state = state
        for owner in self.shown_for:
            self.progress.pop(owner, None)

    def add(self, line: Line) -> None:
        self.lines.append(line)
        if len(self.lines) >= self._MOST:
            self.flush()
        if self.state == PENDING and line.shown:
            self.progress.update(dict.fromkeys(self.shown_for, line.text))

    def flush(self) -> None:
        if self.lines:
            lines, self.lines = self.lines, []
            self.write(self.name, lines)

    def __enter__(self) -> _JobLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.enter("")
        self.flush()


def _replicas(spec: Mapping[str, Any]) -> list[str]:
    return [replica.name for replica in cluster.replicas(Document("CustomJobSpec", dict(spec)).pools)]


def _unnamed(need: QuotaNeed) -> str:
    """Return a metric's name by the pattern of the others, where no source names it."""
    ending = {"vCPUs": "_cpus", "GPUs": "_gpus"}.get(need.unit, "")
    return f"{'preemptible_' if need.preemptible else ''}{need.item.lower().replace('-', '_')}{ending}"
