"""The rules about studies: each has a spec it finds something in and one it accepts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.vertexrig.checks.cases import document, found
from tests.vertexrig.checks.job_bases import DROP
from tests.vertexrig.checks.job_bases import TRAINER_STUDY as STUDY
from tests.vertexrig.checks.study_cases import GRID, OPTIMIZER, STOP, P, conditional, on, parameter
from vertexrig import spec
from vertexrig.checks import study


def test_the_base_study_is_clean() -> None:
    """The spec that all cases start from has no finding, of the strict reading neither."""
    base = document(STUDY)
    assert found(study.RULES, base) == {} and base.findings == ()


def test_a_custom_job_has_no_study_findings() -> None:
    """A CustomJobSpec is left alone by every rule about studies."""
    assert found(study.RULES, spec.from_data(STUDY["trialJobSpec"], kind="CustomJobSpec")) == {}


@pytest.mark.parametrize(
    "changes",
    [
        {f"{P}[0].doubleValueSpec.minValue": "a"},
        {f"{P}[1].discreteValueSpec.values": ["large"]},
        {f"{P}[1]": parameter(categoricalValueSpec={"values": [1, 2]})},
        {"studySpec.metrics[0].goal": "MAX"},
        {"studySpec.metrics[0].metricId": 7},
        {"maxTrialCount": "many"},
        {"maxFailedTrialCount": 1.5},
        {"trialJobSpec.scheduling.timeout": 3600},
        {f"{P}[0].scaleType": "LOG"},
        {f"{P}[0].doubleValueSpec": {"minvalue": 1, "maxValue": 2}},
        {"studySpec.metrics": 5},
        {P: "x"},
    ],
    ids=str,
)
def test_a_refused_value_is_reported_once(changes: dict[str, Any]) -> None:
    """What the strict reading refused is not reported again as missing."""
    checked = document(STUDY, changes)
    assert checked.findings
    assert found(study.RULES, checked) == {}


def test_missing_counts_are_warnings_as_gcloud_has_flags_for_them() -> None:
    """Google's own example files leave the trial counts to gcloud's flags: no error then, but 0 is one."""
    absent = found(study.RULES, document(STUDY, {"maxTrialCount": DROP, "parallelTrialCount": DROP}))
    zero = found(study.RULES, document(STUDY, {"maxTrialCount": 0}))
    assert {absent["max-trial-count"][0][0], absent["parallel-trial-count"][0][0]} == {"warning"}
    assert zero["max-trial-count"][0][0] == "error"


def test_the_grid_counts_conditional_branches() -> None:
    """A child adds its values only where its parent's value makes it active."""
    child = {"parameterId": "momentum", "discreteValueSpec": {"values": [0.5, 0.9, 0.99]}}
    tree = conditional(OPTIMIZER, on(["sgd"], child))  # sgd with 3 momenta, adam alone
    changes = {**GRID, f"{P}[0]": tree, "maxTrialCount": 20}  # times 5 layers
    assert "grid-size" not in found(study.RULES, document(STUDY, changes))
    assert "grid-size" in found(study.RULES, document(STUDY, {**changes, "maxTrialCount": 30}))


def test_nested_children_are_parameters_too() -> None:
    """Parameters under parameters are walked at every depth, with their own paths."""
    inner = conditional(
        {"parameterId": "inner", "discreteValueSpec": {"values": [1, 2]}}, on([3], kind="parentDiscreteValues")
    )
    outer = document(STUDY, {f"{P}[1]": conditional(OPTIMIZER, on(["sgd"], inner))})
    assert [item.id for item in outer.parameters] == ["learning_rate", "optimizer", "inner", "momentum"]
    path = f"{P}[1].conditionalParameterSpecs[0].parameterSpec.conditionalParameterSpecs[0]"
    assert found(study.RULES, outer)["condition-values"][0][1] == f"{path}.parentDiscreteValues.values[0]"


def test_a_huge_integer_range_is_counted_not_listed() -> None:
    """A grid over the whole of int64 is answered at once."""
    wide = parameter(integerValueSpec={"minValue": -(2**63), "maxValue": 2**63 - 1}, scaleType="UNIT_LINEAR_SCALE")
    message = found(study.RULES, document(STUDY, {**GRID, f"{P}[0]": wide}))["grid-size"][0][2]
    assert "more than 10^15" in message


def test_bounds_themselves_are_allowed() -> None:
    """One trial, one at a time, a limit at the last trial and an end today are no mistakes."""
    single = found(
        study.RULES, document(STUDY, {"maxTrialCount": 1, "parallelTrialCount": 1, "maxFailedTrialCount": 0})
    )
    assert set(single) == {"trials-per-parameter"}
    end = {"maximumRuntimeConstraint": {"endTime": "2026-11-20T23:00:00Z"}, "maxNumTrials": 40}
    assert found(study.RULES, document(STUDY, {STOP: end})) == {}


def test_two_of_seven_trials_at_a_time_are_told() -> None:
    """The rule on parallel trials begins with two at a time."""
    changes = {"maxTrialCount": 7, "parallelTrialCount": 2, "maxFailedTrialCount": 1}
    assert "parallel-trials-blind" in found(study.RULES, document(STUDY, changes))


def test_one_value_in_a_grid_is_only_an_info() -> None:
    """In a grid a list of one value is how a parameter is held where it is."""
    changes = {**GRID, f"{P}[0].discreteValueSpec.values": [16], "maxTrialCount": 5}
    assert found(study.RULES, document(STUDY, changes))["parameter-one-value"][0][0] == "info"


@pytest.mark.parametrize(("first", "second", "clash"), [(["sgd"], ["adam"], False), (["sgd"], ["sgd"], True)])
def test_ids_may_repeat_in_branches_that_exclude_each_other(first: list[str], second: list[str], clash: bool) -> None:
    """Grandchildren of one name are fine below different values of an ancestor, and clash below the same one."""

    def branch(values: list[str], name: str) -> dict[str, Any]:
        middle = {"parameterId": name, "discreteValueSpec": {"values": [1, 2]}}
        return on(values, conditional(middle, on([1], kind="parentDiscreteValues")))

    tree = conditional(OPTIMIZER, branch(first, "a"), branch(second, "b"))
    assert ("parameter-duplicate" in found(study.RULES, document(STUDY, {f"{P}[1]": tree}))) is clash


@pytest.mark.parametrize(("value", "fits"), [(0, False), (1, True), (5, True), (6, False)])
def test_integer_conditions_lie_in_the_parents_bounds(value: int, fits: bool) -> None:
    """Both bounds of an INTEGER parent belong to it."""
    layers = {
        "parameterId": "layers",
        "integerValueSpec": {"minValue": 1, "maxValue": 5},
        "scaleType": "UNIT_LINEAR_SCALE",
    }
    tree = conditional(layers, on([value], kind="parentIntValues"))
    assert ("condition-values" not in found(study.RULES, document(STUDY, {f"{P}[1]": tree}))) is fits
