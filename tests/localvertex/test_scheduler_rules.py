"""Schedules, time zones, backoff, and which jobs are accepted."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvertex.http import ApiError
from localvertex.services.scheduler_delivery import refusal
from localvertex.services.scheduler_engine import may_retry
from localvertex.services.scheduler_jobs import DEFAULT_RETRY, changed, complete, read
from vertexrig.cloud.cron import ScheduleError, backoff, parse

UTC = timezone.utc
JOB: dict[str, Any] = {
    "name": "projects/p/locations/l/jobs/j",
    "schedule": "0 3 * * 1",
    "httpTarget": {"uri": "http://127.0.0.1:1/"},
}


@pytest.mark.parametrize(
    ("text", "zone", "after", "expected"),
    [
        ("0 3 * * 1", "utc", "2026-11-20T12:00", "2026-11-23T03:00"),
        ("*/15 9-10 * * mon-fri", "", "2026-11-20T10:50", "2026-11-23T09:00"),
        ("0 9 1 JAN *", "Europe/Berlin", "2026-11-20T00:00", "2027-01-01T08:00"),
        ("30 2 * * *", "America/New_York", "2026-03-08T05:00", "2026-03-08T07:00"),
        ("0 0 29 2 *", "UTC", "2026-11-20T00:00", "2028-02-29T00:00"),
        ("0 12 * * 7", "UTC", "2026-11-20T00:00", "2026-11-22T12:00"),
        ("every 5 minutes", "", "2026-11-20T00:01", "2026-11-20T00:05"),
        ("every 2 hours", "", "2026-11-20T00:01", "2026-11-20T02:00"),
        ("every day 09:30", "Asia/Tokyo", "2026-11-20T00:00", "2026-11-20T00:30"),
        ("every mon,thu 09:00", "", "2026-11-20T00:00", "2026-11-23T09:00"),
    ],
)
def test_next_time(text: str, zone: str, after: str, expected: str) -> None:
    """The next time of a schedule is as its cron line, its names and its time zone say."""
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC)
    assert parse(text, zone).after(moment) == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "zone"),
    [
        *((text, "") for text in ("", "* * * *", "* * * * * *", "@daily", "60 * * * *", "* 24 * * *", "* * 0 * *")),
        *((text, "") for text in ("* * * 13 *", "* * * * 8", "5-1 * * * *", "*/0 * * * *", "a * * * *", "0 0 30 2 *")),
        *(
            (text, "")
            for text in ("* * L * *", "* * * * 5#2", "H * * * *", "every 0 minutes", "every blue moon", "1,,2 * * * *")
        ),
        *(
            ("* * * * *", zone)
            for zone in ("Mars/Base", "../etc/passwd", "/etc/localtime", "Europe", "a\0b", "é" * 300, "EST")
        ),
    ],
)
def test_what_is_no_schedule(text: str, zone: str) -> None:
    """What Cloud Scheduler would not take is a 400 that names the schedule."""
    with pytest.raises(ScheduleError):
        parse(text, zone)
    with pytest.raises(ApiError) as refused:
        complete({**JOB, "schedule": text, "timeZone": zone})
    assert refused.value.code == 400 and "schedule" in refused.value.message.lower()


@given(
    st.text(max_size=30)
    | st.lists(st.text("0123456789*/,-jan", min_size=1, max_size=6), min_size=5, max_size=5).map(" ".join)
)
def test_any_text_is_a_schedule_or_refused(text: str) -> None:
    """Whatever the text, it is refused or has a next time that lies in the future."""
    now = datetime(2026, 11, 20, tzinfo=UTC)
    try:
        schedule = parse(text, "Europe/Berlin")
    except ScheduleError:
        pass
    else:
        assert schedule.after(now) > now


def test_backoff_is_googles_own_example() -> None:
    """10s, 300s and 3 doublings give the waits of the service's documentation."""
    retry = {"minBackoffDuration": "10s", "maxBackoffDuration": "300s", "maxDoublings": 3}
    assert [backoff(retry, n) for n in range(8)] == [10, 20, 40, 80, 160, 240, 300, 300]


@pytest.mark.parametrize(
    ("count", "limit", "number", "elapsed", "expected"),
    [
        (0, 0, 0, 0, False),
        (0, 99, 0, 0, False),
        (2, 0, 1, 9e9, True),
        (2, 0, 2, 0, False),
        (2, 60, 5, 59, True),
        (2, 60, 5, 60, False),
    ],
)
def test_retry_limits(count: int, limit: int, number: int, elapsed: float, expected: bool) -> None:
    """No retries without a count; with a duration as well, both limits must be reached."""
    retry = {**DEFAULT_RETRY, "retryCount": count, "maxRetryDuration": f"{limit}s"}
    assert may_retry(retry, number, elapsed) is expected


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"schedule": ""}, "The provided schedule or timezone are invalid."),
        ({"httpTarget": None}, "must have a target"),
        ({"schedule": ",".join(["1"] * 300) + " * * * *"}, "The provided schedule or timezone are invalid."),
        ({"pubsubTarget": {"topicName": "t"}}, "oneof field 'target' is already set. Cannot set 'pubsubTarget'"),
        ({"httpTarget": None, "pubsubTarget": {"topicName": "t", "data": "eA=="}}, "/projects/<PROJECT_ID>/"),
        ({"httpTarget": None, "pubsubTarget": {"topicName": "projects/p/topics/t"}}, "at least one attribute"),
        ({"httpTarget": None, "appEngineHttpTarget": {"httpMethod": "PATCH"}}, "must not be PATCH"),
        ({"httpTarget": None, "appEngineHttpTarget": {"relativeUri": "x"}}, "begin with '/'"),
        ({"httpTarget": None, "appEngineHttpTarget": {"httpMethod": "GET", "body": "eA=="}}, "only with POST and PUT"),
        ({"httpTarget": None, "appEngineHttpTarget": {}, "attemptDeadline": "86416s"}, "86415s"),
        ({"colour": 1}, "Unknown name \"colour\" at 'job': Cannot find field."),
        ({"description": "x" * 501}, "500"),
        ({"attemptDeadline": "14s"}, "15s"),
        ({"attemptDeadline": "1801s"}, "1800s"),
        (
            {"attemptDeadline": 60},
            "Invalid value at 'job.attempt_deadline' (type.googleapis.com/google.protobuf.Duration)",
        ),
        ({"attemptDeadline": "1h"}, "Field 'attemptDeadline', Illegal duration format; duration must end with 's'"),
        ({"schedule": 5}, "Invalid value at 'job.schedule' (TYPE_STRING), 5"),
        ({"schedule": {}}, "Invalid value at 'job' (schedule), Starting an object on a scalar field"),
        (
            {"retryConfig": [{}]},
            "Unknown name \"retryConfig\" at 'job': Proto field is not repeating, cannot start list.",
        ),
        ({"retryConfig": {"retryCount": "x"}}, "Invalid value at 'job.retry_config.retry_count' (TYPE_INT32), \"x\""),
        ({"retryConfig": {"retryCount": 6}}, "invalid retry count"),
        ({"retryConfig": {"retryCount": -1}}, "invalid retry count"),
        ({"retryConfig": {"minBackoffDuration": "9s", "maxBackoffDuration": "8s"}}, "larger"),
        ({"httpTarget": {"uri": "ftp://x/"}}, "uri"),
        ({"httpTarget": {"uri": "http:///x"}}, "uri"),
        ({"httpTarget": {"uri": "http://[::1"}}, "uri"),
        ({"httpTarget": {"uri": "http://x/" + "y" * 2083}}, "2083"),
        ({"httpTarget": {"uri": "http://x/", "httpMethod": "GET", "body": "eA=="}}, "body is not allowed"),
        (
            {"httpTarget": {"uri": "http://x/", "httpMethod": "FETCH"}},
            '(type.googleapis.com/google.cloud.scheduler.v1.HttpMethod), "FETCH"',
        ),
        ({"httpTarget": {"uri": "http://x/", "body": "%%%"}}, "Base64"),
        ({"httpTarget": {"uri": "http://x/", "headers": {"a": "b\r\nc: d"}}}, "control characters"),
        ({"httpTarget": {"uri": "http://x/", "headers": {"a": "b" * 90000}}}, "headers are larger"),
        ({"httpTarget": {"uri": "http://x/", "oidcToken": {"audience": "x"}}}, "serviceAccountEmail"),
        (
            {
                "httpTarget": {
                    "uri": "http://x/",
                    "oidcToken": {"serviceAccountEmail": "a@b"},
                    "oauthToken": {"scope": "x"},
                }
            },
            "oneof field 'authorization_header' is already set. Cannot set 'oauthToken'",
        ),
    ],
)
def test_what_is_no_job(change: dict[str, Any], part: str) -> None:
    """Each rule of the job resource is held with a 400 that says what is wrong."""
    with pytest.raises(ApiError) as refused:
        complete(read({**JOB, **change}))
    assert refused.value.code == 400 and part in refused.value.message, refused.value.message


def test_a_long_schedule_is_refused_at_once() -> None:
    """A cron line of 80 KB is refused by its length, before it is read."""
    began = time.process_time()
    with pytest.raises(ApiError):
        complete({**JOB, "schedule": ",".join(["1"] * 40_000) + " * * * *"})
    assert time.process_time() - began < 0.1


def test_a_mask_puts_a_target_in_the_place_of_another() -> None:
    """A job has one target: a PATCH of a topic takes the HTTP target away."""
    topic = {"topicName": "projects/p/topics/t", "data": "eA=="}
    new = complete(changed(complete(read(JOB)), read({"pubsubTarget": topic}), "pubsubTarget"))
    assert new["pubsubTarget"] == topic and "httpTarget" not in new


def test_defaults_and_numbers_for_enums() -> None:
    """A job gets the documented defaults; httpMethod may be a number, as the SDK sends it."""
    job = complete(
        read({**JOB, "httpTarget": {"uri": "http://x/", "httpMethod": 4, "oidcToken": {"serviceAccountEmail": "a@b"}}})
    )
    assert job["httpTarget"]["httpMethod"] == "PUT" and job["attemptDeadline"] == "180s" and job["timeZone"] == "UTC"
    assert job["retryConfig"] == DEFAULT_RETRY and job["httpTarget"]["oidcToken"]["audience"] == "http://x/"


def test_the_service_fills_in_the_headers_of_an_app_engine_target() -> None:
    """The service's agent follows the client's, a body has its length and a type, and a second time changes nothing."""
    body = {"body": "eA==", "headers": {"User-Agent": "mine", "X-A": "b"}}
    target = {**{key: JOB[key] for key in ("name", "schedule")}, "appEngineHttpTarget": body}
    made = complete(target)
    agent = "AppEngine-Google; (+http://code.google.com/appengine)"
    headers = {
        "X-A": "b",
        "Content-Length": "1",
        "User-Agent": f"mine {agent}",
        "Content-Type": "application/octet-stream",
    }
    assert made["appEngineHttpTarget"]["headers"] == headers
    assert complete(made)["appEngineHttpTarget"]["headers"] == headers
    assert complete({**target, "appEngineHttpTarget": {}})["appEngineHttpTarget"]["headers"] == {"User-Agent": agent}
    assert "retryConfig" not in made


def test_a_mask_changes_only_what_it_names() -> None:
    """A PATCH sets or clears the masked fields, nested ones alone, and leaves the rest; a wrong mask is a 400."""
    old = complete(
        read({**JOB, "description": "d", "httpTarget": {"uri": "http://x/", "headers": {"a": "b", "user-agent": "x"}}})
    )
    new = changed(old, {"httpTarget": {"uri": "http://y/"}}, "httpTarget.uri,description")
    assert (
        new["httpTarget"]["uri"] == "http://y/"
        and new["httpTarget"]["headers"] == {"a": "b", "User-Agent": "Google-Cloud-Scheduler"}
        and "description" not in new
    )
    assert changed(old, {"schedule": "* * * * *"}, "")["schedule"] == "* * * * *"
    for mask in ("colour", "schedule.x", "http_target.nope", "Schedule,TimeZone", "schedule,colour"):
        with pytest.raises(ApiError, match=f"^Invalid mask for Job: {mask}$"):
            changed(old, {}, mask)


@pytest.mark.parametrize("mask", ["httpTarget.oauthToken", "http_target.oauth_token.service_account_email"])
def test_a_job_has_one_kind_of_token(mask: str) -> None:
    """A PATCH that sets a token of the other kind takes the old one away; one that clears what is not set keeps it."""
    email = {"serviceAccountEmail": "a@b"}
    old = complete(read({**JOB, "httpTarget": {"uri": "https://x.googleapis.com/", "oidcToken": email}}))
    new = complete(changed(old, read({"httpTarget": {"oauthToken": email}}), mask))
    scope = {"scope": "https://www.googleapis.com/auth/cloud-platform"}
    assert new["httpTarget"]["oauthToken"] == {**email, **scope} and "oidcToken" not in new["httpTarget"]
    assert complete(read(new)) == new
    assert changed(old, {}, mask)["httpTarget"]["oidcToken"] == old["httpTarget"]["oidcToken"]


@pytest.mark.parametrize(
    ("host", "fine"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("127.9.9.9", True),
        ("example.com", False),
        ("169.254.169.254", False),
    ],
)
def test_only_this_machine_is_fired_at(host: str, fine: bool) -> None:
    """Loopback targets are fired at, and no others."""
    assert (refusal(host) is None) is fine
