"""The image of the Containerfile, on a real podman with a network of its own: clients elsewhere, and who is let in."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests

from localvertex.server import published
from tests.localvertex.test_containers_served import packages
from tests.support import engines
from tests.support.engines import BASE, EXECUTOR, podman
from tests.support.jobkit import Api, job
from tests.support.jobkit import container as pool_of
from tests.support.tools import REPOSITORY, module

pytestmark = pytest.mark.whole
IMAGE = "localhost/local-vertex:1"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory, podman_storage: Path) -> str:
    """The Containerfile's image, on a base image that has the packages: no index is asked."""
    folder = tmp_path_factory.mktemp("image")
    required = importlib.metadata.requires("vertexrig") or ()
    packages(folder / "site", *(line for line in required if "extra" not in line or '"local"' in line))
    with pytest.MonkeyPatch.context() as patch:
        engines.use(podman_storage, patch)
        site = podman("run", "--rm", BASE, "python", "-c", "import site; print(site.getsitepackages()[0])").stdout
        (folder / "Dockerfile").write_text(f"FROM {BASE}\nCOPY site {site}")
        podman("build", "--tag", "localhost/local-vertex-base:1", str(folder))
        words = ["--build-arg", "BASE=localhost/local-vertex-base:1", "--build-arg", "PIP_NO_INDEX=1"]
        podman("build", "--file", str(REPOSITORY / "Containerfile"), "--tag", IMAGE, *words, str(REPOSITORY))
    shutil.rmtree(folder / "site")
    return IMAGE


@pytest.fixture
def container(image: str, containers: Path) -> Iterator[SimpleNamespace]:
    """A container of it, with its ports on this machine and its own address in the engine's network."""
    options = ["--network", "bridge", "--env", f"{published.HOSTS}=local-vertex"]
    options += [word for port in (8642, 8643, 8644) for word in ("--publish", f"127.0.0.1::{port}")]
    name = podman("run", "--detach", *options, image).stdout.strip()
    try:
        for _ in range(300):
            if "answers at the ports" in podman("logs", name).stderr:
                break
            time.sleep(0.1)
        else:
            pytest.fail(podman("logs", name).stderr)
        settings = json.loads(podman("inspect", name).stdout)[0]["NetworkSettings"]
        ports = {int(key.partition("/")[0]): int(rows[0]["HostPort"]) for key, rows in settings["Ports"].items()}
        yield SimpleNamespace(name=name, ports=ports, address=settings["Networks"]["podman"]["IPAddress"])
    finally:
        podman("rm", "--force", "--time", "3", name)


INSIDE = """
import json, urllib.error, urllib.request
def asked(host):
    try:
        return urllib.request.urlopen(f"http://{host}:8642/storage/v1/b?project=my-project").status
    except urllib.error.HTTPError as error:
        return error.code
print(asked("local-vertex"), asked("stranger"))
"""


def test_other_containers_and_this_machine_use_it(container: SimpleNamespace, tmp_path: Path) -> None:
    """REST and gRPC answer from outside and a job writes to a bucket; another container gets in by the name in the variable alone. A
    client that trusts the container's authority reaches Google's hosts through the proxy.
    """
    url = f"http://127.0.0.1:{container.ports[8642]}"
    api = Api(url)
    requests.post(f"{url}/storage/v1/b?project=my-project", json={"name": "bucket"})
    code = "open('/gcs/bucket/made', 'w').write('by a job')"
    made = api.create(job(pool_of(EXECUTOR, "python", "-c", code)))
    ended = api.wait(made["name"])
    assert ended["state"] == "JOB_STATE_SUCCEEDED", ended["error"]
    assert requests.get(f"{url}/storage/v1/b/bucket/o/made?alt=media").text == "by a job"
    hosts = [f"--add-host={name}:{container.address}" for name in ("local-vertex", "stranger")]
    inside = podman("run", "--rm", "--network", "bridge", *hosts, BASE, "python", "-c", INSIDE)
    assert inside.stdout == "200 403\n"

    aiplatform_v1 = module("google.cloud.aiplatform_v1")
    grpc = module("grpc")
    transport = aiplatform_v1.JobServiceClient.get_transport_class("grpc")(
        channel=grpc.insecure_channel(f"127.0.0.1:{container.ports[8644]}")
    )
    client = aiplatform_v1.JobServiceClient(transport=transport)
    assert [one.name for one in client.list_custom_jobs(parent=made["name"].partition("/customJobs")[0])] == [
        made["name"]
    ]

    (tmp_path / "ca.pem").write_text(podman("exec", container.name, "cat", "/var/lib/vertexrig/front/ca.pem").stdout)
    session = requests.Session()
    session.trust_env = False
    session.proxies = {"https": f"http://127.0.0.1:{container.ports[8643]}"}
    session.verify = str(tmp_path / "ca.pem")
    by_proxy = session.post("https://storage.googleapis.com/storage/v1/b?project=my-project", json={"name": "by-proxy"})
    assert by_proxy.status_code == 200, by_proxy.text
    with pytest.raises(requests.exceptions.ProxyError) as refused:
        session.get("https://example.com")
    assert "403" in str(refused.value)


def test_without_its_variable_it_passes_nothing_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the names of hosts the program ends at once, and says what setting them allows."""
    monkeypatch.delenv(published.HOSTS, raising=False)
    monkeypatch.setattr(published, "serve", lambda *given: pytest.fail("it serves"))
    with pytest.raises(SystemExit, match="Everybody who reaches a port of this container may run programs in it"):
        published.main()
