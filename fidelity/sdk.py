"""What the rows tried with the Python SDK run, with the SDK's own log: the functions that the command line names."""

import logging
import os
import sys

from google.cloud import aiplatform
from google.cloud.aiplatform import base, hyperparameter_tuning, jobs, training_jobs

IMAGE = "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest"
SERVING = "us-docker.pkg.dev/vertex-ai/prediction/tf2-cpu.2-15:latest"


def begin():
    """Point the SDK at the services that the variables name."""
    logging.basicConfig(format="%(message)s", level=logging.INFO, force=True)
    options = {
        "project": os.environ["FIDELITY_PROJECT"],
        "location": os.environ["FIDELITY_REGION"],
        "staging_bucket": os.environ["FIDELITY_BUCKET"],
    }
    if not os.environ["FIDELITY_CLOUD"] or "127.0.0.1" in os.environ["FIDELITY_VERTEX"]:
        from google.auth.credentials import AnonymousCredentials

        options |= {"api_endpoint": os.environ["FIDELITY_VERTEX"], "api_transport": "rest"}
        options["credentials"] = AnonymousCredentials()
        for module in (base, jobs, training_jobs):
            for name in ("_JOB_WAIT_TIME", "_LOG_WAIT_TIME", "_BLOCK_WAIT_TIME"):
                if hasattr(module, name):
                    setattr(module, name, 0.1)
    aiplatform.init(**options)


def pool(*args):
    return {
        "machine_spec": {"machine_type": "n1-standard-4"},
        "replica_count": 1,
        "python_package_spec": {
            "executor_image_uri": IMAGE,
            "package_uris": [os.environ["FIDELITY_PACKAGE"]],
            "python_module": "fidelity_trainer.task",
            "args": list(args),
        },
    }


def study():
    """A tuning job of two trials."""
    job = aiplatform.CustomJob(display_name="fidelity sdk trial", worker_pool_specs=[pool("--do=report")])
    made = aiplatform.HyperparameterTuningJob(
        display_name="fidelity sdk study",
        custom_job=job,
        metric_spec={"accuracy": "maximize"},
        parameter_spec={
            "rate": hyperparameter_tuning.DoubleParameterSpec(min=0.1, max=1, scale="log"),
            "units": hyperparameter_tuning.IntegerParameterSpec(min=1, max=300, scale="linear"),
            "optimizer": hyperparameter_tuning.CategoricalParameterSpec(["sgd", "adam"]),
        },
        max_trial_count=2,
        parallel_trial_count=1,
    )
    made.run(timeout=600)
    for trial in made.trials:
        print(trial)


def pipeline():
    """A training pipeline that leaves a model, both deleted afterwards."""
    job = aiplatform.CustomPythonPackageTrainingJob(
        display_name="fidelity sdk pipeline",
        python_package_gcs_uri=os.environ["FIDELITY_PACKAGE"],
        python_module_name="fidelity_trainer.task",
        container_uri=IMAGE,
        model_serving_container_image_uri=SERVING,
    )
    model = job.run(
        model_display_name="fidelity sdk model", args=["--do=save", "--seconds=2"],  # so that it is seen to run
        replica_count=1, machine_type="n1-standard-4",
        base_output_dir=os.environ["FIDELITY_BUCKET"] + "/sdk", timeout=600,
    )  # fmt: skip
    job.delete()
    model.delete()


def resources():
    """A TensorBoard, a job that names it, a model, a table and a pipeline without a model; deleted afterwards."""
    board = aiplatform.Tensorboard.create(display_name="fidelity sdk board")
    job = aiplatform.CustomJob(
        display_name="fidelity sdk job",
        worker_pool_specs=[pool("--do=show", "--seconds=1")],
        base_output_dir=os.environ["FIDELITY_BUCKET"] + "/sdk-job",
    )
    account = f"trainer@{os.environ['FIDELITY_PROJECT']}.iam.gserviceaccount.com"
    job.run(service_account=account, tensorboard=board.resource_name, timeout=600)
    model = aiplatform.Model.upload(display_name="fidelity sdk upload", serving_container_image_uri=SERVING)
    table = aiplatform.TabularDataset.create(
        display_name="fidelity sdk table", gcs_source=os.environ["FIDELITY_BUCKET"] + "/sdk.csv"
    )
    training = aiplatform.CustomPythonPackageTrainingJob(
        display_name="fidelity sdk training",
        python_package_gcs_uri=os.environ["FIDELITY_PACKAGE"],
        python_module_name="fidelity_trainer.task",
        container_uri=IMAGE,
    )
    training.run(
        args=["--do=show", "--seconds=2"], replica_count=1, machine_type="n1-standard-4",
        base_output_dir=os.environ["FIDELITY_BUCKET"] + "/sdk-training", timeout=600,
    )  # fmt: skip
    for made in (table, model, training, job, board):
        made.delete()


if __name__ == "__main__":
    begin()
    for name in sys.argv[1:]:
        {"pipeline": pipeline, "study": study, "resources": resources}[name]()
