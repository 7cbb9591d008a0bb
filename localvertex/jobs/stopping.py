"""When to stop a trial early and when to end a study.

The rules are those of StudySpec in google-cloud-aiplatform 2.7.0 (`types/study.py`, read 2026-11-20). Vertex gives no
formulas; each function says what it does instead. Automated stopping works on a study with one objective.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import NormalDist, fmean, median, stdev
from typing import Any

from vertexrig.spec.objective import Metric
from vertexrig.spec.trial import Trial, TrialState
from vertexrig.times import duration_seconds, seconds_since_1970

Curve = list[tuple[float, float]]
# With fewer curves a median or a spread says little; Vertex states no numbers.
MEDIAN_LEAST_TRIALS = 3
DECAY_LEAST_TRIALS = 5
DECAY_CHANCE = 0.05


def curve(trial: Trial, goal: Metric, elapsed: bool) -> Curve:
    """(step or seconds, value) of each measurement of the objective; more is always better."""
    points = [
        (own.elapsed if elapsed else float(own.step), goal.sign * own.metrics[goal.id])
        for own in trial.measurements
        if goal.id in own.metrics
    ]
    return sorted(points)


def median_rule(spec: Mapping[str, Any], current: Curve, ended: Sequence[Curve]) -> bool:
    """Stop if the best value is strictly below the median of the others' running averages up to the same point.

    Waits for three ended trials that had reported by then; Vertex states no number.
    """
    if not current:
        return False
    at = current[-1][0]
    averages = [fmean(y for x, y in other if x <= at) for other in ended if other and other[0][0] <= at]
    if len(averages) < MEDIAN_LEAST_TRIALS:
        return False
    return max(y for _, y in current) < median(averages)


def decay_rule(spec: Mapping[str, Any], current: Curve, ended: Sequence[Curve]) -> bool:
    """Stop if the final value will hardly beat the best one.

    Vertex fits a Gaussian process to the curves. Here the ended trials' gains from this point to their end give a
    normal distribution of this trial's final value; it is stopped if the chance to beat the best is below 5 %. Waits
    for five ended trials that went beyond this point.
    """
    if not current:
        return False
    at, now = current[-1]
    gains = [other[-1][1] - _at(other, at) for other in ended if other and other[0][0] <= at < other[-1][0]]
    if len(gains) < DECAY_LEAST_TRIALS:
        return False
    best = max(y for other in ended for _, y in other[-1:])
    spread = max(stdev(gains), 1e-9 * max(1.0, abs(best)))  # NormalDist takes no deviation of 0
    return 1 - NormalDist(now + fmean(gains), spread).cdf(best) < DECAY_CHANCE


def convex_rule(spec: Mapping[str, Any], current: Curve, ended: Sequence[Curve]) -> bool:
    """Stop if even the straight line through the latest measurements ends below the best value.

    A learning curve flattens, so its slope now overestimates its end. A flat curve is never stopped. Unlike Vertex, no
    predicted measurement is added to the trial, and `learningRateParameterName` and `updateAllStoppedTrials` have no
    effect.
    """
    least = int(spec.get("minMeasurementCount", 0)) or 5
    ended = [other for other in ended if other]
    if len(ended) < least + 1 or len(current) < least:
        return False
    end = float(spec.get("maxStepCount", 0)) or max(other[-1][0] for other in ended)
    # The reference: "By default, min_step_count is set to be one-tenth of the max_step_count."
    begin = float(spec["minStepCount"]) if "minStepCount" in spec else end / 10
    at, now = current[-1]
    if at <= begin or at >= end:
        return False
    slope = _slope(current[-least:])
    if slope == 0:  # reports that never change say nothing of the end
        return False
    return now + slope * (end - at) < max(other[-1][1] for other in ended)


Rule = Callable[[Mapping[str, Any], Curve, Sequence[Curve]], bool]
RULES: dict[str, Rule] = {
    "medianAutomatedStoppingSpec": median_rule,
    "decayCurveStoppingSpec": decay_rule,
    "convexAutomatedStoppingSpec": convex_rule,
}


def should_stop(spec: Mapping[str, Any], goal: Metric | None, trial: Trial, trials: Sequence[Trial]) -> bool:
    """Whether the study's automated stopping rule, if it has one, ends this running trial; a study with several objectives has no `goal`."""
    name = next((name for name in RULES if name in spec), None)
    if name is None or goal is None:
        return False
    elapsed = bool(spec[name].get("useElapsedDuration", False))
    ended = [curve(other, goal, elapsed) for other in trials if other.state is TrialState.SUCCEEDED]
    return RULES[name](spec[name], curve(trial, goal, elapsed), ended)


def study_done(
    config: Mapping[str, Any], goal: Metric | None, trials: Collection[Trial], *, created: float, now: float
) -> str | None:
    """Return why no more trials are to be made, by `studyStoppingConfig`; None while the study goes on.

    The minimum rules come first: until they are met, no other rule is looked at.
    """
    if not config:
        return None  # asked before every suggestion, and a study may have 100,000 trials
    ended = [trial for trial in trials if trial.state.ended]
    least = int(config.get("minNumTrials", 0))
    if not _passed(config.get("minimumRuntimeConstraint"), created, now, unset=True) or len(ended) < least:
        return None
    if _passed(config.get("maximumRuntimeConstraint"), created, now, unset=False):
        return "studyStoppingConfig.maximumRuntimeConstraint: the study's time is over"
    most = int(config.get("maxNumTrials", 0))
    if most and len(trials) >= most:
        return f"studyStoppingConfig.maxNumTrials: {most} trials are made"
    if goal is None:
        return None  # "Effective only for single-objective studies"
    return _no_progress(config, goal, ended, created, now)


def _no_progress(
    config: Mapping[str, Any], goal: Metric, ended: Sequence[Trial], created: float, now: float
) -> str | None:
    best, since, improved = -math.inf, 0, created
    for trial in sorted(ended, key=lambda trial: trial.end_time):
        final = trial.final_measurement
        value = goal.sign * final.metrics[goal.id] if final and goal.id in final.metrics else -math.inf
        since += 1
        # The first finite value is always better than -inf, so a study of infeasible trials has no progress.
        if value > best:
            best, since, improved = value, 0, seconds_since_1970(trial.end_time)
    many = int(config.get("maxNumTrialsNoProgress", 0))
    if many and since >= many:
        return f"studyStoppingConfig.maxNumTrialsNoProgress: {since} trials in a row brought no better {goal.id}"
    long = duration_seconds(config.get("maxDurationNoProgress")) or 0.0
    if long and now - improved >= long:
        return f"studyStoppingConfig.maxDurationNoProgress: no better {goal.id} for {now - improved:.0f} s"
    return None


def _passed(constraint: Mapping[str, Any] | None, created: float, now: float, *, unset: bool) -> bool:
    if not constraint:
        return unset
    if "endTime" in constraint:
        return now >= seconds_since_1970(str(constraint["endTime"]))
    return now - created >= (duration_seconds(constraint.get("maxDuration")) or 0.0)


def _at(points: Curve, x: float) -> float:
    """Return the value at `x` on a straight line between the neighbouring measurements."""
    before = [point for point in points if point[0] <= x][-1]
    after = next((point for point in points if point[0] > x), before)
    if after[0] == before[0]:
        return before[1]
    return before[1] + (after[1] - before[1]) * (x - before[0]) / (after[0] - before[0])


def _slope(points: Curve) -> float:
    """Slope of the least-squares line."""
    middle_x, middle_y = fmean(x for x, _ in points), fmean(y for _, y in points)
    width = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / width if width else 0.0
