"""YAML files that are for something else than a training job, known by their first keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# what it looks like, the keys that it has, and what to do; the first row that fits counts
_KNOWN: tuple[tuple[str, frozenset[str], str], ...] = tuple(
    (name, frozenset(keys.split()), fix)
    for name, keys, fix in (
        ("a Kubernetes manifest", "apiVersion kind", ""),
        ("a compiled Vertex AI or Kubeflow pipeline", "pipelineInfo", "submit it as a pipeline job"),
        ("a compiled Vertex AI or Kubeflow pipeline", "pipelineSpec", "submit it as a pipeline job"),
        ("a pipeline component", "implementation", ""),
        ("a Docker Compose file", "services", ""),
        ("a Cloud Build config", "steps", "give it to gcloud builds submit --config"),
        ("a workflow of GitHub Actions", "jobs on", ""),
        ("a Cloud Batch job", "taskGroups", "give it to gcloud batch jobs submit --config"),
        ("a persistent resource of Vertex AI", "resourcePools", "give it to gcloud ai persistent-resources create"),
        ("a training pipeline of Vertex AI", "trainingTaskDefinition",
         "check what is under trainingTaskInputs, the job spec"),
        ("a Hydra config", "defaults", ""),
        ("a Hydra config", "hydra", ""),
        ("a conda environment", "name dependencies", ""),
        ("a conda environment", "channels dependencies", ""),
        ("a pipeline of GitLab CI or DVC", "stages", ""),
        ("a pre-commit config", "repos", ""),
        ("a sweep of Weights & Biases", "method parameters", "a tuning job has studySpec and trialJobSpec"),
    )
)  # fmt: skip

_PROJECT = {"jobs", "sweeps"}
_PROJECT_BESIDE = {"project", "region", "bucket", "trainer", "schedules", "trigger"}


def looks_like(data: Mapping[str, Any]) -> tuple[str, str]:
    """What a file's keys make it, and what to do with it; "" if they do not tell."""
    keys = {str(key) for key in data}
    if is_project(data):
        return "a project file of vertexrig", "name it with --file"
    return next(((name, fix) for name, wanted, fix in _KNOWN if wanted <= keys), ("", ""))


def is_project(data: Any) -> bool:
    """Whether plain data is a project file, as `vertexrig.yaml` is."""
    # `jobs` alone is the key of GitHub Actions, CircleCI and others
    if not isinstance(data, dict) or not (_PROJECT & data.keys() and _PROJECT_BESIDE & data.keys()):
        return False
    return all(isinstance(data.get(group), (dict, type(None))) for group in _PROJECT)
