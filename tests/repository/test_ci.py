"""A bad change is stopped before the commit, in the pull request and in the merge request, by the same finding; --fix mends it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.support.tools import REPOSITORY, need, typed
from vertexrig import yamltext

TRAIN = """\
import argparse
import hypertune
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=100)
args = parser.parse_args()
loss = 1.0
for step in range(args.steps):
    loss *= 1 - args.rate
    hypertune.HyperTune().report_hyperparameter_tuning_metric(
        hyperparameter_metric_tag="loss", metric_value=loss, global_step=step
    )
"""
PROJECT = """\
project: my-project
region: us-central1
bucket: gs://my-bucket
trainer: {path: train.py, module: train}
jobs:
  one:
    topology: gpu
    machine_type: n1-standard-8
    accelerator_type: NVIDIA_TESLA_T4
    accelerator_count: 1
    timeout: 3600s
    args: {rate: 0.1}
  two: {topology: cpu, machine_type: n1-standard-8, timeout: 3600s}
schedules:
  nightly: {run: one, cron: "0 3 * * *"}
"""
JOB = """\
workerPoolSpecs:
- machineSpec: {machineType: n1-standard-8}
  replicaCount: 1
  containerSpec: {imageUri: us-docker.pkg.dev/p/r/i:1} # ours
scheduling: {timeout: 3600s}
"""
BAD = JOB.replace("replicaCount: 1", "replicaCont: 1")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a project, a trainer, a job for gcloud, and files of others."""
    monkeypatch.setenv("PIP_NO_COMPILE", "0")  # which is pip's way to say yes: few of the modules are imported
    folder = tmp_path / "repository"
    (folder / "jobs").mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN)
    (folder / "vertexrig.yaml").write_text(PROJECT)
    (folder / "jobs/job.yaml").write_text(JOB)
    (folder / "jobs/chart.yaml").write_text("a: {{ .Values.a }}\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "one")
    return folder


def git(folder: Path, *words: str) -> str:
    given = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words]
    return subprocess.run(given, cwd=folder, check=True, capture_output=True, text=True).stdout


def found(text: str) -> bool:
    return "unknown-field" in text and "replicaCount" in text


class Runner:
    """Runs the steps of the action as GitHub's runner does: inputs, files for outputs, path and summary.

    The one that installs runs where a checkout of the action is named; else the tests' own environment stands for it.
    """

    def __init__(self, folder: Path, temp: Path, checkout: Path | None = None, **inputs: str) -> None:
        self.action: dict[str, Any] = yaml.safe_load((REPOSITORY / "action.yml").read_text())
        self.checkout = checkout
        self.path = [str(Path(sys.executable).parent), *os.environ["PATH"].split(os.pathsep)]
        defaults = {name: one["default"] for name, one in self.action["inputs"].items()}
        self.inputs = {**defaults, **inputs}
        self.folder, self.temp = folder, temp
        self.outputs: dict[str, dict[str, str]] = {}
        temp.mkdir(exist_ok=True)
        self.summary = temp / "summary"
        self.log, self.failed = "", False

    def value(self, text: str) -> str:
        """What `${{ ... }}` stands for."""

        def one(match: re.Match[str]) -> str:
            name, *path = match[1].strip().split(".")
            if match[1].strip() == "github.action_path":
                return str(self.checkout)
            assert name in ("inputs", "steps"), match[1]
            return self.inputs[path[0]] if name == "inputs" else self.outputs.get(path[0], {}).get(path[2], "")

        return re.sub(r"\$\{\{(.*?)\}\}", one, text)

    def wanted(self, condition: str) -> bool:
        parts = [re.fullmatch(r"inputs\.(\S+) (==|!=) '(.*)'", part) for part in condition.split(" && ")]
        return all((self.inputs[one[1]] == one[3]) == (one[2] == "==") for one in parts if one is not None)

    def run(self) -> Runner:
        for number, step in enumerate(self.action["runs"]["steps"]):
            installs = step["name"] == "Install vertexrig"
            if (installs and self.checkout is None) or not self.wanted(step.get("if", "")):
                continue
            output, path = self.temp / f"output-{number}", self.temp / f"path-{number}"
            output.touch()
            path.touch()
            env = {
                **os.environ,
                **{key: self.value(text) for key, text in step.get("env", {}).items()},
                "PATH": os.pathsep.join(self.path), "RUNNER_TEMP": str(self.temp), "GITHUB_PATH": str(path),
                "GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(self.summary),
            }  # fmt: skip
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)
            self.log += done.stdout + done.stderr
            self.path[:0] = path.read_text().split()
            self.outputs[step.get("id", step["name"])] = dict(
                line.split("=", 1) for line in output.read_text().splitlines()
            )
            if done.returncode:
                self.failed = True
                break
        return self


@pytest.mark.whole
def test_the_actions_inputs_are_words_and_no_commands(repository: Path, tmp_path: Path) -> None:
    """Paths and options may be on several lines; what a change writes into an input or a file is never run."""
    base = git(repository, "rev-parse", "HEAD").strip()
    (repository / "jobs/job.yaml").write_text(BAD.replace("replicaCont: 1", "replicaCont: 1 $(touch x) `touch y`"))
    inputs = {"paths": "vertexrig.yaml\njobs $(touch w)", "arguments": "\n--strict\n", "rehearse": "$(touch z)"}
    done = Runner(repository, tmp_path / "one", base=base, **inputs).run()
    assert done.failed and not {"w", "x", "y", "z"} & {path.name for path in repository.iterdir()}, done.log
    (repository / "jobs/job.yaml").write_text(BAD)
    lines = Runner(
        repository, tmp_path / "lines", base="", paths="vertexrig.yaml\njobs", arguments="\n--strict\n"
    ).run()
    assert lines.failed and found(lines.log)


SECRET = "ghs-Zebra77-of-the-runner"


@pytest.mark.whole
def test_a_pull_request_does_not_get_a_secret_of_the_runner(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A project file reads no variable that the action's `variables` does not list: not in rendered YAML, not in a rehearsed trainer."""
    for name in ("DEPLOY_TOKEN", "BUCKET"):
        monkeypatch.setenv(name, f"{SECRET}-{name}")
    base = git(repository, "rev-parse", "HEAD").strip()
    file = repository / "vertexrig.yaml"
    file.write_text(
        PROJECT.replace("{rate: 0.1}", '{rate: 0.1, token: "${DEPLOY_TOKEN:-none}", bucket: "${BUCKET:-b}"}')
    )
    (repository / "train.py").write_text(
        TRAIN.replace("args = parser.parse_args()", "args, _ = parser.parse_known_args()")
        + 'import os\nprint(dict(os.environ))\nopen("environment.txt", "w").write(str(os.environ))\n'
    )
    done = Runner(repository, tmp_path / "one", base=base, variables="BUCKET", rehearse="one").run()
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(f"{SECRET}-DEPLOY_TOKEN".encode() in text for text in [*written, done.log.encode()])
    assert "token=none" in done.summary.read_text() and "${BUCKET}" in done.summary.read_text(), done.log
    assert "rehearsed" in done.summary.read_text()
    file.write_text(PROJECT.replace("gs://my-bucket", "gs://${DEPLOY_TOKEN}"))
    refused = Runner(repository, tmp_path / "two", base=base).run()
    assert (
        refused.failed and "DEPLOY_TOKEN is not in the list of --variables" in refused.log and SECRET not in refused.log
    )


@pytest.mark.parametrize(
    "hook", yaml.safe_load((REPOSITORY / ".pre-commit-hooks.yaml").read_text()), ids=lambda hook: hook["id"]
)
def test_a_hook_reads_no_variable(tmp_path: Path, hook: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook fills in no variable that its `args` do not list."""
    monkeypatch.setenv("DEPLOY_TOKEN", SECRET)
    (tmp_path / "vertexrig.yaml").write_text(PROJECT.replace("gs://my-bucket", "gs://${DEPLOY_TOKEN}"))
    (tmp_path / "train.py").write_text(TRAIN)
    words = [*hook["entry"].split()[1:], *(["vertexrig.yaml"] if hook.get("pass_filenames", True) else [])]
    refused = typed(*words, cwd=tmp_path)
    assert refused.exit_code == 2 and "is not in the list of --variables" in refused.stderr
    assert "--variables" not in typed(*words, "--variables", "DEPLOY_TOKEN", cwd=tmp_path).stderr


def test_the_first_push_of_a_branch_is_compared_with_nothing(repository: Path, tmp_path: Path) -> None:
    """There is no commit before it, which is a notice and no failure."""
    done = Runner(repository, tmp_path / "new", base="0" * 40).run()
    assert not done.failed and "::notice title=vertexrig::nothing is compared" in done.log, done.log
    assert done.outputs["diff"] == {"status": "0"}


@pytest.mark.whole
def test_a_merge_requests_job_writes_what_gitlab_reads(repository: Path) -> None:
    """The template's scripts, run as GitLab does, fail on the mistake and leave both reports with it."""
    template = yaml.safe_load((REPOSITORY / ".gitlab/vertexrig.yml").read_text())
    (repository / "jobs/job.yaml").write_text(BAD)
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        **template["variables"],
    }
    env["CI_MERGE_REQUEST_DIFF_BASE_SHA"] = "HEAD"

    def run(job: str) -> subprocess.CompletedProcess[str]:
        script = [line for line in template[job]["script"] if not line.startswith("pip ")]
        command = ["bash", "-eo", "pipefail", "-c", "\n".join(script)]
        return subprocess.run(command, cwd=repository, env=env, capture_output=True, text=True, check=False)

    done = run("vertexrig-check")
    assert done.returncode == 1 and found(done.stdout)
    reports = template["vertexrig-check"]["artifacts"]["reports"]
    issues = json.loads((repository / reports["codequality"]).read_text())
    assert [one["check_name"] for one in issues if one["severity"] == "major"] == ["unknown-field"]
    failures = ElementTree.parse(repository / reports["junit"]).getroot().iter("failure")
    assert any(found(f"{one.get('message')} unknown-field") for one in failures)
    assert run("vertexrig-diff").returncode == 0
    assert "no difference from" in (repository / "vertexrig.md").read_text()


class Committer:
    """A repository with the real pre-commit, whose hooks are those of a checkout of this one."""

    def __init__(self, repository: Path, checkout: Path, home: Path) -> None:
        self.program, self.repository = need("pre-commit"), repository
        path = f"{Path(self.program).parent}{os.pathsep}{os.environ['PATH']}"
        self.env = {**os.environ, "PRE_COMMIT_HOME": str(home), "PATH": path}
        hooks = [{"id": "vertexrig-check"}, {"id": "vertexrig-fix", "stages": ["manual"]}]
        source = {"repo": str(checkout), "rev": git(checkout, "rev-parse", "HEAD").strip(), "hooks": hooks}
        (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [source]}))
        self.run(self.program, "install")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=self.repository, env=self.env, capture_output=True, text=True, check=False)

    def commit(self) -> tuple[int, str]:
        git(self.repository, "add", "-A")
        done = self.run("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-m", "two")
        return done.returncode, done.stdout + done.stderr

    def fix(self) -> None:
        self.run(self.program, "run", "--hook-stage", "manual", "vertexrig-fix", "--all-files")


def underlined(text: str) -> list[tuple[int, str]]:
    """Line and key of what an editor underlines by the published schema for gcloud's file."""
    schema = json.loads((REPOSITORY / "docs/schema/custom-job.json").read_text())
    reading = yamltext.read(text)
    found = []
    for error in jsonschema.Draft202012Validator(schema).iter_errors(reading.data):
        assert error.validator in ("additionalProperties", "unevaluatedProperties"), error.message
        wrong = next(key for key in error.instance if f"'{key}'" in error.message)
        where = (*error.absolute_path, wrong)
        found.append((reading.lines[where], wrong))
    return found


@pytest.mark.whole
def test_a_bad_change_is_stopped_everywhere_mended_and_its_jobs_are_trained(repository: Path, tmp_path: Path) -> None:
    """Editor, commit and pull request name one mistake at one place; the hook mends it, and then the gate trains what changed."""
    checkout = tmp_path / "vertexrig"
    git(tmp_path, "clone", "-q", str(REPOSITORY), str(checkout))
    committer = Committer(repository, checkout, tmp_path / "home")
    base = git(repository, "rev-parse", "HEAD").strip()
    assert underlined(JOB) == []
    (repository / "jobs/job.yaml").write_text(BAD)
    (repository / "jobs/chart.yaml").write_text("b: {{ .Values.b }}\n")

    assert underlined(BAD) == [(3, "replicaCont")]
    code, said = committer.commit()
    assert code == 1 and "jobs/job.yaml:3: error[unknown-field]" in said and found(said) and "chart.yaml" not in said, (
        said
    )
    pulled = Runner(repository, tmp_path / "bad", checkout, base=base).run()
    assert pulled.failed and f"{tmp_path}/bad/vertexrig/bin" in pulled.path, pulled.log
    assert "::error file=./jobs/job.yaml,line=3,title=unknown-field" in pulled.log and found(pulled.log)
    assert pulled.outputs["check"]["errors"] == "1"
    results = json.loads(Path(pulled.outputs["check"]["sarif"]).read_text())["runs"][0]["results"]
    assert [one["ruleId"] for one in results if one["level"] == "error"] == ["unknown-field"]
    assert pulled.outputs["diff"]["status"] == "0", pulled.log  # a schedule's runs need what the step installs
    assert "no difference from" in pulled.summary.read_text()

    committer.fix()
    assert (repository / "jobs/job.yaml").read_text() == JOB
    changed = PROJECT.replace("rate: 0.1", "rate: 0.5").replace("accelerator_count: 1", "accelerator_count: 4")
    (repository / "vertexrig.yaml").write_text(changed)
    code, said = committer.commit()
    assert code == 0, said
    inputs = {"base": base, "rehearse": "one two", "rehearse-set": "args.steps=2"}
    done = Runner(repository, tmp_path / "gate", **inputs).run()
    assert done.outputs["check"]["errors"] == "0"
    text = done.summary.read_text()
    assert not done.failed and text == Path(done.outputs["diff"]["comment"]).read_text(), done.log
    assert re.search(
        r"\| one \| before \| trained in [\d.]+ s, loss 0.81 \|\n\| one \| after \| trained in [\d.]+ s, loss 0.25 \|",
        text,
    )
    assert "per run, at most: $0.87 → $2.07" in text and "per month, at most: $25.99 → $62.21" in text
    assert "custom_model_training_nvidia_t4_gpus: 1 → 4" in text and "two" not in text
    assert "+    acceleratorCount: 4" in text
    (repository / "train.py").write_text(TRAIN.replace("loss = 1.0", "loss = 1.0 / (args.steps - 2)"))
    failed = Runner(repository, tmp_path / "failed", **inputs).run()
    assert failed.failed and "| one | after | failed: " in failed.summary.read_text()
