"""A release: what it refuses, what it leaves, and that what it leaves runs as its users run it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.repository.test_make import copied, environment, make
from tests.support.tools import REPOSITORY, available, need
from tools.man import page
from tools.release import JOB
from vertexrig import __version__
from vertexrig.cli import vertexrig


def test_only_a_tag_publishes_and_no_secret_does() -> None:
    """The workflow runs on tags alone, has no permission that a job does not ask for, and publishes by its identity."""
    flow: dict[Any, Any] = yaml.safe_load((REPOSITORY / ".github/workflows/release.yml").read_text())
    assert flow[True] == {"push": {"tags": ["v*"]}} and flow["permissions"] == {}  # YAML 1.1 reads `on` as true
    publish = flow["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"} and publish["environment"] == "pypi"
    assert "secrets" not in json.dumps(flow) and "password" not in json.dumps(flow)
    assert [step["run"] for step in flow["jobs"]["build"]["steps"] if "run" in step] == ["make release"]


def test_the_manual_page_has_every_verb() -> None:
    """Each verb and its options are on the page, and man formats it without a warning."""
    text = page(vertexrig, "vertexrig")
    assert set(re.findall(r"^\.SS vertexrig (\S+) ", text.replace("\\-", "-"), re.MULTILINE)) == set(
        vertexrig.list_commands(None)  # type: ignore[arg-type]
    )
    assert ".B \\-\\-unsafe\\-fixes" in text
    man = available("man")
    if man is None:
        pytest.skip("man is not installed")
    done = subprocess.run(
        [man, "--warnings", "-E", "UTF-8", "-l", "-"],
        input=text, capture_output=True, text=True, env={**os.environ, "MANPAGER": "cat", "MANWIDTH": "100"},
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == "" and "Exit codes: 0 done;" in done.stdout, done.stderr


@pytest.mark.whole
def test_a_release_is_built_tried_and_run_from_its_wheel(tmp_path: Path) -> None:
    """`make release` leaves sdist, wheel, SBOM and hashes that fit; a file that is not committed stops it; uvx runs the wheel."""
    copy = copied(tmp_path / "copy")
    git = [need("git"), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], cwd=copy, check=True)
    env = environment(copy, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    env = {name: value for name, value in env.items() if not name.startswith("GITHUB_") and name != "PYTHONPATH"}
    done = make(copy, "release", env)
    if "ended with" in done.stdout and "install" in done.stdout and "CI" not in os.environ:
        pytest.skip("twine and others cannot be installed here")
    assert done.returncode == 0, done.stdout[-3000:]
    here = f"Python {sys.version.split()[0]}"
    assert re.search(
        rf"^{here}, vertexrig-\S+\.whl: vertexrig {__version__}, built by hand from commit [0-9a-f]{{40}}$",
        done.stdout,
        re.M,
    )
    wheel, sdist, sbom = (next((copy / "dist").glob(end)) for end in ("*.whl", "*.tar.gz", "*.cdx.json"))
    hashes = dict(line.split()[::-1] for line in (copy / "dist/SHA256SUMS").read_text().splitlines())
    assert hashes == {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in (wheel, sdist, sbom)}
    parts = {part["name"].lower() for part in json.loads(sbom.read_text())["components"]}
    assert {"vertexrig", "click", "jinja2", "pyyaml", "protobuf"} <= parts and "pytest" not in parts
    page_inside = f"vertexrig-{__version__}.data/data/share/man/man1/vertexrig.1"
    assert page_inside in zipfile.ZipFile(wheel).namelist()
    with tarfile.open(sdist) as packed:
        assert "tests" not in {name.split("/")[1] for name in packed.getnames() if "/" in name}
    (tmp_path / "job.yaml").write_text(JOB)
    runners = {"uvx": ("--from", str(wheel)), "pipx": ("run", "--spec", str(wheel))}
    for program in filter(available, runners):
        words = [need(program), *runners[program], "vertexrig", "check", "job.yaml"]
        tried = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        assert tried.returncode == 0 and "3 infos" in tried.stdout, tried.stderr
    (copy / "README.md").write_text("changed")
    stopped = make(copy, "release", env)
    assert stopped.returncode != 0 and "M README.md" in stopped.stdout
