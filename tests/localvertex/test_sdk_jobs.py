"""The real google-cloud-aiplatform against the local Vertex."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from tests.support.jobkit import IMAGE, job, pool, with_trainer
from vertexrig.spec.api_names import snake_keys

WAIT = "import time; time.sleep(600)"
SCRIPT = """
import json, os, sys
cluster = json.loads(os.environ["CLUSTER_SPEC"])
if cluster["task"]["type"] == "workerpool0":
    os.makedirs(os.environ["AIP_MODEL_DIR"], exist_ok=True)
    with open(os.environ["AIP_MODEL_DIR"] + "saved_model.pb", "w") as file:
        file.write(json.dumps([sys.argv[1:], sorted(json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {}))]))
else:
    import time
    time.sleep(600)
"""


def pools(*given: dict[str, Any]) -> list[dict[str, Any]]:
    """Worker pools in the SDK's spelling."""
    found: list[dict[str, Any]] = snake_keys(job(*given)["workerPoolSpecs"])
    return found


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    root = tmp_path_factory.mktemp("local")
    with_trainer(root)
    (root / "gs/staging").mkdir()
    with server.running(Settings(root, slots=8, run=RunOptions(grace=0.5))) as running:
        yield running


@pytest.fixture
def sdk(here: server.RunningServer, quick_sdk: None) -> Iterator[Any]:
    """The SDK, pointed at the server the documented way and polling quickly."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform

    aiplatform.init(
        project="my-project", location="us-central1", staging_bucket="gs://staging",
        api_endpoint=f"{here.url}{server.AIPLATFORM}", api_transport="rest", credentials=AnonymousCredentials(),
    )  # fmt: skip
    yield aiplatform


def test_custom_job_run_and_submit(sdk: Any) -> None:
    """CustomJob.run waits for success; a failed one raises with the service's message; submit, list, get, cancel, delete work."""
    both = pools(pool("print(args)", "--epochs=2"), pool(WAIT))
    good = sdk.CustomJob(
        display_name="sdk-run", worker_pool_specs=both, base_output_dir="gs://staging/out", labels={"by": "sdk"}
    )
    good.run(timeout=120, restart_job_on_worker_restart=False)
    assert good.state.name == "JOB_STATE_SUCCEEDED" and good.resource_name.startswith("projects/")
    bad = sdk.CustomJob(display_name="sdk-bad", worker_pool_specs=pools(pool("1 / 0")))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        bad.run()
    waiting = sdk.CustomJob(display_name="sdk-wait", worker_pool_specs=pools(pool(WAIT)))
    waiting.submit()
    assert sdk.CustomJob.get(waiting.resource_name).display_name == "sdk-wait"
    waiting.cancel()
    while waiting.state.name in ("JOB_STATE_QUEUED", "JOB_STATE_PENDING", "JOB_STATE_RUNNING", "JOB_STATE_CANCELLING"):
        pass
    assert waiting.state.name == "JOB_STATE_CANCELLED"
    listed = [
        found.display_name
        for found in sdk.CustomJob.list(
            filter='labels.by="sdk" OR display_name="sdk-wait"', order_by="create_time desc"
        )
    ]
    assert listed == ["sdk-wait", "sdk-run"]
    waiting.delete()
    assert [found.display_name for found in sdk.CustomJob.list(filter='display_name="sdk-wait"')] == []


def test_custom_training_job(sdk: Any, here: server.RunningServer, tmp_path: Path) -> None:
    """CustomTrainingJob.run with two replicas trains and returns a Model for what the chief wrote."""
    (tmp_path / "train.py").write_text(SCRIPT)
    training = sdk.CustomTrainingJob(
        display_name="training", script_path="train.py", container_uri=IMAGE,
        model_serving_container_image_uri="us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15:latest",
    )  # fmt: skip
    model = training.run(
        replica_count=2,
        machine_type="n1-standard-4",
        args=["--a=1"],
        model_display_name="my-model",
        base_output_dir="gs://staging/ctj",
    )
    assert model.display_name == "my-model" and model.uri == "gs://staging/ctj/model"
    assert (here.root / "gs/staging/ctj/model/saved_model.pb").read_text() == '[["--a=1"], ["chief", "worker"]]'
    assert training.state.name == "PIPELINE_STATE_SUCCEEDED"
    model.delete()
    training.delete()


def test_a_failing_training_job_raises(sdk: Any) -> None:
    """A failing CustomPythonPackageTrainingJob.run raises with the replica's own error."""
    failing = sdk.CustomPythonPackageTrainingJob(
        display_name="failing",
        python_package_gcs_uri="gs://packages/trainer.tar.gz",
        python_module_name="trainer.task",
        container_uri=IMAGE,
    )
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        failing.run(replica_count=1, machine_type="n1-standard-4", args=["1 / 0"])
