"""A Model Registry of the tests' own: the REST methods that `vertexrig register` calls, over any Vertex that has none.

Requests must parse as google.cloud.aiplatform's messages, and so must the answers; everything else is passed on.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import requests
from google.cloud.aiplatform_v1.types import ListModelsResponse, Model, UploadModelRequest
from google.protobuf import json_format

_PARENT = r"/v1/(projects/[^/]+/locations/[^/]+)"


class Registry:
    """The models kept, and what the next calls answer.

    Args:
        behind: URL of the Vertex that has the jobs.
    """

    def __init__(self, behind: str) -> None:
        self.behind, self.models, self.uploads = behind, {}, 0  # type: tuple[str, dict[str, list[dict[str, Any]]], int]
        self.refusals: list[tuple[int, str, str]] = []
        self.polls = 0

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, dict[str, Any]] | None:
        """Status and JSON, None for what is not the registry's."""
        if re.fullmatch(_PARENT + r"/models(:upload|[/@].*)?", path) and self.refusals:
            status, reason, message = self.refusals.pop(0)
            return status, {"error": {"code": status, "status": reason, "message": message}}
        if match := re.fullmatch(_PARENT + r"/models:upload", path):
            return self._upload(match[1], body)
        if re.fullmatch(_PARENT + r"/models/[^/]+/operations/[0-9]+", path):
            self.polls += 1
            return 200, self._operation(path.removeprefix("/v1/"), done=True)
        if match := re.fullmatch(_PARENT + r"/models", path):
            wanted = re.fullmatch(r'display_name="((?:[^"\\]|\\.)*)"', query.get("filter", ""))
            newest = [self._default(versions) for versions in self.models.values()]
            rows = [row for row in newest if wanted is None or row["displayName"] == wanted[1]]
            json_format.ParseDict({"models": rows}, ListModelsResponse.pb(ListModelsResponse()))
            return 200, {"models": rows}
        if match := re.fullmatch(_PARENT + r"/models/([^/@:]+)@([^/:]+)", path):
            for row in self.models.get(f"{match[1]}/models/{match[2]}", []):
                if match[3] in (row["versionId"], *row["versionAliases"]):
                    return 200, row
            return 404, {"error": {"code": 404, "status": "NOT_FOUND", "message": f"{path} does not exist."}}
        return None

    def _upload(self, parent: str, body: Any) -> tuple[int, dict[str, Any]]:
        json_format.ParseDict(body, UploadModelRequest.pb(UploadModelRequest()))  # unknown fields are refused
        self.uploads += 1
        name = body.get("parentModel") or f"{parent}/models/{1000 + len(self.models)}"
        versions = self.models.setdefault(name, [])
        aliases = body["model"].get("versionAliases", [])
        for row in versions:
            row["versionAliases"] = [alias for alias in row["versionAliases"] if alias not in aliases]
        row = {**body["model"], "name": name, "versionId": str(len(versions) + 1), "versionAliases": aliases}
        json_format.ParseDict(row, Model.pb(Model()))
        versions.append(row)
        return 200, self._operation(f"{name}/operations/{self.uploads}", done=False)

    def _operation(self, name: str, *, done: bool) -> dict[str, Any]:
        if not done:
            return {"name": name}
        model = name.partition("/operations/")[0]
        version = self.models[model][-1]["versionId"]
        kind = "type.googleapis.com/google.cloud.aiplatform.v1.UploadModelResponse"
        return {"name": name, "done": True, "response": {"@type": kind, "model": model, "modelVersionId": version}}

    @staticmethod
    def _default(versions: list[dict[str, Any]]) -> dict[str, Any]:
        return next(row for row in versions if "default" in row["versionAliases"])


@contextmanager
def registry(behind: str) -> Iterator[tuple[str, Registry]]:
    """Its URL and its state, while the block lasts."""
    kept = Registry(behind)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _do(self) -> None:
            parts = urlsplit(self.path)
            data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            import json

            found = kept.answer(self.command, unquote(parts.path), query, json.loads(data) if data else None)
            if found is None:
                headers = {"Content-Type": "application/json"} if data else {}
                passed = requests.request(self.command, behind + self.path, data=data, headers=headers, timeout=30)
                status, content = passed.status_code, passed.content
            else:
                status, content = found[0], json.dumps(found[1]).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = do_DELETE = _do

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=20)
