"""Reading finished studies: the best trials, the table, follow-up grids and narrowed ranges."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vertexrig.errors import UsageError
from vertexrig.local.study import Measurement, Space, StudyEngine
from vertexrig.submit import trials

L2 = {"parameterId": "l2", "doubleValueSpec": {"minValue": 0, "maxValue": 0.2}, "scaleType": "UNIT_LINEAR_SCALE"}
LR = {"parameterId": "lr", "doubleValueSpec": {"minValue": 0.0001, "maxValue": 1}, "scaleType": "UNIT_LOG_SCALE"}
BATCH = {"parameterId": "batch_size", "discreteValueSpec": {"values": [16, 32, 64, 128]}}
HIDDEN = {"parameterId": "num_hidden", "integerValueSpec": {"minValue": 1, "maxValue": 100}}
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
    (winner,) = trials.best(job([L2, BATCH], ROWS))
    assert (winner.id, winner.metrics, winner.parameters) == ("3", {"accuracy": 0.9}, {"l2": 0.02, "batch_size": 64.0})
    (loser,) = trials.best(job([L2, BATCH], ROWS, goal="MINIMIZE"))
    assert loser.id == "1"
    assert trials.best(job([L2, BATCH], ROWS[1:2])) == ()
    half = job([L2, BATCH], ROWS)  # an infeasible trial may still list what it measured before it died
    half["trials"][1]["finalMeasurement"] = {"metrics": [{"metricId": "accuracy", "value": 0.99}]}
    assert [trial.id for trial in trials.best(half)] == ["3"]
    assert trials.best(job([L2], [])) == ()


def test_a_value_of_zero_that_json_leaves_out_counts_as_zero() -> None:
    """protobuf's JSON omits a metric value of 0; it must not vanish, nor NaN as text count."""
    study = job([L2], [({"l2": 0.1}, 0.0), ({"l2": 0.1}, 0.5), ({"l2": 0.2}, "NaN")], goal="MINIMIZE")
    del study["trials"][0]["finalMeasurement"]["metrics"][0]["value"]
    assert [trial.id for trial in trials.best(study)] == ["1"]


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
    assert trials.results(sdk) == trials.results(rest)
    assert trials.table(sdk) == trials.table(rest)


def two_goals(*values: tuple[float, float]) -> dict[str, Any]:
    study = job([L2], [({"l2": 0.1}, accuracy) for accuracy, _ in values])
    study["studySpec"]["metrics"].append({"metricId": "seconds", "goal": "MINIMIZE"})
    for row, (_, seconds) in zip(study["trials"], values, strict=True):
        row["finalMeasurement"]["metrics"].append({"metricId": "seconds", "value": seconds})
    return study


def test_several_objectives_give_the_pareto_set() -> None:
    """Every trial that no other beats in both goals, the best first goal first."""
    study = two_goals((0.9, 100.0), (0.8, 10.0), (0.7, 50.0), (0.95, 300.0), (0.8, 11.0))
    assert [trial.id for trial in trials.best(study)] == ["4", "1", "2"]


def test_a_safety_metric_excludes_trials() -> None:
    """A trial over the threshold is not the best, whatever its accuracy."""
    study = two_goals((0.9, 100.0), (0.8, 10.0))
    study["studySpec"]["metrics"][1]["safetyConfig"] = {"safetyThreshold": 50}
    assert [trial.id for trial in trials.best(study)] == ["2"]


def test_table_lists_the_best_first_and_what_does_not_count_last() -> None:
    """One row per trial, the same columns in each, with the reason of infeasible ones."""
    rows = trials.table(job([L2, BATCH, OPTIMIZER], [({**v, "optimizer": "adam"}, a) for v, a in ROWS]))
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
    (row,) = trials.table(clash)
    assert (row["state"], row["note"], row["trial"]) == ("SUCCEEDED", "best", "1")
    assert row["parameters"] == {"state": 0.1, "note": 0.2, "trial": 0.3, "accuracy": 0.4}
    headings, ((*cells,),) = trials.columns([row])
    assert dict(zip(headings, cells, strict=True)) == {
        "trial": "1", "state": "SUCCEEDED", "parameters.state": 0.1, "parameters.note": 0.2, "parameters.trial": 0.3,
        "parameters.accuracy": 0.4, "metrics.accuracy": 0.9, "seconds": 90.5, "note": "best",
    }  # fmt: skip


def test_follow_up_grid_around_the_best_values() -> None:
    """3 x 3 x 5 values make the 45 combinations of a hand-made follow-up, with their count."""
    study = job([L2, BATCH, HIDDEN], [({"l2": 0.02, "batch_size": 128, "num_hidden": 50}, 0.9)])
    follow = trials.follow_up_grid(study, points={"num_hidden": 5})
    spec = follow["studySpec"]
    assert follow["maxTrialCount"] == 45 and spec["algorithm"] == "GRID_SEARCH"
    l2, batch, hidden = spec["parameters"]
    assert l2["discreteValueSpec"]["values"] == [0.0, 0.02, 0.05]
    assert batch["discreteValueSpec"]["values"] == [32.0, 64.0, 128.0]
    assert hidden["categoricalValueSpec"]["values"] == ["38", "44", "50", "56", "62"]
    assert StudyEngine(spec).space.size == 45


def test_follow_up_grid_sends_whole_numbers_as_before() -> None:
    """An INTEGER never turns into 50.0: neighbours stay an INTEGER, and others are sent as the same text."""
    study = job([HIDDEN], [({"num_hidden": 2}, 0.9)])
    near = trials.follow_up_grid(study, width=0.01)["studySpec"]["parameters"][0]
    assert near["integerValueSpec"] == {"minValue": 1, "maxValue": 3}
    far = trials.follow_up_grid(study)["studySpec"]
    engine = StudyEngine(far)
    assert engine.command_line(engine.suggest("1")) == ["--num_hidden=2"]


def test_follow_up_grid_keeps_the_branch_of_the_best_trial() -> None:
    """Conditional parameters of the best trial become plain ones, and their parent stays."""
    study = job([OPTIMIZER], [({"optimizer": "adam"}, 0.5), ({"optimizer": "sgd", "momentum": 0.9}, 0.8)])
    optimizer, momentum = trials.follow_up_grid(study)["studySpec"]["parameters"]
    assert optimizer["categoricalValueSpec"]["values"] == ["sgd"]
    assert 0.9 in momentum["discreteValueSpec"]["values"] and len(momentum["discreteValueSpec"]["values"]) == 3
    other = trials.follow_up_grid(study, trial="1")["studySpec"]["parameters"]
    assert [row["parameterId"] for row in other] == ["optimizer"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"points": {"bach_size": 3}}, "Did you mean 'batch_size'"),
        ({"points": 0}, "least is 1"),
        ({"width": 0.0}, "above 0"),
        ({"trial": "77"}, "no trial '77'"),
        ({"trial": ""}, "none of the 1 trials"),
    ],
)
def test_follow_up_grid_says_what_is_wrong(more: dict, says: str) -> None:
    """A wrong name, count, width or trial, and a study in which no trial counts."""
    rows = ROWS[:1] if more != {"trial": ""} else ROWS[1:2]
    with pytest.raises(UsageError, match=says):
        trials.follow_up_grid(job([L2, BATCH], rows), **more)
    with pytest.raises(UsageError, match="name one"):
        trials.follow_up_grid(two_goals((0.9, 2.0), (0.8, 1.0)))


def test_narrow_keeps_where_the_best_trials_lie() -> None:
    """Ranges shrink to the best trials and a margin, on the parameter's own scale; conditions follow."""
    rows = [
        ({"lr": 0.01, "batch_size": 32, "optimizer": "sgd", "momentum": 0.8}, 0.9),
        ({"lr": 0.1, "batch_size": 32, "optimizer": "sgd", "momentum": 0.9}, 0.8),
        ({"lr": 0.0001, "batch_size": 128, "optimizer": "adam"}, 0.1),
    ]
    spec = trials.narrow(job([LR, BATCH, OPTIMIZER], rows), top=2, margin=0.0)["studySpec"]
    lr, batch, optimizer = spec["parameters"]
    assert lr["doubleValueSpec"] == {"minValue": pytest.approx(0.01), "maxValue": pytest.approx(0.1)}
    assert lr["scaleType"] == "UNIT_LOG_SCALE"
    assert batch["discreteValueSpec"]["values"] == [32.0]
    assert optimizer["categoricalValueSpec"]["values"] == ["sgd"]
    child = optimizer["conditionalParameterSpecs"][0]["parameterSpec"]["doubleValueSpec"]
    assert child == {"minValue": pytest.approx(0.8), "maxValue": pytest.approx(0.9)}
    only_adam = trials.narrow(job([OPTIMIZER], [({"optimizer": "adam"}, 0.9)]))["studySpec"]["parameters"][0]
    assert "conditionalParameterSpecs" not in only_adam
    wider = trials.narrow(job([LR], [({"lr": 0.01}, 0.9)]), margin=0.1)["studySpec"]["parameters"][0]
    assert wider["doubleValueSpec"] == {"minValue": pytest.approx(10**-2.4), "maxValue": pytest.approx(10**-1.6)}
    with pytest.raises(UsageError, match="out of memory"):
        trials.narrow(job([L2, BATCH], ROWS[1:2]))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([L2, LR, BATCH, HIDDEN, OPTIMIZER]), min_size=1, max_size=5, unique_by=lambda row: row["parameterId"]),
    st.integers(0, 1000), st.integers(1, 7), st.floats(0.001, 1.0),
)  # fmt: skip
def test_follow_ups_lie_within_the_study_and_hold_its_best(
    parameters: list[dict], seed: int, points: int, width: float
) -> None:
    """For any study: grid and narrowed ranges are valid, inside the old space, and contain the best trial."""
    engine = StudyEngine(
        {"metrics": [{"metricId": "accuracy"}], "parameters": parameters, "algorithm": "RANDOM_SEARCH"}, seed=seed
    )
    for i in range(1, 6):
        engine.suggest(str(i))
        engine.complete(str(i), Measurement(1, 1.0, {"accuracy": float((seed * i) % 7)}))
    study = {"studySpec": engine.spec, "trials": [trial.to_dict() for trial in engine.trials.values()]}
    (winner,) = trials.best(study)
    follow = trials.follow_up_grid(study, points=points, width=width)
    grid = StudyEngine(follow["studySpec"]).space
    assert grid.size == follow["maxTrialCount"] >= 1
    sent = [
        dict(flag.lstrip("-").split("=") for flag in grid.command_line(grid.combination(i)))
        for i in range(min(grid.size, 500))
    ]
    for combination in sent:
        rows = [
            {"parameterId": name, "value": text if name == "optimizer" else float(text)}
            for name, text in combination.items()
        ]
        assert engine.space.read(rows) is not None
    if grid.size <= 500:
        best = {name: value if isinstance(value, str) else float(value) for name, value in winner.parameters.items()}
        assert best in [
            {name: text if name == "optimizer" else float(text) for name, text in row.items()} for row in sent
        ]
    narrowed = Space(trials.narrow(study, top=2)["studySpec"]["parameters"])
    rows = [{"parameterId": name, "value": value} for name, value in winner.parameters.items()]
    assert narrowed.read(rows) is not None
