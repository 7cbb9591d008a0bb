"""The history of a trigger: its deliveries, and how the jobs of those that started one have ended.

An end is written once, beside its delivery, by the tick or by the first command that reads the history. A month that is over can be folded into
one object, `vertexrig/history/YYYY-MM.jsonl`; nothing else takes anything away.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from vertexrig import times
from vertexrig.catalog import Catalog
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.storage import Item, Storage, as_json
from vertexrig.cloud.vertex import RESOURCES, TUNING, RemoteJob, Vertex, region_of
from vertexrig.errors import VertexrigError
from vertexrig.project.config import Loaded
from vertexrig.results.study import course
from vertexrig.spec.api_names import JOB
from vertexrig.spec.labels import first_of
from vertexrig.spec.states import SUCCEEDED, short
from vertexrig.studies import trained
from vertexrig.studies.cost import spent
from vertexrig.submit.chains import GOOD, Chains
from vertexrig.submit.claims import LABEL
from vertexrig.trigger.deliveries import FOLDER, ROW, keep
from vertexrig.trigger.ladders import LadderEnd, Ladders

_END = ".end.json"
_FOLDED = ".jsonl"
RECENT = timedelta(days=60)
"""How far back a tick searches for ends and for what to report: longer than a study of many trials takes."""


@dataclass(frozen=True)
class DeliveryEnd:
    """How the job of a delivery ended, and the steps that followed it.

    Args:
        outcome: The job's state, such as SUCCEEDED; of a run with candidates that got no machines `exhausted`
            (`vertexrig.trigger.ladders.LadderEnd`); of a run with steps, that of its chain, such as `registered`.
        reason: Why, in one line.
        ended: When, RFC 3339.
        seconds: How long the job took.
        usd: What all attempts cost, estimated from their times; None without a sourced price.
        metric: The name of what it reported.
        value: What it reported.
        model: The version that was registered.
        attempts: Of a run with candidates, each attempt (`vertexrig.submit.ladder.Try`).
    """

    outcome: str
    reason: str = ""
    ended: str = ""
    seconds: float | None = None
    usd: float | None = None
    metric: str = ""
    value: float | None = None
    model: str = ""
    attempts: Sequence[Mapping[str, Any]] = ()


class Deliveries:
    """The history in one bucket. A row is a delivery's data, with `end` where its job has ended."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def rows(self, since: datetime, schedule: str = "") -> list[dict[str, Any]]:
        """Return the deliveries since a time, the newest first; all of them or those of one schedule."""
        first = times.rfc3339(since, 3)
        found = [row for month in _months(since) for row in self._month(month).values()]
        chosen = [
            row for row in found if row.get("time", "") >= first and schedule in ("", str(row.get("schedule", "")))
        ]
        return sorted(chosen, key=lambda row: str(row["time"]), reverse=True)

    def _month(self, month: str) -> dict[str, dict[str, Any]]:
        """Return a month's rows by their objects' names without ending; objects go before what was folded of them."""
        rows = self._folded(month)[0]
        ends = {}
        for item in self.storage.list(f"{FOLDER}/{month}/", metadata=True):
            data = self._data(item)
            if data is not None and item.name.endswith(_END):
                ends[item.name.removesuffix(_END)] = data
            elif data is not None:
                rows[item.name.removesuffix(".json")] = {**data, "object": item.name}
        for name, end in ends.items():
            if name in rows:
                rows[name]["end"] = end
        return rows

    def _data(self, item: Item) -> dict[str, Any] | None:
        row = as_json(item.metadata.get(ROW, "").encode())
        # copied by a tool that leaves metadata behind, or too long for it
        return self.storage.read_json(item.name) if row is None or row.get("cut") else row

    def _folded(self, month: str) -> tuple[dict[str, dict[str, Any]], int]:
        stored = self.storage.read(f"{FOLDER}/{month}{_FOLDED}")
        lines = stored.data.splitlines() if stored else []
        rows = [row for line in lines if (row := as_json(line)) is not None and "object" in row]
        return {str(row["object"]).removesuffix(".json"): row for row in rows}, stored.generation if stored else 0

    def fold(self) -> dict[str, int]:
        """Put each month that is over into one object, and delete those that it then holds; how many deliveries were folded, by month."""
        counts: dict[str, int] = {}
        names: dict[str, list[Item]] = {}
        for item in self.storage.list(f"{FOLDER}/"):
            month = item.name.removeprefix(f"{FOLDER}/")[:7]
            if not item.name.endswith(_FOLDED) and month < times.rfc3339(times.now())[:7]:
                names.setdefault(month, []).append(item)
        for month, items in names.items():
            _, generation = self._folded(month)
            rows = self._month(month)
            text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for _, row in sorted(rows.items()))
            if self.storage.write(f"{FOLDER}/{month}{_FOLDED}", text.encode(), generation=generation) is None:
                raise RestError(f"another process folds {month}; try again", status=503)
            # listed before the rows were read: objects that came since then stay, and so do objects of other programs
            done = [item for item in items if item.name.removesuffix(_END).removesuffix(".json") in rows]
            for item in done:
                self.storage.delete(item.name, item.generation)
            counts[month] = sum(not item.name.endswith(_END) for item in done)
        return counts

    def settle(
        self, rows: Iterable[dict[str, Any]], loaded: Loaded, vertex: Vertex, catalog: Catalog
    ) -> list[dict[str, Any]]:
        """Give rows without an end the `state` of their job, and those whose job ended their `end`, which is written; return these."""
        # one row a job: the delivery that made it, or the first that joined it if the maker died before it wrote its row
        ranked = sorted(rows, key=lambda row: (row.get("decision") == "created", str(row.get("time", ""))))
        makers = {str(row["job"]): row for row in ranked if row.get("job")}
        waiting = [row for row in makers.values() if "end" not in row]
        jobs, ladders = _jobs(vertex, waiting), Ladders(self.storage)
        ended = []
        for row in waiting:
            job = jobs.get(str(row["job"]))
            first = first_of(job.labels) if job is not None and job.ended else ""
            over = ladders.end(first) if first else None
            if over is not None:
                job = vertex.get(over.job) if over.job else None
            row["state"] = short(job.state) if job is not None else over.state if over is not None else "gone"
            if first and over is None and ladders.is_open(first):
                continue
            end = _end(row, job, over, self.storage, loaded)
            if end is None:
                continue
            end = _with_cost(end, job, vertex, loaded, catalog)
            row["end"] = {name: value for name, value in asdict(end).items() if value not in ("", None, ())}
            # a person who may only read sees it all the same
            with suppress(VertexrigError):
                keep(self.storage, str(row["object"]).removesuffix(".json") + _END, row["end"])
            ended.append(row)
        return ended


def end_entry(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the log entry of a row that got its end."""
    end = row["end"]
    what = " ".join(filter(None, (row.get("schedule"), row.get("run"), "ended", end["outcome"])))
    about = {name: row[name] for name in ("id", "schedule", "schedule_time", "run", "job", "claim") if name in row}
    return {
        "severity": "INFO" if end["outcome"] in (*GOOD, short(SUCCEEDED)) else "ERROR",
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


def _jobs(vertex: Vertex, rows: list[dict[str, Any]]) -> dict[str, RemoteJob]:
    """Return the jobs of rows by name: a few one by one, many by listing the trigger's."""
    names = {str(row["job"]) for row in rows if JOB.fullmatch(str(row["job"]))}
    if len(names) <= 10:
        return {name: job for name in names if (job := vertex.get(name)) is not None}
    # the clocks of the function and of Vertex AI may differ
    first = times.parse(min(str(row["time"]) for row in rows)) - timedelta(minutes=15)
    filter = f'labels.{LABEL}:* AND create_time>"{times.rfc3339(first, 0)}"'
    found = {
        job.name: job for collection in RESOURCES for job in vertex.list(collection, filter=filter) if job.name in names
    }
    elsewhere = [name for name in names if region_of(name) != vertex.region]  # of candidates
    return found | {name: job for name in elsewhere if (job := vertex.get(name)) is not None}


def _end(
    row: Mapping[str, Any], job: RemoteJob | None, over: LadderEnd | None, storage: Storage, loaded: Loaded
) -> DeliveryEnd | None:
    """Return how a delivery's job, or the chain that follows it, has ended, `over` being the end of its candidates; None if it has not."""
    end, seconds = DeliveryEnd("", attempts=over.attempts if over is not None else ()), None
    if job is not None and job.ended:
        run = course(job.data)
        seconds = None if run.start is None or run.end is None else run.end - run.start
        end = replace(end, outcome=short(job.state), reason=job.cause, ended=str(job.data.get("endTime", "")))
    if over is not None and (not end.outcome or over.state not in ("succeeded", "failed", "cancelled")):
        # the run's end differs from its last job's state
        end = replace(end, outcome=over.state, reason=over.text, ended=times.rfc3339(times.now(), 0))
    if not end.outcome:
        return None
    if (row.get("detail") or {}).get("then"):
        first = over.id if over is not None else first_of(job.labels) if job is not None else ""
        chain = Chains(storage).end(first or str(row.get("claim", "")))
        if chain is None:
            return None
        if end.outcome not in ("exhausted", "given-up"):  # the chain says `failed` to that
            end = replace(end, outcome=chain.outcome, reason=chain.reason, ended=chain.ended, model=chain.model)
    metric, value = _metric(row, job, storage, loaded) if job is not None else ("", None)
    return replace(end, seconds=seconds, metric=metric, value=value)


def _with_cost(
    end: DeliveryEnd, job: RemoteJob | None, vertex: Vertex, loaded: Loaded, catalog: Catalog
) -> DeliveryEnd:
    """Return an end with what its job, or each of its attempts, has cost."""
    jobs = {job.name: job} if job is not None else {}
    for name in {str(one.get("job")) for one in end.attempts} - jobs.keys():
        if JOB.fullmatch(name) and (found := vertex.get(name)) is not None:
            jobs[name] = found
    paid = {name: spent(one, catalog, factor=loaded.project.trigger.budget.price_factor) for name, one in jobs.items()}
    usd = {name: one.usd for name, one in paid.items()}
    attempts = tuple({**one, "usd": usd.get(str(one.get("job")), one.get("usd"))} for one in end.attempts)
    # the sum is known only if each attempt that ran has a price; one that never began cost nothing
    known = any(one is not None for one in usd.values()) and all(
        paid[name].seconds == 0 or usd[name] is not None for name in paid
    )
    return replace(end, attempts=attempts, usd=round(sum(one or 0.0 for one in usd.values()), 4) if known else None)


def _metric(row: Mapping[str, Any], job: RemoteJob, storage: Storage, loaded: Loaded) -> tuple[str, float | None]:
    """Return what a job reported, by the metric of its study, or that of the sweeps of the project."""
    name = str(row.get("run", ""))
    try:
        if job.collection == TUNING:
            found = trained.of_sweep(job, name)
        else:
            found = trained.of_job(loaded, job, name, folder=lambda uri: Storage(uri, url=storage.rest.url))
    except VertexrigError:
        return "", None
    return found.metric, found.value
