"""Which tf.distribute strategy a run uses: found from the environment, or forced and checked against it."""

from __future__ import annotations

import glob
import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer.cluster import Cluster
from trainer.config import Config
from trainer.errors import ClusterError, ConfigError
from trainer.framework import tf

LOG = logging.getLogger("trainer")
VIRTUAL = "TRAINER_VIRTUAL_DEVICES"
TPU_VARIABLES = ("TPU_CONFIG", "TPU_NODE_NAME")  # set by Vertex AI on TPU VMs
# Gradients are reduced in packs of about this size, the last layers first, while the backward pass still runs.
PACK_BYTES = 4 << 20
ALONE = ("one-device", "mirrored", "central-storage")


@dataclass(frozen=True)
class Devices:
    """What this machine has.

    Args:
        gpus: GPUs TensorFlow sees.
        virtual: Logical CPU devices used in place of accelerators; 0 without them.
        tpu: Whether this is a TPU VM.
    """

    gpus: int = 0
    virtual: int = 0
    tpu: bool = False

    def describe(self) -> str:
        """Return one line for the log."""
        if self.tpu:
            return "a TPU"
        if self.gpus:
            return f"{self.gpus} GPU{'s' * (self.gpus > 1)}"
        if self.virtual:
            return f"no accelerator; {self.virtual} logical CPU devices as a stand-in ({VIRTUAL})"
        return "no accelerator"


@dataclass(frozen=True)
class Setup:
    """A strategy that is ready.

    Args:
        name: One of `config.STRATEGIES` but "auto".
        strategy: The tf.distribute.Strategy.
        replicas: Copies of the model that train on a batch together.
        devices: What it was chosen for.
    """

    name: str
    strategy: Any
    replicas: int
    devices: Devices


def virtual_devices(environ: Mapping[str, str] = os.environ) -> int:
    """Return the number in TRAINER_VIRTUAL_DEVICES, 0 when unset.

    Raises:
        ConfigError: it is not a whole number of at least 1.
    """
    text = environ.get(VIRTUAL, "").strip()
    if not text:
        return 0
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{VIRTUAL}={text}: it must be a whole number of at least 1")
    return int(text)


def has_tpu(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether this is a TPU VM: the service's variables, or the driver's devices."""
    return any(environ.get(name) for name in TPU_VARIABLES) or bool(glob.glob("/dev/accel[0-9]*"))


def find_devices(cluster: Cluster) -> Devices:
    """Look at the machine; splits the CPU as TRAINER_VIRTUAL_DEVICES says. Call it before TensorFlow is used."""
    gpus = tf.config.list_physical_devices("GPU")
    virtual = virtual_devices()
    if virtual and (gpus or cluster.training_processes > 1):
        LOG.warning("%s is ignored: %s", VIRTUAL, "there are GPUs" if gpus else "each process of a cluster has one CPU")
        virtual = 0
    if virtual:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * virtual)
    for gpu in gpus:
        # else TensorFlow takes all of a GPU's memory at once, and a second process on the machine finds none
        tf.config.experimental.set_memory_growth(gpu, True)
    return Devices(len(gpus), virtual, has_tpu())


def choose(config: Config, cluster: Cluster, devices: Devices) -> str:
    """Return the name of the strategy for this cluster and machine.

    Raises:
        ClusterError: `--strategy` names one that does not fit; says why and what would.
    """
    if config.strategy == "auto":
        return _found(cluster, devices)
    problem = _misfit(config, cluster, devices)
    if problem:
        raise ClusterError(f"--strategy={config.strategy}: {problem}; auto would choose {_found(cluster, devices)}")
    return config.strategy


def _found(cluster: Cluster, devices: Devices) -> str:
    if cluster.has_servers:
        return "parameter-server"
    if cluster.training_processes > 1:
        return "multi-worker"
    if devices.tpu:
        return "tpu"
    return "mirrored" if max(devices.gpus, devices.virtual) > 1 else "one-device"


def _misfit(config: Config, cluster: Cluster, devices: Devices) -> str:
    """Tell why the forced strategy does not fit; empty when it does."""
    processes = cluster.training_processes
    if config.strategy in (*ALONE, "tpu") and (processes > 1 or cluster.has_servers):
        return f"the cluster has {processes} training processes, and each would train its own model"
    if config.strategy == "multi-worker" and processes < 2:
        return "there is one training process; it needs a chief and at least one worker in TF_CONFIG"
    if config.strategy == "parameter-server":
        missing = [role for role in ("chief", "worker", "ps") if not cluster.addresses.get(role)]
        if missing:
            return (
                f"it needs a chief, workers and parameter servers in TF_CONFIG; there is no {' and no '.join(missing)}"
            )
    if config.strategy == "tpu" and not devices.tpu and config.tpu == "local":
        return f"this is no TPU VM (none of {', '.join(TPU_VARIABLES)} is set); give --tpu=NAME for a remote one"
    return ""


def create(config: Config, cluster: Cluster) -> Setup:
    """Look, choose, log both, and start the strategy. Call it before any other use of TensorFlow.

    Raises:
        ClusterError: see `choose`.
    """
    devices = find_devices(cluster)
    if config.intra_op_threads:
        tf.config.threading.set_intra_op_parallelism_threads(config.intra_op_threads)
        tf.config.threading.set_inter_op_parallelism_threads(max(2, config.intra_op_threads))
    name = choose(config, cluster, devices)
    LOG.info("%s; %s; strategy %s%s", cluster.describe(), devices.describe(), name,
             "" if config.strategy == "auto" else " (forced)")  # fmt: skip
    if config.collective == "nccl" and not devices.gpus:
        raise ClusterError("--collective=nccl: NCCL connects GPUs and this machine has none; use auto or ring")
    strategy = MAKERS[name](config, cluster, devices)
    return Setup(name, strategy, strategy.num_replicas_in_sync, devices)


def _accelerators(devices: Devices) -> list[str]:
    """Device names of the accelerators, or of what is used in their place."""
    if devices.gpus:
        return [f"/gpu:{number}" for number in range(devices.gpus)]
    return [f"/cpu:{number}" for number in range(max(1, devices.virtual))]


def _one_device(config: Config, cluster: Cluster, devices: Devices) -> Any:
    return tf.distribute.OneDeviceStrategy(_accelerators(devices)[0])


def _mirrored(config: Config, cluster: Cluster, devices: Devices) -> Any:
    return tf.distribute.MirroredStrategy(_accelerators(devices))


def _central_storage(config: Config, cluster: Cluster, devices: Devices) -> Any:
    return tf.distribute.experimental.CentralStorageStrategy(_accelerators(devices), "/cpu:0")


def _multi_worker(config: Config, cluster: Cluster, devices: Devices) -> Any:
    if cluster.has_servers:
        LOG.info("the ps processes are treated as reduction servers: they are not part of the collective")
        addresses = {role: list(hosts) for role, hosts in cluster.addresses.items() if role != "ps"}
        task = {"type": cluster.role, "index": cluster.index}
        # the collective takes every process that TF_CONFIG names for a member, and would wait for the ps ones
        os.environ["TF_CONFIG"] = json.dumps({"cluster": addresses, "task": task})
    kind = getattr(tf.distribute.experimental.CommunicationImplementation, config.collective.upper())
    options = tf.distribute.experimental.CommunicationOptions(implementation=kind, bytes_per_pack=PACK_BYTES)
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)


def _parameter_server(config: Config, cluster: Cluster, devices: Devices) -> Any:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    return tf.distribute.ParameterServerStrategy(resolver)


def _tpu(config: Config, cluster: Cluster, devices: Devices) -> Any:
    """`local` is the TPU of this TPU VM (what Vertex AI gives); any other name is looked up and connected to."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=config.tpu)
    if config.tpu != "local":
        tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)


MAKERS = {
    "one-device": _one_device,
    "mirrored": _mirrored,
    "central-storage": _central_storage,
    "multi-worker": _multi_worker,
    "parameter-server": _parameter_server,
    "tpu": _tpu,
}
