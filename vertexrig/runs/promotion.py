"""The jobs of the steps of a run: for `promote` the project file with one more, made of the best trial of the sweep that ran; for
`evaluate` one of its own, with the folders of the two models.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from vertexrig.bring import edit
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.errors import ConfigError, UsageError, VertexrigError
from vertexrig.finding import Severity
from vertexrig.project import config
from vertexrig.project.config import Loaded
from vertexrig.project.triggered import STEP_LABEL, EvaluateStep, PromoteStep, RegisterStep, name_of
from vertexrig.runs.run import Run
from vertexrig.studies import promote
from vertexrig.studies.outcome import chosen, outcome, trial_folder
from vertexrig.submit.claims import Key
from vertexrig.submit.submission import Request
from vertexrig.workspace import Prepared, Workspace


def with_job(
    loaded: Loaded, run: Run, step: PromoteStep, sweep: RemoteJob, folder: Callable[[str], Storage]
) -> tuple[Loaded, str]:
    """Return the project with the promoted job, and the job's name; the file itself stays as it is.

    Args:
        run: Its run is the sweep, with the values it was asked for with.

    Raises:
        UsageError: No trial counts, or there is no model to start from.
        ConfigError: The job does not fit the project file.
    """
    written = dict(loaded.chosen.merged) or edit.data_of(edit.read(loaded.file), str(loaded.file))
    ended = outcome(run.name, sweep.data, least=1)
    best = chosen(ended, None)
    name = step.name or promote.free_name(loaded, run.name)
    args: dict[str, Any] = {**run.body["args"], **step.args}
    if step.epochs is not None:
        args["epochs"] = step.epochs
    if step.warm_start_flag is not None:
        args[step.warm_start_flag] = _saved_model(sweep, best.id, folder)
    entry = promote.promoted(
        ended,
        best,
        written,
        run.name,
        name,
        args=edit.literal(args),
        topology=step.topology,
        machine_type=step.machine_type,
        changes=_changes(loaded, run, step),
    )
    data = {**entry.data, "labels": {**entry.data["labels"], STEP_LABEL: run.id}}
    # without the schedules: a step that names its job would find the name taken
    text = json.dumps({**written, "jobs": {**written["jobs"], name: data}, "schedules": {}})
    return config.loads(text, file=loaded.file), name


def with_models(loaded: Loaded, run: Run, step: EvaluateStep, champion: str, challenger: str) -> Loaded:
    """Return the project whose job of a step measures two models.

    Args:
        run: Its id becomes a label.
        champion: Folder of the version that is there, "" if there is none.
        challenger: Folder of the new model.
    """
    own = loaded.project.jobs[step.job]
    models = {step.challenger_flag: challenger} | ({step.champion_flag: champion} if champion else {})
    assert isinstance(own.args, Mapping)  # checked when the file was loaded
    job = replace(own, args={**own.args, **step.args, **models}, labels={**own.labels, STEP_LABEL: run.id})
    return replace(loaded, project=replace(loaded.project, jobs={**loaded.project.jobs, step.job: job}))


def check(workspace: Workspace, name: str) -> None:
    """Run the checks on the job of each step of a schedule, with each parameter's first value; ConfigError with the step's line."""
    # a sweep that cannot be rendered here is not an error here
    loaded, schedule = workspace.loaded, workspace.loaded.project.schedules[name]
    for index, step in enumerate(schedule.steps):
        if isinstance(step, RegisterStep):
            continue
        wrong = _wrong(
            workspace, Run("", Key("step", ""), Request(schedule.run, schedule.set, schedule.args, name).body), step
        )
        if wrong:
            message = f"the job that {name_of(step)} makes would fail: {wrong}"
            raise loaded.error_at(message, "schedules", name, "then", index)


def _wrong(workspace: Workspace, run: Run, step: PromoteStep | EvaluateStep) -> str:
    """Return why the job of a step would fail, "" if it would not."""
    if isinstance(step, EvaluateStep):
        folder = f"{workspace.loaded.project.bucket}/model"
        try:
            loaded = with_models(workspace.loaded, run, step, folder, folder)
            return errors(workspace.overridden(loaded).prepare(step.job))
        except VertexrigError as error:
            return str(error)
    try:
        sweep = workspace.prepare(run.name, check=False).document.data
    except VertexrigError:
        return ""
    study = sweep.get("studySpec") or {}
    metrics = [{"metricId": one.get("metricId"), "value": 0.0} for one in study.get("metrics") or ()]
    given = [{"parameterId": one.get("parameterId"), "value": _first(one)} for one in study.get("parameters") or ()]
    # a stand-in for the best trial: any values will do to see whether the job as such is right
    trial = {"id": "1", "state": "SUCCEEDED", "parameters": given, "finalMeasurement": {"metrics": metrics}}
    try:
        loaded, name = with_job(
            workspace.loaded,
            run,
            replace(step, warm_start_flag=None),
            RemoteJob({**sweep, "trials": [trial]}),
            Storage,
        )
        return errors(workspace.overridden(loaded).prepare(name))
    except ConfigError as error:
        return error.message
    except VertexrigError as error:
        return str(error)


def errors(prepared: Prepared) -> str:
    """Return the errors that the checks found in a job, in one line; "" if none."""
    wrong = [one for one in prepared.findings if one.severity is Severity.ERROR]
    return "; ".join(f"{one.path}: {one.message}" for one in wrong)


def _first(parameter: Mapping[str, Any]) -> Any:
    """Return the first value of a parameter of a study."""
    for key in ("doubleValueSpec", "integerValueSpec"):
        if key in parameter:
            return float(parameter[key].get("minValue", 0))
    listed = parameter.get("discreteValueSpec") or parameter.get("categoricalValueSpec") or {}
    return next(iter(listed.get("values") or ()), None)


def _changes(loaded: Loaded, run: Run, step: PromoteStep) -> Iterator[str]:
    """Return the changes of the job: what the run was asked for with about the sweep's job, and then what the step says."""
    prefix = f"jobs.{loaded.project.sweeps[run.name].job}."
    asked = {key.removeprefix(prefix): value for key, value in run.body["set"].items() if key.startswith(prefix)}
    # what the step says itself goes before what the run was asked for with
    own = {name for name in ("topology", "machine_type") if getattr(step, name) is not None}
    rows: Mapping[str, Any] = {**{key: value for key, value in asked.items() if key not in own}, **step.set}
    for key, value in rows.items():
        yield f"{key}={json.dumps(edit.literal(value))}"


def _saved_model(sweep: RemoteJob, trial: str, folder: Callable[[str], Storage]) -> str:
    base = trial_folder(sweep.data, trial)
    uri = f"{base}/model"
    if not base or not any(True for _ in folder(uri).list("")):
        raise UsageError(f"trial {trial} saved no model to start from{f': nothing is in {uri}' if base else ''}")
    return uri
