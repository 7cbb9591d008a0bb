"""Recordings without what belongs to one person or project: ids, project numbers, names, tokens, addresses.

What stays is the form: a number of 19 digits becomes another text that says so, always the same within a recording.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"ya29\.[\w.-]+|\beyJ[\w-]{10,}\.[\w-]+\.[\w-]*|\bAIza[\w-]{30,}"), "<token>"),
    (re.compile(r"(?i)\bbearer +[\w.~+/=-]+"), "<token>"),
    (re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]*\w"), "<email>"),
    (re.compile(r"\bgk3-[\w-]+"), "<host>"),
    (re.compile(r"(?<=-workerpool\d-)[0-9a-f]{6,}(?=-)"), "<cluster>"),
    (re.compile(r"(?<=projects/)\d{6,15}(?!\d)"), "<number>"),
    (re.compile(r"(?<=project=)\d{6,15}(?!\d)|(?<=service-)\d{6,15}(?=@)"), "<number>"),
    (re.compile(r"\b\d{16,20}\b"), "<id>"),
    (re.compile(r"\b\d{12}\b"), "<number>"),
    (re.compile(r"/(?:tmp|home|Users|root|var)/[^\s\"',;:]+"), "<path>"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b"), "<address>"),
)
_SECRET = re.compile(r"(?i)token|authorization|password|secret|credential|api.?key|cookie|etag")


def blanked(value: Any, names: Mapping[str, str] | Iterable[str] = ()) -> Any:
    """JSON without what is personal.

    Args:
        value: Any JSON.
        names: Further texts to replace, with what replaces them: the project's id, its bucket.
    """
    pairs = names.items() if isinstance(names, Mapping) else [(name, "<name>") for name in names]
    longest = sorted(((name, by) for name, by in pairs if name), key=lambda pair: -len(pair[0]))
    return _blank(value, longest)


def _blank(value: Any, names: list[tuple[str, str]]) -> Any:
    if isinstance(value, dict):
        return {
            _text(key, names): "<secret>" if _SECRET.search(key) and isinstance(item, str) else _blank(item, names)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_blank(item, names) for item in value]
    return _text(value, names) if isinstance(value, str) else value


def _text(text: str, names: list[tuple[str, str]]) -> str:
    for name, by in names:
        text = text.replace(name, by)
    for pattern, by in _PATTERNS:
        text = pattern.sub(by, text)
    return text
