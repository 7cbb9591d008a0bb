"""Clusters of real processes on loopback: collectives, parameter servers, evaluator."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.conftest import QUICK, Launched, digests, finish, metrics, summary

Cluster = Callable[..., dict[str, Launched]]


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
def test_parameter_servers_and_evaluator(launch_cluster: Cluster, tmp_path: Path) -> None:
    """Kill -9 of the parameter server, and with it of the variables: the chief ends with a clear error and leaves no model.
    Restarted, with an evaluator, the cluster goes on from its last save. Kill -9 of a worker in mid-training: the other worker
    takes over its steps, the chief ends with all of them, and the evaluator has scored the last save alike.
    """
    roles, flags = {"master": 1, "worker": 2, "ps": 1}, (*QUICK, "--epochs=4", "--tensorboard=true", "--save_every=11")
    first = launch_cluster(roles, *flags)
    first["master-0"].wait_for("epoch 1/")
    first["ps-0"].kill()
    ended = first["master-0"].wait()
    assert ended.code == 1 and "another process of the cluster went away" in ended.err, ended.text[-3000:]
    assert "Traceback" not in ended.err and not (tmp_path / "model").exists()
    for name in ("worker-0", "worker-1"):
        first[name].kill()

    processes = launch_cluster({**roles, "evaluator": 1}, *flags, attempt=1)
    processes["master-0"].wait_for("epoch 3/")
    processes["worker-1"].kill()
    finish({name: processes[name] for name in ("master-0", "evaluator-0")})
    assert re.search(r"going on after epoch \d+, step \d+", processes["master-0"].err)
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
