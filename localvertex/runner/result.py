"""How a job ended."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vertexrig.spec.states import SUCCEEDED


def new_job_id() -> str:
    """Return a numeric id as the service's: 19 digits, within a signed 64-bit integer."""
    return str(10**18 + secrets.randbelow(8 * 10**18))


SUSPENDED = "SUSPENDED"
"""Not a state of the service: the run was broken off by `Control.suspend` and can be taken up again."""


@dataclass(frozen=True)
class JobError:
    """Why a job failed: a google.rpc.Code and the service's sentence."""

    code: int
    message: str


@dataclass(frozen=True)
class JobResult:
    """How a job ended.

    Args:
        state: `JOB_STATE_SUCCEEDED`, `JOB_STATE_FAILED` or `JOB_STATE_CANCELLED` (`SUSPENDED` after `Control.suspend`).
        error: The service's error, None on success.
        failed_replica: The replica that failed the job, "" if none did.
        quoted_output: What the error quotes of that replica's stderr (`policy.quoted_output`): its last traceback; without one, of a Python package its last
            lines, of a container nothing. After a failed installation, pip's last lines.
        hint: What the failure usually means and what to do, "" if the failure is not a known one; the job's log has it, too.
        differences: A sentence for each thing that is not as on Vertex AI.
        folder: The job's own folder: logs, working directories and metric files.
        counts: What the next server needs to continue the job (`policy.Counts`).
        warnings: A sentence for each thing that went wrong without failing the job; it would not fail it on the service either.
        printed: The last lines that the failed replica printed, each as `clean` returns it and shortened; empty if the error quotes what it
            wrote on stderr.
    """

    state: str
    error: JobError | None
    failed_replica: str
    quoted_output: str
    hint: str
    differences: tuple[str, ...]
    folder: Path
    counts: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    printed: tuple[str, ...] = ()

    @property
    def succeeded(self) -> bool:
        return self.state == SUCCEEDED
