"""Every verb of the command line, from click's own tree: help, JSON, closed streams, ASCII and colour.

A new verb needs a row in `ROWS`: words that work and words that fail.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from localvertex.runner.pythons import find_python
from tests.support import clouds, packages, tools
from tests.support.tools import available, missing, need, typed
from vertexrig import cli
from vertexrig.project import config
from vertexrig.project.local import LocalImage
from vertexrig.runs.run import Run
from vertexrig.runs.store import RunStore
from vertexrig.submit.claims import Key
from vertexrig.trigger import deploy

IMAGE = "us-docker.pkg.dev/my-project/images/quick:1"
PROGRAM = """
import argparse, os, time
import hypertune
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.5)
parser.add_argument("--wait", type=float, default=0)
args = parser.parse_args()
time.sleep(args.wait)
if "AIP_MODEL_DIR" in os.environ:
    os.makedirs(os.environ["AIP_MODEL_DIR"], exist_ok=True)
    open(os.path.join(os.environ["AIP_MODEL_DIR"], "saved_model.pb"), "w").close()
hypertune.HyperTune().report_hyperparameter_tuning_metric("accuracy", 1 - args.lr, global_step=1)
"""
QUICK = {"machine_type": "n1-standard-4", "timeout": "600s", "container": {"image_uri": IMAGE}}
PROJECT: dict[str, Any] = {
    "project": "my-project",
    "region": "us-central1",
    "bucket": "gs://my-bucket",
    "trainer": {"path": "trainer", "image": "sklearn-1.6"},
    "jobs": {
        "quick": QUICK,
        "forever": {**QUICK, "args": {"wait": 600}},
        "wrong": {**QUICK, "topology": "gpu", "accelerator_type": "NVIDIA_TESLA_T4", "accelerator_count": 3},
        "plain": {"machine_type": "n1-standard-4", "timeout": "600s"},
        "own": {"machine_type": "n1-standard-4", "timeout": "600s", "image": "build"},
    },
    "sweeps": {
        "tune": {
            "job": "quick",
            "max_trial_count": 3,
            "parallel_trial_count": 3,
            "study": {
                "metrics": {"accuracy": "MAXIMIZE"},
                "parameters": {"lr": {"double_value_spec": {"min_value": 0.1, "max_value": 0.9}}},
            },
        }
    },
    "trigger": {"uri": "https://trigger.example.com"},
    "schedules": {"nightly": {"run": "tune", "cron": "0 3 * * *", "time_zone": "UTC"}},
    "local": {"images": {"*quick*": {"path": "image", "command": [sys.executable, "main.py"]}}},
}


class Stage:
    """A project on this machine whose jobs really run."""

    def __init__(self, folder: Path, here: server.RunningServer) -> None:
        self.folder, self.here = folder, here

    def submit(self, name: str, *states: str) -> str:
        """A job of the project, submitted and in one of these states: its resource name."""
        vertex = clouds.vertex(self.here)
        answer = io.StringIO()
        before, sys.stdout = sys.stdout, answer
        try:
            assert cli.run(["submit", name]) == 0
        finally:
            sys.stdout = before
        made = answer.getvalue().strip()
        until = time.monotonic() + 60
        while (found := vertex.get(made)) is None or found.state not in [f"JOB_STATE_{state}" for state in states]:
            assert time.monotonic() < until, found
            time.sleep(0.05)
        return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The stage with one sweep that has ended; shared, for it takes seconds."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "vertexrig.yaml").write_text(yaml.safe_dump(PROJECT, sort_keys=False))
    (folder / "image").mkdir()
    (folder / "image/main.py").write_text(PROGRAM)
    (folder / "trainer/trainer").mkdir(parents=True)
    (folder / "trainer/setup.py").write_text(
        "from setuptools import setup\nsetup(name='trainer', version='1', packages=['trainer'])\n"
    )
    (folder / "trainer/trainer/__init__.py").touch()
    (folder / "trainer/trainer/task.py").write_text("if __name__ == '__main__':\n    print('trained')\n")
    images = {"*quick*": LocalImage(folder / "image", (sys.executable, "main.py"))}
    settings = Settings(folder / "vertex", slots=8, options=RunOptions(grace=0.5, images=images))
    with (
        server.running(settings) as here,
        pytest.MonkeyPatch.context() as patch,
    ):
        more = {"NO_COLOR": "1", "XDG_CACHE_HOME": str(folder)}
        for name, value in {**server.env(here, project="my-project"), **more}.items():
            patch.setenv(name, value)
        patch.chdir(folder)
        (folder / "vertex/gs/my-bucket").mkdir(parents=True, exist_ok=True)
        stage = Stage(folder, here)
        stage.submit("tune", "SUCCEEDED")
        stage.submit("quick", "SUCCEEDED")
        assert cli.run(["schedule", "apply"]) == 0
        yield stage
        server.down(folder / "nowhere")  # what the row of `local up` started


@pytest.fixture
def stage(built: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.chdir(built.folder)
    monkeypatch.setattr(deploy, "account", lambda: "ana@example.com")  # gcloud takes a second to say it
    return built


Words = tuple[str, ...] | Callable[[Stage], tuple[str, ...]]


@dataclass(frozen=True)
class Row:
    """How a verb is called.

    Args:
        good: Words that work.
        keys: Keys of the JSON document then.
        bad: Words that fail.
        code: The code of that error.
        slow: `good` builds, runs or changes something: it is tried once only.
        ends: The exit code of `good`.
    """

    good: Words
    keys: set[str]
    bad: Words
    code: str
    slow: bool = False
    ends: int = 0


def _root(stage: Stage) -> tuple[str, ...]:
    return ("--root", str(stage.folder / "vertex"))


def _config(stage: Stage) -> tuple[str, ...]:
    """A file for gcloud's --config."""
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1, "containerSpec": {"imageUri": IMAGE}}
    (stage.folder / "config.yaml").write_text(json.dumps({"workerPoolSpecs": [pool]}))
    return ("config.yaml",)


def _locked(stage: Stage) -> tuple[str, ...]:
    """The job with an image of its own, whose lock file is current."""
    packages.lock_nothing(config.load(stage.folder / "vertexrig.yaml"), "cpu")
    return ("own",)


def _python(stage: Stage) -> tuple[str, ...]:
    """The image whose lock file is there; uv makes its environment."""
    need("uv")
    if find_python("3.12") == "3.12" and available("python3.12") is None:  # uv would have to download it
        missing("Python 3.12, which the image has, is not installed")
    _locked(stage)
    return ("--image", "build")


def _unheld(stage: Stage) -> tuple[str, ...]:
    """A schedule without a hold: whoever calls twice is told the same."""
    assert cli.run(["schedule", "release", "nightly"]) == 0
    return ("nightly",)


def _waiting(stage: Stage) -> tuple[str, ...]:
    """A run of its own that waits for approval."""
    id = f"{uuid.uuid4().hex}-{uuid.uuid4().hex[:12]}"
    body = {"run": "tune", "set": {}, "args": {}, "then": "nightly"}
    asked = {
        "model": "projects/p/locations/r/models/m@1",
        "champion": "",
        "display": "none",
        "alias": "champion",
        "text": "better",
    }
    run = Run(id, Key("request", id), body, phase="step", steps=("register",), step=0, approval=asked)
    assert RunStore(clouds.storage(stage.here).below("vertexrig/vertexrig")).save(run) is not None
    return (id,)


def _unscheduled(stage: Stage) -> tuple[str, ...]:
    """A project without schedules: of one that other verbs have fired or paused there is something to say."""
    data = yaml.safe_load((stage.folder / "vertexrig.yaml").read_text())
    (stage.folder / "unscheduled.yaml").write_text(yaml.safe_dump({**data, "schedules": {}}))
    return ("--file", "unscheduled.yaml")


def _paused(stage: Stage) -> tuple[str, ...]:
    """A schedule that is paused, whichever verbs were called before."""
    typed("schedule", "pause", "nightly", cwd=stage.folder)
    return ("nightly",)


NOWHERE = ("--root", "nowhere")
NO_FILE = ("--file", "nope.yaml")


def _committed(stage: Stage) -> tuple[str, ...]:
    if not (stage.folder / ".git").exists():
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", "init", "-q"], cwd=stage.folder, check=True)
        subprocess.run([*git, "add", "vertexrig.yaml", "trainer"], cwd=stage.folder, check=True)
        subprocess.run([*git, "commit", "-qm", "one"], cwd=stage.folder, check=True)
    return ("HEAD",)


ROWS: dict[str, Row | None] = {
    "init": Row(("-o", "new.yaml"), {"path"}, ("-o", "vertexrig.yaml"), "usage", slow=True),
    "render": Row(("quick",), {"jobs", "checked", "findings"}, ("quik",), "usage"),
    "check": Row(("quick",), {"findings"}, ("wrong",), "findings"),
    "keys": Row((), {"keys"}, ("--nope",), "usage"),
    "diff": Row(_committed, {"revision", "jobs", "rehearsals"}, ("nope",), "usage"),
    "completion": None,  # its stdout is the shell's
    "explain": Row(("quick",), {"pools", "price"}, ("nope.yaml",), "usage"),
    "quota": Row(("quick",), {"region", "fits", "quotas", "request"}, ("nope",), "usage"),
    "catalog": Row(("machines", "n1-standard-4"), {"machines"}, ("machines", "zzz"), "usage"),
    "package": Row(("--no-verify",), {"path", "version", "digest"}, ("--trainer", "nowhere"), "package", slow=True),
    "image": Row(_locked, {"images", "done"}, ("plain",), "usage", slow=True),
    "rehearse": Row(("tune", "-q"), {"state", "trials"}, ("wrong",), "findings", slow=True),
    "local up": Row(("-d", "--port=0", *NOWHERE), {"url", "pid"}, ("--root", "vertexrig.yaml"), "usage", slow=True),
    "local down": Row(NOWHERE, {"stopped"}, NO_FILE, "usage", slow=True),
    "local status": Row(_root, {"url", "queue"}, NO_FILE, "usage"),
    "local run": None,  # its stdout is the command's
    "local env": Row(_root, {"env"}, NOWHERE, "service"),
    "local python": Row(_python, {"python", "differs", "lines"}, ("--image", "tf-0"), "usage", slow=True),
    "local kill": Row(
        lambda stage: (stage.submit("forever", "RUNNING").rpartition("/")[2], "workerpool0-0", *_root(stage)),
        {"job", "replica"},
        ("1", "workerpool0-0", *NOWHERE),
        "service",
        slow=True,
    ),
    "local preempt": Row(
        lambda stage: (stage.submit("forever", "RUNNING").rpartition("/")[2], *_root(stage)),
        {"job"},
        ("1", *NOWHERE),
        "service",
        slow=True,
    ),
    "submit": Row(("quick",), {"name", "console"}, ("wrong",), "findings", slow=True),
    "jobs": Row((), {"jobs"}, ("--limit=0",), "usage"),
    "watch": Row(("tune",), {"job"}, ("nothing",), "usage"),
    "logs": Row(("quick", "--print-command"), {"job", "command"}, ("nothing",), "usage"),
    "cancel": Row(
        lambda stage: (stage.submit("forever", "RUNNING"), "--poll=0.1"), {"job"}, ("tune",), "usage", slow=True
    ),
    "trials": Row(("tune",), {"trials"}, ("quick",), "usage"),
    "best": Row(("tune",), {"best"}, ("quick",), "usage"),
    "report": Row(("tune",), {"job", "trials", "console"}, ("nothing",), "usage"),
    "follow-up": Row(("tune", "--dry-run"), {"name", "decisions"}, ("quick",), "usage"),
    "promote": Row(("tune", "--dry-run"), {"name", "trial", "keys"}, ("quick",), "usage"),
    "register": Row(  # a rehearsal may be newer than the stage's sweep
        lambda stage: ("tune" if stage.submit("tune", "SUCCEEDED") else "", "--dry-run"),
        {"registered", "compared"},
        ("nothing",),
        "usage",
        slow=True,
    ),
    "pull": Row(("tune",), {"name", "text", "entries"}, ("nothing",), "usage"),
    "convert": Row(_config, {"name", "text", "entries"}, ("nope.yaml",), "usage"),
    "schedule plan": Row((), {"steps"}, NO_FILE, "usage"),
    "schedule apply": Row((), {"steps"}, NO_FILE, "usage", slow=True),
    "schedule list": Row((), {"schedules"}, ("--next=-1",), "usage"),
    "schedule status": Row(("nightly",), {"schedules"}, ("nightl",), "usage", slow=True),
    "schedule history": Row((), {"deliveries"}, ("--since=soon",), "usage"),
    "schedule steps": Row((), {"open", "ended"}, ("--last=-1",), "usage"),
    "schedule pause": Row(("nightly",), {"name", "job", "action"}, ("nightl",), "usage", slow=True),
    "schedule resume": Row(_paused, {"name", "job", "action"}, ("nightl",), "usage", slow=True),
    "schedule hold": Row(
        ("nightly", "--until=2d", "--reason=maintenance"), {"holds"}, ("nightl", "--until=2d", "--reason=x"), "usage"
    ),
    "schedule release": Row(_unheld, {"holds"}, ("nightl",), "usage"),
    "schedule approve": Row(_waiting, {"id", "run", "decision", "by", "time", "model"}, ("nightl",), "usage"),
    "schedule reject": Row(_waiting, {"id", "run", "decision", "by", "time", "model"}, ("nightl",), "usage"),
    "schedule run": Row(("nightly",), {"name", "job", "action"}, ("nightl",), "usage", slow=True),
    "function build": Row(("-o", "staged"), {"folder", "files"}, NO_FILE, "usage", slow=True),
    "function package": Row(("plain",), {"packages"}, ("plan",), "usage", slow=True),
    "function deploy": Row((), {"steps"}, NO_FILE, "usage", slow=True),
    "function alerts": Row((), {"files"}, NO_FILE, "usage"),
    "function export": Row(("terraform",), {"files"}, ("terraform", *NO_FILE), "usage", slow=True),
    "function remove": Row((), {"steps"}, NO_FILE, "usage"),
    "doctor": Row(_unscheduled, {"results"}, NO_FILE, "usage", slow=True),
    "console": None,  # it becomes a server, and has no result
    "function serve": None,  # it becomes the server, and has no result
}
VERBS = [(verb, row) for verb, row in ROWS.items() if row is not None]
every_verb = pytest.mark.parametrize(("verb", "row"), VERBS, ids=[verb for verb, _ in VERBS])


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> dict[str, click.Command]:
    """Every command below a group, by its words."""
    if not isinstance(command, click.Group):
        return {" ".join(path): command}
    found: dict[str, click.Command] = {}
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        found |= leaves(below, (*path, name))
    return found


def call(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """A command line run in this process: exit code, stdout, stderr."""
    capsys.readouterr()
    code = cli.run(words)
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return code, out, err


def words_of(verb: str, words: Words, stage: Stage) -> list[str]:
    return [*verb.split(), *(words(stage) if callable(words) else words)]


def test_every_verb_has_a_row() -> None:
    """The table has every verb of the tree, and every one with a row has --format json."""
    tree = leaves(cli.vertexrig)
    assert set(tree) == set(ROWS)
    for verb, row in ROWS.items():
        (format_,) = [p for p in tree[verb].params if p.name == "format_"] or (None,)
        assert (row is None) == (format_ is None), verb
        assert format_ is None or "json" in getattr(format_.type, "choices", ()), verb


GROUPS = sorted({"", *(verb.rpartition(" ")[0] for verb in ROWS)})


@pytest.mark.parametrize("verb", [*GROUPS, *ROWS])
def test_help_fits_80_columns(verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """--help has no line that a terminal of 80 columns would break, says what the verb does, and what each option is, and
    has an ASCII form.
    """
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = call([*verb.split(), "--help"], capsys)
    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if len(line) > 80] == []
    assert b"\\u" not in out.encode("ascii", "vertexrig.plain")
    tree = leaves(cli.vertexrig)
    if verb in tree:
        silent = [p.name for p in tree[verb].params if isinstance(p, click.Option) and not p.help]
        assert (silent, bool(tree[verb].help)) == ([], True)


NAMED = frozenset(re.findall(r"`(\w+)`", (tools.REPOSITORY / "docs/json.md").read_text()))
"""What docs/json.md names in code."""
BY_TABLE = frozenset({"submit", "explain", "catalog", "local status", "function build"})
"""Verbs of which docs/json.md names a part: a request's body, what another page lists, and what it calls `more`."""


@every_verb
def test_json_is_one_document(verb: str, row: Row, stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """With --format json stdout is one JSON document: the result when it works, the error with its code when not."""
    code, out, err = call([*words_of(verb, row.bad, stage), "--format", "json"], capsys)
    problem = json.loads(out)["error"]
    assert (problem["code"], problem["exit_code"]) == (row.code, code) and code > 0
    assert err.splitlines()[-1] == f"error: {problem['message']}".splitlines()[-1]
    code, out, err = call([*words_of(verb, row.good, stage), "--format=json"], capsys)
    document = json.loads(out)
    assert code == row.ends, (out, err)
    assert row.keys <= document.keys() and ("error" in document) == bool(code)
    if verb not in BY_TABLE:
        assert document.keys() - {"error"} <= NAMED, "docs/json.md does not name it"


class _Bytes(io.BytesIO):
    """Keeps what was written to it when the stream around it is closed."""

    def close(self) -> None:
        pass


def _streams(monkeypatch: pytest.MonkeyPatch, out: Any) -> _Bytes:
    err = _Bytes()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="utf-8", write_through=True))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(err, encoding="utf-8", write_through=True))
    return err


@every_verb
def test_a_reader_that_has_gone_changes_nothing(
    verb: str, row: Row, stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Piped into a program that has ended, a verb ends with its own exit code and says nothing about the pipe. What it shows is
    without colour, and has an ASCII form.
    """
    for words, more in [(row.bad, ())] if row.slow else [(row.bad, ()), (row.good, ()), (row.good, ("--format=json",))]:
        line = [*words_of(verb, words, stage), *more]
        expected, shown, said = call(line, capsys)
        assert "\x1b" not in shown + said
        assert more or b"\\u" not in (shown + said).encode("ascii", "vertexrig.plain")  # JSON has them
        reading, writing = os.pipe()
        os.close(reading)
        with monkeypatch.context() as patch:
            err = _streams(patch, os.fdopen(writing, "wb", buffering=0))
            code = cli.run(line)
            sys.stdout.close()
        assert code == expected
        # what it waits for is said after two seconds, which only a busy machine takes
        assert len(tools.said(err.getvalue().decode())) == len(tools.said(said))


@pytest.mark.parametrize("line", ["catalog machines zzz", "check wrong", "submit wrong"])
def test_colour_is_only_where_it_is_asked_for(
    line: str, stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe gets no colour, FORCE_COLOR changes no word, and NO_COLOR is stronger."""
    shown = {}
    for name, variables in {
        "pipe": {},
        "forced": {"FORCE_COLOR": "1"},
        "no": {"FORCE_COLOR": "1", "NO_COLOR": "1"},
    }.items():
        with monkeypatch.context() as patch:
            patch.delenv("NO_COLOR", raising=False)
            for key, value in variables.items():
                patch.setenv(key, value)
            _, out, err = call(line.split(), capsys)
            shown[name] = out + err
    assert shown["pipe"] == shown["no"] and "\x1b" not in shown["pipe"]
    assert "\x1b[1;31merror" in shown["forced"]
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown["forced"]) == shown["pipe"]


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """`local up` in this process leaves its handlers of signals: later tests find those from before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
