"""The region a job runs in, and what it offers for training."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vertexrig.checks.model import Context, Problem, Rule
from vertexrig.checks.sources import COMPUTE_ENGINE, GCLOUD, LOCATIONS, SDK, SERVER, join
from vertexrig.errors import did_you_mean, meant
from vertexrig.finding import Severity
from vertexrig.spec.document import Document, Pool
from vertexrig.spec.pools import machine_path, running


def _listed(regions: tuple[str, ...]) -> str:
    return ", ".join(regions)


def region_unknown(document: Document, context: Context) -> Iterator[Problem]:
    region, regions = context.region, context.catalog.regions
    if not region or (region in regions and regions[region].gcloud):
        return
    known = [name for name, row in regions.items() if row.gcloud]
    area = re.sub(r"^eu(?=-)", "europe", region).partition("-")[0]
    near = [name for name in known if name.partition("-")[0] == area] or known
    best = meant(re.sub(r"^eu(?=-)", "europe", region), near)
    fix = f"use {best}" if best else ""
    if region in regions:
        yield Problem("", f"gcloud does not take {region} as a training region", fix)
    else:
        yield Problem("", f"{region!r} is not a training region. {_guess(best, region, near)}", fix)


def _guess(best: str | None, region: str, near: list[str]) -> str:
    return f"Did you mean {best!r}?" if best else did_you_mean(region, near, most=40)


def _accelerators(document: Document, context: Context) -> Iterator[tuple[Pool, str, str]]:
    """Running pools with an accelerator: the pool, the name regions list it under, and the path that chose it."""
    for pool in running(document):
        name = context.catalog.regional_name(pool.machine_type, pool.accelerator_type, pool.accelerator_count)
        if name:
            chosen = "acceleratorType" if pool.accelerator_type else "machineType"
            yield pool, name, machine_path(pool, chosen)


def region_accelerator(document: Document, context: Context) -> Iterator[Problem]:
    row = context.catalog.regions.get(context.region)
    if row is None:
        return
    for _, name, path in _accelerators(document, context):
        elsewhere = context.catalog.regions_with(name)
        if elsewhere and name not in row.training and name not in row.not_for_training:
            yield Problem(path, f"{name} is not offered in {row.name}; regions that train on it: {_listed(elsewhere)}")


def region_not_for_training(document: Document, context: Context) -> Iterator[Problem]:
    row = context.catalog.regions.get(context.region)
    if row is None:
        return
    for _, name, path in _accelerators(document, context):
        if name in row.not_for_training and name not in row.training:
            elsewhere = _listed(context.catalog.regions_with(name))
            yield Problem(path, f"{name} is in {row.name}, but not for training; regions that train on it: {elsewhere}")


def region_machine(document: Document, context: Context) -> Iterator[Problem]:
    catalog, region = context.catalog, context.region
    row = catalog.regions.get(region)
    if row is None:
        return
    for pool in running(document):
        places = catalog.compute_engine_regions(pool.machine_type)
        name = catalog.regional_name(pool.machine_type, pool.accelerator_type, pool.accelerator_count)
        if not places or region in places or (name and name not in row.training):
            continue
        known = tuple(sorted(place for place in places if place in catalog.regions))
        text = f"Compute Engine has no {pool.machine_type} in {region}; it has it in {_listed(known)}"
        yield Problem(machine_path(pool, "machineType"), text)


def protected_location(document: Document, context: Context) -> Iterator[Problem]:
    place = document.job.get("protectedArtifactLocationId")
    if place and place == context.region:
        path = f"{document.job_path}protectedArtifactLocationId"
        yield Problem(path, f"{place} is the job's own region; the field is for another one", "remove it")


RULES = (
    Rule("region-unknown", Severity.ERROR, "The region is one gcloud takes for training.", GCLOUD, region_unknown),
    Rule("region-accelerator", Severity.ERROR, "The region has the accelerator.",
         join(LOCATIONS, SERVER), region_accelerator),
    Rule("region-not-for-training", Severity.ERROR, "The region offers the accelerator for training.",
         LOCATIONS, region_not_for_training),
    Rule("region-machine", Severity.WARNING, "Compute Engine has the machine type in the region.",
         join(COMPUTE_ENGINE, SERVER), region_machine),
    Rule("protected-location", Severity.WARNING, "protectedArtifactLocationId names another region than the job's.",
         SDK, protected_location),
)  # fmt: skip
