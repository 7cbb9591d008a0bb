"""YAML for gcloud's `--config` as the job it describes: a spec, a CustomJob around it, or a list of worker pools."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from vertexrig import spec, yamltext
from vertexrig.bring.pull import Wanted, refused
from vertexrig.errors import UsageError
from vertexrig.project.arguments import scalar_text
from vertexrig.spec.api_names import camel
from vertexrig.spec.labels import users
from vertexrig.spec.parameters import fill_bounds
from vertexrig.spec.strict import OUTPUT_ONLY

_OUTSIDE = ("displayName", "labels", "encryptionSpec")
"""What a job has outside its spec."""
_PROGRAMS = ("containerSpec", "pythonPackageSpec")
_PLACEHOLDER = {
    "executorImageUri": "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest",
    "packageUris": ["gs://bucket/package.tar.gz"],
    "pythonModule": "trainer.task",
}
"""The program of a pool that names none, and its keys in the project file."""
_PLACEHOLDER_KEYS = ("image", "package_uris", "module")


def convert(text: str, file: str) -> Wanted:
    """Return the job that a file of YAML or JSON describes; UsageError if it describes none, or one that Vertex AI cannot run."""
    top = _top(text, file)
    data, around = _unwrapped(top)
    texts = _numbers_to_text(data)
    # an unchanged file is read as text, so that its findings have lines
    document = spec.parse(text, file=file) if data is top and not texts else spec.from_data(data, file=file)
    if any(finding.id == "not-vertex" for finding in document.findings) or not document.data:
        why = next(("; ".join(filter(None, (one.message, one.fix))) for one in document.findings), "it is empty")
        raise UsageError(f"{file} describes no job: {why}")
    tuning = document.kind == "HyperparameterTuningJob"
    fill_bounds(document.study)
    outside = {*_OUTSIDE, *OUTPUT_ONLY}
    body = {key: value for key, value in document.data.items() if not tuning or key not in outside}
    beside = document.data if tuning else around
    encryption = beside.get("encryptionSpec") or {}
    job, counts = body, []
    if tuning:
        for field, option in (("maxTrialCount", "--max-trial-count"), ("parallelTrialCount", "--parallel-trial-count")):
            if field not in body:
                body[field] = 1
                counts.append(f"{field} is not in the file: gcloud takes it from {option}, and 1 without it")
        body["trialJobSpec"] = job = dict(body.get("trialJobSpec") or {})
    pools = [dict(pool) for pool in job.get("workerPoolSpecs") or ()]
    without = [pool for pool in pools if pool.get("machineSpec") and not any(pool.get(key) for key in _PROGRAMS)]
    for pool in without:
        pool["pythonPackageSpec"] = dict(_PLACEHOLDER)
    job["workerPoolSpecs"] = pools
    notes = [*texts, *counts, *refused(document)]
    if without:
        notes.append(
            f"{Path(file).name} has no containerSpec or pythonPackageSpec, so the job runs the project's trainer"
        )
    return Wanted(
        replace(document, data=body, findings=()),
        str(beside.get("displayName", "")),
        users(beside.get("labels") or {}),
        str(encryption.get("kmsKeyName") or encryption.get("kms_key_name") or ""),
        source=Path(file).name,
        notes=tuple(notes),
        placeholders=_PLACEHOLDER_KEYS if without else (),
    )


def _top(text: str, file: str) -> Any:
    """Return the file's mapping or list."""
    try:
        data = yamltext.read(text).data
    except yamltext.YamlError as error:
        raise UsageError(f"{file}: {error}") from None
    if data is not None and not isinstance(data, (dict, list)):
        raise UsageError(f"{file} describes no job: its top is neither a mapping nor a list of worker pools")
    return data if data is not None else {}


def _unwrapped(data: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the spec, and the fields of a CustomJob around it, as REST and Kubeflow Pipelines write it."""
    if isinstance(data, list):
        return {"workerPoolSpecs": data}, {}
    inner = next((data[key] for key in ("jobSpec", "job_spec") if isinstance(data.get(key), dict)), None)
    if inner is None:
        return data, {}
    return inner, {name: value for key, value in data.items() if (name := camel(str(key))) in _OUTSIDE}


def _numbers_to_text(data: dict[str, Any]) -> list[str]:
    """Turn arguments that YAML reads as numbers into text, in place, and return a note for each: the API takes text only."""
    notes = []
    job = data.get("trialJobSpec") or data.get("trial_job_spec") or data
    pools = (job.get("workerPoolSpecs") or job.get("worker_pool_specs") or ()) if isinstance(job, dict) else ()
    for pool in pools if isinstance(pools, list) else ():
        programs = (
            [value for key, value in pool.items() if camel(str(key)) in _PROGRAMS] if isinstance(pool, dict) else []
        )
        for args in (one.get("args") for one in programs if isinstance(one, dict)):
            if isinstance(args, list):
                for number, item in enumerate(args):
                    if isinstance(item, (bool, int, float)):
                        args[number] = scalar_text(item)
                        notes.append(f"args[{number}]: {args[number]} is written as text")
    return notes
