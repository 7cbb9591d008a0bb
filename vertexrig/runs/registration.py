"""The step `register`: exactly one version in the Model Registry, if the model is better.

An upload has no request id, so it is claimed like a job. The version carries the run's id in its description, which each version
has for itself, and no alias: only the version whose upload is recorded in the claim gets the aliases, so a second one that a
frozen holder added is found by its description, has no alias, and is deleted by the next step that registers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Literal

from vertexrig.catalog import Catalog
from vertexrig.cloud.metadata import MetadataClient, Node
from vertexrig.cloud.models import ModelsClient, plain, version_name
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import TUNING, RemoteJob
from vertexrig.errors import UsageError
from vertexrig.project.config import Loaded
from vertexrig.project.triggered import STEP_LABEL, RegisterStep
from vertexrig.runs.run import Run
from vertexrig.runs.store import RunStore
from vertexrig.spec import from_data
from vertexrig.spec.labels import DATA_LABEL, lineage
from vertexrig.studies import register, trained
from vertexrig.studies.register import Servable, Trained
from vertexrig.submit.claims import Claim, Claims, Existing, Key, Recorded, Taken, digest

_CHECKED = 20
"""Versions, the newest ones, that are checked for second uploads of a run."""


@dataclass(frozen=True)
class Registered:
    """What became of the model.

    Args:
        outcome: `registered`; `approval` if a person has to approve it first; `not-better`; `refused` by the service; "" if the upload
            still runs; `again` if another version is there than the one that was measured.
        text: What was compared, or the service's message.
        model: The version, `projects/P/locations/R/models/M@V`.
        champion: The version that it was compared with, "" for none.
    """

    outcome: Literal["registered", "approval", "not-better", "refused", "again", ""]
    text: str
    model: str = ""
    champion: str = ""


@dataclass(frozen=True)
class Evaluation:
    """What a job has measured of two models on the same data.

    Args:
        champion: Folder of the version that was there, "" if there was none.
        was: Its metrics.
        now: The new model's.
        job: The job's display name.
    """

    champion: str
    was: Mapping[str, Any]
    now: Mapping[str, Any]
    job: str

    def of(self, metric: str) -> tuple[float, float | None]:
        """Return a metric of the new model, and of the version that was there, if any; UsageError if the job has not written it."""
        new, old = register.summary_value(self.now, metric), register.summary_value(self.was, metric)
        if new is None or (self.champion and old is None):
            lacks = "challenger" if new is None else "champion"
            raise UsageError(f"summary.json of {self.job} has no {metric} under {lacks}")
        return new, old if self.champion else None


@dataclass(frozen=True)
class Registrar:
    """Registers the models of runs; `folder` opens a gs:// folder."""

    loaded: Loaded
    catalog: Catalog
    models: ModelsClient
    claims: Claims
    runs: RunStore
    folder: Callable[[str], Storage]

    def register(
        self, run: Run, key: Key, step: RegisterStep, job: RemoteJob, evaluation: Evaluation | None = None
    ) -> Registered:
        """Take the step as far as it goes now; calling it again does no harm.

        Args:
            job: The job or sweep that trained it.
            evaluation: What it is compared by, in place of what it and the version that is there say of themselves.

        Raises:
            UsageError: There is no model, or nothing it can be compared by.
            InProgressError: Another tick is at it.
        """
        claim = self.claims.by_key(key)
        display, text = display_name(run, step, job), ""
        if claim is None or claim.state != "created":
            made = self._upload(run, key, step, job, display, evaluation)
            if isinstance(made, Registered):
                return made
            claim, text = made
        return self._finish(run, claim, step, display, text)

    def _upload(
        self,
        run: Run,
        key: Key,
        step: RegisterStep,
        job: RemoteJob,
        display: str,
        evaluation: Evaluation | None,
    ) -> Registered | tuple[Claim, str]:
        """Compare and upload, once; or find what an earlier try uploaded."""
        model, made = self._trained(run, step, job)
        was: float | None = None
        if evaluation is not None:
            value, was = evaluation.of(model.metric)
            model = replace(model, value=value)
        # first, so that the new model is not compared with a surplus version
        self.clean(display)
        outcome = self.claims.take(
            key, digest({"run": run.id}), run.name, lambda _: self._find(display, run.id), _record
        )
        if isinstance(outcome, Existing):
            return outcome.claim, ""
        try:
            there = register.present(self.models, display, step.alias)
            if there is not None and register.run_of(there) == run.id:  # ours, of an attempt that died
                return self.claims.record(outcome.claim, _record(there)), ""
            if evaluation is not None and folder_of(there) != evaluation.champion:
                self.claims.release(outcome.claim)
                return Registered("again", "another version is there by now, and is measured next")
            comparison = register.compare(model, there, step.min_gain, was)
            if comparison.better:
                body = self._body(run, step, model, made, display, there)
                operation = self._begin(outcome, body, plain(str(there["name"])) if there else "", run)
            else:
                self.claims.release(outcome.claim)
                return Registered("not-better", f"{display}: {comparison.text}")
        except Exception as error:
            if not (isinstance(error, RestError) and error.outcome_unknown):
                self.claims.release(outcome.claim)  # nothing was uploaded
            raise
        record = Recorded(str(operation.get("name", "")), outcome.claim.token)
        return self.claims.record(outcome.claim, record), f"{display}: {comparison.text}"

    def _begin(self, taken: Taken, body: Mapping[str, Any], parent: str, run: Run) -> dict[str, Any]:
        """Ask for the upload. The id of a new model comes from the run: two attempts cannot make two models."""
        if self.claims.late(taken):
            raise RestError("comparing took too long; nothing was uploaded", retry_after=5.0)
        try:
            return self.models.begin_upload(body, parent, "" if parent else _model_id(run.id))
        except RestError as error:
            if error.status == 409 and not parent:  # another attempt of this run made it
                raise RestError(str(error), status=409, outcome_unknown=True) from None
            raise

    def _body(
        self,
        run: Run,
        step: RegisterStep,
        model: Trained,
        served: Servable,
        display: str,
        there: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        project = self.loaded.project
        image = register.serving(served, self.catalog.host_for_region(project.region), step.serving_image, date.today())
        labels = {**project.labels, **step.labels, STEP_LABEL: run.id}
        body = register.model_body(model, display, image.uri, step.alias, labels, there)
        del body["versionAliases"]
        return {**body, "versionDescription": f"{body['versionDescription']} (run {run.id})"}

    def _trained(self, run: Run, step: RegisterStep, job: RemoteJob) -> tuple[Trained, Servable]:
        """Return what the job has trained, if it is there, and what its serving image loads."""
        made = register.made_with(self.loaded, self.catalog, trained.image(job))
        if job.collection == TUNING:
            found = trained.of_sweep(job, run.name, metric=step.metric)
            served = register.must_be_there(self.folder(found.uri), made, step.serving_image)
            return found.below(served.folder), served
        if job.output:
            folder = self.folder(f"{job.output}/{register.MODEL_DIR}")
            served = register.must_be_there(folder, made, step.serving_image)
        name = job.display_name or run.name
        model = trained.of_job(self.loaded, job, name, metric=step.metric, goal=step.goal, folder=self.folder)
        return model.below(served.folder), served

    def _finish(self, run: Run, claim: Claim, step: RegisterStep, display: str, text: str) -> Registered:
        """Wait for the recorded upload, and give its version the aliases, if nobody has to approve it."""
        name = claim.job.name
        if "/operations/" in name:
            operation = self.models.operation(name)
            if operation is not None and not operation.get("done"):
                return Registered("", "the registry is adding the model")
            if operation is not None and operation.get("error"):
                why = " ".join(str(operation["error"].get("message", "the upload failed")).split())
                return Registered("refused", f"Vertex AI: {why}")
            made = (operation or {}).get("response") or {}
            found = None if made.get("model") else self._find(display, run.id)
            if not made.get("model") and found is None:
                return Registered("refused", f"the operation {name} is gone, and no version of {display} is its own")
            name = version_name(found) if found else f"{plain(str(made['model']))}@{made.get('modelVersionId', '')}"
        if step.approval == "required":
            found = self.models.version(plain(name), name.partition("@")[2]) or {}
            described = str(found.get("versionDescription", ""))
            before = register.replaced(described)
            champion = f"{plain(name)}@{before}" if before else ""
            return Registered("approval", text or f"{display}: {described}", name, champion)
        self.give_aliases(run, name, step.alias)
        return Registered("registered", text or display, name)

    def record(self, run: Run, found: Registered, job: RemoteJob) -> Registered:
        """Write the way to the version into ML Metadata; if that fails, the text says so, and the version stays.

        Args:
            job: The job or sweep that trained it.
        """
        try:
            self._record(run, found, job)
        except RestError as error:
            return replace(found, text=f"{found.text}; ML Metadata has no record of it: {error}")
        return found

    def _record(self, run: Run, found: Registered, job: RemoteJob) -> None:
        project = self.loaded.project
        document = from_data(dict(job.data.get("jobSpec") or job.data.get("trialJobSpec") or {}), kind="CustomJobSpec")
        packages = dict.fromkeys(uri for pool in document.pools for uri in pool.package_uris)
        own, data = lineage(job.labels), register.data_argument(document)
        schedule = project.schedules.get(run.of_schedule)
        uri = data or (schedule.only_if_changed if schedule is not None else "") or ""
        known = [("system.Dataset", "data", uri, own.pop(DATA_LABEL, ""))] if uri else []
        known += [("system.Artifact", "package", one, register.package_hash(document)) for one in packages]
        inputs = [
            Node(f"vertexrig-{hashlib.sha256(f'{uri} {mark}'.encode()).hexdigest()[:32]}", kind, title, {"digest": mark}, uri)
            for kind, title, uri, mark in known
        ]  # fmt: skip
        url, about = f"{self.models.rest.url}/{found.model}", {"resourceName": found.model}
        version = Node(f"vertexrig-model-{run.id}", "google.VertexModel", found.model, about, url)
        facts = {**own, "run": run.id, "image": trained.image(job), "compared": found.text}
        facts |= {f"job_{number}": one for number, one in enumerate(run.jobs.values(), 1)}
        of = run.of_schedule or run.name
        group = re.sub(r"[^a-z0-9-]+", "-", f"vertexrig-{project.trigger.function}-{of}".lower())
        execution = Node(f"vertexrig-run-{run.id}", "system.Run", f"{of} {run.run_id}", facts)
        MetadataClient(self.models).record(execution, inputs, [version], Node(group, "system.Pipeline", of, {}))

    def give_aliases(self, run: Run, name: str, alias: str) -> None:
        """Move the aliases to the version of a run that has not ended."""
        if self.runs.outcome(run.id) is None:  # else a later version may have the aliases by now
            register.move_aliases(self.models, name, alias)

    def rivals(self, run: Run, step: RegisterStep, job: RemoteJob) -> tuple[str, str]:
        """Return the folders of the version that is there and of the new model; "" for the first if there is none, or only the run's own.

        Raises:
            UsageError: There is no model.
        """
        there = register.present(self.models, display_name(run, step, job), step.alias)
        own = there is not None and register.run_of(there) == run.id
        return "" if own else folder_of(there), self._trained(run, step, job)[0].uri

    def has_uploaded(self, run: Run, step: RegisterStep, job: RemoteJob) -> bool:
        """Whether a version of the run is in the registry."""
        return self._find(display_name(run, step, job), run.id) is not None

    def clean(self, display: str) -> list[str]:
        """Delete second uploads of a run that has ended, but those that a person gave an alias; the names of what is deleted."""
        gone = []
        for model in self.models.find(display):
            name = plain(str(model.get("name", "")))
            rows = sorted(self.models.versions(name), key=lambda row: int(row.get("versionId") or 0), reverse=True)
            for row in rows[:_CHECKED]:
                version, id = version_name(row), register.run_of(row)
                end = self.runs.outcome(id) if id else None
                if end is None or end.get("model") == version:
                    continue
                aliases = set(row.get("versionAliases") or ())
                # A version with an alias stays; a model's first version is the default one. The whole model goes if that is its
                # only version and the run made it.
                alone = len(rows) == 1 and aliases <= {"default"} and name.endswith(f"/{_model_id(id)}")
                if aliases and not alone:
                    continue
                self.models.delete(name, "" if alone else version.partition("@")[2])
                gone.append(version)
        return gone

    def _find(self, display: str, id: str) -> Mapping[str, Any] | None:
        """Return the oldest version of a run, None if there is none."""
        models = (plain(str(model.get("name", ""))) for model in self.models.find(display))
        found = [row for name in models for row in self.models.versions(name) if register.run_of(row) == id]
        return min(found, key=lambda row: (str(row.get("versionCreateTime", "")), version_name(row)), default=None)


def display_name(run: Run, step: RegisterStep, job: RemoteJob) -> str:
    """Return what the model is called."""
    return step.display_name or trained.model_name(job, run.name)


def folder_of(version: Mapping[str, Any] | None) -> str:
    """Return the folder of a version, "" for none."""
    return str((version or {}).get("artifactUri", "")).rstrip("/")


def _model_id(id: str) -> str:
    """Return the id of the model that a run makes if there is none yet."""
    return f"vertexrig-{id}"


def _record(version: Mapping[str, Any]) -> Recorded:
    return Recorded(version_name(version))
