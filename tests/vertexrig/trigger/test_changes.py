"""`function deploy --plan`: what is there, as gcloud reads it, compared with the commands of the plan."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.support import clouds, tools
from tests.vertexrig.trigger.test_terraform import ALL
from vertexrig.trigger import changes, deploy, terraform

AGENT = "service-1@gs-project-accounts.iam.gserviceaccount.com"


class Project:
    """A Google project as gcloud reads it after the commands have run. A test takes parts away."""

    def __init__(self, steps: list[deploy.DeployStep]) -> None:
        self.lists: dict[str, list[dict[str, Any]]] = {"services": [], "iam service-accounts": [], "iam roles": []}
        self.lists |= {"artifacts repositories": [], "functions": []}
        self.policies: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.unreadable = ""
        for step in steps:
            names, flags = terraform.parts(step)
            match names:
                case ["services", "enable", *apis]:
                    self.lists["services"] = [{"config": {"name": one}} for one in apis]
                case ["iam", "service-accounts", "create", name]:
                    self.lists["iam service-accounts"].append({"email": f"{name}@my-project.iam.gserviceaccount.com"})
                case ["iam", "roles", "create", name]:
                    held = sorted(flags["permissions"].split(","))
                    self.lists["iam roles"].append({"name": f"projects/p/roles/{name}", "includedPermissions": held})
                case ["artifacts", "repositories", "create", name]:
                    self.lists["artifacts repositories"].append({"name": f"projects/p/repositories/{name}"})
                case ["functions", "deploy", name]:
                    # what the API calls the arguments of the provider; it adds a label and a variable
                    made = json.loads(json.dumps(terraform.function(name, flags, ())), object_hook=_camel)
                    made["labels"]["deployment-tool"] = "cli-gcloud"
                    made["serviceConfig"].setdefault("environmentVariables", {})["LOG_EXECUTION_ID"] = "true"
                    self.lists["functions"].append({**made, "name": f"projects/p/functions/{name}"})
                case ["functions", "add-invoker-policy-binding", name]:
                    self.bind(("run services", name), flags["member"], "roles/run.invoker")
                case [*kind, "add-iam-policy-binding", on]:
                    member = f"serviceAccount:{AGENT}" if "$(" in flags["member"] else flags["member"]
                    self.bind((" ".join(kind), on), member, flags["role"])

    def bind(self, on: tuple[str, str], member: str, role: str) -> None:
        self.policies.setdefault(on, []).append({"role": role, "members": [member]})

    def gcloud(self, words: list[str]) -> str | None:
        line = " ".join(words)
        if self.unreadable and line.startswith(self.unreadable):
            return None
        if line.startswith("storage service-agent"):
            return f"{AGENT}\n"
        if "get-iam-policy" in words:
            at = words.index("get-iam-policy")
            return json.dumps({"bindings": self.policies.get((" ".join(words[:at]), words[at + 1]), [])})
        if words[:3] == ["iam", "roles", "describe"]:
            return json.dumps(next(one for one in self.lists["iam roles"] if one["name"].endswith(f"/{words[3]}")))
        return json.dumps(self.lists[line.partition(" list ")[0]])


def _camel(data: dict[str, Any]) -> dict[str, Any]:
    words = {key: key.split("_") for key in data}
    return {key if key.isupper() or "-" in key else one[0] + "".join(map(str.title, one[1:])): data[key]
            for key, one in words.items()}  # fmt: skip


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[deploy.DeployStep]:
    monkeypatch.setenv("API_TOKEN", "a-secret-value")
    return deploy.commands(clouds.loaded(tmp_path, ALL), tmp_path, ("API_TOKEN",))


def test_what_is_there_does_not_change(steps: list[deploy.DeployStep]) -> None:
    """After the commands have run, no command changes anything."""
    found = list(changes.changes(steps, Project(steps).gcloud))
    assert {one.text for one in found if one.action != "keep"} == set() and len(found) == len(steps) - 1


def test_everything_is_new(steps: list[deploy.DeployStep]) -> None:
    """In an empty project each command creates something, except the one that enables services: an update that names them."""
    first, *others = changes.changes(steps, Project([]).gcloud)
    assert first.action == "update" and "aiplatform.googleapis.com" in first.text
    assert {one.action for one in others} == {"create"}


def test_each_binding_that_is_missing_is_created(steps: list[deploy.DeployStep]) -> None:
    """A binding that is not there, or only under a condition, is created; nothing else is."""
    project = Project(steps)
    for rows in project.policies.values():
        for row in rows:
            row["condition"] = {"expression": "false"}
            created = [one for one in changes.changes(steps, project.gcloud) if one.action == "create"]
            assert len(created) == 1 and "binding" in created[0].step.line
            del row["condition"]


def test_a_function_that_differs(steps: list[deploy.DeployStep]) -> None:
    """Each field that differs is shown with both values, and a secret without them; what gcloud cannot read is unknown."""
    project = Project(steps)
    main = project.lists["functions"][0]
    main["serviceConfig"] |= {"availableMemory": "256Mi", "timeoutSeconds": 60}
    main["serviceConfig"]["environmentVariables"]["API_TOKEN"] = "another-secret"
    main["labels"][deploy.DIGEST_LABEL] = "0"
    project.lists["iam roles"][0]["includedPermissions"].pop()
    project.unreadable = "pubsub"
    found = [one for one in changes.changes(steps, project.gcloud) if one.action != "keep"]
    assert [one.action for one in found] == ["update", "unknown", "update"]
    assert [field for field, _, _ in found[0].fields] == ["permissions"]
    shown = found[2].text
    assert "serviceConfig.availableMemory: 256Mi -> 512Mi" in shown and "timeoutSeconds: 60 -> 300" in shown
    assert f"labels.{deploy.DIGEST_LABEL}: 0 -> " in shown and "API_TOKEN: (not shown)" in shown
    assert "secret" not in shown and len(found[2].fields) == 4


def test_the_command(tmp_path: Path) -> None:
    """`function deploy --plan` only reads, shows a line for each command, and with `--only code` the functions alone."""
    clouds.loaded(tmp_path)
    fake = tmp_path / "bin/gcloud"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho "$*" >> words; echo "[]"\n')
    fake.chmod(0o755)
    env = {"PATH": f"{fake.parent}:{os.environ['PATH']}"}
    done = tools.vertexrig("function", "deploy", "--plan", "--only=code", "--format=json", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["steps"]
    assert (row["outcome"], row["changes"]) == ("create", []) and "functions deploy" in row["command"]
    done = tools.vertexrig("function", "deploy", "--plan", cwd=tmp_path, env=env)
    assert done.returncode == 0 and done.stdout.count("\n+ ") > 8, done.stdout + done.stderr
    asked = [shlex.split(line) for line in (tmp_path / "words").read_text().splitlines()]
    assert all({"list", "describe", "get-iam-policy"} & set(words) for words in asked)
    both = tools.vertexrig("function", "deploy", "--plan", "--run", cwd=tmp_path)
    assert both.returncode == 2 and "--plan" in both.stderr
