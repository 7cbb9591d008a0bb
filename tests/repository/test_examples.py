"""The examples: they render and check, carry the walk-throughs' numbers, and their launch scripts send what is rendered."""

from __future__ import annotations

import io
import json
import re
import runpy
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.tools import REPOSITORY
from tests.support.web import answering
from vertexrig import checks
from vertexrig.finding import Severity
from vertexrig.project import config
from vertexrig.submit.submission import left_out
from vertexrig.workspace import Prepared, Workspace

EXAMPLES = REPOSITORY / "examples"
S1, S2, S3, S4, S5 = (
    "s1-distributed-tuning",
    "s2-hands-on-ml",
    "s3-multi-worker",
    "s4-blog-tuning",
    "s5-practical-vision",
)
CUSTOM = (S1, S3, S4)
V100, T4 = "NVIDIA_TESLA_V100", "NVIDIA_TESLA_T4"

# (example, job): its pools as (machine, accelerator, count, replicas)
POOLS: dict[tuple[str, str], list[tuple[str, str, int, int]]] = {
    (S1, "trial"): [("n1-standard-4", V100, 2, 1)],
    (S2, "one-device"): [("n1-standard-4", "", 0, 1)],
    (S2, "my-custom-training-job"): [("n1-standard-4", T4, 2, 1)] * 2,
    (S2, "central-storage"): [("n1-standard-4", T4, 2, 1)],
    (S2, "parameter-server"): [
        ("n1-standard-4", "", 0, 1),
        ("n1-standard-4", "", 0, 2),
        ("n1-standard-4", "", 0, 1),
    ],
    (S2, "tpu"): [("cloud-tpu", "TPU_V3", 8, 1)],
    (S2, "my-search-trial-job"): [("n1-standard-4", T4, 2, 1)],
    (S3, "multiworker-cassava-sdk"): [("n1-standard-8", V100, 1, 1)] * 2,
    (S3, "multiworker-cassava-cpu"): [("n1-standard-8", "", 0, 1)] * 2,
    (S3, "all-pools"): [
        ("n1-standard-8", V100, 1, 1),
        ("n1-standard-8", V100, 1, 2),
        ("n1-standard-8", "", 0, 1),
        ("n1-standard-8", V100, 1, 1),
    ],
    (S4, "trial"): [("n1-standard-4", T4, 2, 1)],
    (S5, "cpu"): [("n1-standard-4", "", 0, 1)],
    (S5, "gpu"): [("n1-standard-4", T4, 1, 1)],
    (S5, "two-gpus"): [("n1-standard-4", T4, 2, 1)],
    (S5, "four-gpus"): [("n1-standard-16", T4, 4, 1)],
    (S5, "multi-worker"): [("n1-standard-4", T4, 1, 1)] * 2,
    (S5, "tpu"): [("cloud-tpu", "TPU_V2", 8, 1)],
}

HORSES = {
    "learning_rate": ("double", 0.001, 1, "UNIT_LOG_SCALE"),
    "momentum": ("double", 0, 1, "UNIT_LINEAR_SCALE"),
    "num_units": ("discrete", [64, 128, 512], ""),
}
# (example, sweep): trials, at a time, algorithm, parameters
STUDIES: dict[tuple[str, str], tuple[int, int, str, dict[str, tuple[Any, ...]]]] = {
    (S1, "horses-humans-hyperparam-job"): (6, 2, "", HORSES),
    (S2, "my-hp-search-job"): (
        100,
        20,
        "",
        {
            "learning_rate": ("double", 0.001, 10, "UNIT_LOG_SCALE"),
            "n_neurons": ("integer", 1, 300, "UNIT_LINEAR_SCALE"),
            "n_hidden": ("integer", 1, 10, "UNIT_LINEAR_SCALE"),
            "optimizer": ("categorical", ["sgd", "adam"], ""),
        },
    ),
    (S4, "bayesian"): (6, 2, "", HORSES),
    (S4, "random"): (6, 6, "RANDOM_SEARCH", HORSES),
    (S4, "grid"): (
        27,
        6,
        "GRID_SEARCH",
        {
            "learning_rate": ("discrete", [0.001, 0.03, 1], ""),
            "momentum": ("discrete", [0, 0.5, 1], ""),
            "num_units": ("discrete", [64, 128, 512], ""),
        },
    ),
    (S5, "flowers-hp"): (
        50,
        2,
        "",
        {
            "l2": ("double", 0, 0.2, "UNIT_LINEAR_SCALE"),
            "batch_size": ("discrete", [16, 32, 64], ""),
            "num_hidden": ("discrete", [8, 16, 24], ""),
            "with_color_distort": ("categorical", ["false", "true"], ""),
            "crop_ratio": ("double", 0.5, 0.8, "UNIT_LINEAR_SCALE"),
        },
    ),
    (S5, "flowers-hp-continue"): (
        45,
        2,
        "GRID_SEARCH",
        {
            "batch_size": ("discrete", [16, 32, 64], ""),
            "num_hidden": ("discrete", [8, 16, 24], ""),
            "crop_ratio": ("discrete", [0.5, 0.55, 0.6, 0.65, 0.7], ""),
        },
    ),
}
US, EU = "gs://my-project-vertexrig", "gs://my-project-vertexrig-eu"
# (example, job): its candidates as (region, bucket, strategy, machine, accelerator, count)
CANDIDATES: dict[tuple[str, str], list[tuple[str, str, str, str, str, int]]] = {
    (S2, "tpu"): [
        ("us-central1", US, "", "cloud-tpu", "TPU_V2", 8),
        ("europe-west4", EU, "", "cloud-tpu", "TPU_V3", 8),
    ],
    (S3, "multiworker-cassava-cpu"): [
        ("us-central1", US, "", "n2-standard-8", "", 0),
        ("us-central1", US, "SPOT", "e2-standard-8", "", 0),
    ],
    (S5, "four-gpus"): [
        ("us-central1", US, "SPOT", "n1-standard-16", T4, 4),
        ("us-central1", US, "", "g2-standard-48", "NVIDIA_L4", 4),
        ("europe-west2", EU, "", "n1-standard-16", T4, 4),
    ],
}
# (example, job): arguments that the walk-through's trainer stands for
ARGUMENTS: dict[tuple[str, str], set[str]] = {
    (S1, "trial"): {"--data=tfds:horses_or_humans", "--image_size=150", "--batch_size=64", "--epochs=10", "--optimizer=sgd"},
    (S2, "my-custom-training-job"): {"--collective=nccl", "--strategy=multi-worker", "--epochs=10"},
    (S2, "my-search-trial-job"): {"--model=dense", "--patience=5", "--epochs=10", "--strategy=mirrored"},
    (S3, "multiworker-cassava-sdk"): {
        "--data=tfds:cassava", "--image_size=300", "--model=resnet50", "--weights=imagenet", "--num_hidden=1016",
        "--learning_rate=0.0001", "--optimizer=adam", "--batch_size=64", "--epochs=2", "--fine_tune=-1",
    },
    (S4, "trial"): {"--data=tfds:horses_or_humans", "--image_size=150", "--batch_size=64", "--epochs=10", "--optimizer=sgd"},
    (S5, "two-gpus"): {"--model=mobilenet_v2", "--histograms=true", "--patience=2", "--epochs=20"},
    (S5, "multi-worker"): {"--examples_per_epoch=4000", "--shuffle=true"},
    (S5, "flowers-hp-continue"): {"--l2=0", "--with_color_distort=false"},
}  # fmt: skip


@cache
def workspace(example: str) -> Workspace:
    return Workspace(config.loads((EXAMPLES / example / "vertexrig.yaml").read_text(), file=EXAMPLES / example / "vertexrig.yaml", environ={}))  # fmt: skip


@cache
def prepared(example: str, name: str) -> Prepared:
    return workspace(example).prepare(name)


def names(example: str) -> list[str]:
    project = workspace(example).loaded.project
    return [*project.entries]


EVERYTHING = sorted({*POOLS, *STUDIES})


def test_the_tables_are_complete() -> None:
    """Each example folder, and each job and sweep of it, stands in the tables of this file."""
    folders = sorted(file.parent.name for file in EXAMPLES.glob("s[0-9]-*/vertexrig.yaml"))
    assert folders == [S1, S2, S3, S4, S5]
    assert sorted((folder, name) for folder in folders for name in names(folder)) == EVERYTHING


@pytest.mark.parametrize(("example", "name"), EVERYTHING)
def test_renders_and_checks_without_errors(example: str, name: str) -> None:
    """Nothing of severity error, with the custom images too held against the trainer that is built into them."""
    one = prepared(example, name)
    trainer = workspace(example).trainer("trainer.task")
    assert trainer is not None and trainer.flags_complete
    context = replace(workspace(example).context(one.document), trainer=trainer)
    found = [*one.findings, *checks.check(one.document, context)]
    assert [finding for finding in found if finding.severity is Severity.ERROR] == []


@pytest.mark.parametrize(("example", "name"), sorted(POOLS))
def test_machines(example: str, name: str) -> None:
    """The pools of each job are the walk-through's, in machines, accelerators and replicas."""
    pools = yaml.safe_load(prepared(example, name).text)["workerPoolSpecs"]
    found = [
        (
            pool["machineSpec"]["machineType"],
            pool["machineSpec"].get("acceleratorType", ""),
            pool["machineSpec"].get("acceleratorCount", 0),
            pool["replicaCount"],
        )
        for pool in pools
    ]
    assert found == POOLS[example, name]


@pytest.mark.parametrize(("example", "name"), EVERYTHING)
def test_candidates(example: str, name: str) -> None:
    """The candidates of the jobs that have some run where and on what the table says, check without errors, and write to their bucket."""
    found = []
    for one in workspace(example).prepare_candidates(name)[1:]:
        assert one.ok, one.findings
        pool, place = one.document.pools[0], one.workspace.loaded.project
        assert one.document.output_folder.startswith(f"{place.bucket}/")
        if pool.python_package:
            assert pool.image.startswith(f"{place.region.partition('-')[0]}-docker.pkg.dev/")
        strategy = one.document.job.get("scheduling", {}).get("strategy", "")
        made = (pool.machine_type, pool.accelerator_type, pool.accelerator_count)
        found.append((place.region, str(place.bucket), strategy, *made))
    assert found == CANDIDATES.get((example, name), [])
    assert workspace(example).loaded.runnable(name).wait == ("20m" if found else None)
    budget = workspace(example).loaded.project.trigger.budget
    assert not found or left_out(workspace(example).prepare_candidates(name), budget) == {}


def space(spec: Mapping[str, Any]) -> tuple[Any, ...]:
    """A parameter of a study as the table writes it."""
    kind = next(key for key in spec if key.endswith("ValueSpec"))
    values, scale = spec[kind], spec.get("scaleType", "")
    short = kind.removesuffix("ValueSpec")
    return (short, values["values"], scale) if "values" in values else (short, values["minValue"], values["maxValue"], scale)  # fmt: skip


@pytest.mark.parametrize(("example", "name"), sorted(STUDIES))
def test_studies(example: str, name: str) -> None:
    """Trials, parallelism, algorithm, metric and parameters of each sweep are the walk-through's."""
    sweep = yaml.safe_load(prepared(example, name).text)
    study = sweep["studySpec"]
    found = {spec["parameterId"]: space(spec) for spec in study["parameters"]}
    numbers = (sweep["maxTrialCount"], sweep["parallelTrialCount"], study.get("algorithm", ""), found)
    assert numbers == STUDIES[example, name]
    assert study["metrics"] == [{"metricId": "accuracy", "goal": "MAXIMIZE"}]


@pytest.mark.parametrize(("example", "name"), sorted(ARGUMENTS))
def test_arguments(example: str, name: str) -> None:
    """The trainer is told what the walk-through's trainer had built in, and a study's parameters are left to it."""
    document = prepared(example, name).document
    for pool in document.pools:
        assert set(pool.args) >= ARGUMENTS[example, name]
        tuned = {f"--{spec['parameterId']}" for spec in (document.study or {}).get("parameters", ())}
        assert not tuned & {arg.partition("=")[0] for arg in pool.args}


def test_practical_vision_has_early_stopping_schedules_and_a_trigger() -> None:
    """The flowers' study stops trials early and bears the book's name; its schedules run what there is, within the rules."""
    project = workspace(S5).loaded.project
    sweep = prepared(S5, "flowers-hp")
    assert yaml.safe_load(sweep.text)["studySpec"]["medianAutomatedStoppingSpec"] == {"useElapsedDuration": False}
    assert sweep.view.display_name == "FlowersHpTuningJob"
    assert {name: schedule.run for name, schedule in project.schedules.items()} == {
        "nightly": "two-gpus",
        "monthly-sweep": "flowers-hp",
    }
    for schedule in project.schedules.values():
        assert set(schedule.set) <= set(project.trigger.allow)
        assert set(schedule.args) <= set(project.trigger.allow_args)
        for name, value in schedule.args.items():
            bound = project.trigger.allow_args[name]
            assert bound.min is not None and bound.max is not None and bound.min <= float(value) <= bound.max


@pytest.mark.parametrize("example", CUSTOM)
def test_dockerfile(example: str) -> None:
    """The image is FROM a TensorFlow that tf-keras matches, pins hypertune, copies what exists, and starts the trainer."""
    text = (EXAMPLES / example / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    assert [line[0] for line in lines] == ["FROM", "RUN", "COPY", "RUN", "ENTRYPOINT"]
    base = re.fullmatch(r"tensorflow/tensorflow:(\d+\.\d+)\.\d+-gpu", lines[0][1])
    assert base and f'"tf-keras~={base[1]}.0"' in lines[1][1] and "cloudml-hypertune==" in lines[1][1]
    source, target = lines[2][1].split()
    assert (REPOSITORY / source / "setup.py").is_file() and lines[3][1].endswith(target)
    assert json.loads(lines[4][1]) == ["python", "-m", "trainer.task"]


@pytest.mark.parametrize("example", CUSTOM)
def test_cloudbuild_makes_the_image_of_the_project_file(example: str) -> None:
    """Cloud Build builds the example's own Dockerfile and pushes it under the name that the jobs ask for."""
    build = yaml.safe_load((EXAMPLES / example / "cloudbuild.yaml").read_text())
    wanted = workspace(example).loaded.project.trainer.custom_image.replace("my-project", "$PROJECT_ID")
    (step,) = build["steps"]
    flags = dict(arg.split("=", 1) for arg in step["args"] if arg.startswith("--"))
    assert set(build) == {"steps", "images", "timeout"} and (step["args"][0], step["args"][-1]) == ("build", ".")
    assert (REPOSITORY / flags["--file"]) == EXAMPLES / example / "Dockerfile"
    assert build["images"] == [flags["--tag"]] == [wanted]


# What the launch scripts send.

Launch = Callable[..., str]


def finished(kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """A job as it is once it has succeeded."""
    state = "PIPELINE_STATE_SUCCEEDED" if kind == "trainingPipelines" else "JOB_STATE_SUCCEEDED"
    done = {**body, "name": f"projects/my-project/locations/us-central1/{kind}/1", "state": state}
    if kind == "hyperparameterTuningJobs":
        measured = {"metrics": [{"metricId": "accuracy", "value": 0.75}]}
        best = {"finalMeasurement": measured, "parameters": [{"parameterId": "n_hidden", "value": 8}]}
        done["trials"] = [{"id": "1", "state": "INFEASIBLE"}, {"id": "2", "state": "SUCCEEDED", **best}]
    return done


@contextmanager
def recording() -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """The URL of a service where any job has succeeded, and the list that fills with (collection, body)."""
    sent: list[tuple[str, dict[str, Any]]] = []

    def answer(method: str, path: str, data: bytes) -> tuple[int, Any]:
        if method == "POST":
            sent.append((path.partition("?")[0].rsplit("/", 1)[1], json.loads(data)))
        return 200, finished(*sent[-1])

    with answering(answer) as url:
        yield url, sent


def copied(example: str, name: str, place: Path) -> Path:
    """A copy of an example in which `name` is rendered."""
    folder = place / "examples" / example
    shutil.copytree(EXAMPLES / example, folder, ignore=shutil.ignore_patterns("build", ".vertexrig", "__pycache__"))
    shutil.copy(EXAMPLES / "sdk.py", folder.parent)
    (folder / "build/jobs").mkdir(parents=True)
    (folder / "build/jobs" / f"{name}.yaml").write_text(prepared(example, name).text)
    return folder


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Launch]:
    """`python launch.py` with the SDK pointed at a URL, from another working directory; in this process, which imports the SDK once."""
    from google.cloud.aiplatform import base, initializer, jobs, training_jobs

    for module in (base, jobs, training_jobs):
        for name in ("_JOB_WAIT_TIME", "_LOG_WAIT_TIME", "_BLOCK_WAIT_TIME"):
            monkeypatch.setattr(module, name, 0.05, raising=False)
    before = dict(vars(initializer.global_config))

    def start(folder: Path, url: str, *args: str) -> str:
        monkeypatch.setattr(sys, "argv", [str(folder / "launch.py"), *args])
        monkeypatch.setattr(sys, "path", [*sys.path])
        monkeypatch.setenv("VERTEXRIG_AIPLATFORM", url)
        monkeypatch.delitem(sys.modules, "sdk", raising=False)
        with redirect_stdout(io.StringIO()) as out:
            runpy.run_path(sys.argv[0], run_name="__main__")
        return out.getvalue()

    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "my-project")
    monkeypatch.chdir(tmp_path)
    yield start
    vars(initializer.global_config).clear()
    vars(initializer.global_config).update(before)


def message(kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """The data as the API's message reads it: absent and default values are the same, names are in one spelling."""
    from google.cloud.aiplatform_v1 import types

    read = getattr(types, kind)
    plain: dict[str, Any] = read.to_dict(read.from_json(json.dumps(data)))
    return plain


@pytest.mark.parametrize(
    ("example", "name", "args"),
    [
        (S1, "horses-humans-hyperparam-job", ()),
        (S2, "my-hp-search-job", ("search",)),
        (S4, "bayesian", ()),
        (S4, "random", ("random",)),
        (S4, "grid", ("grid",)),
    ],
)
def test_launch_sends_the_rendered_sweep(
    launch: Launch, example: str, name: str, args: tuple[str, ...], tmp_path: Path
) -> None:
    """HyperparameterTuningJob.run() of the real SDK creates the very study and job that was rendered."""
    with recording() as (url, sent):
        printed = launch(copied(example, name, tmp_path), url, *args)
    rendered = yaml.safe_load(prepared(example, name).text)
    (kind, body), *more = sent
    assert (kind, more) == ("hyperparameterTuningJobs", [])
    assert message("HyperparameterTuningJob", body) == message(
        "HyperparameterTuningJob", {**rendered, "displayName": name}
    )
    if example == S2:
        assert printed.endswith("best trial 2: accuracy 0.7500 with n_hidden=8.0\n")


@pytest.mark.parametrize(
    ("example", "name", "args"),
    [
        (S3, "multiworker-cassava-sdk", ()),
        (S3, "all-pools", ("all-pools",)),
        (S2, "tpu", ("job", "tpu")),
    ],
)
def test_launch_sends_the_rendered_job(
    launch: Launch, example: str, name: str, args: tuple[str, ...], tmp_path: Path
) -> None:
    """CustomJob.run() of the real SDK creates the very job that was rendered."""
    with recording() as (url, sent):
        launch(copied(example, name, tmp_path), url, *args)
    spec = yaml.safe_load(prepared(example, name).text)
    (kind, body), *more = sent
    assert (kind, more) == ("customJobs", [])
    assert message("CustomJob", body) == message("CustomJob", {"displayName": name, "jobSpec": spec})


def test_launch_trains_on_two_replicas(launch: Launch, tmp_path: Path) -> None:
    """CustomPythonPackageTrainingJob.run(replica_count=2) makes the rendered pools, with the SDK's default disks."""
    name = "my-custom-training-job"
    with recording() as (url, sent):
        launch(copied(S2, name, tmp_path), url, "train")
    spec = yaml.safe_load(prepared(S2, name).text)
    for pool in spec["workerPoolSpecs"]:
        pool["diskSpec"] = {"bootDiskType": "pd-ssd", "bootDiskSizeGb": 100}
    (kind, body), *more = sent
    assert (kind, more) == ("trainingPipelines", [])
    assert message("CustomJobSpec", body["trainingTaskInputs"]) == message("CustomJobSpec", spec)


def test_launch_refuses_what_it_cannot_send(launch: Launch, tmp_path: Path) -> None:
    """A field that the SDK's calls do not carry ends the script with its name; nothing is sent."""
    folder = copied(S3, "multiworker-cassava-sdk", tmp_path)
    file = folder / "build/jobs/multiworker-cassava-sdk.yaml"
    file.write_text(file.read_text() + "network: projects/1/global/networks/n\n")
    with recording() as (url, sent):
        with pytest.raises(SystemExit, match="network would be lost here"):
            launch(folder, url)
        with pytest.raises(SystemExit, match="vertexrig render no-such-job"):
            launch(folder, url, "no-such-job")
    assert sent == []


def test_launch_runs_on_the_local_vertex(launch: Launch, tmp_path: Path) -> None:
    """The codelab's CustomJob.run() really runs both pools on the local Vertex, to success."""
    from localvertex import server
    from localvertex.jobs.settings import Settings
    from localvertex.runner import RunOptions
    from vertexrig.project.local import LocalImage

    image = tmp_path / "image"
    image.mkdir()
    (image / "main.py").write_text("import os\nassert 'TF_CONFIG' in os.environ\n")
    stand_in = LocalImage(image, (sys.executable, "main.py"))
    settings = Settings(tmp_path / "root", options=RunOptions(images={"*/multiworker-cassava:*": stand_in}))
    folder = copied(S3, "multiworker-cassava-cpu", tmp_path)
    with server.running(settings) as here:
        launch(folder, f"{here.url}{server.AIPLATFORM}", "multiworker-cassava-cpu")
