"""`image: build`: the trainer's own image, from its name and files to what runs it; no container engine is needed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from tests import clouds
from tests.packages import lock_nothing, small
from tests.tools import REPOSITORY, need, vertexrig
from vertexrig.checks.workspace import Workspace
from vertexrig.cloud import registry
from vertexrig.cloud.storage import Storage
from vertexrig.errors import PackageError, VertexrigError
from vertexrig.finding import Severity
from vertexrig.local.jobs.settings import Settings
from vertexrig.local.rehearsal import rehearse
from vertexrig.local.runner import RunOptions
from vertexrig.local.runner.configured import of_project
from vertexrig.local.server import settings_of
from vertexrig.package import dockerfile, image, locking, uv
from vertexrig.package.recipes import KINDS, RECIPES
from vertexrig.project import config
from vertexrig.submit import images, submission
from vertexrig.trigger import doctor

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
SETUP = "from setuptools import setup\nsetup(name='trainer', version='1', packages=['trainer'], install_requires={})\n"
TASK = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
print("trained", parser.parse_args().epochs)
"""
GPU = {
    "topology": "gpu",
    "machine_type": "n1-standard-8",
    "accelerator_type": "NVIDIA_TESLA_T4",
    "accelerator_count": 1,
}
JOBS: dict[str, Any] = {
    "cpu": {"machine_type": "n1-standard-4", "timeout": "600s", "args": {"epochs": 2}},
    "other": {"machine_type": "n1-standard-4", "timeout": "600s", "module": "trainer.other"},
    "gpu": {**GPU, "timeout": "600s"},
    "tpu": {"topology": "tpu", "accelerator_type": "TPU_V3", "accelerator_count": 8, "timeout": "600s"},
    "prebuilt": {"machine_type": "n1-standard-4", "timeout": "600s", "image": "tf-2.17"},
}
HOME = "us-central1-docker.pkg.dev/my-project/vertexrig"


def project(
    folder: Path, *, task: str = TASK, requires: tuple[str, ...] = (), jobs: Any = JOBS, **build: str
) -> config.Loaded:
    """A project whose trainer has its own image."""
    small(folder / "code", task, setup=SETUP.format(list(requires)), files={"trainer/other.py": "print('other')\n"})
    trainer = {"path": "code", "image": "build", "build": {"python": PYTHON, **build}}
    data = {**clouds.PROJECT, "trainer": trainer, "jobs": jobs, "sweeps": {}, "trigger": {}}
    return clouds.loaded(folder, data)


def rendered(loaded: config.Loaded, name: str) -> dict[str, Any]:
    pool: dict[str, Any] = yaml.safe_load(Workspace(loaded).renderer.render(name).text)["workerPoolSpecs"][0]
    return pool


# The name


def test_the_image_is_a_container_with_its_own_entry_point(tmp_path: Path) -> None:
    """The kind follows the machines; args are as before; a module of the job's own is its command; a prebuilt image that a
    user names stays, with its package."""
    loaded = project(tmp_path, framework="tf-2.21")
    pool = rendered(loaded, "cpu")
    assert "pythonPackageSpec" not in pool and pool["containerSpec"]["args"] == ["--epochs=2"]
    assert re.fullmatch(rf"{HOME}/trainer-cpu:[0-9a-f]{{12}}", pool["containerSpec"]["imageUri"])
    assert "command" not in pool["containerSpec"]
    assert rendered(loaded, "other")["containerSpec"]["command"] == ["python", "-m", "trainer.other"]
    for kind in ("gpu", "tpu"):
        assert f"/trainer-{kind}:" in rendered(loaded, kind)["containerSpec"]["imageUri"]
    assert rendered(loaded, "prebuilt")["pythonPackageSpec"]["packageUris"]


@pytest.mark.parametrize("change", ["code", "lock", "base_image", "framework", "python", "module", "nothing"])
def test_the_tag_follows_what_goes_into_the_image(tmp_path: Path, change: str) -> None:
    """Each change of what the image is made of gives another tag; another folder with the same content gives none."""
    loaded = project(tmp_path / "one", framework="sklearn")
    before = image.identify_image(loaded, "cpu").uri
    settings = {"base_image": "python:3.12-slim", "framework": "sklearn-1.6", "python": "3.9"}
    build = {change: settings[change]} if change in settings else {}
    again = project(tmp_path / "two", **{"framework": "sklearn", **build})
    if change == "code":
        (tmp_path / "two/code/trainer/task.py").write_text("print('new')\n")
    if change == "lock":
        (tmp_path / "two/locks").mkdir()
        (tmp_path / "two/locks/trainer-cpu.txt").write_text("six==1.17.0\n")
    if change == "module":
        trainer = replace(again.project.trainer, module="trainer.other")
        again = replace(again, project=replace(again.project, trainer=trainer))
    after = image.identify_image(again, "cpu").uri
    assert (after == before) == (change == "nothing")


def test_a_repository_elsewhere(tmp_path: Path) -> None:
    """A repository with host and project is taken as it is."""
    loaded = project(tmp_path, repository="europe-docker.pkg.dev/images-project/shared", name="digits")
    assert image.identify_image(loaded, "gpu").uri.startswith("europe-docker.pkg.dev/images-project/shared/digits-gpu:")


# The files


@pytest.mark.parametrize(("framework", "kind"), RECIPES)
def test_the_dockerfile_keeps_hadolint_s_rules(tmp_path: Path, framework: str, kind: str) -> None:
    """hadolint finds nothing at all in any variant."""
    hadolint = need("hadolint") if shutil.which("hadolint") else str(Path(sys.executable).parent / "hadolint")
    if not Path(hadolint).exists():
        need("hadolint")
    text = image.identify_image(project(tmp_path, framework=framework), kind).dockerfile
    done = subprocess.run([hadolint, "--no-color", "-"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@pytest.mark.parametrize(("framework", "kind"), RECIPES)
def test_the_dockerfile_as_our_own_reader_takes_it(tmp_path: Path, framework: str, kind: str) -> None:
    """Two stages of one tagged base, an entry point that gets args, hashes held by pip, and no other user than root, on
    which hypertune depends."""
    made = image.identify_image(project(tmp_path, framework=framework), kind)
    read = dockerfile.parse(made.dockerfile)
    assert read.base == made.base == f"python:{made.python}-slim-bookworm"
    assert (read.entrypoint, read.shell, read.cmd) == (("python", "-m", "trainer.task"), False, ())
    assert made.dockerfile.count("\nFROM ") == 2 and "--require-hashes" in made.dockerfile
    assert not re.search(r"(?m)^USER ", made.dockerfile) and "hypertune" in made.dockerfile
    assert read.environment["PATH"].startswith("/opt/venv/bin:")
    assert ("LD_LIBRARY_PATH" in read.environment) == (kind == "gpu")


def test_a_base_with_a_digest_is_in_both_stages(tmp_path: Path) -> None:
    """`base_image` is taken as it is, and the hint at a digest is gone."""
    base = f"python:3.12-slim@sha256:{'0' * 64}"
    text = image.identify_image(project(tmp_path, base_image=base), "cpu").dockerfile
    assert text.count(f"FROM {base}") == 2 and "by its digest" not in text


def test_cloud_build_s_own_reader_takes_the_config(tmp_path: Path) -> None:
    """gcloud reads the config before it asks who one is; a misspelt field would end there."""
    gcloud, loaded = need("gcloud"), project(tmp_path)
    lock_nothing(loaded, "cpu")
    made = image.identify_image(loaded, "cpu")
    wheel = locking.wheel_of(loaded).wheel
    assert wheel is not None
    folder = image.stage(made, wheel, tmp_path / "context")

    def submit() -> str:
        words = image.build_commands(made, folder, "my-project", "us-central1")["gcloud"][0]
        env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "CLOUDSDK_CONFIG": str(tmp_path / "gcloud")}
        return subprocess.run([gcloud, *words[1:], "--quiet"], capture_output=True, text=True, env=env).stderr

    assert "as build config" not in (said := submit()) and "auth" in said
    text = (folder / "cloudbuild.yaml").read_text()
    (folder / "cloudbuild.yaml").write_text(text.replace('"images"', '"imagez"'))
    assert "as build config: .imagez: unused" in submit()


def test_compiled_code_is_refused(tmp_path: Path) -> None:
    """A wheel for this machine may not run in the image, and what to do is said."""
    loaded = project(tmp_path)
    with pytest.raises(PackageError, match="compiled code for this machine.*image: custom"):
        image.stage(image.identify_image(loaded, "cpu"), Path("t-1-cp311-cp311-linux_x86_64.whl"), tmp_path / "out")


def test_a_kind_without_an_image_names_those_that_have_one(tmp_path: Path) -> None:
    """scikit-learn has no image for TPUs."""
    project(tmp_path, framework="sklearn-1.6")
    done = vertexrig("render", "tpu", cwd=tmp_path)
    assert (
        done.returncode == 2 and "framework sklearn has no TPU image. These have one: jax, pytorch, tf" in done.stderr
    )


# The lock file


def inputs(loaded: config.Loaded, kind: str = "cpu") -> list[str]:
    wheel = locking.wheel_of(loaded).wheel
    assert wheel is not None
    return locking.inputs(loaded, kind, wheel)


def test_what_goes_into_the_image(tmp_path: Path) -> None:
    """The framework in its variant, what the trainer requires with its markers, and what it imports and a prebuilt image
    would have had; nothing twice."""
    task = "import hypertune, numpy, tensorflow\nfrom google.cloud import storage\nfrom google.cloud.bigquery import Client\n"
    requires = ("tqdm>=4; python_version<'4'", "numpy<3")
    loaded = project(tmp_path, task=task, requires=requires, framework="tf-2.21")
    found = [line.replace(" ", "").replace('"', "'") for line in inputs(loaded, "gpu")]
    assert found == [
        "tensorflow[and-cuda]~=2.21.0", "tqdm>=4;python_version<'4'", "numpy<3",
        "cloudml-hypertune", "google-cloud-bigquery",
    ]  # fmt: skip
    assert inputs(loaded, "tpu")[0] == "tensorflow==2.15.0"


def test_requirements_that_a_prebuilt_image_brings_are_in_our_own(tmp_path: Path) -> None:
    """torch of a requirements.txt is left out of a package, and not of an image; its indexes are named, too."""
    loaded = project(tmp_path)
    (tmp_path / "code/setup.py").unlink()
    lines = "--extra-index-url https://pypi.example.com/simple\n-f https://example.com/wheels\ntorch==2.4.1\ntqdm\n"
    (tmp_path / "code/requirements.txt").write_text(lines)
    assert inputs(loaded) == [
        "--extra-index-url https://pypi.example.com/simple", "--find-links https://example.com/wheels", "tqdm", "torch==2.4.1",
    ]  # fmt: skip
    (tmp_path / "code/requirements.txt").write_text("--index-url https://me:secret@pypi.example.com/simple\ntqdm\n")
    with pytest.raises(
        PackageError, match=r"requirements.txt:1: the index is named with a user or a password"
    ) as caught:
        inputs(loaded)
    assert "secret" not in str(caught.value)


def test_the_layers_really_install_and_the_program_starts(tmp_path: Path) -> None:
    """The RUN lines of the rendered Dockerfile, typed in a clean environment of this Python, install the locked
    requirements with their hashes and the trainer; the ENTRYPOINT then starts it. A lock with a wrong hash does not install."""
    need("uv")
    task = "import six, sys\nprint('six', six.__version__, sys.prefix, *sys.argv[1:])\n"
    loaded = project(tmp_path, task=task, requires=("six",))
    done = vertexrig("image", "cpu", "--format=json", cwd=tmp_path)
    assert done.returncode == 0 and "resolving 1 requirements" in done.stderr, done.stderr
    (made,) = json.loads(done.stdout)["images"]
    assert "resolving" not in vertexrig("image", "cpu", cwd=tmp_path).stderr
    context, venv = Path(tmp_path, made["folder"]), tmp_path / "venv"
    text = (context / "Dockerfile").read_text()
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)

    def layer(start: str) -> subprocess.CompletedProcess[str]:
        line = next(line for line in text.splitlines() if line.startswith(f"RUN {start}"))
        env = {"PATH": f"{venv}/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
        return subprocess.run(
            ["sh", "-ec", line.removeprefix("RUN ")], cwd=context, env=env, capture_output=True, text=True
        )

    lock = (context / "requirements.txt").read_text()
    (context / "requirements.txt").write_text(re.sub(r"sha256:[0-9a-f]{4}", "sha256:0000", lock))
    refused = layer("pip install --no-cache-dir --no-deps --require-hashes")
    assert refused.returncode != 0 and "DO NOT MATCH THE HASHES" in refused.stderr
    (context / "requirements.txt").write_text(lock)
    for start in (
        "pip install --no-cache-dir --no-deps --require-hashes",
        "pip install --no-cache-dir --no-deps --no-index",
    ):
        ran = layer(start)
        assert ran.returncode == 0, ran.stderr
    head = dockerfile.parse(text).entrypoint
    ran = subprocess.run([venv / "bin" / head[0], *head[1:], "--epochs=3"], capture_output=True, text=True, cwd="/")
    version = re.search(r"(?m)^six==(\S+)", lock)
    assert version is not None and ran.stdout == f"six {version[1]} {venv} --epochs=3\n", ran.stderr
    assert images.is_ours(loaded, "cpu", made["uri"])


def test_what_cannot_be_resolved_or_has_no_hash_is_said(tmp_path: Path) -> None:
    """uv's own words for a conflict; a requirement that is a folder has no hash."""
    need("uv")
    made = image.identify_image(project(tmp_path), "cpu")
    with pytest.raises(PackageError, match="(?s)cannot be resolved for Python.*six"):
        locking.write_lock(made, ["six==1.16.0", "six==1.17.0"])
    with pytest.raises(PackageError, match="has no hash, because it comes from a URL or a folder"):
        locking.write_lock(made, [f"trainer @ {(tmp_path / 'code').as_uri()}"])
    assert not made.lock.exists()


def test_without_uv_the_line_that_installs_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv is looked for on the PATH and beside this Python."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(VertexrigError, match="/bin/false -m pip install uv"):
        uv.uv()


def test_this_repository_s_locks_are_current_and_its_jobs_without_complaint() -> None:
    """Every job of this repository has an image whose lock file fits its requirements, no finding about its image, and no
    warning that its user can do nothing about."""
    loaded = config.load(REPOSITORY / "vertexrig.yaml", environment={})
    workspace = Workspace(loaded)
    kinds = set()
    for name in [*loaded.project.jobs, *loaded.project.sweeps]:
        found = workspace.prepare(name).findings
        assert [finding.id for finding in found if finding.id.startswith("image")] == [], name
        loud = [finding for finding in found if finding.severity is not Severity.INFO]
        # TPUs need a quota that a new project has not, which the warning says how to get
        assert [finding.id for finding in loud] == (["quota-zero"] if name == "tpu" else []), name
        assert all(finding.fix for finding in loud)
        kinds |= set(workspace.renderer.images_of(name))
    assert kinds == set(KINDS)
    wheel = locking.wheel_of(loaded).wheel
    assert wheel is not None
    for kind in KINDS:
        assert locking.is_current(image.identify_image(loaded, kind), locking.inputs(loaded, kind, wheel)), kind


# Checks


def test_checks_know_the_image(tmp_path: Path) -> None:
    """A missing lock file; the trainer's Python; another machine's image; a module that is not there; TensorFlow's Keras."""
    task = "from tensorflow import keras\nimport tensorflow as tf\nSTRATEGY = tf.distribute.MultiWorkerMirroredStrategy()\n"
    task += "with STRATEGY.scope():\n    model = keras.Sequential()\nmodel.compile()\nmodel.fit(1)\n"
    uri = image.identify_image(project(tmp_path, task=task, framework="tf-2.21"), "cpu").uri
    jobs = {
        **JOBS,
        "mixed": {**GPU, "container": {"image_uri": uri}},
        "lost": {**JOBS["cpu"], "module": "trainer.nowhere"},
        "many": {"topology": "multi-worker", "machine_type": "n1-standard-4", "worker": {"replica_count": 2}},
    }
    loaded = project(tmp_path, task=task, framework="tf-2.21", jobs=jobs)

    def findings(name: str, of: config.Loaded = loaded) -> dict[str, str]:
        return {finding.id: finding.message for finding in Workspace(of).prepare(name).findings}

    assert "locks/trainer-cpu.txt" in findings("cpu")["image-lock"] and "image-hypertune" not in findings("cpu")
    assert "has no GPU support" in findings("mixed")["image-accelerator"]
    assert any("trainer.nowhere" in message for message in findings("lost").values())
    assert any("TensorFlow 2.21" in message for message in findings("many").values())
    older = project(tmp_path, task=task, framework="tf-2.15", jobs=jobs)
    assert not any("TensorFlow 2.15" in message for message in findings("many", older).values())
    (tmp_path / "code/setup.py").unlink()
    (tmp_path / "code/pyproject.toml").write_text(
        '[project]\nname = "trainer"\nversion = "1"\nrequires-python = ">=3.13"\n'
    )
    assert ">=3.13, and trainer-cpu has 3.12" in findings("cpu", project_as(loaded, python="3.12"))["image-python"]
    assert "image-python" not in findings("cpu", project_as(loaded, python="3.13"))


def project_as(loaded: config.Loaded, **build: str) -> config.Loaded:
    trainer = loaded.project.trainer
    trainer = replace(trainer, build=replace(trainer.build, **build))
    return replace(loaded, project=replace(loaded.project, trainer=trainer))


# Building


def stub(folder: Path, name: str, code: int = 0) -> None:
    """A program that notes its words, one line a call."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f'#!/bin/sh\necho "{name} $*" >> "{folder}/calls"\nexit {code}\n')
    program.chmod(0o755)


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
def test_what_is_called(tmp_path: Path, mode: str, there: tuple[str, ...], expected: list[str]) -> None:
    """The program that is there gets the words that the plan printed; the image's URI is the result."""
    loaded = project(tmp_path)
    lock_nothing(loaded, "cpu")
    planned = vertexrig("image", "cpu", cwd=tmp_path)
    for name in there:
        stub(tmp_path / "bin", name)
    path = {"PATH": str(tmp_path / "bin"), "STORAGE_EMULATOR_HOST": "http://127.0.0.1:9"}
    done = vertexrig("image", "cpu", mode, cwd=tmp_path, env=path)
    assert done.returncode == 0, done.stderr
    uri = image.identify_image(loaded, "cpu").uri
    assert done.stdout == planned.stdout == f"{uri}\n"
    place = "--project=my-project --region=us-central1"
    words = {"uri": uri, "folder": "build/images/trainer-cpu", "place": place}
    repository = "vertexrig --project=my-project --location=us-central1"
    calls = (tmp_path / "bin/calls").read_text().splitlines()
    assert [call.replace(f"{tmp_path}/", "") for call in calls] == [
        line.format(**words, repository=repository) for line in expected
    ]
    assert all(call in planned.stderr for call in calls)
    assert ("triggered runs go on with the image before" in done.stderr) == (
        expected[0].startswith("gcloud") or mode == "--push"
    )


def test_a_missing_program_and_one_that_fails(tmp_path: Path) -> None:
    """Neither docker nor gcloud: both are named, exit code 2. One that fails: its command is named, exit code 1."""
    lock_nothing(project(tmp_path), "cpu")
    (tmp_path / "bin").mkdir()
    done = vertexrig("image", "cpu", "--build", cwd=tmp_path, env={"PATH": str(tmp_path / "bin")})
    assert done.returncode == 2 and "neither docker nor gcloud is on the PATH" in done.stderr
    stub(tmp_path / "bin", "docker", 7)
    done = vertexrig("image", "cpu", "--build", cwd=tmp_path, env={"PATH": str(tmp_path / "bin")})
    assert done.returncode == 1 and "this command failed: docker build" in done.stderr
    done = vertexrig("image", "prebuilt", cwd=tmp_path)
    assert done.returncode == 2 and "write `image: build`" in done.stderr


# Submitting


@contextmanager
def artifact_registry(there: set[str]) -> Iterator[tuple[str, list[str]]]:
    """A server that knows the resources of `there` and no others; its URL, and what it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            found = self.path in there
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(b"{}" if found else b'{"error": {"code": 404, "message": "not there"}}')

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


REPOSITORY_PATH = "/v1/projects/my-project/locations/us-central1/repositories/vertexrig"


def test_submit_the_trigger_and_the_doctor_use_the_image_of_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image that is not in the registry is not submitted, and the line that makes it is said; once it is there the job is
    made and triggered runs use it, also when the sources have changed since."""
    with clouds.cloud(tmp_path) as here:
        for name, value in clouds.variables(here).items():
            monkeypatch.setenv(name, value)
        loaded = project(tmp_path)
        uri = image.identify_image(loaded, "cpu").uri
        tag = f"{REPOSITORY_PATH}/packages/trainer-cpu/tags/{uri.rpartition(':')[2]}"
        storage = Storage(clouds.BUCKET, url=here.url)
        triggered = Workspace(loaded, uploaded=submission.uploaded(loaded, storage))
        with pytest.raises(submission.NoPackageError, match="no CPU image of the trainer was pushed"):
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
        assert (
            images.is_local() and list(look(here, loaded)) == []
        )  # the local Vertex runs the sources and pulls nothing
        assert (
            submission.publish(Workspace(loaded), ["cpu"], storage)
            == [image.identify_image(loaded, "cpu").uri]
            != [uri]
        )


def look(here: Any, loaded: config.Loaded) -> Iterator[doctor.Result]:
    subject = doctor.Subject(loaded, clouds.vertex(here), None, lambda words: None, doctor.date(2026, 11, 21))
    return doctor._images(subject)


def test_an_image_from_elsewhere_is_not_run(tmp_path: Path) -> None:
    """What the bucket names must be an image of this project."""
    with clouds.cloud(tmp_path) as here:
        loaded, storage = project(tmp_path), Storage(clouds.BUCKET, url=here.url)
        images.remember(loaded, "cpu", "docker.io/someone/else:1", storage)
        with pytest.raises(submission.NoPackageError):
            submission.uploaded(loaded, storage).image("cpu")


def test_the_function_s_commands_make_the_repository(tmp_path: Path) -> None:
    """A project with built images gets the repository, and its training account the role to pull; others get neither."""
    loaded = project(tmp_path, jobs={"cpu": {**JOBS["cpu"], "service_account": "t@my-project.iam.gserviceaccount.com"}})
    lines = vertexrig("function", "deploy", cwd=tmp_path).stdout
    assert "gcloud artifacts repositories create vertexrig --repository-format=docker" in lines
    assert "--role=roles/artifactregistry.reader" in lines and "t@my-project" in lines
    file = loaded.file
    file.write_text(file.read_text().replace("image: build", "image: tf-2.17"))
    assert "gcloud artifacts" not in vertexrig("function", "deploy", cwd=tmp_path).stdout


# Rehearsing


@pytest.mark.parametrize(("name", "said"), [("cpu", "trained 2"), ("other", "other")])
def test_a_rehearsal_runs_the_trainer_as_before(tmp_path: Path, name: str, said: str) -> None:
    """The trainer's package is installed and started from its sources, with its args; what differs from the image is named."""
    from vertexrig.local.rehearsal import Watcher

    lines: list[str] = []
    loaded = project(tmp_path, python="3.9" if name == "cpu" else PYTHON)
    watcher = Watcher(line=lambda trial, line: lines.append(line.text))
    done = rehearse(Workspace(loaded), name, watcher=watcher)
    assert done.succeeded, done.error
    assert said in lines
    here = f"{PYTHON}.{sys.version_info[2]}"
    tag = image.identify_image(loaded, "cpu").name
    assert done.stand_ins == ((f"Python {here} for 3.9 of the image {tag}",) if name == "cpu" else ())


def test_the_local_vertex_runs_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job submitted over the API ends well there, without an image."""
    loaded = project(tmp_path)
    run = replace(of_project(loaded), grace=0.5)
    assert isinstance(run, RunOptions)
    settings = json.loads(json.dumps(asdict(Settings(tmp_path, run=run)), default=str))
    assert settings_of(settings).run == run  # as `local up --detach` hands them on
    with clouds.cloud(tmp_path, run=run) as here:
        done = vertexrig("submit", "cpu", cwd=tmp_path, env=clouds.variables(here))
        assert done.returncode == 0, done.stderr
        done = vertexrig("watch", done.stdout.strip(), "--poll=0.1", cwd=tmp_path, env=clouds.variables(here))
        assert done.returncode == 0 and "SUCCEEDED" in done.stdout + done.stderr
