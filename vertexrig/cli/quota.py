"""`vertexrig quota`: show each quota's limit and use, and whether a job or sweep fits."""

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
_FITS = {True: "yes", False: "NO", None: "?"}
_SAID = {True: "fits", False: "does NOT fit", None: "not known"}
TRAINING = ("custom_model_training_", "restricted_image_training_")
"""How metrics of training begin (quota_errors of the catalog's sources, and index id 60796126602, 2026-07-27)."""


@click.command("quota")
@click.argument("name", cls=NameArgument, required=False)
@options.project_options
@targets.region_option
@options.format_option("text", "json")
def command(name: str | None, project: options.ProjectOptions, region: str | None, format_: str) -> None:
    """Show the limit and the use of each training quota in a region. With NAME, show how much of each quota that job or sweep and
    its candidates need, whether it fits, and how to request more.

    Limits come from Cloud Quotas, the use from Cloud Monitoring. If they cannot be read, stderr says what is missing, and the
    limits of a new project are shown from the catalog, marked as default.
    """
    workspace = targets.workspace(project, name, needed=True)
    targets.check_region(region, workspace.catalog)
    service = QuotaService(workspace.loaded.project.project)
    known = known_of(service)
    if not is_reachable(QUOTAS_VARIABLE):
        streams.note(
            "another server than Vertex AI is set, which has no quotas: the limits are those of a new project, from the catalog"
        )
    if name is None:
        where = region or workspace.loaded.project.region
        _all(workspace, where, *known(where), format_)
        return
    candidates = []
    for one in workspace.prepare_candidates(name, check=False):
        where = region or one.workspace.loaded.project.region
        candidates.append(_NeededQuotas(one, where, headroom.rooms(one, where, *known(where))))
    more = (
        {"candidates": [{"candidate": candidate.prepared.candidate} | candidate.data for candidate in candidates]}
        if len(candidates) > 1
        else {}
    )
    result(format_, candidates[0].data | more, lambda: _text(candidates))


@dataclass(frozen=True)
class _NeededQuotas:
    """The quotas that a job, sweep or candidate needs in a region, and whether they suffice."""

    prepared: Prepared
    region: str
    found: list[headroom.QuotaRoom]

    @cached_property
    def request(self) -> list[str]:
        """The commands that request more quota where it does not fit."""
        short = [one for one in self.found if one.fits is False]
        return headroom.request(self.prepared.workspace.loaded.project.project, self.region, short) if short else []

    @property
    def fits(self) -> bool | None:
        answers = {one.fits for one in self.found}
        return False if False in answers else None if None in answers else True

    @property
    def data(self) -> dict[str, Any]:
        keys = ("metric", "item", "amount", "unit", "needed_by", "preemptible")
        more = ("limit", "known", "used", "fits", "quota_id", "refusal")
        quotas = [
            {key: getattr(one.need, key) for key in keys} | {key: getattr(one, key) for key in more}
            for one in self.found
        ]
        return {"region": self.region, "fits": self.fits, "quotas": quotas, "request": self.request}


def _text(candidates: list[_NeededQuotas]) -> str:
    """Return a table of quotas for each candidate, and the commands that request more."""
    shown = []
    for candidate in candidates:
        rows = [
            (_FITS[one.fits], one.need.metric or one.need.item, one.need.unit, one.reason, one.need.needed_by)
            for one in candidate.found
        ]
        if len(candidates) > 1:
            shown.append(
                f"{candidate.prepared.title} in {candidate.region}: {_SAID[candidate.fits]}"
                if rows
                else candidate.prepared.title
            )
        heading = ("fits", f"quota in {candidate.region}", "unit", "need and limit", "needed by")
        shown += [table(heading, rows) if rows else f"{candidate.prepared.view.name} needs no quota", ""]
    more = list(dict.fromkeys(line for candidate in candidates for line in candidate.request))
    for candidate in candidates:
        refusals = (
            f"{one.need.metric}: a request for more would be refused: {one.refusal}"
            for one in candidate.found
            if one.fits is False and one.refusal
        )
        more += [line for line in refusals if line not in more]
    asks = ["to request more:", *(f"  {line}" for line in more)] if more else []
    return "\n".join([*shown, *asks]).rstrip()


def known_of(service: QuotaService) -> Callable[[str], tuple[dict[str, QuotaLimit] | None, dict[str, int] | None]]:
    """Return a function that reads limits and use of a region, once for each region; what cannot be read is noted once."""
    asked, noted = is_reachable(QUOTAS_VARIABLE), set[str]()

    @cache
    def known(region: str) -> tuple[dict[str, QuotaLimit] | None, dict[str, int] | None]:
        limits = _asked("limits", LIMITS_PERMISSION, lambda: service.limits(region), noted) if asked else None
        use = _asked("use", USE_PERMISSION, lambda: service.use(region), noted) if limits is not None else None
        return limits, use

    return known


def _asked(what: str, permission: str, ask: Callable[[], dict[str, T]], noted: set[str]) -> dict[str, T] | None:
    """Return what a service answers. If it refuses, note on stderr which permission is missing, and return None."""
    try:
        return ask()
    except RestError as error:
        takes = (
            f"; it needs the permission {permission}, for example by {ROLE}, and the enabled API"
            if error.status == 403
            else ""
        )
        said = f"{what} not known: {error}{takes}"
        if said not in noted:
            noted.add(said)
            streams.note(said)
        return None


def _all(
    workspace: Workspace, region: str, limits: dict[str, QuotaLimit] | None, use: dict[str, int] | None, format_: str
) -> None:
    """Print every training quota of a region: the project's, or those of a new project from the catalog."""
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
        # without a known metric, a quota is named by its key in the catalog
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
        streams.note(f"{len(rows) - len(shown)} quotas with the limit 0 are not shown; --format json has them")
    result(
        format_, {"region": region, "quotas": rows}, lambda: table((f"quota in {region}", "limit", "used", "of"), cells)
    )
