"""What a rehearsal leaves and says: its run's folder, its history, its table when interrupted, hints and stand-ins."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from click.testing import CliRunner, Result

from localvertex.cli import faults
from localvertex.cli.rehearse import _interrupts
from localvertex.jobs.inprocess import LocalJobs
from localvertex.jobs.manager import Watcher
from localvertex.jobs.settings import Settings
from tests.support import tools
from tests.support.jobkit import sdist
from vertexrig import cli
from vertexrig.cli.options import ProjectOptions
from vertexrig.errors import JobFailedError, ServiceError, UsageError
from vertexrig.project.run_ids import GENERATED
from vertexrig.results.history import History, Record
from vertexrig.results.rehearsal import Rehearsal

TASK = """
import argparse, json, os, sys, time
parser = argparse.ArgumentParser()
parser.add_argument('--epochs', type=int, default=1)
parser.add_argument('--rate', type=float, default=0.5)
parser.add_argument('--units', type=int, default=1)
parser.add_argument('--do', default='train')
chosen = parser.parse_args()
if chosen.do == 'wait':
    print('waiting', flush=True)
    if os.environ.get('CLOUD_ML_TRIAL_ID') != '1':
        time.sleep(600)
if chosen.do == 'break':
    raise ValueError('broken on purpose')
if chosen.do == 'torch':
    import torch_that_is_not_here
if chosen.do == 'astray':
    os.makedirs('gs:/bucket')
    open('gs:/bucket/lost', 'w').close()
folder = 'here' if chosen.do == 'lose' else os.environ['AIP_MODEL_DIR']
os.makedirs(folder, exist_ok=True)
with open(os.path.join(folder, 'model.txt'), 'a') as file:
    file.write('trained\\n')
with open(os.environ['CLOUD_ML_HP_METRIC_FILE'], 'w') as file:
    for step, value in enumerate(('0.25', '0.75')):
        row = {'timestamp': time.time(), 'trial': '0', 'accuracy': value, 'global_step': str(step)}
        file.write(json.dumps(row) + '\\n')
"""
PROJECT: dict[str, Any] = {
    "project": "my-project",
    "region": "us-central1",
    "local": {"discrete": "decimal"},
    "bucket": "gs://my-bucket",
    "trainer": {"path": "none", "image": "sklearn-1.6", "package_uris": ["gs://my-bucket/packages/trainer.tar.gz"]},
    "jobs": {
        "cpu": {"machine_type": "n1-standard-4", "args": {"epochs": 2}},
        "fixed": {"machine_type": "n1-standard-4", "base_output_directory": "gs://my-bucket/fixed"},
    },
    "sweeps": {
        "sweep": {
            "job": "cpu",
            "max_trial_count": 3,
            "parallel_trial_count": 1,
            "study": {
                "metrics": {"accuracy": "MAXIMIZE"},
                "parameters": {"rate": {"double_value_spec": {"min_value": 0.1, "max_value": 1}}},
            },
        },
        "discrete": {
            "job": "cpu",
            "max_trial_count": 1,
            "study": {
                "metrics": {"accuracy": "MAXIMIZE"},
                "parameters": {"units": {"discrete_value_spec": {"values": [64, 128]}}},
            },
        },
    },
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a small trainer whose package is in the bucket; shared, so that it is installed once."""
    folder = tmp_path_factory.mktemp("rehearsals")
    (folder / "vertexrig.yaml").write_text(yaml.safe_dump(PROJECT))
    sdist(folder / ".vertexrig/gs/my-bucket/packages/trainer.tar.gz", task=TASK)
    return folder


@pytest.fixture(scope="module")
def here(project: Path) -> Iterator[Path]:
    """The project as working directory, with no service to ask."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project)
        patch.setenv("VERTEXRIG_AIPLATFORM", "http://127.0.0.1:9")
        patch.setenv("NO_GCE_CHECK", "true")
        yield project


@pytest.fixture(scope="module")
def good(here: Path) -> dict[str, Any]:
    """The result of a rehearsal of job cpu that has ended well."""
    return rehearsed("cpu")


def run(*words: str, fails: type[Exception] | None = None) -> Result:
    done = CliRunner().invoke(cli.vertexrig, list(words))
    if fails is None:
        assert done.exit_code == 0, (words, done.output, done.exception)
    else:
        assert isinstance(done.exception, fails), (words, done.output, done.exception)
    return done


def rehearsed(*words: str, fails: type[Exception] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("rehearse", *words, "--format=json", fails=fails).stdout)
    return found


@pytest.mark.whole
def test_each_run_has_a_folder_of_its_own(here: Path, good: dict[str, Any]) -> None:
    """Two runs of one job write to two folders; a third that resumes the first by name writes to the first's."""
    first, second = good, rehearsed("cpu")
    assert GENERATED.fullmatch(first["run"]) and first["run"] != second["run"]
    place = here / ".vertexrig/gs/my-bucket/runs/cpu"
    for one in (first, second):
        assert (here / one["output"]).samefile(place / one["run"])
        assert (place / one["run"] / "model/model.txt").read_text() == "trained\n"
    resumed = rehearsed("cpu", "--resume", first["run"])
    assert resumed["run"] == first["run"]
    assert (place / first["run"] / "model/model.txt").read_text() == "trained\n" * 2
    refused = run("rehearse", "cpu", "--resume", "20200101-000000-0000", fails=UsageError)
    assert "cpu has no run '20200101-000000-0000'. Its runs: " in str(refused.exception)
    assert second["run"] in str(refused.exception)
    with_folder = run("rehearse", "fixed", "--resume", first["run"], fails=UsageError)
    assert "base_output_directory, gs://my-bucket/fixed" in str(with_folder.exception)


def test_a_linked_place_of_the_yaml_is_refused_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the YAML would be written through a link, nothing runs, also if `--file` names a folder below this one."""
    folder = tmp_path / "sub"
    (folder / "build").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (folder / "build/jobs").symlink_to(tmp_path / "elsewhere")
    (folder / "vertexrig.yaml").write_text(yaml.safe_dump(PROJECT))
    monkeypatch.chdir(tmp_path)
    refused = run("rehearse", "cpu", "--file", "sub/vertexrig.yaml", fails=UsageError)
    assert "leads out of the project's folder" in str(refused.exception)
    assert not (folder / ".vertexrig/jobs").exists()


def test_a_model_that_is_lost_is_said_in_red(here: Path, good: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that succeeds and leaves its model's folder empty says so, and names the files that it left elsewhere."""
    found = rehearsed("cpu", "--set", "args.do=lose")
    assert found["model_empty"] and [Path(one).name for one in found["astray"]] == ["model.txt"]
    assert not good["model_empty"]
    monkeypatch.setenv("FORCE_COLOR", "1")
    text = CliRunner().invoke(cli.vertexrig, ["rehearse", "cpu", "--set", "args.do=lose"], color=True).stdout
    assert "\x1b[1;31mempty\x1b[0m: " in text and "here/model.txt, which Vertex AI does not keep" in text


def test_a_file_in_a_folder_named_gs_is_in_the_result(here: Path, good: dict[str, Any]) -> None:
    """The warning about a file written to a local folder `gs:` is in the summary, with --quiet too, and in the JSON; the job succeeds."""
    done = run("rehearse", "cpu", "--set", "args.do=astray", "--quiet")
    (said,) = re.findall(r"^warning +(.*)$", done.stdout, re.MULTILINE)
    assert said.startswith("workerpool0-0 succeeded, but it wrote gs://bucket/lost to a folder named 'gs:'")
    assert rehearsed("cpu", "--set", "args.do=astray")["warnings"] == [said] and good["warnings"] == []


@pytest.mark.usefixtures("good")
def test_the_yaml_of_an_environment_has_its_own_folder(here: Path) -> None:
    """`rehearse --env` writes the YAML where `render --env` does, and leaves the file of the job without an environment as it is."""
    file, plain = here / "environments.yaml", here / "build/jobs/cpu.yaml"
    file.write_text(
        yaml.safe_dump({**PROJECT, "environments": {"prod": {"jobs": {"cpu": {"machine_type": "n1-standard-8"}}}}})
    )
    before = plain.read_text()
    done = run("rehearse", "cpu", "--file", "environments.yaml", "--env", "prod")
    assert "wrote build/jobs/prod/cpu.yaml" in done.stderr and plain.read_text() == before
    assert "n1-standard-8" in (here / "build/jobs/prod/cpu.yaml").read_text()


def test_trials_of_a_rehearsal_with_faults(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --fault, --trials is refused for a job as without it; for a sweep it also limits the trials at a time. The printed `submit`
    has what was overridden, without these limits.
    """
    refused = run("rehearse", "cpu", "--fault", "quota:n2-*", "--trials", "2", fails=UsageError)
    assert str(refused.exception) == "cpu is a job, which has no trials; leave --trials out"
    data: list[dict[str, Any]] = []

    def rehearse(project: ProjectOptions, name: str, *_: Any, trials: int, **__: Any) -> Rehearsal:
        data.append(faults.limited(project, name, trials).prepare(name).document.data)
        return Rehearsal(name, "JOB_STATE_SUCCEEDED", "", 1.0, None)

    monkeypatch.setattr("localvertex.cli.faults.rehearse", rehearse)
    done = run("rehearse", "sweep", "--set", "parallel_trial_count=3", "--fault", "quota:n2-*", "--trials", "2")
    assert (data[0]["maxTrialCount"], data[0]["parallelTrialCount"]) == (2, 2)
    assert done.stderr.rstrip().endswith(" submit sweep --watch --set parallel_trial_count=3")


def test_a_sweep_without_a_best_trial_offers_none(here: Path) -> None:
    """A rehearsed sweep prints the commands for its best trial if a trial has a result, and else leaves them out."""
    silent = {**PROJECT["sweeps"]["sweep"], "max_trial_count": 1}
    for metric in ("accuracy", "loss"):
        silent["study"] = {**silent["study"], "metrics": {metric: "MAXIMIZE"}}
        (here / "silent.yaml").write_text(yaml.safe_dump({**PROJECT, "sweeps": {"sweep": silent}}))
        done = run("rehearse", "sweep", "--file", "silent.yaml")
        offered = ("to show its best trial" in done.stderr, "the best trial's parameters" in done.stderr)
        assert offered == (metric == "accuracy",) * 2, done.stderr


def test_a_resumed_run_with_a_name_of_its_own(here: Path) -> None:
    """With --fault, a run that a user has named is the run of the result and of the record, as without it."""
    folder = here / ".vertexrig/gs/my-bucket/runs/cpu/mine"
    folder.mkdir(parents=True)
    (folder / "checkpoint").touch()
    found = rehearsed("cpu", "--fault", "quota:n2-*", "--resume", "mine")
    assert found["run"] == "mine" == History(here / ".vertexrig").all()[0].run


def test_what_lies_beside_the_runs_is_no_run(here: Path) -> None:
    """A job of a rendered file writes model, logs and checkpoints into the folder of the runs: none of them is resumed or offered."""
    for name in ("model", "logs", "checkpoints", "mine"):
        (here / ".vertexrig/gs/my-bucket/runs/cpu" / name).mkdir(parents=True, exist_ok=True)
    refused = run("rehearse", "cpu", "--resume", "nope", fails=UsageError)
    named = str(refused.exception).partition("Its runs: ")[2]
    assert "mine" in named and not re.search("model|logs|checkpoints", named), refused.exception
    for words in (("rehearse", "cpu", "--resume", "model"), ("render", "cpu", "--run", "logs")):
        assert "is not the name of a run" in str(run(*words, fails=UsageError).exception)


def test_an_empty_folder_is_no_model_of_a_job_that_did_not_succeed(tmp_path: Path) -> None:
    """The local Vertex makes the folder before the trainer starts: a cancelled job that has saved nothing has no model."""
    (tmp_path / "model").mkdir()
    ended = {state: Rehearsal("cpu", f"JOB_STATE_{state}", "", 1.0, tmp_path) for state in ("CANCELLED", "SUCCEEDED")}
    assert ended["CANCELLED"].model is None and ended["SUCCEEDED"].model == tmp_path / "model"
    (tmp_path / "model/part").touch()
    assert ended["CANCELLED"].model == tmp_path / "model"


def test_a_job_that_was_not_rehearsed_yet(here: Path) -> None:
    """The message has the command that rehearses it; for a mistyped name it has the nearest."""
    (here / "fresh.yaml").write_text(
        yaml.safe_dump({**PROJECT, "jobs": {"fresh": PROJECT["jobs"]["cpu"]}, "sweeps": {}})
    )
    for name, said in (
        ("fresh", "fresh --file fresh.yaml` does that"),
        ("frseh", "no rehearsal 'frseh'. Did you mean 'fresh'?"),
    ):
        done = run("report", name, "--local", "--file", "fresh.yaml", fails=UsageError)
        assert said in str(done.exception)


def test_a_sweep_whose_trials_all_fail_says_why(here: Path) -> None:
    """By max_failed_trial_count the sweep succeeds; the rehearsal shows the traceback of a trial, and no command that runs it on Vertex AI."""
    words = ("rehearse", "sweep", "--set=args.do=break", "--set=max_failed_trial_count=3", "--trials=2", "--quiet")
    done = run(*words)
    assert "state       SUCCEEDED" in done.stdout
    assert "ValueError: broken on purpose" in done.stderr
    assert done.stderr.endswith("sweep has no result: all 2 trials failed\n") and "on Vertex AI:" not in done.stderr


def test_models_that_a_sweep_loses_are_said(here: Path) -> None:
    """Trials that succeed and leave their models' folders empty are said in one row, with the files of the first."""
    done = run("rehearse", "sweep", "--set=args.do=lose", "--trials=2")
    (said,) = re.findall(r"^model +empty: (.*)$", done.stdout, re.MULTILINE)
    assert re.search(r"/[12]/model and 1 more; the trainer wrote .*here/model.txt, which", said)


def test_the_interpreter_is_a_stand_in(here: Path, good: dict[str, Any]) -> None:
    """Python and framework of this machine are named where they differ from the image's, on each run and in the log."""
    again = run("rehearse", "cpu", "--format=json")  # the second run's environment comes from the cache
    (said,) = json.loads(again.stdout)["differences"]
    mine = ".".join(map(str, sys.version_info[:3]))
    wanted = f"Python {mine} instead of 3.10" if sys.version_info[:2] != (3, 10) else "scikit-learn"
    assert said.startswith("the stand-in for image sklearn-cpu.1-6 has ") and wanted in said and "scikit-learn" in said
    assert good["differences"] == [said] and f"Difference: {said}." in again.stderr


@pytest.mark.parametrize(("name", "quiet"), [("cpu", True), ("sweep", False)])
def test_a_traceback_is_shown_once(here: Path, name: str, quiet: bool) -> None:
    """Of a job and of a sweep that fail the traceback is shown once, whether or not the replicas' output is."""
    words = ("--quiet",) if quiet else ()
    done = run("rehearse", name, "--set=args.do=break", *words, fails=JobFailedError)
    text = f"{done.stdout}{done.stderr}error: {done.exception}"
    assert text.count("ValueError: broken on purpose") == 1, text
    assert ("workerpool0-0 ended with:" in text) == quiet
    assert "\n" not in str(done.exception)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("cpu", "--set=args.do=torch"), "name its distribution in the trainer's requirements"),
        (("discrete",), "parse with int(float(text))"),
    ],
)
def test_hints_are_in_the_rehearsal_and_its_log(here: Path, words: tuple[str, ...], hint: str) -> None:
    """What a failure usually means is in the rehearsal and in the job's log, whose lines are shown; the job's error is as the service
    writes it.
    """
    done = run("rehearse", *words, "--format=json", fails=JobFailedError)
    assert hint in json.loads(done.stdout)["hint"]
    assert hint in done.stderr and "hint: " not in done.stderr
    kept = History(here / ".vertexrig").all()[0]
    assert "exited with a non-zero status of" in kept.job.error
    log = max((here / ".vertexrig/jobs").glob("*/logs/service.log"), key=lambda path: path.stat().st_mtime)
    assert hint in log.read_text()


def test_rehearsals_have_a_history(here: Path) -> None:
    """jobs, trials, best and report see rehearsals by name, number and run, without a server and without credentials."""
    done, job = rehearsed("sweep"), rehearsed("cpu")
    assert not done["model_empty"] and done["astray"] == []
    for what in ("Optuna chooses the trials", "scikit-learn"):
        assert any(what in one for one in done["differences"])
    listed = json.loads(run("jobs", "--local", "--limit=1000", "--format=json").stdout)["jobs"]
    assert [one["run"] for one in listed[:2]] == [job["run"], done["run"]]
    assert listed[0]["metrics"] == {"accuracy": 0.75} and len(listed[1]["trials"]) == 3
    table = run("jobs", "--local", "--limit=2").stdout.splitlines()
    assert len(table) == 4 and table[2].split()[1:4] == ["CustomJob", "cpu", "SUCCEEDED"] and job["run"] in table[2]
    for words in (("sweep", "--local"), (done["run"],), (listed[1]["name"],), (listed[1]["name"].rsplit("/", 1)[1],)):
        assert json.loads(run("trials", *words, "--format=json").stdout)["trials"] == done["trials"]
    assert run("best", "sweep", "--local", "--format=args").stdout.startswith("--rate=")
    page = run("report", job["run"]).stdout
    assert f"A rehearsal on this machine, run {job['run']}." in page and "- accuracy: 0.75" in page
    asked = run("best", "sweep", "--format=json")  # Vertex AI cannot be asked: the rehearsal, and it is said
    assert f"using the rehearsal {done['run']} on this machine" in asked.stderr
    beside = run("jobs", fails=ServiceError)
    assert f"also rehearsed on this machine: {len(listed)}; `vertexrig jobs --local` lists them" in beside.stderr
    missing = run("trials", "nothing", "--local", fails=UsageError)
    assert "vertexrig jobs --local" in str(missing.exception)


def test_a_rehearsal_that_was_killed(tmp_path: Path) -> None:
    """A record whose process is gone is shown as failed; one whose process holds its lock still runs."""
    history = History(tmp_path)
    name = "projects/1/locations/us-central1/customJobs/5"
    record = Record("cpu", {"name": name, "state": "JOB_STATE_RUNNING", "createTime": "2026-11-21T00:00:00Z"})
    with history.running(record):
        assert history.all()[0].job.state == "JOB_STATE_RUNNING"
    found = history.find("cpu")
    assert found is not None and found.job.state == "JOB_STATE_FAILED" and "process ended" in found.job.error


def test_a_rehearsal_that_ends_while_its_record_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record read just before its rehearsal saved its end and released the lock is shown as it ended."""
    history = History(tmp_path)
    running = {"name": "projects/1/locations/us-central1/customJobs/5", "state": "JOB_STATE_RUNNING"}
    history.save(Record("cpu", running))

    def ended(lock: Path) -> bool:
        history.save(Record("cpu", {**running, "state": "JOB_STATE_SUCCEEDED"}))
        return False

    monkeypatch.setattr("vertexrig.results.history.is_held", ended)
    assert [one.job.state for one in history.all()] == ["JOB_STATE_SUCCEEDED"]


def test_what_a_killed_rehearsal_left_is_removed(tmp_path: Path) -> None:
    """The next rehearsal removes the folder of one whose process was killed, and not of one that runs."""
    code = "import os, sys; from pathlib import Path; from tests.support.jobkit import *; LocalJobs(Settings(Path(sys.argv[1])), Watcher()); os._exit(9)"
    killed = subprocess.run([sys.executable, "-c", code, tmp_path], cwd=tools.REPOSITORY, check=False)
    left = {*(tmp_path / "rehearsals").iterdir()}
    assert killed.returncode == 9 and len(left) == 1
    with LocalJobs(Settings(tmp_path), Watcher()):
        (first,) = {*(tmp_path / "rehearsals").iterdir()} - left
        with LocalJobs(Settings(tmp_path), Watcher()):
            found = {*(tmp_path / "rehearsals").iterdir()}
    assert first in found and len(found) == 2 and not left & found


@pytest.mark.parametrize("words", [("--speed=10",), ("--resume=20200101-000000-0000",), ()])
def test_what_is_refused_is_refused_before_the_package_is_built(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """Wrong options, and a link in place of the folder of the YAML, are errors before anything is built or run."""
    monkeypatch.setattr("localvertex.rehearsal.place_packages", lambda *_: pytest.fail("the package is built"))
    if not words:
        (here / "elsewhere.yaml").write_text(yaml.safe_dump({**PROJECT, "environments": {"other": {}}}))
        (here / "build/jobs").mkdir(parents=True, exist_ok=True)
        (here / "build/jobs/other").symlink_to(tmp_path)
        words = ("--file=elsewhere.yaml", "--env=other")
    run("rehearse", "cpu", *words, fails=UsageError)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_collected_unless_they_are_ignored(number: signal.Signals) -> None:
    """A signal that ends other programs cancels the rehearsal; one that this process was started to ignore changes nothing."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with _interrupts() as ignored:
            os.kill(os.getpid(), number)
        signal.signal(number, signal.SIG_DFL)
        with _interrupts() as came:
            os.kill(os.getpid(), number)
    finally:
        signal.signal(number, before)
    assert (ignored, came) == ([], [number])


@pytest.mark.whole
def test_an_interrupted_sweep(project: Path) -> None:
    """Ctrl-C in a sweep prints the table of its trials so far, ends with 130, and leaves no process."""
    words = [sys.executable, "-m", "vertexrig", "rehearse", "sweep", "--set=args.do=wait"]
    env = {**os.environ, "PYTHONPATH": str(tools.INSTALLED)}
    with subprocess.Popen(words, cwd=project, env=env, text=True, stdout=-1, stderr=-1) as process:
        assert process.stderr is not None and process.stdout is not None
        for line in process.stderr:
            if re.match(r"trial 2 workerpool0-0 \| waiting", line):
                break
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        shown = process.stdout.read()
    assert process.returncode == 130, said
    assert re.search(r"^state +CANCELLED$", shown, re.MULTILINE)
    assert re.search(r"^ *1 +SUCCEEDED .*best$", shown, re.MULTILINE)
    assert re.search(r"^ *2 +INFEASIBLE .*cancelled", shown, re.MULTILINE)
    assert psutil.wait_procs(children, timeout=20)[1] == []
