"""The lines that the service itself writes into a job's log, in their order: before the replicas, about each of them, and after them.

Source: eleven public `stream-logs` of GPU jobs with a Python package, us-central1, February 2026, and one of a container that
ran out of memory, May 2026. Lines of the executor are known of package jobs only; a container has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from subprocess import CalledProcessError

from localvertex.runner.children import Exit
from localvertex.runner.packages import InstallationLog
from vertexrig.spec.cluster import Replica, executor_job
from vertexrig.spec.document import Pool

BEFORE = (
    "Waiting for job to be provisioned.",
    "Vertex AI is provisioning job running framework. First time usage might take couple of minutes, and subsequent runs "
    "can be much faster.",
    "Vertex AI is setting up this job.",
    "Waiting for training program to start.",
    "Job is preparing.",
)
RUNNING = "Job is running."
TASK_COMPLETED = "Task completed. Exit code (0). Exit reason (SUCCEEDED)"
TEARING_DOWN = "Tearing down training program."  # seen where the job succeeded
TORN_DOWN = "Finished tearing down training program."
SUCCEEDED, FAILED = "Job completed successfully.", "Job failed."
CANCELLED = "Job cancelled."
JOB_STATES = {
    BEFORE[0]: "QUEUED", BEFORE[-1]: "PREPARING", RUNNING: "RUNNING", SUCCEEDED: "SUCCEEDED", CANCELLED: "CANCELLED", FAILED: "FAILED",
}  # fmt: skip
"""The state that the entries of some lines have as a label (logs of 2026-02-19, index ids 52609974428 and 52481721796; FAILED is inferred)."""

# The characters that Gson escapes by default (htmlSafe).
_ESCAPED = {ord(char): f"\\u{ord(char):04x}" for char in "=<>&'"}


def fetching(pool: Pool, one: Replica, everyone: Iterable[Replica]) -> list[str]:
    """Return what the executor says of a replica up to its packages being there; nothing of a container."""
    if pool.python_package is None:
        return []
    cluster: dict[str, list[str]] = {}
    for replica in everyone:
        cluster.setdefault(replica.role, []).append(replica.address)
    task = {"type": one.role, "index": one.index}
    job = executor_job(pool).translate(_ESCAPED)
    arguments = f"--cluster={json.dumps(cluster)} --task={json.dumps(task)} --job={job}"
    # Of the chief alone, whose address it is.
    lines = [f"Updating master address to local address {one.host}"] if one.pool_index == 0 else []
    lines += ["Running run_module.py", f"Running task with arguments: {arguments}", f"Running module {pool.module}."]
    for uri in pool.package_uris:
        lines += [f"Downloading the package: {uri}", f"Running command: gsutil -q cp {uri} {_name(uri)}"]
    return lines


def installing(uri: str) -> list[str]:
    """Return what the executor says before a package is installed."""
    command = f"pip3 install --user --upgrade --force-reinstall --no-deps {_name(uri)}"
    return [f"Installing the package: {uri}", f"Running command: {command}"]


def requirements(uri: str) -> list[str]:
    """Return what the executor says before the requirements of a package are installed."""
    return [f"Running command: pip3 install --user {_name(uri)}"]


def installation(pool: Pool, log: InstallationLog) -> list[tuple[str, str]]:
    """Return what the executor and pip say, with severities, of packages that another replica or job has installed here."""
    said = {(name, of_requirements): lines for name, of_requirements, lines in log}
    found: list[tuple[str, str]] = []
    # In the order of `packages`: every package, and then the requirements of each.
    for of_requirements, texts_of in ((False, installing), (True, requirements)):
        for uri in pool.package_uris:
            found += [("INFO", text) for text in texts_of(uri)]
            found += [(severity, text) for severity, text in said.get((_name(uri), of_requirements), ())]
    return found


def starting(pool: Pool) -> list[str]:
    """Return what the executor says before the trainer starts."""
    if pool.python_package is None:
        return []
    return [f"Running command: python3 -m {' '.join([pool.module, *pool.args])}"]


def ended(pool: Pool) -> list[str]:
    """Return what the executor says once the trainer has ended with 0."""
    return [] if pool.python_package is None else [TASK_COMPLETED]


def failed(
    pool: Pool, one: Replica, everyone: Iterable[Replica], exit_: Exit, log: InstallationLog, *, again: bool
) -> list[tuple[str, str]]:
    """Return what the executor says, with severities, once the trainer has ended with an error.

    On the service the executor then begins again, with fetching and installing the packages, before the job ends (as recorded). With
    `again`, these lines are returned, too; the local Vertex runs nothing a second time.
    """
    if pool.python_package is None or exit_.signal is not None:
        return []
    ended = CalledProcessError(exit_.code, ["python3", "-m", pool.module, *pool.args])
    completed = f"Task completed. Exit code ({exit_.code}). Exit reason (SUBPROCESS_EXCEPTION)"
    first = [completed, *(fetching(pool, one, everyone) if again else [])]
    return [("ERROR", str(ended)), *(("INFO", line) for line in first), *(installation(pool, log) if again else [])]


def before_start(pool: Pool, one: Replica, everyone: Iterable[Replica], log: InstallationLog) -> list[tuple[str, str]]:
    """Return all that the executor says of a replica, with severities, before its trainer starts, where nothing is left to install."""
    before, after = fetching(pool, one, everyone), starting(pool)
    return [*(("INFO", text) for text in before), *installation(pool, log), *(("INFO", text) for text in after)]


def cold(name: str, reason: str) -> str:
    """Return the line about a replica that imports its framework itself. The service writes no such line."""
    return f"{name} starts cold: {reason}."


def warm(name: str, module: str) -> str:
    """Return the line about a replica that was forked from a process with its imports. The service writes no such line."""
    return f"{name} starts warm, from a process that has imported {module}."


def _name(uri: str) -> str:
    return uri.rpartition("/")[2]
