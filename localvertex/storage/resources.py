"""Buckets and objects as the JSON resources of the Cloud Storage API, and the fields a client may write.

Source: https://cloud.google.com/storage/docs/json_api/v1/objects and .../buckets
"""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from localvertex.http import Json, invalid
from localvertex.storage.stored import Bucket, Object
from vertexrig import times

PROJECT_NUMBER = "123456789012"
"""The project number that the local Vertex answers with."""


def _is_text(value: Any) -> bool:
    # Values such as contentType become HTTP headers: control characters must not reach them.
    return isinstance(value, str) and len(value) <= 4096 and all(ord(c) >= 32 and c != "\x7f" for c in value)


def _is_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(v, str) for v in value.values())


Rule = tuple[Callable[[Any], bool], str]
Rules = Mapping[str, Rule]
_TEXT: Rule = (_is_text, "a string")
_MAP: Rule = (_is_map, "a map of strings")
_BOOLEAN: Rule = (lambda value: isinstance(value, bool), "a boolean")
_OBJECT: Rule = (lambda value: isinstance(value, dict), "an object")
_LIST: Rule = (lambda value: isinstance(value, list), "a list")

_OBJECT_TEXTS = (
    *("contentType", "contentEncoding", "contentDisposition", "contentLanguage", "cacheControl", "storageClass"),
    "customTime",
)
OBJECT_FIELDS: Rules = {
    **dict.fromkeys(_OBJECT_TEXTS, _TEXT),
    **dict.fromkeys(("temporaryHold", "eventBasedHold"), _BOOLEAN),
    "metadata": _MAP,
}
_BUCKET_OBJECTS = (
    *("retentionPolicy", "autoclass", "billing", "customPlacementConfig", "encryption", "hierarchicalNamespace"),
    *("iamConfiguration", "lifecycle", "logging", "softDeletePolicy", "versioning", "website"),
)
BUCKET_FIELDS: Rules = {
    **dict.fromkeys(("location", "storageClass", "rpo"), _TEXT),
    "labels": _MAP,
    "defaultEventBasedHold": _BOOLEAN,
    "cors": _LIST,
    **dict.fromkeys(_BUCKET_OBJECTS, _OBJECT),
}
"""Fields of `Bucket` and `Object` that a client may write, and what each has to be."""


def writable(body: Json, rules: Rules) -> Json:
    """Return the fields of a request body that a client may write; others are ignored, as the service does.

    Raises:
        ApiError: 400 for a value of the wrong type. null is let through: it clears a field.
    """
    kept = {}
    for name, (fits, what) in rules.items():
        if name not in body:
            continue
        value = body[name]
        if name in ("metadata", "labels") and isinstance(value, dict):
            # A PATCH clears one key of a map by null.
            fine = _is_map({k: v for k, v in value.items() if v is not None})
        else:
            fine = value is None or fits(value)
        if not fine:
            raise invalid(f"Invalid value for field '{name}': expected {what}.")
        kept[name] = value
    return kept


def check_policy(policy: Json) -> None:
    """Refuse, with a 400, an IAM policy whose bindings are not roles with members."""
    bindings = policy.get("bindings", [])
    for binding in bindings if isinstance(bindings, list) else [bindings]:
        members = binding.get("members", []) if isinstance(binding, dict) else None
        if not isinstance(members, list) or not isinstance(binding.get("role"), str) or not all(map(_is_text, members)):
            raise invalid("Invalid value for field 'bindings': expected a list of objects with 'role' and 'members'.")


def merged(meta: Json, change: Json) -> Json:
    """`meta` after a PATCH: null clears a field, and maps (`metadata`, `labels`) are merged key by key."""
    result = dict(meta)
    for name, value in change.items():
        if name in ("metadata", "labels") and isinstance(value, dict):
            # A map without keys is not shown at all.
            value = {k: v for k, v in {**(result.get(name) or {}), **value}.items() if v is not None} or None
        result[name] = value
    return {k: v for k, v in result.items() if v is not None}


def whole(body: Json) -> Json:
    """`meta` after an insert or PUT: nulls dropped."""
    return merged({}, body)


def guess_type(name: str) -> str:
    """Return the content type of an object that was written as a file."""
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def time_text(microseconds: int) -> str:
    """RFC 3339 with milliseconds, as Cloud Storage writes times."""
    return times.rfc3339(microseconds / 1e6, 3)


def etag(*parts: int) -> str:
    """Return an opaque tag that changes when any of the numbers does."""
    return base64.urlsafe_b64encode("/".join(map(str, parts)).encode()).decode()


def object_resource(o: Object, base: str) -> Json:
    """Return an object, its digests computed, as clients see it, with links below `base` (see `names.base`)."""
    path = f"/b/{quote(o.bucket, safe='')}/o/{quote(o.name, safe='')}"
    resource: Json = {
        "kind": "storage#object",
        "id": f"{o.bucket}/{o.name}/{o.generation}",
        "selfLink": f"{base}/storage/v1{path}",
        # gcloud and the client libraries download from this address.
        "mediaLink": f"{base}/download/storage/v1{path}?generation={o.generation}&alt=media",
        "name": o.name,
        "bucket": o.bucket,
        "generation": str(o.generation),
        "metageneration": str(o.metageneration),
        "contentType": "application/octet-stream",
        "storageClass": "STANDARD",
        "size": str(o.stamp.size),
        "crc32c": o.crc32c,
        "etag": etag(o.generation, o.metageneration),
        "timeCreated": time_text(o.created),
        "updated": time_text(o.updated),
        "timeStorageClassUpdated": time_text(o.created),
        "timeFinalized": time_text(o.created),
        **o.meta,
    }
    if o.md5 is not None:
        resource["md5Hash"] = o.md5
    if o.components is not None:
        resource["componentCount"] = o.components
    return resource


def bucket_resource(bucket: Bucket, base: str) -> Json:
    """Return a bucket as clients see it; see `object_resource` for `base`."""
    location = str(bucket.meta.get("location", "US")).upper()
    uniform = {"enabled": True, "lockedTime": time_text(bucket.created)}
    return {
        "kind": "storage#bucket",
        "id": bucket.name,
        "selfLink": f"{base}/storage/v1/b/{bucket.name}",
        "name": bucket.name,
        "projectNumber": PROJECT_NUMBER,
        "metageneration": str(bucket.metageneration),
        "generation": str(bucket.created),
        "storageClass": "STANDARD",
        "etag": etag(bucket.created, bucket.metageneration),
        "timeCreated": time_text(bucket.created),
        "updated": time_text(bucket.updated),
        "iamConfiguration": {"uniformBucketLevelAccess": uniform, "publicAccessPrevention": "inherited"},
        **bucket.meta,
        # After the client's fields: it may have sent the location in lower case.
        "location": location,
        "locationType": "multi-region" if location in ("US", "EU", "ASIA") else "region",
    }
