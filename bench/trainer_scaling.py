"""Weak scaling of multi-worker training: images per second per worker with 1, 2 and 3 workers, one core each.

Real processes of the trainer, the codelab's network on 150 x 150 images, on loopback, each pinned to a core of its own, the same batch per worker. As many workers as
the machine has cores for. `python bench/trainer_scaling.py` prints one row per number of workers; bar: 0.85.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "trainer_pkg"
FLAGS = ("--image_size=150", "--num_units=64", "--batch_size={batch}", "--epochs=3", "--plot=false", "--tensorboard=false",
         "--intra_op_threads=1", "--examples_per_epoch={examples}")  # fmt: skip
STEPS = 12  # in an epoch
BATCH = 64  # per worker, as in the codelabs
TIMEOUT = 240
ROUNDS = 3


def run(workers: int, cores: list[int]) -> float:
    """Images per second of all workers together, from the chief's own step times."""
    with tempfile.TemporaryDirectory() as folder:
        ports = [port.getsockname()[1] for port in [socket.create_server(("127.0.0.1", 0)) for _ in range(workers)]]
        hosts = [f"127.0.0.1:{port}" for port in ports]
        cluster = {"chief": hosts[:1], **({"worker": hosts[1:]} if workers > 1 else {})}
        started = []
        for place in range(workers):
            task = {"type": "worker", "index": place - 1} if place else {"type": "chief", "index": 0}
            env = {**os.environ, "PYTHONPATH": str(PACKAGE), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1",
                   "OMP_NUM_THREADS": "1", "TF_CONFIG": json.dumps({"cluster": cluster, "task": task}),
                   "CLOUD_ML_HP_METRIC_FILE": f"{folder}/metrics"}  # fmt: skip
            flags = [flag.format(examples=STEPS * BATCH * workers, batch=BATCH) for flag in FLAGS]
            started.append(subprocess.Popen(
                [sys.executable, "-m", "trainer.task", *flags, f"--output_dir={folder}/out"], env=env,
                preexec_fn=partial(os.sched_setaffinity, 0, {cores[place]}),
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))  # fmt: skip
        try:
            if any(process.wait(TIMEOUT) for process in started):
                raise SystemExit(f"a run with {workers} workers failed")
        finally:
            for process in started:
                process.kill()
                process.wait()
        return float(json.loads(Path(folder, "out/model/summary.json").read_text())["images_per_second"])


def main() -> None:
    """Print one row per number of workers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    print("trainer weak scaling, one core per worker | img/s | per worker | efficiency | bar")
    numbers = range(1, min(arguments.workers, len(cores)) + 1)
    speeds: dict[int, list[float]] = {workers: [] for workers in numbers}
    for _ in range(arguments.rounds):  # interleaved, so that a busy minute meets all alike
        for workers in numbers:
            speeds[workers].append(run(workers, cores))
    alone = statistics.median(speeds[1])
    for workers in numbers:
        speed = statistics.median(speeds[workers])
        bar = "0.85" if workers > 1 else ""
        print(f"{workers} | {speed:.0f} | {speed / workers:.0f} | {speed / workers / alone:.2f} | {bar}", flush=True)


if __name__ == "__main__":
    main()
