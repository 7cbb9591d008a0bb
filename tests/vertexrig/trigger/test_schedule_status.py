"""How schedules stand: each difference between file, function, Cloud Scheduler and history, with the line that ends it."""

from __future__ import annotations

import copy
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from localvertex.services import logging_query
from tests.support import clouds
from tests.support.run_services import service
from tests.vertexrig.trigger.test_schedule import DATA
from vertexrig import __version__, times
from vertexrig.cloud import cron
from vertexrig.cloud.rest import RestError
from vertexrig.project import config
from vertexrig.project.config import Loaded
from vertexrig.spec.labels import label_value
from vertexrig.trigger import deploy, schedule_status, schedules, terraform
from vertexrig.trigger.schedule_status import Served

NAME = "rig-nightly"
ROW: dict[str, Any] = {
    "time": "2026-11-22T02:00:01.000Z", "schedule": "nightly", "run": "sweep", "decision": "created",
    "job": "projects/1/locations/us-central1/hyperparameterTuningJobs/77",
}  # fmt: skip
FAILED = {"lastAttemptTime": "2026-11-22T02:00:00Z", "status": {"code": 14, "message": "HTTP 503"}}


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    return clouds.loaded(tmp_path, DATA)


def stands(
    loaded: Loaded, *, job: Any = None, row: Any = None, digest: str = "", version: str = ""
) -> list[tuple[str, str]]:
    """The differences of `nightly`; Cloud Scheduler has what apply would make, with the changes of `job`."""
    jobs = [{**made, **({} if name != NAME else job or {})} for name, made in schedules.wanted(loaded).items()]
    rows = row if isinstance(row, RestError) else [row] if row else []
    found = schedule_status.statuses(loaded, [one for one in jobs if one.get("name")], rows, Served(digest, version))
    assert [one.name for one in found][:2] == ["nightly", "weekly"]
    return [(one.message, one.fix) for one in found[0].differences]


@pytest.mark.parametrize(
    ("given", "said", "fix"),
    [
        ({"job": {"name": ""}}, "is not in Cloud Scheduler", "vertexrig schedule apply"),
        ({"job": {"state": "PAUSED"}}, "is paused in Cloud Scheduler", "vertexrig schedule resume nightly"),
        ({"job": {"schedule": "0 4 * * *"}}, "these fields differ in Cloud Scheduler: schedule", "vertexrig schedule apply"),
        ({"digest": "abc"}, "another project file, templates or catalog (abc", "vertexrig function deploy --run"),
        ({"version": "0_0_9"}, "has vertexrig 0.0.9, and this is ", "vertexrig function deploy --run"),
        ({"job": FAILED}, "UNAVAILABLE HTTP 503, and the history has no job of it", "vertexrig schedule run nightly"),
        ({"job": FAILED, "row": {**ROW, "job": ""}}, "the history has no job of it", "vertexrig schedule run nightly"),
        ({"row": RestError("no bucket")}, "the history cannot be read: no bucket", "vertexrig doctor"),
        ({"row": {**ROW, "state": "gone"}}, "/77 is gone", "vertexrig schedule run nightly"),
        ({"row": {**ROW, "end": {"outcome": "FAILED", "reason": "no image"}}}, "ended FAILED: no image", "trials 77"),
        (
            {"row": {**ROW, "end": {"outcome": "CANCELLED", "cancelled_by": "ana@example.com"}}},
            "ended CANCELLED, cancelled by ana@example.com",
            "vertexrig schedule run nightly",
        ),
        ({"row": {**ROW, "end": {"outcome": "exhausted"}}}, "ended exhausted", "change candidates or retry_for of sweep in "),
        (
            {"row": {**ROW, "decision": "refused", "reason": "over-budget", "text": "$9", "detail": {"limit": "usd_per_day"}}},
            "was refused, over-budget: $9",
            "raise trigger.budget.usd_per_day in ",
        ),
        *(
            ({"row": {**ROW, "decision": "refused", "reason": reason, "text": "so"}}, f"was refused, {reason}: so", fix)
            for reason, fix in (
                ("no-machines", "change candidates or retry_for of sweep in "),
                ("exhausted", "change candidates or retry_for of sweep in "),
                ("given-up", "vertexrig schedule run nightly"),
                ("unknown-caller", "`vertexrig doctor` shows who may call; then `vertexrig function deploy --run`"),
            )
        ),
        ({"row": {**ROW, "decision": "refused", "reason": "never heard of"}}, "never heard of", "gcloud logging read"),
    ],
)  # fmt: skip
def test_a_difference_comes_with_the_line_that_ends_it(loaded: Loaded, given: Any, said: str, fix: str) -> None:
    """Each thing that keeps a schedule from doing what the file says is named, alone, with what to type."""
    ((message, remedy),) = stands(loaded, **given)
    assert said in message and fix in remedy


def test_what_agrees_is_no_difference(loaded: Loaded) -> None:
    """A schedule that is as the file says, whose run succeeded or whose failed attempt a delivery explains, has no more to say."""
    done = {**ROW, "end": {"outcome": "SUCCEEDED"}}
    assert stands(loaded, digest=loaded.digest, row=done) == []
    first = {"lastAttemptTime": FAILED["lastAttemptTime"], "status": {"code": -1}}
    assert stands(loaded, job=first) == [], "the first attempt has not ended"
    refused = {**ROW, "decision": "refused", "reason": "quota", "text": "none left"}
    ((message, _),) = stands(loaded, job=FAILED, row=refused)
    assert "quota" in message


def test_a_schedule_that_would_be_refused_now(tmp_path: Path) -> None:
    """What would be refused at the next firing is a difference already, with the line of the file."""
    data = copy.deepcopy(DATA)
    data["trigger"]["budget"] = {"usd_per_run": 1}
    ((message, _),) = stands(clouds.loaded(tmp_path, data))
    assert "vertexrig.yaml:" in message and "trigger.budget.usd_per_run" in message


def test_what_the_deployed_function_has(loaded: Loaded, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Digest and version are the labels that `function deploy` gives; they are not asked for where jobs go to a local Vertex."""
    far = clouds.loaded(tmp_path, {**DATA, "trigger": {**DATA["trigger"], "uri": "https://rig.example.run.app"}})
    monkeypatch.delenv("VERTEXRIG_AIPLATFORM", raising=False)
    deployed = next(step.words for step in deploy.commands(far, tmp_path) if step.deploys)
    labels = next(word for word in deployed if word.startswith("--update-labels=")).partition("=")[2]
    asked: list[list[str]] = []

    def gcloud(words: list[str]) -> str | None:
        asked.append(words)
        of_functions = {"labels": dict(one.split("=") for one in labels.split(","))}
        return json.dumps(service(deployed) if words[0] == "run" else of_functions)

    assert schedule_status.deployed(far, gcloud) == Served(far.digest, label_value(__version__))
    assert asked[0][:3] == ["run", "services", "describe"]
    asked.clear()
    far = terraform.built(far)
    assert schedule_status.deployed(far, gcloud) == Served(far.digest, label_value(__version__))
    assert asked[0][:2] == ["functions", "describe"]
    for nothing in (None, "no JSON"):
        assert schedule_status.deployed(far, lambda _, said=nothing: said) == Served()  # type: ignore[misc]
    monkeypatch.setenv("VERTEXRIG_AIPLATFORM", "http://127.0.0.1:9")
    assert schedule_status.deployed(far, gcloud) == Served() and len(asked) == 1


def test_who_cancelled_a_job(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """The account is that of the newest entry about the job in the admin activity log; other ends are not looked up."""
    monkeypatch.delenv("VERTEXRIG_AIPLATFORM", raising=False)
    asked: list[str] = []

    def gcloud(words: list[str]) -> str | None:
        asked.append(words[2])
        return "ana@example.com\n"

    row = {**ROW, "end": {"outcome": "CANCELLED"}}
    assert schedule_status.with_canceller(row, loaded, gcloud)["end"]["cancelled_by"] == "ana@example.com"
    keeps = logging_query.matching(logging_query.parse(asked[0]))
    entry = {
        "methodName": "google.cloud.aiplatform.v1.JobService.CancelHyperparameterTuningJob",
        "resourceName": "projects/my-project/locations/us-central1/hyperparameterTuningJobs/77",
    }
    assert keeps({"protoPayload": entry}) and not keeps({"protoPayload": {**entry, "resourceName": "x/customJobs/77"}})
    for other in ({**ROW, "end": {"outcome": "FAILED"}}, ROW):
        assert schedule_status.with_canceller(other, loaded, gcloud) == other
    assert schedule_status.with_canceller(row, loaded, lambda _: None) == row and len(asked) == 1


def test_a_job_that_waits_too_long_for_machines(loaded: Loaded, tmp_path: Path) -> None:
    """A job that is pending for hours is named with its age and what to do; one within the wait that the file allows is not."""
    hours = times.rfc3339(times.now() - timedelta(hours=5), 3)
    pending = {**ROW, "time": hours, "state": "PENDING"}
    ((message, fix),) = stands(loaded, row=pending)
    assert "has been PENDING for 5 h" in message and "vertexrig cancel 77" in fix
    assert stands(loaded, row={**pending, "since": times.rfc3339(times.now(), 3)}) == []
    data = copy.deepcopy(DATA)
    data["sweeps"]["sweep"] |= {"candidates": [{"strategy": "SPOT"}], "wait": "6h"}
    assert stands(clouds.loaded(tmp_path, data), row=pending) == []


def test_a_function_that_does_not_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that is down, failed to deploy, or is served at another URL is named; each is a difference of the schedules."""
    monkeypatch.delenv("VERTEXRIG_AIPLATFORM", raising=False)
    near = clouds.loaded(tmp_path, DATA)
    assert "cannot be reached at http://127.0.0.1:9" in schedule_status.not_serving(near, lambda _: None)
    found = schedule_status.statuses(near, [], [], Served(), away="the function is down")
    assert "the function is down" in [one.message for one in found[0].differences]
    far = clouds.loaded(tmp_path, {**DATA, "trigger": {**DATA["trigger"], "uri": "https://rig.example.run.app"}})

    def said(**described: Any) -> str:
        return schedule_status.not_serving(terraform.built(far), lambda _: json.dumps(described))

    def run(url: str, ready: str = "True") -> str:
        return schedule_status.not_serving(far, lambda _: json.dumps(service((), url, ready)))

    assert "is not ready (Ready: False), not ACTIVE" in run("https://rig.example.run.app", "False")
    assert "is served at https://new.run.app" in run("https://new.run.app")
    assert run("https://rig.example.run.app") == ""
    assert "is FAILED, not ACTIVE" in said(state="FAILED")
    assert "is served at https://new.run.app" in said(state="ACTIVE", serviceConfig={"uri": "https://new.run.app"})
    assert said(state="ACTIVE", serviceConfig={"uri": "https://rig.example.run.app"}) == ""
    assert schedule_status.not_serving(far, lambda _: None) == ""


def test_times_are_in_the_schedule_s_zone() -> None:
    """A time is shown as the clock of the zone shows it, with the zone's name."""
    assert cron.local("2026-11-23T02:00:00Z", "Europe/Berlin") == "2026-11-23 03:00:00 Europe/Berlin"
    assert cron.local("", "Etc/UTC") == ""


def test_the_filter_finds_the_schedule_and_nothing_else(loaded: Loaded) -> None:
    """The printed filter finds the function's entries of the schedule, and those of its job of Cloud Scheduler."""
    keeps = logging_query.matching(logging_query.parse(schedule_status.log_filter(loaded, "nightly")))
    function = {"type": "cloud_run_revision", "labels": {"service_name": "rig"}}
    assert keeps({"resource": function, "jsonPayload": {"schedule": "nightly"}})
    assert not keeps({"resource": function, "jsonPayload": {"schedule": "weekly"}})
    assert keeps({"resource": {"type": "cloud_scheduler_job", "labels": {"job_id": NAME}}})


@pytest.mark.parametrize("name", ["vertexrig.yaml", "own/cpu.yaml.j2", "rows.yaml"])
def test_the_digest_is_of_all_that_decides_a_request(tmp_path: Path, name: str) -> None:
    """A change of the project file, of a template of its own or of its rows of the catalog gives another digest; other files do not."""
    (tmp_path / "own").mkdir()
    for file in ("own/cpu.yaml.j2", "rows.yaml", "own/notes.txt"):
        (tmp_path / file).write_text("{}\n")
    data = {**copy.deepcopy(DATA), "templates": "own", "catalog": "rows.yaml"}
    before = clouds.loaded(tmp_path, data)
    (tmp_path / "own/notes.txt").write_text("other\n")
    assert config.load(before.file).digest == before.digest
    with (tmp_path / name).open("a") as more:
        more.write("# more\n")
    assert config.load(before.file).digest != before.digest
