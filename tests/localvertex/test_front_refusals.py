"""The front: who may use it, and what it refuses."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import certifi
import psutil
import pytest
import requests

from localvertex import server
from localvertex.front import assembly, pipes, proxy, serving
from localvertex.front.assembly import Front
from localvertex.front.variables import FOLDER, transparent
from localvertex.jobs.settings import Settings
from localvertex.state import RunningServer
from tests.support.frontkit import AIPLATFORM, Sink, fronted, login, spoken, tunnel
from vertexrig import guard


@pytest.fixture(scope="module")
def with_grpc(tmp_path_factory: pytest.TempPathFactory, sink: Sink) -> Iterator[RunningServer]:
    """A server that answers gRPC, too."""
    with fronted(tmp_path_factory.mktemp("front"), sink, grpc=True) as running:
        yield running


REFUSED = {
    "no token": (b"CONNECT storage.googleapis.com:443 HTTP/1.1\r\nProxy-Authorization: Basic\r\n\r\n", 407),
    "another token": (
        b"CONNECT storage.googleapis.com:443 HTTP/1.1\r\nProxy-Authorization: Basic dmVydGV4cmlnOng=\r\n\r\n", 407),
    "a token that is not base64": (b"CONNECT pypi.org:443 HTTP/1.1\r\nProxy-Authorization: Basic ???\r\n\r\n", 407),
    "plain HTTP to the proxy": (b"GET / HTTP/1.1\r\n{login}\r\n", 400),
    "plain HTTP to an API": (b"GET http://logging.googleapis.com/v2/entries HTTP/1.1\r\n{login}\r\n", 403),
    "plain HTTP to another host": (b"GET http://example.org/ HTTP/1.1\r\n{login}\r\n", 403),
    "another port": (b"CONNECT storage.googleapis.com:22 HTTP/1.1\r\n{login}\r\n", 403),
    "no port": (b"CONNECT storage.googleapis.com HTTP/1.1\r\n{login}\r\n", 400),
    "no host": (b"CONNECT :443 HTTP/1.1\r\n{login}\r\n", 400),
    "a user in the host": (b"CONNECT a@googleapis.com:443 HTTP/1.1\r\n{login}\r\n", 400),
    "an address of the cloud": (b"CONNECT 142.250.0.1:443 HTTP/1.1\r\n{login}\r\n", 403),
    "bytes before the answer": (b"CONNECT storage.googleapis.com:443 HTTP/1.1\r\n{login}\r\n\x16\x03\x01", 400),
    "not HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
    "a head that is too long": (b"CONNECT pypi.org:443 HTTP/1.1\r\nX: " + b"x" * 20000 + b"\r\n\r\n", 431),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_garbage_is_refused(what: str, here: RunningServer) -> None:
    """What is not a request that the front takes is refused in words, and the connection is closed."""
    sent, code = REFUSED[what]
    answer = spoken(here, sent)
    assert answer.startswith(b"HTTP/1.1 %d " % code), answer[:300]
    assert b"\r\nConnection: close\r\n" in answer


def test_half_of_anything_holds_nothing_up(here: RunningServer, front_client: requests.Session) -> None:
    """Half a head, half a handshake, garbage in place of TLS and of HTTP/2: others are answered meanwhile."""
    context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_connection(("127.0.0.1", here.front_port)))
        silent.sendall(b"CONNECT stor")
        secure = stack.enter_context(tunnel(here, AIPLATFORM, context))
        secure.sendall(b"GET /v1/projects HTTP/1.1\r\nHost: ")
        garbled = stack.enter_context(tunnel(here, AIPLATFORM, context))
        garbled.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00")
        assert garbled.recv(100).startswith(b"HTTP/1.1 403")  # no Host
        plain = stack.enter_context(socket.create_connection(("127.0.0.1", here.front_port), timeout=30))
        plain.sendall(b"CONNECT x.googleapis.com:443 HTTP/1.1\r\n" + login(here) + b"\r\n")
        assert plain.recv(100).startswith(b"HTTP/1.1 200")
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while plain.recv(100):  # a TLS alert, and the end
            pass
        assert front_client.get("https://storage.googleapis.com/storage/v1/b?project=p").status_code == 200


def test_a_busy_server_refuses_no_whole_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that has come is taken, also where the server had no time to look at it within its patience."""
    monkeypatch.setattr(proxy, "PATIENCE", 0.0)
    shared = Front(tmp_path, "my-project", "1", ()).connections(0, lambda host, on_lost: asyncio.Protocol())

    async def answered(listener: socket.socket, client: socket.socket) -> bytes:
        loop = asyncio.get_running_loop()
        async with await loop.create_server(lambda: proxy.Gate(shared), sock=listener):
            return await loop.run_in_executor(None, client.recv, 1000)

    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        client.connect(listener.getsockname())
        client.sendall(b"CONNECT example.com:443 HTTP/1.1\r\n\r\n")
        assert b"example.com is not a host of Google's APIs" in asyncio.run(answered(listener, client))


def test_a_login_shells_limit_of_files_is_raised() -> None:
    """A server takes all its connections where a shell allows 1,024 open files, and fewer only if the system does not allow more."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
        assert proxy.most_connections() == 128
        proxy.allow_files()
        assert proxy.most_connections() == (1000 if hard == resource.RLIM_INFINITY else min(1000, hard // 4))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


def test_the_host_of_a_request_is_the_one_that_was_connected_to(front_client: requests.Session) -> None:
    """A request in a tunnel that names another host, or comes from a web page, is refused."""
    url = "https://storage.googleapis.com/storage/v1/b"
    assert front_client.get(url, headers={"Host": "compute.googleapis.com"}).status_code == 403
    assert front_client.post(url, json={"name": "x1x"}, headers={"Origin": "https://evil.example"}).status_code == 403
    assert front_client.post(url, json={"name": "x1x"}, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


# -- who


CONNECT = b"CONNECT storage.googleapis.com:443 HTTP/1.1\r\n"


@pytest.mark.parametrize(("known", "code"), [(True, 200), (False, 407)])
def test_without_a_token(known: bool, code: int, here: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection of the server's own user needs no token, as of a JVM; where the kernel does not say whose it is, it does."""
    if known and not guard.KNOWS_USERS:
        pytest.skip("this system does not say whose a connection is")
    monkeypatch.setattr(guard, "KNOWS_USERS", known)
    with socket.create_connection(("127.0.0.1", here.front_port), timeout=30) as connection:
        connection.sendall(CONNECT + b"\r\n")
        assert connection.recv(300).startswith(b"HTTP/1.1 %d " % code)


def test_roots_connection_needs_the_token(here: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root is answered by a server of another user, with the token; without it nobody but that user is."""
    monkeypatch.setattr(guard, "KNOWS_USERS", True)
    monkeypatch.setattr(guard, "peer_user", lambda client, server: 0)
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    for given, code in ((b"", 407), (login(here), 200)):
        with socket.create_connection(("127.0.0.1", here.front_port), timeout=30) as connection:
            connection.sendall(CONNECT + given + b"\r\n")
            assert connection.recv(300).startswith(b"HTTP/1.1 %d " % code)


@pytest.mark.skipif(os.geteuid() != 0 or not guard.KNOWS_USERS, reason="only root can act as another user, on Linux")
def test_another_user_cannot_use_the_proxy(here: RunningServer) -> None:
    """Another user's process is refused, also with the token."""
    for given in (b"", login(here)):
        script = f"exec 3<>/dev/tcp/127.0.0.1/{here.front_port}; cat >&3; cat <&3"
        answer = subprocess.run(
            ["bash", "-c", script], input=CONNECT + given + b"\r\n", capture_output=True, timeout=30, user=65534,
            group=65534, extra_groups=[], cwd="/",
        ).stdout  # fmt: skip
        assert answer.startswith(b"HTTP/1.1 403 ") and b"not the user with id 65534" in answer


def test_tls_to_the_metadata_server_is_refused_as_such(here: RunningServer) -> None:
    """A client that tries TLS there reads what the metadata server speaks."""
    answer = spoken(here, b"CONNECT metadata.google.internal:443 HTTP/1.1\r\n{login}\r\n")
    assert answer.startswith(b"HTTP/1.1 403 ") and b"the metadata server speaks HTTP, at port 80" in answer


def test_a_refusal_is_logged_once(here: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    """The same refusal again, by whatever client, is counted and not logged again."""
    for _ in range(3):
        spoken(here, b"CONNECT once.example.net:443 HTTP/1.1\r\n{login}\r\n")
    lines = [one.getMessage() for one in caplog.records if "once.example.net" in one.getMessage()]
    assert len(lines) == 1
    assert server.call(here, "GET", "/v1/made")["noted"][lines[0]] == 3


def test_a_client_that_does_not_trust_us(here: RunningServer, front_client: requests.Session) -> None:
    """A client that knows another authority ends the handshake; that is noted, and others are answered."""
    with pytest.raises(ssl.SSLCertVerificationError):
        tunnel(here, AIPLATFORM, ssl.create_default_context(cafile=certifi.where()))
    assert front_client.get("https://storage.googleapis.com/storage/v1/b?project=p").status_code == 200
    noted = server.call(here, "GET", "/v1/made")["noted"]
    assert [what for what in noted if what.startswith("refused: the TLS handshake failed: ")]


def test_broken_handshakes_free_their_places(tmp_path: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that vanish where TLS is to begin, one after the other, use up no connections."""
    monkeypatch.setattr(assembly, "most_connections", lambda: 3)

    def connect(running: RunningServer) -> bytes:
        with socket.create_connection(("127.0.0.1", running.front_port), timeout=30) as client:
            client.sendall(b"CONNECT %b:443 HTTP/1.1\r\n%b\r\n" % (AIPLATFORM.encode(), login(running)))
            answer = client.recv(100)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closes by a reset
            return answer

    with fronted(tmp_path, sink) as running:
        for _ in range(3):
            assert connect(running).startswith(b"HTTP/1.1 200 ")
        until = time.monotonic() + 20
        while not connect(running).startswith(b"HTTP/1.1 200 "):  # the server has not seen the last one vanish yet
            assert time.monotonic() < until, "the three are still counted"


# -- what is too much


def test_a_thousand_connections_to_the_server_itself(here: RunningServer) -> None:
    """Past 1,000 connections that are open at the server's own port the next one is closed with 503, and noted once."""
    with ExitStack() as stack:
        many = [stack.enter_context(socket.create_connection(("127.0.0.1", here.port))) for _ in range(1010)]
        many[-1].settimeout(30)
        assert many[-1].recv(100).startswith(b"HTTP/1.1 503 ")
        many[0].sendall(b"GET /local/v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert many[0].recv(100).startswith(b"HTTP/1.1 200 ")
    assert server.call(here, "GET", "/v1/made")["noted"]["refused: more than 1000 connections are open"] >= 1


def test_a_silent_connection_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who connects and sends nothing, or half a head, is closed in time, at the server's port and at the front's."""
    monkeypatch.setattr(serving, "HEAD_PATIENCE", 0.2)
    monkeypatch.setattr(proxy, "PATIENCE", 0.2)
    with server.running(Settings(tmp_path)) as quick:
        for port, sent in itertools.product((quick.port, quick.front_port), (b"", b"GET / HT")):
            with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                connection.sendall(sent)
                while connection.recv(1000):
                    pass


def test_a_silent_tunnel_ends(tmp_path: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tunnel in which nothing is said is closed in time: before a request, and to a host that passes."""
    for name in ("https_proxy", "http_proxy", "all_proxy", "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(serving, "HEAD_PATIENCE", 0.3)
    monkeypatch.setattr(pipes, "FIRST_BYTE", 0.3)
    monkeypatch.setattr(pipes, "SILENT", 0.6)
    with server.running(Settings(tmp_path, allow_hosts=("localhost:*",))) as here:
        context = ssl.create_default_context(cafile=str(here.root / FOLDER / "ca.pem"))
        with tunnel(here, "storage.googleapis.com", context) as silent:
            assert silent.recv(100) == b""
        with socket.create_server(("127.0.0.1", 0)) as far:
            for said in (b"", b"hello"):
                with socket.create_connection(("127.0.0.1", here.front_port), timeout=30) as connection:
                    port = far.getsockname()[1]
                    connection.sendall(b"CONNECT localhost:%d HTTP/1.1\r\n" % port + login(here) + b"\r\n")
                    assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
                    connection.sendall(said)
                    assert connection.recv(100) == b""


def test_many_tunnels_of_one_user_leave_room_and_no_memory(tmp_path: Path) -> None:
    """Past 900 open connections of one user the next one is refused, and what they took is given back when they are gone."""
    here = server.up(Settings(tmp_path / "vertex"), 0)
    process = psutil.Process(here.pid)
    context = ssl.create_default_context(cafile=str(here.root / FOLDER / "ca.pem"))
    try:
        with ExitStack() as stack:
            for _ in range(300):
                stack.enter_context(tunnel(here, "storage.googleapis.com", context))
            full = process.memory_info().rss
            for _ in range(610):
                last = stack.enter_context(socket.create_connection(("127.0.0.1", here.front_port), timeout=30))
            answer = last.recv(200)
            assert answer.startswith(b"HTTP/1.1 503 more than 900 connections of the user"), answer
        why = f"refused: more than 900 connections of the user with id {os.geteuid()} are open"
        assert server.call(here, "GET", "/v1/made")["noted"][why]
        until = time.monotonic() + 20
        while process.memory_info().rss > full - (30 << 20):
            assert time.monotonic() < until, (full, process.memory_info().rss)
            time.sleep(0.1)
        tunnel(here, "storage.googleapis.com", context).close()
    finally:
        server.down(here.root)


def test_a_body_beyond_the_limit(front_client: requests.Session) -> None:
    """A JSON body of more than 10 MiB is refused with 400, and the next request is answered."""
    url = f"https://{AIPLATFORM}/v1/projects/my-project/locations/us-central1/customJobs"
    answer = front_client.post(url, data=b'{"displayName": "' + b"x" * (11 << 20) + b'"}')
    assert answer.json()["error"] == {
        "code": 400,
        "message": "Request payload size exceeds the limit: 10485760 bytes.",
        "status": "INVALID_ARGUMENT",
    }
    assert front_client.get(url).json() == {}


# -- HTTP/2

DIRECT = (("grpc.enable_http_proxy", 0),)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAMES = {
    "half a preface": b"PRI * HTTP/2.0\r\n",
    "half a frame": PREFACE + b"\x00\x00\x0c\x04\x00\x00\x00\x00\x00\x00\x03",
    "no preface": b"\x00" * 64,
    "a frame that is too large": PREFACE + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
    "headers that are none": PREFACE + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\x00\x00\x04\x01\x05\x00\x00\x00\x01\xff\xff\xff\xff",
}  # fmt: skip


@pytest.mark.parametrize("what", FRAMES)
def test_garbage_in_http2(what: str, with_grpc: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no HTTP/2 is closed, or waits alone: a call of gRPC through the front is answered meanwhile."""
    import grpc

    change = transparent(with_grpc, os.environ, project="my-project", region="us-central1")
    context = ssl.create_default_context(cafile=change.set["SSL_CERT_FILE"])
    context.set_alpn_protocols(["h2"])
    with (
        tunnel(with_grpc, AIPLATFORM, context) as garbled,
        grpc.insecure_channel(f"127.0.0.1:{with_grpc.grpc_port}", DIRECT) as channel,
    ):
        assert garbled.selected_alpn_protocol() == "h2"
        garbled.sendall(FRAMES[what])
        call = channel.unary_unary("/google.cloud.aiplatform.v1.JobService/ListCustomJobs", bytes, bytes)
        parent = b"projects/my-project/locations/us-central1"
        assert call(b"\x0a" + bytes([len(parent)]) + parent, timeout=60) == b""
        if not what.startswith("half"):
            garbled.settimeout(30)
            with suppress(ConnectionError, ssl.SSLError):
                while garbled.recv(4096):
                    pass


# -- web pages


MUTATING = ("POST", "PUT", "PATCH", "DELETE")
PATHS = {  # host of the API, and the path of something that changes state
    "us-central1-aiplatform": "/v1/projects/my-project/locations/us-central1/customJobs",
    "storage": "/storage/v1/b",
    "www": "/upload/storage/v1/b/x/o",
    "x.storage": "/object",
    "cloudscheduler": "/v1/projects/my-project/locations/us-central1/jobs",
    "logging": "/v2/entries:write",
    "cloudresourcemanager": "/v3/projects/my-project:setIamPolicy",
    "oauth2": "/token",
    "iamcredentials": "/v1/projects/-/serviceAccounts/x:signBlob",
    "bigquery": "/bigquery/v2/projects/x/jobs",
}
PLAIN = (
    "/vertex/v1/projects/my-project/locations/us-central1/customJobs", "/storage/v1/b", "/upload/storage/v1/b/x/o",
    "/scheduler/v1/projects/my-project/locations/us-central1/jobs", "/logging/v2/entries:write", "/local/v1/stop",
    "/resourcemanager/v3/projects/my-project:setIamPolicy", "/batch/storage/v1", "/nothing",
)  # fmt: skip
PAGES = (
    {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"}, {"Host": "evil.example"}, {"Host": "evil.example:443"},
)  # fmt: skip


@pytest.mark.whole
def test_no_page_changes_anything(front_client: requests.Session, here: RunningServer) -> None:
    """Every API, by its real name and at the server's own port, refuses what changes state from a page or for another host."""
    asked = [(f"https://{name}.googleapis.com{path}", ("POST", "DELETE")) for name, path in PATHS.items()]
    asked += [(here.url + path, MUTATING) for path in PLAIN]
    page, *others = PAGES
    for url, methods in asked:
        for method in methods:  # each refusal closes its connection: TLS anew
            assert front_client.request(method, url, json={}, headers=page).status_code == 403, (method, url)
    for header in others:
        for url in (asked[0][0], asked[-1][0]):
            assert front_client.post(url, json={}, headers=header).status_code == 403, (header, url)
    assert server.find(here.root) is not None


def test_no_page_calls_grpc(with_grpc: RunningServer) -> None:
    """A call with the header fields that browsers add is refused on the gRPC port."""
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{with_grpc.grpc_port}", DIRECT) as channel:
        for path in ("/google.cloud.aiplatform.v1.JobService/ListCustomJobs", "/no.such.Service/Do"):
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(path, bytes, bytes)(b"", metadata=[("origin", "https://evil.example")], timeout=60)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
