"""`vertexrig init` finds the trainer that is there, and what it suggests next works as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.packages import lay_out
from tests.support.tools import typed
from vertexrig.catalog import load
from vertexrig.checks.images import AVAILABILITY
from vertexrig.finding import Severity
from vertexrig.package.discover import trainer, trainers
from vertexrig.package.sources import gather
from vertexrig.project import config
from vertexrig.render import starter
from vertexrig.workspace import Workspace

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
    folder = lay_out(tmp_path, files)
    found = trainers(folder)[0]
    assert (found.path, found.module, found.kind, found.framework) == (path, module, kind, "tf")
    (folder / "vertexrig.yaml").write_text(starter.starter(found, load()).text)
    workspace = Workspace(config.load(folder / "vertexrig.yaml"))
    for name in ("cpu", "gpu", "sweep"):
        prepared = workspace.prepare(name)
        assert prepared.ok, prepared.findings
        assert "argument-and-parameter" not in {finding.id for finding in prepared.findings}


@pytest.mark.parametrize("root", ["src/", ""], ids=["src", "flat"])
def test_init_packages_a_trainer_that_a_pyproject_describes(tmp_path: Path, root: str) -> None:
    """Init ends with commands and no excuse, and the package that they upload is built and holds the module."""
    lay_out(tmp_path, {"pyproject.toml": PYPROJECT, f"{root}app/__init__.py": "", f"{root}app/train.py": SCRIPT})
    done = typed("init", cwd=tmp_path)
    assert done.exit_code == 0 and "next:" in done.stderr and "cannot be packaged" not in done.stderr, done.stderr
    done = typed("package", cwd=tmp_path)
    assert done.exit_code == 0 and Path(done.stdout.split()[0]).name.startswith("app-1+"), done.stderr


def test_flags_become_args_and_the_metric_a_sweep(tmp_path: Path) -> None:
    """Defaults are given as they are read, what a sweep varies is left to it, a loss is made small, the rest is named."""
    lay_out(tmp_path, {"train.py": SCRIPT})
    begun = starter.starter(trainers(tmp_path)[0], load())
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
    ("source", "framework", "image"),
    [
        ("import torch\n", "pytorch", "pytorch-xla.2-4.py310"),
        ("import sklearn\nimport xgboost\n", "xgboost", "xgboost-cpu.2-1"),
        ("import sklearn\n", "sklearn", "sklearn-cpu.1-6"),
        ("import keras\n", "tf", "tf-cpu.2-17.py310"),
    ],
)
def test_the_image_is_prebuilt_or_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, framework: str, image: str
) -> None:
    """The job runs Google's newest image of what is imported and, with IMAGE=build, one made here; without a metric there
    is no sweep, and that is said.
    """
    lay_out(tmp_path, {"train.py": source})
    begun = starter.starter(trainers(tmp_path)[0], load())
    assert not begun.sweep and "sweeps:" not in begun.text and "no metric reported through hypertune" in begun.notes[0]
    (tmp_path / "vertexrig.yaml").write_text(begun.text)
    monkeypatch.delenv("IMAGE", raising=False)
    prepared = Workspace(config.load(tmp_path / "vertexrig.yaml")).prepare("cpu")
    assert f"/{image}:latest" in prepared.text and prepared.ok
    assert {one.severity for one in prepared.findings if one.id == AVAILABILITY} == {Severity.INFO}
    monkeypatch.setenv("IMAGE", "build")
    workspace = Workspace(config.load(tmp_path / "vertexrig.yaml"))
    build = workspace.loaded.project.trainer.build
    assert build.framework.partition("-")[0] == framework
    assert build.python == f"{sys.version_info[0]}.{sys.version_info[1]}"
    found = {finding.id for finding in workspace.prepare("cpu").findings}
    assert AVAILABILITY not in found and "image-lock" in found


def test_a_trainer_without_a_framework_runs_on_tensorflow_s_image(tmp_path: Path) -> None:
    """It has most packages, and the trainer's requirements are installed there; an image made here has no TensorFlow."""
    lay_out(tmp_path, {"train.py": "import numpy\n"})
    (tmp_path / "vertexrig.yaml").write_text(starter.starter(trainers(tmp_path)[0], load()).text)
    own = config.load(tmp_path / "vertexrig.yaml", environ={"IMAGE": "build"}).project.trainer
    prebuilt = config.load(tmp_path / "vertexrig.yaml", environ={})
    assert (own.image, own.build.framework) == ("build", "") and prebuilt.project.trainer.image == "tf-2.17"
    assert "tf-cpu.2-17.py310" in Workspace(prebuilt).renderer.render("cpu").text


def test_a_project_file_without_a_trainer_names_the_same_image(tmp_path: Path) -> None:
    """The one for an empty folder has the same choice."""
    (tmp_path / "vertexrig.yaml").write_text(starter.empty(load()).text)
    loaded = [config.load(tmp_path / "vertexrig.yaml", environ=env) for env in ({}, {"IMAGE": "build"})]
    assert [one.project.trainer.image for one in loaded] == ["prebuilt", "build"]


@pytest.mark.parametrize("where", [".", "trainer", "elsewhere"])
def test_a_package_without_requirements_is_described_and_checked_from_anywhere(tmp_path: Path, where: str) -> None:
    """The folder of a package without requirements.txt is read alike by a path from above it, from inside and from beside."""
    lay_out(
        tmp_path, {"trainer/__init__.py": "", "trainer/task.py": SCRIPT, "trainer/model.py": "import keras, tqdm\n"}
    )
    here = tmp_path / where
    here.mkdir(exist_ok=True)
    # what a path may lead to is the checkout
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    named = () if where == "." else ("--trainer", os.path.relpath(tmp_path / "trainer", here))
    begun = typed("init", *named, cwd=here)
    assert begun.exit_code == 0, begun.stderr
    (here / "task.py").write_text("import neither\n") if where == "elsewhere" else None
    assert typed("check", cwd=here).exit_code == 0
    assert [one.name for one in gather(Path(os.path.relpath(tmp_path / "trainer")), "2.17").requirements] == ["tqdm"]


@pytest.mark.parametrize(
    "script",
    [
        """import click
@click.command()
@click.option("--output", envvar="AIP_MODEL_DIR", default="./model")
@click.option("--target", envvar="AIP_CHECKPOINT_DIR", required=True)
@click.option("--epochs", default=2)
def main(output, target, epochs): print(output)
main()
""",
        """import typer
def main(epochs: int = 2, output: str = typer.Option("./model", envvar="AIP_MODEL_DIR"), target: str = typer.Option(..., envvar="AIP_CHECKPOINT_DIR")): print(output)
typer.run(main)
""",
    ],
)
def test_a_flag_that_a_variable_gives_is_not_fixed(tmp_path: Path, script: str) -> None:
    """What click and typer take from AIP_MODEL_DIR gets no value and is not asked for, or the model would be lost."""
    lay_out(tmp_path, {"train.py": script})
    assert typed("init", cwd=tmp_path).exit_code == 0
    assert config.load(tmp_path / "vertexrig.yaml").project.jobs["cpu"].args == {"epochs": 2}
    assert typed("check", "cpu", cwd=tmp_path).exit_code == 0


def test_init_says_what_it_found_and_never_overwrites(tmp_path: Path) -> None:
    """The likeliest and the others are named; a file that is there stays unless --force is given; --trainer chooses."""
    lay_out(tmp_path, {"train.py": SCRIPT, "other.py": SCRIPT})
    done = typed("init", cwd=tmp_path)
    assert done.exit_code == 0 and "found train.py: a script" in done.stderr and "also found other.py" in done.stderr
    before = (tmp_path / "vertexrig.yaml").read_text()
    done = typed("init", cwd=tmp_path)
    assert done.exit_code == 2 and (tmp_path / "vertexrig.yaml").read_text() == before
    assert typed("init", "--force", "--trainer", "other.py", cwd=tmp_path).exit_code == 0
    assert 'path: "other.py"' in (tmp_path / "vertexrig.yaml").read_text()


def test_what_only_the_user_knows_is_asked_for(tmp_path: Path) -> None:
    """A required flag without a choice is named with the place to write it; what cannot be read is said."""
    lay_out(tmp_path, {"train.py": SCRIPT.replace('"--note", default="a: b # c"', '"--data", required=True')})
    done = typed("init", cwd=tmp_path)
    assert "the trainer requires --data: write it under args" in done.stderr
    assert "# data: the trainer requires it" in (tmp_path / "vertexrig.yaml").read_text()
    lay_out(tmp_path, {"train.py": "import keras\ndef x(:\n"})
    done = typed("init", "--force", cwd=tmp_path)
    assert done.exit_code == 0 and "train.py" in done.stderr and "syntax error" in done.stderr
    assert "Traceback" not in done.stderr and "next:" not in done.stderr


def test_without_a_trainer_init_says_so(tmp_path: Path) -> None:
    """An empty folder gets a project file to edit, and the way to fill it in once there is a trainer."""
    done = typed("init", cwd=tmp_path)
    assert done.exit_code == 0 and "there is no trainer in" in done.stderr and "init --force" in done.stderr
    assert "next:" not in done.stderr
    done = typed("init", "--force", "--trainer", "nowhere.py", cwd=tmp_path)
    assert done.exit_code == 2 and "there is no file or folder nowhere.py" in done.stderr


def test_a_notebook_alone_is_named_with_what_makes_a_script_of_it(tmp_path: Path) -> None:
    """Where a folder has a notebook and no script, init prints the command that makes the script."""
    done = typed("init", cwd=lay_out(tmp_path, {"my digits.ipynb": "{}"}))
    assert (
        "`jupyter nbconvert --to script 'my digits.ipynb' --output my_digits` makes my_digits.py of it" in done.stderr
    )


def test_a_jax_trainer_gets_an_image_of_its_own(tmp_path: Path) -> None:
    """No prebuilt image has JAX, so init builds one with JAX for the machine, and TensorFlow's goes first where both are imported."""
    begun = starter.starter(trainers(lay_out(tmp_path, {"train.py": "import optax\nimport jax\n"}))[0], load())
    (tmp_path / "vertexrig.yaml").write_text(begun.text)
    project = config.load(tmp_path / "vertexrig.yaml").project
    assert (project.trainer.image, project.trainer.build.framework.partition("-")[0]) == ("build", "jax")
    assert "gpu" in project.jobs
    lay_out(tmp_path, {"train.py": "import jax\nimport tensorflow\n"})
    assert trainers(tmp_path)[0].framework == "tf"


REPORTS = "import hypertune\nhypertune.HyperTune().report_hyperparameter_tuning_metric('rmse', 1.0, 1)\n"


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (
            "p.add_argument('--leaves', type=int)\np.add_argument('--rate', type=float)\n",
            "leaves, rate have no default",
        ),
        ("p.add_argument('--data')\n", "it has no numeric flag or choice"),
    ],
)
def test_why_there_is_no_sweep_is_said(tmp_path: Path, flags: str, why: str) -> None:
    """A trainer that reports a metric and gets no sweep has flags without defaults, or no numeric flag: init says which."""
    text = f"import argparse\nimport sklearn\np = argparse.ArgumentParser()\n{flags}p.parse_args()\n{REPORTS}"
    begun = starter.starter(trainers(lay_out(tmp_path, {"train.py": text}))[0], load())
    assert not begun.sweep and f"the trainer reports rmse, but there is no sweep: {why}" in begun.notes[0]


def test_init_says_what_check_finds(tmp_path: Path) -> None:
    """The errors and warnings of `check` about the new file are notes with their jobs, and the next commands come after the errors are solved."""
    cell = "import sklearn\nget_ipython().system('pip install -q -U shap')\n"
    done = typed("init", cwd=lay_out(tmp_path, {"train.py": cell}))
    assert "note: cpu: train.py:2: get_ipython() exists only in a notebook" in done.stderr
    assert "next, when these errors are solved:" in done.stderr
    done = typed("package", "cpu", cwd=tmp_path)
    assert done.exit_code == 2 and "write shap into requirements.txt" in done.stderr
    lay_out(tmp_path, {"train.py": "import tensorflow\n", "requirements.txt": "tensorflow==2.15\n"})
    done = typed("init", "--force", cwd=tmp_path)
    assert "note: cpu, gpu: requirements.txt:1: tensorflow==2.15 is left out" in done.stderr and "next:" in done.stderr


def test_a_folder_that_is_no_trainer_is_refused(tmp_path: Path) -> None:
    """--trainer on something that holds no module says what it may name."""
    from vertexrig.errors import UsageError

    lay_out(tmp_path, {"data/rows.csv": "1\n"})
    with pytest.raises(UsageError, match="is not a trainer"):
        trainer(tmp_path, tmp_path / "data")


def test_each_range_has_its_reason_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    """Ranges follow the defaults, with the reason above them; other metrics and further flags that a sweep could vary are named."""
    more = '"--momentum", type=float, default=0.9)\nparser.add_argument("--epochs"'
    (tmp_path / "train.py").write_text(SCRIPT.replace('"--epochs"', more, 1))
    made = starter.starter(trainer(tmp_path, tmp_path / "train.py"), load())
    assert (
        "      parameters:\n        lr:\n          # from 0.1 times to 10 times the default 1e-05, on a log scale\n"
        in made.text
    )
    assert "# from 0.5 times to 2 times the default 64\n" in made.text and "# a fraction below 1\n" in made.text
    said = "\n".join(made.notes)
    assert "searches by val_loss; the trainer also reports loss" in said
    assert "not in the sweep, though it could search over them: optimizer" in said


DDP = """
import argparse, os
import torch
from torch import distributed

parser = argparse.ArgumentParser()
parser.add_argument("--learning_rate", type=float, default=0.1)
args = parser.parse_args()
distributed.init_process_group("gloo")
total = torch.ones(1)
distributed.all_reduce(total)
if distributed.get_rank() == 0:
    folder = os.environ["AIP_MODEL_DIR"].replace("gs://", "/gcs/", 1)
    os.makedirs(folder, exist_ok=True)
    torch.save(total, os.path.join(folder, "total.pt"))
distributed.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("source", "name", "rendered"),
    [
        (DDP, "gpu", '"python"\n    - "-m"\n    - "train"'),
        ("import lightning\n", "torchrun", "exec torchrun --standalone --max-restarts=3 --nproc-per-node=2"),
        ("import tensorflow as tf\ntf.distribute.MultiWorkerMirroredStrategy()\n", "multi-worker", "# pool 1: the workers"),
        ("import tensorflow as tf\ntf.distribute.MirroredStrategy()\n", "multi-gpu", "acceleratorCount: 2"),
    ],
    ids=["ddp", "lightning", "multi-worker", "mirrored"],
)  # fmt: skip
def test_a_trainer_for_more_than_one_accelerator_is_offered_a_job_on_them(
    tmp_path: Path, source: str, name: str, rendered: str
) -> None:
    """What joins processes gets torchrun with the trainer's own image, a strategy its topology; each renders."""
    lay_out(tmp_path, {"train.py": source})
    (tmp_path / "vertexrig.yaml").write_text(starter.starter(trainers(tmp_path)[0], load()).text)
    prepared = Workspace(config.load(tmp_path / "vertexrig.yaml")).prepare(name)
    assert prepared.ok, prepared.findings
    assert rendered in prepared.text


def test_a_job_of_several_workers_gets_the_choice_that_joins_them(tmp_path: Path) -> None:
    """Where a flag chooses the strategy and its default is none, the job of several workers chooses the one that joins them."""
    flag = "parser.add_argument('--distribute', choices=['none', 'multi'], default='none')\nargs = parser.parse_args()"
    source = f"import argparse\nimport tensorflow as tf\nparser = argparse.ArgumentParser()\n{flag}\ntf.distribute.MultiWorkerMirroredStrategy()\n"
    lay_out(tmp_path, {"train.py": source})
    text = starter.starter(trainers(tmp_path)[0], load()).text
    (tmp_path / "vertexrig.yaml").write_text(text)
    workspace = Workspace(config.load(tmp_path / "vertexrig.yaml"))
    assert "--distribute=multi" in workspace.prepare("multi-worker").text
    (tmp_path / "vertexrig.yaml").write_text(text.replace('"multi"', '"none"'))
    again = Workspace(config.load(tmp_path / "vertexrig.yaml")).prepare("multi-worker")
    assert "strategy-argument" in {one.id for one in again.findings}


@pytest.mark.parametrize(
    ("line", "needs"),
    [("dist.init_process_group('gloo')", True), ("if args.many:\n    dist.init_process_group('gloo')", False),
     ("dist.init_process_group('gloo', rank=0, world_size=1)", False), ("def join():\n    dist.init_process_group()\njoin()", True),
     ("def join():\n    dist.init_process_group()\nif args.many:\n    join()", False),
     ("if int(os.environ.get('WORLD_SIZE', 1)) > 1:\n    dist.init_process_group()", False)],
)  # fmt: skip
def test_a_trainer_that_always_joins_others_gets_torchrun_alone(tmp_path: Path, line: str, needs: bool) -> None:
    """Only where a process group is joined under no condition, and by torchrun's variables, is every job one of torchrun's."""
    source = f"import argparse, os\nimport torch.distributed as dist\nargs = argparse.ArgumentParser().parse_args()\n{line}\n"
    lay_out(tmp_path, {"train.py": source})
    text = starter.starter(trainers(tmp_path)[0], load()).text
    assert ("topology: cpu" not in text) == needs


def test_a_sub_command_that_is_required_is_written(tmp_path: Path) -> None:
    """Of a trainer that stops without one, init writes the sub-command that trains, ahead of its own flags and behind the program's."""
    source = """
import click
@click.group()
@click.option("--seed", type=int, default=1)
def main(seed): ...
@main.command()
@click.option("--rows", type=int, default=5)
def prepare(rows): ...
@main.command()
@click.option("--epochs", type=int, default=2)
def train(epochs): ...
main()
"""
    lay_out(tmp_path, {"train.py": source})
    text = starter.starter(trainers(tmp_path)[0], load()).text
    assert '    args:\n      - "--seed=1"\n      - train\n      - "--epochs=2"\n' in text and "rows" not in text


def test_ranges_follow_what_parameters_mean(tmp_path: Path) -> None:
    """Shares end at 1 and stay above 0, XGBoost's rate is searched by factors up to 1, and what no source bounds has no range."""
    flags = {"eta": 0.3, "subsample": 1.0, "colsample_bytree": 0.8, "gamma": 0.99}
    lines = "".join(f'parser.add_argument("--{name}", type=float, default={value})\n' for name, value in flags.items())
    source = SCRIPT.replace("from tensorflow import keras", "import xgboost").replace(
        "args = parser", lines + "args = parser"
    )
    lay_out(tmp_path, {"train.py": re.sub(r'.*"--(lr|optimizer|hidden-units)".*\n', "", source)})
    text = starter.starter(trainers(tmp_path)[0], load()).text
    (tmp_path / "vertexrig.yaml").write_text(text)
    sweep = config.load(tmp_path / "vertexrig.yaml").project.sweeps["sweep"]
    study = sweep.study
    assert study is not None and sweep.max_failed_trial_count == 3
    assert {
        name: (one.double_value_spec.min_value, one.double_value_spec.max_value, one.scale_type)
        for name, one in study.parameters.items()
        if one.double_value_spec is not None
    } == {
        "eta": (0.03, 1.0, "UNIT_LOG_SCALE"),
        "subsample": (0.5, 1.0, "UNIT_LINEAR_SCALE"),
        "colsample_bytree": (0.5, 1.0, "UNIT_LINEAR_SCALE"),
    }
    # as an optimizer's rate it is not bounded
    assert (
        "max_value: 3.0}"
        in starter.starter(
            trainers(lay_out(tmp_path / "other", {"train.py": source.replace("import xgboost", "import torch")}))[0],
            load(),
        ).text
    )


def test_force_keeps_a_file_where_there_is_no_trainer_and_names_what_may_be_one(tmp_path: Path) -> None:
    """A notebook's script that looks like no trainer is named; a project file is not replaced by one without a trainer."""
    lay_out(tmp_path, {"Untitled3.py": "print(1)\n"})
    done = typed("init", cwd=tmp_path)
    assert done.exit_code == 0 and "found Untitled3.py; to use it: --trainer Untitled3.py" in done.stderr
    (tmp_path / "vertexrig.yaml").write_text("project: mine\n")
    done = typed("init", "--force", cwd=tmp_path)
    assert done.exit_code == 2 and "vertexrig.yaml was not changed" in done.stderr
    assert (tmp_path / "vertexrig.yaml").read_text() == "project: mine\n"
    assert typed("init", "--force", "--trainer", "Untitled3.py", cwd=tmp_path).exit_code == 0
    assert 'path: "Untitled3.py"' in (tmp_path / "vertexrig.yaml").read_text()
