"""Reading a trainer's source without importing it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.packages import PARSER, TRAINERS, trainer_of, trainer_with
from vertexrig.trainer_source.follow import follow
from vertexrig.trainer_source.reader import read
from vertexrig.trainer_source.trainer_model import TrainerSource


@pytest.fixture(scope="module")
def full() -> TrainerSource:
    """The test trainer that declares every form of flag."""
    return read(TRAINERS / "full", "trainer.task")


def test_every_flag_is_found_across_the_trainers_own_modules(full: TrainerSource) -> None:
    """Flags of the entry module, of a loop over names and of a helper module are all there, with nothing left open."""
    assert [flag.names[0] for flag in full.flags] == [
        "--learning_rate", "--units", "--batch_size", "--epochs", "--cache", "--augment", "--shuffle",
        "--optimizer", "--job-dir", "--layers", "--l1", "--l2", "--data_dir",
    ]  # fmt: skip
    assert full.flags_complete and full.parsers == {"argparse"} and not full.tolerates_unknown
    assert full.problems == ()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "learning_rate",
            {"type": "float", "required": False, "default": 0.1, "takes_float_text": True},
        ),
        ("units", {"type": "int", "required": True, "takes_float_text": False}),
        ("batch_size", {"type": "tolerant_int", "takes_float_text": True, "default": 32}),
        ("epochs", {"type": "lambda", "takes_float_text": True}),
        ("cache", {"type": "bool", "bool_trap": True, "takes_value": True}),
        ("augment", {"action": "store_true", "takes_value": False, "bool_trap": False}),
        ("shuffle", {"action": "BooleanOptionalAction", "takes_value": False}),
        ("optimizer", {"choices": ("sgd", "adam"), "type": "str"}),
        ("job-dir", {"dest": "model_dir", "default": None}),
        ("layers", {"nargs": "+", "type": "int"}),
        ("l2", {"default": 0.0, "line": 28}),
        ("data_dir", {"required": True, "file": "trainer/options.py"}),
    ],
)
def test_a_flags_declaration_is_read_in_full(full: TrainerSource, name: str, expected: dict[str, object]) -> None:
    """Type, default, choices, action, nargs, dest, place: as the source declares them."""
    flag = full.flag(name)
    assert flag is not None
    assert {key: getattr(flag, key) for key in expected} == expected


def test_metric_strategy_keras_and_environment_are_read(full: TrainerSource) -> None:
    """A metric named by an imported constant, the strategy, Keras 2 and the AIP_ variables are all known."""
    assert full.metric_ids == {"accuracy"} and full.metrics_complete
    assert full.strategies == {"MirroredStrategy"}
    assert set(full.keras) == {"tf_keras"} and full.legacy_keras == "1"
    assert "AIP_MODEL_DIR" in full.environment and "AIP_CHECKPOINT_DIR" not in full.environment
    assert [defect for defect in full.defects if defect.kind == "name"] == []


def test_nothing_is_imported_or_run(tmp_path: Path) -> None:
    """A module that would fail and write on import is read all the same, and its code never runs."""
    marker = tmp_path / "ran"
    found = trainer_of(tmp_path, f"import argparse\nopen({str(marker)!r}, 'w')\nraise SystemExit\n")
    assert not marker.exists() and found.problems == ()


@pytest.mark.parametrize(
    ("code", "tags", "complete"),
    [
        ('h.report_hyperparameter_tuning_metric("loss", 1)', {"loss"}, True),
        ('h.report_hyperparameter_tuning_metric(hyperparameter_metric_tag="a" + "b", metric_value=1)', {"ab"}, True),
        ('TAG = "acc"\nh.report_hyperparameter_tuning_metric(f"val_{TAG}", 1)', {"val_acc"}, True),
        ('h.report_hyperparameter_tuning_metric("x" if y else "z", 1)', {"x", "z"}, True),
        ('for t in ("p", "q"):\n  h.report_hyperparameter_tuning_metric(t, 1)', {"p", "q"}, True),
        (
            'def r(tag, v):\n  h.report_hyperparameter_tuning_metric(tag, v)\nr("m1", 1)\nr(tag="m2", v=1)',
            {"m1", "m2"},
            True,
        ),
        (
            (
                'class C:\n  def __init__(self, tag="dflt"):\n    self.tag = tag\n'
                "  def on(self):\n    h.report_hyperparameter_tuning_metric(self.tag, 1)\nC()\nC('given')"
            ),
            {"dflt", "given"},
            True,
        ),
        ("h.report_hyperparameter_tuning_metric('', 1)", {"training/hptuning/metric"}, True),
        ("h.report_hyperparameter_tuning_metric(f'val_{name()}', 1)", set(), False),
        ("h.report_hyperparameter_tuning_metric(args.metric, 1)", set(), False),
        ("h.report_hyperparameter_tuning_metric(*values)", set(), False),
        ("h.report_hyperparameter_tuning_metric(**values)", set(), False),
        ("report = h.report_hyperparameter_tuning_metric\nreport('x', 1)", set(), False),
        ("open('/tmp/hypertune/output.metrics', 'a').write('x')", set(), False),
        ("open('/tmp/hypertune/output.metrics')\nh.report_hyperparameter_tuning_metric('x', 1)", {"x"}, True),
        ("print('nothing')", set(), True),
    ],
)
def test_metric_ids_are_resolved_or_left_open(code: str, tags: set[str], complete: bool) -> None:
    """A tag that can be known is known; one that only the running program knows makes the answer open, never wrong."""
    found = trainer_with(f"import hypertune\nh = hypertune.HyperTune()\n{code}\n")
    assert (found.metric_ids, found.metrics_complete) == (tags, complete)


@pytest.mark.parametrize(
    ("type_", "definition", "expected"),
    [
        ("int", "", False),
        ("float", "", True),
        ("own", "def own(t):\n  return int(float(t))", True),
        ("own", "def own(t):\n  return int(t)", False),
        ("own", "def base(t):\n  return float(t)\ndef own(t):\n  v = base(t)\n  return int(v)", True),
        ("own", "def base(t):\n  return int(t)\ndef own(t):\n  return base(t)", False),
        ("own", "def own(t):\n  return own(t)", None),
        ("own", "def own(t):\n  return int(clean(t))", None),
        ("own", "own = lambda t: int(float(t))", True),
        ("own", "def own(t):\n  return int(t.split('.')[0])", None),
        ("int", "def int(t):\n  return float(t)", True),
        ("make()", "", None),
        ("np.int64", "import numpy as np", None),
    ],
)
def test_whether_a_flag_takes_128_0(type_: str, definition: str, expected: bool | None) -> None:
    """`type=int` refuses the text 128.0; float and functions that go through it accept; others are left open."""
    found = trainer_with(f'{definition}\n{PARSER}parser.add_argument("--units", type={type_})\n')
    flag = found.flag("units")
    assert flag is not None and flag.takes_float_text is expected


@pytest.mark.parametrize(
    "code",
    [
        "for n in names():\n  parser.add_argument('--' + n)",
        "parser.add_argument(*a)",
        "parser.add_argument('--x', **kw)",
        "import lib\nlib.add_flags(parser)",
        "import lib\nlib.make().parse_args()",
        "import fire\nfire.Fire(main)",
        "import sys\nx = sys.argv[1]",
        "sub = parser.add_subparsers()",
        "import lib\np = argparse.ArgumentParser(parents=[lib.base])",
    ],
)
def test_a_command_line_that_cannot_be_read_is_left_open(code: str) -> None:
    """Where flags may exist that are not written down, no flag is called unknown."""
    found = trainer_with(PARSER + code)
    assert not found.flags_complete


@pytest.mark.parametrize("argv", ["parser.parse_args(sys.argv[1:])", "print(sys.argv[0])", "main(sys.argv)"])
def test_handing_sys_argv_to_a_parser_leaves_nothing_open(argv: str) -> None:
    """The usual uses of sys.argv do not make the flags unknown."""
    found = trainer_with(f"import sys\n{PARSER}parser.add_argument('--x')\ndef main(a): pass\n{argv}\n")
    assert found.flags_complete and found.flag("y") is None and found.flag("x") is not None


def test_parse_known_args_and_no_parser_accept_anything() -> None:
    """Unknown flags are harmless with parse_known_args, and without any parser."""
    known = trainer_with(PARSER + "parser.parse_known_args()")
    assert known.tolerates_unknown
    assert not trainer_with("print(1)").parsers


def test_abbreviations_are_found_as_argparse_finds_them() -> None:
    """An unambiguous beginning is the flag, an ambiguous one is none, and allow_abbrev=False turns that off."""
    flags = "parser.add_argument('--learning_rate')\nparser.add_argument('--layers')\n"
    found = trainer_with(PARSER + flags)
    assert found.flag("learn") is found.flags[0] and found.flag("l") is None
    strict = trainer_with(PARSER.replace("()", "(allow_abbrev=False)") + flags)
    assert strict.flag("learn") is None and strict.flag("layers") is not None


def test_absl_flags_are_read() -> None:
    """Absl's DEFINE_ functions with types, enums, defaults and required marks."""
    found = trainer_with(
        "from absl import app, flags\n"
        "flags.DEFINE_float('learning_rate', 0.1, 'help')\n"
        "flags.DEFINE_integer('units', None, 'help', required=True)\n"
        "flags.DEFINE_enum('optimizer', 'sgd', ['sgd', 'adam'], 'help')\n"
        "flags.DEFINE_string('data', None, 'help')\n"
        "flags.DEFINE_bool('cache', True, 'help')\n"
        "flags.mark_flag_as_required('data')\n",
    )
    kinds = {flag.dest: (flag.type, flag.required) for flag in found.flags}
    assert kinds == {
        "learning_rate": ("float", False),
        "units": ("int", True),
        "optimizer": ("str", False),
        "data": ("str", True),
        "cache": ("bool", False),
    }
    assert found.flags[2].choices == ("sgd", "adam") and found.flags[1].takes_float_text is False
    assert found.flag("nocache") is not None and found.parsers == {"absl"}


def test_click_options_keep_their_dashes() -> None:
    """Click does not take an underscore for a dash, so the names stay as declared."""
    found = trainer_with(
        "import click\n@click.command()\n@click.option('--learning-rate', type=float, required=True)\n"
        "@click.option('--opt', type=click.Choice(['sgd', 'adam']), default='sgd')\n"
        "@click.option('--cache/--no-cache', default=True)\ndef main(**kw): pass\n",
    )
    rate, opt, cache = found.flags
    assert (rate.type, rate.required, rate.dest) == ("float", True, "learning_rate")
    assert opt.choices == ("sgd", "adam") and cache.names == ("--cache", "--no-cache")
    assert found.flag("learning_rate") is None


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("tf.distribute.MultiWorkerMirroredStrategy()", "MultiWorkerMirroredStrategy"),
        ("tf.distribute.experimental.MultiWorkerMirroredStrategy()", "MultiWorkerMirroredStrategy"),
        ("tf.distribute.experimental.ParameterServerStrategy(r)", "ParameterServerStrategy"),
        ("tf.distribute.TPUStrategy(r)", "TPUStrategy"),
        ("tf.distribute.experimental.CentralStorageStrategy()", "CentralStorageStrategy"),
        ("tf.distribute.OneDeviceStrategy('/cpu:0')", "OneDeviceStrategy"),
        ("from tensorflow.distribute import MirroredStrategy as M\nM()", "MirroredStrategy"),
        ("getattr(tf.distribute, 'TPUStrategy')(r)", "TPUStrategy"),
    ],
)
def test_strategies_are_found_by_their_present_name(code: str, name: str) -> None:
    """Old and experimental names, aliases and getattr all give the strategy; a mention in a docstring does not."""
    assert trainer_with(
        f'"""Not a TPUStrategy or OneDeviceStrategy."""\nimport tensorflow as tf\n{code}'
    ).strategies == {name}


@pytest.mark.parametrize(
    ("code", "uses", "legacy"),
    [
        ("import keras", {"keras"}, None),
        ("from keras import layers", {"keras"}, None),
        ("import tensorflow as tf\ntf.keras.Model", {"tf.keras"}, None),
        ("from tensorflow import keras", {"tf.keras"}, None),
        ("import tf_keras as keras", {"tf_keras"}, None),
        ("import os\nos.environ['TF_USE_LEGACY_KERAS'] = '1'", set(), "1"),
        ("import os\nos.environ.update(TF_USE_LEGACY_KERAS='1')", set(), "1"),
        ("import os\nos.environ['TF_USE_LEGACY_KERAS'] = pick()", set(), "dynamic"),
        ("import os\nprint(os.environ['TF_USE_LEGACY_KERAS'])", set(), None),
    ],
)
def test_which_keras_is_used(code: str, uses: set[str], legacy: str | None) -> None:
    """Keras 3, tf_keras and tf.keras are told apart, and TF_USE_LEGACY_KERAS counts only where it is set."""
    found = trainer_with(code)
    assert (set(found.keras), found.legacy_keras) == (uses, legacy)


def test_environment_names_put_together_while_running_leave_it_open() -> None:
    """`f"AIP_{kind}_DIR"` may read any of the variables, so absence proves nothing."""
    assert not trainer_with("import os\nos.environ[f'AIP_{kind}_DIR']").environment_complete


def test_imports_say_what_is_missing_and_what_is_survived() -> None:
    """Own, standard, foreign and missing modules are told apart; a caught ImportError is marked."""
    found = trainer_with(
        "import os, numpy\nfrom trainer import helper, nothere\nfrom . import gone\n"
        "try:\n  import maybe\nexcept ImportError:\n  maybe = None\ndef f():\n  import trainer.later\n",
        helper="x = 1\n",
    )
    kinds = {item.module: (item.kind, item.caught, item.at_import) for item in found.imports}
    assert kinds == {
        "os": ("stdlib", False, True),
        "numpy": ("other", False, True),
        "trainer": ("own", False, True),
        "trainer.nothere": ("missing", False, True),
        "trainer.gone": ("missing", False, True),
        "maybe": ("other", True, True),
        "trainer.later": ("missing", False, False),
    }


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("x = undefind\n", ["undefind"]),
        ("print(a)\nprint(a)\n", ["a"]),
        ("def f():\n  return missing\nf()\n", ["missing"]),
        ("def f():\n  return missing\n", []),
        ("if old:\n  x = new\n", ["old"]),
        ("class A:\n  rate = 1\n  def f(self):\n    return rate\nA().f()\n", ["rate"]),
        ("def f(x: Undefined = None):\n  y: Other = x\nf()\n", []),
        ("get_ipython()\nprint(__file__, __builtins__)\n", []),
        ("globals()['a'] = 1\nprint(a)\n", []),
        ("from __future__ import annotations\ndef f() -> Undefined: ...\n", []),
        ("from os import *\nx = getcwd()\n", []),
        ("try:\n  x = unicode\nexcept NameError:\n  pass\n", []),
        ("x: 'Later' = [a for a in range(3)]\n", []),
        ("def f():\n  global a\n  a = 1\nf()\nprint(a)\n", []),
        ("exec('a = 1')\nprint(a)\n", []),
        ("f = lambda: later\n", []),
        ("match input():\n  case [first, *rest] if rest: print(first)\n  case {'a': 1, **other}: print(other)\n", []),
        ("print((b := 2), b, __name__)\n", []),
        ("import sys\nsys.modules[__name__].__dict__.update(made=1)\nprint(made)\n", []),
        ("import enum, ssl\nenum.IntEnum._convert_('Made', __name__, str.isupper, source=ssl)\nprint(Made)\n", []),
    ],
)
def test_names_that_nothing_binds_are_found(code: str, names: list[str]) -> None:
    """What every run of the module would end with is certain: behind no branch, in functions that are called, no star import."""
    defects = trainer_with(code).defects
    assert [defect.text for defect in defects if defect.kind == "name" and defect.certain] == names


@pytest.mark.skipif(sys.version_info < (3, 11), reason="except* came with Python 3.11")
def test_except_star_catches(tmp_path: Path) -> None:
    """An import under `except* ImportError` is marked as caught, as under `except`."""
    trainer_of(tmp_path, "try:\n  import torch\nexcept* ImportError:\n  torch = None\n")
    assert [(item.module, item.caught) for item in follow(tmp_path, "trainer.task").imports] == [("torch", True)]


def test_a_wrong_module_name_gets_the_nearest(tmp_path: Path) -> None:
    """The problem names a module that is there."""
    trainer_of(tmp_path, "x = 1")
    assert "trainer.task" in read(tmp_path, "trainer.tsak").problems[0].message
    assert read(tmp_path / "nowhere", "trainer.task").problems
    assert read(tmp_path).problems


def test_a_value_that_multiplies_is_given_up() -> None:
    """Functions that call one another from many places end in an open answer, not in a long search."""
    body = "".join(f"def f{i}(t):\n" + f"  f{i + 1}(t)\n" * 8 for i in range(5))
    report = "  h.report_hyperparameter_tuning_metric(t, 1)\nf0('x')\n"
    assert not trainer_with(f"{body}def f5(t):\n{report}").metrics_complete
    assert trainer_with(f"def f0(t):\n{report}").metrics_complete
