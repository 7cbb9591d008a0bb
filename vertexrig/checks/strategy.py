"""Distribution strategies of a TensorFlow trainer against its cluster.

A trainer that chooses its strategy while running, and contains the one that its cluster needs, has no finding. Trainers that
spread their work by other means (Horovod, JAX, PyTorch, Keras Tuner) are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from vertexrig.checks._arguments import passed, trainer_pools
from vertexrig.checks.model import DISTRIBUTED, PRACTICE, TPU_DOC, WALKTHROUGH, Context, Problem, Rule, join
from vertexrig.finding import Severity
from vertexrig.spec.document import Document, Pool, has_gpu, tpu_name
from vertexrig.trainer_source import strategy_names as tf
from vertexrig.trainer_source.trainer_model import DYNAMIC, TrainerSource

_KERAS = "TensorFlow 2.21 with Keras 3.15, run 2026-11-20; keras-team/keras issue 20585"
_FIRST_KERAS_3 = (2, 16)

_CLUSTER = {tf.MULTI, tf.SERVER}
_SEVERAL_GPUS = {tf.MIRRORED, tf.MULTI, tf.SERVER, tf.CENTRAL}
# Packages that spread work over replicas or devices by other means.
_OTHERS = frozenset("byteps dask deepspeed horovod jax keras_tuner kerastuner mpi4py ray torch torch_xla".split())
# Images of other registries that name their TensorFlow: gcr.io/cloud-aiplatform/training/tf-gpu.2-4,
# deeplearning-platform-release/tf2-cpu.2-11, tensorflow/tensorflow:2.15.0-gpu.
_NAMED = r"(?:/tf2?-[a-z]+\.|(?:^|/)tensorflow/tensorflow:)(?P<version>\d+[.-]\d+)"


@dataclass(frozen=True)
class TrainingCluster:
    """The replicas that run a trainer, by role, and what they carry; `gpus` is the most that one machine has."""

    trainer: TrainerSource
    pools: tuple[Pool, ...]
    workers: int
    servers: int
    tpu: bool
    gpus: int

    @property
    def strategies(self) -> frozenset[str]:
        """Names of the strategies that the trainer has."""
        return self.trainer.strategies

    @property
    def shown(self) -> str:
        """The strategies for a message."""
        return ", ".join(sorted(self.strategies)) or "no tf.distribute strategy"

    @property
    def replicas(self) -> int:
        """Replicas that train: the chief and the workers."""
        chief = next((pool.replica_count for pool in self.pools if pool.index == 0), 0)
        return chief + self.workers


def _cluster(document: Document, context: Context, trainer: TrainerSource) -> TrainingCluster:
    pools = tuple(pool for pool in trainer_pools(document, trainer) if pool.makes_machines)
    counts = {pool.index: pool.replica_count for pool in pools}
    gpus = max((pool.accelerator_count for pool in pools if has_gpu(pool, context.catalog)), default=0)
    tpu = any(tpu_name(pool, context.catalog) for pool in pools)
    return TrainingCluster(trainer, pools, counts.get(1, 0), counts.get(2, 0), tpu, gpus)


def _subject(document: Document, context: Context) -> TrainingCluster | None:
    """Return the cluster of the trainer; None if the trainer is not known, not readable or no plain TensorFlow program."""
    trainer = context.trainer
    if trainer is None or trainer.problems:
        return None
    packages = {item.module.split(".")[0] for item in trainer.imports}
    if "tensorflow" not in packages or packages & _OTHERS:
        return None
    cluster = _cluster(document, context, trainer)
    return cluster if cluster.pools else None


def cluster_strategy(document: Document, context: Context) -> Iterator[Problem]:
    cluster = _subject(document, context)
    if cluster is None or cluster.tpu or cluster.replicas < 2 or cluster.strategies & _CLUSTER:
        return
    message = f"{cluster.replicas} replicas train, and the trainer has {cluster.shown}: each would train by itself"
    severity = None if cluster.strategies else Severity.WARNING  # it may come from a library
    pool = next((pool for pool in cluster.pools if pool.index == 1), cluster.pools[0])
    fix = "use MultiWorkerMirroredStrategy when TF_CONFIG names workers, or run one replica"
    yield Problem(pool.path, message, fix, severity)


def server_strategy(document: Document, context: Context) -> Iterator[Problem]:
    cluster = _subject(document, context)
    if cluster is None or not cluster.servers or tf.SERVER in cluster.strategies:
        return
    pool = next(pool for pool in cluster.pools if pool.index == 2)
    message = (
        f"{cluster.servers} replicas are parameter servers, and the trainer has {cluster.shown}; it would not use them"
    )
    severity = None if cluster.strategies else Severity.WARNING
    yield Problem(pool.path, message, "remove the pool, or use ParameterServerStrategy", severity)


def server_pools(document: Document, context: Context) -> Iterator[Problem]:
    cluster = _subject(document, context)
    if cluster is not None and cluster.strategies == {tf.SERVER}:
        yield from _server_pools(document, cluster, "the trainer has only ParameterServerStrategy")


def _server_pools(document: Document, cluster: TrainingCluster, who: str, path: str = "") -> Iterator[Problem]:
    roles = (cluster.workers, "workers", 1), (cluster.servers, "parameter servers", 2)
    missing = [f"{what} (pool {index})" for count, what, index in roles if not count]
    if missing:
        message = f"{who}, and the cluster has no {' and no '.join(missing)}"
        yield Problem(path or f"{document.job_path}workerPoolSpecs", message, "add them, or choose another strategy")


def worker_pools(document: Document, context: Context) -> Iterator[Problem]:
    cluster = _subject(document, context)
    if cluster is not None and cluster.strategies == {tf.MULTI} and not cluster.workers and not cluster.tpu:
        message = "the trainer has only MultiWorkerMirroredStrategy, and there is no pool 1: it runs as a single worker"
        yield Problem(f"{document.job_path}workerPoolSpecs", message, "add workers as pool 1, or use MirroredStrategy")


def tpu_strategy(document: Document, context: Context) -> Iterator[Problem]:
    cluster = _subject(document, context)
    if cluster is None:
        return
    if cluster.tpu and tf.TPU not in cluster.strategies:
        message = f"the job has a TPU, and the trainer has {cluster.shown}: the TPU would be idle"
        fix = 'use tf.distribute.TPUStrategy with TPUClusterResolver(tpu="local")'
        yield Problem(f"{cluster.pools[0].path}.machineSpec", message, fix)
    elif not cluster.tpu and cluster.strategies == {tf.TPU}:
        message = "the trainer has only TPUStrategy, and the job has no TPU"
        yield Problem(f"{cluster.pools[0].path}.machineSpec", message, "choose a TPU machine, or another strategy")


def idle_gpus(document: Document, context: Context) -> Iterator[Problem]:
    cluster = _subject(document, context)
    if cluster is None or cluster.strategies & _SEVERAL_GPUS:
        return
    for pool in cluster.pools:
        if pool.accelerator_count > 1 and has_gpu(pool, context.catalog):
            idle = (pool.accelerator_count - 1) * max(pool.replica_count, 1)
            message = f"{pool.accelerator_count} GPUs, and the trainer has {cluster.shown}: {idle} would be idle"
            path = f"{pool.path}.machineSpec.acceleratorCount"
            yield Problem(path, message, "use tf.distribute.MirroredStrategy, or write acceleratorCount: 1")


def strategy_argument(document: Document, context: Context) -> Iterator[Problem]:
    # Without the trainer's source the flag may mean something else.
    severity = Severity.WARNING if context.trainer is None else None
    for problem in _strategy_argument(document, context):
        yield replace(problem, severity=problem.severity or severity)


def _strategy_argument(document: Document, context: Context) -> Iterator[Problem]:
    trainer = context.trainer
    known = trainer if trainer is not None and not trainer.problems else None
    source = known or TrainerSource("")
    cluster = _cluster(document, context, source)
    pool = next((pool for pool in cluster.pools if pool.index == 0), None)
    chosen = _chosen(pool, known) if pool is not None else None
    if pool is None or chosen is None:
        return
    path, shown, strategy = chosen
    # JAX, Horovod and the like join the replicas by themselves
    if strategy == tf.ONE and trainer is not None and _subject(document, context) is None:
        return
    if strategy == tf.SERVER:
        yield from _server_pools(document, cluster, f"{shown} needs workers and parameter servers", path)
    elif strategy == tf.MULTI and not cluster.workers:
        yield Problem(path, f"{shown} needs pools 0 and 1, and there is no pool 1", "add workers as pool 1")
    elif strategy == tf.TPU and not cluster.tpu:
        yield Problem(path, f"{shown} needs a TPU, and the job has none", "choose a TPU machine, or another strategy")
    elif strategy != tf.TPU and cluster.tpu:
        yield Problem(path, f"{shown} leaves the job's TPU idle", "choose the TPU strategy")
    elif strategy not in _CLUSTER and cluster.replicas > 1:
        message = f"{shown} does not connect the replicas: each of {cluster.replicas} would train by itself"
        yield Problem(path, message, "choose the multi-worker strategy, or run one replica")
    # one device may be the one GPU of the machine, unless the value says "cpu"
    elif strategy == tf.ONE and cluster.gpus > (0 if "cpu" in shown.casefold() else 1):
        count = f"{cluster.gpus} GPU{'s' if cluster.gpus > 1 else ''} a machine"
        yield Problem(path, f"{shown} uses one device, and the job pays for {count}", "", Severity.WARNING)


def _chosen(pool: Pool, trainer: TrainerSource | None) -> tuple[str, str, str] | None:
    """Return the strategy that the chief's args or the trainer's default choose: path, words for a message, name."""
    for item in passed(pool, trainer):
        name = item.name.lstrip("-").replace("-", "_")
        if name in tf.STRATEGY_FLAGS and item.value:
            if item.flag is not None and item.flag.choices and item.value not in item.flag.choices:
                return None  # argument-parse finds it
            strategy = tf.strategy_named(item.value)
            return (item.path, f"{item.name}={item.value}", strategy) if strategy else None
    for name in tf.STRATEGY_FLAGS if trainer is not None else ():
        flag = trainer.flag(f"--{name}") if trainer is not None else None
        # `TrainerSource.flag` also finds abbreviations: --distribution may begin another flag
        if flag is not None and f"--{name}" in flag.names and isinstance(flag.default, str):
            strategy = tf.strategy_named(flag.default)
            path, shown = f"{pool.program_path}.args", f"--{name}={flag.default} ({flag.where}, the default)"
            return (path, shown, strategy) if strategy else None
    return None


def keras_3(document: Document, context: Context) -> Iterator[Problem]:
    cluster = clustered(document, context)
    if cluster is None:
        return
    for pool in cluster.pools:
        version = _tensorflow(pool, context)
        if (version is not None and version < _FIRST_KERAS_3) or _keras_2(cluster.trainer, pool):
            continue
        keras = cluster.trainer.keras
        location = keras.get("keras") or keras["tf.keras"]
        image = f"TensorFlow {'.'.join(map(str, version))}" if version else "an image with TensorFlow 2.16 or newer"
        message = f"{location.text} ({location.where}) is Keras 3 on {image}, which fails in fit() on several workers"
        fix = (
            "import tf_keras and add it to requirements.txt; if the code uses tf.keras, add tf_keras and set "
            "TF_USE_LEGACY_KERAS=1 before importing it"
        )
        yield Problem(pool.program_path, message, fix, None if version else Severity.WARNING)
        return


def _keras_2(trainer: TrainerSource, pool: Pool) -> bool:
    """Whether the trainer uses Keras 2, or no Keras."""
    if "tf_keras" in trainer.keras or not trainer.keras:
        return True
    if "keras" in trainer.keras:  # the variable changes tf.keras only
        return False
    written = [str(item.get("value", "")) for item in pool.env if item.get("name") == "TF_USE_LEGACY_KERAS"]
    return any(value in {"1", "true", "True", DYNAMIC} for value in [*written, trainer.legacy_keras])


def _tensorflow(pool: Pool, context: Context) -> tuple[int, ...] | None:
    """Return the TensorFlow version of a pool's image, or of its Dockerfile's base image; None if it is not known."""
    base = context.trainer.base_image if context.trainer is not None else ""
    for uri in (pool.image, base):
        own = context.built.get(uri)
        image = own.row if own is not None else context.catalog.image(uri) if uri else None
        if image is not None and image.framework == "tf":
            parts = image.version.split(".")
            return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else None
        named = re.search(_NAMED, uri)
        if named is not None:
            return tuple(int(part) for part in re.split(r"[.-]", named["version"]))
    return None


def keras_of(document: Document, context: Context) -> tuple[Pool, str, bool] | None:
    """Return the pool in which the trainer runs Keras 3, its image in words, and whether that is certain.

    None for Keras 2 or no Keras, for a trainer that cannot be read, and for a container whose TensorFlow is not known.
    """
    trainer = context.trainer
    if trainer is None or trainer.problems or not trainer.keras:
        return None
    for pool in trainer_pools(document, trainer):
        version = _tensorflow(pool, context)
        older = version is not None and version < _FIRST_KERAS_3
        if older or _keras_2(trainer, pool):
            return None
        if version is None and pool.container is not None:
            return None  # any image: nothing says which Keras it has
        image = f"TensorFlow {'.'.join(map(str, version))}" if version else "from TensorFlow 2.16 on"
        return pool, image, bool(version)
    return None


def names_there(document: Document, context: Context) -> Iterator[Problem]:
    trainer = context.trainer
    if trainer is None or not trainer.old_names:
        return
    for pool in trainer_pools(document, trainer):
        version = _tensorflow(pool, context)
        old = [name for name in trainer.old_names if version is not None and version[:2] >= name.ended]
        if not old or version is None:
            continue
        first = next((name for name in old if name.certain), old[0])
        others = list(dict.fromkeys(name.text for name in old if name.text != first.text))
        also = f". It also lacks {', '.join(others[:3])}{', …' if len(others) > 3 else ''}" if others else ""
        release, ended = (".".join(map(str, one)) for one in (version, first.ended))
        message = f"{first.where}: TensorFlow {release} has no {first.text}, which {ended} removed{also}"
        fix = (
            "use what replaced it, or tf.compat.v1"
            if first.ended == (2, 0)
            else "use Keras, or an image with TensorFlow 2.15"
        )
        yield Problem(pool.program_path, message, fix, None if first.certain else Severity.WARNING)
        return


def joined_workers(document: Document, context: Context) -> TrainingCluster | None:
    """Return the replicas that MultiWorkerMirroredStrategy joins; None if it joins none."""
    cluster = clustered(document, context)
    return cluster if cluster is not None and cluster.strategies & _CLUSTER == {tf.MULTI} else None


def clustered(document: Document, context: Context) -> TrainingCluster | None:
    """Return the replicas that train under a cluster strategy of TensorFlow; None if none do."""
    cluster = _subject(document, context)
    several = cluster is not None and cluster.replicas > 1 and cluster.strategies & _CLUSTER
    return cluster if several else None


_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO

RULES: tuple[Rule, ...] = (
    Rule("strategy-replicas", _E, "A trainer on several replicas has a strategy that joins them.",
         DISTRIBUTED, cluster_strategy),
    Rule("strategy-servers", _E, "Parameter servers are there for a trainer with ParameterServerStrategy.",
         DISTRIBUTED, server_strategy),
    Rule("strategy-server-pools", _E, "A trainer that has only ParameterServerStrategy runs on workers and parameter servers.",
         DISTRIBUTED, server_pools),
    Rule("strategy-worker-pools", _I, "A trainer that has only MultiWorkerMirroredStrategy runs on pools 0 and 1.",
         DISTRIBUTED, worker_pools),
    Rule("strategy-tpu", _E, "A trainer on a TPU uses TPUStrategy, and a trainer that has only TPUStrategy runs on a TPU.",
         TPU_DOC, tpu_strategy),
    Rule("idle-gpus", _W, "A trainer on a machine with several GPUs has a strategy that uses them.",
         join(DISTRIBUTED, WALKTHROUGH), idle_gpus),
    Rule("strategy-argument", _E, "The strategy that args name fits the cluster.",
         join(DISTRIBUTED, WALKTHROUGH), strategy_argument),
    Rule("tensorflow-names", _E, "Every name of TensorFlow that the trainer uses is in the image's release.",
         "TensorFlow 2.21, run 2026-11-30", names_there),
    Rule("keras-3-workers", _E, "A trainer with several workers uses Keras 2.", join(_KERAS, PRACTICE), keras_3),
)  # fmt: skip
