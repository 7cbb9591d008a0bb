"""The command line of each pool as the trainer's parser would split it: which flags get which values, and which values they take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from vertexrig.errors import nearest
from vertexrig.spec.document import Document, Pool
from vertexrig.text import is_flag, is_shell
from vertexrig.trainer_source import started_program
from vertexrig.trainer_source.trainer_model import Flag, SourceProblem, TrainerSource


@dataclass(frozen=True)
class Passed:
    """One flag, or one positional value, of a pool's args.

    Args:
        path: Its item of args.
        name: The flag as written, `--epochs`; the flag's first name for short flags in one word, `-vx` or `-n5`; "" for a positional value.
        value: What it is given; None for a flag without a value.
        flag: The trainer's declaration of it, None if there is none.
        joined: Whether the value is in the same item, after `=`; True for each short flag with a value in a word such as `-vx` or `-n5`.
    """

    path: str
    name: str
    value: str | None
    flag: Flag | None = None
    joined: bool = False


def trainer_pools(document: Document, trainer: TrainerSource) -> list[Pool]:
    """Return the pools that run the trainer that was read: not a Reduction Server, another module or a shell line."""
    pools = [pool for pool in document.pools if not pool.empty and _runs(pool, trainer)]
    # a pool on another image runs another program, whose flags are not these
    return [pool for pool in pools if pool.container is None or pool.image == pools[0].image]


def _runs(pool: Pool, trainer: TrainerSource) -> bool:
    if pool.named_reduction_server:
        return False
    if pool.python_package is not None:
        return not pool.module or not trainer.module or pool.module == trainer.module
    line = _line(pool, trainer)
    if line and is_shell(line[0]):
        return False  # what the shell passes on is not known
    found = started_program.find(line)
    if found is None or not trainer.module:
        return True
    return (
        found.name == trainer.module
        if found.is_module
        else PurePosixPath(found.name).stem == trainer.module.rpartition(".")[2]
    )


def _line(pool: Pool, trainer: TrainerSource | None) -> list[str]:
    """Return a container's command line, as far as the spec and its image give it; of a shell line that ends in "$@" what it passes on."""
    args = pool.args
    launcher = list(trainer.launcher) if trainer is not None else []
    # `args: [-m, trainer.task]` for an image whose entry point is Python itself
    command = pool.command or launcher or (["python"] if args[:1] == ["-m"] else [])
    if len(command) > 3 and is_shell(command[0]) and command[1] == "-c" and command[2].rstrip().endswith('"$@"'):
        command = command[4:]  # the word before is the shell's $0
    return [*command, *args]


def trainer_args(pool: Pool, trainer: TrainerSource | None) -> list[str]:
    """Return a pool's args from the first that the trainer itself gets."""
    if pool.python_package is not None:
        return pool.args
    line = _line(pool, trainer)
    found = started_program.find(line)
    before = len(line) - len(pool.args)
    return pool.args[max(found.end - before, 0) :] if found is not None else pool.args


def with_command(document: Document, trainer: TrainerSource) -> TrainerSource:
    """Return the trainer with the flags of the sub-command that the pools choose; with no flag known for certain if the pools differ."""
    pools = trainer_pools(document, trainer)
    found = [_chosen(trainer, [*trainer.leading, *trainer_args(pool, trainer)]) for pool in pools] or [trainer]
    if any(one.command != found[0].command for one in found):
        why = SourceProblem("the pools choose different sub-commands")
        # no rule may then call a flag unknown or missing
        flags = tuple(replace(flag, required=False) for flag in trainer.flags)
        return replace(trainer, flags=flags, flags_unread=(*trainer.flags_unread, why))
    return found[0]


def _chosen(source: TrainerSource, args: Sequence[str]) -> TrainerSource:
    """Return the trainer with the flags that are valid behind these words of its command line; itself if it has no sub-commands."""
    if not source.commands:
        return source
    path, stray = _subcommand(source, list(args))
    flags = tuple(flag for flag in source.flags if _valid(flag, path))
    found = replace(source, flags=flags, command=path, command_unknown=stray)
    if stray:  # what follows belongs to a command that is not known
        why = SourceProblem(f"there is no sub-command {stray!r}")
        optional = tuple(replace(flag, required=False) for flag in source.flags)
        return replace(found, flags_unread=(*found.flags_unread, why), flags=optional)
    return found


def _valid(flag: Flag, path: str) -> bool:
    return not flag.commands or any(f"{path} ".startswith(f"{command} ") for command in flag.commands)


def _subcommand(source: TrainerSource, words: list[str]) -> tuple[str, str]:
    """Return (the chosen sub-command, the first word that names no sub-command or "")."""
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
            # the word behind a flag with a value is not a sub-command
            takes = flag is not None and flag.takes_value and "=" not in word
            index += 1 if takes and index < len(words) and not words[index].startswith("-") else 0
            continue
        following = f"{path} {word}".strip()
        if any(f"{command} ".startswith(f"{following} ") for command in source.commands):
            path = following
        elif any(flag.positional and _valid(flag, path) for flag in source.flags):
            continue
        else:
            # with unread declarations there may be commands that are not known
            return path, "" if source.flags_unread and not path else word
    return path, ""


def passed(pool: Pool, trainer: TrainerSource | None) -> Iterator[Passed]:
    """Yield each flag of a pool's args with its value, and each positional value."""
    args = pool.args
    yield from _split(args, len(args) - len(trainer_args(pool, trainer)), f"{pool.program_path}.args", trainer)


def leading(trainer: TrainerSource) -> Iterator[Passed]:
    """Yield each flag and value that the image's entry point gives before the job's own arguments."""
    yield from _split(list(trainer.leading), 0, "", trainer)


def given_to_absl(items: Iterable[Passed], name: str) -> list[str]:
    """Return what one of absl's own flags is given: `flagfile`, `undefok`."""
    own = [item for item in items if item.flag is not None and item.flag.parser == "absl" and item.flag.dest == name]
    return [item.value for item in own if item.value]


def _split(args: list[str], index: int, base: str, trainer: TrainerSource | None) -> Iterator[Passed]:
    def begins(word: str) -> bool:  # `-n 5` in one word is -n and its value, if there is such a flag
        return is_flag(word) or bool(trainer is not None and word.startswith("-") and trainer.short_flags(word))

    def follows() -> bool:
        return index < len(args) and not begins(args[index])

    only_values = False
    while index < len(args):
        word, path = args[index], f"{base}[{index}]"
        index += 1
        if word == "--" and not only_values:
            only_values = True
        elif only_values or not begins(word):
            yield Passed(path, "", word)
        else:
            name, equals, value = word.partition("=")
            flag = trainer.flag(name) if trainer is not None else None
            short = trainer.short_flags(word) if trainer is not None and flag is None else []
            if equals and not short:
                yield Passed(path, name, value, flag, True)
            elif short:  # short flags in one word: -vx, -n5, -Dlr=0.1
                if short[-1][0].takes_value and short[-1][1] is None and follows():
                    short[-1] = (short[-1][0], args[index])
                    index += 1
                yield from (Passed(path, one.names[0], value, one, value is not None) for one, value in short)
            elif follows() and (flag is None or flag.takes_value is not False):  # an unknown flag is given what follows
                yield Passed(path, word, args[index], flag)
                index += 1
                while flag is not None and _takes_more(flag) and follows():
                    yield Passed(f"{base}[{index}]", word, args[index], flag)
                    index += 1
            else:
                yield Passed(path, word, None, flag)


def _takes_more(flag: Flag) -> bool:
    return flag.nargs is not None and (flag.nargs in {"*", "+", "dynamic"} or flag.nargs.isdigit())


def nearest_option(name: str, options: list[str]) -> str | None:
    """Return the flag `name` may mean: one it shortens (`lr`, `lrate`: `learning_rate`), or one spelled much like it."""
    plain = name.strip("-").replace("_", "").replace("-", "").casefold()
    for option in options:
        # one letter would shorten nearly anything
        if len(plain) > 1 and _shortens(plain, option.strip("-").replace("-", "_").casefold().split("_")):
            return option
    best = nearest(name, options)
    # Words that begin alike are easily confused; rate and strategy are not.
    return best if best is not None and best.strip("-")[:1].casefold() == plain[:1] else None


def _shortens(short: str, words: list[str]) -> bool:
    """Whether `short` is made of a beginning of each word, in order."""
    if not words:
        return not short
    sizes = range(1, len(words[0]) + 1)
    return any(short.startswith(words[0][:size]) and _shortens(short[size:], words[1:]) for size in sizes)


def parses(text: str, flag: Flag) -> bool:
    """Whether a flag's type reads `text`; True if that is not known."""
    if flag.type not in {"int", "float"}:
        # of the trainer's own converters only one thing is known: whether they read 128.0
        return flag.takes_float_text is not False or "." not in text or not is_number(text)
    try:
        int(text) if flag.type == "int" else float(text)
    except ValueError:
        return False
    return True


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_choice(text: str, flag: Flag) -> bool:
    """Whether `text` is a choice: as a number where the flag's type makes one of it; True if that is not known."""
    choices = flag.choices or ()
    if text in choices:
        return True
    # argparse compares what the type made of the text: str.lower of `Adam` is a choice, and a bool of `true`
    if flag.type not in {"str", "int", "float"} and not (is_number(text) and all(map(is_number, choices))):
        return True
    if flag.type == "str" or not is_number(text):
        return False
    # choices=[16, 32] of an int flag: argparse compares after the type, so "16" and 16 are the same
    return any(is_number(choice) and float(choice) == float(text) for choice in choices)
