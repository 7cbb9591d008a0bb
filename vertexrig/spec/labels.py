"""The rules of labels, with the limits of the catalog."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from vertexrig.catalog.rows import Limits
from vertexrig.text import quoted

_PATTERN_OF = {"key": "labels.key_pattern", "value": "labels.value_pattern"}
ENTRY_LABEL = "vertexrig_run"
"""Name of the job or sweep in the project file."""
CALLER_LABEL = "vertexrig_caller"
"""Has the e-mail of the caller of the trigger, as `label_value` writes it."""
CLAIM_LABEL = "vertexrig_claim"
"""Has the id of the claim that a job was made for (`vertexrig.submit.claims`)."""
CANDIDATE_LABEL, FIRST_LABEL = "vertexrig_candidate", "vertexrig_first"
"""Labels of a job with candidates: the candidate's number, 1 for the job without changes; and the id of the first attempt's claim.
The first attempt's job has that id in `CLAIM_LABEL`."""
DIGEST_LABEL, REVISION_LABEL, DATA_LABEL = "vertexrig_digest", "vertexrig_revision", "vertexrig_data"
"""Where a job comes from: the digest of the project file, the git revision, and the digest of the data that its schedule depends on."""
_OURS = "vertexrig_"
"""How the labels begin that `submit` and the trigger make, such as that of a claim."""


def label_value(text: str) -> str:
    """Return a text as the value of a label: in lower case, at most 63 characters, `_` for what a label cannot have."""
    return re.sub(r"[^a-z0-9_-]", "_", text.lower())[:63]


def lineage(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a job that say where it comes from."""
    return {key: labels[key] for key in (DIGEST_LABEL, REVISION_LABEL, DATA_LABEL) if labels.get(key)}


def first_of(labels: Mapping[str, str]) -> str:
    """Return the id of the claim of a job's first attempt, "" for a job without candidates."""
    return (labels.get(FIRST_LABEL) or labels.get(CLAIM_LABEL, "")) if CANDIDATE_LABEL in labels else ""


def users(labels: Mapping[Any, Any]) -> dict[str, str]:
    """Return a job's labels without those that vertexrig makes: a copied claim label would make the trigger cancel the job as
    a duplicate.
    """
    return {str(key): str(value) for key, value in labels.items() if not str(key).startswith(_OURS)}


class LabelProblem(NamedTuple):
    """One thing wrong with labels.

    Args:
        key: The key of the label; None for all of them together.
        message: What is wrong.
        fix: What to do, "" if nothing is certain to help.
    """

    key: str | None
    message: str
    fix: str = ""


def problems(labels: Mapping[str, str], limits: Limits) -> Iterator[LabelProblem]:
    """Yield what is wrong with a resource's labels."""
    most, longest = limits.integer("labels.max"), limits.integer("labels.max_chars")
    if len(labels) > most:
        yield LabelProblem(None, f"there are {len(labels)} labels; {most} is the most", "remove some")
    for key, value in labels.items():
        if not key or not key[0].isalnum():
            yield LabelProblem(key, f"the key {quoted(key)} of a label must start with a letter or digit")
            continue
        for what, text in (("key", key), ("value", value)):
            wrong = _problem(text, what, limits)
            if wrong:
                # a proposal is made only where it is valid itself
                lower = re.sub(r"[^\w-]", "-", text.lower())[:longest]
                fix = "" if _problem(lower, what, limits) else f"write {lower}"
                yield LabelProblem(key, f"{quoted(text)} is not the {what} of a label: {wrong}", fix)


def _problem(text: str, what: str, limits: Limits) -> str:
    longest, most_bytes = limits.integer("labels.max_chars"), limits.integer("labels.max_bytes")
    if len(text) > longest or len(text.encode("utf-8", "surrogatepass")) > most_bytes:
        return f"it has more than {longest} characters or {most_bytes} bytes"
    fits = text == text.lower() and re.fullmatch(limits.text(_PATTERN_OF[what]), text)
    return "" if fits else "only lowercase letters, digits, - and _ are allowed in it"
