"""Any job of Vertex AI as entries of a project file that render to the same job.

The entries are written with the keys of the project file as far as they go. What the templates then render is compared with the job, and
what differs is added under `spec:`; what cannot be expressed is an error, never a silent difference.
"""

from __future__ import annotations

import copy
import dataclasses
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vertexrig import spec
from vertexrig.bring import edit
from vertexrig.bring.edit import Entry, literal, metrics_of
from vertexrig.errors import UsageError
from vertexrig.finding import Severity
from vertexrig.project import config
from vertexrig.project.arguments import scalar_text
from vertexrig.project.model import Job, Sweep
from vertexrig.render.renderer import Rendered
from vertexrig.schema.typed import hints
from vertexrig.spec.api_names import BUCKET, camel, snake_keys
from vertexrig.spec.document import Document, Pool
from vertexrig.spec.labels import users
from vertexrig.spec.masking import secret_in
from vertexrig.spec.parameters import fill_bounds
from vertexrig.text import kind_of, quoted
from vertexrig.workspace import Workspace
from vertexrig.yamltext import flow

_NAME = re.compile(r"projects/([^/]+)/locations/([^/]+)/(?:customJobs|hyperparameterTuningJobs)/[^/]+")
_FLAG = re.compile(r"--([A-Za-z_][A-Za-z0-9_.-]*)(?:=(.*))?", re.DOTALL)
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_WRAPPERS = ("customJob", "hyperparameterTuningJob")
_SCHEDULING = ("timeout", "strategy", "max_wait_duration", "restart_job_on_worker_restart", "disable_retries")
_OF_A_JOB = tuple(
    "network reserved_ip_ranges psc_interface_config service_account tensorboard enable_web_access"
    " enable_dashboard_access persistent_resource_id".split()
)
_OF_A_SWEEP = ("max_trial_count", "parallel_trial_count", "max_failed_trial_count")
_MACHINE = tuple(
    "machine_type accelerator_type accelerator_count gpu_partition_size tpu_topology reservation_affinity".split()
)
_ROLES = ("worker", "ps", "reduction_server", "evaluator")
DISPLAY, LABELS, KEY = "displayName", "labels", "kmsKeyName"


@dataclass(frozen=True)
class Wanted:
    """The job that the entries must render to.

    Args:
        document: Its spec, read strictly.
        display_name: As the console shows it.
        labels: Of the job.
        kms_key_name: The key it is encrypted with, "" without one.
        project: Project id or number, "" if the description does not say.
        region: Region, "" if the description does not say.
        source: Where it comes from, for a comment.
        notes: What of the description was left out, or has another meaning here.
        placeholders: Keys of a job that the description does not give, and whose values here are placeholders: they are
            left to the project's trainer.
    """

    document: Document
    display_name: str
    labels: Mapping[str, str]
    kms_key_name: str = ""
    project: str = ""
    region: str = ""
    source: str = ""
    notes: tuple[str, ...] = ()
    placeholders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pulled:
    """Entries of a project file.

    Args:
        name: The job or sweep that renders to what was wanted.
        before: The project file without them; empty for a new one.
        text: The whole project file with them.
        entries: Each of them.
        notes: What a reader should know.
    """

    name: str
    before: str
    text: str
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()


def resource(text: str, file: str) -> dict[str, Any]:
    """Return a CustomJob or HyperparameterTuningJob from a description: YAML or JSON as gcloud and the API print it, or the SDK's.

    Raises:
        UsageError: It describes something else.
    """
    data = edit.data_of(text, file)
    for wrapper in _WRAPPERS:
        inner = data.get(wrapper)
        if isinstance(inner, Mapping):
            data = dict(inner)
    found = {camel(str(key)): value for key, value in data.items()}
    for key in ("labels", "encryptionSpec"):
        if not isinstance(found.get(key) or {}, Mapping):
            raise UsageError(f"{file}: {key} is {kind_of(found[key])}, {quoted(found[key])}; a mapping belongs there")
    if isinstance(found.get("jobSpec"), Mapping):
        return found
    if isinstance(found.get("studySpec"), Mapping) and isinstance(found.get("trialJobSpec"), Mapping):
        return found
    keys = ", ".join(list(map(str, data))[:8]) or "nothing"
    raise UsageError(
        f"{file} describes no job: it has {keys}, and a CustomJob has jobSpec, a HyperparameterTuningJob studySpec and "
        f"trialJobSpec; a file for gcloud's --config is read by: vertexrig convert {file}"
    )


def wanted(data: Mapping[str, Any], source: str) -> Wanted:
    """Return the job of a description, as `resource` gives it or the service describes it; `source` is where it comes from."""
    tuning = "studySpec" in data
    keys = ("studySpec", "maxTrialCount", "parallelTrialCount", "maxFailedTrialCount", "trialJobSpec")
    body = {key: data[key] for key in keys if key in data} if tuning else data["jobSpec"]
    document = spec.from_data(body, kind="HyperparameterTuningJob" if tuning else "CustomJobSpec", file=source)
    fill_bounds(document.study)
    match = _NAME.fullmatch(str(data.get("name", "")))
    return Wanted(
        document,
        str(data.get("displayName", "")),
        users(data.get("labels") or {}),
        str((data.get("encryptionSpec") or {}).get("kmsKeyName", "")),
        match[1] if match else "",
        match[2] if match else "",
        source,
        refused(document),
    )


def refused(document: Document) -> tuple[str, ...]:
    """Return what the strict reading left out of a document."""
    wrong = [finding for finding in document.findings if finding.severity is Severity.ERROR]
    kept = "placeholder"  # its text stays in the job
    return tuple(
        f"{'' if finding.id == kept else 'left out: '}{finding.path or 'the file'}: {finding.message}"
        for finding in wrong
    )


def entry_name(display_name: str) -> str:
    """Return a name for the project file, of a display name with any characters."""
    name = re.sub(r"[^a-z0-9_-]+", "-", display_name.lower()).strip("-_")[:57].rstrip("-_")
    return name or "pulled"


def pulled(job: Wanted, name: str, text: str, file: Path) -> Pulled:
    """Return the entries of a job in a project file.

    Args:
        job: The job.
        name: What it is called there.
        text: The project file; empty for a new one.
        file: Its path, which relative paths in it start from.

    Raises:
        UsageError: The name is taken, or the job has something that no entry can express.
    """
    if not job.document.pools:
        why = "; ".join(job.notes)
        raise UsageError(
            f"{job.source} has no workerPoolSpecs, so there is no job to write{f' ({why})' if why else ''}"
        )
    for pool in job.document.pools:
        if not pool.program and (pool.index == 0 or not pool.empty):
            raise UsageError(
                f"{job.source}: worker pool {pool.index} has no pythonPackageSpec or containerSpec, so it runs nothing"
            )
    job = _without_secrets(job)
    before = text or _head(job)
    jobs, sweep = _job(job, name), None
    if job.document.study is not None:
        trial = f"{name}-trial"
        sweep, jobs = _sweep(job, name, trial), replace(jobs, name=trial)
    entries: tuple[Entry, ...] = (jobs,) if sweep is None else (jobs, sweep)
    rendered = _rendered(before, entries, file, name)
    extra = _overlay(rendered.document.data, job.document.data)
    if extra:
        entries = tuple(_with_spec(entry, extra) for entry in entries)
        rendered = _rendered(before, entries, file, name)
    _must_be_equal(rendered, job)
    made, entries = before, tuple(_without(entry, job.placeholders) for entry in entries)
    for entry in entries:
        made = edit.added(made, entry, str(file))
    labels = {key: value for key, value in rendered.view.labels.items() if job.labels.get(key) != value}
    notes = [f"the project's labels are added: {', '.join(labels)}"] if labels else []
    return Pulled(name, text, made, entries, (*job.notes, *notes))


def _without_secrets(job: Wanted) -> Wanted:
    """Return the job without variables that hold a secret in plain text: a project file is for version control."""
    data, notes = copy.deepcopy(dict(job.document.data)), []
    for pool in job.document.pools:
        for number, row in reversed(list(enumerate(pool.env))):
            name, path = str(row.get("name", "")), f"{pool.program_path}.env[{number}]"
            if f"{path}.value" in job.document.placeholders or not secret_in(str(row.get("value", "")), name):
                continue
            pools = data.get("trialJobSpec", data)["workerPoolSpecs"]
            del pools[pool.index]["containerSpec" if pool.container is not None else "pythonPackageSpec"]["env"][number]
            notes.append(
                f"left out: {path}: {name} holds a secret in plain text. Keep it in Secret Manager (gcloud secrets create {name}), "
                "and let the program read it there as the job's service account"
            )
    if not notes:
        return job
    document = spec.from_data(data, kind=job.document.kind, file=job.source)
    return replace(job, document=document, notes=(*job.notes, *notes))


def _without(entry: Entry, keys: Sequence[str]) -> Entry:
    """Return the entry without some keys, in its roles too."""
    if entry.group != "jobs" or not keys:
        return entry
    data = {key: value for key, value in entry.data.items() if key not in keys}
    roles = {
        role: {key: value for key, value in data[role].items() if key not in keys} for role in _ROLES if role in data
    }
    return replace(entry, data={**data, **roles})


def _head(job: Wanted) -> str:
    """Return the top of a new project file."""
    output = job.document.output_folder
    # an id is the default of a variable; any other text came with the job, and could mean something else without quotes
    plain = re.fullmatch(r"[a-z0-9.:-]*", job.project)
    project = f"${{PROJECT:-{job.project or 'my-project'}}}" if plain else flow(literal(job.project))
    lines = [f"project: {project}", f"region: {flow(job.region or 'us-central1')}"]
    bucket = "/".join(output.split("/")[:3])
    # a job without an output folder gets no bucket, which would give it one
    if re.fullmatch(BUCKET.pattern, bucket):
        lines.append(f"bucket: {flow(bucket)}")
    return "\n".join(lines) + "\n"


def _job(job: Wanted, name: str) -> Entry:
    """Return the job, with the keys of the project file as far as they go."""
    document = job.document
    first, *others = document.pools
    data: dict[str, Any] = {"topology": _topology(document.pools), **_pool(first)}
    program = first.python_package
    if program is not None:
        data |= {key: value for key, value in (("module", first.module), ("package_uris", first.package_uris)) if value}
    third = "reduction_server" if len(others) > 1 and others[1].named_reduction_server else "ps"
    for role, pool in zip(("worker", third, "evaluator"), others, strict=False):
        if not pool.empty:
            data[role] = _pool(pool, role=role)
    own = snake_keys(_specified({key: value for key, value in document.job.items() if key != "workerPoolSpecs"}))
    data |= {key: own["scheduling"][key] for key in _SCHEDULING if key in own.get("scheduling", {})}
    data |= {key: own[key] for key in _OF_A_JOB if own.get(key) not in (None, "", [], {})}
    if document.output_folder:
        data["base_output_directory"] = document.job["baseOutputDirectory"]["outputUriPrefix"]
    if document.study is None:
        data |= _outside(job, name)
    return Entry("jobs", name, literal(_known(Job, data)), {(): [f"from {job.source}"]} if job.source else {})


def _outside(job: Wanted, name: str) -> dict[str, Any]:
    """Return what the API keeps outside the spec."""
    found: dict[str, Any] = {"display_name": job.display_name} if job.display_name not in ("", name) else {}
    found |= {"labels": dict(job.labels)} if job.labels else {}
    return found | ({"kms_key_name": job.kms_key_name} if job.kms_key_name else {})


_UNKNOWN = object()


def _known(hint: Any, value: Any) -> Any:
    """Return the part of a value that the project file has keys for, by the type of its field; `_overlay` adds the rest."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [
            one
            for one in typing.get_args(hint)
            if dataclasses.is_dataclass(one) or typing.get_origin(one) is typing.Literal
        ]
        fitting = [one for one in kinds if dataclasses.is_dataclass(one) == isinstance(value, Mapping)]
        return _known(fitting[0], value) if fitting else value
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        fields = hints(typing.cast(type, hint))
        found = {key: _known(fields[key], item) for key, item in value.items() if key in fields}
        return {key: item for key, item in found.items() if item is not _UNKNOWN}
    inner = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return value if value in inner else _UNKNOWN
    if isinstance(value, list) and inner:
        return [item for one in value if (item := _known(inner[0], one)) is not _UNKNOWN]
    if isinstance(value, Mapping) and len(inner) == 2 and dataclasses.is_dataclass(inner[1]):
        return {key: _known(inner[1], item) for key, item in value.items()}
    return value


def _specified(data: Any) -> Any:
    """Return plain data without `..._UNSPECIFIED` enum values, which the project file does not have."""
    if isinstance(data, Mapping):
        return {key: _specified(value) for key, value in data.items() if not str(value).endswith("_UNSPECIFIED")}
    return [_specified(value) for value in data] if isinstance(data, list) else data


def _sweep(job: Wanted, name: str, trial: str) -> Entry:
    document = job.document
    study = _specified(dict(document.study or {}))
    parameters = {}
    for row in study.get("parameters", ()):
        settings = snake_keys(row)
        parameters[str(settings.pop("parameter_id", ""))] = settings
    others = {key: value for key, value in snake_keys(study).items() if key not in ("metrics", "parameters")}
    data: dict[str, Any] = {"job": trial}
    outer = snake_keys({key: value for key, value in document.data.items() if key not in ("studySpec", "trialJobSpec")})
    data |= {key: outer[key] for key in _OF_A_SWEEP if key in outer}
    data["study"] = {"metrics": metrics_of(study), "parameters": parameters, **others}
    data = _known(Sweep, {**data, **_outside(job, name)})
    return Entry("sweeps", name, literal(data), {(): [f"from {job.source}"]} if job.source else {})


def _topology(pools: Sequence[Pool]) -> str:
    first = pools[0]
    if len(pools) > 2 and not pools[2].empty and not pools[2].named_reduction_server:
        return "parameter-server"
    if len(pools) > 1:
        return "multi-worker"
    if first.tpu_topology or first.accelerator_type.startswith("TPU") or first.machine_type == "cloud-tpu":
        return "tpu"
    return "gpu" if first.accelerator_type else "cpu"


def _pool(pool: Pool, role: str = "") -> dict[str, Any]:
    """Return a pool's keys: its machine and its program."""
    machine, disk = snake_keys(_specified(pool.machine)), pool.disk
    found: dict[str, Any] = {key: machine[key] for key in _MACHINE if machine.get(key) not in (None, "", 0)}
    if role:
        found["replica_count"] = pool.replica_count
    found |= {"boot_disk_type": disk["bootDiskType"]} if disk.get("bootDiskType") else {}
    found |= {"boot_disk_size_gb": disk["bootDiskSizeGb"]} if disk.get("bootDiskSizeGb") else {}
    if pool.python_package is not None:
        found["image"] = pool.image
    elif pool.container is not None:
        found["container"] = {"image_uri": pool.image}
        found["container"] |= {"command": pool.command} if pool.command else {}
    # a role without args would inherit those of the job's first pool
    if pool.args or role:
        found["args"] = arguments(pool.args)
    # a mapping cannot hold a name twice; such a list is laid over under spec:
    names = [str(row.get("name")) for row in pool.env]
    if names and len(set(names)) == len(names):
        found["env"] = {str(row["name"]): str(row.get("value", "")) for row in pool.env}
    if pool.data.get("nfsMounts") and not role:
        found["nfs_mounts"] = snake_keys(pool.data["nfsMounts"])
    return found


def arguments(args: Sequence[str]) -> dict[str, Any] | list[str]:
    """Arguments as the project file writes them: a mapping if each is `--name=value` or `--name`, and no name is there twice."""
    found: dict[str, Any] = {}
    for word in args:
        match = _FLAG.fullmatch(word)
        if match is None or match[1] in found:
            return list(args)
        found[match[1]] = _value(match[2])
    return found


def _value(text: str | None) -> Any:
    """Return a text as the number or boolean that is written the same way, or as it is."""
    if text in ("true", "false"):
        return text == "true"
    if text is None or not _NUMBER.fullmatch(text):
        return text
    number = float(text) if "." in text else int(text)
    # 0.10 and 007 stay texts: as numbers they would be written 0.1 and 7
    return number if scalar_text(number) == text else text


def _rendered(text: str, entries: Sequence[Entry], file: Path, name: str) -> Rendered:
    for entry in entries:
        text = edit.added(text, entry, str(file))
    loaded = config.loads(text.removeprefix("\ufeff"), file=file)
    return Workspace(loaded).renderer.render(name)


def _overlay(base: Any, want: Any) -> Any:
    """Return what `render.merge` turns `base` into `want` with."""
    if isinstance(base, Mapping) and isinstance(want, Mapping):
        changed = {key: _overlay(base.get(key), value) for key, value in want.items() if base.get(key) != value}
        return {**changed, **{key: None for key in base if key not in want}}
    # merging lists cannot take an item away, so a shorter list is written whole
    lists = isinstance(base, list) and isinstance(want, list) and len(base) <= len(want)
    if lists and all(isinstance(item, Mapping) for item in [*base, *want]):
        return [_overlay(base[i], item) if i < len(base) else item for i, item in enumerate(want)]
    return want


def _with_spec(entry: Entry, extra: Mapping[str, Any]) -> Entry:
    """Return the entry with what belongs to it under `spec:`."""
    inner = extra.get("trialJobSpec")
    own = {key: value for key, value in extra.items() if key != "trialJobSpec"}
    if entry.group == "jobs" and inner is not None:
        own = dict(inner)
    elif entry.group == "jobs" and "studySpec" in extra:
        own = {}
    if not own:
        return entry
    comments = {**entry.comments, ("spec",): ["what no other key of the project file expresses"]}
    return replace(entry, data={**entry.data, "spec": literal(own)}, comments=comments)


def _must_be_equal(rendered: Rendered, job: Wanted) -> None:
    """Raise UsageError if the entries render to another job than the wanted one."""
    view = rendered.view
    found = _paths(rendered.document.data, job.document.data, "")
    if job.display_name and view.display_name != job.display_name:
        found.append(DISPLAY)
    found += [f"{LABELS}.{key}" for key, value in job.labels.items() if view.labels.get(key) != value]
    if (view.kms_key_name or "") != job.kms_key_name:
        found.append(KEY)
    if found:
        raise UsageError(f"{job.source}: the project file cannot express {', '.join(found[:5])} of this job")


def _paths(one: Any, other: Any, path: str) -> list[str]:
    """Return the paths at which two plain values differ."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        keys = [*one, *(key for key in other if key not in one)]
        return [found for key in keys for found in _paths(one.get(key), other.get(key), f"{path}.{key}".lstrip("."))]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [
            found for i, (a, b) in enumerate(zip(one, other, strict=True)) for found in _paths(a, b, f"{path}[{i}]")
        ]
    # 1 equals True in Python, but not in YAML; 1 and 1.0 are the same number in both
    return [] if (one == other and type(one) is type(other)) or (one == other and not isinstance(one, bool)) else [path]
