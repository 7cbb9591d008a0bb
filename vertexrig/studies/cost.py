"""What a job or study has cost so far: an estimate from when it ran and the catalog's prices.

A tuning job is billed by the duration of its trials (hyperparameter tuning overview, 2026-08-22), a custom job from its
start to its end. The bill itself is in the console; nothing here is read from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vertexrig import spec, times
from vertexrig.catalog import Catalog
from vertexrig.cloud.vertex import TUNING, RemoteJob
from vertexrig.results.study import course
from vertexrig.spec.api_names import camel_keys
from vertexrig.spec.estimate import Estimate, elsewhere, estimate
from vertexrig.spec.parameters import fill_bounds

_STUDY_FIELDS = ("studySpec", "trialJobSpec", "maxTrialCount", "parallelTrialCount", "maxFailedTrialCount")


@dataclass(frozen=True)
class Spent:
    """The cost of what ran.

    Args:
        price: The prices of the job, or of one trial.
        seconds: What is billed: the duration of all trials, or of the job.
        units: Trials that ran; None for a custom job.
    """

    price: Estimate
    seconds: float
    units: int | None

    @property
    def usd(self) -> float | None:
        """US dollars; None if nothing has a sourced price."""
        return self.at(self.seconds)

    def at(self, seconds: float) -> float | None:
        """US dollars for a number of seconds, None if nothing has a sourced price."""
        priced = any(line.usd_per_hour is not None for line in self.price.lines)
        return self.price.usd_per_hour * seconds / 3600 if priced else None

    def money(self, seconds: float | None = None) -> str:
        """US dollars as text: `at least` where a line has no price."""
        return money(self.at(self.seconds if seconds is None else seconds), complete=self.complete)

    @property
    def complete(self) -> bool:
        """Whether everything in it has a price."""
        return self.price.complete

    def data(self) -> dict[str, Any]:
        """As JSON: an estimate, with what it is made of."""
        return {
            "estimate": True,
            "usd": None if self.usd is None else round(self.usd, 4),
            "complete": self.complete,
            "usd_per_hour": self.price.usd_per_hour,
            "seconds": round(self.seconds, 3),
            "region": self.price.region,
            "lines": [vars(line) for line in self.price.lines],
            "notes": list(self.price.notes),
        }


def money(usd: float | None, *, complete: bool) -> str:
    """US dollars as text: `at least` where something has no price."""
    if usd is None:
        return "price unknown"
    least = "" if complete else "at least "
    return f"{least}${usd:,.2f}" if usd >= 0.005 or usd == 0 else f"{least}less than $0.01"


def spent(job: RemoteJob, catalog: Catalog, *, factor: float | None = None, now: float | None = None) -> Spent:
    """Return what a job has cost.

    Args:
        job: The job, running or ended.
        factor: What prices in its region are against the catalog's, if those are for another.
        now: Seconds since 1970, where what runs is cut off; the present by default.

    Raises:
        ConfigError: Its spec cannot be read.
    """
    price = elsewhere(estimate(document(job), catalog), region(job, catalog), factor)
    moment = times.now().timestamp() if now is None else now
    # between its trials a tuning job costs nothing, so its own start and end do not count
    rows = [camel_keys(row) for row in job.data.get("trials") or ()] if job.collection == TUNING else [job.data]
    lengths = [length for row in rows if (length := _length(row, moment, ended=job.ended)) is not None]
    return Spent(price, sum(lengths), len(lengths) if job.collection == TUNING else None)


def document(job: RemoteJob) -> spec.Document:
    """Return what a job was created from, read strictly."""
    if job.collection == TUNING:
        # trials may be thousands, and say nothing of what the job was created from
        data = camel_keys({key: value for key, value in job.data.items() if key != "trials"})
        own = {key: data[key] for key in _STUDY_FIELDS if key in data}
        found = spec.from_data(own, kind="HyperparameterTuningJob")
        fill_bounds(found.study)
        return found
    return spec.from_data(dict(job.data.get("jobSpec") or {}), kind="CustomJobSpec")


def region(job: RemoteJob, catalog: Catalog) -> str:
    """Return where it runs; the catalog's region for a job without a resource name."""
    parts = job.name.split("/")
    return parts[3] if len(parts) > 3 and parts[3] else catalog.limits.text("price.region")


def _length(row: Mapping[str, Any], now: float, *, ended: bool) -> float | None:
    """Return seconds that a trial or job ran; None if it has not started, or ended at an unknown moment."""
    own = course(row)
    if own.start is None or (own.end is None and ended):
        return None
    # clocks may differ, so that a start may lie in the future
    return max(0.0, (now if own.end is None else own.end) - own.start)
