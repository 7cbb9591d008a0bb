"""What `make test-clients` installs, each client in a folder of its own: `python -m tests.clients.install build/clients`.

Nothing goes into .venv or into the system. A step that ended well leaves a stamp and is not run again until this file's
row for it changes. Where a step fails and its registry cannot be reached, the reason is kept for the tests, which skip
with it; any other failure ends the set-up with the step's log.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.clients.kit import REASONS

REPOSITORY = Path(__file__).parents[2]
JARS = "CLIENTS_JARS"
"""Variable with a folder of jars of google-cloud-aiplatform for Java, where Maven Central cannot be reached."""
PLUGINS = "CLIENTS_TERRAFORM_PLUGINS"
"""Variable with a folder of Terraform plugins (`terraform providers mirror`), where its registry cannot be reached."""


@dataclass(frozen=True)
class Step:
    """How one client comes here.

    Args:
        name: Of its folder, and of the client in the tests.
        commands: Run one after the other; `{here}` is the folder, `{tests}` the Python of the tests and
            `{python}` the one that it was made from.
        registry: The host that packages come from.
        needs: Programs that have to be there.
        instead: A variable of the user's that names a folder with the same.
        files: What is written into the folder first, by name.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    registry: str
    needs: tuple[str, ...] = ()
    instead: str = ""
    files: tuple[tuple[str, str], ...] = ()


def _environment(*words: str) -> tuple[tuple[str, ...], ...]:
    """The commands for an environment with packages from PyPI, by the uv that is beside the tests."""
    uv = ("{tests}", "-m", "uv")
    return (
        (*uv, "venv", "--quiet", "--clear", "--python", "{python}", "{here}"),
        (*uv, "pip", "install", "--quiet", "--python", "{here}/bin/python", *words),
    )


_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>none</groupId><artifactId>none</artifactId><version>0</version>
<dependencies><dependency><groupId>com.google.cloud</groupId><artifactId>google-cloud-aiplatform</artifactId>
<version>3.60.0</version></dependency></dependencies></project>
"""
_TERRAFORM = """terraform {
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 6.0"
    }
  }
}
"""
_DEBIAN = (
    "libgrpc-java", "protobuf-compiler-grpc-java-plugin", "protobuf-compiler", "libprotobuf-java", "libnetty-java",
    "libnetty-tcnative-java", "libnetty-tcnative-jni", "libperfmark-java", "libgoogle-auth-java", "libgoogle-http-client-java", "libguava-java", "libjsr305-java", "libgeronimo-annotation-1.3-spec-java",
)  # fmt: skip
_APT = ("-o", "Debug::NoLocking=1", "-o", "Dir::Cache::archives={here}/deb/", "--download-only", "--reinstall", "--yes")
_UNPACK = "for file in {here}/deb/*.deb; do dpkg -x $file {here}/root; done"
# Debian's netty looks for this library under another name than Debian gives it, and the library checks its own.
_NAMED = "for file in {here}/root/usr/lib/*/jni/libnetty-tcnative.so; do cp $file $(dirname $file)/libnetty_tcnative.so; done"

STEPS = (
    Step(
        "python",
        _environment(
            "--constraint", "constraints.txt", "google-cloud-aiplatform==2.7.0", "google-cloud-storage", "google-cloud-scheduler", "google-cloud-logging",
            "gcsfs==2026.10.1", "nbclient==0.11.0", "nbformat==5.11.1", "ipykernel==7.4.0",
        ),
        "pypi.org",
    ),
    Step("stacks", _environment("aiohttp==3.13.2", "uvloop==0.23.0", "pycurl==7.45.7", "httplib2==0.31.0", "requests", "httpx", "urllib3"), "pypi.org"),
    Step("old-gcsfs", _environment("gcsfs==0.7.1", "fsspec==0.8.7", "setuptools<81"), "pypi.org"),
    Step("gsutil", _environment("gsutil==5.38"), "pypi.org"),
    Step(
        "pipelines",
        _environment("google-cloud-pipeline-components==2.22.0", "kfp==2.16.1", "pip"),
        "pypi.org",
    ),
    Step(
        "airflow",
        _environment("apache-airflow==3.1.3", "apache-airflow-providers-google==22.8.0"),
        "pypi.org",
    ),
    Step(
        "node",
        (("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", "{here}", "@google-cloud/aiplatform@7.4.0"),),
        "registry.npmjs.org",
        needs=("node", "npm"),
    ),
    Step(
        "grpc-java",
        (
            ("mkdir", "-p", "{here}/deb/partial", "{here}/root"),
            ("apt-get", *_APT, "--no-install-recommends", "install", *_DEBIAN),
            ("sh", "-c", f"{_UNPACK}; {_NAMED}"),
        ),
        "deb.debian.org",
        needs=("java", "javac", "apt-get", "dpkg"),
    ),
    Step(
        "shells",
        (
            ("mkdir", "-p", "{here}/deb/partial", "{here}/root"),
            ("apt-get", *_APT, "--no-install-recommends", "install", "zsh", "fish"),
            ("sh", "-c", _UNPACK),
        ),
        "deb.debian.org",
        needs=("apt-get", "dpkg"),
    ),
    Step(
        "java",
        (("mvn", "-q", "-B", "-f", "{here}/pom.xml", "dependency:copy-dependencies", "-DoutputDirectory={here}/jars"),),
        "repo.maven.apache.org",
        needs=("java", "javac", "mvn"),
        instead=JARS,
        files=(("pom.xml", _POM),),
    ),
    Step(
        "terraform",
        (("terraform", "-chdir={here}", "providers", "mirror", "{here}/plugins"),),
        "registry.terraform.io",
        needs=("terraform",),
        instead=PLUGINS,
        files=(("main.tf", _TERRAFORM),),
    ),
)  # fmt: skip


def reached(host: str) -> bool:
    """Whether a registry takes connections from here."""
    try:
        socket.create_connection((host, 443), timeout=10).close()
    except OSError:
        return False
    return True


def stamp(step: Step) -> str:
    """What changes when a step does."""
    return hashlib.sha256(repr(step).encode()).hexdigest()


def commands(step: Step, here: Path) -> Iterator[list[str]]:
    """The commands of a step, with its folder and this Python filled in."""
    filled = {"here": str(here), "tests": sys.executable, "python": getattr(sys, "_base_executable", sys.executable)}
    for words in step.commands:
        yield [word.format(**filled) for word in words]


def ran(step: Step, here: Path, log: Path) -> bool:
    """Run a step's commands into its folder, made anew; whether all of them ended well."""
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    for name, text in step.files:
        (here / name).write_text(text, encoding="utf-8")
    with log.open("w", encoding="utf-8") as out, tempfile.TemporaryDirectory() as settings:
        env = {**os.environ, "TF_CLI_CONFIG_FILE": f"{settings}/none", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        Path(settings, "none").touch()
        for words in commands(step, here):
            out.write(f"$ {' '.join(words)}\n")
            out.flush()
            if subprocess.run(words, cwd=REPOSITORY, env=env, stdout=out, stderr=out, timeout=900).returncode != 0:
                return False
    return True


def absence(step: Step, folder: Path) -> str | None:
    """Bring a client here; why that is not possible on this machine, None where it is here.

    Raises:
        RuntimeError: A command failed though its registry answers.
    """
    here, mark, log = folder / step.name, folder / f"{step.name}.stamp", folder / f"{step.name}.log"
    if step.instead and os.environ.get(step.instead):
        return None
    lacking = [name for name in step.needs if shutil.which(name) is None]
    if lacking:
        return f"{' and '.join(lacking)} is not installed"
    if mark.is_file() and mark.read_text() == stamp(step):
        return None
    mark.unlink(missing_ok=True)
    print(f"installing {step.name} into {here} …", file=sys.stderr, flush=True)
    if ran(step, here, log):
        mark.write_text(stamp(step))
        return None
    shutil.rmtree(here, ignore_errors=True)
    if reached(step.registry):
        raise RuntimeError(f"{step.name} could not be installed:\n{log.read_text(encoding='utf-8')[-3000:]}")
    other = f"; name a folder that has it by {step.instead}" if step.instead else ""
    return f"{step.registry} cannot be reached from this machine{other}"


def main(argv: Sequence[str] | None = None) -> None:
    """Install what is missing and record what cannot be had."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(argv).folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        reasons = {step.name: reason for step in STEPS if (reason := absence(step, folder))}
    except RuntimeError as error:
        sys.exit(f"error: {error}")
    for name, reason in reasons.items():
        print(f"{name}: {reason}", file=sys.stderr)
    (folder / REASONS).write_text(json.dumps(reasons, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
