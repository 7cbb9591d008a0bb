"""Places in a job spec that are still to be filled in: `${NAME}`, `{{ name }}`, `<name>`, `PROJECT_ID`, `your-bucket`.

A file that holds them is a template. What is in such a place is not a value yet, so it is never held against a type,
an enum or the form of a name; the file is said to need rendering first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

# Names that walk-throughs write where the reader's own belong.
_NAMES = (
    "PROJECT_ID|PROJECT_NUMBER|PROJECT_NAME|GCP_PROJECT|GOOGLE_CLOUD_PROJECT|BUCKET_NAME|BUCKET_URI|GCS_BUCKET|"
    "REPO_NAME|REPOSITORY_NAME|IMAGE_URI|IMAGE_NAME|IMAGE_TAG|JOB_NAME|SERVICE_ACCOUNT|MACHINE_TYPE|ACCELERATOR_TYPE|"
    "ACCELERATOR_COUNT|REPLICA_COUNT|CUSTOM_CONTAINER_IMAGE_URI|PYTHON_PACKAGE_URIS|PYTHON_MODULE|CHANGE_?ME|TODO|FIXME"
)
_MARKS = (
    r"\$?\{\{.*?\}\}|\{%.*?%\}",  # Jinja, Helm, GitHub Actions
    r"(?<![\\$])\$\{[^{}\n]*\}|(?<![\\$\w])\$[A-Za-z_]\w*",  # a shell, envsubst
    r"(?<![{$])\{[A-Z][A-Z0-9_]*\}(?!\})",  # str.format
    r"<[A-Za-z][\w .-]*>|\[[A-Z][A-Z0-9]+(?:[ _-][A-Z0-9]+)*\]",
    r"__[A-Z][A-Z0-9_]*__",
    r"(?<![A-Za-z0-9])(?:YOUR|REPLACE)[_-][A-Za-z0-9_-]+",
    rf"(?<![\w-])(?:{_NAMES})(?![\w-])",
    r"(?<=gs://)[A-Z][A-Z0-9_-]{2,}|(?<=/gcs/)[A-Z][A-Z0-9_-]{2,}",  # no bucket has capitals
    r"(?<=projects/)[A-Z][A-Z_-]+",
    r"\A[\w-]*(?:\.\.\.|…)\Z",  # hf_...
)
_SURE = re.compile("|".join(_MARKS))
_LIKELY = re.compile(r"(?<![\w-])your[_-][a-z0-9][a-z0-9_-]*")
# Where no free text belongs, more can only be a placeholder.
_NAMED = re.compile(r"(?<![{$])\{[A-Za-z_][\w.]*\}(?!\})|\A[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\Z")
_CAPITALS = re.compile(r"(?<![A-Za-z0-9])[A-Z][A-Z0-9_]{2,}(?![a-z0-9])")

_FREE = re.compile(r"\.(?:args|command)\[\d+\]$|\.env\[\d+\]\.\w+$|(?:^|\.)studySpec\b|^labels\b|^displayName$")
_PROGRAM = re.compile(r"\.(?:args|command)\[\d+\]$|\.env\[\d+\]\.value$")
_VARIABLE = re.compile(r"\.env\[\d+\]\.name$")
_LOWER_CASE = re.compile(r"\.(?:imageUri|executorImageUri)$|(?:^|\.)serviceAccount$")
_TOKENS = {"s", "pad", "unk", "mask", "bos", "eos", "cls", "sep", "image", "audio", "think", "br", "p", "b"}
"""Marks of language models and of HTML that look like `<name>` or `[NAME]`."""

_OPEN, _CLOSE = "\ue000", "\ue001"
_ENGINE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)
_HIDDEN = re.compile(f"{_OPEN}(\\d+){_CLOSE}")


def marks(text: str, path: str, *, enum: bool = False) -> list[str]:
    """The placeholders in the text at `path` of a job spec; an enum's values are in capitals themselves."""
    if "\n" in text and _PROGRAM.search(path):
        return []  # a script: its braces and dollars are its own
    found = [one for one in _SURE.findall(text) if one.strip("<>[]").casefold() not in _TOKENS]
    found += _LIKELY.findall(text)
    if _VARIABLE.search(path):  # a variable may well be called YOUR_NAME
        found = [one for one in found if not one[0].isalnum()]
    if not enum and not _FREE.search(path):
        found += [one for one in _NAMED.findall(text) if one not in found]
    if _LOWER_CASE.search(path):
        known = " ".join(found)
        found += [one for one in _CAPITALS.findall(_untagged(text)) if one not in known]
    return list(dict.fromkeys(found))


def instead(value: Any) -> str:
    """The placeholder that a value other than text is: `{NAME}` and `[NAME]` without quotes are YAML; "" if it is none."""
    if isinstance(value, dict) and len(value) == 1:
        ((name, inner),) = value.items()
        return f"{{{name}}}" if inner is None and re.fullmatch(r"[A-Za-z_]\w*", str(name)) else ""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return f"[{value[0]}]" if re.fullmatch(r"[A-Z][A-Z0-9_-]{2,}", value[0]) else ""
    return ""


def certain(text: str, path: str) -> bool:
    """Whether a job with this text cannot run: what a program is given may be meant as it is written."""
    return not _PROGRAM.search(path) and not _LIKELY.fullmatch(text)


def hide(text: str) -> tuple[str, list[str]]:
    """YAML text with each expression of a template engine in a form that YAML reads as plain text, and the expressions.

    Lines that hold a statement only (`{% if x %}`) become empty, so that every other line keeps its number.
    """
    hidden: list[str] = []

    def replace(match: re.Match[str]) -> str:
        lines = "\n" * match[0].count("\n")
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        after = text[match.end() : text.find("\n", match.end())] if "\n" in text[match.end() :] else text[match.end() :]
        if not match[0].startswith("{{") and not _ENGINE.sub("", before + after).strip():
            return lines
        hidden.append(" ".join(match[0].split()))
        return f"{_OPEN}{len(hidden) - 1}{_CLOSE}{lines}"

    return _ENGINE.sub(replace, text), hidden


def shown(value: Any, hidden: list[str]) -> Any:
    """Data read from hidden text, with the expressions back in their places."""
    if not hidden:
        return value
    if isinstance(value, dict):
        return {shown(key, hidden): shown(item, hidden) for key, item in value.items()}
    if isinstance(value, list):
        return [shown(item, hidden) for item in value]
    if isinstance(value, str):
        return _HIDDEN.sub(lambda match: hidden[int(match[1])], value)
    return value


def texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every text of canonical data with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from texts(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from texts(item, f"{path}[{index}]")


def _untagged(image: str) -> str:
    head, slash, name = image.partition("@")[0].rpartition("/")
    return head + slash + name.partition(":")[0]
