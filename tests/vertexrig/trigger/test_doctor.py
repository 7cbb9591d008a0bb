"""The doctor, and the verbs about submitted jobs, against the local Vertex."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from localvertex import server
from localvertex.runner import RunOptions
from tests.support import clouds, tools
from tests.support.jobkit import sdist
from tests.vertexrig.trigger.test_deploy import EVERYTHING, RIGHTS
from vertexrig.cloud.rest import Rest
from vertexrig.cloud.vertex import Vertex
from vertexrig.errors import ServiceError
from vertexrig.spec.states import LIVE
from vertexrig.submit import submission as submit
from vertexrig.submit.claims import request_key
from vertexrig.trigger import deploy, doctor

TASK = """
import json, os, sys, time
rate = next((float(one.split("=")[1]) for one in sys.argv if one.startswith("--learning_rate=")), 0.1)
path = os.environ.get("CLOUD_ML_HP_METRIC_FILE", "/var/hypertune/output.metrics")
with open(path, "a") as file:
    file.write(json.dumps({"timestamp": 1.0, "trial": os.environ.get("CLOUD_ML_TRIAL_ID", "1"), "accuracy": str(rate), "global_step": "1"}) + "\\n")
print("rate", rate, flush=True)
note = next((one.split("=", 1)[1] for one in sys.argv if one.startswith("--note=")), "")
while note and not os.path.exists(note): time.sleep(0.1)
if rate > 2: sys.exit(3)
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    """A local Vertex whose jobs really run."""
    root = tmp_path_factory.mktemp("cloud")
    with clouds.cloud(root, options=RunOptions(grace=0.5)) as running:
        sdist(root / "vertex/gs/my-bucket/packages/trainer.tar.gz", task=TASK)
        clouds.point_at(running)
        yield running


OBJECTS_ROLE = "projects/my-project/roles/vertexrig_trigger_objects"
JOBS_ROLE = "projects/my-project/roles/vertexrig_trigger_jobs"
CLOUD = Vertex("my-project", "us-central1", url="https://example.invalid")


def patient(here: clouds.Cloud, folder: Path, said: dict[str, str] | None = None, **parts: Any) -> doctor.Subject:
    """What the doctor looks at; `said` is what gcloud prints for a command that begins so."""

    def gcloud(words: list[str]) -> str | None:
        return next((text for start, text in (said or {}).items() if " ".join(words).startswith(start)), None)

    one = doctor.Subject(clouds.loaded(folder), clouds.vertex(here), clouds.storage(here), gcloud, date(2026, 11, 21))
    return replace(one, **parts)


def outcomes(check: Any, one: doctor.Subject) -> dict[str, tuple[str, str]]:
    return {result.name: (result.outcome, result.fix) for result in check(one)}


def test_the_command(here: server.RunningServer, tmp_path: Path) -> None:
    """`vertexrig doctor` makes every check that there is, prints what it found and what to type, and fails for what is wrong: a schedule
    whose trainer was not uploaded.
    """
    checks = {value for name, value in vars(doctor).items() if name.startswith("check_")}
    assert checks == set(doctor.CHECKS)
    scheduled = {"nightly": {"run": "sweep", "cron": "0 3 * * *"}}
    clouds.loaded(tmp_path, {**clouds.PROJECT, "bucket": "gs://my-bucket/elsewhere", "schedules": scheduled})
    done = tools.vertexrig("doctor", "--format=json", cwd=tmp_path, env=clouds.variables(here))
    rows = json.loads(done.stdout)["results"]
    found = {row["name"]: row["outcome"] for row in rows}
    assert {found[name] for name in ("Vertex AI", "clock", "runtime")} == {"ok"} and found["budget"] == "warning"
    wrong = {row["name"]: row["fix"] for row in rows if row["outcome"] == "error"}
    assert done.returncode == 1 and wrong.keys() <= {"bucket", "schedule nightly"}
    assert wrong["schedule nightly"] == "vertexrig function package"


def test_any_limit_is_a_budget(tmp_path: Path) -> None:
    """A limit of trials is named as the budget; a factor of prices alone limits nothing."""
    for budget, outcome in (({"trials_per_day": 9}, "ok"), ({"price_factor": 1.1}, "warning")):
        project = {**clouds.PROJECT, "trigger": {**clouds.PROJECT["trigger"], "budget": budget}}
        one = replace(patient(clouds.MemoryCloud(), tmp_path), loaded=clouds.loaded(tmp_path, project))
        found = [result for check in doctor.CHECKS for result in check(one) if result.name == "budget"]
        assert [result.outcome for result in found] == [outcome]


def test_the_bucket_s_region(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that does not exist is wrong, with the command that creates it. So is one in another region or in a multi-region, with
    the command that creates another one, since a bucket's location cannot be changed.
    """
    one = patient(clouds.MemoryCloud(), tmp_path)
    assert outcomes(doctor.check_bucket, one)["bucket"][0] == "ok"  # a local one is in no region
    assert one.storage is not None
    one.storage.rest = Rest("https://example.invalid", "Cloud Storage")
    for location, outcome in (("US-CENTRAL1", "ok"), ("US", "error"), ("EUROPE-WEST4", "error"), (None, "error")):
        metadata = None if location is None else {"location": location}
        monkeypatch.setattr(one.storage, "metadata", lambda metadata=metadata: metadata)
        found, fix = outcomes(doctor.check_bucket, one)["bucket"]
        name = {"US-CENTRAL1": None, None: "my-bucket"}.get(location, "NEW_BUCKET")
        command = f"gcloud storage buckets create gs://{name} --location=us-central1 --project=my-project"
        written = ", then write bucket: gs://NEW_BUCKET in the project file" if name == "NEW_BUCKET" else ""
        assert (found, fix) == (outcome, command + written if name else "")
    assert outcomes(doctor.check_bucket, replace(one, storage=None))["bucket"][0] == "error"


def test_an_old_runtime(tmp_path: Path) -> None:
    """A runtime that cannot be deployed on the day is wrong."""
    one = patient(clouds.MemoryCloud(), tmp_path)
    assert outcomes(doctor.check_trigger, one)["runtime"][0] == "ok"
    assert outcomes(doctor.check_trigger, replace(one, today=date(2029, 5, 1)))["runtime"][0] == "error"


def test_gcloud_s_version(tmp_path: Path) -> None:
    """An old gcloud and none at all are warnings with what to do."""
    for text, outcome in (("528.0.0", "ok"), ("400.0.0", "warning"), ("", "warning")):
        one = patient(clouds.MemoryCloud(), tmp_path, {"version": text and f'"Google Cloud SDK": "{text}"'})
        assert outcomes(doctor.check_gcloud, one)["gcloud"][0] == outcome


def test_roles(tmp_path: Path) -> None:
    """A role that is given is fine, one that is not is wrong, and a function that anybody may call is wrong."""

    def policy(role: str, member: str) -> str:
        return json.dumps({"bindings": [{"role": role, "members": [member]}]})

    runtime = "serviceAccount:vertexrig-trigger@my-project.iam.gserviceaccount.com"
    said = {
        "projects": policy(JOBS_ROLE, runtime),
        "storage": policy(OBJECTS_ROLE, runtime),
        "run": policy("roles/run.invoker", "allUsers"),
    }
    found = outcomes(doctor.check_roles, patient(clouds.MemoryCloud(), tmp_path, said, vertex=CLOUD))
    # between them the roles of the identity that builds it
    assert [outcome for outcome, _ in found.values()] == ["ok", "ok", "error", "error", "error", "error"]
    assert "remove-iam-policy-binding" in list(found.values())[-1][1]
    assert {fix for _, fix in list(found.values())[2:-1]} == {"vertexrig function deploy --run"}
    found = outcomes(doctor.check_roles, patient(clouds.MemoryCloud(), tmp_path, vertex=CLOUD))
    assert set(found.values()) == {("unknown", "vertexrig function deploy --run")}


def test_roles_are_those_that_deploy_gives(tmp_path: Path) -> None:
    """Every binding that `function deploy` prints is looked at, and is fine where that was run."""
    loaded = clouds.loaded(tmp_path, {**RIGHTS, "trigger": {**RIGHTS["trigger"], **EVERYTHING}})
    steps = [step.words for step in deploy.commands(loaded, tmp_path / "out")]
    given = [words for words in steps if "add-iam-policy-binding" in words[:5]]
    given += [("gcloud", *shlex.split(words[2])[1:]) for words in steps if words[0] == "sh"]
    assert {"gs://data", "runs", "hook", EVERYTHING["kms_key_name"]} <= {
        words[words.index("add-iam-policy-binding") + 1] for words in given
    }

    def wrong(lacking: tuple[str, ...] = ()) -> list[str]:
        """The doctor's errors after all steps but one."""

        def gcloud(words: list[str]) -> str:
            if words[:2] in (["projects", "describe"], ["storage", "service-agent"]):
                return "7\n"
            rows = []
            for made in given:
                at = made.index("add-iam-policy-binding")
                flags = dict(word[2:].split("=", 1) for word in made[at + 2 :])
                member, role = deploy.known(flags["member"], gcloud), flags["role"]
                if made != lacking and [*made[1:at], "get-iam-policy", made[at + 1]] == words[: at + 1]:
                    rows.append({"role": role, "members": [member]})
            return json.dumps({"bindings": rows})

        one = patient(clouds.MemoryCloud(), tmp_path, vertex=CLOUD, loaded=loaded, gcloud=gcloud)
        return [result.name for result in doctor.check_roles(one) if result.outcome != "ok"]

    assert wrong() == []
    assert all(len(wrong(words)) == 1 for words in given)


def test_who_applies_schedules(tmp_path: Path) -> None:
    """Whoever applies schedules needs to act as the account that calls the function: a role on it is fine, none is a warning with the key."""
    nightly = {"run": "sweep", "cron": "0 3 * * *"}
    project = clouds.loaded(tmp_path, {**clouds.PROJECT, "schedules": {"nightly": nightly}})
    for member, outcome in (("user:ana@example.com", "ok"), ("user:bob@example.com", "warning")):
        policy = json.dumps({"bindings": [{"role": deploy.ACT_AS, "members": [member]}]})
        said = {
            "iam service-accounts get-iam-policy vertexrig-invoker@": policy,
            "config get-value account": "ana@example.com\n",
        }
        one = patient(clouds.MemoryCloud(), tmp_path, said, vertex=CLOUD, loaded=project)
        found, fix = outcomes(doctor.check_deployer, one)["apply schedules as ana@example.com"]
        typed = "trigger: {deployers: [user:ana@example.com]}, then `vertexrig function deploy --run`"
        assert found == outcome and (fix == typed or outcome == "ok")


def test_what_chains_need(tmp_path: Path) -> None:
    """Schedules with `register` need a role that has its permissions; without steps nothing."""
    assert outcomes(doctor.check_chains, patient(clouds.MemoryCloud(), tmp_path, vertex=CLOUD)) == {}
    nightly = {"run": "sweep", "cron": "0 3 * * *", "then": ["promote", "register"]}
    chained = clouds.loaded(tmp_path, {**clouds.PROJECT, "schedules": {"nightly": nightly}})

    def found(permissions: list[str] | None) -> dict[str, tuple[str, str]]:
        said = {"iam": json.dumps({"includedPermissions": permissions})}
        return outcomes(
            doctor.check_chains, patient(clouds.MemoryCloud(), tmp_path, said, vertex=CLOUD, loaded=chained)
        )

    every = list(deploy.MODEL_CALLS)
    assert found(every) == {"register after a run": ("ok", "")}
    assert found(every[1:])["register after a run"] == ("error", "vertexrig function deploy --run")
    unknown = outcomes(doctor.check_chains, patient(clouds.MemoryCloud(), tmp_path, vertex=CLOUD, loaded=chained))
    assert [outcome for outcome, _ in unknown.values()] == ["unknown"]
    local = patient(clouds.MemoryCloud(), tmp_path, loaded=chained)
    assert outcomes(doctor.check_chains, local) == {}


def test_no_service(tmp_path: Path) -> None:
    """With nothing to reach, what cannot be found out is unknown, and there is no traceback."""
    dead = Vertex("my-project", "us-central1", url="http://127.0.0.1:9")
    dead.rest = Rest("http://127.0.0.1:9/v1", "Vertex AI", attempts=1)
    one = patient(clouds.MemoryCloud(), tmp_path, vertex=dead, storage=None)
    assert outcomes(doctor.check_api, one)["Vertex AI"][0] == outcomes(doctor.check_clock, one)["clock"][0] == "unknown"


def test_no_trigger_and_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project without a trigger gets no check of one. Without credentials, the checks that need them are named and not made."""
    plain = {key: value for key, value in clouds.PROJECT.items() if key != "trigger"}
    for check in doctor.OF_TRIGGER:
        assert check in doctor.CHECKS
    monkeypatch.setattr(deploy, "gcloud", lambda _: None)
    refused = ServiceError("no credentials for Vertex AI", status=401)
    monkeypatch.setattr(Vertex, "list", lambda *_, **__: (_ for _ in ()).throw(refused))
    found = list(doctor.examine(clouds.loaded(tmp_path, plain)))
    assert [one.name for one in found] == ["python", "gcloud", "Vertex AI", "not checked"]
    assert "bucket" in found[-1].message and "roles" not in found[-1].message
    triggered = list(doctor.examine(clouds.loaded(tmp_path)))
    assert "runtime" in {one.name for one in triggered} and "roles, deployer, schedules" in triggered[-1].message


@pytest.mark.whole
def test_logs_of_a_sweep_and_of_a_trial_that_runs(here: server.RunningServer, tmp_path: Path, gcloud: str) -> None:
    """Logs shows, through the real gcloud, what the trainer of a running trial printed, and what those of all trials did."""
    submitter, vertex = clouds.submitter(here, tmp_path), clouds.vertex(here)
    go = tmp_path / "go"
    request = submit.Request("sweep", args={"note": str(go)})  # each trial waits for this file
    sweep = submitter.submit(submitter.prepare_candidates(request)[0], request_key("logs"), "x")
    env = {**server.env(here, project="my-project"), "CLOUDSDK_CONFIG": str(tmp_path / "gcloud")}
    until = time.monotonic() + 60
    while not (trials := [one for one in vertex.lookup(sweep.name).data.get("trials", ()) if "customJob" in one]):
        assert time.monotonic() < until
        time.sleep(0.1)
    argv = [sys.executable, "-m", "vertexrig", "logs", sweep.name, f"--trial={trials[0]['id']}", "--poll=1"]
    variables, lines = {**os.environ, "PYTHONPATH": str(tools.INSTALLED), **env}, []
    with subprocess.Popen(
        argv, cwd=tmp_path, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as follower:
        assert follower.stdout is not None
        for line in follower.stdout:
            lines.append(line)
            if "rate" in line:
                go.touch()
    assert follower.returncode == 0 and re.search(r"\brate 0\.\d+", "".join(lines)), lines
    assert tools.vertexrig("watch", sweep.name, "--poll=0.1", cwd=tmp_path, env=env).returncode == 0
    shown = tools.vertexrig("logs", sweep.name, "--poll=1", "--format=json", cwd=tmp_path, env=env)
    rates = re.findall(r"\brate 0\.\d+", "\n".join(json.loads(shown.stdout)["lines"]))
    assert len(set(rates)) > 1


def test_cancel_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancel comes back when the job has ended, and watch fails for a job that did not succeed."""
    with clouds.cloud(tmp_path) as slow:
        submitter = clouds.submitter(slow, tmp_path)
        made = submitter.submit(submitter.prepare_candidates(submit.Request("cpu"))[0], request_key("c"), "x")
        for name, value in clouds.variables(slow).items():
            monkeypatch.setenv(name, value)
        until = time.monotonic() + 30
        while tools.typed("cancel", made.name, "--poll=0.1", cwd=tmp_path).exit_code:
            assert time.monotonic() < until
        job = clouds.vertex(slow).get(made.name)
        assert job is not None and job.state == "JOB_STATE_CANCELLED"
        watched = tools.typed("watch", made.name, cwd=tmp_path)
        assert watched.exit_code == 1 and "CANCELLED" in watched.stderr


def test_a_second_job_of_one_request_is_cancelled(tmp_path: Path) -> None:
    """The doctor cancels a second job that carries the claim of a recorded one, and says which; then all is well."""
    here = clouds.MemoryCloud()
    submitter, vertex = clouds.submitter(here, tmp_path), clouds.vertex(here)
    first = submitter.submit(submitter.prepare_candidates(submit.Request("cpu"))[0], request_key("twice"), "x")
    made = vertex.get(first.name)
    assert made is not None
    second = vertex.create(made.collection, {key: made.data[key] for key in ("displayName", "labels", "jobSpec")})
    (found,) = doctor.check_twice(patient(here, tmp_path))
    assert found.outcome == "warning" and second.id in found.message and made.id not in found.message
    now, recorded = vertex.get(second.name), vertex.get(first.name)
    assert now is not None and now.state not in LIVE and recorded is not None and recorded.state in LIVE
    assert [one.outcome for one in doctor.check_twice(patient(here, tmp_path))] == ["ok"]
