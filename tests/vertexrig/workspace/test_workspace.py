"""A project at work: what the checks are given, and where their findings are placed."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.tools import REPOSITORY
from vertexrig.errors import VertexrigError
from vertexrig.finding import Severity
from vertexrig.project import config
from vertexrig.workspace import Workspace
from vertexrig.workspace.source_keys import SourceKeys

TRAINER = f"trainer: {{path: '{REPOSITORY / 'trainer_pkg'}', image: custom, custom_image: us-docker.pkg.dev/p/r/i:1}}\n"


def workspace(jobs: str) -> Workspace:
    text = f"project: p\nbucket: gs://my-bucket\n{TRAINER}{jobs}"
    return Workspace(config.loads(text, file=Path("vertexrig.yaml"), environ={}))


def test_a_custom_image_is_held_against_the_trainer_it_runs() -> None:
    """A job in the project's own image is checked against the trainer's flags; one in another container is not."""
    job = "machine_type: n1-standard-4, timeout: 60s, args: {learning_rat: 1}"
    other = "container: {image_uri: us-docker.pkg.dev/p/r/other:1}"
    work = workspace(f"jobs:\n  ours: {{{job}}}\n  theirs: {{{job}, {other}}}\n")
    ids = {name: [finding.id for finding in work.prepare(name).findings] for name in ("ours", "theirs")}
    assert "argument-unknown" in ids["ours"] and "argument-unknown" not in ids["theirs"]


def test_a_program_is_read_once_for_all_that_run_it() -> None:
    """Jobs of one custom image, and their candidates, are held against one reading of its program."""
    container = "container: {image_uri: us-docker.pkg.dev/p/r/i:1, command: [python, -m, trainer.task]}"
    ours = (
        f"machine_type: n1-standard-4, candidates: [{{machine_type: n1-standard-8}}], {container}, args: {{epochs: 1}}"
    )
    work = workspace(f"jobs:\n  one: {{{ours}}}\n  two: {{{ours.replace('epochs: 1', 'epochs: 2')}}}\n")
    ways = [way for name in ("one", "two") for way in work.prepare_candidates(name)]
    sources = [way.workspace.context(way.document).trainer for way in ways]
    assert len(sources) == 4 and sources[0] is not None and sources[0].flags
    assert all(source is not None and source.flags is sources[0].flags for source in sources)


def test_without_a_trainer_at_hand_nothing_that_reads_one_is_loaded() -> None:
    """A custom image is checked where its folder is not, as in the Cloud Function, which does not have pyflakes."""
    program = (
        "import sys; from pathlib import Path; from vertexrig.project import config; sys.modules['pyflakes'] = None\n"
        "from vertexrig.workspace import Workspace\n"
        "text = 'project: p\\nbucket: gs://my-bucket\\ntrainer: {path: gone, image: custom, custom_image: x/y:1}\\n'\n"
        "text += 'jobs: {j: {machine_type: n1-standard-4}}'\n"
        "Workspace(config.loads(text, file=Path('vertexrig.yaml'), environ={})).prepare('j')\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, check=True, timeout=60)


def test_the_key_of_a_job_is_checked() -> None:
    """A Cloud KMS key, which is no part of the YAML, is held against its form and the job's region, at its line."""
    job = "machine_type: n1-standard-4, timeout: 60s, args: {epochs: 1}"
    key = "projects/p/locations/europe-west4/keyRings/r/cryptoKeys/k"
    study = "{metrics: {accuracy: MAXIMIZE}, parameters: {epochs: {integer_value_spec: {min_value: 1, max_value: 9}}}}"
    sweep = f"s: {{job: j, max_trial_count: 2, study: {study}}}"
    work = workspace(f"jobs:\n  j:\n    {{{job},\n     kms_key_name: {key}}}\nsweeps:\n  {sweep}\n")
    for name in ("j", "s"):
        (found,) = (one for one in work.prepare(name).findings if one.id == "kms-key")
        assert (found.severity, found.line) == (Severity.ERROR, 7) and "europe-west4" in found.message, name


def test_findings_stand_at_the_line_the_user_edits() -> None:
    """A finding on the rendered YAML points at the nearest key of the project file: job, role, study, label."""
    jobs = (
        "labels: {Bad: x}\n"  # line 4
        "jobs:\n"
        "  j:\n"
        "    topology: multi-worker\n"
        "    machine_type: n1-standard-4\n"
        "    timeout: 60s\n"
        "    worker:\n"
        "      machine_type: foo-bar-1\n"  # line 11
        "sweeps:\n"
        "  s:\n"
        "    job: j\n"
        "    max_trial_count: 3\n"
        "    study:\n"
        "      metrics: {accuracy: MAXIMIZE}\n"
        "      parameters:\n"
        "        learning_rate:\n"
        "          double_value_spec:\n"
        "            min_value: 2\n"
        "            max_value: 1\n"
    )
    work = workspace(jobs)
    lines = {finding.id: finding.line for finding in work.prepare("s").findings}
    assert lines["labels"] == 4
    assert lines["machine-unknown"] == 11
    assert lines["parameter-bounds"] == 21


def test_a_bound_left_out_because_it_is_0_is_no_error() -> None:
    """Clients of the REST API leave out a bound of 0: one missing bound is a warning if 0 fits, two are an error."""
    work = workspace("jobs: {}\n")
    text = "studySpec: {{metrics: [{{metricId: a, goal: MAXIMIZE}}], parameters: [{{parameterId: x, doubleValueSpec: {}}}]}}\nmaxTrialCount: 10\n"
    for spec, severity in (
        ("{maxValue: 1}", Severity.WARNING),
        ("{maxValue: -1}", Severity.ERROR),
        ("{}", Severity.ERROR),
    ):
        _, findings = work.check_text(text.format(spec), file="f.yaml")
        assert [finding.severity for finding in findings if finding.id == "parameter-bounds"] == [severity]


STUDY = "max_trial_count: 2, study: {metrics: {a: MAXIMIZE}, parameters: {x: {double_value_spec: {min_value: 0, max_value: 1}}}}}}\n"
ENVIRONMENT = {"PROJECT": "p", "BUCKET": "gs://b-b", "GOOGLE_CLOUD_PROJECT": "p"}


POSITIONS = """\
project: p
bucket: gs://my-bucket
trainer:
  package_uris: [gs://my-bucket/t.tar.gz]
  image: tf-2.17
jobs:
  j:
    topology: multi-worker
    machine_type: n1-standard-4
    enable_web_access: true
    args:
      rate: 0.1
    env:
      MODE: fast
    worker:
      replica_count: 2
      machine_type: n1-standard-8
      args: [--plain, --other=1]
    evaluator:
      machine_type: n1-standard-16
    spec:
      scheduling:
        restart_job_on_worker_restart: true
sweeps:
  s:
    job: j
    max_trial_count: 3
    args:
      depth: 2
    study:
      metrics: {accuracy: MAXIMIZE}
      parameters:
        rate:
          double_value_spec:
            min_value: 0.001
            max_value: 0.1
        kind:
          categorical_value_spec:
            values: [a, b]
"""
POOL = "workerPoolSpecs[{}].pythonPackageSpec"


@pytest.mark.parametrize(
    ("name", "path", "line"),
    [
        ("j", "workerPoolSpecs[0].machineSpec.machineType", 9),
        ("j", "workerPoolSpecs[1].machineSpec.machineType", 17),
        ("j", "workerPoolSpecs[1].machineSpec.acceleratorCount", 15),  # missing: the role it would be in
        ("j", "workerPoolSpecs[0].machineSpec.acceleratorCount", 7),
        ("j", "workerPoolSpecs[1].replicaCount", 16),
        ("j", "workerPoolSpecs[1]", 15),
        ("j", f"{POOL.format(0)}.args[0]", 12),
        ("j", f"{POOL.format(1)}.args[1]", 18),
        ("j", f"{POOL.format(3)}.args[0]", 12),  # inherited from the job
        ("j", f"{POOL.format(0)}.args", 12),
        ("j", f"{POOL.format(0)}.env[0].value", 14),
        ("j", f"{POOL.format(0)}.env[0].name", 14),
        ("j", f"{POOL.format(0)}.executorImageUri", 5),
        ("j", f"{POOL.format(0)}.packageUris[0]", 4),
        ("j", f"{POOL.format(0)}.pythonModule", 3),  # a default: the mapping it would be in
        ("j", "enableWebAccess", 10),
        ("j", "scheduling.restartJobOnWorkerRestart", 23),
        ("j", "baseOutputDirectory.outputUriPrefix", 2),
        ("j", "network", 7),
        ("s", "maxTrialCount", 27),
        ("s", "trialJobSpec.network", 7),
        ("s", f"trialJobSpec.{POOL.format(0)}.args[0]", 29),
        ("s", "studySpec.metrics[0].goal", 31),
        ("s", "studySpec.parameters[0]", 33),
        ("s", "studySpec.parameters[0].doubleValueSpec", 34),
        ("s", "studySpec.parameters[0].doubleValueSpec.maxValue", 36),
        ("s", "studySpec.parameters[1].categoricalValueSpec.values[1]", 39),
        ("s", "studySpec.algorithm", 30),
        ("s", "parallelTrialCount", 25),
    ],
)  # fmt: skip
def test_a_value_comes_from_the_key_that_gives_it(name: str, path: str, line: int) -> None:
    """Each value of a rendered job leads to the line of the project file that it was made of, whatever its key is called."""
    loaded = config.loads(POSITIONS, file=Path("vertexrig.yaml"), environ={})
    found = loaded.origins.of(keys(loaded, name).find(path)) or loaded.origins.of(
        ("jobs" if name == "j" else "sweeps", name)
    )
    assert found == line


def test_values_of_a_spec_with_both_spellings_of_a_key_and_labels() -> None:
    """A field written twice in `spec:` leads to the later key, and a label's name is no field."""
    spec = "{service_account: a@p.iam.gserviceaccount.com, serviceAccount: b@p.iam.gserviceaccount.com, labels: {my_team: x}}"
    work = workspace(f"jobs: {{j: {{machine_type: n1-standard-4, timeout: 60s, spec: {spec}}}}}\n")
    prepared = work.prepare("j")
    found = SourceKeys(work.loaded, prepared.view, prepared.document)
    assert prepared.document.data["serviceAccount"].startswith("b@")
    assert found.keys["serviceAccount",] == ("jobs", "j", "spec", "serviceAccount")
    assert found.keys["labels", "my_team"] == ("jobs", "j", "spec", "labels", "my_team")


def test_the_display_name_of_a_sweep_is_its_own() -> None:
    """A sweep without a display name does not take that of its job, so no key of the file gives it."""
    text = "jobs: {j: {machine_type: n1-standard-4, timeout: 60s, display_name: other}}\nsweeps: {s: {job: j, "
    prepared = workspace(text + STUDY.removesuffix("}\n") + "}\n").prepare("s")
    assert prepared.view.display_name != "other" and ("display_name",) not in prepared.view.source_keys


def test_requirements_are_those_of_the_trainer_that_is_checked(tmp_path: Path) -> None:
    """With another trainer's folder, its own requirements count, not those of the project's trainer."""
    for name, listed in (("mine", ""), ("other", "requests-toolbelt\n")):
        (tmp_path / name / "app").mkdir(parents=True)
        (tmp_path / name / "app/__init__.py").write_text("")
        (tmp_path / name / "app/task.py").write_text("import requests_toolbelt\nimport tensorflow as tf\n")
        (tmp_path / name / "setup.py").write_text(
            f"from setuptools import setup\nsetup(name='app', version='1', packages=['app'], install_requires={listed.split()!r})\n"
        )
    text = "project: p\nbucket: gs://my-bucket\ntrainer: {path: mine, module: app.task, image: tf-2.17}\njobs: {j: {machine_type: n1-standard-4}}\n"
    loaded = config.loads(text, file=tmp_path / "vertexrig.yaml", environ={})
    of = {
        folder: [one.id for one in Workspace(loaded, trainer=folder).prepare("j").findings]
        for folder in (None, tmp_path / "other")
    }
    assert "requirements" in of[None] and "requirements" not in of[tmp_path / "other"]


def test_a_value_comes_from_the_override_that_gives_it() -> None:
    """A value of the command line leads to its --set."""
    loaded = config.loads(
        POSITIONS, file=Path("vertexrig.yaml"), environ={}, target="j", overrides=["args.rate=3", "worker.replica_count=4"]
    )  # fmt: skip
    found = keys(loaded, "j")
    assert loaded.origins.of(found.find(f"{POOL.format(0)}.args[0]")) == "args.rate=3"
    assert loaded.origins.of(found.find("workerPoolSpecs[1].replicaCount")) == "worker.replica_count=4"


OF_THE_TEMPLATE = re.compile(
    r"replicaCount|machineType|imageUri|command\[\d\]|studySpec\.algorithm|maxTrialCount|useElapsedDuration"
)
"""Values that a template or the tool writes where the project file has none."""
FILES = (
    REPOSITORY / "vertexrig.yaml",
    REPOSITORY / "tests/golden/project.yaml",
    *sorted((REPOSITORY / "examples").glob("*/vertexrig.yaml")),
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_every_value_has_a_key_or_is_of_the_template(file: Path) -> None:
    """Each value of every job and sweep there is leads to a key that its project has, but for the few that templates write."""
    loaded = config.load(file, environ=ENVIRONMENT)
    for name in loaded.project.entries:
        found = keys(loaded, name)
        given, rest = set(), set()
        for path in leaves(found.document.data):
            (given if path in found.keys else rest).add(path)
        assert given and all(loaded.origins.of(found.keys[path]) for path in given), name
        assert {path for path in map(dotted, rest) if not OF_THE_TEMPLATE.search(path)} == set(), name


@pytest.mark.parametrize(
    "name", ["cpu-everything", "parameter-server", "multi-worker-full", "torchrun", "sweep-everything", "grid"]
)
def test_a_change_of_a_key_changes_the_values_that_lead_to_it(name: str) -> None:
    """Where a value of the project file is another one, the values that differ in the job are those that lead to its key."""
    file = REPOSITORY / "tests/golden/project.yaml"
    data = yaml.safe_load(file.read_text(encoding="utf-8"))
    alone = {name, data["sweeps"].get(name, {}).get("job")}  # a file of one job is read anew in a fraction of the time
    for kind in ("jobs", "sweeps"):
        data[kind] = {one: data[kind][one] for one in alone & data[kind].keys()}
    loaded = config.loads(yaml.safe_dump(data), file=file, environ={})
    found, tried = keys(loaded, name), 0
    before = leaves(found.document.data)
    for key in {key for path, key in found.keys.items() if path in before}:
        changed = copy.deepcopy(data)
        if not change(changed, key):
            continue
        try:
            after = leaves(keys(config.loads(yaml.safe_dump(changed), file=file, environ={}), name).document.data)
        except VertexrigError:
            continue  # another value of that kind is refused
        differing = {path for path in before if after.get(path) != before[path]}
        # the name of a pair, and what is made of a text, is led to by the same key
        assert differing and all(found.keys[path][: len(key)] == key for path in differing if path in found.keys), key
        tried += 1
    assert tried > 5


def change(data: Any, key: tuple[str | int, ...]) -> bool:
    """Change the value at a path of keys; False for what is not there, and for what decides what else is read."""
    for step in key[:-1]:
        data = data.get(step, {}) if isinstance(data, dict) else data[step]
    there = data.get(key[-1]) if isinstance(data, dict) else data[key[-1]]
    if key[-1] in ("image", "image_uri", "machine_type", "accelerator_type") or not isinstance(
        there, (str, int, float)
    ):
        return False
    data[key[-1]] = f"{there}x" if isinstance(there, str) else not there if isinstance(there, bool) else there + 1
    return True


def keys(loaded: config.Loaded, name: str) -> SourceKeys:
    prepared = Workspace(loaded).prepare(name, check=False)
    return SourceKeys(loaded, prepared.view, prepared.document)


def leaves(data: Any, path: tuple[str | int, ...] = ()) -> dict[tuple[str | int, ...], Any]:
    """Values that hold no others, by their paths."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    if not isinstance(data, (dict, list)):
        return {path: data}
    return {inner: value for key, item in items for inner, value in leaves(item, (*path, key)).items()}


def dotted(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


RUN = "20261122-171500-ab12"
LAID = {
    "baseOutputDirectory: {outputUriPrefix: gs://my-bucket/elsewhere}": "gs://my-bucket/elsewhere",
    "base_output_directory: null": "",
    "scheduling: {timeout: 5s}": f"gs://my-bucket/runs/{{}}/{RUN}",
}


@pytest.mark.parametrize("laid", LAID)
def test_a_run_has_a_folder_of_its_own(laid: str) -> None:
    """A run of a job or sweep writes below its own folder, unless `spec:` gives another one or takes it away."""
    for jobs in (
        "jobs: {j: {machine_type: n1-standard-4, spec: {" + laid + "}}}\nsweeps: {s: {job: j, " + STUDY,
        "jobs: {j: {machine_type: n1-standard-4}}\nsweeps: {s: {job: j, spec: {trialJobSpec: {" + laid + "}}, " + STUDY,
    ):
        for name in ("j", "s") if "trialJobSpec" not in jobs else ("s",):
            prepared = workspace(jobs).prepare(name).in_run(RUN)
            assert prepared.document.output_folder == LAID[laid].format(name)
            assert prepared.view.run_id == RUN


def test_a_run_reaches_whatever_a_template_makes_of_its_folder(tmp_path: Path) -> None:
    """A template of the project's own may cut or measure the folder: it is rendered again for a run."""
    template = (
        "workerPoolSpecs:\n- replicaCount: 1\nscheduling:\n  timeout: {{ (job.base_output_directory|length) ~ 's' }}\n"
    )
    (tmp_path / "own.yaml.j2").write_text(template, encoding="utf-8")
    text = "project: p\nbucket: gs://my-bucket\njobs: {j: {topology: own, machine_type: n1-standard-4}}\n"
    loaded = config.loads(text + TRAINER, file=Path("vertexrig.yaml"), overrides=[f"templates={tmp_path}"])
    prepared = Workspace(loaded).prepare("j")
    lengths = [one.document.job["scheduling"]["timeout"] for one in (prepared, prepared.in_run(RUN))]
    assert lengths == ["21s", f"{22 + len(RUN)}s"]
