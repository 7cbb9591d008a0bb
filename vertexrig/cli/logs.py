"""`vertexrig logs`: what a job's replicas print, by gcloud."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import click

from vertexrig.cli import options, remote, streams
from vertexrig.cli.names import NameArgument
from vertexrig.cli.output import result
from vertexrig.cloud.vertex import CUSTOM, RemoteJob, Vertex
from vertexrig.errors import ServiceError, UsageError


def _lookup(vertex: Vertex, job: str, file: Path | None) -> RemoteJob:
    """The job; where there is none, or it cannot be asked for, stderr names the files of a rehearsal of that name."""
    try:
        return vertex.lookup(job)
    except (UsageError, ServiceError):
        history = remote.history(file)
        record = history.find(job)
        if record is not None:
            jobs = history.folder.parent / "jobs"  # a sweep's trials are jobs of their own
            own = jobs / record.job.id / "logs"
            streams.note(
                f"what the rehearsal {record.run or record.job.id} printed is in {own if own.is_dir() else jobs}"
            )
        raise


@click.command("logs")
@click.argument("job", cls=NameArgument)
@options.file_option
@click.option("--trial", metavar="ID", help="For a sweep: the trial whose job to show.")
@options.poll_option
@click.option("--print-command", is_flag=True, help="Only print the gcloud command.")
@options.format_option("text", "json")
def command(job: str, file: Path | None, trial: str | None, poll: float, print_command: bool, format_: str) -> None:
    """Stream the log of JOB (number, resource name, or display name) until it has ended, with `gcloud ... stream-logs`."""
    from vertexrig.studies import trials

    vertex = remote.vertex(file)
    found = _lookup(vertex, job, file)
    name = found.name
    if found.collection != CUSTOM:
        jobs = {one.id: one.custom_job for one in trials.results(found.data)}
        if trial is None or not jobs.get(trial):
            known = ", ".join(id for id, one in jobs.items() if one) or "none yet"
            raise UsageError(f"{job} is a sweep: name one of its trials with --trial ({known})")
        # A sweep has no log of its own: each trial is a custom job, whose log it is.
        name = jobs[trial]
    # gcloud takes whole seconds for its polling interval, from 1.
    place = [f"--project={vertex.project}", f"--region={vertex.region}", f"--polling-interval={max(1, round(poll))}"]
    words = ["gcloud", "ai", "custom-jobs", "stream-logs", name.rsplit("/", 1)[-1], *place]
    if print_command:
        result(format_, {"job": name, "command": shlex.join(words)}, shlex.join(words))
        return
    if shutil.which("gcloud") is None:
        raise UsageError("gcloud is not installed: https://cloud.google.com/sdk/docs/install")
    done = subprocess.run(words, stdout=subprocess.PIPE if format_ == "json" else None, text=True, errors="replace")
    result(format_, {"job": name, "lines": (done.stdout or "").splitlines()}, "")
    if done.returncode:
        raise ServiceError("gcloud could not stream the log")
