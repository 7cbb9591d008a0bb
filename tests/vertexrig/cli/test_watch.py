"""watch on a terminal: the live table, a lost connection, and Ctrl-C; each with a real process on a pseudo terminal."""

from __future__ import annotations

import html
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest

from localvertex import server
from localvertex.runner import RunOptions
from tests.support import clouds, made_studies, tools
from tests.support.jobkit import sdist
from tests.support.tools import INSTALLED
from vertexrig import cli
from vertexrig.cli import remote, watch
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.studies import report
from vertexrig.submit import submission as submit
from vertexrig.submit.claims import request_key

TASK = """
import os, time, hypertune
hypertune.HyperTune().report_hyperparameter_tuning_metric("accuracy", 0.5, global_step=7)
print("trial", os.environ["CLOUD_ML_TRIAL_ID"], "waits", flush=True)
while not os.path.exists(FILE):
    time.sleep(0.05)
"""
PLACE = "projects/123/locations/us-central1"
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trials wait until this file is there."""
    return tmp_path_factory.mktemp("gate") / "open"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, gate: Path) -> Iterator[server.RunningServer]:
    """A local Vertex whose jobs really run."""
    root = tmp_path_factory.mktemp("cloud")
    with clouds.cloud(root, options=RunOptions(grace=0.5)) as running:
        sdist(root / "vertex/gs/my-bucket/packages/trainer.tar.gz", task=TASK.replace("FILE", repr(str(gate))))
        clouds.point_at(running)
        yield running


class Terminal:
    """A process on a pseudo terminal.

    Args:
        process: The process.
        number: The terminal's other end.
    """

    def __init__(self, process: subprocess.Popen[bytes], number: int) -> None:
        self.process, self.number, self.text = process, number, ""

    def until(self, *parts: str) -> str:
        """Read until the text without terminal codes has every part."""
        end = time.monotonic() + 120
        while not all(part in self.text for part in parts):
            assert time.monotonic() < end, self.text[-3000:]
            self._read(1.0)
        return self.text

    def ends(self) -> int:
        """Read to its end; its exit code."""
        end = time.monotonic() + 120
        while self._read(60.0):
            assert time.monotonic() < end, self.text[-3000:]
        return self.process.wait(30)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self.number], [], [], seconds)
        try:
            data = os.read(self.number, 65536) if ready else b""
        except OSError:  # Linux: the process has closed the terminal
            return False
        self.text += _CODES.sub("", data.decode(errors="replace"))
        return bool(data)


@contextmanager
def terminal(*words: str, cwd: Path, env: dict[str, str]) -> Iterator[Terminal]:
    """The command line on a terminal of 110 columns."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 110, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "vertexrig", *words], cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "PYTHONPATH": str(INSTALLED), "TERM": "xterm", **env}, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )  # fmt: skip
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)


@pytest.mark.whole
def test_a_live_table_that_ctrl_c_leaves(here: server.RunningServer, tmp_path: Path, gate: Path) -> None:
    """The table has the state, the running trials with their last metric, time, money and log lines; Ctrl-C ends it with 130
    and the command to come back, which shows the end.
    """
    data = {**clouds.PROJECT, "sweeps": {"sweep": {**clouds.PROJECT["sweeps"]["sweep"], "max_trial_count": 3}}}
    submitter = clouds.submitter(here, tmp_path, data)
    made = submitter.submit(submitter.prepare_candidates(submit.Request("sweep"))[0], request_key("watch"), "x")
    number = made.name.rpartition("/")[2]
    env = {**server.env(here, project="my-project"), "NO_COLOR": "1"}
    with terminal("watch", "sweep", "--poll=0.3", cwd=tmp_path, env=env) as shown:
        shown.until("2 active of 3", "accuracy 0.5", "at step 7", "cost so far, an estimate", "time so far", "waits")
        assert "trial 1 workerpool0-0" in shown.text
        shown.process.send_signal(signal.SIGINT)
        assert shown.ends() == 130
        assert "continues on the local Vertex; to follow it again:" in shown.text and f"watch {number}" in shown.text
    gate.touch()
    with terminal("watch", number, "--poll=0.3", cwd=tmp_path, env=env) as again:
        assert again.ends() == 0
        assert "SUCCEEDED  3 succeeded of 3" in again.text and "best so far" in again.text


@pytest.mark.whole
def test_the_commands_of_a_report_create_the_job_again(
    here: server.RunningServer, tmp_path: Path, gate: Path, gcloud: str
) -> None:
    """The script on the HTML page of a sweep, run as it is with the real gcloud, makes a sweep of the same study."""
    pytest.importorskip("vl_convert", reason="the extra report is not installed")
    gate.touch()
    data = {**clouds.PROJECT, "sweeps": {"sweep": {**clouds.PROJECT["sweeps"]["sweep"], "max_trial_count": 1}}}
    submitter = clouds.submitter(here, tmp_path, data)
    made = submitter.submit(submitter.prepare_candidates(submit.Request("sweep"))[0], request_key("again"), "x")
    env = {**server.env(here, project="my-project"), "CLOUDSDK_CONFIG": str(tmp_path / "gcloud")}
    done = tools.vertexrig("report", made.name, "--format=html", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    script = re.search(r"(cat &gt; .*?)</pre>", done.stdout, re.DOTALL)
    assert script is not None
    ran = subprocess.run(
        ["sh", "-ec", html.unescape(script[1])], cwd=tmp_path, env={**os.environ, **env}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    first, second = (clouds.vertex(here).get(name) for name in (made.name, newest(here)))
    assert first is not None and second is not None and first.name != second.name
    for key in ("displayName", "studySpec", "trialJobSpec", "maxTrialCount", "parallelTrialCount"):
        assert second.data.get(key) == first.data.get(key), key


@pytest.mark.parametrize("least", [1, 0], ids=["one best", "all infeasible"])
def test_a_best_trial_is_offered_where_there_is_one(here: server.RunningServer, tmp_path: Path, least: int) -> None:
    """At the end of a study, `watch` prints the command that promotes the best trial; where no trial has a result, the reason instead."""
    clouds.submitter(here, tmp_path, clouds.PROJECT)  # writes the project file
    study = {**made_studies.tuning_job(2, points=1), "name": f"{PLACE}/hyperparameterTuningJobs/77{least}"}
    for trial in study["trials"][least:]:
        trial |= {"state": "INFEASIBLE", "infeasibleReason": "The trainer wrote no metric file.\nSee its log."}
        trial.pop("finalMeasurement", None)
    server.call(here, "POST", "/v1/resources", study)
    done = tools.vertexrig("watch", study["name"], cwd=tmp_path, env=server.env(here, project="my-project"))
    assert done.returncode == 0, done.stderr
    assert ("to add a job with the best trial's parameters" in done.stderr) == bool(least)
    why = "no trial of sweep succeeded with a finite value of accuracy within its safety thresholds: of 2 that ended 2 are infeasible"
    assert (
        why in done.stderr and "\ntrial 1: The trainer wrote no metric file. See its log.\n" in done.stderr
    ) != bool(least)


def newest(here: server.RunningServer) -> str:
    """The resource name of the newest sweep."""
    return next(iter(clouds.vertex(here).list("hyperparameterTuningJobs", limit=1))).name


def test_a_lost_connection_is_found_again() -> None:
    """A service that fails twice is asked again; the watcher is called when it is lost and when it is back."""
    answers: list[Callable[[], RemoteJob]] = [lambda: job("RUNNING"), fails, fails, lambda: job("SUCCEEDED")]
    lost: list[bool] = []

    class Service:
        def get(self, name: str) -> RemoteJob:
            return answers.pop(0)()

    found = report.follow(Service(), "x", poll_s=0, lost=lambda error: lost.append(error is not None))  # type: ignore[arg-type]
    assert [one.state for one in found] == ["JOB_STATE_RUNNING", "JOB_STATE_SUCCEEDED"]
    assert lost == [True, True, False]


def job(state: str) -> RemoteJob:
    return RemoteJob({"name": "projects/1/locations/r/customJobs/2", "state": f"JOB_STATE_{state}"})


def fails() -> RemoteJob:
    raise RestError("Vertex AI cannot be reached", status=503)


@pytest.mark.parametrize(("variable", "place"), [("http://127.0.0.1:9", "the local Vertex"), ("", "Vertex AI")])
def test_ctrl_c_says_where_the_job_continues(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str, place: str
) -> None:
    """A job of the local Vertex is not said to continue on Vertex AI; the command follows it again."""
    monkeypatch.setattr(remote, "is_local", lambda: bool(variable))
    with pytest.raises(KeyboardInterrupt), watch.continuing("cpu", "7", "--file", "x.yaml"):
        raise KeyboardInterrupt
    said = capsys.readouterr().err
    assert f"cpu continues on {place}; to follow it again:" in said and "watch 7 --file x.yaml" in said


def submitting(folder: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]) -> None:
    """A project whose job `cpu` needs no package, as the working directory."""
    job = {"machine_type": "n1-standard-4", "timeout": "60s", "container": {"image_uri": "gcr.io/a/b"}, **more}
    clouds.loaded(folder, {**clouds.PROJECT, "jobs": {"cpu": job}, "sweeps": {}})
    monkeypatch.chdir(folder)


def use(there: server.RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point this process at a local Vertex."""
    for name, value in server.env(there, project="my-project").items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("more", [{}, {"candidates": [{"machine_type": "n1-standard-8"}]}], ids=["alone", "candidates"])
def test_ctrl_c_while_submit_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: dict[str, Any]
) -> None:
    """The job was created and goes on, which `submit --watch` says as `watch` does."""

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vertexrig.cli.submit.lines", interrupted)
    monkeypatch.setattr("vertexrig.cli.candidates.follow", interrupted)
    submitting(tmp_path, monkeypatch, more)
    with clouds.cloud(tmp_path / "cloud") as there:
        use(there, monkeypatch)
        assert cli.run(["submit", "cpu", "--watch"]) == 130
    assert "cpu continues on the local Vertex; to follow it again:" in capsys.readouterr().err


@pytest.mark.parametrize("more", [{}, {"candidates": [{"machine_type": "n1-standard-8"}]}], ids=["alone", "candidates"])
def test_a_job_that_was_submitted_elsewhere_is_found_by_the_printed_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: dict[str, Any]
) -> None:
    """`watch` has no --set: of a job in a region that --set chose, `submit` prints the resource name, of another one the number."""
    submitting(tmp_path, monkeypatch, more)
    with clouds.cloud(tmp_path / "cloud") as there:
        use(there, monkeypatch)
        for words, form in (((), r"[0-9]+"), (("--set", "region=europe-west4"), r"projects/.*/europe-west4/.*")):
            cli.run(["submit", "cpu", *words])
            (job,) = re.findall(r"watch (\S+)$", capsys.readouterr().err, re.MULTILINE)
            assert re.fullmatch(form, job) and cli.run(["cancel", job]) in (0, 2)
            assert "there is no job" not in capsys.readouterr().err
