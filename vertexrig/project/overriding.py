"""`--set KEY=VALUE` applied to the values of a project file, before these get their types."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from vertexrig.errors import UsageError, did_you_mean
from vertexrig.project.model import Job, Project, Sweep
from vertexrig.schema import typed
from vertexrig.text import kind_of, quoted
from vertexrig.yamltext import FileKey

T = TypeVar("T")


def apply(
    data: dict[str, Any],
    overrides: Sequence[str],
    target: str | None,
    lines: Mapping[FileKey, int],
    bare_yn: frozenset[FileKey],
) -> tuple[Mapping[FileKey, int], Mapping[FileKey, str], frozenset[FileKey]]:
    """Change the project's data by overrides, one after the other.

    Returns:
        The lines, the overrides' texts, and the paths of a bare `y` or `n`, by the paths that the values have now.
    """
    override_of: dict[FileKey, str] = {}
    for override in overrides:
        of_this, removed = _override(data, override, target)
        if removed:
            lines, override_of = _renumbered(lines, removed), _renumbered(override_of, removed)
            bare_yn = frozenset(_renumbered(dict.fromkeys(bare_yn), removed))
        override_of |= of_this
    return lines, override_of, bare_yn


def _override(data: dict[str, Any], text: str, target: str | None) -> tuple[dict[FileKey, str], FileKey]:
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
    given: dict[FileKey, str] = {}
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


def _with_indexes(path: Sequence[str]) -> FileKey:
    return tuple(int(part) if part.isdecimal() else part for part in path)


def _renumbered(values: Mapping[FileKey, T], removed: FileKey) -> dict[FileKey, T]:
    """Return values by their paths after an item was removed from a list: later items have lower indexes."""
    *above, index = removed
    n = len(above)

    def now(path: FileKey) -> FileKey:
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


def _is_argument(data: Mapping[str, Any], group: str, target: str, name: str) -> bool:
    """Whether the file gives an argument of this name to a job or sweep, or to a sweep's job."""
    own = _entries(data, group)[target]
    job = own.get("job") if group == "sweeps" and isinstance(own, dict) else None
    entries = [own, _entries(data, "jobs").get(job) if isinstance(job, str) else None]
    args = [one.get("args") for one in entries if isinstance(one, dict)]
    return any(isinstance(one, dict) and name in one for one in args)


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
                    if len(parts) == 1 and _is_argument(data, group, target, parts[0]):
                        choices = f"Did you mean 'args.{parts[0]}'?"
                    if parts[0] == target and len(parts) > 1:
                        choices = f"Leave the name out: --set {'.'.join(parts[1:])}=VALUE"
                    raise UsageError(f"--set {'.'.join(parts)}: {target} has no key {parts[0]!r}. {choices}")
    if parts[0] not in typed.keys(Project) and parts[0] in {*typed.keys(Job), *typed.keys(Sweep)}:
        names = [*_entries(data, "jobs"), *_entries(data, "sweeps")]
        if target is not None and target not in names:
            raise UsageError(f"the project file has no job or sweep {quoted(target)}{instead(target, names)}")
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


def instead(name: str, names: Sequence[str]) -> str:
    """Return the second half of a message about an unknown NAME: what to write instead."""
    parts = [part.strip() for part in name.split(",")]
    if len(parts) > 1 and all(part in names for part in parts):
        return f": write names with spaces between them: {' '.join(parts)}"
    path = Path(name)
    if path.suffix in (".yaml", ".yml", ".json", ".py") or len(path.parts) > 1:
        return f", and this takes a NAME, not a file. {did_you_mean(path.stem, names, most=30)}"
    return f". {did_you_mean(name, names, most=30)}"
