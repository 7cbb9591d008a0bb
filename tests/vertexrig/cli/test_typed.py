"""What somebody types who knows gcloud and never saw vertexrig: each error names what to write, and that works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from vertexrig.cli import run
from vertexrig.project import config
from vertexrig.workspace import Workspace

TRAINER = """
import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--learning_rate", type=float, default=0.1)
parser.add_argument("--augment", action="store_true")
parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
print(parser.parse_args(), os.environ.get("AIP_MODEL_DIR"))
"""
HEAD = "project: my-project\nregion: us-central1\ntrainer: {path: train.py, module: train, image: build}\n"
BUCKET = "bucket: gs://my-bucket\n"
JOB = "  cpu: {topology: cpu, machine_type: n1-standard-4, timeout: 3600s, args: {epochs: 3}}\n"


class Typed:
    """One command line: what it printed, and its exit code."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        code = run(words)
        printed = self._capsys.readouterr()
        assert "Traceback" not in printed.err
        return code, printed.out, printed.err


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAINER)
    write(JOB + "  gpu: {topology: cpu, machine_type: n1-standard-8, timeout: 3600s}\n")
    return Typed(capsys)


def write(jobs: str, head: str = HEAD + BUCKET) -> None:
    Path("vertexrig.yaml").write_text(f"{head}jobs:\n{jobs}")


def fixes(jobs: str, head: str = HEAD + BUCKET) -> dict[str, str]:
    """The fix of each finding about job cpu, by rule."""
    write(jobs, head)
    return {found.id: found.fix for found in Workspace(config.load()).prepare("cpu").findings}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["render", "cpu", "--region", "us-central1"], "Set the key region in the project file, or write --set region=VALUE"),
        (["submit", "cpu", "--display-name=x"], "the key display_name in the project file, or write --set display_name=VALUE"),
        (["render", "cpu", "--args=--epochs=3"], "or write --set args.NAME=VALUE for this call"),
        (["check", "--python-package-uris=x"], "Set the key package_uris"),
        (["submit", "cpu", "--worker-pool-spec=machine-type=x"], "keys of a job of the project file: machine_type, replica_count"),
        (["watch", "cpu", "--project=x"], "Set the key project in the project file\n"),
        (["--file", "x", "render", "cpu"], "No such option '--file' before the COMMAND: write it after the COMMAND"),
        (["render", "cpu", "--outputs=x"], "No such option '--outputs'. Did you mean '--output'?"),
    ],
)  # fmt: skip
def test_an_option_of_gcloud_names_the_key(typed: Typed, words: list[str], message: str) -> None:
    """Gcloud's options are keys of the project file here, and the error says which, and how to give it once."""
    code, _, err = typed(*words)
    assert code == 2 and message in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([verb], "Choices: cpu, gpu.")
        for verb in (
            "render",
            "explain",
            "submit",
            "rehearse",
            "image",
            "watch",
            "logs",
            "cancel",
            "report",
            "register",
        )
    ]
    + [
        (["trials"], "The project file has no sweeps."),
        (["schedule", "run"], "The project file has no schedules."),
        (["render", "cpu,gpu"], "write names with spaces between them: cpu gpu"),
        (["render", "build/jobs/cpu.yaml"], "and this takes a NAME, not a file. Did you mean 'cpu'?"),
        (["render", "train.py"], "and this takes a NAME, not a file. Choices: cpu, gpu."),
        (["submit", "--file", "none.yaml"], "And there is no file none.yaml"),
    ],
)
def test_a_name_that_is_missing_or_no_name_lists_the_choices(typed: Typed, words: list[str], message: str) -> None:
    """A missing NAME lists the names; a comma list and a file in its place say how to write it."""
    code, out, err = typed(*words)
    assert code == 2 and not out and message in err


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("--epochs", "a key is a flag without its dashes: write epochs, which becomes --epochs"),
        ("-e", 'a key becomes --KEY, so -e goes into a list with the other arguments: args: ["-e", "VALUE"]'),
    ],
)
def test_dashes_in_the_keys_of_args(typed: Typed, key: str, message: str) -> None:
    """A key of `args` with dashes is refused at its line, wherever arguments are given."""
    write(f"  cpu:\n    args:\n      {key}: 3\n")
    code, _, err = typed("check")
    assert code == 2 and f"vertexrig.yaml:8: jobs.cpu.args.{key}: {message}" in err
    write(f"  cpu:\n    topology: multi-worker\n    worker: {{args: {{{key}: 3}}}}\n")
    assert message in typed("check")[2]
    write(JOB)
    code, _, err = typed("check", "cpu", "--set", f"args.{key}=3")
    assert code == 2 and message in err


def test_a_fix_has_the_keys_of_the_file_that_it_is_for(typed: Typed) -> None:
    """A job of vertexrig.yaml is mended by keys of vertexrig.yaml, a file for gcloud by the fields of the API."""
    found = fixes("  cpu: {topology: cpu, machine_type: n1-standard-4}\n", HEAD)
    assert found["model-dir-unset"] == (
        "write bucket: gs://BUCKET at the top of the file, or base_output_directory: gs://BUCKET/PATH"
    )
    assert found["timeout-unset"] == "write timeout, such as 7200s"
    found = fixes(
        "  cpu: {topology: gpu, machine_type: n1-standard-4, accelerator_type: NVIDIA_TESLA_T4, timeout: 60s}\n"
    )
    assert found["accelerator-pair"] == "write accelerator_count: 1"
    Path("job.yaml").write_text("workerPoolSpecs:\n- machineSpec: {machineType: n1-standard-4}\n  replicaCount: 1\n")
    out = typed("check", "job.yaml")[1]
    assert "fix: write scheduling.timeout, such as 7200s" in out


@pytest.mark.parametrize(
    ("args", "rule", "fix"),
    [
        ("{augment: true}", "flag-takes-no-value", "write augment: null"),
        ("{augment: false}", "flag-takes-no-value", "remove augment"),
        ("{lerning_rate: 1}", "argument-unknown", "write learning_rate, or declare --lerning_rate in the trainer"),
        ("{optimizer: Adam}", "argument-parse", 'write optimizer: "adam"'),
        ("{epochs: null}", "argument-parse", "write epochs: VALUE"),
        ('["--augment=true"]', "flag-takes-no-value", "write --augment alone"),
        ('["--lerning_rate=1"]', "argument-unknown", "write --learning_rate, or declare --lerning_rate in the trainer"),
    ],
)
def test_a_fix_for_an_argument_fits_a_mapping_and_a_list(typed: Typed, args: str, rule: str, fix: str) -> None:
    """In a mapping a fix is a pair of it; in a list it is a word of the command line."""
    assert fixes(f"  cpu: {{machine_type: n1-standard-4, timeout: 60s, args: {args}}}\n")[rule] == fix
    given = re.fullmatch(r"write (\w+: (?:null|\"\w+\"))", fix)
    if given is not None:  # a fix that can be followed as it is
        assert rule not in fixes(f"  cpu: {{machine_type: n1-standard-4, timeout: 60s, args: {{{given[1]}}}}}\n")


def test_what_init_writes_passes_its_own_checks(typed: Typed) -> None:
    """Three parameters get as many trials as the check asks for."""
    units = 'parser.add_argument("--units", type=int, default=16)\nprint(parser'
    reports = "import hypertune\nhypertune.HyperTune().report_hyperparameter_tuning_metric('accuracy', 1)\n"
    Path("train.py").write_text(TRAINER.replace("print(parser", units) + reports)
    assert typed("init", "--force")[0] == 0
    project = Path("vertexrig.yaml").read_text()
    assert "max_trial_count: 30" in project and all(
        name in project for name in ("learning_rate:", "units:", "optimizer:")
    )
    code, out, _ = typed("check", "--format", "json")
    assert code == 0 and "trials-few" not in {
        row["id"] for row in json.loads(out)["findings"] if row["severity"] != "info"
    }


SDK = """\
worker_pool_specs:
- machine_spec: {machine_type: n1-standard-4}
  replica_count: 1
  container_spec: {image_uri: us-docker.pkg.dev/p/r/i}
scheduling: {timeout: 60s}
"""


def test_a_file_in_snake_case_has_one_finding(typed: Typed) -> None:
    """One finding lists the keys and what they are in camelCase, with a place for each; JSON keeps its shape."""
    Path("sdk.yaml").write_text(SDK)
    code, out, _ = typed("check", "sdk.yaml", "--format", "json")
    rows = [row for row in json.loads(out)["findings"] if row["id"] == "snake-case-key"]
    assert code == 0 and len(rows) == 1
    assert rows[0]["message"].startswith("'worker_pool_specs', 'machine_spec', 'machine_type', 'replica_count',")
    assert rows[0]["fix"] == "write workerPoolSpecs, machineSpec, machineType, replicaCount, containerSpec, imageUri"
    assert rows[0]["path"] == "workerPoolSpecs" and rows[0]["line"] == 1 and len(rows[0]["paths"]) == 6
    assert list(rows[0]) == [
        "file", "id", "severity", "path", "paths", "message", "fix", "fixable", "source", "line", "set", "docs",
    ]  # fmt: skip
    pools = "".join(SDK.split("\n", 1)[1].rsplit("scheduling", 1)[:1]) * 3
    Path("sdk.yaml").write_text(f"worker_pool_specs:\n{pools}scheduling: {{timeout: 60s}}\n")
    assert "workerPoolSpecs[1].machineSpec.machineType, … (16 in all)" in typed("check", "sdk.yaml")[1]


@pytest.mark.parametrize(
    ("name", "severity", "fix"),
    [
        ("n1-standard-7", "error", "write n1-standard-8"),
        ("N1-Standard-8", "error", "write n1-standard-8"),
        ("n1_standard_8", "error", "write n1-standard-8"),
        ("a2-highgpu-3g", "error", ""),
        ("n1-standart-8", "warning", "write n1-standard-8"),
        ("n9-standard-8", "warning", ""),
        ("n1-custom-4-8192", "warning", ""),
    ],
)
def test_a_machine_type_that_cannot_be_is_an_error(typed: Typed, name: str, severity: str, fix: str) -> None:
    """A size that a known series does not have, and other letters' case, are wrong; a family or series may be new."""
    write(f"  cpu: {{machine_type: {name}, timeout: 60s}}\n")
    found = [one for one in Workspace(config.load()).prepare("cpu").findings if one.id == "machine-unknown"]
    assert [(one.severity.value, one.fix) for one in found] == [(severity, fix)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "vertexrig.yaml: the project file is empty: `vertexrig init --force` writes one"),
        ("# nothing yet\n", "vertexrig.yaml: the project file is empty"),
        ("workerPoolSpecs:\n- replicaCount: 1\n", "this is a job for gcloud, not a project file: `vertexrig check FILE` checks it"),
        (f"{HEAD}jobs: {{cpu: {{args: {{epochs: 012}}}}}}\n", "gcloud reads 012 as the octal number 10, readers of YAML 1.2 as 12: write 12,"),
        (f"{HEAD}jobs: {{cpu: {{machine_type: 2026-01-01}}}}\n", "jobs.cpu.machine_type: 2026-01-01 is a date; text belongs here"),
        (f"{HEAD}jobs: {{cpu: {{machine_type: n1-standard-4, replica_count: 3}}}}\n",
         "jobs.cpu.replica_count: 3 replicas: the job's own pool is the chief, which is one replica; more of them are workers"),
    ],
)  # fmt: skip
def test_a_project_file_that_is_not_one_yet(typed: Typed, text: str, message: str) -> None:
    """An empty file, a file for gcloud, and values that would be read as something else are refused with what to write."""
    Path("vertexrig.yaml").write_text(text)
    code, out, err = typed("check")
    assert code == 2 and not out and message in err


def test_what_is_named_in_place_of_a_project_file(typed: Typed) -> None:
    """For an empty file of another name, and for a folder, the message has the command that works and harms no other file."""
    Path("team.yaml").write_text("")
    Path("team").mkdir()
    assert "`vertexrig init --force --output team.yaml`" in typed("check", "--file", "team.yaml")[2]
    assert "team is a folder: name its project file, --file team/vertexrig.yaml" in typed("check", "--file", "team")[2]


@pytest.mark.parametrize("name", ["cpu", "tune"])
def test_an_argument_in_place_of_a_key(typed: Typed, name: str) -> None:
    """--set with the name of the trainer's argument says where arguments are."""
    study = "{metrics: {m: MAXIMIZE}, parameters: {x: {double_value_spec: {min_value: 0, max_value: 1}}}}"
    sweep = f"  tune: {{job: cpu, max_trial_count: 2, parallel_trial_count: 1, study: {study}}}\n"
    write(f"  cpu: {{machine_type: n1-standard-4, args: {{epochs: 3}}}}\nsweeps:\n{sweep}")
    code, _, err = typed("check", name, "--set", "epochs=5")
    assert code == 2 and f"{name} has no key 'epochs'. Did you mean 'args.epochs'?" in err


def test_a_job_and_its_sweep_are_both_looked_at(typed: Typed) -> None:
    """What is wrong with a sweep's arguments is told together with what is wrong with its job."""
    sweep = "s: {job: cpu, args: {lr: 1}, over: {lr: [0.1, 0.2]}}"
    Path("vertexrig.yaml").write_text(
        f"{HEAD}jobs: {{cpu: {{replica_count: 3, args: [--epochs=1]}}}}\nsweeps: {{{sweep}}}\n"
    )
    code, out, err = typed("check", "s")
    assert code == 2 and not out
    assert "2 things are wrong" in err and "3 replicas" in err and "has a list of args" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check", "--set", "args.epochs=-1"], "'args' is a key of a job or sweep: name one job or sweep with the command, or write "
         "where it is: --set jobs.cpu.args.epochs=VALUE"),
        (["check", "cpu", "gpu", "--set", "timeout=60s"], "--set jobs.cpu.timeout=VALUE"),
        (["check", "CPU", "--set", "args.epochs=1"], "the project file has no job or sweep 'CPU'. Did you mean 'cpu'?"),
    ],
)  # fmt: skip
def test_an_override_without_its_job(typed: Typed, words: list[str], message: str) -> None:
    """A key of a job needs a job: the error says which words name one."""
    code, _, err = typed(*words)
    assert code == 2 and message in err


def test_an_override_of_something_that_is_no_job(typed: Typed) -> None:
    """A list in place of the jobs is named as such, also where an override looks into it."""
    Path("vertexrig.yaml").write_text(f"{HEAD}jobs:\n- name: cpu\n")
    for override in ("foo-", "foo.bar=1", "jobs.cpu.timeout=1s", "jobs.0.name-"):
        assert typed("check", "--set", override)[0] == 2


def test_a_finding_points_at_what_it_is_about(typed: Typed) -> None:
    """A region at its line or its override; a machine that is missing at its job, not at the trainer's lines."""
    assert "| --set region=us-cental1\n" in typed("check", "cpu", "--set", "region=us-cental1")[1]
    write("  cpu:\n    timeout: 60s\n", HEAD.replace("us-central1", "us-cental1"))
    out = typed("check", "cpu")[1]
    assert "vertexrig.yaml:2: error[region-unknown]" in out
    assert "vertexrig.yaml:5: error[machine-and-replicas]" in out and "fix: write machine_type" in out


def test_nothing_to_show_is_said(typed: Typed) -> None:
    """No jobs to check, and no schedules to list: stderr says so."""
    Path("vertexrig.yaml").write_text(HEAD)
    code, _, err = typed("check")
    assert code == 0 and "vertexrig.yaml has no jobs and no sweeps: nothing is checked" in err
    code, out, err = typed("schedule", "list")
    assert (code, out, err) == (0, "", "vertexrig.yaml has no schedules\n")


def test_a_result_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    """A full disk behind stdout is named, for text and for JSON, with exit code 2."""
    for words in (["keys"], ["keys", "--format", "json"], ["render", "no", "--format", "json"]):
        with open("/dev/full", "w") as full:
            line = [sys.executable, "-m", "vertexrig", *words]
            done = subprocess.run(line, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 2 and done.stderr.startswith("error: ") and "Traceback" not in done.stderr
        assert words[0] == "render" or "the result cannot be written to stdout: No space left on device" in done.stderr


def test_a_device_and_a_link_stay_what_they_are(typed: Typed, tmp_path: Path) -> None:
    """`-o` of a pipe, which a device is like, writes into it and leaves it there; of a link, it writes the link's target."""
    os.mkfifo("pipe")
    reader = subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE, text=True)
    assert typed("render", "cpu", "--no-check", "-o", "pipe")[0] == 0
    assert reader.communicate(timeout=60)[0].startswith("# vertexrig: job cpu") and Path("pipe").is_fifo()
    Path("link.yaml").symlink_to("target.yaml")
    assert typed("render", "cpu", "--no-check", "-o", "link.yaml")[0] == 0
    assert Path("link.yaml").is_symlink() and Path("target.yaml").read_text().startswith("# vertexrig: job cpu")


def test_missing_credentials_name_the_way_to_get_them(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a login the error names the command that logs in, and the way that needs none."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "nothing.json")
    monkeypatch.delenv("VERTEXRIG_AIPLATFORM", raising=False)
    code, out, err = typed("watch", "cpu")
    assert code == 3 and not out
    assert "Log in with `gcloud auth application-default login`. `vertexrig local up` needs no login" in err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("train model.py", "since python -m takes no module of that name; rename it to train_model.py"),
        ("2-train.py", "rename it to _2_train.py"),
        (
            "train.ipynb",
            "train.ipynb is not a trainer, but a notebook: `jupyter nbconvert --to script train.ipynb --output train` makes train.py of it",
        ),
    ],
)
def test_a_file_that_is_not_a_trainer_says_why(typed: Typed, name: str, message: str) -> None:
    """A script whose name is no module's and a notebook are refused with what to do about it."""
    Path(name).write_text(TRAINER)
    code, _, err = typed("init", "--force", "--trainer", name)
    assert code == 2 and f"{name} is not a trainer" in err and message in err


def test_an_empty_request_id_is_refused(typed: Typed) -> None:
    """`--request-id "$ID"` with a variable that is not set must not make a second job."""
    code, out, err = typed("submit", "cpu", "--request-id", "")
    assert code == 2 and not out and "--request-id is empty" in err


def test_a_report_in_a_format_that_there_is_not(typed: Typed) -> None:
    """A name such as r.pdf would promise a PDF: the error names the formats."""
    code, _, err = typed("report", "cpu", "--local", "-o", "r.pdf")
    assert code == 2 and "r.pdf: a report is HTML or Markdown: name it r.html or r.md, or give --format" in err


def test_a_pulled_job_is_not_of_the_request_that_made_it(typed: Typed) -> None:
    """The labels that `submit` gives stay with their job: a second job with them would be cancelled as one too many."""
    spec = {"workerPoolSpecs": [{"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1,
                                 "containerSpec": {"imageUri": "us-docker.pkg.dev/p/r/i"}}]}  # fmt: skip
    labels = {"vertexrig_claim": "abc", "vertexrig_run": "cpu", "team": "vision"}
    Path("job.json").write_text(json.dumps({"displayName": "cpu", "labels": labels, "jobSpec": spec}))
    code, out, _ = typed("convert", "job.json")
    assert code == 0 and "labels: {team: vision}" in out


SWEEP = """\
sweeps:
  s:
    job: cpu
    max_trial_count: 10
    study: {metrics: {accuracy: MAXIMIZE}, parameters: {--learning_rate: {double_value_spec: {min_value: 0.1, max_value: 1}}}}
"""


@pytest.mark.parametrize(
    ("more", "words", "message"),
    [
        (SWEEP, ["check"], "sweeps.s.study.parameters.--learning_rate: a key is a flag without its dashes: write learning_rate,"),
        ("schedules: {n: {run: cpu, cron: '@daily'}}\n", ["schedule", "list"], "schedules.n.cron: '@daily' is not unix-cron: write 0 0 * * *"),
        ("schedules: {n: {run: cpu, cron: 0 2 * * *, time_zone: Berlin}}\n", ["schedule", "list"],
         "schedules.n.time_zone: 'Berlin' is not a time zone of the tz database. Did you mean 'Europe/Berlin'?"),
        ("  tpu: {topology: tpu, machine_type: ct5lp-hightpu-4t, tpu_topology: 2x2, timeout: 60s}\n", ["render", "tpu"],
         "These have one: jax, pytorch, tf; write one under trainer: build: {framework: jax}"),
        ("  x: {args: {'': 3}}\n", ["check"], "jobs.x.args.: the key is empty; it is the name of a flag, without its dashes"),
    ],
)  # fmt: skip
def test_half_right_values_name_the_right_ones(typed: Typed, more: str, words: list[str], message: str) -> None:
    """What other tools take (`@daily`, `Berlin`, flags with dashes) is refused with what to write here."""
    write(JOB + more)
    code, _, err = typed(*words)
    assert code == 2 and message in err, err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "cpu"], "there is no command 'run'. Did you mean 'rehearse' or 'submit'?"),
        (["lint"], "there is no command 'lint'. Did you mean 'check'?"),
        (["local", "start"], "there is no command 'start'. Did you mean 'up'?"),
        (["chek"], "there is no command 'chek'. Did you mean 'check'?"),
        (["check", "--json"], "No such option '--json': write --format json"),
        (["check", "--sarif"], "No such option '--sarif': write --format sarif"),
        (["report", "cpu", "--html"], "No such option '--html': write --format html"),
        (["report", "cpu", "--md"], "No such option '--md': write --format markdown"),
        (["render", "cpu", "--epochs=3"], "No such option '--epochs'. For an argument of the trainer, write --set args.epochs=VALUE"),
        (["render", "cpu", "--config", "x.yaml"], "No such option '--config': name a job of the project file. `vertexrig check FILE`"),
        (["render", "cpu", "--set", "cpu.args.epochs=3"], "Leave the name out: --set args.epochs=VALUE"),
    ],
)  # fmt: skip
def test_words_of_other_tools_name_those_of_here(typed: Typed, words: list[str], message: str) -> None:
    """Verbs and options that gcloud, docker or linters have lead to the ones that do it here."""
    code, _, err = typed(*words)
    assert code == 2 and message in err


@pytest.mark.parametrize(
    ("given", "proposed", "args"),
    [
        ("args.epochs=5", "args.0=--epochs=5", ["--epochs=5", "--optimizer", "adam"]),
        ("args.optimizer=sgd", "args.2=sgd", ["--epochs=3", "--optimizer", "sgd"]),
        ("args.learning_rate=0.5", "args.3=--learning_rate=0.5", ["--epochs=3", "--optimizer", "adam", "--learning_rate=0.5"]),
        ("args.augment", "args.3=--augment", ["--epochs=3", "--optimizer", "adam", "--augment"]),
        ("args.epochs-", "args.0-", ["--optimizer", "adam"]),
    ],
)  # fmt: skip
def test_a_flag_of_args_that_are_a_list_is_set_by_its_place(
    typed: Typed, given: str, proposed: str, args: list[str]
) -> None:
    """`--set args.NAME` of a list is refused with the words that set it, and these words set it."""
    write('  cpu: {machine_type: n1-standard-4, timeout: 60s, args: ["--epochs=3", "--optimizer", "adam"]}\n')
    code, _, err = typed("render", "cpu", "--set", given)
    assert code == 2 and err.rstrip().endswith(f"args is a list here: write --set {proposed}"), err
    loaded = config.load(None, overrides=(proposed,), target="cpu")
    assert list(loaded.project.jobs["cpu"].args) == args


def test_every_verb_that_is_proposed_is_there() -> None:
    """The table of verbs that go by other names elsewhere names verbs of here only, and no verb twice."""
    from vertexrig.cli import VERBS, vertexrig

    for name, proposed in vertexrig.others.items():
        assert name not in VERBS and all(one.split()[0] in VERBS or one.startswith("--") for one in proposed)


STUDY = """\
studySpec:
  metrics: [{metricId: accuracy, goal: MAXIMIZE}]
  parameters: [{parameterId: learning_rate, doubleValueSpec: {minValue: 0.01, maxValue: 0.1}, scaleType: UNIT_LOG_SCALE}]
trialJobSpec:
  workerPoolSpecs:
  - {machineSpec: {machineType: n1-standard-4}, replicaCount: 1, containerSpec: {imageUri: us-docker.pkg.dev/p/r/i}}
"""


def test_a_study_without_its_counts_is_converted_as_gcloud_runs_it(typed: Typed) -> None:
    """Gcloud's documentation gives the numbers of trials by flags, so its files have none: gcloud's defaults count."""
    Path("hp.yaml").write_text(STUDY)
    code, out, err = typed("convert", "hp.yaml")
    assert code == 0 and "max_trial_count: 1" in out and "    spec:" not in out
    assert "maxTrialCount is not in the file: gcloud takes it from --max-trial-count, and 1 without it" in err
    Path("made.yaml").write_text(out)
    assert typed("check", "--file", "made.yaml", "hp")[0] == 0
    assert "1 trial at most, 1 at a time" in typed("explain", "hp.yaml")[1]


def test_a_trainers_own_names_stay_as_they_are(typed: Typed) -> None:
    """A fix that names a metric or flag of the trainer in camelCase keeps its spelling."""
    from vertexrig.workspace.source_keys import in_keys

    assert (
        in_keys("write valAccuracy, or report acc in the trainer") == "write valAccuracy, or report acc in the trainer"
    )
    assert in_keys("write --batchSize, or learningRate=1") == "write --batchSize, or learningRate=1"
    assert in_keys("write machineSpec.machineType") == "write machine_type"
    assert (
        in_keys("write acceleratorType: TPU_V3 and acceleratorCount: 8")
        == "write accelerator_type: TPU_V3 and accelerator_count: 8"
    )
    assert in_keys("use an integerValueSpec, or remove scaleType") == "use an integer_value_spec, or remove scale_type"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("trigger: {allow: {image: {}}}\n", "callers can never set 'image'"),
        ("schedules: {weekly: {cron: '0 3 * * 1', run: cpu, set: {machine_type: n1-standard-16}}}\n", "machine_type"),
    ],
)
def test_check_of_a_project_holds_what_the_function_would_refuse(typed: Typed, section: str, said: str) -> None:
    """What `function` would refuse to start with, and each schedule at its first run, ends `check` with its line."""
    assert typed("check")[0] == 0
    write(f"{JOB}{section}")
    code, _, message = typed("check")
    assert code == 2 and said in message and re.search(r"vertexrig\.yaml:\d+: ", message)
    assert typed("check", "cpu")[0] == 0


def test_nothing_is_deployed_from_a_shell_of_the_local_vertex(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    """`function deploy --run` in a shell whose jobs go to the local Vertex calls nothing; without --run it prints."""
    monkeypatch.setenv("VERTEXRIG_AIPLATFORM", "http://127.0.0.1:1/vertex/v1")
    code, printed, message = typed("function", "deploy", "--run")
    assert code == 2 and "local Vertex" in message and not printed and not Path("build").exists()
    code, printed, _ = typed("function", "deploy")
    assert code == 0 and "gcloud run deploy" in printed
