"""The front: what it answers, and what it passes on."""

from __future__ import annotations

import base64
import http.server
import json
import os
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest
import requests

from localvertex import server
from localvertex.front.variables import FOLDER
from localvertex.jobs.settings import Settings
from localvertex.state import RunningServer
from tests.support.frontkit import AIPLATFORM, Sink, spoken, tunnel
from tests.support.tools import gcloud_run


def test_the_real_names_reach_the_local_vertex(front_client: requests.Session) -> None:
    """By its real name each served API is answered here, over TLS that the client verifies."""
    jobs = f"https://{AIPLATFORM}/v1/projects/my-project/locations/us-central1/customJobs"
    assert front_client.get(jobs).json() == {}
    assert (
        front_client.post("https://storage.googleapis.com/storage/v1/b?project=p", json={"name": "named"}).status_code
        == 200
    )
    sent = front_client.post(
        "https://www.googleapis.com/upload/storage/v1/b/named/o?uploadType=media&name=a/b", data=b"0123456789"
    )
    for host in ("storage", "www"):  # whichever is asked, the links have the same hosts
        found = front_client.get(f"https://{host}.googleapis.com/storage/v1/b/named/o/a%2Fb").json()
        assert found == sent.json() and found["selfLink"] == "https://www.googleapis.com/storage/v1/b/named/o/a%2Fb"
        assert found["mediaLink"].startswith("https://storage.googleapis.com/download/storage/v1/b/named/o/a%2Fb?")
    bucket = front_client.get("https://storage.googleapis.com/storage/v1/b/named").json()
    assert bucket["selfLink"] == "https://www.googleapis.com/storage/v1/b/named"
    assert (
        front_client.get("https://storage.googleapis.com/named/a/b", headers={"Range": "bytes=2-4"}).content == b"234"
    )
    assert front_client.get("https://named.storage.googleapis.com/a/b").content == b"0123456789"
    past = front_client.get("https://storage.googleapis.com/named/a/b", headers={"Range": "bytes=10-"})
    assert (past.status_code, past.headers["content-range"]) == (416, "bytes */10")
    missing = front_client.get("https://storage.googleapis.com/named/nothing")
    assert (missing.status_code, "<Code>NoSuchKey</Code>" in missing.text) == (404, True)
    assert (
        front_client.get("https://cloudscheduler.googleapis.com/v1/projects/p/locations/us-central1/jobs").json() == {}
    )
    project = front_client.get("https://cloudresourcemanager.googleapis.com/v3/projects/my-project").json()
    assert project["projectId"] == "my-project" and project["state"] == "ACTIVE"


def test_a_location_other_than_the_hosts_is_refused(front_client: requests.Session) -> None:
    """A request at a region's host for another location is refused as by the service; a project that is none comes first."""
    answer = front_client.get(f"https://{AIPLATFORM}/v1/projects/my-project/locations/europe-west4/customJobs")
    found = answer.json()["error"]
    words = "The provided location ID doesn't match the endpoint. The valid location ID is `us-central1`."
    assert (answer.status_code, found["message"]) == (
        400,
        f"List of found errors:\t1.Field: parent; Message: {words}\t",
    )
    assert found["details"][0]["fieldViolations"] == [{"field": "parent", "description": words}]
    assert front_client.get(f"https://{AIPLATFORM}/v1/projects/UP/locations/europe-west4/customJobs").status_code == 403


def test_an_api_that_is_not_served_says_so(front_client: requests.Session, here: RunningServer) -> None:
    """Another API, and another method of a served one, get 405 with the service, the method and what is served, and a line in the log."""
    answer = front_client.get("https://bigquery.googleapis.com/bigquery/v2/projects/my-project/jobs")
    assert answer.status_code == 405 and answer.json()["error"]["status"] == "UNIMPLEMENTED"
    assert "bigquery.googleapis.com: GET /bigquery/v2/projects/my-project/jobs" in answer.json()["error"]["message"]
    place = f"https://{AIPLATFORM}/v1/projects/my-project/locations/us-central1"
    answer = front_client.get(f"{place}/featurestores/f/entityTypes")
    assert answer.status_code == 405 and "FeaturestoreService/ListEntityTypes" in answer.json()["error"]["message"]
    assert "It serves training: " in answer.json()["error"]["message"]
    noted = server.call(here, "GET", "/v1/made")["noted"]
    assert noted["not served: bigquery.googleapis.com GET /bigquery/v2/projects/…/jobs"] == 1


def test_the_console_marks_what_a_stand_in_answered(front_client: requests.Session, here: RunningServer) -> None:
    """Among the calls those that were answered plausibly, with nothing done, are told from those that were served."""
    listed = front_client.get("https://iam.googleapis.com/v1/projects/my-project/serviceAccounts")
    front_client.get("https://storage.googleapis.com/storage/v1/b")
    assert listed.status_code == 200
    calls = requests.get(f"{here.url}/console/v1/calls", timeout=30).json()["calls"][-2:]
    assert [one["transport"] for one in calls] == ["REST, proxy, without effect", "REST, proxy"]


def test_an_account_is_found_in_whatever_project(front_client: requests.Session) -> None:
    """A service account that was made is found by its e-mail alone, as gcloud describes it; one that was not is a 404."""
    accounts = "https://iam.googleapis.com/v1/projects"
    made = front_client.post(f"{accounts}/my-project/serviceAccounts", json={"accountId": "anywhere"}).json()
    email = "anywhere@my-project.iam.gserviceaccount.com"
    for project in ("my-project", "-"):
        assert front_client.get(f"{accounts}/{project}/serviceAccounts/{email}").json() == made
        assert front_client.get(f"{accounts}/{project}/serviceAccounts/where@my-project").status_code == 404


def test_a_repository_is_answered_as_recorded(front_client: requests.Session) -> None:
    """Artifact Registry's operation, repository, 404 and 409 have the fields and words of recordings."""
    parent = "projects/my-project/locations/europe-west1"
    url = f"https://artifactregistry.googleapis.com/v1/{parent}/repositories"
    missing = front_client.get(f"{url}/recorded")
    wanted = {"code": 404, "status": "NOT_FOUND", "message": "Requested entity was not found."}
    assert (missing.status_code, missing.json()["error"]) == (404, wanted)
    made = front_client.post(f"{url}?repositoryId=recorded", json={"format": "DOCKER"}).json()
    kind = "type.googleapis.com/google.devtools.artifactregistry.v1."
    shown = {"name": f"{parent}/repositories/recorded", "mode": "STANDARD_REPOSITORY", "format": "DOCKER"}
    assert made["name"].startswith(f"{parent}/operations/") and made["metadata"] == {
        "@type": f"{kind}OperationMetadata"
    }
    assert made["response"] == {"@type": f"{kind}Repository", **shown}
    found = front_client.get(f"{url}/recorded").json()
    assert found["registryUri"] == "europe-west1-docker.pkg.dev/my-project/recorded" and shown.items() <= found.items()
    assert found["createTime"] == found["updateTime"]
    again = front_client.post(f"{url}?repositoryId=recorded", json={"format": "DOCKER"})
    assert (again.status_code, again.json()["error"]["message"]) == (409, "the repository already exists")
    gone = front_client.delete(f"{url}/recorded").json()
    assert gone["done"] and gone["response"] == {"@type": "type.googleapis.com/google.protobuf.Empty"}
    assert front_client.get(f"https://artifactregistry.googleapis.com/v1/{gone['name']}").json() == gone
    assert [front_client.request(one, f"{url}/recorded").status_code for one in ("GET", "DELETE")] == [404, 404]


HOUSEKEEPING = (
    ("auth list --filter=status:ACTIVE --format=value(account)", "local-vertex@"),
    ("services enable run.googleapis.com", ""),
    ("services list --enabled --format=value(config.name)", "run.googleapis.com"),
    ("artifacts repositories create mine --repository-format=docker --location=us-central1", ""),
    ("artifacts repositories describe mine --location=us-central1 --format=value(name)", "repositories/mine"),
    ("artifacts repositories delete mine --location=us-central1 --quiet", ""),
    (
        "projects add-iam-policy-binding my-project --member=user:a@example.com --role=roles/viewer",
        "user:a@example.com",
    ),
    ("iam service-accounts create worker", ""),
    ("iam service-accounts list --format=value(email)", "worker@my-project.iam.gserviceaccount.com"),
    ("iam service-accounts describe worker@my-project.iam.gserviceaccount.com --format=value(email)", "worker@"),
)


@pytest.mark.whole
@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_housekeeping_of_gcloud_is_stood_in_for(
    here: RunningServer, front_variables: dict[str, str], tmp_path: Path
) -> None:
    """What notebooks do to a project before they train is answered, and kept, and named as without effect; what is not served is refused at once."""
    for words, said in HOUSEKEEPING:
        done = gcloud_run(*words.split(), env=front_variables, cwd=tmp_path)
        assert done.returncode == 0 and said in done.stdout, (words, done.stderr)
    begun = time.monotonic()
    done = gcloud_run("builds", "triggers", "list", env=front_variables, cwd=tmp_path)
    # It waited for 37 s where it tried again.
    assert done.returncode == 1 and "does not serve GET /v1/projects/" in done.stderr and time.monotonic() - begun < 15
    noted = server.call(here, "GET", "/v1/made")["noted"]
    for method in ("GET", "POST"):  # what reads is answered as plausibly as what makes
        said = f"answered without effect: iam.googleapis.com {method}"
        assert any(line.startswith(said) for line in noted)


def test_the_account_is_made_up_and_works(front_client: requests.Session, front_variables: dict[str, str]) -> None:
    """google-auth takes the key file, the token endpoint answers it, and so does the metadata server."""
    import google.auth
    import google.auth.transport.requests
    from google.oauth2 import id_token

    asked = google.auth.transport.requests.Request(session=front_client)
    found: Any
    found, project = google.auth.default(["https://www.googleapis.com/auth/cloud-platform"])
    found.refresh(asked)
    assert (project, found.token) == ("my-project", front_variables["GOOGLE_AUTH_TOKEN_FOR_TESTING"])
    token = id_token.fetch_id_token(asked, "https://service.example.com")
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert (claims["aud"], claims["email"]) == ("https://service.example.com", found.service_account_email)
    metadata = "http://metadata.google.internal/computeMetadata/v1"
    flavored = {"Metadata-Flavor": "Google"}
    assert front_client.get(f"{metadata}/project/project-id", headers=flavored).text == "local-project"
    account = front_client.get(f"{metadata}/instance/service-accounts/default/?recursive=true", headers=flavored).json()
    assert account["email"] == found.service_account_email
    assert front_client.get(f"{metadata}/project/project-id").status_code == 403
    assert front_client.get(f"{metadata}/nothing", headers=flavored).status_code == 404


def test_cloud_storage_without_tls(here: RunningServer, front_client: requests.Session) -> None:
    """Objects have plain URLs, too, of both forms."""
    folder = here.root / "gs" / "plain-bucket"
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("this is a test")
    for url in ("http://storage.googleapis.com/plain-bucket/a.txt", "http://plain-bucket.storage.googleapis.com/a.txt"):
        answer = front_client.get(url)
        assert (answer.text, answer.headers["server"]) == ("this is a test", "UploadServer")


EMPTIED = """
import google.auth, google.auth.compute_engine
from google.auth.transport.requests import Request
for found in (google.auth.default(["https://www.googleapis.com/auth/cloud-platform"])[0], google.auth.compute_engine.Credentials()):
    found.refresh(Request())
    print(found.service_account_email, found.token)
"""


def test_a_program_that_empties_its_credentials_has_the_account(front_variables: dict[str, str]) -> None:
    """What notebooks do with GOOGLE_APPLICATION_CREDENTIALS, and a machine's own account, lead to the made-up one."""
    env = {**front_variables, "PATH": os.environ["PATH"], "GOOGLE_APPLICATION_CREDENTIALS": ""}
    done = subprocess.run([sys.executable, "-c", EMPTIED], env=env, capture_output=True, text=True, check=False)
    lines = done.stdout.split()
    assert lines[:2] == lines[2:] and lines[0].startswith("local-vertex@"), done.stderr


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
    here: RunningServer, grpc_beside: None, front_variables: dict[str, str], front_client: requests.Session
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
    done = subprocess.run(
        [sys.executable, "-c", program], env=front_variables, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "answered\n", done.stderr
    both = ssl.create_default_context(cafile=front_variables["SSL_CERT_FILE"])
    both.set_alpn_protocols(["h2", "http/1.1"])
    assert tunnel(here, AIPLATFORM, both).selected_alpn_protocol() == "http/1.1"


def test_nothing_goes_to_google(front_client: requests.Session, sink: Sink) -> None:
    """Of all that is asked, the user's own proxy sees package registries and allowed hosts, and no host of Google's."""
    sink.heads.clear()
    for host in (AIPLATFORM, "compute.googleapis.com", "a.b.mtls.googleapis.com", "oauth2.googleapis.com"):
        assert front_client.get(f"https://{host}/v1/anything").status_code in (404, 405)
    for host in ("pypi.org", "files.pythonhosted.org", "data.example.com", "accounts.google.com", "evilgoogleapis.com"):
        with pytest.raises(requests.exceptions.ProxyError):
            front_client.get(f"https://{host}/")
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
            server.running(Settings(tmp_path, allow_hosts=("localhost:*",))) as passing:  # fmt: skip
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


def test_a_refusal_says_how_to_allow_the_host(front_client: requests.Session) -> None:
    """The reason of the refusal, which clients show, names the host and the key of the project file."""
    with pytest.raises(
        requests.exceptions.ProxyError, match=r"403 huggingface.co .* allow_hosts under local: in vertexrig"
    ):
        front_client.get("https://huggingface.co/")


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
