"""The server over HTTP: jobs and their listing, errors in the service's words, faults, life and death of the server."""

from __future__ import annotations

import html
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from localvertex.runner.lines import Line, LogFiles
from tests.support.jobkit import Api, job, pool, with_trainer
from vertexrig.errors import ServiceError, UsageError
from vertexrig.project.local import LocalImage

WAIT = "print('up', flush=True)\nimport time; time.sleep(600)"
QUICK = RunOptions(grace=0.5)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    """A server that the tests of this module share."""
    root = tmp_path_factory.mktemp("local")
    with_trainer(root)
    with server.running(Settings(root, slots=8, options=QUICK)) as running:
        yield running


@pytest.fixture
def api(here: server.RunningServer) -> Api:
    return Api(here.url)


def wait_for_text(path: Path, text: str, times: int) -> None:
    """Wait until a file holds a text so often."""
    until = time.monotonic() + 60
    while not path.is_file() or path.read_text().count(text) < times:
        assert time.monotonic() < until, path
        time.sleep(0.05)


def message(answer: httpx.Response) -> str:
    assert answer.headers["content-type"] == "application/json; charset=UTF-8"
    return str(answer.json()["error"]["message"])


def test_what_is_made_is_asked_for_as_the_sdk_does(api: Api) -> None:
    """An upload's first answer is of an operation that has begun, which is done where the SDK looks, at its model and below /ui/; and enums
    are numbers where a client wants them so.
    """
    begun = api.call("POST", "models:upload", json={"model": {"displayName": "m"}}).json()
    assert list(begun) == ["name", "metadata"] and "/models/" in begun["name"]
    ended = api.call("GET", f"/vertex/ui/{begun['name']}").json()
    assert (
        ended["done"]
        and ended["metadata"]["genericMetadata"]["updateTime"] > ended["metadata"]["genericMetadata"]["createTime"]
    )
    model = ended["response"]["model"]
    sources = [
        api.get(f"{model}{tail}")["modelSourceInfo"]["sourceType"] for tail in ("", "?$alt=json;enum-encoding=int")
    ]
    assert sources == ["CUSTOM", 2]
    assert api.get(f"{model}@default")["name"] == f"{model}@1"
    assert api.call("DELETE", f"/vertex/v1/{model}").json()["done"]


def test_a_job_goes_from_queued_to_succeeded(api: Api) -> None:
    """A created job has the service's fields, runs, and ends with its times set; int64 comes back as text, an enum sent as a number by its name."""
    spec = job(pool("print('hello')", acceleratorType=5, acceleratorCount="1"))
    made = api.create(spec, name="first", labels={"team": "vision"})
    assert made["state"] == "JOB_STATE_PENDING"
    assert made["jobSpec"]["workerPoolSpecs"][0]["diskSpec"] == {"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100}
    kind, number = made["name"].split("/")[-2:]
    assert kind == "customJobs" and number.isdigit() and made["name"].split("/")[1].isdigit()
    assert made["jobSpec"]["workerPoolSpecs"][0]["replicaCount"] == "1"
    assert made["jobSpec"]["workerPoolSpecs"][0]["machineSpec"]["acceleratorType"] == "NVIDIA_TESLA_T4"
    done = api.wait(made["name"])
    assert done["state"] == "JOB_STATE_SUCCEEDED" and "error" not in done
    assert done["createTime"] <= done["startTime"] <= done["endTime"] and done["labels"] == {"team": "vision"}


def test_cancel_and_delete(api: Api) -> None:
    """A running job cancels; only then can it be deleted, by an operation that is done and can be looked up."""
    name = api.create(job(pool(WAIT)))["name"]
    api.wait(name, "JOB_STATE_RUNNING")
    refused = api.call("DELETE", f"/vertex/v1/{name}")
    assert refused.status_code == 400 and refused.json()["error"]["status"] == "FAILED_PRECONDITION"
    assert api.call("POST", f"/vertex/v1/{name}:cancel", json={}).json() == {}
    done = api.wait(name)
    assert done["state"] == "JOB_STATE_CANCELLED" and done["error"] == {"code": 1, "message": "CANCELED"}
    operation = api.call("DELETE", f"/vertex/v1/{name}").json()
    assert operation["done"] is True and api.get(operation["name"]) == operation
    assert api.call("GET", f"/vertex/v1/{name}").status_code == 404
    assert api.call("POST", f"/vertex/v1/{name}:cancel", json={}).status_code == 404


def test_the_image_of_a_package(api: Api) -> None:
    """A name that no prebuilt image can have is refused; one of a version that our list does not have may be newer than the list."""
    body = job(pool("pass"))
    package = body["workerPoolSpecs"][0]["pythonPackageSpec"]
    for image, ok in (("tf-cpu.99-1.py399", True), ("tf-cpu.2-17.py399", False), ("tensorflow-cpu.99-1", False)):
        package["executorImageUri"] = uri = f"us-docker.pkg.dev/vertex-ai/training/{image}:latest"
        answer = api.call("POST", "customJobs", json={"displayName": "x", "jobSpec": body})
        assert answer.status_code == (200 if ok else 400), answer.text
        if not ok:
            assert answer.json()["error"]["message"] == f'Image "{uri}" is not supported.'


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"displayName": "x", "jobSpecc": {}}, "Invalid JSON payload received. Unknown name \"jobSpecc\" at 'custom_job': Cannot find field."),
    ({"displayName": "x", "jobSpec": {"workerPoolSpecs": [{"machineSpec": {"machinetype": "n1"}}]}},
     "Unknown name \"machinetype\" at 'custom_job.job_spec.worker_pool_specs[0].machine_spec': Cannot find field."),
    ({"displayName": "x", "jobSpec": {"workerPoolSpecs": [{"machineSpec": {"acceleratorType": "NVIDIA_BOGUS"}}]}},
     "Invalid value at 'custom_job.job_spec.worker_pool_specs[0].machine_spec.accelerator_type' (type.googleapis.com/google.cloud.aiplatform.v1.AcceleratorType), \"NVIDIA_BOGUS\""),
    ({"displayName": "x", "jobSpec": {}}, "List of found errors:\t1.Field: job_spec.worker_pool_specs; Message: "),
    ({"displayName": "x", "jobSpec": 3}, "Invalid value at 'custom_job.job_spec'"),
    ({"jobSpec": job(pool("pass"))}, "List of found errors:\t1.Field: display_name; Message: Display name is required.\t"),
    ({"displayName": "x", "labels": {"Team": "a"}, "jobSpec": job(pool("pass"))}, "1.Field: labels; Message: There can be no more than 64"),
    ({"displayName": 3, "jobSpec": job(pool("pass"))}, "Invalid value at 'custom_job.display_name' (TYPE_STRING), 3"),
    ({"displayName": "x", "jobSpec": job(pool("pass", acceleratorType="NVIDIA_TESLA_T4", acceleratorCount=3))},
     "List of found errors:\t1.Field: job_spec.worker_pool_specs[0].machine_spec.accelerator_count; Message: "),
    ({"displayName": "x", "jobSpec": job(pool("pass", "x" * 100_000))},
     "1.Field: job_spec.worker_pool_specs[0].python_package_spec.args; Message: Container args should contain less than 100k characters\t"),
]  # fmt: skip


@pytest.mark.parametrize("body, said", REFUSALS, ids=range(len(REFUSALS)))
def test_refusals(api: Api, body: dict[str, Any], said: str) -> None:
    """What the service would refuse is refused with 400 INVALID_ARGUMENT in its words."""
    answer = api.call("POST", "customJobs", json=body)
    assert answer.status_code == 400 and answer.json()["error"]["status"] == "INVALID_ARGUMENT"
    assert said in message(answer)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{bad}", "Expected an object key or }.\n{bad}\n ^"),
        (b'{"displayName" 1}', 'Expected : between key:value pair.\n{"displayName" 1}\n               ^'),
        (b'{"a": ', "Unexpected end of string. Expected a value.\n\n^"),
        (b"[]", 'Unknown name "": Root element must be a message.'),
        (b'"x"', 'Unknown name "": Root element must be a message.'),
        (b'{"displayName": NaN}', "Unexpected token: NaN"),
        (b"\xff\xfe", ""),
        (b"[" * 100_000, ""),
        (b'{"jobSpec": "\\ud800"}', ""),
    ],
)
def test_a_body_that_is_no_json(api: Api, body: bytes, said: str) -> None:
    """A body that cannot be read is refused, and the refusal shows the place, as Google's reader does."""
    answer = api.call("POST", "customJobs", content=body)
    assert answer.status_code == 400 and message(answer).startswith(f"Invalid JSON payload received. {said}")


def test_listing(here: server.RunningServer, api: Api) -> None:
    """Lists are filtered and come in pages, the newest first; what is no filter is refused."""
    project = "/vertex/v1/projects/listing/locations/us-central1/customJobs"
    for i in range(5):
        name = f"projects/listing/locations/us-central1/customJobs/{i + 1}"
        server.call(here, "POST", "/v1/resources", {"name": name, "displayName": f"list-{i}", "labels": {"n": str(i)}})

    def names(**params: Any) -> list[str]:
        answer = api.call("GET", project, params=params)
        assert answer.status_code == 200, answer.text
        return [found["displayName"] for found in answer.json().get("customJobs", [])]

    assert names() == ["list-4", "list-3", "list-2", "list-1", "list-0"]
    assert names(filter="NOT (labels.n=1 OR labels.n=2) AND labels.n:*") == ["list-4", "list-3", "list-0"]
    first = api.call("GET", project, params={"pageSize": 2, "filter": 'display_name:"list-*"'}).json()
    second = api.call("GET", project, params={"pageSize": 2, "pageToken": first["nextPageToken"]}).json()
    third = api.call("GET", project, params={"pageSize": 2, "pageToken": second["nextPageToken"]}).json()
    pages = [[found["displayName"] for found in page["customJobs"]] for page in (first, second, third)]
    assert pages == [["list-4", "list-3"], ["list-2", "list-1"], ["list-0"]] and "nextPageToken" not in third
    for wrong in ("state", "colour=red", "state=", "(state=a", 'create_time>"soon"', "x" * 20_000, "a" + "(" * 500):
        assert api.call("GET", project, params={"filter": wrong}).status_code == 400, wrong


def test_concurrent_creates_are_all_kept(api: Api) -> None:
    """Twenty creates at once give twenty jobs, each with a name of its own, and all of them end."""
    project = "/vertex/v1/projects/crowd/locations/us-central1/customJobs"
    body = {"displayName": "crowd", "jobSpec": job(pool("pass"))}
    with ThreadPoolExecutor(20) as threads:
        made = list(threads.map(lambda _: api.call("POST", project, json=body).json()["name"], range(20)))
    assert len(set(made)) == 20
    for name in made[4:]:
        api.call("POST", f"/vertex/v1/{name}:cancel", json={})
    ends = [api.wait(name)["state"] for name in made]
    assert set(ends[:4]) == {"JOB_STATE_SUCCEEDED"} and set(ends) <= {"JOB_STATE_SUCCEEDED", "JOB_STATE_CANCELLED"}


@pytest.mark.parametrize("path", ["/vertex/v1/projects/P!/locations/l/customJobs", "/vertex/v1/projects/p/locations/%2e%2e/customJobs"])  # fmt: skip
def test_unknown_paths(api: Api, path: str) -> None:
    """What is no name of a project or location is a Google-style error."""
    answer = api.call("GET", path)
    assert answer.status_code in (400, 403) and answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/projects/p/locations/l/shoes"),
        ("GET", "/v1/projects/p/locations/l/endpoints/<i>/models"),
        ("POST", "/v1/projects/p/locations/l/customJobs/1:pause"),
        ("PATCH", "/v1/projects/p/locations/l/customJobs/1"),
        ("GET", "/v2/projects/p/locations/l/customJobs"),
        ("GET", "/v1/shoes"),
    ],
)
def test_a_path_that_no_method_has(api: Api, method: str, path: str) -> None:
    """A path that the API does not have is a 404 as a page with the path in it, not JSON."""
    answer = api.call(method, f"/vertex{path}", json={} if method == "POST" else None)
    assert answer.status_code == 404 and answer.headers["content-type"] == "text/html; charset=UTF-8"
    assert "<title>Error 404 (Not Found)!!1</title>" in answer.text
    assert f"<code>{html.escape(path)}</code>" in answer.text


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "featurestores/f/entityTypes"), ("POST", "endpoints"), ("GET", "/vertex/v1beta1/projects/p/locations/l/newer"),
                         ("GET", "/logging/v2/projects/p/sinks"), ("GET", "/scheduler/v1/projects/p/locations/l/cmekConfig")]
)  # fmt: skip
def test_what_is_not_served_is_unimplemented(api: Api, method: str, path: str) -> None:
    """A method that is not served answers 405 UNIMPLEMENTED: get-or-create code takes a 404 for an absent resource."""
    answer = api.call(method, path, json={})
    assert answer.status_code == 405 and answer.json()["error"]["status"] == "UNIMPLEMENTED", answer.text


def test_answers_are_indented(api: Api) -> None:
    """An answer is indented by two and ends its last line, unless the client asks for `prettyPrint=false`; gRPC's is not read."""
    path = "/vertex/v1/projects/p/locations/us-central1/tensorboards"
    made = api.call("GET", f"{path}/1")
    assert made.text == json.dumps(made.json(), indent=2) + "\n" and int(made.headers["content-length"]) == len(
        made.text
    )
    assert api.call("GET", path).text == "{}\n"
    for name in ("prettyPrint", "$prettyPrint"):
        assert api.call("GET", path, params={name: "false"}).text == "{}"
    error = api.call("GET", "/storage/v1/b/no-such-bucket").text
    assert error.startswith('{\n  "error": {\n    "code": 404,\n') and error.endswith("}\n")


def test_of_many_wrong_values_200_are_listed(api: Api) -> None:
    """A body with thousands of unknown fields is refused with the first 200 of them, not with an answer of megabytes."""
    answer = api.call("POST", "studies", json={f"field{n}": n for n in range(5_000)})
    assert answer.status_code == 400 and len(answer.content) < 100_000
    assert len(answer.json()["error"]["details"][0]["fieldViolations"]) == 200


@pytest.mark.whole
def test_faults_on_demand(here: server.RunningServer, api: Api) -> None:
    """A killed worker comes back; a preempted job starts again; what is no replica, no job or no rule is named."""
    name = api.create(job(pool(WAIT), pool(WAIT)), name="faulty")["name"]
    api.wait(name, "JOB_STATE_RUNNING")
    log = here.root / "jobs" / name.rpartition("/")[2] / "logs"
    wait_for_text(log / "workerpool0-0.log", "up", 1)
    wait_for_text(log / "workerpool1-0.log", "up", 1)
    server.kill(here, "faulty", "workerpool1-0")
    wait_for_text(log / "workerpool1-0.log", "up", 2)
    server.preempt(here, name.rpartition("/")[2])
    wait_for_text(log / "workerpool0-0.log", "up", 2)
    wait_for_text(log / "workerpool1-0.log", "up", 3)
    with pytest.raises(ServiceError, match="workerpool0-0, workerpool1-0"):
        server.kill(here, "faulty", "workerpool7-0")
    api.call("POST", f"/vertex/v1/{name}:cancel", json={})
    api.wait(name)
    with pytest.raises(ServiceError, match="No unfinished CustomJob"):
        server.kill(here, "faulty", "workerpool0-0")
    with pytest.raises(ServiceError, match="is not KIND"):
        server.add_fault(here, "earthquake")


def test_slots_start_a_job_whole_or_not_at_all(tmp_path: Path) -> None:
    """With two slots taken of three, a job of two replicas waits, and one behind it does not overtake it."""
    with_trainer(tmp_path)
    with server.running(Settings(tmp_path, slots=3, options=QUICK)) as running:
        api = Api(running.url)
        first = api.create(job(pool(WAIT), pool(WAIT)))["name"]
        api.wait(first, "JOB_STATE_RUNNING")
        second, third = api.create(job(pool("pass"), pool("pass")))["name"], api.create(job(pool("pass")))["name"]
        status = server.status(tmp_path)
        assert status is not None and status["queue"] == {"slots": 3, "used": 2, "running": 1, "waiting": 2}
        assert api.get(second)["state"] == api.get(third)["state"] == "JOB_STATE_QUEUED"
        api.call("POST", f"/vertex/v1/{third}:cancel", json={})
        assert api.get(third)["state"] == "JOB_STATE_CANCELLED"
        api.call("POST", f"/vertex/v1/{first}:cancel", json={})
        assert api.wait(second)["state"] == "JOB_STATE_SUCCEEDED"


@pytest.mark.whole
def test_jobs_survive_a_kill_of_the_server(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """After kill -9 nothing acknowledged is lost: a running job starts again, one without retries fails, none is orphaned; objects and
    schedules are there, and a resumable upload goes on from its last chunk.
    """
    request.addfinalizer(lambda: server.down(tmp_path))  # whatever fails, no server stays
    with_trainer(tmp_path)
    flag = tmp_path / "gs/packages/go"
    code = (
        f"import time\nprint('pid', os.getpid(), flush=True)\nwhile not os.path.exists({str(flag)!r}): time.sleep(0.01)"
    )
    first = server.up(Settings(tmp_path, slots=3), 0)
    api = Api(first.url)
    again = api.create(job(pool(code), pool(WAIT)))["name"]
    never = api.create(job(pool(WAIT), scheduling={"disableRetries": True}))["name"]
    queued = api.create(job(pool("pass"), pool("pass")))["name"]
    upload, chunk = "/upload/storage/v1/b/packages/o", 256 * 1024
    begun = api.call("POST", upload, params={"uploadType": "resumable", "name": "half"}, json={}).headers["location"]
    session = begun.removeprefix(first.url)
    api.call("PUT", session, content=b"x" * chunk, headers={"Content-Range": f"bytes 0-{chunk - 1}/*"})
    media = {"uploadType": "media"}
    made = [api.call("POST", upload, params={**media, "name": str(n)}, content=b"x").json() for n in range(20)]
    schedules = "/scheduler/v1/projects/p/locations/us-central1/jobs"
    target = {"schedule": "0 0 1 1 *", "httpTarget": {"uri": "http://127.0.0.1:1/"}}
    api.call("POST", schedules, json={"name": "projects/p/locations/us-central1/jobs/a", **target})
    paused = api.call("POST", f"{schedules}/a:pause", json={}).json()
    for name in (again, never):
        api.wait(name, "JOB_STATE_RUNNING")
    until = time.monotonic() + 60
    while (
        len(workers := psutil.Process(first.pid).children(recursive=True)) < 6
    ):  # three replicas and their supervisors
        assert time.monotonic() < until
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert alive == [] and server.find(tmp_path) is None and server.status(tmp_path) is None
    second = server.up(Settings(tmp_path, slots=3), first.port)
    process = psutil.Process(second.pid)
    api = Api(second.url)
    assert [api.call("GET", f"/storage/v1/b/packages/o/{one['name']}").json() for one in made] == made
    rest = api.call("PUT", session, content=b"y", headers={"Content-Range": f"bytes {chunk}-{chunk}/{chunk + 1}"})
    assert rest.json()["size"] == str(chunk + 1)
    assert api.call("GET", f"{schedules}/a").json() == paused and paused["state"] == "PAUSED"
    lost = api.wait(never)
    assert lost["state"] == "JOB_STATE_FAILED" and "disableRetries" in lost["error"]["message"]
    flag.touch()
    assert api.wait(again)["state"] == "JOB_STATE_SUCCEEDED"
    assert api.wait(queued)["state"] == "JOB_STATE_SUCCEEDED"
    assert server.down(tmp_path)
    assert psutil.wait_procs([process], timeout=30)[1] == []
    assert server.down(tmp_path) is False


def test_a_stopped_server_hands_its_jobs_on(tmp_path: Path) -> None:
    """`down` ends every process but not the jobs: the next server runs them again."""
    with_trainer(tmp_path)
    flag = tmp_path / "gs/packages/go"
    code = f"import time\nwhile not os.path.exists({str(flag)!r}): time.sleep(0.01)"
    with server.running(Settings(tmp_path, options=QUICK)) as running:
        api = Api(running.url)
        name = api.create(job(pool(code)))["name"]
        api.wait(name, "JOB_STATE_RUNNING")
    living = [child for child in psutil.Process().children(recursive=True) if child.status() != psutil.STATUS_ZOMBIE]
    assert [child for child in living if str(tmp_path) in str(child.cmdline())] == []
    flag.touch()
    with server.running(Settings(tmp_path, options=QUICK)) as running:
        assert Api(running.url).wait(name)["state"] == "JOB_STATE_SUCCEEDED"


def test_a_server_whose_folder_is_removed_ends(tmp_path: Path) -> None:
    """After `rm -rf` of its folder a server ends within seconds, with every process of its jobs, and makes nothing anew."""
    root = with_trainer(tmp_path / "state")
    here = server.up(Settings(root, options=QUICK), 0)
    process = psutil.Process(here.pid)
    try:
        api = Api(here.url)
        api.wait(api.create(job(pool(WAIT)))["name"], "JOB_STATE_RUNNING")
        every = [process, *process.children(recursive=True)]
        while root.exists():  # a log may be written meanwhile
            shutil.rmtree(root, ignore_errors=True)
        assert psutil.wait_procs(every, timeout=20)[1] == []
        assert list(root.rglob("*")) == [] and not root.exists()
    finally:
        if process.is_running():
            process.kill()


def test_a_line_after_the_folder_is_gone_makes_no_folder(tmp_path: Path) -> None:
    """The last line of a job whose folder was removed with all others is dropped, and its trouble is known."""
    root = tmp_path / "state"
    files = LogFiles(root / "jobs/1/logs", root)
    root.rmdir()
    files.write(Line(1.0, "service", "INFO", "Job cancelled."))
    assert not root.exists() and isinstance(files.trouble, FileNotFoundError)


def test_port_and_folder_are_taken(tmp_path: Path) -> None:
    """A port in use and a folder in use are told at once, with what to do; `up` finds the server that runs."""
    with server.running(Settings(tmp_path)) as running:
        with pytest.raises(UsageError, match="already runs"), server.running(Settings(tmp_path)):
            pass
        with pytest.raises(UsageError, match="--port"):
            server.up(Settings(tmp_path / "other"), running.port)
        assert server.up(Settings(tmp_path), 0) == running
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", running.port))


def test_a_full_disk_fails_the_job_and_not_the_server(tmp_path: Path) -> None:
    """When nothing more can be written, a job fails with the reason as soon as that can be kept, and the server goes on."""
    with_trainer(tmp_path)
    here = server.up(Settings(tmp_path), 0)
    try:
        api = Api(here.url)
        api.wait(api.create(job(pool("pass")))["name"])  # the package is installed
        process = psutil.Process(here.pid)
        flag = tmp_path / "gs/packages/go"
        code = f"import time\nwhile not os.path.exists({str(flag)!r}): time.sleep(0.01)\nfor i in range(100_000): print('x' * 500)"
        name = api.create(job(pool(code)))["name"]
        api.wait(name, "JOB_STATE_RUNNING")
        process.rlimit(psutil.RLIMIT_FSIZE, (4_500_000, -1))  # no file may grow further: what a full disk looks like
        flag.touch()
        log = tmp_path / "jobs" / name.rpartition("/")[2] / "logs/workerpool0-0.log"
        until = time.monotonic() + 60
        while process.children(recursive=True) and time.monotonic() < until:
            time.sleep(0.05)
        assert process.children(recursive=True) == [] and log.stat().st_size <= 4_500_000
        process.rlimit(psutil.RLIMIT_FSIZE, (-1, -1))
        done = api.wait(name)
        assert done["state"] == "JOB_STATE_FAILED" and done["error"]["code"] == 13, done
        assert api.wait(api.create(job(pool("pass")))["name"])["state"] == "JOB_STATE_SUCCEEDED"
    finally:
        server.down(tmp_path)


def test_settings_reach_a_server_whole(tmp_path: Path) -> None:
    """What a server in the background is given on its stdin has all the fields of an image's stand-in."""
    images = {"a": LocalImage("folder", ("python", "main.py"), "tf"), "b": LocalImage("other", ())}
    settings = Settings(tmp_path, options=RunOptions(images=images), allow_hosts=("*.example.com",))
    assert server.settings_of(json.loads(json.dumps(asdict(settings), default=str))) == settings


def test_a_buckets_path_at_the_servers_own_port(here: server.RunningServer) -> None:
    """A program that is given the server's address reads and writes objects by the XML API, of buckets that exist."""
    (here.root / "gs/own-port").mkdir(parents=True)
    with httpx.Client(base_url=here.url, timeout=30) as client:
        assert client.put("/own-port/a/b.txt", content=b"hello").status_code == 200
        assert client.get("/own-port/a/b.txt").content == b"hello"
        assert "<Code>NoSuchKey</Code>" in client.get("/own-port/none").text
        assert "does not serve GET /other-port/a" in message(client.get("/other-port/a"))
        page = client.get("/own-port/a/b.txt", headers={"Origin": "http://evil.example"})
        assert page.status_code == 403
