"""The rules that hold a job and its study against the trainer's source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.packages import trainer_of, trainer_with
from tests.vertexrig.checks.cases import context, document, found
from tests.vertexrig.checks.job_bases import TRAINER_JOB as JOB
from tests.vertexrig.checks.job_bases import TRAINER_STUDY as STUDY
from tests.vertexrig.checks.trainer_cases import ARGS, CASES, PARAMETER, PLAIN, PYTHON, flags, swapped
from vertexrig import spec
from vertexrig.checks import trainer as rules
from vertexrig.trainer_source.reader import read


def test_the_base_is_clean() -> None:
    """The study and the trainer that the cases start from fit each other."""
    assert found(rules.RULES, document(STUDY), context(trainer_with(PLAIN))) == {}


def test_without_the_trainer_nothing_needs_it() -> None:
    """With no source at hand only what the spec itself shows is found."""
    for case in CASES:
        problems = found(rules.RULES, document(STUDY, case.bad))
        assert set(problems) <= {"argument-and-parameter", "trials-share-output"}, case


@pytest.mark.parametrize(
    ("base", "severity"),
    [
        ("python:3.99-slim", "warning"),
        ("registry/uv:python3.99-bookworm", "warning"),
        ("python:3.9", "error"),
        ("", "error"),
    ],
)
def test_a_newer_python_of_the_image_may_read_what_this_one_does_not(base: str, severity: str) -> None:
    """A syntax error is certain unless the trainer's own image has a newer Python than the one that reads it."""
    trainer = replace(trainer_with("def main(:\n"), base_image=base)
    ((actual, _, message),) = found(rules.RULES, document(STUDY), context(trainer))["trainer-unreadable"]
    assert actual == severity and ("the image has Python 3.99" in message) is (severity == "warning")


def test_the_module_is_looked_for(tmp_path: Path) -> None:
    """A module that is not in the trainer is named with the nearest one."""
    trainer_of(tmp_path, PLAIN)
    changes = {f"{PYTHON}.pythonModule": "trainer.tsk"}
    problems = found(rules.RULES, document(STUDY, changes), context(read(tmp_path, "trainer.tsk")))
    ((_, path, message),) = problems["trainer-module"]
    assert path == f"{PYTHON}.pythonModule" and "trainer.task" in message


@pytest.mark.parametrize(
    "source",
    [
        swapped("parser.parse_args()", "parser.parse_args(load_flags())").replace('"--epochs"', "NAMES[0]"),
        "import fire\nfire.Fire(lambda **k: None)\n",
        "import sys\nprint(sys.argv[1:])\n",
    ],
)
def test_flags_the_source_does_not_say_are_not_judged(source: str) -> None:
    """A trainer whose flags cannot all be read gives no finding about unknown ones."""
    problems = found(rules.RULES, document(STUDY, {ARGS: ["--anything=1"]}), context(trainer_with(source)))
    assert not {"argument-unknown", "parameter-unknown"} & set(problems)


def test_ignored_flags_are_a_warning() -> None:
    """parse_known_args lets a wrong name pass: the trial runs, and the parameter does nothing."""
    source = swapped("args = parser.parse_args()", "args, _ = parser.parse_known_args()")
    changes = {f"{PARAMETER}.parameterId": "units"}
    ((severity, _, message),) = found(rules.RULES, document(STUDY, changes), context(trainer_with(source)))[
        "parameter-unknown"
    ]
    assert severity == "warning" and "no effect" in message and "--num_units" in message


def test_unknown_arguments_the_trainer_refuses_itself_are_an_error() -> None:
    """A trainer that calls parser.error on what parse_known_args leaves over does not ignore it."""
    source = swapped(
        "args = parser.parse_args()",
        "args, rest = parser.parse_known_args()\n    if rest:\n        parser.error(f'unknown {rest}')",
    )
    problems = found(rules.RULES, document(STUDY, {ARGS: ["--epoch=1", "--verbose=1"]}), context(trainer_with(source)))
    assert [severity for severity, _, _ in problems["argument-unknown"]] == ["error"]


def test_a_reduction_server_is_not_the_trainer() -> None:
    """Pools that run something else than the trainer are not held against it."""
    reduction = {
        "machineSpec": {"machineType": "n1-highcpu-16"},
        "replicaCount": 2,
        "containerSpec": {
            "imageUri": "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest",
            "args": ["--x=1"],
        },
    }
    changes = {"trialJobSpec.workerPoolSpecs[1]": reduction}
    assert found(rules.RULES, document(STUDY, changes), context(trainer_with(PLAIN))) == {}


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({"command": ["python", "-m", "trainer.task"], "args": ["--epoch_count=1"]}, {"argument-unknown"}),
        ({"args": ["-m", "trainer.task", "--epochs=1"]}, set()),
        ({"args": ["--epoch_count=1"]}, {"argument-unknown"}),
        ({"command": ["sh", "-c"], "args": ["python -m trainer.task --what=1"]}, set()),
        ({"command": ["python", "-m", "other.task"], "args": ["--what=1"]}, set()),
    ],
)
def test_custom_containers(container: dict[str, Any], expected: set[str]) -> None:
    """A container's args are the trainer's unless a shell or another module takes them."""
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": "x/y:z", **container},
    }
    checked = spec.from_data({**JOB, "workerPoolSpecs": [pool]})
    assert set(found(rules.RULES, checked, context(trainer_with(PLAIN)))) == expected


def test_pools_with_the_same_args_are_told_once() -> None:
    """Chief and workers share their arguments: one mistake is one finding."""
    pool = document(STUDY, {ARGS: ["--epoch_count=1"]}).data["trialJobSpec"]["workerPoolSpecs"][0]
    checked = document(STUDY, {"trialJobSpec.workerPoolSpecs": [pool, pool]})
    assert len(found(rules.RULES, checked, context(trainer_with(PLAIN)))["argument-unknown"]) == 1


def test_choices_of_another_module_are_known() -> None:
    """Choices that stand as a constant in a module beside the entry are held against args too."""
    source = flags('"--optimizer", choices=config.OPTIMIZERS').replace(
        "import hypertune", "import hypertune\nfrom trainer import config"
    )
    trainer = trainer_with(source, config='OPTIMIZERS = ("sgd", "adam")\n')
    problems = found(rules.RULES, document(STUDY, {ARGS: ["--optimizer=adams"]}), context(trainer))
    assert "sgd, adam" in problems["argument-parse"][0][2]


def test_a_flag_of_several_values_takes_the_words_behind_it() -> None:
    """nargs="+" takes every word up to the next flag, and each must parse."""
    trainer = trainer_with(flags('"--layers", nargs="+", type=int'))
    good = found(rules.RULES, document(STUDY, {ARGS: ["--layers", "1", "2", "3", "--epochs", "1"]}), context(trainer))
    bad = found(rules.RULES, document(STUDY, {ARGS: ["--layers", "1", "two"]}), context(trainer))
    assert good == {} and bad["argument-parse"][0][1] == f"{ARGS}[2]"


@pytest.mark.parametrize(
    ("name", "meant"), [("lr", "learning_rate"), ("lrate", "learning_rate"), ("n_units", "num_units")]
)
def test_shortened_names_are_recognised(name: str, meant: str) -> None:
    """`lr` means learning_rate, though the two look nothing alike."""
    changes = {f"{PARAMETER}.parameterId": name}
    problems = found(rules.RULES, document(STUDY, changes), context(trainer_with(PLAIN)))
    assert f"Did you mean '--{meant}'?" in problems["parameter-unknown"][0][2]


def test_values_of_ignored_arguments_are_not_judged() -> None:
    """Words that stand alone are no error where unknown arguments are ignored, nor where another parser reads them."""
    source = swapped("args = parser.parse_args()", "args, _ = parser.parse_known_args()")
    assert found(rules.RULES, document(STUDY, {ARGS: ["train"]}), context(trainer_with(source))) == {}


@pytest.mark.parametrize(
    ("source", "modules", "count"),
    [
        ("import model\n", ["model"], 1),
        ("from model import Net\n", ["model"], 1),
        ("from trainer import model\n", ["model"], 0),
        ("import model\n", ["other"], 0),
        ("try:\n  import model\nexcept ImportError:\n  from trainer import model\n", ["model"], 0),
        ("import sys\nsys.path.append('/root/trainer')\nimport model\n", ["model"], 0),
        ("import datasets\nimport evaluate\n", ["datasets", "evaluate"], 0),
    ],
)
def test_an_import_that_finds_a_module_of_its_own_package_only_in_python_2_is_found(
    source: str, modules: list[str], count: int
) -> None:
    """`import model` in trainer/task.py does not find trainer/model.py; a library of that name, or another path, may be meant."""
    trainer = trainer_with(source, **dict.fromkeys(modules, "x = 1\n"))
    problems = found(rules.RULES, document(JOB), context(trainer)).get("trainer-module", [])
    assert [severity for severity, _, _ in problems] == ["warning"] * count
    wanted = "trainer/task.py:1 imports model, and the trainer has only trainer.model"
    assert [message for _, _, message in problems] == [wanted] * count


def test_a_relative_import_of_a_script_is_found(tmp_path: Path) -> None:
    """`from . import x` in a module that is in no package ends it, unless the trainer catches that."""
    script, fallback = tmp_path / "train.py", "try:\n    from . import data\nexcept ImportError:\n    import data\n"
    (tmp_path / "data.py").write_text("x = 1\n")
    found_by = []
    for source in ("from . import data\n", fallback, "import data\n"):
        script.write_text(source)
        problems = found(rules.RULES, document(JOB), context(read(script)))
        found_by.append([message for _, _, message in problems.get("trainer-module", [])])
    assert [len(messages) for messages in found_by] == [1, 0, 0]
    assert found_by[0][0].startswith("train.py:1: ")
