"""The trigger's answers, in process: requests, refusals, attacks, events, and its OpenAPI document."""

from __future__ import annotations

import base64
import copy
import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support import clouds
from vertexrig.cloud.rest import Rest
from vertexrig.cloud.vertex import Vertex
from vertexrig.errors import ConfigError
from vertexrig.project import caller_overrides
from vertexrig.project.arguments import with_flags
from vertexrig.submit.claims import Claims
from vertexrig.submit.submission import Request
from vertexrig.trigger import request
from vertexrig.trigger.answers import Reply
from vertexrig.trigger.app import Call, RetryEventError, Trigger
from vertexrig.trigger.request import FINALIZED, LIMIT, PUBSUB


@pytest.fixture(scope="module")
def logs() -> list[dict[str, Any]]:
    return []


@pytest.fixture(scope="module")
def here() -> clouds.MemoryCloud:
    return clouds.MemoryCloud()


@pytest.fixture(scope="module")
def trigger(here: clouds.MemoryCloud, tmp_path_factory: pytest.TempPathFactory, logs: list[dict[str, Any]]) -> Trigger:
    """The trigger of the tests' project, whose log lines are kept."""
    return make(here, tmp_path_factory.mktemp("project"), log=lambda row: logs.append(dict(row)))


def make(here: clouds.Cloud, folder: Path, data: Any = clouds.PROJECT, **options: Any) -> Trigger:
    storage = options.setdefault("storage", clouds.storage(here))
    options.setdefault("claims", Claims(storage, lease_s=5, wait_s=1))
    options.setdefault("vertex", clouds.vertex(here))
    return Trigger(clouds.loaded(folder, data), **options)


def post(trigger: Trigger, body: Any, **headers: str) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lower = {name.replace("_", "-"): value for name, value in headers.items()}
    return trigger.handle(Call("POST", "/", lower, lambda most: data[:most]))


def test_a_run_starts_and_repeats(trigger: Trigger) -> None:
    """A request answers 201 with the job, a repeat 200 with duplicate, and GET /jobs/ID says how it stands."""
    body = {"run": "sweep", "set": {"max_trial_count": 4}, "request_id": "r1"}
    first, again = post(trigger, body), post(trigger, body)
    assert (first.status, again.status) == (201, 200)
    assert first.body["name"] == again.body["name"] and again.body["duplicate"] is True
    assert first.body["kind"] == "HyperparameterTuningJob" and first.body["estimate"]["usd_at_most"] == 0.98
    job = trigger.handle(Call("GET", first.headers["Location"]))
    assert job.status == 200 and job.body["run"] == "sweep" and not job.body["ended"]
    assert post(trigger, {**body, "set": {"max_trial_count": 5}}).status == 409


def test_a_dry_run_sends_nothing(here: clouds.MemoryCloud, trigger: Trigger) -> None:
    """A dry run shows the very object that would be sent, and makes no job."""
    before = len(clouds.jobs(here))
    reply = post(trigger, {"run": "cpu", "args": {"epochs": 9}, "dry_run": True})
    assert reply.status == 200 and reply.body["dry_run"] is True and len(clouds.jobs(here)) == before
    spec = reply.body["request"]["jobSpec"]["workerPoolSpecs"][0]["pythonPackageSpec"]
    assert spec["args"] == ["--epochs=9"]


# what is tried, and what it gets: status and problem
ATTACKS: list[tuple[str, Any, int, str]] = [
    ("override of the image", {"run": "cpu", "set": {"image": "evil"}}, 403, "not-allowed"),
    ("override by the full path", {"run": "cpu", "set": {"jobs.cpu.container.image_uri": "evil"}}, 403, "not-allowed"),
    ("override of the service account", {"run": "cpu", "set": {"service_account": "a@b"}}, 403, "not-allowed"),
    ("override of the network", {"run": "cpu", "set": {"network": "projects/1/global/networks/x"}}, 403, "not-allowed"),
    ("override of the bucket", {"run": "cpu", "set": {"bucket": "gs://evil"}}, 403, "not-allowed"),
    ("raw API fields", {"run": "cpu", "set": {"spec": {"enableWebAccess": True}}}, 403, "not-allowed"),
    ("the claim's own label", {"run": "cpu", "set": {"labels.vertexrig_claim": "x"}}, 403, "not-allowed"),
    ("an argument that is not open", {"run": "cpu", "args": {"output": "gs://evil"}}, 403, "not-allowed"),
    ("an argument smuggled into a name", {"run": "cpu", "args": {"epochs=1 --output": 1}}, 403, "not-allowed"),
    ("an environment variable in an argument", {"run": "cpu", "args": {"note": "$(AIP_MODEL_DIR)"}}, 400, "value"),
    ("a line break in an argument", {"run": "cpu", "args": {"note": "a\n--output=gs://evil"}}, 400, "value"),
    ("YAML in a label", {"run": "cpu", "set": {"labels.team": "a\nspec: {}"}}, 400, "value"),
    ("a mapping where a value belongs", {"run": "cpu", "set": {"labels.team": {"a": 1}}}, 400, "value"),
    ("more trials than allowed", {"run": "sweep", "set": {"max_trial_count": 51}}, 400, "value"),
    ("a boolean for a number", {"run": "sweep", "set": {"max_trial_count": True}}, 400, "value"),
    ("another key in the body", {"run": "cpu", "image": "evil"}, 400, "malformed"),
    ("a path in run", {"run": "../../etc/passwd"}, 404, "no-such-run"),
    ("a template in run", {"run": "{{ config }}"}, 404, "no-such-run"),
    ("a number for run", {"run": 1}, 400, "malformed"),
    ("a request id with a path", {"run": "cpu", "request_id": "../x/\u0000"}, 400, "malformed"),
    ("a key twice", b'{"run": "cpu", "run": "sweep"}', 400, "malformed"),
    ("not a number", b'{"run": "cpu", "args": {"epochs": NaN}}', 400, "malformed"),
    ("infinity", b'{"run": "cpu", "args": {"epochs": 1e999}}', 400, "malformed"),
    ("five thousand digits", b'{"run": "cpu", "args": {"epochs": ' + b"9" * 5000 + b"}}", 400, "malformed"),
    ("half a character", b'{"run": "cpu", "args": {"note": "\\ud800"}}', 400, "malformed"),
    ("not UTF-8", b'{"run": "\xff"}', 400, "malformed"),
    ("no body", b"", 400, "malformed"),
    ("nested deeply", b"[" * 60000, 400, "malformed"),
    ("nested deeply inside", b'{"run": ' + b"[" * 20 + b"]" * 20 + b"}", 400, "malformed"),
    ("a huge body", b'{"run": "' + b"x" * LIMIT + b'"}', 413, "too-large"),
]  # fmt: skip


@pytest.mark.parametrize("body, status, problem", [row[1:] for row in ATTACKS], ids=[row[0] for row in ATTACKS])
def test_attacks(here: clouds.MemoryCloud, trigger: Trigger, body: Any, status: int, problem: str) -> None:
    """Each attack gets its answer, as problem+json, and starts nothing."""
    before = len(clouds.jobs(here))
    reply = post(trigger, body)
    assert (reply.status, reply.body["type"]) == (status, f"urn:vertexrig:problem:{problem}"), reply.body
    assert reply.flask[2]["Content-Type"] == "application/problem+json" and len(clouds.jobs(here)) == before


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"run": "cpu"', "the body is not JSON: character 14: Expecting ',' delimiter"),
        (b'{"run": "cpu", "run": "sweep"}', "the body cannot be taken: the key 'run' is there twice"),
        (b'{"args": {"epochs": NaN}}', "the body cannot be taken: NaN is not a number of JSON"),
    ],
)
def test_a_body_that_cannot_be_read_says_where(trigger: Trigger, body: bytes, detail: str) -> None:
    """The place of a slip in the JSON, and the key or number that is refused."""
    assert post(trigger, body).body["detail"] == detail


def test_spoofed_headers(trigger: Trigger) -> None:
    """Scheduler headers change nothing but what counts as a repeat; a time to come is not believed, so that nobody can use
    up a later run; another body is another request.
    """
    head = {"x_cloudscheduler_jobname": "weekly", "x_cloudscheduler_scheduletime": "2026-11-01T03:00:00Z"}
    body = {"run": "cpu", "args": {"note": "spoof"}}
    assert post(trigger, body, **head).status == 201
    assert post(trigger, body, **head).status == 200
    assert post(trigger, {"run": "cpu", "args": {"note": "other"}}, **head).status == 201
    asked = request.read({"run": "cpu"}, trigger.loaded)
    now = datetime(2026, 11, 21, tzinfo=timezone.utc)
    for time, kind in (
        ("2026-11-20T03:00:00Z", "schedule"), ("2026-11-21T00:05:00.5+00:00", "schedule"),
        ("2026-11-28T03:00:00Z", "body"), ("yesterday", "body"), ("2026-13-01T00:00:00Z", "body"),
        ("0001-01-01T00:00:00+14:00", "body"), ("9999-12-31T23:59:59-14:00", "body"),
    ):  # fmt: skip
        headers = {"x-cloudscheduler-jobname": "weekly", "x-cloudscheduler-scheduletime": time}
        assert request.key(asked, headers, now=now).kind == kind
    length = trigger.handle(Call("POST", "/", {"content-length": "99999999999"}, lambda most: b""))
    assert length.status == 413


def test_all_that_is_wrong_at_once(trigger: Trigger) -> None:
    """A refusal lists everything that is wrong, with the nearest name for a typo."""
    wrong = post(trigger, {"rum": "cpu", "dry_run": 1, "set": []})
    assert [finding["path"] for finding in wrong.body["findings"]] == ["rum", "run", "set", "dry_run"]
    assert "'sweep'" in post(trigger, {"run": "swep"}).body["detail"]
    values = post(trigger, {"run": "cpu", "set": {"timeout": "9000s"}, "args": {"epochs": 0}})
    assert [finding["path"] for finding in values.body["findings"]] == ["set.timeout", "args.epochs"]


def test_over_budget_shows_the_arithmetic(here: clouds.MemoryCloud, tmp_path: Path) -> None:
    """A run over budget answers 422 with the sum."""
    data = copy.deepcopy(clouds.PROJECT)
    data["trigger"]["budget"] = {"usd_per_run": 1.0}
    reply = post(make(here, tmp_path, data), {"run": "sweep"})
    assert reply.status == 422 and "10 trials × 1 h" in reply.body["detail"] and "$2.45" in reply.body["detail"]


def test_a_fault_of_ours_shows_no_exception(trigger: Trigger, logs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """An unexpected exception is a plain 500; its text is neither in the answer nor in the log."""

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("the secret text")

    monkeypatch.setattr(trigger.submitter, "prepare_candidates", broken)
    reply = post(trigger, {"run": "cpu", "request_id": "broken"})
    assert reply.status == 500 and "secret" not in json.dumps(reply.body)
    assert logs[-1]["error"] == "ZeroDivisionError" and "secret" not in json.dumps(logs[-1])


def test_logs(trigger: Trigger, logs: list[dict[str, Any]]) -> None:
    """A log line has severity, trace, request id and job, and neither body nor token; a trace that is none is left out."""
    trace = "0123456789abcdef0123456789abcdef"
    body = {"run": "cpu", "request_id": "logged", "args": {"note": "private"}}
    post(trigger, body, x_cloud_trace_context=f"{trace}/1;o=1", authorization="Bearer private")
    row = logs[-1]
    assert row["logging.googleapis.com/trace"] == f"projects/my-project/traces/{trace}"
    assert row["severity"] == "INFO" and row["request_id"] == "logged" and row["job"].startswith("projects/")
    assert "private" not in json.dumps(row)
    post(trigger, body, x_cloud_trace_context="../evil")
    assert "logging.googleapis.com/trace" not in logs[-1]


@pytest.mark.parametrize("method, path, status", [
    ("GET", "/", 200), ("HEAD", "/", 200), ("GET", "/openapi.json", 200), ("GET", "/jobs/1", 404), ("GET", "/jobs/..", 404),
    ("GET", "/jobs/1/2", 404), ("GET", "/nothing", 404), ("PUT", "/", 405), ("POST", "/jobs/1", 405), ("DELETE", "/openapi.json", 405),
])  # fmt: skip
def test_pages(trigger: Trigger, method: str, path: str, status: int) -> None:
    """Every page and method has its answer; 405 says what the page takes."""
    reply = trigger.handle(Call(method, path))
    assert reply.status == status and ("Allow" in reply.headers) == (status == 405)


def test_jobs_of_others_are_not_shown(here: clouds.MemoryCloud, trigger: Trigger) -> None:
    """A job of the project that the trigger did not start is no job to a caller."""
    prepared = trigger.submitter.prepare_candidates(Request("cpu"))[0]
    body = {"displayName": "theirs", "jobSpec": prepared.document.data}
    job = clouds.vertex(here).create("customJobs", body)
    assert trigger.handle(Call("GET", f"/jobs/{job.id}")).status == 404


LISTS = [
    (["--epochs", "15"], ["--epochs=3"]),
    (["--epochs=15", "data"], ["data", "--epochs=3"]),
    (["--lr", "-.5", "--epochs", "-1", "--shuffle"], ["--lr", "-.5", "--shuffle", "--epochs=3"]),
    (["--epochs", "--shuffle", "epochs"], ["--shuffle", "epochs", "--epochs=3"]),
]


@pytest.mark.parametrize(("own", "wanted"), LISTS)
def test_a_callers_flag_takes_the_place_of_the_files(tmp_path: Path, own: list[str], wanted: list[str]) -> None:
    """In a list of arguments the flag goes with its value, also where that is a word of its own, and nothing else goes."""
    jobs = {"cpu": {**clouds.PROJECT["jobs"]["cpu"], "args": own}}
    loaded = clouds.loaded(tmp_path, {**clouds.PROJECT, "jobs": jobs, "sweeps": {}})
    assert caller_overrides.apply(loaded, "cpu", {}, {"epochs": 3}).project.jobs["cpu"].args == tuple(wanted)


def test_bounds_hold_a_wait_without_end_and_conditional_parameters(tmp_path: Path) -> None:
    """`max_wait_duration: 0s` waits for ever and passes no bound; an argument that a conditional parameter decides is the study's."""
    data = copy.deepcopy(clouds.PROJECT)
    child = {"parameter_id": "momentum", "double_value_spec": {"min_value": 0, "max_value": 1}}
    condition = {"parent_categorical_values": {"values": ["sgd"]}, "parameter_spec": child}
    data["sweeps"]["sweep"]["study"]["parameters"]["optimizer"] = {
        "categorical_value_spec": {"values": ["adam", "sgd"]}, "conditional_parameter_specs": [condition]
    }  # fmt: skip
    data["trigger"] |= {"allow": {"max_wait_duration": {"max": 7200}}, "allow_args": {"momentum": {}}}
    loaded = clouds.loaded(tmp_path, data)
    (found,) = caller_overrides.check(loaded, "cpu", {"max_wait_duration": "0s"}, {})
    assert found.path == "set.max_wait_duration" and "above zero" in found.message
    (found,) = caller_overrides.check(loaded, "sweep", {}, {"momentum": 0.5})
    assert found.path == "args.momentum" and "the study of sweep decides" in found.message


def test_the_word_behind_a_switch_stays() -> None:
    """Where the new value is none or a boolean, the word behind the flag goes only if it is a boolean itself."""
    assert with_flags(["--augment", "gs://b/data"], {"augment": False}) == ["gs://b/data", "--augment=false"]
    assert with_flags(["--augment", "True", "data"], {"augment": None}) == ["data", "--augment"]


CLOSED = [
    ({"allow": {"image": {}}}, "can never set 'image'"),
    ({"allow": {"service_account": {}}}, "can never set"),
    ({"allow": {"jobs.cpu.container.image_uri": {}}}, "can never set"),
    ({"allow": {"args.output": {}}}, "can never set"),
    ({"allow": {"labels.vertexrig_claim": {}}}, "can never set"),
    ({"allow": {"project": {}}}, "can never set"),
    ({"allow": {"max_trial_count": {"min": 5, "max": 1}}}, "above max"),
    ({"allow": {"labels.team": {"pattern": "["}}}, "does not compile as a regular expression"),
    ({"allow_args": {"a=b": {}}}, "cannot name an argument"),
]


@pytest.mark.parametrize("trigger, said", CLOSED, ids=range(len(CLOSED)))
def test_what_must_stay_closed(tmp_path: Path, trigger: dict[str, Any], said: str) -> None:
    """A project file that opens an image, an identity or the like, or whose bounds mean nothing, is refused with its line."""
    with pytest.raises(ConfigError, match=said) as refused:
        caller_overrides.check_rules(clouds.loaded(tmp_path, {**clouds.PROJECT, "trigger": trigger}))
    assert refused.value.line


def test_all_that_must_stay_closed_is_told_at_once(tmp_path: Path) -> None:
    """Keys and bounds of `trigger:` are looked at to the end: each wrong one is an error with its line."""
    wrong = {"allow": {"image": {}, "max_trial_count": {"min": 5, "max": 1}}, "allow_args": {"a=b": {}}}
    with pytest.raises(ConfigError) as refused:
        caller_overrides.check_rules(clouds.loaded(tmp_path, {**clouds.PROJECT, "trigger": wrong}))
    told = "can never set 'image'", "min 5 is above max 1", "'a=b' cannot name an argument"
    assert all(said in one.message and one.line for said, one in zip(told, refused.value.errors, strict=True))


def event(trigger: Trigger, type: str, data: Any, id: str = "1") -> None:
    trigger.event(type, "//source", id, data)


def message(body: Any) -> dict[str, Any]:
    return {"message": {"data": base64.b64encode(json.dumps(body).encode()).decode()}}


def test_a_message_starts_a_run_once(here: clouds.MemoryCloud, trigger: Trigger, logs: list[dict[str, Any]]) -> None:
    """A Pub/Sub message holds a request; delivered twice it starts one job; nonsense is logged and not retried."""
    before = len(clouds.jobs(here))
    for _ in range(2):
        event(trigger, PUBSUB, message({"run": "cpu", "args": {"note": "event"}}), "m1")
    assert len(clouds.jobs(here)) == before + 1 and logs[-1]["decision"] == "joined"
    for data in ({"message": {"data": "%%%"}}, {}, None, message({"run": "nothing"}), message([])):
        event(trigger, PUBSUB, data, "m2")
        assert 400 <= logs[-1]["status"] < 500
    event(trigger, "some.other.type", {}, "m3")
    assert len(clouds.jobs(here)) == before + 1


def test_an_object_starts_a_run(here: clouds.MemoryCloud, trigger: Trigger, logs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """A finished object that matches starts the run with its URI; what our own runs write never does."""
    monkeypatch.setenv("VERTEXRIG_EVENT_RUN", "cpu")
    monkeypatch.setenv("VERTEXRIG_EVENT_OBJECTS", r"gs://[^/]+/.*\.csv")
    monkeypatch.setenv("VERTEXRIG_EVENT_ARG", "note")
    before = len(clouds.jobs(here))
    for number, (bucket, name, ignored) in enumerate([
        ("data", "new/a.csv", False), ("data", "new/a.txt", True), ("my-bucket", "runs/cpu/a.csv", True),
    ]):  # fmt: skip
        event(trigger, FINALIZED, {"bucket": bucket, "name": name}, f"o{number}")
        assert logs[-1].get("ignored", False) is ignored
    (job,) = [job for job in clouds.jobs(here) if "--note=gs://data/new/a.csv" in json.dumps(job.data)]
    assert job and len(clouds.jobs(here)) == before + 1


def test_an_event_is_retried_when_that_helps(here: clouds.MemoryCloud, tmp_path: Path) -> None:
    """With the service down an event raises, so that it is delivered again."""
    vertex = Vertex("my-project", "us-central1", url="http://127.0.0.1:9")
    vertex.rest = Rest("http://127.0.0.1:9/v1", "Vertex AI", attempts=1)
    trigger = make(here, tmp_path, vertex=vertex)
    with pytest.raises(RetryEventError):
        event(trigger, PUBSUB, message({"run": "cpu", "args": {"note": "down"}}), "down")


def test_looking_at_a_job_cancels_a_second_one(here: clouds.MemoryCloud, trigger: Trigger) -> None:
    """GET /jobs/ID of a second job of one request cancels it, and shows that; the recorded one goes on."""
    first = post(trigger, {"run": "cpu", "request_id": "looked-at"})
    made = clouds.vertex(here).get(str(first.body["name"]))
    assert made is not None
    second = clouds.vertex(here).create(
        made.collection, {key: made.data[key] for key in ("displayName", "labels", "jobSpec")}
    )
    seen = trigger.handle(Call("GET", f"/jobs/{second.id}"))
    assert seen.status == 200 and "CANCEL" in seen.body["state"]
    assert "CANCEL" not in trigger.handle(Call("GET", first.headers["Location"])).body["state"]
