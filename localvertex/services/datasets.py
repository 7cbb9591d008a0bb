"""DatasetService, and the files that a training pipeline reads: those of tabular datasets with a source in Cloud Storage.

The files and variables of a pipeline's data are those that the API documents for `InputDataConfig.gcs_destination`
(google-cloud-aiplatform 2.7.0, types/training_pipeline.py, read 2026-11-22): CSV, in a folder named by dataset and time.
"""

from __future__ import annotations

import csv
import random
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from localvertex.http import Json, invalid, precondition
from localvertex.jobs import resources
from localvertex.jobs.store import ResourceStore
from localvertex.jobs.validation import found_errors
from localvertex.runner.environment import local_path, object_file
from localvertex.services.collection import Collection, Kind
from localvertex.services.metadata import MetadataStores
from localvertex.services.router import PACKAGE, Done, Method
from vertexrig import times
from vertexrig.errors import VertexrigError
from vertexrig.spec.api_names import camel_keys

SERVICE = f"{PACKAGE}.DatasetService"
_TABULAR = "/dataset/metadata/tabular_"
_SCHEMAS = "gs://google-cloud-aiplatform/schema/dataset"
_SCHEMA = re.compile(rf"{_SCHEMAS}/metadata/([a-z_]+?)_[0-9.]+\.yaml")
_LABELS = {"image": "IMAGE", "tabular": "TABLE", "text": "TEXT", "video": "VIDEO"}
"""The label of a dataset, by its schema (answers in vertex-ai-samples, notebooks UJ1, UJ4, UJ6 and UJ14)."""
_ITEMS = ("image", "text", "video")
"""Kinds of datasets that have items, each with a schema."""
_KIND = Kind(
    "datasets",
    "Dataset",
    required=("displayName", "metadataSchemaUri"),
    updated=frozenset({"displayName", "description", "labels", "metadata"}),
    operations=("Create",),
    answered=("name", "displayName", "description", "metadataSchemaUri", "metadata", "labels", "encryptionSpec"),
    bounds_name=True,
    latest_first=True,
)
_PARTS = {"training": ("training", "train"), "validation": ("validation", "validate"), "test": ("test",)}
"""The parts and their values in a split column: the API's words (types/training_pipeline.py, PredefinedSplit), and those that a
published program writes and trains on (data-science-on-gcp, 09_vertexai/flights_model_tf2.ipynb, read 2026-11-23)."""
_FRACTIONS = (0.8, 0.1, 0.1)
"""Used where the request has none (types/training_pipeline.py, FractionSplit)."""
_UNANNOTATED = (
    "'annotation_schema_uri' should be set in the TrainingPipeline.input_data_config for custom training or hyperparameter "
    "tuning with managed dataset."
)
"""Message for datasets that are not tabular (python-aiplatform issue 944 and pull 199)."""
_ANNOTATIONS = {
    f"{_SCHEMAS}/annotation/{name}_1.0.0.yaml"
    for name in (
        "image_bounding_box",
        "image_classification",
        "image_segmentation",
        "text_classification",
        "text_extraction",
        "text_sentiment",
        "video_action_recognition",
        "video_classification",
        "video_object_tracking",
    )
}
"""The service's schemas of annotations (google-cloud-aiplatform 2.7.0, google/cloud/aiplatform/schema.py)."""
_NOT_AN_ANNOTATION = "Invalid annotation schema uri."
"""Message for another schema of annotations (python-aiplatform issue 927)."""
_UNSPLIT = ("filterSplit", "timestampSplit", "stratifiedSplit", "bigqueryDestination", "savedQueryId")
_ORDER_SEED = 0

Row = list[str]


class Datasets:
    """The managed datasets of a local Vertex."""

    def __init__(
        self, store: ResourceStore, make_bucket: Callable[[str], object], root: Path, metadata: MetadataStores
    ) -> None:
        self.collection = Collection(store, _KIND, self._filled)
        self.root, self.make_bucket, self.metadata = root, make_bucket, metadata

    def table(self) -> dict[str, Method]:
        """Return the methods served; a deleted dataset's source stays."""
        return self.collection.methods() | {"CreateDataset": self.create, "ImportData": self.import_data}

    def create(self, request: Json) -> Done:
        """CreateDataset: its response does not have the dataset's bucket, which GetDataset shows (recordings of Config Connector)."""
        done = self.collection.create(request)
        assert isinstance(done, Done)
        response = done.response or {}
        shown = {key: value for key, value in response["metadata"].items() if key != "gcsBucket"}
        return replace(done, response={**response, "metadata": shown})

    def import_data(self, request: Json) -> Done:
        """ImportData, which reads nothing: no method that is served shows a dataset's items."""
        name = self.collection.stored(request["name"]).name
        configs = request.get("importConfigs") or [{}]
        if not all(one.get("importSchemaUri") and (one.get("gcsSource") or {}).get("uris") for one in configs):
            raise invalid("An import needs import_configs, each with import_schema_uri and gcs_source.uris.")
        for uri in (uri for one in configs for uri in one["gcsSource"]["uris"]):
            self._path(uri)
        return Done(resources.place_of(name), "ImportDataOperationMetadata", "ImportDataResponse", {}, name)

    def _filled(self, request: Json, fields: Json) -> Json:
        """Return the fields of a dataset as the service adds to them; its source is read when a pipeline trains on it."""
        if "parent" not in request:  # an update
            return fields
        schema = _SCHEMA.search(str(fields["metadataSchemaUri"]))
        kind, label = (schema[1], _LABELS.get(schema[1])) if schema else ("", None)
        metadata = fields.get("metadata") or {}
        if kind == "tabular":  # which are shown so whatever case they were sent in (googleCloudVertexAIR, 2024-07-08)
            metadata = camel_keys(metadata)
        if kind in ("tabular", "time_series"):
            metadata = _with_one_table(metadata)
        if kind != "tabular":  # a table stays where it is (training-data-analyst, lab_exercise.ipynb, 2021-12-07)
            bucket = f"cloud-ai-platform-{uuid.uuid4()}"  # as the service names it
            self.make_bucket(bucket)
            metadata = {"gcsBucket": bucket, **metadata}
        if kind in _ITEMS:
            metadata = {"dataItemSchemaUri": f"{_SCHEMAS}/dataitem/{kind}_1.0.0.yaml", **metadata}
        filled = {**fields, "metadata": metadata}
        if label:
            filled["labels"] = {
                **(fields.get("labels") or {}),
                "aiplatform.googleapis.com/dataset_metadata_schema": label,
            }
        artifact = self.metadata.note_dataset(request["parent"], str(fields["displayName"]))
        return {**filled, "metadataArtifact": artifact}

    def export(self, parent: str, config: Mapping[str, Any]) -> dict[str, str]:
        """Write the files that a pipeline trains on.

        Returns:
            The variables that lead the trainer to them.

        Raises:
            ApiError: 404 without the dataset, 400 for a dataset, split or destination that is not served.
        """
        name = f"{parent}/datasets/{config.get('datasetId', '')}"
        dataset = self.collection.stored(name).body
        tabular = _TABULAR in str(dataset.get("metadataSchemaUri", ""))
        if not tabular and not config.get("annotationSchemaUri"):
            raise precondition(_UNANNOTATED)
        if not tabular and config["annotationSchemaUri"] not in _ANNOTATIONS:
            raise found_errors([("training_pipeline.input_data_config.annotation_schema_uri", _NOT_AN_ANNOTATION)])
        unserved = [key for key in _UNSPLIT if config.get(key)]
        if unserved or not tabular:
            what = f"input_data_config.{unserved[0]}" if unserved else str(dataset.get("metadataSchemaUri"))
            raise invalid(
                "The local Vertex exports tabular datasets with a source in Cloud Storage, by fraction_split or "
                f"predefined_split, to gcs_destination. It does not serve {what[:200]}."
            )
        prefix = str((config.get("gcsDestination") or {}).get("outputUriPrefix", "")).rstrip("/")
        if not prefix:
            raise invalid("Invalid value at 'input_data_config': a tabular dataset is exported to gcs_destination.")
        stamp = times.rfc3339(times.now(), 3)
        folder = f"{prefix}/dataset-{dataset['name'].rpartition('/')[2]}-tables-{stamp}"
        header, rows = self._rows(_sources(dataset))
        self._write(folder, header, split_rows(header, rows, config))
        uris = {f"AIP_{part.upper()}_DATA_URI": f"{folder}/{part}-*.csv" for part in _PARTS}
        return {"AIP_DATA_FORMAT": "csv", **uris}

    def _rows(self, sources: list[str]) -> tuple[Row, list[Row]]:
        """Return the header, which all sources share, and the rows of all of them."""
        header: Row = []
        rows: list[Row] = []
        for uri in sources:
            for path in self._files(uri):
                try:
                    with path.open(newline="", encoding="utf-8") as file:
                        first, *own = [row for row in csv.reader(file) if row] or [[]]  # a blank line is not a row
                except (csv.Error, UnicodeDecodeError) as error:
                    raise invalid(f"The dataset's source {uri} is not CSV in UTF-8: {error}.") from None
                if header and first != header:
                    raise invalid(f"{uri} has other columns than the dataset's first file: {first[:20]}.")
                header = first
                rows += own
        return header, rows

    def _files(self, uri: str) -> list[Path]:
        """Return the files of a source, which may end in a wildcard."""
        path = self._path(uri, object_file)
        found = sorted(path.parent.glob(path.name)) if "*" in path.name else [path]
        missing = next((one for one in found if not one.is_file()), None)
        if missing is not None or not found:
            raise invalid(f"The dataset's source {uri} is not in the local storage; copy it to its bucket first.")
        return found

    def _write(self, folder: str, header: Row, parts: Mapping[str, list[Row]]) -> None:
        path = self._path(folder)
        if not (self.root / "gs" / folder[5:].partition("/")[0]).is_dir():
            raise invalid(f"The bucket of gcs_destination {folder} does not exist.")
        path.mkdir(parents=True, exist_ok=True)
        for part, rows in parts.items():
            # The variable has a wildcard; the service writes several files.
            with (path / f"{part}-00000-of-00001.csv").open("w", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows([header, *rows])

    def _path(self, uri: str, resolve: Callable[[str, Path], Path] = local_path) -> Path:
        try:
            if not uri.startswith("gs://"):
                raise invalid(f"{uri[:200]!r} is not a gs:// URI.")
            return resolve(uri, self.root)
        except VertexrigError as error:
            raise invalid(str(error)) from None


def _with_one_table(metadata: Json) -> Json:
    """Return a dataset's metadata with the table of BigQuery as text, though the SDK sends a list of it (its system tests of 2026-04-29)."""
    config = metadata.get("inputConfig") or {}
    uri = (config.get("bigquerySource") or {}).get("uri")
    if not isinstance(uri, list) or len(uri) != 1:
        return metadata
    return {**metadata, "inputConfig": {**config, "bigquerySource": {**config["bigquerySource"], "uri": uri[0]}}}


def _sources(dataset: Mapping[str, Any]) -> list[str]:
    """Return the URIs of a tabular dataset's `inputConfig.gcsSource`."""
    config = camel_keys(dataset.get("metadata") or {}).get("inputConfig") or {}
    uris = (config.get("gcsSource") or {}).get("uri") or []
    uris = [uris] if isinstance(uris, str) else list(uris)
    if not uris:
        raise invalid(f"{dataset['name']} has no source in Cloud Storage (metadata.input_config.gcs_source.uri).")
    return [str(uri) for uri in uris]


def split_rows(header: Row, rows: list[Row], config: Mapping[str, Any]) -> dict[str, list[Row]]:
    """Return the rows of each part: by the column of a predefined split, or else in the proportion of the fractions."""
    key = (config.get("predefinedSplit") or {}).get("key")
    if key:
        if key not in header:
            raise invalid(f"Invalid value at 'input_data_config.predefined_split.key': no column {str(key)[:100]!r}.")
        column = header.index(key)
        short = next((row for row in rows if len(row) <= column), None)
        if short is not None:
            raise invalid(f"A source of the dataset is not complete: the row {short[:20]} has no {key!r}.")
        return {part: [row for row in rows if row[column].lower() in words] for part, words in _PARTS.items()}
    given = config.get("fractionSplit") or {}
    fractions = [float(given.get(f"{part}Fraction", 0.0)) for part in _PARTS]
    if not any(fractions):
        fractions = list(_FRACTIONS)
    # The same rows in the same parts each time, so that two runs can be compared.
    mixed = random.Random(_ORDER_SEED).sample(rows, len(rows))
    return dict(zip(_PARTS, _portions(mixed, fractions), strict=True))


def _portions(rows: list[Row], fractions: list[float]) -> Iterator[list[Row]]:
    start, reached = 0, 0.0
    for fraction in fractions:
        reached += fraction
        # Of the sum of fractions, so that rounding loses no row.
        end = round(min(reached, 1.0) * len(rows))
        yield rows[start:end]
        start = end
