"""Starts the trainer as real processes, alone or as a cluster on loopback, and ends every one of them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.forks import Forked, Forks

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "trainer_pkg"
sys.path.insert(0, str(PACKAGE))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "2")

#: As small as a run gets: one model everywhere, so that a run takes little more than its imports.
QUICK = ("--epochs=2", "--num_units=16", "--plot=false", "--tensorboard=false", "--intra_op_threads=1")
#: For a machine that others use, too: four trainers at once on two slow cores took over 120 s (2026-11-29).
TIMEOUT = 400.0


@dataclass
class Finished:
    """How a process ended."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """Both streams."""
        return self.out + self.err


class Launched:
    """One running trainer process, its streams in files so that no pipe fills up. `forks`: it may be forked there."""

    process: subprocess.Popen[bytes] | Forked

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], folder: Path, name: str, forks: Forks | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.out_path, self.err_path = folder / f"{name}.out", folder / f"{name}.err"
        if forks is not None and command[:2] == [forks.python, "-m"] and forks.can(env):
            streams = self.out_path, self.err_path
            self.process = forks.start(command[3:], env, *streams, folder, module=command[2])
            return
        with self.out_path.open("wb") as out, self.err_path.open("wb") as err:
            self.process = subprocess.Popen(command, env=dict(env), stdout=out, stderr=err, cwd=folder,
                                            start_new_session=True)  # fmt: skip

    @property
    def out(self) -> str:
        """What it printed so far."""
        return self.out_path.read_text(errors="replace")

    def wait(self, timeout: float = TIMEOUT) -> Finished:
        """Wait for its end; kills it and fails the test when it takes too long."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"the trainer took more than {timeout} s:\n{self.out[-2000:]}\n{self.err[-4000:]}")
        return Finished(code, self.out, self.err)

    @property
    def err(self) -> str:
        """What it wrote to stderr so far."""
        return self.err_path.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL to its whole group."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(10)

    def wait_for(self, text: str, timeout: float = TIMEOUT) -> None:
        """Wait until it has printed `text`."""
        end = time.monotonic() + timeout
        while text not in self.out:
            if self.process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"the trainer never printed {text!r}:\n{self.out[-2000:]}\n{self.err[-4000:]}")
            time.sleep(0.05)


def environment(folder: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a training container with `folder` as its output prefix and its temporary directory.

    What a trainer that was imported into the tests' own process has set (TF_USE_LEGACY_KERAS) is not in it.
    """
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("AIP_", "CLOUD_ML_", "TF_CONFIG", "TF_USE", "TRAINER_", "CLUSTER_SPEC"))}  # fmt: skip
    scratch = folder / "tmp"
    scratch.mkdir(parents=True, exist_ok=True)
    return {
        **kept,
        "PYTHONPATH": str(PACKAGE),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(scratch),
        "AIP_MODEL_DIR": str(folder / "model") + "/",
        "AIP_CHECKPOINT_DIR": str(folder / "checkpoints") + "/",
        "AIP_TENSORBOARD_LOG_DIR": str(folder / "logs") + "/",
        "CLOUD_ML_HP_METRIC_FILE": str(folder / "metrics" / "output.metrics"),
        **(extra or {}),
    }


def free_ports(number: int) -> list[int]:
    """Ports nobody listens on now, outside the range the kernel hands out for outgoing connections."""
    found: list[int] = []
    start = 20_000 + (os.getpid() * 131 + int(time.monotonic() * 1000)) % 12_000
    for port in range(start, start + 2_000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == number:
            return found
    raise RuntimeError("no free ports")


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """What trainers are forked from; test_trainer_run.py's default run and test_trainer_package.py start theirs anew."""
    made = Forks(environment(tmp_path_factory.mktemp("forks")))
    yield made
    made.close()


@pytest.fixture
def launch(tmp_path: Path, forks: Forks) -> Iterator[Callable[..., Launched]]:
    """`launch(*args, env={}, folder=tmp_path, name="task")` starts the trainer; all are killed at the end."""
    running: list[Launched] = []

    def start(*args: str, env: Mapping[str, str] | None = None, folder: Path = tmp_path, name: str = "task",
              python: str = sys.executable) -> Launched:  # fmt: skip
        process = Launched([python, "-m", "trainer.task", *args], environment(folder, env), folder / "run", name,
                           forks)  # fmt: skip
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()


@pytest.fixture
def launch_cluster(launch: Callable[..., Launched], tmp_path: Path) -> Callable[..., dict[str, Launched]]:
    """`launch_cluster({"chief": 1, "worker": 2}, *args)` starts a cluster on loopback; role-index -> process.

    As on Vertex AI, evaluators are no part of TF_CONFIG's cluster.
    """

    def start(roles: Mapping[str, int], *args: str, attempt: int = 0, env: Mapping[str, str] | None = None,
              python: str = sys.executable, folder: Path = tmp_path) -> dict[str, Launched]:  # fmt: skip
        ports = iter(free_ports(sum(roles.values())))
        cluster = {role: [f"127.0.0.1:{next(ports)}" for _ in range(number)] for role, number in roles.items()}
        cluster.pop("evaluator", None)
        started: dict[str, Launched] = {}
        for role, number in roles.items():
            for index in range(number):
                config = {"cluster": cluster, "task": {"type": role, "index": index}, "environment": "cloud"}
                name = f"{role}-{index}"
                started[name] = launch(*args, env={**(env or {}), "TF_CONFIG": json.dumps(config)},
                                       name=f"{name}-{attempt}" if attempt else name, python=python, folder=folder)  # fmt: skip
        return started

    return start


def summary(folder: Path) -> dict[str, Any]:
    """summary.json of a run in `folder`."""
    return dict(json.loads((folder / "model" / "summary.json").read_text()))


def metrics(folder: Path) -> list[dict[str, str]]:
    """The rows of the metric file of a run in `folder`."""
    return [json.loads(line) for line in (folder / "metrics" / "output.metrics").read_text().splitlines()]


def digests(processes: Mapping[str, Launched]) -> set[str]:
    """The hashes of the weights that the processes told."""
    return {found for process in processes.values() for found in re.findall(r"best weights: sha256 (\w+)", process.err)}


def finish(processes: Mapping[str, Launched]) -> None:
    """All processes end with 0."""
    for name, process in processes.items():
        ended = process.wait()
        assert ended.code == 0, f"{name}: {ended.text[-4000:]}"
