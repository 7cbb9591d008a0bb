"""PyTorch's rank variables: processes that find each other by MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from localvertex.runner import JobResult, Line, RunOptions, run_job
from tests.support.jobkit import job, output, pool
from vertexrig.spec import cluster
from vertexrig.spec.document import Document

# Every rank brings its number to rank 0, which answers each with the sum; nothing but the four variables is read.
SOCKETS = """
import socket, time
address = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])
rank, size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
if rank == 0:
    with socket.create_server(address) as server:
        peers = [server.accept()[0] for _ in range(size - 1)]
    ranks = [int(peer.recv(16)) for peer in peers]
    for peer in peers:
        peer.sendall(str(sum(ranks)).encode())
    print('sum', sum(ranks))
else:
    for _ in range(3000):
        try:
            peer = socket.create_connection(address)
            break
        except OSError:
            time.sleep(0.02)
    peer.sendall(str(rank).encode())
    print('sum', int(peer.recv(16)))
"""

# A server beside the ranks, which is not counted: it stays until the job ends.
SERVER = "import time\nprint('ranked', 'RANK' in os.environ, flush=True)\ntime.sleep(600)"


def run(root: Path, code: str) -> tuple[JobResult, list[Line]]:
    """Chief, two workers and an evaluator run `code`, beside a parameter server."""
    (root / "gs/meet").mkdir(parents=True, exist_ok=True)
    lines: list[Line] = []
    server = f"open(args[0] + '/server', 'w').close()\n{SERVER}"
    wait = "import time\nwhile not os.path.exists(args[0] + '/server'): time.sleep(0.01)\ndel args[0]\n"
    pools = [pool(wait + code, "gs://meet", replicas=count) for count in (1, 2, 0, 1)]
    pools[2] = pool(server, "gs://meet")
    return run_job(job(*pools), root=root, on_line=lines.append, options=RunOptions(grace=0.5)), lines


def said(lines: list[Line]) -> dict[str, list[str]]:
    tasks = sorted({line.task for line in lines if line.task.startswith("workerpool")})
    return {task: [text for text in output(lines, task) if text.startswith(("sum", "ranked"))] for task in tasks}


@pytest.mark.whole
def test_ranks_meet_through_the_variables_alone(root: Path) -> None:
    """Chief, workers and the evaluator form one world of four; the parameter server has no rank and is not waited for. PyTorch itself
    meets so in examples/pytorch-ddp.
    """
    result, lines = run(root, SOCKETS)
    assert result.state == "JOB_STATE_SUCCEEDED", result.error
    found = said(lines)
    assert found["workerpool0-0"] == ["sum 6"] and found["workerpool2-0"] == ["ranked False"]
    assert all(found[name] in (["sum 6"], []) for name in ("workerpool1-0", "workerpool1-1", "workerpool3-0"))


def test_a_single_replica_has_no_rank(root: Path) -> None:
    """On a job of one replica none of the variables is set, so that a program's default of a world of 1 holds."""
    lines: list[Line] = []
    code = "print([name for name in ('MASTER_ADDR', 'MASTER_PORT', 'RANK', 'WORLD_SIZE') if name in os.environ])"
    assert run_job(job(pool(code)), root=root, on_line=lines.append).succeeded
    assert "[]" in output(lines)


def test_reduction_servers_are_not_counted() -> None:
    """As Google's Reduction Server notebook needs it: one chief and four reduction servers are a world of one."""
    counts = (1, 0, 4)
    data = [{"replicaCount": n, "containerSpec": {"imageUri": "x"}} if n else {} for n in counts]
    everyone = cluster.replicas(Document("CustomJobSpec", {"workerPoolSpecs": data}).pools)
    chief = cluster.rank_variables(everyone, everyone[0])
    assert (chief["RANK"], chief["WORLD_SIZE"]) == ("0", "1")
    assert chief["MASTER_ADDR"].startswith("cmle-training-workerpool0-")
    assert cluster.rank_variables(everyone, everyone[1]) == {}
