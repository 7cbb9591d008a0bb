"""What `package` refuses about requirements, `check` says first; what a requirement brings counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.packages import lay_out
from tests.support.tools import typed
from vertexrig.package.imports import fit
from vertexrig.package.sources import gather
from vertexrig.trainer_source.reader import read

PROJECT = """\
project: my-project
region: us-central1
bucket: gs://my-bucket
trainer: {path: PATH, module: MODULE, image: tf-2.17}
jobs:
  cpu: {topology: cpu, machine_type: n1-standard-4, timeout: 60s}
"""


def _says(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, code: str, requirements: str, python: str = ""
) -> tuple[list[str], str]:
    """Severities of the findings on requirements, and what `package` says."""
    monkeypatch.chdir(folder)
    path, module = ("x", "x.t") if python else ("t.py", "t")
    file = folder / ("x/x/t.py" if python else "t.py")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(code)
    if python:
        (file.parent / "__init__.py").write_text("")
        (folder / "x/pyproject.toml").write_text(
            f'[project]\nname = "x"\nversion = "1"\nrequires-python = "{python}"\n'
        )
    else:
        (folder / "requirements.txt").write_text(requirements)
    (folder / "vertexrig.yaml").write_text(PROJECT.replace("PATH", path).replace("MODULE", module))
    found = [
        one.split("[")[0].split()[-1] for one in typed("check", "cpu").stdout.splitlines() if "[requirements]" in one
    ]
    done = typed("package", "cpu", "--no-verify") if python else typed("package", "cpu")
    return found, done.stderr if done.exit_code else ""


@pytest.mark.parametrize(
    ("code", "requirements", "python", "severities", "refused"),
    [
        ("from omegaconf import DictConfig\n", "hydra-core\n", "", [], ""),
        ("from omegaconf import DictConfig\n", "numpy\n", "", ["error"], "imports omegaconf"),
        ("import nowhere_named\n", "some-unknown-distribution\n", "", [], ""),
        ("import tensorflow\n", "tensorflow==2.15\n", "", ["warning"], ""),
        ("import tensorflow\n", "tensorflow\n", "", [], ""),
        (
            "import sklearn\n",
            "numpy\nsklearn\n",
            "",
            ["error"],
            "requirements.txt:2: PyPI has no sklearn that pip can install",
        ),
        ("import sklearn\n", "scikit-learn\n", "", [], ""),
        ("import cv2\n", "cv2==4.10\n", "", ["error"], "Write opencv-python-headless"),
        ("import yaml, ruamel.yaml\n", "pyyaml\nruamel.yaml\n", "", [], ""),
        ("print(1)\n", "", ">=3.12", ["error"], "needs Python >=3.12"),
        ("print(1)\n", "", ">=3.9", [], ""),
    ],
)
def test_check_says_what_package_refuses(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    requirements: str,
    python: str,
    severities: list[str],
    refused: str,
) -> None:
    """`check` has an error where `package` ends with one, a warning for a pin that is left out, and nothing otherwise."""
    found, said = _says(tmp_path, monkeypatch, code=code, requirements=requirements, python=python)
    assert found == severities
    assert refused in said if refused else said == ""


def test_the_trainers_own_modules_are_no_requirements(tmp_path: Path) -> None:
    """Without a requirements.txt, PyPI's distribution of the name of a file beside the importing one, or of src/, is not required;
    a library is, also where a file has its name.
    """
    task = "import model\nimport evaluate\n"
    files = {"trainer/__init__.py": "", "trainer/task.py": task, "trainer/model.py": "", "trainer/evaluate.py": ""}
    made = lay_out(tmp_path, {**files, "src/prepare/steps.py": "", "src/prepare/run.py": "import src.prepare.steps\n"})
    assert [one.name for one in gather(made, "2.17").requirements] == ["evaluate"]


UV = """\
version = 1

[[package]]
name = "some-unknown-distribution"
version = "1"
dependencies = [{ name = "in-between" }]

[[package]]
name = "in-between"
version = "1"
dependencies = [{ name = "omegaconf" }, { name = "other", marker = "sys_platform == 'win32'" }]

[[package]]
name = "unrelated"
version = "1"
"""
POETRY = """\
[[package]]
name = "some_unknown_distribution"
version = "1"

[package.dependencies]
omegaconf = ">=2"
"""
LOCKS = {
    "uv.lock": UV,
    "poetry.lock": POETRY,
    "pdm.lock": '[[package]]\nname = "some-unknown-distribution"\ndependencies = ["OmegaConf>=2"]\n',
    "Pipfile.lock": '{"default": {"some-unknown-distribution": {}, "omegaconf": {"version": "==2"}}, "develop": {"unrelated": {}}}',
    "requirements.lock": "# by rye\nsome-unknown-distribution==1\nomegaconf[x]==2 \\\n    --hash=sha256:00\n    # via some-unknown-distribution\n",
}


def _refusals(folder: Path, code: str) -> tuple[str, ...]:
    lay_out(folder, {"t.py": code, "requirements.txt": "some-unknown-distribution\n"})
    return fit(gather(folder / "t.py", "2.17"), read(folder / "t.py"), "2.17").refusals


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_says_what_requirements_bring(name: str, tmp_path: Path) -> None:
    """An import that the lock file's dependencies bring is not refused, and one that they do not bring is."""
    (tmp_path / name).write_text(LOCKS[name])
    assert _refusals(tmp_path, "import omegaconf\n") == ()
    (refusal,) = _refusals(tmp_path, "import unrelated\n")
    assert "imports unrelated" in refusal


def test_a_lock_file_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    """With a broken lock file it is not known what a requirement brings, and nothing is refused."""
    (tmp_path / "uv.lock").write_text("[[package]\n")
    assert _refusals(tmp_path, "import unrelated\n") == ()


def test_init_writes_an_image_with_the_python_that_the_trainer_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With requires-python above the prebuilt images' the project file builds an image, with that Python."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    (tmp_path / "x/__init__.py").write_text("")
    (tmp_path / "x/train.py").write_text("import argparse\nargparse.ArgumentParser().parse_args()\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1"\nrequires-python = ">=3.12"\n')
    assert typed("init").exit_code == 0
    text = (tmp_path / "vertexrig.yaml").read_text()
    assert "image: build" in text and 'python: "3.12"' in text


def test_requirements_are_checked_for_each_tensorflow_of_a_job(tmp_path: Path) -> None:
    """A requirement that only the package for the evaluator's TensorFlow leaves out is found, at the evaluator's pool."""
    (tmp_path / "t.py").write_text("import tensorflow\n")
    (tmp_path / "requirements.txt").write_text("tensorflow==2.16\n")
    job = "\n".join(
        (
            "  cpu:",
            "    topology: parameter-server",
            "    machine_type: n1-standard-4",
            "    timeout: 60s",
            "    worker: {replica_count: 1}",
            "    ps: {replica_count: 1}",
            "    image: pytorch-2.4",
            "    evaluator: {image: tf-2.17}",
            "",
        )
    )
    project = PROJECT.replace("PATH", "t.py").replace("MODULE", "t").partition("  cpu:")[0] + job
    (tmp_path / "vertexrig.yaml").write_text(project)
    rows = json.loads(typed("check", "cpu", "--format", "json", cwd=tmp_path).stdout)["findings"]
    found = [one["path"] for one in rows if one["id"] == "requirements"]
    assert len(found) == 1 and found[0].startswith("workerPoolSpecs[3]"), rows
