"""Layers for packages: a cached virtual environment per interpreter, image and packages, on top of the interpreter.

The layer also sees what the interpreter sees, so TensorFlow and all else installed there
is used and not downloaded. Packages go into it the way the executor of the prebuilt images does it: each one with
`pip install --force-reinstall --no-deps`, then their requirements, of which pip takes what is missing.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from localvertex.runner.environment import machine_environment, search_path
from vertexrig.errors import PackageError
from vertexrig.package.image_modules import distribution_of
from vertexrig.waiting import waiting

PipLines = list[tuple[str, str]]
"""What pip printed in one step: lines, each with its severity."""


class Execute(Protocol):
    """Runs a command with these variables, and returns its exit code and what it printed, which also goes to the job's log.

    `archive` is the package that the command installs; in lines of stdout the log has it as /NAME, its path on the service.
    """

    def __call__(
        self, argv: Sequence[str], env: Mapping[str, str], *, archive: Path | None = None
    ) -> tuple[int, PipLines]: ...


InstallationLog = list[tuple[str, bool, PipLines]]
"""An installation, step by step: the package; True for the step that installs its requirements, False for the step that installs it; what
pip printed in that step. If one run of pip installs the requirements of several packages, the last package has its lines."""
BeginStep = Callable[[Path, bool], None]
"""Called with each package: before it is installed (with False), and before requirements are installed, its own or those of all packages
together (with True)."""

_READY = "ready.json"
_INSTALLERS = ("pip", "setuptools", "wheel")
# Nothing newer than Python 3.7: it runs in the interpreters of old images, too.
_PROBE = (
    "import json, os, sys; "
    "paths = [p for p in sys.path if os.path.basename(p) in ('site-packages', 'dist-packages')]; "
    "find = __import__('importlib.util').util.find_spec; tools = find('setuptools'); "
    # since 70.1 setuptools makes wheels itself
    "own = [f for f in (tools.submodule_search_locations if tools else ()) if os.path.exists(f + '/command/bdist_wheel.py')]; "
    "print(json.dumps({'paths': paths, 'pip': find('pip') is not None, "
    "'setuptools': bool(tools and (own or find('wheel'))), 'python': sys.executable, "
    "'version': '.'.join(map(str, sys.version_info[:3])), 'path': sys.path}))"
)
QUIET_PIP = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_ROOT_USER_ACTION": "ignore"}
_USER_SITE = "import site; site.addsitedir(site.getusersitepackages())\n"
# By way of the shell, as pip does it: the first line of a script takes no path with a space.
_PROGRAM = """\
#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys
from {entry.module} import {name}
sys.exit({entry.attr}())
"""
_FRAMEWORKS = {
    **{name: name for name in ("tensorflow", "torch", "scikit-learn", "xgboost", "ray")},
    **dict.fromkeys(
        ("tensorflow-cpu", "tensorflow-intel", "tensorflow-macos", "tensorflow-rocm", "tf-nightly"), "tensorflow"
    ),
    "xgboost-cpu": "xgboost",
    "tf-keras": "tf_keras",
}
"""Distributions that hold a framework, or tf-keras, and the name that it has in `Interpreter.installed`."""


@dataclass(frozen=True)
class Interpreter:
    """A Python that stands in for an image's.

    Args:
        python: Its executable.
        site: Folders of installed packages it sees.
        pip: Whether it has pip.
        setuptools: Whether it can build a package without downloading anything: its setuptools makes wheels, or wheel is there.
        version: Its version, `3.11.2`.
        installed: Versions of the frameworks and of tf-keras that it sees, by their names in `_FRAMEWORKS`: `tensorflow`, `tf_keras`.
    """

    python: str
    site: tuple[str, ...]
    pip: bool
    setuptools: bool
    version: str = ""
    installed: Mapping[str, str] = field(default_factory=dict)


@lru_cache(maxsize=32)
def inspect_python(python: str) -> Interpreter:
    """Look at a Python.

    Raises:
        PackageError: It cannot be run.
    """
    found = shutil.which(python)
    try:
        if found is None:
            raise FileNotFoundError(f"no such program: {python}")
        with waiting(f"{python}, which is asked for its packages"):
            done = subprocess.run(
                [found, "-c", _PROBE], capture_output=True, text=True, timeout=60, env=_own(), cwd="/"
            )
        data = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise PackageError(
            f"interpreter {python!r} cannot be used: {error}. Name an existing Python, such as {sys.executable}"
        ) from error
    installed = _installed(data["path"])
    return Interpreter(
        data["python"], tuple(data["paths"]), data["pip"], data["setuptools"], data["version"], installed
    )


def _installed(path: Sequence[str]) -> dict[str, str]:
    """Return the versions of the frameworks in these folders. This process reads them: a Python older than 3.8 cannot list its own."""
    found: dict[str, str] = {}
    for one in metadata.distributions(path=list(path)):
        name = _FRAMEWORKS.get((one.metadata["Name"] or "").lower().replace("_", "-"))
        if name is not None:
            found.setdefault(name, one.version)
    return found


def _own() -> dict[str, str]:
    """Return the variables of our own programs that only look at an interpreter."""
    return machine_environment(os.environ, Path(os.devnull)) | {"PATH": search_path((), os.environ)}


def layer_key(base: Interpreter, image: str, packages: Sequence[Path]) -> str:
    """Return the name of a layer, by what goes into it: interpreter, state of its packages, image, each package's bytes."""
    digest = hashlib.sha256()
    digest.update(json.dumps([base.python, image]).encode())
    for folder in base.site:
        try:
            # pip adds or removes a folder here at every change, which the folder's own time shows.
            digest.update(f"{folder} {Path(folder).stat().st_mtime_ns}".encode())
        except OSError:
            continue
    for package in packages:
        digest.update(package.name.encode() + b"\0")
        digest.update(hashlib.sha256(package.read_bytes()).digest())
    return digest.hexdigest()[:20]


@dataclass(frozen=True)
class Supplied:
    """What an image has besides a large framework (TensorFlow, Keras, PyTorch), and its stand-in is to have, too.

    Args:
        modules: Top-level modules.
        constraints: The versions that it may have, as pip's constraints.
    """

    modules: frozenset[str] = frozenset()
    constraints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Installer:
    """Makes layers, or finds them in the folder where they are kept.

    Args:
        cache: The folder.
        env: What pip, and so a package's setup.py, sees of the user's variables.
        execute: Runs pip, venv, or an engine that pulls an image.
        begin_step: Called before each package and its requirements, if they are not in the cache.
        give_up: Asked while another process makes the same layer; True ends the wait.
    """

    cache: Path
    env: Mapping[str, str]
    execute: Execute
    begin_step: BeginStep
    give_up: Callable[[], bool]

    def layer(self, base: Interpreter, image: str, packages: Sequence[Path], supplied: Supplied) -> Path:
        """Return the interpreter of the layer for these packages; made when it is not in the cache.

        Args:
            base: What it is layered on.
            image: The image it replaces.
            packages: Source distributions or wheels, in order.
            supplied: What the image has. Of its modules, those that the packages import and this machine lacks are installed, if pip can.

        Raises:
            PackageError: A package does not install; the message names it.
        """
        folder = self.cache / layer_key(base, image, packages)
        return once(folder, self.give_up, lambda: self._build(base, folder, packages, supplied))

    def layer_of_commands(self, base: Interpreter, image: str) -> Path:
        """Return the interpreter of the layer in which commands of a container run; see `layer`.

        It has the programs of the packages, such as pip and torchrun. What is installed there by a replica goes to the
        replica's own PYTHONUSERBASE, and comes before what the machine has.
        """
        folder = self.cache / layer_key(base, f"commands of {image}", ())

        def build() -> Mapping[str, str]:
            # A command calls pip by its name: the layer has a pip of its own where base has none (see `_pip`).
            python = self._venv(base, folder, _USER_SITE, bare=base.pip)
            # pip refuses --user in an environment that does not see the system's packages.
            config = folder / "pyvenv.cfg"
            text = config.read_text(encoding="utf-8")
            config.write_text(re.sub(r"(include-system-site-packages = )false", r"\1true", text), encoding="utf-8")
            for one in metadata.distributions(path=list(base.site)):
                for entry in one.entry_points:
                    program = python.parent / entry.name
                    if entry.group == "console_scripts" and entry.attr and not program.exists():
                        program.write_text(
                            _PROGRAM.format(python=python, entry=entry, name=entry.attr.partition(".")[0])
                        )
                        program.chmod(0o755)
            return {}

        return once(folder, self.give_up, build)

    def layer_of_pip(self, base: Interpreter, image: str, installs: Sequence[Sequence[str]]) -> Path:
        """Return the interpreter of a layer in which each `pip install` with these arguments was run; see `layer`."""
        files = [path for words in installs for word in words for path in _files(Path(word))]
        folder = self.cache / layer_key(base, f"{image} {json.dumps(list(map(list, installs)))}", files)

        def build() -> Mapping[str, str]:
            python = self._venv(base, folder, "", bare=not _needs_own_pip(base))
            for words in installs:
                argv = [*_pip(base, python), "install", "--quiet", "--no-warn-conflicts", *words]
                with waiting(f"pip install {' '.join(words)}"):
                    code, _ = self.execute(argv, {**self.env, **QUIET_PIP})
                if code != 0:
                    raise PackageError(f"pip install {' '.join(words)} failed; its output says why")
            return {"broken": _broken(next(folder.glob("lib/python*/site-packages")), base.site)}

        return once(folder, self.give_up, build)

    def _build(
        self, base: Interpreter, folder: Path, packages: Sequence[Path], supplied: Supplied
    ) -> Mapping[str, Any]:
        # Otherwise pip writes lines into the job's log about which its user can do nothing.
        env = {**self.env, **QUIET_PIP}
        python = self._venv(base, folder, "", bare=not _needs_own_pip(base))
        site = next(folder.glob("lib/python*/site-packages"))
        pip = _pip(base, python)
        log: InstallationLog = []
        for package in packages:
            self.begin_step(package, False)
            options = ["--upgrade", "--force-reinstall", "--no-deps", *_isolation(base, package)]
            argv = [*pip, "install", *options, str(package)]
            with waiting(f"pip, which installs {package.name}"):
                code, lines = self.execute(argv, env, archive=package)
            log.append((package.name, False, lines))
            if code != 0:
                raise PackageError(f"package {package.name} cannot be installed; pip's output says why")
        required = [line for one in metadata.distributions(path=[str(site)]) for line in one.requires or ()]
        required, replaced = _without_other_keras(required, _installed([str(site), *base.site]))
        for package in packages:
            self.begin_step(package, True)
        constraints = folder / "constraints.txt"
        constraints.write_text("".join(f"{line}\n" for line in supplied.constraints), encoding="utf-8")
        # No warnings of conflicts: they are between packages of this machine, which the job does not use.
        install = [*pip, "install", "--no-warn-conflicts", *(["-c", str(constraints)] if supplied.constraints else [])]
        with waiting(f"pip, which installs what the package requires: {', '.join(required)}"):
            code, lines = self.execute([*install, *required], env) if required else (0, [])
        log += [(package.name, True, lines if package == packages[-1] else []) for package in packages]
        if code != 0:
            names = ", ".join(package.name for package in packages)
            raise PackageError(f"the requirements of {names} cannot be installed: {', '.join(required)}")
        lacking = [distribution_of(name) for name in _not_found(python, _imported(site) & supplied.modules)]
        added = ""
        if lacking:
            with waiting(f"pip, which installs what the image has and this machine lacks: {', '.join(lacking)}"):
                # the job's log gets nothing of it: if it fails, the replica itself says what it lacks
                quietly = ["sh", "-c", 'exec "$@" >/dev/null 2>&1', "sh", *install, *lacking]
                if self.execute(quietly, env)[0] == 0:
                    names = ", ".join(lacking)
                    added = f"this machine lacked {names}, which the image has: pip installed the newest versions"
        return {"replaced": replaced, "added": added, "broken": _broken(site, base.site), "steps": log}

    def _venv(self, base: Interpreter, folder: Path, first: str, *, bare: bool) -> Path:
        """Return the interpreter of a new layer that sees what `base` sees. `first` is a line of its .pth file: the folders that this
        line adds come before those of `base`. If `bare`, the layer has no pip.
        """
        options = ["--without-pip"] if bare else []
        with waiting(f"{base.python}, which makes a virtual environment"):
            code, _ = self.execute([base.python, "-m", "venv", *options, str(folder)], self.env)
        if code != 0:
            raise PackageError(f"{base.python} cannot make a virtual environment; its output says why")
        site = next(folder.glob("lib/python*/site-packages"))
        # not --system-site-packages: if `base` is a virtual environment, that shows the packages of the Python below it
        lines = [f"import site; site.addsitedir({path!r})\n" for path in base.site]
        (site / "vertexrig_base.pth").write_text("".join([first, *lines]))
        return folder / "bin" / "python"


def _files(path: Path) -> list[Path]:
    """Return the files of an argument of pip that is a path: the file itself, or those that say what a folder requires."""
    if path.is_absolute() and path.is_dir():
        return [one for name in ("setup.py", "setup.cfg", "pyproject.toml") if (one := path / name).is_file()]
    return [path] if path.is_absolute() and path.is_file() else []


# The pip of a layer is (1) that of `base`, which the layer sees through its .pth; if `base` has none, as a Python of uv, (2) ours, run in
# the layer by --python; if we have none either, (3) one of the layer's own.


def _needs_own_pip(base: Interpreter) -> bool:
    """Whether a layer has the third pip, whose installation takes 3 s."""
    return not base.pip and find_spec("pip") is None


def _pip(base: Interpreter, python: Path) -> list[str]:
    """Return how to start the pip of a layer with this interpreter."""
    if base.pip or _needs_own_pip(base):
        return [str(python), "-m", "pip"]
    return [sys.executable, "-m", "pip", "--python", str(python)]


def once(folder: Path, give_up: Callable[[], bool], build: Callable[[], Mapping[str, Any]]) -> Path:
    """Return the interpreter of an environment, built if it is not there; what `build` returns is stored with it.

    Packages for a container are a folder without an interpreter: the path returned for them leads nowhere.
    """
    python = folder / "bin" / "python"
    # Written last, so an environment whose making was killed is not used.
    if (folder / _READY).is_file():
        return python
    folder.parent.mkdir(parents=True, exist_ok=True)
    with waited_lock(folder.with_suffix(".lock"), give_up):
        # Another process may have made it while this one waited.
        if not (folder / _READY).is_file():
            shutil.rmtree(folder, ignore_errors=True)
            (folder / _READY).write_text(json.dumps(build()))
    return python


def with_layer(base: Interpreter, python: Path) -> Interpreter:
    """Return `base`, with a layer's frameworks added to its field `installed`; a version in the layer comes first.

    The argument `python` is the layer's interpreter; the field `python` stays that of `base`.
    """
    site = python.parent.parent.glob("lib/python*/site-packages")
    return replace(base, installed={**base.installed, **_installed([str(one) for one in site])})


def layer_note(python: Path, what: str) -> str:
    """Return a sentence on a layer made by `Installer.layer`, "" if there is none.

    Args:
        python: Its interpreter.
        what: `replaced` for the requirements that packages of this machine replace, `added` for what the image has and this machine
            lacked, or `broken`; see `_broken`.
    """
    return str(_kept(python.parent.parent).get(what) or "")


def installation_log(folder: Path) -> InstallationLog:
    """Return what pip printed when the packages in a folder were installed; nothing of one that is not known."""
    return _kept(folder).get("steps") or []


def _kept(folder: Path) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads((folder / _READY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data


def _imported(site: Path) -> set[str]:
    """Return the top-level modules that the installed packages import, wherever in a module that is."""
    found: set[str] = set()
    for one in metadata.distributions(path=[str(site)]):
        files = () if one.metadata["Name"] in _INSTALLERS else one.files or ()
        for file in files:
            with suppress(OSError, ValueError, SyntaxError, RecursionError):
                tree = ast.parse(Path(str(file.locate())).read_bytes()) if file.suffix == ".py" else ast.Module([], [])
                for node in ast.walk(tree):
                    if isinstance(node, ast.Import):
                        found |= {alias.name.partition(".")[0] for alias in node.names}
                    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                        found.add(node.module.partition(".")[0])
    return found


def _not_found(python: Path, modules: Collection[str]) -> list[str]:
    """Return the modules that an interpreter does not find, in order."""
    if not modules:
        return []
    code = "import importlib.util, sys; print(*(one for one in sys.argv[1:] if importlib.util.find_spec(one) is None))"
    done = subprocess.run(
        [str(python), "-c", code, *sorted(modules)], capture_output=True, text=True, timeout=60, env=_own(), cwd="/"
    )
    return done.stdout.split()


def _broken(site: Path, below: Sequence[str]) -> str:
    """Return which framework of the interpreter below no longer has what it needs, and what pip installed, "" if none."""
    own = {
        canonicalize_name(one.metadata["Name"] or ""): one.version for one in metadata.distributions(path=[str(site)])
    }
    for one in metadata.distributions(path=list(below)):
        name = canonicalize_name(one.metadata["Name"] or "")
        if name not in _FRAMEWORKS or _FRAMEWORKS[name] in own or name in own:
            continue  # no framework, or one that pip installed anew
        for line in one.requires or ():
            with suppress(InvalidRequirement):
                needed = Requirement(line)
                version = own.get(canonicalize_name(needed.name))
                applies = needed.marker is None or needed.marker.evaluate({"extra": ""})
                if version and applies and not needed.specifier.contains(version, prereleases=True):
                    return f"{name} {one.version} of this machine needs {needed.name}{needed.specifier}, and pip installed {needed.name} {version}"
    return ""


def _without_other_keras(required: list[str], here: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the requirements without tf-keras if this machine has one, and what replaces it.

    A package is built for its image's TensorFlow and pins tf-keras to it; installed here, it would bring a second
    TensorFlow with it.
    """
    kept = [line for line in required if not re.match(r"tf[-_.]keras\b", line, re.IGNORECASE)]
    if len(kept) == len(required):
        return required, ""
    if not here.get("tf_keras"):
        return required, ""
    pinned = next(line for line in required if line not in kept)
    if not re.search(r"[<>=~!@]", pinned):
        return kept, ""  # any will do
    return kept, f"tf-keras {here['tf_keras']} of this machine replaces {pinned}, which pip installs on Vertex AI"


def _isolation(base: Interpreter, package: Path) -> list[str]:
    """Return the options of pip with which a setup.py package is built by the setuptools that is here; no download is needed then."""
    if not base.setuptools or not tarfile.is_tarfile(package):
        return []
    try:
        with tarfile.open(package) as archive:
            # An sdist has one folder, NAME-VERSION, around everything (PEP 625).
            names = {name.partition("/")[2] for name in archive.getnames()}
    except (OSError, tarfile.TarError, EOFError):
        return []
    return [] if "pyproject.toml" in names else ["--no-build-isolation"]


@contextmanager
def waited_lock(path: Path, give_up: Callable[[], bool]) -> Iterator[None]:
    """Hold a lock that the system frees when this process dies.

    Raises:
        PackageError: `give_up` ended the wait for it.
    """
    with path.open("w") as file:
        while True:
            try:
                # Not blocking, so that a job that is cancelled need not wait for another one's installation.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if give_up():
                    raise PackageError("cancelled while another job makes the same environment") from None
                time.sleep(0.05)
        yield
