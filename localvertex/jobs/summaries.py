"""What `local run` prints of a job beside its state and its error: what the service does not say."""

from __future__ import annotations

from pathlib import Path

from localvertex.http import Json
from localvertex.jobs import resources
from localvertex.jobs.store import ResourceStore, StoredResource
from localvertex.runner.job_files import job_folder
from vertexrig.spec.states import FAILED


def summary(store: ResourceStore, root: Path, one: StoredResource) -> Json:
    """Return the warnings of a job and the hint at why it failed; of a failed one also its last lines and the folder of its logs.

    Args:
        store: Where it is kept.
        root: The local Vertex's folder.
        one: The job, or a pipeline, which has what its job has.
    """
    job = store.get(str(one.hidden["job"])) if "job" in one.hidden else one
    hidden = job.hidden if job else {}
    found = {"warnings": list(hidden.get("warnings", ())), "hint": hidden.get("hint", "")}
    return {**found, **(_failure(root, job) if job else {})}


def _failure(root: Path, job: StoredResource) -> Json:
    """Return the last lines of the replica that failed a custom job, and the folder of the job's logs."""
    logs = job_folder(root.absolute(), resources.last_part(job.name)) / "logs"
    if job.body.get("state") != FAILED or not logs.is_dir():
        return {}
    return {"printed": list(job.hidden.get("printed", ())), "logs": str(logs)}
