"""The gcloud commands that put the trigger into a project: identities with the least roles, the function, its caller.

Flags: `gcloud functions deploy --help` of gcloud 528.0.0. Permissions: the IAM pages of Vertex AI (which permission each REST
method needs) and of the Cloud Storage JSON API, docs.cloud.google.com (2026-05-30). Nobody may call the function without a role on it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vertexrig.errors import UsageError
from vertexrig.project.config import Loaded
from vertexrig.project.model import BUILD, Project
from vertexrig.project.then import RegisterStep

APIS = (
    "aiplatform.googleapis.com", "artifactregistry.googleapis.com", "cloudbuild.googleapis.com",
    "cloudfunctions.googleapis.com", "cloudscheduler.googleapis.com", "iam.googleapis.com", "run.googleapis.com",
    "storage.googleapis.com",
)  # fmt: skip
JOB_CALLS = {
    f"aiplatform.{collection}.{verb}": (method, rf"/v1/projects/[^/]+/locations/[^/]+/{collection}{rest}")
    for collection in ("customJobs", "hyperparameterTuningJobs")
    for verb, method, rest in (
        ("create", "POST", ""), ("list", "GET", ""), ("get", "GET", "/[0-9]+"), ("cancel", "POST", "/[0-9]+:cancel"),
    )
}  # fmt: skip
"""Permission on the project -> the call of the trigger that needs it: method and path."""
_MODELS = r"/v1/projects/[^/]+/locations/[^/]+/models"
MODEL_CALLS = {
    "aiplatform.models.upload": ("POST", rf"{_MODELS}:upload"),
    "aiplatform.models.list": ("GET", rf"{_MODELS}(/[^/@:]+:listVersions)?"),
    # also what an upload's operation says: IAM permissions of Vertex AI, docs.cloud.google.com (2026-05-30)
    "aiplatform.models.get": (
        "GET",
        rf"{_MODELS}/[^/@:]+@[^/:]+|/v1/projects/[^/]+/locations/[^/]+/(models/[^/]+/)?operations/[0-9]+",
    ),
    "aiplatform.models.update": ("POST", rf"{_MODELS}/[^/@:]+@[0-9]+:mergeVersionAliases"),
    "aiplatform.models.delete": ("DELETE", rf"{_MODELS}/[^/@:]+(@[0-9]+:deleteVersion)?"),  # of second uploads
}
"""The same for what `register` in a schedule's `then` calls; the role has these permissions only where there is one."""
OBJECT_CALLS = {
    "storage.objects.create": ("POST", r"/upload/storage/v1/b/[^/]+/o"),
    "storage.objects.list": ("GET", r"/storage/v1/b/[^/]+/o"),
    "storage.objects.get": ("GET", r"/storage/v1/b/[^/]+/o/[^/]+"),
    "storage.objects.delete": ("DELETE", r"/storage/v1/b/[^/]+/o/[^/]+"),  # also to write over a claim
}
"""Permission on the bucket -> the call of the trigger that needs it."""
_SEPARATORS = "@|~#%;+"
CLEAR = ("VERTEXRIG_AIPLATFORM", "STORAGE_EMULATOR_HOST")


@dataclass(frozen=True)
class DeployStep:
    """One step.

    Args:
        why: What it is for.
        words: The command.
        present: A command that succeeds, and suffices, where the step was done before; empty if the step can be repeated.
    """

    why: str
    words: tuple[str, ...]
    present: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """As a line for a POSIX shell; where the step may be done already, so that it can be repeated."""
        return shlex.join(self.words) if not self.present else f"{shlex.join(self.present)} || {shlex.join(self.words)}"


def identities(project: Project) -> tuple[str, str]:
    """The function's service account and the one that calls it: as the project file names them, or made for them."""
    domain = f"{project.project}.iam.gserviceaccount.com"
    name = project.trigger.function[:18].rstrip("-")  # an account's name has 6 to 30 characters
    return (
        project.trigger.service_account or f"{name}-trigger@{domain}",
        project.trigger.invoker_service_account or f"{name}-invoker@{domain}",
    )


def commands(loaded: Loaded, folder: Path, variables: tuple[str, ...] = ()) -> list[DeployStep]:
    """Every step, in order.

    Args:
        loaded: The project.
        folder: The staged folder.
        variables: Names of environment variables that the project file uses; those that are set now are passed on.

    Raises:
        ConfigError: A value does not fit.
    """
    project = loaded.project
    if not project.bucket:
        raise loaded.error("bucket is needed: claims and packages are kept there")
    registry = registry_steps(loaded) if builds_images(project) else []
    # in this order: a role needs its identity, the function its roles, the callers the function
    return [
        *_identities(project),
        *_roles(project),
        *registry,
        _function(loaded, folder, variables),
        *_callers(project),
    ]


def _identities(project: Project) -> Iterator[DeployStep]:
    yield DeployStep("the services used", ("gcloud", "services", "enable", *APIS, f"--project={project.project}"))
    for account, title in zip(identities(project), ("the trigger runs as", "calls the trigger"), strict=True):
        name, _, domain = account.partition("@")
        if domain != f"{project.project}.iam.gserviceaccount.com":
            continue  # another project's: not ours to make
        create = ("gcloud", "iam", "service-accounts", "create", name, f"--project={project.project}")
        yield DeployStep(
            f"the identity that {title}",
            (*create, f"--display-name=vertexrig: {title}"),
            ("gcloud", "iam", "service-accounts", "describe", account, f"--project={project.project}"),
        )


def roles(project: Project) -> dict[str, tuple[str, ...]]:
    """The custom roles of the function's identity: on the project and on the bucket, each with what it uses."""
    name = project.trigger.function.replace("-", "_")
    jobs = (*JOB_CALLS, *(MODEL_CALLS if registers(project) else ()))
    return {f"{name}_trigger_jobs": jobs, f"{name}_trigger_objects": tuple(OBJECT_CALLS)}


def registers(project: Project) -> bool:
    """Whether a schedule registers models."""
    return any(isinstance(step, RegisterStep) for one in project.schedules.values() for step in one.steps)


def _roles(project: Project) -> Iterator[DeployStep]:
    runtime, _ = identities(project)
    member, place = f"--member=serviceAccount:{runtime}", f"--project={project.project}"
    for name, permissions in roles(project).items():
        given = (name, place, f"--permissions={','.join(permissions)}")
        yield DeployStep(
            f"a role with the {len(permissions)} permissions that the trigger uses",
            ("gcloud", "iam", "roles", "create", *given, f"--title=vertexrig: {name}", "--stage=GA"),
            ("gcloud", "iam", "roles", "update", *given),
        )
    jobs, objects = (f"--role=projects/{project.project}/roles/{name}" for name in roles(project))
    yield DeployStep(
        f"create, read and cancel jobs{', add models and versions' if registers(project) else ''}, nothing else of the project",
        # without --condition gcloud asks at the terminal when the policy has conditions already
        ("gcloud", "projects", "add-iam-policy-binding", project.project, member, jobs, "--condition=None"),
    )
    yield DeployStep(
        "objects of one bucket: claims, ledger, packages",
        ("gcloud", "storage", "buckets", "add-iam-policy-binding", f"gs://{project.bucket_name}", member, objects),
    )
    for account in training_accounts(project):
        yield DeployStep(
            "start jobs that run as the training account",
            ("gcloud", "iam", "service-accounts", "add-iam-policy-binding", account, member,
             "--role=roles/iam.serviceAccountUser", f"--project={project.project}"),
        )  # fmt: skip


def builds_images(project: Project) -> bool:
    """Whether a job runs an image that `vertexrig image` makes."""
    machines = [machine for job in project.jobs.values() for machine in (job, job.worker, job.ps, job.evaluator)]
    return BUILD in {project.trainer.image, *(machine.image for machine in machines if machine is not None)}


def registry_steps(loaded: Loaded) -> list[DeployStep]:
    """What the trainer's own images need once: their repository, and who may push and pull.

    Vertex AI's agents may pull from the same project already (roles of Vertex AI, mirror of 2026-05-30). Whether a service
    account of one's own needs to is contested, so it gets the role.
    """
    from vertexrig.package.image import repository

    host, _, path = repository(loaded).partition("/")
    project, _, name = path.rpartition("/")
    # a project of a domain is example.com:name; in an image's name its colon is a slash
    place = (f"--project={project.replace('/', ':')}", f"--location={host.removesuffix('-docker.pkg.dev')}")
    steps = [
        DeployStep(
            "the repository of the trainer's images",
            ("gcloud", "artifacts", "repositories", "create", name, "--repository-format=docker", *place),
            ("gcloud", "artifacts", "repositories", "describe", name, *place),
        )
    ]
    for account in training_accounts(loaded.project):
        steps.append(DeployStep(
            "jobs that run as the training account pull its images",
            ("gcloud", "artifacts", "repositories", "add-iam-policy-binding", name, *place,
             f"--member=serviceAccount:{account}", "--role=roles/artifactregistry.reader"),
        ))  # fmt: skip
    return steps


def training_accounts(project: Project) -> list[str]:
    """The service accounts that jobs run as."""
    named = [project.service_account, *(job.service_account for job in project.jobs.values())]
    return list(dict.fromkeys(account for account in named if account))


def _function(loaded: Loaded, folder: Path, variables: tuple[str, ...]) -> DeployStep:
    project, trigger = loaded.project, loaded.project.trigger
    if (
        not trigger.runtime.startswith("python3")
        or not trigger.runtime[7:].isdecimal()
        or int(trigger.runtime[7:]) < 12
    ):
        raise loaded.error(f"{trigger.runtime!r} cannot run it; use python312 or newer", "trigger", "runtime")
    runtime, _ = identities(project)
    words = [
        "gcloud", "functions", "deploy", trigger.function, "--gen2", f"--project={project.project}",
        f"--region={project.region}", f"--runtime={trigger.runtime}", f"--source={folder}", "--entry-point=trigger",
        "--trigger-http", "--no-allow-unauthenticated", f"--service-account={runtime}", f"--memory={trigger.memory}",
        f"--timeout={trigger.timeout}", f"--max-instances={trigger.max_instances}", f"--concurrency={trigger.concurrency}",
        "--ingress-settings=all",
    ]  # fmt: skip
    if trigger.concurrency > 1:
        words.append("--cpu=1")  # Cloud Run takes more than one request at a time only with a whole processor
    # CLEAR: the endpoints of a local Vertex, which the function could not reach
    values = {name: os.environ[name] for name in variables if os.environ.get(name) and name not in CLEAR}
    if values:
        # another separator than the comma, which a value may hold (`gcloud topic escaping`)
        separator = next((one for one in _SEPARATORS if not any(one in value for value in values.values())), None)
        if separator is None:
            raise UsageError(
                f"the values of {', '.join(values)} hold all of {' '.join(_SEPARATORS)} between them, and gcloud needs one of "
                "these to part them: change a value, so that one of the characters is free"
            )
        pairs = separator.join(f"{name}={value}" for name, value in values.items())
        words.append(f"--set-env-vars=^{separator}^{pairs}")
    return DeployStep("the function; callers need a role on it", tuple(words))


def _callers(project: Project) -> Iterator[DeployStep]:
    trigger = project.trigger
    _, invoker = identities(project)
    place = (f"--region={project.region}", f"--project={project.project}")
    yield DeployStep(
        "Cloud Scheduler may call it, as this account",
        ("gcloud", "functions", "add-invoker-policy-binding", trigger.function, *place,
         f"--member=serviceAccount:{invoker}"),
    )  # fmt: skip
    yield DeployStep(
        "its URL: write it into the project file as trigger.uri, then run `vertexrig schedule apply`",
        ("gcloud", "functions", "describe", trigger.function, *place, "--gen2", "--format=value(serviceConfig.uri)"),
    )


def run(steps: list[DeployStep]) -> Iterator[tuple[DeployStep, str]]:
    """Run the steps; yields each with `done` or `there already`.

    Raises:
        UsageError: A step failed; gcloud has said why on stderr.
    """
    import shutil
    import subprocess

    if shutil.which("gcloud") is None:
        raise UsageError("gcloud is not installed: https://cloud.google.com/sdk/docs/install")
    for step in steps:
        if step.present and subprocess.run(step.present, capture_output=True).returncode == 0:
            yield step, "there already"
            continue
        if subprocess.run(step.words).returncode != 0:
            raise UsageError(f"this step failed, and later ones were not tried: {step.line}")
        yield step, "done"
