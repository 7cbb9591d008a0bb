"""The files of objects.

`<root>/gs/<bucket>/<object>` holds every object whose name can be a path, so that people and trainers can read and
write it as a file. The few others (`a//b`, `a/`, or `a` beside `a/b`) lie under `<root>/storage/odd`, named by a hash.
Noncurrent generations lie under `<root>/storage/noncurrent/<bucket>`, named by their numbers.
Symbolic links are never followed: nothing outside the folder can be read or written through it.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import google_crc32c

from localvertex.object_paths import odd_path, plain_parts
from localvertex.storage.names import NAME_LIMIT, is_bucket
from localvertex.storage.stored import Stamp


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the stamp of a file's status."""
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)


class Files:
    """The folders under one root, which are made where they are missing."""

    def __init__(self, root: Path) -> None:
        self.buckets = root / "gs"
        self.state = root / "storage"
        self.odd = self.state / "odd"
        self.noncurrent = self.state / "noncurrent"
        self.scratch = self.state / "tmp"
        for folder in (self.buckets, self.odd, self.scratch):
            folder.mkdir(parents=True, exist_ok=True)
        self._sweep()

    def _sweep(self) -> None:
        """Remove files of uploads that a crash cut off: those older than a day."""
        for path in self.scratch.iterdir():
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < time.time() - 86400:
                    path.unlink()

    def temp(self) -> Path:
        """Return a new path on the same file system as the objects."""
        return self.scratch / secrets.token_hex(16)

    def bucket(self, name: str) -> Path:
        """Return a bucket's folder. The caller has checked the name."""
        return self.buckets / name

    def has_bucket(self, name: str) -> bool:
        """Whether the bucket's folder exists and is not a symbolic link."""
        return is_bucket(name) and _is_folder(self.bucket(name))

    def bucket_names(self) -> list[str]:
        """Return every folder that is a bucket, sorted."""
        return sorted(entry.name for entry in os.scandir(self.buckets) if self.has_bucket(entry.name))

    def plain_path(self, bucket: str, name: str, *, make: bool = False) -> Path | None:
        """Return the path of an object's file, or None if its name cannot be a path, or a folder of it is a symbolic link.

        With `make` missing folders are made.
        """
        parts = plain_parts(name)
        if parts is None:
            return None
        folder = self.bucket(bucket)
        for part in parts[:-1]:
            folder = folder / part
            try:
                if make:
                    folder.mkdir(exist_ok=True)
            except OSError as error:
                if isinstance(error, FileExistsError) or _is_name_trouble(error):
                    return None
                raise
            if not _is_folder(folder):
                return None
        return folder / parts[-1]

    def path(self, bucket: str, name: str, odd: bool) -> Path | None:
        """Return the path of an object's bytes, given how it was stored."""
        return odd_path(self.state, bucket, name) if odd else self.plain_path(bucket, name)

    def kept(self, bucket: str, generation: int) -> Path:
        """Return the path of a noncurrent generation's bytes: its number is no other's."""
        return self.noncurrent / bucket / str(generation)

    def keep(self, bucket: str, name: str, generation: int, *, odd: bool) -> Stamp | None:
        """Keep the bytes of an object that is about to be replaced or removed; None if its file has just gone."""
        path, target = self.path(bucket, name, odd), self.kept(bucket, generation)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path or "", target, follow_symlinks=False)
        except OSError:
            return None
        return stamp_of(os.lstat(target))

    def drop_kept(self, bucket: str, generation: int | None = None) -> None:
        """Remove the bytes of one noncurrent generation, or of all of a bucket."""
        if generation is None:
            shutil.rmtree(self.noncurrent / bucket, ignore_errors=True)
        else:
            self.kept(bucket, generation).unlink(missing_ok=True)

    def stamp(self, bucket: str, name: str, *, odd: bool) -> Stamp | None:
        """Return the stamp of the file an object is stored in, or None when there is no such regular file."""
        path = self.path(bucket, name, odd)
        try:
            # lstat, since links are not followed.
            status = os.lstat(path) if path else None
        except (OSError, ValueError):
            return None
        return stamp_of(status) if status and stat.S_ISREG(status.st_mode) else None

    def put(self, bucket: str, name: str, source: Path) -> bool:
        """Move `source` to the object's path, atomically; returns whether that is in the folder of odd names."""
        target = self._free_path(bucket, name)
        odd = target is None
        if target is not None:
            try:
                source.replace(target)
            except OSError as error:
                if not _is_name_trouble(error):
                    raise
                odd = True
        if odd:
            target = odd_path(self.state, bucket, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            source.replace(target)
        return odd

    def _free_path(self, bucket: str, name: str) -> Path | None:
        """Return the plain path after its folders are made, and empty folders at the path removed; None if a file prevents that."""
        target = self.plain_path(bucket, name, make=True)
        if target is None:
            return None
        if _is_folder(target):
            # Cloud Storage has no folders: an empty one on disk must not keep an object of its name away.
            remove_empty(target)
        return None if _is_folder(target) else target

    def remove(self, bucket: str, name: str, *, odd: bool) -> None:
        """Remove an object's file and the folders it leaves empty, as Cloud Storage has no empty folders."""
        path = self.path(bucket, name, odd)
        if path is None:
            return
        path.unlink(missing_ok=True)
        top = self.odd if odd else self.bucket(bucket)
        for folder in path.parents:
            if folder == top:
                return
            try:
                folder.rmdir()
            except OSError:
                return

    def names(self, bucket: str, prefix: str, after: str) -> Iterator[str]:
        """Yield names of the regular files below a bucket's folder that start with `prefix` and come after `after`, in no order."""
        parts = prefix.split("/")[:-1]
        # "x" stands for any name: only its folder is used, which must not be reached over a link.
        start = self.plain_path(bucket, "/".join([*parts, "x"])) if parts else self.bucket(bucket) / "x"
        if start is None:
            return
        stack = [(start.parent, "/".join(parts) + "/" if parts else "")]
        while stack:
            folder, path = stack.pop()
            try:
                # A folder may be removed meanwhile.
                entries = list(os.scandir(folder))
            except OSError:
                continue
            for entry in entries:
                name = path + entry.name
                # what a folder holds begins with its name: all of it is before `after`, or none
                if f"{name}/" <= after and not after.startswith(f"{name}/"):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if name.startswith(prefix) or prefix.startswith(name + "/"):
                        stack.append((Path(entry.path), name + "/"))
                elif entry.is_file(follow_symlinks=False) and name.startswith(prefix) and _is_text(name):
                    yield name


def remove_empty(folder: Path) -> None:
    """Remove a folder tree that holds no files; leaves what is not empty."""
    for path, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            Path(path).rmdir()


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def _is_text(name: str) -> bool:
    try:
        return len(name.encode("utf-8")) <= NAME_LIMIT and "\n" not in name and "\r" not in name
    except UnicodeEncodeError:
        return False


def _is_name_trouble(error: OSError) -> bool:
    """Whether the file system cannot hold this name: it is too long, not encodable, or a file is where a folder is needed."""
    return error.errno in (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EILSEQ, errno.EINVAL)


CHUNK = 1 << 20


class Sums:
    """The checksums of a file's first bytes, which may be read in several calls."""

    def __init__(self) -> None:
        self.md5, self.size, self._crc = hashlib.md5(usedforsecurity=False), 0, 0

    def read(self, descriptor: int, end: int | None = None) -> None:
        """Add the bytes that follow, up to `end` or the file's end."""
        while chunk := os.pread(descriptor, CHUNK if end is None else min(CHUNK, end - self.size), self.size):
            self.md5.update(chunk)
            self._crc = int(google_crc32c.extend(self._crc, chunk))
            self.size += len(chunk)

    @property
    def crc32c(self) -> str:
        """The CRC32C in Base64."""
        return base64.b64encode(self._crc.to_bytes(4, "big")).decode()


def digests(descriptor: int) -> tuple[str, str]:
    """(md5, crc32c) of an open file, read from its start."""
    sums = Sums()
    sums.read(descriptor)
    return base64.b64encode(sums.md5.digest()).decode(), sums.crc32c
