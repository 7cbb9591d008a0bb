"""A job or sweep of the project file with everything filled in: the plain values that the templates see.

Defaults are inherited here, images are looked up, packages get their URI, arguments become a list.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vertexrig import spec
from vertexrig.catalog import Catalog
from vertexrig.errors import Errors, did_you_mean
from vertexrig.project import model, runs
from vertexrig.project.arguments import arguments, parameter_ids, scalar_text
from vertexrig.project.config import Loaded
from vertexrig.project.study import MetricSettings, NumberValues, Study, StudyParameter, TextValues
from vertexrig.render.artifacts import Artifacts
from vertexrig.yamltext import RawPath

ROLES = ("chief", "worker", "ps", "reduction_server", "evaluator")

_MACHINE_COMPANIONS = tuple(
    "accelerator_type accelerator_count gpu_partition_size tpu_topology reservation_affinity".split()
)
_PREBUILT = ("/vertex-ai/training/", "/cloud-aiplatform/training/")
"""Paths of Google's images that take a Python package; the second is their former place, in gcr.io."""
_OWN = ("machine_type", *_MACHINE_COMPANIONS, "replica_count", "boot_disk_type", "boot_disk_size_gb")
_INHERITED = ("boot_disk_type", "boot_disk_size_gb", "image", "container")


@dataclass(frozen=True)
class PoolView:
    """One worker pool, as the templates see it: the API's fields in snake_case.

    Args:
        role: chief, worker, ps, reduction_server or evaluator.
        python: True for a Python package on a prebuilt image, False for a container.
        image_uri: The executor image, or the container's image.
        entrypoint: What the image starts where no command is given, as far as it is known.
        env: Pairs of name and text.
        keys: The key of the project file that gives a value, by the value's path in this pool: `("machine_type",)`, `("args", 0)`,
            `("env", NAME)`. Where the file gives no value, there is no key or one without a value.
    """

    role: str
    machine_type: str | None
    accelerator_type: str | None
    accelerator_count: int | None
    gpu_partition_size: str | None
    tpu_topology: str | None
    reservation_affinity: model.ReservationAffinity | None
    replica_count: int
    boot_disk_type: str | None
    boot_disk_size_gb: int | None
    python: bool
    image_uri: str
    command: tuple[str, ...]
    entrypoint: tuple[str, ...]
    package_uris: tuple[str, ...]
    python_module: str
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    nfs_mounts: tuple[model.NfsMount, ...]
    keys: Mapping[RawPath, RawPath] = field(repr=False)


@dataclass(frozen=True)
class View:
    """What a template is rendered with.

    Args:
        name: The job's or sweep's name.
        template: The template of this resource; of the trial's job in `job.topology`.
        job: The job of the project file with the sweep's `args` over its own, and with the project's output folder and service account.
            Its labels, display name and KMS key are those of this view, its machines and images those of `pools`.
        pools: Pools by role; a role the project file does not name is None, and so is a value that a template fills in (`cloud-tpu`).
        packages: The trainer's packages that the pools install: URI by TensorFlow version. What the project file names by URI is
            not among them.
        images: The trainer's own images that the pools run: URI by kind (cpu, gpu, tpu).
        sweep: The sweep, None for a job.
        study: The sweep's study, None for a job and for a sweep whose template makes it.
        run_id: The run whose output folder the job has, "" if none was given.
        own_runs: Each run has an output folder of its own; False with a `base_output_directory` in the project file.
    """

    name: str
    template: str
    job: model.Job
    pools: Mapping[str, PoolView | None]
    display_name: str
    labels: Mapping[str, str]
    kms_key_name: str | None
    packages: Mapping[str | None, str]
    images: Mapping[str, str]
    sweep: model.Sweep | None = None
    study: Study | None = None
    run_id: str = ""
    own_runs: bool = False

    @property
    def kind(self) -> spec.Kind:
        return "CustomJobSpec" if self.sweep is None else "HyperparameterTuningJob"

    @property
    def key(self) -> tuple[str, str]:
        """Where it is in the project file."""
        return ("jobs" if self.sweep is None else "sweeps", self.name)

    @property
    def job_key(self) -> tuple[str, str]:
        """Where the job is that it runs."""
        return ("jobs", self.name if self.sweep is None else self.sweep.job)


def resolve(loaded: Loaded, name: str, catalog: Catalog, artifacts: Artifacts) -> View:
    """Return the view of a job or sweep.

    Args:
        loaded: The project.
        name: A job or sweep of it.
        catalog: For images and their hosts.
        artifacts: The trainer's packages and images, asked only where a pool needs them.

    Raises:
        UsageError: There is no such job or sweep.
        ConfigError: A value cannot be resolved: an image that does not exist, a setting that is missing.
    """
    found = loaded.runnable(name)
    project = loaded.project
    sweep = found if isinstance(found, model.Sweep) else None
    job_name = name if sweep is None else sweep.job
    job = project.jobs[job_name]
    errors = Errors()
    with errors:
        _check_chief(loaded, job_name, job)
    if sweep is not None:
        with errors:
            job = replace(job, args=_sweep_args(loaded, name, sweep, job))
    errors.end()  # before the pools: they ask for the trainer's package, and may look for it in the bucket
    output = (sweep.base_output_directory if sweep else None) or job.base_output_directory
    # A folder that the project file names is the one of every run: nothing is added to it.
    own_runs = output is None and bool(project.bucket)
    if own_runs:
        output = runs.folder(project.bucket, name)
    job = replace(job, base_output_directory=output, service_account=job.service_account or project.service_account)
    resolver = _Resolver(loaded, job_name, job, _keys_of_args(job, job_name, sweep, name), catalog, artifacts)
    # The nearest wins: the sweep's over the job's, the job's over the project's.
    labels = {**project.labels, **job.labels, **(sweep.labels if sweep else {})}
    return View(
        name=name,
        template=sweep.topology if sweep else job.topology,
        job=job,
        pools=resolver.pools(),
        display_name=(sweep.display_name if sweep else job.display_name) or name,
        labels=labels,
        kms_key_name=(sweep.kms_key_name if sweep else None) or job.kms_key_name,
        packages=resolver.packages,
        images=resolver.images,
        sweep=sweep,
        study=_study(sweep.study) if sweep and sweep.study else None,
        own_runs=own_runs,
    )


def _check_chief(loaded: Loaded, name: str, job: model.Job) -> None:
    if job.replica_count not in (None, 1):
        raise loaded.error(
            f"{job.replica_count} replicas: the job's own pool is the chief, which is one replica; more of them are workers: "
            f"topology: multi-worker with worker: {{replica_count: {max(job.replica_count - 1, 1)}}}",
            *("jobs", name, "replica_count"),
        )


def _sweep_args(loaded: Loaded, name: str, sweep: model.Sweep, job: model.Job) -> model.Args:
    """Return the job's arguments with the sweep's over them, less those the study decides."""
    if isinstance(sweep.args, Mapping) and not sweep.args:
        merged: model.Args = job.args
    elif isinstance(sweep.args, Mapping) and isinstance(job.args, Mapping):
        merged = {**job.args, **sweep.args}
    elif isinstance(sweep.args, Mapping):
        raise loaded.error(
            f"job {sweep.job!r} has a list of args, so the sweep's must be a list too", "sweeps", name, "args"
        )
    else:
        merged = sweep.args
    if not isinstance(merged, Mapping):
        return merged
    searched = {*sweep.over, *(parameter_ids(sweep.study) if sweep.study else ())}
    return {key: value for key, value in merged.items() if key not in searched}


def _keys_of(args: model.Args, place: RawPath) -> tuple[RawPath, ...]:
    """Return the key of each argument."""
    return tuple((*place, key) for key in (args if isinstance(args, Mapping) else range(len(args))))


def _keys_of_args(job: model.Job, job_name: str, sweep: model.Sweep | None, name: str) -> tuple[RawPath, ...]:
    """Return the key of each argument of a job, whose `args` have those of the sweep."""
    keys = _keys_of(job.args, ("jobs", job_name, "args"))
    if sweep is None or sweep.args == {}:
        return keys
    of_sweep = _keys_of(job.args, ("sweeps", name, "args"))
    if not isinstance(sweep.args, Mapping):
        return of_sweep
    return tuple(theirs if theirs[-1] in sweep.args else own for own, theirs in zip(keys, of_sweep, strict=True))


def _study(study: Study) -> Study:
    """Return the study with every metric written out."""
    metrics = {
        id: metric if isinstance(metric, MetricSettings) else MetricSettings(metric)
        for id, metric in study.metrics.items()
    }
    return replace(study, metrics=metrics)


def grid_study(sweep: model.Sweep) -> tuple[Study, int]:
    """Return the study of a grid sweep and its number of combinations: numbers become discrete, texts categorical."""
    parameters = {}
    for name, values in sweep.over.items():
        if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
            # the API wants discrete values in increasing order, each once
            numbers = tuple(sorted({value for value in values if not isinstance(value, str)}))
            parameters[name] = StudyParameter(discrete_value_spec=NumberValues(numbers))
        else:
            texts = tuple(dict.fromkeys(scalar_text(value) for value in values))
            parameters[name] = StudyParameter(categorical_value_spec=TextValues(texts))
    specs = [spec.discrete_value_spec or spec.categorical_value_spec for spec in parameters.values()]
    study = Study(metrics=sweep.metrics, parameters=parameters, algorithm="GRID_SEARCH")
    return _study(study), math.prod(len(spec.values) for spec in specs if spec)


@dataclass(frozen=True)
class _PoolImage:
    """A pool's image: whether a Python package is installed into it, and its version of TensorFlow, if that is known."""

    uri: str
    takes_package: bool = False
    tf_version: str | None = None


@dataclass(frozen=True)
class _Resolver:
    """Fills in the pools of one job."""

    loaded: Loaded
    name: str
    job: model.Job
    arg_keys: tuple[RawPath, ...]
    catalog: Catalog
    artifacts: Artifacts
    packages: dict[str | None, str] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)

    def pools(self) -> dict[str, PoolView | None]:
        found: dict[str, PoolView | None] = {}
        errors = Errors()
        for role in ROLES:
            given = self.given(role)
            with errors:
                found[role] = None if given is None else self.pool(role, given, self.inherit(role, given))
        errors.end()
        return found

    def given(self, role: str) -> model.Job | model.Role | None:
        """Return a role as the project file has it; the job itself is the chief."""
        found: model.Job | model.Role | None = self.job if role == "chief" else getattr(self.job, role)
        return found

    def inherit(self, role: str, given: model.Job | model.Role) -> model.Job | model.Role:
        """Return a role's machine with what it takes from the job."""
        job = self.job
        if given is job:
            return job
        values: dict[str, Any] = {}
        if role == "reduction_server":
            if given.image is not None and given.container is None:
                raise self.loaded.error(
                    f"image: {given.image} is of the trainer, and a Reduction Server runs Google's own program: leave it out, or "
                    "name another program's image as container: {image_uri: IMAGE}",
                    *("jobs", self.name, role, "image"),
                )
            limits = self.catalog.limits
            host = self.catalog.host_for_region(self.loaded.project.region)
            uri = f"{host}/{limits.names('reduction_server.images')[0]}"
            values["machine_type"] = given.machine_type or limits.text("reduction_server.machine")
            values["container"] = given.container or model.Container(image_uri=uri)
            # it is Google's own program, which knows none of the trainer's arguments
            values["args"] = given.args or ()
            return replace(given, **values)
        if given.machine_type is None:
            values["machine_type"] = job.machine_type
            if role != "ps":  # a parameter server holds variables in memory; an accelerator there would idle
                values |= {key: getattr(job, key) for key in _MACHINE_COMPANIONS if getattr(given, key) is None}
        values |= {key: getattr(job, key) for key in _INHERITED if getattr(given, key) is None}
        # a role with an image of its own does not take the job's container, which `_INHERITED` has just filled in
        if given.container is None and given.image is not None:
            values["container"] = None
        values["env"] = {**job.env, **given.env}
        values["args"] = job.args if given.args is None else given.args
        return replace(given, **values)

    def pool(self, role: str, given: model.Job | model.Role, machine: model.Job | model.Role) -> PoolView:
        image = self.image(role, machine)
        python = image.takes_package
        trainer, job = self.loaded.project.trainer, self.job
        keys, around = self.keys(role, given)
        command: tuple[str, ...] = ()
        entrypoint: tuple[str, ...] = ()
        if machine.container is not None:
            command = machine.container.command
            keys |= {("command", n): (*around, "container", "command", n) for n in range(len(command))}
        elif not python and (machine.image or trainer.image) == model.BUILD:
            entrypoint = ("python", "-m", trainer.module)
            if job.module not in (None, trainer.module):
                command = ("python", "-m", job.module)
                keys["command", 2] = ("jobs", self.name, "module")
        elif not python:
            command = trainer.command
            keys |= {("command", n): ("trainer", "command", n) for n in range(len(command))}
        packages: tuple[str, ...] = ()
        if python:
            packages = job.package_uris if job.package_uris is not None else trainer.package_uris
            owner: RawPath = ("jobs", self.name) if job.package_uris else ("trainer",)
            keys |= {("package_uris", n): (*owner, "package_uris", n) for n in range(len(packages))}
            if not packages:
                packages = (self.artifacts.package(image.tf_version),)
                self.packages[image.tf_version] = packages[0]
                keys["package_uris", 0] = ("trainer", "path")
        return PoolView(
            role=role,
            machine_type=machine.machine_type,
            accelerator_type=machine.accelerator_type,
            accelerator_count=machine.accelerator_count,
            gpu_partition_size=machine.gpu_partition_size,
            tpu_topology=machine.tpu_topology,
            reservation_affinity=machine.reservation_affinity,
            replica_count=1 if machine.replica_count is None else machine.replica_count,
            boot_disk_type=machine.boot_disk_type,
            boot_disk_size_gb=machine.boot_disk_size_gb,
            python=python,
            image_uri=image.uri,
            command=command,
            entrypoint=entrypoint,
            package_uris=packages,
            python_module=job.module or trainer.module,
            args=arguments(machine.args or ()),
            env=tuple((key, scalar_text(value)) for key, value in machine.env.items()),
            nfs_mounts=job.nfs_mounts,
            keys=keys,
        )

    def keys(self, role: str, given: model.Job | model.Role) -> tuple[dict[RawPath, RawPath], RawPath]:
        """Return the keys of a pool's values, and the key around its container or image."""
        of_job: RawPath = ("jobs", self.name)
        own = of_job if given is self.job else (*of_job, role)
        # what gives any value of this pool, the nearest last; a Reduction Server takes nothing from the job
        owners = [(own, given)] if role == "reduction_server" else [(of_job, self.job), (own, given)]
        keys: dict[RawPath, RawPath] = {("nfs_mounts",): (*of_job, "nfs_mounts")}
        keys["python_module",] = (*(of_job if self.job.module else ("trainer",)), "module")
        trainer = self.loaded.project.trainer.image
        around: RawPath = ("trainer",)
        if role != "reduction_server":
            keys["image_uri",] = ("trainer", "custom_image" if trainer == "custom" else "image")
        for owner, settings in owners:
            keys |= {(name,): (*owner, name) for name in _OWN if getattr(settings, name) is not None}
            keys |= {("env", name): (*owner, "env", name) for name in settings.env}
            if settings.container or settings.image:
                around = owner
                image: RawPath = (*owner, "image") if settings.image != "custom" else ("trainer", "custom_image")
                keys["image_uri",] = (*owner, "container", "image_uri") if settings.container else image
        args = self.arg_keys if given is self.job or given.args is None else _keys_of(given.args, (*own, "args"))
        keys |= {("args", n): key for n, key in enumerate(args)}
        return keys, around

    def image(self, role: str, machine: model.MachineSettings) -> _PoolImage:
        if machine.container is not None:
            return _PoolImage(machine.container.image_uri)
        trainer = self.loaded.project.trainer
        name = machine.image or trainer.image
        if name == model.BUILD:
            kind = self.image_kind(machine)
            self.images[kind] = self.artifacts.image(kind)
            return _PoolImage(self.images[kind])
        if name == "custom":
            if not trainer.custom_image:
                raise self.loaded.error("image is `custom`, so custom_image must name your image", "trainer")
            return _PoolImage(trainer.custom_image)
        if "/" in name:
            known = self.catalog.image(name)
            version = known.version if known is not None and known.framework == "tf" else None
            # An image of Google's that is newer than the catalog takes a package, too.
            return _PoolImage(name, known is not None or any(part in name for part in _PREBUILT), version)
        return self.short_image(role, machine, name)

    def short_image(self, role: str, machine: model.MachineSettings, name: str) -> _PoolImage:
        kind, newest = self.image_kind(machine), name == model.PREBUILT
        framework = self.artifacts.framework if newest else ""
        found = self.catalog.newest_image(framework, kind) if newest else self.catalog.find_short(name, kind)
        if found is None:
            names = [short for short in self.catalog.short_names() if self.catalog.find_short(short, kind)]
            known = newest or name in self.catalog.short_names()
            choices = _listed(names) if known else did_you_mean(name, names, most=30)
            what = f"of framework {framework}" if framework else repr(name)
            problem = f"there is no prebuilt {kind} image {what}"
            if newest and not framework:
                problem = "image is `prebuilt`, and the trainer imports no framework that has prebuilt images"
                choices = "Write one that its packages can be installed on, such as tf-2.17, which has most."
            path: tuple[str, ...] = ("jobs", self.name, "image") if self.job.image else ("trainer", "image")
            where = ""
            if role != "chief" and getattr(self.given(role), "image", None):
                path, where = ("jobs", self.name, role, "image"), f" ({role})"
            raise self.loaded.error(
                f"job {self.name!r}{where}: {problem}. {choices} Or give a full image URI, `build`, or `custom`.", *path
            )
        version = found.version if found.framework == "tf" else None
        return _PoolImage(found.uri(self.catalog.host_for_region(self.loaded.project.region)), True, version)

    def image_kind(self, machine: model.MachineSettings) -> str:
        known = self.catalog.machines.get(machine.machine_type or "")
        if (
            machine.tpu_topology
            or (machine.accelerator_type or "").startswith("TPU")
            or (known is not None and known.tpu)
        ):
            return "tpu"
        if machine.accelerator_type or (known is not None and known.accelerator_required):
            return "gpu"
        return "cpu"


def _listed(names: list[str]) -> str:
    return f"There is: {', '.join(names)}." if names else "There is none of that kind."
