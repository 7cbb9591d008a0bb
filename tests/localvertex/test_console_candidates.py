"""The console's page of a job with candidates, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from tests.localvertex.test_console import shown
from tests.support.browser import chromium
from tests.support.jobkit import Api, job, pool, with_trainer


@pytest.fixture
def here(tmp_path: Path) -> Iterator[server.RunningServer]:
    with_trainer(tmp_path)
    with server.running(Settings(tmp_path, run=RunOptions(grace=0.2))) as running:
        yield running


@pytest.mark.whole
def test_candidates_are_shown_beside_each_other(here: server.RunningServer) -> None:
    """The page of a job with candidates lists the jobs of its request in order, with how long each waited and why it ended; no others."""
    api = Api(here.url)
    labels = [{"vertexrig_claim": "a-1", "vertexrig_candidate": "1"}]
    labels += [
        {"vertexrig_claim": f"{first}-2", "vertexrig_first": f"{first}-1", "vertexrig_candidate": "3"} for first in "ab"
    ]
    made = [api.create(job(pool("pass")), name="climbs", labels=own) for own in labels]
    for one in made:
        api.wait(one["name"])
    with chromium() as browser, shown(browser, here, f"#/jobs/{made[1]['name']}") as page:
        page.get_by_text("Candidates (2 with a job)").wait_for()
        rows = page.locator("[data-part^=candidates] tbody tr").all_inner_texts()
    numbers = [one["name"].rpartition("/")[2] for one in made]
    assert [row.split("\t")[:4] for row in rows] == [
        ["1", numbers[0], "us-central1", "succeeded"],
        ["3", numbers[1], "us-central1", "succeeded"],
    ]
