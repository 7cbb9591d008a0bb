"""ModelService: models and their versions, from training pipelines and clients. Models are not served."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from localvertex.http import Json, invalid, not_found, precondition
from localvertex.jobs import resources, validation
from localvertex.jobs.listing import answer, cut, page_size
from localvertex.jobs.resources import MODELS
from localvertex.jobs.store import ResourceStore, StoredResource
from localvertex.services.artifacts import copy_folder, is_prebuilt, require_model_file, require_regional
from localvertex.services.collection import Collection, Kind, apply_mask, predicate
from localvertex.services.router import PACKAGE, Done, Method, exists
from localvertex.storage import ObjectStore

SERVICE = f"{PACKAGE}.ModelService"
_UPDATED = frozenset(
    {
        *("displayName", "description", "labels", "versionDescription", "explanationSpec", "metadata"),
        "defaultCheckpointId",
    }
)
_FILTERED = frozenset({"model", "displayName", "labels", "baseModelName"})
_SHARED = ("displayName", "description", "createTime", "trainingPipeline", "encryptionSpec")
"""Fields that all versions of a model share, of those that an update can set; labels are a version's own (python-aiplatform issue 3049)."""
_CUSTOM: Json = {
    "supportedDeploymentResourcesTypes": ["DEDICATED_RESOURCES"],
    "supportedInputStorageFormats": ["jsonl", "bigquery", "csv", "tf-record", "tf-record-gzip", "file-list"],
    "supportedOutputStorageFormats": ["jsonl", "bigquery"],
    "modelSourceInfo": {"sourceType": "CUSTOM"},
}
"""Fields of every custom model (cloud-custodian, recordings of 2026-08-11)."""
_ID = re.compile(r"[a-z_][a-z0-9_-]{0,62}")
_ALIAS = re.compile(r"[a-z][a-zA-Z0-9-]{0,126}[a-z0-9]")


class Models:
    """The model registry of a local Vertex.

    Args:
        store: Where models are kept: the body is the default version, and all versions are in the hidden part.
        objects: The files of models.
    """

    def __init__(self, store: ResourceStore, objects: ObjectStore) -> None:
        self.store, self.objects = store, objects
        self.collection = Collection(store, Kind(MODELS, "Model"))
        self.evaluations = Collection(store, Kind("evaluations", "ModelEvaluation", listed="modelEvaluations"))

    def table(self) -> dict[str, Method]:
        return {
            "UploadModel": self.upload,
            "GetModel": lambda request: self.get(request["name"]),
            "ListModels": self.list,
            "ListModelVersions": self.versions,
            "UpdateModel": self.update,
            "DeleteModel": self.delete,
            "DeleteModelVersion": self.delete_version,
            "MergeVersionAliases": self.merge_aliases,
            "ExportModel": self.export,
            "ImportModelEvaluation": self.import_evaluation,
            "GetModelEvaluation": self.evaluation,
            "ListModelEvaluations": self.list_evaluations,
        }

    def upload(self, request: Json) -> Done:
        """UploadModel: a model, or another version of `parentModel`."""
        parent, model = request["parent"], request.get("model") or {}
        if not model.get("displayName"):
            raise invalid("Model display_name is required.")
        _check(model)
        folder, image = str(model.get("artifactUri", "")), str((model.get("containerSpec") or {}).get("imageUri", ""))
        require_regional(self.objects, folder, parent)
        require_model_file(self.objects, folder, image)
        made = self.add(parent, model, parent_model=request.get("parentModel", ""), id_=request.get("modelId", ""))
        response = {"model": made["name"], "modelVersionId": made["versionId"]}
        time = made["versionCreateTime"]
        return Done(parent, "UploadModelOperationMetadata", "UploadModelResponse", response, made["name"], time)

    def add(
        self, parent: str, fields: Mapping[str, Any], *, parent_model: str = "", id_: str = "", created: str = ""
    ) -> Json:
        """Keep a new model, or a new version of an existing one.

        Args:
            parent: `projects/123/locations/us-central1`.
            fields: Of the Model.
            parent_model: Name of the model that gets another version; the version becomes the default one if
                `versionAliases` has "default".
            id_: The id of a new model, "" for one of ours.
            created: When the version was made, "" for now.

        Raises:
            ApiError: 404 for a parent model that does not exist, 409 for an id that is taken, 400 for bad names.
        """
        aliases = _aliases(fields.get("versionAliases", ()))
        if not parent_model:
            if id_ and not _ID.fullmatch(id_):
                raise invalid(f"Invalid model_id {id_[:100]!r}: it must match {_ID.pattern}.")
            name = f"{parent}/{MODELS}/{id_}" if id_ else resources.new_name(parent, MODELS)
            # The first version is the default one, whatever aliases it has.
            body = _version(name, "1", _aliases([*aliases, "default"]), fields, created)
            with self.store.database.transaction():
                if self.store.get(name) is not None:
                    raise exists(name)
                self.store.add(MODELS, parent, name, body, {"versions": {"1": body}, "last": 1})
            return body
        if "/locations/" not in parent_model:
            raise invalid("parent_model: Location ID is not provided")
        if resources.place_of(parent_model) != parent:
            raise invalid(f"parent_model {parent_model} is not a model of {parent}.")
        name = self._stored(parent_model).name
        made: Json = {}

        def edit(body: Json, hidden: Json) -> None:
            versions = hidden["versions"]
            # Not the number of versions: one that was deleted does not come again.
            number = str(hidden["last"] + 1)
            shared: Json = {"description": body["description"]} if "description" in body else {}
            made.update(_version(name, number, [], {**shared, **fields, "createTime": body["createTime"]}, created))
            versions[number] = made
            # After the version is there: an alias that another one has moves to it.
            _give(versions, number, aliases)
            hidden["last"] = int(number)
            _refresh_model(body, versions)

        self.store.change(name, edit)
        return made

    def get(self, name: str) -> Json:
        """Return a model's default version, or the one after an @, by number or alias; 404 if there is none."""
        stored = self._stored(name)
        wanted = name.partition("@")[2]
        if not wanted:
            return stored.body
        found = _found(stored.hidden["versions"], wanted, name)
        return {**found, "name": f"{found['name']}@{found['versionId']}"}

    def list(self, request: Json) -> Json:
        """ListModels: the default version of each."""
        return self.collection.list(request, _by_model)

    def versions(self, request: Json) -> Json:
        """ListModelVersions, the oldest first."""
        stored = self._stored(request["name"])
        fits = predicate(str(request.get("filter", "")), fields=frozenset({"labels"}))
        every = [one for one in stored.hidden["versions"].values() if fits(one)]
        order, token = str(request.get("orderBy", "")), str(request.get("pageToken", ""))
        return answer("models", *cut(every, _version_times, order, page_size(request), token))

    def update(self, request: Json) -> Json:
        """UpdateModel: of the default version, or of the one after an @."""
        given = request.get("model") or {}

        def edit(own: Json, versions: dict[str, Json]) -> None:
            apply_mask(own, given, str(request.get("updateMask", "")), _UPDATED)
            _check(own)
            if not own.get("displayName"):
                raise invalid("Model display_name is required.")
            own.update(etag=resources.etag(), versionUpdateTime=resources.now())
            for one in versions.values():
                one.update({key: own[key] for key in _SHARED if key in own})

        return self._change(str(given.get("name", "")), edit)

    def delete(self, request: Json) -> Done:
        """DeleteModel, with all versions."""
        name = self._stored(request["name"]).name
        self._forget_evaluations(f"{name}@")
        self.store.remove(name)
        return Done(resources.place_of(name), "DeleteOperationMetadata", above=name)

    def delete_version(self, request: Json) -> Done:
        """DeleteModelVersion: the alias default moves to the most recent version left; the only version is not deleted."""
        name = str(request["name"])
        self._stored(name)
        if "@" not in name:
            raise invalid(f"The name {name} has no version; write MODEL@VERSION.")

        def edit(own: Json, versions: dict[str, Json]) -> None:
            if len(versions) == 1:
                raise precondition(f"{name} is the only version of its model and cannot be deleted. Delete the model.")
            del versions[own["versionId"]]
            self._forget_evaluations(f"{own['name']}@{own['versionId']}/")
            if "default" in own["versionAliases"]:
                _give(versions, max(versions, key=int), ["default"])

        self._change(name, edit)
        return Done(resources.place_of(name), "DeleteOperationMetadata")

    def merge_aliases(self, request: Json) -> Json:
        """MergeVersionAliases: adds aliases, and removes those with a "-" before them."""
        given = [str(one) for one in request.get("versionAliases", ())]
        added, removed = _aliases(one for one in given if one[:1] != "-"), {one[1:] for one in given if one[:1] == "-"}
        if "default" in removed:
            raise invalid("The alias default cannot be removed; give it to another version.")

        def edit(own: Json, versions: dict[str, Json]) -> None:
            _give(versions, own["versionId"], added)
            own["versionAliases"] = [one for one in own["versionAliases"] if one not in removed]
            own.update(etag=resources.etag(), versionUpdateTime=resources.now())

        return self._change(str(request["name"]), edit)

    def export(self, request: Json) -> Done:
        """ExportModel: the files of a model, copied to PREFIX/model-ID/FORMAT/TIME (index ids 68331792220 and 47405957905)."""
        model, sent = self.get(request["name"]), request.get("outputConfig") or {}
        name, format_ = model["name"].partition("@")[0], str(sent.get("exportFormatId", ""))
        if not model.get("artifactUri") or format_ not in [one["id"] for one in model["supportedExportFormats"]]:
            raise precondition(f"Exporting artifact for model `{name}` in format `{format_}` is not supported.")
        prefix = str((sent.get("artifactDestination") or {}).get("outputUriPrefix", ""))
        if not prefix.startswith("gs://"):
            raise invalid(
                "output_config.artifact_destination.output_uri_prefix is the gs:// folder to export to; images are not exported here."
            )
        to = f"{prefix.rstrip('/')}/model-{resources.last_part(name)}/{format_}/{resources.now()}"
        copy_folder(self.objects, model["artifactUri"], to)
        details = {"outputInfo": {"artifactOutputUri": to}}
        return Done(
            resources.place_of(name), "ExportModelOperationMetadata", "ExportModelResponse", {}, name, details=details
        )

    def import_evaluation(self, request: Json) -> Json:
        """ImportModelEvaluation, of the default version unless the parent ends in @VERSION.

        The answer has the parent as it was written, and what was sent (mlops-w-vertex-ai, 2025-01).
        """
        parent, sent = str(request["parent"]), request.get("modelEvaluation") or {}
        match sent:
            # Rows of bare numbers, as an evaluation by AutoML shows them (python-aiplatform issue 5570).
            case {"metrics": {"confusionMatrix": {"rows": [*rows]}}} if any(isinstance(row, list) for row in rows):
                raise invalid("Invalid Metrics Format")
        made = self.evaluations.add(self._version_name(parent), sent)
        own = {key: value for key, value in made.items() if key != "createTime"}
        return {**own, "name": f"{parent}/evaluations/{resources.last_part(made['name'])}"}

    def evaluation(self, request: Json) -> Json:
        """GetModelEvaluation, whichever version of the model it is of unless the name has an @VERSION."""
        model, _, number = str(request["name"]).partition("/evaluations/")
        versions = [] if "@" in model else self._stored(model).hidden["versions"]
        names = (f"{model}@{version}/evaluations/{number}" for version in versions)
        found = next((stored for name in names if (stored := self.store.get(name)) is not None), None)
        return found.body if found is not None else self.evaluations.get(request)

    def list_evaluations(self, request: Json) -> Json:
        """ListModelEvaluations, of one version."""
        return self.evaluations.list({**request, "parent": self._version_name(request["parent"])})

    def _version_name(self, name: str) -> str:
        """Return the name of a model with the number of a version."""
        model = self.get(name)
        return f"{model['name'].partition('@')[0]}@{model['versionId']}"

    def _forget_evaluations(self, below: str) -> None:
        with self.store.database.transaction() as connection:
            sql = "DELETE FROM resources WHERE kind = 'evaluations' AND substr(name, 1, ?) = ?"
            connection.execute(sql, (len(below), below))

    def _change(self, name: str, edit: Callable[[Json, dict[str, Json]], None]) -> Json:
        """Change a version by `edit`, which is given all versions, too; the default one unless `name` ends in @VERSION."""
        made: Json = {}

        def edit_all(body: Json, hidden: Json) -> None:
            versions = hidden["versions"]
            own = _found(versions, name.partition("@")[2] or "default", name)
            edit(own, versions)
            _refresh_model(body, versions)
            made.update(own)

        self.store.change(self._stored(name).name, edit_all)
        return made

    def _stored(self, name: str) -> StoredResource:
        return self.collection.stored(name.partition("@")[0])


def _check(model: Mapping[str, Any]) -> None:
    """Raise a 400 that lists what is wrong with a model's display name and labels."""
    named = validation.name_problems(model, "model.display_name")
    if problems := [*named, *validation.label_problems(model, "model.labels")]:
        raise validation.found_errors(problems)


def _version_times(version: Json) -> Json:
    """Return a version's own times as those by which a listing is ordered."""
    return {"createTime": version["versionCreateTime"], "updateTime": version["versionUpdateTime"]}


def _by_model(text: str) -> Any:
    """Return the filter of ListModels, where `model` is a model's id."""
    fits = predicate(text, fields=_FILTERED)
    return lambda body: fits({**body, "model": resources.last_part(body["name"])})


def _version(name: str, number: str, aliases: Sequence[str], fields: Mapping[str, Any], created: str) -> Json:
    time = created or resources.now()
    own = {key: value for key, value in fields.items() if key not in ("name", "versionAliases", "etag")}
    updated = resources.now(time)
    times = {"createTime": time, **own, "updateTime": updated, "versionCreateTime": time, "versionUpdateTime": updated}
    # With nothing to export a format has no contents (cloud-custodian; data-science-on-gcp issue 154); beside its files it has an image
    # that is not Google's (googleCloudVertexAIR, docs/articles/models.html).
    image = str((own.get("containerSpec") or {}).get("imageUri", ""))
    exported = ["ARTIFACT", "IMAGE"] if image and not is_prebuilt(image) else ["ARTIFACT"]
    contents = {"exportableContents": exported} if own.get("artifactUri") else {}
    formats = {"supportedExportFormats": [{"id": "custom-trained", **contents}]}
    schemata: Json = {"predictSchemata": {}} if own.get("containerSpec") else {}
    fixed = {**_CUSTOM, **formats, "etag": resources.etag(), "versionId": number, "versionAliases": [*aliases]}
    return {**schemata, **times, **fixed, "name": name}


def _give(versions: dict[str, Json], number: str, aliases: Sequence[str]) -> None:
    """Move aliases to a version, after those that it has."""
    for key, one in versions.items():
        kept = [alias for alias in one["versionAliases"] if key == number or alias not in aliases]
        new = [alias for alias in aliases if alias not in kept] if key == number else []
        one["versionAliases"] = kept + new


def _refresh_model(body: Json, versions: Mapping[str, Json]) -> None:
    """Make a model's body that of its default version, after a change; the model was updated when the last of its versions was."""
    default = next(one for one in versions.values() if "default" in one["versionAliases"])
    # mlops-w-vertex-ai, 2025-01; the version that was updated last may have been deleted since
    updated = max(body["updateTime"], *(one["versionUpdateTime"] for one in versions.values()))
    for one in versions.values():
        one["updateTime"] = updated
    # In place: `ResourceStore.change` keeps this very dict.
    body.clear()
    body.update(default)


def _found(versions: Mapping[str, Json], wanted: str, name: str) -> Json:
    # By number first: an alias begins with a letter.
    own = versions.get(wanted) or next((one for one in versions.values() if wanted in one["versionAliases"]), None)
    if own is None:
        raise not_found("The Model does not exist.")
    return own


def _aliases(given: Any) -> list[str]:
    """Return aliases in their order, each once."""
    found = [*dict.fromkeys(map(str, given))]
    for alias in found:
        if not _ALIAS.fullmatch(alias):
            raise invalid(f"Invalid version alias {alias[:150]!r}: it must match {_ALIAS.pattern}.")
    return found
