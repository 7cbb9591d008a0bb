"""Reading finished studies: the best trials and the table."""

from __future__ import annotations

import json
import math
from typing import Any

from vertexrig.cloud.vertex import RemoteJob
from vertexrig.results import trials
from vertexrig.results.study import StudyRecord, read

L2 = {"parameterId": "l2", "doubleValueSpec": {"minValue": 0, "maxValue": 0.2}, "scaleType": "UNIT_LINEAR_SCALE"}
LR = {"parameterId": "lr", "doubleValueSpec": {"minValue": 0.0001, "maxValue": 1}, "scaleType": "UNIT_LOG_SCALE"}
BATCH = {"parameterId": "batch_size", "discreteValueSpec": {"values": [16, 32, 64, 128]}}
OPTIMIZER = {
    "parameterId": "optimizer",
    "categoricalValueSpec": {"values": ["adam", "sgd"]},
    "conditionalParameterSpecs": [
        {
            "parentCategoricalValues": {"values": ["sgd"]},
            "parameterSpec": {"parameterId": "momentum", "doubleValueSpec": {"minValue": 0, "maxValue": 1}},
        }
    ],
}


def study_of(job: dict[str, Any]) -> StudyRecord:
    return read(RemoteJob(job))


def job(parameters: list[dict], rows: list[tuple[dict, Any]], goal: Any = "MAXIMIZE") -> dict[str, Any]:
    """A finished job: each row gives a trial's parameters and its accuracy, or None for an infeasible one."""
    listed = []
    for number, (values, accuracy) in enumerate(rows, 1):
        trial = {
            "id": str(number),
            "state": "INFEASIBLE" if accuracy is None else "SUCCEEDED",
            "parameters": [{"parameterId": name, "value": value} for name, value in values.items()],
            "startTime": "2026-11-20T10:00:00Z",
            "endTime": "2026-11-20T10:01:30.500Z",
        }
        if accuracy is None:
            trial["infeasibleReason"] = "out of memory"
        else:
            trial["finalMeasurement"] = {"stepCount": "1", "metrics": [{"metricId": "accuracy", "value": accuracy}]}
        listed.append(trial)
    metrics = [{"metricId": "accuracy", "goal": goal}]
    return {"studySpec": {"metrics": metrics, "parameters": parameters}, "trials": listed}


ROWS: list[tuple[dict, Any]] = [
    ({"l2": 0.1, "batch_size": 32}, 0.7),
    ({"l2": 0.2, "batch_size": 64}, None),
    ({"l2": 0.02, "batch_size": 64.0}, 0.9),
    ({"l2": 0.03, "batch_size": 16}, math.nan),
    ({"l2": 0.05, "batch_size": 16}, 0.9),
]


def test_best_follows_the_goal_and_passes_over_what_does_not_count() -> None:
    """None, nan and infeasible trials never win, and of two equal trials the first does."""
    (winner,) = study_of(job([L2, BATCH], ROWS)).best
    assert (winner.id, winner.metrics, winner.parameters) == ("3", {"accuracy": 0.9}, {"l2": 0.02, "batch_size": 64.0})
    (loser,) = study_of(job([L2, BATCH], ROWS, goal="MINIMIZE")).best
    assert loser.id == "1"
    assert study_of(job([L2, BATCH], ROWS[1:2])).best == ()
    half = job([L2, BATCH], ROWS)  # an infeasible trial may still list what it measured before it died
    half["trials"][1]["finalMeasurement"] = {"metrics": [{"metricId": "accuracy", "value": 0.99}]}
    assert [trial.id for trial in study_of(half).best] == ["3"]
    assert study_of(job([L2], [])).best == ()


def test_a_value_of_zero_that_json_leaves_out_counts_as_zero() -> None:
    """Protobuf's JSON omits a metric value of 0; it must not vanish, nor NaN as text count."""
    study = job([L2], [({"l2": 0.1}, 0.0), ({"l2": 0.1}, 0.5), ({"l2": 0.2}, "NaN")], goal="MINIMIZE")
    del study["trials"][0]["finalMeasurement"]["metrics"][0]["value"]
    assert [trial.id for trial in study_of(study).best] == ["1"]


def test_the_sdk_s_dictionaries_are_read_too() -> None:
    """to_dict() of the SDK's own message (snake_case, enums as numbers) says the same as REST."""
    from google.cloud.aiplatform_v1.types import HyperparameterTuningJob

    rest = job([L2, BATCH, OPTIMIZER], [({**values, "optimizer": "adam"}, value) for values, value in ROWS[:3]])
    proto = HyperparameterTuningJob.from_json(json.dumps({"studySpec": rest["studySpec"]}))
    sdk = HyperparameterTuningJob.to_dict(proto)
    sdk["trials"] = [
        {
            "id": row["id"],
            "state": 4 if row["state"] == "SUCCEEDED" else 5,
            "parameters": [{"parameter_id": own["parameterId"], "value": own["value"]} for own in row["parameters"]],
            "start_time": row["startTime"],
            "end_time": row["endTime"],
            "infeasible_reason": row.get("infeasibleReason", ""),
            "final_measurement": {
                "metrics": [
                    {"metric_id": own["metricId"], "value": own["value"]}
                    for own in row.get("finalMeasurement", {}).get("metrics", [])
                ]
            },
        }
        for row in rest["trials"]
    ]
    assert study_of(sdk).trials == study_of(rest).trials
    assert study_of(sdk).table() == study_of(rest).table()


def two_goals(*values: tuple[float, float]) -> dict[str, Any]:
    study = job([L2], [({"l2": 0.1}, accuracy) for accuracy, _ in values])
    study["studySpec"]["metrics"].append({"metricId": "seconds", "goal": "MINIMIZE"})
    for row, (_, seconds) in zip(study["trials"], values, strict=True):
        row["finalMeasurement"]["metrics"].append({"metricId": "seconds", "value": seconds})
    return study


def test_several_objectives_give_the_pareto_set() -> None:
    """Every trial that no other beats in both goals, the best first goal first."""
    study = two_goals((0.9, 100.0), (0.8, 10.0), (0.7, 50.0), (0.95, 300.0), (0.8, 11.0))
    assert [trial.id for trial in study_of(study).best] == ["4", "1", "2"]


def test_a_safety_metric_excludes_trials() -> None:
    """A trial over the threshold is not the best, whatever its accuracy."""
    study = two_goals((0.9, 100.0), (0.8, 10.0))
    study["studySpec"]["metrics"][1]["safetyConfig"] = {"safetyThreshold": 50}
    assert [trial.id for trial in study_of(study).best] == ["2"]


def test_table_lists_the_best_first_and_what_does_not_count_last() -> None:
    """One row per trial, the same columns in each, with the reason of infeasible ones."""
    rows = study_of(job([L2, BATCH, OPTIMIZER], [({**v, "optimizer": "adam"}, a) for v, a in ROWS])).table()
    assert [row["trial"] for row in rows] == ["3", "5", "1", "2", "4"]
    assert {tuple(row) for row in rows} == {("trial", "state", "parameters", "metrics", "seconds", "note")}
    assert {tuple(row["parameters"]) for row in rows} == {("l2", "batch_size", "optimizer", "momentum")}
    assert rows[0]["note"] == "best" and rows[3]["note"] == "out of memory" and rows[0]["seconds"] == 90.5
    assert rows[0]["parameters"]["momentum"] is None and rows[3]["metrics"]["accuracy"] is None


def test_parameters_keep_their_own_columns() -> None:
    """A parameter or metric called like another column, or like each other, is neither lost nor mixed up with it."""
    clash = job([{**L2, "parameterId": name} for name in ("state", "note", "trial", "accuracy")], [
        ({"state": 0.1, "note": 0.2, "trial": 0.3, "accuracy": 0.4}, 0.9)
    ])  # fmt: skip
    (row,) = study_of(clash).table()
    assert (row["state"], row["note"], row["trial"]) == ("SUCCEEDED", "best", "1")
    assert row["parameters"] == {"state": 0.1, "note": 0.2, "trial": 0.3, "accuracy": 0.4}
    headings, ((*cells,),) = trials.columns([row])
    assert dict(zip(headings, cells, strict=True)) == {
        "trial": "1", "state": "SUCCEEDED", "parameters.state": 0.1, "parameters.note": 0.2, "parameters.trial": 0.3,
        "parameters.accuracy": 0.4, "metrics.accuracy": 0.9, "seconds": 90.5, "note": "best",
    }  # fmt: skip
