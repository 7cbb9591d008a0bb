"""`vertexrig local` on a real server in the background."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from localvertex import server, state
from localvertex.cli import run as local_run
from localvertex.cli.local import command
from localvertex.front import control
from localvertex.jobs.settings import Settings
from tests.support.jobkit import Api, job, pool, with_trainer
from tests.support.tools import said, vertexrig
from vertexrig.errors import ServiceError, UsageError


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A folder whose server, if there is one, is stopped at the end."""
    yield tmp_path / "a state"
    server.down(tmp_path / "a state")


def run(root: Path, *words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(command, [words[0], "--root", str(root), *words[1:]], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


@pytest.mark.whole
def test_up_env_kill_preempt_status_down(root: Path) -> None:
    """The verbs do what they say; what is for a shell goes to stdout and what is for people to stderr."""
    up = run(root, "up", "--port", "0", "--detach", "--slots", "4")
    here = server.find(root)
    assert here is not None and here.url in up.stderr and up.stdout == ""
    exports = run(root, "env").stdout.splitlines()
    assert f"export CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM={here.url}/vertex/" in exports
    assert all(line.startswith("export ") for line in exports)
    with_trainer(root)
    api = Api(here.url)
    name = api.create(job(pool("print('up', flush=True)\nimport time; time.sleep(600)")), name="mine")["name"]
    api.wait(name, "JOB_STATE_RUNNING")
    run(root, "kill", "mine", "workerpool0-0")
    run(root, "preempt", "mine", "--grace=1s")
    status = json.loads(run(root, "status", "--format", "json").stdout)
    assert status["queue"] == {"slots": 4, "used": 1, "running": 1, "waiting": 0}
    assert "1 jobs running" in run(root, "status").stdout
    assert said(run(root, "down").stderr) == ["stopped"]
    assert json.loads(run(root, "status", "--format", "json", code=1).stdout) == {"running": False}
    assert "no local Vertex is running" in run(root, "down").stderr


def test_errors_are_for_people(root: Path) -> None:
    """Without a server, and with a bad rule, the error says what to do."""
    with pytest.raises(ServiceError, match="start it with `vertexrig local up --detach`"):
        run(root, "kill", "x", "workerpool0-0")
    with pytest.raises(UsageError, match="fault 'flood' is not KIND"):
        run(root, "up", "--port", "0", "--fault", "flood")


def test_the_projects_bucket_is_there(tmp_path: Path) -> None:
    """The bucket of the project file exists once the server is up, also when a running server is asked for again; a
    project file that cannot be read stops `up`, and neither `status` nor `down`.
    """
    project = tmp_path / "vertexrig.yaml"
    project.write_text("project: p\nbucket: gs://first-bucket/folder\njobs: {cpu: {machine_type: n1-standard-4}}\n")
    up = ("local", "up", "--detach", "--port", "0")
    try:
        done = vertexrig(*up, cwd=tmp_path)
        assert done.returncode == 0 and "submit cpu" in done.stderr, done.stderr
        assert [file.name for file in (tmp_path / ".vertexrig/gs").iterdir()] == ["first-bucket"]
        project.write_text(project.read_text().replace("first", "second"))
        assert vertexrig(*up, cwd=tmp_path).returncode == 0
        assert (tmp_path / ".vertexrig/gs/second-bucket").is_dir()
        project.write_text("project: [\n")
        assert vertexrig(*up, cwd=tmp_path).returncode == 2
        assert vertexrig("local", "status", cwd=tmp_path).returncode == 0
    finally:
        assert said(vertexrig("local", "down", cwd=tmp_path).stderr) == ["stopped"]


def test_a_second_server_outside_a_project_takes_a_free_port(tmp_path: Path) -> None:
    """Where the usual port is taken, the server of another folder takes a free one; a port that was asked for is an error. up, status
    and down work in a folder without a project file; status ends with 1 where none runs.
    """
    with closing(socket.socket()) as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # A server of another test may have it, and may end at any time: taken is only what this test has taken.
        until = time.monotonic() + 300
        while True:
            try:
                taken.bind(("127.0.0.1", server.DEFAULT_PORT))
                taken.listen()
                break
            except OSError:
                assert time.monotonic() < until, "another server has the usual port"
                time.sleep(0.2)
        done = vertexrig("local", "up", "--detach", "--port", str(server.DEFAULT_PORT), cwd=tmp_path)
        assert done.returncode == 2 and "cannot be used" in done.stderr
        assert vertexrig("local", "status", cwd=tmp_path).returncode == 1
        try:
            done = vertexrig("local", "up", "--detach", cwd=tmp_path)
            assert done.returncode == 0 and "submit" not in done.stderr, done.stderr
            here = server.find(tmp_path / ".vertexrig")
            assert here is not None and here.port != server.DEFAULT_PORT
            assert vertexrig("local", "status", cwd=tmp_path).returncode == 0
        finally:
            done = vertexrig("local", "down", cwd=tmp_path)
        assert done.returncode == 0 and said(done.stderr) == ["stopped"]


def test_a_port_is_taken_before_its_server_answers() -> None:
    """Of two servers that start at once the later one is told that the port is taken, and does not die of it at `listen`."""
    with control.bound(0) as first, pytest.raises(UsageError, match="choose another"):
        with control.bound(first.getsockname()[1]):
            pass


def test_a_server_that_runs_takes_no_options(root: Path) -> None:
    """`up --detach` finds a server that runs, and refuses what only a new one would heed, as `local run` does. What it prints to point a
    shell at the server names the folder.
    """
    with server.running(Settings(root)) as here:
        (line,) = [
            one for one in run(root, "up", "--detach", "--port", "0").stderr.splitlines() if one.startswith("eval ")
        ]
        assert line.endswith(f"local env --root '{root}')\"")
        assert f"export BOTO_CONFIG='{root / server.BOTO}'" in run(root, "env").stdout.splitlines()
        run(root, "up", "--detach", "--port", str(here.port))
        for words in (["--fault", "quota"], ["--slots", "3"], ["--seed=1"], ["--cold"], ["--port", "1"]):
            name = words[0].partition("=")[0]
            with pytest.raises(
                UsageError, match=f"{name} needs a new server, but a local Vertex is already running .* stop it with"
            ):
                run(root, "up", "--detach", *words)


def of_a_run(root: Path) -> AbstractContextManager[server.RunningServer]:
    """The server of a `local run`."""
    return local_run.server(None, root, lambda: Settings(root), None, [], 0)


@pytest.mark.whole
def test_a_server_that_is_asked_for_outlasts_the_run_that_started_it(root: Path) -> None:
    """`up --detach` has what a `local run` started go on after that has ended."""
    with of_a_run(root) as here:
        run(root, "up", "--detach")
    assert server.find(root) == here


def test_a_server_is_asked_for_before_its_run_has_marked_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`up --detach` that finds the server of a `local run` as it comes up has it go on, too."""
    start = control.started

    def meanwhile(*given: Any, **named: Any) -> tuple[server.RunningServer, bool]:
        made = start(*given, **named)
        monkeypatch.undo()
        run(root, "up", "--detach")
        return made

    monkeypatch.setattr(control, "started", meanwhile)
    with of_a_run(root) as here:
        pass
    assert server.find(root) == here


def test_a_server_that_another_command_is_starting_takes_no_options(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is only known as a server once this command has waited for it is refused options, and is not this command's to stop."""
    with server.running(Settings(root)) as here:
        monkeypatch.setattr(state, "find", lambda root: None)
        with pytest.raises(UsageError, match="--slots needs a new server"):
            run(root, "up", "--detach", "--slots", "3")
        with pytest.raises(UsageError, match="--cold needs a new server"):
            local_run.server(None, root, lambda: Settings(root), None, ["--cold"], 0).__enter__()
        with of_a_run(root) as found:
            assert found == here
        monkeypatch.undo()
        assert control.answers(here)


@pytest.mark.whole
def test_a_run_that_begins_while_the_last_other_one_ends(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits until the server has been stopped, and starts its own one."""
    found: list[bool] = []

    def begin() -> None:
        with of_a_run(root) as here:
            found.append(control.answers(here))

    begun, stop = threading.Thread(target=begin, daemon=True), control.down

    def down(folder: Path) -> bool:
        monkeypatch.undo()
        begun.start()
        begun.join(0.5)
        return stop(folder)

    with of_a_run(root):
        monkeypatch.setattr(control, "down", down)
    begun.join(60)
    assert found == [True] and server.find(root) is None
