"""Quota: what the job needs, and where that is more than a new project has."""

from __future__ import annotations

from collections.abc import Iterator

from vertexrig.checks.model import QUOTAS, SERVER, SPOT_SURVEY, Context, Problem, Rule, join
from vertexrig.finding import Severity
from vertexrig.spec.document import Document
from vertexrig.spec.quota import QuotaNeed, quota_needs

_FIX = "request more quota, or use fewer replicas, accelerators or parallel trials"
_SPOT_FIX = (
    "use strategy: STANDARD, or check the project's own quota with `vertexrig quota`; a new project's request for more "
    "Spot quota is denied (NOT_ENOUGH_USAGE_HISTORY)"
)


def _name(need: QuotaNeed) -> str:
    return need.metric or f"the {'preemptible ' if need.preemptible else ''}training quota for {need.item}"


def _amount(need: QuotaNeed) -> str:
    return f"{need.amount:,} {need.unit.removesuffix('s') if need.amount == 1 else need.unit}"


def quota_draw(document: Document, context: Context) -> Iterator[Problem]:
    for need in quota_needs(document, context.catalog, context.region):
        text = f"needs {_amount(need)} of {_name(need)} ({need.needed_by})"
        if context.region:
            known = "not documented" if need.default is None else f"{need.default:,}"
            text += f"; the default in {context.region} is {known}"
        yield Problem(need.path, text)


def _compared(document: Document, context: Context) -> list[QuotaNeed]:
    """Return the needs to compare with the region's defaults; none without a region."""
    return quota_needs(document, context.catalog, context.region) if context.region else []


def quota_zero(document: Document, context: Context) -> Iterator[Problem]:
    for need in _compared(document, context):
        if need.default == 0:
            text = f"{_name(need)} is 0 by default in {context.region}; the job needs {_amount(need)}"
            yield Problem(need.path, text, "request quota first, or choose another region or accelerator")


def _too_large(document: Document, context: Context, *, disks: bool) -> Iterator[tuple[QuotaNeed, str]]:
    """Needs above a default that is not 0, with that default in words; disks are counted in GB."""
    for need in _compared(document, context):
        if need.default and need.amount > need.default and (need.unit == "GB") is disks:
            yield need, f"the default in {context.region} is {need.default:,}"


def quota_small(document: Document, context: Context) -> Iterator[Problem]:
    for need, default in _too_large(document, context, disks=False):
        text = f"needs {_amount(need)} of {_name(need)} ({need.needed_by}); {default}"
        yield Problem(need.path, text, _SPOT_FIX if need.preemptible else _FIX)


def quota_disk(document: Document, context: Context) -> Iterator[Problem]:
    for need, default in _too_large(document, context, disks=True):
        text = (
            f"boot disks need {need.amount:,} GB of {need.item} ({need.needed_by}); {default} GB, over all running jobs"
        )
        yield Problem(need.path, text, "write diskSpec.bootDiskType: pd-standard, or use fewer replicas")


RULES = (
    Rule("quota-draw", Severity.INFO, "How much of each quota the job needs.", join(QUOTAS, SERVER), quota_draw),
    Rule("quota-zero", Severity.WARNING, "No quota that the job needs is 0 by default.", join(QUOTAS, SERVER), quota_zero),
    Rule("quota-small", Severity.WARNING, "The job needs no more than the default quota.",
         join(QUOTAS, SERVER, SPOT_SURVEY), quota_small),
    Rule("quota-disk", Severity.WARNING, "Boot disks need no more than the default quota.", QUOTAS, quota_disk),
)  # fmt: skip
