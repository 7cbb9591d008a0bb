"""Jobs that a client gives as they ended, under a name of its choice: nothing runs, and every verb that looks at jobs finds them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from localvertex.http import ApiError, Json, invalid
from localvertex.jobs import resources
from localvertex.jobs.resources import MESSAGES, PIPELINES
from localvertex.jobs.store import ResourceStore
from localvertex.jobs.validation import canonical
from vertexrig.spec.states import ENDED, SUCCEEDED, of_pipeline

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
    body = canonical(MESSAGES[found[3]], {**times, "state": in_kind(SUCCEEDED), **given, "name": name})
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
