"""Stored objects of other versions: an older one is read, and what a newer one wrote is read or left as it is (docs/stability.md)."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.support.trigger_place import Place
from vertexrig import __version__
from vertexrig.cloud.rest import RestError
from vertexrig.runs.deliveries import ROW
from vertexrig.runs.store import OPEN, OWNER, RunStore, adopt
from vertexrig.trigger import doctor, schedule_status

NEWER: dict[str, Callable[[dict[str, Any]], Any]] = {
    "field": lambda run: run.update(quorum={"needed": 2}),
    "phase": lambda run: run.update(phase="paused"),
    "attempt": lambda run: run["attempts"][0].update(zone="a"),
    "key": lambda run: run["key"].update(tenant="b"),
}
"""What a newer version may have written into an open run that this one does not know."""


def stored(place: Place, folder: str = OPEN) -> tuple[str, bytes, int]:
    """Name, content and generation of the one object of a folder."""
    (item,) = place.store.list(folder)
    found = place.store.read(item.name)
    assert found is not None
    return item.name, found.data, found.generation


def write(place: Place, name: str, data: dict[str, Any]) -> None:
    """Write an object over the one that is there, as versions do: runs are also in the metadata."""
    text = json.dumps(data)
    place.store.write(name, text.encode(), metadata={ROW: text})


@pytest.mark.parametrize("change", NEWER)
def test_the_tool_is_rolled_back_with_an_open_run(tmp_path: Path, change: str) -> None:
    """A run that has something unknown is not moved, rewritten or deleted by ticks and repeated deliveries, and each says so; a version
    that knows it goes on with it, to its end, with the same job.
    """
    place = Place(tmp_path)
    sweep = place.begin(request_id="one")
    name, before, _ = stored(place)
    (known,), row = place.runs, json.loads(before)
    NEWER[change](row)
    write(place, name, row)
    _, newer, generation = stored(place)
    place.sweep_ends(sweep, 0.8, 0.9)
    for _ in range(3):
        place.clock.at += 600
        assert place.post({}, "/tick").body["runs"] == []
        assert f"is not a run that vertexrig {__version__} knows" in str([entry.get("message") for entry in place.logs])
        place.post({"run": "sweep", "args": {"epochs": 3}, "then": "nightly", "request_id": "one"})
        assert stored(place) == (name, newer, generation) and len(place.vertex.jobs) == 1
    with pytest.raises(RestError, match="is not a run that vertexrig"):
        RunStore(place.store).add(known, lambda: None)
    assert stored(place) == (name, newer, generation)
    write(place, name, json.loads(before))  # as the newer version reads it
    promoted = str(place.tick()["job"])
    assert promoted != sweep and place.vertex.jobs[promoted].data["jobSpec"]
    place.trained(promoted)
    assert place.tick()["state"] == "ended" and not place.open and len(place.versions()) == 1


def test_the_doctor_names_what_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`vertexrig doctor` names a run that the deployed version does not know."""
    place = Place(tmp_path)
    place.begin()
    name, before, _ = stored(place)
    write(place, name, {**json.loads(before), "quorum": 2})
    monkeypatch.setattr(schedule_status, "of_project", lambda *_: [])
    loaded = place.trigger.loaded
    subject = doctor.Subject(loaded, place.vertex, place.storage, lambda _: None, date(2026, 11, 26))  # type: ignore[arg-type]
    (found,) = [one for one in doctor.check_schedules(subject) if one.name == "unfinished runs"]
    assert found.outcome == "warning" and name in found.message


def test_an_older_version_s_run_is_read(tmp_path: Path) -> None:
    """A run without the fields that came later, such as those for approval, is moved to its end."""
    place = Place(tmp_path)
    sweep = place.begin()
    name, before, _ = stored(place)
    kept = ("id", "key", "body", "delivery", "phase", "attempts", "steps", "step")
    write(place, name, {key: value for key, value in json.loads(before).items() if key in kept})
    place.sweep_ends(sweep, 0.8, 0.9)
    place.trained(str(place.tick()["job"]))
    assert place.tick()["state"] == "ended" and len(place.versions()) == 1


def test_a_newer_claim_is_left_alone(tmp_path: Path) -> None:
    """A request whose claim has something unknown makes no second job, and the claim stays as it is."""
    place = Place(tmp_path)
    place.begin(request_id="one")
    name, before, _ = stored(place, "claims/")
    for change in ({"tenant": "a"}, {"state": "leased"}):
        write(place, name, {**json.loads(before), **change})
        kept = stored(place, "claims/")
        reply = place.post({"run": "sweep", "args": {"epochs": 3}, "then": "nightly", "request_id": "one"})
        assert reply.status >= 500 and stored(place, "claims/") == kept and len(place.vertex.jobs) == 1
        assert f"is not a claim that vertexrig {__version__} knows" in str(place.logs[-1])


def test_the_owner_keeps_what_is_unknown(tmp_path: Path) -> None:
    """A tick and `apply --adopt` write the owner of a prefix, and keep the fields that they do not know."""
    place = Place(tmp_path)
    place.store.write(OWNER, json.dumps({"uri": "", "until": "", "after": "", "shard": 3}).encode())
    place.post({}, "/tick")
    adopt(place.store, "https://new.run.app")
    owner = place.store.read_json(OWNER) or {}
    assert (owner["shard"], owner["uri"], owner["until"]) == (3, "https://new.run.app", "")


def test_a_newer_notice_waits(tmp_path: Path) -> None:
    """A notice of another form is kept for three days, in which a newer version may send it."""
    place = Place(tmp_path)
    place.store.write("notices/x.12345678", b'{"form": 2}')
    place.post({}, "/tick")
    assert [item.name for item in place.store.list("notices/")] == ["notices/x.12345678"]
    place.clock.at += 3 * 86400 + 1
    place.post({}, "/tick")
    assert not list(place.store.list("notices/"))
