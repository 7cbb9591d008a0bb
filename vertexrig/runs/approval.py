"""Approval: a better version is in the registry without the aliases, until a person approves or rejects it.

The decision is written into the open run, over the generation that was read: of two people who decide, one does. The tick, or the request
that brought the decision, then moves the aliases, if the registered version is still the one that the new one was compared with.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Literal

from vertexrig import times
from vertexrig.cloud.models import ModelsClient, version_name
from vertexrig.errors import UsageError
from vertexrig.runs.run import Run
from vertexrig.runs.store import RunStore
from vertexrig.studies import register

Decision = Literal["approved", "rejected"]
VERBS: dict[str, Decision] = {"approve": "approved", "reject": "rejected"}


class DecidedError(UsageError):
    """A version cannot be approved or rejected any more, or not by this person."""


def find(runs: RunStore, name: str) -> Run:
    """Return the open run, by its id, run id or schedule, whose version waits for a decision or for the tick after it.

    Raises:
        UsageError: No such run, or several of a schedule, with those that wait.
    """
    found = [one for one in runs.open() if isinstance(one, Run) and one.phase == "step" and one.approval]
    fits = [one for one in found if name in (one.id, one.run_id, one.of_schedule)]
    if len(fits) == 1:
        return fits[0]
    if not found:
        raise UsageError("no run waits for approval; `vertexrig schedule steps` shows the open runs")
    named = ", ".join(f"{one.run_id} ({one.of_schedule or one.name})" for one in found)
    raise UsageError(f"{len(fits)} runs that wait for approval are named by {name!r}; name one of these: {named}")


def decide(runs: RunStore, models: ModelsClient, run: Run, decision: Decision, by: str, at: datetime) -> Run:
    """Write who decided, once, and return the run as it is stored.

    Raises:
        UsageError: It was decided otherwise, or another version has the aliases by now.
    """
    if "decision" in run.approval:
        if run.approval["decision"] == decision:
            return run
        raise DecidedError(f"{run.run_id or run.id} was {text_of(run)}")
    if decision == "approved":
        check_champion(models, run)
    asked = {**run.approval, "decision": decision, "by": by, "time": times.rfc3339(at, 0)}
    kept = runs.save(replace(run, approval=asked))
    if kept is None:
        raise DecidedError(f"{run.run_id} has changed meanwhile: see `vertexrig schedule status`, and decide again")
    return kept


def check_champion(models: ModelsClient, run: Run) -> None:
    """DecidedError if the aliases are with another version than when the model was compared."""
    was, now = str(run.approval.get("champion", "")), current(models, run)
    if now not in (was, run.approval.get("model")):  # its own, where an earlier attempt to move them died
        raise DecidedError(
            f"{run.approval.get('model')} was compared with {was or 'no version'}, and {run.approval.get('alias')} is "
            f"{now or 'no version'} now: reject it; the next run is compared with that one"
        )


def current(models: ModelsClient, run: Run) -> str:
    """Return the version that has the aliases, "" if there is none."""
    there = register.present(models, str(run.approval.get("display", "")), str(run.approval.get("alias", "")))
    return version_name(there) if there is not None else ""


def text_of(run: Run) -> str:
    """Return what a person has to know to decide, or what was decided, in one line."""
    asked = run.approval
    if "decision" in asked:
        # gcloud may be signed in with no account
        by = f" by {asked['by']}" if asked.get("by") else ""
        return f"{asked.get('decision')}{by} at {asked.get('time')}: {asked.get('text')}"
    return f"{asked.get('text')}; {asked.get('model')} waits for approval (vertexrig schedule approve {run.run_id})"
