"""Jobs from elsewhere as entries of a project file: what they render to is the job they came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.recorded import DISK, K80, MOBILE_GAMING, UJ11, UJ11_ENDED, recorded
from tests.support.tools import REPOSITORY
from vertexrig import catalog, spec, yamltext
from vertexrig.bring import convert, edit, pull
from vertexrig.catalog.legacy import MACHINES, TIERS
from vertexrig.errors import UsageError
from vertexrig.project import config
from vertexrig.workspace import Workspace

DESCRIBED = """\
createTime: '2022-01-01T10:00:00.123456Z'
displayName: train-mobile-gaming-retention-classifier
encryptionSpec:
  kmsKeyName: projects/p/locations/us-central1/keyRings/r/cryptoKeys/k
endTime: '2022-01-01T10:10:00Z'
error: {}
jobSpec:
  baseOutputDirectory:
    outputUriPrefix: gs://bucket/aiplatform-custom-job
  scheduling:
    timeout: 604800s
    restartJobOnWorkerRestart: false
  serviceAccount: trainer@p.iam.gserviceaccount.com
  network: projects/000000000000/global/networks/default
  workerPoolSpecs:
  - containerSpec:
      imageUri: gcr.io/p/train:latest
      command: [python, -m, trainer.task]
      args: [--epochs, '3', '--name=${NOT_A_VARIABLE}', '--debug']
      env:
      - name: A
        value: '1'
      - name: A
        value: '2'
    diskSpec:
      bootDiskSizeGb: 100
      bootDiskType: pd-ssd
    machineSpec:
      machineType: n1-standard-8
    replicaCount: '1'
labels:
  team: games
name: projects/000000000000/locations/us-central1/customJobs/1
startTime: '2022-01-01T10:03:14Z'
state: JOB_STATE_SUCCEEDED
"""


def container(replicas: int = 1, image: str = "us-docker.pkg.dev/p/r/image:1", **machine: Any) -> dict[str, Any]:
    machine = {"machineType": "n1-standard-8", **machine}
    return {"machineSpec": machine, "replicaCount": replicas, "containerSpec": {"imageUri": image, "args": ["--x=1"]}}


REDUCER = "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"
T4 = {"acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 2}
POOLS: dict[str, list[dict[str, Any]]] = {
    "gpu": [container(**T4)],
    "workers": [container(**T4), container(3, **T4)],
    "workers without the chief's disk": [{**container(), "diskSpec": DISK}, container(3)],
    "workers of another image": [container(), container(2, image="us-docker.pkg.dev/p/r/other:2")],
    "parameter servers": [container(), container(2), container(1, machineType="n1-highmem-8"), container()],
    "reduction server": [container(**T4), container(3, **T4), container(2, image=REDUCER, machineType="n1-highcpu-16")],
    "an evaluator": [container(), container(2), {}, container()],
    "tpu": [{**container(), "machineSpec": {"machineType": "ct5lp-hightpu-4t", "tpuTopology": "2x2"}}],
    "reservation": [
        container(reservationAffinity={"reservationAffinityType": "ANY_RESERVATION"}),
    ],
}
DOCUMENTS: dict[str, Any] = {
    "UJ10, scikit-learn": recorded("scikit-learn-cpu.0-23", "census"),
    "UJ2,12, TensorFlow with a GPU": recorded("tf-gpu.2-1", "trainer_cifar", "--epochs=20", "--steps=100", "--distribute=single", **K80),
    "UJ9, XGBoost": recorded("xgboost-cpu.1-1", "iris"),
    "UJ11, a study": UJ11,
    "UJ11, a study that has ended": UJ11_ENDED,
    "mobile gaming, a describe of a finished job": yamltext.read(MOBILE_GAMING).data,
    "a describe as YAML": yamltext.read(DESCRIBED).data,
    **{f"pools: {name}": {"displayName": name, "jobSpec": {"workerPoolSpecs": pools}} for name, pools in POOLS.items()},
    "a request": {"parent": "projects/p/locations/l", "customJob": {"displayName": "d", "jobSpec": {"workerPoolSpecs": POOLS["gpu"]}}},
    "fields that no key has": {
        "displayName": "Ünüsual / name!",
        "jobSpec": {
            "workerPoolSpecs": [{**container(), "nfsMounts": [{"server": "10.0.0.1", "path": "/a", "mountPoint": "b"}]}],
            "experiment": "projects/p/locations/l/metadataStores/default/contexts/c",
            "protectedArtifactLocationId": "eu",
            "scheduling": {"strategy": "LOW_COST", "timeout": "3600s"},
            "pscInterfaceConfig": {"networkAttachment": "n"},
        },
    },
    "a study with everything": {
        "displayName": "all",
        "studySpec": {
            "metrics": [
                {"metricId": "accuracy", "goal": "MAXIMIZE"},
                {"metricId": "latency", "goal": "MINIMIZE", "safetyConfig": {"safetyThreshold": 5.5}},
            ],
            "parameters": [
                {
                    "parameterId": "optimizer",
                    "categoricalValueSpec": {"values": ["adam", "sgd"]},
                    "scaleType": "SCALE_TYPE_UNSPECIFIED",
                    "conditionalParameterSpecs": [
                        {
                            "parentCategoricalValues": {"values": ["sgd"]},
                            "parameterSpec": {"parameterId": "momentum", "doubleValueSpec": {"minValue": 0.0, "maxValue": 1.0}},
                        }
                    ],
                },
                {"parameterId": "x", "doubleValueSpec": {"minValue": 1e-05, "maxValue": 1.0, "defaultValue": 0.5}},
            ],
            "observationNoise": "LOW",
            "measurementSelectionType": "BEST_MEASUREMENT",
            "decayCurveStoppingSpec": {},
        },
        "maxTrialCount": 3,
        "parallelTrialCount": 2,
        "maxFailedTrialCount": 1,
        "trialJobSpec": {"workerPoolSpecs": [{**container(), "containerSpec": {"imageUri": "i/i", "args": ["--x=1", "-v"]}}]},
    },
}  # fmt: skip


def again(text: str, name: str, file: Path) -> tuple[dict[str, Any], Any]:
    """What a project file renders a job to: its canonical data, and its view."""
    rendered = Workspace(config.loads(text, file=file)).renderer.render(name)
    return spec.parse(rendered.text, kind=rendered.kind, template=False).data, rendered.view


@pytest.mark.parametrize("into", ["a new file", "this repository's project"])
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_pulled_job_renders_to_itself(name: str, into: str, tmp_path: Path) -> None:
    """Spec, display name, labels and key are the described job's; in a file that is there, every old line stays."""
    job = pull.wanted(pull.resource(json.dumps(DOCUMENTS[name]), "job.json"), "job.json")
    file = (REPOSITORY if into.startswith("this") else tmp_path) / "vertexrig.yaml"
    before = file.read_text() if file.exists() else ""
    made = pull.pulled(job, "pulled", before, file)
    data, view = again(made.text, "pulled", file)
    assert job.notes == () and job.document.data == data
    assert (view.display_name, view.kms_key_name or "") == (job.display_name, job.kms_key_name)
    assert job.labels.items() <= view.labels.items()
    lines = iter(made.text.splitlines())
    assert all(line in lines for line in before.splitlines())


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    args=st.lists(
        st.one_of(WORDS, WORDS.map("--a={}".format), st.sampled_from(["--b", "--c=1.50", "--d=true", "--e=1e5"])),
        max_size=4,
    ),
    env=st.lists(st.fixed_dictionaries({"name": WORDS, "value": WORDS}), max_size=3),
    name=WORDS,
)
@pytest.mark.whole
def test_any_text_survives(args: list[str], env: list[dict[str, str]], name: str) -> None:
    """Quotes, dollars, hashes and numbers in arguments, variables and names come out as they went in."""
    program = {"imageUri": "i/i:1", **({"args": args} if args else {}), **({"env": env} if env else {})}
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1, "containerSpec": program}
    job = pull.wanted({"displayName": name, "jobSpec": {"workerPoolSpecs": [pool]}}, "x")
    made = pull.pulled(job, pull.entry_name(name), "", Path("vertexrig.yaml"))
    data, view = again(made.text, made.name, Path("vertexrig.yaml"))
    assert data == job.document.data and view.display_name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\n", "describes no job: it has a"),
        ("workerPoolSpecs: []\n", "is read by: vertexrig convert x.yaml"),
        ("- a\n", "its top is not a mapping"),
        ("a: [\n", "not valid YAML"),
        ("jobSpec: {}\n", "has no workerPoolSpecs, so there is no job to write"),
        ("jobSpec: {}\nlabels: 5\n", "labels is a whole number, 5; a mapping belongs there"),
        (
            "jobSpec: {workerPoolSpecs: [{}, {machineSpec: {machineType: n1-standard-4}}]}\n",
            "worker pool 0 has no pythonPackageSpec or containerSpec",
        ),
    ],
)
def test_what_is_no_job_is_said(text: str, message: str) -> None:
    """A file that describes nothing, and a job that no template makes, are one sentence."""
    with pytest.raises(UsageError, match=message) as caught:
        pull.pulled(pull.wanted(pull.resource(text, "x.yaml"), "x.yaml"), "x", "", Path("vertexrig.yaml"))
    assert "Traceback" not in str(caught.value)


def converted(text: str, **options: Any) -> tuple[dict[str, Any], pull.Pulled, convert.Converted]:
    made = convert.convert(text, "job.yaml", catalog.load(), **options)
    found = pull.pulled(made.job, "x", "", Path("vertexrig.yaml"), made.absent)
    return yamltext.read(found.text).data, found, made


LEGACY = """\
trainingInput:
  scaleTier: CUSTOM
  masterType: n1-highcpu-16
  masterConfig:
    diskConfig: {bootDiskType: pd-ssd, bootDiskSizeGb: '200'}
    tpuTfVersion: '2.1'
    acceleratorConfig: {count: 2, type: NVIDIA_TESLA_T4}
  workerType: n1-highcpu-16
  workerCount: 9
  workerConfig:
    acceleratorConfig: {count: 2, type: NVIDIA_TESLA_T4}
  parameterServerType: n1-highmem-8
  parameterServerCount: 3
  packageUris: [gs://b/t.tar.gz]
  pythonModule: trainer.task
  runtimeVersion: '2.11'
  pythonVersion: '3.7'
  region: europe-west4
  jobDir: gs://b/out
  args: [--epochs, '3']
  scheduling: {maxRunningTime: 7200s}
  hyperparameters:
    goal: MINIMIZE
    hyperparameterMetricTag: loss
    maxTrials: 45
    maxParallelTrials: 2
    enableTrialEarlyStopping: True
    resumePreviousJobId: old
    params:
    - {parameterName: batch_size, type: DISCRETE, discreteValues: [48, 64, 96]}
    - {parameterName: lr, type: DOUBLE, minValue: 0.001, maxValue: 0.1, scaleType: UNIT_LOG_SCALE}
    - {parameterName: num, type: INTEGER, minValue: 1, maxValue: 9}
    - {parameterName: kind, type: CATEGORICAL, categoricalValues: [a, b]}
"""


def test_a_training_input_becomes_a_sweep() -> None:
    """Machines, counts, package, image by runtime version, scheduling, study and region; what has no equal is named."""
    data, found, made = converted(LEGACY)
    assert made.absent == () and data["region"] == "europe-west4"
    pools = made.job.document.pools
    assert [pool.replica_count for pool in pools] == [1, 9, 3]
    assert pools[0].image.endswith("tf-gpu.2-11.py310:latest") and pools[2].image.endswith("tf-cpu.2-11.py310:latest")
    assert pools[0].args == [
        "--epochs",
        "3",
        "--job-dir=gs://b/out",
    ]
    assert data["jobs"]["x-trial"]["timeout"] == "7200s" and data["jobs"]["x-trial"]["topology"] == "parameter-server"
    study = data["sweeps"]["x"]["study"]
    assert study["metrics"] == {"loss": "MINIMIZE"} and list(study["parameters"]) == ["batch_size", "lr", "num", "kind"]
    assert study["parameters"]["lr"]["scale_type"] == "UNIT_LOG_SCALE" and "median_automated_stopping_spec" in study
    assert data["sweeps"]["x"]["max_trial_count"] == 45
    said = "\n".join(found.notes)
    assert data["jobs"]["x-trial"]["boot_disk_size_gb"] == 200 and not pools[1].data.get("diskSpec")
    for words in ("pythonVersion", "masterConfig.tpuTfVersion", "resumePreviousJobId", "enableTrialEarlyStopping"):
        assert words in said


def test_what_the_file_does_not_say_is_left_to_the_project_s_trainer() -> None:
    """The book's hparam-continue.yaml names no package: no stand-in stays in the entry."""
    text = LEGACY.replace("  packageUris: [gs://b/t.tar.gz]\n", "").replace("  pythonModule: trainer.task\n", "")
    data, found, _ = converted(text.replace("  runtimeVersion: '2.11'\n", ""))
    assert not {"image", "package_uris", "module"} & data["jobs"]["x-trial"].keys()
    assert any("the project's trainer is used" in note for note in found.notes)


def test_a_file_for_gcloud_becomes_a_job_or_a_sweep() -> None:
    """What gcloud's --config takes for both kinds, wrapped by hand or not, renders to itself, with the zeros that JSON leaves out."""
    job = {"workerPoolSpecs": POOLS["gpu"]}
    assert converted(json.dumps(job))[0]["jobs"]["x"]["accelerator_count"] == 2
    sweep = {
        key: UJ11[key] for key in ("displayName", "studySpec", "maxTrialCount", "parallelTrialCount", "trialJobSpec")
    }
    data, _, made = converted(json.dumps(sweep))
    sweep["studySpec"] = {
        "metrics": [{"metricId": "loss", "goal": "MINIMIZE", "safetyConfig": {}}],
        "parameters": [{"parameterId": "x", "doubleValueSpec": {"maxValue": 1}}],
    }
    study = converted(json.dumps(sweep))[0]["sweeps"]["x"]["study"]
    assert study["metrics"]["loss"]["safety_config"] == {"safety_threshold": 0}
    assert study["parameters"]["x"]["double_value_spec"]["min_value"] == 0
    assert made.job.display_name == UJ11["displayName"] and data["sweeps"]["x"]["job"] == "x-trial"


def test_a_custom_job_around_the_spec_gives_its_name_and_labels() -> None:
    """REST's JSON and the snake_case of Kubeflow Pipelines: nothing is left out, and nothing is said to be."""
    for wrapper, name in (("jobSpec", "displayName"), ("job_spec", "display_name")):
        data, found, made = converted(
            json.dumps({name: "J", "labels": {"a": "b"}, wrapper: {"workerPoolSpecs": POOLS["gpu"]}})
        )
        assert made.job.display_name == "J" and data["jobs"]["x"]["labels"] == {"a": "b"} and found.notes == ()


def test_worker_pools_alone_become_a_job() -> None:
    """The list that the SDK takes as worker_pool_specs."""
    pool = {
        "machine_spec": {"machine_type": "n1-standard-4"},
        "replica_count": 1,
        "container_spec": {"image_uri": "gcr.io/p/i"},
    }
    assert converted(json.dumps([pool]))[0]["jobs"]["x"]["machine_type"] == "n1-standard-4"


def test_a_number_in_args_becomes_text() -> None:
    """`args: [--lr, 0.01]` keeps its value, and a note says so."""
    pool = {**POOLS["gpu"][0], "containerSpec": {"imageUri": "gcr.io/p/i", "args": ["--lr", 0.01]}}
    pool.pop("pythonPackageSpec", None)
    data, found, _ = converted(json.dumps({"workerPoolSpecs": [pool]}))
    assert data["jobs"]["x"]["args"] == {"lr": "0.01"} or data["jobs"]["x"]["args"] == ["--lr", "0.01"]
    assert [note for note in found.notes if "0.01" in note] == ["args[1]: 0.01 is written as text"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "scaleTier: CUSTOM",
            "scaleTier: PREMIUM_1",
            "scaleTier PREMIUM_1 was a large number of workers .* no source says how many",
        ),
        (
            "scaleTier: CUSTOM",
            "scaleTier: BASIC",
            "BASIC is of AI Platform only: a single machine, and no source says its size",
        ),
        ("scaleTier: CUSTOM", "scaleTier: STANDARD_2", "there is no scaleTier STANDARD_2. Choices: BASIC, "),
        (
            "masterType: n1-highcpu-16",
            "masterType: standard_gpu",
            "standard_gpu is of AI Platform only: as standard, and no source",
        ),
        ("  masterType: n1-highcpu-16\n", "", "masterType is missing"),
        ("  workerType: n1-highcpu-16\n", "", "workerCount is 9, and workerType does not say"),
        ("type: DISCRETE", "type: ODD", "'batch_size' has the type 'ODD'; choices"),
        ("minValue: 0.001, ", "", "'lr' needs minValue and maxValue"),
        ("workerCount: 9", "workerCount: nine", "workerCount is text, 'nine'; a whole number belongs there"),
        ("workerCount: 9", "workerCount: 9\n  scheduling: soon", "scheduling is text, 'soon'; a mapping belongs there"),
        ("workerCount: 9", "workerCount: 9\n  args: 5", "args is a whole number, 5; a list belongs there"),
    ],
)
def test_a_legacy_file_that_cannot_be_converted_says_why(old: str, new: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        converted(LEGACY.replace(old, new))


def test_a_legacy_machine_gets_the_machine_that_is_named() -> None:
    """--machine-type takes the place of AI Platform's own types; their GPUs follow from their names."""
    single = "trainingInput: {scaleTier: CUSTOM, masterType: complex_model_m_p100}"
    data, _, _ = converted(single, machine_type="n1-standard-16")
    assert data["jobs"]["x"]["machine_type"] == "n1-standard-16"
    assert (data["jobs"]["x"]["accelerator_type"], data["jobs"]["x"]["accelerator_count"]) == ("NVIDIA_TESLA_P100", 4)
    tpu = converted(
        "trainingInput: {scaleTier: CUSTOM, masterType: n1-standard-4, workerType: cloud_tpu, workerCount: 1}"
    )[0]
    assert tpu["jobs"]["x"] == {
        "topology": "tpu",
        "machine_type": "cloud-tpu",
        "accelerator_type": "TPU_V2",
        "accelerator_count": 8,
    }


def test_a_legacy_file_may_have_snake_case_keys_throughout() -> None:
    """Its image, counts and study are read as those in camelCase; a TPU's disk is named as left out."""
    text = (
        "training_input: {scale_tier: CUSTOM, master_type: n1-standard-4, master_config: {image_uri: gcr.io/p/i}, "
        "hyperparameters: {max_trials: 4, params: [{parameter_name: lr, type: DOUBLE, min_value: 0, max_value: 1}]}}"
    )
    data, found, made = converted(text)
    assert made.job.document.pools[0].image == "gcr.io/p/i" and found.notes == ()
    assert data["sweeps"]["x"]["max_trial_count"] == 4 and list(data["sweeps"]["x"]["study"]["parameters"]) == ["lr"]
    disk = "master_config: {disk_config: {boot_disk_size_gb: 200}}"
    _, found, _ = converted(f"trainingInput: {{scaleTier: BASIC_TPU, {disk}}}")
    assert "left out: diskConfig" in " ".join(found.notes)


def test_a_file_without_a_scale_tier_is_read() -> None:
    """Its machine stood on the command line: a plain one is taken and said, or the one that is named."""
    text = "trainingInput: {hyperparameters: {goal: MINIMIZE, maxTrials: 4, params: [{parameterName: lr, type: DOUBLE, minValue: 0, maxValue: 1}]}}"
    data, found, _ = converted(text)
    assert data["jobs"]["x-trial"]["machine_type"] == "n1-standard-4" and data["sweeps"]["x"]["max_trial_count"] == 4
    assert "the file has no scaleTier" in " ".join(found.notes)
    assert converted(text, machine_type="n1-highmem-8")[0]["jobs"]["x-trial"]["machine_type"] == "n1-highmem-8"


def test_a_scale_tier_whose_machines_are_known_is_written_out() -> None:
    """STANDARD_1 becomes its master, workers and parameter servers; a size that is not offered for training becomes the next one up."""
    data, found, _ = converted("trainingInput: {scaleTier: STANDARD_1, region: us-central1}")
    job = data["jobs"]["x"]
    assert (job["topology"], job["machine_type"]) == ("parameter-server", "n1-highcpu-16")
    assert (job["worker"]["replica_count"], job["ps"]["replica_count"]) == (4, 3)
    assert job["ps"]["machine_type"] == "n1-standard-4"
    said = " ".join(found.notes)
    assert (
        "masterType was n1-highcpu-8, which is not offered for training; n1-highcpu-16" in said
        and "training-data-analyst" in said
    )


@pytest.mark.parametrize("kind", [*MACHINES, "BASIC", "BASIC_GPU"])
def test_each_legacy_machine_needs_a_size_and_keeps_its_gpus(kind: str) -> None:
    """With --machine-type each of them is converted, with the GPUs that the reference gives it; without, its size is asked for."""
    text = f"scaleTier: {kind}" if kind.startswith("BASIC") else f"scaleTier: CUSTOM\nmasterType: {kind}"
    with pytest.raises(UsageError, match="--machine-type n1-standard-8"):
        converted(text)
    job = converted(text, machine_type="n1-standard-32")[0]["jobs"]["x"]
    known = MACHINES.get(kind) or TIERS[kind]
    assert job["machine_type"] == "n1-standard-32"
    assert (job.get("accelerator_type", ""), job.get("accelerator_count", 0)) == (known.accelerator, known.count)


def test_names_fit_the_project_file() -> None:
    """A display name of any characters becomes a name of the project file."""
    names = {"Ünüsual / name!": "n-sual-name", "custom_job_1": "custom_job_1", "***": "pulled", "A" * 90: "a" * 57}
    assert {shown: pull.entry_name(shown) for shown in names} == names
    assert edit.flow("plain-1.0") == "plain-1.0" and edit.flow("no") == '"no"'


@pytest.mark.parametrize("value", ["hf_abcdefghijklmnopqrstuvwx", "correct-horse"])
def test_a_secret_is_not_written_into_a_file(value: str) -> None:
    """A key in a job's environment is left out, and a note says where it belongs; other variables stay."""
    data = yamltext.read(DESCRIBED).data
    pool = data["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]
    pool["env"] = [{"name": "WANDB_PASSWORD", "value": value}, {"name": "A", "value": "1"}]
    made = pull.pulled(pull.wanted(data, "x"), "a", "", Path("f"))
    assert value not in made.text and made.entries[0].data["env"] == {"A": "1"}
    assert any("Secret Manager" in note and "WANDB_PASSWORD" in note and value not in note for note in made.notes)


def test_a_project_s_name_from_a_job_is_one_value() -> None:
    """A name with a line break in the job's own name adds no key to a new project file."""
    data = {**yamltext.read(DESCRIBED).data, "name": "projects/p\nbucket: gs://evil/locations/us-central1/customJobs/1"}
    assert "gs://evil" not in str(
        yamltext.read(pull.pulled(pull.wanted(data, "x"), "a", "", Path("f")).text).data.get("bucket")
    )
