"""The console of the local Vertex: one page on the server's own address that shows what runs, and who called what.

The page reads the same REST APIs as every client. Beside them are a few read-only answers for what no API has: the calls
themselves, where there is something to list, the replicas of a job, and the rows that a study's plots are drawn from.
"""

from __future__ import annotations

from vertexrig.local.console.app import Console
from vertexrig.local.console.calls import Calls

__all__ = ["Calls", "Console"]
