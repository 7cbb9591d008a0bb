"""Display names and labels: inside a tuning job's file, and as flags of gcloud."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vertexrig.catalog import Catalog
from vertexrig.checks.model import GCLOUD, REST, SERVER, Context, Problem, Rule, join
from vertexrig.finding import Severity
from vertexrig.spec import labels as label_rules
from vertexrig.spec.document import Document


def check_labels(labels: Mapping[str, str], catalog: Catalog) -> list[Problem]:
    """Return what is wrong with a job's labels (rule `labels`)."""
    return [
        Problem("labels" if found.key is None else f"labels.{found.key}", found.message, found.fix)
        for found in label_rules.problems(labels, catalog.limits)
    ]


def display_name(document: Document, context: Context) -> Iterator[Problem]:
    most = context.catalog.limits.integer("display_name.max_chars")
    for name in context.outside_spec(document, "displayName"):
        if isinstance(name, str) and not name.strip():
            yield Problem("displayName", "the display name is empty", "give the job a name")
        elif isinstance(name, str) and len(name) > most:
            yield Problem(
                "displayName", f"the display name has {len(name)} characters; {most} is the most", "shorten it"
            )


def display_name_flag(document: Document, context: Context) -> Iterator[Problem]:
    if document.kind == "HyperparameterTuningJob" and isinstance(document.data.get("displayName"), str):
        yield Problem("displayName", "gcloud asks for --display-name, and takes that one", "", Severity.INFO)


def labels(document: Document, context: Context) -> Iterator[Problem]:
    for found in context.outside_spec(document, "labels"):
        if isinstance(found, dict):
            yield from check_labels(found, context.catalog)


RULES = (
    Rule("display-name", Severity.ERROR, "The display name has 1 to 128 characters.", REST, display_name),
    Rule("display-name-flag", Severity.INFO, "The display name is given as a flag.", GCLOUD, display_name_flag),
    Rule("labels", Severity.ERROR, "Labels are few, short and in lower case.", join(SERVER, REST), labels),
)
