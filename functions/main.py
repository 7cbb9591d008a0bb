"""The Cloud Function: what functions-framework calls, and nothing else. Everything is in vertexrig.trigger.app.

It runs as a copy in build/function, where `vertexrig function build` puts the project file and the tool beside it.
"""

import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))  # functions-framework puts it last, behind any installed vertexrig

import functions_framework  # noqa: E402

from vertexrig.trigger.app import application  # noqa: E402

APPLICATION = application(FOLDER)


@functions_framework.http
def trigger(request: Any) -> Any:
    """Answer an HTTP request: POST / starts a job, GET / lists what may run, GET /jobs/ID describes a job, POST /tick continues unfinished runs."""
    return APPLICATION.http(request)


@functions_framework.cloud_event
def on_event(event: Any) -> None:
    """Start a job for a Pub/Sub message or a finished object."""
    APPLICATION.event(event["type"], event["source"], event["id"], event.data)
