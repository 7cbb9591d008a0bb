"""The XML API of Cloud Storage: signed URLs, resumable and multipart uploads, listings, errors."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from localvertex.storage import ObjectStore, XmlApi, routes


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, serving: Any) -> Iterator[str]:
    store = ObjectStore(tmp_path_factory.mktemp("root"))
    store.create_bucket("bkt")
    with serving(Starlette(routes=[*routes(store), Mount("/", app=XmlApi(store))])) as url:
        yield url


@pytest.fixture
def client(base: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base, timeout=30, verify=False) as client:
        yield client


def code(answer: httpx.Response) -> tuple[int, str]:
    found = re.search(r"<Code>(\w+)</Code>", answer.text)
    return answer.status_code, found[1] if found else ""


def test_an_object_by_put_get_delete(client: httpx.Client) -> None:
    """PUT stores an object with the fields in its headers, GET gives it with the MD5 as its tag, DELETE removes it."""
    headers = {"Content-Type": "text/plain", "x-goog-meta-key": "value", "x-goog-if-generation-match": "0"}
    assert client.put("/bkt/a/b.txt", content=b"hello", headers=headers).status_code == 200
    assert code(client.put("/bkt/a/b.txt", content=b"again", headers=headers)) == (412, "PreconditionFailed")
    found = client.get("/storage/v1/b/bkt/o/a%2Fb.txt").json()
    assert (found["contentType"], found["metadata"]) == ("text/plain", {"key": "value"})
    read = client.get("/bkt/a/b.txt")
    assert (read.content, read.headers["etag"]) == (b"hello", '"5d41402abc4b2a76b9719d911017c592"')
    assert client.get("/bkt/a/b.txt", headers={"If-None-Match": read.headers["etag"]}).status_code == 304
    assert client.delete("/bkt/a/b.txt").status_code == 204
    assert code(client.get("/bkt/a/b.txt")) == (404, "NoSuchKey")
    assert code(client.get("/none/a")) == (404, "NoSuchBucket")


def test_an_object_with_a_predefined_list(client: httpx.Client) -> None:
    """An unknown name in x-goog-acl, and any name where access is uniform, is refused."""
    assert code(client.put("/bkt/seen", content=b"x", headers={"x-goog-acl": "open"})) == (400, "InvalidArgument")
    uniform = {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}
    client.post("/storage/v1/b?project=p", json={"name": "even", **uniform})
    assert code(client.put("/even/a", content=b"x", headers={"x-goog-acl": "private"})) == (400, "InvalidArgument")
    assert client.put("/even/a", content=b"x").status_code == 200


def test_what_is_put_with_gzip_stays_gzip(client: httpx.Client) -> None:
    """Content-Encoding of a PUT is the stored object's, and not one of the transfer."""
    client.put("/bkt/z", content=b"\x1f\x8bstored", headers={"Content-Encoding": "gzip"})
    found = client.get("/storage/v1/b/bkt/o/z").json()
    assert (found["size"], found["contentEncoding"]) == ("8", "gzip")


def test_an_expired_url_is_refused(client: httpx.Client) -> None:
    """A signed URL of either version is refused after its time, and served before it."""
    begun = datetime.now(timezone.utc) - timedelta(seconds=30)
    client.put("/bkt/signed", content=b"x")
    for seconds, fine in ((10, False), (600, True)):
        version_4 = {"X-Goog-Date": begun.strftime("%Y%m%dT%H%M%SZ"), "X-Goog-Expires": seconds, "X-Goog-Signature": 0}
        version_2 = {"Expires": int(begun.timestamp()) + seconds, "Signature": "x", "GoogleAccessId": "a@b"}
        for query in (version_4, version_2):
            answer = client.get("/bkt/signed", params=query)
            assert answer.is_success if fine else code(answer) == (400, "ExpiredToken")
            if not fine and "Expires" in query:
                assert f"<Details>Request has expired: {query['Expires']}</Details>" in answer.text
            assert fine or "<Message>The provided token has expired.</Message>" in answer.text
    assert code(client.get("/bkt/signed", params={"X-Goog-Date": "x", "X-Goog-Expires": "1"}))[0] == 400
    refused = client.get("/bkt/signed", params={"Expires": "NaN", "Signature": "x"})
    assert code(refused) == (400, "InvalidArgument")
    assert "<Details>Expires parameter is not a valid long value: NaN</Details>" in refused.text


def test_a_resumable_upload(client: httpx.Client) -> None:
    """POST with x-goog-resumable gives an address, to which the bytes are put."""
    begun = client.post("/bkt/res%20a", headers={"x-goog-resumable": "start", "Content-Type": "text/plain"})
    assert begun.status_code == 201
    where = begun.headers["location"]
    assert client.put(where, headers={"Content-Range": "bytes */*"}).status_code == 308
    assert client.put(where, content=b"hello").status_code == 200
    assert client.get("/bkt/res%20a").content == b"hello"
    assert code(client.post("/bkt/res%20a"))[0] == 400


def test_a_multipart_upload(client: httpx.Client) -> None:
    """Parts are listed and joined by their numbers, whatever their order; one that is missing is refused; an abort leaves nothing."""
    started = client.post("/bkt/multi?uploads", headers={"Content-Type": "text/plain"})
    upload = re.search(r"<UploadId>([^<]+)<", started.text)
    assert upload
    for number, data in ((2, b"world"), (1, b"hello ")):
        part = client.put("/bkt/multi", params={"partNumber": number, "uploadId": upload[1]}, content=data)
        assert part.headers["etag"] and part.headers["x-goog-hash"].startswith("crc32c=")

    def listed(**more: int) -> str:
        return client.get("/bkt/multi", params={"uploadId": upload[1], **more}).text

    found = listed()
    assert re.findall(r"<PartNumber>(\d+)<", found) == ["1", "2"] and re.findall(r"<Size>(\d+)<", found) == ["6", "5"]
    assert (
        re.findall(r"<ETag>(\"\w+\")<", found)[1]
        == client.put("/bkt/multi", params={"partNumber": 2, "uploadId": upload[1]}, content=b"world").headers["etag"]
    )
    assert f"<UploadId>{upload[1]}</UploadId>" in found and "<IsTruncated>false<" in found
    first, last = listed(**{"max-parts": 1}), listed(**{"part-number-marker": 1})
    assert "<NextPartNumberMarker>1<" in first and "<IsTruncated>true<" in first and first.count("<Part>") == 1
    assert re.findall(r"<PartNumber>(\d+)<", last) == ["2"] and "<IsTruncated>false<" in last

    def complete(*numbers: int) -> httpx.Response:
        body = "".join(f"<Part><PartNumber>{one}</PartNumber><ETag>x</ETag></Part>" for one in numbers)
        return client.post("/bkt/multi", params={"uploadId": upload[1]}, content=f"<C>{body}</C>")

    assert code(complete(1, 3)) == (400, "InvalidPart")
    assert complete(1, 2).status_code == 200
    assert client.get("/bkt/multi").content == b"hello world"
    assert client.get("/storage/v1/b/bkt/o/multi").json()["contentType"] == "text/plain"
    assert complete(1, 2).status_code == 404
    begun = re.search(r"<UploadId>([^<]+)<", client.post("/bkt/multi?uploads").text)
    assert begun and client.delete("/bkt/multi", params={"uploadId": begun[1]}).status_code == 204
    assert client.get("/bkt/multi").content == b"hello world"


def test_a_listing(client: httpx.Client) -> None:
    """A bucket lists its objects and prefixes in pages."""
    for name in ("list/a", "list/b/c", "list/d&"):
        client.put(f"/bkt/{name}", content=b"x")
    found = client.get("/bkt", params={"prefix": "list/", "delimiter": "/"}).text
    assert re.findall(r"<Key>([^<]+)", found) == ["list/a", "list/d&amp;"]
    assert re.findall(r"<CommonPrefixes><Prefix>([^<]+)", found) == ["list/b/"]
    page = client.get("/bkt/", params={"prefix": "list/", "max-keys": 1}).text
    assert "<IsTruncated>true<" in page and "<NextMarker>list/a<" in page
    rest = client.get("/bkt/", params={"prefix": "list/", "marker": "list/a"}).text
    assert "<Key>list/a<" not in rest and "<IsTruncated>false<" in rest


def test_a_retention_policy_ends(client: httpx.Client) -> None:
    """A bucket's retention policy keeps new objects for its time; a locked one is not shortened."""
    client.post("/storage/v1/b?project=p", json={"name": "kept", "retentionPolicy": {"retentionPeriod": "1"}})
    client.put("/kept/a", content=b"x")
    assert code(client.put("/kept/a", content=b"y")) == (403, "RetentionPolicyNotMet")
    time.sleep(1.1)
    assert client.put("/kept/a", content=b"y").status_code == 200
    assert client.post("/storage/v1/b/kept/lockRetentionPolicy?ifMetagenerationMatch=1").status_code == 200
    again = client.post("/storage/v1/b/kept/lockRetentionPolicy?ifMetagenerationMatch=1").json()["error"]
    assert again["message"] == "Bucket does not have an unlocked Retention Policy to lock."
    gone = client.patch("/storage/v1/b/kept", json={"retentionPolicy": None})
    assert gone.json()["error"]["message"] == "Bucket 'kept' has a locked Retention Policy which cannot be removed."
    assert gone.json()["error"]["errors"][0]["reason"] == "retentionPolicyNotMet"
    assert client.patch("/storage/v1/b/kept", json={"retentionPolicy": {}}).status_code == 200
    assert client.patch("/storage/v1/b/kept", json={"retentionPolicy": {"retentionPeriod": "x"}}).status_code == 400


def test_a_retention_policy_covers_what_is_there(client: httpx.Client) -> None:
    """A new policy keeps the objects of its bucket from their creation, and from the release of an event-based hold."""
    client.post("/storage/v1/b?project=p", json={"name": "later", "labels": {"a": "b"}})
    client.put("/later/a", content=b"x")
    made = datetime.fromisoformat(client.get("/storage/v1/b/later/o/a").json()["timeCreated"][:-1])
    policy = {"retentionPolicy": {"retentionPeriod": "3600"}}
    assert client.patch("/storage/v1/b/later", json={**policy, "labels": {}}).json().get("labels") is None
    until = client.get("/storage/v1/b/later/o/a").json()["retentionExpirationTime"]
    assert datetime.fromisoformat(until[:-1]) - made == timedelta(hours=1)
    refused = client.delete("/storage/v1/b/later/o/a").json()["error"]
    said = r"Object 'later/a' is subject to bucket's retention policy or object retention and cannot be deleted or overwritten until \S+\.\d{6}-0[78]:00"
    assert re.fullmatch(said, refused["message"]) and refused["errors"][0]["reason"] == "retentionPolicyNotMet"
    assert client.post("/storage/v1/b/later/o/a/moveTo/o/b", json={}).status_code == 403
    assert client.get("/storage/v1/b/later/o/b").status_code == 404
    held = client.patch("/storage/v1/b/later/o/a", json={"eventBasedHold": True}).json()
    assert "retentionExpirationTime" not in held
    assert code(client.put("/later/a", content=b"y")) == (403, "ObjectUnderActiveHold")
    free = client.patch("/storage/v1/b/later/o/a", json={"eventBasedHold": False}).json()
    assert free["retentionExpirationTime"] > until and not [key for key in free if key.startswith("_")]
    client.patch("/storage/v1/b/later", json={"retentionPolicy": None})
    assert "retentionExpirationTime" not in client.get("/storage/v1/b/later/o/a").json()
    assert client.delete("/storage/v1/b/later/o/a").status_code == 204


def test_a_large_gzip_object_is_inflated(client: httpx.Client) -> None:
    """Gzip of several members and more than one chunk is inflated whole; what is not gzip is sent as it is."""
    import gzip
    import os

    data = os.urandom(3 << 20)
    stored = gzip.compress(data[: 1 << 20]) + gzip.compress(data[1 << 20 :])
    client.put("/bkt/large.gz", content=stored, headers={"Content-Encoding": "gzip"})
    assert client.get("/bkt/large.gz", headers={"Accept-Encoding": "identity"}).content == data
    client.put("/bkt/not.gz", content=b"plain", headers={"Content-Encoding": "gzip"})
    with client.stream("GET", "/bkt/not.gz", headers={"Accept-Encoding": "identity"}) as answer:
        assert b"".join(answer.iter_raw()) == b"plain"


def test_an_object_in_json_has_its_own_headers(client: httpx.Client) -> None:
    """An object whose type is that of the API's answers is no answer of the API: it has its own cache header, type and server."""
    sent = {"Content-Type": "application/json", "Cache-Control": "public, max-age=9"}
    client.put("/bkt/map.json", content=b"{}", headers=sent).raise_for_status()
    for where in ("/bkt/map.json", "/storage/v1/b/bkt/o/map.json?alt=media"):
        headers = client.get(where).headers
        assert headers["content-type"] == "application/json" and headers["server"] == "UploadServer", where
        assert headers["cache-control"] == "public, max-age=9" and "x-frame-options" not in headers, where


def test_headers_and_pages_of_the_xml_api(client: httpx.Client) -> None:
    """An object has a header for each checksum, its cache's time and no attachment; a list names its marker."""
    client.put("/bkt/shown", content=b"hello")
    found = client.head("/bkt/shown")
    assert found.headers.get_list("x-goog-hash") == ["crc32c=mnG7TA==", "md5=XUFAKrxLKna5cZ2REBfFkg=="]
    assert (found.headers["cache-control"], found.headers.get("content-disposition")) == ("private, max-age=0", None)
    client.post("/storage/v1/b/bkt/o/shown/acl", json={"entity": "allUsers", "role": "READER"})
    assert client.head("/bkt/shown").headers["cache-control"] == "public, max-age=3600"
    headers = client.get("/bkt/shown").headers
    lasts = parsedate_to_datetime(headers["expires"]) - parsedate_to_datetime(headers["date"])
    assert timedelta(minutes=59) < lasts < timedelta(minutes=61)
    assert "<Marker>a</Marker>" in client.get("/bkt?marker=a").text
    assert "<Marker" not in client.get("/bkt?list-type=2").text
    listed = client.get("/bkt")
    assert "<Name>bkt</Name><Prefix/><Marker/>" in listed.text
    assert (listed.headers["cache-control"], listed.headers["expires"]) == (
        "private, max-age=0",
        listed.headers["date"],
    )


def test_a_listing_of_the_second_version_has_tokens(client: httpx.Client) -> None:
    """It counts its names, and the next page begins at its token."""
    for name in ("two/a", "two/b/c", "two/d"):
        client.put(f"/bkt/{name}", content=b"x")
    asked = {"list-type": "2", "prefix": "two/", "delimiter": "/", "max-keys": 2}
    page = client.get("/bkt", params=asked).text
    assert "<Prefix>two/</Prefix><KeyCount>2</KeyCount><MaxKeys>2</MaxKeys>" in page and "<Delimiter>/<" in page
    token = re.search(r"<NextContinuationToken>([^<]+)<", page)
    assert token and "NextMarker" not in page
    rest = client.get("/bkt", params={**asked, "continuation-token": token[1]}).text
    assert re.findall(r"<Key>([^<]+)", rest) == ["two/d"] and "<IsTruncated>false<" in rest


def test_a_form_needs_a_policy(client: httpx.Client) -> None:
    """A form that posts a file without a policy document is refused."""
    answer = client.post("/bkt/form", files={"file": b"abc"})
    assert code(answer) == (400, "InvalidPolicyDocument")
    assert "<Details>Missing policy</Details>" in answer.text


def test_a_preflight_follows_the_buckets_cors(client: httpx.Client) -> None:
    """A page's preflight gets the origin if an entry of `cors` has its origin and method, and nothing otherwise."""
    asked = {"Origin": "http://localhost", "Access-Control-Request-Method": "PUT"}
    allowed = "access-control-allow-origin"
    client.patch("/storage/v1/b/bkt", json={"cors": [{"origin": ["*"]}]})
    assert allowed not in client.options("/bkt/x", headers=asked).headers
    client.patch("/storage/v1/b/bkt", json={"cors": [{"origin": ["http://localhost"], "method": ["PUT"]}]})
    assert client.options("/bkt/x", headers=asked).headers[allowed] == "http://localhost"
    assert allowed not in client.options("/bkt/x", headers={**asked, "Origin": "http://other"}).headers


def test_an_answer_of_a_bucket_with_cors_depends_on_the_origin(client: httpx.Client) -> None:
    """Caches are told that an object's answer varies with the page that asks, if the bucket has `cors`."""
    client.post("/storage/v1/b?project=p", json={"name": "for-pages"})
    client.put("/for-pages/a", content=b"x")
    assert "vary" not in client.get("/for-pages/a").headers
    client.patch("/storage/v1/b/for-pages", json={"cors": [{"origin": ["*"], "method": ["GET"]}]})
    assert client.get("/for-pages/a").headers["vary"] == "Origin"


def test_a_bucket_that_everybody_may_read(client: httpx.Client) -> None:
    """What a bucket's policy lets everybody read is kept by caches as public."""
    client.post("/storage/v1/b?project=p", json={"name": "open-to-all"})
    client.put("/open-to-all/a", content=b"x")
    assert client.get("/open-to-all/a").headers["cache-control"] == "private, max-age=0"
    policy = {"bindings": [{"role": "roles/storage.objectViewer", "members": ["allUsers"]}]}
    assert client.put("/storage/v1/b/open-to-all/iam", json=policy).status_code == 200
    assert client.get("/open-to-all/a").headers["cache-control"] == "public, max-age=3600"


def test_autoclass_has_the_times_of_its_changes(client: httpx.Client) -> None:
    """Autoclass has a class at its end and two times, of which a change of the class moves one."""
    auto = {"enabled": True}
    made = client.post("/storage/v1/b?project=p", json={"name": "classes", "autoclass": auto}).json()["autoclass"]
    assert made["terminalStorageClass"] == "NEARLINE" and made["toggleTime"] == made["terminalStorageClassUpdateTime"]
    changed = {"autoclass": {**auto, "terminalStorageClass": "ARCHIVE"}}
    shown = client.patch("/storage/v1/b/classes", json=changed).json()["autoclass"]
    assert (shown["toggleTime"], shown["terminalStorageClass"]) == (made["toggleTime"], "ARCHIVE")
    assert shown["terminalStorageClassUpdateTime"] > made["terminalStorageClassUpdateTime"]


@pytest.mark.parametrize("action", [{}, {"type": "Delay"}, {"type": "SetStorageClass"}])
def test_a_lifecycle_rule_needs_a_whole_action(client: httpx.Client, action: dict[str, str]) -> None:
    """A rule without a known action, or without the class that it sets, is refused, and no bucket is made."""
    rule = {"action": action, "condition": {"age": 3}, "storageClass": "COLDLINE"}
    answer = client.post("/storage/v1/b?project=p", json={"name": "ages", "lifecycle": {"rule": [rule]}})
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "Invalid argument.")
    assert client.get("/storage/v1/b/ages").status_code == 404
