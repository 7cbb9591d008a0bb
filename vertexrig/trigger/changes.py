"""What `function deploy` would change: each command of its plan compared with what gcloud reads. Nothing is changed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from vertexrig.trigger import terraform
from vertexrig.trigger.deploy import DeployStep

Action = Literal["create", "update", "keep", "unknown"]
Read = Callable[..., Any]
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
    fields: tuple[tuple[str, Any, Any], ...] = ()

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
    def read(*words: str) -> Any:
        try:
            return json.loads(gcloud([*words, "--format=json"]) or "null")
        except ValueError:
            return None

    new = set[str]()
    for step in steps:
        if step.tells:
            continue
        names, flags = terraform.parts(step)
        if "$(" in flags.get("member", ""):
            agent = gcloud(["storage", "service-agent", f"--project={names[-1]}"])
            flags["member"] = f"serviceAccount:{agent.strip()}" if agent else ""
        change = DeployChange(step, *_compared(step, names, flags, read, new))
        if change.action == "create" and "binding" not in names[-2]:
            new.add(f"{names[-1]}@{flags.get('project')}.iam.gserviceaccount.com" if names[0] == "iam" else names[-1])
        yield change


def _compared(
    step: DeployStep, names: list[str], flags: dict[str, str], read: Read, new: set[str]
) -> tuple[Action, tuple[tuple[str, Any, Any], ...]]:
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
            before, after = ((role or {}).get("includedPermissions", ())), flags["permissions"].split(",")
            fields = (
                (("permissions", ",".join(sorted(before)), ",".join(sorted(after))),)
                if set(before) != set(after)
                else ()
            )
            return _action(found if role is not None else None, there, fields)
        case ["artifacts", "repositories", "create", name]:
            found = read("artifacts", "repositories", "list", project, f"--location={flags['location']}")
            return _action(found, any(one["name"].endswith(f"/{name}") for one in found or ()))
        case ["functions", "deploy", name]:
            found = read("functions", "list", "--v2", f"--regions={flags['region']}", project)
            same = [one for one in found or () if one["name"].endswith(f"/functions/{name}")]
            wanted = terraform.function(name, dict(flags), ())
            return _action(found, bool(same), tuple(_fields(wanted, same[0], step.secrets)) if same else ())
        case ["functions", "add-invoker-policy-binding", on]:
            kind, flags["role"] = ["run", "services"], "roles/run.invoker"
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


def _action(
    found: Any, there: bool, fields: tuple[tuple[str, Any, Any], ...] = ()
) -> tuple[Action, tuple[tuple[str, Any, Any], ...]]:
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
        elif value and str(value) != str(there or "") and (path or key not in ("name", "location", "project")):
            yield f"{path}{name}", *(("(not shown)", "(not shown)") if key in secrets else (there, value))
