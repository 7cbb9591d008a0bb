"""One test body, two backends: the local Vertex, and the real cloud when VERTEXRIG_CLOUD_PROJECT names a project.

The cloud backend also needs application default credentials; it takes VERTEXRIG_CLOUD_REGION (us-central1) and a bucket
in VERTEXRIG_CLOUD_BUCKET (gs://PROJECT-vertexrig). What it makes it removes; jobs use n1-standard-4 for a few minutes.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from tests.support.jobkit import IMAGE, sdist, with_trainer

PROJECT = "VERTEXRIG_CLOUD_PROJECT"
METRIC = """
import time
rate = float(next(arg for arg in args if arg.startswith('--rate=')).partition('=')[2])
path = os.environ['CLOUD_ML_HP_METRIC_FILE']
os.makedirs(os.path.dirname(path), exist_ok=True)
with open(path, 'a') as file:
    file.write(json.dumps({'timestamp': time.time(), 'trial': os.environ['CLOUD_ML_TRIAL_ID'],
                           'accuracy': str(1 - rate), 'global_step': '1', 'checkpoint_path': ''}) + '\\n')
"""


@dataclass(frozen=True)
class Backend:
    """Where the contract is tried.

    Args:
        session: Sends requests, with credentials where there are any.
        vertex: Base of the Vertex AI API.
        storage: Base of Cloud Storage.
        scheduler: Base of Cloud Scheduler.
        parent: `projects/P/locations/L`.
        bucket: A bucket that is there, without gs://.
        target: A URL that schedules may call.
        patience: Seconds a job may take.
    """

    session: Any
    vertex: str
    storage: str
    scheduler: str
    parent: str
    bucket: str
    target: str
    patience: float

    def call(self, method: str, url: str, *, code: int = 200, **options: Any) -> dict[str, Any]:
        """A request whose answer has the status `code`; its body."""
        answer = self.session.request(method, url, **options)
        assert answer.status_code == code, f"{method} {url}: {answer.status_code} {answer.text}"
        body: dict[str, Any] = answer.json() if answer.content else {}
        return body

    def jobs(self, kind: str = "customJobs") -> str:
        return f"{self.vertex}/v1/{self.parent}/{kind}"

    def wait(self, name: str) -> dict[str, Any]:
        """A job that has ended."""
        until = time.monotonic() + self.patience
        while not (found := self.call("GET", f"{self.vertex}/v1/{name}")).get("endTime"):
            assert time.monotonic() < until, found
            time.sleep(0.02 if self.patience < 100 else 10)
        return found


def _local(root: Path) -> Iterator[Backend]:
    import requests

    sdist(with_trainer(root) / "gs/contract/trainer.tar.gz")
    with (
        server.running(Settings(root, slots=4, options=RunOptions(grace=0.5))) as here,
        requests.Session() as session,
    ):
        parent = "projects/my-project/locations/us-central1"
        yield Backend(session, here.url + server.AIPLATFORM, here.url, here.url + server.SCHEDULER, parent, "contract",
                      f"{here.url}/local/v1/status", 60)  # fmt: skip


def _cloud(root: Path) -> Iterator[Backend]:
    project = os.environ.get(PROJECT)
    if not project:
        pytest.skip(
            f"{PROJECT} is not set: set it to a project, with application default credentials, to try the cloud"
        )
    import google.auth
    from google.auth.transport.requests import AuthorizedSession

    credentials, _ = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    region = os.environ.get("VERTEXRIG_CLOUD_REGION", "us-central1")
    bucket = os.environ.get("VERTEXRIG_CLOUD_BUCKET", f"gs://{project}-vertexrig").removeprefix("gs://").strip("/")
    backend = Backend(
        AuthorizedSession(credentials), f"https://{region}-aiplatform.googleapis.com", "https://storage.googleapis.com",
        "https://cloudscheduler.googleapis.com", f"projects/{project}/locations/{region}", bucket, "https://example.com/", 1800,
    )  # fmt: skip
    package = sdist(root / "trainer.tar.gz").read_bytes()
    upload = f"{backend.storage}/upload/storage/v1/b/{bucket}/o?uploadType=media&name=trainer.tar.gz"
    backend.call("POST", upload, data=package, headers={"Content-Type": "application/gzip"})
    yield backend


BACKENDS: dict[str, Callable[[Path], Iterator[Backend]]] = {"local": _local, "cloud": _cloud}


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """Each backend in turn."""
    yield from BACKENDS[request.param](tmp_path_factory.mktemp("contract"))


@pytest.fixture
def unique() -> str:
    """A name that nobody else uses."""
    return f"vertexrig-{uuid.uuid4().hex[:12]}"


def spec(backend: Backend, code: str, **fields: Any) -> dict[str, Any]:
    """A job of one small replica that runs `code`."""
    package = {
        "executorImageUri": IMAGE, "packageUris": [f"gs://{backend.bucket}/trainer.tar.gz"], "pythonModule": "trainer.task",
        "args": [code],
    }  # fmt: skip
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": "1", "pythonPackageSpec": package}
    return {"workerPoolSpecs": [pool], **fields}


@pytest.mark.whole
def test_custom_job(backend: Backend, unique: str) -> None:
    """create, get, list by name, success with times, delete as an operation, and 404 afterwards."""
    body = {"displayName": unique, "jobSpec": spec(backend, "print('hello')"), "labels": {"by": "contract"}}
    made = backend.call("POST", backend.jobs(), json=body)
    assert made["state"] in ("JOB_STATE_QUEUED", "JOB_STATE_PENDING") and made["labels"] == {"by": "contract"}
    assert made["jobSpec"]["workerPoolSpecs"][0]["replicaCount"] == "1"
    number, kind = made["name"].split("/")[1], made["name"].split("/")[-2]
    assert number.isdigit() and kind == "customJobs"
    listed = backend.call("GET", backend.jobs(), params={"filter": f'display_name="{unique}"'})
    assert [found["name"] for found in listed["customJobs"]] == [made["name"]]
    done = backend.wait(made["name"])
    assert done["state"] == "JOB_STATE_SUCCEEDED" and "error" not in done
    assert done["createTime"] <= done["startTime"] <= done["endTime"]
    operation = backend.call("DELETE", f"{backend.vertex}/v1/{made['name']}")
    assert "/operations/" in operation["name"] and operation["metadata"]["@type"].endswith("DeleteOperationMetadata")
    until = time.monotonic() + backend.patience
    while not operation.get("done"):
        assert time.monotonic() < until
        operation = backend.call("GET", f"{backend.vertex}/v1/{operation['name']}")
    error = backend.call("GET", f"{backend.vertex}/v1/{made['name']}", code=404)["error"]
    assert error["status"] == "NOT_FOUND" and error["code"] == 404


def test_failed_job(backend: Backend, unique: str) -> None:
    """A trainer that raises fails its job, and the error names the replica and the status."""
    body = {"displayName": unique, "jobSpec": spec(backend, "raise SystemExit(3)")}
    done = backend.wait(backend.call("POST", backend.jobs(), json=body)["name"])
    assert done["state"] == "JOB_STATE_FAILED"
    assert "The replica workerpool0-0 exited with a non-zero status of 3" in done["error"]["message"]
    backend.call("DELETE", f"{backend.vertex}/v1/{done['name']}")


def test_cancelled_job(backend: Backend, unique: str) -> None:
    """Cancel answers an empty object, and the job ends as CANCELLED."""
    body = {"displayName": unique, "jobSpec": spec(backend, "import time; time.sleep(600)")}
    name = backend.call("POST", backend.jobs(), json=body)["name"]
    assert backend.call("POST", f"{backend.vertex}/v1/{name}:cancel", json={}) == {}
    assert backend.wait(name)["state"] == "JOB_STATE_CANCELLED"
    backend.call("DELETE", f"{backend.vertex}/v1/{name}")


def test_refusals(backend: Backend, unique: str) -> None:
    """An unknown field and a machine that cannot be are 400 INVALID_ARGUMENT, and make no job."""
    wrong = spec(backend, "pass")
    wrong["workerPoolSpecs"][0]["machineSpecc"] = {}
    error = backend.call("POST", backend.jobs(), code=400, json={"displayName": unique, "jobSpec": wrong})["error"]
    assert error["status"] == "INVALID_ARGUMENT" and 'Unknown name "machineSpecc"' in error["message"]
    wrong = spec(backend, "pass")
    wrong["workerPoolSpecs"][0]["machineSpec"] |= {"acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 3}
    error = backend.call("POST", backend.jobs(), code=400, json={"displayName": unique, "jobSpec": wrong})["error"]
    assert error["status"] == "INVALID_ARGUMENT"
    listed = backend.call("GET", backend.jobs(), params={"filter": f'display_name="{unique}"'})
    assert listed.get("customJobs", []) == []


def test_tuning_job(backend: Backend, unique: str) -> None:
    """A study of two trials ends with both measured; an ended trial names no job."""
    study = {
        "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
        "parameters": [{"parameterId": "rate", "doubleValueSpec": {"minValue": 0.1, "maxValue": 0.9}}],
        "algorithm": "RANDOM_SEARCH",
    }
    counts = {"maxTrialCount": 2, "parallelTrialCount": 2}
    body = {"displayName": unique, "studySpec": study, "trialJobSpec": spec(backend, METRIC), **counts}
    made = backend.call("POST", backend.jobs("hyperparameterTuningJobs"), json=body)
    done = backend.wait(made["name"])
    assert done["state"] == "JOB_STATE_SUCCEEDED"
    assert sorted(trial["id"] for trial in done["trials"]) == ["1", "2"]
    for trial in done["trials"]:
        (parameter,) = trial["parameters"]
        measured = trial["finalMeasurement"]["metrics"]
        assert trial["state"] == "SUCCEEDED" and parameter["parameterId"] == "rate"
        assert measured == [{"metricId": "accuracy", "value": pytest.approx(1 - parameter["value"])}]
        assert "customJob" not in trial
    backend.call("DELETE", f"{backend.vertex}/v1/{made['name']}")


def test_object_preconditions(backend: Backend, unique: str) -> None:
    """ifGenerationMatch=0 creates once, a stale generation is a 412, the right one overwrites, and gone is 404."""
    upload = f"{backend.storage}/upload/storage/v1/b/{backend.bucket}/o"
    own = f"{backend.storage}/storage/v1/b/{backend.bucket}/o/{unique}"
    media = {"uploadType": "media", "name": unique}
    claim = backend.call("POST", upload, params={**media, "ifGenerationMatch": "0"}, data=b"mine")
    assert claim["size"] == "4" and claim["metageneration"] == "1"
    error = backend.call("POST", upload, code=412, params={**media, "ifGenerationMatch": "0"}, data=b"yours")["error"]
    assert error["code"] == 412 and error["errors"][0]["reason"] == "conditionNotMet"
    second = backend.call("POST", upload, params={**media, "ifGenerationMatch": claim["generation"]}, data=b"again")
    assert int(second["generation"]) > int(claim["generation"])
    backend.call("POST", upload, code=412, params={**media, "ifGenerationMatch": claim["generation"]}, data=b"late")
    backend.call("GET", own, code=412, params={"ifMetagenerationMatch": "7"})
    backend.call("DELETE", own, code=412, params={"ifGenerationMatch": claim["generation"]})
    backend.call("DELETE", own, code=204, params={"ifGenerationMatch": second["generation"]})
    backend.call("GET", own, code=404)


def test_schedule(backend: Backend, unique: str) -> None:
    """A schedule is created once, got, listed, paused, resumed, run and deleted; a bad cron is refused."""
    jobs = f"{backend.scheduler}/v1/{backend.parent}/jobs"
    name = f"{backend.parent}/jobs/{unique}"
    job = {"name": name, "schedule": "0 3 1 1 *", "timeZone": "Europe/Berlin"}
    job |= {"httpTarget": {"uri": backend.target, "httpMethod": "GET"}}  # type: ignore[dict-item]
    assert backend.call("POST", jobs, json=job)["state"] == "ENABLED"
    assert backend.call("POST", jobs, code=409, json=job)["error"]["status"] == "ALREADY_EXISTS"
    wrong = {**job, "name": f"{name}-x", "schedule": "61 * * * *"}
    assert backend.call("POST", jobs, code=400, json=wrong)["error"]["status"] == "INVALID_ARGUMENT"
    assert backend.call("GET", f"{jobs}/{unique}")["httpTarget"]["uri"] == backend.target
    assert name in [found["name"] for found in backend.call("GET", jobs)["jobs"]]
    assert backend.call("POST", f"{jobs}/{unique}:pause", json={})["state"] == "PAUSED"
    assert backend.call("POST", f"{jobs}/{unique}:resume", json={})["state"] == "ENABLED"
    assert backend.call("POST", f"{jobs}/{unique}:run", json={})["name"] == name
    assert backend.call("DELETE", f"{jobs}/{unique}") == {}
    backend.call("GET", f"{jobs}/{unique}", code=404)
