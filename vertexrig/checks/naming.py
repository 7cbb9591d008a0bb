"""Display names and labels: inside a tuning job's file, and as flags beside any file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from vertexrig.catalog import Catalog, load
from vertexrig.checks.model import Context, Problem, Rule
from vertexrig.checks.sources import GCLOUD, REST, SERVER, join
from vertexrig.finding import Severity
from vertexrig.spec.document import Document


def check_display_name(name: str, catalog: Catalog | None = None, path: str = "displayName") -> list[Problem]:
    """What is wrong with a job's display name (rule `display-name`).

    Args:
        name: The name.
        catalog: Where the limits come from; the shipped one if left out.
        path: The path to report.
    """
    most = (catalog or load()).limits.integer("display_name.max_chars")
    if not name.strip():
        return [Problem(path, "the display name is empty", "give the job a name")]
    if len(name) > most:
        return [Problem(path, f"the display name has {len(name)} characters; {most} is the most", "shorten it")]
    return []


def _text_problem(text: str, form: str, longest: int, most_bytes: int) -> str:
    if len(text) > longest or len(text.encode("utf-8", "surrogatepass")) > most_bytes:
        return f"it has more than {longest} characters or {most_bytes} bytes"
    return "" if re.fullmatch(form, text) else "only lowercase letters, digits, - and _ may stand in it"


def check_labels(labels: Mapping[str, str], catalog: Catalog | None = None, path: str = "labels") -> list[Problem]:
    """What is wrong with a job's labels (rule `labels`).

    Args:
        labels: Keys and values.
        catalog: Where the limits come from; the shipped one if left out.
        path: The path to report; a key's own follows after a dot.
    """
    limits = (catalog or load()).limits
    most = limits.integer("labels.max")
    longest, most_bytes = limits.integer("labels.max_chars"), limits.integer("labels.max_bytes")
    problems = []
    if len(labels) > most:
        problems.append(Problem(path, f"there are {len(labels)} labels; {most} is the most", "remove some"))
    for key, value in labels.items():
        if not key or not key[0].isalnum():
            text = f"the key {key[:80]!r} of a label must start with a letter or digit"
            problems.append(Problem(f"{path}.{key}", text))
            continue
        for what, text, form in (("key", key, "labels.key_pattern"), ("value", value, "labels.value_pattern")):
            wrong = _text_problem(text, limits.text(form), longest, most_bytes)
            if wrong:
                lower = re.sub(r"[^\w-]", "-", text.lower())[:longest]
                fix = f"write {lower}" if not _text_problem(lower, limits.text(form), longest, most_bytes) else ""
                problems.append(Problem(f"{path}.{key}", f"{text[:80]!r} is not the {what} of a label: {wrong}", fix))
    return problems


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
)  # fmt: skip
