"""Builds a release into dist/ and tries it: `make release`.

What is built is the last commit, in a folder of its own: sdist and wheel with the manual page and a line that says where
they come from. Both are held against the registry's rules (twine), installed in empty environments, and tried. Beside them
are an SBOM of the base install (CycloneDX) and the hashes of all files.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from localvertex.runner.pythons import find_python
from tools import man
from vertexrig import __version__
from vertexrig.cli import vertexrig

REPOSITORY = Path(__file__).resolve().parents[1]
DIST = REPOSITORY / "dist"
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
UV = (sys.executable, "-m", "uv")
TRIED = (["--version"], ["catalog", "machines"], ["check", "job.yaml"])
JOB = """\
workerPoolSpecs:
- machineSpec: {machineType: n1-standard-8}
  replicaCount: 1
  containerSpec: {imageUri: us-docker.pkg.dev/my-project/trainers/digits:v1}
scheduling: {timeout: 3600s}
"""


def run(command: list[str], cwd: Path = REPOSITORY, env: Mapping[str, str] | None = None) -> str:
    """Run a command and return its output. If it fails, exit with its output."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command[:4])} … ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def unfit(tag: str, dirty: str, changelog: str) -> str:
    """Return why the checkout cannot be released, "" if it can.

    Args:
        tag: The tag that is built, "" for none: then it is tried only.
        dirty: What git says of files that are not committed.
        changelog: The text of CHANGELOG.md.
    """
    if dirty:
        return f"a release is made of a commit, and these are not committed:\n{dirty}"
    if tag and tag != f"v{__version__}":
        return f"the tag is {tag}, and the version in vertexrig/__init__.py {__version__}: tag v{__version__}, or change the version"
    if tag and not re.search(rf"^## {re.escape(__version__)} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.MULTILINE):
        return f"CHANGELOG.md has no heading such as `## {__version__} (2026-11-23)`: put the day of the release there"
    return ""


def origin(commit: str, env: Mapping[str, str]) -> str:
    """Return the line of `vertexrig --version` on where a package was built."""
    if "GITHUB_RUN_ID" in env:
        page = f"{env['GITHUB_SERVER_URL']}/{env['GITHUB_REPOSITORY']}/actions/runs/{env['GITHUB_RUN_ID']}"
        return f"built by {page} from commit {commit}"
    return f"built by hand from commit {commit}"


def export(folder: Path) -> dict[str, str]:
    """Write the last commit and the generated files into a folder; return the environment of the build."""
    commit, seconds = run(["git", "log", "-1", "--format=%H %ct"]).split()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=REPOSITORY, check=True, capture_output=True).stdout
    folder.mkdir(parents=True, exist_ok=True)
    # not tarfile: its filters are not in every 3.10 and 3.11, and it warns without one
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    (folder / "vertexrig/built.txt").write_text(origin(commit, os.environ) + "\n", encoding="utf-8")
    (folder / "man").mkdir()
    (folder / "man/vertexrig.1").write_text(man.page(vertexrig, "vertexrig"), encoding="utf-8")
    return {**os.environ, "SOURCE_DATE_EPOCH": seconds}


def pythons() -> dict[str, str]:
    """Return each Python of those we support that is at hand, by its version."""
    asked = {one: [*UV, "python", "find", "--no-python-downloads", "--system", find_python(one)] for one in PYTHONS}
    found = {one: subprocess.run(words, capture_output=True, text=True, check=False) for one, words in asked.items()}
    return {one: done.stdout.strip() for one, done in found.items() if done.returncode == 0}


def install(python: str, package: Path, venv: Path) -> Path:
    """Install a package in an environment that has nothing, not even pip; return its Python."""
    run([*UV, "venv", "--quiet", "--python", python, str(venv)])
    place = venv / "bin/python"
    pins = str(REPOSITORY / "constraints.txt")
    run([*UV, "pip", "install", "--quiet", "--python", str(place), "-c", pins, str(package)])
    return place


def tried(python: Path, folder: Path) -> str:
    """Return the version that an installed tool prints, after a few verbs and its manual page."""
    (folder / "job.yaml").write_text(JOB, encoding="utf-8")
    clean = {"PATH": os.defpath, "HOME": str(folder), "LANG": "C.UTF-8"}
    said, *_ = [run([str(python.parent / "vertexrig"), *words], cwd=folder, env=clean) for words in TRIED]
    if not (python.parents[1] / "share/man/man1/vertexrig.1").is_file():
        sys.exit(f"the manual page is not in the environment of {python}")
    return said.strip()


def main() -> None:
    """Build and test sdist and wheel, and write the SBOM and the hashes."""
    tag = os.environ.get("GITHUB_REF_NAME", "") if os.environ.get("GITHUB_REF_TYPE") == "tag" else ""
    reason = unfit(tag, run(["git", "status", "--porcelain"]), (REPOSITORY / "CHANGELOG.md").read_text("utf-8"))
    if reason:
        sys.exit(reason)
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        built = export(folder / "source")
        run([sys.executable, "-m", "build", "--outdir", str(DIST), str(folder / "source")], env=built)
        (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
        run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)])
        # the sdist with one Python: the wheel is made of it
        every = [(sdist, sys.executable), *((wheel, python) for python in pythons().values())]
        for number, (package, python) in enumerate(every):
            place = install(python, package, folder / f"{number}")
            print(f"{run([str(place), '--version']).strip()}, {package.name}: {tried(place, folder)}", flush=True)
        sbom = DIST / f"vertexrig-{__version__}.cdx.json"
        run([sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "-o", str(sbom), str(place)])
    hashes = "".join(f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in sorted(DIST.iterdir()))
    (DIST / "SHA256SUMS").write_text(hashes, encoding="utf-8")
    print(hashes, end="")


if __name__ == "__main__":
    main()
