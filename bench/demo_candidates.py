"""Run a job with candidates where machines are scarce, on this machine: a stock-out, Spot machines refused for quota, and another
region, where the job trains from its checkpoint.

`python bench/demo_candidates.py` works in a temporary folder with the local Vertex. `submit --watch` starts one candidate after the
other; the times that the local Vertex records for its jobs show that there was one job at a time.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import requests
from _demos import stack, vertexrig

from localvertex import server

IMAGE = "us-docker.pkg.dev/demo-project/trainers/counts:1"
EPOCHS = 40
PROJECT: dict[str, Any] = {
    "project": "demo-project",
    "region": "us-central1",
    "bucket": "gs://demo-bucket",
    "jobs": {
        "train": {
            "topology": "gpu",
            "machine_type": "g2-standard-8",
            "accelerator_type": "NVIDIA_L4",
            "accelerator_count": 1,
            "timeout": "600s",
            "container": {"image_uri": IMAGE},
            "wait": "6s",
            "candidates": [
                {"strategy": "SPOT", "machine_type": "g2-standard-12"},
                {"strategy": "SPOT", "region": "us-east4"},
                {"region": "us-east4"},
            ],
        }
    },
}
FAULTS = (
    "stockout:us-central1:g2-standard-8:1h:wait",
    "quota:us-central1:g2-standard-12",
    "preempt:us-east4:after=1s",
)
"""Candidate 1 finds no machines, candidate 2 has no quota, and candidate 3, on Spot machines of another region, is preempted each time."""
TRAINER = f"""
import os, pathlib, time

folder = pathlib.Path(os.environ["AIP_CHECKPOINT_DIR"])
folder.mkdir(parents=True, exist_ok=True)
checkpoint = folder / "epochs"
done = checkpoint.read_text().splitlines() if checkpoint.exists() else []
print("begins at epoch", len(done), flush=True)
for epoch in range(len(done), {EPOCHS}):
    time.sleep(0.2)
    done.append(os.environ["CLOUD_ML_JOB_ID"])
    new = folder / "new"
    new.write_text("\\n".join(done))
    new.replace(checkpoint)
print("trained", flush=True)
"""


def alone(here: server.RunningServer) -> list[dict[str, Any]]:
    """Return the jobs of the local Vertex in order; assert that each was created after the one before it had ended."""
    found: list[dict[str, Any]] = []
    for region in ("us-central1", "us-east4"):
        url = f"{here.url}/vertex/v1/projects/demo-project/locations/{region}/customJobs"
        found += requests.get(url, timeout=30).json().get("customJobs", [])
    found.sort(key=lambda job: str(job["createTime"]))
    for job in found:
        region, _, number = job["name"].split("/")[3:]
        print(f"  {job['createTime']} to {job['updateTime']}  {region:11}  {number}  {job['state']}")
    for before, after in pairwise(found):
        assert before["updateTime"] < after["createTime"], "two jobs were there at once"
    return found


def main() -> None:
    """Run the job through its candidates, and compare the result with the faults that were set."""
    with stack(json.dumps(PROJECT, indent=1), {IMAGE: TRAINER}) as (folder, here):
        for fault in FAULTS:
            server.add_fault(here, fault)
        vertexrig("explain", "train")
        vertexrig("submit", "train", "--watch", "--poll=0.2")
        print("\n# the jobs of the local Vertex", flush=True)
        jobs = alone(here)
        last = str(jobs[-1]["name"])
        vertexrig("report", last)
        told = json.loads(vertexrig("report", last, "--format=json", quiet=True))["attempts"]
        (checkpoint,) = (folder / ".vertexrig/gs/demo-bucket").glob("runs/train/*/checkpoints/epochs")
        by = checkpoint.read_text().splitlines()
    tried = [(one["candidate"], one["reason"]) for one in told]
    assert tried == [(1, "waited"), (2, "quota"), (3, "preempted"), (4, "")], tried
    assert [job["state"] for job in jobs] == ["JOB_STATE_CANCELLED", "JOB_STATE_FAILED", "JOB_STATE_SUCCEEDED"]
    numbers = [str(job["name"]).rpartition("/")[2] for job in jobs]
    own = by.count(numbers[2])
    assert len(by) == EPOCHS and by.count(numbers[1]) == EPOCHS - own and 0 < own < EPOCHS, by
    print(
        f"\n{EPOCHS} epochs, none twice: {EPOCHS - own} by candidate 3 before it was preempted, {own} by candidate 4 from its checkpoint"
    )


if __name__ == "__main__":
    main()
