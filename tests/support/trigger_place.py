"""A project with steps over the services in memory of `tests/support/clouds_in_memory.py`, whose jobs end when a test says so."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support import clouds
from tests.support.clouds_in_memory import Clock, MemoryStorage, MemoryVertex
from tests.support.memory_models import MemoryFolder, MemoryModels
from tests.support.permissions import noted
from vertexrig import times
from vertexrig.cloud.models import ModelsClient
from vertexrig.cloud.vertex import Vertex
from vertexrig.runs.run import Run
from vertexrig.runs.store import RunStore
from vertexrig.spec.states import SUCCEEDED
from vertexrig.submit.claims import Claims
from vertexrig.submit.submission import Submitter
from vertexrig.submit.uploaded import UploadedArtifacts
from vertexrig.trigger.answers import Reply
from vertexrig.trigger.app import Call, Trigger
from vertexrig.trigger.callers import of_schedule
from vertexrig.workspace import Workspace

SWEEP: dict[str, Any] = {**clouds.PROJECT["sweeps"]["sweep"], "max_trial_count": 2}
DATA: dict[str, Any] = {
    **clouds.PROJECT,
    "labels": {"team": "vision"},
    "sweeps": {"sweep": SWEEP},
    "schedules": {
        "nightly": {
            "run": "sweep", "cron": "0 3 * * *", "args": {"epochs": 3},
            "then": [{"promote": {"epochs": 30}}, {"register": {"min_gain": 0.01, "labels": {"stage": "try"}}}],
        }
    },
}  # fmt: skip


class Place:
    """A trigger whose services are in memory: jobs end when a test says so."""

    def __init__(self, folder: Path, data: Mapping[str, Any] = DATA) -> None:
        self.folder, self.clock = folder, Clock()
        self.storage, self.vertex = MemoryStorage(self.clock), MemoryVertex(self.clock)
        self.models = MemoryModels(self.vertex, self.clock)
        self.store = self.storage.below("vertexrig/vertexrig")
        self.storage.write("packages/trainer.tar.gz", b"")
        row = {
            "uri": "gs://my-bucket/packages/trainer.tar.gz",
            "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        }
        self.storage.write("vertexrig/vertexrig/packages/trainer.task-tf-2.17.json", json.dumps(row).encode())
        self.logs: list[Mapping[str, Any]] = []
        self.load(data)

    def load(self, data: Mapping[str, Any]) -> None:
        """Deploy another project file."""
        claims = Claims(self.store, clock=self.clock, sleep=self._sleep)
        loaded = clouds.loaded(self.folder, data)
        self.trigger = Trigger(loaded, vertex=self.vertex, storage=self.storage, claims=claims, log=self.logs.append)
        self.trigger.submitter.ledger.now = self.trigger.engine.now = self.clock.now
        submitter = Submitter(
            Workspace(loaded, uploaded=UploadedArtifacts(loaded, self.storage)), self.vertex, self.storage,
            claims=Claims(self.store, clock=self.clock, sleep=self._sleep, wait_s=0), fence=True,
        )  # fmt: skip
        submitter.ledger.now = self.clock.now
        ticker = self.trigger.make_ticker(submitter, self.models, lambda uri: MemoryFolder(self.storage, uri))
        ticker.engine.now, ticker.clock = self.clock.now, self.clock
        self.trigger.ticker = ticker

    def _sleep(self, seconds: float) -> None:
        self.clock.at += seconds

    def post(self, body: Mapping[str, Any], path: str = "/", headers: Mapping[str, str] = {}) -> Reply:
        return self.trigger.handle(Call("POST", path, headers, lambda most: json.dumps(body).encode()))

    def fire(self, time: str = "", schedule: str = "nightly", **body: Any) -> Reply:
        """What the function answers Cloud Scheduler for a due time, now by default; `body` changes the schedule's own request."""
        asked = of_schedule(schedule, self.trigger.loaded.project.schedules[schedule]).body
        headers = {
            "x-cloudscheduler-jobname": f"vertexrig-{schedule}",
            "x-cloudscheduler-scheduletime": time or times.rfc3339(times.now(), 0),
        }
        return self.post({name: part for name, part in asked.items() if part} | body, headers=headers)

    def uses_registry_of(self, vertex: Vertex) -> set[tuple[str, str]]:
        """Let the steps use a service's own Model Registry; return method and path of each call to it, as they come."""
        calls = noted(vertex.rest)
        steps = self.trigger.ticker.engine.step.__self__  # type: ignore[union-attr]
        steps.registrar = replace(steps.registrar, models=ModelsClient(vertex))
        return calls

    def begin(self, **body: Any) -> str:
        """Start the run of the schedule: its job's resource name."""
        reply = self.post({"run": "sweep", "args": {"epochs": 3}, "then": "nightly", **body})
        assert reply.status == 201 and reply.body["then"], reply.body
        return str(reply.body["name"])

    def tick(self) -> dict[str, Any]:
        """What a tick says of the one open run."""
        self.clock.at += 600
        reply = self.post({}, "/tick")
        assert reply.status == 200, reply.body
        (row,) = reply.body["runs"]
        return dict(row)

    def ends(self, name: str, state: str = SUCCEEDED, **more: Any) -> None:
        """Let a job end."""
        self.vertex.jobs[name].data.update(state=state, endTime=times.rfc3339(self.clock.now()), **more)

    def sweep_ends(self, name: str, *accuracies: float | None) -> None:
        """Let a sweep succeed with these trials; None is an infeasible one."""
        trials = [
            {
                "id": str(number), "state": "INFEASIBLE" if value is None else "SUCCEEDED",
                "parameters": [{"parameterId": "learning_rate", "value": 0.1 * number}],
                **({} if value is None else {"finalMeasurement": {"metrics": [{"metricId": "accuracy", "value": value}]}}),
            }
            for number, value in enumerate(accuracies, 1)
        ]  # fmt: skip
        self.ends(name, trials=trials)

    def trained(self, name: str, accuracy: float | None = 0.9, saved: str = "saved_model.pb") -> None:
        """Let a custom job succeed that left a model with its summary."""
        output = self.vertex.jobs[name].data["jobSpec"]["baseOutputDirectory"]["outputUriPrefix"]
        place = f"{output.removeprefix('gs://my-bucket/').rstrip('/')}/model"
        if saved:
            self.storage.write(f"{place}/{saved}", b"")
        if accuracy is not None:
            self.storage.write(f"{place}/summary.json", json.dumps({"accuracy": accuracy}).encode())
        self.ends(name)

    def versions(self) -> list[dict[str, Any]]:
        return [row for rows in self.models.models.values() for row in rows]

    @property
    def runs(self) -> list[Run]:
        """The open runs."""
        return [one for one in RunStore(self.store).open() if not isinstance(one, str)]

    @property
    def open(self) -> bool:
        return bool(self.runs)

    @property
    def ended(self) -> list[dict[str, Any]]:
        """The rows of the history that have an end, the newest first."""
        rows = self.trigger.deliveries.rows(times.parse("2026-11-01T00:00:00Z"))
        return [row for row in rows if "end" in row]


def nightly(*, steps: bool = False, **keys: Any) -> dict[str, Any]:
    """The project with these keys of its schedule, which has no steps unless they are asked for."""
    data = copy.deepcopy(DATA)
    if not steps:
        del data["schedules"]["nightly"]["then"]
    data["schedules"]["nightly"] |= keys
    return data


def then(*steps: Any, **more: Any) -> dict[str, Any]:
    data = copy.deepcopy(DATA)
    data["schedules"]["nightly"]["then"] = list(steps)
    data["trigger"] = {**data["trigger"], **more}
    return data
