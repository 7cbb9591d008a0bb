"""Jobs that ended elsewhere, kept here as they ended: nothing runs, and every verb that looks at jobs finds them.

`keep` takes one that a client gives under a name of its choice; `seed_of` and `seed` take a description of the cloud's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from localvertex.http import ApiError, Json, invalid
from localvertex.jobs import resources
from localvertex.jobs.resources import CUSTOM_JOBS, MESSAGES, PIPELINES, TUNING_JOBS
from localvertex.jobs.store import ResourceStore
from localvertex.state import claimed
from vertexrig.errors import UsageError
from vertexrig.spec.states import ENDED, SUCCEEDED, of_pipeline, short

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
    """Return a job's description as what the store keeps.

    Its number stays, so that it is found by it; times, states, trials and measurements stay as they are.

    Args:
        job: A CustomJob or HyperparameterTuningJob as the API describes it.
        project: Id or number of the project whose local Vertex it is.
        region: Region of the job.
        source: Where the description comes from, for messages.

    Raises:
        UsageError: It has not ended, or it is not a description that the API gives.
    """
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
    store = ResourceStore(claimed(root))
    try:
        with store.database.transaction():
            there = store.get(one.name)
            if there is not None and not there.hidden.get(_SEEDED):
                raise UsageError(f"{one.name} ran on the local Vertex of {root}, so it is not replaced")
            store.remove(one.name)
            store.add_ended(one.kind, one.parent, one.name, one.body, one.trials, {_SEEDED: True})
    finally:
        store.close()


_ID = re.compile("[0-9]{1,19}")  # what a signed 64-bit integer holds


def keep(store: ResourceStore, given: Mapping[str, Any]) -> Json:
    """Keep a job that has ended, under the name in it.

    Args:
        store: Where.
        given: The resource in JSON, with `name`; its state is SUCCEEDED and its times are now where it has none.

    Returns:
        Its body, with the number of the project in its name.

    Raises:
        ApiError: 400 for a name or body that is not one of a job that has ended, 409 for a name that is used.
    """
    found = resources.NAME.fullmatch(str(given.get("name", "")))
    if found is None or found[3] not in MESSAGES or not _ID.fullmatch(found[4]):
        raise invalid(
            f"Invalid name {str(given.get('name', ''))[:200]!r}: it must be "
            f"projects/PROJECT/locations/LOCATION/KIND/ID with a numeric id and one of {', '.join(MESSAGES)} as KIND."
        )
    parent = resources.parent_name(found[1], found[2])
    name, time = f"{parent}/{found[3]}/{found[4]}", resources.now()
    times = dict.fromkeys(("createTime", "startTime", "endTime", "updateTime"), time)
    in_kind = of_pipeline if found[3] == PIPELINES else str
    body = _canonical(MESSAGES[found[3]], {**times, "state": in_kind(SUCCEEDED), **given, "name": name})
    if not resources.has_ended(body):
        ended = ", ".join(sorted(map(in_kind, ENDED)))
        raise invalid(f"Invalid state {body['state']}: a job that is given has ended, as {ended}.")
    trials = body.pop("trials", [])
    if not all(trial.get("id") for trial in trials):
        raise invalid("Invalid trials: each trial needs an id.")
    with store.database.transaction():
        if store.get(name) is not None:
            raise ApiError(409, f"Requested entity already exists: {name}")
        store.add_ended(found[3], parent, name, body, trials)
    return {**body, "trials": trials} if trials else body


def _canonical(kind: str, data: Mapping[str, Any]) -> Json:
    try:
        return resources.rest_form(kind, data)
    except (json_format.ParseError, ValueError, TypeError) as error:
        raise invalid(f"Invalid {kind}: {error}") from None
