"""Tuning jobs: each a study run by the engine, its trials run as custom jobs of the same local Vertex."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from localvertex.http import Json
from localvertex.jobs import lifecycle, resources, validation
from localvertex.jobs.manager import Jobs
from localvertex.jobs.resources import TUNING_JOBS
from localvertex.jobs.store import ResourceStore, StoredResource
from localvertex.jobs.study_engine import StudyEngine
from localvertex.jobs.study_run import Handle, StudyRun, TrialOutcome
from localvertex.runner import policy
from localvertex.runner.job_files import metric_file
from vertexrig.errors import VertexrigError
from vertexrig.spec.states import CANCELLED, CANCELLING, ENDED, FAILED, PENDING, QUEUED, RUNNING, SUCCEEDED
from vertexrig.spec.trial import Trial, TrialState
from vertexrig.times import seconds_since_1970

_LOOK_EVERY = 0.2
"""Seconds between two looks at the metric files; the end of a trial is noticed at once."""

_AT_START_S = 120.0
"""A trainer that ends within this many seconds, with no metric reported, has ended at its start."""
_USAGE = "non-zero status of 2."
"""In the error of a job whose program refused its arguments, as argparse does; on a busy machine that takes longer."""
_SPEC = "hyperparameter_tuning_job.study_spec"
_NEVER = "1970-01-01T00:00:00Z"


class JobExecutor:
    """Runs trials as custom jobs (`localvertex.jobs.study_run.Executor`)."""

    def __init__(self, jobs: Jobs, study: StoredResource) -> None:
        self.jobs, self.study = jobs, study

    def start(self, trial: Trial, args: list[str]) -> Handle:
        """Start a trial's job, or find the one that was started before the server was killed."""
        return self.known(trial) or self.restart(trial, args)

    def known(self, trial: Trial) -> Handle | None:
        """Return the job that was started for a trial, None if there is none."""
        # The link is in the transaction that adds the job, so a crash leaves both or none.
        name = self.jobs.store.child(self.study.name, trial.id)
        return self._handle(name) if name and self.jobs.store.get(name) is not None else None

    def restart(self, trial: Trial, args: list[str]) -> Handle:
        """Start a trial's job, whatever was run for the trial before."""
        body, data = self.study.body, self.study.hidden["spec"]
        beside_spec = {
            # A display name has at most 128 characters; the end must not be the part that is cut.
            "displayName": f"{body['displayName'][:100]}-trial-{trial.id}",
            "labels": dict(body.get("labels") or {}),
        }
        spec = with_arguments(data["trialJobSpec"], args)
        parent = self.study.name.rpartition(f"/{TUNING_JOBS}/")[0]
        hidden = {"trial": trial.id, "study": self.study.name}
        made = self.jobs.add(parent, {k: v for k, v in beside_spec.items() if v}, spec, hidden)
        return self._handle(str(made["name"]))

    def _handle(self, name: str) -> Handle:
        return Handle(name, metric_file(self.jobs.settings.root, resources.last_part(name)))

    def poll(self, handle: Handle) -> TrialOutcome | None:
        """Return how a trial's job ended."""
        stored = self.jobs.store.get(handle.custom_job)
        if stored is None:
            return TrialOutcome(False, "The trial's CustomJob was deleted.")
        state = stored.body["state"]
        if state not in ENDED:
            return None
        error = stored.body.get("error") or {}
        seconds = seconds_since_1970(stored.body["endTime"]) - seconds_since_1970(
            # A job that never ran has no start, and so did not end soon after it.
            stored.body.get("startTime") or _NEVER
        )
        message = str(error.get("message", ""))
        # INVALID_ARGUMENT is what an exit of the program itself gives; stockouts and defects of this machine have
        # other codes.
        exited = state == FAILED and error.get("code") == policy.INVALID_ARGUMENT
        return TrialOutcome(state == SUCCEEDED, message, exited and (seconds <= _AT_START_S or _USAGE in message))

    def stop(self, handle: Handle) -> None:
        """Cancel a trial's job."""
        self.jobs.cancel(handle.custom_job)


class Studies:
    """The tuning jobs of a local Vertex, whose trials are its custom jobs."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs, self.store = jobs, jobs.store
        self._runs: dict[str, StudyRun] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()
        self._closing = False
        jobs.listen(self._changed)

    # what clients ask for

    def create(self, parent: str, body: Mapping[str, Any]) -> Json:
        """Accept a HyperparameterTuningJob, or raise the service's 400."""
        region, checks = parent.rpartition("/")[2], self.jobs.settings.checks
        return self.add(parent, validation.tuning_job(body, region, checks=checks))

    def add(self, parent: str, data: Mapping[str, Any]) -> Json:
        """Keep a tuning job, canonical and checked, and start it; 400 for a study that cannot be searched."""
        region = parent.rpartition("/")[2]
        if not data.get("trialJobSpec") or not data.get("studySpec"):
            raise validation.found_errors(
                [(_SPEC if data.get("trialJobSpec") else "trial_job_spec", "It is required.")]
            )
        counts = (("max_trial_count", "maxTrialCount"), ("parallel_trial_count", "parallelTrialCount"))
        wrong = [(path, "It must be at least 1.") for path, name in counts if int(data.get(name, 0)) < 1]
        if wrong:
            raise validation.found_errors(wrong)
        name = resources.new_name(parent, TUNING_JOBS)
        made = resources.new_body(
            name, PENDING, resources.filled_tuning(resources.rest_form("HyperparameterTuningJob", data))
        )
        # Before it is kept: what cannot be searched is refused, and leaves nothing.
        engine = new_engine(data["studySpec"], _SPEC, seed=self.jobs.settings.seed, created=_created(made))
        self.jobs.refuse_denied(parent, TUNING_JOBS, data["trialJobSpec"])
        self.jobs.admit(parent, data["trialJobSpec"])
        self.jobs.refuse_for_quota(data["trialJobSpec"], region)
        self.store.add(TUNING_JOBS, parent, name, made, {"spec": dict(data)})
        self._start(name, engine)
        return made

    def get(self, name: str) -> Json:
        """Return a tuning job's body with its trials, or 404."""
        return with_trials(self.store, self._stored(name))

    def whole(self, name: str) -> Json:
        """Return what `get` does, and of ended trials their jobs and measurements, too."""
        return with_trials(self.store, self._stored(name), whole=True)

    def cancel(self, name: str) -> None:
        """Begin to cancel a tuning job and its trials."""
        if self._stored(name).body["state"] in ENDED:
            return
        # The state first, as `_study` makes its run known first: one of the two sees the other.
        lifecycle.advance(self.store, name, CANCELLING)
        run = self._runs.get(name)
        if run is not None:
            run.cancel()

    def delete(self, name: str) -> None:
        """Forget a tuning job that has ended; its custom jobs stay. 400 for one that has not ended."""
        lifecycle.remove_ended(self.store, name, TUNING_JOBS)

    # life of the server

    def recover(self) -> None:
        """Go on with the studies of a server that was killed; call it after `Jobs.recover`."""
        for stored in self.store.unfinished(TUNING_JOBS):
            self._start(stored.name)

    def close(self) -> None:
        """Stop working; the next server goes on. Call it before `Jobs.close`."""
        with self._lock:
            self._closing = True
            threads = list(self._threads.values())
        for run in list(self._runs.values()):
            run.notify()
        for thread in threads:
            # Threads are daemons: one that hangs does not keep the server from ending.
            thread.join(10)

    # the life of one study

    def _stored(self, name: str) -> StoredResource:
        return lifecycle.stored(self.store, name, TUNING_JOBS)

    def _changed(self, name: str, state: str) -> None:
        """Take note that a custom job changed; wake its study if a trial has ended."""
        if state in ENDED:
            stored = self.store.get(name)
            run = self._runs.get(str(stored.hidden.get("study", ""))) if stored else None
            if run is not None:
                run.notify()

    def _start(self, name: str, engine: StudyEngine | None = None) -> None:
        with self._lock:
            if self._closing:
                return
            thread = self._threads[name] = threading.Thread(
                target=self._work, args=(name, engine), name=f"study {name}", daemon=True
            )
        thread.start()

    def _work(self, name: str, engine: StudyEngine | None) -> None:
        try:
            while True:
                try:
                    return self._study(name, engine)
                except (sqlite3.Error, OSError):  # a full disk: the study goes on from what is stored
                    if self._closing:
                        return
                engine = None  # it may hold what was not stored
                time.sleep(1.0)
        except Exception as error:  # a defect here must not leave a study running
            message = f"Internal error occurred for the current attempt: {error}"
            lifecycle.advance(self.store, name, FAILED, {"code": policy.INTERNAL, "message": message})
            if not isinstance(error, VertexrigError):
                raise
        finally:
            with self._lock:
                for table in (self._runs, self._threads):
                    table.pop(name, None)

    def _study(self, name: str, engine: StudyEngine | None) -> None:
        stored = self._stored(name)
        data = stored.hidden["spec"]

        def save(record: Json) -> None:
            self.store.save_trial(name, record)
            self.jobs.watcher.trial(record)

        def failing(message: str) -> None:
            self.store.change(name, lambda _, hidden: hidden.update(failing=message))

        # The one of `create` for a study that is new; after a restart it is built from what is stored.
        engine = engine or StudyEngine(
            data["studySpec"],
            seed=self.jobs.settings.seed,
            trials=self.store.trials(name),
            created=_created(stored.body),
        )
        run = self._runs[name] = StudyRun(
            engine,
            JobExecutor(self.jobs, stored),
            save,
            max_trial_count=int(data["maxTrialCount"]),
            parallel_trial_count=int(data["parallelTrialCount"]),
            max_failed_trial_count=int(data.get("maxFailedTrialCount", 0)),
            failing=stored.hidden.get("failing", ""),
            on_failing=failing,
            discrete=self.jobs.settings.discrete,
        )
        if stored.body["state"] == PENDING:
            time.sleep(self.jobs.settings.pending_for)
            self.store.change(name, lifecycle.set_queued)
        if stored.body["state"] in (PENDING, QUEUED):
            time.sleep(self.jobs.settings.queued_for)
        # Read again, after the run is in the table: `cancel` may have come between.
        if self._stored(name).body["state"] == CANCELLING:
            run.cancel()
        else:
            lifecycle.advance(self.store, name, RUNNING)
        result = run.run(interval=_LOOK_EVERY, closing=lambda: self._closing)
        if result is None:
            return  # the server closes
        if run.note:
            self.jobs.log(name, run.note, "WARNING")
        code = {FAILED: policy.INTERNAL, CANCELLED: policy.CANCELLED_CODE}.get(result.state)
        # The service's own word, of a job and of a study.
        message = "CANCELED" if result.state == CANCELLED else result.message
        lifecycle.advance(self.store, name, result.state, {"code": code, "message": message} if code else None)


def new_engine(spec: Mapping[str, Any], path: str, *, seed: int = 0, created: float | None = None) -> StudyEngine:
    """Return the engine of a new study; 400 for a spec that it cannot search, whose field is `path`."""
    try:
        return StudyEngine(spec, seed=seed, created=created)
    except VertexrigError as error:
        raise validation.found_errors([(path, str(error))]) from None
    # Without checks a spec comes here whose values were not compared with the rules.
    except (ValueError, KeyError, TypeError, ArithmeticError) as error:
        raise validation.found_errors([(path, f"It cannot be searched: {error}")]) from None


def _created(study: Json) -> float:
    return seconds_since_1970(study["createTime"])


def with_trials(store: ResourceStore, study: StoredResource, *, whole: bool = False) -> Json:
    """Return a tuning job's body with its trials, as the API shows it; with `whole`, with all that is known of them."""
    trials = [_shown(record, whole) for record in store.trials(study.name)]
    if not whole and study.body["state"] not in ENDED:
        trials = [_waiting(store, study, trial) for trial in trials]
    return {**study.body, "trials": trials} if trials else study.body


def _waiting(store: ResourceStore, study: StoredResource, trial: Json) -> Json:
    """Return a trial as one that is only asked for while its job waits (index id 53540132913, 2026-03-13)."""
    if trial["state"] != TrialState.ACTIVE.value:
        return trial
    job = store.get(store.child(study.name, str(trial["id"])))
    if job is not None and job.body["state"] not in (PENDING, QUEUED):
        return trial
    left_out = ("startTime", "customJob", "measurements")
    return {key: value for key, value in trial.items() if key not in left_out} | {"state": TrialState.REQUESTED.value}


def _shown(record: Mapping[str, Any], whole: bool) -> Json:
    """Return a trial's record as a tuning job shows it.

    Its final measurement has no time (recordings of 2021 and 2022), and step 1 where the trainer reported step 0 or none (recording of 2023-12-28).
    Once it has ended, neither its job nor its measurements are shown (seven recordings of 2021 to 2024), though the message has both.
    """
    # `failed` is the run's own; the API's Trial has no such field.
    left_out = ("failed",) if whole or not record.get("endTime") else ("failed", "customJob", "measurements")
    shown = {key: value for key, value in record.items() if key not in left_out}
    if final := shown.get("finalMeasurement"):
        timeless = {key: value for key, value in final.items() if key != "elapsedDuration"}
        shown["finalMeasurement"] = timeless | ({"stepCount": "1"} if timeless.get("stepCount") == "0" else {})
    return shown


def with_arguments(spec: Mapping[str, Any], args: Sequence[str]) -> Json:
    """Return a trial's CustomJobSpec: the given one with the trial's values after each pool's own arguments."""
    pools = []
    # Every pool gets them: workers and parameter servers parse the same flags as the chief.
    for pool in spec.get("workerPoolSpecs", ()):
        pool = dict(pool)
        for key in ("pythonPackageSpec", "containerSpec"):
            if pool.get(key):
                pool[key] = {**pool[key], "args": [*pool[key].get("args", ()), *args]}
        pools.append(pool)
    return {**spec, "workerPoolSpecs": pools}
