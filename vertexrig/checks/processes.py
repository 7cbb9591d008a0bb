"""What the processes of a replica share: its ports and its shared memory."""

from __future__ import annotations

from collections.abc import Iterator

from vertexrig.checks import strategy
from vertexrig.checks._arguments import passed
from vertexrig.checks.model import DISTRIBUTED, REST, Context, Problem, Rule, join
from vertexrig.checks.trainer import of_trainer
from vertexrig.finding import Severity
from vertexrig.spec.document import Document, Pool
from vertexrig.trainer_source.trainer_model import TrainerSource

CLUSTER_PORT = 2222
"""The port in each address of CLUSTER_SPEC and TF_CONFIG."""
_TENSORFLOW = "TensorFlow 2.21 with another program on the port of TF_CONFIG, run 2026-11-22"
_WORKERS = (
    "PyTorch 2.13.0 with 8 MiB of /dev/shm, run 2026-11-22; reports from GPU jobs: python-aiplatform issue 3434, "
    "kubeflow/pipelines issue 9147, cloudml-samples issue 451 (read 2026-11-22)"
)


def cluster_port(document: Document, context: Context) -> Iterator[Problem]:
    cluster = strategy.clustered(document, context)
    if cluster is None:
        return
    for one in cluster.trainer.listens:
        if one.port == CLUSTER_PORT:
            message = (
                f"{one.file}:{one.line}: {one.function} listens on port {CLUSTER_PORT}, at which each of "
                f"{cluster.replicas} replicas is reached by TensorFlow's server: one of the two does not start"
            )
            yield Problem(cluster.pools[0].program_path, message, "choose another port, or 0 for a free one")


@of_trainer
def loader_memory(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    if trainer.problems or trainer.watches_memory:
        return
    for place in trainer.torch.workers:
        number = _number(place.text, pools[0], trainer)
        if number:
            message = (
                f"{place.file}:{place.line}: {number} worker processes hand their batches over in /dev/shm; its size in a "
                "training container is documented nowhere, no field of the job sets it, and a worker that finds it full dies"
            )
            fix = "print shutil.disk_usage('/dev/shm') at the start; with little, use fewer workers or num_workers=0"
            yield Problem(pools[0].program_path, message, fix)
            return


def _number(text: str, pool: Pool, trainer: TrainerSource) -> str:
    """Return the number of workers for a message, "" for none or one that is not known."""
    if not text.startswith("-"):
        return text
    flag = trainer.flag(text)
    given = next((item.value for item in passed(pool, trainer) if item.flag is not None and item.flag == flag), None)
    value = given if given is not None else str(flag.default if flag is not None else "")
    return value if value.isdecimal() and int(value) > 0 else ""


RULES: tuple[Rule, ...] = (
    Rule(
        "cluster-port",
        Severity.WARNING,
        "Port 2222 of a replica is left to the cluster.",
        join(DISTRIBUTED, _TENSORFLOW),
        cluster_port,
    ),
    Rule(
        "loader-shared-memory",
        Severity.INFO,
        "Worker processes of a DataLoader fit into the container's shared memory.",
        join(_WORKERS, REST),
        loader_memory,
    ),
)
