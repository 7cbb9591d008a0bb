"""A real server on a free port, and the real gcloud pointed at it."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests
import uvicorn
from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from localvertex.front.variables import transparent
from localvertex.http import dated
from localvertex.state import RunningServer, env
from tests.support import engines
from tests.support.browser import chromium
from tests.support.frontkit import Sink, fronted, sinking
from tests.support.jobkit import with_trainer
from tests.support.tools import gcloud_run
from vertexrig.guard import LoopbackGuard

if TYPE_CHECKING:
    import grpc
    import httpx

Command = Callable[..., subprocess.CompletedProcess[str]]


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """Run an application on uvicorn at a free loopback port in a thread; yields `http://127.0.0.1:PORT`."""
    # Without uvicorn's own headers, as the local Vertex runs.
    own = uvicorn.Config(
        dated(app), host="127.0.0.1", port=0, log_level="warning", date_header=False, server_header=False
    )
    server = uvicorn.Server(own)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        assert not thread.is_alive(), "the server did not stop"


@pytest.fixture(scope="session")
def serving() -> Callable[[ASGIApp], AbstractContextManager[str]]:
    """`served`, for fixtures of any scope."""
    return served


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Serve routes behind the loopback guard until the test ends; returns the base URL."""
    with ExitStack() as stack:

        def start(routes: list[BaseRoute], **options: object) -> str:
            app = Starlette(routes=routes, **options)  # type: ignore[arg-type]
            return stack.enter_context(served(LoopbackGuard(app)))

        yield start


def environment(folder: Path, **more: str) -> dict[str, str]:
    """A clean environment for Google's command line tools: no credentials, no settings, nothing of the user's."""
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
    return {
        **kept,
        "HOME": str(folder),
        "CLOUDSDK_CONFIG": str(folder / "gcloud"),
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
        "CLOUDSDK_CORE_PROJECT": "my-project",
        "CLOUDSDK_STORAGE_PROCESS_COUNT": "1",
        "CLOUDSDK_STORAGE_THREAD_COUNT": "2",
        **more,
    }


def runner(tool: str, folder: Path) -> Command:
    """A function that runs `tool` with arguments; it fails the test on a non-zero exit unless `check=False`."""
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    (folder / "gcloud").mkdir(exist_ok=True)

    def run(*args: str, url: str, check: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
        env = environment(
            folder,
            CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE=f"{url}/storage/v1/",
            CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDSCHEDULER=f"{url}/scheduler/",
            CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING=f"{url}/logging/",
            CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM=f"{url}/vertex/",
            **more,
        )
        if tool == "gcloud":
            done = gcloud_run(*args, env=env, cwd=folder)
        else:
            done = subprocess.run([tool, *args], env=env, cwd=folder, text=True, capture_output=True, timeout=180)
        assert not check or done.returncode == 0, f"{tool} {' '.join(args)}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture
def gcloud(tmp_path: Path) -> Command:
    """The real gcloud: `gcloud("storage", "ls", url=base)`."""
    return runner("gcloud", tmp_path)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local Vertex's folder with the trainer package in its bucket; the tests of a module share it."""
    return with_trainer(tmp_path_factory.mktemp("vertex"))


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    """The proxy that the user of `here` has."""
    with sinking() as found:
        yield found


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, sink: Sink) -> Iterator[RunningServer]:
    """A server whose user has a proxy, for every module that makes no other server of this name."""
    with fronted(tmp_path_factory.mktemp("front"), sink) as running:
        yield running


@pytest.fixture(scope="module")
def channel(here: RunningServer) -> Iterator[grpc.Channel]:
    """GRPC to the server of the module."""
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{here.grpc_port}") as made:
        yield made


@pytest.fixture(scope="module")
def rest(here: RunningServer) -> Iterator[httpx.Client]:
    """REST to the server of the module, below the version of Vertex AI."""
    import httpx

    with httpx.Client(base_url=f"{here.url}/vertex/v1", timeout=60, verify=False) as made:
        yield made


@pytest.fixture
def quick_sdk(here: RunningServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The variables that point google-cloud-aiplatform at the server, and waits of 50 ms in place of its own of seconds."""
    from google.cloud.aiplatform import base, jobs, training_jobs

    for name, value in env(here, project="my-project").items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    for module in (base, jobs, training_jobs):
        for name in ("_JOB_WAIT_TIME", "_LOG_WAIT_TIME", "_BLOCK_WAIT_TIME"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, 0.05)


@pytest.fixture
def front_variables(here: RunningServer) -> dict[str, str]:
    """What a command of `local run` sees."""
    return transparent(here, os.environ, project="my-project", region="us-central1").over(os.environ)


@pytest.fixture
def front_client(front_variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> requests.Session:
    """A client that has nothing but the variables."""
    monkeypatch.setattr(os, "environ", front_variables)
    return requests.Session()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium; not for longer than a module, because Playwright keeps an event loop running in the thread."""
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="session")
def podman_storage() -> Path:
    """The folder of a real podman with images; see `tests.support.engines`."""
    return engines.storage()


@pytest.fixture
def containers(podman_storage: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The variables by which podman keeps to that folder, for one test."""
    return engines.use(podman_storage, monkeypatch)
