"""The fence in the job, from the trigger's create call to the trainer that ends, on the local Vertex."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from localvertex import server
from localvertex.runner import RunOptions
from tests.support import clouds
from tests.support.clouds_in_memory import Clock, MemoryStorage
from tests.support.jobkit import Api, sdist
from tests.support.tools import REPOSITORY
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import COLLECTIONS, RemoteJob, Vertex
from vertexrig.errors import VertexrigError
from vertexrig.spec.labels import CLAIM_LABEL
from vertexrig.submit.budget import Terms
from vertexrig.submit.claims import Claims, Existing, Recorded, Taken, request_key
from vertexrig.submit.reconcile import CLAIM_VARIABLE, TOKEN_VARIABLE, fenced, token_of
from vertexrig.submit.submission import Request, Submitter, price_of
from vertexrig.submit.uploaded import UploadedArtifacts
from vertexrig.trigger.app import Call, Trigger
from vertexrig.workspace import Workspace

ID, TOKEN = "a" * 32 + "-" + "b" * 12, "1" * 32
URI = "gs://b/vertexrig/claims/x.json"
PYTHON = {"pythonPackageSpec": {"executorImageUri": "i", "env": [{"name": "A", "value": "b"}]}}
CONTAINER = {"containerSpec": {"imageUri": "i", "env": [{"name": TOKEN_VARIABLE, "value": "old"}]}}

# The trainer's own start, with a training that only prints: the package's other modules come from the checkout.
TASK = f"""
import sys, types, trainer
trainer.__path__.insert(0, {str(REPOSITORY / "trainer_pkg/trainer")!r})
sys.modules["trainer.loop"] = types.SimpleNamespace(train_and_evaluate=lambda *_: print("it trains"))
from trainer.task import main
sys.exit(main([]))
"""


@pytest.mark.parametrize("inside", ["jobSpec", "trialJobSpec"])
def test_every_container_knows_its_claim(inside: str) -> None:
    """Python packages and containers of every pool carry both variables once, after their own; empty pools nothing."""
    spec = {"workerPoolSpecs": [PYTHON, {}, CONTAINER], "scheduling": {"timeout": "60s"}}
    before = json.dumps(spec)
    given = spec if inside == "jobSpec" else {inside: spec, "maxTrialCount": 2}
    made = fenced(given, URI, ID, TOKEN)
    pools = (made if inside == "jobSpec" else made[inside])["workerPoolSpecs"]
    ours = [{"name": CLAIM_VARIABLE, "value": URI}, {"name": TOKEN_VARIABLE, "value": f"{ID}.{TOKEN}"}]
    assert pools[0]["pythonPackageSpec"]["env"] == [{"name": "A", "value": "b"}, *ours]
    assert pools[1] == {} and pools[2]["containerSpec"]["env"] == ours
    assert json.dumps(spec) == before
    body = {"jobSpec": made} if inside == "jobSpec" else made
    assert token_of(body, ID) == TOKEN and token_of(body, "c" * 45) == token_of({}, ID) == ""


class Killed(BaseException):
    """Ends a delivery after its create call."""


class KilledAfterCreate(Vertex):
    """Creates the job and then is gone."""

    def create(self, collection: str, body: Mapping[str, Any]) -> RemoteJob:
        raise Killed(super().create(collection, body).name)


@pytest.fixture(scope="module")
def trains(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[server.RunningServer, Path]]:
    """A local Vertex that runs jobs, with the trainer's package, and a folder for the project."""
    root = tmp_path_factory.mktemp("fence")
    with clouds.cloud(root, options=RunOptions(grace=0.5)) as here:
        sdist(root / "vertex/gs/my-bucket/packages/trainer.tar.gz", task=TASK)
        clouds.point_at(here)
        yield here, root


def submitter(here: server.RunningServer, folder: Path, vertex: Vertex, **options: Any) -> Submitter:
    storage = Storage(clouds.BUCKET, url=here.url)
    project = clouds.loaded(folder)
    claims = Claims(storage, lease_s=0.0, wait_s=5.0)
    return Submitter(
        Workspace(project, uploaded=UploadedArtifacts(project, storage)), vertex, storage, claims=claims, **options
    )


def ended(here: server.RunningServer, name: str) -> RemoteJob:
    return RemoteJob(Api(here.url).wait(name))


@pytest.mark.whole
@pytest.mark.parametrize("run", ["cpu", "sweep"])
def test_a_job_that_another_one_replaced_ends_at_once(trains: tuple[server.RunningServer, Path], run: str) -> None:
    """The first holder is frozen, another delivery takes the claim over and its job is recorded and trains; the first
    one wakes up, creates its job and is killed. That job's trainer, or each trial of that sweep, ends with code 4.
    """
    here, folder = trains
    late_vertex = KilledAfterCreate("my-project", "us-central1", url=f"{here.url}{server.AIPLATFORM}")
    frozen = submitter(here, folder, late_vertex, fence=True)
    prepared = frozen.prepare_candidates(Request(run, {"max_trial_count": 1} if run == "sweep" else {}))[0]
    collection = COLLECTIONS[prepared.document.kind]
    taken = frozen.claims.take(request_key(f"fence-{run}"), "x", run, lambda _: None, lambda _: {})
    assert isinstance(taken, Taken)
    made = submitter(here, folder, clouds.vertex(here), fence=True).submit(prepared, request_key(f"fence-{run}"), "x")
    assert not made.duplicate and ended(here, made.name).state == "JOB_STATE_SUCCEEDED"
    with pytest.raises(Killed) as killed:
        frozen._make(prepared.in_run(taken.claim.run_id), price_of(prepared, frozen.limits), taken, collection, Terms())
    late = ended(here, str(killed.value))
    assert late.labels[CLAIM_LABEL] == made.claim and late.name != made.name
    assert late.state == "JOB_STATE_FAILED"
    logs = [path.parent for path in here.root.glob("jobs/*/logs/workerpool0-0.log") if made.name in path.read_text()]
    assert len(logs) == 1 and "exited with a non-zero status of 4" in (logs[0] / "service.log").read_text()
    assert "it trains" not in (logs[0] / "workerpool0-0.log").read_text()


def test_only_triggered_jobs_carry_it(here: server.RunningServer, tmp_path: Path) -> None:
    """The trigger's jobs know their claim, and the claim its winner; what it shows in a dry run, and what `vertexrig
    submit` sends, has neither variable.
    """
    log: list[Mapping[str, Any]] = []
    project = clouds.loaded(tmp_path)
    storage = Storage(clouds.BUCKET, url=here.url)
    trigger = Trigger(project, vertex=clouds.vertex(here), storage=storage, log=log.append)

    def post(**more: Any) -> Mapping[str, Any]:
        body = json.dumps({"run": "sweep", "request_id": "fence-only", **more}).encode()
        return trigger.handle(Call("POST", "/", {}, lambda most: body[:most])).body

    assert CLAIM_VARIABLE not in str(post(dry_run=True))
    made = post()
    job = clouds.vertex(here).get(str(made["name"]))
    claim = trigger.submitter.claims.by_id(str(made["claim"]))
    assert job is not None and claim is not None
    assert claim.winners == {claim.id: claim.token} == {claim.id: token_of(job.data, claim.id)}
    assert trigger.storage.uri(claim.path) in str(job.data["trialJobSpec"])
    typed = clouds.submitter(here, tmp_path)
    name = typed.submit(typed.prepare_candidates(Request("sweep"))[0], request_key("fence-typed"), "x").name
    assert CLAIM_VARIABLE not in str(clouds.vertex(here).get(name))


def test_winners_of_another_form_are_no_claim() -> None:
    """A claim whose winners are not delivery tokens by id is refused, as every other claim that is not ours."""
    claims, key = Claims(MemoryStorage(Clock())), request_key("fence-form")
    taken = claims.take(key, "x", "cpu", lambda _: None, lambda _: {})
    assert isinstance(taken, Taken)
    for winners in ([TOKEN], {"x": TOKEN}, {taken.claim.id: "short"}, {taken.claim.id: 5}):
        row = {**json.loads(taken.claim.to_bytes()), "winners": winners}
        claims.storage.write(key.path, json.dumps(row).encode())
        with pytest.raises(VertexrigError, match="is not a claim"):
            claims.take(key, "x", "cpu", lambda _: None, lambda _: {})


def test_a_token_of_another_form_is_not_recorded() -> None:
    """A job that carries the label and something else for a token is recorded without a winner, and the claim stays
    readable.
    """
    claims, key = Claims(MemoryStorage(Clock())), request_key("fence-token")
    taken = claims.take(key, "x", "cpu", lambda _: None, lambda _: {})
    assert isinstance(taken, Taken)
    name = "projects/p/locations/us-central1/customJobs/1"
    assert claims.record(taken.claim, Recorded(name, "evil")).winners == {}
    again = claims.take(key, "x", "cpu", lambda _: None, lambda _: {})
    assert isinstance(again, Existing) and again.claim.job.name == name
