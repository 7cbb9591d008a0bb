"""The fence in the job: what its containers know of its claim, so that a trainer can see that another job was recorded.

A job that the trigger makes carries two environment variables: where its claim is, and which delivery made it. A claim
keeps, for each of its ids, the delivery whose job it records (`winners`). A trainer that finds another delivery there
ends at once. The number of the job cannot do this: the job of a sweep's trial has a number of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CLAIM_VARIABLE, ATTEMPT_VARIABLE = "VERTEXRIG_CLAIM", "VERTEXRIG_ATTEMPT"
"""The gs:// URI of the claim; and `ID.TOKEN`: the claim's id, and the delivery that holds it."""
_PROGRAMS = ("pythonPackageSpec", "containerSpec")


def fenced(data: Mapping[str, Any], claim_uri: str, id: str, token: str) -> dict[str, Any]:
    """A CustomJobSpec or HyperparameterTuningJob whose containers all know their claim.

    Args:
        data: Its canonical data; it is left as it is.
        claim_uri: Where the claim is.
        id: The claim's id.
        token: The delivery that makes the job.
    """
    if "trialJobSpec" in data:
        return {**data, "trialJobSpec": fenced(data["trialJobSpec"], claim_uri, id, token)}
    ours = {CLAIM_VARIABLE: claim_uri, ATTEMPT_VARIABLE: f"{id}.{token}"}
    return {**data, "workerPoolSpecs": [_with(pool, ours) for pool in data.get("workerPoolSpecs") or ()]}


def attempt_of(data: Mapping[str, Any], id: str) -> str:
    """The delivery that made a job, "" if the job does not say.

    Args:
        data: A CustomJob or HyperparameterTuningJob as the service describes it.
        id: The claim's id.
    """
    spec = data.get("jobSpec") or data.get("trialJobSpec") or {}
    for pool in spec.get("workerPoolSpecs") or ():
        for variable in _program(pool).get("env") or ():
            of, _, token = str(variable.get("value", "")).partition(".")
            if variable.get("name") == ATTEMPT_VARIABLE and of == id:
                return token
    return ""


def _program(pool: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((pool[name] for name in _PROGRAMS if pool.get(name)), {})


def _with(pool: Mapping[str, Any], ours: Mapping[str, str]) -> dict[str, Any]:
    name = next((name for name in _PROGRAMS if pool.get(name)), "")
    if not name:
        return dict(pool)  # a pool that only holds a place
    # names of variables have to be unique: one that the project file gives under these names would hide ours
    kept = [one for one in pool[name].get("env") or () if one.get("name") not in ours]
    env = [*kept, *({"name": key, "value": value} for key, value in ours.items())]
    return {**pool, name: {**pool[name], "env": env}}
