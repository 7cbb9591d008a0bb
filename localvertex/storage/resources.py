"""Buckets and objects as the JSON resources of the Cloud Storage API, and the fields a client may write.

Source: https://cloud.google.com/storage/docs/json_api/v1/objects and .../buckets
"""

from __future__ import annotations

import base64
import mimetypes
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from localvertex.http import ApiError, Json, invalid, invalid_parameter
from localvertex.storage.stored import Bucket, Object
from vertexrig import times

PROJECT_NUMBER = "123456789012"
"""The project number that the local Vertex answers with."""
PROJECT_PRIVATE: list[Json] = [
    {
        "entity": f"project-{team}-{PROJECT_NUMBER}",
        "role": role,
        "projectTeam": {"projectNumber": PROJECT_NUMBER, "team": team},
    }
    for team, role in (("owners", "OWNER"), ("editors", "OWNER"), ("viewers", "READER"))
]
"""The access control list of a bucket or an object without one of its own."""


def _is_text(value: Any) -> bool:
    # Values such as contentType become HTTP headers: control characters must not reach them.
    return isinstance(value, str) and len(value) <= 4096 and all(ord(c) >= 32 and c != "\x7f" for c in value)


def _is_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(v, str) for v in value.values())


MOST_ENTRIES = 100
"""Of an access control list."""


def checked_acl(entries: Any, *, of_bucket: bool) -> list[Json]:
    """Return the entries of an access control list as they are kept; 400 with the service's words for a wrong one.

    Source: zig-gcp's recording of 2026-10-05
    """
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise invalid("Invalid value for field 'acl': expected a list of objects with 'entity' and 'role'.")
    if len(entries) > MOST_ENTRIES:
        message = f"An access control list can contain at most {MOST_ENTRIES} entries."
        raise ApiError(400, message, reason="tooManyAccessControlEntries")
    kept: dict[str, Json] = {}
    for one in entries:
        entity, role = one.get("entity"), one.get("role")
        if not entity:
            raise ApiError(400, "Required: entity", reason="required")
        if not role:
            raise ApiError(400, "Access control must contain a role", reason="required")
        if role not in ROLES or (role == "WRITER" and not of_bucket):
            raise invalid(f"Invalid value for: {str(role)[:80]} is not a valid value")
        if not _ENTITY.fullmatch(str(entity)):
            raise invalid(f'Scope text "{str(entity)[:200]}" is not valid.')
        # Project teams as they are known here; addresses in lower case.
        entity = entity.lower() if entity.startswith(("user-", "group-", "domain-")) else entity
        if team := re.match(r"project-(?:owners|editors|viewers)-(?!\d)", entity):
            entity = f"{team[0]}{PROJECT_NUMBER}"  # of a project's id the number is kept
        known = next((team for team in PROJECT_PRIVATE if team["entity"] == entity), {})
        kept[entity] = {**known, **acl_rule(entity, role)}
    return list(kept.values())


CLASSES = (
    *("STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE"),
    *("MULTI_REGIONAL", "REGIONAL", "DURABLE_REDUCED_AVAILABILITY"),
)
"""Storage classes (https://cloud.google.com/storage/docs/storage-classes); the last three are older names."""
PROJECT = "_project"
"""Where a bucket's fields keep the project that it was made in."""
NOTIFICATIONS = "_notifications"
"""Where a bucket's fields keep its notifications, which a client does not see as a field."""
LAST_NOTIFICATION = "_last_notification"
"""Where they keep the number of the newest one."""
ROLES = ("OWNER", "READER", "WRITER")
_ENTITY = re.compile(r"allUsers|allAuthenticatedUsers|(?:user|group|domain)-\S+|project-(?:owners|editors|viewers)-\S+")


def moment(text: Any) -> int:
    """Return the time that a field has, in nanoseconds since 1970, 0 for none."""
    return times.nanoseconds(str(text)) or 0


def _is_time(value: Any) -> bool:
    return isinstance(value, str) and times.nanoseconds(value) is not None


def _is_cors(value: Any) -> bool:
    # They become HTTP headers.
    return isinstance(value, list) and all(
        isinstance(rule, dict)
        and str(rule.get("maxAgeSeconds", 0)).isdecimal()
        and all(
            isinstance(texts, list) and all(_is_text(text) and text.isascii() for text in texts)
            for texts in (rule.get(name, []) for name in ("origin", "method", "responseHeader"))
        )
        for rule in value
    )


def _is_labels(value: Any) -> bool:
    return (
        _is_map(value)
        and len(value) <= 64
        and all(
            len(part) <= 63 and all(c in "_-" or (c.isalnum() and c == c.lower()) for c in part)
            for part in (*value, *value.values())
        )
        and all(key[:1].isalpha() for key in value)
    )


Rule = tuple[Callable[[Any], bool], str]
Rules = Mapping[str, Rule]
_TEXT: Rule = (_is_text, "a string")
_MAP: Rule = (_is_map, "a map of strings")
_BOOLEAN: Rule = (lambda value: isinstance(value, bool), "a boolean")
_OBJECT: Rule = (lambda value: isinstance(value, dict), "an object")

EVENTS = ("OBJECT_FINALIZE", "OBJECT_METADATA_UPDATE", "OBJECT_DELETE", "OBJECT_ARCHIVE", "OBJECT_INITIALIZE")
"""Of a notification, in the order in which they are shown."""
NOTIFICATION_FIELDS: Rules = {
    **dict.fromkeys(("topic", "payload_format", "object_name_prefix"), _TEXT),
    "custom_attributes": _MAP,
    "event_types": (
        lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
        "a list of " + ", ".join(EVENTS),
    ),
}
_CLASS: Rule = (lambda value: value in CLASSES, "")
"""Without words: the service says "Invalid argument." alone."""

_OBJECT_TEXTS = ("contentType", "contentEncoding", "contentDisposition", "contentLanguage", "cacheControl")
OBJECT_FIELDS: Rules = {
    **dict.fromkeys(_OBJECT_TEXTS, _TEXT),
    **dict.fromkeys(("temporaryHold", "eventBasedHold"), _BOOLEAN),
    "metadata": _MAP,
    "storageClass": _CLASS,
    "customTime": (_is_time, "a time of RFC 3339"),
    "acl": (lambda value: True, ""),  # `checked_acl` does it
}
_BUCKET_OBJECTS = (
    *("retentionPolicy", "autoclass", "billing", "customPlacementConfig", "encryption", "hierarchicalNamespace"),
    *("iamConfiguration", "ipFilter", "lifecycle", "logging", "softDeletePolicy", "versioning", "website"),
)
BUCKET_FIELDS: Rules = {
    **dict.fromkeys(("location", "rpo"), _TEXT),
    "storageClass": _CLASS,
    "labels": (_is_labels, ""),
    "defaultEventBasedHold": _BOOLEAN,
    **dict.fromkeys(("acl", "defaultObjectAcl"), OBJECT_FIELDS["acl"]),
    "cors": (_is_cors, "a list of objects with 'origin', 'method', 'responseHeader' and 'maxAgeSeconds'"),
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
        if name == "storageClass" and isinstance(value, str):
            value = value.upper()  # in any letters (lab GSP294, recording of 2020-11-11)
        if name in ("metadata", "labels") and isinstance(value, dict):
            # A PATCH clears one key of a map by null.
            fine = fits({k: v for k, v in value.items() if v is not None})
        else:
            fine = value is None or fits(value)
        if not fine:
            raise invalid(f"Invalid value for field '{name}': expected {what}." if what else "Invalid argument.")
        if name in ("acl", "defaultObjectAcl") and value is not None:
            value = checked_acl(value, of_bucket=name == "acl" and rules is BUCKET_FIELDS)
            if not value:  # an empty list is ignored
                continue
        kept[name] = value
    return kept


_STORAGE_ROLE = re.compile(r"roles/storage\.\w+|(?:projects|organizations)/[^/]+/roles/\S+")
_ADDRESS = re.compile(r"(?:user|serviceAccount|group|domain):.+")
_PUBLIC = {"allUsers", "allAuthenticatedUsers"}


_LEGACY = {role: f"roles/storage.legacyBucket{role.capitalize()}" for role in ("OWNER", "WRITER", "READER")}
"""The role of an IAM policy that each role of a bucket's access control list is (https://cloud.google.com/storage/docs/access-control/iam)."""
_TEAMS = {"projectOwner": "owners", "projectEditor": "editors", "projectViewer": "viewers"}


def legacy_bindings(meta: Json) -> list[Json]:
    """Return the bindings of a bucket's policy that nobody has set: those of its access control list, or four with uniform access."""
    project = meta.get(PROJECT, PROJECT_NUMBER)
    if is_uniform(meta):
        owners, viewers = [f"projectEditor:{project}", f"projectOwner:{project}"], [f"projectViewer:{project}"]
        return [
            {"role": f"roles/storage.legacy{kind}{whose}", "members": members}
            for kind in ("Bucket", "Object")
            for whose, members in (("Owner", owners), ("Reader", viewers))
        ]
    members: dict[str, list[str]] = {role: [] for role in _LEGACY}
    for one in meta.get("acl", PROJECT_PRIVATE):
        members[one["role"]].append(_member(one, project))
    return [{"role": _LEGACY[role], "members": sorted(found)} for role, found in members.items() if found]


def _member(entry: Json, project: str) -> str:
    """Return the member of an IAM policy that an entry of an access control list names."""
    team = (entry.get("projectTeam") or {}).get("team")
    if team:
        return f"{next(kind for kind, name in _TEAMS.items() if name == team)}:{project}"
    kind, _, named = entry["entity"].partition("-")
    return f"{'serviceAccount' if named.endswith('.gserviceaccount.com') else kind}:{named}" if named else str(kind)


def legacy_entries(bindings: Sequence[Json]) -> list[Json]:
    """Return the access control list of a bucket with such a policy (cloud-custodian's recording of 2026-02-27)."""
    entries: dict[str, Json] = {}
    for role, name in _LEGACY.items():  # of several roles of a member the first counts
        for member in (one for binding in bindings if binding["role"] == name for one in binding["members"]):
            kind, _, named = member.partition(":")
            known = [one for one in PROJECT_PRIVATE if one["projectTeam"]["team"] == _TEAMS.get(kind)]
            entity = f"{'user' if kind == 'serviceAccount' else kind}-{named}" if named else kind
            entry = {**known[0], "role": role} if known else acl_rule(entity, role)
            entries.setdefault(entry["entity"], entry)
    return sorted(entries.values(), key=lambda entry: "projectTeam" not in entry)


def with_list(bindings: Sequence[Json], meta: Json) -> list[Json]:
    """Return the bindings of a policy that was set, with what the bucket's access control list says by now."""
    if is_uniform(meta):
        return list(bindings)
    listed = {one["role"]: one for one in legacy_bindings(meta)}
    kept = [listed.pop(one["role"], None) if one["role"] in _LEGACY.values() else one for one in bindings]
    return [*listed.values(), *filter(None, kept)]


def stored_bindings(bindings: Sequence[Json]) -> list[Json]:
    """Return an IAM policy's bindings as the service keeps them (zig-gcp's recording of 2026-10-01).

    One without members is dropped, addresses are in lower case, bindings of one role without conditions are one, and
    members are sorted (cloud-custodian's recording of 2026-02-27).
    """
    kept: list[Json] = []
    for binding in bindings:
        members = [one.lower() if _ADDRESS.fullmatch(one) else one for one in binding.get("members", [])]
        members = [re.sub("^serviceaccount:", "serviceAccount:", one) for one in members]
        same = [
            one
            for one in kept
            if one["role"] == binding["role"] and not (one.keys() | binding.keys()) - {"role", "members"}
        ]
        if same:
            same[0]["members"] = sorted({*same[0]["members"], *members})
        elif members:
            kept.append({**binding, "members": sorted(set(members))})
    return kept


def check_public(meta: Json, names: Iterable[str]) -> None:
    """Raise a 412 where a bucket that prevents public access would be given to the public."""
    if meta.get("iamConfiguration", {}).get("publicAccessPrevention") == "enforced" and _PUBLIC & set(names):
        message = "The member bindings allUsers and allAuthenticatedUsers are not allowed since public access prevention is enforced."
        raise ApiError(412, message)


def check_tag(tag: Any) -> None:
    """Raise a 400 for a policy's etag that the service cannot have made."""
    try:
        raw = base64.b64decode(str(tag), validate=True)
    except ValueError:
        raw = b""
    if raw[:1] != b"\x08" or len(raw) < 2:
        raise invalid("Invalid etag - must use etag from GetPolicy response.")


def check_policy(policy: Json) -> None:
    """Refuse, with a 400, an IAM policy whose bindings are not roles of storage with members."""
    bindings = policy.get("bindings", [])
    for binding in bindings if isinstance(bindings, list) else [bindings]:
        members = binding.get("members", []) if isinstance(binding, dict) else None
        if not isinstance(members, list) or not isinstance(binding.get("role"), str) or not all(map(_is_text, members)):
            raise invalid("Invalid value for field 'bindings': expected a list of objects with 'role' and 'members'.")
        if not _STORAGE_ROLE.fullmatch(binding["role"]):
            raise invalid(f"Role {binding['role'][:200]} is not supported for this resource.")


def merged(meta: Json, change: Json) -> Json:
    """`meta` after a PATCH: null clears a field, as an empty map clears all labels, and objects are merged key by key."""
    result = dict(meta)
    for name, value in change.items():
        if name == "labels" and value == {}:
            value = None
        elif isinstance(value, dict):
            # A map without keys is not shown at all.
            value = {k: v for k, v in {**(result.get(name) or {}), **value}.items() if v is not None} or None
        result[name] = value
    return {k: v for k, v in result.items() if v is not None}


SINCE = "_since"
"""Where an object's fields keep when its event-based hold was released, in microseconds since 1970."""


def kept_until(created: int, meta: Json, bucket: Json) -> int:
    """Return until when its bucket's retention policy keeps an object, in microseconds since 1970, 0 if it does not."""
    period = bucket.get("retentionPolicy", {}).get("retentionPeriod")
    # An event-based hold puts the period off.
    if not period or meta.get("eventBasedHold"):
        return 0
    return int(meta.get(SINCE, created)) + int(period) * 1_000_000


def retained(created: int, meta: Json, bucket: Json) -> Json:
    """Return an object's fields with the time until which its bucket's policy keeps it."""
    rest = {key: value for key, value in meta.items() if key != "retentionExpirationTime"}
    until = kept_until(created, meta, bucket)
    return {**rest, "retentionExpirationTime": time_text(until)} if until else rest


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
    """Return the tag that Cloud Storage makes of these numbers: a protobuf message with them as its first fields, in Base64."""
    message = b"".join(_varint(n << 3) + _varint(part) for n, part in enumerate(parts, 1))
    return base64.b64encode(message).decode()


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


_OBJECT_ORDER = (
    "kind id selfLink mediaLink name bucket generation metageneration contentType storageClass size md5Hash "
    "contentEncoding contentDisposition contentLanguage cacheControl crc32c componentCount etag temporaryHold "
    "eventBasedHold retentionExpirationTime timeCreated updated timeStorageClassUpdated timeFinalized"
).split()
"""Of an object's fields; others follow (gcsfs's recordings of 2021-05-10, zig-gcp's of 2026-09-29)."""
_BUCKET_ORDER = (
    "kind selfLink id name projectNumber generation metageneration location storageClass etag "
    "defaultEventBasedHold timeCreated updated acl defaultObjectAcl owner cors lifecycle labels retentionPolicy "
    "softDeletePolicy iamConfiguration locationType rpo"
).split()
"""Of a bucket's fields; others follow (cloud-custodian's recordings of 2026)."""


_HOSTS = ("https://storage.googleapis.com", "https://www.googleapis.com")
"""Of the link to an object's bytes, and of the link of a resource to itself, whichever of them is asked (answers of 2023 and 2024)."""


def self_base(base: str) -> str:
    """Return how the link of a resource to itself begins."""
    return _HOSTS[1] if base in _HOSTS else base


def _ordered(found: Json, order: Sequence[str]) -> Json:
    return {key: found[key] for key in order if key in found} | found


def object_resource(o: Object, base: str) -> Json:
    """Return an object, its digests computed, as clients see it, with links below `base` (see `names.base`)."""
    path = f"/b/{quote(o.bucket, safe='')}/o/{quote(o.name, safe='')}"
    resource: Json = {
        "kind": "storage#object",
        "id": f"{o.bucket}/{o.name}/{o.generation}",
        "selfLink": f"{self_base(base)}/storage/v1{path}",
        # gcloud and the client libraries download from this address.
        "mediaLink": f"{_HOSTS[0] if base in _HOSTS else base}/download/storage/v1{path}?generation={o.generation}&alt=media",
        "name": o.name,
        "bucket": o.bucket,
        "generation": str(o.generation),
        "metageneration": str(o.metageneration),
        "storageClass": storage_class(o.meta),
        "size": str(o.stamp.size),
        "crc32c": o.crc32c,
        "etag": etag(o.generation, o.metageneration),
        "timeCreated": time_text(o.created),
        "updated": time_text(o.updated),
        "timeStorageClassUpdated": time_text(o.created),
        "timeFinalized": time_text(o.created),
        **{key: value for key, value in o.meta.items() if key != "acl" and key[:1] != "_"},
    }
    if o.md5 is not None:
        resource["md5Hash"] = o.md5
    if o.components is not None:
        resource["componentCount"] = o.components
    if o.deleted is not None:
        resource["timeDeleted"] = time_text(o.deleted)
    return _ordered(resource, _OBJECT_ORDER)


def storage_class(*metas: Json) -> str:
    """Return the storage class of an object: its own, else its bucket's."""
    return next((meta["storageClass"] for meta in metas if "storageClass" in meta), "STANDARD")


def acl(meta: Json, field: str, where: Json, base: str = "", *, tag: str) -> list[Json]:
    """Return the access control list of the bucket, or the object and generation, in `where`: shown, and no access depends on it.

    Each entry has the `tag` of its bucket or object (cloud-custodian's recording of 2026-02-06).
    """
    kind = "storage#bucketAccessControl" if list(where) == ["bucket"] else "storage#objectAccessControl"
    entries = []
    for one in meta.get(field, PROJECT_PRIVATE):
        links: Json = {}
        if where:  # an entry for new objects has none
            path = f"{self_base(base)}/storage/v1/b/{where['bucket']}"
            if "object" in where:
                path += f"/o/{quote(where['object'], safe='')}"
            links = {
                "id": "/".join([*where.values(), one["entity"]]),
                "selfLink": f"{path}/acl/{quote(one['entity'], safe='')}",
            }
        shown = {**where, **one, "etag": tag}
        team = {"projectTeam": shown.pop("projectTeam")} if "projectTeam" in one else {}
        entries.append({"kind": kind, **links, **shown, **team})
    return entries


_PREDEFINED: Mapping[str, Sequence[tuple[str, str]]] = {
    "authenticatedread": [("allAuthenticatedUsers", "READER")],
    "publicread": [("allUsers", "READER")],
    "publicreadwrite": [("allUsers", "WRITER")],
    **dict.fromkeys(("private", "bucketownerread", "bucketownerfullcontrol"), ()),
}
"""Whom a predefined list, here in lower case, names beside the owners (https://cloud.google.com/storage/docs/access-control/lists)."""


def predefined(asked: Mapping[str, str], sent: Json) -> Json:
    """Return the fields that a request sets by the names of predefined lists, beside those that it has `sent`."""
    found: Json = {}
    for name, field in (("predefinedAcl", "acl"), ("predefinedDefaultObjectAcl", "defaultObjectAcl")):
        value = asked.get(name)
        lower = (value or "").lower()  # in any case: "authenticatedread" is taken (gcsfs's recording of 2020-03-10)
        if lower == "projectprivate":
            found[field] = PROJECT_PRIVATE
        elif lower in _PREDEFINED:
            found[field] = [PROJECT_PRIVATE[0], *(acl_rule(*one) for one in _PREDEFINED[lower])]
        elif value:
            raise invalid_parameter(name, f"Invalid value '{value[:80]}'.")
        if value and sent.get(field):
            raise ApiError(409, f"Cannot provide both a {name} and access controls.")
    return found


def acl_rule(entity: str, role: str) -> Json:
    """Return an entry of an access control list, with what its entity names."""
    kind, _, named = entity.partition("-")
    shown = {"user": "email", "group": "email", "domain": "domain"}.get(kind)
    return {"entity": entity, "role": role, **({shown: named} if shown and named else {})}


MULTI_REGIONS = ("US", "EU", "ASIA")
DUAL_REGIONS = ("ASIA1", "EUR4", "EUR5", "EUR7", "EUR8", "NAM4")
_REGION = re.compile(r"[A-Z]{2,}-[A-Z]+[0-9]{1,2}")
SOFT_DELETE = {"retentionDurationSeconds": str(7 * 86400)}


def is_uniform(meta: Json) -> bool:
    """Whether a bucket has uniform bucket-level access, which rules out ACLs."""
    configured = meta.get("iamConfiguration", {})
    named = configured.get("uniformBucketLevelAccess", configured.get("bucketPolicyOnly"))
    return isinstance(named, dict) and named.get("enabled") is True


_NO_ACL = {
    "get a bucket": "get legacy ACL for a bucket that has uniform bucket-level access",
    "update a bucket": "use ACL API to update bucket policy when uniform bucket-level access is enabled",
    "update an object": "update access control for an object when uniform bucket-level access is enabled",
}


def no_acl(verb: str, what: str) -> ApiError:
    """Return the refusal of an access control list where a bucket has uniform access."""
    link = "https://cloud.google.com/storage/docs/uniform-bucket-level-access"
    usual = f"{verb} legacy ACL for {what} when uniform bucket-level access is enabled"
    return invalid(f"Cannot {_NO_ACL.get(f'{verb} {what}', usual)}. Read more at {link}")


_PERIODS = {
    "softDeletePolicy": ("retentionDurationSeconds", 7 * 86400, 90 * 86400),
    "retentionPolicy": ("retentionPeriod", 1, 3_155_760_000),
}
"""The fields of a bucket's policies with a time, and its bounds in seconds (zig-gcp's recording of 2026-09-30)."""


_ACTIONS = {"Delete", "SetStorageClass", "AbortIncompleteMultipartUpload"}


def _check_lifecycle(rules: list[Json]) -> None:
    """Refuse a lifecycle rule without a known action, or one that sets no class (google-cloud-python pull 5877)."""
    for rule in rules:
        action = rule.get("action", {})
        if action.get("type") not in _ACTIONS or (
            action["type"] == "SetStorageClass" and not action.get("storageClass")
        ):
            raise invalid("Invalid argument.")


def _autoclass(sent: Json, known: Json, text: str) -> Json:
    """Return a bucket's Autoclass with the times of its changes (k8s-config-connector's recording)."""
    since = known.get("toggleTime") if known.get("enabled") == sent.get("enabled") else None
    found = {**sent, "toggleTime": since or text}
    if sent.get("enabled"):
        last = sent.get("terminalStorageClass", "NEARLINE")
        same = known.get("terminalStorageClass") == last
        at = known.get("terminalStorageClassUpdateTime") if same else None
        found |= {"terminalStorageClass": last, "terminalStorageClassUpdateTime": at or text}
    return found


def settled(name: str, meta: Json, old: Json, now: int) -> Json:
    """Return the new fields of a bucket with what the service adds: since when its policies hold.

    Raises:
        ApiError: 400 for a value that does not fit, 403 where a locked retention policy would be shortened.
    """
    meta, text = dict(meta), time_text(now)
    _check_lifecycle(meta.get("lifecycle", {}).get("rule", []))
    if "autoclass" in meta:
        meta["autoclass"] = _autoclass(meta["autoclass"], old.get("autoclass", {}), text)
    place = str(meta.get("location", "US")).upper()
    if place not in (*MULTI_REGIONS, *DUAL_REGIONS) and not _REGION.fullmatch(place):
        raise invalid("The specified location constraint is not valid.")
    regional = {"REGIONAL": False, "MULTI_REGIONAL": True}.get(meta.get("storageClass", ""))
    if regional is not None and regional != (place in MULTI_REGIONS):
        raise invalid(
            "The combination of locationConstraint and storageClass you provided is not supported for your project"
        )
    meta["softDeletePolicy"] = {**SOFT_DELETE, **meta.get("softDeletePolicy", {})}
    if meta["softDeletePolicy"]["retentionDurationSeconds"] in ("0", 0):
        meta["softDeletePolicy"].pop("effectiveTime", None)
    for policy, (field, least, most) in _PERIODS.items():
        if policy not in meta:
            continue
        sent = str(meta[policy].get(field, ""))
        is_off = policy == "softDeletePolicy" and sent == "0"
        if not is_off and not (re.fullmatch(r"[0-9]{1,10}", sent) and least <= int(sent) <= most):
            raise invalid(f"Invalid value for {policy}.{field}: {sent[:80]!r}.")
        if not is_off:
            known = old.get(policy, {})
            since = known.get("effectiveTime", text) if str(known.get(field)) == sent else text
            meta[policy] = {**meta[policy], field: sent, "effectiveTime": since}
    locked = old.get("retentionPolicy", {})
    if locked.get("isLocked"):
        if "retentionPolicy" not in meta:
            message = f"Bucket '{name}' has a locked Retention Policy which cannot be removed."
            raise ApiError(403, message, reason="retentionPolicyNotMet")
        if int(meta["retentionPolicy"]["retentionPeriod"]) < int(locked["retentionPeriod"]):
            message = f"Cannot reduce retention duration of a locked Retention Policy for bucket '{name}'."
            raise ApiError(403, message, reason="retentionPolicyNotMet")
        meta["retentionPolicy"]["isLocked"] = True
    prevention = meta.get("iamConfiguration", {}).get("publicAccessPrevention", "inherited")
    if prevention not in ("inherited", "unspecified", "enforced"):
        raise invalid(f"Invalid argument: publicAccessPrevention {str(prevention)[:80]!r}.")
    check_public(meta, [one["entity"] for field in ("acl", "defaultObjectAcl") for one in meta.get(field, [])])
    if is_uniform(meta):
        since = old.get("uniformSince") or time_text(now + 90 * 86400 * 1_000_000)
        meta["uniformSince"] = since
    else:
        meta.pop("uniformSince", None)
    return meta


def bucket_resource(bucket: Bucket, base: str, lists: Json | None = None) -> Json:
    """Return a bucket as clients see it, with its owner and access control `lists` if they are given; see `object_resource` for `base`."""
    meta = dict(bucket.meta)
    location = str(meta.get("location", "US")).upper()
    kind = "multi-region" if location in MULTI_REGIONS else "region"
    if location in DUAL_REGIONS or "customPlacementConfig" in meta:
        kind = "dual-region"
    uniform = {"enabled": True, "lockedTime": meta.pop("uniformSince", "")} if is_uniform(meta) else {"enabled": False}
    access = {"publicAccessPrevention": "inherited", **meta.pop("iamConfiguration", {})}
    if meta.get("lifecycle", {}).get("rule") == []:
        del meta["lifecycle"]
    shown = {
        "kind": "storage#bucket",
        "id": bucket.name,
        "selfLink": f"{self_base(base)}/storage/v1/b/{bucket.name}",
        "name": bucket.name,
        "projectNumber": PROJECT_NUMBER,
        "metageneration": str(bucket.metageneration),
        # Nanoseconds, of which microseconds are known (describe of 2026-01-26).
        "generation": str(bucket.created * 1000 + zlib.crc32(bucket.name.encode()) % 1000),
        "storageClass": "STANDARD",
        "etag": etag(bucket.metageneration),
        "timeCreated": time_text(bucket.created),
        "updated": time_text(bucket.updated),
        "softDeletePolicy": {**SOFT_DELETE, "effectiveTime": time_text(bucket.created)},
        **({} if kind == "region" else {"rpo": "DEFAULT"}),
        **{key: value for key, value in meta.items() if key not in ("acl", "defaultObjectAcl") and key[0] != "_"},
        "iamConfiguration": {"bucketPolicyOnly": uniform, "uniformBucketLevelAccess": uniform}
        | {key: value for key, value in access.items() if key not in ("bucketPolicyOnly", "uniformBucketLevelAccess")},
        # After the client's fields: it may have sent the location in lower case.
        "location": location,
        "locationType": kind,
        **(lists or {}),
    }
    return _ordered(shown, _BUCKET_ORDER)
