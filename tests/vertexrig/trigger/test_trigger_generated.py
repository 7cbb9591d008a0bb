"""Generated requests in process: none is answered with a 5xx or with anything the document does not know.

100 of each of four kinds, and as many bodies against the served schema (2,500 with ATTACK=long); `test_trigger_served.py` adds schemathesis
against the staged function.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support import clouds
from tests.vertexrig.trigger.test_trigger import make
from vertexrig.trigger import openapi, request
from vertexrig.trigger.app import Call, Trigger
from vertexrig.trigger.request import RequestProblem

LONG = os.environ.get("ATTACK") == "long"
EACH = 2500 if LONG else 40
generated = settings(max_examples=EACH, deadline=None, suppress_health_check=list(HealthCheck))
INSIDES = re.compile(r'Traceback|File "|\bline \d+|\b[A-Za-z]+(?:Error|Exception)\b|site-packages|/vertexrig/')


@pytest.fixture(scope="module")
def trigger(tmp_path_factory: pytest.TempPathFactory) -> Trigger:
    """The trigger of the tests' project."""
    return make(clouds.MemoryCloud(), tmp_path_factory.mktemp("project"), log=lambda row: None)


@pytest.fixture(scope="module")
def documented(trigger: Trigger) -> dict[tuple[str, str, int], jsonschema.Draft202012Validator]:
    """(page, method, status) -> the schema of the answer, from the served document."""
    paths = trigger.handle(Call("GET", "/openapi.json")).body["paths"]
    return {
        (page, method, int(status)): jsonschema.Draft202012Validator(next(
            content["schema"] for kind, content in answer["content"].items() if kind.endswith("json")
        ))
        for page, methods in paths.items()
        for method, operation in methods.items()
        for status, answer in operation["responses"].items()
        if "content" in answer
    }  # fmt: skip


def answered(trigger: Trigger, documented: Any, call: Call) -> None:
    """Send a request and hold the answer against the document."""
    reply = trigger.handle(call)
    content, status, headers = reply.flask
    assert status < 500, reply.body
    body = json.loads(content)
    problem = status >= 400
    assert headers["Content-Type"] == ("application/problem+json" if problem else "application/json")
    page = (
        "/jobs/{id}"
        if call.path.startswith("/jobs/")
        else call.path
        if call.path in ("/openapi.json", "/jobs")
        else "/"
    )
    schema = (
        documented.get((page, call.method.lower().replace("head", "get"), status)) or documented[("/", "post", status)]
    )
    assert schema.is_valid(body), (status, body)
    if problem:
        told = {
            body["detail"],
            *(finding["message"] for finding in body.get("findings", ()) if finding["id"] != "value"),
        }
        assert not any(INSIDES.search(text) for text in told), body


def post(body: bytes, headers: dict[str, str] | None = None) -> Call:
    return Call("POST", "/", headers or {}, lambda most: body[:most])


SCALARS = st.one_of(
    st.text(max_size=8), st.integers(-3, 120), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.none(),
    st.sampled_from(["n1-standard-4", "n1-standard-8", "3600s", "vision", "x" * 1025, "\u0000", "1s", 5.0]),
    st.lists(st.integers(), max_size=1),
)  # fmt: skip
KEYS = st.sampled_from([*clouds.PROJECT["trigger"]["allow"], "image", "nope"])
ARGS = st.sampled_from(["epochs", "note", "output"])
BODIES = st.fixed_dictionaries(
    {"run": st.sampled_from(["cpu", "sweep", "nope", "", 3, None])},
    optional={
        "set": st.one_of(st.dictionaries(KEYS, SCALARS, max_size=3), SCALARS),
        "args": st.one_of(st.dictionaries(ARGS, SCALARS, max_size=3), SCALARS),
        "dry_run": st.one_of(st.booleans(), st.just("yes")),
        "request_id": st.one_of(st.text(max_size=5), st.sampled_from(["ok-1", "a" * 200, "a" * 201, 5])),
        "other": st.none(),
    },
)
ALLOWED = st.fixed_dictionaries(
    {"run": st.sampled_from(["cpu", "sweep"]), "dry_run": st.booleans()},
    optional={
        "set": st.fixed_dictionaries({}, optional={
            "machine_type": st.sampled_from(["n1-standard-4", "n1-standard-8"]),
            "labels.team": st.from_regex(r"[a-z]{1,20}", fullmatch=True),
            "timeout": st.integers(0, 7201).map(lambda seconds: f"{seconds}s"),
            "disable_retries": st.booleans(),
        }),
        "args": st.fixed_dictionaries({}, optional={"epochs": st.integers(1, 100), "note": st.text(max_size=40)}),
        "request_id": st.from_regex(r"[a-z0-9-]{1,12}", fullmatch=True),
    },
)  # fmt: skip
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["run", "set", "args", "x"]) | st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """The bytes of a body of which a piece is lost, doubled or overwritten."""
    text = json.dumps(draw(BODIES | ALLOWED), ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 9)))
    middle = draw(st.one_of(st.just(b""), st.just(text[start:end] * 2), st.binary(max_size=6)))
    return text[:start] + middle + text[end:]


HEADERS = st.dictionaries(
    st.sampled_from([
        "content-length", "content-type", "x-cloudscheduler", "x-cloudscheduler-jobname", "x-cloudscheduler-scheduletime",
        "x-cloud-trace-context", "traceparent", "transfer-encoding", "authorization", "host",
    ]),
    st.text(max_size=40) | st.sampled_from(["true", "weekly", "2026-11-01T03:00:00Z", "9" * 12, "-1", "application/json"]),
    max_size=5,
)  # fmt: skip
PATHS = st.one_of(
    st.sampled_from(
        [
            "/",
            "/openapi.json",
            "/jobs",
            "/jobs/1",
            "/jobs/" + "9" * 30,
            "/jobs/../..",
            "//",
            "/jobs/%2e%2e",
            "/jobs/1/x",
        ]
    ),
    st.text(max_size=30).map(lambda text: f"/{text}"),
    st.text(min_size=1, max_size=70).map(lambda text: f"/jobs/{text}"),
)


@generated
@given(body=BODIES | ALLOWED)
def test_requests_nearly_right(trigger: Trigger, documented: Any, body: Any) -> None:
    """Bodies of the right form, with right and wrong values."""
    answered(trigger, documented, post(json.dumps(body).encode()))


@generated
@given(body=ANY_JSON)
def test_any_json(trigger: Trigger, documented: Any, body: Any) -> None:
    """Any JSON, and what Python takes for JSON."""
    answered(trigger, documented, post(json.dumps(body).encode("utf-8", "surrogatepass")))


@generated
@given(body=damaged() | st.binary(max_size=200))
def test_damaged_bytes(trigger: Trigger, documented: Any, body: bytes) -> None:
    """Bytes of a request that were damaged on the way, and any bytes at all."""
    answered(trigger, documented, post(body))


@generated
@given(method=st.sampled_from(["GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "get", ""]), path=PATHS, headers=HEADERS, body=ALLOWED)  # fmt: skip
def test_pages_methods_and_headers(trigger: Trigger, documented: Any, method: str, path: str, headers: dict[str, str], body: Any) -> None:  # fmt: skip
    """Any page, method and headers, with a good body."""
    content = json.dumps(body).encode()
    answered(trigger, documented, Call(method, path, headers, lambda most: content[:most]))


@settings(generated, max_examples=EACH)
@given(body=st.one_of(BODIES, SCALARS))
@example(body={"run": "sweep", "set": {"max_trial_count": 5.0}})
@example(body={"run": "cpu", "set": {"timeout": 600}})
def test_the_schema_is_what_is_applied(trigger: Trigger, body: Any) -> None:
    """What the served JSON Schema refuses is refused, and what it takes is refused only for what it cannot express: the
    seconds of a duration, and $( in an argument.
    """
    try:
        request.read(request.parse(json.dumps(body).encode()), trigger.loaded)
        problem = None
    except RequestProblem as found:
        problem = found
    schema = openapi.request_schema(trigger.loaded)
    valid = jsonschema.Draft202012Validator(schema).is_valid(body)
    if valid:
        paths = {finding["path"] for finding in problem.findings} if problem else set()
        assert paths <= {"set.timeout", "args.note"}, problem
    else:
        # the form and the rules refuse it here, or the value does not fit the key's type when the job is rendered
        typed = {"max_trial_count", "disable_retries", "timeout", "machine_type", "labels.team"}
        assert problem is not None or typed & set(body.get("set", {})), body
