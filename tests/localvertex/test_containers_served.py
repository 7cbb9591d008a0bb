"""Images run as themselves on a server: Google's clients inside, studies, and what is left when somebody ends it."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions, engine
from tests.localvertex.test_containers import python, spec
from tests.support.engines import BASE, left, podman
from tests.support.jobkit import Api, job
from tests.support.tools import need, vertexrig
from tools import own_podman

pytestmark = pytest.mark.usefixtures("containers")
SITE = "/gcs/site"
FETCH = Path(__file__).parents[1] / "clients/programs/Fetch.java"


def packages(target: Path, *names: str) -> None:
    """Put distributions of this Python, and what they require, into a folder, compiled: an SDK that each process compiles anew
    takes it 10 s.
    """
    wanted, seen = [*names], set[str]()
    while wanted:
        name = re.split(r"[^\w.-]", wanted.pop())[0].lower()
        try:
            one = importlib.metadata.distribution(name) if name not in seen else None
        except importlib.metadata.PackageNotFoundError:
            one = None
        seen.add(name)
        if one is None:
            continue
        wanted += [line for line in one.requires or () if "extra ==" not in line]
        for file in one.files or ():
            source, copy = Path(str(one.locate_file(file))), target / file
            if ".." in file.parts or not source.is_file() or copy.exists():
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
            if source.suffix == ".py" and (compiled := Path(importlib.util.cache_from_source(source))).exists():
                (copy.parent / "__pycache__").mkdir(exist_ok=True)
                shutil.copy2(compiled, copy.parent / "__pycache__")


@pytest.fixture
def here(tmp_path: Path, containers: Path) -> Iterator[server.RunningServer]:
    """A server that runs images by podman, with a bucket."""
    (tmp_path / "state/gs/bucket").mkdir(parents=True)
    options = RunOptions(engine="podman", keep_gs=True, grace=0.5, project="my-project")
    with server.running(Settings(tmp_path / "state", options=options, checks=False), grpc=True) as running:
        yield running
    assert not left(running.root)


def ended(here: server.RunningServer, *pools: dict[str, Any], **fields: Any) -> tuple[dict[str, Any], str]:
    """A job that was run to its end, and what its first replica said."""
    api = Api(here.url)
    made = api.wait(api.create(job(*pools, **fields))["name"])
    log = here.root / "jobs" / made["name"].rpartition("/")[2] / "logs/workerpool0-0.log"
    return made, log.read_text() if log.exists() else ""


CLIENTS = """
import os, sys
sys.path.append("/gcs/site")
import requests
from google.cloud import aiplatform, storage
assert os.environ["AIP_MODEL_DIR"] == "gs://bucket/out/model/" and sys.argv[1] == "gs://bucket/in"
storage.Client().bucket("bucket").blob("by-sdk").upload_from_string("x")
print("file", open("/gcs/bucket/by-sdk").read())
aiplatform.init(project="my-project", location="us-central1")
print("jobs", len(aiplatform.CustomJob.list()))
meta = requests.get("http://metadata.google.internal/computeMetadata/v1/project/project-id", headers={"Metadata-Flavor": "Google"})
print("project", meta.text)
import urllib.request
print("urllib", urllib.request.urlopen("https://storage.googleapis.com/bucket/by-sdk").read())
try:
    requests.get("https://example.com", timeout=10)
except OSError as error:
    print("refused", "not a host of Google" in str(error) or "403" in str(error))
"""


@pytest.mark.whole
def test_google_s_clients_inside(here: server.RunningServer, tmp_path: Path) -> None:
    """The SDK, google-cloud-storage, requests and urllib reach the local APIs and the metadata server, as an image's own user, and no
    other host.
    """
    packages(here.root / "gs/site", "google-cloud-aiplatform", "requests")
    (tmp_path / "Dockerfile").write_text(f"FROM {BASE}\nUSER trainer\n")
    image = "localhost/clients:1"
    podman("build", "--tag", image, str(tmp_path))
    pool = python(CLIENTS, "gs://bucket/in", image=image)
    made, said = ended(here, pool, baseOutputDirectory={"outputUriPrefix": "gs://bucket/out"})
    assert made["state"] == "JOB_STATE_SUCCEEDED", (made.get("error"), said)
    for line in ("file x", "jobs 1", "project my-project", "urllib b'x'", "refused True"):
        assert line in said


def test_curl_inside(here: server.RunningServer) -> None:
    """Curl reaches Google's hosts by their names, trusts the local certificates, and is refused another host."""
    (here.root / "gs/bucket/object").write_text("by curl")
    line = "curl -sSf https://storage.googleapis.com/bucket/object; echo; curl -sS https://example.com || echo refused"
    _made, said = ended(here, spec("sh", "-c", line))
    assert "by curl" in said and "refused" in said, said


@pytest.fixture
def of_language(tmp_path: Path, containers: Path) -> Callable[[str], tuple[str, list[str]]]:
    """Makes an image with this machine's Java or Node on the base image, and the words that print what a URL answers."""

    def made(language: str) -> tuple[str, list[str]]:
        folder = tmp_path / language
        (folder / "root/opt").mkdir(parents=True)
        if language == "java":
            run = functools.partial(subprocess.run, check=True, capture_output=True)
            modules = "--add-modules=java.net.http,jdk.crypto.ec"
            run([need("jlink"), modules, f"--output={folder}/root/opt/jre"])
            run([need("javac"), "-d", f"{folder}/root/opt", str(FETCH)])
            binaries = [folder / "root/opt/jre/bin/java", *folder.glob("root/opt/jre/lib/**/*.so")]
            words = ["/opt/jre/bin/java", "-cp", "/opt", "Fetch"]
        else:
            binaries = [Path(shutil.copy(need("node"), folder / "root/opt/node"))]
            words = ["/opt/node", "-e", "fetch(process.argv[1]).then((r) => r.text()).then(console.log)"]
        for library in own_podman.libraries(binaries):
            target = folder / "root" / str(library).lstrip("/")
            if folder not in library.parents and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, target)
        (folder / "Dockerfile").write_text(f"FROM {BASE}\nCOPY root /\n")
        podman("build", "--tag", f"localhost/{language}:1", str(folder))
        return f"localhost/{language}:1", words

    return made


@pytest.mark.whole
@pytest.mark.parametrize("language", ["java", "node"])
def test_other_languages_inside(
    here: server.RunningServer, of_language: Callable[[str], tuple[str, list[str]]], language: str
) -> None:
    """Java's and Node's own clients reach Google's hosts by their names and trust the local certificates."""
    image, words = of_language(language)
    (here.root / "gs/bucket/object").write_text(f"by {language}")
    made, said = ended(here, spec(*words, "https://storage.googleapis.com/bucket/object", image=image))
    assert made["state"] == "JOB_STATE_SUCCEEDED" and f"by {language}" in said, said


def test_a_study_runs_its_trials_in_containers(here: server.RunningServer) -> None:
    """Trials run in parallel, each in its container, and report their metrics."""
    code = (
        "import json, os, sys, time; began = time.time(); time.sleep(1)\n"
        "rate = float(sys.argv[1].partition('=')[2])\n"
        "report = {'timestamp': time.time(), 'trial': os.environ['CLOUD_ML_TRIAL_ID'], 'loss': str(rate), 'global_step': '1', 'checkpoint_path': ''}\n"
        "open(os.environ['CLOUD_ML_HP_METRIC_FILE'], 'w').write(json.dumps(report) + '\\n')\n"
        "open('/gcs/bucket/trial-' + os.environ['CLOUD_ML_TRIAL_ID'], 'w').write(f'{began} {time.time()}')\n"
    )
    body = {
        "displayName": "study",
        "maxTrialCount": 2,
        "parallelTrialCount": 2,
        "studySpec": {
            "metrics": [{"metricId": "loss", "goal": "MINIMIZE"}],
            "parameters": [{"parameterId": "rate", "doubleValueSpec": {"minValue": 0.1, "maxValue": 1}}],
        },
        "trialJobSpec": {"workerPoolSpecs": [python(code)]},
    }
    api = Api(here.url)
    made = api.call("POST", "hyperparameterTuningJobs", json=body).json()
    done = api.wait(made["name"])
    assert done["state"] == "JOB_STATE_SUCCEEDED" and len(done["trials"]) == 2, done
    assert all(trial["finalMeasurement"]["metrics"] for trial in done["trials"])
    spans = sorted(tuple(map(float, path.read_text().split())) for path in here.root.glob("gs/bucket/trial-*"))
    assert any(second[0] < first[1] for first, second in itertools.pairwise(spans))


def started(root: Path, **options: Any) -> subprocess.Popen[str]:
    """A server as a process, with its output."""
    words = [sys.executable, "-m", "vertexrig", "local", "up", "--root", str(root), "--port", "0", "--engine", "podman"]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True, **options)


def until(what: Callable[[], Any], seconds: float = 90) -> Any:
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.1)
    return found


SLEEPS = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('begun', flush=True); time.sleep(300)"
)


@pytest.mark.parametrize("end", ["ctrl-c", "kill", "kill all"])
def test_nothing_is_left_when_the_server_ends(tmp_path: Path, end: str) -> None:
    """Containers end with their server: after Ctrl-C, after kill -9, and, once the next server starts, where every process
    that watched them was killed, too.
    """
    root = tmp_path / "state"
    process = started(root)
    here = until(lambda: server.find(root))
    api = Api(here.url)
    made = api.create(job(python(SLEEPS), python(SLEEPS)))
    until(lambda: len(podman("ps", "--quiet", "--filter", f"label={engine.ROOT_LABEL}={root}").stdout.split()) == 2)
    if end == "ctrl-c":
        process.send_signal(signal.SIGINT)
        process.wait(60)
    elif end == "kill":
        process.kill()
    else:
        process.send_signal(signal.SIGSTOP)  # so that it sees none of the other ends
        id_ = made["name"].rpartition("/")[2]
        for pid in [int(name) for name in os.listdir("/proc") if name.isdecimal()]:
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if b"supervisor.py" in words and f"vertexrig-{id_}".encode() in words:
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()  # or it would still be a process
        assert left(root)
        again = started(root)
        until(lambda: (found := server.find(root)) and found.pid != process.pid and found)
        # the job is taken up again, in new containers
        owner = f"label={engine.OWNER_LABEL}={process.pid}"
        until(lambda: not podman("ps", "--all", "--quiet", "--filter", owner).stdout.split())
        again.send_signal(signal.SIGINT)
        again.wait(60)
    until(lambda: not left(root))


def test_status_and_doctor_say_what_runs_images(here: server.RunningServer, tmp_path: Path) -> None:
    """`local status` names the engine of a server, and `doctor` that of the project file, with the reason where there is none."""
    (tmp_path / "vertexrig.yaml").write_text("project: my-project\nlocal: {engine: nerdctl}\n")
    shown = vertexrig("local", "status", "--root", str(here.root), cwd=tmp_path, env=dict(os.environ)).stdout
    assert re.search(r"^images are run by podman [45]", shown, re.MULTILINE), shown
    asked = vertexrig("doctor", "--format", "json", cwd=tmp_path, env=dict(os.environ))
    found = next(one for one in json.loads(asked.stdout)["results"] if one["name"] == "images")
    assert found["message"] == "stand-ins run in place of images: no engine answers (nerdctl: not installed)"
