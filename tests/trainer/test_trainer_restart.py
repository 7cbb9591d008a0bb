"""Killed in mid-epoch, restarted: training goes on from the last save."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import wheels
from tests.support.forks import Forks
from tests.trainer import makers
from tests.trainer.conftest import QUICK, Launched, digests, environment, finish, summary
from tests.trainer.lazily import backup, keras

FLAGS = (*QUICK, "--epochs=5", "--save_every=7")
JOB = {"CLOUD_ML_JOB_ID": "123", "CLOUD_ML_TRIAL_ID": "4"}


def scores(told: dict[str, Any]) -> list[float]:
    """Validation loss and accuracy of all epochs, in a row."""
    return [row[key] for row in told["history"] for key in ("val_loss", "val_accuracy")]


def going_on(process: Launched) -> int:
    """The step a process said it goes on from."""
    found = re.search(r"going on after epoch \d+, step (\d+)", process.err)
    assert found, process.err
    return int(found[1])


@pytest.mark.whole
def test_a_killed_run_ends_as_if_it_had_not_been(launch: Callable[..., Launched], tmp_path: Path) -> None:
    """Kill -9 in mid-epoch; the restarted run has the undisturbed one's curve to the last digit, augmentation included."""
    flags = (*FLAGS, "--with_color_distort=true", "--warmup_steps=30", "--schedule=cosine")
    whole = launch(*flags, folder=tmp_path / "whole")
    first = launch(*flags, folder=tmp_path / "killed")
    first.wait_for("epoch 2/")
    first.kill()
    second = launch(*flags, folder=tmp_path / "killed", name="again")
    assert second.wait().code == whole.wait().code == 0, second.err
    step = going_on(second)
    assert step >= 2 * 44 - 7 and step % 7 == 0
    expected, told = summary(tmp_path / "whole"), summary(tmp_path / "killed")
    assert told["steps"] == expected["steps"] == 220
    assert scores(told) == pytest.approx(scores(expected), rel=1e-6)
    assert told["accuracy"] == expected["accuracy"]


@pytest.mark.whole
def test_sigterm_saves_the_step_it_comes_in(launch: Callable[..., Launched], tmp_path: Path) -> None:
    """SIGTERM in mid-epoch of a run that would save at its end only: it saves, ends with 143, and goes on from that step."""
    flags = (*QUICK, "--epochs=400", "--save_every=1000000")
    first = launch(*flags)
    first.wait_for("epoch 3/")
    first.process.terminate()
    ended = first.wait(60)
    assert ended.code == 143, ended.text
    saved = int(ended.err.partition("SIGTERM: saved at step ")[2].split()[0])
    assert saved >= 3 * 44
    second = launch(*flags, name="again")
    second.wait_for("epoch ")
    assert going_on(second) == saved


@pytest.mark.whole
def test_a_cluster_survives_the_loss_of_each_of_its_workers(
    launch_cluster: Callable[..., dict[str, Launched]], tmp_path: Path
) -> None:
    """SIGTERM to worker 1 while it waits for a frozen worker 0 inside TensorFlow, then kill -9 of worker 0, which is the chief
    where there is none: the other one ends by itself with a clear message, and the restarted cluster goes on and ends as well as
    a run in one piece does. Of more than a hundred saves none fails, and what is left is whole.
    """
    flags = (*QUICK, "--epochs=5", "--save_every=1")

    def lost(process: Launched) -> None:
        ended = process.wait(60)
        assert ended.code == 1 and "another process of the cluster went away" in ended.err
        assert "Traceback" not in ended.err

    first = launch_cluster({"worker": 2}, *flags)
    first["worker-0"].wait_for("epoch 2/")
    os.kill(first["worker-0"].process.pid, signal.SIGSTOP)
    first["worker-1"].process.terminate()
    ended = first["worker-1"].wait(60)
    assert ended.code == 143 and "Traceback" not in ended.err, ended.err[-2000:]
    os.kill(first["worker-0"].process.pid, signal.SIGCONT)
    lost(first["worker-0"])
    assert list((tmp_path / "tmp").glob("trainer-*")) == []

    second = launch_cluster({"worker": 2}, *flags, attempt=1)
    second["worker-0"].wait_for("epoch 4/")
    second["worker-0"].kill()
    lost(second["worker-1"])
    shutil.rmtree(tmp_path / "tmp")  # a process that is killed leaves its own
    (tmp_path / "tmp").mkdir()

    third = launch_cluster({"worker": 2}, *flags, attempt=2)
    finish(third)
    assert len(digests(third)) == 1
    assert going_on(third["worker-0"]) == going_on(third["worker-1"]) >= 4 * 22 - 1
    assert 2 * 22 - 1 <= going_on(second["worker-0"]) < 4 * 22
    told = summary(tmp_path)
    assert told["processes"] == 2
    assert told["steps"] == 110 and [row["epoch"] for row in told["history"]] == list(range(1, 6))
    assert told["accuracy"] >= 0.9
    left = sorted(path.name for path in (tmp_path / "checkpoints").glob("*.index"))
    assert left == ["ckpt-109.index", "ckpt-110.index"]
    assert not list((tmp_path / "checkpoints").glob("*temp*")) and not list(tmp_path.rglob("workertemp*"))
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.fixture
def finished(forks: Forks, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a run of one epoch, trial 4 of a job, has left: all test workers copy the same one."""

    def train(folder: Path) -> None:
        words = [sys.executable, "-m", "trainer.task", *QUICK, "--epochs=1", "--save_every=1000"]
        ended = Launched(words, environment(folder, JOB), folder / "run", "task", forks).wait()
        assert ended.code == 0, ended.text

    made = wheels.once("finished-run", tmp_path_factory.getbasetemp(), train)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.mark.whole
def test_a_finished_run_is_gone_on_with_by_its_own_job_alone(finished: Path, launch: Callable[..., Launched]) -> None:
    """The service restarts a job as a whole: one that has exported its model ends with 0 and leaves the model as it is. Another
    job with the same directories trains anew; an unfinished run with other flags there is an error that names them.
    """
    before = (finished / "model" / "summary.json").read_bytes()
    again = launch(*QUICK, "--epochs=1", "--save_every=1000", env=JOB, name="again").wait()
    assert again.code == 0 and "finished its run already" in again.err and "epoch 1/" not in again.out
    assert (finished / "model" / "summary.json").read_bytes() == before
    other = launch(*QUICK, "--epochs=8", "--save_every=5", env={**JOB, "CLOUD_ML_TRIAL_ID": "5"}, name="other")
    other.wait_for("epoch 2/")
    other.kill()
    assert "starting anew" in other.err
    changed = launch(*QUICK, "--num_units=17", name="changed").wait()
    assert changed.code == 1 and "unfinished run with another --num_units" in changed.err
    assert launch(*QUICK, "--num_units=17", "--epochs=1", "--resume=false", name="fresh").wait().code == 0
    assert summary(finished)["epochs"] == 1


def test_a_run_that_was_ended_before_its_export_exports(finished: Path, launch: Callable[..., Launched]) -> None:
    """Killed between the last epoch's save and the end: the restarted run trains no further epoch and exports its best weights."""
    before = summary(finished)
    (saved,) = (finished / "checkpoints").glob("progress-*.json")
    saved.write_text(json.dumps({**json.loads(saved.read_text()), "finished": False, "job": ""}))
    shutil.rmtree(finished / "model")
    again = launch(*QUICK, "--epochs=1", "--save_every=1000", name="again").wait()
    assert again.code == 0 and "epoch 1/" not in again.out, again.text
    assert summary(finished)["accuracy"] == before["accuracy"]


def test_best_weights_of_an_earlier_run_are_not_taken_for_the_new_ones(tmp_path: Path) -> None:
    """A save writes its best weights over those of the same step that another run left there, and only once."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    progress = backup.Progress(step=4, history=[{}], best_epoch=1, best_step=4)
    for value in (1.0, 2.0):
        saver = backup.Backup(model, str(tmp_path), is_chief=True)
        saver.save(progress, [np.full(3, value)])
    assert [list(weight) for weight in backup.load_best(str(tmp_path), progress)] == [[2.0] * 3]
    again = backup.Backup(model, str(tmp_path), is_chief=True)
    restored, weights = again.restore(str(tmp_path))
    written = (tmp_path / "best-4.npz").stat().st_mtime_ns
    restored.step = 8
    again.save(restored, weights)
    assert (tmp_path / "best-4.npz").stat().st_mtime_ns == written


@pytest.mark.whole
def test_a_run_that_goes_on_from_another_is_a_run_of_its_own(launch: Callable[..., Launched], tmp_path: Path) -> None:
    """--resume_from with other data: the old best weights are the ones to beat by what they reach on it, and saves have the new
    run's identity, so that it can be restarted.
    """
    flags = (*QUICK, "--image_size=16", "--batch_size=8", "--save_every=5")
    first, second = makers.csv_images(tmp_path / "a", 80), makers.csv_images(tmp_path / "b", 80, ("dog", "cat"))
    assert launch(*flags, f"--data=csv:{first}", "--epochs=8", folder=tmp_path / "old").wait().code == 0
    more = (*flags, f"--data=csv:{second}", "--epochs=9", f"--resume_from={tmp_path}/old/checkpoints")
    ended = launch(*more, folder=tmp_path / "new").wait()
    assert ended.code == 0, ended.text
    told = summary(tmp_path / "new")
    assert told["accuracy"] == pytest.approx(told["history"][told["best_epoch"] - 1]["val_accuracy"], abs=1e-6)
    assert max(row["val_accuracy"] for row in summary(tmp_path / "old")["history"]) > told["accuracy"] + 0.02
    for saved in (tmp_path / "new/checkpoints").glob("progress-*.json"):
        assert json.loads(saved.read_text())["identity"]["data"] == f"csv:{second}"
