"""What a killed run goes on from: TensorFlow checkpoints, and beside each the progress that belongs to it."""

from __future__ import annotations

import dataclasses
import io
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainer import outputs
from trainer.errors import DataError, cause
from trainer.framework import tf

LOG = logging.getLogger("trainer")
PREFIX = "ckpt"
KEPT = 2


@dataclass
class Progress:
    """How far a run is.

    Args:
        step: Optimizer steps done.
        epoch: Whole epochs done.
        step_in_epoch: Steps done of the epoch after those.
        steps_per_epoch: Steps in an epoch.
        history: One row per epoch: epoch (from 1), step, and the metrics.
        best_epoch: The row (from 1) whose weights are the best so far; 0 before the first.
        best_step: Its step.
        finished: Whether the run came to its end.
        finished_at: When, in seconds since 1970.
        identity: `Config.identity` of the run.
        job: `job_id()` of the job that finished it; empty where it was none of Vertex AI's.
    """

    step: int = 0
    epoch: int = 0
    step_in_epoch: int = 0
    steps_per_epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = 0
    best_step: int = 0
    finished: bool = False
    finished_at: float = 0.0
    identity: dict[str, Any] = field(default_factory=dict)
    job: str = ""

    @property
    def best(self) -> dict[str, float] | None:
        """The best row of the history."""
        return self.history[self.best_epoch - 1] if self.best_epoch else None


def job_id(environ: Mapping[str, str] = os.environ) -> str:
    """Return the job, and of a study the trial, that this process belongs to; empty outside of Vertex AI."""
    parts = (environ.get("CLOUD_ML_JOB_ID", ""), environ.get("CLOUD_ML_TRIAL_ID", ""))
    return "/".join(part for part in parts if part) if parts[0] else ""


def finished_by_this_job(progress: Progress | None) -> bool:
    """Tell whether a save is that of a run which this very job, restarted since, brought to its end."""
    return progress is not None and progress.finished and bool(progress.job) and progress.job == job_id()


class Backup:
    """Saves and restores model, optimizer, progress and best weights.

    Under collective strategies every process has to take part in a save, because reading some variables is a
    collective operation; `directory` is the shared one on the chief and a temporary one on all others.

    Args:
        directory: Where this process writes.
        is_chief: Whether it writes what others read.
    """

    def __init__(self, model: Any, directory: str, *, is_chief: bool) -> None:
        self.directory, self.is_chief = directory, is_chief
        self.checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        self.manager = tf.train.CheckpointManager(self.checkpoint, directory, max_to_keep=KEPT, checkpoint_name=PREFIX)
        self._best_written = 0

    def save(self, progress: Progress, best_weights: list[np.ndarray] | None) -> None:
        """Save everything. The checkpoint's own pointer file comes last: until then the previous save counts."""
        if self.is_chief:
            if best_weights is not None:
                self._write_best(progress, best_weights)
            self.write_progress(progress)
        with outputs.writing(self.directory):
            # numbered by step, so that the files of its progress and best weights are found by the checkpoint's name
            self.manager.save(checkpoint_number=progress.step, check_interval=False)
        if self.is_chief:
            self._remove_old(progress)

    def write_progress(self, progress: Progress) -> None:
        """Write, or update, the progress that belongs to the checkpoint of its step."""
        outputs.write_json(_state_path(self.directory, progress.step), dataclasses.asdict(progress))

    def _write_best(self, progress: Progress, weights: list[np.ndarray]) -> None:
        # The same best weights belong to several saves: they are written once. A file of that step which is there
        # already may be an earlier run's.
        if progress.best_step != self._best_written:
            content = io.BytesIO()
            np.savez(content, *weights)
            outputs.write_bytes(_best_path(self.directory, progress.best_step), content.getvalue())
            self._best_written = progress.best_step

    def _remove_old(self, progress: Progress) -> None:
        kept = {os.path.basename(_best_path("", progress.best_step))}
        for checkpoint in self.manager.checkpoints:
            number = step_of(checkpoint)
            kept.add(os.path.basename(_state_path("", number)))
            state = load_progress(self.directory, number)
            kept.add(os.path.basename(_best_path("", state.best_step)) if state else "")
        for name in tf.io.gfile.listdir(self.directory):
            if name.startswith(("progress-", "best-")) and name not in kept:
                tf.io.gfile.remove(os.path.join(self.directory, name))

    def restore(self, directory: str) -> tuple[Progress, list[np.ndarray] | None] | None:
        """Go on from the last save in `directory`; None when there is none.

        Raises:
            DataError: the save there belongs to another model.
        """
        latest = tf.train.latest_checkpoint(directory)
        progress = load_progress(directory, step_of(latest)) if latest else None
        if latest is None or progress is None:
            return None
        try:
            # expect_partial: a checkpoint may hold more than this model asks for; what the model has must be in it
            self.checkpoint.restore(latest).expect_partial().assert_existing_objects_matched()
        except (AssertionError, ValueError, tf.errors.OpError) as error:
            raise DataError(f"{latest} does not fit this model: {cause(error)}; "
                            "give the flags of the run that wrote it, or another directory") from error  # fmt: skip
        if directory == self.directory:
            self._best_written = progress.best_step
        return progress, load_best(directory, progress)


def step_of(checkpoint: str) -> int:
    """Return the step in a checkpoint's name."""
    return int(checkpoint.rsplit("-", 1)[1])


def load_progress(directory: str, step: int) -> Progress | None:
    """Return the progress saved at `step`; None when it is not there."""
    path = _state_path(directory, step)
    if not tf.io.gfile.exists(path):
        return None
    return Progress(**outputs.read_json(path))


def latest_progress(directory: str) -> Progress | None:
    """Return the progress of the last complete save in `directory`, without its weights."""
    latest = tf.train.latest_checkpoint(directory)
    return load_progress(directory, step_of(latest)) if latest else None


def load_best(directory: str, progress: Progress) -> list[np.ndarray] | None:
    """Return the best weights as of `progress`; None before the first epoch."""
    if not progress.best_epoch:
        return None
    with tf.io.gfile.GFile(_best_path(directory, progress.best_step), "rb") as file:
        arrays = np.load(io.BytesIO(file.read()))
    return [arrays[f"arr_{place}"] for place in range(len(arrays.files))]


def _state_path(directory: str, step: int) -> str:
    return os.path.join(directory, f"progress-{step}.json")


def _best_path(directory: str, step: int) -> str:
    return os.path.join(directory, f"best-{step}.npz")
