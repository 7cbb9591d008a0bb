"""Values of environment variables that a project file uses, shown by the variable's name instead of the value.

The command line records each value that `${NAME}` becomes; what a verb shows is then searched for it. Text of defaults is the file's
own, and is not recorded.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

SHORTEST = 8
"""Characters of a value that is replaced wherever it is in a text. A shorter one, such as `build`, occurs by chance: it is replaced only where
it is the whole value, in JSON and in a message that quotes it."""
_recorded: dict[str, str] | None = None
_results = False


@contextmanager
def recording(*, results: bool) -> Iterator[None]:
    """Record the values that are used meanwhile; `results` tells whether results have the names, too, as messages do."""
    global _recorded, _results
    before = _recorded, _results
    _recorded, _results = {}, results
    try:
        yield
    finally:
        _recorded, _results = before


def record(name: str, value: str) -> None:
    """Note that the project file uses a variable's value."""
    if _recorded is not None and value:
        _recorded.setdefault(value, name)


def shown(text: str) -> str:
    """Return a text with `${NAME}` for each value that was recorded."""
    if not _recorded:
        return text
    if text in _recorded:
        return f"${{{_recorded[text]}}}"
    forms = _forms(tuple(_recorded.items()))
    if forms is None:
        return text
    pattern, names = forms
    return pattern.sub(lambda match: f"${{{names[match[0]]}}}", text)


def result(data: Any) -> Any:
    """Return a verb's result, text or data, as it is shown."""
    return shown_data(data) if _results else data


def shown_data(data: Any) -> Any:
    """Return plain data with `shown` of each text; keys stay."""
    if isinstance(data, str):
        return shown(data)
    if isinstance(data, dict):
        return {key: shown_data(item) for key, item in data.items()}
    return [shown_data(item) for item in data] if isinstance(data, (list, tuple)) else data


@lru_cache(4)
def _forms(recorded: tuple[tuple[str, str], ...]) -> tuple[re.Pattern[str], dict[str, str]] | None:
    """Return a pattern of all values as the output formats write them, and the variable's name by each form."""
    names: dict[str, str] = {}
    for value, name in recorded:
        # a message is one line, so that the lines of a value are apart or joined by blanks
        for part in (value, value.strip(), re.sub(r"\s", " ", value), *value.splitlines()):
            for form in (
                part,
                json.dumps(part)[1:-1],
                json.dumps(part, ensure_ascii=False)[1:-1],
                repr(part)[1:-1],
                html.escape(part),
                html.escape(part, quote=False),
                html.escape(part, quote=False).replace('"', "&quot;"),  # an attribute in XML
                part.replace("'", "'\"'\"'"),  # as shlex quotes it
                part.replace("%", "%25"),  # as GitHub's commands have it
            ):
                if len(form) >= SHORTEST:
                    names.setdefault(form, name)
    # the longest first: one that is part of another would leave the rest of it in the text
    parts = [re.escape(form) for form in sorted(names, key=len, reverse=True)]
    return (re.compile("|".join(parts)), names) if parts else None
