"""Jobs from elsewhere as entries of a project file: what they render to is the job they came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.recorded import DISK, K80, MOBILE_GAMING, UJ11, UJ11_ENDED, recorded
from tests.support.tools import REPOSITORY, examples
from vertexrig import spec, yamltext
from vertexrig.bring import convert, pull
from vertexrig.errors import UsageError
from vertexrig.project import config
from vertexrig.workspace import Workspace
from vertexrig.yamltext import flow

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
    return spec.parse(rendered.text, kind=rendered.view.kind, for_gcloud=False).data, rendered.view


def renders_to_itself(name: str, file: Path) -> None:
    """A pulled job's spec, display name, labels and key are the described job's, and every old line of the file stays."""
    job = pull.wanted(pull.resource(json.dumps(DOCUMENTS[name]), "job.json"), "job.json")
    before = file.read_text() if file.exists() else ""
    made = pull.pulled(job, "pulled", before, file)
    data, view = again(made.text, "pulled", file)
    assert job.notes == () and job.document.data == data
    assert (view.display_name, view.kms_key_name or "") == (job.display_name, job.kms_key_name)
    assert job.labels.items() <= view.labels.items()
    lines = iter(made.text.splitlines())
    assert all(line in lines for line in before.splitlines())


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_pulled_job_renders_to_itself(name: str, tmp_path: Path) -> None:
    """Each in a project file of its own."""
    renders_to_itself(name, tmp_path / "vertexrig.yaml")


@pytest.mark.parametrize("name", ["UJ11, a study that has ended", "a describe as YAML"])
def test_a_job_pulled_into_a_project_with_others_renders_to_itself(name: str) -> None:
    """What this repository's project file sets for its own jobs does not reach it."""
    renders_to_itself(name, REPOSITORY / "vertexrig.yaml")


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)


@settings(max_examples=examples(10, 400), deadline=None, derandomize=True)
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


def converted(text: str) -> tuple[dict[str, Any], pull.Pulled, pull.Wanted]:
    job = convert.convert(text, "job.yaml")
    found = pull.pulled(job, "x", "", Path("vertexrig.yaml"))
    return yamltext.read(found.text).data, found, job


@pytest.mark.parametrize("text", ["trainingInput: {scaleTier: BASIC}", "scaleTier: BASIC", "training_input: {}"])
def test_a_file_for_ai_platform_is_refused(text: str) -> None:
    """The message says that the product is retired, and what to write for Vertex AI."""
    with pytest.raises(UsageError, match="AI Platform Training, which is retired; .*; write workerPoolSpecs"):
        converted(text)


def test_an_empty_file_is_said_to_be_empty() -> None:
    """The sentence ends where nothing is to be fixed."""
    with pytest.raises(UsageError, match="job.yaml describes no job: the file is empty; a job spec is a mapping$"):
        converted("")


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
    assert made.display_name == UJ11["displayName"] and data["sweeps"]["x"]["job"] == "x-trial"


def test_a_custom_job_around_the_spec_gives_its_name_and_labels() -> None:
    """REST's JSON and the snake_case of Kubeflow Pipelines: nothing is left out, and nothing is said to be."""
    for wrapper, name in (("jobSpec", "displayName"), ("job_spec", "display_name")):
        data, found, made = converted(
            json.dumps({name: "J", "labels": {"a": "b"}, wrapper: {"workerPoolSpecs": POOLS["gpu"]}})
        )
        assert made.display_name == "J" and data["jobs"]["x"]["labels"] == {"a": "b"} and found.notes == ()


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


def test_names_fit_the_project_file() -> None:
    """A display name of any characters becomes a name of the project file."""
    names = {"Ünüsual / name!": "n-sual-name", "custom_job_1": "custom_job_1", "***": "pulled", "A" * 90: "a" * 57}
    assert {shown: pull.entry_name(shown) for shown in names} == names
    assert flow("plain-1.0") == "plain-1.0" and flow("no") == '"no"'


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
