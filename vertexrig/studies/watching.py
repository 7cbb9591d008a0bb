"""What `watch` shows of a job: its state, the best so far, the trials that run, time, cost, last lines."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vertexrig.cloud.logs import PrintedLine
from vertexrig.cloud.vertex import TUNING, RemoteJob
from vertexrig.results.study import StudyRecord, course, read
from vertexrig.results.timeline import timeline
from vertexrig.spec.states import short
from vertexrig.studies import report
from vertexrig.studies.cost import Spent
from vertexrig.text import clean, shown
from vertexrig.times import length


@dataclass(frozen=True)
class RunningTrial:
    """A trial that runs.

    Args:
        custom_job: The number of its job, "" if it is not known.
        seconds: Since its start.
        last: What it reported last, as text; "" if the service lists nothing yet.
        parameters: As text.
    """

    id: str
    custom_job: str
    seconds: float
    last: str
    parameters: str


@dataclass(frozen=True)
class Watched:
    """A job at one moment.

    Args:
        title: Its name and number.
        facts: Names and values: best so far, time, money.
        jobs: Numbers of the custom jobs whose lines are worth showing.
    """

    title: str
    state: str
    facts: tuple[tuple[str, str], ...]
    trials: tuple[RunningTrial, ...]
    jobs: tuple[str, ...]


def watched(job: RemoteJob, cost: Spent | None, now: float) -> Watched:
    """Return a job at one moment.

    Args:
        cost: What it has cost until now; None if that cannot be estimated.
        now: Seconds since 1970.
    """
    title = f"{clean(job.display_name)}  {job.id}"
    if job.collection != TUNING:
        own = course(job.data)
        ran = (own.end if own.end is not None else now) - own.start if own.start is not None else None
        facts = [("ran for", length(max(0.0, ran)))] if ran is not None else []
        facts += [("cost, an estimate", cost.money())] if cost is not None else []
        return Watched(title, short(job.state), tuple(facts), (), (job.id,))
    study = read(job)
    facts = [*_best(study), *_ahead(study, cost, now)]
    running = _running(study, now)
    jobs = tuple(trial.custom_job for trial in running if trial.custom_job)
    return Watched(title, f"{short(job.state)}  {report.progress(job)}", tuple(facts), running, jobs)


def tails(lines: Sequence[PrintedLine], seen: Watched, each: int) -> list[tuple[str, str]]:
    """Return the last `each` lines of each replica: (replica, line); a trial's replica is named with its trial."""
    trial_of = {trial.custom_job: trial.id for trial in seen.trials}
    by_replica: dict[str, list[str]] = {}
    for line in lines:
        trial = trial_of.get(line.job)
        who = f"trial {trial} {line.replica}" if trial else line.replica
        by_replica.setdefault(who, []).extend(clean(part) for part in line.text.splitlines())
    return [(who, text) for who, texts in by_replica.items() for text in texts[-each:]]


def _best(study: StudyRecord) -> list[tuple[str, str]]:
    if not study.best:
        return [("best so far", "no trial counts yet")] if study.trials else []
    if len(study.goals) > 1:
        return [("not beaten so far", ", ".join(f"trial {trial.id}" for trial in study.best))]
    best, goal = study.best[0], study.goals[0]
    return [
        ("best so far", f"{clean(goal.id)} {shown(study.value(best), 5)}, trial {best.id} ({_values(best.parameters)})")
    ]


def _running(study: StudyRecord, now: float) -> tuple[RunningTrial, ...]:
    found = []
    for trial in study.trials:
        own = study.courses.get(trial.id)
        # A trial that is asked to stop still trains, and costs money.
        if trial.state not in ("ACTIVE", "STOPPING") or own is None:
            continue
        last = own.curve[-1] if own.curve else None
        metrics = ", ".join(f"{clean(name)} {shown(value, 5)}" for name, value in last.metrics.items()) if last else ""
        found.append(
            RunningTrial(
                id=clean(trial.id),
                custom_job=trial.custom_job.rpartition("/")[2],
                seconds=max(0.0, now - own.start) if own.start is not None else 0.0,
                last=f"{metrics} at step {last.step}" if last and last.step else metrics,
                parameters=_values(trial.parameters),
            )
        )
    return tuple(found)


def _ahead(study: StudyRecord, cost: Spent | None, now: float) -> list[tuple[str, str]]:
    """Return time and cost so far and, from the trials that ended, at the end."""
    when = timeline(study, None if study.job.ended else now)
    facts = []
    if when.spans:
        facts.append(("time so far", length(when.wall + (when.wait or 0.0))))
    facts += [("cost so far, an estimate", cost.money())] if cost is not None else []
    lengths = [span.end - span.start for span in when.spans if not span.running]
    left = study.asked - len(lengths)
    if study.job.ended or not lengths or left <= 0:
        return facts
    typical, gap = statistics.median(lengths), when.gap or 0.0
    # a trial that runs longer than the typical one may end at any moment: it counts as done
    done = sum(min(span.end - span.start, typical) for span in when.spans if span.running)
    to_run = max(0.0, left * typical - done)
    slots = max(1, min(study.parallel, left))
    facts.append(
        (
            "time left, an estimate",
            f"{length((to_run + left * gap) / slots)}, if the rest runs as the {len(lengths)} that ended",
        )
    )
    if cost is not None:
        facts.append(("cost at the end, an estimate", cost.money(cost.seconds + to_run)))
    return facts


def _values(parameters: Mapping[str, object]) -> str:
    return ", ".join(f"{clean(name)}={clean(shown(value, 4))}" for name, value in parameters.items())
