"""Values of environment variables that a project file uses, shown by the variable's name instead of the value.

The command line records each value that `${NAME}` becomes; what a verb shows is then searched for it. The default in `${NAME:-default}`
is text of the project file, so it is not recorded. `--variables NAMES` limits which variables a project file may use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, NamedTuple

SHORTEST = 8
"""Characters of a value that is replaced wherever it is in a text. A shorter one, such as `build`, occurs by chance: it is replaced only where
it is the whole of a value in JSON, or of one that a message quotes (`vertexrig.text.quoted`)."""
CUT = 40
"""A message may cut a long value, but never to fewer than this many characters. Such a beginning, and whatever follows of the value, is
replaced, too."""
allowed: ContextVar[frozenset[str] | None] = ContextVar("allowed", default=None)
"""Names of the environment variables that a project file may use; None for all."""
_recorded: dict[str, str] | None = None
_assigned: dict[str, str] = {}
_results = False


@contextmanager
def recording(*, results: bool) -> Iterator[None]:
    """Record the values that are used inside the block. `shown` replaces them in messages, by their names; with `results`, `shown_result` does
    so in results.
    """
    global _recorded, _assigned, _results
    before = _recorded, _assigned, _results
    _recorded, _assigned, _results = {}, {}, results
    try:
        yield
    finally:
        _recorded, _assigned, _results = before


def record(name: str, value: str) -> None:
    """Note that the project file uses a variable's value."""
    if _recorded is not None and value:
        _recorded.setdefault(value, name)


def assign(name: str, value: str) -> None:
    """Note a variable whose value differs from the default in `${NAME:-default}`: a printed command has to set it."""
    if _recorded is not None:
        _assigned[name] = value


def assigned(*, for_paste: bool = False) -> dict[str, str]:
    """Return the variables that a printed command of this program sets, so that it does the same in a shell without them.

    By default only those with values shorter than SHORTEST: a message has `${NAME}` in place of a longer value.

    Args:
        for_paste: Return all of them, for a command that is printed with the values.
    """
    return {name: value for name, value in _assigned.items() if for_paste or len(value) < SHORTEST}


def shown(text: str) -> str:
    """Return a text with `${NAME}` for each value that was recorded."""
    if not _recorded:
        return text
    if text in _recorded:
        return f"${{{_recorded[text]}}}"
    forms = _forms(tuple(_recorded.items()))
    if forms is None:
        return text
    parts, end = list[str](), 0
    for match in forms.pattern.finditer(text):
        start = match.start()
        if start < end:  # inside a cut value, whose end `_end_of_match` has found
            continue
        found = _single_blanks(match[0])
        name = forms.name_by_form.get(found, "")
        parts.append(text[end:start])
        end = match.end()
        if not name:
            form, name = forms.form_by_prefix[found]
            end = max(end, _end_of_match(form, text, start))
        parts.append(f"${{{name}}}")
    return "".join([*parts, text[end:]])


def _end_of_match(form: str, text: str, start: int) -> int:
    """Return the index up to which a text, from `start` on, agrees with a form. A blank of the form stands for any white space."""
    here = end = start
    for char in form:
        if char == " " and text[here : here + 1].isspace():
            here += len(text[here:]) - len(text[here:].lstrip())
        elif text.startswith(char, here):
            here = end = here + 1
        else:
            break
    return end


def _single_blanks(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def shown_result(data: Any) -> Any:
    """Return a verb's result, text or data. Inside `recording(results=True)`, variable names replace the recorded values."""
    return shown_data(data) if _results else data


def shown_data(data: Any) -> Any:
    """Return plain data with `shown` of each text; keys stay."""
    if isinstance(data, str):
        return shown(data)
    if isinstance(data, dict):
        return {key: shown_data(item) for key, item in data.items()}
    return [shown_data(item) for item in data] if isinstance(data, (list, tuple)) else data


class _Forms(NamedTuple):
    """The values as the output formats write them.

    Args:
        pattern: It matches every form, and the first CUT characters of a long one; a blank of it matches any white space.
        name_by_form: The variable by the form, with single blanks.
        form_by_prefix: A long form and its variable, by the form's first CUT characters.
    """

    pattern: re.Pattern[str]
    name_by_form: dict[str, str]
    form_by_prefix: dict[str, tuple[str, str]]


@lru_cache(4)
def _forms(recorded: tuple[tuple[str, str], ...]) -> _Forms | None:
    """Return the forms of recorded values; None if all values are too short."""
    import html  # its table of entities takes some milliseconds, and few project files use a variable's value

    name_by_form: dict[str, str] = {}
    for value, name in recorded:
        # a message is one line, so its values may appear line by line or joined by blanks
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
                    name_by_form.setdefault(_single_blanks(form), name)
    form_by_prefix = {form[:CUT]: (form, name) for form, name in name_by_form.items() if len(form) > CUT}
    # the longest first: one that is part of another would leave the rest of it in the text; blanks may be where a line was wrapped
    longest_first = sorted({*name_by_form, *form_by_prefix}, key=len, reverse=True)
    parts = [r"\s+".join(map(re.escape, form.split(" "))) for form in longest_first]
    return _Forms(re.compile("|".join(parts)), name_by_form, form_by_prefix) if parts else None
