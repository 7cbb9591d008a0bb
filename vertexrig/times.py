"""Times and durations as Google's APIs write them: RFC 3339 text and seconds with an `s`.

Source of the forms: google.protobuf.Timestamp and Duration, JSON mapping (protobuf documentation, read 2026-11-21).
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Any

_RFC3339 = (
    r"(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9})\d*)?)?(?:([Zz])|([+-])(\d\d):?(\d\d))?)?"
)
DURATION = r"-?[0-9]{1,12}(?:\.[0-9]{1,9})?s"
_DURATION = re.compile(DURATION)
_WRITTEN = (
    r"(?i)P?(?:(\d{1,5})\s*d(?:ays?)?)?\s*T?(?:(\d{1,6})\s*h(?:ours?|rs?)?)?\s*(?:(\d{1,7})\s*m(?:in(?:ute)?s?)?)?\s*"
    r"(?:(\d{1,9})\s*(s(?:ec(?:ond)?s?)?)?)?"
)
_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def now() -> datetime:
    """Return the present time, aware, in UTC."""
    return datetime.now(timezone.utc)


def nanoseconds(text: str) -> int | None:
    """Return nanoseconds since 1970 of an RFC 3339 time or date, None for other text. Without a zone the time is UTC."""
    match = re.fullmatch(_RFC3339, text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    # a leap second is read as the first second of the next minute
    try:
        moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=timezone.utc)
    except ValueError:
        return None
    seconds = _seconds(moment) + max(0, second - 59)
    if match[9]:
        offset = int(match[10]) * 3600 + int(match[11]) * 60
        seconds -= offset if match[9] == "+" else -offset
    return seconds * _NS + int((match[7] or "").ljust(9, "0"))


def nanoseconds_of(moment: datetime) -> int:
    """Return nanoseconds since 1970 of an aware datetime."""
    return _seconds(moment) * _NS + moment.microsecond * 1000


def _seconds(moment: datetime) -> int:
    """Return whole seconds since 1970 of an aware datetime, rounded down."""
    return (moment - _EPOCH) // timedelta(seconds=1)


def parse(text: str) -> datetime:
    """Return an RFC 3339 time as an aware datetime in UTC, to the microsecond; ValueError if it is not one of the years 1 to 9999."""
    found = nanoseconds(text)
    if found is None:
        raise ValueError(f"{text[:60]!r} is not a time such as 2026-01-31T12:00:00Z")
    seconds, rest = divmod(found, _NS)
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).replace(microsecond=rest // 1000)
    except (OverflowError, OSError) as error:
        raise ValueError(f"{text[:60]!r} is outside the years 1 to 9999") from error


def seconds_since_1970(text: str) -> float:
    """Return seconds since 1970 of an RFC 3339 time, exact to the microsecond; ValueError if it is not one."""
    return parse(text).timestamp()


def rfc3339(when: datetime | float, digits: int | None = 6) -> str:
    """Return a time as `2026-01-31T12:00:00.000000Z`.

    Args:
        when: An aware datetime, or seconds since 1970.
        digits: Digits after the second: 0, 3, 6 or 9; None writes six, or none if they are all 0.
    """
    moment = datetime.fromtimestamp(when, timezone.utc) if isinstance(when, (int, float)) else when
    moment = moment.astimezone(timezone.utc)
    whole = f"{moment:%Y-%m-%dT%H:%M:%S}"
    if digits == 0 or (digits is None and not moment.microsecond):
        return f"{whole}Z"
    return f"{whole}.{f'{moment.microsecond:06d}'.ljust(9, '0')[: digits or 6]}Z"


def whole_second(when: datetime | float, first: str = "") -> str:
    """Return a time without a fraction: its second, or the first full one after the RFC 3339 time `first` where that is later."""
    moment = datetime.fromtimestamp(when, timezone.utc) if isinstance(when, (int, float)) else when
    if first:
        earliest = parse(first)
        rest = timedelta(seconds=1) if earliest.microsecond else timedelta()
        moment = max(moment, earliest.replace(microsecond=0) + rest)
    return rfc3339(moment, 0)


def rfc3339_ns(nanoseconds_since_1970: int, *, shortest: bool = False) -> str:
    """Return a time with nine digits, so that texts sort like times: gcloud compares the timestamps of a log as text.

    Args:
        nanoseconds_since_1970: The time.
        shortest: Write 0, 3, 6 or 9 digits, as few as are needed, as protobuf does.
    """
    seconds, rest = divmod(nanoseconds_since_1970, _NS)
    text = f"{rest:09d}"
    while shortest and text.endswith("000"):
        text = text[:-3]
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%dT%H:%M:%S}{'.' if text else ''}{text}Z"


def duration_seconds(text: Any) -> float | None:
    """Return seconds of a duration such as `3600s` or `12.5s`; None for anything else."""
    return float(text[:-1]) if isinstance(text, str) and _DURATION.fullmatch(text) else None


def meant_seconds(text: str) -> int | None:
    """Return seconds of a duration as people write it (`90m`, `1h30m`, `2 days`, `PT1H`, `3600`); None for anything else."""
    match = re.fullmatch(_WRITTEN, text.strip())
    if match is None or not any(match.groups()):
        return None
    *parts, _ = match.groups("0")
    # `1h30` is meant as half an hour more, or as half a minute
    if match[4] and not match[5] and any(match.groups()[:3]):
        return None
    return sum(int(part) * size for part, size in zip(parts, (86_400, 3_600, 60, 1), strict=True))


def duration(seconds: float) -> str:
    """Return seconds as a protobuf duration with 0, 3 or 6 decimals, as protobuf prints it: `12.500s`."""
    return f"{seconds:.6f}".removesuffix("000").removesuffix(".000") + "s"


def length(seconds: float) -> str:
    """Return a length of time as people read it: `42 s`, `3 min 20 s`, `2 h 5 min`, `7 days`."""
    whole = round(seconds)
    for unit, size, inner, part in (("days", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        # "36 h" reads better than "1 day 12 h"
        if whole >= (2 * size if unit == "days" else size):
            count, rest = divmod(whole, size)
            return f"{count:,} {unit} {rest // part} {inner}" if rest >= part else f"{count:,} {unit}"
    return f"{seconds:.3g} s" if seconds >= 1 or not seconds else f"{seconds:.1g} s"
