"""The step `evaluate` of a chain: both models are measured on today's data before one is registered."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import clouds
from tests.support.memory_models import MemoryFolder
from tests.support.tools import REPOSITORY
from tests.support.trigger_place import Place, nightly, then
from vertexrig.cloud.rest import RestError
from vertexrig.errors import ConfigError
from vertexrig.project import config
from vertexrig.project.triggered import ORDER, name_of
from vertexrig.runs import policy, promotion
from vertexrig.runs.store import RunStore
from vertexrig.spec.states import FAILED
from vertexrig.workspace import Workspace

STEPS: tuple[Any, ...] = (
    {"promote": {"epochs": 30}},
    {"evaluate": {"job": "measure", "args": {"data": "today"}}},
    {"register": {"min_gain": 0.01}},
)


def evaluated(*steps: Any) -> dict[str, Any]:
    data = then(*(steps or STEPS))
    data["jobs"]["measure"] = {"machine_type": "n1-standard-4", "timeout": "600s", "args": {"evaluate": True}}
    return data


def measured(place: Place, name: str, **metrics: Any) -> None:
    """Let a measurement succeed that wrote this summary."""
    output = place.vertex.jobs[name].data["jobSpec"]["baseOutputDirectory"]["outputUriPrefix"]
    folder = output.removeprefix("gs://my-bucket/").rstrip("/")
    place.storage.write(f"{folder}/model/summary.json", json.dumps(metrics).encode())
    place.ends(name)


def args(place: Place, name: str) -> list[str]:
    return list(place.vertex.jobs[name].data["jobSpec"]["workerPoolSpecs"][0]["pythonPackageSpec"]["args"])


def night(place: Place) -> str:
    """The measurement of a run whose promoted job has ended."""
    name = place.begin()
    place.sweep_ends(name, 0.5, 0.9)
    promoted = place.tick()["job"]
    place.trained(promoted)
    row = place.tick()
    assert (row["state"], row["step"]) == ("started", "evaluate"), row
    return str(row["job"])


def test_today_s_data_decides(tmp_path: Path) -> None:
    """The first model is measured alone; the next one beside it, and what the version says of itself, 0.9 of long ago, does not count."""
    place = Place(tmp_path, evaluated())
    measure = night(place)
    flags = args(place, measure)
    assert {"--evaluate=true", "--data=today"} <= set(flags) and not [one for one in flags if "champion" in one]
    measured(place, measure, challenger={"accuracy": 0.8})
    row = place.tick()
    assert (row["outcome"], place.versions()[0]["versionDescription"].partition(",")[0]) == (
        "registered",
        "accuracy 0.8",
    )
    place.clock.at += 86_400
    measure = night(place)
    first = place.versions()[0]["artifactUri"]
    assert f"--champion={first}" in args(place, measure)
    measured(place, measure, champion={"accuracy": 0.6}, challenger={"accuracy": 0.7})
    row = place.tick()
    assert row["outcome"] == "registered" and "0.7 against 0.6 of version 1" in row["text"], row


def test_a_measurement_may_be_the_last_step(tmp_path: Path) -> None:
    """A run whose last step is `evaluate` ends once the measurement has succeeded."""
    place = Place(tmp_path, evaluated(*STEPS[:2]))
    measured(place, night(place), challenger={"accuracy": 0.8})
    row = place.tick()
    assert (row["state"], row["outcome"]) == ("ended", "done") and not place.runs and len(place.ended) == 1


def test_failures_of_one_step_do_not_count_in_the_next_one(tmp_path: Path) -> None:
    """`evaluate` fails, and passes four days later; `register` then fails for the first time, and the run is not given up."""
    place, down = Place(tmp_path, evaluated()), RestError("the registry is down", status=503)
    measured(place, night(place), challenger={"accuracy": 0.8})
    place.models.refusal = down
    assert place.tick()["state"] == "waiting"
    place.clock.at += 4 * 86_400
    place.models.refusal, place.models.uploading = None, down
    row = place.tick()
    assert (row["state"], row["step"]) == ("waiting", "register"), row
    place.models.uploading = None
    assert place.tick()["outcome"] == "registered"


def test_a_run_that_was_cancelled_beside_its_measurement_ends(tmp_path: Path) -> None:
    """A caller cancelled the run while a tick made its measurement, so that the run does not name that job: ticks find it, and then end the run."""
    place = Place(tmp_path, evaluated())
    place.sweep_ends(place.begin(), 0.5, 0.9)
    place.trained(place.tick()["job"])
    (before,) = place.runs
    measure = str(place.tick()["job"])
    store = RunStore(place.store)
    (after,) = place.runs
    assert store.save(replace(before, generation=after.generation, stopped=before.written))
    measured(place, measure, challenger={"accuracy": 0.8})
    rows = [place.tick() for _ in range(2) if place.runs]
    assert rows[-1]["outcome"] == "failed" and "cancelled" in rows[-1]["text"] and not place.runs, rows


def test_a_worse_model_is_not_registered(tmp_path: Path) -> None:
    """A model that is worse on today's data is not registered, whatever it reached when it was trained."""
    place = Place(tmp_path, evaluated())
    place.models.crown("gs://my-bucket/theirs")
    place.models.models[next(iter(place.models.models))][0]["displayName"] = "sweep"
    measure = night(place)
    measured(place, measure, champion={"accuracy": 0.8}, challenger={"accuracy": 0.7})
    row = place.tick()
    assert row["outcome"] == "not-better" and "worse by 0.1" in row["text"], row


def test_another_champion_is_measured_next(tmp_path: Path) -> None:
    """A version that somebody registers while a job measures is measured by one more job, before anything is compared."""
    place = Place(tmp_path, evaluated())
    measure = night(place)
    place.models.crown("gs://my-bucket/theirs")
    place.models.models[next(iter(place.models.models))][0]["displayName"] = "sweep"
    measured(place, measure, challenger={"accuracy": 0.8})
    row = place.tick()
    assert (row["state"], row["step"]) == ("started", "evaluate") and row["job"] != measure
    assert "--champion=gs://my-bucket/theirs" in args(place, row["job"])
    measured(place, row["job"], champion={"accuracy": 0.5}, challenger={"accuracy": 0.8})
    assert place.tick()["outcome"] == "registered"


@pytest.mark.parametrize(
    ("summary", "said"),
    [({}, "no accuracy under challenger"), ({"challenger": {"loss": 1.0}}, "no accuracy under challenger"),
     ({"challenger": "0.8"}, "no accuracy under challenger")],
)  # fmt: skip
def test_a_measurement_without_the_metric(tmp_path: Path, summary: dict[str, Any], said: str) -> None:
    """A measurement that does not say what the models are compared by ends the chain, and says what is missing."""
    place = Place(tmp_path, evaluated())
    measure = night(place)
    measured(place, measure, **summary)
    row = place.tick()
    assert row["outcome"] == "impossible" and said in row["text"]


def test_a_failed_measurement(tmp_path: Path) -> None:
    """A measurement that fails ends the chain; nothing is registered."""
    place = Place(tmp_path, evaluated())
    measure = night(place)
    place.ends(measure, FAILED, error={"code": 3, "message": "no data today"})
    row = place.tick()
    assert row["outcome"] == "failed" and "no data today" in row["text"] and not place.versions()


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (["evaluate"], "`evaluate: {job: NAME}`"),
        ([{"evaluate": {"job": "measured"}}], "Did you mean 'measure'"),
        ([{"register": {}}, {"evaluate": {"job": "measure"}}], "the order is promote, evaluate, register"),
    ],
)
def test_a_wrong_step(tmp_path: Path, steps: list[Any], said: str) -> None:
    """A step without its job, with one that is not there, or out of order is refused with its line."""
    with pytest.raises(ConfigError, match=said):
        clouds.loaded(tmp_path, evaluated(*steps))


def test_a_measurement_that_would_fail_is_found_before_apply(tmp_path: Path) -> None:
    """`schedule plan` checks the job of the step before anything runs."""
    data = evaluated()
    data["jobs"]["measure"]["machine_type"] = "n1-standard-5"
    place = Place(tmp_path, data)
    with pytest.raises(ConfigError, match=r"evaluate makes would fail.*n1-standard-5"):
        promotion.check(place.trigger.submitter.workspace, "nightly")


def test_the_repository_s_own_night() -> None:
    """The repository's schedule has all three steps, its trainer is asked to score, and no job of theirs would fail."""
    workspace = Workspace(config.load(REPOSITORY / "vertexrig.yaml", environ={}))
    assert [name_of(step) for step in workspace.loaded.project.schedules["nightly"].steps] == list(ORDER)
    assert workspace.loaded.project.jobs["measure"].args == {"evaluate": True}
    promotion.check(workspace, "nightly")


DATA_URI = "gs://my-bucket/data/**/*.csv"


def fire(place: Place, day: int) -> dict[str, Any]:
    """What the trigger answers when the schedule fires on a day."""
    place.clock.at = day * 86_400.0
    reply = place.fire(f"2026-11-{day:02d}T03:00:00Z")
    return dict(reply.body) | {"status": reply.status}


def test_a_night_whose_steps_failed_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the steps of a run are open the same data is left out; where they were given up the next night runs again."""
    place = Place(tmp_path, nightly(then=["register"], only_if_changed=DATA_URI))
    monkeypatch.setattr(policy.Due, "folder", lambda self, uri: MemoryFolder(place.storage, uri))
    place.storage.write("data/2026/a.csv", b"1")
    first = fire(place, 1)
    place.sweep_ends(first["name"], 0.9)
    assert fire(place, 2)["reason"] == "unchanged"
    assert place.tick()["outcome"] == "impossible"  # there is no model
    assert fire(place, 3)["status"] == 201


def test_unchanged_data_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose data is that of the schedule's last success is left out, and says since when; what failed, other data, another
    generation and one object less start it; a repeat of a delivery is answered the same.
    """
    place = Place(tmp_path, nightly(only_if_changed=DATA_URI))
    monkeypatch.setattr(policy.Due, "folder", lambda self, uri: MemoryFolder(place.storage, uri))
    place.storage.write("data/2026/a.csv", b"1")
    first = fire(place, 1)
    assert first["status"] == 201
    place.ends(first["name"], FAILED)
    second = fire(place, 2)
    assert second["status"] == 201  # the first one did not succeed
    place.sweep_ends(second["name"], 0.9)
    for _ in range(2):
        third = fire(place, 3)
        assert (third["status"], third["decision"], third["reason"]) == (200, "skipped", "unchanged"), third
        assert "unchanged since 2026-11-" in third["detail"] and DATA_URI in third["detail"]
    place.storage.write("data/2026/notes.txt", b"")
    assert fire(place, 4)["reason"] == "unchanged"  # none of those that count
    assert fire(place, 2)["name"] == second["name"]  # a repeat of what was started
    for day, change in ((5, lambda: place.storage.write("data/2026/a.csv", b"2")),
                        (6, lambda: place.storage.write("data/b.csv", b"")),
                        (7, lambda: place.storage.delete("data/2026/a.csv"))):  # fmt: skip
        change()
        found = fire(place, day)
        assert found["status"] == 201, found
        place.sweep_ends(found["name"], 0.9)
        assert fire(place, day + 10)["reason"] == "unchanged"
