"""The trainer's own image built, submitted, deployed and rehearsed; no container engine is needed."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from localvertex.jobs.manager import Watcher
from localvertex.jobs.project_settings import settings_of_project
from localvertex.jobs.settings import Settings
from localvertex.rehearsal import prepare, rehearse
from localvertex.runner import RunOptions
from localvertex.server import settings_of
from tests.support import clouds
from tests.support.images import JOBS, PYTHON, project
from tests.support.packages import lock_nothing
from tests.support.tools import vertexrig
from tests.support.web import answering
from vertexrig.cloud import registry
from vertexrig.cloud.storage import Storage
from vertexrig.package import image
from vertexrig.project import config
from vertexrig.submit import images, publish, uploaded
from vertexrig.trigger import doctor
from vertexrig.workspace import Workspace


def stub(folder: Path, name: str, code: int = 0) -> None:
    """A program that notes its words, one line a call."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f'#!/bin/sh\necho "{name} $*" >> "{folder}/calls"\nexit {code}\n')
    program.chmod(0o755)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> config.Loaded:
    """A project with a lock file and a built package, which no test changes."""
    loaded = project(tmp_path_factory.mktemp("project"))
    lock_nothing(loaded, "cpu")
    return loaded


@pytest.mark.parametrize(
    ("mode", "there", "expected"),
    [
        ("--build", ("docker", "gcloud"), ["docker build --platform=linux/amd64 --tag={uri} {folder}"]),
        ("--build", ("gcloud",), ["gcloud artifacts repositories describe {repository}",
                                  "gcloud builds submit {folder} --config={folder}/cloudbuild.yaml {place}"]),
        ("--push", ("docker", "gcloud"), ["gcloud artifacts repositories describe {repository}",
                                          "gcloud builds submit {folder} --config={folder}/cloudbuild.yaml {place}"]),
        ("--push", ("docker",), ["docker build --platform=linux/amd64 --tag={uri} {folder}", "docker push {uri}"]),
    ],
)  # fmt: skip
def test_what_is_called(
    tmp_path: Path, locked: config.Loaded, mode: str, there: tuple[str, ...], expected: list[str]
) -> None:
    """The program that is there gets the words that the plan printed; the image's URI is the result."""
    folder = locked.file.parent
    planned = vertexrig("image", "cpu", cwd=folder)
    for name in there:
        stub(tmp_path / "bin", name)
    path = {"PATH": str(tmp_path / "bin"), "STORAGE_EMULATOR_HOST": "http://127.0.0.1:9"}
    done = vertexrig("image", "cpu", mode, cwd=folder, env=path)
    assert done.returncode == 0, done.stderr
    uri = image.identify_image(locked, "cpu").uri
    assert done.stdout == planned.stdout == f"{uri}\n"
    place = "--project=my-project --region=us-central1"
    words = {"uri": uri, "folder": "build/images/trainer-cpu", "place": place}
    repository = "vertexrig --project=my-project --location=us-central1"
    calls = (tmp_path / "bin/calls").read_text().splitlines()
    assert [call.replace(f"{folder}/", "") for call in calls] == [
        line.format(**words, repository=repository) for line in expected
    ]
    assert all(call in planned.stderr for call in calls)
    assert ("triggered runs still use the previous image" in done.stderr) == (
        expected[0].startswith("gcloud") or mode == "--push"
    )


def test_the_plan_has_the_values_of_variables(locked: config.Loaded) -> None:
    """The commands of the plan can be pasted: they have a variable's value, not its name."""
    file = locked.file.with_name("variables.yaml")
    file.write_text(locked.file.read_text().replace("my-project", "${PROJECT:-my-project}"))
    done = vertexrig("image", "cpu", f"--file={file.name}", cwd=file.parent, env={"PROJECT": "other-project-77"})
    assert done.returncode == 0, done.stderr
    assert (
        "--project=other-project-77" in done.stderr
        and "${PROJECT}" not in done.stderr.partition("once for the project")[2]
    )


@pytest.mark.parametrize(("mode", "there"), [("--push", ("gcloud", "docker")), ("--build", ("gcloud",))])
def test_nothing_is_called_for_the_local_vertex(
    tmp_path: Path, locked: config.Loaded, mode: str, there: tuple[str, ...]
) -> None:
    """In a shell of the local Vertex nothing goes to a registry or to Cloud Build, also where only gcloud could build, and
    triggered runs there have the image from then on.
    """
    for name in there:
        stub(tmp_path / "bin", name, 7)
    with clouds.cloud(tmp_path) as here:
        triggered = Workspace(locked, uploaded=uploaded.UploadedArtifacts(locked, Storage(clouds.BUCKET, url=here.url)))
        environment = {**clouds.variables(here), "PATH": str(tmp_path / "bin")}
        done = vertexrig("image", "cpu", mode, cwd=locked.file.parent, env=environment)
        assert done.returncode == 0 and "nothing is built or pushed" in done.stderr, done.stderr
        assert triggered.prepare("cpu")
    assert not (tmp_path / "bin/calls").exists()


def test_a_missing_program_and_one_that_fails(tmp_path: Path, locked: config.Loaded) -> None:
    """Neither docker nor gcloud: both are named, exit code 2. One that fails: its command is named, exit code 1."""
    folder, path = locked.file.parent, {"PATH": str(tmp_path / "bin")}
    done = vertexrig("image", "cpu", "--build", cwd=folder, env=path)
    assert done.returncode == 2 and "neither docker nor gcloud is on the PATH" in done.stderr
    stub(tmp_path / "bin", "docker", 7)
    done = vertexrig("image", "cpu", "--build", cwd=folder, env=path)
    assert done.returncode == 1 and "this command failed: docker build" in done.stderr
    done = vertexrig("image", "prebuilt", cwd=folder)
    assert done.returncode == 2 and "write `image: build`" in done.stderr


@contextmanager
def artifact_registry(there: set[str]) -> Iterator[tuple[str, list[str]]]:
    """A server that knows the resources of `there` and no others; its URL, and what it was asked for."""
    asked: list[str] = []

    def answer(method: str, path: str, data: bytes) -> tuple[int, Any]:
        asked.append(path)
        return (200, {}) if path in there else (404, {"error": {"code": 404, "message": "not there"}})

    with answering(answer) as url:
        yield url, asked


REPOSITORY_PATH = "/v1/projects/my-project/locations/us-central1/repositories/vertexrig"


def test_submit_the_trigger_and_the_doctor_use_the_image_of_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image that is not in the registry is not submitted, and the line that makes it is said; once it is there the job is
    made and triggered runs use it, also when the sources have changed since.
    """
    with clouds.cloud(tmp_path) as here:
        for name, value in clouds.variables(here).items():
            monkeypatch.setenv(name, value)
        loaded = project(tmp_path)
        uri = image.identify_image(loaded, "cpu").uri
        tag = f"{REPOSITORY_PATH}/packages/trainer-cpu/tags/{uri.rpartition(':')[2]}"
        storage = Storage(clouds.BUCKET, url=here.url)
        triggered = Workspace(loaded, uploaded=uploaded.UploadedArtifacts(loaded, storage))
        with pytest.raises(uploaded.NoPackageError, match="no CPU image of the trainer was pushed"):
            triggered.prepare("cpu")
        with artifact_registry(set()) as (url, asked):
            monkeypatch.setenv(registry.ENDPOINT_VARIABLE, url)
            done = vertexrig("submit", "cpu", cwd=tmp_path)
            assert done.returncode == 2 and "vertexrig image cpu --push" in done.stderr and asked == [tag]
            assert clouds.jobs(here) == []
            found = {one.name: one for one in look(here, loaded)}
            assert (
                found["Artifact Registry"].outcome == "error"
                and "repositories create" in found["Artifact Registry"].fix
            )
        with artifact_registry({tag, REPOSITORY_PATH}) as (url, _):
            monkeypatch.setenv(registry.ENDPOINT_VARIABLE, url)
            done = vertexrig("submit", "cpu", cwd=tmp_path)
            assert done.returncode == 0 and f"image: {uri}" in done.stderr, done.stderr
            found = {one.message: one for one in look(here, loaded)}
            assert found[f"{uri} is there"].outcome == "ok" and sum("is not there" in text for text in found) == 1
            assert any("no TPU image" in text for text in found)
        shutil.move(tmp_path / "code", tmp_path / "moved")  # the function has no trainer
        (pool,) = triggered.overridden(loaded).prepare("cpu").document.pools
        assert pool.image == uri
        shutil.move(tmp_path / "moved", tmp_path / "code")
        (tmp_path / "code/trainer/task.py").write_text("print('changed')\n")
        monkeypatch.delenv(registry.ENDPOINT_VARIABLE)
        # the local Vertex runs the sources and pulls nothing
        assert images.is_local() and list(look(here, loaded)) == []
        assert (
            publish.publish(Workspace(loaded), ["cpu"], storage) == [image.identify_image(loaded, "cpu").uri] != [uri]
        )


def look(here: Any, loaded: config.Loaded) -> Iterator[doctor.Result]:
    subject = doctor.Subject(loaded, clouds.vertex(here), None, lambda words: None, date(2026, 11, 21))
    return doctor.check_images(subject)


def test_an_image_from_elsewhere_is_not_run(tmp_path: Path) -> None:
    """What the bucket names must be an image of this project."""
    loaded, storage = project(tmp_path), clouds.MemoryCloud().storage
    images.remember(loaded, "cpu", "docker.io/someone/else:1", storage)
    with pytest.raises(uploaded.NoPackageError):
        uploaded.UploadedArtifacts(loaded, storage).image("cpu")


def test_the_function_s_commands_make_the_repository(tmp_path: Path) -> None:
    """A project with built images gets the repository, and its training account the role to pull; others get neither."""
    loaded = project(tmp_path, jobs={"cpu": {**JOBS["cpu"], "service_account": "t@my-project.iam.gserviceaccount.com"}})
    lines = vertexrig("function", "deploy", cwd=tmp_path).stdout
    assert "gcloud artifacts repositories create vertexrig --repository-format=docker" in lines
    assert "--role=roles/artifactregistry.reader" in lines and "t@my-project" in lines
    file = loaded.file
    file.write_text(file.read_text().replace("image: build", "image: tf-2.17"))
    assert "gcloud artifacts" not in vertexrig("function", "deploy", cwd=tmp_path).stdout


@pytest.mark.whole
def test_a_rehearsal_runs_the_trainer_as_before(tmp_path: Path) -> None:
    """The trainer's package is installed and started from its sources, with its args; what differs from the image is named."""
    lines: list[str] = []
    loaded = project(tmp_path, python="3.9")
    done = rehearse(prepare(Workspace(loaded), "cpu"), watcher=Watcher(line=lambda _, line: lines.append(line.text)))
    assert done.succeeded, done.error
    assert "trained 2" in lines
    here = f"{PYTHON}.{sys.version_info[2]}"
    tag = image.identify_image(loaded, "cpu").name
    assert done.differences == (f"the stand-in for image {tag} has Python {here} instead of 3.9",)


@pytest.mark.whole
def test_the_local_vertex_runs_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of another module, submitted over the API, ends well there without an image."""
    loaded = project(tmp_path)
    run = replace(settings_of_project(loaded, tmp_path, gs_paths="mapped").options, grace=0.5)
    assert isinstance(run, RunOptions)
    settings = json.loads(json.dumps(asdict(Settings(tmp_path, options=run)), default=str))
    assert settings_of(settings).options == run  # as `local up --detach` hands them on
    with clouds.cloud(tmp_path, options=run) as here:
        done = vertexrig("submit", "other", cwd=tmp_path, env=clouds.variables(here))
        assert done.returncode == 0, done.stderr
        done = vertexrig("watch", done.stdout.strip(), "--poll=0.1", cwd=tmp_path, env=clouds.variables(here))
        assert done.returncode == 0 and "SUCCEEDED" in done.stdout + done.stderr
