"""`--env`: each family of verbs with it and without it, `check` of every environment, and the function of one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import requests
import yaml

from tests.support import clouds, functions
from tests.support.tools import typed
from vertexrig.project import config

DATA = {
    **{key: value for key, value in clouds.PROJECT.items() if key not in ("project", "bucket")},
    "project": "my-base",
    "trainer": {"package_uris": ["gs://my-bucket/packages/trainer.tar.gz"]},
    "schedules": {"nightly": {"run": "cpu", "cron": "0 3 * * *"}},
    "environments": {
        "dev": {"project": "my-dev", "bucket": "gs://my-dev", "schedules": None, "labels": {"key": "${DEV_LABEL:-a}"}},
        "prod": {
            "project": "my-project",
            "bucket": "gs://my-bucket",
            "jobs": {"cpu": {"machine_type": "n1-standard-8"}},
            "trigger": {"function": "prod", "labels": {"key": "${PROD_LABEL:-none}"}},
        },
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vertexrig.yaml").write_text(yaml.safe_dump(DATA, sort_keys=False))
    return tmp_path


def test_render_and_what_it_prints(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--env and the variable give the environment's job in a folder of its own; what is printed to type next names it."""
    done = typed("render", "cpu", "--env", "prod", "--no-check", cwd=folder)
    assert done.exit_code == 0 and "build/jobs/prod/cpu.yaml" in done.stdout, done
    assert "n1-standard-8" in (folder / "build/jobs/prod/cpu.yaml").read_text()
    monkeypatch.setenv("VERTEXRIG_ENV", "dev")
    assert "build/jobs/dev/cpu.yaml" in typed("render", "cpu", "--no-check", cwd=folder).stdout
    assert "build/jobs/prod/cpu.yaml" in typed("render", "cpu", "--no-check", "--env", "prod", cwd=folder).stdout
    assert "n1-standard-4" in (folder / "build/jobs/dev/cpu.yaml").read_text()
    assert "VERTEXRIG_ENV" in typed("render", "--help").stdout
    monkeypatch.setenv("VERTEXRIG_ENV", "")
    built = typed("function", "build", "--env", "prod", cwd=folder)
    assert "function deploy --env prod" in built.stderr, built


@pytest.mark.parametrize(
    "words",
    [
        "submit cpu", "jobs", "watch cpu", "logs cpu", "cancel cpu", "report sweep", "register cpu", "function build", "function deploy",
        "function package", "function remove", "function alerts", "function export terraform", "schedule plan", "schedule apply", "schedule status", "doctor",
    ],
)  # fmt: skip
def test_verbs_of_the_cloud_need_an_environment(folder: Path, words: str) -> None:
    """Without one they refuse and list the names, before anything is sent or written."""
    done = typed(*words.split(), cwd=folder)
    assert done.exit_code == 2 and "choose one with --env dev or --env prod" in done.stderr, done
    assert not (folder / "build/function").exists()


def test_the_file_alone_is_for_this_machine(folder: Path) -> None:
    """Render and explain take the file without an environment, and what they print names none."""
    text = (folder / "vertexrig.yaml").read_text()
    (folder / "vertexrig.yaml").write_text(f"bucket: gs://my-base\n{text}")
    done = typed("render", "cpu", "--no-check", cwd=folder)
    assert done.exit_code == 0 and "build/jobs/cpu.yaml" in done.stdout and "--env" not in done.stderr, done
    assert "n1-standard-4" in (folder / "build/jobs/cpu.yaml").read_text()
    assert "n1-standard-8" in typed("explain", "cpu", "--env", "prod", cwd=folder).stdout
    assert "n1-standard-4" in typed("explain", "cpu", cwd=folder).stdout


def test_check_tests_every_environment(folder: Path) -> None:
    """A finding or mistake of an environment names it, one of the file comes once, and --env tests that one alone."""
    file = folder / "vertexrig.yaml"
    data = json.loads(json.dumps(DATA))
    data["bucket"] = "gs://my-base"
    data["jobs"]["forever"]["labels"] = {"A": "b"}
    data["environments"]["prod"]["jobs"]["cpu"]["machine_type"] = "n1-standrd-8"
    data["environments"]["prod"]["jobs"]["own"] = {"machine_type": "n1-standrd-4"}
    file.write_text(yaml.safe_dump(data, sort_keys=False))

    def found(*words: str) -> list[tuple[str, str]]:
        rows = typed("check", "--format", "json", *words, cwd=folder).document["findings"]
        return [(one["id"], one["message"]) for one in rows if one["id"] in ("machine-unknown", "labels")]

    every = found()
    assert [id_ for id_, message in every if not message.startswith("environment")] == ["labels"]
    named = [message for id_, message in every if id_ == "machine-unknown"]
    assert len(named) == 2 and all(message.startswith("environment prod: 'n1-standrd-") for message in named), every
    assert found("own") == [(id_, message) for id_, message in every if "standrd-4" in message]
    assert [id_ for id_, _ in found("--env", "dev")] == ["labels"]
    assert found("vertexrig.yaml") == every
    assert typed("check", "--fix", "--env", "prod", cwd=folder).exit_code == 1
    fixed = yaml.safe_load(file.read_text())
    assert fixed["environments"]["prod"]["jobs"]["cpu"]["machine_type"] == "n1-standard-8"
    # without a project at the top there is no file alone: what both environments have comes once, with both names
    del data["project"], data["environments"]["prod"]["jobs"]["own"]
    data["environments"]["dev"]["jobs"] = {"cpu": {"timout": "1s"}}
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    done = typed("check", cwd=folder)
    assert "environments dev, prod: 'A' is not" in done.stdout and "environment prod: 'n1-standrd-8'" in done.stdout
    assert done.exit_code == 2 and "environments.dev.jobs.cpu.timout: there is no key" in done.stderr


def test_diff_names_the_environment(folder: Path) -> None:
    """A change of an environment is its change alone; a revision without environments is compared as it is."""
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    text = (folder / "vertexrig.yaml").read_text()
    (folder / "vertexrig.yaml").write_text(text.replace("n1-standard-8\n    trigger", "n1-standard-16\n    trigger"))
    prod = typed("diff", "--env", "prod", cwd=folder)
    assert prod.stdout.startswith("environment prod\n\n") and "n1-standard-16" in prod.stdout, prod
    assert typed("diff", "--format", "json", "--env", "dev", cwd=folder).document["environment"] == "dev"
    assert "no difference" in typed("diff", "--env", "dev", cwd=folder).stdout


@pytest.mark.whole
def test_the_function_staged_for_prod_serves_prod(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands deploy prod's function with prod's variables, and the staged folder serves prod without any variable."""
    monkeypatch.setenv("PROD_LABEL", "none")
    monkeypatch.setenv("DEV_LABEL", "none")
    done = typed("function", "deploy", "--env", "prod", cwd=folder)
    assert "run deploy prod " in done.stdout and "--project=my-project" in done.stdout, done
    assert "PROD_LABEL=none" in done.stdout and "my-dev" not in done.stdout and "DEV_LABEL" not in done.stdout
    with clouds.cloud(folder / "cloud") as here:
        clouds.point_at(here, function="prod")
        with functions.serving(
            folder / config.STAGED_FOLDER, {**clouds.variables(here), "VERTEXRIG_ENV": "dev"}
        ) as url:
            about = requests.get(url, timeout=20).json()
            assert about["project"] == "my-project"
            answer = requests.post(url, json={"run": "cpu"}, timeout=20)
        assert answer.status_code == 201, answer.text
        assert "n1-standard-8" in json.dumps([job.data for job in clouds.jobs(here)])


def test_the_url_is_written_into_the_environment(folder: Path) -> None:
    """What `function deploy --run` learns stays in the environment that was deployed."""
    from vertexrig.cli.function import _keep_uri

    loaded = config.load(folder / "vertexrig.yaml", env="prod")
    assert _keep_uri(loaded, "https://prod.run.app")
    data = yaml.safe_load((folder / "vertexrig.yaml").read_text())
    assert data["environments"]["prod"]["trigger"]["uri"] == "https://prod.run.app" and "uri" not in data["trigger"]
