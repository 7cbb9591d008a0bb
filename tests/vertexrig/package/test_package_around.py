"""A single script, or the folder of a package, as trainer: the package around it holds what it needs and no more."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.support.packages import lay_out
from vertexrig.errors import PackageError
from vertexrig.package.builder import build
from vertexrig.package.sources import gather, identify

SCRIPT = "import argparse\nimport helpers\nfrom data import rows\nimport tensorflow as tf\nimport sklearn\n"


def held(archive: Path) -> set[str]:
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    return {name for name in names if ".egg-info" not in name and name not in {"PKG-INFO", "setup.cfg", "setup.py"}}


def test_a_script_with_its_neighbours(tmp_path: Path) -> None:
    """The script, the modules it imports and their packages are in it; other scripts, data and the project file are not."""
    files = {
        "train.py": SCRIPT, "helpers.py": "x = 1\n", "data/rows.py": "y = 2\n", "other.py": "z = 3\n",
        "rows.csv": "1\n", "vertexrig.yaml": "project: p\n",
    }  # fmt: skip
    folder = lay_out(tmp_path / "work", files)
    built = build(folder / "train.py", folder / "build/packages", tf_version="2.17", module="train")
    assert held(built.path) == {"train.py", "helpers.py", "data/__init__.py", "data/rows.py"}
    assert built.verified == ("train",) and built.supplied == ("tensorflow",) and built.declared == ("sklearn",)
    for name in ("other.py", "rows.csv", "vertexrig.yaml"):
        (folder / name).write_text("changed\n")
    assert identify(folder / "train.py", tf_version="2.17") == built.id
    (folder / "helpers.py").write_text("x = 2\n")
    assert identify(folder / "train.py", tf_version="2.17") != built.id


def test_a_package_folder_with_its_data(tmp_path: Path) -> None:
    """All files of the folder are in it, tests are not, and a folder of modules without __init__.py gets one."""
    files = {
        "trainer/__init__.py": "", "trainer/task.py": "from trainer.nets import small\nimport keras\n",
        "trainer/nets/small.py": "x = 1\n", "trainer/labels.txt": "a\n", "trainer/tests/test_task.py": "", "loose.py": "",
    }  # fmt: skip
    folder = lay_out(tmp_path / "work", files)
    built = build(folder / "trainer", folder / "build/packages", tf_version="2.17", module="trainer.task")
    names = {"__init__.py", "task.py", "nets/__init__.py", "nets/small.py", "labels.txt"}
    assert held(built.path) == {f"trainer/{name}" for name in names}


def test_a_script_requires_what_no_image_brings(tmp_path: Path) -> None:
    """Without a requirements.txt, what a script imports is required but for what some prebuilt image has: LightGBM is in none."""
    folder = lay_out(
        tmp_path, {"train.py": "import hypertune, joblib, lightgbm, sklearn\nfrom omegaconf import OmegaConf\n"}
    )
    assert [one.name for one in gather(folder / "train.py", None).requirements] == ["lightgbm", "omegaconf"]


def test_requirements_beside_a_script_hold_without_what_the_image_brings(tmp_path: Path) -> None:
    """Tensorflow is left out with a warning, tf-keras is held to the image, options of pip are no requirements."""
    text = "# what it takes\n-r more.txt\ntensorflow==2.19.0\ntf-keras\nnltk>=3 # words\n"
    folder = lay_out(tmp_path, {"train.py": "import nltk\n", "requirements.txt": text})
    found = gather(folder / "train.py", "2.17")
    assert [(one.name, one.pin) for one in found.requirements] == [("tf-keras", ""), ("nltk", ">=3")]
    assert b"install_requires = \n\ttf-keras~=2.17.0\n\tnltk>=3\n" in found.new_bytes["setup.cfg"]
    assert found.warnings == ("requirements.txt:3: tensorflow==2.19.0 is left out: the image brings its own",)


def test_requirements_with_hashes_are_the_packages(tmp_path: Path) -> None:
    """Of what `pip-compile --generate-hashes` writes, each requirement is in Requires-Dist, without its hashes."""
    hashes = "    --hash=sha256:0a \\\n    --hash=sha256:0b\n    # via -r in.txt\n"
    text = f"tqdm==4.67.1 \\\n{hashes}nltk==3.9 ; python_version >= '3.9' \\\n{hashes}joblib==1.4 --hash=sha256:0c\n"
    folder = lay_out(tmp_path / "work", {"train.py": "import tqdm\n", "requirements.txt": text})
    built = build(folder / "train.py", tmp_path / "out", tf_version="2.17", module="train")
    with tarfile.open(built.path) as packed:
        info = next(name for name in packed.getnames() if name.endswith(".egg-info/requires.txt"))
        content = packed.extractfile(info)
        assert content is not None
        lines = content.read().decode().split()
    assert lines == ["tqdm==4.67.1", "joblib==1.4", "[:python_version", ">=", '"3.9"]', "nltk==3.9"]


@pytest.mark.parametrize(
    ("files", "trainer", "module", "words"),
    [
        ({"train.py": "def x(:\n"}, "train.py", "train", "train.py:1: syntax error"),
        ({"train.py": "import trains.more\n", "trains/other.py": ""}, "train.py", "train", "trains.more"),
        ({"train.py": "x = 1\n"}, "train.py", "task", "does not hold the module 'task'"),
    ],
)
def test_what_cannot_be_packaged_is_refused(
    tmp_path: Path, files: dict[str, str], trainer: str, module: str, words: str
) -> None:
    """A script that cannot be read, that imports what is not there, or another module's name: an error with the place."""
    folder = lay_out(tmp_path / "work", files)
    with pytest.raises(PackageError, match=words):
        build(folder / trainer, tmp_path / "out", tf_version="2.17", module=module)
