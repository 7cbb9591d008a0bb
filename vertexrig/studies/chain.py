"""A chain of studies, each of which follows the one before, as one study."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vertexrig import spec
from vertexrig.project.config import Loaded
from vertexrig.spec.parameters import Parameter, everywhere, top
from vertexrig.studies import trials
from vertexrig.studies.follow_up import LABEL


def names(loaded: Loaded, sweep: str) -> list[str]:
    """The sweeps that a sweep follows, the first one first, and itself: by the label that `follow-up` writes."""
    found = [sweep]
    while True:
        before = loaded.project.sweeps[found[0]].labels.get(LABEL, "") if found[0] in loaded.project.sweeps else ""
        if not before or before in found or before not in loaded.project.sweeps:
            return found
        found.insert(0, before)


def joined(jobs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several HyperparameterTuningJobs as one: every trial, in one space that holds them all.

    A trial's id gets its study's display name in front: `tune-2/7`. A parameter that a later study froze is read from the arguments
    of its trials, so that every trial has a value where it had one. Metrics and state are those of the last study.

    Args:
        jobs: As the service describes them, the first study first.
    """
    last = dict(jobs[-1])
    specs = [trials.study_spec(job) for job in jobs]
    flat = [_flat(one.get("parameters", ())) for one in specs]
    ids = list(dict.fromkeys(name for one in flat for name in one))
    rows: list[dict[str, Any]] = []
    for job, own in zip(jobs, flat, strict=True):
        given = _arguments(job)
        frozen = {name: given[name] for name in ids if name not in own and name in given}
        for row in job.get("trials") or ():
            more = [{"parameterId": name, "value": _value(text)} for name, text in frozen.items()]
            rows.append(
                {
                    **row,
                    "id": f"{job.get('displayName', '')}/{row.get('id', '')}",
                    "parameters": [*(row.get("parameters") or ()), *more],
                }
            )
    values = {
        name: [one.get("value") for row in rows for one in row["parameters"] if one.get("parameterId") == name]
        for name in ids
    }
    parameters = [_hull(name, [own[name] for own in flat if name in own], values[name]) for name in ids]
    return {**last, "studySpec": {**specs[-1], "parameters": parameters}, "trials": rows, "maxTrialCount": len(rows)}


def _flat(parameters: Iterable[Mapping[str, Any]]) -> dict[str, Parameter]:
    """Every parameter of a study by id, conditional ones too."""
    return {one.id: one for one in everywhere(top(parameters))}


def _hull(name: str, places: Sequence[Parameter], values: Sequence[Any]) -> dict[str, Any]:
    """One parameter that takes every value which one of several studies had."""
    if any(place.kind == "CATEGORICAL" for place in places):
        texts = [str(value) for place in places for value in place.values] + [str(value) for value in values]
        return {"parameterId": name, "categoricalValueSpec": {"values": list(dict.fromkeys(texts))}}
    numbers = [float(bound) for place in places for bound in place.bounds if bound is not None]
    numbers += [float(value) for value in values if isinstance(value, (int, float))]
    if all(place.kind == "DISCRETE" for place in places):
        listed = {float(value) for place in places for value in place.values} | {float(one) for one in numbers}
        return {"parameterId": name, "discreteValueSpec": {"values": sorted(listed)}}
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)
    scale = next((place.scale for place in reversed(places) if place.scale), "") if low > 0 else ""
    found = {"parameterId": name, "doubleValueSpec": {"minValue": low, "maxValue": high}}
    return {**found, "scaleType": scale} if scale else found


def _arguments(job: Mapping[str, Any]) -> dict[str, str]:
    """The arguments that every trial had, by name."""
    document = spec.from_data(dict(job.get("trialJobSpec") or {}), kind="CustomJobSpec")
    words = [word.lstrip("-").partition("=") for pool in document.pools[:1] for word in pool.args]
    return {key: text for key, equals, text in words if equals}


def _value(text: str) -> Any:
    """An argument as a trial's parameter: a number where it is one."""
    try:
        return float(text)
    except ValueError:
        return text
