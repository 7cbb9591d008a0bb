"""Values in a job spec that are still to be filled in: `${NAME}`, `{{ name }}`, `<name>`, `PROJECT_ID`, `your-bucket`.

A file that holds them is a template. A placeholder is not compared with a type, an enum or the form of a name; one finding
says that the file has to be rendered first.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

# Names that walk-throughs write where the reader's own belong.
_NAMES = (
    "PROJECT_ID|PROJECT_NUMBER|PROJECT_NAME|GCP_PROJECT|GOOGLE_CLOUD_PROJECT|BUCKET_NAME|BUCKET_URI|GCS_BUCKET|"
    "REPO_NAME|REPOSITORY_NAME|IMAGE_URI|IMAGE_NAME|IMAGE_TAG|JOB_NAME|SERVICE_ACCOUNT|MACHINE_TYPE|ACCELERATOR_TYPE|"
    "ACCELERATOR_COUNT|REPLICA_COUNT|CUSTOM_CONTAINER_IMAGE_URI|PYTHON_PACKAGE_URIS|PYTHON_MODULE|CHANGE_?ME|TODO|FIXME"
)
_MARKS = (
    r"\$?\{\{.*?\}\}|\{%.*?%\}",  # Jinja, Helm, GitHub Actions
    # a shell, envsubst; `${now:%Y}` and `${oc.env:USER}` are OmegaConf's, which the program resolves
    r"(?<![\\$])\$\{(?![A-Za-z_][\w.]*:[A-Za-z%])[^{}\n]*\}|(?<![\\$\w])\$[A-Za-z_]\w*",
    r"(?<![{$])\{[A-Z][A-Z0-9_]*\}(?!\})",  # str.format
    r"<[A-Za-z][\w .-]*>|\[[A-Z][A-Z0-9]+(?:[ _-][A-Z0-9]+)*\]",
    r"(?i:\[(?:your[ _-]?)?(?:project|bucket|repo|repository|region)[ _-]?(?:id|name|number|uri)\])",
    r"__[A-Z][A-Z0-9_]*__",
    r"(?<![A-Za-z0-9])(?:YOUR|REPLACE)[_-][A-Za-z0-9_-]+",
    rf"(?<![\w-])(?:{_NAMES})(?![\w-])",
    r"(?<=gs://)[A-Z][A-Z0-9_-]{2,}|(?<=/gcs/)[A-Z][A-Z0-9_-]{2,}",  # no bucket has capitals
    r"(?<=projects/)[A-Z][A-Z_-]+",
    r"\A[\w-]*(?:\.\.\.|…)\Z",  # hf_...
)
# Patterns are text here, and in other modules that every command loads: `re` compiles each at its first use.
_SURE = "|".join(_MARKS)
_LIKELY = r"(?<![\w-])your[_-][a-z0-9][a-z0-9_-]*"
# Where no free text belongs, more can only be a placeholder.
_NAMED = r"(?<![{$])\{[A-Za-z_][\w.]*\}(?!\})|\A[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\Z"
_CAPITALS = r"(?<![A-Za-z0-9])[A-Z][A-Z0-9_]{2,}(?![a-z0-9])"

_FREE = r"\.(?:args|command)(?:\[\d+\])?$|\.env\[\d+\]\.\w+$|(?:^|\.)studySpec\b|^labels\b|^displayName$"
_PROGRAM = r"\.(?:args|command)(?:\[\d+\])?$|\.env\[\d+\]\.value$"
_VARIABLE = r"\.env\[\d+\]\.name$"
_EXPANDED = r"\$\([A-Za-z_]\w*\)"
"""What the service replaces with a variable in a program's words."""
# names of images and accounts have no capitals, so any word in them is a placeholder
_LOWER_CASE = r"\.(?:imageUri|executorImageUri)$|(?:^|\.)serviceAccount$"
_TOKENS = {"s", "pad", "unk", "mask", "bos", "eos", "cls", "sep", "image", "audio", "think", "br", "p", "b"}
"""Marks of language models and of HTML that look like `<name>` or `[NAME]`."""

_ANY = r"[A-Z<\[{$…]|your|\.\.\."
"""What any of these patterns needs to match."""

_TRIAL = r"(?i)\$?\{\{?\s*\$?(?:trial|hyperparameter)\w*\b[^{}]*\}\}?"
"""`{{trial.parameters.lr}}`, `${trialParameters.lr}`: what other services replace by a trial's value."""

# from Unicode's private use area: no YAML file has them for itself
_OPEN, _CLOSE = "\ue000", "\ue001"
_ENGINE = r"(?s)\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}"
_HIDDEN = f"{_OPEN}(\\d+){_CLOSE}"


def marks(text: str, path: str, *, enum: bool = False) -> list[str]:
    """Return the placeholders in the text at `path` of a job spec; an enum's values are in capitals themselves."""
    if not re.search(_ANY, text):
        return []
    if "\n" in text and re.search(_PROGRAM, path):
        return []  # a script: its braces and dollars are its own
    if re.search(_PROGRAM, path):
        text = re.sub(_EXPANDED, "", text)
    found = [one for one in re.findall(_SURE, text) if one.strip("<>[]").casefold() not in _TOKENS]
    found += re.findall(_LIKELY, text)
    if re.search(_VARIABLE, path):  # a variable may well be called YOUR_NAME
        found = [one for one in found if not one[0].isalnum()]
    if not enum and not re.search(_FREE, path):
        found += [one for one in re.findall(_NAMED, text) if one not in found]
    if re.search(_LOWER_CASE, path):
        known = " ".join(found)
        found += [one for one in re.findall(_CAPITALS, _untagged(text)) if one not in known]
    return list(dict.fromkeys(found))


def trial_values(text: str, ids: Collection[str]) -> dict[str, str]:
    """Return each mark in a text that stands for a trial's value of a parameter, with the parameter's id."""
    found = {mark: re.findall(r"[\w-]+", mark) for mark in re.findall(_TRIAL, text)}
    return {mark: next(word for word in words if word in ids) for mark, words in found.items() if {*words} & {*ids}}


def instead(value: Any) -> str:
    """Return the placeholder that a value other than text is: `{NAME}` and `[NAME]` without quotes are YAML; "" for any other value."""
    if isinstance(value, dict) and len(value) == 1:
        ((name, inner),) = value.items()
        return f"{{{name}}}" if inner is None and re.fullmatch(r"[A-Za-z_]\w*", str(name)) else ""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return f"[{value[0]}]" if re.fullmatch(r"[A-Z][A-Z0-9_-]{2,}", value[0]) else ""
    return ""


def certain(text: str, path: str) -> bool:
    """Whether a job with this text cannot run: arguments and variables may be meant as they are written."""
    return not re.search(_PROGRAM, path) and not re.fullmatch(_LIKELY, text)


def hide(text: str) -> tuple[str, list[str]]:
    """Return YAML text with each expression of a template engine in a form that YAML reads as plain text, and the expressions.

    Lines that hold a statement only (`{% if x %}`) become empty, so that every other line keeps its number.
    """
    hidden: list[str] = []

    def replace(match: re.Match[str]) -> str:
        lines = "\n" * match[0].count("\n")
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        after = text[match.end() : text.find("\n", match.end())] if "\n" in text[match.end() :] else text[match.end() :]
        if not match[0].startswith("{{") and not re.sub(_ENGINE, "", before + after).strip():
            return lines
        hidden.append(" ".join(match[0].split()))
        return f"{_OPEN}{len(hidden) - 1}{_CLOSE}{lines}"

    return re.sub(_ENGINE, replace, text), hidden


def shown(value: Any, hidden: list[str]) -> Any:
    """Return data read from hidden text, with the expressions put back."""
    if not hidden:
        return value
    if isinstance(value, dict):
        return {shown(key, hidden): shown(item, hidden) for key, item in value.items()}
    if isinstance(value, list):
        return [shown(item, hidden) for item in value]
    if isinstance(value, str):
        return re.sub(_HIDDEN, lambda match: hidden[int(match[1])], value)
    return value


def _untagged(image: str) -> str:
    head, slash, name = image.partition("@")[0].rpartition("/")
    # a tag may have capitals
    return head + slash + name.partition(":")[0]
