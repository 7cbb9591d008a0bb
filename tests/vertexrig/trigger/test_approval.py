"""A version that a person has to approve: who may, what moves, and what is refused since the registered version has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from localvertex import server
from tests.support import clouds
from tests.support.trigger_place import Place, then
from vertexrig import times
from vertexrig.cloud.models import ModelsClient
from vertexrig.cloud.rest import RestError
from vertexrig.errors import UsageError
from vertexrig.project.triggered import Notify
from vertexrig.runs import approval
from vertexrig.runs.run import Run
from vertexrig.runs.store import RunStore
from vertexrig.studies import register
from vertexrig.submit.claims import Key
from vertexrig.trigger import schedule_status
from vertexrig.trigger.answers import Reply
from vertexrig.trigger.app import Call

REGISTER = {"register": {"approval": "required"}}


def place(folder: Path, **trigger: Any) -> Place:
    return Place(folder, then(REGISTER, **{"approvers": ["*"], **trigger}))


def trained(here: Place, accuracy: float) -> str:
    """The run whose sweep has ended, after the ticks that upload its model."""
    here.sweep_ends(here.begin(request_id=f"run-{len(here.vertex.jobs)}"), accuracy)
    for name in list(here.vertex.jobs):
        output = here.vertex.jobs[name].data["trialJobSpec"]["baseOutputDirectory"]["outputUriPrefix"]
        here.storage.write(f"{output.removeprefix('gs://my-bucket/').rstrip('/')}/1/model/saved_model.pb", b"")
    here.tick()
    (run,) = here.runs
    return run.run_id


def decide(here: Place, run: str, verb: str = "approve", **headers: str) -> Reply:
    return here.trigger.handle(Call("POST", f"/runs/{run}/{verb}", headers))


def aliases(here: Place) -> dict[str, list[str]]:
    return {row["versionId"]: sorted(row["versionAliases"]) for row in here.versions()}


@pytest.mark.parametrize(("by", "who"), [("ana@example.com", " by ana@example.com"), ("", "")])
def test_a_decision_names_the_account_if_there_is_one(by: str, who: str) -> None:
    """Where gcloud is signed in with no account, a decision says when it was made and names nobody."""
    decided = {"decision": "approved", "by": by, "time": "2026-11-30T13:42:12Z", "text": "better"}
    run = Run("id", Key("request", "x"), {}, approval=decided)
    assert approval.text_of(run) == f"approved{who} at 2026-11-30T13:42:12Z: better"


def test_a_better_version_waits_until_it_is_approved(tmp_path: Path) -> None:
    """The version is there without the alias, one notice says so; approved over HTTP it gets the alias, once, and the history names who."""
    here = place(tmp_path)
    here.trigger.ticker.notices.wanted = (Notify(topic="projects/p/topics/t"),)
    sent: list[str] = []
    here.trigger.ticker.notices.send = lambda _, notice: sent.append(notice.line)
    run = trained(here, 0.8)
    assert aliases(here) == {"1": ["default"]} and len(here.versions()) == 1
    for _ in range(2):
        row = here.tick()
        assert (row["state"], row["step"]) == ("waiting", "register") and f"schedule approve {run}" in row["text"]
    assert len(sent) == 1 and "waits for approval" in sent[0]
    reply = decide(here, run, authorization="Bearer x")
    assert (reply.status, reply.body["outcome"], reply.body["decision"]) == (200, "registered", "approved"), reply.body
    assert aliases(here) == {"1": ["champion", "default"]} and not here.open
    end = here.ended[0]["end"]
    assert end["model"].endswith("@1") and "approved by a caller of the function at" in end["reason"]
    assert decide(here, run).status == 404


def test_a_rejected_version_stays_without_alias(tmp_path: Path) -> None:
    """The run ends, the registered version keeps the alias, and the next run does not delete the rejected one."""
    here = place(tmp_path)
    assert decide(here, trained(here, 0.8)).status == 200
    assert decide(here, trained(here, 0.85), "reject").body["outcome"] == "rejected"
    assert aliases(here) == {"1": ["champion", "default"], "2": []}
    assert decide(here, trained(here, 0.9)).status == 200
    assert aliases(here) == {"1": [], "2": [], "3": ["champion", "default"]}
    assert here.versions()[2]["versionDescription"].partition(" (run")[0].endswith(", after version 1")


def test_a_version_is_not_approved_against_another_one(tmp_path: Path) -> None:
    """Where the alias is with another version than at the comparison, approval is refused; a decision that is there already moves nothing."""
    here = place(tmp_path)
    assert decide(here, trained(here, 0.8)).status == 200
    run = trained(here, 0.9)
    (name,) = here.models.models
    here.models.begin_upload({"displayName": "sweep", "versionAliases": []}, name)
    here.models.merge_aliases(name, "3", ["champion"])
    reply = decide(here, run)
    assert reply.status == 409 and f"champion is {name}@3 now" in reply.body["detail"] and here.open
    here.models.merge_aliases(name, "1", ["champion"])
    (open_,) = here.runs
    asked = {**open_.approval, "decision": "approved", "by": "ana@example.com", "time": "2026-11-21T12:00:00Z"}
    RunStore(here.store).save(Run(**{**vars(open_), "approval": asked}))
    here.models.merge_aliases(name, "3", ["champion"])
    assert here.tick()["outcome"] == "refused" and aliases(here)["3"] == ["champion"]


def test_what_counts_is_the_version_it_was_compared_with(tmp_path: Path) -> None:
    """A version that gets the alias while the new one is uploaded was not compared with it: approval is refused."""
    here = place(tmp_path)
    assert decide(here, trained(here, 0.8)).status == 200
    here.models.slow = 900.0
    run = trained(here, 0.9)
    here.models.slow = 0.0
    (name,) = here.models.models
    here.models.begin_upload({"displayName": "sweep", "versionAliases": []}, name)
    here.models.merge_aliases(name, "3", ["champion"])
    for _ in range(3):
        here.tick()
    reply = decide(here, run)
    assert reply.status == 409 and f"compared with {name}@1" in reply.body["detail"]


def test_a_version_waits_as_long_as_nobody_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After four days, a service that fails in the tick of the approval does not end the run; the next tick moves the alias."""
    here = place(tmp_path)
    run = trained(here, 0.8)
    here.clock.at += 4 * 86_400

    def down(*_: Any) -> Any:
        raise RestError("the registry is down", status=503)

    with monkeypatch.context() as patch:
        patch.setattr(here.models, "merge_aliases", down)
        assert decide(here, run).status == 202 and here.open
    assert here.tick()["outcome"] == "registered" and aliases(here) == {"1": ["champion", "default"]}


def test_only_approvers_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `trigger.approvers` nobody decides over HTTP, and with it only callers whose checked token fits."""
    here = place(tmp_path, approvers=["*@example.com"])
    run = trained(here, 0.8)
    checked = {"Bearer ana": "Ana@example.com", "Bearer eve": "eve@example.org"}
    monkeypatch.setattr(
        "vertexrig.trigger.callers.CheckedTokens.email",
        lambda _, headers: checked.get(headers.get("authorization"), ""),
    )
    for token, why in (
        ("Bearer eve", "eve@example.org matches no pattern in trigger.approvers; add a pattern there"),
        ("Bearer x", "the caller is not known: no token was checked"),
    ):
        refused = decide(here, run, authorization=token)
        assert (refused.status, refused.body["detail"]) == (403, why)
    assert decide(here, run, "reject", authorization="Bearer ana").body["by"] == "Ana@example.com"
    closed = place(tmp_path, approvers=[])
    refused = decide(closed, trained(closed, 0.8), authorization="Bearer ana")
    assert refused.status == 403
    assert refused.body["detail"] == "the caller matches no pattern in trigger.approvers; add a pattern there"


def test_status_names_the_version_and_the_command(tmp_path: Path) -> None:
    """A version that waits is a warning of its schedule, with the command that decides."""
    here = place(tmp_path, uri="https://f.run.app", invoker_service_account="i@p.iam.gserviceaccount.com")
    trained(here, 0.8)
    (row,) = here.trigger.deliveries.rows(times.parse("2026-11-01T00:00:00Z"))
    found = schedule_status.statuses(
        here.trigger.loaded, [], [{**row, "schedule": "nightly"}], schedule_status.Served()
    )
    wrong = next(one for one in found[0].differences if "waits for approval" in one.message)
    assert wrong.severity == "warning" and wrong.fix.startswith("`vertexrig schedule approve nightly`")


def test_rollback_takes_the_version_that_was_replaced(tmp_path: Path) -> None:
    """Without a number it is the one before; a number that is not there, or that has the alias, is refused with those that are there."""
    here = place(tmp_path)
    for accuracy in (0.8, 0.9):
        assert decide(here, trained(here, accuracy)).status == 200
    assert [one.rpartition("@")[2] for one in register.rollback(here.models, "sweep", "champion")] == ["1", "2"]
    assert aliases(here) == {"1": ["champion", "default"], "2": []}
    for version, said in (
        ("", "does not say which version it replaced"),
        ("1", "has the aliases"),
        ("7", "not in the"),
    ):
        with pytest.raises(UsageError, match=said):
            register.rollback(here.models, "sweep", "champion", version)
    register.rollback(here.models, "sweep", "champion", "2")
    assert aliases(here)["2"] == ["champion", "default"]


def test_approve_and_roll_back_from_the_terminal(
    here: server.RunningServer, tmp_path: Path, terminal: Callable[..., str]
) -> None:
    """`schedule approve` writes the decision for the next tick, and `register --rollback` moves the aliases at once."""
    clouds.loaded(tmp_path, then(REGISTER))
    models = ModelsClient(clouds.vertex(here))
    parent = ""
    for number in (1, 2):
        about = {"artifactUri": "gs://my-bucket/m", "versionDescription": f"accuracy 0.{number}, from x"}
        parent = str(models.upload({"displayName": "sweep", **about}, parent)["model"])
    models.merge_aliases(parent, "1", ["default", "champion"])
    name = parent.partition("@")[0]
    asked = {"model": f"{name}@2", "champion": f"{name}@1", "display": "sweep", "alias": "champion", "text": "better"}
    body = {"run": "sweep", "set": {}, "args": {}, "then": "nightly"}
    id, about = f"{'a' * 32}-{'b' * 12}", {"run_id": "20261121-120000-ab12", "steps": ("register",), "step": 0}
    run = Run(id, Key("request", "x"), body, phase="step", approval=asked, **about)
    store = RunStore(clouds.storage(here).below("vertexrig/vertexrig"))
    assert store.save(run) is not None
    assert "name one of these: 20261121-120000-ab12 (nightly)" in terminal("schedule", "approve", "weekly", code=2)
    assert f"{name}@2: approved" in terminal("schedule", "approve", "nightly")
    kept = store.read(id)
    assert kept is not None and kept.approval["decision"] == "approved"
    assert f"{name}@2: approved" in terminal("schedule", "approve", "nightly")
    assert "was approved" in terminal("schedule", "reject", "nightly", code=2)
    assert f"from {name}@1 to {name}@2" in terminal("register", "sweep", "--rollback", "2")
    assert "does not say which version it replaced" in terminal("register", "sweep", "--rollback", code=2)
