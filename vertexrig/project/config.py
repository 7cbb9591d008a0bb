"""`vertexrig.yaml` to a typed Project: environment variables, overrides, and errors with file, line and nearest key."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from vertexrig import files, variables, yamltext
from vertexrig.errors import ConfigError, Errors, UsageError, did_you_mean
from vertexrig.project import environments, triggered
from vertexrig.project.model import Job, Project, Sweep
from vertexrig.schema import typed
from vertexrig.spec.api_names import NAME
from vertexrig.spec.masking import secret_in
from vertexrig.text import kind_of, quoted

T = TypeVar("T")
DEFAULT_NAME = "vertexrig.yaml"
TICK = "tick"
"""Name of the schedule that the tool adds if a schedule of the file has `then`."""
TICK_PATH = f"/{TICK}"
"""Path of the trigger that the schedule `tick` calls."""
STATE_FOLDER = ".vertexrig"
"""State of rehearsals and the local Vertex, beside the project file."""
PACKAGES_FOLDER = "build/packages"
"""Where the trainer's packages are built, beside the project file."""
TEMPLATE_SUFFIX = ".yaml.j2"
"""Suffix of template files."""

_SPEC = set(
    "workerPoolSpecs worker_pool_specs studySpec study_spec trialJobSpec trial_job_spec jobSpec job_spec".split()
)
"""Keys of a job or tuning job of the API, which no project file has at its top."""

# `$${` comes first, so that it is not read as a `${`. The last alternative is a `${` that is not closed, which is an
# error: left as text it would reach a job.
_VARIABLE = re.compile(r"\$\$\{|\$\{(?P<body>[^{}]*)\}|\$\{")
_VARIABLE_BODY = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)


@dataclass(frozen=True)
class ProjectOrigins(typed.Origins):
    """Where the values of a project come from: from lines of the file, some of them below its environment, or from overrides.

    Args:
        chosen: The environment that was chosen, and the names of all.
    """

    chosen: environments.Chosen = environments.Chosen()

    def is_overridden(self, path: yamltext.FileKey) -> bool:
        """Whether an override has replaced the file's value at `path`."""
        return any(path[:n] in self.override_of for n in range(1, len(path) + 1))

    def path_in_file(self, path: yamltext.FileKey) -> yamltext.FileKey:
        """Return where the file has the value at `path`, such as `environments.prod.bucket`; `path` itself if an override gives it."""
        if self.is_overridden(path):
            return path
        known = next((path[:n] for n in range(len(path), -1, -1) if path[:n] in self.lines), None)
        return (environments.KEY, self.chosen.name, *path) if known in self.chosen.own else path


@dataclass(frozen=True)
class Loaded:
    """A project and where it came from.

    Args:
        project: The typed project.
        file: The project file as the user named it; relative paths in it start from its folder.
        origins: Where each value comes from.
        overrides: All overrides, as they were written.
        target: The job or sweep that the keys of the overrides were looked up in first; None for none.
        named: True if the user named the file, False if it was searched for.
        text: What the file says.
        without: Entries that were left out, by the paths of their keys.
        decided: Paths of values that a candidate sets; a caller's overrides do not change them.
    """

    project: Project
    file: Path
    origins: ProjectOrigins = ProjectOrigins()
    overrides: tuple[str, ...] = ()
    target: str | None = None
    named: bool = False
    text: str = ""
    without: tuple[yamltext.FileKey, ...] = ()
    decided: frozenset[yamltext.FileKey] = frozenset()

    @property
    def chosen(self) -> environments.Chosen:
        """The environment that was chosen, and the names of all."""
        return self.origins.chosen

    @property
    def env(self) -> str:
        """The name of the environment that was chosen; "" for the file without an environment."""
        return self.chosen.name

    @property
    def folder(self) -> Path:
        return self.file.parent

    def path(self, name: str, *key: str | int) -> Path:
        """Return a path that the project file gives at `key`, resolved from the folder of that file.

        Raises:
            ConfigError: The path leaves the checkout or is a pipe, and it comes from the file, not from --set.
        """
        path = self.folder / name
        if self.origins.is_overridden(key):
            return path
        if not files.is_inside(path, self.folder):
            raise self.error_at(
                f"{quoted(name)} is outside the project's folder, at {os.path.realpath(path)}, and is not read: move it there, "
                f"or name it yourself with --set {shlex.quote(f'{typed.dotted(key)}={name}')}",
                *key,
            )
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise self.error_at(f"{quoted(name)} is neither a file nor a folder, and is not read", *key)
        return path

    def output(self, name: str) -> Path:
        """Return the path of a file or folder that the tool writes below the project's folder; UsageError if a link leads outside."""
        return files.must_stay(self.folder / name, self.folder)

    def error_at(self, message: str, *path: str | int) -> ConfigError:
        """Return a ConfigError that points at the line of `path`, or of the nearest key around it."""
        return typed.Place(path, self.origins).error(message)

    def require_environment(self) -> None:
        """Raise NoEnvironmentError if the file has environments and none is chosen."""
        if self.chosen.names and not self.env:
            raise environments.NoEnvironmentError(f"{self.file} has environments", self.chosen.names)

    @property
    def texts(self) -> dict[str, str]:
        """The project file's text by its name, so that findings can show its lines; empty without a file."""
        return {str(self.file): self.text} if self.text else {}

    @cached_property
    def digest(self) -> str:
        """A hash of the files that decide a request: the project file, its templates, and its rows of the catalog."""
        text = self.text
        if self.env:  # the other environments decide nothing; comments may hide findings
            text = json.dumps([self.env, self.chosen.merged, re.findall("#.*", text)], default=str)
        made = hashlib.sha256(text.encode())
        templates, catalog = self.project.templates, self.project.catalog
        named = [self.folder / catalog] if catalog else []
        named += sorted((self.folder / templates).glob(f"*{TEMPLATE_SUFFIX}")) if templates else []
        for file in (one for one in named if one.is_file() and files.is_inside(one, self.folder)):
            with suppress(OSError):
                made.update(b"\0" + file.name.encode() + b"\0" + file.read_bytes())
        return made.hexdigest()[:12]

    @property
    def words(self) -> tuple[str, ...]:
        """The command-line options that select this project, with its overrides."""
        sets = (word for override in self.overrides for word in ("--set", override))
        env = ("--env", self.env) if self.env else ()
        return (*(("--file", str(self.file)) if self.named else ()), *env, *sets)

    def runnable(self, name: str) -> Job | Sweep:
        """Return the job or sweep called `name`; UsageError with the nearest one if there is none."""
        found = self.project.jobs.get(name) or self.project.sweeps.get(name)
        if found is None:
            near = _instead(name, list(self.project.entries))
            raise UsageError(f"{self.file} has no job or sweep {quoted(name)}{near}")
        return found


def _instead(name: str, names: Sequence[str]) -> str:
    """Return the second half of a message about an unknown NAME: what to write instead."""
    parts = [part.strip() for part in name.split(",")]
    if len(parts) > 1 and all(part in names for part in parts):
        return f": write names with spaces between them: {' '.join(parts)}"
    path = Path(name)
    if path.suffix in (".yaml", ".yml", ".json", ".py") or len(path.parts) > 1:
        return f", and this takes a NAME, not a file. {did_you_mean(path.stem, names, most=30)}"
    return f". {did_you_mean(name, names, most=30)}"


class ForeignProjectError(UsageError):
    """The nearest project file is a link that leads out of its checkout, or is in a folder above and belongs to another user."""


def find(start: Path) -> Path:
    """Return the project file in `start` or the nearest folder above it.

    Raises:
        ForeignProjectError: It is a link that leads out of its checkout, or it is above, and it or its folder belongs to another user:
            anyone may put one into /tmp.
        UsageError: There is none.
    """
    for folder in (start, *start.parents):
        found = folder / DEFAULT_NAME
        if not found.is_file():
            continue
        if not files.is_inside(found, folder):
            raise ForeignProjectError(
                f"{found} is a link that leads out of its checkout, to {found.resolve()}, so it is not used; if you mean that "
                f"file, name it: --file {shlex.quote(str(found))}"
            )
        # in the working directory itself the owner does not matter: the user chose that folder
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
        f"there is no {DEFAULT_NAME} in {start} or above it: name one with --file, or make one with `vertexrig init`"
    )


def _is_ours(path: Path) -> bool:
    """Whether a path belongs to the user, or, as with git, to the user who started this process with sudo."""
    if not hasattr(os, "geteuid"):
        return True  # Windows has no such owner
    user, owner = os.geteuid(), path.stat().st_uid
    return owner == user or (user == 0 and str(owner) == os.environ.get("SUDO_UID"))


def load(
    file: Path | None = None,
    *,
    overrides: Sequence[str] = (),
    target: str | None = None,
    environ: Mapping[str, str] | None = None,
    without: Collection[yamltext.FileKey] = (),
    env: str | None = None,
) -> Loaded:
    """Read a project file.

    Args:
        file: The file; by default `vertexrig.yaml`, searched upwards from the working directory.
        overrides: `key=value` strings. A key is looked up in the job or sweep `target` first, then from the top.
        target: The job or sweep the command is about.
        environ: Environment variables for `${NAME}`; by default those of the process.
        without: Entries to leave out, by the paths of their keys.
        env: Name of the environment of the project file, "" for none; by default the one of `--env` or VERTEXRIG_ENV.

    Raises:
        ConfigError: The file or an override is wrong.
        UsageError: There is no such file or environment.
    """
    path = find(Path.cwd()) if file is None else file
    found = loads(
        files.read_text(path), file=path, overrides=overrides, target=target, environ=environ, without=without,
        env=environments.selected() if env is None else env,
    )  # fmt: skip
    return replace(found, named=file is not None)


def loads(
    text: str,
    *,
    file: Path,
    overrides: Sequence[str] = (),
    target: str | None = None,
    environ: Mapping[str, str] | None = None,
    without: Collection[yamltext.FileKey] = (),
    env: str = "",
) -> Loaded:
    """Like `load`, for the text of a project file; without `env` it is the file without an environment."""
    reading = typed.read(text, str(file))
    file_place = typed.Place((), typed.Origins(str(file), reading.lines), typed.bare_yn(reading))
    if not isinstance(reading.data, (dict, type(None))):
        raise file_place.error(f"the project file is {kind_of(reading.data)}; it must be a mapping")
    if not reading.data:
        raise file_place.error("the project file is empty: `vertexrig init --force` writes one to begin with")
    if _SPEC & reading.data.keys():
        raise file_place.error(
            "this is a job for gcloud, not a project file: `vertexrig check FILE` checks it, `vertexrig convert FILE` turns it into "
            "entries of a project file"
        )
    environ = os.environ if environ is None else environ

    def expanded(text: str) -> str:
        """Return a text with its variables filled in; the text itself if a variable is missing.

        It is used to compare the buckets and functions of environments.
        """
        value = _expand(text, file_place, environ, Errors())
        return text if value is typed.WRONG else str(value)

    base, all_environments = environments.split(reading.data, file_place)
    data, lines, chosen = environments.merge(base, all_environments, env, without, file_place, expanded)
    if all_environments and not env and typed.lacking(Project, data):
        missing = ", ".join(typed.lacking(Project, data))
        raise environments.NoEnvironmentError(f"{file} gives {missing} only in its environments", chosen.names)
    # From here, a path is one of the merged values.
    bare_yn = chosen.paths_in_merged(file_place.bare_yn)
    errors = Errors()
    # The file's variables are filled in before the overrides, in which `${…}` is text.
    data = _expand(data, typed.Place((), ProjectOrigins(str(file), lines, chosen=chosen)), environ, errors)
    # From here, a value may come from an override.
    override_of: dict[yamltext.FileKey, str] = {}
    for override in overrides:
        of_this, removed = _override(data, override, target)
        if removed:
            lines, override_of = _renumbered(lines, removed), _renumbered(override_of, removed)
            bare_yn = frozenset(_renumbered(dict.fromkeys(bare_yn), removed))
        override_of |= of_this
    if environments.KEY in data:
        raise UsageError(
            f"--set cannot change {environments.KEY}: choose one with --env, and set its keys without a prefix"
        )
    origins = ProjectOrigins(str(file), lines, override_of, chosen)
    # The line of a value that an override has replaced would mislead.
    origins = replace(origins, lines={path: line for path, line in lines.items() if not origins.is_overridden(path)})
    with errors:
        project = typed.build(Project, data, typed.Place((), origins, bare_yn))
    errors.raise_all()
    loaded = Loaded(project, file, origins, tuple(overrides), target, text=text, without=tuple(without))
    for error in _inconsistencies(loaded):
        errors.keep(error)
    errors.raise_all()
    return loaded


def _expand(value: Any, place: typed.Place, environ: Mapping[str, str], errors: Errors) -> Any:
    """Return `value` with `${NAME}` and `${NAME:-default}` filled in, in texts but not in keys; `WRONG` for a text with an error."""
    if isinstance(value, dict):
        return {key: _expand(item, place.at(key), environ, errors) for key, item in value.items()}
    if isinstance(value, list):
        return [_expand(item, place.at(index), environ, errors) for index, item in enumerate(value)]
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
        allowed = variables.allowed.get()
        hidden = allowed is not None and body["name"] not in allowed
        given = None if hidden else environ.get(body["name"])
        if given:  # an empty variable counts as unset, as `:-` does in a shell
            variables.record(body["name"], given)
            if body["default"] not in (None, given) and not secret_in(given, body["name"]):
                variables.assign(body["name"], given)
        found = given or body["default"]
        if found is None and hidden:
            raise place.error(
                f"the environment variable {body['name']} is not in the list of --variables; add it there, or write "
                f"${{{body['name']}:-default}}"
            )
        if found is None:
            raise place.error(
                f"the environment variable {body['name']} is not set; set it, or write ${{{body['name']}:-default}}"
            )
        return found

    try:
        # Untyped: a variable is text, and the type of its field decides what it becomes, as for --set
        return typed.Untyped(_VARIABLE.sub(fill, value))
    except ConfigError as error:
        errors.keep(error)
        return typed.WRONG


def _override(
    data: dict[str, Any], text: str, target: str | None
) -> tuple[dict[yamltext.FileKey, str], yamltext.FileKey]:
    """Change the project's data by one override: KEY=VALUE sets a value, KEY- removes one, and KEY alone below `args` is a bare flag.

    Returns:
        Two values. The first is the override's text, by the path of each value that it sets and of each key that it removes. The second
        is the path of the list item that it removes; () if it removes none.
    """
    key, equals, value = text.partition("=")
    removing = not equals and key.endswith("-")
    parts = key.strip().removesuffix("-" if removing else "").split(".")
    if not all(parts) or not (equals or removing or "args" in parts[:-1]):
        raise UsageError(
            f"--set {text}: write KEY=VALUE, with dots between keys, such as jobs.cpu.machine_type=n1-standard-8; "
            "KEY- removes a key, and args.NAME alone is a flag without a value"
        )
    path = _full_path(data, parts, target)
    if removing:
        from_list = _remove(data, path, text)
        return ({}, _with_indexes(path)) if from_list else ({_with_indexes(path): text}, ())
    given: dict[yamltext.FileKey, str] = {}
    here: Any = data
    for index, part in enumerate(path[:-1]):
        name: Any = _index(here, part, text)
        if isinstance(here, dict) and part not in here:
            # the override makes this mapping, so an error about it points at the override
            given[tuple(path[: index + 1])] = text
        following = here[name] if isinstance(here, list) else here.setdefault(name, {})
        if following is None:
            # the file has the key without a value, such as `env:`; an override below it makes the mapping
            following = here[name] = {}
        if not isinstance(following, (dict, list)):
            spot = ".".join(path[: index + 1])
            raise UsageError(f"--set {text}: {spot} is {kind_of(following)}, so it has no key {path[index + 1]!r}")
        here = following
    if isinstance(here, list) and path[-1] == str(len(here)):
        here.append(None)
    # Untyped: the type of its field decides what the text becomes
    here[_index(here, path[-1], text)] = typed.Untyped(value) if equals else None
    # with both spellings of the path, since a number in it is an index of a list or a key of a mapping
    return given | {_with_indexes(path): text, tuple(path): text}, ()


def _with_indexes(path: Sequence[str]) -> yamltext.FileKey:
    return tuple(int(part) if part.isdecimal() else part for part in path)


def _renumbered(values: Mapping[yamltext.FileKey, T], removed: yamltext.FileKey) -> dict[yamltext.FileKey, T]:
    """Return values by their paths after an item was removed from a list: later items have lower indexes."""
    *above, index = removed
    n = len(above)

    def now(path: yamltext.FileKey) -> yamltext.FileKey:
        at = path[n] if path[:n] == tuple(above) and len(path) > n else None
        return (*path[:n], at - 1, *path[n + 1 :]) if isinstance(at, int) and at > int(index) else path

    return {now(path): value for path, value in values.items() if path[: n + 1] != removed}


def _remove(data: dict[str, Any], path: list[str], text: str) -> bool:
    """Remove the key at `path`, and return whether it is an item of a list; UsageError with similar keys if it does not exist."""
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
    return isinstance(here, list)


def _child(here: Any, part: str) -> Any:
    return here.get(part) if isinstance(here, dict) else None


def _ending_with(data: Mapping[str, Any], path: Sequence[str]) -> list[str]:
    """Return the keys of jobs and sweeps that end like `path`, and the keys beside each."""
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
    """Return the jobs or sweeps that the file gives; an empty mapping if the value has another type."""
    found = data.get(group)
    return found if isinstance(found, dict) else {}


def _full_path(data: Mapping[str, Any], parts: list[str], target: str | None) -> list[str]:
    """Return the full path of an override's key: in the job or sweep `target`, or from the top of the file."""
    if target is not None:
        for group, cls in (("jobs", Job), ("sweeps", Sweep)):
            if target in _entries(data, group):
                keys = typed.keys(cls)
                if parts[0] in keys:
                    return [group, target, *parts]
                # Refused here, where the keys of both places can be suggested; from the top only those of the project
                # would be.
                if parts[0] not in typed.keys(Project):
                    choices = did_you_mean(parts[0], {*keys, *typed.keys(Project)}, most=40)
                    if parts[0] == target and len(parts) > 1:
                        choices = f"Leave the name out: --set {'.'.join(parts[1:])}=VALUE"
                    raise UsageError(f"--set {'.'.join(parts)}: {target} has no key {parts[0]!r}. {choices}")
    if parts[0] not in typed.keys(Project) and parts[0] in {*typed.keys(Job), *typed.keys(Sweep)}:
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
    raise UsageError(
        f"--set {text}: {part!r} is not an index of a list of {len(here)}; {_list_words(here, part, text)}"
    )


def _list_words(here: list[Any], part: str, text: str) -> str:
    """Return what to write in place of a key that is not an index of a list, such as the name of a flag."""
    key, equals, value = text.partition("=")
    path = key.removesuffix("-").split(".")
    if path[-2:] != ["args", part] or part.isdecimal():
        return f"write a number from 0 to {len(here)}"
    words = [str(word) for word in here]
    names = [word.partition("=")[0] for word in words]
    flag = next((name for name in names if name.lstrip("-").replace("-", "_") == part.replace("-", "_")), f"--{part}")
    index = names.index(flag) if flag in names else len(names)
    place = ".".join(path[:-1])
    if not equals and text.endswith("-"):
        return f"args is a list here: write --set {place}.{index}-" if flag in names else f"args has no {flag}"
    # the flag and its value are two words
    apart = bool(equals) and index + 1 < len(words) and "=" not in words[index] and not words[index + 1].startswith("-")
    new = value if apart else f"{flag}={value}" if equals else flag
    return f"args is a list here: write --set {shlex.quote(f'{place}.{index + apart}={new}')}"


def _inconsistencies(loaded: Loaded) -> Iterator[ConfigError]:
    """Yield an error for each name that is malformed or not unique, each reference to an unknown name, and keys that contradict others."""
    project = loaded.project
    for group, names in (("jobs", project.jobs), ("sweeps", project.sweeps), ("schedules", project.schedules)):
        for name in names:
            if not re.fullmatch(NAME.pattern, name):
                yield loaded.error_at(f"{quoted(name)} is not {NAME.words}", group, name)
    for name, sweep in project.sweeps.items():
        if name in project.jobs:
            yield loaded.error_at("a job has the same name; rename one of them", "sweeps", name)
        # A sweep's job is a job: a sweep of a sweep would have no trials to run.
        if sweep.job not in project.jobs:
            yield loaded.error_at(
                f"there is no job {sweep.job!r}. {did_you_mean(sweep.job, project.jobs)}", "sweeps", name, "job"
            )
    yield from _dashed_args(loaded)
    for name, schedule in project.schedules.items():
        if schedule.run not in project.entries:
            message = f"there is no job or sweep {schedule.run!r}. {did_you_mean(schedule.run, project.entries)}"
            yield loaded.error_at(message, "schedules", name, "run")
            continue  # what its steps follow is not known
        bad = triggered.wrong(schedule.then, schedule.run, project.jobs, project.sweeps)
        if bad is not None:
            index, message = bad
            yield loaded.error_at(message, "schedules", name, "then", index)
        if (schedule.then or schedule.waits) and name == TICK:
            yield loaded.error_at(
                f"{TICK!r} is the name of the tick that carries out the next steps: rename the schedule",
                "schedules",
                name,
            )
    for path, silence in _silences(project):
        for rule, reason in silence.items():
            if not reason.strip():
                yield loaded.error_at("`silence` needs a reason for each rule", *path, rule)


def _dashed_args(loaded: Loaded) -> Iterator[ConfigError]:
    """Yield an error for each key of `args` and each parameter that begins with dashes: the tool adds the dashes of a flag."""
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
                yield loaded.error_at(_dashed(key), *path, key)


def _dashed(key: str) -> str:
    """Return what to write in place of a key that begins with dashes or is empty."""
    bare = key.removeprefix("--")
    if bare and not bare.startswith("-"):
        return f"a key is a flag without its dashes: write {bare}, which becomes --{bare}"
    if not key:
        return "the key is empty; it is the name of a flag, without its dashes"
    return f'a key becomes --KEY, so {key} goes into a list with the other arguments: args: ["{key}", "VALUE"]'


def _silences(project: Project) -> Iterator[tuple[tuple[str, ...], Mapping[str, str]]]:
    yield ("silence",), project.silence
    for name, one in project.entries.items():
        yield ("jobs" if name in project.jobs else "sweeps", name, "silence"), one.silence
