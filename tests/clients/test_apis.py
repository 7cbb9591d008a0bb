"""Google's generated clients for Python, over gRPC and over REST, through the front."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.conftest import Run
from tests.clients.kit import AT_LENGTH, python
from tests.support.jobkit import IMAGE

PROGRAMS = Path(__file__).with_name("programs")


@pytest.mark.parametrize("library", [pytest.param("aiplatform_v1", marks=AT_LENGTH), "aiplatform_v1beta1"])
@pytest.mark.whole
def test_the_generated_clients(library: str, run: Run) -> None:
    """Calls, operations, error details, empty lists and methods that are not served are the same over gRPC and REST."""
    done = run(python(f"google.cloud.{library}"), str(PROGRAMS / "gapic.py"), library, IMAGE)
    seen: dict[str, list[str]] = {"grpc": [], "rest": []}
    for line in done.stdout.splitlines():
        way, _, rest = line.partition(" ")
        seen[way].append(rest)
    assert seen["grpc"] == [
        "deleted True DeleteOperationMetadata",
        "missing 404 NOT_FOUND",
        "invalid ['BadRequest']",
        "list_datasets []",
        "list_endpoints []",
        "uploaded grpc UploadModelOperationMetadata",
        "unary True",
        "server streams True",
        "both stream True",
    ]
    assert seen["rest"] == [line.replace("grpc", "rest") for line in seen["grpc"][:-1]]


@pytest.mark.whole
def test_scheduler_and_logging(run: Run) -> None:
    """google-cloud-scheduler and google-cloud-logging work at their defaults; a tail has what is written after it."""
    done = run(python("google.cloud.scheduler_v1", "google.cloud.logging"), str(PROGRAMS / "apis.py"))
    assert done.stdout.splitlines() == [
        "grpc ENABLED POST",
        "PAUSED ENABLED",
        "0 4 * * * True",
        "404",
        "[('over gRPC', 'WARNING'), ({'step': 3.0}, None)]",
        "{'for the tail'}",
        "True",
    ]
