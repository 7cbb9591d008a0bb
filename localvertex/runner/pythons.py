"""Environments with the Python and the versions of an image, made with uv and kept in the user's cache by what is in them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from localvertex.runner import packages
from localvertex.runner.children import Children, Command
from localvertex.runner.lines import Line
from vertexrig.catalog import Catalog
from vertexrig.catalog.rows import Image
from vertexrig.errors import JobFailedError, PackageError, UsageError, VertexrigError, did_you_mean
from vertexrig.package.image import describe_image
from vertexrig.package.recipes import pinned, recipe
from vertexrig.package.uv import uv
from vertexrig.project.config import Loaded
from vertexrig.project.local import AUTO
from vertexrig.project.model import BUILD
from vertexrig.text import command_line

INSTALL_TIMEOUT_S = 3600
_READY = "ready.json"
_TOOLS = ("pip", "setuptools<81", "wheel")  # what packages are installed with; a newer setuptools has no pkg_resources
# TensorFlow up to 2.9.0 takes any protobuf by its metadata on PyPI (read 2026-11-22), and does not import with 4 and later.
_ANY_PROTOBUF, _PROTOBUF = (2, 9), "protobuf<3.21"


@dataclass(frozen=True)
class WantedPython:
    """What an environment is to have.

    Args:
        image: The image's name in the project file: `tf-2.17`, or `build`.
        python: Its Python, `3.10`.
        requirements: What must be there.
        listed: What the image lists besides that; in another version where no registry has this one.
        lock: The lock file of an image of one's own, which then is all there is.
    """

    image: str
    python: str
    requirements: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    lock: Path | None = None

    @property
    def folder(self) -> Path:
        """Where the environment is, or will be."""
        content = self.lock.read_bytes() if self.lock is not None else b""
        what = json.dumps([self.python, self.requirements, self.listed, _TOOLS]).encode()
        return cache_folder() / f"{self.image}-{hashlib.sha256(what + content).hexdigest()[:12]}"

    @property
    def program(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"


@dataclass(frozen=True)
class MadePython:
    """An environment.

    Args:
        python: Its interpreter.
        fresh: Whether this call made it.
        differs: A sentence for each way in which it is not the image.
    """

    python: Path
    fresh: bool
    differs: tuple[str, ...]


def cache_folder() -> Path:
    """Return the user's cache of environments."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "vertexrig" / "pythons"


def wanted(image: str, catalog: Catalog, loaded: Loaded | None) -> WantedPython:
    """Return what the environment of an image has, of the one for CPUs: no GPU library is loaded here.

    Args:
        image: A short name such as tf-2.17, an image's own name such as tf-cpu.2-8, or `build` for the project's own image.
        catalog: For prebuilt images.
        loaded: The project; needed for `build`.

    Raises:
        UsageError: There is no such image, or its lock file is missing.
    """
    if image == BUILD:
        if loaded is None:
            raise UsageError("--image build needs a project file")
        own = describe_image(loaded, "cpu")
        if not own.locked:
            raise UsageError(
                f"there is no lock file {own.lock}: run `vertexrig image NAME` with a job that runs this image"
            )
        return WantedPython(image, own.python, lock=own.lock)
    found = prebuilt(image, catalog)
    if found is None:
        names = [name for name in catalog.short_names() if catalog.find_short(name, "cpu")]
        raise UsageError(f"there is no prebuilt cpu image {image!r}. {did_you_mean(image, [BUILD, *names], most=12)}")
    try:
        pin = pinned(found.version)
        asked = tuple(line.format(pin=pin) for line in recipe(found.framework, "cpu").requirements)
    except VertexrigError:
        asked = (f"{found.framework}=={found.version}",)
    if found.framework == "tf" and tuple(map(int, found.version.split(".")[:2])) <= _ANY_PROTOBUF:
        asked = (*asked, _PROTOBUF)
    return WantedPython(name_for(found, catalog), found.python, asked, found.packages)


def prebuilt(name: str, catalog: Catalog) -> Image | None:
    """Return the image for CPUs of a short name or of an image's own name, None if there is none."""
    own = (row for row in catalog.images if row.name == name and "cpu" in row.kind.split("_or_"))
    return next(own, None) or catalog.find_short(name, "cpu")


def name_for(image: Image, catalog: Catalog) -> str:
    """Return the name by which `wanted` finds an image's Python: the short name, or a cpu image's own if the short name means another."""
    short = catalog.find_short(image.short_name, "cpu")
    if short is not None and short.python != image.python:
        same = catalog.find_image(image.framework, image.version, "cpu", image.python)
        return same.name if same is not None else image.short_name
    return image.short_name


def make_python(
    what: WantedPython, log: Callable[[str], None], give_up: Callable[[], bool] = lambda: False
) -> MadePython:
    """Return the environment, made when it is not in the cache.

    Args:
        what: What it is to have.
        log: Called with what takes a while, before it begins, and with uv's progress.
        give_up: Asked again and again; True ends the making, and the wait for another process that makes the same one.

    Raises:
        UsageError: uv is not installed.
        PackageError: There is no such Python, what must be there cannot be installed, or it was given up.
    """
    folder = what.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Two commands may want the same environment; the second waits and finds it made. The name has dots of its own: tf-2.17-…
    with packages.waited_lock(folder.with_name(f"{folder.name}.lock"), give_up):
        fresh = not (folder / _READY).is_file()
        if fresh:
            others = _build(what, folder, log, give_up)
            differs = [*_differences(what), *others]
            (folder / _READY).write_text(json.dumps({"differs": differs}), encoding="utf-8")
    kept = json.loads((folder / _READY).read_text(encoding="utf-8"))
    return MadePython(what.program, fresh, tuple(kept["differs"]))


def _build(what: WantedPython, folder: Path, log: Callable[[str], None], give_up: Callable[[], bool]) -> list[str]:
    """Make the environment, and return a sentence for each listed package that it lacks or has in another version."""
    tool = _Uv(uv(), give_up)
    shutil.rmtree(folder, ignore_errors=True)
    log(f"making Python {what.python} in {folder}")
    tool.must(
        ["venv", "--quiet", "--python", find_python(what.python), str(folder)],
        f"Python {what.python} cannot be found or downloaded",
    )
    install = ["pip", "install", "--quiet", "--python", str(what.program)]
    tool.must([*install, *_TOOLS], "pip and setuptools cannot be installed")
    if what.lock is not None:
        log(f"installing {what.lock}")
        tool.must([*install, "--require-hashes", "-r", str(what.lock)], f"{what.lock} cannot be installed")
        return []
    log(f"installing {', '.join(what.requirements)} with what they need, which takes minutes the first time")
    loudly = [word for word in install if word != "--quiet"]
    tool.must([*loudly, *what.requirements], f"{', '.join(what.requirements)} cannot be installed", log)
    log(f"installing {', '.join(what.listed)}")
    # together with the framework, so that no listed package moves it
    if tool.run([*install, *what.requirements, *what.listed])[0] == 0:
        return []
    # One by one, to find those that no registry has: a single one makes uv install none.
    lacking = [one for one in what.listed if tool.run([*install, *what.requirements, one])[0] != 0]
    found = []
    for one in lacking:
        name = one.partition("==")[0]
        has_other = name != one and tool.run([*install, *what.requirements, name])[0] == 0
        found.append(
            f"{one} is not installed: no package index that uv uses has it{'; another version is' if has_other else ''}"
        )
    return found


def find_python(version: str) -> str:
    """Return pyenv's Python of a version, which uv does not look for; the version itself if pyenv has none, for uv to find."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    try:
        programs = sorted(root.glob(f"versions/{version}.*/bin/python"), key=_patch, reverse=True)
    except OSError:  # another user's, as after `su`, which keeps PYENV_ROOT
        programs = []
    for program in programs:
        if subprocess.run([program, "-I", "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return str(program)
    return version


def _patch(program: Path) -> tuple[list[int], str]:
    """Return what orders interpreters of pyenv: the numbers in the version's name, so that 3.10.12 is newer than 3.10.9."""
    name = program.parents[1].name
    return [int(number) for number in re.findall(r"\d+", name)], name


@dataclass(frozen=True)
class _Uv:
    """Runs uv, which ends with this process, and when its work is given up."""

    tool: Sequence[str]
    give_up: Callable[[], bool]

    def must(self, words: Sequence[str], why: str, log: Callable[[str], None] | None = None) -> None:
        """Run uv; raise PackageError with `why` and uv's output if it fails."""
        code, said = self.run(words, log)
        if code != 0:
            raise PackageError(f"{why}: {said}")

    def run(self, words: Sequence[str], log: Callable[[str], None] | None = None) -> tuple[int, str]:
        """Run uv, and return its exit code and output. Each line of the output is also passed to `log`."""
        said: list[str] = []

        def keep(line: Line) -> None:
            said.append(line.text)
            # the list of all that was installed tells nothing of how far it is
            if log is not None and not line.text.startswith(" + "):
                log(line.text.strip())

        # They lead to the environment that this process runs in, which has no part in the new one.
        env = {
            key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
        }
        children, until = Children(keep), time.monotonic() + INSTALL_TIMEOUT_S
        try:
            try:
                child = children.start("uv", Command([*self.tool, *words], env, Path.cwd()))
            except JobFailedError as error:  # uv is no job
                raise PackageError(str(error)) from error
            while child.exit is None:
                children.poll(0.1)
                if self.give_up():
                    raise PackageError("cancelled while the environment of an image was being made")
                if time.monotonic() > until:
                    line = command_line(*words, program="uv")
                    raise PackageError(f"{line} took longer than {INSTALL_TIMEOUT_S} s")
        finally:
            children.close()  # which ends one that still runs
        return child.exit.code, "\n".join(said).strip()


def _differences(what: WantedPython) -> list[str]:
    """Return how an environment differs from its image, as far as that is documented."""
    found = []
    if what.lock is None:
        newest = f"patch versions are the newest that match {', '.join(what.requirements)}, as documented for the image"
        found += ["packages of the image that its documentation does not list are missing", newest]
    found.append("system libraries and drivers are those of this machine")
    return found if sys.platform == "linux" else [*found, f"wheels are those for {sys.platform}"]


def interpreters(loaded: Loaded, catalog: Callable[[], Catalog]) -> dict[str, str]:
    """Return `local.interpreters` for RunOptions. An image's name becomes the Python of its environment; paths become absolute.

    Raises:
        ConfigError: The environment of an image was not made yet.
    """
    found = {}
    given = loaded.project.local.interpreters
    if isinstance(given, str):
        return {"*": AUTO}
    for pattern, value in given.items():
        if value == BUILD or (os.sep not in value and prebuilt(value, catalog()) is not None):
            what = wanted(value, catalog(), loaded)
            if not (what.folder / _READY).is_file():
                line = command_line("local", "python", "--image", value, program="vertexrig")
                raise loaded.error_at(
                    f"the environment of {value} was not made yet: {line}", "local", "interpreters", pattern
                )
            value = str(what.program)
        elif os.sep in value:  # not resolved: the link in an environment is what makes it one
            value = os.path.abspath(loaded.folder / os.path.expanduser(value))
        found[pattern] = value
    return found
