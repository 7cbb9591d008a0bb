"""The trigger's API as an OpenAPI document, made from the project file: the rules it serves are the rules it applies."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from vertexrig import __version__
from vertexrig.project import caller_overrides
from vertexrig.project.config import Loaded
from vertexrig.project.model import Job, Project, Sweep
from vertexrig.project.triggered import Bound
from vertexrig.schema import typed
from vertexrig.trigger import answers, jobs
from vertexrig.trigger.answers import NUMBER, TEXT, object_schema
from vertexrig.trigger.request import REQUEST_ID, with_steps

_TEXT = {"type": "string", "maxLength": caller_overrides.LONGEST_TEXT, "pattern": r"^[^\u0000-\u001f\u007f]*$"}
_TYPES: dict[Any, dict[str, Any]] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    str: _TEXT,
}
_DURATION = r"^[0-9]{1,9}(\.[0-9]{1,9})?s$"
_PROBLEMS = {
    "400": "The body is not as described, a value is out of bounds, or the checks found errors; `findings` lists all.",
    "403": "The project file does not allow callers to start this run or set a key.",
    "404": "There is no such job, sweep or page.",
    "405": "The page does not take this method.",
    "409": "The request id was already used with another body, or no trainer package was uploaded.",
    "413": "The body is too large.",
    "422": "Over budget; `detail` shows the arithmetic.",
    "429": "No quota left; see Retry-After.",
    "500": "A fault of the trigger; its log says what.",
    "502": "Vertex AI or Cloud Storage refused the trigger itself.",
    "503": "Vertex AI or Cloud Storage cannot be reached, or another delivery of the request is at work; see Retry-After.",
}


def document(loaded: Loaded) -> dict[str, Any]:
    """Return the OpenAPI 3.0 document of a project's trigger."""
    submitted = {"anyOf": [answers.schema(answers.SUBMITTED), _NOT_STARTED]}
    job = answers.schema(answers.JOB)
    page = object_schema("jobs", jobs={"type": "array", "items": job}, next=TEXT)
    id = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[0-9]{1,30}$"}}
    query = [
        {"name": name, "in": "query", "schema": dict(schema), "description": text}
        for name, (schema, text) in jobs.QUERY.items()
    ]
    uri = (loaded.project.trigger.uri or "/").split("?")[0]
    return {
        "openapi": "3.0.3",
        "info": {"title": f"vertexrig trigger of {loaded.project.project}", "version": __version__},
        "servers": [{"url": uri}],
        "security": [{"google": []}],
        "components": {"securitySchemes": {"google": {**_TOKEN, "description": f"{_TOKEN['description']} {uri}"}}},
        "paths": {
            "/": {
                "get": _read("list", "What can be run.", _json("What can be run.", _LISTING)),
                "post": {
                    **_operation(
                        "run",
                        "Start a job or sweep, once per request.",
                        {
                            "200": _json(
                                "A dry run; a repeat: the first job, with duplicate true; a run that was skipped.",
                                submitted,
                            ),
                            "201": _json("Started.", submitted),
                            "202": _json("Deferred: ticks try again.", _NOT_STARTED),
                        },
                    ),
                    "requestBody": {
                        "required": True,
                        "content": {"application/json": {"schema": request_schema(loaded)}},
                    },
                },
            },
            "/tick": {
                "post": _operation(
                    "tick",
                    "Take the next steps of runs that have ended.",
                    {"200": _json("What the tick found.", _TICK)},
                )
            },
            **{
                f"/runs/{{id}}/{verb}": {
                    "post": {
                        **_operation(
                            verb,
                            f"{verb.capitalize()} the model version of a run that waits for it.",
                            {
                                "200": _json("Decided, and the run has ended.", _DECIDED),
                                "202": _json("Decided: a tick ends the run.", _DECIDED),
                            },
                            html=True,
                        ),
                        "parameters": [id],
                    }
                }
                for verb in ("approve", "reject")
            },
            "/openapi.json": {"get": _read("openapi", "This document.", _json("This document.", {"type": "object"}))},
            "/jobs": {
                "get": {
                    **_read("jobs", "The jobs that the trigger started, the newest first.", _json("A page.", page)),
                    "parameters": [*query, _IF_NONE_MATCH],
                }
            },
            "/jobs/{id}": {
                "get": {
                    **_read("job", "A job's state, times and trials.", _json("The job.", job), html=True),
                    "parameters": [id, _IF_NONE_MATCH],
                },
                "delete": {
                    **_operation(
                        "cancel",
                        "Cancel a job.",
                        {"200": _json("It had ended.", job), "202": _json("It is cancelled.", job)},
                        html=True,
                    ),
                    "parameters": [id],
                },
            },
        },
    }


def request_schema(loaded: Loaded) -> dict[str, Any]:
    """Return the JSON Schema of a request's body."""
    project = loaded.project
    opened = {
        "set": {key: _bounded(bound, _hint(key)) for key, bound in project.trigger.allow.items()},
        "args": {key: _bounded(bound, None) for key, bound in project.trigger.allow_args.items()},
    }
    names = with_steps(loaded)
    then = {"type": "string", "enum": names, "description": "The schedule whose steps follow the run."}
    about = {"set": "Keys to override.", "args": "Arguments of the trainer to override."}
    return {
        "type": "object",
        "required": ["run"],
        "additionalProperties": False,
        "properties": {
            "run": {
                "type": "string",
                "enum": [*project.entries],
                "description": "The job or sweep.",
            },
            **{
                name: {
                    "type": "object",
                    "description": about[name],
                    "additionalProperties": False,
                    "properties": properties,
                }
                for name, properties in opened.items()
            },
            **({"then": then} if names else {}),
            "dry_run": {"type": "boolean", "description": "Only answer what would be sent."},
            "request_id": {
                "type": "string",
                "pattern": f"^{REQUEST_ID}$",
                "description": "Your own id: repeats with it start nothing new.",
            },
        },
    }


def bound_data(bound: Bound) -> dict[str, Any]:
    """Return what a bound says, without what it leaves open."""
    values = {name: getattr(bound, name) for name in ("min", "max", "choices", "pattern")}
    given = {name: value for name, value in values.items() if value not in (None, ())}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


def _bounded(bound: Bound, hint: Any) -> dict[str, Any]:
    """Return the schema of one value."""
    if bound.choices:
        return {"enum": list(bound.choices)}
    limits = {name: value for name, value in (("minimum", bound.min), ("maximum", bound.max)) if value is not None}
    if typing.get_origin(hint) is Literal:
        return {"type": "string", "enum": list(typing.get_args(hint))}
    if bound.pattern is not None:
        return {**_TEXT, "pattern": f"^(?:{bound.pattern})$"}
    if limits:
        if hint is str:
            return {"type": "string", "pattern": _DURATION}  # a number of seconds, within the bounds
        if hint in (int, float):
            return {**_TYPES[hint], **limits}
        return {"anyOf": [{"type": "number", **limits}, {"type": "string", "pattern": _DURATION}]}
    if hint in _TYPES:
        return dict(_TYPES[hint])
    return {"anyOf": [_TEXT, {"type": "number"}, {"type": "boolean"}]}


def _hint(key: str) -> Any:
    """Return the type of a key that callers may set; None if it has none."""
    path = key.split(".")
    if path[0] in ("jobs", "sweeps"):
        return _hint_at(Project, tuple(path))
    # a key without jobs. or sweeps. is one of whatever runs
    return next((found for cls in (Sweep, Job) if (found := _hint_at(cls, tuple(path))) is not None), None)


@lru_cache(maxsize=256)
def _hint_at(cls: Any, path: tuple[str, ...]) -> Any:
    for index, name in enumerate(path):
        hint = (
            caller_overrides.plain_hint(typed.hints(cls).get(name))
            if isinstance(cls, type) and dataclasses.is_dataclass(cls)
            else None
        )
        if hint is None:
            return None
        origin = typing.get_origin(hint)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            inner = typing.get_args(hint)[-1]
            # a mapping's own key, such as the job's name, has no type: the path continues after it
            rest = path[index + 2 :]
            return _hint_at(inner, rest) if rest else inner
        cls = hint
    return cls


def _operation(id: str, summary: str, answers: Mapping[str, Any], *, html: bool = False) -> dict[str, Any]:
    """Return an operation with the problems every page has; `html`: functions-framework itself refuses some paths with an HTML page."""
    problems: dict[str, dict[str, Any]] = {
        status: {"description": text, "content": {"application/problem+json": {"schema": _PROBLEM}}}
        for status, text in _PROBLEMS.items()
    }
    if html:
        problems["404"]["content"]["text/html"] = {"schema": TEXT}
    for status in ("422", "429", "503"):
        problems[status]["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
    return {"operationId": id, "summary": summary, "responses": {**answers, **problems}}


def _read(id: str, summary: str, answer: Mapping[str, Any], *, html: bool = False) -> dict[str, Any]:
    """Return an operation that only reads: its answer has an ETag."""
    tag = {"ETag": {"schema": TEXT, "description": "For If-None-Match."}}
    known = {"200": {**answer, "headers": tag}, "304": {"description": "As the caller has it.", "headers": tag}}
    return {**_operation(id, summary, known, html=html), "parameters": [_IF_NONE_MATCH]}


def _json(description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": dict(schema)}}}


_FINDING = object_schema("id", "path", "message", id=TEXT, path=TEXT, message=TEXT, fix=TEXT)
_PROBLEM = object_schema(
    *("type", "title", "status", "detail"),
    **{"type": TEXT, "title": TEXT, "status": {"type": "integer"}, "detail": TEXT},
    findings={"type": "array", "items": _FINDING},
)
_RUN = object_schema(
    *("name", "kind", "topology"), name=TEXT, kind={"type": "string", "enum": ["job", "sweep"]}, topology=TEXT
)
_BOUND = object_schema(min=NUMBER, max=NUMBER, choices={"type": "array", "items": {}}, pattern=TEXT)
_BOUNDS = {"type": "object", "additionalProperties": _BOUND}
_LISTING = object_schema(
    *("project", "region", "digest", "version", "runs", "set", "args"),
    **dict.fromkeys(("project", "region", "digest", "version"), TEXT),
    runs={"type": "array", "items": _RUN},
    **dict.fromkeys(("set", "args"), _BOUNDS),
)
_NOT_STARTED = object_schema(
    *("decision", "reason", "detail"),
    decision={"type": "string", "enum": ["skipped", "deferred"]},
    state={"type": "string", "enum": ["waiting"]},
    **dict.fromkeys(("reason", "detail", "candidate"), TEXT),
)
_TOKEN = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "JWT",
    "description": "An identity token of Google, of an account with roles/run.invoker, for the audience",
}
_IF_NONE_MATCH = {"name": "If-None-Match", "in": "header", "schema": TEXT, "description": "An ETag that is known."}
_MOVED_TEXTS = ("id", "schedule", "schedule_time", "run", "candidate", "step", "job", "text", "outcome", "model")
_MOVED = object_schema(
    *("id", "run", "phase", "state"),
    **dict.fromkeys(_MOVED_TEXTS, TEXT),
    phase={"type": "string", "enum": ["waiting", "attempt", "step", "ended"]},
    state={"type": "string", "enum": ["waiting", "training", "started", "ended", "unknown"]},
)
_DECIDED = object_schema(
    *("id", "run", "decision", "by", "state"),
    **dict.fromkeys(("id", "run", "by", "state", "outcome", "model", "text"), TEXT),
    decision={"type": "string", "enum": ["approved", "rejected"]},
)
_TICK = object_schema(
    "runs",
    runs={"type": "array", "items": _MOVED},
    left={"type": "integer"},
    running={"type": "boolean"},
)
