"""Files that describe jobs in other ways, read as the job they mean: YAML for gcloud's `--config`, and AI Platform's `trainingInput`.

Source of the legacy fields: TrainingInput and HyperparameterSpec of the AI Platform Training API (ml.googleapis.com, v1), and
configuration files that people published, read 2026-11-21. What is known of its scale tiers and machine types is in `vertexrig.catalog.legacy`; the sizes
that no source names are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vertexrig import spec, yamltext
from vertexrig.bring.pull import Wanted, refused
from vertexrig.catalog import Catalog
from vertexrig.catalog.legacy import MACHINES, TIERS
from vertexrig.errors import UsageError, did_you_mean
from vertexrig.project.resolve import scalar_text
from vertexrig.spec.api_names import camel, camel_keys
from vertexrig.spec.document import Document
from vertexrig.spec.labels import users
from vertexrig.spec.parameters import fill_bounds
from vertexrig.spec.strict import OUTPUT_ONLY
from vertexrig.text import kind_of, quoted

_CUSTOM = "CUSTOM"
"""The scale tier whose machines the file names."""
_MACHINE = "n1-standard-4"
"""Where neither the file nor the user names one: what `init` writes."""
_POOLS = (
    ("worker", "workerType", "workerCount", "workerConfig"),
    ("parameter server", "parameterServerType", "parameterServerCount", "parameterServerConfig"),
    ("evaluator", "evaluatorType", "evaluatorCount", "evaluatorConfig"),
)
_READ = {
    "scaleTier", "masterType", "masterConfig", "packageUris", "pythonModule", "args", "hyperparameters", "region", "jobDir",
    "runtimeVersion", "scheduling", "network", "serviceAccount", "encryptionConfig", *(key for row in _POOLS for key in row[1:]),
}  # fmt: skip
_DROPPED = {
    "pythonVersion": "the image decides it",
    "useChiefInTfConfig": "Vertex AI always names it chief",
    "enableWebAccess": "write enable_web_access",
}
_OF_A_STUDY = frozenset(
    "goal params maxTrials maxParallelTrials maxFailedTrials hyperparameterMetricTag algorithm"
    " enableTrialEarlyStopping".split()
)
_Shape = Mapping[str, Any] | list[Any] | type | None
_REPLICA = {
    "acceleratorConfig": {"count": int},
    "containerCommand": list,
    "containerArgs": list,
    "diskConfig": {"bootDiskSizeGb": int},
}
_OF_A_REPLICA = {"imageUri", *_REPLICA}
_SHAPE: Mapping[str, _Shape] = {
    "args": list,
    "packageUris": list,
    "scheduling": {},
    "encryptionConfig": {},
    "masterConfig": _REPLICA,
    **dict.fromkeys((row[2] for row in _POOLS), int),
    **dict.fromkeys((row[3] for row in _POOLS), _REPLICA),
    "hyperparameters": {
        "maxTrials": int,
        "maxParallelTrials": int,
        "maxFailedTrials": int,
        "params": [{"categoricalValues": list, "discreteValues": list}],
    },
}
"""What the keys of a TrainingInput hold: a mapping with these keys, a list, a whole number; any other key holds a text."""
_PLACEHOLDER = {
    "executorImageUri": "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest",
    "packageUris": ["gs://bucket/package.tar.gz"],
    "pythonModule": "trainer.task",
}
_KEY_OF = {"executorImageUri": "image", "packageUris": "package_uris", "pythonModule": "module"}


@dataclass(frozen=True)
class Converted:
    """A file as the job it means.

    Args:
        job: The job; what the file does not say of its program is filled in with placeholders.
        absent: Keys of a job that hold placeholders: the project's trainer says them.
    """

    job: Wanted
    absent: tuple[str, ...] = ()


@dataclass
class _Reading:
    """What is found on the way through a legacy file."""

    file: str
    catalog: Catalog
    machine_type: str | None
    notes: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


def convert(text: str, file: str, catalog: Catalog, *, machine_type: str | None = None) -> Converted:
    """Return a file as the job it means.

    Args:
        text: YAML or JSON.
        file: Its name.
        catalog: For images by TensorFlow version.
        machine_type: For AI Platform's own machine types and scale tiers.

    Raises:
        UsageError: It describes no job, or one that Vertex AI cannot have.
    """
    top = _top(text, file)
    data, around = _unwrapped(top)
    legacy = data.get("trainingInput") or data.get("training_input")
    if isinstance(legacy, Mapping):
        return _legacy(legacy, _Reading(file, catalog, machine_type))
    # a TrainingInput without its wrapper, as some files have it
    if not data.keys().isdisjoint({"scaleTier", "masterType", "hyperparameters"}):
        return _legacy(data, _Reading(file, catalog, machine_type))
    notes = _texts(data)
    # the text as it is, where that is possible: findings then have its lines
    document = spec.parse(text, file=file) if data is top and not notes else spec.from_data(data, file=file)
    if any(finding.id == "not-vertex" for finding in document.findings) or not document.data:
        why = next((finding.message for finding in document.findings), "it is empty")
        raise UsageError(f"{file} describes no job: {why}")
    return _gcloud(document, file, around, notes)


_AROUND = ("displayName", "labels", "encryptionSpec")
"""What a CustomJob has outside its spec."""


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
    """Return the spec, and what is around it: in a CustomJob, as REST and Kubeflow Pipelines write it, or a list of worker pools."""
    if isinstance(data, list):
        return {"workerPoolSpecs": data}, {}
    inner = next((data[key] for key in ("jobSpec", "job_spec") if isinstance(data.get(key), dict)), None)
    if inner is None:
        return data, {}
    return inner, {name: value for key, value in data.items() if (name := camel(str(key))) in _AROUND}


def _texts(data: dict[str, Any]) -> tuple[str, ...]:
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
    return tuple(notes)


_PROGRAMS = ("containerSpec", "pythonPackageSpec")


def _gcloud(document: Document, file: str, around: Mapping[str, Any], texts: tuple[str, ...]) -> Converted:
    """Return a file for gcloud's --config: the spec, and for a sweep, or in a CustomJob, what the API keeps outside it."""
    tuning = document.kind == "HyperparameterTuningJob"
    fill_bounds(document.study)
    outside = {"displayName", "labels", "encryptionSpec", *OUTPUT_ONLY}
    inner = {key: value for key, value in document.data.items() if not tuning or key not in outside}
    beside = document.data if tuning else around
    name, labels = str(beside.get("displayName", "")), beside.get("labels") or {}
    encryption = beside.get("encryptionSpec") or {}
    key = str(encryption.get("kmsKeyName") or encryption.get("kms_key_name") or "")
    job, absent = inner, []
    counts = []
    if tuning:
        for field, option in (("maxTrialCount", "--max-trial-count"), ("parallelTrialCount", "--parallel-trial-count")):
            if field not in inner:
                inner[field] = 1
                counts.append(f"{field} is not in the file: gcloud takes it from {option}, and 1 without it")
        inner["trialJobSpec"] = job = dict(inner.get("trialJobSpec") or {})
    pools = [dict(pool) for pool in job.get("workerPoolSpecs") or ()]
    for pool in pools:
        if pool.get("machineSpec") and not pool.get("pythonPackageSpec") and not pool.get("containerSpec"):
            pool["pythonPackageSpec"] = dict(_PLACEHOLDER)
            absent = list(_KEY_OF.values())
    job["workerPoolSpecs"] = pools
    notes = [*texts, *counts, *refused(document)]
    if absent:
        notes.append(_TRAINER.format("no program"))
    whole = replace(document, data=inner, findings=())
    return Converted(Wanted(whole, name, users(labels), key, source=Path(file).name, notes=tuple(notes)), tuple(absent))


_TRAINER = "the file names {}: the project's trainer is used"


def _legacy(data: Mapping[str, Any], reading: _Reading) -> Converted:
    """AI Platform's TrainingInput."""
    given = _shaped(camel_keys(data), _SHAPE, reading.file, "")
    for key in given.keys() - _READ:
        reading.notes.append(f"left out: {key}: {_DROPPED.get(key, 'Vertex AI has nothing like it')}")
    for key in ("masterConfig", *(row[3] for row in _POOLS)):
        for inner in (name for name in given.get(key) or {} if name not in _OF_A_REPLICA):
            reading.notes.append(f"left out: {key}.{inner}: Vertex AI has nothing like it")
    program = _program(given, reading)
    pools = [_with_image(pool, given, reading) for pool in _pools(given, program, reading)]
    job: dict[str, Any] = {"workerPoolSpecs": pools}
    limits = given.get("scheduling") or {}
    if limits.get("maxRunningTime"):
        job["scheduling"] = {"timeout": str(limits["maxRunningTime"])}
    if limits.get("maxWaitTime"):
        reading.notes.append("left out: scheduling.maxWaitTime: Vertex AI has it for FLEX_START only")
    job |= {key: given[key] for key in ("network", "serviceAccount") if given.get(key)}
    study = given.get("hyperparameters")
    body = {**_study(study, reading), "trialJobSpec": job} if study else job
    document = spec.from_data(
        body, kind="HyperparameterTuningJob" if "trialJobSpec" in body else "CustomJobSpec", file=reading.file
    )
    notes = (*reading.notes, *refused(document))
    key = str((given.get("encryptionConfig") or {}).get("kmsKeyName", ""))
    wanted = Wanted(
        document, "", {}, key, region=str(given.get("region", "")), source=Path(reading.file).name, notes=notes
    )
    return Converted(wanted, tuple(reading.absent))


def _shaped(value: Any, shape: _Shape, file: str, path: str) -> Any:
    """Return a value that is what `_SHAPE` says of it, with whole numbers as such; UsageError if it is something else."""
    if value is None or shape is None:
        return value
    if shape is int:
        try:
            return int(value)  # JSON of the API has such numbers as text, too
        except (TypeError, ValueError):
            raise UsageError(
                f"{file}: {path} is {kind_of(value)}, {quoted(value)}; a whole number belongs there"
            ) from None
    if isinstance(shape, Mapping):
        if isinstance(value, Mapping):
            inner = {key: f"{path}.{key}".lstrip(".") for key in value}
            return {key: _shaped(item, shape.get(key), file, inner[key]) for key, item in value.items()}
        belongs = "a mapping"
    else:
        if isinstance(value, list):
            of = shape[0] if isinstance(shape, list) else None
            return [_shaped(one, of, file, f"{path}[{i}]") for i, one in enumerate(value)]
        belongs = "a list"
    raise UsageError(f"{file}: {path} is {kind_of(value)}, {quoted(value)}; {belongs} belongs there")


def _with_image(pool: dict[str, Any], given: Mapping[str, Any], reading: _Reading) -> dict[str, Any]:
    """Return the pool with the image for GPUs, if it has some and its image follows from the runtime version."""
    kind = "gpu" if str((pool.get("machineSpec") or {}).get("acceleratorType", "")).startswith("NVIDIA") else "cpu"
    found = reading.catalog.find_short(f"tf-{given.get('runtimeVersion')}", kind)
    if kind == "cpu" or found is None or "pythonPackageSpec" not in pool:
        return pool
    image = found.uri(reading.catalog.host_for_region("us-central1"))
    return {**pool, "pythonPackageSpec": {**pool["pythonPackageSpec"], "executorImageUri": image}}


def _program(given: Mapping[str, Any], reading: _Reading) -> dict[str, Any]:
    """Return the Python package that a pool without an image runs."""
    args = [str(word) for word in given.get("args") or ()]
    if given.get("jobDir"):
        args.append(f"--job-dir={given['jobDir']}")  # AI Platform passed it to the trainer
    program: dict[str, Any] = {"packageUris": given.get("packageUris"), "pythonModule": given.get("pythonModule")}
    version = str(given.get("runtimeVersion") or "")
    image = reading.catalog.find_short(f"tf-{version}", "cpu") if version else None
    if version and image is None:
        reading.notes.append(
            f"runtimeVersion {version}: Vertex AI has no TensorFlow image of that version; the project's image is used"
        )
    program["executorImageUri"] = image.uri(reading.catalog.host_for_region("us-central1")) if image else None
    if not (given.get("masterConfig") or {}).get("imageUri"):
        missing = [key for key in _PLACEHOLDER if not program[key]]
        reading.absent += [_KEY_OF[key] for key in missing]
        if missing:
            words = {"image": "no usable runtimeVersion", "package_uris": "no packageUris", "module": "no pythonModule"}
            reading.notes.append(_TRAINER.format(", ".join(words[_KEY_OF[key]] for key in missing)))
    filled = {key: program[key] or filler for key, filler in _PLACEHOLDER.items()}
    return {**filled, "args": args} if args else filled


def _pools(given: Mapping[str, Any], program: Mapping[str, Any], reading: _Reading) -> list[dict[str, Any]]:
    tier = str(given.get("scaleTier") or _CUSTOM)
    if not any(given.get(key) for key in ("scaleTier", "masterType", "workerCount", "parameterServerCount")):
        given = {**given, "masterType": reading.machine_type or _MACHINE}
        reading.notes.append(
            f"the file has no scaleTier, which gcloud took from its command line: machine_type is {given['masterType']}; "
            "--machine-type names another"
        )
    given = _spelled_out(given, tier, reading)
    master = given.get("masterConfig") or {}
    kind = str(given.get("masterType") or "")
    if tier == "BASIC_TPU" or given.get("workerType") == "cloud_tpu" or kind == "cloud_tpu":
        source = given.get("workerConfig") if given.get("workerType") == "cloud_tpu" else master
        # the TPU of the tier BASIC_TPU
        chip = (source or {}).get("acceleratorConfig") or {"type": "TPU_V2", "count": 8}
        reading.notes.append(
            "a TPU job has one pool on Vertex AI, the TPU with its host; the master's machine is left out"
        )
        if (source or {}).get("diskConfig"):
            reading.notes.append("left out: diskConfig: the TPU's host keeps the disk it has by default")
        machine = {
            "machineType": "cloud-tpu",
            "acceleratorType": str(chip.get("type")),
            "acceleratorCount": chip.get("count", 8),
        }
        return [{"machineSpec": machine, "replicaCount": 1, **_runs(source or {}, program)}]
    if tier in TIERS and TIERS[tier].single:
        kind = tier
    machine = _machine(kind, master, "masterType", reading)
    pools = [{"machineSpec": machine, "replicaCount": 1, **_disk(master), **_runs(master, program)}]
    for words, type_key, count_key, config_key in _POOLS:
        count, config = given.get(count_key) or 0, given.get(config_key) or {}
        if not count:
            # a place is kept empty: the index of a pool says its role
            pools.append({})
            continue
        if not given.get(type_key):
            raise UsageError(
                f"{reading.file}: {count_key} is {count}, and {type_key} does not say on which machines the {words}s run"
            )
        machine = _machine(str(given[type_key]), config, type_key, reading)
        runs = _runs({**master, **config}, program)
        pools.append({"machineSpec": machine, "replicaCount": count, **_disk(config), **runs})
    while not pools[-1]:
        pools.pop()
    return pools


def _spelled_out(given: Mapping[str, Any], tier: str, reading: _Reading) -> Mapping[str, Any]:
    """Return the input with the machines of its scale tier, as CUSTOM would name them."""
    if tier == _CUSTOM or (tier in TIERS and TIERS[tier].single):
        return given
    found = TIERS.get(tier)
    custom = "write scaleTier: CUSTOM with masterType, workerType and workerCount, parameterServerType and parameterServerCount"
    if found is None:
        raise UsageError(f"{reading.file}: there is no scaleTier {tier}. {did_you_mean(tier, [_CUSTOM, *TIERS])}")
    if not found.input:
        raise UsageError(
            f"{reading.file}: scaleTier {tier} was {found.about}, and no source says how many of which; {custom}"
        )
    keys = dict(found.input)
    for key in [key for key in keys if key.endswith("Type")]:
        offered = _offered(str(keys[key]), reading.catalog)
        if offered != keys[key]:
            reading.notes.append(
                f"{tier}: {key} was {keys[key]}, which is not offered for training; {offered} is the next one up"
            )
        keys[key] = offered
    reading.notes.append(f"scaleTier {tier} is written out: {found.about} ({found.source})")
    return {**given, **keys}


def _offered(name: str, catalog: Catalog) -> str:
    """Return the machine, or the smallest of its family and kind that is offered for training and has at least its processors."""
    if name in catalog.machines:
        return name
    stem, _, vcpus = name.rpartition("-")
    larger = [int(own.rpartition("-")[2]) for own in catalog.machines if own.rpartition("-")[0] == stem]
    return f"{stem}-{min(size for size in larger if size >= int(vcpus))}"


def _machine(kind: str, config: Mapping[str, Any], key: str, reading: _Reading) -> dict[str, Any]:
    if not kind:
        raise UsageError(f"{reading.file}: {key} is missing; with scaleTier CUSTOM it names the machine")
    chip = config.get("acceleratorConfig") or {}
    legacy = MACHINES.get(kind) or TIERS.get(kind)
    if legacy is not None and reading.machine_type is None:
        raise UsageError(
            f"{reading.file}: {kind} is of AI Platform only: {legacy.about}, and no source says its size; name the Compute Engine "
            "machine that takes its place: --machine-type n1-standard-8"
        )
    gpus = chip
    if legacy is not None and legacy.accelerator and not chip:
        gpus = {"type": legacy.accelerator, "count": legacy.count}
    if gpus.get("type") == "NVIDIA_TESLA_K80":
        reading.notes.append(
            f"{kind} has NVIDIA_TESLA_K80, which Vertex AI no longer offers: choose another accelerator_type"
        )
    machine: dict[str, Any] = {"machineType": str(kind if legacy is None else reading.machine_type)}
    if gpus:
        machine |= {"acceleratorType": str(gpus.get("type")), "acceleratorCount": gpus.get("count") or 1}
    return machine


def _disk(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pool's boot disk, as far as the file gives one."""
    disk = config.get("diskConfig") or {}
    found = {key: disk[key] for key in ("bootDiskType", "bootDiskSizeGb") if disk.get(key)}
    return {"diskSpec": found} if found else {}


def _runs(config: Mapping[str, Any], program: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a pool runs: its image, or the package."""
    if not config.get("imageUri"):
        return {"pythonPackageSpec": dict(program)}
    words = {
        key: [str(word) for word in value]
        for key, value in (
            ("command", config.get("containerCommand")),
            ("args", config.get("containerArgs") or program.get("args")),
        )
        if value
    }
    return {"containerSpec": {"imageUri": str(config["imageUri"]), **words}}


def _study(given: Mapping[str, Any], reading: _Reading) -> dict[str, Any]:
    """HyperparameterSpec as the API of today writes it."""
    for key in given.keys() - _OF_A_STUDY:
        why = (
            "a study cannot be resumed; `vertexrig follow-up` makes the next one"
            if key == "resumePreviousJobId"
            else "Vertex AI has nothing like it"
        )
        reading.notes.append(f"left out: hyperparameters.{key}: {why}")
    metric = str(given.get("hyperparameterMetricTag") or "training/hptuning/metric")
    study: dict[str, Any] = {
        "metrics": [{"metricId": metric, "goal": str(given.get("goal") or "MAXIMIZE")}],
        "parameters": [_parameter(row or {}, reading) for row in given.get("params") or ()],
    }
    if given.get("algorithm") not in (None, "ALGORITHM_UNSPECIFIED"):
        study["algorithm"] = str(given["algorithm"])
    if given.get("enableTrialEarlyStopping"):
        study["medianAutomatedStoppingSpec"] = {"useElapsedDuration": False}
        reading.notes.append(
            "enableTrialEarlyStopping is written as median_automated_stopping_spec, the nearest of today's rules"
        )
    # both counts were 1 where AI Platform's file did not give them
    body: dict[str, Any] = {"studySpec": study, "maxTrialCount": given.get("maxTrials") or 1}
    body["parallelTrialCount"] = given.get("maxParallelTrials") or 1
    if given.get("maxFailedTrials"):
        body["maxFailedTrialCount"] = given["maxFailedTrials"]
    return body


def _parameter(row: Mapping[str, Any], reading: _Reading) -> dict[str, Any]:
    name, kind = str(row.get("parameterName", "")), str(row.get("type", ""))
    found: dict[str, Any] = {"parameterId": name}
    if kind in ("DOUBLE", "INTEGER"):
        number = int if kind == "INTEGER" else float
        try:
            bounds = {key: number(row[key]) for key in ("minValue", "maxValue")}
        except (KeyError, TypeError, ValueError):
            raise UsageError(f"{reading.file}: parameter {name!r} needs minValue and maxValue as numbers") from None
        found["integerValueSpec" if kind == "INTEGER" else "doubleValueSpec"] = bounds
    elif kind == "CATEGORICAL":
        found["categoricalValueSpec"] = {"values": [str(value) for value in row.get("categoricalValues") or ()]}
    elif kind == "DISCRETE":
        found["discreteValueSpec"] = {"values": list(row.get("discreteValues") or ())}
    else:
        raise UsageError(
            f"{reading.file}: parameter {name!r} has the type {kind!r}; choices: DOUBLE, INTEGER, CATEGORICAL, DISCRETE"
        )
    scale = str(row.get("scaleType") or "NONE")
    # scaleType is left unset for names (REST, ParameterSpec)
    return found if scale == "NONE" or kind == "CATEGORICAL" else {**found, "scaleType": scale}
