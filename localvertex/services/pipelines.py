"""Training pipelines with a custom task, as the SDK's CustomTrainingJob and CustomPythonPackageTrainingJob make them.

A pipeline runs one custom job; when that succeeds and a model is to be uploaded, a model, or another version of
`parentModel`, is made of what lies in the job's model directory. AutoML is not served.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from localvertex.http import ApiError, Json, invalid, precondition
from localvertex.jobs import lifecycle, resources, validation
from localvertex.jobs.manager import Jobs
from localvertex.jobs.resources import MODELS, PIPELINES
from localvertex.runner import policy
from localvertex.services.artifacts import has_files
from localvertex.services.datasets import Datasets
from localvertex.services.models import Models
from vertexrig.spec.states import ENDED, FAILED, PENDING, QUEUED, RUNNING, SUCCEEDED, of_pipeline

# The end of the address of a schema in Google's bucket; the SDK names it whole.
CUSTOM_TASK = "custom_task_1.0.0.yaml"
_FIELDS = frozenset(
    {
        *("displayName", "trainingTaskDefinition", "trainingTaskInputs", "modelToUpload", "labels", "encryptionSpec"),
        *("modelId", "parentModel", "inputDataConfig"),
    }
)


class Pipelines:
    """The training pipelines of a local Vertex."""

    def __init__(self, jobs: Jobs, models: Models, datasets: Datasets) -> None:
        self.jobs, self.store, self.models, self.datasets = jobs, jobs.store, models, datasets
        jobs.listen(self._changed)

    def create(self, parent: str, body: Mapping[str, Any]) -> Json:
        """Accept a TrainingPipeline whose task is a custom one.

        Raises:
            ApiError: 400, for other tasks and for what is wrong with its inputs.
        """
        fields = {key: body[key] for key in body if key in _FIELDS}
        definition = str(fields.get("trainingTaskDefinition", ""))
        if not definition.endswith(CUSTOM_TASK):
            raise invalid(f"The local Vertex runs custom tasks ({CUSTOM_TASK}), not {definition[:200]!r}.")
        name, model = fields.get("displayName"), fields.get("modelToUpload")
        data = fields.get("inputDataConfig")
        labels = fields.get("labels") or {}
        if not isinstance(name, str) or not name:
            raise validation.found_errors([("display_name", "Display name is required.")])
        if not isinstance(labels, dict) or not all(isinstance(one, (dict, type(None))) for one in (model, data)):
            raise invalid(
                "Invalid value at 'training_pipeline': labels, model_to_upload and input_data_config are messages."
            )
        parts = (("training_pipeline", fields), ("training_pipeline.model_to_upload", model or {}))
        if problems := [one for path, part in parts for one in validation.label_problems(part, f"{path}.labels")]:
            raise validation.found_errors(problems)
        fields.update(self._target(parent, fields))
        region = parent.rpartition("/")[2]
        checks = self.jobs.settings.checks
        spec = validation.training_inputs(fields.get("trainingTaskInputs"), region, checks=checks)
        # As the service writes them, whatever names and nulls the client sent (a system test of python-aiplatform,
        # test_e2e_tabular.py at 91cc8ce4, 2026-08).
        fields["trainingTaskInputs"] = resources.rest_form("CustomJobSpec", spec)
        self.jobs.refuse_denied(parent, PIPELINES, spec)
        self.jobs.admit(parent, spec)
        # Exported last: a request that is refused leaves no files.
        if data:
            spec = _with_variables(spec, self.datasets.export(parent, data))
        pipeline = resources.new_name(parent, PIPELINES)
        made = resources.new_body(pipeline, "PIPELINE_STATE_PENDING", fields)
        # In one transaction: the job begins in its own thread, which waits for the database and then finds its pipeline.
        with self.store.database.transaction():
            self.store.add(PIPELINES, parent, pipeline, made)
            beside_spec = {"displayName": f"{name[:100]}-custom-job", **({"labels": labels} if labels else {})}
            # A pipeline without quota is accepted and fails later (public reports, the latest of 2025-09).
            hidden = {"pipeline": pipeline, "quota": self.jobs.missing_quota(spec, region)}
            child = self.jobs.add(parent, beside_spec, spec, hidden)["name"]
            self.store.change(pipeline, lambda _, own: own.update(job=child))
            return made

    def _target(self, parent: str, fields: Mapping[str, Any]) -> Json:
        """Return the parent model by its full name; 404 if there is none of that name.

        A `modelId` beside it has no effect: the service takes both (statmike/vertex-ai-mlops, 05d and 05f, 2023-12).
        """
        above = str(fields.get("parentModel", ""))
        if not above:
            return {}
        name = f"{parent}/{MODELS}/{resources.last_part(above).partition('@')[0]}"
        self.models.get(name)
        return {"parentModel": name}

    def get(self, name: str) -> Json:
        """Return a pipeline by name, or 404."""
        return lifecycle.stored(self.store, name, PIPELINES).body

    def cancel(self, name: str) -> None:
        """Begin to cancel a pipeline's job, whose end is the pipeline's; 400 for one that has ended (java-docs-samples issue 9281)."""
        stored = lifecycle.stored(self.store, name, PIPELINES)
        if resources.has_ended(stored.body):
            text = f'The TrainingPipeline "{stored.name}" is in state {stored.body["state"]} and cannot be canceled.'
            raise precondition(text)
        self.jobs.cancel(stored.hidden["job"])

    def delete(self, name: str) -> None:
        """Forget a pipeline that has ended; 400 for one that has not."""
        lifecycle.remove_ended(self.store, name, PIPELINES)

    def recover(self) -> None:
        """Bring pipelines up to date with their jobs after a kill; call it before `Jobs.recover`."""
        for stored in self.store.unfinished(PIPELINES):
            job = self.store.get(str(stored.hidden.get("job", "")))
            if job is None:
                error = {"code": policy.INTERNAL, "message": "The pipeline's CustomJob is gone."}
                lifecycle.advance(self.store, stored.name, of_pipeline(FAILED), error)
            else:
                self._changed(job.name, job.body["state"])

    def _changed(self, name: str, state: str) -> None:
        """Take note that a custom job changed; its pipeline follows."""
        stored = self.store.get(name)
        pipeline = str(stored.hidden.get("pipeline", "")) if stored else ""
        if not pipeline or stored is None:
            return
        error = stored.body.get("error")
        # Before the state: a pipeline that has succeeded shows its model.
        if state == SUCCEEDED and (unsaved := self._upload(pipeline, stored.hidden["spec"])):
            state, error = FAILED, unsaved
        # In one transaction: a pipeline names its job once that has begun, and never before (output of the SDK, 2024-07).
        with self.store.database.transaction():
            if state not in (QUEUED, PENDING):
                self.store.change(pipeline, lambda own, _: own.update(trainingTaskMetadata={"backingCustomJob": name}))
            elif (own := self.store.get(pipeline)) and "inputDataConfig" in own.body:
                state = RUNNING  # with a data set a pipeline runs before its job does (output of the SDK, 2022-12)
            lifecycle.advance(self.store, pipeline, of_pipeline(state), error if state in ENDED else None)

    def _upload(self, pipeline: str, spec: Mapping[str, Any]) -> Json | None:
        """Make the Model of a pipeline that wants one; an error if there is nothing to upload."""
        stored = self.store.get(pipeline)
        wanted = stored.body.get("modelToUpload") if stored else None
        # A name is there when this was done before a crash: `recover` comes here again.
        if not stored or not wanted or wanted.get("name"):
            return None
        base = str((spec.get("baseOutputDirectory") or {}).get("outputUriPrefix", "")).rstrip("/")
        uri = f"{base}/model" if base else ""
        if not uri or not has_files(self.models.objects, uri):
            message = (
                f'There are no files under "{uri}" to copy.'
                if uri
                else "There is no output directory to take a model from."
            )
            return {"code": policy.INVALID_ARGUMENT, "message": message}
        parent = pipeline.rpartition(f"/{PIPELINES}/")[0]
        above, id_ = str(stored.body.get("parentModel", "")), str(stored.body.get("modelId", ""))
        fields = {**wanted, "artifactUri": uri, "trainingPipeline": pipeline}
        try:
            with self.store.database.transaction():
                # Made with its pipeline, and updated at the end of that (googleCloudVertexAIR, docs/articles/models.html).
                created = stored.body["createTime"]
                made = self.models.add(parent, fields, parent_model=above, id_=id_, created=created)
                shown = {key: made[key] for key in ("name", "versionId", "versionAliases")}
                self.store.change(pipeline, lambda own, _: own.update(modelToUpload={**fields, **shown}))
        except ApiError as error:  # the parent model was deleted, or the id taken, while the job ran
            code = policy.NOT_FOUND if error.code == 404 else policy.INVALID_ARGUMENT
            return {"code": code, "message": error.message}
        return None


def _with_variables(spec: Mapping[str, Any], variables: Mapping[str, str]) -> Json:
    """Return a job whose replicas have further variables."""
    added = [{"name": name, "value": value} for name, value in variables.items()]
    pools = []
    for pool in spec.get("workerPoolSpecs") or ():
        kind = "containerSpec" if "containerSpec" in pool else "pythonPackageSpec"
        own = pool.get(kind) or {}
        pools.append({**pool, kind: {**own, "env": [*own.get("env", ()), *added]}})
    return {**spec, "workerPoolSpecs": pools}
