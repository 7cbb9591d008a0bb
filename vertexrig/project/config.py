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
from typing import Any

from vertexrig import files, variables, yamltext
from vertexrig.errors import ConfigError, Errors, UsageError, did_you_mean
from vertexrig.project import environments, triggered
from vertexrig.project.model import Job, Project, Sweep
from vertexrig.schema import typed
from vertexrig.spec.api_names import NAME
from vertexrig.spec.masking import secret_in
from vertexrig.text import command_line, kind_of, quoted

DEFAULT_NAME = "vertexrig.yaml"
TICK = "tick"
"""Name of the schedule that the tool adds if ticks are needed, such as by a schedule with `then` (`trigger.schedules.ticks`)."""
TICK_PATH = f"/{TICK}"
"""Path of the trigger that the schedule `tick` calls."""
STATE_FOLDER = ".vertexrig"
"""State of rehearsals and the local Vertex, beside the project file."""
PACKAGES_FOLDER = "build/packages"
"""Where the trainer's packages are built, beside the project file."""
STAGED_FOLDER = "build/function"
"""Where the function is built, with a copy of the project file, beside the project file."""
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
            ConfigError: The path leaves the checkout around that folder or is a pipe, and it comes from the file, not from --set.
        """
        path = self.folder / name
        if self.origins.is_overridden(key):
            return path
        if not files.is_inside(path, self.folder):
            raise self.error_at(
                f"{quoted(name)} is outside the project's checkout, at {os.path.realpath(path)}, and is not read: move it there, "
                f"or name it yourself with --set {shlex.quote(f'{typed.dotted(key)}={name}')}",
                *key,
            )
        if files.is_special(path):
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
            from vertexrig.project.overriding import instead

            near = instead(name, list(self.project.entries))
            raise UsageError(f"{self.file} has no job or sweep {quoted(name)}{near}")
        return found


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
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name its project file, --file {path / DEFAULT_NAME}")
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
    # The reader notes each bare `y` or `n`, and only these notes have a boolean value. `typed` refuses it where text may be meant.
    bare_yn = frozenset(note.path for note in reading.notes if isinstance(note.value, bool))
    file_place = typed.Place((), typed.Origins(str(file), reading.lines), bare_yn)
    if not isinstance(reading.data, (dict, type(None))):
        raise file_place.error(f"the project file is {kind_of(reading.data)}; it must be a mapping")
    if not reading.data:
        named = () if str(file) == DEFAULT_NAME else ("--output", file)
        raise file_place.error(
            f"the project file is empty: `{command_line('init', '--force', *named)}` writes one to begin with"
        )
    if _SPEC & reading.data.keys():
        raise file_place.error(
            "this is a job for gcloud, not a project file: `vertexrig check FILE` checks it, `vertexrig convert FILE` turns it into "
            "entries of a project file"
        )
    environ = os.environ if environ is None else environ
    data, chosen = reading.data, environments.Chosen()
    lines: Mapping[yamltext.FileKey, int] = reading.lines
    if environments.KEY in data or env:

        def expanded(text: str) -> str:
            """Return a text with its variables filled in, to be compared with others; the text itself if a variable is missing."""
            value = _expand(text, file_place, environ, Errors())
            return text if value is typed.WRONG else str(value)

        data, lines, chosen = environments.merge(data, env, without, file_place, expanded)
        if chosen.names and not env and (missing := typed.lacking(Project, data)):
            message = f"{file} gives {', '.join(missing)} only in its environments"
            raise environments.NoEnvironmentError(message, chosen.names)
        # From here, a path is one of the merged values.
        bare_yn = chosen.paths_in_merged(bare_yn)
    else:
        data = environments.left_out(data, without)
    errors = Errors()
    # The file's variables are filled in before the overrides, in which `${…}` is text.
    data = _expand(data, typed.Place((), ProjectOrigins(str(file), lines, chosen=chosen)), environ, errors)
    # From here, a value may come from an override.
    override_of: Mapping[yamltext.FileKey, str] = {}
    if overrides:
        from vertexrig.project import overriding  # most commands have none

        lines, override_of, bare_yn = overriding.apply(data, overrides, target, lines, bare_yn)
    if environments.KEY in data:  # `merge` has taken out those of the file, so an override has put them in
        raise UsageError(
            f"--set cannot change {environments.KEY}: choose one with --env, and set its keys without a prefix"
        )
    origins = ProjectOrigins(str(file), lines, override_of, chosen)
    if override_of:  # the line of a value that an override has replaced would mislead
        kept = {path: line for path, line in lines.items() if not origins.is_overridden(path)}
        origins = replace(origins, lines=kept)
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
    try:
        # Untyped: a variable is text, and the type of its field decides what it becomes, as for --set
        return typed.Untyped(_VARIABLE.sub(lambda match: _filled_in(match, place, environ), value))
    except ConfigError as error:
        errors.keep(error)
        return typed.WRONG


def _filled_in(match: re.Match[str], place: typed.Place, environ: Mapping[str, str]) -> str:
    """Return the value of a variable, or of its default; ConfigError if it has neither."""
    if match[0] == "$${":
        return "${"
    body = _VARIABLE_BODY.fullmatch(match["body"] or "")
    if body is None:
        raise place.error(f"{quoted(match[0])} is not ${{NAME}} or ${{NAME:-default}}; write $${{ for a literal ${{")
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
