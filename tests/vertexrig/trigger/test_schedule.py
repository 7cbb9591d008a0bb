"""Schedules: cron lines in words, the plan, and Cloud Scheduler made to match, on the local Vertex with real clients."""

from __future__ import annotations

import base64
import copy
import json
import os
import subprocess
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from localvertex import server
from localvertex.runner import RunOptions
from tests.support import clouds, functions, tools
from tests.support.jobkit import sdist
from vertexrig import cli
from vertexrig.cloud import cron, rest
from vertexrig.cloud.scheduler import Scheduler
from vertexrig.errors import ConfigError, UsageError
from vertexrig.project import config
from vertexrig.project.triggered import RetryConfig
from vertexrig.runs import promotion
from vertexrig.submit import claims
from vertexrig.trigger import schedule_status, schedules, stage
from vertexrig.workspace import Workspace

WORDS = [
    ("0 3 * * 1", "at 03:00, only on Monday"),
    ("30 6 * * *", "at 06:30"),
    ("0 0,12 * * *", "at 00:00 and 12:00"),
    ("*/15 * * * *", "every 15 minutes"),
    ("0 */6 * * *", "every 6 hours"),
    ("5 9-17 * * mon-fri", "at 5 minutes past the hour, between 09:00 and 17:59, Monday through Friday"),
    ("0 4 1 */3 *", "at 04:00, on day 1 of the month, every 3 months"),
    ("0 4 1,15 * 0", "at 04:00, on day 1 and 15 of the month, or on Sunday"),
    ("0 4 1 jan *", "at 04:00, on day 1 of the month, only in January"),
    ("* * * * *", "every minute"),
]


@pytest.mark.parametrize("line, words", WORDS)
def test_cron_in_words(line: str, words: str) -> None:
    """A cron line is said in words, and it has a next run."""
    assert cron.words(line) == words and len(cron.next_runs(line, "UTC", 2)) == 2


def test_next_runs_in_the_schedule_s_own_zone() -> None:
    """The next runs are in the schedule's time zone, over the night when the clocks change."""
    runs = cron.next_runs("0 3 * * *", "Europe/Berlin", 3, after=datetime(2026, 10, 24, tzinfo=timezone.utc))
    assert [run.isoformat() for run in runs] == [
        "2026-10-24T03:00:00+02:00", "2026-10-25T03:00:00+01:00", "2026-10-26T03:00:00+01:00",
    ]  # fmt: skip
    for line in ("0 3 * *", "61 3 * * *", "0 0 30 2 *"):
        with pytest.raises(UsageError):
            cron.next_runs(line, "UTC")


DATA: dict[str, Any] = {
    **clouds.PROJECT,
    "trigger": {**clouds.PROJECT["trigger"], "function": "rig", "uri": "http://127.0.0.1:9"},
    "schedules": {
        "nightly": {"run": "sweep", "cron": "0 3 * * 1", "time_zone": "Europe/Berlin", "set": {"max_trial_count": 5}},
        "weekly": {"run": "cpu", "cron": "30 6 * * 0", "paused": True, "args": {"epochs": 3}},
    },
}


@pytest.mark.whole
def test_plan_and_apply(here: server.RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan prints a diff, apply makes it so and is idempotent, a change is one field, a schedule that goes is deleted, and
    a job made by somebody else with the real gcloud stays as it is.
    """
    env = {**os.environ, **server.env(here, project="my-project"), "CLOUDSDK_CONFIG": str(tmp_path / "gcloud")}
    monkeypatch.setenv("VERTEXRIG_LOCAL", here.url)

    def run(*words: str) -> str:
        done = tools.typed("schedule", *words, cwd=tmp_path)
        assert done.exit_code == 0, done.stderr
        return done.stdout + done.stderr

    def cloud(*words: str) -> subprocess.CompletedProcess[str]:
        words = ("scheduler", "jobs", *words, "--location=us-central1", "--format=json")
        return tools.gcloud_run(*words, env=env, cwd=tmp_path)

    theirs = cloud("create", "http", "theirs", "--schedule=0 1 * * *", "--uri=http://127.0.0.1:9/")
    assert theirs.returncode == 0, theirs.stderr
    clouds.loaded(tmp_path, DATA)
    assert "2 to create, 1 to pause" in run("plan")
    said = run("apply")
    assert "+ rig-nightly: created" in said and "2 created, 1 paused" in said and " to create" not in said
    assert "2 unchanged" in run("apply") and "2 to keep" in run("plan")
    rows = {row["name"].rsplit("/", 1)[-1]: row for row in json.loads(cloud("list").stdout)}
    assert set(rows) == {"theirs", "rig-nightly", "rig-weekly"}
    job, invoker = rows["rig-nightly"], "rig-invoker@my-project.iam.gserviceaccount.com"
    assert (job["timeZone"], job["attemptDeadline"], job["retryConfig"]["retryCount"]) == ("Europe/Berlin", "180s", 3)
    assert job["description"] == "sweep: at 03:00, only on Monday" and rows["rig-weekly"]["state"] == "PAUSED"
    assert job["httpTarget"]["oidcToken"] == {"serviceAccountEmail": invoker, "audience": "http://127.0.0.1:9"}

    changed = copy.deepcopy(DATA)
    changed["schedules"]["nightly"]["cron"] = "30 2 * * *"
    changed["schedules"]["weekly"]["paused"] = False
    clouds.loaded(tmp_path, changed)
    said = run("plan")
    assert "schedule: 0 3 * * 1 -> 30 2 * * *" in said and "1 to update, 1 to resume" in said
    assert "02:30 Europe/Berlin does not exist on" in said and "time_zone: Etc/UTC" in said
    run("apply")
    del changed["schedules"]["weekly"]
    clouds.loaded(tmp_path, changed)
    assert "- rig-weekly: delete" in run("apply")
    run("pause", "nightly")
    assert "1 to resume" in run("plan")
    run("resume", "nightly")
    assert "1 to keep" in run("plan")
    assert {row["name"].rsplit("/", 1)[-1] for row in json.loads(cloud("list").stdout)} == {"theirs", "rig-nightly"}


def test_the_local_vertex_needs_no_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `trigger.uri`, schedules in the local Vertex call the function where `function serve` serves it; elsewhere they are refused."""
    data = copy.deepcopy(DATA)
    del data["trigger"]["uri"]
    loaded = clouds.loaded(tmp_path, data)
    monkeypatch.delenv("VERTEXRIG_AIPLATFORM", raising=False)
    with pytest.raises(ConfigError, match="URL is needed"):
        schedules.wanted(loaded)
    monkeypatch.setenv("VERTEXRIG_AIPLATFORM", "http://127.0.0.1:8642/aiplatform")
    assert schedules.wanted(loaded)["rig-nightly"]["httpTarget"]["uri"] == "http://127.0.0.1:8080"
    loaded.output(stage.SERVED).parent.mkdir()
    loaded.output(stage.SERVED).write_text("http://127.0.0.1:8099\n")
    assert schedules.wanted(loaded)["rig-nightly"]["httpTarget"]["uri"] == "http://127.0.0.1:8099"


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    """A job of the same name that this project did not make stops the plan: `t-heirs` is the function t's, or theirs'."""
    data = copy.deepcopy(DATA)
    data["trigger"]["function"], data["schedules"] = "t", {"heirs": DATA["schedules"]["nightly"]}
    loaded = clouds.loaded(tmp_path, data)
    there = [{"name": "projects/p/locations/l/jobs/t-heirs", "httpTarget": {}}]
    with pytest.raises(UsageError, match="t-heirs calls no URL.*--adopt heirs"):
        schedules.plan(loaded, there)


def _applied(client: Scheduler, folder: Path, data: Any, *adopt: str) -> dict[str, str]:
    """Apply a file; what was done by job."""
    steps = schedules.plan(clouds.loaded(folder, data), client.list(), client.normal, adopt)
    for step in steps:
        if step.action != "keep":
            getattr(client, step.action)(step.job if step.action in ("create", "update") else step.name)
    return {step.name: step.action for step in steps}


def test_two_files_do_not_touch_each_other_s_jobs(
    here: server.RunningServer, tmp_path: Path, terminal: Callable[..., str]
) -> None:
    """A second file with the same function name and another URL deletes and changes no job of the first: a name that both have is
    refused with both URLs, and `--adopt` takes that job alone. With another function name both files apply.
    """
    client = Scheduler("my-project", "europe-west1", url=f"{here.url}/scheduler")
    first = {**copy.deepcopy(DATA), "region": "europe-west1"}
    second = copy.deepcopy(first)
    first["schedules"] |= {"daily": {"run": "cpu", "cron": "0 5 * * *"}}
    second["trigger"]["uri"] = "https://other.example.com"
    second["schedules"] = {"nightly": DATA["schedules"]["nightly"], "own": {"run": "cpu", "cron": "0 6 * * *"}}
    _applied(client, tmp_path, first)
    before = client.list()
    with pytest.raises(UsageError) as refused:
        _applied(client, tmp_path, second)
    for part in ("rig-nightly calls http://127.0.0.1:9", "trigger is at https://other.example.com", "--adopt nightly"):
        assert part in str(refused.value)
    assert client.list() == before
    assert "belongs to another trigger" in terminal("schedule", "pause", "nightly", code=2) and client.list() == before

    loaded = clouds.loaded(tmp_path, second)
    (status, _) = schedule_status.statuses(loaded, before, [], schedule_status.Served(), client.normal)
    assert not status.state and "calls http://127.0.0.1:9" in status.differences[0].message
    assert "--adopt nightly" in status.differences[0].fix

    assert _applied(client, tmp_path, second, "nightly") == {"rig-nightly": "update", "rig-own": "create"}
    assert {one["name"].rpartition("/")[2] for one in client.list()} == {
        "rig-nightly", "rig-weekly", "rig-daily", "rig-own",
    }  # fmt: skip
    second["trigger"]["function"] = "other"
    assert set(_applied(client, tmp_path, second).values()) == {"create"}
    assert _applied(client, tmp_path, first, "nightly")["rig-nightly"] == "update"
    assert set(_applied(client, tmp_path, second).values()) == {"keep"}
    with pytest.raises(UsageError, match="has no job 'nothing'"):
        _applied(client, tmp_path, first, "nothing")


def test_a_tick_where_a_run_has_steps(here: server.RunningServer, tmp_path: Path) -> None:
    """Where a schedule has `then`, its body names it and one tick is planned beside it, which posts to /tick; without, the tick goes."""
    client = Scheduler("my-project", "us-east1", url=f"{here.url}/scheduler")
    data = {**copy.deepcopy(DATA), "region": "us-east1"}
    data["trigger"] |= {"tick": "*/5 * * * *", "uri": "https://rig.example.com/rig?x=1"}
    data["schedules"]["weekly"]["paused"] = False
    for one in data["schedules"].values():
        one["then"] = ["promote", "register"] if one["run"] == "sweep" else ["register"]

    def planned() -> dict[str, str]:
        return _applied(client, tmp_path, data)

    assert planned() == {"rig-nightly": "create", "rig-weekly": "create", "rig-tick": "create"}
    jobs = {row["name"].rpartition("/")[2]: row for row in client.list()}
    tick = jobs["rig-tick"]
    assert tick["httpTarget"]["uri"] == "https://rig.example.com/rig/tick" and tick["schedule"] == "*/5 * * * *"
    assert tick["httpTarget"]["oidcToken"]["audience"] == "https://rig.example.com/rig" and not tick["retryConfig"].get(
        "retryCount"
    )
    body = json.loads(base64.b64decode(jobs["rig-nightly"]["httpTarget"]["body"]))
    assert body == {"run": "sweep", "set": {"max_trial_count": 5}, "then": "nightly"}
    assert jobs["rig-nightly"]["description"] == "sweep, then promote, register: at 03:00, only on Monday"
    assert planned() == {"rig-nightly": "keep", "rig-weekly": "keep", "rig-tick": "keep"}
    data["trigger"]["tick"] = "0 * * * *"
    assert planned()["rig-tick"] == "update"
    for one in data["schedules"].values():
        del one["then"]
    assert planned() == {"rig-nightly": "update", "rig-weekly": "update", "rig-tick": "delete"}


def test_a_promoted_job_that_would_fail_is_refused_before_the_night(tmp_path: Path) -> None:
    """`schedule plan` renders and checks the job that `promote` would make; what is wrong has the line of the step."""
    data = {**copy.deepcopy(DATA), "trainer": {"package_uris": ["gs://my-bucket/packages/t.tar.gz"]}}
    night = data["schedules"]["nightly"]
    night["then"] = [{"promote": {"epochs": 30, "machine_type": "n1-standard-8"}}, "register"]
    promotion.check(Workspace(clouds.loaded(tmp_path, data)), "nightly")
    for options, said in (
        ({"topology": "gpu"}, "topology gpu needs accelerator_type"),
        ({"topology": "gpuu"}, "gpuu"),
        ({"set": {"timeot": "60s"}}, "there is no key 'timeot'"),
        (
            {"set": {"accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 3}, "topology": "gpu"},
            "the allowed counts are 1, 2, 4",
        ),
    ):
        night["then"] = [{"promote": options}]
        with pytest.raises(ConfigError, match=said) as refused:
            promotion.check(Workspace(clouds.loaded(tmp_path, data)), "nightly")
        assert refused.value.line and "schedules.nightly.then[0]: the job that promote makes would fail" in str(
            refused.value
        )


def test_candidates_that_the_budget_leaves_out_are_named(tmp_path: Path) -> None:
    """A schedule that may run is planned, with each candidate of its run that would never get a job, and why."""
    data = copy.deepcopy(DATA)
    data["jobs"]["cpu"]["candidates"] = [{"strategy": "SPOT"}, {"machine_type": "n1-standard-8"}]
    loaded = clouds.loaded(tmp_path, data)
    schedules.check(loaded)
    assert schedules.left_out(loaded) == []
    data["trigger"]["budget"] = {"usd_per_run": 1000}
    loaded = clouds.loaded(tmp_path, data)
    schedules.check(loaded)
    (line,) = schedules.left_out(loaded)
    assert line.startswith("weekly: candidate 2 of cpu gets no job: the price of n1-standard-4, pd-ssd is unknown")


WRONG = [
    ({"schedules": {"x": {"run": "cpu", "cron": "0 3 * *"}}}, "has 4 fields"),
    ({"schedules": {"x": {"run": "cpu", "cron": "0 3 * * *", "time_zone": "Mars"}}}, "'Mars' is not a time zone"),
    ({"schedules": {"x": {"run": "cpu", "cron": "0 3 * * *", "set": {"image": "x"}}}}, "may not set 'image'"),
    ({"schedules": {"x": {"run": "sweep", "cron": "0 3 * * *", "set": {"max_trial_count": 99}}}}, "above 50"),
    ({"trigger": {}, "schedules": {"x": {"run": "cpu", "cron": "0 3 * * *"}}}, "URL is needed"),
    (
        {
            "trigger": {"uri": "http://127.0.0.1:9", "tick": "every hour"},
            "schedules": {"x": {"run": "cpu", "cron": "0 3 * * *", "then": ["register"]}},
        },
        "trigger.tick: .*every hour",
    ),
    *(
        ({"schedules": {"x": {"run": "cpu", "cron": "0 3 * * *", "retry_config": retry}}}, said)
        for retry, said in (
            ({"retry_count": 1}, r"30 = 30 s after the first delivery[.] .* for 66 s [(]76 s with a margin[)]"),
            ({"retry_count": 3, "min_backoff_duration": "5s"}, r"5 \+ 10 \+ 20 = 35 s after"),
            ({"retry_count": 5, "max_backoff_duration": "15s"}, r"15 \+ 15 \+ 15 \+ 15 \+ 15 = 75 s after"),
            ({"retry_count": 0}, "there is no retry after the first delivery[.] .* the run would be lost"),
        )
    ),
]


@pytest.mark.parametrize("part, said", WRONG, ids=range(len(WRONG)))
def test_a_wrong_schedule_is_told_with_its_line(tmp_path: Path, part: dict[str, Any], said: str) -> None:
    """A schedule that could not run is refused before Cloud Scheduler is asked, with its line in the project file."""
    with pytest.raises(ConfigError, match=said) as refused:
        schedules.wanted(clouds.loaded(tmp_path, {**DATA, **part}))
    assert refused.value.line


def test_what_would_be_refused_at_night_is_refused_before_apply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule over budget for a run or a day, with a machine that there is not, or with values that do not fit is refused with its
    line, each of several; one that is right is not.
    """
    monkeypatch.setenv("VERTEXRIG_LOCAL", "http://127.0.0.1:9")
    data = copy.deepcopy(DATA)
    schedules.check(clouds.loaded(tmp_path, data))
    data["trigger"]["budget"] = {"usd_per_run": 1}
    data["jobs"]["cpu"]["machine_type"] = "n1-standard-5"
    with pytest.raises(ConfigError) as refused:
        schedules.check(clouds.loaded(tmp_path, data))
    first, second = refused.value.errors
    assert "schedules.nightly" in first.message and first.line and "n1-standard-5" in second.message and second.line
    data = copy.deepcopy(DATA)
    for budget, said in (
        ({"usd_per_run": 1}, "trigger.budget.usd_per_run"),
        ({"usd_per_day": 0.5}, r"more than \$0[.]50 per day .*usd_per_day"),
        ({"trials_per_day": 4}, "more than 4 trials per day .*trials_per_day"),
    ):
        data["trigger"]["budget"] = budget
        with pytest.raises(ConfigError, match=said) as refused:
            schedules.check(clouds.loaded(tmp_path, data))
        assert refused.value.line and "nightly" in refused.value.message
    for words in (("schedule", "plan"), ("schedule", "apply"), ("function", "build")):
        done = tools.typed(*words, cwd=tmp_path)
        assert done.exit_code == 2 and "trials_per_day" in done.stderr
    other = copy.deepcopy(data)
    other["jobs"]["cpu"]["candidates"] = [{"strategy": "SPOT"}, {"machine_type": "n1-standard-5"}]
    with pytest.raises(ConfigError, match="candidate 3: .*n1-standard-5"):
        schedules.check(clouds.loaded(tmp_path, {**other, "trigger": {**other["trigger"], "budget": {}}}))


@pytest.mark.parametrize("budget", [{"trials_per_run": 4}, {"trials_per_day": 4}, {"usd_per_day": 0.5}])
def test_a_caller_s_budget_holds_for_the_schedules(tmp_path: Path, budget: dict[str, Any]) -> None:
    """What trigger.callers gives to the account that Cloud Scheduler calls with is refused before `apply`, too; another caller's is not."""
    for pattern in ("rig-invoker@*", "ana@*"):
        data = copy.deepcopy(DATA)
        data["trigger"]["callers"] = {pattern: {"runs": ["*"], "budget": budget}}
        found = schedules.refusals(clouds.loaded(tmp_path, data))
        place = f"trigger.callers.{pattern}.budget.{next(iter(budget))}"
        assert place in found["nightly"].message if pattern.startswith("rig") else not found


def test_the_default_retries_outlast_the_lease_twice() -> None:
    """Two deliveries in a row may die, and a default retry still makes the job; with a duration there are more of them."""
    base = {"retryCount": 3, "minBackoffDuration": "30s", "maxBackoffDuration": "600s", "maxDoublings": 3}
    assert schedules.outlasted([cron.backoff(base, number) for number in range(3)]) == 2
    assert schedules.outlasted([5, 10, 20]) == 0 and schedules.outlasted([claims.FREE_AFTER_S] * 4) == 4
    assert RetryConfig().retry_count == 3 and RetryConfig().min_backoff_duration == "30s"


NEEDS_TICK: list[tuple[bool, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (False, {}, {}, {}),
    *((True, keys, {}, {}) for keys in ({"then": ["promote"]}, {"retry_for": "6h"}, {"overlap": "wait"}, {"catch_up": True})),
    *((True, keys, {}, {}) for keys in ({"grace": "30m"}, {"deadline": "7h"})),
    *((True, {}, job, {}) for job in ({"candidates": [{"strategy": "SPOT"}]}, {"retry_for": "6h"}, {"wait": "20m"})),
    (False, {}, {"retry_for": "6h"}, {"runs": ["sweep"]}),
    (True, {}, {}, {"notify": [{"topic": "projects/p/topics/t"}]}),
]  # fmt: skip
"""Whether a tick is needed, with keys of the schedule, of a job and of the trigger."""


@pytest.mark.parametrize(("needed", "schedule", "job", "trigger"), NEEDS_TICK)
def test_what_needs_the_tick(
    tmp_path: Path, needed: bool, schedule: dict[str, Any], job: dict[str, Any], trigger: dict[str, Any]
) -> None:
    """Steps, runs that wait, alarms, notices, and candidates or waits of a job that may be started; `list` shows it where `apply` makes it."""
    data = copy.deepcopy(DATA)
    data["schedules"] = {"nightly": {**data["schedules"]["nightly"], **schedule}}
    data["jobs"]["cpu"] |= job
    data["trigger"] |= trigger
    loaded = clouds.loaded(tmp_path, data)
    assert schedules.ticks(loaded) is ("rig-tick" in schedules.wanted(loaded)) is needed
    shown = tools.typed("schedule", "list", "--format=json", cwd=tmp_path).document
    assert shown["tick"] == (loaded.project.trigger.tick if needed else None)


def test_the_lease_is_as_short_as_its_parts() -> None:
    """The lease is the time in which a create may start, the longest a call takes, and a second; the window is longer."""
    longest = rest.CONNECT_S + rest.READ_S + rest.ANSWER_S
    assert longest == rest.CALL_S and claims.LEASE_S == claims.CREATE_WITHIN_S + longest + 1 < claims.WINDOW_S


TASK = """
import json, os, sys
from pathlib import Path
folder = Path(os.environ["AIP_MODEL_DIR"].replace("gs://", "/gcs/"))
print("trained with", sys.argv[1:])
"""


def test_a_scheduled_run_to_its_end(tmp_path: Path) -> None:
    """The local Scheduler fires the staged function under functions-framework twice over, and one job runs to its end."""
    run = RunOptions(grace=0.5)
    with clouds.cloud(tmp_path, options=run, at_least_twice=True) as here:
        sdist(tmp_path / "vertex/gs/my-bucket/packages/trainer.tar.gz", task=TASK)
        clouds.point_at(here, function="rig")
        clouds.loaded(tmp_path, {**DATA, "schedules": {}})
        folder = stage.stage(config.load(tmp_path / "vertexrig.yaml"), tmp_path / "build/function").folder
        with functions.serving(folder, clouds.variables(here)) as url:
            data = {**DATA, "trigger": {**DATA["trigger"], "uri": url}}
            loaded = clouds.loaded(tmp_path, data)
            client = Scheduler("my-project", "us-central1", url=f"{here.url}/scheduler")
            for step in schedules.plan(loaded, client.list(), client.normal):
                if step.action == "create":
                    client.create(step.job)
            client.run("rig-weekly")
            until = time.monotonic() + 120
            while not (found := clouds.jobs(here)) or not found[0].ended:
                assert time.monotonic() < until, found
                time.sleep(0.1)
            deliveries = sum('"decision"' in line for line in _logs(tmp_path))
    (job,) = found
    assert job.state == "JOB_STATE_SUCCEEDED", job.data
    assert deliveries == 2 and "--epochs=3" in json.dumps(job.data)


def _logs(folder: Path) -> list[str]:
    return [line for file in (folder / "build").glob("function-*.log") for line in file.read_text().splitlines()]


def test_without_credentials_the_message_has_the_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Cloud Scheduler's client, which reads them itself, is no exception."""

    def no_credentials(**_: Any) -> None:
        raise ValueError("no credentials were found")

    monkeypatch.setattr("google.cloud.scheduler_v1.CloudSchedulerClient", no_credentials)
    clouds.loaded(tmp_path, {**clouds.PROJECT, "schedules": {"nightly": {"run": "cpu", "cron": "0 3 * * *"}}})
    monkeypatch.chdir(tmp_path)
    assert cli.run(["schedule", "pause", "nightly"]) == 3
    said = capsys.readouterr().err
    assert (
        "no credentials for Cloud Scheduler" in said and "Log in with `gcloud auth application-default login`" in said
    )
