"""What `function deploy` would change: each command of its plan compared with what gcloud reads. Nothing is changed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from vertexrig.trigger import terraform
from vertexrig.trigger.deploy import DeployStep, known, printed

Action = Literal["create", "update", "keep", "unknown"]
Fields = tuple[tuple[str, Any, Any], ...]
Read = Callable[..., Any]
_INGRESS = {
    "all": "ALLOW_ALL", "internal": "ALLOW_INTERNAL_ONLY", "internal-and-cloud-load-balancing": "ALLOW_INTERNAL_AND_GCLB"
}  # fmt: skip
SIGNS: Mapping[Action, str] = {"create": "+", "update": "~", "keep": " ", "unknown": "?"}


@dataclass(frozen=True)
class DeployChange:
    """What a command would do.

    Args:
        action: `unknown` if gcloud cannot read what is there.
        fields: For an update: each field with the value that is there and the new one.
    """

    step: DeployStep
    action: Action
    fields: Fields = ()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The fields for JSON."""
        return [{"field": field, "before": before, "after": after} for field, before, after in self.fields]

    @property
    def text(self) -> str:
        """The change as lines."""
        said = ": gcloud cannot read what is there" if self.action == "unknown" else ""
        lines = [f"    {field}: {before} -> {after}" for field, before, after in self.fields]
        return "\n".join([f"{SIGNS[self.action]} {self.step.why}{said}", *lines])


def changes(steps: Iterable[DeployStep], gcloud: Callable[[list[str]], str | None]) -> Iterator[DeployChange]:
    """Yield what each command would do.

    Args:
        gcloud: Runs gcloud with these words; its output, or None if that failed.
    """

    @cache
    def said(words: tuple[str, ...]) -> str | None:
        return gcloud(list(words))

    @cache
    def read(*words: str) -> Any:
        return printed(said((*words, "--format=json")))

    new = set[str]()
    for step in steps:
        if step.tells:
            continue
        names, flags = terraform.parts(step)
        if "member" in flags:
            flags["member"] = known(flags["member"], lambda words: said(tuple(words)))
        change = DeployChange(step, *_compared(step, names, flags, read, new))
        if change.action == "create" and "binding" not in names[-2] and names[0] != "eventarc":
            new.add(f"{names[-1]}@{flags.get('project')}.iam.gserviceaccount.com" if names[0] == "iam" else names[-1])
        yield change


def _compared(
    step: DeployStep, names: list[str], flags: dict[str, str], read: Read, new: set[str]
) -> tuple[Action, Fields]:
    project = f"--project={flags['project']}" if "project" in flags else ""
    match names:
        case ["services", "enable", *apis]:
            enabled = read("services", "list", "--enabled", project)
            lacking = sorted(set(apis) - {one["config"]["name"] for one in enabled or ()})
            fields = (("services", "", " ".join(lacking)),) if lacking else ()
            return _action(enabled, True, fields)
        case ["iam", "service-accounts", "create", name]:
            found = read("iam", "service-accounts", "list", project)
            return _action(found, any(one["email"].partition("@")[0] == name for one in found or ()))
        case ["iam", "roles", "create", name]:
            found = read("iam", "roles", "list", project)
            there = any(one["name"].endswith(f"/roles/{name}") for one in found or ())
            role = read("iam", "roles", "describe", name, project) if there else {}
            held = sorted((role or {}).get("includedPermissions", ()))
            wanted = sorted(flags["permissions"].split(","))
            fields = (("permissions", ",".join(held), ",".join(wanted)),) if held != wanted else ()
            return _action(found if role is not None else None, there, fields)
        case ["artifacts", "repositories", "create", name]:
            found = read("artifacts", "repositories", "list", project, f"--location={flags['location']}")
            return _action(found, any(one["name"].endswith(f"/{name}") for one in found or ()))
        case ["functions" | "run" as product, "deploy", name]:
            if product == "functions":
                found = read("functions", "list", "--v2", f"--regions={flags['region']}", project)
                same = [one for one in found or () if one["name"].endswith(f"/functions/{name}")]
            else:
                found = read("run", "services", "list", f"--region={flags['region']}", project)
                same = [as_function(one) for one in found or () if one["metadata"]["name"] == name]
            function = terraform.function(name, dict(flags), ())
            return _action(found, bool(same), tuple(_fields(function, same[0], step.secrets)) if same else ())
        case ["eventarc", "triggers", "create", name]:
            found = read("eventarc", "triggers", "list", f"--location={flags['location']}", project)
            same = [one for one in found or () if one["name"].endswith(f"/triggers/{name}")]
            rows = (same[0] if same else {}).get("eventFilters", ())
            filters, given = {f"{one['attribute']}={one['value']}" for one in rows}, flags["event-filters"]
            fields = (("eventFilters", ",".join(sorted(filters)), given),) if filters != set(given.split(",")) else ()
            return _action(found, bool(same), fields)
        case [*kind, _, on]:
            pass
    if on in new:
        return "create", ()
    place = [f"--{flag}={flags[flag]}" for flag in ("location", "region", "project") if flag in flags]
    policy = read(*kind, "get-iam-policy", on, *place) if flags["member"] else None
    bound = [
        one for one in (policy or {}).get("bindings", ()) if one["role"] == flags["role"] and "condition" not in one
    ]
    return _action(policy, any(flags["member"] in one["members"] for one in bound))


def as_function(service: Mapping[str, Any]) -> dict[str, Any]:
    """Return a service, as `gcloud run services` prints it, as the Cloud Functions API has it.

    The annotations are those that gcloud 528 writes and reads (googlecloudsdk/api_lib/run: service.py, container_resource.py).
    """
    template, status = service["spec"]["template"], service.get("status") or {}
    notes, own = (one.get("annotations") or {} for one in (service["metadata"], template["metadata"]))
    container, run, scale = template["spec"]["containers"][0], "run.googleapis.com/", "autoscaling.knative.dev/"
    limits, urls = (container.get("resources") or {}).get("limits") or {}, json.loads(notes.get(f"{run}urls", "[]"))
    interface = json.loads(own.get(f"{run}network-interfaces", "[{}]"))[0]
    egress = {"all-traffic": "ALL_TRAFFIC", "private-ranges-only": "PRIVATE_RANGES_ONLY"}.get(
        own.get(f"{run}vpc-access-egress", "")
    )
    host, *place = (notes.get(f"{run}build-image-uri") or "///").split("/")
    ready = next((one["status"] for one in status.get("conditions", ()) if one["type"] == "Ready"), "True")
    return {
        "labels": service["metadata"].get("labels") or {},
        "state": "ACTIVE" if ready == "True" else f"not ready (Ready: {ready})",
        "url": urls[-1] if urls else "",
        "buildConfig": {
            "runtime": str(notes.get(f"{run}build-base-image", "")).rpartition("/")[2],
            "entryPoint": notes.get(f"{run}build-function-target"),
            "serviceAccount": notes.get(f"{run}build-service-account"),
            "dockerRepository": "projects/{1}/locations/{0}/repositories/{2}".format(
                host.removesuffix("-docker.pkg.dev"), *place
            ),
        },
        "serviceConfig": {
            "uri": status.get("url", ""),
            "serviceAccountEmail": template["spec"].get("serviceAccountName"),
            "availableMemory": limits.get("memory"),
            "availableCpu": limits.get("cpu"),
            "timeoutSeconds": template["spec"].get("timeoutSeconds"),
            "minInstanceCount": int(own.get(f"{scale}minScale", 0)),
            "maxInstanceCount": own.get(f"{scale}maxScale"),
            "maxInstanceRequestConcurrency": template["spec"].get("containerConcurrency"),
            "ingressSettings": _INGRESS.get(notes.get(f"{run}ingress", "")),
            "vpcConnector": own.get(f"{run}vpc-access-connector"),
            "vpcConnectorEgressSettings": egress,
            "directVpcEgress": f"VPC_EGRESS_{egress}",
            "directVpcNetworkInterface": interface,
            "environmentVariables": {one["name"]: one.get("value") for one in container.get("env", ())},
        },
    }


def _action(found: Any, there: bool, fields: Fields = ()) -> tuple[Action, Fields]:
    if found is None:
        return "unknown", ()
    return ("update" if fields else "keep") if there else "create", fields if there else ()


def _fields(
    wanted: Mapping[str, Any], found: Any, secrets: Iterable[str], path: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields that differ. What gcloud or the service adds is not compared."""
    for key, value in wanted.items():
        is_map = path.endswith(("labels.", "environmentVariables."))
        name = key if is_map else re.sub("_([a-z])", lambda one: one[1].upper(), key)
        there = (found or {}).get(name)
        if key == "source":
            continue  # the label with the digest says whether the code differs
        if isinstance(value, Mapping):
            yield from _fields(value, there, secrets, f"{path}{name}.")
        elif (
            value is not None
            and str(value or "") != str(there or "")
            and (path or key not in ("name", "location", "project"))
        ):
            yield f"{path}{name}", *(("(not shown)", "(not shown)") if key in secrets else (there, value))
