"""The command line of each pool as the trainer's parser would split it: which flags get which values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from vertexrig.spec import Document, Pool
from vertexrig.trainer_source import Flag, TrainerSource

_NEGATIVE = re.compile(r"-[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_SHELL = re.compile(r"(^|/)(ba|da|z)?sh$")


@dataclass(frozen=True)
class Passed:
    """One flag, or one positional value, of a pool's args.

    Args:
        path: The args item it stands in.
        name: The flag as written, `--epochs`; "" for a positional value.
        value: What it is given; None for a flag without a value.
        flag: The trainer's declaration of it, None if there is none.
        joined: Whether the value stands in the same item, after `=`.
    """

    path: str
    name: str
    value: str | None
    flag: Flag | None = None
    joined: bool = False


def trainer_pools(document: Document, trainer: TrainerSource) -> list[Pool]:
    """The pools that run the trainer that was read: not a Reduction Server, another module or a shell line."""
    return [pool for pool in document.pools if not pool.empty and _runs(pool, trainer)]


def is_reduction_server(pool: Pool) -> bool:
    """Whether a pool runs Google's Reduction Server image rather than the trainer."""
    return "reductionserver" in pool.image.replace("_", "").replace("-", "").casefold()


def _runs(pool: Pool, trainer: TrainerSource) -> bool:
    if is_reduction_server(pool):
        return False
    if pool.python is not None:
        return not pool.module or not trainer.module or pool.module == trainer.module
    words = [*(pool.container or {}).get("command", ()), *pool.args]
    if words and _SHELL.search(words[0]):
        return False  # what the shell passes on cannot be told
    named = words[words.index("-m") + 1 :][:1] if "-m" in words else []
    return not named or not trainer.module or named[0] == trainer.module


def passed(pool: Pool, trainer: TrainerSource | None) -> Iterator[Passed]:
    """Each flag of a pool's args with its value, and each positional value."""
    args, start = pool.args, 0
    if pool.python is None and "-m" in args:  # `args: [-m, trainer.task, --epochs=2]` behind a Python entry point
        start = args.index("-m") + 2
    index, only_values = start, False
    while index < len(args):
        word, path = args[index], f"{pool.program_path}.args[{index}]"
        index += 1
        if word == "--" and not only_values:
            only_values = True
        elif only_values or not _is_flag(word):
            yield Passed(path, "", word)
        elif "=" in word:
            name, _, value = word.partition("=")
            yield Passed(path, name, value, _find(name, trainer), True)
        else:
            flag = _find(word, trainer)
            follows = index < len(args) and not _is_flag(args[index]) and args[index] != "--"
            if follows and (flag is None or flag.takes_value is not False):
                yield Passed(path, word, args[index], flag)
                index += 1
                while flag is not None and _takes_more(flag, args, index):
                    yield Passed(f"{pool.program_path}.args[{index}]", word, args[index], flag)
                    index += 1
            else:
                yield Passed(path, word, None, flag)


def _find(name: str, trainer: TrainerSource | None) -> Flag | None:
    return trainer.flag(name) if trainer is not None else None


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _NEGATIVE.fullmatch(word)


def _takes_more(flag: Flag, args: list[str], index: int) -> bool:
    several = flag.nargs is not None and (flag.nargs in {"*", "+", "dynamic"} or flag.nargs.isdigit())
    return several and index < len(args) and not _is_flag(args[index]) and args[index] != "--"
