"""The rules about studies: each has a spec it finds something in and one it accepts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from cases import Case, document, found, must_accept, must_find, names
from hypothesis import given, settings
from hypothesis import strategies as st
from job_bases import DROP, LATER, changed
from job_bases import TRAINER_STUDY as STUDY

from vertexrig import spec
from vertexrig.checks import study

P = "studySpec.parameters"
DOUBLE = {"minValue": 0.0, "maxValue": 1.0}
CHILD = {"parameterId": "momentum", "doubleValueSpec": DOUBLE, "scaleType": "UNIT_LINEAR_SCALE"}
OPTIMIZER = {"parameterId": "optimizer", "categoricalValueSpec": {"values": ["sgd", "adam"]}}
STOP = "studySpec.studyStoppingConfig"
CONVEX = "studySpec.convexAutomatedStoppingSpec"


def conditional(parent: dict[str, Any], *items: dict[str, Any]) -> dict[str, Any]:
    return {**parent, "conditionalParameterSpecs": list(items)}


def on(values: list[Any], child: dict[str, Any] = CHILD, kind: str = "parentCategoricalValues") -> dict[str, Any]:
    return {kind: {"values": values}, "parameterSpec": child}


def parameter(**value: Any) -> dict[str, Any]:
    return {"parameterId": "x", **value}


GRID = {
    "studySpec.algorithm": "GRID_SEARCH",
    f"{P}[0]": {"parameterId": "batch_size", "discreteValueSpec": {"values": [16, 32, 64]}},
    f"{P}[1]": {
        "parameterId": "layers",
        "integerValueSpec": {"minValue": 1, "maxValue": 5},
        "scaleType": "UNIT_LINEAR_SCALE",
    },
}

CASES = [
    Case("metric-missing", "study", {"studySpec.metrics": DROP}, {}, "studySpec.metrics"),
    Case("metric-missing", "study", {"studySpec.metrics": []}, {}, "studySpec.metrics"),
    Case("metric-id", "study", {"studySpec.metrics[0].metricId": DROP}, {}, "studySpec.metrics[0].metricId"),
    Case("metric-id", "study", {"studySpec.metrics[0].metricId": "val accuracy"},
         {"studySpec.metrics[0].metricId": "val_accuracy"}, "studySpec.metrics[0].metricId"),
    Case("metric-id", "study", {"studySpec.metrics[1]": {"metricId": "accuracy", "goal": "MINIMIZE"}},
         {"studySpec.metrics[1]": {"metricId": "loss", "goal": "MINIMIZE"}}, "studySpec.metrics[1].metricId"),
    Case("metric-goal", "study", {"studySpec.metrics[0].goal": DROP}, {}, "studySpec.metrics[0].goal"),
    Case("metric-goal", "study", {"studySpec.metrics[0].goal": "GOAL_TYPE_UNSPECIFIED"},
         {"studySpec.metrics[0].goal": "MINIMIZE"}, "studySpec.metrics[0].goal"),
    Case("several-objectives", "study", {"studySpec.metrics[1]": {"metricId": "loss", "goal": "MINIMIZE"}},
         {"studySpec.metrics[1]": {"metricId": "loss", "goal": "MINIMIZE", "safetyConfig": {}}}, "studySpec.metrics"),
    Case("safety-metric", "study", {"studySpec.metrics[0].safetyConfig": {"safetyThreshold": 1}},
         {"studySpec.metrics[1]": {"metricId": "loss", "goal": "MINIMIZE", "safetyConfig": {"safetyThreshold": 1}}},
         "studySpec.metrics[0].safetyConfig"),
    Case("safety-metric",
         "study", {"studySpec.metrics[1]": {"metricId": "m", "safetyConfig": {"desiredMinSafeTrialsFraction": 1.5}}},
         {"studySpec.metrics[1]": {"metricId": "m", "safetyConfig": {"desiredMinSafeTrialsFraction": 0.5}}},
         "studySpec.metrics[1].safetyConfig.desiredMinSafeTrialsFraction"),
    Case("parameter-missing", "study", {P: DROP}, {}, P),
    Case("parameter-id", "study", {f"{P}[0].parameterId": DROP}, {}, f"{P}[0].parameterId"),
    Case("parameter-id", "study", {f"{P}[0].parameterId": "learning rate"}, {}, f"{P}[0].parameterId"),
    Case("parameter-duplicate", "study", {f"{P}[1].parameterId": "learning_rate"}, {}, f"{P}[1].parameterId"),
    Case("parameter-duplicate", "study", {f"{P}[2]": conditional(OPTIMIZER, on(["sgd"], {**CHILD, "parameterId": "num_units"}))},
         {f"{P}[2]": conditional(OPTIMIZER, on(["sgd"]), on(["adam"]))},
         f"{P}[2].conditionalParameterSpecs[0].parameterSpec.parameterId"),
    Case("parameter-type", "study", {f"{P}[0].doubleValueSpec": DROP}, {}, f"{P}[0]"),
    Case("parameter-bounds", "study", {f"{P}[0].doubleValueSpec.minValue": DROP}, {}, f"{P}[0].doubleValueSpec"),
    Case("parameter-bounds", "study", {f"{P}[0].doubleValueSpec": {}}, {}, f"{P}[0].doubleValueSpec"),
    Case("parameter-bounds", "study", {f"{P}[0].doubleValueSpec": {"minValue": 1, "maxValue": 0.1}},
         {f"{P}[0].doubleValueSpec": {"minValue": 0.1, "maxValue": 0.1}}, f"{P}[0].doubleValueSpec.minValue"),
    Case("parameter-bounds", "study", {f"{P}[0]": parameter(integerValueSpec={"minValue": 9, "maxValue": "1"})},
         {f"{P}[0]": parameter(integerValueSpec={"minValue": 0, "maxValue": "1"})},
         f"{P}[0].integerValueSpec.minValue"),
    Case("parameter-one-value", "study", {f"{P}[0].doubleValueSpec": {"minValue": 0.1, "maxValue": 0.1}}, {},
         f"{P}[0].doubleValueSpec"),
    Case("parameter-one-value", "study", {f"{P}[1].discreteValueSpec.values": [64]}, {}, f"{P}[1].discreteValueSpec"),
    Case("discrete-values", "study", {f"{P}[1].discreteValueSpec.values": [128, 64]}, {}, f"{P}[1].discreteValueSpec.values[1]"),
    Case("discrete-values", "study", {f"{P}[1].discreteValueSpec.values": [1, 1 + 1e-11]},
         {f"{P}[1].discreteValueSpec.values": [1, 1 + 1e-9]}, f"{P}[1].discreteValueSpec.values[1]"),
    Case("discrete-values", "study", {f"{P}[1].discreteValueSpec.values": []}, {}, f"{P}[1].discreteValueSpec.values"),
    Case("discrete-values", "study", {f"{P}[1].discreteValueSpec.values": list(range(1001))},
         {f"{P}[1].discreteValueSpec.values": list(range(1000))}, f"{P}[1].discreteValueSpec.values"),
    Case("discrete-boolean", "study", {f"{P}[1].discreteValueSpec.values": [False, True]},
         {f"{P}[1]": parameter(categoricalValueSpec={"values": ["false", "true"]})}, f"{P}[1].discreteValueSpec"),
    Case("categorical-values", "study", {f"{P}[1]": parameter(categoricalValueSpec={"values": ["a", "b", "a"]})},
         {f"{P}[1]": parameter(categoricalValueSpec={"values": ["a", "b"]})}, f"{P}[1].categoricalValueSpec.values[2]"),
    Case("categorical-values", "study", {f"{P}[1]": parameter(categoricalValueSpec={})},
         {f"{P}[1]": parameter(categoricalValueSpec={"values": ["a", "b"]})}, f"{P}[1].categoricalValueSpec.values"),
    Case("parameter-default", "study", {f"{P}[0].doubleValueSpec.defaultValue": 0}, {}, f"{P}[0].doubleValueSpec.defaultValue"),
    Case("scale-categorical", "study", {f"{P}[1]": {**OPTIMIZER, "scaleType": "UNIT_LINEAR_SCALE"}},
         {f"{P}[1]": {**OPTIMIZER, "scaleType": "SCALE_TYPE_UNSPECIFIED"}}, f"{P}[1].scaleType"),
    Case("scale-positive", "study", {f"{P}[0].doubleValueSpec.minValue": 0}, {}, f"{P}[0].scaleType"),
    Case("scale-positive", "study", {f"{P}[1].scaleType": "UNIT_REVERSE_LOG_SCALE", f"{P}[1].discreteValueSpec.values": [-1, 5]},
         {f"{P}[1].scaleType": "UNIT_REVERSE_LOG_SCALE"}, f"{P}[1].scaleType"),
    Case("scale-missing", "study", {f"{P}[0].scaleType": DROP}, {}, f"{P}[0]"),
    Case("grid-double", "study", {"studySpec.algorithm": "GRID_SEARCH"}, GRID, f"{P}[0].doubleValueSpec"),
    Case("grid-size", "study", {**GRID, "maxTrialCount": 14}, {**GRID, "maxTrialCount": 15}, "maxTrialCount"),
    Case("grid-size", "study", {**GRID, "maxTrialCount": 16}, {"maxTrialCount": 16}, "maxTrialCount"),
    Case("condition-parent", "study", {f"{P}[0].conditionalParameterSpecs": [on(["sgd"])]},
         {f"{P}[1]": conditional(OPTIMIZER, on(["sgd"]))}, f"{P}[0].conditionalParameterSpecs[0]"),
    Case("condition-parent", "study", {f"{P}[1].conditionalParameterSpecs": [on([64], kind="parentIntValues")]},
         {f"{P}[1].conditionalParameterSpecs": [on([64], kind="parentDiscreteValues")]},
         f"{P}[1].conditionalParameterSpecs[0].parentIntValues"),
    Case("condition-values", "study", {f"{P}[1]": conditional(OPTIMIZER, on(["sgd", "rmsprop"]))},
         {f"{P}[1]": conditional(OPTIMIZER, on(["sgd", "adam"]))},
         f"{P}[1].conditionalParameterSpecs[0].parentCategoricalValues.values[1]"),
    Case("condition-values", "study", {f"{P}[1].conditionalParameterSpecs": [{"parameterSpec": CHILD}]},
         {f"{P}[1].conditionalParameterSpecs": [on([128.00000000001], kind="parentDiscreteValues")]},
         f"{P}[1].conditionalParameterSpecs[0]"),
    Case("condition-overlap", "study", {f"{P}[1]": conditional(OPTIMIZER, on(["sgd"]), on(["adam", "sgd"]))},
         {f"{P}[1]": conditional(OPTIMIZER, on(["sgd"]), on(["adam"]))},
         f"{P}[1].conditionalParameterSpecs[1].parameterSpec"),
    Case("condition-spec", "study", {f"{P}[1].conditionalParameterSpecs": [{"parentDiscreteValues": {"values": [64]}}]},
         {f"{P}[1].conditionalParameterSpecs": [on([64], kind="parentDiscreteValues")]},
         f"{P}[1].conditionalParameterSpecs[0]"),
    Case("observation-noise", "study", {"studySpec.observationNoise": "LOW"},
         {"studySpec.observationNoise": "OBSERVATION_NOISE_UNSPECIFIED"}, "studySpec.observationNoise"),
    Case("max-trial-count", "study", {"maxTrialCount": 0}, {}, "maxTrialCount"),
    Case("max-trial-count", "study", {"maxTrialCount": DROP}, {}, "maxTrialCount"),
    Case("max-trial-count", "study", {"maxTrialCount": -3}, {}, "maxTrialCount"),
    Case("parallel-trial-count", "study", {"parallelTrialCount": 0}, {}, "parallelTrialCount"),
    Case("parallel-trial-count", "study", {"parallelTrialCount": DROP}, {}, "parallelTrialCount"),
    Case("parallel-trial-count", "study", {"parallelTrialCount": 41}, {"parallelTrialCount": 40}, "parallelTrialCount"),
    Case("trials-per-parameter", "study", {"maxTrialCount": 19}, {"maxTrialCount": 20}, "maxTrialCount"),
    Case("parallel-trials-blind", "study", {"parallelTrialCount": 11}, {"parallelTrialCount": 10}, "parallelTrialCount"),
    Case("parallel-trials-blind", "study", {"parallelTrialCount": 40},
         {"parallelTrialCount": 40, "studySpec.algorithm": "RANDOM_SEARCH"}, "parallelTrialCount"),
    Case("max-failed-trial-count", "study", {"maxFailedTrialCount": 41}, {"maxFailedTrialCount": 40}, "maxFailedTrialCount"),
    Case("max-failed-trial-count", "study", {"maxFailedTrialCount": -1}, {"maxFailedTrialCount": 0}, "maxFailedTrialCount"),
    Case("first-failure", "study", {"maxFailedTrialCount": DROP}, {"maxFailedTrialCount": 1}, "maxFailedTrialCount"),
    Case("trial-timeout", "study", {"trialJobSpec.scheduling": DROP}, {}, "trialJobSpec.scheduling.timeout"),
    Case("early-stopping", "study", {"studySpec.medianAutomatedStoppingSpec": {}}, {}, "studySpec.medianAutomatedStoppingSpec"),
    Case("convex-stopping", "study", {CONVEX: {"learningRateParameterName": "lr"}},
         {CONVEX: {"learningRateParameterName": "learning_rate"}}, f"{CONVEX}.learningRateParameterName"),
    Case("convex-stopping", "study", {CONVEX: {"minStepCount": 11, "maxStepCount": 10}},
         {CONVEX: {"minStepCount": 1, "maxStepCount": 10}}, f"{CONVEX}.minStepCount"),
    Case("convex-stopping", "study", {CONVEX: {"minMeasurementCount": -1}}, {CONVEX: {}}, f"{CONVEX}.minMeasurementCount"),
    Case("study-stopping", "study", {STOP: {"minNumTrials": 9, "maxNumTrials": 8}},
         {STOP: {"minNumTrials": 8, "maxNumTrials": 8}}, f"{STOP}.minNumTrials"),
    Case("study-stopping", "study", {STOP: {"maxNumTrials": -1}}, {STOP: {"maxNumTrials": 1}}, f"{STOP}.maxNumTrials"),
    Case("study-stopping", "study", {STOP: {"shouldStopAsap": True}}, {STOP: {"maxDurationNoProgress": "60s"}}, STOP),
    Case("study-stopping", "study", {STOP: {"minimumRuntimeConstraint": {"maxDuration": "90s"},
                                   "maximumRuntimeConstraint": {"maxDuration": "60s"}}},
         {STOP: {"maximumRuntimeConstraint": {"maxDuration": "60s"}}}, f"{STOP}.minimumRuntimeConstraint.maxDuration"),
    Case("study-stopping-reached", "study", {STOP: {"maxNumTrials": 41}}, {STOP: {"maxNumTrials": 39}}, f"{STOP}.maxNumTrials"),
    Case("study-stopping-reached", "study", {STOP: {"maximumRuntimeConstraint": {"endTime": "2026-11-01T00:00:00Z"}}},
         {STOP: {"maximumRuntimeConstraint": {"endTime": "2027-11-01T00:00:00Z"}}},
         f"{STOP}.maximumRuntimeConstraint.endTime", today=LATER),
    Case("study-stopping-objectives",
         "study", {STOP: {"maxNumTrialsNoProgress": 5}, "studySpec.metrics[1]": {"metricId": "b", "goal": "MINIMIZE"}},
         {STOP: {"maxNumTrialsNoProgress": 5}}, f"{STOP}.maxNumTrialsNoProgress"),
    Case("measurement-selection", "study", {"studySpec.decayCurveStoppingSpec": {}},
         {"studySpec.decayCurveStoppingSpec": {}, "studySpec.measurementSelectionType": "BEST_MEASUREMENT"},
         "studySpec.measurementSelectionType"),
]  # fmt: skip
IDS = names(CASES)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_finds(case: Case, tmp_path: Path) -> None:
    """The rule finds the mistake, once, where it is."""
    must_find(case, tmp_path)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_accepts(case: Case, tmp_path: Path) -> None:
    """The rule has nothing to say about the spec beside it that is right."""
    must_accept(case, tmp_path)


def test_every_rule_has_cases() -> None:
    """No rule about studies is without a failing and a passing case."""
    assert {case.rule for case in CASES} == {rule.id for rule in study.RULES}


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


_NUMBER = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.sampled_from([0, 1, -1, 64]))
_TEXT = st.one_of(
    st.sampled_from(["", " ", "learning_rate", "sgd", "UNIT_LOG_SCALE", "GRID_SEARCH", "3600s"]), st.text(max_size=5)
)
_KEYS = st.sampled_from(
    re.findall(
        r"\w+",
        """
        metrics metricId goal safetyConfig parameters parameterId doubleValueSpec integerValueSpec discreteValueSpec
        categoricalValueSpec minValue maxValue values scaleType conditionalParameterSpecs parameterSpec
        parentIntValues parentDiscreteValues parentCategoricalValues algorithm studyStoppingConfig maxNumTrials
        maximumRuntimeConstraint endTime maxDuration convexAutomatedStoppingSpec minStepCount maxStepCount studySpec
        maxTrialCount trialJobSpec parallelTrialCount maxFailedTrialCount scheduling timeout workerPoolSpecs
        desiredMinSafeTrialsFraction
        """,
    )
)
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), _NUMBER, _TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=4)),
    max_leaves=25,
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(
        sorted({case.at for case in CASES} | {P, f"{P}[0]", f"{P}[1]", "studySpec", "studySpec.metrics[0]"})
    ),
    ANYTHING,
)
def test_no_value_anywhere_makes_a_rule_fail(path: str, value: Any) -> None:
    """Whatever stands in whatever place, every rule ends without an exception."""
    bases = [STUDY, *(changed(STUDY, case.bad) for case in CASES if case.at == path)]
    for base in bases:
        try:
            data = changed(base, {path: value})
        except (KeyError, IndexError, TypeError):
            continue
        found(study.RULES, spec.from_data(data, kind="HyperparameterTuningJob"))


def _pruned(value: Any, keep: Any) -> Any:
    if isinstance(value, dict):
        return {key: _pruned(item, keep) for key, item in value.items() if keep()}
    return [_pruned(item, keep) for item in value if keep()] if isinstance(value, list) else value


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(CASES), st.data())
def test_no_missing_part_makes_a_rule_fail(case: Case, data: st.DataObject) -> None:
    """Specs of every case with any of their keys and items left out end without an exception."""
    pruned = _pruned(changed(STUDY, case.bad), lambda: data.draw(st.integers(0, 9)) > 0)
    found(study.RULES, spec.from_data(pruned, kind="HyperparameterTuningJob"))


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
