"""A base image of this machine's own Python and programs, and a podman that keeps to a folder: nothing is pulled.

The tests of containers and `make demo-containers` use both.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

BASE = "localhost/vertexrig-base:1"
EXECUTOR = "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest"
"""The name of an image of Google's, here for an image with another Python where one is installed, and a TensorFlow of one line."""
_PROGRAMS = "sh cat chmod echo chown cp curl dd df env head id ls mkdir rm sleep tail touch true uname".split()
_LATE = (
    "libnss_[df]*.so.2",
    "librt.so.1",
    "libpthread.so.0",
    "libdl.so.2",
    "libutil.so.1",
    "libstdc++.so.6",
    "libgcc_s.so.1",
)
"""Libraries that are loaded by name, or by compiled parts of packages."""
_CONF = """\
[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
netns = "host"
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
"""
_STORAGE = '[storage]\ndriver = "{driver}"\nrunroot = "{folder}/run"\ngraphroot = "{folder}/graph"\n'


def variables(folder: Path) -> dict[str, str]:
    """Return the variables by which podman keeps to a folder."""
    names = {"CONTAINERS_CONF": "containers.conf", "CONTAINERS_STORAGE_CONF": "storage.conf"}
    return {name: str(folder / file) for name, file in names.items()}


def storage(folder: Path | None = None) -> Path:
    """Return a folder for all that podman keeps, with the images above; it stays for later runs, so they are made once."""
    recipe = f"{sys.version} {other_python()} {Path(__file__).read_text()}"
    name = f"vertexrig-podman-{os.getuid()}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    folder = folder or Path(tempfile.gettempdir(), name)
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            _make(folder)
            (folder / "ready").touch()
        else:
            _remove_old({**os.environ, **variables(folder)})
    return folder


def _remove_old(env: Mapping[str, str]) -> None:
    """Remove what tests built more than a day ago: otherwise a store grows to 10 GB in a week."""
    listing = ["podman", "images", "--filter", "until=24h", "--format", "{{.ID}} {{.Repository}}:{{.Tag}}"]
    rows = subprocess.run(listing, env=env, capture_output=True, text=True).stdout.splitlines()
    old = {row.split()[0] for row in rows if not row.endswith((BASE, EXECUTOR))}
    if old:
        subprocess.run(["podman", "rmi", "--force", *old], env=env, capture_output=True)


def _make(folder: Path) -> None:
    # podman's own are higher than a machine may allow; the soft limits always are allowed
    files, processes = resource.getrlimit(resource.RLIMIT_NOFILE)[0], resource.getrlimit(resource.RLIMIT_NPROC)[0]
    limits = {"files": min(files, 4096), "processes": min(processes, 4096) if processes > 0 else 4096}
    (folder / "containers.conf").write_text(_CONF.format(**limits))
    env = {**os.environ, **variables(folder)}
    for driver in ("overlay", "vfs"):  # overlay on overlay, as in a container, is refused
        (folder / "storage.conf").write_text(_STORAGE.format(driver=driver, folder=folder))
        if not (why := base_image("podman", env)):
            break
        shutil.rmtree(folder / "graph", ignore_errors=True)
    else:
        raise OSError(why)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        other = Path(made, "other")
        _root(other, other_python())
        site = next(other.glob("usr/local/lib/python*/*-packages"))
        (site / "tensorflow.py").write_text('__version__ = "2.17.0"\n')
        (site / "tensorflow-2.17.0.dist-info").mkdir()
        (site / "tensorflow-2.17.0.dist-info/METADATA").write_text("Name: tensorflow\nVersion: 2.17.0\n")
        if why := _imported("podman", other, EXECUTOR, env):
            raise OSError(why)


def base_image(program: str, env: Mapping[str, str]) -> str:
    """Make the base image with an engine that does not have it, and run it once; why that failed, "" if it did not."""
    if subprocess.run([program, "image", "inspect", BASE], env=env, capture_output=True).returncode:
        with tempfile.TemporaryDirectory() as made:
            _root(Path(made, "root"), sys.base_prefix)
            if why := _imported(program, Path(made, "root"), BASE, env):
                return why
    return _failure([program, "run", "--rm", "--pull=never", BASE, "true"], env)


def _imported(program: str, root: Path, name: str, env: Mapping[str, str]) -> str:
    archive = root.with_suffix(".tar")
    subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
    # PATH and the rest as an image of Python has it; no index is asked for what builds a package.
    changes = ["ENV PATH=/usr/local/bin:/usr/bin:/bin", "ENV PIP_NO_BUILD_ISOLATION=1", "ENV LANG=C.UTF-8"]
    words = [word for change in changes for word in ("--change", change)]
    return _failure([program, "import", *words, str(archive), name], env)


def _failure(argv: Sequence[str], env: Mapping[str, str]) -> str:
    done = subprocess.run(argv, env=env, capture_output=True, text=True, errors="replace")
    return (done.stderr.strip() or f"{argv[0]} ended with {done.returncode}") if done.returncode else ""


@cache
def other_python() -> str:
    """The prefix of a Python of another version, that of this one where there is no other."""
    own = ".".join(map(str, sys.version_info[:2]))
    for name in ("3.10", "3.12", "3.13", "3.9"):
        for found in (*Path.home().glob(f".pyenv/versions/{name}.*/bin/python{name}"), shutil.which(f"python{name}")):
            if found is None or name == own:
                continue
            # a distribution's own Python has pip elsewhere
            code = "import sys, pip, setuptools; assert 'site-packages' in pip.__file__; print(sys.base_prefix)"
            asked = subprocess.run([found, "-c", code], capture_output=True, text=True)
            if asked.returncode == 0:
                return asked.stdout.strip()
    return sys.base_prefix


def _root(root: Path, prefix: str) -> None:
    """Make the root of a small Linux: a shell, a few programs, and a Python with pip and setuptools in /usr/local."""
    for name in ("tmp", "root", "etc", "usr/bin", "usr/local/bin", "home/trainer", "proc", "sys", "dev"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "home/trainer").chmod(0o777)
    (root / "bin").symlink_to("usr/bin")
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\ntrainer:x:1234:1234::/home/trainer:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\ntrainer:x:1234:\n")
    (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")
    python = next(
        path for path in sorted(Path(prefix, "bin").glob("python3.*")) if re.fullmatch(r"python3\.[0-9]+", path.name)
    )
    lib = Path(prefix, "lib", python.name)
    unwanted = shutil.ignore_patterns(
        "test", "tests", "site-packages", "idlelib", "tkinter", "config-3*", "*.a", "EXTERNALLY-MANAGED"
    )
    shutil.copytree(lib, root / "usr/local/lib" / python.name, symlinks=True, ignore=unwanted)
    # Debian's Python has dist-packages there, and its pip elsewhere: that of this environment is of the same version
    asked = subprocess.run(
        [python, "-c", "import site; print(site.getsitepackages()[0])"], capture_output=True, text=True, check=True
    )
    site = root / "usr/local/lib" / python.name / Path(asked.stdout.strip()).name
    source = lib / "site-packages"
    if not (source / "pip").is_dir() and prefix == sys.base_prefix:
        source = Path(sysconfig.get_path("purelib"))
    for name in ("pip", "setuptools", "wheel", "_distutils_hack", "pkg_resources"):
        for found in source.glob(f"{name}*"):
            if found.is_dir() and re.fullmatch(rf"{name}(-[0-9.]+\.dist-info)?", found.name):
                shutil.copytree(found, site / found.name)
    shutil.copy(python, root / "usr/local/bin" / python.name)
    for link in ("python3", "python"):
        (root / "usr/local/bin" / link).symlink_to(python.name)
    programs = {name: program for name in _PROGRAMS if (program := shutil.which(name))}
    for name, program in programs.items():
        shutil.copy(program, root / "usr/bin" / name)
    modules = [path for path in lib.glob("lib-dynload/*.so") if "tkinter" not in path.name]
    for library in libraries([python, *(Path(program).resolve() for program in programs.values()), *modules]):
        target = root / str(library).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
    certificates = Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))
    if certificates.is_file():
        (root / "etc/ssl/certs").mkdir(parents=True)
        shutil.copy(certificates, root / "etc/ssl/certs/ca-certificates.crt")


def libraries(programs: Sequence[Path]) -> set[Path]:
    """The shared libraries of programs by ldd, where the loader looks for them, and those that are loaded later."""
    text = subprocess.run(["ldd", *map(str, programs)], capture_output=True, text=True).stdout
    found = {Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", text, re.MULTILINE)}
    return found | {path for one in list(found) for pattern in _LATE for path in one.parent.glob(pattern)}
