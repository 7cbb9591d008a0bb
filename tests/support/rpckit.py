"""What the tests of gRPC share: a server, and Google's generated clients over an insecure channel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from tests.support.jobkit import with_trainer

PARENT = "projects/my-project/locations/us-central1"
STUDY = {
    "metrics": [{"metric_id": "loss", "goal": "MINIMIZE"}],
    "parameters": [
        {
            "parameter_id": "rate",
            "double_value_spec": {"min_value": 0.001, "max_value": 1.0},
            "scale_type": "UNIT_LOG_SCALE",
        },
        {"parameter_id": "units", "discrete_value_spec": {"values": [16, 32]}},
    ],
}


@contextmanager
def serving(root: Path) -> Iterator[server.RunningServer]:
    """A server with gRPC and a package in its bucket."""
    with_trainer(root)
    with server.running(Settings(root, slots=8, options=RunOptions(grace=0.5)), grpc=True) as running:
        yield running


def client(channel: grpc.Channel, service: str, library: str = "aiplatform_v1") -> Any:
    """The gapic client of a service over the channel: `client(channel, "job_service")`."""
    base = f"google.cloud.{library}.services.{service}"
    name = "".join(part.title() for part in service.split("_"))
    transport = getattr(import_module(f"{base}.transports.grpc"), f"{name}GrpcTransport")
    return getattr(import_module(base), f"{name}Client")(transport=transport(channel=channel))
