"""The runner and the packages of a job: built, missing, needing others, installed once."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from localvertex.runner import Line, RunOptions, packages, pythons
from tests.support.jobkit import IMAGE, container, job, output, pool, run_job, sdist, wheel
from vertexrig.project.local import LocalImage

FAST = RunOptions(grace=0.5)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local Vertex's folder whose environments no other test uses."""
    folder = tmp_path_factory.mktemp("vertex")
    sdist(folder / "gs/packages/trainer.tar.gz")
    return folder


@pytest.mark.whole
def test_what_the_image_has_and_this_machine_lacks(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that the image's page lists and the trainer imports is installed; where pip cannot, the failure says who has it."""
    assert importlib.util.find_spec("webob") is None, "the test needs a module that this Python lacks"
    spec = job(pool("", package="gs://packages/plain.tar.gz"))
    sdist(
        root / "gs/packages/plain.tar.gz",
        task="def use():\n    import webob\n    print('has', webob.__name__)\n\nuse()\n",
    )
    lines: list[Line] = []
    result = run_job(spec, root=root, on_line=lines.append, options=FAST)
    assert result.succeeded and "has webob" in [line.text for line in lines], result.error
    assert any(one.startswith("this machine lacked webob, which the image has") for one in result.differences)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    sdist(root / "gs/packages/plain.tar.gz", task="import webob")
    result = run_job(spec, root=root, on_line=lines.append, options=FAST)
    assert (
        not result.succeeded and "this machine does not have webob, and the image tf-cpu.2-17.py310 does" in result.hint
    )


@pytest.mark.parametrize(
    ("distribution", "framework"),
    [("tensorflow", "tensorflow"), ("tensorflow_cpu", "tensorflow"), ("tensorflow-intel", "tensorflow"), ("tf_keras", "tf_keras")],
)  # fmt: skip
def test_versions_that_a_package_brought_are_those_compared(tmp_path: Path, distribution: str, framework: str) -> None:
    """A framework that pip installed for a job's package is what the stand-in has, and not the one of the Python below; TensorFlow also
    by its distribution for CPUs, or Windows' own.
    """
    base = packages.Interpreter("python", (), True, True, "3.10.1", {"tensorflow": "2.21.0", "tf_keras": "2.21.0"})
    about = tmp_path / f"env/lib/python3.10/site-packages/{distribution}-2.17.1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Name: {distribution}\nVersion: 2.17.1\n")
    seen = packages.with_layer(base, tmp_path / "env/bin/python")
    assert seen.installed == {**base.installed, framework: "2.17.1"}


@pytest.mark.whole
def test_a_python_before_3_8_runs_packages(root: Path, tmp_path: Path) -> None:
    """The Python 3.7 of images up to TensorFlow 2.7 cannot list its distributions; requirements and frameworks are found."""
    found = pythons.find_python("3.7")
    if not Path(found).is_file():
        pytest.skip("pyenv has no Python 3.7 here")
    subprocess.run([found, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    about = tmp_path / "env/lib/python3.7/site-packages/tensorflow-2.4.4.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: tensorflow\nVersion: 2.4.4\n")
    assert packages.inspect_python(str(tmp_path / "env/bin/python")).installed == {"tensorflow": "2.4.4"}
    sdist(root / "gs/packages/needs.tar.gz", requires=("surely-not-a-distribution-of-anyone>=9",))
    options = RunOptions(grace=0.5, interpreters={"*": found})
    result = run_job(job(pool("", package="gs://packages/needs.tar.gz")), root=root, options=options)
    assert (
        result.error is not None and "requirements of needs.tar.gz cannot be installed: surely" in result.error.message
    )


@pytest.mark.whole
def test_the_same_package_is_installed_once_without_an_index(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second job with the same package runs no pip; other bytes under the same name do. Requirements that the interpreter already
    satisfies are taken from it, and another one is named.
    """
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    requires = ("psutil>=5", "absent-thing; extra == 'x'")
    path = sdist(root / "gs/packages/again.tar.gz", task="import psutil; print('one')", requires=requires)
    spec = job(pool("", package="gs://packages/again.tar.gz"))
    made = []
    for _ in range(2):
        result = run_job(spec, root=root, options=FAST)
        assert result.succeeded, result.error
        made.append({path: path.stat().st_mtime_ns for path in (root / "envs").glob("*/ready.json")})
    assert made[0] == made[1]
    sdist(path, task="print('two')")
    lines: list[Line] = []
    assert run_job(spec, root=root, on_line=lines.append, options=FAST).succeeded and output(lines)[-1] == "two"
    sdist(path, requires=("surely-not-a-distribution-of-anyone>=9",))
    result = run_job(spec, root=root, options=FAST)
    assert result.error is not None and "surely-not-a-distribution-of-anyone>=9" in result.error.message


@pytest.mark.whole
def test_a_command_in_docker_hub_s_image_of_python(root: Path) -> None:
    """A command runs with this machine's Python in place of that image, and in place of no other custom image."""
    for image, runs in (
        ("python:3.12-slim", True),
        ("docker.io/library/python", True),
        ("mine/python:3.12", False),
        ("python-x:1", False),
    ):
        one, lines = container(image, "sh", "-c", "python3 -c 'print(6 * 7)'"), list[Line]()
        done = run_job(job(one), root=root, on_line=lines.append, options=RunOptions(grace=0.5, engine="none"))
        assert done.succeeded is runs and ("42" in [line.text for line in lines]) is runs, (image, done.error)


@pytest.mark.parametrize(
    ("mapped", "user", "start"),
    [(False, "--user", ["bash", "-c"]), (True, "", ["python", "-c", "import os, sys; os.system(sys.argv[1])"])],
    ids=["prebuilt image", "python in a mapped image"],
)  # fmt: skip
@pytest.mark.whole
def test_a_command_that_installs_changes_its_replica_alone(
    root: Path, tmp_path: Path, mapped: bool, user: str, start: list[str]
) -> None:
    """What a command's `pip install …` brings, with --user or without, is there for that replica's Python and programs, and gone after it."""
    name = wheel(root / "gs/packages", "extra", "print('extra ran')").name
    bring = "pip3 install -q --no-index {user} /gcs/packages/{name} && python3 -m extra.task && command -v pytest && pytest --version"
    image = "us-docker.pkg.dev/mine/images/train:1" if mapped else IMAGE
    options = RunOptions(grace=0.5, engine="none", images={"*/mine/images/*": LocalImage(tmp_path, ())})
    one, lines = container(image, *start, bring.format(user=user, name=name)), list[Line]()
    done = run_job(job(one), root=root, on_line=lines.append, options=options)
    assert done.succeeded, (done.error, lines)
    texts = [line.text for line in lines]
    assert "extra ran" in texts
    assert f"pytest {pytest.__version__}" in texts and any(text.startswith(f"{root}/envs/") for text in texts)
    for python in [sys.executable, *map(str, root.glob("envs/*/bin/python"))]:
        assert subprocess.run([python, "-c", "import extra"], capture_output=True).returncode == 1
    assert list(root.glob("jobs/*/*/installed")) == []
