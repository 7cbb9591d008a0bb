"""What a caller of the trigger may override in a job, and how the override is made; `--set` is in `config`.

Two gates: the keys that may be named in `trigger.allow` at all are a table here (images, commands, service accounts,
networks, and places to write are not in it), and of those a caller may set only the ones the project file allows, within
its bounds. A value is put into the typed project as it came: it is never read as YAML, a template or a `${VARIABLE}`.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from types import UnionType
from typing import Any, Union

from vertexrig.errors import ConfigError, Errors, did_you_mean
from vertexrig.project.arguments import parameter_ids, with_flags
from vertexrig.project.config import Loaded
from vertexrig.project.model import Job, Project, Sweep
from vertexrig.project.triggered import Bound, Schedule, TriggerSettings
from vertexrig.schema import typed
from vertexrig.schema.typed import Scalar
from vertexrig.spec.api_names import NAME
from vertexrig.text import kind_of, quoted
from vertexrig.times import duration_seconds, nanoseconds

_MACHINE = (
    r"machine_type|accelerator_type|accelerator_count|tpu_topology|replica_count|boot_disk_type|boot_disk_size_gb"
)
_VALUE = r"double_value_spec\.(min|max)_value|integer_value_spec\.(min|max)_value|scale_type"
SAFE = re.compile(
    rf"""(?:(?:jobs|sweeps)\.[a-z0-9_-]+\.)?(?:
    {_MACHINE}
  | (?:worker|ps|reduction_server|evaluator)\.(?:{_MACHINE})
  | timeout | strategy | max_wait_duration | restart_job_on_worker_restart | disable_retries | display_name
  | labels\.(?!vertexrig)[a-z][a-z0-9_-]{{0,62}}
  | max_trial_count | parallel_trial_count | max_failed_trial_count
  | study\.(?:algorithm | measurement_selection_type | parameters\.[A-Za-z_][A-Za-z0-9_]*\.(?:{_VALUE}))
    )""",
    re.VERBOSE,
)
"""Keys that a project file may open to callers."""
ARG = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
LONGEST_TEXT = 1024
_UNSET = object()


@dataclass(frozen=True)
class RefusedOverride:
    """Why a value was refused.

    Args:
        path: Its place in the request: `set.max_trial_count`.
        message: The value, the rule and the choices.
        allowed: False if the caller may not set this at all; True if only the value is wrong.
    """

    path: str
    message: str
    allowed: bool = True


def check_rules(loaded: Loaded) -> None:
    """Refuse a `trigger:` section that opens a key that must stay closed, or has bounds that cannot hold.

    Raises:
        ConfigError: With the line of each key.
    """
    trigger, errors = loaded.project.trigger, Errors()
    for key, bound in trigger.allow.items():
        with errors:
            if not SAFE.fullmatch(key):
                raise loaded.error_at(
                    f"callers can never set {key!r}: they may set machines, replica counts, timeout, trial counts, labels.X, "
                    "study.algorithm, and ranges of study.parameters.X",
                    *("trigger", "allow", key),
                )
            _check_bound(loaded, bound, ("trigger", "allow", key))
    for key, bound in trigger.allow_args.items():
        with errors:
            if not ARG.fullmatch(key):
                raise loaded.error_at(f"{key!r} cannot name an argument", "trigger", "allow_args", key)
            _check_bound(loaded, bound, ("trigger", "allow_args", key))
    for place, message in _wrong_places(loaded.project):
        with errors:
            raise loaded.error_at(message, "trigger", *place)
    for pattern, caller in trigger.callers.items():
        for index, key in enumerate(caller.keys):
            with errors:
                if not any(fnmatchcase(name, key) for name in opened(loaded)):
                    raise loaded.error_at(
                        f"trigger.allow and trigger.allow_args do not allow {key!r}. {did_you_mean(key, opened(loaded))}",
                        *("trigger", "callers", pattern, "keys", index),
                    )
        for key in caller.labels:
            with errors:
                if key.startswith("vertexrig"):
                    raise loaded.error_at(
                        "labels that begin with vertexrig are the tool's own",
                        *("trigger", "callers", pattern, "labels", key),
                    )
    for name, schedule in loaded.project.schedules.items():
        for path, message in _wrong_policy(trigger, name, schedule):
            with errors:
                raise loaded.error_at(message, "schedules", name, path)
    errors.raise_all()
    # a schedule sends its values like any caller: it would be refused at the first run
    for name, schedule in loaded.project.schedules.items():
        for refusal in check(loaded, schedule.run, schedule.set, schedule.args):
            with errors:
                raise loaded.error_at(refusal.message, "schedules", name, *refusal.path.split(".", 1))
    errors.raise_all()


def opened(loaded: Loaded) -> list[str]:
    """Return everything that callers may set, as `trigger.callers` names it: keys, and arguments as args.NAME."""
    trigger = loaded.project.trigger
    return [*trigger.allow, *(f"args.{name}" for name in trigger.allow_args)]


def _wrong_policy(trigger: TriggerSettings, name: str, schedule: Schedule) -> Iterator[tuple[str, str]]:
    """Yield each wrong key of a schedule, and what is wrong with it."""
    if not trigger.may_start(schedule.run):
        yield "run", f"trigger.runs does not let the trigger start {schedule.run!r}: {', '.join(trigger.runs)}"
    given = {key: getattr(schedule, key) for key in ("start", "end") if getattr(schedule, key) is not None}
    wrong = [key for key, text in given.items() if nanoseconds(text) is None]
    for key in wrong:
        yield key, f"{quoted(given[key])} is not a time such as 2026-12-01 or 2026-12-01T03:00:00+01:00"
    if len(given) == 2 and not wrong and (nanoseconds(given["end"]) or 0) <= (nanoseconds(given["start"]) or 0):
        yield "end", f"the end {given['end']} is not after the start {given['start']}"


def _wrong_places(project: Project) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield what is wrong with `trigger.events` and `trigger.notify`, and at which key."""
    trigger, runnable = project.trigger, [*project.entries]
    for name, event in trigger.events.items():
        path = ("events", name)
        if not re.fullmatch(NAME.pattern, name):
            yield path, f"{quoted(name)} is not {NAME.words}"
        if (event.topic is None) is (event.bucket is None):
            yield path, "name either a topic, whose messages hold requests, or a bucket and what to run"
        elif event.bucket is not None and event.run not in runnable:
            yield (*path, "run"), f"there is no job or sweep {event.run!r}. {did_you_mean(str(event.run), runnable)}"
        if event.arg is not None and event.arg not in trigger.allow_args:
            yield (*path, "arg"), f"{event.arg!r} is not open: allow_args: {{{event.arg}: {{}}}}"
        try:
            re.compile(event.objects)
        except re.error as error:
            yield (*path, "objects"), f"{event.objects!r} does not compile as a regular expression: {error}"
    for index, notify in enumerate(trigger.notify):
        if (notify.topic is None) is (notify.webhook is None):
            yield ("notify", index), "name either a topic or a webhook"
    if trigger.kms_key_name and not trigger.docker_repository:
        yield ("kms_key_name",), "a key needs docker_repository, a repository that has the same key"
    if trigger.kms_key_name and trigger.command == "run":
        reason = "`gcloud run deploy` does not encrypt the build of a function (gcloud 528): deploy_with: functions"
        yield ("deploy_with",), reason
    direct = [key for key in ("network", "subnet") if getattr(trigger, key)]
    if direct and trigger.vpc_connector:
        yield (direct[0],), "a function uses either a connector or a network: leave out vpc_connector or this key"
    elif direct and trigger.command == "functions":
        yield (
            (direct[0],),
            "`gcloud functions deploy` has no flag for it (gcloud 528): deploy_with: run, or vpc_connector",
        )


def _check_bound(loaded: Loaded, bound: Bound, path: tuple[str, ...]) -> None:
    if bound.min is not None and bound.max is not None and bound.min > bound.max:
        raise loaded.error_at(f"min {bound.min:g} is above max {bound.max:g}", *path)
    if bound.pattern is not None:
        try:
            re.compile(bound.pattern)
        except re.error as error:
            raise loaded.error_at(
                f"the pattern {bound.pattern!r} does not compile as a regular expression: {error}", *path
            ) from None
        if bound.min is not None or bound.max is not None:
            raise loaded.error_at("a pattern is for text, min and max are for numbers: give one or the other", *path)


def check(loaded: Loaded, run: str, set_: Mapping[str, Any], args: Mapping[str, Any]) -> list[RefusedOverride]:
    """Return every reason to refuse these overrides of job or sweep `run`; empty if they may be made."""
    trigger = loaded.project.trigger
    found: list[RefusedOverride] = []
    for key, value in set_.items():
        found += _check_one("set", key, value, trigger.allow) or _not_the_key_s(loaded, run, key, value)
    for key, value in args.items():
        found += _check_one("args", key, value, trigger.allow_args) or _not_the_flag_s(loaded, run, key, value)
        # Vertex AI expands $(NAME) in arguments: a caller could read the job's variables by it
        if isinstance(value, str) and "$(" in value:
            message = "the text holds $(, which Vertex AI would replace with an environment variable"
            found.append(RefusedOverride(f"args.{key}", message))
    if args:
        found += _fixed_args(loaded, run, args)
    return found


def _check_one(part: str, key: str, value: Any, allowed: Mapping[str, Bound]) -> list[RefusedOverride]:
    path = f"{part}.{key[:100]}"
    if key not in allowed:
        # The request comes from outside: its texts are cut before they are compared or shown.
        choices = did_you_mean(key[:200], allowed) if allowed else "The project file opens none."
        return [RefusedOverride(path, f"callers may not set {key[:100]!r}. {choices}", allowed=False)]
    seconds = duration_seconds(value) if isinstance(value, str) else None
    if part == "set" and key.rpartition(".")[2] in ("timeout", "max_wait_duration") and not (seconds or 0) > 0:
        # 0s is the service's default of 7 days, or a wait without end, which a bound must not let through
        reason = "is not a duration above zero, such as 3600s"
    else:
        reason = _outside(value, allowed[key])
    return [RefusedOverride(path, f"{quoted(value)} {reason}")] if reason else []


def _not_the_key_s(loaded: Loaded, run: str, key: str, value: Any) -> list[RefusedOverride]:
    """Return a refusal if a value does not have its key's type, or if the project has no such key."""
    try:
        apply(loaded, run, {key: value}, {})
    except ConfigError as error:
        return [RefusedOverride(f"set.{key}", error.message.removeprefix(f"set.{key}: "))]
    return []


def _not_the_flag_s(loaded: Loaded, run: str, key: str, value: Any) -> list[RefusedOverride]:
    """Return a refusal if a value of a bounded argument is not a number of the same type as the project file's value."""
    bound, project = loaded.project.trigger.allow_args[key], loaded.project
    if bound.min is None and bound.max is None:
        return []
    target = project.jobs.get(run) or project.sweeps.get(run)
    layers = [target, project.jobs.get(target.job) if isinstance(target, Sweep) else None]
    own = next((one.args[key] for one in layers if one and isinstance(one.args, Mapping) and key in one.args), None)
    if isinstance(value, str):
        reason = "is text; a number belongs here"
    # argparse's type=int refuses 2.0, and that the job would say after its machines have started.
    elif isinstance(own, int) and not isinstance(own, bool) and not isinstance(value, int):
        reason = f"is not a whole number, as {quoted(own)} in the project file is"
    else:
        return []
    return [RefusedOverride(f"args.{key}", f"{quoted(value)} {reason}")]


def _outside(value: Any, bound: Bound) -> str:
    """Return what is wrong with a value, "" if the bound allows it."""
    if not isinstance(value, (str, int, float, bool)):
        return f"is {kind_of(value)}; text, a number or a boolean belongs here"
    if isinstance(value, str) and (len(value) > LONGEST_TEXT or any(ord(one) < 32 or ord(one) == 127 for one in value)):
        return f"has control characters or more than {LONGEST_TEXT} characters"
    # True equals 1 in Python
    if bound.choices and not any(value == choice and _kind(value) == _kind(choice) for choice in bound.choices):
        return f"is not one of {', '.join(quoted(choice) for choice in bound.choices)}"
    if bound.min is not None or bound.max is not None:
        number = _as_number(value)
        if number is None:
            return f"is {kind_of(value)}; a number belongs here"
        if bound.min is not None and number < bound.min:
            return f"is below {bound.min:g}, the smallest allowed"
        if bound.max is not None and number > bound.max:
            return f"is above {bound.max:g}, the largest allowed"
    if bound.pattern is not None and not (isinstance(value, str) and re.fullmatch(bound.pattern, value)):
        return f"does not match {bound.pattern!r}"
    return ""


def _kind(value: Scalar) -> str:
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def _as_number(value: Scalar) -> float | None:
    """Return a number, or the seconds of a duration such as 3600s."""
    if isinstance(value, str):
        return duration_seconds(value)
    return None if isinstance(value, bool) else value


def _fixed_args(loaded: Loaded, run: str, args: Mapping[str, Any]) -> list[RefusedOverride]:
    """Return a refusal for each argument that is a parameter of the sweep's study."""
    sweep = loaded.project.sweeps.get(run)
    searched = {*sweep.over, *(parameter_ids(sweep.study) if sweep.study else ())} if sweep else set()
    return [RefusedOverride(f"args.{key}", f"the study of {run} decides {key!r}") for key in args if key in searched]


def apply(loaded: Loaded, run: str, set_: Mapping[str, Scalar], args: Mapping[str, Scalar]) -> Loaded:
    """Return the project with overrides of job or sweep `run`, which `check` has allowed. Values that a candidate gives stay.

    Raises:
        ConfigError: A value has the wrong type for its key, or `run` has no such key. Its message begins with the path.
    """
    project: Any = loaded.project
    group = "jobs" if run in loaded.project.jobs else "sweeps"
    for key, value in set_.items():
        path = key.split(".")
        if path[0] not in ("jobs", "sweeps"):
            path = [group, run, *path]
        if not _is_decided(loaded, path):
            project = _put(project, path, value, key)
    owners = [(group, run), *([("jobs", loaded.project.sweeps[run].job)] if group == "sweeps" and args else [])]
    left = {
        key: value for key, value in args.items() if not any(_is_decided(loaded, [*at, "args", key]) for at in owners)
    }
    if left:
        project = _put_args(project, group, run, left)
    return replace(loaded, project=project)


def _is_decided(loaded: Loaded, path: list[str]) -> bool:
    """Whether a candidate gives the value at a path, a mapping around it, or a part of it."""
    return any(all(own == other for own, other in zip(path, one, strict=False)) for one in loaded.decided)


def _put(here: Any, path: list[str], value: Scalar, key: str, hint: Any = None) -> Any:
    """Return a copy of the dataclass or mapping `here` with the value at `path`."""
    name, rest = path[0], path[1:]
    if isinstance(here, Mapping):
        known: Any = here.get(name, _UNSET)
        inner = typing.get_args(hint)[-1] if hint is not None else str
        if rest and known is _UNSET:
            raise ConfigError(f"set.{key}: there is no {name!r}. {did_you_mean(name, here)}")
        return {**here, name: _put(known, rest, value, key, inner) if rest else _converted(inner, value, key)}
    hints = typed.hints(type(here))
    if name not in hints:
        raise ConfigError(f"set.{key}: there is no key {name!r} here. {did_you_mean(name, hints, most=40)}")
    inner, known = plain_hint(hints[name]), getattr(here, name)
    if not rest:
        return replace(here, **{name: _converted(hints[name], value, key)})
    if known is None:
        if not (isinstance(inner, type) and dataclasses.is_dataclass(inner)) or _required(inner):
            raise ConfigError(f"set.{key}: the project file gives no {name} to change")
        # a section that the file leaves out begins with its defaults
        known = inner()
    return replace(here, **{name: _put(known, rest, value, key, inner)})


def _converted(hint: Any, value: Scalar, key: str) -> Any:
    place = typed.Place(("set", key), typed.Origins())
    return typed.convert(hint, value, place)


def plain_hint(hint: Any) -> Any:
    """`X` of a type hint `X | None`; any other hint as it is."""
    if typing.get_origin(hint) in (Union, UnionType):
        parts = [part for part in typing.get_args(hint) if part is not type(None)]
        return parts[0] if len(parts) == 1 else hint
    return hint


def _required(cls: Any) -> bool:
    return any(
        one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        for one in dataclasses.fields(cls)
    )


def _put_args(project: Any, group: str, run: str, args: Mapping[str, Scalar]) -> Any:
    """Return the project with arguments added to those of a job or sweep, as a mapping or a list like theirs."""
    rows: dict[str, Job | Sweep] = dict(getattr(project, group))
    target = rows[run]
    base = project.jobs[target.job].args if isinstance(target, Sweep) else target.args
    if isinstance(base, Mapping) and isinstance(target.args, Mapping):
        merged: Any = {**target.args, **args}
    else:
        own = base if isinstance(target.args, Mapping) else target.args
        # The caller's flag in place of the project's, not in addition to it: a trainer that collects a flag would get both.
        merged = tuple(with_flags(own, args))
    rows[run] = replace(target, args=merged)
    return replace(project, **{group: rows})
