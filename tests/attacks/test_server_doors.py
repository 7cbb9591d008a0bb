"""Each door of the local Vertex, generated: whatever a caller sends is answered or closed in time, in bounded memory, without a traceback."""

from __future__ import annotations

import base64
import json
import logging
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localvertex import server
from localvertex.front.variables import FOLDER, TOKEN, USER
from localvertex.jobs.settings import Settings
from localvertex.partial import field_tree
from localvertex.runner import RunOptions
from tests.attacks.test_doors import BYTES, MEMORY_MIB, SECONDS, VALUES
from tests.attacks.wire import exchange, request
from tests.localvertex.test_server_fuzz import BODIES, broken
from tests.support.tools import examples
from vertexrig import spec

METHODS = [line.split("\t") for line in Path(spec.__file__).with_name("methods.tsv").read_text("utf-8").splitlines()]
PARENT = "projects/p/locations/us-central1"
WAIT_S = 60.0
"""Wall time in which a door answers on a busy machine; the processor time of one request is at most SECONDS."""
WORDS = st.sampled_from(
    ["", "a", "..", "%2e%2e", "%00", "%ff", "%2F", "a" * 3000, "-", "1", "9" * 30, "b", "gs", "o", "$(a)", "x:y", "*", "~", "\u00e9"]
) | st.text(max_size=8)  # fmt: skip
PATH = WORDS.map(lambda word: quote(word, safe="%$()*~:"))
EXPRESSIONS = st.sampled_from(
    ["(" * 400 + "a" + ")" * 400, "NOT " * 2000 + "a=1", "a=1 OR " * 3000 + "b=2", "-" * 5000, '"' * 999, "a" * 20000, "a.b" * 5000, "(", ")",
     'textPayload=~"(a+)+$"', 'textPayload=~"(a|a)*b"', 'textPayload=~"((a*)*)*b"', 'a=~"["', 'timestamp>="9999-99-99"', "a:*", "labels.a:*", "*" * 200,
     "**/" * 100, "{a,b}" * 30, "[a-" * 50, "[z-a]", "*a" * 60 + "b", "{" * 300, "items(" * 2000 + ")" * 2000, "a/b" * 3000, ",," * 5000, "name,items(a,b(c", "\\"]
) | st.text(max_size=20)  # fmt: skip
PARAMETERS = st.dictionaries(
    st.sampled_from(
        ["filter", "pageSize", "pageToken", "orderBy", "readMask", "updateMask", "prefix", "delimiter", "matchGlob", "maxResults", "fields", "alt",
         "uploadType", "name", "startOffset", "endOffset", "generation", "ifGenerationMatch", "versions", "recursive", "timeout_sec", "after"]
    ),
    EXPRESSIONS | st.sampled_from(["-1", "0", "1", "1000", "9" * 20, "media", "multipart", "resumable", "json", "true", "x"]),
    max_size=4,
).map(lambda given: "?" + "&".join(f"{key}={quote(value, safe='')}" for key, value in given.items()) if given else "")  # fmt: skip


def dumped(value: object) -> bytes:
    return json.dumps(value).encode("ascii")


BOMBS = st.sampled_from(
    [b"[" * 500_000, b'{"a":' * 300_000, b"[" + b"0," * 900_000 + b"0]", b'{"displayName": "' + b"a" * 3_000_000 + b'"}', b'{"a": ' + b"9" * 4000 + b"}",
     b"{" + b",".join(b'"%d":0' % n for n in range(150_000)) + b"}", b'{"jobSpec": {"workerPoolSpecs": [' + b"{}," * 180_000 + b"{}]}}",
     b'{"studySpec": {"parameters": [' + b"{}," * 180_000 + b"{}]}}", b'{"labels": {' + b",".join(b'"a%d":""' % n for n in range(90_000)) + b"}}",
     b'{"sourceObjects": [' + b'{"name": "a"},' * 60_000 + b'{"name": "a"}]}', b"\xff\xfe{}", b'{"a": "\\ud800"}', b'{"a": 1e999}', b'{"filter": "' + b"(" * 20_000 + b'"}']
)  # fmt: skip
JSON = broken().map(lambda two: dumped(two[1])) | VALUES.map(dumped) | BOMBS | BYTES
KINDS = st.sampled_from(
    [
        "application/json",
        "text/plain",
        "multipart/related; boundary=a",
        "multipart/mixed; boundary=" + "a" * 300,
        "multipart/related",
        "",
    ]
)


@st.composite
def rest(draw: st.DrawFn) -> bytes:
    """A call of a method of Vertex AI, Logging, Scheduler or Resource Manager, mostly below an existing collection."""
    if draw(st.booleans()):
        _, _, method, path, _ = draw(st.sampled_from(METHODS))
        while "{" in path:
            head, _, tail = path.partition("{")
            inner, _, tail = tail.partition("}")
            pattern = inner.partition("=")[2] or "*"
            path = head + pattern.replace("projects/*/locations/*", PARENT).replace("*", draw(PATH), 9) + tail
        path = "/vertex" + path
    else:
        method = draw(st.sampled_from(["GET", "POST", "PATCH", "DELETE", "PUT"]))
        collection = draw(st.sampled_from([*BODIES, "studies", "models", "tensorboards", "metadataStores", "datasets"]))
        path = draw(
            st.sampled_from([f"/vertex/v1/{PARENT}/{collection}", "/logging/v2/entries:list", "/logging/v2/entries:write", f"/scheduler/v1/{PARENT}/jobs",
                             "/vertex/v1beta1/" + PARENT + "/studies", "/local/v1/runs", "/local/v1/faults", "/local/v1/resources", "/v1/projects/p"])
        ) + draw(st.sampled_from(["", "", "/1", "/1:cancel", "//"]))  # fmt: skip
    body = draw(JSON) if method != "GET" else b""
    return request(method, path + draw(PARAMETERS), body, Content_Type=draw(KINDS))


PARTS = (
    BYTES
    | JSON
    | st.just(b"--a\r\n" * 50_000)
    | st.just(b"--a\r\nContent-Type: application/json\r\n\r\n{}\r\n--a\r\n\r\nx\r\n--a--")
    | st.just(b"--a\r\n" + b"A: b\r\n" * 100_000)
)


@st.composite
def storage(draw: st.DrawFn) -> bytes:
    """A call of Cloud Storage: JSON, uploads of each kind, batches, downloads."""
    name, other = draw(PATH), draw(PATH)
    path = draw(
        st.sampled_from(["/storage/v1/b", f"/storage/v1/b/{name}", "/storage/v1/b/gs/o", f"/storage/v1/b/gs/o/{name}", f"/storage/v1/b/gs/o/{name}/compose",
                         f"/storage/v1/b/gs/o/{name}/rewriteTo/b/gs/o/{other}", f"/storage/v1/b/gs/o/{name}/copyTo/b/{other}/o/a", "/storage/v1/b/gs/iam",
                         f"/upload/storage/v1/b/gs/o?uploadType=multipart&name={name}", f"/upload/storage/v1/b/gs/o?uploadType=media&name={name}",
                         f"/upload/storage/v1/b/gs/o?uploadType=resumable&name={name}", f"/upload/storage/v1/b/gs/o?upload_id={name}", "/batch/storage/v1",
                         f"/download/storage/v1/b/gs/o/{name}"])
    )  # fmt: skip
    given = draw(PARAMETERS)
    headers = draw(
        st.dictionaries(
            st.sampled_from(["Range", "Content_Range", "X_Goog_Hash", "If_Match", "Content_Encoding", "X_Upload_Content_Length", "X_Goog_Meta_a", "Accept_Encoding"]),
            st.sampled_from(["bytes=0-", "bytes 0-9/*", "bytes */*", "bytes=9-1", "bytes=-99999999999", "bytes 0-99999999999/999999999999", "crc32c=!!", "md5=", "gzip", "9" * 30, "a" * 9000]),
            max_size=2,
        )
    )  # fmt: skip
    method = draw(st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]))
    body = draw(PARTS) if method not in ("GET", "HEAD") else b""
    return request(
        method, path + (given.replace("?", "&") if "?" in path else given), body, Content_Type=draw(KINDS), **headers
    )


CONSOLE = st.builds(
    lambda section, name, more, query: request("GET", f"/console{section}{name}{more}{query}"),
    st.sampled_from(
        [
            "/v1/",
            "/",
            "/v1/pulse",
            "/v1/calls",
            "/v1/jobs",
            f"/v1/{PARENT}/customJobs/",
            f"/v1/{PARENT}/hyperparameterTuningJobs/",
        ]
    ),
    PATH,
    st.sampled_from(["", "/replicas", "/candidates", "/study", "/charts", "/../.."]),
    PARAMETERS,
)


def hosted(host: str, method: str, path: str, body: bytes, **headers: str) -> bytes:
    return request(method, f"http://{host}{path}", body, Host=host, **headers)


METADATA = st.builds(
    lambda method, path, more, query, flavor, body: hosted("metadata.google.internal", method, f"{path}{more}{query}", body if method == "POST" else b"", Metadata_Flavor=flavor),
    st.sampled_from(["GET", "GET", "POST", "HEAD"]),
    st.sampled_from(["/", "/computeMetadata/v1/", "/computeMetadata/v1/instance/service-accounts/default/", "/computeMetadata/v1/project/"]),
    PATH, PARAMETERS, st.sampled_from(["Google", "x", ""]), BYTES,
)  # fmt: skip
XML = st.builds(
    lambda method, name, query, accepted: hosted("storage.googleapis.com", method, f"/gs/{name}{query}", b"", Range=accepted),
    st.sampled_from(["GET", "HEAD", "PUT"]), PATH, PARAMETERS, st.sampled_from(["", "bytes=0-", "bytes=9-1"]),
)  # fmt: skip
TARGETS = st.sampled_from(
    ["a:443", "us-central1-aiplatform.googleapis.com:443", "[::1]:1", "[::::]:443", "a:99999", "a:-1", ":443", "a" * 20_000 + ":443", "user@a:443", "127.0.0.1:0",
     "storage.googleapis.com:443\r\nX: y", "*", "/", "http://", "http://a b/", "http://[::1", "//a"]
)  # fmt: skip
PROXY = st.builds(
    lambda method, target, head, rest: f"{method} {target} HTTP/1.1\r\n{head}\r\n\r\n".encode("latin-1") + rest,
    st.sampled_from(["CONNECT", "GET", "POST", "\x16\x03\x01", "PRI"]),
    TARGETS,
    st.sampled_from(["Host: a", "", "A: b\r\n" * 3000, "Proxy-Authorization: Basic !!!", "Proxy-Authorization: Basic " + "QQ==" * 2000, "Content-Length: 9\r\nContent-Length: 8", "Transfer-Encoding: chunked", "\0"]),
    BYTES,
) | BYTES  # fmt: skip


class Tracebacks(logging.Handler):
    """Keeps each record with a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(logging.Formatter().format(record))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    root = tmp_path_factory.mktemp("doors")
    (root / "gs/gs").mkdir(parents=True)
    with server.running(Settings(root, slots=1, options=RunOptions(grace=0.1)), grpc=True) as running:
        exchange(
            running.port, request("POST", "/storage/v1/b?project=p", b'{"name": "gs"}', Content_Type="application/json")
        )
        yield running


def proxied(here: server.RunningServer, data: bytes) -> bytes:
    """The request with the password of the proxy."""
    token = f"{USER}:{(here.root / FOLDER / TOKEN).read_text()}"
    line, _, rest = data.partition(b"\r\n")
    return line + b"\r\nProxy-Authorization: Basic " + base64.b64encode(token.encode()) + b"\r\n" + rest


DOORS: dict[str, tuple[st.SearchStrategy[bytes], Callable[[server.RunningServer, bytes], bytes]]] = {
    "REST": (rest(), lambda here, data: exchange(here.port, data, WAIT_S)),
    "storage": (storage(), lambda here, data: exchange(here.port, data, WAIT_S)),
    "console": (CONSOLE, lambda here, data: exchange(here.port, data, WAIT_S)),
    "XML": (XML, lambda here, data: exchange(here.front_port, proxied(here, data), WAIT_S)),
    "metadata server": (METADATA, lambda here, data: exchange(here.front_port, proxied(here, data), WAIT_S)),
    "proxy": (PROXY, lambda here, data: closed(here.front_port, data)),
    "TLS": (PROXY, lambda here, data: closed(here.tls_port, data)),
}


def closed(port: int, data: bytes) -> bytes:
    """What a connection answers to bytes that nothing follows."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), WAIT_S) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65536):
                answer += chunk
        except OSError:
            pass
    return answer


def bounded(call: Callable[[], bytes], sent: object) -> bytes:
    """The answer to one request, within the bounds."""
    traced = Tracebacks()
    logging.getLogger().addHandler(traced)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, wall = time.process_time(), time.monotonic()
    try:
        answer = call()
    finally:
        logging.getLogger().removeHandler(traced)
    assert time.process_time() - began < SECONDS and time.monotonic() - wall < WAIT_S, sent
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY_MIB * 1024, sent
    assert not traced.found, (sent, traced.found)
    return answer


@pytest.mark.parametrize("door", DOORS)
def test_any_request_ends(door: str, here: server.RunningServer) -> None:
    """No traceback, no hang, no gigabyte, no 500, and afterwards the server answers as before."""
    requests, send = DOORS[door]

    @given(requests)
    @settings(max_examples=examples(8, 200), deadline=None, suppress_health_check=list(HealthCheck))
    def ends(data: bytes) -> None:
        answer = bounded(lambda: send(here, data), data[:300])
        assert not answer.startswith(b"HTTP/1.1 500"), (data[:300], answer[:1000])

    ends()
    assert b" 200 " in exchange(here.port, request("GET", "/local/v1/status"), WAIT_S)[:20]


def field(number: int, content: bytes) -> bytes:
    """A field of a message of protobuf that has a length."""
    size, head = len(content), bytes([number << 3 | 2])
    while size > 127:
        head += bytes([size & 127 | 128])
        size >>= 7
    return head + bytes([size]) + content


AT = field(1, PARENT.encode())
MANY = 1_500_000
BOMBED = {
    ("google.cloud.aiplatform.v1.JobService", "CreateCustomJob", "pools"): AT + field(2, field(4, b"\x0a\x00" * MANY)),
    ("google.cloud.aiplatform.v1.JobService", "CreateCustomJob", "env"): AT + field(2, field(4, field(1, field(6, b"\x1a\x00" * MANY)))),
    ("google.cloud.aiplatform.v1.JobService", "CreateCustomJob", "labels"): AT + field(2, b"".join(field(11, field(1, b"a%d" % n)) for n in range(300_000))),
    ("google.cloud.aiplatform.v1.VizierService", "CreateStudy", "parameters"): AT + field(2, field(3, b"\x12\x00" * MANY)),
    ("google.logging.v2.LoggingServiceV2", "WriteLogEntries", "entries"): field(1, b"projects/p/logs/a") + b"\x22\x00" * MANY,
}  # fmt: skip
MESSAGES = st.sampled_from(
    [b"\x22\x00" * MANY, b"\x0a\x00" * MANY, b"\x0a\x04\x0a\x02\x0a\x00" * 300_000, b"\x12\xff\xff\xff\xff\x0f", b"\xff" * 9, b"\x08\x80" * 9999, b""]
) | st.binary(max_size=60).map(lambda one: one * 2000) | st.binary(max_size=60).map(lambda one: AT + field(2, one))  # fmt: skip
CALLS = st.sampled_from([(key[:2], message) for key, message in BOMBED.items()]) | st.tuples(
    st.sampled_from([(one[0], one[1]) for one in METHODS]), MESSAGES
)


@given(CALLS)
@settings(max_examples=examples(8, 200), deadline=None, suppress_health_check=list(HealthCheck))
def test_any_message_ends(here: server.RunningServer, call: tuple[tuple[str, str], bytes]) -> None:
    """A message of gRPC, of whatever bytes, is answered within the same bounds, by an error that tells the caller what is wrong."""
    (service, method), message = call
    with grpc.insecure_channel(f"127.0.0.1:{here.grpc_port}") as channel:
        called = channel.unary_unary(f"/{service}/{method}", request_serializer=bytes, response_deserializer=bytes)

        def sent() -> bytes:
            try:
                return bytes(called(message, timeout=WAIT_S))
            except grpc.RpcError as error:
                assert error.code() in REFUSED, (error, message[:60])
                return b""

        bounded(sent, (method, message[:60]))


REFUSED = {
    getattr(grpc.StatusCode, name)
    for name in (
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "UNIMPLEMENTED",
        "FAILED_PRECONDITION",
        "RESOURCE_EXHAUSTED",
        "OUT_OF_RANGE",
    )
}


@pytest.mark.parametrize(
    "fields", ["(" * 30_000 + ")" * 30_000, "items(" * 10_000, "name,items(id,size(a)),owner/entity"]
)
def test_the_fields_of_an_answer_are_read_in_one_pass(fields: str) -> None:
    """Brackets in brackets, as many as a URL may have, take time in proportion."""
    began = time.process_time()
    assert set(field_tree(fields)) in (set(), {"items"}, {"name", "items", "owner"})
    assert time.process_time() - began < 1
