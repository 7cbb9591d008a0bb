"""Where the rules come from, one text per document, each with its date: the `source` of a rule joins these."""

from __future__ import annotations

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
CONTAINER_SETTINGS = "configure-container-settings page (copy of 2026-08-22)"
PACKAGE_DOC = "create-python-pre-built-container page (copy of 2026-08-22)"
NFS_DOC = "train-nfs-share page (copy of 2026-08-22)"
IMAGES = "pre-built-containers page (copy of 2026-08-22)"
BUILT = "what `vertexrig image` makes, run 2026-11-21"
POLICY = "framework-support-policy page (copy of 2026-08-22)"
REST = "REST reference v1 of CustomJobSpec and its types (copy of 2026-08-22)"
SDK = "google-cloud-aiplatform 2.7.0, read 2026-11-20"
GCLOUD = "gcloud 528.0.0, run offline 2026-11-20"
SERVER = "message of the service, quoted in public issues (read 2026-11-20)"
COMPUTE_ENGINE = "Compute Engine API dump of 2026-08-20"
ARGPARSE = "argparse of Python 3.11, run 2026-11-20"
SPOT_SURVEY = "public survey of a new project's Spot quotas, 2026-09-05"
EXPERIMENTS = "run-training-job-experiments page (copy of 2026-08-22)"
GCSFUSE = "gcsfuse issue 4333, open (read 2026-11-21)"
REGISTRY = "gcr.io repositories page of Artifact Registry (copy read 2026-11-21)"
SECRETS = "keys in plain text found in public job specs (read 2026-11-21)"
GKE = "TPU names of GKE, seen in public job specs (read 2026-11-21)"
PRACTICE = "practitioners' reports (read 2026-11-20)"
WALKTHROUGH = "mistake found in a published walk-through, reproduced with gcloud 528.0.0 on 2026-11-20"


def join(*sources: str) -> str:
    """Several sources as one text."""
    return "; ".join(sources)
