"""A trainer in place of the repository's own, for tests of what stands around it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.support.packages import small
from vertexrig.trainer_source.reader import read

# A trainer that needs no TensorFlow: it takes the flags of the repository's own, and reports one metric. Only the chief writes the
# summary, whole at once: a replica that is stopped when the chief has ended would leave half a file.
OWN = ("epochs", "learning_rate", "dropout", "num_units", "evaluate", "champion", "challenger")
"""Flags that it reads."""
TRAINER = """\
import argparse
import json
import os
from pathlib import Path

from hypertune import HyperTune


def main() -> None:
    parser = argparse.ArgumentParser()
    for flag in ("epochs", "learning_rate", "dropout", "num_units"):
        parser.add_argument(f"--{flag}", type=float, default=1)
    parser.add_argument("--evaluate", type=json.loads, default=False)
    parser.add_argument("--champion")
    parser.add_argument("--challenger")
    for flag in OTHERS:
        parser.add_argument(flag, nargs="?")
    told = parser.parse_args()
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "chief"})
    if task["type"] not in ("chief", "master"):
        return
    for epoch in range(int(told.epochs)):
        print(f"epoch {epoch + 1}/{int(told.epochs)}: step 14, loss 0.5, accuracy 0.5, val_loss 0.5, val_accuracy 0.5, 500 images/s")
    HyperTune().report_hyperparameter_tuning_metric("accuracy", 1 - told.dropout, 1)
    model = Path(os.environ["AIP_MODEL_DIR"].replace("gs://", "/gcs/", 1))
    model.mkdir(parents=True, exist_ok=True)
    (model / "saved_model.pb").touch()  # what `register` looks for
    summary = model / "summary.json"
    own = {"accuracy": 1.0, "epochs": int(told.epochs)}
    measured = {"champion": {**own, "accuracy": 0.5}, "challenger": own}  # a new model is better than the one before
    summary.with_suffix(".new").write_text(json.dumps(measured if told.evaluate else own))
    summary.with_suffix(".new").replace(summary)


if __name__ == "__main__":
    main()
"""
SETUP = """\
from setuptools import setup

setup(name="trainer", version="0.1.0", packages=["trainer"], install_requires=["cloudml-hypertune"])
"""


def replace_trainer(copy: Path) -> None:
    """Let the trainer of a copy end at once; it refuses a flag that the repository's own does not have."""
    flags = [name for flag in read(copy / "trainer_pkg", "trainer.task").flags for name in flag.names]
    others = [name for name in flags if name.lstrip("-") not in OWN]
    shutil.rmtree(copy / "trainer_pkg")
    small(copy / "trainer_pkg", TRAINER.replace("OTHERS", repr(others)), setup=SETUP)


def with_small_trainer(copy: Path) -> Path:
    """A copy whose trainer ends at once, with a job more and a benchmark more."""
    replace_trainer(copy)
    project = copy / "vertexrig.yaml"
    mine = "jobs:\n  mine: {machine_type: n1-standard-4, timeout: 600s, args: {epochs: 1}}\n"
    project.write_text(project.read_text().replace("jobs:\n", mine, 1))
    (copy / "bench/tiny.py").write_text('print("what | ours")\nprint("row | 1")\n')
    old = copy / "build/venv-tf2.17/bin"
    old.mkdir(parents=True)
    (old.parent / ".ready").touch()
    (old / "python").symlink_to(sys.executable)
    return copy
