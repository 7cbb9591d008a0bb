"""Deliveries: one log entry and one object each, their ends, and the history that is made of them."""

from __future__ import annotations

import base64
import copy
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support import clouds
from tests.support.trigger_place import Place
from tests.vertexrig.trigger.test_trigger import make, post
from vertexrig import times
from vertexrig.catalog import load
from vertexrig.cloud.rest import Rest
from vertexrig.cloud.storage import Storage
from vertexrig.runs.deliveries import Delivery, NotStartedError
from vertexrig.runs.engine import closed
from vertexrig.runs.run import Run
from vertexrig.runs.store import RunStore
from vertexrig.submit.submission import Submitter
from vertexrig.trigger.app import Call
from vertexrig.trigger.history import Deliveries

FIRED = {
    "x_cloudscheduler_jobname": "projects/p/locations/r/jobs/vertexrig-nightly",
    "x_cloudscheduler_scheduletime": "2026-11-01T03:00:00Z",
}


@pytest.fixture
def here() -> clouds.MemoryCloud:
    return clouds.MemoryCloud()


def since(hours: float = 1.0) -> Any:
    return times.now() - timedelta(hours=hours)


def test_one_entry_and_one_object_say_everything(here: clouds.MemoryCloud, tmp_path: Path) -> None:
    """A delivery that made a job, one that joined it and one that was refused each leave one log entry and one object, which agree."""
    logs: list[dict[str, Any]] = []
    trigger = make(here, tmp_path, log=lambda row: logs.append(dict(row)))
    for body in ({"run": "cpu"}, {"run": "cpu"}, {"run": "cpu", "args": {"epochs": 0}}):
        post(trigger, body, **FIRED)
    assert [row["decision"] for row in logs] == ["created", "joined", "refused"]
    assert [row["severity"] for row in logs] == ["INFO", "INFO", "ERROR"]
    made, _, refused = logs[:3]
    assert made["schedule"] == "nightly" and made["schedule_time"] == "2026-11-01T03:00:00Z" and made["run"] == "cpu"
    assert made["digest"] == trigger.loaded.digest == trigger.handle(Call("GET", "/")).body["digest"]
    assert made["estimate"]["usd_at_most"] > 0 and made["job"].startswith("projects/") and made["request"]
    assert refused["reason"] == "value" and refused["findings"][0]["path"] == "args.epochs"
    rows = Deliveries(trigger.storage).rows(since())
    assert [row["decision"] for row in rows] == ["refused", "joined", "created"]
    assert {row["id"] for row in rows} == {row["id"] for row in logs[:3]}
    assert rows[0]["detail"]["findings"] == [dict(one) for one in refused["findings"]]
    post(trigger, {"run": "cpu", "dry_run": True})
    assert len(Deliveries(trigger.storage).rows(since())) == 3 and "decision" not in logs[-1]


def test_a_budget_leaves_its_sum(here: clouds.MemoryCloud, tmp_path: Path) -> None:
    """A run over budget leaves the limit, the sum and the estimate in the history."""
    data = copy.deepcopy(clouds.PROJECT)
    data["trigger"]["budget"] = {"usd_per_run": 1.0}
    trigger = make(here, tmp_path, data)
    assert post(trigger, {"run": "sweep"}, **FIRED).status == 422
    (row,) = Deliveries(trigger.storage).rows(since())
    assert row["reason"] == "over-budget" and row["detail"]["limit"] == "usd_per_run" and "$2.45" in row["text"]
    assert row["estimate"]["usd_at_most"] == 2.45


def test_a_run_that_is_not_started(here: clouds.MemoryCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code deep in the trigger ends a delivery as skipped: an answer that is not delivered again, and its reason is kept."""
    trigger = make(here, tmp_path)

    def ends(*_: Any, **__: Any) -> None:
        raise NotStartedError("skipped", "overlap", "the last run still runs", {"other": "123"})

    monkeypatch.setattr(Submitter, "submit", ends)
    reply = post(trigger, {"run": "cpu"}, **FIRED)
    assert reply.status == 200 and reply.body["decision"] == "skipped" and reply.body["reason"] == "overlap"
    (row,) = Deliveries(trigger.storage).rows(since())
    assert row["decision"] == "skipped" and row["detail"] == {"other": "123"}


def token(claims: Any, signature: str) -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims))
    return f"Bearer {'.'.join(parts)}.{signature}"


def test_the_caller(here: clouds.MemoryCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The e-mail of a token whose signature Cloud Run has taken off is logged and labels the job; any other token says nothing."""
    logs: list[dict[str, Any]] = []
    trigger = make(here, tmp_path, log=lambda row: logs.append(dict(row)))
    checked = token({"email": "Ann.B@example.com", "email_verified": True}, "SIGNATURE_REMOVED_BY_GOOGLE")
    post(trigger, {"run": "cpu", "request_id": "1"}, authorization=checked)
    assert "caller" not in logs[-1]  # not on Cloud Run
    monkeypatch.setenv("K_SERVICE", "vertexrig")
    for number, text in enumerate(
        ("Bearer x", token({"email": "e@x.y"}, "c2ln"), token([], "SIGNATURE_REMOVED_BY_GOOGLE"))
    ):
        post(trigger, {"run": "cpu", "request_id": f"a{number}"}, authorization=text)
        assert "caller" not in logs[-1]
    reply = post(trigger, {"run": "cpu", "request_id": "2"}, authorization=checked)
    assert logs[-1]["caller"] == "Ann.B@example.com"
    assert reply.body["labels"]["vertexrig_caller"] == "ann_b_example_com"


def test_a_history_that_cannot_be_written_changes_no_answer(here: clouds.MemoryCloud, tmp_path: Path) -> None:
    """With Cloud Storage down a delivery is answered as before, its log entry says that the history has no object, and it gets one with the
    next request after that.
    """
    logs: list[dict[str, Any]] = []
    storage = Storage("gs://my-bucket", url="http://127.0.0.1:9")
    storage.rest = Rest("http://127.0.0.1:9", "Cloud Storage", attempts=1)
    trigger = make(here, tmp_path, storage=storage, log=lambda row: logs.append(dict(row)))
    reply = post(trigger, {"run": "cpu"}, **FIRED)
    assert reply.status == 503 and logs[-1]["reason"] == "unavailable" and "not written" in logs[-1]["history"]
    trigger.handle(Call("GET", "/"))  # still down
    trigger.storage = clouds.storage(here).below(trigger.loaded.project.trigger.prefix)
    trigger.handle(Call("GET", "/"))
    (row,) = Deliveries(trigger.storage).rows(since())
    assert row["id"] == logs[0]["id"] and row["reason"] == "unavailable"


def test_an_unforeseen_error_has_error_reportings_fields(here: clouds.MemoryCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    """A fault of ours is an ERROR that Error Reporting groups by place."""
    logs: list[dict[str, Any]] = []
    trigger = make(here, tmp_path, log=lambda row: logs.append(dict(row)))
    monkeypatch.setattr(trigger.submitter, "prepare_candidates", lambda _: 1 // 0)
    assert post(trigger, {"run": "cpu"}).status == 500
    assert logs[-1]["severity"] == "ERROR" and logs[-1]["@type"].endswith("ReportedErrorEvent")
    assert logs[-1]["context"]["reportLocation"]["filePath"] == "test_deliveries.py"


def test_ends(tmp_path: Path) -> None:
    """An end has outcome, metric, cost and length, is written once, and is in the history from then on."""
    place = Place(tmp_path)
    name = str(place.post({"run": "sweep", "args": {"epochs": 3}}).body["name"])
    kept, catalog = Deliveries(place.store), load()
    loaded = place.trigger.loaded
    (row,) = rows = kept.rows(since())
    assert kept.settle(rows, loaded, place.vertex, catalog) == [] and "end" not in row
    place.sweep_ends(name, 0.7, 0.9)
    data = place.vertex.jobs[name].data
    start = times.parse(data["endTime"]) - timedelta(minutes=30)
    data["startTime"] = times.rfc3339(start)
    for trial in data["trials"]:
        trial.update(startTime=times.rfc3339(start), endTime=data["endTime"])
    (ended,) = kept.settle(rows, loaded, place.vertex, catalog)
    assert ended["end"]["outcome"] == "SUCCEEDED" and ended["end"]["metric"] == "accuracy"
    assert ended["end"]["value"] == 0.9 and ended["end"]["seconds"] == 1800 and ended["end"]["usd"] > 0
    (again,) = kept.rows(since())
    assert again["end"] == ended["end"] and kept.settle([again], loaded, place.vertex, catalog) == []


def test_a_tick_writes_ends_and_logs_them(tmp_path: Path) -> None:
    """A tick logs the end of each run once: a failed one as an error."""
    place = Place(tmp_path)
    name = str(place.post({"run": "cpu"}).body["name"])
    place.ends(name, "JOB_STATE_FAILED", error={"message": "the image is not there"})
    place.logs.clear()
    for _ in range(2):
        place.post({}, "/tick")
    (entry,) = [row for row in place.logs if row.get("outcome")]
    assert entry["severity"] == "ERROR" and entry["outcome"] == "FAILED" and entry["reason"] == "the image is not there"


def test_a_failed_run_with_steps_shows_before_a_tick(tmp_path: Path) -> None:
    """A reader sees the end that the next tick writes, and the tick writes it."""
    place = Place(tmp_path)
    name = place.begin()
    place.ends(name, "JOB_STATE_FAILED")
    kept = Deliveries(place.store)
    (row,) = kept.settle(kept.rows(since()), place.trigger.loaded, place.vertex, load())
    assert row["end"]["outcome"] == "failed" and place.open
    place.post({}, "/tick")
    (row,) = kept.rows(since())
    assert row["end"]["outcome"] == "failed"


def test_a_run_that_ends_meanwhile_shows_its_end(tmp_path: Path) -> None:
    """Whatever a tick writes between the reads of a reader, the run is in the list once, with its end."""
    place = Place(tmp_path)
    name = place.begin()
    place.ends(name, "JOB_STATE_FAILED")
    kept = Deliveries(place.store)

    def settled(rows: list[dict[str, Any]]) -> list[str]:
        kept.settle(rows, place.trigger.loaded, place.vertex, load())
        return [row["end"]["outcome"] for row in rows]

    before = kept.rows(since())
    store = RunStore(place.store)
    (run,) = (one for one in store.open() if isinstance(one, Run))
    store.save(closed(run, "failed", "the image is not there"))
    assert settled(kept.rows(since())) == ["failed"], "the end is decided, and not written yet"
    listed = kept.storage.list

    def list_then_tick(*words: Any, **options: Any) -> list[Any]:
        found = list(listed(*words, **options))
        kept.storage.list = listed  # type: ignore[method-assign]
        place.post({}, "/tick")
        return found

    kept.storage.list = list_then_tick  # type: ignore[method-assign]
    assert settled(kept.rows(since())) == ["failed"] and not place.open, "it is written after the first read"
    assert settled(before) == ["failed"], "it is written after the last read"


def test_a_list_reads_only_long_rows(here: clouds.MemoryCloud) -> None:
    """Deliveries are listed without a read of each; a row too long for metadata is read from its object."""
    storage, reads = clouds.storage(here), list[str]()
    for number in range(9):
        Delivery(decision="created", run="cpu", schedule=f"s{number % 3}").write(storage)
    Delivery(decision="refused", detail={"findings": ["x" * 9000]}).write(storage)
    read = storage.read
    storage.read = lambda name, **options: (reads.append(name), read(name, **options))[1]  # type: ignore[method-assign, func-returns-value, misc]
    rows = Deliveries(storage).rows(since())
    assert len(reads) == 1 and len(rows) == 10 and len(Deliveries(storage).rows(since(), "s1")) == 3
    assert any("detail" in row and len(row["detail"]["findings"][0]) == 9000 for row in rows)
