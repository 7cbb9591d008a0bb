"""The `environments:` of a project file: the keys of the chosen one are merged over those of the file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from vertexrig.errors import UsageError, did_you_mean
from vertexrig.project.triggered import TriggerSettings
from vertexrig.schema import typed
from vertexrig.spec.api_names import NAME
from vertexrig.text import kind_of, quoted
from vertexrig.yamltext import FileKey

KEY = "environments"
VARIABLE = "VERTEXRIG_ENV"
"""Environment variable with the environment of commands without `--env`."""
STAGED = "environment.txt"
"""File of the deployed function's folder with the name of its environment."""
chosen_env: ContextVar[str] = ContextVar("env", default="")
"""The value of `--env`, set by `vertexrig.cli.options`; "" without one."""


class NoEnvironmentError(UsageError):
    """The file has environments and none is chosen, and without one the command cannot be carried out.

    Args:
        names: The environments.
    """

    def __init__(self, message: str, names: tuple[str, ...]) -> None:
        self.names = names
        choices = " or ".join(f"--env {name}" for name in names)
        super().__init__(f"{message}: choose one with {choices}, or set {VARIABLE}")


@dataclass(frozen=True)
class Chosen:
    """An environment and what it is merged from.

    Args:
        name: Its name; "" for the file without an environment.
        names: All environments of the file.
        merged: The file's values with those of the environment, before variables are filled in, without the entries that `config.loads`
            leaves out; empty without an environment.
        own: Paths of the merged values that this environment gives; empty without an environment. The path () stands for the
            environment itself: an error on a key that is missing at the top names the environment.
    """

    name: str = ""
    names: tuple[str, ...] = ()
    merged: Mapping[str, Any] = field(default_factory=dict)
    own: frozenset[FileKey] = frozenset()

    def paths_in_merged(self, paths: frozenset[FileKey]) -> frozenset[FileKey]:
        """Return paths of the file's values as paths of the merged ones, which is the opposite of `config.ProjectOrigins.path_in_file`."""
        return (paths - self.own) | {path[2:] for path in paths if path[:2] == (KEY, self.name)}


def selected() -> str:
    """Return the environment that `--env` or the variable names; "" for none."""
    return chosen_env.get() or os.environ.get(VARIABLE, "")


def merge(
    data: Mapping[str, Any],
    name: str,
    without: Iterable[FileKey],
    root: typed.Place,
    expanded: Callable[[str], str],
) -> tuple[dict[str, Any], Mapping[FileKey, int], Chosen]:
    """Return a file's values with one environment merged over them, the line of each value, and the environment.

    Args:
        data: The file's values.
        name: The environment to merge; "" for none.
        without: Entries to leave out, by the paths of their keys.
        root: The file.
        expanded: Returns a text with its variables filled in, if they are set.

    Raises:
        ConfigError: The environments are not mappings, or a name is not valid; two environments have the same bucket, function or URL, or
            one removes what is not there.
        UsageError: There is no such environment.
    """
    every = _environments(data.get(KEY), root.at(KEY))
    base = {key: value for key, value in data.items() if key != KEY}
    if name not in ("", *every):
        choices = did_you_mean(name, every) if every else "The project file has no `environments`."
        raise UsageError(f"there is no environment {quoted(name)}, which --env or {VARIABLE} names. {choices}")
    merged, replaced = dict[str, dict[str, Any]](), dict[str, list[FileKey]]()
    for one, values in every.items():
        replaced[one] = []
        merged[one] = _merged(base, values, (), replaced[one], root.at(KEY).at(one))
    _refuse_shared(merged, root, expanded)
    lines, names = root.origins.lines, tuple(every)
    if not name:
        return left_out(base, without), lines, Chosen(names=names)
    own = {path[2:]: line for path, line in lines.items() if path[:2] == (KEY, name)}
    gone = set(replaced[name])
    left = {
        path: line
        for path, line in lines.items()
        if path[:1] != (KEY,) and gone.isdisjoint(path[:n] for n in range(1, len(path) + 1))
    }
    values = left_out(merged[name], without)
    return values, left | own, Chosen(name, names, values, frozenset(own))


def _environments(given: Any, place: typed.Place) -> dict[str, Mapping[str, Any]]:
    """Return the environments by name."""
    if not isinstance(given, (dict, type(None))):
        raise place.error(f"{quoted(given)} is {kind_of(given)}; a mapping belongs here")
    found: dict[str, Mapping[str, Any]] = {}
    for key, values in (given or {}).items():
        name, values = str(key), {} if values is None else values
        if not re.fullmatch(NAME.pattern, name):
            raise place.at(key).error(f"{quoted(name)} is not {NAME.words}")
        if not isinstance(values, dict):
            raise place.at(key).error(f"{quoted(values)} is {kind_of(values)}; a mapping belongs here")
        if KEY in values:
            raise place.at(key).at(KEY).error("an environment cannot contain environments")
        found[name] = values
    return found


def left_out(data: dict[Any, Any], paths: Iterable[FileKey]) -> dict[Any, Any]:
    """Return a file's values without those at the paths, which need not be there."""
    for key, *rest in paths:
        if not rest:
            data = {name: value for name, value in data.items() if name != key}
        elif data.get(key):
            data = {**data, key: left_out(data[key], [tuple(rest)])}
    return data


def _merged(
    base: Mapping[str, Any], own: Mapping[str, Any], path: FileKey, replaced: list[FileKey], place: typed.Place
) -> dict[str, Any]:
    """Return a mapping with another merged over it: mappings are merged, null removes a key, other values replace.

    `replaced` gets the paths whose values in the file no longer count.
    """
    found = dict(base)
    for key, value in own.items():
        if value is None and key not in base:
            raise place.at(key).error(
                f"null removes a key of the file, and the file has no {typed.dotted((*path, key))}"
            )
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            found[key] = _merged(base[key], value, (*path, key), replaced, place.at(key))
            continue
        replaced.append((*path, key))
        if value is None:
            del found[key]
        else:
            found[key] = value
    return found


def _refuse_shared(merged: Mapping[str, Mapping[str, Any]], root: typed.Place, expanded: Callable[[str], str]) -> None:
    """Refuse two environments with the same bucket, function or URL of a function."""
    seen: dict[tuple[str, ...], str] = {}
    for name, data in merged.items():
        for key, path, what, fix in _identities(data, expanded):
            first = seen.setdefault(key, name)
            if first != name:
                place = root.at(KEY).at(name)
                for step in path:
                    place = place.at(step)
                raise place.error(
                    f"environments {first} and {name} have the same {what}; each needs its own, so that neither changes the "
                    f"runs of the other: write {fix} in {KEY}.{name}"
                )


def _identities(
    data: Mapping[str, Any], expanded: Callable[[str], str]
) -> Iterator[tuple[tuple[str, ...], FileKey, str, str]]:
    """Yield what no other environment may have: a key to compare, its path, its name in a message, and what to write."""
    trigger = data.get("trigger")
    trigger = trigger if isinstance(trigger, Mapping) else {}
    given = (data.get("project"), data.get("bucket"), trigger.get("function"), trigger.get("uri"))
    project, bucket, function, uri = (expanded(value) if isinstance(value, str) else "" for value in given)
    if bucket:
        name = bucket.removeprefix("gs://").partition("/")[0]
        yield ("bucket", name), ("bucket",), f"bucket, {name}", "another `bucket`"
    if project:
        function = function or TriggerSettings.function
        what, fix = f"function, {function} in project {project}", "another `project`, or `trigger: {function: NAME}`"
        yield ("function", project, function), ("trigger", "function"), what, fix
    if uri:
        yield ("uri", uri), ("trigger", "uri"), f"trigger.uri, {uri}", "its own `trigger: {uri: URL}`, or `uri: null`"
