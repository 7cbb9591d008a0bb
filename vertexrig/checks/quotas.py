"""Quota: what the job draws, and where that is more than a new project has."""

from __future__ import annotations

from collections.abc import Iterator

from vertexrig.checks.model import QUOTAS, SERVER, SPOT_SURVEY, Context, Problem, Rule, join
from vertexrig.finding import Severity
from vertexrig.spec.document import Document
from vertexrig.spec.quota import Draw, draws

_FIX = "ask for more quota, or use fewer replicas, accelerators or parallel trials"
_SPOT_FIX = (
    "use strategy: STANDARD, or see whether the project has more; a new project's request for more is denied "
    "(NOT_ENOUGH_USAGE_HISTORY)"
)


def _name(draw: Draw) -> str:
    return draw.metric or f"the {'preemptible ' if draw.preemptible else ''}training quota for {draw.item}"


def _amount(draw: Draw) -> str:
    return f"{draw.amount:,} {draw.unit.removesuffix('s') if draw.amount == 1 else draw.unit}"


def quota_draw(document: Document, context: Context) -> Iterator[Problem]:
    for draw in draws(document, context.catalog, context.region):
        text = f"draws {_amount(draw)} of {_name(draw)} ({draw.sum})"
        if context.region:
            known = "not documented" if draw.default is None else f"{draw.default:,}"
            text += f"; the default in {context.region} is {known}"
        yield Problem(draw.path, text)


def _compared(document: Document, context: Context) -> list[Draw]:
    """Return the draws to compare with the region's defaults; none without a region."""
    return draws(document, context.catalog, context.region) if context.region else []


def quota_zero(document: Document, context: Context) -> Iterator[Problem]:
    for draw in _compared(document, context):
        if draw.default == 0:
            text = f"{_name(draw)} is 0 in {context.region} until more is granted; the job draws {_amount(draw)}"
            yield Problem(draw.path, text, "ask for quota first, or choose another region or accelerator")


def _too_large(document: Document, context: Context, *, disks: bool) -> Iterator[tuple[Draw, str]]:
    """Draws above a default that is not 0, with that default in words; disks are counted in GB."""
    for draw in _compared(document, context):
        if draw.default and draw.amount > draw.default and (draw.unit == "GB") is disks:
            yield draw, f"the default in {context.region} is {draw.default:,}"


def quota_small(document: Document, context: Context) -> Iterator[Problem]:
    for draw, default in _too_large(document, context, disks=False):
        text = f"draws {_amount(draw)} of {_name(draw)} ({draw.sum}); {default}"
        yield Problem(draw.path, text, _SPOT_FIX if draw.preemptible else _FIX)


def quota_disk(document: Document, context: Context) -> Iterator[Problem]:
    for draw, default in _too_large(document, context, disks=True):
        text = f"boot disks draw {draw.amount:,} GB of {draw.item} ({draw.sum}); {default} GB, over all running jobs"
        yield Problem(draw.path, text, "write diskSpec.bootDiskType: pd-standard, or use fewer replicas")


RULES = (
    Rule("quota-draw", Severity.INFO, "What the job draws of each quota.", join(QUOTAS, SERVER), quota_draw),
    Rule("quota-zero", Severity.WARNING, "No quota the job draws is 0 by default.", join(QUOTAS, SERVER), quota_zero),
    Rule("quota-small", Severity.WARNING, "The job draws no more than the default quota.",
         join(QUOTAS, SERVER, SPOT_SURVEY), quota_small),
    Rule("quota-disk", Severity.WARNING, "Boot disks draw no more than the default quota.", QUOTAS, quota_disk),
)  # fmt: skip
