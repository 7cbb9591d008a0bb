"""What verbs of `vertexrig` ask of the local Vertex (`vertexrig.workspace.emulator.Emulator`); an entry point names this module."""

from __future__ import annotations

from pathlib import Path

from localvertex import rehearsal, state
from localvertex.front import control
from vertexrig.results.rehearsal import Rehearsal
from vertexrig.workspace import Workspace


def rehearse(workspace: Workspace, name: str, *, trials: int | None = None) -> Rehearsal:
    """Run a job or sweep on this machine to its end."""
    return rehearsal.rehearse(rehearsal.prepare(workspace, name), trials=trials)


def engine(wanted: str) -> str:
    """Return a sentence on what runs images on this machine; `wanted` is what the project file names."""
    from localvertex.runner.engine import described

    return described(wanted)


def environment(folder: Path) -> dict[str, str]:
    """Return the variables that lead clients to the server whose state is in a folder; none if no server runs there."""
    here = state.find(folder)
    return {} if here is None else control.env(here)
