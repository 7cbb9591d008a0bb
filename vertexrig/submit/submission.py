"""From a request to exactly one job: render, check, budget, claim, create, record. Shared by the CLI and the trigger."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vertexrig import times
from vertexrig.checks.workspace import Prepared, Workspace
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import COLLECTIONS, KINDS, RemoteJob, Vertex, job_body
from vertexrig.errors import FindingsError, UsageError
from vertexrig.explain.estimate import Estimate, elsewhere, estimate
from vertexrig.project import overrides, runs
from vertexrig.project.config import Loaded
from vertexrig.project.model import Budget
from vertexrig.submit import budget, images
from vertexrig.submit.claims import LABEL, Claim, Claims, Existing, Key, Taken
from vertexrig.submit.fence import attempt_of, fenced
from vertexrig.submit.reconcile import RUN_LABEL, Reconciler
from vertexrig.submit.request import Request

PACKAGES, LATEST = "packages/", "packages/latest"
# the pointer lies in the bucket: what it names must be an object of packages/, and no path out of it
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,200}")


class NoPackageError(UsageError):
    """No trainer package was uploaded for the image of a triggered run."""


class UnsureError(RestError):
    """A create call failed in a way that leaves open whether there is a job; the next delivery finds out."""


@dataclass(frozen=True)
class Submitted:
    """A job that was made, or, with `duplicate`, had been made before for the same request.

    Args:
        run: The job or sweep of the project file.
        name: Resource name; "" for a dry run.
        kind: `CustomJob` or `HyperparameterTuningJob`.
        state: JobState by name; "" for a dry run.
        console: Its page in the console.
        labels: Its labels.
        estimate: See `estimate_data`.
        packages: URIs of the trainer's packages.
        claim: The claim's id.
        output: gs:// URI of its output folder, "" without one.
        duplicate: It had been made before.
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


class UploadedArtifacts:
    """The trainer's packages and images that triggered runs use, as the bucket says, if they are intact.

    Args:
        loaded: The project.
        storage: The bucket of the packages.
    """

    def __init__(self, loaded: Loaded, storage: Storage) -> None:
        self.loaded, self.storage = loaded, storage

    def package(self, tf_version: str | None) -> str:
        """The last uploaded package for a TensorFlow version, if it is intact."""
        loaded, storage = self.loaded, self.storage
        found = storage.read_json(pointer(loaded, tf_version)) or {}
        uri, sha256 = str(found.get("uri", "")), found.get("sha256")
        version = f"TensorFlow {tf_version}" if tf_version else "its image"
        if not uri:
            raise NoPackageError(
                f"no trainer package for {version} was uploaded: `vertexrig function package` uploads it"
            )
        name = uri.removeprefix(storage.uri(PACKAGES))
        package = storage.read(PACKAGES + name) if name != uri and _PACKAGE.fullmatch(name) else None
        # Whoever may write objects could put other code there; the function starts only what was uploaded by the tool.
        if package is None or hashlib.sha256(package.data).hexdigest() != sha256:
            raise NoPackageError(
                f"the trainer package for {version} is not the one that was uploaded to {storage.uri(PACKAGES)}: "
                "`vertexrig function package` uploads it again"
            )
        return uri

    def image(self, kind: str) -> str:
        """The last image that was pushed for cpu, gpu or tpu."""
        found = self.storage.read_json(images.pointer(self.loaded, kind)) or {}
        uri = str(found.get("uri", ""))
        if not images.is_ours(self.loaded, kind, uri):
            makes = "`vertexrig image NAME --push` makes it"
            if images.is_local():
                makes = 'in a shell with eval "$(vertexrig local env)", `vertexrig function package` takes it from the sources'
            raise NoPackageError(f"no {kind.upper()} image of the trainer was pushed: {makes}")
        return uri


def pointer(loaded: Loaded, tf_version: str | None) -> str:
    """The object that names the last package uploaded for images of a TensorFlow version."""
    return f"{LATEST}/{loaded.project.trainer.module}-tf-{tf_version or 'any'}.json"


class Submitter:
    """Makes jobs of one project.

    Args:
        workspace: The project; `prepare` renders requests on it.
        vertex: Where jobs are made.
        storage: The bucket of claims, ledger and packages.
        claims: By default, those of `storage`.
        limits: In place of the project's budget.
        fence: Jobs know their claim, so that a trainer ends where another job was recorded (`vertexrig.submit.fence`).
    """

    def __init__(
        self,
        workspace: Workspace,
        vertex: Vertex,
        storage: Storage,
        *,
        claims: Claims | None = None,
        limits: Budget | None = None,
        fence: bool = False,
    ) -> None:
        self.workspace, self.vertex, self.storage, self.fence = workspace, vertex, storage, fence
        self.claims = claims or Claims(storage)
        self.limits = limits if limits is not None else workspace.loaded.project.trigger.budget
        self.reconciler = Reconciler(vertex, self.claims)
        self.ledger = budget.Ledger(
            storage, vertex, self.limits, lease_s=self.claims.lease_s, clock=self.claims.clock, sleep=self.claims.sleep
        )

    def prepare(self, request: Request) -> Prepared:
        """The request rendered and checked, with its overrides. Whether they are allowed is checked elsewhere.

        Raises:
            ConfigError: An override does not fit its key.
            NoPackageError: No package was uploaded.
        """
        loaded = overrides.apply(self.workspace.loaded, request.run, request.set, request.args)
        return self.workspace.overridden(loaded).prepare(request.run)

    def estimate(self, prepared: Prepared) -> Estimate:
        """The price of a run.

        Raises:
            OverBudgetError: It is over a limit for one run.
        """
        price = estimate(prepared.document, self.workspace.catalog)
        price = elsewhere(price, self.workspace.loaded.project.region, self.limits.price_factor)
        budget.check_run(self.limits, price)
        return price

    def dry_run(self, prepared: Prepared) -> Submitted:
        """What `submit` would make, without making it.

        Args:
            prepared: The rendered request, with a run's output folder (`Prepared.in_run`) if that is to be shown.

        Raises:
            FindingsError: The checks found an error.
            OverBudgetError: It is over a limit for one run.
        """
        _must_be_ok(prepared)
        return self._submitted(prepared, self.estimate(prepared), None, "", {})

    def submit(
        self,
        prepared: Prepared,
        key: Key,
        body: str,
        run: str = "",
        *,
        before: Callable[[Claim], None] = lambda _: None,
    ) -> Submitted:
        """Make the job of a request, or find the one that was made for it.

        Args:
            prepared: The rendered request.
            key: What makes two deliveries the same request.
            body: Digest of what is asked for.
            run: An earlier run that is resumed: its output folder is used. Otherwise the job gets a new one, the same
                however often the request is delivered.
            before: Called with the claim just before the job is made, again with each try; a RestError of it is one of ours.

        Raises:
            FindingsError: The checks found an error.
            OverBudgetError: It is over budget.
            OtherBodyError: The key belongs to another request.
            InProgressError: Another delivery is at work.
            UnsureError: Whether there is a job is not known yet.
            RestError: Cloud Storage or Vertex AI failed; no job was made.
        """
        _must_be_ok(prepared)
        price = self.estimate(prepared)
        collection = COLLECTIONS[prepared.document.kind]

        def find(claim: str) -> RemoteJob | None:
            return self.reconciler.find(claim, collection)

        def record(job: RemoteJob) -> Mapping[str, Any]:
            made = self._submitted(prepared, price, job, job.labels.get(LABEL, ""), job.labels)
            return _record(made, job)

        outcome = self.claims.take(key, body, prepared.rendered.view.name, find, record, run)
        if isinstance(outcome, Existing):
            return self._existing(outcome.claim, collection, outcome.found)
        in_run = prepared.in_run(outcome.claim.output) if outcome.claim.output else prepared
        return self._make(in_run, price, outcome, collection, before)

    def _make(
        self, prepared: Prepared, price: Estimate, taken: Taken, collection: str, before: Callable[[Claim], None]
    ) -> Submitted:
        claim = taken.claim
        try:
            # Budget before chain before job: what a crash leaves behind is then a row that grows old, never a job
            # without its steps.
            self.ledger.reserve(claim.id, price)
            before(claim)
            # the last look before the create call: after this much time another delivery may hold the claim
            if self.claims.late(taken):
                raise RestError("claiming took too long; nothing was started", retry_after=5.0)
        except (budget.OverBudgetError, RestError):
            self._release(taken)
            raise
        view = prepared.rendered.view
        labels = {**view.labels, LABEL: claim.id, RUN_LABEL: view.name}
        data = prepared.document.data
        if self.fence:
            data = fenced(data, self.storage.uri(claim.path), claim.id, claim.token)
        body = job_body(
            prepared.document.kind, data,
            display_name=view.display_name, labels=labels, kms_key_name=view.kms_key_name,
        )  # fmt: skip
        try:
            job = self.vertex.create(collection, body)
        except RestError as error:
            job = self._after_failure(taken, collection, error)
        made = self._submitted(prepared, price, job, claim.id, labels)
        try:
            recorded = self.claims.record(claim, _record(made, job))
        except RestError:
            return made  # the job carries the label: the next delivery finds it and records it
        if taken.first and recorded.token == claim.token and recorded.job_name == made.name:
            return made  # no other delivery ever held this id, so there is no other job with it
        existing = self._existing(recorded, collection, job)
        return made if recorded.job_name == made.name else existing

    def _after_failure(self, taken: Taken, collection: str, error: RestError) -> RemoteJob:
        """The job that a failed create call made all the same; if none, the claim is kept or given up, and it raises."""
        # refused, or never sent: there is certainly no job
        if not error.outcome_unknown:
            self._release(taken)
            raise error
        try:
            found = self.reconciler.find(taken.claim.id, collection)
        except RestError:
            found = None
        if found is None:  # it may yet appear: the claim stays until its lease is out
            raise UnsureError(
                str(error), status=error.status, outcome_unknown=True, retry_after=self.claims.lease_s + 1.0,
                reason=error.reason,
            ) from None  # fmt: skip
        return found

    def _release(self, taken: Taken) -> None:
        try:
            # the claim first: if another delivery holds it by now, the row in the ledger is that delivery's
            if self.claims.release(taken.claim):
                self.ledger.cancel(taken.claim.id)
        except RestError:
            pass  # its lease runs out

    def _existing(self, claim: Claim, collection: str, seen: RemoteJob | None) -> Submitted:
        """The answer about a job that is recorded; every other job of the claim is cancelled.

        Args:
            claim: The claim, with the job.
            collection: Where its jobs are.
            seen: A job of the claim that the list may not show yet.

        Raises:
            RestError: There is a second job, and it could not be cancelled now.
        """
        name = claim.job_name
        jobs = {} if seen is None else {seen.name: seen}
        job: RemoteJob | None = None
        try:
            jobs |= {job.name: job for job in self.reconciler.with_label(claim.id, collection)}
            job = jobs.get(name) or self.vertex.get(name)
        except RestError:
            pass  # the record says enough
        self.reconciler.keep_recorded(claim, jobs.values())
        known = {
            "run": claim.run, "kind": KINDS[collection], "console": self.vertex.console(name), "claim": claim.id
        }  # fmt: skip
        # of an earlier window only the name is recorded, and the job itself may not be in reach
        record = {**known, **(self.reconciler.record_of(job) if job is not None else {}), **claim.job}
        text = {key: str(record.get(key, "")) for key in ("run", "name", "kind", "console", "claim", "output")}
        return Submitted(
            **text,
            state=job.state if job is not None else str(record.get("state", "")),
            labels=dict(record.get("labels") or {}),
            estimate=dict(record.get("estimate") or {}),
            packages=tuple(record.get("packages") or ()),
            duplicate=True,
        )

    def _submitted(
        self, prepared: Prepared, price: Estimate, job: RemoteJob | None, claim: str, labels: Mapping[str, str]
    ) -> Submitted:
        view = prepared.rendered.view
        packages = dict.fromkeys(uri for pool in prepared.document.pools for uri in pool.package_uris)
        return Submitted(
            run=view.name,
            name=job.name if job else "",
            kind=KINDS[COLLECTIONS[prepared.document.kind]],
            state=job.state if job else "",
            console=self.vertex.console(job.name) if job else "",
            labels=dict(labels or view.labels),
            estimate=estimate_data(price),
            packages=tuple(packages),
            claim=claim,
            output=job.output if job else prepared.document.output,
        )


def estimate_data(price: Estimate) -> dict[str, Any]:
    """An estimate as plain data: US dollars, rounded to cents, with the arithmetic."""
    return {
        "usd_at_most": round(price.usd_at_most, 2),
        "usd_per_hour": round(price.usd_per_hour, 4),
        "complete": price.complete,
        "timeout_s": price.timeout_s,
        "trials": price.trials,
        "arithmetic": budget.arithmetic(price),
    }


def resumable(vertex: Vertex, storage: Storage, prepared: Prepared, run: str) -> None:
    """Refuse to resume a run that cannot be.

    Raises:
        UsageError: The job's runs share one folder, there is no such run, or a job still writes into its folder.
    """
    runs.must_be_resumable(prepared.rendered.view, run)
    name = prepared.rendered.view.name
    uri = runs.folder(storage.uri(""), name, run)
    collection = COLLECTIONS[prepared.document.kind]
    known = [job for job in vertex.list(collection, filter=f"labels.{RUN_LABEL}={name}", limit=50) if job.output]
    live = next((job for job in known if job.output == uri and not job.ended), None)
    if live is not None:
        raise UsageError(f"job {live.id} still writes into {uri}; wait for its end, or `vertexrig cancel {live.id}`")
    written = any(job.output == uri for job in known) or next(storage.list(f"{runs.FOLDER}/{name}/{run}/"), None)
    if not written:
        raise runs.no_such_run(name, run, (runs.run_of(job.output) for job in known))


def fresh_key() -> Key:
    """A key for a request that is meant to be new, such as one typed at a terminal."""
    return Key("request", f"cli-{uuid.uuid4().hex}")


def request_key(request_id: str) -> Key:
    """The key of a request with an id."""
    return Key("request", request_id)


def upload_packages(workspace: Workspace, names: Iterable[str], storage: Storage) -> list[str]:
    """Build and upload the trainer packages that jobs or sweeps need, and make them the ones triggered runs use.

    Args:
        workspace: The project, with its trainer's folder.
        names: Jobs and sweeps.
        storage: The project's bucket.

    Returns:
        URIs of all packages, new or there already.
    """
    wanted: dict[str, set[str]] = {}
    for name in names:
        for pool in filter(None, workspace.renderer.render(name).view.pools.values()):
            for uri in pool.package_uris:
                wanted.setdefault(uri, set()).add(pool.python_module)
    return upload(workspace, wanted, storage)


def publish(workspace: Workspace, names: Iterable[str], storage: Storage) -> list[str]:
    """Make the packages and images that jobs or sweeps need the ones that triggered runs use; packages are uploaded.

    Args:
        workspace: The project, with its trainer's folder.
        names: Jobs and sweeps.
        storage: The project's bucket.

    Returns:
        URIs of all packages, new or there already, and of the trainer's own images.

    Raises:
        NoImageError: An image of the trainer as it is now is not in the registry.
    """
    names = list(names)
    return [
        *images.record(workspace.renderer, workspace.verb, names, storage),
        *upload_packages(workspace, names, storage),
    ]


def upload(workspace: Workspace, wanted: Mapping[str, Collection[str]], storage: Storage) -> list[str]:
    """Like `upload_packages`, for packages by the URIs that the project's renderer gave them, each with the modules that jobs
    run from it; others are left alone."""
    from vertexrig.package import builder

    trainer = workspace.loaded.project.trainer
    done = []
    for tf_version, uri in workspace.renderer.packages.items():
        if uri not in wanted:
            continue
        object_name = f"{PACKAGES}{uri.rsplit('/', 1)[-1]}"
        folder, out = workspace.loaded.path(trainer.path), workspace.loaded.path("build/packages")
        for module in sorted(wanted[uri]):  # each of them has to be in it
            built = builder.build(folder, out, tf_version=tf_version, module=module)
        content = built.path.read_bytes()
        found = storage.read(object_name)
        # named by its content, so other bytes under the name are damage, and are replaced
        if found is None or found.data != content:
            storage.write(object_name, content, content_type="application/gzip")
        sha256 = hashlib.sha256(content).hexdigest()
        now = times.rfc3339(times.now(), 0)
        row = {"uri": uri, "sha256": sha256, "tf_version": tf_version, "module": trainer.module, "uploaded": now}
        # the pointer last: until then triggered runs use the package before
        storage.write(pointer(workspace.loaded, tf_version), json.dumps(row, indent=1).encode())
        done.append(uri)
    return done


def _record(made: Submitted, job: RemoteJob) -> dict[str, Any]:
    """What a claim records about a job."""
    return {**asdict(made), "attempt": attempt_of(job.data, made.claim)}


def _must_be_ok(prepared: Prepared) -> None:
    if not prepared.ok:
        raise FindingsError(f"{prepared.rendered.view.name} would fail: `vertexrig check` says why")
