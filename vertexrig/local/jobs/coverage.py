"""What the fields of a job and of a study do here, as data for the coverage page; a test holds that none is missing."""

from __future__ import annotations

from vertexrig.local.http import Coverage

_KEPT = "Kept and shown; nothing here depends on it."

COVERAGE: tuple[Coverage, ...] = (
    Coverage("CustomJobSpec.workerPoolSpecs", "served", "Every replica is a process of this machine."),
    Coverage("CustomJobSpec.scheduling", "served"),
    Coverage("CustomJobSpec.baseOutputDirectory", "served", "A folder of the local bucket; AIP_ variables point to it."),
    Coverage("CustomJobSpec.serviceAccount", "not served", f"{_KEPT} Trainers run as you, without your credentials."),
    Coverage("CustomJobSpec.network", "not served", f"{_KEPT} Replicas reach one another on loopback."),
    Coverage("CustomJobSpec.reservedIpRanges", "not served", _KEPT),
    Coverage("CustomJobSpec.pscInterfaceConfig", "not served", _KEPT),
    Coverage("CustomJobSpec.persistentResourceId", "approximated", "It must exist; the job starts without `--slow-start`."),
    Coverage("CustomJobSpec.protectedArtifactLocationId", "not served", _KEPT),
    Coverage("CustomJobSpec.tensorboard", "not served", "Event files stay in AIP_TENSORBOARD_LOG_DIR; none is uploaded."),
    Coverage("CustomJobSpec.enableWebAccess", "not served", "The replicas are processes of this machine."),
    Coverage("CustomJobSpec.enableDashboardAccess", "not served", _KEPT),
    Coverage(
        "CustomJobSpec.experiment", "approximated", "A job that names an experiment and no run gets a run of it; it logs nothing there."
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
        "Run by Docker where an engine answers, else from the folder the image is mapped to, else refused.",
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
    Coverage("StudySpec.metrics", "approximated", "Several goals and safety thresholds; the service's weights are not public."),
    Coverage(
        "StudySpec.algorithm",
        "approximated",
        "Unset: Optuna's TPE, aware of parallel trials; RANDOM_SEARCH and GRID_SEARCH as described.",
    ),
    Coverage("StudySpec.observationNoise", "approximated", "Whether a combination may be tried again."),
    Coverage("StudySpec.measurementSelectionType", "served"),
    Coverage("StudySpec.studyStoppingConfig", "served"),
    Coverage("StudySpec.medianAutomatedStoppingSpec", "approximated", "The documented rule, from three ended trials on."),
    Coverage(
        "StudySpec.decayCurveStoppingSpec", "approximated", "An extrapolation by the other trials' gains; no formula is public."
    ),
    Coverage(
        "StudySpec.convexAutomatedStoppingSpec", "approximated", "An extrapolation by the slope; no formula is public."
    ),
)  # fmt: skip
