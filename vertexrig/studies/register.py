"""A trained model to the Model Registry, if it is better than the version that is there."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from fnmatch import fnmatchcase
from typing import Any

from vertexrig.catalog import Catalog
from vertexrig.catalog.serving import NAMES, SERVED, SOURCE, serving_image
from vertexrig.cloud.models import ModelsClient, plain, version_name
from vertexrig.cloud.storage import Storage
from vertexrig.errors import UsageError
from vertexrig.package.image import describe_image, patterns
from vertexrig.project.config import Loaded
from vertexrig.spec.document import Document

SUMMARY = "summary.json"
METRIC, VALUE = "metric", "metric_value"
"""Labels with the metric's name and its value, `0_9312`: a label's value has no dot."""
MODEL_DIR = "model"
_DESCRIPTION = re.compile(r"(?P<metric>.+?) (?P<value>-?[0-9][0-9.]*(?:e[-+]?[0-9]+)?), from ")
_AFTER = re.compile(r", after version (?P<version>[0-9]+)( |$)")
_MARK = re.compile(r" \(run (?P<run>[0-9a-f]{32}-[0-9a-f]{12})\)$")
_HASH = re.compile(r"\+([0-9a-f]{6,})")


@dataclass(frozen=True)
class Trained:
    """A model that a job has saved.

    Args:
        uri: gs:// folder of the model.
        value: Its value.
        goal: MAXIMIZE or MINIMIZE.
        job: Name of the job or sweep, and of the trial.
        number: The job's number.
        package: Hash of the trainer's package, "" if it has none.
        data: What it was trained on, "" if no argument says so.
        image: The image that trained it.
        lineage: Labels of its job that say where it comes from (`vertexrig.spec.labels.lineage`).
    """

    uri: str
    metric: str
    value: float
    goal: str
    job: str
    number: str = ""
    package: str = ""
    data: str = ""
    image: str = ""
    lineage: Mapping[str, str] = field(default_factory=dict)

    def below(self, folder: str) -> Trained:
        """Return it with the model's files in a folder below its own, "" for that one itself."""
        return replace(self, uri=f"{self.uri}/{folder}".rstrip("/"))

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the model's version."""
        found = {
            "job": self.job,
            "job_id": self.number,
            "package": self.package,
            METRIC: self.metric,
            VALUE: number_label(self.value),
            "data": self.data,
            "image": self.image.rpartition("/")[2],
            **self.lineage,
        }
        return {key: label(value) for key, value in found.items() if value}


@dataclass(frozen=True)
class Comparison:
    """The model against the version that is there.

    Args:
        better: Whether it is to be registered.
        version: The version that is there; None without one.
        value: Its value of the metric; None if it has none.
        gain: By how much the new one is better; None where nothing could be compared.
    """

    better: bool
    text: str
    version: str | None = None
    value: float | None = None
    gain: float | None = None


@dataclass(frozen=True)
class Serving:
    """The image that serves the model.

    Args:
        text: Which one it is, its dates, and what to check.
    """

    uri: str
    text: str


def made_with(loaded: Loaded, catalog: Catalog, image: str) -> tuple[str, str]:
    """Return the framework of a training image, as `NAMES` has it, and its version; "" for what is not known."""
    known = catalog.image(image)
    if known is not None:
        return known.framework if known.framework in NAMES else "", known.version
    for kind, pattern in patterns(loaded).items():
        if fnmatchcase(image, pattern):
            own = describe_image(loaded, kind)
            return own.framework if own.framework in NAMES else "", own.version
    return "", ""


class LackingError(UsageError):
    """A model cannot be registered as it is; with these options of `vertexrig register` it may.

    Args:
        message: What it lacks.
        options: The options, each with its value.
    """

    def __init__(self, message: str, **options: str) -> None:
        self.options = options
        super().__init__(message)


@dataclass(frozen=True)
class Servable:
    """What a serving image loads.

    Args:
        framework: The framework of the image, "" if it is not known.
        version: Its version, "" if that is not known.
        folder: Folder of the model below the one that was searched, "" for that one itself.
    """

    framework: str
    version: str
    folder: str = ""


def servable(names: Iterable[str], made: tuple[str, str]) -> Servable | None:
    """Return what Google's images can load of files, None if that is nothing, or if several folders have a model.

    Args:
        names: The files, by their paths below a folder.
        made: What they were made with, see `made_with`.
    """
    framework, version = made
    # a SavedModel is served by TensorFlow's image, whatever framework wrote it
    for one in dict.fromkeys((framework, *SERVED) if framework else SERVED):
        folders = {folder for folder, _, file in (name.rpartition("/") for name in names) if file in SERVED[one]}
        depth = min((folder.count("/") + bool(folder) for folder in folders), default=0)
        nearest = [folder for folder in folders if folder.count("/") + bool(folder) == depth]
        if len(nearest) == 1:
            return Servable(one, version if one == framework else "", nearest[0])
    return None


def must_be_there(folder: Storage, made: tuple[str, str], given: str | None) -> Servable:
    """Return what the serving image takes of a folder.

    Args:
        made: What it was trained with, see `made_with`.
        given: The serving image that the user named, which may take anything.

    Raises:
        UsageError: Nothing is there, or nothing that Google's images serve.
    """
    framework, version = made
    # the object that stands for a folder in the console has the folder's name, and ends in a slash
    there = sorted(item.name for item in folder.list("") if item.name and not item.name.endswith("/"))
    if not there:
        raise UsageError(f"nothing is in {folder.uri('')}: the trainer saved no model there")
    found = servable(there, made)
    if found is not None or given is not None:
        return found or Servable(framework, version)
    wanted = " or ".join(SERVED[framework] if framework else dict.fromkeys(sum(SERVED.values(), ())))
    served = [name for name in there if name.rpartition("/")[2] in wanted.split(" or ")]
    if served:
        wrong = f"{folder.uri('')} has several models: {', '.join(served[:3])}. A version of a model is one of them: save one"
    else:
        wrong = (
            f"no {wanted} is in {folder.uri('')}, which has {', '.join(there[:3])}. Google's serving images for "
            f"{NAMES.get(framework, 'these frameworks')} load nothing else. Save {wanted}"
        )
    raise LackingError(f"{wrong}, or name a custom image that serves the files, with --serving-image")


def summary_value(summary: Mapping[str, Any], metric: str) -> float | None:
    """Return the finite value of a metric in a summary."""
    value = summary.get(metric)
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known and value is not None else None


def serving(made: Servable, host: str, given: str | None, today: date) -> Serving:
    """Return the image that serves a model: the one that was named, or the prebuilt one of the framework it was made with.

    Args:
        made: What the image is to load.
        given: The one that was named.
    """
    if given is not None:
        return Serving(given, f"serving image: {given}")
    framework, version = made.framework, made.version
    image = serving_image(framework, version)
    text = f"serving image: {NAMES[framework]} {image.version}, {image.dates(today)} ({SOURCE})"
    if not version:
        text += f"; the version of {NAMES[framework]} in the training image is not known: try the model before you deploy it, or name another with --serving-image"
    elif not f"{version}.".startswith(f"{image.version}."):
        text += f"; the model was saved by {version}: try it before you deploy it, or name another image with --serving-image"
    return Serving(image.uri(host), text)


def compare(
    trained: Trained, there: Mapping[str, Any] | None, least: float, measured_now: float | None = None
) -> Comparison:
    """Whether a model beats the version that is there by the least gain, by the same metric.

    Args:
        measured_now: What the version that is there was measured with beside the model; by default what it says of itself.
    """
    own = f"{trained.metric} {trained.value:.6g}"
    if there is None:
        return Comparison(True, f"{own}; there is no such model yet")
    version = str(there.get("versionId", ""))
    metric, value = measured(there) if measured_now is None else (label(trained.metric), measured_now)
    if metric != label(trained.metric) or value is None:
        known = f"its metric is {metric}" if metric else "that one names no metric"
        return Comparison(
            False,
            f"{own} cannot be compared with version {version}, since {known}; --force registers it all the same",
            version,
            value,
        )
    gain = (trained.value - value) * (1 if trained.goal == "MAXIMIZE" else -1)
    better = gain > 0 and gain >= least
    needed = f"at least {least:g} is asked for" if least > 0 else "any gain is enough"
    text = (
        f"{own} against {value:.6g} of version {version}: {'better' if gain > 0 else 'worse' if gain < 0 else 'equal'}"
    )
    return Comparison(
        better, f"{text} by {abs(gain):.6g}; {needed}" if gain else f"{text}; {needed}", version, value, gain
    )


def measured(version: Mapping[str, Any]) -> tuple[str, float | None]:
    """Return the metric of a version, as a label has it, and its value: of its description, which each version has for itself, or its labels."""
    match = _DESCRIPTION.match(str(version.get("versionDescription", "")))
    if match is not None:
        return label(match["metric"]), float(match["value"])
    labels = version.get("labels") or {}
    return str(labels.get(METRIC, "")), label_number(str(labels.get(VALUE, "")))


def present(models: ModelsClient, display_name: str, alias: str) -> Mapping[str, Any] | None:
    """Return the version of a model that a new one has to beat; None if there is no model of the name.

    Raises:
        UsageError: Several models have the name.
    """
    found = models.find(display_name)
    if len(found) > 1:
        names = ", ".join(plain(str(row.get("name", ""))).rpartition("/")[2] for row in found)
        raise UsageError(f"{len(found)} models are called {display_name!r} ({names}); choose another name with --as")
    if not found:
        return None
    name = plain(str(found[0].get("name", "")))
    # without the alias, the default version; the listing's row for a service that answers neither
    return models.version(name, alias) or models.version(name) or found[0]


def move_aliases(models: ModelsClient, name: str, alias: str) -> None:
    """Give a version the aliases; the one that has them loses them."""
    models.merge_aliases(plain(name), name.partition("@")[2], list(dict.fromkeys(["default", alias])))


def replaced(description: str) -> str:
    """Return the number of the version that one was compared with when it was uploaded, "" if its description names none."""
    before = _AFTER.search(description)
    return before["version"] if before is not None else ""


def run_of(version: Mapping[str, Any]) -> str:
    """Return the run that uploaded a version, "" for any other."""
    match = _MARK.search(str(version.get("versionDescription", "")))
    return match["run"] if match else ""


def rollback(models: ModelsClient, display_name: str, alias: str, version: str = "") -> tuple[str, str]:
    """Give an earlier version of a model the aliases.

    Args:
        version: Its number; by default that of the version which the current one has replaced.

    Returns:
        The version that has the aliases now, and the one that had them.

    Raises:
        UsageError: There is no such model or version, it has the aliases, or another one got them meanwhile.
    """
    there = present(models, display_name, alias)
    if there is None:
        raise UsageError(f"there is no model {display_name!r}; name another with --as")
    rows = {str(row.get("versionId")): row for row in models.versions(plain(str(there["name"])))}
    known = ", ".join(f"{id} ({str(row.get('versionDescription', ''))[:60]})" for id, row in sorted(rows.items()))
    wanted = version or replaced(str(there.get("versionDescription", "")))
    if not wanted:
        raise UsageError(
            f"version {there.get('versionId')} of {display_name} does not say which version it replaced; name one: {known}"
        )
    if wanted not in rows or wanted == str(there.get("versionId")):
        what = "has the aliases already" if wanted in rows else "is not in the registry"
        raise UsageError(f"version {wanted} of {display_name} {what}; its versions: {known}")
    now = present(models, display_name, alias)
    if now is None or version_name(now) != version_name(there):
        raise UsageError(f"{display_name} has got another version meanwhile; nothing was moved. Type it again")
    move_aliases(models, version_name(rows[wanted]), alias)
    return version_name(rows[wanted]), version_name(there)


def model_body(
    trained: Trained,
    display_name: str,
    serving_uri: str,
    alias: str,
    labels: Mapping[str, str],
    there: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the Model of an upload; its description names the version that is there, which `--rollback` moves the aliases to."""
    after = f", after version {there['versionId']}" if there is not None and there.get("versionId") else ""
    return {
        "displayName": display_name,
        "versionAliases": list(dict.fromkeys(["default", alias])),
        "versionDescription": f"{trained.metric} {trained.value!r}, from {trained.job} {trained.number}".rstrip()
        + after,
        "labels": {**{key: label(value) for key, value in labels.items()}, **trained.labels},
        "artifactUri": trained.uri,
        "containerSpec": {"imageUri": serving_uri},
    }


def package_hash(document: Document) -> str:
    """Return the hash in the name of the trainer's package, else the package's name."""
    uris = [uri for pool in document.pools for uri in pool.package_uris]
    if not uris:
        return ""
    name = uris[0].rpartition("/")[2].removesuffix(".tar.gz")
    match = _HASH.search(name)
    return match[1] if match else name


def data_argument(document: Document) -> str:
    """Return what the trainer was given as its data: the value of --data, or of the first flag that begins with it."""
    for pool in document.pools[:1]:
        for word in pool.args:
            key, equals, value = word.lstrip("-").partition("=")
            if equals and re.fullmatch(r"(train(ing)?[-_])?data(set)?([-_](dir|path|uri))?", key):
                return value
    return ""


def label(text: str) -> str:
    """Return a text as the value of a label: lowercase letters, digits, - and _, at most 63."""
    # a negative number (`number_label`) keeps its sign; elsewhere dashes at the ends are left over from what was replaced
    if re.fullmatch(r"-[0-9][0-9_e-]*", text):
        return text[:63]
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-")[:63]


def number_label(value: float) -> str:
    """Return a number as the value of a label: `0_9312`, `1_5e-05`."""
    # json writes the shortest digits that read back as the same number
    return json.dumps(value).replace(".", "_").replace("+", "")


def label_number(text: str) -> float | None:
    """Return the number that a label holds; None if it holds something else."""
    try:
        value = float(text.replace("_", "."))
    except ValueError:
        return None
    return value if math.isfinite(value) else None
