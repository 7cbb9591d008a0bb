"""The table of a run: what to do next, from its phase and what is seen of it. Nothing here calls a service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vertexrig import times
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.runs.candidates import first_line
from vertexrig.runs.run import Attempt, Run
from vertexrig.spec.states import CANCELLED, CANCELLING, EXPIRED, FAILED, PARTIALLY_SUCCEEDED, SUCCEEDED, has_run, short
from vertexrig.submit.scarcity import Scarcity, scarcity_of

WAITED, OVER_BUDGET = "waited", "over-budget"
NEXT_MAY_FOLLOW = (WAITED, OVER_BUDGET, Scarcity.QUOTA.value, Scarcity.STOCKOUT.value, Scarcity.PREEMPTED.value)
"""Reasons why an attempt is over and the next one may follow."""
ROUND_S = 600.0
"""Seconds between the last candidate's end and the next attempt at the first one."""
CALLED_OFF_S = 600.0
"""Seconds within which a job that was given up ends if it got its machines just before the cancel."""


@dataclass(frozen=True)
class Seen:
    """What is seen of a run.

    Args:
        now: By the service's clock, in seconds.
        job: The job of the last attempt, None if it is gone.
        waits: A job that has not begun waits for machines.
        hold: Why its schedule is on hold, "" if it is not.
        newest: When the newest run of its schedule was due that waits or has a job, "" for none.
        problem: Why the project file does not allow it any more, "" if it does.
        order: Numbers of the candidates, in the order of their attempts.
        wait_s: Seconds that the job may wait for machines, None for as long as the service lets it.
        preemptions: How many jobs of a candidate may be preempted.
        retry_for_s: Seconds for which candidates are attempted again, 0 for one round.
        round_s: See ROUND_S.
        speed: What these times were divided by, for a rehearsal; messages name the undivided ones.
    """

    now: float
    job: RemoteJob | None = None
    waits: bool = True
    hold: str = ""
    newest: str = ""
    problem: str = ""
    order: Sequence[int] = (1,)
    wait_s: float | None = None
    preemptions: int = 1
    retry_for_s: float = 0.0
    round_s: float = ROUND_S
    speed: float = 1.0


@dataclass(frozen=True)
class Action:
    """What to do about a run.

    Args:
        do: `wait`; `start` the next attempt; `find-or-make` the job of the last one, which a delivery has made or has died before; `give-up` (write that its job waited for too
            long, and cancel it), `cancel` it again; `attempt-over`: write that the last attempt is over; take the next `step`; or `end` the run.
        why: A reason of NEXT_MAY_FOLLOW; `hold`, so that no job may be made; or the outcome of the run.
        candidate: Which one to start.
    """

    do: Literal["wait", "start", "find-or-make", "give-up", "cancel", "attempt-over", "step", "end"]
    why: str = ""
    text: str = ""
    candidate: int = 1


def advance(run: Run, seen: Seen) -> Action:
    """Return what to do about a run."""
    action = _of_attempt(run, seen) if run.phase == "attempt" else _of_phase(run, seen)
    if run.stopped and run.phase in ("waiting", "attempt"):
        return _of_stopped(run, seen, action)
    if action.do in ("start", "find-or-make", "step"):
        if seen.problem:
            return Action("end", "changed", seen.problem)
        if seen.hold:
            # a job that is there already is followed
            return replace(action if action.do == "find-or-make" else Action("wait"), why="hold", text=seen.hold)
    return action


def _of_phase(run: Run, seen: Seen) -> Action:
    if run.phase == "ended":
        return Action("end", run.reason, run.text)
    if run.phase == "step":
        return Action("step")
    if (
        not run.had_job
        and not run.backfill
        and (times.nanoseconds(seen.newest) or 0) > (times.nanoseconds(run.time) or 0)
    ):
        return Action("end", "superseded", f"the run due at {seen.newest} has taken its place")
    attempt = run.attempt
    if attempt is None:
        # it waits for what its schedule's policy names, and is attempted at each tick
        return Action("start", candidate=seen.order[0])
    repeats = sum(
        1 for one in run.attempts if one.candidate == attempt.candidate and one.reason == Scarcity.PREEMPTED.value
    )
    if attempt.reason == Scarcity.PREEMPTED.value and repeats < seen.preemptions:
        return Action("start", candidate=attempt.candidate)
    position = seen.order.index(attempt.candidate) + 1 if attempt.candidate in seen.order else 0
    if 0 < position < len(seen.order):
        return Action("start", candidate=seen.order[position])
    if not seen.retry_for_s or _seconds(run.retry_since, seen) > seen.retry_for_s:
        if len(seen.order) == 1:
            return Action("end", "FAILED" if attempt.job else "refused", attempt.text)
        return Action("end", "exhausted", f"none of the {len(seen.order)} candidates got machines")
    pause = seen.round_s - _seconds(run.phase_since, seen)
    if pause > 0:
        what = f"all {len(seen.order)} candidates were tried; the first is" if len(seen.order) > 1 else "it is"
        return Action("wait", attempt.reason, f"{what} attempted again in {pause:.0f} s")
    return Action("start", candidate=seen.order[0])


def _of_attempt(run: Run, seen: Seen) -> Action:
    attempt, job = run.attempts[-1], seen.job
    if not attempt.job:
        return Action("find-or-make", candidate=attempt.candidate)
    if job is None:
        return Action("end", "gone", f"the job {attempt.job} is gone")
    if job.state == SUCCEEDED:
        return Action("step") if run.steps else Action("end", short(SUCCEEDED))
    # to steps and to `watch`, too, a part is no success
    if job.state == PARTIALLY_SUCCEEDED:
        return Action("end", short(job.state), first_line(job.cause))
    if why := over_for(attempt, job):
        text = attempt.text or first_line(job.error) or f"its job ended {short(job.state)}"
        if job.state == EXPIRED and len(seen.order) == 1 and not seen.retry_for_s:
            return Action("end", short(EXPIRED), text)
        return Action("attempt-over", why, text)
    if job.state == FAILED:
        return Action("end", short(FAILED), first_line(job.cause))
    if job.ended:
        cause = (
            "its job was cancelled"
            if job.state == CANCELLED
            else first_line(job.cause) or f"its job ended {short(job.state)}"
        )
        return Action("end", short(job.state), cause)
    if has_run(job.data) or job.state == CANCELLING:
        return Action("wait")
    if attempt.reason:
        return Action("cancel", attempt.reason)
    waited = _seconds(job.created, seen)
    if seen.wait_s is not None and seen.waits and waited > seen.wait_s:
        return Action(
            "give-up", WAITED, f"its job waited more than {times.length(round(seen.wait_s * seen.speed))} for machines"
        )
    return Action("wait")


def over_for(attempt: Attempt, job: RemoteJob) -> str:
    """Return why the next attempt may follow this one (NEXT_MAY_FOLLOW); "" if its job lives, succeeded, or ended for another reason."""
    if job.state == FAILED:
        found = scarcity_of(job)
        return "" if found is Scarcity.OTHER else found.value
    if not job.ended or job.state in (SUCCEEDED, PARTIALLY_SUCCEEDED):
        return ""
    if _ran_s(job) > CALLED_OFF_S:
        return ""  # given up, but not cancelled by that: it got its machines, and somebody else ended it later
    # a job that expires before it begins has waited as long as the service lets it
    return attempt.reason or (WAITED if job.state == EXPIRED and not has_run(job.data) else "")


def _ran_s(job: RemoteJob) -> float:
    """Return how long a job that has ended ran, in seconds; 0 if it did not begin, or if that is not known."""
    begin, end = (times.nanoseconds(str(job.data.get(key, ""))) for key in ("startTime", "endTime"))
    return (end - begin) / 1e9 if has_run(job.data) and begin and end else 0.0


def _of_stopped(run: Run, seen: Seen, action: Action) -> Action:
    """Return what to do about a run that a caller has cancelled: its job is cancelled, and no other follows."""
    if action.do in ("end", "cancel"):
        return action
    attempt = run.attempt
    if run.phase == "attempt" and attempt is not None and attempt.job and seen.job is not None and not seen.job.ended:
        return Action("wait") if seen.job.state == CANCELLING else Action("cancel")
    return Action("end", short(CANCELLED), "it was cancelled; no other job was made for it")


def _seconds(since: str, seen: Seen) -> float:
    """Return the seconds since a time, 0 for a time that is not known or is to come."""
    at = times.nanoseconds(since) if since else None
    return 0.0 if at is None else max(0.0, seen.now - at / 1e9)
