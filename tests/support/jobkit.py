"""Small trainers for the tests of the local Vertex: a package whose module runs the Python code it is given."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
import time
import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from localvertex.jobs.inprocess import LocalJobs
from localvertex.jobs.manager import Watcher
from localvertex.jobs.settings import Settings
from localvertex.runner import Control, JobResult, JobRun, Line, RunOptions
from localvertex.runner.result import new_job_id
from localvertex.runner.warm import Warmth
from localvertex.state import bind
from tests.support.tools import environments

TASK = """
import json, os, sys
code, *args = sys.argv[1:]
exec(compile(code, "<trainer>", "exec"))
"""
IMAGE = "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest"


def sdist(
    path: Path, *, name: str = "trainer", task: str = TASK, setup: str = "", requires: tuple[str, ...] = ()
) -> Path:
    """A source distribution with one module, `<name>.task`; the same words give the same bytes."""
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
    with gzip.GzipFile(path, "wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for file, text in files.items():
            info = tarfile.TarInfo(f"{name}-1.0/{file}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))
    return path


def wheel(folder: Path, name: str, task: str) -> Path:
    """A wheel with one module, `<name>.task`, which pip installs in a quarter of a source distribution's time."""
    about = f"{name}-1.0.dist-info"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(f"{name}/__init__.py", "")
        made.writestr(f"{name}/task.py", task)
        made.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        made.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{about}/RECORD", "")
    return path


def share_environments(root: Path) -> None:
    """Have a local Vertex's folder install packages where all such folders of this run of the tests do, each package once."""
    shared = environments()
    if shared is not None and not (root / "envs").exists():
        bind(root)
        (root / "envs").symlink_to(shared)


def with_trainer(root: Path, task: str = TASK) -> Path:
    """A local Vertex's folder with the trainer in a bucket."""
    sdist(root / "gs/packages/trainer.tar.gz", task=task)
    share_environments(root)
    return root


def pool(
    code: str, *args: str, replicas: int = 1, package: str = "gs://packages/trainer.tar.gz", **machine: Any
) -> dict[str, Any]:
    """A worker pool whose replicas run `code`."""
    return {
        "machineSpec": {"machineType": "n1-standard-4", **machine},
        "replicaCount": replicas,
        "pythonPackageSpec": {
            "executorImageUri": IMAGE.replace("cpu", "gpu") if machine.get("acceleratorType") else IMAGE,
            "packageUris": [package],
            "pythonModule": "trainer.task",
            "args": [code, *args],
        },
    }


def container(image: str, *command: str, args: Sequence[str] = (), replicas: int = 1, **env: str) -> dict[str, Any]:
    """A worker pool of an image."""
    variables = [{"name": name, "value": value} for name, value in env.items()]
    return {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": replicas,
        "containerSpec": {"imageUri": image, "command": list(command), "args": list(args), "env": variables},
    }


def job(*pools: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A CustomJobSpec."""
    return {"workerPoolSpecs": list(pools), **fields}


PARENT = "/vertex/v1/projects/my-project/locations/us-central1"


class Api:
    """A small client of a running server: `api.post("customJobs", body)`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=60, verify=False)  # no certificates are read for http://

    def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        """A request; `path` is taken below the project and location unless it starts with a slash."""
        return self.http.request(method, path if path.startswith("/") else f"{PARENT}/{path}", **options)

    def create(self, spec: dict[str, Any], name: str = "a job", **fields: Any) -> dict[str, Any]:
        """Create a custom job; its resource."""
        answer = self.call("POST", "customJobs", json={"displayName": name, "jobSpec": spec, **fields})
        assert answer.status_code == 200, answer.text
        made: dict[str, Any] = answer.json()
        return made

    def get(self, name: str) -> dict[str, Any]:
        """A resource by its name."""
        answer = self.call("GET", f"/vertex/v1/{name}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def wait(self, name: str, *states: str) -> dict[str, Any]:
        """Wait for a job to be in one of these states; by default, to end."""
        wanted = states or tuple(f"{kind}_STATE_{end}" for kind in ("JOB", "PIPELINE") for end in ENDS)
        until, pause = time.monotonic() + 60, 0.02
        while True:
            found = self.get(name)
            if found["state"] in wanted:
                return found
            assert time.monotonic() < until, found
            time.sleep(pause)
            pause = min(1.2 * pause, 0.1)  # each call costs the server some processor, too


ENDS = ("SUCCEEDED", "FAILED", "CANCELLED")
"""How jobs and pipelines can end."""


def run_study(
    data: dict[str, Any], settings: Settings, watcher: Watcher | None = None, **follow: Any
) -> dict[str, Any]:
    """A HyperparameterTuningJob, run to its end in this process."""
    with LocalJobs(settings, watcher or Watcher()) as here:
        return here.follow(here.add({}, data), **follow)


def run_job(
    spec: dict[str, Any],
    *,
    root: Path | str,
    on_line: Callable[[Line], None] = lambda line: None,
    on_state: Callable[[str], None] = lambda state: None,
    on_pause: Callable[[], None] = lambda: None,
    control: Control | None = None,
    options: RunOptions | None = None,
    warmth: Warmth | None = None,
) -> JobResult:
    """A CustomJobSpec, run to its end in this thread; the control is the caller's to close."""
    options = options or RunOptions()
    options = replace(options, job_id=options.job_id or new_job_id())
    with closing(Control()) as own:
        run = JobRun(spec, Path(root).absolute(), on_line, on_state, on_pause, control or own, options, warmth)
        return run.run()


def exit_code(result: JobResult) -> int:
    """The status of the replica that failed a job, from the job's error; 0 of a job that succeeded."""
    if result.error is None:
        return 0
    found = re.search(r"non-zero status of (\d+)", result.error.message)
    assert found is not None, result.error
    return int(found[1])


def output(lines: list[Line], task: str = "workerpool0-0") -> list[str]:
    """What a replica's trainer printed, and pip before it: its log without the lines that the service writes of every job."""
    return [line.text for line in lines if line.task == task and line.shown]
