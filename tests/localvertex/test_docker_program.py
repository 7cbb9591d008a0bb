"""The `docker` that `local run` puts first on PATH: gcloud's builds without an engine, and Google's registries with one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from localvertex.runner import engine, image_stand_ins
from tests.support import engines
from tests.support.engines import BASE, EXECUTOR
from tests.support.tools import need, vertexrig

PREBUILT = "us-docker.pkg.dev/vertex-ai/training/sklearn-cpu.1-6:latest"
IMAGE = "us-docker.pkg.dev/my-project/images/trainer:1"


def run(folder: Path, *words: str, given: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """A command under `local run`, with input."""
    argv = ("local", "run", "--root", str(folder / "state"), "--", *words)
    return vertexrig(*argv, cwd=folder, env={"HOME": str(folder), **env}, stdin=given)


def package(folder: Path, code: str) -> None:
    (folder / "helper.py").write_text("NAME = 'helped'\n")
    (folder / "task.py").write_text(code)


def create(image: str, *more: str) -> list[str]:
    spec = f"machine-type=n1-standard-4,replica-count=1,executor-image-uri={image},local-package-path=.,script=task.py"
    words = ["gcloud", "ai", "custom-jobs", "create", "--region=us-central1", "--display-name=packaged"]
    return [*words, f"--worker-pool-spec={spec}", *more]


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_autopackaging_without_an_engine(tmp_path: Path) -> None:
    """`local-package-path` of gcloud trains the folder's module with its requirements where no engine answers."""
    package(
        tmp_path,
        "import sys, helper, six\nassert six.__version__ == '1.16.0'\nprint(helper.NAME)\nsys.exit(len(sys.argv) - 2)\n",
    )
    (tmp_path / "requirements.txt").write_text("six==1.16.0\n")
    done = run(tmp_path, *create(PREBUILT, "--args=one"), **{engine.VARIABLE: "none"})
    assert "  packaged  SUCCEEDED\n" in done.stderr, done.stderr
    (made,) = image_stand_ins.every(tmp_path / "state")
    assert made.base == PREBUILT and made.name.startswith("gcr.io/") and not (Path(made.folder) / "state").exists()


DOCKERFILE = f'FROM {PREBUILT}\nCOPY ["task.py", "task.py"]\nENTRYPOINT ["python3", "task.py"]\n'


@pytest.mark.parametrize(("dockerfile", "why"), [
    (f"FROM {PREBUILT}\nRUN apt-get install gcc\n", "this needs a container engine, and none answers: RUN apt-get install gcc"),
    (f'FROM {PREBUILT}\nCOPY ["../other", "."]\n', "leads out of the folder of the build"),
    (f'FROM {PREBUILT}\nCOPY ["gone.py", "."]\n', "gone.py is not in "),
])  # fmt: skip
def test_what_needs_an_engine_is_refused_by_name(tmp_path: Path, dockerfile: str, why: str) -> None:
    """Without an engine, another Dockerfile than gcloud's is refused with its line, and makes no image."""
    with pytest.raises(image_stand_ins.UsageError, match=why):
        image_stand_ins.build(tmp_path, IMAGE, dockerfile, tmp_path)
    assert image_stand_ins.every(tmp_path) == []


def test_docker_without_an_engine(tmp_path: Path) -> None:
    """Builds from stdin, tags, lists, pushes and logs in work without an engine; what is not here is neither pushed nor run."""
    (tmp_path / "task.py").touch()
    lines = [
        f"docker build --no-cache -t {IMAGE} --rm -f- .", f"docker tag {IMAGE} {IMAGE}b", f"docker push {IMAGE}b", "docker images",
        "docker login -u x us-docker.pkg.dev", f"! docker pull {IMAGE}c", f"! docker run {IMAGE}", "! docker info",
    ]  # fmt: skip
    done = run(tmp_path, "sh", "-c", " && ".join(lines), given=DOCKERFILE, **{engine.VARIABLE: "none"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == [
        f"{IMAGE}b: the image stays on this machine",
        IMAGE,
        f"{IMAGE}b",
        "Login Succeeded",
    ]
    assert f"{IMAGE}c is not on this machine" in done.stderr and "this is not done: docker run" in done.stderr


def test_docker_as_the_command_itself(tmp_path: Path) -> None:
    """`local run -- docker push` of an image of Google's stays on this machine, as in a shell: a docker of the user's PATH is not asked."""
    theirs = tmp_path / "bin/docker"
    theirs.parent.mkdir()
    theirs.write_text("#!/bin/sh\necho it left the machine\n")
    theirs.chmod(0o755)
    path = f"{theirs.parent}{os.pathsep}{os.environ['PATH']}"
    done = run(tmp_path, "docker", "push", IMAGE, PATH=path, **{engine.VARIABLE: "none"})
    assert (done.returncode, done.stdout) == (1, "") and f"{IMAGE} is not on this machine" in done.stderr, done.stderr


@pytest.mark.whole
@pytest.mark.parametrize("name", ["podman", "docker"])
def test_docker_with_an_engine(containers: Path, tmp_path: Path, name: str) -> None:
    """With an engine, `docker` is the engine's own, and an image that it built is pushed to and pulled from Google's registries here."""
    if name == "docker":
        with engines.docker_over_podman():
            _with_engine(tmp_path, name)
    else:
        _with_engine(tmp_path, name)


def _with_engine(folder: Path, name: str) -> None:
    (folder / "Dockerfile").write_text(
        f'FROM {BASE}\nENTRYPOINT ["python", "-c", "print(6 * 7)"]\nENV BUILT_BY={name}\n'
    )
    own = {
        word: os.environ[word]
        for word in ("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "DOCKER_HOST")
        if word in os.environ
    }
    lines = [f"docker build -q -t {IMAGE}-{name} .", f"docker push {IMAGE}-{name}", f"docker pull {IMAGE}-{name}"]
    if shutil.which("gcloud"):
        lines += [
            "gcloud artifacts repositories create images --repository-format=docker --location=us --project=my-project"
        ]
        form = "--include-tags --format='value(package,tags)'"
        lines += [f"gcloud artifacts docker images list us-docker.pkg.dev/my-project/images {form}"]
    lines += [f"docker run --rm {IMAGE}-{name}", f"! docker push {IMAGE}-gone"]
    done = run(folder, "sh", "-c", " && ".join(lines), **{engine.VARIABLE: name}, **own)
    assert done.returncode == 0, done.stderr
    stays = f"{IMAGE}-{name}: the image stays on this machine"
    listed = f"{IMAGE.partition(':')[0]}\t1-{name}"
    assert listed in done.stdout.splitlines() or not shutil.which("gcloud")
    assert done.stdout.splitlines()[-1] == "42" and done.stdout.count(f"{stays}\n") == 2
    assert f"{IMAGE}-gone is not on this machine" in done.stderr
    assert image_stand_ins.every(folder / "state") == []


@pytest.mark.whole
@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_autopackaging_with_an_engine(containers: Path, tmp_path: Path) -> None:
    """With an engine, gcloud's own Dockerfile is built, and `local-run` and the job that `create` makes train in the image: the version of TensorFlow is the image's."""
    need("docker")
    package(tmp_path, "import tensorflow, helper\nprint(helper.NAME, tensorflow.__version__)\n")
    words = [
        "gcloud",
        "ai",
        "custom-jobs",
        "local-run",
        f"--executor-image-uri={EXECUTOR}",
        "--script=task.py",
        "--local-package-path=.",
    ]
    with engines.docker_over_podman():
        own = {word: os.environ[word] for word in ("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "DOCKER_HOST")}
        done = run(tmp_path, *words, **own)
        created = run(tmp_path, *create(EXECUTOR), **own)
    assert done.returncode == 0 and "helped 2.17.0" in done.stdout + done.stderr, done.stderr
    assert "  packaged  SUCCEEDED\n" in created.stderr, created.stderr
    assert image_stand_ins.every(tmp_path / "state") == []


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_gcloud_configures_docker(tmp_path: Path) -> None:
    """`gcloud auth configure-docker` works without an engine, and writes docker's settings of the user as it does elsewhere."""
    line = "gcloud auth configure-docker us-central1-docker.pkg.dev --quiet"
    done = run(tmp_path, "sh", "-c", line, **{engine.VARIABLE: "none"})
    assert done.returncode == 0 and "not in system PATH" not in done.stderr, done.stderr
    settings = json.loads((tmp_path / ".docker/config.json").read_text())
    assert settings["credHelpers"] == {"us-central1-docker.pkg.dev": "gcloud"}
