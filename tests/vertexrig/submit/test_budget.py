"""The ledger of a day's runs, over services in memory: what is let through, what blocks, and what does not."""

from __future__ import annotations

import os
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support import clouds
from tests.support.clouds_in_memory import Clock, Delivery, MemoryStorage, MemoryVertex, current
from tests.support.protocol import prepared, price
from vertexrig.cloud.rest import RestError
from vertexrig.project import caller_overrides
from vertexrig.project.triggered import Budget
from vertexrig.spec.estimate import Estimate, elsewhere
from vertexrig.spec.labels import CLAIM_LABEL
from vertexrig.spec.states import LIVE, SUCCEEDED
from vertexrig.submit.budget import Ledger, OverBudgetError, check_run
from vertexrig.submit.claims import FOLDER, LEASE_S, Claims, Existing, Key, Taken
from vertexrig.submit.submission import Submitter

KEY = Key("request", "once")
LONG = os.environ.get("ATTACK") == "long"


class Bench:
    """A ledger over services in memory, with deliveries that can be stopped."""

    def __init__(self, **limits: Any) -> None:
        self.clock, self.limits = Clock(), Budget(**limits)
        self.storage, self.vertex = MemoryStorage(self.clock), MemoryVertex(self.clock)

    def ledger(self, delivery: Delivery | None = None) -> Ledger:
        storage = self.storage
        if delivery is not None:
            storage = MemoryStorage(self.clock, delivery.gate)
            storage.objects, storage.generations = self.storage.objects, self.storage.generations

        def sleep(seconds: float) -> None:
            self.clock.at += seconds
            if delivery is not None:
                delivery.sleep()

        return Ledger(storage, [self.vertex], self.limits, clock=self.clock, sleep=sleep, now=self.clock.now)

    def reserving(self, claim: str) -> Delivery:
        """A run that asks for room, stopped before its first call."""

        def work(one: Delivery) -> None:
            ledger = self.ledger(one)
            try:
                ledger.reserve(claim, price())
            except (OverBudgetError, RestError):
                ledger.take_out(ledger.objects_of(claim))
                raise

        return Delivery(work)


def test_a_row_that_appears_late_counts() -> None:
    """A row that is older than ours but was not there when its twin listed: both cannot pass on room for one."""
    bench = Bench(trials_per_day=1)
    first, second = bench.reserving("a"), bench.reserving("b")
    first.step(until="after write")
    bench.clock.at += 1
    second.step(until="before write")
    second.step(until="after list")  # sees the first
    first.step(until="never")
    second.step(until="never")
    for _ in range(100):
        first.step(until="never")
        second.step(until="never")
    through = [one for one in (first, second) if one.error is None]
    assert first.done and second.done and len(through) == 1
    with pytest.raises(OverBudgetError):
        bench.ledger().reserve("c", price())


def test_a_run_that_died_does_not_block_the_day() -> None:
    """A row that was never granted counts until the lease is out, and then goes."""
    bench = Bench(trials_per_day=1)
    dead = bench.reserving("dead")
    dead.step(until="after write")
    dead.kill()
    with pytest.raises(OverBudgetError):
        bench.ledger().reserve("next", price())
    bench.ledger().take_out(bench.ledger().objects_of("next"))
    bench.clock.at += LEASE_S + 1
    bench.ledger().reserve("later", price())
    assert [row.claim for row in bench.ledger().entries("2026-11-21")] == ["later"]


def test_a_run_that_was_frozen_is_not_granted_on_a_row_that_is_gone() -> None:
    """A run that slept past the lease between its listing and its grant asks again, and finds the room taken."""
    bench = Bench(trials_per_day=1)
    frozen = bench.reserving("frozen")
    frozen.step(until="after list")
    bench.clock.at += LEASE_S + 1
    bench.ledger().reserve("other", price())
    for _ in range(100):
        frozen.step(until="never")
    assert frozen.done and isinstance(frozen.error, (OverBudgetError, RestError))
    assert [row.claim for row in bench.ledger().entries("2026-11-21")] == ["other"]


def test_a_granted_row_is_used_by_the_next_delivery() -> None:
    """A run that died after it was granted keeps its room for the delivery that takes it over, and needs no second one."""
    bench = Bench(trials_per_day=1)
    bench.ledger().reserve("once", price())
    bench.clock.at += LEASE_S + 1
    bench.ledger().reserve("once", price())
    with pytest.raises(OverBudgetError):
        bench.ledger().reserve("another", price())


def test_a_granted_row_does_not_reserve_a_live_job_for_ever() -> None:
    """A run that died after it was granted is retried when its row counts no more: it asks again, and others that live by
    now count.
    """
    bench = Bench(live_jobs=1)
    bench.ledger().reserve("died", price())
    bench.clock.at += LEASE_S + 1
    bench.ledger().reserve("other", price())
    bench.vertex.create("customJobs", {"labels": {CLAIM_LABEL: "other"}})
    with pytest.raises(OverBudgetError):
        bench.ledger().reserve("died", price())


@pytest.mark.parametrize("before", [True, False], ids=["asked before midnight", "asked after midnight"])
def test_midnight_gives_no_second_room(before: bool) -> None:
    """Of two runs that ask on either side of midnight for one live job, one gets it, whichever lists last; the sums of
    the day begin anew.
    """
    bench = Bench(live_jobs=1)
    bench.clock.at = 12 * 3600 - 0.5  # the clock starts at noon
    early = bench.reserving("early")
    early.step(until="before write")
    bench.clock.at += 1
    if before:
        early.step(until="never")
    late = bench.reserving("late")
    late.step(until="never")
    for _ in range(100):
        early.step(until="never")
        late.step(until="never")
    assert sorted(one.error is None for one in (early, late)) == [False, True]
    assert {row.day for row in bench.ledger().tidied()} <= {"2026-11-21", "2026-11-22"}
    sums = Bench(trials_per_day=1)
    sums.clock.at = 12 * 3600 - 1
    sums.ledger().reserve("a", price())
    sums.clock.at += 2
    sums.ledger().reserve("b", price())


LIMIT = 2


def rush(seed: int) -> int:
    """Deliveries of several requests against one limit of live jobs, frozen, woken, killed and repeated at random.

    Returns:
        How many jobs were above the limit at most; each must be one that its holder created when its lease was over.
    """
    chance, clock = random.Random(seed), Clock()
    deliveries: list[Delivery] = []
    taken: dict[Delivery, float] = {}
    late: set[str] = set()

    def gate(name: str, effect: Any) -> Any:
        delivery = current()
        assert delivery is not None

        def noted() -> Any:
            answer = effect()
            if name == "write" and any(
                key.startswith(FOLDER) and one[1] == answer for key, one in storage.objects.items()
            ):
                taken[delivery] = clock()
            elif name == "create" and clock() > taken[delivery] + LEASE_S:
                late.add(answer.name)
            return answer

        return delivery.gate(name, noted)

    storage, vertex = MemoryStorage(clock, gate), MemoryVertex(clock, gate)
    workspace, job = prepared()

    def deliver(number: int) -> None:
        def work(delivery: Delivery) -> None:
            def sleep(seconds: float) -> None:
                delivery.sleep()
                clock.at += seconds

            claims = Claims(storage, clock=clock, sleep=sleep)
            submitter = Submitter(workspace, vertex, storage, claims=claims, limits=Budget(live_jobs=LIMIT))
            submitter.ledger.now = clock.now
            submitter.submit(job, Key("request", str(number)), "body")

        deliveries.append(Delivery(work))

    most = 0
    try:
        for _ in range(60):
            move = chance.random()
            if move < 0.25 and len(deliveries) < 5:
                deliver(chance.randrange(6))
                deliveries[-1].step(until=chance.choice(("before create", "before create", "after list", "never")))
            elif move < 0.4:
                clock.at += chance.choice((1.0, 10.0, LEASE_S + 2.0))
            elif move < 0.47 and vertex.jobs:
                chance.choice(list(vertex.jobs.values())).data["state"] = SUCCEEDED
            elif deliveries:
                number = chance.randrange(len(deliveries))
                if move < 0.52:
                    deliveries.pop(number).kill()
                else:
                    deliveries[number].step(until=chance.choice(("", "before create", "never")))
                    if deliveries[number].done:
                        deliveries.pop(number)
            live = {
                one.data["labels"][CLAIM_LABEL]: name for name, one in vertex.jobs.items() if one.data["state"] in LIVE
            }
            above = len(live) - LIMIT
            assert above <= len(late & {name for name, one in vertex.jobs.items() if one.data["state"] in LIVE}), seed
            most = max(most, above)
    finally:
        for one in deliveries:
            one.kill()
    return most


@pytest.mark.whole
def test_only_a_create_after_the_lease_exceeds_live_jobs() -> None:
    """In every schedule the jobs above the limit are no more than those that a holder created which had been frozen for
    longer than the lease; such schedules are among them.
    """
    assert max(rush(seed) for seed in range(5000 if LONG else 200)) >= 1


def test_a_late_release_leaves_the_successor_s_row() -> None:
    """A holder that was frozen and then refused gives nothing up that another delivery holds by now."""
    bench = Bench(trials_per_day=1)
    workspace, job = prepared()
    bench.vertex.create = _refused  # type: ignore[method-assign]
    claims = Claims(bench.storage, clock=bench.clock, sleep=lambda _: None)
    submitter = Submitter(workspace, bench.vertex, bench.storage, claims=claims, limits=bench.limits)
    submitter.ledger.now = bench.clock.now
    reserve = submitter.ledger.reserve

    def frozen(claim: str, cost: Estimate, shares: Any, trials: int) -> None:
        reserve(claim, cost, shares)
        bench.clock.at += LEASE_S + 2
        taken = Claims(bench.storage, clock=bench.clock).take(KEY, "body", "cpu", lambda _: None, lambda _: {})
        assert isinstance(taken, Taken) and taken.claim.id == claim
        bench.ledger().reserve(claim, cost)

    submitter.ledger.reserve = frozen  # type: ignore[method-assign]
    with pytest.raises(RestError):
        submitter.submit(job, KEY, "body")
    assert len(bench.ledger().entries("2026-11-21")) == 1
    assert not isinstance(claims.by_id("0" * 32 + "-" + "0" * 12), Existing)


def _refused(collection: str, body: Any) -> Any:
    raise RestError("no quota", status=429)


def test_a_job_that_appears_between_two_listings_counts() -> None:
    """A job that is made between the listing of recent jobs and that of live ones is counted once, not left out."""
    bench = Bench(live_jobs=1)
    bench.ledger().reserve("a", price())
    listed = bench.vertex.list

    def then_made(collection: str, **options: Any) -> Any:
        found = list(listed(collection, **options))
        if "create_time" in options["filter"] and not bench.vertex.jobs:
            bench.vertex.create("customJobs", {"labels": {"vertexrig_claim": "a"}})
        return iter(found)

    bench.vertex.list = then_made  # type: ignore[method-assign]
    with pytest.raises(OverBudgetError, match=r"1 live jobs \+ this one: more than 1"):
        bench.ledger().reserve("b", price())


def test_a_region_without_prices() -> None:
    """Outside the region of the prices there is no sourced one, unless the owner says what they are against the catalog's."""
    here = price()
    assert elsewhere(here, here.region, None) is here
    there = elsewhere(here, "europe-west4", None)
    with pytest.raises(
        OverBudgetError, match=r"this region \(the catalog's prices are for us-central1\).*price_factor"
    ):
        check_run(Budget(usd_per_run=1000), there)
    check_run(Budget(trials_per_run=5), there)
    dearer = elsewhere(here, "europe-west4", 1.5)
    assert dearer.complete and dearer.usd_at_most == pytest.approx(1.5 * here.usd_at_most)
    with pytest.raises(OverBudgetError):
        check_run(Budget(usd_per_run=here.usd_at_most * 1.2), dearer)


@pytest.mark.parametrize(
    ("value", "said"),
    [(5, ""), ("5s", "is text; a number"), ("5", "a number belongs"), (2.5, "is not a whole number"), (True, "a number"), (500, "above")],
)  # fmt: skip
def test_bounds_of_arguments_take_numbers_of_the_flag_s_type(tmp_path: Path, value: Any, said: str) -> None:
    """A bounded argument takes a number, and a whole one where the project file's own is whole; a duration is text."""
    found = caller_overrides.check(clouds.loaded(tmp_path), "cpu", {}, {"epochs": value})
    assert (not said and not found) or said in found[0].message


@pytest.mark.parametrize("ahead", [-600, 600])
def test_an_instance_whose_clock_is_wrong_has_the_same_room(ahead: int) -> None:
    """Rows are dated by the service, and so is their age: a clock that is ten minutes off takes no room away, and lets nothing more through."""
    bench = Bench(trials_per_day=6, live_jobs=6)

    def reserve(claim: str, off: int) -> None:
        ledger = bench.ledger()
        ledger.now = lambda: bench.clock.now() + timedelta(seconds=off)
        ledger.reserve(claim, price())

    for number in range(6):
        reserve(f"run-{number}", ahead * (number % 2))
    for off in (0, ahead):
        with pytest.raises(OverBudgetError):
            reserve("more", off)
