"""The run: `train_and_evaluate(config, cluster)` from the strategy to the verified export."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import logging
import os
import resource
import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from trainer import data, ending, export, models, optimizers, outputs, roles, sources, strategy
from trainer.backup import Backup, Progress, finished_by_this_job, job_id, latest_progress
from trainer.callbacks import Monitor
from trainer.cluster import Cluster
from trainer.config import Config
from trainer.data import Shard
from trainer.errors import ClusterError, ConfigError, DataError, OutputError, PeerLostError, TrainerError, cause
from trainer.framework import PEER_LOST, keras, tf
from trainer.outputs import Directories
from trainer.reporting import METRIC, Reporter
from trainer.strategy import Setup

LOG = logging.getLogger("trainer")
TPU_STEPS_PER_EXECUTION = 32
SIGNS_OF_BAD_DATA = ("Decode", "decode", "image", "record", "No such file", "JPEG", "PNG", "label value")
NO_SPACE = "No space left"
GOODBYE_SECONDS = 20.0  # how long the chief waits for workers that are done to be gone


def train_and_evaluate(config: Config, cluster: Cluster) -> dict[str, Any]:
    """Train, export the best weights and verify them.

    Args:
        cluster: This process's place; servers and evaluators never get to train.

    Returns:
        What summary.json holds; empty on processes that are not the chief.

    Raises:
        TrainerError: anything a person can do something about.
    """
    started = config.started or time.time()
    keras.utils.set_random_seed(config.seed + 1)
    if cluster.role in ("evaluator", "ps") or (cluster.role == "worker" and _is_server(config, cluster)):
        return roles.run(config, cluster)
    if config.evaluate:
        return roles.measure(config, cluster)
    places = outputs.directories(config)
    if (done := _done_before(places, cluster)) is not None:
        return done
    setup = strategy.create(config, cluster)
    if cluster.is_chief:
        outputs.check_writable(places.model, keep=False)  # a run that fails leaves no empty model
        for path in (places.checkpoints, *([places.logs] if config.tensorboard else [])):
            outputs.check_writable(path)
    with _own_checkpoints(places, cluster) as checkpoints, _clear_errors(config, cluster):
        return Run(config, cluster, setup, places, checkpoints, started).run()


def _done_before(places: Directories, cluster: Cluster) -> dict[str, Any] | None:
    """Return the summary of a run that this job finished before it was restarted; None if there is something to train.

    The service restarts a job as a whole: when a worker fails after the chief's export, the chief comes up again as well.
    """
    path = os.path.join(places.model, outputs.SUMMARY)
    progress = latest_progress(places.checkpoints)
    if progress is None or not finished_by_this_job(progress) or not tf.io.gfile.exists(path):
        return None
    LOG.info("this job has finished its run already: %s", path)
    if not cluster.is_chief:
        return {}
    summary = outputs.read_json(path)
    Reporter(is_chief=True).report(summary[METRIC], progress.step)
    return summary


def _is_server(config: Config, cluster: Cluster) -> bool:
    """Tell whether the workers of this cluster serve a coordinator rather than train on their own."""
    return cluster.has_servers and config.strategy in ("auto", "parameter-server")


@contextlib.contextmanager
def _own_checkpoints(places: Directories, cluster: Cluster) -> Iterator[str]:
    """Provide the shared directory for the chief, a temporary local one for all others."""
    if cluster.is_chief:
        yield places.checkpoints
    else:
        with outputs.temporary_directory() as path:
            yield path


@contextlib.contextmanager
def _clear_errors(config: Config, cluster: Cluster) -> Iterator[None]:
    """Turn TensorFlow's errors that have a known cause into ours."""
    try:
        yield
    except PEER_LOST as error:
        if cluster.training_processes > 1:
            raise PeerLostError(f"another process of the cluster went away ({cause(error)}); "
                                "a restart of all processes goes on from the last save") from error  # fmt: skip
        raise
    except (tf.errors.InvalidArgumentError, tf.errors.DataLossError, tf.errors.NotFoundError) as error:
        if any(word in str(error) for word in SIGNS_OF_BAD_DATA):
            raise DataError(f"--data={config.data}: an example cannot be used: {cause(error)}") from error
        raise
    except tf.errors.ResourceExhaustedError as error:
        if NO_SPACE in str(error):
            raise OutputError(f"a disk is full: {cause(error)}") from error
        raise TrainerError(f"out of memory: {cause(error)}; try a smaller --batch_size or --cache=none") from error


class Run:
    """One run on a process that trains (the chief, or a worker of a collective)."""

    def __init__(
        self, config: Config, cluster: Cluster, setup: Setup, places: Directories, checkpoints: str, started: float
    ) -> None:
        self.config, self.cluster, self.setup, self.places, self.started = config, cluster, setup, places, started
        self.splits = sources.load(config)
        self.global_batch = global_batch_size(config, setup.replicas)
        self.steps_per_epoch = data.steps_per_epoch(self.splits.training, self.global_batch, config)
        self._check_sizes()
        with setup.strategy.scope():
            self.model = self._build()
        # the cluster is connected by now, and TensorFlow has taken SIGTERM
        ending.handle()
        self.backup = Backup(self.model, checkpoints, is_chief=cluster.is_chief)
        self.progress = Progress(steps_per_epoch=self.steps_per_epoch, identity=config.identity())
        self.best_weights: list[np.ndarray] | None = None
        self.restarted = False

    def _check_sizes(self) -> None:
        training, batch = self.splits.training, self.global_batch
        if training.size is not None and training.size < batch:
            raise ConfigError(f"the global batch of {batch} is larger than the {training.size} training examples; "
                              f"give a --batch_size of at most {max(1, training.size // self.setup.replicas)}")  # fmt: skip
        sizes = training.shard_sizes(self.cluster.training_processes) or [1]
        if min(sizes) == 0:
            raise DataError(f"--data={self.config.data}: {training.size} examples cannot be shared by "
                            f"{len(sizes)} processes: one would have none")  # fmt: skip
        LOG.info("%s: %s examples; %s: %s; %d classes; %d replicas, global batch %d, %d steps per epoch",
                 training.name, training.size, self.splits.validation.name, self.splits.validation.size,
                 training.num_classes, self.setup.replicas, batch, self.steps_per_epoch)  # fmt: skip

    def _build(self) -> Any:
        """Return the compiled model; inside the strategy's scope."""
        config, training = self.config, self.splits.training
        keras.mixed_precision.set_global_policy(config.precision)
        will_be_replaced = bool(config.warm_start_from)
        model = models.build(config, training.image_shape, training.num_classes, pretrained=not will_be_replaced)
        optimizer = optimizers.build(config, self.steps_per_epoch * config.epochs)
        tpu = self.setup.name == "tpu"
        steps = config.steps_per_execution or (min(TPU_STEPS_PER_EXECUTION, self.steps_per_epoch) if tpu else 1)
        model.compile(
            optimizer=optimizer,
            loss=keras.losses.SparseCategoricalCrossentropy(),
            metrics=["accuracy"] if self.setup.name == "parameter-server" else None,
            weighted_metrics=None if self.setup.name == "parameter-server" else [
                keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
                keras.metrics.SparseCategoricalCrossentropy(name="cross_entropy"),
            ],
            jit_compile=config.jit or None,
            steps_per_execution=steps,
        )  # fmt: skip
        model.optimizer.build(model.trainable_variables)  # so that a checkpoint finds the optimizer's variables
        return model

    # -- the parts in order

    def run(self) -> dict[str, Any]:
        """Restore, train, export, verify, say goodbye."""
        self._restore()
        reporter = Reporter(is_chief=self.cluster.is_chief)
        monitor = self._train(reporter)
        summary: dict[str, Any] = {}
        if self.cluster.is_chief:
            summary = self._finish(monitor, reporter)
        self._goodbye(monitor)
        return summary

    def _restore(self) -> None:
        """Where to start from. In this order:

        1. an unfinished run's last save in our own checkpoint directory (`--resume`): a restart comes before all else;
        2. `--resume_from`: another run's checkpoints, whose epochs count;
        3. `--warm_start_from`: another model's weights only;
        4. the beginning.
        """
        restored = self._own_restore() if self.config.resume else None
        self.restarted = restored is not None
        if restored is None and self.config.resume_from:
            restored = self.backup.restore(self.config.resume_from)
            if restored is None:
                raise DataError(f"--resume_from={self.config.resume_from}: no checkpoint of this trainer there; "
                                "give the checkpoint directory of a run")  # fmt: skip
            self._make_own(*restored)
        if restored is not None:
            self._take_over(*restored)
        elif self.config.warm_start_from:
            export.warm_start(self.model, self.config.warm_start_from)
        self._agree_on_start()

    def _own_restore(self) -> tuple[Progress, list[np.ndarray] | None] | None:
        progress = latest_progress(self.places.checkpoints)
        if progress is None:
            return None
        if progress.finished:
            LOG.info("%s holds a finished run: starting anew (--resume_from goes on from it)", self.places.checkpoints)
            return None
        differ = [name for name, value in self.config.identity().items() if progress.identity.get(name) != value]
        if differ:
            raise DataError(f"{self.places.checkpoints} holds an unfinished run with another "
                            f"{', '.join('--' + name for name in differ)}; "
                            "give the same flags, another directory, or --resume=false")  # fmt: skip
        return self.backup.restore(self.places.checkpoints)

    def _make_own(self, progress: Progress, best_weights: list[np.ndarray] | None) -> None:
        """Make another run's progress this run's own: our flags, and its best weights scored anew on our validation data."""
        progress.identity = self.config.identity()
        if progress.best is None or best_weights is None:
            return
        batch = self.global_batch // self.setup.replicas
        loss, accuracy = roles.Scorer(self.config, self.splits.validation, batch).score(best_weights)
        if self.setup.name == "multi-worker":  # all processes have to compare later epochs with the same numbers
            loss, accuracy = self._mean(loss), self._mean(accuracy)
        progress.best.update(val_loss=loss, val_accuracy=accuracy)

    def _mean(self, value: float) -> float:
        """Return the mean of what the processes of a collective give."""
        return all_reduce(self.setup.strategy, value) / self.setup.replicas

    def _take_over(self, progress: Progress, best_weights: list[np.ndarray] | None) -> None:
        progress.finished, progress.job = False, ""
        if progress.steps_per_epoch != self.steps_per_epoch:  # another batch size: epochs count, steps do not
            progress.step_in_epoch = 0
            progress.steps_per_epoch = self.steps_per_epoch
        self.progress, self.best_weights = progress, best_weights
        LOG.info("going on after epoch %d, step %d", progress.epoch, progress.step)

    def _agree_on_start(self) -> None:
        """Hold that all processes found the same save.

        Raises: ClusterError when the processes of a collective found different saves to go on from.
        """
        if self.setup.name != "multi-worker":
            return
        # of two different steps one is half a step or more from the mean; less is the rounding of a float32
        if abs(self._mean(float(self.progress.step)) - self.progress.step) > 0.25:
            raise ClusterError(
                f"the processes found different saves in {self.places.checkpoints} (this one step {self.progress.step}); "
                "it must be one directory that all of them see, such as gs://BUCKET/..., set by baseOutputDirectory"
            )

    def _train(self, reporter: Reporter) -> Monitor:
        config, progress = self.config, self.progress
        # a run that was ended between its last epoch and its end has only the export left to do
        if config.epochs <= progress.epoch and not self.restarted:
            raise ConfigError(f"--epochs={config.epochs}: the run that is resumed has {progress.epoch} epochs already; "
                              "give the total, which must be more")  # fmt: skip
        servers = self.setup.name == "parameter-server"
        scorer = roles.Scorer(config, self.splits.validation, self.global_batch) if servers else None
        monitor = Monitor(
            config, progress, self.backup, reporter,
            best_weights=self.best_weights, scorer=scorer, settle=self._settle,
            is_chief=self.cluster.is_chief, check_batches=not servers, global_batch=self.global_batch,
            alone=self._alone,
        )  # fmt: skip
        callbacks = [monitor, *self._tensorboard()]
        if progress.step_in_epoch:  # the rest of the epoch in which the last save was made
            self._fit(callbacks, progress.epoch + 1, self.steps_per_epoch - progress.step_in_epoch)
        if progress.epoch < config.epochs and not self.model.stop_training:
            self._fit(callbacks, config.epochs, self.steps_per_epoch)
        return monitor

    @property
    def _alone(self) -> bool:
        return self.cluster.training_processes == 1 and self.setup.name != "parameter-server"

    def _settle(self) -> None:
        """Wait for the steps that workers of a parameter-server cluster still have in hand."""
        if self.setup.name == "parameter-server":
            tf.distribute.coordinator.ClusterCoordinator(self.setup.strategy).join()

    def _fit(self, callbacks: list[Any], epochs: int, steps: int) -> None:
        """Train up to `epochs` epochs of `steps` steps each."""
        ending.handle()
        validation: dict[str, Any] = {}
        if self.setup.name != "parameter-server":
            dataset, count = self._validation()
            validation = {"validation_data": dataset, "validation_steps": count}
        # only inside of fit: elsewhere nothing looks at the flag after each step, and SIGTERM has to break in
        ending.saves_after_a_step(self._alone)
        try:
            self.model.fit(self._training(), initial_epoch=self.progress.epoch, epochs=epochs, steps_per_epoch=steps,
                           callbacks=callbacks, verbose=0, **validation)  # fmt: skip
        finally:
            ending.saves_after_a_step(False)

    def _training(self) -> Any:
        """Return the distributed training data from where `progress` is."""
        config, progress, training = self.config, self.progress, self.splits.training

        def batches(context: Any) -> Any:
            size = context.get_per_replica_batch_size(self.global_batch)
            replicas_here = self.setup.replicas // context.num_input_pipelines
            shard = Shard(context.num_input_pipelines, context.input_pipeline_id)
            return data.training_batches(training, shard, size, config,
                                         first_batch=progress.step * replicas_here, first_epoch=progress.epoch)  # fmt: skip

        if self.setup.name == "parameter-server":
            return roles.training_data(self.cluster, training, config, self.global_batch, progress)
        return self.setup.strategy.distribute_datasets_from_function(batches)

    def _validation(self) -> tuple[Any, int]:
        """Return the distributed validation data and its steps."""
        config, source = self.config, self.splits.validation
        per_replica = self.global_batch // self.setup.replicas
        pipelines = self.cluster.training_processes
        replicas_here = self.setup.replicas // pipelines
        steps = data.validation_steps(source, pipelines, per_replica * replicas_here)

        def batches(context: Any) -> Any:
            shard = Shard(context.num_input_pipelines, context.input_pipeline_id)
            return data.validation_batches(source, shard, per_replica, config, steps * replicas_here)

        return self.setup.strategy.distribute_datasets_from_function(batches), steps

    def _tensorboard(self) -> list[Any]:
        config = self.config
        if not (config.tensorboard and self.cluster.is_chief):
            return []
        if importlib.util.find_spec("tensorboard") is None:  # TensorFlow 2.21 no longer brings it
            LOG.info("no TensorBoard logs: the package tensorboard is not installed")
            return []
        return [keras.callbacks.TensorBoard(self.places.logs, histogram_freq=int(config.histograms),
                                            write_graph=True, profile_batch=config.profile_steps or 0)]  # fmt: skip

    def _finish(self, monitor: Monitor, reporter: Reporter) -> dict[str, Any]:
        """Export the best weights, verify the export, report its accuracy; the chief only."""
        config, source, places = self.config, self.splits.validation, self.places
        best = self.progress.best
        assert best is not None and monitor.best_weights is not None
        batch = self.global_batch // self.setup.replicas
        # from a model of this process alone: under a collective, reading variables needs the other processes
        export.save(export.local_model(config, source, monitor.best_weights), source, places.model)
        accuracy = export.verify(places.model, source, config, batch, best["val_accuracy"])
        reporter.report(accuracy, self.progress.step)
        if config.plot and not outputs.plot_history(self.progress.history, os.path.join(places.model, outputs.PLOT)):
            LOG.info("no %s: matplotlib is not installed", outputs.PLOT)
        summary = self._summary(monitor, accuracy)
        outputs.write_json(os.path.join(places.model, outputs.SUMMARY), summary)
        # last of all: a job that is restarted before this trains the rest, and writes the model again
        self.progress.finished, self.progress.finished_at, self.progress.job = True, time.time(), job_id()
        self.backup.write_progress(self.progress)
        print(f"{METRIC} {accuracy:.4f} of epoch {int(best['epoch'])}; model in {places.model}", flush=True)
        return summary

    def _summary(self, monitor: Monitor, accuracy: float) -> dict[str, Any]:
        assert self.progress.best is not None
        seconds = time.time() - self.started
        first = (monitor.first_step_at or time.time()) - self.started
        step_seconds = monitor.seconds_stepping / max(1, monitor.steps_timed)
        return {
            METRIC: accuracy,
            "val_loss": self.progress.best["val_loss"],
            "best_epoch": int(self.progress.best["epoch"]),
            "epochs": self.progress.epoch,
            "steps": self.progress.step,
            "strategy": self.setup.name,
            "replicas": self.setup.replicas,
            "processes": self.cluster.training_processes,
            "stand_in_devices": self.setup.devices.virtual,
            "global_batch_size": self.global_batch,
            "training_examples": self.splits.training.size,
            "validation_examples": self.splits.validation.size,
            "classes": list(self.splits.training.class_names) or self.splits.training.num_classes,
            "image_shape": list(self.splits.training.image_shape),
            "parameters": int(self.model.count_params()),
            "seconds": round(seconds, 3),
            "seconds_to_first_step": round(first, 3),
            "step_milliseconds": round(1000 * step_seconds, 3),
            "images_per_second": round(self.global_batch / step_seconds, 1) if step_seconds else None,
            "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "tensorflow": tf.__version__,
            "host": socket.gethostname(),
            "history": self.progress.history,
        }

    def _goodbye(self, monitor: Monitor) -> None:
        """Barrier: every process is done before any leaves, and the workers leave before the chief.

        The job ends when the chief exits with 0; whoever still works then is killed.
        """
        if self.setup.name != "multi-worker":
            return
        LOG.info("best weights: sha256 %s", digest(monitor.best_weights or []))
        all_reduce(self.setup.strategy, 1.0)
        if self.cluster.is_chief:
            wait_until_gone(self.cluster.peers(), GOODBYE_SECONDS)


def global_batch_size(config: Config, replicas: int) -> int:
    """`--global_batch_size`, or `--batch_size` for each replica.

    Raises:
        ConfigError: the global batch cannot be shared evenly.
    """
    if not config.global_batch_size:
        return config.batch_size * replicas
    if config.global_batch_size % replicas:
        lower = config.global_batch_size // replicas * replicas
        raise ConfigError(f"--global_batch_size={config.global_batch_size} is not divisible by the {replicas} replicas; "
                          f"try {lower or replicas} or {lower + replicas}")  # fmt: skip
    return config.global_batch_size


def all_reduce(distribution: Any, value: float) -> float:
    """Return the sum of `value` over all replicas; returns on all processes or on none, so it is a barrier as well."""

    @tf.function
    def total() -> Any:
        per_replica = distribution.run(lambda: tf.constant(value, tf.float32))
        return distribution.reduce(tf.distribute.ReduceOp.SUM, per_replica, axis=None)

    return float(total())


def digest(weights: list[np.ndarray]) -> str:
    """Return a short hash of weights: the same on all processes that trained together."""
    sha = hashlib.sha256()
    for weight in weights:
        sha.update(np.ascontiguousarray(weight).tobytes())
    return sha.hexdigest()[:16]


def wait_until_gone(addresses: tuple[str, ...], seconds: float) -> None:
    """Wait until nothing listens at `addresses`, or `seconds` have passed."""
    end = time.time() + seconds
    for address in addresses:
        host, _, port = address.rpartition(":")
        while time.time() < end:
            try:
                # a process of TensorFlow listens at its address until it ends
                socket.create_connection((host, int(port)), timeout=1).close()
            except OSError:
                break
            time.sleep(0.1)
