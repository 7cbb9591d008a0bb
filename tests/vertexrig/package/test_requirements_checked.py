"""What `package` refuses about requirements, `check` says first; what a requirement brings counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tools import typed

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
