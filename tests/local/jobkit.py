"""Small trainers for the tests of the local Vertex: a package whose module runs the Python code it is given."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

TASK = """
import json, os, sys
code, *args = sys.argv[1:]
exec(compile(code, "<trainer>", "exec"))
"""
IMAGE = "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest"


def sdist(
    path: Path, *, name: str = "trainer", task: str = TASK, setup: str = "", requires: tuple[str, ...] = ()
) -> Path:
    """A source distribution with one module, `<name>.task`."""
    setup = (
        setup
        or f"from setuptools import setup\nsetup(name={name!r}, version='1.0', packages=[{name!r}], install_requires={list(requires)!r})\n"
    )
    files = {
        "setup.py": setup,
        f"{name}/__init__.py": "",
        f"{name}/task.py": task,
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for file, text in files.items():
            info = tarfile.TarInfo(f"{name}-1.0/{file}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def pool(
    code: str, *args: str, replicas: int = 1, package: str = "gs://packages/trainer.tar.gz", **machine: Any
) -> dict[str, Any]:
    """A worker pool whose replicas run `code`."""
    return {
        "machineSpec": {"machineType": "n1-standard-4", **machine},
        "replicaCount": replicas,
        "pythonPackageSpec": {
            "executorImageUri": IMAGE,
            "packageUris": [package],
            "pythonModule": "trainer.task",
            "args": [code, *args],
        },
    }


def job(*pools: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A CustomJobSpec."""
    return {"workerPoolSpecs": list(pools), **fields}
