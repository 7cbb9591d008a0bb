"""A newcomer, from the wheel in an empty environment: whatever is typed here was printed by the step before.

The home is empty and the PATH holds the environment and the system. Each step looks at what its command left.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.support import wheels
from tests.support.tools import vertexrig

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

    def follows(self, *words: str) -> str:
        """Type the last line printed that begins with these words."""
        begin = " ".join(words)
        found = [line for line in self.offered if line.startswith(begin)]
        assert found, f"nothing printed begins with {begin!r}: {self.offered}"
        return self.types(found[-1])

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
    wheel = wheels.build(tmp_path / "build")
    installed = wheels.install(wheel, tmp_path / "machine", "local", "submit", "trainer")
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

    said = newcomer.follows("vertexrig rehearse sweep")
    assert said.count("SUCCEEDED: val_accuracy") == 4 and "best" in said
    if " sweep " in newcomer.installed.shell("vertexrig jobs", newcomer.folder).stdout:  # rehearsals have a history
        assert re.search(r"learning_rate\W+[\d.]+", newcomer.follows("vertexrig best"))

    newcomer.follows("vertexrig local up")
    try:
        newcomer.evaluates('eval "$(vertexrig local env)"')
        newcomer.follows("vertexrig submit cpu")
        assert "SUCCEEDED" in newcomer.follows("vertexrig watch")
        newcomer.follows("vertexrig function build")
        assert (newcomer.folder / "build/function/main.py").is_file()
        assert "gcloud functions deploy" in newcomer.follows("vertexrig function deploy")
    finally:
        newcomer.types("vertexrig local down")
    assert "no local Vertex runs" in newcomer.types("vertexrig local status", code=1)


SEARCHED = """
import argparse, os
import hypertune
parser = argparse.ArgumentParser()
parser.add_argument("--learning_rate", type=float, default=0.1)
args = parser.parse_args()
hypertune.HyperTune().report_hyperparameter_tuning_metric("accuracy", 1 - abs(args.learning_rate - 0.2), 1)
folder = os.environ["AIP_MODEL_DIR"].replace("gs://", "/gcs/", 1)
os.makedirs(folder, exist_ok=True)
open(os.path.join(folder, "saved_model.pb"), "w").close()
"""


@pytest.mark.whole
def test_the_way_to_the_registry_is_printed(tmp_path: Path) -> None:
    """From init to register, each line typed is one that a verb before it has printed, through the refusal of a rehearsal."""
    (tmp_path / "train.py").write_text(SEARCHED)
    printed, variables = "", {}

    def follows(*words: str, code: int = 0) -> None:
        nonlocal printed
        line = (
            re.findall(rf"vertexrig ({' '.join(words)}.*)$", printed, re.MULTILINE)[-1] if printed else " ".join(words)
        )
        done = vertexrig(*line.split(), cwd=tmp_path, env=variables)
        printed += done.stdout + done.stderr
        assert done.returncode == code, printed

    follows("init")
    for verb in (("rehearse", "sweep"), ("promote", "sweep"), ("rehearse", "sweep-best")):
        follows(*verb)
    follows("register", "sweep-best", code=2)
    follows("local", "up")
    try:
        assert re.search(r'^eval "\$\(.*vertexrig local env\)"$', printed, re.MULTILINE)
        given = vertexrig("local", "env", "--format", "json", cwd=tmp_path)
        variables = json.loads(given.stdout)["env"]
        follows("register", "sweep-best")
        assert re.search(r"^projects/\S+/models/\d+@1$", printed, re.MULTILINE), printed
    finally:
        vertexrig("local", "down", cwd=tmp_path)
