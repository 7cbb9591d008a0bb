"""`vertexrig register`: a trained model to the Model Registry, if it is better than the version that is there."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vertexrig.cli import options, remote, streams
from vertexrig.cli.names import NameArgument
from vertexrig.cli.output import result
from vertexrig.errors import UsageError

if TYPE_CHECKING:
    from vertexrig.project.config import Loaded
    from vertexrig.studies.register import Comparison, Trained

_GOALS = ("MAXIMIZE", "MINIMIZE")


@click.command("register")
@click.argument("name", cls=NameArgument)
@options.file_option
@options.local_option
@click.option(
    "--as", "display_name", metavar="NAME", help="The model's display name; by default the sweep's, or the job's."
)
@click.option(
    "--alias",
    metavar="NAME",
    default="champion",
    show_default=True,
    help="Alias of the best version, beside `default`.",
)
@click.option(
    "--min-gain",
    type=click.FloatRange(min=0),
    metavar="NUMBER",
    default=0.0,
    show_default=True,
    help="Gain over the version that is there, at least.",
)
@click.option("--trial", metavar="ID", help="Of a sweep: this trial's model in place of the best one's.")
@click.option("--metric", metavar="NAME", help="Metric to compare by, if the project's sweeps do not say it.")
@click.option("--value", type=float, metavar="NUMBER", help="Its value, where the trainer wrote no summary.json.")
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
    streams.note(f"{display}: {comparison.text}")
    wanted = comparison.better or force
    if wanted:
        streams.note(serving.text)
    made: dict[str, Any] = {}
    if wanted and not dry_run:
        # With the model there, a new version of it; otherwise a model of its own.
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
    from vertexrig.studies.trained import model_name

    own = (
        found.record.name
        if found.record is not None
        else name
        if name in loaded.project.jobs
        else found.job.display_name
    )
    return model_name(found.job, own) or name


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
    from vertexrig.studies import trained

    job = found.job
    if job.collection == TUNING:
        return trained.of_sweep(job, name, trial=trial, metric=metric, value=value)
    if trial is not None:
        raise UsageError(f"{name} is a custom job; --trial is for a sweep")
    if not job.ended:
        raise UsageError(f"{name} has not ended: its state is {job.state.removeprefix('JOB_STATE_')}")
    remote.must_have_succeeded(job)
    known = dict(found.record.metrics) if found.record is not None else {}
    return trained.of_job(loaded, job, name, metric=metric, value=value, goal=goal, known=known)
