"""Jobs that ran elsewhere, put into the store of a local Vertex as they ended: nothing runs, and every verb that looks at jobs finds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vertexrig.errors import UsageError
from vertexrig.local.http import ApiError
from vertexrig.local.jobs import resources
from vertexrig.local.jobs.resources import CUSTOM_JOBS, MESSAGES, TUNING_JOBS, Json
from vertexrig.local.jobs.store import ResourceStore
from vertexrig.local.state import make_private
from vertexrig.spec.states import ENDED, short

_SEEDED = "seeded"
"""Key of a seeded resource's hidden part: such a one may be seeded again, and one that ran here may not be replaced."""


@dataclass(frozen=True)
class Seed:
    """A job that has ended, as the store keeps it.

    Args:
        kind: `customJobs` or `hyperparameterTuningJobs`.
        parent: `projects/NUMBER/locations/REGION`.
        name: Its resource name there.
        body: What clients see, without trials.
        trials: The trials of a tuning job, in their order.
    """

    kind: str
    parent: str
    name: str
    body: Json
    trials: tuple[Json, ...] = ()


def seed_of(job: Mapping[str, Any], project: str, region: str, source: str) -> Seed:
    """A job's description as what the store keeps.

    Its number stays, so that it is found by it; times, states, trials and measurements stay as they are.

    Args:
        job: A CustomJob or HyperparameterTuningJob as the API describes it.
        project: Id or number of the project whose local Vertex it is.
        region: Region of the job.
        source: Where the description comes from, for messages.

    Raises:
        UsageError: It has not ended, or it is not a description that the API gives.
    """
    from google.protobuf import json_format

    kind = TUNING_JOBS if "studySpec" in job else CUSTOM_JOBS
    try:
        body = resources.rest_form(MESSAGES[kind], job)
    except (json_format.ParseError, ValueError, TypeError) as error:
        raise UsageError(f"{source} cannot be seeded: {str(error).splitlines()[0]}") from None
    state = str(body.get("state", ""))
    if state not in ENDED:
        why = f"its state is {short(state)}" if state else "it has no state"
        raise UsageError(f"{source} cannot be seeded: {why}; only a job that has ended can be")
    for key in ("studySpec" if kind == TUNING_JOBS else "jobSpec", "createTime"):
        if key not in body:
            raise UsageError(f"{source} cannot be seeded: it has no {key}")
    try:
        parent = resources.parent_name(project, region)
    except ApiError as error:
        raise UsageError(f"{source} cannot be seeded: {error.message}") from None
    number = resources.last_part(str(job.get("name", "")))
    name = f"{parent}/{kind}/{number}" if number.isdigit() else resources.new_name(parent, kind)
    # Trials are kept in a table of their own, and put back into the answer by `Studies.shown`.
    trials = tuple(body.pop("trials", ()))
    ids = [str(trial.get("id", "")) for trial in trials]
    if len(set(ids)) < len(ids) or "" in ids:
        raise UsageError(f"{source} cannot be seeded: its trials have no ids, or one id twice")
    return Seed(kind, parent, name, {**body, "name": name}, trials)


def seed(root: Path, one: Seed) -> None:
    """Put a job into the state of a local Vertex, in one transaction; a server that runs on it shows it at once.

    Args:
        root: The folder of the state, made if it is missing.
        one: The job; an earlier seed of it is replaced.

    Raises:
        UsageError: A job of that name ran on this local Vertex.
    """
    store = ResourceStore(make_private(root))
    try:
        with store.database.transaction():
            there = store.get(one.name)
            if there is not None and not there.hidden.get(_SEEDED):
                raise UsageError(f"{one.name} ran on the local Vertex of {root}, so it is not replaced")
            store.remove(one.name)
            store.add_ended(one.kind, one.parent, one.name, one.body, one.trials, {_SEEDED: True})
    finally:
        store.close()
