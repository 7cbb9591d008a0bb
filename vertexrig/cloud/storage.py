"""The only module that talks to Cloud Storage: what claims, budgets and packages need of its JSON API.

Not google-cloud-storage: see `vertexrig.cloud.rest` for what its import costs. Preconditions and listing are strongly
consistent (https://cloud.google.com/storage/docs/consistency), and claims and budgets rest on that.
"""

from __future__ import annotations

import copy
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import quote

from vertexrig import times
from vertexrig.cloud.rest import Rest, RestError
from vertexrig.errors import UsageError

ENDPOINT_VARIABLE = "STORAGE_EMULATOR_HOST"
"""Environment variable with the base URL of another server; google-cloud-storage reads the same one."""


@dataclass(frozen=True)
class StoredObject:
    """An object as read.

    Args:
        generation: Changes with each write.
        age_s: Seconds since it was written, where that was asked for.
        read_at: When it was read, by the service's clock; None if the answer had no date.
    """

    data: bytes
    generation: int
    age_s: float = 0.0
    read_at: datetime | None = None


@dataclass(frozen=True)
class Item:
    """An object as listed.

    Args:
        name: Below the bucket's own prefix.
        generation: Changes with each write.
        created: When this generation was written, RFC 3339 with microseconds or milliseconds.
        size: Its bytes.
        metadata: Its own keys and values, where those were asked for.
    """

    name: str
    generation: int
    created: str
    size: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)


S = TypeVar("S", bound="Storage")


class Storage:
    """A bucket, or a folder of one.

    Args:
        uri: `gs://bucket` or `gs://bucket/folder`.
        url: The service; by default what STORAGE_EMULATOR_HOST says, if it is set.
        location: The region to make it in, for the message when there is no such bucket.
    """

    def __init__(self, uri: str, *, url: str | None = None, location: str = "") -> None:
        if not uri.startswith("gs://"):
            raise UsageError(f"{uri!r} is not a bucket such as gs://my-bucket")
        self.location = location
        self.bucket, _, prefix = uri.removeprefix("gs://").partition("/")
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        base = url or os.environ.get(ENDPOINT_VARIABLE) or "https://storage.googleapis.com"
        # Google's client for Go takes the variable without a scheme, too.
        self.rest = Rest(base if "://" in base else f"http://{base}", "Cloud Storage")

    def below(self: S, folder: str) -> S:
        """Return a folder of it, over the same connection."""
        found = copy.copy(self)
        found.prefix = f"{self.prefix}{folder.strip('/')}/"
        return found

    def uri(self, name: str) -> str:
        """Return the gs:// URI of an object."""
        return f"gs://{self.bucket}/{self.prefix}{name}"

    def write(
        self,
        name: str,
        data: bytes,
        *,
        generation: int | None = None,
        content_type: str = "application/json",
        metadata: Mapping[str, str] | None = None,
        repeat: bool = True,
    ) -> int | None:
        """Write an object whole.

        Args:
            generation: Only over this generation; 0 only if there is none.
            metadata: Keys and values of its own, 8 KiB at most.
            repeat: Try again after a failure.

        Returns:
            The new generation, or None if the object is of another generation. After a failed attempt that was repeated,
            None may also mean that the first attempt took effect: read the object to find out.
        """
        # `fields`: only the generation is wanted of the answer.
        params: dict[str, Any] = {"uploadType": "media", "name": self.prefix + name, "fields": "generation"}
        if generation is not None:
            params["ifGenerationMatch"] = str(generation)
        if metadata is not None:
            resource = json.dumps({"contentType": content_type, "metadata": dict(metadata)}).encode()
            params["uploadType"], mark = "multipart", uuid.uuid4().hex
            head = f"--{mark}\r\nContent-Type: application/json\r\n\r\n".encode()
            data = b"".join((head, resource, f"\r\n--{mark}\r\nContent-Type: {content_type}\r\n\r\n".encode(), data))
            data, content_type = data + f"\r\n--{mark}--".encode(), f"multipart/related; boundary={mark}"
        try:
            answer = self.rest.call(
                "POST", f"/upload{self._bucket}/o", params=params, data=data, content_type=content_type, repeat=repeat
            )
        except RestError as error:
            # A precondition that does not hold is an answer and not a failure.
            if error.status == 412:
                return None
            raise self._explained(error) from None
        return _number(answer.data.get("generation"))

    def read(self, name: str, *, generation: int | None = None) -> StoredObject | None:
        """Return an object, or one generation of it; None if there is none."""
        params = {"alt": "media"} | ({} if generation is None else {"generation": str(generation)})
        answer = self.rest.find(self._path(name), params=params, raw=True)
        if answer is None:
            return None
        found = generation or _number(answer.headers.get("X-Goog-Generation"))
        return StoredObject(answer.data, found, read_at=_date(answer.headers.get("Date")))

    def read_aged(self, name: str) -> StoredObject | None:
        """Return an object with its age: from its `updated` to the answer's date, so that this machine's clock does not matter."""
        for _ in range(5):
            answer = self.rest.find(self._path(name), params={"fields": "generation,updated"})
            if answer is None:
                return None
            # Of the generation whose time was read; None if it was written again meanwhile.
            found = self.read(name, generation=_number(answer.data.get("generation")))
            if found is not None:
                return replace(found, age_s=_age(answer.data.get("updated"), answer.headers.get("Date")))
        raise RestError(f"{self.uri(name)} changes too fast to be read", status=503)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return an object that holds a JSON object; None if there is none, or it holds something else."""
        found = self.read(name)
        return None if found is None else as_json(found.data)

    def generation(self, name: str) -> int | None:
        """Return an object's generation, which stands for its bytes; None if there is none, also where there is no such bucket."""
        answer = self.rest.find(self._path(name), params={"fields": "generation"})
        return None if answer is None else _number(answer.data.get("generation"))

    def exists(self, name: str) -> bool:
        """Whether there is an object of that name; false also where there is no such bucket."""
        return self.generation(name) is not None

    def delete(self, name: str, generation: int | None = None) -> bool:
        """Delete an object, only of a generation if one is given; False if there is no such object."""
        params = None if generation is None else {"ifGenerationMatch": str(generation)}
        try:
            return self.rest.find(self._path(name), method="DELETE", params=params, repeat=True) is not None
        except RestError as error:
            if error.status == 412:
                return False
            raise

    def list(self, prefix: str, *, metadata: bool = False) -> Iterator[Item]:
        """Yield the objects whose names begin with `prefix`, with the metadata of each if that is asked for."""
        more = ",metadata" if metadata else ""
        fields = f"items(name,generation,timeCreated,size{more}),nextPageToken"
        try:
            for row in self.rest.pages(
                f"{self._bucket}/o", "items", {"prefix": self.prefix + prefix, "fields": fields}
            ):
                name = str(row.get("name", "")).removeprefix(self.prefix)
                generation, size = _number(row.get("generation")), _number(row.get("size"))
                own = row.get("metadata")
                yield Item(
                    name, generation, str(row.get("timeCreated", "")), size, own if isinstance(own, dict) else {}
                )
        except RestError as error:
            raise self._explained(error) from None

    def metadata(self) -> dict[str, Any] | None:
        """Return the bucket's resource, None if there is no such bucket."""
        answer = self.rest.find(self._bucket)
        return None if answer is None else dict(answer.data)

    def _explained(self, error: RestError) -> RestError:
        """Return the error of a call that only fails with 404 when there is no such bucket, with the command that makes it."""
        if error.status != 404:
            return error
        where = f" --location={self.location}" if self.location else ""
        return RestError(
            f"there is no bucket gs://{self.bucket}: gcloud storage buckets create gs://{self.bucket}{where}",
            status=404,
            reason=error.reason,
        )

    @property
    def _bucket(self) -> str:
        """Path of the bucket."""
        return f"/storage/v1/b/{quote(self.bucket, safe='')}"

    def _path(self, name: str) -> str:
        return f"{self._bucket}/o/{quote(self.prefix + name, safe='')}"


def as_json(data: bytes) -> dict[str, Any] | None:
    """Return bytes as a JSON object, None if they are none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise RestError("Cloud Storage answered without a generation", status=502, outcome_unknown=True) from None


def _age(updated: Any, date: str | None) -> float:
    """Return seconds from an object's `updated` to the date of the answer; this machine's time where the answer has no date."""
    try:
        then = times.parse(str(updated))
    except ValueError:
        raise RestError("Cloud Storage answered without an object's time", status=502) from None
    return max(0.0, ((_date(date) or times.now()) - then).total_seconds())


def _date(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text or "")
    except (TypeError, ValueError):
        return None
