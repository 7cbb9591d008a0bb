"""Whether what was seen is what a row expects: JMESPath finds it, JSON Schema says what form it must have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import jmespath
import jsonschema

from tools.fidelity.manifest import ManifestRow

SAME, DIFFERS, NOT_TRIED = "same", "differs", "not tried"


@dataclass(frozen=True)
class Verdict:
    """How a row came out.

    Args:
        row: The row.
        result: `SAME`, `DIFFERS` or `NOT_TRIED`.
        seen: What the probe found, None where nothing was there.
        why: In what it differs, or why it was not tried.
    """

    row: ManifestRow
    result: str
    seen: Any = None
    why: str = ""


def judge(row: ManifestRow, record: Mapping[str, Any]) -> Verdict:
    """Hold one row against a record.

    Args:
        row: The row.
        record: Of its script, by step; or the answer to its own request.
    """
    try:
        seen = jmespath.search(row.probe, record)
    except jmespath.exceptions.JMESPathError as error:  # such as length() of what is not there
        return Verdict(row, DIFFERS, None, f"the probe finds nothing: {' '.join(str(error).split())[:200]}")
    if row.expect is False:
        return _absent(row, record, seen)
    # The outermost first, whatever order the validator has.
    errors = sorted(_schemas()(row.expect).iter_errors(seen), key=lambda error: list(map(str, error.path)))
    if not errors:
        return Verdict(row, SAME, seen)
    first = errors[0]
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first.path)
    return Verdict(row, DIFFERS, seen, f"{place.lstrip('.')}: {first.message}" if place else first.message)


def _absent(row: ManifestRow, record: Mapping[str, Any], seen: Any) -> Verdict:
    """Return the verdict of a row that expects nothing: what would hold the field has to be there."""
    holder = row.probe.rpartition(".")[0]
    if seen is not None:
        return Verdict(row, DIFFERS, seen, "it is there")
    # Else a row that expects nothing would hold for an answer that never came.
    if jmespath.search(holder, record) is None:
        return Verdict(row, DIFFERS, None, f"there is no {holder} to look at")
    return Verdict(row, SAME)


@cache
def _schemas() -> Any:
    """Return JSON Schema with `includes`, for a part of a text, and `inOrder` and `noneMatches`, for lists of texts."""
    return jsonschema.validators.extend(
        jsonschema.Draft202012Validator, {"includes": _includes, "inOrder": _in_order, "noneMatches": _none_matches}
    )


def _includes(_: Any, pattern: str, text: Any, __: Any) -> Iterator[Any]:
    if not isinstance(text, str) or not re.search(pattern, text):
        yield jsonschema.ValidationError(f"{short(text)!r} has no part like {pattern!r}")


def _in_order(_: Any, patterns: list[str], texts: Any, __: Any) -> Iterator[Any]:
    """Texts that fit the patterns come in the order of the patterns; others may be between them."""
    place = 0
    found = texts if isinstance(texts, list) else []
    for pattern in patterns:
        while place < len(found) and not re.search(pattern, str(found[place])):
            place += 1
        if place == len(found):
            yield jsonschema.ValidationError(f"nothing like {pattern!r} comes in its place")
            return
        place += 1


def _none_matches(_: Any, pattern: str, texts: Any, __: Any) -> Iterator[Any]:
    if not isinstance(texts, list):
        yield jsonschema.ValidationError("there is no list of texts")
    for text in texts or []:
        if re.search(pattern, str(text)):
            yield jsonschema.ValidationError(f"{str(text)[:80]!r} fits {pattern!r}")


def short(value: Any, most: int = 160) -> str:
    """Return a value on one line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
