"""Display names and labels: inside a tuning job's file, and as flags of gcloud."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vertexrig.catalog import Catalog
from vertexrig.checks.model import GCLOUD, REST, SERVER, Context, Problem, Rule, join
from vertexrig.finding import Severity
from vertexrig.spec import labels as label_rules
from vertexrig.spec.document import Document


def check_display_name(name: str, catalog: Catalog) -> list[Problem]:
    """Return what is wrong with a job's display name (rule `display-name`)."""
    most = catalog.limits.integer("display_name.max_chars")
    if not name.strip():
        return [Problem("displayName", "the display name is empty", "give the job a name")]
    if len(name) > most:
        text = f"the display name has {len(name)} characters; {most} is the most"
        return [Problem("displayName", text, "shorten it")]
    return []


def check_labels(labels: Mapping[str, str], catalog: Catalog) -> list[Problem]:
    """Return what is wrong with a job's labels (rule `labels`)."""
    return [
        Problem("labels" if found.key is None else f"labels.{found.key}", found.message, found.fix)
        for found in label_rules.problems(labels, catalog.limits)
    ]


def _top(document: Document, key: str) -> object:
    return document.data.get(key) if document.kind == "HyperparameterTuningJob" else None


def display_name(document: Document, context: Context) -> Iterator[Problem]:
    name = _top(document, "displayName")
    if isinstance(name, str):
        yield from check_display_name(name, context.catalog)


def display_name_flag(document: Document, context: Context) -> Iterator[Problem]:
    if isinstance(_top(document, "displayName"), str):
        yield Problem("displayName", "gcloud asks for --display-name, and takes that one", "", Severity.INFO)


def labels(document: Document, context: Context) -> Iterator[Problem]:
    found = _top(document, "labels")
    if isinstance(found, dict):
        yield from check_labels(found, context.catalog)


RULES = (
    Rule("display-name", Severity.ERROR, "The display name has 1 to 128 characters.", REST, display_name),
    Rule("display-name-flag", Severity.INFO, "The display name is given as a flag.", GCLOUD, display_name_flag),
    Rule("labels", Severity.ERROR, "Labels are few, short and in lower case.", join(SERVER, REST), labels),
)
