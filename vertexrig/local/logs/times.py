"""Timestamps of log entries: nanoseconds since the epoch, and RFC 3339 text that sorts as they do."""

from __future__ import annotations

import calendar
import re
from datetime import datetime, timezone

_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(?:([Zz])|([+-])(\d\d):?(\d\d))?)?"
)


def nanoseconds(text: str) -> int | None:
    """An RFC 3339 time, or a date, as nanoseconds since the epoch; None if it is neither. No zone means UTC."""
    match = _RFC3339.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    try:
        moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=timezone.utc)
    except ValueError:
        return None
    seconds = calendar.timegm(moment.utctimetuple()) + max(0, second - 59)
    if match.group(9):
        offset = int(match.group(10)) * 3600 + int(match.group(11)) * 60
        seconds -= offset if match.group(9) == "+" else -offset
    return seconds * 1_000_000_000 + int((match.group(7) or "").ljust(9, "0"))


def of_datetime(moment: datetime) -> int:
    """An aware datetime as nanoseconds since the epoch."""
    return calendar.timegm(moment.utctimetuple()) * 1_000_000_000 + moment.microsecond * 1000


def text(ns: int) -> str:
    """RFC 3339 with nine digits always: gcloud compares the texts, so they must sort as the times do."""
    seconds, rest = divmod(ns, 1_000_000_000)
    moment = datetime.fromtimestamp(seconds, tz=timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
