"""Running a trainer's own build with PyPA's `build`: its setup.py, or the build backend that its pyproject.toml names."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from configparser import RawConfigParser
from dataclasses import replace
from email.parser import Parser
from pathlib import Path
from typing import Literal

from build import BuildBackendException, BuildException, ProjectBuilder
from build.env import DefaultIsolatedEnv
from pyproject_hooks import BuildBackendHookCaller

from vertexrig.errors import PackageError
from vertexrig.package import layouts
from vertexrig.package.folders import files_of
from vertexrig.package.pyproject import Declared, on_this_machine
from vertexrig.package.requirements import Notes
from vertexrig.package.sources import Sources, staged_files
from vertexrig.package.verify import reason, run
from vertexrig.waiting import waiting

BUILD_TIMEOUT_S = 180


class _Runner:
    """Runs the hooks of a build backend without the caller's environment, and keeps what they print."""

    def __init__(self, home: Path) -> None:
        self.home, self.output = home, ""

    def __call__(
        self, cmd: Sequence[str], cwd: str | None = None, extra_environ: Mapping[str, str] | None = None
    ) -> None:
        env = {"PYTHONNOUSERSITE": "1", **(extra_environ or {})}
        done = run(
            cmd, cwd=Path(str(cwd)), home=self.home, timeout=BUILD_TIMEOUT_S, what="the build of the package", env=env
        )
        self.output = done.stderr + "\n" + done.stdout
        done.check_returncode()

    def failed(self, what: str, error: Exception) -> PackageError:
        """Return the error to report when the build raises `error`."""
        inner = getattr(error, "exception", None)
        if isinstance(inner, PackageError):
            return inner
        missing = re.search(r"No such file or directory: '([^']+)'", self.output) if "wheel" in what else None
        name = Path(missing[1]).name if missing else ""
        hint = (
            f". setup.py reads {name}, which is not in the package: add 'include {name}' to MANIFEST.in" if name else ""
        )
        return PackageError(f"{what} failed: {reason(self.output) if self.output else error}{hint}")


def setuptools(folder: Path, distribution: Literal["sdist", "wheel"], out: Path, *, trusted: bool) -> Path:
    """Return the distribution that a folder's setup.py makes in the new folder `out`, with the setuptools of this interpreter.

    Unless it is `trusted`, the build may import no module of the folder. PackageError if setup.py fails.
    """
    # the legacy backend puts the folder first on sys.path: a tarfile.py in it would run in place of Python's
    name = f"setuptools.build_meta{':__legacy__' if trusted else ''}"
    runner = _Runner(out.parent)
    hooks = BuildBackendHookCaller(str(folder), name, runner=runner, python_executable=sys.executable)
    out.mkdir()
    try:
        return out / str(hooks.build_sdist(str(out)) if distribution == "sdist" else hooks.build_wheel(str(out)))
    except subprocess.CalledProcessError as error:
        raise runner.failed(f"setup.py ({distribution})", error) from error


def unpack(wheel: Path, into: Path) -> None:
    """Unpack a wheel into a folder, without running anything of it."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(into)  # zipfile keeps names inside the folder


def from_wheel(sources: Sources, staged: Path, work: Path) -> Sources:
    """Return the content of the wheel that a project's own build backend makes of a copy of its files, as the sources of a package.

    PackageError if the backend cannot be installed, or the build fails.
    """
    runner = _Runner(work)
    try:
        with waiting("the build backend that pyproject.toml names"), DefaultIsolatedEnv() as env:
            project = ProjectBuilder.from_isolated_env(env, staged, runner)
            env.install(project.build_system_requires)
            env.install(project.get_requires_for_build("wheel"))
            wheel = project.build("wheel", work / "wheel")
    except (BuildException, BuildBackendException) as error:
        raise runner.failed("the build of pyproject.toml", error) from error
    except subprocess.CalledProcessError as error:
        output = (error.stderr or error.output or b"").decode("utf-8", "replace")
        raise PackageError(
            f"the build backend that pyproject.toml names cannot be installed: {reason(output)}"
        ) from error
    content = work / "content"
    unpack(Path(wheel), content)
    (info,) = content.glob("*.dist-info")
    metadata = Parser().parsestr((info / "METADATA").read_text(encoding="utf-8"))
    scripts = RawConfigParser(delimiters=("=",))
    scripts.read_string((info / "entry_points.txt").read_text("utf-8") if (info / "entry_points.txt").exists() else "")
    notes = Notes(warnings=list(sources.warnings))
    needs = []
    for text in metadata.get_all("Requires-Dist") or []:
        if re.search(r"@\s*file:", text):
            notes.warnings.append(on_this_machine(text.split("@")[0].strip(), 1))
        elif not re.search(r";.*\bextra\s*==", text):
            needs.append(Declared(text, 1))
    files = {name: path for name, path in files_of(content).items() if not name.startswith(f"{info.name}/")}
    layout = layouts.unpacked(
        {"name": str(metadata["Name"]), "version": str(metadata["Version"])},
        str(metadata["Requires-Python"] or ""),
        [f"{name} = {value}" for name, value in scripts.items("console_scripts")]
        if scripts.has_section("console_scripts")
        else [],
        files,
    )
    new_bytes = staged_files(layout, needs, sources.image_tf, notes)
    names = tuple(sorted({**files, **{name: content / name for name in new_bytes}}.items()))
    return replace(
        sources,
        files=names,
        new_bytes=new_bytes,
        version=str(metadata["Version"]),
        requirements=tuple(notes.requirements),
        refusals=tuple(notes.refusals),
        warnings=tuple(notes.warnings),
        unsafe="",
        by_backend=False,
    )
