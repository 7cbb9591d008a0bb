"""Compares the quota that a job needs with what the project has and uses, and writes the request for more if it does not fit."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from vertexrig.cloud.quotas import SERVICE, QuotaLimit
from vertexrig.spec.quota import QuotaNeed, quota_needs
from vertexrig.workspace import Prepared

CONSOLE = "https://console.cloud.google.com/iam-admin/quotas?project={project}&service=" + SERVICE
"""Page of a project's quotas (public file, index id 69075306037, 2026-11-22)."""


@dataclass(frozen=True)
class QuotaRoom:
    """A quota of a job.

    Args:
        need: What the job needs.
        limit: What there is; None is no limit, or not known (see `known`).
        known: `project` by the service, `default` as a new project has by the catalog, "" not at all.
        used: What is in use; None where it is not known.
        quota_id: The quota's name in a request for more, "" where it is not known.
        refusal: Why such a request would be refused, "" if nothing says so.
    """

    need: QuotaNeed
    limit: int | None
    known: Literal["project", "default", ""]
    used: int | None = None
    quota_id: str = ""
    refusal: str = ""

    @property
    def fits(self) -> bool | None:
        """Whether the job fits in addition to the current use; None if the use is not known."""
        if not self.known:
            return None
        return self.limit is None or (self.used or 0) + self.need.amount <= self.limit

    @property
    def reason(self) -> str:
        """The reason for `fits` in words: `1 in use + 4 needed of 8`."""
        limit = "no limit" if self.limit is None else f"{self.limit:,}"
        of = {"project": limit, "default": f"{limit} by default", "": ""}[self.known]
        in_use = {"project": "? in use + " if self.used is None else f"{self.used:,} in use + "}.get(self.known, "")
        return f"{in_use}{self.need.amount:,} needed{f' of {of}' if of else ', limit unknown'}"


def rooms(
    prepared: Prepared,
    region: str,
    limits: Mapping[str, QuotaLimit] | None,
    use: Mapping[str, int] | None = None,
) -> list[QuotaRoom]:
    """Return the state of each quota that a job, sweep or candidate needs.

    Args:
        prepared: It.
        region: Where it runs.
        limits: What the project has there, by metric; None if the service could not be asked.
        use: What it uses, by metric; None likewise.
    """
    return [_room(need, limits, use) for need in quota_needs(prepared.document, prepared.workspace.catalog, region)]


def cannot_fit(prepared: Prepared, limits: Mapping[str, QuotaLimit] | None) -> str:
    """Return why a candidate can have no room even if nothing else ran: `METRIC in REGION: 4 needed of 1`; "" if it can, or if the
    service did not tell its limits (None): the catalog's defaults refuse nothing.
    """
    region = prepared.workspace.loaded.project.region
    short = [one for one in rooms(prepared, region, limits) if one.known == "project" and one.fits is False]
    return "; ".join(f"{one.need.metric} in {region}: {one.need.amount:,} needed of {one.limit:,}" for one in short)


def _room(need: QuotaNeed, limits: Mapping[str, QuotaLimit] | None, use: Mapping[str, int] | None) -> QuotaRoom:
    limit = (limits or {}).get(need.metric)
    if limit is None:
        return QuotaRoom(need, need.default, "default" if need.default is not None else "")
    # What nothing was measured of may be in use all the same: then it is not known.
    return QuotaRoom(need, limit.value, "project", (use or {}).get(need.metric), limit.quota_id, limit.refusal)


def request(project: str, region: str, short: Sequence[QuotaRoom]) -> list[str]:
    """Return how to ask for more of some quotas: the console's page, and a command for each quota whose name is known."""
    lines = [CONSOLE.format(project=project)]
    for one in short:
        if one.quota_id:
            wanted = (one.used or 0) + one.need.amount
            words = [
                "gcloud",
                "beta",
                "quotas",
                "preferences",
                "create",
                f"--service={SERVICE}",
                f"--project={project}",
            ]
            words += [f"--quota-id={one.quota_id}", f"--preferred-value={wanted}", f"--dimensions=region={region}"]
            lines.append(shlex.join([*words, f"--justification=training on Vertex AI: {one.need.needed_by}"]))
    return lines
