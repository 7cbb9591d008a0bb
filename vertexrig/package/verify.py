"""Whether a built package works where it will run: its imports are followed, without running any of it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from vertexrig.errors import PackageError
from vertexrig.package.imports import Verified, hint, third_party
from vertexrig.package.requirements import Requirement
from vertexrig.trainer_source.follow import follow
from vertexrig.trainer_source.reachability import Runs
from vertexrig.trainer_source.undefined_names import undefined_names
from vertexrig.waiting import waiting


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
        with waiting(what):
            return subprocess.run(
                command,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                errors="replace",
                timeout=timeout,
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


def verify(
    target: Path, folder: Path, module: str, requirements: Sequence[Requirement], tf_version: str | None
) -> Verified:
    """Read the trainer that is installed in `target`, and follow its imports.

    Nothing of it is run: a module may begin to train, or ask for a variable that only the job has, as soon as it is imported.
    `folder` has the trainer's sources, for hints.

    Raises:
        PackageError: What the module imports is not there, or does not parse; with the trainer's own line.
    """
    source = follow(target, module)
    source.must_be_read(hint(folder, module))
    found = third_party(source.imports, folder, requirements, tf_version)
    for defect in undefined_names(source.code, Runs(source.code)) if source.code is not None else ():
        if defect.certain:
            raise PackageError(f"{defect.where}: the name {defect.text!r} is used but never defined or imported")
    return found
