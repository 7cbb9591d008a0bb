"""From the YAML that `vertexrig render` writes to the calls of the Vertex AI SDK.

gcloud takes that YAML as it is; the SDK wants worker pools as messages, a study's parameters as classes of its own, and
the scheduling as arguments of `run`. What none of these carries is refused here, not dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from google.cloud import aiplatform
from google.cloud.aiplatform import hyperparameter_tuning as hpt
from google.cloud.aiplatform_v1 import types

SCALES = {"UNIT_LINEAR_SCALE": "linear", "UNIT_LOG_SCALE": "log", "UNIT_REVERSE_LOG_SCALE": "reverse_log"}
ALGORITHMS = {"GRID_SEARCH": "grid", "RANDOM_SEARCH": "random"}
JOB_FIELDS = {"workerPoolSpecs", "baseOutputDirectory", "scheduling", "serviceAccount"}
SWEEP_FIELDS = {"studySpec", "trialJobSpec", "maxTrialCount", "parallelTrialCount"}
MEASUREMENTS = {"BEST_MEASUREMENT": "best", "LAST_MEASUREMENT": "last"}
STUDY_FIELDS = {"metrics", "parameters", "algorithm", "measurementSelectionType"}


def connect() -> None:
    """Set up the SDK: for the local Vertex where `vertexrig local env` has been evaluated, otherwise for the cloud."""
    where: dict[str, Any] = {"location": os.environ.get("REGION", "us-central1")}
    if "GOOGLE_CLOUD_PROJECT" in os.environ:
        where["project"] = os.environ["GOOGLE_CLOUD_PROJECT"]
    if "VERTEXRIG_AIPLATFORM" in os.environ:
        from google.auth.credentials import AnonymousCredentials

        where |= {"api_endpoint": os.environ["VERTEXRIG_AIPLATFORM"], "api_transport": "rest"}
        where["credentials"] = AnonymousCredentials()
    aiplatform.init(**where)


def read(example: Path, name: str) -> dict[str, Any]:
    """The YAML of a job or sweep of an example, as `vertexrig render NAME` wrote it."""
    file = example / "build/jobs" / f"{name}.yaml"
    if not file.is_file():
        raise SystemExit(f"there is no {file}; write it with: vertexrig render {name}")
    spec: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return spec


def custom_job(name: str, spec: Mapping[str, Any]) -> aiplatform.CustomJob:
    """The CustomJob of a CustomJobSpec."""
    _only(spec, JOB_FIELDS, name)
    output = spec["baseOutputDirectory"]["outputUriPrefix"]
    return aiplatform.CustomJob(
        display_name=name,
        worker_pool_specs=[types.WorkerPoolSpec.from_json(json.dumps(pool)) for pool in spec["workerPoolSpecs"]],
        base_output_dir=output,
        staging_bucket=output,  # the SDK asks for one; with base_output_dir given nothing goes there
    )


def run_options(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What a CustomJobSpec says that the SDK takes as arguments of `run`."""
    options: dict[str, Any] = {}
    scheduling = spec.get("scheduling", {})
    _only(scheduling, {"timeout"}, "scheduling")
    if "timeout" in scheduling:
        options["timeout"] = int(scheduling["timeout"].removesuffix("s"))
    if "serviceAccount" in spec:
        options["service_account"] = spec["serviceAccount"]
    return options


def tuning_job(name: str, sweep: Mapping[str, Any]) -> aiplatform.HyperparameterTuningJob:
    """The HyperparameterTuningJob of a sweep."""
    _only(sweep, SWEEP_FIELDS, name)
    study = sweep["studySpec"]
    _only(study, STUDY_FIELDS, f"{name}: studySpec")
    return aiplatform.HyperparameterTuningJob(
        display_name=name,
        custom_job=custom_job(name, sweep["trialJobSpec"]),
        metric_spec={metric["metricId"]: metric["goal"].lower() for metric in study["metrics"]},
        parameter_spec={spec["parameterId"]: _parameter(spec) for spec in study["parameters"]},
        search_algorithm=ALGORITHMS.get(study.get("algorithm", "")),
        measurement_selection=MEASUREMENTS.get(
            study.get("measurementSelectionType", "")
        ),  # left out, it would be "best"
        max_trial_count=sweep["maxTrialCount"],
        parallel_trial_count=sweep["parallelTrialCount"],
    )


def _parameter(spec: Mapping[str, Any]) -> Any:
    scale = SCALES.get(spec.get("scaleType", ""), "unspecified")
    if "doubleValueSpec" in spec:
        ends = spec["doubleValueSpec"]
        return hpt.DoubleParameterSpec(ends["minValue"], ends["maxValue"], scale)
    if "integerValueSpec" in spec:
        ends = spec["integerValueSpec"]
        return hpt.IntegerParameterSpec(ends["minValue"], ends["maxValue"], scale)
    if "discreteValueSpec" in spec:
        return hpt.DiscreteParameterSpec(spec["discreteValueSpec"]["values"], scale)
    return hpt.CategoricalParameterSpec(spec["categoricalValueSpec"]["values"])


def _only(given: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(set(given) - known):
        raise SystemExit(f"{where}: {', '.join(unknown)} would be lost here; submit the YAML with gcloud")
