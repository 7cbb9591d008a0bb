"""`vertexrig jobs`: list jobs and sweeps."""

from __future__ import annotations

import itertools
from pathlib import Path

import click

from vertexrig.cli import options, remote, streams
from vertexrig.cli.output import result
from vertexrig.cli.tables import table
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import CUSTOM, LIVE_FILTER, TUNING, Vertex
from vertexrig.errors import VertexrigError
from vertexrig.project import config
from vertexrig.spec.labels import CLAIM_LABEL
from vertexrig.spec.states import short
from vertexrig.submit.claims import Claims
from vertexrig.submit.reconcile import Reconciler, seen_twice


@click.command("jobs")
@options.where_options
@click.option(
    "--all/--own", "all_", default=True, show_default=True, help="List every job, or only those that vertexrig started."
)
@click.option("--live", is_flag=True, help="List only jobs that wait or run.")
@click.option(
    "--limit",
    type=options.Integer(1),
    default=20,
    show_default=True,
    help="List at most this many jobs, and as many sweeps.",
)
@options.format_option("text", "json")
def command(where: options.WhereOptions, all_: bool, live: bool, limit: int, format_: str) -> None:
    """List jobs and sweeps on Vertex AI, the newest first; with --local, list the rehearsals on this machine.

    If vertexrig started a sweep, the jobs of its trials are not listed. If one request has two jobs, the job that is not recorded
    is cancelled.
    """
    if where.local:
        _rehearsals(where.file, live, limit, format_)
        return
    loaded = config.load(where.file)
    rehearsed = len(remote.history(loaded).all())
    if rehearsed:
        streams.note(f"also rehearsed on this machine: {rehearsed}; `vertexrig jobs --local` lists them")
    vertex = remote.service(loaded)
    filters = [] if all_ else [f"labels.{CLAIM_LABEL}:*"]
    filters += [LIVE_FILTER] if live else []
    sweeps = list(vertex.list(TUNING, filter=" AND ".join(filters)))
    runs = {job.labels[CLAIM_LABEL] for job in sweeps if CLAIM_LABEL in job.labels}
    # Without a limit for the service: the jobs of trials are left out below, and could fill a page of any size.
    listed = vertex.list(CUSTOM, filter=" AND ".join(filters))
    # a trial's job has the labels of its sweep; a trial that has ended does not name its job
    alone = (one for one in listed if one.labels.get(CLAIM_LABEL) not in runs)
    customs = itertools.islice(alone, limit)
    found = sorted([*sweeps[:limit], *customs], key=lambda job: str(job.data.get("createTime")), reverse=True)
    twice = seen_twice(found)
    if twice:
        _reconcile(loaded, vertex, twice)
        # Read again, since a second job may have been cancelled a moment ago.
        found = [vertex.get(job.name) or job for job in found]
    rows = [(job.id, job.kind, job.display_name, short(job.state), job.data.get("createTime")) for job in found]
    headings = ("id", "kind", "name", "state", "created")
    result(format_, {"jobs": [dict(job.data) for job in found]}, lambda: table(headings, rows))


def _reconcile(loaded: config.Loaded, vertex: Vertex, twice: list[tuple[str, str]]) -> None:
    """Cancel second jobs of one request. If that fails, a note says so, and the list is shown all the same."""
    bucket = loaded.project.bucket
    if not bucket:
        return
    reconciler = Reconciler(vertex, Claims(Storage(bucket).below(loaded.project.trigger.prefix)))
    for claim, collection in twice:
        try:
            for name in reconciler.look(claim, collection):
                streams.note(f"cancelled {name.rpartition('/')[2]}: a second job of one request")
        except VertexrigError as error:
            streams.note(
                f"a request has two jobs (label vertexrig_claim={claim}), and the second cannot be cancelled: {error}"
            )


def _rehearsals(file: Path | None, live: bool, limit: int, format_: str) -> None:
    """List the rehearsals, from files on this machine."""
    found = [one for one in remote.history(config.load(file)).all() if not live or not one.job.ended][:limit]
    data = [{**one.job.data, "run": one.run or None, "metrics": dict(one.metrics)} for one in found]
    rows = [(one.job.id, one.job.kind, one.name, short(one.job.state), one.created, one.run) for one in found]
    result(format_, {"jobs": data}, lambda: table(("id", "kind", "name", "state", "created", "run"), rows))
