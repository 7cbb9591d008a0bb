"""The journal of calls that the console shows: names of methods and clients, and its bounds."""

from __future__ import annotations

import json

import pytest

from localvertex.front import call_names
from localvertex.front.calls import MOST_CALLS, MOST_METHODS, Calls

AIP = "google.cloud.aiplatform.v1"


@pytest.mark.parametrize(
    ("http", "host", "path", "method"),
    [
        ("POST", "", "/vertex/v1/projects/p/locations/us-central1/customJobs", f"{AIP}.JobService.CreateCustomJob"),
        ("POST", "us-central1-aiplatform.googleapis.com", "/v1beta1/projects/p/locations/l/customJobs/1:cancel", f"{AIP}beta1.JobService.CancelCustomJob"),
        ("POST", "logging.googleapis.com", "/v2/entries:list", "google.logging.v2.LoggingServiceV2.ListLogEntries"),
        ("GET", "", "/scheduler/v1/projects/p/locations/l/jobs", "google.cloud.scheduler.v1.CloudScheduler.ListJobs"),
        ("GET", "", "/storage/v1/b/x/o/a%2Fb", "storage.objects.get"),
        ("POST", "storage.googleapis.com", "/upload/storage/v1/b/x/o", "storage.objects.insert"),
        ("GET", "bigquery.googleapis.com", "/bigquery/v2/projects", "GET bigquery.googleapis.com/bigquery/v2/projects"),
    ],
)  # fmt: skip
def test_calls_have_the_names_of_methods(http: str, host: str, path: str, method: str) -> None:
    """A request on either port has the full name of its method; one that no table has is shown as its route."""
    assert call_names.method(http, host, path)[0] == method


@pytest.mark.parametrize(
    ("agent", "api", "client"),
    [
        ("google-cloud-sdk gcloud/528.0.0 command/gcloud.ai.custom-jobs.list invocation-id/a1", "", "gcloud 528.0.0 ai custom-jobs list"),
        ("grpc-python/1.80 grpc-c/5", "model-builder/2.7.0 gl-python/3.11.2 grpc/1.80 gax/2.2 gapic/2.7.0", "Python · model-builder 2.7.0"),
        ("grpc-node-js/1.9", "gl-node/20.1 grpc/1.9 gax/4.0 gapic/3.2", "Node · gapic 3.2"),
        ("curl/8.5", "", "curl 8.5"),
        ("grpc-python/1.85.1 grpc-c/58.0.0 (linux; chttp2)", "", "grpc-python 1.85.1"),
        ("", "", "not named"),
        ("x" * 500, "", "x" * 60),
    ],
)  # fmt: skip
def test_clients_have_short_names(agent: str, api: str, client: str) -> None:
    """A program is named by what tells it from others, in at most 60 characters."""
    assert call_names.client({"user-agent": agent, "x-goog-api-client": api}) == client


def test_the_journal_is_bounded() -> None:
    """It keeps the last calls and a bounded number of methods, however many come."""
    calls = Calls()
    fields = {"time": "", "http": "GET", "host": "", "client": "c", "ms": 0.0, "transport": "REST"}
    for number in range(MOST_CALLS + MOST_METHODS + 50):
        calls.note(path=f"/nowhere/{number}", status=405, **fields)
    shown = calls.shown()
    assert len(shown["calls"]) == MOST_CALLS and len(shown["unserved"]) == MOST_METHODS
    assert shown["calls"][-1]["seq"] == shown["last"] == MOST_CALLS + MOST_METHODS + 50
    assert [one["seq"] for one in calls.shown(shown["last"] - 2)["calls"]] == [shown["last"] - 1, shown["last"]]
    json.dumps(shown)
