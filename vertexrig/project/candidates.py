"""The candidates of a job or sweep: each is a set of overrides, made as `--set` makes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from vertexrig.errors import ConfigError, Errors, UsageError, did_you_mean
from vertexrig.project import config
from vertexrig.project.arguments import scalar_text
from vertexrig.project.config import Loaded
from vertexrig.project.model import Job, Sweep
from vertexrig.schema import typed
from vertexrig.yamltext import FileKey

PLACE = ("region", "bucket")
"""Keys of the project that a candidate may change, in addition to those of its job or sweep."""
_OWN = ("candidates", "job", "retry_for", "prefer", "preemptions")
"""Keys of a job or sweep that a candidate cannot change: they apply to all candidates."""


def others(loaded: Loaded, name: str) -> Iterator[Loaded]:
    """Yield the project once for each candidate of job or sweep `name`, with the candidate's changes as overrides.

    Raises:
        ConfigError: A candidate changes nothing, has a key that it cannot change, or a value that does not fit.
    """
    target = loaded.runnable(name)
    group = "sweeps" if isinstance(target, Sweep) else "jobs"
    for index, candidate in enumerate(target.candidates):
        place, errors, paths = (group, name, "candidates", index), Errors(), list[FileKey]()
        if not candidate:
            raise loaded.error_at("a candidate changes nothing: name a key, such as strategy: SPOT", *place)
        sets, lines = list[str](), dict(loaded.origins.lines)
        for path, value in _leaves(candidate):
            with errors:
                full = _where(loaded, name, target, path, place)
                paths.append(full)
                key = ".".join(full)
                sets.append(f"{key}-" if value is None else f"{key}={_text(value)}")
                line = loaded.origins.of((*place, *path))
                lines |= {full: line} if isinstance(line, int) else {}
        errors.raise_all()
        made = _with(loaded, sets, place)
        # a finding shows the line of the candidate, not an override that the user did not type
        yield replace(made, origins=replace(loaded.origins, lines=lines), decided=frozenset(paths))


def _with(loaded: Loaded, sets: list[str], place: FileKey) -> Loaded:
    """Return the project with further overrides; an error in one is reported at the candidate."""
    given = (*loaded.overrides, *sets)
    try:
        # the target of the earlier overrides; `sets` have full paths
        made = config.loads(
            loaded.text, file=loaded.file, overrides=given, target=loaded.target, without=loaded.without, env=loaded.env
        )
    except ConfigError as error:
        ours = [one for one in error.errors if (one.file or "").removeprefix("--set ") in sets]
        if not ours:
            raise
        raise loaded.error_at("; ".join(one.message for one in ours), *place) from None
    except UsageError as error:
        raise loaded.error_at(str(error), *place) from None
    return replace(made, named=loaded.named)


def _leaves(value: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield what a candidate sets, by path: `worker: {replica_count: 2}` is the same as `worker.replica_count: 2`."""
    for key, item in value.items():
        path = (*above, *key.split("."))
        if isinstance(item, Mapping) and item:
            yield from _leaves(item, path)
        else:
            yield path, item


def _where(loaded: Loaded, name: str, target: Job | Sweep, path: tuple[str, ...], place: FileKey) -> tuple[str, ...]:
    """Return the whole path of a candidate's key: in the sweep, in the job that it runs, or at the top of the project."""
    key = path[0]
    if key in PLACE:
        return path
    rows = [("sweeps", name, Sweep), ("jobs", target.job, Job)] if isinstance(target, Sweep) else [("jobs", name, Job)]
    found = next(((group, own) for group, own, cls in rows if key in typed.keys(cls) and key not in _OWN), None)
    if found is None:
        keys = {*PLACE, *(one for _, _, cls in rows for one in typed.keys(cls))} - {*_OWN}
        raise loaded.error_at(f"a candidate cannot change {key!r}. {did_you_mean(key, keys, most=50)}", *place, key)
    return (*found, *path)


def summary(candidate: Mapping[str, Any]) -> str:
    """Return the changes of a candidate on one line."""
    rows = (f"{'.'.join(path)}: {'-' if value is None else _text(value)}" for path, value in _leaves(candidate))
    return ", ".join(rows)


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (list, tuple, Mapping)) else scalar_text(value)
