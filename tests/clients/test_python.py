"""Programs in Python that nobody changed, and gcloud, through the front."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from localvertex.state import RunningServer
from tests.clients.conftest import Run
from tests.clients.kit import AT_LENGTH, python
from tests.support.jobkit import IMAGE, Api, job, pool
from tests.support.tools import need

TRAIN = """
import os, sys
from google.cloud import storage
from hypertune import HyperTune

bucket, _, folder = os.environ["AIP_MODEL_DIR"].removeprefix("gs://").partition("/")
rank = os.environ["CLUSTER_SPEC"].count("workerpool1") and '"type":"workerpool1"' in os.environ["CLUSTER_SPEC"]
if not rank:
    storage.Client().bucket(bucket).blob(folder + "saved.txt").upload_from_string(" ".join(sys.argv[1:]))
HyperTune().report_hyperparameter_tuning_metric("accuracy", len(sys.argv), global_step=1)
"""

PROGRAM = """
import sys
from google.cloud import aiplatform
from google.cloud.aiplatform import hyperparameter_tuning as hpt

IMAGE = {image!r}
transport = {{"api_transport": sys.argv[1]}} if sys.argv[1:] else {{}}
aiplatform.init(project="my-project", location="us-central1", staging_bucket="gs://staging-bucket", **transport)

training = aiplatform.CustomTrainingJob(display_name="training", script_path="train.py", container_uri=IMAGE)
training.run(replica_count=2, machine_type="n1-standard-4", args=["two"], base_output_dir="gs://staging-bucket/two", sync=False)
package = aiplatform.CustomPythonPackageTrainingJob(
    display_name="package", python_package_gcs_uri="gs://packages/trainer.tar.gz", python_module_name="trainer.task",
    container_uri=IMAGE)
package.run(replica_count=1, machine_type="n1-standard-4", args=["print('packaged')"], sync=False)
custom = aiplatform.CustomJob.from_local_script(
    display_name="custom", script_path="train.py", container_uri=IMAGE, args=["gs://staging-bucket/in", "one"],
    base_output_dir="gs://staging-bucket/one", machine_type="n1-standard-4")
tuning = aiplatform.HyperparameterTuningJob(
    display_name="tuning", custom_job=custom, metric_spec={{"accuracy": "maximize"}}, max_trial_count=2,
    parallel_trial_count=2, parameter_spec={{"rate": hpt.DoubleParameterSpec(min=0.1, max=0.9, scale="linear")}})
tuning.run(sync=False)
custom.run()
for one in (training, package, tuning):
    one.wait()
print([one.state.name for one in (custom, training, package, tuning)], len(tuning.trials))
"""


@pytest.mark.whole
@pytest.mark.parametrize("transport", [pytest.param("rest", marks=AT_LENGTH), "grpc"])
def test_the_sdk_without_endpoint_or_credentials(transport: str, run: Run, here: RunningServer, tmp_path: Path) -> None:
    """CustomJob, CustomTrainingJob with two replicas, CustomPythonPackageTrainingJob and HyperparameterTuningJob run.

    Their trainers write to gs:// with google-cloud-storage, and see the arguments as they were given.
    """
    if transport == "grpc" and here.grpc_port is None:
        pytest.skip("this server has no gRPC port")
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "launch.py").write_text(PROGRAM.format(image=IMAGE))
    done = run(sys.executable, "launch.py", *([transport] if transport == "rest" else []))
    states = ["JOB_STATE_SUCCEEDED", "PIPELINE_STATE_SUCCEEDED", "PIPELINE_STATE_SUCCEEDED", "JOB_STATE_SUCCEEDED"]
    assert done.stdout.splitlines()[-1] == f"{states} 2", done.stdout + done.stderr
    written = here.root / "gs/staging-bucket"
    assert (written / "one/model/saved.txt").read_text() == "gs://staging-bucket/in one"
    assert (written / "two/model/saved.txt").read_text() == "two"
    assert (written / "one/1/model/saved.txt").read_text().startswith("gs://staging-bucket/in one --rate=")


def test_google_cloud_storage(run: Run, here: RunningServer) -> None:
    """google-cloud-storage makes a bucket, writes, reads and signs, by the real host and with the project's name."""
    program = """
import urllib.request
from google.cloud import storage
client = storage.Client()
bucket = client.create_bucket("made-by-client")
blob = bucket.blob("folder/name")
blob.upload_from_string("0123456789" * 1000000)
assert blob.download_as_bytes(start=10, end=19) == b"0123456789"
assert blob.public_url == "https://storage.googleapis.com/made-by-client/folder/name"
assert urllib.request.urlopen(blob.generate_signed_url(expiration=60, version="v4")).read(4) == b"0123"
print(client.project, [found.name for found in client.list_blobs("made-by-client")])
"""
    assert run(sys.executable, "-c", program).stdout == "my-project ['folder/name']\n"
    assert (here.root / "gs/made-by-client/folder/name").stat().st_size == 10_000_000


@pytest.mark.whole
def test_gcloud(run: Run, tmp_path: Path) -> None:
    """Gcloud creates a job, copies files and has an account, at Google's own names."""
    need("gcloud")
    (tmp_path / "job.yaml").write_text(json.dumps({"workerPoolSpecs": [
        {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1,
         "pythonPackageSpec": {"executorImageUri": IMAGE, "packageUris": ["gs://packages/trainer.tar.gz"],
                               "pythonModule": "trainer.task", "args": ["print('ran')"]}}]}))  # fmt: skip
    made = run("gcloud", "ai", "custom-jobs", "create", "--display-name=by-gcloud", "--config=job.yaml")
    assert "Using endpoint [https://us-central1-aiplatform.googleapis.com/]" in made.stderr
    run("gcloud", "storage", "cp", "job.yaml", "gs://staging-bucket/job.yaml")
    assert run("gcloud", "storage", "ls", "gs://staging-bucket/job*").stdout == "gs://staging-bucket/job.yaml\n"
    assert run("gcloud", "config", "get", "account").stdout == "local-vertex@local-project.iam.gserviceaccount.com\n"


@pytest.mark.whole
def test_a_replica_has_an_account(here: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gcloud in a trainer has the made-up account and reaches the bucket; the user's own login is nowhere in its environment."""
    need("gcloud")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/own/key.json")
    monkeypatch.setenv("CLOUDSDK_AUTH_ACCESS_TOKEN", "own-token")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "own-login"))
    code = (
        "import subprocess, google.auth\n"
        "asked = subprocess.run(['gcloud', 'config', 'get', 'account'], capture_output=True, text=True, check=True)\n"
        "open('account', 'w').write(asked.stdout)\n"
        "subprocess.run(['gcloud', 'storage', 'cp', 'account', 'gs:' + '//staging-bucket/account'], check=True)\n"
        "assert google.auth.default()[0].service_account_email.endswith('.iam.gserviceaccount.com')\n"
        "assert not [name for name, value in os.environ.items() if 'own' + '-' in value or '/ow' + 'n/' in value]"
    )
    api = Api(here.url)
    done = api.wait(api.create(job(pool(code)))["name"])
    assert done["state"] == "JOB_STATE_SUCCEEDED", done["error"]
    assert (
        here.root / "gs/staging-bucket/account"
    ).read_text() == "local-vertex@local-project.iam.gserviceaccount.com\n"


@pytest.mark.whole
def test_tensorflows_own_file_system(run: Run, here: RunningServer) -> None:
    """tf.io.gfile lists, reads, writes, renames and removes by gs://, also what is longer than a chunk of an upload.

    SavedModels, checkpoints and TensorBoard's event files are written to gs:// and read again.
    """
    program = """
import tensorflow as tf
files = tf.io.gfile
data = bytes(range(256)) * 4096 * 3
files.makedirs("gs://staging-bucket/tf/deep")
with files.GFile("gs://staging-bucket/tf/deep/data", "wb") as out:
    out.write(data)
with files.GFile("gs://staging-bucket/tf/deep/data", "rb") as source:
    source.seek(255)
    assert source.read(3) == data[255:258]
    source.seek(0)
    assert source.read() == data
with tf.io.TFRecordWriter("gs://staging-bucket/tf/records") as out:
    out.write(b"one")
assert [r.numpy() for r in tf.data.TFRecordDataset("gs://staging-bucket/tf/records")] == [b"one"]
files.rename("gs://staging-bucket/tf/deep/data", "gs://staging-bucket/tf/moved")
assert files.exists("gs://staging-bucket/tf/moved") and not files.exists("gs://staging-bucket/tf/deep/data")
print(sorted(files.listdir("gs://staging-bucket/tf/")), files.glob("gs://staging-bucket/tf/m*"))
files.remove("gs://staging-bucket/tf/records")
module = tf.Module()
module.v = tf.Variable(3.0)
tf.saved_model.save(module, "gs://staging-bucket/tf/saved")
assert tf.saved_model.load("gs://staging-bucket/tf/saved").v.numpy() == 3
saved = tf.train.Checkpoint(v=module.v).save("gs://staging-bucket/tf/checkpoints/c")
assert tf.train.latest_checkpoint("gs://staging-bucket/tf/checkpoints") == saved
with tf.summary.create_file_writer("gs://staging-bucket/tf/events").as_default():
    tf.summary.scalar("loss", 0.5, step=1)
events, = files.glob("gs://staging-bucket/tf/events/events*")
assert sum(1 for _ in tf.data.TFRecordDataset(events)) >= 2
"""
    done = run(sys.executable, "-c", program)
    assert done.stdout == "['deep/', 'moved', 'records'] ['gs://staging-bucket/tf/moved']\n", done.stderr
    assert (here.root / "gs/staging-bucket/tf/moved").stat().st_size == 3 << 20
    assert not (here.root / "gs/staging-bucket/tf/records").exists()


def test_fsspec(run: Run, here: RunningServer) -> None:
    """gcsfs, by which fsspec and pandas read gs://, writes, lists, reads and removes."""
    program = """
import fsspec
with fsspec.open("gs://staging-bucket/fs/spec.txt", "w") as out:
    out.write("by fsspec")
files = fsspec.filesystem("gs")
files.pipe("staging-bucket/fs/large", bytes(9 << 20))
print(sorted(files.ls("staging-bucket/fs")), files.info("staging-bucket/fs/large")["size"])
files.rm("staging-bucket/fs/large")
print(fsspec.open("gs://staging-bucket/fs/spec.txt").open().read())
"""
    done = run(python("gcsfs"), "-c", program)
    assert done.stdout.splitlines() == [
        f"['staging-bucket/fs/large', 'staging-bucket/fs/spec.txt'] {9 << 20}", "b'by fsspec'"
    ]  # fmt: skip
    assert [file.name for file in (here.root / "gs/staging-bucket/fs").iterdir()] == ["spec.txt"]


def test_a_notebook(run: Run, tmp_path: Path) -> None:
    """A notebook executed by nbclient lists the jobs, as the program in it does anywhere."""
    own = python("nbclient", "nbformat", "ipykernel", "google.cloud.aiplatform")
    cells = [
        "from google.cloud import aiplatform\naiplatform.init(project='my-project')",
        "print(type(aiplatform.CustomJob.list()))",
    ]
    write = (
        "import nbformat, sys\nnotebook = nbformat.v4.new_notebook()\n"
        "notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in sys.argv[1:]]\n"
        "nbformat.write(notebook, 'notebook.ipynb')"
    )
    run(own, "-c", write, *cells)
    run(own, "-c", "from nbclient.cli import main; main()", "notebook.ipynb", "--output=done")
    assert "<class 'list'>" in (tmp_path / "done.ipynb").read_text()
