"""`vertexrig quota`: what the project has of each quota and uses, and whether a job or sweep fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from vertexrig import spec
from vertexrig.cli import options, streams, targets
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.output import result
from vertexrig.cli.tables import table
from vertexrig.cloud.quotas import LIMITS_PERMISSION, ROLE, USE_PERMISSION, QuotaService
from vertexrig.cloud.rest import RestError
from vertexrig.explain import headroom
from vertexrig.spec.quota import draws
from vertexrig.workspace import Workspace

T = TypeVar("T")
TRAINING = ("custom_model_training_", "restricted_image_training_")
"""How metrics of training begin (quota_errors of the catalog's sources, and index id 60796126602, 2026-07-27)."""


@click.command("quota")
@click.argument("name", cls=NameArgument, required=False)
@options.project_options
@click.option("--region", metavar="REGION", help="Region to look at; the project's by default.")
@options.format_option("text", "json")
def command(name: str | None, project: options.ProjectOptions, region: str | None, format_: str) -> None:
    """Show what the project has of each training quota in a region and what it uses, or with NAME what that job or
    sweep draws of each, whether it fits, and how to ask for more.

    Limits are of Cloud Quotas, what is in use of Cloud Monitoring. Where they cannot be asked, stderr says what is missing, and the
    limits are those of a new project by the catalog, marked as such.
    """
    workspace = targets.workspace(project, name, needed=True)
    place = region or workspace.loaded.project.region
    service = QuotaService(workspace.loaded.project.project)
    asked = service.reachable()
    if not asked:
        streams.note(
            "jobs are on another server, which has no quotas: the limits are those of a new project, by the catalog"
        )
    limits = _asked("limits", LIMITS_PERMISSION, lambda: service.limits(place)) if asked else None
    use = _asked("use", USE_PERMISSION, lambda: service.use(place)) if limits is not None else None
    if name is None:
        _all(workspace, place, limits, use, format_)
        return
    rendered = workspace.renderer.render(name)
    document = spec.parse(rendered.text, file=name, kind=targets.kind(rendered.kind))
    found = headroom.rooms(draws(document, workspace.catalog, place), limits, use)
    short = [one for one in found if one.fits is False]
    more = headroom.request(workspace.loaded.project.project, place, short) if short else []
    data = {"region": place, "fits": _all_fit(found), "quotas": [_data(one) for one in found], "request": more}

    def text() -> str:
        rows = [
            (_answer(one.fits), one.draw.metric or one.draw.item, one.draw.unit, one.sum, one.draw.sum) for one in found
        ]
        shown = (
            table(("fits", f"quota in {place}", "unit", "sum", "drawn by"), rows) if rows else f"{name} draws no quota"
        )
        refused = [f"{one.draw.metric}: a request would be refused: {one.refusal}" for one in short if one.refusal]
        return "\n".join(
            [shown, *(["", "ask for more:"] if more else []), *(f"  {line}" for line in [*more, *refused])]
        )

    result(format_, data, text)


def _asked(what: str, permission: str, ask: Callable[[], dict[str, T]]) -> dict[str, T] | None:
    """Return what a service answers; None where it does not, with what it would take on stderr."""
    try:
        return ask()
    except RestError as error:
        takes = (
            f"; it takes the permission {permission}, as of {ROLE}, and the API enabled" if error.status == 403 else ""
        )
        streams.note(f"{what} not known: {error}{takes}")
        return None


def _all(workspace: Workspace, region: str, limits: Any, use: Any, format_: str) -> None:
    """Print every training quota of a region: the project's, or a new project's by the catalog."""
    catalog = workspace.catalog
    if limits is not None:
        rows = [
            {"metric": one.metric, "limit": one.value, "used": (use or {}).get(one.metric), "known": "project"}
            for one in limits.values()
            if one.metric.partition("/")[2].startswith(TRAINING)
        ]
    else:
        prefix, there = catalog.limits.text("quota.prefix"), catalog.regions.get(region)
        metrics = {key: catalog.quotas[key].metric for key in (there.quotas if there else {})}
        # A quota whose metric no source names goes by the catalog's key.
        named = [
            (f"{prefix}{metrics[key]}" if metrics[key] else key, value)
            for key, value in (there.quotas if there else {}).items()
        ]
        rows = [{"metric": name, "limit": value, "used": None, "known": "default"} for name, value in named]
    shown = [row for row in sorted(rows, key=lambda row: str(row["metric"])) if row["limit"] != 0 or row["used"]]
    cells = [
        (
            row["metric"],
            "no limit" if row["limit"] is None else row["limit"],
            "" if row["used"] is None else row["used"],
            row["known"],
        )
        for row in shown
    ]
    if len(shown) < len(rows):
        streams.note(f"left out: {len(rows) - len(shown)} quotas of 0; --format json has them")
    result(
        format_, {"region": region, "quotas": rows}, lambda: table((f"quota in {region}", "limit", "used", "of"), cells)
    )


def _data(one: headroom.QuotaRoom) -> dict[str, Any]:
    keys = ("limit", "known", "used", "fits", "quota_id", "refusal")
    drawn = {key: getattr(one.draw, key) for key in ("metric", "item", "amount", "unit", "sum", "preemptible")}
    return drawn | {key: getattr(one, key) for key in keys}


def _all_fit(found: list[headroom.QuotaRoom]) -> bool | None:
    answers = {one.fits for one in found}
    return False if False in answers else None if None in answers else True


def _answer(fits: bool | None) -> str:
    return {True: "yes", False: "NO", None: "?"}[fits]
