"""Buckets, objects and uploads as the store keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from localvertex.http import Json


class Stamp(NamedTuple):
    """Size in bytes, modification time in ns and inode of a file, which change when the file does."""

    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True)
class Bucket:
    """A bucket. Times are microseconds since the epoch; `meta` holds the writable fields as clients sent them."""

    name: str
    metageneration: int
    created: int
    updated: int
    meta: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Object:
    """An object: a live one, or a noncurrent generation of it.

    Args:
        generation: Microseconds since the epoch when its bytes were stored, made unique and rising.
        metageneration: Counts changes of `meta`, from 1.
        stamp: The state of the file that these facts describe.
        odd: Whether it lies in the folder of names that cannot be paths.
        md5: Base64 MD5 of the bytes; None when not yet computed, or for a composed object.
        crc32c: Base64 CRC32C; None when not yet computed.
        components: How many parts a composed object has, else None.
        created: When this generation was made, in microseconds since the epoch.
        updated: When `meta` last changed, likewise.
        meta: The writable fields as clients sent them.
        deleted: When it became noncurrent, likewise; None for the live object.
    """

    bucket: str
    name: str
    generation: int
    metageneration: int
    stamp: Stamp
    odd: bool
    md5: str | None
    crc32c: str | None
    components: int | None
    created: int
    updated: int
    meta: Json = field(default_factory=dict)
    deleted: int | None = None


@dataclass(frozen=True)
class Upload:
    """A resumable upload.

    Args:
        id: Its secret id.
        meta: Object fields sent when it began.
        conditions: The request's precondition parameters.
        received: Bytes that are safe on disk.
        generation: The object's generation once the upload is done.
    """

    id: str
    bucket: str
    name: str
    meta: Json
    conditions: Json
    received: int = 0
    generation: int | None = None
