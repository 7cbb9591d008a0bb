"""`vertexrig quota`: what the project has of each quota and uses, and whether a job or sweep fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, TypeVar

import click

from vertexrig.cli import options, streams, targets
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.output import result
from vertexrig.cli.tables import table
from vertexrig.cloud.quotas import LIMITS_PERMISSION, QUOTAS_VARIABLE, ROLE, USE_PERMISSION, QuotaLimit, QuotaService
from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import is_reachable
from vertexrig.explain import headroom
from vertexrig.workspace import Prepared, Workspace

T = TypeVar("T")
_SAID = {True: "fits", False: "does NOT fit", None: "not known"}
TRAINING = ("custom_model_training_", "restricted_image_training_")
"""How metrics of training begin (quota_errors of the catalog's sources, and index id 60796126602, 2026-07-27)."""


@click.command("quota")
@click.argument("name", cls=NameArgument, required=False)
@options.project_options
@click.option("--region", metavar="REGION", help="Region to look at; by default the project's, or a candidate's own.")
@options.format_option("text", "json")
def command(name: str | None, project: options.ProjectOptions, region: str | None, format_: str) -> None:
    """Show what the project has of each training quota in a region and what it uses, or with NAME what that job or
    sweep, and each of its candidates, draws of each, whether it fits, and how to ask for more.

    Limits are of Cloud Quotas, what is in use of Cloud Monitoring. Where they cannot be asked, stderr says what is missing, and the
    limits are those of a new project by the catalog, marked as such.
    """
    workspace = targets.workspace(project, name, needed=True)
    service = QuotaService(workspace.loaded.project.project)
    known = known_of(service)
    if not is_reachable(QUOTAS_VARIABLE):
        streams.note(
            "jobs are on another server, which has no quotas: the limits are those of a new project, by the catalog"
        )
    if name is None:
        place = region or workspace.loaded.project.region
        _all(workspace, place, *known(place), format_)
        return
    ways = []
    for one in workspace.prepare_all(name, check=False):
        place = region or one.workspace.loaded.project.region
        ways.append(_Headroom(one, place, headroom.rooms(one, place, *known(place))))
    more = {"candidates": [{"candidate": way.prepared.candidate} | way.data for way in ways]} if len(ways) > 1 else {}
    result(format_, ways[0].data | more, lambda: _text(ways))


@dataclass(frozen=True)
class _Headroom:
    """A job, sweep or candidate, and where it stands with each quota that it draws in a region."""

    prepared: Prepared
    region: str
    found: list[headroom.QuotaRoom]

    @cached_property
    def request(self) -> list[str]:
        """What asks for more where it does not fit."""
        short = [one for one in self.found if one.fits is False]
        return headroom.request(self.prepared.workspace.loaded.project.project, self.region, short) if short else []

    @property
    def fits(self) -> bool | None:
        answers = {one.fits for one in self.found}
        return False if False in answers else None if None in answers else True

    @property
    def data(self) -> dict[str, Any]:
        quotas = [_data(one) for one in self.found]
        return {"region": self.region, "fits": self.fits, "quotas": quotas, "request": self.request}


def _text(ways: list[_Headroom]) -> str:
    """Return a job's quotas as a table, with a column for the candidate if there are several, and what asks for more."""
    shown = []
    for way in ways:
        rows = [
            (_answer(one.fits), one.draw.metric or one.draw.item, one.draw.unit, one.sum, one.draw.sum)
            for one in way.found
        ]
        if len(ways) > 1:
            shown.append(f"{way.prepared.title} in {way.region}: {_SAID[way.fits]}" if rows else way.prepared.title)
        heading = ("fits", f"quota in {way.region}", "unit", "sum", "drawn by")
        shown += [table(heading, rows) if rows else f"{way.prepared.view.name} draws no quota", ""]
    more = list(dict.fromkeys(line for way in ways for line in way.request))
    for way in ways:
        refusals = (
            f"{one.draw.metric}: a request would be refused: {one.refusal}"
            for one in way.found
            if one.fits is False and one.refusal
        )
        more += [line for line in refusals if line not in more]
    asks = ["ask for more:", *(f"  {line}" for line in more)] if more else []
    return "\n".join([*shown, *asks]).rstrip()


def known_of(service: QuotaService) -> Callable[[str], tuple[dict[str, QuotaLimit] | None, dict[str, int] | None]]:
    """Return what gives limits and use of a region; each region is asked once, and what is missing noted once."""
    asked, noted = is_reachable(QUOTAS_VARIABLE), set[str]()

    @cache
    def known(region: str) -> tuple[dict[str, QuotaLimit] | None, dict[str, int] | None]:
        limits = _asked("limits", LIMITS_PERMISSION, lambda: service.limits(region), noted) if asked else None
        use = _asked("use", USE_PERMISSION, lambda: service.use(region), noted) if limits is not None else None
        return limits, use

    return known


def _asked(what: str, permission: str, ask: Callable[[], dict[str, T]], noted: set[str]) -> dict[str, T] | None:
    """Return what a service answers; None where it does not, with what it would take on stderr, once."""
    try:
        return ask()
    except RestError as error:
        takes = (
            f"; it takes the permission {permission}, as of {ROLE}, and the API enabled" if error.status == 403 else ""
        )
        said = f"{what} not known: {error}{takes}"
        if said not in noted:
            noted.add(said)
            streams.note(said)
        return None


def _all(
    workspace: Workspace, region: str, limits: dict[str, QuotaLimit] | None, use: dict[str, int] | None, format_: str
) -> None:
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


def _answer(fits: bool | None) -> str:
    return {True: "yes", False: "NO", None: "?"}[fits]
