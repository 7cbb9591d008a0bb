"""The Cloud Storage endpoints over HTTP: uploads, downloads, errors, and nonsense."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette

from localvertex.storage import ObjectStore, routes
from localvertex.storage.resources import etag
from tests.support.tools import examples
from tests.support.web import http
from vertexrig.guard import LoopbackGuard


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, serving: Any) -> Iterator[str]:
    store = ObjectStore(tmp_path_factory.mktemp("root"))
    store.create_bucket("bkt")
    with serving(LoopbackGuard(Starlette(routes=routes(store)))) as url:
        yield url


@pytest.fixture
def client(base: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=base, timeout=30, verify=False) as client:
        yield client


def upload(client: httpx.Client, name: str, data: bytes, **params: Any) -> httpx.Response:
    query = {"uploadType": "media", "name": name, **params}
    return client.post("/upload/storage/v1/b/bkt/o", params=query, content=data)


def begin(client: httpx.Client, name: str, **params: Any) -> str:
    query = {"uploadType": "resumable", "name": name, **params}
    answer = client.post("/upload/storage/v1/b/bkt/o", params=query, json={"metadata": {"a": "b"}})
    assert answer.status_code == 200
    return answer.headers["location"]


CHUNK = 256 * 1024


def test_a_bucket_is_made_with_a_slash_at_the_end(client: httpx.Client) -> None:
    """`POST /b/` makes a bucket and refuses one that is there, as gcsfs asks."""
    codes = [client.post("/storage/v1/b/?project=p", json={"name": "slash"}).status_code for _ in range(2)]
    assert codes == [200, 409]


def test_a_client_that_takes_308_for_a_redirect_gets_200(client: httpx.Client) -> None:
    """With Go's header a chunk is answered with 200 and the status beside it; a status query must have no body."""
    where = begin(client, "res/go")
    headers = {"Content-Range": f"bytes 0-{CHUNK - 1}/*", "X-GUploader-No-308": "yes"}
    answer = client.put(where, content=bytes(CHUNK), headers=headers)
    assert (answer.status_code, answer.headers["x-http-status-code-override"]) == (200, "308")
    assert answer.headers["range"] == f"bytes=0-{CHUNK - 1}"
    asked = client.put(where, content=b"x", headers={"Content-Range": "bytes */*"})
    assert (asked.status_code, asked.text) == (400, "Client sent query request with a non-empty body.")


def test_the_numbers_of_an_etag_have_several_bytes() -> None:
    """An etag is Base64 of a protobuf message, whose numbers take a byte for each seven bits."""
    assert etag(127, 128) == "CH8QgAE="


def test_resumable_upload(client: httpx.Client) -> None:
    """Chunks, a status query between them, and a status query after the end give the object once."""
    where, data = begin(client, "res/a"), os.urandom(2 * CHUNK + 5)
    assert client.put(where, headers={"Content-Range": "bytes */*"}).status_code == 308
    first = client.put(where, content=data[:CHUNK], headers={"Content-Range": f"bytes 0-{CHUNK - 1}/*"})
    assert (first.status_code, first.headers["range"]) == (308, f"bytes=0-{CHUNK - 1}")
    again = client.put(where, content=data[:CHUNK], headers={"Content-Range": f"bytes 0-{CHUNK - 1}/*"})
    assert again.headers["range"] == f"bytes=0-{CHUNK - 1}"
    asked = client.put(where, headers={"Content-Range": f"bytes */{len(data)}"})
    assert asked.headers["range"] == f"bytes=0-{CHUNK - 1}"
    rest = {"Content-Range": f"bytes {CHUNK}-{len(data) - 1}/{len(data)}"}
    made = client.put(where, content=data[CHUNK:], headers=rest)
    assert made.status_code == 200 and made.json()["size"] == str(len(data)) and made.json()["metadata"] == {"a": "b"}
    assert client.put(where, headers={"Content-Range": f"bytes */{len(data)}"}).json() == made.json()
    assert client.get("/storage/v1/b/bkt/o/res%2Fa", params={"alt": "media"}).content == data


def test_fields_that_keep_an_answer_whole(client: httpx.Client) -> None:
    """A star and nothing in `fields` keep all of an answer, and an error is never cut."""
    upload(client, "cut", b"x")
    whole = client.get("/storage/v1/b/bkt/o/cut").json()
    for fields in ("", "*", "name,*"):
        assert client.get("/storage/v1/b/bkt/o/cut", params={"fields": fields}).json() == whole
    missing = client.get("/storage/v1/b/bkt/o/none", params={"fields": "name"}).json()["error"]
    assert set(missing) == {"code", "message", "errors"}


def test_a_body_that_is_no_json(client: httpx.Client) -> None:
    """Cloud Storage has words of its own for a body that cannot be read."""
    answer = client.patch("/storage/v1/b/bkt", content="{")
    said = "Parse Error: Unexpected end of string. Expected an object key or }.\n\n^"
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, said)


@pytest.mark.parametrize("fields", ["FOOBARR", "NEXTPAGETOKEN", "items(name,nope)", "items/nope"])
def test_a_field_that_is_none_is_refused(client: httpx.Client, fields: str) -> None:
    """`fields` with a name that no answer has is a 400 that repeats the name, in its own case."""
    answer = client.get("/storage/v1/b/bkt/o", params={"fields": fields})
    name = "nope" if "nope" in fields else fields
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, f"Invalid field selection {name}")


@pytest.mark.parametrize("size", ["*", "600005"])
def test_an_upload_of_all_the_rest(client: httpx.Client, size: str) -> None:
    """A range that ends in a star (Node's client) takes the body as all the rest from its first byte, and ends the upload."""
    data = os.urandom(600_005)
    where = begin(client, "rest/whole")
    made = client.put(where, content=data, headers={"Content-Range": f"bytes 0-*/{size}"})
    assert (made.status_code, made.json()["size"]) == (200, "600005")
    where = begin(client, "rest/half")
    client.put(where, content=data[:CHUNK], headers={"Content-Range": f"bytes 0-{CHUNK - 1}/*"})
    ahead = client.put(where, content=data[CHUNK + 1 :], headers={"Content-Range": f"bytes {CHUNK + 1}-*/{size}"})
    assert ahead.status_code == 503
    assert client.put(where, headers={"Content-Range": f"bytes */{size}"}).status_code == 308
    made = client.put(where, content=data[CHUNK:], headers={"Content-Range": f"bytes {CHUNK}-*/{size}"})
    assert made.status_code == 200
    assert client.get("/storage/v1/b/bkt/o/rest%2Fhalf?alt=media").content == data
    empty = client.put(begin(client, "rest/empty"), headers={"Content-Range": "bytes 0-*/*"})
    assert empty.json()["size"] == "0"


def test_bytes_that_are_there_are_not_taken_again(client: httpx.Client) -> None:
    """Of a chunk that is sent again after a part of it has arrived, the rest is appended."""
    where, data = begin(client, "res/again"), os.urandom(3 * CHUNK + 5)
    client.put(where, content=data[:CHUNK], headers={"Content-Range": f"bytes 0-{CHUNK - 1}/*"})
    first = client.put(where, content=data[: 2 * CHUNK], headers={"Content-Range": f"bytes 0-{2 * CHUNK - 1}/*"})
    assert (first.status_code, first.headers["range"]) == (308, f"bytes=0-{2 * CHUNK - 1}")
    long = client.put(where, content=data + b"x", headers={"Content-Range": f"bytes 0-{len(data) - 1}/{len(data)}"})
    assert long.status_code == 400
    rest = client.put(where, content=data, headers={"Content-Range": f"bytes 0-{len(data) - 1}/{len(data)}"})
    assert rest.json()["size"] == str(len(data))
    assert client.get("/storage/v1/b/bkt/o/res%2Fagain?alt=media").content == data


def test_resumable_cancel(client: httpx.Client) -> None:
    """A cancelled upload answers 499, also to the next chunk, an unknown one 404, and neither leaves an object."""
    where = begin(client, "res/cancel")
    assert client.delete(where).status_code == 499
    assert client.put(where, headers={"Content-Range": "bytes */*"}).status_code == 499
    assert client.delete(where + "x").status_code == 404
    assert client.get("/storage/v1/b/bkt/o/res%2Fcancel").status_code == 404


def test_resumable_empty_and_precondition(client: httpx.Client) -> None:
    """An empty object can be uploaded, and the precondition is judged when the upload ends."""
    one, two = begin(client, "res/e", ifGenerationMatch=0), begin(client, "res/e", ifGenerationMatch=0)
    assert client.put(one, headers={"Content-Range": "bytes */0"}).json()["size"] == "0"
    assert client.put(two, content=b"x").status_code == 412


@pytest.mark.parametrize(
    ("header", "size", "status", "words"),
    [
        ("bytes 0-9/*", 10, 400, "The received request contained 10 bytes"),
        ("bytes 0-9/11", 10, 400, "equal or greater than 262144, except for the final request"),
        (
            "bytes 0-9/10",
            12,
            400,
            "There were 12 byte(s) in the request body.  There should have been 10 byte(s) (starting",
        ),
        ("bytes 4-5/6", 2, 503, "the upload offset is 4 byte(s), which exceeds already uploaded size of 0 byte(s)."),
        ("bytes 0-9/5", 10, 400, "Failed to parse Content-Range header."),
        ("bytes 9-0/10", 0, 400, "Failed to parse Content-Range header."),
        ("bytes 0--1/0", 0, 400, "Failed to parse Content-Range header."),
        ("items 0-1/2", 0, 400, "Failed to parse Content-Range header."),
    ],
)
def test_chunks_must_fit(client: httpx.Client, header: str, size: int, status: int, words: str) -> None:
    """A chunk whose bytes or range do not fit is refused in plain text, and leaves the upload as it was."""
    where = begin(client, "res/bad")
    answer = client.put(where, content=bytes(size), headers={"Content-Range": header})
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/plain; charset=utf-8")
    assert words in answer.text and "vary" not in answer.headers
    assert client.put(where, content=b"whole").json()["size"] == "5"


def test_of_a_chunk_that_is_no_multiple_a_multiple_is_kept(client: httpx.Client) -> None:
    """A chunk of more than 256 KiB is cut to a multiple of it, and a query with a smaller size answers what there is."""
    where, data = begin(client, "res/cut"), os.urandom(CHUNK + 9)
    first = client.put(where, content=data[:-4], headers={"Content-Range": f"bytes 0-{CHUNK + 4}/*"})
    assert (first.status_code, first.headers["range"]) == (308, f"bytes=0-{CHUNK - 1}")
    assert first.headers["content-type"] == "text/plain; charset=utf-8" and "cache-control" not in first.headers
    assert client.put(where, headers={"Content-Range": "bytes */9"}).headers["range"] == f"bytes=0-{CHUNK - 1}"
    rest = {"Content-Range": f"bytes {CHUNK}-{CHUNK + 8}/{CHUNK + 9}"}
    assert client.put(where, content=data[CHUNK:], headers=rest).status_code == 200
    assert client.get("/storage/v1/b/bkt/o/res%2Fcut?alt=media").content == data


def test_an_unfinished_upload_has_the_digest_of_its_bytes(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-Range-MD5 and X-Goog-Running-Hash are of what has arrived, also where other uploads went on in between."""
    monkeypatch.setattr("localvertex.storage.upload.MOST_SUMS", 1)
    data = os.urandom(3 * CHUNK)
    one, two = begin(client, "res/one"), begin(client, "res/two")
    assert "x-range-md5" not in client.put(one, headers={"Content-Range": "bytes */*"}).headers
    for end in (CHUNK, 2 * CHUNK):
        for where in (one, one, two):
            range_ = {"Content-Range": f"bytes {end - CHUNK}-{end - 1}/*"}
            sent = client.put(where, content=data[end - CHUNK : end], headers=range_)
            assert sent.headers["x-range-md5"] == hashlib.md5(data[:end]).hexdigest()
            upload(client, "res/whole", data[:end])
            crc32c = client.get("/storage/v1/b/bkt/o/res%2Fwhole").json()["crc32c"]
            assert sent.headers["x-goog-running-hash"] == f"crc32c={crc32c}"
    rest = {"Content-Range": f"bytes {2 * CHUNK}-{3 * CHUNK - 1}/{3 * CHUNK}"}
    assert client.put(one, content=data[2 * CHUNK :], headers=rest).status_code == 200


@pytest.mark.parametrize(("begun", "kept"), [({}, "text/plain"), ({"contentType": "image/png"}, "image/png")])
def test_the_type_of_an_upload(client: httpx.Client, begun: dict[str, str], kept: str) -> None:
    """An upload that begins without a content type has that of the request with its last bytes."""
    begin = client.post("/upload/storage/v1/b/bkt/o?uploadType=resumable", json={"name": "typed", **begun})
    made = client.post(begin.headers["location"], headers={"Content-Range": "bytes */0", "Content-Type": "text/plain"})
    assert made.json()["contentType"] == kept


def test_an_object_has_no_list_of_its_own_under_uniform_access(client: httpx.Client) -> None:
    """A PATCH with an access control list is refused, and changes nothing."""
    uniform = {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}
    client.post("/storage/v1/b?project=p", json={"name": "bkt-uniform", **uniform})
    client.post("/upload/storage/v1/b/bkt-uniform/o", params={"uploadType": "media", "name": "a"}, content=b"x")
    where, sent = "/storage/v1/b/bkt-uniform/o/a", {"acl": [{"entity": "allUsers", "role": "READER"}]}
    answer = client.patch(where, json={**sent, "metadata": {"a": "b"}})
    words = "Cannot update access control for an object when uniform bucket-level access is enabled."
    assert answer.status_code == 400 and answer.json()["error"]["message"].startswith(words)
    assert client.get(where).json()["metageneration"] == "1"
    new = {"name": "b", "acl": [{"entity": "allAuthenticatedUsers", "role": "READER"}]}
    for made in (
        client.post("/upload/storage/v1/b/bkt-uniform/o?uploadType=resumable", json=new),
        client.post(f"{where}/copyTo/b/bkt-uniform/o/b", json=new),
    ):
        assert made.json()["error"]["message"].startswith("Cannot insert legacy ACL for an object when uniform")


def test_headers_of_answers_without_json(client: httpx.Client) -> None:
    """What has no body is still of JSON's type; what is read may be kept for no time; a refusal in text likewise."""
    upload(client, "headers", b"x")
    found = client.get("/storage/v1/b/bkt/o/headers")
    kept = client.get("/storage/v1/b/bkt/o/headers", params={"ifGenerationNotMatch": found.json()["generation"]})
    assert (kept.status_code, kept.headers["content-type"]) == (304, "application/json")
    for answer in (found, kept):
        assert answer.headers["cache-control"] == "private, max-age=0, must-revalidate, no-transform"
        assert answer.headers["expires"].endswith("GMT") and "1990" not in answer.headers["expires"]
    refused = client.get("/storage/v1/b/bkt/o/none?alt=media")
    assert refused.headers["cache-control"] == "private, max-age=0" and "1990" not in refused.headers["expires"]
    assert "accept-ranges" not in client.get("/storage/v1/b/bkt/o/headers?alt=media").headers
    gone = client.delete("/storage/v1/b/bkt/o/headers")
    assert (gone.status_code, gone.headers["content-type"]) == (204, "application/json")


@pytest.mark.parametrize(
    ("asked", "status", "expected"),
    [
        ("bytes=0-3", 206, b"0123"),
        ("bytes=7-", 206, b"789"),
        ("bytes=-2", 206, b"89"),
        ("bytes=-99", 206, b"0123456789"),
        ("bytes=8-99", 206, b"89"),
        ("bytes=10-", 416, None),
        ("bytes=-0", 416, None),
        ("bytes=5-2", 200, b"0123456789"),
        ("bytes=0-1,3-4", 200, b"0123456789"),
        ("lines=1-2", 200, b"0123456789"),
    ],
)
def test_ranges(client: httpx.Client, asked: str, status: int, expected: bytes | None) -> None:
    """A range gives its bytes and a Content-Range; one with no byte is a 416 with the size; a malformed one is ignored."""
    upload(client, "digits", b"0123456789")
    answer = client.get("/download/storage/v1/b/bkt/o/digits", params={"alt": "media"}, headers={"Range": asked})
    assert answer.status_code == status
    assert expected is None or answer.content == expected
    assert ("content-range" in answer.headers) == (status != 200)
    assert status != 416 or answer.headers["content-range"] == "bytes */10"


def test_digests_are_checked(client: httpx.Client) -> None:
    """A body that does not match the MD5 the client computed is refused and not stored."""
    query = {"uploadType": "media", "name": "sum"}
    sent = client.post("/upload/storage/v1/b/bkt/o", params=query, content=b"x", headers={"X-Goog-Hash": "md5=AAAA"})
    assert sent.status_code == 400 and "MD5" in sent.json()["error"]["message"]
    assert client.get("/storage/v1/b/bkt/o/sum").status_code == 404


def test_reads_with_conditions(client: httpx.Client) -> None:
    """An unchanged object answers 304 to a not-match read, and a wrong generation 412 or 404."""
    live = upload(client, "cond", b"x").json()
    for params, status in (
        ({"ifGenerationNotMatch": live["generation"]}, 304),
        ({"ifMetagenerationNotMatch": "1"}, 304),
        ({"ifGenerationMatch": "1"}, 412),
        ({"generation": "1"}, 404),
        ({"generation": live["generation"]}, 200),
    ):
        for more in ({}, {"alt": "media"}):
            assert client.get("/storage/v1/b/bkt/o/cond", params={**params, **more}).status_code == status
    for header, status in (("If-None-Match", 304), ("If-Match", 200)):
        assert client.get("/storage/v1/b/bkt/o/cond", headers={header: live["etag"]}).status_code == status


def test_one_create_wins_over_http(base: str) -> None:
    """Of 24 concurrent uploads with ifGenerationMatch=0, one gets 200 and the others 412."""
    with httpx.Client(base_url=base, timeout=60, verify=False) as client, ThreadPoolExecutor(12) as pool:
        codes = list(
            pool.map(lambda n: upload(client, "race", str(n).encode(), ifGenerationMatch=0).status_code, range(24))
        )
    assert sorted(codes) == [200] + [412] * 23


def test_patch_and_update(client: httpx.Client) -> None:
    """PATCH merges metadata key by key, PUT replaces all; each adds one to the metageneration."""
    path = "/storage/v1/b/bkt/o/meta"
    upload(client, "meta", b"x")
    client.patch(path, json={"metadata": {"a": "1", "b": "2"}, "cacheControl": "no-cache"})
    patched = client.patch(path, json={"metadata": {"a": None, "c": "3"}}).json()
    assert patched["metadata"] == {"b": "2", "c": "3"} and patched["metageneration"] == "3"
    put = client.put(path, json={"contentType": "text/x"}).json()
    assert "metadata" not in put and "cacheControl" not in put and put["contentType"] == "text/x"
    assert client.patch(path, json={"metadata": {"a": 1}}).status_code == 400
    assert client.patch(path, json={"contentType": "a\r\nSet-Cookie: b"}).status_code == 400


def test_bucket_life(client: httpx.Client) -> None:
    """A bucket is made, found, refused twice, not deleted while it holds objects, and deleted when empty."""
    assert (
        client.post("/storage/v1/b?project=p", json={"name": "life-1", "location": "us-central1"}).json()["location"]
        == "US-CENTRAL1"
    )
    assert client.post("/storage/v1/b?project=p", json={"name": "life-1"}).status_code == 409
    client.post("/upload/storage/v1/b/life-1/o", params={"uploadType": "media", "name": "a"}, content=b"x")
    assert client.delete("/storage/v1/b/life-1").status_code == 409
    assert client.delete("/storage/v1/b/life-1/o/a").status_code == 204
    assert client.delete("/storage/v1/b/life-1").status_code == 204
    assert client.get("/storage/v1/b/life-1").status_code == 404
    for name in ("..", "A", "a", "../x", "a..b", "x" * 300, 5, None):
        assert client.post("/storage/v1/b?project=p", json={"name": name}).status_code == 400


def error_like(answer: httpx.Response) -> bool:
    """Whether an answer is fine or an error in Google's format."""
    if answer.status_code < 400 or not answer.content:
        return answer.status_code < 500
    error = answer.json()["error"]
    keys = set(error) == {"code", "message", "errors"}
    return answer.status_code < 500 and keys and error["code"] == answer.status_code


TEXT = st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT, lambda x: st.lists(x) | st.dictionaries(TEXT, x), max_leaves=8
)
FIELDS = ["name", "metadata", "contentType", "labels", "sourceObjects", "destination", "location", "versioning", "x"]
QUERY = [
    *("name", "uploadType", "upload_id", "alt", "prefix", "delimiter", "pageToken", "maxResults", "generation"),
    *("ifGenerationMatch", "ifMetagenerationNotMatch", "startOffset", "includeTrailingDelimiter", "sourceGeneration"),
]
VALUE = st.sampled_from(["0", "-1", "media", "multipart", "resumable", "9" * 30, "%", "dHQ=", "true", "é"]) | TEXT
PART = st.sampled_from(
    ["v1", "b", "bkt", "o", "a", "compose", "rewriteTo", "copyTo", "..", "%2F", "%ff", "%00", "iam", "moveTo"]
)
START = st.sampled_from(
    [
        "/storage/v1/b/bkt/o/a",
        "/storage/v1/b",
        "/upload/storage/v1/b/bkt/o",
        "/batch/storage/v1",
        "/download/storage",
        "/",
    ]
)


@settings(max_examples=examples(50, 600))
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]),
    start=START,
    parts=st.lists(PART, max_size=6),
    query=st.dictionaries(st.sampled_from(QUERY), VALUE, max_size=4),
    body=st.binary(max_size=60) | st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4),
    header=st.sampled_from(
        ["content-type", "content-range", "range", "content-encoding", "x-goog-hash", "if-match", "x-y"]
    ),
    value=st.sampled_from(
        ["multipart/related; boundary=a", "multipart/mixed", "bytes 0-1/2", "bytes */*", "gzip", "md5=x", "*"]
    ),
)
def test_nonsense_is_never_a_500(
    base: str, method: str, start: str, parts: list[str], query: dict[str, str], body: Any, header: str, value: str
) -> None:
    """Any method, path, query, header and body get an answer that is not a 5xx, with errors in Google's format."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    path = "/".join([start.rstrip("/"), *parts])
    answer = http.request(method, base + path, params=query, content=content, headers={header: value}, timeout=20)
    assert answer.status_code == 404 or method in ("HEAD", "OPTIONS") or error_like(answer), (
        answer.status_code,
        answer.text,
    )
    assert answer.status_code < 500


@settings(max_examples=examples(40, 200))
@given(
    st.binary(max_size=80),
    st.sampled_from([b"", b"--b\r\n\r\n{}\r\n--b\r\n\r\n", b"--b\r\nContent-Type: application/http\r\n\r\n"]),
)
def test_broken_multipart(base: str, tail: bytes, head: bytes) -> None:
    """Multipart and batch bodies cut anywhere are 400s or work."""
    headers = {"Content-Type": "multipart/related; boundary=b"}
    for path in ("/upload/storage/v1/b/bkt/o?uploadType=multipart&name=m", "/batch/storage/v1"):
        answer = http.post(base + path, content=head + tail, headers=headers, timeout=20)
        assert answer.status_code < 500, answer.text


@given(data=st.binary(max_size=300), feed=st.sampled_from([b"\r\n", b"\n"]))
@example(data=b"ends in \r", feed=b"\n")
@settings(max_examples=examples(30, 200))
def test_multipart_keeps_every_byte(base: str, data: bytes, feed: bytes) -> None:
    """The media of a multipart upload comes back byte for byte, whatever line ends it holds."""
    head = b'--b\nContent-Type: application/json\n\n{"name": "mp"}\n--b\nContent-Type: a/b\n\n'
    body = head.replace(b"\n", feed) + data + feed + b"--b--" + feed
    if b"--b" in data:
        return
    headers = {"Content-Type": "multipart/related; boundary=b"}
    sent = http.post(base + "/upload/storage/v1/b/bkt/o?uploadType=multipart", content=body, headers=headers)
    assert sent.json()["contentType"] == "a/b"
    assert http.get(base + "/storage/v1/b/bkt/o/mp?alt=media").content == data


@pytest.mark.parametrize(
    "body",
    [
        {"name": "goog-mine"},
        {"name": "my-google-data"},
        {"name": "192.168.5.4"},
        {"name": "fine", "labels": {"Upper": "a"}},
        {"name": "fine", "labels": {"1st": "a"}},
        {"name": "fine", "storageClass": "COLD"},
        {"name": "fine", "location": "no-such-place"},
        {"name": "fine", "cors": ["*"]},
        {"name": "fine", "cors": [{"origin": "*"}]},
        {"name": "fine", "cors": [{"maxAgeSeconds": "long"}]},
        {"name": "fine", "location": "ASIA", "storageClass": "REGIONAL"},
        {"name": "fine", "retentionPolicy": {"retentionPeriod": "long"}},
        {"name": "fine", "retentionPolicy": {"retentionPeriod": "0"}},
        {"name": "fine", "retentionPolicy": {"retentionPeriod": "3155760001"}},
        {"name": "fine", "softDeletePolicy": {"retentionDurationSeconds": "3600"}},
        {"name": "fine", "acl": [{"entity": "someone", "role": "READER"}]},
        {"name": "fine", "acl": [{"entity": "allUsers", "role": "EDITOR"}]},
    ],
)
def test_a_bucket_that_is_not_made(client: httpx.Client, body: dict[str, object]) -> None:
    """A bucket with a name of Google's, a wrong label, class, place, period or access control list is refused, and there is no such bucket afterwards."""
    answer = client.post("/storage/v1/b?project=p", json=body)
    assert (answer.status_code, answer.json()["error"]["errors"][0]["reason"]) == (400, "invalid")
    assert client.get(f"/storage/v1/b/{body['name']}").status_code == 404


def test_a_new_object_has_its_buckets_class(client: httpx.Client) -> None:
    """An object, also a copied one, has the storage class of the bucket it is in, unless it has one of its own."""
    client.post("/storage/v1/b?project=p", json={"name": "classed", "storageClass": "nearline"})
    assert client.get("/storage/v1/b/classed").json()["storageClass"] == "NEARLINE"
    params = {"uploadType": "media", "name": "a"}
    assert client.post("/upload/storage/v1/b/classed/o", params=params).json()["storageClass"] == "NEARLINE"
    copied = client.post("/storage/v1/b/classed/o/a/copyTo/b/bkt/o/a")
    assert copied.json()["storageClass"] == "STANDARD"


def test_a_composed_object_in_no_bucket(client: httpx.Client) -> None:
    """Where the bucket is not there, the refusal names it and not the sources."""
    answer = client.post("/storage/v1/b/not-here/o/d/compose", json={"sourceObjects": [{"name": "gone"}]})
    assert "bucket does not exist" in answer.json()["error"]["message"]


def test_notifications_are_kept(client: httpx.Client) -> None:
    """A bucket's notifications outlive an update of it and do not show among its fields; no number comes again, and ten of an event is the most."""
    where = "/storage/v1/b/bkt/notificationConfigs"
    made = {
        "topic": "//pubsub.googleapis.com/projects/p/topics/t",
        "payload_format": "NONE",
        "object_name_prefix": "a/",
    }
    for wrong in ({"topic": "t"}, {"payload_format": "XML"}, {"event_types": 5}, {"event_types": [5]}):
        assert client.post(where, json={**made, **wrong}).status_code == 400
    first = client.post(where, json=made).json()
    client.put("/storage/v1/b/bkt", json={"labels": {"a": "b"}})
    assert client.get(where).json()["items"] == [first] == [client.get(f"{where}/{first['id']}").json()]
    assert not [key for key in client.get("/storage/v1/b/bkt").json() if key.startswith("_")]
    assert client.delete(f"{where}/{first['id']}").status_code == 204
    for number in range(10):
        further = client.post(where, json={**made, "event_types": ["OBJECT_DELETE"]}).json()
        assert further["id"] == str(int(first["id"]) + 1 + number)
    refused = client.post(where, json=made)
    assert refused.json()["error"]["message"] == "Too many overlapping notifications. The maximum is 10."
    assert client.post(where, json={**made, "event_types": ["OBJECT_ARCHIVE"]}).status_code == 200


def test_entries_of_access_control_lists(client: httpx.Client) -> None:
    """A change of an entry that is not there makes it; a list has 100 at most, and is not for the public where that is prevented."""
    upload(client, "listed", b"x")
    where = "/storage/v1/b/bkt/o/listed/acl"
    made = client.patch(f"{where}/user-Ada@Example.com", json={"role": "READER"})
    assert (made.status_code, made.json()["entity"]) == (200, "user-ada@example.com")
    many = [{"entity": f"user-a{number}@b.c", "role": "READER"} for number in range(101)]
    refused = client.patch("/storage/v1/b/bkt/o/listed", json={"acl": many}).json()["error"]
    assert refused["errors"][0]["reason"] == "tooManyAccessControlEntries"
    shut = {"name": "shut", "iamConfiguration": {"publicAccessPrevention": "enforced"}}
    client.post("/storage/v1/b?project=p", json=shut)
    media = {"uploadType": "media", "name": "a", "predefinedAcl": "publicRead"}
    assert client.post("/upload/storage/v1/b/shut/o", params=media).status_code == 412


def test_predefined_lists(client: httpx.Client) -> None:
    """A request's predefined list becomes the entries of a bucket or an object; an unknown one is refused."""
    place = "/storage/v1/b?project=p&predefinedAcl=publicRead&predefinedDefaultObjectAcl=authenticatedRead"
    assert client.post(place, json={"name": "listed"}).status_code == 200
    uniform = {"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}
    assert client.post(place, json={"name": "not-listed", **uniform}).status_code == 400

    def roles(where: str) -> dict[str, str]:
        return {one["entity"]: one["role"] for one in client.get(where).json()["items"]}

    assert roles("/storage/v1/b/listed/acl")["allUsers"] == "READER"
    media = {"uploadType": "media", "name": "a"}
    client.post("/upload/storage/v1/b/listed/o", params=media)
    assert roles("/storage/v1/b/listed/o/a/acl")["allAuthenticatedUsers"] == "READER"
    client.post("/upload/storage/v1/b/listed/o", params={**media, "predefinedAcl": "private"})
    assert len(roles("/storage/v1/b/listed/o/a/acl")) == 1
    client.patch("/storage/v1/b/listed/o/a?predefinedAcl=publicRead", json={})
    assert roles("/storage/v1/b/listed/o/a/acl")["allUsers"] == "READER"
    wrong = client.post("/upload/storage/v1/b/listed/o", params={**media, "predefinedAcl": "open"})
    assert wrong.json()["error"]["errors"][0]["location"] == "predefinedAcl"


def test_a_method_that_is_not_served(client: httpx.Client) -> None:
    """A method that the API has and this server has not is a 405, where a path of no method is a 404 of two words."""
    assert client.post("/upload/storage/v1/b/bkt/folder/o/?uploadType=multipart").text == "Not Found"
    assert client.get("/storage/v1/projects/p/hmacKeys").json()["error"]["code"] == 405


def test_an_upload_with_a_slash_at_the_end(client: httpx.Client) -> None:
    """`POST /o/` uploads, as R's client asks."""
    answer = client.post("/upload/storage/v1/b/bkt/o/?uploadType=media&name=slash", content=b"x")
    assert answer.json()["name"] == "slash"
