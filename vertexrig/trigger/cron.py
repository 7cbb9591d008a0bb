"""cron lines in words, with their next runs in the schedule's own time zone."""

from __future__ import annotations

from datetime import datetime, timezone

from vertexrig.errors import UsageError

_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
NAMES = {
    "month": {name[:3].lower(): number for number, name in enumerate(_MONTHS, 1)},
    "day": {name[:3].lower(): number for number, name in enumerate(_DAYS[:7])},
}


def explain(cron: str) -> str:
    """A line of five fields (minute hour day month weekday) in words: `at 03:00 on Monday`.

    Raises:
        UsageError: It has not five fields.
    """
    fields = cron.split()
    if len(fields) != 5:
        raise UsageError(f"{cron!r} has {len(fields)} fields; a cron line has 5: minute hour day month weekday")
    minute, hour, day, month, weekday = fields
    days = []
    if day != "*":
        days.append(f"on day {_listed(day)} of the month")
    if weekday != "*":
        days.append(f"on {_listed(weekday, 'day', _DAYS, 0)}")
    when = " or ".join(days)  # with both given, cron fires on either
    months = "" if month == "*" else f"in {_listed(month, 'month', _MONTHS, 1)}"
    if month.startswith("*/"):
        months = f"every {month[2:]} months"
    daily = "every day" if not when and not months and hour.isdigit() and minute.isdigit() else ""
    return " ".join(part for part in (daily, _time(minute, hour), when, months) if part)


def next_runs(cron: str, zone: str, count: int = 5, *, after: datetime | None = None) -> list[datetime]:
    """When a line fires next, in its own time zone.

    Args:
        cron: Five fields.
        zone: Name of the time zone database.
        count: How many.
        after: From when on; now by default.

    Raises:
        UsageError: The line or the zone is wrong.
    """
    from vertexrig.cloud.cron import parse
    from vertexrig.local.http import ApiError

    try:
        schedule = parse(cron, zone)
    except ApiError as error:
        raise UsageError(str(error.message).removeprefix("Schedule or timezone is invalid: ")) from None
    moment, found = after or datetime.now(timezone.utc), []
    for _ in range(count):
        moment = schedule.after(moment)
        found.append(moment.astimezone(schedule.zone))
    return found


def _time(minute: str, hour: str) -> str:
    if minute.isdigit() and all(one.isdigit() for one in hour.split(",")):
        return "at " + _and([f"{int(one):02d}:{int(minute):02d}" for one in hour.split(",")])
    if minute == "*":
        minutes = "every minute"
    elif minute.startswith("*/"):
        minutes = f"every {minute[2:]} minutes"
    else:
        minutes = f"at minute {_listed(minute)}"
    if hour == "*":
        return minutes if minute.startswith("*") else f"{minutes} of every hour"
    return f"{minutes} of every {hour[2:]} hours" if hour.startswith("*/") else f"{minutes} of hour {_listed(hour)}"


def _listed(field: str, kind: str = "", names: list[str] | None = None, first: int = 0) -> str:
    """A field in words: `1, 15 and 20 to 25`, with names for months and weekdays."""

    def one(text: str) -> str:
        number = NAMES.get(kind, {}).get(text.lower(), int(text) if text.isdigit() else -1)
        return names[number - first] if names is not None and 0 <= number - first < len(names) else text

    parts = []
    for item in field.split(","):
        span, _, step = item.partition("/")
        words = "any" if span == "*" else " to ".join(one(end) for end in span.split("-"))
        parts.append(f"every {step} of {words}" if step and span != "*" else f"every {step}" if step else words)
    return _and(parts)


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
