"""The rules that hold a job and its study against the trainer's source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cases import Case, context, document, found, must_accept, must_find, names, trainer_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job_bases import DROP
from job_bases import TRAINER_JOB as JOB
from job_bases import TRAINER_STUDY as STUDY

from vertexrig import spec
from vertexrig.checks import trainer as rules
from vertexrig.package.source.model import TrainerSource

BODY = """
import argparse, os
import hypertune

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning_rate", type=float, default=0.1)
    parser.add_argument("--num_units", type=lambda text: int(float(text)), default=64)
    parser.add_argument("--epochs", type=int, default=1)
    FLAGS
    args = parser.parse_args()
    for epoch in range(args.epochs):
        hypertune.HyperTune().report_hyperparameter_tuning_metric(
            hyperparameter_metric_tag="accuracy", metric_value=0.5, global_step=epoch)
    save(os.environ.get("AIP_MODEL_DIR", "model"))

if __name__ == "__main__":
    main()
"""
ARGS = "trialJobSpec.workerPoolSpecs[0].pythonPackageSpec.args"
ID = "studySpec.parameters[1].parameterId"
PYTHON = "trialJobSpec.workerPoolSpecs[0].pythonPackageSpec"
PARAMETER = "studySpec.parameters[1]"
PLAIN = BODY.replace("    FLAGS\n", "")


def flags(*declarations: str) -> str:
    return BODY.replace("FLAGS", "\n    ".join(f"parser.add_argument({text})" for text in declarations))


def swapped(old: str, new: str) -> str:
    assert old in PLAIN
    return PLAIN.replace(old, new)


def tuned(name: str, **value: Any) -> dict[str, Any]:
    return {PARAMETER: {"parameterId": name, **value}}


INT_UNITS = swapped("type=lambda text: int(float(text))", "type=int")
BOOL = flags('"--cache", type=bool, default=False')
SWITCH = flags('"--cache", action="store_true"')
CHOICES = flags('"--optimizer", choices=["sgd", "adam"]', '"--size", type=int, choices=[16, 32]')
CATEGORIES = {"categoricalValueSpec": {"values": ["sgd", "adam"]}}
ONCE = swapped(
    "    for epoch in range(args.epochs):\n        hypertune", "    if True:\n        epoch = 1\n        hypertune"
)
NEEDS = swapped("    save(", '    cluster = os.environ["TF_CONFIG"]\n    save(')
CONDITIONAL = {
    PARAMETER: {
        "parameterId": "optimizer",
        **CATEGORIES,
        "conditionalParameterSpecs": [
            {
                "parentCategoricalValues": {"values": ["sgd"]},
                "parameterSpec": {"parameterId": "momentum", "doubleValueSpec": {"minValue": 0, "maxValue": 1}},
            }
        ],
    }
}

CASES = [
    Case("trainer-unreadable", "study", {}, {}, PYTHON, "def main(:\n", PLAIN),
    Case("trainer-module", "study", {}, {}, PYTHON, PLAIN.replace("import argparse", "import argparse, trainer.nothing"), PLAIN),
    Case("argument-unknown", "study", {ARGS: ["--epoch_count=3"]}, {ARGS: ["--epochs=3"]}, f"{ARGS}[0]", PLAIN),
    Case("argument-unknown", "study", {ARGS: ["--epochs", "3", "--batchsize", "16"]}, {ARGS: ["--epochs", "3"]},
         f"{ARGS}[2]", PLAIN),
    Case("argument-unknown", "study", {ARGS: ["train"]}, {ARGS: ["--epochs", "3"]}, f"{ARGS}[0]", PLAIN),
    Case("argument-unknown", "study", {ARGS: ["--verbose=1"]}, {}, f"{ARGS}[0]",
         swapped("args = parser.parse_args()", "args, _ = parser.parse_known_args()")),
    Case("argument-unknown", "study", {ARGS: ["--epochs=1"]}, {}, f"{ARGS}[0]", "print('no arguments')\n"),
    Case("parameter-unknown", "study", tuned("units", discreteValueSpec={"values": [1, 2]}), {}, ID, PLAIN),
    Case("parameter-unknown", "study", tuned("num-units", discreteValueSpec={"values": [1, 2]}), {}, ID, PLAIN),
    Case("argument-required", "study", {}, {ARGS: ["--data=gs://b/d"]}, ARGS, flags('"--data", required=True')),
    Case("argument-required", "study", {}, {ARGS: ["gs://b/d"]}, ARGS, flags('"data"')),
    Case("argument-required", "study", {}, {**tuned("num_layers", discreteValueSpec={"values": [1, 2]})}, ARGS,
         flags('"--num_layers", type=float, required=True')),
    Case("argument-required", "study", CONDITIONAL, {**CONDITIONAL, ARGS: ["--momentum=0"]}, ARGS,
         flags('"--optimizer"', '"--momentum", type=float, required=True')),
    Case("metric-unreported", "study", {"studySpec.metrics[0].metricId": "val_accuracy"}, {},
         "studySpec.metrics[0].metricId", PLAIN),
    Case("metric-unreported", "study", {}, {}, "studySpec.metrics[0].metricId", swapped('"accuracy"', '""'), PLAIN),
    Case("metric-unreported", "study", {}, {}, "studySpec.metrics[0].metricId",
         "import argparse\nargparse.ArgumentParser().parse_args()\n", swapped('"accuracy"', "os.environ['TAG']")),
    Case("discrete-float-text", "study", {}, {}, f"{PARAMETER}.discreteValueSpec", INT_UNITS, PLAIN),
    Case("discrete-float-text", "study", {}, tuned("num_units", integerValueSpec={"minValue": 1, "maxValue": 9}),
         f"{PARAMETER}.discreteValueSpec", INT_UNITS),
    Case("parameter-parse", "study", tuned("num_units", doubleValueSpec={"minValue": 0, "maxValue": 9}), {},
         f"{PARAMETER}.doubleValueSpec", INT_UNITS),
    Case("parameter-parse", "study", tuned("num_units", discreteValueSpec={"values": [0.5, 1]}), {},
         f"{PARAMETER}.discreteValueSpec.values", INT_UNITS),
    Case("parameter-parse", "study", tuned("epochs", categoricalValueSpec={"values": ["few", "many"]}),
         tuned("epochs", categoricalValueSpec={"values": ["1", "20"]}),
         f"{PARAMETER}.categoricalValueSpec.values", PLAIN),
    Case("parameter-choices", "study", tuned("optimizer", categoricalValueSpec={"values": ["sgd", "adamw"]}),
         tuned("optimizer", **CATEGORIES), f"{PARAMETER}.categoricalValueSpec", CHOICES),
    Case("parameter-choices", "study", tuned("size", discreteValueSpec={"values": [16, 64]}),
         tuned("size", discreteValueSpec={"values": [16, 32]}), f"{PARAMETER}.discreteValueSpec", CHOICES),
    Case("parameter-choices", "study", tuned("optimizer", discreteValueSpec={"values": [1, 2]}), {},
         f"{PARAMETER}.discreteValueSpec", CHOICES),
    Case("parameter-choices", "study", tuned("size", integerValueSpec={"minValue": 16, "maxValue": 17}), {},
         f"{PARAMETER}.integerValueSpec", CHOICES),
    Case("parameter-choices", "study", tuned("size", doubleValueSpec={"minValue": 16, "maxValue": 17}), {},
         f"{PARAMETER}.doubleValueSpec", CHOICES),
    Case("boolean-flag", "study", {ARGS: ["--cache=False"]}, {ARGS: ["--cache=True"]}, f"{ARGS}[0]", BOOL),
    Case("boolean-flag", "study", tuned("cache", categoricalValueSpec={"values": ["true", "false"]}), {}, PARAMETER, BOOL),
    Case("flag-takes-no-value", "study", {ARGS: ["--cache=true"]}, {ARGS: ["--cache"]}, f"{ARGS}[0]", SWITCH),
    Case("flag-takes-no-value", "study", tuned("cache", categoricalValueSpec={"values": ["true", "false"]}), {},
         PARAMETER, SWITCH),
    Case("argument-parse", "study", {ARGS: ["--epochs=ten"]}, {ARGS: ["--epochs=10"]}, f"{ARGS}[0]", PLAIN),
    Case("argument-parse", "study", {ARGS: ["--epochs", "1.5"]}, {ARGS: ["--learning_rate", "-1.5"]}, f"{ARGS}[0]", PLAIN),
    Case("argument-parse", "study", {ARGS: ["--epochs"]}, {ARGS: ["--epochs", "1"]}, f"{ARGS}[0]", PLAIN),
    Case("argument-parse", "study", {ARGS: ["--optimizer=adagrad"]}, {ARGS: ["--optimizer=adam", "--size=16"]},
         f"{ARGS}[0]", CHOICES),
    Case("argument-and-parameter", "study", {ARGS: ["--num_units=64"]}, {ARGS: ["--epochs=3"]}, f"{ARGS}[0]", PLAIN),
    Case("model-dir-unread", "study", {}, {}, "trialJobSpec.baseOutputDirectory", swapped("AIP_MODEL_DIR", "HOME"), PLAIN),
    Case("model-dir-unset", "study", {"trialJobSpec.baseOutputDirectory": DROP}, {}, "trialJobSpec.baseOutputDirectory", PLAIN),
    Case("early-stopping-reports", "study", {"studySpec.decayCurveStoppingSpec": {}}, {"studySpec.decayCurveStoppingSpec": {}},
         "studySpec.decayCurveStoppingSpec", ONCE, PLAIN),
    Case("tf-config-needed", "study", {}, {"trialJobSpec.workerPoolSpecs[1]": JOB["workerPoolSpecs"][0]}, PYTHON, NEEDS),
    Case("tf-config-needed", "study", {}, {}, PYTHON, NEEDS,
         swapped("    save(", '    if "TF_CONFIG" in os.environ: cluster = os.environ["TF_CONFIG"]\n    save(')),
]  # fmt: skip
IDS = names(CASES)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_finds(case: Case, tmp_path: Path) -> None:
    """The rule finds the mistake, once, where it is."""
    must_find(case, tmp_path)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_accepts(case: Case, tmp_path: Path) -> None:
    """The rule has nothing to say about the spec, or the trainer, beside it that is right."""
    must_accept(case, tmp_path)


def test_every_rule_has_cases() -> None:
    """No rule about the trainer is without a failing and a passing case."""
    assert {case.rule for case in CASES} == {rule.id for rule in rules.RULES}


def test_the_base_is_clean(tmp_path: Path) -> None:
    """The study and the trainer that the cases start from fit each other."""
    assert found(rules.RULES, document(STUDY), context(trainer_of(tmp_path, PLAIN))) == {}


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_without_the_trainer_nothing_needs_it(case: Case) -> None:
    """With no source at hand only what the spec itself shows is found."""
    problems = found(rules.RULES, document(STUDY, case.bad))
    assert set(problems) <= {"argument-and-parameter"}


def test_the_module_is_looked_for(tmp_path: Path) -> None:
    """A module that is not in the trainer is named with the nearest one."""
    from vertexrig.package.source.reader import read

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
def test_flags_the_source_does_not_say_are_not_judged(source: str, tmp_path: Path) -> None:
    """A trainer whose flags cannot all be read gives no finding about unknown ones."""
    problems = found(rules.RULES, document(STUDY, {ARGS: ["--anything=1"]}), context(trainer_of(tmp_path, source)))
    assert not {"argument-unknown", "parameter-unknown"} & set(problems)


def test_ignored_flags_are_a_warning(tmp_path: Path) -> None:
    """parse_known_args lets a wrong name pass: the trial runs, and the parameter does nothing."""
    source = swapped("args = parser.parse_args()", "args, _ = parser.parse_known_args()")
    changes = {f"{PARAMETER}.parameterId": "units"}
    ((severity, _, message),) = found(rules.RULES, document(STUDY, changes), context(trainer_of(tmp_path, source)))[
        "parameter-unknown"
    ]
    assert severity == "warning" and "no effect" in message and "--num_units" in message


def test_unknown_arguments_the_trainer_refuses_itself_are_an_error(tmp_path: Path) -> None:
    """A trainer that calls parser.error on what parse_known_args leaves over does not ignore it."""
    source = swapped(
        "args = parser.parse_args()",
        "args, rest = parser.parse_known_args()\n    if rest:\n        parser.error(f'unknown {rest}')",
    )
    problems = found(
        rules.RULES, document(STUDY, {ARGS: ["--epoch=1", "--verbose=1"]}), context(trainer_of(tmp_path, source))
    )
    assert [severity for severity, _, _ in problems["argument-unknown"]] == ["error"]


def test_a_reduction_server_is_not_the_trainer(tmp_path: Path) -> None:
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
    assert found(rules.RULES, document(STUDY, changes), context(trainer_of(tmp_path, PLAIN))) == {}


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
def test_custom_containers(container: dict[str, Any], expected: set[str], tmp_path: Path) -> None:
    """A container's args are the trainer's unless a shell or another module takes them."""
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": "x/y:z", **container},
    }
    checked = spec.from_data({**JOB, "workerPoolSpecs": [pool]})
    assert set(found(rules.RULES, checked, context(trainer_of(tmp_path, PLAIN)))) == expected


def test_pools_with_the_same_args_are_told_once(tmp_path: Path) -> None:
    """Chief and workers share their arguments: one mistake is one finding."""
    pool = document(STUDY, {ARGS: ["--epoch_count=1"]}).data["trialJobSpec"]["workerPoolSpecs"][0]
    checked = document(STUDY, {"trialJobSpec.workerPoolSpecs": [pool, pool]})
    assert len(found(rules.RULES, checked, context(trainer_of(tmp_path, PLAIN)))["argument-unknown"]) == 1


_WORD = st.one_of(
    st.sampled_from(
        [
            "--epochs",
            "--epochs=",
            "--epochs=1",
            "-",
            "--",
            "--=1",
            "=",
            "--cache",
            "1",
            "-1",
            "-m",
            "trainer.task",
            '--x="a"',
        ]
    ),
    st.text(max_size=6),
)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[TrainerSource]:
    texts = {case.trainer for case in CASES} | {case.better for case in CASES if case.better}
    return [trainer_of(tmp_path_factory.mktemp("trainer"), text) for text in sorted(texts)]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.lists(_WORD, max_size=5), st.sampled_from(CASES))
def test_no_arguments_make_a_rule_fail(
    sources: list[TrainerSource], data: st.DataObject, args: list[str], case: Case
) -> None:
    """Any command line with any of the trainers and studies above ends without an exception."""
    source = data.draw(st.sampled_from(sources))
    found(rules.RULES, document(STUDY, {**case.bad, ARGS: args}), context(source))


def test_choices_of_another_module_are_known(tmp_path: Path) -> None:
    """Choices that stand as a constant in a module beside the entry are held against args too."""
    source = flags('"--optimizer", choices=config.OPTIMIZERS').replace(
        "import hypertune", "import hypertune\nfrom trainer import config"
    )
    trainer = trainer_of(tmp_path, source, config='OPTIMIZERS = ("sgd", "adam")\n')
    problems = found(rules.RULES, document(STUDY, {ARGS: ["--optimizer=adams"]}), context(trainer))
    assert "sgd, adam" in problems["argument-parse"][0][2]


def test_a_flag_of_several_values_takes_the_words_behind_it(tmp_path: Path) -> None:
    """nargs="+" takes every word up to the next flag, and each must parse."""
    trainer = trainer_of(tmp_path, flags('"--layers", nargs="+", type=int'))
    good = found(rules.RULES, document(STUDY, {ARGS: ["--layers", "1", "2", "3", "--epochs", "1"]}), context(trainer))
    bad = found(rules.RULES, document(STUDY, {ARGS: ["--layers", "1", "two"]}), context(trainer))
    assert good == {} and bad["argument-parse"][0][1] == f"{ARGS}[2]"


@pytest.mark.parametrize(
    ("name", "meant"), [("lr", "learning_rate"), ("lrate", "learning_rate"), ("n_units", "num_units")]
)
def test_shortened_names_are_recognised(name: str, meant: str, tmp_path: Path) -> None:
    """`lr` means learning_rate, though the two look nothing alike."""
    changes = {f"{PARAMETER}.parameterId": name}
    problems = found(rules.RULES, document(STUDY, changes), context(trainer_of(tmp_path, PLAIN)))
    assert f"Did you mean '--{meant}'?" in problems["parameter-unknown"][0][2]


def test_values_of_ignored_arguments_are_not_judged(tmp_path: Path) -> None:
    """Words that stand alone are no error where unknown arguments are ignored, nor where another parser reads them."""
    source = swapped("args = parser.parse_args()", "args, _ = parser.parse_known_args()")
    assert found(rules.RULES, document(STUDY, {ARGS: ["train"]}), context(trainer_of(tmp_path, source))) == {}
