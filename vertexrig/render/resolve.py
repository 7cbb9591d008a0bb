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
from vertexrig.errors import ConfigError, Errors, UsageError, did_you_mean
from vertexrig.project import model, run_ids
from vertexrig.project.arguments import arguments, parameter_ids, scalar_text
from vertexrig.project.config import Loaded
from vertexrig.project.study import MetricSettings, NumberValues, Study, StudyParameter, TextValues
from vertexrig.render.artifacts import Artifacts
from vertexrig.yamltext import FileKey

ROLES = ("chief", "worker", "ps", "reduction_server", "evaluator")
"""Roles of pools; the chief is the job's own pool, the others are keys of a job."""

_MACHINE_COMPANIONS = tuple(
    "accelerator_type accelerator_count gpu_partition_size tpu_topology reservation_affinity".split()
)
_PREBUILT_PATHS = ("/vertex-ai/training/", "/cloud-aiplatform/training/")
"""Paths of Google's images that take a Python package; the second is their former place, in gcr.io."""
_POOL_KEYS = ("machine_type", *_MACHINE_COMPANIONS, "replica_count", "boot_disk_type", "boot_disk_size_gb")
"""Keys of a job or role that are values of its pool."""
_INHERITED = ("boot_disk_type", "boot_disk_size_gb", "image", "container")


@dataclass(frozen=True)
class PoolView:
    """One worker pool, as the templates see it: the API's fields in snake_case.

    Args:
        python: True for a Python package on a prebuilt image, False for a container.
        image_uri: The executor image, or the container's image.
        entrypoint: What the image starts where no command is given, as far as it is known.
        env: Pairs of name and text.
        own_package: TensorFlow version and URI of the trainer's package, if the pool installs it. A package that the project file
            names by URI is not the trainer's.
        own_image: Kind (cpu, gpu, tpu) of the trainer's own image, if the pool runs it.
        source_keys: The key of the project file that gives a value, by the value's path in this pool: `("machine_type",)`, `("args", 0)`,
            `("env", NAME)`. The file may lack such a key: then the value comes from the key's default.
    """

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
    own_package: tuple[str | None, str] | None
    own_image: str | None
    source_keys: Mapping[FileKey, FileKey] = field(repr=False)


@dataclass(frozen=True)
class View:
    """What a template is rendered with.

    Args:
        name: The job's or sweep's name.
        topology: The name of the template, without its suffix. For a sweep it is the sweep's; the one of its job is `job.topology`.
        job: The job of the project file with the sweep's `args` over its own, without those that the study decides, and with the
            output folder and service account that hold for it.
            For labels, display name and KMS key use the fields of this view; for machines and images use `pools`.
        pools: Pools by role; None for a role the project file does not name. In a pool, a value that is left to the template is None,
            such as the machine type where `tpu.yaml.j2` writes `cloud-tpu`.
        source_keys: The key of the project file that gives a value outside the pools, by the value's path in the job:
            `("base_output_directory",)`, `("labels", NAME)`. Where the file gives no value, there is no key.
        sweep: The sweep, None for a job.
        study: The sweep's study, None for a job and for a sweep whose template makes it.
        run_id: The run whose output folder the job has, "" if none was given.
        takes_run_id: Whether `Renderer.in_run` may add a run's id to the output folder: True if the folder is BUCKET/runs/NAME, False if
            the project file gives a `base_output_directory` or no bucket.
    """

    name: str
    topology: str
    job: model.Job
    pools: Mapping[str, PoolView | None]
    display_name: str
    labels: Mapping[str, str]
    kms_key_name: str | None
    source_keys: Mapping[FileKey, FileKey] = field(repr=False)
    sweep: model.Sweep | None = None
    study: Study | None = None
    run_id: str = ""
    takes_run_id: bool = False

    @property
    def kind(self) -> spec.Kind:
        return "CustomJobSpec" if self.sweep is None else "HyperparameterTuningJob"

    @property
    def own_packages(self) -> dict[str | None, str]:
        """The trainer's packages that the pools install: URI by TensorFlow version."""
        return dict(pool.own_package for pool in self.pools.values() if pool is not None and pool.own_package)

    @property
    def own_images(self) -> dict[str, str]:
        """The trainer's own images that the pools run: URI by kind (cpu, gpu, tpu)."""
        return {pool.own_image: pool.image_uri for pool in self.pools.values() if pool is not None and pool.own_image}

    @property
    def entry_path(self) -> tuple[str, str]:
        """Path of its entry in the project file."""
        return ("jobs" if self.sweep is None else "sweeps", self.name)

    @property
    def job_path(self) -> tuple[str, str]:
        """Path of the entry of the job that it runs."""
        return ("jobs", self.name if self.sweep is None else self.sweep.job)

    def check_run_id(self, run_id: str, *, resume: bool = False) -> None:
        """Raise UsageError for a run that this job or sweep cannot have, or cannot resume."""
        if resume and self.sweep is not None:
            raise UsageError(
                f"{self.name} is a sweep, which cannot be resumed: its trials have other values than those whose checkpoints "
                "are in the run's folder; leave --resume out"
            )
        if not self.takes_run_id:
            fixed = self.job.base_output_directory
            raise UsageError(
                f"every run of {self.name} writes to its base_output_directory, {fixed}, and finds "
                "there what the run before it left; only jobs without one have runs with names"
                if fixed
                else f"{self.name} has no output folder, because the project file has no bucket; runs with names need one"
            )
        if not run_ids.is_run_id(run_id):
            raise UsageError(f"{run_id!r} is not the name of a run, such as 20261121-171500-ab12")


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
        PackageError: The trainer cannot be read as a package.
    """
    found = loaded.runnable(name)
    project = loaded.project
    sweep = found if isinstance(found, model.Sweep) else None
    job_name = name if sweep is None else sweep.job
    job = project.jobs[job_name]
    args, arg_keys = job.args, _keys_of(job.args, ("jobs", job_name, "args"))
    errors = Errors()
    if job.replica_count not in (None, 1):
        errors.keep(
            loaded.error_at(
                f"{job.replica_count} replicas: the job's own pool is the chief, which is one replica; more of them are workers: "
                f"topology: multi-worker with worker: {{replica_count: {max(job.replica_count - 1, 1)}}}",
                *("jobs", job_name, "replica_count"),
            )
        )
    if sweep is not None:
        with errors:
            args, arg_keys = _sweep_args(loaded, name, sweep, job)
    errors.raise_all()  # before the pools: to make them the trigger reads the bucket, which is in vain if the job is wrong
    output = (sweep.base_output_directory if sweep else None) or job.base_output_directory
    # A folder that the project file names is the one of every run: nothing is added to it.
    takes_run_id = output is None and bool(project.bucket)
    if takes_run_id:
        output = run_ids.output_folder(project.bucket, name)
    account = job.service_account or project.service_account
    job = replace(job, args=args, base_output_directory=output, service_account=account)
    return View(
        name=name,
        topology=sweep.topology if sweep else job.topology,
        job=job,
        pools=_Resolver(loaded, job_name, job, arg_keys, catalog, artifacts).pools(),
        display_name=(sweep.display_name if sweep else job.display_name) or name,
        # The nearest wins: the sweep's over the job's, the job's over the project's.
        labels={**project.labels, **job.labels, **(sweep.labels if sweep else {})},
        kms_key_name=(sweep.kms_key_name if sweep else None) or job.kms_key_name,
        source_keys=_keys_outside_pools(project, job_name, name),
        sweep=sweep,
        study=_study(sweep.study) if sweep and sweep.study else None,
        takes_run_id=takes_run_id,
    )


def _sweep_args(
    loaded: Loaded, name: str, sweep: model.Sweep, job: model.Job
) -> tuple[model.Args, tuple[FileKey, ...]]:
    """Return the job's arguments with the sweep's over them, less those the study decides, and the key of each."""
    of_job, of_sweep = ("jobs", sweep.job, "args"), ("sweeps", name, "args")
    if not isinstance(sweep.args, Mapping):
        return sweep.args, _keys_of(sweep.args, of_sweep)
    if not isinstance(job.args, Mapping):
        if sweep.args:
            raise loaded.error_at(f"job {sweep.job!r} has a list of args, so the sweep's must be a list too", *of_sweep)
        return job.args, _keys_of(job.args, of_job)
    searched = {*sweep.over, *(parameter_ids(sweep.study) if sweep.study else ())}
    args = {key: value for key, value in {**job.args, **sweep.args}.items() if key not in searched}
    return args, tuple((*(of_sweep if key in sweep.args else of_job), key) for key in args)


def _keys_of(args: model.Args, path: FileKey) -> tuple[FileKey, ...]:
    """Return the key of each argument."""
    return tuple((*path, key) for key in (args if isinstance(args, Mapping) else range(len(args))))


def _keys_outside_pools(project: model.Project, job: str, name: str) -> dict[FileKey, FileKey]:
    """Return the keys of the values that a job has outside its pools, each from the nearest of project, job and sweep that has it."""
    keys: dict[FileKey, FileKey] = {("base_output_directory",): ("bucket",)} if project.bucket else {}
    owners: list[tuple[FileKey, Any]] = [((), project), (("jobs", job), project.jobs[job])]
    owners += [(("sweeps", name), project.sweeps[name])] if name in project.sweeps else []
    for path, owner in owners:
        for key in ("base_output_directory", "service_account", "kms_key_name"):
            if getattr(owner, key, None) is not None:
                keys[(key,)] = (*path, key)
        keys |= {("labels", label): (*path, "labels", label) for label in owner.labels}
    path, owner = owners[-1]  # a sweep does not take the display name of its job
    return keys | ({("display_name",): (*path, "display_name")} if owner.display_name is not None else {})


def _study(study: Study) -> Study:
    """Return the study with every metric written out."""
    metrics = {
        id: metric if isinstance(metric, MetricSettings) else MetricSettings(metric)
        for id, metric in study.metrics.items()
    }
    return replace(study, metrics=metrics)


@dataclass(frozen=True)
class _PoolImage:
    """A pool's image.

    Args:
        uri: Its URI.
        python: Whether a Python package is installed into it.
        tf_version: Its version of TensorFlow, if that is known.
        own: Kind (cpu, gpu, tpu) of the trainer's own image, None for another image.
    """

    uri: str
    python: bool = False
    tf_version: str | None = None
    own: str | None = None


@dataclass(frozen=True)
class _Resolver:
    """Fills in the pools of one job."""

    loaded: Loaded
    job_name: str
    job: model.Job
    arg_keys: tuple[FileKey, ...]
    catalog: Catalog
    artifacts: Artifacts

    def pools(self) -> dict[str, PoolView | None]:
        found: dict[str, PoolView | None] = {}
        errors = Errors()
        for role in ROLES:
            settings = self.job if role == "chief" else getattr(self.job, role)
            with errors:
                found[role] = None if settings is None else self.pool(role, settings)
        errors.raise_all()
        return found

    def pool(self, role: str, settings: model.Job | model.Role) -> PoolView:
        """Return the pool of a role: its own settings, those that it inherits from the job, and the program it runs."""
        filled = self.filled_in(role, settings)
        image = self.image(role, filled)
        owners = self.owners(role, settings)
        keys = self.source_keys(role, owners, settings)
        command, entrypoint, command_keys = self.command(filled, image, owners)
        packages, own_package, package_keys = self.packages(image)
        return PoolView(
            machine_type=filled.machine_type,
            accelerator_type=filled.accelerator_type,
            accelerator_count=filled.accelerator_count,
            gpu_partition_size=filled.gpu_partition_size,
            tpu_topology=filled.tpu_topology,
            reservation_affinity=filled.reservation_affinity,
            replica_count=1 if filled.replica_count is None else filled.replica_count,
            boot_disk_type=filled.boot_disk_type,
            boot_disk_size_gb=filled.boot_disk_size_gb,
            python=image.python,
            image_uri=image.uri,
            command=command,
            entrypoint=entrypoint,
            package_uris=packages,
            python_module=self.job.module or self.loaded.project.trainer.module,
            args=arguments(filled.args or ()),
            env=tuple((key, scalar_text(value)) for key, value in filled.env.items()),
            nfs_mounts=self.job.nfs_mounts,
            own_package=own_package,
            own_image=image.own,
            source_keys={**keys, **command_keys, **package_keys},
        )

    def filled_in(self, role: str, settings: model.Job | model.Role) -> model.Job | model.Role:
        """Return the settings of a role with what it inherits from the job; for a Reduction Server, with defaults of the catalog instead."""
        job = self.job
        if role == "chief":
            return job
        values: dict[str, Any] = {}
        if role == "reduction_server":
            if settings.image is not None and settings.container is None:
                raise self.loaded.error_at(
                    f"image: {settings.image} is of the trainer, and a Reduction Server runs Google's own program: leave it out, or "
                    "name another program's image as container: {image_uri: IMAGE}",
                    *("jobs", self.job_name, role, "image"),
                )
            limits = self.catalog.limits
            host = self.catalog.host_for_region(self.loaded.project.region)
            uri = f"{host}/{limits.names('reduction_server.images')[0]}"
            values["machine_type"] = settings.machine_type or limits.text("reduction_server.machine")
            values["container"] = settings.container or model.Container(image_uri=uri)
            # it is Google's own program, which knows none of the trainer's arguments
            values["args"] = settings.args or ()
            return replace(settings, **values)
        if settings.machine_type is None:
            values["machine_type"] = job.machine_type
            if role != "ps":  # a parameter server holds variables in memory; an accelerator there would idle
                values |= {key: getattr(job, key) for key in _MACHINE_COMPANIONS if getattr(settings, key) is None}
        values |= {key: getattr(job, key) for key in _INHERITED if getattr(settings, key) is None}
        # a role with an image of its own does not take the job's container, which `_INHERITED` has just filled in
        if settings.container is None and settings.image is not None:
            values["container"] = None
        values["env"] = {**job.env, **settings.env}
        values["args"] = job.args if settings.args is None else settings.args
        return replace(settings, **values)

    def image(self, role: str, filled: model.Job | model.Role) -> _PoolImage:
        """Return the image of a role whose settings are filled in."""
        if filled.container is not None:
            return _PoolImage(filled.container.image_uri)
        trainer = self.loaded.project.trainer
        name = filled.image or trainer.image
        if name == model.BUILD:
            kind = self.image_kind(filled)
            return _PoolImage(self.artifacts.image(kind), own=kind)
        if name == "custom":
            if not trainer.custom_image:
                raise self.loaded.error_at("image is `custom`, so custom_image must name your image", "trainer")
            return _PoolImage(trainer.custom_image)
        if "/" in name:
            known = self.catalog.image(name)
            version = known.version if known is not None and known.framework == "tf" else None
            # An image of Google's that is newer than the catalog takes a package, too.
            return _PoolImage(name, known is not None or any(part in name for part in _PREBUILT_PATHS), version)
        # `prebuilt`, or a short name such as tf-2.17
        kind, newest = self.image_kind(filled), name == model.PREBUILT
        known = (
            self.catalog.newest_image(self.artifacts.framework, kind) if newest else self.catalog.find_short(name, kind)
        )
        if known is None:
            raise self.no_image_error(role, name, kind)
        version = known.version if known.framework == "tf" else None
        return _PoolImage(known.uri(self.catalog.host_for_region(self.loaded.project.region)), True, version)

    def no_image_error(self, role: str, name: str, kind: str) -> ConfigError:
        """Return the error for a short name, or for `prebuilt`, of which the catalog has no image of this kind."""
        names = [short for short in self.catalog.short_names() if self.catalog.find_short(short, kind)]
        problem, choices = f"there is no prebuilt {kind} image {name!r}", did_you_mean(name, names, most=30)
        if name in self.catalog.short_names():
            choices = _listed(names)
        elif name == model.PREBUILT and self.artifacts.framework:
            problem, choices = (
                f"there is no prebuilt {kind} image of framework {self.artifacts.framework}",
                _listed(names),
            )
        elif name == model.PREBUILT:
            self.artifacts.trainer_folder()  # raises if a missing folder is the reason
            problem = "image is `prebuilt`, and the trainer imports no framework that has prebuilt images"
            choices = "Write one that its packages can be installed on, such as tf-2.17, which has the most packages."
        path: FileKey = ("jobs", self.job_name, "image") if self.job.image else ("trainer", "image")
        where = ""
        if role != "chief" and getattr(self.job, role).image:
            path, where = ("jobs", self.job_name, role, "image"), f" ({role})"
        return self.loaded.error_at(
            f"job {self.job_name!r}{where}: {problem}. {choices} Or give a full image URI, `build`, or `custom`.", *path
        )

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

    def owners(self, role: str, settings: model.Job | model.Role) -> list[tuple[FileKey, model.Job | model.Role]]:
        """Return the job and role that may give a value of the pool, each with its key; a later one overrides an earlier one."""
        of_job: FileKey = ("jobs", self.job_name)
        if role == "chief":
            return [(of_job, self.job)]
        own = ((*of_job, role), settings)
        # a Reduction Server inherits nothing
        return [own] if role == "reduction_server" else [(of_job, self.job), own]

    def source_keys(
        self, role: str, owners: list[tuple[FileKey, model.Job | model.Role]], settings: model.Job | model.Role
    ) -> dict[FileKey, FileKey]:
        """Return the key of each value of a pool but its command and packages."""
        trainer = self.loaded.project.trainer
        # nfs_mounts are no key of a role, and hold for every pool of the job
        keys: dict[FileKey, FileKey] = {("nfs_mounts",): ("jobs", self.job_name, "nfs_mounts")}
        keys[("python_module",)] = ("jobs", self.job_name, "module") if self.job.module else ("trainer", "module")
        inherits = role != "reduction_server"  # its servers run an image of Google's, with no arguments of the job
        if inherits:
            keys[("image_uri",)] = ("trainer", "custom_image" if trainer.image == "custom" else "image")
        for path, owner in owners:
            keys |= {(name,): (*path, name) for name in _POOL_KEYS if getattr(owner, name) is not None}
            keys |= {("env", name): (*path, "env", name) for name in owner.env}
            if owner.container:
                keys[("image_uri",)] = (*path, "container", "image_uri")
            elif owner.image:
                keys[("image_uri",)] = (*path, "image") if owner.image != "custom" else ("trainer", "custom_image")
        has_args_of_job = role == "chief" or (inherits and settings.args is None)
        args = self.arg_keys if has_args_of_job else _keys_of(settings.args or (), (*owners[-1][0], "args"))
        return keys | {("args", n): key for n, key in enumerate(args)}

    def command(
        self, filled: model.Job | model.Role, image: _PoolImage, owners: list[tuple[FileKey, model.Job | model.Role]]
    ) -> tuple[tuple[str, ...], tuple[str, ...], dict[FileKey, FileKey]]:
        """Return a pool's command, what its image starts without one, and the key of each word of the command."""
        trainer, module = self.loaded.project.trainer, self.job.module
        if filled.container is not None:
            command = filled.container.command
            path = next(path for path, owner in reversed(owners) if owner.container) if command else ()
            return command, (), {("command", n): (*path, "container", "command", n) for n in range(len(command))}
        if image.python:
            return (), (), {}
        if image.own:
            entrypoint = ("python", "-m", trainer.module)
            if module in (None, trainer.module):
                return (), entrypoint, {}
            return ("python", "-m", module), entrypoint, {("command", 2): ("jobs", self.job_name, "module")}
        return trainer.command, (), {("command", n): ("trainer", "command", n) for n in range(len(trainer.command))}

    def packages(
        self, image: _PoolImage
    ) -> tuple[tuple[str, ...], tuple[str | None, str] | None, dict[FileKey, FileKey]]:
        """Return the URIs of a pool's packages, its own package as `PoolView` has it, and the key of each URI."""
        if not image.python:
            return (), None, {}
        job, trainer = self.job, self.loaded.project.trainer
        uris = job.package_uris if job.package_uris is not None else trainer.package_uris
        if not uris:
            uri = self.artifacts.package(image.tf_version)
            return (uri,), (image.tf_version, uri), {("package_uris", 0): ("trainer", "path")}
        path: FileKey = ("jobs", self.job_name) if job.package_uris else ("trainer",)
        return uris, None, {("package_uris", n): (*path, "package_uris", n) for n in range(len(uris))}


def _listed(names: list[str]) -> str:
    return f"Available: {', '.join(names)}." if names else "There is none of that kind."


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
