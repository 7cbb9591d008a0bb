"""What follows a run: `then` of a schedule, each step exactly once whatever happens to the ticks, and every way a chain ends."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests import clouds
from tests.chain_world import MODEL, MemoryFolder, MemoryModels, WorldRegistrar, explore
from tests.clouds_in_memory import Clock, MemoryStorage, MemoryVertex
from tests.protocol import Broken
from vertexrig import times
from vertexrig.checks.workspace import Workspace
from vertexrig.cloud.models import ModelsClient
from vertexrig.cloud.rest import RestError
from vertexrig.errors import ConfigError
from vertexrig.local import server
from vertexrig.spec.states import FAILED, SUCCEEDED
from vertexrig.studies import register
from vertexrig.submit.chains import OPEN, Chain, ChainEnd
from vertexrig.submit.claims import LABEL, Claim, Claims
from vertexrig.submit.submission import Submitter, uploaded
from vertexrig.trigger import deploy
from vertexrig.trigger.app import Call, Reply, Trigger
from vertexrig.trigger.ticks import PATIENCE_S, Looked, Ticker

LONG = os.environ.get("ATTACK") == "long"
PARTS = 4
SCHEDULES = 1_600 * (10 if LONG else 1)


@pytest.mark.parametrize("there", [False, True], ids=["first", "next"])
@pytest.mark.parametrize("part", range(PARTS))
def test_each_step_is_taken_once_in_every_schedule(part: int, there: bool) -> None:
    """Ticks that are frozen, woken, killed, cut and repeated at any call, beside deliveries of the run, over lists that lag and
    uploads that take their time: one run, one promoted job and one version survive, and the version has the aliases."""
    for seed in range(part, SCHEDULES // 2, PARTS):
        try:
            explore(seed, there=there)
        except Broken as broken:
            raise AssertionError(f"schedule {seed}: {broken}") from broken


class NobodyCleans(WorldRegistrar):
    """Second versions stay."""

    def clean(self, display: str) -> list[str]:
        return []


class ModelsOfTheirOwn(WorldRegistrar):
    """The service chooses the id of a new model."""

    def _begin(self, taken: Any, body: Mapping[str, Any], parent: str, chain: Chain) -> dict[str, Any]:
        return self.models.begin_upload(body, parent, "" if parent else taken.claim.token)


class NobodyClaims(WorldRegistrar):
    """Every tick uploads."""

    def register(self, chain: Chain, key: Any, step: Any, job: Any) -> Any:
        there = register.present(self.models, "cpu", "champion")
        body = self._body(chain, step, MODEL, "cpu")
        made = self.models.begin_upload(body, str(there["name"]) if there else "", "" if there else "one")
        return self._finish(chain, Claim("", "", "", "", "", state="created", job=made), step, "cpu", "")


@pytest.mark.parametrize(
    ("broken", "there"), [(NobodyCleans, True), (ModelsOfTheirOwn, False), (NobodyClaims, True)], ids=lambda one: getattr(one, "__name__", "")
)  # fmt: skip
def test_each_part_of_it_is_needed(broken: type[WorldRegistrar], there: bool) -> None:
    """Without one of them a schedule is found that leaves two versions."""
    with pytest.raises((Broken, RestError)):
        for seed in range(2_000):
            explore(seed, there=there, registrar=broken)


# --- one chain, step by step ---

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
        self.storage.write("packages/trainer.tar.gz", b"")
        row = {
            "uri": "gs://my-bucket/packages/trainer.tar.gz",
            "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        }
        self.storage.write("packages/latest/trainer.task-tf-2.17.json", json.dumps(row).encode())
        self.logs: list[Mapping[str, Any]] = []
        self.load(data)

    def load(self, data: Mapping[str, Any]) -> None:
        """Deploy another project file."""
        claims = Claims(self.storage, clock=self.clock, sleep=self._sleep)
        loaded = clouds.loaded(self.folder, data)
        self.trigger = Trigger(loaded, vertex=self.vertex, storage=self.storage, claims=claims, log=self.logs.append)
        self.trigger.submitter.ledger.now = self.clock.now
        submitter = Submitter(
            Workspace(loaded, uploaded=uploaded(loaded, self.storage)), self.vertex, self.storage,
            claims=Claims(self.storage, clock=self.clock, sleep=self._sleep, wait_s=0), fence=True,
        )  # fmt: skip
        submitter.ledger.now = self.clock.now
        self.trigger.__dict__["_ticker"] = Ticker(
            submitter,
            self.models,
            folder=lambda uri: MemoryFolder(self.storage, uri),
            clock=self.clock,
            now=self.clock.now,
        )

    def _sleep(self, seconds: float) -> None:
        self.clock.at += seconds

    def post(self, body: Mapping[str, Any], path: str = "/") -> Reply:
        return self.trigger.handle(Call("POST", path, {}, lambda most: json.dumps(body).encode()))

    def begin(self, **body: Any) -> str:
        """Start the run of the schedule: its job's resource name."""
        reply = self.post({"run": "sweep", "args": {"epochs": 3}, "then": "nightly", **body})
        assert reply.status == 201 and reply.body["then"], reply.body
        return str(reply.body["name"])

    def tick(self) -> dict[str, Any]:
        """What a tick says of the one open chain."""
        self.clock.at += 600
        reply = self.post({}, "/tick")
        assert reply.status == 200, reply.body
        (row,) = reply.body["chains"]
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
    def open(self) -> bool:
        return any(name.startswith(OPEN) for name in self.storage.objects)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_night_from_the_sweep_to_the_version(place: Place) -> None:
    """The sweep's end starts one full job with the best trial's parameters, its end adds one version with its labels and
    aliases, and the next night's equal model is compared and left out: a proper end."""
    sweep = place.begin()
    assert place.tick()["state"] == "waits"
    place.sweep_ends(sweep, 0.7, None, 0.8)
    row = place.tick()
    assert (row["state"], row["step"]) == ("started", "promote"), row
    job = place.vertex.jobs[row["job"]].data
    args = job["jobSpec"]["workerPoolSpecs"][0]["pythonPackageSpec"]["args"]
    assert sorted(args) == ["--epochs=30", "--learning_rate=0.30000000000000004"]
    chain = place.vertex.jobs[sweep].data["labels"][LABEL]
    labels = {
        "promoted_from": "sweep",
        "trial": "3",
        "vertexrig_chain": chain,
        "team": "vision",
        "vertexrig_run": "sweep-best",
    }
    assert labels.items() <= job["labels"].items() and job["labels"][LABEL] != chain
    assert place.tick()["detail"] == "sweep-best has not ended" and len(place.vertex.jobs) == 2
    place.trained(row["job"], 0.9)
    row = place.tick()
    assert (row["state"], row["outcome"], row["step"]) == ("ended", "registered", "register")
    (version,) = place.versions()
    assert version["versionAliases"] == ["champion", "default"] and version["displayName"] == "sweep"
    assert {"team": "vision", "stage": "try", "vertexrig_chain": chain, "metric_value": "0_9"}.items() <= version[
        "labels"
    ].items()
    assert row["model"] == f"{version['name']}@1" and not place.open
    end = place.trigger.chains.end(chain)
    assert isinstance(end, ChainEnd) and list(end.jobs) == ["sweep", "sweep-best"]
    entry = next(one for one in place.logs if one.get("outcome"))
    assert entry["severity"] == "INFO" and "there is no such model yet" in entry["message"]
    assert place.post({}, "/tick").body == {"chains": []} and len(place.vertex.jobs) == 2

    place.clock.at += 86_400
    sweep = place.begin()
    place.sweep_ends(sweep, 0.8)
    place.trained(place.tick()["job"], 0.905)
    row = place.tick()
    assert row["outcome"] == "not-better" and "better by 0.005; at least 0.01 is asked for" in row["detail"], row
    assert len(place.versions()) == 1 and place.logs[-2]["severity"] == "INFO"


def then(*steps: Any, **more: Any) -> dict[str, Any]:
    data = copy.deepcopy(DATA)
    data["schedules"]["nightly"]["then"] = list(steps)
    data["trigger"] = {**data["trigger"], **more}
    return data


def test_steps_by_themselves(tmp_path: Path) -> None:
    """`register` alone takes the best trial's own model; `promote` alone ends with its job."""
    place = Place(tmp_path, then("register"))
    sweep = place.begin()
    place.sweep_ends(sweep, 0.7, 0.8)
    base = place.vertex.jobs[sweep].data["trialJobSpec"]["baseOutputDirectory"]["outputUriPrefix"]
    place.storage.write(f"{base.removeprefix('gs://my-bucket/').rstrip('/')}/2/model/saved_model.pb", b"")
    row = place.tick()
    assert row["outcome"] == "registered" and place.versions()[0]["artifactUri"].endswith("/2/model"), row
    place.load(
        then(
            {
                "promote": {
                    "topology": "gpu",
                    "set": {"accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 1},
                    "name": "full",
                }
            }
        )
    )
    place.clock.at += 86_400
    sweep = place.begin()
    place.sweep_ends(sweep, 0.7)
    row = place.tick()
    assert row["state"] == "started", row
    pool = place.vertex.jobs[row["job"]].data["jobSpec"]["workerPoolSpecs"][0]
    assert (
        pool["machineSpec"]["acceleratorType"] == "NVIDIA_TESLA_T4"
        and place.vertex.jobs[row["job"]].data["displayName"] == "full"
    )
    place.ends(row["job"])
    row = place.tick()
    assert (row["outcome"], row["detail"]) == ("done", "full has succeeded")


# what becomes of the night -> how its chain ends, at which step, and what the reason says
ENDS: list[tuple[str, str, str, str]] = [
    ("the sweep is cancelled", "failed", "run", "sweep ended CANCELLED"),
    ("the sweep fails", "failed", "run", "sweep ended FAILED: too many trials failed"),
    ("the sweep is deleted", "failed", "run", "is gone"),
    ("all trials infeasible", "impossible", "promote", "of 2 trials none counts (2 infeasible)"),
    ("no trials", "impossible", "promote", "has no trials yet"),
    ("the promoted job fails", "failed", "promote", "sweep-best ended FAILED: out of memory"),
    ("no model", "impossible", "register", "nothing is in gs://my-bucket/runs/sweep-best/"),
    ("no SavedModel", "impossible", "register", "no saved_model.pb is in"),
    ("no summary", "impossible", "register", "summary.json of sweep-best has no accuracy"),
    ("two models of the name", "impossible", "register", "2 models are called 'sweep'"),
    ("a version of another metric", "not-better", "register", "its metric is loss"),
    ("the registry refuses the model", "refused", "register", "artifact"),
    ("the upload fails", "refused", "register", "no such image"),
    ("other steps", "changed", "run", "are others than when the run began"),
    ("no schedule", "changed", "run", "are others than when the run began"),
    ("values not open any more", "changed", "run", "above 2"),
    ("a promoted job that is wrong", "impossible", "promote", "sweep-best would fail"),
    (
        "a promoted job that does not fit",
        "impossible",
        "promote",
        "jobs.sweep-best: topology gpu needs accelerator_type",
    ),
    ("a promoted job over the budget of a run", "over-budget", "promote", "more than $1.00 per run"),
]


@pytest.mark.parametrize(("what", "outcome", "step", "reason"), ENDS, ids=[row[0] for row in ENDS])
def test_every_way_a_chain_ends(place: Place, what: str, outcome: str, step: str, reason: str) -> None:
    """The reason is recorded and logged, and nothing more is made."""
    sweep = place.begin()
    row = _ended_by(place, sweep, what)
    assert (row["state"], row["outcome"], row["step"]) == ("ended", outcome, step), row
    assert reason in row["detail"] and not place.open
    (end,) = place.trigger.chains.ends()
    assert (end.outcome, end.step, end.reason) == (outcome, step, row["detail"])
    entry = next(one for one in place.logs if one.get("outcome"))
    assert entry["severity"] == ("INFO" if outcome == "not-better" else "ERROR") and reason in entry["message"]
    assert not [one for one in place.versions() if "(chain " in one["versionDescription"] and outcome != "refused"]


def _ended_by(place: Place, sweep: str, what: str) -> dict[str, Any]:
    """Let it happen: what the tick says then."""
    changed = {
        "other steps": then("register"),
        "no schedule": {**DATA, "schedules": {}},
        "values not open any more": then(*DATA["schedules"]["nightly"]["then"], allow_args={"epochs": {"max": 2}}),
        "a promoted job that is wrong": then(
            {"promote": {"topology": "gpu", "set": {"accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 3}}},
            "register",
        ),
        "a promoted job that does not fit": then({"promote": {"topology": "gpu"}}, "register"),
        "a promoted job over the budget of a run": then(
            {"promote": {"machine_type": "n1-highmem-96"}}, "register", budget={"usd_per_run": 1}
        ),
    }
    early = {
        "the sweep is cancelled": lambda: place.ends(sweep, "JOB_STATE_CANCELLED"),
        "the sweep fails": lambda: place.ends(sweep, FAILED, error={"message": "too many trials failed\nmore"}),
        "the sweep is deleted": lambda: place.vertex.jobs.pop(sweep) and None,
        "all trials infeasible": lambda: place.sweep_ends(sweep, None, None),
        "no trials": lambda: place.ends(sweep),
    }
    if what in early:
        early[what]()
        return place.tick()
    if what in changed:
        data = changed[what]
        if what == "values not open any more":
            data["schedules"]["nightly"]["args"] = {}
        place.load(data)
        place.sweep_ends(sweep, 0.8)
        return place.tick()
    place.sweep_ends(sweep, 0.8)
    job = place.tick()["job"]
    return _after_promotion(place, job, what)


def _after_promotion(place: Place, job: str, what: str) -> dict[str, Any]:
    if what == "the promoted job fails":
        place.ends(job, FAILED, error={"message": "out of memory"})
        return place.tick()
    saved = {"no model": "", "no SavedModel": "other.h5"}.get(what, "saved_model.pb")
    place.trained(job, None if what in ("no model", "no summary") else 0.9, saved)
    model = {"displayName": "sweep", "versionDescription": "loss 0.5, from x 1"}
    if what == "two models of the name":
        for name in ("one", "two"):
            place.models.begin_upload(model, "", name)
    if what == "a version of another metric":
        place.models.begin_upload(model, "", "one")
    if what == "the registry refuses the model":
        place.models.uploading = RestError("Vertex AI: the artifact is not there", status=400)
    if what == "the upload fails":
        place.models.operation = lambda name: {"name": name, "done": True, "error": {"message": "no such image"}}  # type: ignore[method-assign]
    return place.tick()


WAITS: list[tuple[str, str]] = [
    ("a role is missing", "Permission 'aiplatform.models.list' denied"),
    ("the registry conflicts", "conflict"),
    ("live jobs", "live jobs"),
    ("a day's budget", "per day"),
    ("no package", "no trainer package"),
]


@pytest.mark.parametrize(("what", "why"), WAITS, ids=[row[0] for row in WAITS])
def test_what_a_step_waits_for(place: Place, what: str, why: str) -> None:
    """What a person or another run has to free holds the step, with a warning in the log at each tick; it goes on once that is
    free, and after three days it is given up."""
    budget = {"live jobs": {"live_jobs": 0}, "a day's budget": {"usd_per_day": 0.01}}.get(what)
    sweep = place.begin()
    place.sweep_ends(sweep, 0.8)
    steps = DATA["schedules"]["nightly"]["then"]
    if what in ("a role is missing", "the registry conflicts"):
        place.trained(place.tick()["job"])
        status = 403 if what == "a role is missing" else 409
        place.models.refusal = RestError(
            "Vertex AI: Permission 'aiplatform.models.list' denied; conflict", status=status
        )
    elif what == "no package":
        pointer = place.storage.objects.pop("packages/latest/trainer.task-tf-2.17.json")
    else:
        place.load(then(*steps, budget=budget))
    made = len(place.vertex.jobs)
    for _ in range(3):
        row = place.tick()
        entry = place.logs[-2]
        assert row["state"] == "waits" and entry["severity"] == "WARNING" and why in entry["message"], (row, entry)
        assert (why in row["detail"]) is (
            place.models.refusal is None
        )  # a service's words about the trigger stay in the log
    assert place.open and place.versions() == [] and len(place.vertex.jobs) == made
    kept = copy.deepcopy((place.storage.objects, place.clock.at))
    place.clock.at += PATIENCE_S
    row = place.tick()
    (end,) = place.trigger.chains.ends()
    assert row["outcome"] == end.outcome == "given-up" and "after 3 days" in end.reason and why in end.reason

    place.storage.objects, place.clock.at = kept
    place.models.refusal = None
    if what == "no package":
        place.storage.objects["packages/latest/trainer.task-tf-2.17.json"] = pointer
    place.load(DATA)
    row = place.tick()
    assert row["state"] == ("ended" if made == 2 else "started"), row


def test_a_run_that_was_never_made_is_given_up(place: Place) -> None:
    """A chain whose run the service refused waits for a repeat of the request, and ends after three days."""
    create = place.vertex.create
    place.vertex.create = lambda *_: (_ for _ in ()).throw(RestError("no quota", status=429))  # type: ignore[method-assign]
    assert place.post({"run": "sweep", "args": {"epochs": 3}, "then": "nightly", "request_id": "one"}).status == 429
    place.vertex.create = create  # type: ignore[method-assign]
    assert place.tick()["detail"] == "the run's job is not made yet" and place.open
    (path,) = [name for name in place.storage.objects if name.startswith(OPEN)]
    chain = json.loads(place.storage.objects[path][0])
    chain["begun"] = times.rfc3339(place.clock.now())
    place.storage.write(path, json.dumps(chain).encode())
    place.begin(request_id="one")
    assert place.tick()["detail"] == "sweep has not ended"
    place.vertex.jobs.clear()
    for name in [name for name in place.storage.objects if "/claims/" in name]:
        del place.storage.objects[name]
    assert place.tick()["state"] == "waits"
    place.clock.at += PATIENCE_S
    assert place.tick()["outcome"] == "given-up"


def test_an_odd_object_and_an_error_of_ours_hold_up_no_other_chain(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not a chain is named, an error that nobody foresaw is logged, and every other chain is looked at."""
    first = place.begin(request_id="first")
    second = place.begin(request_id="second")
    bad = [b"{}", b"[]", b"\xff", json.dumps({"id": "../x", "steps": []}).encode()]
    for number, content in enumerate(bad):
        place.storage.write(f"{OPEN}odd-{number}.json", content)
    follow = Ticker._follow

    def failing(self: Ticker, walk: Any) -> Looked:
        if walk.chain.id == place.vertex.jobs[first].data["labels"][LABEL]:
            raise ZeroDivisionError
        return follow(self, walk)

    monkeypatch.setattr(Ticker, "_follow", failing)
    place.clock.at += 600
    rows = place.post({}, "/tick").body["chains"]
    assert sorted(row["state"] for row in rows) == ["unknown"] * 5 + ["waits"]
    assert next(row for row in rows if row["state"] == "waits")["job"] == second
    assert [entry["error"] for entry in place.logs if "error" in entry] == ["ZeroDivisionError"]
    assert sum("is not a chain; delete it" in str(entry.get("message")) for entry in place.logs) == 4


def test_every_permission_of_the_registry_is_used(place: Place, here: server.RunningServer) -> None:
    """Two nights on the local Vertex's own registry: each permission that a schedule with `register` needs is proved by a call, each
    call has one, and a second version of the first night, as a frozen tick may add it, is deleted in the next."""
    vertex, calls = clouds.vertex(here), set()
    send = vertex.rest.session.request

    def noted(method: str, url: str, **options: Any) -> Any:
        path = urlsplit(url).path
        calls.add((method, path[path.index("/v1/projects/") :]))
        return send(method, url, **options)

    vertex.rest.session.request = noted  # type: ignore[method-assign,assignment]
    ticker = place.trigger._ticker
    ticker.registrar = replace(ticker.registrar, models=ModelsClient(vertex))
    versions = []
    for night, accuracy in enumerate((0.9, 0.95)):
        place.clock.at += 86_400
        sweep = place.begin()
        place.sweep_ends(sweep, 0.8)
        place.trained(place.tick()["job"], accuracy)
        row = place.tick()
        assert row["outcome"] == "registered", row
        versions.append(row["model"])
        name, _, number = row["model"].partition("@")
        kept = ModelsClient(clouds.vertex(here))
        if night == 0:
            first = kept.version(name, number)
            assert first is not None
            again = {key: first[key] for key in ("displayName", "versionDescription", "artifactUri", "containerSpec")}
            kept.upload(again, name)
    assert [row.rpartition("@")[2] for row in versions] == ["1", "3"]
    assert {row["versionId"]: sorted(row["versionAliases"]) for row in kept.versions(name)} == {
        "1": [],
        "3": ["champion", "default"],
    }
    table = deploy.MODEL_CALLS
    used = {key for key, (verb, path) in table.items() if any(verb == m and re.fullmatch(path, p) for m, p in calls)}
    assert used == set(table)
    assert not [
        one for one in calls if not any(one[0] == verb and re.fullmatch(path, one[1]) for verb, path in table.values())
    ]


# --- what a body may ask for ---

BODIES: list[tuple[str, dict[str, Any], int, str]] = [
    ("an unknown schedule", {"then": "nightl"}, 403, "Did you mean 'nightly'?"),
    ("a schedule without steps", {"then": "plain"}, 403, "there is no schedule 'plain' with steps"),
    ("steps of its own", {"then": ["promote"]}, 400, "the name of a schedule belongs here"),
    ("another run", {"run": "cpu", "then": "nightly"}, 400, "the steps of nightly follow sweep, not cpu"),
    ("other values", {"args": {"epochs": 4}, "then": "nightly"}, 403, "trigger.allow_then opens them"),
]


@pytest.mark.parametrize(("what", "body", "status", "said"), BODIES, ids=[row[0] for row in BODIES])
def test_a_body_brings_no_steps(tmp_path: Path, what: str, body: dict[str, Any], status: int, said: str) -> None:
    """A body names a schedule of the project file; its steps follow its own values only, unless the file opens that."""
    data = copy.deepcopy(DATA)
    data["schedules"]["plain"] = {"run": "cpu", "cron": "0 3 * * *"}
    place = Place(tmp_path, data)
    reply = place.post({"run": "sweep", "args": {"epochs": 3}, **body})
    assert reply.status == status and said in json.dumps(reply.body, ensure_ascii=False), reply.body
    assert not place.open and not place.vertex.jobs
    if what == "other values":
        place.load(then(*DATA["schedules"]["nightly"]["then"], allow_then=True))
        assert place.post({"run": "sweep", **body}).status == 201 and place.open


def test_a_dry_run_keeps_no_chain(place: Place) -> None:
    """It says which steps would follow."""
    reply = place.post({"run": "sweep", "args": {"epochs": 3}, "then": "nightly", "dry_run": True})
    assert reply.body["then"] == ["promote", "register"] and not place.open


def test_the_promoted_job_has_the_run_s_own_values(tmp_path: Path) -> None:
    """Arguments that the run was asked for with are the promoted job's, and so are keys of the sweep's job; the step wins."""
    data = then({"promote": {"args": {"note": "full"}, "machine_type": "n1-standard-16"}}, allow_then=True)
    data["trigger"]["allow"] |= {"jobs.cpu.timeout": {"max": 7200}, "jobs.cpu.machine_type": {}}
    place = Place(tmp_path, data)
    given = {"jobs.cpu.timeout": "600s", "jobs.cpu.machine_type": "n1-standard-8", "max_trial_count": 3}
    sweep = place.begin(set=given, args={"epochs": 7, "note": "${HOME}"})
    place.sweep_ends(sweep, 0.8)
    spec = place.vertex.jobs[place.tick()["job"]].data["jobSpec"]
    assert spec["scheduling"]["timeout"] == "600s"
    pool = spec["workerPoolSpecs"][0]
    assert pool["machineSpec"]["machineType"] == "n1-standard-16"
    assert {"--epochs=7", "--note=full"} <= set(pool["pythonPackageSpec"]["args"])


# --- the project file ---

WRONG: list[tuple[Any, str]] = [
    (["regster"], "schedules.nightly.then[0]: 'regster' is not one of its values. Did you mean 'register'?"),
    (["register", "promote"], "schedules.nightly.then[1]: promote cannot follow register"),
    (["promote", "promote"], "schedules.nightly.then[1]: promote cannot follow promote"),
    ([{}], "schedules.nightly.then[0]: a step is `promote` or `register`"),
    ([{"promote": {}, "register": {}}], "schedules.nightly.then[0]: a step is `promote` or `register`"),
    ([{"promote": {"epoch": 3}}], "schedules.nightly.then[0].promote.epoch: there is no key 'epoch' here"),
    ([{"promote": {"epochs": 0}}], "schedules.nightly.then[0].promote.epochs: 0 is below 1"),
    ([{"promote": {"name": "cpu"}}], "there is a job or sweep 'cpu' already"),
    ([{"register": {"min_gain": -1}}], "schedules.nightly.then[0].register.min_gain: -1 is below 0"),
    ([{"register": {"alias": "No"}}], "'No' is not an alias"),
    ([{"register": {"labels": {"vertexrig_chain": "x"}}}], "are the trigger's own"),
    ("promote", "schedules.nightly.then: 'promote' is text; a list belongs here"),
]


@pytest.mark.parametrize(("steps", "said"), WRONG, ids=range(len(WRONG)))
def test_wrong_steps_are_refused_with_their_line(tmp_path: Path, steps: Any, said: str) -> None:
    """The file, the line, the key, and what belongs there."""
    data = copy.deepcopy(DATA)
    data["schedules"]["nightly"]["then"] = steps
    with pytest.raises(ConfigError) as refused:
        clouds.loaded(tmp_path, data)
    assert said in str(refused.value) and refused.value.line


def test_steps_need_a_sweep_and_the_name_tick_is_taken(tmp_path: Path) -> None:
    """`promote` after a job is refused, and so is a schedule with steps that has the tick's name."""
    data = copy.deepcopy(DATA)
    data["schedules"]["nightly"] |= {"run": "cpu"}
    with pytest.raises(ConfigError, match="promote takes the best trial of a sweep"):
        clouds.loaded(tmp_path, data)
    data["schedules"] = {"tick": DATA["schedules"]["nightly"]}
    with pytest.raises(ConfigError, match="'tick' is the name of the tick"):
        clouds.loaded(tmp_path, data)
