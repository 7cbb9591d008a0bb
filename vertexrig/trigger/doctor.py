"""The checks of `vertexrig doctor`: each says what is wrong and what to type. Nothing is changed, except that a second
job of one request is cancelled.

Roles: IAM pages of docs.cloud.google.com (2026-05-30). Runtimes: Google Cloud's buildpacks runtime lifecycle (2026-04-14).
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from email.utils import parsedate_to_datetime
from typing import Literal

from vertexrig.cloud.registry import ArtifactRegistry
from vertexrig.cloud.rest import Rest, is_loopback
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import CUSTOM, LIVE_FILTER, RESOURCES, Vertex
from vertexrig.errors import ServiceError, VertexrigError, install
from vertexrig.project import caller_overrides
from vertexrig.project.config import Loaded
from vertexrig.project.model import BUILD
from vertexrig.runs import store
from vertexrig.spec.labels import CLAIM_LABEL
from vertexrig.submit import images
from vertexrig.submit.claims import Claims
from vertexrig.submit.reconcile import Reconciler, seen_twice
from vertexrig.submit.submission import Request, Submitter
from vertexrig.submit.uploaded import NoPackageError, UploadedArtifacts
from vertexrig.trigger import deploy, schedule_status
from vertexrig.workspace import Workspace

Outcome = Literal["ok", "warning", "error", "unknown"]
GCLOUD = (528, 0, 0)
"""The gcloud that the commands were tried with."""
SKEW_S = 60.0
# runtime -> day it is decommissioned
RUNTIMES = {"python312": date(2029, 4, 2), "python313": date(2030, 4, 10), "python314": date(2031, 4, 10)}
LOGIN = "gcloud auth application-default login"
_MULTI = {"us": "us-", "eu": "europe-", "asia": "asia-"}


@dataclass(frozen=True)
class Result:
    """What one check found.

    Args:
        outcome: `unknown` if it could not be found out.
        fix: What to type.
        ends: Whether no further check can be made: without credentials each would fail in the same way, and slowly.
    """

    name: str
    outcome: Outcome
    message: str
    fix: str = ""
    ends: bool = False


@dataclass(frozen=True)
class Subject:
    """What is checked.

    Args:
        storage: Its bucket, None if it names none.
        gcloud: Runs gcloud with these words; its output, or None if that failed.
    """

    loaded: Loaded
    vertex: Vertex
    storage: Storage | None
    gcloud: Callable[[list[str]], str | None]
    today: date


def examine(loaded: Loaded) -> Iterator[Result]:
    """Yield every check on a project, one after the other: those of the trigger only if the project has one, and none of the
    service's without credentials, since looking for these takes seconds each time.
    """
    project = loaded.project
    storage = Storage(project.bucket) if project.bucket else None
    subject = Subject(loaded, Vertex(project.project, project.region), storage, deploy.gcloud, date.today())
    triggered = bool(project.schedules) or any(
        path[:1] == ("trigger",) for path in (*loaded.origins.lines, *loaded.origins.override_of)
    )
    checks = [check for check in CHECKS if triggered or check not in OF_TRIGGER]
    # one check that cannot be made does not keep the others from being made
    for index, check in enumerate(checks):
        try:
            for result in check(subject):
                yield result
                if result.ends:
                    left = ", ".join(one.__name__.removeprefix("check_") for one in checks[index + 1 :])
                    yield Result("not checked", "unknown", f"without credentials: {left}", LOGIN)
                    return
        except VertexrigError as error:
            yield Result(
                check.__name__.removeprefix("check_"),
                "unknown" if isinstance(error, ServiceError) else "error",
                str(error),
            )


def check_python(subject: Subject) -> Iterator[Result]:
    yield Result("python", "ok", ".".join(map(str, sys.version_info[:3])))


def check_gcloud(subject: Subject) -> Iterator[Result]:
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
            "gcloud", "warning", f"{shown} is older than {tried}, which was tested", "gcloud components update"
        )
    else:
        yield Result("gcloud", "ok", shown)


def check_trigger(subject: Subject) -> Iterator[Result]:
    caller_overrides.check_rules(subject.loaded)
    trigger = subject.loaded.project.trigger
    end = RUNTIMES.get(trigger.runtime)
    if end is None or end <= subject.today:
        yield Result(
            "runtime",
            "error",
            f"{trigger.runtime} cannot be deployed: it is unknown or past its end",
            "trigger: {runtime: python312}",
        )
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
    if trigger.callers and not trigger.uri:
        message = (
            "trigger.callers is set but trigger.uri is not: without the URL the function cannot verify callers, and "
            "refuses all of them"
        )
        yield Result("callers", "error", message, "`vertexrig function deploy --run` writes trigger.uri")
    elif trigger.callers:
        yield Result("callers", "ok", ", ".join(trigger.callers))


def check_api(subject: Subject) -> Iterator[Result]:
    project = subject.loaded.project
    try:
        next(subject.vertex.list(CUSTOM, limit=1), None)
    except ServiceError as error:
        fixes = {
            401: LOGIN,
            403: f"gcloud services enable {' '.join(deploy.APIS)} --project={project.project}",
            404: f"is {project.project!r} the project's id, and {project.region!r} a region of Vertex AI?",
        }
        outcome: Outcome = "error" if error.status in fixes else "unknown"
        yield Result("Vertex AI", outcome, str(error), fixes.get(error.status or 0, ""), ends=error.status == 401)
    else:
        yield Result("Vertex AI", "ok", f"{project.project} in {project.region}")


def check_bucket(subject: Subject) -> Iterator[Result]:
    project, storage = subject.loaded.project, subject.storage
    uri = f"gs://{storage.bucket}" if storage else "gs://BUCKET"
    place_options = f"--location={project.region} --project={project.project}"
    make = f"gcloud storage buckets create {uri} {place_options}"
    # the location of a bucket cannot be changed, and its name is taken
    move = f"gcloud storage buckets create gs://NEW_BUCKET {place_options}, then write bucket: gs://NEW_BUCKET in the project file"
    found = storage.metadata() if storage is not None else None
    place = str((found or {}).get("location", "")).lower()
    if storage is None:
        yield Result("bucket", "error", "the project file names none", make)
    elif found is None:
        yield Result("bucket", "error", f"there is no {uri}", make)
    elif is_loopback(storage.rest.url):
        yield Result("bucket", "ok", f"{uri} on this machine, its region does not matter")
    elif place == project.region:
        yield Result("bucket", "ok", f"{uri} in {place}")
    elif project.region.startswith(_MULTI.get(place, "-")):
        # python-aiplatform issue 885: Vertex AI refuses a bucket in a multi-region
        yield Result("bucket", "error", f"{uri} is in {place}; it must be in {project.region} itself", move)
    else:
        yield Result("bucket", "error", f"{uri} is in {place}, the jobs are in {project.region}", move)


def check_images(subject: Subject) -> Iterator[Result]:
    """Yield the trainer's own images: their repository, and the images that the jobs run as the sources are now."""
    loaded = subject.loaded
    if BUILD not in loaded.project.image_names or images.is_local():
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
            uris = set(workspace.renderer.view(name).own_images.values()) - known
        except VertexrigError as error:
            yield Result("image", "error", str(error))
            continue
        known |= uris
        for uri in uris:
            there = registry.has(uri)
            fix = "" if there else workspace.command_line("image", name, "--push")
            yield Result("image", "ok" if there else "warning", f"{uri} is {'there' if there else 'not there'}", fix)


def check_twice(subject: Subject) -> Iterator[Result]:
    """No request has two jobs; of those that have, all but the recorded one are cancelled."""
    if subject.storage is None:
        return
    wanted = f"labels.{CLAIM_LABEL}:* AND {LIVE_FILTER}"
    jobs = [job for collection in RESOURCES for job in subject.vertex.list(collection, filter=wanted)]
    reconciler = Reconciler(subject.vertex, Claims(subject.storage.below(subject.loaded.project.trigger.prefix)))
    cancelled = [name for claim, kind in seen_twice(jobs) for name in reconciler.look(claim, kind)]
    if cancelled:
        names = ", ".join(name.rpartition("/")[2] for name in cancelled)
        yield Result("one job per request", "warning", f"cancelled {names}: second jobs of one request")
    else:
        yield Result("one job per request", "ok", f"{len(jobs)} live")


def check_clock(subject: Subject) -> Iterator[Result]:
    rest: Rest = subject.storage.rest if subject.storage else subject.vertex.rest
    try:
        # any answer will do, an error page too: only its Date header is read
        answer = rest.session.get(rest.url + "/", timeout=10)
        skew = time.time() - parsedate_to_datetime(answer.headers["Date"]).timestamp()
    except Exception:  # the other checks report the cause
        yield Result("clock", "unknown", "no service gave its time")
        return
    if abs(skew) > SKEW_S:
        yield Result(
            "clock", "error", f"{abs(skew):.0f} s off; tokens will be refused", "sudo timedatectl set-ntp true"
        )
    else:
        yield Result("clock", "ok", f"within {SKEW_S:.0f} s")


def check_roles(subject: Subject) -> Iterator[Result]:
    """Check that the function's identity has its roles and that only accounts with the role may call it."""
    project = subject.loaded.project
    if is_loopback(subject.vertex.rest.url):
        yield Result("roles", "unknown", "the local Vertex has no identities: nobody is refused there")
        return
    wanted = [*deploy.grants(project), *(deploy.pulls(subject.loaded) if BUILD in project.image_names else [])]
    wanted += [deploy.invoker(project, name) for name in deploy.functions(project)]
    policies = dict[tuple[str, ...], str | None]()
    for grant in wanted:
        words = (*grant.policy, "--format=json")
        if words not in policies:
            policies[words] = subject.gcloud(list(words))
        text, member, role = policies[words], deploy.known(grant.member, subject.gcloud), deploy.INVOKER
        name = f"{grant.role} on {grant.name} for {member.partition(':')[2] or grant.member}"
        if text is None or not member:
            yield Result(name, "unknown", "the policy cannot be read", "vertexrig function deploy --run")
        elif "allUsers" in _members(text, role):
            who = ": it cannot verify callers, and refuses all of them" if project.trigger.callers else ""
            fix = f"gcloud run services remove-iam-policy-binding {grant.name} --member=allUsers --role={role} {' '.join(grant.place)}"
            yield Result(name, "error", f"anybody may call the function{who}", fix)
        elif member in _members(text, grant.role):
            yield Result(name, "ok", "given")
        else:
            yield Result(name, "error", "not given", "vertexrig function deploy --run")


def check_deployer(subject: Subject) -> Iterator[Result]:
    """Check that the account that applies schedules may act as the account that they call with; a role on the project also suffices."""
    project = subject.loaded.project
    if not project.schedules or is_loopback(subject.vertex.rest.url):
        return
    _, invoker, _ = deploy.identities(project)
    place = f"--project={project.project}"
    policy = subject.gcloud(["iam", "service-accounts", "get-iam-policy", invoker, place, "--format=json"])
    account = deploy.account(subject.gcloud)
    kind = "serviceAccount" if account.endswith(".gserviceaccount.com") else "user"
    fix = f"trigger: {{deployers: [{kind}:{account or 'YOU'}]}}, then `vertexrig function deploy --run`"
    name = f"apply schedules as {account or 'you'}"
    if policy is None or not account:
        yield Result(name, "unknown", f"the policy of {invoker} cannot be read", fix)
    elif f"{kind}:{account}" in _members(policy, deploy.ACT_AS):
        yield Result(name, "ok", f"may act as {invoker}")
    else:
        yield Result(
            name,
            "warning",
            f"{account} has no role on {invoker} that allows acting as it; a role on the project may allow it",
            fix,
        )


def check_schedules(subject: Subject) -> Iterator[Result]:
    """Each schedule can run, its trainer is uploaded, and file, function, Cloud Scheduler and the last run agree."""
    loaded, storage = subject.loaded, subject.storage
    if not loaded.project.schedules or storage is None:
        return
    for unknown in store.RunStore(storage.below(loaded.project.trigger.prefix)).open():
        if isinstance(unknown, str):
            yield Result("unfinished runs", "warning", store.left_alone(unknown), "vertexrig function deploy --run")
    submitter = Submitter(Workspace(loaded, uploaded=UploadedArtifacts(loaded, storage)), subject.vertex, storage)
    for name, one in loaded.project.schedules.items():
        try:
            submitter.prepare_candidates(Request(one.run, one.set, one.args))
        except NoPackageError as error:
            yield Result(f"schedule {name}", "error", str(error), "vertexrig function package")
        except VertexrigError:
            pass  # the schedule's status reports it
    try:
        found = schedule_status.of_project(Workspace(loaded), subject.gcloud)
    except ImportError as error:
        yield Result("schedules", "unknown", str(error), install("submit"))
        return
    for status in found:
        for wrong in status.differences:
            yield Result(f"schedule {status.name}", wrong.severity, wrong.message, wrong.fix)
        if not status.differences:
            due = f", next {status.next[:19]}Z" if status.next else ""
            yield Result(f"schedule {status.name}", "ok", f"{status.state.lower()}{due}")


def check_chains(subject: Subject) -> Iterator[Result]:
    """Compare the role of the function with what `register` calls."""
    project = subject.loaded.project
    if not deploy.registers(project) or is_loopback(subject.vertex.rest.url):
        return
    role, _ = deploy.roles(project)
    words = ["iam", "roles", "describe", role, f"--project={project.project}", "--format=json"]
    found, name = deploy.printed(subject.gcloud(words)), "register after a run"
    lacking = sorted(set(deploy.registry_calls(project)) - set((found or {}).get("includedPermissions", ())))
    if found is None:
        yield Result(name, "unknown", f"the role {role} cannot be read", "vertexrig function deploy --run")
    elif lacking:
        yield Result(name, "error", f"the role {role} lacks {', '.join(lacking)}", "vertexrig function deploy --run")
    else:
        yield Result(name, "ok", f"{role} may add models and versions")


def _members(policy: str, role: str) -> set[str]:
    bindings = (deploy.printed(policy) or {}).get("bindings", [])
    return {str(one) for row in bindings if row.get("role") == role for one in row.get("members", [])}


CHECKS: tuple[Callable[[Subject], Iterator[Result]], ...] = (
    check_python,
    check_gcloud,
    check_trigger,
    check_api,
    check_bucket,
    check_images,
    check_twice,
    check_clock,
    check_roles,
    check_deployer,
    check_schedules,
    check_chains,
)
OF_TRIGGER = (check_trigger, check_roles, check_deployer, check_schedules, check_chains)
"""Checks that a project without a trigger does not need."""
