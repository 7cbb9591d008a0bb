"""A chain of studies, each of which follows the one before, as one study."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from vertexrig import spec
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.project.config import Loaded
from vertexrig.results import trials
from vertexrig.results.study import StudyRecord, read
from vertexrig.results.timeline import Timeline, timeline
from vertexrig.spec.parameters import Parameter, everywhere, top
from vertexrig.spec.states import short
from vertexrig.studies import cost, report
from vertexrig.studies.cost import Spent
from vertexrig.studies.outcome import FOLLOWS
from vertexrig.times import length


@dataclass(frozen=True)
class Link:
    """One study of a chain.

    Args:
        name: Its sweep.
        job: Its HyperparameterTuningJob.
        spent: What it has cost.
    """

    name: str
    job: RemoteJob
    spent: Spent

    @property
    def size(self) -> int:
        """How many trials it has."""
        return len(self.job.data.get("trials") or ())


@dataclass(frozen=True)
class StudyChain:
    """Studies that follow each other.

    Args:
        links: Each of them, the first one first.
    """

    links: tuple[Link, ...]

    @cached_property
    def study(self) -> StudyRecord:
        """All of them as one study, whose trials are called `tune-2/7`."""
        return read(RemoteJob(joined([link.job.data for link in self.links], [link.name for link in self.links])))

    @property
    def title(self) -> str:
        names = [link.name for link in self.links]
        return f"{names[0]} to {names[-1]}: {len(names)} studies" if len(names) > 1 else names[0]

    @property
    def marks(self) -> list[tuple[str, int]]:
        """The name of each study, and how many trials are before its first."""
        found, before = [], 0
        for link in self.links:
            found.append((link.name, before))
            before += link.size
        return found

    def money(self) -> str:
        """Return what all of them have cost, as text."""
        return cost.money(self.usd, complete=all(link.spent.complete for link in self.links))

    @property
    def usd(self) -> float | None:
        """US dollars of all that have a sourced price; None if none has."""
        known = [usd for link in self.links if (usd := link.spent.usd) is not None]
        return sum(known) if known else None

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per study: its trials, its best trial, and their time and cost.

        Keys: `study`, `state`, `trials`, `count` (trials that count), `best` (the id of its best trial by the first goal, None
        without one), `metrics` (of that trial), `seconds` (of all its trials), `usd` (an estimate), `note` ("best" where a best trial
        of all is in it).
        """
        winners = {trial.id for trial in self.study.best}
        goals = [goal.id for goal in self.study.goals]
        rows = []
        for link, ids in self._ids():
            ranked = [trial for trial in self.study.ranked if trial.id in ids]
            metrics = ranked[0].metrics if ranked else {}
            usd = link.spent.usd
            rows.append(
                {
                    "study": link.name,
                    "state": short(link.job.state),
                    "trials": link.size,
                    "count": len(ranked),
                    "best": ranked[0].id if ranked else None,
                    "metrics": {name: metrics.get(name) for name in goals},
                    "seconds": round(link.spent.seconds, 3),
                    "usd": None if usd is None else round(usd, 4),
                    "note": "best" if winners & ids else "",
                }
            )
        return rows

    def data(self) -> dict[str, Any]:
        """As JSON: each study, and the cost of all, an estimate."""
        complete = self.usd is not None and all(link.spent.complete for link in self.links)
        usd = None if self.usd is None else round(self.usd, 4)
        return {"studies": self.rows(), "estimate": True, "usd": usd, "complete": complete}

    def timeline(self) -> Timeline:
        """Return when the trials ran, each study right after the one before: the pauses between studies are left out."""
        parts = []
        for link, ids in self._ids():
            courses = {name: own for name, own in self.study.courses.items() if name in ids}
            parts.append(timeline(replace(self.study, job=link.job, courses=courses)))
        # a study that has not begun has no position in time; if none has begun, the first gives the empty timeline
        parts = [part for part in parts if part.spans] or parts[:1]
        spans, end = list(parts[0].spans), max((span.end for span in parts[0].spans), default=0.0)
        for part in parts[1:]:
            shift = end - part.spans[0].start
            spans += [replace(span, start=span.start + shift, end=span.end + shift) for span in part.spans]
            end += part.wall
        gaps = [span.gap for span in spans if span.gap is not None]
        return Timeline(
            tuple(spans),
            parts[0].wait,
            wall=sum(part.wall for part in parts),
            busy=sum(part.busy for part in parts),
            most=max(part.most for part in parts),
            gap=statistics.median(gaps) if gaps else None,
        )

    def _ids(self) -> Iterator[tuple[Link, set[str]]]:
        """Yield each study with the ids of its trials in the chain."""
        # by position: an id of the chain is put together of two names, and is not taken apart again
        ids = [trial.id for trial in self.study.trials]
        for link, (_, before) in zip(self.links, self.marks, strict=True):
            yield link, set(ids[before : before + link.size])


def names(loaded: Loaded, sweep: str) -> list[str]:
    """Return the sweeps that a sweep follows, the first one first, and itself: by the label that `follow-up` writes."""
    found = [sweep]
    while True:
        before = loaded.project.sweeps[found[0]].labels.get(FOLLOWS, "") if found[0] in loaded.project.sweeps else ""
        # a person may write the label, too: of a sweep that is gone, or in a circle
        if not before or before in found or before not in loaded.project.sweeps:
            return found
        found.insert(0, before)


def page(chain: StudyChain) -> str:
    """Return a chain of studies as a Markdown page: each study, the cost of all, and every trial as of one study."""
    rows = [
        {
            **{key: value for key, value in row.items() if key not in ("seconds", "usd", "note")},
            "time": length(row["seconds"]),
            "cost": link.spent.money(),
            "note": row["note"],
        }
        for row, link in zip(chain.rows(), chain.links, strict=True)
    ]
    lines = [f"# {chain.title}", "", f"- trials: {len(chain.study.trials)}", f"- cost, an estimate: {chain.money()}"]
    lines += ["", "## Studies", "", *report.markdown(rows)]
    return "\n".join([*lines, "", "## Trials", "", *report.markdown(trials.table(chain.study.job.data))]) + "\n"


def joined(jobs: Sequence[Mapping[str, Any]], sweeps: Sequence[str] = ()) -> dict[str, Any]:
    """Return several HyperparameterTuningJobs as one: every trial, in one space that holds them all.

    A trial's id gets its study's name in front: `tune-2/7`. A parameter that a later study froze is read from the arguments
    of its trials, so that every trial has a value where it had one. Metrics and state are those of the last study.

    Args:
        jobs: As the service describes them, the first study first.
        sweeps: What each is called; by default its display name.
    """
    called = sweeps or [str(job.get("displayName", "")) for job in jobs]
    last = dict(jobs[-1])
    specs = [trials.study_spec(job) for job in jobs]
    # every parameter of each study by id, conditional ones too
    flat = [{own.id: own for own in everywhere(top(one.get("parameters", ())))} for one in specs]
    ids = list(dict.fromkeys(name for one in flat for name in one))
    kinds = {name: {own[name].kind for own in flat if name in own} for name in ids}
    rows: list[dict[str, Any]] = []
    for job, own, name_of in zip(jobs, flat, called, strict=True):
        given = _arguments(job)
        frozen = {name: given[name] for name in ids if name not in own and name in given}
        for row in job.get("trials") or ():
            more = [{"parameterId": name, "value": _value(text, kinds[name])} for name, text in frozen.items()]
            rows.append(
                {
                    **row,
                    "id": f"{name_of}/{row.get('id', '')}",
                    "parameters": [*(row.get("parameters") or ()), *more],
                }
            )
    values = {
        name: [one.get("value") for row in rows for one in row["parameters"] if one.get("parameterId") == name]
        for name in ids
    }
    parameters = [_hull(name, [own[name] for own in flat if name in own], values[name]) for name in ids]
    # the whole begins when the first study did, and ends as the last one does
    first = {key: jobs[0][key] for key in ("createTime", "startTime") if key in jobs[0]}
    study = {**specs[-1], "parameters": parameters}
    return {**last, **first, "studySpec": study, "trials": rows, **_counts(jobs)}


def _counts(jobs: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many trials the studies were asked for, and the most at one time."""
    asked = [int(job.get("maxTrialCount") or len(job.get("trials") or ())) for job in jobs]
    return {
        "maxTrialCount": sum(asked),
        "parallelTrialCount": max(int(job.get("parallelTrialCount") or 1) for job in jobs),
    }


def _hull(name: str, specs: Sequence[Parameter], values: Sequence[Any]) -> dict[str, Any]:
    """Return one parameter that takes every value which one of several studies had."""
    if any(own.kind == "CATEGORICAL" for own in specs):
        texts = [str(value) for own in specs for value in own.values] + [str(value) for value in values]
        return {"parameterId": name, "categoricalValueSpec": {"values": list(dict.fromkeys(texts))}}
    numbers = [float(bound) for own in specs for bound in own.bounds if bound is not None]
    numbers += [float(value) for value in values if isinstance(value, (int, float))]
    if all(own.kind == "DISCRETE" for own in specs):
        listed = {float(value) for own in specs for value in own.values} | {float(one) for one in numbers}
        return {"parameterId": name, "discreteValueSpec": {"values": sorted(listed)}}
    # one study may list the values of which another searches a range: their hull is a range
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)
    # a log scale needs a range above 0, which the hull of several may not have
    scale = next((own.scale for own in reversed(specs) if own.scale), "") if low > 0 else ""
    found: dict[str, Any] = {"parameterId": name, "doubleValueSpec": {"minValue": low, "maxValue": high}}
    if _whole({own.kind for own in specs}) and all(number.is_integer() for number in numbers):
        found = {"parameterId": name, "integerValueSpec": {"minValue": int(low), "maxValue": int(high)}}
    return {**found, "scaleType": scale} if scale else found


def _arguments(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments that every trial had, by name."""
    document = spec.from_data(dict(job.get("trialJobSpec") or {}), kind="CustomJobSpec")
    # `follow-up` freezes a parameter as an argument of the whole job, so the first pool has it
    words = [word.lstrip("-").partition("=") for pool in document.pools[:1] for word in pool.args]
    return {key: text for key, equals, text in words if equals}


def _whole(kinds: Set[str | None]) -> bool:
    """Whether a parameter of these kinds takes whole numbers: a grid lists those of an INTEGER."""
    return "INTEGER" in kinds and kinds <= {"INTEGER", "DISCRETE"}


def _value(text: str, kinds: Set[str | None]) -> Any:
    """Return an argument as a trial's parameter of one of these kinds: a number where it is one, but for a text of the study."""
    if "CATEGORICAL" in kinds:
        return text
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if _whole(kinds) and number.is_integer() else number
