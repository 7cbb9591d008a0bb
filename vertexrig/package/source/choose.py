"""A trainer with sub-commands as a job's arguments use it: with the flags of the command that they choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vertexrig.package.source.model import Flag, SourceProblem, TrainerSource


def chosen(source: TrainerSource, args: Sequence[str]) -> TrainerSource:
    """The trainer with the flags that are valid behind `args`; itself if it has no sub-commands.

    Args:
        source: A trainer.
        args: The words of its command line, from the first after the program.
    """
    if not source.commands:
        return source
    path, stray = _path(source, list(args))
    flags = tuple(flag for flag in source.flags if _valid(flag, path))
    found = replace(source, flags=flags, command=path, command_unknown=stray)
    if stray:  # what follows belongs to a command that is not known
        why = SourceProblem(f"there is no sub-command {stray!r}")
        optional = tuple(replace(flag, required=False) for flag in source.flags)
        return replace(found, flags_unread=(*found.flags_unread, why), flags=optional)
    return found


def _valid(flag: Flag, path: str) -> bool:
    return not flag.commands or any(f"{path} ".startswith(f"{command} ") for command in flag.commands)


def _path(source: TrainerSource, words: list[str]) -> tuple[str, str]:
    """The path of the command that the words choose, and the word that is none where a sub-command must be."""
    path, index = "", 0
    while index < len(words):
        word = words[index]
        index += 1
        deeper = [
            command for command in source.commands if f"{command} ".startswith(f"{path} ".lstrip()) and command != path
        ]
        if not deeper or word == "--":
            break
        if word.startswith("-"):
            here = replace(source, flags=tuple(flag for flag in source.flags if _valid(flag, path)))
            flag = here.flag(word)
            takes = flag is not None and flag.takes_value and "=" not in word
            index += 1 if takes and index < len(words) and not words[index].startswith("-") else 0
            continue
        following = f"{path} {word}".strip()
        if any(f"{command} ".startswith(f"{following} ") for command in source.commands):
            path = following
        elif any(flag.positional and _valid(flag, path) for flag in source.flags):
            continue
        else:
            return path, "" if source.flags_unread and not path else word
    return path, ""
