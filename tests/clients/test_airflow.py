"""Airflow's operators for Vertex AI, in a DAG that names no endpoint and no credentials.

They run in the environment `airflow` of `make test-clients`.
"""

from __future__ import annotations

from pathlib import Path

from localvertex.state import RunningServer
from tests.clients.conftest import Run
from tests.clients.kit import python
from tests.support.jobkit import IMAGE, Api

DAG = """
from datetime import datetime

from airflow.models.dag import DAG
from airflow.providers.google.cloud.operators import vertex_ai
from airflow.providers.google.cloud.operators.vertex_ai.custom_job import (
    CreateCustomPythonPackageTrainingJobOperator, ListCustomTrainingJobOperator)
from airflow.providers.google.cloud.operators.vertex_ai.hyperparameter_tuning_job import (
    CreateHyperparameterTuningJobOperator, ListHyperparameterTuningJobOperator)
from google.cloud.aiplatform import hyperparameter_tuning as hpt

PLACE = {"project_id": "my-project", "region": "us-central1"}
IMAGE = {image!r}
REPORT = '''
from hypertune import HyperTune
HyperTune().report_hyperparameter_tuning_metric("accuracy", float(args[0].partition("=")[2]), global_step=1)
'''
POOL = {
    "machine_spec": {"machine_type": "n1-standard-4"}, "replica_count": 1,
    "python_package_spec": {"executor_image_uri": IMAGE, "package_uris": ["gs://packages/trainer.tar.gz"],
                            "python_module": "trainer.task", "args": [REPORT]},
}
with DAG("vertex", schedule=None, start_date=datetime(2021, 1, 1)) as dag:
    train = CreateCustomPythonPackageTrainingJobOperator(
        task_id="train", staging_bucket="gs://staging-bucket", display_name="trained", container_uri=IMAGE,
        python_package_gcs_uri="gs://packages/trainer.tar.gz", python_module_name="trainer.task",
        args=["print('from a DAG')"], machine_type="n1-standard-4", replica_count=1, **PLACE)
    tune = CreateHyperparameterTuningJobOperator(
        task_id="tune", staging_bucket="gs://staging-bucket", display_name="tuned", worker_pool_specs=[POOL],
        parameter_spec={"rate": hpt.DoubleParameterSpec(min=0.1, max=0.9, scale="linear")},
        metric_spec={"accuracy": "maximize"}, max_trial_count=2, parallel_trial_count=2, deferrable=True, **PLACE)
    listed = ListCustomTrainingJobOperator(task_id="listed", **PLACE)
    studies = ListHyperparameterTuningJobOperator(task_id="studies", **PLACE)
    [train, tune] >> listed >> studies
"""


def test_operators_train_tune_and_list(run: Run, here: RunningServer, tmp_path: Path) -> None:
    """A training pipeline, and a study by a deferrable operator, run to their end; both are listed."""
    own = python("airflow.providers.google", client="airflow")
    dags = tmp_path / "airflow/dags"
    dags.mkdir(parents=True)
    (dags / "vertex.py").write_text(DAG.replace("{image!r}", repr(IMAGE)))
    variables = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        # Seconds; by default 30, which the imports of the DAG take on a busy machine.
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
        "AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT": "google-cloud-platform://",
    }
    run(own, "-m", "airflow", "db", "migrate", **variables)
    run(own, "-m", "airflow", "dags", "test", "vertex", timeout=400, **variables)
    api = Api(here.url)
    for kind, state in (("trainingPipelines", "PIPELINE"), ("hyperparameterTuningJobs", "JOB")):
        assert [one["state"] for one in api.call("GET", kind).json()[kind]] == [f"{state}_STATE_SUCCEEDED"]
