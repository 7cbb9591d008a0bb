"""Alarms of a tick: a schedule whose delivery has not come, and a run that has not ended well by its deadline.

Cloud Monitoring notices that a metric is absent for at most 23.5 hours (docs.cloud.google.com/monitoring/alerts/metric-absence, read
2026-11-26), which no weekly schedule keeps. So the tick, which knows the schedules, writes one log entry and one notice for each due time;
`vertexrig.trigger.alerts` has a policy for the absence of the tick itself.

Most due times cost nothing: the tick has seen their run among the open ones. For another one it lists the history of two days, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from vertexrig import times
from vertexrig.cloud import cron
from vertexrig.project.triggered import RegisterStep, Schedule
from vertexrig.runs.deliveries import GOOD
from vertexrig.runs.run import Run
from vertexrig.trigger.history import Deliveries
from vertexrig.trigger.notify import Notice

GRACE = "1h"
OVERDUE, LATE = "overdue", "late"


@dataclass
class Alarms:
    """The alarms of one tick.

    Args:
        settled: What needs no alarm any more: by kind, the last due time of each schedule (`_key`). It is changed, and kept for the next tick.
        runs: The open runs, and those that this tick has ended.
        now: The time, by the service's clock.
    """

    schedules: Mapping[str, Schedule]
    deliveries: Deliveries
    settled: dict[str, dict[str, str]]
    runs: Sequence[Run]
    now: datetime
    _days: dict[str, list[dict[str, Any]]] = field(default_factory=dict, init=False)

    def notices(self) -> Iterator[Notice]:
        """Yield the notice of each due time that needs one; it is settled once the next one is asked for."""
        for kind in (OVERDUE, LATE):
            rows = self.settled.setdefault(kind, {})
            allowed = {name: one for name, schedule in self.schedules.items() if (one := _allowed(kind, schedule))}
            keys = {self._key(name): name for name in allowed}
            for key in rows.keys() - keys.keys():
                del rows[key]
            rows |= {key: self._first(keys[key], allowed[keys[key]]) for key in keys.keys() - rows.keys()}
            for run in self.runs:
                if kind == OVERDUE or (run.phase == "ended" and run.reason in GOOD):
                    self._settle(rows, run.schedule, run.time)
            for name, one in allowed.items():
                due = self._due(self.schedules[name], one)
                if due is None or _number(rows[self._key(name)]) >= _number(due):
                    continue
                if not self._has_come(kind, name, due):
                    yield self._notice(kind, name, self.schedules[name], due, one)
                self._settle(rows, name, due)

    def _key(self, name: str) -> str:
        """Return a schedule with its times: one whose times have changed is another one."""
        return f"{name} {self.schedules[name].cron} {self.schedules[name].time_zone}"

    def _settle(self, rows: dict[str, str], name: str, time: str) -> None:
        key = self._key(name) if name in self.schedules else ""
        if key in rows and _number(time) > _number(rows[key]):
            rows[key] = time

    def _first(self, name: str, allowed: str) -> str:
        """Return the time before which nothing is told of a schedule that no tick has seen yet.

        What was due before this tick may be older than the schedule, unless an open run shows that it has fired.
        """
        fired = [_number(run.time) - 1 for run in self.runs if run.schedule == name and run.time]
        first = min([times.nanoseconds_of(self.now), *fired])
        return times.rfc3339_ns(max(first, _number(self._before(allowed))), shortest=True)

    def _before(self, allowed: str) -> str:
        """Return the time before which what was due has used all the time allowed."""
        return times.rfc3339(self.now - timedelta(seconds=times.meant_seconds(allowed) or 0), 0)

    def _due(self, schedule: Schedule, allowed: str) -> str | None:
        """Return the last due time for which the time allowed is over; None if there is none."""
        due = cron.parse(schedule.cron, schedule.time_zone).before(times.parse(self._before(allowed)))
        if schedule.start is not None and due < times.parse(schedule.start):
            return None
        return None if schedule.end is not None and due >= times.parse(schedule.end) else times.rfc3339(due, 0)

    def _has_come(self, kind: str, name: str, due: str) -> bool:
        """Whether the history has what the alarm is about: a delivery that was not refused, or a run that ended well or was left out."""
        rows = [
            row
            for row in self._rows(due)
            if row.get("schedule") == name and _number(str(row.get("schedule_time"))) >= _number(due)
        ]
        if kind == OVERDUE:
            return any(row.get("decision") != "refused" for row in rows)
        ends = (row.get("end") for row in rows)
        good = any(isinstance(end, Mapping) and end.get("outcome") in GOOD for end in ends)
        return good or any(row.get("decision") == "skipped" for row in rows)

    def _rows(self, due: str) -> Iterable[dict[str, Any]]:
        """Return the rows of the history of the day of a due time and of the next one."""
        for day in (times.parse(due) + timedelta(days=n) for n in (0, 1)):
            stamp = f"{day:%Y-%m-%d}"
            if stamp not in self._days:
                self._days[stamp] = self.deliveries.of_day(stamp)
            yield from self._days[stamp]

    def _notice(self, kind: str, name: str, schedule: Schedule, due: str, allowed: str) -> Notice:
        run = next((one for one in self.runs if one.schedule == name and _number(one.time) >= _number(due)), None)
        if kind == OVERDUE:
            text = f"no delivery of {due} has come within {allowed}, or each was refused; `vertexrig schedule status {name}` says why"
        else:
            registers = any(isinstance(step, RegisterStep) for step in schedule.steps)
            what = "no model is registered" if registers else f"{schedule.run} has not succeeded"
            state = "no run is unfinished" if run is None else f"the run is in phase {run.phase}, at {run.at}"
            text = f"{what} {allowed} after {due}: {state}; `vertexrig schedule steps` and `vertexrig schedule history {name}` say more"
        about = {"schedule": name, "schedule_time": due, "run": schedule.run, "text": text}
        about |= {"claim": run.id} if run is not None else {}
        stamp = due.replace("-", "").replace(":", "")
        return Notice(f"{name}-{stamp}-{kind}", (kind,), times.rfc3339(self.now, 0), about)


def entry(notice: Notice) -> dict[str, Any]:
    """Return the log entry of an alarm, which the policies look for by `alarm`."""
    return {
        "severity": "ERROR",
        "message": notice.line,
        "alarm": notice.occasions[0],
        "notice": notice.id,
        **notice.data,
    }


def _allowed(kind: str, schedule: Schedule) -> str | None:
    """Return the time that an alarm allows, None if a schedule has none of this kind."""
    if schedule.paused:
        return None
    return schedule.deadline if kind == LATE else schedule.grace or GRACE


def _number(time: str) -> int:
    return times.nanoseconds(time) or 0
