"""The source distribution: what is in it, and that it runs on the Python and TensorFlow of the prebuilt containers."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.forks import Forks
from tests.trainer.conftest import PACKAGE, QUICK, Launched, environment, summary

OLD = os.environ.get("TRAINER_OLD_PYTHON", "")
needs_old = pytest.mark.skipif(not OLD, reason="TRAINER_OLD_PYTHON names no Python 3.10 with TensorFlow 2.17; "
                                               "tests/trainer/old_python.sh makes one")  # fmt: skip


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, built from a copy."""
    copy = tmp_path_factory.mktemp("sdist") / "source"
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


@pytest.fixture(scope="module")
def forks(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """What has imported the container's TensorFlow, and finds the trainer where the container's pip has installed it."""
    place = tmp_path_factory.mktemp("installed")
    subprocess.run([OLD, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(place),
                    str(sdist)], check=True, timeout=400)  # fmt: skip
    env = environment(tmp_path_factory.mktemp("forks"), {"PYTHONPATH": str(place)})
    with contextlib.closing(Forks(env, python=OLD)) as made:
        yield made


@needs_old
@pytest.mark.parametrize(
    ("roles", "strategy"),
    [({"chief": 1, "worker": 1}, "multi-worker"), ({"chief": 1, "worker": 1, "ps": 1}, "parameter-server")],
    ids=["multi-worker", "parameter-server"],
)
def test_sdist_installs_and_trains_on_the_containers_python(
    forks: Forks,
    launch_cluster: Callable[..., dict[str, Launched]],
    tmp_path: Path,
    roles: dict[str, int],
    strategy: str,
) -> None:
    """Pip installs the sdist for Python 3.10, and a cluster of it trains there."""
    processes = launch_cluster(roles, *QUICK, "--epochs=5", python=OLD, env={"PYTHONPATH": forks.env["PYTHONPATH"]})
    for name, process in processes.items():
        if strategy == "multi-worker" or name == "chief-0":  # the others serve until the service ends them
            assert process.wait().code == 0, process.err
    told = summary(tmp_path)
    assert told["strategy"] == strategy and told["processes"] == 2
    assert told["accuracy"] >= 0.9 and told["tensorflow"].startswith("2.17")


@needs_old
def test_library_tests_on_the_containers_python(forks: Forks, tmp_path: Path) -> None:
    """The tests of flags, clusters, data and models pass there too."""
    tests = Path(__file__).parent
    names = ["cluster", "data", "models"]
    quick = "not resnet50 and not efficientnet"
    words = [
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "-c",
        os.devnull,
        "--rootdir",
        str(tests),
        "-k",
        quick,
    ]
    files = [str(tests / f"test_trainer_{name}.py") for name in names]
    env = environment(tmp_path, {"PYTHONPATH": forks.env["PYTHONPATH"]})
    ended = Launched([OLD, "-m", *words, *files], env, tmp_path, "tests", forks).wait(800)
    assert ended.code == 0, ended.out[-4000:] + ended.err[-2000:]
