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
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import requests

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from localvertex import server  # noqa: E402
from localvertex.jobs.settings import Fault, Settings  # noqa: E402
from localvertex.runner.options import RunOptions  # noqa: E402
from localvertex.services import logging_query  # noqa: E402
from vertexrig.project.local import LocalImage  # noqa: E402

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

    def __init__(self, folder: Path, here: server.RunningServer, faults: list[Fault]) -> None:
        self.folder, self.here, self.faults = folder, here, faults
        self.env = {**os.environ, **server.env(here, project="demo-project"), "PYTHONPATH": str(REPOSITORY)}
        self.storage, self.vertex = Line(here.port), Line(here.port)
        self.log = folder / "function.log"
        self.process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def served(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            self.stop()

    def start(self) -> None:
        own = {
            "STORAGE_EMULATOR_HOST": self.storage.url,
            "VERTEXRIG_AIPLATFORM": self.env["VERTEXRIG_AIPLATFORM"].replace(self.here.url, self.vertex.url),
        }
        words = [sys.executable, "-m", "vertexrig", "function", "serve", f"--port={PORT}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(words, cwd=self.folder, env={**self.env, **own}, stdout=log, stderr=log)
        self.until(self.answers, "the function starts")

    def answers(self) -> bool:
        with suppress(requests.ConnectionError):
            return requests.get(f"http://127.0.0.1:{PORT}/", timeout=5).ok
        return False

    def stop(self) -> None:
        assert self.process is not None
        self.process.kill()  # SIGKILL, as the platform does to an instance
        self.process.wait(30)

    def until(self, true: Callable[[], Any], what: str, seconds: float = 90) -> Any:
        end, pause = time.monotonic() + seconds, 0.1
        while not (found := true()):
            assert time.monotonic() < end, f"not in {seconds:g} s: {what}\n{self.log.read_text()[-3000:]}"
            time.sleep(pause)
            pause = min(2 * pause, 3.0)  # a question can be a command, which takes a core for half a second
        return found

    def rig(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "vertexrig", *words], cwd=self.folder, env=self.env, text=True, capture_output=True, timeout=300
        )  # fmt: skip
        assert done.returncode in codes, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.rig("schedule", "status", name, "--format=json", codes=(0, 1)))
        return dict(found["schedules"][0])

    def fires(self, name: str) -> None:
        """Fire a schedule, as at 03:00, and wait for the result in Cloud Scheduler."""
        self.rig("schedule", "run", name)
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
        stage.rig("schedule", "run", "tick")
        stage.until(lambda: stage.status(name)["delivery"].get("end"), f"the tick sees the end of {name}")
    elif name == "storage-down":
        stage.storage.cut = True
        stage.fires(name)
        stage.until(lambda: '"history": "not written' in stage.log.read_text(), "the function gives up")
        stage.storage.cut = False
    elif name == "killed":
        stage.vertex.open.clear()
        stage.rig("schedule", "run", name)
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
        stage.rig("schedule", "pause", name)
    else:
        stage.fires(name)


def main() -> None:
    """Cause each failure, and run `schedule status` afterwards."""
    with tempfile.TemporaryDirectory(prefix="vertexrig-day-two-") as name:
        folder = Path(name)
        (folder / "vertexrig.yaml").write_text(json.dumps(PROJECT, indent=1))
        for image, code in (("works", "print('trained')"), ("broken", "import a_module_that_nobody_installed")):
            (folder / image).mkdir()
            (folder / image / "main.py").write_text(f"{code}\n")
        images = {
            f"{IMAGES}/{image}:*": LocalImage(path=str(folder / image), command=("python", "main.py"))
            for image in ("works", "broken")
        }
        faults: list[Fault] = []
        run = RunOptions(images=images, engine="none", grace=0.5, warm=False)
        with server.running(Settings(folder / ".vertexrig", run=run, faults=faults)) as here:
            requests.post(f"{here.url}/storage/v1/b", params={"project": "demo-project"}, json={"name": "demo-bucket"})
            stage = Stage(folder, here, faults)
            with stage.served():
                stage.rig("schedule", "apply")
                for number, what in enumerate(NIGHTS, 1):
                    print(f"\n# case {number}: {what}", flush=True)
                    night(stage, what)
                    print(f"$ vertexrig schedule status {what}", flush=True)
                    print(stage.rig("schedule", "status", what, codes=(1,)), end="", flush=True)
                    asked(stage, what)
            print("\n$ vertexrig schedule history")
            print(stage.rig("schedule", "history"), end="")


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
    found = stage.logged(filter)
    # a pause is in the audit log, as a notice; all else that kept a run from ending well is a warning at least
    rows = [row for row in found if row["severity"] in ("WARNING", "ERROR", "NOTICE")]
    print(f"the log alone: {filter}")
    own = [row for row in rows if row["resource"]["type"] == "cloud_run_revision"] or rows
    for row in own[-1:]:
        print(f"  {row['severity']} {said_by(row)}")
    assert rows, found


def said_by(row: dict[str, Any]) -> str:
    """Return the text of a log entry: the function's message, Cloud Scheduler's status, or the call in the audit log."""
    payload = row.get("jsonPayload", {})
    called = row.get("protoPayload", {}).get("methodName", "").rpartition(".")[2]
    return str(
        payload.get("message") or " ".join(filter(None, (payload.get("status"), payload.get("debugInfo"), called)))
    )


if __name__ == "__main__":
    main()
