"""`vertexrig local run`, as a real process."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from localvertex import recording as record
from localvertex import server
from localvertex.cli.local import command
from localvertex.cli.run import project_of
from localvertex.front import runs
from localvertex.jobs.settings import Settings
from tests.support.jobkit import IMAGE, Api, container, job, pool, with_trainer
from tests.support.tools import INSTALLED, said, vertexrig
from vertexrig.errors import ServiceError, UsageError

LAUNCH = """
import sys, requests
jobs = "https://us-central1-aiplatform.googleapis.com/v1/projects/my-project/locations/us-central1/customJobs"
pool = {{"machineSpec": {{"machineType": "n1-standard-4"}}, "replicaCount": 1, "pythonPackageSpec": {{
    "executorImageUri": "{image}", "packageUris": ["gs://packages/trainer.tar.gz"], "pythonModule": "trainer.task",
    "args": ["open('/gcs/packages/out/model/weights', 'w').write('w')"]}}}}
made = requests.post(jobs, json={{"displayName": "launched", "jobSpec": {{
    "workerPoolSpecs": [pool], "baseOutputDirectory": {{"outputUriPrefix": "gs://packages/out"}}}}}}).json()
while requests.get(jobs.partition("projects/")[0] + made["name"]).json()["state"] != "JOB_STATE_SUCCEEDED":
    pass
requests.get("https://bigquery.googleapis.com/bigquery/v2/projects/my-project/jobs")
sys.exit(7)
"""


LOCATION = "https://us-central1-aiplatform.googleapis.com/v1/projects/my-project/locations/us-central1"
POSTS = f"""
import json, sys, requests
for kind, body in json.loads(sys.argv[1]):
    requests.post(f"{LOCATION}/{{kind}}", json=body).raise_for_status()
"""


def posting(*requests: tuple[str, dict[str, Any]]) -> list[str]:
    """A program that makes these resources of Vertex AI by its real name: the kind and the body of each."""
    return [sys.executable, "-c", POSTS, json.dumps(requests)]


def custom(name: str, one: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "customJobs", {"displayName": name, "jobSpec": job(one)}


def test_a_server_starts_without_uvloop(tmp_path: Path) -> None:
    """`local run` starts a server and serves a program over its proxy, also where uvloop is not installed."""
    (tmp_path / "uvloop.py").write_text("raise ImportError(name='uvloop')\n")  # Python finds no module of that name
    ask = "import requests; print(requests.get('https://us-central1-aiplatform.googleapis.com/v1/nothing-that-it-has').status_code)"
    done = run(tmp_path / "state", sys.executable, "-c", ask, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "404\n"), done.stderr


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    """A server that runs already."""
    root = tmp_path_factory.mktemp("running") / "state"
    with_trainer(root)
    with server.running(Settings(root)) as running:
        yield running


def run(root: Path, *words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return vertexrig("local", "run", "--root", str(root), "--", *words, cwd=cwd, env={"HOME": str(cwd), **env})


def test_a_command_passes_its_exit_code_and_its_jobs_are_named(here: server.RunningServer, tmp_path: Path) -> None:
    """The exit code is the command's, its stdout is untouched; stderr has its jobs, what was hidden and not served."""
    (tmp_path / "launch.py").write_text(LAUNCH.format(image=IMAGE))
    done = run(here.root, sys.executable, "launch.py", cwd=tmp_path, GOOGLE_APPLICATION_CREDENTIALS="/real/key.json")
    assert (done.returncode, done.stdout) == (7, ""), done.stderr
    hidden, made, wrote, unserved = said(done.stderr)
    assert wrote == f"  outputs: {here.root}/gs/packages/out/model"
    assert hidden == "hidden from the command: GOOGLE_APPLICATION_CREDENTIALS"
    assert made.startswith("created: custom job ") and made.endswith("  launched  SUCCEEDED")
    assert unserved == "not served: bigquery.googleapis.com GET /bigquery/v2/projects/…/jobs"
    assert server.find(here.root) is not None


BUCKETS = """
import requests
storage = "https://storage.googleapis.com/storage/v1/b"
for name in ("never-made", "made-later"):
    assert requests.get(f"{storage}/{name}/o").status_code == 404
requests.post(f"{storage}?project=my-project", json={"name": "made-later"})
"""


def test_a_missing_bucket_explains_itself(here: server.RunningServer, tmp_path: Path) -> None:
    """A bucket that is not there is listed with what makes it, for the command that asked for it."""
    done = run(here.root, sys.executable, "-c", BUCKETS, cwd=tmp_path)
    assert said(done.stderr) == [
        f"the bucket gs://never-made does not exist here. To create it: mkdir -p {here.root}/gs/never-made; to read it from "
        "Google, if it is public: public_buckets: [never-made] under local: in vertexrig.yaml"
    ]
    assert "never-made" not in run(here.root, "/bin/true", cwd=tmp_path).stderr


PIPELINE = {
    "displayName": "piped",
    "trainingTaskDefinition": "gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_1.0.0.yaml",
    "trainingTaskInputs": job(container("example.com/p/i:v1")),
}
ENDS = "import sys\nfor n in range(9): print(n)\nprint('x' * 400)\nsys.exit('\\x1b[2J' + 'data file missing')"
ASTRAY = "import os; folder = 'gs:' + '//bucket/model'; os.makedirs(folder)"
WRITES = "; open(folder + '/m.pkl', 'w').close()"
LOST = (
    "wrote gs://{}model/m.pkl to a folder named 'gs:' in its working directory, as open() does with a gs:// path; on Vertex AI that "
    "is lost with the machine. Write to /gcs/{}model/m.pkl, or with tf.io.gfile, google-cloud-storage or fsspec"
)
REPORTS = """
import os
trial = os.environ["CLOUD_ML_TRIAL_ID"]
open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "a").write('{"accuracy": "1", "global_step": "1"}')
"""


def lost(place: str) -> str:
    return f"workerpool0-0 succeeded, but it {LOST.format(place, place)}"


def python(code: str) -> dict[str, Any]:
    return container(IMAGE, "python", "-c", code)


def study(name: str, code: str, most_failed: int = 0) -> tuple[str, dict[str, Any]]:
    """A tuning job of two trials that run `code`."""
    rate = {"parameterId": "rate", "doubleValueSpec": {"minValue": 0.1, "maxValue": 0.9}}
    metric = {"metricId": "accuracy", "goal": "MAXIMIZE"}
    spec = {"metrics": [metric], "parameters": [rate], "algorithm": "RANDOM_SEARCH"}
    counts = {"maxTrialCount": 2, "parallelTrialCount": 1, "maxFailedTrialCount": most_failed}
    return "hyperparameterTuningJobs", {
        "displayName": name, "trialJobSpec": job(python(code)), "studySpec": spec, **counts,
    }  # fmt: skip


@pytest.fixture(scope="module")
def listed(here: server.RunningServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What a command is told at its end of each job that it made, by display name."""
    in_each_trial = f"import os; folder = 'gs:' + f'//bucket/{{trial}}/model'; os.makedirs(folder){WRITES}"
    fails = "print('weights missing')\nimport sys; sys.exit('unrecognized arguments: ' + trial)"
    words = posting(
        custom("unknown", container("example.com/p/i:v1")),
        ("trainingPipelines", PIPELINE),
        custom("prints", python(ENDS)),
        custom("empty", python(ASTRAY)),
        custom("astray", python(ASTRAY + WRITES)),
        study("trials-astray", f"{REPORTS}\n{in_each_trial}"),
        study("failed", f"{REPORTS}\n{fails}", most_failed=2),
        study("unmeasured", "print('accuracy 0.9')"),
    )
    done = run(here.root, *words, cwd=tmp_path_factory.mktemp("command"))
    assert done.returncode == 0, done.stderr
    blocks: dict[str, list[str]] = {}
    for line in said(done.stderr):
        if line.startswith("created: "):
            block = blocks.setdefault(line.split("  ")[1], [])
        if blocks:
            block.append(line)
    return blocks


def test_a_failure_has_its_reason(here: server.RunningServer, listed: dict[str, list[str]]) -> None:
    """A failed job is listed with its reason and the folder of its logs."""
    made, why, logs = listed["unknown"]
    assert made.endswith("  unknown  FAILED") and why.startswith("  image 'example.com/p/i:v1' cannot be run here")
    assert logs == f"  logs: {here.root}/jobs/{made.split()[3]}/logs"


def test_a_pipeline_and_its_job_are_listed_with_one_error(listed: dict[str, list[str]]) -> None:
    """The error of a training pipeline, which its custom job has too, is listed once."""
    made, why, logs = listed["piped"]
    assert made.endswith("  piped  FAILED") and why.startswith("  image 'example.com/p/i:v1' cannot be run here")
    assert logs.startswith("  logs: ")
    ((job, above),) = (block for name, block in listed.items() if name.startswith("piped-"))
    assert job.startswith("created: custom job ")
    assert above == f"  for its error and logs see {' '.join(made.split()[1:4])}, above"


def test_a_failure_without_a_traceback_shows_the_last_lines(
    here: server.RunningServer, listed: dict[str, list[str]]
) -> None:
    """A job of a container that fails without a traceback is listed with the last lines that it printed, shortened and without control
    characters, and with the folder of its logs.
    """
    made, why, heading, six, seven, eight, long, last, logs = listed["prints"]
    assert made.endswith("  prints  FAILED") and "non-zero status of 1" in why
    assert heading == "  the last lines that it printed:" and [six, seven, eight] == ["    6", "    7", "    8"]
    assert long == f"    {'x' * 299}…" and last == "    \ufffd[2Jdata file missing"
    assert logs == f"  logs: {here.root}/jobs/{made.split()[3]}/logs" and Path(logs.partition(": ")[2]).is_dir()


def test_a_folder_named_gs_fails_no_job(listed: dict[str, list[str]]) -> None:
    """A job with a local folder `gs:` succeeds, as on the service; files in the folder are a warning at the end of the command."""
    (empty,), (made, warning) = listed["empty"], listed["astray"]
    assert empty.endswith("  empty  SUCCEEDED") and made.endswith("  astray  SUCCEEDED")
    assert warning == f"  warning: {lost('bucket/')}."


def test_a_warning_of_trials_is_said_once(listed: dict[str, list[str]]) -> None:
    """A tuning job is listed with each warning of its trials once, although each names its own folder, after the trials that have it."""
    made, warning = listed["trials-astray"]
    assert made.endswith("  trials-astray  SUCCEEDED")
    assert warning == f"  warning: trials 1 and 2: {lost('bucket/1/')}."


def test_a_failed_study_has_the_hint_and_the_last_lines_of_its_trials(
    here: server.RunningServer, listed: dict[str, list[str]]
) -> None:
    """A failed tuning job is listed with the hints of its trials, and with the last lines and the logs of the trial that its error names."""
    made, why, heading, line, last, hint, logs = listed["failed"]
    assert made.endswith("  failed  FAILED") and why.startswith("  2 of 2 ended trials failed")
    trial = why.partition("Trial ")[2][:1]
    assert heading == f"  the last lines that trial {trial} printed:"
    assert [line, last] == ["    weights missing", f"    unrecognized arguments: {trial}"]
    assert hint.startswith("  hint: trials 1 and 2: an argument or a study's parameterId is not a flag of the trainer")
    assert logs.startswith(f"  logs of trial {trial}: {here.root}/jobs/") and Path(logs.partition(": ")[2]).is_dir()


def test_a_study_without_a_result_says_why(listed: dict[str, list[str]]) -> None:
    """A tuning job that succeeded while none of its trials reported the metric is listed with the metric and the reason of its trials."""
    made, warning = listed["unmeasured"]
    assert made.endswith("  unmeasured  SUCCEEDED")
    assert warning.startswith(
        "  warning: no trial reported a usable value of 'accuracy', so the study has no best trial; trials 1 and 2: The trainer wrote "
        "no metric file"
    )


def test_strict_gs_fails_a_job_that_writes_to_a_folder_named_gs(tmp_path: Path) -> None:
    """With --strict-gs, a file in a local folder `gs:` fails the job, and an empty folder does not."""
    words = posting(custom("empty", python(ASTRAY)), custom("astray", python(ASTRAY + WRITES)))
    root = str(tmp_path / "state")
    done = vertexrig("local", "run", "--strict-gs", "--root", root, "--", *words, cwd=tmp_path)
    for end in ("  empty  SUCCEEDED\n", "  astray  FAILED\n", lost("bucket/")):
        assert done.stderr.count(end) >= 1, done.stderr


ASKS = """
import contextlib, requests
from google.cloud import aiplatform_v1beta1
with contextlib.suppress(requests.exceptions.ProxyError):
    requests.get("https://asked-by-one.example.net")
requests.get("https://bigquery.googleapis.com/bigquery/v2/asked-by-one")
requests.get("https://storage.googleapis.com/storage/v1/b/asked-by-one/o")
client = aiplatform_v1beta1.FeaturestoreServiceClient(client_options={"api_endpoint": "us-central1-aiplatform.googleapis.com"})
with contextlib.suppress(Exception):
    client.list_entity_types(parent="projects/p/locations/us-central1/featurestores/f")
"""


def test_what_another_command_asked_for_in_vain_is_not_named(tmp_path: Path) -> None:
    """Of two commands on one server each is told what it asked for itself, however the other one has asked meanwhile."""
    root = tmp_path / "state"
    (tmp_path / "asks.py").write_text(ASKS)
    with server.running(Settings(root), grpc=True):
        inner = [sys.executable, "-m", "vertexrig", "local", "run", "--root", str(root), "--"]
        words = shlex.join([*inner, sys.executable, "asks.py"])
        done = run(root, "sh", "-c", f"{words} 2>inner", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    found = (tmp_path / "inner").read_text()
    assert found.count("asked-by-one") == 3 + 2 and "FeaturestoreService/ListEntityTypes" in found, found


SUBMITS = LAUNCH[: LAUNCH.index("while")].replace("open(", "import time; time.sleep(3); open(")


@pytest.mark.whole
def test_jobs_that_the_command_leaves_are_waited_for(tmp_path: Path) -> None:
    """A command that submits and exits has its job run to the end; with --no-wait it has not, and the line shown goes on with it."""
    root = tmp_path / "a state"
    with_trainer(root)
    (tmp_path / "submit.py").write_text(SUBMITS.format(image=IMAGE))
    done = run(root, sys.executable, "submit.py", cwd=tmp_path)
    assert done.returncode == 0 and server.find(root) is None, done.stderr
    made = [line for line in done.stderr.splitlines() if line.startswith("created: ")]
    assert len(made) == 1 and made[0].endswith("  launched  SUCCEEDED") and "launched  RUNNING" in done.stderr
    options = ["--no-wait", "--cold", "--discrete", "whole"]
    words = ["local", "run", *options, "--root", str(root), "--", sys.executable, "submit.py"]
    left = vertexrig(*words, cwd=tmp_path, env={"HOME": str(tmp_path)})
    resume = said(left.stderr)[-1]
    assert left.returncode == 0 and resume.endswith(
        f"local up --cold --discrete whole --gs-paths kept --root '{root}'"
    ), left.stderr
    here = server.up(Settings(root), 0)
    try:
        jobs = Api(here.url).call("GET", "customJobs").json()["customJobs"]
        assert Api(here.url).wait(jobs[0]["name"])["state"] == "JOB_STATE_SUCCEEDED" and len(jobs) == 2
    finally:
        server.down(root)


BY_EVERY_WAY = """
import http.client, json, os, sys
from google.cloud.aiplatform_v1 import JobServiceClient
from google.cloud.aiplatform_v1.types import CustomJob

host, parent = "us-central1-aiplatform.googleapis.com", "projects/my-project/locations/us-central1"
body = json.load(open("job.json"))
for way in ("grpc", "rest"):
    jobs = JobServiceClient(transport=way, client_options={"api_endpoint": host})
    jobs.create_custom_job(parent=parent, custom_job=CustomJob.from_json(json.dumps({**body, "displayName": way})))
for way, link, prefix in (
    ("name", http.client.HTTPSConnection(host), ""),
    ("own", http.client.HTTPConnection(os.environ["VERTEXRIG_LOCAL"].partition("//")[2]), "/vertex"),
):
    link.request("POST", f"{prefix}/v1/{parent}/customJobs", json.dumps({**body, "displayName": way}))
    assert link.getresponse().status == 200
print("made", flush=True)
"""


@pytest.mark.whole
def test_a_command_waits_for_its_own_jobs_alone(tmp_path: Path) -> None:
    """Of two commands on one server each lists and waits for the jobs that it made, over gRPC, REST, by name and by gcloud."""
    root, go = with_trainer(tmp_path / "state"), tmp_path / "go"
    waits = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.1)"
    (tmp_path / "job.json").write_text(json.dumps({"jobSpec": job(pool(waits))}))
    (tmp_path / "short.json").write_text(json.dumps(job(pool("pass"))))
    (tmp_path / "make.py").write_text(BY_EVERY_WAY)
    create = "gcloud ai custom-jobs create --region us-central1 --display-name gcloud --config short.json"
    own = [sys.executable, "-m", "vertexrig", "local", "run", "--root", str(root), "--"]
    env = {**os.environ, "PYTHONPATH": str(INSTALLED), "HOME": str(tmp_path)}
    pipes: dict[str, Any] = {"stdin": -1, "stdout": -1, "stderr": -1, "text": True, "cwd": tmp_path, "env": env}
    with server.running(Settings(root, slots=8), grpc=True), ExitStack() as ends:
        first = ends.enter_context(subprocess.Popen([*own, "sh", "-c", f"echo up; read line; {create}"], **pipes))
        ends.callback(first.kill)
        assert first.stdout.readline() == "up\n"
        second = ends.enter_context(subprocess.Popen([*own, sys.executable, "make.py"], **pipes))
        ends.callback(second.kill)
        ends.callback(go.touch)
        assert second.stdout.readline() == "made\n", second.stderr.read()
        told = first.communicate("go\n", timeout=60)[1]
        assert [line.split()[-2:] for line in told.splitlines() if line.startswith("created: ")] == [
            ["gcloud", "SUCCEEDED"]
        ]
        assert second.poll() is None
        go.touch()
        told = second.communicate(timeout=60)[1]
    made = [line.split()[-2:] for line in told.splitlines() if line.startswith("created: ")]
    assert made == [[way, "SUCCEEDED"] for way in ("grpc", "rest", "name", "own")], told


def test_ports_of_commands_that_have_ended_are_closed(here: server.RunningServer) -> None:
    """The ports of a command stay while its process lives, and for a while after; a process that is none is refused."""
    with subprocess.Popen(["true"]) as ended:
        pass
    own = server.call(here, "POST", "/v1/runs", {"process": os.getpid()})["ports"]
    old = [server.call(here, "POST", "/v1/runs", {"process": ended.pid})["ports"] for _ in range(runs.KEPT + 2)]
    for port in (*own, *old[1]):
        socket.create_connection(("127.0.0.1", port), 5).close()
    for port in old[0]:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)
    for wrong in (0, 2**31, "1", None, True):
        with pytest.raises(ServiceError, match="It is the id of a process"):
            server.call(here, "POST", "/v1/runs", {"process": wrong})


def test_words_of_the_command_are_its_own(here: server.RunningServer, tmp_path: Path) -> None:
    """Options after the command belong to it, with and without `--`; one that a signal ended gives 128 and its number."""
    assert run(here.root, "echo", "--file", "x", cwd=tmp_path).stdout == "--file x\n"
    same = vertexrig("local", "run", "--root", str(here.root), "echo", "--root", "y", cwd=tmp_path)
    assert same.stdout == "--root y\n"
    assert run(here.root, "sh", "-c", "kill -9 $$", cwd=tmp_path).returncode == 137
    absent = run(here.root, "no-such-program", cwd=tmp_path)
    assert absent.returncode == 2 and "there is no program 'no-such-program'" in absent.stderr


def test_a_signal_that_is_ignored_stays_so(here: server.RunningServer, tmp_path: Path) -> None:
    """Under nohup the command goes on when the terminal is closed, as it would without `local run`."""
    own = [sys.executable, "-m", "vertexrig", "local", "run", "--root", str(here.root), "--"]
    words = ["nohup", *own, "sh", "-c", "kill -HUP $$; echo went on"]
    env = {**os.environ, "PYTHONPATH": str(INSTALLED)}
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr


@pytest.mark.whole
def test_without_a_server_one_is_started_and_stopped_by_the_last_command(tmp_path: Path) -> None:
    """A command starts the server; another one that still runs when it ends keeps it, and stops it."""
    root = tmp_path / "state"
    waiting = "echo up; read line; curl -s $VERTEXRIG_LOCAL/local/v1/status"
    argv = [sys.executable, "-m", "vertexrig", "local", "run", "--root", str(root), "--", "sh", "-c", waiting]
    env = {**os.environ, "PYTHONPATH": str(INSTALLED)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": tmp_path, "env": env}
    try:
        with subprocess.Popen(argv, **pipes) as first, subprocess.Popen(argv, **pipes) as second:  # type: ignore[call-overload]
            for process in (first, second):
                assert process.stdout.readline() == "up\n"
            here = server.find(root)
            assert here is not None
            for process, left in ((first, True), (second, False)):
                status = json.loads(process.communicate("go\n", timeout=60)[0])
                assert status["url"] == here.url and process.returncode == 0
                assert (server.find(root) is not None) is left
    finally:
        server.down(root)


@pytest.mark.parametrize(
    ("moment", "number", "code"),
    [("before", signal.SIGTERM, 143), ("while", signal.SIGTERM, 143), ("after", signal.SIGINT, 5)],
)
def test_signals_are_passed_on(
    here: server.RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, number: int, code: int
) -> None:
    """A signal as the command is being started or runs reaches it, and its own end counts; one just before leaves it unstarted."""
    start, set_handler = subprocess.Popen, signal.signal

    def interrupted(argv: list[str], **options: Any) -> subprocess.Popen[bytes]:
        process = start(argv, **options)
        if argv[0] == "sh":
            os.kill(os.getpid(), number)
        return process

    def handled(one: int, handler: Any, install: Any = signal.signal) -> Any:
        before = install(one, handler)
        if one == signal.SIGHUP and callable(handler):  # the last of them to be caught
            os.kill(os.getpid(), number)
        return before

    def once_it_runs() -> None:
        while not (tmp_path / "ready").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    monkeypatch.setattr("localvertex.cli.run._in_foreground", lambda: False)
    if moment == "before":
        monkeypatch.setattr(signal, "signal", handled)
    elif moment == "while":
        monkeypatch.setattr(subprocess, "Popen", interrupted)
    else:
        threading.Thread(target=once_it_runs, daemon=True).start()
    script = "trap 'exit 5' INT; touch ready; sleep 20 & wait; touch ended"
    monkeypatch.chdir(tmp_path)
    given = set_handler(signal.SIGHUP, signal.SIG_DFL)  # a run of tests under nohup ignores it
    try:
        words = ["run", "--root", str(here.root), "--", "sh", "-c", script]
        done = CliRunner().invoke(command, words, catch_exceptions=False)
    finally:
        set_handler(signal.SIGHUP, given)
    assert done.exit_code == code and not (tmp_path / "ended").exists(), done.stderr


def test_long_bodies_are_recorded_by_their_size(tmp_path: Path) -> None:
    """Of a body longer than is recorded the recorder keeps no more than that, and writes its size."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200})
        for body, more in ((b"x" * record.MOST_BYTES, True), (b"xyz", False)):
            await send({"type": "http.response.body", "body": body, "more_body": more})

    asked = iter([(b"a" * record.MOST_BYTES, True)] * 32 + [(b"z", False)])

    async def receive() -> dict[str, Any]:
        body, more = next(asked)
        return {"type": "http.request", "body": body, "more_body": more}

    async def send(message: Any) -> None:
        pass

    scope = {"type": "http", "method": "PUT", "path": "/b/o", "query_string": b""}
    tracemalloc.start()
    asyncio.run(record.CallRecorder(app, tmp_path / "seen.jsonl", {})(scope, receive, send))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    (line,) = map(json.loads, (tmp_path / "seen.jsonl").read_text().splitlines())
    most = record.MOST_BYTES
    assert (line["request"]["body"], line["answer"]["body"]) == (f"<{32 * most + 1} bytes>", f"<{most + 3} bytes>")
    assert peak < 16 * most


def test_a_run_is_recorded(here: server.RunningServer, tmp_path: Path) -> None:
    """`--record` keeps what the command asked and was answered, without ids; a server that runs already is left alone. A job that the
    command has deleted is listed with its end.
    """
    with_trainer(tmp_path / "state")
    deletes = 'requests.delete(jobs.partition("projects/")[0] + made["name"]).raise_for_status()'
    (tmp_path / "launch.py").write_text(f"{LAUNCH.format(image=IMAGE).replace('sys.exit(7)', deletes)}\nsys.exit(7)\n")
    words = ("local", "run", "--record", "seen.jsonl", "--root")
    done = vertexrig(*words, "state", "--", sys.executable, "launch.py", cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert done.returncode == 7, done.stderr
    text = (tmp_path / "seen.jsonl").read_text()
    assert '"POST"' in text and "customJobs" in text and "JOB_STATE_SUCCEEDED" in text
    made = next(line for line in done.stderr.splitlines() if line.startswith("created: custom job "))
    assert made.endswith("  launched  SUCCEEDED, deleted") and made.split()[3] not in text
    refused = vertexrig(*words, str(here.root), "--", "true", cwd=tmp_path)
    assert refused.returncode == 2 and "already running" in refused.stderr and "Traceback" not in refused.stderr


def test_faults_are_of_the_server_that_a_command_starts(here: server.RunningServer, tmp_path: Path) -> None:
    """`local run --fault` refuses the command's job as the service does; a server that runs already keeps its own faults."""
    asks = LAUNCH[: LAUNCH.index(".json()")].replace("made = ", "made = print(") + ".status_code)"
    (tmp_path / "asks.py").write_text(asks.format(image=IMAGE))
    words = ("local", "run", "--fault", "quota:n1-*", "--root")
    done = vertexrig(*words, str(tmp_path / "state"), "--", sys.executable, "asks.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "429\n"), done.stderr
    done = vertexrig(*words, str(here.root), "--", sys.executable, "asks.py", cwd=tmp_path)
    assert done.returncode == 2 and "--fault needs a new server, but a local Vertex is already running" in done.stderr


def test_exports_for_a_shell(here: server.RunningServer, tmp_path: Path) -> None:
    """`local env --transparent` gives a shell what `local run` gives a command, and removes what is in the way."""
    script = (
        f'eval "$({sys.executable} -m vertexrig local env --transparent --root {here.root})"\n'
        f"{sys.executable} -c \"import requests; print(requests.get('https://storage.googleapis.com/storage/v1/b?project=p').json()['kind'])\"\n"
        'echo "${STORAGE_EMULATOR_HOST-none}"'
    )
    env = {**os.environ, "PYTHONPATH": str(INSTALLED), "STORAGE_EMULATOR_HOST": "http://elsewhere"}
    done = subprocess.run(["sh", "-c", script], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == "storage#buckets\nnone\n", done.stderr


def test_down_forgets_on_request(tmp_path: Path) -> None:
    """`local down --forget` removes the authority and all state, and no folder that is something else."""
    root = tmp_path / "state"
    with server.running(Settings(root)):
        assert (root / "front/ca.key").is_file()
    done = CliRunner().invoke(command, ["down", "--root", str(root), "--forget"], catch_exceptions=False)
    assert done.exit_code == 0 and f"deleted the state in {root}" in done.stderr and not root.exists()
    (tmp_path / "mine/jobs").mkdir(parents=True)
    (tmp_path / "mine/jobs/thesis").touch()
    with pytest.raises(UsageError, match="is not the state of a local Vertex"):
        CliRunner().invoke(command, ["down", "--root", str(tmp_path / "mine"), "--forget"], catch_exceptions=False)
    assert (tmp_path / "mine/jobs/thesis").exists()


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_closing_lines_have_no_probes(here: server.RunningServer, tmp_path: Path) -> None:
    """After a gcloud command that worked, stderr names no request that gcloud made only to look for a metadata server."""
    done = run(here.root, "gcloud", "storage", "ls", cwd=tmp_path)
    assert done.returncode == 0 and said(done.stderr) == [], done.stderr
    refused = "import requests; requests.get('https://elsewhere.example')"
    assert "refused: elsewhere.example is not " in run(here.root, sys.executable, "-c", refused, cwd=tmp_path).stderr


@pytest.mark.parametrize(
    ("user", "project"),
    [
        ({"GOOGLE_CLOUD_PROJECT": "of-variable", "CLOUDSDK_CORE_PROJECT": "of-gclouds"}, "of-variable"),
        ({"CLOUDSDK_CORE_PROJECT": "of-gclouds"}, "of-gclouds"),
        ({}, "of-work"),
        ({"CLOUDSDK_ACTIVE_CONFIG_NAME": "home"}, "of-home"),
        ({"CLOUDSDK_ACTIVE_CONFIG_NAME": "none"}, "local-project"),
        ({"CLOUDSDK_ACTIVE_CONFIG_NAME": "broken"}, "local-project"),
    ],
)
def test_the_project_without_a_project_file(tmp_path: Path, user: dict[str, str], project: str) -> None:
    """It is the one that Google's libraries would take: of a variable, or of gcloud's active configuration."""
    folder = tmp_path / "configurations"
    folder.mkdir()
    (tmp_path / "active_config").write_text("work\n")
    for name, text in {
        "work": "[core]\nproject = of-work\n",
        "home": "[core]\nproject = of-home\n",
        "broken": "project",
    }.items():
        (folder / f"config_{name}").write_text(text)
    assert project_of(None, {"CLOUDSDK_CONFIG": str(tmp_path), **user}) == project
