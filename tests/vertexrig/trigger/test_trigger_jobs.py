"""The pages of the trigger about jobs: a list with filters and pages, one with its trials, and its cancellation; ETags and Retry-After."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from localvertex import server
from tests.support import clouds
from tests.support.trigger_place import DATA, Place
from tests.vertexrig.trigger.test_candidates_served import Scarce
from vertexrig.spec.states import CANCELLED, CANCELLING, SUCCEEDED
from vertexrig.trigger.answers import Reply
from vertexrig.trigger.app import Call, Trigger


@pytest.fixture(scope="module")
def trigger(here: server.RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Trigger:
    """A trigger that has started five jobs and a sweep on a local Vertex, which also has another job."""
    loaded = clouds.loaded(tmp_path_factory.mktemp("project"))
    made = Trigger(loaded, vertex=clouds.vertex(here), storage=clouds.storage(here), log=lambda _: None)
    for index in range(5):
        assert post(made, run="cpu", request_id=f"n{index}").status == 201
    assert post(made, run="sweep").status == 201
    job = next(job.data for job in clouds.jobs(here) if "jobSpec" in job.data)
    clouds.vertex(here).create("customJobs", {"displayName": "other", "jobSpec": job["jobSpec"]})
    return made


def post(trigger: Trigger, **body: Any) -> Reply:
    return trigger.handle(Call("POST", "/", {}, lambda most: json.dumps(body).encode()))


def get(trigger: Trigger, path: str, **query: str) -> Reply:
    return trigger.handle(Call("GET", path, query=query))


def test_pages_have_every_job_once(here: server.RunningServer, trigger: Trigger) -> None:
    """Pages of any size have each job and sweep that the trigger started once, the newest first, and no other."""
    wanted = {
        job.name for job in clouds.jobs(here) if job.collection != "customJobs" or job.labels["vertexrig_run"] == "cpu"
    }
    for limit in ("1", "2", "4", "100"):
        rows: list[dict[str, Any]] = []
        page = get(trigger, "/jobs", limit=limit).body
        while True:
            assert len(page["jobs"]) <= int(limit)
            rows += page["jobs"]
            if "next" not in page:
                break
            page = get(trigger, "/jobs", limit=limit, page=page["next"]).body
        assert len(rows) == 6 and {row["name"] for row in rows} == wanted
        assert [row["created"] for row in rows] == sorted((row["created"] for row in rows), reverse=True)


def test_filters(trigger: Trigger) -> None:
    """A list is narrowed by run, state and time."""
    everything = get(trigger, "/jobs").body["jobs"]
    assert [row["run"] for row in get(trigger, "/jobs", run="sweep").body["jobs"]] == ["sweep"]
    state = everything[0]["state"]
    assert len(get(trigger, "/jobs", state=state).body["jobs"]) == sum(row["state"] == state for row in everything)
    assert not get(trigger, "/jobs", state=SUCCEEDED).body["jobs"]
    third = everything[2]["created"]
    assert {row["name"] for row in get(trigger, "/jobs", since=third).body["jobs"]} >= {
        row["name"] for row in everything[:3]
    }
    assert not get(trigger, "/jobs", since="2100-01-01").body["jobs"]


@pytest.mark.parametrize(
    "query",
    [{"state": "RUNNING"}, {"limit": "0"}, {"limit": "101"}, {"limit": "²"}, {"since": "yesterday"}, {"page": "x"},
     {"page": "W10="}, {"page": "é"}, {"run": 'a" OR x="'}, {"rum": "cpu"}],
)  # fmt: skip
def test_a_wrong_query(trigger: Trigger, query: dict[str, str]) -> None:
    """A wrong value or name in a query is a 400 that names it; nothing of it reaches the service's filter."""
    reply = get(trigger, "/jobs", **query)
    assert reply.status == 400 and [row["path"] for row in reply.body["findings"]] == list(query)


def test_a_job_is_cancelled(here: server.RunningServer, trigger: Trigger) -> None:
    """DELETE cancels a job that the trigger started, once; a repeat of its request still has that job, and others are not touched."""
    name = post(trigger, run="cpu", request_id="gone").body["name"]
    number = name.rpartition("/")[2]
    first = trigger.handle(Call("DELETE", f"/jobs/{number}"))
    assert first.status in (200, 202) and first.body["state"] in (CANCELLING, CANCELLED)
    assert trigger.handle(Call("DELETE", f"/jobs/{number}")).status in (200, 202)
    assert post(trigger, run="cpu", request_id="gone").body["name"] == name
    (other,) = [job for job in clouds.vertex(here).list("customJobs") if job.display_name == "other"]
    assert trigger.handle(Call("DELETE", f"/jobs/{other.id}")).status == 404
    again = clouds.vertex(here).get(other.name)
    assert again is not None and again.state not in (CANCELLING, CANCELLED)


def test_the_trials_of_a_sweep(tmp_path: Path) -> None:
    """GET /jobs/ID of a sweep has its trials and the best so far; a row of the list has the best alone."""
    place = Place(tmp_path)
    name = place.begin()
    place.sweep_ends(name, 0.5, 0.9, None)
    found = get(place.trigger, f"/jobs/{name.rpartition('/')[2]}").body
    assert [(row["id"], row["metrics"]) for row in found["best"]] == [("2", {"accuracy": 0.9})]
    assert [row["state"] for row in found["results"]] == ["SUCCEEDED", "SUCCEEDED", "INFEASIBLE"]
    assert found["results"][0]["parameters"] == {"learning_rate": 0.1}
    (row,) = get(place.trigger, "/jobs").body["jobs"]
    assert row["best"] == found["best"] and "results" not in row


def test_an_answer_that_is_known(trigger: Trigger) -> None:
    """A GET with the ETag of its last answer is a 304 without a body, until the answer is another one."""
    for path in ("/", "/openapi.json", "/jobs"):
        reply = get(trigger, path)
        tag = reply.headers["ETag"]
        known = trigger.handle(Call("GET", path, {"if-none-match": f'"other", W/{tag}'}))
        assert (known.status, known.flask[0], known.headers["ETag"]) == (304, b"", tag)
    assert post(trigger, run="cpu", request_id=f"newer-{uuid.uuid4()}").status == 201
    assert trigger.handle(Call("GET", "/jobs", {"if-none-match": tag})).status == 200


@pytest.mark.parametrize(
    ("budget", "waits"),
    [
        ({"trials_per_day": 5}, True),
        ({"live_jobs": 0}, True),
        ({"trials_per_run": 5}, False),
        ({"usd_per_run": 0.01}, False),
    ],
)
def test_retry_after_where_waiting_helps(tmp_path: Path, budget: dict[str, Any], waits: bool) -> None:
    """A refusal for a day's budget or for live jobs says when to try again; one that holds for the run itself does not."""
    place = Place(tmp_path, {**DATA, "trigger": {**DATA["trigger"], "budget": budget}})
    reply = place.post({"run": "sweep", "set": {"max_trial_count": 9}})
    assert reply.status == 422 and ("Retry-After" in reply.headers) is waits
    assert not waits or 0 < int(reply.headers["Retry-After"]) <= 86_400


@pytest.mark.parametrize("value", ["0s", "-1s", "x", "10", 5])
def test_one_message_for_one_mistake(trigger: Trigger, value: Any) -> None:
    """Whatever is no length of time is told so in one form; 0s, the service's seven days, does not get past a bound."""
    reply = post(trigger, run="cpu", set={"timeout": value})
    (row,) = reply.body["findings"]
    assert reply.status == 400 and row["path"] == "set.timeout"
    assert row["message"].partition(" ")[2] == "is not a duration above zero, such as 3600s"


def test_the_document_has_every_field(trigger: Trigger, tmp_path: Path) -> None:
    """Each answer has only fields that /openapi.json lists; the document names the server and the token."""
    document = get(trigger, "/openapi.json").body
    assert (
        document["servers"] == [{"url": "/"}]
        and document["components"]["securitySchemes"]["google"]["scheme"] == "bearer"
    )
    made = post(trigger, run="sweep", request_id="fields")
    place = Place(tmp_path)
    name = place.begin()
    place.sweep_ends(name, 0.5, 0.9)
    one = get(place.trigger, f"/jobs/{name.rpartition('/')[2]}")
    dry = post(trigger, run="cpu", dry_run=True)
    refused = post(trigger, run="cpu", set={"timeout": "x"})
    answers = [
        ("/", "get", get(trigger, "/")), ("/", "post", made), ("/", "post", dry), ("/", "post", refused),
        ("/jobs", "get", get(trigger, "/jobs")), ("/jobs/{id}", "get", one),
    ]  # fmt: skip
    for path, method, reply in answers:
        described = document["paths"][path][method]["responses"][str(reply.status)]["content"]
        schema = closed(next(iter(described.values()))["schema"])
        jsonschema.validate(json.loads(reply.content), schema)


def closed(schema: Any) -> Any:
    """A schema whose objects have no property but those it lists."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if "properties" in schema and isinstance(schema["properties"], dict):
        found["additionalProperties"] = False
    return found


def test_cancelling_a_run_with_candidates_cancels_the_one_that_is_tried(tmp_path: Path) -> None:
    """The caller knows the first job's number: where that was given up, the present one is cancelled, and in a pause none follows."""
    for refused, status in ((set[str](), 202), ({"1", "2", "3"}, 202)):
        place = Scarce(tmp_path, retry_for="6h")
        path = f"/jobs/{place.post({'run': 'cpu'}).body['name'].rpartition('/')[2]}"
        place.fails()
        place.refused = refused
        place.ticked()
        assert place.trigger.handle(Call("DELETE", path)).status == status
        if not refused:
            assert place.vertex.jobs[place.newest].data["state"] in (CANCELLING, CANCELLED)
            place.ends(place.newest, CANCELLED)
        jobs, place.refused = len(place.vertex.jobs), set()
        place.ticked(700)
        assert place.ended[0]["end"]["outcome"] == "CANCELLED" and len(place.vertex.jobs) == jobs
        assert place.trigger.handle(Call("DELETE", path)).status == 200
