"""The table of flag libraries in docs/trainer-flags.md, each row held by a trainer written as the library's users write it."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from tests.support.tools import REPOSITORY
from tests.vertexrig.trainer_source.test_trainer_flags import findings, job
from vertexrig import checks
from vertexrig.catalog import load
from vertexrig.finding import Severity
from vertexrig.trainer_source.reader import read

READ, UNKNOWN, REFUSED = "read", "not read", "not read; `--name=value` is an error, because Hydra refuses it"
_FIELDS = "from dataclasses import dataclass\n@dataclass\nclass Options:\n    lr: float = 0.1\n    units: int = 3\n"
# what a person calls it -> (the trainer, how it ends up)
LIBRARIES: dict[str, tuple[str, str]] = {
    "argparse": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float, default=0.1)\n"
        "p.add_argument('--units', type=int)\nprint(p.parse_args())\n", READ,
    ),
    "argparse with parents and groups": (
        "import argparse\nbase = argparse.ArgumentParser(add_help=False)\nbase.add_argument('--lr', type=float)\n"
        "p = argparse.ArgumentParser(parents=[base])\ngroup = p.add_argument_group('model')\n"
        "one = group.add_mutually_exclusive_group()\none.add_argument('--units', type=int)\nprint(p.parse_args())\n", READ,
    ),
    "argparse with sub-commands": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float)\n"
        "p.add_argument('--units', type=int)\ncommands = p.add_subparsers(dest='command')\n"
        "commands.add_parser('train')\nprint(p.parse_args())\n", READ,
    ),
    "absl": (
        "from absl import app, flags\nflags.DEFINE_float('lr', 0.1, 'Rate.')\nflags.DEFINE_integer('units', 3, 'Units.')\n"
        "def main(_):\n    print(flags.FLAGS.lr)\nif __name__ == '__main__':\n    app.run(main)\n", READ,
    ),
    "click": (
        "import click\n@click.command()\n@click.option('--lr', default=0.1)\n@click.option('--units', type=int)\n"
        "def main(lr, units):\n    print(lr)\nif __name__ == '__main__':\n    main()\n", READ,
    ),
    "typer": (
        "import typer\ndef main(lr: float = 0.1, units: int = 3):\n    print(lr)\nif __name__ == '__main__':\n    typer.run(main)\n",
        READ,
    ),
    "HfArgumentParser": (
        _FIELDS + "from transformers import HfArgumentParser\n(options,) = HfArgumentParser(Options).parse_args_into_dataclasses()\n",
        READ,
    ),
    "Tap": ("from tap import Tap\nclass Options(Tap):\n    lr: float = 0.1\nprint(Options().parse_args())\n", UNKNOWN),
    "tyro": (_FIELDS + "import tyro\noptions = tyro.cli(Options)\n", UNKNOWN),
    "fire": (
        "import fire\ndef main(lr=0.1, units=3):\n    print(lr)\nif __name__ == '__main__':\n    fire.Fire(main)\n", UNKNOWN,
    ),
    "jsonargparse": ("from jsonargparse import CLI\ndef main(lr: float = 0.1):\n    print(lr)\nCLI(main)\n", UNKNOWN),
    "simple_parsing": (
        _FIELDS + "from simple_parsing import ArgumentParser\np = ArgumentParser()\n"
        "p.add_arguments(Options, dest='options')\nprint(p.parse_args())\n", UNKNOWN,
    ),
    "pydantic settings": (
        "from pydantic_settings import BaseSettings\nclass Options(BaseSettings, cli_parse_args=True):\n"
        "    lr: float = 0.1\n    units: int = 3\nprint(Options())\n", UNKNOWN,
    ),
    "Hydra": (
        "import hydra\n@hydra.main(version_base=None, config_path='conf', config_name='config')\ndef main(cfg):\n"
        "    print(cfg.lr)\nif __name__ == '__main__':\n    main()\n", REFUSED,
    ),
    "docopt": ('"""Usage: train.py [--lr=RATE]"""\nfrom docopt import docopt\nargs = docopt(__doc__)\n', UNKNOWN),
    "plain sys.argv": ("import sys\nfor word in sys.argv[1:]:\n    print(word.partition('='))\n", UNKNOWN),
}  # fmt: skip
PAGE = REPOSITORY / "docs" / "trainer-flags.md"


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_is_read_rightly_or_said_to_be_unknown_once(tmp_path: Path, library: str) -> None:
    """Read: its flags give no finding, a misspelt one gives one error. Unknown: one line of severity info, never an error but for what is refused whatever its name is."""
    text, ends = LIBRARIES[library]
    (tmp_path / "train.py").write_text(text)
    command = "train" if "sub-commands" in library else ""
    right = findings(tmp_path / "train.py", f"--lr=0.5 --units=8 {command}")
    wrong = findings(tmp_path / "train.py", f"--lr=0.5 --unitz=8 {command}")
    if ends == REFUSED:
        plain = findings(tmp_path / "train.py", "lr=0.5 --config-name=other")
        assert Severity.ERROR not in plain.values() and any(one.startswith("flags-unread: ") for one in plain)
        said = [message for message, severity in right.items() if severity is Severity.ERROR]
        assert [one.partition(": its")[0] for one in said] == [
            "hydra-override: Hydra refuses --lr=0.5", "hydra-override: Hydra refuses --units=8"
        ]  # fmt: skip
    elif ends == READ:
        assert right == {}
        assert list(wrong.values()) == [Severity.ERROR] and next(iter(wrong)).startswith("argument-unknown: "), wrong
    else:
        for found in (right, wrong):
            assert list(found.values()) == [Severity.INFO] and next(iter(found)).startswith("flags-unread: "), found


def test_hydra_s_folder_is_missed_beside_a_script_and_not_in_a_package(tmp_path: Path) -> None:
    """A package is packed with the folder that it reads, a script without: one warning."""
    (tmp_path / "trainer").mkdir()
    for folder in (tmp_path, tmp_path / "trainer"):
        (folder / "train.py").write_text(LIBRARIES["Hydra"][0])
    (tmp_path / "trainer/__init__.py").touch()
    found = {}
    for module in ("train", "trainer.train"):
        context = checks.Context(load(), today=date(2026, 7, 1), trainer=read(tmp_path, module))
        rows = checks.check(job([], module), context)
        found[module] = [(one.id, one.severity) for one in rows if one.id == "hydra-override"]
    assert found == {"train": [("hydra-override", Severity.WARNING)], "trainer.train": []}


def test_the_page_has_the_table() -> None:
    """docs/trainer-flags.md says of each library what the test above holds."""
    rows = [f"| {name} | {ends} |" for name, (_, ends) in LIBRARIES.items()]
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if line.startswith("| ") and not line.startswith(("| ---", "| a trainer"))]
    assert table == rows


_REPORT = "hypertune.HyperTune().report_hyperparameter_tuning_metric("
METRICS = {
    "in a callback": {
        "train.py": "import hypertune\nfrom tensorflow import keras\n"
        "class Report(keras.callbacks.Callback):\n    def __init__(self):\n        self.tuner = hypertune.HyperTune()\n"
        "    def on_epoch_end(self, epoch, logs=None):\n"
        "        self.tuner.report_hyperparameter_tuning_metric('accuracy', logs['val_accuracy'], epoch)\n"
        "model = keras.Sequential()\nmodel.fit(1, callbacks=[Report()])\n",
    },
    "in a helper module": {
        "helpers/__init__.py": "", "helpers/metrics.py": f"import hypertune\ndef report(name, value):\n    {_REPORT}name, value)\n",
        "train.py": "from helpers import metrics\nmetrics.report('accuracy', 0.5)\n",
    },
}  # fmt: skip


@pytest.mark.parametrize("how", METRICS)
def test_the_metric_is_found_wherever_it_is_reported(tmp_path: Path, how: str) -> None:
    """By its name, in a Keras callback, or in a module beside the trainer's own."""
    for name, text in METRICS[how].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert read(tmp_path, "train").metric_ids == {"accuracy"}
