"""The `docker` that `local run` puts first on PATH: gcloud's builds without an engine, and Google's registries with one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.runner import engine, image_stand_ins
from tests.support import engines
from tests.support.engines import BASE, EXECUTOR, podman
from tests.support.tools import need, vertexrig
from vertexrig.errors import UsageError

PREBUILT = "us-docker.pkg.dev/vertex-ai/training/sklearn-cpu.1-6:latest"
IMAGE = "us-docker.pkg.dev/my-project/images/trainer:1"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The state folder of a server that runs already."""
    folder = tmp_path_factory.mktemp("docker") / "state"
    with server.running(Settings(folder)):
        yield folder


def run(
    folder: Path, *words: str, root: Path | None = None, given: str = "", options: tuple[str, ...] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    """A command under `local run` with options, with input; its state is in the folder if there is no server yet."""
    argv = ("local", "run", "--root", str(root or folder / "state"), *options, "--", *words)
    return vertexrig(*argv, cwd=folder, env={"HOME": str(folder), **env}, stdin=given)


def package(folder: Path, code: str) -> None:
    (folder / "helper.py").write_text("NAME = 'helped'\n")
    (folder / "task.py").write_text(code)


def program(folder: Path, name: str, script: str) -> str:
    """Put a program in place of an engine's; a PATH that begins with it."""
    file = folder / "bin" / name
    file.parent.mkdir()
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return f"{file.parent}{os.pathsep}{os.environ['PATH']}"


def create(image: str, *more: str) -> list[str]:
    spec = f"machine-type=n1-standard-4,replica-count=1,executor-image-uri={image},local-package-path=.,script=task.py"
    words = ["gcloud", "ai", "custom-jobs", "create", "--region=us-central1", "--display-name=packaged"]
    return [*words, f"--worker-pool-spec={spec}", *more]


LACKING = """echo "$*" >> "$ASKED"; [ "$1" = info ] && echo '{"ServerVersion": "5"}'"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker that has no image and can pull none, and the file with what it was asked."""
    monkeypatch.delenv(engine.VARIABLE)
    monkeypatch.setenv("PATH", program(tmp_path, "docker", LACKING))
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    return tmp_path / "asked"


def listed(folder: Path, name: str) -> list[bool]:
    """Whether an image is listed by each choice of an engine."""
    return [name in image_stand_ins.digests(folder / "state", choice) for choice in ("auto", "none", "docker")]


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_autopackaging_without_an_engine(tmp_path: Path, asked: Path) -> None:
    """By `--engine none`, `local-package-path` of gcloud trains the folder's module with its requirements in a stand-in, and asks
    no engine.
    """
    package(
        tmp_path,
        "import sys, helper, six\nassert six.__version__ == '1.16.0'\nprint(helper.NAME)\nsys.exit(len(sys.argv) - 2)\n",
    )
    (tmp_path / "requirements.txt").write_text("six==1.16.0\n")
    done = run(tmp_path, *create(PREBUILT, "--args=one"), options=("--engine", "none"))
    assert "  packaged  SUCCEEDED\n" in done.stderr, done.stderr
    (made,) = image_stand_ins.every(tmp_path / "state")
    assert made.base == PREBUILT and made.name.startswith("gcr.io/") and not (Path(made.folder) / "state").exists()
    assert not asked.exists() and listed(tmp_path, made.name) == [True, True, False]


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_autopackaging_without_the_executor_image(tmp_path: Path, asked: Path) -> None:
    """`local-package-path` trains in a stand-in where the engine neither has nor can pull the executor image."""
    package(tmp_path, "import helper\nprint(helper.NAME)\n")
    done = run(tmp_path, *create(PREBUILT))
    assert "  packaged  SUCCEEDED\n" in done.stderr, done.stderr
    (made,) = image_stand_ins.every(tmp_path / "state")
    assert made.base == PREBUILT and Path(made.folder, "helper.py").is_file()
    assert f"pull {PREBUILT}\n" in asked.read_text() and "build" not in asked.read_text()
    assert listed(tmp_path, made.name) == [True, True, False]
    (log,) = (tmp_path / "state/jobs").glob("*/logs/service.log")
    assert f"to run it: `docker pull {PREBUILT}`, and run the command again that built it" in log.read_text()


DOCKERFILE = f'FROM {PREBUILT}\nCOPY ["task.py", "task.py"]\nENTRYPOINT ["python3", "task.py"]\n'


@pytest.mark.parametrize(("dockerfile", "why"), [
    (f"FROM {PREBUILT}\nRUN apt-get install gcc\n", "this needs a container engine, and none answers: RUN apt-get install gcc"),
    (f'FROM {PREBUILT}\nCOPY ["../other", "."]\n', "points outside the build context"),
    (f'FROM {PREBUILT}\nCOPY ["gone.py", "."]\n', "gone.py is not in "),
])  # fmt: skip
def test_what_needs_an_engine_is_refused_by_name(tmp_path: Path, dockerfile: str, why: str) -> None:
    """Without an engine, another Dockerfile than gcloud's is refused with its line, and makes no image."""
    with pytest.raises(UsageError, match=why):
        image_stand_ins.build(tmp_path, IMAGE, dockerfile, tmp_path)
    assert image_stand_ins.every(tmp_path) == []


def test_docker_without_an_engine(root: Path, tmp_path: Path) -> None:
    """Builds from stdin, tags, lists, pushes and logs in work without an engine; what is not here is neither pushed nor run."""
    (tmp_path / "task.py").touch()
    lines = [
        f"docker build --no-cache -t {IMAGE} --rm -f- .", f"docker tag {IMAGE} {IMAGE}b", f"docker push {IMAGE}b", "docker images",
        "docker login -u x us-docker.pkg.dev", f"! docker pull {IMAGE}c", f"! docker run {IMAGE}", "! docker info",
    ]  # fmt: skip
    done = run(tmp_path, "sh", "-c", " && ".join(lines), root=root, given=DOCKERFILE, **{engine.VARIABLE: "none"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == [
        f"{IMAGE}b: the image stays on this machine",
        IMAGE,
        f"{IMAGE}b",
        "Login Succeeded",
    ]
    assert f"{IMAGE}c is not on this machine" in done.stderr and "this is not done: docker run" in done.stderr


def test_docker_as_the_command_itself(root: Path, tmp_path: Path) -> None:
    """`local run -- docker push` of an image of Google's stays on this machine, as in a shell: a docker of the user's PATH is not asked."""
    path = program(tmp_path, "docker", "echo it left the machine")
    theirs = f"{IMAGE}-theirs"
    done = run(tmp_path, "docker", "push", theirs, root=root, PATH=path, **{engine.VARIABLE: "none"})
    assert (done.returncode, done.stdout) == (1, "") and f"{theirs} is not on this machine" in done.stderr, done.stderr


def own() -> dict[str, str]:
    """The variables of the engine of these tests."""
    names = ("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "DOCKER_HOST")
    return {name: os.environ[name] for name in names if name in os.environ}


@pytest.mark.whole
def test_docker_with_an_engine(containers: Path, tmp_path: Path) -> None:
    """With an engine, `docker` is the engine's own, and an image that it built is pushed to and pulled from Google's registries here."""
    (tmp_path / "Dockerfile").write_text(f'FROM {BASE}\nENTRYPOINT ["python", "-c", "print(6 * 7)"]\n')
    lines = [f"docker build -q -t {IMAGE} .", f"docker push {IMAGE}", f"docker pull {IMAGE}"]
    if shutil.which("gcloud"):
        to = "--location=us --project=my-project"
        lines += [f"gcloud artifacts repositories create images --repository-format=docker {to}"]
        form = "--include-tags --format='value(package,tags)'"
        lines += [f"gcloud artifacts docker images list us-docker.pkg.dev/my-project/images {form}"]
    lines += [f"docker run --rm {IMAGE}", f"! docker push {IMAGE}-gone"]
    done = run(tmp_path, "sh", "-c", " && ".join(lines), **{engine.VARIABLE: "podman"}, **own())
    assert done.returncode == 0, done.stderr
    listed = f"{IMAGE.partition(':')[0]}\t1"
    assert listed in done.stdout.splitlines() or not shutil.which("gcloud")
    stays = f"{IMAGE}: the image stays on this machine\n"
    assert done.stdout.splitlines()[-1] == "42" and done.stdout.count(stays) == 2
    assert f"{IMAGE}-gone is not on this machine" in done.stderr
    assert image_stand_ins.every(tmp_path / "state") == []


RUNS = """
import os, pathlib, urllib.request
pathlib.Path("/seen").write_text(repr(dict(os.environ)))
print("proxies:", sorted(value for name, value in os.environ.items() if name.lower().endswith("_proxy")))
print("asked:", urllib.request.urlopen("http://host.containers.internal:{port}/").status)
"""


@pytest.mark.whole
def test_run_lines_use_the_network_of_this_machine(
    containers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A RUN line of a podman with its default network reaches this machine, has the user's own proxies, and leaves no token in the image."""
    plain = (containers / "containers.conf").read_text().replace('netns = "host"\n', "")
    (tmp_path / "containers.conf").write_text(plain)
    monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "containers.conf"))
    if podman("run", "--rm", BASE, "true", check=False).returncode:
        pytest.skip("podman can make no network of its own here: the kernel, or the sandbox around it, does not let it")
    (tmp_path / "served").mkdir()
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("", 0), handler) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        (tmp_path / "runs.py").write_text(RUNS.format(port=web.server_port))
        (tmp_path / "Dockerfile").write_text(f"FROM {BASE}\nCOPY runs.py /\nRUN python3 /runs.py\n")
        line = f"docker build -t {IMAGE}-net . && docker run --rm --entrypoint cat {IMAGE}-net /seen"
        done = run(
            tmp_path, "sh", "-c", line, HTTPS_PROXY="http://mine.example:1", **{engine.VARIABLE: "podman"}, **own()
        )
        web.shutdown()
    assert done.returncode == 0 and "asked: 200\n" in done.stdout, done.stderr
    assert "proxies: ['http://mine.example:1']\n" in done.stdout
    assert "'PATH'" in done.stdout and (tmp_path / "state/front/token").read_text() not in done.stdout


def test_a_push_behind_options_stays_here(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`docker OPTIONS push` of an image of Google's is not given to the engine, either."""
    monkeypatch.setenv(engine.VARIABLE, "docker")
    path = program(tmp_path, "docker", LACKING)
    options = ("--log-level debug", "-H unix:///nowhere image", "-D --config=x")
    lines = " || ".join(f"docker {before} push {IMAGE}-here" for before in options)
    done = run(tmp_path, "sh", "-c", lines, root=root, PATH=path, ASKED=str(tmp_path / "asked"))
    assert done.returncode == 1 and done.stderr.count(f"{IMAGE}-here is not on this machine") == 3, done.stderr
    assert "push" not in (tmp_path / "asked").read_text()


def test_a_push_that_is_not_recognized_meets_the_front(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push to Google's registries by other words than `docker push NAME` keeps the front as its proxy, which refuses these hosts."""
    monkeypatch.setenv(engine.VARIABLE, "podman")
    script = '[ "$1" = info ] && echo "{\\"ServerVersion\\": \\"5\\"}" || echo "${HTTPS_PROXY%%:*}$HTTP_PROXY"'
    done = run(
        tmp_path, "sh", "-c", f"docker manifest push x docker://{IMAGE} && docker manifest inspect x", root=root,
        PATH=program(tmp_path, "podman", script), HTTP_PROXY="http://mine.example:1",
    )  # fmt: skip
    ours, theirs = done.stdout.splitlines()
    assert ours.startswith("httphttp://vertexrig:") and theirs == "http://mine.example:1", done.stderr


@pytest.mark.whole
@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_autopackaging_with_an_engine(containers: Path, tmp_path: Path) -> None:
    """With an engine, gcloud's own Dockerfile is built, and `local-run` and the job that `create` makes train in the image: the version of TensorFlow is the image's."""
    need("docker")
    package(tmp_path, "import tensorflow, helper\nprint(helper.NAME, tensorflow.__version__)\n")
    words = ["gcloud", "ai", "custom-jobs", "local-run", f"--executor-image-uri={EXECUTOR}", "--script=task.py"]
    words += ["--local-package-path=."]
    with engines.docker_over_podman():
        done = run(tmp_path, *words, **own())
        created = run(tmp_path, *create(EXECUTOR), **own())
    assert done.returncode == 0 and "helped 2.17.0" in done.stdout + done.stderr, done.stderr
    assert "  packaged  SUCCEEDED\n" in created.stderr, created.stderr
    assert image_stand_ins.every(tmp_path / "state") == []


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_gcloud_configures_docker(root: Path, tmp_path: Path) -> None:
    """`gcloud auth configure-docker` works without an engine, and writes docker's settings of the user as it does elsewhere."""
    line = "gcloud auth configure-docker us-central1-docker.pkg.dev --quiet"
    done = run(tmp_path, "sh", "-c", line, root=root, **{engine.VARIABLE: "none"})
    assert done.returncode == 0 and "not in system PATH" not in done.stderr, done.stderr
    settings = json.loads((tmp_path / ".docker/config.json").read_text())
    assert settings["credHelpers"] == {"us-central1-docker.pkg.dev": "gcloud"}
