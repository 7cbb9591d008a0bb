"""Ctrl-C where it comes at a bad moment: exit code 130, no traceback, nothing left running, and state that can be read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from localvertex import state
from tests.support.tools import INSTALLED, typed
from vertexrig.package.trust import trust

PROJECT = """\
project: my-project
bucket: gs://my-bucket
trainer: {path: code, module: app.task, image: sklearn-1.6}
jobs: {cpu: {machine_type: n1-standard-4, timeout: 600s}}
"""
# What a terminal does: every process of the group gets the signal.
PRESSED = "import os, signal, time\nos.killpg(os.getpgrp(), signal.SIGINT)\ntime.sleep(60)\n"
AT_IMPORT = """
import os, signal, sys

class Pressed:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Pressed())
"""
# SIGTERM where an Event's lock is held by the thread that its handler runs in, if the server waits for an Event.
WAITS = """
import os, signal, sys, threading
from pathlib import Path
from localvertex import server
from localvertex.jobs.settings import Settings

def trace(frame, event, arg):
    if frame.f_code.co_filename == threading.__file__ and (frame.f_code.co_name, frame.f_back.f_code.co_name) == ("wait", "wait"):
        sys.settrace(None)
        os.kill(os.getpid(), signal.SIGTERM)

def started(here):
    print(here.url, flush=True)
    sys.settrace(trace)

server.serve(Settings(Path(sys.argv[1])), 0, started)
"""
IGNORED = """
import os, signal, sys
from pathlib import Path
from localvertex import server
from localvertex.jobs.settings import Settings

def started(here):
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)

signal.signal(signal.SIGINT, signal.SIG_IGN)
server.serve(Settings(Path(sys.argv[1])), 0, started)
"""


def started(*argv: str, cwd: Path, path: str = "") -> subprocess.Popen[str]:
    """A process in a session of its own, whose SIGINT is not ignored as in a shell's background."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (path, str(INSTALLED))))}
    return subprocess.Popen(
        [sys.executable, *argv], cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def test_while_modules_are_imported(tmp_path: Path) -> None:
    """The command has imported next to nothing when the signal comes."""
    (tmp_path / "sitecustomize.py").write_text(AT_IMPORT)
    process = started("-m", "vertexrig", "--help", cwd=tmp_path, path=str(tmp_path))
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out, said.strip()) == (130, "", "interrupted")


def test_while_a_rehearsal_builds_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal's Ctrl-C also ends the build: that is no failure of the package. Other rehearsals can be listed."""
    (tmp_path / "code/app").mkdir(parents=True)
    (tmp_path / "code/setup.py").write_text(PRESSED)
    (tmp_path / "code/app/task.py").write_text("if __name__ == '__main__':\n    print('ran')\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    trust(tmp_path / "code")
    (tmp_path / "vertexrig.yaml").write_text(PROJECT)
    process = started("-m", "vertexrig", "rehearse", "cpu", "--quiet", cwd=tmp_path)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and "Traceback" not in said and said.splitlines()[-1] == "interrupted", said
    assert typed("jobs", "--local", cwd=tmp_path).exit_code == 0


def test_a_server_in_a_shells_background(tmp_path: Path) -> None:
    """A server that was started with SIGINT ignored serves on when it comes, and ends by SIGTERM."""
    process = started("-c", IGNORED, str(tmp_path / "state"), cwd=tmp_path)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"])
def test_while_a_server_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    """A signal while `local run` waits for the server that it started ends that server."""
    made: list[subprocess.Popen[bytes]] = []

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[call-overload]
            made.append(self)

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", Popen)
        patched.setattr(time, "sleep", lambda seconds: os.kill(os.getpid(), number))
        done = typed("local", "run", "--root", str(tmp_path / "state"), "--", "touch", "ran", cwd=tmp_path)
    assert done.exit_code == code and not (tmp_path / "ran").exists(), done.stderr
    left = [process for process in made if process.poll() is None]
    for process in left:
        process.kill()
    assert len(made) == 1 and not left and not state.look(tmp_path / "state")[0]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)], ids=["SIGINT", "SIGTERM"])
def test_a_server_in_the_foreground(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Ctrl-C ends `local up` with 130, so that nothing behind `&&` runs; SIGTERM, which a supervisor sends, with 0."""
    process = started("-m", "vertexrig", "local", "up", "--port=0", "--root=state", cwd=tmp_path)
    assert process.stderr is not None and process.stdout is not None
    begun = [process.stderr.readline()]
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == code and "Traceback" not in said, (begun, said)
    assert not state.look(tmp_path / "state")[0]


def test_a_server_ends_wherever_the_signal_finds_it(tmp_path: Path) -> None:
    """SIGTERM that comes while the server begins to wait for its end is not lost in the wait."""
    process = started("-c", WAITS, str(tmp_path / "state"), cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("http://")
    process.terminate()
    try:
        process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0
