"""The book's three calls, from the rendered YAML.

Usage:
    python launch.py train        # CustomPythonPackageTrainingJob.run(replica_count=2): the book's CustomTrainingJob
    python launch.py job NAME     # CustomJob.run() for any job: the book's CustomJob.from_local_script
    python launch.py search       # HyperparameterTuningJob.run(), then the best trial
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

from google.cloud import aiplatform

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import sdk  # noqa: E402


def train(name: str = "my-custom-training-job") -> None:
    """Train on two replicas, by the kind of job that takes a package and one machine type for all."""
    spec = sdk.read(HERE, name)
    pools = spec["workerPoolSpecs"]
    machine, program = pools[0]["machineSpec"], pools[0]["pythonPackageSpec"]
    if any((pool["machineSpec"], pool["pythonPackageSpec"]) != (machine, program) for pool in pools):
        raise SystemExit(f"{name}: its pools differ; use: python launch.py job {name}")
    output = spec["baseOutputDirectory"]["outputUriPrefix"]
    training = aiplatform.CustomPythonPackageTrainingJob(
        display_name=name,
        python_package_gcs_uri=program["packageUris"],
        python_module_name=program["pythonModule"],
        container_uri=program["executorImageUri"],
        staging_bucket=output,
    )
    training.run(
        replica_count=sum(pool["replicaCount"] for pool in pools),
        machine_type=machine["machineType"],
        accelerator_type=machine["acceleratorType"],
        accelerator_count=machine["acceleratorCount"],
        args=program["args"],
        base_output_dir=output,
        **sdk.run_options(spec),
    )


def job(name: str) -> None:
    """Run any job of the project file."""
    spec = sdk.read(HERE, name)
    sdk.custom_job(name, spec).run(**sdk.run_options(spec))


def search(name: str = "my-hp-search-job") -> None:
    """Run the study and print its best trial."""
    sweep = sdk.read(HERE, name)
    tuning = sdk.tuning_job(name, sweep)
    tuning.run(**sdk.run_options(sweep["trialJobSpec"]))
    trial = best(tuning.trials, "accuracy")
    if trial is None:
        raise SystemExit(f"{name}: no trial reported an accuracy")
    values = ", ".join(f"{one.parameter_id}={one.value}" for one in trial.parameters)
    sys.stdout.write(f"best trial {trial.id}: accuracy {metric(trial, 'accuracy'):.4f} with {values}\n")


def metric(trial: Any, name: str) -> float:
    """A trial's final value of a metric; NaN where it reported none, as a trial that failed."""
    return next((one.value for one in trial.final_measurement.metrics if one.metric_id == name), math.nan)


def best(trials: Any, name: str) -> Any:
    """The trial with the highest metric among those that reported one; None if none did."""
    scored = [trial for trial in trials if not math.isnan(metric(trial, name))]
    return max(scored, key=lambda trial: metric(trial, name), default=None)


def main(what: str = "train", *names: str) -> None:
    """Do one of the three."""
    actions = {"train": train, "job": job, "search": search}
    if what not in actions:
        raise SystemExit(f"{what!r} is none of {', '.join(actions)}")
    sdk.connect()
    actions[what](*names)


if __name__ == "__main__":
    main(*sys.argv[1:])
