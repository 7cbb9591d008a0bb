"""Where each value of a rendered job comes from: the key of the project file, by the value's path in the job.

A job is rendered a second time with every value of the project file tagged with its path of keys. The tags go through
resolving like the values they are; where the environment writes a tagged value, it adds the number of its path between
two marks that no template and no value can hold. What is left without the marks must be the job as first rendered.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vertexrig import yamltext
from vertexrig.project.model import Job, Project, Sweep
from vertexrig.spec.names import camel

RawPath = yamltext.RawPath
Origins = Mapping[RawPath, tuple[RawPath, ...]]
"""Paths of keys in the project file, by a value's path in the rendered job."""

# NUL: in a rendered file it can only be there escaped, as `\0`.
_MARK = re.compile("\x00([0-9]+)\x00")


class Tagged:
    """A value of the project file with its path of keys; its subclasses are the text or number they hold."""

    path: RawPath


class _Text(Tagged, str):
    pass


class _Whole(Tagged, int):
    pass


class _Fraction(Tagged, float):
    pass


class _Truth(Tagged, int):
    """bool takes no subclass."""


_KINDS: dict[type, type[Tagged]] = {str: _Text, int: _Whole, float: _Fraction, bool: _Truth}


def tagged(value: Any, path: RawPath) -> Any:
    """A value with all texts, numbers and keys in it tagged with their paths, which start with `path`."""
    # the type itself: what is tagged already, or is a subclass, stays as it is
    kind = _KINDS.get(type(value))
    if kind is not None:
        found: Any = kind(value)  # type: ignore[call-arg]
        # The value stays a text or number to everything that computes with it.
        found.path = path
        return found
    if isinstance(value, Mapping):
        return {tagged(key, (*path, key)): tagged(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(tagged(item, (*path, index)) for index, item in enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # `replace` refuses fields that are not given at the start.
        names = [field.name for field in dataclasses.fields(value) if field.init]
        return dataclasses.replace(value, **{name: tagged(getattr(value, name), (*path, name)) for name in names})
    return value


def carry(value: Any, *sources: Any) -> Any:
    """A value made of others, tagged with the path of the first of them that has one."""
    path = next((source.path for source in sources if isinstance(source, Tagged)), None)
    return value if path is None else tagged(value, path)


def plain(value: Any) -> Any:
    """A tagged truth value as the bool it is; any other value as it is."""
    return bool(value) if isinstance(value, _Truth) else value


def untagged(value: Any) -> Any:
    """A value with every tagged truth value in it as a bool."""
    if isinstance(value, Mapping):
        return {key: untagged(item) for key, item in value.items()}
    return [untagged(item) for item in value] if isinstance(value, (list, tuple)) else plain(value)


def tagged_project(project: Project, name: str) -> Project:
    """The project with what job or sweep `name` is made of tagged."""
    found: Job | Sweep = project.jobs.get(name) or project.sweeps[name]
    job = found.job if isinstance(found, Sweep) else name
    values = {key: tagged(getattr(project, key), (key,)) for key in ("bucket", "service_account", "labels", "trainer")}
    values["jobs"] = {job: tagged(project.jobs[job], ("jobs", job))}
    values["sweeps"] = {name: tagged(found, ("sweeps", name))} if isinstance(found, Sweep) else {}
    return dataclasses.replace(project, **values)


class Recorder:
    """Gives each path a number, and marks the values it is shown with theirs."""

    def __init__(self) -> None:
        self.paths: list[RawPath] = []

    def mark(self, value: Any) -> str:
        """The marks of all tagged values in a value."""
        text = ""
        for one in _leaves(value):
            text += f"\x00{len(self.paths)}\x00"
            self.paths.append(one.path)
        return text

    def read(self, marked: str) -> tuple[str, Origins]:
        """A text without its marks, and the paths that they give to the values of each line."""
        lines = marked.split("\n")
        by_line = {
            number: tuple(self.paths[int(found)] for found in _MARK.findall(line))
            for number, line in enumerate(lines, 1)
            if "\x00" in line
        }
        text = _MARK.sub("", marked)
        # The lines of the text without marks are those of the text with them: a mark has no line break.
        reading = yamltext.read(text)
        return text, {_camel(path): by_line[line] for path, line in reading.lines.items() if line in by_line}


def _leaves(value: Any) -> Iterator[Tagged]:
    if isinstance(value, Tagged):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)


def laid_over(origins: Origins, spec: Any, path: RawPath, source: RawPath) -> Origins:
    """The origins of a job with the `spec:` of the project file at `source` merged into it at `path`."""
    found = dict(origins)
    pending = [(spec, path, source)]
    while pending:
        value, here, there = pending.pop()
        if isinstance(value, Mapping):
            pending += [(item, (*here, camel(str(key))), (*there, key)) for key, item in value.items()]
        elif isinstance(value, (list, tuple)):
            pending += [(item, (*here, index), (*there, index)) for index, item in enumerate(value)]
        else:
            found[here] = (there,)
    return found


def origin(origins: Origins, path: str) -> RawPath:
    """The key of the project file that the value at `path` of a job comes from; () if nothing is known of it.

    What holds several values comes from the key around all of theirs: in a pool, of those of its role if there are any
    (it also has what it takes from the job), else of those of the job or sweep. What is missing would be around its
    neighbours.
    """
    wanted = tuple(int(index) if index else name for name, index in _STEP.findall(path))
    for end in range(len(wanted), 0, -1):
        below = [there for here, found in origins.items() if here[:end] == wanted[:end] for there in found]
        if not below:
            continue
        in_pool = "workerPoolSpecs" in wanted[: end - 1]
        own = [there for there in below if in_pool and _in_role(there)]
        own = own or [there for there in below if there[0] in ("jobs", "sweeps")]
        if in_pool and not own and end < len(wanted):
            return ()  # a value that is missing beside some of the trainer's: it is missing in the job
        found = _common(own or below) or _common([there for there in own if there[0] == "jobs"] or below)
        # what is missing belongs beside a neighbour, and so one key further out than that
        return found[:-1] if end < len(wanted) and found in below else found
    return ()


_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def _camel(path: RawPath) -> RawPath:
    return tuple(camel(step) if isinstance(step, str) else step for step in path)


def _in_role(path: RawPath) -> bool:
    return len(path) > 3 and path[0] == "jobs" and path[2] in ("worker", "ps", "reduction_server", "evaluator")


def _common(paths: Sequence[RawPath]) -> RawPath:
    first, length = paths[0], min(map(len, paths))
    return next((first[:n] for n in range(length) if any(path[n] != first[n] for path in paths)), first[:length])
