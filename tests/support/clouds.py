"""Services for tests, and a project that talks to them: the local Vertex in a thread, or what is in memory."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from localvertex.state import AIPLATFORM, RunningServer
from tests.support.clouds_in_memory import Clock, MemoryStorage, MemoryVertex, WallClock
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import RESOURCES, RemoteJob, Vertex
from vertexrig.project import config
from vertexrig.submit.submission import Submitter
from vertexrig.submit.uploaded import UploadedArtifacts
from vertexrig.workspace import Workspace

BUCKET = "gs://my-bucket"
PROJECT: dict[str, Any] = {
    "project": "my-project",
    "region": "us-central1",
    "bucket": BUCKET,
    "jobs": {
        "cpu": {"machine_type": "n1-standard-4", "timeout": "3600s", "args": {"epochs": 2}},
        "forever": {"machine_type": "n1-standard-4"},
    },
    "sweeps": {
        "sweep": {
            "job": "cpu",
            "max_trial_count": 10,
            "parallel_trial_count": 2,
            "study": {
                "metrics": {"accuracy": "MAXIMIZE"},
                "parameters": {"learning_rate": {"double_value_spec": {"min_value": 0.001, "max_value": 1}}},
            },
        }
    },
    "trigger": {
        "allow": {
            "max_trial_count": {"min": 1, "max": 50},
            "machine_type": {"choices": ["n1-standard-4", "n1-standard-8"]},
            "labels.team": {"pattern": "[a-z]{1,20}"},
            "timeout": {"max": 7200},
            "disable_retries": {},
        },
        "allow_args": {"epochs": {"min": 1, "max": 100}, "note": {}},
    },
}


@contextmanager
def cloud(root: Path, **settings: Any) -> Iterator[RunningServer]:
    """A local Vertex with a bucket, whose jobs wait for machines and never start unless `run` says otherwise."""
    from localvertex import server
    from localvertex.jobs.settings import Settings
    from localvertex.runner import RunOptions
    from tests.support.jobkit import sdist, share_environments

    share_environments(root / "vertex")
    options = settings.pop("options", None) or RunOptions(grace=0.5, slow_start=3600)
    with server.running(Settings(root / "vertex", slots=2, options=options, **settings)) as here:
        sdist(root / "vertex/gs/my-bucket/packages/trainer.tar.gz", task="")
        point_at(here)
        yield here


@dataclass
class MemoryCloud:
    """The same without a server, for tests of what only needs the answers: a bucket with the trainer's package, and jobs that wait.

    Attributes:
        clock: Of both services; tests turn it on by its `at`.
    """

    clock: Clock = field(default_factory=WallClock)

    def __post_init__(self) -> None:
        self.storage, self.vertex = MemoryStorage(self.clock), MemoryVertex(self.clock)
        self.storage.write("packages/trainer.tar.gz", b"")
        point_at(self)


Cloud = RunningServer | MemoryCloud


def point_at(here: Cloud, uri: str = f"{BUCKET}/packages/trainer.tar.gz", function: str = "vertexrig") -> None:
    """Make the package in the bucket the one that runs of a trigger use, under any URI."""
    package = storage(here).read("packages/trainer.tar.gz")
    assert package is not None
    row = {"uri": uri, "sha256": hashlib.sha256(package.data).hexdigest(), "generation": package.generation}
    storage(here).write(f"vertexrig/{function}/packages/trainer.task-tf-2.17.json", json.dumps(row).encode())


def variables(here: RunningServer) -> dict[str, str]:
    """Environment variables that point a process at it."""
    return {"VERTEXRIG_AIPLATFORM": f"{here.url}{AIPLATFORM}", "STORAGE_EMULATOR_HOST": here.url}


def storage(here: Cloud) -> Storage:
    """A client of the bucket."""
    return copy.copy(here.storage) if isinstance(here, MemoryCloud) else Storage(BUCKET, url=here.url)


def vertex(here: Cloud) -> Vertex:
    """A client of the jobs; what a test changes of it is of no other."""
    if isinstance(here, MemoryCloud):
        return copy.copy(here.vertex)
    return Vertex("my-project", "us-central1", url=f"{here.url}{AIPLATFORM}")


def jobs(here: Cloud) -> list[RemoteJob]:
    """Every job and sweep there is; not the jobs of a sweep's trials."""
    found = [job for kind in RESOURCES for job in vertex(here).list(kind)]
    return [job for job in found if "vertexrig_claim" in job.labels]


def loaded(folder: Path, data: Mapping[str, Any] = PROJECT) -> config.Loaded:
    """A project as loaded from a file in `folder`."""
    file = folder / "vertexrig.yaml"
    file.write_text(yaml.safe_dump(dict(data), sort_keys=False))
    return config.load(file, environ=os.environ)


def submitter(here: Cloud, folder: Path, data: Mapping[str, Any] = PROJECT, **options: Any) -> Submitter:
    """What the trigger uses, pointed at one of them."""
    bucket, project = storage(here), loaded(folder, data)
    client = options.pop("vertex", None) or vertex(here)
    return Submitter(Workspace(project, uploaded=UploadedArtifacts(project, bucket)), client, bucket, **options)
