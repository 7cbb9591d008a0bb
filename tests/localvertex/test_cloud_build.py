"""Cloud Build under `local run`: the real gcloud submits, a real engine builds, and jobs run in what was built."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from localvertex import server
from localvertex.http import ApiError
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions, engine, step_arguments
from localvertex.services import build_config, builds
from tests.localvertex.test_docker_program import own, run
from tests.support import engines
from tests.support.engines import BASE, left, podman
from tests.support.tools import module
from vertexrig.errors import UsageError

IMAGE = "us-docker.pkg.dev/my-project/images/built"
DOCKER = "gcr.io/cloud-builders/docker"
PROJECT = "export CLOUDSDK_CORE_PROJECT=my-project CLOUDSDK_CORE_DISABLE_PROMPTS=1"
GCLOUD = pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")


def dockerfile(folder: Path, code: str) -> None:
    (folder / ".gcloudignore").write_text("state/\n.config/\n")
    (folder / "task.py").write_text(code)
    (folder / "Dockerfile").write_text(f'FROM {BASE}\nCOPY task.py /task.py\nENTRYPOINT ["python", "/task.py"]\n')


@pytest.mark.parametrize("filters", [True, False])
def test_a_source_stays_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filters: bool) -> None:
    """An archive is unpacked with its links, and one that leads out of the folder is refused, also by a Python without filters (3.11.2)."""
    if not filters:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python has no filters")

    def unpacked(*members: tuple[str, bytes, str]) -> Path:
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as tar:
            for name, kind, target in members:
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, target
                tar.addfile(info)
        file.seek(0)
        into = tmp_path / "outer" / f"{len(members)}{members[-1][1]!r}"
        into.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=file) as tar:
            builds.unpack(tar, into)
        return into

    folder = unpacked(
        ("a/one", tarfile.REGTYPE, ""), ("a/two", tarfile.SYMTYPE, "one"), ("three", tarfile.LNKTYPE, "a/one")
    )
    assert (folder / "a/two").resolve() == (folder / "a/one").resolve() and (folder / "three").is_file()
    for wrong in (
        [("../x", tarfile.REGTYPE, "")],
        [("out", tarfile.SYMTYPE, "../.."), ("out/x", tarfile.REGTYPE, "")],
        [("hard", tarfile.LNKTYPE, "../../x")],
        [("pipe", tarfile.FIFOTYPE, "")],
    ):
        with pytest.raises(tarfile.TarError):
            unpacked(*wrong)
    assert not list(tmp_path.glob("**/x"))


SDK = """
import sys
from google.cloud import aiplatform
aiplatform.init(project="my-project", location="us-central1", staging_bucket="gs://my-bucket")
spec = {"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1, "container_spec": {"image_uri": sys.argv[1]}}
aiplatform.CustomJob(display_name="by-sdk", worker_pool_specs=[spec]).run()
aiplatform.CustomContainerTrainingJob(display_name="pipeline", container_uri=sys.argv[1]).run()
"""


@pytest.mark.whole
@GCLOUD
def test_gcloud_builds_an_image_and_a_job_runs_in_it(containers: Path, tmp_path: Path) -> None:
    """`gcloud builds submit --tag` streams its log and succeeds, and `custom-jobs create` and the SDK's jobs run in the image, which gcloud lists and describes."""
    (tmp_path / "program.py").write_text(SDK)
    image = f"{IMAGE}:podman"
    dockerfile(tmp_path, "print('trained in the image')\n")
    spec = f"machine-type=n1-standard-4,replica-count=1,container-image-uri={image}"
    lines = [
        PROJECT,
        f"gcloud builds submit --tag {image} .",
        f"gcloud ai custom-jobs create --region=us-central1 --display-name=by-gcloud --worker-pool-spec={spec}",
        "gcloud builds list --ongoing > ongoing",
        f"gcloud artifacts docker images describe {image} > described",
        "gcloud artifacts repositories describe images --location us > repository",
        "gcloud artifacts repositories list --format='value(name)' > repositories",
        f"gcloud storage buckets create gs://my-bucket && {sys.executable} program.py {image}",
    ]
    done = run(tmp_path, "sh", "-c", " && ".join(lines), **{engine.VARIABLE: "podman"}, **own())
    assert done.returncode == 0, done.stderr
    assert "REMOTE BUILD OUTPUT" in done.stdout and f"{image}: the image stays on this machine" in done.stdout
    assert done.stdout.splitlines().count("DONE") == 1 and "SUCCESS" in done.stdout
    for job in ("by-gcloud", "by-sdk", "pipeline"):
        assert f"  {job}  SUCCEEDED\n" in done.stderr, done.stderr
    logs = [file.read_text() for file in tmp_path.glob("state/jobs/*/logs/workerpool0-0.log")]
    assert sum("trained in the image" in log for log in logs) == 3, logs
    assert not list((tmp_path / "state/builds").glob("*"))
    assert (tmp_path / "ongoing").read_text() == ""
    described = (tmp_path / "described").read_text()
    assert "fully_qualified_digest: us-docker.pkg.dev/my-project/images/built@sha256:" in described
    assert "format: DOCKER" in (tmp_path / "repository").read_text()
    assert "images" in (tmp_path / "repositories").read_text().split()


CONFIG = f"""
steps:
- name: {DOCKER}
  id: base
  args: [build, --network=cloudbuild, -t, '{IMAGE}:$_TAG', --build-arg, 'BUILD=$BUILD_ID', /workspace/part]
- name: {DOCKER}
  entrypoint: bash
  dir: part
  args: ['-c', 'docker push {IMAGE}:$_TAG && docker tag {IMAGE}:$_TAG {IMAGE}:again && echo home $$HOME | cut -c1-4']
- name: '{IMAGE}:$_TAG'
  script: |
    echo "from $SAID in $(pwd)"; echo made > made.txt
  env: ['SAID=${{PROJECT_ID}}']
- name: gcr.io/kaniko-project/executor:latest
  args: ['--destination=${{_REGION}}-docker.pkg.dev/my-project/images/kaniko:1', --context=dir:///workspace, --dockerfile, part/Dockerfile.kaniko, --cache=true]
images: ['{IMAGE}:again', 'us-docker.pkg.dev/$PROJECT_ID/images/kaniko:1']
substitutions: {{_TAG: configured, _REGION: us}}
timeout: 300s
options: {{logging: CLOUD_LOGGING_ONLY}}
"""


@pytest.mark.whole
@GCLOUD
def test_gcloud_builds_by_a_configuration(containers: Path, tmp_path: Path) -> None:
    """`--config cloudbuild.yaml` runs docker, shell, kaniko and own-image steps with substitutions, and gcloud reads the log from Cloud Logging where the build says so."""
    (tmp_path / "source/part").mkdir(parents=True)
    (tmp_path / "source/part/Dockerfile").write_text(f"FROM {BASE}\nARG BUILD\nENV BUILD=$BUILD\n")
    (tmp_path / "source/part/Dockerfile.kaniko").write_text(f"FROM {BASE}\nCOPY made.txt /made.txt\n")
    (tmp_path / "source/cloudbuild.yaml").write_text(CONFIG)
    lines = [
        "cd source && gcloud builds submit --config cloudbuild.yaml --substitutions _TAG=given",
        "gcloud builds list --filter='status=SUCCESS' --format='value(id,images)' | tee list",
        "gcloud builds log $(cut -f1 list) > log",
    ]
    done = run(tmp_path, "sh", "-c", " && ".join([PROJECT, *lines]), **{engine.VARIABLE: "podman"}, **own())
    assert done.returncode == 0, done.stderr
    assert f"{IMAGE}:again;us-docker.pkg.dev/my-project/images/kaniko:1" in done.stdout
    log = (tmp_path / "source/log").read_text()
    assert "Step #2: from my-project in /workspace" in log and "Finished Step #3" in log, log
    assert "Step #1: home" in log and "DONE" in log
    assert "starting build" in log and "FETCHSOURCE\nFetching storage object: gs://my-project_cloudbuild/source/" in log
    assert (
        podman("run", "--rm", "--pull=never", "us-docker.pkg.dev/my-project/images/kaniko:1", "cat", "/made.txt").stdout
        == "made\n"
    )
    variables = podman("image", "inspect", f"{IMAGE}:given", "--format", "{{.Config.Env}}").stdout
    assert "BUILD=" in variables and "BUILD= " not in variables and "BUILD_ID" not in variables


@GCLOUD
def test_without_an_engine_a_build_is_refused(tmp_path: Path) -> None:
    """Without an engine `builds submit` ends at once, with which engines there are and where to get one."""
    dockerfile(tmp_path, "")
    begun = time.monotonic()
    line = f"{PROJECT}; gcloud builds submit --tag {IMAGE}:none"
    done = run(tmp_path, "sh", "-c", line, **{engine.VARIABLE: "none"})
    assert done.returncode == 1 and time.monotonic() - begun < 60
    assert (
        "Cloud Build needs a container engine on this machine, and none answers (engine is none). Install docker (https://"
        in done.stderr
    )


DOCKER_PY = f"""
import docker
client = docker.from_env()
image, _ = client.images.build(path=".", tag="{IMAGE}:docker-py")
print(client.api.push("{IMAGE}", tag="docker-py"), list(client.images.push("{IMAGE}:docker-py", stream=True, decode=True)))
print(client.images.pull("{IMAGE}", tag="docker-py").id == image.id)
try:
    client.images.push("{IMAGE}", tag="gone")
except docker.errors.ImageNotFound:
    print("not found")
"""


def test_docker_py(containers: Path, tmp_path: Path) -> None:
    """docker-py builds an image under `local run`, and pushes and pulls of Google's registries stay on this machine."""
    module("docker")
    dockerfile(tmp_path, "")
    (tmp_path / "program.py").write_text(DOCKER_PY)
    with engines.docker_over_podman():
        done = run(tmp_path, sys.executable, "program.py", **{engine.VARIABLE: "docker"}, **own())
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{IMAGE}:docker-py: the image stays on this machine") == 2
    assert done.stdout.splitlines()[-2:] == ["True", "not found"]


COMPOSE = f"""
version: "3"
services:
  trainer:
    build: {{context: ., network: host}}
    image: {IMAGE}:compose
    network_mode: host
"""


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
def test_docker_compose(containers: Path, tmp_path: Path) -> None:
    """docker-compose of Python builds an image under `local run`, its push and pull of Google's registries stay on this machine, and it runs the image."""
    dockerfile(tmp_path, "print('by compose')\n")
    (tmp_path / "docker-compose.yml").write_text(COMPOSE)
    lines = "docker-compose build && docker-compose push && docker-compose pull && docker-compose run --rm trainer"
    with engines.docker_over_podman():
        done = run(tmp_path, "sh", "-c", lines, **{engine.VARIABLE: "docker", "DOCKER_BUILDKIT": "0"}, **own())
    assert done.returncode == 0, done.stderr
    assert f"{IMAGE}:compose: the image stays on this machine" in done.stdout and "by compose" in done.stdout


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, podman_storage: Path) -> Iterator[server.RunningServer]:
    """A server that runs images by podman."""
    options = RunOptions(engine="podman", project="my-project")
    with pytest.MonkeyPatch.context() as patch:
        engines.use(podman_storage, patch)
        with server.running(Settings(tmp_path_factory.mktemp("builds"), options=options, checks=False)) as running:
            yield running
        assert not left(running.root) and not list((running.root / "builds").glob("*"))


def create(here: server.RunningServer, **build: Any) -> httpx.Response:
    return httpx.post(f"{here.url}/cloudbuild/v1/projects/my-project/builds", json=build, timeout=60)


def waited(here: server.RunningServer, build: dict[str, Any], *until: str) -> dict[str, Any]:
    for _ in range(600):
        found: dict[str, Any] = httpx.get(f"{here.url}/cloudbuild/v1/{build['name']}").json()
        if found["status"] in until:
            return found
        time.sleep(0.05)
    raise AssertionError(found)


SLEEPS: dict[str, Any] = {"name": BASE, "entrypoint": "sleep", "args": ["60"]}


def test_a_build_is_cancelled(here: server.RunningServer) -> None:
    """A cancelled build ends at once as CANCELLED, its operation says so, and its container is gone."""
    operation = create(here, steps=[SLEEPS]).json()
    build = operation["metadata"]["build"]
    waited(here, build, "WORKING")
    for _ in range(100):
        if left(here.root):
            break
        time.sleep(0.1)
    begun = time.monotonic()
    cancelled = httpx.post(f"{here.url}/cloudbuild/v1/{build['name']}:cancel", json={}, timeout=60).json()
    assert cancelled["status"] == "CANCELLED"
    assert waited(here, build, "CANCELLED")["steps"][0]["status"] == "CANCELLED" and time.monotonic() - begun < 20
    ended = httpx.get(f"{here.url}/cloudbuild/v1/{operation['name']}").json()
    assert ended["done"] and "error" in ended
    again = httpx.post(f"{here.url}/cloudbuild/v1/{build['name']}:cancel", json={})
    assert again.status_code == 400 and "its status is CANCELLED" in again.text
    assert not left(here.root)


def log(here: server.RunningServer, build: dict[str, Any]) -> str:
    (path,) = here.root.glob(f"gs/*/log-{build['id']}.txt")
    return path.read_text()


# podman's socket goes on with a RUN whose client has gone, so docker's shell has no build: its own daemon ends one
@pytest.mark.parametrize(("program", "kind"), [("podman", "run"), ("podman", "shell"), ("docker", "shell")])
def test_nothing_of_a_cancelled_docker_step_runs_on(tmp_path: Path, containers: Path, program: str, kind: str) -> None:
    """After the cancellation of a build, neither the RUN of a `docker build` nor a container of a `docker run` runs, and podman keeps none of either."""
    name, seconds = f"cancelled-{kind}-{os.getpid()}-{program}", f"{os.getpid()}{len(kind)}.{len(program)}"
    (tmp_path / "Dockerfile").write_text(f"FROM localhost/{name}:1\nRUN sleep {seconds}\n")
    run_args = ["run", BASE, "sleep", seconds]
    shell = " ".join(["docker", *run_args])
    if program == "podman":
        shell = f"docker build --network host -t {IMAGE}:never . ; {shell}; sleep {seconds}"
    step: dict[str, Any] = {"args": run_args} if kind == "run" else {"entrypoint": "bash", "args": ["-c", shell]}
    with ExitStack() as stack:
        podman("tag", BASE, f"localhost/{name}:1")
        stack.callback(podman, "untag", BASE, f"localhost/{name}:1")
        if program == "docker":
            stack.enter_context(engines.docker_over_podman())
        options = RunOptions(engine=program, project="my-project")
        here = stack.enter_context(server.running(Settings(tmp_path / "state", options=options, checks=False)))
        with tarfile.open(tmp_path / "source.tgz", "w:gz") as archive:
            archive.add(tmp_path / "Dockerfile", "Dockerfile")
        (here.root / "gs/sources").mkdir(parents=True)
        (tmp_path / "source.tgz").rename(here.root / "gs/sources/source.tgz")
        source = {"storageSource": {"bucket": "sources", "object": "source.tgz"}}
        build = create(here, steps=[{"name": DOCKER, **step}], source=source).json()["metadata"]["build"]
        for _ in range(600):
            if sleeping(seconds):
                break
            time.sleep(0.1)
        else:
            pytest.fail(log(here, build))
        httpx.post(f"{here.url}/cloudbuild/v1/{build['name']}:cancel", json={}, timeout=60)
        assert waited(here, build, "CANCELLED")
        assert not sleeping(seconds)
        assert not left(here.root)
        assert name not in podman("ps", "--all", "--external", "--format", "{{.Names}}").stdout


def sleeping(seconds: str) -> list[str]:
    """The processes of this machine, also in containers, that sleep so long."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            found += [path.parent.name] if words[:2] == [b"sleep", seconds.encode()] else []
    return found


VOLUME = {"volumes": [{"name": "kept", "path": "/kept"}]}


def test_a_docker_step_has_the_folders_of_the_build(here: server.RunningServer) -> None:
    """`/workspace` and volumes are those of the build in options of docker and in shells, and themselves in a container; a container of
    one step serves the next ones, and ends with the build.
    """
    shell = {"name": DOCKER, "entrypoint": "bash", **VOLUME}
    mounts = ["--volume=/workspace:/workspace", "-v", "/kept:/seen", "-w", "/workspace"]
    steps = [
        {**shell, "args": ["-c", "echo from-source > /workspace/source; echo from-volume > /kept/file"]},
        {"name": DOCKER, **VOLUME, "args": ["run", "--rm", *mounts, BASE, "sh", "-c", "pwd; cat /seen/file source; echo made > /workspace/made"]},
        {**shell, "args": ["-c", f"docker run --rm -v $$PWD:/here {BASE} cat /here/made"]},
        {"name": DOCKER, "args": ["run", "-d", "--name", f"service-{os.getpid()}", "--network=cloudbuild", BASE, "sleep", "300"]},
        {"name": DOCKER, "args": ["exec", f"service-{os.getpid()}", "echo", "serves"]},
        {"name": BASE, **VOLUME, "entrypoint": "cat", "args": ["/kept/file"]},
    ]  # fmt: skip
    build = create(here, steps=steps).json()["metadata"]["build"]
    found = waited(here, build, "SUCCESS", "FAILURE")
    said = log(here, build)
    assert found["status"] == "SUCCESS", said
    for line in ("#1: /workspace", "#1: from-volume", "#1: from-source", "#2: made", "#4: serves", "#5: from-volume"):
        assert f"Step {line}\n" in said, said
    assert f"service-{os.getpid()}" not in podman("ps", "--all", "--format", "{{.Names}}").stdout.split()


@pytest.mark.parametrize("step", [
    {"args": ["run", "--rm", "-v", "/etc:/host", BASE, "true"]},
    {"entrypoint": "bash", "args": ["-c", f"docker run --rm -v /etc:/host {BASE} true"]},
    {"args": ["build", "-t", f"{IMAGE}:never", "/etc"]},
    {"name": "gcr.io/kaniko-project/executor", "args": ["--context=dir:///etc", f"--destination={IMAGE}:never"]},
])  # fmt: skip
def test_a_docker_step_reaches_no_other_folder(here: server.RunningServer, step: dict[str, Any]) -> None:
    """A mount or a context outside of the build's folders fails the step with the rule, from a shell, too."""
    build = create(here, steps=[{"name": DOCKER, **step}]).json()["metadata"]["build"]
    assert waited(here, build, "SUCCESS", "FAILURE")["status"] == "FAILURE"
    assert re.search("/etc.* is not in /workspace. A step of Cloud Build has these folders alone", log(here, build))


@pytest.mark.parametrize(("line", "seen"), [
    ("run -itv /workspace/a:/workspace --mount type=bind,source=/workspace,target=/m -e A=/etc IMG cp -v /etc /workspace",
     "run --label L -it -v W/a:/workspace --mount type=bind,source=W,target=/m -e A=/etc IMG cp -v /etc /workspace"),
    ("run --pull never -v named:/x -v /anonymous --rm IMG", "run --label L --pull never -v named:/x -v /anonymous --rm IMG"),
    ("build -t us-docker.pkg.dev/p/r/i:1 --build-arg P=/etc --progress plain -f- --network cloudbuild .",
     "build -t us-docker.pkg.dev/p/r/i:1 --build-arg P=/etc --progress plain -f - --network host ."),
    ("build -fW/Dockerfile https://example.com/x.git", "build -f W/Dockerfile https://example.com/x.git"),
    ("image build --file=/workspace/Dockerfile W", "image build --file=W/Dockerfile W"),
    ("cp one:/etc/x /workspace/x", "cp one:/etc/x W/x"), ("save -o /kept/i.tar IMG", "save -o V/i.tar IMG"),
    ("load -i /workspace/i.tar", "load -i W/i.tar"), ("push IMG", "push IMG"), ("volume create mine", "volume create mine"),
])  # fmt: skip
def test_arguments_of_docker_in_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, seen: str) -> None:
    """Options that name folders of this machine get those of the build; images, a program's arguments and container paths stay."""
    assert " ".join(confined(tmp_path, monkeypatch, line)) == seen


@pytest.mark.parametrize("line", [
    "run -v /:/host IMG", "run -dv/:/host IMG", "run --name x --volume=../..:/host IMG", "run --mount type=bind,src=/,dst=/host IMG",
    'run --mount type=volume,volume-opt=type=none,"volume-opt=device=/",dst=/x IMG', "run -v /workspace/../../..:/x IMG",
    "run -v /workspace/link:/x IMG", "run --unknown -v /:/host IMG", "run --unknown IMG -v /:/host IMG", "run --env-file=/etc/passwd IMG",
    "run --privileged IMG", "run --pid host IMG", "create --device=/dev/sda IMG", "exec --env-file /etc/passwd one env",
    "build /etc", "build ..", "build --unknown /etc", "build -f ../../Dockerfile .", "build --file /etc/passwd .", "build --secret id=a,src=/etc/shadow .",
    "build -o type=local,dest=/etc .", "build --output /etc .", "build --build-context a=/etc .", "build -v /:/host .", "buildx build /etc",
    "container run -v /:/host IMG", "cp one:/x /etc", "cp /etc one:/x", "save --output=/etc/x IMG", "load -i /etc/x", "import /etc/x.tar",
    "compose up", "--config /etc build .", "volume create -o device=/ x", "buildx bake",
])  # fmt: skip
def test_arguments_that_leave_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """Whatever way an argument of a step names another folder of this machine, or more than that, it is refused."""
    with pytest.raises(UsageError, match=r"is not in /workspace or /kept|is not supported in a build"):
        confined(tmp_path, monkeypatch, line)


def confined(folder: Path, patch: pytest.MonkeyPatch, line: str) -> list[str]:
    """Docker's arguments in a build whose workspace is W and whose volume is V."""
    build = folder / "build"
    (build / "W").mkdir(parents=True)
    (build / "V").mkdir()
    (build / "W/link").symlink_to("/etc")
    patch.chdir(build / "W")
    folders = {"/workspace": f"{build}/W", "/kept": f"{build}/V"}
    variables = {step_arguments.VARIABLE: json.dumps({"folders": folders, "labels": ["L"]})}
    given = [re.sub(r"(^|=|-f)([WV])(?=/|$)", rf"\1{build}/\2", word) for word in line.split()]
    return [word.replace(f"{build}/", "") for word in step_arguments.confined(given, variables)]


def test_a_build_times_out(here: server.RunningServer) -> None:
    """A build that takes longer than its timeout, or than that of a step, ends as TIMEOUT."""
    builds = [create(here, steps=[SLEEPS], timeout="1s"), create(here, steps=[{**SLEEPS, "timeout": "1s"}])]
    for one in builds:
        assert waited(here, one.json()["metadata"]["build"], "TIMEOUT")["finishTime"]


@pytest.mark.parametrize(("build", "why"), [
    ({"steps": []}, "no build steps are specified"),
    ({"steps": [{"name": "gcr.io/cloud-builders/gcloud", "args": ["version"]}]},
     "build step 0: the image gcr.io/cloud-builders/gcloud is not on this machine."),
    ({"steps": [{"name": DOCKER, "entrypoint": "python"}]}, "the entrypoint 'python' of gcr.io/cloud-builders/docker is not run here"),
    ({"steps": [{"name": DOCKER}], "availableSecrets": {"inline": [{}]}}, "does not do availableSecrets of a build"),
    ({"steps": [{"name": DOCKER}], "source": {"gitSource": {"url": "https://github.com/a/b"}}}, "does not do source.gitSource"),
    ({"steps": [{"name": DOCKER}], "serviceAccount": "projects/p/serviceAccounts/a@b"}, "(a) specify 'build.logs_bucket'"),
    ({"steps": [{"name": DOCKER}], "logsBucket": "gs://not-there"}, "The specified bucket does not exist."),
])  # fmt: skip
def test_what_is_not_built_is_refused_by_name(here: server.RunningServer, build: dict[str, Any], why: str) -> None:
    """A build with a step or field that is not done here is refused before it runs, by name."""
    builds = f"{here.url}/cloudbuild/v1/projects/my-project/builds"
    before = httpx.get(builds).json()
    answer = create(here, **build)
    assert answer.status_code in (400, 404) and why in answer.json()["error"]["message"], answer.text
    assert httpx.get(builds).json() == before


@pytest.mark.parametrize(("build", "why"), [
    *(({"steps": [{"name": DOCKER, "dir": folder, "entrypoint": "sh", "args": ["-c", "pwd"]}]}, "is not a folder of the source")
      for folder in ("..", "/etc", "gone")),
    ({"steps": [{"name": DOCKER, "args": ["images"]}], "images": [f"{IMAGE}:gone"]},
     f'failed to find one or more images after execution of build steps: ["{IMAGE}:gone"]'),
    ({"steps": [{"name": DOCKER, "entrypoint": "sh", "args": ["-c", "exit 7"]}]},
     f'build step 0 "{DOCKER}" failed: step exited with non-zero status: 7'),
])  # fmt: skip
def test_what_a_build_fails_of(here: server.RunningServer, build: dict[str, Any], why: str) -> None:
    """The folder of a docker step is one of the source, never another one of this machine; the images of a build are there at its end;
    a step that fails is named with its exit code.
    """
    found = waited(here, create(here, **build).json()["metadata"]["build"], "FAILURE", "SUCCESS")
    assert found["status"] == "FAILURE" and why in found["statusDetail"], found


def template(*args: str, **fields: Any) -> list[str]:
    build = {"steps": [{"name": DOCKER, "args": list(args)}], **fields}
    made = build_config.substituted(build, build_config.built_ins("my-project", "global", "id", "a@b"))
    found: list[str] = made["steps"][0]["args"]
    return found


def test_substitutions() -> None:
    """Built-in, own, escaped, dynamic and loose substitutions are made as Cloud Build makes them."""
    assert template("$PROJECT_ID/${_A}b$$HOME$BUILD_ID$COMMIT_SHA", substitutions={"_A": "x"}) == [
        "my-project/xb$HOMEid"
    ]
    assert template("$SHORT_SHA", substitutions={"SHORT_SHA": "abc"}) == ["abc"]
    loose = {"substitutionOption": "ALLOW_LOOSE"}
    assert template("-$_GONE-", substitutions={"_MORE": "1"}, options=loose) == ["--"]
    assert template(
        "$_B", substitutions={"_A": "x", "_B": "$_A-${PROJECT_ID}"}, options={"dynamicSubstitutions": True}
    ) == ["x-my-project"]


@pytest.mark.parametrize(("args", "given", "why"), [
    ("$TAG", {}, 'key in the template "TAG" is not a valid built-in substitution'),
    ("$_TAG", {}, 'key in the template "_TAG" is not matched in the substitution data'),
    ("x", {"_TAG": "1"}, 'key "_TAG" in the substitution data is not matched in the template'),
    ("x", {"TAG": "1"}, 'substitution key "TAG" does not respect format "^_[A-Z0-9_]+$"'),
    ("x", {"PROJECT_ID": "1"}, "is not an overridable built-in substitutions"),
])  # fmt: skip
def test_substitutions_that_do_not_fit(args: str, given: dict[str, str], why: str) -> None:
    """A key that is unknown, missing or without use is refused with Cloud Build's words."""
    with pytest.raises(ApiError) as raised:
        template(args, substitutions=given)
    assert why in raised.value.message


def test_kaniko_becomes_a_docker_build() -> None:
    """Options of kaniko become those of `docker build`, also with values as words of their own; caches and pushes are left out."""
    args = "--dockerfile=sub/Dockerfile -c /workspace/here -d a:1 --cache --cache-ttl 6h --cache-dir".split()
    args += ["", "--build-arg", "A=1"]
    words = build_config.docker_words({"name": "gcr.io/kaniko-project/executor:v1.9.0", "args": args}, {})
    assert " ".join(words) == (
        "docker build --network host --tag a:1 --build-arg A=1 --file /workspace/here/sub/Dockerfile /workspace/here"
    )
