"""Job specs, read strictly: YAML or JSON to canonical data in the shape of Google's own messages.

The schema is google-cloud-aiplatform's (`vertexrig.spec.descriptors`). `gcloud ai custom-jobs create --config` sends unknown
keys and enum values to the service unchanged, so this is the first reader that refuses them. What gcloud accepts
and the service or SDK does not (a mapping where a list belongs) is accepted with a warning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from vertexrig import yamltext
from vertexrig.errors import nearest
from vertexrig.finding import Finding, Severity
from vertexrig.spec import descriptors, placeholders, strict
from vertexrig.spec.document import KINDS, Document, Kind
from vertexrig.text import is_shell, kind_of

_RENDER_FIRST = "render this first: fill the values in, then check the result"
_JOB_WRAPPERS = ("jobSpec", "job_spec")
_LEGACY_KEYS = {"trainingInput", "training_input", "scaleTier", "masterType", "hyperparameters"}


def parse(text: str, *, file: str = "", kind: Kind | None = None, for_gcloud: bool = True) -> Document:
    """Read YAML or JSON text strictly; whatever is wrong with it comes back as findings.

    Args:
        text: One YAML document, as `gcloud ai custom-jobs|hp-tuning-jobs create --config` takes it.
        file: Its name, for the findings.
        kind: What to take it for; by default its keys decide.
        for_gcloud: Whether it is a file that a person wrote for gcloud: it may be a template, no job at all, or be completed by flags.
            False for what was rendered here, in which `${X}` is a value.
    """
    try:
        return _from_reading(yamltext.read(text), file, kind, for_gcloud=for_gcloud)
    except yamltext.YamlError as error:
        broken = error
    # Only after the plain reading has failed: `"{{ x }}"` in quotes is YAML, and is found as a placeholder then.
    hidden_text, hidden = placeholders.hide(text) if for_gcloud else (text, [])
    if hidden_text != text:
        try:
            reading = yamltext.read(hidden_text)
        except yamltext.YamlError:
            line = next((n for n, row in enumerate(text.splitlines(), 1) if re.search(r"\{[{%]", row)), 1)
            message = "the file is a template, and not YAML before it is rendered"
            return _unread("placeholder", message, _RENDER_FIRST, file, kind, line)
        lines = {tuple(placeholders.shown(step, hidden) for step in path): n for path, n in reading.lines.items()}
        reading = yamltext.Reading(placeholders.shown(reading.data, hidden), lines, [])
        return _from_reading(reading, file, kind, for_gcloud=True)
    block = _block_near(text, broken.line or 1) if for_gcloud else 0
    if block:
        message = "a placeholder stands for whole lines, so the file is not YAML before it is rendered"
        return _unread("placeholder", message, _RENDER_FIRST, file, kind, block)
    source = re.search(_SOURCE, file)
    fix = (
        f"name a job's YAML or JSON, or a project file; --trainer FOLDER is for {source[0]} files"
        if source
        else broken.fix
    )
    return _unread("yaml-syntax", broken.message, fix, file, kind, broken.line)


def _unread(rule: str, message: str, fix: str, file: str, kind: Kind | None, line: int | None) -> Document:
    """Return the document of a text that is no mapping, with the one finding on it."""
    finding = strict.finding(rule, "", message, fix, file=file, line=line)
    return Document(kind or "CustomJobSpec", {}, (finding,), file)


_BLOCK = r"\s*(?:\$\{\w+\}|\$\w+)\s*(?:$|\w+:)"
_SOURCE = r"\.(?:py|sh)$"


def _block_near(text: str, line: int) -> int:
    """Return the line, at a mistake or next to it, in which a placeholder stands for whole lines; 0 if there is none."""
    rows = list(enumerate(text.splitlines(), 1))[max(line - 2, 0) : line + 1]
    return next((number for number, row in rows if re.match(_BLOCK, row)), 0)


def unreadable(file: str, reason: str) -> Finding:
    """Return the finding on a file that cannot be read, in addition to those of files that can."""
    return strict.finding("file-unreadable", "", reason, "name a file of YAML or JSON text", file=file)


def from_data(data: Any, *, kind: Kind | None = None, file: str = "") -> Document:
    """Read data as `parse` does that is already plain values (a REST body, a rendered job)."""
    return _from_reading(yamltext.Reading(data), file, kind, for_gcloud=False)


def _from_reading(reading: yamltext.Reading, file: str, kind: Kind | None, *, for_gcloud: bool) -> Document:
    data = reading.data
    if not isinstance(data, dict):
        return _not_a_mapping(data, file, kind)
    taken = kind or _sniff(data)
    root = descriptors.message(taken)
    reader = strict.Reader(reading, file, root, for_gcloud=for_gcloud)
    prefix: yamltext.FileKey = ()
    if for_gcloud and data and not _concerns(data, kind):
        reader.report("not-vertex", (next(iter(data)),), "", *_not_vertex(data))
        return Document(taken, {}, tuple(reader.findings), file, reader.lines)
    legacy = sorted(key for key in data if key in _LEGACY_KEYS)
    if legacy:
        reader.report(
            "legacy-ai-platform",
            (legacy[0],),
            legacy[0],
            f"{legacy[0]!r} is a key of AI Platform Training, which is retired; Vertex AI does not take it",
            "write workerPoolSpecs (custom job), or studySpec and trialJobSpec (tuning job)",
        )
        return Document(taken, {}, tuple(reader.findings), file, reader.lines)
    inner = next((key for key in _JOB_WRAPPERS if isinstance(data.get(key), dict)), None)
    if taken == "CustomJobSpec" and inner:
        reader.report(
            "custom-job-wrapper",
            (inner,),
            inner,
            f"the file is a CustomJob; gcloud --config takes a CustomJobSpec and would send it as {inner}.{inner}",
            f"move what is under {inner} to the top{_as_flags(data)}",
        )
        data, prefix = data[inner], (inner,)
    canonical = reader.message(data, root, prefix, "")
    reader.finish()
    found = tuple(reader.findings)
    document = Document(taken, canonical, found, file, reader.lines, reader.placeholders, reader.paths, for_gcloud)
    return _with_placeholders(document)


def _as_flags(data: Mapping[str, Any]) -> str:
    """Return the end of a fix: which flags of gcloud replace the keys around a CustomJobSpec."""
    keys = [key for key in data if key in strict.FLAGS]
    if not keys:
        return ""
    flags = dict.fromkeys(strict.FLAGS[key] for key in keys)
    return f"; give {' and '.join(flags)} to gcloud in place of {' and '.join(keys)}"


def _with_placeholders(document: Document) -> Document:
    """Return the document with one finding for all that is still to be filled in; a shell's own `$NAME` is left alone."""
    scripts = {
        f"{pool.program_path}.{key}["
        for pool in document.pools
        for key in ("command", "args")
        if any(map(is_shell, [*pool.command[:1], *pool.args[:1]]))
    }
    found = {
        path: names
        for path, names in document.placeholders.items()
        if not path.startswith(tuple(scripts)) or not all(name.startswith("$") for name in names)
    }
    if not found:
        return replace(document, placeholders={})
    # `{{trial.parameters.lr}}` in args is nothing to render: the rule argument-and-parameter reports it
    ids = {parameter.id for parameter in document.parameters if parameter.id}
    first: dict[str, str] = {}
    for path, names in sorted(found.items(), key=lambda item: document.lines.get(item[0], 0)):
        for name in names:
            if not (ids and ".args[" in path and placeholders.trial_values(name, ids)):
                first.setdefault(name, path)
    if not first:
        return replace(document, placeholders=found)
    shown = [f"{name} (line {document.line(path)})" if document.line(path) else name for name, path in first.items()]
    more = f", and {len(shown) - 6} more" if len(shown) > 6 else ""
    certain = any(placeholders.certain(name, path) for path, names in found.items() for name in names if name in first)
    noted = strict.finding(
        "placeholder",
        next(iter(first.values())),
        f"still to be filled in: {', '.join(shown[:6])}{more}",
        _RENDER_FIRST,
        file=document.file,
        line=document.line(next(iter(first.values()))),
        severity=None if certain else Severity.WARNING,
    )
    return replace(document, placeholders=found, findings=(*document.findings, noted))


def _not_a_mapping(data: Any, file: str, kind: Kind | None) -> Document:
    what = "empty" if data is None else kind_of(data)
    pools = isinstance(data, list) and data and isinstance(data[0], dict) and _POOL_KEYS & data[0].keys()
    fix = "write workerPoolSpecs: above the list, and give it two spaces" if pools else ""
    return _unread("yaml-syntax", f"the file is {what}; a job spec is a mapping", fix, file, kind, 1)


_POOL_KEYS = {"machineSpec", "machine_spec", "containerSpec", "container_spec", "pythonPackageSpec"}


def _concerns(data: Mapping[str, Any], kind: Kind | None) -> bool:
    """Whether any key of a file belongs to a job spec or the retired service, or resembles one where nothing else fits."""
    # other files have these, too
    common = frozenset() if kind and not looks_like(data)[0] else _COMMON
    stems = _stems(common)
    keys = [str(key) for key in data if key not in common]
    if any(key in _JOB_WRAPPERS or strict.stem(key) in stems for key in keys):
        return True
    root = descriptors.message("HyperparameterTuningJob")
    return not looks_like(data)[0] and any(strict.belongs(key, root, root)[0] for key in keys)


_COMMON = frozenset({"name", "state", "error", "models", "network", "labels"})


@cache
def _stems(without: frozenset[str]) -> frozenset[str]:
    """Return the stems of the keys at the top of a job spec."""
    names = {name for each in KINDS for name in descriptors.message(each).json_names if name not in without}
    return frozenset(map(strict.stem, names | _LEGACY_KEYS))


def _not_vertex(data: Mapping[str, Any]) -> tuple[str, str]:
    """Return the message for a file that is not a job spec, and what to do with it."""
    what, fix = looks_like(data)
    keys = ", ".join(str(key) for key in list(data)[:5]) + (", …" if len(data) > 5 else "")
    seen = f"it looks like {what}" if what else f"none of its keys belongs to one: {keys}"
    return (
        f"this is not a Vertex AI config: {seen}",
        fix or "a custom job has workerPoolSpecs at the top, a tuning job studySpec and trialJobSpec",
    )


def _sniff(data: Mapping[str, Any]) -> Kind:
    study = {"studySpec", "study_spec", "trialJobSpec", "trial_job_spec", "maxTrialCount", "max_trial_count"}
    if study & data.keys():
        return "HyperparameterTuningJob"
    if not data.keys().isdisjoint({"workerPoolSpecs", "worker_pool_specs", *_JOB_WRAPPERS}):
        return "CustomJobSpec"
    # A file with a typo in its first key is still known by its other keys.
    near = [nearest(str(key), study) for key in data]
    return "HyperparameterTuningJob" if any(near) else "CustomJobSpec"


# what it looks like, the keys that it has, and what to do; the first row that fits counts
_KNOWN: tuple[tuple[str, frozenset[str], str], ...] = tuple(
    (name, frozenset(keys.split()), fix)
    for name, keys, fix in (
        ("a Kubernetes manifest", "apiVersion kind", ""),
        ("a compiled Vertex AI or Kubeflow pipeline", "pipelineInfo", "submit it as a pipeline job"),
        ("a compiled Vertex AI or Kubeflow pipeline", "pipelineSpec", "submit it as a pipeline job"),
        ("a pipeline component", "implementation", ""),
        ("a Docker Compose file", "services", ""),
        ("a Cloud Build config", "steps", "give it to gcloud builds submit --config"),
        ("a workflow of GitHub Actions", "jobs on", ""),
        ("a Cloud Batch job", "taskGroups", "give it to gcloud batch jobs submit --config"),
        ("a persistent resource of Vertex AI", "resourcePools", "give it to gcloud ai persistent-resources create"),
        ("a training pipeline of Vertex AI", "trainingTaskDefinition", "check the job spec under trainingTaskInputs"),
        ("a Hydra config", "defaults", ""),
        ("a Hydra config", "hydra", ""),
        ("a conda environment", "name dependencies", ""),
        ("a conda environment", "channels dependencies", ""),
        ("a pipeline of GitLab CI or DVC", "stages", ""),
        ("a pre-commit config", "repos", ""),
        ("a sweep of Weights & Biases", "method parameters", "a tuning job has studySpec and trialJobSpec"),
    )
)

_PROJECT = {"jobs", "sweeps"}
_PROJECT_BESIDE = {"project", "region", "bucket", "trainer", "schedules", "trigger"}


def looks_like(data: Mapping[str, Any]) -> tuple[str, str]:
    """Return what kind of file its keys suggest, and what to do with it; "" if none."""
    keys = {str(key) for key in data}
    if is_project(data):
        return "a project file of vertexrig", "name it with --file"
    return next(((name, fix) for name, wanted, fix in _KNOWN if wanted <= keys), ("", ""))


def is_project(data: Any) -> bool:
    """Whether plain data is a project file, as `vertexrig.yaml` is."""
    # `jobs` alone is the key of GitHub Actions, CircleCI and others
    if not isinstance(data, dict) or not (_PROJECT & data.keys() and _PROJECT_BESIDE & data.keys()):
        return False
    return all(isinstance(data.get(group), (dict, type(None))) for group in _PROJECT)
