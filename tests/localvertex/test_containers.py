"""Images run as themselves, on a real podman: what a replica is and finds in a container, and how it ends there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from localvertex.hints import hint
from localvertex.runner import Control, JobResult, Line, RunOptions
from tests.support import engines
from tests.support.engines import BASE, EXECUTOR, left, podman
from tests.support.jobkit import container, exit_code, job, run_job, sdist, wheel
from vertexrig.project.local import LocalImage

pytestmark = pytest.mark.usefixtures("containers")


def spec(*words: str, image: str = BASE, **more: Any) -> dict[str, Any]:
    """A worker pool of an image; `words` are its command."""
    return container(image, *words, **more)


def python(code: str, *args: str, **more: Any) -> dict[str, Any]:
    return spec("python3", "-c", code, args=args, **more)


class Ran:
    """A job that was run to its end."""

    def __init__(self, root: Path, *pools: Mapping[str, Any], options: Mapping[str, Any] | None = None, **fields: Any):
        self.root, self.lines, self.control = root, list[Line](), Control()
        self._pools, self._fields = pools, fields
        self._options = RunOptions(**{"engine": "podman", "grace": 0.5, **(options or {})})
        self.result: JobResult

    def go(self, on_line: Callable[[Ran, Line], None] = lambda ran, line: None) -> Ran:
        def line(one: Line) -> None:
            self.lines.append(one)
            on_line(self, one)

        self.result = run_job(
            job(*self._pools, **self._fields), root=self.root, on_line=line, control=self.control, options=self._options
        )
        assert not left(self.root)
        return self

    def said(self, replica: str = "workerpool0-0") -> list[str]:
        return [one.text for one in self.lines if one.task == replica and one.shown]

    @property
    def error(self) -> str:
        return self.result.error.message if self.result.error else ""


def ran(root: Path, *pools: Mapping[str, Any], options: Mapping[str, Any] | None = None, **fields: Any) -> Ran:
    return Ran(root, *pools, options=options, **fields).go()


@pytest.fixture
def built(tmp_path: Path, podman_storage: Path) -> Callable[..., str]:
    """Builds an image on top of the base image."""

    def build(name: str, *lines: str) -> str:
        folder = tmp_path / f"image-{name}"
        folder.mkdir()
        (folder / "Dockerfile").write_text("\n".join([f"FROM {BASE}", *lines, ""]))
        podman("build", "--tag", f"localhost/{name}:1", str(folder))
        return f"localhost/{name}:1"

    return build


@pytest.mark.parametrize(
    ("command", "args", "seen"),
    [
        ((), (), ["entry", "of the image"]),
        ((), ("own",), ["entry", "own"]),
        (("echo", "command"), (), ["command"]),
        (("echo",), ("$(WHAT)", "$$(WHAT)", "$(NOT_THERE)"), ["it", "$(WHAT)", "$(NOT_THERE)"]),
    ],
)
def test_command_and_args(
    tmp_path: Path, built: Callable[..., str], command: tuple[str, ...], args: tuple[str, ...], seen: list[str]
) -> None:
    """`command` replaces ENTRYPOINT and drops CMD, `args` replaces CMD, and `$(NAME)` in both is a variable's value."""
    image = built("entry", 'ENTRYPOINT ["echo", "entry"]', 'CMD ["of the image"]')
    done = ran(tmp_path, spec(*command, args=args, image=image, WHAT="it"))
    assert done.said() == [" ".join(seen)] and done.result.succeeded, done.error


def test_environment_user_and_folder(tmp_path: Path, built: Callable[..., str]) -> None:
    """A program runs as the image's user in the image's folder, sees its variables and the job's, and none of this machine's."""
    image = built("own-user", "ENV KIND=image PLACE=image", "WORKDIR /home/trainer", "USER trainer")
    code = (
        "import os; print(os.getuid(), os.getcwd(), os.environ['KIND'], os.environ['PLACE'], 'MACHINE' in os.environ)"
    )
    (tmp_path / "gs/b").mkdir(parents=True)
    code += "; open('/gcs/b/mine', 'w').write('x')"
    os.environ["MACHINE"] = "1"
    done = ran(tmp_path, python(code, image=image, PLACE="job"))
    assert done.said() == ["1234 /home/trainer image job False"], done.error
    assert (tmp_path / "gs/b/mine").stat().st_uid == os.geteuid()


@pytest.mark.parametrize(
    ("code", "code_seen", "words"),
    [
        ("raise SystemExit(7)", 7, "status of 7"),
        ("import os; os.kill(os.getpid(), 6)\nimport ctypes; ctypes.string_at(0)", 139, "status of 139"),
        ("raise ValueError('bad batch')", 1, "ValueError: bad batch"),
    ],
)
def test_exit_codes_and_signals(tmp_path: Path, code: str, code_seen: int, words: str) -> None:
    """The job's error has the program's exit code, a signal's as a shell gives it, and the traceback."""
    done = ran(tmp_path, python(code), scheduling={"disableRetries": True})
    assert exit_code(done.result) == code_seen and words in done.error


def test_a_program_that_is_not_in_the_image(tmp_path: Path) -> None:
    """A container that cannot start fails the job as one on the service does, with the engine's reason."""
    done = ran(tmp_path, spec("no-such-program"))
    assert exit_code(done.result) == 128 and "no-such-program" in done.error


def test_out_of_memory(tmp_path: Path) -> None:
    """A container that takes more than its machine's memory fails the job by the service's words, and the hint names the machine
    type's memory, with this machine's where that is less.
    """
    code = "x = [bytearray(10**6) for _ in range(400)]"
    done = ran(tmp_path, python(code), options={"memory_limit": 80 * 2**20})
    assert done.error == "Replicas low on memory: workerpool0. Specify a machine with larger memory and try again."
    assert not done.result.counts["restarts"] and not done.result.counts["retries"]
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    assert done.result.hint.startswith("n1-standard-4 has 15 GB of memory") and here < 624
    assert hint(done.error, machine="n1-highmem-96").startswith(
        f"n1-highmem-96 has 624 GB of memory, and this machine has {here:.0f} GB"
    )


def test_limits_of_the_machine(tmp_path: Path) -> None:
    """With `limits: machine` a container has the memory and the processors of its machine type, within this machine's."""
    code = "print(open('/sys/fs/cgroup/memory/memory.limit_in_bytes').read())"
    if not Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists():
        code = "print(open('/sys/fs/cgroup/memory.max').read())"
    done = ran(tmp_path, python(code), options={"limits": "machine"})
    assert done.said()[0] == str(15 * 2**30)


def test_cancel(tmp_path: Path) -> None:
    """A cancelled job's programs get SIGTERM and may save within the grace period; one that does not heed it is killed."""
    code = (
        "import signal, sys, time\n"
        "def save(*_): open('/gcs/b/saved', 'w').write('x'); sys.exit(0)\n"
        "if sys.argv[1:]: signal.signal(signal.SIGTERM, save)\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    (tmp_path / "gs/b").mkdir(parents=True)
    ready: list[str] = []

    def line(one: Ran, said: Line) -> None:
        if said.text == "ready":
            ready.append(said.task)
            if len(ready) == 2:
                one.control.cancel()

    done = Ran(tmp_path, python(code, "heeds"), python(code), options={"grace": 5.0}).go(line)
    assert done.result.state == "JOB_STATE_CANCELLED" and (tmp_path / "gs/b/saved").exists()


def test_restart(tmp_path: Path) -> None:
    """A worker whose container is ended from outside starts again under its name; the chief goes on."""
    code = (
        "import os, signal, time, pathlib\n"
        "signal.signal(signal.SIGTERM, lambda *_: os._exit(143))\n"
        "if pathlib.Path('/gcs/b/again').exists(): pathlib.Path('/gcs/b/end').touch(); raise SystemExit(0)\n"
        "pathlib.Path('/gcs/b/again').touch(); print('first', flush=True); time.sleep(60)"
    )
    chief = (
        "import pathlib, time\n"
        "open('/gcs/b/chief', 'a').write('x')\n"
        "while not pathlib.Path('/gcs/b/end').exists(): time.sleep(0.1)"
    )
    (tmp_path / "gs/b").mkdir(parents=True)

    def line(one: Ran, said: Line) -> None:
        if said.text == "first":
            # not SIGKILL: with that, an OOM kill elsewhere on the machine would count as this container's
            podman("kill", "--signal", "TERM", *(name for name in left(one.root) if "-workerpool1-0-" in name))

    done = Ran(tmp_path, python(chief), python(code)).go(line)
    assert done.result.succeeded, done.error
    assert done.result.counts["restarts"] == {"workerpool1-0": 1}
    assert (tmp_path / "gs/b/chief").read_text() == "x"


def test_a_segmentation_fault_is_tried_again(tmp_path: Path) -> None:
    """A job whose program ends by SIGSEGV runs again, in a new container."""
    (tmp_path / "gs/b").mkdir(parents=True)
    code = (
        "import ctypes, pathlib\n"
        "if not pathlib.Path('/gcs/b/again').exists():\n"
        "    pathlib.Path('/gcs/b/again').touch(); pathlib.Path('/home/own').touch(); ctypes.string_at(0)\n"
        "print(pathlib.Path('/home/own').exists())"
    )
    done = ran(tmp_path, python(code))
    assert done.result.succeeded and done.result.counts["retries"] == 1 and done.said() == ["False"], done.error


def test_a_cluster_meets_by_its_names(tmp_path: Path) -> None:
    """TF_CONFIG, CLUSTER_SPEC and PyTorch's variables name replicas as the service does; chief, worker, server and evaluator
    reach each other at these names.
    """
    code = """
import json, os, socket, sys, time
config = json.loads(os.environ["TF_CONFIG"])
cluster, task = config["cluster"], config["task"]
spec = json.loads(os.environ["CLUSTER_SPEC"])["cluster"]
assert spec["workerpool0"] == cluster["chief"] and spec["workerpool2"] == cluster["ps"], spec
chief, port = cluster["chief"][0].split(":")
assert chief.startswith("cmle-training-workerpool0-")
own, host = cluster.get(task["type"], [""])[task["index"]].split(":")[0], socket.gethostname()
assert host.startswith(own or "cmle-training-workerpool3-") and len(host) == len(chief) + 6, host
assert os.environ["HOSTNAME"] == host and socket.gethostbyname(host).startswith("127."), host
if task["type"] != "ps":
    assert os.environ["MASTER_ADDR"] == chief and os.environ["MASTER_PORT"] == port
    assert os.environ["WORLD_SIZE"] == "4"
if task["type"] == "chief":
    with socket.create_server(("0.0.0.0", int(port))) as server:
        met = sorted(server.accept()[0].makefile().readline().strip() for _ in range(4))
    print(",".join(met))
else:
    for _ in range(300):
        try:
            with socket.create_connection((chief, int(port))) as peer:
                peer.sendall(f"{task['type']}{task['index']}\\n".encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
"""
    done = ran(tmp_path, python(code), python(code, replicas=2), python(code), python(code))
    assert done.said() == ["evaluator0,ps0,worker0,worker1"], done.error


def test_gcs_and_gs(tmp_path: Path) -> None:
    """A container sees every bucket at /gcs, and what it writes there is in the bucket; without a front gs:// is led there."""
    (tmp_path / "gs/other").mkdir(parents=True)
    (tmp_path / "gs/other/data").write_text("seen")
    code = (
        "import os, sys; print(open('/gcs/other/data').read(), sys.argv[1]); d = os.environ['AIP_MODEL_DIR']\n"
        "os.makedirs(d, exist_ok=True); open(d + 'model', 'w').write('m')"
    )
    done = ran(tmp_path, python(code, "gs://other/x"), baseOutputDirectory={"outputUriPrefix": "gs://b/out"})
    assert done.said() == ["seen /gcs/other/x"], done.error
    assert (tmp_path / "gs/b/out/model/model").read_text() == "m"


PACKAGE = """
import sys, tensorflow, trainer
print(tensorflow.__version__, "%d.%d" % sys.version_info[:2], trainer.__name__, sys.argv[1:])
"""


def package(name: str) -> dict[str, Any]:
    """A worker pool that runs a package in the executor's image."""
    spec = {"packageUris": [f"gs://p/{name}.tar.gz"], "pythonModule": f"{name}.task", "args": ["--steps=1"]}
    machine = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1}
    return {**machine, "pythonPackageSpec": {"executorImageUri": EXECUTOR, **spec}}


def test_a_package_runs_in_its_executor_image(tmp_path: Path) -> None:
    """A package job runs with the Python and the packages of its image; pip installs there once, and takes requirements from there."""
    sdist(tmp_path / "gs/p/trainer.tar.gz", task=PACKAGE, requires=("tensorflow>2",))
    version = next(Path(engines.other_python(), "lib").glob("python3.*")).name.removeprefix("python")
    said = f"2.17.0 {version} trainer ['--steps=1']"
    first = ran(tmp_path, package("trainer"))
    assert said in first.said(), first.error
    again = ran(tmp_path, package("trainer"))
    assert again.result.succeeded and again.said() == [said]


def test_a_package_that_does_not_install_in_its_image(tmp_path: Path) -> None:
    """The hint is about the image of the pool whose package failed, in which its setup.py lacks a module."""
    sdist(tmp_path / "gs/p/broken.tar.gz", name="broken", setup="import compiler_of_mine")
    done = ran(tmp_path, spec("true"), package("broken"))
    assert (done.result.failed_replica, "compiler_of_mine" in done.error) == ("workerpool1-0", True)
    assert done.result.hint.startswith("the image does not have the module compiler_of_mine"), done.result.hint


def test_pip_inside(tmp_path: Path) -> None:
    """A command may install with the image's pip, which lives and ends with the container."""
    name = wheel(tmp_path / "gs/p", "extra", "WORD = 'there'").name
    line = f"python3 -m pip install --quiet --no-deps /gcs/p/{name} && python3 -c 'import extra.task; print(extra.task.WORD)'"
    done = ran(tmp_path, spec("sh", "-c", line))
    assert "there" in done.said(), done.error
    assert not ran(tmp_path, python("import extra")).result.succeeded


def test_an_image_map_wins(tmp_path: Path) -> None:
    """A folder that the project file names for an image runs in its place, though the engine has the image."""
    (tmp_path / "mine").mkdir()
    options = {"engine": "auto", "images": {BASE: LocalImage(str(tmp_path / "mine"), ("echo", "mapped"))}}
    assert "mapped" in ran(tmp_path, spec(), options=options).said()


def test_an_image_that_is_not_here(tmp_path: Path) -> None:
    """`auto` says in one line what to do, a named engine fails the job with it, and `none` asks no engine."""
    pool = spec("echo", "from the stand-in", image="us-docker.pkg.dev/vertex-ai/training/sklearn-cpu.1-6:latest")
    auto = ran(tmp_path, pool, options={"engine": "auto"})
    assert auto.said() == ["from the stand-in"]
    stand_ins = [one.text for one in auto.lines if one.text.startswith("Difference: the image")]
    assert len(stand_ins) == 1 and "`podman pull us-docker.pkg.dev/" in stand_ins[0] and "pull: missing" in stand_ins[0]
    named = ran(tmp_path, pool)
    assert "is not on this machine. To get it: `podman pull" in named.error
    none = ran(tmp_path, spec("echo", "x"), options={"engine": "none"})
    assert "engine is none" in none.error


def test_nothing_is_left_after_jobs(tmp_path: Path) -> None:
    """Jobs that end by themselves, are killed, cancelled or cannot start leave no container, mount, volume or network."""
    volumes = podman("volume", "ls", "--quiet").stdout, podman("network", "ls", "--quiet").stdout
    sleeps = python("import time; print('begun', flush=True); time.sleep(60)")

    def killed(one: Ran, said: Line) -> None:
        if said.text == "begun":
            one.control.kill("workerpool0-0")

    def cancelled(one: Ran, said: Line) -> None:
        if said.text == "begun":
            one.control.cancel()

    kinds: list[tuple[dict[str, Any], Any]] = [(sleeps, killed), (sleeps, cancelled), (spec("no-such-program"), None)]
    for pool, on_line in kinds:
        never = {"scheduling": {"disableRetries": True}}
        Ran(tmp_path, pool, options={"grace": 0.2}, **never).go(*([on_line] if on_line else []))
    assert (podman("volume", "ls", "--quiet").stdout, podman("network", "ls", "--quiet").stdout) == volumes
