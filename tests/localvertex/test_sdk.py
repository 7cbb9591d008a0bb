"""The real google-cloud-aiplatform, over REST and over gRPC: jobs, experiments, TensorBoards, models and their versions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import grpc
import pytest

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from tests.support.jobkit import IMAGE, job, pool, with_trainer
from vertexrig.spec.api_names import snake_keys

WAIT = "import time; time.sleep(600)"
SAVES = """
import os
os.makedirs(os.environ["AIP_MODEL_DIR"], exist_ok=True)
open(os.environ["AIP_MODEL_DIR"] + "saved_model.pb", "w").write("x")
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    root = tmp_path_factory.mktemp("registry")
    with_trainer(root)
    (root / "gs/staging").mkdir()
    with server.running(Settings(root, slots=8, options=RunOptions(grace=0.5)), grpc=True) as running:
        yield running


@pytest.fixture(params=["rest", "grpc"])
def sdk(
    request: pytest.FixtureRequest, here: server.RunningServer, quick_sdk: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """The SDK over REST the documented way, or over gRPC with a channel that has no TLS; in a region of its own."""
    from google.api_core import grpc_helpers
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform

    settings = vars(aiplatform.initializer.global_config)
    kept = dict(settings)
    settings.update(vars(aiplatform.initializer._Config()))  # noqa: SLF001
    over_rest = {"api_endpoint": f"{here.url}{server.AIPLATFORM}", "api_transport": "rest"}
    if request.param == "grpc":
        open_ = lambda *_, **__: grpc.insecure_channel(f"127.0.0.1:{here.grpc_port}")  # noqa: E731
        monkeypatch.setattr(grpc_helpers, "create_channel", open_)
    region = {"rest": "us-central1", "grpc": "us-east1"}[request.param]
    aiplatform.init(
        project="my-project", location=region, staging_bucket="gs://staging", credentials=AnonymousCredentials(),
        **(over_rest if request.param == "rest" else {}),
    )  # fmt: skip
    yield aiplatform
    settings.clear()
    settings.update(kept)


def pools(*given: dict[str, Any]) -> list[dict[str, Any]]:
    """Worker pools in the SDK's spelling."""
    found: list[dict[str, Any]] = snake_keys(job(*given)["workerPoolSpecs"])
    return found


def begun(sdk: Any, name: str, experiment: str, run: str) -> Any:
    """Begin a run of an experiment with a new TensorBoard, which is returned."""
    board = sdk.Tensorboard.create(display_name=name)
    # Without a project, init means REST.
    sdk.init(project="my-project", experiment=experiment, experiment_tensorboard=board)
    sdk.start_run(run)
    return board


@pytest.mark.parametrize("sdk", ["rest"], indirect=True)
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


def test_an_experiment(sdk: Any) -> None:
    """A run with parameters, metrics, a time series, artifacts and an execution is read back whole, and deleted."""
    board = begun(sdk, "board", "first", "run-1")
    sdk.log_params({"rate": 0.1, "optimizer": "adam"})
    sdk.log_metrics({"accuracy": 0.9})
    for step in (1, 2, 3):
        sdk.log_time_series_metrics({"loss": 1 / step}, step=step)
    with sdk.start_execution(schema_title="system.ContainerExecution", display_name="train") as execution:
        data = sdk.Artifact.create(schema_title="system.Dataset", uri="gs://b/data", display_name="d")
        execution.assign_input_artifacts([data])
        execution.assign_output_artifacts(
            [sdk.Artifact.create(schema_title="system.Model", uri="gs://b/m", display_name="m")]
        )
        assert [one.uri for one in execution.get_input_artifacts()] == ["gs://b/data"]
        assert [one.uri for one in execution.get_output_artifacts()] == ["gs://b/m"]
    sdk.end_run()
    run = sdk.ExperimentRun("run-1", experiment="first")
    assert run.get_params() == {"rate": 0.1, "optimizer": "adam"} and run.get_metrics() == {"accuracy": 0.9}
    assert run.get_state() == "COMPLETE"
    assert {one.uri for one in run.get_artifacts()} >= {"gs://b/data", "gs://b/m"}
    series = run._backing_tensorboard_run.resource.read_time_series_data()  # noqa: SLF001
    assert [(point.step, point.scalar.value) for point in series["loss"].values] == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    assert [one.name for one in sdk.ExperimentRun.list(experiment="first")] == ["run-1"]
    assert [one.uri for one in sdk.Artifact.list(filter='uri="gs://b/m"')] == ["gs://b/m"]
    assert [one.display_name for one in sdk.Tensorboard.list()] == ["board"]
    sdk.Experiment("first").delete(delete_backing_tensorboard_runs=True)
    assert sdk.Experiment.list() == [] and sdk.Experiment.get("first") is None
    board.delete()
    assert sdk.Tensorboard.list() == []


@pytest.mark.parametrize("sdk", ["grpc"], indirect=True)
def test_a_job_with_the_run_of_an_experiment(sdk: Any) -> None:
    """CustomJob.run takes an experiment and its run, which it ends with the job."""
    begun(sdk, "jobs", "of-jobs", "job-run")
    sdk.end_run()
    first = sdk.CustomJob(display_name="tracked", worker_pool_specs=pools(pool("print('hello')")))
    first.run(
        experiment="of-jobs", experiment_run="job-run", service_account="trainer@my-project.iam.gserviceaccount.com"
    )
    assert first.state.name == "JOB_STATE_SUCCEEDED"
    assert first.to_dict()["jobSpec"]["experimentRun"].endswith("/contexts/of-jobs-job-run")
    assert sdk.ExperimentRun("job-run", experiment="of-jobs").get_state() == "COMPLETE"


@pytest.mark.parametrize("sdk", ["grpc"], indirect=True)
def test_a_job_that_names_an_experiment_alone_gets_a_run(sdk: Any) -> None:
    """The run is in the job's spec and in the experiment, the replica knows both by name, and it ends with the job."""
    board = sdk.Tensorboard.create(display_name="runs")
    sdk.init(project="my-project", experiment="automatic", experiment_tensorboard=board)
    code = "print('seen', os.environ['AIP_EXPERIMENT_NAME'], os.environ['AIP_EXPERIMENT_RUN_NAME'])"
    made = sdk.CustomJob(display_name="automatic", worker_pool_specs=pools(pool(f"import os; {code}")))
    made.run(experiment="automatic", service_account="trainer@my-project.iam.gserviceaccount.com")
    spec = made.to_dict()["jobSpec"]
    assert spec["experimentRun"].startswith(f"{spec['experiment']}-custom-job-")
    (run,) = sdk.ExperimentRun.list(experiment="automatic")
    assert run.resource_name == spec["experimentRun"] and run.get_state() == "COMPLETE"


@pytest.mark.parametrize("sdk", ["rest"], indirect=True)
def test_training_makes_versions(sdk: Any) -> None:
    """A pipeline's model gets another version by `parent_model`, also with `model_id`; the registry lists, changes and deletes them."""
    training = sdk.CustomPythonPackageTrainingJob(
        display_name="training", python_package_gcs_uri="gs://packages/trainer.tar.gz", python_module_name="trainer.task",
        container_uri=IMAGE, model_serving_container_image_uri=IMAGE,
    )  # fmt: skip
    asked = {"replica_count": 1, "machine_type": "n1-standard-4", "args": [SAVES]}
    first = training.run(model_display_name="mine", base_output_dir="gs://staging/one", model_id="mine-1", **asked)
    assert first.name == "mine-1" and first.version_id == "1"
    again = type(training)(
        display_name="again", python_package_gcs_uri="gs://packages/trainer.tar.gz", python_module_name="trainer.task",
        container_uri=IMAGE, model_serving_container_image_uri=IMAGE,
    )  # fmt: skip
    second = again.run(
        model_display_name="mine", base_output_dir="gs://staging/two", parent_model=first.resource_name,
        model_id="mine-1", is_default_version=False, model_version_aliases=["newer"], **asked,
    )  # fmt: skip
    assert (second.resource_name, second.version_id, second.uri) == (first.resource_name, "2", "gs://staging/two/model")
    registry = first.versioning_registry
    assert [(one.version_id, one.version_aliases) for one in registry.list_versions()] == [
        ("1", ["default"]),
        ("2", ["newer"]),
    ]
    registry.add_version_aliases(["default"], "newer")
    assert sdk.Model(first.resource_name).version_id == "2"
    first.update(display_name="renamed", labels={"a": "b"})
    assert [one.display_name for one in sdk.Model.list(filter='labels.a="b"')] == ["renamed"]
    registry.delete_version("1")
    uploaded = sdk.Model.upload(
        display_name="renamed",
        artifact_uri="gs://b/x",
        serving_container_image_uri=IMAGE,
        parent_model=first.resource_name,
    )
    # The new version is the default one, and has no labels.
    assert uploaded.version_id == "3" and sdk.Model.list(filter='labels.a="b"') == []
    first.delete()
    assert sdk.Model.list() == []


@pytest.mark.parametrize("sdk", ["rest"], indirect=True)
def test_a_parent_model_that_is_not_there(sdk: Any) -> None:
    """A pipeline whose parent model does not exist is refused when it is created."""
    from google.api_core import exceptions

    training = sdk.CustomPythonPackageTrainingJob(
        display_name="training", python_package_gcs_uri="gs://packages/trainer.tar.gz", python_module_name="trainer.task",
        container_uri=IMAGE, model_serving_container_image_uri=IMAGE,
    )  # fmt: skip
    with pytest.raises(exceptions.NotFound, match="The Model does not exist"):
        training.run(model_display_name="m", parent_model="7", args=[SAVES], base_output_dir="gs://staging/none")


@pytest.mark.whole
@pytest.mark.parametrize("sdk", ["grpc"], indirect=True)
def test_event_files_are_uploaded(sdk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's uploader copies event files into a TensorBoard, from which their values are read again."""
    # TensorBoard then reads files by itself; it would import TensorFlow for it. The SDK takes TensorFlow's file system alone.
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", ModuleType("notf"))
    from tensorboard.compat import tensorflow_stub
    from tensorboard.summary import Writer

    monkeypatch.setitem(sys.modules, "tensorflow", Mock(io=tensorflow_stub.io))

    writer = Writer(str(tmp_path / "logs/train"))
    for step in range(3):
        writer.add_scalar("loss", 1 / 2**step, step=step)
    writer.close()
    board = sdk.Tensorboard.create(display_name="uploads")
    sdk.upload_tb_log(
        tensorboard_id=board.name, tensorboard_experiment_name="uploaded", logdir=str(tmp_path / "logs")
    )  # fmt: skip
    (run,) = sdk.TensorboardRun.list(f"{board.resource_name}/experiments/uploaded")
    values = run.read_time_series_data()["loss"].values
    assert [(point.step, point.scalar.value) for point in values] == [(0, 1.0), (1, 0.5), (2, 0.25)]
