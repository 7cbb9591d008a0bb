"""Reads of public buckets, and key files that are not there."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from localvertex import server
from localvertex.front import public_buckets
from localvertex.front.variables import transparent
from localvertex.jobs.settings import Settings
from localvertex.runner.options import RunOptions
from localvertex.state import RunningServer
from tests.support.jobkit import Api, job, pool, with_trainer

ASKED: list[tuple[str, str, dict[str, str]]] = []
CONTENT: dict[str, bytes] = {
    "/open/a/b.txt": b"0123456789",
    "/storage/v1/b/open/o": b'{"items": [{"name": "a/b.txt"}]}',
}


class Origin(http.server.BaseHTTPRequestHandler):
    """In place of the real host."""

    def do_GET(self) -> None:
        ASKED.append((self.command, self.path, {name.lower(): value for name, value in self.headers.items()}))
        content = CONTENT.get(self.path.partition("?")[0])
        first = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        self.send_response(404 if content is None else 206 if first else 200)
        body = (content or b"no such object")[first:]
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if self.command == "GET" else b"")

    do_HEAD = do_GET

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    root = with_trainer(tmp_path_factory.mktemp("public") / "state")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin) as origin, pytest.MonkeyPatch.context() as patch:
        threading.Thread(target=origin.serve_forever, daemon=True).start()
        patch.setattr(public_buckets, "ORIGIN", f"http://127.0.0.1:{origin.server_address[1]}")
        for name in ("http_proxy", "HTTP_PROXY"):
            patch.delenv(name, raising=False)
        settings = Settings(root, options=RunOptions(keep_gs=True), public_buckets=("open", "both"))
        with server.running(settings) as running:
            yield running
        origin.shutdown()


@pytest.fixture
def client(here: RunningServer, monkeypatch: pytest.MonkeyPatch) -> requests.Session:
    variables = transparent(here, os.environ, project="my-project", region="us-central1").over(os.environ)
    monkeypatch.setattr(os, "environ", variables)
    return requests.Session()


@pytest.mark.parametrize("url", ["storage.googleapis.com/open/a/b.txt", "open.storage.googleapis.com/a/b.txt"])
def test_an_object_of_a_listed_bucket_is_read_without_credentials(client: requests.Session, url: str) -> None:
    """By either of its addresses an object comes from the real host, also a part of it, which sees no credential of the client."""
    secret = {"Authorization": "Bearer of-mine", "Cookie": "mine", "X-Goog-User-Project": "mine", "Range": "bytes=4-"}
    assert client.get(f"https://{url}?access_token=of-mine").content == CONTENT["/open/a/b.txt"]
    assert client.get(f"https://{url}", headers=secret).content == b"456789"
    assert client.head(f"https://{url}").headers["content-length"] == "10"
    for _, path, fields in ASKED[-3:]:
        assert path == "/open/a/b.txt" and not {"authorization", "cookie", "x-goog-user-project"} & fields.keys()


def test_only_reads_of_listed_buckets_pass(client: requests.Session, here: RunningServer) -> None:
    """A write, a bucket that is not listed, and a listed one that is on this machine are never asked of the real host."""
    storage = "https://storage.googleapis.com"
    assert client.get(f"{storage}/storage/v1/b/open/o").json() == {"items": [{"name": "a/b.txt"}]}
    before = len(ASKED)
    client.post(f"{storage}/storage/v1/b?project=p", json={"name": "both"}).raise_for_status()
    sent = client.post(f"{storage}/upload/storage/v1/b/both/o?uploadType=media&name=x", data=b"here")
    assert sent.ok and client.get(f"{storage}/both/x").content == b"here"
    refused = client.post(f"{storage}/upload/storage/v1/b/open/o?uploadType=media&name=x", data=b"there")
    assert refused.status_code == 404 and client.delete(f"{storage}/storage/v1/b/open/o/x").status_code == 404
    for path in ("/closed/a", "/storage/v1/b/closed/o", "/open%2Fa/b", "/storage/v1/b?project=p"):
        client.get(storage + path)
    assert len(ASKED) == before
    assert "closed" in server.call(here, "GET", "/v1/made")["absent"]


READS = """
import os, sys, google.auth
from google.cloud import storage
from google.oauth2 import service_account
os.environ["GOOGLE_APPLICATION_CREDENTIALS"] = "keys/mine.json"
emails = [
    google.auth.default()[0].service_account_email,
    google.auth.load_credentials_from_file("keys/mine.json")[0].service_account_email,
    service_account.Credentials.from_service_account_file("keys/mine.json").service_account_email,
    storage.Client.from_service_account_json("keys/mine.json")._credentials.service_account_email,
]
assert emails == ["local-vertex@local-project.iam.gserviceaccount.com"] * 4, emails
open("wrong.json", "w").write("{}")
try:
    google.auth.load_credentials_from_file("wrong.json")
except google.auth.exceptions.DefaultCredentialsError:
    print("done")
"""


def test_a_key_file_that_is_not_there_is_the_made_up_accounts(client: requests.Session, tmp_path: Path) -> None:
    """A key file that code names and that is not there gives the made-up account, by each way to read one; one that is there is read."""
    words = [sys.executable, "-c", READS]
    done = subprocess.run(words, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=120)
    assert done.stdout == "done\n", done.stderr


def test_a_job_reads_a_public_bucket(here: RunningServer) -> None:
    """A trainer reads what a listed bucket has, and the key file that its variables name is the made-up account's."""
    code = (
        "import urllib.request; url = 'https://storage.googleapis.com/open/a/b.txt'\n"
        "assert urllib.request.urlopen(url).read() == b'0123456789'\n"
        "assert os.environ['GOOGLE_APPLICATION_CREDENTIALS'].endswith('front/credentials.json')"
    )
    one = pool(code)
    one["pythonPackageSpec"]["env"] = [{"name": "GOOGLE_APPLICATION_CREDENTIALS", "value": "/secrets/key.json"}]
    api = Api(here.url)
    found = api.wait(api.create(job(one))["name"])
    assert found["state"] == "JOB_STATE_SUCCEEDED", found["error"]
