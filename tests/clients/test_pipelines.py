"""Pipeline programs that nobody changed: launchers of google_cloud_pipeline_components, and kfp's local runner.

They run in the environment `pipelines` of `make test-clients`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import Run
from tests.clients.kit import python
from tests.support.jobkit import IMAGE, pool
from vertexrig.spec.api_names import snake_keys

PLACE = ("--project", "my-project", "--location", "us-central1")
REPORT = """
import sys
from hypertune import HyperTune
rate = float(sys.argv[2].partition("=")[2])
HyperTune().report_hyperparameter_tuning_metric("accuracy", 1 - rate, global_step=1)
"""
COMMAND = """
import json, sys
from kfp.local import executor_input_utils as inputs, placeholder_utils
from google_cloud_pipeline_components.v1.custom_job import CustomTrainingJobOp
from google_cloud_pipeline_components.v1.hyperparameter_tuning_job import HyperparameterTuningJobRunOp

component = {"custom": CustomTrainingJobOp, "tuning": HyperparameterTuningJobRunOp}[sys.argv[1]]
given, root = json.loads(sys.argv[2]), sys.argv[3]
pipeline = component.component_spec.to_pipeline_spec()
(spec,), ((executor),) = pipeline.components.values(), pipeline.deployment_spec["executors"].values()
defaults = {name: one.default for name, one in component.component_spec.inputs.items() if one.optional}
filled = inputs.construct_executor_input(
    component_spec=spec, arguments={**defaults, **given}, task_root=root, block_input_artifact=True)
container = executor["container"]
words = placeholder_utils.replace_placeholders(
    full_command=[*container["command"], *container["args"]],
    executor_input_dict=inputs.executor_input_to_dict(executor_input=filled, component_spec=spec),
    pipeline_resource_name="local-1", task_resource_name="task-1", pipeline_root=root, unique_pipeline_id="1")
print(json.dumps(words))
"""
"""What kfp gives a container engine for a component with these arguments; there is no engine here, so the test runs it."""
LIGHT = """
from kfp import dsl, local

local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root="pipeline-root", raise_on_error=True)


@dsl.component
def train(display_name: str, image: str) -> str:
    from google.cloud import aiplatform

    aiplatform.init(project="my-project", location="us-central1", staging_bucket="gs://staging-bucket")
    job = aiplatform.CustomPythonPackageTrainingJob(
        display_name=display_name, python_package_gcs_uri="gs://packages/trainer.tar.gz",
        python_module_name="trainer.task", container_uri=image)
    job.run(replica_count=1, machine_type="n1-standard-4", args=["print('from a component')"])
    return job.state.name


@dsl.pipeline
def trained(image: str) -> str:
    first = train(display_name="first", image=image)
    return train(display_name="second", image=image).after(first).output


import sys
print("the pipeline gave", trained(image=sys.argv[1]).output)
"""


@pytest.fixture(scope="module")
def kfp() -> str:
    """The Python with kfp and the components."""
    return python("kfp", "google_cloud_pipeline_components", client="pipelines")


def payload(code: str, **fields: Any) -> str:
    """A job's payload, as a pipeline gives it to a launcher."""
    return json.dumps(
        {"display_name": "launched", **fields} | {"job_spec": {"worker_pool_specs": snake_keys([pool(code)])}}
    )


def test_the_launcher_of_custom_jobs(kfp: str, run: Run, tmp_path: Path) -> None:
    """It creates the job, waits for its end, and leaves the job's name; a job that fails fails the launcher."""
    launcher = (kfp, "-m", "google_cloud_pipeline_components.container.v1.custom_job.launcher", "--type", "CustomJob")
    left = tmp_path / "resources"
    run(*launcher, *PLACE, "--payload", payload("print('launched')"), "--gcp_resources", str(left))
    (made,) = json.loads(left.read_text())["resources"]
    assert made["resourceType"] == "CustomJob"
    assert "/customJobs/" in made["resourceUri"]
    failed = run(
        *launcher, *PLACE, "--payload", payload("sys.exit(3)"), "--gcp_resources", str(tmp_path / "other"), check=False
    )
    assert failed.returncode != 0
    assert "in error state" in failed.stderr


def test_the_container_of_each_component(kfp: str, run: Run, tmp_path: Path) -> None:
    """CustomTrainingJobOp and HyperparameterTuningJobRunOp: what their containers run creates the jobs and waits for them."""
    common = {"project": "my-project", "location": "us-central1", "base_output_directory": "gs://staging-bucket/out"}
    study = {
        "study_spec_metrics": [{"metric_id": "accuracy", "goal": "MAXIMIZE"}],
        "study_spec_parameters": [
            {"parameter_id": "rate", "double_value_spec": {"min_value": 0.1, "max_value": 0.9}, "scale_type": "UNIT_LINEAR_SCALE"}
        ],
        "max_trial_count": 2, "parallel_trial_count": 2,
    }  # fmt: skip
    arguments: dict[str, dict[str, Any]] = {
        "custom": {"worker_pool_specs": snake_keys([pool("print('a component')")]), "persistent_resource_id": ""},
        "tuning": {"worker_pool_specs": snake_keys([pool(REPORT)]), **study},
    }
    for kind, own in arguments.items():
        root = tmp_path / kind
        given = {"display_name": kind, **common, **own}
        shown = run(kfp, "-c", COMMAND, kind, json.dumps(given), str(root))
        words = json.loads(shown.stdout.splitlines()[-1])
        assert words[0] == "python3"
        run(kfp, *words[1:])
        (left,) = root.rglob("gcp_resources")
        (made,) = json.loads(left.read_text())["resources"]
        assert made["resourceType"] == {"custom": "CustomJob", "tuning": "HyperparameterTuningJob"}[kind]


def test_a_pipeline_in_subprocesses(kfp: str, run: Run, tmp_path: Path) -> None:
    """A pipeline of lightweight components that train with the SDK runs with kfp's SubprocessRunner, one after the other."""
    (tmp_path / "light.py").write_text(LIGHT)
    done = run(kfp, "light.py", IMAGE, PATH=f"{Path(kfp).parent}:/usr/bin:/bin")
    assert "the pipeline gave PIPELINE_STATE_SUCCEEDED" in done.stdout, done.stdout
