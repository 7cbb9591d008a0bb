"""The source distribution: what is in it, and that it runs on the Python and TensorFlow of the prebuilt containers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.conftest import PACKAGE, QUICK, Launched, environment, summary

OLD = os.environ.get("TRAINER_OLD_PYTHON", "")
needs_old = pytest.mark.skipif(not OLD, reason="TRAINER_OLD_PYTHON names no Python 3.10 with TensorFlow 2.17; "
                                               "tests/trainer/old_python.sh makes one")  # fmt: skip


@pytest.fixture
def sdist(tmp_path: Path) -> Path:
    """The source distribution, built from a copy."""
    copy = tmp_path / "source"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "dist", "build"))
    subprocess.run([sys.executable, "setup.py", "-q", "sdist", "--formats=gztar"], cwd=copy, check=True,
                   capture_output=True, timeout=300)  # fmt: skip
    (built,) = (copy / "dist").glob("*.tar.gz")
    return built


def test_sdist_holds_the_trainer(sdist: Path) -> None:
    """Every module is in it, no pyproject.toml and no tests; TensorFlow is no requirement."""
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
        requires = archive.extractfile("trainer-0.1.0/trainer.egg-info/requires.txt").read().decode().split()  # type: ignore[union-attr]
    assert {f"trainer/{path.name}" for path in (PACKAGE / "trainer").glob("*.py")} <= names
    assert "pyproject.toml" not in names
    assert not any("test" in name for name in names)
    assert "tf-keras" in requires and "cloudml-hypertune" in requires
    assert not any(name.startswith(("tensorflow", "keras")) for name in requires)


def test_modules_import_nothing_of_the_launcher() -> None:
    """The package stands on its own."""
    for path in (PACKAGE / "trainer").glob("*.py"):
        assert "vertexrig" not in path.read_text()


#: A TensorFlow of which only the import is tried.
TENSORFLOW = """
import gc, types
__version__, COLLECTED = {version!r}, gc.isenabled()
keras = types.ModuleType("keras")
errors = types.SimpleNamespace(UnavailableError=OSError, AbortedError=OSError, CancelledError=OSError, DeadlineExceededError=OSError)
kept = [[] for _ in range(1000)]
def get_logger():
    return types.SimpleNamespace(setLevel=print)
"""


def with_stand_in(folder: Path, version: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python where TensorFlow is the one above, in this version, and tf-keras is missing."""
    (folder / "tensorflow.py").write_text(TENSORFLOW.format(version=version))
    (folder / "tf_keras.py").write_text("raise ImportError('hidden')\n")
    env = {**environment(folder), "PYTHONPATH": f"{folder}:{PACKAGE}"}
    return subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, timeout=300)


def test_a_missing_tf_keras_is_named(tmp_path: Path) -> None:
    """TensorFlow without tf-keras: the error says what to install."""
    ended = with_stand_in(tmp_path, "2.17.1", "-m", "trainer.task")
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert "TensorFlow 2.17.1 needs" in ended.stderr and "pip install 'tf-keras~=2.17.0'" in ended.stderr


def test_tensorflow_is_imported_without_the_garbage_collector(tmp_path: Path) -> None:
    """The collector does not run while TensorFlow is imported; then it does, and leaves out the objects of the import."""
    code = """
import gc
from trainer import framework
print(framework.tf.COLLECTED, gc.isenabled(), gc.get_freeze_count() > 1000)
"""
    ended = with_stand_in(tmp_path, "2.15.0", "-c", code)
    assert ended.stdout.split()[-3:] == ["False", "True", "True"], ended.stderr


@needs_old
def test_sdist_installs_and_trains_on_the_containers_python(
    sdist: Path, launch_cluster: Callable[..., dict[str, Launched]], tmp_path: Path
) -> None:
    """Pip installs the sdist for Python 3.10, and a chief and a worker of it train there."""
    place = tmp_path / "installed"
    subprocess.run([OLD, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(place),
                    str(sdist)], check=True, timeout=400)  # fmt: skip
    processes = launch_cluster(
        {"chief": 1, "worker": 1}, *QUICK, "--epochs=5", python=OLD, env={"PYTHONPATH": str(place)}
    )
    for process in processes.values():
        assert process.wait().code == 0, process.err
    told = summary(tmp_path)
    assert told["processes"] == 2 and told["accuracy"] >= 0.9 and told["tensorflow"].startswith("2.17")


@needs_old
def test_parameter_servers_on_the_containers_tensorflow(
    launch_cluster: Callable[..., dict[str, Launched]], tmp_path: Path
) -> None:
    """Chief, worker and ps train there."""
    processes = launch_cluster({"chief": 1, "worker": 1, "ps": 1}, *QUICK, python=OLD)
    assert processes["chief-0"].wait().code == 0, processes["chief-0"].err
    assert summary(tmp_path)["strategy"] == "parameter-server"


@needs_old
def test_library_tests_on_the_containers_python(tmp_path: Path) -> None:
    """The tests of flags, clusters, data and models pass there too."""
    tests = Path(__file__).parent
    names = ["cluster", "data", "models"]
    quick = "not resnet50 and not efficientnet and not mobilenet and not fine_tune and not imagenet"
    files = [str(tests / f"test_trainer_{name}.py") for name in names]
    ended = subprocess.run([OLD, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-c", os.devnull,
                            "--rootdir", str(tests), "-k", quick, *files], env=environment(tmp_path), capture_output=True, text=True,
                           timeout=800)  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
