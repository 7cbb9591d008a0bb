"""Show on this machine why a scheduled run failed, in seven cases, and what `vertexrig schedule status` prints of each.

`python bench/demo_day_two.py` works in a temporary folder with the local Vertex, the staged function and the local Cloud Scheduler. In
each case `schedule status` names the cause and the command to type; the logs of the function and of Cloud Scheduler, read by the filter that it
prints, name the cause, too.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import requests
from _demos import serve_function, stack, vertexrig

from localvertex.jobs.settings import Fault
from localvertex.server import RunningServer
from localvertex.services import logging_query

PORT = 8645
IMAGES = "europe-docker.pkg.dev/demo-project/trainers"
NIGHTS = ("wrong-image", "broken-image", "quota", "over-budget", "storage-down", "killed", "paused")
JOBS = {
    name: {
        "machine_type": "n2-standard-4" if name == "quota" else "n1-standard-4",
        "timeout": "7200s" if name == "over-budget" else "600s",
        "container": {"image_uri": f"{IMAGES}/{image}:1"},
    }
    for name, image in (
        ("wrong-image", "no-such"), ("broken-image", "broken"), ("quota", "works"), ("over-budget", "works"),
        ("storage-down", "works"), ("killed", "works"), ("paused", "works"),
    )
}  # fmt: skip
PROJECT: dict[str, Any] = {
    "project": "demo-project",
    "bucket": "gs://demo-bucket",
    "jobs": JOBS,
    "schedules": {
        name: {
            "run": name,
            "cron": "0 3 * * *",
            **({"then": [{"register": {"metric": "accuracy", "goal": "MAXIMIZE"}}]} if name.endswith("image") else {}),
        }
        for name in NIGHTS
    },
    "trigger": {"uri": f"http://127.0.0.1:{PORT}", "tick": "0 0 1 1 *", "budget": {"usd_per_day": 0.5}},
}


class Line:
    """A connection to a server that can be cut (connections end) or stopped (no data passes), as a network can be."""

    def __init__(self, target: int) -> None:
        self.target, self.cut = target, False
        self.open = threading.Event()
        self.open.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            client, _ = self.listener.accept()
            if self.cut:
                client.close()
                continue
            there = socket.create_connection(("127.0.0.1", self.target))
            for one, other in ((client, there), (there, client)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65536):
                self.open.wait()
                if self.cut:
                    break
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # a close alone would not wake the thread of the other direction


class Stage:
    """The local stack with its function."""

    def __init__(self, folder: Path, here: RunningServer, faults: list[Fault]) -> None:
        self.folder, self.here, self.faults = folder, here, faults
        self.storage, self.vertex = Line(here.port), Line(here.port)
        self.log = folder / "function.log"
        self.start()

    def start(self) -> None:
        own = {
            "STORAGE_EMULATOR_HOST": self.storage.url,
            "VERTEXRIG_AIPLATFORM": os.environ["VERTEXRIG_AIPLATFORM"].replace(self.here.url, self.vertex.url),
        }
        with self.log.open("ab") as log:
            self.process: subprocess.Popen[bytes] = serve_function(PORT, log, **own)

    def stop(self) -> None:
        self.process.kill()  # SIGKILL, as the platform does to an instance
        self.process.wait(30)

    def until(self, true: Callable[[], Any], what: str, seconds: float = 90) -> Any:
        end, pause = time.monotonic() + seconds, 0.1
        while not (found := true()):
            assert time.monotonic() < end, f"not in {seconds:g} s: {what}\n{self.log.read_text()[-3000:]}"
            time.sleep(pause)
            pause = min(2 * pause, 3.0)
        return found

    def status(self, name: str) -> dict[str, Any]:
        said = vertexrig("schedule", "status", name, "--format=json", quiet=True, codes=(0, 1))
        return dict(json.loads(said)["schedules"][0])

    def fires(self, name: str) -> None:
        """Fire a schedule, as at 03:00, and wait for the result in Cloud Scheduler."""
        vertexrig("schedule", "run", name, quiet=True)
        self.until(lambda: self.status(name)["attempt"], f"{name} is delivered")

    def logged(self, filter: str) -> list[dict[str, Any]]:
        """Return the log entries that a filter finds, the newest last: those of the function and of Cloud Scheduler."""
        keeps = logging_query.matching(logging_query.parse(filter))
        found = []
        for line in self.log.read_text().splitlines():
            if line.startswith("{"):
                row = json.loads(line)
                resource = {"type": "cloud_run_revision", "labels": {"service_name": "vertexrig"}}
                entry = {"resource": resource, "severity": row.pop("severity", "DEFAULT"), "jsonPayload": row}
                found += [entry] if keeps(entry) else []
        asked: dict[str, Any] = {
            "resourceNames": ["projects/demo-project"],
            "filter": filter,
            "orderBy": "timestamp asc",
            "pageSize": 1000,
        }
        answer = requests.post(f"{self.here.url}/logging/v2/entries:list", json=asked, timeout=30)
        return found + list(answer.json().get("entries", ()))


def night(stage: Stage, name: str) -> None:
    """Cause the failure of a case."""
    if name == "quota":
        stage.faults.append(Fault("quota", ("n2-*",)))
        stage.fires(name)
    elif name.endswith("image"):
        stage.fires(name)
        stage.until(lambda: stage.status(name)["delivery"].get("state") == "FAILED", f"{name} ends")
        vertexrig("schedule", "run", "tick", quiet=True)
        stage.until(lambda: stage.status(name)["delivery"].get("end"), f"the tick sees the end of {name}")
    elif name == "storage-down":
        stage.storage.cut = True
        stage.fires(name)
        stage.until(lambda: '"history": "not written' in stage.log.read_text(), "the function gives up")
        stage.storage.cut = False
    elif name == "killed":
        stage.vertex.open.clear()
        vertexrig("schedule", "run", name, quiet=True)
        bucket = Path(stage.here.root) / "gs" / "demo-bucket"
        held = f'"run": "{name}"'
        stage.until(
            lambda: any(held in one.read_text() for one in bucket.glob("vertexrig/*/claims/*.json")),
            "the claim is taken",
        )
        stage.stop()
        stage.vertex.open.set()
        stage.until(lambda: stage.status(name)["attempt"] not in ("", "OK"), "Cloud Scheduler gives up")
        stage.start()
    elif name == "paused":
        vertexrig("schedule", "pause", name, quiet=True)
    else:
        stage.fires(name)


def main() -> None:
    """Cause each failure, and run `schedule status` afterwards."""
    programs = {
        f"{IMAGES}/works:*": "print('trained')\n",
        f"{IMAGES}/broken:*": "import a_module_that_nobody_installed\n",
    }
    faults: list[Fault] = []
    with stack(json.dumps(PROJECT, indent=1), programs, faults=faults) as (folder, here):
        stage = Stage(folder, here, faults)
        try:
            vertexrig("schedule", "apply", quiet=True)
            for number, what in enumerate(NIGHTS, 1):
                print(f"\n# case {number}: {what}", flush=True)
                night(stage, what)
                print(f"$ vertexrig schedule status {what}", flush=True)
                print(vertexrig("schedule", "status", what, quiet=True, codes=(1,)), end="", flush=True)
                asked(stage, what)
        finally:
            stage.stop()
        vertexrig("schedule", "history")


CAUSES = {
    "wrong-image": ("no-such:1", "vertexrig logs"),
    "broken-image": ("a_module_that_nobody_installed", "vertexrig logs"),
    "quota": ("custom_model_training_n2_cpus", "ask for more of the quota"),
    "over-budget": ("more than $0.50 per day", "raise trigger.budget.usd_per_day"),
    "storage-down": ("Cloud Storage cannot be reached", "vertexrig schedule run storage-down"),
    "killed": ("the function was killed", "vertexrig schedule run killed"),
    "paused": ("is paused in Cloud Scheduler", "vertexrig schedule resume paused"),
}
"""What the answer must name: the cause and the command that solves it."""


def asked(stage: Stage, name: str) -> None:
    """Compare the answer and the log with the failure that was caused."""
    status = stage.status(name)
    said = "\n".join(f"{one['message']}\n{one['fix']}" for one in status["differences"])
    cause, remedy = CAUSES[name]
    assert cause in said and remedy in said, said
    filter = status["log_filter"]
    # a pause is in the audit log, as a notice; all else that kept a run from ending well is a warning at least
    severities = ("WARNING", "ERROR", "NOTICE")
    rows = stage.until(
        lambda: [row for row in stage.logged(filter) if row["severity"] in severities], f"the log names {name}"
    )
    print(f"the log alone: {filter}")
    own = [row for row in rows if row["resource"]["type"] == "cloud_run_revision"] or rows
    for row in own[-1:]:
        print(f"  {row['severity']} {said_by(row)}")


def said_by(row: dict[str, Any]) -> str:
    """Return the text of a log entry: the function's message, Cloud Scheduler's status, or the call in the audit log."""
    payload = row.get("jsonPayload", {})
    called = row.get("protoPayload", {}).get("methodName", "").rpartition(".")[2]
    return str(
        payload.get("message") or " ".join(filter(None, (payload.get("status"), payload.get("debugInfo"), called)))
    )


if __name__ == "__main__":
    main()
