"""`vertexrig.yaml` to a typed Project: environment variables, overrides, and errors with file, line and nearest key."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from vertexrig import files, yamltext
from vertexrig.catalog import typed as schema
from vertexrig.catalog.value import dataclass
from vertexrig.errors import ConfigError, UsageError, did_you_mean
from vertexrig.project import then
from vertexrig.project.model import NAME, Job, Project, Sweep
from vertexrig.text import kind_of, quoted

DEFAULT_NAME = "vertexrig.yaml"
TICK = "tick"
"""The schedule that the tool makes itself, where a schedule of the file has `then`."""
TICK_PATH = f"/{TICK}"
"""What it calls of the trigger."""
STATE_FOLDER = ".vertexrig"
"""State of rehearsals and the local Vertex, beside the project file."""

_SPEC = {
    "workerPoolSpecs",
    "worker_pool_specs",
    "studySpec",
    "study_spec",
    "trialJobSpec",
    "trial_job_spec",
    "jobSpec",
    "job_spec",
}
"""Keys of a job or tuning job of the API, which no project file has at its top."""

# `$${` comes first, so that it is not read as a `${`. The last alternative is a `${` that is not closed, which is an
# error: left as text it would reach a job.
_VARIABLE = re.compile(r"\$\$\{|\$\{(?P<body>[^{}]*)\}|\$\{")
_VARIABLE_BODY = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)


@dataclass(frozen=True)
class Loaded:
    """A project and where it came from.

    Args:
        project: The typed project.
        file: The project file as the user named it; relative paths in it start from its folder.
        lines: Line of each value that the file gives, by its path of keys.
        given: The override that each value of the command line comes from, by the value's path.
        overrides: All overrides, as they were written.
        named: True if the user named the file, False if it was searched for.
    """

    project: Project
    file: Path
    lines: Mapping[yamltext.RawPath, int]
    given: Mapping[yamltext.RawPath, str] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    named: bool = False

    @property
    def folder(self) -> Path:
        return self.file.parent

    def path(self, name: str) -> Path:
        """A path of the project file, seen from the folder of that file."""
        return self.folder / name

    def error(self, message: str, *path: str | int) -> ConfigError:
        """A ConfigError that points at the line of `path`, or of the nearest key around it."""
        file, line = _locate(path, str(self.file), self.lines, self.given)
        return ConfigError(f"{schema.dotted(path)}: {message}" if path else message, file=file, line=line)

    def source(self, path: yamltext.RawPath) -> int | str | None:
        """The line of the file, or the override, that gives the value at `path`, or the nearest key around it."""
        for n in range(len(path), 0, -1):
            found = self.given.get(path[:n]) or self.lines.get(path[:n])
            if found is not None:
                return found
        return None

    @property
    def words(self) -> tuple[str, ...]:
        """The options that name this very project, overrides and all, on a command line."""
        sets = (word for override in self.overrides for word in ("--set", override))
        return (*(("--file", str(self.file)) if self.named else ()), *sets)

    def runnable(self, name: str) -> Job | Sweep:
        """The job or sweep called `name`; UsageError with the nearest one if there is none."""
        found = self.project.jobs.get(name) or self.project.sweeps.get(name)
        if found is None:
            names = [*self.project.jobs, *self.project.sweeps]
            raise UsageError(f"{self.file} has no job or sweep {quoted(name)}{_instead(name, names)}")
        return found


def _instead(name: str, names: Sequence[str]) -> str:
    """How a message about a NAME that is not there goes on."""
    parts = [part.strip() for part in name.split(",")]
    if len(parts) > 1 and all(part in names for part in parts):
        return f": write names with spaces between them: {' '.join(parts)}"
    path = Path(name)
    if path.suffix in (".yaml", ".yml", ".json", ".py") or len(path.parts) > 1:
        return f", and this takes a NAME, not a file. {did_you_mean(path.stem, names, most=30)}"
    return f". {did_you_mean(name, names, most=30)}"


class ForeignProjectError(UsageError):
    """The nearest project file is in a folder above and belongs to someone else."""


def find(start: Path, name: str = DEFAULT_NAME) -> Path:
    """The project file in `start` or the nearest folder above it.

    Raises:
        ForeignProjectError: It is above, and it or its folder belongs to another user: anyone may put one into /tmp.
        UsageError: There is none.
    """
    for folder in (start, *start.parents):
        found = folder / name
        if not found.is_file():
            continue
        # in the working directory itself whoever owns it: the user chose that folder
        if folder == start:
            # Relative, as a person in this folder names it: messages and printed commands show it.
            return found.relative_to(start)
        if not (_is_ours(found) and _is_ours(folder)):
            raise ForeignProjectError(
                f"{found} is in a folder above, and it or its folder belongs to another user, so it is not used; if you "
                f"trust it, name it: --file {shlex.quote(str(found))}"
            )
        return found
    raise UsageError(
        f"there is no {name} in {start} or above it: name one with --file, or make one with `vertexrig init`"
    )


def _is_ours(path: Path) -> bool:
    """Whether a path belongs to the user, or, as with git, to the one who started this process with sudo."""
    if not hasattr(os, "geteuid"):
        return True  # Windows has no such owner
    user, owner = os.geteuid(), path.stat().st_uid
    return owner == user or (user == 0 and str(owner) == os.environ.get("SUDO_UID"))


def load(
    file: Path | None = None,
    *,
    overrides: Sequence[str] = (),
    target: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """Read a project file.

    Args:
        file: The file; by default `vertexrig.yaml`, searched upwards from the working directory.
        overrides: `key=value` strings. A key is looked up in the job or sweep `target` first, then from the top.
        target: The job or sweep the command is about.
        environment: Variables for `${NAME}`; the process's own by default.

    Raises:
        ConfigError: The file or an override is wrong.
        UsageError: There is no such file.
    """
    path = find(Path.cwd()) if file is None else file
    found = loads(files.read_text(path), file=path, overrides=overrides, target=target, environment=environment)
    return replace(found, named=file is not None)


def loads(
    text: str,
    *,
    file: Path,
    overrides: Sequence[str] = (),
    target: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """Like `load`, for the text of a project file."""
    reading = schema.read(text, str(file))
    given: dict[yamltext.RawPath, str] = {}

    def locate(path: yamltext.RawPath) -> tuple[str | None, int | None]:
        return _locate(path, str(file), reading.lines, given)

    root = schema.Place((), locate)
    if not isinstance(reading.data, (dict, type(None))):
        raise root.error(f"the project file is {kind_of(reading.data)}; it must be a mapping")
    if not reading.data:
        raise root.error("the project file is empty: `vertexrig init --force` writes one to begin with")
    if _SPEC & reading.data.keys():
        raise root.error(
            "this is a job for gcloud, not a project file: `vertexrig check FILE` checks it, `vertexrig convert FILE` turns it into "
            "entries of a project file"
        )
    # before the overrides, whose own `${…}` is meant as it is written
    data = _expand(reading.data, root, os.environ if environment is None else environment)
    for override in overrides:
        _override(data, override, target, given)
    project = schema.build(Project, data, root)
    # a line of a value that an override has replaced would lead a reader to the wrong place
    lines = {path: line for path, line in reading.lines.items() if not _below(path, given)}
    loaded = Loaded(project, file, lines, given, tuple(overrides))
    _check_names(loaded)
    return loaded


def _locate(
    path: yamltext.RawPath, file: str, lines: Mapping[yamltext.RawPath, int], given: Mapping[yamltext.RawPath, str]
) -> tuple[str, int | None]:
    """Where the value at `path`, or the nearest key around it, comes from: an override, or a line of the file."""
    for n in range(len(path), -1, -1):
        if path[:n] in given:
            return f"--set {given[path[:n]]}", None
        if path[:n] in lines:
            return file, lines[path[:n]]
    return file, None


def _below(path: yamltext.RawPath, given: Mapping[yamltext.RawPath, str]) -> bool:
    """Whether an override has replaced what the file says at `path`."""
    return any(path[:n] in given for n in range(1, len(path) + 1))


def _expand(value: Any, place: schema.Place, environment: Mapping[str, str]) -> Any:
    """`value` with `${NAME}` and `${NAME:-default}` filled in, in its texts but not its keys."""
    if isinstance(value, dict):
        return {key: _expand(item, place.at(key), environment) for key, item in value.items()}
    if isinstance(value, list):
        return [_expand(item, place.at(index), environment) for index, item in enumerate(value)]
    if not isinstance(value, str) or "${" not in value:
        return value

    def fill(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        body = _VARIABLE_BODY.fullmatch(match["body"] or "")
        if body is None:
            raise place.error(
                f"{quoted(match[0])} is not ${{NAME}} or ${{NAME:-default}}; write $${{ for a literal ${{"
            )
        # an empty variable counts as unset, as `:-` does in a shell
        found = environment.get(body["name"]) or body["default"]
        if found is None:
            raise place.error(
                f"the environment variable {body['name']} is not set; set it, or write ${{{body['name']}:-default}}"
            )
        return found

    # a variable is text: what it becomes is decided by the type of the field, as for --set
    return schema.Untyped(_VARIABLE.sub(fill, value))


def _override(data: dict[str, Any], text: str, target: str | None, given: dict[yamltext.RawPath, str]) -> None:
    """Make one override: KEY=VALUE sets a value, KEY- removes one, and KEY alone below `args` is a bare flag."""
    key, equals, value = text.partition("=")
    removing = not equals and key.endswith("-")
    parts = key.strip().removesuffix("-" if removing else "").split(".")
    if not all(parts) or not (equals or removing or "args" in parts[:-1]):
        raise UsageError(
            f"--set {text}: write KEY=VALUE, with dots between keys, such as jobs.cpu.machine_type=n1-standard-8; "
            "KEY- removes a key, and args.NAME alone is a flag without a value"
        )
    path = _where(data, parts, target)
    if removing:
        _remove(data, path, text)
        given[_typed(path)] = text
        return
    here: Any = data
    for index, part in enumerate(path[:-1]):
        name: Any = _index(here, part, text)
        if isinstance(here, dict) and part not in here:
            # A mapping that only the override made: an error about it points at the override.
            given[tuple(path[: index + 1])] = text
        following = here[name] if isinstance(here, list) else here.setdefault(name, {})
        if following is None:
            # `env:` with nothing behind it in the file: an override below it makes the mapping.
            following = here[name] = {}
        if not isinstance(following, (dict, list)):
            spot = ".".join(path[: index + 1])
            raise UsageError(f"--set {text}: {spot} is {kind_of(following)}, so it has no key {path[index + 1]!r}")
        here = following
    # Untyped: what the text becomes is decided by the type of its field.
    here[_index(here, path[-1], text)] = schema.Untyped(value) if equals else None
    # under both spellings: a number in a path is an index in a list, and text in a mapping
    given[_typed(path)] = text
    given[tuple(path)] = text


def _typed(path: Sequence[str]) -> yamltext.RawPath:
    return tuple(int(part) if part.isdecimal() else part for part in path)


def _remove(data: dict[str, Any], path: list[str], text: str) -> None:
    """Remove the key at `path`; UsageError with what is there if it is not."""
    here: Any = data
    for part in path[:-1]:
        here = here[_index(here, part, text)] if isinstance(here, list) else _child(here, part)
    if isinstance(here, list):
        del here[_index(here, path[-1], text)]
    elif isinstance(here, dict) and path[-1] in here:
        del here[path[-1]]
    else:
        names = _ending_with(data, path)
        choices = did_you_mean(".".join(path), names) if names else ""
        raise UsageError(f"--set {text}: there is no {'.'.join(path)} to remove. {choices}".rstrip())


def _child(here: Any, part: str) -> Any:
    return here.get(part) if isinstance(here, dict) else None


def _ending_with(data: Mapping[str, Any], path: Sequence[str]) -> list[str]:
    """The keys of jobs and sweeps that the last names of `path` lead to, and the keys beside the one that is missing."""
    tail = path[2:] if path[0] in ("jobs", "sweeps") else path
    found = []
    for group in ("jobs", "sweeps"):
        for name, here in _entries(data, group).items():
            for part in tail[:-1]:
                here = _child(here, part)
            if isinstance(here, dict) and (tail[-1] in here or [group, name] == list(path[:2])):
                found += [".".join((group, name, *tail[:-1], key)) for key in here]
    return found


def _entries(data: Mapping[str, Any], group: str) -> Mapping[str, Any]:
    """The jobs or sweeps that the file gives, none if it has something else there."""
    found = data.get(group)
    return found if isinstance(found, dict) else {}


def _where(data: Mapping[str, Any], parts: list[str], target: str | None) -> list[str]:
    """The full path of an override's key: in the job or sweep it is about, or from the top of the file."""
    if target is not None:
        for group, cls in (("jobs", Job), ("sweeps", Sweep)):
            if target in _entries(data, group):
                keys = schema.hints(cls)
                if parts[0] in keys:
                    return [group, target, *parts]
                # Refused here, where the keys of both places can be suggested; from the top only those of the project
                # would be.
                if parts[0] not in schema.hints(Project):
                    choices = did_you_mean(parts[0], {*keys, *schema.hints(Project)}, most=40)
                    if parts[0] == target and len(parts) > 1:
                        choices = f"Leave the name out: --set {'.'.join(parts[1:])}=VALUE"
                    raise UsageError(f"--set {'.'.join(parts)}: {target} has no key {parts[0]!r}. {choices}")
    if parts[0] not in schema.hints(Project) and parts[0] in {**schema.hints(Job), **schema.hints(Sweep)}:
        names = [*_entries(data, "jobs"), *_entries(data, "sweeps")]
        if target is not None and target not in names:
            raise UsageError(f"the project file has no job or sweep {quoted(target)}{_instead(target, names)}")
        first = next((f"{group}.{name}" for group in ("jobs", "sweeps") for name in _entries(data, group)), "jobs.NAME")
        raise UsageError(
            f"--set {'.'.join(parts)}: {parts[0]!r} is a key of a job or sweep: name one job or sweep with the command, or "
            f"write where it is: --set {first}.{'.'.join(parts)}=VALUE"
        )
    return parts


def _index(here: Any, part: str, text: str) -> Any:
    if not isinstance(here, list):
        return part
    # Not isdigit(), which is true for ², a text that int() refuses.
    if part.isdecimal() and int(part) < len(here):
        return int(part)
    raise UsageError(f"--set {text}: {part!r} is not a place in a list of {len(here)}; count from 0")


def _check_names(loaded: Loaded) -> None:
    """Names are well formed, unique over jobs and sweeps, and refer to what is there."""
    project = loaded.project
    for group, names in (("jobs", project.jobs), ("sweeps", project.sweeps), ("schedules", project.schedules)):
        for name in names:
            if not re.fullmatch(NAME[0], name):
                raise loaded.error(f"{quoted(name)} is not {NAME[1]}", group, name)
    for name, sweep in project.sweeps.items():
        if name in project.jobs:
            raise loaded.error("a job has the same name; rename one of them", "sweeps", name)
        # A sweep's job is a job: a sweep of a sweep would have no trials to run.
        if sweep.job not in project.jobs:
            raise loaded.error(
                f"there is no job {sweep.job!r}. {did_you_mean(sweep.job, project.jobs)}", "sweeps", name, "job"
            )
    _check_args(loaded)
    runnable = [*project.jobs, *project.sweeps]
    for name, schedule in project.schedules.items():
        if schedule.run not in runnable:
            message = f"there is no job or sweep {schedule.run!r}. {did_you_mean(schedule.run, runnable)}"
            raise loaded.error(message, "schedules", name, "run")
        bad = then.wrong(
            schedule.then, after_sweep=schedule.run in project.sweeps, taken={**project.jobs, **project.sweeps}
        )
        if bad is not None:
            raise loaded.error(bad[1], "schedules", name, "then", bad[0])
        if schedule.then and name == TICK:
            raise loaded.error(
                f"{TICK!r} is the name of the tick that takes the next steps: rename the schedule", "schedules", name
            )
    for path, silence in _silences(project):
        for rule, reason in silence.items():
            if not reason.strip():
                raise loaded.error("`silence` needs a reason for each rule", *path, rule)


def _check_args(loaded: Loaded) -> None:
    """Keys of `args`, and parameters of a study, are the names of flags, to which the dashes are added."""
    project = loaded.project
    keys: list[tuple[tuple[str, ...], Any]] = []
    for name, sweep in project.sweeps.items():
        parameters = sweep.study.parameters if sweep.study else ()
        keys += [(("sweeps", name, "args"), sweep.args), (("sweeps", name, "over"), sweep.over)]
        keys += [(("sweeps", name, "study", "parameters"), parameters)]
    for name, job in project.jobs.items():
        keys.append((("jobs", name, "args"), job.args))
        for role in ("worker", "ps", "reduction_server", "evaluator"):
            given = getattr(job, role)
            keys += [(("jobs", name, role, "args"), given.args)] if given is not None else []
    for path, named in keys:
        for key in named if isinstance(named, Mapping) else ():
            if key.startswith("-") or not key:
                raise loaded.error(_dashed(key), *path, key)


def _dashed(key: str) -> str:
    """What to write in place of a key that is the name of a flag with its dashes."""
    bare = key.removeprefix("--")
    if bare and not bare.startswith("-"):
        return f"a key is a flag without its dashes: write {bare}, which becomes --{bare}"
    if not key:
        return "the key is empty; it is the name of a flag, without its dashes"
    return f'a key becomes --KEY, so {key} goes into a list with the other arguments: args: ["{key}", "VALUE"]'


def _silences(project: Project) -> list[tuple[tuple[str, ...], Mapping[str, str]]]:
    found: list[tuple[tuple[str, ...], Mapping[str, str]]] = [(("silence",), project.silence)]
    found += [(("jobs", name, "silence"), job.silence) for name, job in project.jobs.items()]
    found += [(("sweeps", name, "silence"), sweep.silence) for name, sweep in project.sweeps.items()]
    return found
