"""What each replica of a job finds in its environment, against the documented examples."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vertexrig.spec import cluster
from vertexrig.spec.document import Document, Pool


def pools(*counts: int) -> tuple[Pool, ...]:
    """Pools with so many replicas; 0 makes an empty one."""
    data = [{"replicaCount": n, "pythonPackageSpec": {"pythonModule": "trainer.task"}} if n else {} for n in counts]
    return Document("CustomJobSpec", {"workerPoolSpecs": data}).pools


def test_documented_tf_config_of_a_trial() -> None:
    """Worker 0 of a chief, two workers and a parameter server in trial 1 sees the example of the documentation."""
    address = lambda pool, index: f"training-workerpool{pool}-ab-{index}:2222"  # noqa: E731
    everyone = cluster.replicas(pools(1, 2, 1), address)
    config = cluster.tf_config(everyone, everyone[1], {}, trial="1", cloud="x")
    assert config is not None
    assert config["cluster"] == {
        "chief": ["training-workerpool0-ab-0:2222"],
        "ps": ["training-workerpool2-ab-0:2222"],
        "worker": ["training-workerpool1-ab-0:2222", "training-workerpool1-ab-1:2222"],
    }
    assert config["task"] == {"cloud": "x", "index": 0, "trial": "1", "type": "worker"}
    assert config["environment"] == "cloud"


def test_a_pool_without_machines_has_no_replicas() -> None:
    """A later pool with a program but no machine and no replica count makes no replica, as `Document.running` has it."""
    data = [
        {"replicaCount": 1, "machineSpec": {"machineType": "n1-standard-4"}, "containerSpec": {}},
        {"containerSpec": {"imageUri": "i"}},
    ]
    document = Document("CustomJobSpec", {"workerPoolSpecs": data})
    assert [one.name for one in cluster.replicas(document.pools)] == ["workerpool0-0"]
    assert [pool.index for pool in document.running] == [0]


def test_documented_cluster_spec() -> None:
    """CLUSTER_SPEC names pools, not roles, and holds the evaluator."""
    everyone = cluster.replicas(pools(1, 2, 2, 3))
    package = {"pythonModule": "trainer.task", "packageUris": ["gs://b/a=1.tar.gz"], "args": ["--é=1"]}
    job = {"workerPoolSpecs": [{"pythonPackageSpec": package}, {"containerSpec": {"args": ["--of-container"]}}]}
    seen = cluster.cluster_spec(everyone, everyone[0], job, "4")
    assert {name: len(hosts) for name, hosts in seen["cluster"].items()} == {
        f"workerpool{i}": n for i, n in enumerate((1, 2, 2, 3))
    }
    assert seen["cluster"]["workerpool1"][1] == "cmle-training-workerpool1-0123456789-1:2222"
    assert seen["task"] == {"type": "workerpool0", "index": 0, "trial": "4"}
    assert seen["open_ports"] == [3333] and list(seen) == ["cluster", "environment", "task", "job", "open_ports"]
    assert seen["job"] == '{"python_module":"trainer.task","package_uris":["gs://b/a=1.tar.gz"],"job_args":["--é=1"]}'
    container = '{"python_module":"","package_uris":[],"job_args":[]}'
    assert cluster.cluster_spec(everyone, everyone[1], job)["job"] == container
    variables = cluster.service_environment(everyone, everyone[1], job, cluster.Identity("5", "6", "r"))
    assert variables["CLOUD_ML_JOB"] == container and " " not in variables["CLUSTER_SPEC"]


def test_single_replica_has_no_tf_config() -> None:
    """A job of one replica has CLUSTER_SPEC and no TF_CONFIG."""
    everyone = cluster.replicas(pools(1))
    assert cluster.tf_config(everyone, everyone[0], {}) is None
    variables = cluster.service_environment(everyone, everyone[0], {}, cluster.Identity("5", "6", "r"))
    assert "TF_CONFIG" not in variables and json.loads(variables["CLUSTER_SPEC"])["task"]["index"] == 0
    assert (variables["CLOUD_ML_JOB_ID"], variables["CLOUD_ML_PROJECT_ID"]) == ("5", "6")


def test_an_empty_pool_keeps_its_place() -> None:
    """A skipped pool has no replicas, and the pool after it keeps its role."""
    everyone = cluster.replicas(pools(1, 0, 2))
    assert [(one.name, one.role) for one in everyone] == [
        ("workerpool0-0", "chief"),
        ("workerpool2-0", "ps"),
        ("workerpool2-1", "ps"),
    ]


def test_output_directories() -> None:
    """A trial writes below its own id; a missing slash is added; without a base there are no variables."""
    job = {"baseOutputDirectory": {"outputUriPrefix": "gs://b/p"}}
    assert cluster.output_directories(job)["AIP_MODEL_DIR"] == "gs://b/p/model/"
    assert cluster.output_directories(job, "3")["AIP_CHECKPOINT_DIR"] == "gs://b/p/3/checkpoints/"
    assert cluster.output_directories({}) == {}


def test_expansion_takes_earlier_and_service_variables() -> None:
    """`$(NAME)` takes service variables and entries before it; later and unknown names and escapes stay."""
    entries: list[dict[str, Any]] = [
        {"name": "A", "value": "$(JOB)/$(B)"},
        {"name": "B", "value": "$(A)!"},
        {"name": "C", "value": "$$(A) $5 $$"},
    ]
    assert cluster.own_environment(entries, {"JOB": "7"}) == {"A": "7/$(B)", "B": "7/$(B)!", "C": "$(A) $5 $$"}


@given(st.text())
def test_text_without_references_stays_as_it_is(text: str) -> None:
    """Expansion never changes text that holds no `$(`."""
    text = text.replace("$(", "")
    assert cluster.expand(text, {"A": "x"}) == text


@given(st.lists(st.integers(0, 3), min_size=4, max_size=4))
def test_every_replica_agrees_on_the_cluster(counts: list[int]) -> None:
    """All replicas of a job see one cluster, each address in it once, and no evaluator in TF_CONFIG."""
    everyone = cluster.replicas(pools(1, *counts[1:]))
    seen = [cluster.tf_config(everyone, one, {}) for one in everyone]
    clusters = [config["cluster"] for config in seen if config]
    assert all(one == clusters[0] for one in clusters) and all("evaluator" not in one for one in clusters)
    assert len(clusters) in (0, len(everyone))


def test_resources_that_replicas_know_by_name() -> None:
    """A job with a TensorBoard, an experiment and its run has their names in three variables; other jobs have none."""
    everyone, identity = cluster.replicas(pools(1)), cluster.Identity("5", "6", "r")
    job = {"tensorboard": "t", "experiment": "projects/p/e", "experimentRun": "projects/p/e-r"}
    seen = cluster.service_environment(everyone, everyone[0], job, identity)
    assert seen["AIP_TENSORBOARD_RESOURCE_NAME"] == "t"
    assert (seen["AIP_EXPERIMENT_NAME"], seen["AIP_EXPERIMENT_RUN_NAME"]) == ("projects/p/e", "projects/p/e-r")
    plain = cluster.service_environment(everyone, everyone[0], {}, identity)
    assert not [name for name in plain if name.startswith(("AIP_TENSORBOARD", "AIP_EXPERIMENT"))]
