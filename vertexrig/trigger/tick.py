"""One tick: moves the open runs of a trigger within half of the function's timeout, and sends notices.

The runs are in the order of their ages. A tick begins after the last run of the tick before it, if that ran out of time, otherwise with
the oldest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import product
from typing import Any

from vertexrig import times
from vertexrig.catalog import Catalog
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import LIVE_FILTER, RESOURCES, RemoteJob
from vertexrig.errors import VertexrigError
from vertexrig.project.triggered import Notify
from vertexrig.runs import store
from vertexrig.runs.engine import Engine, Moved
from vertexrig.runs.policy import EVERY, Hold, Holds
from vertexrig.runs.registration import Registrar
from vertexrig.runs.run import Run
from vertexrig.spec.labels import CLAIM_LABEL
from vertexrig.trigger import alarms, answers, history, notify
from vertexrig.trigger.answers import Reply
from vertexrig.trigger.history import Deliveries

Log = Callable[[Mapping[str, Any]], None]


@dataclass
class Ticker:
    """Ticks of one trigger.

    Args:
        engine: Moves runs; its claims do not wait.
        registrar: Registers the models of runs.
        uri: The URL of this function, "" if the project file has none.
        seconds: A tick's longest time.
        clock: Seconds, from any start.
    """

    engine: Engine
    registrar: Registrar
    log: Log
    uri: str = ""
    seconds: float = 60.0
    wanted: tuple[Notify, ...] = ()
    clock: Callable[[], float] = time.monotonic
    send: Callable[[Notify, notify.Notice], None] | None = None

    def __post_init__(self) -> None:
        self.storage = self.engine.runs.storage
        self.deliveries = Deliveries(self.storage)
        self.notices = notify.Notices(self.storage, self.wanted, send=self.send)
        self.engine.finish = self.finish

    def finish(self, run: Run) -> None:
        """Write the end of a run into the history, once, and its notice."""
        own = self.engine.submitter
        name = run.job or next((one.job for one in reversed(run.attempts) if one.job), "")
        job = own.vertex.get(name) if name else None
        catalog: Catalog = own.workspace.catalog
        end = history.end_of(run, job, own.vertex, own.workspace.loaded, catalog, own.storage)
        row = self.deliveries.write_end(run, end)
        self.notices.keep(notify.notice_of(row))
        self.log(history.end_entry(row) if row["decision"] == "created" else history.delivery_of(run).entry)

    def tick(self, row: dict[str, Any]) -> Reply:
        """Move each open run as far as it goes now; counts are added to `row`, the log entry of the tick itself."""
        begun = self.clock()
        lease = store.begin_tick(self.storage, self.uri, self.seconds, self.engine.now)
        if lease is None:
            return Reply(200, {"runs": [], "running": True})

        def late() -> bool:
            return self.clock() - begun > self.seconds

        moved, left, after = list[Moved](), 0, ""
        try:
            found = self._open()
            moved, left, after = self._runs(found, lease, late)
            self._give_alarms([*found, *(one.run for one in moved)], lease)
            for entry in self.notices.send_all(lease.now, late):
                self.log(entry)
        finally:
            store.end_tick(self.storage, lease, after)
        states = [one.state for one in moved]
        row |= {state: states.count(state) for state in sorted(set(states))} | ({"left": left} if left else {})
        return Reply(200, {"runs": [self._row(one) for one in moved], **({"left": left} if left else {})})

    def _give_alarms(self, runs: list[Run], lease: store.Lease) -> None:
        """Log and keep what is overdue or late, once; what fails is repeated by the next tick."""
        schedules = self.engine.submitter.workspace.loaded.project.schedules
        try:
            for notice in alarms.Alarms(schedules, self.deliveries, lease.settled, runs, lease.now).notices():
                self.notices.keep(notice)
                self.log(alarms.entry(notice))
        except VertexrigError as error:
            self.log({"severity": "WARNING", "message": f"alarms were not checked: {error}"})

    def _open(self) -> list[Run]:
        """Return the open runs in the order in which ticks take them."""
        found = list[Run]()
        for one in self.engine.runs.open():
            if isinstance(one, str):
                self.log({"severity": "WARNING", "message": store.left_alone(one)})
            else:
                found.append(one)
        return sorted(found, key=lambda run: run.order)

    def _runs(self, found: list[Run], lease: store.Lease, late: Callable[[], bool]) -> tuple[list[Moved], int, str]:
        if not found:
            return [], 0, ""
        # lease.after: the last run that the tick before this one took, "" unless it ran out of time
        begin = next((index for index, run in enumerate(found) if run.order > lease.after), 0) if lease.after else 0
        found = found[begin:] + found[:begin]
        holds = Holds(self.storage).current() if any(run.of_schedule for run in found) else {}
        live = None if all(run.phase == "waiting" for run in found) else self._live()
        self.engine.new_tick(None if live is None else live.values())
        newest = self._newest(found)
        moved, last = list[Moved](), lease.after
        for number, run in enumerate(found):
            if late():
                return moved, len(found) - number, last
            last = run.order
            try:
                moved.append(self._move(run, live or {}, _hold(run, holds), newest.get(run.schedule, ""), lease.now))
            except Exception as error:
                self.log(
                    {
                        "severity": "ERROR",
                        "message": f"the tick could not process run {run.name} {run.id}",
                        **answers.failure(error),
                    }
                )
                moved.append(Moved(run, "unknown", text="the log says what went wrong", problem=True))
        return moved, 0, ""

    def _newest(self, found: Sequence[Run]) -> dict[str, str]:
        """Return when the newest run was due that takes the place of older ones, by schedule: it waits for its first job, or has a job."""
        own = [run for run in found if run.schedule and not run.backfill]
        waiting = {run.schedule for run in own if run.phase == "waiting" and not run.had_job}
        newest = dict[str, str]()
        for run in sorted(own, key=lambda run: times.nanoseconds(run.time) or 0):
            if run.schedule not in waiting:
                continue
            try:
                if run.phase == "waiting" or self.engine.has_job(run):
                    newest[run.schedule] = run.time
            except VertexrigError as error:  # of its claim: the other runs go on
                self.log(
                    {
                        "severity": "WARNING",
                        "message": f"it is not known whether {run.name} {run.id} has a job: {error}",
                    }
                )
        return newest

    def _live(self) -> dict[str, RemoteJob]:
        """Return the jobs with a claim that live, by name."""
        own, found = self.engine.submitter, dict[str, RemoteJob]()
        for vertex, collection in product(own.ledger.vertices, RESOURCES):
            for job in vertex.list(collection, filter=f"labels.{CLAIM_LABEL}:* AND {LIVE_FILTER}"):
                found[job.name] = job
        return found

    def _move(self, run: Run, live: Mapping[str, RemoteJob], hold: str, newest: str, at: datetime) -> Moved:
        """Move a run, and log what became of it; `run` is as it was before."""
        name = run.job if run.phase == "step" else run.attempts[-1].job if run.attempts else ""
        try:
            moved = self.engine.move(run, live.get(name), hold, newest, at)
        except RestError as error:
            moved = Moved(run, "waiting", name, str(error), problem=True, inside=True)
            self.log({"severity": "WARNING", "message": self._message(moved), **self._row(moved, whole=True)})
            return moved
        used = moved.made.used if moved.made is not None else {}
        if moved.first_job and moved.made is not None:
            made = history.delivery_of(moved.run)
            made.decision, made.reason = "created", run.reason
            made.job, made.estimate = moved.made.name, moved.made.estimate
            candidate = self.engine.which_candidate(moved.run)
            made.detail |= {**used, **({"candidate": candidate} if candidate else {})}
            self.log(made.entry)
        elif moved.state == "started" or (moved.problem and moved.state != "ended"):
            severity = "WARNING" if moved.problem else "INFO"
            self.log({"severity": severity, "message": self._message(moved), **self._row(moved, whole=True), **used})
        if moved.problem and moved.run.phase == "step" and moved.state != "ended" and run.noticed != moved.run.at:
            with suppress(RestError):  # the next tick keeps the same notice
                row = {**history.row_of(moved.run), "schedule": run.of_schedule}
                self.notices.keep(notify.waiting(row, moved.run.at, moved.text))
                if (stored := self.engine.runs.read(run.id)) is not None:  # the step may have written it
                    self.engine.runs.save(replace(stored, noticed=moved.run.at))
        return moved

    def _row(self, moved: Moved, whole: bool = False) -> dict[str, Any]:
        run, text = moved.run, moved.text
        if moved.inside and not whole:
            text = "a service refused the trigger or cannot be reached; its log says why"
        more = {"outcome": run.reason, "model": run.model} if moved.ended else {}
        row = {
            "id": run.id, "schedule": run.of_schedule, "schedule_time": run.time, "run": run.name,
            "phase": run.phase, "state": moved.state, "candidate": self.engine.which_candidate(run), "step": run.at if run.steps else "",
            "job": moved.job, "text": text, **more,
        }  # fmt: skip
        return {name: value for name, value in row.items() if value}

    def _message(self, moved: Moved) -> str:
        run = moved.run
        what = (run.schedule, run.name, self.engine.which_candidate(run), run.at if run.steps else "", moved.state)
        return " ".join(filter(None, what)) + (f": {moved.text}" if moved.text else "")


def _hold(run: Run, holds: Mapping[str, Hold]) -> str:
    """Return why a run's schedule is on hold, "" if it is not."""
    schedule = run.of_schedule
    hold = (holds.get(schedule) or holds.get(EVERY)) if schedule else None
    return "" if hold is None else hold.text
