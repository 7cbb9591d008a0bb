"""TensorboardService: TensorBoards, their experiments, runs and time series, and the values written to them."""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Callable, Mapping, Sized
from functools import partial
from pathlib import Path
from typing import Any

from localvertex.http import Json, invalid, not_found, token_of
from localvertex.jobs import resources
from localvertex.jobs.listing import answer, offset_of, page_size
from localvertex.jobs.store import ResourceStore
from localvertex.runner.environment import local_path
from localvertex.services.collection import Collection, Kind
from localvertex.services.router import PACKAGE, Done, Method
from vertexrig.spec.states import RUNNING
from vertexrig.times import nanoseconds

SERVICE = f"{PACKAGE}.TensorboardService"
_UPDATED = frozenset({"displayName", "description", "labels", "isDefault", "pluginName", "pluginData"})
_POINTS, _LARGEST = 1000, 10_000
"""Points of an answer unless the client says otherwise, and at most (google-cloud-aiplatform 2.7.0,
types/tensorboard_service.py, ExportTensorboardTimeSeriesDataRequest.page_size)."""
_MOST_READ, _MOST_MADE, _MOST_WRITTEN = 20, 1000, 5000
"""Time series that one request may read (python-aiplatform issue 3394), and resources that one may make and points that one may
write (comments of google-cloud-aiplatform 2.7.0, types/tensorboard_service.py)."""
STREAMED = frozenset({(SERVICE, "ReadTensorboardBlobData")})
"""Methods whose answers are a stream."""
_BLOB = re.compile(r"[A-Za-z0-9-]{1,64}")


def _below(above: Kind, message: str, plural: str, characters: str = "-", *, needs_id: bool = True) -> Kind:
    """Return the kind of what a TensorBoard holds, at one of its levels."""
    pattern = rf"[a-z0-9][a-z0-9{characters}]{{0,126}}"
    return Kind(
        plural, message, above, listed=f"tensorboard{plural[0].upper()}{plural[1:]}", needs_id=needs_id,
        updated=_UPDATED, id_pattern=pattern, missing=f"{message} {{}} is not found.",
        top_first=True, allowed=f"Valid characters are {pattern}.", delete_below="parent",
    )  # fmt: skip


BOARDS = Kind(
    "tensorboards",
    "Tensorboard",
    required=("displayName",),
    updated=_UPDATED,
    operations=("Create", "Update"),
    answered=("name", "displayName", "description"),
    numbered="Invalid Tensorboard resource name.",
)
EXPERIMENTS = _below(BOARDS, "TensorboardExperiment", "experiments")
RUNS = _below(EXPERIMENTS, "TensorboardRun", "runs")
SERIES = _below(RUNS, "TensorboardTimeSeries", "timeSeries", "_-", needs_id=False)


class Tensorboards:
    """The TensorBoards of a local Vertex; each has a bucket, where the SDK's uploader puts images and graphs."""

    def __init__(self, store: ResourceStore, make_bucket: Callable[[str], object], root: Path) -> None:
        self.store, self.make_bucket, self.root = store, make_bucket, root
        self.boards = Collection(store, BOARDS, self._with_bucket)
        self.experiments, self.runs, self.series = (Collection(store, kind) for kind in (EXPERIMENTS, RUNS, SERIES))

    def table(self) -> dict[str, Method]:
        return {
            **self.boards.methods(),
            **self.experiments.methods(),
            **self.runs.methods(),
            **self.series.methods(),
            "CreateTensorboard": partial(self._with_one_default, self.boards.create),
            "UpdateTensorboard": partial(self._with_one_default, self.boards.update),
            "BatchCreateTensorboardRuns": partial(self._create_all, self.runs),
            "BatchCreateTensorboardTimeSeries": partial(self._create_all, self.series),
            "WriteTensorboardExperimentData": self.write_experiment,
            "WriteTensorboardRunData": self.write_run,
            "ReadTensorboardTimeSeriesData": self.read,
            "ReadTensorboardBlobData": self.read_blobs,
            "BatchReadTensorboardTimeSeriesData": self.read_batch,
            "ExportTensorboardTimeSeriesData": self.export,
        }

    def note(self, job: str, state: str) -> None:
        """Make the experiment of a job that has begun to run and names a TensorBoard; of a trial, that of its tuning job.

        It has the job's id, by which clients link to it (google-cloud-aiplatform 2.7.0, utils/console_utils.py and jobs.py;
        the outputs of a public notebook, index id 44206495890).
        """
        stored = self.store.get(job) if state == RUNNING else None
        named = str(stored.body.get("jobSpec", {}).get("tensorboard", "")) if stored is not None else ""
        if not named.startswith("projects/"):
            return
        _, project, *rest = named.split("/")
        board = "/".join(["projects", resources.project_number(project), *rest])
        source = self.store.study_of(job) or job
        id_ = resources.last_part(source)
        with self.store.database.transaction():
            if self.store.get(board) is not None and self.store.get(f"{board}/experiments/{id_}") is None:
                self.experiments.add(board, {"source": source}, id_)

    def _with_bucket(self, request: Json, fields: Json) -> Json:
        """Return the fields of a TensorBoard; a new one gets a bucket, as in the service."""
        if "parent" not in request:
            return fields
        bucket = f"cloud-ai-platform-{uuid.uuid4()}"
        self.make_bucket(bucket)
        return {**fields, "blobStoragePathPrefix": bucket}

    def _with_one_default(self, change: Method, request: Json) -> Any:
        """Create or update a TensorBoard: one that becomes the default takes that from the others of its location."""
        done = change(request)
        made = done.response if isinstance(done, Done) else None
        if not (request.get("tensorboard") or {}).get("isDefault") or not made:
            return done
        name = str(made["name"])
        for other in self.store.listed(BOARDS.plural, resources.place_of(name)):
            if other.name != name and other.body.get("isDefault"):
                self.store.change(other.name, lambda body, _: body.update(isDefault=False))
        return done

    def _create_all(self, collection: Collection, request: Json) -> Json:
        asked, listed = request.get("requests", ()), collection.kind.listed
        _check_number(asked, _MOST_MADE, f"{listed[0].upper()}{listed[1:]}", "create")
        with self.store.database.transaction():  # all of them or none
            made = [collection.made(one) for one in asked]
        return {collection.kind.listed: made}

    # values

    def write_experiment(self, request: Json) -> Json:
        """WriteTensorboardExperimentData: values of several runs."""
        self.experiments.stored(request["tensorboardExperiment"])
        with self.store.database.transaction():
            for one in request.get("writeRunDataRequests", ()):
                self.write_run(one)
        return {}

    def write_run(self, request: Json) -> Json:
        """WriteTensorboardRunData: values of a run's time series; a later value of a step replaces the earlier one."""
        run = str(request.get("tensorboardRun", ""))
        self.runs.stored(run)
        points = [point for data in request.get("timeSeriesData", ()) for point in data.get("values", ())]
        _check_number(points, _MOST_WRITTEN, "data points", "write")
        with self.store.database.transaction() as connection:
            for data in request.get("timeSeriesData", ()):
                name = f"{run}/timeSeries/{data.get('tensorboardTimeSeriesId', '')}"
                values = data.get("values", ())
                self.series.stored(name)
                connection.executemany(
                    "INSERT OR REPLACE INTO points VALUES (?, ?, ?)",
                    [(name, int(point.get("step", 0)), json.dumps(point)) for point in values],
                )
                self.store.change(name, lambda body, _, values=values: _note_newest(body, values))  # type: ignore[misc]
        return {}

    def read(self, request: Json) -> Json:
        """ReadTensorboardTimeSeriesData: at most `maxDataPoints` values, evenly chosen, the first and last among them."""
        return {"timeSeriesData": self._data(request["tensorboardTimeSeries"], int(request.get("maxDataPoints", 0)))}

    def read_blobs(self, request: Json) -> list[Json]:
        """ReadTensorboardBlobData: an answer for each blob, from where the SDK's uploader puts them."""
        name = self.series.stored(request["timeSeries"]).name
        location, _, rest = name.partition("/tensorboards/")
        board, _, experiment, _, run, _, series = rest.split("/")
        prefix = self.boards.stored(f"{location}/tensorboards/{board}").body["blobStoragePathPrefix"]
        # google-cloud-aiplatform 2.7.0, tensorboard/uploader.py, _BlobRequestSender
        folder = f"gs://{prefix}/tensorboard-{board}/{experiment}/{run}/{series}"
        return [self._blob(folder, str(blob)) for blob in request.get("blobIds", ())]

    def _blob(self, folder: str, blob: str) -> Json:
        if not _BLOB.fullmatch(blob):
            raise invalid(f"{blob[:80]!r} is not the id of a blob.")
        try:
            data = local_path(f"{folder}/{blob}", self.root).read_bytes()
        except OSError:
            raise not_found(f"There is no blob {blob} in this time series.") from None
        return {"blobs": [{"id": blob, "data": base64.b64encode(data).decode()}]}

    def read_batch(self, request: Json) -> Json:
        """BatchReadTensorboardTimeSeriesData."""
        names = request.get("timeSeries", ())
        _check_number(names, _MOST_READ, "TensorboardTimeSeries", "read")
        return {"timeSeriesData": [self._data(str(name), 0) for name in names]}

    def export(self, request: Json) -> Json:
        """ExportTensorboardTimeSeriesData: all values, by page."""
        size = page_size(request, _POINTS, _LARGEST)
        start = offset_of(str(request.get("pageToken", "")))
        name = self.series.stored(request["tensorboardTimeSeries"]).name
        points = self._points(name, f"LIMIT {size + 1:d} OFFSET {start:d}")
        return answer("timeSeriesDataPoints", points[:size], token_of(str(start + size)) if len(points) > size else "")

    def _data(self, name: str, most: int) -> Json:
        body = self.series.stored(name).body
        points = self._points(name)
        if most >= 0:  # -1 asks for all
            points = _thinned(points, min(most or _POINTS, _LARGEST))
        id_ = name.rpartition("/")[2]
        return {"tensorboardTimeSeriesId": id_, "valueType": body.get("valueType", "SCALAR"), "values": points}

    def _points(self, name: str, limit: str = "") -> list[Json]:
        rows = self.store.database.rows(f"SELECT point FROM points WHERE series = ? ORDER BY step {limit}", name)
        return [json.loads(row[0]) for row in rows]


def _check_number(given: Sized, most: int, what: str, verb: str) -> None:
    if len(given) > most:
        raise invalid(f"Maximum of {most} {what} to {verb}.")


def _note_newest(body: Json, values: Any) -> None:
    known: Mapping[str, Any] = body.get("metadata") or {}
    steps = [int(known.get("maxStep", 0)), *(int(point.get("step", 0)) for point in values)]
    times = [str(known.get("maxWallTime", "")), *(str(point.get("wallTime", "")) for point in values)]
    # Compared as times: as text, a time without a fraction (`…Z`) sorts after one with a fraction (`….5Z`).
    newest = max(times, key=lambda text: nanoseconds(text) or 0)
    body["metadata"] = {"maxStep": str(max(steps)), **({"maxWallTime": newest} if newest else {})}


def _thinned(points: list[Json], most: int) -> list[Json]:
    if len(points) <= most:
        return points
    if most == 1:
        return points[-1:]
    return [points[round(i * (len(points) - 1) / (most - 1))] for i in range(most)]
