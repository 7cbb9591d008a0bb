"""Newcomers with trainers of eight kinds: whatever is typed here was printed by the step before."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import tools, wheels
from tests.support.tools import REPOSITORY, vertexrig

KINDS = ("notebook", "keras", "ddp", "typer", "click", "absl", "hf", "lightning")
LONG = os.environ.get("ATTACK") == "long"


TORCH = ("ddp", "lightning")
"""Kinds that run in this environment: there is no build of PyTorch for processors alone that uv would find."""
NOTHING_TO_SEARCH = ("lightning", "notebook")
"""Kinds of which no flag is read: init says so, and writes no sweep."""


class Walk:
    """From init to register: each command typed is one that a verb before it has printed.

    Args:
        folder: Where the trainer is.
        installed: The environment; this one by default.
    """

    def __init__(self, folder: Path, installed: wheels.Installed | None) -> None:
        self.folder, self.installed = folder, installed
        self.printed, self.variables = "", dict[str, str]()

    def runs(self, *words: str) -> tuple[int, str, str]:
        """Type a command of the tool."""
        if self.installed is None:
            done = vertexrig(*words, cwd=self.folder, env=self.variables)
            return done.returncode, done.stdout, done.stderr
        env = {**self.installed.variables, **self.variables}
        typed = subprocess.run(
            [str(self.installed.folder / "bin/vertexrig"), *words],
            cwd=self.folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500,
        )  # fmt: skip
        return typed.returncode, typed.stdout, typed.stderr

    def follows(self, *words: str, codes: tuple[int, ...] = (0,), more: tuple[str, ...] = ()) -> int:
        """Type the last line printed that begins with these words, and more after it; the exit code."""
        lines = re.findall(rf"vertexrig ({' '.join(words)}\b.*)$", self.printed, re.MULTILINE)
        assert lines, f"nothing printed begins with {words}: {self.printed}"
        return self.types(*lines[-1].split(), *more, codes=codes)

    def types(self, *words: str, codes: tuple[int, ...] = (0,)) -> int:
        code, out, err = self.runs(*words)
        self.printed += out + err
        assert code in codes and "Traceback" not in out + err, f"$ vertexrig {' '.join(words)}\n{self.printed}"
        return code


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> wheels.Installed:
    """The wheel in an environment that has uvloop, JAX and an old TensorFlow, as people have them."""
    shared = tmp_path_factory.mktemp("shared")

    def make(folder: Path) -> None:
        made = wheels.install(wheels.shared(shared), folder / "machine", "local", "submit", constrained=False)
        made.pip("install", "tensorflow-cpu==2.17.*", "jax", "uvloop", "scikit-learn", "joblib", "cloudml-hypertune")

    folder = wheels.once("beside", shared, make)
    return wheels.Installed(folder / "machine/venv", folder / "machine/home")


@pytest.mark.whole
@pytest.mark.skipif(not LONG, reason="make attack runs it: how each kind's flags are read, other tests hold")
@pytest.mark.parametrize("kind", KINDS)
def test_the_way_to_the_registry_is_printed(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    """Eight kinds of trainers go from init to a version in the registry, through a sweep where the trainer has something to search
    over, two of whose trials run, and each line typed is one that was printed: six where uvloop, JAX and an old TensorFlow are, the others beside uvloop.
    """
    if kind in TORCH:
        tools.installed("torch")
    shutil.copytree(REPOSITORY / "tests/trainers/newcomers" / kind, tmp_path / "work")
    walk = Walk(tmp_path / "work", None if kind in TORCH else request.getfixturevalue("beside"))
    walk.types("init")
    walk.follows("render")
    walk.follows("check")
    name = "cpu" if kind in NOTHING_TO_SEARCH else "sweep-best"
    if kind not in NOTHING_TO_SEARCH:
        walk.follows("rehearse sweep", more=("--trials=2",))  # each may import a framework
        walk.follows("promote sweep")
    walk.follows(f"rehearse {name}")
    walk.follows(f"register {name}", codes=(2,))  # it was rehearsed here, and the registry is the local Vertex's
    walk.follows("local up")
    try:
        assert re.search(r'^eval "\$\(.*vertexrig local env\)"$', walk.printed, re.MULTILINE)
        walk.variables = json.loads(walk.runs("local", "env", "--format", "json")[1])["env"]
        if walk.follows(f"register {name}", codes=(0, 2)):  # what it lacks, as options of the line to type
            walk.follows(f"register {name} --")
        assert re.search(r"^projects/\S+/models/\d+@1$", walk.printed, re.MULTILINE), walk.printed
    finally:
        walk.runs("local", "down")
