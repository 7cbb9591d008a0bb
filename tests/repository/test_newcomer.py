"""A newcomer, from the wheel in an empty environment: whatever is typed here was printed by the step before.

The home is empty and the PATH holds the environment and the system. Each step looks at what its command left.
"""

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

SCRIPT = '''"""Tells points on one side of a plane from those on the other."""

import argparse
import os

import hypertune
import numpy as np
from tensorflow import keras


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--learning_rate", type=float, default=0.03)
    parser.add_argument("--units", type=int, default=16)
    args = parser.parse_args()
    x = np.random.default_rng(0).normal(size=(512, 8)).astype("float32")
    y = (x[:, :4].sum(axis=1) > 0).astype("int32")
    model = keras.Sequential(
        [keras.layers.Dense(args.units, activation="relu"), keras.layers.Dense(1, activation="sigmoid")]
    )
    model.compile(keras.optimizers.Adam(args.learning_rate), "binary_crossentropy", metrics=["accuracy"])
    history = model.fit(x, y, validation_split=0.25, epochs=args.epochs, verbose=2)
    hypertune.HyperTune().report_hyperparameter_tuning_metric(
        hyperparameter_metric_tag="val_accuracy",
        metric_value=history.history["val_accuracy"][-1],
        global_step=args.epochs,
    )
    folder = os.environ.get("AIP_MODEL_DIR", "model").replace("gs://", "/gcs/")
    os.makedirs(folder, exist_ok=True)
    model.save(os.path.join(folder, "model.keras"))


if __name__ == "__main__":
    main()
'''
KINDS = ("notebook", "keras", "ddp", "typer", "click", "absl", "hf", "lightning")
LONG = os.environ.get("ATTACK") == "long"
COMMAND = re.compile(r'^(?:vertexrig |gcloud |eval ")', re.MULTILINE)


class Newcomer:
    """Types what was printed, and nothing else.

    Args:
        installed: The environment.
        folder: The folder the newcomer works in.
    """

    def __init__(self, installed: wheels.Installed, folder: Path) -> None:
        self.installed, self.folder = installed, folder
        self.offered: list[str] = []
        self.evaluated = ""

    def types(self, line: str, *, code: int = 0) -> str:
        """Run a line, in a shell in which the earlier eval lines were typed; what it printed."""
        done = self.installed.shell(f"{self.evaluated}\n{line}", self.folder, timeout=500)
        said = done.stdout + done.stderr
        assert done.returncode == code and "Traceback" not in said, f"$ {line}\n{said}"
        self.offered += [one for one in said.splitlines() if COMMAND.match(one)]
        return said

    def follows(self, *words: str, more: str = "") -> str:
        """Type the last line printed that begins with these words, and more after it."""
        begin = " ".join(words)
        found = [line for line in self.offered if line.startswith(begin)]
        assert found, f"nothing printed begins with {begin!r}: {self.offered}"
        return self.types(f"{found[-1]} {more}")

    def evaluates(self, *words: str) -> None:
        """Type an eval line, whose effect stays in the shell."""
        begin = " ".join(words)
        found = [line for line in self.offered if line.startswith(begin)]
        assert found, f"nothing printed begins with {begin!r}: {self.offered}"
        self.evaluated = found[-1]
        self.types("true")


@pytest.fixture
def newcomer(tmp_path: Path) -> Newcomer:
    """Somebody with a script, who installed the wheel and what it takes to train here."""
    installed = wheels.install(wheels.shared(tmp_path), tmp_path / "machine", "local", "submit", "trainer")
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    return Newcomer(installed, folder)


@pytest.mark.whole
def test_a_newcomer_gets_from_a_script_to_a_function(newcomer: Newcomer) -> None:
    """init, render, check, rehearse, sweep, best, local up, submit, function build: each as the one before printed it."""
    assert os.listdir(newcomer.installed.home) == []
    said = newcomer.types("vertexrig init")
    assert "found train.py: a script" in said and (newcomer.folder / "vertexrig.yaml").is_file()

    newcomer.follows("vertexrig render")
    assert (newcomer.folder / "build/jobs/cpu.yaml").is_file()

    assert "error" not in newcomer.follows("vertexrig check")

    said = newcomer.follows("vertexrig rehearse cpu")
    assert "val_accuracy: " in said and "SUCCEEDED" in said
    assert next((newcomer.folder / ".vertexrig/gs").rglob("model.keras"))

    said = newcomer.follows("vertexrig rehearse sweep", more="--trials=2")
    assert said.count("SUCCEEDED: val_accuracy") == 2 and "best" in said
    if " sweep " in newcomer.installed.shell("vertexrig jobs", newcomer.folder).stdout:  # rehearsals have a history
        assert re.search(r"learning_rate\W+[\d.]+", newcomer.follows("vertexrig best"))

    newcomer.follows("vertexrig local up")
    try:
        newcomer.evaluates('eval "$(vertexrig local env)"')
        newcomer.follows("vertexrig submit cpu")
        assert "SUCCEEDED" in newcomer.follows("vertexrig watch")
        newcomer.follows("vertexrig function build")
        assert (newcomer.folder / "build/function/main.py").is_file()
        assert "gcloud run deploy" in newcomer.follows("vertexrig function deploy")
    finally:
        newcomer.types("vertexrig local down")
    assert "no local Vertex is running" in newcomer.types("vertexrig local status", code=1)


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
