"""The built wheel holds all that the tool needs: every verb works on it with the source tree out of reach."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.repository.test_extras import declared, normalised
from tests.support import wheels
from tests.support.tools import REPOSITORY, vertexrig
from vertexrig import __version__
from vertexrig.cli import VERBS
from vertexrig.cli.extras import PARTS

TRAINER = """
import argparse, os
import hypertune
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--learning_rate", type=float, default=0.1)
args = parser.parse_args()
folder = os.environ.get("AIP_MODEL_DIR", "model")
hypertune.HyperTune().report_hyperparameter_tuning_metric("accuracy", 1 - args.learning_rate, args.epochs)
"""
PROJECT = """
schedules: {nightly: {run: cpu, cron: "0 3 * * *", time_zone: Europe/Berlin}}
trigger: {uri: "https://trigger.example.com"}
"""
SUBMIT, LOCAL, TRIGGER, REPORT = "submit", "local", "trigger", "report"
# a command line -> what the base install answers: an exit code, or the extra it lacks
LINES: dict[str, int | str] = {
    "keys": 0,
    "render cpu sweep": 0,
    "check": 0,
    "check --list-rules": 0,
    "diff": 2,
    "completion bash": 0,
    "explain cpu": 0,
    "quota cpu": SUBMIT,
    "catalog machines": 0,
    "package cpu": 0,
    "package cpu --upload": SUBMIT,
    "image nothing": 2,
    "rehearse cpu": LOCAL,
    "rehearse sweep": LOCAL,
    "local up": LOCAL,
    "local up --detach": LOCAL,
    "local status": 1,
    "local down": 0,
    "local env": 3,
    "local python --image tf-0": 2,
    "local kill x workerpool0-0": 3,
    "local preempt x": 3,
    "submit cpu": SUBMIT,
    "submit cpu --dry-run": 0,
    "jobs": SUBMIT,
    "watch x": SUBMIT,
    "logs x": SUBMIT,
    "cancel x": SUBMIT,
    "trials x": SUBMIT,
    "best x": SUBMIT,
    "report x": SUBMIT,
    "report x -o x.html": REPORT,
    "follow-up x": SUBMIT,
    "promote x": SUBMIT,
    "register x": SUBMIT,
    "pull x": SUBMIT,
    "convert config.yaml": 0,
    "schedule plan": SUBMIT,
    "schedule apply": SUBMIT,
    "schedule list": SUBMIT,
    "schedule status": SUBMIT,
    "schedule history": SUBMIT,
    "schedule run nightly": SUBMIT,
    "schedule pause nightly": SUBMIT,
    "schedule resume nightly": SUBMIT,
    "function build": 0,
    "function deploy": 0,
    "function serve": f"{LOCAL},{TRIGGER}",
    "function package": SUBMIT,
    "console": LOCAL,
    "doctor": SUBMIT,
    "init --force": 0,  # at the end: the other verbs need what the project's file has besides
}
DRIVER = """
import contextlib, io, json, sys
from vertexrig import cli

told = {}
for line in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
        code = cli.run(line.split())
    told[line] = code, err.getvalue()
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    return wheels.shared(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> wheels.Installed:
    """The base install, without what the extras bring even if a dependency happens to bring it too."""

    def make(folder: Path) -> None:
        made = wheels.install(wheel, folder)
        listed = subprocess.run(
            [made.python, "-m", "pip", "list", "--format=freeze"], check=True, capture_output=True, text=True
        ).stdout
        there = {line.partition("==")[0] for line in listed.splitlines()}
        extra = sorted({distribution for distribution, _ in PARTS.values()} & there)
        if extra:
            made.pip("uninstall", *extra)

    folder = wheels.once("base-install", tmp_path_factory.mktemp("base"), make)
    return wheels.Installed(folder / "venv", folder / "home")


@pytest.fixture(scope="module")
def project(base: wheels.Installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trainer and the project that `init` makes for it."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").write_text(TRAINER)
    done = base.shell("vertexrig init", folder)
    assert done.returncode == 0, done.stderr
    with (folder / "vertexrig.yaml").open("a") as file:
        file.write(PROJECT)
    assert base.shell("vertexrig render cpu --output config.yaml", folder).returncode == 0
    return folder


def test_every_verb_of_the_base_install(base: wheels.Installed, project: Path) -> None:
    """A verb works, or one line names the extra it needs and the exit code is 2; none gives a traceback."""
    assert {line.split()[0] for line in LINES} == set(VERBS)
    done = subprocess.run(
        [base.python, "-c", DRIVER], cwd=project, env=base.variables, input=json.dumps([*LINES]), capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {line: told[line] for line, expected in LINES.items() if not _answers(expected, *told[line])} == {}


def _answers(expected: int | str, code: int, err: str) -> bool:
    if isinstance(expected, str):
        return code == 2 and f'pip install "vertexrig[{expected}] @ git+' in err.splitlines()[-1]
    return code == expected


def test_the_version_names_what_was_installed(base: wheels.Installed, wheel: Path, tmp_path: Path) -> None:
    """`--version` of a wheel that no release made names the wheel."""
    assert base.shell("vertexrig --version", tmp_path).stdout == f"vertexrig {__version__}, from {wheel.name}\n"


def test_the_function_is_staged_alike_from_the_wheel_and_the_checkout(
    base: wheels.Installed, project: Path, tmp_path: Path
) -> None:
    """`function build` of the installed tool writes the same files as that of a checkout."""
    assert base.shell(f"vertexrig function build --output {tmp_path}/wheel", project).returncode == 0
    done = vertexrig("function", "build", "--output", str(tmp_path / "checkout"), cwd=project)
    assert done.returncode == 0, done.stderr

    def names(folder: Path) -> set[str]:
        return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}

    found = names(tmp_path / "wheel")
    assert found == names(tmp_path / "checkout") and {"main.py", "templates/cpu.yaml.j2"} <= found


def test_the_wheel_holds_the_tool_and_nothing_else(wheel: Path) -> None:
    """Every module, template and data file is in it, and the function's; tests and the trainer are not."""
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    packages = {"vertexrig", "localvertex"}
    assert tops == packages
    for file in (file for package in packages for file in (REPOSITORY / package).rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            assert str(file.relative_to(REPOSITORY)) in names
    for file in (REPOSITORY / "templates").iterdir():
        if file.is_file():
            assert f"vertexrig/templates/{file.name}" in names
    assert {"vertexrig/functions/main.py", "vertexrig/functions/requirements.txt"} <= names


@pytest.mark.whole
def test_the_base_installation_is_small(base: wheels.Installed) -> None:
    """At most 15 distributions, four of them rich with what it needs and two PyPA's build, and 20 MiB, without bytecode and what a new environment has."""
    site = next((base.folder / "lib").glob("python3*")) / "site-packages"
    new = ("pip", "wheel", "packaging")
    found = {normalised(folder.name.split("-")[0]) for folder in site.glob("*.dist-info")} - {*new}
    brought = {"vertexrig", "markupsafe", "markdown-it-py", "mdurl", "pygments", "pyproject-hooks"}
    assert found == declared()[""] | brought and len(found) <= 15
    files = [file for file in site.rglob("*") if file.is_file() and file.suffix != ".pyc"]
    sizes = [file.stat().st_size for file in files if not file.relative_to(site).parts[0].startswith(new)]
    assert sum(sizes) <= 20 * 2**20
