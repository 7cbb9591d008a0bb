"""The wheel as a user installs it: built from the checkout, in an environment that holds nothing else."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.support.tools import REPOSITORY, available, environments

PARTS = (
    "vertexrig",
    "localvertex",
    "templates",
    "functions",
    "fidelity",
    "setup.py",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)


def build(folder: Path) -> Path:
    """The wheel, built in `folder` from a copy of the sources."""
    copy = folder / "source"
    for name in PARTS:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist"), str(copy)],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    return next((folder / "dist").glob("*.whl"))


@dataclass(frozen=True)
class Installed:
    """An environment.

    Args:
        folder: Its folder.
        home: The user's home, empty at first.
    """

    folder: Path
    home: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def variables(self) -> dict[str, str]:
        """What a shell of this user has: nothing on the PATH but this environment and the system."""
        path = os.pathsep.join([str(self.folder / "bin"), os.defpath.lstrip(os.pathsep), "/usr/local/bin"])
        return {"PATH": path, "HOME": str(self.home), "LANG": "C.UTF-8"}

    def shell(self, text: str, cwd: Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Lines typed into a shell."""
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-c", text],
            cwd=cwd, env=self.variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip

    def pip(self, *words: str) -> None:
        """pip, or uv where it is there: it is faster."""
        uv = available("uv")
        where = [uv, "pip", words[0], "--python", str(self.python)] if uv else [str(self.python), "-m", "pip", words[0]]
        sure = ["--yes"] if words[0] == "uninstall" and not uv else []
        subprocess.run([*where, "--quiet", *sure, *words[1:]], check=True, capture_output=True, timeout=900)


def install(wheel: Path, folder: Path, *extras: str, constrained: bool = True) -> Installed:
    """A new environment with the wheel, the extras named, and nothing else: in the versions of constraints.txt, or the newest."""
    uv = available("uv")
    make = [uv, "venv", "--quiet", "--seed", "--python", sys.executable] if uv else [sys.executable, "-m", "venv"]
    subprocess.run([*make, str(folder / "venv")], check=True, capture_output=True, timeout=300)
    (folder / "home").mkdir()
    made = Installed(folder / "venv", folder / "home")
    named = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
    made.pip("install", *(["-c", str(REPOSITORY / "constraints.txt")] if constrained else []), named)
    return made


def once(name: str, otherwise: Path, make: Callable[[Path], object]) -> Path:
    """A folder that the workers of a run share: the first one that asks makes it. `otherwise` holds it where there is no run."""
    folder = (environments() or otherwise) / name
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            make(folder)
            (folder / "ready").touch()
    return folder


def shared(otherwise: Path) -> Path:
    """The wheel, built once in a run."""
    return next((once("wheel", otherwise, build) / "dist").glob("*.whl"))
