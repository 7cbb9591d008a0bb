"""The key of the project file that a value of a rendered job comes from, by the value's path in the job.

The file's keys are the API's fields in snake_case, so most of a path is the key already. What is here is the rest: fields that
the file has without the message around them, lists that are mappings there, and what a pool takes from the job or the trainer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from vertexrig.finding import Edit
from vertexrig.project.config import Loaded
from vertexrig.project.keys import places
from vertexrig.render.renderer import spec_overlays
from vertexrig.render.resolve import ROLES, View
from vertexrig.schema import typed
from vertexrig.spec.api_names import camel, snake
from vertexrig.spec.document import Document
from vertexrig.yamltext import FileKey, read

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_ROLES_OF_POOL = (("chief",), ("worker",), ("reduction_server", "ps"), ("evaluator",))
_FLAT = ("scheduling", "machineSpec", "diskSpec")
"""Messages of the API whose fields the file has in the job or role itself."""


@dataclass(frozen=True)
class SourceKeys:
    """Finds the keys that one job or sweep is made of.

    Args:
        loaded: The project.
        view: The job or sweep.
        document: As it was rendered.
    """

    loaded: Loaded
    view: View
    document: Document

    @cached_property
    def keys(self) -> Mapping[FileKey, FileKey]:
        """The key of each value of the job that the project file or one of its defaults gives, by the value's path in the job."""
        found = {}
        for path in _leaves(self.document.data):
            key = self._key(path)
            if key and _value(self.loaded.project, key) is not None:
                found[path] = key
        for laid, above, source in spec_overlays(self.view):
            for leaf in _leaves(laid):
                path = (*above, *_camel(leaf))
                found[path] = (*source, *leaf)
        # in the API these are not part of the spec, so the document does not have them
        outside: dict[FileKey, FileKey] = {
            ("displayName",): ("display_name",),
            ("encryptionSpec", "kmsKeyName"): ("kms_key_name",),
        }
        outside |= {("labels", name): ("labels", name) for name in self.view.labels}
        return found | {
            path: self.view.source_keys[key] for path, key in outside.items() if key in self.view.source_keys
        }

    @cached_property
    def _below(self) -> Mapping[FileKey, list[FileKey]]:
        """The keys of all values at or below each path of the job, built once for any number of findings."""
        found: dict[FileKey, list[FileKey]] = {}
        for path, key in self.keys.items():
            for end in range(1, len(path) + 1):
                found.setdefault(path[:end], []).append(key)
        return found

    def find(self, path: str) -> FileKey:
        """Return the key of the project file for the value at `path` of the job; () if it has none.

        | value | its key | example |
        | --- | --- | --- |
        | a value of the file | its own | `scheduling.timeout`: jobs.NAME.timeout |
        | a mapping or list | the innermost that contains the keys of all its values (`_nearest`) | `workerPoolSpecs[1]`: jobs.NAME.worker |
        | missing | the one that contains the keys of its neighbours | `workerPoolSpecs[0].diskSpec`: jobs.NAME |
        """
        wanted = _steps(path)
        end = next((n for n in range(len(wanted), 0, -1) if wanted[:n] in self._below), 0)
        if not end:
            return ()
        keys, missing = self._below[wanted[:end]], end < len(wanted)
        # a pool or something in it, but not the list of pools itself
        in_pool = "workerPoolSpecs" in wanted[:end] and wanted[end - 1] != "workerPoolSpecs"
        if in_pool and missing and not any(key[0] in ("jobs", "sweeps") for key in keys):
            return ()  # only trainer keys around: `Workspace.in_project_file` shows the line of the job
        found = _nearest(keys, in_pool)
        # with one neighbour, `found` is that neighbour's own key: the missing key stands beside it, in the same container
        return found[:-1] if missing and found in keys else found

    def edit(self, edit: Edit) -> Edit:
        """Return an edit of the job as an edit of the project file; unchanged if the value has no key in a project file."""
        path = _steps(edit.path)
        key = self.keys.get(path) or (self._key(path) if path else ())  # of a missing value: where its key would be
        if not key:
            return edit
        key = self.loaded.origins.path_in_file(key)
        if edit.key:
            return replace(edit, location=key, key=edit.key if key[-1] == path[-1] else snake(edit.key))
        old = _value(self.document.data, path)
        if isinstance(key[-1], str) and path[-2:-1] == ("args",) and isinstance(edit.value, str):
            # a word of the job is a key of the file, with or without a value
            name, _, value = edit.value.removeprefix("--").partition("=")
            if name != key[-1]:
                return replace(edit, location=key, key=name)
            return replace(edit, location=key, value=read(value).data if value else None)
        if key[-1] == old and isinstance(edit.value, str):  # an id that is a key
            return replace(edit, location=key, key=edit.value)
        return replace(edit, location=key)

    def _key(self, path: FileKey) -> FileKey:
        """Return the key that the file would have for the value at `path`, whether it has it or not; () for a value that it cannot give."""
        view = self.view
        if view.sweep is None:
            return self._key_of_job(path)
        match path:
            case ("trialJobSpec", *inner):
                return self._key_of_job(tuple(inner))
            case ("studySpec", "metrics" | "parameters" as listed, int(index), *rest):
                id_, study = ("metricId" if listed == "metrics" else "parameterId"), view.sweep.study
                name = self.document.data["studySpec"][listed][index].get(id_, "")
                if study is None:  # a grid, whose template makes the study
                    return (*view.entry_path, "metrics" if listed == "metrics" else "over", name)
                # what is written `{accuracy: MAXIMIZE}`, and an id, are the key itself
                short = rest == [id_] or (listed == "metrics" and isinstance(study.metrics.get(name), str))
                return (*view.entry_path, "study", listed, name, *(() if short else _snake(rest)))
            case ("studySpec", *rest):
                return (*view.entry_path, "study", *_snake(rest))
        return (*view.entry_path, *_snake(path))

    def _key_of_job(self, path: FileKey) -> FileKey:
        match path:
            case ("workerPoolSpecs", int(index), *rest):
                return self._key_of_pool(index, tuple(rest[1:] if rest[0] in _FLAT else rest))
            case ("scheduling", *rest):
                return (*self.view.job_path, *_snake(rest))
        inner = _snake(path)
        if inner[:1] in self.view.source_keys:  # `baseOutputDirectory.outputUriPrefix` is one key in the file
            return self.view.source_keys[inner[:1]]
        return (*self.view.job_path, *inner)

    def _key_of_pool(self, index: int, path: FileKey) -> FileKey:
        roles = _ROLES_OF_POOL[index] if index < len(_ROLES_OF_POOL) else ()
        pool = next((self.view.pools[role] for role in roles if self.view.pools[role] is not None), None)
        if pool is None:
            return ()
        inner = _snake(path)
        match inner:
            case ("container_spec" | "python_package_spec", *rest):
                program = self.document.pools[index].program
                match rest:
                    case ("args", int(number)):
                        word = program["args"][number]
                        if word not in pool.args:
                            return ()  # the template's own
                        same = pool.args[number : number + 1] == (word,)
                        inner = ("args", number if same else pool.args.index(word))
                    case ("env", int(number), *_):
                        inner = ("env", program["env"][number].get("name"))
                    case ("command", int(number)):
                        # a template puts what starts the command before it
                        inner = ("command", number - len(program["command"]) + len(pool.command))
                    case ("image_uri" | "executor_image_uri",):
                        inner = ("image_uri",)
                    case _:
                        inner = tuple(rest)
                return pool.source_keys.get(inner, ())
        key = pool.source_keys.get(inner[:1])
        return (*key, *inner[1:]) if key else ()


def _nearest(keys: Sequence[FileKey], in_pool: bool) -> FileKey:
    """Return the innermost key that contains the keys of a mapping's or list's values.

    In a worker pool, only the keys of its role count if it has any; everywhere, those of jobs and sweeps go before the trainer's.
    """
    of_entries = [key for key in keys if key[0] in ("jobs", "sweeps")]
    of_role = [key for key in of_entries if in_pool and len(key) > 3 and key[0] == "jobs" and key[2] in ROLES]
    nearest = of_role or of_entries or keys
    # keys of a sweep and of its job have nothing in common: those of the job count
    return _common(nearest) or _common([key for key in nearest if key[0] == "jobs"] or keys)


def _steps(path: str) -> FileKey:
    """Return the keys and indexes of a path such as `workerPoolSpecs[0].replicaCount`."""
    return tuple(int(index) if index else name for name, index in _STEP.findall(path))


def _snake(path: Sequence[str | int]) -> FileKey:
    return tuple(snake(step) if isinstance(step, str) else step for step in path)


def _common(paths: Sequence[FileKey]) -> FileKey:
    first, length = paths[0], min(map(len, paths))
    return next((first[:n] for n in range(length) if any(path[n] != first[n] for path in paths)), first[:length])


def _camel(path: FileKey) -> FileKey:
    """Return a path of `spec:` as the API names it; keys of labels are names, not fields."""
    end = path.index("labels") + 1 if "labels" in path else len(path)
    return (*(camel(step) if isinstance(step, str) else step for step in path[:end]), *path[end:])


def _leaves(value: Any, path: FileKey = ()) -> Iterator[FileKey]:
    """Yield the path of every value that is neither a mapping nor a list."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))
    else:
        yield path


def _value(value: Any, path: FileKey) -> Any:
    """Return the value at a path of keys in the project or the document: None if there is no such key, True for a key without a value."""
    for step in path:
        if isinstance(value, Mapping):
            value = (True if value[step] is None else value[step]) if step in value else None
        elif isinstance(value, (list, tuple)):
            value = value[step] if isinstance(step, int) and 0 <= step < len(value) else None
        else:
            value = getattr(value, str(step), None)
    return value


_CAMEL = re.compile(r"(?<![\w./-])[a-z]+(?:[A-Z][a-z0-9]*)+(?![\w/(])")
_PATH = re.compile(r"\[[0-9]+\]\.")


def in_keys(fix: str) -> str:
    """Return a fix with the keys of the project file in place of the API's fields."""
    if _PATH.search(fix):
        return fix  # a place in the spec, which the file has elsewhere
    for name in _FLAT:
        fix = fix.replace(f"{name}.", "")
    return _CAMEL.sub(lambda found: snake(found[0]) if found[0] in _fields() else found[0], fix)


@cache
def _fields() -> frozenset[str]:
    """Return the API's names of the file's keys: a trainer's own names, such as a metric valAccuracy, stay as they are."""
    return frozenset(camel(name) for cls in places() for name in typed.keys(cls))
