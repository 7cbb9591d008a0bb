"""The staged function under the real functions-framework: crashes, duplicates, a fuzzer, and what it imports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path

import pytest
import requests

from localvertex import server
from tests.support import clouds, functions
from tests.support.tools import LONG, brief, pip_install
from vertexrig.trigger import stage


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The staged function of a project whose day has a budget, so that the ledger takes part."""
    root = tmp_path_factory.mktemp("project")
    data = {**clouds.PROJECT, "trigger": {**clouds.PROJECT["trigger"], "budget": {"trials_per_day": 100_000}}}
    return stage.stage(clouds.loaded(root, data), root / "build/function").folder


def with_note(here: server.RunningServer, note: str) -> int:
    return sum(f"--note={note}" in json.dumps(job.data) for job in clouds.jobs(here))


# after the answer to: create, record, claim, pointer, package, ledger row, its listing, its grant; there is nothing between it and the next call
POINTS = [f"after:{call}" for call in (7, 8, 3, 1, 2, 4, 5, 6)]


@pytest.fixture(scope="module")
def other(here: server.RunningServer, staged: Path) -> Iterator[str]:
    """Another instance, which gets what is delivered again, when the lease is over."""
    with functions.serving(
        staged, {**clouds.variables(here), "LEASE": "30", "WAIT": "1", "LATER": "31"}, wrapped=True
    ) as url:
        yield url


@pytest.mark.parametrize("point", brief(POINTS, 6))
def test_killed_anywhere_and_delivered_again(here: server.RunningServer, staged: Path, other: str, point: str) -> None:
    """The process killed with -9 at any point between the first call and the last, then redelivered: exactly one job."""
    body = {"run": "cpu", "args": {"note": f"killed {point}"}, "request_id": f"killed-{point}"}
    with functions.serving(staged, {**clouds.variables(here), "KILL": point}, wrapped=True) as url:
        assert functions.deliver(url, body) is None
    first, again = functions.until_done(other, body), functions.until_done(other, body)
    assert first.json()["name"] == again.json()["name"] and again.json()["duplicate"]
    assert with_note(here, f"killed {point}") == 1


@pytest.mark.whole
def test_a_deploy_loses_no_request(here: server.RunningServer, staged: Path, other: str, tmp_path: Path) -> None:
    """The function is replaced by one with another project file while sixteen requests are at work: what the old one did not answer is
    delivered again to the new one, and each has exactly one job.
    """
    data = {**clouds.PROJECT, "jobs": {**clouds.PROJECT["jobs"], "newer": clouds.PROJECT["jobs"]["cpu"]}}
    newer = stage.stage(clouds.loaded(tmp_path, data), tmp_path / "build/function").folder
    bodies = [{"run": "cpu", "request_id": f"deploy-{n}", "args": {"note": f"deploy{n}"}} for n in range(16)]
    with ThreadPoolExecutor(8) as pool:
        with functions.serving(staged, clouds.variables(here)) as old:
            sent = [pool.submit(functions.deliver, old, body) for body in bodies]
            sent[4].result()  # some are answered, some are at work, most have not come
        answers = [one.result() for one in sent]
        variables = {**clouds.variables(here), "LEASE": "30", "WAIT": "1", "LATER": "31"}
        lost = [
            body for body, answer in zip(bodies, answers, strict=True) if answer is None or answer.status_code >= 300
        ]
        assert lost
        with functions.serving(newer, variables, wrapped=True) as new:
            list(pool.map(lambda body: functions.until_done(new, body), lost))
    assert [with_note(here, f'deploy{n}"') for n in range(16)] == [1] * 16


def test_events_over_http(here: server.RunningServer, staged: Path) -> None:
    """The event function takes a Pub/Sub CloudEvent as Eventarc sends it."""
    data = {"message": {"data": "eyJydW4iOiAiY3B1IiwgImFyZ3MiOiB7Im5vdGUiOiAicHVic3ViIn19"}}
    headers = {
        "ce-specversion": "1.0", "ce-type": "google.cloud.pubsub.topic.v1.messagePublished", "ce-source": "//pubsub",
        "ce-id": "42", "Content-Type": "application/json",
    }  # fmt: skip
    with functions.serving(staged, clouds.variables(here), target="on_event") as url:
        for _ in range(2):
            assert requests.post(url, json=data, headers=headers, timeout=60).status_code < 300
    assert with_note(here, "pubsub") == 1


@pytest.mark.whole
def test_fuzzed_with_its_own_document(here: server.RunningServer, staged: Path) -> None:
    """schemathesis, fed with the served OpenAPI document, finds no 5xx and no answer that the document does not know."""
    with functions.serving(staged, clouds.variables(here)) as url:
        run = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", f"--max-examples={300 if LONG else 8}",
             "--phases=coverage,fuzzing",  # of links between the pages there is none to follow
             "--checks=not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
             "--generation-database=none", "--no-color", "--seed=7"],
            capture_output=True, text=True, timeout=550, cwd=staged.parent,
        )  # fmt: skip
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
    tried = re.search(r"(\d+) generated, (\d+) passed", run.stdout)
    assert tried and tried[1] == tried[2] and int(tried[1]) >= 200, run.stdout[-2000:]


@pytest.mark.whole
@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="the pinned packages are for the function's runtime: Python 3.12 or newer"
)
def test_in_a_clean_environment(here: server.RunningServer, staged: Path, tmp_path: Path) -> None:
    """With nothing installed but its own requirements the staged folder serves: a job and its repeat."""
    clean = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(clean)], check=True)
    python = str(clean / "bin/python")
    words = [*pip_install(python), "-r", str(staged / "requirements.txt")]
    installed = subprocess.run(words, capture_output=True, text=True, timeout=400)
    if installed.returncode and not os.environ.get("CI"):
        pytest.skip(f"no package registry can be reached: {installed.stderr.strip().splitlines()[-1]}")
    assert installed.returncode == 0, installed.stderr
    (folder,) = clean.glob("lib/python*/site-packages")
    names = {one.name.lower() for one in distributions(path=[str(folder)])}
    assert not {name for name in names if name in ("vertexrig", "tensorflow") or name.startswith("google-cloud")}
    body = {"run": "sweep", "set": {"max_trial_count": 3}, "args": {"note": "clean"}}
    with functions.serving(staged, clouds.variables(here), python=python) as url:
        first, again = (functions.deliver(url, body) for _ in range(2))
    assert first is not None and again is not None
    assert (first.status_code, again.status_code) == (201, 200), first.text
    assert first.json()["name"] == again.json()["name"] and again.json()["duplicate"]


def test_it_imports_what_it_installs(staged: Path, here: server.RunningServer) -> None:
    """The function loads nothing that its requirements do not name, none of the heavy clients; and the tool is the folder's."""
    script = (
        "import sys, json; import main\n"
        "found = {n.partition('.')[0] for n, one in sys.modules.items() if 'site-packages' in (getattr(one, '__file__', '') or '')}\n"
        "print(json.dumps([sorted(found), sorted(sys.modules), sys.modules['vertexrig.spec.descriptors'].__file__]))"
    )
    env = {"PATH": "", **clouds.variables(here)}
    done = subprocess.run([sys.executable, "-c", script], cwd=staged, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded, modules, tool = json.loads(done.stdout)
    lines = (staged / "requirements.txt").read_text().splitlines()
    named = {"setuptools", "pkg_resources", "_distutils_hack"}
    for name in (line.split("==")[0] for line in lines if "==" in line):
        with suppress(PackageNotFoundError):  # for another platform or Python
            named |= {file.parts[0].partition(".")[0] for file in distribution(name).files or ()}
    assert {name for name in loaded if not name.startswith("__editable__")} <= named
    # Google's libraries share one name; `google.cloud` itself is empty and made at start-up where any of them is installed
    google = {".".join(name.split(".")[1:2]) for name in modules if name.startswith("google.")}
    assert google <= {"_upb", "auth", "oauth2", "cloud", "protobuf"}
    heavy = (
        "google.cloud.storage",
        "google.cloud.aiplatform",
        "google.cloud.scheduler",
        "grpc",
        "google.api_core",
        "proto",
    )
    assert not [name for name in modules if name in heavy or name.startswith(("localvertex", "vertexrig.cli"))]
    assert tool.startswith(str(staged))
