"""The region a job runs in, and what it offers for training."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vertexrig.catalog import Catalog
from vertexrig.checks.model import COMPUTE_ENGINE, GCLOUD, LOCATIONS, SDK, SERVER, Context, Problem, Rule, join
from vertexrig.errors import did_you_mean, meant
from vertexrig.finding import REMOVE, Severity, write
from vertexrig.spec.document import Document, machine_path


def region_unknown(document: Document, context: Context) -> Iterator[Problem]:
    region = context.region
    message, best = why_unknown(region, context.catalog) if region else ("", None)
    if message:
        yield Problem("", message, edits=write(best))


def why_unknown(region: str, catalog: Catalog) -> tuple[str, str | None]:
    """Return why a region is none that jobs train in, and the region that is meant, if that is plain; "" for a training region."""
    regions = catalog.regions
    if region in regions and regions[region].gcloud:
        return "", None
    known = [name for name, row in regions.items() if row.gcloud]
    # other clouds write eu-west-1
    area = re.sub(r"^eu(?=-)", "europe", region).partition("-")[0]
    near = [name for name in known if name.partition("-")[0] == area] or known
    best = meant(re.sub(r"^eu(?=-)", "europe", region), near)
    if region in regions:
        return f"gcloud does not take {region} as a training region", best
    guess = f"Did you mean {best!r}?" if best else did_you_mean(region, near, most=40)
    return f"{region!r} is not a training region. {guess}", best


def _elsewhere(document: Document, context: Context) -> Iterator[tuple[str, bool, str, str]]:
    """Yield (regional name, whether the region has it for other uses, path, regions that train on it) for each accelerator that the region
    does not offer.
    """
    row = context.catalog.regions.get(context.region)
    for pool in document.running if row is not None else ():
        name = context.catalog.regional_name(pool.machine_type, pool.accelerator_type, pool.accelerator_count)
        if name and row is not None and name not in row.training:
            path = machine_path(pool, "acceleratorType" if pool.accelerator_type else "machineType")
            yield name, name in row.not_for_training, path, ", ".join(context.catalog.regions_with(name))


_ELSEWHERE_FIX = "use one of these regions or another accelerator"


def region_accelerator(document: Document, context: Context) -> Iterator[Problem]:
    for name, there, path, regions in _elsewhere(document, context):
        if regions and not there:
            text = f"{name} is not offered in {context.region}; regions that offer it for training: {regions}"
            yield Problem(path, text, _ELSEWHERE_FIX)


def region_not_for_training(document: Document, context: Context) -> Iterator[Problem]:
    for name, there, path, regions in _elsewhere(document, context):
        if there:
            text = f"{name} is in {context.region}, but not for training; regions that offer it for training: {regions}"
            yield Problem(path, text, _ELSEWHERE_FIX)


def region_machine(document: Document, context: Context) -> Iterator[Problem]:
    catalog, region = context.catalog, context.region
    row = catalog.regions.get(region)
    if row is None:
        return
    for pool in document.running:
        regions = catalog.compute_engine_regions(pool.machine_type)
        name = catalog.regional_name(pool.machine_type, pool.accelerator_type, pool.accelerator_count)
        if not regions or region in regions or (name and name not in row.training):
            continue
        known = ", ".join(sorted(name for name in regions if name in catalog.regions))
        text = f"{pool.machine_type} is not available in {region}; Compute Engine has it in {known}"
        yield Problem(machine_path(pool, "machineType"), text, "use one of these regions or another machine type")


def protected_location(document: Document, context: Context) -> Iterator[Problem]:
    region = document.job.get("protectedArtifactLocationId")
    if region and region == context.region:
        path = f"{document.job_path}protectedArtifactLocationId"
        yield Problem(path, f"{region} is the job's own region; the field is for another one", edits=REMOVE)


RULES = (
    Rule("region-unknown", Severity.ERROR, "The region is one gcloud takes for training.", GCLOUD, region_unknown, "safe"),
    Rule("region-accelerator", Severity.ERROR, "The region has the accelerator.",
         join(LOCATIONS, SERVER), region_accelerator),
    Rule("region-not-for-training", Severity.ERROR, "The region offers the accelerator for training.",
         LOCATIONS, region_not_for_training),
    Rule("region-machine", Severity.WARNING, "Compute Engine has the machine type in the region.",
         join(COMPUTE_ENGINE, SERVER), region_machine),
    Rule("protected-location", Severity.WARNING, "protectedArtifactLocationId names another region than the job's.",
         SDK, protected_location, "unsafe"),
)  # fmt: skip
