"""Building a trainer's package: what is refused, what a clean import is, and what is only warned of."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.packages import PLAIN, SETUP, lay_out, refused, small, verified
from vertexrig.errors import PackageError
from vertexrig.package.builder import build
from vertexrig.package.sources import gather
from vertexrig.trainer_source.reader import read

# refusals


def test_folders_that_are_no_trainer_are_refused(tmp_path: Path) -> None:
    """No folder, nothing in it, a description of nothing, a file that is not TOML: each says what is wrong."""
    out = tmp_path / "out"
    assert "not a folder" in refused(tmp_path / "nowhere", out)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no setup.py" in refused(empty, out) and "trainer/task.py" in refused(empty, out)
    bare = lay_out(tmp_path / "bare", {"trainer/task.py": "x = 1\n", "src/vision/task.py": "x = 1\n"})
    assert "Add an empty __init__.py" in refused(bare, out) and "(vision/, trainer/)" in refused(bare, out)
    (empty / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert "without a package or module" in refused(empty, out)
    (empty / "pyproject.toml").write_text("[project\n")
    assert "not valid TOML" in refused(empty, out)


@pytest.mark.parametrize(
    ("task", "files", "words"),
    [
        ("def f(:\n", {}, ["trainer/task.py:1", "syntax error"]),
        (
            "from trainer import helpers\n",
            {},
            ["trainer/task.py:1", "trainer.helpers", "neither a module nor a name in the package"],
        ),
        ("def f():\n    import trainer.later\n", {}, ["trainer/task.py:2", "trainer.later"]),
        ("import matplotlib.pyplot\n", {}, ["trainer/task.py:1", "matplotlib", "requirements.txt"]),
        ("def f():\n    import yaml\n", {}, ["trainer/task.py:2", "Add pyyaml"]),
        ("import tf_keras\n", {}, ["Add tf-keras"]),
        ("import model\n", {"trainer/model.py": ""}, ["trainer/task.py:1", "`from trainer import model`"]),
        (
            "from layers import Dense\n",
            {"trainer/layers/__init__.py": "", "requirements.txt": "some-unknown-distribution\n"},
            ["trainer/task.py:1", "only as trainer.layers"],
        ),
        ("x = undefined\n", {}, ["trainer/task.py:1", "'undefined'", "never defined"]),
        (
            "from trainer.model import Net\n",
            {"trainer/model.py": "net = 1\n"},
            ["trainer/task.py:1", "trainer.model.Net"],
        ),
        pytest.param(
            "import tomllib\n",
            {},
            ["trainer/task.py:1", "Python 3.11"],
            marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 does not know the module either"),
        ),
        (
            "from trainer import a\n",
            {"trainer/a.py": "import trainer.task\nx = 1 +\n"},
            ["trainer/a.py:2", "syntax error"],
        ),
    ],
)
def test_a_trainer_that_would_not_import_is_refused(
    tmp_path: Path, task: str, files: dict[str, str], words: list[str]
) -> None:
    """Each failure names the trainer's own file and line and what to do."""
    with pytest.raises(PackageError) as caught:
        verified(small(tmp_path / "f", task, files=files))
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize(
    ("setup", "task", "files", "words"),
    [
        (PLAIN, "import utils\n", {"utils.py": ""}, ["utils", "not packaged", "py_modules"]),
        (PLAIN, "from trainer.sub import x\n", {"trainer/sub/x.py": ""}, ["trainer/sub/ has no __init__.py"]),
        (PLAIN, "from trainer.tests import x\n", {"trainer/tests/__init__.py": "x = 1"}, ["trainer.tests", "left out"]),
        (
            "from setuptools import setup\nprint()\n1 / 0\nsetup(name='t', version='1')\n",
            "",
            {},
            ["setup.py:3", "ZeroDivisionError"],
        ),
        ("from setuptools import setup\nsetup(name='t', version='1', packages=['nope'])\n", "", {}, ["nope"]),
        ("x = 1\n", "", {}, ["that it calls `setup()`"]),
        ("def f(:\n", "", {}, ["setup.py:1", "syntax error"]),
        ("import sys\nsys.exit('stop')\n", "", {}, ["stop"]),
        (
            "print()\n" + SETUP.format(more=", install_requires=open('requirements.txt').read().split()"),
            "",
            {"requirements.txt": "numpy\n"},
            ["include requirements.txt", "MANIFEST.in"],
        ),
    ],
)
def test_a_folder_that_makes_no_package_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setup: str, task: str, files: dict[str, str], words: list[str]
) -> None:
    """Each failure names the trainer's own file and line and what to do, and leaves nothing behind."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    message = refused(small(tmp_path / "f", task, setup=setup, files=files), tmp_path / "out", trusted=True)
    assert not [word for word in words if word not in message], message


@pytest.mark.parametrize("init", [True, False])
@pytest.mark.parametrize("requirements", [None, "numpy\n"])
def test_a_script_that_imports_the_package_it_lies_in_is_refused(
    tmp_path: Path, init: bool, requirements: str | None
) -> None:
    """The package's own folder is not taken for a distribution of that name, which on PyPI is a stranger's."""
    files = {"task.py": "import trainer.data\n", "data.py": ""}
    if init:
        files["__init__.py"] = ""
    if requirements:
        files["requirements.txt"] = requirements
    folder = lay_out(tmp_path / "trainer", files)
    message = refused(folder / "task.py", tmp_path / "out", tf_version="2.17")
    path = "trainer" if init else "."
    assert f"Write the project file into {tmp_path}, with trainer: {{path: {path}, module: trainer.MODULE}}" in message
    assert "Add trainer to" not in message


def test_a_folder_with_the_name_of_a_library_does_not_hide_the_library(tmp_path: Path) -> None:
    """A script in a folder named matplotlib may import matplotlib, which its package then requires."""
    folder = lay_out(tmp_path / "matplotlib", {"plot.py": "import matplotlib.pyplot\n"})
    assert [one.name for one in gather(folder / "plot.py", "2.17").requirements] == ["matplotlib"]


def test_a_package_without_init_is_refused(tmp_path: Path) -> None:
    """A missing `__init__.py` is named when find_packages passes the folder by; a listed folder is installed all the same."""
    folder = small(tmp_path / "f")
    (folder / "trainer" / "__init__.py").unlink()
    assert "trainer/ has no __init__.py" in refused(folder, tmp_path / "out")
    (folder / "setup.py").write_text(PLAIN.replace("find_packages()", "['trainer']"))
    assert build(folder, tmp_path / "out").verified == ("trainer.task",)


def test_a_module_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A wrong or malformed module name is told before anything is written."""
    folder = small(tmp_path / "f")
    assert "trainer.tsk" in refused(folder, tmp_path / "out", module="trainer.tsk")
    assert "not a dotted Python name" in refused(folder, tmp_path / "out", module="trainer/task.py")
    assert "not of the form" in refused(folder, tmp_path / "out", tf_version="latest")


# what is accepted


@pytest.mark.parametrize(
    "task",
    [
        "import tensorflow as tf\nclass M(tf.keras.Model):\n    def __init__(self):\n        super().__init__()\n",
        "import abc\nimport tensorflow as tf\nclass M(tf.keras.Model, tf.Module, abc.ABC):\n    pass\n",
        "import tensorflow as tf\n@tf.function\ndef f(x): return x\n@tf.function(jit_compile=True)\ndef g(x): return x\nassert f.__name__ + g.__name__ == 'fg'\n",
        "import tensorflow as tf\nif tuple(map(int, tf.__version__.split('.')[:2])) < (2, 9): raise SystemExit\n",
        "import numpy as np\nX = np.zeros(3)[0] * 2 + 1\nY = -X\nZ = {X: 1}\nassert isinstance(1, np.ndarray) is False\n",
        "from typing import Optional\nimport tensorflow as tf\nT = Optional[tf.Tensor]\nU = tf.Tensor | None\ndef f(x: tf.Tensor = tf.constant(1)): ...\n",
        "import google.cloud.storage\nfrom google.cloud import storage\nc = storage.Client\n",
        "import dataclasses, enum, numpy as np\n@dataclasses.dataclass\nclass C:\n    a: int = 1\n    b: float = np.float32(1)\n",
        "try:\n    import tomllib, notthere\nexcept ImportError:\n    notthere = None\n",
        "import os\nd = os.environ.get('AIP_MODEL_DIR', '/tmp/m')\n",
        "from . import task as me\n",
        "import os\nrank = int(os.environ['RANK'])\n",
        "import numpy as np\na, b = np.split(np.zeros(4), 2)\n",
        "from tensorflow.keras.layers import *\nclass L(Dense): pass\nx = Dense(1)\n",
        "try:\n    text = unicode\nexcept NameError:\n    text = str\n",
        "import sys\nsys.exit(0)\n",
        "open('/no/such/file')\n",
        "squares = [n * n for n in range(3)]\nlater = lambda: missing\n",
    ],
)  # fmt: skip
def test_trainers_that_work_in_the_image_are_accepted(tmp_path: Path, task: str) -> None:
    """Module-level code that is fine where it will run is accepted here, where neither its packages nor its variables are."""
    assert verified(small(tmp_path / "f", task)).warnings == ()


def test_a_build_runs_nothing_of_the_trainer(tmp_path: Path) -> None:
    """A module that trains as soon as it is imported, or run, is packaged like any other: read, and not run."""
    marker = tmp_path / "trained"
    code = "{0}\ndef main():\n    {0}\nmain()\nif __name__ == '__main__':\n    {0}\n"
    made = build(small(tmp_path / "f", code.format(f"open({str(marker)!r}, 'w')")), tmp_path / "out")
    assert not marker.exists() and made.warnings == () and made.verified == ("trainer.task",)


def test_the_callers_environment_does_not_leak_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that only PYTHONPATH would find is missing in the clean environment."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "hidden_helper.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    monkeypatch.syspath_prepend(tmp_path / "lib")
    with pytest.raises(PackageError, match="hidden_helper"):
        verified(small(tmp_path / "f", "import hidden_helper\n"))


def test_a_source_layout_is_packaged(tmp_path: Path) -> None:
    """`package_dir={'': 'src'}` works as it does for setuptools."""
    folder = tmp_path / "f"
    (folder / "src" / "app").mkdir(parents=True)
    (folder / "src" / "app" / "__init__.py").write_text("")
    (folder / "src" / "app" / "__main__.py").write_text(
        "from app.core import run\nif __name__ == '__main__':\n    run()\n"
    )
    (folder / "src" / "app" / "core.py").write_text("def run(): ...\n")
    (folder / "setup.py").write_text(
        "from setuptools import find_packages, setup\nsetup(name='app', version='2', package_dir={'': 'src'}, packages=find_packages('src'))\n"
    )
    made = build(folder, tmp_path / "out", module="app")
    assert made.verified == ("app",) and read(made.path, "app").problems == ()
