"""Recordings without what belongs to one person or project: ids, project numbers, names, tokens, addresses.

What stays is the form, and which id is which: the first id of a recording becomes `<id 1>` wherever it comes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# In this order: a bearer token may hold what later patterns find.
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i)\bbearer +[\w.~+/=-]+"), "<token>"),
    (re.compile(r"ya29\.[\w.-]+|\beyJ[\w-]{10,}\.[\w-]+\.[\w-]*|\bAIza[\w-]{30,}"), "<token>"),
    (re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]*\w"), "<email>"),
    (re.compile(r"\bgk3-[\w-]+"), "<host>"),
    (re.compile(r"(?<=-workerpool\d-)[0-9a-f]{6,}(?=-)"), "<cluster>"),
    (re.compile(r"(?<=projects/)\d{6,15}(?!\d)"), "<number>"),
    (re.compile(r"(?<=project=)\d{6,15}(?!\d)|(?<=service-)\d{6,15}(?=@)"), "<number>"),
    (re.compile(r"(?<=projects/)[a-z][a-z0-9-]{4,28}[a-z0-9](?![a-z0-9-])"), "<project>"),
    (re.compile(r"(?:(?<=gs://)|(?<=/b/))(?!google-cloud-aiplatform/)[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]"), "<bucket>"),
    # Project numbers have twelve digits.
    (re.compile(r"\b\d{12}\b"), "<number>"),
    (re.compile(r"/(?:tmp|home|Users|root|var)/[^\s\"',;:]+"), "<path>"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b"), "<address>"),
)
# Ids of jobs have 16 to 20 digits, and so may a fraction, which stays.
_ID = re.compile(r"(?<![\d.])\d{16,20}(?!\d|\.\d)")
_SECRET = re.compile(r"(?i)token|authorization|password|secret|credential|api.?key|cookie|etag")


class Blanks:
    """Takes what is personal out of the lines of one recording.

    Args:
        names: Further texts to replace, with what replaces them: the project's id, its bucket.

    Attributes:
        ids: What each id became.
    """

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        # The longest first: a bucket's name often begins with the project's id.
        self._names = sorted((names or {}).items(), key=lambda pair: -len(pair[0]))
        self.ids: dict[str, str] = {}

    def __call__(self, value: Any) -> Any:
        """Any JSON, blanked."""
        if isinstance(value, dict):
            return {
                self._text(key): "<secret>" if _SECRET.search(key) and isinstance(item, str) else self(item)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self(item) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        for name, by in self._names:
            text = text.replace(name, by)
        # Before the patterns, which would take a part of an id for a project number.
        text = _ID.sub(lambda match: self.ids.setdefault(match[0], f"<id {len(self.ids) + 1}>"), text)
        for pattern, by in _PATTERNS:
            text = pattern.sub(by, text)
        return text
