"""Fixes in the words of the project file: what a rule proposes for the API's fields, for somebody who writes the file's keys."""

from __future__ import annotations

import re
from functools import cache

from vertexrig.spec.names import camel, snake

_OUTPUT = "bucket: gs://BUCKET at the top of the file, or base_output_directory: gs://BUCKET/PATH"
# fields that the file has in another shape, the longer ones first
_SHAPES = (
    ("baseOutputDirectory: {outputUriPrefix: gs://BUCKET/PATH}", _OUTPUT),
    ("baseOutputDirectory,", f"{_OUTPUT},"),
    ('scheduling: {timeout: "3600s"} in trialJobSpec', "timeout: 3600s in the job"),
    ("metrics: [{metricId: accuracy, goal: MAXIMIZE}]", "metrics: {accuracy: MAXIMIZE}"),
    ("containerSpec.imageUri", "container.image_uri"),
    ("containerSpec", "container"),
    ("pythonPackageSpec", "trainer"),
    ("pythonModule", "module"),
    ("studySpec", "study"),
)
_AROUND = ("machineSpec.", "diskSpec.", "scheduling.")
"""Messages of the API whose fields the file has in the job or pool itself."""
_CAMEL = re.compile(r"(?<![\w./-])[a-z]+(?:[A-Z][a-z0-9]*)+(?![\w/(])")
_PATH = re.compile(r"\[[0-9]+\]\.")


def in_keys(fix: str) -> str:
    """A fix with the keys of the project file in place of the API's fields."""
    if _PATH.search(fix):
        return fix  # a place in the spec, which the file has elsewhere
    for field, key in _SHAPES:
        fix = fix.replace(field, key)
    for prefix in _AROUND:
        fix = fix.replace(prefix, "")
    return _CAMEL.sub(lambda found: snake(found[0]) if found[0] in _fields() else found[0], fix)


@cache
def _fields() -> frozenset[str]:
    """The API's names of the file's keys: a trainer's own names, such as a metric valAccuracy, stay as they are."""
    from vertexrig.catalog import typed  # for a fix that names a field, which few runs have
    from vertexrig.project.keys import places

    return frozenset(camel(name) for cls in places() for name in typed.hints(cls))
