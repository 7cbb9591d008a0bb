"""The trigger from process start to the first job, and its peak memory, against a function that uses the SDK.

Both are served by functions-framework, both take their token from a metadata server as on Cloud Run, and both create a
job on the same local Vertex. The other one does less: it renders, checks, claims and records nothing.

`python bench/trigger_start.py` prints one row per function and the two ratios (bars: time 0.35, memory 0.35).
"""

from __future__ import annotations

import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import requests

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support import clouds, functions
from vertexrig.trigger import stage

RUNS = 5
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
PEER = """
import os
import functions_framework
from google.cloud import aiplatform

@functions_framework.http
def trigger(request):
    run = request.get_json()["run"]
    aiplatform.init(project="my-project", location="us-central1", staging_bucket="gs://my-bucket",
                    api_endpoint=os.environ["VERTEXRIG_AIPLATFORM"], api_transport="rest")
    pool = {"machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1,
            "python_package_spec": {"executor_image_uri": "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest",
                                    "package_uris": ["gs://my-bucket/packages/trainer.tar.gz"], "python_module": "trainer.task"}}
    job = aiplatform.CustomJob(display_name=run, worker_pool_specs=[pool])
    job.submit()
    return {"name": job.resource_name}, 201
"""
# our function sends no token to a server on this machine; on Cloud Run it does, so here it is made to
OURS = """
from vertexrig.cloud import rest

signed_in = rest._signed_in
rest.is_loopback = lambda url: False
rest._signed_in = lambda url: signed_in("https://storage.googleapis.com")
"""


class Metadata(BaseHTTPRequestHandler):
    """The metadata server of a virtual machine, as far as google.auth asks it."""

    def do_GET(self) -> None:
        plain = {"project-id": "my-project", "universe": "googleapis.com"}
        text = next((value for word, value in plain.items() if word in self.path), "")
        account = {"email": "a@my-project.iam.gserviceaccount.com", "scopes": [SCOPE]}
        token = {"access_token": "stand-in", "expires_in": 3599, "token_type": "Bearer"}
        kind = "application/text" if text else "application/json"
        text = text or json.dumps(token if "token" in self.path else account)
        self.send_response(200)
        for name, value in {"Metadata-Flavor": "Google", "Content-Type": kind, "Content-Length": len(text)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def metadata() -> Iterator[str]:
    """Serve it; yields host:port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def start(folder: Path, env: dict[str, str], number: int) -> tuple[float, float]:
    """Seconds from process start to the answer about the first job, and MiB at the peak of the largest process."""
    port = functions.free_port()
    words = ["-m", "functions_framework", "--target=trigger", "--source", str(folder / "main.py"), "--host=127.0.0.1"]
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *words, f"--port={port}"], cwd=folder, env=env, stdout=subprocess.DEVNULL
    )
    try:
        body = {"run": "cpu", "request_id": f"{folder.name}-{number}"}
        while True:
            try:
                answer = requests.post(f"http://127.0.0.1:{port}/", json=body, timeout=60)
                break
            except requests.ConnectionError:
                assert process.poll() is None, "the function did not start"
                time.sleep(0.005)
        seconds = time.perf_counter() - begun
        assert answer.status_code == 201, answer.text
        everyone = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        peaks = [_peak(one.pid) for one in everyone]
    finally:
        process.terminate()
        process.wait(20)
    return seconds, max(peaks)


def _peak(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def measure() -> dict[str, tuple[float, float]]:
    """Median seconds and MiB of both functions, started in turns."""
    with tempfile.TemporaryDirectory() as name, metadata() as meta:
        root = Path(name)
        with clouds.cloud(root) as here:
            ours = stage.stage(clouds.loaded(root), root / "ours").folder
            main = (ours / "main.py").read_text()
            mark = "from vertexrig.trigger import app as rig"
            (ours / "main.py").write_text(main.replace(mark, f"{OURS}\n{mark}"))
            peer = root / "peer"
            peer.mkdir()
            (peer / "main.py").write_text(PEER)
            compileall.compile_dir(ours, quiet=1)
            env = {"PATH": os.environ["PATH"], "HOME": name, "CLOUDSDK_CONFIG": name, "GCE_METADATA_HOST": meta,
                   "GCE_METADATA_IP": meta, "GOOGLE_CLOUD_PROJECT": "my-project",
                   **clouds.variables(here)}  # fmt: skip
            found: dict[str, list[tuple[float, float]]] = {"ours": [], "peer": []}
            for number in range(RUNS + 1):
                for folder in (ours, peer):
                    found[folder.name].append(start(folder, env, number))
    kept = {who: rows[1:] for who, rows in found.items()}  # the first one compiles and fills the disk's cache
    return {
        who: (statistics.median(r[0] for r in rows), statistics.median(r[1] for r in rows))
        for who, rows in kept.items()
    }


def main() -> None:
    """Print one row per function and the ratios."""
    found = measure()
    print("function | s to first job | peak MiB")
    for who, (seconds, size) in found.items():
        print(f"{who} | {seconds:.2f} | {size:.0f}")
    (seconds, size), (peer_seconds, peer_size) = found["ours"], found["peer"]
    print(f"ratio | {seconds / peer_seconds:.2f} (bar 0.35) | {size / peer_size:.2f} (bar 0.35)")


if __name__ == "__main__":
    main()
