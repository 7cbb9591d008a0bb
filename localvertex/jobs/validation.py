"""Requests read strictly and checked, and what is wrong with them in the service's form.

Unknown fields and wrong values get the message every Google API gives for its JSON; what the checks find gets the
training service's own list: `List of found errors:\\t1.Field: job_spec.worker_pool_specs[0]...; Message: ...\\t`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf import json_format

from localvertex.http import ApiError, Json, bad_request, invalid
from localvertex.misread import error_of, misread
from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.checks import Context, check
from vertexrig.finding import Finding, Severity
from vertexrig.spec import descriptors, labels, messages
from vertexrig.spec.api_names import snake
from vertexrig.spec.strict import MOST_DEPTH, OUTPUT_ONLY

# Found by every Google API when it reads JSON, before a service sees the request.
_JSON_RULES = {"unknown-field", "unknown-enum-value", "wrong-type", "one-of", "legacy-ai-platform"}
_MACHINE_TYPE = 'Machine type "{machine}" is not supported.'
_DISK = "The machine type '{machine}' requires the boot disk type to be 'hyperdisk-balanced'."
_ALONE = frozenset(
    {"accelerator-on-machine", "disk-machine", "image-unknown", "machine-unknown", "machine-not-for-training"}
)
"""Rules whose words are the whole message: no list and no field is around them (vertex-ai-samples issue 213)."""
_RECORDED: dict[str, tuple[str, str]] = {
    "accelerator-pair": (
        "Both `accelerator_type` and `accelerator_count` should be specified or none.",
        "machineSpec.acceleratorType",
    ),
    "accelerator-on-machine": ('Accelerator "{accelerator}" is not supported for machine type "{machine}"', ""),
    "machine-unknown": (_MACHINE_TYPE, ""),
    "machine-not-for-training": (_MACHINE_TYPE, ""),
    "disk-machine": (_DISK, ""),
    # A readme has the sentence without the name (index id 55435619358); its quotes are those of a machine type's.
    "image-unknown": ('Image "{image}" is not supported.', ""),
    "chief-replicas": ("Replica count for master worker pool ({pools}[0].replica_count) should be 1.", ""),
    "machine-and-replicas": ("Both or none of `machine_spec` and `replica_count` should be specified.", ""),
    "env-value": ("Required field is not set.", ""),
    "env-twice": ("EnvVar names must be unique.", ""),
    "args-length": ("Container args should contain less than 100k characters", ""),  # from a report in another language
}
"""By rule: what public reports quote of the service, and the field below the pool that it names where ours is another."""

_BOUNDS, _BOUNDS_TEXT = "parameter-bounds", "Hyperparameter `min_value` should be strictly less than `max_value`."
"""The rule, and the service's words about it, whose field is the value spec. Bounds that are absent are 0."""

_UNREAD_INPUTS = (
    "Unable to parse `training_pipeline.training_task_inputs` into custom task `inputs` defined in the file: "
    "gs://google-cloud-aiplatform/schema/trainingjob/definition/custom_task_1.0.0.yaml"
)

_REGIONS = {"region-accelerator", "region-not-for-training"}
"""Findings about a region without an accelerator."""
_REFUSED = {"machine-unknown"}
"""Findings that the service refuses, though they are warnings where our list may be older than the service's."""

_POOLS = "worker_pool_specs"
# Anything may be before it: `trialJobSpec.` in a tuning job.
_POOL_PATH = re.compile(r"(?:.*\.)?workerPoolSpecs\[(?P<pool>\d+)\]")
_SYSTEM = "aiplatform.googleapis.com/"
_LABELS = (
    "There can be no more than 64 labels attached to a single resource. Label keys and values can only contain "
    "lowercase letters, numbers, dashes and underscores. Label keys must start with a letter or number, must be less "
    "than 64 characters in length, and must be less that 128 bytes in length when encoded in UTF-8. Label values must "
    "be less than 64 characters in length, and must be less that 128 bytes in length when encoded in UTF-8."
)


def found_errors(problems: Iterable[tuple[str, str]], ours: Iterable[str] = ()) -> ApiError:
    """Return the training service's 400 for pairs of field path and message, with our own explanations beside it."""
    found = list(problems)
    listed = "".join(f"\t{i}.Field: {path}; Message: {message}" for i, (path, message) in enumerate(found, 1))
    return _explained(f"List of found errors:{listed}\t", ours, found)


def _explained(message: str, ours: Iterable[str], problems: Sequence[tuple[str, str]] = ()) -> ApiError:
    """Return a 400 in the service's words, with its field violations (python-aiplatform issue 1684).

    A name that cannot be read has none (recordings of k8s-config-connector). What we know more is a detail, which clients
    print below them.
    """
    details = [{"@type": "type.googleapis.com/google.rpc.DebugInfo", "detail": text} for text in ours]
    violated = [one for one in problems if one[0] != "name"]
    return ApiError(400, message, details=[*([bad_request(violated)] if violated else []), *details])


def custom_job(body: Mapping[str, Any], region: str, *, checks: bool) -> tuple[Json, Json]:
    """Return a CustomJob as sent, as its outer fields and its canonical jobSpec; with `checks`, after what the checks find in it.

    Raises:
        ApiError: 400, in the service's words.
    """
    outer = _outer(body, "CustomJob", "custom_job", skip=("jobSpec",))
    # Proto3's JSON takes both names of a field.
    job = next((body[key] for key in ("jobSpec", "job_spec") if key in body), None)
    document = spec.from_data(whole_numbers(job if job is not None else {}), kind="CustomJobSpec")
    if job is not None and not isinstance(job, dict):
        raise error_of(misread(messages.message_class("CustomJob").DESCRIPTOR, {"jobSpec": job}, "custom_job"))
    _check_json(document, job or {}, "custom_job.job_spec")
    _refuse(document, "job_spec.", "custom_job.job_spec", region, outer, checks=checks)
    return outer, document.job


def tuning_job(body: Mapping[str, Any], region: str, *, checks: bool) -> Json:
    """Return a HyperparameterTuningJob as sent, canonical; see `custom_job` for `checks`.

    Raises:
        ApiError: 400, in the service's words.
    """
    outer = _outer(body, "HyperparameterTuningJob", "hyperparameter_tuning_job", skip=("studySpec", "trialJobSpec"))
    # Output-only fields are ignored in a request: clients send back what they got.
    sent = {key: value for key, value in body.items() if key not in OUTPUT_ONLY}
    document = spec.from_data(whole_numbers(sent), kind="HyperparameterTuningJob")
    _check_json(document, sent, "hyperparameter_tuning_job")
    _refuse(document, "", "hyperparameter_tuning_job", region, outer, checks=checks)
    return document.data


def training_inputs(inputs: Any, region: str, *, checks: bool) -> Json:
    """Return the `trainingTaskInputs` of a custom training pipeline, as a canonical CustomJobSpec; see `custom_job` for `checks`."""
    document = spec.from_data(whole_numbers(inputs), kind="CustomJobSpec") if isinstance(inputs, dict) else None
    # The service tells no more (generative-ai pull 2495, python-aiplatform issue 762). It does not read a text as a list of one.
    if (
        document is None
        or _has_text_for_list(inputs)
        or any(f.id in _JSON_RULES for f in document.findings if f.severity is Severity.ERROR)
    ):
        raise invalid(_UNREAD_INPUTS)
    _refuse(
        document,
        "training_task_inputs.",
        "training_pipeline.training_task_inputs",
        region,
        {"displayName": "-"},  # the display name is the pipeline's, which has been checked
        checks=checks,
    )
    return document.job


def _has_text_for_list(inputs: Mapping[str, Any]) -> bool:
    """Whether the command or the arguments of a program were sent as one text, which the YAML of gcloud may have."""
    pools = inputs.get("workerPoolSpecs") or inputs.get("worker_pool_specs")
    specs = ("containerSpec", "container_spec", "pythonPackageSpec", "python_package_spec")
    programs = (
        [pool.get(key) for pool in pools if isinstance(pool, dict) for key in specs] if isinstance(pools, list) else []
    )
    return any(
        isinstance(one.get(key), str) for one in programs if isinstance(one, dict) for key in ("command", "args")
    )


def whole_numbers(value: Any, depth: int = 0) -> Any:
    """Return JSON with 1.0 as 1, since a protobuf Struct knows doubles only; nothing else of the format tells them apart."""
    if depth > 3 * MOST_DEPTH:  # a message in a list inside a message takes three levels of JSON
        raise invalid("Invalid JSON payload received. The message is nested too deeply.")
    # Beyond 2**53 a double no longer holds every whole number.
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, dict):
        return {key: whole_numbers(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item, depth + 1) for item in value]
    return value


def _outer(body: Mapping[str, Any], kind: str, path: str, skip: tuple[str, ...]) -> Json:
    """Return the fields around the spec, by their JSON names, as strictly read as the rest."""
    names = {name: field.json_name for name, field in descriptors.message(kind).by_name.items()}
    unknown = [key for key in body if key not in names]
    if unknown:
        raise error_of([_unknown(key, path) for key in unknown])
    own = {names[key]: value for key, value in body.items() if names[key] not in OUTPUT_ONLY and names[key] not in skip}
    return {key: value for key, value in canonical(kind, own, path).items() if key not in skip}


def canonical(kind: str, data: Mapping[str, Any], place: str = "") -> Json:
    """Return JSON of a message in its canonical form; 400 for what is not the message. `place` is where it is in the request."""
    try:
        return messages.from_message(messages.to_message(kind, dict(data)))
    except (json_format.ParseError, ValueError, TypeError) as error:
        found = misread(messages.message_class(kind).DESCRIPTOR, data, place)
        raise (error_of(found) if found else invalid(f"Invalid JSON payload received. {error}")) from None


def _check_json(document: spec.Document, sent: Mapping[str, Any], json_path: str) -> None:
    """Raise what every Google API would for a JSON that is not the message, if it would."""
    broken = [f for f in document.findings if f.severity is Severity.ERROR and f.id in _JSON_RULES]
    if broken:
        found = misread(messages.message_class(document.kind).DESCRIPTOR, sent, json_path)
        raise error_of(found or [_json_message(finding, json_path) for finding in broken])


def _refuse(
    document: spec.Document, prefix: str, json_path: str, region: str, outer: Mapping[str, Any], *, checks: bool
) -> None:
    """Raise what the service would, if it would."""
    reading = [f for f in document.findings if f.severity is Severity.ERROR]
    if document.job.get("tensorboard") and not document.job.get("serviceAccount"):
        account = f"{json_path}.{snake(document.job_path)}service_account"
        raise invalid(f"{account} must be specified when uploading to TensorBoard")  # kubeflow/pipelines issue 7123
    problems = [*_outer_problems(outer)]
    problems += [(_field(f.path, prefix), f.message) for f in reading]
    found: list[Finding] = []
    # The checks take a document that could be read.
    if checks and not reading:
        found = [
            f
            for f in check(document, Context(load(), region=region))
            if f.severity is Severity.ERROR or f.id in _REFUSED or _has_wrong_name(document, f)
        ]
    alone = [f for f in found if f.id in _ALONE or _lacks_machine(document, f)]
    problems += [_recorded(document, f, prefix) for f in found if f not in alone]
    if not problems and not document.job.get("workerPoolSpecs"):
        problems.append((f"{prefix}{snake(document.job_path)}worker_pool_specs", "Worker pool specs are required."))
    if problems:
        raise found_errors(problems, [f.message for f in found if f.id in {*_RECORDED, _BOUNDS} and f not in alone])
    if alone:
        raise _explained(_recorded(document, alone[0], prefix)[1], [alone[0].message])


def _lacks_machine(document: spec.Document, finding: Finding) -> bool:
    """Whether a region lacks the accelerators that a machine type comes with: the service names the machine alone."""
    place = _POOL_PATH.match(finding.path) if finding.id in _REGIONS else None
    machine = load().machines.get(document.pools[int(place["pool"])].machine_type) if place else None
    return machine is not None and bool(machine.accelerators) and machine.family != "n1"  # to which they are added


def _has_wrong_name(document: spec.Document, finding: Finding) -> bool:
    """Whether a package's image cannot exist: no listed image has its framework, or those of its version have other names.

    An image of a version that is not listed may be newer than our list.
    """
    place = _POOL_PATH.match(finding.path) if finding.id == "image-unknown" else None
    pool = document.pools[int(place["pool"])] if place else None
    if pool is None or pool.python_package is None:
        return False
    framework, _, rest = pool.image.rpartition("/")[2].partition(":")[0].partition(".")
    listed = [image.name.split(".") for image in load().images]
    return all(name[0] != framework for name in listed) or any(name[1] == rest.partition(".")[0] for name in listed)


def _outer_problems(outer: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    if not outer.get("displayName"):
        yield "display_name", "Display name is required."
    yield from name_problems(outer)
    yield from label_problems(outer)


def name_problems(outer: Mapping[str, Any], path: str = "display_name") -> Iterable[tuple[str, str]]:
    """Return what is wrong with the length of a resource's display name, in the service's words about a job."""
    most = load().limits.integer("display_name.max_chars")
    if len(str(outer.get("displayName", ""))) > most:
        yield path, f"Display name must be at most {most} characters long."


def label_problems(outer: Mapping[str, Any], path: str = "labels") -> Iterable[tuple[str, str]]:
    """Return what is wrong with a resource's labels, in the service's words; those that the service adds are its own."""
    given = outer.get("labels")
    pairs = given.items() if isinstance(given, dict) else ()
    if any(labels.problems({key: one for key, one in pairs if not str(key).startswith(_SYSTEM)}, load().limits)):
        yield path, _LABELS


def _recorded(document: spec.Document, finding: Finding, prefix: str) -> tuple[str, str]:
    """Return field and message of a finding: the service's recorded words, where there are some, else our own."""
    if finding.id == _BOUNDS:
        return _field(finding.path.removesuffix(".minValue"), prefix), _BOUNDS_TEXT
    words, field = (_MACHINE_TYPE, "") if _lacks_machine(document, finding) else _RECORDED.get(finding.id, ("", ""))
    place = _POOL_PATH.match(finding.path)
    if not words or place is None:
        return _field(finding.path, prefix), finding.message
    pool = document.pools[int(place["pool"])]
    said = words.format(machine=pool.machine_type, accelerator=pool.accelerator_type, image=pool.image, pools=_POOLS)
    path = f"{place[0]}.{field}" if field else finding.path
    return prefix + snake(path), said


def _field(path: str, prefix: str) -> str:
    """Return the field that a violation names: one of a study is below its tuning job (sidoncloud/gcp-mlops, 2023-08-05)."""
    return f"hyperparameter_tuning_job.{snake(path)}" if path.startswith("studySpec") else prefix + snake(path)


def _unknown(name: str, where: str) -> tuple[str, str]:
    return where, f"Invalid JSON payload received. Unknown name \"{name}\" at '{where}': Cannot find field."


def _json_message(finding: Finding, json_path: str) -> tuple[str, str]:
    """Return the field of a violation and its description, which is the service's message."""
    path = snake(finding.path)
    holder, _, _ = path.rpartition(".")
    if finding.id == "unknown-field":
        return _unknown(finding.path.rpartition(".")[2], f"{json_path}.{holder}" if holder else json_path)
    if finding.id == "one-of":
        where = f"{json_path}.{holder}" if holder else json_path
        return where, f"Invalid value at '{where}' (oneof), {finding.message}"
    return f"{json_path}.{path}", f"Invalid value at '{json_path}.{path}': {finding.message}"
