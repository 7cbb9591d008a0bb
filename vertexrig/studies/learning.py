"""Durations learned from a user's own finished jobs, as `gcloud ai ... describe` or `list --format=json` print them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from vertexrig.cloud.vertex import RemoteJob
from vertexrig.errors import UsageError
from vertexrig.explain.simulate import Learned
from vertexrig.spec.names import camel_keys
from vertexrig.studies.study import TrialCourse, course
from vertexrig.studies.timeline import pauses
from vertexrig.studies.trials import instant

SUCCEEDED = "SUCCEEDED"


def learned(jobs: Iterable[RemoteJob], source: str, *, sweep: bool) -> Learned:
    """Durations of finished jobs.

    Args:
        jobs: Tuning jobs and custom jobs.
        source: What they were read from, for messages.
        sweep: The durations are for a sweep: trials of tuning jobs count, and custom jobs where there is none of them.

    Raises:
        UsageError: No trial and no job in it has succeeded with a start and an end.
    """
    trial: list[float] = []
    single: list[float] = []
    start: list[float] = []
    between: list[float] = []
    end: list[float] = []
    for job in jobs:
        rows = [camel_keys(row) for row in job.data.get("trials") or ()]
        ran = [(row, own) for row in rows if (own := course(row)).start is not None and own.end is not None]
        whole = course(job.data)
        first = min((own.start for _, own in ran if own.start is not None), default=whole.start)
        created = instant(job.data.get("createTime"))
        if created is not None and first is not None and first >= created:
            start.append(first - created)
        if rows:
            trial += [_seconds(own) for row, own in ran if row.get("state") in (SUCCEEDED, 4)]
            between += pauses([(own.start or 0.0, own.end or 0.0) for _, own in ran])
            last = max((own.end for _, own in ran if own.end is not None), default=None)
            if last is not None and whole.end is not None and whole.end >= last:
                end.append(whole.end - last)
        elif job.state.endswith(SUCCEEDED) and whole.start is not None and whole.end is not None:
            single.append(_seconds(whole))
    chosen = (trial or single) if sweep else (single or trial)
    if not chosen:
        raise UsageError(
            f"{source}: no trial and no job in it succeeded with a start and an end, so no length is known"
        )
    return Learned(source, tuple(chosen), tuple(start), tuple(between), tuple(end) if sweep else ())


def parse(text: str, source: str) -> list[RemoteJob]:
    """Jobs in a file: one resource, a list of them, or this program's own JSON (`{"job": ...}`, `{"jobs": [...]}`).

    Raises:
        UsageError: It is neither JSON nor YAML, or holds no job.
    """
    try:
        data = json.loads(text)
    except ValueError:
        try:
            data = list(yaml.safe_load_all(text))
        except (yaml.YAMLError, RecursionError) as error:
            raise UsageError(f"{source} is neither JSON nor YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise UsageError(f"{source} is nested too deeply to be a description of jobs") from None
    found = list(_jobs(data))
    if not found:
        raise UsageError(
            f"{source} holds no job: give what `gcloud ai hp-tuning-jobs describe JOB --format=json` (or list) prints"
        )
    return found


def _jobs(data: Any) -> Iterator[RemoteJob]:
    if isinstance(data, list):
        for one in data:
            yield from _jobs(one)
    elif isinstance(data, Mapping):
        inner = data.get("job") or data.get("jobs")
        if isinstance(inner, (list, Mapping)):
            yield from _jobs(inner)
        elif data.keys() & {"studySpec", "jobSpec", "trialJobSpec", "trials"}:
            yield RemoteJob(data)


def _seconds(own: TrialCourse) -> float:
    return max(0.0, (own.end or 0.0) - (own.start or 0.0))
