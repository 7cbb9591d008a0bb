"""Alert policies and the dashboard: their filters against log entries that the trigger really wrote, and gcloud's reading of the files."""

from __future__ import annotations

import json
import os
import shlex
import time
from pathlib import Path
from typing import Any

import pytest
import requests

from localvertex import server
from localvertex.services import logging_query
from tests.support import clouds, functions, tools
from tests.support.trigger_place import Place
from tests.support.web import answering
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.scheduler import Scheduler
from vertexrig.project.config import Loaded
from vertexrig.spec.states import FAILED
from vertexrig.trigger import alerts, schedules, stage


def filters(value: Any) -> list[str]:
    """Every filter of log entries in some JSON."""
    if isinstance(value, list):
        return [one for item in value for one in filters(item)]
    if not isinstance(value, dict):
        return []
    own = [value["filter"]] if "jsonPayload" in str(value.get("filter", "")) else []
    return [*own, *(one for item in value.values() for one in filters(item))]


def test_the_filters_find_what_was_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each policy finds the entries that it is about and no others: a scheduled run that was refused, one that failed, a service that
    refused the trigger, a fault of its own; a run that starts, a caller's mistake and an idle tick are found by none.
    """
    place = Place(tmp_path)
    said: dict[str, list[Any]] = {}

    def noted(name: str, act: Any) -> Any:
        before = len(place.logs)
        done = act()
        said[name] = list(place.logs[before:])
        return done

    noted("idle", lambda: place.post({}, "/tick"))
    noted("mistake", lambda: place.post({"run": "sweep", "set": {"image": "mine"}}))
    noted("refused", lambda: place.fire(set={"image": "mine"}))
    made = noted("started", place.fire)
    place.ends(made.body["name"], FAILED, error={"code": 3, "message": "out of memory"})
    noted("failed", lambda: place.post({}, "/tick"))
    for name, error in (("service", RestError("no role", status=403)), ("fault", ZeroDivisionError("x"))):

        def broken(*_: Any, error: Exception = error, **__: Any) -> Any:
            raise error

        monkeypatch.setattr(place.trigger.submitter, "prepare_candidates", broken)
        noted(name, lambda: place.post({"run": "cpu"}))
    found = {
        policy: {
            name for name, rows in said.items() if any(fits(place.trigger.loaded, policy, entry(row)) for row in rows)
        }
        for policy in alerts.CONDITIONS
    }
    expected = {"refused": {"refused"}, "failed": {"failed"}, "broken": {"service", "fault"}}
    assert found == {policy: expected.get(policy, set()) for policy in found}


PAST = "2026-11-21T03:00:00Z"
WATCHED: dict[str, Any] = {
    **clouds.PROJECT,
    "schedules": {
        "open": {"run": "cpu", "cron": "0 3 * * *", "deadline": "1s"},
        "closed": {"run": "cpu", "cron": "0 3 * * *", "set": {"timeout": "60s"}},
    },
}


@pytest.mark.whole
def test_the_filters_find_what_was_really_written(tmp_path: Path) -> None:
    """The function under functions-framework, called by the local Cloud Scheduler, and Cloud Scheduler itself write entries that the
    policies find: a run that uses most of the day's budget, one that is refused, a schedule without a delivery and a run that missed
    its deadline, a tick that leaves runs over, and after the function has gone an attempt that fails. Attempts that succeed are found by none.
    """
    trigger = {
        **clouds.PROJECT["trigger"],
        "budget": {"trials_per_day": 1},
        "tick": "0 3 * * *",
    }  # nothing fires by itself
    data = {**WATCHED, "trigger": trigger}
    with clouds.cloud(tmp_path / "cloud") as here:
        loaded, env = clouds.loaded(tmp_path, data), clouds.variables(here)
        staged = stage.stage(loaded, tmp_path / "build/function").folder
        # what was settled a day ago, as a tick of that time has left it
        settled = {
            kind: {f"{name} 0 3 * * * Etc/UTC": PAST for name in data["schedules"]} for kind in ("overdue", "late")
        }
        store = clouds.storage(here).below(loaded.project.trigger.prefix)
        store.write("trigger.json", json.dumps({"uri": "", "settled": settled}).encode())
        scheduler = Scheduler("my-project", "us-central1", url=f"{here.url}/scheduler")
        with functions.serving(staged, env) as url:
            served = clouds.loaded(tmp_path, {**data, "trigger": {**data["trigger"], "uri": url}})
            for job in schedules.wanted(served).values():
                scheduler.create({**job, "retryConfig": {}})
            for name in ("open", "closed", "tick"):  # the budget has room for the first alone
                scheduler.run(f"vertexrig-{name}")
                finished(here, f"vertexrig-{name}")
        scheduler.run("vertexrig-tick")
        unreachable = finished(here, "vertexrig-tick", 2)
        (log,) = (tmp_path / "build").glob("function-*.log")
        lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        written = {
            policy: {
                line["path"] if "path" in line else line.get("alarm")
                for line in lines
                if fits(loaded, policy, entry(line))
            }
            for policy in alerts.CONDITIONS
        }
        failed = {one["resource"]["labels"]["job_id"] for one in entries(here, alerts.filter_of(served, "undelivered"))}
    assert written["budget"] == {"/"} and written["refused"] == {"/"}, lines
    assert written["overdue"] == {"overdue"} and written["late"] == {"late"}, lines
    assert not written["failed"] | written["broken"] | written["behind"] | written["undelivered"]
    assert failed == {"vertexrig-closed", "vertexrig-tick"} and "ConnectError" in str(unreachable)


def test_a_tick_that_leaves_runs_over_is_found(tmp_path: Path) -> None:
    """The entry of a tick whose time was over before the last run is found by the policy about it; that of one that got through is not."""
    place = Place(tmp_path)
    for number in range(3):
        place.begin(request_id=str(number))
    ticker = place.trigger.ticker
    for seconds, seen in ((1e9, False), (-1.0, True)):
        ticker.seconds, before = seconds, len(place.logs)
        place.clock.at += 600
        assert place.post({}, "/tick").status == 200
        assert any(fits(place.trigger.loaded, "behind", entry(row)) for row in place.logs[before:]) is seen


def fits(loaded: Loaded, policy: str, one: dict[str, Any]) -> bool:
    """Whether a policy finds a log entry."""
    return logging_query.matching(logging_query.parse(alerts.filter_of(loaded, policy)))(one)


def entries(here: server.RunningServer, filter: str) -> list[dict[str, Any]]:
    """The entries of the local Cloud Logging that a filter finds."""
    body = {"resourceNames": ["projects/my-project"], "filter": filter}
    answer = requests.post(f"{here.url}/logging/v2/entries:list", json=body, timeout=20)
    assert answer.status_code == 200, answer.text
    return list(answer.json().get("entries") or ())


def finished(here: server.RunningServer, job: str, count: int = 1) -> list[dict[str, Any]]:
    """The entries of a job's attempts that have ended, once there are so many."""
    about = f'resource.type="cloud_scheduler_job" AND resource.labels.job_id="{job}" AND jsonPayload.debugInfo:*'
    until = time.monotonic() + 30
    while len(found := entries(here, about)) < count:
        assert time.monotonic() < until, found
        time.sleep(0.05)
    return found


def test_the_tick_s_own_absence(tmp_path: Path) -> None:
    """There is a policy for a tick that does not come, three periods after the last one and never above what Cloud Monitoring takes; none
    where there is no tick, or where ticks are too far apart.
    """
    plain = {"run": "cpu", "cron": "0 3 * * *"}
    for tick, grace, seconds in (
        ("*/10 * * * *", "1h", "1800s"), ("0 * * * *", "1h", "4800s"), ("0 3 * * *", "1h", None), ("*/10 * * * *", None, None),
    ):  # fmt: skip
        data = {**clouds.PROJECT, "schedules": {"nightly": {**plain, **({"grace": grace} if grace else {})}}}
        loaded = clouds.loaded(tmp_path, {**data, "trigger": {**data["trigger"], "tick": tick}})
        found = alerts.policies(loaded, []).get(alerts.ABSENT)
        assert (found and found["conditions"][0]["conditionAbsent"]["duration"]) == seconds
        assert found is None or 'job_id="vertexrig-tick"' in found["conditions"][0]["conditionAbsent"]["filter"]


def entry(row: Any) -> dict[str, Any]:
    """A line of the function's output as Cloud Logging keeps it."""
    payload = json.loads(json.dumps(row))
    severity = payload.pop("severity")
    labels = {"service_name": "vertexrig"}
    return {"resource": {"type": "cloud_run_revision", "labels": labels}, "severity": severity, "jsonPayload": payload}


def test_the_files(tmp_path: Path) -> None:
    """The verb writes one file for each policy and one for the dashboard, with the channel, and prints what makes them."""
    clouds.loaded(tmp_path)
    channel = "projects/my-project/notificationChannels/1"
    done = tools.typed("function", "alerts", f"--channel={channel}", "--format=json", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    rows = done.document["files"]
    read = {Path(row["file"]).stem: json.loads((tmp_path / row["file"]).read_text()) for row in rows}
    assert set(read) == {*alerts.CONDITIONS, "dashboard"} - {"undelivered"}  # it has no schedule
    assert all(one["notificationChannels"] == [channel] for name, one in read.items() if name != "dashboard")
    for text in filters(list(read.values())):
        logging_query.parse(text)


def test_no_link_in_the_folder_is_followed(tmp_path: Path) -> None:
    """A link among the files, which a checkout may bring along, is refused and its target stays; a place that a person has named is theirs."""
    (tmp_path / "project/build/alerts").mkdir(parents=True)
    clouds.loaded(tmp_path / "project")
    kept, link = tmp_path / "kept", tmp_path / "project/build/alerts/dashboard.json"
    kept.write_text("mine")
    link.symlink_to(kept)
    done = tools.typed("function", "alerts", cwd=tmp_path / "project")
    assert done.exit_code == 2 and "is a link" in done.stderr and kept.read_text() == "mine"
    named = tools.typed("function", "alerts", "--output=build/alerts", cwd=tmp_path / "project")
    assert named.exit_code == 0 and link.is_symlink() and json.loads(kept.read_text())


@pytest.mark.whole
def test_gcloud_takes_the_files(tmp_path: Path, gcloud: str) -> None:
    """The real gcloud reads each file into its message and sends that to the service, here a stand-in that refuses it."""
    clouds.loaded(tmp_path, WATCHED)
    printed = tools.typed("function", "alerts", cwd=tmp_path)
    sent: list[dict[str, Any]] = []

    def refused(method: str, path: str, data: bytes) -> tuple[int, bytes]:
        sent.append(json.loads(data))
        return 403, b""

    env = {**os.environ, "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
           "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true", "CLOUDSDK_CONFIG": str(tmp_path / "c")}  # fmt: skip
    lines = [line for line in printed.stdout.splitlines() if not line.startswith("#")]
    with answering(refused) as url:
        env["CLOUDSDK_API_ENDPOINT_OVERRIDES_MONITORING"] = f"{url}/"
        for line in lines:
            done = tools.gcloud_run(*shlex.split(line)[1:], env=env, cwd=tmp_path)
            assert "does not have permission" in done.stderr, done.stderr
    assert len(sent) == len(lines) == len(alerts.CONDITIONS) + 2 and all("displayName" in one for one in sent)
    assert sum("conditionAbsent" in str(one) for one in sent) == 1
