"""Flags: readers of values, both spellings, defaults, unknown names."""

from __future__ import annotations

import argparse
import ast
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trainer import config, task
from trainer.config import Config

from tests.trainer.conftest import PACKAGE

#: The parameters of the walk-throughs' studies, with a value as Vertex AI sends it.
STUDIES = {
    "learning_rate": "0.001", "momentum": "0.5", "num_units": "128.0", "n_hidden": "3", "n_neurons": "300",
    "optimizer": "sgd", "l1": "0", "l2": "0.2", "batch_size": "16.0", "num_hidden": "16.0", "crop_ratio": "0.5",
    "with_color_distort": "True", "epochs": "10",
}  # fmt: skip


def test_no_flags_give_the_defaults() -> None:
    """Every flag has the default of its field, so that the trainer runs with none."""
    assert task.parse([]) == Config()


def test_flags_and_fields_are_the_same_names() -> None:
    """There is one flag per field, under the field's name."""
    flags = set(vars(task.build_parser().parse_args([])))
    assert flags == {field.name for field in dataclasses.fields(Config)} - {"started"}


def test_flags_are_declared_where_they_can_be_read_without_importing() -> None:
    """Each flag is a literal add_argument call in task.py; the metric's name is a literal in the source."""
    tree = ast.parse((PACKAGE / "trainer" / "task.py").read_text())
    literal = {
        node.args[0].value for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
        and isinstance(node.args[0], ast.Constant)
    }  # fmt: skip
    assert literal == {f"--{field.name}" for field in dataclasses.fields(Config)} - {"--started"}
    assert 'hyperparameter_metric_tag="accuracy"' in (PACKAGE / "trainer" / "reporting.py").read_text()


@pytest.mark.parametrize("name", STUDIES)
def test_study_parameters_in_both_spellings(name: str) -> None:
    """`--name value` and `--name=value` are the same for every parameter of the walk-throughs' studies."""
    one, two = task.parse([f"--{name}", STUDIES[name]]), task.parse([f"--{name}={STUDIES[name]}"])
    assert one == two
    assert type(getattr(one, name)) is type(getattr(Config(), name))


@given(st.integers(min_value=1, max_value=10**9))
def test_whole_numbers_as_vertex_sends_them(value: int) -> None:
    """An int survives the detour through a float's spelling."""
    assert config.integer(str(float(value))) == config.integer(str(value)) == value
    assert task.parse([f"--num_units={float(value)}"]).num_units == value


@given(st.text())
def test_readers_never_end_in_a_traceback(text: str) -> None:
    """Any text is either a value or an argparse error."""
    for reader in (
        config.number,
        config.integer,
        config.positive_integer,
        config.count,
        config.fraction,
        config.boolean,
    ):
        try:
            reader(text)
        except argparse.ArgumentTypeError as error:
            assert repr(text) in str(error)


@pytest.mark.parametrize("word", ["true", "True", "TRUE", "1", "1.0", "yes"])
def test_true_in_all_spellings(word: str) -> None:
    """Booleans come as CATEGORICAL words or DISCRETE numbers."""
    assert task.parse([f"--with_color_distort={word}"]).with_color_distort is True
    assert task.parse(["--shuffle", {"t": "f", "T": "F"}.get(word[0], "0")]).shuffle is False


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--learning_rte=1"], "unknown argument '--learning_rte=1'; did you mean '--learning_rate'?"),
        (["--learning-rate", "1"], "did you mean '--learning_rate'?"),
        (["--learn", "1"], "unknown argument '--learn'"),
        (["stray"], "unknown argument 'stray'"),
        (["--num_units=128.5"], "'128.5' is not a whole number"),
        (["--num_units=0"], "'0' is less than 1"),
        (["--seed=1e12"], "'1e12' is more than 2,147,483,646"),
        (["--l2=-1"], "'-1' is negative"),
        (["--momentum=1.1"], "'1.1' is not between 0 and 1"),
        (["--learning_rate=nan"], "'nan' is not a finite number"),
        (['--with_color_distort="true"'], "'\"true\"' is not true or false"),
        (["--optimizer=sdg"], "invalid choice: 'sdg'"),
        (["--epochs"], "expected one argument"),
        (["--profile_steps=soon"], "--profile_steps: 'soon' is not a number"),
    ],
)
def test_bad_flags_say_what_is_wrong(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A bad flag ends with code 2 and one clear line on stderr."""
    with pytest.raises(SystemExit) as ended:
        task.parse(flags)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
