"""The values every check works with: what it sees, what it yields, the row that registers it, and the documents it cites."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any, Literal

from vertexrig.catalog import Catalog, Image
from vertexrig.finding import Edit, Severity
from vertexrig.spec.document import Document

if TYPE_CHECKING:
    from vertexrig.package.imports import Fit
    from vertexrig.trainer_source.trainer_model import TrainerSource

# What a rule cites as its `source`, one text per document, each with its date; `join` puts several together.
TRAIN_COMPUTE = "configure-compute page of the training docs (copy of 2026-08-22)"
TPU_DOC = "training-with-tpu-vm page (copy of 2026-08-22)"
TUNING_DOC = "using-hyperparameter-tuning page (copy of 2026-08-22)"
SPOT_DOC = "use-spot-vms page (copy of 2026-08-22)"
FLEX_DOC = "schedule-jobs-dws page (copy of 2026-08-22)"
RESERVATION_DOC = "use-reservations page (copy of 2026-08-22)"
LOCATIONS = "locations page (copy of 2026-08-22)"
QUOTAS = "quotas page (copy of 2026-08-22)"
DISTRIBUTED = "distributed-training page (copy of 2026-08-22)"
SERVICE_DOC = "understanding-training-service page (copy of 2026-08-22)"
CODE_DOC = "custom training code requirements page (copy of 2026-08-22)"
CONTAINER_SETTINGS = "configure-container-settings page (copy of 2026-08-22)"
PACKAGE_DOC = "create-python-pre-built-container page (copy of 2026-08-22)"
NFS_DOC = "train-nfs-share page (copy of 2026-08-22)"
IMAGES = "pre-built-containers page (copy of 2026-08-22)"
BUILT = "what `vertexrig image` makes, run 2026-11-21"
POLICY = "framework-support-policy page (copy of 2026-08-22)"
REST = "REST reference v1 of CustomJobSpec and its types (copy of 2026-08-22)"
SDK = "google-cloud-aiplatform 2.7.0, read 2026-11-20"
GCLOUD = "gcloud 528.0.0, run offline 2026-11-20"
SERVER = "message of Vertex AI, quoted in public issues (read 2026-11-20)"
COMPUTE_ENGINE = "Compute Engine API dump of 2026-08-20"
ARGPARSE = "argparse of Python 3.11, run 2026-11-20"
SPOT_SURVEY = "public survey of a new project's Spot quotas, 2026-09-05"
EXPERIMENTS = "run-training-job-experiments page (copy of 2026-08-22)"
ENV_REQUIRED = (
    "message of Vertex AI, quoted in kubeflow/pipelines issue 10111 and GoogleCloudPlatform/LifeSciences pull 77 "
    "(read 2026-11-26)"
)
ENV_APOSTROPHE = "message of Vertex AI of 2022-06-25, quoted in PrefectHQ/prefect issue 5940 (read 2026-11-26)"
GCSFUSE = "gcsfuse issue 4333, open (read 2026-11-21)"
REGISTRY = "gcr.io repositories page of Artifact Registry (copy read 2026-11-21)"
PROJECT_ID = "google-cloud-resource-manager 1.19.0, Project.project_id, read 2026-11-29"
SECRETS = "keys in plain text found in public job specs (read 2026-11-21)"
GKE = "TPU names of GKE, seen in public job specs (read 2026-11-21)"
PRACTICE = "practitioners' reports (read 2026-11-20)"
WALKTHROUGH = "mistake found in a published walk-through, reproduced with gcloud 528.0.0 on 2026-11-20"
REST_STUDY = "REST reference v1 of StudySpec and its types (copy of 2026-08-22)"
REST_JOB = "REST reference v1 of HyperparameterTuningJob (copy of 2026-08-22)"
BOUNDS = "message of Vertex AI of 2023-08-05 in a notebook of sidoncloud/gcp-mlops (read 2026-11-28)"
OVERVIEW_DOC = "hyperparameter-tuning-overview page (copy of 2026-08-22)"
IGNORE_MARK = "vertexrig: ignore"
"""What a comment begins with that leaves findings out; see `vertexrig.checks.comments`."""


@dataclass(frozen=True)
class BuiltImage:
    """An image that `vertexrig image` makes of the project's trainer.

    Args:
        row: What is in it, as for a prebuilt image.
        lock: Its lock file, relative to the project file.
        locked: Whether that is there.
        needs_python: The Python that the trainer's metadata asks for, such as `>=3.11`, "" if it asks for none.
    """

    row: Image
    lock: str
    locked: bool
    needs_python: str = ""


@dataclass(frozen=True)
class Context:
    """What a check may know in addition to the document.

    Args:
        catalog: Machines, accelerators, regions, images, prices and limits.
        region: The region the job will run in, "" if it is not known.
        today: The day that end dates are compared with.
        trainer: The trainer's source as read, None if it is not at hand.
        trainer_unused: Why the document does not run the trainer that was named; empty if it does, or none was named.
        trainer_recognised: False if what the document starts cannot be read, so that it is not known whether it runs that trainer.
        built: Images of the project's own trainer, by URI.
        advice: Whether quotas and default disks are checked, too; the trigger, which only starts a job or refuses it, does not.
        flags: What gcloud takes as flags and not in the YAML, by its field in the API: displayName, labels, encryptionSpec.
        fits: Returns (program path, `Fit`) for each package of the trainer that a pool installs.
        submit: The command that sends the job through the API; "" for a file that is not of a project.
    """

    catalog: Catalog
    region: str = ""
    today: date = field(default_factory=date.today)
    trainer: TrainerSource | None = None
    trainer_unused: str = ""
    trainer_recognised: bool = True
    built: Mapping[str, BuiltImage] = field(default_factory=dict)
    advice: bool = True
    flags: Mapping[str, Any] = field(default_factory=dict)
    fits: Callable[[], Iterable[tuple[str, Fit]]] = lambda: ()
    submit: str = ""

    def outside_spec(self, document: Document, key: str) -> Iterator[Any]:
        """Yield the values of a field that is not part of the job spec: the one in a tuning job's file, and the one for a flag."""
        if document.kind == "HyperparameterTuningJob" and key in document.data:
            yield document.data[key]
        if key in self.flags:
            yield self.flags[key]


@dataclass(frozen=True)
class Problem:
    """One thing a check found.

    Args:
        path: Where, in API camelCase.
        message: What is wrong.
        fix: What to write instead.
        severity: The rule's own unless given here.
        key_fix: The fix in project-file terms; "" if replacing API names by file keys in `fix` is enough.
        edits: The changes that do it; without a `fix` they are its text, too.
        sure: Whether it is true for every value that may replace a placeholder.
    """

    path: str
    message: str
    fix: str = ""
    severity: Severity | None = None
    key_fix: str = ""
    edits: tuple[Edit, ...] = ()
    sure: bool = False


@dataclass(frozen=True)
class Rule:
    """One check: a row of a topic's `RULES` table.

    Args:
        id: The id that findings carry and that `silence` in the project file names.
        severity: How much a finding of it matters, unless the problem has its own.
        summary: What holds when nothing is found, in one sentence.
        source: Where the rule comes from, with its date.
        run: The function that checks.
        edits: What its edits are at most: `safe`, `unsafe`, or "" if it has none.
    """

    id: str
    severity: Severity
    summary: str
    source: str
    run: Callable[[Document, Context], Iterable[Problem]]
    edits: Literal["", "safe", "unsafe"] = ""


def join(*sources: str) -> str:
    """Several sources as one text."""
    return "; ".join(sources)
