"""What all tests share: options, the real gcloud, and a golden-file comparison."""

from __future__ import annotations

import difflib
import gc
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import tools
from tests.support.tools import need

if TYPE_CHECKING:
    from localvertex.server import RunningServer

HERE = Path(__file__).parent

# Tests start hundreds of processes in environments that they make; without compiled modules each would compile
# everything that it imports (google-cloud-aiplatform: 11 s of CPU instead of 4, measured 2026-11-21).
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False  # nor does each worker of each run rewrite the assertions of all test modules

# A shell starts what it runs in the background with Ctrl-C ignored, and every program that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# As most people have it: with it, what is left in a buffer at the end never fails a test.
os.environ.pop("PYTHONUNBUFFERED", None)

# No test depends on whether an engine and an image are on this machine; those of engines have a podman of their own.
os.environ["VERTEXRIG_ENGINE"] = "none"

# Threads of OpenMP wait by spinning: on cores that others use, a short training with PyTorch took 13.6 s of processor with
# two threads, and 2.9 with one; with XGBoost 7.3 and 1.2 (measured 2026-11-23).
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The collector would go through the objects of thousands of collected tests again and again, which takes a third of
# the collection's time: it starts when they are all there, and leaves them out.
gc.disable()

try:
    from hypothesis import settings
except ImportError:  # the trainer's tests on an older Python run without it
    pass
else:  # a loaded machine is not a failure: no test is judged by how long it took
    settings.register_profile("vertexrig", deadline=None, max_examples=tools.examples(40, 100))
    settings.load_profile("vertexrig")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept", action="store_true", help="write golden files instead of comparing them")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the trainer's tests first in the first worker's share, since each worker that gets one imports TensorFlow, and the
    long ones first in the shares of the others, beginning with those of pages, of make and of releases: a worker that is done
    steals from the ends, so the run ends with short ones.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    trainer = [item for item in items if HERE / "trainer" in item.path.parents]
    others = [item for item in items if HERE / "trainer" not in item.path.parents]
    whole = [item for item in others if item.get_closest_marker("whole")]
    longest = [item for item in whole if HERE / "repository" in item.path.parents]
    long = [item for item in whole if HERE / "repository" not in item.path.parents]
    short = iter(item for item in others if not item.get_closest_marker("whole"))
    ordered, shares = trainer, max(workers - 1, 1)
    for number in range(shares):
        ordered += itertools.islice(short, max((number + 1) * len(items) // workers - len(ordered), 0))
        ordered += longest[number::shares]
        ordered += long[number * len(long) // shares : (number + 1) * len(long) // shares]
    items[:] = [*ordered, *short]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    tools.end_forks()


@pytest.fixture(scope="session", autouse=True)
def _environments(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where packages are installed that many tests use: one folder for all workers of a run."""
    base = tmp_path_factory.getbasetemp()
    tools.environments((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "environments")


@pytest.fixture(scope="session")
def gcloud() -> str:
    """The real gcloud."""
    return need("gcloud")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A local Vertex that the tests of a module share."""
    from tests.support import clouds

    with clouds.cloud(tmp_path_factory.mktemp("cloud")) as running:
        yield running


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with a golden file, whole; `pytest --accept` writes it."""

    def compare(name: str, text: str) -> None:
        file = HERE / "golden" / name
        if request.config.getoption("--accept"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        expected = file.read_text(encoding="utf-8") if file.is_file() else ""
        if text != expected:
            lines = difflib.unified_diff(expected.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm="")
            pytest.fail("\n".join([*lines, "", "to accept: pytest --accept " + request.node.nodeid]), pytrace=False)

    return compare
