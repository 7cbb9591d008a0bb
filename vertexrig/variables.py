"""Values of environment variables that a project file uses, shown by the variable's name instead of the value.

The command line records each value that `${NAME}` becomes; what a verb shows is then searched for it. Text of defaults is the file's
own, and is not recorded. `--variables` lists the variables that a project file may use.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from itertools import takewhile
from typing import Any

SHORTEST = 8
"""Characters of a value that is replaced wherever it is in a text. A shorter one, such as `build`, occurs by chance: it is replaced only where
it is the whole value, in JSON and in a message that quotes it."""
CUT = 40
"""Characters of a value's beginning that are replaced, too, with what follows of the value: messages cut long values, none to fewer."""
allowed: ContextVar[frozenset[str] | None] = ContextVar("allowed", default=None)
"""Names of the environment variables that a project file may use; None for all."""
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
    pattern, whole, cut = forms
    parts, end = list[str](), 0
    for match in pattern.finditer(text):
        start = match.start()
        if start < end:
            continue
        name = whole.get(re.sub(r"\s+", " ", match[0]), "")
        parts.append(text[end:start])
        end = match.end()
        if not name:
            form, name = cut[match[0]]
            end = start + len(
                list(takewhile(lambda two: two[0] == two[1], zip(form, text[start : start + len(form)], strict=False)))
            )
        parts.append(f"${{{name}}}")
    return "".join([*parts, text[end:]])


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
def _forms(
    recorded: tuple[tuple[str, str], ...],
) -> tuple[re.Pattern[str], dict[str, str], dict[str, tuple[str, str]]] | None:
    """Return a pattern of all values as the output formats write them, the variable's name by each form with single blanks, and form and
    name by the beginning of a long form.
    """
    whole: dict[str, str] = {}
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
                    whole.setdefault(re.sub(r"\s+", " ", form), name)
    cut = {form[:CUT]: (form, name) for form, name in whole.items() if len(form) > CUT}
    # the longest first: one that is part of another would leave the rest of it in the text; blanks may be where a line was wrapped
    parts = [r"\s+".join(map(re.escape, form.split(" "))) for form in sorted({*whole, *cut}, key=len, reverse=True)]
    return (re.compile("|".join(parts)), whole, cut) if parts else None
