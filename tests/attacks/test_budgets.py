"""Rushes on a budget: many runs at the same time, in threads, again and again; a limit is never exceeded."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.support.clouds_in_memory import START, Clock, MemoryStorage, MemoryVertex
from tests.support.protocol import prepared
from vertexrig.cloud.rest import RestError
from vertexrig.project.triggered import Budget
from vertexrig.spec.estimate import estimate
from vertexrig.spec.states import SUCCEEDED
from vertexrig.submit.budget import OverBudgetError
from vertexrig.submit.claims import Claims, InProgressError, fresh_key
from vertexrig.submit.submission import Submitter

BEGAN = time.monotonic()
RUNS, RUSHES = 50, 40 * (10 if os.environ.get("ATTACK") == "long" else 1)
LIMITS: tuple[tuple[dict[str, Any], int], ...] = (
    ({"live_jobs": 4}, 4), ({"trials_per_day": 5}, 5), ({"usd_per_day": 3.5}, 0), ({"live_jobs": 3, "trials_per_day": 7}, 3),
)  # fmt: skip


class RunningClock(Clock):
    """The time that passes, so that runs which wait for each other wait a moment."""

    def __call__(self) -> float:
        return time.monotonic() - BEGAN + self.at

    def now(self) -> datetime:
        return START + timedelta(seconds=self())


@pytest.fixture(autouse=True)
def often() -> Iterator[None]:
    """Threads change places often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("number", range(len(LIMITS)))
def test_fifty_runs_at_once_never_exceed_a_budget(number: int) -> None:
    """Of fifty runs at the same time no more get through than the budget allows and at least one does; what is left can
    be used afterwards, to the last one.
    """
    limits, most = LIMITS[number]
    workspace, job = prepared()
    most = most or int(
        limits["usd_per_day"] // (-int(-estimate(job.document, workspace.catalog).usd_at_most * 100 // 1) / 100)
    )
    for rush in range(RUSHES // len(LIMITS)):
        clock = RunningClock()
        storage, vertex = MemoryStorage(clock, _jittered(rush)), MemoryVertex(clock, _jittered(rush))

        def run(_: int) -> bool:
            claims = Claims(storage, clock=clock, sleep=lambda seconds: time.sleep(seconds / 20))  # noqa: B023
            submitter = Submitter(workspace, vertex, storage, claims=claims, limits=Budget(**limits))  # noqa: B023
            submitter.ledger.now = clock.now  # noqa: B023
            try:
                submitter.submit(job, fresh_key(), "body")
            except (OverBudgetError, RestError, InProgressError):
                return False
            return True

        with ThreadPoolExecutor(RUNS) as pool:
            through = sum(pool.map(run, range(RUNS)))
        assert 1 <= through <= most and len(vertex.jobs) == through
        through += sum(run(0) for _ in range(most + 2))
        assert through == len(vertex.jobs) == most
        if "live_jobs" in limits and "trials_per_day" not in limits:
            next(iter(vertex.jobs.values())).data["state"] = SUCCEEDED
            clock.at += 1000  # past the lease, in which the run counts as about to start
            assert run(0) and not run(0)


def _jittered(seed: int) -> Any:
    chance = random.Random(seed)

    def gate(name: str, effect: Any) -> Any:
        if chance.random() < 0.2:
            time.sleep(chance.random() / 2000)
        return effect()

    return gate
