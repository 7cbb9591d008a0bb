"""Clusters of real processes on loopback: collectives, parameter servers, evaluator."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.trainer.conftest import QUICK, Launched, metrics, summary

Cluster = Callable[..., dict[str, Launched]]


def digests(processes: Mapping[str, Launched]) -> set[str]:
    """The hashes of the weights that the processes told."""
    return {found for process in processes.values() for found in re.findall(r"best weights: sha256 (\w+)", process.err)}


def finish(processes: Mapping[str, Launched]) -> None:
    """All processes end with 0."""
    for name, process in processes.items():
        ended = process.wait()
        assert ended.code == 0, f"{name}: {ended.text[-4000:]}"


def test_chief_and_worker_train_agree_and_only_the_chief_writes(launch_cluster: Cluster, tmp_path: Path) -> None:
    """Two processes end with 0 and equal weights; the outputs are the chief's; no temporary folder stays. An evaluator
    beside them scores the last save.
    """
    processes = launch_cluster(
        {"chief": 1, "worker": 1, "evaluator": 1}, *QUICK, "--tensorboard=true", "--collective=ring"
    )
    finish(processes)
    assert len(digests(processes)) == 1
    told = summary(tmp_path)
    assert (told["strategy"], told["replicas"], told["processes"], told["global_batch_size"]) == (
        "multi-worker",
        2,
        2,
        64,
    )
    assert processes["worker-0"].out == "" and "accuracy" in processes["chief-0"].out
    assert len(metrics(tmp_path)) == told["epochs"] + 1
    assert float(metrics(tmp_path)[-1]["accuracy"]) == told["accuracy"]
    assert "evaluator: step 44, " in processes["evaluator-0"].out
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["evaluator", "train", "validation"]
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.whole
def test_two_workers_without_a_chief_save_twenty_times(launch_cluster: Cluster, tmp_path: Path) -> None:
    """Worker 0 is the chief where there is none. Of more than twenty saves none fails, and what is left is whole."""
    processes = launch_cluster({"worker": 2}, *QUICK, "--save_every=1", "--batch_size=64")
    finish(processes)
    assert len(digests(processes)) == 1
    told = summary(tmp_path)
    assert told["steps"] == 22 and told["processes"] == 2
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("*.index")) == [
        "ckpt-21.index",
        "ckpt-22.index",
    ]
    assert not list((tmp_path / "checkpoints").glob("*temp*")) and not list(tmp_path.rglob("workertemp*"))
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.whole
def test_parameter_servers_and_evaluator(launch_cluster: Cluster, tmp_path: Path) -> None:
    """Chief, two workers, a server and an evaluator, and kill -9 of a worker in mid-training: the other worker takes over its
    steps, the chief ends with all of them, and the evaluator has scored the last save alike.
    """
    roles = {"master": 1, "worker": 2, "ps": 1, "evaluator": 1}
    processes = launch_cluster(roles, *QUICK, "--epochs=4", "--tensorboard=true", "--save_every=44")
    processes["master-0"].wait_for("epoch 1/")
    processes["worker-1"].kill()
    finish({name: processes[name] for name in ("master-0", "evaluator-0")})
    told = summary(tmp_path)
    assert told["strategy"] == "parameter-server" and told["steps"] == 4 * 44 and told["epochs"] == 4
    assert told["accuracy"] > 0.8
    rows = json.loads((tmp_path / "checkpoints" / "evaluation.json").read_text())["evaluations"]
    assert rows[-1]["step"] == 4 * 44
    assert abs(rows[-1]["accuracy"] - told["history"][-1]["val_accuracy"]) < 1e-6
    assert list((tmp_path / "logs" / "evaluator").iterdir())
    for name in ("worker-0", "ps-0"):  # they serve until the service ends them
        assert processes[name].process.poll() is None
        processes[name].process.terminate()
        assert processes[name].process.wait(20) == 143
        assert "Traceback" not in processes[name].err


@pytest.mark.whole
def test_parameter_servers_end_without_a_server(launch_cluster: Cluster, tmp_path: Path) -> None:
    """Kill -9 of the parameter server, and with it of the variables: the chief ends with a clear error and leaves no model;
    restarted, the cluster goes on from its last save.
    """
    roles, flags = {"chief": 1, "worker": 1, "ps": 1}, (*QUICK, "--epochs=3", "--save_every=11")
    processes = launch_cluster(roles, *flags)
    processes["chief-0"].wait_for("epoch 1/")
    processes["ps-0"].kill()
    ended = processes["chief-0"].wait()
    assert ended.code == 1 and "another process of the cluster went away" in ended.err, ended.text[-3000:]
    assert "Traceback" not in ended.err and not (tmp_path / "model").exists()
    processes["worker-0"].kill()
    again = launch_cluster(roles, *flags, attempt=1)
    finish({"chief-0": again["chief-0"]})
    assert re.search(r"going on after epoch \d+, step \d+", again["chief-0"].err)
    assert summary(tmp_path)["steps"] == 3 * 44


@pytest.mark.whole
def test_sigterm_ends_a_worker_that_waits_for_another(launch_cluster: Cluster, tmp_path: Path) -> None:
    """The chief is frozen, so that the worker waits for it inside TensorFlow: SIGTERM ends the worker all the same, with 143,
    without a traceback, and with its temporary directory gone.
    """
    processes = launch_cluster({"chief": 1, "worker": 1}, *QUICK, "--epochs=50")
    processes["chief-0"].wait_for("epoch 2/")
    chief, worker = processes["chief-0"].process, processes["worker-0"]
    os.kill(chief.pid, signal.SIGSTOP)
    worker.process.terminate()
    ended = worker.wait(60)
    assert ended.code == 143 and "Traceback" not in ended.err, ended.err[-2000:]
    assert list((tmp_path / "tmp").glob("trainer-*")) == []
