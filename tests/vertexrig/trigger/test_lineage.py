"""Where a model comes from: the labels of the jobs and the version, the way back that `report --lineage` shows, and ML Metadata."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localvertex import server
from tests.support import clouds
from tests.support.permissions import unknown, used
from tests.support.trigger_place import Place, then
from vertexrig import files
from vertexrig.cloud.models import ModelsClient
from vertexrig.cloud.rest import RestError
from vertexrig.spec.labels import DATA_LABEL, DIGEST_LABEL, REVISION_LABEL, problems
from vertexrig.studies import lineage
from vertexrig.studies.register import label
from vertexrig.trigger import app, deploy, stage

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def nightly(folder: Path, **register: Any) -> Place:
    """A schedule that depends on data, and registers what it has promoted."""
    data = then("promote", {"register": register})
    data["schedules"]["nightly"]["only_if_changed"] = "gs://my-bucket/data/**"
    data["jobs"]["cpu"]["args"] = {"epochs": 2, "data": "csv:gs://my-bucket/data/today.csv"}
    place = Place(folder, data)
    for submitter in (place.trigger.submitter, place.trigger.ticker.engine.submitter):
        submitter.lineage = {**submitter.lineage, REVISION_LABEL: COMMIT}
    place.trigger._due = same_bucket(place, place.trigger._due)  # type: ignore[method-assign] # noqa: SLF001
    return place


def same_bucket(place: Place, due: Any) -> Any:
    """The schedule's policy, which finds its data in the bucket in memory."""

    def found(*args: Any) -> Any:
        one = due(*args)
        if one is not None:
            object.__setattr__(one, "folder", lambda uri: place.storage)
        return one

    return found


def a_night(place: Place, accuracy: float = 0.9) -> tuple[str, str, dict[str, Any]]:
    """The sweep and the promoted job of a run of the schedule, and the row of the tick that has registered its model."""
    place.clock.at += 86_400
    place.storage.write("data/today.csv", b"new")
    made = place.fire()
    assert made.status == 201, made.body
    place.sweep_ends(made.body["name"], 0.7, 0.8)
    job = place.tick()["job"]
    place.trained(job, accuracy)
    return made.body["name"], job, place.tick()


def test_each_resource_says_where_it_comes_from(tmp_path: Path) -> None:
    """The sweep, the promoted job and the version have labels with the project file's digest, the git revision and the digest of the
    data; the version also has the package's hash and the image; every value is one that a label may have.
    """
    place = nightly(tmp_path)
    sweep, job, row = a_night(place)
    (version,) = place.versions()
    assert row["model"].endswith("@1")
    found = [place.vertex.jobs[sweep].data["labels"], place.vertex.jobs[job].data["labels"], version["labels"]]
    digest = place.trigger.loaded.digest
    assert [(one[DIGEST_LABEL], one[REVISION_LABEL]) for one in found] == [(digest, COMMIT)] * 3
    assert len({one[DATA_LABEL] for one in found}) == 1 and len(found[0][DATA_LABEL]) == 32
    image = place.vertex.jobs[job].data["jobSpec"]["workerPoolSpecs"][0]["pythonPackageSpec"]["executorImageUri"]
    assert found[2]["image"] == label(image.rpartition("/")[2]) and found[2]["package"] == "trainer"
    limits = place.trigger.submitter.workspace.catalog.limits
    assert not [wrong for one in found for wrong in problems(one, limits)]


def test_the_way_to_a_version(tmp_path: Path) -> None:
    """The way begins with the data and has each job of the run with what it ran; of a version whose jobs are gone its labels say it."""
    place = nightly(tmp_path)
    sweep, job, _ = a_night(place)
    a_night(place, 0.95)
    version = lineage.version_of(place.models, "sweep@1")
    rows = lineage.trace(version, [place.vertex])
    assert [(row["step"], row["name"]) for row in rows] == [
        ("data", "csv:gs://my-bucket/data/today.csv"), ("sweep", sweep), ("promote", job), ("model", f"{version['name'].partition('@')[0]}@1"),
    ]  # fmt: skip
    assert {row["digest"] for row in rows[1:]} == {place.trigger.loaded.digest}
    assert {row["revision"] for row in rows[1:]} == {COMMIT} and rows[2]["trial"] == "2"
    assert rows[1]["packages"] == ["gs://my-bucket/packages/trainer.tar.gz"] and rows[1]["schedule"] == "nightly"
    assert len({row["data_digest"] for row in rows}) == 1
    assert lineage.version_of(place.models, "sweep@champion")["versionId"] == "2"
    text = lineage.text(rows)
    assert f"git revision: {COMMIT}" in text and text.index("gs://my-bucket/data") < text.index(sweep) < text.index(
        "models/"
    )
    place.vertex.jobs.clear()
    left = lineage.trace(version, [place.vertex])
    assert [row["step"] for row in left] == ["data", "job", "model"] and left[1]["state"] == "gone"
    assert (left[2]["revision"], left[2]["packages"]) == (COMMIT, ["trainer"])


def test_the_verb(tmp_path: Path, here: server.RunningServer, terminal: Callable[..., str]) -> None:
    """`report --lineage` finds a version on the local Vertex by alias and by number, in text and JSON; a wrong one is bad usage."""
    data = {**clouds.PROJECT, "project": "lineage-verb"}
    clouds.loaded(tmp_path, data)
    vertex = clouds.vertex(here)
    vertex = type(vertex)("lineage-verb", "us-central1", url=vertex.rest.url.removesuffix("/v1"))
    made = vertex.create("customJobs", {
        "displayName": "cpu", "labels": {DIGEST_LABEL: "abc", REVISION_LABEL: COMMIT},
        "jobSpec": {"workerPoolSpecs": [{"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1, "containerSpec": {"imageUri": "gcr.io/p/t:1", "args": ["--data=gs://d/x"]}}]},
    })  # fmt: skip
    described = f"accuracy 0.9, from cpu {made.id}"
    registered = ModelsClient(vertex).upload({"displayName": "cpu", "versionDescription": described, "versionAliases": ["champion"], "containerSpec": {"imageUri": "gcr.io/p/s:1"}})  # fmt: skip
    for text in ("cpu@champion", "cpu@1", "cpu", f"{registered['model'].partition('@')[0]}@champion"):
        rows = json.loads(terminal("report", "--lineage", text, "--format=json"))["lineage"]
        assert [row["step"] for row in rows] == ["data", "job", "model"] and rows[1]["revision"] == COMMIT
    assert f"git revision: {COMMIT}" in terminal("report", "--lineage", "cpu@1")
    assert "MODEL@ALIAS" in terminal("report", "--lineage", "cpu@7", code=2)


def test_the_revision_of_a_folder(tmp_path: Path) -> None:
    """It is the commit that git says, for a branch, packed references, a linked work tree and a commit without a branch; a folder without
    a repository, one without a commit, and files that are no commits have none.
    """

    def git(*words: str, at: Path = tmp_path / "repo") -> str:
        own = ("-c", "user.name=n", "-c", "user.email=n@example.com")
        return subprocess.run(["git", *own, *words], cwd=at, check=True, capture_output=True, text=True).stdout.strip()

    (tmp_path / "repo/below").mkdir(parents=True)
    git("init", "-q")
    assert files.revision(tmp_path) == "" and files.revision(tmp_path / "repo") == ""
    git("commit", "-q", "--allow-empty", "-m", "first")
    first = git("rev-parse", "HEAD")
    assert files.revision(tmp_path / "repo/below") == first
    git("pack-refs", "--all")
    assert files.revision(tmp_path / "repo") == first
    git("worktree", "add", "-q", "-b", "other", str(tmp_path / "linked"))
    git("commit", "-q", "--allow-empty", "-m", "second", at=tmp_path / "linked")
    assert files.revision(tmp_path / "linked") == git("rev-parse", "HEAD", at=tmp_path / "linked") != first
    git("checkout", "-q", "--detach")
    assert files.revision(tmp_path / "repo") == first
    (tmp_path / "repo/.git/HEAD").write_text("ref: ../../secret")
    (tmp_path / "secret").write_text(COMMIT)
    assert files.revision(tmp_path / "repo") == ""
    (tmp_path / "repo/.git/HEAD").unlink()
    os.mkfifo(tmp_path / "repo/.git/HEAD")
    assert files.revision(tmp_path / "repo") == ""


def test_the_archive_carries_the_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The staged folder has the commit that is checked out, and the function that is served from it gives it to its jobs."""
    loaded = clouds.loaded(tmp_path)
    monkeypatch.setattr(stage, "revision", lambda folder: COMMIT)
    staged = stage.stage(loaded, tmp_path / "out")
    trigger = app.application(staged.folder)
    assert trigger.submitter.lineage == {DIGEST_LABEL: loaded.digest, REVISION_LABEL: COMMIT}
    assert trigger.ticker.engine.submitter.lineage == trigger.submitter.lineage
    monkeypatch.setattr(stage, "revision", lambda folder: "")
    assert REVISION_LABEL not in app.application(stage.stage(loaded, tmp_path / "out").folder).submitter.lineage


def test_ml_metadata(tmp_path: Path, here: server.RunningServer) -> None:
    """The SDK reads back an execution with the data and the package as inputs and the version as output, in the schedule's context; each
    permission for it is proved by a call, and a store that refuses leaves the version registered, with the reason in the text.
    """
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform

    place, vertex = nightly(tmp_path, ml_metadata=True), clouds.vertex(here)
    calls = place.uses_registry_of(vertex)
    _, _, row = a_night(place)
    assert row["outcome"] == "registered" and "ML Metadata" not in row["text"], row
    run = place.ended[0]["claim"]
    where = {"project": "my-project", "location": "us-central1", "credentials": AnonymousCredentials()}
    settings = vars(aiplatform.initializer.global_config)
    kept = dict(settings)
    try:
        aiplatform.init(**where, api_endpoint=f"{here.url}{server.AIPLATFORM}", api_transport="rest")
        execution = aiplatform.Execution(f"vertexrig-run-{run}")
        assert (execution.schema_title, execution.state.name) == ("system.Run", "COMPLETE")
        assert execution.metadata[REVISION_LABEL] == COMMIT and execution.metadata["run"] == run
        inputs = {one.schema_title: one for one in execution.get_input_artifacts()}
        assert inputs["system.Dataset"].uri == "csv:gs://my-bucket/data/today.csv"
        assert inputs["system.Artifact"].uri == "gs://my-bucket/packages/trainer.tar.gz"
        (model,) = execution.get_output_artifacts()
        assert (model.schema_title, model.metadata["resourceName"]) == ("google.VertexModel", row["model"])
        context: Any = aiplatform.Context.get("vertexrig-vertexrig-nightly")
        assert {one.name for one in context.get_artifacts()} == {one.name for one in (*inputs.values(), model)}
    finally:
        settings.clear()
        settings.update(kept)
    assert used(deploy.METADATA_CALLS, calls) == set(deploy.METADATA_CALLS)
    assert not unknown({**deploy.METADATA_CALLS, **deploy.MODEL_CALLS}, calls)

    def refused(*_: Any, **__: Any) -> Any:
        raise RestError("no permission", status=403)

    calls_before = vertex.rest.call
    vertex.rest.call = lambda m, path, **o: refused() if "metadataStores" in path else calls_before(m, path, **o)  # type: ignore[method-assign]
    _, _, row = a_night(place, 0.95)
    assert row["outcome"] == "registered" and "ML Metadata has no record of it: no permission" in row["text"]


def test_the_role_is_wider_only_for_ml_metadata(tmp_path: Path) -> None:
    """The function's role has the permissions on ML Metadata where a step asks for it, and only there."""
    for wide in (False, True):
        data = then("promote", {"register": {"ml_metadata": wide}})
        text = "\n".join(step.line for step in deploy.commands(clouds.loaded(tmp_path, data), tmp_path / "out"))
        assert all((name in text) is wide for name in deploy.METADATA_CALLS) and "aiplatform.models.upload" in text
