"""A trainer that has not changed is not read twice, and a broken cache costs nothing but the reading."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.packages import TRAINERS
from tests.support.tools import INSTALLED, REPOSITORY
from vertexrig.package.cache import decoder, encode, read_cached
from vertexrig.trainer_source.reader import read
from vertexrig.trainer_source.trainer_model import SourcePlace, TrainerSource

FULL = TRAINERS / "full"
FOLDERS = [folder for folder in sorted(TRAINERS.iterdir()) if folder.is_dir()]


@pytest.mark.parametrize("folder", [REPOSITORY / "trainer_pkg", *FOLDERS], ids=lambda folder: folder.name)
def test_what_is_kept_is_what_was_read(folder: Path) -> None:
    """Every value that reading gives survives being written as JSON and read back."""
    found = read(folder, "trainer.task")
    assert decoder(TrainerSource)(json.loads(json.dumps(encode(found)))) == found


def test_a_change_of_the_sources_is_seen(tmp_path: Path) -> None:
    """The second reading comes from the cache; after a change of the sources, or of the module, it does not."""
    folder, store = tmp_path / "t", tmp_path / "cache"
    shutil.copytree(FULL, folder)
    first = read_cached(folder, "trainer.task", store)
    (file,) = store.iterdir()
    kept = json.loads(file.read_text())
    kept["abbreviations"] = not first.abbreviations  # a mark that only the cache has
    file.write_text(json.dumps(kept))
    assert read_cached(folder, "trainer.task", store).abbreviations != first.abbreviations
    (folder / "trainer" / "task.py").open("a").write("\n# changed\n")
    assert read_cached(folder, "trainer.task", store) == read(folder, "trainer.task")
    assert read_cached(folder, "trainer.model", store).module == "trainer.model"


def test_another_python_reads_anew(tmp_path: Path) -> None:
    """What one version of Python has read is not taken by another, which knows other syntax and other modules."""
    program = (
        "import sys; sys.version = sys.argv[2] or sys.version; from pathlib import Path; from vertexrig.package.cache import read_cached; "
        "read_cached(Path('.'), 'train', Path(sys.argv[1]))"
    )
    (tmp_path / "train.py").write_text("import tomllib\n")
    store = tmp_path / ".cache"
    for version, count in (("", 1), ("3.14.0 (main)", 2)):
        words = [sys.executable, "-c", program, str(store), version]
        subprocess.run(words, cwd=tmp_path, timeout=60, check=True, env={**os.environ, "PYTHONPATH": str(REPOSITORY)})
        assert len(list(store.iterdir())) == count


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainerSource]:
    """A cache with a trainer, and what it keeps."""
    store = tmp_path_factory.mktemp("kept")
    return store, read_cached(FULL, "trainer.task", store)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "{}", '{"module": 1}', "[" * 10_000])
def test_a_broken_cache_is_read_anew(kept: tuple[Path, TrainerSource], tmp_path: Path, content: str) -> None:
    """Whatever the cache holds, the answer is that of reading the sources."""
    store = tmp_path / "cache"
    shutil.copytree(kept[0], store)
    (file,) = store.iterdir()
    file.write_text(content)
    assert read_cached(FULL, "trainer.task", store) == kept[1]


def test_a_cache_that_cannot_be_written_costs_the_reading(kept: tuple[Path, TrainerSource], tmp_path: Path) -> None:
    """A file in the place of the cache's folder: the sources are read."""
    (tmp_path / "file").write_text("")
    assert read_cached(FULL, "trainer.task", tmp_path / "file") == kept[1]


def test_a_kept_source_needs_no_parser(kept: tuple[Path, TrainerSource]) -> None:
    """With the cache warm the modules that parse are not loaded: that is what makes it fast."""
    program = (
        "import sys; from pathlib import Path; from vertexrig.package.cache import read_cached; "
        "read_cached(Path(sys.argv[1]), 'trainer.task', Path(sys.argv[2])); "
        "sys.exit('vertexrig.trainer_source.reader' in sys.modules)"
    )
    words = [sys.executable, "-c", program, str(FULL), str(kept[0])]
    assert subprocess.run(words, cwd=INSTALLED, timeout=60).returncode == 0


def test_a_change_behind_a_link_is_seen(tmp_path: Path) -> None:
    """A linked folder inside the checkout is part of the trainer: its change is seen. A link out of the checkout does no harm, and with
    a link to a folder around the trainer nothing is kept.
    """
    (tmp_path / ".git").mkdir()
    folder, common, store = tmp_path / "t", tmp_path / "common", tmp_path / "cache"
    folder.mkdir()
    common.mkdir()
    (folder / "train.py").write_text(
        "import argparse\nfrom common.flags import add\np = argparse.ArgumentParser()\nadd(p)\np.parse_args()\n"
    )
    (common / "__init__.py").write_text("")
    (common / "flags.py").write_text("def add(p):\n    p.add_argument('--first')\n")
    for name, target in {"common": "../common", "again": "../common", "self": ".", "out": "/usr"}.items():
        (folder / name).symlink_to(target)
    assert read_cached(folder, "train", store).flag("first") is not None
    before = len(list(store.iterdir()))
    assert read_cached(folder, "train", store).flag("first") is not None and len(list(store.iterdir())) == before == 1
    (common / "flags.py").write_text("def add(p):\n    p.add_argument('--second')\n")
    assert read_cached(folder, "train", store) == read(folder, "train")
    assert read_cached(folder, "train", store).flag("second") is not None
    (folder / "up").symlink_to("..")
    before = len(list(store.iterdir()))
    assert read_cached(folder, "train", store).flag("second") is not None and len(list(store.iterdir())) == before


def test_a_place_comes_back_as_a_place() -> None:
    """A dataclass in a field that may be None is decoded as that class."""
    found = TrainerSource(module="t", drops_args=SourcePlace("t.py", 3))
    assert decoder(TrainerSource)(json.loads(json.dumps(encode(found)))) == found
