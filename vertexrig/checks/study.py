"""Studies: metrics, trial counts, stopping, what gcloud cannot read. The rules of `parameters` are added here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

from vertexrig.checks import parameters
from vertexrig.checks.model import (
    GCLOUD,
    OVERVIEW_DOC,
    REST,
    REST_JOB,
    REST_STUDY,
    SDK,
    TUNING_DOC,
    Context,
    Problem,
    Rule,
    join,
)
from vertexrig.errors import did_you_mean
from vertexrig.finding import REMOVE, Severity, write
from vertexrig.spec.document import Document, machine_path
from vertexrig.times import duration_seconds

_CAN_STOP = {"maxNumTrials", "maximumRuntimeConstraint", "maxNumTrialsNoProgress", "maxDurationNoProgress"}
"""Keys of studyStoppingConfig of which one at least turns it on."""
_STOPPING_SPECS = ("decayCurveStoppingSpec", "medianAutomatedStoppingSpec", "convexAutomatedStoppingSpec")


def _metrics(document: Document) -> list[tuple[str, Mapping[str, Any]]]:
    found = (document.study or {}).get("metrics", ())
    return [(f"studySpec.metrics[{index}]", metric) for index, metric in enumerate(found)]


def _objectives(document: Document) -> list[tuple[str, Mapping[str, Any]]]:
    return [(path, metric) for path, metric in _metrics(document) if "safetyConfig" not in metric]


def metrics_present(document: Document, context: Context) -> Iterator[Problem]:
    if document.study is not None and not _metrics(document) and not document.refused_in("studySpec.metrics"):
        fix, key_fix = (
            f"write metrics: {words}, with the tag the trainer reports"
            for words in ("[{metricId: accuracy, goal: MAXIMIZE}]", "{accuracy: MAXIMIZE}")
        )
        yield Problem("studySpec.metrics", "the study has no metric to optimise", fix, key_fix=key_fix)


def metric_ids(document: Document, context: Context) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for path, metric in _metrics(document):
        name, path = str(metric.get("metricId", "")), f"{path}.metricId"
        if not name and not document.refused_in(path):
            yield Problem(path, "the metric has no metricId", "write the tag the trainer reports")
        elif any(char.isspace() for char in name):
            fix = "write " + "_".join(name.split()) if name.strip() else ""
            yield Problem(path, f"{name!r} has white space in it; a metricId has none", fix)
        elif name in seen:
            yield Problem(path, f"{name!r} is already the id of {seen[name]}; ids are unique", "remove one of them")
        if name:
            seen.setdefault(name, path.removesuffix(".metricId"))


def metric_goal(document: Document, context: Context) -> Iterator[Problem]:
    for path, metric in _metrics(document):
        path = f"{path}.goal"
        if metric.get("goal", "GOAL_TYPE_UNSPECIFIED") == "GOAL_TYPE_UNSPECIFIED" and not document.refused_in(path):
            message = f"metric {str(metric.get('metricId', ''))!r} has no goal (unspecified means MAXIMIZE)"
            yield Problem(path, message, "write MAXIMIZE or MINIMIZE")


def several_objectives(document: Document, context: Context) -> Iterator[Problem]:
    found = _objectives(document)
    if len(found) > 1:
        names = ", ".join(str(metric.get("metricId", "?")) for _, metric in found[:8])
        message = f"the study has {len(found)} objectives ({names}): there is no single best trial, only trade-offs"
        yield Problem("studySpec.metrics", message, "keep one if the best trial is to be chosen automatically")


def safety(document: Document, context: Context) -> Iterator[Problem]:
    safe = [(path, metric) for path, metric in _metrics(document) if "safetyConfig" in metric]
    if safe and not _objectives(document):
        message = "every metric is a safety metric (safetyConfig): a study also needs an objective"
        yield Problem(f"{safe[0][0]}.safetyConfig", message, "add a metric without safetyConfig")
    for path, metric in safe:
        fraction = metric["safetyConfig"].get("desiredMinSafeTrialsFraction")
        if fraction is not None and not 0 <= fraction <= 1:
            path = f"{path}.safetyConfig.desiredMinSafeTrialsFraction"
            yield Problem(path, f"{fraction} is not a fraction between 0 and 1", "write a number between 0.0 and 1.0")


def observation_noise(document: Document, context: Context) -> Iterator[Problem]:
    value = (document.study or {}).get("observationNoise", "OBSERVATION_NOISE_UNSPECIFIED")
    if value != "OBSERVATION_NOISE_UNSPECIFIED":
        message = f"observationNoise is {value}; hyperparameter tuning jobs do not support it"
        yield Problem("studySpec.observationNoise", message, edits=REMOVE)


def trial_count(document: Document, context: Context) -> Iterator[Problem]:
    yield from _count(document, "maxTrialCount", "the number of trials")


def parallel_count(document: Document, context: Context) -> Iterator[Problem]:
    yield from _count(document, "parallelTrialCount", "the number of trials at a time")
    most, parallel = document.data.get("maxTrialCount"), document.data.get("parallelTrialCount")
    if document.study is not None and most and parallel and parallel > most > 0:
        message = f"parallelTrialCount is {parallel:,} and there are only {most:,} trials"
        yield Problem("parallelTrialCount", message, f"write {most} or less", Severity.WARNING, edits=write(most))


def _count(document: Document, name: str, what: str) -> Iterator[Problem]:
    if document.study is None or document.refused_in(name):
        return
    count = document.data.get(name)
    if count is None:
        message = f"{name} is not set: the API requires {what}; gcloud takes 1 unless its flag says otherwise"
        yield Problem(name, message, f"write {name}", Severity.WARNING)
    elif count < 1:
        took = "; gcloud silently makes it 1" if count == 0 else ""
        yield Problem(name, f"{name} is {count}: {what} is 1 or more{took}", "write a number above 0")


def trials_enough(document: Document, context: Context) -> Iterator[Problem]:
    study, most = document.study or {}, document.data.get("maxTrialCount")
    count = len({parameter.id for parameter in document.parameters})
    if study.get("algorithm") == "GRID_SEARCH" or most is None or most < 1:
        return  # its size follows from the values
    wanted = context.catalog.limits.integer("study.trials_per_parameter")
    if most < wanted * count:
        message = (
            f"{most:,} trial{'s' * (most != 1)} for {count:,} parameter{'s' * (count != 1)}; "
            f"Google's documentation recommends {wanted} for each parameter"
        )
        fix = f"write {wanted * count} or more, or tune fewer parameters"
        yield Problem("maxTrialCount", message, fix, edits=write(wanted * count))


def parallel_blind(document: Document, context: Context) -> Iterator[Problem]:
    study = document.study or {}
    most, parallel = document.data.get("maxTrialCount"), document.data.get("parallelTrialCount")
    if study.get("algorithm") in {"GRID_SEARCH", "RANDOM_SEARCH"} or not most or not parallel or parallel < 2:
        return
    # a quarter is a rule of thumb of this program: no document names a share
    if parallel * 4 > most > 0:
        message = (
            f"{parallel:,} of {most:,} trials run at a time: the Bayesian search chooses most without earlier results"
        )
        good = f"{most // 4} or less" if most >= 8 else "1"
        fix = f"write {good}, or more trials, or algorithm: RANDOM_SEARCH, which uses no earlier results"
        yield Problem("parallelTrialCount", message, fix)


def failed_count(document: Document, context: Context) -> Iterator[Problem]:
    most, failed = document.data.get("maxTrialCount"), document.data.get("maxFailedTrialCount", 0)
    yield from _negative(document.data, "", "maxFailedTrialCount")
    if most is not None and failed > most > 0:
        message = f"maxFailedTrialCount is {failed:,}, above maxTrialCount {most:,}"
        yield Problem("maxFailedTrialCount", message, f"write {most} or less", edits=write(most))


def _negative(data: Mapping[str, Any], path: str, *names: str) -> Iterator[Problem]:
    """Yield the counts of these names that are below 0; `path` ends in a dot where it is not empty."""
    for name in names:
        if data.get(name, 0) < 0:
            yield Problem(f"{path}{name}", f"{name} is {data[name]}: it cannot be below 0", "write 0 or more")


def first_failure(document: Document, context: Context) -> Iterator[Problem]:
    unset = document.data.get("maxFailedTrialCount", 0) == 0 and not document.refused_in("maxFailedTrialCount")
    if document.study is not None and unset and document.data.get("maxTrialCount", 0) > 1:
        message = "maxFailedTrialCount is not set: if the first trial fails, the whole study ends; for a later failure, Vertex AI decides"
        yield Problem("maxFailedTrialCount", message, "write how many failed trials end the study")


def trial_timeout(document: Document, context: Context) -> Iterator[Problem]:
    path = "trialJobSpec.scheduling"
    if document.study is None or document.job.get("scheduling", {}).get("timeout") or document.refused_in(path):
        return
    most = document.data.get("maxTrialCount")
    trials = f"; the study has {most:,} trials" if most and most > 1 else ""
    message = f"no timeout per trial: a trial that hangs is billed for 7 days{trials}"
    fix, key_fix = (
        f"write {words}; it holds for each trial"
        for words in ('scheduling: {timeout: "3600s"} in trialJobSpec', "timeout: 3600s in the job")
    )
    yield Problem(f"{path}.timeout", message, fix, key_fix=key_fix)


def early_stopping(document: Document, context: Context) -> Iterator[Problem]:
    found = next((name for name in _STOPPING_SPECS if name in (document.study or {})), None)
    if found is not None and context.trainer is None:  # with a trainer at hand its source is read instead
        message = (
            f"{found} compares measurements made during a trial; a trainer that reports once, at its end, gives it none"
        )
        yield Problem(f"studySpec.{found}", message, "report the metric after each epoch")


def convex_stopping(document: Document, context: Context) -> Iterator[Problem]:
    path = "studySpec.convexAutomatedStoppingSpec"
    spec = (document.study or {}).get("convexAutomatedStoppingSpec", {})
    yield from _negative(spec, f"{path}.", "maxStepCount", "minStepCount", "minMeasurementCount")
    most, least = spec.get("maxStepCount", 0), spec.get("minStepCount", 0)
    if 0 < most < least:
        message = f"minStepCount {least} is above maxStepCount {most}: no trial would ever be stopped early"
        fix = f"write {most // 10}, a tenth of maxStepCount, as is the default"
        yield Problem(f"{path}.minStepCount", message, fix, edits=write(most // 10))
    name, ids = spec.get("learningRateParameterName", ""), {parameter.id for parameter in document.parameters}
    if name and name not in ids:
        message = f"{name!r} is not a parameter of this study. {did_you_mean(name, ids)}"
        yield Problem(f"{path}.learningRateParameterName", message, "name a parameterId, or leave it out")


def study_stopping(document: Document, context: Context) -> Iterator[Problem]:
    path = "studySpec.studyStoppingConfig"
    config = (document.study or {}).get("studyStoppingConfig")
    if config is None or document.refused_in(path):
        return
    yield from _negative(config, f"{path}.", "minNumTrials", "maxNumTrials", "maxNumTrialsNoProgress")
    least, most = config.get("minNumTrials", 0), config.get("maxNumTrials")
    if most is not None and least > most >= 0:
        message = (
            f"minNumTrials {least} is above maxNumTrials {most}: the minimum wins, and the maximum never takes effect"
        )
        yield Problem(f"{path}.minNumTrials", message, f"write {most} or less", edits=write(most))
    shortest, longest = (_seconds(config, f"{name}imumRuntimeConstraint") for name in ("min", "max"))
    if shortest is not None and longest is not None and shortest > longest:
        message = f"the minimum runtime {shortest:g}s is above the maximum {longest:g}s"
        fix = f"write {longest:g}s or less"
        yield Problem(f"{path}.minimumRuntimeConstraint.maxDuration", message, fix, edits=write(f"{longest:g}s"))
    if not set(config) & _CAN_STOP:
        message = "studyStoppingConfig has no condition that can stop the study; it needs at least one"
        fix = "add maxNumTrials, maximumRuntimeConstraint, maxNumTrialsNoProgress or maxDurationNoProgress"
        yield Problem(path, message, fix, Severity.WARNING)


def stopping_reached(document: Document, context: Context) -> Iterator[Problem]:
    path = "studySpec.studyStoppingConfig"
    config = (document.study or {}).get("studyStoppingConfig") or {}
    most = document.data.get("maxTrialCount") or 0
    for name in ("minNumTrials", "maxNumTrials", "maxNumTrialsNoProgress"):
        if config.get(name, 0) > most > 0:
            message = f"{name} is {config[name]} and the study has only {most} trials: it never takes effect"
            yield Problem(f"{path}.{name}", message, f"write less than {most}, or leave it out")
    end = config.get("maximumRuntimeConstraint", {}).get("endTime", "")
    if _past(end, context.today):
        message = f"the study is to stop at {end}, which is past: it would stop at once"
        yield Problem(f"{path}.maximumRuntimeConstraint.endTime", message, "write a later time, or a maxDuration")


def stopping_single(document: Document, context: Context) -> Iterator[Problem]:
    config = (document.study or {}).get("studyStoppingConfig") or {}
    count = len(_objectives(document))
    for name in ("maxNumTrialsNoProgress", "maxDurationNoProgress"):
        if name in config and count > 1:
            message = f"{name} works for single-objective studies only; this one has {count} objectives"
            yield Problem(f"studySpec.studyStoppingConfig.{name}", message, "remove it, or keep one objective")


def measurement_selection(document: Document, context: Context) -> Iterator[Problem]:
    study = document.study or {}
    path = "studySpec.measurementSelectionType"
    unset = study.get("measurementSelectionType", "MEASUREMENT_SELECTION_TYPE_UNSPECIFIED").endswith("UNSPECIFIED")
    if unset and any(name in study for name in _STOPPING_SPECS) and not document.refused_in(path):
        # The API's default is LAST_MEASUREMENT.
        message = "measurementSelectionType is not set: the last measurement counts, even if an earlier one was better"
        fix = "write BEST_MEASUREMENT if the trainer keeps its best epoch, else LAST_MEASUREMENT"
        yield Problem(path, message, fix)


def _seconds(config: Mapping[str, Any], name: str) -> float | None:
    return duration_seconds(config.get(name, {}).get("maxDuration"))


def _past(time: str, today: date) -> bool:
    try:
        return bool(time) and date.fromisoformat(time[:10]) < today
    except ValueError:
        return False


_GCLOUD_FIX = "submit it through the API, or leave the field out"


def gcloud_accelerator(document: Document, context: Context) -> Iterator[Problem]:
    # a custom job's file is sent unchanged; a tuning job's is read into gcloud's own messages, which refuse what they lack
    for pool in document.pools if document.study is not None else ():
        row = context.catalog.accelerators.get(pool.accelerator_type)
        if row is not None and row.api_enum and not row.gcloud_enum:
            text = f"gcloud 528 does not know {row.name} and refuses a tuning job with it"
            yield Problem(machine_path(pool, "acceleratorType"), text, "submit it through the API")


def gcloud_field(document: Document, context: Context) -> Iterator[Problem]:
    if document.study is None:
        return
    paths = [f"{document.job_path}pscInterfaceConfig"] if "pscInterfaceConfig" in document.job else []
    for pool in document.pools:
        if "gpuPartitionSize" in pool.machine:
            paths.append(machine_path(pool, "gpuPartitionSize"))
        if "lustreMounts" in pool.data:
            paths.append(f"{pool.path}.lustreMounts")
    for path in paths:
        name = path.rpartition(".")[2]
        yield Problem(path, f"gcloud 528 does not know {name} and refuses a tuning job with it", _GCLOUD_FIX)


_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO

RULES: tuple[Rule, ...] = (
    Rule("metric-missing", _E, "A study has at least one metric.", REST_STUDY, metrics_present),
    Rule("metric-id", _E, "Every metric has an id without white space, used once.", REST_STUDY, metric_ids),
    Rule("metric-goal", _E, "Every metric has the goal MAXIMIZE or MINIMIZE.", REST_STUDY, metric_goal),
    Rule("several-objectives", _I, "A study has one objective, so that one trial is the best.",
         REST_STUDY, several_objectives),
    Rule("safety-metric", _E, "A study with a safety metric has an objective too; its fraction is from 0 to 1.",
         REST_STUDY, safety),
    Rule("observation-noise", _E, "observationNoise is left out: tuning jobs do not support it.",
         REST_STUDY, observation_noise, "unsafe"),
    Rule("max-trial-count", _E, "maxTrialCount is set and above 0.", join(REST_JOB, GCLOUD), trial_count),
    Rule("parallel-trial-count", _E, "parallelTrialCount is set, above 0, and not above maxTrialCount.",
         join(REST_JOB, GCLOUD), parallel_count, "unsafe"),
    Rule("trials-per-parameter", _W, "There are at least ten trials for each parameter.", TUNING_DOC, trials_enough, "unsafe"),
    Rule("parallel-trials-blind", _W, "A Bayesian search runs at most a quarter of its trials at a time.",
         join(OVERVIEW_DOC, "the quarter is vertexrig's own rule of thumb"), parallel_blind),
    Rule("max-failed-trial-count", _E, "maxFailedTrialCount is between 0 and maxTrialCount.", TUNING_DOC, failed_count, "unsafe"),
    Rule("first-failure", _I, "The study has a maxFailedTrialCount.", TUNING_DOC, first_failure),
    Rule("trial-timeout", _W, "Each trial has a time limit.", join(TUNING_DOC, REST), trial_timeout),
    Rule("early-stopping", _I, "Early stopping has measurements made during each trial.", REST_STUDY, early_stopping),
    Rule("convex-stopping", _E, "The limits in convexAutomatedStoppingSpec are consistent, and the parameter it names is in the study.",
         REST_STUDY, convex_stopping, "unsafe"),
    Rule("study-stopping", _E, "The limits in studyStoppingConfig are consistent, and one of them can end the study.",
         REST_STUDY, study_stopping, "unsafe"),
    Rule("study-stopping-reached", _W, "The limits of studyStoppingConfig can be reached and are not past.",
         REST_STUDY, stopping_reached),
    Rule("study-stopping-objectives", _W, "Stopping without progress is used with one objective only.",
         REST_STUDY, stopping_single),
    Rule("measurement-selection", _I, "A study with early stopping has a measurementSelectionType.",
         SDK, measurement_selection),
    Rule("gcloud-accelerator", _E, "gcloud knows the accelerator of a tuning job.", GCLOUD, gcloud_accelerator),
    Rule("gcloud-field", _E, "gcloud knows every field of a tuning job.", GCLOUD, gcloud_field),
    *parameters.RULES,
)  # fmt: skip
