"""`vertexrig local python`: environments with an image's versions, cached by content, and rehearsals that run in them."""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from localvertex.jobs.manager import Watcher
from localvertex.jobs.project_settings import settings_of_project
from localvertex.rehearsal import prepare, rehearse
from localvertex.runner import Control, packages, pool_programs, pythons
from localvertex.runner.children import Children
from localvertex.runner.options import RunOptions
from localvertex.runner.result import SUSPENDED, JobResult
from tests.support import clouds
from tests.support.jobkit import job, pool, run_job, sdist, with_trainer
from tests.support.packages import lock_nothing, small
from tests.support.tools import need, vertexrig
from vertexrig.catalog import load
from vertexrig.errors import ConfigError, JobFailedError, PackageError, UsageError
from vertexrig.project import config
from vertexrig.workspace import Workspace

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
NOWHERE = "vertexrig-there-is-no-such-distribution==1"
JOB = {"machine_type": "n1-standard-4", "timeout": "600s"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_python_without_tensorflow_is_not_mixed_with_that_of_an_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image's TensorFlow that this Python lacks comes from an environment of the image, found again, without this one's packages."""
    bare, what = tmp_path / "bare", pythons.wanted("tf-2.17", load(), None)
    for folder in (bare, what.folder):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (what.folder / "ready.json").write_text('{"differs": []}')
    monkeypatch.setattr(sys, "executable", str(bare / "bin/python"))
    said: list[str] = []
    images = {name: load().find_short(name, "gpu") for name in ("tf-2.17", "pytorch-2.4")}
    found = {
        name: pool_programs.python_for(
            f"us-docker.pkg.dev/vertex-ai/training/{row.name}:latest", RunOptions(), said.append, lambda: False
        )
        for name, row in images.items()
        if row is not None
    }
    assert found["tf-2.17"].python == str(what.program)
    assert not any(str(bare) in folder for folder in found["tf-2.17"].site)
    assert found["pytorch-2.4"].python == str(bare / "bin/python")
    assert said == [f"Found the environment of tf-2.17, kept for other jobs: {what.program}"]


def test_what_an_image_wants() -> None:
    """The Python and the framework of the catalog, and what the image lists beside it; a wrong name gives the choices."""
    what = pythons.wanted("tf-2.17", load(), None)
    assert (what.python, what.requirements) == ("3.10", ("tensorflow~=2.17.0",))
    assert "pandas==2.2.3" in what.listed and "cloudml-hypertune" in what.listed
    assert pythons.wanted("xgboost-2.1", load(), None).requirements == ("xgboost~=2.1.0",)
    assert pythons.wanted("tf-2.8", load(), None).requirements == ("tensorflow~=2.8.0", "protobuf<3.21")
    with pytest.raises(UsageError, match="no prebuilt cpu image 'tf-2.71'. Choices: build, "):
        pythons.wanted("tf-2.71", load(), None)
    with pytest.raises(UsageError, match="needs a project file"):
        pythons.wanted("build", load(), None)


def test_the_newest_python_of_pyenv_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3.10.12 is newer than 3.10.9 and 3.10.10rc1; one that cannot make environments is passed over; without any, uv looks."""
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    for name, code in (("3.10.9", 0), ("3.10.12", 0), ("3.10.10rc1", 0), ("3.10.13", 1), ("3.11.0", 0)):
        program = tmp_path / "versions" / name / "bin/python"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\nexit {code}\n")
        program.chmod(0o755)
    assert pythons.find_python("3.10") == str(tmp_path / "versions/3.10.12/bin/python")
    assert pythons.find_python("3.9") == "3.9"


def test_a_pyenv_of_another_user_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be looked at, as after `su`, has no Python."""

    def refused(*_: object) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "glob", refused)
    assert pythons.find_python("3.10") == "3.10"


def test_a_python_of_pyenv_imports_nothing_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `venv.py` in the folder where a rehearsal was started is not run."""
    program = tmp_path / "pyenv/versions/3.9.1/bin/python"
    program.parent.mkdir(parents=True)
    program.symlink_to(sys.executable)
    (tmp_path / "venv.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.chdir(tmp_path)
    assert pythons.find_python("3.9") == str(program) and not (tmp_path / "ran").exists()


def test_a_uv_that_cannot_be_run_is_an_error_of_packages(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that the system does not start is said as what else uv fails at, which a caller of `make_python` bears."""

    def start(*_: object) -> NoReturn:
        raise JobFailedError("uv cannot be started: no memory")

    monkeypatch.setattr(Children, "start", start)
    with pytest.raises(PackageError, match="uv cannot be started"):
        pythons.make_python(pythons.wanted("tf-2.17", load(), None), print, lambda: False)


@pytest.mark.whole
def test_an_environment_is_made_once_and_says_what_it_lacks(cache: Path) -> None:
    """What must be there is; what no registry has is named; the second call makes nothing; other content is another folder."""
    need("uv")
    said: list[str] = []
    what = pythons.WantedPython("tiny-2.17", PYTHON, ("six==1.16.0",), ("iniconfig==2.0.0", NOWHERE))
    made = pythons.make_python(what, said.append)
    assert made.fresh and made.python.is_relative_to(cache)
    assert [file.name for file in what.folder.parent.glob("*.lock")] == [f"{what.folder.name}.lock"]
    assert said[0].startswith("making Python") and any(line.startswith("Installed 1 package") for line in said)
    lines = len(said)
    code = "import importlib.metadata as m, pip, sys; print(m.version('six'), m.version('iniconfig'), *sys.version_info[:2])"
    ran = subprocess.run([made.python, "-c", code], capture_output=True, text=True)
    assert ran.stdout == f"1.16.0 2.0.0 {sys.version_info[0]} {sys.version_info[1]}\n", ran.stderr
    assert f"{NOWHERE} is not installed: no package index that uv uses has it" in made.differs
    again = pythons.make_python(what, said.append)
    assert (again.fresh, again.differs, len(said)) == (False, made.differs, lines)
    assert pythons.WantedPython("tiny", PYTHON, ("six==1.17.0",)).folder != what.folder
    with pytest.raises(PackageError, match="vertexrig-there-is-no-such-distribution==1 cannot be installed"):
        pythons.make_python(pythons.WantedPython("tiny", PYTHON, (NOWHERE,)), said.append)


WAITS = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"


def _begun(file: Path) -> psutil.Process:
    until = time.monotonic() + 30
    while not (file.is_file() and file.read_text()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return psutil.Process(int(file.read_text()))


@pytest.mark.parametrize(
    ("suspends", "waits"), [(False, False), (True, False), (False, True)], ids=["cancel", "suspend", "cancel a wait"]
)
def test_a_job_ends_while_its_environment_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suspends: bool, waits: bool
) -> None:
    """The work of uv ends with a job that is cancelled or suspended, and a job that waits for another one's uv ends likewise."""
    made, what = tmp_path / "pid", pythons.wanted("tf-2.17", load(), None)
    monkeypatch.setattr(pythons, "uv", lambda: [sys.executable, "-c", WAITS, str(made)])
    look = packages.inspect_python
    monkeypatch.setattr(packages, "inspect_python", lambda python: replace(look(python), installed={}))
    control, found = Control(), list[JobResult]()
    spec = job(pool("print('ran')"))
    thread = threading.Thread(
        target=lambda: found.append(run_job(spec, root=with_trainer(tmp_path / "root"), control=control)), daemon=True
    )
    what.folder.parent.mkdir(parents=True)
    with what.folder.with_name(f"{what.folder.name}.lock").open("w") as lock:
        if waits:
            fcntl.flock(lock, fcntl.LOCK_EX)
        thread.start()
        uv = None if waits else _begun(made)
        time.sleep(1 if waits else 0)  # by then it waits
        (control.suspend if suspends else control.cancel)()
        thread.join(20)
    assert [one.state for one in found] == [SUSPENDED if suspends else "JOB_STATE_CANCELLED"]
    assert uv is None or not uv.is_running()


def test_uv_ends_with_who_runs_it(tmp_path: Path) -> None:
    """Also where that is killed."""
    code = f"""
import sys
from localvertex.runner import pythons
pythons.uv = lambda: [sys.executable, "-c", {WAITS!r}, {str(tmp_path / "pid")!r}]
pythons.make_python(pythons.WantedPython("tiny", {PYTHON!r}), print)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL) as owner:
        uv = _begun(tmp_path / "pid")
        owner.kill()
    assert psutil.wait_procs([uv], timeout=20)[1] == []


@pytest.mark.whole
def test_a_project_names_the_image_and_the_rehearsal_runs_in_its_environment(tmp_path: Path) -> None:
    """--wire writes lines without a path; before the environment is made the error says how, afterwards the job's Python is
    its own, which has what the lock file has and nothing of this one.
    """
    need("uv")
    task = "import importlib.util, sys\nprint('in', sys.base_prefix, importlib.util.find_spec('optuna'))\n"
    small(tmp_path / "code", task)
    data = {**clouds.PROJECT, "sweeps": {}, "trigger": {}, "jobs": {"cpu": JOB}}
    data["trainer"] = {"path": "code", "image": "build", "build": {"python": PYTHON}}
    loaded = clouds.loaded(tmp_path, data)
    refused = vertexrig("local", "python", "--image", "build", cwd=tmp_path)
    assert refused.returncode == 2 and "there is no lock file" in refused.stderr
    lock_nothing(loaded, "cpu")
    done = vertexrig("local", "python", "--image=build", "--wire", "--format=json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["fresh"] and found["lines"] == 'local:\n  interpreters: {"*trainer-cpu:*": build}\n'
    assert str(tmp_path) not in (tmp_path / "vertexrig.yaml").read_text()
    wired = config.load(tmp_path / "vertexrig.yaml")
    assert settings_of_project(wired, tmp_path).options.interpreters == {"*trainer-cpu:*": found["python"]}
    lines: list[str] = []
    ended = rehearse(prepare(Workspace(wired), "cpu"), watcher=Watcher(line=lambda _, line: lines.append(line.text)))
    assert ended.succeeded and any(line.startswith("in ") and line.endswith(" None") for line in lines), lines
    again = vertexrig("local", "python", "--image=build", "--wire", cwd=tmp_path)
    assert again.returncode == 0 and "the environment already exists" in again.stderr
    lock = tmp_path / "locks/trainer-cpu.txt"
    lock.write_text(lock.read_text() + "# more\n")
    with pytest.raises(ConfigError, match="was not made yet: vertexrig local python --image build"):
        settings_of_project(wired, tmp_path)


def test_a_path_is_seen_from_the_project_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative interpreter is found wherever the command is typed; a link is kept, and a bare name is left to PATH."""
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/python").symlink_to(sys.executable)
    (tmp_path / "vertexrig.yaml").write_text(
        "project: p\nlocal:\n  interpreters: {a*: venv/bin/python, b*: ../python, c*: python3, d*: ~/python}\n"
    )
    monkeypatch.chdir("/")
    monkeypatch.setenv("HOME", "/home/one")
    assert settings_of_project(config.load(tmp_path / "vertexrig.yaml"), tmp_path).options.interpreters == {
        "a*": str(tmp_path / "venv/bin/python"),
        "b*": str(tmp_path.parent / "python"),
        "c*": "python3",
        "d*": "/home/one/python",
    }


def test_an_environment_has_the_python_of_its_image() -> None:
    """An image's own name gives its own Python and packages; an image for GPUs has that of its twin for CPUs."""
    catalog = load()
    old = pythons.wanted("tf-cpu.2-8", catalog, None)
    assert (old.python, pythons.wanted("tf-2.8", catalog, None).python) == ("3.7", "3.10")
    assert "xgboost==1.5.2" in old.listed
    names = {row.name: pythons.name_for(row, catalog) for row in catalog.images}
    assert names["tf-gpu.2-8"] == "tf-cpu.2-8" and names["tf-gpu.2-8.py310"] == "tf-2.8"
    for name in names.values():
        assert pythons.prebuilt(name, catalog) is not None or name.startswith(("pytorch-1.7", "pytorch-1.4", "ray")), (
            name
        )


def test_auto_makes_an_environment_for_each_prebuilt_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `interpreters: auto`, a job of an old image runs with the image's own Python, without another line in the project file."""
    (tmp_path / "vertexrig.yaml").write_text("project: my-project\nlocal: {interpreters: auto}\n")
    found = settings_of_project(config.load(tmp_path / "vertexrig.yaml"), tmp_path).options
    assert found.interpreters == {"*": "auto"}
    asked: list[str] = []

    def make(what: pythons.WantedPython, *_: object) -> pythons.MadePython:
        asked.append(f"{what.image} {what.python}")
        return pythons.MadePython(Path(sys.executable), False, ())

    monkeypatch.setattr(pythons, "make_python", make)
    for name in ("vertex-ai/training/tf-gpu.2-8:latest", "vertex-ai/training/sklearn-cpu.1-6:latest", "my/own/image:1"):
        pool_programs.python_for(f"us-docker.pkg.dev/{name}", found, print, lambda: False)
    assert asked == ["tf-cpu.2-8 3.7", "sklearn-1.6 3.10"]

    def fail(*_: object) -> NoReturn:
        raise PackageError("Python 3.7 cannot be found or downloaded")

    monkeypatch.setattr(pythons, "make_python", fail)
    with pytest.raises(PackageError, match="Python 3.7 cannot be found"):
        pool_programs.python_for("us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-8:latest", found, print, lambda: False)


@pytest.mark.whole
def test_a_package_that_breaks_the_framework_is_named(tmp_path: Path) -> None:
    """A requirement that replaces what this machine's TensorFlow needs is in the error of a job that fails, with the line that helps."""
    root = with_trainer(tmp_path / "state")
    sdist(root / "gs/packages/astunparse.tar.gz", name="astunparse")  # 1.0, and TensorFlow needs 1.6
    for code, end in (("raise SystemExit(3)", "FAILED"), ("pass", "SUCCEEDED")):
        one = pool(code)
        one["pythonPackageSpec"]["packageUris"].append("gs://packages/astunparse.tar.gz")
        done = run_job(job(one), root=root)
        assert done.state == f"JOB_STATE_{end}", done.error
        if done.error is not None:
            last = done.error.message.splitlines()[-1]
            assert re.fullmatch(
                r"tensorflow\S* \S+ of this machine needs astunparse>=1\.6\.0, and pip installed astunparse 1\.0\. The image "
                r"tf-cpu\.2-17\.py310 has other versions\. To make an environment with these: "
                r"vertexrig local python --image tf-2\.17 --wire",
                last,
            ), last
