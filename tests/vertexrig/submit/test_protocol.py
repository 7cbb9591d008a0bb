"""At most one job survives a request and at least one is made, in every schedule that is tried; and each step of the
protocol is needed: without it, a schedule is found that breaks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localvertex import server
from tests.support import clouds
from tests.support.clouds_in_memory import Clock, MemoryStorage, MemoryVertex
from tests.support.protocol import BODY, REQUEST, TICKS, Broken, World, explore, fence
from tests.support.tools import brief
from vertexrig.cloud.storage import Storage
from vertexrig.spec.labels import CLAIM_LABEL
from vertexrig.spec.states import LIVE
from vertexrig.submit.claims import Claim, Claims, Existing, Key, Taken
from vertexrig.submit.reconcile import Reconciler

LONG = os.environ.get("ATTACK") == "long"
PARTS = 4
SCHEDULES = 208_000 if LONG else 520


@pytest.mark.whole
@pytest.mark.parametrize("part", brief(range(PARTS), 1))
def test_one_job_survives_every_schedule(part: int) -> None:
    """Deliveries that are frozen, woken, killed, cut, refused and repeated at any call, over lists that lag: afterwards
    one job survives for the request, it is the recorded one, and a body whose window is over has got a new job. A job that
    starts trains unless its claim records another one.
    """
    for seed in range(part, SCHEDULES, PARTS):
        try:
            explore(seed)
        except Broken as broken:
            raise AssertionError(f"schedule {seed}: {broken}") from broken


# --- each step is needed ---


class NobodyReconciles(Reconciler):
    """Second jobs are left alone."""

    def keep_recorded(self, claim: Claim, jobs: Any) -> list[str]:
        return []


class NobodyLooks(Reconciler):
    """Only deliveries reconcile; `jobs` and `doctor` do not."""

    def look(self, claim_id: str, collection: str) -> list[str]:
        return []


class RecordsAreReplaced(Claims):
    """The last job recorded wins."""

    def record(self, claim: Claim, job: Any, held: Claim | None = None) -> Claim:
        return super().record(claim, job, replace(held or claim, state="claimed", id=claim.id))


class OldRecordsAreForgotten(Claims):
    """A claim does not remember the jobs of earlier windows."""

    def _take_over(self, claim: Claim, first: bool = False) -> Taken | None:
        return super()._take_over(replace(claim, before={}), first)


class TakenWithoutCondition(Claims):
    """Whoever comes last takes the claim over, whatever is in it."""

    def _take_over(self, claim: Claim, first: bool = False) -> Taken | None:
        written = self.storage.write(claim.path, claim.to_bytes())
        return None if written is None else Taken(replace(claim, generation=written), self.clock(), first)


class WindowOnlyAfterARecord(Claims):
    """A claim without a record is the same request for ever."""

    def _outcome(self, key: Key, held: Claim, *rest: Any) -> Taken | Existing | None:
        return super()._outcome(replace(key, window_s=key.window_s if held.state == "created" else None), held, *rest)


class ReleasedByDeleting(Claims):
    """A claim whose job was refused is deleted, so that the next delivery has another id."""

    def release(self, claim: Claim, ended: Any = None) -> bool:
        return self.storage.delete(claim.path, claim.generation)


class AnotherIdAfterTheLease(Claims):
    """Whoever takes a claim over gives it a new id, so that an earlier holder's job is not found."""

    def _outcome(self, key: Key, held: Claim, mine: Claim, find: Any, record: Any) -> Taken | Existing | None:
        if held.state == "claimed" and held.age_s > self.lease_s:
            return self._take_over(
                replace(mine, id=mine.id, before=held.before, generation=held.generation), first=True
            )
        return super()._outcome(key, held, mine, find, record)


def whoever_holds_it(environ: Mapping[str, str], read: Callable[[str], bytes]) -> None:
    """The fence compares with the delivery that holds the claim in place of the one whose job is recorded."""

    def holder(uri: str) -> bytes:
        claim = json.loads(read(uri))
        return json.dumps({**claim, "winners": {claim["id"]: claim["token"]}}).encode()

    fence.check(environ, holder)


def nobody_looks(environ: Mapping[str, str], read: Callable[[str], bytes]) -> None:
    """Jobs do not look at their claim."""


BROKEN: dict[str, dict[str, Any]] = {
    "nobody reconciles": {"reconciler": NobodyReconciles},
    "nobody looks": {"reconciler": NobodyLooks},
    "records are replaced": {"claims": RecordsAreReplaced},
    "old records are forgotten": {"claims": OldRecordsAreForgotten},
    "taken without condition": {"claims": TakenWithoutCondition},
    "window only after a record": {"claims": WindowOnlyAfterARecord},
    "another id after the lease": {"claims": AnotherIdAfterTheLease},
    "the fence takes the holder for the winner": {"look": whoever_holds_it},
    "jobs do not look at their claim": {"look": nobody_looks},
}


#: A schedule that breaks without the step, where that is not one of the first; it is tried before the others.
FOUND = {"records are replaced": 1111, "taken without condition": 1313, "the fence takes the holder for the winner": 221,
         "jobs do not look at their claim": 2227}  # fmt: skip


@pytest.mark.parametrize("what", brief(list(BROKEN), 2))
def test_a_missing_step_is_found(what: str) -> None:
    """Without this step some schedule breaks a promise."""
    for seed in (FOUND.get(what, 0), *range(5000)):
        try:
            explore(seed, **BROKEN[what])
        except Broken:
            return
    raise AssertionError(f"no schedule breaks when {what}")


@pytest.mark.parametrize("claims", [Claims, ReleasedByDeleting])
def test_a_frozen_holder_a_refused_one_and_a_third(claims: type[Claims]) -> None:
    """The first holder is frozen, the second is refused by the service, the third makes the job; when the first one wakes
    up, one job survives. Were a claim deleted by the refusal, two would.
    """
    world = World(claims=claims)
    try:
        first = world.deliver(REQUEST)
        first.step(until="before create")
        world.clock.at += TICKS[3]
        second = world.deliver(REQUEST)
        second.step(until="before create")
        second.step("refuse", until="never")
        assert second.done and not world.vertex.jobs
        third = world.deliver(REQUEST)
        third.step(until="never")
        first.step(until="never")
        assert third.done and first.done and len(world.vertex.jobs) == 2
        assert len(world.vertex.surviving()) == (1 if claims is Claims else 2)
    finally:
        world.close()


def test_an_id_is_never_used_for_two_windows() -> None:
    """The first write of a frozen delivery took effect and its answer was lost; another delivery took that claim over and
    made the job. When the first one wakes up after the window, its job has an id and an output folder of its own.
    """
    world = World()
    try:
        first = world.deliver(BODY)
        first.step()  # the write takes effect
        world.clock.at += TICKS[3]
        second = world.deliver(BODY)
        second.step(until="never")
        world.clock.at += TICKS[-1]
        first.step("repeat", until="never")
        assert second.done and first.done
        assert len({job.data["labels"][CLAIM_LABEL] for job in world.vertex.jobs.values()}) == 2
        world.finish(wake=True)
        assert len(world.vertex.surviving()) == 4
    finally:
        world.close()


@pytest.mark.parametrize("verdict, until", [
    ("", "before create"), ("", "after create"), ("", "never"), ("refuse", "never"),
], ids=["claimed", "created and not recorded", "recorded", "released"])  # fmt: skip
def test_a_body_after_its_window_is_a_new_request(verdict: str, until: str) -> None:
    """Whatever became of the first delivery, killed or answered: the same body 312 s later gets a job of its own."""
    world = World()
    try:
        first = world.deliver(BODY)
        first.step(until="before create")
        if until != "before create":
            first.step(verdict, until=until)
        world.close()
        before = set(world.vertex.jobs)
        assert len(before) == (until != "before create" and not verdict)
        world.clock.at += 312
        made = world.submit(BODY, None)
        assert not made.duplicate and {made.name} == set(world.vertex.jobs) - before
    finally:
        world.close()


def test_an_answer_about_an_earlier_window_is_whole() -> None:
    """A holder wakes up two windows late, while jobs cannot be listed: its answer names the recorded job, with its run,
    kind and claim, and its own job is cancelled.
    """
    world = World()
    try:
        frozen = world.deliver(BODY)
        frozen.step(until="before create")
        for seconds in (TICKS[3], TICKS[-1]):
            world.clock.at += seconds
            world.deliver(BODY).step(until="never")
        frozen.step(until="before jobs")
        frozen.step("fail", until="never")
        (_, recorded), _, (_, late) = world.answers
        assert (late.name, late.claim, late.run, late.kind) == (recorded.name, recorded.claim, "cpu", "CustomJob")
        assert late.duplicate and late.console and len(world.vertex.surviving()) == 2
    finally:
        world.close()


# --- the services in memory are as the local Vertex is ---


def _storage_seen(storage: Storage) -> list[Any]:
    """What a bucket answers to a fixed order of calls, with generations by their order."""
    seen: list[Any] = []
    first = storage.write("contract/a.json", b"1", generation=0)
    seen.append(first is not None)
    seen.append(storage.write("contract/a.json", b"2", generation=0))
    assert first is not None
    second = storage.write("contract/a.json", b"22", generation=first)
    assert second is not None
    seen += [second > first, storage.write("contract/a.json", b"3", generation=first)]
    found = storage.read_aged("contract/a.json")
    assert found is not None
    seen += [found.data, found.generation == second, 0 <= found.age_s < 60]
    seen += [storage.read("contract/a.json", generation=first), storage.read_aged("contract/none")]
    storage.write("contract/b.json", b"", generation=0)
    seen.append([(item.name, item.size) for item in storage.list("contract/")])
    seen += [storage.delete("contract/a.json", first), storage.delete("contract/a.json", second)]
    seen += [storage.delete("contract/a.json", second), [item.name for item in storage.list("contract/")]]
    seen += [storage.exists("contract/b.json"), storage.exists("contract/a.json")]
    seen += [storage.delete("contract/b.json"), storage.read_json("contract/b.json")]
    bucket = storage.metadata()
    assert bucket is not None
    return [*seen, bucket["name"], bucket["location"]]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    """The local Vertex, which the clouds in memory are held against."""
    with clouds.cloud(tmp_path_factory.mktemp("cloud")) as running:
        yield running


def test_storage_in_memory_is_as_the_local_one(here: server.RunningServer) -> None:
    """Preconditions, generations, ages, lists and deletes answer the same in memory and on the local Vertex."""
    assert _storage_seen(MemoryStorage(Clock())) == _storage_seen(Storage(clouds.BUCKET, url=here.url))


def test_jobs_in_memory_are_as_the_local_ones(here: server.RunningServer, tmp_path: Path) -> None:
    """Created, found by label and by number, listed by state and time, and cancelled: the same in memory and on the local Vertex."""
    body = clouds.vertex(here).get(clouds_job(here, tmp_path)).data  # type: ignore[union-attr]
    kept = {key: body[key] for key in ("displayName", "jobSpec")}
    both = [MemoryVertex(Clock()), clouds.vertex(here)]
    seen = []
    for vertex in both:
        made = [
            vertex.create("customJobs", {**kept, "labels": {CLAIM_LABEL: "contract", "n": str(n)}}) for n in range(2)
        ]
        label = f'labels.{CLAIM_LABEL}="contract"'
        listed = [job.labels["n"] for job in vertex.list("customJobs", filter=label)]
        live = [job.name for job in vertex.list("customJobs", filter=f'labels.{CLAIM_LABEL}:* AND ({" OR ".join(f"state={chr(34)}{one}{chr(34)}" for one in LIVE)})')]  # fmt: skip
        recent = list(vertex.list("customJobs", filter=f'{label} AND create_time>"2020-01-01T00:00:00Z"'))
        future = list(vertex.list("customJobs", filter=f'{label} AND create_time>"2100-01-01T00:00:00Z"'))
        vertex.cancel(made[0].name)
        vertex.cancel(made[0].name)
        gone = vertex.get(made[0].name)
        assert gone is not None
        none = vertex.get(made[0].name + "999")
        found = [vertex.by_id(made[1].id), vertex.lookup(made[1].name), vertex.by_id("1")]
        unlabelled = vertex.create("customJobs", kept)
        others = [job.name for job in vertex.list("customJobs") if job.name == unlabelled.name]
        seen.append([listed, {job.name for job in made} <= set(live), len(recent), future, gone.state in LIVE, none,
                     [one and one.name == made[1].name for one in found], len(others), dict(unlabelled.labels),
                     vertex.console(made[0].name) != "", made[0].kind, made[0].collection])  # fmt: skip
    assert seen[0] == seen[1]


def clouds_job(here: server.RunningServer, folder: Path) -> str:
    """A job to take the spec of."""
    from vertexrig.submit.claims import request_key
    from vertexrig.submit.submission import Request

    submitter = clouds.submitter(here, folder)
    return submitter.submit(submitter.prepare_candidates(Request("cpu"))[0], request_key("contract"), "x").name
