"""Clients in other languages, and command-line programs, through the front."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvertex import server
from localvertex.state import RunningServer
from tests.clients.conftest import Run
from tests.clients.install import JARS, PLUGINS
from tests.clients.kit import AT_LENGTH, folder, missing, program
from tests.support.jobkit import IMAGE

PROGRAMS = Path(__file__).with_name("programs")
INSTALLED = ("guava*.jar", "failureaccess*.jar", "error-prone*.jar", "jsr305*.jar", "geronimo-annotation*.jar")


def test_node(run: Run, here: RunningServer) -> None:
    """Google's client for Node makes, finds, waits for and deletes jobs: over gRPC, its default, in both versions, and over REST.

    Node's own fetch is answered too.
    """
    modules = folder("node", "node_modules")
    done = run(program("node", "node"), str(PROGRAMS / "jobs.js"), IMAGE, NODE_PATH=str(modules))
    expected = []
    for way in ("v1", "v1beta1", "rest"):
        expected += [f"{way} JOB_STATE_SUCCEEDED 1", f"{way} deleted 5", f"{way} datasets 0"]
    *lines, fetched = done.stdout.splitlines()
    assert lines == expected, done.stderr
    assert fetched == "fetch 200"


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A class path with gRPC, google-auth and the stubs of JobService, made from the definitions that Google publishes."""
    root = folder("grpc-java", "root")
    protos = folder("node", "node_modules/@google-cloud/aiplatform/build/protos")
    gax = folder("node", "node_modules/google-gax/build/protos")
    made = tmp_path_factory.mktemp("java")
    (made / "source").mkdir()
    (made / "classes").mkdir()
    files = ["google/cloud/aiplatform/v1/job_service.proto"]
    env = {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries(root))}
    subprocess.run(
        [root / "usr/bin/protoc", f"--plugin=protoc-gen-grpc={root}/usr/bin/grpc_java_plugin", f"-I{protos}", f"-I{gax}",
         f"--java_out={made}/source", f"--grpc_out={made}/source", *_with_imports(protos, gax, files)],
        env=env, check=True, timeout=300,
    )  # fmt: skip
    jars = [*root.glob("usr/share/java/*.jar")]
    jars += [jar for name in INSTALLED for jar in Path("/usr/share/java").glob(name)]  # what apt had no need to bring
    path = ":".join([*map(str, jars), str(made / "classes")])
    sources = made / "sources"
    sources.write_text("\n".join(map(str, (made / "source").rglob("*.java"))))
    javac = [program("javac", "grpc-java"), "-nowarn", "-Xlint:none", "-cp", path, "-d", str(made / "classes")]
    subprocess.run([*javac, f"@{sources}", str(PROGRAMS / "GrpcJobs.java")], check=True, timeout=500)
    yield path


def libraries(root: Path) -> list[str]:
    """Folders of shared libraries below where Debian's packages were unpacked."""
    return [
        str(path)
        for pattern in ("usr/lib/*-linux-gnu", "usr/lib/*-linux-gnu/jni", "usr/lib/jni")
        for path in root.glob(pattern)
    ]


def _with_imports(protos: Path, gax: Path, files: list[str]) -> list[str]:
    """Definitions and all that they import, but for protobuf's own."""
    found: list[str] = []
    while files:
        name = files.pop()
        if name in found or name.startswith("google/protobuf/"):
            continue
        found.append(name)
        text = next(base / name for base in (protos, gax) if (base / name).is_file()).read_text()
        files += [line.split('"')[1] for line in text.splitlines() if line.startswith("import ")]
    return found


def test_java_over_grpc_and_rest(stubs: str, run: Run) -> None:
    """A JVM, which sends no token, makes a job with gRPC's stubs and google-auth, and reads it with the JDK's client."""
    installed = libraries(folder("grpc-java", "root"))  # where apt would have put them
    paths = f"-Djava.library.path={':'.join(installed)}"
    done = run(
        program("java", "grpc-java"), paths, "-cp", stubs, "GrpcJobs", IMAGE, LD_LIBRARY_PATH=":".join(installed)
    )
    assert done.stdout.splitlines() == ["grpc JOB_STATE_SUCCEEDED 1", "rest 200 true", "deleted true NOT_FOUND"]


def test_the_java_client(run: Run, tmp_path: Path) -> None:
    """google-cloud-aiplatform for Java makes a job, waits for it and deletes it."""
    jars = Path(os.environ[JARS]) if os.environ.get(JARS) else folder("java", "jars")
    path = f"{jars}/*"
    run(program("javac", "java"), "-cp", path, "-d", str(tmp_path), str(PROGRAMS / "ClientJobs.java"))
    done = run(program("java", "java"), "-cp", f"{path}:{tmp_path}", "ClientJobs", IMAGE)
    assert done.stdout.splitlines() == ["grpc JOB_STATE_SUCCEEDED", "deleted NOT_FOUND"]


@pytest.mark.parametrize("whose", [pytest.param("PyPI's", marks=AT_LENGTH), "gcloud's"])
@pytest.mark.whole
def test_gsutil(whose: str, run: Run, here: RunningServer, tmp_path: Path) -> None:
    """gsutil, alone and as it comes with gcloud, makes a bucket, copies in pieces, lists, reads and removes."""
    gsutil = program("gsutil", "gsutil") if whose == "PyPI's" else shutil.which("gsutil")
    if gsutil is None or (whose == "gcloud's" and shutil.which("gcloud") is None):
        missing("gcloud", "gcloud's gsutil")
    bucket = f"gs://by-gsutil-{whose[0].lower()}"
    (tmp_path / "large").write_bytes(os.urandom(9 << 20))
    run(gsutil, "-q", "mb", bucket)
    run(gsutil, "-q", "cp", "large", f"{bucket}/folder/large")
    assert run(gsutil, "ls", "-r", f"{bucket}/**").stdout == f"{bucket}/folder/large\n"
    run(gsutil, "-q", "cp", f"{bucket}/folder/large", "back")
    assert (tmp_path / "back").read_bytes() == (tmp_path / "large").read_bytes()
    run(gsutil, "-q", "rm", "-r", bucket)
    assert not (here.root / "gs" / bucket.removeprefix("gs://")).exists()


def test_terraform(run: Run, here: RunningServer, tmp_path: Path) -> None:
    """Terraform makes a bucket, an object and a schedule, finds nothing to change, and destroys them."""
    plugins = Path(os.environ[PLUGINS]) if os.environ.get(PLUGINS) else folder("terraform", "plugins")
    terraform = program("terraform", "terraform")
    shutil.copy(PROGRAMS / "main.tf", tmp_path)
    settings = {"TF_CLI_CONFIG_FILE": str(tmp_path / "none.tfrc"), "TF_IN_AUTOMATION": "1"}
    (tmp_path / "none.tfrc").touch()
    run(terraform, "init", "-input=false", f"-plugin-dir={plugins}", **settings)
    run(terraform, "apply", "-input=false", "-auto-approve", **settings)
    assert (here.root / "gs/by-terraform/folder/readme.txt").read_text() == "by terraform"
    again = run(terraform, "plan", "-input=false", "-detailed-exitcode", check=False, **settings)
    assert again.returncode == 0, again.stdout + again.stderr
    run(terraform, "destroy", "-input=false", "-auto-approve", **settings)
    assert not (here.root / "gs/by-terraform").exists()
    jobs = server.call(here, "GET", "/v1/made")
    assert "not served" not in str(jobs)
