"""The sweep that follows a finished one: an entry of the project file in which each decision has its reason in a comment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from vertexrig.bring.edit import Entry, Path_, literal, metrics_of
from vertexrig.errors import UsageError
from vertexrig.project.arguments import with_flags
from vertexrig.project.config import Loaded
from vertexrig.spec.api_names import camel, snake_keys
from vertexrig.spec.estimate import Estimate
from vertexrig.spec.space import Dimension
from vertexrig.studies.decisions import Decision, decision_on, fixed_at_best, gridded, shown, tidy
from vertexrig.studies.outcome import FOLLOWS, Outcome, roles_with_args

_SETTINGS = (
    "measurement_selection_type",
    "median_automated_stopping_spec",
    "decay_curve_stopping_spec",
    "convex_automated_stopping_spec",
    "study_stopping_config",
)
_KEPT = ("candidates", "wait", "retry_for", "prefer", "preemptions", "kms_key_name", "silence")
_DECIDED = ("parameters", "metrics", "algorithm")


@dataclass(frozen=True)
class FollowUp:
    """A sweep that follows a study.

    Args:
        kept: Parameters that stay as they are, with their conditional parameters: their settings by name.
        trials: Trials at most.
        grid: Whether the sweep is a grid of all combinations.
        entry: Its keys in the project file, without a price.
    """

    name: str
    after: str
    decisions: tuple[Decision, ...]
    kept: Mapping[str, Mapping[str, Any]]
    trials: int
    grid: bool
    entry: Entry

    def priced(self, price: Estimate | None, seconds: float | None) -> Entry:
        """Return the entry with what it costs in the comment above it.

        Args:
            price: Of the rendered sweep; None if it cannot be rendered.
            seconds: Mean length of a trial of the former study; None if those of this sweep may run on other machines.
        """
        lines = [*self.entry.comments[()], cost(price, seconds)]
        return Entry(self.entry.group, self.entry.name, self.entry.data, {**self.entry.comments, (): lines})


def follow_up(
    outcome: Outcome,
    written: Mapping[str, Any],
    after: str,
    name: str,
    *,
    grid: int | None = None,
    trials: int | None = None,
) -> FollowUp:
    """Return the sweep that follows a study.

    Args:
        written: The project file's plain values, variables as they are written.
        grid: Make it a grid of at most this many combinations.
        trials: Trials at most; by default those of the former sweep.

    Raises:
        UsageError: Nothing is left to search, or the best trial has values that the study does not.
    """
    decisions, kept = _decisions(outcome, grid is not None)
    if grid is not None:
        decisions = gridded(decisions, grid, outcome.importance())
    open_ = [one for one in decisions if one.action != "fix"]
    if not open_ and not kept:
        values = ", ".join(f"{one.name} {shown(one.value)}" for one in decisions)
        raise UsageError(
            f"the next sweep of {after} has nothing to search, because every parameter is fixed: {values}. To add a job with these values: "
            f"vertexrig promote {after}"
        )
    combinations = math.prod(len(one.values) for one in open_)
    most = combinations if grid is not None else trials or outcome.study.asked
    former: Mapping[str, Any] = written["sweeps"][after] or {}
    job: Mapping[str, Any] = written["jobs"][former["job"]] or {}
    data: dict[str, Any] = {"job": former["job"]}
    comments: dict[Path_, list[str]] = {(): [_about(outcome, after)]}
    fixed = [one for one in decisions if one.action == "fix"]
    # arguments of the sweep do not reach a pool that has its own; the study's parameters do, so there each keeps one value
    single = [_single(one) for one in fixed] if roles_with_args(job) else []
    _fix(data, comments, job, former, [] if single else fixed)
    data["max_trial_count"] = most
    data |= {
        key: former[key] for key in ("parallel_trial_count", "max_failed_trial_count") if former.get(key) is not None
    }
    if isinstance(data.get("parallel_trial_count"), int):
        # may be text with a variable, which is left as it is
        data["parallel_trial_count"] = min(data["parallel_trial_count"], most)
    if grid is not None:
        comments[("max_trial_count",)] = [
            f"every combination once: {' x '.join(str(len(one.values)) for one in open_)} = {combinations}"
        ]
    _study(outcome, data, comments, [*open_, *single], kept, grid=grid is not None)
    data |= _inherited(former, job, after, name)
    if former.get("topology") not in (None, "grid") and grid is None:
        data["topology"] = former["topology"]
    if single and grid is None:
        reason = "fixed by follow-up: args of the sweep would not reach pools with args of their own"
        data["silence"] = {**(data.get("silence") or {}), "parameter-one-value": reason}
    return FollowUp(name, after, tuple(decisions), kept, most, grid is not None, Entry("sweeps", name, data, comments))


def _inherited(former: Mapping[str, Any], job: Mapping[str, Any], after: str, name: str) -> dict[str, Any]:
    """Return the other keys of the new sweep: the former's, with an output folder of its own."""
    found: dict[str, Any] = {"labels": {**(former.get("labels") or {}), FOLLOWS: after}}
    found |= {key: former[key] for key in _KEPT if former.get(key)}
    spec = {camel(str(key)): value for key, value in (former.get("spec") or {}).items()}
    if isinstance(spec.get("studySpec"), Mapping):  # the former's parameters would be laid over the new ones
        spec["studySpec"] = {key: value for key, value in spec["studySpec"].items() if camel(str(key)) not in _DECIDED}
    # maxTrialCount under spec: would be laid over the new count
    spec = {key: value for key, value in spec.items() if value != {} and key != "maxTrialCount"}
    if spec:
        found["spec"] = spec
    output = former.get("base_output_directory") or job.get("base_output_directory")
    if output:
        found["base_output_directory"] = f"{str(output).rstrip('/')}/{name}"
    return found


def cost(price: Estimate | None, seconds: float | None) -> str:
    """Return the estimated cost of a sweep in one line."""
    if price is None or not price.lines:
        return "estimate: unknown, because the sweep cannot be rendered yet"
    least = "" if price.complete else "at least "
    total = f"${price.usd_at_most:.2f}"
    at_most = f"{total} at most" if price.complete else f"at least {total}"
    hours = price.timeout_s / 3600
    text = f"estimate: {at_most} = {price.trials} trials x {hours:g} h x {least}${price.usd_per_hour:.4f}/h, prices of {price.region}"
    if seconds:
        mean = price.usd_per_hour * seconds / 3600 * (price.trials or 1)
        text += f"; about ${mean:.2f} if each takes the {seconds:.0f} s of the former trials"
    return text


def free_name(loaded: Loaded, after: str) -> str:
    """Return a name for the sweep that follows one: `NAME-2`, or the next number that is free."""
    base, _, number = after.rpartition("-")
    start, stem = (
        (int(number) + 1, base) if base and number.isascii() and number.isdigit() and len(number) < 6 else (2, after)
    )
    taken = {*loaded.project.entries}
    # the name becomes the value of a label, which has 63 characters at most
    while f"{stem[:55]}-{start}" in taken:
        start += 1
    return f"{stem[:55]}-{start}"


def _decisions(outcome: Outcome, grid: bool) -> tuple[list[Decision], dict[str, Mapping[str, Any]]]:
    """Return the decision on each parameter that the best trial has, and the settings of those that stay with their children."""
    written = {str(one.get("parameterId")): one for one in outcome.study.spec["parameters"]}
    decisions: list[Decision] = []
    kept: dict[str, Mapping[str, Any]] = {}
    pending = list(outcome.study.space.dimensions)  # children join once their parent is fixed at a value that has them
    while pending:
        dimension = pending.pop(0)
        found = _decision(outcome, dimension)
        if dimension.children and found.action != "fix" and grid:
            found = fixed_at_best(found, "a grid takes no conditional parameters, so it stays as in the best trial")
        if dimension.children and found.action != "fix":
            settings = snake_keys(written[dimension.id])
            kept[dimension.id] = {key: value for key, value in settings.items() if key != "parameter_id"}
            continue
        decisions.append(found)
        pending += dimension.active(found.value)
    return decisions, kept


def _decision(outcome: Outcome, dimension: Dimension) -> Decision:
    best = outcome.best.parameters.get(dimension.id)
    if best is None or not dimension.holds(best):
        given = "no value" if best is None else f"the value {best}"
        raise UsageError(
            f"{outcome.name}: the best trial, {outcome.best.id}, has {given} of {dimension.id}, which the study's ranges "
            "do not have: its specification and its trials do not belong together"
        )
    values = (trial.parameters.get(dimension.id) for trial in outcome.top)
    return decision_on(dimension, best, [value for value in values if value is not None and dimension.holds(value)])


def _about(outcome: Outcome, after: str) -> str:
    have = "has" if len(outcome.counted) == 1 else "have"
    return (
        f"follows {after}: {len(outcome.counted)} of {len(outcome.study.trials)} trials {have} a result; the best is trial {outcome.best.id}, "
        f"with {outcome.reached(outcome.best)}"
    )


def _fix(
    data: dict[str, Any],
    comments: dict[Path_, list[str]],
    job: Mapping[str, Any],
    former: Mapping[str, Any],
    fixed: list[Decision],
) -> None:
    """Add the new sweep's arguments and the reasons for what is fixed: above each key of a mapping, or above the entry for a list."""
    args = _args(job, former, fixed)
    if args is not None:
        data["args"] = args
    for one in fixed:
        if isinstance(args, Mapping):
            comments[("args", one.name)] = [f"fixed: {one.reason}"]
        else:
            comments[()].append(f"{one.name} fixed at {shown(one.value)}: {one.reason}")


def _single(one: Decision) -> Decision:
    """Return a fixed parameter as one with a single value."""
    return replace(one, values=(one.value,))


def _args(job: Mapping[str, Any], former: Mapping[str, Any], fixed: list[Decision]) -> Any:
    """Return the new sweep's arguments: the former's, and what is fixed; None if it needs none."""
    values = {one.name: literal(tidy(one.value)) for one in fixed}
    own, inherited = former.get("args") or {}, job.get("args") or {}
    if isinstance(former.get("args"), list):
        own = former["args"]
    # a list replaces the job's list as a whole, so the job's own words have to be in it
    elif isinstance(inherited, list):
        own = inherited
    return {**own, **values} or None if isinstance(own, Mapping) else with_flags(own, values)


def _study(
    outcome: Outcome,
    data: dict[str, Any],
    comments: dict[Path_, list[str]],
    open_: list[Decision],
    kept: Mapping[str, Mapping[str, Any]],
    *,
    grid: bool,
) -> None:
    """Add the keys of the study, and the reasons above them."""
    metrics = metrics_of(outcome.study.spec)
    if grid and all(isinstance(one, str) for one in metrics.values()):
        data |= {
            "topology": "grid",
            "metrics": metrics,
            "over": {one.name: [tidy(v) for v in one.values] for one in open_},
        }
        comments |= {("over", one.name): [_what(one)] for one in open_}
        return
    study: dict[str, Any] = {"metrics": metrics, "parameters": {}}
    for one in open_:
        settings = one.settings
        if grid:
            field = "categorical_value_spec" if one.dimension.kind == "CATEGORICAL" else "discrete_value_spec"
            settings = {field: {"values": list(one.values)}}
        study["parameters"][one.name] = literal(_tidied(settings))
        comments[("study", "parameters", one.name)] = [_what(one)]
    for name, written in kept.items():
        study["parameters"][name] = literal(_tidied(written))
        comments[("study", "parameters", name)] = ["kept with its conditional parameters: the best trials differ in it"]
    algorithm = "GRID_SEARCH" if grid else outcome.study.spec.get("algorithm")
    if grid or algorithm == "RANDOM_SEARCH":
        study["algorithm"] = algorithm
    others = snake_keys(outcome.study.spec)
    study |= {key: others[key] for key in _SETTINGS if key in others and not grid}
    data["study"] = study


def _what(one: Decision) -> str:
    """Return a decision and its reason, as the comment above the parameter."""
    words = {"narrow": "narrowed", "widen": "widened", "keep": "kept", "fix": "fixed"}[one.action]
    return f"{words}: {one.reason}"


def _tidied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _tidied(item) for key, item in value.items() if not str(item).endswith("_UNSPECIFIED")}
    return [_tidied(item) for item in value] if isinstance(value, (list, tuple)) else tidy(value)
