"""The functions of the local Vertex that verbs of this package use. An entry point of the package `localvertex` provides them.

`vertexrig` imports nothing of `localvertex`, so it can be read and tested without it.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vertexrig.errors import UsageError, install

if TYPE_CHECKING:
    import click

    from vertexrig.results.rehearsal import Rehearsal
    from vertexrig.workspace import Workspace

GROUP = "vertexrig.emulator"
VERBS_GROUP = "vertexrig.verbs"


class MissingEmulatorError(UsageError):
    """No installed package brings the local Vertex (exit code 2)."""

    code = "missing-extra"

    def __init__(self, wanted: str) -> None:
        super().__init__(f"{wanted} needs the local Vertex, which is not installed: {install('local')}")


class Emulator(Protocol):
    """What other verbs and the library call; the verbs of the local Vertex themselves come by `verb`.

    The entry point `localvertex` of `GROUP` names the module that has these functions.
    """

    def rehearse(self, workspace: Workspace, name: str, *, trials: int | None = None) -> Rehearsal:
        """Run a job or sweep on this machine to its end."""

    def engine(self, wanted: str) -> str:
        """Return a sentence on what runs images on this machine; `wanted` is what the project file names."""

    def environment(self, folder: Path) -> dict[str, str]:
        """Return the variables that lead clients to the server whose state is in a folder; none if no server runs there."""


def load(wanted: str) -> Emulator:
    """Return the local Vertex.

    Args:
        wanted: What needs it, for the error.

    Raises:
        MissingEmulatorError: It is not installed.
    """
    emulator: Emulator = _loaded(GROUP, "localvertex", wanted)
    return emulator


def verb(name: str) -> click.Command:
    """Return a verb that the local Vertex adds to the command line: `command` of `localvertex/cli/NAME.py`, by an entry point of setup.py.

    Raises:
        MissingEmulatorError: It is not installed.
    """
    command: click.Command = _loaded(VERBS_GROUP, name, f"vertexrig {name}")
    return command


def _loaded(group: str, name: str, wanted: str) -> Any:
    for one in entry_points(group=group, name=name):
        return one.load()
    raise MissingEmulatorError(wanted)
