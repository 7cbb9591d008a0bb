"""Log entries: kept in order, found by filters, read by the real gcloud."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.responses import JSONResponse

from localvertex.http import ApiError, mount
from localvertex.jobs import resources
from localvertex.runner.lines import Line, Splitter
from localvertex.services.log_store import LogStore
from localvertex.services.logging_api import LoggingApi
from localvertex.services.logging_query import bounds, matching, parse
from tests.support.junk import JSON
from tests.support.tools import examples
from tests.support.web import http
from vertexrig import times
from vertexrig.guard import LoopbackGuard

Command = Callable[..., subprocess.CompletedProcess[str]]
START = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)

ENTRY: dict[str, Any] = {
    "logName": "projects/p/logs/workerpool0-0",
    "resource": {"type": "ml_job", "labels": {"job_id": "123", "task_name": "workerpool0-0"}},
    "severity": "ERROR",
    "timestamp": "2026-11-20T12:00:00.500000000Z",
    "insertId": "0000000000000007",
    "labels": {"ml.googleapis.com/trial_id": "3"},
    "jsonPayload": {"message": "Loss is NaN", "step": 12, "tags": ["a", "b"], "nested": {"ok": True}},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ('resource.type="ml_job" AND resource.labels.job_id="123"', True),
        ('resource.type="ml_job" resource.labels.job_id="124"', False),
        ('resource.labels.task_name = "workerpool0-0"', True),
        ('labels."ml.googleapis.com/trial_id"="3"', True),
        ('timestamp>="2026-11-20T12:00:00Z" AND timestamp<"2026-11-20T12:00:01Z"', True),
        ('timestamp="2026-11-20T13:00:00.5+01:00"', True),
        ("timestamp > 2026-11-20", True),
        ("timestamp < 2026-11-20", False),
        (
            '((timestamp="2026-11-20T12:00:00.500000000Z" AND insertId>"0000000000000006") '
            'OR timestamp>"2026-11-20T12:00:00.500000000Z")',
            True,
        ),
        (
            '((timestamp="2026-11-20T12:00:00.500000000Z" AND insertId>"0000000000000007") '
            'OR timestamp>"2026-11-20T12:00:00.500000000Z")',
            False,
        ),
        ("severity>=WARNING", True),
        ("severity = error", True),
        ("severity>ERROR", False),
        ("severity=(INFO OR ERROR)", True),
        ("severity=(INFO OR DEBUG)", False),
        ("NOT severity=ERROR", False),
        ("-severity=INFO", True),
        ("NOT (severity=INFO OR severity=DEBUG)", True),
        ("severity=INFO OR severity=ERROR AND jsonPayload.step=13", False),
        ("severity=ERROR OR severity=INFO AND jsonPayload.step=13", False),
        ("jsonPayload.step>=12 jsonPayload.step<13", True),
        ("jsonPayload.step=twelve", False),
        ('jsonPayload.message:"nan"', True),
        ("jsonPayload.message:*", True),
        ("jsonPayload.gone:*", False),
        ("NOT jsonPayload.gone:*", True),
        ('jsonPayload.gone!="x"', False),
        ("jsonPayload.tags=b", True),
        ("jsonPayload.nested.ok=true", True),
        ('"loss is"', True),
        ("loss gain", False),
        ("-- a comment\nseverity=ERROR -- another", True),
        ('jsonPayload.message="loss is \\"nan\\""', False),
        ('jsonPayload.message=~"^Loss"', True),
        ('jsonPayload.message=~"^loss"', False),
        (r'jsonPayload.message=~"\w+\sis"', True),
        (r'jsonPayload.message=~"\\w+\\sis"', True),
        ('jsonPayload.message!~"Gain"', True),
        ('jsonPayload.gone!~"Gain"', False),
        ('jsonPayload.step=~("1" OR "2")', False),  # of texts alone
        ('log_id("workerpool0-0")', True),
        ('log_id("workerpool0")', False),
        ('source("projects/p")', True),
        ('source("projects/other")', False),
        ('SEARCH("nan loss")', True),
        ('SEARCH(jsonPayload.message, "lo")', False),
        ("sample(insertId, 1) NOT sample(insertId, 0)", True),
        ('ip_in_net(jsonPayload.message, "10.0.0.0/8")', False),
    ],
)
def test_filters(text: str, expected: bool) -> None:
    """Each part of the query language that clients send selects what the service would select."""
    assert matching(parse(text))(ENTRY) is expected


def test_an_entry_of_more_than_256_kib_is_refused(tmp_path: Path) -> None:
    """The refusal has the entry's size, with one decimal in K and two in M, and nothing of the request is written."""
    store = LogStore(tmp_path)
    for length, shown in ((400_000, r"390\.\dK"), (int(6.23 * 2**20), r"6\.23M")):
        with pytest.raises(ApiError, match=rf"^Log entry with size {shown} exceeds maximum size of 256\.0K$"):
            write(store, {"textPayload": "small"}, {"textPayload": "a" * length})
    assert store.log_names() == []
    write(store, {"textPayload": "a" * 260_000})


def write(store: LogStore, *entries: dict[str, Any], **more: Any) -> None:
    """Write entries of a log."""
    request = {"logName": "projects/p/logs/own", "resource": {"type": "global"}, **more}
    LoggingApi(store).write_entries({**request, "entries": list(entries)})


def test_a_resource_has_the_labels_of_its_type(tmp_path: Path) -> None:
    """A label that the type does not have is refused by name; one that the service drops is dropped."""
    store = LogStore(tmp_path)
    with pytest.raises(ApiError, match=r"^Resource gae_app has extra label: instance_name$"):
        write(store, {"textPayload": "x", "resource": {"type": "gae_app", "labels": {"instance_name": "a"}}})
    for kind, labels in (
        ("gce_instance", {"zone": "z", "instance_name": "a"}),
        ("folder", {"folder_id": "1"}),
        ("example.com/New", {"any": "1"}),
    ):
        write(store, {"textPayload": kind, "resource": {"type": kind, "labels": labels}})
    shown = {entry["textPayload"]: entry["resource"]["labels"] for entry in store.query(parse(""))[0]}
    assert shown == {
        "gce_instance": {"project_id": "p", "zone": "z"},
        "folder": {"folder_id": "1"},
        "example.com/New": {"project_id": "p", "any": "1"},
    }


def test_the_types_of_resources_are_listed_by_page(tmp_path: Path) -> None:
    """A list of descriptors has each type with its labels, and a token while there are more."""
    api = LoggingApi(LogStore(tmp_path))
    first = api.list_resource_types({"pageSize": 300})
    rest = api.list_resource_types({"pageToken": first["nextPageToken"]})
    every = {one["type"]: [label["key"] for label in one["labels"]] for one in rest["resourceDescriptors"]}
    assert len(first["resourceDescriptors"]) == 300 and "nextPageToken" not in rest
    assert every["vpn_tunnel"] == ["project_id", "tunnel_id", "tunnel_name", "location"]


def test_an_entry_without_severity_shows_none(tmp_path: Path) -> None:
    """The severity DEFAULT is the 0 of the enum: it is not in an answer, of a client's entry or of a replica's line, and filters find it."""
    store = LogStore(tmp_path)
    write(
        store,
        {"textPayload": "a"},
        {"textPayload": "b", "severity": "DEFAULT"},
        {"textPayload": "c", "severity": 0},
    )
    append(store, "1", "workerpool0-0", "DEFAULT", "d", datetime.now(timezone.utc))
    found = store.query(parse("severity=DEFAULT"))[0]
    assert len(found) == 4 and not any("severity" in entry for entry in found)
    assert store.query(parse("severity>=INFO"))[0] == []


def test_the_fields_of_an_entry_are_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """As answers of entries:list have them, whatever order a client sent."""
    store = LogStore(tmp_path)
    write(store, {"severity": "ERROR", "labels": {"a": "b"}, "textPayload": "x"})
    assert list(store.query(parse(""))[0][0]) == [
        "textPayload", "insertId", "resource", "timestamp", "severity", "labels", "logName", "receiveTimestamp",
    ]  # fmt: skip


def test_the_same_entry_is_kept_once(tmp_path: Path) -> None:
    """Entries of a project with the same insertId and time are one; with another of these they are others."""
    store = LogStore(tmp_path)
    same = {"textPayload": "x", "insertId": "a", "timestamp": times.rfc3339(datetime.now(timezone.utc))}
    write(store, same, same)
    write(store, same, {**same, "insertId": "b"}, {**same, "logName": "projects/q/logs/own"})
    write(store, {"textPayload": "x", "insertId": "a"})
    found = store.query(parse(""))[0]
    assert len(found) == 4 and "labels" not in found[0]  # empty maps are not shown


def test_ids_sort_as_entries_were_made(tmp_path: Path) -> None:
    """Entries of the same time have ids of 14 small letters and digits, in the order in which they were written."""
    store = LogStore(tmp_path)
    same = {"timestamp": times.rfc3339(datetime.now(timezone.utc))}
    write(store, *({**same, "textPayload": str(number)} for number in range(50)))
    found = store.query(parse(""))[0]
    ids = [entry["insertId"] for entry in found]
    assert all(re.fullmatch("[a-z0-9]{14}", one) for one in ids) and ids == sorted(set(ids))
    assert [entry["textPayload"] for entry in found] == [str(number) for number in range(50)]


def test_a_log_that_is_deleted_has_no_entries(tmp_path: Path) -> None:
    """DeleteLog removes the entries of one log, and answers 404 for a log without any."""
    store = LogStore(tmp_path)
    write(store, {"textPayload": "x", "logName": "projects/p/logs/a%2Fb"}, {"textPayload": "y"})
    assert LoggingApi(store).delete_log({"logName": "projects/p/logs/a/b"}) == {}
    assert store.log_names() == ["projects/p/logs/own"]
    with pytest.raises(ApiError, match=r"^Requested entity was not found\.$") as refused:
        LoggingApi(store).delete_log({"logName": "projects/p/logs/a/b"})
    assert refused.value.code == 404


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('severity=ERROR AND timestamp >= "2020-01-27T 8:05:00Z"', "2020-01-27t 8:05:00z"),
        ("receiveTimestamp<yesterday", "yesterday"),
        ("httpRequest.status>=4xx", "4xx"),
    ],
)
def test_a_value_of_another_type_is_refused(text: str, value: str) -> None:
    """A time or a number is compared with a value of its type; the refusal has the value in lower case."""
    with pytest.raises(ApiError, match=f"^The value '{value}' is of incorrect type\\.$"):
        parse(text)
    parse(f'textPayload="{value}" OR timestamp="2026-11-20" OR httpRequest.status=404')


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("projects/p/logs/Logger Factory", "^Log name contains illegal character  $"),
        ("projects/p/logs/a%3Fb", r"^Log name contains illegal character \?$"),
        (
            "folders/1/logs/a/b",
            r'^Received unexpected .* "folders/1/logs/a/b": b\. .* folders/\[FOLDER_ID\]/logs/\[ID\]$',
        ),
        ("logs/a", "log_name must be projects/PROJECT/logs/LOG"),
    ],
)
def test_the_name_of_a_log(tmp_path: Path, log: str, said: str) -> None:
    """A log's own name has letters, digits and /_.- with its slashes encoded; other names are refused in the service's words."""
    store = LogStore(tmp_path, project="p")
    entry = {"resource": {"type": "global"}, "textPayload": "x"}
    with pytest.raises(ApiError, match=said):
        LoggingApi(store).write_entries({"entries": [{**entry, "logName": log}]})
    LoggingApi(store).write_entries({"entries": [{**entry, "logName": "/projects/p/logs/a%2Fb"}]})
    assert store.log_names() == ["projects/p/logs/a%2Fb"]


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("insertId = abc:def", "line 1, column 15, token ':';\nsyntax error at line 1, column 16, token 'def'"),
        ("timestamp>=2026-06-12T03:23:45Z", "line 1, column 25, token ':'"),
        ("a\n  (b", "line 2, column 5, token 'EOF'"),
        ("cast(a, INT64) = 1", "line 1, column 6, token 'a'"),
        ("a.name=~id=x.y", "line 1, column 11, token '='"),
        ("a.name =~ id AND b=1", "line 1, column 11, token 'id'"),
    ],
)
def test_the_refusal_names_the_token(text: str, token: str) -> None:
    """A filter that cannot be read is refused as by the service: with line, column and token."""
    with pytest.raises(ApiError) as refused:
        parse(text)
    assert refused.value.message == f"Unparseable filter: syntax error at {token}"


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)*b", "((x*)y)+", "(?:a{1,9})*z", "(a(b|c)d)+"])
def test_a_pattern_that_could_take_years_is_refused(pattern: str) -> None:
    """Python's re takes exponential time for a repeated group with a choice or a repetition, which RE2 does not."""
    with pytest.raises(ApiError) as refused:
        parse(f'textPayload=~"{pattern}"')
    assert refused.value.code == 400 and "repeats a group" in refused.value.message


@pytest.mark.parametrize("pattern", ["[(*+]+", r"\\(a*\\)+", "(ab)+", "(a|b)c", "(?i)x.*y", "[^)]*\\)+"])
def test_other_patterns_are_taken(pattern: str) -> None:
    """Brackets and escaped parentheses are no groups, and a group may be repeated or hold a choice."""
    parse(f'textPayload=~"{pattern}"')


@pytest.mark.parametrize(
    "text",
    [
        "(",
        ")",
        "a AND",
        "severity=",
        "NOT",
        "a OR",
        "severity=(INFO OR",
        "x=~y",
        'x=~"["',
        'x=~"(?=a)b"',
        r'x=~"(a)\\1"',
        'x=~"' + "a" * 1001 + '"',
        'ip_in_net(x, "nowhere")',
        "sample(x, 2)",
        "log_id(a, b, c)",
        "(" * 99,
        'a="b',
        "OR a",
        "x=(a OR b c)",
        "a" * 20001,
    ],
)
def test_what_is_no_filter(text: str) -> None:
    """A filter that cannot be read is a 400."""
    with pytest.raises(ApiError) as refused:
        parse(text)
    assert refused.value.code == 400


@pytest.mark.parametrize("text", ['url:"/train"', "NOT (severity>=INFO AND url.path:*)", "sample(url, 0.5)"])
def test_a_field_that_no_entry_has_is_refused(text: str) -> None:
    """A filter on a field that entries do not have is a 400 in the service's words; one of theirs may be written in snake case or capitals."""
    with pytest.raises(ApiError, match=r"^Field not found: 'url'$") as refused:
        parse(text)
    assert (refused.value.code, refused.value.status) == (400, "INVALID_ARGUMENT")
    assert parse('http_request.request_url:"/train" AND jsonPayload.url:"/train" AND Severity>=INFO')


TERMS = st.sampled_from(
    [
        "severity>=INFO",
        'a.b="c"',
        "timestamp>1",
        "AND",
        "OR",
        "NOT",
        "(",
        ")",
        "-",
        "--",
        '"',
        ":",
        "=",
        "x",
        "\\",
        "\n",
    ]
)


@given(st.lists(TERMS | st.text(max_size=3), max_size=12).map(" ".join))
def test_any_text_is_a_filter_or_a_400(text: str) -> None:
    """Whatever the text, it is refused with a 400 or can be applied."""
    try:
        node = parse(text)
    except ApiError as error:
        assert error.code == 400
    else:
        assert matching(node)(ENTRY) in (True, False)


@settings(max_examples=examples(60, 600))
@given(st.lists(st.sampled_from(["timestamp", "timestamp", "timestamp", "job"]), min_size=1, max_size=3), st.data())
def test_bounds_never_lose_an_entry(kinds: list[str], data: st.DataObject) -> None:
    """What a filter lets through lies within the bounds that the index is read with."""
    operator = st.sampled_from(["=", "<", "<=", ">", ">=", "!="])
    joiner = data.draw(st.sampled_from([" AND ", " OR ", " OR "]))
    pieces = []
    for kind in kinds:
        if kind == "timestamp":
            second = data.draw(st.integers(0, 3))
            pieces.append(f'timestamp{data.draw(operator)}"2026-11-20T12:00:0{second}Z"')
        else:
            pieces.append(f'resource.labels.job_id{data.draw(operator)}"12{data.draw(st.integers(2, 4))}"')
    text = data.draw(st.sampled_from(["{}", "NOT ({})", "({}) severity=ERROR"])).format(joiner.join(pieces))
    entry = {**ENTRY, "timestamp": f"2026-11-20T12:00:0{data.draw(st.integers(0, 3))}.000000000Z"}
    found = bounds(parse(text))
    when = times.nanoseconds(entry["timestamp"])
    assert when is not None
    if matching(parse(text))(entry):
        assert found.job_id in (None, "123")
        assert (found.first is None or found.first <= when) and (found.last is None or when <= found.last), text


@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)))
def test_times_go_and_come_back(moment: datetime) -> None:
    """A time written as text is read as itself, and text sorts as time does."""
    ns = times.nanoseconds_of(moment.replace(tzinfo=timezone.utc))
    assert times.nanoseconds(times.rfc3339_ns(ns)) == ns and times.rfc3339_ns(ns) < times.rfc3339_ns(ns + 1)


def append(store: LogStore, job: str, task: str, severity: str, payload: Any, at: datetime = START) -> None:
    text, data = (payload, None) if isinstance(payload, str) else ("", payload)
    store.write(f"projects/1/locations/l/customJobs/{job}", [Line(at.timestamp(), task, severity, text, data)])


def test_the_labels_of_a_line(tmp_path: Path) -> None:
    """A line's own labels are beside those of its machine, and the labels of a trial's entries are not known."""
    store = LogStore(tmp_path, study_of=lambda name: "9" if name.endswith("/2") else "")
    append(store, "1", "workerpool0-1", "INFO", {"message": "x", "logging.googleapis.com/labels": {"own": "yes"}})
    append(store, "2", "workerpool0-1", "INFO", "of a trial")
    (line,), (trial,) = stored(store), stored(store, "2")
    assert line["labels"]["own"] == "yes"
    assert line["labels"].keys() - trial["labels"].keys() == {
        "own",
        "ml.googleapis.com/trial_id",
        "ml.googleapis.com/trial_type",
    }


def test_the_log_of_a_job_is_that_of_its_project(tmp_path: Path) -> None:
    """A job of a project that only the request names has its entries below that project's id."""
    store, number = LogStore(tmp_path, project="my-project"), resources.project_number("of-its-own")
    store.write(f"projects/{number}/locations/l/customJobs/1", [Line(START.timestamp(), "t", "INFO", "x")])
    assert stored(store)[0]["logName"] == "projects/of-its-own/logs/t"


def stored(store: LogStore, job: str = "1") -> list[dict[str, Any]]:
    """A job's entries; those of one time are in the order of their arrival."""
    return store.query(parse(f'resource.labels.job_id="{job}"'), limit=10**6)[0]


def test_lines_come_back_in_order(tmp_path: Path) -> None:
    """What many threads append is read back whole: per replica in the order it was written."""
    store = LogStore(tmp_path)

    def speak(task: str) -> None:
        for number in range(100):
            append(store, "1", task, "INFO", str(number))

    threads = [threading.Thread(target=speak, args=(f"workerpool0-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = stored(store)
    for n in range(4):
        task = f"workerpool0-{n}"
        written = [
            entry["jsonPayload"]["message"] for entry in everything if entry["resource"]["labels"]["task_name"] == task
        ]
        assert written == [str(number) for number in range(100)]
    assert not stored(store, "2")


def test_strange_lines(tmp_path: Path) -> None:
    """Text that UTF-8 cannot hold, no text, and data are entries like all others."""
    store = LogStore(tmp_path)
    for payload in ("a\udcffb", "", {"step": 1}):
        append(store, "1", "t", "INFO", payload)
    entries = stored(store)
    assert [one["jsonPayload"].get("message") for one in entries] == ["a?b", "", None]
    assert entries[2]["jsonPayload"] == {"step": 1}
    assert entries[0]["jsonPayload"] == {"attrs": {"tag": "t"}, "levelname": "INFO", "message": "a?b"}
    append(store, "1", "service", "INFO", "said by the service")
    assert stored(store)[-1]["textPayload"] == "said by the service"


def test_special_keys_of_a_json_line_are_the_entrys_fields(tmp_path: Path) -> None:
    """Severity, time, labels, trace and request of a line leave its jsonPayload; what does not fit the field stays there."""
    when = times.now() - timedelta(seconds=90)
    prefix = "logging.googleapis.com/"
    told = {
        "severity": "warn", "message": "hi", "k": "v", "time": when.isoformat(),
        f"{prefix}labels": {"a": "b"}, f"{prefix}trace": "t", f"{prefix}trace_sampled": True,
        "httpRequest": {"requestMethod": "GET"}, f"{prefix}spanId": 7, f"{prefix}operation": "no message",
    }  # fmt: skip
    other = {"severity": "loud", "message": "ho", "timestampSeconds": int(when.timestamp()) + 1, "timestampNanos": 5}
    late = {"message": "late", "time": "2099-01-01T00:00:00Z", "timestamp": {"seconds": 1}}
    store, splitter = LogStore(tmp_path), Splitter("workerpool0-0", "stdout", by_executor=True)
    store.write(
        "projects/1/customJobs/5",
        splitter.feed("".join(json.dumps(one) + "\n" for one in (other, late, told)).encode()),
    )
    first, second, third = stored(store, "5")
    assert first["jsonPayload"] == {"message": "hi", "k": "v", f"{prefix}spanId": 7, f"{prefix}operation": "no message"}
    assert first["timestamp"] == times.rfc3339_ns(times.nanoseconds_of(when)) and first["severity"] == "WARNING"
    own = [first[key] for key in ("labels", "trace", "traceSampled", "httpRequest")]
    assert own[0]["a"] == "b" and own[1:] == ["t", True, {"requestMethod": "GET"}]
    assert second["jsonPayload"] == {"severity": "loud", "message": "ho"} and second["severity"] == "INFO"
    assert second["timestamp"].endswith(".000000005Z") and third["jsonPayload"] == late


def test_a_progress_bar_and_blank_lines_of_a_package() -> None:
    """Of a package each state of a progress bar is a line, and a blank line is none; of a container the lines are as written."""
    output = [b"Downloading\n\r  0%|\r 58%|", b"\r100%|\n\nend\r", b"\n"]
    splitter = Splitter("t", "stderr", by_executor=True)
    found = [line for data in output for line in splitter.feed(data)]
    assert [line.text for line in found] == ["Downloading", "  0%|", " 58%|", "100%|", "end"]
    assert {line.severity for line in found} == {"ERROR"} and len({line.time for line in found}) == 5
    splitter = Splitter("t", "stderr", by_executor=False)
    texts = [line.text for data in output for line in splitter.feed(data)]
    assert texts == ["Downloading", "\r  0%|\r 58%|\r100%|", "", "end"]


def test_json_that_no_answer_can_hold_is_text(tmp_path: Path) -> None:
    """A line with NaN, with a number beyond a double or with half a character is text, so the log of its job can be read."""
    store = LogStore(tmp_path)
    lines = ['{"loss": NaN}', '{"loss": 1e999}', '{"text": "\\ud800"}', '{"loss": 1}']
    output = "".join(f"{line}\n" for line in lines).encode()
    store.write("projects/1/locations/l/customJobs/1", Splitter("t", "stdout", by_executor=True).feed(output))
    answer = json.loads(bytes(JSONResponse({"entries": stored(store)}).body))["entries"]
    assert [one["jsonPayload"].get("message", one["jsonPayload"]) for one in answer] == [*lines[:3], {"loss": 1}]


def test_a_tuning_job_has_the_entries_of_its_trials(tmp_path: Path) -> None:
    """A query for a tuning job's id gives what its trials and it wrote, in order and in pages, under that id; others give each once."""
    study = "projects/1/locations/l/hyperparameterTuningJobs/9"
    store = LogStore(tmp_path, study_of=lambda name: study if name[-1] in "129" else "")
    for number in range(8):
        append(store, "1239"[number % 4], "t", "INFO", str(number), START + timedelta(seconds=8 - number))
    found = stored(store, "9")
    assert [entry["jsonPayload"]["message"] for entry in found] == ["7", "5", "4", "3", "1", "0"]
    assert {entry["resource"]["labels"]["job_id"] for entry in found} == {"9"}
    assert [entry["jsonPayload"]["message"] for entry in stored(store, "1")] == ["4", "0"]
    node = parse(f'resource.labels.job_id="9" AND timestamp>"{(START + timedelta(seconds=1)).isoformat()}"')
    first, place = store.query(node, descending=True, limit=2)
    rest, _ = store.query(node, descending=True, limit=9, after=place)
    assert [entry["jsonPayload"]["message"] for entry in first + rest] == ["0", "1", "3", "4", "5"]
    assert len(store.query(parse('resource.type="ml_job"'))[0]) == 8


def test_pages_give_each_entry_once(tmp_path: Path) -> None:
    """Pages of a query, both ways, give every entry once, sorted by time and then by insertId."""
    store = LogStore(tmp_path)
    for number in range(40):
        append(store, "1", "t", "INFO", str(number), START + timedelta(seconds=number % 7))
    node = parse('resource.labels.job_id="1"')
    for descending in (False, True):
        found, place = [], None
        while True:
            page, place = store.query(node, descending=descending, after=place, limit=7)
            found += [(entry["timestamp"], entry["insertId"]) for entry in page]
            if place is None:
                break
        assert found == sorted(found, reverse=descending) and len(set(found)) == 40


@pytest.fixture(scope="module")
def served_store(tmp_path_factory: pytest.TempPathFactory, serving: Any) -> Iterator[tuple[str, LogStore]]:
    """The Logging API."""
    store = LogStore(tmp_path_factory.mktemp("root"), project="my-project")
    with serving(LoopbackGuard(Starlette(routes=[mount("/logging", LoggingApi(store).service.routes())]))) as url:
        yield url, store


def test_gcloud_logging(gcloud: Command, served_store: tuple[str, LogStore]) -> None:
    """Gcloud logging write stores an entry, gcloud logging read finds it by severity, the newest first, and its log is listed."""
    url, store = served_store
    gcloud("logging", "write", "my-log", "plain words", "--severity=WARNING", url=url)
    more = {"logName": "projects/my-project/logs/my-log", "severity": "ERROR"}
    write(store, {"textPayload": "later words", **more}, {"textPayload": "small", **more, "severity": "INFO"})
    read = ("logging", "read", 'logName="projects/my-project/logs/my-log" AND severity>=WARNING', "--format=json")
    found = json.loads(gcloud(*read, url=url).stdout)
    assert [entry["textPayload"] for entry in found] == ["later words", "plain words"]
    assert "my-log" in gcloud("logging", "logs", "list", url=url).stdout


LIST = ["resourceNames", "filter", "orderBy", "pageSize", "pageToken", "x"]
WRITE = ["logName", "resource", "labels", "dryRun"]
LOG_ENTRY = st.fixed_dictionaries(
    {"logName": st.just("projects/p/logs/l") | JSON},
    optional={
        "textPayload": st.text(max_size=5) | JSON,
        "jsonPayload": JSON,
        "timestamp": JSON | st.sampled_from(["2026-11-20T12:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"]),
        "severity": JSON | st.sampled_from(["INFO", 500]),
        "resource": JSON | st.fixed_dictionaries({"type": JSON}, optional={"labels": JSON}),
        "labels": JSON,
        "insertId": JSON,
    },
)
FILTERS = st.sampled_from(['timestamp>="9999-12-31T00:00:00Z"', "severity>=INFO", "x", "timestamp>x", "a" * 30_000])


@pytest.mark.whole
@settings(max_examples=examples(40, 500))
@given(
    path=st.sampled_from(["entries:list", "entries:write", "entries:tail", "projects/p/logs"]),
    body=st.binary(max_size=30)
    | JSON
    | st.dictionaries(st.sampled_from(LIST), JSON, max_size=4)
    | st.fixed_dictionaries({"resourceNames": st.just(["projects/p"]), "filter": FILTERS | st.text(max_size=20)})
    | st.builds(
        lambda more, entries: {**more, "entries": entries},
        st.dictionaries(st.sampled_from(WRITE), JSON),
        st.lists(LOG_ENTRY),
    ),
)
def test_nonsense_is_never_a_500(served_store: tuple[str, LogStore], path: str, body: Any) -> None:
    """Any body gets an answer below 500; errors are in Google's format."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = http.post(f"{served_store[0]}/logging/v2/{path}", content=content, timeout=20)
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.json()["error"].keys() >= {"code", "message", "status"}
    listed = http.post(f"{served_store[0]}/logging/v2/entries:list", json={"resourceNames": ["projects/p"]}, timeout=20)
    assert listed.status_code == 200
