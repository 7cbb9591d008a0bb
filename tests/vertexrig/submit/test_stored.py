"""Objects that earlier releases left in buckets: claims and chains stay readable, and a repeat is answered as it was then.

`stored/` holds such objects as the code of 2026-11-22 wrote them, in each of their states, and what a repeat of the request was
answered with when the job itself was gone; `text` is that of the key. New rows may be added; a row that is there never changes.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.support.chain_place import Place
from tests.support.clouds_in_memory import Clock, MemoryStorage
from vertexrig.cloud.vertex import CUSTOM, TUNING
from vertexrig.submit.chains import Chain, Chains
from vertexrig.submit.claims import Claim, Claims, Key
from vertexrig.submit.submission import Request

STORED = Path(__file__).parent / "stored"
CLAIMS, CHAINS = (json.loads((STORED / f"{name}.json").read_text(encoding="utf-8")) for name in ("claims", "chains"))
Row = dict[str, Any]


def kept(row: Row, storage: MemoryStorage) -> MemoryStorage:
    """The bucket with the row's object in it."""
    storage.write(row["path"], json.dumps(row["stored"]).encode())
    return storage


def read(row: Row, storage: MemoryStorage) -> Claim:
    """The row's claim, found by its id as a tick finds it."""
    found = Claims(kept(row, storage)).of(row["stored"]["id"])
    assert found is not None
    return found


def test_the_corpus_has_every_state() -> None:
    """Claims of jobs, sweeps, promoted jobs and models in each state, with earlier windows and winners; chains open and ended."""
    stored = [row["stored"] for row in CLAIMS]
    assert {one["state"] for one in stored} == {"claimed", "created", "released"}
    assert {one["kind"] for one in stored} == {"request", "schedule", "event", "body", "step"}
    names = " ".join(one["job"].get("name", "") for one in stored)
    assert all(part in names for part in (CUSTOM, TUNING, "/operations/"))
    assert any(one.get("before") and len(one["winners"]) > 1 for one in stored) and any(
        "before" not in one for one in stored
    )
    assert {"outcome" in row["stored"] for row in CHAINS} == {True, False}


@pytest.mark.parametrize("row", CLAIMS, ids=lambda row: row["what"])
def test_a_claim_is_read_as_it_was_written(row: Row) -> None:
    """Each key of a stored claim is read; of its job the name, the delivery that made it, and what an answer says."""
    claim, stored = read(row, MemoryStorage(Clock())), row["stored"]
    assert (claim.id, claim.token, claim.body, claim.run) == tuple(
        stored[key] for key in ("id", "token", "body", "run")
    )
    assert (claim.kind, claim.state, claim.run_id) == (stored["kind"], stored["state"], stored.get("output", ""))
    assert (claim.before, claim.winners) == (stored.get("before", {}), stored.get("winners", {}))
    for key, value in asdict(claim.job).items():
        assert value == stored["job"].get(key, type(value)()), key


@pytest.mark.parametrize("row", [row for row in CLAIMS if "answer" in row], ids=lambda row: row["what"])
def test_a_repeat_is_answered_as_before(row: Row, tmp_path: Path) -> None:
    """A repeat of a request that an earlier release recorded gets the same answer, also after the claim is written anew."""
    place = Place(tmp_path)
    submitter, key = place.trigger.submitter, Key(row["stored"]["kind"], row["text"])
    prepared = submitter.prepare_all(Request("sweep" if TUNING in row["answer"]["name"] else "cpu"))[0]
    for _ in range(2):
        claim = read(row, place.storage)
        answer = asdict(submitter.submit(prepared, key, claim.body))
        assert json.loads(json.dumps(answer)) == row["answer"]
        row = {**row, "stored": json.loads(claim.to_bytes())}


@pytest.mark.parametrize("row", CHAINS, ids=lambda row: row["what"])
def test_a_chain_is_read_as_it_was_written(row: Row) -> None:
    """Each key of an open chain, and of an end, is read."""
    chains = Chains(kept(row, MemoryStorage(Clock())))
    (open_,) = [*chains.open()] or [None]
    found = open_ or chains.end(row["stored"]["id"])
    assert found is not None and not isinstance(found, str) and isinstance(found, Chain) == ("/open/" in row["path"])
    data = json.loads(json.dumps(asdict(found)))
    assert {key: data[key] for key in row["stored"]} == row["stored"]
