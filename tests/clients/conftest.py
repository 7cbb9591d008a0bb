"""A local Vertex for programs that nobody changed, and a way to run them: they get variables and nothing else."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localvertex import server
from localvertex.front.variables import transparent
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from localvertex.state import RunningServer
from tests.support.jobkit import TASK, sdist

PROJECT, REGION = "my-project", "us-central1"
WATCHED = """
import os, socket
from pathlib import Path

connect = socket.socket.connect


def watched(self, address):
    # A name is looked up below this.
    if self.family in (socket.AF_INET, socket.AF_INET6) and address[0][-1].isdigit() and not address[0].startswith("127."):
        with Path(os.environ["OUTSIDE"]).open("a") as file:
            file.write(f"{address}\\n")
        raise OSError(f"this test has no way to {address}")
    connect(self, address)
    if self.family in (socket.AF_INET, socket.AF_INET6) and not socket.socket.getpeername(self)[0].startswith("127."):
        Path(os.environ["OUTSIDE"]).write_text(f"{address}")


socket.socket.connect = watched
"""
"""A Python program's sitecustomize: connections that leave the machine are kept, and refused."""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that keeps `gs://` in jobs, with what the programs expect in the cloud: a bucket and a package."""
    root = tmp_path_factory.mktemp("clients")
    sdist(root / "gs/packages/trainer.tar.gz", task=TASK)
    (root / "gs/staging-bucket").mkdir()
    with server.running(Settings(root, slots=8, options=RunOptions(grace=0.5, keep_gs=True)), grpc=True) as running:
        yield running


@pytest.fixture
def variables(here: RunningServer, tmp_path: Path) -> Iterator[dict[str, str]]:
    """What a program of `vertexrig local run` sees; the test fails if a Python program connects to another machine."""
    outside = tmp_path / "outside"
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch/sitecustomize.py").write_text(WATCHED)
    user = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "JAVA_HOME") if name in os.environ}
    user |= {"HOME": str(tmp_path), "PYTHONPATH": str(tmp_path / "watch"), "OUTSIDE": str(outside)}
    yield transparent(here, user, project=PROJECT, region=REGION).over(user)
    assert not outside.exists(), outside.read_text()


@pytest.fixture
def run(variables: dict[str, str], tmp_path: Path) -> Run:
    """Run a command with the variables of `local run`, in an empty folder; the test fails if the command fails.

    `run(word, …, timeout=seconds, check=False, NAME=value)`: variables by name are the user's own, beside ours.
    """

    def command(*words: str, timeout: float = 240, check: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            words, env={**variables, **more}, cwd=tmp_path, text=True, capture_output=True, timeout=timeout, check=False
        )
        assert not check or done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done

    return command
