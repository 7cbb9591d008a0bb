"""Requests the signed URLs of Google's storage conformance tests, by pytest inside `vertexrig local run`.

The tests are of what signs; here the server is asked whether it serves each form of URL that they have. The date is the
present one: the local Vertex checks a URL's time and not its signature. `V4_SIGNATURES` names the file.
"""

from __future__ import annotations

import json
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import pytest
import requests

_CASES = json.loads(Path(os.environ["V4_SIGNATURES"]).read_text(encoding="utf-8"))
_STATUS = {"GET": 200, "PUT": 200, "POST": 201, "DELETE": 204}
_STORAGE = "https://storage.googleapis.com"


@pytest.mark.parametrize("case", _CASES["signingV4Tests"], ids=lambda case: str(case["description"]))
def test_url(case: dict[str, Any]) -> None:
    """The method and headers of a signed URL do what they are for."""
    parts = urlsplit(case["expectedUrl"])
    if not (parts.hostname or "").endswith("storage.googleapis.com"):
        pytest.skip(f"{parts.hostname} is not a host of Cloud Storage")
    bucket, name = case["bucket"], case.get("object")
    requests.post(f"{_STORAGE}/storage/v1/b?project=p", json={"name": bucket}, timeout=30)
    if name:
        upload = f"{_STORAGE}/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}"
        assert requests.post(upload, data=b"hello", timeout=30).status_code == 200
    now = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    query = [(key, now if key == "X-Goog-Date" else value) for key, value in parse_qsl(parts.query, True)]
    url = urlunsplit(("https", parts.netloc, parts.path, urlencode(query), ""))
    # What is signed may hold what HTTP does not allow: a name with slashes, and blanks around a value.
    headers = {key: " ".join(value.split()) for key, value in case.get("headers", {}).items() if "/" not in key}
    answer = requests.request(case["method"], url, headers=headers, timeout=30)
    assert answer.status_code == _STATUS[case["method"]], answer.text


@pytest.mark.parametrize("case", _CASES["postPolicyV4Tests"], ids=lambda case: str(case["description"]))
def test_post_policy(case: dict[str, Any]) -> None:
    """Forms that upload an object are for browsers, and not served."""
    pytest.skip("post policies are not served")
