"""Alert policies and the dashboard: their filters against log entries that the trigger really wrote, and gcloud's reading of the files."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from localvertex.services import logging_query
from tests.support import clouds, tools
from tests.support.trigger_place import Place
from tests.support.web import answering
from tests.vertexrig.trigger.test_notify import fire
from vertexrig.cloud.rest import RestError
from vertexrig.spec.states import FAILED
from vertexrig.trigger import alerts


def filters(value: Any) -> list[str]:
    """Every filter of log entries in some JSON."""
    if isinstance(value, list):
        return [one for item in value for one in filters(item)]
    if not isinstance(value, dict):
        return []
    own = [value["filter"]] if "jsonPayload" in str(value.get("filter", "")) else []
    return [*own, *(one for item in value.values() for one in filters(item))]


def test_the_filters_find_what_was_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each policy finds the entries that it is about and no others: a scheduled run that was refused, one that failed, a service that
    refused the trigger, a fault of its own; a run that starts, a caller's mistake and an idle tick are found by none.
    """
    place = Place(tmp_path)
    said: dict[str, list[Any]] = {}

    def noted(name: str, act: Any) -> Any:
        before = len(place.logs)
        done = act()
        said[name] = list(place.logs[before:])
        return done

    noted("idle", lambda: place.post({}, "/tick"))
    noted("mistake", lambda: place.post({"run": "sweep", "set": {"image": "mine"}}))
    noted("refused", lambda: fire(place, {"run": "sweep", "set": {"image": "mine"}}))
    made = noted("started", lambda: fire(place, {"run": "sweep", "args": {"epochs": 3}, "then": "nightly"}))
    place.ends(made.body["name"], FAILED, error={"code": 3, "message": "out of memory"})
    noted("failed", lambda: place.post({}, "/tick"))
    for name, error in (("service", RestError("no role", status=403)), ("fault", ZeroDivisionError("x"))):

        def broken(*_: Any, error: Exception = error, **__: Any) -> Any:
            raise error

        monkeypatch.setattr(place.trigger.submitter, "prepare_all", broken)
        noted(name, lambda: place.post({"run": "cpu"}))
    found: dict[str, set[str]] = {}
    for policy, (_, filter, _) in alerts.CONDITIONS.items():
        fits = logging_query.matching(logging_query.parse(alerts.of_function(place.trigger.loaded, filter)))
        found[policy] = {name for name, rows in said.items() if any(fits(entry(row)) for row in rows)}
    assert found == {"refused": {"refused"}, "failed": {"failed"}, "broken": {"service", "fault"}}


def entry(row: Any) -> dict[str, Any]:
    """A line of the function's output as Cloud Logging keeps it."""
    payload = json.loads(json.dumps(row))
    severity = payload.pop("severity")
    labels = {"service_name": "vertexrig"}
    return {"resource": {"type": "cloud_run_revision", "labels": labels}, "severity": severity, "jsonPayload": payload}


def test_the_files(tmp_path: Path) -> None:
    """The verb writes one file for each policy and one for the dashboard, with the channel, and prints what makes them."""
    clouds.loaded(tmp_path)
    channel = "projects/my-project/notificationChannels/1"
    done = tools.vertexrig("function", "alerts", f"--channel={channel}", "--format=json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["files"]
    read = {Path(row["file"]).stem: json.loads((tmp_path / row["file"]).read_text()) for row in rows}
    assert set(read) == {*alerts.CONDITIONS, "dashboard"}
    assert all(read[name]["notificationChannels"] == [channel] for name in alerts.CONDITIONS)
    for text in filters(list(read.values())):
        logging_query.parse(text)


def test_no_link_in_the_folder_is_followed(tmp_path: Path) -> None:
    """A link among the files, which a checkout may bring along, is refused and its target stays; a place that a person has named is theirs."""
    (tmp_path / "project/build/alerts").mkdir(parents=True)
    clouds.loaded(tmp_path / "project")
    kept, link = tmp_path / "kept", tmp_path / "project/build/alerts/dashboard.json"
    kept.write_text("mine")
    link.symlink_to(kept)
    done = tools.vertexrig("function", "alerts", cwd=tmp_path / "project")
    assert done.returncode == 2 and "is a link" in done.stderr and kept.read_text() == "mine"
    named = tools.vertexrig("function", "alerts", "--output=build/alerts", cwd=tmp_path / "project")
    assert named.returncode == 0 and link.is_symlink() and json.loads(kept.read_text())


@pytest.mark.whole
def test_gcloud_takes_the_files(tmp_path: Path, gcloud: str) -> None:
    """The real gcloud reads each file into its message and sends that to the service, here a stand-in that refuses it."""
    clouds.loaded(tmp_path)
    printed = tools.vertexrig("function", "alerts", cwd=tmp_path)
    sent: list[dict[str, Any]] = []

    def refused(method: str, path: str, data: bytes) -> tuple[int, bytes]:
        sent.append(json.loads(data))
        return 403, b""

    env = {**os.environ, "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
           "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true", "CLOUDSDK_CONFIG": str(tmp_path / "c")}  # fmt: skip
    lines = [line for line in printed.stdout.splitlines() if not line.startswith("#")]
    with answering(refused) as url:
        env["CLOUDSDK_API_ENDPOINT_OVERRIDES_MONITORING"] = f"{url}/"
        for line in lines:
            done = subprocess.run(shlex.split(line), env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
            assert "does not have permission" in done.stderr, done.stderr
    assert len(sent) == len(lines) and all("displayName" in one for one in sent)
