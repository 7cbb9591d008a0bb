"""The API's fields in a fix under their names in the project file; where the file has another shape a rule gives `key_fix`."""

from __future__ import annotations

import re
from functools import cache

from vertexrig.spec.names import camel, snake

_AROUND = ("machineSpec.", "diskSpec.", "scheduling.")
"""Messages of the API whose fields the file has in the job or pool itself."""
_CAMEL = re.compile(r"(?<![\w./-])[a-z]+(?:[A-Z][a-z0-9]*)+(?![\w/(])")
_PATH = re.compile(r"\[[0-9]+\]\.")


def in_keys(fix: str) -> str:
    """A fix with the keys of the project file in place of the API's fields."""
    if _PATH.search(fix):
        return fix  # a place in the spec, which the file has elsewhere
    for prefix in _AROUND:
        fix = fix.replace(prefix, "")
    return _CAMEL.sub(lambda found: snake(found[0]) if found[0] in _fields() else found[0], fix)


@cache
def _fields() -> frozenset[str]:
    """The API's names of the file's keys: a trainer's own names, such as a metric valAccuracy, stay as they are."""
    from vertexrig.catalog import typed  # for a fix that names a field, which few runs have
    from vertexrig.project.keys import places

    return frozenset(camel(name) for cls in places() for name in typed.hints(cls))
