"""The lock file of the trainer's own image, and the layers made of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.images import project
from tests.support.tools import REPOSITORY, need, vertexrig
from vertexrig.errors import PackageError, VertexrigError
from vertexrig.finding import Severity
from vertexrig.package import dockerfile, image, locking, uv
from vertexrig.package.recipes import KINDS
from vertexrig.project import config
from vertexrig.submit import images
from vertexrig.workspace import Workspace


def inputs(loaded: config.Loaded, kind: str = "cpu") -> list[str]:
    wheel = locking.wheel_of(loaded).wheel
    assert wheel is not None
    return locking.inputs(loaded, kind, wheel)


def test_what_goes_into_the_image(tmp_path: Path) -> None:
    """The framework in its variant, what the trainer requires with its markers, and what it imports and a prebuilt image
    would have had; nothing twice.
    """
    task = "import hypertune, numpy, tensorflow\nfrom google.cloud import storage\nfrom google.cloud.bigquery import Client\n"
    requires = ("tqdm>=4; python_version<'4'", "numpy<3")
    loaded = project(tmp_path, task=task, requires=requires, framework="tf-2.21")
    found = [line.replace(" ", "").replace('"', "'") for line in inputs(loaded, "gpu")]
    assert found == [
        "tensorflow[and-cuda]~=2.21.0", "tqdm>=4;python_version<'4'", "numpy<3",
        "cloudml-hypertune", "google-cloud-bigquery",
    ]  # fmt: skip
    assert inputs(loaded, "tpu")[0] == "tensorflow==2.15.0"


@pytest.mark.whole
def test_requirements_that_a_prebuilt_image_brings_are_in_our_own(tmp_path: Path) -> None:
    """Torch of a requirements.txt is left out of a package, and not of an image; its indexes are named, too."""
    loaded = project(tmp_path)
    (tmp_path / "code/setup.py").unlink()
    lines = "--extra-index-url https://pypi.example.com/simple\n-f https://example.com/wheels\ntorch==2.4.1\ntqdm\n"
    (tmp_path / "code/requirements.txt").write_text(lines)
    assert inputs(loaded) == [
        "--extra-index-url https://pypi.example.com/simple", "--find-links https://example.com/wheels", "tqdm", "torch==2.4.1",
    ]  # fmt: skip
    (tmp_path / "code/requirements.txt").write_text("--index-url https://me:secret@pypi.example.com/simple\ntqdm\n")
    with pytest.raises(
        PackageError, match=r"requirements.txt:1: the index is named with a user or a password"
    ) as caught:
        inputs(loaded)
    assert "secret" not in str(caught.value)


@pytest.mark.whole
def test_the_layers_really_install_and_the_program_starts(tmp_path: Path) -> None:
    """The RUN lines of the rendered Dockerfile, typed in a clean environment of this Python, install the locked
    requirements with their hashes and the trainer; the ENTRYPOINT then starts it.
    """
    task = "import six, sys\nprint('six', six.__version__, sys.prefix, *sys.argv[1:])\n"
    loaded = project(tmp_path, task=task, requires=("six",))
    done = vertexrig("image", "cpu", "--format=json", cwd=tmp_path)
    assert done.returncode == 0 and "resolving 1 requirements" in done.stderr, done.stderr
    (made,) = json.loads(done.stdout)["images"]
    assert "resolving" not in vertexrig("image", "cpu", cwd=tmp_path).stderr
    context, venv = Path(tmp_path, made["folder"]), tmp_path / "venv"
    text = (context / "Dockerfile").read_text()
    subprocess.run([need("uv"), "venv", "--quiet", "--seed", "--python", sys.executable, venv], check=True)

    def layer(start: str) -> subprocess.CompletedProcess[str]:
        line = next(line for line in text.splitlines() if line.startswith(f"RUN {start}"))
        env = {"PATH": f"{venv}/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
        return subprocess.run(
            ["sh", "-ec", line.removeprefix("RUN ")], cwd=context, env=env, capture_output=True, text=True
        )

    lock = (context / "requirements.txt").read_text()
    for start in (
        "pip install --no-cache-dir --no-deps --require-hashes",
        "pip install --no-cache-dir --no-deps --no-index",
    ):
        ran = layer(start)
        assert ran.returncode == 0, ran.stderr
    head = dockerfile.parse(text).entrypoint
    ran = subprocess.run([venv / "bin" / head[0], *head[1:], "--epochs=3"], capture_output=True, text=True, cwd="/")
    version = re.search(r"(?m)^six==(\S+)", lock)
    assert version is not None and ran.stdout == f"six {version[1]} {venv} --epochs=3\n", ran.stderr
    assert images.is_ours(loaded, "cpu", made["uri"])


def test_what_cannot_be_resolved_or_has_no_hash_is_said(tmp_path: Path) -> None:
    """Uv's own words for a conflict; a requirement that is a folder has no hash."""
    need("uv")
    made = image.identify_image(project(tmp_path), "cpu")
    with pytest.raises(PackageError, match="(?s)cannot be resolved for Python.*six"):
        locking.write_lock(made, ["six==1.16.0", "six==1.17.0"])
    with pytest.raises(PackageError, match="has no hash, because it comes from a URL or a folder"):
        locking.write_lock(made, [f"trainer @ {(tmp_path / 'code').as_uri()}"])
    assert not made.lock.exists()


def test_without_uv_the_line_that_installs_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Uv is looked for on the PATH and among the packages of this Python."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(VertexrigError, match="/bin/false -m pip install uv"):
        uv.uv()


@pytest.mark.whole
def test_this_repository_s_locks_are_current_and_its_jobs_without_complaint() -> None:
    """Every job of this repository has no warning that its user can do nothing about, on prebuilt images and on its own; those
    have lock files that fit the requirements, and no finding about them.
    """
    prebuilt = Workspace(config.load(REPOSITORY / "vertexrig.yaml", environ={}))
    loaded = config.load(REPOSITORY / "vertexrig.yaml", environ={"IMAGE": "build"})
    workspace = Workspace(loaded)
    kinds = set()
    for name in [*loaded.project.entries]:
        found = workspace.prepare(name).findings
        assert [finding.id for finding in found if finding.id.startswith("image")] == [], name
        found += prebuilt.prepare(name).findings
        loud = [finding for finding in found if finding.severity is not Severity.INFO]
        # TPUs need a quota that a new project has not, which the warning says how to get
        assert [finding.id for finding in loud] == (["quota-zero"] * 2 if name == "tpu" else []), name
        assert all(finding.fix for finding in loud)
        kinds |= set(workspace.renderer.view(name).own_images)
    assert kinds == set(KINDS)
    wheel = locking.wheel_of(loaded).wheel
    assert wheel is not None
    for kind in KINDS:
        assert locking.is_current(image.identify_image(loaded, kind), locking.inputs(loaded, kind, wheel)), kind
