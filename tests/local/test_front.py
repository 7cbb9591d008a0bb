"""The front: who may use it, what it answers, passes on and refuses, and what its authority is good for."""

from __future__ import annotations

import base64
import http.server
import json
import os
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from tests.tools import need
from vertexrig.local import server, state
from vertexrig.local.front import authority
from vertexrig.local.front.authority import Authority
from vertexrig.local.front.hosts import Hosts, Way, registries
from vertexrig.local.front.variables import FOLDER, TABLE, no_proxy, transparent
from vertexrig.local.jobs.settings import Settings
from vertexrig.local.state import RunningServer

AIPLATFORM = "us-central1-aiplatform.googleapis.com"


@dataclass
class Sink:
    """A proxy of the user's that connects to nothing and keeps what it was asked for."""

    port: int
    heads: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    class Keeping(http.server.BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            found.heads.append(f"{self.path} {self.headers['Proxy-Authorization']}")
            self.send_error(502, "nothing leaves this test")

        do_GET = do_POST = do_CONNECT

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Keeping) as proxy:
        found = Sink(proxy.server_address[1])
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield found
        proxy.shutdown()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, sink: Sink) -> Iterator[RunningServer]:
    """A server whose user has a proxy, which is the sink."""
    root = tmp_path_factory.mktemp("front")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("https_proxy", f"http://me:secret@127.0.0.1:{sink.port}")
        patch.delenv("no_proxy", raising=False)
        patch.delenv("NO_PROXY", raising=False)
        with server.running(Settings(root / "vertex", allow_hosts=("*.example.com",))) as running:
            yield running


@pytest.fixture
def environment(here: RunningServer) -> dict[str, str]:
    """What a command of `local run` sees."""
    return transparent(here, os.environ, project="my-project", region="us-central1").over(os.environ)


@pytest.fixture
def client(here: RunningServer, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> requests.Session:
    """A client that has nothing but the variables."""
    monkeypatch.setattr(os, "environ", environment)
    return requests.Session()


def spoken(here: RunningServer, sent: bytes, *, login: bool = True) -> bytes:
    """What the front answers to bytes, until it closes the connection."""
    token = (here.root / FOLDER / "token").read_text()
    given = b"Proxy-Authorization: Basic " + base64.b64encode(f"vertexrig:{token}".encode()) + b"\r\n"
    with socket.create_connection(("127.0.0.1", here.front_port), timeout=30) as connection:
        connection.sendall(sent.replace(b"{login}", given if login else b""))
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    return answer


# -- what is answered


def test_the_real_names_reach_the_local_vertex(client: requests.Session) -> None:
    """By its real name each served API is answered here, over TLS that the client verifies."""
    jobs = f"https://{AIPLATFORM}/v1/projects/my-project/locations/us-central1/customJobs"
    assert client.get(jobs).json() == {}
    assert client.post("https://storage.googleapis.com/storage/v1/b", json={"name": "named"}).status_code == 200
    sent = client.post(
        "https://www.googleapis.com/upload/storage/v1/b/named/o?uploadType=media&name=a/b", data=b"0123456789"
    )
    assert sent.json()["selfLink"].startswith("https://www.googleapis.com/storage/v1/b/named/o/")
    assert client.get("https://storage.googleapis.com/named/a/b", headers={"Range": "bytes=2-4"}).content == b"234"
    assert client.get("https://named.storage.googleapis.com/a/b").content == b"0123456789"
    missing = client.get("https://storage.googleapis.com/named/nothing")
    assert (missing.status_code, "<Code>NoSuchKey</Code>" in missing.text) == (404, True)
    assert client.get("https://cloudscheduler.googleapis.com/v1/projects/p/locations/us-central1/jobs").json() == {}
    project = client.get("https://cloudresourcemanager.googleapis.com/v3/projects/my-project").json()
    assert project["projectId"] == "my-project" and project["state"] == "ACTIVE"


def test_an_api_that_is_not_served_says_so(client: requests.Session, here: RunningServer) -> None:
    """Another API, and another method of a served one, get 501 with the service and the method, and a line in the log."""
    answer = client.get("https://bigquery.googleapis.com/bigquery/v2/projects/my-project/jobs")
    assert answer.status_code == 501 and answer.json()["error"]["status"] == "UNIMPLEMENTED"
    assert "bigquery.googleapis.com: GET /bigquery/v2/projects/my-project/jobs" in answer.json()["error"]["message"]
    answer = client.get(f"https://{AIPLATFORM}/v1/projects/my-project/locations/us-central1/featurestores")
    assert answer.status_code == 501 and "FeaturestoreService/ListFeaturestores" in answer.json()["error"]["message"]
    noted = server.call(here, "GET", "/v1/made")["noted"]
    assert noted["not served: bigquery.googleapis.com GET /bigquery/v2/projects/…/jobs"] == 1


def test_the_account_is_made_up_and_works(client: requests.Session, environment: dict[str, str]) -> None:
    """google-auth takes the key file, the token endpoint answers it, and so does the metadata server."""
    import google.auth
    import google.auth.transport.requests
    from google.oauth2 import id_token

    asked = google.auth.transport.requests.Request(session=client)
    found, project = google.auth.default(["https://www.googleapis.com/auth/cloud-platform"])
    found.refresh(asked)
    assert (project, found.token) == ("my-project", environment["GOOGLE_AUTH_TOKEN_FOR_TESTING"])
    token = id_token.fetch_id_token(asked, "https://service.example.com")
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert (claims["aud"], claims["email"]) == ("https://service.example.com", found.service_account_email)
    metadata = "http://metadata.google.internal/computeMetadata/v1"
    flavored = {"Metadata-Flavor": "Google"}
    assert client.get(f"{metadata}/project/project-id", headers=flavored).text == "local-project"
    account = client.get(f"{metadata}/instance/service-accounts/default/?recursive=true", headers=flavored).json()
    assert account["email"] == found.service_account_email
    assert client.get(f"{metadata}/project/project-id").status_code == 403
    assert client.get(f"{metadata}/nothing", headers=flavored).status_code == 404


def test_what_is_secret_is_the_owners_alone(here: RunningServer) -> None:
    """The authority's key, the account's key and the token can be read by their owner only."""
    for name in ("ca.key", "credentials.json", "token"):
        assert stat.S_IMODE((here.root / FOLDER / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((here.root / FOLDER).stat().st_mode) == 0o700


# -- gRPC


@pytest.fixture
def grpc_beside(here: RunningServer) -> Iterator[None]:
    """A gRPC server on loopback, in the server's record."""
    import grpc

    class Echo(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(lambda sent, context: details.method.encode() + b" " + sent)

    record = here.root / "server.json"
    before = record.read_text()
    serving = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Echo()])
    port = serving.add_insecure_port("127.0.0.1:0")
    serving.start()
    record.write_text(json.dumps({**json.loads(before), "grpc_port": port}))
    try:
        yield
    finally:
        record.write_text(before)
        serving.stop(0)


def test_grpc_and_http_share_a_host(
    here: RunningServer, grpc_beside: None, environment: dict[str, str], client: requests.Session
) -> None:
    """A client that speaks HTTP/2 alone reaches the gRPC server, 200 calls at once; one that also speaks 1.1 the REST API."""
    program = f"""
import grpc
channel = grpc.secure_channel("{AIPLATFORM}:443", grpc.ssl_channel_credentials())
call = channel.unary_unary("/service/Method")
answers = [call.future(b"%d" % n) for n in range(200)]
assert [a.result(60) for a in answers] == [b"/service/Method %d" % n for n in range(200)]
print("answered")
"""
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == "answered\n", done.stderr
    both = ssl.create_default_context(cafile=environment["SSL_CERT_FILE"])
    both.set_alpn_protocols(["h2", "http/1.1"])
    assert tunnel(here, AIPLATFORM, both).selected_alpn_protocol() == "http/1.1"


def tunnel(here: RunningServer, host: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    """TLS through the front."""
    token = (here.root / FOLDER / "token").read_text()
    login = base64.b64encode(f"vertexrig:{token}".encode()).decode()
    plain = socket.create_connection(("127.0.0.1", here.front_port), timeout=30)
    plain.sendall(f"CONNECT {host}:443 HTTP/1.1\r\nProxy-Authorization: Basic {login}\r\n\r\n".encode())
    assert plain.recv(200).startswith(b"HTTP/1.1 200 ")
    return context.wrap_socket(plain, server_hostname=host)


# -- what passes and what is refused


def test_nothing_goes_to_google(client: requests.Session, sink: Sink) -> None:
    """Of all that is asked, the user's own proxy sees package registries and allowed hosts, and no host of Google's."""
    sink.heads.clear()
    for host in (AIPLATFORM, "compute.googleapis.com", "a.b.mtls.googleapis.com", "oauth2.googleapis.com"):
        assert client.get(f"https://{host}/v1/anything").status_code in (404, 501)
    for host in ("pypi.org", "files.pythonhosted.org", "data.example.com", "accounts.google.com", "evilgoogleapis.com"):
        with pytest.raises(requests.exceptions.ProxyError):
            client.get(f"https://{host}/")
    login = "Basic " + base64.b64encode(b"me:secret").decode()
    assert sink.heads == [f"{host}:443 {login}" for host in ("pypi.org", "files.pythonhosted.org", "data.example.com")]


def test_an_allowed_host_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through a tunnel and by plain HTTP an allowed host gets what was sent, without the proxy's token."""
    seen = []

    class Echo(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path, len(body), self.headers["Proxy-Authorization"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body[-3:])

        def log_message(self, *args: object) -> None:
            pass

    for name in ("https_proxy", "http_proxy", "all_proxy", "HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as target, \
            server.running(Settings(tmp_path, allow_hosts=("localhost",))) as passing:  # fmt: skip
        threading.Thread(target=target.serve_forever, daemon=True).start()
        port, body = target.server_address[1], b"x" * 3_000_000 + b"end"
        head = b"Host: localhost\r\nContent-Length: %d\r\n" % len(body)
        plain = b"POST http://localhost:%d/plain HTTP/1.1\r\n{login}" % port + head + b"\r\n" + body
        assert spoken(passing, plain).endswith(b"\r\n\r\nend")
        token = (passing.root / FOLDER / "token").read_text()
        login = base64.b64encode(f"vertexrig:{token}".encode()).decode()
        with socket.create_connection(("127.0.0.1", passing.front_port), timeout=30) as connection:
            connection.sendall(
                f"CONNECT localhost:{port} HTTP/1.1\r\nProxy-Authorization: Basic {login}\r\n\r\n".encode()
            )
            assert connection.recv(200) == b"HTTP/1.1 200 Connection established\r\n\r\n"
            connection.sendall(b"POST /tunnel HTTP/1.0\r\n" + head + b"\r\n" + body)
            answer = b""
            while part := connection.recv(65536):
                answer += part
        assert answer.endswith(b"\r\n\r\nend")
        target.shutdown()
    assert seen == [("/plain", 3_000_003, None), ("/tunnel", 3_000_003, None)]


def test_a_refusal_says_how_to_allow_the_host(client: requests.Session) -> None:
    """The reason of the refusal, which clients show, names the host and the key of the project file."""
    with pytest.raises(
        requests.exceptions.ProxyError, match=r"403 huggingface.co .* allow_hosts under local: in vertexrig"
    ):
        client.get("https://huggingface.co/")


REFUSED = {
    "no token": (b"CONNECT storage.googleapis.com:443 HTTP/1.1\r\n\r\n", 407),
    "another token": (
        b"CONNECT storage.googleapis.com:443 HTTP/1.1\r\nProxy-Authorization: Basic dmVydGV4cmlnOng=\r\n\r\n", 407),
    "a token that is not base64": (b"CONNECT pypi.org:443 HTTP/1.1\r\nProxy-Authorization: Basic ???\r\n\r\n", 407),
    "plain HTTP to the proxy": (b"GET / HTTP/1.1\r\n{login}\r\n", 400),
    "plain HTTP to an API": (b"GET http://storage.googleapis.com/b/o HTTP/1.1\r\n{login}\r\n", 403),
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


def test_half_of_anything_holds_nothing_up(here: RunningServer, client: requests.Session) -> None:
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
        token = (here.root / FOLDER / "token").read_text()
        login = base64.b64encode(f"vertexrig:{token}".encode())
        plain = stack.enter_context(socket.create_connection(("127.0.0.1", here.front_port), timeout=30))
        plain.sendall(b"CONNECT x.googleapis.com:443 HTTP/1.1\r\nProxy-Authorization: Basic " + login + b"\r\n\r\n")
        assert plain.recv(100).startswith(b"HTTP/1.1 200")
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        while plain.recv(100):  # a TLS alert, and the end
            pass
        assert client.get("https://storage.googleapis.com/storage/v1/b").status_code == 200


def test_a_thousand_connections(here: RunningServer, client: requests.Session) -> None:
    """Past 1,000 open connections the next one is refused; when they are gone, all goes on."""
    with ExitStack() as stack:
        many = [stack.enter_context(socket.create_connection(("127.0.0.1", here.front_port))) for _ in range(1010)]
        many[-1].settimeout(30)
        assert many[-1].recv(100).startswith(b"HTTP/1.1 503 ")
    answers = {client.get("https://storage.googleapis.com/storage/v1/b").status_code for _ in range(3)}
    assert answers == {200}
    assert server.call(here, "GET", "/v1/made")["noted"]["refused: more than 1000 connections are open"] >= 1


def test_the_host_of_a_request_is_the_one_that_was_connected_to(client: requests.Session) -> None:
    """A request in a tunnel that names another host, or comes from a web page, is refused."""
    url = "https://storage.googleapis.com/storage/v1/b"
    assert client.get(url, headers={"Host": "compute.googleapis.com"}).status_code == 403
    assert client.post(url, json={"name": "x1x"}, headers={"Origin": "https://evil.example"}).status_code == 403
    assert client.post(url, json={"name": "x1x"}, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


# -- the authority


def shaken(server_side: ssl.SSLContext, authority_file: Path, host: str) -> str:
    """What a client that trusts an authority says of a server's certificate: "" if it takes it."""
    client = ssl.create_default_context(cafile=str(authority_file))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=host)
    other = server_side.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(6):
        for end in (one, other):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    return ""


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (x509.DNSName("storage.googleapis.com"), ""),
        (x509.DNSName("example.com"), "permitted subtree violation"),
        (x509.DNSName("googleapis.com.evil.example"), "permitted subtree violation"),
        (x509.IPAddress(__import__("ipaddress").ip_address("127.0.0.1")), "excluded subtree violation"),
    ],
)
def test_the_authority_is_good_for_googles_names_only(name: x509.GeneralName, reason: str, tmp_path: Path) -> None:
    """Whoever had its key could not stand for another host: a client refuses the certificate."""
    made = Authority(tmp_path)
    key = made._leaf_key
    until = made._certificate.not_valid_after_utc
    leaf = (
        authority._builder("x", made._certificate.subject, key.public_key(), until)
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .sign(made._key, hashes.SHA256())
    )
    file = tmp_path / "leaf.pem"
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + leaf.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    assert shaken(context, tmp_path / "ca.pem", str(name.value)) == reason
    constraints = made._certificate.extensions.get_extension_for_class(x509.NameConstraints)
    assert constraints.critical


def test_certificates_are_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An authority near its end is replaced, and a host's certificate a day before its own; fresh ones are kept."""
    monkeypatch.setattr(authority, "LIFETIME", timedelta(days=20))
    first = Authority(tmp_path).certificate
    monkeypatch.undo()
    made = Authority(tmp_path)
    assert made.certificate != first and Authority(tmp_path).certificate == made.certificate
    context = made.context("a.googleapis.com", ("http/1.1",))
    assert made.context("b.googleapis.com", ("http/1.1",)) is context
    monkeypatch.setattr(authority, "LEAF_RENEWED", timedelta(days=8))
    renewed = made.context("a.googleapis.com", ("http/1.1",))
    assert renewed is not context and shaken(renewed, tmp_path / "ca.pem", "a.googleapis.com") == ""


def test_damaged_files_are_made_again(tmp_path: Path) -> None:
    """A key that is cut short, or of another certificate, is replaced, and so is what belongs to it."""
    made = Authority(tmp_path).certificate
    (tmp_path / "ca.key").write_bytes(b"-----BEGIN")
    again = Authority(tmp_path)
    assert again.certificate != made
    assert shaken(again.context("x.googleapis.com", ("http/1.1",)), tmp_path / "ca.pem", "x.googleapis.com") == ""


def test_java_reads_the_trust_store(here: RunningServer, environment: dict[str, str]) -> None:
    """keytool finds our authority in the trust store, beside the public ones."""
    keytool = need("keytool")
    store = str(here.root / FOLDER / "trust.p12")
    done = subprocess.run(
        [keytool, "-list", "-keystore", store, "-storepass", "vertexrig", "-storetype", "PKCS12"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "vertexrig, " in done.stdout and done.stdout.count("trustedCertEntry") > 50, done.stdout[:500]
    assert store in environment["JAVA_TOOL_OPTIONS"]


# -- hosts and variables


@pytest.mark.parametrize(
    ("host", "way"),
    [
        ("storage.googleapis.com", Way.SERVED),
        ("googleapis.com.", Way.SERVED),
        ("metadata.google.internal", Way.SERVED),
        ("notgoogleapis.com", Way.REFUSED),
        ("pypi.org", Way.PASSED),
        ("pypi.org.evil.example", Way.REFUSED),
        ("index.corp.example", Way.PASSED),
        ("a.allowed.example", Way.PASSED),
        ("allowed.example", Way.REFUSED),
        ("10.0.0.1", Way.REFUSED),
    ],
)
def test_the_way_of_a_host(host: str, way: Way) -> None:
    """Google's are served, registries and what the project file and pip's index name pass, the rest is refused."""
    index = {"PIP_INDEX_URL": "https://u:p@index.corp.example/simple", "HOME": "/nonexistent"}
    assert Hosts(["*.allowed.example", *registries(index)]).way(host) is way


def test_an_index_of_google_is_not_passed_on(tmp_path: Path) -> None:
    """A pip configuration opens its own index, and an index below googleapis.com stays here."""
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://mirror.example/simple\n[install]\nfind-links=x")
    found = list(registries({"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "HOME": "/nonexistent"}))
    assert found == ["mirror.example"]
    assert (
        Hosts(registries({"PIP_INDEX_URL": "https://storage.googleapis.com/x"})).way("storage.googleapis.com")
        is Way.SERVED
    )


@pytest.mark.parametrize(
    ("given", "kept"),
    [("", ""), ("*", ""), (".com", ""), ("com", ""), ("storage.googleapis.com,corp.example", ",corp.example")],
)
def test_exceptions_of_the_users_proxy_never_cover_google(given: str, kept: str) -> None:
    """NO_PROXY keeps the user's hosts, and loses what would send Google's past the front."""
    assert no_proxy({"NO_PROXY": given}) == f"localhost,127.0.0.1,::1{kept}"


def test_credentials_are_hidden(here: RunningServer, tmp_path: Path) -> None:
    """No variable with the user's credentials reaches the command, and each is named; ours are not."""
    user = {
        "HOME": str(tmp_path), "PATH": "/bin", "GOOGLE_APPLICATION_CREDENTIALS": "/real.json", "GOOGLE_API_KEY": "AIza",
        "GOOGLE_OAUTH_ACCESS_TOKEN": "ya29", "CLOUDSDK_CONFIG": "/real", "ALL_PROXY": "socks5://x",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM": "http://elsewhere",
    }  # fmt: skip
    change = transparent(here, user, project="p", region="us-central1")
    seen = change.over(user)
    assert not {"/real.json", "AIza", "ya29", "/real", "socks5://x", "http://elsewhere"} & set(seen.values())
    assert set(change.hidden) == {
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_API_KEY",
        "GOOGLE_OAUTH_ACCESS_TOKEN",
        "CLOUDSDK_CONFIG",
    }
    assert transparent(here, seen, project="p", region="us-central1").hidden == ()
    assert len({row.name for row in TABLE}) == len(TABLE)


def test_the_record_has_both_ports(here: RunningServer) -> None:
    """Whoever finds the server finds its front; the gRPC port is there once a gRPC server is."""
    found = state.find(here.root)
    assert found is not None and found.front_port == here.front_port
    assert set(json.loads((here.root / "server.json").read_text())) == {"pid", "port", "url", "grpc_port", "front_port"}


def test_headers_that_tensorflow_sends_and_looks_for(here: RunningServer) -> None:
    """`Transfer-Encoding: identity`, also in pieces, is no error; `Location` and `Range` are written with capitals."""
    server.make_bucket(here, "headers")
    start = (
        b"POST /upload/storage/v1/b/headers/o?uploadType=resumable&name=x HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"transfer-encoding:  Identity\r\nX-Upload-Content-Length: 262145\r\nContent-Length: 0\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", here.port), timeout=30) as connection:
        for sent in (start[:100], start[100:150], start[150:]):
            connection.sendall(sent)
        head = connection.recv(65536).decode()
        (location,) = [line.partition(": ")[2] for line in head.split("\r\n") if line.startswith("Location: ")]
        path = location.partition("127.0.0.1")[2]
        connection.sendall(
            f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: identity\r\nContent-Length: 262144\r\n"
            "Content-Range: bytes 0-262143/262145\r\n\r\n".encode()
            + b"\r\nTransfer-Encoding: identity\r\n".ljust(262144)
        )
        answer = connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 308 ") and b"\r\nRange: bytes=0-262143\r\n" in answer
        connection.sendall(
            b"PUT " + path.encode() + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n"
            b"Content-Range: bytes 262144-262144/262145\r\n\r\n!"
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    kept = (here.root / "gs/headers/x").read_bytes()
    assert kept.startswith(b"\r\nTransfer-Encoding: identity\r\n ") and kept.endswith(b" !")
