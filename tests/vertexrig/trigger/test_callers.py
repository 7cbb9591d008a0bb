"""Callers of the trigger: who is known, what each may start and set, and the budget that is theirs; over services in memory."""

from __future__ import annotations

import base64
import copy
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support import clouds
from tests.support.trigger_place import DATA, Place
from tests.support.web import answering
from vertexrig.cloud import identity
from vertexrig.cloud.rest import RestError
from vertexrig.errors import ConfigError
from vertexrig.project import caller_overrides
from vertexrig.trigger.answers import Reply
from vertexrig.trigger.app import Call
from vertexrig.trigger.callers import CheckedTokens

ANA, BEN, EVE = "ana@example.com", "ben@example.com", "eve@elsewhere.org"
CALLERS: dict[str, Any] = {
    ANA: {"budget": {"trials_per_day": 4, "live_jobs": 3}, "labels": {"team": "vision"}},
    "*@example.com": {"runs": ["sw*"], "keys": ["max_trial_count"], "budget": {"trials_per_run": 2}},
    "event": {"runs": ["cpu"], "keys": []},
}


@pytest.fixture
def front() -> Iterator[Callable[..., str]]:
    """Serves every page with a status: in the place of the platform before the function."""
    with ExitStack() as stack:
        yield lambda status, content=b"{}": stack.enter_context(answering(lambda *_: (status, content)))


def token(email: str, signature: str = "SIGNATURE_REMOVED_BY_GOOGLE") -> str:
    """An identity token as Cloud Run passes it on."""
    parts = ({"alg": "RS256"}, {"email": email, "email_verified": True})
    return ".".join(
        [*(base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in parts), signature]
    )


def placed(folder: Path, uri: str, callers: dict[str, Any] = CALLERS, **trigger: Any) -> Place:
    data = copy.deepcopy(DATA)
    data["trigger"] = {**data["trigger"], "uri": uri, "callers": callers, **trigger}
    return Place(folder, data)


@pytest.fixture
def place(tmp_path: Path, front: Callable[[int], str], monkeypatch: pytest.MonkeyPatch) -> Place:
    """A trigger behind a platform that refuses strangers."""
    monkeypatch.setenv("K_SERVICE", "vertexrig")
    return placed(tmp_path, front(403))


def call(here: Place, email: str, method: str = "POST", **body: Any) -> Reply:
    headers = {"authorization": f"Bearer {token(email)}"} if email else {}
    return here.trigger.handle(Call(method, "/", headers, lambda most: json.dumps(body).encode()))


@pytest.mark.parametrize(
    ("email", "body", "status", "said"),
    [
        (ANA, {"run": "cpu", "args": {"epochs": 3}}, 201, ""),
        (ANA, {"run": "cpu", "set": {"labels.team": "mine"}}, 403, "callers may not set 'labels.team'"),
        (BEN, {"run": "sweep", "set": {"max_trial_count": 2}}, 201, ""),
        ("Ben@Example.com", {"run": "sweep", "set": {"max_trial_count": 2}}, 201, ""),
        (BEN, {"run": "sweep", "set": {"max_trial_count": 3}}, 422, "3 trials, and 2 are allowed per run (trigger.callers.*@example.com.budget.trials_per_run)"),
        (BEN, {"run": "cpu"}, 403, "callers may not start 'cpu'"),
        (BEN, {"run": "sweep", "args": {"epochs": 3}}, 403, "callers may not set 'epochs'"),
        (EVE, {"run": "sweep"}, 403, "eve@elsewhere.org matches no pattern in trigger.callers"),
        ("", {"run": "sweep"}, 403, "no token was checked"),
    ],
)  # fmt: skip
def test_each_caller_may_do_what_is_theirs(place: Place, email: str, body: Any, status: int, said: str) -> None:
    """The first entry that fits decides runs, keys and the budget of a run; a caller whom none fits starts nothing."""
    reply = call(place, email, **body)
    assert reply.status == status and said in json.dumps(reply.body), reply.body
    assert len(place.vertex.jobs) == (status == 201)
    for job in place.vertex.jobs.values():
        assert job.data["labels"]["vertexrig_caller"] == email.lower().replace("@", "_").replace(".", "_")
        assert (job.data["labels"]["team"] == "vision") is True


def test_a_caller_s_day_is_their_own(place: Place) -> None:
    """One caller's used up budget leaves room for another's; it is counted in the same ledger as that of all."""
    assert [call(place, ANA, run="sweep", request_id=str(number)).status for number in range(3)] == [201, 201, 422]
    reply = call(place, ANA, run="cpu", request_id="more")
    assert (
        "4 trials for 2 runs" in reply.body["detail"]
        and "trigger.callers.ana@example.com.budget" in reply.body["detail"]
    )
    assert call(place, BEN, run="sweep").status == 201 and len(place.vertex.jobs) == 3


def test_live_jobs_of_one_caller(place: Place, tmp_path: Path, front: Callable[[int], str]) -> None:
    """The number of live jobs is that of the caller's own."""
    here = placed(tmp_path, front(401), {"*": {"budget": {"live_jobs": 1}}})
    assert [call(here, email, run="cpu").status for email in (ANA, BEN)] == [201, 200]
    assert [call(here, email, run="cpu", request_id=email).status for email in (ANA, EVE)] == [422, 201]


def test_the_listing_is_the_caller_s(place: Place) -> None:
    """GET / shows what the caller may start and set; to a stranger nothing."""
    shown = call(place, BEN, "GET").body
    assert [one["name"] for one in shown["runs"]] == ["sweep"] and list(shown["set"]) == ["max_trial_count"]
    assert not shown["args"] and call(place, "", "GET").body["runs"] == []


def test_scheduler_starts_what_the_file_says(place: Place) -> None:
    """The account of Cloud Scheduler may start what the schedules ask for, and nothing else unless an entry lets it."""
    invoker = place.trigger.loaded.project.invoker
    assert call(place, invoker, run="sweep", args={"epochs": 3}, then="nightly").status == 201
    assert call(place, invoker, run="sweep", args={"epochs": 4}).status == 403


def test_an_event_is_a_caller(place: Place) -> None:
    """A message of Pub/Sub may start what the entry `event` allows."""
    for run, decision in (("cpu", "created"), ("sweep", "refused")):
        data = {"message": {"data": base64.b64encode(json.dumps({"run": run}).encode()).decode()}}
        place.trigger.event("google.cloud.pubsub.topic.v1.messagePublished", "//pubsub", run, data)
        assert place.logs[-1]["decision"] == decision, place.logs[-1]


def test_steps_count_for_who_asked_for_the_run(tmp_path: Path, front: Callable[[int], str], monkeypatch: Any) -> None:
    """The promoted job of a caller's run has their labels and is held against their day."""
    monkeypatch.setenv("K_SERVICE", "vertexrig")
    here = placed(tmp_path, front(403), {ANA: {"budget": {"trials_per_day": 2}, "labels": {"team": "vision"}}})
    sweep = call(here, ANA, run="sweep", args={"epochs": 3}, then="nightly").body["name"]
    here.sweep_ends(sweep, 0.7, 0.8)
    row = here.tick()
    assert row["state"] == "waiting" and "trigger.callers.ana@example.com.budget.trials_per_day" in row["text"]
    here.clock.at += 86_400
    row = here.tick()
    assert row["state"] == "started", row
    assert here.vertex.jobs[row["job"]].data["labels"]["vertexrig_caller"] == "ana_example_com"


@pytest.mark.parametrize(("status", "known"), [(403, True), (401, True), (404, True), (200, False)])
def test_an_open_function_has_no_callers(
    tmp_path: Path, front: Callable[[int], str], monkeypatch: pytest.MonkeyPatch, status: int, known: bool
) -> None:
    """Where the platform lets a call without a token through, it checked none, and anybody may have written this one."""
    monkeypatch.setenv("K_SERVICE", "vertexrig")
    here = placed(tmp_path, front(status))
    assert call(here, ANA, run="cpu").status == (201 if known else 403)


def test_a_token_that_nobody_checked(
    tmp_path: Path, front: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside Cloud Run a token without its signature is nobody's; where the platform cannot be asked, the answer is to try later."""
    monkeypatch.delenv("K_SERVICE", raising=False)
    here = placed(tmp_path, front(403))
    assert call(here, ANA, run="cpu").status == 403
    monkeypatch.setenv("K_SERVICE", "vertexrig")
    gone = placed(tmp_path, "http://127.0.0.1:9")
    assert call(gone, ANA, run="cpu").status == 503


def signed(key: Any, email: str, audience: str, issuer: str = identity.ISSUERS[0], late: float = 0.0) -> str:
    from google.auth import crypt, jwt

    now = time.time() - late
    claims = {"iss": issuer, "aud": audience, "iat": now, "exp": now + 3600, "email": email, "email_verified": True}
    return jwt.encode(crypt.RSASigner.from_string(key, "1"), claims).decode()


def test_a_signature_is_checked_with_google_s_certificates(tmp_path: Path, front: Callable[..., str]) -> None:
    """A signed token makes a caller known by its certificate, audience, issuer and time, and by nothing less."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    keys = [rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2)]
    pems = [
        one.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        ).decode()
        for one in keys
    ]
    name, now = x509.Name([]), datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(keys[0].public_key()).serial_number(1)
        .not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1)).sign(keys[0], hashes.SHA256())
    )  # fmt: skip
    uri, served = "https://rig.example.app", {"1": certificate.public_bytes(serialization.Encoding.PEM).decode()}
    loaded = placed(tmp_path, uri).trigger.loaded
    checked = CheckedTokens(loaded, front(200, json.dumps(served).encode()))

    def email(text: str) -> str:
        return checked.email({"authorization": f"Bearer {text}"})

    assert email(signed(pems[0], ANA, uri)) == ANA
    wrong = [
        signed(pems[1], ANA, uri), signed(pems[0], ANA, "https://other.example.app"), signed(pems[0], ANA, uri, "https://evil"),
        signed(pems[0], ANA, uri, late=7200), token(ANA), "a.b.c", "",
    ]  # fmt: skip
    assert [email(one) for one in wrong] == [""] * len(wrong)
    with pytest.raises(RestError):
        CheckedTokens(loaded, front(500)).email({"authorization": f"Bearer {signed(pems[0], ANA, uri)}"})


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        ({"callers": {ANA: {"keys": ["image"]}}}, "do not allow 'image'"),
        ({"callers": {ANA: {"labels": {"vertexrig_claim": "x"}}}}, "the tool's own"),
        ({"runs": ["cpu"]}, "does not let the trigger start 'sweep'"),
    ],
)
def test_rules_that_mean_nothing_are_refused(tmp_path: Path, trigger: dict[str, Any], said: str) -> None:
    """A key that is not open, a label of ours, and a schedule whose run may not be started are refused with their line."""
    data = {**DATA, "trigger": {**DATA["trigger"], **trigger}}
    with pytest.raises(ConfigError, match=said):
        caller_overrides.check_rules(clouds.loaded(tmp_path, data))


def test_only_the_runs_of_the_trigger(tmp_path: Path) -> None:
    """Without callers, too, a run that `trigger.runs` does not name is not started, and not listed."""
    data = copy.deepcopy(DATA)
    data["trigger"]["runs"] = ["sweep"]
    here = Place(tmp_path, data)
    assert here.post({"run": "cpu"}).status == 403 and here.post({"run": "sweep"}).status == 201
    listed = here.trigger.handle(Call("GET", "/")).body["runs"]
    assert [one["name"] for one in listed] == ["sweep"] and os.environ.get("K_SERVICE") is None
