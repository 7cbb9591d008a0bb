"""`vertexrig init` finds the trainer that is there, and what it suggests next works as it stands."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path

import pytest

from tests.tools import vertexrig
from vertexrig.catalog import load
from vertexrig.checks.workspace import Workspace
from vertexrig.package.discover import trainer, trainers
from vertexrig.project import config
from vertexrig.render import starter

SCRIPT = """
import argparse
import hypertune
from tensorflow import keras

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--lr", type=float, default=1e-5)
parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
parser.add_argument("--hidden-units", type=int, default=64)
parser.add_argument("--model_dir", default="model")
parser.add_argument("--verbose", action="store_true")
parser.add_argument("--note", default="a: b # c")
args = parser.parse_args()
hypertune.HyperTune().report_hyperparameter_tuning_metric("loss", 0.5, 1)
hypertune.HyperTune().report_hyperparameter_tuning_metric("val_loss", 0.5, 1)
"""
PYPROJECT = (
    "[project]\nname = 'app'\nversion = '1'\ndependencies = ['tqdm']\n[build-system]\nrequires = ['hatchling']\n"
)
POETRY = "[tool.poetry]\nname = 'app'\nversion = '1'\n[tool.poetry.dependencies]\npython = '^3.10'\n"
SETUP = "from setuptools import find_packages, setup\nsetup(name='mine', version='1', packages=find_packages())\n"


TODAY, WHILE_THERE_WERE_ANY = date(2026, 11, 21), date(2026, 7, 10)


def made(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("files", "path", "module", "kind"),
    [
        ({"train.py": SCRIPT, "helpers.py": "x = 1\n"}, "train.py", "train", "script"),
        ({"fit_model.py": SCRIPT, "tools.py": "import os\n"}, "fit_model.py", "fit_model", "script"),
        ({"src/main.py": SCRIPT}, "src/main.py", "main", "script"),
        ({"trainer/__init__.py": "", "trainer/task.py": SCRIPT, "trainer/model.py": "import keras\n"}, "trainer", "trainer.task", "package"),
        ({"trainer/task.py": SCRIPT}, "trainer/task.py", "task", "script"),
        ({"setup.py": SETUP, "mine/__init__.py": "", "mine/train.py": SCRIPT, "tests/train.py": SCRIPT}, ".", "mine.train", "project"),
        ({"code/setup.py": SETUP, "code/mine/__init__.py": "", "code/mine/task.py": SCRIPT, "launch.py": "import tensorflow\n"}, "code", "mine.task", "project"),
        ({"pyproject.toml": PYPROJECT, "src/app/__init__.py": "", "src/app/train.py": SCRIPT}, ".", "app.train", "project"),
        ({"ml/pyproject.toml": POETRY, "ml/app/__init__.py": "", "ml/app/train.py": SCRIPT}, "ml", "app.train", "project"),
    ],
)  # fmt: skip
def test_each_kind_of_trainer_is_found_and_renders(
    tmp_path: Path, files: dict[str, str], path: str, module: str, kind: str
) -> None:
    """The likeliest trainer comes first, and the project file for it renders and checks without an error."""
    folder = made(tmp_path, files)
    found = trainers(folder)[0]
    assert (found.path, found.module, found.kind, found.framework) == (path, module, kind, "tf")
    (folder / "vertexrig.yaml").write_text(starter.starter(found, load(), TODAY).text)
    workspace = Workspace(config.load(folder / "vertexrig.yaml"))
    for name in ("cpu", "gpu", "sweep"):
        prepared = workspace.prepare(name)
        assert prepared.ok, prepared.findings
        assert "argument-and-parameter" not in {finding.id for finding in prepared.findings}


@pytest.mark.parametrize("root", ["src/", ""], ids=["src", "flat"])
def test_init_packages_a_trainer_that_a_pyproject_describes(tmp_path: Path, root: str) -> None:
    """init ends with commands and no excuse, and the package that they upload is built and holds the module."""
    made(tmp_path, {"pyproject.toml": PYPROJECT, f"{root}app/__init__.py": "", f"{root}app/train.py": SCRIPT})
    done = vertexrig("init", cwd=tmp_path)
    assert done.returncode == 0 and "next:" in done.stderr and "cannot be packaged" not in done.stderr, done.stderr
    done = vertexrig("package", cwd=tmp_path)
    assert done.returncode == 0 and Path(done.stdout.split()[0]).name.startswith("app-1+"), done.stderr


def test_flags_become_args_and_the_metric_a_sweep(tmp_path: Path) -> None:
    """Defaults are given as they are read, what a sweep varies is left to it, a loss is made small, the rest is named."""
    made(tmp_path, {"train.py": SCRIPT})
    begun = starter.starter(trainers(tmp_path)[0], load(), TODAY)
    (tmp_path / "vertexrig.yaml").write_text(begun.text)
    project = config.load(tmp_path / "vertexrig.yaml").project
    assert project.jobs["cpu"].args == {"epochs": 2, "note": "a: b # c"}
    study = project.sweeps["sweep"].study
    assert study is not None and dict(study.metrics) == {"val_loss": "MINIMIZE"}
    assert list(study.parameters) == ["lr", "hidden-units", "optimizer"]
    assert begun.notes[:2] == (
        "the sweep searches by val_loss; the trainer also reports loss",
        "left to the trainer's own defaults: model_dir, verbose",
    )


@pytest.mark.parametrize(
    ("source", "image"),
    [
        ("import torch\n", "pytorch-2.4"),
        ("import sklearn\nimport xgboost\n", "xgboost-2.1"),
        ("import keras\n", "tf-2.17"),
    ],
)
def test_the_image_goes_with_the_framework(tmp_path: Path, source: str, image: str) -> None:
    """While it is available, the newest prebuilt image of what is imported is named; without a metric there is no sweep,
    and that is said."""
    made(tmp_path, {"train.py": source})
    begun = starter.starter(trainers(tmp_path)[0], load(), WHILE_THERE_WERE_ANY)
    assert f"image: {image}\n" in begun.text and not begun.sweep and "sweeps:" not in begun.text
    assert "no metric reported through hypertune" in begun.notes[0] and "image: build" not in "".join(begun.notes)


@pytest.mark.parametrize(
    ("source", "framework"),
    [("import torch\n", "pytorch"), ("import xgboost\n", "xgboost"), ("import keras\n", "tf"), ("import os\n", "")],
)
def test_past_its_end_of_availability_no_prebuilt_image_is_proposed(
    tmp_path: Path, source: str, framework: str
) -> None:
    """Then the image is built, with the versions of this machine, and one line says why; its jobs render and check."""
    made(tmp_path, {"train.py": source})
    begun = starter.starter(trainers(tmp_path)[0], load(), TODAY)
    notes = [note for note in begun.notes if "image: build" in note]
    assert len(notes) == 1 and "passed its end of availability on 2026-07-" in notes[0]
    (tmp_path / "vertexrig.yaml").write_text(begun.text)
    workspace = Workspace(config.load(tmp_path / "vertexrig.yaml"))
    trainer_ = workspace.loaded.project.trainer
    assert trainer_.image == "build" and trainer_.build.framework.partition("-")[0] == framework
    assert trainer_.build.python == f"{sys.version_info[0]}.{sys.version_info[1]}"
    found = {finding.id for finding in workspace.prepare("cpu").findings}
    assert "image-availability" not in found and "image-lock" in found


@pytest.mark.parametrize("day", [TODAY, WHILE_THERE_WERE_ANY])
def test_a_project_file_without_a_trainer_names_an_image_that_there_is(tmp_path: Path, day: date) -> None:
    """The one for an empty folder has the same choice, by the same date."""
    (tmp_path / "vertexrig.yaml").write_text(starter.empty(load(), day).text)
    trainer_ = config.load(tmp_path / "vertexrig.yaml").project.trainer
    assert trainer_.image == ("build" if day == TODAY else "tf-2.17")


def test_init_says_what_it_found_and_never_overwrites(tmp_path: Path) -> None:
    """The likeliest and the others are named; a file that is there stays unless --force is given; --trainer chooses."""
    made(tmp_path, {"train.py": SCRIPT, "other.py": SCRIPT})
    done = vertexrig("init", cwd=tmp_path)
    assert done.returncode == 0 and "found train.py: a script" in done.stderr and "also found other.py" in done.stderr
    before = (tmp_path / "vertexrig.yaml").read_text()
    done = vertexrig("init", cwd=tmp_path)
    assert done.returncode == 2 and (tmp_path / "vertexrig.yaml").read_text() == before
    assert vertexrig("init", "--force", "--trainer", "other.py", cwd=tmp_path).returncode == 0
    assert 'path: "other.py"' in (tmp_path / "vertexrig.yaml").read_text()


def test_what_only_the_user_knows_is_asked_for(tmp_path: Path) -> None:
    """A required flag without a choice is named with the place to write it; what cannot be read is said."""
    made(tmp_path, {"train.py": SCRIPT.replace('"--note", default="a: b # c"', '"--data", required=True')})
    done = vertexrig("init", cwd=tmp_path)
    assert "the trainer requires --data: write it under args" in done.stderr
    assert "# data: the trainer requires it" in (tmp_path / "vertexrig.yaml").read_text()
    made(tmp_path, {"train.py": "import keras\ndef x(:\n"})
    done = vertexrig("init", "--force", cwd=tmp_path)
    assert done.returncode == 0 and "train.py" in done.stderr and "syntax error" in done.stderr
    assert "Traceback" not in done.stderr and "next:" not in done.stderr


def test_without_a_trainer_init_says_so(tmp_path: Path) -> None:
    """An empty folder gets a project file to edit, and the way to fill it in once there is a trainer."""
    done = vertexrig("init", cwd=tmp_path)
    assert done.returncode == 0 and "there is no trainer in" in done.stderr and "init --force" in done.stderr
    assert "next:" not in done.stderr
    done = vertexrig("init", "--force", "--trainer", "nowhere.py", cwd=tmp_path)
    assert done.returncode == 2 and "there is no file or folder nowhere.py" in done.stderr


def test_a_folder_that_is_no_trainer_is_refused(tmp_path: Path) -> None:
    """--trainer on something that holds no module says what it may name."""
    from vertexrig.errors import UsageError

    made(tmp_path, {"data/rows.csv": "1\n"})
    with pytest.raises(UsageError, match="is not a trainer"):
        trainer(tmp_path, tmp_path / "data")


def test_each_range_has_its_reason_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    """Ranges follow the defaults, with the reason above them; other metrics and further flags that a sweep could vary are named."""
    more = '"--momentum", type=float, default=0.9)\nparser.add_argument("--epochs"'
    (tmp_path / "train.py").write_text(SCRIPT.replace('"--epochs"', more, 1))
    made = starter.starter(trainer(tmp_path, tmp_path / "train.py"), load(), TODAY)
    assert (
        "      parameters:\n        lr:\n          # a tenth to ten times the default 1e-05, by factors\n" in made.text
    )
    assert "# half to twice the default 64\n" in made.text and "# a fraction below 1\n" in made.text
    said = "\n".join(made.notes)
    assert "searches by val_loss; the trainer also reports loss" in said
    assert "not in the sweep, though it could search over them: optimizer" in said
