"""Real services on this machine for tests: the local Vertex in a thread, and a project that talks to it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from tests.local.jobkit import sdist
from vertexrig.checks.workspace import Workspace
from vertexrig.cloud.storage import Storage, StoredObject
from vertexrig.cloud.vertex import KINDS, RemoteJob, Vertex
from vertexrig.local import server
from vertexrig.local.jobs.settings import Settings
from vertexrig.local.runner import RunOptions
from vertexrig.project import config
from vertexrig.submit.submission import Submitter, UploadedArtifacts

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
def cloud(root: Path, **settings: Any) -> Iterator[server.RunningServer]:
    """A local Vertex with a bucket, whose jobs wait for machines and never start unless `run` says otherwise."""
    run = settings.pop("run", None) or RunOptions(grace=0.5, slow_start=3600)
    with server.running(Settings(root / "vertex", slots=2, run=run, **settings)) as here:
        sdist(root / "vertex/gs/my-bucket/packages/trainer.tar.gz", task="")
        point_at(here)
        yield here


def point_at(here: server.RunningServer, uri: str = f"{BUCKET}/packages/trainer.tar.gz") -> None:
    """Make the package in the bucket the one that triggered runs use, under any URI."""
    storage = Storage(BUCKET, url=here.url)
    package = storage.read("packages/trainer.tar.gz")
    row = {"uri": uri, "sha256": hashlib.sha256(package.data if package else b"").hexdigest()}
    storage.write("packages/latest/trainer.task-tf-2.17.json", json.dumps(row).encode())


class LaterStorage(Storage):
    """The bucket as whoever comes some seconds later sees it: leases and windows are over without a wait.

    Args:
        uri: As of Storage.
        later_s: So many seconds later.
        url: As of Storage.
    """

    def __init__(self, uri: str, later_s: float, *, url: str) -> None:
        super().__init__(uri, url=url)
        self.later_s = later_s

    def read_aged(self, name: str) -> StoredObject | None:
        found = super().read_aged(name)
        return found and replace(found, age_s=found.age_s + self.later_s)


def variables(here: server.RunningServer) -> dict[str, str]:
    """Environment variables that point a process at it."""
    return {"VERTEXRIG_AIPLATFORM": f"{here.url}{server.AIPLATFORM}", "STORAGE_EMULATOR_HOST": here.url}


def vertex(here: server.RunningServer) -> Vertex:
    return Vertex("my-project", "us-central1", url=f"{here.url}{server.AIPLATFORM}")


def jobs(here: server.RunningServer) -> list[RemoteJob]:
    """Every job and sweep there is; not the jobs of a sweep's trials."""
    found = [job for kind in KINDS for job in vertex(here).list(kind)]
    return [job for job in found if "vertexrig_claim" in job.labels]


def loaded(folder: Path, data: Mapping[str, Any] = PROJECT) -> config.Loaded:
    """A project as loaded from a file in `folder`."""
    file = folder / "vertexrig.yaml"
    file.write_text(yaml.safe_dump(dict(data), sort_keys=False))
    return config.load(file, environment=os.environ)


def submitter(here: server.RunningServer, folder: Path, data: Mapping[str, Any] = PROJECT, **options: Any) -> Submitter:
    """What the trigger uses, pointed at a local Vertex."""
    storage = Storage(BUCKET, url=here.url)
    project = loaded(folder, data)
    return Submitter(Workspace(project, uploaded=UploadedArtifacts(project, storage)), vertex(here), storage, **options)
