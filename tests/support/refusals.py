"""A way to a Vertex on which some answers are others: the next calls of the Model Registry are refused, or an upload is not over at once.

Everything else is passed on, so that what answers is the local Vertex's own registry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import requests

from tests.support.web import answering

_MODELS = re.compile(r"/v1/projects/[^/]+/locations/[^/]+/models([:/@?].*)?")


class Way:
    """What the next calls answer.

    Args:
        behind: URL of the Vertex.
    """

    def __init__(self, behind: str) -> None:
        self.behind = behind
        self.refusals: list[tuple[int, str, str]] = []
        """Status code, name of the status and message of each of the next calls of the registry."""
        self.slow = False
        """An upload's operation is not done in its first answer, as on Vertex AI."""

    def answer(self, method: str, path: str, data: bytes) -> tuple[int, bytes]:
        """Status and body."""
        if _MODELS.fullmatch(path) and self.refusals:
            status, reason, message = self.refusals.pop(0)
            return status, json.dumps({"error": {"code": status, "status": reason, "message": message}}).encode()
        headers = {"Content-Type": "application/json"} if data else {}
        passed = requests.request(method, self.behind + path, data=data, headers=headers, timeout=30)
        if self.slow and path.endswith("/models:upload") and passed.ok:
            return 200, json.dumps({"name": passed.json()["name"]}).encode()
        return passed.status_code, passed.content


@contextmanager
def way(behind: str) -> Iterator[tuple[str, Way]]:
    """Its URL and what it answers, while the block lasts."""
    kept = Way(behind)
    with answering(kept.answer) as url:
        yield url, kept
