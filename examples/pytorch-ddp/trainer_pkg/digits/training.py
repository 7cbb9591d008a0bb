"""The run: join the others, train, keep the best weights, export and verify them."""

from __future__ import annotations

import argparse
import copy
import json
import logging
import os
import random
import signal
import time
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from digits import data, outputs
from digits.cluster import Cluster, total
from digits.data import Examples

LOG = logging.getLogger("digits")
METRIC = "accuracy"
MODEL = "model.pt2"
CHECKPOINT = "latest.pt"
SIGTERM_CODE = 128 + signal.SIGTERM


class StoppedError(Exception):
    """The service asked this process to end."""


class PeerLostError(Exception):
    """A step that all processes take together failed, most often because one of them is gone."""


@dataclass
class Progress:
    """How far the run is, and its best result so far.

    Args:
        epoch: The epoch to train next, or to go on with.
        step: Its next batch.
        best: The best validation accuracy, and the weights that gave it.
        history: Accuracy by epoch.
        job: The job that finished the run; "" before that.
    """

    epoch: int = 0
    step: int = 0
    best: float = -1.0
    best_weights: dict[str, torch.Tensor] = field(default_factory=dict)
    history: list[float] = field(default_factory=list)
    job: str = ""


def build(options: argparse.Namespace) -> nn.Module:
    """The model with its first weights, which the seed decides."""
    torch.manual_seed(options.seed)
    return nn.Sequential(
        nn.Linear(data.PIXELS, options.num_units),
        nn.ReLU(),
        nn.Dropout(options.dropout),
        nn.Linear(options.num_units, data.CLASSES),
    )


class Run:
    """One run in one process.

    Args:
        options: The flags of task.py.
        cluster: This process's place; the process group has been joined.
        device: Where it computes.
    """

    def __init__(self, options: argparse.Namespace, cluster: Cluster, device: torch.device) -> None:
        self.options, self.cluster, self.device = options, cluster, device
        self.started = time.time()
        self.model_folder, checkpoints = outputs.directories(os.environ, options.output)
        self.checkpoint = checkpoints / CHECKPOINT
        self.training, self.validation = (examples.to(device) for examples in data.load())
        self.model = build(options).to(device)
        self.parallel = DistributedDataParallel(self.model) if cluster.size > 1 else self.model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=options.learning_rate, momentum=options.momentum)
        self.progress = Progress()
        self.stop_asked = False

    def run(self) -> dict[str, Any]:
        """Train to the end and export.

        Returns:
            What summary.json holds; empty in processes that are not the chief.

        Raises:
            StoppedError: SIGTERM came; the chief has saved.
            PeerLostError: The processes could not finish a step together; the chief has saved the one before.
            OutputError: A file cannot be written, or a checkpoint is another run's.
        """
        self._restore()
        if self.progress.job and self.progress.job == job_id():
            LOG.info("this job has finished its run already: %s", self.model_folder / outputs.SUMMARY)
            return self._finished_before()
        before = signal.signal(signal.SIGTERM, self._stop)
        try:
            self._train()
            return self._finish()
        finally:
            signal.signal(signal.SIGTERM, before)  # ours would keep this run and its process group

    def _train(self) -> None:
        try:
            while self.progress.epoch < self.options.epochs:
                self._epoch()
        except RuntimeError as error:  # gloo and NCCL raise nothing more exact
            if self.cluster.size == 1:
                raise
            self._save()  # a step that failed has not changed the weights
            raise PeerLostError(f"a step of the {self.cluster.size} processes failed in epoch {self.progress.epoch + 1}, "
                                f"step {self.progress.step}: {error}; a restart of the job goes on from here") from error  # fmt: skip

    def _epoch(self) -> None:
        progress, options = self.progress, self.options
        # dropout differs between processes, and is the same again after a kill
        self.model.train()
        rows_of = data.batches(
            len(self.training), options.batch_size, epoch=progress.epoch, seed=options.seed, begin=progress.step
        )
        for rows in rows_of:
            torch.manual_seed(options.seed + 7919 * (progress.epoch * 10_000 + progress.step) + self.cluster.rank)
            self.step(rows)
            progress.step += 1
            if self.stop_asked:
                self._end_early()
            if progress.step % options.save_steps == 0:
                self._save()
        accuracy = self.evaluate()
        progress.history.append(accuracy)
        if accuracy > progress.best:
            progress.best = accuracy
            progress.best_weights = {name: value.cpu().clone() for name, value in self.model.state_dict().items()}
        progress.epoch, progress.step = progress.epoch + 1, 0
        if self.cluster.is_chief:
            LOG.info("epoch %d: accuracy %.4f, best %.4f", progress.epoch, accuracy, progress.best)
            report(accuracy, progress.epoch)
        self._save()

    def step(self, rows: torch.Tensor) -> None:
        """One step on this process's share of a batch.

        DDP averages the gradients of all processes with equal weight. Shares differ in length when the batch is not
        divisible, so each loss is the sum over the share, scaled by processes ÷ batch: the average is then the
        gradient of the mean loss over the whole batch, whatever the number of processes.
        """
        mine = self.training.part(data.share(rows, self.cluster.rank, self.cluster.size).to(self.device))
        self.optimizer.zero_grad()
        losses = cross_entropy(self.parallel(mine.images), mine.labels, reduction="sum")
        (losses * self.cluster.size / len(rows)).backward()
        self.optimizer.step()

    @torch.no_grad()
    def evaluate(self) -> float:
        """Accuracy over all validation examples, each counted once, the same in every process."""
        self.model.eval()
        rows = torch.arange(len(self.validation), device=self.device)
        mine = self.validation.part(data.share(rows, self.cluster.rank, self.cluster.size))
        return float(total(correct(self.model, mine)) / len(self.validation))

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stop_asked = True

    def _end_early(self) -> None:
        """The chief saves; the others have nothing that it does not have."""
        self._save()
        raise StoppedError(f"ended on SIGTERM in epoch {self.progress.epoch + 1}, step {self.progress.step}; "
                           "the same job goes on from here")  # fmt: skip

    def _identity(self) -> dict[str, Any]:
        """The flags that a checkpoint must have been made with."""
        changeable = ("epochs", "save_steps", "output", "step_seconds")
        return {name: value for name, value in vars(self.options).items() if name not in changeable}

    def _save(self) -> None:
        if not self.cluster.is_chief:
            return
        state = {
            "identity": self._identity(),
            "progress": asdict(self.progress),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        outputs.write(self.checkpoint, lambda file: torch.save(state, file))

    def _restore(self) -> None:
        """Go on from the chief's checkpoint, in every process alike."""
        state = [self._saved() if self.cluster.is_chief else None]
        if self.cluster.size > 1:  # only the chief is sure to see the newest file
            dist.broadcast_object_list(state, src=0)
        found = state[0]
        if found is None:
            return
        self.progress = Progress(**found["progress"])
        self.model.load_state_dict(found["model"])
        self.optimizer.load_state_dict(found["optimizer"])
        if self.cluster.is_chief:
            LOG.info("going on from epoch %d, step %d", self.progress.epoch + 1, self.progress.step)

    def _saved(self) -> dict[str, Any] | None:
        if not self.checkpoint.is_file():
            return None
        try:
            state: dict[str, Any] = torch.load(self.checkpoint, map_location="cpu", weights_only=True)
        except Exception as error:  # torch.load raises what its file's bytes lead to
            raise outputs.OutputError(f"{self.checkpoint} is damaged ({error}); remove it to begin anew") from error
        if state["identity"] != self._identity():
            raise outputs.OutputError(f"{self.checkpoint} was made with other flags ({state['identity']}); "
                                      "remove it, or write to another folder")  # fmt: skip
        return state

    def _finish(self) -> dict[str, Any]:
        if not self.cluster.is_chief:
            return {}
        progress = self.progress
        best = copy.deepcopy(self.model).cpu().eval()
        best.load_state_dict(progress.best_weights)
        export(best, self.model_folder / MODEL)
        exported = accuracy_of(self.model_folder / MODEL, self.validation.to(torch.device("cpu")))
        summary = {
            METRIC: exported,
            "epochs": progress.epoch,
            "strategy": "ddp" if self.cluster.size > 1 else "one process",
            "replicas": self.cluster.size,
            "seconds": round(time.time() - self.started, 3),
            "history": progress.history,
        }
        outputs.write_json(self.model_folder / outputs.SUMMARY, summary)
        report(exported, progress.epoch + 1)  # the last report is the trial's result: that of the exported weights
        progress.job = job_id()
        self._save()
        LOG.info("accuracy %.4f, model in %s", exported, self.model_folder)
        return summary

    def _finished_before(self) -> dict[str, Any]:
        if not self.cluster.is_chief:
            return {}
        summary: dict[str, Any] = json.loads((self.model_folder / outputs.SUMMARY).read_text())
        report(summary[METRIC], self.progress.epoch + 1)
        return summary


def correct(model: nn.Module, examples: Examples) -> torch.Tensor:
    """How many labels the model gets right."""
    if not len(examples):
        return torch.zeros((), dtype=torch.int64, device=examples.labels.device)
    return (model(examples.images).argmax(1) == examples.labels).sum()


def export(model: nn.Module, path: Path) -> None:
    """Write the model with its code: it loads by `torch.export.load` where this package is not installed."""
    batch = torch.export.Dim("batch", min=1, max=4096)
    program = torch.export.export(model, (torch.zeros(2, data.PIXELS),), dynamic_shapes=({0: batch},))
    outputs.write(path, lambda file: torch.export.save(program, file))


def accuracy_of(path: Path, examples: Examples) -> float:
    """The accuracy of an exported model, loaded anew."""
    model = torch.export.load(path).module()
    with torch.no_grad():
        return float(correct(model, examples) / len(examples))


def job_id() -> str:
    """The job and trial that this process belongs to; of this process alone outside a job."""
    environ = os.environ
    job = environ.get("CLOUD_ML_JOB_ID", "")
    return f"{job}/{environ.get('CLOUD_ML_TRIAL_ID', '')}" if job else f"process {os.getpid()} {random.random()}"


@cache
def metrics() -> Any:
    """One for all reports: each new one empties the file that they are in."""
    from hypertune import HyperTune

    return HyperTune()


def report(value: float, step: int) -> None:
    """Report the metric to a study; outside a trial nobody reads it."""
    metrics().report_hyperparameter_tuning_metric(
        hyperparameter_metric_tag=METRIC, metric_value=value, global_step=step
    )
