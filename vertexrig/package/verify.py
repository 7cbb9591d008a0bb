"""Whether a built package works where it will run: installed by pip, and its imports followed, without running any of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from vertexrig.errors import PackageError
from vertexrig.package.imports import Verified, hint, third_party
from vertexrig.package.requirements import Requirement
from vertexrig.trainer_source.follow import follow
from vertexrig.trainer_source.reachability import Runs
from vertexrig.trainer_source.undefined_names import undefined_names

INSTALL_TIMEOUT_S = 180


def clean_environment(home: Path) -> dict[str, str]:
    """Return an environment without the caller's Python settings, for child processes that must not see them."""
    # PYENV_VERSION: with pyenv the interpreter on the PATH is a shim, which chooses the Python by it
    keep = ("PATH", "SYSTEMROOT", "TMPDIR", "TEMP", "TMP", "LANG", "LC_ALL", "PYENV_VERSION")
    return {name: os.environ[name] for name in keep if name in os.environ} | {
        # a folder of its own: pip and distutils read settings below HOME (pip.conf, .pydistutils.cfg)
        "HOME": str(home),
        "PYTHONUTF8": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # setup scripts that go through a set list files in one order, and the same sources give the same bytes
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": "315532800",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def run(
    command: Sequence[str], *, cwd: Path, home: Path, timeout: float, what: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a child process to its end; PackageError if it cannot start or takes longer than `timeout` seconds."""
    try:
        env = {**clean_environment(home), **(env or {})}
        return subprocess.run(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, errors="replace", timeout=timeout
        )
    except subprocess.TimeoutExpired as error:
        raise PackageError(f"{what} took longer than {timeout:.0f} s and was ended") from error
    except OSError as error:
        raise PackageError(f"{what} cannot start {command[0]!r}: {error.strerror}") from error


def reason(output: str) -> str:
    """Return the error line of a child's output, with the last traceback line before it that is in setup.py or the package."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [
        index for index, line in enumerate(lines) if re.match(r"([\w.]+(Error|Exception|Exit|Version)\b|error:)", line)
    ]
    # pip closes with its own lines; the first error is the package's.
    chosen = next((i for i in errors if not lines[i].startswith("error: subprocess")), None)
    if chosen is None:
        return lines[-1] if lines else "no message"
    place = ""
    # not broken off: the last one is the innermost line of the traceback
    for line in lines[:chosen]:
        match = re.match(r'File "(?P<file>[^"]+)", line (?P<line>\d+)', line)
        if match and match["file"] == "<string>":  # setuptools runs setup.py as a text
            place = f"setup.py:{match['line']}: "
        elif match and "site-packages" not in match["file"] and "<" not in match["file"]:
            place = f"{Path(match['file']).name}:{match['line']}: "
    return place + lines[chosen]


def install(archive: Path, target: Path, work: Path) -> None:
    """Install an sdist as a container without egress does: pip, no index, no dependencies.

    Raises:
        PackageError: pip is missing, or setup.py fails outside its own folder.
    """
    # --no-build-isolation: isolation would fetch setuptools from PyPI. For a setup.py alone pip up to 25.2 does not isolate
    # in the container either.
    command = [
        sys.executable,
        "-I",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
    ]
    command += ["--no-compile", "--no-warn-script-location", "--target", str(target), str(archive)]
    done = run(command, cwd=work, home=work, timeout=INSTALL_TIMEOUT_S, what="installing the package")
    if done.returncode == 0:
        return
    output = done.stderr + "\n" + done.stdout
    if "No module named pip" in output:
        raise PackageError(
            f"pip is missing in {sys.executable}: run {sys.executable} -m ensurepip, or build with verify=False"
        )
    hint = ""
    missing = re.search(r"No such file or directory: '([^']+)'", output)
    if missing:
        name = Path(missing[1]).name
        hint = f". setup.py reads {name}, which is not in the package: add 'include {name}' to MANIFEST.in"
    raise PackageError(f"the package cannot be installed: {reason(output)}{hint}")


def verify(
    target: Path, folder: Path, module: str, requirements: Sequence[Requirement], tf_version: str | None
) -> Verified:
    """Read the installed trainer and follow its imports. Nothing of it is run: a module may begin to train, or ask for
    a variable that only the job has, as soon as it is imported.

    Args:
        target: Where the package is installed.
        folder: The trainer's sources, for hints.
        module: The module the job runs.
        requirements: What the package declares.
        tf_version: TensorFlow of the image, None if not known.

    Raises:
        PackageError: What the module imports is not there, or does not parse, with the trainer's own line.
    """
    source = follow(target, module)
    source.must_be_read(hint(folder, module))
    found = third_party(source.imports, folder, requirements, tf_version)
    for defect in undefined_names(source.code, Runs(source.code)) if source.code is not None else ():
        if defect.certain:
            raise PackageError(
                f"{defect.file}:{defect.line}: the name {defect.text!r} is used but never defined or imported"
            )
    return found
