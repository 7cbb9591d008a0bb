"""Goodput of a run that is preempted: useful steps over steps run, with a window between SIGTERM and SIGKILL and without.

The package's trainer runs on the local runner (digits, 44 steps an epoch); after each epoch but the last its machines
are taken away. With a window the log says at which step it saved and from which it goes on. Without one nobody sees the steps
after the last save, so the bound is shown: one save interval lost each time.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from common import REPOSITORY, row

from localvertex.runner import Control, JobRun, Line, RunOptions
from vertexrig.project.local import LocalImage

EPOCHS, STEPS, SAVE_EVERY = 6, 44, 10
FLAGS = [f"--epochs={EPOCHS}", f"--save_every={SAVE_EVERY}", "--num_units=16", "--plot=false"]


def preempted(window: float) -> tuple[int, int, int]:
    """Preemptions, steps of the finished run, and steps known to be run twice, of one run."""
    control, steps = Control(), 0
    saved: list[int] = []
    resumed: list[int] = []

    def line(one: Line) -> None:
        nonlocal steps
        epoch = re.match(r"epoch (\d+)/\d+: step (\d+)", one.text)
        if epoch:
            steps = int(epoch[2])
            if int(epoch[1]) < EPOCHS and len(resumed) < int(epoch[1]):
                control.preempt(window)
        saved.extend(map(int, re.findall(r"SIGTERM: saved at step (\d+)", one.text)))
        resumed.extend(map(int, re.findall(r"going on after epoch \d+, step (\d+)", one.text)))

    with tempfile.TemporaryDirectory() as folder:
        spec = {
            "workerPoolSpecs": [
                {
                    "machineSpec": {"machineType": "n1-standard-4"},
                    "replicaCount": 1,
                    "containerSpec": {
                        "imageUri": "bench/trainer",
                        "command": [sys.executable, "-m", "trainer.task"],
                        "args": FLAGS,
                    },
                }
            ],
            "baseOutputDirectory": {"outputUriPrefix": "gs://bench/run"},
        }
        image = LocalImage(str(REPOSITORY / "trainer_pkg"), ())
        variables = {"CUDA_VISIBLE_DEVICES": "-1"}
        options = RunOptions(job_id="1", images={"bench/trainer": image}, engine="none", extra_env=variables)
        result = JobRun(
            spec,
            root=Path(folder),
            on_line=line,
            on_state=lambda state: None,
            on_pause=lambda: None,
            control=control,
            options=options,
            warmth=None,
        ).run()
    if not result.succeeded:
        raise RuntimeError(result.error)
    missing = len(resumed) - len(saved)  # the signal came where no step ended in time, as in a long validation
    twice = missing * SAVE_EVERY if missing else sum(a - b for a, b in zip(saved, resumed, strict=True))
    return len(resumed), steps, twice


def main() -> None:
    print(f"a run preempted every {STEPS} steps | useful steps | steps run | goodput | bar | ")
    times, steps, twice = preempted(30.0)
    share = steps / (steps + twice)
    print(row(f"window of 30 s, {times} preemptions", str(steps), str(steps + twice), share, ">= 0.95", share >= 0.95))
    times, steps, _ = preempted(0.0)
    most = steps + times * SAVE_EVERY
    what = f"no window, a save every {SAVE_EVERY} steps, {times} preemptions"
    print(row(what, str(steps), f"<= {most}", steps / most, "", None))


if __name__ == "__main__":
    main()
