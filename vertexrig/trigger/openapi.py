"""The trigger's API as an OpenAPI document, made from the project file: the rules it serves are the rules it applies."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

from vertexrig import __version__
from vertexrig.catalog import typed as schema
from vertexrig.project import overrides
from vertexrig.project.config import Loaded
from vertexrig.project.model import Bound, Job, Project, Sweep
from vertexrig.trigger.request import REQUEST_ID, with_steps

_TEXT = {"type": "string", "maxLength": overrides.LONGEST_TEXT, "pattern": r"^[^\u0000-\u001f\u007f]*$"}
_TYPES: dict[Any, dict[str, Any]] = {
    int: {"type": "integer"}, float: {"type": "number"}, bool: {"type": "boolean"}, str: _TEXT,
}  # fmt: skip
_DURATION = r"^[0-9]{1,9}(\.[0-9]{1,9})?s$"
_PROBLEMS = {
    "400": "The body is not as described, a value is out of bounds, or the checks found errors; `findings` lists all.",
    "403": "The project file does not open a key to callers.",
    "404": "There is no such job, sweep or page.",
    "405": "The page does not take this method.",
    "409": "The request id came with another body before, or no trainer package was uploaded.",
    "413": "The body is too large.",
    "422": "Over budget; `detail` shows the arithmetic.",
    "429": "No quota left; see Retry-After.",
    "500": "A fault of the trigger; its log says what.",
    "502": "Vertex AI or Cloud Storage refused the trigger itself.",
    "503": "Vertex AI or Cloud Storage cannot be reached, or another delivery of the request is at work; see Retry-After.",
}


def document(loaded: Loaded) -> dict[str, Any]:
    """The OpenAPI 3.0 document of a project's trigger."""
    return {
        "openapi": "3.0.3",
        "info": {"title": f"vertexrig trigger of {loaded.project.project}", "version": __version__},
        "paths": {
            "/": {
                "get": _operation("list", "What can be run.", {"200": _json("What can be run.", _LISTING)}),
                "post": {
                    **_operation(
                        "run",
                        "Start a job or sweep, once per request.",
                        {
                            "200": _json("A dry run, or a repeat: the first job, with duplicate true.", _SUBMITTED),
                            "201": _json("Started.", _SUBMITTED),
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
                    "tick", "Take the next steps of runs that have ended.", {"200": _json("What was looked at.", _TICK)}
                )
            },
            "/openapi.json": {
                "get": _operation("openapi", "This document.", {"200": _json("This document.", {"type": "object"})})
            },
            "/jobs/{id}": {
                "get": {
                    **_operation("job", "A job's state and times.", {"200": _json("The job.", _JOB)}, html=True),
                    "parameters": [
                        {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[0-9]{1,30}$"}}
                    ],
                }
            },
        },
    }  # fmt: skip


def request_schema(loaded: Loaded) -> dict[str, Any]:
    """The JSON Schema of a request's body."""
    project = loaded.project
    opened = {
        "set": {key: _bounded(bound, _hint(key)) for key, bound in project.trigger.allow.items()},
        "args": {key: _bounded(bound, None) for key, bound in project.trigger.allow_args.items()},
    }
    about = {"set": "Keys to override.", "args": "Arguments of the trainer to override."}
    return {
        "type": "object",
        "required": ["run"],
        "additionalProperties": False,
        "properties": {
            "run": {
                "type": "string",
                "enum": [*project.jobs, *project.sweeps],
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
            **(_then(names) if (names := with_steps(loaded)) else {}),
            "dry_run": {"type": "boolean", "description": "Only answer what would be sent."},
            "request_id": {
                "type": "string",
                "pattern": f"^{REQUEST_ID}$",
                "description": "Your own id: repeats with it start nothing new.",
            },
        },
    }


def _then(names: list[str]) -> dict[str, Any]:
    return {"then": {"type": "string", "enum": names, "description": "The schedule whose steps follow the run."}}


def bound_data(bound: Bound) -> dict[str, Any]:
    """What a bound says, without what it leaves open."""
    values = {name: getattr(bound, name) for name in ("min", "max", "choices", "pattern")}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if value not in (None, ())}  # fmt: skip


def _bounded(bound: Bound, hint: Any) -> dict[str, Any]:
    """The schema of one value."""
    if bound.choices:
        return {"enum": list(bound.choices)}
    limits = {name: value for name, value in (("minimum", bound.min), ("maximum", bound.max)) if value is not None}
    literal = typing.get_origin(hint) is Literal
    if literal:
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
    """The type of a key that callers may set; None if it has none."""
    path = key.split(".")
    if path[0] in ("jobs", "sweeps"):
        return _walk(Project, tuple(path))
    # a key without jobs. or sweeps. is one of whatever runs
    return next((found for cls in (Sweep, Job) if (found := _walk(cls, tuple(path))) is not None), None)


@lru_cache(maxsize=256)
def _walk(cls: Any, path: tuple[str, ...]) -> Any:
    for index, name in enumerate(path):
        hint = (
            overrides.plain_hint(schema.hints(cls).get(name))
            if isinstance(cls, type) and dataclasses.is_dataclass(cls)
            else None
        )
        if hint is None:
            return None
        origin = typing.get_origin(hint)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            inner = typing.get_args(hint)[-1]
            # a mapping's own key, such as the job's name, has no type: the path goes on behind it
            rest = path[index + 2 :]
            return _walk(inner, rest) if rest else inner
        cls = hint
    return cls


def _operation(id: str, summary: str, answers: Mapping[str, Any], *, html: bool = False) -> dict[str, Any]:
    """An operation with the problems every page has; `html`: functions-framework itself refuses some paths, its way."""
    problems: dict[str, dict[str, Any]] = {
        status: {"description": text, "content": {"application/problem+json": {"schema": _PROBLEM}}}
        for status, text in _PROBLEMS.items()
    }
    if html:
        problems["404"]["content"]["text/html"] = {"schema": _STRING}
    return {"operationId": id, "summary": summary, "responses": {**answers, **problems}}


def _json(description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": dict(schema)}}}


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties}


_STRING, _ANY = {"type": "string"}, {"type": "object"}
_STRINGS = {"type": "object", "additionalProperties": _STRING}
_PROBLEM = _object(
    "type title status detail",
    type=_STRING, title=_STRING, status={"type": "integer"}, detail=_STRING,
    findings={"type": "array", "items": _object("id path message", id=_STRING, path=_STRING, message=_STRING, fix=_STRING)},
)  # fmt: skip
_SUBMITTED = _object(
    "run name kind state console labels estimate duplicate",
    run=_STRING, name=_STRING, kind={"type": "string", "enum": ["CustomJob", "HyperparameterTuningJob"]}, state=_STRING,
    console=_STRING, labels=_STRINGS, estimate=_object("usd_at_most arithmetic", usd_at_most={"type": "number"}, arithmetic=_STRING),
    packages={"type": "array", "items": _STRING}, claim=_STRING, output=_STRING, duplicate={"type": "boolean"}, dry_run={"type": "boolean"},
    request=_ANY, then={"type": "array", "items": _STRING},
)  # fmt: skip
_JOB = _object("name kind run state ended", name=_STRING, kind=_STRING, run=_STRING, state=_STRING, ended={"type": "boolean"}, error=_STRING)  # fmt: skip
_RUN = _object("name kind topology", name=_STRING, kind={"type": "string", "enum": ["job", "sweep"]}, topology=_STRING)
_LISTING = _object("runs set args", runs={"type": "array", "items": _RUN}, set=_ANY, args=_ANY)
_LOOKED = _object(
    "chain schedule run state step detail job",
    chain=_STRING, schedule=_STRING, run=_STRING, state={"type": "string", "enum": ["waits", "started", "ended", "unknown"]}, step=_STRING,
    detail=_STRING, job=_STRING, outcome=_STRING, model=_STRING,
)  # fmt: skip
_TICK = _object("chains", chains={"type": "array", "items": _LOOKED})
