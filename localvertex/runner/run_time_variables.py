"""Variables of a replica that a program reads while it runs, and never while it imports its libraries."""

from __future__ import annotations

from collections.abc import Mapping

# Two replicas that differ in these alone can start from one process that has made their imports. Every other variable is
# believed to be read by some import: TF_CPP_MIN_LOG_LEVEL, CUDA_VISIBLE_DEVICES, PYTHONPATH, KERAS_BACKEND, OMP_NUM_THREADS,
# LD_LIBRARY_PATH, XLA_FLAGS, GRPC_VERBOSITY. A forker notes which variables its imports read, and forks nothing after one of these.
RUN_TIME: Mapping[str, str] = {
    "CLOUD_ML_": "ids of the job and the trial, and the metric file, which cloudml-hypertune opens when it reports",
    "CMLE_TRAINING_": "addresses of the replicas, as CLUSTER_SPEC",
    "AIP_": "folders of the output, read when something is saved",
    "HOSTNAME": "the machine's name, read when a program makes a name of it",
    "NO_PROXY": "the names of the replicas, read when a request is sent",
    "no_proxy": "as NO_PROXY",
    "TF_CONFIG": "the cluster, read when a strategy or a resolver is made",
    "CLUSTER_SPEC": "the cluster, as TF_CONFIG",
    "MASTER_ADDR": "read by torch.distributed.init_process_group",
    "MASTER_PORT": "as MASTER_ADDR",
    "RANK": "as MASTER_ADDR",
    "WORLD_SIZE": "as MASTER_ADDR",
    "CLOUDSDK_CONFIG": "each replica's own empty folder, where google-auth looks for a login when a client is made",
    "GRPC_FAIL_FAST": "read by TensorFlow when it calls another process",
    "TRAINER_VIRTUAL_DEVICES": "read by the trainer when it looks for devices, and by the runner's own hook after a fork",
    "VERTEXRIG_": "the runner's own",
}
"""Name, or beginning of the names where it ends with `_`, and who reads it when."""
_PREFIXES = tuple(name for name in RUN_TIME if name.endswith("_"))


def read_at_run_time(name: str) -> bool:
    """Whether a variable is in the table."""
    return name in RUN_TIME or name.startswith(_PREFIXES)


def read_at_import(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that two replicas have to share."""
    return {name: value for name, value in variables.items() if not read_at_run_time(name)}
