"""Terraform files for the trigger: each command of `deploy`'s plan, each schedule and each alert becomes a resource.

Resource types and arguments: documentation of the provider hashicorp/google 7.45 (2026-08-18).
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from vertexrig.project.config import Loaded
from vertexrig.times import duration_seconds
from vertexrig.trigger import alerts, deploy, schedules
from vertexrig.trigger.deploy import DeployStep

FOLDER = "build/terraform"
PROVIDER = "~> 7.33"  # the first with deletion_policy for service accounts
FILES = ("main.tf", "iam.tf", "schedules.tf", "alerts.tf")
HEADER = "# Written by `vertexrig function export terraform`: change {file} and export again.\n"
_BINDINGS = {
    deploy.PROJECT: ("google_project_iam_member", "project"),
    deploy.BUCKET: ("google_storage_bucket_iam_member", "bucket"),
    deploy.ACCOUNT: ("google_service_account_iam_member", "service_account_id"),
    deploy.TOPIC: ("google_pubsub_topic_iam_member", "topic"),
    deploy.SECRET: ("google_secret_manager_secret_iam_member", "secret_id"),
    deploy.REGISTRY: ("google_artifact_registry_repository_iam_member", "repository"),
    deploy.KEY: ("google_kms_crypto_key_iam_member", "crypto_key_id"),
}
"""What a role is given on, in gcloud's words: the type of the binding, and the argument that names it."""
_INVOKER = "google_cloud_run_service_iam_member"
_INGRESS = {"all": "ALLOW_ALL", "internal-only": "ALLOW_INTERNAL_ONLY", "internal-and-gclb": "ALLOW_INTERNAL_AND_GCLB"}
_EGRESS = {"all": "ALL_TRAFFIC", "private-ranges-only": "PRIVATE_RANGES_ONLY"}
_AGENTS = {
    "storage service-agent": ("google_storage_project_service_account", "member"),
    "projects describe": ("google_project", "number"),
}
"""What a member asks gcloud for: the data source that has it, and its attribute."""
_MAPS = ("headers", "label_extractors")
"""Arguments of schedules and alert policies that are maps. Other objects of the REST API are blocks."""
_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


class Raw(str):
    """An expression of HCL, written as it is."""


class Block(dict[str, Any]):
    """A nested block. A list of blocks repeats it."""


@dataclass(frozen=True)
class Resource:
    """A block of a file.

    Args:
        labels: What follows the kind of the block: type and name.
        why: The comment above it.
    """

    file: str
    labels: tuple[str, ...]
    body: dict[str, Any]
    why: str = ""
    kind: str = "resource"

    @property
    def address(self) -> str:
        """What expressions call it."""
        return ".".join(self.labels)


def quoted(value: str) -> str:
    """Return a string of HCL: no part of it is a template."""
    shown = "".join(
        _ESCAPES.get(one) or (one if one.isprintable() or ord(one) > 0xFFFF else f"\\u{ord(one):04x}") for one in value
    )
    # not `$${` and `%%{`: python-hcl2, with which other tools read Terraform, takes them for templates without their `}`
    return '"' + shown.replace("${", r"\u0024{").replace("%{", r"\u0025{") + '"'


def built(loaded: Loaded) -> Loaded:
    """Return the project with a function of `gcloud functions deploy`, whose resource builds the source; a google_cloud_run_v2_service
    does not (issue 22263 of hashicorp/terraform-provider-google, open on 2026-11-26).
    """
    trigger = replace(loaded.project.trigger, deploy_with="functions")
    return replace(loaded, project=replace(loaded.project, trigger=trigger))


def hcl(loaded: Loaded, steps: Sequence[DeployStep], archive: str, channels: Sequence[str] = ()) -> dict[str, str]:
    """Return the text of each file.

    Args:
        steps: `deploy.commands` for the staged folder.
        archive: Name of the file beside the .tf files that has that folder.
        channels: Resource names of notification channels.
    """
    made = list(_with_references(_all(loaded, steps, archive, channels)))
    head = HEADER.format(file=loaded.file.name)
    return {
        name: "\n".join([head, *("\n".join(_block(one)) + "\n" for one in made if one.file == name)]).rstrip() + "\n"
        for name in FILES
    }


def _all(loaded: Loaded, steps: Sequence[DeployStep], archive: str, channels: Sequence[str]) -> Iterator[Resource]:
    project = loaded.project
    provider = {"google": {"source": "hashicorp/google", "version": PROVIDER}}
    yield Resource("main.tf", (), {"required_providers": Block(provider)}, kind="terraform")
    bucket = {"name": project.bucket_name, "location": project.region, "project": project.project}
    why = f"claims, history, packages; if it is there: terraform import google_storage_bucket.trigger {project.bucket_name}"
    yield Resource("main.tf", ("google_storage_bucket", "trigger"), bucket, why)
    source = {
        "name": f"functions/{archive}",
        "bucket": project.bucket_name,
        "source": Raw('"${path.module}/' + quoted(archive)[1:]),
    }
    yield Resource("main.tf", ("google_storage_bucket_object", "source"), source, "the staged function")
    for secret in sorted({name for step in steps for name in step.secrets}):
        value = {"type": Raw("string"), "sensitive": True}
        yield Resource("main.tf", (secret,), value, f"its value is read from TF_VAR_{secret}", "variable")
    names, first = set[str](), list[Raw]()
    for step in steps:
        for one in _made(loaded, step, first):
            address, count = one.address, 2
            if one.kind == "data" and address in names:
                continue
            while one.address in names:
                one, count = replace(one, labels=(*one.labels[:-1], f"{address.rpartition('.')[2]}_{count}")), count + 1
            names.add(one.address)
            if one.labels[0] == "google_cloudfunctions2_function" and one.labels[1] == _local(project.trigger.function):
                first = [Raw(one.address)]  # what a function needs is there when the main one is
            elif one.labels[0].endswith("_iam_member") and one.labels[0] != _INVOKER:
                first.append(Raw(one.address))
            yield one
    if project.trigger.uri:
        paused = {schedules.job_id(loaded, name): one.paused for name, one in project.schedules.items()}
        for name, job in schedules.wanted(loaded).items():
            sent = _blocks({key: value for key, value in job.items() if key != "name"})
            # as text, so that a reviewer can read it
            text = quoted(base64.b64decode(job["httpTarget"]["body"]).decode())
            sent["http_target"]["body"] = Raw(f"base64encode({text})")
            where = {"name": name, "region": project.region, "project": project.project}
            callable_ = Raw(f"{_INVOKER}.{_local(project.trigger.function, 'invoker')}")
            after = {"paused": paused.get(name, False), "depends_on": [callable_]}
            yield Resource("schedules.tf", ("google_cloud_scheduler_job", _local(name)), {**where, **sent, **after})
    for name, policy in alerts.policies(loaded, channels).items():
        body: dict[str, Any] = {**_blocks(policy), "project": project.project}
        yield Resource("alerts.tf", ("google_monitoring_alert_policy", _local(project.trigger.function, name)), body)
    board = {
        "dashboard_json": Raw(f"jsonencode({_expression(alerts.dashboard(loaded), '  ')})"),
        "project": project.project,
    }
    yield Resource("alerts.tf", ("google_monitoring_dashboard", _local(project.trigger.function)), board)


def _made(loaded: Loaded, step: DeployStep, first: Sequence[Raw]) -> Iterator[Resource]:
    """Yield what a command makes; AssertionError if one of its flags is not known here.

    Args:
        first: Addresses of what a function needs.
    """
    names, flags = parts(step)
    match names:
        case ["services", "enable", *apis]:
            body: dict[str, Any] = {"for_each": Raw(f"toset({_expression(apis, '  ')})"), "service": Raw("each.value")}
            body |= {"project": flags.pop("project"), "disable_on_destroy": False}
            yield Resource("main.tf", ("google_project_service", "used"), body, step.why)
        case ["iam", "service-accounts", "create", name]:
            trigger, project = loaded.project.trigger, flags.pop("project")
            email = f"{name}@{project}.iam.gserviceaccount.com"
            body = {"account_id": name, "display_name": flags.pop("display-name"), "project": project}
            body |= {"create_ignore_already_exists": True}
            if email in (trigger.service_account, trigger.invoker_service_account, trigger.build_service_account):
                body["deletion_policy"] = "ABANDON"  # not made for this function alone
            yield Resource("iam.tf", ("google_service_account", _local(name)), body | _enabled(), step.why)
        case ["iam", "roles", "create", name]:
            body = {"role_id": name, "title": flags.pop("title"), "stage": flags.pop("stage")}
            body |= {"project": flags.pop("project"), "permissions": flags.pop("permissions").split(",")}
            yield Resource("iam.tf", ("google_project_iam_custom_role", _local(name)), body | _enabled(), step.why)
        case ["artifacts", "repositories", "create", name]:
            body = {"repository_id": name, "format": flags.pop("repository-format").upper()}
            body |= {"location": flags.pop("location"), "project": flags.pop("project")}
            yield Resource(
                "main.tf", ("google_artifact_registry_repository", _local(name)), body | _enabled(), step.why
            )
        case ["functions", "deploy", name]:
            body = {**function(name, flags, step.secrets), "depends_on": [Raw("google_project_service.used"), *first]}
            yield Resource("main.tf", ("google_cloudfunctions2_function", _local(name)), body, step.why)
        case ["run", "services", "add-iam-policy-binding", name]:
            body = {"service": name, "location": flags.pop("region"), "project": flags.pop("project")}
            body |= {"role": flags.pop("role"), "member": flags.pop("member")}
            yield Resource("iam.tf", (_INVOKER, _local(name, "invoker")), body, step.why)
        case ["functions", "describe", name]:
            flags.clear()
            address = f"google_cloudfunctions2_function.{_local(name)}"
            yield Resource(
                "main.tf", ("uri",), {"value": Raw(f"{address}.service_config[0].uri")}, "trigger.uri", "output"
            )
        case [*kind, "add-iam-policy-binding", on]:
            type_, argument = _BINDINGS[tuple(kind)]
            role, member = flags.pop("role"), flags.pop("member")
            flags.pop("condition", None)  # None: the binding has no condition
            place = {"project": flags.pop("project", None), "location": flags.pop("location", None)}
            who = member.partition(":")[2].partition("@")[0]
            if asked := re.fullmatch(r"(.*)\$\(gcloud (\S+ \S+) .*\)(@?)([^.]*)(.*)", member):
                source, attribute = _AGENTS[asked[2]]
                body = {"project" if attribute == "member" else "project_id": loaded.project.project}
                yield Resource("iam.tf", (source, "trigger"), body, kind="data")
                told, who = f"data.{source}.trigger.{attribute}", asked[4] or "storage"
                member = Raw(f'"{asked[1]}${{{told}}}@{asked[4]}{asked[5]}"' if asked[3] else told)
            named = (
                "" if tuple(kind) == deploy.PROJECT else on.removeprefix("gs://").partition("@")[0].rpartition("/")[2]
            )
            if type_ == "google_service_account_iam_member":
                owner = re.fullmatch(r"(.+)\.iam\.gserviceaccount\.com", on.partition("@")[2])
                # `-`: the project that has an account of this e-mail address
                on, place = f"projects/{owner[1] if owner else '-'}/serviceAccounts/{on}", {}
            body = {argument: on.removeprefix("gs://"), **{key: value for key, value in place.items() if value}}
            local = _local(who, role.rpartition("/")[2], *([named] if named else []))
            yield Resource("iam.tf", (type_, local), {**body, "role": role, "member": member}, step.why)
        case other:
            raise AssertionError(f"no resource for gcloud {shlex.join(other)}")
    assert not flags, f"no argument for {', '.join(flags)} of: {step.why}"


def function(name: str, flags: dict[str, str], secrets: Sequence[str]) -> dict[str, Any]:
    """Return the function of `gcloud functions deploy` with these flags, all of which are taken out."""
    for flag in ("gen2", "trigger-http", "no-allow-unauthenticated", "source"):
        flags.pop(flag, None)
    project, region, variables = flags.pop("project"), flags.pop("region"), flags.pop("set-env-vars", "")
    pairs = variables[3:].split(variables[1]) if variables else []  # ^|^NAME=VALUE|NAME=VALUE
    environment = _pairs(pairs) | {key: Raw(f"var.{key}") for key in secrets}
    labels = _pairs(flags.pop("update-labels").split(","))
    connector, egress = flags.pop("vpc-connector", None), _EGRESS.get(flags.pop("egress-settings", ""))
    direct = {"network": flags.pop("network", None), "subnetwork": flags.pop("subnet", None)}
    reached: dict[str, Any] = {"vpc_connector": connector, "vpc_connector_egress_settings": egress}
    if any(direct.values()):
        reached = {
            "direct_vpc_egress": egress and f"VPC_EGRESS_{egress}",
            "direct_vpc_network_interface": Block(direct),
        }
    stored = Block(
        bucket=Raw("google_storage_bucket_object.source.bucket"), object=Raw("google_storage_bucket_object.source.name")
    )
    build = Block(
        runtime=flags.pop("runtime"), entry_point=flags.pop("entry-point"),
        service_account=flags.pop("build-service-account"), docker_repository=flags.pop("docker-repository", None),
        source=Block(storage_source=stored),
    )  # fmt: skip
    service = Block(
        service_account_email=flags.pop("service-account"),
        available_memory=flags.pop("memory"),
        available_cpu=flags.pop("cpu", None),
        timeout_seconds=int(duration_seconds(flags.pop("timeout")) or 0),
        min_instance_count=int(flags.pop("min-instances")),
        max_instance_count=int(flags.pop("max-instances")),
        max_instance_request_concurrency=int(flags.pop("concurrency")),
        ingress_settings=_INGRESS[flags.pop("ingress-settings")], **reached, environment_variables=environment or None,
    )  # fmt: skip
    body: dict[str, Any] = {"name": name, "location": region, "project": project}
    body["kms_key_name"] = flags.pop("kms-key", None)
    body |= {"labels": labels, "build_config": build, "service_config": service}
    topic, filters = flags.pop("trigger-topic", None), flags.pop("trigger-event-filters", "")
    if topic or filters:
        matched = _pairs(filters.split(",") if filters else [])
        body["event_trigger"] = Block(
            event_type=matched.pop("type", "google.cloud.pubsub.topic.v1.messagePublished"),
            pubsub_topic=topic and f"projects/{project}/topics/{topic}",
            trigger_region=flags.pop("trigger-location"), service_account_email=flags.pop("trigger-service-account"),
            retry_policy="RETRY_POLICY_RETRY" if flags.pop("retry", None) is not None else None,
            event_filters=[Block(attribute=key, value=value) for key, value in matched.items()],
        )  # fmt: skip
    return body


def parts(step: DeployStep) -> tuple[list[str], dict[str, str]]:
    """Return the words of a gcloud command that are no flags, and its flags with their values."""
    words = shlex.split(step.words[2]) if step.words[0] == "sh" else step.words
    flags = dict(step.flags) or _pairs(word[2:] for word in words if word.startswith("--"))
    return [word for word in words[1:] if not word.startswith("--")], flags


def _pairs(parts: Iterable[str]) -> dict[str, str]:
    return {key: value for key, _, value in (part.partition("=") for part in parts)}


def _enabled() -> dict[str, Any]:
    return {"depends_on": [Raw("google_project_service.used")]}


def _local(*parts: str) -> str:
    """Return a name within the files."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", "_".join(parts))
    return name if name[:1].isalpha() or name[:1] == "_" else f"_{name}"


def _blocks(data: Mapping[str, Any]) -> Block:
    """Return an object of the REST API with the provider's names, its objects as blocks."""
    found = Block()
    for key, value in data.items():
        name = re.sub(r"[A-Z]", lambda one: f"_{one[0].lower()}", key)
        if isinstance(value, Mapping) and name not in _MAPS:
            value = _blocks(value)
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            value = [_blocks(one) for one in value]
        found[name] = value
    return found


def _with_references(made: Iterator[Resource]) -> Iterator[Resource]:
    """Yield the resources; those that name another one refer to it, so that Terraform makes that one first."""
    found, known = list(made), dict[tuple[str, str], str]()
    for one in found:
        body = one.body
        match one.labels[:1]:
            case ("google_service_account",):
                email = f"{body['account_id']}@{body['project']}.iam.gserviceaccount.com"
                identity = f"projects/{body['project']}/serviceAccounts/{email}"
                known["service_account_email", email] = f"{one.address}.email"
                known["member", f"serviceAccount:{email}"] = f"{one.address}.member"
                known["service_account", identity] = known["service_account_id", identity] = f"{one.address}.id"
            case ("google_project_iam_custom_role",):
                known["role", f"projects/{body['project']}/roles/{body['role_id']}"] = f"{one.address}.id"
            case ("google_storage_bucket",):
                known["bucket", body["name"]] = f"{one.address}.name"
            case ("google_artifact_registry_repository",):
                known["repository", body["repository_id"]] = f"{one.address}.repository_id"
            case ("google_cloudfunctions2_function",):
                known["service", body["name"]] = f"{one.address}.name"

    def referring(key: str, value: Any) -> Any:
        if isinstance(value, Block):
            return Block((name, referring(name, part)) for name, part in value.items())
        return Raw(known[key, value]) if isinstance(value, str) and (key, value) in known else value

    for one in found:
        yield replace(one, body={key: referring(key, value) for key, value in one.body.items()})


def _block(one: Resource) -> Iterator[str]:
    if one.why:
        yield f"# {one.why}"
    yield f"{' '.join([one.kind, *map(quoted, one.labels)])} {{"
    yield from _body(one.body, "  ")
    yield "}"


def _body(body: Mapping[str, Any], pad: str) -> Iterator[str]:
    """Yield the lines of a block as `terraform fmt` writes them: attributes, aligned where they follow each other, then blocks."""
    given = {key: value for key, value in body.items() if value is not None and value != []}
    blocks = [(key, value) for key, value in given.items() if isinstance(value, Block)]
    blocks += [(key, one) for key, value in given.items() if _repeated(value) for one in value]
    named = {key for key, _ in blocks}
    yield from _aligned({key: value for key, value in given.items() if key not in named}, pad)
    for index, (key, value) in enumerate(blocks):
        if index or len(named) < len(given):
            yield ""
        yield f"{pad}{key} {{"
        yield from _body(value, f"{pad}  ")
        yield f"{pad}}}"


def _repeated(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Block)


def _aligned(items: Mapping[str, Any], pad: str) -> Iterator[str]:
    shown = [(key, _expression(value, pad)) for key, value in items.items()]
    for several, run in groupby(shown, lambda one: "\n" in one[1]):
        rows = list(run)
        width = 0 if several else max(len(key) for key, _ in rows)
        yield from (f"{pad}{key:{width}} = {value}" for key, value in rows)


def _expression(value: Any, pad: str) -> str:
    """Return a value as HCL; one that needs several lines is indented below `pad`."""
    if isinstance(value, str):
        return value if isinstance(value, Raw) else quoted(value)
    if isinstance(value, Mapping):
        lines = _aligned({quoted(key): one for key, one in value.items()}, f"{pad}  ")
        return "\n".join(["{", *lines, f"{pad}}}"]) if value else "{}"
    if isinstance(value, (list, tuple)):
        parts = [_expression(one, f"{pad}  ") for one in value]
        if len(parts) < 2 and "\n" not in "".join(parts):
            return f"[{''.join(parts)}]"
        return "\n".join(["[", *(f"{pad}  {part}," for part in parts), f"{pad}]"])
    return json.dumps(value)
