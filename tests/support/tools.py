"""Helpers that tests call by name."""

from __future__ import annotations

import cProfile
import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

import vertexrig as package

if TYPE_CHECKING:
    from tests.support.forks import Forks

REPOSITORY = Path(__file__).parents[2]
INSTALLED = Path(package.__file__).parent.parent
"""Where the vertexrig under test is imported from: the checkout, or the installed wheel."""


UNTRACED = pytest.mark.skipif(sys.gettrace() is not None, reason="coverage's tracer takes longer than what is measured")
LONG = os.environ.get("ATTACK") == "long"
"""Whether properties are tried at length: `make attack`, or `ATTACK=long make test TESTS=...` of any other test."""


def examples(brief: int, long: int) -> int:
    """How many examples of a property are tried: `brief` on every run, `long` by ATTACK=long."""
    return long if LONG else brief


def brief(rows: Sequence[Any], quick: int) -> list[Any]:
    """Parameters of a test of which `make test` runs the first `quick`; the others are marked `whole`."""
    return [
        pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=[pytest.mark.whole] * (place >= quick))
        for place, row in enumerate(rows)
    ]


def said(text: str) -> list[str]:
    """The lines of a text but for those that come when this machine is slow."""
    return [line for line in text.splitlines() if not line.startswith("waiting for ")]


def available(program: str) -> str | None:
    """The path of a program, on PATH or beside this Python."""
    return shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))


def need(program: str) -> str:
    """The path of a program that users may not have: without it a test skips here and fails in CI."""
    return available(program) or missing(f"{program} is not installed")


def pip_install(python: str = sys.executable) -> list[str]:
    """The words before those of `pip install`, with uv where it is there, since it is faster."""
    uv = available("uv")
    words = (
        [uv, "pip", "install", "--python", python]
        if uv
        else [sys.executable, "-m", "pip", "--python", python, "install"]
    )
    return [*words, "--quiet"]


def missing(why: str) -> NoReturn:
    """Skip a test for what users may not have; in CI it fails."""
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


_ENVIRONMENTS: list[Path] = []


def environments(folder: Path | None = None) -> Path | None:
    """The folder of packages that this run of the tests has installed, once conftest has named it."""
    if folder is not None:
        folder.mkdir(exist_ok=True)
        _ENVIRONMENTS[:] = [folder]
    return _ENVIRONMENTS[0] if _ENVIRONMENTS else None


def new_folder() -> Path:
    """A folder for what is made once in a process, where pytest's `tmp_path` cannot be asked; it goes when pytest removes this run's."""
    run = environments()
    return Path(tempfile.mkdtemp(dir=run.parent if run is not None else None))


def installed(name: str) -> None:
    """Skip without a library that only the processes of a test import: TensorFlow takes 4 s of processor in this one."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")


def module(name: str) -> ModuleType:
    """A library that users may not have: without it the test module skips here and fails in CI."""
    try:
        return importlib.import_module(name)
    except ImportError:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{name} is not installed", allow_module_level=True)


@dataclass(frozen=True)
class Done:
    """What a verb printed, and how it ended."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """What --format json printed; {} if nothing."""
        return json.loads(self.stdout or "{}")


def typed(*words: str, cwd: Path | None = None) -> Done:
    """The command line in this process, in a folder if one is given; it never gives a traceback."""
    from vertexrig import cli  # the trainer's tests run on a container's Python, which has no click

    out, err, before = io.StringIO(), io.StringIO(), Path.cwd()
    os.chdir(cwd or before)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = cli.run(list(words))
    finally:
        os.chdir(before)
    assert "Traceback" not in err.getvalue()
    return Done(code, out.getvalue(), err.getvalue())


def verb_forks(**variables: str) -> Forks:
    """A process that imports the command line, for those that are forked from it; with these variables."""
    from tests.support.forks import Forks
    from vertexrig.cli import OF_EMULATOR, VERBS

    verbs = [f"vertexrig.cli.{verb.replace('-', '_')}" for verb in VERBS if verb not in OF_EMULATOR]
    verbs += ["localvertex.cli.local", "localvertex.cli.rehearse"]
    imports = ["vertexrig.cli", *verbs, "vertexrig.spec.reading"]
    return Forks({**os.environ, "PYTHONPATH": str(INSTALLED), **variables}, imports)


@cache
def _forks() -> Forks:
    """The one of this session, which it ends."""
    return verb_forks()


GCLOUD = (
    "googlecloudsdk.gcloud_main", "googlecloudsdk.api_lib.storage.gcs_json.client", "googlecloudsdk.command_lib.storage.tasks",
    *(f"googlecloudsdk.generated_clients.apis.aiplatform.{one}.aiplatform_{one}_client" for one in ("v1", "v1beta1")),
)  # fmt: skip
"""What gcloud's commands import that takes seconds."""


@cache
def _gcloud_forks() -> Forks | None:
    """The process that has made the real gcloud's imports, as gcloud's own start does; None where gcloud is not made of Python files
    for this Python.
    """
    from tests.support.forks import Forks

    library = Path(need("gcloud")).resolve().parents[1] / "lib"
    if not (library / "googlecloudsdk/gcloud_main.py").exists() or sys.version_info > (3, 14):
        return None
    path = os.pathsep.join([str(library / "third_party"), str(library)])
    return Forks({**os.environ, "PYTHONPATH": path}, GCLOUD, ("-S",))


def end_forks() -> None:
    """End those processes, if they were started."""
    for forks in (_forks, _gcloud_forks):
        if forks.cache_info().currsize and (started := forks()):
            started.close()


def gcloud_run(*args: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The real gcloud in a process that is forked after its imports, which take most of a command's time."""
    forks = _gcloud_forks()
    if forks is None:
        return subprocess.run(["gcloud", *args], cwd=cwd, env=env, capture_output=True, text=True, timeout=180)
    return forked(forks, "gcloud", args, env, cwd)


def module_run(
    module: str, *args: str, cwd: Path, env: dict[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """`python -m MODULE ARGS` as a process of its own: one forked after the imports of the command line, or a new one where
    the variables differ that Python itself reads.
    """
    variables = {**os.environ, "PYTHONPATH": str(INSTALLED), **(env or {})}
    if not _forks().can(variables):
        command = [sys.executable, "-m", module, *args]
        return subprocess.run(command, cwd=cwd, env=variables, input=stdin, capture_output=True, text=True, timeout=300)
    return forked(_forks(), module, args, variables, cwd, stdin)


def forked(
    forks: Forks, module: str, args: Sequence[str], env: dict[str, str], cwd: Path, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """`python -m MODULE ARGS`, forked from a process that has made its imports."""
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("in", "out", "err")]
        streams[0].write_text(stdin)
        process = forks.start(args, env, streams[1], streams[2], cwd, module=module, stdin=streams[0])
        try:
            code = process.wait(300)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(args, code, streams[1].read_text(), streams[2].read_text())


def vertexrig(
    *args: str, cwd: Path, env: dict[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """The command line as a process of its own."""
    return module_run("vertexrig", *args, cwd=cwd, env=env, stdin=stdin)


def calls(work: Callable[[], object]) -> int:
    """How many functions `work` calls."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())
