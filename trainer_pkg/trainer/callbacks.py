"""What happens between steps and epochs: one Keras callback that keeps the order of things explicit."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from trainer import ending
from trainer.backup import Backup, Progress
from trainer.config import Config
from trainer.errors import DivergedError
from trainer.framework import keras
from trainer.reporting import METRIC, Reporter
from trainer.roles import Scorer

LOG = logging.getLogger("trainer")
CHECK_EVERY = 20  # steps between looks at the loss: each look waits for the device


class Monitor(keras.callbacks.Callback):
    """Counts, checks, records, keeps the best weights, reports, stops early, saves: in this order.

    Args:
        progress: How far the run is; kept up to date.
        best_weights: The best weights so far when a run is resumed.
        scorer: Scores the model's weights, where `fit` itself does not validate.
        settle: Waits until no step is under way any more.
        is_chief: Whether to print and report.
        alone: No other process trains, so that this one can save by itself when SIGTERM comes.
    """

    def __init__(
        self,
        config: Config,
        progress: Progress,
        backup: Backup,
        reporter: Reporter,
        *,
        best_weights: list[np.ndarray] | None = None,
        scorer: Scorer | None = None,
        settle: Callable[[], None] = lambda: None,
        is_chief: bool = True,
        check_batches: bool = True,
        global_batch: int = 1,
        alone: bool = False,
    ) -> None:
        super().__init__()
        # Keeps Keras from converting the logs on every step, and lets the batch hooks run on a parameter-server cluster.
        self._supports_tf_logs = True
        self.config, self.progress, self.backup, self.reporter = config, progress, backup, reporter
        self.best_weights, self.scorer, self.settle, self.is_chief = best_weights, scorer, settle, is_chief
        self.check_batches, self.global_batch, self.alone = check_batches, global_batch, alone
        self.first_step_at: float | None = None
        self.seconds_stepping, self.steps_timed = 0.0, 0
        self._epoch_step = self._last_check = self._last_save = progress.step
        self._epoch_began = self._steps_began = time.time()
        self._steps_began_at = progress.step

    # -- steps

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch_step = self.progress.step
        self._epoch_began = self._steps_began = time.time()
        self._steps_began_at = self.progress.step

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        progress = self.progress
        before = progress.step
        progress.step = self._epoch_step + batch + 1
        progress.step_in_epoch += progress.step - before
        # the first step compiles the graph, so the time of the steps counts from its end
        if self.first_step_at is None:
            self.first_step_at = self._steps_began = time.time()
            self._steps_began_at = progress.step
        if self.check_batches and progress.step - self._last_check >= CHECK_EVERY:
            self._check(float(logs["loss"]))
        if self.alone and ending.asked() and progress.step_in_epoch < progress.steps_per_epoch:
            self._save_and_end()
        every = self.config.save_every
        # `//` on both sides: with several steps per execution the exact multiple may be passed over. The last step of
        # an epoch is saved at its end.
        if every and progress.step // every > before // every and progress.step_in_epoch < progress.steps_per_epoch:
            self._save()

    def _check(self, loss: float) -> None:
        """Stop a run that has diverged.

        Raises: DivergedError naming the steps between which the loss was lost.
        """
        if not math.isfinite(loss):
            raise DivergedError(
                f"the loss became {loss} between steps {self._last_check + 1} and {self.progress.step}; "
                f"try a smaller --learning_rate than {self.config.learning_rate:g}, or --clip_norm=1"
            )
        self._last_check = self.progress.step

    # -- epochs

    def on_test_begin(self, logs: Any = None) -> None:
        self._count_time()

    def _count_time(self) -> None:
        """Add the time since the epoch's first timed step, without validation and saves."""
        if self.progress.step > self._steps_began_at:
            self.seconds_stepping += time.time() - self._steps_began
            self.steps_timed += self.progress.step - self._steps_began_at
            self._steps_began_at = self.progress.step

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        progress, logs = self.progress, logs if logs is not None else {}
        # on a parameter-server cluster steps are still under way when Keras calls an epoch done
        self.settle()
        self._count_time()
        progress.epoch, progress.step_in_epoch = epoch + 1, 0
        self._check(float(logs["loss"]))
        if self.scorer:
            logs["val_loss"], logs["val_accuracy"] = self.scorer.score(self.model.get_weights())
        elif "val_cross_entropy" in logs:
            # val_loss averages over the padding as well; the weighted cross-entropy is exact.
            logs["val_loss"] = logs.pop("val_cross_entropy")
        row = {name: float(logs[name]) for name in ("loss", "accuracy", "val_loss", "val_accuracy") if name in logs}
        progress.history.append({"epoch": progress.epoch, "step": progress.step, **row})
        self._keep_best()
        self._print(row)
        self.reporter.report(row["val_accuracy"], progress.step)
        self._stop_early()
        every = self.config.save_every
        last = self.model.stop_training or progress.epoch >= self.config.epochs
        if self.alone and ending.asked() and not last:
            self._save_and_end()
        if not every or last or progress.step // every > self._last_save // every:
            self._save()

    def _save_and_end(self) -> None:
        with ending.last_work():
            self._save()
            LOG.info("SIGTERM: saved at step %d", self.progress.step)
            ending.end()

    def _keep_best(self) -> None:
        """Keep the weights of the highest validation accuracy; of equal ones, those of the lowest loss.

        Every process of a cluster sees the same numbers and so takes part: reading some variables is collective.
        """
        best, row = self.progress.best, self.progress.history[-1]
        if best is None or (row["val_accuracy"], -row["val_loss"]) > (best["val_accuracy"], -best["val_loss"]):
            self.progress.best_epoch, self.progress.best_step = len(self.progress.history), self.progress.step
            self.best_weights = self.model.get_weights()

    def _print(self, row: dict[str, float]) -> None:
        if self.is_chief:
            took = max(1e-9, time.time() - self._epoch_began)
            speed = (self.progress.step - self._epoch_step) * self.global_batch / took
            numbers = ", ".join(f"{name} {value:.4f}" for name, value in row.items())
            print(f"epoch {self.progress.epoch}/{self.config.epochs}: step {self.progress.step}, {numbers}, "
                  f"{speed:.0f} images/s", flush=True)  # fmt: skip

    def _stop_early(self) -> None:
        progress, patience = self.progress, self.config.patience
        if patience and len(progress.history) - progress.best_epoch >= patience:
            LOG.info("no better %s for %d epochs: stopping", METRIC, patience)
            self.model.stop_training = True

    def _save(self) -> None:
        self._count_time()
        self.settle()
        self.backup.save(self.progress, self.best_weights)
        self._last_save = self.progress.step
        self._steps_began, self._steps_began_at = time.time(), self.progress.step
