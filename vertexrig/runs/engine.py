"""What moves a run: makes the jobs of its attempts, one at a time, and carries out what the table says (`vertexrig.runs.advance`).

Why a request never has two jobs that train, and no run is lost:

- A run is written before its first job is made, and deleted only after its end is in the history, or by the delivery that opened it and is
  answered with an error.
- Each attempt has one claim. The next attempt begins only after the run says that the last one is over, and that is written only after its
  claim ended without a job, or after its job and every other job with its label was seen ended.
- The run is written, over the generation that was read, before each create call. A process that is frozen and wakes with an older
  generation makes nothing: its write fails, or the claim of its attempt answers with the job that is there.
- Before a run without a job ends, its claim ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import product
from typing import Any

from vertexrig import times
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.errors import VertexrigError
from vertexrig.runs import advance
from vertexrig.runs.advance import OVER, OVER_BUDGET, Action, Seen
from vertexrig.runs.candidates import CandidateRun, course, line
from vertexrig.runs.deliveries import NO_MACHINES, NotStartedError
from vertexrig.runs.policy import PATIENCE_S, WAITS, Due
from vertexrig.runs.run import Attempt, Run
from vertexrig.runs.store import RunStore
from vertexrig.spec.labels import CANDIDATE_LABEL, FIRST_LABEL
from vertexrig.spec.states import CANCELLING, short
from vertexrig.submit.budget import OverBudgetError, Share, Terms
from vertexrig.submit.claims import LABEL, Claim, EndedError, InProgressError, digest
from vertexrig.submit.reconcile import call_off
from vertexrig.submit.scarcity import Scarcity, outcome
from vertexrig.submit.submission import Request, Submitted, Submitter, dearest, price_within
from vertexrig.submit.uploaded import NoPackageError


class NoMachinesError(VertexrigError):
    """No candidate of a request got machines; `attempts` says why."""

    def __init__(self, text: str, attempts: Sequence[Attempt]) -> None:
        self.attempts = attempts
        super().__init__(text)


class ChangedError(VertexrigError):
    """The project file does not allow a run any more."""


@dataclass(frozen=True)
class Moved:
    """What became of a run.

    Args:
        run: As it is stored now, or was last.
        state: `waiting` for machines or for what its schedule names, `training`, `started` (a job was made just now), `ended`, or `unknown`
            after an error.
        job: The job that it waits for, "" for none.
        text: In one line.
        problem: It waits for something that a person has to do.
        inside: The text is a service's message about the trigger itself: for the log, not for callers.
        first: Its first job was made just now.
        made: That job.
    """

    run: Run
    state: str
    job: str = ""
    text: str = ""
    problem: bool = False
    inside: bool = False
    first: bool = False
    made: Submitted | None = None
    remote: RemoteJob | None = None


@dataclass
class Engine:
    """Moves the runs of one project.

    Args:
        submitter: Makes jobs, and has the claims; in a tick its claims do not wait, for the next tick comes anyway.
        runs: Where runs are kept.
        candidates: Gives the candidates of a run, rendered and allowed as the project file is now; ChangedError if it does not allow it.
        terms: The labels and the budget of a run's caller.
        due: What the run's schedule says about it, None for a run of none.
        step: Takes the step of a run whose last job has succeeded; set by the trigger for its ticks.
        finish: Writes the end of a run: history and notices; set by the ticker.
        problem: Says why the project file does not allow a run any more; "" if it does.
        cannot: Says why a candidate cannot fit, with the sum; "" if it can or that is not known.
        publish: Uploads what a candidate's job runs, before that is made.
        waits: Whether a job that has not begun waits for machines; on a local Vertex it may also be on its way to start.
        speed: Divides every wait, for rehearsals.
        round_s: See `vertexrig.runs.advance.ROUND_S`.
        live: The live jobs of the trigger, by name, where a tick has listed them.
        now: The time by the service's clock.
        asked: Digest of the request, where it is not that of its body.
    """

    submitter: Submitter
    runs: RunStore
    candidates: Callable[[Run], list[CandidateRun]]
    terms: Callable[[Run], Terms] = lambda _: Terms()
    due: Callable[[Run], Due | None] = lambda _: None
    step: Callable[[Run, RemoteJob | None], Moved | Run] | None = None
    finish: Callable[[Run], None] = lambda _: None
    problem: Callable[[Run], str] = lambda _: ""
    cannot: Callable[[CandidateRun], str] = lambda _: ""
    publish: Callable[[CandidateRun], None] = lambda _: None
    waits: Callable[[RemoteJob], bool] = lambda _: True
    speed: float = 1.0
    asked: str = ""
    round_s: float = advance.ROUND_S
    live: Mapping[str, RemoteJob] | None = None
    now: Callable[[], datetime] = times.now
    _known: dict[str, list[CandidateRun]] = field(default_factory=dict)

    # --- a delivery ---

    def begin(self, run: Run, ways: Sequence[CandidateRun], terms: Terms) -> tuple[Run, Submitted]:
        """Make the job of the first candidate that is not refused, or find the one that an earlier delivery made.

        Args:
            run: What is kept of the request; its `id` is filled in.
            terms: With the policy of its schedule (`Due.terms`).

        Raises:
            NoMachinesError: No candidate got machines, and no other round follows.
            NotStartedError: None did yet, and ticks continue (`deferred`); or the run has ended already (`skipped`).
            VertexrigError: As of `Submitter.submit`. The run is not kept, unless `wait` is called.
        """
        position, known = 0, False
        opened: list[Run] = []
        while position < len(ways):
            way = ways[position]
            run = replace(run, attempts=(*run.attempts, Attempt(way.number, way.changes)))
            try:
                made, run = self._make(run, ways, way, terms, run.key if not position else None, opened)
            except EndedError as error:
                if error.claim.ended.get("reason") not in OVER:
                    self._drop(opened)
                    raise
                ids = {"id": run.id or error.claim.id, "run_id": run.run_id or error.claim.run_id}
                made, run = None, replace(run, **ids).with_attempt(**_why(error.claim))  # type: ignore[arg-type]
            except Exception:
                self._drop(opened)
                raise
            if not known and (made is None or made.duplicate):
                known, found = True, self.runs.read(run.id)
                if found is not None and len(found.attempts) > len(run.attempts):
                    return self._continued(found, ways)
                if found is None and made is None and (row := self.runs.end(run)) is not None:
                    end = row.get("end", {})
                    raise NotStartedError(
                        "skipped", str(row.get("reason") or end.get("outcome")), str(end.get("reason", ""))
                    )
            if made is not None:
                return run, made
            position += 1
        if self._retry_for_s(run, ways) and run.id:
            run = self._over(run, run.attempts[-1].reason, run.attempts[-1].text)
            kept = self._park(run)
            text = f"all {len(ways)} candidates were tried; the first is attempted again in {self.round_s / self.speed:.0f} s"
            raise NotStartedError(
                "deferred",
                NO_MACHINES,
                text,
                {"candidate": f"candidate {ways[-1].number} of {len(ways)}", "claim": kept.id},
            )
        if (left := self.runs.read(run.id)) is not None:
            self.runs.storage.delete(self.runs.path(run.id), left.generation)
        raise NoMachinesError(f"none of the {len(ways)} candidates got machines", run.attempts)

    def wait(self, run: Run, why: NotStartedError) -> NotStartedError:
        """Keep a run that its schedule's policy lets wait: ticks start it. Return what the delivery is answered with."""
        claim = self.submitter.claims.by_key(run.key)
        over = claim is not None and claim.ended.get("reason") in OVER  # of its first candidate: the next ones follow
        if claim is not None and claim.state == "ended" and not over:  # the answer to that write was lost
            return NotStartedError("skipped", claim.ended.get("reason", ""), claim.ended.get("text", ""))
        if claim is not None and (claim.state in ("claimed", "released") or (over and not self.runs.read(claim.id))):
            waits = replace(run, id=claim.id, run_id=claim.run_id, attempts=(), phase="waiting")
            self._park(replace(waits, reason=why.reason, text=why.text))
        return why

    def _park(self, run: Run) -> Run:
        for _ in range(8):
            found = self.runs.read(run.id)
            kept = self.runs.save(replace(run, generation=found.generation if found else 0))
            if kept is not None:
                return kept
        raise RestError("the run changes too fast to be written", status=503)

    def _continued(self, run: Run, ways: Sequence[CandidateRun]) -> tuple[Run, Submitted]:
        """Return the current job of a run that ticks have continued."""
        claim = self.claim_of(run)
        if claim is None or claim.state != "created":
            if self.runs.save(run) is None:  # written again, so that the delivery that opened it does not delete it
                raise InProgressError(1.0)
            text = run.text or "its next attempt has no job yet"
            raise NotStartedError("deferred", NO_MACHINES, text, {"candidate": self.place(run)})
        way = self._way(ways, run.attempts[-1].candidate)
        return run, way.submitter.answer_about(claim, way.collection, way.submitter.vertex.get(claim.job.name))

    def _drop(self, opened: Sequence[Run]) -> None:
        """Delete a run that was opened for a request which is answered with an error now, so that no tick starts it."""
        for one in opened:
            try:
                found = [self.submitter.claims.by_key(one.attempt_key(index)) for index in range(len(one.attempts))]
                if all(claim is not None and claim.state in ("released", "ended") for claim in found):
                    # as this delivery wrote it last: another delivery or a tick that relies on it has written it since
                    self.runs.storage.delete(self.runs.path(one.id), one.generation)
            except RestError:
                pass  # a tick makes its job: at most one, as for a delivery whose answer was lost

    # --- attempts ---

    def _make(
        self, run: Run, ways: Sequence[CandidateRun], way: CandidateRun, terms: Terms, key: Any, opened: list[Run]
    ) -> tuple[Submitted | None, Run]:
        """Make the job of the last attempt, or find it; None if the attempt is over without one.

        Args:
            key: The request's own key, for the first attempt of a delivery.
            opened: The run as this process wrote it last. A delivery that has not written it passes an empty list, which gets the run
                if the delivery is the first one to write it.
        """
        index, several, of = len(run.attempts) - 1, len(ways) > 1, str(way.number)
        name, state = way.prepared.view.name, [run]
        asked = self.asked or Request(**run.body).digest
        if index or way.number != 1:
            # so that no process looks for its job where another project file has it
            asked = digest({"body": asked, "candidate": list(way.prepared.workspace.loaded.overrides)})
        key = key or run.attempt_key(index)

        def ends(error: Exception) -> Mapping[str, str] | None:
            why = outcome(error) if several and isinstance(error, RestError) else Scarcity.OTHER
            if why is not Scarcity.OTHER:
                return {"reason": why.value, "text": line(str(error)), "candidate": of}
            return terms.ends(error)

        def before(claim: Claim) -> None:
            terms.before_create(claim if index == 0 else replace(claim, id=run.id, kind=run.key.kind))
            current = state[0] if index else replace(state[0], id=claim.id, run_id=claim.run_id)
            if current.generation:
                kept = self.runs.save(current)
                if kept is None:
                    raise InProgressError(1.0)
                state[0] = kept
            else:
                state[0], new = self.runs.keep(current)
                if new:
                    opened.append(state[0])
            if opened:
                opened[:] = [state[0]]

        labels = {
            **terms.labels,
            **({CANDIDATE_LABEL: of} if several or index else {}),
            **({FIRST_LABEL: run.id} if index else {}),
        }
        skip, why_not = self.cannot(way), Scarcity.QUOTA.value
        if not skip and several:
            try:
                price_within(way.prepared, way.submitter.limits, terms)
            except OverBudgetError as error:
                skip, why_not = str(error), OVER_BUDGET
        if skip and several:
            claim = way.submitter.end(key, asked, name, {"reason": why_not, "text": line(skip), "candidate": of})
            if not claim.job.name:
                return None, replace(run, id=run.id or claim.id, run_id=run.run_id or claim.run_id).with_attempt(
                    **_why(claim)
                )
        self.publish(way)
        # a sweep's trials have other values than those whose checkpoints are in the folder of the study before
        run_id = "" if index and way.prepared.view.sweep is not None else run.run_id
        shares: list[Share] = list(terms.shares)
        if index:  # the run itself is counted under the claim of its first attempt
            shares = [_without(one, run.id) for one in shares]
        most = dearest((one.prepared for one in ways), ways[0].submitter.limits, terms) if several else None
        full = replace(terms, labels=labels, ends=ends, most=most, shares=shares, before_create=before)
        try:
            made = way.submitter.submit(way.prepared, key, asked, run_id, terms=full)
        except RestError as error:
            if not several or outcome(error) is Scarcity.OTHER:
                raise
            return None, state[0].with_attempt(reason=outcome(error).value, text=line(str(error)))
        return made, replace(state[0], id=state[0].id or made.claim).with_attempt(job=made.name)

    def claim_of(self, run: Run) -> Claim | None:
        """Return the claim of the last attempt. Of a first one whose claim belongs to a later request, what is known of its job."""
        index = len(run.attempts) - 1
        if index:
            return self.submitter.claims.by_key(run.attempt_key(index))
        found = self.submitter.claims.by_id(run.id)
        if found is not None and found.id == run.id:
            return found
        name = found.before.get(run.id, "") if found is not None else ""
        if not name:
            job = self.submitter.reconciler.find(run.id, self.submitter.collection_of(run.name))
            name = job.name if job is not None else ""
        made = replace(found, job=replace(found.job, name=name)) if found is not None else None
        return (
            Claim(run.id, "", "", run.name, "", "created", made.job if made else replace(_NONE.job, name=name))
            if name
            else None
        )

    def _way(self, ways: Sequence[CandidateRun], number: int) -> CandidateRun:
        return next((one for one in ways if one.number == number), ways[0])

    def place(self, run: Run) -> str:
        """Return which candidate a run is at: `candidate 2 of 4`; "" for a run without candidates."""
        loaded = self.submitter.workspace.loaded.project
        of = 1 + len(loaded.entries[run.name].candidates) if run.name in loaded.entries else 1
        number = run.attempts[-1].candidate if run.attempts else 1
        return f"candidate {number} of {max(of, number)}" if of > 1 or number > 1 else ""

    def _retry_for_s(self, run: Run, ways: Sequence[CandidateRun] = ()) -> float:
        """Return for how many seconds candidates are attempted again."""
        project = self.submitter.workspace.loaded.project
        schedule, own = project.schedules.get(run.schedule), project.entries.get(run.name)
        texts = (own.retry_for if own is not None else None, schedule.retry_for if schedule is not None else None)
        return max(times.meant_seconds(text or "0s") or 0.0 for text in texts) / self.speed

    # --- a tick ---

    def see(
        self, run: Run, job: RemoteJob | None, hold: str = "", newest: str = "", at: datetime | None = None
    ) -> Seen:
        """Return what is seen of a run, without rendering it."""
        own = self.submitter.workspace.loaded.project.entries.get(run.name)
        order: Sequence[int] = (1,) if own is None else range(1, 2 + len(own.candidates))
        if (
            own is not None
            and own.candidates
            and own.prefer == "price"
            and run.phase == "waiting"
            and not self.problem(run)
        ):
            order = [way.number for way in self._candidates(run)]
        number = run.attempts[-1].candidate if run.attempts else 1
        wait = own.wait if own is not None else None
        if own is not None and 1 < number <= 1 + len(own.candidates):
            wait = own.candidates[number - 2].get("wait", wait)
        return Seen(
            now=(at or self.now()).timestamp(),
            job=job,
            waits=job is not None and self.waits(job),
            hold=hold,
            newest=newest,
            problem=self.problem(run),
            order=order,
            wait_s=None if wait is None else (times.meant_seconds(str(wait)) or 0.0) / self.speed,
            preemptions=own.preemptions if own is not None else 1,
            retry_for_s=self._retry_for_s(run),
            round_s=self.round_s / self.speed,
            speed=self.speed,
        )

    def move(
        self, run: Run, job: RemoteJob | None = None, hold: str = "", newest: str = "", at: datetime | None = None
    ) -> Moved:
        """Take a run as far as it goes now.

        Args:
            job: The job of its last attempt or step, where that was listed just now.
            hold: Why its schedule is on hold.
            newest: When the newest run of its schedule that waits was due.
            at: The time by the service's clock.
        """
        at = at or self.now()
        for _ in range(40):
            attempt = run.attempt
            if (
                run.phase == "attempt"
                and attempt is not None
                and attempt.job
                and (job is None or job.name != attempt.job)
            ):
                job = self.submitter.vertex.get(attempt.job)
            action = advance.advance(run, self.see(run, job, hold, newest, at))
            result = self._carry_out(run, action, job, at)
            if isinstance(result, Moved):
                return result
            run, job = result, None if result.phase != "attempt" else job
        return Moved(run, "waiting", text="it changes too fast; the next tick continues")

    def _carry_out(self, run: Run, action: Action, job: RemoteJob | None, at: datetime) -> Moved | Run:
        name = run.attempts[-1].job if run.attempts else ""
        if action.do == "wait":
            self._cancel_others(run)
            began = job is not None and run.phase == "attempt" and bool(job.data.get("startTime"))
            return Moved(run, "training" if began else "waiting", name if job else "", action.text, remote=job)
        if action.do == "give-up":
            # the decision first: a job that is found cancelled without it was cancelled by a person
            kept = self.runs.save(run.with_attempt(reason=action.why, text=action.text))
            if kept is None:
                return Moved(run, "waiting", name)
            run = kept
        if action.do in ("give-up", "cancel"):
            call_off(self.submitter.vertex, name)  # it may have ended: the next tick sees it
            return Moved(run, "waiting", name, "its job has waited for too long and is being cancelled", remote=job)
        if action.do == "over":
            return self._leave(run, action, job, at)
        if action.do in ("start", "again"):
            return self._start(run, action, at)
        if action.do == "step" and self.step is not None:
            return self.step(run, job)
        return self.close(
            run, action.why if action.do == "end" else short("JOB_STATE_SUCCEEDED"), action.text, remote=job
        )

    def _leave(self, run: Run, action: Action, job: RemoteJob | None, at: datetime) -> Moved | Run:
        """Write that the last attempt is over, once every job of it has ended."""
        claim, own = self.claim_of(run), self.submitter
        id = claim.id if claim is not None else run.id
        collection = job.collection if job is not None else own.collection_of(run.name)
        others = [one for one in own.reconciler.with_label(id, collection) if job is None or one.name != job.name]
        if claim is not None:
            own.reconciler.keep_recorded(claim, others)
        if not all(one.ended for one in others):
            return Moved(run, "waiting", text="a second job of this attempt is being cancelled")
        more: Mapping[str, Any] = (
            course(job, claim.job.estimate if claim is not None else {}) if job is not None else {}
        )
        kept = self.runs.save(self._over(run.with_attempt(**more), action.why, action.text, at))
        if kept is None:
            return Moved(run, "waiting")
        if more.get("usd") == 0.0:  # nothing was paid for it: its room in the day's budget is free again
            own.ledger.take_out(own.ledger.objects_of(id, self.terms(run).shares))
        return kept

    def _over(self, run: Run, why: str, text: str, at: datetime | None = None) -> Run:
        now = times.rfc3339(at or self.now(), 0)
        done = run.with_attempt(reason=why, text=text) if run.attempts else run
        return replace(done, phase="waiting", reason=why, text=text, since=now, retry_since=run.retry_since or now)

    def _candidates(self, run: Run) -> list[CandidateRun]:
        if run.id not in self._known:
            self._known[run.id] = self.candidates(run)
        return self._known[run.id]

    def _start(self, run: Run, action: Action, at: datetime) -> Moved | Run:
        """Make the job of the next attempt, or of the last one if its job was not made."""
        if action.do == "again":
            claim = self.claim_of(run)
            if claim is None and len(run.attempts) == 1:
                return self.close(
                    run,
                    "failed",
                    f"no job of {run.name} was made, and its claim is gone or a later request's; ask for it again",
                    lost=True,
                )
            if claim is not None and claim.state == "created":
                return self.runs.save(run.with_attempt(job=claim.job.name)) or Moved(run, "waiting")
            if claim is not None and claim.state == "ended":
                return self._ended_claim(run, claim, at)
        due, stored = self.due(run), [run]
        try:
            ways = self._candidates(run)
            way = self._way(ways, action.candidate)
            terms = self.terms(run)
            if due is not None:
                own = due.terms(terms)
                # a policy decides whether a run begins: one that has begun is not left out any more
                terms = own if not run.had_job and not run.retry_since else replace(own, ends=terms.ends)
            fresh = run
            if action.do == "start":
                attempts = (*run.attempts, Attempt(way.number, way.changes))
                fresh = replace(run, attempts=attempts, phase="attempt", since=times.rfc3339(at, 0))
            made, after = self._make(fresh, ways, way, terms, None, stored)
        except EndedError as error:
            if error.claim.ended.get("reason") in OVER:
                return self._ended_claim(replace(fresh, generation=stored[0].generation), error.claim, at)
            return self._skipped(run, error.claim.ended.get("reason", "skipped"), str(error))
        except InProgressError as error:
            return Moved(run, "waiting", text=str(error))
        except ChangedError as error:
            return self.close(run, "changed", str(error))
        except (VertexrigError, NotStartedError) as error:
            return self._not_started(run, stored[0], due, error, at)
        if made is None:
            done = after.attempts[-1]
            kept = self.runs.save(self._over(after, done.reason, done.text, at))
            return kept or Moved(run, "waiting")
        first = not run.had_job and not made.duplicate
        after = replace(after, phase="attempt", since=times.rfc3339(at, 0), reason="", text=run.reason if first else "")
        kept = self.runs.save(after) or after
        return Moved(kept, "started" if not made.duplicate else "waiting", made.name, first=not run.had_job, made=made)

    def _ended_claim(self, run: Run, claim: Claim, at: datetime) -> Moved | Run:
        """Continue a run whose last attempt is over without a job."""
        why = claim.ended.get("reason", "")
        if why not in OVER:
            return self._skipped(run, why, claim.ended.get("text", ""))
        return self.runs.save(self._over(run, why, claim.ended.get("text", ""), at)) or Moved(run, "waiting")

    def _skipped(self, run: Run, reason: str, text: str) -> Moved | Run:
        return self.close(run, "skipped", text, reason=reason, claimed=True)

    def _not_started(self, run: Run, stored: Run, due: Due | None, error: Exception, at: datetime) -> Moved | Run:
        """Return what becomes of a run whose job could not be made this time.

        Args:
            stored: As this tick wrote it last. Written over that alone: another process may have made the job since.
        """
        run = replace(run, generation=stored.generation)
        why = due.not_started(error) if due is not None else error if isinstance(error, NotStartedError) else None
        if why is not None and why.decision == "skipped" and not run.had_job and not run.retry_since:
            return self._skipped(run, why.reason, why.text)
        final = isinstance(error, RestError) and error.status == 400
        passes = why is not None or isinstance(error, (RestError, NoPackageError, OverBudgetError))
        if isinstance(error, OverBudgetError) and error.limit in ("usd_per_run", "trials_per_run"):
            passes = False
        if final or not passes:
            return self.close(run, "failed" if final else "changed", str(error))
        reason = (
            why.reason
            if why is not None
            else OVER_BUDGET
            if isinstance(error, OverBudgetError)
            else run.reason or "unavailable"
        )
        text = why.text if why is not None else str(error)
        since = run.began
        if reason == run.reason and run.phase == "waiting" and stored.phase != "waiting":
            kept = self.runs.save(replace(run, since=since))
            if kept is None:
                return Moved(run, "waiting")
            run = kept
        elif reason != run.reason or run.phase != "waiting":
            # what it waited for is over: from now on the time for the new reason counts
            if run.phase == "attempt" and run.attempts and not run.attempts[-1].job:
                run = replace(run, attempts=run.attempts[:-1])
            kept_since = since if run.reason and (run.reason in WAITS) == (reason in WAITS) else times.rfc3339(at, 0)
            kept = self.runs.save(replace(run, phase="waiting", reason=reason, text=text, since=kept_since))
            if kept is None:
                return Moved(run, "waiting")
            run, since = kept, kept.began
        idle = at.timestamp() - (times.nanoseconds(since) or 0) / 1e9 if since else 0.0
        patient = (
            not run.had_job and not run.retry_since and due is not None and why is not None and reason not in WAITS
        )
        limit = (
            (times.meant_seconds(due.schedule.retry_for or "0s") or 0.0) if patient and due is not None else PATIENCE_S
        )
        if idle > limit and reason != "hold":
            length = f"{idle / 3600:.1f} h" if limit < 86_400 else f"{idle / 86_400:.0f} days"
            outcome_ = "refused" if not run.had_job else "given-up"
            return self.close(run, outcome_, f"given up after {length}: {text}", reason=reason)
        inside = isinstance(error, RestError) and why is None
        return Moved(
            run,
            "waiting",
            text=text,
            problem=inside or isinstance(error, (OverBudgetError, NoPackageError)),
            inside=inside,
        )

    def close(
        self, run: Run, outcome: str, text: str = "", *, reason: str = "", model: str = "", claimed: bool = False,
        lost: bool = False, remote: RemoteJob | None = None,
    ) -> Moved | Run:  # fmt: skip
        """End a run: first its claim if it has no job, then the run, then the history and its notices.

        Args:
            reason: Of a run without a job, the word for programs.
            claimed: Its claim has ended already.
            lost: Its claim belongs to another request.
        """
        if run.phase != "ended":
            index = len(run.attempts) - (run.phase == "attempt")
            unmade = run.phase in ("waiting", "attempt") and not (run.phase == "attempt" and run.attempts[-1].job)
            if unmade and not claimed and not lost and not (run.attempts and run.attempts[-1].reason):
                claim = self._end_claim(run, index, outcome, text)
                if claim is None:
                    return Moved(run, "waiting", text="another delivery is at work")
                if claim.job.name:
                    there = (
                        run
                        if run.phase == "attempt"
                        else replace(run, attempts=(*run.attempts, Attempt(1)), phase="attempt")
                    )
                    return self.runs.save(there.with_attempt(job=claim.job.name)) or Moved(run, "waiting")
                if claim.ended.get("reason") not in (None, outcome):
                    reason, text = claim.ended["reason"], claim.ended.get("text", text)
                    outcome = "skipped" if outcome in ("superseded", "skipped", "changed") else outcome
            delivery = {**run.delivery, **({"reason": reason} if reason else {})}
            if remote is not None and run.attempts and run.attempts[-1].job == remote.name:
                claim = self.claim_of(run)
                run = run.with_attempt(**course(remote, claim.job.estimate if claim is not None else {}))
                self.submitter.reconciler.look(claim.id if claim is not None else run.id, remote.collection)
            since = times.rfc3339(self.now(), 0)
            ended = replace(closed(run, outcome, text), model=model, delivery=delivery, since=since)
            kept = self.runs.save(ended)
            if kept is None:
                return Moved(run, "waiting")
            run = kept
        self.finish(run)
        self.runs.forget(run)
        name = run.attempts[-1].job if run.attempts else ""
        return Moved(run, "ended", name, run.text, remote=remote)

    def _end_claim(self, run: Run, index: int, reason: str, text: str) -> Claim | None:
        """End the claim of an attempt that has no job; None if another delivery is at work."""
        asked = self.asked or Request(**run.body).digest
        current = self.submitter.claims.by_key(run.attempt_key(index))
        if current is not None and (index or current.id == run.id):
            asked = current.asked
        try:
            return self.submitter.end(run.attempt_key(index), asked, run.name, {"reason": reason, "text": line(text)})
        except InProgressError:
            return None

    def _cancel_others(self, run: Run) -> None:
        """Cancel jobs of earlier attempts that live: their maker died before they were recorded, and lists showed them late."""
        if run.phase != "attempt" or len(run.attempts) < 2:
            return
        own = run.attempt_key(len(run.attempts) - 1).digest[:32]
        earlier = {run.id[:32], *(run.attempt_key(index).digest[:32] for index in range(1, len(run.attempts) - 1))}
        collection, vertices = self.submitter.collection_of(run.name), self.submitter.ledger.vertices
        listed: Iterable[RemoteJob] = (
            self.live.values()
            if self.live is not None
            else (
                job
                for vertex, label in product(vertices, (LABEL, FIRST_LABEL))
                for job in vertex.list(collection, filter=f'labels.{label}="{run.id}"')
            )
        )
        for job in listed:
            made_by = job.labels.get(LABEL, "")[:32]
            if made_by != own and made_by in earlier and not job.ended and job.state != CANCELLING:
                call_off(self.submitter.vertex, job.name)

    def stop(self, run: Run) -> str:
        """Cancel a run: the job that it is at, or its next attempt. Return the job's name, "" if it has none now."""
        attempt = run.attempt
        if run.phase == "attempt" and attempt is not None and attempt.job:
            return attempt.job
        moved = self.close(run, short("JOB_STATE_CANCELLED"), "cancelled before another candidate was attempted")
        return (
            ""
            if isinstance(moved, Moved) and moved.state == "ended"
            else (moved.job if isinstance(moved, Moved) else moved.attempts[-1].job)
        )


def _without(share: Share, id: str) -> Share:
    """Return a share in which a run does not count itself."""
    return replace(share, begun=lambda: set(share.begun()) - {id})


def closed(run: Run, outcome: str, text: str) -> Run:
    """Return a run as it ends: one with steps, and one whose job is gone, has `failed` in place of its job's state."""
    if outcome == "gone" or (run.steps and outcome in ("FAILED", "CANCELLED", "PARTIALLY_SUCCEEDED")):
        text = f"{run.name} ended {outcome}: {text}".rstrip(": ") if outcome != "gone" else text
        outcome = "failed"
    jobs = dict(run.jobs)
    if run.had_job:
        jobs.setdefault(run.name, next(one.job for one in reversed(run.attempts) if one.job))
    return replace(run, phase="ended", reason=outcome, text=" ".join(text.split())[:1000], jobs=jobs)


_NONE = Claim("", "", "", "", "")


def _why(claim: Claim) -> dict[str, str]:
    return {"reason": claim.ended.get("reason", ""), "text": claim.ended.get("text", "")}
