"""The attempts of a job with candidates as rows: the candidate, how long its job waited for machines, why it was given up, its cost.

An attempt is a mapping as the candidates of `vertexrig.submit` have it; a rehearsal keeps them in its record.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vertexrig.times import length


def table(attempts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each attempt, the first one first."""
    return [
        {
            "candidate": one["candidate"],
            "changes": one["changes"] or "unchanged",
            "job": str(one["job"]).rpartition("/")[2] or "none",
            "waited": "" if one["waited_s"] is None else length(round(one["waited_s"])),
            "USD": "" if one["usd"] is None else f"{one['usd']:.2f}",
            "outcome": ": ".join(filter(None, (one["reason"], one["text"]))),
        }
        for one in attempts
    ]
