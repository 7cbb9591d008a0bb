"""A plugin for pytest: the fixture `local_vertex`, by which tests of programs that use Vertex AI run them on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# All else is imported by the fixtures: pytest loads this module in every project of an environment that has vertexrig.
if TYPE_CHECKING:
    from localvertex.state import RunningServer
    from vertexrig.library import Findings

PROJECT, REGION = "test-project", "us-central1"
_LOOK_EVERY_S = 0.1


@dataclass(frozen=True)
class TestJob:
    """A job, tuning job or training pipeline that a test made.

    Args:
        kind: `customJobs`, `hyperparameterTuningJobs` or `trainingPipelines`.
        name: Its resource name.
        display_name: Its display name.
        state: Its state, `JOB_STATE_SUCCEEDED` or, of a pipeline, `PIPELINE_STATE_SUCCEEDED`.
        error: Why it failed, "" if it did not.
        output: Its output folder on this machine, "" if it wrote nothing.
        warnings: What went wrong and did not fail it.
        body: The resource as the API describes it.
    """

    __test__ = False

    kind: str
    name: str
    display_name: str
    state: str
    error: str
    output: str
    warnings: tuple[str, ...]
    body: dict[str, Any]

    @property
    def succeeded(self) -> bool:
        return self.state.endswith("STATE_SUCCEEDED")


class LocalVertex:
    """A local Vertex, empty at the begin of the test.

    Attributes:
        project: The project of the made-up account.
        region: A region, for programs that ask for one.
        url: Address of the server.
    """

    project, region = PROJECT, REGION

    def __init__(self, here: RunningServer) -> None:
        self._here, self.url = here, here.url

    def bucket(self, name: str) -> Path:
        """Make a bucket, and return its folder: files in it are the bucket's objects."""
        from localvertex.front import control

        control.make_bucket(self._here, name)
        return self._here.root / "gs" / name

    def jobs(self) -> list[TestJob]:
        """Return what the test has made so far, in its order."""
        return [self._job(row) for row in self._rows()]

    def wait(self, timeout: float = 600) -> list[TestJob]:
        """Wait until all jobs of the test have ended, and return them; TimeoutError after `timeout` seconds."""
        until = time.monotonic() + timeout
        while open_ := [row["displayName"] for row in self._rows() if not row["ended"]]:
            if time.monotonic() > until:
                raise TimeoutError(f"after {timeout:g} s these jobs have not ended: {', '.join(open_)}")
            time.sleep(_LOOK_EVERY_S)
        return self.jobs()

    def findings(self) -> list[Findings]:
        """Return the findings of `vertexrig check` for each job, tuning job and pipeline of the test, in their order."""
        from vertexrig.library import check

        return [check(_checked(job)) for job in self.jobs()]

    def _rows(self) -> list[dict[str, Any]]:
        from localvertex.front import control

        return control.call(self._here, "GET", "/v1/made?after=0")["made"]  # type: ignore[no-any-return]

    def _job(self, row: dict[str, Any]) -> TestJob:
        from localvertex.front import control
        from localvertex.state import AIPLATFORM

        body = {} if row["deleted"] else control.request(self._here, "GET", f"{AIPLATFORM}/v1/{row['name']}", None)
        told = (row["kind"], row["name"], row["displayName"], row["state"], row["error"], row["output"])
        return TestJob(*told, tuple(row["warnings"]), body)


def _checked(job: TestJob) -> dict[str, Any]:
    """Return the part of a job that `check` reads."""
    if job.kind == "hyperparameterTuningJobs":
        names = ("studySpec", "trialJobSpec", "maxTrialCount", "parallelTrialCount", "maxFailedTrialCount")
        return {name: job.body[name] for name in names if name in job.body}
    if job.kind == "trainingPipelines":
        return dict(job.body.get("trainingTaskInputs") or {})
    return dict(job.body.get("jobSpec") or {})


@pytest.fixture(scope="session")
def _local_vertex_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Provide the server of the session, as a process of its own."""
    from localvertex.front import control
    from localvertex.jobs.settings import Settings
    from localvertex.runner.options import RunOptions

    root = tmp_path_factory.mktemp("local_vertex") / "state"
    here = control.up(Settings(root, options=RunOptions(project=PROJECT, region=REGION, keep_gs=True)), port=0)
    try:
        yield here
    finally:
        control.down(root)


@pytest.fixture
def local_vertex(_local_vertex_server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalVertex]:
    """An empty local Vertex, to which the test and all programs that it starts send their requests to Google's APIs.

    When the test has ended, jobs that still run are cancelled, and all that it made is removed.
    """
    from localvertex.front import control
    from localvertex.front.variables import transparent

    here = _local_vertex_server
    change = transparent(here, os.environ, project=PROJECT, region=REGION)
    for name in change.unset:
        monkeypatch.delenv(name)
    for name, value in change.set.items():
        monkeypatch.setenv(name, value)
    try:
        yield LocalVertex(here)
    finally:
        control.call(here, "POST", "/v1/reset")
