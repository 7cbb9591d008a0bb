"""What becomes of a host, and what a command of `local run` sees."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from localvertex import state
from localvertex.front import variables
from localvertex.front.hosts import Handling, Hosts, registries
from localvertex.front.variables import OWN_PROXIES, TABLE, no_proxy, of_replica, transparent, with_own_proxies
from localvertex.runner.replica import startup_path
from localvertex.state import RunningServer

FETCH = Path(__file__).parents[1] / "clients/programs/Fetch.java"


@pytest.mark.parametrize(
    ("host", "way"),
    [
        ("storage.googleapis.com", Handling.SERVED),
        ("googleapis.com.", Handling.SERVED),
        ("metadata.google.internal", Handling.SERVED),
        ("notgoogleapis.com", Handling.REFUSED),
        ("pypi.org", Handling.PASSED),
        ("pypi.org.evil.example", Handling.REFUSED),
        ("index.corp.example", Handling.PASSED),
        ("a.allowed.example", Handling.PASSED),
        ("allowed.example", Handling.REFUSED),
        ("10.0.0.1", Handling.REFUSED),
    ],
)
def test_the_way_of_a_host(host: str, way: Handling) -> None:
    """Google's are served, registries and what the project file and pip's index name pass, the rest is refused."""
    index = {"PIP_INDEX_URL": "https://u:p@index.corp.example/simple", "HOME": "/nonexistent"}
    hosts = Hosts(["*.allowed.example", *registries(index)])
    assert hosts.handling(host, 443, 443) is way
    assert hosts.handling(host, 22, 443) is (way if way is Handling.SERVED else Handling.REFUSED)


def test_an_unusual_port_is_allowed_by_its_number() -> None:
    """A host with a port in the project file, or in an index of the user's, passes on that port alone."""
    hosts = Hosts(
        ["a.example:8443", *registries({"PIP_INDEX_URL": "http://devpi.example:3141/x", "HOME": "/nonexistent"})]
    )
    asked = [("a.example", 8443, 443), ("devpi.example", 3141, 80), ("a.example", 443, 443), ("devpi.example", 80, 80)]
    assert [hosts.handling(*one) for one in asked] == [
        Handling.PASSED,
        Handling.PASSED,
        Handling.REFUSED,
        Handling.REFUSED,
    ]
    assert "pypi.org:22" in hosts.refusal("pypi.org", 22, 443)


def test_a_file_of_the_front_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    """What is named by its content is looked at: an empty bundle or configuration does not stay."""
    (tmp_path / "ca.pem").write_bytes(b"-----BEGIN CERTIFICATE-----\n")
    made = [variables.bundle(tmp_path, {}), variables.boto(tmp_path, {}, "p"), variables.curl(tmp_path, {}) / ".curlrc"]
    whole = [path.read_bytes() for path in made]
    for path in made:
        path.write_bytes(b"")
    variables.bundle(tmp_path, {}), variables.boto(tmp_path, {}, "p"), variables.curl(tmp_path, {})
    assert [path.read_bytes() for path in made] == whole and all(whole)


def test_an_index_of_google_is_not_passed_on(tmp_path: Path) -> None:
    """A pip configuration opens its own index, and an index below googleapis.com stays here."""
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://mirror.example/simple\n[install]\nfind-links=x")
    found = list(registries({"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "HOME": "/nonexistent"}))
    assert found == ["mirror.example"]
    assert (
        Hosts(registries({"PIP_INDEX_URL": "https://storage.googleapis.com/x"})).handling(
            "storage.googleapis.com", 443, 443
        )
        is Handling.SERVED
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
    for audience in ([row.name for row in TABLE if row.command], [row.name for row in TABLE if row.replica]):
        assert len(set(audience)) == len(audience)


def test_the_record_has_both_ports(here: RunningServer) -> None:
    """Whoever finds the server finds both ports of its front; the gRPC port is there once a gRPC server is."""
    found = state.find(here.root)
    assert found is not None and (found.front_port, found.tls_port) == (here.front_port, here.tls_port)
    keys = {"pid", "port", "url", "grpc_port", "front_port", "tls_port"}
    assert set(json.loads((here.root / "server.json").read_text())) == keys


def test_options_of_the_user_stay(here: RunningServer, tmp_path: Path) -> None:
    """What the user gave Java and Node by their variables is kept before ours, which a command inside another gets once."""
    (tmp_path / ".wgetrc").write_text("timeout = 7")
    user = {
        "HOME": str(tmp_path),
        "JAVA_TOOL_OPTIONS": "-Xmx1g",
        "NODE_OPTIONS": "--no-deprecation",
        "PYTHONPATH": "/a:/b",
    }
    seen = transparent(here, user, project="p", region="us-central1").over(user)
    assert seen["JAVA_TOOL_OPTIONS"].startswith("-Xmx1g -Djavax.net.ssl.trustStore=")
    before, require, script = seen["NODE_OPTIONS"].split(" ", 2)
    assert (before, require) == ("--no-deprecation", "--require") and Path(json.loads(script)).is_file()
    assert seen["PYTHONPATH"].endswith("/startup:/a:/b") and "timeout = 7\n" in Path(seen["WGETRC"]).read_text()
    again = transparent(here, seen, project="p", region="us-central1").set
    assert {name: again[name] for name in ("NODE_OPTIONS", "PYTHONPATH", "WGETRC")}.items() <= seen.items()


def test_an_engine_gets_the_proxies_of_the_user(here: RunningServer) -> None:
    """What uses this machine's network has the user's proxies again, also in a command inside another one, and no token of the front."""
    user = {"PATH": "/bin", "https_proxy": "http://u:p@mine.example:1", "NO_PROXY": "corp.example"}
    seen = transparent(here, user, project="p", region="us-central1").over(user)
    inner = transparent(here, seen, project="p", region="us-central1").over(seen)
    names = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy", OWN_PROXIES)
    for environ in (user, seen, inner):
        found = with_own_proxies(environ)
        assert {name: found[name] for name in names if name in found} == {
            name: user[name] for name in names if name in user
        }
    assert with_own_proxies({"http_proxy": "http://vertexrig:t@127.0.0.1:1", OWN_PROXIES: "[1]"}) == {}


def test_gsutil_has_a_configuration_of_its_own(here: RunningServer) -> None:
    """Its file names the made-up account and the certificates that the other variables name, and is written once."""
    change = transparent(here, {}, project="my-project", region="us-central1").set
    lines = Path(change["BOTO_CONFIG"]).read_text().splitlines()
    assert f"gs_service_key_file = {change['GOOGLE_APPLICATION_CREDENTIALS']}" in lines
    assert f"ca_certificates_file = {change['SSL_CERT_FILE']}" in lines
    assert transparent(here, {}, project="my-project", region="us-central1").set == change


def test_tensorflow_in_a_replica_reads_one_authority(here: RunningServer) -> None:
    """What TensorFlow reads for each call to gs:// is short; other programs, and commands of the user's, trust the rest too."""
    replica = of_replica(here, {}, project="my-project")
    command = transparent(here, {}, project="my-project", region="us-central1").set
    assert Path(replica["CURL_CA_BUNDLE"]).read_text().count("BEGIN CERTIFICATE") == 1
    assert command["CURL_CA_BUNDLE"] == command["SSL_CERT_FILE"] == replica["SSL_CERT_FILE"]
    assert Path(replica["SSL_CERT_FILE"]).read_text().count("BEGIN CERTIFICATE") > 50
    assert "GCS_READ_CACHE_MAX_SIZE_MB" in replica and "GCS_READ_CACHE_MAX_SIZE_MB" not in command


@pytest.mark.whole
@pytest.mark.parametrize("program", ["python", "java"])
def test_a_replica_is_led_here(here: RunningServer, program: str) -> None:
    """A library in a replica that asks no proxy, and a JVM, reach this server by the real name, with TLS that they verify."""
    seen = of_replica(here, {}, project="my-project")
    code = "import sys, urllib.request as u; u.install_opener(u.build_opener(u.ProxyHandler({}))); print(u.urlopen(sys.argv[1]).read())"
    words = {"python": [sys.executable, "-c", code], "java": [shutil.which("java"), str(FETCH)]}[program]
    if words[0] is None:
        pytest.skip("there is no Java here")
    url = "https://storage.googleapis.com/storage/v1/b?project=my-project"
    done = subprocess.run([*words, url], env={**seen, **startup_path(seen)}, capture_output=True, text=True)
    assert "storage#buckets" in done.stdout, done.stderr


_LOOKED_UP = """
import socket, threading
def look():
    try:
        print(socket.getaddrinfo("host.invalid", 443))
    except OSError as error:
        print(error.strerror)
for _ in range(2):
    both = [threading.Thread(target=look) for _ in range(2)]
    [one.start() for one in both]
    [one.join() for one in both]
"""


@pytest.mark.parametrize(
    ("answers", "said", "times"),
    [
        ("403 no way", ["no way"] * 4, 2),
        ("503 too many", ["too many"] * 4, 4),
        ("", ["host.invalid cannot be reached: the local Vertex's proxy gave no answer"] * 4, 4),
    ],
)
def test_a_host_is_refused_until_the_proxy_allows_it(answers: str, said: list[str], times: int) -> None:
    """No thread goes on while another one's question is open; an answer that decides is kept, another one is not."""
    asked = 0
    both = threading.Barrier(2)

    def answer(end: socket.socket) -> None:
        nonlocal asked
        end.recv(4096)
        asked += 1
        with suppress(threading.BrokenBarrierError):
            both.wait(5)
        end.sendall(f"HTTP/1.1 {answers}\r\n\r\n".encode() if answers else b"")
        end.close()

    def serve() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=listener.accept()[:1]).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        seen = {state.NAMES: "127.0.0.1:9", "HTTPS_PROXY": f"http://u:t@127.0.0.1:{listener.getsockname()[1]}"}
        done = subprocess.run(
            [sys.executable, "-c", _LOOKED_UP], env={**seen, **startup_path(seen)}, capture_output=True, text=True
        )
        listener.shutdown(socket.SHUT_RDWR)
        serving.join()
    assert done.stdout.splitlines() == said and asked == times, done.stderr


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_in_a_replica_trusts_all_authorities(here: RunningServer) -> None:
    """Curl reads the variable that is cut short for TensorFlow, and its own configuration puts that right."""
    replica = of_replica(here, {}, project="my-project")
    url = "https://storage.googleapis.com/storage/v1/b?project=my-project"
    done = subprocess.run(
        ["curl", "-sv", url], env={"PATH": "/usr/bin:/bin", **replica}, capture_output=True, text=True
    )
    assert '"storage#buckets"' in done.stdout and f"CAfile: {replica['SSL_CERT_FILE']}" in done.stderr, done.stderr
