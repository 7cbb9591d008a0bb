"""Submitting where a service fails, refuses, is not there or is somebody else's: no second job, and no token to strangers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support import clouds, services
from tests.support.services import Fault
from tests.support.submitting import Make, run, with_claim
from vertexrig.cloud.rest import Rest, RestError, retry_after, takes_credentials
from vertexrig.cloud.storage import Storage
from vertexrig.submit.claims import InProgressError, request_key
from vertexrig.submit.submission import Request, UnsureError


@pytest.fixture
def bad() -> Iterator[Callable[..., str]]:
    """Starts a service that answers everything in one bad way; returns its URL."""
    with ExitStack() as stack:
        yield lambda status, body=b"", **headers: stack.enter_context(services.faulty(Fault(status, body, headers)))


UNSURE = [(500, b""), (503, b"<html>"), (0, b""), (200, b"garbage"), (200, b"[1]"), (200, b"{}"), (200, b"[" * 100_000)]


@pytest.mark.parametrize("status, body", UNSURE, ids=range(len(UNSURE)))
def test_an_unsure_create_is_not_repeated(here: clouds.MemoryCloud, make: Make, bad: Callable[..., str], status: int, body: bytes) -> None:  # fmt: skip
    """After an answer that leaves open whether there is a job, the claim is kept until its lease is out, and then one
    job is made.
    """
    id = f"unsure-{status}-{body[:9]!r}"
    with pytest.raises(UnsureError) as failed:
        run(make(url=bad(status, body)), id)
    assert failed.value.retry_after
    with pytest.raises(InProgressError):
        run(make(), id)
    here.clock.at += 4
    assert not run(make(), id).duplicate and run(make(), id).duplicate
    assert len(with_claim(here, id)) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429])
def test_a_sure_refusal_frees_the_claim(
    here: clouds.MemoryCloud, make: Make, bad: Callable[..., str], status: int
) -> None:
    """After a refusal nothing is claimed, and the next delivery makes the job at once."""
    url = bad(status, b'{"error": {"message": "no", "status": "NO"}}', **{"Retry-After": "7"})
    with pytest.raises(RestError, match="Vertex AI: no") as refused:
        run(make(url=url), f"sure-{status}")
    assert refused.value.status == status and refused.value.retry_after == 7.0
    assert not run(make(), f"sure-{status}").duplicate


def test_nothing_listens(here: clouds.MemoryCloud, make: Make) -> None:
    """A service that cannot be reached at all was sent nothing, so nothing is claimed."""
    with pytest.raises(RestError, match="cannot be reached") as failed:
        run(make(url="http://127.0.0.1:9"), "nobody")
    assert not failed.value.outcome_unknown
    assert not run(make(), "nobody").duplicate


@pytest.mark.parametrize("status, body", [(500, b""), (429, b"{}"), (200, b"garbage"), (0, b"")], ids=range(4))
def test_storage_down_starts_nothing(here: clouds.MemoryCloud, tmp_path: Path, bad: Callable[..., str], status: int, body: bytes) -> None:  # fmt: skip
    """With Cloud Storage down no job is made."""
    before = len(clouds.jobs(here))
    submitter = clouds.submitter(here, tmp_path)
    prepared = submitter.prepare_candidates(Request("cpu"))[0]
    broken = Storage(clouds.BUCKET, url=bad(status, body))
    broken.rest = Rest(broken.rest.url, "Cloud Storage", pause=0.01)
    submitter.claims.storage = broken
    with pytest.raises(RestError):
        submitter.submit(prepared, request_key("storage-down"), "x")
    assert len(clouds.jobs(here)) == before


def test_reads_are_repeated(bad: Callable[..., str]) -> None:
    """A read is tried again after a passing failure, as often as it is told to; a create is tried once."""
    seen: list[str] = []
    rest = Rest(bad(503), "a service", attempts=3, pause=0.01)
    send = rest.session.request

    def counted(method: str, *args: Any, **options: Any) -> Any:
        seen.append(method)
        return send(method, *args, **options)

    rest.session.request = counted  # type: ignore[method-assign]
    for method in ("GET", "POST"):
        with pytest.raises(RestError):
            rest.call(method, "/x")
    assert seen == ["GET", "GET", "GET", "POST"]
    assert retry_after("12") == 12.0 and retry_after("nonsense") is None and retry_after("") is None


@pytest.mark.parametrize(
    ("url", "universe", "sent"),
    [
        ("https://us-central1-aiplatform.googleapis.com/v1", "googleapis.com", True),
        ("https://storage.googleapis.com", "googleapis.com", True),
        ("http://storage.googleapis.com", "googleapis.com", False),
        ("https://storage.googleapis.com.evil.example", "googleapis.com", False),
        ("https://evilgoogleapis.com", "googleapis.com", False),
        ("https://evil.example:443/?x=.googleapis.com", "googleapis.com", False),
        ("https://user@evil.example#.googleapis.com", "googleapis.com", False),
        ("https://us-aiplatform.apis-tpczero.goog", "apis-tpczero.goog", True),
        ("https://us-aiplatform.evil.example", "googleapis.com", False),  # another universe than the credentials'
        ("https://us-aiplatform.evil.example:443/x?.googleapis.com", "googleapis.com", False),
    ],
)
def test_tokens_go_to_google_over_https_alone(url: str, universe: str, sent: bool) -> None:
    """A URL from the environment gets credentials only if it is https on a host of their own universe."""
    assert takes_credentials(url, universe) is sent


def test_another_host_is_called_without_credentials(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A call to a host that is not Google's is anonymous, and the tool says so."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent")
    session = Rest("http://192.0.2.1", "Vertex AI").session
    assert type(session) is requests.Session and "192.0.2.1" in caplog.text
