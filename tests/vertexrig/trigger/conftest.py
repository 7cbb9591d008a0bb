"""What tests of the trigger take: a terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from localvertex.state import RunningServer
from tests.support import clouds, tools
from vertexrig.trigger import deploy


@pytest.fixture
def terminal(here: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Types a verb in the test's folder, where a local Vertex is the cloud; what it printed, and it ended with `code`."""
    for name, value in {"VERTEXRIG_LOCAL": here.url, **clouds.variables(here)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(deploy, "account", lambda: "ana@example.com")  # gcloud takes a second to say it

    def typed(*words: str, code: int = 0) -> str:
        done = tools.typed(*words, cwd=tmp_path)
        assert done.exit_code == code, done.stderr
        return done.stdout + done.stderr

    return typed
