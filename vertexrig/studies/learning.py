"""Durations learned from a user's own finished jobs, as `gcloud ai ... describe` or `list --format=json` print them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from vertexrig.cloud.vertex import RemoteJob
from vertexrig.errors import UsageError
from vertexrig.explain.simulate import Learned
from vertexrig.results.timeline import pauses
from vertexrig.results.trials import instant
from vertexrig.spec.api_names import camel_keys
from vertexrig.text import quoted

SUCCEEDED = "SUCCEEDED"


def learned(jobs: Iterable[RemoteJob], source: str, *, sweep: bool) -> Learned:
    """Return the durations of finished jobs.

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
        begun, ended = instant(job.data.get("startTime")), instant(job.data.get("endTime"))
        rows = [camel_keys(row) for row in job.data.get("trials") or ()]
        ran = [(own, row.get("state")) for row in rows if (own := _ran(row)) is not None]
        first = min((own[0] for own, _ in ran), default=begun)
        created = instant(job.data.get("createTime"))
        # clocks of the service and of a trial may differ: a wait below 0 is not learned from
        if created is not None and first is not None and first >= created:
            start.append(first - created)
        if rows:
            trial += [_seconds(own) for own, state in ran if state in (SUCCEEDED, 4)]  # 4 in the SDK's to_dict()
            between += pauses([own for own, _ in ran])
            last = max((own[1] for own, _ in ran), default=None)
            if last is not None and ended is not None and ended >= last:
                end.append(ended - last)
        elif job.state.endswith(SUCCEEDED) and (whole := _ran(job.data)) is not None:
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
        data = json.loads(text)  # before YAML, which would read it as well, but takes far longer for a long listing
    except ValueError:
        try:
            data = list(yaml.safe_load_all(text))
        except (yaml.YAMLError, RecursionError) as error:
            raise UsageError(f"{source} is neither JSON nor YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise UsageError(f"{source} is nested too deeply to be a description of jobs") from None
    found = list(_jobs(data, source))
    if not found:
        raise UsageError(
            f"{source} holds no job: give what `gcloud ai hp-tuning-jobs describe JOB --format=json` (or list) prints"
        )
    return found


def _jobs(data: Any, source: str) -> Iterator[RemoteJob]:
    if isinstance(data, list):
        for one in data:
            yield from _jobs(one, source)
    elif isinstance(data, Mapping):
        inner = data.get("job") or data.get("jobs")
        if isinstance(inner, (list, Mapping)):
            yield from _jobs(inner, source)
        elif data.keys() & {"studySpec", "jobSpec", "trialJobSpec", "trials"}:
            trials = data.get("trials") or []
            if not isinstance(trials, list) or not all(isinstance(row, Mapping) for row in trials):
                raise UsageError(f"{source}: trials is {quoted(trials)}; a list of mappings belongs there")
            yield RemoteJob(data)


def _ran(row: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return when a trial or a job started and ended; None where one of the two is not known."""
    start, end = instant(row.get("startTime")), instant(row.get("endTime"))
    return None if start is None or end is None else (start, end)


def _seconds(ran: tuple[float, float]) -> float:
    return max(0.0, ran[1] - ran[0])
