"""The way from data to a version of a model: the jobs that made it, and what they ran.

The labels of jobs and versions say it (`vertexrig.spec.labels`, `vertexrig.studies.outcome`). The package and the image are in the spec of
a job; a version, whose labels outlive its job, repeats what it was trained with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vertexrig import spec
from vertexrig.cloud.models import ModelsClient, plain, version_name
from vertexrig.cloud.vertex import CUSTOM, RESOURCES, TUNING, RemoteJob, Vertex, in_filter
from vertexrig.errors import UsageError
from vertexrig.project.triggered import STEP_LABEL
from vertexrig.spec import labels
from vertexrig.spec.labels import CALLER_LABEL, CLAIM_LABEL, ENTRY_LABEL, FIRST_LABEL
from vertexrig.spec.states import short
from vertexrig.studies import register
from vertexrig.studies.outcome import PROMOTED_FROM, TRIAL
from vertexrig.text import shown

_NUMBER = re.compile(r", from .*? (?P<job>[0-9]+)(?:, after version |\s*\(run |$)")
_ORIGIN = {"digest": labels.DIGEST_LABEL, "revision": labels.REVISION_LABEL, "data_digest": labels.DATA_LABEL}
_LABELS = {**_ORIGIN, "schedule": "vertexrig_schedule", "caller": CALLER_LABEL, "trial": TRIAL}
"""What a row says, by the label that has it; the first three also of a version."""
_WORDS = {
    "digest": "project file",
    "revision": "git revision",
    "packages": "package",
    "data_digest": "digest of the data",
}
"""How the text calls what a row has, where that is not its key."""


def version_of(models: ModelsClient, text: str) -> dict[str, Any]:
    """Return a version by MODEL@VERSION or MODEL@ALIAS, where MODEL is a display name, a number or a resource name.

    Raises:
        UsageError: There is no such version, or several models have the name.
    """
    name, _, version = text.partition("@")
    if name.startswith("projects/"):
        found = models.version(name, version or "default")
    else:
        rows = models.find(name)
        names = [plain(str(row.get("name", ""))) for row in rows] or [f"{models.parent}/models/{name}"]
        if len(names) > 1:
            raise UsageError(f"{len(names)} models are called {name!r}; name one of them: {', '.join(names)}")
        found = models.version(names[0], version or "default")
    if found is None:
        raise UsageError(
            f"the Model Registry has no {text!r}: write MODEL@VERSION or MODEL@ALIAS, such as sweep@champion"
        )
    return found


def trace(version: Mapping[str, Any], vertices: Sequence[Vertex]) -> list[dict[str, Any]]:
    """Return the way to a version, a row for each step, the data first and the version last.

    Args:
        vertices: The jobs, of each region that they may be in.
    """
    own, described = dict(version.get("labels") or {}), str(version.get("versionDescription", ""))
    run, number = register.run_of(version) or own.get(STEP_LABEL, ""), _NUMBER.search(described)
    jobs = {job.name: job for job in _of_run(run, vertices)} if run else {}
    known = _by_number(number["job"] if number else own.get("job_id", ""), vertices)
    trained = jobs.get(known.name, known) if known is not None else None
    jobs |= {trained.name: trained} if trained is not None else {}
    swept = trained.labels.get(PROMOTED_FROM) if trained is not None else None
    if trained is not None and swept and not any(job.collection == TUNING for job in jobs.values()):
        jobs |= {job.name: job for job in _sweep_before(swept, trained, vertices)}
    ordered = sorted(jobs.values(), key=lambda job: (job.created, job.name))
    rows = [_job(job, trained, run) for job in ordered]
    model = {
        "step": "model",
        "name": version_name(version),
        "created": str(version.get("versionCreateTime", "")),
        "measured": described,
        "aliases": list(version.get("versionAliases") or ()),
        "files": str(version.get("artifactUri", "")),
        **{key: own.get(label, "") for key, label in _ORIGIN.items()},
        "packages": [own["package"]] if own.get("package") else [],
        "image": own.get("image", ""),
        "run": run,
    }
    first = next(iter(rows), model)
    data = {
        "step": "data",
        "name": next((row["data"] for row in rows if row.get("data")), own.get("data", "")),
        "data_digest": first.get("data_digest", ""),
    }
    gone = [{"step": "job", "name": number["job"], "state": "gone"}] if trained is None and number else []
    found = [*([data] if data["name"] or data["data_digest"] else []), *rows, *gone, model]
    return [{key: value for key, value in row.items() if value not in ("", [], {})} for row in found]


def text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the way as lines: what each step is, and below it what it had."""
    lines = list[str]()
    for row in rows:
        lines.append(f"{row['step']:<12}{row.get('name', '')}  {row.get('state', '')}".rstrip())
        rest = {key: value for key, value in row.items() if key not in ("step", "name", "state")}
        lines += [f"{'':<12}{_WORDS.get(key, key)}: {_value(value)}" for key, value in rest.items()]
    return "\n".join(lines)


def _value(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else shown(value)


def _job(job: RemoteJob, trained: RemoteJob | None, run: str) -> dict[str, Any]:
    """Return the row of a job."""
    key = "trialJobSpec" if job.collection == TUNING else "jobSpec"
    document = spec.from_data(dict(job.data.get(key) or {}), kind="CustomJobSpec")
    own = trained is not None and job.name == trained.name
    step = "sweep" if job.collection == TUNING else "job" if own or job.labels.get(STEP_LABEL) != run else "evaluate"
    return {
        "step": "promote" if own and PROMOTED_FROM in job.labels else step,
        "name": job.name,
        "state": short(job.state),
        "created": job.created,
        "run_of": job.labels.get(ENTRY_LABEL, ""),
        **{name: job.labels.get(label, "") for name, label in _LABELS.items()},
        "packages": list(dict.fromkeys(uri for pool in document.pools for uri in pool.package_uris)),
        "image": document.pools[0].image if document.pools else "",
        "data": register.data_argument(document),
    }


def _of_run(run: str, vertices: Sequence[Vertex]) -> Iterator[RemoteJob]:
    """Yield the jobs of a run: its attempts, and those of its steps; not the trials of its sweep, which have the sweep's labels."""
    for vertex in vertices:
        sweeps = [job for label in (CLAIM_LABEL, FIRST_LABEL) for job in vertex.list(TUNING, filter=_has(label, run))]
        yield from sweeps
        for label in (CLAIM_LABEL, FIRST_LABEL, STEP_LABEL):
            if label == STEP_LABEL or not sweeps:
                yield from vertex.list(CUSTOM, filter=_has(label, run))


def _has(label: str, value: str) -> str:
    return f"labels.{label}={in_filter(value)}"


def _by_number(number: str, vertices: Sequence[Vertex]) -> RemoteJob | None:
    """Return the job of a number, None if there is none any more."""
    names = (f"{one.parent}/{collection}/{number}" for one in vertices for collection in RESOURCES if number)
    return next((job for name in names if (job := vertices[0].get(name)) is not None), None)


def _sweep_before(name: str, job: RemoteJob, vertices: Sequence[Vertex]) -> list[RemoteJob]:
    """Return the newest sweep of a name that was there before a job that was promoted by hand; none if it is gone."""
    found = [one for vertex in vertices for one in vertex.list(TUNING, filter=_has(ENTRY_LABEL, name), limit=100)]
    return sorted((one for one in found if one.created < job.created), key=lambda one: one.created)[-1:]
