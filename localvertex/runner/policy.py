"""What the service does when a replica ends: which exits are permanent, what is tried again and how often.

Source: the page understanding-training-service of the Vertex AI documentation as of 2026-08-22. A user's own exception
is permanent; SIGABRT and SIGSEGV are retried; running out of memory is permanent; a lost worker is restarted with the
same name, up to five times, after which the whole job is retried up to three times.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from localvertex.runner.children import Exit
from localvertex.runner.result import JobError
from vertexrig.times import duration_seconds

WORKER_RESTARTS = 5
JOB_RETRIES = 3
SPOT_RESTARTS = 6
"""Spot: Compute Engine tries up to six times (page use-spot-vms, 2026-08-22)."""

RETRIED_CODES = frozenset({6, 134, 11, 139})
"""SIGABRT and SIGSEGV, as a shell and as a program report them."""

_UNSTARTED = 128
"""The exit code of what could not be started."""

_OWN_SIGNALS = frozenset({6, 11})
"""Signals whose number the executor of a package reports as its status, by the page understanding-training-service."""

LOST_SIGNALS = frozenset({1, 2, 9, 15})
"""Signals a program does not send itself: its machine went, or somebody else ended it."""

# google.rpc.Code
CANCELLED_CODE, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, RESOURCE_EXHAUSTED, INTERNAL = 1, 3, 4, 5, 8, 13
ON_CANCEL = JobError(CANCELLED_CODE, "CANCELED")
"""The error of a job that was cancelled."""


class Action(Enum):
    """What follows from a replica's end."""

    LEAVE = "the replica is done, the job continues"
    SUCCEED = "the primary replica is done, and with it the job"
    RESTART_REPLICA = "the replica starts again, under the same name"
    RESTART_JOB = "all replicas start again, because one has to"
    RETRY_JOB = "the job is tried again"
    FAIL = "the job fails"


@dataclass(frozen=True)
class Scheduling:
    """The fields of a job's `scheduling` that decide on retries, and its timeout in seconds (default 7 days)."""

    restart_job: bool = False
    disable_retries: bool = False
    timeout: float = 7 * 86400.0


@dataclass
class Counts:
    """How often replicas (by name) and the job were started again, how often it was preempted, and the seconds of its timeout that it has used."""

    restarts: dict[str, int] = field(default_factory=dict)
    retries: int = 0
    preemptions: int = 0
    used: float = 0.0


def decide(exit_: Exit, replica: str, scheduling: Scheduling, counts: Counts) -> Action:
    """Return what the service does after a replica ended; `workerpool0-0` is the primary."""
    if exit_.code == 0:
        return Action.SUCCEED if replica == "workerpool0-0" else Action.LEAVE
    # The kernel ends a program that ran out of memory by SIGKILL, too; that one is permanent.
    lost = exit_.signal in LOST_SIGNALS and not exit_.out_of_memory
    if scheduling.disable_retries or exit_.out_of_memory or not (lost or exit_.code in RETRIED_CODES):
        return Action.FAIL
    if lost and counts.restarts.get(replica, 0) < WORKER_RESTARTS:
        return Action.RESTART_JOB if scheduling.restart_job else Action.RESTART_REPLICA
    return Action.RETRY_JOB if counts.retries < JOB_RETRIES else Action.FAIL


# Not of shared memory, such as that of PyTorch's data loader: a larger disk does not help there.
_NO_SPACE = re.compile(
    r"^(?!.*(?:/torch_|/dev/shm|shared memory)).*(?:No space left on device|\[Errno 28\])", re.MULTILINE
)
_LAST_LINES = 10


def lacking(replica: str, exit_: Exit, lines: Sequence[str]) -> JobError | None:
    """Return the error of a job whose replica had too little memory or disk, None if it ended for another reason; `lines` are its stderr's.

    The service looks at the machine's boot disk; here the replica's last lines say that a disk is full. Sources: public errors of
    2025-11 (the disk's sentence, with code 8) and 2026-07 (memory with code 8).
    """
    pool = replica.rpartition("-")[0]
    if exit_.out_of_memory:
        text = f"Replicas low on memory: {pool}. Specify a machine with larger memory and try again."
    elif _NO_SPACE.search("\n".join(lines[-_LAST_LINES:])):
        page = "https://cloud.google.com/vertex-ai/docs/reference/rest/v1/DiskSpec"
        text = f"Replicas low on disk: {pool}. Specify a larger bootDiskSizeGb {page} and try again."
    else:
        return None
    return JobError(RESOURCE_EXHAUSTED, text)


def exit_message(replica: str, exit_: Exit, stderr: str, project: str, job_id: str, *, package: bool) -> str:
    """Return the error of a job whose replica, with this `quoted_output`, failed, in the service's words (public logs of 2025-07 to 2026-05).

    The URL in it leads to the real console, which does not have the job; it stays because programs read the job's number from it.
    """
    reason = f" Termination reason: Error. \n{stderr}\n\n" if stderr else " Termination reason: Error. "
    if exit_.code == _UNSTARTED:
        reason = f" Termination reason: StartError. \nTermination log message: failed to create containerd task: failed to create shim task: {stderr}\n\n"
    status = int(exit_.signal) if package and exit_.signal in _OWN_SIGNALS else exit_.code
    return (
        f"The replica {replica} exited with a non-zero status of {status}.{reason}"
        f"To find out more about why your job exited please check the logs: https://console.cloud.google.com/logs/viewer"
        f"?project={project}&resource=ml_job%2Fjob_id%2F{job_id}&advancedFilter=resource.type%3D%22ml_job%22%0A"
        f"resource.labels.job_id%3D%22{job_id}%22"
    )


def internal(error: OSError) -> JobError:
    """Return a failure of this machine, such as a full disk."""
    return JobError(INTERNAL, f"Internal error occurred for the current attempt: {error}")


def stockout_message(region: str) -> str:
    """Return the service's message when it has no machines (also after Spot preemptions)."""
    return f"Resources are insufficient in region: {region}. Try a different region or use a different accelerator."


_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):", re.MULTILINE)
_FRAME = re.compile(r'^  File "', re.MULTILINE)
# What Kubernetes keeps of the output of a container that failed (terminationMessagePolicy FallbackToLogsOnError: 2048 bytes). That
# the service reads it from there is inferred: recorded tracebacks lose their first frames.
_MOST_WORDS = 2048
# Less of a Python package's traceback is kept. The number is inferred from two errors of 2026-02: one has five frames of 904 characters
# and not the sixth, the other a whole traceback of 845 characters.
_MOST_OF_PACKAGE = 1024


def quoted_output(stderr: list[str], exit_: Exit, *, package: bool) -> str:
    """Return the part of stderr that the job's error quotes: the last traceback, shortened as the service does.

    Without a traceback it is the last ten lines of a Python package, and "" for a container (tensorflow/models issue 10735). Of a program
    that could not start it is the reason.

    Args:
        stderr: The last lines of stderr. A long traceback may have lost its first line, `Traceback (…)`; its `File "…"` lines are enough.
    """
    if exit_.code == _UNSTARTED:
        return "\n".join(stderr[-1:])
    text = "\n".join(stderr)
    starts = [match.start() for match in _TRACEBACK.finditer(text)]
    # Of chained exceptions the last traceback is the one that ended the program.
    whole = text[starts[-1] :] if starts else text
    # A traceback that fits whole, or none at all, is left to the lines after this loop.
    for most in (_MOST_OF_PACKAGE, _MOST_WORDS) if package else (_MOST_WORDS,):  # the second for a long last frame
        frame = _FRAME.search(whole, max(0, len(whole) - most))
        if frame and (len(whole) > most or not starts):  # shortened, or without its head
            return f"Traceback (most recent call last):\n  [...]\n{whole[frame.start() :]}"
    words = whole if starts else "\n".join(stderr[-10:]) if package else ""
    return words if len(words) <= _MOST_WORDS else "…" + words[-_MOST_WORDS:]


def scheduling_of(spec: Mapping[str, Any]) -> Scheduling:
    """Return the scheduling of a CustomJobSpec."""
    data = spec.get("scheduling") or {}
    disable = bool(data.get("disableRetries", False))
    return Scheduling(
        # disableRetries sets restartJobOnWorkerRestart to false (REST reference of CustomJobSpec, 2026-08-22).
        restart_job=bool(data.get("restartJobOnWorkerRestart", False)) and not disable,
        disable_retries=disable,
        timeout=max(duration_seconds(data.get("timeout")) or 0.0, 0.0) or Scheduling.timeout,
    )
