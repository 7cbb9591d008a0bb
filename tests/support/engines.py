"""A real podman in a folder of its own, with the images of `tools.own_podman`.

`docker` is the real docker command line, which reaches the same podman through its socket.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvertex.runner import engine
from tests.support.tools import missing, need
from tools import own_podman
from tools.own_podman import BASE, EXECUTOR, other_python

__all__ = ["BASE", "EXECUTOR", "docker_over_podman", "left", "other_python", "podman", "storage", "use"]


def podman(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(["podman", *words], capture_output=True, text=True, errors="replace")
    assert done.returncode == 0 or not check, f"podman {' '.join(words)}: {done.stderr}"
    return done


def left(root: Path) -> list[str]:
    """The containers of a state folder."""
    return podman(
        "ps", "--all", "--filter", f"label={engine.ROOT_LABEL}={root}", "--format", "{{.Names}}"
    ).stdout.split()


def storage() -> Path:
    """Return the folder of a podman with images; see `tools.own_podman`. A podman that cannot run them is as good as none."""
    for program in ("podman", "runc"):
        need(program)
    try:
        return own_podman.storage()
    except OSError as error:
        missing(f"podman runs no image for this user: {str(error).splitlines()[-1]}")


def use(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Have podman keep to a folder, and engines be asked."""
    for name, file in own_podman.variables(folder).items():
        patch.setenv(name, file)
    patch.delenv(engine.VARIABLE, raising=False)
    return folder


@contextlib.contextmanager
def docker_over_podman(parent: Path | None = None) -> Iterator[None]:
    """Have the real docker command line talk to podman, through a socket in a folder below the parent."""
    need("docker")
    with tempfile.TemporaryDirectory(prefix="podman-", dir=parent) as folder, pytest.MonkeyPatch.context() as patch:
        address = f"unix://{folder}/sock"
        service = subprocess.Popen(["podman", "system", "service", "--time=0", address], stderr=subprocess.DEVNULL)
        patch.setenv("DOCKER_HOST", address)
        try:
            for _ in range(200):
                if Path(folder, "sock").exists():
                    break
                time.sleep(0.05)
            yield
        finally:
            service.terminate()
            service.wait()
