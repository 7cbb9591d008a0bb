"""From a request to exactly one job: render, check, claim, budget, create, record. Shared by the CLI and the trigger.

A `run` is the name of a job or sweep of the project file; a `run_id`, such as 20261121-171500-ab12, names one run of it, whose output
folder `Prepared.in_run` gives to what was rendered.
Of a job a claim keeps a `Recorded`: `recorded` makes one, `Claims.record` writes it, `Claims.take` does so for a job that it finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

from vertexrig.cloud.rest import RestError
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import COLLECTIONS, CUSTOM, RESOURCES, TUNING, RemoteJob, Vertex, job_body
from vertexrig.errors import FindingsError
from vertexrig.project import caller_overrides
from vertexrig.project.config import Loaded
from vertexrig.project.triggered import Budget
from vertexrig.schema.typed import Scalar
from vertexrig.spec.estimate import Estimate, elsewhere, estimate
from vertexrig.spec.labels import CLAIM_LABEL, DIGEST_LABEL, ENTRY_LABEL, REVISION_LABEL, lineage
from vertexrig.submit import budget
from vertexrig.submit.budget import OverBudgetError, Terms
from vertexrig.submit.claims import (
    Claim,
    Claims,
    EndedError,
    Existing,
    InProgressError,
    Key,
    Recorded,
    Taken,
    digest,
)
from vertexrig.submit.reconcile import Reconciler, fenced, recorded
from vertexrig.workspace import Prepared, Workspace


class UnsureError(RestError):
    """A create call failed in a way that leaves open whether there is a job; the next delivery finds out."""


@dataclass(frozen=True)
class Request:
    """What a caller asks for.

    Args:
        run: A job or sweep of the project file.
        set: Overrides of its keys.
        args: Overrides of its trainer's arguments.
        then: The schedule whose steps follow, "" for none.
    """

    run: str
    set: Mapping[str, Scalar] = field(default_factory=dict)
    args: Mapping[str, Scalar] = field(default_factory=dict)
    then: str = ""

    def apply(self, loaded: Loaded) -> Loaded:
        """Return the project with the overrides made, allowed or not; ConfigError if one does not fit its key."""
        return caller_overrides.apply(loaded, self.run, self.set, self.args)

    @property
    def body(self) -> dict[str, Any]:
        """As it is kept for ticks."""
        return {"run": self.run, "set": dict(self.set), "args": dict(self.args), "then": self.then}

    @property
    def digest(self) -> str:
        then = {"then": self.then} if self.then else {}
        return digest({"run": self.run, "set": dict(self.set), "args": dict(self.args), **then})


def is_body(body: Any) -> TypeGuard[dict[str, Any]]:
    """Whether plain data has the form of a `Request.body`."""
    kinds = {"run": str, "set": dict, "args": dict, "then": str}
    if not isinstance(body, dict) or body.keys() != kinds.keys():
        return False
    return all(isinstance(body[part], kind) for part, kind in kinds.items())


@dataclass(frozen=True)
class Submitted:
    """A job that was made, or, with `duplicate`, had been made before for the same request.

    Args:
        run: The job or sweep of the project file.
        name: Resource name; "" for a dry run.
        kind: `CustomJob` or `HyperparameterTuningJob`.
        state: JobState by name; "" for a dry run.
        console: Its page in the console.
        estimate: See `vertexrig.submit.budget.estimate_data`.
        packages: URIs of the trainer's packages.
        output: gs:// URI of its output folder, "" without one.
        duplicate: It had been made before.
        budget_used: The largest part of a limit of the day that is used with it; None without such a limit, or if it is not known.
    """

    run: str
    name: str
    kind: str
    state: str
    console: str
    labels: Mapping[str, str]
    estimate: Mapping[str, Any]
    packages: tuple[str, ...]
    claim: str
    output: str = ""
    duplicate: bool = False
    budget_used: float | None = None

    @property
    def used(self) -> dict[str, float]:
        """What its log entry has of it, for the alert about a budget that is nearly used."""
        return {} if self.budget_used is None else {"budget_used": round(self.budget_used, 3)}


class Submitter:
    """Makes jobs of one project.

    Args:
        workspace: The project; `prepare_candidates` renders requests on it.
        vertex: Where jobs are made.
        storage: The bucket of claims, ledger and packages.
        claims: By default, those of the trigger's folder in `storage`.
        limits: In place of the project's budget.
        revision: The git revision of the project, "" if it is not known.
        fence: Jobs know their claim, so that a trainer ends where another job was recorded (`vertexrig.submit.reconcile`).
    """

    def __init__(
        self,
        workspace: Workspace,
        vertex: Vertex,
        storage: Storage,
        *,
        claims: Claims | None = None,
        limits: Budget | None = None,
        revision: str = "",
        fence: bool = False,
    ) -> None:
        self.lineage = lineage({DIGEST_LABEL: workspace.loaded.digest, REVISION_LABEL: revision})
        self.workspace, self.vertex, self.storage, self.fence = workspace, vertex, storage, fence
        self.claims = claims or Claims(storage.below(workspace.loaded.project.trigger.prefix))
        self.limits = limits if limits is not None else workspace.loaded.project.trigger.budget
        own = workspace.loaded.project
        others = {str(one["region"]) for run in own.entries.values() for one in run.candidates if "region" in one} - {
            own.region
        }
        apis = (vertex, *(vertex.in_region(region) for region in sorted(others)))
        self.reconciler = Reconciler(vertex, self.claims, apis[1:])
        self.ledger = budget.Ledger(
            self.claims.storage,
            apis,
            self.limits,
            lease_s=self.claims.lease_s,
            clock=self.claims.clock,
            sleep=self.claims.sleep,
        )

    def prepare_candidates(self, request: Request) -> list[Prepared]:
        """Return the request rendered and checked, and after it each candidate; whether its overrides are allowed is checked elsewhere.

        Raises:
            ConfigError: An override does not fit its key.
            NoPackageError: No package was uploaded.
        """
        return self.workspace.prepare_candidates(request.run, changed=request.apply)

    def collection_of(self, run: str) -> str:
        """Return where the jobs of a job or sweep of the project file are."""
        return TUNING if run in self.workspace.loaded.project.sweeps else CUSTOM

    def first_allowed(self, every: Sequence[Prepared], terms: Terms = Terms()) -> Prepared:
        """Return the first candidate that the limits for one run allow; the first of all if they allow none."""
        ordered = list(every)
        if len(every) > 1 and every[0].workspace.loaded.runnable(every[0].view.name).prefer == "price":
            ordered.sort(key=lambda one: price_of(one, self.limits).rank)
        allowed = (one for one, price in _priced(ordered, self.limits, terms) if isinstance(price, Estimate))
        return next(allowed, every[0])

    def dry_run(self, prepared: Prepared, terms: Terms = Terms()) -> Submitted:
        """Return what `submit` would make, without making it.

        Args:
            prepared: The rendered request, with a run's output folder (`Prepared.in_run`) if that is to be shown.

        Raises:
            FindingsError: The checks found an error.
            OverBudgetError: It is over a limit for one run.
        """
        _must_be_ok(prepared)
        view, document = prepared.view, prepared.document
        would = Recorded(
            output=document.output_folder,
            labels={**view.labels, **self.lineage, **terms.own_labels, ENTRY_LABEL: view.name},
        )
        would = _with_price(would, prepared, price_within(prepared, self.limits, terms))
        return self._submitted(view.name, COLLECTIONS[document.kind], would, "")

    def submit(
        self,
        prepared: Prepared,
        key: Key,
        asked_digest: str,
        run_id: str = "",
        *,
        terms: Terms = Terms(),
        claim_id: str = "",
    ) -> Submitted:
        """Make the job of a request, or find the one that was made for it.

        Args:
            asked_digest: Of what is asked for: of the trigger's `Request.digest`, of the command line that of `vertexrig.cli`.
            run_id: The run, or an earlier one that is resumed, whose output folder is used. By default the job gets a new one, the
                same however often the request is delivered.
            claim_id: See `Claims.take`.

        Raises:
            FindingsError: The checks found an error.
            OverBudgetError: It is over budget.
            OtherBodyError: The key belongs to another request.
            EndedError: No job is made for this request any more.
            NotStartedError: What `terms.before_create` raises, such as a hold; no job was made.
            InProgressError: Another delivery is at work.
            UnsureError: Whether there is a job is not known yet.
            RestError: Cloud Storage or Vertex AI failed: no job was made, or the next delivery finds it by its label.
        """
        _must_be_ok(prepared)
        price = price_within(prepared, self.limits, terms)
        collection = COLLECTIONS[prepared.document.kind]

        def find(claim_id: str) -> RemoteJob | None:
            return self.reconciler.find(claim_id, collection)

        def to_record(job: RemoteJob) -> Recorded:
            return _with_price(_recorded_by_label(job), prepared, price)

        try:
            outcome = self.claims.take(key, asked_digest, prepared.view.name, find, to_record, run_id, claim_id)
        except EndedError as error:
            self._none_may_live(error.claim, collection, None)
            raise
        if isinstance(outcome, Existing):
            return self._keep_recorded_alone(outcome.claim, collection, outcome.found)
        in_run = prepared.in_run(outcome.claim.run_id) if outcome.claim.run_id else prepared
        return self._make(in_run, price, outcome, collection, terms)

    def end(self, key: Key, asked_digest: str, run: str, ended: Mapping[str, str], claim_id: str = "") -> Claim:
        """End a request that has no job, so that none is made; return its claim, which may have ended for another reason, or have its job.

        Its job is looked for among sweeps and jobs: a step of a sweep's run may be either, and `run` may have left the project file.

        Args:
            claim_id: See `Claims.take`.

        Raises:
            InProgressError: A delivery is at work.
        """

        def find(claim_id: str) -> RemoteJob | None:
            # sweeps first: the jobs of their trials have the same label
            return self.reconciler.find(claim_id, TUNING) or self.reconciler.find(claim_id, CUSTOM)

        try:
            outcome = self.claims.take(key, asked_digest, run, find, _recorded_by_label, claim_id=claim_id)
        except EndedError as error:
            return error.claim
        if isinstance(outcome, Existing):
            return outcome.claim
        if not self.claims.release(outcome.claim, ended):
            raise InProgressError(1.0)
        return replace(outcome.claim, state="ended", ended=ended)

    def _make(self, prepared: Prepared, price: Estimate, taken: Taken, collection: str, terms: Terms) -> Submitted:
        claim, used = taken.claim, None
        try:
            # Budget, then run, then job: a crash leaves a row that grows old, never a job without its steps. `before_create` applies
            # the schedule's policy (`Due.terms`), and writes the run (`Engine`).
            used = self.ledger.reserve(claim.id, terms.most or price, terms.shares, terms.most_trials)
            terms.before_create(claim)
            # checked last: after this much time another delivery may hold the claim
            if self.claims.late(taken):
                raise RestError("claiming took too long; nothing was started", retry_after=5.0)
        except Exception as error:
            self._release(taken, terms, error)
            raise
        view = prepared.view
        labels = {**view.labels, **self.lineage, **terms.own_labels, CLAIM_LABEL: claim.id, ENTRY_LABEL: view.name}
        data = prepared.document.data
        if self.fence:
            data = fenced(data, self.claims.storage.uri(claim.path), claim.id, claim.token)
        try:
            job = self.vertex.create(collection, body_of(prepared, labels, data))
        except RestError as error:
            # refused, or never sent: there is certainly no job
            if not error.outcome_unknown:
                self._release(taken, terms, error)
                raise
            job = self._after_failure(taken, collection, error)
        own = _with_price(recorded(job, claim.id), prepared, price)
        made = replace(self._submitted(view.name, collection, own, claim.id), budget_used=used)
        try:
            held = self.claims.record(claim, own)
        except RestError:
            if self.claims.lease_over(taken):
                raise  # another delivery may hold the claim by now, and its word counts
            return made  # the job carries the label: the next delivery finds it and records it
        if terms.most is not None:
            self.ledger.settle(claim.id, price, terms.shares)
        if taken.first and held.token == claim.token and held.job.name == made.name:
            return made  # no other delivery ever held this id, so there is no other job with it
        answer = self._keep_recorded_alone(held, collection, job)
        return made if held.job.name == made.name else answer

    def _after_failure(self, taken: Taken, collection: str, error: RestError) -> RemoteJob:
        """Return the job that a failed create call made after all; if none is found, keep the claim and raise UnsureError."""
        try:
            found = self.reconciler.find(taken.claim.id, collection)
        except RestError:
            found = None
        if found is None:  # it may yet appear: the claim stays until its lease is out
            wait = self.claims.lease_s + 1.0
            raise UnsureError(
                str(error), status=error.status, outcome_unknown=True, retry_after=wait, reason=error.reason
            ) from None
        return found

    def _release(self, taken: Taken, terms: Terms, error: Exception) -> None:
        """Release a claim whose job was certainly not made.

        Raises:
            InProgressError: The error is final for the request, but another delivery holds the claim by now.
            RestError: The error is final for the request, and that could not be written.
        """
        # by the schedule's policy (`Due`), and of several candidates by lack of machines (`Engine`)
        ended = terms.final_reason(error)
        try:
            # listed while the claim is held, as the release tells: what another delivery writes afterwards is of another generation
            rows = self.ledger.objects_of(taken.claim.id, terms.shares)
            if self.claims.release(taken.claim, ended):
                self.ledger.take_out(rows)
            elif ended is not None:
                raise InProgressError(1.0) from None
        except RestError:
            if ended is not None:  # an answer that it is over would not be true
                raise
            # otherwise its lease runs out

    def _keep_recorded_alone(self, claim: Claim, collection: str, seen: RemoteJob | None) -> Submitted:
        """Return the recorded job, and cancel every other job of the claim.

        Args:
            seen: A job of the claim that the list may not show yet.

        Raises:
            EndedError: No job may be made for it, and this one is cancelled.
            RestError: There is a second job, and it could not be cancelled now.
        """
        if claim.state == "ended":
            self._none_may_live(claim, collection, seen)
            raise EndedError(claim)
        name = claim.job.name
        jobs = {} if seen is None else {seen.name: seen}
        job: RemoteJob | None = None
        try:
            jobs |= {job.name: job for job in self.reconciler.with_label(claim.id, collection)}
            job = jobs.get(name) or self.vertex.get(name)
        except RestError:
            pass  # the record says enough
        self.reconciler.keep_recorded(claim, jobs.values())
        return self.answer_about(claim, collection, job)

    def answer_about(self, claim: Claim, collection: str, job: RemoteJob | None) -> Submitted:
        """Return the answer about a job that is recorded; `job` is what the service says of it now, None if that is not known."""
        known = claim.job
        if job is not None:  # of an earlier window only the name is recorded
            now = recorded(job, claim.id)
            output, labels = known.output or now.output, known.labels or now.labels
            known = replace(known, state=now.state, output=output, labels=labels)
        return self._submitted(claim.run, collection, known, claim.id, duplicate=True)

    def _none_may_live(self, claim: Claim, collection: str, seen: RemoteJob | None) -> None:
        """Cancel what a frozen holder of an ended claim made."""
        own = [] if seen is None else [seen]
        self.reconciler.keep_recorded(claim, [*own, *self.reconciler.with_label(claim.id, collection)])

    def _submitted(
        self, run: str, collection: str, known: Recorded, claim_id: str, *, duplicate: bool = False
    ) -> Submitted:
        return Submitted(
            run=run,
            name=known.name,
            kind=RESOURCES[collection],
            state=known.state,
            console=self.vertex.console(known.name),
            labels=known.labels,
            estimate=known.estimate,
            packages=tuple(known.packages),
            claim=claim_id,
            output=known.output,
            duplicate=duplicate,
        )


def price_of(prepared: Prepared, limits: Budget) -> Estimate:
    """Return what a run may cost, in its region."""
    workspace = prepared.workspace
    price = estimate(prepared.document, workspace.catalog)
    return elsewhere(price, workspace.loaded.project.region, limits.price_factor)


def price_within(prepared: Prepared, limits: Budget, terms: Terms = Terms()) -> Estimate:
    """Return the price of a run, which is within every limit for one run; OverBudgetError if it is over one."""
    price = price_of(prepared, limits)
    budget.check_run(limits, price)
    for share in terms.shares:
        budget.check_run(share.limits, price, share.path)
    return price


def dearest(candidates: Iterable[Prepared], limits: Budget, terms: Terms = Terms()) -> Estimate | None:
    """Return the price of the dearest candidate that the limits for one run let through: it counts until there is a job."""
    allowed = [price for _, price in _priced(candidates, limits, terms) if isinstance(price, Estimate)]
    return max(allowed, key=lambda price: price.usd_at_most, default=None)


def most_trials(candidates: Iterable[Prepared], limits: Budget, terms: Terms = Terms()) -> int:
    """Return the most trials of a candidate that the limits for one run let through: they count until there is a job."""
    priced = _priced(candidates, limits, terms)
    return max((budget.trials_of(price) for _, price in priced if isinstance(price, Estimate)), default=0)


def left_out(candidates: Iterable[Prepared], limits: Budget, terms: Terms = Terms()) -> dict[int, str]:
    """Return, by number, why the limits for one run give a candidate no job."""
    priced = _priced(candidates, limits, terms)
    return {one.candidate: str(error) for one, error in priced if isinstance(error, OverBudgetError)}


def _priced(
    candidates: Iterable[Prepared], limits: Budget, terms: Terms
) -> Iterator[tuple[Prepared, Estimate | OverBudgetError]]:
    """Yield candidates, each with its price, or with why the limits for one run give it no job."""
    for one in candidates:
        try:
            yield one, price_within(one, limits, terms)
        except OverBudgetError as error:
            yield one, error


def body_of(prepared: Prepared, labels: Mapping[str, str], data: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what is sent to create a job.

    Args:
        labels: All that it gets, those of the project file too.
        data: In place of the document's own.
    """
    view, document = prepared.view, prepared.document
    return job_body(
        document.kind,
        document.data if data is None else data,
        display_name=view.display_name,
        labels=labels,
        kms_key_name=view.kms_key_name,
    )


def _recorded_by_label(job: RemoteJob) -> Recorded:
    """Return what is recorded of a job that was found by its claim's label."""
    return recorded(job, job.labels.get(CLAIM_LABEL, ""))


def _with_price(job: Recorded, prepared: Prepared, price: Estimate) -> Recorded:
    """Return what is recorded of a job, with its price and its packages, which only the request knows."""
    packages = dict.fromkeys(uri for pool in prepared.document.pools for uri in pool.package_uris)
    return replace(job, estimate=budget.estimate_data(price), packages=tuple(packages))


def _must_be_ok(prepared: Prepared) -> None:
    if not prepared.ok:
        raise FindingsError(f"{prepared.view.name} would fail: {prepared.first_error}; `vertexrig check` shows all")
