"""Which published code is run, how, and what has to come out: a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PROJECT, BUCKET = "my-project", "my-project-published"
ENDS, CLOUD = "runs to its end", "fails, as in the cloud"


@dataclass(frozen=True)
class Row:
    """One piece of published code.

    Args:
        key: Its name here; before the dash, the walk-through's.
        what: What it is, for the table.
        checkout: Folder below the one with the checkouts.
        source: A notebook, or a folder, in the checkout.
        command: What `vertexrig local run --` runs.
        cells: Of a notebook: a text of each cell that is part of program.py, in order. Cells that begin with
            `%%writefile` become files without being named.
        before: What program.py begins with: what cells that are not run would have left.
        changes: Project, bucket and hardware past its support: each text and what takes its place.
        fewer: Further changes, which make fewer trials of a search unless all are asked for.
        mends: Changes that are more than that: the published code fails without them, in the cloud, too.
        data: Data sets that are generated.
        python: A prebuilt image by its short name: its Python and TensorFlow run the jobs, instead of newer ones.
        images: Container images that are built from the source: pattern -> command.
        package: A package that is built with setup.py and uploaded to the bucket before: its name and version.
        buckets: Buckets that the user has.
        makes: Buckets that the code makes, and that must not be there when it begins.
        outcome: What has to come out: ENDS or CLOUD.
        says: A text in the output, in the jobs' errors or their logs that shows the failure.
        why: Why it fails.
    """

    key: str
    what: str
    checkout: str
    source: str
    command: str
    cells: tuple[str, ...] = ()
    before: str = ""
    changes: dict[str, str] = field(default_factory=dict)
    fewer: dict[str, str] = field(default_factory=dict)
    mends: dict[str, str] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    python: str = ""
    images: dict[str, str] = field(default_factory=dict)
    package: str = ""
    buckets: tuple[str, ...] = (BUCKET,)
    makes: tuple[str, ...] = ()
    outcome: str = ENDS
    says: str = ""
    why: str = ""


TUNING = "notebooks/official/training/distributed_hyperparameter_tuning.ipynb"
ENTERPRISE = "courses/machine_learning/deepdive2/machine_learning_in_the_enterprise/solutions/distributed-hyperparameter-tuning.ipynb"
CHAPTER, FLOWERS = "19_training_and_deploying_at_scale.ipynb", "07_training/serverlessml"
PYTHON = "python program.py"
WITH_KEY = 'sh -c "cp $GOOGLE_APPLICATION_CREDENTIALS my_service_account_key.json && python program.py"'
"""The book names a file with the user's key: here it is the one that `local run` made up."""
HORSES_CELLS = (
    "from google.cloud import aiplatform\nfrom google.cloud.aiplatform import hyperparameter_tuning as hpt",
    'IMAGE_URI = f"gcr.io/', "worker_pool_specs = [", "my_custom_job = aiplatform.CustomJob(", "hp_job.run()",
)  # fmt: skip
HORSES_FEWER = {"max_trial_count=15": "max_trial_count=3"}
BOOK_CELLS = (
    'import os\nos.environ["TF_USE_LEGACY_KERAS"]', "assert sys.version_info", 'model_version = "0001"',
    'project_id = "my_project"', "storage_client.create_bucket", 'upload_directory(bucket, "my_mnist_model")',
    'server_image = "gcr.io',
)  # fmt: skip
BOOK = {
    "checkout": "handson-ml3",
    "source": CHAPTER,
    "command": WITH_KEY,
    "data": ("mnist",),
    "buckets": (),
    "makes": (f"{BUCKET}-book",),
    "python": "tf-2.4",
}
BOOK_CHANGES = {
    '"my_project"': f'"{PROJECT}"',
    '"my_bucket"': f'"{BUCKET}-book"',
    "NVIDIA_TESLA_K80": "NVIDIA_TESLA_T4",
}
QUOTES = "the quotes in the arguments are part of them: --distribute is neither cpu nor gpus_one_machine, so it is a TPU's name"
SUBMIT = {'PROJECT=""': f'PROJECT="{PROJECT}"', "ai-analytics-solutions-kfpdemo": BUCKET, "{BUCKET}": BUCKET}


def _unquoted(name: str) -> dict[str, str]:
    return {
        '--job-dir="gs:': "--job-dir=gs:", f'_trained/{name}"': f"_trained/{name}", '--pattern="-*"': "--pattern=-*",
        f'--distribute="{name}"': f"--distribute={name}",
    }  # fmt: skip


def _flowers(key: str, what: str, distr: str, **more: Any) -> Row:
    """A configuration of the vision book's, submitted by the script beside it."""
    changes = {**SUBMIT, 'DISTR="cpu"': f'DISTR="{distr}"'}
    common = {"checkout": "practical-ml-vision-book", "source": FLOWERS, "package": "flowers-1.0", "data": ("flowers",)}
    return Row(
        **{**common, "key": key, "what": what, "changes": changes, "command": "bash vertex_submit_job.sh", **more}
    )


ROWS = (
    Row(
        "S1", "distributed tuning: trainer and launch cells, 15 trials on a CPU machine", "training-data-analyst", ENTERPRISE,
        PYTHON, cells=("TIMESTAMP = datetime", *HORSES_CELLS), before=f"PROJECT_ID, BUCKET_URI = {PROJECT!r}, 'gs://{BUCKET}'",
        fewer=HORSES_FEWER, data=("horses",), images={"gcr.io/*/horse-human:*": "python -m trainer.task"},
    ),
    Row(
        "S2-training", "CustomTrainingJob, 2 replicas with 2 GPUs each, model registered", **BOOK,
        cells=(*BOOK_CELLS, "custom_training_job = aiplatform", "mnist_model2 = custom"), changes=BOOK_CHANGES,
    ),
    Row(
        "S2-search", "HyperparameterTuningJob, 100 trials of 2 GPUs, best trial read back", **BOOK,
        cells=(*BOOK_CELLS, "trial_job = aiplatform", "hp_job = aiplatform", "def get_final_metric", "max(trial_accuracies)"),
        changes=BOOK_CHANGES, before="import numpy as np",
        fewer={"max_trial_count=100": "max_trial_count=4", "parallel_trial_count=20": "parallel_trial_count=2"},
    ),
    Row(
        "S2-tuner", "Keras Tuner on a chief and two workers", **BOOK,
        cells=(*BOOK_CELLS, 'open("my_keras_tuner_search.py", "w")', "hp_search_job = aiplatform", "mnist_model3 = hp"),
        changes=BOOK_CHANGES,
    ),
    Row(
        "S3", "multi-worker: trainer and launch by CustomJob.run, a chief and a worker with a GPU each", "adv-mlops",
        "3_distributed_training/0_intro", "python run_job.py", data=("cassava",),
        changes={"gs://adv-mlops-bucket-2": f"gs://{BUCKET}", "NVIDIA_TESLA_K80": "NVIDIA_TESLA_T4"},
        images={"us-central1-docker.pkg.dev/*/distributed-training-intro*": "python -m trainer.task"},
    ),
    Row(
        "S4", "distributed tuning: trainer and launch cells, 15 trials of 2 GPUs", "vertex-ai-samples", TUNING, PYTHON,
        cells=("PROJECT_ID = ", "BUCKET_URI = ", *HORSES_CELLS),
        changes={"[your-project-id]": PROJECT, "gs://dist-{PROJECT_ID}-unique": f"gs://{BUCKET}"},
        fewer=HORSES_FEWER, data=("horses",), images={"gcr.io/*/horse-human:*": "python -m trainer.task"},
    ),
    _flowers("S5-cpu", "cpu.yaml", "cpu", outcome=CLOUD, says='Using TPU:  "cpu"', why=QUOTES),
    _flowers("S5-gpus", "gpus_one_machine.yaml", "gpus_one_machine", outcome=CLOUD, says='Using TPU:  "gpus_one_machine"', why=QUOTES),
    _flowers(
        "S5-workers", "gpus_multiple_machines.yaml", "gpus_multiple_machines", outcome=CLOUD,
        says="Failed to parse YAML", why="gcloud: it is not YAML",
    ),
    _flowers(
        "S5-tpu", "tpu_caip.yaml", "tpu_caip", outcome=CLOUD, says="INVALID_ARGUMENT",
        why="a form of AI Platform, which Vertex AI does not take",
    ),
    _flowers(
        "S5-tuning", "hparam.yaml", "cpu", command="gcloud ai hp-tuning-jobs create --region=us-central1 "
        f"--project={PROJECT} --config=hparam.yaml --display-name=flowers", outcome=CLOUD, says="Failed to parse",
        why="gcloud: pythonPackageSpec is no field of trialJobSpec",
    ),
    _flowers(
        "S5-grid", "hparam-continue.yaml", "hparam-continue", outcome=CLOUD, says="INVALID_ARGUMENT",
        why="a form of AI Platform, which Vertex AI does not take",
    ),
    _flowers("S5-cpu-unquoted", "cpu.yaml, quotes in its arguments taken out", "cpu", mends=_unquoted("cpu")),
    _flowers(
        "S5-gpus-unquoted", "gpus_one_machine.yaml, quotes in its arguments taken out", "gpus_one_machine",
        mends=_unquoted("gpus_one_machine"),
    ),
)  # fmt: skip
