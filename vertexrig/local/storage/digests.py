"""MD5 and CRC32C of a file, as Cloud Storage writes them: base64 of the big-endian bytes."""

from __future__ import annotations

import base64
import hashlib
import os

CHUNK = 1 << 20


def digests(descriptor: int) -> tuple[str, str]:
    """(md5, crc32c) of an open file, read from its start."""
    import google_crc32c  # a C extension, loaded when the first object is hashed

    md5, crc, offset = hashlib.md5(usedforsecurity=False), 0, 0
    while chunk := os.pread(descriptor, CHUNK, offset):
        md5.update(chunk)
        crc = int(google_crc32c.extend(crc, chunk))
        offset += len(chunk)
    return base64.b64encode(md5.digest()).decode(), base64.b64encode(crc.to_bytes(4, "big")).decode()
