"""How a job runs on this machine (`RunOptions`), and what other threads ask of a running job (`Control`)."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from vertexrig.project.local import LocalImage

T = TypeVar("T")


@dataclass(frozen=True)
class TrainerSources:
    """A trainer that is run from its sources in place of the image that is made of them.

    Args:
        path: Its folder or script.
        module: What the image's ENTRYPOINT starts.
        packages: Folder for its package.
        framework: Framework in the image, such as tf, "" if none is named.
        version: The framework's version, "" if it is not known.
        python: Python in the image.
    """

    path: str
    module: str
    packages: str
    framework: str = ""
    version: str = ""
    python: str = ""


@dataclass(frozen=True)
class RunOptions:
    """How to run a job here.

    Args:
        job_id: Numeric id, of which folders, marks and container names are made; set for each job.
        project: Project id.
        project_number: Project number, what CLOUD_ML_PROJECT_ID holds.
        region: What CLOUD_ML_REGION holds.
        trial: Trial id, "" outside tuning jobs.
        study_id: Id of the trial's tuning job, "" outside tuning jobs.
        interpreters: Image pattern (as `*tf-cpu.2-17*`) to the Python used in its place, or to `auto`, which is for prebuilt images
            alone; the first that fits counts, and such an image is not run by an engine. Without one: see `pool_programs.python_for`.
        images: Image pattern to the folder used in place of a custom image.
        built: Image pattern to the trainer that the image is made of.
        engine: What runs images: `auto`, `docker`, `podman`, `nerdctl` or `none`.
        pull: `missing` has the engine pull an image that is not here, `never` does not.
        limits: `machine` gives containers the memory and processors of their machine type, `none` all of this machine.
        credentials: Pass the user's cloud credentials to replicas.
        extra_env: Variables set on every replica, such as STORAGE_EMULATOR_HOST.
        grace: Seconds between SIGTERM and SIGKILL.
        slow_start: Seconds each replica takes to become available.
        provision: Seconds it takes to get machines: before the replicas start, and each time all of them start again.
        tear_down: Seconds from the end of the last replica to the end of the job.
        memory_limit: Bytes a replica's processes may take together, 0 for no limit.
        warm: Let replicas start from a process that has made their imports; see `warm`.
        earlier: `JobResult.counts` of this job from the server that was stopped; the job goes on from them.
        keep_gs: Leave `gs://` paths in variables and arguments as they are; replicas reach them through the front.
        strict_gs: A replica that writes files to a local folder named `gs:` fails its job, which otherwise gets a warning.
    """

    job_id: str = ""
    project: str = "local-project"
    project_number: str = "123456789012"
    region: str = "us-central1"
    trial: str = ""
    study_id: str = ""
    interpreters: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, LocalImage] = field(default_factory=dict)
    built: Mapping[str, TrainerSources] = field(default_factory=dict)
    engine: str = "auto"
    pull: str = "never"
    limits: str = "none"
    credentials: bool = False
    extra_env: Mapping[str, str] = field(default_factory=dict)
    grace: float = 10.0
    slow_start: float = 0.0
    provision: float = 0.0
    tear_down: float = 0.0
    memory_limit: int = 0
    warm: bool = True
    keep_gs: bool = False
    strict_gs: bool = False
    earlier: Mapping[str, Any] = field(default_factory=dict)


def first_match(patterns: Mapping[str, T], image: str) -> T | None:
    """Return the value of the first pattern that fits an image URI."""
    return next((value for pattern, value in patterns.items() if fnmatchcase(image, pattern)), None)


class Control:
    """Asks a running job for something, from any thread.

    Attributes:
        cancelled: `cancel` was called.
        suspended: `suspend` was called.
    """

    def __init__(self) -> None:
        # re-entrant, because a signal handler that cancels may interrupt the very thread that holds it
        self._lock = threading.RLock()
        self.cancelled = False
        self.suspended = False
        # None when nothing is asked; 0.0 is a preemption without a window.
        self._preempted: float | None = None
        self._killed: list[str] = []
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)  # a full pipe must not stop the thread that asks

    @property
    def ends(self) -> bool:
        """Whether its processes are to end, for either reason."""
        return self.cancelled or self.suspended

    def cancel(self) -> None:
        """End the job; its state becomes CANCELLED."""
        self.cancelled = True
        self._ring()

    def suspend(self) -> None:
        """End the processes but not the job: the server shuts down, and the next one continues the job."""
        self.suspended = True
        self._ring()

    def kill(self, replica: str) -> None:
        """Kill one replica with SIGKILL, as the loss of its machine would."""
        with self._lock:
            self._killed.append(replica)
        self._ring()

    def preempt(self, grace: float = 0.0) -> None:
        """Take the machines away, as happens to Spot VMs: SIGTERM, then SIGKILL after `grace` seconds; at once if it is 0."""
        with self._lock:
            self._preempted = grace
        self._ring()

    def take_faults(self) -> tuple[float | None, list[str]]:
        """Return the window of a preemption that was asked for, and the replicas to kill; each is handed out once."""
        with self._lock:
            preempted, killed = self._preempted, self._killed
            self._preempted, self._killed = None, []
        return preempted, killed

    def fileno(self) -> int:
        """Descriptor that becomes readable when something was asked."""
        return self._read

    def wait(self, seconds: float) -> None:
        """Wait for `seconds`, or less if another thread asks for something."""
        select.select([self], [], [], seconds)

    def _ring(self) -> None:
        # under the lock, because the number of a pipe that was closed meanwhile may be that of another file
        with self._lock, suppress(OSError):  # a full pipe rings as well; a closed one has no reader
            os.write(self._write, b"!")

    def close(self) -> None:
        """Free the pipe; what is asked after that is ignored."""
        with self._lock:
            for end in (self._read, self._write):
                with suppress(OSError):
                    os.close(end)
            self._read = self._write = -1
