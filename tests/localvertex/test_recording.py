"""A recording of calls: what is kept of a request and its answer, and what is replaced."""

from __future__ import annotations

import json
from pathlib import Path

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.recording import Blanks
from tests.support.web import http


def test_blanked_recordings_keep_their_form_only() -> None:
    """Ids, numbers, tokens, e-mail addresses, hosts, folders and the project's own names are replaced."""
    seen = {
        "name": "projects/116273516712/locations/us-central1/customJobs/3216493723709865984",
        "by": "someone@example.com", "auth": "Bearer ya29.a0Af-x", "access_token": "s3cret",
        "host": "cmle-training-workerpool0-99ab039ae0-0:2222", "node": "gk3-cml-0221-054317-2fe2",
        "path": "/home/me/x.py", "uri": "gs://secret-bucket/p", "url": "http://10.12.0.81:8080/", "kept": "n1-standard-4",
        "time": "2026-11-21T20:51:50.116378Z", "list": [80, "80"],
    }  # fmt: skip
    assert Blanks({"secret-bucket": "<bucket>"})(seen) == {
        "name": "projects/<number>/locations/us-central1/customJobs/<id 1>",
        "by": "<email>", "auth": "<token>", "access_token": "<secret>",
        "host": "cmle-training-workerpool0-<cluster>-0:2222", "node": "<host>",
        "path": "<path>", "uri": "gs://<bucket>/p", "url": "http://<address>/", "kept": "n1-standard-4",
        "time": "2026-11-21T20:51:50.116378Z", "list": [80, "80"],
    }  # fmt: skip


def test_a_long_text_is_blanked_at_once() -> None:
    """A text of a million characters is read in time that grows with its length: else this takes hours."""
    long = "x" * 1_000_000
    assert Blanks()(f"{long} {long}@example.com eyJ{long}-") == f"{long} <email> eyJ{long}-"


def test_a_server_records_what_a_program_asked(tmp_path: Path) -> None:
    """Every call and its answer is a line of the recording's form, in its order, with each id as the same text."""
    file = tmp_path / "seen.jsonl"
    with server.running(Settings(tmp_path / "state"), record=file) as here:
        parent = f"{here.url}{server.AIPLATFORM}/v1/projects/some-project/locations/us-central1/customJobs"
        http.post(parent, json={"displayName": ""})
        http.get(f"{parent}/1234567890123456789")
        http.get(f"{parent}/1234567890123456789?alt=json")
        http.get(f"{here.url}/storage/v1/b/no-such-bucket")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    place = "/v1/projects/<project>/locations/us-central1/customJobs"
    assert [line["request"] for line in lines] == [
        {"api": "vertex", "method": "POST", "path": place, "body": {"displayName": ""}},
        {"api": "vertex", "method": "GET", "path": f"{place}/<id 1>"},
        {"api": "vertex", "method": "GET", "path": f"{place}/<id 1>?alt=json"},
        {"api": "storage", "method": "GET", "path": "/storage/v1/b/<bucket>"},
    ]
    assert [line["answer"]["status"] for line in lines] == [400, 404, 404, 404]
    assert "Display name is required" in lines[0]["answer"]["body"]["error"]["message"]
    assert "some-project" not in file.read_text()
