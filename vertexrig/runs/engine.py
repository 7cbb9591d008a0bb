"""What moves a run: makes the jobs of its attempts, one at a time, and carries out what the table says (`vertexrig.runs.advance`).

Why a request never has two jobs that train, and no run is lost:

- A run is written before its first job is made, and deleted only after its end is in the history, or by a delivery of its request that is
  answered with an error.
- Each attempt has one claim. The next attempt begins only after the run says that the last one is over, and that is written only after its
  claim ended without a job, or after its job and every other job with its label was seen ended.
- The run is written, over the generation that was read, before each create call. A process that is frozen and wakes with an older
  generation makes nothing: its write fails, or the claim of its attempt answers with the job that is there.
- Before a run without a job ends, its claim ends.

A delivery calls `begin`, and `keep_waiting` where it is answered that its run waits; a tick calls `move`. Both make jobs by `_make_attempt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import product
from typing import NoReturn

from vertexrig import times
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.errors import VertexrigError
from vertexrig.runs import advance
from vertexrig.runs.advance import NEXT_MAY_FOLLOW, OVER_BUDGET, Action, Seen
from vertexrig.runs.candidates import CandidateRun, first_line, time_and_cost
from vertexrig.runs.deliveries import NO_MACHINES, NotStartedError
from vertexrig.runs.policy import PATIENCE_S, WAITS, Due
from vertexrig.runs.run import BACKFILL, FAILING, Attempt, Run, attempts_of
from vertexrig.runs.store import RunStore
from vertexrig.spec.labels import CANDIDATE_LABEL, CLAIM_LABEL, FIRST_LABEL
from vertexrig.spec.states import CANCELLING, LIVE, SUCCEEDED, has_run
from vertexrig.submit.budget import PER_RUN, OverBudgetError, Share, Terms
from vertexrig.submit.claims import (
    Claim,
    EndedError,
    InProgressError,
    Key,
    OtherCandidateError,
    Recorded,
    digest,
)
from vertexrig.submit.reconcile import call_off
from vertexrig.submit.scarcity import Scarcity, scarcity_of
from vertexrig.submit.submission import Request, Submitted, Submitter, UnsureError, dearest, most_trials, price_within
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
        run: As it is stored now or was last. Its `step` is the one just attempted; the stored run may be one behind.
        state: `waiting` for machines or for what its schedule names, `training`, `started` (a job was made just now), `ended`, or `unknown`
            after an error.
        job: The job that it waits for, "" for none.
        text: In one line.
        problem: It waits for something that a person has to do.
        inside: The text is a service's message about the trigger itself: for the log, not for callers.
        first_job: `made` is the first job of the run.
        made: The job that was made just now, or was found.
        remote: The job as the service describes it, where that was asked.
    """

    run: Run
    state: str
    job: str = ""
    text: str = ""
    problem: bool = False
    inside: bool = False
    first_job: bool = False
    made: Submitted | None = None
    remote: RemoteJob | None = None

    @property
    def ended(self) -> bool:
        return self.state == "ended"


@dataclass
class _Making:
    """An attempt whose job is being made.

    Args:
        run: With this attempt as its last one, and its job, or the reason for none. It has its id from `write`, or from the claim of an
            attempt that got no new job; no `run_id` where an earlier delivery's job was found.
        stored: The run as this process has read or written it last; its generation is 0 before that.
        opened: `write` was the first one to write the run.
    """

    run: Run
    stored: Run
    opened: bool = False

    def write(self, runs: RunStore, claim: Claim, check_claim: Callable[[], None]) -> None:
        """Write the run just before its job is made; InProgressError if another process has changed it.

        Args:
            check_claim: See `RunStore.add`.
        """
        run = self.run if self.run.is_later_attempt else replace(self.run, id=claim.id, run_id=claim.run_id)
        if run.generation:
            kept = runs.save(run)
            if kept is None:
                raise InProgressError(1.0)
        else:
            kept, self.opened = runs.add(run, check_claim)
        self.run = self.stored = kept


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
        asked_digest: Of the request, where it is not that of its body.
        round_s: See `vertexrig.runs.advance.ROUND_S`.
        now: The time by the service's clock.
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
    asked_digest: str = ""
    round_s: float = advance.ROUND_S
    now: Callable[[], datetime] = times.now
    _live: Iterable[RemoteJob] | None = None
    _rendered: dict[str, list[CandidateRun]] = field(default_factory=dict)

    def new_tick(self, live: Iterable[RemoteJob] | None) -> None:
        """Forget what an earlier tick saw; `live` are the jobs of the trigger that live now, None if they were not listed."""
        self._live = live
        self._rendered.clear()

    # --- a delivery ---

    def begin(self, run: Run, candidates: Sequence[CandidateRun], terms: Terms) -> tuple[Run, Submitted]:
        """Make the job of the first candidate that is not refused, or find the one that an earlier delivery made.

        Args:
            run: What is kept of the request; its `id` is filled in.
            terms: With the policy of its schedule (`Due.terms`).

        Raises:
            NoMachinesError: No candidate got machines, and no other round follows.
            NotStartedError: None did yet, and ticks continue (`deferred` with reason NO_MACHINES: the run is stored); the run has ended already
                (`skipped`); or what `terms.before_create` raises, such as a hold: the run is not stored, see `keep_waiting`.
            VertexrigError: As of `Submitter.submit`. A run that this delivery has opened is deleted, at the generation that it wrote, unless its
                job may be there.
        """
        making, looked = _Making(run, run), False
        for position, candidate in enumerate(candidates):
            making.run = _with_new_attempt(making.run, candidate)
            # the request's own key for the first one: after its window the same request begins again
            key = run.key if position == 0 else making.run.attempt_key(position)
            try:
                made = self._make_attempt(making, candidates, candidate, terms, key)
            except EndedError as error:
                if error.claim.ended.get("reason") not in NEXT_MAY_FOLLOW:
                    self._drop(making)
                    raise
                made, making.run = None, _without_job(making.run, error.claim)
            except Exception:
                self._drop(making)
                raise
            # the first attempt that gave this delivery no new job shows whether others were here before
            if not looked and (made is None or made.duplicate):
                looked = True
                further = self._taken_further(making.run, made, candidates)
                if further is not None:
                    return further
            if made is not None:
                return making.run, made  # the stored run does not name the job: the next tick finds and records it
        self._none_got_machines(making.run, candidates)

    def _taken_further(
        self, run: Run, made: Submitted | None, candidates: Sequence[CandidateRun]
    ) -> tuple[Run, Submitted] | None:
        """Return what an earlier delivery or ticks made of a request; None if they are not further than this delivery.

        A run that has ended is in the history, with the attempts of one with candidates.

        Raises:
            NotStartedError: The run has ended without a job, or has none now.
        """
        found = self.runs.read(run.id)
        if found is not None and len(found.attempts) > len(run.attempts):
            return self._continued(found, candidates)
        # of a job that ended badly a later attempt may have succeeded, also where the project file names no candidates any more
        alone = made is not None and len(candidates) == 1 and made.state in (*LIVE, SUCCEEDED)
        if found is not None or alone:
            return None
        claim = self.submitter.claims.by_key(run.key)
        row = self.runs.history_row(replace(run, run_id=claim.run_id)) if claim is not None else None
        if row is None:
            return None
        end = row.get("end") or {}
        last = replace(run, attempts=attempts_of(end.get("attempts")) or run.attempts)
        claim = self.claim_of(last) if len(last.attempts) > len(run.attempts) else None
        if claim is not None and claim.state == "created":
            return self._answered(last, claim, candidates)
        if made is None:
            raise NotStartedError("skipped", str(row.get("reason") or end.get("outcome")), str(end.get("reason", "")))
        return None

    def _continued(self, run: Run, candidates: Sequence[CandidateRun]) -> tuple[Run, Submitted]:
        """Return the current job of a run that ticks have continued."""
        claim = self.claim_of(run)
        if claim is None or claim.state != "created":
            # written again: the delivery that opened it deletes only the generation that it wrote
            if self.runs.save(run) is None:
                raise InProgressError(1.0)
            text = run.text or "its next attempt has no job yet"
            raise NotStartedError("deferred", NO_MACHINES, text, {"candidate": self.which_candidate(run)})
        return self._answered(run, claim, candidates)

    def _answered(self, run: Run, claim: Claim, candidates: Sequence[CandidateRun]) -> tuple[Run, Submitted]:
        """Return a run with the answer about the job of its last attempt."""
        candidate = _by_number(candidates, run.attempts[-1].candidate)
        job = candidate.submitter.vertex.get(claim.job.name)
        return run, candidate.submitter.answer_about(claim, candidate.collection, job)

    def _none_got_machines(self, run: Run, candidates: Sequence[CandidateRun]) -> NoReturn:
        """Keep a run of which no candidate got machines, if another round follows.

        Raises:
            NotStartedError: Another round follows.
            NoMachinesError: None does, and the run is not kept.
        """
        of = len(candidates)
        if self._retry_for_s(run) and run.id:
            kept = self._write_anyway(self._attempt_over(run, run.attempts[-1].reason, run.attempts[-1].text))
            pause = f"{self.round_s / self.speed:.0f} s"
            text = f"all {of} candidates were tried; the first is attempted again in {pause}"
            detail = {"candidate": f"candidate {candidates[-1].number} of {of}", "claim": kept.id}
            raise NotStartedError("deferred", NO_MACHINES, text, detail)
        if (left := self.runs.read(run.id)) is not None:
            self.runs.storage.delete(self.runs.path(run.id), left.generation)
        raise NoMachinesError(f"none of the {of} candidates got machines", run.attempts)

    def keep_waiting(self, run: Run, why: NotStartedError) -> NotStartedError | None:
        """Keep a run that its schedule's policy lets wait: ticks start it.

        Returns:
            What the delivery is answered with; None if there is no claim, so that there is nothing to keep and the request must be repeated.
        """
        claim = self.submitter.claims.by_key(run.key)
        if claim is None:
            return None
        others_follow = claim.ended.get("reason") in NEXT_MAY_FOLLOW  # it is the claim of the first candidate
        if claim.state == "ended" and not others_follow:  # the answer to that write was lost
            return NotStartedError("skipped", claim.ended.get("reason", ""), claim.ended.get("text", ""))
        waiting = replace(run, id=claim.id, run_id=claim.run_id, attempts=(), phase="waiting")
        # after a later attempt failed the run is there, unless `_drop` has deleted it, or it has ended
        absent = others_follow and self.runs.read(claim.id) is None
        if absent and (row := self.runs.history_row(waiting)) is not None:
            end = row.get("end") or {}
            return NotStartedError("skipped", str(end.get("outcome", "")), str(end.get("reason", "")))
        if claim.state in ("claimed", "released") or absent:
            self._write_anyway(replace(waiting, reason=why.reason, text=why.text))
        return why

    def _write_anyway(self, run: Run) -> Run:
        """Write a run over whatever is stored of it."""
        for _ in range(8):
            found = self.runs.read(run.id)
            kept = self.runs.save(replace(run, generation=found.generation if found else 0))
            if kept is not None:
                return kept
        raise RestError("the run changes too fast to be written", status=503)

    def _drop(self, making: _Making) -> None:
        """Delete a run that was opened for a request for which this delivery makes no job; `keep_waiting` writes one that is to wait."""
        run = making.stored
        if not making.opened:
            return
        try:
            found = [self.submitter.claims.by_key(run.attempt_key(index)) for index in range(len(run.attempts))]
            if all(claim is not None and claim.state in ("released", "ended") for claim in found):
                # as this delivery wrote it last: another delivery or a tick that relies on it has written it since
                self.runs.storage.delete(self.runs.path(run.id), run.generation)
        except RestError:
            pass  # a tick makes its job: at most one, as for a delivery whose answer was lost

    # --- an attempt ---

    def _make_attempt(
        self, making: _Making, candidates: Sequence[CandidateRun], candidate: CandidateRun, terms: Terms, key: Key
    ) -> Submitted | None:
        """Make the job of an attempt, or find it; None if the attempt is over without one, which `making.run` then says.

        Just before the create call the run is written: from then on it has its id, and ticks see it.
        """
        later, several = making.run.is_later_attempt, len(candidates) > 1
        # the first attempt keeps the run's id, also where its claim was deleted while the run waited
        claim_id = "" if later else making.run.id
        asked_digest = self._digest_of(making.run)
        if later or candidate.number != 1:
            # `Claims.take` compares it: a job is looked for only under the same candidate. Of a first attempt it is REQUEST.CANDIDATE, so
            # that it stays the same request.
            of_candidate = digest(
                {"body": asked_digest, "candidate": list(candidate.prepared.workspace.loaded.overrides)}
            )
            asked_digest = of_candidate if later else f"{asked_digest}.{of_candidate}"
        skip = self._passed_over(candidate, terms) if several else None
        if skip is not None:
            claim = candidate.submitter.end(key, asked_digest, candidate.prepared.view.name, skip, claim_id)
            if not claim.job.name:
                making.run = _without_job(making.run, claim)
                return None
        self.publish(candidate)
        # a sweep's trials have other values than those whose checkpoints are in the folder of the study before
        run_id = "" if later and candidate.prepared.view.sweep is not None else making.run.run_id

        def before_create(claim: Claim) -> None:
            terms.before_create(claim)
            making.write(self.runs, claim, check_claim=lambda: self._check_claim(key, claim))

        own = replace(self._terms_of(making.run, candidates, candidate, terms), before_create=before_create)
        try:
            made = candidate.submitter.submit(
                candidate.prepared, key, asked_digest, run_id, terms=own, claim_id=claim_id
            )
        except RestError as error:
            # whether there is a job is not known: the next tick finds out, under the same claim
            if isinstance(error, UnsureError) or not several or scarcity_of(error) is Scarcity.OTHER:
                raise
            making.run = making.run.with_attempt(reason=scarcity_of(error).value, text=first_line(str(error)))
            return None
        # an earlier delivery may have made the job of another candidate, which was the first one then
        number = made.labels.get(CANDIDATE_LABEL, "")
        found = {"candidate": int(number)} if made.duplicate and number.isdecimal() else {}
        making.run = replace(making.run, id=making.run.id or made.claim).with_attempt(job=made.name, **found)
        return made

    def _check_claim(self, key: Key, claim: Claim) -> None:
        """Read the claim of an attempt again; InProgressError if another delivery has taken it over."""
        current = self.submitter.claims.by_key(key)
        if current is None or (current.token, current.state) != (claim.token, "claimed"):
            raise InProgressError(1.0)

    def _digest_of(self, run: Run) -> str:
        return self.asked_digest or Request(**run.body).digest

    def _passed_over(self, candidate: CandidateRun, terms: Terms) -> Mapping[str, str] | None:
        """Return why one of several candidates gets no job (`Claim.ended`), None if it may get one."""
        reason, text = Scarcity.QUOTA.value, self.cannot(candidate)
        if not text:
            try:
                price_within(candidate.prepared, candidate.submitter.limits, terms)
                return None
            except OverBudgetError as error:
                reason, text = OVER_BUDGET, str(error)
        return {"reason": reason, "text": first_line(text), "candidate": str(candidate.number)}

    def _terms_of(self, run: Run, candidates: Sequence[CandidateRun], candidate: CandidateRun, terms: Terms) -> Terms:
        """Return the terms of one attempt: those of its run, the labels of the attempt, and what its end without a job means."""
        later, several, number = run.is_later_attempt, len(candidates) > 1, str(candidate.number)

        def final_reason(error: Exception) -> Mapping[str, str] | None:
            why = scarcity_of(error) if several and isinstance(error, RestError) else Scarcity.OTHER
            if why is Scarcity.OTHER:
                return terms.final_reason(error)
            return {"reason": why.value, "text": first_line(str(error)), "candidate": number}

        labels, every, limits = dict(terms.labels), [one.prepared for one in candidates], candidates[0].submitter.limits
        if several or later:
            labels[CANDIDATE_LABEL] = number
        if later:
            labels[FIRST_LABEL] = run.id
        return replace(
            terms,
            labels=labels,
            # the run itself is counted under the claim of its first attempt
            shares=[_without(one, run.id) for one in terms.shares] if later else terms.shares,
            most=dearest(every, limits, terms) if several else None,
            most_trials=most_trials(every, limits, terms) if several else 0,
            final_reason=final_reason,
        )

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
        if not name:
            return None
        known = found.job if found is not None else Recorded()
        return Claim(run.id, "", "", run.name, "", "created", replace(known, name=name))

    def has_job(self, run: Run) -> bool:
        """Whether a job was made for a run, also one that no tick has recorded yet."""
        if run.had_job or run.phase != "attempt":
            return run.had_job
        claim = self.claim_of(run)
        return claim is not None and claim.state == "created"

    def which_candidate(self, run: Run) -> str:
        """Return which candidate a run is at: `candidate 2 of 4`; "" for a run without candidates."""
        entries = self.submitter.workspace.loaded.project.entries
        of = 1 + len(entries[run.name].candidates) if run.name in entries else 1
        number = run.attempts[-1].candidate if run.attempts else 1
        return f"candidate {number} of {max(of, number)}" if of > 1 or number > 1 else ""

    def _retry_for_s(self, run: Run) -> float:
        """Return for how many seconds candidates are attempted again."""
        project = self.submitter.workspace.loaded.project
        schedule, own = project.schedules.get(run.schedule), project.entries.get(run.name)
        texts = (own.retry_for if own is not None else None, schedule.retry_for if schedule is not None else None)
        return max(times.meant_seconds(text or "0s") or 0.0 for text in texts) / self.speed

    # --- a tick ---

    def see(
        self, run: Run, job: RemoteJob | None, hold: str = "", newest: str = "", at: datetime | None = None
    ) -> Seen:
        """Return what is seen of a run. It is rendered only where the prices of its candidates give their order."""
        own = self.submitter.workspace.loaded.project.entries.get(run.name)
        problem = self.problem(run)
        order: Sequence[int] = (1,) if own is None else range(1, 2 + len(own.candidates))
        if own is not None and own.candidates and own.prefer == "price" and run.phase == "waiting" and not problem:
            try:
                order = [one.number for one in self._candidates(run)]
            except ChangedError as error:
                problem = str(error)
            except NoPackageError:
                pass  # as the attempt will tell
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
            problem=problem,
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
            newest: See `Seen.newest`.
            at: The time by the service's clock.
        """
        at, listed = at or self.now(), job is not None
        for _ in range(40):
            if run.phase == "attempt" and (name := run.attempts[-1].job) and (job is None or job.name != name):
                job, listed = self.submitter.vertex.get(name), False
            action = advance.advance(run, self.see(run, job, hold, newest, at))
            if action.do in ("give-up", "cancel") and listed:
                job = None  # it may have begun to train since it was listed
                continue
            result = self._carry_out(run, action, job, at)
            if isinstance(result, Moved):
                return result
            run, job = result, (job if result.phase == "attempt" else None)
        return Moved(run, "waiting", text="it changes too fast; the next tick continues")

    def _carry_out(self, run: Run, action: Action, job: RemoteJob | None, at: datetime) -> Moved | Run:
        """Do what the table says; return the run to look at again, or what became of it."""
        name = run.attempts[-1].job if run.attempts else ""
        if action.do == "wait":
            self._cancel_others(run)
            if action.why == "hold":
                run = self._on_hold(run, action.text, at)
            began = job is not None and run.phase == "attempt" and not job.ended and has_run(job.data)
            return Moved(run, "training" if began else "waiting", name if job else "", action.text, remote=job)
        if action.do == "give-up":
            # the decision first: a job that is found cancelled without it was cancelled by a person
            kept = self.runs.save(run.with_attempt(reason=action.why, text=action.text))
            if kept is None:
                return Moved(run, "waiting", name)
            run = kept
        if action.do in ("give-up", "cancel"):
            call_off(self.submitter.vertex, name)  # it may have ended: the next tick sees it
            why = "was cancelled, and its job" if run.stopped else "its job has waited for too long and"
            return Moved(run, "waiting", name, f"{why} is being cancelled", remote=job)
        if action.do == "attempt-over":
            return self._end_attempt(run, action, job, at)
        if action.do in ("start", "find-or-make"):
            return self._start_attempt(run, action, at)
        if action.do == "step":
            assert self.step is not None  # only runs of the trigger have steps
            return self.step(run, job)
        return self.close(run, action.why, action.text, remote=job)

    def _on_hold(self, run: Run, text: str, at: datetime) -> Run:
        """Write that a run is on hold where it waited for something else: time in which nothing is attempted does not count."""
        if run.phase == "step" and run.reason == FAILING:
            return self.runs.save(replace(run, reason="")) or run
        if run.phase == "waiting" and run.reason not in ("", BACKFILL, *WAITS):
            return self.runs.save(replace(run, reason="hold", text=text, since=times.rfc3339(at, 0))) or run
        return run

    def _end_attempt(self, run: Run, action: Action, job: RemoteJob | None, at: datetime) -> Moved | Run:
        """Write that the last attempt is over, once every job of it, in every region, has ended."""
        claim, own = self.claim_of(run), self.submitter
        id, estimate = (claim.id, claim.job.estimate) if claim is not None else (run.id, {})
        collection = job.collection if job is not None else own.collection_of(run.name)
        others = [one for one in own.reconciler.with_label(id, collection) if job is None or one.name != job.name]
        if claim is not None:
            own.reconciler.keep_recorded(claim, others)
        if not all(one.ended for one in others):
            return Moved(run, "waiting", text="a second job of this attempt is being cancelled")
        spent = time_and_cost(job, estimate) if job is not None else {}
        kept = self.runs.save(self._attempt_over(run.with_attempt(**spent), action.why, action.text, at))
        if kept is None:
            return Moved(run, "waiting")
        if job is not None and not has_run(job.data):  # it cost nothing: its room in the day's budget is free again
            own.ledger.take_out(own.ledger.objects_of(id, self.terms(run).shares))
        return kept

    def _attempt_over(self, run: Run, why: str, text: str, at: datetime | None = None) -> Run:
        """Return a run whose last attempt is over, which waits for the next one."""
        now = times.rfc3339(at or self.now(), 0)
        done = run.with_attempt(reason=why, text=text) if run.attempts else run
        return replace(done, phase="waiting", reason=why, text=text, since=now, retry_since=run.retry_since or now)

    def _candidates(self, run: Run) -> list[CandidateRun]:
        if run.id not in self._rendered:
            self._rendered[run.id] = self.candidates(run)
        return self._rendered[run.id]

    def _start_attempt(self, run: Run, action: Action, at: datetime) -> Moved | Run:
        """Make the job of the next attempt; of the last one (`find-or-make`), unless it is there."""
        if action.do == "find-or-make":
            found = self._settle_unrecorded(run, at)
            if found is not None:
                return found
            if action.why == "hold":
                return Moved(run, "waiting", text=action.text)
        if self._is_of_later_request(run):
            return self._lost(run)
        due, making = self.due(run), _Making(run, stored=run)
        try:
            candidates = self._candidates(run)
            candidate = _by_number(candidates, action.candidate)
            terms = self._terms_now(run, due)
            if action.do == "start":
                making.run = replace(_with_new_attempt(run, candidate), phase="attempt", since=times.rfc3339(at, 0))
            key = making.run.attempt_key(len(making.run.attempts) - 1)
            made = self._make_attempt(making, candidates, candidate, terms, key)
        except EndedError as error:
            # an attempt that was refused is one of the run; otherwise the run ends as it is stored
            follows = error.claim.ended.get("reason") in NEXT_MAY_FOLLOW
            return self._follow_ended_claim(making.run if follows else making.stored, error.claim, at)
        except OtherCandidateError:  # its job, if there is one, is found where the run is closed
            return self.close(
                run, "changed", f"candidate {candidate.number} is another one now than when its job was asked for"
            )
        except InProgressError as error:
            return Moved(run, "waiting", text=str(error))
        except ChangedError as error:
            return self.close(run, "changed", str(error))
        except (VertexrigError, NotStartedError) as error:
            return self._not_started(run, making.stored, due, error, at)
        after = making.run
        if made is None:
            over = self._attempt_over(after, after.attempts[-1].reason, after.attempts[-1].text, at)
            return self.runs.save(over) or Moved(run, "waiting")
        after = replace(after, phase="attempt", since=times.rfc3339(at, 0), reason="", text="")
        kept = self.runs.save(after) or after
        state = "waiting" if made.duplicate else "started"
        return Moved(kept, state, made.name, first_job=not run.had_job, made=made)

    def _settle_unrecorded(self, run: Run, at: datetime) -> Moved | Run | None:
        """Continue with what a delivery, or a tick that died, made of the last attempt: its job, or its end; None if the job is to be made."""
        claim = self.claim_of(run)
        if claim is None and len(run.attempts) == 1:
            return self._lost(run)
        if claim is not None and claim.state == "created":
            return self.runs.save(run.with_attempt(job=claim.job.name)) or Moved(run, "waiting")
        if claim is not None and claim.state == "ended":
            return self._follow_ended_claim(run, claim, at)
        return None

    def _is_of_later_request(self, run: Run, claim: Claim | None = None) -> bool:
        """Whether the claim of a first attempt without a job belongs to a later request: one with the same body, whose window began since, or one
        with the same id, whose body was corrected after the service had refused this one.
        """
        if run.next_index or (claim is None and run.key.window_s is None and run.key.kind != "request"):
            return False
        claim = claim or self.submitter.claims.by_key(run.key)
        if claim is None:
            return False
        return claim.id != run.id or claim.asked.partition(".")[0] != self._digest_of(run)

    def _lost(self, run: Run) -> Moved | Run:
        text = f"no job of {run.name} was made, and its claim is gone or a later request's; ask for it again"
        return self.close(run, "failed", text, end_claim=False)

    def _follow_ended_claim(self, run: Run, claim: Claim, at: datetime) -> Moved | Run:
        """Continue or end a run whose last attempt is over without a job."""
        why, text = claim.ended.get("reason", ""), claim.ended.get("text", "")
        if why not in NEXT_MAY_FOLLOW:
            return self._skipped(run, why, text)
        return self.runs.save(self._attempt_over(run, why, text, at)) or Moved(run, "waiting")

    def _terms_now(self, run: Run, due: Due | None) -> Terms:
        """Return the terms of a run's caller and schedule."""
        terms = self.terms(run)
        if due is None:
            return terms
        if not run.begun:
            return due.terms(terms)
        # a policy decides whether a run begins: one that has begun is not left out any more, but waits while it is on hold
        return replace(due.terms(terms, begun=True), final_reason=terms.final_reason)

    def _skipped(self, run: Run, reason: str, text: str) -> Moved | Run:
        return self.close(run, "skipped", text, reason=reason, end_claim=False)

    def _not_started(self, before: Run, stored: Run, due: Due | None, error: Exception, at: datetime) -> Moved | Run:
        """Return what becomes of a run whose job could not be made this time: it waits, or ends.

        Args:
            before: The run as this tick has read it.
            stored: As it wrote it last, in phase `attempt` if the create call failed. Nothing else is written over: another
                process may have made the job since.
        """
        run = replace(before, generation=stored.generation)
        why = due.not_started(error) if due is not None else None
        if why is not None and why.decision == "skipped" and not run.begun:
            return self._skipped(run, why.reason, why.text)
        if isinstance(error, RestError) and error.status == 400:
            return self.close(run, "failed", str(error))
        if why is None and not _passes(error):
            return self.close(run, "changed", str(error))
        if why is not None:
            reason, text = why.reason, why.text
        else:
            # what it waited for before, such as the end of a hold, has come
            other = run.reason if run.reason not in ("", BACKFILL, *WAITS) else "unavailable"
            reason, text = OVER_BUDGET if isinstance(error, OverBudgetError) else other, str(error)
        kept = self._waiting_for(run, stored, reason, text, at)
        if kept is None:
            return Moved(run, "waiting")
        ended = self._waited_too_long(kept, due if why is not None else None, reason, text, at)
        if ended is not None:
            return ended
        inside = isinstance(error, RestError) and why is None
        problem = inside or isinstance(error, (OverBudgetError, NoPackageError))
        return Moved(kept, "waiting", text=text, problem=problem, inside=inside)

    def _waiting_for(self, run: Run, stored: Run, reason: str, text: str, at: datetime) -> Run | None:
        """Write what a run waits for, in place of the attempt that failed; None if another process has changed it since.

        Args:
            run: As this tick has read it, with the generation of `stored`.
            stored: As this tick wrote it last.
        """
        if reason == run.reason and run.phase == "waiting":
            return run if stored.phase == "waiting" else self.runs.save(replace(run, since=run.phase_since))
        same_kind = run.reason and (run.reason in WAITS) == (reason in WAITS)
        # for a reason of another kind the time counts from now on
        since = run.phase_since if same_kind else times.rfc3339(at, 0)
        if run.phase == "attempt" and run.attempts and not run.attempts[-1].job:
            # the attempt is taken back: the next one has the same key, and finds the job if the create call took effect
            run = replace(run, attempts=run.attempts[:-1])
        return self.runs.save(replace(run, phase="waiting", reason=reason, text=text, since=since))

    def _waited_too_long(self, run: Run, due: Due | None, reason: str, text: str, at: datetime) -> Moved | Run | None:
        """End a run that has waited for longer than its schedule's `retry_for`, or PATIENCE_S; None if it has not.

        Args:
            due: The schedule whose policy lets it wait, None for none.
        """
        began = times.nanoseconds(run.phase_since)
        waited = at.timestamp() - began / 1e9 if began else 0.0
        limit = PATIENCE_S
        if due is not None and not run.begun and reason not in WAITS:
            limit = times.meant_seconds(due.schedule.retry_for or "0s") or 0.0
        if waited <= limit or reason == "hold":
            return None
        length = f"{waited / 3600:.1f} h" if limit < 86_400 else f"{waited / 86_400:.0f} days"
        outcome = "given-up" if run.had_job else "refused"
        return self.close(run, outcome, f"given up after {length}: {text}", reason=reason)

    # --- the end ---

    def close(
        self, run: Run, outcome: str, text: str = "", *, reason: str = "", model: str = "", end_claim: bool = True,
        remote: RemoteJob | None = None,
    ) -> Moved | Run:  # fmt: skip
        """End a run: first its claim if it has no job, then the run, then the history and its notices.

        Returns:
            What became of it; the run, to be looked at again, if it has a job after all.

        Args:
            reason: Of a run without a job, the word for programs.
            end_claim: False where its claim has ended already, or belongs to another request.
        """
        if run.phase != "ended":
            if end_claim and run.awaits_job:
                claim = self._end_claim(run, outcome, text)
                if claim is None:
                    return Moved(run, "waiting", text="another delivery is at work")
                if claim.job.name:
                    # of an attempt that was taken back, whose create call took effect
                    number = int(claim.job.labels.get(CANDIDATE_LABEL) or 1)
                    there = run if run.phase == "attempt" else replace(run, attempts=(*run.attempts, Attempt(number)))
                    found = replace(there, phase="attempt").with_attempt(job=claim.job.name)
                    return self.runs.save(found) or Moved(run, "waiting")
                if claim.ended.get("reason") not in (None, outcome):
                    reason, text = claim.ended["reason"], claim.ended.get("text", text)
                    outcome = "skipped" if outcome in ("superseded", "skipped", "changed") else outcome
            kept = self.runs.save(self._ended(run, outcome, text, reason, model, remote))
            if kept is None:
                return Moved(run, "waiting")
            run = kept
        self.finish(run)
        self.runs.forget(run)
        name = run.attempts[-1].job if run.attempts else ""
        return Moved(run, "ended", name, run.text, remote=remote)

    def _ended(self, run: Run, outcome: str, text: str, reason: str, model: str, remote: RemoteJob | None) -> Run:
        """Return a run as it ends, with what its last job took and cost."""
        if remote is not None and run.attempts and run.attempts[-1].job == remote.name:
            claim = self.claim_of(run)
            id, estimate = (claim.id, claim.job.estimate) if claim is not None else (run.id, {})
            run = run.with_attempt(**time_and_cost(remote, estimate))
            self.submitter.reconciler.look(id, remote.collection)
        delivery = {**run.delivery, **({"reason": reason} if reason else {})}
        since = times.rfc3339(self.now(), 0)
        return replace(closed(run, outcome, text), model=model, delivery=delivery, since=since)

    def _end_claim(self, run: Run, outcome: str, text: str) -> Claim | None:
        """End the claim of the attempt that would get the next job; None if another delivery is at work.

        Returns:
            The claim, with its job if it has one after all; an empty one where there is none to end.
        """
        key, asked_digest = run.attempt_key(run.next_index), self._digest_of(run)
        current = self.submitter.claims.by_key(key)
        if current is None and run.attempts and run.attempts[-1].reason:
            return Claim("", "", "", "", "")  # no job was asked for since the last attempt was over
        if current is not None and self._is_of_later_request(run, current):
            return Claim("", "", "", "", "")
        if current is not None:
            asked_digest = current.asked
        try:
            ended = {"reason": outcome, "text": first_line(text)}
            return self.submitter.end(key, asked_digest, run.name, ended, "" if run.next_index else run.id)
        except InProgressError:
            return None

    def _cancel_others(self, run: Run) -> None:
        """Cancel jobs of earlier attempts that live: their maker died before they were recorded, and lists showed them late."""
        if run.phase != "attempt" or len(run.attempts) < 2:
            return
        # the first attempt by its whole id: later requests of the same key have ids that begin alike
        earlier = {run.attempt_key(index).digest[:32] for index in range(1, len(run.attempts) - 1)}
        for job in self._live if self._live is not None else self._jobs_of(run):
            made_by = job.labels.get(CLAIM_LABEL, "")
            if (made_by == run.id or made_by[:32] in earlier) and not job.ended and job.state != CANCELLING:
                call_off(self.submitter.vertex, job.name)

    def _jobs_of(self, run: Run) -> Iterable[RemoteJob]:
        """Yield the jobs of all attempts of a run."""
        collection = self.submitter.collection_of(run.name)
        for vertex, label in product(self.submitter.ledger.vertices, (CLAIM_LABEL, FIRST_LABEL)):
            yield from vertex.list(collection, filter=f'labels.{label}="{run.id}"')

    def stop(self, run: Run) -> str:
        """Write that a run is cancelled, so that no further job is made for it; return the job that it is at, for the caller to cancel.

        A run without a job that lives ends here, and "" is returned.
        """
        at, found = self.now(), run
        for _ in range(8):
            name = found.job if found.phase == "step" else found.attempts[-1].job if found.attempts else ""
            job = self.submitter.vertex.get(name) if name and found.phase == "attempt" else None
            action = advance.advance(found, self.see(found, job, at=at))
            if action.do == "end" and not found.stopped and found.phase == "attempt" and name:
                return name  # it has ended, and nothing follows
            stopped = replace(found, stopped=found.stopped or times.rfc3339(at, 0))
            kept = found if found.stopped or found.phase == "ended" else self.runs.save(stopped)
            if kept is None:
                there = self.runs.read(run.id)
                if there is None:
                    return name
                found = there
                continue
            if kept.phase == "step" or (job is not None and not job.ended):
                return name
            moved = self._carry_out(kept, advance.advance(kept, self.see(kept, job, at=at)), job, at)
            if isinstance(moved, Run):  # its job was made meanwhile
                return moved.attempts[-1].job
            return "" if moved.ended else moved.job
        raise RestError("the run changes too fast to be cancelled", status=503)


def _by_number(candidates: Sequence[CandidateRun], number: int) -> CandidateRun:
    return next((one for one in candidates if one.number == number), candidates[0])


def _with_new_attempt(run: Run, candidate: CandidateRun) -> Run:
    return replace(run, attempts=(*run.attempts, Attempt(candidate.number, candidate.changes)))


def _without_job(run: Run, claim: Claim) -> Run:
    """Return a run whose last attempt has ended with its claim, without a job."""
    named = replace(run, id=run.id or claim.id, run_id=run.run_id or claim.run_id)
    return named.with_attempt(reason=claim.ended.get("reason", ""), text=claim.ended.get("text", ""))


def _passes(error: Exception) -> bool:
    """Whether an error that left a job unmade may pass by itself or by what a person does: the project file stays as it is."""
    if isinstance(error, OverBudgetError):
        return error.limit not in PER_RUN
    return isinstance(error, (RestError, NoPackageError))


def _without(share: Share, id: str) -> Share:
    """Return a share in which a run does not count itself."""
    return replace(share, begun=lambda: set(share.begun()) - {id})


def closed(run: Run, outcome: str, text: str) -> Run:
    """Return a run as it ends: one with steps, and one whose job is gone, has `failed` in place of its job's state."""
    if outcome == "gone" or (run.steps and outcome in ("FAILED", "CANCELLED", "EXPIRED", "PARTIALLY_SUCCEEDED")):
        text = f"{run.name} ended {outcome}: {text}".rstrip(": ") if outcome != "gone" else text
        outcome = "failed"
    jobs = dict(run.jobs)
    if run.had_job:
        jobs.setdefault(run.name, next(one.job for one in reversed(run.attempts) if one.job))
    return replace(run, phase="ended", reason=outcome, text=" ".join(text.split())[:1000], jobs=jobs)
