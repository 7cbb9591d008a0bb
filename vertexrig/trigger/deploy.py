"""The gcloud commands that put the trigger into a project: identities with the least roles, the function, its caller.

Flags: `gcloud run deploy --help` and `gcloud functions deploy --help` of gcloud 528.0.0. Permissions: the IAM pages of Vertex AI (which permission each REST
method needs) and of the Cloud Storage JSON API, docs.cloud.google.com (2026-05-30). Nobody may call the function without a role on it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vertexrig import __version__
from vertexrig.errors import UsageError
from vertexrig.project.config import Loaded
from vertexrig.project.model import BUILD, Project
from vertexrig.project.triggered import EvaluateStep, RegisterStep
from vertexrig.spec.labels import label_value
from vertexrig.spec.masking import secret_in
from vertexrig.trigger.request import EVENT_ARG, EVENT_OBJECTS, EVENT_RUN, FINALIZED, PUBSUB
from vertexrig.waiting import waiting

APIS = tuple(
    "aiplatform.googleapis.com artifactregistry.googleapis.com cloudbuild.googleapis.com"
    " cloudscheduler.googleapis.com iam.googleapis.com run.googleapis.com"
    " storage.googleapis.com".split()
)
EVENT_APIS = ("eventarc.googleapis.com", "pubsub.googleapis.com")
TITLES = ("the trigger runs as", "calls the trigger", "builds the trigger")
JOB_CALLS = {
    f"aiplatform.{collection}.{verb}": (method, rf"/v1/projects/[^/]+/locations/[^/]+/{collection}{rest}")
    for collection in ("customJobs", "hyperparameterTuningJobs")
    for verb, method, rest in (
        ("create", "POST", ""),
        ("list", "GET", ""),
        ("get", "GET", "/[0-9]+"),
        ("cancel", "POST", "/[0-9]+:cancel"),
    )
}
"""Permission on the project -> the call of the trigger that needs it: method and path."""
_MODELS = r"/v1/projects/[^/]+/locations/[^/]+/models"
MODEL_CALLS = {
    "aiplatform.models.upload": ("POST", rf"{_MODELS}:upload"),
    "aiplatform.models.list": ("GET", rf"{_MODELS}(/[^/@:]+:listVersions)?"),
    # also what an upload's operation says: IAM permissions of Vertex AI, docs.cloud.google.com (2026-05-30)
    "aiplatform.models.get": (
        "GET",
        rf"{_MODELS}/[^/@:]+@[^/:]+|/v1/projects/[^/]+/locations/[^/]+/((models|metadataStores)/[^/]+/)?operations/[0-9]+",
    ),
    "aiplatform.models.update": ("POST", rf"{_MODELS}/[^/@:]+@[0-9]+:mergeVersionAliases"),
    "aiplatform.models.delete": ("DELETE", rf"{_MODELS}/[^/@:]+(@[0-9]+:deleteVersion)?"),  # of second uploads
}
"""The same for what `register` in a schedule's `then` calls; the role has these permissions only where there is one."""
_STORES = r"/v1/projects/[^/]+/locations/[^/]+/metadataStores"
METADATA_CALLS = {
    "aiplatform.metadataStores.create": ("POST", _STORES),  # of a project where nothing has used one yet
    "aiplatform.artifacts.create": ("POST", rf"{_STORES}/default/artifacts"),
    "aiplatform.executions.create": ("POST", rf"{_STORES}/default/executions"),
    "aiplatform.executions.addExecutionEvents": ("POST", rf"{_STORES}/default/executions/[^/:]+:addExecutionEvents"),
    "aiplatform.contexts.create": ("POST", rf"{_STORES}/default/contexts"),
    "aiplatform.contexts.addContextArtifactsAndExecutions": (
        "POST",
        rf"{_STORES}/default/contexts/[^/:]+:addContextArtifactsAndExecutions",
    ),
}
"""The same for what `register: {ml_metadata: true}` calls."""
OBJECT_CALLS = {
    "storage.objects.create": ("POST", r"/upload/storage/v1/b/[^/]+/o"),
    "storage.objects.list": ("GET", r"/storage/v1/b/[^/]+/o"),
    "storage.objects.get": ("GET", r"/storage/v1/b/[^/]+/o/[^/]+"),
    "storage.objects.delete": ("DELETE", r"/storage/v1/b/[^/]+/o/[^/]+"),  # also to write over a claim
}
"""Permission on the bucket -> the call of the trigger that needs it."""
BUILD_ROLES = ("roles/logging.logWriter", "roles/artifactregistry.writer", "roles/storage.objectViewer")
"""What the identity of a build needs on the project. That of projects made since July 2024, Compute Engine's, may lack them: "Custom
service account for Cloud Build", cloud.google.com/functions (2025-09-05)."""
CLOSED = "no-allow-unauthenticated"
ACT_AS = "roles/iam.serviceAccountUser"
PROJECT, BUCKET, ACCOUNT = ("projects",), ("storage", "buckets"), ("iam", "service-accounts")
TOPIC, SECRET, REGISTRY = ("pubsub", "topics"), ("secrets",), ("artifacts", "repositories")
SERVICE, KEY = ("run", "services"), ("kms", "keys")
INVOKER, USES_KEY = "roles/run.invoker", "roles/cloudkms.cryptoKeyEncrypterDecrypter"
KEY_AGENTS = {
    "gcf-admin-robot": "Cloud Functions",
    "gcp-sa-artifactregistry": "Artifact Registry",
    "serverless-robot-prod": "Cloud Run",
    "gcp-sa-eventarc": "Eventarc",
}
"""The service agents, in addition to Cloud Storage's own, that use the key of a function: "Protect your data with CMEK",
cloud.google.com/functions/docs/securing/cmek (2025-09-03). A build has a key of its own, and jobs of Cloud Scheduler have the key of
their region (`gcloud scheduler cmek-config`), so neither needs a role on this one."""
_RUN = {
    "entry-point": "function", "runtime": "base-image", "ingress-settings": "ingress", "egress-settings": "vpc-egress",
    "docker-repository": "image",
}  # fmt: skip
"""Flags of `gcloud functions deploy` that `gcloud run deploy` calls otherwise."""
_RUN_VALUES = {
    "ingress=internal-only": "ingress=internal",
    "ingress=internal-and-gclb": "ingress=internal-and-cloud-load-balancing",
    "vpc-egress=all": "vpc-egress=all-traffic",
}
_SEPARATORS = "@|~#%;+"
DIGEST_LABEL, VERSION_LABEL = "vertexrig-digest", "vertexrig-version"
"""The function's labels with the digest of its project file and the version of vertexrig, as `label_value` writes it."""
CLEAR = ("VERTEXRIG_AIPLATFORM", "STORAGE_EMULATOR_HOST", "PUBSUB_EMULATOR_HOST", "VERTEXRIG_SECRETMANAGER")


@dataclass(frozen=True)
class DeployStep:
    """One step.

    Args:
        present: A command that succeeds, and suffices, where the step was done before; empty if the step can be repeated.
        secrets: Environment variables whose values in the command are not shown.
        tells: It prints the function's URL.
        flags: What it deploys, as flags of `gcloud functions deploy`, whichever command it is.
    """

    why: str
    words: tuple[str, ...]
    present: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    tells: bool = False
    flags: Mapping[str, str] = field(default_factory=dict)

    @property
    def deploys(self) -> bool:
        """Whether it deploys a function."""
        return bool(self.flags)

    @property
    def line(self) -> str:
        """As a line for a POSIX shell; where the step may be done already, so that it can be repeated."""
        line = shlex.join(self.words)
        for name in self.secrets:
            # The word is in single quotes, for its `^`: they are closed before the variable and opened again behind it.
            value = shlex.quote(f"\n{os.environ[name]}")[2:-1]
            line = line.replace(f"{name}={value}", f"{name}='\"${name}\"'")
        return f"{shlex.join(self.present)} || {line}" if self.present else line


@dataclass(frozen=True)
class Grant:
    """A role that somebody has on something.

    Args:
        kind: gcloud's words for what it is on, such as BUCKET.
        name: What it is on.
        member: Who has it, as policies write it; `$(gcloud …)` in it is for the output of that command.
        place: Options that say where that is.
    """

    why: str
    kind: tuple[str, ...]
    name: str
    member: str
    role: str
    place: tuple[str, ...] = ()

    @property
    def step(self) -> DeployStep:
        """The command that gives it."""
        given = (self.name, f"--member={self.member}", f"--role={self.role}")
        # without --condition gcloud asks at the terminal when the policy of a project has conditions already
        more = ("--condition=None",) if self.kind == PROJECT else self.place
        words = ("gcloud", *self.kind, "add-iam-policy-binding", *given, *more)
        if "$(" in self.member:
            words = ("sh", "-c", shlex.join(words).replace(shlex.quote(given[1]), f'--member="{self.member}"'))
        return DeployStep(self.why, words)

    @property
    def policy(self) -> list[str]:
        """The words of gcloud that read the policy that has it."""
        return [*self.kind, "get-iam-policy", self.name, *self.place]


def known(member: str, gcloud: Callable[[list[str]], str | None]) -> str:
    """Return a member with what gcloud says for its `$(gcloud …)`; "" if gcloud does not say it."""
    asked = re.search(r"\$\(gcloud (.+)\)", member)
    if asked is None:
        return member
    said = (gcloud(shlex.split(asked[1])) or "").strip()
    return member.replace(asked[0], said) if said else ""


def identities(project: Project) -> tuple[str, str, str]:
    """Return the service accounts of the function, its callers and its builds: as the project file names them, or made for them."""
    trigger, domain = project.trigger, f"{project.project}.iam.gserviceaccount.com"
    name = trigger.function[:18].rstrip("-")  # an account's name has 6 to 30 characters
    return (
        trigger.service_account or f"{name}-trigger@{domain}",
        project.invoker,
        trigger.build_service_account or f"{name}-build@{domain}",
    )


def commands(loaded: Loaded, folder: Path, variables: tuple[str, ...] = ()) -> list[DeployStep]:
    """Return every step, in order.

    Args:
        variables: Names of environment variables that the project file uses; those that are set now are passed on.

    Raises:
        ConfigError: A value does not fit.
    """
    project = loaded.project
    if not project.bucket:
        raise loaded.error_at(
            "the project file names no bucket, and the trigger keeps its claims and packages there: write bucket: gs://BUCKET"
        )
    registry = registry_steps(loaded) if BUILD in project.image_names else []
    # in this order: a role needs its identity, the function its roles, the callers the function
    return [
        *_identities(project),
        *_roles(project),
        *registry,
        *_functions(loaded, folder, variables),
        _url(project),
    ]


def code_only(steps: Iterable[DeployStep]) -> list[DeployStep]:
    """Return what uploads the code and updates the functions, for an account that may not change IAM policies.

    With `--no-allow-unauthenticated`, gcloud 528 changes the policy of a function that is there; without it, the policy stays.
    """
    left = (f"--{CLOSED}", "--quiet")
    kept = [(step, (word for word in step.words if word not in left)) for step in steps if step.deploys]
    return [replace(step, words=(*words, "--quiet")) for step, words in kept]


def removal(loaded: Loaded, folder: Path, scheduler_jobs: Iterable[str]) -> list[DeployStep]:
    """Return what takes away all that `commands` makes, and these jobs by id; images, the bucket and enabled services stay."""
    project, trigger = loaded.project, loaded.project.trigger
    named = (trigger.service_account, trigger.invoker_service_account, trigger.build_service_account)
    place = (f"--location={project.region}", f"--project={project.project}", "--quiet")
    steps = [
        DeployStep("a schedule", ("gcloud", "scheduler", "jobs", "delete", name, *place)) for name in scheduler_jobs
    ]
    made = [*_identities(project), *_roles(project), *_functions(loaded, folder, ())]
    for step in reversed(made):
        words, line = list(step.words), " ".join(step.words)
        if words[1:3] == list(SERVICE):
            continue  # a function's own policy goes with it
        if "add-iam-policy-binding" in line:
            back = tuple(word.replace("add-iam-policy-binding", "remove-iam-policy-binding") for word in words)
        elif step.deploys:
            kind = (
                ("functions", "delete", words[3], "--gen2")
                if words[1] == "functions"
                else (*SERVICE, "delete", words[3])
            )
            back = ("gcloud", *kind, f"--region={project.region}", f"--project={project.project}", "--quiet")
        elif "create" in words:
            at = words.index("create")
            name = step.present[-2] if "service-accounts" in words else words[at + 1]
            if name in named:
                continue  # not made for this function alone
            located = (word for word in words if word.startswith("--location=") and words[1] == "eventarc")
            back = (*words[:at], "delete", name, *located, f"--project={project.project}", "--quiet")
        else:
            continue  # a service stays enabled
        steps.append(DeployStep(f"no more: {step.why}", back))
    return steps


def _identities(project: Project) -> Iterator[DeployStep]:
    trigger = project.trigger
    more = ["cloudfunctions.googleapis.com"] if trigger.command == "functions" else []
    more += EVENT_APIS if trigger.events else ()
    more += ["pubsub.googleapis.com"] if any(one.topic for one in trigger.notify) else []
    more += ["secretmanager.googleapis.com"] if any(one.webhook for one in trigger.notify) else []
    apis = dict.fromkeys((*APIS, *more))
    yield DeployStep("the services used", ("gcloud", "services", "enable", *apis, f"--project={project.project}"))
    for account, title in zip(identities(project), TITLES, strict=True):
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
    """Return the custom roles of the function's identity: on the project and on the bucket, each with what it uses."""
    name = project.trigger.function.replace("-", "_")
    jobs = (*JOB_CALLS, *registry_calls(project))
    return {f"{name}_trigger_jobs": jobs, f"{name}_trigger_objects": tuple(OBJECT_CALLS)}


def registry_calls(project: Project) -> tuple[str, ...]:
    """Return the permissions that the steps `register` of the schedules use."""
    steps = [step for one in project.schedules.values() for step in one.steps if isinstance(step, RegisterStep)]
    wide = any(step.ml_metadata for step in steps)
    return (*(MODEL_CALLS if registers(project) else ()), *(METADATA_CALLS if wide else ()))


def registers(project: Project) -> bool:
    """Whether a schedule registers models, or measures the registered one."""
    return any(
        isinstance(step, (EvaluateStep, RegisterStep)) for one in project.schedules.values() for step in one.steps
    )


def functions(project: Project) -> list[str]:
    """Return the names of the function and of those that take events."""
    name = project.trigger.function
    return [name, *(f"{name}-{event}" for event in project.trigger.events)]


def _roles(project: Project) -> Iterator[DeployStep]:
    place = f"--project={project.project}"
    for name, permissions in roles(project).items():
        given = (name, place, f"--permissions={','.join(permissions)}")
        yield DeployStep(
            f"a role with the {len(permissions)} permissions that the trigger uses",
            ("gcloud", "iam", "roles", "create", *given, f"--title=vertexrig: {name}", "--stage=GA"),
            ("gcloud", "iam", "roles", "update", *given),
        )
    for grant in grants(project):
        yield grant.step


def grants(project: Project) -> Iterator[Grant]:
    """Yield every binding that the identities need before there is a function; `vertexrig doctor` looks at the same."""
    runtime, invoker, builder = (f"serviceAccount:{account}" for account in identities(project))
    place = (f"--project={project.project}",)
    jobs, objects = (f"projects/{project.project}/roles/{name}" for name in roles(project))
    more = ", add models and versions" if registers(project) else ""
    yield _on_project(f"create, read and cancel jobs{more}, nothing else of the project", runtime, jobs, project)
    yield Grant(
        "objects of one bucket: claims, ledger, packages", BUCKET, f"gs://{project.bucket_name}", runtime, objects
    )
    for bucket, (why, role) in sorted(_read(project).items()):
        yield Grant(why, BUCKET, f"gs://{bucket}", runtime, role)
    for notify in project.trigger.notify:
        kind, role = (TOPIC, "pubsub.publisher") if notify.topic else (SECRET, "secretmanager.secretAccessor")
        _, owner, _, name, *_ = str(notify.topic or notify.webhook).split("/")
        yield Grant("send notices of how runs ended", kind, name, runtime, f"roles/{role}", (f"--project={owner}",))
    for account in training_accounts(project):
        yield Grant("start jobs that run as the training account", ACCOUNT, account, runtime, ACT_AS, place)
    for role in BUILD_ROLES:
        yield _on_project("build the function, independent of the project's default account", builder, role, project)
    # Cloud Storage's own account is named by the project's number, which gcloud knows
    storage = f"serviceAccount:$(gcloud storage service-agent --project={project.project})"
    if any(event.bucket for event in project.trigger.events.values()):
        yield _on_project("events of buckets reach this account", invoker, "roles/eventarc.eventReceiver", project)
        yield _on_project("Cloud Storage may send events", storage, "roles/pubsub.publisher", project)
    if key := project.trigger.kms_key_name:
        number = f"$(gcloud projects describe {project.project} --format='value(projectNumber)')"
        agents = {
            f"serviceAccount:service-{number}@{one}.iam.gserviceaccount.com": who for one, who in KEY_AGENTS.items()
        }
        for agent, who in {storage: "Cloud Storage", **agents}.items():
            yield Grant(
                f"{who} may use the encryption key (for everything that the project encrypts with it)",
                KEY,
                key,
                agent,
                USES_KEY,
            )
    # who makes a job of Cloud Scheduler acts as the account that it calls with, and who deploys as the other two
    for person in project.trigger.deployers:
        for account in identities(project):
            yield Grant("deploy it and apply schedules", ACCOUNT, account, person, ACT_AS, place)


def _read(project: Project) -> dict[str, tuple[str, str]]:
    """Return the other buckets that the trigger reads, each with what for and the role."""
    runs = project.entries.values()
    changed = (one.only_if_changed for one in project.schedules.values())
    found = {
        _bucket(uri): ("see whether data has changed", "roles/storage.legacyBucketReader") for uri in changed if uri
    }
    outputs: list[Any] = [run.base_output_directory for run in runs]
    outputs += [one.get(key) for run in runs for one in run.candidates for key in ("bucket", "base_output_directory")]
    found |= {_bucket(uri): ("read what runs have saved there", "roles/storage.objectViewer") for uri in outputs if uri}
    found.pop(project.bucket_name, None)
    return found


def _bucket(uri: Any) -> str:
    return str(uri).removeprefix("gs://").partition("/")[0]


def _on_project(why: str, member: str, role: str, project: Project) -> Grant:
    return Grant(why, PROJECT, project.project, member, role)


def registry_steps(loaded: Loaded) -> list[DeployStep]:
    """Return what the trainer's own images need once: their repository, and who may push and pull.

    Vertex AI's agents may pull from the same project already (roles of Vertex AI, mirror of 2026-05-30). Whether a service
    account of one's own needs to is contested, so it gets the role.
    """
    name, place = _registry(loaded)
    steps = [
        DeployStep(
            "the repository of the trainer's images",
            ("gcloud", "artifacts", "repositories", "create", name, "--repository-format=docker", *place),
            ("gcloud", "artifacts", "repositories", "describe", name, *place),
        )
    ]
    return [*steps, *(grant.step for grant in pulls(loaded))]


def pulls(loaded: Loaded) -> list[Grant]:
    """Return who has to be given a role to pull the trainer's own images."""
    name, place = _registry(loaded)
    why = "jobs that run as the training account pull its images"
    return [
        Grant(why, REGISTRY, name, f"serviceAccount:{account}", "roles/artifactregistry.reader", place)
        for account in training_accounts(loaded.project)
    ]


def _registry(loaded: Loaded) -> tuple[str, tuple[str, ...]]:
    """Return the name of the repository of the trainer's images, and the options that say where it is."""
    from vertexrig.package.image import repository

    host, _, path = repository(loaded).partition("/")
    project, _, name = path.rpartition("/")
    # a project of a domain is example.com:name; in an image's name its colon is a slash
    return name, (f"--project={project.replace('/', ':')}", f"--location={host.removesuffix('-docker.pkg.dev')}")


def training_accounts(project: Project) -> list[str]:
    """Return the service accounts that jobs, as they stand and as their candidates, run as."""
    named: list[Any] = [project.service_account, *(job.service_account for job in project.jobs.values())]
    named += [one.get("service_account") for run in project.entries.values() for one in run.candidates]
    return list(dict.fromkeys(str(account) for account in named if account))


def _functions(loaded: Loaded, folder: Path, variables: tuple[str, ...]) -> Iterator[DeployStep]:
    """Yield the function and who may call it, and the same for each source of events."""
    project, trigger = loaded.project, loaded.project.trigger
    minor = re.fullmatch(r"python3([0-9]+)", trigger.runtime)
    if minor is None or int(minor[1]) < 12:
        raise loaded.error_at(
            f"{trigger.runtime!r} cannot run the function; use python312 or newer", "trigger", "runtime"
        )
    # CLEAR: the endpoints of a local Vertex, which the function could not reach
    values = {name: os.environ[name] for name in variables if os.environ.get(name) and name not in CLEAR}
    # the one who runs the command chooses the callers
    http = {"entry-point": "trigger", "trigger-http": "", CLOSED: ""}
    yield _deployed(loaded, trigger.function, folder, http, values, "the function; callers need a role on it")
    yield invoker(project, trigger.function).step
    for name, event in trigger.events.items():
        source = {"trigger-topic": str(event.topic)}
        own: dict[str, str] = {}
        if event.bucket:
            source = {"trigger-event-filters": f"type={FINALIZED},bucket={_bucket(event.bucket)}"}
            own = {EVENT_RUN: event.run or "", EVENT_OBJECTS: event.objects, EVENT_ARG: event.arg or ""}
        taken = {
            "entry-point": "on_event", **source, "trigger-location": event.location or project.region,
            "trigger-service-account": identities(project)[1],
            "retry": "",  # what a repeat cannot help is not answered as a failure
        }  # fmt: skip
        function, why = f"{trigger.function}-{name}", f"the function that takes events: {name}"
        if trigger.command == "run":
            yield _deployed(loaded, function, folder, {"entry-point": "on_event", CLOSED: ""}, {**values, **own}, why)
            yield _subscribed(project, function, taken)
        else:
            yield _deployed(loaded, function, folder, taken, {**values, **own}, why)
        yield invoker(project, function).step


def _deployed(
    loaded: Loaded, name: str, folder: Path, source: Mapping[str, str], values: Mapping[str, str], why: str
) -> DeployStep:
    project, trigger = loaded.project, loaded.project.trigger
    runtime, _, builder = identities(project)
    own = {**project.labels, **trigger.labels, DIGEST_LABEL: loaded.digest, VERSION_LABEL: label_value(__version__)}
    # `gcloud functions` also takes 512MB, and 512 for the same
    memory = f"{trigger.memory}M" if trigger.memory.isdigit() else trigger.memory.removesuffix("B")
    connector = trigger.vpc_connector
    if connector and "/" not in connector:
        connector = f"projects/{project.project}/locations/{project.region}/connectors/{connector}"
    given = {
        "project": project.project, "region": project.region, "runtime": trigger.runtime, "source": str(folder), **source,
        "service-account": runtime, "build-service-account": f"projects/{project.project}/serviceAccounts/{builder}",
        "memory": memory, "timeout": trigger.timeout, "min-instances": str(trigger.min_instances),
        "max-instances": str(trigger.max_instances), "concurrency": str(trigger.concurrency),
        "ingress-settings": trigger.ingress_settings,
        # Cloud Run takes more than one request at a time only with a whole processor
        "cpu": "1" if trigger.concurrency > 1 else None,
        "update-labels": ",".join(f"{key}={value}" for key, value in own.items()),
        "docker-repository": trigger.docker_repository, "kms-key": trigger.kms_key_name,
        "vpc-connector": connector, "network": trigger.network, "subnet": trigger.subnet,
        "egress-settings": trigger.egress_settings,
    }  # fmt: skip
    values = {key: value for key, value in values.items() if value}
    if values:
        # another separator than the comma, which a value may hold (`gcloud topic escaping`)
        separator = next((one for one in _SEPARATORS if not any(one in value for value in values.values())), None)
        if separator is None:
            raise UsageError(
                f"gcloud needs a separator for environment variables, and the values of {', '.join(values)} use every possible one "
                f"({' '.join(_SEPARATORS)}): remove one of these characters from the values"
            )
        given["set-env-vars"] = f"^{separator}^{separator.join(f'{key}={value}' for key, value in values.items())}"
    flags = {key: value for key, value in given.items() if value is not None}
    if trigger.command == "functions":
        words = ("gcloud", "functions", "deploy", name, "--gen2", *map(_flag, flags, flags.values()))
    else:
        words = ("gcloud", "run", "deploy", name, *_as_run(name, flags), "--quiet")  # asks for a repository otherwise
    secrets = tuple(key for key, value in values.items() if secret_in(value, key))
    return DeployStep(why, words, secrets=secrets, flags=flags)


def _flag(name: str, value: str) -> str:
    return f"--{name}={value}" if value else f"--{name}"


def _as_run(name: str, flags: Mapping[str, str]) -> Iterator[str]:
    """Yield flags of `gcloud functions deploy` as `gcloud run deploy` has them."""
    for key, value in flags.items():
        if key == "docker-repository":
            _, owner, _, region, _, repository = value.split("/")
            value = f"{region}-docker.pkg.dev/{owner}/{repository}/{name}"
        if key != "trigger-http":
            shown = _flag(_RUN.get(key, key), value)[2:]
            yield f"--{_RUN_VALUES.get(shown, shown)}"


def _subscribed(project: Project, function: str, taken: Mapping[str, str]) -> DeployStep:
    """Return what sends events to a function of `gcloud run deploy`, as `gcloud functions deploy` does by these flags."""
    filters = taken.get("trigger-event-filters", f"type={PUBSUB}")
    place = (f"--location={taken['trigger-location']}", f"--project={project.project}")
    more = (
        f"--event-filters={filters}", f"--destination-run-service={function}",
        f"--destination-run-region={project.region}", f"--service-account={taken['trigger-service-account']}",
    )  # fmt: skip
    trigger = ("gcloud", "eventarc", "triggers")
    topic = taken.get("trigger-topic")
    of = (f"--transport-topic=projects/{project.project}/topics/{topic}",) if topic else ()
    return DeployStep(
        "Eventarc sends it the events",
        (*trigger, "create", function, *place, *more, *of),
        (*trigger, "update", function, *place, *more),
    )


def gcloud(words: list[str]) -> str | None:
    """Run gcloud; its output, None if it is not there or failed."""
    program = shutil.which("gcloud")
    if program is None:
        return None
    try:
        with waiting(f"gcloud {' '.join(words[:2])}"):
            done = subprocess.run([program, *words, "--quiet"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def printed(text: str | None) -> Any:
    """Return the JSON that gcloud printed; None if there is none."""
    try:
        return json.loads(text or "null")
    except ValueError:
        return None


def account(run: Callable[[list[str]], str | None] = gcloud) -> str:
    """Return the account that gcloud is signed in with, "" if there is none."""
    return (run(["config", "get-value", "account"]) or "").strip()


def invoker(project: Project, function: str) -> Grant:
    """Return the binding with which a function can be called."""
    who = "Cloud Scheduler" if function == project.trigger.function else "Eventarc"
    place = (f"--region={project.region}", f"--project={project.project}")
    member = f"serviceAccount:{project.invoker}"
    return Grant(f"{who} may call it, as this account", SERVICE, function, member, INVOKER, place)


def _url(project: Project) -> DeployStep:
    name, place = project.trigger.function, (f"--region={project.region}", f"--project={project.project}")
    words = ("gcloud", *SERVICE, "describe", name, *place, "--format=value(status.url)")
    if project.trigger.command == "functions":
        words = ("gcloud", "functions", "describe", name, *place, "--gen2", "--format=value(serviceConfig.uri)")
    why = "the function's URL. --run writes it to trigger.uri in the project file and deploys again. Then run `vertexrig schedule apply`"
    return DeployStep(why, words, tells=True)


def is_done(step: DeployStep) -> bool:
    """Whether gcloud finds that what a step makes is there."""
    with waiting(f"gcloud, which checks whether it exists: {step.why}"):
        return bool(step.present) and subprocess.run(step.present, capture_output=True).returncode == 0


def run(steps: list[DeployStep]) -> Iterator[tuple[DeployStep, str]]:
    """Run the steps; yields each with `done`, `there already`, or the URL that it told. UsageError if one failed: gcloud says why."""
    if shutil.which("gcloud") is None:
        raise UsageError("gcloud is not installed: https://cloud.google.com/sdk/docs/install")
    for step in steps:
        if is_done(step):
            yield step, "there already"
            continue
        with waiting(f"gcloud: {step.why}"):
            done = subprocess.run(step.words, stdout=subprocess.PIPE if step.tells else None, text=True)
        if done.returncode != 0:
            raise UsageError(f"this step failed, and later ones were not tried: {step.line}")
        yield step, (done.stdout or "").strip() or "done"
