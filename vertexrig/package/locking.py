"""The lock file of the trainer's own image: every distribution in it, with version and hashes, as uv resolves them.

What goes in: the framework, what the trainer's package requires, and what its code imports in addition to that and a prebuilt
image would bring.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

from vertexrig.errors import PackageError
from vertexrig.files import is_inside, write_text
from vertexrig.package import builder, folders
from vertexrig.package.builder import Built
from vertexrig.package.image import ImageId, framework_requirements
from vertexrig.package.image_modules import declared_modules, distribution_of, is_supplied, normalise
from vertexrig.package.indexes import indexes_of, named_secretly
from vertexrig.package.requirements import REQUIREMENTS, left_out, lines_of
from vertexrig.package.uv import uv
from vertexrig.project.config import PACKAGES_FOLDER, Loaded
from vertexrig.trainer_source.reader import read
from vertexrig.waiting import waiting

LOCK_TIMEOUT_S = 600
PLATFORM = "x86_64-manylinux_2_28"
"""What the base image runs on: Debian bookworm has glibc 2.36."""
_INPUTS = "# inputs: "
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def wheel_of(loaded: Loaded) -> Built:
    """Return the trainer's package with its wheel; PackageError if it cannot be built."""
    trainer = loaded.project.trainer
    return builder.build(
        loaded.path(trainer.path, "trainer", "path"),
        loaded.output(PACKAGES_FOLDER),
        module=trainer.module,
        verify=False,
        wheel=True,
        most_mib=trainer.package_mib,
    )


def inputs(loaded: Loaded, kind: str, wheel: Path) -> list[str]:
    """Return the requirements of an image, and the indexes they come from, one a line; PackageError if one is named with a password."""
    wanted, made = framework_requirements(loaded, kind)
    folder = loaded.path(loaded.project.trainer.path, "trainer", "path")
    lines = [f"--find-links {made.find_links}"] if made.find_links else []
    lines += _indexes(folder)
    wanted += [*_required(wheel), *_left_out(folder)]
    named = {normalise(found[0]) for found in map(_NAME.match, wanted) if found}
    modules = {loaded.project.trainer.module, *(job.module for job in loaded.project.jobs.values() if job.module)}
    wanted += sorted({name for module in modules for name in _imported(folder, module, named)} - named)
    return list(dict.fromkeys([*lines, *wanted]))


def _texts(folder: Path) -> Iterator[str]:
    for place in dict.fromkeys((folder, folders.module_root(folder))):
        if (place / REQUIREMENTS).is_file() and is_inside(place / REQUIREMENTS, place):
            yield (place / REQUIREMENTS).read_text(encoding="utf-8-sig", errors="replace")


def _indexes(folder: Path) -> list[str]:
    found = []
    for text in _texts(folder):
        for number, option, url in indexes_of(text):
            if named_secretly(url):
                raise PackageError(
                    f"{REQUIREMENTS}:{number}: the index is named with a user or a password, which would be in the image. "
                    "Write the URL without it, and give uv and pip the password by keyring or netrc"
                )
            found.append(f"{option} {url}")
    return found


def _required(wheel: Path) -> list[str]:
    """Return what the trainer's own metadata requires, without extras."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode("utf-8", "replace"))
    # nobody asks for the trainer's extras when the image installs it
    return [line for line in metadata.get_all("Requires-Dist") or [] if not re.search(r";.*\bextra\s*==", line)]


def _left_out(folder: Path) -> list[str]:
    """Return lines of a requirements.txt that its package goes without, because a prebuilt image brings them."""
    return [line for text in _texts(folder) for _, line in lines_of(text) if left_out(line, None)]


def _imported(folder: Path, module: str, named: set[str]) -> set[str]:
    """Distributions of the modules that the trainer imports, does not require, and a prebuilt image would bring."""
    declared = declared_modules(named)
    found = set()
    for item in read(folders.module_root(folder), module).imports:
        parts = item.module.split(".")
        # google.cloud is a namespace: google.cloud.storage comes from google-cloud-storage, each client from its own
        # distribution
        if parts[0] == "google" and len(parts) > 2 and parts[1] == "cloud":
            found.add("-".join(parts[:3]).replace("_", "-"))
        elif item.kind == "other" and not item.caught and parts[0] != "google" and is_supplied(parts[0], None):
            found |= {normalise(distribution_of(parts[0]))} if parts[0].lower() not in declared else set()
    return found


def is_current(image: ImageId, lines: list[str]) -> bool:
    """Whether the lock file was made for these requirements."""
    try:
        return f"{_INPUTS}{_digest(image, lines)}\n" in image.lock.read_text(encoding="utf-8")
    except OSError:
        return False


def _digest(image: ImageId, lines: list[str]) -> str:
    return hashlib.sha256("\n".join([image.python, PLATFORM, *lines]).encode()).hexdigest()[:12]


def write_lock(image: ImageId, lines: list[str]) -> None:
    """Resolve the requirements for the image's Python and write its lock file.

    Raises:
        UsageError: uv is not installed.
        PackageError: They cannot be resolved, or one of them has no hash.
    """
    with tempfile.TemporaryDirectory(prefix="vertexrig-lock-") as temporary:
        source, target = Path(temporary) / "requirements.in", Path(temporary) / "requirements.txt"
        source.write_text("\n".join(lines) + "\n", encoding="utf-8")
        words = [*uv(), "pip", "compile", str(source), "--output-file", str(target), "--generate-hashes", "--quiet"]
        words += ["--python-version", image.python, "--python-platform", PLATFORM, "--no-header", "--no-annotate"]
        # pip in the build has to ask the same places as uv did
        words += ["--emit-index-url", "--emit-find-links"]
        with waiting(f"uv, which resolves the requirements of the {image.kind} image"):
            done = subprocess.run(words, capture_output=True, text=True, timeout=LOCK_TIMEOUT_S, cwd=temporary)
        if done.returncode != 0:
            raise PackageError(
                f"the requirements of the {image.kind} image cannot be resolved for Python {image.python}:\n"
                f"{done.stderr.strip() or done.stdout.strip()}"
            )
        text = target.read_text(encoding="utf-8")
    for block in re.split(r"\n(?=\S)", text.strip()):  # a requirement, with its hashes on lines that are moved in
        if not block.startswith(("-", "#")) and "--hash=" not in block:
            raise PackageError(
                f"{block.split()[0]} has no hash, because it comes from a URL or a folder: name a release from a package index"
            )
    # The folder's own indexes were looked at in `_indexes`; this one comes from uv's configuration, by
    # --emit-index-url.
    if re.search(r"://[^/@\s]*@", text):
        raise PackageError(
            "uv is configured with an index that is named with a user or a password, which would be in the image: give it "
            "the password by keyring or netrc"
        )
    write_text(image.lock, heading(image, lines) + text)


def heading(image: ImageId, lines: list[str]) -> str:
    """Return the first lines of a lock file: what it is for, and a hash of the requirements it was made of."""
    made = f"# Made by `vertexrig image --lock` for Python {image.python} on {PLATFORM}; do not edit.\n"
    return f"{made}{_INPUTS}{_digest(image, lines)}\n"
