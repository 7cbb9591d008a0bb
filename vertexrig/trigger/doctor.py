"""What `vertexrig doctor` looks at: each check says what is wrong and what to type; nothing is changed but that a second
job of one request is cancelled.

Roles: IAM pages of docs.cloud.google.com (2026-05-30). Runtimes: Google Cloud's buildpacks runtime lifecycle (2026-04-14).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from vertexrig.checks.workspace import Workspace
from vertexrig.cloud.registry import ArtifactRegistry
from vertexrig.cloud.rest import Rest, is_loopback
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import CUSTOM, KINDS, Vertex
from vertexrig.errors import ServiceError, VertexrigError
from vertexrig.project import overrides
from vertexrig.project.config import TICK, Loaded
from vertexrig.spec.states import LIVE
from vertexrig.submit import images
from vertexrig.submit.claims import LABEL, Claims
from vertexrig.submit.reconcile import Reconciler, seen_twice
from vertexrig.trigger import deploy, schedules

Outcome = Literal["ok", "warning", "error", "unknown"]
GCLOUD = (528, 0, 0)
"""The gcloud that the commands were tried with."""
SKEW_S = 60.0
# runtime -> day it is decommissioned
RUNTIMES = {"python312": date(2029, 4, 2), "python313": date(2030, 4, 10), "python314": date(2031, 4, 10)}
_MULTI = {"us": "us-", "eu": "europe-", "asia": "asia-"}


@dataclass(frozen=True)
class Result:
    """What one check found.

    Args:
        name: What was looked at.
        outcome: `unknown` if it could not be found out.
        message: What was found.
        fix: What to type.
    """

    name: str
    outcome: Outcome
    message: str
    fix: str = ""


@dataclass(frozen=True)
class Subject:
    """What the checks look at.

    Args:
        loaded: The project.
        vertex: Its jobs.
        storage: Its bucket, None if it names none.
        gcloud: Runs gcloud with these words; its output, or None if that failed.
        today: The day.
    """

    loaded: Loaded
    vertex: Vertex
    storage: Storage | None
    gcloud: Callable[[list[str]], str | None]
    today: date


def examine(loaded: Loaded) -> Iterator[Result]:
    """Every check on a project, one after the other."""
    project = loaded.project
    storage = Storage(project.bucket) if project.bucket else None
    subject = Subject(loaded, Vertex(project.project, project.region), storage, gcloud, date.today())
    # one check that cannot be made does not keep the others from being made
    for check in CHECKS:
        try:
            yield from check(subject)
        except VertexrigError as error:
            yield Result(
                check.__name__.strip("_"), "unknown" if isinstance(error, ServiceError) else "error", str(error)
            )


def gcloud(words: list[str]) -> str | None:
    """Run gcloud; its output, None if it is not there or failed."""
    program = shutil.which("gcloud")
    if program is None:
        return None
    try:
        done = subprocess.run([program, *words, "--quiet"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _python(subject: Subject) -> Iterator[Result]:
    yield Result("python", "ok", ".".join(map(str, sys.version_info[:3])))


def _gcloud(subject: Subject) -> Iterator[Result]:
    text = subject.gcloud(["version", "--format=json"])
    found = re.search(r'"Google Cloud SDK": "(\d+)\.(\d+)\.(\d+)"', text or "")
    if found is None:
        yield Result("gcloud", "warning", "not installed", "https://cloud.google.com/sdk/docs/install")
        return
    version = tuple(int(part) for part in found.groups())
    shown = ".".join(found.groups())
    if version < GCLOUD:
        tried = ".".join(map(str, GCLOUD))
        yield Result(
            "gcloud", "warning", f"{shown} is older than {tried}, which this was tried with", "gcloud components update"
        )
    else:
        yield Result("gcloud", "ok", shown)


def _trigger(subject: Subject) -> Iterator[Result]:
    overrides.check_rules(subject.loaded)
    trigger = subject.loaded.project.trigger
    end = RUNTIMES.get(trigger.runtime)
    if end is None or end <= subject.today:
        yield Result("runtime", "error", f"{trigger.runtime} cannot be deployed", "trigger: {runtime: python312}")
    else:
        yield Result("runtime", "ok", f"{trigger.runtime}, until {end.isoformat()}")
    budget = trigger.budget
    limits = [name for name, value in vars(budget).items() if value is not None and name != "price_factor"]
    if limits:
        yield Result("budget", "ok", ", ".join(limits))
    else:
        yield Result(
            "budget", "warning", "nothing limits what callers may spend", "trigger: {budget: {usd_per_day: 50}}"
        )


def _api(subject: Subject) -> Iterator[Result]:
    project = subject.loaded.project
    try:
        next(subject.vertex.list(CUSTOM, limit=1), None)
    except ServiceError as error:
        fixes = {
            401: "gcloud auth application-default login",
            403: f"gcloud services enable {' '.join(deploy.APIS)} --project={project.project}",
            404: f"is {project.project!r} the project's id, and {project.region!r} a region of Vertex AI?",
        }
        outcome: Outcome = "error" if error.status in fixes else "unknown"
        yield Result("Vertex AI", outcome, str(error), fixes.get(error.status or 0, ""))
    else:
        yield Result("Vertex AI", "ok", f"{project.project} in {project.region}")


def _bucket(subject: Subject) -> Iterator[Result]:
    project, storage = subject.loaded.project, subject.storage
    make = f"gcloud storage buckets create gs://{storage.bucket if storage else 'BUCKET'} --location={project.region} --project={project.project}"  # fmt: skip
    if storage is None:
        yield Result("bucket", "error", "the project file names none", make)
        return
    found = storage.metadata()
    if found is None:
        yield Result("bucket", "error", f"there is no gs://{storage.bucket}", make)
        return
    place = str(found.get("location", "")).lower()
    if place == project.region:
        yield Result("bucket", "ok", f"gs://{storage.bucket} in {place}")
    elif project.region.startswith(_MULTI.get(place, "-")):
        # python-aiplatform issue 885: Vertex AI refuses a bucket in a multi-region
        yield Result(
            "bucket", "error", f"gs://{storage.bucket} is in {place}; it must be in {project.region} itself", make
        )
    else:
        yield Result("bucket", "error", f"gs://{storage.bucket} is in {place}, the jobs are in {project.region}", make)


def _images(subject: Subject) -> Iterator[Result]:
    """The trainer's own images: their repository, and the images that the jobs run as the sources are now."""
    loaded = subject.loaded
    if not deploy.builds_images(loaded.project) or images.is_local():
        return
    from vertexrig.package.image import repository

    registry, place = ArtifactRegistry(), repository(loaded)
    if not registry.has_repository(place):
        fix = deploy.registry_steps(loaded)[0].line
        yield Result("Artifact Registry", "error", f"there is no repository {place}", fix)
        return
    yield Result("Artifact Registry", "ok", place)
    workspace = Workspace(loaded)
    known: set[str] = set()
    for name in loaded.project.jobs:
        try:
            uris = set(workspace.renderer.images_of(name).values()) - known
        except VertexrigError as error:
            yield Result("image", "error", str(error))
            continue
        known |= uris
        for uri in uris:
            there = registry.has(uri)
            fix = "" if there else workspace.verb("image", name, "--push")
            yield Result("image", "ok" if there else "warning", f"{uri} is {'there' if there else 'not there'}", fix)


def _twice(subject: Subject) -> Iterator[Result]:
    """No request has two jobs; of those that have, all but the recorded one are cancelled."""
    if subject.storage is None:
        return
    live = " OR ".join(f'state="{state}"' for state in LIVE)
    jobs = [job for kind in KINDS for job in subject.vertex.list(kind, filter=f"labels.{LABEL}:* AND ({live})")]
    reconciler = Reconciler(subject.vertex, Claims(subject.storage))
    cancelled = [name for claim, kind in seen_twice(jobs) for name in reconciler.look(claim, kind)]
    if cancelled:
        names = ", ".join(name.rpartition("/")[2] for name in cancelled)
        yield Result("one job per request", "warning", f"cancelled {names}: second jobs of one request")
    else:
        yield Result("one job per request", "ok", f"{len(jobs)} live")


def _clock(subject: Subject) -> Iterator[Result]:
    rest: Rest = subject.storage.rest if subject.storage else subject.vertex.rest
    try:
        # any answer will do, an error page too: only its Date header is read
        answer = rest.session.get(rest.url + "/", timeout=10)
        skew = time.time() - parsedate_to_datetime(answer.headers["Date"]).timestamp()
    except Exception:  # whatever it is, the other checks say more about it
        yield Result("clock", "unknown", "no service gave its time")
        return
    if abs(skew) > SKEW_S:
        yield Result(
            "clock", "error", f"{abs(skew):.0f} s off; tokens will be refused", "sudo timedatectl set-ntp true"
        )
    else:
        yield Result("clock", "ok", f"within {SKEW_S:.0f} s")


def _roles(subject: Subject) -> Iterator[Result]:
    """The function's identity has its roles, and nobody may call without one."""
    project = subject.loaded.project
    if is_loopback(subject.vertex.rest.url):
        return  # a local Vertex has no identities
    runtime, invoker = deploy.identities(project)
    jobs, _ = deploy.roles(project)
    wanted = [
        (["projects", "get-iam-policy", project.project], runtime, f"projects/{project.project}/roles/{jobs}"),
        *(
            (["iam", "service-accounts", "get-iam-policy", account], runtime, "roles/iam.serviceAccountUser")
            for account in deploy.training_accounts(project)
        ),
    ]
    place = [f"--region={project.region}", f"--project={project.project}"]
    wanted.append(
        (["run", "services", "get-iam-policy", project.trigger.function, *place], invoker, "roles/run.invoker")
    )
    for words, account, role in wanted:
        text = subject.gcloud([*words, "--format=json"])
        name = f"{role} for {account}"
        if text is None:
            yield Result(name, "unknown", "the policy cannot be read", "vertexrig function deploy")
        elif "allUsers" in _members(text, "roles/run.invoker"):
            yield Result(name, "error", "anybody may call the function", f"gcloud run services remove-iam-policy-binding {project.trigger.function} --member=allUsers --role=roles/run.invoker {' '.join(place)}")  # fmt: skip
        elif f"serviceAccount:{account}" in _members(text, role):
            yield Result(name, "ok", "given")
        else:
            yield Result(name, "error", "not given", "vertexrig function deploy")


def _chains(subject: Subject) -> Iterator[Result]:
    """Schedules with steps: a tick looks for finished work, and the function's role has what `register` calls."""
    loaded, project = subject.loaded, subject.loaded.project
    if not schedules.ticks(loaded) or is_loopback(subject.vertex.rest.url):
        return
    tick, place = schedules.job_id(loaded, TICK), [f"--location={project.region}", f"--project={project.project}"]
    jobs = _read(subject.gcloud(["scheduler", "jobs", "list", *place, "--format=json"]))
    state = next((one.get("state") for one in jobs or () if str(one.get("name")).endswith(f"/jobs/{tick}")), None)
    if jobs is None:
        yield Result("tick", "unknown", "the jobs of Cloud Scheduler cannot be read", "vertexrig schedule apply")
    elif state == "ENABLED":
        yield Result("tick", "ok", f"{tick} looks for finished runs: {project.trigger.tick}")
    elif state:
        yield Result(
            "tick", "error", f"{tick} is {state}, so that no step follows a run", "vertexrig schedule resume tick"
        )
    else:
        yield Result("tick", "error", f"there is no {tick}, so that no step follows a run", "vertexrig schedule apply")
    if not deploy.registers(project):
        return
    role, _ = deploy.roles(project)
    found = _read(subject.gcloud(["iam", "roles", "describe", role, f"--project={project.project}", "--format=json"]))
    lacking = sorted(set(deploy.MODEL_CALLS) - set(found.get("includedPermissions", ()))) if found is not None else []
    name = "register after a run"
    if found is None:
        yield Result(name, "unknown", f"the role {role} cannot be read", "vertexrig function deploy")
    elif lacking:
        yield Result(name, "error", f"the role {role} lacks {', '.join(lacking)}", "vertexrig function deploy")
    else:
        yield Result(name, "ok", f"{role} may add models and versions")


def _read(text: str | None) -> Any:
    """JSON that gcloud printed; None if there is none."""
    try:
        return json.loads(text or "null")
    except ValueError:
        return None


def _members(policy: str, role: str) -> set[str]:
    try:
        data: Any = json.loads(policy)
        return {
            str(one) for row in data.get("bindings", []) if row.get("role") == role for one in row.get("members", [])
        }
    except (ValueError, AttributeError):
        return set()


CHECKS: tuple[Callable[[Subject], Iterator[Result]], ...] = (
    _python,
    _gcloud,
    _trigger,
    _api,
    _bucket,
    _images,
    _twice,
    _clock,
    _roles,
    _chains,
)
