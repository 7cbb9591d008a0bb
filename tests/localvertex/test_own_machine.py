"""A replica has a version of its own of the folder that stands in for its image, and a /tmp, as a container has."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localvertex.runner import RunOptions, children, replica
from localvertex.runner.children import Command, Isolation
from localvertex.runner.replica_program import ReplicaProgram
from localvertex.runner.result import JobResult
from tests.support.jobkit import container, job, run_job
from vertexrig.project.local import LocalImage

pytestmark = pytest.mark.skipif(
    not children.can_cover(Path(tempfile.gettempdir())), reason="this system has no overlays for programs"
)

EDITS = """
import os, pathlib, sys, time
one = os.environ["TF_CONFIG"].split('"task"')[1] if "TF_CONFIG" in os.environ else "alone"
for file in (pathlib.Path("config.txt"), pathlib.Path(os.environ.get("OWN", "."), "model.joblib")):
    assert "ours" not in (file.read_text() if file.exists() else ""), file.read_text()
    file.write_text("ours " + one)
os.remove("unwanted.txt")
time.sleep(1)  # the other replica writes meanwhile
assert pathlib.Path("config.txt").read_text() == "ours " + one
pathlib.Path(os.environ["AIP_MODEL_DIR"].replace("gs:/", "/gcs"), one[:1]).mkdir(parents=True, exist_ok=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of an image, of a name with the characters that separate an overlay's options."""
    made = tmp_path / "a,b:c=d" / "image"
    made.mkdir(parents=True)
    (made / "train.py").write_text(EDITS)
    (made / "config.txt").write_text("the user's")
    (made / "unwanted.txt").write_text("")
    return made


@pytest.fixture
def off_tmp() -> Iterator[Path]:
    """A folder that is not below /tmp."""
    made = Path(tempfile.mkdtemp(dir="/var/tmp"))
    yield made
    shutil.rmtree(made)


def run(folder: Path, root: Path, replicas: int = 1) -> JobResult:
    pools = [container("here/image")] * replicas
    spec = job(*pools, baseOutputDirectory={"outputUriPrefix": "gs://out/run"})
    images = {"here/image": LocalImage(str(folder), ("python3", "train.py"))}
    return run_job(spec, root=root, options=RunOptions(images=images, keep_gs=True, grace=0.5))


def scratch_folders() -> set[str]:
    return {name for name in os.listdir("/var/tmp") if name.startswith("vertexrig-")}


@pytest.mark.parametrize("state", ["beside", "below"])
def test_replicas_leave_the_folder_as_it_is(folder: Path, state: str) -> None:
    """Two replicas edit, make and remove files of the folder side by side: neither sees the other's, and the folder stays."""
    before, scratch = sorted(folder.rglob("*")), scratch_folders()
    root = folder / ".vertexrig" if state == "below" else folder.parent / "state"
    done = run(folder, root, replicas=2)
    assert done.state == "JOB_STATE_SUCCEEDED", done.error
    assert [path for path in sorted(folder.rglob("*")) if root not in (path, *path.parents)] == before
    assert (folder / "config.txt").read_text() == "the user's"
    assert list((root / "gs/out/run/model").iterdir())  # what is written to a bucket stays
    kept = sorted(root.glob("jobs/*/*/work/*"))
    assert [path.name for path in kept] == ["config.txt", "model.joblib"] * 2  # what each wrote, and nothing else
    assert scratch_folders() <= scratch


def test_a_system_without_overlays_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the folder cannot be covered the job runs in it, and a line says what that means."""
    monkeypatch.setattr("localvertex.runner.replica_program.can_cover", lambda folder: False)
    done = run(folder, folder.parent / "state")
    assert done.state == "JOB_STATE_SUCCEEDED", done.error
    assert any(one.startswith("all replicas and trials run in the folder image itself") for one in done.differences)
    assert (folder / "config.txt").read_text().startswith("ours")


def test_a_folder_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path) -> None:
    """A folder that does not exist cannot be covered; asking says so and leaves nothing."""
    scratch = scratch_folders()
    assert not children.can_cover(tmp_path / "missing")
    assert scratch_folders() <= scratch


def test_each_replica_has_its_own_tmp(off_tmp: Path) -> None:
    """What a program writes to /tmp neither another one nor this machine sees, and it is removed at the program's end."""
    python = shutil.which("python3", path=os.defpath)
    if python is None:
        pytest.skip("this system has no Python of its own, and another one may be below /tmp")
    (off_tmp / "gs").mkdir()
    name, scratch = f"/tmp/{off_tmp.name}", scratch_folders()
    code = f"""
import os, tempfile, time
assert not os.path.exists({name!r}) and oct(os.stat("/tmp").st_mode) == "0o41777"
open({name!r}, "w").write("x")
assert os.path.dirname(tempfile.mkdtemp()) == "/tmp"
time.sleep(1)
"""
    printed: list[str] = []
    running = children.Children(lambda line: printed.append(line.text))
    env = {"PATH": os.environ["PATH"], "HOME": str(off_tmp)}
    command = Command([python, "-c", code], env, off_tmp, isolation=Isolation(str(off_tmp / "gs"), tmp=True))
    both = [running.start(one, command) for one in ("one", "two")]
    while any(child.exit is None for child in both):
        running.poll(1)
    running.close()
    assert [child.exit.code for child in both if child.exit] == [0, 0], printed
    assert not Path(name).exists() and scratch_folders() <= scratch


@pytest.mark.parametrize(
    ("value", "shared"),
    [("/home/me/.venv/bin/python", False), ("/tmp/venv/bin/python", True), ("/home/me:/tmp/lib", True), ("/tmpfs/x", False)],
)  # fmt: skip
def test_what_is_needed_below_tmp_keeps_it_shared(value: str, shared: bool) -> None:
    """A program whose interpreter, folder or variable is below the machine's /tmp sees that."""
    program = ReplicaProgram(("train",), ("--out=/tmp/out",))
    assert replica.is_in_tmp(program, {"PYTHONPATH": value}, Path("/home/me/.vertexrig")) is shared
    assert replica.is_in_tmp(replace(program, head=(value,)), {}, Path("/home/me/.vertexrig")) is shared


def test_nothing_of_a_killed_replica_is_left(folder: Path, tmp_path: Path) -> None:
    """The supervisor is killed: what watches over it ends the program and removes its scratch folder."""
    (tmp_path / "gs").mkdir()
    scratch = scratch_folders()
    started: list[str] = []
    running = children.Children(lambda line: started.append(line.text))
    code = "import os, time; open('made', 'w'); print(os.getppid(), flush=True); time.sleep(60)"
    isolation = Isolation(str(tmp_path / "gs"), changes=str(tmp_path / "changes"))
    child = running.start("one", Command(["python3", "-c", code], dict(os.environ), folder, isolation=isolation))
    while not started:
        running.poll(1)
    os.kill(int(started[0]), signal.SIGKILL)
    while child.exit is None:
        running.poll(1)
    running.close()
    until = time.monotonic() + 20
    while not scratch_folders() <= scratch and time.monotonic() < until:
        time.sleep(0.05)
    assert scratch_folders() <= scratch and not (folder / "made").exists()
