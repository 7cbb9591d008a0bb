"""Small trainer folders for tests, and what becomes of them as packages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from vertexrig.errors import PackageError
from vertexrig.package import locking
from vertexrig.package.builder import build
from vertexrig.package.image import identify_image
from vertexrig.package.imports import Verified
from vertexrig.package.sources import gather
from vertexrig.package.verify import verify
from vertexrig.project.config import Loaded
from vertexrig.trainer_source.reader import read
from vertexrig.trainer_source.trainer_model import TrainerSource

TRAINERS = Path(__file__).parents[1] / "trainers"
SETUP = "from setuptools import find_packages, setup\nsetup(name='trainer', version='0.1.0', packages=find_packages(){more})\n"
PARSER = "import argparse\nparser = argparse.ArgumentParser()\n"
PLAIN = SETUP.format(more="")


def lay_out(folder: Path, files: Mapping[str, str]) -> Path:
    """The folder with these files, by their paths in it."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def small(folder: Path, task: str = "x = 1\n", *, setup: str = PLAIN, files: Mapping[str, str] | None = None) -> Path:
    """A trainer folder of one module, and more files by their path."""
    base = {"setup.py": setup, "trainer/__init__.py": "", "trainer/task.py": task}
    return lay_out(folder, {**base, **(files or {})})


def trainer_of(folder: Path, source: str, **others: str) -> TrainerSource:
    """A trainer folder written out and read: `source` as trainer/task.py, others as trainer/NAME.py."""
    package = folder / "trainer"
    package.mkdir(parents=True, exist_ok=True)
    for name, text in {"__init__": "", "task": source, **others}.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")
    return read(folder, "trainer.task")


@cache
def trainer_with(source: str, **others: str) -> TrainerSource:
    """What is read of such a trainer; each is read once."""
    with TemporaryDirectory() as folder:
        return trainer_of(Path(folder), source, **others)


def verified(folder: Path) -> Verified:
    """Verification of a folder as if it were installed: what `build` does after pip."""
    requirements = gather(folder, "2.17").requirements
    return verify(folder, folder, "trainer.task", requirements, "2.17")


def refused(folder: Path, out: Path, **options: object) -> str:
    """The message a build ends with; nothing may be left behind."""
    with pytest.raises(PackageError) as caught:
        build(folder, out, **options)  # type: ignore[arg-type]
    assert not out.exists()
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


def lock_nothing(loaded: Loaded, kind: str) -> None:
    """A current lock file, without uv and without a network, for the image of a trainer that requires nothing."""
    made = identify_image(loaded, kind)
    wheel = locking.wheel_of(loaded).wheel
    assert wheel is not None
    lines = locking.inputs(loaded, kind, wheel)
    assert lines == []
    made.lock.parent.mkdir(exist_ok=True)
    made.lock.write_text(locking.heading(made, lines))
