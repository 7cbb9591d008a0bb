"""Names in requests: fields in the API's two spellings, and the projects and regions that hosts and paths are made of.

Fields are camelCase in JSON, snake_case in protobuf and in the project file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from vertexrig.errors import ConfigError


class Form(NamedTuple):
    """The form of a name: a pattern of the whole text, and what it is in words."""

    pattern: str
    words: str


# they keep a project file from choosing the host a token is sent to
PROJECT = Form(r"([a-z0-9.-]{1,63}:)?[a-z0-9][a-z0-9-]{0,62}", "a project id such as my-project")
REGION = Form(r"[a-z]{2,20}(-[a-z]{2,20}){1,2}[0-9]{1,2}", "a region such as us-central1")
NAME = Form(
    r"[a-z0-9][a-z0-9_-]{0,62}", "a name: lowercase letters, digits, - and _, at most 63, a letter or digit first"
)
# The service numbers its jobs; no other id is one.
JOB = re.compile(r"projects/([^/]+)/locations/([^/]+)/(customJobs|hyperparameterTuningJobs)/([0-9]+)")
# A name with dots may have 222 characters, one without 63 (Cloud Storage's naming rules): the longer one is let through
# here.
BUCKET = Form(
    r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/.*)?",
    "a bucket such as gs://my-bucket: lowercase letters, digits, -, _ and ., a letter or digit first and last",
)


@lru_cache(10_000)  # a study of 1,000 trials has its few names a million times
def camel(name: str) -> str:
    """Return `machine_type` as `machineType`; a name that is camelCase already stays."""
    head, *rest = name.split("_")
    # not capitalize(), which makes the rest of the part small letters
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def snake(name: str) -> str:
    """Return `machineType` as `machine_type`; in a path every part is changed."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: f"_{match[1].lower()}", name)


def camel_keys(data: Any) -> Any:
    """Return plain data with every key of every mapping in camelCase."""
    if isinstance(data, Mapping):
        return {camel(str(key)): camel_keys(value) for key, value in data.items()}
    return [camel_keys(value) for value in data] if isinstance(data, (list, tuple)) else data


def snake_keys(data: Any) -> Any:
    """Return plain data with every key of every mapping in snake_case, as the project file writes the API's fields."""
    if isinstance(data, Mapping):
        # the keys of labels are the user's own
        return {snake(str(key)): value if key == "labels" else snake_keys(value) for key, value in data.items()}
    return [snake_keys(value) for value in data] if isinstance(data, (list, tuple)) else data


def location(project: str, region: str) -> str:
    """Return the parent of a region's resources, `projects/P/locations/R`; ConfigError if one is not a name: it could lead to another host."""
    for value, form in ((project, PROJECT), (region, REGION)):
        if not re.fullmatch(form.pattern, value):
            raise ConfigError(f"{value[:80]!r} is not {form.words}")
    return f"projects/{project}/locations/{region}"
