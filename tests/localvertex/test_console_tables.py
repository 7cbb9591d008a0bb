"""The console's tables in a real browser: every cell under its head, every row once, and a list beside a job that cannot be shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from localvertex import server
from localvertex.jobs.settings import Settings
from tests.support.browser import chromium_page, go, shown
from tests.support.jobkit import Api, job, pool
from vertexrig.cloud.storage import Storage
from vertexrig.runs.deliveries import Delivery

PLACE = "projects/123/locations/us-central1"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    with server.running(Settings(tmp_path_factory.mktemp("tables"))) as running:
        yield running


def give(here: server.RunningServer, number: int, **more: Any) -> str:
    """A custom job that has ended, under its own number; returns its name."""
    return str(server.call(here, "POST", "/v1/resources", {"name": f"{PLACE}/customJobs/{number}", **more})["name"])


def test_a_job_that_cannot_be_shown_leaves_the_list(browser: Any, here: server.RunningServer) -> None:
    """A given job is shown; once it is deleted a sentence is in its place, and the list goes on beside it."""
    name = give(here, 71, displayName="goes", jobSpec=job(pool("pass")))
    give(here, 72, displayName="stays")
    with chromium_page(browser) as page:
        go(page, here, f"jobs/{name}")
        page.locator("[data-part^=replicas]", has_text="workerpool0-0").wait_for()
        assert Api(here.url).call("DELETE", f"/vertex/v1/{name}").status_code == 200
        page.locator("#detail", has_text="This job cannot be shown").wait_for()
        page.locator("#list .row", has_text="goes").wait_for(state="hidden")
        assert page.locator("#list .row", has_text="stays").count() == 1
        page.locator("#trouble").wait_for(state="hidden")
        page.keyboard.press("Escape")
        page.get_by_text("Last jobs").wait_for()


def test_conditional_parameters_stand_under_their_heads(browser: Any, here: server.RunningServer) -> None:
    """In the table of trials a parameter that a trial does not have is an empty cell, in whatever order they were sent."""
    linear = {"parameterId": "rate", "doubleValueSpec": {"minValue": 0.0, "maxValue": 1.0}}
    child = {"parentCategoricalValues": {"values": ["deep"]},
             "parameterSpec": {"parameterId": "depth", "integerValueSpec": {"minValue": "1", "maxValue": "9"}}}  # fmt: skip
    way = {"parameterId": "way", "categoricalValueSpec": {"values": ["deep", "flat"]}}
    spec = {"metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
            "parameters": [{**way, "conditionalParameterSpecs": [child]}, linear]}  # fmt: skip
    api = Api(here.url)
    made = api.call("POST", "studies", json={"displayName": "tree", "studySpec": spec}).json()
    for given in ({"rate": 0.25, "depth": 3, "way": "deep"}, {"rate": 0.5, "way": "flat"}):
        values = [{"parameterId": key, "value": value} for key, value in given.items()]
        final = {"metrics": [{"metricId": "loss", "value": 0.125}]}
        trial = {"parameters": values, "state": "SUCCEEDED", "finalMeasurement": final}
        assert api.call("POST", f"/vertex/v1/{made['name']}/trials", json=trial).status_code == 200
    with shown(browser, here, f"#/jobs/{made['name']}") as page:
        part = page.locator("[data-part^=trials]")
        part.locator("tbody tr").nth(1).wait_for()
        heads = part.locator("th").all_inner_texts()
        rows = [row.split("\t") for row in part.locator("tbody tr").all_inner_texts()]
    found = [{head: row[heads.index(head)] for head in ("loss", "way", "depth", "rate")} for row in rows]
    assert found == [
        {"loss": "0.125", "way": "deep", "depth": "3", "rate": "0.25"},
        {"loss": "0.125", "way": "flat", "depth": "", "rate": "0.5"},
    ]


@pytest.mark.whole
def test_candidates_are_shown_beside_each_other(browser: Any, here: server.RunningServer) -> None:
    """The page of a job with candidates lists the jobs of its request in order, with how long each waited and why it ended; no others."""
    labels = [{"vertexrig_claim": "a-1", "vertexrig_candidate": "1"}]
    labels += [
        {"vertexrig_claim": f"{first}-2", "vertexrig_first": f"{first}-1", "vertexrig_candidate": "3"} for first in "ab"
    ]
    made = [
        give(here, number, displayName="climbs", labels=own, jobSpec=job(pool("pass")))
        for number, own in enumerate(labels, 81)
    ]
    with shown(browser, here, f"#/jobs/{made[1]}") as page:
        page.get_by_text("Candidates (2 with a job)").wait_for()
        rows = page.locator("[data-part^=candidates] tbody tr").all_inner_texts()
    assert [row.split("\t")[:4] for row in rows] == [
        ["1", "81", "us-central1", "succeeded"],
        ["3", "82", "us-central1", "succeeded"],
    ]


@pytest.mark.whole
def test_the_newest_delivery_is_found_behind_many(browser: Any, here: server.RunningServer) -> None:
    """The newest delivery is shown if its bucket is behind many by name, and if a thousand names of the month are before its own; those of a staging bucket of Google's, too."""
    names = [f"a-{number:02}" for number in range(21)] + ["cloud-ai-platform-1", "decided"]
    for name in names:
        httpx.post(f"{here.url}/storage/v1/b", params={"project": "p"}, json={"name": name})
    Delivery(schedule="staged", run="cpu", decision="created").write(
        Storage("gs://cloud-ai-platform-1/vertexrig/trigger", url=here.url)
    )
    made = Delivery(schedule="newest", run="cpu", decision="created")
    made.write(Storage("gs://decided/vertexrig/trigger", url=here.url))
    folder = Path(here.root, "gs/decided/vertexrig/trigger", made.path).parent
    for number in range(1000):
        (folder / f"0-{number:04}.json").touch()
    with shown(browser, here) as page:
        go(page, here, "runs")
        page.locator("table", has_text="decision").locator("tr", has_text="newest").wait_for()
        assert "staged" in page.inner_text("main")


@pytest.mark.whole
def test_no_call_is_shown_twice(browser: Any, here: server.RunningServer) -> None:
    """While several requests for the calls are under way, each call is one row."""
    held: list[Any] = []
    with shown(browser, here) as page:
        go(page, here, "calls")
        page.locator("#wanted").wait_for()
        page.route("**/console/v1/calls*", lambda route: held.append(route))
        for name in ("first", "second"):
            httpx.get(f"{here.url}/storage/v1/b/{name}-twice/o/x")
        page.fill("#wanted", "-twic")
        page.fill("#wanted", "-twice")
        while len(held) < 2:
            page.wait_for_timeout(20)
        # Those that are held are let go.
        page.unroute("**/console/v1/calls*")
        rows = page.locator("[data-part=calls] tbody tr", has_text="-twice")
        rows.nth(1).wait_for()
        httpx.get(f"{here.url}/storage/v1/b/third-twice/o/x")
        page.locator("[data-part=calls] tbody tr", has_text="third-twice").wait_for()
        assert rows.count() == 3


@pytest.mark.whole
def test_the_calls_of_another_server_take_the_place_of_the_last_ones(browser: Any, here: server.RunningServer) -> None:
    """After a restart the calls of the new server are shown from its first one on, and those of the last one are gone."""
    now = {"pid": 1, "words": ["old-1", "old-2"]}

    def pulse(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "pid": now["pid"], "calls": len(now["words"])})

    def calls(route: Any) -> None:
        after = int(parse_qs(urlsplit(route.request.url).query)["after"][0])
        one = {"time": "2026-11-23T12:00:00Z", "method": "a.B", "client": "c", "status": 200, "word": "OK", "ms": 1,
               "transport": "REST"}  # fmt: skip
        all_ = [{**one, "seq": number, "target": word} for number, word in enumerate(now["words"], 1)]
        page = {"last": len(all_), "calls": all_[after:], "unserved": [], "refused": []}
        route.fulfill(body=json.dumps(page), content_type="application/json")

    with shown(browser, here) as page:
        page.route("**/console/v1/pulse", pulse)
        page.route("**/console/v1/calls*", calls)
        go(page, here, "calls")
        rows = page.locator("[data-part=calls] tbody tr")
        rows.filter(has_text="old-2").wait_for()
        now.update(pid=2, words=["new-1", "new-2", "new-3"])
        rows.filter(has_text="new-3").wait_for()
        assert [row.split("\t")[2] for row in rows.all_inner_texts()] == ["new-3", "new-2", "new-1"]
        page.unroute_all(behavior="ignoreErrors")
