"""One failing and one passing study per rule on studies and their parameters."""

from __future__ import annotations

from typing import Any

from tests.vertexrig.checks.cases import Case
from tests.vertexrig.checks.job_bases import DROP, LATER

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
         {f"{P}[0].doubleValueSpec": {"minValue": 0.1, "maxValue": 1}}, f"{P}[0].doubleValueSpec.minValue"),
    Case("parameter-bounds", "study", {f"{P}[0].doubleValueSpec": {"minValue": 0.1, "maxValue": 0.1}}, {},
         f"{P}[0].doubleValueSpec.minValue"),
    Case("parameter-bounds", "study", {f"{P}[0]": parameter(integerValueSpec={"minValue": 9, "maxValue": "1"})},
         {f"{P}[0]": parameter(integerValueSpec={"minValue": 0, "maxValue": "1"})},
         f"{P}[0].integerValueSpec.minValue"),
    Case("parameter-one-value", "study", {f"{P}[1]": parameter(categoricalValueSpec={"values": ["a"]})},
         {f"{P}[1]": parameter(categoricalValueSpec={"values": ["a", "b"]})}, f"{P}[1].categoricalValueSpec"),
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
