"""The command line: results on stdout, messages on stderr, exit codes as promised."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tools import INSTALLED, typed, vertexrig

PROJECT = """
project: p
region: us-central1
bucket: gs://my-bucket
trainer: {package_uris: [gs://my-bucket/t-1.0.tar.gz]}
jobs:
  good: {machine_type: n1-standard-4, timeout: 60s, args: {epochs: 1}}
  bad: {topology: gpu, machine_type: n1-standard-4, accelerator_type: NVIDIA_TESLA_T4, accelerator_count: 3, timeout: 60s}
sweeps:
  sweep:
    job: good
    max_trial_count: 30
    study: {metrics: {accuracy: MAXIMIZE}, parameters: {lr: {double_value_spec: {min_value: 0.1, max_value: 1}, scale_type: UNIT_LINEAR_SCALE}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "vertexrig.yaml").write_text(PROJECT)
    return tmp_path


def test_render_writes_the_yaml_and_prints_the_command(folder: Path) -> None:
    """A good job: the file is written, stdout holds the gcloud command and nothing else, exit code 0."""
    done = typed("render", "good", cwd=folder)
    assert done.exit_code == 0, done.stderr
    words = shlex.split(done.stdout)
    assert words[:4] == ["gcloud", "ai", "custom-jobs", "create"] and "--config=build/jobs/good.yaml" in words
    assert (folder / "build/jobs/good.yaml").read_text().startswith("# vertexrig: job good")


def test_render_says_once_that_images_are_past_their_date(folder: Path) -> None:
    """One line for all jobs: the image, its date, the switch; `check` has no warning of it, `check --strict` fails, and a
    project that silences the rule hears nothing.
    """
    said = "image tf-cpu.2-17.py310 passed its end-of-availability date (2026-07-11); Vertex AI may refuse it"
    done = typed("render", "good", "sweep", cwd=folder)
    assert done.stderr.count(said) == 1 and "instead: write `image: build` in vertexrig.yaml" in done.stderr
    assert "warning" not in done.stderr
    assert typed("check", "good", cwd=folder).exit_code == 0
    done = typed("check", "good", "--strict", cwd=folder)
    assert done.exit_code == 1 and "warning[image-availability]" in done.stdout
    project = PROJECT.replace("{package_uris", "{image: '${IMAGE:-tf-2.17}', package_uris")
    (folder / "vertexrig.yaml").write_text(project)
    shown = typed("render", "good", cwd=folder).stderr
    assert f"{said}. To build your own image instead: `IMAGE=build " in shown and " render good`" in shown
    own = project.replace("timeout: 60s, args", "image: tf-2.17, timeout: 60s, args")
    (folder / "vertexrig.yaml").write_text(own)  # IMAGE does not change an image that the job names itself
    shown = typed("render", "good", cwd=folder).stderr
    assert f"{said}. To build your own image instead: write `image: build` in vertexrig.yaml" in shown
    assert typed("render", "good", "--info", cwd=folder).stderr.count("end-of-availability") == 1
    (folder / "vertexrig.yaml").write_text(f"{PROJECT}silence: {{image-availability: mirrored}}\n")
    assert "end-of-availability" not in typed("render", "good", cwd=folder).stderr


def test_a_run_needs_a_bucket(tmp_path: Path) -> None:
    """`render --run` of a job without an output folder says that the project file has no bucket."""
    job = "{machine_type: n1-standard-4, container: {image_uri: gcr.io/p/i, command: [a]}}"
    (tmp_path / "vertexrig.yaml").write_text(f"project: p\nregion: us-central1\njobs:\n  own: {job}\n")
    done = typed("render", "own", "--run", "new", cwd=tmp_path)
    assert done.exit_code == 2 and "own has no output folder, because the project file has no bucket" in done.stderr


def test_render_with_an_error_ends_with_1_and_no_command(folder: Path) -> None:
    """A job that would fail: the finding with the project file's line on stderr, no command, exit code 1."""
    done = typed("render", "bad", cwd=folder)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "vertexrig.yaml:8: error[accelerator-count]: n1-standard-4 cannot have 3" in done.stderr
    assert (folder / "build/jobs/bad.yaml").is_file()


def test_render_to_stdout(folder: Path) -> None:
    """`--output -` puts the YAML on stdout, and only that."""
    done = vertexrig("render", "sweep", "-o", "-", "--set", "max_trial_count=40", cwd=folder)
    assert done.returncode == 0 and "maxTrialCount: 40" in done.stdout and "gcloud" not in done.stdout


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("render", "god"), 2, "no job or sweep 'god'. Did you mean 'good'"),
        (("render", "good", "--set", "machine_typ=x"), 2, "Did you mean 'machine_type'"),
        (("render", "good", "bad", "-o", "x"), 2, "--output takes one job"),
        (("render",), 2, "Missing argument"),
        (("render", "good", "--file", "nope.yaml"), 2, "there is no file nope.yaml"),
        (("rendr", "good"), 2, "there is no command 'rendr'. Did you mean 'render'"),
        (("check", "bad", "--format", "json"), 1, "error: 1 error"),
        (("check", "nope.yaml"), 2, "there is no file nope.yaml"),
        (("check", "/proc/self/fdinfo"), 2, "has no YAML or JSON file"),
        (("catalog", "machines", "zzz"), 2, "no row of machines contains 'zzz'"),
        (("catalog", "machine"), 2, "machine"),
        (("explain", "god"), 2, "Did you mean 'good'"),
        (("render", "good", "--set", "templates=" + "x" * 5000), 2, "File name too long"),
        (("local", "up", "--root", "vertexrig.yaml"), 2, "File exists"),
        (("package", "--trainer", "x\udcff"), 2, "error: "),
        (("jobs", "--limit=-1"), 2, "is not in the range"),
        (("watch", "1", "--poll=-1"), 2, "is not in the range"),
        (("cancel", "1", "--poll=nan"), 2, "nan is not a number of seconds"),
        (("logs", "1", "--poll=inf"), 2, "is not in the range"),
        (("schedule", "list", "--next=-1"), 2, "is not in the range"),
        (("local", "up", "--slow-start=nan"), 2, "nan is not a number of seconds"),
        (("local", "up", "--speed=2"), 2, "give --pace recorded with it"),
        (("local", "preempt", "x", "--grace=2h"), 2, "'2h' is not a valid"),
        (("package",), 2, "trainer_pkg"),
        (("rehearse", "bad"), 1, "bad would fail"),
        (("init",), 2, "exists already"),
        (("render", "good", "-o", "/proc/x/y"), 2, "cannot be written"),
    ],
)
def test_bad_usage_is_one_message_and_its_code(folder: Path, args: tuple[str, ...], code: int, words: str) -> None:
    """Whatever is asked wrongly gives one message on stderr, the promised exit code, and never a traceback."""
    done = typed(*args, cwd=folder)
    assert done.exit_code == code, done.stderr
    assert words in done.stderr and "Traceback" not in done.stderr


def test_a_service_that_is_not_there_is_told_in_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who cannot be reached, where, and why; a name that is not text is refused."""
    monkeypatch.setenv("VERTEXRIG_AIPLATFORM", "http://127.0.0.1:9/aiplatform")
    nobody = typed("watch", "good", cwd=folder)
    assert nobody.exit_code == 3
    assert (
        nobody.stderr
        == "error: Vertex AI cannot be reached at http://127.0.0.1:9/aiplatform/v1: Connection refused. If a local "
        'Vertex was there, start it again with `vertexrig local up --detach`, then `eval "$(vertexrig local env)"`\n'
    )
    no_text = typed("watch", "\udcff", cwd=folder)
    assert no_text.exit_code == 2 and "bytes that are not text" in no_text.stderr


def test_check_takes_many_files_and_stdin_in_one_process(folder: Path) -> None:
    """Files and `-` are checked together, each said what it was taken for, without a project at hand, too."""
    job = "workerPoolSpecs:\n- machineSpec: {machineType: foo-bar-1}\n  replicaCount: 5\n  containerSpec: {imageUri: a/b}\n"
    (folder / "a.yaml").write_text(job)
    (folder / "b.yaml").write_text("studySpec: {}\nmaxTrialCount: 3\n")
    (folder / "vertexrig.yaml").unlink()
    done = vertexrig(
        "check", "a.yaml", "b.yaml", "-", "--verbose", "--format", "json", cwd=folder, stdin="trainingInput: {}\n"
    )
    assert done.returncode == 1
    assert "a.yaml: read as a CustomJobSpec" in done.stderr
    assert "b.yaml: read as a HyperparameterTuningJob" in done.stderr
    found = {(one["file"], one["id"]) for one in json.loads(done.stdout)["findings"]}
    assert {("a.yaml", "chief-replicas"), ("-", "legacy-ai-platform")} <= found


def test_silenced_findings_stay_away_with_their_reason(folder: Path) -> None:
    """A rule silenced in the project file or in the job gives no finding; an unknown rule is an error."""
    text = PROJECT.replace("bad: {", "bad: {silence: {accelerator-count: we know}, ")
    (folder / "vertexrig.yaml").write_text(text)
    assert typed("check", "bad", cwd=folder).exit_code == 0
    (folder / "vertexrig.yaml").write_text(text.replace("accelerator-count:", "accelerator-cnt:"))
    done = typed("check", "bad", cwd=folder)
    assert done.exit_code == 2 and "there is no rule 'accelerator-cnt'. Did you mean 'accelerator-count'" in done.stderr


def test_catalog_has_the_overlay_of_the_project_above(tmp_path: Path) -> None:
    """In a folder of the project, too, its overlay is laid over the catalog, as for every other verb."""
    (tmp_path / "vertexrig.yaml").write_text("project: p\nregion: us-central1\ncatalog: mine.yaml\n")
    (tmp_path / "mine.yaml").write_text("machines:\n  n1-standard-4: {memory_gb: 99}\n")
    (tmp_path / "trainer").mkdir()
    for folder in (tmp_path, tmp_path / "trainer"):
        done = typed("catalog", "machines", "n1-standard-4", "--format", "json", cwd=folder)
        assert [row["memory_gb"] for row in done.document["machines"]] == [99], done.stderr


def test_checks_lists_every_rule(tmp_path: Path) -> None:
    """`check --list-rules` lists the rules of the strict reading and of the checks, each with severity, sentence, source."""
    done = typed("check", "--list-rules", "--format", "json", cwd=tmp_path)
    rules = done.document["rules"]
    ids = [rule["id"] for rule in rules]
    assert len(ids) == len(set(ids)) > 60 and {"unknown-field", "accelerator-count", "parameter-unknown"} <= set(ids)
    assert all(rule["summary"] and rule["source"] and rule["severity"] and rule["docs"] for rule in rules)
    assert done.stderr == ""
    text = typed("check", "--list-rules", cwd=tmp_path).stdout
    assert [line.split()[0] for line in text.splitlines()[2:]] == ids
    refused = typed("check", "--list-rules", "job.yaml", cwd=tmp_path)
    assert (refused.exit_code, refused.stdout) == (2, "") and "--list-rules checks nothing" in refused.stderr


def test_a_verb_loads_no_more_than_it_needs(folder: Path) -> None:
    """`--help` loads neither the catalog nor the templates nor the messages; without a table, what draws them is not loaded."""
    program = (
        "import sys; from vertexrig.cli import run; code = run(['--help']); "
        "heavy = [m for m in ('jinja2', 'yaml', 'google.protobuf', 'vertexrig.catalog') if m in sys.modules]; "
        "code += run(['render', 'good']) + run(['check', 'good']); "
        "sys.exit(f'loaded {heavy}' if heavy or code or 'rich' in sys.modules else 0)"
    )
    env = {**os.environ, "PYTHONPATH": str(INSTALLED)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [(), ("--no-check",)])
@pytest.mark.parametrize("silence", ["", "silence: {pool-empty-gcloud: it goes through the API}, "])
def test_a_file_that_gcloud_refuses_is_submitted(tmp_path: Path, words: tuple[str, ...], silence: str) -> None:
    """A job with an empty pool, and each of its candidates, is created through the API, whatever of it is checked."""
    job = (
        "{topology: multi-worker, machine_type: n1-standard-4, timeout: 60s, worker: {replica_count: 1}, evaluator: {}"
    )
    text = f"{PROJECT.partition('jobs:')[0]}jobs:\n  good: {job}, {silence}candidates: [{{strategy: SPOT}}]}}\n"
    (tmp_path / "vertexrig.yaml").write_text(text)
    rows = typed("render", "good", "--format", "json", *words, cwd=tmp_path).document["jobs"]
    assert [(" submit good" in row["command"], "gcloud" in row["command"]) for row in rows] == [(True, False)] * 2


OWN = """
project: ${PROJECT:-my-project}
region: us-central1
bucket: ${BUCKET:-gs://my-bucket}
trainer: {path: train.py, module: train, image: "${IMAGE:-tf-2.17}"}
jobs:
  b:
    machine_type: n1-standard-4
    timeout: 600s
    env: {API_TOKEN: "${API_TOKEN:-none}"}
    candidates: [{machine_type: n1-standard-8}]
  c: {machine_type: n1-standard-4, timeout: 600s, image: "${IMAGE_C:-tf-2.17}"}
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a script of its own, and defaults for variables that are not set."""
    for name in ("PROJECT", "BUCKET", "IMAGE", "IMAGE_C", "API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "train.py").write_text("import argparse, tensorflow\nargparse.ArgumentParser().parse_args()\n")
    (tmp_path / "vertexrig.yaml").write_text(OWN)
    return tmp_path


def test_printed_commands_set_the_variables_of_the_call(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that render prints sets the variables that replaced defaults, but no secret; pasted into a shell without them,
    it means the same image. A message sets only those that it would show.
    """
    assert "=" not in typed("render", "c", cwd=own).stdout.split("vertexrig package")[0]
    monkeypatch.setenv("API_TOKEN", "a-long-token-value")
    monkeypatch.setenv("BUCKET", "gs://another-bucket")
    (line, *_) = typed("render", "b", cwd=own).stdout.splitlines()
    assert line.startswith("BUCKET=gs://another-bucket ") and line.endswith(" package b --upload")
    monkeypatch.setenv("IMAGE", "build")
    done = typed("render", "b", cwd=own)
    line = done.stdout.splitlines()[0]
    assert line.startswith("BUCKET=gs://another-bucket IMAGE=build ") and line.endswith(" image b --push")
    assert "a-long-token-value" not in done.stdout
    words = shlex.split(line)
    variables = dict(word.split("=", 1) for word in words if "=" in word)
    assert variables == {"BUCKET": "gs://another-bucket", "IMAGE": "build"}
    for name in ("BUCKET", "IMAGE", "API_TOKEN"):
        monkeypatch.delenv(name)
    view = vertexrig("render", "b", "-o", "-", "--no-check", cwd=own, env={**os.environ, **variables})
    assert "gs://another-bucket/runs/b" in view.stdout and "us-central1-docker.pkg.dev" in view.stdout
    monkeypatch.setenv("IMAGE", "build")
    monkeypatch.setenv("BUCKET", "gs://another-bucket")
    said = typed("explain", "b", "--set", "spec.nope=1", cwd=own).stderr  # a message that proposes `check`
    assert "`IMAGE=build " in said and "BUCKET=" not in said


def test_a_candidate_s_commands_have_the_values(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of a candidate can be pasted: they have a variable's value, as those of the job have on stdout."""
    monkeypatch.setenv("PROJECT", "other-project-77")
    done = typed("render", "b", cwd=own)
    assert "--project=other-project-77" in done.stdout
    assert "--project=other-project-77" in done.stderr and "${PROJECT}" not in done.stderr


def test_a_candidate_comes_after_the_one_that_has_commands(own: Path) -> None:
    """Where an earlier candidate has an error and no command, the sentence before the next one's does not name it."""
    text = "project: p\nregion: us-central1\nbucket: gs://some-bucket\njobs: {j: {machine_type: n1-standard-4, boot_disk_size_gb: SIZE, timeout: 60s, CANDIDATES, CONTAINER}}\n"
    text = text.replace("CONTAINER", "container: {image_uri: us-docker.pkg.dev/p/r/i:1}")
    text = text.replace("CANDIDATES", "candidates: [{boot_disk_size_gb: 10}, {boot_disk_size_gb: 200}]")
    for size, sentence in (
        ("100", "j: if candidate 1 gets no machines, run candidate 3:"),
        ("20", "j: commands of candidate 3:"),
    ):
        (own / "vertexrig.yaml").write_text(text.replace("SIZE", size))
        done = typed("render", "j", cwd=own)
        assert done.exit_code == 1 and sentence in done.stderr and "run candidate 2" not in done.stderr, done.stderr


def test_the_way_to_an_image_of_ones_own_names_what_gave_the_old_one(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image that --set gives is changed by another --set, and an image of IMAGE by another IMAGE."""

    def way(*words: str) -> str:
        return typed("render", *words, cwd=own).stderr.partition("your own image instead: ")[2].splitlines()[0]

    assert way("b", "--set", "image=tf-2.17") == "replace `--set image=tf-2.17` with `--set image=build`"
    long = "jobs.b.container.image_uri=us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest"
    assert way("b", "--set", long) == f"replace `--set {long}` with `--set jobs.b.image=build`"
    both = typed("render", "b", "c", "--set", "jobs.b.image=tf-2.17", cwd=own).stderr
    assert "replace `--set jobs.b.image=tf-2.17` with `--set jobs.b.image=build`" in both
    assert "instead: write `image: build` in vertexrig.yaml" in both  # c names the image in the file
    monkeypatch.setenv("IMAGE", "tf-2.17")
    assert way("b").startswith("`IMAGE=build ") and way("b").count("IMAGE=") == 1
    assert way("b", "-o", "my.yaml", "--run", "x1").endswith(" render b --output my.yaml --run x1`")


def test_a_name_twice_counts_once(folder: Path) -> None:
    """Render and check of a job that is named twice print what they print for the job."""
    assert typed("render", "good", "good", cwd=folder) == typed("render", "good", cwd=folder)
    assert typed("check", "bad", "bad", cwd=folder).stdout == typed("check", "bad", cwd=folder).stdout


def test_a_project_file_from_stdin_is_refused(folder: Path) -> None:
    """The commands that a verb prints name the project file, which stdin cannot be."""
    done = vertexrig("render", "good", "--file", "-", cwd=folder, stdin=PROJECT)
    assert done.returncode == 2 and "--file - is not possible" in done.stderr and done.stdout == ""


@pytest.mark.parametrize("words", [("b",), ("b", "--set", "trainer.image=tf-2.17")], ids=str)
def test_a_trainer_that_is_not_there_is_said(own: Path, words: tuple[str, ...]) -> None:
    """Whichever way the image is chosen, a wrong trainer.path is the error."""
    (own / "vertexrig.yaml").write_text(OWN.replace("IMAGE:-tf-2.17", "IMAGE:-prebuilt"))
    done = typed("render", *words, "--set", "trainer.path=nope", cwd=own)
    assert done.exit_code == 2 and "trainer.path: there is no folder or script nope\n" in done.stderr
    (own / "digits").mkdir()
    done = typed("render", *words, "--set", "trainer.path=digts", cwd=own)
    assert "trainer.path: there is no folder or script digts. Did you mean 'digits'?" in done.stderr
