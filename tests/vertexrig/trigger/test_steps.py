"""What follows a run: `then` of a schedule, step by step, and every way a run with steps ends."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localvertex import server
from tests.support import clouds
from tests.support.permissions import unknown, used
from tests.support.trigger_place import DATA, Place, then
from vertexrig.cloud.models import ModelsClient
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.runs.policy import PATIENCE_S, Hold, Holds
from vertexrig.runs.store import OPEN
from vertexrig.spec.labels import CLAIM_LABEL
from vertexrig.spec.states import FAILED
from vertexrig.trigger import deploy


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_night_from_the_sweep_to_the_version(place: Place) -> None:
    """The sweep's end starts one full job with the best trial's parameters, its end adds one version with its labels and
    aliases, and the next night's equal model is compared and left out: a proper end.
    """
    sweep = place.begin()
    assert place.tick()["state"] == "waiting"
    place.sweep_ends(sweep, 0.7, None, 0.8)
    row = place.tick()
    assert (row["state"], row["step"]) == ("started", "promote"), row
    job = place.vertex.jobs[row["job"]].data
    args = job["jobSpec"]["workerPoolSpecs"][0]["pythonPackageSpec"]["args"]
    assert sorted(args) == ["--epochs=30", "--learning_rate=0.30000000000000004"]
    chain = place.vertex.jobs[sweep].data["labels"][CLAIM_LABEL]
    labels = {
        "promoted_from": "sweep",
        "trial": "3",
        "vertexrig_step_of": chain,
        "team": "vision",
        "vertexrig_run": "sweep-best",
    }
    assert labels.items() <= job["labels"].items() and job["labels"][CLAIM_LABEL] != chain
    assert place.tick()["text"] == "sweep-best has not ended" and len(place.vertex.jobs) == 2
    place.trained(row["job"], 0.9)
    row = place.tick()
    assert (row["state"], row["outcome"], row["step"]) == ("ended", "registered", "register")
    (version,) = place.versions()
    assert version["versionAliases"] == ["champion", "default"] and version["displayName"] == "sweep"
    assert {"team": "vision", "stage": "try", "vertexrig_step_of": chain, "metric_value": "0_9"}.items() <= version[
        "labels"
    ].items()
    assert row["model"] == f"{version['name']}@1" and not place.open
    (end,) = [row["end"] for row in place.ended]
    assert list(end["jobs"]) == ["sweep", "sweep-best"]
    entry = next(one for one in place.logs if one.get("outcome"))
    assert entry["severity"] == "INFO" and "there is no such model yet" in entry["message"]
    assert place.post({}, "/tick").body == {"runs": []} and len(place.vertex.jobs) == 2

    place.clock.at += 86_400
    sweep = place.begin()
    place.sweep_ends(sweep, 0.8)
    place.trained(place.tick()["job"], 0.905)
    row = place.tick()
    assert row["outcome"] == "not-better" and "better by 0.005; at least 0.01 is asked for" in row["text"], row
    assert len(place.versions()) == 1 and place.logs[-2]["severity"] == "INFO"


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
    assert (row["outcome"], row["text"]) == ("done", "full has succeeded")


Happens = Callable[[Place, str], Any]
STEPS = DATA["schedules"]["nightly"]["then"]
ANOTHER = {"displayName": "sweep", "versionDescription": "loss 0.5, from x 1"}
FULL = {"topology": "gpu", "set": {"accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 3}}
CLOSED = then(*STEPS, allow_args={"epochs": {"max": 2}})
CLOSED["schedules"]["nightly"]["args"] = {}


def loaded(data: Any) -> Happens:
    """The file is another one when the sweep has ended."""
    return lambda place, sweep: (place.load(data), place.sweep_ends(sweep, 0.8))


def promoted(
    happens: Happens = lambda *_: None, accuracy: float | None = 0.9, saved: str = "saved_model.pb"
) -> Happens:
    """The promoted job has trained a model, and then this happens."""

    def goes_on(place: Place, sweep: str) -> None:
        place.sweep_ends(sweep, 0.8)
        job = place.tick()["job"]
        place.trained(job, accuracy, saved)
        happens(place, job)

    return goes_on


def registry(**changed: Any) -> Happens:
    return promoted(lambda place, _: [setattr(place.models, name, value) for name, value in changed.items()])


# what becomes of the night -> what happens, how the run ends, at which step, and what the reason says
ENDS: dict[str, tuple[Happens, str, str, str]] = {
    "the sweep is cancelled": (lambda place, sweep: place.ends(sweep, "JOB_STATE_CANCELLED"), "failed", "run", "sweep ended CANCELLED"),
    "the sweep fails": (
        lambda place, sweep: place.ends(sweep, FAILED, error={"message": "too many trials failed\nmore"}),
        "failed", "run", "sweep ended FAILED: too many trials failed",
    ),
    "the sweep is deleted": (lambda place, sweep: place.vertex.jobs.pop(sweep), "failed", "run", "is gone"),
    "all trials infeasible": (
        lambda place, sweep: place.sweep_ends(sweep, None, None), "impossible", "promote", "of 2 trials none counts (2 infeasible)",
    ),
    "no trials": (lambda place, sweep: place.ends(sweep), "impossible", "promote", "has no trials yet"),
    "the promoted job fails": (
        promoted(lambda place, job: place.ends(job, FAILED, error={"message": "out of memory"})),
        "failed", "promote", "sweep-best ended FAILED: out of memory",
    ),
    "no model": (promoted(accuracy=None, saved=""), "impossible", "register", "nothing is in gs://my-bucket/runs/sweep-best/"),
    "no SavedModel": (promoted(saved="other.h5"), "impossible", "register", "no saved_model.pb is in"),
    "no summary": (promoted(accuracy=None), "impossible", "register", "summary.json of sweep-best has no accuracy"),
    "two models of the name": (
        promoted(lambda place, _: [place.models.begin_upload(ANOTHER, "", name) for name in ("one", "two")]),
        "impossible", "register", "2 models are called 'sweep'",
    ),
    "a version of another metric": (
        promoted(lambda place, _: place.models.begin_upload(ANOTHER, "", "one")), "not-better", "register", "its metric is loss",
    ),
    "the registry refuses the model": (
        registry(uploading=RestError("Vertex AI: the artifact is not there", status=400)), "refused", "register", "artifact",
    ),
    "the upload fails": (
        registry(operation=lambda name: {"name": name, "done": True, "error": {"message": "no such image"}}),
        "refused", "register", "no such image",
    ),
    "other steps": (loaded(then("register")), "changed", "run", "are others than when the run began"),
    "no schedule": (loaded({**DATA, "schedules": {}}), "changed", "run", "are others than when the run began"),
    "values not open any more": (loaded(CLOSED), "changed", "run", "above 2"),
    "a promoted job that is wrong": (loaded(then({"promote": FULL}, "register")), "impossible", "promote", "sweep-best would fail"),
    "a promoted job that does not fit": (
        loaded(then({"promote": {"topology": "gpu"}}, "register")),
        "impossible", "promote", "jobs.sweep-best: topology gpu needs accelerator_type",
    ),
    "a promoted job over the budget of a run": (
        loaded(then({"promote": {"machine_type": "n1-highmem-96"}}, "register", budget={"usd_per_run": 1})),
        "over-budget", "promote", "more than $1.00 per run",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ENDS)
def test_every_end_of_a_run_with_steps(place: Place, what: str) -> None:
    """The reason is recorded and logged, and nothing more is made."""
    happens, outcome, step, reason = ENDS[what]
    happens(place, place.begin())
    row = place.tick()
    assert (row["state"], row["outcome"], row["step"]) == ("ended", outcome, step), row
    assert reason in row["text"] and not place.open
    (end,) = [one["end"] for one in place.ended]
    assert (end["outcome"], end["step"], end["reason"]) == (outcome, step, row["text"])
    entry = next(one for one in place.logs if one.get("outcome"))
    assert entry["severity"] == ("INFO" if outcome == "not-better" else "ERROR") and reason in entry["message"]
    assert not [one for one in place.versions() if "(run " in one["versionDescription"] and outcome != "refused"]


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
    free, and after three days it is given up.
    """
    budget = {"live jobs": {"live_jobs": 0}, "a day's budget": {"usd_per_day": 0.01}}.get(what)
    sweep = place.begin()
    place.sweep_ends(sweep, 0.8)
    if what in ("a role is missing", "the registry conflicts"):
        place.trained(place.tick()["job"])
        status = 403 if what == "a role is missing" else 409
        place.models.refusal = RestError(
            "Vertex AI: Permission 'aiplatform.models.list' denied; conflict", status=status
        )
    elif what == "no package":
        pointer = place.storage.objects.pop("vertexrig/vertexrig/packages/trainer.task-tf-2.17.json")
    else:
        place.load(then(*STEPS, budget=budget))
    made = len(place.vertex.jobs)
    for _ in range(3):
        row = place.tick()
        entry = place.logs[-2]
        assert row["state"] == "waiting" and entry["severity"] == "WARNING" and why in entry["message"], (row, entry)
        assert (why in row["text"]) is (
            place.models.refusal is None
        )  # a service's words about the trigger stay in the log
    assert place.open and place.versions() == [] and len(place.vertex.jobs) == made
    kept = copy.deepcopy((place.storage.objects, place.storage.own, place.clock.at))
    place.clock.at += PATIENCE_S
    row = place.tick()
    (end,) = [one["end"] for one in place.ended]
    assert row["outcome"] == end["outcome"] == "given-up" and "after 3 days" in end["reason"] and why in end["reason"]

    objects, own, place.clock.at = kept
    place.storage.objects.clear()
    place.storage.objects |= objects
    place.storage.own.clear()
    place.storage.own |= own
    place.models.refusal = None
    if what == "no package":
        place.storage.objects["vertexrig/vertexrig/packages/trainer.task-tf-2.17.json"] = pointer
    place.load(DATA)
    row = place.tick()
    assert row["state"] == ("ended" if made == 2 else "started"), row


def test_a_refused_run_is_closed_and_may_be_asked_for_again(place: Place) -> None:
    """A request that is answered with an error leaves no run that a tick starts; the same request later has its steps."""
    create = place.vertex.create
    body = {"run": "sweep", "args": {"epochs": 3}, "then": "nightly", "request_id": "one"}
    for status in (429, 403):
        place.vertex.create = lambda *_, status=status: (_ for _ in ()).throw(RestError("denied", status=status))  # type: ignore[method-assign]
        assert place.post(body).status >= 400 and not place.open
    place.vertex.create = create  # type: ignore[method-assign]
    assert place.post({}, "/tick").body["runs"] == [] and not place.vertex.jobs
    sweep = place.begin(request_id="one")
    place.sweep_ends(sweep, 0.8)
    assert place.tick()["state"] == "started"


def test_a_job_that_succeeded_while_on_hold_trains_no_more(place: Place) -> None:
    """A run whose job has succeeded waits for the end of the hold, and is not told as training."""
    name = place.begin()
    Holds(place.store).put("nightly", Hold("2027-01-01T00:00:00Z", "a freeze"))
    place.sweep_ends(name, 0.5, 0.9)
    place.vertex.jobs[name].data["startTime"] = "2026-11-21T12:00:00Z"
    assert place.tick()["state"] == "waiting"


def test_an_odd_object_and_an_error_of_ours_hold_up_no_other_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that is not a run is named, an unexpected error is logged, and every other run is moved."""
    first = place.begin(request_id="first")
    second = place.begin(request_id="second")
    bad = [b"{}", b"[]", b"\xff", json.dumps({"id": "../x", "steps": []}).encode()]
    for number, content in enumerate(bad):
        place.store.write(f"{OPEN}odd-{number}.json", content)
    get = place.vertex.get

    def failing(name: str) -> RemoteJob | None:
        if name == first:
            raise ZeroDivisionError
        return get(name)

    monkeypatch.setattr(place.vertex, "get", failing)
    place.clock.at += 600
    rows = place.post({}, "/tick").body["runs"]
    assert sorted(row["state"] for row in rows) == ["unknown", "waiting"]
    assert next(row for row in rows if row["state"] == "waiting")["job"] == second
    assert sum(entry.get("error") == "ZeroDivisionError" for entry in place.logs) == 1
    assert sum("is not a run that vertexrig" in str(entry.get("message")) for entry in place.logs) == 4


def test_every_permission_of_the_registry_is_used(place: Place, here: server.RunningServer) -> None:
    """Two nights on the local Vertex's own registry: each permission that a schedule with `register` needs is proved by a call, each
    call has one, and a second version of the first night, as a frozen tick may add it, is deleted in the next.
    """
    calls = place.uses_registry_of(clouds.vertex(here))
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
    assert {row["versionId"]: sorted(row.get("versionAliases", ())) for row in kept.versions(name)} == {
        "1": [],
        "3": ["champion", "default"],
    }
    assert used(deploy.MODEL_CALLS, calls) == set(deploy.MODEL_CALLS) and not unknown(deploy.MODEL_CALLS, calls)


def test_a_dry_run_opens_no_run(place: Place) -> None:
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
