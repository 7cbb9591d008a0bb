"""A run with candidates that a person starts: the same run and the same engine as the trigger's, kept where no tick reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
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
from vertexrig.submit.submission import Request, Submitted

_TEXTS = {"SUCCEEDED": "its job has succeeded", "CANCELLED": "its job was cancelled"}


@dataclass(frozen=True)
class RunState:
    """Where a run is.

    Args:
        state: `waiting` for machines or for the next round, `training`, or how it ended: `succeeded`, `failed`, `cancelled`, `exhausted`.
        candidate: The number of its candidate.
        of: How many candidates there are.
        made: Its job, None if there is none.
        job: The same as the service describes it, where that was asked.
    """

    state: str
    candidate: int
    of: int
    text: str = ""
    made: Submitted | None = None
    job: RemoteJob | None = None

    @property
    def ended(self) -> bool:
        return self.state not in ("waiting", "training")

    @property
    def which_candidate(self) -> str:
        """Such as `candidate 2 of 4`."""
        return f"candidate {self.candidate} of {self.of}"


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

    def advance(self) -> RunState:
        """Take the run as far as it goes now; raises as `Submitter.submit` does."""
        if not self.run.id:
            return self._begin()
        run = self.engine.runs.read(self.run.id) or self.run
        moved = self.engine.move(run)
        self.run = moved.run
        return self._state(moved)

    def _begin(self) -> RunState:
        try:
            self.run, made = self.engine.begin(self.run, self.candidates, Terms())
        except NoMachinesError as error:
            self.run = replace(
                self.run, attempts=tuple(error.attempts), phase="ended", reason="exhausted", text=str(error)
            )
            return RunState("exhausted", error.attempts[-1].candidate, len(self.candidates), str(error))
        except NotStartedError as error:
            found = self.engine.runs.read(str(error.detail.get("claim", "")))
            self.run = found or self.run
            number = self.run.attempts[-1].candidate if self.run.attempts else 1
            return RunState("waiting", number, len(self.candidates), error.text)
        return RunState("waiting", self.run.attempts[-1].candidate, len(self.candidates), made=made)

    def _state(self, moved: Moved) -> RunState:
        run, attempt = moved.run, moved.run.attempt
        number, job = attempt.candidate if attempt else 1, moved.remote
        made = moved.made
        if made is None and attempt is not None and attempt.job:
            candidate = next((one for one in self.candidates if one.number == number), self.candidates[0])
            claim = self.engine.claim_of(run)
            made = candidate.submitter.answer_about(claim, candidate.collection, job) if claim is not None else None
        if moved.state == "ended":
            text = run.text or _TEXTS.get(run.reason, run.reason)
            return RunState(run.reason.lower(), number, len(self.candidates), text, made, job)
        state = "training" if moved.state == "training" else "waiting"
        return RunState(state, number, len(self.candidates), moved.text, made, job)

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
