"""A run with candidates that a person starts: the same run and the same engine as the trigger's, kept where no tick reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from vertexrig.cloud.vertex import RemoteJob
from vertexrig.runs.candidates import CandidateRun, time_and_cost
from vertexrig.runs.deliveries import NotStartedError
from vertexrig.runs.engine import Engine, Moved, NoMachinesError
from vertexrig.runs.run import Run
from vertexrig.runs.store import SUBMITTED, RunStore
from vertexrig.spec.states import short
from vertexrig.submit.budget import Terms
from vertexrig.submit.claims import Key
from vertexrig.submit.submission import Request

_TEXTS = {"SUCCEEDED": "its job has succeeded", "CANCELLED": "its job was cancelled"}


class SubmittedRun:
    """A run with candidates.

    Args:
        candidates: In the order of their attempts.
        asked_digest: Digest of what is asked for.
        key: The request's key, for a new run.
        run: A run that was begun before.
        run_id: An earlier run that is resumed.
    """

    def __init__(
        self,
        candidates: Sequence[CandidateRun],
        asked_digest: str,
        key: Key | None = None,
        run: Run | None = None,
        run_id: str = "",
        cannot: Callable[[CandidateRun], str] = lambda _: "",
        publish: Callable[[CandidateRun], None] = lambda _: None,
    ) -> None:
        self.candidates, own = list(candidates), next(one for one in candidates if one.number == 1)
        runs = RunStore(own.submitter.claims.storage, SUBMITTED)
        self.engine = Engine(
            own.submitter, runs, lambda _: self.candidates, cannot=cannot, publish=publish, asked_digest=asked_digest
        )
        body = Request(own.prepared.view.name).body
        self.run = run or Run("", key or Key("request", ""), body, run_id=run_id)

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def candidate(self) -> int:
        """The number of the candidate that it is at."""
        return self.run.attempt.candidate if self.run.attempt else 1

    @property
    def which_candidate(self) -> str:
        """Such as `candidate 2 of 4`."""
        return f"candidate {self.candidate} of {len(self.candidates)}"

    def advance(self) -> Moved:
        """Take the run as far as it goes now; raises as `Submitter.submit` does."""
        if not self.run.id:
            return self._begin()
        moved = self.engine.move(self.engine.runs.read(self.run.id) or self.run)
        self.run = run = moved.run
        made = moved.made
        if made is None and run.attempt is not None and run.attempt.job:
            candidate = next((one for one in self.candidates if one.number == self.candidate), self.candidates[0])
            claim = self.engine.claim_of(run)
            if claim is not None:
                made = candidate.submitter.answer_about(claim, candidate.collection, moved.remote)
        text = (run.text or _TEXTS.get(run.reason, run.reason)) if moved.ended else moved.text
        return replace(moved, made=made, text=text)

    def _begin(self) -> Moved:
        try:
            self.run, made = self.engine.begin(self.run, self.candidates, Terms())
        except NoMachinesError as error:
            self.run = replace(
                self.run, attempts=tuple(error.attempts), phase="ended", reason="exhausted", text=str(error)
            )
            return Moved(self.run, "ended", text=str(error))
        except NotStartedError as error:
            self.run = self.engine.runs.read(str(error.detail.get("claim", ""))) or self.run
            return Moved(self.run, "waiting", text=error.text)
        return Moved(self.run, "waiting", made=made)

    def attempts(self, job: RemoteJob | None = None) -> list[dict[str, Any]]:
        """Return its attempts as data; `job` is that of the last one, which tells how long it waited and what it cost."""
        rows = [asdict(one) for one in self.run.attempts]
        if job is not None and rows and rows[-1]["job"] in ("", job.name) and not rows[-1]["reason"]:
            claim = self.engine.claim_of(self.run)
            rows[-1] |= {"job": job.name, "text": short(job.state)}
            rows[-1] |= time_and_cost(job, claim.job.estimate if claim is not None else {})
        return rows

    def stop(self) -> str:
        """Cancel the run: return the job that it is at, "" if it has none and none follows."""
        return self.engine.stop(self.engine.runs.read(self.run.id) or self.run)


def read(storage: Any, id: str) -> Run | None:
    """Return a person's run by its id, None if there is none."""
    return RunStore(storage, SUBMITTED).read(id)
