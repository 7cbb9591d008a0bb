"""`vertexrig register`: add a trained model to the Model Registry if it is better than the current version."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

import click
from click.core import ParameterSource

from vertexrig import catalog
from vertexrig.cli import next_commands, options, remote, streams
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.output import result
from vertexrig.cloud import vertex
from vertexrig.cloud.models import ModelsClient, plain
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import TUNING
from vertexrig.errors import UsageError, VertexrigError
from vertexrig.project import config
from vertexrig.project.config import Loaded
from vertexrig.studies import register, trained
from vertexrig.studies.outcome import PROMOTED_FROM, TRIAL
from vertexrig.studies.register import Comparison, Servable, Trained
from vertexrig.studies.trained import model_name

_GOALS = ("MAXIMIZE", "MINIMIZE")


@dataclass(frozen=True)
class RegisterOptions:
    """Which model to register, under which name, and when it counts as better."""

    display_name: str | None = options.option(
        "--as", metavar="NAME", help="Display name of the model; by default the name of the sweep or job."
    )
    alias: str = options.option(
        "--alias",
        metavar="NAME",
        default="champion",
        show_default=True,
        help="Alias that the new version gets, in addition to `default`.",
    )
    min_gain: float = options.option(
        "--min-gain",
        type=click.FloatRange(min=0),
        metavar="NUMBER",
        default=0.0,
        show_default=True,
        help="Least gain over the current version.",
    )
    trial: str | None = options.option(
        "--trial", metavar="ID", help="Trial of a sweep whose model to register; by default the best one."
    )
    metric: str | None = options.option(
        "--metric", metavar="NAME", help="Metric to compare by, if no sweep of the project names it."
    )
    value: float | None = options.option(
        "--value", type=float, metavar="NUMBER", help="Value of the metric, if the trainer wrote no summary.json."
    )
    goal: str | None = options.option(
        "--goal",
        type=click.Choice(_GOALS),
        help="Which values of the metric are better, if no sweep of the project says so.",
    )
    serving_image: str | None = options.option(
        "--serving-image",
        metavar="URI",
        help="Image that serves the model; by default Google's image for its framework and version.",
    )


@click.command("register")
@click.argument("name", cls=NameArgument)
@options.where_options
@options.group("asked", RegisterOptions)
@click.option(
    "--rollback",
    metavar="[VERSION]",
    is_flag=False,
    flag_value="previous",
    help="Move the aliases back to VERSION of the model, by default to the version that the current one replaced; register nothing.",
)
@click.option("--force", is_flag=True, help="Register the model even if it is not better.")
@click.option("--dry-run", is_flag=True, help="Compare, print the request that would be sent, and register nothing.")
@options.format_option("text", "json")
def command(
    name: str,
    where: options.WhereOptions,
    asked: RegisterOptions,
    rollback: str | None,
    force: bool,
    dry_run: bool,
    format_: str,
) -> None:
    """Add the model of job or sweep NAME to the Model Registry if it beats the current version by --min-gain.

    The model's labels record its job, package, metric and data, so that the next model can be compared. To register in the local
    Vertex instead, set the variables that `vertexrig local env` prints.
    """
    loaded = config.load(where.file)
    if rollback is not None:
        version = "" if rollback == "previous" else rollback
        models = ModelsClient(remote.service(loaded))
        now, before = register.rollback(models, asked.display_name or name, asked.alias, version)
        result(format_, {"model": now, "before": before}, now)
        streams.note(f"{asked.alias} and default moved from {before} to {now}")
        return
    found = remote.find(where, name)
    if found.record is not None and not vertex.is_local():
        remote.must_have_succeeded(found.job)
        lines = next_commands.on_local_vertex(where.file, "register", name)
        raise UsageError(
            f"{name} was rehearsed, so its model is on this machine; to register it in the local Vertex:\n{lines}"
        )
    model, served = _trained(where, loaded, found, name, asked)
    project = loaded.project
    models = ModelsClient(remote.service(loaded))
    display = asked.display_name or _display_name(found, loaded, name)
    there = register.present(models, display, asked.alias)
    comparison = register.compare(model, there, asked.min_gain)
    host = catalog.load().host_for_region(project.region)
    serving = register.serving(served, host, asked.serving_image, date.today())
    body = register.model_body(model, display, serving.uri, asked.alias, project.labels, there)
    streams.note(f"{display}: {comparison.text}")
    wanted = comparison.better or force
    if wanted:
        streams.note(serving.text)
    made: dict[str, Any] = {}
    if wanted and not dry_run:
        # a new version if the model exists, otherwise a new model
        made = models.upload(body, plain(str(there["name"])) if there else "")
    _report(format_, model, comparison, body, made, wanted=wanted, dry_run=dry_run)


def _report(
    format_: str,
    trained: Trained,
    comparison: Comparison,
    body: dict[str, Any],
    made: dict[str, Any],
    *,
    wanted: bool,
    dry_run: bool,
) -> None:
    data = {
        "registered": bool(made),
        "model": made.get("model"),
        "version": made.get("modelVersionId"),
        "metric": trained.metric,
        "value": trained.value,
        "compared": asdict(comparison),
        "sent": body if wanted else None,
    }
    if made:
        text = f"{str(made.get('model', '')).partition('@')[0]}@{made.get('modelVersionId', '')}"
    elif dry_run and wanted:
        text = json.dumps(body, indent=2)
    else:
        text = "not registered"
    result(format_, data, text)


def works(where: options.WhereOptions, loaded: Loaded, found: remote.FoundJob, name: str) -> bool:
    """Whether `register NAME`, without options, finds a model that it can register, and a metric to compare it by."""
    asked = RegisterOptions(None, "champion", 0.0, None, None, None, None, None)
    try:
        _, served = _trained(where, loaded, found, name, asked)
        host = catalog.load().host_for_region(loaded.project.region)
        register.serving(served, host, None, date.today())
    except VertexrigError:
        return False
    return True


def _display_name(found: remote.FoundJob, loaded: Loaded, name: str) -> str:
    own = (
        found.record.name
        if found.record is not None
        else name
        if name in loaded.project.jobs
        else found.job.display_name
    )
    return model_name(found.job, own) or name


def _trained(
    where: options.WhereOptions, loaded: Loaded, found: remote.FoundJob, name: str, asked: RegisterOptions
) -> tuple[Trained, Servable]:
    """Return the model that a job trained, and what its serving image loads.

    Raises:
        UsageError: Something is missing; the message names everything that is.
    """
    job = found.job
    made = register.made_with(loaded, catalog.load(), trained.image(job))
    if job.collection == TUNING:
        model = trained.of_sweep(job, name, trial=asked.trial, metric=asked.metric, value=asked.value)
        served = register.must_be_there(Storage(model.uri), made, asked.serving_image)
        return model.below(served.folder), served
    if asked.trial is not None:
        raise UsageError(f"{name} is a custom job; --trial is for a sweep")
    if not job.ended:
        raise UsageError(f"{name} has not ended: its state is {job.state.removeprefix('JOB_STATE_')}")
    remote.must_have_succeeded(job)
    lacking: list[UsageError] = []
    if job.output:
        try:
            folder = Storage(f"{job.output}/{register.MODEL_DIR}")
            served = register.must_be_there(folder, made, asked.serving_image)
        except UsageError as error:
            lacking.append(error)
    try:
        model = trained.of_job(
            loaded,
            job,
            name,
            metric=asked.metric,
            value=asked.value,
            goal=asked.goal,
            known=lambda: _reported(where, found),
        )
    except UsageError as error:
        lacking.append(error)
    if lacking:
        raise UsageError("; and ".join(map(str, lacking)) + _with_options(where, name, asked, lacking))
    return model.below(served.folder), served


def _with_options(where: options.WhereOptions, name: str, asked: RegisterOptions, lacking: Sequence[UsageError]) -> str:
    """Return the command with the options that supply everything that is missing; "" if options cannot."""
    if not all(isinstance(one, register.LackingError) and one.options for one in lacking):
        return ""
    typed = click.get_current_context().get_parameter_source
    given = {key: value for key, value in asdict(asked).items() if typed(key) is ParameterSource.COMMANDLINE}
    for one in lacking:
        given |= one.options if isinstance(one, register.LackingError) else {}
    flags = {"display_name": "as"}
    words = [f"--{flags.get(key, key).replace('_', '-')}={value}" for key, value in given.items()]
    return f":\n{next_commands.line('register', name, *next_commands.named(where.file), *words)}"


def _reported(where: options.WhereOptions, found: remote.FoundJob) -> Mapping[str, float]:
    """Return the metrics that a rehearsal reported through hypertune, or those of the trial that it was promoted from."""
    if found.record is not None:
        return found.record.metrics
    sweep = found.job.labels.get(PROMOTED_FROM)
    if not sweep:
        return {}
    try:
        study = remote.sweep(where, sweep).job
    except UsageError:  # the sweep was deleted
        return {}
    metrics = trained.of_promoted(found.job, study)
    if metrics:
        streams.note(
            f"the model has no summary.json: its metrics are those of trial {found.job.labels.get(TRIAL)} of {sweep}"
        )
    return metrics
