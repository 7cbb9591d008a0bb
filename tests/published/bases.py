"""Base images for the Dockerfiles of published programs, made of Debian and the Pythons of this machine: nothing can be pulled.

bases.yaml has each base's Python, its packages from PyPI, and the names in FROM lines that it stands for.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from localvertex.runner.pythons import find_python
from tools import own_podman
from vertexrig.package.uv import uv

TABLE = Path(__file__).with_name("bases.yaml")
_DEBIAN = "localhost/published/debian:12"
_SYSTEM = (
    "ca-certificates,curl,git,gcc,g++,make,libc6-dev,libssl3,libffi8,libsqlite3-0,libbz2-1.0,liblzma5,libreadline8,"
    "libgdbm6,libuuid1,libgomp1"
)
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
_PYTHON = """\
FROM {debian}
COPY . /usr/local
RUN ldconfig && ln -sf python3 /usr/local/bin/python && python3 -m ensurepip --upgrade && \\
    uv pip install --system --upgrade pip 'setuptools<81' wheel
CMD ["python3"]
"""
_PACKAGES = """\
FROM {python}
{env}
RUN uv pip install --system {packages}
CMD ["bash"]
"""


@dataclass(frozen=True)
class Base:
    """A base image.

    Args:
        python: Its Python, `3.10`.
        names: The images that it stands for.
        packages: What it installs from PyPI.
        env: Its variables.
    """

    python: str
    names: tuple[str, ...]
    packages: tuple[str, ...] = ()
    env: tuple[str, ...] = ()


def table() -> list[Base]:
    """Return the base images of bases.yaml."""
    return [Base(**row) for row in yaml.safe_load(TABLE.read_text(encoding="utf-8"))]


def full(name: str) -> str:
    """Return an image's name with its registry and tag, as Docker completes it."""
    first, slash, _ = name.partition("/")
    if not slash:
        name = f"library/{name}"
    if not (slash and ("." in first or ":" in first or first == "localhost")):
        name = f"docker.io/{name}"
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


@contextmanager
def engine(work: Path, names: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Run a podman in a folder, with the base images of these names; its variables, with which docker reaches it."""
    work.mkdir(parents=True, exist_ok=True)
    folder = own_podman.storage(work / "podman")
    env = own_podman.variables(folder)
    for name in names:
        _make(name, {**os.environ, **env})
    with tempfile.TemporaryDirectory(prefix="podman-") as socket:
        address = f"unix://{socket}/sock"
        service = subprocess.Popen(["podman", "system", "service", "--time=0", address], env={**os.environ, **env})
        try:
            yield {**env, "DOCKER_HOST": address}
        finally:
            service.terminate()
            service.wait()


def _make(name: str, env: dict[str, str]) -> None:
    """Make the base image of a name, if it is not there."""
    if _there(full(name), env):
        return
    base = next((one for one in table() if name in one.names), None)
    if base is None:
        raise SystemExit(f"bases.yaml has no base image {name}")
    python = f"localhost/published/python:{base.python}"
    if not _there(python, env):
        _debian(env)
        prefix = Path(find_python(base.python)).parents[1]
        ignored = ("**/site-packages", "**/test", "**/tests", "**/__pycache__", "**/*.a", "share")
        _build(python, prefix, _PYTHON.format(debian=_DEBIAN), ignored, env)
    made = python
    if base.packages:
        made = f"localhost/published/base:{'-'.join([base.python, *re.split('==|[+]', base.packages[0])])}"
        packages = " ".join(f"'{one}'" for one in base.packages)
        variables = "\n".join(f"ENV {one}" for one in base.env)
        text = _PACKAGES.format(python=python, packages=packages, env=variables)
        if not _there(made, env):
            with tempfile.TemporaryDirectory() as empty:
                _build(made, Path(empty), text, (), env)
    for one in base.names:
        subprocess.run(["podman", "tag", made, full(one)], env=env, check=True)


def _there(image: str, env: dict[str, str]) -> bool:
    return subprocess.run(["podman", "image", "exists", image], env=env, check=False).returncode == 0


def _build(name: str, context: Path, text: str, ignored: tuple[str, ...], env: dict[str, str]) -> None:
    """Build an image in which uv and this machine's certificates and wheels are at hand for the RUN lines."""
    tool = shutil.which(uv()[0]) or uv()[0]
    words, volumes = [f"SSL_CERT_FILE=/{_CERTIFICATES}", "UV_LINK_MODE=copy"], [f"{tool}:/usr/bin/uv:ro"]
    if wheels := os.environ.get("PIP_FIND_LINKS"):
        volumes.append(f"{wheels}:{wheels}:ro")
        words.append(f"UV_FIND_LINKS={wheels}")
    text = text.replace("uv pip", f"{' '.join(words)} uv pip")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Dockerfile").write_text(text)
        (Path(folder) / "ignored").write_text("\n".join(ignored))
        options = [option for one in volumes for option in ("--volume", one)]
        subprocess.run(
            ["podman", "build", "--quiet", "--pull=never", "--layers=false", "--tag", name, "--file", f"{folder}/Dockerfile",
             "--ignorefile", f"{folder}/ignored", *options, str(context)],
            env=env, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip


def _debian(env: dict[str, str]) -> None:
    """Make the image of Debian by debootstrap, with this machine's certificates."""
    if _there(_DEBIAN, env):
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={_SYSTEM}", "bookworm", str(root)],
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        for path in (root / "var/lib/apt/lists", root / "var/cache/apt/archives"):
            shutil.rmtree(path)
            path.mkdir()
        shutil.copy(os.environ.get("SSL_CERT_FILE", f"/{_CERTIFICATES}"), root / _CERTIFICATES)
        (root / "etc/pip.conf").write_text(f"[global]\ncert = /{_CERTIFICATES}\n")
        subprocess.run(["tar", "-C", str(root), "-cf", f"{folder}/root.tar", "."], check=True)
        subprocess.run(["podman", "import", f"{folder}/root.tar", _DEBIAN], env=env, check=True, capture_output=True)
