"""The rules of buckets and objects: preconditions, generations, and files that are changed without the API."""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

from localvertex.http import MAKER, ApiError, Json, invalid, not_found
from localvertex.storage import resources
from localvertex.storage.conditions import MESSAGE, Conditions
from localvertex.storage.names import check_bucket, check_new_bucket, check_object
from localvertex.storage.object_files import CHUNK, Files, digests, remove_empty, stamp_of
from localvertex.storage.records import Records
from localvertex.storage.stored import Bucket, Object
from vertexrig.cloud.cron import zone_of

ANY = Conditions()


class Page(NamedTuple):
    """One page of a listing: objects, prefixes, and the token of the next page (empty when there is none)."""

    items: list[Object]
    prefixes: list[str]
    token: str


@dataclass(frozen=True)
class Query:
    """What to list; see https://cloud.google.com/storage/docs/json_api/v1/objects/list."""

    prefix: str = ""
    delimiter: str = ""
    after: str = ""
    limit: int = 1000
    start: str = ""
    end: str = ""
    trailing: bool = False
    versions: bool = False
    matching: re.Pattern[str] | None = None


class NoBucketError(ApiError):
    """A bucket that is not there, which the XML API tells from an object."""


class KeptError(ApiError):
    """An object that a hold or a retention policy keeps (403).

    Args:
        message: What keeps it.
        xml: The code and the message of the XML API, which has the former as its details.
    """

    def __init__(self, message: str, *, xml: tuple[str, str], reason: str | None = None) -> None:
        super().__init__(403, message, reason=reason)
        self.xml = xml


_OWN_NAME = "Your previous request to create the named bucket succeeded and you already own it."
_TAKEN = (
    "The requested bucket name is not available. The bucket namespace is shared by all users of the system. Please select a "
    "different name and try again."
)
"""Of another project's bucket (its first sentence: index id 59708244977, 2026)."""
MOST_NOTIFICATIONS = 10
"""Of one event of a bucket."""
_MISSED_KEPT = 100
"""Most names of missing buckets that are kept."""


class ObjectStore:
    """Buckets and objects under one root. Safe to use from many threads.

    Other programs may read and write `<root>/gs/<bucket>` at any time: each request compares an object with its file, and a
    new or changed file has a new generation.
    """

    def __init__(self, root: Path) -> None:
        self.files = Files(root)
        self.records = Records(self.files.state / "storage.sqlite3")
        self.lock = self.records.database.lock
        self._missed: dict[str, set[str]] = {}

    def close(self) -> None:
        self.records.database.close()

    # -- buckets

    def create_bucket(self, name: str, meta: Json | None = None, *, reserved: bool = False) -> Bucket:
        """Make a bucket; 409 if it is there, 400 for a name of Google's unless `reserved`, as that of a build's logs is."""
        (check_bucket if reserved else check_new_bucket)(name)
        with self.records.database.transaction():
            if self.files.has_bucket(name):
                known = self.records.bucket(name)
                projects = {one.get(resources.PROJECT, "") for one in (known.meta if known else {}, meta or {})} - {""}
                # A project may be named by its number, too, which all projects here share.
                others = len(projects) > 1 and not any(map(str.isdecimal, projects))
                raise ApiError(409, _TAKEN if others else _OWN_NAME)
            now = self.records.tick()
            # Settings that are refused leave no folder, which would be a bucket.
            bucket = Bucket(name, 1, now, now, resources.settled(name, meta or {}, {}, now))
            self.files.bucket(name).mkdir()
            self._drop_bucket(name)
            self.records.save_bucket(bucket)
        return bucket

    def bucket(self, name: str, conditions: Conditions = ANY) -> Bucket:
        """Return a bucket, 404 if there is none. Every folder below `gs` with a valid name is a bucket."""
        with self.records.database.transaction():
            if not self.files.has_bucket(name):
                check_bucket(name)
                # Clients choose the names.
                if name in self._missed or len(self._missed) < _MISSED_KEPT:
                    self._missed.setdefault(name, set()).add(MAKER.get())
                raise NoBucketError(404, "The specified bucket does not exist.")
            bucket = self.records.bucket(name)
            if bucket is None:
                now = self.records.tick()
                bucket = Bucket(name, 1, now, now)
                self.records.save_bucket(bucket)
        conditions.check(None, bucket.metageneration, header="")
        return bucket

    def absent(self, run: str = "") -> list[str]:
        """Return requested buckets that do not exist; with `run` those that this command, or no command, requested."""
        with self.lock:
            asked = [name for name, by in self._missed.items() if not run or {run, ""} & by]
            return sorted(name for name in asked if not self.files.has_bucket(name))

    def buckets(self, prefix: str = "", after: str = "", limit: int = 1000) -> tuple[list[Bucket], str]:
        """Return one page of buckets by name, and the token of the next."""
        names = [name for name in self.files.bucket_names() if name.startswith(prefix) and name > after]
        token = names[limit - 1] if len(names) > limit else ""
        return [self.bucket(name) for name in names[:limit]], token

    def change_bucket(self, name: str, change: Callable[[Json], Json], conditions: Conditions = ANY) -> Bucket:
        """Replace a bucket's writable fields by `change` of them."""
        with self.records.database.transaction():
            old = self.bucket(name, conditions)
            now = self.records.tick()
            meta = resources.settled(name, change(old.meta), old.meta, now)
            if meta == old.meta:
                return old
            new = replace(old, metageneration=old.metageneration + 1, updated=now, meta=meta)
            self.records.save_bucket(new)
            if meta.get("retentionPolicy") != old.meta.get("retentionPolicy"):
                # It holds for the objects that are there, too.
                for known in self.records.objects(name, list(self.records.names(name, "", ""))).values():
                    kept = resources.retained(known.created, known.meta, meta)
                    self.records.save_object(replace(known, meta=kept))
        return new

    def delete_bucket(self, name: str, conditions: Conditions = ANY) -> None:
        """Delete an empty bucket; 409 if it holds objects."""
        with self.records.database.transaction():
            self.bucket(name, conditions)
            if self.list(name, Query(limit=1, versions=True)).items:
                raise ApiError(409, "The bucket you tried to delete is not empty.")
            remove_empty(self.files.bucket(name))
            if self.files.has_bucket(name):
                reason = "The bucket's folder holds something that is not an object, such as a symbolic link."
                raise ApiError(409, reason)
            self._drop_bucket(name)

    def _drop_bucket(self, name: str) -> None:
        """Forget a bucket, and remove its noncurrent generations."""
        self.files.drop_kept(name)
        self.records.drop_bucket(name)

    def clear(self) -> None:
        """Remove all buckets with their objects."""
        with self.lock, self.records.database.transaction():
            for name in self.files.bucket_names():
                # The folder alone where it is a link of the user's.
                folder = self.files.bucket(name)
                folder.unlink() if folder.is_symlink() else shutil.rmtree(folder, ignore_errors=True)
                self._drop_bucket(name)
            self._missed.clear()

    def policy(self, name: str) -> Json:
        """Return a bucket's IAM policy: kept and shown; only a header of public objects depends on it."""
        with self.records.database.transaction():
            bucket = self.bucket(name)
            number, policy = self.records.policy(name)
        bindings = (
            resources.with_list(policy["bindings"], bucket.meta) if number else resources.legacy_bindings(bucket.meta)
        )
        # Whatever version was sent (the answer to gcloud's 3, of a policy without conditions, is 1).
        version = 3 if any("condition" in one for one in bindings) else 1
        whose = {"resourceId": f"projects/_/buckets/{name}"}
        tag = resources.etag(bucket.metageneration)
        return {**whose, "version": version, "etag": tag, "bindings": bindings}

    def set_policy(self, name: str, policy: Json) -> Json:
        """Keep another IAM policy of a bucket; 412 if the bucket changed since the policy that `etag` names was read."""
        with self.records.database.transaction():
            known, bucket = self.policy(name), self.bucket(name)
            bindings = policy.get("bindings", [])
            if any("condition" in one for one in bindings):
                if not resources.is_uniform(bucket.meta):
                    reason = "To set a conditional policy on this bucket, enable uniform bucket-level access first."
                    raise ApiError(412, reason)
                if policy.get("version") != 3:
                    raise invalid("The version of a policy with conditions must be at least 3.")
            if policy.get("etag"):
                resources.check_tag(policy["etag"])
                if policy["etag"] != known["etag"]:
                    raise ApiError(412, MESSAGE)
            resources.check_public(bucket.meta, [one for binding in bindings for one in binding.get("members", [])])
            bindings = resources.stored_bindings(bindings)
            self.records.save_policy(name, {"bindings": bindings})
            listed = {} if resources.is_uniform(bucket.meta) else {"acl": resources.legacy_entries(bindings)}
            changed = replace(
                bucket,
                metageneration=bucket.metageneration + 1,
                updated=self.records.tick(),
                meta={**bucket.meta, **listed},
            )
            self.records.save_bucket(changed)
            return self.policy(name)

    def add_notification(self, name: str, sent: Json) -> Json:
        """Keep a notification of a bucket; 400 for one event of too many (zig-gcp's recording of 2026-10-01)."""
        with self.records.database.transaction():
            bucket = self.bucket(name)
            present = bucket.meta.get(resources.NOTIFICATIONS, [])
            for event in sent.get("event_types") or resources.EVENTS:
                if sum(event in (one.get("event_types") or [event]) for one in present) >= MOST_NOTIFICATIONS:
                    raise invalid(f"Too many overlapping notifications. The maximum is {MOST_NOTIFICATIONS}.")
            # A number is never given again.
            last = max(bucket.meta.get(resources.LAST_NOTIFICATION, 0), *(int(one["id"]) for one in present), 0)
            number = str(last + 1)
            made = {**sent, "id": number, "etag": number}
            own = {resources.NOTIFICATIONS: [*present, made], resources.LAST_NOTIFICATION: last + 1}
            # Not a change of the bucket itself.
            self.records.save_bucket(replace(bucket, meta={**bucket.meta, **own}))
        return made

    def notification(self, name: str, number: str) -> Json:
        """Return a notification of a bucket, 404 if there is none."""
        for one in self.bucket(name).meta.get(resources.NOTIFICATIONS, []):
            if one["id"] == number:
                return dict(one)
        raise not_found("The requested resource was not found.")

    def delete_notification(self, name: str, number: str) -> None:
        with self.records.database.transaction():
            self.notification(name, number)
            bucket = self.bucket(name)
            kept = [one for one in bucket.meta[resources.NOTIFICATIONS] if one["id"] != number]
            self.records.save_bucket(replace(bucket, meta={**bucket.meta, resources.NOTIFICATIONS: kept}))

    # -- objects

    def find(self, bucket: str, name: str) -> Object | None:
        """Return the live object, brought up to date with its file, or None."""
        with self.records.database.transaction():
            known = self.records.object(bucket, name)
            return self._fresh(bucket, name, known)

    def _fresh(self, bucket: str, name: str, known: Object | None) -> Object | None:
        """Return the current record of an object whose stored one is `known`. Called in a transaction."""
        seen = self.files.stamp(bucket, name, odd=False)
        if seen is not None:  # a plain file counts before an odd one of its name: it was written later
            if known is not None and not known.odd and known.stamp == seen:
                return known
            now = self.records.tick()
            settings = self.records.bucket(bucket)
            own = settings.meta if settings else {}
            meta = resources.retained(now, _inherited(own) | {"contentType": resources.guess_type(name)}, own)
            return self.records.save_object(Object(bucket, name, now, 1, seen, False, None, None, None, now, now, meta))
        if known is not None and known.odd and self.files.stamp(bucket, name, odd=True) == known.stamp:
            return known
        if known is not None:
            self.records.drop_object(bucket, name)
        return None

    def get(
        self,
        bucket: str,
        name: str,
        conditions: Conditions = ANY,
        generation: int | None = None,
    ) -> Object:
        """Return the live object, or the one of `generation`; 404 if there is none."""
        self.bucket(bucket)
        found = self.find(bucket, name)
        if generation is not None and (found is None or found.generation != generation):
            found = self.records.generation(bucket, name, generation)
        if found is None:
            raise not_found(f"No such object: {bucket}/{name}")
        conditions.check(found.generation, found.metageneration)
        return found

    def digested(self, o: Object) -> Object:
        """Return the object with its digests, computed now if its file was not written through the API."""
        if o.crc32c is not None:
            return o
        o, descriptor = self.open(o)
        try:
            md5, crc32c = digests(descriptor)
        finally:
            os.close(descriptor)
        return self.records.save_digests(o, md5, crc32c)

    def open(self, o: Object) -> tuple[Object, int]:
        """Return the object and a descriptor of its bytes; the caller closes it.

        If the file was replaced meanwhile, the object is read again, so that its record and bytes agree.
        """
        # A trainer that rewrites its file all the time must not hold a request for ever.
        for _ in range(5):
            noncurrent = o.deleted is not None
            path = self.files.kept(o.bucket, o.generation) if noncurrent else self.files.path(o.bucket, o.name, o.odd)
            try:  # O_NONBLOCK: opening a named pipe would wait for a writer
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK) if path else -1
            except OSError:
                descriptor = -1
            if descriptor >= 0:
                status = os.fstat(descriptor)
                if stat.S_ISREG(status.st_mode) and stamp_of(status) == o.stamp:
                    return o, descriptor
                os.close(descriptor)
            o = self.get(o.bucket, o.name, generation=o.generation if noncurrent else None)
        raise ApiError(503, f"The file of {o.bucket}/{o.name} keeps changing; repeat the request.")

    def put(
        self,
        bucket: str,
        name: str,
        source: Path,
        meta: Json | None = None,
        conditions: Conditions = ANY,
        *,
        components: int | None = None,
        expect: Json | None = None,
    ) -> Object:
        """Make the file `source` the object's bytes; `source` is moved, or removed on an error.

        Args:
            bucket: The bucket, 404 if it is not there.
            name: The object.
            source: A file made at `files.temp()`.
            meta: Writable fields; contentType defaults to application/octet-stream.
            conditions: Checked and acted on in one step.
            components: Number of parts of a composed object, which has no MD5.
            expect: `md5Hash` and `crc32c` as the client computed them, if it did; a mismatch is a 400.
        """
        try:
            check_object(name)
            descriptor = os.open(source, os.O_RDONLY)
            try:
                md5, crc32c = digests(descriptor)
                written = stamp_of(os.fstat(descriptor))
            finally:
                os.close(descriptor)
            # Before the transaction: hashing a large file must not hold the lock.
            _check_digests(expect or {}, md5, crc32c)
            with self.records.database.transaction():
                settings = self.bucket(bucket).meta
                old = self.find(bucket, name)
                conditions.check(old.generation if old else None, old.metageneration if old else None)
                if old is not None:
                    _check_free(old, settings)
                now = self.records.tick()
                if old is not None and is_versioned(settings):
                    self._keep(old, now)
                # In the transaction, though a file cannot be rolled back: one without a record is found as a new
                # object.
                odd = self.files.put(bucket, name, source)
                # The same name may become a path or stop being one, as `a` does beside `a/b`.
                if old is not None and old.odd != odd:
                    self.files.remove(bucket, name, odd=old.odd)
                sums = (None if components else md5, crc32c, components)
                entries = (meta or {}).get("acl", [])
                if entries and resources.is_uniform(settings):
                    raise resources.no_acl("insert", "an object")
                resources.check_public(settings, [one["entity"] for one in entries])
                meta = resources.retained(now, _inherited(settings) | (meta or {}), settings)
                return self.records.save_object(Object(bucket, name, now, 1, written, odd, *sums, now, now, meta))
        finally:
            source.unlink(missing_ok=True)

    def _keep(self, live: Object, now: int) -> None:
        """Keep an object that is about to be replaced or deleted as a noncurrent generation. Called in a transaction."""
        live = self.digested(live)
        stamp = self.files.keep(live.bucket, live.name, live.generation, odd=live.odd)
        if stamp is not None:
            self.records.save_object(replace(live, stamp=stamp, deleted=now))

    def change(
        self,
        bucket: str,
        name: str,
        change: Callable[[Json], Json],
        conditions: Conditions = ANY,
        generation: int | None = None,
    ) -> Object:
        """Replace an object's writable fields by `change` of them."""
        with self.records.database.transaction():
            old = self.get(bucket, name, conditions, generation)
            now = self.records.tick()
            kept = (resources.SINCE, "storageClass")
            meta = {k: v for k, v in old.meta.items() if k in kept} | change(old.meta)
            if old.meta.get("eventBasedHold") and not meta.get("eventBasedHold"):
                meta[resources.SINCE] = now
            settings = self.bucket(bucket).meta
            resources.check_public(settings, [one["entity"] for one in meta.get("acl", [])])
            meta = resources.retained(old.created, meta, settings)
            if resources.moment(meta.get("customTime")) < resources.moment(old.meta.get("customTime")):
                raise invalid("Custom time cannot be removed or set to an earlier time.")
            new = replace(old, metageneration=old.metageneration + 1, updated=now, meta=meta)
            return self.records.save_object(new)

    def delete(self, bucket: str, name: str, conditions: Conditions = ANY, generation: int | None = None) -> None:
        """Delete the live object, which stays as a noncurrent generation in a bucket with versioning, or the one of `generation`; 404 if there is none."""
        with self.records.database.transaction():
            old, settings = self.get(bucket, name, conditions, generation), self.bucket(bucket).meta
            _check_free(old, settings)
            if old.deleted is not None:
                self.files.drop_kept(bucket, old.generation)
                self.records.drop_generation(old)
                return
            if generation is None and is_versioned(settings):
                self._keep(old, self.records.tick())
            self.files.remove(bucket, name, odd=old.odd)
            self.records.drop_object(bucket, name)

    def copy(self, source: Object, bucket: str, name: str, meta: Json | None, conditions: Conditions = ANY) -> Object:
        """Copy an object; `meta` None keeps its fields."""
        (source,), path = self.gather([source])
        meta = {k: v for k, v in source.meta.items() if k not in _OWN} if meta is None else meta
        return self.put(bucket, name, path, meta, conditions, components=source.components)

    def move(self, source: Object, name: str, conditions: Conditions = ANY) -> Object:
        """Rename an object within its bucket."""
        with self.records.database.transaction():
            _check_free(source, self.bucket(source.bucket).meta)
            made = self.copy(source, source.bucket, name, None, conditions)
            if name != source.name:
                self.delete(source.bucket, source.name)
        return made

    def gather(self, sources: Iterable[Object]) -> tuple[list[Object], Path]:
        """Return the sources as they are now, and a temporary file with their bytes joined."""
        path, now = self.files.temp(), []
        try:
            with path.open("wb") as out:
                for source in sources:
                    fresh, descriptor = self.open(source)
                    now.append(fresh)
                    with os.fdopen(descriptor, "rb") as data:
                        shutil.copyfileobj(data, out, CHUNK)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return now, path

    def compose(
        self, bucket: str, name: str, sources: list[Object], meta: Json | None = None, conditions: Conditions = ANY
    ) -> Object:
        """Join 1 to 32 objects of one bucket into one (https://cloud.google.com/storage/docs/composite-objects)."""
        if not sources:
            raise ApiError(400, "You must provide at least one source component.", reason="required")
        wanted = resources.storage_class(meta or {}, self.bucket(bucket).meta)
        other = sorted({resources.storage_class(source.meta) for source in sources} - {wanted})
        if other:
            message = f"Cannot compose object with destination storage class {wanted} from source components that have different storage classes"
            raise invalid(f"{message} ({', '.join(other)})")
        sources, path = self.gather(sources)
        # As the service counts: parts of composed sources, each.
        parts = sum(source.components or 1 for source in sources)
        return self.put(bucket, name, path, meta, conditions, components=parts)

    # -- listing

    def list(self, bucket: str, query: Query) -> Page:
        """Return one page of a bucket's objects in the order of their names' UTF-8 bytes."""
        self.bucket(bucket)
        with self.records.database.transaction():
            recorded = self.records.names(bucket, query.prefix, query.after)
            # The folder decides what is there, and the records add what a file does not show.
            names = set(self.files.names(bucket, query.prefix, query.after)) | {
                name for name, odd in recorded.items() if odd
            }
            for gone in recorded.keys() - names:
                self.records.drop_object(bucket, gone)
            older: dict[str, list[Object]] = {}
            for one in self.records.noncurrent(bucket, query.prefix, query.after) if query.versions else ():
                older.setdefault(one.name, []).append(one)
            chosen, prefixes, token = _page(sorted(names | older.keys()), query)
            # of the page only: a record is read and parsed once in a whole listing
            known = self.records.objects(bucket, chosen)
            found = [(*older.get(name, ()), self._fresh(bucket, name, known.get(name))) for name in chosen]
        return Page([item for items in found for item in items if item is not None], prefixes, token)


def is_versioned(bucket: Json) -> bool:
    """Whether a bucket keeps what is replaced or deleted as noncurrent generations."""
    return bool((bucket.get("versioning") or {}).get("enabled"))


def _group(name: str, query: Query) -> str:
    """Return the prefix that a name is listed under, or "" when it is listed itself."""
    if not query.delimiter:
        return ""
    cut = name.find(query.delimiter, len(query.prefix))
    return "" if cut < 0 else name[: cut + len(query.delimiter)]


def _page(names: list[str], query: Query) -> tuple[list[str], list[str], str]:
    """Object names and prefixes of one page, and the token of the next: the last name or prefix of this one."""
    objects: list[str] = []
    prefixes: list[str] = []
    last, count = query.after, 0
    for name in names:
        if name < query.start or (query.end and name >= query.end):
            continue
        group = _group(name, query)
        # A prefix is matched as it is listed, whatever is below it.
        if query.matching and not query.matching.fullmatch(group or name):
            continue
        # Names of one prefix follow each other, and the object named like the prefix comes first of them.
        if (group or name) <= last:
            continue
        if count >= query.limit:
            return objects, prefixes, last
        last, count = group or name, count + 1
        if group:
            prefixes.append(group)
        if not group or (query.trailing and name == group):
            objects.append(name)
    return objects, prefixes, ""


_OWN = ("storageClass", "temporaryHold", "eventBasedHold", "retentionExpirationTime", "acl", resources.SINCE)
"""Fields of an object that its copy does not have."""


def _inherited(bucket: Json) -> Json:
    """Return the fields that a new object gets from its bucket."""
    found: Json = {"eventBasedHold": True} if bucket.get("defaultEventBasedHold") else {}
    if "storageClass" in bucket:
        found["storageClass"] = bucket["storageClass"]
    if "defaultObjectAcl" in bucket:
        found["acl"] = bucket["defaultObjectAcl"]
    return found


def _check_free(o: Object, bucket: Json) -> None:
    """Raise a 403 where a hold or the bucket's retention policy keeps an object from being deleted or overwritten.

    The words are those of zig-gcp's recording of 2026-09-30.
    """
    for field, what in (("temporaryHold", "Temporary"), ("eventBasedHold", "Event-Based")):
        if o.meta.get(field):
            held = f"Object '{o.bucket}/{o.name}' is under active {what} hold and cannot be deleted, overwritten or archived until hold is removed."
            why = "Object overwrite or deletion is not allowed due to active hold on the object."
            raise KeptError(held, xml=("ObjectUnderActiveHold", why))
    until = resources.kept_until(o.created, o.meta, bucket)
    if until > time.time_ns() // 1000:
        text = (datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=until)).astimezone(
            zone_of("America/Los_Angeles")
        )
        kept = f"Object '{o.bucket}/{o.name}' is subject to bucket's retention policy or object retention and cannot be deleted or overwritten until {text.isoformat()}"
        why = "Object overwrite or deletion is not allowed due to retention policy."
        raise KeptError(kept, xml=("RetentionPolicyNotMet", why), reason="retentionPolicyNotMet")


def _check_digests(expect: Json, md5: str, crc32c: str) -> None:
    for field, what, actual in (("md5Hash", "MD5 hash", md5), ("crc32c", "CRC32C", crc32c)):
        given = expect.get(field)
        if given is not None and given != actual:
            raise invalid(f'Provided {what} "{str(given)[:80]}" doesn\'t match calculated {what} "{actual}".')
