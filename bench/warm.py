"""A sweep of short TensorFlow trials, warm, against one process that trains the same trials with the same parallelism.

`python bench/warm.py` prints one row a line: what | ours | peer | ratio | bar | ok. The peer imports TensorFlow once and forks a
process for each trial, as many at a time as the sweep has: it pays nothing for the service, for packages or for logs. Wall
times want an otherwise idle machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import REPOSITORY, row

sys.path.insert(0, str(REPOSITORY))

from localvertex.jobs.inprocess import LocalJobs
from localvertex.jobs.manager import Watcher
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from vertexrig.project.local import LocalImage

TRIALS, PARALLEL = 12, 2
ROUNDS = 3
TRAINER = """
import argparse, json, os, time
import tensorflow as tf
import hypertune

def main(rate):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential([tf.keras.layers.Dense(256, activation="relu"), tf.keras.layers.Dense(10)])
    model.compile(tf.keras.optimizers.SGD(rate), tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    x = tf.random.uniform((4096, 64))
    y = tf.cast(tf.reduce_sum(x[:, :10], 1), tf.int32)
    found = model.fit(x, y, batch_size=32, epochs=EPOCHS, verbose=0).history["accuracy"][-1]
    hypertune.HyperTune().report_hyperparameter_tuning_metric("accuracy", found, EPOCHS)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float)
    main(parser.parse_args().rate)
"""
PEER = """
import os, sys, tempfile
import main, tensorflow
tensorflow.keras.Model
rates, parallel, running = [float(text) for text in sys.argv[2:]], int(sys.argv[1]), set()
for number, rate in enumerate(rates):
    if len(running) == parallel:
        running.remove(os.wait()[0])
    pid = os.fork()
    if pid == 0:
        os.environ["CLOUD_ML_HP_METRIC_FILE"] = os.path.join(tempfile.mkdtemp(), "metrics")
        main.main(rate)
        os._exit(0)
    running.add(pid)
while running:
    running.remove(os.wait()[0])
"""


def study(folder: Path, *, warm: bool) -> tuple[float, list[float]]:
    """Wall seconds of a sweep, and the values that it tried."""
    pool: dict[str, Any] = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": "bench/warm"},
    }
    data = {
        "displayName": "warm", "maxTrialCount": TRIALS, "parallelTrialCount": PARALLEL,
        "trialJobSpec": {"workerPoolSpecs": [pool]},
        "studySpec": {
            "algorithm": "RANDOM_SEARCH", "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
            "parameters": [{"parameterId": "rate", "doubleValueSpec": {"minValue": 0.01, "maxValue": 0.1}}],
        },
    }  # fmt: skip
    image = LocalImage(str(folder), (sys.executable, "main.py"), "tf")
    run = RunOptions(images={"bench/warm": image}, engine="none", warm=warm)
    begun = time.perf_counter()
    with LocalJobs(Settings(folder / "state", slots=PARALLEL, options=run), Watcher()) as here:
        done = here.follow(here.add({}, data))
    seconds = time.perf_counter() - begun
    failed = [trial for trial in done["trials"] if trial["state"] != "SUCCEEDED"]
    if failed:
        raise RuntimeError(json.dumps(failed[0]))
    return seconds, [float(parameter["value"]) for trial in done["trials"] for parameter in trial["parameters"]]


def alone(folder: Path, rates: list[float]) -> float:
    """Wall seconds of one process that trains the same trials."""
    begun = time.perf_counter()
    words = [sys.executable, "-c", PEER, str(PARALLEL), *map(str, rates)]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - begun


def main() -> None:
    """Print the rows."""
    print("warm trials | ours | peer | ratio | bar | ok")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for epochs in (10, 30):
        taken: dict[str, list[float]] = {"warm": [], "cold": [], "peer": []}
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "main.py").write_text(TRAINER.replace("EPOCHS", str(epochs)))
            for _ in range(ROUNDS):
                seconds, rates = study(folder, warm=True)
                taken["warm"].append(seconds)
                taken["peer"].append(alone(folder, rates))
            taken["cold"].append(study(folder, warm=False)[0])
        ours, peer, cold = (sorted(taken[key])[len(taken[key]) // 2] for key in ("warm", "peer", "cold"))
        what = f"{TRIALS} TensorFlow trials of {epochs} epochs, {PARALLEL} at a time, against one process with the same"
        print(row(what, f"{ours:.1f} s", f"{peer:.1f} s", ours / peer, "<= 1.3", ours / peer <= 1.3), flush=True)
        print(row("the same, cold", f"{cold:.1f} s", f"{peer:.1f} s", cold / peer, "", None), flush=True)


if __name__ == "__main__":
    main()
