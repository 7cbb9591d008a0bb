"""The nouns of `vertexrig.yaml` as typed values. Field names are the Vertex API's own, in snake_case.

Sources of the field names: REST reference CustomJobSpec and HyperparameterTuningJob (google-cloud-aiplatform 2.7.0).
"""

# No postponed annotations: they are read at run time, and 300 of them would be compiled one by one at every start.
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vertexrig.project.local import LocalSettings
from vertexrig.project.study import Goal, Study
from vertexrig.project.triggered import Schedule, TriggerSettings
from vertexrig.schema.typed import Given, Scalar, given
from vertexrig.spec.api_names import BUCKET, PROJECT, REGION

BUILD = "build"
"""What stands in place of an image's URI for the image that `vertexrig image` makes."""
PREBUILT = "prebuilt"
"""What stands in place of an image's URI for the newest prebuilt image of the trainer's framework for the machines."""
IMAGE_VARIABLE = "IMAGE"
"""The environment variable by which a project file of `vertexrig init` takes its image."""

PACKAGE_MIB = 200
"""MiB that the files of a package may have, if `trainer.package_mib` is not given."""

Args = Mapping[str, Scalar | None] | tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False)
class ImageBuild(Given):
    """The image that `vertexrig image` builds from the trainer, used where an image is `build`."""

    framework: str = given(
        "Framework to install in the image: tf, pytorch, jax, sklearn or xgboost. Add a version (tf-2.21), or leave it to the lock "
        "file. By default only the trainer's own requirements are installed. For `image: prebuilt` only the framework's name counts, not its "
        "version; by default it is the framework that the trainer imports.",
        "",
        pattern=(
            r"((tf|pytorch|jax|sklearn|xgboost)(-[0-9]+(\.[0-9]+){0,2})?)?",
            "tf, pytorch, jax, sklearn or xgboost, with or without a version, such as tf-2.21",
        ),
    )
    python: str = given("Python in the image.", "3.12", pattern=(r"3\.[0-9]{1,2}", "a version such as 3.12"))
    repository: str = given(
        "Artifact Registry repository: the name of one in the project and its region, or HOST/PROJECT/REPOSITORY.",
        "vertexrig",
        pattern=(
            r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?|[a-z0-9-]+-docker\.pkg\.dev/[a-z0-9.:-]+/[a-z][a-z0-9-]*",
            "a name such as vertexrig, or HOST-docker.pkg.dev/PROJECT/REPOSITORY",
        ),
    )
    name: str = given(
        "Name of the image; -cpu, -gpu or -tpu is added to it.",
        "trainer",
        pattern=(r"[a-z0-9]+(?:[._-][a-z0-9]+)*", "lowercase letters and digits, with single . _ or - between"),
    )
    base_image: str | None = given(
        "Base image, such as python:3.12-slim-bookworm@sha256:…; by default python:PYTHON-slim-bookworm.",
        None,
        # A blank or a line break would be a further instruction of the Dockerfile.
        pattern=(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*", "the name of an image such as python:3.12-slim-bookworm"),
    )
    apt: tuple[str, ...] = given(
        "Debian packages to install, such as libgomp1 for LightGBM. `vertexrig image` names the ones that well-known wheels need "
        "and the image lacks.",
        (),
        pattern=(r"[a-z0-9][a-z0-9.+-]+", "the name of a Debian package, such as libgomp1"),
    )
    lock: str = given(
        "Folder of the lock files, one per kind of image, relative to the project file. Commit them.",
        "locks",
    )


@dataclass(frozen=True, eq=False, repr=False)
class Trainer(Given):
    """The training code that the jobs run."""

    path: str = given(
        "Folder of the trainer, relative to the project file: a package with setup.py or pyproject.toml, or modules alone. Or a "
        "single script such as train.py.",
        "trainer_pkg",
    )
    module: str = given("Module that `python -m` starts in each replica.", "trainer.task")
    image: str = given(
        "Image the trainer runs in: `prebuilt` for Google's newest image of the trainer's framework (CPU, GPU or TPU, chosen per "
        "worker pool); a short name such as tf-2.17 for one version; a full image URI; `build` for the image that "
        "`vertexrig image` builds from the trainer; or `custom` for `custom_image`.",
        "tf-2.17",
    )
    build: ImageBuild = given("How to build the image for `image: build`.", factory=ImageBuild)
    custom_image: str = given("URI of the custom image, for `image: custom`.", "")
    command: tuple[str, ...] = given("Entry point in a custom image; by default the image's own ENTRYPOINT.", ())
    package_mib: int = given(
        "Largest package: the sum of its files in MiB. A larger folder is refused, because it usually contains data.",
        PACKAGE_MIB,
        least=1,
    )
    package_uris: tuple[str, ...] = given(
        "Packages already uploaded (gs://…). By default the package that `vertexrig package` builds from `path`.", ()
    )


@dataclass(frozen=True, eq=False, repr=False)
class Container(Given):
    """A custom container to run instead of the trainer package (containerSpec)."""

    image_uri: str = given("Image URI, usually in Artifact Registry.")
    command: tuple[str, ...] = given("Replaces the image's ENTRYPOINT; then its CMD is ignored too.", ())


@dataclass(frozen=True, eq=False, repr=False)
class ReservationAffinity(Given):
    """Which Compute Engine reservation a machine uses."""

    reservation_affinity_type: Literal["NO_RESERVATION", "ANY_RESERVATION", "SPECIFIC_RESERVATION"] = given(
        "NO_RESERVATION, ANY_RESERVATION or SPECIFIC_RESERVATION."
    )
    key: str = given("compute.googleapis.com/reservation-name for SPECIFIC_RESERVATION.", "")
    values: tuple[str, ...] = given("projects/P/zones/Z/reservations/NAME for SPECIFIC_RESERVATION.", ())


@dataclass(frozen=True, eq=False, repr=False)
class NfsMount(Given):
    """A network file share mounted under /mnt/nfs/."""

    server: str = given("IP address of the NFS server.")
    path: str = given("Exported directory on the server; starts with /.")
    mount_point: str = given("Directory name under /mnt/nfs/.")


@dataclass(frozen=True, eq=False, repr=False)
class DnsPeeringConfig(Given):
    """A domain resolved in another network."""

    domain: str = given("DNS name suffix, with a dot at its end.")
    target_project: str = given("Project of the network that resolves it.")
    target_network: str = given("Name of that network.")


@dataclass(frozen=True, eq=False, repr=False)
class PscInterfaceConfig(Given):
    """Private Service Connect: how replicas reach your network."""

    network_attachment: str = given("Name or full resource name of the network attachment.")
    dns_peering_configs: tuple[DnsPeeringConfig, ...] = given("Domains to resolve in your network.", ())


@dataclass(frozen=True, eq=False, repr=False)
class MachineSettings(Given):
    """The machine of each replica of a worker pool. A role with its own machine_type inherits no accelerator and no reservation from
    the job.
    """

    machine_type: str | None = given("Machine type, such as n1-standard-8.", None)
    accelerator_type: str | None = given("Accelerator type, such as NVIDIA_TESLA_T4 or TPU_V3.", None)
    accelerator_count: int | None = given("Accelerators per replica.", None)
    gpu_partition_size: str | None = given("Partition of a GPU (MIG), such as 1g.10gb.", None)
    tpu_topology: str | None = given("Shape of a TPU slice (v5e and later), such as 2x2.", None)
    replica_count: int | None = given("Number of replicas; worker pool 0 always has one.", None)
    boot_disk_type: str | None = given("pd-ssd, pd-standard or hyperdisk-balanced.", None)
    boot_disk_size_gb: int | None = given("Boot disk in GB, 100 to 64000.", None)
    reservation_affinity: ReservationAffinity | None = given("Compute Engine reservation to use.", None)
    image: str | None = given("Image of this worker pool, in place of trainer.image.", None)
    container: Container | None = given("Run this container in place of the trainer package.", None)
    env: Mapping[str, Scalar] = given("Environment variables of the replicas.", factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class Role(MachineSettings):
    """A worker pool other than the chief's. It inherits from the job what it leaves out, but never replica_count, and neither
    accelerator nor reservation if it is `ps` or has a machine_type of its own. A Reduction Server inherits nothing.
    """

    args: Args | None = given("Arguments of this worker pool's replicas, in place of the job's.", None)


@dataclass(frozen=True, eq=False, repr=False)
class Job(MachineSettings):
    """A CustomJob: a topology plus machines, image, args, scheduling."""

    topology: str = given(
        "Name of the template: cpu, gpu, multi-worker, parameter-server, torchrun, tpu, or your own.", "cpu"
    )
    args: Args = given(
        "Arguments of the trainer: a mapping (each pair becomes --key=value; null makes a bare --key) or a list, passed unchanged.",
        factory=dict,
    )
    module: str | None = given("Module that this job starts, in place of trainer.module.", None)
    package_uris: tuple[str, ...] | None = given("Packages of this job, in place of trainer.package_uris.", None)
    worker: Role | None = given("Pool 1: workers.", None)
    ps: Role | None = given("Pool 2: parameter servers. They have no accelerator unless you set one here.", None)
    reduction_server: Role | None = given("Pool 2: Reduction Server, for all-reduce over many GPU workers.", None)
    evaluator: Role | None = given("Pool 3: evaluator.", None)
    timeout: str | None = given(
        "Longest running time, such as 3600s; per trial in a sweep. The default is 7 days.", None, unit="s"
    )
    strategy: Literal["STANDARD", "SPOT", "FLEX_START"] | None = given("Scheduling strategy.", None)
    max_wait_duration: str | None = given("Longest wait for capacity with FLEX_START, such as 7200s.", None, unit="s")
    restart_job_on_worker_restart: bool | None = given("Restart the whole job when one worker restarts.", None)
    disable_retries: bool | None = given("Do not retry on internal errors.", None)
    network: str | None = given("VPC network to peer with: projects/NUMBER/global/networks/NAME.", None)
    reserved_ip_ranges: tuple[str, ...] = given("Reserved ranges of that network to use.", ())
    psc_interface_config: PscInterfaceConfig | None = given("Private Service Connect interface.", None)
    service_account: str | None = given("Service account of the replicas; by default the project's.", None)
    base_output_directory: str | None = given(
        "Output folder of every run; AIP_MODEL_DIR and similar variables name folders below it. By default, each run has an output "
        "folder of its own, BUCKET/runs/NAME/RUN_ID; YAML rendered without --run names BUCKET/runs/NAME.",
        None,
    )
    tensorboard: str | None = given("TensorBoard to upload to: projects/P/locations/R/tensorboards/ID.", None)
    enable_web_access: bool | None = given("Allow a shell into the replicas.", None)
    enable_dashboard_access: bool | None = given("Allow access to dashboards of the replicas.", None)
    persistent_resource_id: str | None = given("Persistent resource to run on.", None)
    nfs_mounts: tuple[NfsMount, ...] = given("NFS shares mounted in every replica.", ())
    display_name: str | None = given("Name shown in the Google Cloud console; by default the job's name.", None)
    labels: Mapping[str, str] = given("Labels of this job, added to the project's.", factory=dict)
    kms_key_name: str | None = given("Cloud KMS key: projects/P/locations/R/keyRings/RING/cryptoKeys/KEY.", None)
    candidates: tuple[Mapping[str, Any], ...] = given(
        "Candidates in order of preference: each is a set of overrides of this entry.", ()
    )
    wait: str | None = given(
        "How long a job may wait for machines before the next candidate starts, such as 20m.", None, lasts="20m"
    )
    retry_for: str | None = given(
        "How long to keep restarting from the first candidate after the last one has failed, such as 12h.",
        None,
        lasts="12h",
    )
    prefer: Literal["order", "price"] = given(
        "Which candidate starts first: the first in the file (`order`) or the cheapest (`price`).", "order"
    )
    preemptions: int = given(
        "How many jobs of one candidate may be preempted before the next candidate starts.", 1, least=1
    )
    silence: Mapping[str, str] = given("Findings to hide for this job: rule id and reason.", factory=dict)
    spec: Mapping[str, Any] = given(
        "Any field of the API's CustomJobSpec, merged into the rendered YAML.", factory=dict
    )


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Given):
    """A HyperparameterTuningJob over a job."""

    job: str = given("The job each trial runs.")
    topology: str = given("Name of the template: sweep, grid, or your own.", "sweep")
    study: Study | None = given("The study; required unless the template makes it, as `grid` does.", None)
    over: Mapping[str, tuple[Scalar, ...]] = given("Grid: the values to combine, by parameter.", factory=dict)
    metrics: Mapping[str, Goal] = given("Grid: metric ids and their goal.", factory=dict)
    max_trial_count: int | None = given("Total number of trials; by default a grid runs every combination.", None)
    parallel_trial_count: int = given("Number of trials that run at the same time.", 1)
    max_failed_trial_count: int | None = given("Number of failed trials after which the sweep fails.", None)
    args: Args = given(
        "Arguments that replace the job's arguments of the same name. A list, even an empty one, replaces all of them.",
        factory=dict,
    )
    display_name: str | None = given("Name shown in the Google Cloud console; by default the sweep's name.", None)
    labels: Mapping[str, str] = given("Labels of this sweep, added to the project's and the job's.", factory=dict)
    kms_key_name: str | None = given("Cloud KMS key; by default the job's.", None)
    base_output_directory: str | None = given(
        "Output folder of every run; each trial has a folder below it. By default, each run has an output folder of its own, "
        "BUCKET/runs/NAME/RUN_ID; YAML rendered without --run names BUCKET/runs/NAME.",
        None,
    )
    candidates: tuple[Mapping[str, Any], ...] = given(
        "Candidates in order of preference: each is a set of overrides of this entry.", ()
    )
    wait: str | None = given(
        "How long a job may wait for machines before the next candidate starts, such as 20m.", None, lasts="20m"
    )
    retry_for: str | None = given(
        "How long to keep restarting from the first candidate after the last one has failed, such as 12h.",
        None,
        lasts="12h",
    )
    prefer: Literal["order", "price"] = given(
        "Which candidate starts first: the first in the file (`order`) or the cheapest (`price`).", "order"
    )
    preemptions: int = given(
        "How many jobs of one candidate may be preempted before the next candidate starts.", 1, least=1
    )
    silence: Mapping[str, str] = given("Findings to hide for this sweep: rule id and reason.", factory=dict)
    spec: Mapping[str, Any] = given(
        "Any field of the API's HyperparameterTuningJob, merged into the YAML.", factory=dict
    )


@dataclass(frozen=True, eq=False, repr=False)
class CheckSettings(Given):
    """Which rules and files `vertexrig check` reports; `render`, `submit` and the trigger report every rule."""

    select: tuple[str, ...] = given("Rules to report, by id or pattern such as image-*; by default all.", ())
    ignore: tuple[str, ...] = given("Rules not to report, by id or pattern.", ())
    exclude: tuple[str, ...] = given("Files to skip when a folder is checked: patterns as in .gitignore.", ())
    baseline: str = given("File of known findings, written by `check --write-baseline`.", "")


@dataclass(frozen=True, eq=False, repr=False)
class Project(Given):
    """The whole project file."""

    project: str = given("Google Cloud project id.", pattern=PROJECT)
    region: str = given("Region of the jobs.", "us-central1", pattern=REGION)
    bucket: str = given("Bucket for packages and outputs, in the same region.", "", pattern=BUCKET)
    service_account: str | None = given("Service account of all jobs that do not set one.", None)
    labels: Mapping[str, str] = given("Labels of all jobs and sweeps.", factory=dict)
    trainer: Trainer = given("The training code.", factory=Trainer)
    templates: str | None = given(
        "Folder of your own templates. A file there replaces the built-in template of the same name.", None
    )
    catalog: str | None = given("YAML file that adds or corrects rows of the catalog.", None)
    silence: Mapping[str, str] = given("Findings to hide everywhere: rule id and reason.", factory=dict)
    check: CheckSettings = given("What `vertexrig check` reports.", factory=CheckSettings)
    jobs: Mapping[str, Job] = given("Jobs by name.", factory=dict)
    sweeps: Mapping[str, Sweep] = given("Sweeps by name.", factory=dict)
    schedules: Mapping[str, Schedule] = given("Schedules by name.", factory=dict)
    trigger: TriggerSettings = given("The Cloud Function.", factory=TriggerSettings)
    local: LocalSettings = given("Rehearsals on this machine.", factory=LocalSettings)
    environments: Mapping[str, Mapping[str, Any]] = given(
        "Environments by name, chosen with `--env NAME`: each gives keys of this file, which are merged over it.",
        factory=dict,
        partial=True,
    )

    @property
    def entries(self) -> Mapping[str, Job | Sweep]:
        """All jobs and sweeps by name."""
        return {**self.jobs, **self.sweeps}

    @property
    def image_names(self) -> frozenset[str | None]:
        """The images that the trainer, the jobs and their roles name; None stands for a job or role that inherits its image."""
        jobs = self.jobs.values()
        # not reduction_server: an image there is refused
        machines = [
            machine for job in jobs for machine in (job, job.worker, job.ps, job.evaluator) if machine is not None
        ]
        return frozenset((self.trainer.image, *(machine.image for machine in machines)))

    @property
    def invoker(self) -> str:
        """E-mail of the account that Cloud Scheduler calls the trigger with."""
        name = self.trigger.function[:18].rstrip("-")  # an account's name has 6 to 30 characters
        return self.trigger.invoker_service_account or f"{name}-invoker@{self.project}.iam.gserviceaccount.com"

    @property
    def bucket_name(self) -> str:
        """The bucket without gs:// and without a folder in it; "" if none is named."""
        return self.bucket.removeprefix("gs://").partition("/")[0]
