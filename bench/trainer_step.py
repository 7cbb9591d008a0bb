"""Step time, peak memory and time to the first step of whole runs of the trainer, each a process of its own.

`python bench/trainer_step.py` prints one row per model. Absolute numbers of this machine, reported, not barred.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "trainer_pkg"
RUNS = {
    "no flags (digits, cnn)": (),
    "dense 2 x 100": ("--model=dense", "--epochs=3"),
    "cnn 64 x 64": ("--image_size=64", "--epochs=1"),
    "mobilenet_v2 64 x 64": ("--model=mobilenet_v2", "--weights=none", "--image_size=64", "--epochs=1",
                                        "--examples_per_epoch=320"),
}  # fmt: skip


def main() -> None:
    """Print one row per run."""
    print("trainer run | accuracy | wall s | s to first step | ms per step | images/s | peak MiB")
    for name, flags in RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            env = {**os.environ, "PYTHONPATH": str(PACKAGE), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1",
                   "CLOUD_ML_HP_METRIC_FILE": f"{folder}/metrics"}  # fmt: skip
            subprocess.run([sys.executable, "-m", "trainer.task", f"--output_dir={folder}/out", *flags], env=env, check=True,
                           timeout=300, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
            told = json.loads(Path(folder, "out/model/summary.json").read_text())
        print(f"{name} | {told['accuracy']:.3f} | {told['seconds']:.1f} | {told['seconds_to_first_step']:.1f} | "
              f"{told['step_milliseconds']:.1f} | {told['images_per_second']:.0f} | {told['peak_memory_mib']}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
