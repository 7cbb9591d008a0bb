"""examples/pytorch-ddp: processes that find each other, share the work, and lose nothing when one is killed."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.forks import Forked, Forks
from tests.support.functions import free_port
from tests.support.tools import REPOSITORY, module

EXAMPLE = REPOSITORY / "examples/pytorch-ddp"
TRAINER = EXAMPLE / "trainer_pkg"
torch = module("torch")
sys.path.insert(0, str(TRAINER))
from digits import data  # noqa: E402
from digits.cluster import Cluster, ClusterError, from_environment  # noqa: E402

# Three processes compute the gradients of one step with the example's own code; the chief writes them.
FIRST_STEP = """
import sys, torch
from digits import cluster, data, task
from digits.training import Run
options = task.parser().parse_args(["--dropout=0", "--output", sys.argv[1]])
place = cluster.from_environment()
cluster.join(place, torch.device("cpu"))
run = Run(options, place, torch.device("cpu"))
for number, size in enumerate((60, 50, 2)):
    run.step(torch.arange(size) + 100 * number)
    if place.is_chief:
        torch.save([p.grad.clone() for p in run.model.parameters()], f"{sys.argv[1]}/{place.size}-{size}.pt")
cluster.leave()
"""

# The whole program, and then whether anything is left that holds the process group.
WHOLE = """
import gc, sys
from digits import task
from torch.nn.parallel import DistributedDataParallel
code = task.main(sys.argv[1:])
left = [one for one in gc.get_objects() if type(one) is DistributedDataParallel]
sys.exit(code or 10 * len(left))
"""

LOADED_ELSEWHERE = """
import sys, torch
sys.path = [place for place in sys.path if not place.endswith("trainer_pkg")]
assert "digits" not in sys.modules
from sklearn.datasets import load_digits
model = torch.export.load(sys.argv[1]).module()
digits = load_digits()
rows = torch.arange(len(digits.target)) % 5 == 0
guessed = model(torch.tensor(digits.data, dtype=torch.float32)[rows] / 16).argmax(1)
print(float((guessed == torch.tensor(digits.target)[rows]).float().mean()))
"""


def environment(**more: str) -> dict[str, str]:
    own = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "CLUSTER_SPEC", "AIP_MODEL_DIR")
    env = {name: value for name, value in os.environ.items() if name not in own}
    return {**env, "PYTHONPATH": str(TRAINER), "OMP_NUM_THREADS": "1", "CLOUD_ML_HP_METRIC_FILE": os.devnull, **more}


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """What has imported torch already, and what an export of a model imports: most of what these processes would take."""
    modules = (
        "torch",
        "torch.export.pt2_archive",
        "torch._dynamo",
        "torch._export.serde.serialize",
        "sklearn.datasets",
    )
    made = Forks(environment(), modules)
    yield made
    made.close()


def start(forks: Forks, folder: Path, module: str, args: Sequence[str], size: int) -> list[Forked]:
    """One process per rank, with the variables that the service sets; what they say is in the folder."""
    port = str(free_port())
    ranks: list[Mapping[str, str]] = [{}] if size == 1 else [
        {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        for rank in range(size)
    ]  # fmt: skip
    return [
        forks.start(
            args, environment(**rank), folder / f"{number}.out", folder / f"{number}.err", folder, module=module
        )
        for number, rank in enumerate(ranks)
    ]


def ended(processes: list[Forked], folder: Path) -> list[int]:
    """Their exit codes; what they said is shown when the test fails."""
    codes = [process.wait(300) for process in processes]
    for file in sorted((*folder.glob("*.out"), *folder.glob("*.err"))):
        print(file.read_text())
    return codes


@pytest.mark.whole
def test_three_processes_compute_the_gradients_of_one(forks: Forks, tmp_path: Path) -> None:
    """The gradients of a step are those of one process with the same batch, also where it cannot be divided evenly."""
    (tmp_path / "first_step.py").write_text(FIRST_STEP)
    for size in (1, 3):
        assert ended(start(forks, tmp_path, "first_step", [str(tmp_path)], size), tmp_path) == [0] * size
    for batch in (60, 50, 2):  # of the last, one process gets nothing
        one, three = (torch.load(tmp_path / f"{size}-{batch}.pt") for size in (1, 3))
        assert max(float((a - b).abs().max()) for a, b in zip(one, three, strict=True)) <= 1e-6
        assert max(float(a.abs().max()) for a in one) > 1e-3


@given(st.integers(1, 300), st.integers(1, 80), st.integers(1, 5), st.integers(0, 3))
def test_shares_partition_an_epoch(examples: int, batch: int, size: int, epoch: int) -> None:
    """Over all processes each example is trained on once in an epoch, and a run that goes on sees the rest."""
    every = list(data.batches(examples, batch, epoch=epoch, seed=1))
    shares = [data.share(rows, rank, size).tolist() for rows in every for rank in range(size)]
    assert sorted(itertools.chain(*shares)) == list(range(examples))
    begin = len(every) // 2
    rest = data.batches(examples, batch, epoch=epoch, seed=1, begin=begin)
    assert [rows.tolist() for rows in rest] == [rows.tolist() for rows in every[begin:]]


SPEC = {"cluster": {"workerpool0": ["a:1"], "workerpool1": ["b:2", "c:3"]}, "task": {"type": "workerpool1", "index": 1}}
RANKS = {"RANK": "2", "WORLD_SIZE": "3", "MASTER_ADDR": "a", "MASTER_PORT": "1"}


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({}, Cluster()),
        (RANKS, Cluster(2, 3, 0, "a:1")),
        ({**RANKS, "LOCAL_RANK": "1"}, Cluster(2, 3, 1, "a:1")),
        ({"CLUSTER_SPEC": json.dumps(SPEC)}, Cluster(2, 3, 0, "a:1")),
        ({**RANKS, "CLUSTER_SPEC": json.dumps({**SPEC, "cluster": {}})}, Cluster(2, 3, 0, "a:1")),
        ({"CLUSTER_SPEC": json.dumps({**SPEC, "cluster": {"workerpool0": ["a:1"]}})}, Cluster()),
    ],
)
def test_the_environment_says_where_a_process_is(environ: Mapping[str, str], place: Cluster) -> None:
    """The rank variables come first, then CLUSTER_SPEC; without either a process is alone."""
    assert from_environment(environ) == place


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"RANK": "1", "WORLD_SIZE": "2"}, "MASTER_ADDR, MASTER_PORT are not"),
        ({**RANKS, "RANK": "3"}, "RANK=3 must be at least 0 and below WORLD_SIZE=3"),
        ({**RANKS, "WORLD_SIZE": "three"}, "whole numbers"),
        ({"CLUSTER_SPEC": "{"}, "CLUSTER_SPEC cannot be read"),
        ({"CLUSTER_SPEC": json.dumps({**SPEC, "task": {"type": "workerpool9", "index": 0}})}, "CLUSTER_SPEC"),
    ],
)
def test_a_contradiction_ends_the_process(environ: Mapping[str, str], says: str) -> None:
    """Half a set of variables is an error: a replica that goes on alone would train a model of its own."""
    with pytest.raises(ClusterError, match=says):
        from_environment(environ)


@pytest.mark.whole
def test_a_cluster_that_loses_a_process_goes_on(forks: Forks, tmp_path: Path) -> None:
    """After kill -9 of the worker the chief saves and ends; started again, both end as if nothing had been, and the model loads
    without the trainer. A process that ends has left its process group: one that the end of the interpreter removes may abort it.
    """
    flags = ["--epochs=2", "--save_steps=2"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    (tmp_path / "whole_run.py").write_text(WHOLE)
    assert ended(start(forks, tmp_path, "whole_run", [*flags, f"--output={whole}"], 2), tmp_path) == [0, 0]
    chief, worker = start(forks, tmp_path, "digits.task", [*flags, f"--output={broken}"], 2)
    deadline = time.monotonic() + 120
    while not (broken / "checkpoints/latest.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(worker.pid, signal.SIGKILL)
    assert ended([worker, chief], tmp_path) == [-signal.SIGKILL, 1]
    again = start(forks, tmp_path, "digits.task", [*flags, f"--output={broken}"], 2)
    assert ended(again, tmp_path) == [0, 0]
    first, second = (json.loads((folder / "model/summary.json").read_text()) for folder in (whole, broken))
    assert second["history"] == first["history"] and second["accuracy"] == first["accuracy"] > 0.5
    assert sorted(os.listdir(broken / "model")) == ["model.pt2", "summary.json"]
    (tmp_path / "loaded.py").write_text(LOADED_ELSEWHERE)
    assert ended(start(forks, tmp_path, "loaded", [str(broken / "model/model.pt2")], 1), tmp_path) == [0]
    assert float((tmp_path / "0.out").read_text()) == pytest.approx(second["accuracy"], abs=1e-6)


@pytest.mark.whole
def test_sigterm_saves(forks: Forks, tmp_path: Path) -> None:
    """A process that is asked to end saves first, says so and ends with 143; other flags do not go on from there."""
    flags = ["--epochs=100000", "--save_steps=1000000", f"--output={tmp_path}"]
    (process,) = start(forks, tmp_path, "digits.task", flags, 1)
    said, deadline = tmp_path / "0.out", time.monotonic() + 120
    while said.read_text().count("\n") < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.terminate()
    assert ended([process], tmp_path) == [128 + signal.SIGTERM]
    assert "the same job goes on from here" in said.read_text()
    (other,) = start(forks, tmp_path, "digits.task", [*flags, "--learning_rate=0.5"], 1)
    assert ended([other], tmp_path) == [1]
    assert "was made with other flags" in said.read_text() and "Traceback" not in said.read_text()
