"""The engine: optimisation, goals, measurements, automated stopping, the end of a study, the states of a trial."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from typing import Any

import pytest

from localvertex.jobs.study_engine import StudyEngine, StudyExhausted
from tests.support.tools import calls
from vertexrig.errors import ConfigError
from vertexrig.spec.trial import Measurement, Trial, TrialState
from vertexrig.times import rfc3339, seconds_since_1970

X = {"parameterId": "x", "doubleValueSpec": {"minValue": -5, "maxValue": 5}}
Y = {"parameterId": "y", "doubleValueSpec": {"minValue": 0.0001, "maxValue": 1}, "scaleType": "UNIT_LOG_SCALE"}
UNITS = {"parameterId": "units", "discreteValueSpec": {"values": [16, 32, 64]}}


def study(*parameters: dict, metrics: Any = ("loss", "MINIMIZE"), **more: Any) -> dict:
    rows = [metrics] if isinstance(metrics, tuple) else metrics
    return {
        "metrics": [{"metricId": name, "goal": goal} for name, goal in rows],
        "parameters": list(parameters),
        **more,
    }


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


def best_of(spec: dict, seed: int, trials: int, parallel: int) -> float:
    """The least loss found on a bowl whose floor lies at x=2, y=0.01, with `parallel` trials running at any time."""
    engine = StudyEngine(spec, seed=seed)
    losses = []
    for i in range(1, trials + parallel):
        if i <= trials:
            engine.suggest(str(i))
        if i >= parallel:
            trial = engine.trials[str(i - parallel + 1)]
            x, y = (row["value"] for row in trial.parameters)
            losses.append((x - 2) ** 2 + (math.log10(y) + 2) ** 2)
            engine.complete(trial.id, Measurement(1, 1.0, {"loss": losses[-1]}))
    return min(losses)


@pytest.mark.whole
def test_bayesian_search_in_parallel_beats_random_search() -> None:
    """On a smooth bowl TPE finds half the loss of random search or less, with four trials at a time."""
    random = statistics.median(best_of(study(X, Y, algorithm="RANDOM_SEARCH"), seed, 40, 1) for seed in range(5))
    assert statistics.median(best_of(study(X, Y), seed, 40, parallel=4) for seed in range(5)) < random / 2


def test_bayesian_search_follows_the_goal() -> None:
    """The same values with MAXIMIZE lead to the other end of the range."""
    ends = {}
    for goal in ("MINIMIZE", "MAXIMIZE"):
        engine = StudyEngine(study(X, metrics=("m", goal)), seed=3)
        for i in range(1, 31):
            (row,) = engine.suggest(str(i))
            engine.complete(str(i), Measurement(1, 1.0, {"m": row["value"]}))
        ends[goal] = statistics.mean(trial.parameters[0]["value"] for trial in list(engine.trials.values())[15:])
    assert ends["MINIMIZE"] < -2 and ends["MAXIMIZE"] > 2


def test_infeasible_and_unsafe_regions_are_left() -> None:
    """Trials that fail, or break a safety threshold, draw the search away from where they lie."""
    for safety in (False, True):
        spec = study(X)
        spec["metrics"].append({"metricId": "memory", "goal": "MINIMIZE", "safetyConfig": {"safetyThreshold": 10.0}})
        engine = StudyEngine(spec, seed=5)
        for i in range(1, 41):
            (row,) = engine.suggest(str(i))
            good = row["value"] < 0
            if good or safety:
                engine.complete(
                    str(i), Measurement(1, 1.0, {"loss": 1.0 if good else 0.0, "memory": 5.0 if good else 20.0})
                )
            else:
                engine.complete(str(i), infeasible="out of memory")
        late = [trial.parameters[0]["value"] < 0 for trial in list(engine.trials.values())[20:]]
        assert sum(late) >= 14


def test_several_objectives_are_searched_together() -> None:
    """Two goals that pull apart end with trials on both sides, all with both values."""
    engine = StudyEngine(study(X, metrics=[("a", "MAXIMIZE"), ("b", "MINIMIZE")]), seed=1)
    for i in range(1, 31):
        (row,) = engine.suggest(str(i))
        engine.complete(str(i), Measurement(1, 1.0, {"a": row["value"], "b": row["value"] ** 2}))
    late = [trial.parameters[0]["value"] for trial in list(engine.trials.values())[15:]]
    assert min(late) > -3 and max(late) > 1


def test_a_grid_ends_and_a_low_noise_study_too() -> None:
    """After the last combination `done` says why and `suggest` refuses; a random one repeats itself."""
    for more in ({"algorithm": "GRID_SEARCH"}, {"observationNoise": "LOW"}):
        engine = StudyEngine(study(UNITS, **more))
        assert {engine.suggest(str(i))[0]["value"] for i in range(1, 4)} == {16.0, 32.0, 64.0}
        assert "exhausted" in str(engine.done())
        with pytest.raises(StudyExhausted):
            engine.suggest("4")
    engine = StudyEngine(study(UNITS))
    assert len([engine.suggest(str(i)) for i in range(1, 6)]) == 5 and engine.done() is None


@pytest.mark.whole
def test_a_suggestion_of_a_grid_costs_the_same_after_20000_trials() -> None:
    """A grid with 20,000 trials made gives its next ones by as many calls of functions as one with ten, and misses none."""
    steps = {"parameterId": "steps", "integerValueSpec": {"minValue": 1, "maxValue": 10_000}}
    spec = study(steps, UNITS, algorithm="GRID_SEARCH")
    space = StudyEngine(spec).space

    def engine_after(trials: int) -> StudyEngine:
        # One was made out of turn: the walk passes it.
        made = [*range(trials - 1), trials + 1]
        engine = StudyEngine(spec, trials=[{"id": str(i), "parameters": space.combination(i)} for i in made])
        engine.suggest("before")
        return engine

    def suggest(engine: StudyEngine) -> None:
        for number in range(200):
            assert engine.done() is None
            engine.suggest(f"next-{number}")

    few, many = engine_after(10), engine_after(20_000)
    assert calls(lambda: suggest(many)) <= 1.1 * calls(lambda: suggest(few))
    given = [many.trials[f"next-{number}"].parameters for number in range(2)]
    assert given == [space.combination(at) for at in (20_000, 20_002)]


def test_a_grid_over_a_double_is_refused() -> None:
    """The message names the parameter and what to write instead."""
    with pytest.raises(ConfigError, match="'x'.*discreteValueSpec"):
        StudyEngine(study(X, algorithm="GRID_SEARCH"))


def test_metrics_that_cannot_be_optimised_are_refused() -> None:
    """No metric, one twice, or safety metrics only."""
    safety = {"metricId": "a", "safetyConfig": {}}
    for metrics, says in (
        ([], "no metric"),
        ([safety], "only safety"),
        ([{"metricId": "a"}, {"metricId": "a"}], "used twice"),
    ):
        with pytest.raises(ConfigError, match=says):
            StudyEngine({"metrics": metrics, "parameters": [X]})


def final(selection: str, goal: str, *reports: tuple[int, float, float]) -> Measurement:
    engine = StudyEngine(study(X, metrics=("m", goal), measurementSelectionType=selection))
    engine.suggest("1")
    engine.trials["1"].add([Measurement(step, elapsed, {"m": value}) for step, elapsed, value in reports])
    found = engine.complete("1").final_measurement
    assert found is not None
    return found


def test_last_and_best_measurement() -> None:
    """LAST (also when unset) takes the last one reported, even under a lower step; BEST follows the goal."""
    reports = ((1, 1.0, 0.5), (2, 2.0, 0.9), (3, 3.0, 0.7), (0, 4.0, 0.6))
    for selection in ("LAST_MEASUREMENT", "MEASUREMENT_SELECTION_TYPE_UNSPECIFIED", ""):
        assert final(selection, "MAXIMIZE", *reports).metrics == {"m": 0.6}
    assert final("BEST_MEASUREMENT", "MAXIMIZE", *reports).step == 2
    assert final("BEST_MEASUREMENT", "MINIMIZE", *reports).step == 1


def test_metrics_of_one_step_join_and_measurements_stay_in_order() -> None:
    """One entry per metric becomes one measurement per step, strictly ordered, and nothing is doubled."""
    trial = Trial("1")
    entries = [Measurement(step, 0.5, {name: float(step)}) for step in (1, 2) for name in ("a", "b")]
    assert trial.add([*entries, Measurement(0, 0.7, {"a": 9.0})])
    assert [(own.step, dict(own.metrics)) for own in trial.measurements] == [
        (0, {"a": 9.0}), (1, {"a": 1.0, "b": 1.0}), (2, {"a": 2.0, "b": 2.0}),
    ]  # fmt: skip
    assert not trial.add([Measurement(0, 0.7, {"a": 9.0})])


def test_a_trial_without_its_metric_is_infeasible() -> None:
    """The reason names the metric, and the states have no way back."""
    engine = StudyEngine(study(X))
    engine.suggest("1")
    trial = engine.complete("1")
    assert (trial.state, trial.final_measurement) == (TrialState.INFEASIBLE, None)
    assert "loss" in trial.infeasible_reason
    for state in TrialState:
        with pytest.raises(ValueError, match="cannot go from INFEASIBLE"):
            trial.move(state, at=0.0)


def test_trials_are_listed_as_the_api_lists_them() -> None:
    """The listing parses into Google's own Trial message, and a record rebuilds the trial."""
    from google.protobuf import json_format

    from vertexrig.spec import messages

    engine = StudyEngine(study(X, UNITS))
    engine.suggest("1")
    engine.trials["1"].add([Measurement(3, 1.25, {"loss": 0.5})])
    trial = engine.complete("1")
    trial.custom_job = "projects/1/locations/r/customJobs/2"
    listed = trial.to_dict()
    listed["startTime"] = listed["endTime"] = "2026-01-31T12:00:00.123456Z"
    job = messages.to_message("HyperparameterTuningJob", {"trials": [listed]})
    assert json_format.MessageToDict(job)["trials"] == [listed]
    assert listed["measurements"][0] == {
        "elapsedDuration": "1.250s", "stepCount": "3", "metrics": [{"metricId": "loss", "value": 0.5}],
    }  # fmt: skip
    assert [Measurement(1, own, {}).to_dict()["elapsedDuration"] for own in (0, 7.0, 0.25, 1 / 3)] == [
        "0s", "7s", "0.250s", "0.333333s",
    ]  # fmt: skip
    trial.failed = True
    assert Trial.from_dict(json.loads(json.dumps(trial.record()))) == trial


def test_timestamps_go_there_and_back() -> None:
    """Also those with nanoseconds, without a fraction, and with an offset."""
    assert seconds_since_1970(rfc3339(1_790_000_000.25)) == 1_790_000_000.25
    for text in ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000000999Z", "2026-01-31T13:00:00.0+01:00"):
        assert seconds_since_1970(text) == 1769860800.0


def with_curves(stopping: dict, curves: list[list[float]], current: list[float], gap: float = 1.0) -> bool:
    """Whether a trial with the values `current` is stopped, after trials that ended with `curves`."""
    engine = StudyEngine(study(X, metrics=("acc", "MAXIMIZE"), **stopping), seed=0)
    for i, values in enumerate([*curves, current], 1):
        engine.suggest(str(i))
        speed = 10 * gap if values is current else gap
        engine.trials[str(i)].add([Measurement(step, step * speed, {"acc": v}) for step, v in enumerate(values, 1)])
        if values is not current:
            engine.complete(str(i))
    return engine.should_stop(str(len(curves) + 1))


GOOD = [[0.3, 0.5, 0.7, 0.8, 0.85, 0.9 + i / 1000] for i in range(6)]


def test_median_rule_compares_with_the_others_up_to_the_same_step() -> None:
    """Stopped strictly below the median running average by then, not for being below their final values."""
    rule: dict[str, Any] = {"medianAutomatedStoppingSpec": {}}
    assert with_curves(rule, GOOD, [0.1, 0.2, 0.3])
    assert not with_curves(rule, GOOD, [0.1, 0.2, 0.51])
    assert not with_curves(rule, GOOD, [0.5])
    assert not with_curves(rule, GOOD[:2], [0.1, 0.1])  # too few have ended
    assert not with_curves(rule, GOOD, [])


def test_median_rule_by_elapsed_time() -> None:
    """The same values, reported ten times slower, are late by the clock and in time by the step."""
    assert with_curves({"medianAutomatedStoppingSpec": {"useElapsedDuration": True}}, GOOD, [0.6])
    assert not with_curves({"medianAutomatedStoppingSpec": {}}, GOOD, [0.6])


def test_median_rule_follows_a_goal_to_minimise() -> None:
    """For a loss, more is worse."""
    for value, stopped in ((5.0, True), (0.1, False)):
        engine = StudyEngine(study(X, medianAutomatedStoppingSpec={}))
        for i in range(1, 6):
            engine.suggest(str(i))
            engine.trials[str(i)].add([Measurement(1, 1.0, {"loss": value if i == 5 else 1.0})])
            if i < 5:
                engine.complete(str(i))
        assert engine.should_stop("5") is stopped


def test_decay_curve_rule_extrapolates_by_the_others_gains() -> None:
    """A trial whose likely end is far below the best is stopped, one on the way there is not."""
    rule: dict[str, Any] = {"decayCurveStoppingSpec": {}}
    assert with_curves(rule, GOOD, [0.1, 0.2])
    assert not with_curves(rule, GOOD, [0.3, 0.52])
    assert not with_curves(rule, GOOD[:4], [0.1, 0.2])
    assert not with_curves(rule, GOOD, [0.1] * 6)  # at the end already


def test_convex_rule_stops_what_even_a_straight_line_cannot_save() -> None:
    """The slope overestimates the end; flat curves and early steps are left alone."""
    rule: dict[str, Any] = {"convexAutomatedStoppingSpec": {"maxStepCount": 10, "minMeasurementCount": 3}}
    assert with_curves(rule, GOOD, [0.10, 0.11, 0.12])
    assert not with_curves(rule, GOOD, [0.1, 0.25, 0.4])
    assert not with_curves(rule, GOOD, [0.1, 0.1, 0.1])
    assert not with_curves(rule, GOOD, [0.10, 0.11])
    late: dict[str, Any] = {
        "convexAutomatedStoppingSpec": {"maxStepCount": 10, "minStepCount": 5, "minMeasurementCount": 3}
    }
    assert not with_curves(late, GOOD, [0.10, 0.11, 0.12])


def ended(engine: StudyEngine, trial_id: str, loss: float) -> None:
    engine.suggest(trial_id)
    engine.complete(trial_id, Measurement(1, 1.0, {"loss": loss}))


def test_study_stopping_by_trials_and_progress() -> None:
    """MaxNumTrials and maxNumTrialsNoProgress end a study, and minNumTrials holds both back."""
    engine = StudyEngine(study(X, studyStoppingConfig={"maxNumTrials": 3}))
    for i in (1, 2):
        ended(engine, str(i), 1.0)
    assert engine.done() is None
    engine.suggest("3")
    assert "maxNumTrials" in str(engine.done())
    for least, over in ((0, True), (9, False)):
        clock = Clock()
        engine = StudyEngine(
            study(X, studyStoppingConfig={"maxNumTrialsNoProgress": 2, "minNumTrials": least}), clock=clock
        )
        for i, loss in enumerate((3.0, 2.0, 2.5, 2.0), 1):
            assert engine.done() is None
            ended(engine, str(i), loss)
            clock.now += 1
        assert (engine.done() is not None) is over


def test_study_stopping_by_time() -> None:
    """Runtime constraints count from the study's creation, the one on progress from the last better value."""
    clock = Clock()
    limits = {"maximumRuntimeConstraint": {"maxDuration": "60s"}, "minimumRuntimeConstraint": {"maxDuration": "90s"}}
    both = StudyEngine(study(X, studyStoppingConfig=limits), clock=clock)
    absolute = StudyEngine(
        study(X, studyStoppingConfig={"maximumRuntimeConstraint": {"endTime": rfc3339(clock.now + 60)}}),
        clock=clock,
    )
    idle = StudyEngine(study(X, studyStoppingConfig={"maxDurationNoProgress": "30s"}), clock=clock)
    assert not (both.done() or absolute.done() or idle.done())
    clock.now += 20
    ended(idle, "1", 1.0)
    clock.now += 20
    ended(idle, "2", 2.0)
    assert idle.done() is None
    clock.now += 25
    assert "maxDurationNoProgress" in str(idle.done())
    assert absolute.done() and both.done() is None  # 65 s
    clock.now += 26
    assert "maximumRuntimeConstraint" in str(both.done())


def test_optuna_is_not_loaded_before_the_first_suggestion() -> None:
    """Importing the study engine, and reading a grid, leaves Optuna out."""
    code = (
        "import sys; from localvertex.jobs.study_engine import StudyEngine; import vertexrig.results.trials;"
        f"e = StudyEngine({study(UNITS, algorithm='GRID_SEARCH')!r}); e.suggest('1'); sys.exit('optuna' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


FIRST = [
    ({"doubleValueSpec": {"minValue": 0.001, "maxValue": 0.1}, "scaleType": "UNIT_LOG_SCALE"}, pytest.approx(0.01)),
    ({"doubleValueSpec": {"minValue": 2, "maxValue": 4}}, 3.0),
    ({"integerValueSpec": {"minValue": 4, "maxValue": 128}, "scaleType": "UNIT_LINEAR_SCALE"}, 66),
    ({"integerValueSpec": {"minValue": 1, "maxValue": 10_000}, "scaleType": "UNIT_LOG_SCALE"}, 100),
    ({"discreteValueSpec": {"values": [512, 64, 128]}}, 128.0),
    ({"categoricalValueSpec": {"values": ["sgd", "adam"]}}, "sgd"),
    ({"doubleValueSpec": {"minValue": 0, "maxValue": 9, "defaultValue": 7}}, 7.0),
]  # fmt: skip


@pytest.mark.parametrize(("parameter", "value"), FIRST)
def test_the_first_trial_has_the_middle_of_the_space(parameter: dict, value: Any) -> None:
    """Where no algorithm is named, the first trial has each parameter's default or middle; a random search does not begin there."""
    parameter = {"parameterId": "one", **parameter}
    spec = {"metrics": [{"metricId": "loss", "goal": "MINIMIZE"}], "parameters": [parameter]}
    assert StudyEngine(spec, seed=3).suggest("1") == [{"parameterId": "one", "value": value}]
    drawn = [
        StudyEngine({**spec, "algorithm": "RANDOM_SEARCH"}, seed=seed).suggest("1")[0]["value"] for seed in range(9)
    ]
    assert any(one != value for one in drawn)
