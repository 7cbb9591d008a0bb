"""`vertexrig logs`: stream a job's log with gcloud."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click

from vertexrig.cli import options, remote, streams
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.output import result, say
from vertexrig.cloud.vertex import CUSTOM, RemoteJob, Vertex, region_of
from vertexrig.errors import ServiceError, UsageError, VertexrigError
from vertexrig.project import config
from vertexrig.results.study import read

_LATE_S = 10.0
"""Time in which the last lines of an ended job come: gcloud asks for entries that are five seconds old, every `--poll` seconds."""
_START_S = 20.0
"""Time in which gcloud starts: 2 s of a processor, and more on a busy machine."""


class _Stream:
    """The lines of a running `gcloud ai ... stream-logs`, until its job has ended.

    gcloud reads whether a job has ended only once, as it begins (gcloud 528, `CheckJobComplete`), and of a job that ran then it
    would ask for lines for ever. So the job is read here, and gcloud is stopped when it has ended and no more lines come.
    """

    def __init__(self, gcloud: subprocess.Popen[str], vertex: Vertex, job: str, poll: float) -> None:
        self._gcloud, self._vertex, self._job, self._poll = gcloud, vertex, job, poll
        self._last = time.monotonic() + _START_S
        threading.Thread(target=self._end, daemon=True).start()

    def __iter__(self) -> Iterator[str]:
        assert self._gcloud.stdout is not None
        for line in self._gcloud.stdout:
            self._last = time.monotonic()
            yield line.rstrip("\n")

    def _end(self) -> None:
        ended = False
        while self._gcloud.poll() is None:
            time.sleep(self._poll)
            with suppress(VertexrigError):  # it is asked again
                ended = ended or (job := self._vertex.get(self._job)) is None or job.ended
            if ended and time.monotonic() - self._last > _LATE_S + 2 * self._poll:
                self._gcloud.terminate()


def _lookup(vertex: Vertex, job: str, loaded: config.Loaded) -> RemoteJob:
    """Return the job. If it is not found, stderr names the log files of the rehearsal with that name."""
    try:
        return remote.lookup(vertex, loaded, job)
    except (UsageError, ServiceError):
        history = remote.history(loaded)
        record = history.find(job)
        if record is not None:
            jobs = history.folder.parent / "jobs"  # each trial of a sweep is a job
            own = jobs / record.job.id / "logs"
            streams.note(
                f"what the rehearsal {record.run or record.job.id} printed is in {own if own.is_dir() else jobs}"
            )
        raise


def _job_of_trial(job: str, sweep: RemoteJob, trial: str) -> str:
    """Return the resource name of the job that runs a trial.

    Raises:
        UsageError: The job is not a sweep, there is no such trial, or the service does not name its job.
    """
    if sweep.collection == CUSTOM:
        raise UsageError(f"{job} is a custom job; it has no trials: leave out --trial")
    jobs = {one.id: one.custom_job for one in read(sweep).trials}
    if trial not in jobs:
        raise UsageError(f"{job} has no trial {trial} (trials: {', '.join(jobs) or 'none has started yet'})")
    if not jobs[trial]:  # seven public listings of ended trials, 2021 to 2024, name no job
        raise UsageError(
            f"the service does not name the job of trial {trial}; `vertexrig logs {job}` streams the log of all trials"
        )
    return jobs[trial]


@click.command("logs")
@click.argument("job", cls=NameArgument)
@options.file_option
@click.option("--trial", metavar="ID", help="Stream the lines of one trial of a sweep, while it runs.")
@options.poll_option
@click.option("--print-command", is_flag=True, help="Print the gcloud command, and do not run it.")
@options.format_option("text", "json")
def command(job: str, file: Path | None, trial: str | None, poll: float, print_command: bool, format_: str) -> None:
    """Stream the log of JOB (name, id, resource name, or display name) with gcloud until the job has ended.

    The log of a sweep has the lines of all its trials; --trial shows those of one that runs.
    """
    loaded = config.load(file)
    vertex = remote.service(loaded)
    found = _lookup(vertex, job, loaded)
    name = found.name if trial is None else _job_of_trial(job, found, trial)
    group = "custom-jobs" if trial is not None or found.collection == CUSTOM else "hp-tuning-jobs"
    interval = max(1, round(poll))  # gcloud takes whole seconds, from 1
    where = [f"--project={vertex.project}", f"--region={region_of(name)}", f"--polling-interval={interval}"]
    words = ["gcloud", "ai", group, "stream-logs", name.rsplit("/", 1)[-1], *where]
    if print_command:
        result(format_, {"job": name, "command": shlex.join(words)}, shlex.join(words))
        return
    if shutil.which("gcloud") is None:
        raise UsageError("gcloud is not installed: https://cloud.google.com/sdk/docs/install")
    lines: list[str] = []
    # through a pipe: control codes in the log must not reach the terminal; unbuffered, so that lines show at once
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, errors="replace", env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as gcloud:
        for line in _Stream(gcloud, vertex, name, interval):
            if format_ == "json":
                lines.append(line)
            elif not say(line):
                gcloud.terminate()
                break
    result(format_, {"job": name, "lines": lines}, "")
    if gcloud.returncode > 0:
        raise ServiceError("gcloud could not stream the log")
