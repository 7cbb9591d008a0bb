"""A project whose trainer has its own image."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from tests.support import clouds
from tests.support.packages import small
from vertexrig.project import config
from vertexrig.workspace import Workspace

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
SETUP = "from setuptools import setup\nsetup(name='trainer', version='1', packages=['trainer'], install_requires={})\n"
TASK = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
print("trained", parser.parse_args().epochs)
"""
GPU = {
    "topology": "gpu",
    "machine_type": "n1-standard-8",
    "accelerator_type": "NVIDIA_TESLA_T4",
    "accelerator_count": 1,
}
JOBS: dict[str, Any] = {
    "cpu": {"machine_type": "n1-standard-4", "timeout": "600s", "args": {"epochs": 2}},
    "other": {"machine_type": "n1-standard-4", "timeout": "600s", "module": "trainer.other"},
    "gpu": {**GPU, "timeout": "600s"},
    "tpu": {"topology": "tpu", "accelerator_type": "TPU_V3", "accelerator_count": 8, "timeout": "600s"},
    "prebuilt": {"machine_type": "n1-standard-4", "timeout": "600s", "image": "tf-2.17"},
}


def project(
    folder: Path, *, task: str = TASK, requires: tuple[str, ...] = (), jobs: Any = JOBS, **build: Any
) -> config.Loaded:
    """A project whose trainer has its own image."""
    small(folder / "code", task, setup=SETUP.format(list(requires)), files={"trainer/other.py": "print('other')\n"})
    trainer = {"path": "code", "image": "build", "build": {"python": PYTHON, **build}}
    data = {**clouds.PROJECT, "trainer": trainer, "jobs": jobs, "sweeps": {}, "trigger": {}}
    return clouds.loaded(folder, data)


def rendered(loaded: config.Loaded, name: str) -> dict[str, Any]:
    pool: dict[str, Any] = yaml.safe_load(Workspace(loaded).renderer.render(name).text)["workerPoolSpecs"][0]
    return pool
