"""The history of a trigger: its deliveries, and how its runs ended.

The end of a run is one object, which is written once and never removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

from vertexrig import times
from vertexrig.catalog import Catalog
from vertexrig.cloud.storage import Item, Storage, as_json
from vertexrig.cloud.vertex import TUNING, RemoteJob, Vertex
from vertexrig.errors import VertexrigError
from vertexrig.project.config import Loaded
from vertexrig.results.study import course
from vertexrig.runs import approval
from vertexrig.runs.advance import Seen, advance
from vertexrig.runs.deliveries import FOLDER, GOOD, NO_MACHINES, ROW, Decision, Delivery, write_row
from vertexrig.runs.engine import closed
from vertexrig.runs.policy import job_in_claim
from vertexrig.runs.run import Run
from vertexrig.runs.store import RunStore, path_of
from vertexrig.spec.api_names import JOB
from vertexrig.spec.states import short
from vertexrig.studies import trained
from vertexrig.studies.cost import spent
from vertexrig.submit.claims import Claims


class Deliveries:
    """The history of one trigger. A row is a delivery's data, with `end` where its run has ended, or `phase` where it is open."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def rows(self, since: datetime, schedule: str = "") -> list[dict[str, Any]]:
        """Return the deliveries since a time, the newest first; all of them or those of one schedule."""
        first = times.rfc3339(since, 3)
        # before the rows of ends, so that a run that ends meanwhile is in one of the two
        runs = [one for one in RunStore(self.storage).open() if not isinstance(one, str)]
        found = [row for month in _months(since) for row in self._month(month).values()]
        ended = {row["claim"] for row in found if "end" in row}
        found += [row_of(one) for one in runs if one.id not in ended]
        chosen = [
            row for row in found if row.get("time", "") >= first and schedule in ("", str(row.get("schedule", "")))
        ]
        return sorted(chosen, key=lambda row: str(row["time"]), reverse=True)

    def of_day(self, day: str) -> list[dict[str, Any]]:
        """Return the rows of deliveries that came on a day, and of runs that began then, such as 2026-11-26."""
        found = self.storage.list(f"{FOLDER}/{day[:7]}/{day.replace('-', '')}", metadata=True)
        return [row for item in found if (row := self._data(item)) is not None]

    def _month(self, month: str) -> dict[str, dict[str, Any]]:
        """Return a month's rows by their objects' names without ending."""
        rows: dict[str, dict[str, Any]] = {}
        for item in self.storage.list(f"{FOLDER}/{month}/", metadata=True):
            data = self._data(item)
            if data is not None and isinstance(data.get("time"), str):
                rows[item.name.removesuffix(".json")] = {**data, "object": item.name}
        return rows

    def _data(self, item: Item) -> dict[str, Any] | None:
        row = as_json(item.metadata.get(ROW, "").encode())
        # copied by a tool that leaves metadata behind, or too long for it
        return self.storage.read_json(item.name) if row is None or row.get("cut") else row

    def settle(
        self, rows: Iterable[dict[str, Any]], loaded: Loaded, vertex: Vertex, catalog: Catalog
    ) -> list[dict[str, Any]]:
        """Give rows of open runs the `state` of their job, and the `end` that the next tick writes if the job decides it.

        A run of one attempt without steps is closed at once, so that a trigger without a tick has ends, too.

        Returns:
            The rows that got an end.
        """
        runs, ended = RunStore(self.storage), []
        open_rows = {str(row["claim"]): row for row in rows if "phase" in row}
        open_runs = {one.id: one for one in runs.open() if not isinstance(one, str)} if open_rows else {}
        for claim, row in open_rows.items():
            run = open_runs.get(claim)
            if run is None:  # it has ended since the rows were read
                day = self.of_day(str(row["time"])[:10])
                row.update(next((one for one in day if one.get("claim") == claim and "end" in one), {}))
                ended += [row] if "end" in row else []
                continue
            name = run.job or (run.attempts[-1].job if run.attempts else "")
            if not name and run.phase == "attempt":
                name = job_in_claim(Claims(self.storage), run)
                run = run.with_attempt(job=name) if name else run
            job = vertex.get(name) if name else None
            if name:
                row.update(job=name, state=short(job.state) if job is not None else "gone")
            if run.phase == "ended":  # a tick is about to write its end
                row["end"] = end_of(run, job, vertex, loaded, catalog, self.storage)
                ended.append(row)
            if not name or run.phase in ("ended", "waiting") or (job is not None and not job.ended):
                continue
            own = loaded.project.entries.get(run.name)
            schedule = loaded.project.schedules.get(run.schedule)
            patient = 1.0 if (own and own.retry_for) or (schedule and schedule.retry_for) else 0.0
            action = advance(
                run, Seen(0.0, job, order=range(1, 2 + len(own.candidates)) if own else (1,), retry_for_s=patient)
            )
            if run.phase == "step":
                action = advance(
                    replace(run, phase="attempt", steps=(), attempts=(replace(run.attempts[-1], job=name),)),
                    Seen(0.0, job),
                )
                if job is not None and action.why == "SUCCEEDED":
                    continue
            if action.do != "end":
                continue
            over = closed(run, action.why, action.text)
            row["end"] = end_of(over, job, vertex, loaded, catalog, self.storage)
            if not run.steps:
                with suppress(VertexrigError):  # a person who may only read sees the end all the same
                    saved = runs.save(over)
                    if saved is not None:
                        self.write_end(saved, row["end"])
                        runs.forget(saved)
            ended.append(row)
        return ended

    def write_end(self, run: Run, end: Mapping[str, Any]) -> dict[str, Any]:
        """Write the row of a run that has ended, once; return it."""
        row = {**row_of(run), "end": dict(end)}
        for name in ("phase", "since", "step"):
            row.pop(name, None)
        write_row(self.storage, path_of(run), row)
        return row


def delivery_of(run: Run) -> Delivery:
    """Return the delivery that opened a run, with what became of the run so far."""
    kept = dict(run.delivery)
    detail = dict(kept.pop("detail", {}))
    decision: Decision = "created" if run.had_job or run.phase in ("attempt", "step") else "deferred"
    if run.phase == "ended" and not run.had_job:
        decision = "skipped" if run.reason in ("skipped", "superseded") else "refused"
    why = str(kept.pop("reason", "")) or (NO_MACHINES if run.reason == "exhausted" else run.reason)
    return Delivery(
        decision=decision,
        reason=why if decision != "created" else "",
        text=run.text if decision != "created" else "",
        run=run.name,
        key=run.key.kind,
        request=run.key.digest,
        schedule=run.schedule,
        schedule_time=run.time,
        caller=run.caller,
        claim=run.id,
        job=next((one.job for one in reversed(run.attempts) if one.job), ""),
        detail=detail | ({"then": list(run.steps)} if run.steps else {}),
        **kept,
    )


def row_of(run: Run) -> dict[str, Any]:
    """Return the row of a run: what it was asked for, and where it is."""
    asked = {"approval": approval.text_of(run)} if run.approval and run.phase == "step" else {}
    return delivery_of(run).data | {"phase": run.phase, "since": run.phase_since, "step": run.at, **asked}


def end_of(
    run: Run, job: RemoteJob | None, vertex: Vertex, loaded: Loaded, catalog: Catalog, storage: Storage
) -> dict[str, Any]:
    """Return how a run ended; `job` is its last job. What is empty is left out.

    Returns:
        outcome: Its job's state, such as SUCCEEDED; `exhausted` if no candidate got machines; of a run with steps `done`, `registered`,
            `not-better`, `rejected`, or why it ended before that; `changed` if the project file does not allow it any more; `given-up`; of a run
            that got no job `refused`, `skipped` or `superseded`.
        reason: Why, in a sentence.
        ended: When, RFC 3339.
        seconds: How long the job took.
        usd: What all attempts cost, estimated from their times; None without a sourced price.
        metric: The name of what it reported, with its `value`.
        model: The version that was registered.
        step: The step at which a run with steps ended.
        jobs: Resource names of the jobs of a run with steps, by what ran.
        attempts: Of a run with candidates, each attempt (`vertexrig.runs.run.Attempt`).
    """
    reason, ended, seconds = run.text, times.rfc3339(times.now(), 0), None
    if job is not None and job.ended:
        ran = course(job.data)
        seconds = None if ran.start is None or ran.end is None else ran.end - ran.start
        if not run.steps and run.reason == short(job.state):
            reason, ended = reason or job.cause, str(job.data.get("endTime", "")) or ended
    several = len(run.attempts) > 1 or any(one.reason for one in run.attempts)
    attempts = [asdict(one) for one in run.attempts] if several else []
    usd = _cost(attempts, job, vertex, loaded, catalog)
    metric, value = _metric(run.name, job, storage, loaded) if job is not None else ("", None)
    end = {
        "outcome": run.reason,
        "reason": reason,
        "ended": ended,
        "seconds": seconds,
        "usd": usd,
        "metric": metric,
        "value": value,
        "model": run.model,
        "step": run.at if run.steps else "",
        "jobs": dict(run.jobs) if run.steps else {},
        "attempts": attempts,
    }
    return {name: one for name, one in end.items() if one not in ("", None, [], {})}


def end_entry(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the log entry of a row that got its end."""
    end = row["end"]
    what = " ".join(filter(None, (row.get("schedule"), row.get("run"), "ended", end["outcome"])))
    about = {name: row[name] for name in ("id", "schedule", "schedule_time", "run", "job", "claim") if name in row}
    return {
        "severity": "INFO" if end["outcome"] in GOOD else "ERROR",
        "message": f"{what}: {end['reason']}" if "reason" in end else what,
        **about,
        **end,
    }


def _months(since: datetime) -> Iterator[str]:
    """Yield the months from a time to now."""
    at, last = since.replace(day=1), times.rfc3339(times.now())[:7]
    while (month := f"{at:%Y-%m}") <= last:
        yield month
        at = (at + timedelta(days=32)).replace(day=1)


def _cost(
    attempts: list[dict[str, Any]], job: RemoteJob | None, vertex: Vertex, loaded: Loaded, catalog: Catalog
) -> float | None:
    """Return what a run's job, or all its attempts, have cost; each attempt is given its part."""
    jobs = {job.name: job} if job is not None else {}
    for name in {str(one["job"]) for one in attempts} - jobs.keys():
        if JOB.fullmatch(name) and (found := vertex.get(name)) is not None:
            jobs[name] = found
    paid = {name: spent(one, catalog, factor=loaded.project.trigger.budget.price_factor) for name, one in jobs.items()}
    for one in attempts:
        if one["job"] in paid:
            one["usd"] = paid[one["job"]].usd
    # the sum is known only if each attempt that ran has a price; one that never began cost nothing
    known = any(one.usd is not None for one in paid.values()) and all(
        one.seconds == 0 or one.usd is not None for one in paid.values()
    )
    return round(sum(one.usd or 0.0 for one in paid.values()), 4) if known else None


def _metric(name: str, job: RemoteJob, storage: Storage, loaded: Loaded) -> tuple[str, float | None]:
    """Return what a job reported, by the metric of its study, or that of the sweeps of the project."""
    try:
        if job.collection == TUNING:
            found = trained.of_sweep(job, name)
        else:
            found = trained.of_job(loaded, job, name, folder=lambda uri: Storage(uri, url=storage.rest.url))
    except VertexrigError:
        return "", None
    return found.metric, found.value
