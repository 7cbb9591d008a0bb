"""TF_CONFIG, roles, and the strategy that follows from them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from trainer import cluster
from trainer.cluster import Cluster
from trainer.config import Config
from trainer.errors import ClusterError, ConfigError

from tests.trainer.lazily import strategy


def tf_config(task: str, index: int, **roles: int) -> dict[str, str]:
    """An environment with a TF_CONFIG of so many processes per role."""
    hosts = {role: [f"{role}-{place}:2222" for place in range(number)] for role, number in roles.items()}
    value = {"cluster": hosts, "task": {"type": task, "index": index, "cloud": "x"}, "environment": "cloud", "job": {}}
    return {"TF_CONFIG": json.dumps(value)}


@pytest.mark.parametrize(
    ("environ", "chief"),
    [
        ({}, True),
        ({"TF_CONFIG": ""}, True),
        (tf_config("chief", 0, chief=1, worker=2), True),
        (tf_config("worker", 0, chief=1, worker=2), False),
        (tf_config("worker", 1, chief=1, worker=2), False),
        (tf_config("master", 0, master=1, worker=2), True),
        (tf_config("worker", 0, master=1, worker=2), False),
        (tf_config("worker", 0, worker=2), True),
        (tf_config("worker", 1, worker=2), False),
        (tf_config("chief", 0, chief=1), True),
        (tf_config("ps", 0, chief=1, worker=1, ps=1), False),
        (tf_config("evaluator", 0, chief=1, worker=1), False),
    ],
)
def test_exactly_one_process_is_the_chief(environ: dict[str, str], chief: bool) -> None:
    """The chief where there is one; worker 0 where there is none; alone, oneself."""
    assert cluster.from_environment(dict(environ)).is_chief is chief


def test_evaluators_are_no_part_of_the_cluster() -> None:
    """The evaluator knows its role, with or without its own key in the cluster."""
    for roles in ({"chief": 1, "worker": 1}, {"chief": 1, "worker": 1, "evaluator": 1}):
        found = cluster.from_environment(tf_config("evaluator", 0, **roles))
        assert found.role == "evaluator" and found.training_processes == 2 and "evaluator" not in found.addresses


def test_tensorflow_gets_a_tf_config_it_takes() -> None:
    """`master` is written back as chief; a cluster of one is taken out."""
    environ = tf_config("master", 0, master=1, worker=1)
    cluster.from_environment(environ)
    assert json.loads(environ["TF_CONFIG"])["task"] == {"type": "chief", "index": 0}
    assert set(json.loads(environ["TF_CONFIG"])["cluster"]) == {"chief", "worker"}
    alone = tf_config("chief", 0, chief=1)
    assert cluster.from_environment(alone) == Cluster() and "TF_CONFIG" not in alone


def test_peers_are_the_other_training_processes() -> None:
    """Each process's peers are all addresses but its own."""
    found = cluster.from_environment(tf_config("worker", 1, chief=1, worker=2, ps=1))
    assert found.peers() == ("chief-0:2222", "worker-0:2222")
    assert found.training_index == 2


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "must look like"),
        ('{"cluster": {"chief": "h:1"}, "task": {"type": "chief"}}', "must be a list"),
        ('{"cluster": {"boss": ["h:1"]}, "task": {"type": "boss"}}', "unknown task type 'boss'"),
        ('{"cluster": {"chief": ["h:1"]}, "task": {"type": "worker", "index": 0}}', "the cluster has 0 of worker"),
        ('{"cluster": {"worker": ["h:1"]}, "task": {"type": "worker", "index": 1}}', "this task is worker 1"),
        ('{"cluster": {"worker": ["h:1"]}, "task": {"type": "worker", "index": "x"}}', "must be a whole number"),
    ],
)
def test_a_broken_tf_config_is_an_error(value: str, message: str) -> None:
    """Each way to break it is named."""
    with pytest.raises(ClusterError, match=message):
        cluster.from_environment({"TF_CONFIG": value})


ALONE, MANY = Cluster(), cluster.from_environment(tf_config("worker", 0, chief=1, worker=2))
SERVED = cluster.from_environment(tf_config("chief", 0, chief=1, worker=2, ps=1))


@pytest.mark.parametrize(
    ("where", "devices", "name"),
    [
        (ALONE, {}, "one-device"),
        (ALONE, {"gpus": 1}, "one-device"),
        (ALONE, {"gpus": 4}, "mirrored"),
        (ALONE, {"virtual": 2}, "mirrored"),
        (ALONE, {"tpu": True}, "tpu"),
        (MANY, {"gpus": 2}, "multi-worker"),
        (SERVED, {}, "parameter-server"),
    ],
)
def test_auto_follows_the_cluster_and_then_the_machine(where: Cluster, devices: dict[str, Any], name: str) -> None:
    """The strategy of each cluster and machine."""
    assert strategy.choose(Config(), where, strategy.Devices(**devices)) == name


@pytest.mark.parametrize(
    ("forced", "where", "message"),
    [
        (
            "one-device",
            MANY,
            "3 training processes, and each would train its own model; auto would choose multi-worker",
        ),
        ("mirrored", SERVED, "auto would choose parameter-server"),
        ("tpu", MANY, "each would train"),
        ("multi-worker", ALONE, "at least one worker in TF_CONFIG"),
        ("parameter-server", MANY, "there is no ps"),
        ("parameter-server", ALONE, "no chief and no worker and no ps"),
        ("tpu", ALONE, "no TPU VM"),
    ],
)
def test_a_forced_strategy_that_does_not_fit_says_why(forced: str, where: Cluster, message: str) -> None:
    """A misfit is an error with the reason and what auto would do."""
    with pytest.raises(ClusterError, match=message):
        strategy.choose(Config(strategy=forced), where, strategy.Devices())


def test_forced_strategies_that_fit() -> None:
    """Forcing what works is allowed, and so is multi-worker beside reduction servers."""
    for name in ("one-device", "mirrored", "central-storage"):
        assert strategy.choose(Config(strategy=name), ALONE, strategy.Devices()) == name
    assert strategy.choose(Config(strategy="multi-worker"), SERVED, strategy.Devices()) == "multi-worker"
    assert strategy.choose(Config(strategy="tpu", tpu="my-tpu"), ALONE, strategy.Devices()) == "tpu"


def test_virtual_devices_must_be_a_number() -> None:
    """TRAINER_VIRTUAL_DEVICES is a whole number of at least 1, or unset."""
    assert strategy.virtual_devices({}) == 0
    assert strategy.virtual_devices({"TRAINER_VIRTUAL_DEVICES": "4"}) == 4
    for text in ("0", "-1", "two", "1.5", "²"):
        with pytest.raises(ConfigError, match="TRAINER_VIRTUAL_DEVICES"):
            strategy.virtual_devices({"TRAINER_VIRTUAL_DEVICES": text})


@pytest.mark.parametrize(("name", "connects"), [("local", False), ("my-tpu", True)])
def test_tpu_up_to_where_hardware_starts(name: str, connects: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver gets the TPU's name, a remote TPU is connected to, then initialised. No TPU is part of this test:
    resolver and strategy are replaced.
    """
    calls: list[Any] = []
    tf = strategy.tf
    monkeypatch.setattr(
        tf.distribute.cluster_resolver, "TPUClusterResolver", lambda tpu: calls.append(("resolve", tpu)) or "R"
    )
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", lambda r: calls.append(("connect", r)))
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", lambda r: calls.append(("initialize", r)))
    monkeypatch.setattr(tf.distribute, "TPUStrategy", lambda r: SimpleNamespace(num_replicas_in_sync=8, made_of=r))
    monkeypatch.setattr("trainer.strategy.find_devices", lambda cluster: strategy.Devices(tpu=True))
    setup = strategy.create(Config(tpu=name), Cluster())
    assert (setup.name, setup.replicas, setup.strategy.made_of) == ("tpu", 8, "R")
    assert calls == [("resolve", name), *([("connect", "R")] if connects else []), ("initialize", "R")]


def test_a_tpu_vm_is_known_by_the_services_variables() -> None:
    """Vertex AI sets TPU_NODE_NAME and TPU_CONFIG on TPU VMs."""
    assert strategy.has_tpu({"TPU_NODE_NAME": "n"}) and strategy.has_tpu({"TPU_CONFIG": "{}"})


def test_nccl_without_gpus_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL connects GPUs only."""
    monkeypatch.setattr("trainer.strategy.find_devices", lambda cluster: strategy.Devices())
    with pytest.raises(ClusterError, match="--collective=nccl"):
        strategy.create(Config(collective="nccl"), Cluster())
