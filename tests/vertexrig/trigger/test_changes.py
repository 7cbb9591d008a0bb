"""`function deploy --plan`: what is there, as gcloud reads it, compared with the commands of the plan."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.support import clouds, tools
from tests.support.run_services import service
from tests.support.web import answering
from tests.vertexrig.trigger.test_terraform import ALL, DIRECT
from vertexrig.trigger import changes, deploy, terraform

AGENT = "service-1@gs-project-accounts.iam.gserviceaccount.com"


class Project:
    """A Google project as gcloud reads it after the commands have run. A test takes parts away."""

    def __init__(self, steps: list[deploy.DeployStep]) -> None:
        self.lists: dict[str, list[dict[str, Any]]] = {"services": [], "iam service-accounts": [], "iam roles": []}
        self.lists |= {"artifacts repositories": [], "functions": [], "run services": [], "eventarc triggers": []}
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
                case ["run", "deploy", _]:
                    self.lists["run services"].append(service(step.words))
                case ["eventarc", "triggers", "create", name]:
                    parts = (one.split("=") for one in flags["event-filters"].split(","))
                    filters = [{"attribute": key, "value": value} for key, value in parts]
                    self.lists["eventarc triggers"].append({"name": f"p/triggers/{name}", "eventFilters": filters})
                case [*kind, "add-iam-policy-binding", on]:
                    self.bind((" ".join(kind), on), deploy.known(flags["member"], self.gcloud), flags["role"])

    def bind(self, on: tuple[str, str], member: str, role: str) -> None:
        self.policies.setdefault(on, []).append({"role": role, "members": [member]})

    def gcloud(self, words: list[str]) -> str | None:
        line = " ".join(words)
        if self.unreadable and line.startswith(self.unreadable):
            return None
        if line.startswith("storage service-agent"):
            return f"{AGENT}\n"
        if line.startswith("projects describe"):
            return "7\n"
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


@pytest.fixture(params=["functions", "run"])
def steps(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[deploy.DeployStep]:
    monkeypatch.setenv("API_TOKEN", "a-secret-value")
    loaded = clouds.loaded(tmp_path, ALL if request.param == "functions" else DIRECT)
    return deploy.commands(loaded, tmp_path, ("API_TOKEN",))


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
    if project.lists["functions"]:
        labels, config = project.lists["functions"][0]["labels"], project.lists["functions"][0]["serviceConfig"]
        config |= {"availableMemory": "256Mi", "timeoutSeconds": 60, "minInstanceCount": 2}
        config["environmentVariables"]["API_TOKEN"] = "another-secret"
    else:
        main = project.lists["run services"][0]
        labels, template = main["metadata"]["labels"], main["spec"]["template"]
        template["spec"]["timeoutSeconds"], (container,) = 60, template["spec"]["containers"]
        template["metadata"]["annotations"]["autoscaling.knative.dev/minScale"] = "2"
        container["resources"]["limits"]["memory"] = "256Mi"
        container["env"] = [{"name": "API_TOKEN", "value": "another-secret"}]
    labels[deploy.DIGEST_LABEL] = "0"
    project.lists["iam roles"][0]["includedPermissions"].pop()
    project.unreadable = "pubsub"
    found = [one for one in changes.changes(steps, project.gcloud) if one.action != "keep"]
    assert [one.action for one in found] == ["update", "unknown", "update"]
    assert [field for field, _, _ in found[0].fields] == ["permissions"]
    shown = found[2].text
    assert "serviceConfig.availableMemory: 256Mi -> 512Mi" in shown and "timeoutSeconds: 60 -> " in shown
    assert "minInstanceCount: 2 -> " in shown
    assert f"labels.{deploy.DIGEST_LABEL}: 0 -> " in shown and "API_TOKEN: (not shown)" in shown
    assert "secret" not in shown and len(found[2].fields) == 5


def test_events_that_differ(tmp_path: Path) -> None:
    """A bucket that is another one now is an update of what sends its events."""
    steps = deploy.commands(clouds.loaded(tmp_path, DIRECT), tmp_path)
    project = Project(steps)
    project.lists["eventarc triggers"][-1]["eventFilters"][-1]["value"] = "old"
    (found,) = [one for one in changes.changes(steps, project.gcloud) if one.action != "keep"]
    assert found.action == "update" and "bucket=old,type=" in found.text and "bucket=data" in found.text


@pytest.mark.whole
def test_gcloud_makes_the_service_that_is_read(tmp_path: Path, gcloud: str) -> None:
    """What the real gcloud sends to Cloud Run for the command of the plan is read as that function, without a difference."""
    trigger = {**DIRECT["trigger"], "concurrency": 4}
    loaded = clouds.loaded(tmp_path, {**DIRECT, "trigger": trigger})
    step = next(one for one in deploy.commands(loaded, tmp_path) if one.deploys)
    build = ("--function=", "--base-image=", "--source=", "--build-service-account=", "--image=")
    words = [word for word in step.words if not word.startswith(build)]
    created: list[dict[str, Any]] = []

    def cloud_run(method: str, path: str, data: bytes) -> tuple[int, Any]:
        """A proxy that answers as Cloud Run does for a service that is not there."""
        name = path.split("?")[0].rpartition("/")[2]
        if method == "GET" and name.endswith(".com"):
            return 200, {"state": "ENABLED", "name": name}
        created.extend([json.loads(data)] if method == "POST" else [])
        return 404, {"error": {"code": 404}}

    with answering(cloud_run) as url:
        over = {f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{name}": "http://run.test/" for name in ("RUN", "SERVICEUSAGE")}
        env = {**os.environ, **over, "http_proxy": url, "no_proxy": "", "CLOUDSDK_CONFIG": str(tmp_path / "c"),
               "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true"}  # fmt: skip
        # a build would ask more services; an image that is there needs none
        done = tools.gcloud_run(*words[1:], "--image=us-docker.pkg.dev/p/r/i", env=env, cwd=tmp_path)
    assert created, done.stderr
    sent = created[0]
    wanted = terraform.function("vertexrig", dict(step.flags), ())
    differs = {field for field, _, _ in changes._fields(wanted, changes.as_function(sent), ())}
    assert all(field.startswith("buildConfig.") for field in differs), differs
    ours = service(step.words)
    pod = {key: value for key, value in ours["spec"]["template"]["spec"].items() if key != "containers"}
    assert pod.items() <= sent["spec"]["template"]["spec"].items()
    for place in (("metadata",), ("spec", "template", "metadata")):
        real, made = sent, ours
        for key in place:
            real, made = real[key], made[key]
        expected = {key: value for key, value in made["annotations"].items() if "build-" not in key}
        assert expected.items() <= real["annotations"].items()


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`function deploy --plan` only reads, shows a line for each command, and with `--only code` the functions alone."""
    clouds.loaded(tmp_path)
    fake = tmp_path / "bin/gcloud"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho "$*" >> words; echo "[]"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    done = tools.typed("function", "deploy", "--plan", "--only=code", "--format=json", cwd=tmp_path)
    assert done.exit_code == 0, done.stderr
    (row,) = done.document["steps"]
    assert (row["outcome"], row["changes"]) == ("create", []) and "run deploy" in row["command"]
    done = tools.typed("function", "deploy", "--plan", cwd=tmp_path)
    assert done.exit_code == 0 and done.stdout.count("\n+ ") > 8, done.stdout + done.stderr
    asked = [shlex.split(line) for line in (tmp_path / "words").read_text().splitlines()]
    assert all({"list", "describe", "get-iam-policy"} & set(words) for words in asked)
    both = tools.typed("function", "deploy", "--plan", "--run", cwd=tmp_path)
    assert both.exit_code == 2 and "--plan" in both.stderr
