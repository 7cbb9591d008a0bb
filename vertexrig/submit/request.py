"""What a caller asks to be run: a job or sweep with overrides, the same for two requests that ask for the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vertexrig.catalog.option import Scalar
from vertexrig.submit.claims import digest


@dataclass(frozen=True)
class Request:
    """What a caller asks for.

    Args:
        run: A job or sweep of the project file.
        set: Overrides of its keys.
        args: Overrides of its trainer's arguments.
        then: The schedule whose steps follow, "" for none.
    """

    run: str
    set: Mapping[str, Scalar] = field(default_factory=dict)
    args: Mapping[str, Scalar] = field(default_factory=dict)
    then: str = ""

    @property
    def digest(self) -> str:
        """The same for requests that ask for the same."""
        then = {"then": self.then} if self.then else {}
        return digest({"run": self.run, "set": dict(self.set), "args": dict(self.args), **then})
