"""What a refused create or the end of a job says about machines: a quota is used up, none are free, or they were taken away.

This is the only place that reads such texts. The rows are made of recordings.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from vertexrig.cloud.rest import RestError
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.spec.states import FAILED, has_run


class Scarcity(Enum):
    """Why there is no job, or no longer one."""

    QUOTA = "quota"
    """The project may not have so many: waiting helps only if its other jobs end."""
    STOCKOUT = "stockout"
    """The region has none free."""
    PREEMPTED = "preempted"
    """The job had begun, lost its machines and got none again."""
    OTHER = "other"
    """Neither: another place or machine would not help, or nothing is known that says so."""


RESOURCE_EXHAUSTED = 8
"""google.rpc.Code. It alone does not tell a quota of machines from a limit of calls in a minute."""


@dataclass(frozen=True)
class _Form:
    """One form of the service's first line; the first that fits counts.

    Args:
        pattern: Of the line.
        codes: The google.rpc.Code it was recorded with; any if none was.
        source: Where it was recorded, and when.
    """

    scarcity: Scarcity
    pattern: str
    codes: Collection[int]
    source: str


TABLE = (
    # A program's own output follows this sentence, so it comes first.
    _Form(
        Scarcity.OTHER,
        r"^The replica \S+ (exited with|ran out of memory)",
        (),
        "page understanding-training-service, 2026-08-22",
    ),
    _Form(
        Scarcity.QUOTA,
        r"(^|: )The following quota metrics exceed quota limits: ",
        (RESOURCE_EXHAUSTED,),
        "GoogleCloudPlatform/vertex-ai-samples issues 700 (a pipeline's job, code 8) and 3479, stable-diffusion-on-gcp issue 12 "
        "(create, 429), 2022-06 to 2024-08",
    ),
    _Form(
        Scarcity.QUOTA,
        r"(^|: )The following quotas are exceeded: ",
        (),
        "public files, index ids 33677621252 and 69381825152: machines of persistent resources, 2026-09-01; no code was shown",
    ),
    _Form(
        Scarcity.STOCKOUT,
        r"(^|: )Resources are insufficient in region: ",
        (),
        "page understanding-training-service, 2026-08-22; openreview/openreview-expertise issue 401, 2026-08-19; no code was shown",
    ),
    _Form(
        Scarcity.STOCKOUT,
        r"\bSTOCKOUT\b",
        (),
        "page use-spot-vms, 2026-08-22: the name of the error after the preemption of Spot machines; its text is on no record",
    ),
)


def scarcity_of(end: RestError | RemoteJob) -> Scarcity:
    """Tell what a refused create, or a job that failed, says about machines.

    A job that had begun to run and ends for lack of machines was preempted: the service gives that end the error of a stock-out.
    """
    if isinstance(end, RestError):
        code = RESOURCE_EXHAUSTED if end.status == 429 else None
        return _read(code, str(end))
    if end.state != FAILED:
        return Scarcity.OTHER
    error = end.data.get("error")
    found = _read(error.get("code") if isinstance(error, Mapping) else None, end.error)
    return Scarcity.PREEMPTED if found is Scarcity.STOCKOUT and has_run(end.data) else found


def _read(code: object, text: str) -> Scarcity:
    line = text.partition("\n")[0]
    fits = (row.scarcity for row in TABLE if (not row.codes or code in row.codes) and re.search(row.pattern, line))
    return next(fits, Scarcity.OTHER)
