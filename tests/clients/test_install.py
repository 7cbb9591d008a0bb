"""The set-up of `make test-clients`: what it installs again, and what it says of a client that cannot be had."""

from __future__ import annotations

from pathlib import Path

from tests.clients.install import Step, absence


def step(command: str, **more: object) -> Step:
    return Step("one", (("sh", "-c", command),), "registry.invalid", **more)  # type: ignore[arg-type]


def test_a_step_runs_once_until_it_changes(tmp_path: Path) -> None:
    """Its stamp keeps a step from running again; another version of it is installed anew, into an empty folder."""
    count = "echo x >> {here}/../count; touch {here}/{{made}}"
    assert absence(step(count), tmp_path) is None and absence(step(count), tmp_path) is None
    assert (tmp_path / "count").read_text() == "x\n" and (tmp_path / "one/{made}").exists()
    assert absence(step(count.replace("made", "other")), tmp_path) is None
    assert [file.name for file in (tmp_path / "one").iterdir()] == ["{other}"]
