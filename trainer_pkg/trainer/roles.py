"""The roles that do not run the loop themselves: servers of a parameter-server cluster, and the evaluator."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

import numpy as np

from trainer import data, export, outputs, sources, strategy
from trainer.backup import Progress, finished_by_this_job, latest_progress, step_of
from trainer.cluster import Cluster
from trainer.config import Config
from trainer.data import Shard, Source
from trainer.errors import ConfigError
from trainer.framework import keras, tf
from trainer.reporting import METRIC, Reporter

LOG = logging.getLogger("trainer")
POLL_SECONDS = 1.0
EVALUATION = "evaluation.json"
SAME_RUN_SECONDS = 5.0  # a run that finished longer than this before our own start is an earlier one


def run(config: Config, cluster: Cluster) -> dict[str, Any]:
    """Do what a ps, a worker server or an evaluator does. Servers never return: the service ends them."""
    if cluster.role == "evaluator":
        return evaluate_checkpoints(config, cluster)
    # only for its errors: a --strategy that does not fit ends this process too, instead of serving for ever
    strategy.choose(config, cluster, strategy.Devices())
    LOG.info("%s; serving until the job ends", cluster.describe())
    # Without this a worker that restarts is waited for instead of being reported to the coordinator.
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    spec = tf.train.ClusterSpec({role: list(hosts) for role, hosts in cluster.addresses.items()})
    threads = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4,
                                       intra_op_parallelism_threads=config.intra_op_threads)  # fmt: skip
    tf.distribute.Server(spec, job_name=cluster.role, task_index=cluster.index, protocol="grpc", config=threads)
    while True:  # not server.join(): that would not let SIGTERM in
        time.sleep(POLL_SECONDS)


def training_data(cluster: Cluster, source: Source, config: Config, batch: int, progress: Progress) -> Any:
    """Return what each worker of a parameter-server cluster reads: its own shard, in its own order.

    Workers are not in step with each other, so an epoch is a number of steps shared by all of them, not a pass of each
    over its shard; every example of a shard is still seen once before any is seen again.
    """
    workers = len(cluster.addresses["worker"])

    def batches(_: Any) -> Any:
        index = tf.distribute.coordinator.experimental_get_current_worker_index()
        shard = Shard(workers, index)
        done = progress.step // workers
        return data.training_batches(source, shard, batch, config, first_batch=done, first_epoch=progress.epoch)

    return keras.utils.experimental.DatasetCreator(batches)


class Scorer:
    """Scores weights on the whole validation set with a model of this process alone.

    Make it outside the strategy's scope: inside, its variables would be placed on the parameter servers.
    """

    def __init__(self, config: Config, source: Source, batch: int) -> None:
        self.config, self.source, self.batch = config, source, batch
        self.model = export.local_model(config, source, None)
        self._predict = tf.function(lambda images: self.model(images, training=False))

    def score(self, weights: list[np.ndarray] | None = None) -> tuple[float, float]:
        """(loss, accuracy) of these weights, or of those the model has."""
        if weights is not None:
            self.model.set_weights(weights)
        return export.score(self._predict, self.source, self.config, self.batch)


def evaluate_checkpoints(config: Config, cluster: Cluster) -> dict[str, Any]:
    """Score each checkpoint the chief writes, until the run is finished; results go to TensorBoard and evaluation.json.

    An evaluator may come up after checkpoints were already replaced: it scores those it finds.
    """
    began = time.time()
    LOG.info("%s; scoring checkpoints", cluster.describe())
    places = outputs.directories(config)
    source = sources.load(config).validation
    scorer = Scorer(config, source, config.global_batch_size or config.batch_size)
    writer = tf.summary.create_file_writer(os.path.join(places.logs, "evaluator")) if config.tensorboard else None
    rows: list[dict[str, float]] = []
    seen = ""
    while True:
        latest = tf.train.latest_checkpoint(places.checkpoints) if tf.io.gfile.isdir(places.checkpoints) else None
        progress = latest_progress(places.checkpoints) if latest else None
        stale = progress is not None and progress.finished and progress.finished_at < began - SAME_RUN_SECONDS
        stale = stale and not finished_by_this_job(progress)
        if latest and latest != seen and not stale:
            row = _score_checkpoint(latest, scorer)
            if row:
                rows.append(row)
                outputs.write_json(os.path.join(places.checkpoints, EVALUATION), {"evaluations": rows})
                _log(writer, row)
            seen = latest
            continue
        if progress is not None and progress.finished and not stale:
            return {}
        time.sleep(POLL_SECONDS)


def measure(config: Config, cluster: Cluster) -> dict[str, Any]:
    """Score the models in `--champion` and `--challenger` on today's validation data; summary.json has what each reached."""
    if not config.challenger:
        raise ConfigError("--evaluate needs --challenger: the model directory of a run")
    if not cluster.is_chief:
        return {}
    place = outputs.directories(config).model
    outputs.check_writable(place, keep=False)
    source = sources.load(config).validation
    found: dict[str, Any] = {}
    for name, path in (("champion", config.champion), ("challenger", config.challenger)):
        if path:
            loss, accuracy = export.score_saved(path, source, config, config.global_batch_size or config.batch_size)
            found[name] = {"accuracy": accuracy, "loss": loss}
            print(f"{name}: val_loss {loss:.4f}, val_accuracy {accuracy:.4f}", flush=True)
    summary = {METRIC: found["challenger"]["accuracy"], "validation_examples": source.size, **found}
    tf.io.gfile.makedirs(place)
    outputs.write_json(os.path.join(place, outputs.SUMMARY), summary)
    Reporter(is_chief=True).report(summary[METRIC], 1)
    return summary


def _score_checkpoint(path: str, scorer: Scorer) -> dict[str, float] | None:
    """Return one row; None when the chief removed the checkpoint while it was being read."""
    try:
        tf.train.Checkpoint(model=scorer.model).restore(path).expect_partial()
    except (tf.errors.OpError, ValueError):
        return None
    loss, accuracy = scorer.score()
    row = {"step": step_of(path), "loss": loss, "accuracy": accuracy}
    print(f"evaluator: step {row['step']}, val_loss {loss:.4f}, val_accuracy {accuracy:.4f}", flush=True)
    return row


def _log(writer: Any, row: dict[str, float]) -> None:
    if writer is not None:
        with writer.as_default(step=int(row["step"])):
            tf.summary.scalar("evaluation_loss", row["loss"])
            tf.summary.scalar("evaluation_accuracy", row["accuracy"])
        writer.flush()
