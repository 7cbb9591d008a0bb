"""`vertexrig register`: a trained model to the Model Registry, if it is better than the version that is there."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vertexrig.cli import options, remote
from vertexrig.cli.output import result
from vertexrig.errors import UsageError

if TYPE_CHECKING:
    from vertexrig.project.config import Loaded
    from vertexrig.studies.register import Comparison, Trained

_GOALS = ("MAXIMIZE", "MINIMIZE")


@click.command("register")
@click.argument("name")
@options.file_option
@options.local_option
@click.option("--as", "display_name", help="The model's display name; by default the sweep's, or the job's.")
@click.option("--alias", default="champion", show_default=True, help="Alias of the best version, beside `default`.")
@click.option(
    "--min-gain", type=click.FloatRange(min=0), default=0.0, help="Gain over the version that is there, at least."
)
@click.option("--trial", help="Of a sweep: this trial's model in place of the best one's.")
@click.option("--metric", help="Metric to compare by, if the project's sweeps do not say it.")
@click.option("--value", type=float, help="Its value, where the trainer wrote no summary.json.")
@click.option("--goal", type=click.Choice(_GOALS), help="Which values are better, if no sweep says it.")
@click.option(
    "--serving-image", metavar="URI", help="Image that serves the model; by default Google's, by version of TensorFlow."
)
@click.option("--force", is_flag=True, help="Register it even if it is not better.")
@click.option("--dry-run", is_flag=True, help="Compare, print what would be sent, and register nothing.")
@options.format_option("text", "json")
def command(
    name: str,
    file: Path | None,
    local: bool,
    display_name: str | None,
    alias: str,
    min_gain: float,
    trial: str | None,
    metric: str | None,
    value: float | None,
    goal: str | None,
    serving_image: str | None,
    force: bool,
    dry_run: bool,
    format_: str,
) -> None:
    """Add the model of job or sweep NAME to the Model Registry if it beats the version that is there by --min-gain.

    The model's labels keep its job, package, metric and data, so that the next one can be compared. With VERTEXRIG_AIPLATFORM and
    STORAGE_EMULATOR_HOST set, as `vertexrig local env` prints them, it goes to the local Vertex.
    """
    from vertexrig import catalog
    from vertexrig.cloud.models import ModelsClient, plain
    from vertexrig.cloud.storage import Storage
    from vertexrig.project import config
    from vertexrig.studies import register

    loaded = config.load(file)
    found = remote.find(file, name, local=local)
    trained = _trained(loaded, found, name, trial, metric, value, goal)
    rehearsed = "; it was rehearsed: point at the local Vertex with `vertexrig local env`" if found.record else ""
    register.must_be_there(Storage(trained.uri), saved_model=serving_image is None, hint=rehearsed)
    project = loaded.project
    models = ModelsClient(remote.vertex(file))
    display = display_name or _display_name(found, loaded, name)
    there = register.present(models, display, alias)
    comparison = register.compare(trained, there, min_gain)
    serving = register.serving(trained, catalog.load(), project.region, serving_image, date.today())
    body = register.model_body(trained, display, serving.uri, alias, project.labels)
    options.note(f"{display}: {comparison.text}")
    wanted = comparison.better or force
    if wanted:
        options.note(serving.text)
    made: dict[str, Any] = {}
    if wanted and not dry_run:
        made = models.upload(body, plain(str(there["name"])) if there else "")
    _report(format_, trained, comparison, body, made, wanted=wanted, dry_run=dry_run)


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
        import json

        text = json.dumps(body, indent=2)
    else:
        text = "not registered"
    result(format_, data, text)


def _display_name(found: remote.FoundJob, loaded: Loaded, name: str) -> str:
    """What the model is called: the sweep that the job comes from, so that each promotion is a version of one model."""
    from vertexrig.studies.promote import LABEL

    own = (
        found.record.name
        if found.record is not None
        else name
        if name in loaded.project.jobs
        else found.job.display_name
    )
    return found.job.labels.get(LABEL) or own or name


def _trained(
    loaded: Loaded,
    found: remote.FoundJob,
    name: str,
    trial: str | None,
    metric: str | None,
    value: float | None,
    goal: str | None,
) -> Trained:
    """What the job has trained."""
    from vertexrig.cloud.vertex import TUNING

    if found.job.collection == TUNING:
        return _of_sweep(found, name, trial, metric, value)
    if trial is not None:
        raise UsageError(f"{name} is a custom job; --trial is for a sweep")
    return _of_job(loaded, found, name, metric, value, goal)


def _of_sweep(found: remote.FoundJob, name: str, trial: str | None, metric: str | None, value: float | None) -> Trained:
    from vertexrig import spec
    from vertexrig.studies import promote, register
    from vertexrig.studies.outcome import outcome

    ended = outcome(name, found.job.data, least=1)
    chosen = promote.chosen(ended, trial)
    folder = promote.trial_folder(found.job.data, chosen.id)
    if not folder:
        raise UsageError(f"{name} has no baseOutputDirectory, so its trials saved no model that can be registered")
    goals = {one.id: "MAXIMIZE" if one.sign > 0 else "MINIMIZE" for one in ended.metrics}
    metric = metric or ended.metrics[0].id
    if metric not in goals:
        raise UsageError(f"{name} has no metric {metric!r} to compare by. Choices: {', '.join(goals)}.")
    document = spec.from_data(dict(found.job.data.get("trialJobSpec") or {}), kind="CustomJobSpec")
    return register.Trained(
        f"{folder}/{register.MODEL_DIR}", metric, chosen.metrics[metric] if value is None else value, goals[metric],
        f"{found.job.display_name}-trial-{chosen.id}", found.job.id, register.package_hash(document),
        register.data_argument(document), document.pools[0].image if document.pools else "",
    )  # fmt: skip


def _of_job(
    loaded: Loaded, found: remote.FoundJob, name: str, metric: str | None, value: float | None, goal: str | None
) -> Trained:
    from vertexrig import spec
    from vertexrig.cloud.storage import Storage
    from vertexrig.studies import register

    job = found.job
    if not job.ended:
        raise UsageError(f"{name} has not ended: its state is {job.state.removeprefix('JOB_STATE_')}")
    remote.must_have_succeeded(job)
    if not job.output:
        raise UsageError(f"{name} has no baseOutputDirectory, so it saved no model that can be registered")
    uri = f"{job.output}/{register.MODEL_DIR}"
    goals = _goals(loaded, job.labels)
    metric = metric or next(iter(goals), None)
    if metric is None:
        raise UsageError(
            f"no sweep of {loaded.file} says which metric {name} is compared by; name it with --metric and --goal"
        )
    goal = goal or goals.get(metric)
    if goal is None:
        raise UsageError(
            f"no sweep of {loaded.file} says whether more or less of {metric} is better; say it with --goal"
        )
    if value is None:
        known = dict(found.record.metrics) if found.record is not None else {}
        summary = {**known, **register.read_summary(Storage(uri))}
        value = register.summary_value(summary, metric)
        if value is None:
            numbers = [key for key in summary if register.summary_value(summary, key) is not None]
            has = f"it has {', '.join(numbers[:8])}" if numbers else f"{uri} has none"
            raise UsageError(f"summary.json of {name} has no {metric}: {has}; give it with --value")
    document = spec.from_data(dict(job.data.get("jobSpec") or {}), kind="CustomJobSpec")
    return register.Trained(
        uri, metric, value, goal, job.display_name, job.id, register.package_hash(document),
        register.data_argument(document), document.pools[0].image if document.pools else "",
    )  # fmt: skip


def _goals(loaded: Loaded, labels: Any) -> dict[str, str]:
    """Goals by metric: of the sweep that the job was promoted from, otherwise of every sweep of the project."""
    from vertexrig.studies.promote import LABEL

    sweeps = loaded.project.sweeps
    own = sweeps.get(str(labels.get(LABEL, "")))
    found: dict[str, str] = {}
    for one in [own] if own is not None else sweeps.values():
        metrics = one.study.metrics if one.study is not None else one.metrics
        for key, settings in metrics.items():
            found.setdefault(key, settings if isinstance(settings, str) else settings.goal)
    return found
