"""Engines by their own programs: a real podman, and the real docker command line over its socket."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvertex.runner import engine
from localvertex.runner.engine import Engine
from tests.support import engines
from tests.support.engines import BASE, EXECUTOR, left, podman
from vertexrig.errors import UsageError


@pytest.fixture(params=["podman", "docker"])
def real(request: pytest.FixtureRequest, containers: Path) -> Iterator[Engine]:
    """Each engine in turn."""
    if request.param == "docker":
        with engines.docker_over_podman():
            yield _found("docker")
    else:
        yield _found("podman")


def _found(name: str) -> Engine:
    found, why = engine.look(name)
    assert found is not None, why
    return found


def _name(folder: Path) -> str:
    return f"test-{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"


def _run(one: Engine, root: Path, *words: str, **more: object) -> subprocess.CompletedProcess[str]:
    argv = one.run(BASE, words, name=_name(root), labels={engine.ROOT_LABEL: str(root)}, **more)  # type: ignore[arg-type]
    try:
        return one.call(*argv[1:])
    finally:
        one.call(*one.removal(_name(root))[1:])


def test_an_engine_is_found_by_asking_it(real: Engine) -> None:
    """It says its version, and knows the images that are here and those that are not."""
    assert real.version[0].isdigit() and not real.rootless
    assert real.image(BASE) is not None
    found = real.image(EXECUTOR)
    assert found is not None and found.id and real.user_id(found) == 0 and "LANG=C.UTF-8" in found.config["Env"]
    assert real.image("localhost/nothing:1") is None


def test_an_engine_that_is_busy_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A named engine has longer to answer than one of several, and an image is never taken for absent because of its silence."""
    busy = tmp_path / "podman"
    busy.write_text('#!/bin/sh\ncase $1 in image) sleep 60;; esac\nsleep 0.5\necho \'{"version": {"Version": "1"}}\'\n')
    busy.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv(engine.VARIABLE, raising=False)
    monkeypatch.setattr(engine, "_ASK_S", 0.1)
    monkeypatch.setattr(engine, "PROGRAMS", ("podman",))
    assert engine.look("auto") == (None, "podman: podman gave no answer within 0.1 s")
    found = _found("podman")
    monkeypatch.setattr(engine, "_NAMED_S", 0.1)
    with pytest.raises(
        UsageError, match="it is not known whether the image .* is on this machine: podman gave no answer within 0.1 s"
    ):
        found.image("localhost/something:1")


def test_a_container_runs_to_its_end(real: Engine, tmp_path: Path) -> None:
    """Its output, exit code, folder, name of this machine and entry point are as they were asked for, and nothing is left."""
    done = _run(
        real, tmp_path, "-c", "echo out; echo err >&2; cat /etc/hosts > /here/hosts; exit 7",
        entrypoint="sh", mounts={tmp_path: "/here"}, hosts=["other-replica"],
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip(), done.stderr.strip()) == (7, "out", "err")
    assert "127.0.0.1\tother-replica" in (tmp_path / "hosts").read_text() and not left(tmp_path)


def test_variables_reach_a_container_and_no_command_line(
    real: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of every kind arrive, also of names that the engine's own program reads, and none is an argument but lines of those."""
    wanted = {
        "PLAIN": "a 'b' \"c\" $d",
        "LINES": "1\n2",
        "PATH": "/usr/local/bin:/bin:/own",
        "DOCKER_HOST": "tcp://x",
        "EMPTY": "",
    }
    options, passed = engine.environment(wanted, tmp_path / "env")
    assert not any(value and value in word for word in options for value in wanted.values())
    assert (tmp_path / "env").stat().st_mode & 0o77 == 0
    for name, value in passed.items():
        monkeypatch.setenv(name, value)
    code = f"import os; assert {{name: os.environ[name] for name in {list(wanted)!r}}} == {wanted!r}; print('same')"
    done = _run(real, tmp_path, "python3", "-c", code, options=options)
    assert done.stdout.strip() == "same", done.stderr


def test_what_a_killed_server_left_is_removed(real: Engine, tmp_path: Path) -> None:
    """Containers are found by the state folder's label, and those of another folder stay."""
    state, other = tmp_path / "state", tmp_path / "other"
    for root in (state, other):
        podman("run", "--detach", "--stop-timeout", "0", "--label", f"{engine.ROOT_LABEL}={root}", BASE, "sleep", "100")
    assert real.clean(state) == 1 and not left(state) and len(left(other)) == 1
    assert real.clean(other) == 1 and not left(other)


def _entered_by_all(folder: Path) -> bool:
    return folder.is_dir() and all(path.stat().st_mode & 0o001 for path in (folder, *folder.parents))


def test_files_of_root_are_given_to_the_user(containers: Path) -> None:
    """What root of a container wrote belongs to the user who ran the job, where that is not root and the engine is."""
    for_all = next(
        (path for path in map(Path, (tempfile.gettempdir(), "/var/tmp", "/dev/shm")) if _entered_by_all(path)), None
    )
    if for_all is None:
        pytest.skip("no temporary folder of this machine can be entered by another user")
    with engines.docker_over_podman(for_all), tempfile.TemporaryDirectory(dir=for_all) as folder:
        socket = Path(os.environ["DOCKER_HOST"].removeprefix("unix://"))
        socket.chmod(0o666)
        for shared in (socket.parent, Path(folder)):
            shared.chmod(0o755)
        one, root = _found("docker"), Path(folder, "bucket")
        root.mkdir()
        image = one.image(BASE)
        assert image is not None
        _run(one, root, "-c", "mkdir /here/of-root; echo x > /here/of-root/file; chmod 700 /here/of-root", entrypoint="sh",
             mounts={root: "/here"})  # fmt: skip
        os.seteuid(4321)  # as a user who may use the engine
        try:
            said = one.reclaim(image, [root], {})
            assert (said, (root / "of-root/file").stat().st_uid) == ("", 4321)
        finally:
            os.seteuid(0)


def test_why_there_is_no_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A program that is missing and an engine that does not answer are named; the variable decides where nothing else does."""
    monkeypatch.delenv(engine.VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert engine.look() == (None, "docker: not installed; podman: not installed; nerdctl: not installed")
    (tmp_path / "docker").write_text("#!/bin/sh\necho 'Cannot connect to the daemon' >&2\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    assert engine.look("docker") == (None, "docker: Cannot connect to the daemon")
    monkeypatch.setenv(engine.VARIABLE, "none")
    assert engine.find() is None and engine.look()[1] == "engine is none"
