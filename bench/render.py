"""Rendering and checking a job: against gcloud and against the SDK as whole processes, and how many a second in process.

`python bench/render.py [RUNS]` prints one row a line: what | ours | peer | ratio | bar | ok.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path

from common import REPOSITORY, in_turn, row

sys.path.insert(0, str(REPOSITORY))

from tests.support.services import Endpoint

SDK_SCRIPT = """
import sys, yaml
from google.auth.credentials import AnonymousCredentials
from google.cloud import aiplatform

aiplatform.init(project="my-project", location="us-central1", staging_bucket="gs://my-bucket", credentials=AnonymousCredentials())
pools = [{
    "machine_spec": {"machine_type": "cloud-tpu", "accelerator_type": "TPU_V3", "accelerator_count": 8},
    "replica_count": 1,
    "python_package_spec": {
        "executor_image_uri": "us-docker.pkg.dev/vertex-ai/training/tf-tpu.2-15.cp310:latest",
        "package_uris": ["gs://my-bucket/packages/trainer-0.1.0.tar.gz"],
        "python_module": "trainer.task",
        "args": ["--epochs=15"],
    },
}]
job = aiplatform.CustomJob(display_name="tpu", worker_pool_specs=pools, base_output_dir="gs://my-bucket/runs/tpu")
message = job._gca_resource
type(message).to_json(message)
"""


def whole_processes(runs: int) -> tuple[float, list[str]]:
    """`vertexrig render tpu`, which checks too, against gcloud's create of that file and against the SDK; its seconds first."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tpu.yaml"
        env = {
            **os.environ,
            "CLOUDSDK_CONFIG": str(Path(folder) / "gcloud"),
            "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM": f"http://127.0.0.1:{server.server_port}/",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
            "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
        }
        commands = {"ours": [sys.executable, "-m", "vertexrig", "render", "tpu", "-o", str(file)]}
        commands["sdk"] = [sys.executable, "-c", SDK_SCRIPT]
        if shutil.which("gcloud"):
            words = ["--project=my-project", "--region=us-central1", "--display-name=tpu", f"--config={file}"]
            commands["gcloud"] = ["gcloud", "ai", "custom-jobs", "create", *words]
        taken = in_turn(commands, env, REPOSITORY, runs)
    server.shutdown()
    ours = taken["ours"]
    rows = []
    for peer, bar in (("gcloud", 0.35), ("sdk", 0.13)):
        if peer not in taken:
            rows.append(
                row(
                    f"render + check tpu, against {peer}",
                    f"{ours.median:.2f} s",
                    "not installed",
                    None,
                    f"<= {bar}",
                    None,
                )
            )
            continue
        ratio = ours.median / taken[peer].median
        other = f"{taken[peer].median:.2f} s"
        rows.append(
            row(f"render + check tpu, against {peer}", f"{ours.median:.2f} s", other, ratio, f"<= {bar}", ratio <= bar)
        )
        memory = ours.peak_mib / taken[peer].peak_mib
        peaks = f"{ours.peak_mib:.0f} MiB", f"{taken[peer].peak_mib:.0f} MiB"
        rows.append(row(f"peak memory, against {peer}", *peaks, memory, "", None))
    return ours.median, rows


def in_process(whole: float) -> list[str]:
    """Renders a second for 10 to 10,000 different jobs of one project, against whole processes of so many seconds."""
    from vertexrig.catalog import load
    from vertexrig.project import config
    from vertexrig.render.renderer import Renderer

    rows = []
    base = "project: p\nbucket: gs://my-bucket\ntrainer: {package_uris: [gs://my-bucket/t-1.tar.gz]}\njobs:\n"
    body = (
        "topology: multi-worker, machine_type: n1-standard-8, accelerator_type: NVIDIA_TESLA_T4, accelerator_count: 1"
    )
    for number in (10, 100, 1_000, 10_000):
        jobs = "".join(
            f"  j{i}: {{{body}, worker: {{replica_count: {i % 7 + 1}}}, args: {{epochs: {i}}}}}\n"
            for i in range(number)
        )
        loaded = config.loads(base + jobs, file=Path("vertexrig.yaml"), environ={})
        renderer = Renderer(loaded, load())
        renderer.render("j0")
        times = max(1, 1_000 // number)  # ten jobs alone would take 3 ms
        begun = time.perf_counter()
        for _ in range(times):
            for name in loaded.project.jobs:
                renderer.render(name)
        speed = times * number / (time.perf_counter() - begun)
        rows.append(
            row(
                f"renders in process, {number:,} jobs",
                f"{speed:,.0f} /s",
                f"{1 / whole:.1f} /s",
                speed * whole,
                ">= 1,000",
                speed * whole >= 1_000,
            )
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows.append(row("peak memory with 10,000 jobs", f"{peak:.0f} MiB", "", None, "", None))
    return rows


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    print("rendering | ours | peer | ratio | bar | ok", flush=True)
    whole, lines = whole_processes(runs)
    for line in [*lines, *in_process(whole)]:
        print(line, flush=True)


if __name__ == "__main__":
    main()
