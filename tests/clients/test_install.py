"""The set-up of `make test-clients`: what it installs again, and what it says of a client that cannot be had."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients import install, kit
from tests.clients.install import STEPS, Step, absence


def step(command: str, **more: object) -> Step:
    return Step("one", (("sh", "-c", command),), "registry.invalid", **more)  # type: ignore[arg-type]


def test_a_step_runs_once_until_it_changes(tmp_path: Path) -> None:
    """Its stamp keeps a step from running again; another version of it is installed anew, into an empty folder."""
    count = "echo x >> {here}/../count; touch {here}/{{made}}"
    assert absence(step(count), tmp_path) is None and absence(step(count), tmp_path) is None
    assert (tmp_path / "count").read_text() == "x\n" and (tmp_path / "one/{made}").exists()
    assert absence(step(count.replace("made", "other")), tmp_path) is None
    assert [file.name for file in (tmp_path / "one").iterdir()] == ["{other}"]


def test_why_a_client_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that does not answer, and a program that is missing, are reasons; a step that fails otherwise is an error."""
    reason = absence(step("exit 3", instead="CLIENTS_ONE"), tmp_path)
    assert reason is not None and reason.startswith("registry.invalid cannot be reached")
    assert "CLIENTS_ONE" in reason and not (tmp_path / "one.stamp").exists()
    assert absence(step("true", needs=("no-such-program",)), tmp_path) == "no-such-program is not installed"
    monkeypatch.setattr(install, "reached", lambda host: True)
    with pytest.raises(RuntimeError, match="(?s)one could not be installed.*went wrong"):
        absence(step("echo went wrong; exit 3"), tmp_path)
    monkeypatch.setenv("CLIENTS_ONE", "/somewhere")
    assert absence(step("exit 3", instead="CLIENTS_ONE"), tmp_path) is None


def test_a_missing_client_fails_where_it_should_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the set-up a test skips; with it the recorded reason skips, and without a reason it fails."""
    monkeypatch.setattr(kit, "MADE", None)
    with pytest.raises(pytest.skip.Exception, match="make test-clients installs it"):
        kit.folder("node", "node_modules")
    monkeypatch.setattr(kit, "MADE", tmp_path)
    with pytest.raises(pytest.fail.Exception, match="node_modules is not here"):
        kit.folder("node", "node_modules")
    (tmp_path / kit.REASONS).write_text(json.dumps({"node": "npm is not installed"}))
    with pytest.raises(pytest.skip.Exception, match="npm is not installed"):
        kit.folder("node", "node_modules")


def test_the_steps_are_whole() -> None:
    """Each client has one step, and each command of it can be filled in."""
    assert len({one.name for one in STEPS}) == len(STEPS)
    for one in STEPS:
        assert all(word for words in install.commands(one, Path("/x")) for word in words)
