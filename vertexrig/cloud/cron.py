"""Cloud Scheduler's schedules: unix-cron in a time zone, and a part of the older English-like format.

croniter (kept by the Pallets community) finds the next time and cron-descriptor puts a line into words. croniter accepts
far more than Cloud Scheduler does (seconds, `@daily`, hashes), so the text is checked here first. On the local Vertex, a time that comes twice when
clocks go back fires twice, and a time that does not exist when they go forward fires when the gap ends. What Cloud Scheduler does: `CLOCKS`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from vertexrig import times
from vertexrig.errors import UsageError, did_you_mean

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_LONG_DAYS = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"]
_DAYS = [day[:3] for day in _LONG_DAYS]
# field -> (lowest, highest, names)
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, tuple(_MONTHS)),
    # 7 is Sunday as well as 0.
    ("day of week", 0, 7, tuple(_DAYS)),
)
# `*`, `5`, `mon`, `1-5`, each with a step.
_ITEM = re.compile(r"(?:\*|(\w+)(?:-(\w+))?)(?:/(\d{1,4}))?")
_MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MOST_CHARS = 500
"""Most characters of a schedule: enough to name every value of every field; no source names the service's limit."""
CLOCKS = (
    "Cloud Scheduler runs on wall clock time: Google documents that a job whose time comes twice may observe execution anomalies, "
    "and does not document what happens to a time that does not exist "
    "(https://cloud.google.com/scheduler/docs/configuring/cron-job-schedules)"
)
"""What is known of Cloud Scheduler and daylight saving time; page read on 2026-11-25."""
_EVERY = re.compile(r"every (\d{1,4}) (minutes|mins|hours)(?: synchronized)?")
_AT = re.compile(r"every ([a-z]+(?:,[a-z]+)*) ([01]?\d|2[0-3]):([0-5]\d)")


class ScheduleError(UsageError):
    """A schedule or time zone that Cloud Scheduler does not take; `key` is where the project file has it."""

    key = "cron"


class ZoneError(ScheduleError):
    """A time zone that the tz database does not have."""

    key = "time_zone"


@dataclass(frozen=True)
class Timetable:
    """A parsed schedule.

    Args:
        cron: A five-field expression, or "" for an interval.
        every: The interval, counted from midnight UTC of 1970-01-01; only without `cron`.
    """

    cron: str
    zone: tzinfo
    every: timedelta = timedelta()

    def after(self, moment: datetime) -> datetime:
        """Return the first time of the schedule later than `moment`, in UTC."""
        if not self.cron:
            step = self.every.total_seconds()
            return datetime.fromtimestamp((moment.timestamp() // step + 1) * step, tz=timezone.utc)
        from croniter import croniter  # costs 37 ms, and only a server with jobs needs it

        found: datetime = croniter(self.cron, moment.astimezone(self.zone)).get_next(datetime)
        return found.astimezone(timezone.utc)

    def before(self, moment: datetime) -> datetime:
        """Return the last time of the schedule not later than `moment`, in UTC; for an hour after one that comes twice, the time before it."""
        if not self.cron:
            return self.after(moment) - self.every
        from croniter import croniter

        found: datetime = croniter(self.cron, moment.astimezone(self.zone) + timedelta(seconds=1)).get_prev(datetime)
        return found.astimezone(timezone.utc)


_REFUSED = ("EST", "MST", "HST")
"""Zones of the tz database that Cloud Scheduler refuses: EST as seen on 2022-02-23 (premisedata/gcp-tutorials issue 12), the others like it."""


def zone_of(name: str) -> tzinfo:
    """Return the time zone of a tz database name; "" and "utc" are UTC. ZoneError if there is none of that name, or the service takes none."""
    if name.lower() in ("", "utc"):
        return timezone.utc
    if name in _REFUSED:
        raise ZoneError(f"Cloud Scheduler does not take the time zone {name}. {_zones_like(name)}")
    try:
        return ZoneInfo(name)
    # zoneinfo raises any of these: for no such zone, for a path, for a folder of the database.
    except (KeyError, ValueError, OSError):
        raise ZoneError(f"{name[:80]!r} is not a time zone of the tz database. {_zones_like(name)}") from None


def _zones_like(name: str) -> str:
    """Return the zones that end with a name, such as Europe/Berlin for Berlin; else the nearest, or some to choose from."""
    known = available_timezones()
    same = sorted(zone for zone in known if zone.rpartition("/")[2].casefold() == name.casefold() and "/" in zone)
    return f"Did you mean {same[0]!r}?" if same else did_you_mean(name, known)


def parse(text: str, zone: str) -> Timetable:
    """Read a schedule.

    Args:
        text: `0 3 * * 1`, `every 5 minutes`, `every 2 hours`, `every day 09:00` or `every mon,thu 09:00`.

    Raises:
        ScheduleError: It is not a schedule; the message names the field.
    """
    where = zone_of(zone)
    if len(text) > MOST_CHARS:
        raise ScheduleError(f"it has {len(text)} characters, and {MOST_CHARS} are allowed")
    words = " ".join(text.lower().split())
    if words.startswith("every "):
        return _english(words, where)
    if words in _MACROS:
        raise ScheduleError(f"{text[:80]!r} is not unix-cron: write {_MACROS[words]}")
    fields = words.split(" ")
    if len(fields) != 5:
        raise ScheduleError(f"{text[:80]!r} has {len(fields)} fields; unix-cron has 5 (minute hour day month weekday)")
    for value, (name, low, high, names) in zip(fields, _FIELDS, strict=True):
        for item in value.split(","):
            _check_item(item, name, low, high, names)
    schedule = Timetable(" ".join(fields), where)
    try:
        # croniter notices only then: 30 February is well formed.
        schedule.after(times.now())
    except (ValueError, KeyError, OverflowError):
        raise ScheduleError(f"{text[:80]!r} names a date that never comes") from None
    return schedule


def next_runs(text: str, zone: str, count: int = 5, *, after: datetime | None = None) -> list[datetime]:
    """Return when a schedule fires next, from a time or now on, in its own time zone; ScheduleError as of `parse`."""
    timetable = parse(text, zone)
    moment, found = after or times.now(), []
    for _ in range(count):
        moment = timetable.after(moment)
        found.append(moment.astimezone(timetable.zone))
    return found


def local(text: str, zone: str) -> str:
    """Return an RFC 3339 time as the clock of a time zone shows it, with the zone's name; "" for "", and another text as it is."""
    try:
        moment = times.parse(text)
    except ValueError:
        return text
    return f"{moment.astimezone(zone_of(zone)):%Y-%m-%d %H:%M:%S} {zone}"


def clock_changes(text: str, zone: str, *, after: datetime | None = None) -> list[tuple[datetime, bool]]:
    """Return the local times of a schedule, in the next 400 days, that do not exist (False) or come twice (True) because clocks change.

    The first time of each change is returned. A schedule that fires in every hour, or at an interval, has none: it misses no day.

    Raises:
        ScheduleError: As of `parse`.
    """
    timetable, first = parse(text, zone), after or times.now()
    if not timetable.cron or timetable.cron.split()[1] == "*":
        return []
    naive, found = Timetable(timetable.cron, timezone.utc), []  # the local time, read as if it were UTC

    def offset(moment: datetime) -> timedelta:
        return moment.astimezone(timetable.zone).utcoffset() or timedelta()

    for day in range(400):
        start, end = first + timedelta(days=day), first + timedelta(days=day + 1)
        before, then = offset(start), offset(end)
        if before == then:
            continue
        while end - start > timedelta(seconds=1):
            middle = start + (end - start) / 2
            start, end = (middle, end) if offset(middle) == before else (start, middle)
        change = end.replace(second=0, microsecond=0) + timedelta(minutes=end.second >= 30)
        low, high = sorted((change + before, change + then))
        local = naive.after(low - timedelta(minutes=1))
        if local < high:
            found.append((local.replace(tzinfo=None), then < before))
    return found


def words(text: str) -> str:
    """Return a schedule in words: `at 03:00, Monday through Friday`; one in words already stays. ScheduleError if it is none."""
    parse(text, "UTC")
    if text.lower().startswith("every "):
        return text
    from cron_descriptor import CasingTypeEnum, Options, get_description  # costs 25 ms, and is for plans alone

    options = Options()
    options.use_24hour_time_format, options.locale_code = True, "en_US"
    options.casing_type = CasingTypeEnum.Sentence
    text_of = str(get_description(" ".join(text.lower().split()), options))
    return text_of[:1].lower() + text_of[1:]


def _english(words: str, zone: tzinfo) -> Timetable:
    """Return the `every ...` formats."""
    match = _EVERY.fullmatch(words)
    if match:
        count = int(match.group(1))
        if count:
            unit = timedelta(hours=1) if match.group(2) == "hours" else timedelta(minutes=1)
            return Timetable("", zone, count * unit)
    match = _AT.fullmatch(words)
    if match:
        days = match.group(1).split(",")
        if days == ["day"] or all(day in (*_DAYS, *_LONG_DAYS) for day in days):
            week = "*" if days == ["day"] else ",".join(str(_DAYS.index(day[:3])) for day in days)
            return Timetable(f"{int(match.group(3))} {int(match.group(2))} * * {week}", zone)
    raise ScheduleError(
        f"{words[:80]!r} is not a schedule; write unix-cron, 'every N minutes', 'every N hours', "
        "'every day HH:MM' and 'every mon,thu HH:MM'"
    )


def _check_item(item: str, field: str, low: int, high: int, names: tuple[str, ...]) -> None:
    """One part of a comma list: `*`, `n`, `n-m`, each with `/step`."""
    match = _ITEM.fullmatch(item)
    if match is None:
        raise ScheduleError(f"{item[:40]!r} is not a value of the field {field}")
    ends = [_number(end, low, names) for end in match.groups()[:2] if end is not None]
    if any(end is None or not low <= end <= high for end in ends):
        raise ScheduleError(f"{item[:40]!r} is outside {low}-{high}, the values of the field {field}")
    if len(ends) == 2 and (ends[0] or 0) > (ends[1] or 0):
        raise ScheduleError(f"{item[:40]!r} of the field {field} runs backwards")
    if match.group(3) is not None and not 1 <= int(match.group(3)) <= high:
        raise ScheduleError(f"the step of {item[:40]!r} of the field {field} is outside 1-{high}")


def _number(text: str, low: int, names: tuple[str, ...]) -> int | None:
    if text in names:
        return names.index(text) + low
    # int() also takes signs, underscores and digits of other scripts.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else None


def backoff(retry: Mapping[str, Any], number: int) -> float:
    """Return seconds before retry `number` (0 is the first): doubling, then linear, never above the maximum.

    Source: RetryConfig of Cloud Scheduler v1: 10s, 300s and 3 doublings give 10, 20, 40, 80, 160, 240, 300, 300.

    Args:
        retry: A RetryConfig as REST writes it.
    """
    # no maximum is near 2 ** 60 s, and a float ends at 2 ** 1024
    low, high = (times.duration_seconds(retry[name]) or 0.0 for name in ("minBackoffDuration", "maxBackoffDuration"))
    doublings = int(retry["maxDoublings"])
    if number <= doublings:
        return float(min(high, low * 2 ** min(number, 60)))
    return float(min(high, low * 2 ** min(doublings, 60) * (number - doublings + 1)))
