"""What is served and how, as data for the coverage page: rows of methods come from the tables of services, and all else is here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from localvertex import bindings
from localvertex.services.jobs import EMPTY_LISTS


@dataclass(frozen=True)
class Coverage:
    """One row of an API's coverage table.

    Args:
        method: The API's own method name, such as `storage.objects.get`.
        state: `served`, `approximated` or `not served`.
        note: What differs from the service, in one sentence.
    """

    method: str
    state: str
    note: str = ""


NOTES: dict[str, str] = {
    "SuggestTrials": "By the same engine as tuning jobs; the operation is done at once.",
    "CheckTrialEarlyStoppingState": "The documented rules; Google's formulas are not public.",
    "ListOptimalTrials": "Safety metrics count as in tuning jobs.",
    "CreateDataset": "A resource; pipelines read tabular datasets whose source is in Cloud Storage.",
    "ImportData": "The request is checked; no file is read, and the dataset gets no items.",
    "UploadModel": "A resource; nothing is deployed or served.",
    "UpdateModel": "Of the fields that describe a model.",
    "CreatePersistentResource": "Kept; a job that names it starts at once, and no machine is held.",
    "UpdatePersistentResource": "As CreatePersistentResource.",
    "RebootPersistentResource": "Sets its start time; jobs on it go on.",
    "ReadTensorboardBlobData": "Of blobs where the SDK's uploader puts them.",
    "ReadTensorboardTimeSeriesData": "The filter is ignored; points are thinned out evenly.",
    "ExportTensorboardTimeSeriesData": "Filter and order are ignored.",
    "QueryArtifactLineageSubgraph": "The filter is ignored.",
    "DeleteCustomJob": "A job that has not ended is refused; the operation is done at once.",
    "DeleteHyperparameterTuningJob": "As for custom jobs.",
    "CreateTrainingPipeline": "Custom tasks only; of managed datasets, tabular ones with a source in Cloud Storage.",
    "ListOperations": "Those of a location, at whatever resource one asks; the filter is ignored.",
    "CancelOperation": "Operations are done when they are returned, so nothing happens.",
    **dict.fromkeys((name for names in EMPTY_LISTS.values() for name in names), "Always empty."),
    "ListLogEntries": "All projects are one; of functions in filters log_id, source, sample, ip_in_net and SEARCH; no regular expressions that "
    "repeat a group with a choice or a repetition.",
    "WriteLogEntries": "No deduplication by insertId.",
    "ListLogs": "All projects are one.",
    "ListMonitoredResourceDescriptors": "Types and keys of labels as of 2026-04-02, without names and descriptions.",
    "TailLogEntries": "Over gRPC, as in the clients; in order of arrival, without a window.",
    "CreateJob": "Pub/Sub and App Engine targets are kept, and not delivered to; unix-cron, and of the English-like format 'every N minutes|hours' and 'every DAYS HH:MM'.",
    "RunJob": "While an execution is under way the run waits for its end.",
    "GetProject": "Every id is a project; its number is made from the id.",
}
"""What differs from the service, by method; a method that is not here is served as the service does it."""

LOGGING: tuple[Coverage, ...] = (
    Coverage("entries.copy", "not served"),
    Coverage("sinks, buckets, views, metrics", "not served"),
    Coverage(
        "names of a job's logs and labels",
        "approximated",
        "Machines' names and numbers are made up; a trial's entries lack the labels of a trial.",
    ),
)
SCHEDULER: tuple[Coverage, ...] = (
    Coverage("projects.locations.list", "served", "The regions of the catalog; also of Vertex AI."),
    Coverage("projects.locations.get", "served", "Also of Vertex AI."),
    Coverage("OIDC and OAuth tokens", "approximated", "An unsigned token that says so."),
    Coverage("targets", "approximated", "This machine only."),
    Coverage("delivery to Pub/Sub and App Engine", "not served"),
    Coverage("cmekConfig", "not served"),
)
IDENTITY: tuple[Coverage, ...] = (
    Coverage("oauth2.token", "approximated", "One token for every client; no assertion is verified."),
    Coverage("oauth2.tokeninfo", "approximated", "The local account for every token."),
    Coverage("oauth2.revoke", "approximated", "Accepted; nothing changes."),
    Coverage("metadata.computeMetadata.v1", "approximated", "The project, zone, and the account with tokens."),
    Coverage("iamcredentials.getAllowedLocations", "approximated", "Anywhere."),
    Coverage(
        "cloudbuild.projects.builds.create, get, list, cancel",
        "approximated",
        "Needs a container engine; docker and kaniko steps, and images of this machine, one step after another.",
    ),
    Coverage("cloudbuild operations", "served", "operations/build/PROJECT/ID."),
    Coverage("cloudbuild triggers, retry, worker pools, secrets, artifacts but images", "not served"),
    Coverage(
        "artifactregistry dockerImages, packages, versions, tags",
        "approximated",
        "Of the images on this machine; an image's id is its digest. Their repositories are there without a create.",
    ),
    *(
        Coverage(name, "approximated", "A plausible answer, kept while the server runs; nothing is done.")
        for name in (
            "serviceusage.services",
            "artifactregistry.repositories",
            "iam.serviceAccounts",
            "cloudresourcemanager.projects.getIamPolicy, setIamPolicy",
        )
    ),
    Coverage("compute.googleapis.com and every other API", "not served", "405 with the service and the method."),
)
STORAGE: tuple[Coverage, ...] = (
    Coverage("storage.buckets.insert", "served"),
    Coverage("storage.buckets.get", "served"),
    Coverage("storage.buckets.list", "served", "One list for all projects."),
    Coverage(
        "storage.buckets.patch",
        "approximated",
        "Settings are kept and shown; retention and holds are enforced, lifecycle and soft delete do nothing.",
    ),
    Coverage("storage.buckets.update", "approximated", "As patch."),
    Coverage("storage.buckets.delete", "served"),
    Coverage("storage.buckets.getIamPolicy", "approximated", "What was set; access does not depend on it."),
    Coverage("storage.buckets.setIamPolicy", "approximated", "Kept and shown; access does not depend on it."),
    Coverage("storage.buckets.testIamPermissions", "approximated", "Every permission is held."),
    Coverage("storage.buckets.getStorageLayout", "served", "Always a flat namespace."),
    Coverage("storage.buckets.lockRetentionPolicy", "served"),
    Coverage(
        "storage.objects.insert",
        "served",
        "Simple, multipart and resumable; MD5 and CRC32C are checked. A name that cannot be a path is kept apart.",
    ),
    Coverage(
        "storage.objects.get",
        "served",
        "With versioning, also noncurrent generations, except of a file that a trainer replaced in the bucket's folder.",
    ),
    Coverage(
        "storage.objects.list",
        "approximated",
        "softDeleted is always empty; a page of versions has all generations of its last object.",
    ),
    Coverage("storage.objects.patch", "served"),
    Coverage("storage.objects.update", "served"),
    Coverage("storage.objects.delete", "served", "No soft delete."),
    Coverage("storage.objects.restore", "approximated", "Always 404: nothing is deleted softly."),
    Coverage("storage.objects.copy", "served"),
    Coverage("storage.objects.rewrite", "served", "Always done in one call."),
    Coverage("storage.objects.move", "served"),
    Coverage("storage.objects.compose", "served"),
    Coverage("storage.objects.watchAll", "not served"),
    Coverage("storage.folders.list", "approximated", "Always empty."),
    Coverage("storage.managedFolders.list", "approximated", "Always empty."),
    Coverage("storage.notifications", "approximated", "insert, get, list, delete: kept, and nothing is sent."),
    Coverage(
        "storage.bucketAccessControls.list", "approximated", "Kept as part of the bucket; no access depends on it."
    ),
    Coverage("storage.defaultObjectAccessControls.list", "approximated", "As bucketAccessControls."),
    Coverage("storage.objectAccessControls.list", "approximated", "As bucketAccessControls."),
    Coverage(
        "storage ACL entries",
        "approximated",
        "get, insert, update, patch, delete: kept, and no access depends on them.",
    ),
    Coverage("storage.projects.serviceAccount.get", "approximated", "A fixed address."),
    Coverage("storage.projects.hmacKeys", "not served"),
    Coverage("storage batch", "served", "Metadata calls, up to 100, one after another."),
    Coverage("XML API: objects", "served", "GET, HEAD, PUT, DELETE, by the real names, through the front."),
    Coverage("XML API: resumable and multipart uploads", "served", "Lists of uploads are not."),
    Coverage("XML API: list of objects", "served", "Both versions."),
    Coverage(
        "XML API: signed URLs",
        "approximated",
        "Their time is checked, their signature is not: its key is the program's own.",
    ),
    Coverage("XML API: all else", "not served", "Post policies, buckets, ACLs, copies."),
    Coverage(
        "customer-supplied encryption keys", "not served", "The headers are ignored: objects are plain files here."
    ),
    Coverage("prettyPrint", "approximated", "Answers are always without line breaks."),
    Coverage("gRPC API", "not served"),
)

_KEPT = "Kept and shown; nothing here depends on it."

FIELDS: tuple[Coverage, ...] = (
    Coverage("CustomJobSpec.workerPoolSpecs", "served", "Every replica is a process of this machine."),
    Coverage("CustomJobSpec.scheduling", "served"),
    Coverage(
        "CustomJobSpec.baseOutputDirectory", "served", "A folder of the local bucket; AIP_ variables point to it."
    ),
    Coverage("CustomJobSpec.serviceAccount", "not served", f"{_KEPT} Trainers run as you, without your credentials."),
    Coverage("CustomJobSpec.network", "not served", f"{_KEPT} Replicas reach one another on loopback."),
    Coverage("CustomJobSpec.reservedIpRanges", "not served", _KEPT),
    Coverage("CustomJobSpec.pscInterfaceConfig", "not served", _KEPT),
    Coverage(
        "CustomJobSpec.persistentResourceId",
        "approximated",
        "It must exist; the job waits for no machines (`--slow-start`, `--pace`).",
    ),
    Coverage("CustomJobSpec.protectedArtifactLocationId", "not served", _KEPT),
    Coverage(
        "CustomJobSpec.tensorboard",
        "approximated",
        "The job's experiment is made; event files stay in AIP_TENSORBOARD_LOG_DIR.",
    ),
    Coverage("CustomJobSpec.enableWebAccess", "not served", "The replicas are processes of this machine."),
    Coverage("CustomJobSpec.enableDashboardAccess", "not served", _KEPT),
    Coverage(
        "CustomJobSpec.experiment",
        "approximated",
        "A job that names an experiment and no run gets a run of it; it logs nothing there.",
    ),
    Coverage("CustomJobSpec.experimentRun", "not served", _KEPT),
    Coverage("CustomJobSpec.models", "not served", _KEPT),
    Coverage(
        "WorkerPoolSpec.pythonPackageSpec",
        "approximated",
        "Packages are installed as the executor does; a Python of this machine replaces the image's.",
    ),
    Coverage(
        "WorkerPoolSpec.containerSpec",
        "approximated",
        "Run in the image where docker, podman or nerdctl has it, else from the folder the image is mapped to, else refused.",
    ),
    Coverage("WorkerPoolSpec.machineSpec", "approximated", "Virtual CPU devices replace accelerators."),
    Coverage("WorkerPoolSpec.replicaCount", "served"),
    Coverage("WorkerPoolSpec.diskSpec", "not served", _KEPT),
    Coverage("WorkerPoolSpec.nfsMounts", "not served", "Kept and shown; nothing is mounted."),
    Coverage("WorkerPoolSpec.lustreMounts", "not served", "Kept and shown; nothing is mounted."),
    Coverage("Scheduling.timeout", "served"),
    Coverage("Scheduling.restartJobOnWorkerRestart", "served"),
    Coverage("Scheduling.disableRetries", "served"),
    Coverage("Scheduling.strategy", "approximated", "Checked; preemption comes on demand (`vertexrig local preempt`)."),
    Coverage("Scheduling.maxWaitDuration", "not served", "Checked; a job waits for free slots as long as it takes."),
    Coverage("HyperparameterTuningJob.studySpec", "served"),
    Coverage("HyperparameterTuningJob.trialJobSpec", "served", "Each trial is a CustomJob that can be described."),
    Coverage("HyperparameterTuningJob.maxTrialCount", "served"),
    Coverage("HyperparameterTuningJob.parallelTrialCount", "served"),
    Coverage("HyperparameterTuningJob.maxFailedTrialCount", "served"),
    Coverage("HyperparameterTuningJob.encryptionSpec", "not served", _KEPT),
    Coverage("StudySpec.parameters", "served", "All types, scales and conditions."),
    Coverage(
        "StudySpec.metrics",
        "approximated",
        "Several goals and safety thresholds; Google's weights are not public.",
    ),
    Coverage(
        "StudySpec.algorithm",
        "approximated",
        "Unset: Optuna's TPE, aware of parallel trials; RANDOM_SEARCH and GRID_SEARCH as described.",
    ),
    Coverage("StudySpec.observationNoise", "approximated", "Whether a combination may be tried again."),
    Coverage("StudySpec.measurementSelectionType", "served"),
    Coverage("StudySpec.studyStoppingConfig", "served"),
    Coverage(
        "StudySpec.medianAutomatedStoppingSpec", "approximated", "The documented rule, from three ended trials on."
    ),
    Coverage(
        "StudySpec.decayCurveStoppingSpec",
        "approximated",
        "An extrapolation by the other trials' gains; no formula is public.",
    ),
    Coverage(
        "StudySpec.convexAutomatedStoppingSpec", "approximated", "An extrapolation by the slope; no formula is public."
    ),
)


def coverage(service: str, served: Iterable[str]) -> tuple[Coverage, ...]:
    """Return a row for each method of a service.

    Args:
        service: Full name.
        served: The methods that are.
    """
    own = service.rpartition(".")[2]
    known = served = tuple(served)

    def state(name: str) -> str:
        return "not served" if name not in known else "approximated" if name in NOTES else "served"

    return tuple(
        Coverage(f"{own}.{name}", state(name), NOTES.get(name, "") if name in known else "")
        for name in dict.fromkeys((*bindings.of_service(service), *served))
    )
