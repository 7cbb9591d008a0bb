"""A local Vertex with what the tests expect of Google's: known jobs, images, and the objects of public buckets."""

from __future__ import annotations

import csv
import io
import os
import random
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from localvertex import state
from localvertex.front import control
from tools.upstream.table import HERE, PROJECT, document

STAND_INS = HERE / "stand_ins"
VERTEXRIG = (sys.executable, "-m", "vertexrig")
REGION = "us-central1"
_HOUSING = "airflow-system-tests-resources/vertex-ai/california-housing-data"
_COLUMNS = (
    "longitude", "latitude", "housing_median_age", "total_rooms", "total_bedrooms", "population", "households",
    "median_income", "median_house_value",
)  # fmt: skip
_BUCKETS = ("airflow-system-tests-resources", "ucaip-samples-us-central1")


@dataclass(frozen=True)
class Stage:
    """Where the tests run.

    Args:
        work: Folder for everything: state, logs, reports.
    """

    work: Path

    @property
    def where(self) -> tuple[str, ...]:
        """The options of vertexrig that name this server."""
        return "--root", str(self.work / "state"), "--file", str(self.work / "vertexrig.yaml")

    @property
    def url(self) -> str:
        """The address of the server's own port."""
        here = state.find(self.work / "state")
        assert here is not None, "the server has answered"
        return here.url

    def local_run(self, command: list[str]) -> list[str]:
        """Return a command, run against the local Vertex."""
        return [*VERTEXRIG, "local", "run", *self.where, "--", *command]


@contextmanager
def staged(work: Path, image_python: str) -> Iterator[Stage]:
    """Provide a running local Vertex, with jobs, images and objects.

    Args:
        work: Folder for everything, which is made.
        image_python: What images that need a Python of their own run.
    """
    stage = Stage(work.resolve())
    for folder in ("logs", "reports", "home", "images"):
        (stage.work / folder).mkdir(parents=True, exist_ok=True)
    project = {
        "project": PROJECT, "region": REGION, "bucket": f"gs://{PROJECT}-bucket", "local": _local(stage.work, image_python)
    }  # fmt: skip
    (stage.work / "vertexrig.yaml").write_text(yaml.safe_dump(project), encoding="utf-8")
    up = [*VERTEXRIG, "local", "up", "--detach", "--no-checks", "--slots=8", "--gs-paths=kept", "--port=0"]
    # what a container installs with `pip install --user` goes below HOME, so it is not the user's here
    environment = {
        **os.environ, "HOME": str(stage.work / "home"), "PIP_CONSTRAINT": str(HERE / "constraints.txt")
    }  # fmt: skip
    subprocess.run([*up, *stage.where], check=True, env=environment, stdout=subprocess.DEVNULL, stderr=sys.stderr)
    try:
        _seed(stage)
        yield stage
    finally:
        subprocess.run([*VERTEXRIG, "local", "down", *stage.where], check=False, capture_output=True)


def _local(work: Path, image_python: str) -> dict[str, Any]:
    """Return `local:` of the project file: a folder and a program in place of each image."""
    images, interpreters = {}, {}
    own = work / "python"
    # with the system's packages, since `pip install --user` refuses to work in an environment without them
    subprocess.run([image_python, "-m", "venv", "--system-site-packages", str(own)], check=True)
    for number, (pattern, one) in enumerate(document()["images"].items()):
        folder = work / "images" / str(number)
        folder.mkdir(parents=True, exist_ok=True)
        program = one.get("program")
        if program:
            shutil.copy(STAND_INS / program, folder)
        images[pattern] = {"path": str(folder), "command": ["python", *([program] if program else [])]}
        if one.get("python") == "own":
            interpreters[pattern] = str(own / "bin/python")
    return {"slots": 8, "images": images, "interpreters": interpreters}


def _seed(stage: Stage) -> None:
    here = state.find(stage.work / "state")
    assert here is not None, "the server has just answered"
    for one in document()["seeds"]:
        name = f"projects/{PROJECT}/locations/{REGION}/{one['name']}"
        control.seed(here, {**one, "name": name})
    for bucket in _BUCKETS:
        control.make_bucket(here, bucket)
    folder = stage.work / "state/gs" / _HOUSING  # a file in a bucket's folder is an object
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "california_housing_train.csv").write_text(_houses(), encoding="utf-8")
    shutil.copy(STAND_INS / "task.py", folder / "california_housing_training_script.py")
    _package(folder / "custom_trainer_script-0.1.tar")


def _houses() -> str:
    """Made-up rows with the columns of the California housing data."""
    draw = random.Random(0)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for _ in range(500):
        inputs = [round(draw.uniform(1, 10), 3) for _ in _COLUMNS[:-1]]
        writer.writerow([*inputs, round(1000 * sum(inputs) + draw.gauss(0, 100), 1)])
    return out.getvalue()


def _package(path: Path) -> None:
    """Make a source distribution with the module that the test of a Python package names."""
    name, module = "custom_trainer_script-0.1", "aiplatform_custom_trainer_script"
    setup = f"from setuptools import setup\nsetup(name='custom_trainer_script', version='0.1', packages=['{module}'])\n"
    files = {
        "setup.py": setup, f"{module}/__init__.py": "",
        f"{module}/task.py": (STAND_INS / "task.py").read_text(encoding="utf-8"),
    }  # fmt: skip
    with tarfile.open(path, "w") as archive:
        for file, content in files.items():
            info = tarfile.TarInfo(f"{name}/{file}")
            info.size = len(content.encode())
            archive.addfile(info, io.BytesIO(content.encode()))
